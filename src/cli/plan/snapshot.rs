//! One look at the cluster, into the same stores that the controller's watches fill.

use std::collections::BTreeMap;
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
use crate::api::names::{CONFIG_MAP, annotation};
use crate::aws::inventory::Inventory;
use crate::aws::sdk::{self, CallObserver};
use crate::boundaries::active::{ActiveBoundaries, select_active};
use crate::cli::args::ClusterArgs;
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
use crate::settings::Timing;

/// The controller's default `--resync-period`; nothing here lives that long.
const MAX_CACHE_AGE: Duration = Duration::from_secs(300);
/// Attempts at a call to AWS: a person waits.
const MAX_AWS_ATTEMPTS: u32 = 5;

/// Counts nothing.
struct NoopCallObserver;

impl CallObserver for NoopCallObserver {
    fn record_call(&self, _: &'static str, _: &'static str, _: &'static str) {}
}

/// The cluster as it is now.
pub struct ClusterSnapshot {
    /// The controller's own corridor.
    pub planner: Planner,
    /// The region that AWS is asked in.
    pub region: String,
    stores: Stores,
}

impl ClusterSnapshot {
    /// Reads InstanceGroups, Namespaces, nodes, aws-auth and the ConfigMap, or `config` in its place.
    pub async fn read(args: &ClusterArgs, config: Option<ConfigFile>) -> anyhow::Result<Self> {
        let client = k8s::connect(args.kubeconfig.as_deref()).await.context("connecting to the API server")?;
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
        // Who may not read events plans without recommendations, as those that the status remembers still count.
        let recommendations = Api::<k8s_openapi::api::core::v1::Event>::all(client.clone());
        let params = ListParams::default().fields(&spot_recommendations::field_selector());
        let recommended = recommendations.list(&params).await.map(|list| list.items).unwrap_or_default();
        let world = ClusterSnapshot { planner, region: connected.region, stores: Stores::new(groups, namespaces) };
        world.stores.groups.state().iter().for_each(|stored| world.stores.group_index.upsert(stored));
        for event in &recommended {
            let _ = spot_recommendations::ingest(event, &world.stores.recommendations, Timestamp::now());
        }
        let roles =
            get_config_map(&client, "kube-system", "aws-auth").await?.and_then(|map| map.data?.remove("mapRoles"));
        *world.stores.map_roles.write().expect("nobody panics holding it") = Some(roles);
        world.load_boundaries(&client, &args.config_namespace, config).await?;
        Ok(world)
    }

    async fn load_boundaries(
        &self,
        client: &Client,
        namespace: &str,
        config: Option<ConfigFile>,
    ) -> anyhow::Result<()> {
        let live = match config {
            Some(config) => Some(config),
            None => get_config_map(client, namespace, CONFIG_MAP).await?.map(|map| ConfigFile {
                annotations: map.annotations().clone(),
                data: map.data.unwrap_or_default(),
                diagnostics: Vec::new(),
            }),
        };
        let stored = self.planner.kube.last_known_good(namespace).await.context("reading the last good boundaries")?;
        let had_one = self.stores.groups.state().iter().any(|stored| had_boundaries(stored));
        let (in_force, _) = select_active(live.as_ref().map(|l| &l.data), stored.as_ref(), had_one);
        let held = |annotations: &BTreeMap<String, String>| annotation::is_true(annotations, annotation::LOCK_UPGRADES);
        *self.stores.config_map_locked.write().expect("nobody panics holding it") =
            live.is_some_and(|l| held(&l.annotations));
        self.stores.boundaries.set(in_force);
        Ok(())
    }

    /// Which boundaries this plan goes by.
    pub fn active_boundaries(&self) -> Arc<ActiveBoundaries> {
        self.stores.boundaries.get()
    }

    /// One group, or all of them by namespace and name.
    pub fn select(&self, target: Option<&(String, String)>) -> anyhow::Result<Vec<Arc<GroupObject>>> {
        let mut groups = self.stores.groups.state();
        groups.sort_by_key(|stored| crate::controller::group_key(stored));
        let Some((namespace, name)) = target else { return Ok(groups) };
        groups.retain(|stored| stored.namespace().as_deref() == Some(namespace) && stored.name_any() == *name);
        anyhow::ensure!(
            !groups.is_empty(),
            "there is no InstanceGroup {namespace}/{name}; `kubectl get ig -A` lists them"
        );
        Ok(groups)
    }

    /// The controller's own walk, and who holds the brake.
    pub async fn plan(
        &self,
        group: &InstanceGroup,
        now: Timestamp,
    ) -> Result<(Planning, Option<String>), ObserveError> {
        let around = self.stores.group_context(group, &self.planner);
        let mut walked = self.planner.plan(group, &around, MAX_CACHE_AGE, now).await?;
        // Only now it is known that another owner has the derived names; the controller's next pass takes others.
        if self.planner.process_state.has_name_conflict(&walked.plan.group) {
            walked = self.planner.plan(group, &around, MAX_CACHE_AGE, now).await?;
        }
        Ok((walked, around.lock))
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

/// Everything of one kind, as the events of a watch that has just begun.
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
