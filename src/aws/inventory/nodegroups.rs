//! Managed node groups. EKS describes one at a time, so that a quiet resync costs one call for each.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use super::Inventory;
use super::batched_cache::{Batched, Read};
use super::cache_config::Ages;
use super::reads;
use crate::aws::nodegroup::{Nodegroup, NodegroupName};
use crate::aws::{Aws, AwsResult};

pub(super) struct NodegroupCaches {
    nodegroups: Arc<Batched<Arc<Nodegroup>>>,
    names: Arc<Batched<Arc<Vec<String>>>>,
}

impl NodegroupCaches {
    pub fn new(aws: &Aws, ages: Ages) -> Self {
        NodegroupCaches { nodegroups: Batched::new(1, ages, nodegroups(aws)), names: Batched::new(1, ages, names(aws)) }
    }
}

fn nodegroups(aws: &Aws) -> Read<Arc<Nodegroup>> {
    reads::one(aws, |aws, key| {
        async move {
            let Some(name) = NodegroupName::parse(&key) else { return Ok(None) };
            Ok(aws.nodegroups.describe_nodegroup(&name).await?.map(Arc::new))
        }
        .boxed()
    })
}

fn names(aws: &Aws) -> Read<Arc<Vec<String>>> {
    reads::one(aws, |aws, cluster| {
        async move { Ok(Some(Arc::new(aws.nodegroups.list_nodegroups(&cluster).await?))) }.boxed()
    })
}

impl Inventory {
    /// A node group by name. `None` only when EKS said that there is none.
    pub async fn nodegroup(&self, name: &NodegroupName, max_age: Duration) -> AwsResult<Option<Arc<Nodegroup>>> {
        self.nodegroups.nodegroups.get(&name.to_string(), max_age).await
    }

    /// The names of a cluster's node groups.
    pub async fn nodegroup_names(&self, cluster: &str, max_age: Duration) -> AwsResult<Arc<Vec<String>>> {
        Ok(self.nodegroups.names.get(cluster, max_age).await?.unwrap_or_default())
    }

    /// A node group was created, updated, tagged or deleted.
    pub fn wrote_nodegroup(&self, name: &NodegroupName) {
        self.nodegroups.nodegroups.stale(&name.to_string());
        self.nodegroups.names.stale(&name.cluster);
    }

    /// A node group is gone for good: nothing of it is kept.
    pub fn forget_nodegroup(&self, name: &NodegroupName) {
        let key = name.to_string();
        self.nodegroups.nodegroups.forget(|known| known == key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::inventory::stub::Stub;

    const OLD: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn a_quiet_node_group_is_read_once_and_again_after_a_write_of_ours() {
        let stub = Arc::new(Stub::default());
        let inventory = Inventory::with_ages(stub.aws(), Ages::default());
        let name = NodegroupName::new("demo", "web");
        for _ in 0..3 {
            assert!(inventory.nodegroup(&name, OLD).await.unwrap().is_none());
        }
        assert_eq!(stub.calls("node groups"), 1);
        inventory.wrote_nodegroup(&name);
        inventory.nodegroup(&name, OLD).await.unwrap();
        assert_eq!(stub.calls("node groups"), 2);
    }

    #[tokio::test]
    async fn what_eks_did_not_tell_is_not_absent() {
        let stub = Arc::new(Stub::default());
        let broken = crate::aws::AwsError::unanswered("EKS", "DescribeNodegroup", "Timeout", "no answer");
        stub.edit(|data| data.fail = Some(broken));
        let inventory = Inventory::with_ages(stub.aws(), Ages::default());
        let name = NodegroupName::new("demo", "web");
        assert!(inventory.nodegroup(&name, OLD).await.is_err());
        assert!(inventory.nodegroup_names("demo", OLD).await.is_err());
    }
}
