//! Forecasts what will block the drains of the groups of the next wave. Their tenants can correct it while the wave
//! before soaks.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use crate::api::GroupDrainForecast;
use crate::controller::context::Context;
use crate::index::rollout::DrainForecasts;
use crate::k8s::{DrainBlocker, DrainBlockerKind, DrainForecast};
use crate::rollout::RolloutView;

/// The most groups that the status of a revision lists.
const MAX_LISTED: usize = 50;

/// The most obstacles that a message names.
const MAX_NAMED: usize = 3;

/// What this process remembers between two reads of pods and budgets.
#[derive(Default)]
pub(super) struct DrainWatch {
    /// The groups that the last read was about.
    asked: BTreeSet<String>,
    /// When that was.
    read_at: Option<Instant>,
    /// What was found, by group; a group that could not be read is missing.
    found: BTreeMap<String, Vec<DrainBlocker>>,
    /// What allowed no eviction at the last read because pods were not healthy.
    unhealthy: BTreeSet<(String, String)>,
    /// The nodes whose drains are expected to block. They stay when their group switches to the revision, so that it
    /// takes them last.
    nodes: BTreeSet<String>,
}

/// What will block drains, for the status of the revision and for the groups.
pub(super) struct BlockedDrains {
    /// The first groups with what blocks their drains.
    pub listed: Vec<GroupDrainForecast>,
    /// Groups for which it is something else now.
    pub changed: Vec<String>,
}

/// Forecasts the drains of the groups whose wave is open or next; each has the index of its wave. Pods and budgets are
/// read when another wave is next, and once in each resync period.
pub(super) async fn forecast(
    ctx: &Context,
    view: &RolloutView,
    watch: &mut DrainWatch,
    next: &BTreeMap<String, usize>,
) -> BlockedDrains {
    let keys: BTreeSet<String> = next.keys().cloned().collect();
    let interval = ctx.planner.settings.resync_period;
    if watch.is_due(&keys, interval) && !keys.is_empty() {
        let nodes = ctx.planner.node_index.names_by_group(&keys);
        match ctx.planner.kube.drain_forecast(&nodes.values().flatten().cloned().collect()).await {
            Ok(forecast) => {
                watch.update(&keys, &nodes, forecast);
                ctx.planner.node_index.set_drain_last(watch.nodes.clone());
            }
            Err(error) => tracing::warn!(%error, "cannot forecast which drains will block"),
        }
        (watch.asked, watch.read_at) = (keys.clone(), Some(Instant::now()));
    }
    watch.found.retain(|key, _| keys.contains(key));
    let message = |(key, wave): (&String, &usize)| {
        let found = watch.found.get(key)?;
        Some((key.clone(), message(&view.target.name, &view.policy.waves[*wave].name, found)?))
    };
    let known: BTreeMap<String, String> = next.iter().filter_map(message).collect();
    let unread = keys.into_iter().filter(|key| !watch.found.contains_key(key)).collect();
    let mut listed: Vec<(usize, GroupDrainForecast)> = known
        .iter()
        .map(|(key, message)| (next[key], GroupDrainForecast { group: key.clone(), message: message.clone() }))
        .collect();
    listed.sort_by_key(|(wave, _)| *wave);
    listed.truncate(MAX_LISTED);
    let changed = ctx.stores.rollout.set_drain_forecasts(DrainForecasts { known, unread });
    BlockedDrains { listed: listed.into_iter().map(|(_, drain)| drain).collect(), changed }
}

impl DrainWatch {
    fn is_due(&self, keys: &BTreeSet<String>, interval: std::time::Duration) -> bool {
        !keys.is_subset(&self.asked) || self.read_at.is_none_or(|at| at.elapsed() >= interval)
    }

    /// Takes what a read found. Pods that are not healthy count when they were not at the read before either: a Deployment
    /// that is being updated has such pods for a while.
    fn update(&mut self, keys: &BTreeSet<String>, nodes: &BTreeMap<String, BTreeSet<String>>, forecast: DrainForecast) {
        let identity = |found: &DrainBlocker| (found.subject(), found.budget.clone());
        let is_unhealthy = |found: &&DrainBlocker| found.kind == DrainBlockerKind::Now;
        let unhealthy = forecast.obstacles.iter().filter(is_unhealthy).map(identity).collect();
        let before = std::mem::replace(&mut self.unhealthy, unhealthy);
        let lasts = |found: &&DrainBlocker| !is_unhealthy(found) || before.contains(&identity(found));
        let mut by_node: BTreeMap<&str, Vec<&DrainBlocker>> = BTreeMap::new();
        for found in forecast.obstacles.iter().filter(lasts) {
            by_node.entry(&found.node).or_default().push(found);
        }
        let of_group = |key: &String| {
            let nodes = nodes.get(key).into_iter().flatten();
            let found = nodes.filter_map(|node| by_node.get(node.as_str())).flatten();
            (key.clone(), found.map(|found| (*found).clone()).collect())
        };
        self.found = keys.iter().map(of_group).collect();
        self.nodes.retain(|node| nodes.values().all(|read| !read.contains(node)));
        self.nodes.extend(self.found.values().flatten().map(|found| found.node.clone()));
    }
}

/// What will block drains of a group, by the owners of the pods: it stays the same when pods are replaced or move.
fn message(target: &str, wave: &str, found: &[DrainBlocker]) -> Option<String> {
    let sentences: BTreeSet<String> =
        found.iter().map(|found| format!("{}: {}", found.subject(), found.describe())).collect();
    let named: Vec<_> = sentences.iter().take(MAX_NAMED).map(String::as_str).collect();
    let more = match sentences.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    (!named.is_empty())
        .then(|| format!("drains for {target} (wave {wave}) are expected to block. {}{more}", named.join(". ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn obstacle(kind: DrainBlockerKind, owner: &str, pod: &str) -> DrainBlocker {
        DrainBlocker {
            node: "n1".into(),
            pod: format!("team/{pod}"),
            owner: Some(format!("StatefulSet {owner}")),
            kind,
            budget: owner.into(),
            limit: "minAvailable 1 of 1 pod".into(),
            remedy: "add replicas".into(),
        }
    }

    /// A soak takes days. A message that changed with each pod would make the controller write all groups again and
    /// again.
    #[test]
    fn message_names_owners_and_stays_when_pods_are_replaced() {
        use DrainBlockerKind::Never;
        let text = |found: &[DrainBlocker]| message("r15", "rest", found);
        let first = text(&[obstacle(Never, "redis", "redis-0"), obstacle(Never, "redis", "redis-1")]);
        assert_eq!(
            first.as_deref(),
            Some(
                "drains for r15 (wave rest) are expected to block. StatefulSet team/redis: PodDisruptionBudget redis, minAvailable 1 of 1 pod, can never allow an eviction; add replicas"
            )
        );
        assert_eq!(text(&[obstacle(Never, "redis", "redis-7")]), first);
        let many: Vec<_> = ["a", "b", "c", "d", "e"].map(|owner| obstacle(Never, owner, "x")).into();
        assert!(text(&many).is_some_and(|text| text.ends_with("; and 2 more") && !text.contains("team/d")));
        assert_eq!(text(&[]), None);
    }

    /// A tenant must not be warned of each update of its Deployments.
    #[test]
    fn briefly_unhealthy_pods_are_not_reported() {
        use DrainBlockerKind::{Never, Now};
        let keys: BTreeSet<String> = ["team/web".to_owned()].into();
        let nodes = [("team/web".to_owned(), ["n1".to_owned()].into())].into();
        let mut watch = DrainWatch::default();
        let mut read = |obstacles: Vec<DrainBlocker>| {
            watch.update(&keys, &nodes, DrainForecast { obstacles, unmanaged: vec![] });
            watch.found["team/web"].iter().map(|found| found.budget.clone()).collect::<Vec<_>>()
        };
        let (never, now) = (obstacle(Never, "db", "db-0"), obstacle(Now, "web", "web-0"));
        assert_eq!(read(vec![never.clone(), now.clone()]), ["db"]);
        assert_eq!(read(vec![never.clone(), now.clone()]), ["db", "web"]);
        assert_eq!(read(vec![never]), ["db"]);
        assert_eq!(read(vec![now]), Vec::<String>::new());
    }

    /// 2,000 groups that soak for a week must not list all budgets of the cluster every 15 seconds.
    #[test]
    fn pods_and_budgets_are_read_for_new_groups_and_once_in_each_period() {
        let (day, over) = (std::time::Duration::from_secs(86_400), std::time::Duration::ZERO);
        let keys = |names: &[&str]| -> BTreeSet<String> { names.iter().map(ToString::to_string).collect() };
        let mut watch = DrainWatch::default();
        assert!(watch.is_due(&keys(&["a", "b"]), day));
        (watch.asked, watch.read_at) = (keys(&["a", "b"]), Some(Instant::now()));
        assert!(!watch.is_due(&keys(&["a"]), day), "one has taken the revision");
        assert!(watch.is_due(&keys(&["a", "c"]), day), "the next wave");
        assert!(watch.is_due(&keys(&["a"]), over), "the period is over");
    }
}
