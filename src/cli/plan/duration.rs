//! How long the replacement of a group's nodes takes, from the time that its present nodes took from launch to Ready.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use super::estimate::MeasuredJoin;
use super::report::GroupPlan;
use crate::aws::InstanceLaunch;
use crate::controller::planner::Planner;
use crate::rotation::NodeView;

/// How many nodes of a group are measured.
const SAMPLE: usize = 20;
/// A node that took longer was not measured: its Node was created again, for example.
const LONGEST_JOIN: SignedDuration = SignedDuration::from_hours(1);
/// A Node that was Ready later than this after its kubelet registered it was NotReady in between.
const LONGEST_INITIALIZATION: SignedDuration = SignedDuration::from_mins(5);

/// Replaces the assumption in the estimates by what the nodes that would be replaced took. Where AWS does not return
/// when they were launched, the assumption stays.
pub(crate) async fn add_estimates(planner: &Planner, plans: &mut [GroupPlan]) {
    let samples: Vec<Vec<String>> = plans.iter().map(sample).collect();
    let all: Vec<String> = samples.concat();
    if all.is_empty() {
        return;
    }
    let Ok(launches) = planner.inventory.launches(&all).await else { return };
    for (plan, ids) in plans.iter_mut().zip(&samples) {
        let nodes: Vec<_> = ids.iter().filter_map(|id| Some((id.clone(), planner.node_index.get(id)?))).collect();
        if let Some(measured) = measure(&nodes, &launches) {
            plan.set_measured_join(measured);
        }
    }
}

fn sample(plan: &GroupPlan) -> Vec<String> {
    let is_estimated = plan.estimated_minutes.is_some();
    let nodes = plan.nodes_to_rotate.iter().filter(|replaced| is_estimated && replaced.node.is_some());
    nodes.take(SAMPLE).map(|replaced| replaced.instance.clone()).collect()
}

/// The median over the nodes whose launch is known; `None` without one.
fn measure(nodes: &[(String, NodeView)], launches: &HashMap<String, InstanceLaunch>) -> Option<MeasuredJoin> {
    let join_time = |(id, node): &(String, NodeView)| {
        let launched = launches.get(id)?.time;
        // A node whose condition changed later was Ready at an unknown time after it joined.
        let is_first = |at: &Timestamp| node.ready && at.duration_since(node.created_at) < LONGEST_INITIALIZATION;
        let joined = node.ready_changed_at.filter(is_first).unwrap_or(node.created_at);
        let join_time = joined.duration_since(launched);
        (join_time > SignedDuration::ZERO && join_time < LONGEST_JOIN).then_some(join_time)
    };
    let mut all: Vec<_> = nodes.iter().filter_map(join_time).collect();
    all.sort();
    Some(MeasuredJoin { median: *all.get(all.len() / 2)?, nodes: all.len() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::index::nodes::node_view;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn node(id: &str, created: i64, ready: i64) -> (String, NodeView) {
        let time = |second| at(second).to_string();
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": time(ready)});
        let metadata = json!({"name": id, "creationTimestamp": time(created)});
        let node = json!({"metadata": metadata, "spec": {}, "status": {"conditions": [ready]}});
        (id.to_owned(), node_view(&serde_json::from_value(node).expect("a Node")))
    }

    /// An estimate from a node whose kubelet restarted yesterday would be days.
    #[test]
    fn only_nodes_that_joined_once_are_measured() {
        let launch = |id: &str| (id.to_owned(), InstanceLaunch { time: at(1000), subnet: "subnet-1".into() });
        let launches: HashMap<_, _> = ["a", "b", "c"].map(launch).into();
        let measured = |nodes: &[_]| measure(nodes, &launches).map(|m| (m.median.as_secs(), m.nodes));
        assert_eq!(measured(&[node("a", 1040, 1060)]), Some((60, 1)));
        assert_eq!(measured(&[node("a", 1040, 90_000)]), Some((40, 1)), "it was NotReady a day later");
        assert_eq!(measured(&[node("a", 1040, 2500)]), Some((40, 1)), "its kubelet was silent for some minutes");
        assert_eq!(measured(&[node("a", 90_000, 90_010)]), None, "its Node was created again");
        assert_eq!(measured(&[node("x", 1040, 1060)]), None, "AWS does not say when it was launched");
        let several = [node("a", 1040, 1050), node("b", 1040, 1200), node("c", 1040, 1070)];
        assert_eq!(measured(&several), Some((70, 3)));
        assert_eq!(measure(&several, &launches).expect("it is measured").batch().as_secs(), 70 + 30 + 120);
    }
}
