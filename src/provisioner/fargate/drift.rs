//! Compares a Fargate profile with the spec. Pure.

use super::resolve::ResolvedGroup;
use crate::api::FargateStatus;
use crate::aws::fargate::{FargateProfile, FargateSelector};
use crate::plan::Drift;
use crate::provisioner::rejected_fields::Part;

/// How a profile differs from the spec, with the spec's field names. Every difference needs another profile.
///
/// EKS chooses the subnets that the spec omits. It chose them for this profile, unless the spec is known to have listed
/// those that it has (`recorded`). The name of a replacement shows from which content it was created: one that was
/// created without subnets has those that EKS chose, whatever the spec listed meanwhile.
pub(crate) fn immutable_drift(
    resolved: &ResolvedGroup,
    profile: &FargateProfile,
    recorded: Option<&FargateStatus>,
) -> Vec<Drift> {
    let mut all = Vec::new();
    if profile.selectors != resolved.desired.selectors {
        let list = |s: &[FargateSelector]| s.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        all.push(Drift::new("selectors", list(&profile.selectors), list(&resolved.desired.selectors)));
    }
    let listed = recorded.and_then(|recorded| recorded.subnets.get(&profile.name));
    let is_omitted = resolved.subnets.is_empty();
    // Without a usable field, the subnets are not known either.
    let is_chosen = profile.name == resolved.names.replacement_name(&resolved.hash);
    let is_dropped =
        is_omitted && !is_chosen && listed == Some(&profile.subnets) && !resolved.broken.contains(Part::Immutable);
    if is_dropped || !is_omitted && profile.subnets != resolved.subnets {
        all.push(Drift::new("subnets", profile.subnets.join(", "), resolved.subnets.join(", ")));
    }
    if profile.role_arn != resolved.role_arn {
        all.push(Drift::new("podExecutionRoleArn", &profile.role_arn, &resolved.role_arn));
    }
    all
}
