//! Settings of the crd strategy.

use serde_json::Value;

use super::status_matcher::StatusMatcher;
use crate::api::ConcurrencyPolicy;
use crate::boundaries::Policy;
use crate::util::redact::Redacted;

/// Path of the template in the InstanceGroup.
pub(crate) const TEMPLATE_PATH: &str = "spec.strategy.crd.spec";
/// Path of the CRD's name in the InstanceGroup.
pub(super) const CRD_NAME_PATH: &str = "spec.strategy.crd.crdName";

/// `spec.strategy.crd` with its defaults filled in.
#[derive(Clone, Debug)]
pub struct CrdUpgrade {
    /// Template of the resource. It may hold secrets, so it is never printed.
    pub template: Redacted<String>,
    /// Plural or full name of the resource's CRD.
    pub crd_name: String,
    /// What to do with older resources for the same scaling group that are still active.
    pub concurrency: ConcurrencyPolicy,
    /// How often a failed resource is submitted again; `None` means without limit.
    pub max_retries: Option<i64>,
    /// How the status of the resource is read.
    pub status_matcher: StatusMatcher,
    /// The merged spec, as input of the template.
    pub spec: Redacted<Value>,
    /// The group's own labels and its merged annotations, as input of the template.
    pub metadata: Redacted<Value>,
    /// Which kinds and namespaces the admin allows.
    pub submission_policy: SubmissionPolicy,
}

/// Which kinds of resources may be submitted, and in which namespaces.
#[derive(Clone, Debug, Default)]
pub struct SubmissionPolicy {
    /// The key `policy` of the boundaries, which lists the allowed kinds.
    pub policy: Policy,
    /// The namespace of the admin's ConfigMap.
    pub config_namespace: String,
    /// Who wrote the template.
    pub author: TemplateAuthor,
}

/// Who wrote the template of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TemplateAuthor {
    /// The tenant, in the InstanceGroup; the policy limits the kinds and the namespace.
    #[default]
    Tenant,
    /// The admin, in the ConfigMap.
    Admin,
    /// There is no ConfigMap, so tenants have the admin's permissions.
    Unlimited,
}
