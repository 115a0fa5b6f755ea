//! When a group records another revision, and what it says while it cannot.

use proptest::prelude::*;

use super::*;

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
/// write would report it to its tenant.
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

/// A CRD of an older release drops the record each time. The group would announce its switch again and again, and no
/// user would learn why it never begins.
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
