//! What is remembered of instances between reads of their groups.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;

use crate::aws::{InstanceState, ScalingGroup};

/// Which group an instance belongs to, and since when it is in service.
#[derive(Default)]
pub(super) struct Instances {
    group_of: HashMap<String, String>,
    in_group: HashMap<String, HashSet<String>>,
    in_service_since: HashMap<String, Timestamp>,
}

impl Instances {
    /// Takes in a group that was read and tells it since when its instances
    /// are in service. Answers the ids that are gone.
    pub fn update_group(&mut self, group: &mut ScalingGroup, now: Timestamp) -> Vec<String> {
        for instance in &mut group.instances {
            if instance.state == InstanceState::InService {
                self.in_service_since.entry(instance.id.clone()).or_insert(now);
            }
            instance.in_service_since = self.in_service_since.get(&instance.id).copied();
        }
        self.replace_members(&group.name, group.instances.iter().map(|i| i.id.clone()).collect())
    }

    /// Takes in that a group is not there. Answers the ids that are gone.
    pub fn remove_group(&mut self, group: &str) -> Vec<String> {
        self.replace_members(group, HashSet::new())
    }

    /// The group that an instance was last seen in.
    pub fn group_of(&self, instance: &str) -> Option<String> {
        self.group_of.get(instance).cloned()
    }

    fn replace_members(&mut self, group: &str, ids: HashSet<String>) -> Vec<String> {
        for id in &ids {
            self.group_of.insert(id.clone(), group.to_owned());
        }
        let before = if ids.is_empty() {
            self.in_group.remove(group)
        } else {
            self.in_group.insert(group.to_owned(), ids.clone())
        };
        let gone: Vec<String> = before.unwrap_or_default().difference(&ids).cloned().collect();
        for id in &gone {
            self.group_of.remove(id);
            self.in_service_since.remove(id);
        }
        gone
    }
}
