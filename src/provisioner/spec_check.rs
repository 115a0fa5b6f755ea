//! Checks of a merged spec that need no read: the schema, and the fields of its provisioner.

use std::sync::Arc;

use super::rejected_fields::ValueSources;
use super::taints::repeated_taints;
use super::{GroupId, Provisioner, dispatch};
use crate::api::spec_error::SpecError;
use crate::api::{self, InstanceGroupSpec, ProvisionerKind};
use crate::boundaries::MergedSpec;

/// All errors of a merged spec that need no read, with the author of each value.
pub(crate) fn errors_without_reads(id: &GroupId, merged: &Arc<MergedSpec>) -> Vec<SpecError> {
    let mut errors = match decode(merged) {
        Ok((spec, mut errors, provisioner)) => {
            errors.extend(repeated_taints(merged));
            add_unnamed(&mut errors, provisioner.field_errors(id, &merged.annotations, &spec));
            errors
        }
        Err(mut errors) => {
            add_unnamed(&mut errors, field_errors(id, merged));
            errors
        }
    };
    ValueSources::new(merged.clone()).explain(&mut errors);
    errors
}

/// Decodes the merged spec, and selects the provisioner. Returns violations of the schema's rules, too.
pub(crate) fn decode(
    merged: &MergedSpec,
) -> Result<(InstanceGroupSpec, Vec<SpecError>, &'static dyn Provisioner), Vec<SpecError>> {
    let spec_errors = |violations: Vec<api::validate::SchemaViolation>| -> Vec<_> {
        violations.into_iter().map(|v| SpecError::invalid(&v.path, &v.value, v.rule, v.remedy)).collect()
    };
    let (spec, violations) = api::validate::decode_spec_with_errors(&merged.spec).map_err(spec_errors)?;
    let name = spec.provisioner.clone().unwrap_or_default();
    let errors = spec_errors(violations);
    if let Some(kind) = ProvisionerKind::parse(&name) {
        return Ok((spec, errors, dispatch::for_kind(kind)));
    }
    let problem = if name.is_empty() {
        SpecError::missing("spec.provisioner")
    } else {
        let remedy = "use eks, eks-managed or eks-fargate";
        SpecError::invalid("spec.provisioner", name, "is an unknown provisioner", remedy)
    };
    let others = errors.into_iter().filter(|error| error.path != problem.path);
    Err([problem.clone()].into_iter().chain(others).collect())
}

/// The parser's errors about a spec that is rejected already, so that all of it can be corrected at once. Without a
/// valid provisioner, the only section of the spec shows which one is meant. Values of wrong types are left out; what
/// their absence would cause is not an error.
pub(crate) fn field_errors(id: &GroupId, merged: &MergedSpec) -> Vec<SpecError> {
    let Some((spec, removed)) = api::validate::decode_fitting(&merged.spec) else { return Vec::new() };
    let is_own = |error: &SpecError| !removed.contains(&error.path);
    let has_section = |kind: &&ProvisionerKind| merged.spec[kind.as_str()].is_object();
    let sections: Vec<_> = ProvisionerKind::ALL.iter().filter(has_section).collect();
    match sections.as_slice() {
        [kind] => {
            let found = dispatch::for_kind(**kind).field_errors(id, &merged.annotations, &spec);
            found.into_iter().filter(is_own).collect()
        }
        _ => Vec::new(),
    }
}

/// Adds errors of fields that no error names yet.
pub(crate) fn add_unnamed(errors: &mut Vec<SpecError>, more: Vec<SpecError>) {
    let new: Vec<_> = more.into_iter().filter(|error| errors.iter().all(|known| known.path != error.path)).collect();
    errors.extend(new);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{InstanceGroup, group_id};
    use crate::boundaries::{Boundaries, merge};

    /// The other mistakes are reported together with the provisioner, and not in a second round.
    #[test]
    fn provisioner_error_is_reported_once_beside_other_errors() {
        let paths_of = |provisioner: serde_json::Value| {
            let spec = json!({ "provisioner": provisioner, "strategy": { "type": "rolling" } });
            let merged = merge(&Boundaries::default(), &json!({ "spec": spec }), true).expect("a merged spec");
            let errors = decode(&merged).err().expect("the spec is rejected");
            errors.into_iter().map(|error| error.path).collect::<Vec<_>>()
        };
        for provisioner in [json!(null), json!("gke")] {
            assert_eq!(paths_of(provisioner), ["spec.provisioner", "spec.strategy.type"]);
        }
    }

    #[test]
    fn spec_without_a_provisioner_is_checked_by_its_only_section() {
        let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        let paths_of = |spec: serde_json::Value| {
            let merged = merge(&Boundaries::default(), &json!({ "spec": spec }), true).expect("a merged spec");
            errors_without_reads(&id, &Arc::new(merged)).into_iter().map(|error| error.path).collect::<Vec<_>>()
        };
        let eks = json!({ "minSize": 5, "maxSize": 3, "configuration": { "instanceType": "m5.large" } });
        let found = paths_of(json!({ "eks": eks }));
        assert_eq!(found[0], "spec.provisioner");
        let missing = ["clusterName", "subnets", "securityGroups", "image"];
        for path in missing
            .map(|field| format!("spec.eks.configuration.{field}"))
            .into_iter()
            .chain(["spec.eks.minSize".into()])
        {
            assert_eq!(found.iter().filter(|found| **found == path).count(), 1, "{path}: {found:?}");
        }
        assert_eq!(paths_of(json!({ "eks": eks, "eks-fargate": {} })), ["spec.provisioner"], "either may be meant");
    }

    /// The other mistakes are reported together with a wrong type, and not in a second round.
    #[test]
    fn wrong_types_do_not_hide_other_errors() {
        let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        let configuration = json!({ "image": "ami-xyz!", "instanceType": "m5.large", "subnets": ["subnet-1", 7],
            "labels": { "tier": ["gold"] }, "volumes": [{ "name": "/dev/xvda", "type": "gp9", "size": "big" }] });
        let eks = json!({ "minSize": "five", "maxSize": 3, "configuration": configuration });
        let spec = json!({ "provisioner": "eks", "eks": eks });
        let merged = merge(&Boundaries::default(), &json!({ "spec": spec }), true).expect("a merged spec");
        let errors = errors_without_reads(&id, &Arc::new(merged));
        let mut found: Vec<_> = errors.iter().map(|error| error.path.trim_start_matches("spec.eks.")).collect();
        found.sort_unstable();
        let expected = [
            "clusterName",
            "image",
            "labels.tier",
            "securityGroups",
            "subnets[1]",
            "volumes[0].size",
            "volumes[0].type",
        ];
        let expected: Vec<_> =
            expected.map(|field| format!("configuration.{field}")).into_iter().chain(["minSize".into()]).collect();
        assert_eq!(found, expected);
    }
}
