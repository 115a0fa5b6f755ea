//! First sight of a node group that another controller made: it is taken over as it is.

use super::input::PlanInput;
use super::observed::{ObservedNodegroup, immutable_drift, version_drift};
use crate::api::names::condition;
use crate::plan::{ConditionUpdate, PlanBuilder};

/// Tells of a takeover: what was found counts as up to date until something else is wanted.
pub fn nodegroup(input: &PlanInput, current: &ObservedNodegroup, draft: &mut PlanBuilder) {
    let found = &current.nodegroup;
    let mut differs = immutable_drift(input.resolved, found);
    differs.extend(version_drift(input.resolved, found));
    let listed: Vec<_> = differs.iter().map(ToString::to_string).collect();
    let message = match listed.as_slice() {
        [] => format!("the node group {} was taken over as it is", found.name.nodegroup),
        all => format!(
            "the node group {} was taken over; what differs from the spec arrives with the next change: {}",
            found.name.nodegroup,
            all.join("; ")
        ),
    };
    draft.condition_updates.push(ConditionUpdate {
        condition_type: condition::ADOPTED,
        status: true,
        reason: "ResourcesAdopted".into(),
        message,
    });
}
