//! Roles and instance profiles: which are read, which are the group's, and which stay.

use super::*;

/// GetInstanceProfile returns no tags of the role. If the role counted as foreign, the group would use hashed names from
/// then on, and its first role and profile would be orphaned.
#[tokio::test]
async fn role_missing_from_iam_while_profile_holds_it_is_unavailable() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let name = resolved.names.role.clone();
    let profile_role = Role {
        id: "AROA-1".into(),
        name: name.clone(),
        arn: resolved.role_arn.clone(),
        tags: vec![],
        ..Role::default()
    };
    let profile = InstanceProfile {
        id: "AIPA-1".into(),
        name: name.clone(),
        arn: resolved.template_data.profile_arn.clone(),
        created: None,
        role: Some(profile_role.clone()),
        tags: resolved.iam_tags(),
    };
    stub.update(|d| _ = d.profiles.insert(name.clone(), profile));
    let status = InstanceGroupStatus::default();
    let Err(ObserveError::Aws(error)) = observe_with(&stub, "", &status).await else {
        panic!("the owner of the role is not known yet")
    };
    assert!(error.kind == AwsErrorKind::Unavailable && error.message.contains(&name), "{error}");
    stub.update(|d| _ = d.roles.insert(name, Role { tags: resolved.iam_tags(), ..profile_role }));
    let observed = observe_with(&stub, "", &status).await.expect("the role is readable now");
    assert!(!ownership::name_conflict(&resolved, &observed, &status));
    // A forecast that took the role for foreign would give the group other names as well.
    let cluster = FakeCluster::new(&stub);
    let observer = Observer { is_forecast: true, ..cluster.observer() };
    let observed = super::super::observe(&observer, &resolved, &status).await.expect("a state");
    assert!(!ownership::name_conflict(&resolved, &observed, &status));
}

/// The pass that forgets the entry is the last one before the group is Ready. Role and profile would stay until the next
/// resync, and a group that is deleted before would have to find them again.
#[tokio::test]
async fn role_that_is_no_longer_used_is_read_in_the_pass_that_forgets_its_entry() {
    let (stub, mut resolved) = (Arc::new(FakeAws::default()), resolved());
    let own = resolved.role_arn.clone();
    (resolved.own_role, resolved.role_arn) = (false, "arn:aws:iam::1:role/given".into());
    let (pin, name) = (TemplatePin { id: "lt-1".into(), version: "1".into() }, resolved.names.role.clone());
    let group = ScalingGroup { template: Some(pin), desired: 0, ..scaling_group(&resolved.names.scaling_group) };
    let template = own_template(&resolved);
    let tags = resolved.iam_tags();
    let role = Role { id: "AROA-1".into(), name: name.clone(), arn: own.clone(), tags, ..Role::default() };
    stub.update(|d| {
        d.groups.insert(group.name.clone(), group);
        d.templates.insert(template.name.clone(), template);
        d.roles.insert(name, role);
    });
    let status = json!({
        "managed": {"authEntries": [own, resolved.role_arn], "policies": ["arn:aws:iam::aws:policy/one"]},
        "template": {"id": "lt-1", "version": "1", "hash": resolved.fingerprint.hash},
    });
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    let entry = |arn: &str| aws_auth::add_entries(None, &[AuthEntry::for_nodes(arn, false)]).unwrap().unwrap();
    let observed = observe_group(&stub, &resolved, &entry(&own), &status).await.expect("a state");
    assert!(observed.unused_role.is_none(), "its entry is removed first");
    let changed = entry(&own).replace("  username:", "  x-owner: platform\n  username:");
    let observed = observe_group(&stub, &resolved, &changed, &status).await.expect("a state");
    assert!(observed.unused_role.is_some_and(|unused| unused.role.is_some()), "no step removes what a person changed");
    assert_eq!(observed.previous_roles.recorded_auth_entries, [own.as_str()], "the change may be undone");
    let observed = observe_group(&stub, &resolved, &entry(&resolved.role_arn), &status).await.expect("a state");
    assert!(observed.unused_role.is_some_and(|unused| unused.role.is_some()), "nothing else is left of it");
    // keikoproj/instance-manager made the entry of a group that was taken over. It would admit any role of that name.
    let mut adopted_status = status;
    adopted_status.managed.as_mut().expect("a record").auth_entries.retain(|arn| *arn != own);
    let observed = observe_group(&stub, &resolved, &entry(&own), &adopted_status).await.expect("a state");
    assert_eq!(observed.previous_roles.unused_auth_entries, [AuthEntry::for_nodes(&own, false)]);
    assert!(observed.unused_role.is_none(), "its entry is removed first");
    let observed = observe_group(&stub, &resolved, "- rolearn: {", &adopted_status).await.expect("a state");
    assert!(observed.unused_role.is_none(), "it may have an entry as long as aws-auth cannot be parsed");
}

/// A user made an access entry for the role while its nodes joined through aws-auth. The status does not record it. It
/// would outlive the role, and lock out the next role of that name.
#[tokio::test]
async fn access_entry_of_a_user_goes_with_the_role_that_is_no_longer_used() {
    let (stub, mut resolved) = (Arc::new(FakeAws::default()), resolved());
    let own = resolved.role_arn.clone();
    (resolved.own_role, resolved.role_arn) = (false, "arn:aws:iam::1:role/given".into());
    let (name, tags) = (resolved.names.role.clone(), resolved.iam_tags());
    let role = Role { id: "AROA-1".into(), name: name.clone(), arn: own.clone(), tags, ..Role::default() };
    let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
    let group = ScalingGroup { template: Some(pin), desired: 0, ..scaling_group(&resolved.names.scaling_group) };
    let template = own_template(&resolved);
    let kind = "EC2_LINUX".to_owned();
    let entry = AccessEntry { principal: own.clone(), kind, created: None, tags: vec![] };
    stub.update(|d| {
        d.groups.insert(group.name.clone(), group);
        d.templates.insert(template.name.clone(), template);
        d.roles.insert(name, role);
        d.access_entries.push(entry.clone());
    });
    let status = json!({
        "managed": {"policies": ["arn:aws:iam::aws:policy/one"]},
        "template": {"id": "lt-1", "version": "1", "hash": resolved.fingerprint.hash},
    });
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    let found = async |extra: &[&str]| {
        let attached = |policy: &&str| ((*policy).to_owned(), vec![resolved.names.role.clone()]);
        stub.update(|d| d.policies = extra.iter().map(attached).collect());
        let observed = observe_group(&stub, &resolved, "", &status).await.expect("a state");
        observed.unused_role.expect("the role").access_entry
    };
    for (mode, extra, expected) in [
        ("CONFIG_MAP", &[][..], None),
        ("API_AND_CONFIG_MAP", &[], Some(&entry)),
        // A user may have made the entry for what they use the role for.
        ("API_AND_CONFIG_MAP", &["arn:aws:iam::1:policy/of-a-user"], None),
    ] {
        let in_mode = Cluster { authentication_mode: mode.into(), ..cluster("demo") };
        stub.update(|d| _ = d.clusters.insert("demo".into(), in_mode));
        assert_eq!(found(extra).await.as_ref(), expected, "{mode} {extra:?}");
    }
    stub.update(|d| d.denied = Some("access entry"));
    assert_eq!(found(&[]).await, None, "groups that join through aws-auth need no permission");
}

/// A group changes from its own role to a given one. A tenant makes a mistake in the mixed instances policy before all
/// nodes are replaced. What nodes should be like is not known then. The nodes that still run with the own role would
/// lose the cluster, and their permissions.
#[tokio::test]
async fn own_role_stays_while_it_is_not_known_which_nodes_are_outdated() {
    let (stub, mut resolved) = (Arc::new(FakeAws::default()), resolved());
    let own = resolved.role_arn.clone();
    (resolved.own_role, resolved.role_arn) = (false, "arn:aws:iam::1:role/given".into());
    let pin = |version: &str| TemplatePin { id: "lt-1".into(), version: version.into() };
    let (mut old, new) = (instance("i-old"), instance("i-new"));
    old.template = Some(pin("1"));
    let new = Instance { template: Some(pin("2")), ..new };
    let group = ScalingGroup {
        template: Some(pin("2")),
        instances: vec![old, new],
        ..scaling_group(&resolved.names.scaling_group)
    };
    let template = LaunchTemplate { latest_version: 2, ..own_template(&resolved) };
    let version = |number, hash: &str| TemplateVersion {
        template_id: "lt-1".into(),
        number,
        description: Some(Fingerprint { hash: hash.into(), parts: Default::default() }.to_description()),
        data: TemplateData { image_id: format!("ami-{hash}"), ..resolved.template_data.clone() },
    };
    let name = resolved.names.role.clone();
    let tags = resolved.iam_tags();
    let role = Role { id: "AROA-1".into(), name: name.clone(), arn: own.clone(), tags, ..Role::default() };
    stub.update(|d| {
        d.versions = vec![version(1, "before"), version(2, &resolved.fingerprint.hash)];
        d.groups.insert(group.name.clone(), group);
        d.templates.insert(template.name.clone(), template);
        d.roles.insert(name, role);
    });
    let status = json!({
        "managed": {"authEntries": [own, resolved.role_arn], "policies": ["arn:aws:iam::aws:policy/one"]},
        "template": {"id": "lt-1", "version": "2", "hash": resolved.fingerprint.hash},
    });
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    let map_roles = aws_auth::add_entries(None, &[AuthEntry::for_nodes(&own, false)]).unwrap().unwrap();
    let mistake =
        SpecError::invalid("spec.eks.configuration.mixedInstancesPolicy.spotRatio", "many", "is not a number", "");
    for is_broken in [false, true] {
        if is_broken {
            resolved.broken.push(&[Part::Launch], mistake.clone());
        }
        let observed = observe_group(&stub, &resolved, &map_roles, &status).await.expect("a state").previous_roles;
        assert_eq!(observed.recorded_auth_entries, [own.as_str()], "broken: {is_broken}");
        assert!(observed.unused_auth_entries.is_empty(), "broken: {is_broken}");
        let observed = observe_group(&stub, &resolved, "", &status).await.expect("a state");
        assert!(observed.unused_role.is_none(), "broken: {is_broken}");
    }
}

/// A user detached an instance from the scaling group to look into a problem, or launched one with the group's profile.
/// It would lose its permissions with the role.
#[tokio::test]
async fn own_role_stays_while_an_instance_outside_of_the_group_runs_with_it() {
    let (stub, mut resolved) = (Arc::new(FakeAws::default()), resolved());
    let (name, tags) = (resolved.names.role.clone(), resolved.iam_tags());
    let arn = resolved.role_arn.clone();
    let role = Role { id: "AROA-1".into(), name: name.clone(), arn, tags: tags.clone(), ..Role::default() };
    let profile = InstanceProfile {
        id: "AIPA-1".into(),
        name: name.clone(),
        arn: resolved.template_data.profile_arn.clone(),
        created: None,
        role: Some(role.clone()),
        tags,
    };
    (resolved.own_role, resolved.role_arn) = (false, "arn:aws:iam::1:role/given".into());
    resolved.template_data.profile_arn = "arn:aws:iam::1:instance-profile/given".into();
    let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
    let group = ScalingGroup { template: Some(pin), desired: 0, ..scaling_group(&resolved.names.scaling_group) };
    let template = own_template(&resolved);
    stub.update(|d| {
        d.groups.insert(group.name.clone(), group);
        d.templates.insert(template.name.clone(), template);
        d.roles.insert(name.clone(), role);
        d.instances = vec![("i-detached".into(), profile.arn.clone())];
        d.profiles.insert(name, profile.clone());
    });
    let own = &resolved.derived_role_arn;
    let status = json!({
        "managed": {"authEntries": [own, resolved.role_arn], "policies": ["arn:aws:iam::aws:policy/one"]},
        "template": {"id": "lt-1", "version": "1", "hash": resolved.fingerprint.hash},
    });
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    let entry = AuthEntry::for_nodes(own, false);
    let map_roles = aws_auth::add_entries(None, std::slice::from_ref(&entry)).unwrap().unwrap();
    let found = async |map_roles: &str| observe_group(&stub, &resolved, map_roles, &status).await.expect("a state");
    let previous = found(&map_roles).await.previous_roles;
    assert_eq!((previous.recorded_auth_entries, previous.unused_auth_entries), (vec![own.clone()], vec![]));
    assert!(found("").await.unused_role.is_none(), "the instance uses it");
    stub.update(|d| {
        d.instances.clear();
        d.profiles.insert("of-a-person".into(), InstanceProfile { name: "of-a-person".into(), ..profile.clone() });
    });
    let shared = found(&map_roles).await;
    assert_eq!(shared.previous_roles.unused_auth_entries, [], "nodes of the other profile join by it");
    assert_eq!(shared.previous_roles.kept[0].user, "the instance profile of-a-person");
    assert!(shared.unused_role.is_some_and(|role| role.reason_to_keep(&[]).is_some()));
    stub.update(|d| _ = d.profiles.remove("of-a-person"));
    assert_eq!(found(&map_roles).await.previous_roles.unused_auth_entries, [entry]);
    let unused = found("").await.unused_role.expect("nothing uses it any more");
    assert!(unused.role.is_some() && unused.profile.is_some());
    // Without the record of its policies, nothing would look for it again.
    let tags = resolved.iam_tags();
    for (role_tags, profile_tags) in [(&tags, &vec![]), (&vec![], &tags), (&vec![], &vec![])] {
        stub.update(|d| {
            d.roles.values_mut().for_each(|role| role.tags.clone_from(role_tags));
            d.profiles.values_mut().for_each(|profile| profile.tags.clone_from(profile_tags));
        });
        assert!(found("").await.unused_role.is_none(), "a user took tags off, which may come back");
    }
}

/// A user put the group's role into an instance profile of their own. IAM deletes no such role, and what launches with
/// the profile would lose the role's policies before IAM returns the error.
#[tokio::test]
async fn role_in_an_instance_profile_of_others_stays() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let (names, tags) = (&resolved.names, resolved.iam_tags());
    let (name, arn) = (names.role.clone(), resolved.role_arn.clone());
    let role = Role { id: "AROA-1".into(), name: name.clone(), arn, tags: tags.clone(), ..Role::default() };
    let profile = |name: &str, tags: &[Tag]| InstanceProfile {
        id: format!("AIPA-{name}"),
        name: name.into(),
        arn: format!("arn:aws:iam::1:instance-profile/{name}"),
        created: None,
        role: Some(role.clone()),
        tags: tags.to_vec(),
    };
    let (own, other) = (profile(&name, &tags), profile("of-a-person", &[]));
    let own_arn = own.arn.clone();
    stub.update(|d| {
        d.roles.insert(name.clone(), role.clone());
        d.profiles = [own, other.clone()].map(|profile| (profile.name.clone(), profile)).into();
    });
    let remains = async || {
        let status = InstanceGroupStatus::default();
        let observed = with_observer(&stub, "", async |observer| {
            remaining_resources(&observer, &resolved.desired.id, names, &resolved.ownership_tags, &status).await
        });
        observed.await
    };
    let in_use = async || remains().await.expect("what remains").role_in_use;
    assert_eq!(in_use().await.as_deref(), Some("the instance profile of-a-person"));
    stub.update(|d| d.denied = Some("profiles of a role"));
    assert!(remains().await.is_err(), "no answer is not that there is none");
    stub.update(|d| d.denied = None);
    assert_eq!(stub.calls("profiles"), 0, "the account may have thousands");
    stub.update(|d| d.instances = vec![("i-1".into(), other.arn.clone())]);
    assert_eq!(in_use().await.as_deref(), Some("the instance i-1"));
    // A user removed the tags of the role, but not those of its profile.
    stub.update(|d| {
        d.roles.insert(name.clone(), Role { tags: vec![], ..role.clone() });
        d.instances = vec![("i-2".into(), own_arn.clone())];
    });
    assert_eq!(in_use().await.as_deref(), Some("the instance i-2"), "it has no permissions without the profile");
    stub.update(|d| _ = d.roles.insert(name.clone(), role.clone()));
    stub.update(|d| {
        d.instances.clear();
        d.profiles.remove("of-a-person");
    });
    assert_eq!(in_use().await, None);
}

/// IAM admits few calls a second, and a new image is one for every group at once. The tags of the role matter before the
/// version is made, and not once more after it.
#[tokio::test]
async fn role_is_read_once_for_a_new_version() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let role = Role {
        id: "AROA-1".into(),
        name: resolved.names.role.clone(),
        arn: resolved.role_arn.clone(),
        tags: resolved.iam_tags(),
        ..Role::default()
    };
    let profile = InstanceProfile {
        id: "AIPA-1".into(),
        name: role.name.clone(),
        arn: resolved.template_data.profile_arn.clone(),
        created: None,
        role: Some(role.clone()),
        tags: resolved.iam_tags(),
    };
    let version = |number, hash: &str| TemplateVersion {
        template_id: "lt-1".into(),
        number,
        description: Some(Fingerprint { hash: hash.into(), parts: Default::default() }.to_description()),
        data: TemplateData { image_id: format!("ami-{hash}"), ..resolved.template_data.clone() },
    };
    let status = json!({
        "managed": {"roleRegion": resolved.region},
        "template": {"id": "lt-1", "version": "1", "hash": "before"},
    });
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    let calls = async |pinned: &str, versions: Vec<TemplateVersion>| {
        let stub = Arc::clone(&stub);
        let pin = TemplatePin { id: "lt-1".into(), version: pinned.into() };
        let tags = resolved.tags.clone();
        let group = ScalingGroup { template: Some(pin), tags, ..scaling_group(&resolved.names.scaling_group) };
        let latest_version = versions.len().try_into().expect("a number");
        let template = LaunchTemplate { latest_version, ..own_template(&resolved) };
        stub.update(|d| {
            d.groups.insert(group.name.clone(), group);
            d.templates.insert(template.name.clone(), template);
            d.versions = versions;
            d.roles.insert(role.name.clone(), role.clone());
            d.profiles.insert(role.name.clone(), profile.clone());
            d.calls.clear();
        });
        observe_with(&stub, "", &status).await.expect("a state");
        (stub.calls("role"), stub.calls("profile"))
    };
    let new = || version(2, &resolved.fingerprint.hash);
    assert_eq!(calls("1", vec![version(1, "before")]).await, (1, 1), "a version is about to be made");
    assert_eq!(calls("1", vec![version(1, "before"), new()]).await, (1, 1), "it is not in use yet");
    assert_eq!(calls("2", vec![version(1, "before"), new()]).await, (0, 0), "only the status lacks it");
}

/// The scaling group refers to its instance profile by name. The deletion would delete a profile that another client
/// created under this name after the group's own was deleted. An active group reports such a profile as a conflict.
#[tokio::test]
async fn deletion_adopts_only_a_profile_that_contains_the_role() {
    let resolved = resolved();
    let names = &resolved.names;
    let role = |name: &str| Role { id: "AROA-1".into(), name: name.into(), ..Role::default() };
    for (profile_role, adopted) in
        [(Some(role(&names.role)), true), (None, false), (Some(role("of-another-owner")), false)]
    {
        let stub = Arc::new(FakeAws::default());
        let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
        let tags = resolved.ownership_tags.clone();
        let group = ScalingGroup { template: Some(pin), tags, ..scaling_group(&names.scaling_group) };
        let (id, name) = ("lt-1".to_owned(), names.template.clone());
        let template = LaunchTemplate { id, name, default_version: 1, latest_version: 1, tags: vec![] };
        let data = resolved.template_data.clone();
        let version = TemplateVersion { template_id: "lt-1".into(), number: 1, description: None, data };
        let arn = resolved.template_data.profile_arn.clone();
        let (id, name) = ("AIPA-2".to_owned(), names.role.clone());
        let profile = InstanceProfile { id, name, arn, created: None, role: profile_role.clone(), tags: vec![] };
        stub.update(|d| {
            d.groups.insert(group.name.clone(), ScalingGroup { instances: vec![], ..group });
            d.templates.insert(template.name.clone(), template);
            d.versions.push(version);
            d.profiles.insert(names.role.clone(), profile);
            d.roles.insert(names.role.clone(), role(&names.role));
        });
        let status = json!({"managed": {"policies": ["arn:aws:iam::aws:policy/one"]}});
        let status = serde_json::from_value(status).expect("a status");
        let remaining = with_observer(&stub, "", async |observer| {
            remaining_resources(&observer, &resolved.desired.id, names, &resolved.ownership_tags, &status).await
        });
        let found = remaining.await.expect("what remains").adopted;
        assert_eq!(found.template.as_deref(), Some("lt-1"));
        let of_profile = (found.profile.is_some(), found.role.is_some());
        assert_eq!(of_profile, (adopted, adopted), "{profile_role:?}");
    }
}

/// A user deletes the role of a group and then the group. The access entry would lock out the next role of that name.
#[tokio::test]
async fn deletion_finds_the_access_entry_of_a_role_that_is_gone() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let (arn, kind) = (resolved.role_arn.clone(), "EC2_LINUX".to_owned());
    let entry = AccessEntry { principal: arn.clone(), kind, created: None, tags: vec![] };
    let in_mode = Cluster { authentication_mode: "API_AND_CONFIG_MAP".into(), ..cluster("demo") };
    stub.update(|d| {
        d.access_entries.push(entry.clone());
        d.clusters.insert("demo".into(), in_mode);
    });
    let had_role = InstanceGroupStatus { nodes_instance_role_arn: Some(arn), ..InstanceGroupStatus::default() };
    for (status, expected) in [(InstanceGroupStatus::default(), vec![]), (had_role, vec![entry])] {
        let tags = resolved.iam_tags();
        let remaining = with_observer(&stub, "", async |observer| {
            remaining_resources(&observer, &resolved.desired.id, &resolved.names, &tags, &status).await
        });
        assert_eq!(remaining.await.expect("what remains").access_entries, expected);
    }
}
