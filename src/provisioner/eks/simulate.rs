//! Plans on: what the passes after this one would do, should every step
//! succeed and nothing else change. Only `plan` asks; the controller looks again.

use super::input::{Input, World};
use super::observed::{State, Version};
use super::plan::plan;
use super::release::handback;
use super::resolve::Resolved;
use super::rotation::outdated;
use crate::api::InstanceGroupStatus;
use crate::auth::access_entries::Access;
use crate::auth::aws_auth::EntryState;
use crate::aws::{
    InstanceProfile, LaunchTemplate, NewVersion, Role, ScalingGroup, ScalingGroupChange, TemplatePin, WarmPool,
};
use crate::plan::{EksStep, Pin};
use crate::plan::{IamStep, JoinStep, ObjectStep, Outcome, Plan, Recheck, Step};
use crate::provisioner::{Foreseen, Given, Handback, Leaving, Seen};

/// More passes than any group takes before it has to wait.
const PASSES: usize = 8;

impl Seen for World {
    fn cluster(&self) -> &str {
        &self.resolved.wanted.cluster
    }

    fn template(&self) -> Option<&LaunchTemplate> {
        self.state.template.as_ref()
    }

    fn foresee(&self, first: &Plan, given: &Given) -> Foreseen {
        foresee(&self.input(given), first)
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
    let members = outdated::members(&then.resolved, &then.state, &then.status);
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
            Step::Object(step) => self.object(step),
            Step::Iam(step) => self.iam(step),
            Step::Join(step) => self.joined(step),
            Step::Eks(step) => self.eks(step),
            // Nodes and other controllers have to be waited for, and what another provisioner does is not of this one.
            Step::Node(_) | Step::Strategy(_) | Step::Nodegroup(_) | Step::Fargate(_) => false,
        }
    }

    fn object(&mut self, step: &ObjectStep) -> bool {
        match step {
            ObjectStep::AddFinalizer => self.resolved.wanted.id.finalizer = true,
            ObjectStep::Record { status } => self.remember(status),
            ObjectStep::RemoveFinalizer => return false,
        }
        true
    }

    fn iam(&mut self, step: &IamStep) -> bool {
        match step {
            IamStep::CreateRole(_) | IamStep::RemoveRoleFromProfile { .. } => {}
            IamStep::AttachPolicy { policy, .. } => self.state.attached.push(policy.clone()),
            IamStep::DetachPolicy { policy, .. } => self.state.attached.retain(|p| p != policy),
            IamStep::CreateProfile { .. } | IamStep::AddRoleToProfile { .. } => {
                self.state.profile = Some(self.profile())
            }
            IamStep::TagRole { tags, .. } => {
                let role = self.state.profile.as_mut().and_then(|p| p.role.as_mut());
                role.into_iter().for_each(|r| r.tags.extend(tags.iter().cloned()));
            }
            IamStep::TagProfile { tags, .. } => {
                self.state.profile.iter_mut().for_each(|p| p.tags.extend(tags.iter().cloned()));
            }
            IamStep::DeleteProfile { .. } | IamStep::DeleteRole { .. } => return false,
        }
        true
    }

    fn joined(&mut self, step: &JoinStep) -> bool {
        let join = &mut self.state.join;
        match step {
            JoinStep::PutAuthEntry(_) => (join.auth, join.auth_is_ours) = (EntryState::Present, true),
            JoinStep::RemoveAuthEntry(entry) if entry.role_arn != self.resolved.role_arn => {
                self.state.former.auth_gone.retain(|former| former != entry);
            }
            JoinStep::RemoveAccessEntry { principal, .. } if *principal != self.resolved.role_arn => {
                self.state.former.access_gone.retain(|former| former.principal != *principal);
            }
            JoinStep::RemoveAuthEntry(_) => (join.auth, join.auth_is_ours) = (EntryState::Absent, false),
            JoinStep::PutAccessEntry(entry) => {
                let kind = entry.kind.as_str().into();
                join.access = Access::Present { kind, ours: true, created: None, role_id: None };
            }
            JoinStep::RemoveAccessEntry { .. } => join.access = Access::Absent,
        }
        true
    }

    fn eks(&mut self, step: &EksStep) -> bool {
        match step {
            EksStep::CreateTemplate(template) => {
                let tags = template.tags.clone();
                let name = template.name.clone();
                self.state.template =
                    Some(LaunchTemplate { id: "(new)".into(), name, default_version: 1, latest_version: 0, tags });
                self.state.versions.clear();
                self.version(&template.version);
            }
            EksStep::PutTemplateVersion { version, .. } => self.version(version),
            EksStep::DeleteTemplateVersions { numbers, .. } => self.state.versions.retain(|n, _| !numbers.contains(n)),
            EksStep::DeleteConfiguration { .. } => {}
            EksStep::TagTemplate { tags, .. } => {
                self.state.template.iter_mut().for_each(|t| t.tags.extend(tags.iter().cloned()));
            }
            EksStep::PutHook { hook, .. } => {
                let hooks = self.state.hooks.get_or_insert_default();
                hooks.retain(|h| h.name != hook.name);
                hooks.push(hook.clone());
            }
            EksStep::DeleteHook { hook, .. } => {
                self.state.hooks.iter_mut().for_each(|all| all.retain(|h| h.name != *hook))
            }
            EksStep::UpdateGroup { change, pin, .. } => return self.update(change, pin.as_ref()),
            EksStep::PutTags { tags, .. } => {
                let put = |key: &String| tags.iter().any(|new| new.key == *key);
                self.group(|g| {
                    g.tags.retain(|t| !put(&t.key));
                    g.unpropagated.retain(|key| !put(key));
                    g.tags.extend(tags.iter().cloned());
                });
            }
            EksStep::DeleteTags { keys, .. } => self.group(|g| g.tags.retain(|t| !keys.contains(&t.key))),
            EksStep::SuspendProcesses { processes, .. } => {
                self.group(|g| g.suspended.extend(processes.iter().cloned()))
            }
            EksStep::ResumeProcesses { processes, .. } => {
                self.group(|g| g.suspended.retain(|p| !processes.contains(p)))
            }
            EksStep::PutWarmPool { sizes, state, .. } => {
                let state = state.clone().unwrap_or_else(|| "Stopped".into());
                let pool = WarmPool { sizes: sizes.clone(), state, deleting: false };
                self.group(|g| g.warm_pool = Some(pool));
            }
            EksStep::DeleteWarmPool { .. } => self.group(|g| g.warm_pool = None),
            EksStep::EnableMetrics { metrics, .. } => self.group(|g| g.metrics.extend(metrics.iter().cloned())),
            EksStep::DisableMetrics { metrics, .. } => self.group(|g| g.metrics.retain(|m| !metrics.contains(m))),
            EksStep::CreateGroup { .. }
            | EksStep::ReplaceWarmed { .. }
            | EksStep::DeleteGroup { .. }
            | EksStep::DeleteTemplate { .. } => return false,
        }
        true
    }

    fn group(&mut self, change: impl FnOnce(&mut ScalingGroup)) {
        self.state.group.as_mut().map(change);
    }

    fn update(&mut self, change: &ScalingGroupChange, pin: Option<&Pin>) -> bool {
        let made = self.state.template.as_ref().map(|t| (t.id.clone(), t.latest_version));
        let Some(group) = &mut self.state.group else { return false };
        group.min = change.min.unwrap_or(group.min);
        group.max = change.max.unwrap_or(group.max);
        group.subnets = change.subnets.clone().unwrap_or_else(|| group.subnets.clone());
        let (id, number) = match (pin, made) {
            (None, _) => return true,
            (Some(Pin::Version { template, number }), _) => (template.clone(), *number),
            (Some(Pin::Made { .. }), Some(made)) => made,
            (Some(Pin::Made { .. }), None) => return false,
        };
        group.launch_configuration = None;
        group.template = Some(TemplatePin { id, version: number.to_string() });
        group.mixed.clone_from(&change.mixed);
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
        let role =
            Role { id: String::new(), name: r.names.role.clone(), arn: r.role_arn.clone(), tags: r.ownership.clone() };
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
