//! Fixtures for the tests of the provisioners.

use std::collections::BTreeMap;

use instance_manager::api::SchemaViolation;
use instance_manager::api::spec_error::SpecError;
use instance_manager::boundaries::{Boundaries, MergedAnnotations, merge};
use instance_manager::provisioner::GroupId;
use jiff::Timestamp;

/// The group `team/web`, with its finalizer.
pub fn group_id(generation: i64, created_at: Timestamp) -> GroupId {
    GroupId {
        namespace: "team".into(),
        name: "web".into(),
        uid: "uid-1".into(),
        generation,
        created_at,
        deletion_requested_at: None,
        has_finalizer: true,
        labels: BTreeMap::new(),
    }
}

/// Annotations below the controller's prefix, as the merge without boundaries returns them.
pub fn annotations(pairs: &[(&str, &str)]) -> MergedAnnotations {
    let all: BTreeMap<_, _> = pairs.iter().map(|(k, v)| (format!("instancemgr.keikoproj.io/{k}"), *v)).collect();
    let group = serde_json::json!({ "metadata": { "annotations": all } });
    merge(&Boundaries::default(), &group, true).expect("a merged spec").annotations
}

/// The violations of the schema, and the errors of the parser about other fields.
pub fn all_errors(violations: Vec<SchemaViolation>, parsed: Vec<SpecError>) -> Vec<SpecError> {
    let mut all: Vec<_> =
        violations.into_iter().map(|e| SpecError::invalid(&e.path, &e.value, e.rule, e.remedy)).collect();
    for error in parsed {
        if all.iter().all(|known| known.path != error.path) {
            all.push(error);
        }
    }
    all
}
