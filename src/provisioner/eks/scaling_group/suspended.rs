//! What to do about processes of a scaling group that are suspended.

use std::collections::BTreeSet;

use crate::aws::ScalingGroup;

/// How to resume processes: where the spec suspends them, or by a call.
pub(crate) fn remedy(by_spec: &BTreeSet<String>, group: &ScalingGroup, processes: &[String]) -> String {
    let (of_spec, of_others): (Vec<_>, Vec<_>) = processes.iter().cloned().partition(|name| by_spec.contains(name));
    let in_spec = (!of_spec.is_empty())
        .then(|| format!("remove {} from spec.eks.configuration.suspendProcesses", of_spec.join(" and ")));
    let by_call = (!of_others.is_empty()).then(|| {
        format!(
            "another client suspended it; resume it with `aws autoscaling resume-processes --auto-scaling-group-name {} --scaling-processes {}`",
            group.name,
            of_others.join(" ")
        )
    });
    in_spec.into_iter().chain(by_call).collect::<Vec<_>>().join("; ")
}
