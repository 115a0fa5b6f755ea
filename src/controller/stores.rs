//! The caches that the watches fill, shared by all reconciles.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use serde_json::json;

use crate::api::GroupObject;
use crate::api::InstanceGroup;
use crate::api::names::annotation;
use crate::api::{NodeDemand, has_resources, used_nodes};
use crate::auth::aws_auth::MapRoles;
use crate::boundaries::active::{BoundariesCell, ConfigMapData};
use crate::boundaries::{NamespaceUsage, QuotaAmounts, QuotaClaim, QuotaRequest};
use crate::controller::aws_auth_size::SizeWarning;
use crate::controller::planner::{GroupContext, Planner};
use crate::controller::queued_groups::QueuedGroups;
use crate::controller::quota_grants::{AmountsByGroup, QuotaGrants, with_grant};
use crate::index::groups::GroupIndex;
use crate::index::rollout::RolloutState;
use crate::index::spot::Recommendations;
use crate::lock::{ConfigMapLock, LockState, Locks, is_locked};
use crate::rollout::StoredRevision;
use crate::util::lookup::Lookup;

/// Whether `group` takes precedence in a namespace quota: older groups count first.
fn created_before(group: &impl ResourceExt, other: &impl ResourceExt) -> bool {
    (group.creation_timestamp(), group.name_any()) < (other.creation_timestamp(), other.name_any())
}

/// `namespace/name` of a group.
fn key(stored: &GroupObject) -> String {
    format!("{}/{}", stored.namespace().unwrap_or_default(), stored.name_any())
}

/// What a group requests, as far as it can be read.
fn demand(stored: &GroupObject, planner: &Planner, context: &GroupContext) -> Arc<NodeDemand> {
    match &stored.0 {
        Ok(group) => planner.demand(group, context),
        Err(invalid) => Arc::new(invalid.demand.clone()),
    }
}

/// What a group counts for in a quota.
fn quota_claim(stored: &GroupObject, demand: &NodeDemand, vcpus: &dyn Fn(&str) -> Option<u64>) -> QuotaClaim {
    let (status, nodes) = match &stored.0 {
        Ok(group) => (group.status.as_ref(), group.status.as_ref().map_or(0, |s| used_nodes(s, &json!(group.spec)))),
        Err(invalid) => (invalid.status.as_ref(), invalid.used_nodes),
    };
    let used = status.map(|status| QuotaAmounts::used(status, nodes, demand, vcpus)).unwrap_or_default();
    let exists = status.is_some_and(has_resources);
    QuotaClaim { exists, used, requested: QuotaAmounts::requested(demand, vcpus) }
}

/// Whether a quota of the context's boundaries limits the group's namespace.
fn has_quota(group: &InstanceGroup, context: &GroupContext) -> bool {
    let boundaries = context.active_boundaries.boundaries.as_ref();
    boundaries.is_some_and(|found| found.policy.has_quota(&group.namespace().unwrap_or_default()))
}

/// An invalid object whose status says so, for this generation of it.
struct ReportedObject {
    generation: Option<i64>,
}

/// The caches that the watches fill.
pub(crate) struct Stores {
    /// All InstanceGroups, those included that cannot be decoded.
    pub groups: Store<GroupObject>,
    /// Resources that groups share, by resource.
    pub group_index: Arc<GroupIndex>,
    /// Metadata of all Namespaces.
    pub namespaces: Store<PartialObjectMeta<Namespace>>,
    /// The active boundaries.
    pub boundaries: BoundariesCell,
    /// The rollout of the newest revision of the boundaries.
    pub rollout: RolloutState,
    /// The ConfigMap `instance-manager` as the watch last returned it.
    pub config_map: tokio::sync::Mutex<Lookup<ConfigMap>>,
    /// Whether the ConfigMap must be loaded again: the API server does not store it as a BoundariesRevision, or it is not
    /// valid and the last known good content may not be read.
    pub boundaries_not_stored: AtomicBool,
    /// The last known good content of the ConfigMap, while the API server does not store it.
    pub unstored_boundaries: Mutex<Option<ConfigMapData>>,
    /// Whether this process led when it activated the boundaries, and published their state.
    pub boundaries_reported: AtomicBool,
    /// Held while the boundaries are loaded from the ConfigMap.
    pub reload_mutex: tokio::sync::Mutex<()>,
    /// The annotation `lock-upgrades` of the ConfigMap.
    config_map_lock: RwLock<LockState>,
    /// Held while a revision of the ConfigMap is stored.
    pub revision_mutex: tokio::sync::Mutex<()>,
    /// `mapRoles` of kube-system/aws-auth, parsed once for each version.
    pub map_roles: RwLock<Lookup<Arc<MapRoles>>>,
    /// Whether kube-system/aws-auth is near the size limit, and whether this process warned of it.
    pub aws_auth_size: Mutex<SizeWarning>,
    /// Whether the first list of groups is complete. A flag, because only one task can wait for a reflector store.
    pub groups_synced: AtomicBool,
    /// Whether the first list of namespaces is complete.
    pub namespaces_synced: AtomicBool,
    /// Nodes without the label `kubernetes.io/role`, with their role. This process saw them while it could not write,
    /// or the API server rejected the label.
    pub label_backlog: Mutex<BTreeMap<String, String>>,
    /// Groups that were enqueued and whose reconcile has not started.
    pub queued_groups: QueuedGroups,
    /// Recommendations about spot instances.
    pub recommendations: Arc<Recommendations>,
    /// The invalid objects whose status says so.
    reported_objects: Mutex<HashMap<String, ReportedObject>>,
    /// What quotas allowed in this process.
    pub quota_grants: QuotaGrants,
}

impl Stores {
    /// Empty caches, with the stores of the two reflectors.
    pub(crate) fn new(groups: Store<GroupObject>, namespaces: Store<PartialObjectMeta<Namespace>>) -> Self {
        Stores {
            groups,
            group_index: Arc::default(),
            namespaces,
            boundaries: BoundariesCell::default(),
            rollout: RolloutState::default(),
            config_map: tokio::sync::Mutex::default(),
            boundaries_not_stored: AtomicBool::default(),
            unstored_boundaries: Mutex::default(),
            boundaries_reported: AtomicBool::default(),
            reload_mutex: tokio::sync::Mutex::default(),
            config_map_lock: RwLock::default(),
            revision_mutex: tokio::sync::Mutex::default(),
            map_roles: RwLock::default(),
            aws_auth_size: Mutex::default(),
            groups_synced: AtomicBool::default(),
            namespaces_synced: AtomicBool::default(),
            label_backlog: Mutex::default(),
            queued_groups: QueuedGroups::default(),
            recommendations: Arc::default(),
            reported_objects: Mutex::default(),
            quota_grants: QuotaGrants::default(),
        }
    }

    /// Forgets what the status of a deleted object reported.
    pub(crate) fn forget_reported(&self, key: &str) {
        self.reported_objects.lock().expect("lock is not poisoned").remove(key);
    }

    /// Whether the status of an invalid object already reports this generation.
    pub(crate) fn is_reported(&self, key: &str, generation: Option<i64>) -> bool {
        let reported_objects = self.reported_objects.lock().expect("lock is not poisoned");
        reported_objects.get(key).is_some_and(|reported| reported.generation == generation)
    }

    /// Records that the status of an invalid object reports this generation.
    pub(crate) fn set_reported(&self, key: &str, generation: Option<i64>) {
        self.reported_objects.lock().expect("lock is not poisoned").insert(key.into(), ReportedObject { generation });
    }

    /// Whether the cache has the group's namespace. The watch of namespaces may lag behind the watch of groups.
    pub(crate) fn has_namespace(&self, group: &InstanceGroup) -> bool {
        self.namespaces.get(&ObjectRef::new(&group.namespace().unwrap_or_default())).is_some()
    }

    /// The cached state that the plan of one group depends on, with the revision of the boundaries that the group has. What
    /// a quota allows the group is remembered.
    pub(crate) async fn group_context(&self, group: &InstanceGroup, planner: &Planner) -> GroupContext {
        let mut context = self.cached_context(group);
        self.apply_rollout(group, planner, &mut context);
        self.prefetch_instance_types(group, planner, &context).await;
        let key = key(&GroupObject(Ok(group.clone())));
        context.quota_request = has_quota(group, &context)
            .then(|| self.quota_grants.decide(&key, |granted| self.quota_request(group, planner, &context, granted)));
        context
    }

    /// The same with another content of the boundaries, to find out what it would mean. Nothing is remembered as allowed.
    pub(crate) async fn group_context_with(
        &self,
        group: &InstanceGroup,
        planner: &Planner,
        content: &StoredRevision,
    ) -> GroupContext {
        let (active_boundaries, images) = (content.active.clone(), Some(content.images.clone()));
        let mut context = GroupContext { active_boundaries, images, ..self.cached_context(group) };
        self.prefetch_instance_types(group, planner, &context).await;
        context.quota_request = has_quota(group, &context)
            .then(|| self.quota_grants.preview(|granted| self.quota_request(group, planner, &context, granted)));
        context
    }

    /// Reads the instance types of a namespace whose vCPUs a quota limits, if they were not read before.
    async fn prefetch_instance_types(&self, group: &InstanceGroup, planner: &Planner, context: &GroupContext) {
        let namespace = group.namespace().unwrap_or_default();
        let boundaries = context.active_boundaries.boundaries.as_ref();
        if !boundaries.is_some_and(|found| found.policy.limits_vcpus(&namespace)) {
            return;
        }
        let own = Arc::new(GroupObject(Ok(group.clone())));
        let demands = self.others(group).into_iter().chain([own]).map(|stored| demand(&stored, planner, context));
        let types: BTreeSet<String> = demands.flat_map(|demand| demand.types.clone()).map(|(name, _)| name).collect();
        planner.prefetch_instance_types(types.into_iter().filter(|name| planner.vcpus(name).is_none())).await;
    }

    /// The other groups of a group's namespace.
    fn others(&self, group: &InstanceGroup) -> Vec<Arc<GroupObject>> {
        let namespace = group.namespace().unwrap_or_default();
        let keys = self.group_index.in_namespace(&namespace);
        let names = keys.iter().map(|key| key.rsplit('/').next().unwrap_or_default());
        let others = names.filter(|name| *name != group.name_any());
        others.filter_map(|name| self.groups.get(&ObjectRef::new(name).within(&namespace))).collect()
    }

    /// Everything but what depends on the group's revision.
    fn cached_context(&self, group: &InstanceGroup) -> GroupContext {
        let namespace = group.namespace().unwrap_or_default();
        let annotations = self.namespaces.get(&ObjectRef::new(&namespace)).map(|n| n.annotations().clone());
        GroupContext {
            lock: self.locks(group, annotations.as_ref()).describe(),
            namespace_annotations: annotations,
            rollout_block: None,
            is_rollout_blocked: false,
            allowance: None,
            images: None,
            active_boundaries: self.boundaries.get(),
            map_roles: self.map_roles(),
            group_index: self.group_index.clone(),
            recommendations: self.recommendations.clone(),
            quota_request: None,
            revision_wait: None,
            drain_forecast: Lookup::NotQueried,
            is_requested: false,
        }
    }

    /// What a group requests from the quota of its namespace, and whether it is allowed. Older groups that request more
    /// come first.
    fn quota_request(
        &self,
        group: &InstanceGroup,
        planner: &Planner,
        context: &GroupContext,
        granted: &AmountsByGroup,
    ) -> (QuotaRequest, bool) {
        let namespace = group.namespace().unwrap_or_default();
        let allows = |request: &QuotaRequest| {
            let boundaries = context.active_boundaries.boundaries.as_ref();
            boundaries.is_none_or(|found| found.policy.allows(&namespace, request))
        };
        let own = GroupObject(Ok(group.clone()));
        // Read here: a group that was decided on meanwhile must be among them.
        let others = self.others(group);
        let claim = |stored: &GroupObject| {
            let claim = quota_claim(stored, &demand(stored, planner, context), &|name| planner.vcpus(name));
            with_grant(claim, granted.get(&key(stored)))
        };
        let mut usage = NamespaceUsage::sum(others.iter().map(|other| claim(other)).chain([claim(&own)]));
        let mut older: Vec<_> = others.iter().filter(|other| created_before(other.as_ref(), group)).collect();
        older.sort_by_key(|other| (other.creation_timestamp(), other.name_any()));
        for other in older {
            let request = usage.request(claim(other));
            if allows(&request) {
                usage = request.usage;
            }
        }
        let request = usage.request(claim(&own));
        let is_allowed = allows(&request);
        (request, is_allowed)
    }

    /// The entries of aws-auth; empty without the ConfigMap.
    pub(crate) fn map_roles(&self) -> Arc<MapRoles> {
        self.map_roles.read().expect("lock is not poisoned").as_present().cloned().unwrap_or_default()
    }

    /// Describes the lock of the group or of its namespace, if there is one.
    pub(super) fn own_lock(
        &self,
        group: &InstanceGroup,
        namespace: Option<&BTreeMap<String, String>>,
    ) -> Option<String> {
        Locks { config_map: ConfigMapLock::None, ..self.locks(group, namespace) }.describe()
    }

    /// The lock of the ConfigMap, as it was seen last and as it counts.
    pub(super) fn config_map_lock(&self) -> LockState {
        *self.config_map_lock.read().expect("lock is not poisoned")
    }

    /// Changes the lock of the ConfigMap.
    pub(crate) fn change_config_map_lock(&self, change: impl FnOnce(&mut LockState)) {
        change(&mut self.config_map_lock.write().expect("lock is not poisoned"));
    }

    /// The locks that the caches show for a group.
    fn locks(&self, group: &InstanceGroup, namespace: Option<&BTreeMap<String, String>>) -> Locks {
        Locks {
            group: self.is_group_locked(group, namespace, group.annotations()),
            namespace: namespace.is_some_and(is_locked) && self.is_namespace_lockable(group),
            config_map: self.config_map_lock().active,
        }
    }

    /// Whether these annotations of a group lock it, after the merge with the boundaries.
    fn is_group_locked(
        &self,
        group: &InstanceGroup,
        namespace: Option<&BTreeMap<String, String>>,
        annotations: &BTreeMap<String, String>,
    ) -> bool {
        let name = group.namespace().unwrap_or_default();
        match namespace {
            Some(namespace) => self.boundaries.get().is_group_locked(&name, namespace, annotations),
            None => is_locked(annotations),
        }
    }

    /// The value of the annotation `reconcile-now` after the merge, if it is not answered yet.
    pub(crate) fn pending_reconcile_request(&self, group: &InstanceGroup) -> Option<String> {
        let status = group.status.as_ref();
        let answered = status.and_then(|status| status.last_reconcile_now.as_ref());
        group.annotations().get(annotation::RECONCILE_NOW).filter(|value| Some(*value) != answered)?;
        let name = group.namespace().unwrap_or_default();
        let namespace = self.namespaces.get(&ObjectRef::new(&name))?;
        let boundaries = self.boundaries.get();
        let merged =
            boundaries.annotation(&name, namespace.annotations(), group.annotations(), annotation::RECONCILE_NOW)?;
        (Some(&merged) != answered).then_some(merged)
    }

    fn is_namespace_lockable(&self, group: &InstanceGroup) -> bool {
        self.boundaries.get().is_namespace_lockable(&group.namespace().unwrap_or_default())
    }

    /// Which locks would count for a group, if they were set.
    pub(crate) fn counted_locks(&self, group: &InstanceGroup) -> Locks {
        let namespace = self.namespaces.get(&ObjectRef::new(&group.namespace().unwrap_or_default()));
        let mut annotations = group.annotations().clone();
        annotations.insert(annotation::LOCK_UPGRADES.to_owned(), "true".to_owned());
        Locks {
            group: self.is_group_locked(group, namespace.as_deref().map(ResourceExt::annotations), &annotations),
            namespace: self.is_namespace_lockable(group),
            config_map: ConfigMapLock::Present,
        }
    }

    /// Which cache is not synced yet; reconciles start when this is `None`.
    pub(crate) fn not_synced(&self) -> Option<&'static str> {
        if !self.groups_synced.load(Ordering::Acquire) {
            return Some("InstanceGroup cache not synced");
        }
        if !self.namespaces_synced.load(Ordering::Acquire) {
            return Some("Namespace cache not synced");
        }
        if !self.map_roles.read().expect("lock is not poisoned").is_queried() {
            return Some("ConfigMap kube-system/aws-auth not synced");
        }
        (self.boundaries.get().source == crate::boundaries::active::BoundariesSource::Unknown)
            .then_some("ConfigMap instance-manager not synced")
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector, watcher::Event};

    use super::*;
    use crate::api::InstanceGroupSpec;
    use crate::boundaries::active::select_active;

    /// An admin may want to prevent that everyone who annotates a Namespace can delay security updates.
    #[test]
    fn lock_of_a_namespace_counts_where_the_policy_allows_it() {
        let lock = BTreeMap::from([(annotation::LOCK_UPGRADES.to_owned(), "true".to_owned())]);
        for (policy, counts) in
            [("", true), ("lockableNamespaces: [prod-*]", false), ("lockableNamespaces: [team]", true)]
        {
            let (groups, (namespaces, mut writer)) = (reflector::store::<GroupObject>().0, reflector::store());
            writer.apply_watcher_event(&Event::Apply(namespace(&lock)));
            let stores = Stores::new(groups, namespaces);
            let config = [("policy".to_owned(), policy.to_owned())].into();
            stores.boundaries.set(select_active(Some(&config), None, true).0);
            let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
            group.metadata.namespace = Some("team".into());
            let locks = stores.locks(&group, Some(&lock));
            assert_eq!((locks.namespace, stores.counted_locks(&group).namespace), (counts, counts), "{policy}");
            assert!(
                stores.counted_locks(&group).group && stores.counted_locks(&group).config_map == ConfigMapLock::Present
            );
        }
    }

    #[test]
    fn new_value_of_reconcile_now_counts_unless_a_boundary_restricts_it() {
        let asked = |restricted: &str, answered: serde_json::Value| {
            let (groups, (namespaces, mut writer)) = (reflector::store::<GroupObject>().0, reflector::store());
            writer.apply_watcher_event(&Event::Apply(namespace(&BTreeMap::new())));
            let stores = Stores::new(groups, namespaces);
            let config = [("boundaries".to_owned(), format!("restricted: [{restricted}]"))].into();
            stores.boundaries.set(select_active(Some(&config), None, true).0);
            let annotations = json!({annotation::RECONCILE_NOW: "2"});
            let metadata = json!({"name": "web", "namespace": "team", "annotations": annotations});
            let object = json!({"apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
                "metadata": metadata, "spec": {}, "status": {"lastReconcileNow": answered}});
            stores.pending_reconcile_request(&serde_json::from_value(object).expect("a group"))
        };
        assert_eq!(asked("spec.eks.minSize", json!(null)).as_deref(), Some("2"));
        assert_eq!(asked("spec.eks.minSize", json!("1")).as_deref(), Some("2"));
        assert_eq!(asked("spec.eks.minSize", json!("2")), None);
        assert_eq!(asked("metadata.annotations", json!("1")), None);
    }

    fn namespace(annotations: &BTreeMap<String, String>) -> PartialObjectMeta<Namespace> {
        let metadata = json!({"name": "team", "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata})).expect("a Namespace")
    }

    #[test]
    fn quota_usage_of_a_group_comes_from_its_status() {
        let claim = |spec: serde_json::Value, status: serde_json::Value| {
            let object = json!({
                "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
                "metadata": {"name": "a", "namespace": "team"}, "spec": spec, "status": status,
            });
            let stored: GroupObject = serde_json::from_value(object).unwrap();
            let claim = quota_claim(&stored, &NodeDemand::default(), &|_| None);
            (stored.0.is_ok(), claim.exists, claim.used.nodes)
        };
        let status = json!({"currentMax": 7, "nodes": {"desired": 5}});
        assert_eq!(claim(json!({"eks": {"maxSize": 9}}), status.clone()), (true, true, 7));
        let other = json!({"provisioner": "eks-managed", "eks": {"maxSize": 9}, "eks-managed": {"maxSize": 1}});
        assert_eq!(claim(other, status.clone()), (true, true, 7), "another provisioner");
        let out_of_range = json!({"eks": {"maxSize": 1, "configuration": {"mixedInstancesPolicy": {"spotRatio": 99_999_999_999_u64}}}});
        assert_eq!(claim(out_of_range, status), (false, true, 7), "cannot be decoded");
        let rejected = json!({"conditions": [{"type": "Stalled", "status": "True"}]});
        assert_eq!(claim(json!({"eks": {"maxSize": 9}}), rejected), (true, false, 0), "was never created");
    }
}
