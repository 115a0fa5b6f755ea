//! What waits costs nothing and changes nothing: a rollout that makes no progress writes nothing, and a group whose turn has
//! not come does what it would do without the change.

use jiff::Timestamp;
use proptest::prelude::*;

use super::properties::{Action, POLICIES, any_action, apply, some_group};
use super::simulated_cluster::{Group, RecordedAction, SimulatedCluster, image_of};
use crate::boundaries::Wave;
use crate::util::calendar::{WindowState, window_state};

/// What the time alone decides, as text: until when the change is urgent, whether the cluster's delay is over, and for each
/// wave whether its windows are open, whether tenants may still put the change off, and whether its soak lasts.
fn decided_by_time(cluster: &SimulatedCluster) -> String {
    let Some(view) = cluster.clone().view() else { return String::new() };
    let (policy, now) = (&view.policy, cluster.now);
    let is_delayed = view.created.is_some_and(|at| now < at + view.delay);
    let of_wave = |wave: &Wave| {
        let is_open = window_state(&[&policy.windows, &wave.windows], &policy.freezes, now) == WindowState::Open;
        let status = view.status.waves.iter().find(|status| status.name == wave.name);
        let opened = status.and_then(|status| status.opened.as_ref()?.parse::<Timestamp>().ok());
        let settled = status.and_then(|status| status.settled.as_ref()?.parse::<Timestamp>().ok());
        let may_defer = opened.is_some_and(|opened| now < opened + policy.deferral_of("team"));
        (is_open, may_defer, settled.is_some_and(|settled| now < settled + wave.soak))
    };
    let waves: Vec<_> = policy.waves.iter().map(of_wave).collect();
    format!("{:?} {is_delayed} {waves:?}", view.urgent_until(now))
}

/// What happens in a cluster, as text: whatever else its statuses say follows from that.
fn visible(cluster: &SimulatedCluster) -> String {
    let newest = cluster.newest();
    let groups: Vec<_> = cluster.groups.iter().map(|group| (&group.key, &group.status, group.log.len())).collect();
    let status = cluster.revisions.last().and_then(|found| found.status.clone()).unwrap_or_default();
    // The cuts of percentages decide which wave a group is in.
    let cuts: Vec<_> = status.waves.iter().map(|wave| (wave.cut, wave.percent)).collect();
    let (phase, waves, slow) = (cluster.phase_of(&newest), cluster.waves(&newest), status.slow);
    let times = decided_by_time(cluster);
    format!("{newest} {phase:?} {waves:?} {cuts:?} {slow:?} {times} {groups:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// A rollout waits for days: in soaks, for windows, approvals, delays and tenants, and after a halt. A write with each
    /// poll would fill the audit log and wake every watcher.
    #[test]
    fn poll_that_changes_nothing_writes_nothing(
        policy in prop::sample::select(POLICIES[..7].to_vec()),
        bad in prop::option::of(2..5usize),
        actions in prop::collection::vec(any_action(), 1..20),
    ) {
        let mut cluster = SimulatedCluster::new(policy, (0..6).map(some_group).collect());
        cluster.groups[0].bad_images.extend(bad.map(|image| format!("ami-{image}")));
        let mut made = 0;
        // With a budget, a group yields some polls after what causes it.
        let has_no_budget = |action: &&Action| !matches!(action, Action::Policy(7));
        for action in actions.iter().filter(has_no_budget) {
            let polls = if let Action::Poll(count) = action { *count } else { 8 };
            if !matches!(action, Action::Poll(_)) {
                apply(&mut cluster, action, &mut made);
            }
            let (mut was_quiet, mut before) = (false, visible(&cluster));
            for _ in 0..polls {
                let writes = cluster.writes;
                cluster.poll();
                let after = visible(&cluster);
                let is_quiet = before == after;
                // The first quiet poll may record what the one before did.
                let is_silent = !was_quiet || !is_quiet || cluster.writes == writes;
                prop_assert!(is_silent, "{action:?}: a poll wrote {:?}", cluster.revisions.last());
                (was_quiet, before) = (is_quiet, after);
            }
        }
    }
}

/// What tenants do, and what happens to the controller.
fn any_tenant_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (1..20usize).prop_map(Action::Poll),
        2 => (0..6usize).prop_map(Action::Outdate),
        1 => (0..6usize).prop_map(Action::TenantEdit),
        1 => (0..6usize, any::<bool>()).prop_map(|(index, locks)| Action::Lock(index, locks)),
        1 => (0..6usize, any::<bool>()).prop_map(|(index, blocks)| Action::Block(index, blocks)),
        1 => (0..100usize).prop_map(Action::Create),
        1 => Just(Action::Restart),
    ]
}

/// What admins do about the change.
fn any_admin_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (1..5usize).prop_map(Action::Image),
        1 => (0..3usize).prop_map(Action::Comment),
        1 => any::<bool>().prop_map(Action::Pause),
        1 => Just(Action::Abort),
        1 => Just(Action::Retry),
    ]
}

/// The nodes that a group replaced. It may switch to a content and back that make the same of it.
fn replaced(group: &Group) -> Vec<&RecordedAction> {
    group.log.iter().filter(|action| matches!(action, RecordedAction::Replaced { .. })).collect()
}

/// The image that a group launches.
fn launched_image(cluster: &SimulatedCluster, group: &Group) -> Option<String> {
    let view = cluster.clone().view()?;
    view.stored.get(group.status.boundaries_revision.as_deref()?).map(image_of)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// A change that has not been approved for a tenant must not reach it in any other way, whatever happens to it in the
    /// canary: the tenant's nodes are those that it would have without the change, and so are its new groups.
    #[test]
    fn group_that_waits_does_what_it_would_do_without_the_change(
        on_failure in prop::sample::select(vec!["halt", "return"]),
        is_bad in any::<bool>(),
        actions in prop::collection::vec(
            prop_oneof![
                2 => any_tenant_action().prop_map(|action| (false, action)),
                1 => any_admin_action().prop_map(|action| (true, action)),
            ],
            1..25,
        ),
    ) {
        let waves = "{name: w0, namespaces: 'wave = 0', soak: 1m}, {name: w1, approval: admin}";
        let policy = format!("{{onFailure: {on_failure}, waves: [{waves}]}}");
        let mut changed = SimulatedCluster::new(&policy, (0..6).map(some_group).collect());
        changed.groups[0].bad_images.extend(is_bad.then(|| "ami-2".to_owned()));
        let mut unchanged = changed.clone();
        let mut made = [0; 2];
        for (is_admins, action) in &actions {
            let polls = if let Action::Poll(count) = action { *count } else { 1 };
            if !matches!(action, Action::Poll(_)) {
                apply(&mut changed, action, &mut made[0]);
            }
            if !is_admins && !matches!(action, Action::Poll(_)) {
                apply(&mut unchanged, action, &mut made[1]);
            }
            changed.run(polls);
            unchanged.run(polls);
        }
        let waits = |group: &Group| group.namespace.get("wave").is_some_and(|wave| wave != "0");
        for (group, other) in changed.groups.iter().zip(&unchanged.groups).filter(|(group, _)| waits(group)) {
            prop_assert_eq!(&group.key, &other.key);
            prop_assert_eq!((replaced(group), &group.nodes), (replaced(other), &other.nodes), "{}", &group.key);
            let images = (launched_image(&changed, group), launched_image(&unchanged, other));
            prop_assert_eq!(images.0, images.1, "{}", &group.key);
        }
    }
}
