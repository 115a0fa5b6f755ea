//! `rollout.budget`: how many nodes of the cluster may be unavailable at once while groups switch to a revision.

use std::fmt;

use serde_json::Value;

use super::error::{ConfigWarning, ErrorList};
use super::rollout_fields::{CountOrPercent, exact_keys, number, parse_amount};
use super::section::Section;

const BUDGET_KEYS: [&str; 3] = ["nodes", "zone", "surge"];

/// How many nodes may be unavailable, or in standby, while groups switch to a revision. Nodes that are unavailable for
/// another reason count as well, but only what a revision requests waits for the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BudgetPolicy {
    /// Of all nodes of all groups; `None` for any number. At least one always may be.
    pub nodes: Option<CountOrPercent>,
    /// Of the nodes of all groups in one zone; `None` for any number. At least one always may be.
    pub zone: Option<CountOrPercent>,
    /// How many nodes may be in standby at once beside their replacements, for `maxSurge`; `None` for any number.
    pub surge: Option<usize>,
}

/// A phrase for messages, without a number that changes.
impl fmt::Display for BudgetPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.nodes.map(|amount| format!("nodes {amount}"));
        let zone = self.zone.map(|amount| format!("zone {amount}"));
        let surge = self.surge.map(|limit| format!("surge {limit}"));
        let parts: Vec<_> = [nodes, zone, surge].into_iter().flatten().collect();
        write!(f, "the budget of the rollout ({})", parts.join(", "))
    }
}

impl BudgetPolicy {
    /// Whether it limits anything.
    pub(crate) fn is_set(&self) -> bool {
        *self != Self::default()
    }

    pub(super) fn parse(
        section: &Section,
        value: &Value,
        warnings: &mut Vec<ConfigWarning>,
    ) -> Result<Self, ErrorList> {
        if value.is_null() {
            return Ok(Self::default());
        }
        let mut errors = ErrorList::default();
        let root = exact_keys(section, value, "budget", &BUDGET_KEYS, &mut errors);
        let get = |name: &str| root.get(name);
        let amount = |key: &str| {
            let path = format!("budget.{key}");
            let found = parse_amount(section, get(key), &path, "nodes")?;
            match found {
                Some(CountOrPercent::Number(0) | CountOrPercent::Percent(0)) => {
                    let message = format!(
                        "{} would block every replacement",
                        found.map(|found| found.to_string()).unwrap_or_default()
                    );
                    let remedy = "write at least 1, or 1%; to stop a rollout: instance-manager rollout pause";
                    Err(section.error(&path, &message, remedy))
                }
                Some(_) | None => Ok(found),
            }
        };
        let budget = Self {
            nodes: errors.or_default(amount("nodes")),
            zone: errors.or_default(amount("zone")),
            surge: errors.or_default(number(section, get("surge"), "budget.surge", 1..=100_000)),
        };
        let budget = errors.into_result(budget)?;
        if budget.zone.is_some() && budget.nodes.is_none() {
            let message = "limits only the nodes that the controller replaces one by one";
            let remedy = || {
                "set budget.nodes as well: EKS and the strategy crd choose the zones of their nodes themselves"
                    .to_owned()
            };
            section.warn("budget.zone", message, remedy, warnings);
        }
        Ok(budget)
    }

    /// Warns when an update of managed node groups, which EKS does in batches, is larger than the whole budget by the
    /// admin's own `defaults`: it would wait until no other node of the cluster is unavailable.
    pub(super) fn warn_about_batches<'a>(
        &self,
        section: &Section,
        defaults: impl Iterator<Item = &'a Value>,
        warnings: &mut Vec<ConfigWarning>,
    ) {
        let Some(CountOrPercent::Number(limit)) = self.nodes else { return };
        let count = |value: &Value| {
            value.as_u64().or_else(|| value.as_str()?.parse().ok()).and_then(|count| usize::try_from(count).ok())
        };
        let batches = defaults.filter_map(|found| count(&found["spec"]["strategy"]["managed"]["maxUnavailable"]));
        if let Some(nodes) = batches.max().filter(|nodes| *nodes > limit) {
            let message = format!(
                "{limit} is less than spec.strategy.managed.maxUnavailable of the defaults ({nodes}): an update of such a node group waits until no other node of the cluster is unavailable"
            );
            let remedy = || format!("write at least {nodes}, or lower maxUnavailable");
            section.warn("budget.nodes", &message, remedy, warnings);
        }
    }
}
