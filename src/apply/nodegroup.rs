//! Managed node groups.

use std::time::Duration;

use serde_json::json;

use super::{Done, Run, Step_, Stopped, gone, ok, tagged};
use crate::aws::nodegroup::NewNodegroup;
use crate::aws::{AwsErrorKind, AwsResult, Tag};
use crate::plan::Step;
use crate::provisioner::eks_managed::state::tags;
use crate::provisioner::ownership::KEYS;

impl Run<'_> {
    pub(super) async fn nodegroup(&self, step: &Step) -> Step_ {
        let inventory = self.a.inventory;
        let eks = &inventory.aws().nodegroups;
        let (name, answer) = match step {
            Step::CreateNodegroup(input) => return self.create_nodegroup(input).await,
            Step::UpdateNodegroup { nodegroup, change, token, of } => {
                let answer = eks.update_nodegroup_config(nodegroup, change, token).await;
                inventory.wrote_nodegroup(nodegroup);
                return self.begun(answer, of).await;
            }
            Step::UpdateNodegroupVersion { nodegroup, to, token, of } => {
                let answer = eks.update_nodegroup_version(nodegroup, to, token).await;
                inventory.wrote_nodegroup(nodegroup);
                return self.begun(answer, of).await;
            }
            Step::TagNodegroup { nodegroup, arn, tags } => (nodegroup, tagged(eks.tag_nodegroup(arn, tags).await)),
            Step::UntagNodegroup { nodegroup, arn, keys } => (nodegroup, ok(eks.untag_nodegroup(arn, keys).await)),
            Step::DeleteNodegroup { nodegroup } => (nodegroup, gone(eks.delete_nodegroup(nodegroup).await)),
            other => unreachable!("{} is no step of a node group", other.name()),
        };
        inventory.wrote_nodegroup(name);
        answer
    }

    /// The id is the only way to learn how an update ended. Should writing it fail, the update is still seen by the node
    /// group's own status, and its client token keeps a second one from beginning.
    async fn begun(&self, answer: AwsResult<String>, of: &str) -> Step_ {
        let status = json!({ "updateId": answer.map_err(Stopped::Aws)?, "updateOf": of });
        let (namespace, name) = (&self.id.namespace, &self.id.name);
        let version = self.a.cluster.patch_status(namespace, name, &self.rv, status).await;
        version.map(Done::Version).map_err(Stopped::Cluster)
    }

    async fn create_nodegroup(&self, input: &NewNodegroup) -> Step_ {
        let inventory = self.a.inventory;
        let answer = inventory.aws().nodegroups.create_nodegroup(input).await;
        inventory.wrote_nodegroup(&input.name);
        match answer {
            Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
                let found = inventory.nodegroup(&input.name, Duration::ZERO).await.map_err(Stopped::Aws)?;
                let ours = |tag: &Tag| KEYS.contains(&tag.key.as_str());
                let ownership: Vec<_> = tags(&input.tags).into_iter().filter(ours).collect();
                self.ours(&input.name.nodegroup, error, found.map(|found| tags(&found.tags)), &ownership)
            }
            other => ok(other),
        }
    }
}
