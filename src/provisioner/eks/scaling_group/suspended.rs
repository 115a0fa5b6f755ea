//! What to do about processes of a scaling group that are suspended.

use std::collections::BTreeSet;

use crate::aws::ScalingGroup;
use crate::aws::error::without_period;

/// How to resume processes: where the spec suspends them, or by a call.
pub(crate) fn remedy(by_spec: &BTreeSet<String>, group: &ScalingGroup, processes: &[String]) -> String {
    let (of_spec, of_others): (Vec<_>, Vec<_>) = processes.iter().cloned().partition(|name| by_spec.contains(name));
    let in_spec = (!of_spec.is_empty())
        .then(|| format!("remove {} from spec.eks.configuration.suspendProcesses", of_spec.join(" and ")));
    let by_call = (!of_others.is_empty()).then(|| {
        format!(
            "{}{}; resume it with `aws autoscaling resume-processes --auto-scaling-group-name {} --scaling-processes {}`",
            suspended_by(&of_others),
            quoted_reasons(group, &of_others),
            group.name,
            of_others.join(" ")
        )
    });
    in_spec.into_iter().chain(by_call).collect::<Vec<_>>().join("; ")
}

/// Who may have suspended processes that the spec does not. AWS suspends processes of a group whose launches all fail, and
/// promises no resumption (EC2 Auto Scaling User Guide, "Suspend and resume processes", administrative suspension).
fn suspended_by(processes: &[String]) -> &'static str {
    match processes.iter().any(|name| name == "Launch") {
        true => {
            "another client suspended it, or AWS itself after about a day of failed launches, which are to be fixed first"
        }
        false => "another client suspended it",
    }
}

/// The words of AWS on why processes are suspended, in parentheses; empty without any.
fn quoted_reasons(group: &ScalingGroup, processes: &[String]) -> String {
    let quoted = |name: &String| {
        let reason = group.suspension_reasons.get(name)?;
        Some(format!("{name}: {}", without_period(reason)))
    };
    let reasons: Vec<_> = processes.iter().filter_map(quoted).collect();
    if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) }
}
