//! Boundaries: the merge of an admin's ConfigMap and a tenant's InstanceGroup into one spec.
//!
//! The code is pure: boundaries, defaults, conditionals and an InstanceGroup are the input; a merged spec with the
//! source of each value is the output. There is no client, clock or log here, and malformed input is an error that
//! names key, line and path.

pub(crate) mod active;
pub(crate) mod admission;
mod error;
mod glob;
mod merge;
mod merged_spec;
mod normalize;
mod overridden;
mod parse;
pub(crate) mod path;
mod policy;
mod provenance;
mod quota;
mod rollout_budget;
mod rollout_checks;
mod rollout_fields;
mod rollout_policy;
mod rollout_reference;
mod rollout_times;
mod rollout_warnings;
mod section;
pub(crate) mod selector;
#[cfg(test)]
mod tests;
mod unused;
pub(crate) mod yaml;

pub use error::{ConfigError, ConfigErrors, ConfigWarning};
pub use merge::merge;
pub(crate) use merge::{is_group_locked, merge_annotations, merge_empty_group};
pub use merged_spec::{MergedAnnotations, MergedSpec};
pub use overridden::OverriddenValue;
pub use parse::Boundaries;
pub(crate) use parse::{CONFIG_MAP_KEYS, ROLLOUT_KEY, content_hash};
pub(crate) use policy::Policy;
pub(crate) use provenance::Source;
pub(crate) use quota::{NamespaceUsage, QuotaAmounts, QuotaClaim, QuotaLevel, QuotaRequest};
pub(crate) use rollout_budget::BudgetPolicy;
pub(crate) use rollout_checks::{RolloutCheck, Variable};
#[cfg(test)]
pub(crate) use rollout_fields::CountOrPercent;
pub(crate) use rollout_policy::{Approval, DEFAULT_HISTORY, OnFailure, RolloutPolicy, Wave, WithoutRotation};
pub use rollout_reference::rollout_reference;
pub(crate) use rollout_times::MAX_URGENCY;
