//! What is known of a revision before a group takes it, and when that ends.

use super::*;

/// A change that replaces no node reaches a group at once, and a lower maxSize may do so, too, until the group has grown.
/// Without an answer of AWS, the controller must not believe what was so before.
#[tokio::test]
async fn change_in_place_is_not_assumed_while_aws_does_not_answer() {
    let mut view = open_rollout("waves: [{name: canary, namespaces: 'rollout/wave = canary'}, {name: rest}]");
    view.status.waves[1].state = Some(WaveState::Waiting);
    let mut group = group(1, (false, 2, 2, false), &view);
    group.spec = serde_json::from_value(json!({
        "provisioner": "eks",
        "eks": {"maxSize": 3, "minSize": 1, "configuration": {"clusterName": "demo", "subnets": ["subnet-1"], "keyPairName": "key", "image": "ami-1", "instanceType": "m5.large"}},
    }))
    .expect("a spec");
    let stores = stores(std::slice::from_ref(&group), &view, &["team"]);
    let inputs = forecast_inputs(&group, view.stable.as_ref(), &view.target, &BTreeMap::new());
    let in_place = || KnownImpact { inputs: inputs.clone(), retries: 0, forecast: RevisionImpact::InPlace };
    stores.rollout.set_forecast(&key(&group), in_place());
    let (mut test, writes) = controller(stores);
    let aws = Arc::new(FakeAws::default());
    aws.update(|data| {
        data.failure = Some(AwsError::no_response("AutoScaling", "DescribeAutoScalingGroups", "Timeout", ""))
    });
    let ctx = Arc::get_mut(&mut test.ctx).expect("no other task has it");
    ctx.planner.inventory = Inventory::with_config(aws.aws(), CacheConfig::default());
    switch_revision(&group, &key(&group), &test.ctx, Timestamp::now()).await.expect("an action");
    assert!(writes.lock().unwrap().is_empty(), "it waits for its wave");
    assert_eq!(test.ctx.stores.rollout.forecast(&key(&group), &inputs, 0), RevisionImpact::Unknown);
}

/// A tenant excludes its Namespace from boundaries. A change that lets no Namespace do so any more replaces nodes of
/// its group, which an earlier forecast does not contain.
#[tokio::test]
async fn forecast_ends_when_a_namespace_is_excluded_or_included() {
    let map = |policy: &str| -> BTreeMap<String, String> {
        [("rollout", "waves: [{name: all}]"), ("policy", policy)].map(|(key, text)| (key.into(), text.into())).into()
    };
    let (before, data) = (map(""), map("excludableNamespaces: []"));
    let active = Arc::new(select_active(Some(&data), None, true).0);
    let view = RolloutView::of_content(&[], Some(&before), &data, &active, None).expect("a rollout");
    let group = group(1, (false, 2, 2, false), &view);
    let stores = stores(std::slice::from_ref(&group), &view, &["team"]);
    let (test, _) = controller(stores);
    let forecast = |annotations: &[(&str, &str)]| {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let inputs = forecast_inputs(&group, view.stable.as_ref(), &view.target, &annotations);
        test.ctx.stores.rollout.forecast(&key(&group), &inputs, 0)
    };
    let excluded = annotation::CONFIG_EXCLUDED;
    assert_eq!(forecast(&[(excluded, "true")]), RevisionImpact::Unknown);
    assert_eq!(forecast(&[(excluded, "false"), ("another", "value")]), RevisionImpact::Rotate { nodes: 1 });
}
