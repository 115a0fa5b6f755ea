//! What will hold up the drains of the nodes that would be replaced, as pods and budgets are now.

use std::collections::BTreeMap;

use super::report::GroupPlan;
use crate::controller::planner::Planner;
use crate::k8s::{DrainForecast, DrainObstacle};

/// Adds what holds drains up to the plans of groups whose nodes are replaced. What cannot be read is noted there.
pub(crate) async fn forecast(planner: &Planner, plans: &mut [GroupPlan]) {
    let nodes = plans.iter().flat_map(GroupPlan::replaced_nodes).cloned().collect();
    let found = planner.kube.drain_forecast(&nodes).await;
    let found = found.map_err(|error| crate::cli::output::describe_error(&error.into()));
    let mut obstacles: BTreeMap<String, Vec<DrainObstacle>> = BTreeMap::new();
    let mut unmanaged: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let DrainForecast { obstacles: all, unmanaged: pods } = found.clone().unwrap_or_default();
    all.into_iter().for_each(|obstacle| obstacles.entry(obstacle.node.clone()).or_default().push(obstacle));
    pods.into_iter().for_each(|(node, pod)| unmanaged.entry(node).or_default().push(pod));
    for plan in plans.iter_mut().filter(|plan| !plan.nodes_to_rotate.is_empty()) {
        plan.drains_unknown = found.as_ref().err().cloned();
        plan.blocked_drains = plan.replaced_nodes().filter_map(|node| obstacles.get(node)).flatten().cloned().collect();
        plan.unmanaged_pods = plan.replaced_nodes().filter_map(|node| unmanaged.get(node)).flatten().cloned().collect();
    }
}
