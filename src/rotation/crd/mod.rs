//! The strategy `crd`: a resource of another controller replaces the nodes.
//!
//! Pure decisions about which resource to submit, whether it is allowed, and when. The state between passes is in
//! `status.strategyProgress`. This file only re-exports.

pub mod decide;
pub(crate) mod kind;
pub(crate) mod resource;
pub(crate) mod status_matcher;
pub(crate) mod status_path;
pub(crate) mod template;
pub(crate) mod template_context;
pub(crate) mod types;

#[cfg(test)]
mod tests;

pub use kind::{DiscoveredKind, ResourceKind};
pub use resource::RenderedResource;
pub(crate) use status_matcher::{StatusMatcher, StatusValues};
pub(crate) use status_path::StatusPath;
pub use types::TemplateAuthor;
pub(crate) use types::{CrdUpgrade, SubmissionPolicy, TEMPLATE_PATH};
