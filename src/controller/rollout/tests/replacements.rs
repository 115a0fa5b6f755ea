//! Whether a group may replace a node now: the state of the rollout, and its budget.

use super::*;

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
/// be replaced for a revision that has ended, outside of the budget, and EKS takes no update of a managed group back.
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
        assert!(context.lock.is_none(), "{name}: draining nodes are not uncordoned meanwhile");
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
        super::super::survey(&test.ctx, &view, &mut Default::default(), Timestamp::now());
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
            let found = super::super::survey(ctx, &view, &mut polled, Timestamp::now());
            assert_eq!(found.switching_groups.len(), 100, "{policy}: each may begin");
            super::super::woken_groups(ctx, &view, found.switching_groups, &found.beginning, &mut enqueued)
        };
        let (first, second) = (poll(), poll());
        assert_eq!((first.len(), second.len()), (limit, limit), "{policy}");
        assert!(first.iter().all(|key| !second.contains(key)), "{policy}: others have their turn");
    }
    let view = open_rollout("waves: [{name: rest}]");
    let groups: Vec<_> = (0..100).map(|index| group(index, (false, 2, 2, false), &view)).collect();
    let (test, _) = controller(stores(&groups, &view, &["team"]));
    let found = super::super::survey(&test.ctx, &view, &mut Default::default(), Timestamp::now());
    let mut enqueued = Default::default();
    let all = super::super::woken_groups(&test.ctx, &view, found.switching_groups, &found.beginning, &mut enqueued);
    assert_eq!(all.len(), 100, "without a limit all begin");
}
