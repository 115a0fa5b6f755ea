//! Amazon EKS.

use async_trait::async_trait;
use aws_sdk_eks::Client;
use aws_sdk_eks::types as sdk;

use super::{failed, text};
use crate::aws::{AwsResult, Cluster, Eks};

pub(super) struct Sdk(pub Client);

#[async_trait]
impl Eks for Sdk {
    async fn describe_cluster(&self, name: &str) -> AwsResult<Option<Cluster>> {
        match self.0.describe_cluster().name(name).send().await.map_err(failed("EKS", "DescribeCluster")) {
            Ok(answer) => Ok(answer.cluster().map(cluster)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn cluster(cluster: &sdk::Cluster) -> Cluster {
    let network = cluster.kubernetes_network_config();
    let mode = cluster.access_config().and_then(|a| a.authentication_mode());
    Cluster {
        name: text(cluster.name()),
        arn: text(cluster.arn()),
        version: text(cluster.version()),
        endpoint: text(cluster.endpoint()),
        ca: text(cluster.certificate_authority().and_then(|c| c.data())),
        service_cidr: text(network.and_then(|n| n.service_ipv4_cidr())),
        vpc: text(cluster.resources_vpc_config().and_then(|v| v.vpc_id())),
        // Clusters from before access entries have no access configuration.
        authentication_mode: mode.map(|m| m.as_str()).unwrap_or("CONFIG_MAP").to_owned(),
    }
}
