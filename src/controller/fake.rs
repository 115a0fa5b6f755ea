//! A planner for tests, over a fake AWS and a fake API server.

use std::sync::Arc;

use kube::Client;

use super::planner::Planner;
use crate::aws::inventory::fake_aws::FakeAws;
use crate::aws::inventory::{CacheConfig, Inventory};
use crate::index::nodes::NodeIndex;
use crate::index::process_state::ProcessState;
use crate::k8s::KubeClient;
use crate::settings::Settings;

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
