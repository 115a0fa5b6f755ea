//! A group after the merge.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::overridden::OverriddenValue;
use super::provenance::Provenance;
use crate::api::redacted;

/// What a group is after the merge.
#[derive(Clone, Default, PartialEq, Serialize)]
pub struct MergedSpec {
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its spec, as JSON; [`crate::api::decode_spec`] gives it types.
    pub spec: Value,
    /// Where each value came from.
    pub provenance: Provenance,
    /// Every value that the tenant set and did not get, by path.
    pub overridden: Vec<OverriddenValue>,
    /// SHA-256 of the effective spec and of the annotations that the controller reads, in hex; empty for an excluded group.
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
