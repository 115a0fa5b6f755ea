//! The checks of a rollout: what Prometheus answered last, since when, and what that means for the waves.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::check_answer::CheckAnswer;
use super::view::RolloutView;
use crate::api::{CheckState, CheckStatus, RolloutPhase};
use crate::boundaries::{RolloutCheck, Variable};

/// The state of the checks in this process. Before the first answer, each of them is unknown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks {
    by_name: BTreeMap<String, LastAnswer>,
}

#[derive(Clone, Debug)]
struct LastAnswer {
    query: String,
    answer: CheckAnswer,
    /// Since when the answers have had the same state.
    since: Instant,
    /// When the query of the last answer was sent.
    asked: Instant,
}

/// The state of a check, as an input of the decision about waves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckResult {
    /// Name of the check in the key `rollout`.
    pub name: String,
    /// What the last answer of Prometheus means.
    pub state: CheckState,
    /// Why the check is not ok.
    pub message: Option<String>,
    /// Whether there is an answer, or a reason why there will be none.
    pub is_known: bool,
    /// For how long it has been in this state without a gap.
    pub lasted: Duration,
    /// How old the last answer is.
    pub age: Duration,
    /// For how long it must be ok, or must have failed, until that counts.
    pub needed: Duration,
}

impl CheckResult {
    /// Whether it has failed for so long that the rollout stops.
    pub(crate) fn has_failed(&self) -> bool {
        self.state == CheckState::Failing && self.lasted >= self.needed
    }

    /// Whether it has been ok for so long that a wave passes. `soaked` is how long this process has seen the wave soak; only
    /// answers about nodes that ran all that time count. `None`: the soak began before this process.
    pub(crate) fn lets_pass(&self, soaked: Option<Duration>) -> bool {
        let is_about_wave = soaked.is_none_or(|soaked| soaked >= self.needed && soaked >= self.age);
        self.state == CheckState::Ok && self.lasted >= self.needed && is_about_wave
    }
}

impl Checks {
    /// Records the answer to a query that was sent at a time. After a gap of more than `max_age`, it starts over.
    pub(crate) fn record(&mut self, name: &str, query: &str, answer: CheckAnswer, asked: Instant, max_age: Duration) {
        let before = self.by_name.get(name).filter(|seen| {
            let gap = asked.saturating_duration_since(seen.asked);
            seen.query == query && seen.answer.state == answer.state && gap <= max_age
        });
        let since = before.map_or(asked, |seen| seen.since);
        let seen = LastAnswer { query: query.to_owned(), answer, since, asked };
        self.by_name.insert(name.to_owned(), seen);
    }

    /// Whether a query is due.
    pub(crate) fn is_due(&self, name: &str, query: &str, interval: Duration, now: Instant) -> bool {
        let seen = self.by_name.get(name).filter(|seen| seen.query == query);
        seen.is_none_or(|seen| now.saturating_duration_since(seen.asked) >= interval)
    }

    /// How the checks of a rollout stand. An answer that is older than `max_age` does not count.
    pub(crate) fn results(
        &self,
        view: &RolloutView,
        cluster: Option<&str>,
        max_age: Duration,
        now: Instant,
    ) -> Vec<CheckResult> {
        let result = |check: &RolloutCheck| {
            let query = query(view, check, cluster);
            let seen = query.as_ref().ok().and_then(|query| {
                let age = |seen: &LastAnswer| now.saturating_duration_since(seen.asked);
                self.by_name.get(&check.name).filter(|seen| seen.query == *query && age(seen) <= max_age)
            });
            let needed = check.r#for.unsigned_abs();
            let (name, is_known) = (check.name.clone(), seen.is_some() || query.is_err());
            let (state, message, lasted, age) = match (seen, query) {
                (Some(LastAnswer { answer, since, asked, .. }), _) => (
                    answer.state,
                    answer.message.clone(),
                    asked.saturating_duration_since(*since),
                    now.saturating_duration_since(*asked),
                ),
                (None, Err(why)) => (CheckState::Unknown, Some(why), Duration::ZERO, Duration::ZERO),
                (None, Ok(_)) => {
                    let why = "Prometheus was not asked lately".to_owned();
                    (CheckState::Unknown, Some(why), Duration::ZERO, Duration::ZERO)
                }
            };
            CheckResult { name, state, message, is_known, lasted, age, needed }
        };
        if view.asks_checks() { view.policy.checks.iter().map(result).collect() } else { vec![] }
    }
}

impl RolloutView {
    /// Whether the checks of the policy count now: the rollout is under way, and is not a return.
    pub(crate) fn asks_checks(&self) -> bool {
        let is_return = self.is_return() || self.phase() == RolloutPhase::Returning;
        self.phase().is_under_way() && !is_return && !self.policy.checks.is_empty()
    }
}

/// The query of a check about the target of a rollout.
///
/// # Errors
/// Why it cannot be sent.
pub(crate) fn query(view: &RolloutView, check: &RolloutCheck, cluster: Option<&str>) -> Result<String, String> {
    let value = |variable| match variable {
        Variable::Release => view.policy.release.as_deref(),
        Variable::Hash => Some(view.target.hash.as_str()),
        Variable::Cluster => cluster,
        Variable::Revision => Some(view.target.name.as_str()),
    };
    check.query.with_values(value).map_err(|variable| match variable {
        Variable::Cluster if cluster.is_none() => {
            "the query uses $CLUSTER, and the controller runs without --cluster-name".to_owned()
        }
        _ => format!("the value of ${variable} has characters that are not replaced safely"),
    })
}

/// What the status records of the checks. Times and messages stay as long as the state does, so that waiting writes
/// nothing; only the cause of an unknown state is kept up to date.
pub(super) fn statuses(before: &[CheckStatus], results: &[CheckResult], now: &str) -> Vec<CheckStatus> {
    let status = |result: &CheckResult| {
        let recorded = before.iter().find(|old| old.name == result.name);
        let new = || CheckStatus {
            name: result.name.clone(),
            state: Some(result.state),
            since: Some(now.to_owned()),
            message: result.message.clone(),
        };
        match recorded {
            // It was not sent yet, by this leader or at all.
            recorded if !result.is_known => recorded.cloned(),
            Some(recorded) if recorded.state == Some(result.state) => Some(match result.state {
                CheckState::Unknown => CheckStatus { message: result.message.clone(), ..recorded.clone() },
                CheckState::Ok | CheckState::Failing => recorded.clone(),
            }),
            Some(_) | None => Some(new()),
        }
    };
    results.iter().filter_map(status).collect()
}
