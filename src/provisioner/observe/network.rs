//! Looks up the subnets and security groups that a spec names. Makes no decisions.

use futures::future::try_join_all;

use super::{ObserveError, ObserveResult, Observer};
use crate::aws::{Cluster, NetworkObject};

/// Subnets and security groups that a spec can refer to.
#[derive(Default)]
pub(crate) struct Network {
    /// Subnets of the cluster's VPC; those that the spec names by id if the VPC is unknown.
    pub subnets: Vec<NetworkObject>,
    /// Security groups of the cluster's VPC; those that the spec names by id if the VPC is unknown.
    pub security_groups: Vec<NetworkObject>,
    /// Objects that the spec names by id and that are in another VPC, so that an error can name it.
    pub in_other_vpcs: Vec<NetworkObject>,
}

/// Looks up what a spec names by id or Name tag. A cached list lacks objects that were created recently, so it is read again
/// for a name that it does not have. A list that nothing is looked up in is not read.
pub(crate) async fn network(
    o: &Observer<'_>,
    cluster: &Cluster,
    subnets: &[String],
    security_groups: &[String],
) -> ObserveResult<Network> {
    let Some(vpc) = &cluster.vpc else { return by_id(o, subnets, security_groups).await };
    let inventory = o.inventory;
    let aws = ObserveError::Aws;
    let known_subnets =
        async { if subnets.is_empty() { Ok(Default::default()) } else { inventory.subnets(vpc).await } };
    let known_groups = async {
        if security_groups.is_empty() { Ok(Default::default()) } else { inventory.security_groups(vpc).await }
    };
    let (mut known_subnets, mut known_groups) = tokio::try_join!(known_subnets, known_groups).map_err(aws)?;
    // What a person enables on a subnet would be rejected for as long as the list is cached.
    let lacks_ipv6 = cluster.is_ipv6 && known_subnets.iter().any(|subnet| lacks_ipv6(subnet, subnets));
    if lacks_ipv6
        || !subnets.iter().all(|name| is_known(name, &known_subnets))
        || !security_groups.iter().all(|name| is_known(name, &known_groups))
    {
        let (newer_subnets, newer_groups) = inventory.refresh_network(vpc).await.map_err(aws)?;
        (known_subnets, known_groups) = (newer_subnets, newer_groups);
    }
    let is_unknown_id = |id: &&String, prefix: &str, known: &[NetworkObject]| {
        id.starts_with(prefix) && known.iter().all(|object| object.id != **id)
    };
    let elsewhere = subnets.iter().filter(|id| is_unknown_id(id, "subnet-", &known_subnets));
    let elsewhere = elsewhere.chain(security_groups.iter().filter(|id| is_unknown_id(id, "sg-", &known_groups)));
    let found = try_join_all(elsewhere.map(|id| inventory.network_object(id))).await.map_err(aws)?;
    Ok(Network {
        subnets: known_subnets.to_vec(),
        security_groups: known_groups.to_vec(),
        in_other_vpcs: found.into_iter().flatten().collect(),
    })
}

/// Looks up ids alone, while EKS does not return the VPC of the cluster.
async fn by_id(o: &Observer<'_>, subnets: &[String], security_groups: &[String]) -> ObserveResult<Network> {
    let read = |ids: Vec<String>| async move {
        let found = try_join_all(ids.iter().map(|id| o.inventory.network_object(id))).await;
        found.map(|found| found.into_iter().flatten().collect::<Vec<_>>()).map_err(ObserveError::Aws)
    };
    let ids = |all: &[String], prefix: &str| all.iter().filter(|id| id.starts_with(prefix)).cloned().collect();
    let (subnets, security_groups) =
        tokio::try_join!(read(ids(subnets, "subnet-")), read(ids(security_groups, "sg-")))?;
    Ok(Network { subnets, security_groups, in_other_vpcs: Vec::new() })
}

/// Whether a list has an object with this id or Name tag.
fn is_known(name: &str, known: &[NetworkObject]) -> bool {
    known.iter().any(|object| object.is_called(name))
}

/// Whether a subnet is among those named, and gives no IPv6 address to new instances.
fn lacks_ipv6(subnet: &NetworkObject, names: &[String]) -> bool {
    subnet.assigns_ipv6 == Some(false) && names.iter().any(|name| subnet.is_called(name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    use crate::aws::inventory::fake_aws::FakeAws;

    use crate::aws::samples::{cluster, network_object};

    use crate::provisioner::observe::fake::FakeCluster;

    /// Looks up a subnet and a security group by id, and one of each by Name tag.
    async fn look_up(vpc: Option<&str>) -> Network {
        let stub = Arc::new(FakeAws::default());
        let object = |id: &str, name: &str, vpc: &str| NetworkObject {
            name: Some(name.into()),
            vpc: vpc.into(),
            ..network_object(id)
        };
        stub.update(|data| {
            data.subnets = vec![object("subnet-1", "one", "vpc-1"), object("subnet-2", "two", "vpc-1")];
            data.security_groups = vec![object("sg-1", "one", "vpc-1"), object("sg-2", "two", "vpc-2")];
        });
        let fake_cluster = FakeCluster::new(&stub);
        let observer = fake_cluster.observer();
        let cluster = Cluster { vpc: vpc.map(str::to_owned), ..cluster("demo") };
        let names = |names: [&str; 2]| names.map(str::to_owned);
        let found = network(&observer, &cluster, &names(["subnet-1", "two"]), &names(["sg-1", "sg-2"])).await;
        found.expect("an answer")
    }

    fn ids(found: &[NetworkObject]) -> Vec<&str> {
        found.iter().map(|object| object.id.as_str()).collect()
    }

    /// An id is proof enough while EKS does not return the VPC. A Name tag is not: another VPC may have the same.
    #[tokio::test]
    async fn without_a_vpc_only_ids_are_looked_up() {
        let found = look_up(None).await;
        assert_eq!(ids(&found.subnets), ["subnet-1"]);
        assert_eq!(ids(&found.security_groups), ["sg-1", "sg-2"]);
        assert!(found.in_other_vpcs.is_empty(), "no VPC is another one");
    }

    /// The remedy of the message would have no effect before the cached list ends, ten minutes later.
    #[tokio::test]
    async fn subnet_without_ipv6_addresses_is_read_again_before_an_ipv6_cluster_rejects_it() {
        for is_ipv6 in [true, false] {
            let stub = Arc::new(FakeAws::default());
            let subnet = NetworkObject { assigns_ipv6: Some(false), ..network_object("subnet-1") };
            stub.update(|data| data.subnets = vec![subnet]);
            let fake_cluster = FakeCluster::new(&stub).without_negative_ttl(&stub);
            let observer = fake_cluster.observer();
            let cluster = Cluster { vpc: Some("vpc-1".into()), is_ipv6, ..cluster("demo") };
            for _ in 0..2 {
                network(&observer, &cluster, &["subnet-1".to_owned()], &[]).await.expect("an answer");
            }
            stub.update(|data| data.subnets[0].assigns_ipv6 = Some(true));
            let found = network(&observer, &cluster, &["subnet-1".to_owned()], &[]).await.expect("an answer");
            assert_eq!(found.subnets[0].assigns_ipv6, Some(is_ipv6), "an IPv4 cluster needs no newer list");
        }
    }

    #[tokio::test]
    async fn names_are_looked_up_in_the_vpc_of_the_cluster() {
        let found = look_up(Some("vpc-1")).await;
        assert_eq!((ids(&found.subnets), ids(&found.security_groups)), (vec!["subnet-1", "subnet-2"], vec!["sg-1"]));
        assert_eq!(ids(&found.in_other_vpcs), ["sg-2"]);
    }
}
