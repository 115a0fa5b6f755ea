//! Boundaries: the merge of an admin's ConfigMap and a tenant's InstanceGroup into one spec.
//!
//! The code is pure: boundaries, defaults, conditionals and an InstanceGroup are the input; a merged spec with the
//! source of each value is the output. There is no client, clock or log here, and malformed input is an error that
//! names key, line and path.

pub mod active;
mod error;
mod merge;
mod merged_spec;
mod normalize;
mod overridden;
mod parse;
pub mod path;
mod policy;
mod provenance;
mod section;
pub mod selector;
#[cfg(test)]
mod tests;
pub mod yaml;

pub use error::{ConfigError, ConfigWarning};
pub use merge::{MergeError, merge};
pub use merged_spec::MergedSpec;
pub use overridden::OverriddenValue;
pub use parse::{Boundaries, CONFIG_MAP_KEYS};
pub use policy::{NamespaceUsage, Policy, PolicyViolation, matches_glob};
pub use provenance::{Boundary, Origin, Provenance, Source};
