//! What `plan` tells beyond the first pass: which nodes would go.

use super::input::World;
use super::observed::{Group, as_taken_over, differences, split, version_differences};
use crate::api::InstanceGroupStatus;
use crate::aws::nodegroup::MaxUnavailable;
use crate::plan::{Drift, Plan};
use crate::provisioner::{Foreseen, Given, Handback, Leaving, Seen};

impl Seen for World {
    fn cluster(&self) -> &str {
        &self.resolved.wanted.cluster
    }

    fn foresee(&self, first: &Plan, given: &Given) -> Foreseen {
        let halves = split(&self.resolved, &self.state, given.status);
        let mut leaving: Vec<_> = halves
            .others
            .iter()
            .flat_map(|group| nodes(group, &differences(&self.resolved, &group.nodegroup)))
            .collect();
        if let Some(current) = halves.current.filter(|_| !halves.adopting) {
            let because = version_differences(&self.resolved, &current.nodegroup);
            if !because.is_empty() && !as_taken_over(&self.resolved, given.status, &current.nodegroup) {
                leaving.extend(nodes(current, &because));
            }
        }
        let at_once = match self.resolved.wanted.max_unavailable {
            None => 1,
            Some(MaxUnavailable::Count(n)) => usize::try_from(n).unwrap_or(1),
            Some(MaxUnavailable::Percent(n)) => (leaving.len() * usize::try_from(n).unwrap_or(1)).div_ceil(100),
        };
        Foreseen {
            steps: Vec::new(),
            outcome: first.outcome.clone(),
            at_once: at_once.max(1),
            leaving,
            remove: self.surplus(given),
        }
    }

    /// The original looks for a node group of the InstanceGroup's own name, and would make a second one.
    fn handback(&self, _: &InstanceGroupStatus) -> Handback {
        let name = &self.resolved.wanted.id.name;
        let known = self.state.groups.iter().all(|group| group.name().nodegroup == *name);
        Handback::Nothing(match known {
            true => "has the node group that its former controller knows",
            false => "has a node group that its former controller does not know: it would make another beside it",
        })
    }
}

impl World {
    /// Nodes beyond the largest size that is wanted.
    fn surplus(&self, given: &Given) -> usize {
        let halves = split(&self.resolved, &self.state, given.status);
        let desired = halves.current.map_or(0, Group::desired);
        usize::try_from(desired - self.resolved.wanted.max).unwrap_or(0)
    }
}

fn nodes(group: &Group, because: &[Drift]) -> Vec<Leaving> {
    let leaving = |member: &crate::rotation::Member| Leaving {
        instance: member.instance.id.clone(),
        node: member.node.as_ref().map(|node| node.name.clone()),
        because: because.to_vec(),
    };
    group.members.iter().map(leaving).collect()
}
