//! The strategy `crd`: a resource of another controller replaces the nodes.
//!
//! Pure decisions about which resource to submit, whether it is allowed, and when. The state between passes is in
//! `status.strategyProgress`. This file only re-exports.

pub mod decide;
pub mod kind;
pub mod resource;
pub mod status_matcher;
pub mod status_path;
pub mod template;
pub mod template_context;
pub mod types;

#[cfg(test)]
mod tests;

pub use kind::{DiscoveredKind, ResourceKind};
pub use resource::RenderedResource;
pub use status_matcher::StatusMatcher;
pub use status_path::StatusPath;
pub use types::{CrdUpgrade, SubmissionPolicy, TEMPLATE_PATH};
