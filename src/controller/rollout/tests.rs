//! What the controller writes about a group that switches to a revision, and what `plan` shows of it from the same
//! state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::runtime::{reflector, watcher::Event};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::decide::forecast_inputs;
use super::{count_running, count_unavailable, decide_and_count, images, switch_revision};
use crate::api::names::{annotation, condition};
use crate::api::{
    BoundariesRevision, BoundariesRevisionSpec, Condition, InstanceGroup, RolloutPhase, WaveState, WaveStatus, rfc3339,
    set_condition,
};
use crate::aws::AwsError;
use crate::aws::inventory::fake_aws::FakeAws;
use crate::aws::inventory::{CacheConfig, Inventory};
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource, select_active};
use crate::controller::fake;
use crate::controller::planner::Planner;
use crate::controller::stores::Stores;
use crate::index::nodes::NodeIndex;
use crate::leader::election::Leadership;
use crate::plan::{NodeStart, NodeStep, NodeUsage, Step};
use crate::rollout::{KnownImpact, RevisionDecision, RevisionImpact, RolloutView};

mod plan;

/// A group: whether it is a canary, how many nodes it is to have and how many are Ready, and whether it replaces nodes for
/// the target already.
pub(super) type Facts = (bool, usize, usize, bool);

/// A rollout whose waves are open, in the middle.
pub(super) fn open_rollout(policy: &str) -> RolloutView {
    let map = |image: &str| -> BTreeMap<String, String> {
        let defaults = format!("spec: {{eks: {{configuration: {{image: {image}}}}}}}");
        let boundaries = "restricted: [spec.eks.configuration.image]";
        [("rollout", policy), ("boundaries", boundaries), ("defaults", &defaults)]
            .map(|(key, text)| (key.to_owned(), text.to_owned()))
            .into()
    };
    let data = map("ami-2");
    let active = Arc::new(select_active(Some(&data), None, true).0);
    let mut view = RolloutView::of_content(&[], Some(&map("ami-1")), &data, &active, None).expect("a rollout");
    view.status.phase = Some(RolloutPhase::Rolling);
    let open =
        |name: &String| WaveStatus { name: name.clone(), state: Some(WaveState::Passed), ..WaveStatus::default() };
    view.status.waves = view.policy.waves.iter().map(|wave| open(&wave.name)).collect();
    view
}

pub(super) fn group(index: usize, facts: Facts, view: &RolloutView) -> InstanceGroup {
    let (is_canary, desired, ready, is_rolling) = facts;
    let (namespace, name) = (if is_canary { "canary" } else { "team" }, format!("g{index}"));
    let own = if is_rolling { &view.target } else { view.stable.as_ref().expect("r1") };
    let wave = if is_canary { "canary" } else { "rest" };
    let record = json!({"revision": "r2", "wave": wave, "since": "2026-01-01T00:00:00Z", "generation": 1});
    let object = json!({
        "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{index}"), "generation": 1, "resourceVersion": "1"},
        "spec": {},
        "status": {
            "boundariesRevision": own.hash, "rollout": is_rolling.then_some(record),
            "nodes": {"desired": desired, "ready": ready.min(desired)},
        },
    });
    serde_json::from_value(object).expect("a group")
}

fn namespace(name: &str) -> PartialObjectMeta<Namespace> {
    let labels = json!({"rollout/wave": name});
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).expect("a Namespace")
}

/// The caches of a process that has just synced, with what the target means for each group. `names` are the Namespaces that
/// it knows.
pub(super) fn stores(groups: &[InstanceGroup], view: &RolloutView, names: &[&str]) -> Stores {
    let ((store, mut writer), (namespaces, mut namespaces_writer)) = (reflector::store(), reflector::store());
    for group in groups {
        writer.apply_watcher_event(&Event::Apply(crate::api::GroupObject(Ok(group.clone()))));
    }
    for name in names {
        namespaces_writer.apply_watcher_event(&Event::Apply(namespace(name)));
    }
    let stores = Stores::new(store, namespaces);
    stores.rollout.set_view(Some(Arc::new(view.clone())));
    for group in groups {
        let recorded = group.status.as_ref().and_then(|status| status.boundaries_revision.as_deref());
        let own = recorded.and_then(|hash| view.stored.get(hash));
        let inputs = forecast_inputs(group, own, &view.target, &BTreeMap::new());
        let known = KnownImpact { inputs, retries: 0, forecast: RevisionImpact::Rotate { nodes: 1 } };
        stores.rollout.set_forecast(&key(group), known);
    }
    stores
}

pub(super) fn key(group: &InstanceGroup) -> String {
    crate::api::group_id(group).key()
}

fn node_index() -> NodeIndex {
    let index = NodeIndex::default();
    for event in [Event::Init, Event::InitDone] {
        index.apply(&event);
    }
    index
}

/// Paths and bodies of writes.
pub(super) type Writes = Arc<Mutex<Vec<(String, Value)>>>;

/// A context with these caches, and the paths and bodies of its writes of statuses and revisions.
pub(super) fn controller(stores: Stores) -> (fake::TestContext, Writes) {
    let writes = Arc::new(Mutex::new(vec![]));
    let log = writes.clone();
    let mut test = fake::context(crate::k8s::fake::client(move |call| {
        if !call.path.contains("/events") {
            log.lock().unwrap().push((call.path.clone(), call.body.clone()));
        }
        if call.path.contains("/boundariesrevisions") {
            return (201, call.body);
        }
        let metadata = json!({"name": "x", "namespace": "team", "resourceVersion": "2"});
        (
            200,
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata, "spec": {}}),
        )
    }));
    let ctx = Arc::get_mut(&mut test.ctx).expect("no other task has it");
    ctx.stores = stores;
    ctx.planner.node_index = Arc::new(node_index());
    (test, writes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// `plan` for all groups must show the same groups that the controller switches to the revision. The budget of the
    /// cluster and `atOnce` limit both.
    #[test]
    fn plan_names_the_next_revision_of_each_group(
        facts in prop::collection::vec((any::<bool>(), 1..6usize, 0..7usize, any::<bool>()), 1..7),
        budget in prop::sample::select(vec!["", "budget: {nodes: 1}", "budget: {nodes: 2}", "budget: {nodes: 30%}"]),
        at_once in prop::sample::select(vec!["", ", atOnce: 1", ", atOnce: 2"]),
    ) {
        let waves = format!("waves: [{{name: canary, namespaces: 'rollout/wave = canary'}}, {{name: rest{at_once}}}]");
        let view = open_rollout(&format!("{budget}\n{waves}"));
        let groups: Vec<_> = facts.iter().enumerate().map(|(index, facts)| group(index, *facts, &view)).collect();
        let names = ["canary", "team"];
        let now = Timestamp::now();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (test, writes) = controller(stores(&groups, &view, &names));
            for group in &groups {
                switch_revision(group, &key(group), &test.ctx, now).await.expect("the API server answers");
            }
            let requests: Vec<_> = writes.lock().unwrap().iter().map(|(path, body)| (path.clone(), body.clone())).collect();
            let client = crate::k8s::fake::client(|call| panic!("plan writes and reads nothing more: {call:?}"));
            let planner: Planner = fake::planner(&Arc::default(), client, node_index());
            let stores = stores(&groups, &view, &names);
            count_running(&stores);
            count_unavailable(&stores, &planner.node_index);
            let mut planned = vec![];
            for group in &groups {
                let decided = decide_and_count(group, &view, &stores, &planner, now).await.expect("a known Namespace");
                let RevisionDecision::Switch(found) = &decided.choice else { continue };
                planned.push((key(group), found.content.hash.clone()));
            }
            let name_of = |path: &str| path.split('/').nth_back(1).unwrap_or_default().to_owned();
            let written: Vec<_> = requests.iter().map(|(path, body)| (name_of(path), body["status"]["boundariesRevision"].clone())).collect();
            let expected: Vec<_> = planned.iter().map(|(key, hash)| (key.rsplit('/').next().unwrap_or_default().to_owned(), json!(hash))).collect();
            prop_assert_eq!(&written, &expected);
            let unavailable: usize = facts.iter().map(|(_, desired, ready, _)| desired.saturating_sub(*ready)).sum();
            let all: usize = facts.iter().map(|(_, desired, ..)| desired).sum();
            let limit = match budget {
                "" => usize::MAX,
                "budget: {nodes: 1}" => 1,
                "budget: {nodes: 2}" => 2,
                _ => (all * 3 / 10).max(1),
            };
            prop_assert!(written.is_empty() || unavailable + written.len() <= limit, "{written:?} of {limit}");
            let rest = facts.iter().filter(|(is_canary, .., is_rolling)| !is_canary && *is_rolling).count();
            let begun = planned.iter().filter(|(key, _)| key.starts_with("team/")).count();
            let at_once = match at_once { "" => usize::MAX, ", atOnce: 1" => 1, _ => 2 };
            prop_assert!(begun == 0 || rest + begun <= at_once, "{begun} beside {rest}");
            Ok(())
        })?;
    }
}

/// The wave of a group depends on the labels of its Namespace. Until the controller has read them, it must not give the
/// newest content to the group.
#[tokio::test]
async fn group_of_an_unknown_namespace_neither_switches_nor_replaces_nodes() {
    let view = open_rollout("waves: [{name: canary, namespaces: 'rollout/wave = canary'}, {name: rest}]");
    let group = group(1, (false, 2, 2, false), &view);
    let known = stores(std::slice::from_ref(&group), &view, &["team"]);
    let (test, writes) = controller(known);
    let stores = stores(std::slice::from_ref(&group), &view, &["canary"]);
    stores.boundaries.set((*view.target.active).clone());
    let (unknown, unknown_writes) = controller(stores);
    let (now, key) = (Timestamp::now(), key(&group));
    let action = switch_revision(&group, &key, &unknown.ctx, now).await.expect("an action");
    assert!(action.is_some() && unknown_writes.lock().unwrap().is_empty(), "the reconcile ends");
    let context = unknown.ctx.stores.group_context(&group, &unknown.ctx.planner).await;
    assert!(matches!(context.active_boundaries.source, BoundariesSource::RevisionMissing(_)));
    assert!(unknown.ctx.stores.rollout_block(&group, &unknown.ctx.planner).is_some(), "no node is begun");
    switch_revision(&group, &key, &test.ctx, now).await.expect("an action");
    assert_eq!(writes.lock().unwrap().len(), 1, "its wave is open");
}

/// A halt or a pause gives the nodes back that are being drained. A window or a freeze lets what has begun end.
#[tokio::test]
async fn halt_and_pause_lock_a_group_that_replaces_nodes_and_a_freeze_blocks_further_ones() {
    let freeze = "freezes: [{from: 2020-01-01, to: 9999-12-31, zone: UTC}]\n";
    for (policy, phase, is_paused, locks, blocks) in [
        ("", RolloutPhase::Rolling, false, false, false),
        ("", RolloutPhase::Halted, false, true, false),
        ("", RolloutPhase::Rolling, true, true, false),
        (freeze, RolloutPhase::Rolling, false, false, true),
        (freeze, RolloutPhase::Halted, false, true, false),
    ] {
        let mut view = open_rollout(&format!("{policy}waves: [{{name: rest}}]"));
        (view.status.phase, view.orders.paused) = (Some(phase), is_paused);
        let group = group(1, (false, 2, 2, true), &view);
        let (test, _) = controller(stores(std::slice::from_ref(&group), &view, &["team"]));
        let context = test.ctx.stores.group_context(&group, &test.ctx.planner).await;
        assert_eq!(
            (context.lock.is_some(), context.rollout_block.is_some()),
            (locks, blocks),
            "{policy} {phase} {is_paused}: {:?} {:?}",
            context.lock,
            context.rollout_block
        );
        assert_eq!(context.active_boundaries.revision, view.target.hash, "it keeps what it has recorded");
    }
}

/// A person aborts a change, or reverts it, while a group reads AWS for its plan. The plan is from before, so nodes would
/// go for a revision that nobody wants any more, outside of the budget, and EKS takes no update of a managed group back.
#[tokio::test]
async fn node_is_not_begun_for_a_revision_that_ended_while_the_group_was_planned() {
    let open = open_rollout("budget: {nodes: 1}\nwaves: [{name: rest}]");
    let group = group(1, (false, 2, 2, true), &open);
    let aborted = {
        let mut view = open.clone();
        view.status.phase = Some(RolloutPhase::Returning);
        view
    };
    let reverted = {
        let mut view = open.clone();
        view.target = view.stable.clone().expect("r1");
        view
    };
    for (name, ended) in [("aborted", aborted), ("reverted", reverted)] {
        let (test, _) = controller(stores(std::slice::from_ref(&group), &open, &["team"]));
        let (stores, planner) = (&test.ctx.stores, &test.ctx.planner);
        assert_eq!(stores.rollout_block(&group, planner), None, "{name}: its wave is open");
        let planned_before = stores.group_context(&group, planner).await;
        assert!(!planned_before.is_rollout_blocked, "{name}: the plan replaces nodes, so it is checked again");
        stores.rollout.set_view(Some(Arc::new(ended)));
        let why = stores.rollout_block(&group, planner).unwrap_or_default();
        assert!(why.contains("the group takes r1 now"), "{name}: {why}");
        let context = stores.group_context(&group, planner).await;
        assert!(context.is_rollout_blocked && context.rollout_block.is_some(), "{name}: a plan begins none either");
        assert!(context.lock.is_none(), "{name}: what drains is not given back for a moment");
    }
}

/// Several groups are reconciled at the same time, each with a plan that was made while the budget left a node.
#[tokio::test]
async fn node_is_replaced_only_if_the_budget_leaves_it_right_before() {
    let view = open_rollout("budget: {nodes: 1}\nwaves: [{name: rest}]");
    let groups = [1, 2].map(|index| group(index, (false, 2, 2, true), &view));
    let (test, _) = controller(stores(&groups, &view, &["team"]));
    let stores = &test.ctx.stores;
    let cordon = |instance: &str| {
        Step::from(NodeStep::CordonNode {
            node: instance.to_owned(),
            resource_version: "1".into(),
            instance: instance.to_owned(),
            template_version: "2".into(),
            was_cordoned: false,
        })
    };
    let instances = ["i-1", "i-2"];
    for (group, instance) in groups.iter().zip(instances) {
        let begins = [(instance.to_owned(), NodeStart::Drain("us-west-2a".into()))].into();
        let usage = NodeUsage { desired: 2, begins, ..NodeUsage::default() };
        stores.rollout.record_usage(&key(group), Some(usage));
    }
    let reserve = |index: usize| stores.reserve_budget(&groups[index], &test.ctx.planner, &cordon(instances[index]));
    assert_eq!(reserve(0), None);
    assert!(reserve(1).is_some_and(|why| why.contains("nodes 1")), "the other worker has it");
    assert_eq!(reserve(0), None, "its own");
}

/// A group waited for the budget. Then its object cannot be decoded any more, or it has to record another revision first: it
/// is not planned, and would keep the groups waiting that have not begun.
#[tokio::test]
async fn group_that_is_not_planned_any_more_keeps_no_other_from_beginning() {
    let view = open_rollout("budget: {nodes: 1}\nwaves: [{name: rest}]");
    let is_used_up = |waits: InstanceGroup, is_invalid: bool| {
        let begins = group(2, (false, 2, 2, false), &view);
        let known = stores(&[waits.clone(), begins.clone()], &view, &["team"]);
        let (mut test, _) = controller(known);
        let (store, mut writer) = reflector::store();
        let mut object = json!(waits);
        if is_invalid {
            object["spec"] = json!({"eks": "no object"});
        }
        writer.apply_watcher_event(&Event::Apply(serde_json::from_value(object).expect("a group")));
        writer.apply_watcher_event(&Event::Apply(crate::api::GroupObject(Ok(begins.clone()))));
        Arc::get_mut(&mut test.ctx).expect("no other task has it").stores.groups = store;
        let rollout = &test.ctx.stores.rollout;
        let waits_for = [NodeStart::Drain("us-west-2a".into())].into();
        rollout.record_usage(&key(&waits), Some(NodeUsage { desired: 2, waits_for, ..NodeUsage::default() }));
        super::survey(&test.ctx, &view, &mut Default::default(), Timestamp::now());
        rollout.budget_used_up(&view, &key(&begins)).is_some()
    };
    assert!(is_used_up(group(1, (false, 2, 2, true), &view), false), "it has begun, and goes first");
    assert!(!is_used_up(group(1, (false, 2, 2, true), &view), true), "it cannot be decoded");
    assert!(!is_used_up(group(1, (false, 2, 2, false), &view), false), "it has to record the revision first");
}

/// One of many groups is done. If all groups that wait for its place were reconciled, all but one would be planned in vain,
/// again for each place that becomes free.
#[tokio::test]
async fn free_place_wakes_only_a_few_of_the_groups_that_wait_for_it() {
    for (policy, limit) in [("waves: [{name: rest, atOnce: 1}]", 5), ("budget: {nodes: 2}\nwaves: [{name: rest}]", 6)] {
        let view = open_rollout(policy);
        let groups: Vec<_> = (0..100).map(|index| group(index, (false, 2, 2, false), &view)).collect();
        let (test, _) = controller(stores(&groups, &view, &["team"]));
        let ctx = &test.ctx;
        count_running(&ctx.stores);
        count_unavailable(&ctx.stores, &ctx.planner.node_index);
        let (mut polled, mut enqueued) = (Default::default(), Default::default());
        let mut poll = || {
            let found = super::survey(ctx, &view, &mut polled, Timestamp::now());
            assert_eq!(found.switching_groups.len(), 100, "{policy}: each may begin");
            super::woken_groups(ctx, &view, found.switching_groups, &found.beginning, &mut enqueued)
        };
        let (first, second) = (poll(), poll());
        assert_eq!((first.len(), second.len()), (limit, limit), "{policy}");
        assert!(first.iter().all(|key| !second.contains(key)), "{policy}: others have their turn");
    }
    let view = open_rollout("waves: [{name: rest}]");
    let groups: Vec<_> = (0..100).map(|index| group(index, (false, 2, 2, false), &view)).collect();
    let (test, _) = controller(stores(&groups, &view, &["team"]));
    let found = super::survey(&test.ctx, &view, &mut Default::default(), Timestamp::now());
    let all = super::woken_groups(&test.ctx, &view, found.switching_groups, &found.beginning, &mut Default::default());
    assert_eq!(all.len(), 100, "without a limit all begin");
}

/// A controller with a group that is about to switch, of which the API server answers a status like this. Each published event
/// is listed, by its reason and note.
fn switching_group(status: u16, answer: Value) -> (fake::TestContext, InstanceGroup, Arc<Mutex<Vec<String>>>) {
    let view = open_rollout("waves: [{name: rest}]");
    let group = group(1, (false, 2, 2, false), &view);
    let events = Arc::new(Mutex::new(vec![]));
    let log = events.clone();
    let mut test = fake::context(crate::k8s::fake::client(move |call| match call.route() {
        ("PATCH", path) if path.ends_with("/status") => (status, answer.clone()),
        _ => {
            log.lock().unwrap().push(format!("{} {}", call.body["reason"], call.body["note"]));
            (201, call.body)
        }
    }));
    let ctx = Arc::get_mut(&mut test.ctx).expect("no other task has it");
    ctx.stores = stores(std::slice::from_ref(&group), &view, &["team"]);
    ctx.planner.node_index = Arc::new(node_index());
    (test, group, events)
}

/// A webhook refuses the record of the revision that a group takes. Its reconcile ends there each time, so that no other
/// write would tell its tenant.
#[tokio::test]
async fn group_says_that_its_switch_cannot_be_recorded() {
    let (code, answer) = crate::k8s::fake::failure(403, "Forbidden", "admission webhook status.example.com denied it");
    let (test, group, events) = switching_group(code, answer);
    let (key, now) = (key(&group), Timestamp::now());
    let delay = test.ctx.planner.settings.timing.failed_observation_delay;
    test.ctx.planner.process_state.track_unwritten_status(&key, true, delay, now - delay * 2);
    for _ in 0..2 {
        switch_revision(&group, &key, &test.ctx, now).await.expect_err("the webhook refuses it");
    }
    let events = events.lock().unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].contains("StatusNotWritten") && events[0].contains("status.example.com"), "{}", events[0]);
}

/// A CRD of an older release drops the record each time. The group would announce its switch again and again, and nobody
/// would learn why it never begins.
#[tokio::test]
async fn group_says_that_its_switch_is_not_kept() {
    let (test, group, events) = switching_group(200, json!({"metadata": {"resourceVersion": "8"}}));
    let (key, began) = (key(&group), Timestamp::now());
    for minutes in 0..60 {
        let now = began + SignedDuration::from_mins(minutes);
        switch_revision(&group, &key, &test.ctx, now).await.expect("an action");
    }
    let events = events.lock().unwrap();
    assert!(events.len() == 2 && events[0].contains("RevisionTaken"), "{events:?}");
    assert!(events[1].contains("WritesIneffective") && events[1].contains("apply the CRD"), "{events:?}");
    let metrics = test.ctx.metrics.encode().expect("metrics");
    let series = format!("instance_manager_ineffective_writes{{instancegroup=\"{key}\"}} 1");
    assert!(metrics.contains(&series), "{metrics}");
}

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

/// A new leader has queried nothing yet. A group that cannot use the target must not switch to it because its wave is
/// open. `plan` shows that the wave fails, unless the group was blocked for the same reason before.
#[tokio::test]
async fn new_leader_asks_what_the_target_means_before_a_group_takes_it() {
    let view = open_rollout("waves: [{name: rest}]");
    for is_blocked in [false, true] {
        // Its spec names no cluster.
        let mut group = group(1, (false, 2, 2, false), &view);
        let stalled = Condition::new(condition::STALLED, is_blocked, "InvalidSpec", "it names no cluster");
        set_condition(&mut group.status.get_or_insert_default().conditions, stalled, "2026-01-01T00:00:00Z");
        let stores = stores(std::slice::from_ref(&group), &view, &["team"]);
        stores.rollout.forget(&key(&group));
        let (test, writes) = controller(stores);
        let (ctx, now) = (&test.ctx, Timestamp::now());
        switch_revision(&group, &key(&group), ctx, now).await.expect("an action");
        assert!(writes.lock().unwrap().is_empty());
        let planned = decide_and_count(&group, &view, &ctx.stores, &ctx.planner, now).await.expect("a Namespace");
        assert!(
            matches!(&planned.forecast, RevisionImpact::CannotUse { reason, .. } if reason == "InvalidSpec"),
            "{:?}",
            planned.forecast
        );
        assert_eq!(planned.fails_wave, !is_blocked);
    }
}

/// An admin's new default may be a map where one tenant has a list. That tenant keeps its nodes, and the admin reads why.
#[tokio::test]
async fn change_that_cannot_be_merged_with_a_group_is_not_given_to_it() {
    let map = |boundaries: &str, defaults: &str| -> BTreeMap<String, String> {
        [("rollout", "waves: [{name: all}]"), ("boundaries", boundaries), ("defaults", defaults)]
            .map(|(key, text)| (key.into(), text.into()))
            .into()
    };
    let tags = "spec: {eks: {configuration: {tags: {owner: platform}}}}";
    let data = map("shared: {merge: [spec.eks.configuration.tags]}", tags);
    let active = Arc::new(select_active(Some(&data), None, true).0);
    let before = map("restricted: [spec.eks.configuration.image]", "spec: {}");
    let mut view = RolloutView::of_content(&[], Some(&before), &data, &active, None).expect("a rollout");
    view.status.phase = Some(RolloutPhase::Rolling);
    let passed = WaveStatus { name: "all".into(), state: Some(WaveState::Passed), ..WaveStatus::default() };
    view.status.waves = vec![passed];
    let mut object = json!(group(1, (false, 2, 2, false), &view));
    object["spec"] = json!({"eks": {"configuration": {"tags": [{"key": "mine", "value": "x"}]}}});
    let group: InstanceGroup = serde_json::from_value(object).expect("a group");
    let stores = stores(std::slice::from_ref(&group), &view, &["team"]);
    stores.rollout.forget(&key(&group));
    let (test, writes) = controller(stores);
    let (ctx, now) = (&test.ctx, Timestamp::now());
    switch_revision(&group, &key(&group), ctx, now).await.expect("an action");
    assert!(writes.lock().unwrap().is_empty(), "it keeps what it has");
    let planned = decide_and_count(&group, &view, &ctx.stores, &ctx.planner, now).await.expect("a Namespace");
    let RevisionImpact::CannotUse { reason, message } = &planned.forecast else { panic!("{:?}", planned.forecast) };
    assert!(reason == "InvalidSpec" && message.contains("cannot be merged"), "{reason}: {message}");
    assert!(planned.fails_wave, "the wave counts it");
}

/// A process that has just become the leader does not know yet whether a rollout is under way. No group may take the
/// newest content meanwhile.
#[tokio::test]
async fn groups_wait_until_a_new_leader_has_read_the_stored_revisions() {
    let view = open_rollout("waves: [{name: all}]");
    let group = group(1, (false, 2, 2, false), &view);
    let with_policy = (*view.target.active).clone();
    let last_good = BoundariesSource::LastKnownGood("it is broken".into());
    let last_good = ActiveBoundaries { source: last_good, ..with_policy.clone() };
    let plain = select_active(None, None, false).0;
    for (active, is_read, waits) in [
        (&plain, false, true),
        (&with_policy, false, true),
        (&with_policy, true, true),
        (&plain, true, false),
        (&last_good, true, false),
    ] {
        let stores = stores(std::slice::from_ref(&group), &view, &["team"]);
        stores.rollout.set_view(None);
        stores.rollout.set_read(is_read);
        stores.boundaries.set(active.clone());
        let (test, writes) = controller(stores);
        let action = switch_revision(&group, &key(&group), &test.ctx, Timestamp::now()).await.expect("an answer");
        let what = format!("{:?}, read: {is_read}", active.source);
        assert!(action.is_some() == waits && writes.lock().unwrap().is_empty(), "{what}");
    }
}

/// The clock is set forward: a group that has just become Stalled looks as if it had been so for an hour, and would
/// return.
#[tokio::test]
async fn group_does_not_return_for_a_failure_that_a_clock_jump_makes_old() {
    let view = open_rollout("waves: [{name: rest}]");
    let (now, hour) = (Timestamp::now(), SignedDuration::from_hours(1));
    let mut group = group(1, (false, 2, 2, true), &view);
    let stalled = Condition::new(condition::STALLED, true, "LaunchFailed", "no instance was launched");
    set_condition(&mut group.status.get_or_insert_default().conditions, stalled, &rfc3339(now - hour));
    for jumps in [false, true] {
        let (test, writes) = controller(stores(std::slice::from_ref(&group), &view, &["team"]));
        for reading in [if jumps { now - hour } else { now }, now] {
            test.ctx.planner.process_state.clock_jumps(|clocks| clocks.observe(reading, Instant::now()));
        }
        switch_revision(&group, &key(&group), &test.ctx, now).await.expect("an answer");
        assert_eq!(writes.lock().unwrap().len(), usize::from(!jumps), "jumps: {jumps}");
    }
}

/// The reads of a forecast are slow. A leader that has lost its Lease meanwhile must leave the group to the new leader.
#[tokio::test]
async fn process_that_does_not_lead_any_more_records_nothing() {
    for leads in [true, false] {
        let view = open_rollout("waves: [{name: all}]");
        let group = group(1, (false, 2, 2, false), &view);
        let (mut test, writes) = controller(stores(std::slice::from_ref(&group), &view, &["team"]));
        if !leads {
            Arc::get_mut(&mut test.ctx).expect("no other task has it").leadership = Leadership::lost();
        }
        switch_revision(&group, &key(&group), &test.ctx, Timestamp::now()).await.expect("an action");
        let spec = BoundariesRevisionSpec { number: 3, hash: "h".into(), ..BoundariesRevisionSpec::default() };
        images::create(&test.ctx, &BoundariesRevision::new("r3", spec)).await.expect("an answer");
        let written: Vec<_> = writes.lock().unwrap().iter().map(|(path, _)| path.clone()).collect();
        let kinds = |word: &str| written.iter().filter(|path| path.contains(word)).count();
        assert_eq!(
            (kinds("/instancegroups/"), kinds("/boundariesrevisions")),
            (usize::from(leads), usize::from(leads))
        );
    }
}

/// A user deletes the newest revision, and an older one with the same texts was aborted: no group would ever switch to
/// the content of the ConfigMap.
#[tokio::test]
async fn deleted_revision_is_stored_again_although_an_older_one_has_its_texts() {
    let map = |image: &str| -> BTreeMap<String, String> {
        let defaults = format!("spec: {{eks: {{configuration: {{image: {image}}}}}}}");
        [("rollout".to_owned(), "waves: [{name: all}]".to_owned()), ("defaults".to_owned(), defaults)].into()
    };
    let stored = |number: i64, image: &str, phase: RolloutPhase| {
        let (name, hash) = (format!("r{number}"), crate::boundaries::content_hash(&map(image)));
        let mut revision = BoundariesRevision::new(
            &name,
            BoundariesRevisionSpec { number, hash, data: map(image), ..BoundariesRevisionSpec::default() },
        );
        revision.status.get_or_insert_default().phase = Some(phase);
        revision.metadata.resource_version = Some("1".into());
        json!(revision)
    };
    use RolloutPhase::{Aborted, Complete};
    let foreign = json!(BoundariesRevision::new("mine", BoundariesRevisionSpec::default()));
    let items = [stored(1, "ami-1", Complete), stored(2, "ami-2", Aborted), stored(3, "ami-1", Complete), foreign];
    let (created, notes) = (Arc::new(Mutex::new(vec![])), Arc::new(Mutex::new(String::new())));
    let (log, events) = (created.clone(), notes.clone());
    let mut test = fake::context(crate::k8s::fake::client(move |call| match call.route() {
        ("GET", path) if path.ends_with("/boundariesrevisions") => {
            let created = log.lock().unwrap().clone();
            let items: Vec<Value> = items.iter().cloned().chain(created).collect();
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
        }
        ("POST", path) if path.ends_with("/boundariesrevisions") => {
            log.lock().unwrap().push(call.body.clone());
            (201, call.body)
        }
        ("PATCH", _) => (200, items[0].clone()),
        _ => {
            *events.lock().unwrap() += &call.body["note"].to_string();
            (200, call.body)
        }
    }));
    let ctx = Arc::get_mut(&mut test.ctx).expect("no other task has it");
    ctx.planner.node_index = Arc::new(node_index());
    let (live, data) = (k8s_openapi::api::core::v1::ConfigMap::default(), map("ami-2"));
    let live = k8s_openapi::api::core::v1::ConfigMap { data: Some(data.clone()), ..live };
    *test.ctx.stores.config_map.lock().await = crate::util::lookup::Lookup::Present(live);
    test.ctx.stores.boundaries.set(select_active(Some(&data), None, true).0);
    let (trigger, mut polled) = (crate::controller::trigger::Trigger::new(test.ctx.clone()), Default::default());
    for _ in 0..2 {
        super::poll(&test.ctx, &trigger, &mut polled).await.expect("the API server answers");
    }
    let created = created.lock().unwrap();
    let names: Vec<_> = created.iter().map(|revision| revision["metadata"]["name"].as_str().unwrap_or("")).collect();
    assert_eq!(names, ["r4"]);
    assert!(notes.lock().unwrap().contains("mine is none that the controller stored"), "of what has no effect");
    assert_eq!(test.ctx.stores.rollout.view().map(|view| view.target.name.clone()).as_deref(), Some("r4"));
}

/// A policy of the cluster refuses the status of the revision. A person who aborts the rollout must not see further groups take
/// it, and learns why the status does not show the abort.
#[tokio::test]
async fn abort_counts_although_the_api_server_refuses_to_record_it() {
    let map = |image: &str| -> BTreeMap<String, String> {
        let defaults = format!("spec: {{eks: {{configuration: {{image: {image}}}}}}}");
        [("rollout".to_owned(), "waves: [{name: all}]".to_owned()), ("defaults".to_owned(), defaults)].into()
    };
    let stored = |number: i64, image: &str, phase: RolloutPhase| {
        let (name, hash) = (format!("r{number}"), crate::boundaries::content_hash(&map(image)));
        let spec = BoundariesRevisionSpec { number, hash, data: map(image), ..BoundariesRevisionSpec::default() };
        let mut revision = BoundariesRevision::new(&name, spec);
        let status = revision.status.get_or_insert_default();
        status.phase = Some(phase);
        status.waves = vec![WaveStatus { name: "all".into(), state: Some(WaveState::Open), ..WaveStatus::default() }];
        revision.metadata.resource_version = Some("1".into());
        revision
    };
    let mut target = stored(2, "ami-2", RolloutPhase::Rolling);
    target.spec.orders.aborted = true;
    let items = json!([stored(1, "ami-1", RolloutPhase::Complete), target]);
    let (events, is_refused) = (Arc::new(Mutex::new(vec![])), Arc::new(Mutex::new(true)));
    let (log, refuses) = (events.clone(), is_refused.clone());
    let mut test = fake::context(crate::k8s::fake::client(move |call| match call.route() {
        ("GET", path) if path.ends_with("/boundariesrevisions") => {
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
        }
        ("PATCH", _) if *refuses.lock().unwrap() => {
            (403, json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no"}))
        }
        ("PATCH", _) => (200, items[1].clone()),
        _ => {
            log.lock().unwrap().push(call.body["reason"].as_str().unwrap_or_default().to_owned());
            (201, call.body)
        }
    }));
    let ctx = Arc::get_mut(&mut test.ctx).expect("no other task has it");
    ctx.planner.node_index = Arc::new(node_index());
    let live = k8s_openapi::api::core::v1::ConfigMap { data: Some(map("ami-2")), ..Default::default() };
    *test.ctx.stores.config_map.lock().await = crate::util::lookup::Lookup::Present(live);
    test.ctx.stores.boundaries.set(select_active(Some(&map("ami-2")), None, true).0);
    let trigger = crate::controller::trigger::Trigger::new(test.ctx.clone());
    let delay = test.ctx.planner.settings.timing.failed_observation_delay;
    let mut polled = super::PollState { target: "r2".into(), ..Default::default() };
    polled.refused = Some((Timestamp::now() - delay * 2, false));
    for _ in 0..2 {
        super::poll(&test.ctx, &trigger, &mut polled).await.expect_err("the status is refused");
        assert!(test.ctx.stores.rollout.view().expect("a rollout").is_aborted(), "no group takes it");
    }
    assert_eq!(*events.lock().unwrap(), ["RolloutNotRecorded"], "once");
    *is_refused.lock().unwrap() = false;
    super::poll(&test.ctx, &trigger, &mut polled).await.expect("the status is written");
    assert!(polled.unrecorded_stop.is_none());
    assert!(events.lock().unwrap().contains(&"RolloutAborted".to_owned()), "{events:?}");
}

/// A quota or a policy of the cluster lets no BoundariesRevision be created. An admin who removes the key `rollout` then must
/// not lose the ConfigMap with all its later edits.
#[tokio::test]
async fn config_map_without_the_key_is_loaded_although_nothing_can_be_stored() {
    let mut data: BTreeMap<String, String> =
        [("rollout", "waves: [{name: all}]"), ("defaults", "spec: {}")].map(|(k, v)| (k.into(), v.into())).into();
    let hash = crate::boundaries::content_hash(&data);
    let spec = BoundariesRevisionSpec { number: 1, hash, data: data.clone(), ..BoundariesRevisionSpec::default() };
    let mut revision = BoundariesRevision::new("r1", spec);
    let status = revision.status.get_or_insert_default();
    (status.phase, status.images) = (Some(RolloutPhase::Complete), [("latest".into(), "ami-1".into())].into());
    let (items, refused) = (json!([revision]), Arc::new(Mutex::new(0)));
    let creates = refused.clone();
    let test = fake::context(crate::k8s::fake::client(move |call| match call.route() {
        ("POST", path) if path.ends_with("/boundariesrevisions") => {
            *creates.lock().unwrap() += 1;
            (
                403,
                json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "quota"}),
            )
        }
        _ => (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})),
    }));
    data.remove("rollout");
    let active = Arc::new(select_active(Some(&data), None, true).0);
    let view = super::refresh(&test.ctx, &active).await.expect("the ConfigMap is loaded");
    assert!(view.is_none() && *refused.lock().unwrap() == 1);
}

/// The ConfigMap is edited while a poll writes the status of the revision before. The groups must not decide by that one
/// again, whose wave has just opened.
#[test]
fn poll_does_not_replace_a_newer_rollout() {
    let polled = Arc::new(open_rollout("waves: [{name: all}]"));
    let (store, namespaces) = (reflector::store().0, reflector::store().0);
    let stores = Stores::new(store, namespaces);
    stores.rollout.set_view(Some(polled.clone()));
    let with_phase = |phase: RolloutPhase| {
        let mut view = (*polled).clone();
        view.status.phase = Some(phase);
        view
    };
    let phase = || stores.rollout.view().expect("a rollout").phase();
    stores.rollout.replace_view(&polled, with_phase(RolloutPhase::Halted));
    assert_eq!(phase(), RolloutPhase::Halted);
    stores.rollout.set_view(Some(Arc::new(with_phase(RolloutPhase::Assessing))));
    stores.rollout.replace_view(&polled, with_phase(RolloutPhase::Halted));
    assert_eq!(phase(), RolloutPhase::Assessing, "the edit");
}

/// A person stores a BoundariesRevision by hand, and believes that it is in effect. Only an event says that it is not, and one
/// per poll would hide all others.
#[tokio::test]
async fn stored_revision_without_effect_is_reported_once() {
    let view = open_rollout("waves: [{name: all}]");
    let notes = Arc::new(Mutex::new(vec![]));
    let log = notes.clone();
    let test = fake::context(crate::k8s::fake::client(move |call| {
        assert!(call.path.contains("/events"), "unexpected call: {call:?}");
        log.lock().unwrap().push((call.body["regarding"]["name"].clone(), call.body["note"].to_string()));
        (201, call.body)
    }));
    let foreign = BoundariesRevision::new("mine", BoundariesRevisionSpec::default());
    let mut reported = Default::default();
    let found = std::slice::from_ref(&foreign);
    for stored in [found, found, &[], found] {
        super::history_warnings::publish(&test.ctx, &view, stored, &mut reported).await;
    }
    let notes = notes.lock().unwrap();
    assert_eq!(notes.len(), 2, "once, and once more after it was deleted: {notes:?}");
    for (object, note) in notes.iter() {
        assert!(object == "instance-manager" && note.contains("mine is none that the controller stored"), "{note}");
    }
}

/// Only these events report why no group switches to the content of the ConfigMap.
#[test]
fn revisions_that_cannot_be_read_are_named() {
    let view = RolloutView {
        stable_problem: Some("the policy of r1 cannot be read".into()),
        ..open_rollout("waves: [{name: all}]")
    };
    let [held] = super::history_warnings::warnings(&view, &[]).try_into().expect("one warning");
    assert_eq!(held, format!("no group takes {}, because the policy of r1 cannot be read", view.target.name));
    let unreadable = [("hash".to_owned(), "r7".to_owned())].into();
    let view = RolloutView { unreadable, ..open_rollout("waves: [{name: all}]") };
    let [others] = super::history_warnings::warnings(&view, &[]).try_into().expect("one warning");
    assert!(others.contains("BoundariesRevision r7 are not changed"), "{others}");
}
