//! State of instances that is kept between reads of their scaling groups.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;

use crate::aws::{Instance, InstanceState, ScalingGroup};

/// The scaling group of each instance, and since when the instance is in service.
#[derive(Default)]
pub(super) struct Instances {
    group_of: HashMap<String, String>,
    members: HashMap<String, HashSet<String>>,
    in_service_since: HashMap<String, Timestamp>,
    /// Instances that were in service when their group was first read.
    was_in_service: HashSet<String>,
    /// When AWS refused a call on an instance because of a scaling activity, and the state that the instance had.
    activity_refused: HashMap<String, (Timestamp, Option<InstanceState>)>,
}

impl Instances {
    /// Records a group that was read and sets what its instances have from earlier reads and calls. Returns the IDs of instances
    /// that are no longer in the group.
    pub(crate) fn update_group(&mut self, group: &mut ScalingGroup, now: Timestamp) -> Vec<String> {
        let is_first_read = !self.members.contains_key(&group.name);
        for instance in &mut group.instances {
            if instance.state == InstanceState::InService {
                if is_first_read {
                    self.was_in_service.insert(instance.id.clone());
                }
                self.in_service_since.entry(instance.id.clone()).or_insert(now);
            }
            instance.in_service_since = self.in_service_since.get(&instance.id).copied();
            instance.was_in_service = self.was_in_service.contains(&instance.id);
            instance.activity_refused_at = self.activity_refused_at(instance);
        }
        // An empty group is kept: its next instance is not one that the first read showed.
        let ids: HashSet<_> = group.instances.iter().map(|i| i.id.clone()).collect();
        self.replace_members(&group.name, Some(ids))
    }

    /// Records that AWS refused a call on an instance because of a scaling activity in progress, or that none was made during
    /// the termination that was sent last.
    pub(crate) fn record_activity(&mut self, instance: &str, now: Timestamp) {
        self.activity_refused.insert(instance.to_owned(), (now, None));
    }

    /// When AWS refused a call on this instance, if its state is still the one of the first read after that.
    fn activity_refused_at(&mut self, instance: &Instance) -> Option<Timestamp> {
        let (at, state) = self.activity_refused.get_mut(&instance.id)?;
        let (at, is_same) = (*at, *state.get_or_insert(instance.state) == instance.state);
        if !is_same {
            self.activity_refused.remove(&instance.id);
        }
        is_same.then_some(at)
    }

    /// Records that this process created a group: the first read will show instances that have just been launched.
    pub(crate) fn add_created_group(&mut self, group: &str) {
        self.members.entry(group.to_owned()).or_default();
    }

    /// Records that a group does not exist. Returns the IDs of its former instances.
    pub(crate) fn remove_group(&mut self, group: &str) -> Vec<String> {
        self.replace_members(group, None)
    }

    /// The group that an instance belonged to at the last read.
    pub(crate) fn group_of(&self, instance: &str) -> Option<String> {
        self.group_of.get(instance).cloned()
    }

    /// The instances of a group at the last read.
    pub(crate) fn instances_of(&self, group: &str) -> Vec<String> {
        self.members.get(group).into_iter().flatten().cloned().collect()
    }

    /// Replaces the instances of a group, or forgets the group, and returns the IDs of removed ones.
    fn replace_members(&mut self, group: &str, ids: Option<HashSet<String>>) -> Vec<String> {
        for id in ids.iter().flatten() {
            self.group_of.insert(id.clone(), group.to_owned());
        }
        let before = match &ids {
            Some(ids) => self.members.insert(group.to_owned(), ids.clone()),
            None => self.members.remove(group),
        };
        let ids = ids.unwrap_or_default();
        let removed: Vec<String> = before.unwrap_or_default().difference(&ids).cloned().collect();
        for id in &removed {
            self.group_of.remove(id);
            self.in_service_since.remove(id);
            self.was_in_service.remove(id);
            self.activity_refused.remove(id);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::samples::{instance, scaling_group};

    /// Whether the first read of the group takes its instance for one that may have joined long ago.
    fn was_in_service(known: &mut Instances) -> bool {
        let mut group = ScalingGroup { instances: vec![instance("i-1")], ..scaling_group("web") };
        known.update_group(&mut group, Timestamp::UNIX_EPOCH);
        group.instances[0].was_in_service
    }

    /// Once the launch or the move has ended, the instance is terminated at once.
    #[test]
    fn refusal_counts_until_the_state_of_the_instance_changes() {
        let mut known = Instances::default();
        let mut refused = |state| {
            let changed = crate::aws::Instance { state, ..instance("i-1") };
            let mut group = ScalingGroup { instances: vec![changed, instance("i-2")], ..scaling_group("web") };
            known.update_group(&mut group, Timestamp::UNIX_EPOCH);
            if state == InstanceState::Pending && group.instances[0].activity_refused_at.is_none() {
                known.record_activity("i-1", Timestamp::UNIX_EPOCH);
            }
            group.instances.iter().map(|i| i.activity_refused_at.is_some()).collect::<Vec<_>>()
        };
        for (state, expected) in [
            (InstanceState::Pending, [false, false]),
            (InstanceState::Pending, [true, false]),
            (InstanceState::Pending, [true, false]),
            (InstanceState::InService, [false, false]),
            (InstanceState::InService, [false, false]),
        ] {
            assert_eq!(refused(state), expected, "{state:?}");
        }
    }

    /// A tenant whose new group never joins would read "if it served before, restart its kubelet".
    #[test]
    fn instance_of_a_group_that_this_process_created_has_not_served_before() {
        assert!(was_in_service(&mut Instances::default()), "another process may have seen it join");
        let mut known = Instances::default();
        known.add_created_group("web");
        assert!(!was_in_service(&mut known));
    }
}
