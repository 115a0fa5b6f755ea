//! Formats labels, taints and kubelet arguments.

use std::collections::BTreeMap;

use super::input::{BootstrapInput, Taint};

/// `k=v,k2=v2`, sorted by key.
pub(super) fn label_list(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

/// `k=v:Effect`, in the order of the spec.
pub(super) fn taint_list(taints: &[Taint]) -> Vec<String> {
    taints.iter().map(|taint| format!("{}={}:{}", taint.key, taint.value, canonical_effect(&taint.effect))).collect()
}

/// The kubelet's arguments as one string; the first two flags are written even when they are empty.
pub(super) fn kubelet_arguments(input: &BootstrapInput) -> String {
    let mut taints = taint_list(&input.taints);
    taints.sort();
    let mut out = format!(
        "--node-labels={} --register-with-taints={} {}",
        label_list(&input.labels),
        taints.join(","),
        input.bootstrap_arguments.expose()
    );
    if let Some(max_pods) = input.max_pods {
        out.push_str(&format!(" --max-pods={max_pods}"));
    }
    out
}

/// The effects of a taint.
pub(super) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The kubelet's spelling of a valid effect.
pub(super) fn canonical_effect(text: &str) -> &str {
    EFFECTS.iter().find(|known| known.eq_ignore_ascii_case(text)).copied().unwrap_or(text)
}
