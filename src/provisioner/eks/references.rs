//! What the spec refers to in AWS: cluster, network, image, instance types and an existing role.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::aws::{Cluster, InstanceProfile, InstanceType, InstanceTypeCatalog, NetworkObject};
use crate::util::lookup::Lookup;

/// The AWS objects that the spec refers to, read before the spec is resolved.
#[derive(Clone, Debug, Default)]
pub struct References {
    /// The EKS cluster; `None` when no cluster has that name.
    pub cluster: Option<Cluster>,
    /// All subnets of the cluster's VPC.
    pub subnets: Vec<NetworkObject>,
    /// All security groups of the cluster's VPC.
    pub security_groups: Vec<NetworkObject>,
    /// Subnets and security groups of other VPCs that the spec names by id.
    pub in_other_vpcs: Vec<NetworkObject>,
    /// The SSM parameter of an image alias, and the AMI id that it holds.
    pub image: Option<(String, Option<String>)>,
    /// The same for the image without drivers, if the instance type has an accelerator. A group that launches it already
    /// changes to the other image together with its next new version.
    pub standard_image: Option<(String, Option<String>)>,
    /// The instance type; not queried unless something is derived from it.
    pub instance_type: Lookup<InstanceType>,
    /// The instance profile of an existing role; `None` when it does not exist or the spec names no role.
    pub existing_profile: Option<InstanceProfile>,
    /// The instance types of a mixed group by name; `None` for a type that AWS does not know.
    pub mixed_types: BTreeMap<String, Option<InstanceType>>,
    /// The instance types of the same family line, for a group with an instance pool.
    pub catalog: Option<Arc<InstanceTypeCatalog>>,
}

impl References {
    /// The same with the image without drivers; `None` when the instance type has no accelerator.
    pub(crate) fn with_standard_image(&self) -> Option<Self> {
        let image = self.standard_image.clone()?;
        Some(References { image: Some(image), standard_image: None, ..self.clone() })
    }
}
