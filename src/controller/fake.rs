//! A planner and a context for tests, over a fake AWS and a fake API server.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use kube::Client;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef};

use super::context::Context;
use super::planner::Planner;
use super::stores::Stores;
use crate::api::{GroupObject, InstanceGroup, InstanceGroupSpec};
use crate::aws::inventory::fake_aws::FakeAws;
use crate::aws::inventory::{CacheConfig, Inventory};
use crate::index::nodes::NodeIndex;
use crate::index::process_state::ProcessState;
use crate::k8s::KubeClient;
use crate::leader::election;
use crate::leader::other_controller::ConflictDetector;
use crate::settings::Settings;
use crate::telemetry::metrics::Metrics;

/// A planner with the default settings.
pub(super) fn planner(aws: &Arc<FakeAws>, client: Client, node_index: NodeIndex) -> Planner {
    Planner {
        inventory: Inventory::with_config(aws.aws(), CacheConfig::default()),
        kube: Arc::new(KubeClient::new(client, "test")),
        node_index: Arc::new(node_index),
        process_state: Arc::new(ProcessState::default()),
        settings: Settings::default(),
    }
}

/// A context that leads, and what a test needs beside it.
pub(super) struct TestContext {
    pub ctx: Arc<Context>,
    /// Fills the store of groups.
    pub groups: Option<Writer<GroupObject>>,
    queue: UnboundedReceiver<ObjectRef<GroupObject>>,
}

impl TestContext {
    /// The keys of the groups that were enqueued since the last call.
    pub(super) fn enqueued(&mut self) -> Vec<String> {
        let next = || self.queue.try_recv().ok();
        let keys = std::iter::from_fn(next);
        keys.map(|object| format!("{}/{}", object.namespace.unwrap_or_default(), object.name)).collect()
    }
}

/// A context with the default settings and empty stores.
pub(super) fn context(client: Client) -> TestContext {
    let (groups, writer) = reflector::store();
    let (queue, receiver) = unbounded();
    let ctx = Context {
        planner: planner(&Arc::new(FakeAws::default()), client, NodeIndex::default()),
        stores: Stores::new(groups, reflector::store().0),
        metrics: Arc::new(Metrics::new().expect("metrics")),
        leadership: election::always(),
        write_blocked: Default::default(),
        conflict_detector: ConflictDetector::new(Duration::from_secs(300), Duration::ZERO),
        aws_auth_writer: Default::default(),
        prometheus: None,
        config_namespace: "im".into(),
        region: "us-west-2".into(),
        own_role: Default::default(),
        labels_nodes: false,
        restart: tokio::sync::Notify::new(),
        rejections: Default::default(),
        queue,
        started_at: tokio::time::Instant::now(),
    };
    TestContext { ctx: Arc::new(ctx), groups: Some(writer), queue: receiver }
}

/// A group of the namespace `team`.
pub(super) fn group_object(name: &str, uid: &str) -> GroupObject {
    let mut group = InstanceGroup::new(name, InstanceGroupSpec::default());
    group.metadata.namespace = Some("team".into());
    group.metadata.uid = Some(uid.into());
    GroupObject(Ok(group))
}
