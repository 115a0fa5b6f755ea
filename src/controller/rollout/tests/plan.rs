//! `plan` against the controller in each phase of a rollout, with what admins, tenants and the calendar decide.

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::{
    Facts, controller, count_running, count_unavailable, decide_and_count, group, key, node_index, open_rollout,
    stores, switch_revision,
};
use crate::api::names::annotation;
use crate::api::{InstanceGroup, RolloutPhase, WaveState, rfc3339};
use crate::controller::fake;
use crate::controller::planner::Planner;
use crate::rollout::{RevisionDecision, RolloutView};

const FREEZE: &str = "freezes: [{from: 2020-01-01, to: 9999-12-31, zone: UTC}]";
const DEFERRAL: &str = "deferral: [{namespaces: '*', max: 48h}]";

/// What a tenant or an admin writes on a group.
const ANNOTATIONS: [Option<(&str, &str)>; 4] = [
    None,
    Some((annotation::APPROVE_REVISION, "2")),
    Some((annotation::LOCK_UPGRADES, "true")),
    Some((annotation::DEFER_UNTIL, "2099-01-01T00:00:00Z")),
];

fn annotated(index: usize, facts: Facts, annotation: Option<(&str, &str)>, view: &RolloutView) -> InstanceGroup {
    let mut made = group(index, facts, view);
    let annotations = annotation.map(|(name, value)| [(name.to_owned(), value.to_owned())].into());
    made.metadata.annotations = annotations;
    made
}

/// The groups that the controller switches to another revision, with the hash of that.
async fn switched(groups: &[InstanceGroup], view: &RolloutView, now: Timestamp) -> Vec<(String, String)> {
    let (test, writes) = controller(stores(groups, view, &["canary", "team"]));
    for group in groups {
        switch_revision(group, &key(group), &test.ctx, now).await.expect("the API server answers");
    }
    let written = writes.lock().unwrap();
    let of_group = |path: &str| path.split('/').nth_back(1).unwrap_or_default().to_owned();
    let hash = |body: &serde_json::Value| body["status"]["boundariesRevision"].as_str().unwrap_or_default().to_owned();
    written.iter().map(|(path, body)| (of_group(path), hash(body))).collect()
}

/// The groups that `plan` shows with another revision.
async fn planned(groups: &[InstanceGroup], view: &RolloutView, now: Timestamp) -> Vec<(String, String)> {
    let client = crate::k8s::fake::client(|call| panic!("plan writes and reads nothing more: {call:?}"));
    let planner: Planner = fake::planner(&Default::default(), client, node_index());
    let stores = stores(groups, view, &["canary", "team"]);
    count_running(&stores);
    count_unavailable(&stores, &planner.node_index);
    let mut found = vec![];
    for group in groups {
        let decided = decide_and_count(group, view, &stores, &planner, now).await.expect("a known Namespace");
        if let RevisionDecision::Switch(switch) = decided.choice {
            found.push((group.metadata.name.clone().expect("a name"), switch.content.hash));
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// An admin who runs `plan` in the middle of a rollout asks which groups change next. No group of them is locked, and none
    /// takes a change that is stopped, frozen, or not approved.
    #[test]
    fn plan_and_controller_agree_in_each_phase(
        facts in prop::collection::vec(((any::<bool>(), 1..4usize, 1..4usize, any::<bool>()), 0..4usize), 1..6),
        phase in prop::sample::select(vec![
            RolloutPhase::Assessing,
            RolloutPhase::Rolling,
            RolloutPhase::Rolling,
            RolloutPhase::Halted,
            RolloutPhase::Returning,
            RolloutPhase::Aborted,
            RolloutPhase::Complete,
        ]),
        gate in prop::sample::select(vec!["", "", FREEZE, DEFERRAL]),
        is_paused in prop::bool::weighted(0.2),
        is_open in any::<bool>(),
        needs_approval in any::<bool>(),
    ) {
        let approval = if needs_approval { ", approval: admin" } else { "" };
        let waves = format!("waves: [{{name: canary, namespaces: 'rollout/wave = canary'}}, {{name: rest{approval}}}]");
        let (mut view, now) = (open_rollout(&format!("{gate}\n{waves}")), Timestamp::now());
        (view.status.phase, view.orders.paused) = (Some(phase), is_paused);
        for wave in &mut view.status.waves {
            wave.opened = Some(rfc3339(now));
        }
        if !is_open {
            (view.status.waves[1].state, view.status.waves[1].opened) = (Some(WaveState::Waiting), None);
        }
        let group = |(index, (facts, of)): (usize, &(Facts, usize))| annotated(index, *facts, ANNOTATIONS[*of], &view);
        let groups: Vec<InstanceGroup> = facts.iter().enumerate().map(group).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (switched, planned) = runtime.block_on(async {
            (switched(&groups, &view, now).await, planned(&groups, &view, now).await)
        });
        prop_assert_eq!(&switched, &planned);
        for (index, ((is_canary, .., is_rolling), of)) in facts.iter().enumerate() {
            let takes = (format!("g{index}"), view.target.hash.clone());
            let is_stopped = is_paused || !matches!(phase, RolloutPhase::Rolling | RolloutPhase::Complete);
            let annotation = ANNOTATIONS[*of].map(|(name, _)| name);
            let (approves, defers) = (annotation == Some(annotation::APPROVE_REVISION), annotation == Some(annotation::DEFER_UNTIL));
            let is_closed = !is_open && !is_canary && phase == RolloutPhase::Rolling;
            let waits = is_stopped
                || *is_rolling
                || annotation == Some(annotation::LOCK_UPGRADES)
                || gate == FREEZE
                || !approves && (is_closed || needs_approval && !is_canary);
            prop_assert!(!waits || !switched.contains(&takes), "{takes:?} of {switched:?}: {}", json!(groups[index]));
            let is_deferred = defers && gate == DEFERRAL && (is_open || *is_canary);
            prop_assert!(!is_deferred || !switched.contains(&takes), "{takes:?} is deferred");
        }
    }
}
