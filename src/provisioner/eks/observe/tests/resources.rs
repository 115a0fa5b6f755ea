//! Launch templates, scaling groups and hooks: how they are found, also without a record of them.

use super::*;

/// A user removes the status, or a backup brings the group back without it. The group would get a second scaling group,
/// and a deletion would leave everything.
#[tokio::test]
async fn resources_are_found_by_their_tags_when_the_status_does_not_name_them() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let id = &resolved.desired.id;
    let cluster = FakeCluster::new(&stub);
    let names = async || unrecorded::names(&cluster.observer(), "demo", id).await.expect("an answer").map(|n| n.names);
    let form = async || unrecorded::form_in_use(&cluster.observer(), "demo", id).await.expect("an answer");
    assert_eq!((names().await, form().await), (None, None));
    let foreign = Role {
        tags: crate::ownership::ownership_tags("demo", &GroupId { name: "api".into(), ..id.clone() }),
        name: resolved.names.role.clone(),
        ..Role::default()
    };
    stub.update(|d| _ = d.roles.insert(foreign.name.clone(), foreign.clone()));
    assert_eq!(names().await, None, "another group's");
    let own = Role { tags: resolved.iam_tags(), ..foreign };
    stub.update(|d| _ = d.roles.insert(own.name.clone(), own.clone()));
    assert_eq!(names().await.map(|n| n.role), Some(resolved.names.role.clone()));
    let hashed = GroupNames::new("demo", "team", "web");
    let name = hashed.scaling_group_in(NameForm::Hashed, "us-west-2");
    let group = ScalingGroup { tags: resolved.tags.clone(), ..scaling_group(&name) };
    stub.update(|d| {
        d.roles.clear();
        d.groups.insert(name.clone(), group);
    });
    assert_eq!(names().await.map(|n| n.scaling_group), Some(name));
    assert_eq!(form().await, Some(NameForm::Hashed));
}

/// A user removes the finalizer of a group whose scaling group does not exist yet, and creates the group again. The old
/// launch template would stay forever, because its name contains the creation time of the group.
#[tokio::test]
async fn launch_template_of_an_earlier_group_of_the_name_is_used_again() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let id = &resolved.desired.id;
    let cluster = FakeCluster::new(&stub);
    let observer = cluster.observer();
    let name = async |status: &InstanceGroupStatus| {
        let name = unrecorded::template_name(&observer, "demo", id, NameForm::Plain, status).await;
        name.expect("an answer")
    };
    let new = InstanceGroupStatus::default();
    assert_eq!(name(&new).await, None);
    let left = |name: &str, tags: Vec<crate::aws::Tag>| {
        let (id, name) = (format!("lt-{name}"), name.to_owned());
        let found = LaunchTemplate { id, name: name.clone(), default_version: 1, latest_version: 1, tags };
        stub.update(|d| _ = d.templates.insert(name, found));
    };
    left("demo-team-web-20190101000000", crate::ownership::ownership_tags("other", id));
    left("demo-team-web-2-20190101000000", resolved.tags.clone());
    assert_eq!(name(&new).await, None, "of another cluster, and of another group");
    left("demo-team-web-20190101000000", resolved.tags.clone());
    assert_eq!(name(&new).await.as_deref(), Some("demo-team-web-20190101000000"));
    let found = unrecorded::names(&observer, "demo", id).await.expect("an answer").expect("names");
    assert_eq!(found.names.template, "demo-team-web-20190101000000");

    let recorded = |name: &str| InstanceGroupStatus {
        active_launch_template_name: Some(name.into()),
        ..InstanceGroupStatus::default()
    };
    let keiko = "demo-team-web-20180101000000";
    assert_eq!(name(&recorded(keiko)).await.as_deref(), Some(keiko));
    assert_eq!(name(&recorded("anything")).await, None, "the status is not proof");
}

/// A user deletes the version that the group launches. Nothing but the failed launch shows it, and the group would stay
/// without nodes until a user acts.
#[tokio::test]
async fn version_in_use_is_read_again_after_each_failed_launch() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let pin = TemplatePin { id: "lt-1".into(), version: "2".into() };
    let group = ScalingGroup { template: Some(pin), ..scaling_group(&resolved.names.scaling_group) };
    let (id, name) = ("lt-1".to_owned(), resolved.names.template.clone());
    let template = LaunchTemplate { id, name, default_version: 1, latest_version: 2, tags: vec![] };
    let data = resolved.template_data.clone();
    stub.update(|d| {
        d.versions.push(TemplateVersion { template_id: "lt-1".into(), number: 1, description: None, data })
    });
    let hash = &resolved.fingerprint.hash;
    let status = json!({"template": {"id": "lt-1", "version": "2", "hash": hash}});
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    let cluster = FakeCluster::new(&stub);
    let observer = cluster.observer();
    let numbers = async || {
        let found = super::super::versions(&observer, &resolved, &status, Some(&group), Some(&template)).await;
        found.expect("an answer").into_keys().collect::<Vec<_>>()
    };
    assert_eq!(numbers().await, [2], "the record is enough");
    let key = resolved.desired.id.key();
    for began in [10, 20] {
        let began = Some(jiff::Timestamp::from_second(began).expect("a time"));
        for _ in 0..2 {
            observer.process_state.record_failed_launch(&key, began);
        }
        assert_eq!(numbers().await, [1], "it is gone");
        observer.process_state.record_failed_launch(&key, began);
        assert_eq!(numbers().await, [2], "it is read once for each failure");
    }
}

/// The inputs name a `userData` entry, and may list volumes in another order. Every node of the group would be replaced by an
/// equal one.
#[tokio::test]
async fn version_with_equal_content_is_the_desired_one_whatever_its_inputs_are() {
    let (stub, mut resolved) = (Arc::new(FakeAws::default()), resolved());
    let device = |name: &str| BlockDevice {
        name: name.into(),
        volume_type: None,
        size: Some(8),
        iops: None,
        throughput: None,
        delete_on_termination: true,
        encrypted: None,
        snapshot_id: None,
    };
    resolved.template_data.devices = vec![device("/dev/xvda"), device("/dev/xvdb")];
    let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
    let group = ScalingGroup { template: Some(pin), ..scaling_group(&resolved.names.scaling_group) };
    let (cluster, template) = (FakeCluster::new(&stub), own_template(&resolved));
    let status = json!({"template": {"id": "lt-1", "version": "1", "hash": "before"}});
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    let before = Fingerprint { hash: "before".into(), parts: BTreeMap::new() };
    let hash_of = async |description: Option<String>, data: TemplateData| {
        let version = TemplateVersion { template_id: "lt-1".into(), number: 1, description, data };
        stub.update(|d| d.versions = vec![version]);
        cluster.observer().inventory.remove_versions("lt-1", &[1]);
        let found =
            super::super::versions(&cluster.observer(), &resolved, &status, Some(&group), Some(&template)).await;
        found.expect("an answer")[&1].fingerprint.as_ref().map(|print| print.hash.clone())
    };
    let mut same = resolved.template_data.clone();
    same.devices.reverse();
    let other = TemplateData { image_id: "ami-other".into(), ..same.clone() };
    let (recorded, desired) = (Some(before.to_description()), Some(resolved.fingerprint.hash.clone()));
    assert_eq!(hash_of(recorded.clone(), same.clone()).await, desired);
    assert_eq!(hash_of(recorded, other).await, Some(before.hash));
    assert_eq!(hash_of(None, same).await, None, "another controller made it: the adoption records what it stands for");
}

/// EC2 deletes a launch template that a scaling group refers to, and a user's scaling group would launch nothing any
/// more.
#[tokio::test]
async fn launch_template_of_a_deleted_group_stays_for_the_scaling_group_of_others() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let names = &resolved.names;
    let template = own_template(&resolved);
    let of = |group: &str| (template.id.clone(), group.to_owned());
    stub.update(|d| {
        d.templates.insert(names.template.clone(), template.clone());
        d.template_users = vec![("lt-other".into(), "of-others".into()), of(&names.scaling_group)];
    });
    let plan = async |status: &InstanceGroupStatus| {
        let remaining = with_observer(&stub, "", async |observer| {
            remaining_resources(&observer, &resolved.desired.id, names, &resolved.ownership_tags, status).await
        });
        let found = remaining.await.expect("what remains");
        crate::provisioner::eks::delete::plan_deletion(&crate::provisioner::eks::delete::DeleteInput {
            id: &resolved.desired.id,
            ownership_tags: &resolved.ownership_tags,
            scaling_group: None,
            members: &[],
            drains: &found.drains,
            template: found.template.as_ref(),
            has_derived_template_name: true,
            launch_configurations: &[],
            role: None,
            attached_policies: &[],
            removable_policies: &[],
            inline_policies: &[],
            instance_profile: None,
            region: &resolved.region,
            status,
            adopted: &found.adopted,
            aws_auth_entries: &[],
            access_entries: &[],
            kept_entries: &[],
            modified_auth_entries: &[],
            wait_for: None,
            unreadable_aws_auth: None,
            role_in_use: None,
            template_in_use: found.template_in_use.as_deref(),
            drain_timeout: jiff::SignedDuration::ZERO,
            timing: &crate::settings::Timing::default(),
            now: jiff::Timestamp::UNIX_EPOCH,
        })
    };
    let deletes = |plan: &crate::plan::Plan| plan.steps.iter().any(|planned| planned.step.name() == "DeleteTemplate");
    let new = InstanceGroupStatus::default();
    assert!(deletes(&plan(&new).await), "what its own scaling group left is no use by others");
    stub.update(|d| d.template_users.push(of("of-a-person")));
    let kept = plan(&new).await;
    assert!(!deletes(&kept), "{:?}", kept.steps);
    let [update] = &kept.condition_updates[..] else { panic!("{:?}", kept.condition_updates) };
    assert_eq!((update.condition_type, update.reason.as_str()), (condition::RESOURCES_RETAINED, "TemplateInUse"));
    assert!(update.message.contains("of-a-person") && update.message.contains(&names.template), "{}", update.message);
    stub.update(|d| d.denied = Some("scaling groups of a template"));
    let denied = with_observer(&stub, "", async |observer| {
        remaining_resources(&observer, &resolved.desired.id, names, &resolved.ownership_tags, &new).await
    });
    assert!(denied.await.is_err(), "no answer is not that there is none");
}

/// A cached answer may be older than the hook, which would leave the record then and stay in AWS.
#[tokio::test]
async fn dropped_hook_is_looked_for_in_a_recent_answer() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let name = resolved.names.scaling_group.clone();
    let group = ScalingGroup { tags: resolved.tags.clone(), ..scaling_group(&name) };
    stub.update(|d| _ = d.groups.insert(name, group));
    let cluster = FakeCluster::new(&stub);
    for (hooks, calls) in [(json!([]), 0), (json!(["dropped"]), 1), (json!(["dropped"]), 2)] {
        let observer = Observer { shared_max_cache_age: std::time::Duration::from_secs(3600), ..cluster.observer() };
        let status = serde_json::from_value(json!({"managed": {"hooks": hooks}})).expect("a status");
        super::super::observe(&observer, &resolved, &status).await.expect("a state");
        assert_eq!(stub.calls("hooks"), calls);
    }
}
