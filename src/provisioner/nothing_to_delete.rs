//! Plans of deletions that only remove the finalizer, because nothing of the group is in AWS. In every other deletion,
//! `delete` of the provisioner removes it in the last step.

use crate::api::GroupId;
use crate::api::spec_error::{self, SpecError, join_messages};
use crate::plan::{Event, EventKind, ObjectStep, Outcome, Plan, PlanBuilder};

/// The deletion of a group that has no resources in AWS, or whose finalizer a user removed to keep them.
pub(crate) fn plan_nothing_to_delete(id: &GroupId) -> Plan {
    let mut builder = PlanBuilder::default();
    if id.has_finalizer {
        builder.push(ObjectStep::RemoveFinalizer);
    }
    builder.set_outcome_once(Outcome::Deleted);
    builder.build(id, None)
}

/// The deletion of a group whose status records no resources and whose spec is rejected. Resources with the names and
/// tags of such a group were not created for it, so nothing is deleted in AWS.
pub(super) fn plan_rejected_spec(id: &GroupId, errors: &[SpecError]) -> Plan {
    let message =
        format!("nothing is deleted in AWS, because nothing was created for this group: {}", join_messages(errors));
    let reason = spec_error::first_reason(errors).to_string();
    let mut plan = plan_nothing_to_delete(id);
    plan.events.push(Event::for_condition(EventKind::Warning, reason, message));
    plan
}
