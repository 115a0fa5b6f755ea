//! Fargate profiles of Amazon EKS.

use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_eks::Client;
use aws_sdk_eks::types as sdk;

use super::convert::{missing, owned_text, to_aws_error};
use crate::aws::error::{none_if_not_found, without_period};
use crate::aws::fargate::{FargateApi, FargateProfile, FargateSelector, NewFargateProfile, ProfileStatus};
use crate::aws::{AwsError, AwsResult, Tag};

const SERVICE: &str = "EKS";
/// Maximum page size.
const MAX_PAGE: i32 = 100;

pub(super) struct FargateSdk(pub Client);

#[async_trait]
impl FargateApi for FargateSdk {
    async fn list_fargate_profiles(&self, cluster: &str) -> AwsResult<Vec<String>> {
        let request = self.0.list_fargate_profiles().cluster_name(cluster).into_paginator().page_size(MAX_PAGE);
        request.items().send().try_collect().await.map_err(to_aws_error(SERVICE, "ListFargateProfiles"))
    }

    async fn describe_fargate_profile(&self, cluster: &str, name: &str) -> AwsResult<Option<FargateProfile>> {
        let request = self.0.describe_fargate_profile().cluster_name(cluster).fargate_profile_name(name);
        let response = request.send().await.map_err(to_aws_error(SERVICE, "DescribeFargateProfile"));
        none_if_not_found(response)?.and_then(|r| r.fargate_profile().map(described)).transpose()
    }

    async fn create_fargate_profile(&self, input: &NewFargateProfile) -> AwsResult<FargateProfile> {
        let request = self
            .0
            .create_fargate_profile()
            .client_request_token(&input.token)
            .cluster_name(&input.cluster)
            .fargate_profile_name(&input.name)
            .pod_execution_role_arn(&input.role_arn)
            .set_subnets((!input.subnets.is_empty()).then(|| input.subnets.clone()))
            .set_selectors(Some(input.selectors.iter().map(selector).collect()))
            .set_tags(Some(tag_values(&input.tags)));
        let response = request.send().await.map_err(to_aws_error(SERVICE, "CreateFargateProfile"))?;
        response.fargate_profile().map(profile).ok_or_else(|| {
            AwsError::no_response(SERVICE, "CreateFargateProfile", "InvalidResponse", "the response has no profile")
        })
    }

    async fn delete_fargate_profile(&self, cluster: &str, name: &str) -> AwsResult<()> {
        let request = self.0.delete_fargate_profile().cluster_name(cluster).fargate_profile_name(name);
        request.send().await.map_err(to_aws_error(SERVICE, "DeleteFargateProfile"))?;
        Ok(())
    }

    async fn tag_fargate_profile(&self, arn: &str, tags: &[Tag]) -> AwsResult<()> {
        let request = self.0.tag_resource().resource_arn(arn).set_tags(Some(tag_values(tags)));
        request.send().await.map_err(to_aws_error(SERVICE, "TagResource"))?;
        Ok(())
    }

    async fn untag_fargate_profile(&self, arn: &str, keys: &[String]) -> AwsResult<()> {
        let request = self.0.untag_resource().resource_arn(arn).set_tag_keys(Some(keys.to_vec()));
        request.send().await.map_err(to_aws_error(SERVICE, "UntagResource"))?;
        Ok(())
    }
}

fn selector(selector: &FargateSelector) -> sdk::FargateProfileSelector {
    let labels = selector.labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect::<HashMap<_, _>>();
    sdk::FargateProfileSelector::builder()
        .namespace(&selector.namespace)
        .set_labels((!labels.is_empty()).then_some(labels))
        .build()
}

fn tag_values(tags: &[Tag]) -> HashMap<String, String> {
    tags.iter().map(|t| (t.key.clone(), t.value.clone())).collect()
}

/// Without its role, subnets or selectors, a profile would look different from the spec and be replaced.
fn described(found: &sdk::FargateProfile) -> AwsResult<FargateProfile> {
    let fields = [
        ("podExecutionRoleArn", found.pod_execution_role_arn().is_some()),
        ("subnets", !found.subnets().is_empty()),
        ("selectors", !found.selectors().is_empty()),
    ];
    match fields.into_iter().find(|(_, is_present)| !is_present) {
        Some((field, _)) => Err(missing(SERVICE, "DescribeFargateProfile", field)),
        None => Ok(profile(found)),
    }
}

fn profile(found: &sdk::FargateProfile) -> FargateProfile {
    let mut selectors: Vec<_> = (found.selectors().iter())
        .map(|s| FargateSelector {
            namespace: owned_text(s.namespace()),
            labels: s.labels().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect(),
        })
        .collect();
    selectors.sort();
    let mut subnets = found.subnets().to_vec();
    subnets.sort();
    let mut tags: Vec<_> = (found.tags().into_iter().flatten())
        .map(|(key, value)| Tag { key: key.clone(), value: value.clone() })
        .collect();
    tags.sort();
    let issues = found.health().map(|health| health.issues()).unwrap_or_default();
    let message = |i: &sdk::FargateProfileIssue| without_period(i.message().unwrap_or_default()).to_owned();
    let issue = |i: &sdk::FargateProfileIssue| match i.code() {
        Some(code) => format!("{}: {}", code.as_str(), message(i)),
        None => message(i),
    };
    FargateProfile {
        name: owned_text(found.fargate_profile_name()),
        arn: owned_text(found.fargate_profile_arn()),
        role_arn: owned_text(found.pod_execution_role_arn()),
        subnets,
        selectors,
        status: status(found.status()),
        issues: issues.iter().map(issue).collect(),
        tags,
    }
}

fn status(status: Option<&sdk::FargateProfileStatus>) -> ProfileStatus {
    match status {
        Some(sdk::FargateProfileStatus::Creating) => ProfileStatus::Creating,
        Some(sdk::FargateProfileStatus::Active) => ProfileStatus::Active,
        Some(sdk::FargateProfileStatus::Deleting) => ProfileStatus::Deleting,
        Some(sdk::FargateProfileStatus::CreateFailed) => ProfileStatus::CreateFailed,
        Some(sdk::FargateProfileStatus::DeleteFailed) => ProfileStatus::DeleteFailed,
        _ => ProfileStatus::Other,
    }
}
