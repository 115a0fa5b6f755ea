//! Fields that a node group was created with and that the spec omits now. Pure.
//!
//! EKS chooses the value of an omitted field when it creates a node group, and that value stays. A value that the spec
//! had set does not: a group that is created with the same spec would not have it. The name of a node group shows which
//! of the optional fields it was created with, because it ends in their hash. Any other name shows nothing, so that
//! nothing of a node group of another controller is replaced.

use super::names::nodegroup_name;
use super::resolve::ResolvedGroup;
use crate::aws::nodegroup::{ImmutableFields, Nodegroup};
use crate::plan::Drift;

/// A field that EKS chooses when it is omitted, and cannot change later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionalField {
    InstanceTypes,
    CapacityType,
    AmiType,
    VolSize,
}

impl OptionalField {
    const ALL: [Self; 4] = [Self::InstanceTypes, Self::CapacityType, Self::AmiType, Self::VolSize];

    /// Whether the spec omits it.
    fn is_omitted(self, desired: &ImmutableFields) -> bool {
        match self {
            Self::InstanceTypes => desired.instance_types.is_empty(),
            Self::CapacityType => desired.capacity_type.is_none(),
            Self::AmiType => desired.ami_type.is_none(),
            Self::VolSize => desired.disk_size.is_none(),
        }
    }

    /// The value of a node group and the default of EKS, where they differ (Amazon EKS API Reference, CreateNodegroup; for
    /// images AWS's announcement of Kubernetes 1.30). Another image of Amazon Linux 2023 is for Arm or for accelerators, and
    /// stays: see [`image_without_default`].
    fn difference_to_default(self, found: &Nodegroup, desired: &ImmutableFields) -> Option<Drift> {
        let differs =
            |field, from: &str, to: &str| (!from.is_empty() && from != to).then(|| Drift::new(field, from, to));
        match self {
            Self::InstanceTypes => differs("instanceTypes", &found.instance_types.join(", "), "t3.medium"),
            Self::CapacityType => differs("capacityType", &found.capacity_type, "ON_DEMAND"),
            Self::AmiType => {
                differs("amiType", &found.ami_type, DEFAULT_IMAGE).filter(|_| !found.ami_type.starts_with("AL2023"))
            }
            Self::VolSize => {
                let is_windows = desired.ami_type.as_ref().is_some_and(|image| image.starts_with("WINDOWS"));
                let found = found.disk_size.map(|size| size.to_string()).unwrap_or_default();
                differs("volSize", &found, if is_windows { "50" } else { "20" })
            }
        }
    }
}

/// The image of a node group that was created without one, whatever its instance types are: with Arm types, EKS refuses it as
/// "not a valid instance type for requested amiType AL2023_x86_64_STANDARD".
pub(crate) const DEFAULT_IMAGE: &str = "AL2023_x86_64_STANDARD";

/// The image of a node group for Arm or accelerated instances, if the spec omits the image. A new node group would not have
/// it: EKS would refuse Arm types, and accelerators would lack their drivers.
pub(crate) fn image_without_default<'a>(resolved: &ResolvedGroup, found: &'a Nodegroup) -> Option<&'a str> {
    let image = found.ami_type.as_str();
    let is_special = ["_ARM_64", "_GPU", "_NVIDIA", "_NEURON"].iter().any(|part| image.contains(part));
    (is_special && resolved.desired.immutable.ami_type.is_none()).then_some(image)
}

/// The differences in fields that the spec had when the node group was created, and omits now.
pub(crate) fn dropped(resolved: &ResolvedGroup, found: &Nodegroup) -> Vec<Drift> {
    let desired = &resolved.desired.immutable;
    let differs =
        |field: OptionalField| field.is_omitted(desired).then(|| field.difference_to_default(found, desired)).flatten();
    let differing: Vec<_> = OptionalField::ALL.into_iter().filter_map(|field| Some((field, differs(field)?))).collect();
    if differing.is_empty() {
        return Vec::new();
    }
    let given = created_with(resolved, found);
    differing.into_iter().filter(|(field, _)| given.contains(field)).map(|(_, drift)| drift).collect()
}

/// The optional fields that a node group was created with, by its name; empty when the name does not show it.
fn created_with(resolved: &ResolvedGroup, found: &Nodegroup) -> Vec<OptionalField> {
    let id = &resolved.desired.id;
    let subset = |bits: usize| {
        let is_given = |at: &usize| bits & (1 << at) != 0;
        (0..OptionalField::ALL.len()).filter(is_given).map(|at| OptionalField::ALL[at]).collect::<Vec<_>>()
    };
    let subsets = (0..1 << OptionalField::ALL.len()).map(subset);
    let is_named = |given: &Vec<_>| nodegroup_name(&found.name.cluster, id, &with_fields(found, given)) == found.name;
    subsets.into_iter().find(is_named).unwrap_or_default()
}

/// What the controller sends for a node group with these optional fields.
fn with_fields(found: &Nodegroup, given: &[OptionalField]) -> ImmutableFields {
    let is_given = |field| given.contains(&field);
    ImmutableFields {
        node_role: found.node_role.clone(),
        subnets: found.subnets.clone(),
        instance_types: if is_given(OptionalField::InstanceTypes) { found.instance_types.clone() } else { Vec::new() },
        capacity_type: is_given(OptionalField::CapacityType).then(|| found.capacity_type.clone()),
        ami_type: is_given(OptionalField::AmiType).then(|| found.ami_type.clone()),
        disk_size: found.disk_size.filter(|_| is_given(OptionalField::VolSize)),
        key_pair: found.key_pair.clone(),
        security_groups: found.security_groups.clone(),
    }
}
