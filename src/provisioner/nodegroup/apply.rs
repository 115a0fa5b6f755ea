//! Managed node groups.

use std::time::Duration;

use serde_json::json;

use super::observed::tags;
use super::update::token;
use crate::apply::{Apply, Done, Run, Stepped, Stopped, gone, ok, tagged};
use crate::aws::nodegroup::NewNodegroup;
use crate::aws::{AwsErrorKind, AwsResult, Tag};
use crate::ownership::KEYS;
use crate::plan::NodegroupStep;

/// The client token of a creation: the same until the status tells what came of it, so that a repeated call asks for
/// the same node group, and one after a node group that failed and was deleted asks for another.
fn creation(input: &NewNodegroup, uid: &str, resource_version: &str) -> String {
    token(uid, &json!(input), resource_version)
}

impl Apply for NodegroupStep {
    async fn apply(&self, run: &mut Run<'_>) -> Stepped {
        let inventory = run.a.inventory;
        let eks = &inventory.aws().nodegroups;
        let (name, answer) = match self {
            NodegroupStep::CreateNodegroup(input) => return create(run, input).await,
            NodegroupStep::UpdateNodegroup { nodegroup, change, token, of, .. } => {
                let answer = eks.update_nodegroup_config(nodegroup, change, token).await;
                inventory.wrote_nodegroup(nodegroup);
                return begun(run, answer, of).await;
            }
            NodegroupStep::UpdateNodegroupVersion { nodegroup, to, token, of } => {
                let answer = eks.update_nodegroup_version(nodegroup, to, token).await;
                inventory.wrote_nodegroup(nodegroup);
                return begun(run, answer, of).await;
            }
            NodegroupStep::TagNodegroup { nodegroup, arn, tags } => {
                (nodegroup, tagged(eks.tag_nodegroup(arn, tags).await))
            }
            NodegroupStep::UntagNodegroup { nodegroup, arn, keys } => {
                (nodegroup, tagged(eks.untag_nodegroup(arn, keys).await))
            }
            NodegroupStep::DeleteNodegroup { nodegroup } => (nodegroup, gone(eks.delete_nodegroup(nodegroup).await)),
        };
        inventory.wrote_nodegroup(name);
        answer
    }
}

/// The id is the only way to learn how an update ended. Should writing it fail, the update is still seen by the node
/// group's own status, and its client token keeps a second one from beginning.
async fn begun(run: &Run<'_>, answer: AwsResult<String>, of: &str) -> Stepped {
    let status = json!({ "updateId": answer.map_err(Stopped::Aws)?, "updateOf": of });
    let (namespace, name) = (&run.id.namespace, &run.id.name);
    let version = run.a.cluster.patch_status(namespace, name, &run.rv, status).await;
    version.map(Done::Version).map_err(Stopped::Cluster)
}

async fn create(run: &Run<'_>, input: &NewNodegroup) -> Stepped {
    let inventory = run.a.inventory;
    let token = creation(input, &run.id.uid, &run.rv);
    let answer = inventory.aws().nodegroups.create_nodegroup(input, &token).await;
    inventory.wrote_nodegroup(&input.name);
    match answer {
        Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
            let found = inventory.nodegroup(&input.name, Duration::ZERO).await.map_err(Stopped::Aws)?;
            let ours = |tag: &Tag| KEYS.contains(&tag.key.as_str());
            let ownership: Vec<_> = tags(&input.tags).into_iter().filter(ours).collect();
            run.ours(&input.name.nodegroup, error, found.map(|found| tags(&found.tags)), &ownership)
        }
        other => ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::nodegroup::{NodegroupName, NodegroupSizes, Shape};

    #[test]
    fn a_repeated_creation_has_the_same_token_and_a_later_one_has_another() {
        let new = NewNodegroup {
            name: NodegroupName::new("demo", "web"),
            sizes: NodegroupSizes { min: 1, max: 2, desired: Some(1) },
            version: None,
            release_version: None,
            shape: Shape::default(),
            labels: Default::default(),
            taints: Vec::new(),
            max_unavailable: None,
            repair: None,
            tags: Default::default(),
        };
        let first = creation(&new, "uid-1", "41");
        assert_eq!(creation(&new, "uid-1", "41"), first, "an answer that was lost");
        assert_ne!(creation(&new, "uid-1", "57"), first, "the status told of a failure since");
        let other = NewNodegroup { version: Some("1.34".into()), ..new };
        assert_ne!(creation(&other, "uid-1", "41"), first);
    }
}
