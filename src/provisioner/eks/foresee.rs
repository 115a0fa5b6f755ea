//! Plans on: what the passes after this one would do, should every step
//! succeed and nothing else change. Only `plan` asks; the controller looks again.

use super::handback::handback;
use super::plan::{Input, plan};
use super::resolve::Resolved;
use super::state::{State, Version, members};
use crate::api::InstanceGroupStatus;
use crate::auth::access_entries::Access;
use crate::auth::aws_auth::EntryState;
use crate::aws::{InstanceProfile, LaunchTemplate, NewVersion, Role, ScalingGroup, TemplatePin, WarmPool};
use crate::plan::{Outcome, Pin, Plan, Recheck, Step};
use crate::provisioner::{Foreseen, Handback, Leaving, Onward, Seen};

/// More passes than any group takes before it has to wait.
const PASSES: usize = 8;

/// What is wanted and what there is.
pub struct World {
    /// What is wanted.
    pub resolved: Resolved,
    /// What there is.
    pub state: State,
}

impl Seen for World {
    fn cluster(&self) -> &str {
        &self.resolved.wanted.cluster
    }

    fn template(&self) -> Option<&LaunchTemplate> {
        self.state.template.as_ref()
    }

    fn foresee(&self, first: &Plan, onward: &Onward) -> Foreseen {
        let input = Input {
            resolved: &self.resolved,
            state: &self.state,
            status: onward.status,
            lock: onward.lock,
            retention: onward.settings.retention,
            timing: &onward.settings.timing,
            now: onward.now,
        };
        foresee(&input, first)
    }

    fn handback(&self, status: &InstanceGroupStatus) -> Handback {
        handback(&self.resolved, &self.state, status)
    }
}

/// Goes on from a plan and what it was made from.
pub fn foresee(input: &Input, first: &Plan) -> Foreseen {
    let mut then = Then { resolved: input.resolved.clone(), state: input.state.clone(), status: input.status.clone() };
    let mut last = first.clone();
    let mut steps = Vec::new();
    for _ in 0..PASSES {
        let at_once = matches!(last.outcome, Outcome::Progressing { recheck: Recheck::Soon | Recheck::After(_), .. });
        if !at_once || !last.steps.iter().all(|planned| then.take(&planned.step)) {
            break;
        }
        then.remember(&serde_json::json!(last.facts.status));
        let Then { resolved, state, status } = &then;
        last = plan(&Input { resolved, state, status, ..*input });
        steps.extend(last.steps.iter().cloned());
    }
    let members = members(&then.resolved, &then.state, &then.status);
    let outdated = members.into_iter().filter(|m| !m.outdated.is_empty());
    let leaving: Vec<_> = outdated
        .map(|m| Leaving { instance: m.instance.id, node: m.node.map(|n| n.name), because: m.outdated })
        .collect();
    let (wanted, group) = (&input.resolved.wanted, &input.state.group);
    let desired = group.as_ref().map_or(0, |g| g.desired);
    let heaviest = group.iter().flat_map(|g| &g.instances).map(|i| i.weight as usize).max().unwrap_or(1);
    Foreseen {
        steps,
        outcome: last.outcome,
        at_once: match wanted.crd {
            Some(_) => 0,
            None => wanted.strategy.max_unavailable.nodes(usize::try_from(desired).unwrap_or(0), heaviest),
        },
        leaving,
        remove: usize::try_from(desired - wanted.max).unwrap_or(0),
    }
}

/// How things stand after the steps that were foreseen.
struct Then {
    resolved: Resolved,
    state: State,
    status: InstanceGroupStatus,
}

impl Then {
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
                (self.state.join.auth, self.state.join.auth_is_ours) = (EntryState::Present, true);
            }
            Step::RemoveAuthEntry(_) => {
                (self.state.join.auth, self.state.join.auth_is_ours) = (EntryState::Absent, false)
            }
            Step::PutAccessEntry(entry) => {
                let kind = entry.kind.as_str().into();
                self.state.join.access = Access::Present { kind, ours: true, created: None, role_id: None };
            }
            Step::RemoveAccessEntry { .. } => self.state.join.access = Access::Absent,
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
            | Step::CreateFargateProfile(_)
            | Step::DeleteFargateProfile { .. }
            | Step::TagFargateProfile { .. }
            | Step::UntagFargateProfile { .. }
            | Step::CreateNodegroup(_)
            | Step::UpdateNodegroup { .. }
            | Step::UpdateNodegroupVersion { .. }
            | Step::TagNodegroup { .. }
            | Step::UntagNodegroup { .. }
            | Step::DeleteNodegroup { .. }
            | Step::MarkNode { .. }
            | Step::UnmarkNode { .. }
            | Step::SurgeNode { .. }
            | Step::UnsurgeNode { .. }
            | Step::EnterStandby { .. }
            | Step::Evict { .. }
            | Step::ForceDelete { .. }
            | Step::SubmitStrategy { .. }
            | Step::DeleteStrategy { .. }
            | Step::Terminate { .. } => return false,
        }
        true
    }

    fn remember(&mut self, patch: &serde_json::Value) {
        let mut status = serde_json::json!(self.status);
        crate::api::merge_patch(&mut status, patch);
        self.status = serde_json::from_value(status).unwrap_or_default();
    }

    /// Old enough that IAM knows it everywhere.
    fn profile(&self) -> InstanceProfile {
        let r = &self.resolved;
        let role = Role { id: String::new(), name: r.names.role.clone(), arn: r.role_arn.clone(), tags: Vec::new() };
        InstanceProfile {
            id: String::new(),
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
            group.unpropagated.retain(|key| !tags.iter().any(|new| new.key == *key));
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
        | Step::CreateFargateProfile(_)
        | Step::DeleteFargateProfile { .. }
        | Step::TagFargateProfile { .. }
        | Step::UntagFargateProfile { .. }
        | Step::CreateNodegroup(_)
        | Step::UpdateNodegroup { .. }
        | Step::UpdateNodegroupVersion { .. }
        | Step::TagNodegroup { .. }
        | Step::UntagNodegroup { .. }
        | Step::DeleteNodegroup { .. }
        | Step::RemoveAuthEntry(_)
        | Step::PutAccessEntry(_)
        | Step::RemoveAccessEntry { .. }
        | Step::MarkNode { .. }
        | Step::UnmarkNode { .. }
        | Step::SurgeNode { .. }
        | Step::UnsurgeNode { .. }
        | Step::EnterStandby { .. }
        | Step::Evict { .. }
        | Step::ForceDelete { .. }
        | Step::SubmitStrategy { .. }
        | Step::DeleteStrategy { .. }
        | Step::Terminate { .. } => return false,
    }
    true
}
