//! Amazon EKS: clusters and access entries.

use async_trait::async_trait;
use aws_sdk_eks::Client;
use aws_sdk_eks::types as sdk;

use super::access_entry;
use super::convert::{owned_text, to_aws_error};
use crate::aws::error::none_if_not_found;
use crate::aws::{AccessEntry, AwsResult, Cluster, Eks, NewAccessEntry};

pub(super) struct Sdk(pub Client);

#[async_trait]
impl Eks for Sdk {
    async fn describe_cluster(&self, name: &str) -> AwsResult<Option<Cluster>> {
        let response = self.0.describe_cluster().name(name).send().await;
        let found = none_if_not_found(response.map_err(to_aws_error("EKS", "DescribeCluster")))?;
        Ok(found.and_then(|f| f.cluster().map(cluster)))
    }

    async fn list_access_entries(&self, cluster: &str) -> AwsResult<Vec<String>> {
        access_entry::list(&self.0, cluster).await
    }

    async fn describe_access_entry(&self, cluster: &str, principal: &str) -> AwsResult<Option<AccessEntry>> {
        access_entry::describe(&self.0, cluster, principal).await
    }

    async fn create_access_entry(&self, input: &NewAccessEntry, client_token: &str) -> AwsResult<()> {
        access_entry::create(&self.0, input, client_token).await
    }

    async fn delete_access_entry(&self, cluster: &str, principal: &str) -> AwsResult<()> {
        access_entry::delete(&self.0, cluster, principal).await
    }
}

fn cluster(cluster: &sdk::Cluster) -> Cluster {
    let network = cluster.kubernetes_network_config();
    let mode = cluster.access_config().and_then(|a| a.authentication_mode());
    Cluster {
        name: owned_text(cluster.name()),
        arn: owned_text(cluster.arn()),
        version: owned_text(cluster.version()),
        endpoint: owned_text(cluster.endpoint()),
        ca: owned_text(cluster.certificate_authority().and_then(|c| c.data())),
        service_cidr: owned_text(network.and_then(|n| n.service_ipv4_cidr())),
        vpc: owned_text(cluster.resources_vpc_config().and_then(|v| v.vpc_id())),
        // Clusters that are older than access entries have no access configuration.
        authentication_mode: mode.map(|m| m.as_str()).unwrap_or("CONFIG_MAP").to_owned(),
    }
}
