//! The role of the nodes: the controller's own, an existing one, or the recorded one while the spec names none that works.

use super::super::desired::{DesiredSpec, ExistingRole};
use super::resource_names::{AccountInfo, ResourceNames};
use crate::api::spec_error::SpecError;
use crate::aws::InstanceProfile;
use crate::plan::StalledReason;
use crate::provisioner::rejected_fields::{Part, RejectedFields};

/// The role that the status records.
#[derive(Clone, Debug, Default)]
pub struct RecordedRole {
    /// ARN of the role; `None` before the first reconcile.
    pub arn: Option<String>,
    /// Unique id of the role, if it is recorded.
    pub id: Option<String>,
}

/// The role that the nodes use.
pub(super) struct ResolvedRole {
    pub(super) arn: String,
    pub(super) profile_arn: String,
    /// The id of an existing role that the spec names.
    pub(super) id: Option<String>,
}

/// Resolves the role. One that cannot be used gives way to the recorded one, so that the entries of the existing nodes stay.
pub(super) fn resolve_role(
    broken: &mut RejectedFields,
    desired: &DesiredSpec,
    names: &ResourceNames,
    account: &AccountInfo,
    profile: Option<&InstanceProfile>,
    recorded: &RecordedRole,
) -> ResolvedRole {
    let derived = || ResolvedRole {
        arn: account.iam_arn("role", &names.role),
        profile_arn: account.iam_arn("instance-profile", &names.role),
        id: None,
    };
    let path = "spec.eks.configuration.instanceProfileName";
    match (&desired.existing_role, profile.and_then(|profile| Some((profile, profile.role.as_ref()?)))) {
        _ if broken.contains(Part::Role) => {}
        (None, _) => return derived(),
        (Some(ExistingRole { role, .. }), Some((profile, profile_role))) if profile_role.name == *role => {
            let id = Some(profile_role.id.clone());
            return ResolvedRole { arn: profile_role.arn.clone(), profile_arn: profile.arn.clone(), id };
        }
        // The spec need not name the profile: it is searched for under the name of the role.
        (Some(ExistingRole { role, profile: name }), None) if profile.is_none() && name == role => {
            let rule = "has no instance profile of its name in this account";
            let remedy =
                "create both with this name, correct it, or set instanceProfileName to the profile of the role";
            let problem = SpecError::invalid("spec.eks.configuration.roleName", name, rule, remedy);
            broken.push(&[Part::Role, Part::Launch], problem.with_reason(StalledReason::NotFound));
        }
        (Some(ExistingRole { profile: name, .. }), None) if profile.is_none() => {
            let rule = "does not exist in this account";
            let problem = SpecError::invalid(path, name, rule, "create it with the role, or correct the name");
            broken.push(&[Part::Role, Part::Launch], problem.with_reason(StalledReason::NotFound));
        }
        (Some(ExistingRole { role, profile: name }), profile_role) => {
            let rule = format!(
                "holds {}, not the role {role}",
                profile_role.map_or("no role", |(_, profile_role)| profile_role.name.as_str())
            );
            let problem = SpecError::invalid(path, name, rule, "use the profile that holds roleName");
            broken.push(&[Part::Role, Part::Launch], problem);
        }
    }
    match &recorded.arn {
        Some(arn) => ResolvedRole { arn: arn.clone(), profile_arn: String::new(), id: recorded.id.clone() },
        None => derived(),
    }
}

pub(super) fn trust_policy(region: &str) -> String {
    let service = super::super::names::ec2_principal(region);
    serde_json::json!({
        "Version": "2012-10-17",
        "Statement": [{ "Effect": "Allow", "Principal": { "Service": service }, "Action": "sts:AssumeRole" }],
    })
    .to_string()
}
