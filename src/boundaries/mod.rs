//! How an admin's ConfigMap and a tenant's resource become one spec.
//!
//! Pure: boundaries, defaults, conditionals and an InstanceGroup go in; an effective group comes out, with the source of each
//! value. There is no client, no clock and no log here, and malformed input is an error that names key, line and path.

mod config;
mod effective;
mod error;
mod merge;
mod normalize;
pub mod path;
mod policy;
mod provenance;
mod refused;
mod section;
pub mod selector;
#[cfg(test)]
mod tests;
pub mod yaml;

pub use config::{Boundaries, KEYS};
pub use effective::Effective;
pub use error::{ConfigError, Warning};
pub use merge::{MergeError, merge};
pub use policy::{Counts, Policy, Violation, matches_glob};
pub use provenance::{Boundary, Origin, Provenance, Source};
pub use refused::{Refused, summary};
