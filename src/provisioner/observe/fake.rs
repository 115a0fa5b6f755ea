//! What an observer reads from in unit tests.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;

use super::Observer;
use crate::api::GroupObject;
use crate::auth::aws_auth::MapRoles;
use crate::aws::inventory::fake_aws::FakeAws;
use crate::aws::inventory::{CacheConfig, Inventory};
use crate::index::groups::GroupIndex;
use crate::index::nodes::NodeIndex;
use crate::index::process_state::ProcessState;
use crate::k8s::{KubeClient, fake};

/// A cluster without nodes, other groups and entries in aws-auth, above a fake AWS. Reads are not cached, and a call of the
/// API server panics.
pub(crate) struct FakeCluster {
    inventory: Arc<Inventory>,
    kube: KubeClient,
    node_index: NodeIndex,
    process_state: ProcessState,
    map_roles: MapRoles,
    group_index: GroupIndex,
}

impl FakeCluster {
    pub(crate) fn new(fake_aws: &Arc<FakeAws>) -> FakeCluster {
        let client = fake::client(|call| panic!("unexpected call: {call:?}"));
        let config = CacheConfig {
            batch_idle: Duration::from_millis(1),
            prefetch_age: Duration::ZERO,
            ..CacheConfig::default()
        };
        FakeCluster {
            inventory: Inventory::with_config(fake_aws.aws(), config),
            kube: KubeClient::new(client, "test"),
            node_index: NodeIndex::default(),
            process_state: ProcessState::default(),
            map_roles: MapRoles::default(),
            group_index: GroupIndex::default(),
        }
    }

    /// With an inventory that reads again whatever was not found, or rejected, at once.
    pub(crate) fn without_negative_ttl(self, fake_aws: &Arc<FakeAws>) -> FakeCluster {
        let config = CacheConfig {
            batch_idle: Duration::from_millis(1),
            negative_ttl: Duration::ZERO,
            ..CacheConfig::default()
        };
        FakeCluster { inventory: Inventory::with_config(fake_aws.aws(), config), ..self }
    }

    /// With this API server.
    pub(crate) fn with_client(self, client: Client) -> FakeCluster {
        FakeCluster { kube: KubeClient::new(client, "test"), ..self }
    }

    /// With this `mapRoles` in aws-auth.
    pub(crate) fn with_map_roles(self, text: &str) -> FakeCluster {
        FakeCluster { map_roles: MapRoles::parse(Some(text)), ..self }
    }

    /// With these other groups.
    pub(crate) fn with_groups(self, groups: &[GroupObject]) -> FakeCluster {
        groups.iter().for_each(|group| self.group_index.upsert(group));
        self
    }

    /// An observer at the epoch.
    pub(crate) fn observer(&self) -> Observer<'_> {
        Observer {
            inventory: &self.inventory,
            kube: &self.kube,
            node_index: &self.node_index,
            process_state: &self.process_state,
            map_roles: &self.map_roles,
            group_index: &self.group_index,
            images: None,
            max_cache_age: Duration::ZERO,
            shared_max_cache_age: Duration::ZERO,
            consistency_delay: jiff::SignedDuration::ZERO,
            launch_retry: jiff::SignedDuration::from_mins(30),
            drain_retry: jiff::SignedDuration::from_mins(5),
            is_forecast: false,
            unready_limit: jiff::SignedDuration::from_mins(5),
            now: Timestamp::UNIX_EPOCH,
        }
    }
}
