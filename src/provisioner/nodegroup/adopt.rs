//! Adopts a node group that another controller created. An adopted node group is not replaced until the spec changes.

use super::drift::{immutable_drift, version_drift};
use super::input::PlanInput;
use super::observed::ObservedNodegroup;
use crate::plan::PlanBuilder;

/// Reports the adoption of a node group, with its differences from the spec. Until the spec changes, the node group counts
/// as up to date.
pub(crate) fn report_adoption(input: &PlanInput, current: &ObservedNodegroup, builder: &mut PlanBuilder) {
    let found = &current.nodegroup;
    let mut differs = immutable_drift(input.resolved, found);
    differs.extend(version_drift(input.resolved, found));
    let listed: Vec<_> = differs.iter().map(ToString::to_string).collect();
    let message = match listed.as_slice() {
        [] => format!("adopted the node group {}; it matches the spec", found.name.nodegroup),
        all => format!(
            "adopted the node group {}; these differences are applied with the next spec change: {}",
            found.name.nodegroup,
            all.join("; ")
        ),
    };
    builder.report_adoption(message);
}
