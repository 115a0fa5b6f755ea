//! Plans on: what the passes after this one would do, should every step
//! succeed and nothing else change. Only `plan` asks; the controller looks again.

use super::plan::{Input, plan};
use super::resolve::Resolved;
use super::state::{State, Version, members};
use crate::api::InstanceGroupStatus;
use crate::auth::aws_auth::EntryState;
use crate::aws::{InstanceProfile, LaunchTemplate, NewVersion, Role, ScalingGroup, TemplatePin, WarmPool};
use crate::plan::{Outcome, Pin, Plan, Planned, Recheck, Step};
use crate::upgrade::Member;

/// What a first plan leads to.
#[derive(Clone, Debug)]
pub struct Foreseen {
    /// The steps of later passes, up to where nodes, or AWS, have to be waited for.
    pub steps: Vec<Planned>,
    /// How the group stands then.
    pub outcome: Outcome,
    /// Its instances, and why they would be outdated then.
    pub members: Vec<Member>,
}

/// More passes than any group takes before it has to wait.
const PASSES: usize = 8;

/// Goes on from a plan and what it was made from.
pub fn foresee(input: &Input, first: &Plan) -> Foreseen {
    let mut world =
        World { resolved: input.resolved.clone(), state: input.state.clone(), status: input.status.clone() };
    let mut last = first.clone();
    let mut steps = Vec::new();
    for _ in 0..PASSES {
        let at_once = matches!(last.outcome, Outcome::Progressing { recheck: Recheck::Soon | Recheck::After(_), .. });
        if !at_once || !last.steps.iter().all(|planned| world.take(&planned.step)) {
            break;
        }
        world.remember(&serde_json::json!(last.facts.status));
        let World { resolved, state, status } = &world;
        last = plan(&Input { resolved, state, status, ..*input });
        steps.extend(last.steps.iter().cloned());
    }
    let members = members(&world.resolved, &world.state, &world.status);
    Foreseen { steps, outcome: last.outcome, members }
}

struct World {
    resolved: Resolved,
    state: State,
    status: InstanceGroupStatus,
}

impl World {
    /// Takes a step; false where it cannot be foreseen what follows.
    fn take(&mut self, step: &Step) -> bool {
        match step {
            Step::AddFinalizer => self.resolved.wanted.id.finalizer = true,
            Step::Record { status } => self.remember(status),
            Step::CreateRole(_) => {}
            Step::AttachPolicy { policy, .. } => self.state.attached.push(policy.clone()),
            Step::DetachPolicy { policy, .. } => self.state.attached.retain(|p| p != policy),
            Step::CreateProfile { .. } | Step::AddRoleToProfile { .. } => self.state.profile = Some(self.profile()),
            Step::RemoveRoleFromProfile { .. } => {}
            Step::CreateTemplate(template) => {
                let tags = template.tags.clone();
                let name = template.name.clone();
                self.state.template =
                    Some(LaunchTemplate { id: "(new)".into(), name, default_version: 1, latest_version: 0, tags });
                self.state.versions.clear();
                self.version(&template.version);
            }
            Step::PutTemplateVersion { version, .. } => self.version(version),
            Step::DeleteTemplateVersions { numbers, .. } => self.state.versions.retain(|n, _| !numbers.contains(n)),
            Step::DeleteConfiguration { .. } => {}
            Step::TagTemplate { tags, .. } => {
                self.state.template.iter_mut().for_each(|t| t.tags.extend(tags.iter().cloned()));
            }
            Step::TagRole { tags, .. } => {
                let role = self.state.profile.as_mut().and_then(|p| p.role.as_mut());
                role.into_iter().for_each(|r| r.tags.extend(tags.iter().cloned()));
            }
            Step::TagProfile { tags, .. } => {
                self.state.profile.iter_mut().for_each(|p| p.tags.extend(tags.iter().cloned()));
            }
            Step::PutAuthEntry(_) => {
                self.state.auth = EntryState::Present;
                self.state.auth_is_ours = true;
            }
            Step::PutHook { hook, .. } => {
                let hooks = self.state.hooks.get_or_insert_default();
                hooks.retain(|h| h.name != hook.name);
                hooks.push(hook.clone());
            }
            Step::DeleteHook { hook, .. } => {
                self.state.hooks.iter_mut().for_each(|all| all.retain(|h| h.name != *hook))
            }
            Step::UpdateGroup { .. }
            | Step::PutTags { .. }
            | Step::DeleteTags { .. }
            | Step::SuspendProcesses { .. }
            | Step::ResumeProcesses { .. }
            | Step::PutWarmPool { .. }
            | Step::DeleteWarmPool { .. }
            | Step::EnableMetrics { .. }
            | Step::DisableMetrics { .. } => {
                let template = self.state.template.as_ref().map(|t| (t.id.clone(), t.latest_version));
                return self.state.group.as_mut().is_some_and(|group| change(group, step, template.as_ref()));
            }
            Step::CreateGroup { .. }
            | Step::ReplaceWarmed { .. }
            | Step::DeleteGroup { .. }
            | Step::RemoveFinalizer
            | Step::DeleteProfile { .. }
            | Step::DeleteRole { .. }
            | Step::DeleteTemplate { .. }
            | Step::RemoveAuthEntry(_)
            | Step::MarkNode { .. }
            | Step::UnmarkNode { .. }
            | Step::SurgeNode { .. }
            | Step::UnsurgeNode { .. }
            | Step::EnterStandby { .. }
            | Step::Evict { .. }
            | Step::ForceDelete { .. }
            | Step::Terminate { .. } => return false,
        }
        true
    }

    fn remember(&mut self, patch: &serde_json::Value) {
        let mut status = serde_json::json!(self.status);
        crate::report::merge(&mut status, patch);
        self.status = serde_json::from_value(status).unwrap_or_default();
    }

    /// Old enough that IAM knows it everywhere.
    fn profile(&self) -> InstanceProfile {
        let r = &self.resolved;
        let role = Role { name: r.names.role.clone(), arn: r.role_arn.clone(), tags: Vec::new() };
        InstanceProfile {
            name: r.names.role.clone(),
            arn: r.data.profile_arn.clone(),
            created: None,
            role: Some(role),
            tags: r.ownership.clone(),
        }
    }

    fn version(&mut self, version: &NewVersion) {
        let Some(template) = &mut self.state.template else { return };
        template.latest_version += 1;
        let fingerprint = Some(self.resolved.fingerprint.clone());
        self.state.versions.insert(template.latest_version, Version { fingerprint, data: Some(version.data.clone()) });
    }
}

fn change(group: &mut ScalingGroup, step: &Step, template: Option<&(String, i64)>) -> bool {
    match step {
        Step::UpdateGroup { change, pin, .. } => {
            group.min = change.min.unwrap_or(group.min);
            group.max = change.max.unwrap_or(group.max);
            group.subnets = change.subnets.clone().unwrap_or_else(|| group.subnets.clone());
            let pinned = match pin {
                None => return true,
                Some(Pin::Version { template, number }) => (template.clone(), *number),
                Some(Pin::Made { .. }) => match template {
                    Some(made) => made.clone(),
                    None => return false,
                },
            };
            group.launch_configuration = None;
            group.template = Some(TemplatePin { id: pinned.0, version: pinned.1.to_string() });
            group.mixed.clone_from(&change.mixed);
        }
        Step::PutTags { tags, .. } => {
            group.tags.retain(|t| !tags.iter().any(|new| new.key == t.key));
            group.tags.extend(tags.iter().cloned());
        }
        Step::DeleteTags { keys, .. } => group.tags.retain(|t| !keys.contains(&t.key)),
        Step::SuspendProcesses { processes, .. } => group.suspended.extend(processes.iter().cloned()),
        Step::ResumeProcesses { processes, .. } => group.suspended.retain(|p| !processes.contains(p)),
        Step::PutWarmPool { sizes, state, .. } => {
            let state = state.clone().unwrap_or_else(|| "Stopped".into());
            group.warm_pool = Some(WarmPool { sizes: sizes.clone(), state, deleting: false });
        }
        Step::DeleteWarmPool { .. } => group.warm_pool = None,
        Step::EnableMetrics { metrics, .. } => group.metrics.extend(metrics.iter().cloned()),
        Step::DisableMetrics { metrics, .. } => group.metrics.retain(|m| !metrics.contains(m)),
        Step::AddFinalizer
        | Step::RemoveFinalizer
        | Step::Record { .. }
        | Step::CreateRole(_)
        | Step::AttachPolicy { .. }
        | Step::DetachPolicy { .. }
        | Step::CreateProfile { .. }
        | Step::AddRoleToProfile { .. }
        | Step::RemoveRoleFromProfile { .. }
        | Step::DeleteProfile { .. }
        | Step::DeleteRole { .. }
        | Step::CreateTemplate(_)
        | Step::PutTemplateVersion { .. }
        | Step::DeleteTemplateVersions { .. }
        | Step::DeleteTemplate { .. }
        | Step::DeleteConfiguration { .. }
        | Step::TagTemplate { .. }
        | Step::TagRole { .. }
        | Step::TagProfile { .. }
        | Step::CreateGroup { .. }
        | Step::PutHook { .. }
        | Step::DeleteHook { .. }
        | Step::ReplaceWarmed { .. }
        | Step::DeleteGroup { .. }
        | Step::PutAuthEntry(_)
        | Step::RemoveAuthEntry(_)
        | Step::MarkNode { .. }
        | Step::UnmarkNode { .. }
        | Step::SurgeNode { .. }
        | Step::UnsurgeNode { .. }
        | Step::EnterStandby { .. }
        | Step::Evict { .. }
        | Step::ForceDelete { .. }
        | Step::Terminate { .. } => return false,
    }
    true
}
