//! The `InstanceGroup` resource: what tenants set (`spec`), what the controller reports (`status`), and the names both
//! share.
//!
//! Every field of the spec is optional, because a tenant writes a fragment and the cluster's ConfigMap supplies the
//! rest. What a merged spec must contain is checked after the merge. The same types decode both.
//!
//! Watches use [`GroupObject`]: an object that cannot be decoded then stays a single invalid object, and its metadata
//! is available for a condition. A status never fails to decode (see [`status`]).

pub(crate) mod annotations;
pub(crate) mod boundaries_revision;
pub mod conditions;
pub(crate) mod definition;
pub(crate) mod enums;
pub(crate) mod fields;
pub mod group_id;
pub(crate) mod group_object;
pub(crate) mod names;
pub(crate) mod node_count;
pub(crate) mod patch;
pub(crate) mod redact;
pub(crate) mod revision_status;
pub(crate) mod schema;
pub(crate) mod spec;
pub(crate) mod spec_eks;
pub mod spec_error;
pub(crate) mod spec_managed_fargate;
pub(crate) mod status;
pub(crate) mod status_effective;
pub(crate) mod status_fargate;
pub(crate) mod status_rollout;
pub(crate) mod validate;

pub use boundaries_revision::{BoundariesRevision, BoundariesRevisionSpec, RevisionSource};
pub use conditions::{Condition, rfc3339, set_condition};
pub use definition::{crd_files, crd_yaml};
pub use enums::{
    CapacityType, ConcurrencyPolicy, CurrentState, DefaultResult, FileSystem, HttpEndpoint, HttpTokens, InPlaceField,
    InstancePool, Lifecycle, LifecycleTransition, NodegroupTaintEffect, OnDemandStrategy, OsFamily, ProvisionerKind,
    ScalingConfigurationKind, SpotStrategy, StrategyType, TaintEffect, Tenancy, UserDataStage,
};
pub(crate) use fields::IntOrString;
pub use group_id::{GroupId, group_id};
pub(crate) use group_object::GroupObject;
pub(crate) use node_count::{NodeDemand, has_resources, used_nodes};
pub use patch::apply_merge_patch;
pub(crate) use patch::diff_merge_patch;
pub(crate) use redact::{display_value, redacted};
pub use revision_status::{
    BoundariesRevisionStatus, BudgetLimit, BudgetUser, CheckState, CheckStatus, GroupDrainForecast, LaggingGroup,
    RolloutBudget, RolloutCounts, RolloutOrders, RolloutPhase, SlowGroup, WaveState, WaveStatus,
};
pub use spec::{CrdStrategy, InstanceGroup, InstanceGroupSpec, RollingUpdate, Strategy};
pub use spec_eks::{
    BootstrapOptions, EksConfiguration, EksSpec, InstanceTypeSpec, LifecycleHook, MetadataOptions,
    MixedInstancesPolicy, MountOptions, Placement, Tag, TagSpecification, Taint, UserData, Volume, WarmPool,
};
pub(crate) use spec_managed_fargate::{EksFargateSpec, EksManagedConfiguration};
pub use status::{
    AdoptedResources, DefaultVolume, DeletedVersion, FailedReplacements, InstanceGroupStatus, JoinStatus,
    ManagedAttributes, NodeCounts, NodegroupDeletion, SpotRecommendation, StrategyProgress, TemplateStatus,
};
pub use status_effective::EffectiveValues;
pub use status_fargate::FargateStatus;
pub use status_rollout::RolloutRecord;
pub use validate::{SchemaViolation, SchemaViolationKind, decode_spec, decode_spec_with_errors};
