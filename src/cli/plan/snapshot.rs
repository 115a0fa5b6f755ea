//! Reads the cluster once, into the same caches that the controller's watches fill.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector;
use kube::runtime::watcher::Event;
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;

use super::rollout::{GroupRollout, GroupShare, RolloutPlan};
use super::schedule::ClusterNodes;
use crate::api::names::{CONFIG_MAP, LAST_KNOWN_GOOD_CONFIG_MAP};
use crate::api::{BoundariesRevision, InstanceGroup, NodeDemand};
use crate::auth::aws_auth::MapRoles;
use crate::aws::AwsErrorKind;
use crate::aws::inventory::Inventory;
use crate::aws::sdk::{self, CallObserver};
use crate::boundaries::QuotaLevel;
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource, ConfigMapData, select_active};
use crate::cli::args::{ClusterArgs, Target};
use crate::cli::input::ConfigFile;
use crate::cli::missing_permissions::{PermissionCheck, get_config_map};
use crate::cli::revisions::stored_revisions;
use crate::cli::settings::settings;
use crate::controller::GroupObject;
use crate::controller::planner::{GroupContext, ObserveError, Planner, Planning};
use crate::controller::rollout::{count_running, count_unavailable, decide_and_count};
use crate::controller::stores::Stores;
use crate::controller::watches::spot_recommendations;
use crate::index::nodes;
use crate::index::nodes::NodeIndex;
use crate::index::process_state::ProcessState;
use crate::k8s::{KubeClient, KubeError, call};
use crate::lock::{ConfigMapLock, is_locked};
use crate::rollout::{RevisionDecision, RolloutView};
use crate::settings::Timing;
use crate::util::lookup::Lookup;

/// The controller's default `--resync-period`. A command ends long before cached reads reach this age.
const MAX_CACHE_AGE: Duration = Duration::from_secs(300);
/// Attempts of an AWS call. Fewer than in the controller, because a user waits for the output.
const MAX_AWS_ATTEMPTS: u32 = 5;

/// Ignores all AWS call metrics.
struct NoopCallObserver;

impl CallObserver for NoopCallObserver {
    fn record_call(&self, _: &'static str, _: &'static str, _: Option<AwsErrorKind>) {}
}

/// The state of the cluster, read once.
pub(crate) struct ClusterSnapshot {
    /// The planner of the controller.
    pub planner: Planner,
    /// The region of the AWS credentials, such as `us-west-2`.
    pub region: String,
    /// The client of the API server.
    pub client: Client,
    stores: Stores,
    /// The same with the live ConfigMap, if a file replaces it.
    live_stores: Option<Stores>,
    /// What could not be read, and what that means for the plans.
    pub notes: Vec<String>,
}

impl ClusterSnapshot {
    /// Reads InstanceGroups, Namespaces, Nodes, aws-auth and the ConfigMap. `config` replaces the live ConfigMap. Where the
    /// caller may not list the groups of all namespaces, those of the namespace of `target` have to do.
    ///
    /// # Errors
    /// [`crate::cli::missing_permissions::MissingPermissions`] where a permission is missing without which no plan is right; or what did not answer.
    pub(crate) async fn read(args: &ClusterArgs, target: &Target, config: Option<ConfigFile>) -> anyhow::Result<Self> {
        let client = args.connection.connect().await?;
        let target = target.clone().with_default_namespace(client.default_namespace());
        let objects = ClusterObjects::read(&client, &args.config_namespace, target.namespace()).await?;
        let connected = sdk::connect(Arc::new(NoopCallObserver), MAX_AWS_ATTEMPTS).await?;
        if let Some(error) = connected.credentials_error {
            return Err(error.into());
        }
        let planner = Planner {
            inventory: Inventory::new(connected.aws),
            kube: Arc::new(KubeClient::new(client.clone(), "plan")),
            node_index: Arc::new(NodeIndex::default()),
            process_state: Arc::new(ProcessState::default()),
            settings: settings(args, Timing::default(), MAX_CACHE_AGE),
        };
        let (groups, mut groups_writer) = reflector::store::<GroupObject>();
        let (namespaces, mut namespaces_writer) = reflector::store::<PartialObjectMeta<Namespace>>();
        for event in as_events(objects.groups) {
            groups_writer.apply_watcher_event(&event);
        }
        for event in as_events(objects.namespaces) {
            namespaces_writer.apply_watcher_event(&event);
        }
        for mut event in as_events(objects.nodes) {
            if let Event::InitApply(node) = &mut event {
                nodes::trim(node);
            }
            planner.node_index.apply(&event);
        }
        // Without permission to read events, the plan uses only the recommendations stored in the status.
        let recommendations = Api::<k8s_openapi::api::core::v1::Event>::all(client.clone());
        let params = ListParams::default().fields(&spot_recommendations::field_selector());
        let recommended = recommendations.list(&params).await.map(|list| list.items).unwrap_or_default();
        let roles = objects.aws_auth.and_then(|map| map.data?.remove("mapRoles"));
        let roles = Arc::new(MapRoles::parse(roles.as_deref()));
        let stores = || {
            let stores = Stores::new(groups.clone(), namespaces.clone());
            stores.groups.state().iter().for_each(|stored| stores.group_index.upsert(stored));
            for event in &recommended {
                let _ = spot_recommendations::ingest(event, &stores.recommendations, Timestamp::now());
            }
            *stores.map_roles.write().expect("lock is not poisoned") = Lookup::Present(roles.clone());
            stores
        };
        let live_stores = config.is_some().then(stores);
        let stores = stores();
        let notes = objects.notes;
        let snapshot = ClusterSnapshot { planner, region: connected.region, client, stores, live_stores, notes };
        snapshot.load_boundaries(objects.config_map, objects.last_known_good.as_ref(), &objects.revisions, config);
        Ok(snapshot)
    }

    /// Loads the live boundaries, or those of a file. Applying a file keeps the annotations of the live ConfigMap, so its
    /// lock counts as well.
    fn load_boundaries(
        &self,
        live: Option<ConfigMap>,
        stored: Option<&ConfigMapData>,
        revisions: &[BoundariesRevision],
        config: Option<ConfigFile>,
    ) {
        let live_annotations = live.as_ref().map(|map| map.annotations().clone()).unwrap_or_default();
        let live_data = live.map(|map| map.data.unwrap_or_default());
        let were_configured = self.stores.groups.state().iter().any(|group| group.may_have_had_boundaries());
        let cluster = self.planner.settings.cluster_name.clone();
        let activate = |stores: &Stores, data: Option<&ConfigMapData>, lock: ConfigMapLock| {
            let (active, _) = select_active(data, stored, were_configured);
            let active = Arc::new(active);
            stores.change_config_map_lock(|state| state.activate(lock));
            let view = match (&active.source, data) {
                (BoundariesSource::Live, Some(data)) => {
                    RolloutView::of_content(revisions, live_data.as_ref(), data, &active, cluster.as_deref())
                }
                _ => RolloutView::new(revisions, &active, None, cluster.as_deref()),
            };
            stores.rollout.set_view(view.map(|view| Arc::new(view.with_lock(lock))));
            count_running(stores);
            count_unavailable(stores, &self.planner.node_index);
            stores.boundaries.set(active);
        };
        let live_lock = ConfigMapLock::of(&live_annotations);
        match (&config, &self.live_stores) {
            (Some(config), Some(live_stores)) => {
                activate(live_stores, live_data.as_ref(), live_lock);
                let lock = if is_locked(&config.annotations) { ConfigMapLock::Present } else { live_lock };
                activate(&self.stores, Some(&config.data), lock);
            }
            _ => activate(&self.stores, live_data.as_ref(), live_lock),
        }
    }

    /// The boundaries that plans are based on.
    pub(crate) fn active_boundaries(&self) -> Arc<ActiveBoundaries> {
        self.stores.boundaries.get()
    }

    /// The groups of a target, by namespace and name.
    ///
    /// # Errors
    /// The requested group does not exist.
    pub(crate) fn select(&self, target: &Target) -> anyhow::Result<Vec<Arc<GroupObject>>> {
        let mut groups = self.stores.groups.state();
        groups.sort_by_key(|stored| crate::controller::group_key(stored));
        match target {
            Target::All => {}
            Target::Namespace(namespace) => {
                let namespace = namespace.as_deref().unwrap_or(self.client.default_namespace());
                groups.retain(|stored| stored.namespace().as_deref() == Some(namespace));
            }
            Target::Group(namespace, name) => {
                let namespace = namespace.as_deref().unwrap_or(self.client.default_namespace());
                groups.retain(|stored| stored.namespace().as_deref() == Some(namespace) && stored.name_any() == *name);
                anyhow::ensure!(
                    !groups.is_empty(),
                    "InstanceGroup {namespace}/{name} not found; `instance-manager status -n {namespace}` lists those of the namespace"
                );
            }
        }
        Ok(groups)
    }

    /// The plan that the controller would make.
    pub(crate) async fn plan(&self, group: &InstanceGroup, now: Timestamp) -> Result<PlannedGroup, ObserveError> {
        self.plan_with(&self.stores, group, now).await
    }

    /// The plan that the controller makes with the live ConfigMap; `None` unless a file replaces that.
    pub(crate) async fn plan_live(
        &self,
        group: &InstanceGroup,
        now: Timestamp,
    ) -> Option<Result<PlannedGroup, ObserveError>> {
        Some(self.plan_with(self.live_stores.as_ref()?, group, now).await)
    }

    async fn plan_with(
        &self,
        stores: &Stores,
        group: &InstanceGroup,
        now: Timestamp,
    ) -> Result<PlannedGroup, ObserveError> {
        let rollout = match stores.rollout.view() {
            Some(view) => {
                let decided = decide_and_count(group, &view, stores, &self.planner, now).await;
                decided.map(|decided| (view, decided))
            }
            None => None,
        };
        let is_file = self.live_stores.is_some() && std::ptr::eq(stores, &raw const self.stores);
        let content = rollout.as_ref().and_then(|(view, decided)| match &decided.choice {
            // What the file means to the group in the end.
            _ if is_file => Some(&view.target),
            RevisionDecision::Switch(switch) => Some(&switch.content),
            RevisionDecision::Use { .. } => None,
        });
        let context = match content {
            Some(content) => stores.group_context_with(group, &self.planner, content).await,
            None => stores.group_context(group, &self.planner).await,
        };
        let mut planning = self.planner.plan(group, &context, MAX_CACHE_AGE, now).await?;
        // The first plan found a name conflict. Plan again with hashed names, as the controller does in its next reconcile.
        if self.planner.process_state.name_conflicts(&planning.plan.group) > 0 {
            planning = self.planner.plan(group, &context, MAX_CACHE_AGE, now).await?;
        }
        let rollout = rollout.filter(|(_, decided)| decided.has_part);
        let rollout = rollout.map(|(view, decided)| GroupRollout::new(&view, &decided));
        let demand = self.planner.demand(group, &context);
        let quota = context.quota_levels(&group.namespace().unwrap_or_default());
        let GroupContext { lock, rollout_block, .. } = context;
        Ok(PlannedGroup { planning, lock, rollout_block, rollout, demand, quota })
    }

    /// The nodes of all groups; `zones` has those of the planned ones. The zones of the others are taken to be the same.
    fn cluster_nodes(&self, zones: BTreeMap<&str, usize>) -> ClusterNodes {
        let groups = self.stores.groups.state();
        let desired =
            |stored: &Arc<GroupObject>| stored.0.as_ref().ok()?.status.as_ref()?.nodes.as_ref().map(|n| n.desired);
        let nodes: i64 = groups.iter().filter_map(desired).sum();
        let nodes = usize::try_from(nodes).unwrap_or_default();
        let placed: usize = zones.values().sum();
        let share = |count: usize| count * nodes.max(placed) / placed.max(1);
        ClusterNodes { nodes, zones: zones.into_values().map(share).collect() }
    }

    /// How the file that replaces the live ConfigMap would reach the planned groups. `None` without a file, or without a
    /// policy in it.
    pub(crate) fn file_rollout<'a>(
        &self,
        shares: impl Iterator<Item = GroupShare<'a>>,
        zones: BTreeMap<&str, usize>,
        now: Timestamp,
    ) -> Option<RolloutPlan> {
        let (live, cluster_nodes) = (self.live_stores.as_ref()?.rollout.view(), self.cluster_nodes(zones));
        Some(RolloutPlan::new(&*self.stores.rollout.view()?, live.as_deref(), shares, &cluster_nodes, now))
    }
}

/// The plan of one group.
pub(crate) struct PlannedGroup {
    /// What the controller would do.
    pub planning: Planning,
    /// The lock that applies to the group.
    pub lock: Option<String>,
    /// What keeps its nodes from being replaced now, while what has begun is finished.
    pub rollout_block: Option<String>,
    /// Its place in the rollout; `None` without one.
    pub rollout: Option<GroupRollout>,
    /// What its spec requests.
    pub demand: Arc<NodeDemand>,
    /// What its namespace uses of its quota, with what the group asks for; empty without a quota.
    pub quota: Vec<QuotaLevel>,
}

/// The objects of a cluster that plans depend on.
struct ClusterObjects {
    groups: Vec<GroupObject>,
    namespaces: Vec<PartialObjectMeta<Namespace>>,
    nodes: Vec<Node>,
    aws_auth: Option<ConfigMap>,
    config_map: Option<ConfigMap>,
    last_known_good: Option<ConfigMapData>,
    revisions: Vec<BoundariesRevision>,
    notes: Vec<String>,
}

impl ClusterObjects {
    /// Reads them with the permissions of the caller. `namespace` is that of the groups to plan for; `None` for all groups.
    async fn read(client: &Client, config_namespace: &str, namespace: Option<&str>) -> anyhow::Result<Self> {
        let (mut permissions, mut notes) = (PermissionCheck::default(), Vec::new());
        let mut groups = list_all(Api::<GroupObject>::all(client.clone()), "instancegroups").await;
        if let (Err(KubeError::Forbidden { .. }), Some(own)) = (&groups, namespace) {
            groups = list_all(Api::<GroupObject>::namespaced(client.clone(), own), "instancegroups").await;
            notes.push(format!(
                "you may not list InstanceGroups of other namespaces than {own}: roles that they share with these groups are not known"
            ));
        }
        let groups = permissions.allowed(groups, None, namespace)?;
        let mut namespaces = list_all(Api::<PartialObjectMeta<Namespace>>::all(client.clone()), "namespaces").await;
        if let (Err(KubeError::Forbidden { .. }), Some(own)) = (&namespaces, namespace) {
            let api = Api::<Namespace>::all(client.clone());
            namespaces = call("get", "namespaces", api.get_metadata(own)).await.map(|found| vec![found]);
        }
        let namespaces = permissions.allowed(namespaces, namespace, None)?;
        let nodes = permissions.allowed(list_all(Api::<Node>::all(client.clone()), "nodes").await, None, None)?;
        let aws_auth = get_config_map(client, &mut permissions, "kube-system", "aws-auth").await?;
        let config_map = get_config_map(client, &mut permissions, config_namespace, CONFIG_MAP).await?;
        let stored = get_config_map(client, &mut permissions, config_namespace, LAST_KNOWN_GOOD_CONFIG_MAP).await?;
        if let Some(missing) = permissions.missing() {
            return Err(missing.into());
        }
        let revisions = match stored_revisions(client, config_namespace).await {
            Ok(found) => found.unwrap_or_default(),
            Err(KubeError::Forbidden { .. }) => {
                notes.push(format!(
                    "you may not list BoundariesRevisions in {config_namespace}: groups that wait for their wave of a rollout are planned with the newest boundaries"
                ));
                Vec::new()
            }
            Err(error) => return Err(error.into()),
        };
        Ok(ClusterObjects {
            groups: groups.unwrap_or_default(),
            namespaces: namespaces.unwrap_or_default(),
            nodes: nodes.unwrap_or_default(),
            aws_auth,
            config_map,
            last_known_good: stored.map(|map| map.data.unwrap_or_default()),
            revisions,
            notes,
        })
    }
}

/// Lists all objects of one kind.
pub(crate) async fn list_all<K>(api: Api<K>, resource: &'static str) -> Result<Vec<K>, KubeError>
where
    K: Clone + Debug + DeserializeOwned,
{
    let (mut found, mut params) = (Vec::new(), ListParams::default().limit(500));
    loop {
        let page = call("list", resource, api.list(&params)).await?;
        params.continue_token = page.metadata.continue_.clone().filter(|token| !token.is_empty());
        found.extend(page.items);
        if params.continue_token.is_none() {
            return Ok(found);
        }
    }
}

/// Objects as the initial events of a watch.
fn as_events<K>(objects: Vec<K>) -> impl Iterator<Item = Event<K>> {
    let all = objects.into_iter().map(Event::InitApply);
    std::iter::once(Event::Init).chain(all).chain(std::iter::once(Event::InitDone))
}
