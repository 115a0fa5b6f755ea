//! Rotations that are blocked because a call was denied, and what is known about the missing permission. Each attempt
//! of such a rotation evicts pods, so the controller checks the permission instead. Pure.

use std::collections::{BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use super::denied_calls::DeniedCall;
use crate::aws::error::iam_prefix;

/// A permission that the controller can check.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Permission {
    /// IAM simulates it for the controller's role.
    Aws {
        /// For example `autoscaling:EnterStandby`.
        action: String,
        /// The cluster of the resources.
        cluster: String,
    },
    /// The API server checks it for the controller's account.
    Kube {
        /// As in a Role.
        verb: &'static str,
        /// The plural of the resource, with the subresource.
        resource: String,
        /// `None` for an object without one.
        namespace: Option<String>,
    },
}

impl Permission {
    /// The permission for a call that was denied. `namespace` is that of the object, if it has one.
    pub(crate) fn for_call(call: &DeniedCall, cluster: &str, namespace: Option<&str>) -> Self {
        match call {
            DeniedCall::Aws(error) => Self::Aws {
                action: format!("{}:{}", iam_prefix(error.service), error.operation),
                cluster: cluster.to_owned(),
            },
            DeniedCall::Kube { verb, resource, .. } => {
                Self::Kube { verb, resource: resource.clone(), namespace: namespace.map(str::to_owned) }
            }
        }
    }
}

/// The result of a permission check by IAM or the API server. Admission, a permissions boundary or a service control
/// policy may still deny an allowed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermissionAnswer {
    Allowed,
    Denied,
    /// Denied unless a policy condition holds that the simulation request did not contain. IAM may name the conditions
    /// of every policy of the role here, also of those that do not matter to the call.
    DeniedUnlessConditions,
    /// The controller lacks the permission to check, or there was no answer.
    Unknown,
}

impl PermissionAnswer {
    /// Whether a later "allowed" is a change.
    fn is_denied(self) -> bool {
        match self {
            PermissionAnswer::Denied | PermissionAnswer::DeniedUnlessConditions => true,
            PermissionAnswer::Allowed | PermissionAnswer::Unknown => false,
        }
    }
}

/// A rotation that is blocked because a call was denied.
struct DeniedRotation {
    permission: Permission,
    /// Name of the denied step.
    step: &'static str,
    until: Timestamp,
    /// The rotation was blocked before, and no node was replaced in between.
    is_repeated: bool,
}

/// The blocked rotations, by group, and the last answer about each permission.
#[derive(Default)]
pub(crate) struct DeniedRotations {
    groups: HashMap<String, DeniedRotation>,
    answers: HashMap<Permission, (PermissionAnswer, Timestamp)>,
}

impl DeniedRotations {
    /// Records that the rotation of a group is blocked until a time.
    pub(crate) fn record(&mut self, group: &str, permission: Permission, step: &'static str, until: Timestamp) {
        let before = self.groups.get(group).filter(|rotation| rotation.permission == permission);
        let is_repeated = before.is_some_and(|rotation| rotation.is_repeated || rotation.until != until);
        self.groups.insert(group.to_owned(), DeniedRotation { permission, step, until, is_repeated });
    }

    /// Forgets a group that was deleted.
    pub(crate) fn remove(&mut self, group: &str) {
        self.groups.remove(group);
        self.forget_answers();
    }

    /// Records that steps of a group succeeded. Returns the groups that continue because of it: those blocked at the
    /// same step.
    ///
    /// Success of a group that was denied the step before is a change, and unblocks all. Success of any other group may
    /// only show that the permission is missing for some resources, so it enqueues a group only once.
    pub(crate) fn succeed(&mut self, group: &str, steps: &BTreeSet<&'static str>, now: Timestamp) -> Vec<String> {
        if self.groups.is_empty() {
            return Vec::new();
        }
        let was_denied = self.groups.get(group).is_some_and(|rotation| steps.contains(rotation.step));
        if was_denied {
            self.remove(group);
        }
        self.unblock(now, |rotation| steps.contains(rotation.step) && (was_denied || !rotation.is_repeated))
    }

    /// The last answer about a permission, if it is not older than a `period`.
    pub(crate) fn recent_answer(
        &self,
        permission: &Permission,
        period: SignedDuration,
        now: Timestamp,
    ) -> Option<PermissionAnswer> {
        let (answer, at) = self.answers.get(permission)?;
        // An answer of a clock that was ahead is not recent.
        (now.duration_since(*at).abs() < period).then_some(*answer)
    }

    /// The permissions to check now: a blocked group waits for each, and the last answer is a `period` old.
    pub(crate) fn due(&self, period: SignedDuration, now: Timestamp) -> BTreeSet<Permission> {
        let blocked = self.groups.values().filter(|rotation| now < rotation.until);
        let due = blocked.filter(|rotation| self.recent_answer(&rotation.permission, period, now).is_none());
        due.map(|rotation| rotation.permission.clone()).collect()
    }

    /// Records an answer. Returns the groups that continue because of it. Only a change from denied to allowed counts:
    /// a permission that was allowed when AWS denied the call proves nothing.
    pub(crate) fn answer(&mut self, permission: &Permission, answer: PermissionAnswer, now: Timestamp) -> Vec<String> {
        let before = self.answers.insert(permission.clone(), (answer, now)).map(|(before, _)| before);
        let Some(before) = before.filter(|before| before.is_denied()) else { return Vec::new() };
        match answer {
            PermissionAnswer::Allowed => self.unblock(now, |rotation| rotation.permission == *permission),
            // One check without an answer does not hide the change.
            PermissionAnswer::Unknown => {
                self.answers.insert(permission.clone(), (before, now));
                Vec::new()
            }
            PermissionAnswer::Denied | PermissionAnswer::DeniedUnlessConditions => Vec::new(),
        }
    }

    fn unblock(&mut self, now: Timestamp, is_concerned: impl Fn(&DeniedRotation) -> bool) -> Vec<String> {
        let blocked = self.groups.iter_mut().filter(|(_, rotation)| now < rotation.until && is_concerned(rotation));
        let mut unblocked_groups: Vec<_> =
            blocked.map(|(group, rotation)| (group.clone(), rotation.until = now).0).collect();
        unblocked_groups.sort();
        unblocked_groups
    }

    fn forget_answers(&mut self) {
        let groups = &self.groups;
        self.answers.retain(|permission, _| groups.values().any(|rotation| rotation.permission == *permission));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: SignedDuration = SignedDuration::from_secs(50);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
    }

    fn terminate() -> Permission {
        Permission::Aws { action: "autoscaling:TerminateInstanceInAutoScalingGroup".into(), cluster: "blue".into() }
    }

    fn block(rotations: &mut DeniedRotations, group: &str, until: i64) {
        rotations.record(group, terminate(), "Terminate", at(until));
    }

    fn steps() -> BTreeSet<&'static str> {
        BTreeSet::from(["Cordon", "Terminate"])
    }

    /// Time synchronization may correct a clock by hours. No permission would be checked for as long.
    #[test]
    fn clock_that_is_set_back_makes_an_answer_old() {
        let mut rotations = DeniedRotations::default();
        rotations.answer(&terminate(), PermissionAnswer::Denied, at(0));
        let answer = |second| rotations.recent_answer(&terminate(), PERIOD, at(second));
        assert_eq!((answer(0), answer(-3600)), (Some(PermissionAnswer::Denied), None));
    }

    /// The pods of a node would be evicted at each question, for a permission that a service control policy denies.
    #[test]
    fn only_a_change_from_denied_to_allowed_unblocks_a_rotation() {
        for (answers, unblocked_groups) in [
            (vec![PermissionAnswer::Allowed, PermissionAnswer::Allowed], false),
            (vec![PermissionAnswer::Unknown, PermissionAnswer::Allowed], false),
            (vec![PermissionAnswer::Denied, PermissionAnswer::Denied], false),
            (vec![PermissionAnswer::Denied, PermissionAnswer::Allowed], true),
            (vec![PermissionAnswer::Denied, PermissionAnswer::Unknown, PermissionAnswer::Allowed], true),
            (vec![PermissionAnswer::DeniedUnlessConditions, PermissionAnswer::Allowed], true),
            (
                vec![PermissionAnswer::DeniedUnlessConditions, PermissionAnswer::Unknown, PermissionAnswer::Allowed],
                true,
            ),
            (vec![PermissionAnswer::Allowed, PermissionAnswer::DeniedUnlessConditions], false),
        ] {
            let mut rotations = DeniedRotations::default();
            block(&mut rotations, "team/a", 300);
            let mut all = Vec::new();
            for (seconds, answer) in (0..).zip(&answers) {
                all.extend(rotations.answer(&terminate(), *answer, at(seconds)));
            }
            assert_eq!(all, vec!["team/a"; usize::from(unblocked_groups)], "{answers:?}");
            let is_denied = answers.last().is_some_and(|answer| answer.is_denied());
            let again = rotations.answer(&terminate(), PermissionAnswer::Allowed, at(9));
            assert_eq!(again.is_empty(), !is_denied, "a group continues once: {answers:?}");
        }
    }

    /// Thousands of groups that lack one permission cause one check.
    #[test]
    fn each_permission_is_probed_once_per_period() {
        let mut rotations = DeniedRotations::default();
        (0..1000).for_each(|number| block(&mut rotations, &format!("team/g{number}"), 300));
        assert_eq!(rotations.due(PERIOD, at(0)), BTreeSet::from([terminate()]));
        rotations.answer(&terminate(), PermissionAnswer::Denied, at(0));
        assert_eq!(rotations.due(PERIOD, at(49)), BTreeSet::new());
        assert_eq!(rotations.due(PERIOD, at(50)).len(), 1);
        assert_eq!(rotations.due(PERIOD, at(300)), BTreeSet::new(), "no group is blocked any longer");
        assert_eq!(rotations.answer(&terminate(), PermissionAnswer::Allowed, at(60)).len(), 1000);
    }

    /// A group whose resources carry a tag that the policy denies would be enqueued by each success of its neighbor.
    #[test]
    fn success_of_another_group_enqueues_a_blocked_group_once() {
        let mut rotations = DeniedRotations::default();
        ["team/a", "team/b"].iter().for_each(|group| block(&mut rotations, group, 300));
        assert_eq!(rotations.succeed("team/c", &BTreeSet::from(["Cordon"]), at(1)), [""; 0]);
        assert_eq!(rotations.succeed("team/c", &steps(), at(2)), ["team/a", "team/b"]);
        ["team/a", "team/b"].iter().for_each(|group| block(&mut rotations, group, 600));
        assert_eq!(rotations.succeed("team/c", &steps(), at(3)), [""; 0]);
        assert_eq!(
            rotations.succeed("team/b", &steps(), at(4)),
            ["team/a"],
            "it was denied before, so something changed"
        );
    }

    #[test]
    fn groups_that_are_gone_leave_nothing() {
        let mut rotations = DeniedRotations::default();
        block(&mut rotations, "team/a", 300);
        rotations.answer(&terminate(), PermissionAnswer::Denied, at(0));
        rotations.remove("team/a");
        assert!(rotations.groups.is_empty() && rotations.answers.is_empty());
    }
}
