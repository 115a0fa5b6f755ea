//! What IPv6 clusters require of a group. Pure.
//!
//! The user data gets the IPv6 service range like an IPv4 one. Addresses, permissions and the platform are the admin's
//! (Amazon EKS User Guide, "Learn about IPv6 addresses to clusters, Pods, and services").

use super::desired::DesiredSpec;
use super::references::References;
use super::user_data::OsFamily;
use crate::api::spec_error::SpecError;
use crate::aws::{Cluster, InstanceType, InstanceTypeOverride, NetworkObject};

/// Why nodes of a group could not join an IPv6 cluster, or run no pods there; empty for an IPv4 cluster.
pub(crate) fn errors(desired: &DesiredSpec, cluster: &Cluster, env: &References) -> Vec<SpecError> {
    if !cluster.is_ipv6 {
        return Vec::new();
    }
    let mut errors = Vec::new();
    let name = &cluster.name;
    if cluster.service_cidr.is_empty() && desired.os_family != OsFamily::Bottlerocket {
        let rule = "is an IPv6 cluster, and EKS has not reported its IPv6 service range";
        let remedy = "wait until EKS has created the cluster";
        errors.push(SpecError::invalid("spec.eks.configuration.clusterName", name, rule, remedy));
    }
    if desired.os_family == OsFamily::Windows {
        let rule = format!("is not possible in the IPv6 cluster {name}: EKS runs Windows nodes in IPv4 clusters only");
        errors.push(SpecError::invalid(OS_FAMILY, "windows", rule, "use another OS family, or an IPv4 cluster"));
    }
    if desired.custom_networking.is_some() {
        let rule = format!("is not possible in the IPv6 cluster {name}: its pods use no secondary IPv4 interfaces");
        errors.push(SpecError::invalid(CUSTOM_NETWORKING, "true", rule, "remove the annotation"));
    }
    errors.extend(subnets(desired, env));
    errors.extend(mixed_types(desired, env));
    errors.extend(cni_policy(desired, name));
    errors
}

const OS_FAMILY: &str = "metadata.annotations.instancemgr.keikoproj.io/os-family";
const CUSTOM_NETWORKING: &str = "metadata.annotations.instancemgr.keikoproj.io/custom-networking-enabled";

/// Kubelets of an IPv6 cluster report the instance's IPv6 address, so every instance needs one.
fn subnets(desired: &DesiredSpec, env: &References) -> Vec<SpecError> {
    let used = |subnet: &&NetworkObject| desired.subnets.iter().any(|name| subnet.is_called(name));
    let without = env.subnets.iter().filter(used).filter(|subnet| subnet.assigns_ipv6 == Some(false));
    let problem = |subnet: &NetworkObject| {
        let rule = "gives no IPv6 address to new instances, so their nodes cannot join the IPv6 cluster";
        let remedy = "enable auto-assign IPv6 address on the subnet, or use other subnets";
        SpecError::invalid("spec.eks.configuration.subnets", &subnet.id, rule, remedy)
    };
    without.map(problem).collect()
}

/// Pods have IPv6 addresses on Nitro-based types only. The type of a group without a mixed instances policy is read, and
/// checked, together with its image.
pub(crate) fn type_problem(path: &str, kind: &InstanceType) -> Option<SpecError> {
    let rule = "has the Xen hypervisor, and an IPv6 cluster needs Nitro-based instance types";
    kind.is_xen.then(|| SpecError::invalid(path, &kind.name, rule, "use a type of a newer generation"))
}

fn mixed_types(desired: &DesiredSpec, env: &References) -> Vec<SpecError> {
    let listed = desired.mixed_instances.iter().flat_map(|mixed| mixed.overrides.iter().zip(&mixed.paths));
    let problem = |(one, path): (&InstanceTypeOverride, &String)| {
        let kind = env.mixed_types.get(&one.instance_type)?.as_ref()?;
        type_problem(&format!("spec.eks.configuration.{path}"), kind)
    };
    listed.filter_map(problem).collect()
}

/// The CNI assigns IPv6 addresses to pods with `ec2:AssignIpv6Addresses`, which no policy of AWS grants to a node's role.
/// The controller does not read policies, so any policy that is not from AWS may grant it.
fn cni_policy(desired: &DesiredSpec, cluster: &str) -> Option<SpecError> {
    let is_own = |policy: &String| policy.starts_with("arn:") && !policy.contains(":iam::aws:policy/");
    if desired.existing_role.is_some() || desired.irsa || desired.managed_policies.iter().any(is_own) {
        return None;
    }
    let rule = format!(
        "lacks a policy with ec2:AssignIpv6Addresses, without which the CNI of the IPv6 cluster {cluster} starts no pods"
    );
    let remedy = "add the ARN of a policy such as AmazonEKS_CNI_IPv6_Policy, or give the CNI its own role and set the annotation irsa-enabled";
    Some(SpecError::invalid("spec.eks.configuration.managedPolicies", "", rule, remedy))
}
