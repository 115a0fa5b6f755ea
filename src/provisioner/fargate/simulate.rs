//! Simulates the reconciles after the first one, assuming that every step succeeds and nothing else changes.

use super::input::Snapshot;
use super::observed::{ObservedProfiles, is_current};
use super::plan::plan;
use crate::api::InstanceGroupStatus;
use crate::auth::access_entries::{AccessEntryState, RoleAccessEntry};
use crate::auth::aws_auth::AuthEntryState;
use crate::aws::fargate::{FargateProfile, ProfileStatus};
use crate::plan::FargateStep;
use crate::plan::{IamStep, JoinStep, ObjectStep, Outcome, Plan, Recheck, StalledReason, Step};
use crate::provisioner::Release;
use crate::provisioner::{ExtraNodes, PlanContext, PlanSnapshot, Projection};

/// Upper bound of simulated reconciles; any group has to wait earlier.
const MAX_PASSES: usize = 4;

impl PlanSnapshot for Snapshot {
    fn cluster(&self) -> &str {
        &self.resolved.desired.cluster
    }

    fn rejection(&self) -> Option<(StalledReason, String)> {
        self.resolved.broken.rejection()
    }

    fn has_nodes(&self) -> bool {
        false
    }

    fn simulate(&self, first: &Plan, context: &PlanContext) -> Projection {
        let (mut snapshot, mut status, mut last) = (self.clone(), context.status.clone(), first.clone());
        let mut steps = Vec::new();
        for _ in 0..MAX_PASSES {
            let is_immediate =
                matches!(last.outcome, Outcome::Progressing { recheck: Recheck::Immediately | Recheck::After(_), .. });
            // Continue past the creation of a replacement, so that the deletion of the older profile is shown.
            let replaces =
                |s: &Step| matches!(s, Step::Fargate(FargateStep::CreateFargateProfile(new)) if new.replaces.is_some());
            let continues = is_immediate || last.steps.iter().any(|planned| replaces(&planned.step));
            if !continues || !last.steps.iter().all(|planned| snapshot.apply_step(&planned.step, &mut status)) {
                break;
            }
            last = plan(&snapshot.plan_input(&PlanContext { status: &status, ..*context }));
            steps.extend(last.steps.iter().cloned());
        }
        Projection {
            steps,
            outcome: last.outcome,
            replacements: Vec::new(),
            in_place: Vec::new(),
            max_unavailable: 0,
            limits: None,
            scale_in: 0,
            evictions: self.replaces_profile(context.status).then_some(0),
            extra_nodes: ExtraNodes::None,
            irreversible: None,
        }
    }

    /// Keiko controller finds only the profile with the derived name, and would create it again.
    fn release(&self, status: &InstanceGroupStatus) -> Release {
        let found = ObservedProfiles::classify(&self.resolved, &self.observed, status);
        if let [_, _, ..] = found.own.as_slice() {
            let outdated = |p: &&&FargateProfile| !is_current(p, &self.resolved, None);
            let old = found.own.iter().find(outdated).map_or("", |p| p.name.as_str());
            return Release::RotationInProgress(format!("the Fargate profile {old}"));
        }
        Release::NotNeeded(match found.own.iter().all(|profile| profile.name == self.resolved.names.first_profile) {
            true => "has the Fargate profile that the Keiko controller knows",
            false => "has a Fargate profile that the Keiko controller does not know: it would create a second one",
        })
    }
}

impl Snapshot {
    /// Whether a profile is replaced: EKS deletes its pods with it.
    fn replaces_profile(&self, status: &InstanceGroupStatus) -> bool {
        let recorded = status.fargate.as_ref();
        let may_run_pods = |profile: &&&FargateProfile| profile.status != ProfileStatus::CreateFailed;
        let found = ObservedProfiles::classify(&self.resolved, &self.observed, status);
        found.own.iter().filter(may_run_pods).any(|profile| !is_current(profile, &self.resolved, recorded))
    }

    /// Applies a step to the snapshot. Returns false if its effect cannot be predicted.
    fn apply_step(&mut self, step: &Step, status: &mut InstanceGroupStatus) -> bool {
        match step {
            Step::Object(ObjectStep::AddFinalizer) => self.resolved.desired.id.has_finalizer = true,
            Step::Object(ObjectStep::UpdateStatus { status: recorded }) => {
                let mut all = serde_json::json!(status);
                crate::api::apply_merge_patch(&mut all, recorded);
                *status = serde_json::from_value(all).unwrap_or_default();
            }
            Step::Iam(IamStep::CreateRole(_)) => {}
            Step::Iam(IamStep::UpdateTrustPolicy { policy, .. }) => {
                self.observed.role.iter_mut().for_each(|role| role.trust_policy = Some(policy.clone()));
            }
            Step::Iam(IamStep::TagRole { tags, .. }) => {
                self.observed.role.iter_mut().for_each(|role| role.tags.extend(tags.iter().cloned()));
            }
            Step::Iam(IamStep::AttachPolicy { .. }) => self.observed.is_role_ready = true,
            Step::Join(JoinStep::PutAwsAuthEntry(entry)) if *entry != self.resolved.aws_auth_entry => {
                self.observed.missing_auth_entries.retain(|missing| missing != entry);
            }
            Step::Join(JoinStep::PutAccessEntry(entry)) if entry.principal != self.resolved.role_arn => {
                self.observed.missing_access_entries.retain(|missing| missing != entry);
            }
            Step::Join(JoinStep::PutAwsAuthEntry(_)) => {
                (self.observed.join_state.auth_entry, self.observed.join_state.owns_auth_entry) =
                    (AuthEntryState::Present, true);
            }
            Step::Join(JoinStep::PutAccessEntry(entry)) => {
                let kind = entry.kind.as_str().to_owned();
                self.observed.join_state.access_entry = AccessEntryState::Present(RoleAccessEntry {
                    kind,
                    is_owned: true,
                    created_at: None,
                    role_id: None,
                });
            }
            Step::Fargate(FargateStep::TagFargateProfile { profile, tags, .. }) => {
                for found in self.observed.profiles.iter_mut().filter(|p| p.name == *profile) {
                    found.tags.retain(|t| tags.iter().all(|new| new.key != t.key));
                    found.tags.extend(tags.iter().cloned());
                }
            }
            Step::Fargate(FargateStep::CreateFargateProfile(new)) => self.observed.profiles.push(FargateProfile {
                name: new.name.clone(),
                arn: String::new(),
                role_arn: new.role_arn.clone(),
                subnets: new.subnets.clone(),
                selectors: new.selectors.clone(),
                status: ProfileStatus::Active,
                issues: Vec::new(),
                tags: new.tags.clone(),
            }),
            Step::Fargate(FargateStep::UntagFargateProfile { profile, keys, .. }) => {
                for found in self.observed.profiles.iter_mut().filter(|p| p.name == *profile) {
                    found.tags.retain(|t| !keys.contains(&t.key));
                }
            }
            _ => return false,
        }
        true
    }
}
