//! Restores the ownership tags of a launch template that the group's scaling group launches from. Pure.

use crate::api::InstanceGroupStatus;
use crate::aws::ScalingGroup;
use crate::ownership::{has_foreign_tags, has_ownership_tags, is_tagging_denied};
use crate::plan::{Drift, EksStep, PlanBuilder};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::observed::ObservedState;
use crate::provisioner::eks::resolve::ResolvedGroup;

/// Whether the tags of the group's launch template were removed since the status recorded it. At the adoption, and while AWS
/// denies these tags, the adoption sets them.
pub(crate) fn are_removed(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
    group: &ScalingGroup,
) -> bool {
    let ownership = &resolved.ownership_tags;
    let recorded = status.template.as_ref().and_then(|template| template.id.as_ref());
    let pinned = group.template.as_ref().map(|pin| &pin.id);
    !is_tagging_denied(status)
        && state.template.as_ref().is_some_and(|template| {
            pinned == Some(&template.id)
                && recorded == Some(&template.id)
                && !has_ownership_tags(&template.tags, ownership)
                && !has_foreign_tags(&template.tags, ownership)
        })
}

/// Restores removed tags. Without them, the group's deletion could not prove that the template is the group's.
pub(crate) fn restore(input: &PlanInput, group: &ScalingGroup, builder: &mut PlanBuilder) {
    if !are_removed(input.resolved, input.observed, input.status, group) || input.observed.tag_retry_pending {
        return;
    }
    let Some(template) = &input.observed.template else { return };
    // An adoption in the same plan tags it already.
    if builder.adoption.is_some() {
        return;
    }
    let tags = input.resolved.ownership_tags.clone();
    let missing = tags.iter().filter(|tag| !template.tags.contains(tag));
    let reasons = missing.map(|tag| Drift::new(format!("template tags.{}", tag.key), "", &tag.value)).collect();
    builder.push_with_reasons(EksStep::TagTemplate { template: template.id.clone(), tags }, reasons);
}
