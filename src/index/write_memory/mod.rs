//! Remembers what was written, to slow down ineffective writes: AWS or Kubernetes does not show them, or another writer
//! undoes them each time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::names::condition;
use crate::plan::write::{Dependents, last_value, last_values};
use crate::plan::{ConditionUpdate, Event, Outcome, Phase, Plan, PlannedStep, Recheck, Write};

/// After how many equal writes a difference is reported, and steps that do not depend on it continue.
const REPORTED_AFTER: u32 = 3;

/// How often a step that finds nothing to change doubles its delay.
const UNCHANGED_DOUBLINGS: u32 = 4;

/// More attributes than one group has. The oldest are forgotten first.
const CAPACITY: usize = 1024;

/// How many differences a condition lists.
const LISTED: usize = 5;

/// The last write to an attribute.
#[derive(Clone)]
struct LastWrite {
    value: u64,
    /// How often the value was written without a sign that it took effect.
    times: u32,
    /// How often since then the value was found to be there already, while a watch did not show it.
    unchanged: u32,
    at: Timestamp,
    /// What was written, what was shown, and who else may write it.
    description: String,
}

impl LastWrite {
    /// When the value may be written again. A clock that was set back since makes it due: the wait would be as long as the
    /// clock was set back.
    fn due(&self, resync: Duration, now: Timestamp) -> Option<Timestamp> {
        if now < self.at { Some(now) } else { self.at.checked_add(self.delay(resync)).ok() }
    }

    /// How long the same value is not written again: one second, doubled with each write, the resync period at most. What
    /// was found to be there doubles it a few times only: a watch that is late by seconds must not delay a repair by minutes.
    fn delay(&self, resync: Duration) -> SignedDuration {
        let doublings = (self.times + self.unchanged.min(UNCHANGED_DOUBLINGS)).saturating_sub(1).min(16);
        let delay = Duration::from_secs(1u64 << doublings);
        SignedDuration::try_from(delay.min(resync)).unwrap_or(SignedDuration::MAX)
    }
}

/// What was written to the attributes of one group.
///
/// A write is the same difference again when the attribute and the value are equal, and the spec has not changed since. A
/// write that took effect is not repeated, so it is forgotten after two resync periods: another writer may undo it within
/// that time.
#[derive(Clone, Default)]
pub(crate) struct WriteMemory {
    /// The generation of the group and the fingerprint of its merged spec. All is forgotten when one changes.
    spec: String,
    writes: BTreeMap<String, LastWrite>,
    /// Events that were published with plans, by digest.
    events: BTreeMap<u64, LastWrite>,
}

impl WriteMemory {
    /// Forgets what is no longer relevant.
    fn prune(&mut self, spec: &str, resync: Duration, now: Timestamp) {
        if self.spec != spec {
            self.writes.clear();
            self.events.clear();
            spec.clone_into(&mut self.spec);
        }
        self.forget_old(resync, now);
    }

    fn forget_old(&mut self, resync: Duration, now: Timestamp) {
        let age = SignedDuration::try_from(resync.saturating_mul(2)).unwrap_or(SignedDuration::MAX);
        self.writes.retain(|_, written| now.duration_since(written.at) < age);
        self.events.retain(|_, published| now.duration_since(published.at) < age);
    }

    /// When the write may be repeated; `None` when it is not a repetition.
    fn due(&self, write: &Write, resync: Duration, now: Timestamp) -> Option<Timestamp> {
        let written = self.writes.get(&write.attribute).filter(|written| written.value == write.value)?;
        written.due(resync, now)
    }

    /// Whether the last write of the attribute wrote the same.
    pub(crate) fn is_repetition(&self, write: &Write) -> bool {
        self.writes.get(&write.attribute).is_some_and(|written| written.value == write.value)
    }

    fn is_ineffective(&self, write: &Write) -> bool {
        let written = self.writes.get(&write.attribute);
        written.is_some_and(|written| written.value == write.value && written.times >= REPORTED_AFTER)
    }

    /// Writes that were repeated without effect.
    pub(crate) fn ineffective(&self) -> BTreeSet<Write> {
        let found = self.writes.iter().filter(|(_, written)| written.times >= REPORTED_AFTER);
        found.map(|(attribute, written)| Write { attribute: attribute.clone(), value: written.value }).collect()
    }

    /// Whether a write outside of a plan may be done now.
    pub(crate) fn is_due(&mut self, write: &Write, resync: Duration, now: Timestamp) -> bool {
        self.forget_old(resync, now);
        self.due(write, resync, now).is_none_or(|due| due <= now)
    }

    /// Takes the steps out of a plan that repeat a difference too early, and adapts when the plan is made once more. Returns
    /// whether the plan had something to write.
    pub(crate) fn suppress_repeats(&mut self, plan: &mut Plan, spec: &str, resync: Duration, now: Timestamp) -> bool {
        let had_changes = plan.steps.iter().any(|planned| !planned.step.is_status_write());
        self.prune(spec, resync, now);
        plan.events.retain(|event| self.is_event_due(event, resync, now));
        if self.writes.is_empty() {
            return had_changes;
        }
        let values = last_values(&plan.steps);
        let mut suppressed = SuppressedSteps::default();
        // A deletion ends with the finalizer, which must not go before the rest.
        let is_deleting = is_deletion(&plan.outcome);
        let (mut steps_end, mut joins_end) = (false, false);
        for mut planned in std::mem::take(&mut plan.steps) {
            let writes: Vec<_> = planned.writes().into_iter().map(|write| last_value(write, &values)).collect();
            let dues: Option<Vec<_>> = writes.iter().map(|write| self.due(write, resync, now)).collect();
            let due = dues.unwrap_or_default().into_iter().min();
            let is_ineffective = due.is_some() && writes.iter().all(|write| self.is_ineffective(write));
            if due.is_some_and(|due| due > now) {
                suppressed.add(&planned, due, is_ineffective);
                steps_end |= is_deleting || planned.dependents() == Dependents::LaterSteps;
                joins_end |= planned.dependents() == Dependents::LaterJoins;
            } else if !(steps_end || joins_end && planned.needs_join()) {
                planned.is_retry = is_ineffective;
                if is_ineffective {
                    suppressed.add(&planned, self.due_after(&writes, resync, now), true);
                } else {
                    suppressed.has_changes |= !planned.step.is_status_write();
                }
                plan.steps.push(planned);
            }
        }
        suppressed.adjust_outcome(plan, steps_end, now);
        had_changes
    }

    /// When these writes are due once they are repeated now.
    fn due_after(&self, writes: &[Write], resync: Duration, now: Timestamp) -> Option<Timestamp> {
        let repeated = writes.iter().filter_map(|write| self.writes.get(&write.attribute));
        let delays = repeated.map(|written| LastWrite { times: written.times + 1, ..written.clone() }.delay(resync));
        now.checked_add(delays.min()?).ok()
    }

    /// Records steps that were applied.
    pub(crate) fn record<'a>(&mut self, steps: impl Iterator<Item = &'a PlannedStep> + Clone, now: Timestamp) {
        let values = last_values(steps.clone());
        for planned in steps {
            for write in planned.writes() {
                if values.get(&write.attribute) == Some(&write.value) {
                    self.record_write(write, || planned.describe_repetition(), now);
                }
            }
        }
    }

    /// Records a step that found nothing to change. It is delayed like a repeated write, and never counts as one.
    pub(crate) fn record_unchanged(&mut self, planned: &PlannedStep, now: Timestamp) {
        for Write { attribute, value } in planned.writes() {
            let before = self.writes.get(&attribute).filter(|before| before.value == value).cloned();
            let (times, unchanged, description) =
                before.map_or((0, 0, String::new()), |before| (before.times, before.unchanged, before.description));
            let unchanged = unchanged.saturating_add(1);
            self.insert(attribute, LastWrite { value, times, unchanged, at: now, description });
        }
    }

    /// Forgets the oldest attribute if there are too many.
    fn insert(&mut self, attribute: String, write: LastWrite) {
        if self.writes.len() >= CAPACITY && !self.writes.contains_key(&attribute) {
            let oldest = self.writes.iter().min_by_key(|(_, written)| written.at).map(|(key, _)| key.clone());
            oldest.map(|key| self.writes.remove(&key));
        }
        self.writes.insert(attribute, write);
    }

    /// Whether an event of a plan may be published now. A step that is delayed or repeated is planned with its event
    /// each time.
    fn is_event_due(&self, event: &Event, resync: Duration, now: Timestamp) -> bool {
        let published = self.events.get(&event_digest(event));
        published.is_none_or(|published| published.due(resync, now).is_some_and(|due| due <= now))
    }

    /// Records the events that were published with a plan.
    pub(crate) fn record_events(&mut self, events: &[Event], now: Timestamp) {
        for event in events {
            let digest = event_digest(event);
            let times = self.events.get(&digest).map_or(1, |before| before.times.saturating_add(1));
            if self.events.len() >= CAPACITY {
                self.events.clear();
            }
            self.events
                .insert(digest, LastWrite { value: digest, times, unchanged: 0, at: now, description: String::new() });
        }
    }

    /// Records one write. Returns whether it was repeated without effect so often that it is reported now.
    pub(crate) fn record_write(&mut self, write: Write, description: impl Fn() -> String, now: Timestamp) -> bool {
        let before = self.writes.get(&write.attribute).filter(|before| before.value == write.value);
        let times = before.map_or(1, |before| before.times.saturating_add(1));
        // A description is only needed once there is a repetition.
        let description = if times > 1 { description() } else { String::new() };
        self.insert(write.attribute, LastWrite { value: write.value, times, unchanged: 0, at: now, description });
        times == REPORTED_AFTER
    }

    /// The condition about writes without effect; `has_changes`: the plan still has something to write. `None` keeps it.
    pub(crate) fn condition(&self, has_changes: bool) -> Option<ConditionUpdate> {
        let ineffective = self.writes.values().filter(|written| written.times >= REPORTED_AFTER);
        let descriptions: BTreeSet<_> = ineffective.map(|written| written.description.as_str()).collect();
        let status = !descriptions.is_empty();
        if !status && has_changes {
            return None;
        }
        let mut listed: Vec<_> = descriptions.iter().take(LISTED).map(|text| (*text).to_owned()).collect();
        if descriptions.len() > LISTED {
            listed.push(format!("and {} more", descriptions.len() - LISTED));
        }
        let message = match status {
            true => format!("{}; tries continue at longer intervals, up to the resync period", listed.join("; ")),
            false => String::new(),
        };
        let reason = if status { "WrittenRepeatedly" } else { "WritesTakeEffect" };
        Some(ConditionUpdate { condition_type: condition::WRITES_INEFFECTIVE, status, reason: reason.into(), message })
    }
}

fn event_digest(event: &Event) -> u64 {
    Write::new("event", "", &(&event.reason, &event.message)).value
}

fn is_deletion(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Deleted
            | Outcome::Progressing { phase: Phase::Deleting, .. }
            | Outcome::Blocked { is_deleting: true, .. }
    )
}

/// What was delayed of a plan.
#[derive(Default)]
struct SuppressedSteps {
    /// When the first step is due.
    due: Option<Timestamp>,
    /// Some steps have not been repeated often enough to continue without them, or others depend on them.
    is_awaited: bool,
    /// The rest of the plan writes something that is not a repetition.
    has_changes: bool,
}

impl SuppressedSteps {
    fn add(&mut self, planned: &PlannedStep, due: Option<Timestamp>, is_ineffective: bool) {
        self.due = self.due.into_iter().chain(due).min();
        self.is_awaited |= !is_ineffective || planned.dependents() != Dependents::Nothing;
    }

    /// Adapts the outcome when no other step is left. The plan waits, or the group has converged except for the
    /// ineffective writes.
    fn adjust_outcome(&self, plan: &mut Plan, steps_end: bool, now: Timestamp) {
        let Some(due) = self.due else { return };
        plan.recheck_at = Some(plan.recheck_at.map_or(due, |earlier| earlier.min(due)));
        let waiting = |phase| Outcome::Progressing {
            phase,
            message: "waiting for AWS or the API server to show what the controller wrote".into(),
            recheck: Recheck::After(due.duration_since(now).max(SignedDuration::from_millis(20))),
        };
        match &plan.outcome {
            Outcome::Deleted if steps_end => plan.outcome = waiting(Phase::Deleting),
            _ if self.has_changes => {}
            Outcome::Progressing { phase: Phase::Modifying, recheck: Recheck::Immediately, .. } if !self.is_awaited => {
                plan.outcome = Outcome::Converged;
            }
            Outcome::Progressing { phase, recheck: Recheck::Immediately, .. } => plan.outcome = waiting(*phase),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
