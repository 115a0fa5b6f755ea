//! Calls for the access entries of EKS clusters.

use aws_sdk_eks::Client;
use aws_sdk_eks::types as sdk;

use super::convert::{owned_text, timestamp, to_aws_error};
use crate::aws::error::none_if_not_found;
use crate::aws::{AccessEntry, AwsResult, NewAccessEntry, Tag};

pub(super) async fn list(client: &Client, cluster: &str) -> AwsResult<Vec<String>> {
    let mut pages = client.list_access_entries().cluster_name(cluster).max_results(100).into_paginator().send();
    let mut found = Vec::new();
    while let Some(page) = pages.next().await {
        found.extend(page.map_err(to_aws_error("EKS", "ListAccessEntries"))?.access_entries.unwrap_or_default());
    }
    Ok(found)
}

pub(super) async fn describe(client: &Client, cluster: &str, principal: &str) -> AwsResult<Option<AccessEntry>> {
    let call = client.describe_access_entry().cluster_name(cluster).principal_arn(principal);
    let response = none_if_not_found(call.send().await.map_err(to_aws_error("EKS", "DescribeAccessEntry")))?;
    Ok(response.and_then(|r| r.access_entry().map(entry)))
}

pub(super) async fn create(client: &Client, input: &NewAccessEntry, client_token: &str) -> AwsResult<()> {
    let tags = input.tags.iter().map(|tag| (tag.key.clone(), tag.value.clone())).collect();
    let call = client
        .create_access_entry()
        .cluster_name(&input.cluster)
        .principal_arn(&input.principal)
        .r#type(input.kind.as_str())
        .set_tags(Some(tags))
        .client_request_token(client_token);
    call.send().await.map_err(to_aws_error("EKS", "CreateAccessEntry")).map(drop)
}

pub(super) async fn delete(client: &Client, cluster: &str, principal: &str) -> AwsResult<()> {
    let call = client.delete_access_entry().cluster_name(cluster).principal_arn(principal);
    call.send().await.map_err(to_aws_error("EKS", "DeleteAccessEntry")).map(drop)
}

fn entry(entry: &sdk::AccessEntry) -> AccessEntry {
    let tag = |(key, value): (&String, &String)| Tag { key: key.clone(), value: value.clone() };
    let mut tags: Vec<_> = entry.tags().into_iter().flatten().map(tag).collect();
    tags.sort_by(|a, b| a.key.cmp(&b.key));
    let created = timestamp(entry.created_at());
    AccessEntry { principal: owned_text(entry.principal_arn()), kind: owned_text(entry.r#type()), created, tags }
}
