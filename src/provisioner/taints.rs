//! Taints that repeat a key and an effect. A merge of an admin's and a tenant's list makes them easily.
//!
//! The kubelet exits on them: `--register-with-taints` rejects "duplicated taints with the same key and effect"
//! (k8s.io/kubernetes, pkg/util/taints, ParseTaints). Kubernetes identifies a taint of a node by its key and effect, so a
//! managed node group cannot have both either.

use serde_json::Value;

use crate::api::spec_error::SpecError;
use crate::api::{NodegroupTaintEffect, ProvisionerKind};
use crate::boundaries::MergedSpec;

/// An error for each taint of a merged spec that repeats an earlier one, with the source of both.
pub(crate) fn repeated_taints(merged: &MergedSpec) -> Vec<SpecError> {
    let kind = merged.spec["provisioner"].as_str().and_then(ProvisionerKind::parse);
    let section = match kind {
        Some(ProvisionerKind::Eks) => "eks",
        Some(ProvisionerKind::EksManaged) => "eks-managed",
        Some(ProvisionerKind::EksFargate) | None => return Vec::new(),
    };
    let path = format!("spec.{section}.configuration.taints");
    let taints = merged.spec[section]["configuration"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let source = |index: usize| {
        let item = format!("{path}[{index}]");
        let within = merged.provenance.iter().find(|(at, _)| at.starts_with(&item));
        within.map_or_else(|| "tenant".to_owned(), |(_, source)| source.to_string())
    };
    let mut errors = Vec::new();
    for (index, taint) in taints.iter().enumerate() {
        let earlier = taints[..index].iter().position(|other| identity(other) == identity(taint));
        let Some(earlier) = earlier.filter(|_| !is_equal_managed(section, &taints[..index], taint)) else { continue };
        let (key, effect) = identity(taint);
        let (first, second) = (source(earlier), source(index));
        let sources = match first == second {
            true => format!("both times from {first}"),
            false => format!("once from {first} and once from {second}"),
        };
        let rule = format!("has the effect {effect} twice, {sources}; a node takes one");
        errors.push(SpecError::invalid(&format!("{path}[{index}].key"), key, rule, "remove one of the two"));
    }
    errors
}

/// Key and effect, in the spelling of Kubernetes.
fn identity(taint: &Value) -> (String, String) {
    let effect = taint["effect"].as_str().unwrap_or_default();
    let effect = match NodegroupTaintEffect::parse(effect) {
        Some(NodegroupTaintEffect::NoSchedule) => "NoSchedule",
        Some(NodegroupTaintEffect::PreferNoSchedule) => "PreferNoSchedule",
        Some(NodegroupTaintEffect::NoExecute) => "NoExecute",
        None => effect,
    };
    (taint["key"].as_str().unwrap_or_default().to_owned(), effect.to_owned())
}

/// Equal taints of a managed node group are one: the list is sent to EKS without repetitions.
fn is_equal_managed(section: &str, earlier: &[Value], taint: &Value) -> bool {
    let value = |taint: &Value| taint["value"].as_str().unwrap_or_default().to_owned();
    section == "eks-managed"
        && earlier.iter().filter(|e| identity(e) == identity(taint)).all(|e| value(e) == value(taint))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::boundaries::{Boundaries, merge};

    fn errors(provisioner: &str, boundary: &str, tenant: &Value) -> Vec<String> {
        let section = if provisioner == "eks" { "eks" } else { "eks-managed" };
        let data = [
            ("boundaries", format!("shared: {{{boundary}: [spec.{section}.configuration.taints]}}")),
            (
                "defaults",
                format!(
                    "spec: {{{section}: {{configuration: {{taints: [{{key: team, value: ours, effect: NoSchedule}}]}}}}}}"
                ),
            ),
        ];
        let data = data.map(|(key, text)| (key.to_owned(), text)).into();
        let (boundaries, _) = Boundaries::parse(&data).expect("the ConfigMap is valid");
        let spec = json!({"provisioner": provisioner, section: {"configuration": {"taints": tenant}}});
        let merged = merge(&boundaries, &json!({"metadata": {}, "spec": spec}), false).expect("a merged spec");
        repeated_taints(&merged).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn both_sources_of_a_repeated_taint_are_named() {
        let tenant_taints = json!([{"key": "team", "value": "theirs", "effect": "NoSchedule"}]);
        let found = errors("eks", "merge", &tenant_taints);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("spec.eks.configuration.taints[1].key `team` has the effect NoSchedule twice"));
        assert!(found[0].contains("from default (shared.merge)") && found[0].contains("from tenant"), "{found:?}");
        let managed = json!([{"key": "team", "value": "theirs", "effect": "NO_SCHEDULE"}]);
        let found = errors("eks-managed", "merge", &managed);
        assert!(found.len() == 1 && found[0].starts_with("spec.eks-managed.configuration.taints[1].key"), "{found:?}");
    }

    #[test]
    fn taint_that_its_tenant_repeats_has_one_source() {
        let twice = json!([
            {"key": "dup", "value": "a", "effect": "NoSchedule"}, {"key": "dup", "value": "b", "effect": "NoSchedule"},
        ]);
        let found = errors("eks", "replace", &twice);
        assert!(found.len() == 1 && found[0].contains("both times from tenant"), "{found:?}");
    }

    #[test]
    fn other_taints_do_not_repeat_each_other() {
        for taint in [
            json!({"key": "team", "value": "theirs", "effect": "NoExecute"}),
            json!({"key": "other", "value": "ours", "effect": "NoSchedule"}),
        ] {
            assert_eq!(errors("eks", "merge", &json!([taint])), [""; 0]);
        }
        let replaced = json!([{"key": "team", "value": "theirs", "effect": "NoSchedule"}]);
        assert_eq!(errors("eks", "replace", &replaced), [""; 0], "the tenant's list alone counts");
    }
}
