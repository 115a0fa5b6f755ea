//! Executes plan steps on managed node groups.

use std::time::Duration;

use serde_json::json;

use super::ownership::to_tags;
use super::update::client_token;
use crate::apply::{Apply, ApplyRun, StepError, StepOutcome, StepResult, allow_tag_denied, done, ignore_not_found};
use crate::aws::nodegroup::NewNodegroup;
use crate::aws::{AwsErrorKind, AwsResult, Tag};
use crate::ownership::OWNERSHIP_TAG_KEYS;
use crate::plan::NodegroupStep;

/// The client token of a creation. It stays the same until the status changes, so that a repeated call creates nothing new.
/// A creation after a failed and deleted node group gets another token.
fn creation_token(input: &NewNodegroup, uid: &str, resource_version: &str) -> String {
    client_token(uid, &json!(input), resource_version)
}

impl Apply for NodegroupStep {
    async fn apply(&self, run: &mut ApplyRun<'_>) -> StepResult {
        let inventory = run.ctx.inventory;
        let eks = &inventory.aws().nodegroups;
        let (name, response) = match self {
            NodegroupStep::CreateNodegroup(input) => return create(run, input).await,
            NodegroupStep::UpdateNodegroup { nodegroup, change, token, change_hash, .. } => {
                let response = eks.update_nodegroup_config(nodegroup, change, token).await;
                inventory.invalidate_nodegroup(nodegroup);
                return record_update(run, response, change_hash).await;
            }
            NodegroupStep::UpdateNodegroupVersion { nodegroup, to, token, change_hash } => {
                let response = eks.update_nodegroup_version(nodegroup, to, token).await;
                inventory.invalidate_nodegroup(nodegroup);
                return record_update(run, response, change_hash).await;
            }
            NodegroupStep::TagNodegroup { nodegroup, arn, tags } => {
                (nodegroup, allow_tag_denied(eks.tag_nodegroup(arn, tags).await))
            }
            NodegroupStep::UntagNodegroup { nodegroup, arn, keys } => {
                (nodegroup, allow_tag_denied(eks.untag_nodegroup(arn, keys).await))
            }
            NodegroupStep::DeleteNodegroup { nodegroup } => {
                (nodegroup, ignore_not_found(eks.delete_nodegroup(nodegroup).await))
            }
        };
        inventory.invalidate_nodegroup(name);
        response
    }
}

/// Records the id of an update, the only way to read its result later. If this write fails, the node group's own status
/// still shows the update, and its client token prevents a second one.
async fn record_update(run: &ApplyRun<'_>, response: AwsResult<String>, change_hash: &str) -> StepResult {
    let status =
        json!({ "updateId": response.map_err(StepError::Aws)?, "updateOf": change_hash, "updateFailedAt": null });
    let (namespace, name) = (&run.id.namespace, &run.id.name);
    let version = run.ctx.kube.patch_status(namespace, name, &run.resource_version, status).await;
    version.map(StepOutcome::ObjectUpdated).map_err(StepError::Kube)
}

async fn create(run: &ApplyRun<'_>, input: &NewNodegroup) -> StepResult {
    let inventory = run.ctx.inventory;
    let token = creation_token(input, &run.id.uid, &run.resource_version);
    let response = inventory.aws().nodegroups.create_nodegroup(input, &token).await;
    inventory.invalidate_nodegroup(&input.name);
    match response {
        Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
            let found = inventory.nodegroup(&input.name, Duration::ZERO).await.map_err(StepError::Aws)?;
            let is_ownership_tag = |tag: &Tag| OWNERSHIP_TAG_KEYS.contains(&tag.key.as_str());
            let ownership: Vec<_> = to_tags(&input.tags).into_iter().filter(is_ownership_tag).collect();
            run.adopt_if_owned(&input.name.nodegroup, error, found.map(|found| to_tags(&found.tags)), &ownership)
        }
        other => done(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::nodegroup::{ImmutableFields, NodegroupName, NodegroupSizes};

    #[test]
    fn creation_token_changes_only_with_input_or_status() {
        let new = NewNodegroup {
            name: NodegroupName::new("demo", "web"),
            sizes: NodegroupSizes { min: 1, max: 2, desired: Some(1) },
            version: None,
            release_version: None,
            immutable: ImmutableFields::default(),
            labels: Default::default(),
            taints: Vec::new(),
            max_unavailable: None,
            repair: None,
            tags: Default::default(),
        };
        let first = creation_token(&new, "uid-1", "41");
        assert_eq!(creation_token(&new, "uid-1", "41"), first, "a lost response");
        assert_ne!(creation_token(&new, "uid-1", "57"), first, "the status has recorded a failure since");
        let other = NewNodegroup { version: Some("1.34".into()), ..new };
        assert_ne!(creation_token(&other, "uid-1", "41"), first);
    }
}
