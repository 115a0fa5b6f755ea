//! The implementation of [`KubeApi`] with a kube client.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use super::{
    AttachedVolume, AwsAuthMap, DrainBlocker, DrainForecast, EventTarget, EvictOutcome, KubeApi, KubeError, KubeEvent,
    PodInfo, ReportedRejections, UnschedulablePod, ZoneBoundPod, access_review, config_maps, drain_forecast, groups,
    nodes, pods, revisions, strategy, zone_volumes,
};
use crate::api::BoundariesRevision;
use crate::lock::Locks;
use crate::rotation::crd::{DiscoveredKind, ResourceKind};

/// Connects with the given kubeconfig, or else with the environment's configuration or the pod's service account.
/// `context` names a context of the kubeconfig; without it, the current one counts. `user` is impersonated.
///
/// The client never retries a request. By default kube waits for the `Retry-After` of a blocked eviction up to fifteen
/// times within one call.
pub(crate) async fn connect_as(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    user: Option<&str>,
) -> Result<Client, kube::Error> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let mut config = match (kubeconfig, context) {
        (Some(path), _) => {
            let file = Kubeconfig::read_from(path)?;
            Config::from_custom_kubeconfig(file, &options).await?
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await?,
        (None, None) => Config::infer().await.map_err(kube::Error::InferConfig)?,
    };
    config.default_retry = false;
    if let Some(user) = user {
        config.auth_info.impersonate = Some(user.to_owned());
    }
    Client::try_from(config)
}

/// A client of the real cluster.
#[derive(Clone)]
pub(crate) struct KubeClient {
    client: Client,
    identity: String,
}

impl KubeClient {
    /// `identity` names this process in events, for example by the pod's name.
    pub(crate) fn new(client: Client, identity: impl Into<String>) -> Self {
        let identity = identity.into();
        Self { client, identity }
    }
}

#[async_trait]
impl KubeApi for KubeClient {
    async fn patch_status(
        &self,
        namespace: &str,
        name: &str,
        resource_version: &str,
        status: Value,
    ) -> Result<String, KubeError> {
        groups::patch_status(&self.client, namespace, name, resource_version, status).await
    }

    async fn add_finalizer(
        &self,
        namespace: &str,
        name: &str,
        resource_version: &str,
        present: &[String],
    ) -> Result<String, KubeError> {
        groups::add_finalizer(&self.client, namespace, name, resource_version, present).await
    }

    async fn remove_finalizer(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        present: &[String],
    ) -> Result<(), KubeError> {
        groups::remove_finalizer(&self.client, namespace, name, uid, present).await
    }

    async fn publish(&self, target: &EventTarget, event: &KubeEvent) -> Result<(), KubeError> {
        groups::publish(&self.client, &self.identity, target, event).await
    }

    async fn node(&self, name: &str) -> Result<Option<Node>, KubeError> {
        nodes::get(&self.client, name).await
    }

    async fn cordon_node(&self, name: &str, resource_version: &str, disruption: &Value) -> Result<String, KubeError> {
        nodes::cordon(&self.client, name, resource_version, disruption).await
    }

    async fn set_surge_record(&self, name: &str, resource_version: &str, record: &Value) -> Result<(), KubeError> {
        nodes::set_surge_record(&self.client, name, resource_version, record).await
    }

    async fn clear_surge_record(&self, name: &str, since: Timestamp) -> Result<bool, KubeError> {
        nodes::clear_surge_record(&self.client, name, since).await
    }

    async fn uncordon_node(&self, name: &str, drain_after: Option<Timestamp>) -> Result<bool, KubeError> {
        nodes::uncordon(&self.client, name, drain_after).await
    }

    async fn label_node(&self, name: &str, labels: &BTreeMap<String, String>) -> Result<(), KubeError> {
        nodes::label(&self.client, name, labels).await
    }

    async fn patch_node(&self, name: &str, patch: Value) -> Result<(), KubeError> {
        nodes::patch(&self.client, name, patch).await.map(drop)
    }

    async fn pods_on_node(&self, name: &str) -> Result<Vec<PodInfo>, KubeError> {
        pods::on_node(&self.client, name).await
    }

    async fn drain_forecast(&self, nodes: &BTreeSet<String>) -> Result<DrainForecast, KubeError> {
        drain_forecast::read(&self.client, nodes).await
    }

    async fn eviction_blockers(&self, node: &str) -> Result<Vec<DrainBlocker>, KubeError> {
        drain_forecast::read_node(&self.client, node).await
    }

    async fn zone_bound_pods(&self, nodes: &BTreeSet<String>) -> Result<Vec<ZoneBoundPod>, KubeError> {
        zone_volumes::read(&self.client, nodes).await
    }

    async fn evict(&self, namespace: &str, name: &str, uid: &str) -> Result<EvictOutcome, KubeError> {
        pods::evict(&self.client, namespace, name, uid).await
    }

    async fn delete_pod(&self, namespace: &str, name: &str, uid: &str, grace: Option<u32>) -> Result<(), KubeError> {
        pods::delete(&self.client, namespace, name, uid, grace).await
    }

    async fn is_allowed(&self, verb: &str, resource: &str, namespace: Option<&str>) -> Result<bool, KubeError> {
        access_review::is_allowed(&self.client, verb, resource, namespace).await
    }

    async fn volume_attachments(&self, node: &str) -> Result<Vec<AttachedVolume>, KubeError> {
        nodes::volume_attachments(&self.client, node).await
    }

    async fn unschedulable_pods(
        &self,
        namespace: &str,
        owners: &BTreeSet<String>,
    ) -> Result<Vec<UnschedulablePod>, KubeError> {
        pods::unschedulable(&self.client, namespace, owners).await
    }

    async fn group_version(&self, namespace: &str, name: &str) -> Result<Option<String>, KubeError> {
        groups::group_version(&self.client, namespace, name).await
    }

    async fn group_deletion(&self, namespace: &str, name: &str) -> Result<Option<String>, KubeError> {
        groups::group_deletion(&self.client, namespace, name).await
    }

    async fn locks(&self, namespace: &str, group: &str, config_namespace: &str) -> Result<Locks, KubeError> {
        groups::locks(&self.client, namespace, group, config_namespace).await
    }

    async fn aws_auth(&self) -> Result<Option<AwsAuthMap>, KubeError> {
        config_maps::aws_auth(&self.client).await
    }

    async fn update_aws_auth(&self, resource_version: &str, map_roles: &str) -> Result<(), KubeError> {
        config_maps::update_aws_auth(&self.client, resource_version, map_roles).await
    }

    async fn create_aws_auth(&self, map_roles: &str) -> Result<(), KubeError> {
        config_maps::create_aws_auth(&self.client, map_roles).await
    }

    async fn last_known_good(&self, config_namespace: &str) -> Result<Option<BTreeMap<String, String>>, KubeError> {
        config_maps::last_known_good(&self.client, config_namespace).await
    }

    async fn put_last_known_good(
        &self,
        config_namespace: &str,
        data: &BTreeMap<String, String>,
    ) -> Result<bool, KubeError> {
        config_maps::put_last_known_good(&self.client, config_namespace, data).await
    }

    async fn boundaries_revisions(&self, namespace: &str) -> Result<Option<Vec<BoundariesRevision>>, KubeError> {
        revisions::list(&self.client, namespace).await
    }

    async fn create_boundaries_revision(&self, revision: &BoundariesRevision) -> Result<(), KubeError> {
        revisions::create(&self.client, revision).await
    }

    async fn patch_revision_status(
        &self,
        namespace: &str,
        name: &str,
        resource_version: &str,
        status: Value,
    ) -> Result<(), KubeError> {
        revisions::patch_status(&self.client, namespace, name, resource_version, status).await
    }

    async fn delete_boundaries_revision(&self, namespace: &str, name: &str, uid: &str) -> Result<(), KubeError> {
        revisions::delete(&self.client, namespace, name, uid).await
    }

    async fn reported_rejections(&self, config_namespace: &str) -> Result<ReportedRejections, KubeError> {
        config_maps::reported_rejections(&self.client, config_namespace).await
    }

    async fn set_reported_rejections(&self, config_namespace: &str, revision: &str) -> Result<(), KubeError> {
        config_maps::set_reported_rejections(&self.client, config_namespace, revision).await
    }

    async fn discover_kind(&self, group: &str, version: &str, kind: &str) -> Result<Option<DiscoveredKind>, KubeError> {
        strategy::discover_kind(&self.client, group, version, kind).await
    }

    async fn strategy_resource(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, KubeError> {
        strategy::get(&self.client, kind, namespace, name).await
    }

    async fn strategy_resources(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        scaling_group: &str,
    ) -> Result<Vec<Value>, KubeError> {
        strategy::list(&self.client, kind, namespace, scaling_group).await
    }

    async fn create_strategy_resource(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        object: &Value,
    ) -> Result<Option<String>, KubeError> {
        strategy::create(&self.client, kind, namespace, object).await
    }

    async fn delete_strategy_resource(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), KubeError> {
        strategy::delete(&self.client, kind, namespace, name, uid).await
    }
}
