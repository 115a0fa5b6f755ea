//! What will block the drains of the nodes that would be replaced, as pods and budgets are now.

use std::collections::{BTreeMap, BTreeSet};

use super::report::GroupPlan;
use crate::controller::planner::Planner;
use crate::k8s::{DrainBlocker, DrainForecast};

/// Adds what blocks drains to the plans of groups whose nodes are replaced. What cannot be read is noted there.
pub(crate) async fn add_drain_forecasts(planner: &Planner, plans: &mut [GroupPlan]) {
    let nodes = plans.iter().flat_map(GroupPlan::replaced_nodes).cloned().collect();
    let found = planner.kube.drain_forecast(&nodes).await;
    let found = found.map_err(|error| crate::cli::output::describe_error(&error.into()));
    let mut obstacles: BTreeMap<String, Vec<DrainBlocker>> = BTreeMap::new();
    let mut unmanaged: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let DrainForecast { obstacles: all, unmanaged: pods } = found.clone().unwrap_or_default();
    all.into_iter().for_each(|obstacle| obstacles.entry(obstacle.node.clone()).or_default().push(obstacle));
    pods.into_iter().for_each(|(node, pod)| unmanaged.entry(node).or_default().push(pod));
    for plan in plans.iter_mut().filter(|plan| !plan.nodes_to_rotate.is_empty()) {
        plan.drains_unknown = found.as_ref().err().cloned();
        plan.blocked_drains = plan.replaced_nodes().filter_map(|node| obstacles.get(node)).flatten().cloned().collect();
        plan.unmanaged_pods = plan.replaced_nodes().filter_map(|node| unmanaged.get(node)).flatten().cloned().collect();
    }
    find_zone_bound_pods(planner, plans).await;
}

/// Adds the pods that can run in one zone only to the plans of groups with nodes in several zones: their replacements may
/// launch in another one.
async fn find_zone_bound_pods(planner: &Planner, plans: &mut [GroupPlan]) {
    let spans_zones = |plan: &&mut GroupPlan| plan.zones.len() > 1 && !plan.nodes_to_rotate.is_empty();
    let nodes =
        plans.iter_mut().filter(spans_zones).flat_map(|plan| plan.replaced_nodes().cloned().collect::<Vec<_>>());
    let found = planner.kube.zone_bound_pods(&nodes.collect()).await;
    let found = found.map_err(|error| crate::cli::output::describe_error(&error.into()));
    for plan in plans.iter_mut().filter(spans_zones) {
        let nodes: BTreeSet<&String> = plan.replaced_nodes().collect();
        let on_nodes = found.iter().flatten().filter(|pod| nodes.contains(&pod.node)).cloned().collect();
        plan.zone_bound_pods = on_nodes;
        plan.volumes_unknown = found.as_ref().err().cloned();
    }
}
