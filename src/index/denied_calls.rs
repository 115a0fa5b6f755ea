//! Missing permissions. All groups use the controller's own account, so a call that is denied to one group is most
//! likely denied to all. Groups whose call is denied take turns trying it, and when one succeeds, all others try at
//! once.

use std::collections::{BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use crate::aws::AwsError;
use crate::k8s::KubeError;

/// How many groups try a denied call in one period. Up to this number, each group tries in each period: a permission
/// may be missing for the resources of one group alone.
///
/// At 50 seconds, these are two refused calls a second for each operation that is denied.
const TRIES_PER_PERIOD: usize = 100;

/// A call that was denied, with the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeniedCall {
    /// AWS denied it.
    Aws(AwsError),
    /// The API server denied it.
    Kube {
        /// As in a Role.
        verb: &'static str,
        /// The plural of the resource, with the subresource.
        resource: String,
        /// The API server's message.
        message: String,
    },
}

impl DeniedCall {
    /// The call, if the API server denied it.
    pub(crate) fn of_kube(error: &KubeError) -> Option<Self> {
        let KubeError::Forbidden { verb, resource, message, .. } = error else { return None };
        Some(Self::Kube { verb, resource: resource.to_string(), message: message.clone() })
    }

    /// What the groups share: the operation, whatever it was to be done to.
    fn operation(&self) -> String {
        match self {
            Self::Aws(error) => format!("{} {}", error.service, error.operation),
            Self::Kube { verb, resource, .. } => format!("{verb} {resource}"),
        }
    }
}

/// What a group did when a call was denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeniedAttempt {
    /// What the group requests. When that changes, the group does not wait for its turn.
    pub spec: String,
    /// The name of the step; `None` for a read before the plan.
    pub step: Option<&'static str>,
}

/// The groups that wait for a permission.
#[derive(Default)]
pub(crate) struct DeniedCalls {
    /// By group, the calls that it waits for. Each is of another step.
    groups: HashMap<String, Vec<Waiting>>,
    operations: HashMap<String, DeniedOperation>,
}

struct Waiting {
    call: DeniedCall,
    attempt: DeniedAttempt,
    /// When the group was given its turn.
    given_at: Timestamp,
    retry_at: Timestamp,
}

impl Waiting {
    /// Whether the turn is still to come. If the clock was set back past the time at which the group got its turn, the
    /// wait ends. Otherwise it would last longer by that difference.
    fn is_turn_pending(&self, now: Timestamp) -> bool {
        self.given_at <= now && now < self.retry_at
    }
}

/// A denied operation.
struct DeniedOperation {
    /// How many groups wait for it.
    waiting: usize,
    /// The last turn that a group was given.
    last_retry: Timestamp,
    /// When a group was given a turn the last time.
    given_at: Timestamp,
}

impl DeniedCalls {
    /// Whether other groups wait for the permission to make a call.
    pub(crate) fn is_known(&self, call: &DeniedCall) -> bool {
        self.operations.contains_key(&call.operation())
    }

    /// Gives a group its turn to try a denied call again, at least a `period` from now. A group that waits keeps its
    /// turn.
    pub(crate) fn record(
        &mut self,
        group: &str,
        call: DeniedCall,
        attempt: DeniedAttempt,
        period: SignedDuration,
        now: Timestamp,
    ) {
        let name = call.operation();
        let waiting = self.groups.entry(group.to_owned()).or_default();
        if waiting.iter().any(|w| w.call.operation() == name && w.attempt == attempt && w.is_turn_pending(now)) {
            return;
        }
        // The same step waits once, and a group that requests something else does not wait for what it requested
        // before.
        let ended: Vec<_> =
            waiting.extract_if(.., |w| w.attempt.spec != attempt.spec || w.attempt.step == attempt.step).collect();
        ended.iter().for_each(|waiting| self.forget_if_unused(&waiting.call));
        let operation =
            self.operations.entry(name).or_insert(DeniedOperation { waiting: 0, last_retry: now, given_at: now });
        if now < operation.given_at {
            // The clock was set back.
            operation.last_retry = now;
        }
        operation.given_at = now;
        operation.waiting += 1;
        let next = now.saturating_add(period).unwrap_or(now);
        let retry_at = if operation.waiting <= TRIES_PER_PERIOD {
            next
        } else {
            let spacing = period / i32::try_from(TRIES_PER_PERIOD).unwrap_or(1);
            operation.last_retry.saturating_add(spacing).unwrap_or(next).max(next)
        };
        operation.last_retry = operation.last_retry.max(retry_at);
        self.groups.entry(group.to_owned()).or_default().push(Waiting { call, attempt, given_at: now, retry_at });
    }

    /// Ends the waits of a group whose pass got through all steps but those in `still_denied`. Returns the groups that
    /// waited for the same permissions: they should try now.
    pub(crate) fn end(&mut self, group: &str, still_denied: &[&'static str]) -> Vec<String> {
        let Some(waiting) = self.groups.get_mut(group) else { return Vec::new() };
        let is_over = |w: &mut Waiting| w.attempt.step.is_none_or(|step| !still_denied.contains(&step));
        let ended: Vec<_> = waiting.extract_if(.., is_over).collect();
        let granted: BTreeSet<_> = ended.iter().map(|waiting| waiting.call.operation()).collect();
        ended.iter().for_each(|waiting| self.forget_if_unused(&waiting.call));
        let mut unblocked_groups = Vec::new();
        for (key, waiting) in &mut self.groups {
            let ended: Vec<_> = waiting.extract_if(.., |w| granted.contains(&w.call.operation())).collect();
            if !ended.is_empty() && key != group {
                unblocked_groups.push(key.clone());
            }
        }
        self.operations.retain(|operation, _| !granted.contains(operation));
        self.groups.retain(|_, waiting| !waiting.is_empty());
        unblocked_groups
    }

    /// Lets a group try at once, because a user requested it, or forgets one that is gone.
    pub(crate) fn remove(&mut self, group: &str) {
        let waiting = self.groups.remove(group).unwrap_or_default();
        waiting.iter().for_each(|waiting| self.forget_if_unused(&waiting.call));
    }

    /// One group less waits for the permission to make a call.
    fn forget_if_unused(&mut self, call: &DeniedCall) {
        let name = call.operation();
        if let Some(operation) = self.operations.get_mut(&name) {
            operation.waiting = operation.waiting.saturating_sub(1);
            if operation.waiting == 0 {
                self.operations.remove(&name);
            }
        }
    }

    /// The denied call of an attempt that is not made before the group's turn.
    pub(crate) fn call_in_backoff(&self, group: &str, attempt: &DeniedAttempt, now: Timestamp) -> Option<&DeniedCall> {
        let waiting = self.groups.get(group)?.iter().find(|w| w.attempt == *attempt && w.is_turn_pending(now))?;
        Some(&waiting.call)
    }

    /// How long a group waits for its next turn; `None` when it does not wait. A turn that has passed counts only if
    /// there is no other. An earlier step may fail in each pass, and the call is then never tried.
    pub(crate) fn time_to_retry(&self, group: &str, now: Timestamp) -> Option<SignedDuration> {
        let waiting = self.groups.get(group)?;
        let next = waiting.iter().filter(|w| w.is_turn_pending(now)).map(|w| w.retry_at.duration_since(now)).min();
        next.or((!waiting.is_empty()).then_some(SignedDuration::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: SignedDuration = SignedDuration::from_secs(50);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
    }

    fn call(operation: &'static str) -> DeniedCall {
        DeniedCall::Aws(AwsError::from_response("AutoScaling", operation, "AccessDenied", "no", 403))
    }

    fn attempt(spec: &str) -> DeniedAttempt {
        DeniedAttempt { spec: spec.into(), step: Some("UpdateGroup") }
    }

    fn deny(denied_calls: &mut DeniedCalls, group: &str, seconds: i64) {
        denied_calls.record(group, call("UpdateAutoScalingGroup"), attempt("1"), PERIOD, at(seconds));
    }

    /// Plays `groups` groups whose call stays denied, and returns the seconds of their tries.
    fn play(denied_calls: &mut DeniedCalls, groups: usize, until: i64) -> Vec<i64> {
        let keys: Vec<_> = (0..groups).map(|index| format!("team/g{index}")).collect();
        let mut tries = Vec::new();
        for second in 0..until {
            for key in &keys {
                if denied_calls.call_in_backoff(key, &attempt("1"), at(second)).is_none() {
                    deny(denied_calls, key, second);
                    tries.push(second);
                }
            }
        }
        tries
    }

    /// Each of 10,000 groups tried every 50 seconds: 200 refused calls a second.
    #[test]
    fn tries_of_many_groups_cost_as_much_as_those_of_a_few() {
        let tries = play(&mut DeniedCalls::default(), 1000, 3000);
        let first = tries.iter().filter(|second| **second == 0).count();
        assert_eq!(first, 1000, "each group learns once that it is denied");
        let periods = 3000 / 50;
        assert!((periods..=TRIES_PER_PERIOD * periods).contains(&(tries.len() - first)), "{tries:?}");
        assert!(tries.iter().any(|second| (50..=60).contains(second)), "the first one tries within a minute");
    }

    /// Groups take turns for each operation separately. A group that lacks one permission must not wait for groups that
    /// lack others.
    #[test]
    fn groups_that_lack_different_rights_do_not_wait_for_each_other() {
        let mut denied_calls = DeniedCalls::default();
        let operations: Vec<&'static str> = (0..300).map(|n| &*format!("Operation{n}").leak()).collect();
        let mut tries = vec![0; operations.len()];
        for second in 0..PERIOD.as_secs() * 3 {
            for (n, operation) in operations.iter().enumerate() {
                let key = format!("team/g{n}");
                if denied_calls.call_in_backoff(&key, &attempt("1"), at(second)).is_none() {
                    denied_calls.record(&key, call(operation), attempt("1"), PERIOD, at(second));
                    tries[n] += 1;
                }
            }
        }
        assert_eq!(tries, vec![3; operations.len()], "each tries once a period");
    }

    /// With policies for single roles, the success of one group proves nothing about another. Then a group waits for as
    /// many periods as there are hundreds of groups.
    #[test]
    fn each_of_many_groups_gets_its_turn() {
        let mut denied_calls = DeniedCalls::default();
        let keys: Vec<_> = (0..350).map(|index| format!("team/g{index}")).collect();
        let mut last = vec![0; keys.len()];
        for second in 0..PERIOD.as_secs() * 20 {
            for (key, last) in keys.iter().zip(&mut last) {
                if denied_calls.call_in_backoff(key, &attempt("1"), at(second)).is_none() {
                    assert!(second - *last <= PERIOD.as_secs() * 4, "{key} waited from {last} to {second}");
                    (*last, _) = (second, deny(&mut denied_calls, key, second));
                }
            }
        }
        assert!(last.iter().all(|last| *last > PERIOD.as_secs() * 16), "{last:?}");
    }

    /// A permission may be missing for the role of one group alone.
    #[test]
    fn a_few_groups_try_once_a_minute_each() {
        let tries = play(&mut DeniedCalls::default(), TRIES_PER_PERIOD, 160);
        assert_eq!(tries.len(), TRIES_PER_PERIOD * 4, "{tries:?}");
    }

    #[test]
    fn success_of_one_group_wakes_those_that_wait_for_the_same_permission() {
        let mut denied_calls = DeniedCalls::default();
        ["team/a", "team/b", "team/c"].iter().for_each(|key| deny(&mut denied_calls, key, 0));
        denied_calls.record("team/other", call("DeleteTags"), attempt("1"), PERIOD, at(0));
        assert_eq!(denied_calls.end("team/unconcerned", &[]), [""; 0]);
        let mut unblocked_groups = denied_calls.end("team/a", &[]);
        unblocked_groups.sort();
        assert_eq!(unblocked_groups, ["team/b", "team/c"]);
        assert!(denied_calls.call_in_backoff("team/b", &attempt("1"), at(1)).is_none(), "it tries at once");
        assert!(!denied_calls.is_known(&call("UpdateAutoScalingGroup")) && denied_calls.is_known(&call("DeleteTags")));
        assert!(denied_calls.call_in_backoff("team/other", &attempt("1"), at(1)).is_some());
    }

    #[test]
    fn group_that_asks_for_something_else_does_not_wait() {
        let mut denied_calls = DeniedCalls::default();
        deny(&mut denied_calls, "team/a", 0);
        assert_eq!(
            denied_calls.call_in_backoff("team/a", &attempt("1"), at(49)),
            Some(&call("UpdateAutoScalingGroup"))
        );
        assert_eq!(
            denied_calls.call_in_backoff("team/a", &attempt("2"), at(1)),
            None,
            "its role was corrected, for example"
        );
        assert_eq!(denied_calls.call_in_backoff("team/a", &DeniedAttempt { step: None, ..attempt("1") }, at(1)), None);
        assert_eq!(denied_calls.call_in_backoff("team/a", &attempt("1"), at(50)), None, "it is its turn");
        assert_eq!(denied_calls.time_to_retry("team/a", at(20)), Some(SignedDuration::from_secs(30)));
        assert_eq!(denied_calls.time_to_retry("team/b", at(20)), None);
        deny(&mut denied_calls, "team/a", 20);
        assert_eq!(
            denied_calls.time_to_retry("team/a", at(20)),
            Some(SignedDuration::from_secs(30)),
            "it keeps its turn"
        );
    }

    /// Time synchronization may correct a clock by hours. The groups would neither try nor be reconciled for as long.
    #[test]
    fn clock_that_is_set_back_delays_no_group() {
        let mut denied_calls = DeniedCalls::default();
        let keys: Vec<_> = (0..TRIES_PER_PERIOD * 2).map(|index| format!("team/g{index}")).collect();
        keys.iter().for_each(|key| deny(&mut denied_calls, key, 0));
        let hour_before = |second: i64| at(second - 3600);
        for key in &keys {
            assert_eq!(denied_calls.time_to_retry(key, hour_before(0)), Some(SignedDuration::ZERO));
            assert_eq!(denied_calls.call_in_backoff(key, &attempt("1"), hour_before(0)), None);
            deny(&mut denied_calls, key, -3600);
            let wait = denied_calls.time_to_retry(key, hour_before(0)).expect("it waits again");
            assert!((PERIOD..=PERIOD * 3).contains(&wait), "{key} waits {wait:#}");
        }
    }

    /// A group that lacks two permissions would try the one while it waits for the other, as often as it is reconciled.
    #[test]
    fn each_denied_step_of_a_group_waits_for_its_turn() {
        let mut denied_calls = DeniedCalls::default();
        let of = |step| DeniedAttempt { spec: "1".into(), step: Some(step) };
        denied_calls.record("team/a", call("CreateOrUpdateTags"), of("PutTags"), PERIOD, at(0));
        denied_calls.record("team/a", call("EnableMetricsCollection"), of("EnableMetrics"), PERIOD, at(10));
        denied_calls.record("team/b", call("CreateOrUpdateTags"), of("PutTags"), PERIOD, at(10));
        let is_in_backoff =
            |denied_calls: &DeniedCalls, step| denied_calls.call_in_backoff("team/a", &of(step), at(20)).is_some();
        assert!(is_in_backoff(&denied_calls, "PutTags") && is_in_backoff(&denied_calls, "EnableMetrics"));
        assert_eq!(
            denied_calls.time_to_retry("team/a", at(20)),
            Some(SignedDuration::from_secs(30)),
            "the earlier one"
        );
        assert_eq!(denied_calls.end("team/a", &["EnableMetrics"]), ["team/b"], "the tags are allowed again");
        assert!(!is_in_backoff(&denied_calls, "PutTags") && is_in_backoff(&denied_calls, "EnableMetrics"));
        denied_calls.record(
            "team/a",
            call("CreateOrUpdateTags"),
            DeniedAttempt { spec: "2".into(), ..of("PutTags") },
            PERIOD,
            at(21),
        );
        assert!(!is_in_backoff(&denied_calls, "EnableMetrics"), "the spec has changed");
    }

    /// A deleted group must not keep the turn of another group.
    #[test]
    fn groups_that_are_gone_leave_nothing() {
        let mut denied_calls = DeniedCalls::default();
        deny(&mut denied_calls, "team/a", 0);
        denied_calls.remove("team/a");
        assert!(denied_calls.groups.is_empty() && denied_calls.operations.is_empty());
    }
}
