//! Plans on: what the passes after this one would do, should every step succeed and nothing else change.

use super::input::World;
use super::observed::{Found, serves};
use super::plan::plan;
use crate::api::InstanceGroupStatus;
use crate::auth::access_entries::Access;
use crate::auth::aws_auth::EntryState;
use crate::aws::fargate::{FargateProfile, ProfileStatus};
use crate::plan::FargateStep;
use crate::plan::{IamStep, JoinStep, ObjectStep, Outcome, Plan, Recheck, Step};
use crate::provisioner::Handback;
use crate::provisioner::{Foreseen, Given, Seen};

/// More passes than any group takes before it has to wait.
const PASSES: usize = 4;

impl Seen for World {
    fn cluster(&self) -> &str {
        &self.resolved.wanted.cluster
    }

    fn foresee(&self, first: &Plan, given: &Given) -> Foreseen {
        let (mut world, mut status, mut last) = (self.clone(), given.status.clone(), first.clone());
        let mut steps = Vec::new();
        for _ in 0..PASSES {
            let at_once =
                matches!(last.outcome, Outcome::Progressing { recheck: Recheck::Soon | Recheck::After(_), .. });
            // What the newer profile is waited for is part of the answer: the older one goes, with its pods.
            let replaces =
                |s: &Step| matches!(s, Step::Fargate(FargateStep::CreateFargateProfile(new)) if new.replaces.is_some());
            let goes_on = at_once || last.steps.iter().any(|planned| replaces(&planned.step));
            if !goes_on || !last.steps.iter().all(|planned| world.take(&planned.step, &mut status)) {
                break;
            }
            last = plan(&world.input(&Given { status: &status, ..*given }));
            steps.extend(last.steps.iter().cloned());
        }
        Foreseen { steps, outcome: last.outcome, leaving: Vec::new(), at_once: 0, remove: 0 }
    }

    /// The original looks for the profile of the derived name alone, and would make it anew.
    fn handback(&self, status: &InstanceGroupStatus) -> Handback {
        let found = Found::of(&self.resolved, &self.state, status);
        if let [_, _, ..] = found.own.as_slice() {
            let outdated = |p: &&&FargateProfile| !serves(p, &self.resolved, None);
            let old = found.own.iter().find(outdated).map_or("", |p| p.name.as_str());
            return Handback::Rotating(format!("the Fargate profile {old}"));
        }
        Handback::Nothing(match found.own.iter().all(|profile| profile.name == self.resolved.names.first) {
            true => "has the Fargate profile that its former controller knows",
            false => "has a Fargate profile that its former controller does not know: it would make another beside it",
        })
    }
}

impl World {
    /// Takes a step; false where it cannot be foreseen what follows.
    fn take(&mut self, step: &Step, status: &mut InstanceGroupStatus) -> bool {
        match step {
            Step::Object(ObjectStep::AddFinalizer) => self.resolved.wanted.id.finalizer = true,
            Step::Object(ObjectStep::Record { status: recorded }) => {
                let mut all = serde_json::json!(status);
                crate::api::merge_patch(&mut all, recorded);
                *status = serde_json::from_value(all).unwrap_or_default();
            }
            Step::Iam(IamStep::CreateRole(_)) => {}
            Step::Iam(IamStep::AttachPolicy { .. }) => self.state.role_ready = true,
            Step::Join(JoinStep::PutAuthEntry(_)) => {
                (self.state.join.auth, self.state.join.auth_is_ours) = (EntryState::Present, true);
            }
            Step::Join(JoinStep::PutAccessEntry(entry)) => {
                let kind = entry.kind.as_str().to_owned();
                self.state.join.access = Access::Present { kind, ours: true, created: None, role_id: None };
            }
            Step::Fargate(FargateStep::TagFargateProfile { profile, tags, .. }) => {
                for found in self.state.profiles.iter_mut().filter(|p| p.name == *profile) {
                    found.tags.retain(|t| tags.iter().all(|new| new.key != t.key));
                    found.tags.extend(tags.iter().cloned());
                }
            }
            Step::Fargate(FargateStep::CreateFargateProfile(new)) => self.state.profiles.push(FargateProfile {
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
                for found in self.state.profiles.iter_mut().filter(|p| p.name == *profile) {
                    found.tags.retain(|t| !keys.contains(&t.key));
                }
            }
            _ => return false,
        }
        true
    }
}
