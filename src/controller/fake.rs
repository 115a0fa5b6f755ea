//! A planner for tests, over a fake AWS and a fake API server.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;

use super::planner::Planner;
use crate::api::ScalingConfigurationKind;
use crate::auth::JoinAuth;
use crate::aws::inventory::fake_aws::FakeAws;
use crate::aws::inventory::{CacheConfig, Inventory};
use crate::index::nodes::NodeIndex;
use crate::index::process_state::ProcessState;
use crate::k8s::KubeClient;
use crate::settings::{Settings, Timing};

/// A planner with the default settings.
pub(super) fn planner(aws: &Arc<FakeAws>, client: Client, node_index: NodeIndex) -> Planner {
    Planner {
        inventory: Inventory::with_config(aws.aws(), CacheConfig::default()),
        kube: Arc::new(KubeClient::new(client, "test")),
        node_index: Arc::new(node_index),
        process_state: Arc::new(ProcessState::default()),
        settings: Settings {
            timing: Timing::default(),
            resync_period: Duration::from_secs(300),
            config_retention: 2,
            cluster_name: None,
            default_scaling_configuration: ScalingConfigurationKind::LaunchTemplate,
            windows_discovers_endpoint: false,
            join_auth: JoinAuth::Auto,
            config_namespace: "instance-manager".into(),
        },
    }
}
