//! Compares a Fargate profile with the spec. Pure.

use super::resolve::ResolvedGroup;
use crate::aws::fargate::{FargateProfile, FargateSelector};
use crate::plan::Drift;

/// How a profile differs from the spec, with the spec's field names. Every difference needs another profile.
pub(crate) fn immutable_drift(resolved: &ResolvedGroup, profile: &FargateProfile) -> Vec<Drift> {
    let mut all = Vec::new();
    if profile.selectors != resolved.desired.selectors {
        let list = |s: &[FargateSelector]| s.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        all.push(Drift::new("selectors", list(&profile.selectors), list(&resolved.desired.selectors)));
    }
    if !resolved.subnets.is_empty() && profile.subnets != resolved.subnets {
        all.push(Drift::new("subnets", profile.subnets.join(", "), resolved.subnets.join(", ")));
    }
    if profile.role_arn != resolved.role_arn {
        all.push(Drift::new("podExecutionRoleArn", &profile.role_arn, &resolved.role_arn));
    }
    all
}
