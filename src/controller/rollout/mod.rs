//! Advances the rollout of the newest revision of the boundaries: reads the stored revisions and the state of the
//! groups, and records the progress. What is decided is pure and stands in `rollout/`.

mod budget;
mod checks;
mod decide;
mod delete_revision;
mod drain_forecast;
mod forecast;
mod history_warnings;
mod ignored;
mod images;
mod metrics;
mod poll_state;
mod prometheus;
mod switch_revision;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::json;
use tokio::time::Instant;

pub(crate) use self::checks::run as run_checks;
pub(crate) use self::decide::Decided;
use self::decide::namespace_texts;
pub(crate) use self::forecast::decide_and_count;
use self::poll_state::PollState;
pub(crate) use self::prometheus::Prometheus;
pub(crate) use self::switch_revision::{record_completion, switch_revision};
use super::context::{Context, publish_event};
use super::revisions;
use super::stores::Stores;
use super::trigger::Trigger;
use crate::api::names::condition;
use crate::api::{
    BoundariesRevision, BoundariesRevisionStatus, RolloutCounts, RolloutPhase, WaveState, WaveStatus, diff_merge_patch,
    rfc3339,
};
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
use crate::index::cache_state::CacheState;
use crate::index::nodes::NodeIndex;
use crate::k8s::{EventTarget, KubeError};
use crate::plan::{Event, EventReason};
use crate::rollout::{
    BudgetUsage, GroupSummary, ProgressInput, RevisionDecision, RolloutView, Running, YieldingGroups, advance,
    comes_next, drain_blocker, refused_first_images,
};
use crate::util::busy_time::busy_time;

/// How often counts, and the answers to checks, are written. A change of a phase or a wave is written at once.
const COUNT_INTERVAL: SignedDuration = SignedDuration::from_secs(30);

/// Follows the rollout and never returns. Without the key `rollout` it does nothing.
pub(crate) async fn run(ctx: Arc<Context>, trigger: Trigger) {
    let mut polled = PollState::default();
    let interval = ctx.planner.settings.timing.poll_interval.unsigned_abs();
    loop {
        tokio::time::sleep(interval).await;
        let has_policy = ctx.stores.rollout.view().is_some() || ctx.stores.boundaries.get().rollout().is_some();
        let may_write = ctx.can_write();
        if !may_write {
            // In this order: the boundaries are loaded again for the refusal, after which they count as read.
            ctx.stores.rollout.set_read(false);
            ctx.record_blocked_write();
        }
        if !may_write || !has_policy {
            polled = PollState::default();
            ctx.stores.rollout.with_budget_usage(|budget_usage| *budget_usage = BudgetUsage::default());
            ctx.stores.rollout.with_running(|running| *running = Running::default());
            ctx.stores.rollout.with_yielding_groups(|groups| *groups = YieldingGroups::default());
            ctx.metrics.rollout.forget();
            continue;
        }
        // Groups that are missing in the caches must not make the rollout look finished.
        if ctx.stores.not_synced().is_some() {
            continue;
        }
        let (result, busy) = busy_time(poll(&ctx, &trigger, &mut polled)).await;
        if ctx.stores.rollout.view().is_some() {
            ctx.metrics.rollout.observe_poll(busy);
        }
        if let Err(error) = result {
            tracing::warn!(%error, "cannot follow the rollout of the boundaries");
        }
    }
}

/// Counts what the groups use of the budget that were not planned yet, unless this process has done so since it leads.
/// A process that has counted nothing would replace a node although its predecessor has just begun to replace one.
pub(crate) fn count_unavailable(stores: &Stores, nodes: &NodeIndex) {
    if let Some(view) =
        stores.rollout.view().filter(|_| !stores.rollout.with_budget_usage(|budget_usage| budget_usage.is_counted()))
    {
        budget::expect_groups(stores, nodes, &view);
    }
}

/// Counts the groups that replace nodes for the target, unless that was done since this process leads.
pub(crate) fn count_running(stores: &Stores) {
    let Some(view) = stores.rollout.view() else { return };
    stores.rollout.with_running(|running| {
        if !running.is_known(&view) {
            let groups = stores.groups.state();
            let groups = groups.iter().filter_map(|stored| stored.0.as_ref().ok());
            let present = groups.filter(|group| group.metadata.deletion_timestamp.is_none());
            running.count(&view, present.filter_map(|group| group.status.as_ref()));
        }
    });
}

/// Builds the view of the rollout again from the stored revisions, without the lock of the ConfigMap. The one before stays if a
/// user deleted its revision, and the ConfigMap has no policy any more.
///
/// # Errors
/// The API server did not answer, or denied the call. The view stays as it was.
pub(crate) async fn refresh(ctx: &Context, active: &Arc<ActiveBoundaries>) -> Result<Option<RolloutView>, KubeError> {
    let (view, stored) = read(ctx, active).await?;
    Ok(view.or_else(|| lost_view(ctx, active, &stored).map(Arc::unwrap_or_clone)))
}

/// The rollout under way whose revision a user deleted while the ConfigMap has no policy. No stored object names it.
fn lost_view(ctx: &Context, active: &ActiveBoundaries, stored: &[BoundariesRevision]) -> Option<Arc<RolloutView>> {
    ctx.stores.rollout.view().filter(|view| active.rollout().is_none() && view.is_lost_in(stored))
}

/// The view of the rollout, with the stored revisions.
async fn read(
    ctx: &Context,
    active: &Arc<ActiveBoundaries>,
) -> Result<(Option<RolloutView>, Vec<BoundariesRevision>), KubeError> {
    let stored = ctx.planner.kube.boundaries_revisions(&ctx.config_namespace).await?.unwrap_or_default();
    let known = ctx.stores.rollout.view();
    let cluster = ctx.planner.settings.cluster_name.as_deref();
    let view = RolloutView::new(&stored, active, known.as_deref(), cluster);
    let target = |view: &RolloutView| (view.target.name.clone(), view.uid.clone());
    if view.as_ref().is_some_and(|view| known.as_deref().map(target) != Some(target(view))) {
        // Once for each target: groups of one revision must not get two images. A user may have deleted the aborted one.
        let aborted = known.iter().filter(|known| known.is_aborted()).flat_map(|known| known.status.images.clone());
        let refused = refused_first_images(&stored).into_iter().chain(aborted).collect();
        ctx.planner.process_state.image_aliases.forget_first(&refused);
    }
    let is_over = view.is_none() && active.rollout().is_none() && lost_view(ctx, active, &stored).is_none();
    if is_over && active.source == BoundariesSource::Live {
        // All groups wait for the ConfigMap to be loaded. The next load stores this.
        if let Err(error) = images::forget(ctx, active, &stored).await {
            tracing::warn!(%error, "cannot store that image aliases follow AWS again");
        }
    }
    Ok((view, stored))
}

async fn poll(ctx: &Arc<Context>, trigger: &Trigger, polled: &mut PollState) -> Result<(), KubeError> {
    // Before anything is read: a content that is loaded meanwhile is newer than the answer of the API server.
    let known = ctx.stores.rollout.view();
    let active = ctx.stores.boundaries.get();
    let (view, stored) = read(ctx, &active).await?;
    let Some(view) = view else {
        if active.rollout().is_none() && lost_view(ctx, &active, &stored).is_none() {
            // The policy was removed, and the rollout has ended.
            if ctx.stores.rollout.replace_view(known.as_ref(), None) {
                ctx.metrics.rollout.forget();
                trigger.enqueue_all();
            }
        } else if active.source == BoundariesSource::Live {
            // Otherwise no wave would open until the next edit. Groups keep the view until then.
            revisions::store_again(&active, ctx).await?;
        }
        return Ok(());
    };
    let view = Arc::new(view.with_lock(ctx.stores.config_map_lock().active));
    if active.source == BoundariesSource::Live && !view.is_newest(&stored) {
        // A user deleted the newest revision. The rollout of an older one with the same texts is not its rollout.
        return revisions::store_again(&active, ctx).await;
    }
    if view.is_overtaken_in(&stored) {
        // The same, while the ConfigMap cannot be used and nothing is stored. Groups keep the view until then.
        return Ok(());
    }
    let target = (view.target.name.clone(), view.uid.clone());
    if polled.target != target {
        // An edit that changes nothing of a group gives it no more time.
        let patience = std::mem::take(&mut polled.patience);
        *polled = PollState { target, patience, ..PollState::default() };
        let limit = view.policy.patience.unsigned_abs();
        polled.patience.seed(&view.status.slow, limit, Instant::now().into_std());
    }
    let recorded = view.status.clone();
    let view = with_unrecorded_stop(view, polled.unrecorded_stop.as_ref());
    // A new leader must not begin nodes before it has counted those that are unavailable.
    budget::expect_groups(&ctx.stores, &ctx.planner.node_index, &view);
    if !ctx.stores.rollout.replace_view(known.as_ref(), Some(view.clone())) {
        return Ok(());
    }
    count_running(&ctx.stores);
    history_warnings::publish(ctx, &view, &stored, &mut polled.reported_problems).await;
    if view.is_retained_policy && !std::mem::replace(&mut polled.is_kept_policy_reported, true) {
        let name = &view.target.name;
        let remedy = match view.is_aborted() {
            true => view.remedy_of_return().to_owned(),
            false => format!("to end it now: instance-manager rollout skip {name} --all"),
        };
        let message = format!(
            "the key `rollout` was removed from the ConfigMap during a rollout; the policy that {name} was stored with stays in effect until a rollout is complete; {remedy}"
        );
        publish_event(&ctx.boundaries_target().await, &Event::warning(EventReason::RolloutKeyMissing, message), ctx)
            .await;
    }
    let now = Timestamp::now();
    let Poll { mut summary, switching_groups, beginning, next, stuck } = survey(ctx, &view, polled, now);
    summary.slow = polled.patience.slow_groups(view.policy.patience.unsigned_abs());
    summary.stuck_at = polled.stuck_at(&view, &summary, now);
    summary.budget = budget::status(ctx, &view, summary.begins_wait);
    let drains = drain_forecast::forecast(ctx, &view, &mut polled.drains, &next).await;
    summary.drain_forecasts = drains.listed;
    trigger.enqueue_keys(drains.changed);
    ctx.stores.rollout.with_running(|running| running.update(&view, &summary));
    ctx.stores.rollout.with_yielding_groups(|groups| groups.update(&view, &summary, stuck));
    let checks = checks::results(ctx, &view);
    metrics::report(ctx, &view, &summary, &checks, now);
    ignored::publish(ctx, &view, &summary, &revision_target(ctx, &view), &mut polled.reported_ignored).await;
    ignored::publish_late_orders(ctx, &view, &stored, &mut polled.reported_late_orders, now).await;
    let soaked = |wave: &str| {
        let since = polled.soaks.get(wave)?;
        SignedDuration::try_from(since.elapsed()).ok()
    };
    let mut progress = advance(&ProgressInput {
        view: &view,
        summary: &summary,
        assessment_limit: ctx.planner.settings.timing.assessment_limit,
        soaked: &soaked,
        checks: &checks,
        was_ready: &|wave| polled.ready.iter().any(|ready| ready == wave),
        now,
    });
    images::add_first_resolved(ctx, &view, &mut progress.status.images);
    polled.ready = progress.ready;
    let since_jump = ctx.planner.process_state.clock_jumps(|clocks| {
        let instant = Instant::now().into_std();
        clocks.observe(Timestamp::now(), instant);
        clocks.since_jump(instant)
    });
    polled.record_soaks(&view.status, &progress.status, since_jump, now);
    let changed = is_transition(&view.status, &progress.status);
    let written = write(ctx, &view, &recorded, &progress.status, polled, now).await;
    polled.keep_stop(&written, &progress.status);
    report_refusal(ctx, &view, written.as_ref().err(), polled, now).await;
    let result = match written {
        // Neither the groups nor new images wait for the records of older revisions.
        Ok(()) => supersede(ctx, &view, &mut polled.reported_unrecorded).await,
        // The groups do not wait for a record of what stops them.
        Err(error) if changed && polled.unrecorded_stop.is_some() => Err(error),
        Err(error) => return Err(error),
    };
    if changed {
        // The state of many groups may have changed.
        let status = progress.status.clone();
        ctx.stores.rollout.replace_view(Some(&view), Some(Arc::new(RolloutView { status, ..(*view).clone() })));
        polled.enqueued.clear();
        trigger.enqueue_all();
        return result;
    }
    trigger.enqueue_keys(woken_groups(ctx, &view, switching_groups, &beginning, &mut polled.enqueued));
    trigger.enqueue_keys(budget::unblocked_groups(ctx, &view));
    // Last, so that the progress is recorded whatever the API server answers.
    let moved = images::store_new_images(ctx, &view, &stored, &mut polled.moved_images).await;
    polled.dispensable.delete_one(ctx, &active, &stored).await.and(moved).and(result)
}

/// The view with a halt or a return that is not recorded.
fn with_unrecorded_stop(view: Arc<RolloutView>, stop: Option<&BoundariesRevisionStatus>) -> Arc<RolloutView> {
    match stop {
        Some(status) => Arc::new(RolloutView { status: status.clone(), ..(*view).clone() }),
        None => view,
    }
}

/// Says on the ConfigMap that the API server has refused the status of the revision for a while: nothing else would.
async fn report_refusal(
    ctx: &Context,
    view: &RolloutView,
    error: Option<&KubeError>,
    polled: &mut PollState,
    now: Timestamp,
) {
    let refusal = error.filter(|error| !error.is_conflict() && !error.is_not_found());
    let delay = ctx.planner.settings.timing.failed_observation_delay;
    let since = polled.track_refusal(refusal.is_some(), delay, now);
    let (Some(error), Some(since)) = (refusal, since) else { return };
    let name = &view.target.name;
    let message = format!(
        "the rollout of {name} does not continue: since {}, the API server has not taken its status ({error}); correct the webhook, policy or permission that the error names, or apply the CRD of this release",
        rfc3339(since)
    );
    publish_event(&ctx.boundaries_target().await, &Event::warning(EventReason::RolloutNotRecorded, message), ctx).await;
}

/// Where the groups stand.
struct Poll {
    /// Counted by wave.
    summary: GroupSummary,
    /// The groups that would switch to another content.
    switching_groups: HashSet<String>,
    /// Those of them that begin in their waves, with the index of the wave.
    beginning: HashMap<String, usize>,
    /// The groups that replace nodes for the target next, with the index of their wave.
    next: BTreeMap<String, usize>,
    /// The groups without progress, with what blocks their drains.
    stuck: BTreeMap<String, Option<String>>,
}

/// Determines the progress of each group.
fn survey(ctx: &Context, view: &RolloutView, polled: &mut PollState, now: Timestamp) -> Poll {
    let (mut summary, mut switching_groups) = (GroupSummary::new(view), HashSet::new());
    let mut beginning = HashMap::new();
    let (mut next, mut stuck) = (BTreeMap::new(), BTreeMap::new());
    let texts: BTreeMap<String, BTreeMap<String, String>> = {
        let all = ctx.stores.namespaces.state();
        all.iter().map(|namespace| (namespace.name_any(), namespace_texts(namespace))).collect()
    };
    let groups: Vec<_> =
        ctx.stores.groups.state().into_iter().map(|stored| (super::group_key(&stored), stored)).collect();
    polled.retain(&groups.iter().map(|(key, _)| key.as_str()).collect());
    for (key, stored) in groups {
        let group = match &stored.0 {
            Ok(group) => group,
            Err(invalid) => {
                let is_deleting = invalid.metadata.deletion_timestamp.is_some();
                let recorded = invalid.status.as_ref().and_then(|status| status.boundaries_revision.as_deref());
                if !is_deleting {
                    summary.list_undecodable(view, &key, recorded);
                }
                ctx.stores.rollout.with_budget_usage(|budget_usage| budget_usage.suspend(&key));
                continue;
            }
        };
        let namespace = group.namespace().unwrap_or_default();
        let Some(texts) = texts.get(&namespace) else {
            summary.add_unseen(&key);
            continue;
        };
        let version = group.resource_version();
        let cache_state = ctx.planner.process_state.own_writes(&key, |own| own.cache_state(version.as_deref(), now));
        let decided = ctx.stores.decide(group, view, texts, &ctx.planner, now, |facts, choice| {
            let is_blocked = matches!(choice, RevisionDecision::Use { rollout_block: Some(_), .. });
            let stops = view.orders.paused || view.config_problem.is_some() || !view.phase().replaces_nodes();
            let waits_for_budget = ctx.stores.rollout.with_budget_usage(|budget_usage| budget_usage.is_waiting(&key));
            let (patience, pauses_clock) =
                (view.policy.patience.unsigned_abs(), is_blocked || waits_for_budget || stops);
            let is_stuck = polled.patience.track(
                &key,
                group.status.as_ref(),
                choice.switches_to(),
                patience,
                pauses_clock,
                Instant::now().into_std(),
            );
            summary.add(view, facts, choice, is_stuck);
            if cache_state == CacheState::Doubtful {
                summary.add_doubtful(view, facts);
            }
            if is_stuck {
                stuck.insert(key.clone(), drain_blocker(facts.status));
            }
            if comes_next(view, facts, choice) {
                next.insert(key.clone(), facts.wave(view));
            }
            // A group continues when a window opens.
            let was_blocked = polled.blocked.remove(&key);
            if is_blocked {
                polled.blocked.insert(key.clone());
            }
            if (was_blocked && !is_blocked) || matches!(choice, RevisionDecision::Switch(_)) {
                switching_groups.insert(key.clone());
            }
            if matches!(choice, RevisionDecision::Switch(switch) if switch.begins_in_wave()) {
                beginning.insert(key.clone(), facts.wave(view));
            }
        });
        if !decided.rotates_for_revision {
            // It may not be planned again for long, and groups that wait for the budget go before those that have not begun.
            ctx.stores.rollout.record_idle(&key);
        }
    }
    Poll { summary, switching_groups, beginning, next, stuck }
}

/// How many more groups a poll wakes than begin at once: a group may fail to record its switch.
const SPARE: usize = 4;

/// The groups to wake that would switch to another content. Of those that begin in their waves, only as many as `atOnce` and
/// the budget leave room for, and a few more: each of the others would be planned in vain. `enqueued` has those that were
/// woken before, so that the next poll wakes others.
fn woken_groups(
    ctx: &Context,
    view: &RolloutView,
    switching_groups: HashSet<String>,
    beginning: &HashMap<String, usize>,
    enqueued: &mut HashSet<String>,
) -> Vec<String> {
    enqueued.retain(|key| switching_groups.contains(key));
    let mut room: Vec<Option<usize>> = ctx.stores.rollout.with_running(|running| running.places(view));
    let mut nodes = budget::groups_to_begin(ctx, view);
    for left in room.iter_mut().chain([&mut nodes]).flatten() {
        *left += SPARE;
    }
    let mut has_room = |key: &String| {
        let Some(wave) = beginning.get(key) else { return true };
        let mut limits = [room.get_mut(*wave).and_then(Option::as_mut), nodes.as_mut()];
        let is_left = limits.iter().flatten().all(|left| **left > 0);
        limits.iter_mut().flatten().filter(|_| is_left).for_each(|left| **left -= 1);
        is_left
    };
    let new: Vec<String> =
        switching_groups.into_iter().filter(|key| !enqueued.contains(key) && has_room(key)).collect();
    enqueued.extend(new.iter().cloned());
    new
}

/// Whether something changed that users or groups wait for. Counts and the answers to checks do not count.
fn is_transition(before: &BoundariesRevisionStatus, after: &BoundariesRevisionStatus) -> bool {
    let essence = |status: &BoundariesRevisionStatus| {
        let waves: Vec<_> = status.waves.iter().map(without_counts).collect();
        let counts: Option<RolloutCounts> = None;
        BoundariesRevisionStatus {
            waves,
            groups: counts,
            behind: vec![],
            waits_for: vec![],
            waits_for_more: 0,
            budget: None,
            slow: vec![],
            drain_forecasts: vec![],
            checks: vec![],
            ..status.clone()
        }
    };
    essence(before) != essence(after)
}

fn without_counts(wave: &WaveStatus) -> WaveStatus {
    // What keeps a soaking wave from passing counts groups, too, and no group waits for it.
    let why = wave.why.clone().filter(|_| wave.state != Some(WaveState::Soaking));
    WaveStatus { groups: 0, done: 0, failed: 0, waiting: BTreeMap::new(), why, ..wave.clone() }
}

/// Writes what is not recorded of the status.
async fn write(
    ctx: &Context,
    view: &RolloutView,
    recorded: &BoundariesRevisionStatus,
    status: &BoundariesRevisionStatus,
    polled: &mut PollState,
    now: Timestamp,
) -> Result<(), KubeError> {
    // The clock may have gone back since.
    let is_due = polled.written_at.is_none_or(|at| now.duration_since(at).abs() >= COUNT_INTERVAL);
    let is_due = is_due || is_transition(recorded, status);
    let Some(patch) = diff_merge_patch(&json!(recorded), &json!(status)).filter(|_| is_due) else {
        return Ok(());
    };
    if !ctx.request_write() {
        return Ok(());
    }
    let (kube, namespace, name) = (&ctx.planner.kube, &ctx.config_namespace, &view.target.name);
    kube.patch_revision_status(namespace, name, &view.resource_version, patch).await?;
    polled.written_at = Some(now);
    let phase = status.phase.unwrap_or(RolloutPhase::Assessing);
    if recorded.phase != status.phase {
        tracing::info!(revision = %name, %phase, "the phase of the rollout changed");
        publish(ctx, view, status, phase).await;
    }
    checks::publish(ctx, view, status, &revision_target(ctx, view)).await;
    for wave in &status.waves {
        let before = recorded.waves.iter().find(|old| old.name == wave.name).and_then(|old| old.state);
        if let Some(state) = wave.state.filter(|state| Some(*state) != before && *state != WaveState::Waiting) {
            tracing::info!(revision = %name, wave = %wave.name, %state, groups = wave.groups, "the state of a wave changed");
        }
    }
    Ok(())
}

/// Publishes the new phase on the ConfigMap and on the revision, where an admin looks.
async fn publish(ctx: &Context, view: &RolloutView, status: &BoundariesRevisionStatus, phase: RolloutPhase) {
    let name = &view.target.name;
    let halted = status.conditions.iter().find(|found| found.r#type == condition::HALTED && found.is_true());
    let why = halted.and_then(|found| found.message.clone()).unwrap_or_default();
    let event = match phase {
        RolloutPhase::Assessing | RolloutPhase::Superseded => return,
        RolloutPhase::Rolling if view.is_return() => Event::normal(
            EventReason::RolloutStarted,
            format!("groups take {name} without waves: see instance-manager rollout status {name}"),
        ),
        RolloutPhase::Rolling => Event::normal(
            EventReason::RolloutStarted,
            format!("groups take {name}, wave by wave: see instance-manager rollout status {name}"),
        ),
        RolloutPhase::Halted => {
            Event::warning(EventReason::RolloutHalted, format!("the rollout of {name} is halted: {why}"))
        }
        RolloutPhase::Returning => Event::warning(
            EventReason::RolloutReturning,
            format!("all groups return from {name} to the revision that they had before: {why}"),
        ),
        RolloutPhase::Complete if view.is_return() => Event::normal(
            EventReason::RolloutCompleted,
            format!("all groups have {name}, except those in status.behind"),
        ),
        RolloutPhase::Complete => {
            Event::normal(EventReason::RolloutCompleted, format!("all waves of {name} have passed"))
        }
        RolloutPhase::Aborted => {
            let what = format!("all groups returned from {name}; their nodes are still being replaced");
            Event::warning(EventReason::RolloutAborted, format!("{what}: {why}"))
        }
    };
    publish_event(&ctx.boundaries_target().await, &event, ctx).await;
    publish_event(&revision_target(ctx, view), &event, ctx).await;
}

/// The target of the rollout as the target of an event.
fn revision_target(ctx: &Context, view: &RolloutView) -> EventTarget {
    ignored::event_target(ctx, &view.target.name, &view.uid)
}

/// Records that older revisions whose rollout was under way were superseded, or aborted. Of one whose status the API server
/// refuses for good, an event says so once; `reported` has the names of those.
///
/// # Errors
/// The first error. The other revisions are recorded nevertheless.
async fn supersede(ctx: &Context, view: &RolloutView, reported: &mut BTreeSet<String>) -> Result<(), KubeError> {
    let (kube, namespace) = (&ctx.planner.kube, &ctx.config_namespace);
    let mut result = Ok(());
    for old in &view.superseded {
        if !ctx.request_write() {
            break;
        }
        let (name, phase) = (&old.name, old.phase);
        let recorded =
            kube.patch_revision_status(namespace, name, &old.resource_version, json!({"phase": phase})).await;
        if let Err(error @ (KubeError::Forbidden { .. } | KubeError::Invalid { .. })) = &recorded
            && reported.insert(name.clone())
        {
            let message = format!(
                "the API server does not take the phase {phase} of {name} ({error}); correct the webhook, policy or permission that the error names, or delete {name}"
            );
            let event = Event::warning(EventReason::RolloutNotRecorded, message);
            publish_event(&ctx.boundaries_target().await, &event, ctx).await;
        }
        result = result.and(recorded);
    }
    result
}
