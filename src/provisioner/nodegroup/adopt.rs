//! Adopts a node group that another controller created. An adopted node group is not replaced until the spec changes.

use super::drift::{adopted_hash, immutable_drift, version_drift};
use super::input::PlanInput;
use super::observed::ObservedNodegroup;
use crate::aws::Tag;
use crate::aws::nodegroup::Nodegroup;
use crate::ownership::adoption_tag;
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

/// The tag with the hash that the status records for an adopted node group; it outlives the status.
pub(crate) fn hash_tag(input: &PlanInput, found: &Nodegroup, is_adopting: bool) -> Option<Tag> {
    let r = input.resolved;
    let hash = match is_adopting {
        true => Some(r.hash.as_str()),
        false => adopted_hash(input.status, found),
    };
    let ownership = r.ownership_tags.iter().map(|tag| &tag.key);
    adoption_tag(hash?, found.tags.keys().chain(r.desired.tags.keys()).chain(ownership))
}
