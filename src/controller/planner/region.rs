//! Whether a deletion waits because the controller works in another region than the group.

use super::Planner;
use super::detached_nodes::MAX_INSTANCES;
use crate::api::GroupId;
use crate::controller::recorded_cluster;
use crate::plan::Plan;
use crate::provisioner::observe::{ObserveError, ObserveResult};

impl Planner {
    /// The plan of a deletion in a region where the group has no nodes, although a Node of it is in another one.
    ///
    /// A kubelet chooses the labels and the zone of its Node, so that one Node proves nothing about another tenant's group. A
    /// cluster is in one region: the Node is ignored when AWS runs an instance of any node here.
    ///
    /// # Errors
    ///
    /// AWS did not say whether it runs such an instance. It is asked only while there is such a Node.
    pub(super) async fn blocked_by_region(&self, id: &GroupId) -> ObserveResult<Option<Plan>> {
        let aws = self.inventory.aws();
        let Some(plan) = recorded_cluster::blocked_by_region(id, &self.node_index, &aws.region) else {
            return Ok(None);
        };
        for ids in self.node_index.ready_instances_in(&aws.region).chunks(MAX_INSTANCES) {
            if !aws.ec2.running_instances(ids).await.map_err(ObserveError::Aws)?.is_empty() {
                return Ok(None);
            }
        }
        Ok(Some(plan))
    }
}
