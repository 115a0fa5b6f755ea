//! Records in the status which attributes the controller sets, before it sets them.

use super::input::PlanInput;
use super::join::join_planner;
use super::observed::ObservedProfiles;
use super::plan_builder::FargatePlanBuilder;
use super::role::has_unrecorded_role;
use crate::api::ManagedAttributes;
use crate::auth::access_entries::JoinPlan;
use crate::aws::NewAccessEntry;
use crate::provisioner::role_region::tagged_region;

/// Records the status fields. Without steps nothing depends on them, and the status update alone writes them.
pub(crate) fn record(input: &PlanInput, builder: &mut FargatePlanBuilder) {
    if builder.plan.steps.is_empty() {
        return;
    }
    builder.plan.record_changes(input.status, builder.plan.status_update.fields.clone());
}

/// The attributes that the controller sets: the desired ones, and the recorded ones that still exist.
pub(crate) fn managed_attributes(
    input: &PlanInput,
    found: &ObservedProfiles,
    joined: &JoinPlan,
    old: ManagedAttributes,
) -> ManagedAttributes {
    let r = input.resolved;
    // An answer of AWS may be older than the profile. So what was not seen stays recorded.
    let has = |key: &String| found.own.iter().any(|profile| profile.tags.iter().any(|tag| tag.key == *key));
    let exists = |key: &String| found.own.is_empty() || input.observed.unseen_tags.contains(key) || has(key);
    let recorded_tags = old.tags.into_iter().filter(exists);
    let mut tags: Vec<_> = recorded_tags.chain(r.tags.iter().map(|t| t.key.clone())).collect();
    tags.sort();
    tags.dedup();
    // Entries of previous roles stay recorded until they are removed.
    let is_current = |arn: &String| *arn == r.role_arn;
    let (auth, previous_auth): (Vec<_>, Vec<_>) = old.auth_entries.into_iter().partition(is_current);
    let (access, mut previous_access): (Vec<_>, Vec<_>) = old.access_entries.into_iter().partition(is_current);
    for NewAccessEntry { principal, .. } in &input.observed.missing_access_entries {
        if !previous_access.contains(principal) {
            previous_access.push(principal.clone());
        }
    }
    let planner = join_planner(input);
    ManagedAttributes {
        tags,
        auth_entries: [planner.owned_auth_entries(joined, &r.role_arn, &auth), previous_auth].concat(),
        access_entries: [planner.owned_access_entries(joined, &access), previous_access].concat(),
        role_region: role_region(input).or(old.role_region.clone()),
        policies: match r.is_own_role || old.policies.is_empty() && has_unrecorded_role(input, found) {
            true => vec![r.managed_policy.clone()],
            false => old.policies,
        },
        ..old
    }
}

/// The region in the tags of the role that the controller creates, or found tagged.
fn role_region(input: &PlanInput) -> Option<String> {
    let r = input.resolved;
    let is_new = || r.is_own_role && !input.observed.is_role_ready;
    let tagged = input.observed.role.as_ref().map_or(is_new(), |role| tagged_region(&role.tags) == Some(&r.region));
    tagged.then(|| r.region.clone())
}
