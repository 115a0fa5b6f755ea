//! Managed node groups. EKS describes one per call, so a resync costs one call per node group.

use std::sync::Arc;
use std::time::Duration;

use super::Inventory;
use crate::aws::AwsResult;
use crate::aws::nodegroup::{Nodegroup, NodegroupName};

impl Inventory {
    /// A node group by name. `None` only after EKS reported that it does not exist.
    pub(crate) async fn nodegroup(&self, name: &NodegroupName, max_age: Duration) -> AwsResult<Option<Arc<Nodegroup>>> {
        self.nodegroups.nodegroups.get(&name.to_string(), max_age).await
    }

    /// The names of a cluster's node groups. Empty if the cluster does not exist.
    pub(crate) async fn nodegroup_names(&self, cluster: &str, max_age: Duration) -> AwsResult<Arc<Vec<String>>> {
        Ok(self.nodegroups.names.get(cluster, max_age).await?.unwrap_or_default())
    }

    /// A node group was created, updated, tagged or deleted.
    pub(crate) fn invalidate_nodegroup(&self, name: &NodegroupName) {
        self.nodegroups.nodegroups.invalidate(&name.to_string());
        self.nodegroups.names.invalidate(&name.cluster);
    }

    /// Drops all cached data of a deleted node group.
    pub(crate) fn forget_nodegroup(&self, name: &NodegroupName) {
        let key = name.to_string();
        self.nodegroups.nodegroups.remove_where(|cached| cached == key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::inventory::CacheConfig;
    use crate::aws::inventory::fake_aws::FakeAws;

    const ANY_AGE: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn nodegroup_is_read_again_only_after_a_write() {
        let fake = Arc::new(FakeAws::default());
        let inventory = Inventory::with_config(fake.aws(), CacheConfig::default());
        let name = NodegroupName::new("demo", "web");
        for _ in 0..3 {
            assert!(inventory.nodegroup(&name, ANY_AGE).await.unwrap().is_none());
        }
        assert_eq!(fake.calls("node group"), 1);
        inventory.invalidate_nodegroup(&name);
        inventory.nodegroup(&name, ANY_AGE).await.unwrap();
        assert_eq!(fake.calls("node group"), 2);
    }

    #[tokio::test]
    async fn failed_read_is_not_absence() {
        let fake = Arc::new(FakeAws::default());
        let timeout = crate::aws::AwsError::no_response("EKS", "DescribeNodegroup", "Timeout", "no response");
        fake.update(|data| data.failure = Some(timeout));
        let inventory = Inventory::with_config(fake.aws(), CacheConfig::default());
        let name = NodegroupName::new("demo", "web");
        assert!(inventory.nodegroup(&name, ANY_AGE).await.is_err());
        assert!(inventory.nodegroup_names("demo", ANY_AGE).await.is_err());
    }
}
