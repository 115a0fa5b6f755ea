//! The result of the merge.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::overridden::OverriddenValue;
use super::provenance::Provenance;
use crate::api::redacted;

/// An InstanceGroup after the merge with the boundaries.
#[derive(Clone, Default, PartialEq, Serialize)]
pub struct MergedSpec {
    /// Annotations after the merge.
    pub annotations: BTreeMap<String, String>,
    /// Spec after the merge, as JSON; [`crate::api::decode_spec`] decodes it.
    pub spec: Value,
    /// Source of each value.
    pub provenance: Provenance,
    /// Every value that the tenant set and that is not in the merged spec, by path.
    pub overridden: Vec<OverriddenValue>,
    /// SHA-256, in hex, of the merged spec and the annotations that the controller reads; empty for an excluded group.
    pub hash: String,
}

impl std::fmt::Debug for MergedSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { annotations, spec, provenance: _, overridden, hash } = self;
        let mut parts = f.debug_struct("MergedSpec");
        parts.field("annotations", annotations).field("spec", &redacted(spec).to_string());
        parts.field("overridden", overridden).field("hash", hash).finish_non_exhaustive()
    }
}
