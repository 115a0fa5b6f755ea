//! Entries in aws-auth: those of previous roles, and a ConfigMap that is missing or cannot be parsed.

use super::*;

/// Without the record, the entry of a previous role would stay forever after the scaling group was deleted manually.
#[tokio::test]
async fn previous_role_entries_stay_recorded_without_a_scaling_group() {
    let (old, admitted) = ("arn:aws:iam::1:role/before", "arn:aws:iam::1:role/admitted");
    let status = json!({"managed": {"authEntries": [resolved().role_arn, old], "accessEntries": [admitted]}});
    let status = serde_json::from_value(status).expect("a status");
    let map_roles =
        aws_auth::add_entries(None, &[AuthEntry::for_nodes(old, false)]).expect("an entry").expect("a text");
    let observed = observe_with(&Arc::new(FakeAws::default()), &map_roles, &status).await.expect("a state");
    assert!(observed.scaling_group.is_none());
    assert_eq!(
        (observed.previous_roles.recorded_auth_entries, observed.previous_roles.recorded_access_entries),
        (vec![old.to_owned()], vec![admitted.to_owned()])
    );
    assert!(
        observed.previous_roles.unused_auth_entries.is_empty()
            && observed.previous_roles.unused_access_entries.is_empty(),
        "instances with the old role may still launch"
    );
}

/// A user deletes aws-auth, or applies an old copy, while the group changes its role. Nodes with the role before would
/// be silent for good, and a group whose nodes are all silent is not rotated.
#[tokio::test]
async fn deleted_entry_of_a_role_that_the_group_still_runs_with_is_missing() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let (given, forged) = ("arn:aws:iam::1:role/given", "arn:aws:iam::1:role/forged");
    let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
    let group = ScalingGroup { template: Some(pin), desired: 0, ..scaling_group(&resolved.names.scaling_group) };
    let template = own_template(&resolved);
    let mut data = resolved.template_data.clone();
    data.profile_arn = "arn:aws:iam::1:instance-profile/nodes".into();
    let role = |arn: &str| Role { id: "AROA-1".into(), name: "given".into(), arn: arn.into(), ..Role::default() };
    let profile = InstanceProfile {
        id: "AIPA-1".into(),
        name: "nodes".into(),
        arn: data.profile_arn.clone(),
        created: None,
        role: Some(role(given)),
        tags: vec![],
    };
    stub.update(|d| {
        d.groups.insert(group.name.clone(), group);
        d.templates.insert(template.name.clone(), template);
        d.versions.push(TemplateVersion { template_id: "lt-1".into(), number: 1, description: None, data });
        d.profiles.insert(profile.name.clone(), profile);
    });
    let status = json!({"managed": {"authEntries": [resolved.role_arn, given, forged]}});
    let status = serde_json::from_value(status).expect("a status");
    let found = observe_with(&stub, "", &status).await.expect("a state").previous_roles;
    assert_eq!(found.recorded_auth_entries, [given], "the record alone lets no role in");
    assert_eq!(found.missing_auth_entries, [AuthEntry::for_nodes(given, false)]);
    let broken = observe_with(&stub, "- rolearn: {", &status).await.expect("a state").previous_roles;
    assert!(broken.missing_auth_entries.is_empty(), "its content is unknown: {broken:?}");
    let mut by_access_entries = self::resolved();
    by_access_entries.join_method = JoinMethod::AccessEntries { remove_other: false };
    let status = json!({"managed": {"accessEntries": [resolved.role_arn, given, forged]}});
    let status = serde_json::from_value(status).expect("a status");
    let found = observe_group(&stub, &by_access_entries, "", &status).await.expect("a state").previous_roles;
    let restored: Vec<_> = found.missing_access_entries.iter().map(|entry| entry.principal.as_str()).collect();
    assert_eq!(restored, [given], "the record alone lets no role in");
    let kind = "EC2_LINUX".to_owned();
    let entry = AccessEntry { principal: given.into(), kind, created: None, tags: vec![] };
    stub.update(|d| d.access_entries.push(entry));
    let found = observe_group(&stub, &by_access_entries, "", &status).await.expect("a state").previous_roles;
    assert!(found.missing_access_entries.is_empty(), "{found:?}");
}

/// A user exchanges the role in the instance profile, so that no node is outdated. The nodes keep credentials of the role
/// before for some hours, and would lose the cluster with its entry.
#[tokio::test]
async fn entry_of_a_role_that_was_exchanged_in_the_profile_of_running_nodes_stays_for_hours() {
    let (stub, mut resolved) = (Arc::new(FakeAws::default()), resolved());
    let (before, given) = ("arn:aws:iam::1:role/before", "arn:aws:iam::1:role/given");
    (resolved.own_role, resolved.role_arn) = (false, given.into());
    resolved.template_data.profile_arn = "arn:aws:iam::1:instance-profile/nodes".into();
    let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
    let group = ScalingGroup {
        template: Some(pin.clone()),
        instances: vec![Instance { template: Some(pin), ..instance("i-1") }],
        ..scaling_group(&resolved.names.scaling_group)
    };
    let template = own_template(&resolved);
    let profile = |role: &str| {
        let name = role.rsplit('/').next().unwrap_or_default().to_owned();
        InstanceProfile {
            id: "AIPA-1".into(),
            name: "nodes".into(),
            arn: resolved.template_data.profile_arn.clone(),
            created: None,
            role: Some(Role { id: format!("AROA-{name}"), name, arn: role.into(), ..Role::default() }),
            tags: vec![],
        }
    };
    stub.update(|d| {
        d.groups.insert(group.name.clone(), group);
        d.templates.insert(template.name.clone(), template);
        d.profiles.insert("nodes".into(), profile(given));
    });
    let entry = AuthEntry::for_nodes(before, false);
    let map_roles = aws_auth::add_entries(None, std::slice::from_ref(&entry)).unwrap().unwrap();
    let found_by = async |resolved: &ResolvedGroup, last_role: &str, exchanged_at: Option<&str>, hash: &str| {
        let status = json!({
            "nodesInstanceRoleArn": last_role,
            "managed": {"authEntries": [before, given], "roleExchangedAt": exchanged_at},
            "template": {"id": "lt-1", "version": "1", "hash": hash},
        });
        let status = serde_json::from_value(status).expect("a status");
        let found = observe_group(&stub, resolved, &map_roles, &status).await.expect("a state").previous_roles;
        assert_eq!(found.recorded_auth_entries, [before]);
        (found.exchanged_at.map(|at| at.to_string()), found.unused_auth_entries)
    };
    let found = async |last_role: &str, at: Option<&str>, hash: &str| found_by(&resolved, last_role, at, hash).await;
    let stays = |since: &str| (Some(since.to_owned()), vec![]);
    let (hash, unused) = (resolved.fingerprint.hash.as_str(), (None, vec![entry.clone()]));
    assert_eq!(found(before, None, hash).await, stays("1970-01-01T00:00:00Z"), "noticed now");
    let earlier = "1969-12-31T13:00:00Z";
    assert_eq!(found(given, Some(earlier), hash).await, stays(earlier));
    let ahead = found(given, Some("1970-01-01T05:00:00Z"), hash).await;
    assert_eq!(ahead, stays("1970-01-01T00:00:00Z"), "the clock was ahead when it was recorded");
    assert_eq!(found(given, Some("1969-12-31T12:00:00Z"), hash).await, unused, "12 hours are over");
    assert_eq!(found(given, None, hash).await, unused, "nothing was exchanged: the nodes were replaced");
    // The spec named the role before for a while, and no version was created with it.
    let own_role = ResolvedGroup { own_role: true, ..resolved.clone() };
    assert_eq!(found_by(&own_role, before, None, hash).await, unused, "no node ran with it");
    stub.update(|d| {
        let description = Some(Fingerprint { hash: "before".into(), parts: Default::default() }.to_description());
        let data = TemplateData { image_id: "ami-before".into(), ..resolved.template_data.clone() };
        d.versions.push(TemplateVersion { template_id: "lt-1".into(), number: 1, description, data });
        d.profiles.insert("nodes".into(), profile(before));
    });
    let expected = (None, vec![]);
    assert_eq!(found(before, None, "before").await, expected, "the spec names another profile: nodes are outdated");
    stub.update(|d| _ = d.profiles.insert("nodes".into(), profile(given)));
    let mut other_profile = resolved.clone();
    other_profile.template_data.profile_arn = "arn:aws:iam::1:instance-profile/other".into();
    assert_eq!(found_by(&other_profile, before, None, "before").await, expected, "no node ran with it");
}

/// A lock keeps nodes with a given role while the spec names another one, and the cluster migrates to access entries. With
/// its authenticationMode API, these nodes would lose the cluster, and a group whose nodes are all silent is not rotated.
#[tokio::test]
async fn role_that_nodes_still_run_with_migrates_to_an_access_entry() {
    let (stub, mut resolved) = (Arc::new(FakeAws::default()), resolved());
    let given = "arn:aws:iam::1:role/given";
    let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
    let group = ScalingGroup { template: Some(pin), ..scaling_group(&resolved.names.scaling_group) };
    let template = own_template(&resolved);
    let mut data = resolved.template_data.clone();
    data.profile_arn = "arn:aws:iam::1:instance-profile/nodes".into();
    let profile = InstanceProfile {
        id: "AIPA-1".into(),
        name: "nodes".into(),
        arn: data.profile_arn.clone(),
        created: None,
        role: Some(Role { id: "AROA-1".into(), name: "given".into(), arn: given.into(), ..Role::default() }),
        tags: vec![],
    };
    stub.update(|d| {
        d.groups.insert(group.name.clone(), group);
        d.templates.insert(template.name.clone(), template);
        let before = Fingerprint { hash: "before".into(), parts: Default::default() }.to_description();
        d.versions.push(TemplateVersion { template_id: "lt-1".into(), number: 1, description: Some(before), data });
        d.profiles.insert(profile.name.clone(), profile);
    });
    let status = json!({"managed": {"authEntries": [given]}});
    let status = serde_json::from_value(status).expect("a status");
    let map_roles = aws_auth::add_entries(None, &[AuthEntry::for_nodes(given, false)]).unwrap().unwrap();
    let api = JoinMethod::AccessEntries { remove_other: false };
    for (method, is_missing) in [(JoinMethod::Either, false), (JoinMethod::Both, true), (api, true)] {
        resolved.join_method = method;
        let found = observe_group(&stub, &resolved, &map_roles, &status).await.expect("a state").previous_roles;
        let missing: Vec<_> = found.missing_access_entries.iter().map(|entry| entry.principal.as_str()).collect();
        let expected = if is_missing { &[given][..] } else { &[] };
        assert_eq!(missing, expected, "{method:?}");
        assert_eq!(found.recorded_access_entries, expected, "{method:?}");
        assert_eq!(found.recorded_auth_entries, [given], "{method:?}");
    }
    // The nodes from before run Windows, and an access entry overrides aws-auth: one for Linux would lock them out.
    for (windows, kind) in [(false, "EC2_LINUX"), (true, "EC2_WINDOWS")] {
        let map_roles = aws_auth::add_entries(None, &[AuthEntry::for_nodes(given, windows)]).unwrap().unwrap();
        let found = observe_group(&stub, &resolved, &map_roles, &status).await.expect("a state").previous_roles;
        let kinds: Vec<_> = found.missing_access_entries.iter().map(|entry| entry.kind.as_str()).collect();
        assert_eq!(kinds, [kind], "Windows: {windows}");
    }
}

/// A user breaks aws-auth while a group is deleted. The group's entry would stay forever, and admit any role of that
/// name.
#[tokio::test]
async fn deletion_waits_until_the_entries_of_its_roles_can_be_looked_for() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let (names, tags) = (&resolved.names, resolved.iam_tags());
    let role = Role { name: names.role.clone(), arn: resolved.role_arn.clone(), tags, ..Role::default() };
    let remaining = async |map_roles: &str, status: Value| {
        let status = serde_json::from_value(status).expect("a status");
        let observed = with_observer(&stub, map_roles, async |observer| {
            remaining_resources(&observer, &resolved.desired.id, names, &resolved.ownership_tags, &status).await
        });
        observed.await.expect("what remains").unreadable_aws_auth
    };
    let recorded = json!({"managed": {"authEntries": ["arn:aws:iam::1:role/given"]}});
    let (by_access_entry, by_aws_auth) = (json!({"join": {"awsAuth": false, "accessEntry": "EC2_LINUX"}}), json!({}));
    let broken = "- rolearn: {";
    let found = remaining(broken, recorded.clone()).await.expect("a problem");
    assert!(found.contains("arn:aws:iam::1:role/given") && found.contains("correct it by hand"), "{found}");
    assert_eq!(remaining("", recorded).await, None, "it can be parsed, and has no entry");
    assert_eq!(remaining(broken, by_aws_auth.clone()).await, None, "there is no role that could have an entry");
    stub.update(|d| _ = d.roles.insert(names.role.clone(), role));
    assert!(remaining(broken, by_aws_auth).await.is_some_and(|found| found.contains(&resolved.role_arn)));
    assert_eq!(remaining(broken, by_access_entry).await, None, "its nodes joined by an access entry alone");
}

/// Two groups of one role are deleted while aws-auth is broken. If neither waited, the entry would stay forever.
#[tokio::test]
async fn last_user_of_a_role_waits_for_the_others_while_aws_auth_cannot_be_parsed() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let given = "arn:aws:iam::1:role/given";
    let status = json!({"managed": {"authEntries": [given]}});
    let other = json!({
        "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup", "spec": {}, "status": status,
        "metadata": {
            "name": "app", "namespace": "team", "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": [FINALIZER],
        },
    });
    let others = [serde_json::from_value(other).expect("a group")];
    let status = serde_json::from_value(status).expect("a status");
    let cluster = FakeCluster::new(&stub).with_map_roles("- rolearn: {").with_groups(&others);
    let (id, names, tags) = (&resolved.desired.id, &resolved.names, &resolved.ownership_tags);
    let found = remaining_resources(&cluster.observer(), id, names, tags, &status).await.expect("what remains");
    assert_eq!(found.wait_for.as_deref(), Some("team/app"));
}

/// In the mode API the cluster does not read aws-auth, so what a user left there must not delay a deletion.
#[tokio::test]
async fn cluster_that_does_not_read_aws_auth_needs_no_readable_one() {
    let stub = Arc::new(FakeAws::default());
    let problem = async |mode: &str| {
        let found = Cluster { authentication_mode: mode.into(), ..cluster("demo") };
        stub.update(|d| _ = d.clusters.insert("demo".into(), found));
        let unreadable = FakeCluster::new(&stub).with_map_roles("- rolearn: {");
        join::aws_auth_problem(&unreadable.observer(), "demo").await.expect("an answer").is_some()
    };
    assert!(problem("CONFIG_MAP").await && problem("API_AND_CONFIG_MAP").await && !problem("API").await);
}

/// A person granted the nodes of the role before more, or marked its entry. No step removes such an entry, so that a plan
/// to remove it would be repeated at once, forever.
#[tokio::test]
async fn entry_of_a_previous_role_that_a_person_changed_is_not_to_be_removed() {
    let (stub, mut resolved) = (Arc::new(FakeAws::default()), resolved());
    let (before, given) = ("arn:aws:iam::1:role/before", "arn:aws:iam::1:role/given");
    (resolved.own_role, resolved.role_arn) = (false, given.into());
    let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
    let group = ScalingGroup { template: Some(pin), desired: 0, ..scaling_group(&resolved.names.scaling_group) };
    let template = own_template(&resolved);
    stub.update(|d| {
        d.groups.insert(group.name.clone(), group);
        d.templates.insert(template.name.clone(), template);
    });
    let status = json!({
        "managed": {"authEntries": [before, given]},
        "template": {"id": "lt-1", "version": "1", "hash": resolved.fingerprint.hash},
    });
    let status = serde_json::from_value(status).expect("a status");
    let (linux, windows) = (AuthEntry::for_nodes(before, false), AuthEntry::for_nodes(before, true));
    let with_group = AuthEntry { groups: [linux.groups.clone(), vec!["ops:view".into()]].concat(), ..linux.clone() };
    let text = |entry: &AuthEntry| aws_auth::add_entries(None, std::slice::from_ref(entry)).unwrap().unwrap();
    let with_key = text(&linux).replace("  username:", "  x-owner: platform\n  username:");
    let cases = [(text(&linux), true), (text(&windows), true), (with_key, false), (text(&with_group), false)];
    for (map_roles, is_unused) in cases {
        let found = observe_group(&stub, &resolved, &map_roles, &status).await.expect("a state").previous_roles;
        assert_eq!(!found.unused_auth_entries.is_empty(), is_unused, "{map_roles}");
        assert_eq!(found.recorded_auth_entries, [before], "it is removed when the edit is taken back: {map_roles}");
    }
}

/// A person changed the entry of a role. It outlives the group, and no user would know.
#[tokio::test]
async fn deletion_names_the_entry_that_a_person_changed() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let given = "arn:aws:iam::1:role/given";
    let status = json!({"managed": {"authEntries": [given]}});
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    let text = aws_auth::add_entries(None, &[AuthEntry::for_nodes(given, false)]).unwrap().unwrap();
    let changed = text.replace("  username:", "  x-owner: platform\n  username:");
    for (map_roles, modified) in [(text, vec![]), (changed, vec![given.to_owned()])] {
        let (id, names, tags) = (&resolved.desired.id, &resolved.names, &resolved.ownership_tags);
        let cluster = FakeCluster::new(&stub).with_map_roles(&map_roles);
        let found = remaining_resources(&cluster.observer(), id, names, tags, &status).await.expect("what remains");
        assert_eq!(found.aws_auth_entries.is_empty(), !modified.is_empty(), "{map_roles}");
        assert_eq!(found.modified_auth_entries, modified, "{map_roles}");
    }
}
