//! What the watches show, shared by all reconciles and trimmed to what they read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};

use super::Stored;
use crate::api::InstanceGroup;
use crate::api::names::annotation;
use crate::boundaries::Counts;
use crate::boundaries::active::Current;
use crate::controller::planner::{Corridor, Surroundings};
use crate::index::groups::GroupIndex;
use crate::index::spot::Recommendations;
use crate::telemetry::metrics::Metrics;

/// Quotas go to the groups that came first.
fn older(one: &InstanceGroup, other: &InstanceGroup) -> bool {
    (one.creation_timestamp(), one.name_any()) < (other.creation_timestamp(), other.name_any())
}

/// What the watches show.
pub struct Stores {
    /// All InstanceGroups.
    pub groups: Store<Stored>,
    /// What the groups share with each other.
    pub index: Arc<GroupIndex>,
    /// Metadata of all Namespaces.
    pub namespaces: Store<PartialObjectMeta<Namespace>>,
    /// The boundaries in force.
    pub current: Current,
    /// The ConfigMap as the watch last showed it.
    pub config: tokio::sync::Mutex<Option<Option<ConfigMap>>>,
    /// Whether the ConfigMap holds the brake.
    pub config_locked: RwLock<bool>,
    /// `mapRoles` of kube-system/aws-auth; `None` before the watch has told.
    pub map_roles: RwLock<Option<Option<String>>>,
    /// Whether the first list of groups is complete; asked here because only one task may wait for a store.
    pub groups_seen: AtomicBool,
    /// Whether the first list of namespaces is complete.
    pub namespaces_seen: AtomicBool,
    /// Nodes that lack the role label of older tools, with their role, seen while this process only reads.
    pub unlabelled: Mutex<BTreeMap<String, String>>,
    /// Groups that wait for their turn.
    pub waiting: Mutex<HashSet<String>>,
    /// Recommendations about spot instances.
    pub recommendations: Arc<Recommendations>,
    /// The generation of objects that cannot be decoded, once their status says so.
    answered: Mutex<HashMap<String, Option<i64>>>,
}

impl Stores {
    /// Empty stores around the two reflectors.
    pub fn new(groups: Store<Stored>, namespaces: Store<PartialObjectMeta<Namespace>>) -> Self {
        Stores {
            groups,
            index: Arc::default(),
            namespaces,
            current: Current::default(),
            config: tokio::sync::Mutex::default(),
            config_locked: RwLock::default(),
            map_roles: RwLock::default(),
            groups_seen: AtomicBool::default(),
            namespaces_seen: AtomicBool::default(),
            unlabelled: Mutex::default(),
            waiting: Mutex::default(),
            recommendations: Arc::default(),
            answered: Mutex::default(),
        }
    }

    /// A group has got its turn.
    pub fn started(&self, key: &str, metrics: &Metrics) {
        let mut waiting = self.waiting.lock().expect("nobody panics holding it");
        waiting.remove(key);
        metrics.queue_depth(waiting.len());
    }

    /// Whether this generation of an object has been answered.
    pub fn answered(&self, key: &str, generation: Option<i64>) -> bool {
        self.answered.lock().expect("nobody panics holding it").get(key) == Some(&generation)
    }

    /// This generation of an object has been answered: its status is written.
    pub fn set_answered(&self, key: &str, generation: Option<i64>) {
        self.answered.lock().expect("nobody panics holding it").insert(key.into(), generation);
    }

    /// Whether a group's namespace has been seen; a watch may be a moment behind the other.
    pub fn knows_namespace(&self, group: &InstanceGroup) -> bool {
        self.namespaces.get(&ObjectRef::new(&group.namespace().unwrap_or_default())).is_some()
    }

    /// What stands around one group.
    pub fn around(&self, group: &InstanceGroup, corridor: &Corridor) -> Surroundings {
        let namespace = group.namespace().unwrap_or_default();
        let annotations = self.namespaces.get(&ObjectRef::new(&namespace)).map(|n| n.annotations().clone());
        let mut around = Surroundings {
            lock: self.lock(group, annotations.as_ref()),
            namespace: annotations,
            in_force: self.current.get(),
            map_roles: self.map_roles.read().expect("nobody panics holding it").clone().flatten(),
            groups: self.index.clone(),
            recommendations: self.recommendations.clone(),
            counts: Counts::default(),
        };
        if around.in_force.boundaries.as_ref().is_some_and(|b| b.policy.has_quotas()) {
            around.counts = self.counts(group, &namespace, corridor, &around);
        }
        around
    }

    /// The group itself and those of its namespace that came before it.
    fn counts(&self, group: &InstanceGroup, namespace: &str, corridor: &Corridor, around: &Surroundings) -> Counts {
        let mut counts = Counts { groups: 1, nodes: corridor.most_nodes(group, around) };
        for key in self.index.in_namespace(namespace) {
            let name = key.rsplit('/').next().unwrap_or_default();
            let Some(stored) = self.groups.get(&ObjectRef::new(name).within(namespace)) else { continue };
            let Ok(other) = &stored.0 else { continue };
            if name != group.name_any() && older(other, group) {
                counts.groups += 1;
                counts.nodes += corridor.most_nodes(other, around);
            }
        }
        counts
    }

    /// Who holds the brake, in words.
    fn lock(&self, group: &InstanceGroup, namespace: Option<&BTreeMap<String, String>>) -> Option<String> {
        let locked = |annotations: &BTreeMap<String, String>| {
            annotations.get(annotation::LOCK_UPGRADES).is_some_and(|v| v.eq_ignore_ascii_case("true"))
        };
        let name = annotation::LOCK_UPGRADES;
        if locked(group.annotations()) {
            return Some(format!("the annotation {name} on the InstanceGroup"));
        }
        if namespace.is_some_and(locked) {
            return Some(format!("the annotation {name} on the Namespace"));
        }
        let config = *self.config_locked.read().expect("nobody panics holding it");
        config.then(|| format!("the annotation {name} on the instance-manager ConfigMap"))
    }

    /// Why reconciles may not begin yet, if something is missing.
    pub fn missing(&self) -> Option<&'static str> {
        if !self.groups_seen.load(Ordering::Acquire) {
            return Some("the InstanceGroups have not been seen");
        }
        if !self.namespaces_seen.load(Ordering::Acquire) {
            return Some("the Namespaces have not been seen");
        }
        if self.map_roles.read().expect("nobody panics holding it").is_none() {
            return Some("kube-system/aws-auth has not been seen");
        }
        (self.current.get().source == crate::boundaries::active::Source::Unknown)
            .then_some("the ConfigMap instance-manager has not been seen")
    }
}
