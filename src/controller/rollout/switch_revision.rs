//! Switches a group to another revision during a rollout. It decides which revision the group is planned with, records a
//! switch before it happens, and reports it in the status.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use serde_json::json;

use super::decide::{Decided, namespace_texts};
use super::forecast::decide_with_forecast;
use super::{count_running, count_unavailable};

use crate::api::names::condition;
use crate::api::{GroupId, InstanceGroup, diff_merge_patch, rfc3339};
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
use crate::controller::context::{CACHE_LAG_DELAY, Context, Error, event_target, publish_event};
use crate::controller::planner::{GroupContext, Planner, Planning};
use crate::controller::status_update::report_refusal;
use crate::controller::stores::Stores;
use crate::plan::write::{Write, status_write};
use crate::plan::{Event, EventKind, EventReason, Outcome, Step};
use crate::rollout::{
    RevisionDecision, RevisionSwitch, RolloutView, RotationBlock, SwitchReason, Wait, corrected_record,
};

/// Forecasts what the target of the rollout changes in the group, and records that the group switches to another
/// content. The reconcile then ends, and the next one plans with that content.
pub(crate) async fn switch_revision(
    group: &InstanceGroup,
    key: &str,
    ctx: &Context,
    now: Timestamp,
) -> Result<Option<Action>, Error> {
    let Some(view) = ctx.stores.rollout.view() else {
        // A leader that has not read the stored revisions yet must not give the newest one to every group.
        let active = ctx.stores.boundaries.get();
        let is_live = active.source == BoundariesSource::Live;
        let may_wait = !ctx.stores.rollout.is_read() || (is_live && active.rollout().is_some());
        let interval = ctx.planner.settings.timing.poll_interval.unsigned_abs();
        return Ok(may_wait.then(|| Action::requeue(interval)));
    };
    // This may be the first group that a new leader reconciles.
    count_unavailable(&ctx.stores, &ctx.planner.node_index);
    count_running(&ctx.stores);
    let Some(decided) = decide_with_forecast(group, &view, &ctx.stores, &ctx.planner, now).await else {
        // Its wave depends on its Namespace.
        return Ok(Some(Action::requeue(CACHE_LAG_DELAY)));
    };
    let RevisionDecision::Switch(switch) = decided.choice else { return Ok(None) };
    match confirm(group, &switch, ctx) {
        Some((view, switch)) => record(group, key, &view, switch, ctx, now).await.map(Some),
        None => Ok(Some(Action::requeue(CACHE_LAG_DELAY))),
    }
}

/// Decides once more about a switch, with the present rollout and time: the forecast may have read AWS for long. A user may
/// have stopped the rollout since, or a window may have closed. `None` if the group does not switch to the same content.
fn confirm(
    group: &InstanceGroup,
    switch: &RevisionSwitch,
    ctx: &Context,
) -> Option<(Arc<RolloutView>, RevisionSwitch)> {
    let view = ctx.stores.rollout.view()?;
    match ctx.stores.decided(group, &view, &ctx.planner)?.choice {
        RevisionDecision::Switch(current) if current.content.hash == switch.content.hash => Some((view, current)),
        RevisionDecision::Switch(_) | RevisionDecision::Use { .. } => None,
    }
}

/// Why the same record is written again and again.
const RECORD_NOT_STORED: &str = "the revision that the group takes is not stored in its status; apply the CRD of this release, or find another writer in metadata.managedFields";

/// Writes the record of the content that the group switches to, before anything is made from it.
async fn record(
    group: &InstanceGroup,
    key: &str,
    view: &RolloutView,
    switch: RevisionSwitch,
    ctx: &Context,
    now: Timestamp,
) -> Result<Action, Error> {
    let planner = &ctx.planner;
    let before = group.status.clone().unwrap_or_default();
    let mut after = before.clone();
    after.boundaries_revision = Some(switch.content.hash.clone());
    after.rollout = Some(switch.record.clone());
    let Some(patch) = diff_merge_patch(&json!(before), &json!(after)) else {
        return Ok(Action::requeue(Duration::ZERO));
    };
    // Another writer may take the record away each time.
    let (write, resync) = (status_write(&patch), planner.settings.resync_period);
    if !planner.process_state.group_writes(key, |writes| writes.is_due(&write, resync, now)) {
        return Ok(Action::requeue(planner.settings.timing.poll_interval.unsigned_abs()));
    }
    let wave = view.wave_index(switch.record.wave.as_deref());
    // Another worker may have taken the room of the wave since the decision. A failed write may have been performed, so the
    // group stays counted until two polls have not found it with the target.
    if let Some(wave) = wave.filter(|_| switch.begins_in_wave())
        && !ctx.stores.rollout.reserve_place(view, wave, key)
    {
        return Ok(Action::requeue(planner.settings.timing.poll_interval.unsigned_abs()));
    }
    // The decision may have read AWS for long.
    if !ctx.request_write() {
        return Ok(Action::await_change());
    }
    let (namespace, name) = (group.namespace().unwrap_or_default(), group.name_any());
    let version = group.resource_version().unwrap_or_default();
    let result = planner.kube.patch_status(&namespace, &name, &version, patch).await;
    // The reconcile does not come to its other writes, which would report this.
    report_refusal(group, key, result.as_ref().err(), ctx).await;
    let version = result.map_err(Error::Status)?;
    planner.process_state.own_writes(key, |own| own.record(&version, Timestamp::now()));
    if let Some(wave) = wave {
        ctx.stores.rollout.count_switch(wave, key);
    }
    let event = switch_event(view, &switch, &before.boundaries_revision);
    if let Some(event) = record_write(key, write, event, ctx, now) {
        publish_event(&event_target(&group.metadata), &event, ctx).await;
    }
    Ok(Action::requeue(Duration::ZERO))
}

/// Remembers the write. Returns the event that is due: that of the switch once, and a warning when its record is taken away
/// again and again. The pass does not come to the condition WritesIneffective.
fn record_write(key: &str, write: Write, switched: Event, ctx: &Context, now: Timestamp) -> Option<Event> {
    ctx.planner.process_state.group_writes(key, |writes| {
        let is_repeated = writes.is_repetition(&write);
        let is_ineffective = writes.record_write(write, || RECORD_NOT_STORED.to_owned(), now);
        ctx.metrics.set_ineffective_writes(key, writes.ineffective().len());
        match is_ineffective {
            true => Some(Event::for_condition(EventKind::Warning, condition::WRITES_INEFFECTIVE, RECORD_NOT_STORED)),
            false => (!is_repeated).then_some(switched),
        }
    })
}

/// The event of a group that switches to another content.
fn switch_event(view: &RolloutView, switch: &RevisionSwitch, before: &Option<String>) -> Event {
    let name = &switch.content.name;
    let from = before.as_ref().and_then(|hash| view.stored.get(hash)).map(|stored| stored.name.clone());
    let from = from.map(|from| format!(" (before: {from})")).unwrap_or_default();
    match &switch.why {
        SwitchReason::Wave(wave) => {
            Event::normal(EventReason::RevisionTaken, format!("the group takes {name} in wave {wave}{from}"))
        }
        SwitchReason::Approved(wave) => Event::normal(
            EventReason::RevisionTaken,
            format!("the group takes {name} ahead of wave {wave}{from}, because its tenant approved it"),
        ),
        SwitchReason::InPlace => Event::normal(
            EventReason::RevisionTaken,
            format!("the group takes {name}{from}; no node is replaced for it"),
        ),
        SwitchReason::Reverted => Event::normal(
            EventReason::RevisionTaken,
            format!("the group takes {name}{from}, because the ConfigMap was reverted to it"),
        ),
        SwitchReason::Included => Event::normal(
            EventReason::RevisionTaken,
            format!("the group takes {name}, because its namespace has boundaries now"),
        ),
        SwitchReason::Superseded => Event::normal(
            EventReason::RevisionReturned,
            format!("the group returns to {name}{from}: a newer revision came before a node was replaced"),
        ),
        SwitchReason::Stopped => Event::warning(
            EventReason::RevisionReturned,
            format!(
                "the revision of the group failed, so the group returns to {name}{from} until its wave of {} opens",
                view.target.name
            ),
        ),
        SwitchReason::Aborted => Event::warning(
            EventReason::RevisionReturned,
            format!("the group returns to {name}: {} was aborted", view.target.name),
        ),
        SwitchReason::Failed(failure) => Event::warning(
            EventReason::RevisionReturned,
            format!("the group returns to {name}: {} failed on this group: {failure}", view.target.name),
        ),
    }
}

impl Stores {
    /// Puts the content of this group's revision into its context, and why it does not switch to the newest one.
    pub(crate) fn apply_rollout(&self, group: &InstanceGroup, planner: &Planner, context: &mut GroupContext) {
        let Some(view) = self.rollout.view() else { return without_history(group, context) };
        let Some(Decided { choice, rotates_for_revision, .. }) = self.decided(group, &view, planner) else {
            return without_namespace(group, context);
        };
        // A content that is about to be taken is used only after that is recorded.
        let (content, waits, rollout_block) = match choice {
            RevisionDecision::Use { content, waits, rollout_block } => (content, waits, rollout_block),
            RevisionDecision::Switch(switch) => {
                let recorded = group.status.as_ref().and_then(|status| status.boundaries_revision.as_deref());
                let block = RotationBlock { why: switch_block(&view, &switch), uncordons: false };
                (recorded.and_then(|hash| view.stored.get(hash)).cloned().or(view.stable.clone()), None, Some(block))
            }
        };
        context.is_rollout_blocked = rollout_block.is_some();
        (context.active_boundaries, context.images) = match content {
            Some(content) => (content.active, Some(content.images)),
            None => (missing_revision(waits.as_ref()), None),
        };
        match rollout_block {
            Some(block) if block.uncordons => context.lock = context.lock.take().or(Some(block.why)),
            block => context.rollout_block = block.map(|block| block.why),
        }
        context.revision_wait = waits;
        let key = GroupId::key_of(&group.metadata);
        context.drain_forecast = self.rollout.drain_forecast(&key);
        if !rotates_for_revision {
            return self.rollout.record_idle(&key);
        }
        match self.rollout.allowance(&key) {
            Some(Ok(allowance)) => context.allowance = Some(allowance),
            // What takes several nodes at once waits as for a window.
            Some(Err(why)) => context.rollout_block = context.rollout_block.take().or(Some(why)),
            None => {}
        }
    }

    /// Why the rollout begins no node of this group now; `None` where it blocks nothing, and without a rollout.
    pub(crate) fn rollout_block(&self, group: &InstanceGroup, planner: &Planner) -> Option<String> {
        let view = self.rollout.view()?;
        let Some(decided) = self.decided(group, &view, planner) else {
            return Some(NAMESPACE_UNKNOWN.to_owned()).filter(|_| group.metadata.deletion_timestamp.is_none());
        };
        match decided.choice {
            RevisionDecision::Use { rollout_block, .. } => rollout_block.map(|block| block.why),
            RevisionDecision::Switch(switch) => Some(switch_block(&view, &switch)),
        }
    }

    /// Reserves what a step needs of the budget of the rollout. Returns why not, if the budget does not leave it.
    pub(crate) fn reserve_budget(&self, group: &InstanceGroup, planner: &Planner, step: &Step) -> Option<String> {
        let decided = self.decided(group, self.rollout.view()?.as_ref(), planner)?;
        if !decided.rotates_for_revision {
            return None;
        }
        self.rollout.reserve_budget(&GroupId::key_of(&group.metadata), step)
    }

    /// What the rollout means for this group now; `None` while its Namespace is not known.
    fn decided(&self, group: &InstanceGroup, view: &RolloutView, planner: &Planner) -> Option<Decided> {
        let namespace = self.namespaces.get(&ObjectRef::new(&group.namespace().unwrap_or_default()))?;
        let texts = namespace_texts(&namespace);
        Some(self.decide(group, view, &texts, planner, Timestamp::now(), |_, _| {}))
    }
}

/// Why a group begins no node for what it has: an order, a failure or a newer revision ended that since it was planned.
fn switch_block(view: &RolloutView, switch: &RevisionSwitch) -> String {
    format!("the rollout of {}: the group takes {} now", view.target.name, switch.content.name)
}

/// Keeps a group that has other content from taking the last good one. No stored revision can be read, so it is unknown
/// whether the group may switch. The rest continues, and so do deletions.
fn without_history(group: &InstanceGroup, context: &mut GroupContext) {
    let active = &context.active_boundaries;
    let BoundariesSource::LastKnownGood(why) = &active.source else { return };
    let recorded = group.status.as_ref().and_then(|status| status.boundaries_revision.as_deref()).unwrap_or_default();
    let has_another = !recorded.is_empty() && recorded != active.revision;
    if active.rollout().is_some() && has_another && group.metadata.deletion_timestamp.is_none() {
        let why = format!("the revision of the boundaries that the group has cannot be read: {why}");
        let source = BoundariesSource::RevisionMissing(why);
        context.active_boundaries = Arc::new(ActiveBoundaries { source, ..ActiveBoundaries::default() });
    }
}

/// Why nothing of a group is decided.
const NAMESPACE_UNKNOWN: &str = "the Namespace of the group, which decides its wave of the rollout, is not known yet";

/// Keeps a group whose Namespace is not known from the newest content: its wave may not be open. A deletion continues.
fn without_namespace(group: &InstanceGroup, context: &mut GroupContext) {
    if group.metadata.deletion_timestamp.is_none() {
        context.is_rollout_blocked = true;
        let source = BoundariesSource::RevisionMissing(NAMESPACE_UNKNOWN.to_owned());
        context.active_boundaries = Arc::new(ActiveBoundaries { source, ..ActiveBoundaries::default() });
    }
}

fn missing_revision(wait: Option<&Wait>) -> Arc<ActiveBoundaries> {
    let why = wait.map(|wait| wait.message.clone());
    let why = why.unwrap_or_else(|| "the revision of the boundaries that the group has is no longer stored".to_owned());
    Arc::new(ActiveBoundaries { source: BoundariesSource::RevisionMissing(why), ..ActiveBoundaries::default() })
}

/// Records when all nodes of the group ran the content that it switched to. Corrects the time of the switch after the clock
/// went back.
pub(crate) fn record_completion(group: &InstanceGroup, planned: &mut Planning, now: Timestamp) {
    let Some(status) = &group.status else { return };
    let Some(before) = &status.rollout else { return };
    let mut after = corrected_record(status, now).unwrap_or_else(|| before.clone());
    let recorded = status.boundaries_revision.as_ref();
    let is_planned_with = planned.boundaries.as_ref().map(|summary| &summary.revision) == recorded;
    let is_done = is_planned_with && planned.plan.outcome == Outcome::Converged && planned.plan.steps.is_empty();
    if is_done && before.settled.is_none() {
        after.settled = Some(rfc3339(now));
    }
    if after != *before {
        planned.plan.status_update.fields.insert("rollout".to_owned(), json!(after));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{controller, group, key, open_rollout, stores};
    use super::*;
    use crate::api::{InstanceGroupSpec, InstanceGroupStatus, RolloutRecord, group_id};
    use crate::controller::report::BoundariesSummary;
    use crate::plan::{NodeStep, Plan, PlannedStep, StalledReason, UncordonReason, blocked_plan};

    fn planned_with(recorded: Option<&str>, source: BoundariesSource, is_deleting: bool) -> BoundariesSource {
        let data = [("rollout".to_owned(), "waves: [{name: all}]".to_owned())].into();
        let boundaries = crate::boundaries::Boundaries::parse(&data).expect("boundaries").0;
        let active = ActiveBoundaries {
            boundaries: Some(Arc::new(boundaries)),
            revision: "good".into(),
            source,
            ..ActiveBoundaries::default()
        };
        let mut context = GroupContext { active_boundaries: Arc::new(active), ..GroupContext::default() };
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        let boundaries_revision = recorded.map(str::to_owned);
        group.status = Some(InstanceGroupStatus { boundaries_revision, ..InstanceGroupStatus::default() });
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH);
        group.metadata.deletion_timestamp = is_deleting.then_some(time);
        without_history(&group, &mut context);
        context.active_boundaries.source.clone()
    }

    /// Two workers find at the same time that a wave with `atOnce: 1` has room. Only one of their groups may begin.
    #[tokio::test]
    async fn only_one_of_two_workers_gets_the_last_place_of_a_wave() {
        let view = open_rollout("waves: [{name: rest, atOnce: 1}]");
        let groups = [1, 2].map(|index| group(index, (false, 2, 2, false), &view));
        let (test, writes) = controller(stores(&groups, &view, &["team"]));
        let (ctx, now) = (&test.ctx, Timestamp::now());
        count_running(&ctx.stores);
        let mut switches = vec![];
        for group in &groups {
            let decided =
                decide_with_forecast(group, &view, &ctx.stores, &ctx.planner, now).await.expect("a Namespace");
            let RevisionDecision::Switch(switch) = decided.choice else { panic!("it has room") };
            switches.push(switch);
        }
        for (group, switch) in groups.iter().zip(switches) {
            record(group, &key(group), &view, switch, ctx, now).await.expect("an answer");
        }
        assert_eq!(writes.lock().unwrap().len(), 1);
    }

    /// While the controller reads what the revision means for a group, a user pauses the rollout, or the ConfigMap is edited. The
    /// group must not take the revision after that.
    #[tokio::test]
    async fn switch_is_not_recorded_after_the_rollout_was_stopped() {
        let view = open_rollout("waves: [{name: rest}]");
        let group = group(1, (false, 2, 2, false), &view);
        let (test, _) = controller(stores(std::slice::from_ref(&group), &view, &["team"]));
        let (ctx, now) = (&test.ctx, Timestamp::now());
        count_running(&ctx.stores);
        let decided = decide_with_forecast(&group, &view, &ctx.stores, &ctx.planner, now).await.expect("a Namespace");
        let RevisionDecision::Switch(switch) = decided.choice else { panic!("its wave is open") };
        assert!(confirm(&group, &switch, ctx).is_some(), "nothing has changed");
        let mut paused = view.clone();
        paused.orders.paused = true;
        let mut waits = view.clone();
        waits.status.waves.clear();
        for stopped in [Some(Arc::new(paused)), Some(Arc::new(waits)), None] {
            ctx.stores.rollout.set_view(stopped);
            assert!(confirm(&group, &switch, ctx).is_none());
        }
    }

    /// The definition of BoundariesRevision, or the permission to read it, is missing. Groups must neither stop nor
    /// switch before their turn.
    #[test]
    fn groups_keep_their_revision_while_revisions_cannot_be_read() {
        let last_good = || BoundariesSource::LastKnownGood("the definition is missing".into());
        let is_planned = |source: BoundariesSource| matches!(source, BoundariesSource::LastKnownGood(_));
        assert!(is_planned(planned_with(Some("good"), last_good(), false)));
        assert!(is_planned(planned_with(None, last_good(), false)), "a new group");
        assert!(is_planned(planned_with(Some("other"), last_good(), true)), "a deletion");
        let BoundariesSource::RevisionMissing(why) = planned_with(Some("other"), last_good(), false) else {
            panic!("the group would take the last good revision outside of its wave");
        };
        assert!(why.contains("the definition is missing"), "{why}");
        let live = planned_with(Some("other"), BoundariesSource::Live, false);
        assert!(matches!(live, BoundariesSource::Live), "a reconcile does not come so far");
    }

    /// A wave must not soak, nor pass, because a group was Ready before it ran the revision, or with steps that are left.
    #[test]
    fn group_is_done_after_a_pass_with_its_revision_that_had_nothing_to_do() {
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        let converged = || Plan {
            outcome: Outcome::Converged,
            ..blocked_plan(&group_id(&group), StalledReason::InvalidSpec, String::new())
        };
        let uncordon = NodeStep::UncordonNode { node: "n".into(), reason: UncordonReason::NoLongerReplaced };
        let step = PlannedStep { step: uncordon.into(), reasons: vec![], is_retry: false, is_optional: false };
        let plans = [
            ("r2", converged(), true),
            ("r1", converged(), false),
            ("r2", Plan { steps: vec![step], ..converged() }, false),
            ("r2", blocked_plan(&group_id(&group), StalledReason::InvalidSpec, String::new()), false),
        ];
        for is_settled in [false, true] {
            let rollout = RolloutRecord {
                settled: is_settled.then(|| "2026-01-01T00:00:00Z".to_owned()),
                ..RolloutRecord::default()
            };
            let boundaries_revision = Some("r2".to_owned());
            let status =
                InstanceGroupStatus { boundaries_revision, rollout: Some(rollout), ..InstanceGroupStatus::default() };
            group.status = Some(status);
            for (revision, plan, settles) in plans.clone() {
                let summary = BoundariesSummary { revision: revision.to_owned(), ..BoundariesSummary::default() };
                let outcome = plan.outcome.clone();
                let mut planned = Planning {
                    plan,
                    boundaries: Some(summary),
                    failure_reason: None,
                    snapshot: None,
                    denied_read: None,
                };
                record_completion(&group, &mut planned, Timestamp::UNIX_EPOCH);
                let record = planned.plan.status_update.fields.get("rollout");
                assert_eq!(record.is_some(), settles && !is_settled, "{revision} {outcome:?}");
            }
        }
    }
}
