//! Reads the cluster once, into the same caches that the controller's watches fill.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector;
use kube::runtime::watcher::Event;
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;

use crate::api::InstanceGroup;
use crate::api::names::CONFIG_MAP;
use crate::auth::aws_auth::MapRoles;
use crate::aws::inventory::Inventory;
use crate::aws::sdk::{self, CallObserver};
use crate::boundaries::active::{ActiveBoundaries, ConfigMapData, select_active};
use crate::cli::args::{ClusterArgs, PlanTarget};
use crate::cli::input::ConfigFile;
use crate::cli::settings::settings;
use crate::controller::GroupObject;
use crate::controller::planner::{ObserveError, Planner, Planning};
use crate::controller::stores::Stores;
use crate::controller::watches::spot_recommendations;
use crate::index::nodes;
use crate::index::nodes::NodeIndex;
use crate::index::process_state::ProcessState;
use crate::k8s;
use crate::k8s::KubeClient;
use crate::lock::is_locked;
use crate::settings::Timing;
use crate::util::lookup::Lookup;

/// The controller's default `--resync-period`. A command ends long before cached reads reach this age.
const MAX_CACHE_AGE: Duration = Duration::from_secs(300);
/// Attempts of an AWS call. Fewer than in the controller, because a user waits for the output.
const MAX_AWS_ATTEMPTS: u32 = 5;

/// Ignores all AWS call metrics.
struct NoopCallObserver;

impl CallObserver for NoopCallObserver {
    fn record_call(&self, _: &'static str, _: &'static str, _: &'static str) {}
}

/// The state of the cluster, read once.
pub(crate) struct ClusterSnapshot {
    /// The planner of the controller.
    pub planner: Planner,
    /// The AWS region.
    pub region: String,
    /// The client of the API server.
    pub client: Client,
    stores: Stores,
    /// The same with the live ConfigMap, if a file replaces it.
    live_stores: Option<Stores>,
}

impl ClusterSnapshot {
    /// Reads InstanceGroups, Namespaces, Nodes, aws-auth and the ConfigMap. `config` replaces the live ConfigMap.
    pub(crate) async fn read(args: &ClusterArgs, config: Option<ConfigFile>) -> anyhow::Result<Self> {
        let client = k8s::connect(args.kubeconfig.as_deref(), args.context.as_deref())
            .await
            .context("connecting to the API server")?;
        let connected = sdk::connect(Arc::new(NoopCallObserver), MAX_AWS_ATTEMPTS).await?;
        let planner = Planner {
            inventory: Inventory::new(connected.aws),
            kube: Arc::new(KubeClient::new(client.clone(), "plan")),
            node_index: Arc::new(NodeIndex::default()),
            process_state: Arc::new(ProcessState::default()),
            settings: settings(args, Timing::default(), MAX_CACHE_AGE),
        };
        let (groups, mut groups_writer) = reflector::store::<GroupObject>();
        let (namespaces, mut namespaces_writer) = reflector::store::<PartialObjectMeta<Namespace>>();
        for event in list_as_events(Api::<GroupObject>::all(client.clone()), "instancegroups").await? {
            groups_writer.apply_watcher_event(&event);
        }
        for event in list_as_events(Api::<PartialObjectMeta<Namespace>>::all(client.clone()), "namespaces").await? {
            namespaces_writer.apply_watcher_event(&event);
        }
        for mut event in list_as_events(Api::<Node>::all(client.clone()), "nodes").await? {
            if let Event::InitApply(node) = &mut event {
                nodes::trim(node);
            }
            planner.node_index.apply(&event);
        }
        // Without permission to read events, the plan uses only the recommendations stored in the status.
        let recommendations = Api::<k8s_openapi::api::core::v1::Event>::all(client.clone());
        let params = ListParams::default().fields(&spot_recommendations::field_selector());
        let recommended = recommendations.list(&params).await.map(|list| list.items).unwrap_or_default();
        let roles =
            get_config_map(&client, "kube-system", "aws-auth").await?.and_then(|map| map.data?.remove("mapRoles"));
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
        let snapshot = ClusterSnapshot { planner, region: connected.region, client, stores: stores(), live_stores };
        snapshot.load_boundaries(&args.config_namespace, config).await?;
        Ok(snapshot)
    }

    /// Loads the live boundaries, or those of a file. Applying a file keeps the annotations of the live ConfigMap, so its
    /// lock counts as well.
    async fn load_boundaries(&self, namespace: &str, config: Option<ConfigFile>) -> anyhow::Result<()> {
        let live = get_config_map(&self.client, namespace, CONFIG_MAP).await?;
        let live_annotations = live.as_ref().map(|map| map.annotations().clone()).unwrap_or_default();
        let live_data = live.map(|map| map.data.unwrap_or_default());
        let stored =
            self.planner.kube.last_known_good(namespace).await.context("reading the last known good boundaries")?;
        let were_configured = self.stores.groups.state().iter().any(|stored| had_boundaries(stored));
        let activate = |stores: &Stores, data: Option<&ConfigMapData>, locked: bool| {
            let (active, _) = select_active(data, stored.as_ref(), were_configured);
            *stores.config_map_locked.write().expect("lock is not poisoned") = locked;
            stores.boundaries.set(active);
        };
        let is_live_locked = is_locked(&live_annotations);
        match (&config, &self.live_stores) {
            (Some(config), Some(live_stores)) => {
                activate(live_stores, live_data.as_ref(), is_live_locked);
                activate(&self.stores, Some(&config.data), is_live_locked || is_locked(&config.annotations));
            }
            _ => activate(&self.stores, live_data.as_ref(), is_live_locked),
        }
        Ok(())
    }

    /// The boundaries that plans are based on.
    pub(crate) fn active_boundaries(&self) -> Arc<ActiveBoundaries> {
        self.stores.boundaries.get()
    }

    /// The groups of a target, by namespace and name.
    ///
    /// # Errors
    /// The one group that is asked for does not exist.
    pub(crate) fn select(&self, target: &PlanTarget) -> anyhow::Result<Vec<Arc<GroupObject>>> {
        let mut groups = self.stores.groups.state();
        groups.sort_by_key(|stored| crate::controller::group_key(stored));
        match target {
            PlanTarget::All => {}
            PlanTarget::Namespace(namespace) => {
                groups.retain(|stored| stored.namespace().as_ref() == Some(namespace));
            }
            PlanTarget::Group(namespace, name) => {
                let namespace = namespace.as_deref().unwrap_or(self.client.default_namespace());
                groups.retain(|stored| stored.namespace().as_deref() == Some(namespace) && stored.name_any() == *name);
                anyhow::ensure!(
                    !groups.is_empty(),
                    "InstanceGroup {namespace}/{name} not found; `kubectl get ig -A` lists all groups"
                );
            }
        }
        Ok(groups)
    }

    /// Whether a file replaces the live ConfigMap.
    pub(crate) fn has_config_file(&self) -> bool {
        self.live_stores.is_some()
    }

    /// The plan that the controller would make, and the lock that applies to the group.
    pub(crate) async fn plan(
        &self,
        group: &InstanceGroup,
        now: Timestamp,
    ) -> Result<(Planning, Option<String>), ObserveError> {
        self.plan_with(&self.stores, group, now).await
    }

    /// The plan that the controller makes with the live ConfigMap; `None` unless a file replaces that.
    pub(crate) async fn plan_live(
        &self,
        group: &InstanceGroup,
        now: Timestamp,
    ) -> Option<Result<(Planning, Option<String>), ObserveError>> {
        Some(self.plan_with(self.live_stores.as_ref()?, group, now).await)
    }

    async fn plan_with(
        &self,
        stores: &Stores,
        group: &InstanceGroup,
        now: Timestamp,
    ) -> Result<(Planning, Option<String>), ObserveError> {
        let context = stores.group_context(group, &self.planner);
        let mut planning = self.planner.plan(group, &context, MAX_CACHE_AGE, now).await?;
        // The first plan found a name conflict. Plan again with hashed names, as the controller does in its next reconcile.
        if self.planner.process_state.name_conflicts(&planning.plan.group) > 0 {
            planning = self.planner.plan(group, &context, MAX_CACHE_AGE, now).await?;
        }
        Ok((planning, context.lock))
    }
}

fn had_boundaries(stored: &GroupObject) -> bool {
    let status = stored.0.as_ref().ok().and_then(|group| group.status.as_ref());
    status.and_then(|s| s.config_md5.as_ref()).is_some_and(|md5| !md5.is_empty())
}

async fn get_config_map(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Option<ConfigMap>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    maps.get_opt(name).await.with_context(|| format!("reading the ConfigMap {namespace}/{name}"))
}

/// Lists all objects of one kind, as the initial events of a watch.
async fn list_as_events<K>(api: Api<K>, what: &str) -> anyhow::Result<Vec<Event<K>>>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut events = vec![Event::Init];
    let mut params = ListParams::default().limit(500);
    loop {
        let page = api.list(&params).await.with_context(|| format!("listing {what}"))?;
        params.continue_token = page.metadata.continue_.clone().filter(|token| !token.is_empty());
        events.extend(page.items.into_iter().map(Event::InitApply));
        if params.continue_token.is_none() {
            events.push(Event::InitDone);
            return Ok(events);
        }
    }
}
