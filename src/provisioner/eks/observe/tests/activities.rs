//! Scaling activities: why nodes are missing, and what a forecast leaves to the next reconcile.

use super::*;

/// Otherwise a group without capacity would report for a moment after each restart that its problem ended.
#[tokio::test]
async fn process_that_has_just_started_reads_why_recorded_shortages_last() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let group = ScalingGroup {
        name: resolved.names.scaling_group.clone(),
        min: 1,
        max: 2,
        desired: 1,
        subnets: vec!["subnet-1".into()],
        template: None,
        launch_configuration: None,
        warm_pool: None,
        mixed: None,
        tags: resolved.tags.clone(),
        unpropagated_tags: vec![],
        suspended_processes: vec![],
        suspension_reasons: BTreeMap::new(),
        enabled_metrics: vec![],
        instances: vec![],
        deleting: false,
        is_deletion_protected: false,
    };
    stub.update(|d| _ = d.groups.insert(group.name.clone(), group));
    let status = |nodes_ready| InstanceGroupStatus {
        conditions: vec![Condition::new(condition::NODES_READY, nodes_ready, "", "")],
        ..InstanceGroupStatus::default()
    };
    observe_with(&stub, "", &status(true)).await.expect("a state");
    assert_eq!(stub.calls("activities"), 0, "an instance that terminates may be replaced in time");
    observe_with(&stub, "", &status(false)).await.expect("a state");
    assert_eq!(stub.calls("activities"), 1);
}

/// A rotation reads the scaling activities at each poll. Otherwise the user would learn a minute later why a node is gone.
#[tokio::test]
async fn activities_from_before_a_loss_do_not_delay_its_cause() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let group = ScalingGroup {
        desired: 2,
        tags: resolved.tags.clone(),
        instances: vec![instance("i-1")],
        ..scaling_group(&resolved.names.scaling_group)
    };
    stub.update(|d| _ = d.groups.insert(group.name.clone(), group.clone()));
    let cluster = FakeCluster::new(&stub);
    let status = InstanceGroupStatus {
        conditions: vec![Condition::new(condition::NODES_READY, false, "", "")],
        ..InstanceGroupStatus::default()
    };
    let lost = async || {
        let observed = super::super::observe(&cluster.observer(), &resolved, &status).await.expect("a state");
        observed.lost_instances.into_iter().map(|lost| lost.instance).collect::<Vec<_>>()
    };
    assert_eq!((lost().await, stub.calls("activities")), (vec![], 1), "the group is short, so they are cached now");
    stub.update(|d| {
        d.groups.insert(group.name.clone(), ScalingGroup { instances: vec![], ..group });
        d.activities.push(scaling_activity("Terminating EC2 instance: i-1"));
    });
    assert_eq!(lost().await, ["i-1"]);
}

/// The next reconcile would not report an instance that a forecast took for reported. A change for many groups would cost
/// several calls for each, and groups that only wait would cost more than a change without waves.
#[tokio::test]
async fn forecast_takes_nothing_from_the_next_reconcile_and_reads_less() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
    let group = ScalingGroup {
        desired: 2,
        template: Some(pin.clone()),
        tags: resolved.tags.clone(),
        instances: vec![Instance { template: Some(pin), ..instance("i-1") }, instance("i-2")],
        ..scaling_group(&resolved.names.scaling_group)
    };
    let (template, data) = (own_template(&resolved), resolved.template_data.clone());
    stub.update(|d| {
        d.groups.insert(group.name.clone(), group.clone());
        d.templates.insert(template.name.clone(), template);
        d.versions.push(TemplateVersion { template_id: "lt-1".into(), number: 1, description: None, data });
    });
    let cluster = FakeCluster::new(&stub);
    let status = InstanceGroupStatus::default();
    let observe =
        async |observer: Observer<'_>| super::super::observe(&observer, &resolved, &status).await.expect("a state");
    observe(cluster.observer()).await;
    stub.update(|d| {
        let left = group.instances[..1].to_vec();
        d.groups.insert(group.name.clone(), ScalingGroup { instances: left, ..group });
        d.activities.push(scaling_activity("Terminating EC2 instance: i-2"));
        d.calls.clear();
    });
    let forecast = observe(Observer { is_forecast: true, ..cluster.observer() }).await;
    assert_eq!((forecast.lost_instances.len(), forecast.versions.len()), (0, 1));
    let read = |label| stub.calls(label);
    assert_eq!(["activities", "refreshes", "role", "profile", "versions"].map(read), [0; 5]);
    let lost = observe(cluster.observer()).await.lost_instances;
    assert_eq!(lost.into_iter().map(|lost| lost.instance).collect::<Vec<_>>(), ["i-2"]);
}

/// A user deletes the version that the group launches, and an instance of the warm pool replaces the next lost node. No
/// node is missing, and the pool would stay empty until one is.
#[tokio::test]
async fn warm_pool_that_stays_short_shows_the_failed_launch() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let pool = |size| {
        let sizes = WarmSizes { min: 1, max: Some(2) };
        WarmPool { sizes, state: "Stopped".into(), reuse_on_scale_in: None, deleting: false, size: Some(size) }
    };
    let group = |size| ScalingGroup {
        tags: resolved.tags.clone(),
        instances: vec![instance("i-1")],
        warm_pool: Some(pool(size)),
        ..scaling_group(&resolved.names.scaling_group)
    };
    stub.update(|d| {
        let began = Some(jiff::Timestamp::UNIX_EPOCH);
        let failed = scaling_activity("Launching a new EC2 instance into warm pool");
        d.activities.push(ScalingActivity { status: "Failed".into(), started: began, ..failed });
    });
    let cluster = FakeCluster::new(&stub);
    let is_launch_failure_found = async |size, seconds| {
        stub.update(|d| _ = d.groups.insert(resolved.names.scaling_group.clone(), group(size)));
        let now = jiff::Timestamp::from_second(seconds).expect("a time");
        let observer = Observer { now, ..cluster.observer() };
        let observed = super::super::observe(&observer, &resolved, &InstanceGroupStatus::default()).await;
        assert_eq!(observed.expect("a state").activities, [], "no node is missing");
        observer.process_state.take_unreported_failed_launch(&resolved.desired.id.key())
    };
    assert!(!is_launch_failure_found(1, 0).await, "the pool is full");
    assert!(!is_launch_failure_found(0, 1).await, "AWS has just taken the instance out of the pool");
    assert_eq!(stub.calls("activities"), 0);
    assert!(is_launch_failure_found(0, 2).await);
    assert!(!is_launch_failure_found(0, 3).await, "the version is read once for each failure");
    assert_eq!(stub.calls("activities"), 1);
}
