//! The strategy `crd`: a resource of another controller replaces the nodes.
//! Which resource, whether it may be, and when: pure decisions, as for
//! `rollingUpdate`. What is remembered between them is in the status.

pub mod decide;
pub mod resource;
pub mod status_matcher;
pub mod status_path;
pub mod template;
pub mod template_context;

#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::api::ConcurrencyPolicy;
use crate::boundaries::Policy;
use crate::util::redact::Redacted;
pub use resource::{DiscoveredKind, RenderedResource, ResourceKind};
pub use status_matcher::StatusMatcher;
pub use status_path::StatusPath;

/// Where the template stands.
pub const TEMPLATE_PATH: &str = "spec.strategy.crd.spec";
/// Where the CRD's name stands.
const CRD_NAME_PATH: &str = "spec.strategy.crd.crdName";

/// `spec.strategy.crd` with its defaults filled in.
#[derive(Clone, Debug)]
pub struct CrdUpgrade {
    /// The template of the resource; it may hold anything, so it is never printed.
    pub template: Redacted<String>,
    /// Plural or full name of the resource's CRD.
    pub crd_name: String,
    /// What becomes of resources for the same scaling group that are still active.
    pub concurrency: ConcurrencyPolicy,
    /// How often a resource that failed is submitted again; `None` means for ever.
    pub max_retries: Option<i64>,
    /// What its resource is read by.
    pub status_matcher: StatusMatcher,
    /// The merged spec, for the template.
    pub spec: Redacted<Value>,
    /// The group's own labels and its annotations after the merge, for the template.
    pub metadata: Redacted<Value>,
    /// What the admin allows.
    pub submission_policy: SubmissionPolicy,
}

/// Which kinds may be submitted, and where.
#[derive(Clone, Debug, Default)]
pub struct SubmissionPolicy {
    /// The admin's policy.
    pub policy: Policy,
    /// The namespace of the admin's ConfigMap.
    pub config_namespace: String,
}
