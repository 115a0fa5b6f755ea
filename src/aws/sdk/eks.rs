//! Amazon EKS: clusters and access entries.

use async_trait::async_trait;
use aws_sdk_eks::Client;
use aws_sdk_eks::types as sdk;

use super::access_entry;
use super::convert::{missing, owned_text, required, to_aws_error};
use crate::aws::error::none_if_not_found;
use crate::aws::{AccessEntry, AwsResult, Cluster, Eks, NewAccessEntry};

pub(super) struct EksSdk(pub Client);

#[async_trait]
impl Eks for EksSdk {
    async fn describe_cluster(&self, name: &str) -> AwsResult<Option<Cluster>> {
        let response = self.0.describe_cluster().name(name).send().await;
        let found = none_if_not_found(response.map_err(to_aws_error("EKS", "DescribeCluster")))?;
        found.map(|found| cluster(found.cluster())).transpose()
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

/// A cluster that EKS is still creating has neither an endpoint nor a certificate authority.
fn cluster(cluster: Option<&sdk::Cluster>) -> AwsResult<Cluster> {
    let missing = |field| missing("EKS", "DescribeCluster", field);
    let cluster = cluster.ok_or_else(|| missing("cluster"))?;
    let always = |value, field| required(value, "EKS", "DescribeCluster", field).map(str::to_owned);
    let network = cluster.kubernetes_network_config();
    let is_ipv6 = network.and_then(|n| n.ip_family()) == Some(&sdk::IpFamily::Ipv6);
    let range = network.and_then(|n| if is_ipv6 { n.service_ipv6_cidr() } else { n.service_ipv4_cidr() });
    let mode = cluster.access_config().and_then(|a| a.authentication_mode());
    Ok(Cluster {
        name: always(cluster.name(), "name")?,
        arn: always(cluster.arn(), "arn")?,
        version: always(cluster.version(), "version")?,
        endpoint: owned_text(cluster.endpoint()),
        ca: owned_text(cluster.certificate_authority().and_then(|c| c.data())),
        service_cidr: owned_text(range),
        is_ipv6,
        vpc: (cluster.resources_vpc_config().and_then(|v| v.vpc_id())).filter(|id| !id.is_empty()).map(str::to_owned),
        // Clusters that are older than access entries have no access configuration.
        authentication_mode: mode.map(|m| m.as_str()).unwrap_or("CONFIG_MAP").to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described() -> sdk::builders::ClusterBuilder {
        sdk::Cluster::builder().name("demo").arn("arn:aws:eks:us-west-2:1:cluster/demo").version("1.33")
    }

    #[test]
    fn service_range_is_that_of_the_ip_family() {
        let found = |network: sdk::builders::KubernetesNetworkConfigResponseBuilder| {
            let found =
                cluster(Some(&described().kubernetes_network_config(network.build()).build())).expect("a cluster");
            (found.service_cidr, found.is_ipv6)
        };
        let network = sdk::KubernetesNetworkConfigResponse::builder;
        let ipv4 = network().ip_family(sdk::IpFamily::Ipv4).service_ipv4_cidr("10.100.0.0/16");
        assert_eq!(found(ipv4), ("10.100.0.0/16".to_owned(), false));
        let ipv6 = network().ip_family(sdk::IpFamily::Ipv6).service_ipv6_cidr("fd30:1c53:5f8a::/108");
        assert_eq!(found(ipv6), ("fd30:1c53:5f8a::/108".to_owned(), true));
        assert_eq!(found(network().ip_family(sdk::IpFamily::Ipv6)), (String::new(), true));
    }

    #[test]
    fn vpc_that_eks_does_not_tell_is_unknown() {
        let network = |vpc: &str| sdk::VpcConfigResponse::builder().vpc_id(vpc).build();
        assert_eq!(cluster(Some(&described().build())).expect("a cluster").vpc, None);
        for (vpc, known) in [("", None), ("vpc-1", Some("vpc-1"))] {
            let found = cluster(Some(&described().resources_vpc_config(network(vpc)).build())).expect("a cluster");
            assert_eq!(found.vpc.as_deref(), known);
        }
    }

    /// An empty ARN or version would be read as another account and another image.
    #[test]
    fn response_without_what_names_and_images_derive_from_is_an_error() {
        for (incomplete, field) in
            [(described().arn(""), "arn"), (described().version(""), "version"), (sdk::Cluster::builder(), "name")]
        {
            let error = cluster(Some(&incomplete.build())).expect_err("the response is incomplete").to_string();
            assert!(error.contains(&format!("the response has no {field}")), "{error}");
        }
        assert!(cluster(None).is_err());
    }
}
