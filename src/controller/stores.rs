//! What the watches show, shared by all reconciles and trimmed to what they read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};

use super::GroupObject;
use crate::api::InstanceGroup;
use crate::api::names::annotation;
use crate::boundaries::NamespaceUsage;
use crate::boundaries::active::BoundariesCell;
use crate::controller::planner::{GroupContext, Planner};
use crate::index::groups::GroupIndex;
use crate::index::spot::Recommendations;
use crate::telemetry::metrics::Metrics;

/// Quotas go to the groups that came first.
fn created_before(one: &InstanceGroup, other: &InstanceGroup) -> bool {
    (one.creation_timestamp(), one.name_any()) < (other.creation_timestamp(), other.name_any())
}

/// What the watches show.
pub struct Stores {
    /// All InstanceGroups.
    pub groups: Store<GroupObject>,
    /// What the groups share with each other.
    pub group_index: Arc<GroupIndex>,
    /// Metadata of all Namespaces.
    pub namespaces: Store<PartialObjectMeta<Namespace>>,
    /// The boundaries in force.
    pub boundaries: BoundariesCell,
    /// The ConfigMap as the watch last showed it.
    pub config_map: tokio::sync::Mutex<Option<Option<ConfigMap>>>,
    /// Whether the ConfigMap holds the brake.
    pub config_map_locked: RwLock<bool>,
    /// `mapRoles` of kube-system/aws-auth; `None` before the watch has told.
    pub map_roles: RwLock<Option<Option<String>>>,
    /// Whether the first list of groups is complete; asked here because only one task may wait for a store.
    pub groups_synced: AtomicBool,
    /// Whether the first list of namespaces is complete.
    pub namespaces_synced: AtomicBool,
    /// Nodes that lack the role label of older tools, with their role, seen while this process only reads.
    pub label_backlog: Mutex<BTreeMap<String, String>>,
    /// Groups that wait for their turn.
    pub queued: Mutex<HashSet<String>>,
    /// Recommendations about spot instances.
    pub recommendations: Arc<Recommendations>,
    /// The generation of objects that cannot be decoded, once their status says so.
    reported_generation: Mutex<HashMap<String, Option<i64>>>,
}

impl Stores {
    /// Empty stores around the two reflectors.
    pub fn new(groups: Store<GroupObject>, namespaces: Store<PartialObjectMeta<Namespace>>) -> Self {
        Stores {
            groups,
            group_index: Arc::default(),
            namespaces,
            boundaries: BoundariesCell::default(),
            config_map: tokio::sync::Mutex::default(),
            config_map_locked: RwLock::default(),
            map_roles: RwLock::default(),
            groups_synced: AtomicBool::default(),
            namespaces_synced: AtomicBool::default(),
            label_backlog: Mutex::default(),
            queued: Mutex::default(),
            recommendations: Arc::default(),
            reported_generation: Mutex::default(),
        }
    }

    /// A group has got its turn.
    pub fn dequeue(&self, key: &str, metrics: &Metrics) {
        let mut waiting = self.queued.lock().expect("nobody panics holding it");
        waiting.remove(key);
        metrics.set_queue_depth(waiting.len());
    }

    /// Whether this generation of an object has been answered.
    pub fn is_reported(&self, key: &str, generation: Option<i64>) -> bool {
        self.reported_generation.lock().expect("nobody panics holding it").get(key) == Some(&generation)
    }

    /// This generation of an object has been answered: its status is written.
    pub fn set_reported(&self, key: &str, generation: Option<i64>) {
        self.reported_generation.lock().expect("nobody panics holding it").insert(key.into(), generation);
    }

    /// Whether a group's namespace has been seen; a watch may be a moment behind the other.
    pub fn has_namespace(&self, group: &InstanceGroup) -> bool {
        self.namespaces.get(&ObjectRef::new(&group.namespace().unwrap_or_default())).is_some()
    }

    /// What stands around one group.
    pub fn group_context(&self, group: &InstanceGroup, corridor: &Planner) -> GroupContext {
        let namespace = group.namespace().unwrap_or_default();
        let annotations = self.namespaces.get(&ObjectRef::new(&namespace)).map(|n| n.annotations().clone());
        let mut around = GroupContext {
            lock: self.lock_holder(group, annotations.as_ref()),
            namespace_annotations: annotations,
            active_boundaries: self.boundaries.get(),
            map_roles: self.map_roles.read().expect("nobody panics holding it").clone().flatten(),
            group_index: self.group_index.clone(),
            recommendations: self.recommendations.clone(),
            counts: NamespaceUsage::default(),
        };
        if around.active_boundaries.boundaries.as_ref().is_some_and(|b| b.policy.has_quotas()) {
            around.counts = self.counts(group, &namespace, corridor, &around);
        }
        around
    }

    /// The group itself and those of its namespace that came before it.
    fn counts(
        &self,
        group: &InstanceGroup,
        namespace: &str,
        corridor: &Planner,
        around: &GroupContext,
    ) -> NamespaceUsage {
        let mut counts = NamespaceUsage { groups: 1, nodes: corridor.max_nodes(group, around) };
        for key in self.group_index.in_namespace(namespace) {
            let name = key.rsplit('/').next().unwrap_or_default();
            let Some(stored) = self.groups.get(&ObjectRef::new(name).within(namespace)) else { continue };
            let Ok(other) = &stored.0 else { continue };
            if name != group.name_any() && created_before(other, group) {
                counts.groups += 1;
                counts.nodes += corridor.max_nodes(other, around);
            }
        }
        counts
    }

    /// Who holds the brake, in words.
    fn lock_holder(&self, group: &InstanceGroup, namespace: Option<&BTreeMap<String, String>>) -> Option<String> {
        let locked =
            |annotations: &BTreeMap<String, String>| annotation::is_true(annotations, annotation::LOCK_UPGRADES);
        let name = annotation::LOCK_UPGRADES;
        if locked(group.annotations()) {
            return Some(format!("the annotation {name} on the InstanceGroup"));
        }
        if namespace.is_some_and(locked) {
            return Some(format!("the annotation {name} on the Namespace"));
        }
        let config = *self.config_map_locked.read().expect("nobody panics holding it");
        config.then(|| format!("the annotation {name} on the instance-manager ConfigMap"))
    }

    /// Why reconciles may not begin yet, if something is missing.
    pub fn not_synced(&self) -> Option<&'static str> {
        if !self.groups_synced.load(Ordering::Acquire) {
            return Some("the InstanceGroups have not been seen");
        }
        if !self.namespaces_synced.load(Ordering::Acquire) {
            return Some("the Namespaces have not been seen");
        }
        if self.map_roles.read().expect("nobody panics holding it").is_none() {
            return Some("kube-system/aws-auth has not been seen");
        }
        (self.boundaries.get().source == crate::boundaries::active::BoundariesSource::Unknown)
            .then_some("the ConfigMap instance-manager has not been seen")
    }
}
