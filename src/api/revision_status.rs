//! Orders of users about the rollout of a revision of the boundaries, and its status.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions::Condition;
use super::fields::{lenient, lenient_list};

/// What people order about the rollout of this revision, by `instance-manager rollout` or `kubectl patch`. The controller
/// never writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutOrders {
    /// Whether the rollout is paused: no group takes the revision, and no node is replaced for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Whether the revision is aborted: all groups return to the revision that they came from.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub aborted: bool,
    /// Whether the revision is urgent in this cluster: waves, soaks, windows, freezes, deferrals, approvals and the delay do
    /// not count for it. A pause, a halt, locks, atOnce and budgets do.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub urgent: bool,
    /// Names of waves that an admin approved; `*` names all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub approved: Vec<String>,
    /// Names of waves that open without an approval or a delay and that the following waves do not wait for; `*` names all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub skipped: Vec<String>,
    /// Groups that do not take this revision, as NAMESPACE/NAME.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub without: Vec<String>,
    /// A larger number ends a halt, and lets groups on which the revision failed take it again.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub retries: i64,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Progress of the rollout of this revision, written by the controller; absent without the key `rollout`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BoundariesRevisionStatus {
    /// Assessing, Rolling, Halted, Returning, Complete, Aborted or Superseded.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub phase: Option<RolloutPhase>,
    /// Name of the BoundariesRevision that was complete before, to which groups return.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub stable: Option<String>,
    /// Whether groups take it without waves: it is the first revision, or it has the content that was complete before.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub without_waves: Option<bool>,
    /// Time in RFC 3339 at which the rollout began.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub begun: Option<String>,
    /// Last value of spec.orders.retries that the controller has processed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub retries: Option<i64>,
    /// Number of groups by what the revision means for them.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub groups: Option<RolloutCounts>,
    /// The waves, in order.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub waves: Vec<WaveStatus>,
    /// The first groups that the rollout waits for now, with the reason: groups of open waves that are not done, and groups
    /// that the controller could not assess yet. Those that do not continue by themselves come first.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<LaggingGroup>,
    /// How many more groups the rollout waits for.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "is_zero")]
    pub waits_for_more: i64,
    /// The first groups that do not have the revision although their wave is open or passed, with the reason.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<LaggingGroup>,
    /// The groups that have made no progress for a quarter of the policy's patience or longer. The next leader continues to
    /// count from there.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub slow: Vec<SlowGroup>,
    /// AMI IDs of image aliases that groups first met under this revision.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, String>,
    /// What is used of the budget of the key `rollout`, while groups wait for it.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub budget: Option<RolloutBudget>,
    /// Groups of the next wave whose drains PodDisruptionBudgets and pods block at present; the first of them.
    #[serde(alias = "drainsForeseen", deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub drain_forecasts: Vec<GroupDrainForecast>,
    /// The checks of the key `rollout`, while the rollout is under way.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckStatus>,
    /// Conditions: Progressing, Halted and Complete.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// State of the rollout of a revision.
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
    /// Groups whose nodes have to be replaced.
    #[serde(deserialize_with = "lenient")]
    pub affected: i64,
    /// Affected groups all of whose nodes run the revision.
    #[serde(deserialize_with = "lenient")]
    pub done: i64,
    /// Affected groups on which it failed, or that cannot take it.
    #[serde(deserialize_with = "lenient")]
    pub failed: i64,
    /// Affected groups that the rollout does not wait for: locked, left out by an order, or without progress.
    #[serde(deserialize_with = "lenient")]
    pub held: i64,
    /// Groups for which the revision changes something, but no node.
    #[serde(deserialize_with = "lenient")]
    pub in_place: i64,
    /// Groups of inPlace that switch to another revision now, or whose nodes are replaced outside of the waves, for example by
    /// a return.
    #[serde(deserialize_with = "lenient")]
    pub moving: i64,
    /// Groups for which it changes nothing.
    #[serde(deserialize_with = "lenient")]
    pub untouched: i64,
    /// Nodes that have to be replaced, as far as it is known.
    #[serde(deserialize_with = "lenient")]
    pub nodes: i64,
}

/// A group that has made no progress for some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SlowGroup {
    /// NAMESPACE/NAME of the group.
    pub group: String,
    /// What the group has to do, as the time at which it switched, or as the switch that is not recorded yet.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// How many nodes it had replaced then.
    #[serde(deserialize_with = "lenient")]
    pub updated: i64,
    /// How many quarters of the patience have passed without progress, from 1 to 4.
    #[serde(deserialize_with = "lenient")]
    pub quarters: i64,
}

/// The usage of the budget of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutBudget {
    /// The limits of the budget.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<BudgetLimit>,
    /// The groups with most unavailable nodes, whatever the cause.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<BudgetUser>,
    /// Groups that would replace more nodes at once than the limit, and wait until no other node is unavailable.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub oversized: Vec<BudgetUser>,
}

/// The usage of one limit of the budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetLimit {
    /// What is limited: nodes, surge, or zone and the name of a zone.
    pub of: String,
    /// Number of nodes that count against the limit: unavailable ones, or those of a surge.
    #[serde(deserialize_with = "lenient")]
    pub used: i64,
    /// Largest number of such nodes.
    #[serde(deserialize_with = "lenient")]
    pub limit: i64,
}

/// A group that uses, or waits for, the budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetUser {
    /// NAMESPACE/NAME of the group.
    pub group: String,
    /// How many of its nodes are unavailable, or are replaced at once.
    #[serde(deserialize_with = "lenient")]
    pub nodes: i64,
}

/// What Prometheus answers to a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckStatus {
    /// Name of the check.
    pub name: String,
    /// Ok, Failing or Unknown.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub state: Option<CheckState>,
    /// Time in RFC 3339 at which the check was first found in this state.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Why the check is not ok.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// State of a check.
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
    /// Name of the wave.
    pub name: String,
    /// Waiting, Open, Soaking or Passed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub state: Option<WaveState>,
    /// For a wave with `percent`: the groups whose hash of the UID is at most this number belong to the wave.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub cut: Option<i64>,
    /// The percentage that this number was derived from.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub percent: Option<i64>,
    /// Affected groups of the wave.
    #[serde(deserialize_with = "lenient")]
    pub groups: i64,
    /// Those all of whose nodes run the revision.
    #[serde(deserialize_with = "lenient")]
    pub done: i64,
    /// Those on which it failed, or that cannot take it.
    #[serde(deserialize_with = "lenient")]
    pub failed: i64,
    /// Number of those that wait, or whose replacement of nodes is blocked, by reason.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub waiting: BTreeMap<String, i64>,
    /// Time in RFC 3339 at which the wave opened.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub opened: Option<String>,
    /// Time in RFC 3339 at which the last group of the wave was done.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub settled: Option<String>,
    /// Time in RFC 3339 at which the wave passed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub passed: Option<String>,
    /// What the wave waits for: an approval, a delay, or a time at which nodes may be replaced.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// State of a wave.
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
    /// NAMESPACE/NAME of the group.
    pub group: String,
    /// The owner of the pods, the budget and the remedy.
    pub message: String,
}

/// A group that does not have the revision, or not on all its nodes, with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LaggingGroup {
    /// NAMESPACE/NAME of the group.
    pub group: String,
    /// Name of the BoundariesRevision that it has.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence.
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
