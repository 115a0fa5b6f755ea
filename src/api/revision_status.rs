//! Orders of users about the rollout of a revision of the boundaries, and its status.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions::Condition;
use super::fields::{lenient, lenient_list};

/// Orders of people about the rollout of this revision, given by `instance-manager rollout` or `kubectl patch`. The
/// controller never writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutOrders {
    /// If true, no group takes the revision, and no node is replaced for it.
    /// Default: false. Set by: users who may patch BoundariesRevisions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// If true, all groups return to the revision that they came from.
    /// Default: false. Set by: users who may patch BoundariesRevisions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub aborted: bool,
    /// If true, the revision is urgent in this cluster: waves, soaks, windows, freezes, deferrals, approvals and the
    /// delay do not apply to it. A pause, a halt, locks, atOnce and budgets do.
    /// Default: false. Set by: users who may patch BoundariesRevisions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub urgent: bool,
    /// An admin approved the waves with these names; `*` stands for all.
    /// Default: none. Set by: users who may patch BoundariesRevisions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub approved: Vec<String>,
    /// The waves with these names open without an approval or a delay, and the following waves do not wait for them;
    /// `*` stands for all.
    /// Default: none. Set by: users who may patch BoundariesRevisions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub skipped: Vec<String>,
    /// These groups, as NAMESPACE/NAME, do not take the revision.
    /// Default: none. Set by: users who may patch BoundariesRevisions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub without: Vec<String>,
    /// A larger number ends a halt, and lets groups on which the revision failed take it again.
    /// Default: 0. Set by: users who may patch BoundariesRevisions.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub retries: i64,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The controller writes the progress of the rollout of this revision here; it is absent without the key `rollout`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BoundariesRevisionStatus {
    /// The rollout is in this phase: Assessing, Rolling, Halted, Returning, Complete, Aborted or Superseded.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub phase: Option<RolloutPhase>,
    /// The BoundariesRevision with this name was complete before, and groups return to it.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub stable: Option<String>,
    /// If true, groups take the revision without waves: it is the first one, or it has the content that was complete
    /// before.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub without_waves: Option<bool>,
    /// The rollout began at this time, in RFC 3339.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub begun: Option<String>,
    /// The controller last processed this value of spec.orders.retries.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub retries: Option<i64>,
    /// The controller counts the groups here by what the revision means for them.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub groups: Option<RolloutCounts>,
    /// The list shows the waves of the rollout, in order.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub waves: Vec<WaveStatus>,
    /// The rollout waits for these groups, at most 10, with the reason of each. They are groups of open waves that are
    /// not done, and groups that the controller could not assess yet. Those that do not continue by themselves come
    /// first.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<LaggingGroup>,
    /// The rollout waits for this many more groups than waitsFor lists.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "is_zero")]
    pub waits_for_more: i64,
    /// These groups, at most 50, do not have the revision although their wave is open or passed, with the reason of
    /// each.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<LaggingGroup>,
    /// These groups, at most 50, have made no progress for a quarter of the policy's patience or longer. The next
    /// leader continues to count from there.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub slow: Vec<SlowGroup>,
    /// The map gives the AMI IDs of image aliases that groups first met under this revision.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, String>,
    /// The controller shows here what is used of the budget of the key `rollout`; absent unless groups wait for it.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub budget: Option<RolloutBudget>,
    /// PodDisruptionBudgets and pods block the drains of these groups of the next wave at present; the list has at most
    /// 50.
    #[serde(alias = "drainsForeseen", deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub drain_forecasts: Vec<GroupDrainForecast>,
    /// The list shows the checks of the key `rollout` while the rollout is under way.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckStatus>,
    /// The controller sets the conditions Progressing, Halted and Complete.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The rollout is in this phase: Assessing, Rolling, Halted, Returning, Complete, Aborted or Superseded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::Display)]
pub enum RolloutPhase {
    /// The controller finds out which groups would replace nodes.
    Assessing,
    /// Groups take the revision, wave by wave.
    Rolling,
    /// More groups failed than a wave allows: no further group takes the revision.
    Halted,
    /// All groups return to the revision that they came from.
    Returning,
    /// All waves have passed.
    Complete,
    /// All groups have gone back; their nodes are still being replaced.
    Aborted,
    /// A newer revision came before this one was complete.
    Superseded,
}

impl RolloutPhase {
    /// Whether the rollout, or the return from it, has begun and not ended.
    pub(crate) fn is_under_way(self) -> bool {
        match self {
            Self::Assessing | Self::Rolling | Self::Halted | Self::Returning => true,
            Self::Complete | Self::Aborted | Self::Superseded => false,
        }
    }

    /// Whether groups replace nodes in this phase. After the end, those do that were deferred or locked, and those that
    /// return.
    pub(crate) fn replaces_nodes(self) -> bool {
        match self {
            Self::Rolling | Self::Returning | Self::Complete | Self::Aborted => true,
            Self::Assessing | Self::Halted | Self::Superseded => false,
        }
    }
}

/// Number of groups by what the revision means for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutCounts {
    /// This many groups have nodes that must be replaced.
    #[serde(deserialize_with = "lenient")]
    pub affected: i64,
    /// This many affected groups run the revision on all their nodes.
    #[serde(deserialize_with = "lenient")]
    pub done: i64,
    /// The revision failed on this many affected groups, or they cannot take it.
    #[serde(deserialize_with = "lenient")]
    pub failed: i64,
    /// The rollout does not wait for this many affected groups: they are locked, left out by an order, or without
    /// progress.
    #[serde(deserialize_with = "lenient")]
    pub held: i64,
    /// The revision changes something in this many groups, but none of their nodes.
    #[serde(deserialize_with = "lenient")]
    pub in_place: i64,
    /// This many groups of inPlace switch to another revision now, or have nodes that are replaced outside of the
    /// waves, for example by a return.
    #[serde(deserialize_with = "lenient")]
    pub moving: i64,
    /// The revision changes nothing in this many groups.
    #[serde(deserialize_with = "lenient")]
    pub untouched: i64,
    /// This many nodes have to be replaced, as far as it is known.
    #[serde(deserialize_with = "lenient")]
    pub nodes: i64,
}

/// A group that has made no progress for some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SlowGroup {
    /// The entry is about the group with this name, as NAMESPACE/NAME.
    pub group: String,
    /// The group switched to its revision at this time, as in the status of the group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The group is about to switch to this revision, and its status does not record it yet.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub switches_to: Option<String>,
    /// The group had replaced this many nodes at that time.
    #[serde(deserialize_with = "lenient")]
    pub updated: i64,
    /// This many quarters of the patience have passed without progress, from 1 to 4.
    #[serde(deserialize_with = "lenient")]
    pub quarters: i64,
}

/// The usage of the budget of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutBudget {
    /// The list shows each limit of the budget with its usage.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<BudgetLimit>,
    /// These groups have the most unavailable nodes, whatever the cause.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<BudgetUser>,
    /// These groups would replace more nodes at once than the limit, and wait until no other node is unavailable.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub oversized: Vec<BudgetUser>,
}

/// The usage of one limit of the budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetLimit {
    /// The limit is about nodes, surge, or zone and the name of a zone.
    pub of: String,
    /// This many nodes count against the limit: unavailable ones, or those of a surge.
    #[serde(deserialize_with = "lenient")]
    pub used: i64,
    /// The budget allows at most this many such nodes.
    #[serde(deserialize_with = "lenient")]
    pub limit: i64,
}

/// A group that uses, or waits for, the budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetUser {
    /// The entry is about the group with this name, as NAMESPACE/NAME.
    pub group: String,
    /// The group has this many unavailable nodes, or replaces this many at once.
    #[serde(deserialize_with = "lenient")]
    pub nodes: i64,
}

/// What Prometheus answers to a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckStatus {
    /// The check has this name in the key `rollout`.
    pub name: String,
    /// The check is in this state: Ok, Failing or Unknown.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub state: Option<CheckState>,
    /// The controller first found the check in this state at this time, in RFC 3339.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The text explains why the check is not Ok.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The check is in this state: Ok, Failing or Unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, strum::Display)]
pub enum CheckState {
    /// The query has no result.
    Ok,
    /// The query has a result.
    Failing,
    /// There is no complete answer, so that no wave opens or passes.
    #[default]
    Unknown,
}

/// State of a wave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WaveStatus {
    /// The wave has this name in the key `rollout`.
    pub name: String,
    /// The wave is in this state: Waiting, Open, Soaking or Passed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub state: Option<WaveState>,
    /// In a wave with `percent`, the groups whose hash of the UID is at most this number belong to the wave.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub cut: Option<i64>,
    /// The controller derived the number in cut from this percentage.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub percent: Option<i64>,
    /// The wave has this many affected groups.
    #[serde(deserialize_with = "lenient")]
    pub groups: i64,
    /// This many groups of the wave run the revision on all their nodes.
    #[serde(deserialize_with = "lenient")]
    pub done: i64,
    /// The revision failed on this many groups of the wave, or they cannot take it.
    #[serde(deserialize_with = "lenient")]
    pub failed: i64,
    /// The map counts, by reason, the groups of the wave that wait or whose replacement of nodes is blocked.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub waiting: BTreeMap<String, i64>,
    /// The wave opened at this time, in RFC 3339; absent until then.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub opened: Option<String>,
    /// The last group of the wave was done at this time, in RFC 3339.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub settled: Option<String>,
    /// The wave passed at this time, in RFC 3339; absent until then.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub passed: Option<String>,
    /// The wave waits for what this text names: an approval, a delay, or a time at which nodes may be replaced.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The wave is in this state: Waiting, Open, Soaking or Passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::Display)]
pub enum WaveState {
    /// A wave before it has not passed.
    #[default]
    Waiting,
    /// Its groups take the revision.
    Open,
    /// All its groups are done, and the soak has not ended.
    Soaking,
    /// The next wave does not wait for it.
    Passed,
}

/// A group whose turn comes next and whose drains pods will hold up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupDrainForecast {
    /// The entry is about the group with this name, as NAMESPACE/NAME.
    pub group: String,
    /// The text names the owner of the pods, the budget and the remedy.
    pub message: String,
}

/// A group that does not have the revision, or not on all its nodes, with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LaggingGroup {
    /// The entry is about the group with this name, as NAMESPACE/NAME.
    pub group: String,
    /// The group has the BoundariesRevision with this name; absent when it is unknown.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The controller gives the reason for the delay in one CamelCase word, for programs.
    pub reason: String,
    /// The controller explains the reason in a sentence, for people.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An admin's command may be newer than the controller of the cluster.
    #[test]
    fn drain_forecasts_of_an_earlier_release_are_read() {
        let old = serde_json::json!({"phase": "Rolling", "drainsForeseen": [{"group": "a/db", "message": "redis"}]});
        let status: BoundariesRevisionStatus = serde_json::from_value(old).expect("a status");
        let groups: Vec<_> = status.drain_forecasts.iter().map(|drain| drain.group.as_str()).collect();
        assert_eq!(groups, ["a/db"]);
    }
}
