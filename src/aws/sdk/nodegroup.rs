//! Managed node groups of Amazon EKS.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use aws_sdk_eks::Client;
use aws_sdk_eks::types as sdk;

use super::convert::{missing, owned_text, required, timestamp, to_aws_error};
use crate::aws::AwsResult;
use crate::aws::error::none_if_not_found;
use crate::aws::nodegroup::*;

pub(super) struct NodegroupSdk(pub Client);

#[async_trait]
impl NodegroupApi for NodegroupSdk {
    async fn describe_nodegroup(&self, name: &NodegroupName) -> AwsResult<Option<Nodegroup>> {
        let call = self.0.describe_nodegroup().cluster_name(&name.cluster).nodegroup_name(&name.nodegroup);
        let response = none_if_not_found(call.send().await.map_err(to_aws_error("EKS", "DescribeNodegroup")))?;
        response.and_then(|a| a.nodegroup).map(|found| nodegroup(&found)).transpose()
    }

    async fn list_nodegroups(&self, cluster: &str) -> AwsResult<Vec<String>> {
        let pages = self.0.list_nodegroups().cluster_name(cluster).into_paginator().items().send();
        let found: Result<Vec<_>, _> = pages.collect().await;
        Ok(none_if_not_found(found.map_err(to_aws_error("EKS", "ListNodegroups")))?.unwrap_or_default())
    }

    async fn create_nodegroup(&self, input: &NewNodegroup, client_token: &str) -> AwsResult<()> {
        let immutable = &input.immutable;
        let remote = immutable.key_pair.as_ref().map(|key| {
            let groups = Some(immutable.security_groups.clone()).filter(|groups| !groups.is_empty());
            sdk::RemoteAccessConfig::builder().ec2_ssh_key(key).set_source_security_groups(groups).build()
        });
        self.0
            .create_nodegroup()
            .cluster_name(&input.name.cluster)
            .nodegroup_name(&input.name.nodegroup)
            .scaling_config(sizes(&input.sizes))
            .set_disk_size(immutable.disk_size)
            .set_subnets(Some(immutable.subnets.clone()))
            .set_instance_types(Some(immutable.instance_types.clone()).filter(|types| !types.is_empty()))
            .set_ami_type(immutable.ami_type.as_deref().map(Into::into))
            .set_remote_access(remote)
            .node_role(&immutable.node_role)
            .set_labels(Some(to_hash_map(&input.labels)).filter(|labels| !labels.is_empty()))
            .set_taints(Some(taints(&input.taints)).filter(|taints| !taints.is_empty()))
            .set_tags(Some(to_hash_map(&input.tags)))
            .client_request_token(client_token)
            .set_update_config(input.max_unavailable.map(update_config))
            .set_node_repair_config(input.repair.map(repair))
            .set_capacity_type(immutable.capacity_type.as_deref().map(Into::into))
            .set_version(input.version.clone())
            .set_release_version(input.release_version.clone())
            .send()
            .await
            .map(|_| ())
            .map_err(to_aws_error("EKS", "CreateNodegroup"))
    }

    async fn update_nodegroup_config(
        &self,
        name: &NodegroupName,
        change: &NodegroupChange,
        client_token: &str,
    ) -> AwsResult<String> {
        let labels = (!change.set_labels.is_empty() || !change.remove_labels.is_empty()).then(|| {
            sdk::UpdateLabelsPayload::builder()
                .set_add_or_update_labels(Some(to_hash_map(&change.set_labels)).filter(|labels| !labels.is_empty()))
                .set_remove_labels(Some(change.remove_labels.clone()).filter(|keys| !keys.is_empty()))
                .build()
        });
        let taint_changes = (!change.set_taints.is_empty() || !change.remove_taints.is_empty()).then(|| {
            sdk::UpdateTaintsPayload::builder()
                .set_add_or_update_taints(Some(taints(&change.set_taints)).filter(|taints| !taints.is_empty()))
                .set_remove_taints(Some(taints(&change.remove_taints)).filter(|taints| !taints.is_empty()))
                .build()
        });
        let response = self
            .0
            .update_nodegroup_config()
            .cluster_name(&name.cluster)
            .nodegroup_name(&name.nodegroup)
            .set_labels(labels)
            .set_taints(taint_changes)
            .set_scaling_config(change.sizes.as_ref().map(sizes))
            .set_update_config(change.max_unavailable.map(update_config))
            .set_node_repair_config(change.repair.map(repair))
            .client_request_token(client_token)
            .send()
            .await
            .map_err(to_aws_error("EKS", "UpdateNodegroupConfig"))?;
        Ok(owned_text(response.update().and_then(|update| update.id())))
    }

    async fn update_nodegroup_version(
        &self,
        name: &NodegroupName,
        to: &NodegroupVersion,
        client_token: &str,
    ) -> AwsResult<String> {
        let response = self
            .0
            .update_nodegroup_version()
            .cluster_name(&name.cluster)
            .nodegroup_name(&name.nodegroup)
            .version(&to.version)
            .set_release_version(to.release_version.clone())
            .client_request_token(client_token)
            .send()
            .await
            .map_err(to_aws_error("EKS", "UpdateNodegroupVersion"))?;
        Ok(owned_text(response.update().and_then(|update| update.id())))
    }

    async fn describe_update(&self, name: &NodegroupName, id: &str) -> AwsResult<Option<NodegroupUpdate>> {
        let call = self.0.describe_update().name(&name.cluster).nodegroup_name(&name.nodegroup).update_id(id);
        let response = none_if_not_found(call.send().await.map_err(to_aws_error("EKS", "DescribeUpdate")))?;
        Ok(response.and_then(|a| a.update).map(|found| update(&found)))
    }

    async fn delete_nodegroup(&self, name: &NodegroupName) -> AwsResult<()> {
        let call = self.0.delete_nodegroup().cluster_name(&name.cluster).nodegroup_name(&name.nodegroup);
        call.send().await.map(|_| ()).map_err(to_aws_error("EKS", "DeleteNodegroup"))
    }

    async fn tag_nodegroup(&self, arn: &str, tags: &BTreeMap<String, String>) -> AwsResult<()> {
        let call = self.0.tag_resource().resource_arn(arn).set_tags(Some(to_hash_map(tags)));
        call.send().await.map(|_| ()).map_err(to_aws_error("EKS", "TagResource"))
    }

    async fn untag_nodegroup(&self, arn: &str, keys: &[String]) -> AwsResult<()> {
        let call = self.0.untag_resource().resource_arn(arn).set_tag_keys(Some(keys.to_vec()));
        call.send().await.map(|_| ()).map_err(to_aws_error("EKS", "UntagResource"))
    }
}

fn to_hash_map(from: &BTreeMap<String, String>) -> HashMap<String, String> {
    from.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn to_btree_map(from: Option<&HashMap<String, String>>) -> BTreeMap<String, String> {
    from.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn sizes(sizes: &NodegroupSizes) -> sdk::NodegroupScalingConfig {
    sdk::NodegroupScalingConfig::builder()
        .min_size(sizes.min)
        .max_size(sizes.max)
        .set_desired_size(sizes.desired)
        .build()
}

fn taints(taints: &[NodegroupTaint]) -> Vec<sdk::Taint> {
    let taint = |t: &NodegroupTaint| {
        let value = Some(t.value.clone()).filter(|value| !value.is_empty());
        sdk::Taint::builder().key(&t.key).set_value(value).effect(t.effect.as_str().into()).build()
    };
    taints.iter().map(taint).collect()
}

fn update_config(max_unavailable: MaxUnavailable) -> sdk::NodegroupUpdateConfig {
    let config = sdk::NodegroupUpdateConfig::builder();
    match max_unavailable {
        MaxUnavailable::Count(n) => config.max_unavailable(n).build(),
        MaxUnavailable::Percent(n) => config.max_unavailable_percentage(n).build(),
    }
}

fn repair(enabled: bool) -> sdk::NodeRepairConfig {
    sdk::NodeRepairConfig::builder().enabled(enabled).build()
}

fn status(status: Option<&sdk::NodegroupStatus>) -> NodegroupStatus {
    match status {
        Some(sdk::NodegroupStatus::Creating) => NodegroupStatus::Creating,
        Some(sdk::NodegroupStatus::Active) => NodegroupStatus::Active,
        Some(sdk::NodegroupStatus::Updating) => NodegroupStatus::Updating,
        Some(sdk::NodegroupStatus::Deleting) => NodegroupStatus::Deleting,
        Some(sdk::NodegroupStatus::CreateFailed) => NodegroupStatus::CreateFailed,
        Some(sdk::NodegroupStatus::DeleteFailed) => NodegroupStatus::DeleteFailed,
        Some(sdk::NodegroupStatus::Degraded) => NodegroupStatus::Degraded,
        _ => NodegroupStatus::Other,
    }
}

fn sorted_list(mut items: Vec<String>) -> Vec<String> {
    items.sort();
    items
}

/// Without its role, subnets or sizes, a node group would look different from the spec and be replaced.
fn nodegroup(found: &sdk::Nodegroup) -> AwsResult<Nodegroup> {
    let missing = |field| missing("EKS", "DescribeNodegroup", field);
    let size = |value: Option<i32>, field| value.ok_or_else(|| missing(field));
    if found.subnets().is_empty() {
        return Err(missing("subnets"));
    }
    let scaling = found.scaling_config();
    let remote = found.remote_access();
    let update = found.update_config();
    let max_unavailable = update.and_then(|u| match (u.max_unavailable(), u.max_unavailable_percentage()) {
        (Some(n), _) => Some(MaxUnavailable::Count(n)),
        (None, percent) => percent.map(MaxUnavailable::Percent),
    });
    let mut taints: Vec<_> = (found.taints().iter())
        .map(|t| NodegroupTaint {
            key: owned_text(t.key()),
            value: owned_text(t.value()),
            effect: owned_text(t.effect().map(|effect| effect.as_str())),
        })
        .collect();
    taints.sort();
    Ok(Nodegroup {
        name: NodegroupName::new(owned_text(found.cluster_name()), owned_text(found.nodegroup_name())),
        arn: owned_text(found.nodegroup_arn()),
        created: timestamp(found.created_at()),
        status: status(found.status()),
        version: owned_text(found.version()),
        release_version: owned_text(found.release_version()),
        capacity_type: owned_text(found.capacity_type().map(|c| c.as_str())),
        sizes: NodegroupSizes {
            min: size(scaling.and_then(|s| s.min_size()), "scalingConfig.minSize")?,
            max: size(scaling.and_then(|s| s.max_size()), "scalingConfig.maxSize")?,
            desired: scaling.and_then(|s| s.desired_size()),
        },
        instance_types: found.instance_types().to_vec(),
        subnets: sorted_list(found.subnets().to_vec()),
        key_pair: remote.and_then(|r| r.ec2_ssh_key()).map(str::to_owned),
        security_groups: sorted_list(remote.map(|r| r.source_security_groups().to_vec()).unwrap_or_default()),
        ami_type: owned_text(found.ami_type().map(|a| a.as_str())),
        node_role: required(found.node_role(), "EKS", "DescribeNodegroup", "nodeRole")?.to_owned(),
        labels: to_btree_map(found.labels()),
        taints,
        scaling_groups: found
            .resources()
            .map(|r| r.auto_scaling_groups())
            .unwrap_or_default()
            .iter()
            .filter_map(|group| group.name().map(str::to_owned))
            .collect(),
        disk_size: found.disk_size(),
        issues: found
            .health()
            .map(|health| health.issues())
            .unwrap_or_default()
            .iter()
            .map(|issue| NodegroupIssue {
                code: owned_text(issue.code().map(|code| code.as_str())),
                message: owned_text(issue.message()),
                resources: issue.resource_ids().to_vec(),
            })
            .collect(),
        max_unavailable,
        repair: found.node_repair_config().and_then(|r| r.enabled()).unwrap_or_default(),
        tags: to_btree_map(found.tags()),
    })
}

fn update(found: &sdk::Update) -> NodegroupUpdate {
    NodegroupUpdate {
        id: owned_text(found.id()),
        status: match found.status() {
            Some(sdk::UpdateStatus::InProgress) => UpdateStatus::InProgress,
            Some(sdk::UpdateStatus::Failed) => UpdateStatus::Failed,
            Some(sdk::UpdateStatus::Cancelled) => UpdateStatus::Cancelled,
            Some(sdk::UpdateStatus::Successful) => UpdateStatus::Successful,
            _ => UpdateStatus::Other,
        },
        kind: owned_text(found.r#type().map(|kind| kind.as_str())),
        created: timestamp(found.created_at()),
        errors: (found.errors().iter())
            .map(|error| NodegroupIssue {
                code: owned_text(error.error_code().map(|code| code.as_str())),
                message: owned_text(error.error_message()),
                resources: error.resource_ids().to_vec(),
            })
            .collect(),
    }
}
