//! The `InstanceGroup` resource: what tenants set (`spec`), what the controller reports (`status`), and the names both
//! share.
//!
//! Every field of the spec is optional, because a tenant writes a fragment and the cluster's ConfigMap supplies the
//! rest. What a merged spec must contain is checked after the merge. The same types decode both.
//!
//! Watches use [`GroupObject`]: an object that cannot be decoded then stays a single invalid object, and its metadata
//! is available for a condition. A status never fails to decode (see [`status`]).

pub mod conditions;
pub mod enums;
pub mod fields;
pub mod group_id;
pub mod group_object;
pub mod names;
pub mod patch;
pub mod redact;
pub mod schema;
pub mod spec;
pub mod spec_eks;
pub mod spec_error;
pub mod spec_managed_fargate;
pub mod status;
pub mod status_fargate;
pub mod validate;

pub use conditions::{Condition, rfc3339, set_condition};
pub use enums::{
    CapacityType, ConcurrencyPolicy, CurrentState, DefaultResult, FileSystem, HttpEndpoint, HttpTokens, InstancePool,
    Lifecycle, LifecycleTransition, NodegroupTaintEffect, OnDemandStrategy, OsFamily, ProvisionerKind,
    ScalingConfigurationKind, SpotStrategy, StrategyType, TaintEffect, Tenancy, UserDataStage,
};
pub use fields::IntOrString;
pub use group_id::{GroupId, group_id};
pub use group_object::{GroupObject, InvalidObject};
pub use patch::{apply_merge_patch, diff_merge_patch};
pub use redact::{display_value, redacted};
pub use spec::{CrdStrategy, InstanceGroup, InstanceGroupSpec, RollingUpdate, Strategy};
pub use spec_eks::{
    BootstrapOptions, EksConfiguration, EksSpec, InstanceTypeSpec, LifecycleHook, MetadataOptions,
    MixedInstancesPolicy, MountOptions, Placement, Tag, TagSpecification, Taint, UserData, Volume, WarmPool,
};
pub use spec_managed_fargate::{
    EksFargateSpec, EksManagedConfiguration, EksManagedSpec, FargateSelector, ManagedStrategy, NodeRepairConfig,
    NodegroupTaint,
};
pub use status::{
    AdoptedResources, InstanceGroupStatus, JoinStatus, ManagedAttributes, NodeCounts, SpotRecommendation,
    StrategyProgress, TemplateStatus,
};
pub use status_fargate::FargateStatus;
pub use validate::{FieldError, FieldErrorKind, check_spec, decode_spec};

use kube::CustomResourceExt;

/// The CustomResourceDefinition as YAML, exactly as in `crds/instancegroups.yaml`.
pub fn crd_yaml() -> String {
    let body = serde_yaml::to_string(&InstanceGroup::crd()).unwrap_or_else(|error| format!("# {error}\n"));
    format!("# Generated from src/api by `instance-manager crd`; change the types, not this file.\n---\n{body}")
}
