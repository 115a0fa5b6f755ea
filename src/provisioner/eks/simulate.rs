//! Simulates the reconciles after a plan, assuming that every step succeeds and nothing else changes. Only the command
//! `plan` uses it; the controller observes again instead.

use super::input::{PlanInput, Snapshot};
use super::observed::{ObservedState, ObservedVersion};
use super::plan::plan;
use super::release::release;
use super::resolve::ResolvedGroup;
use super::rotation::outdated;
use super::scaling_group::scale_in;
use crate::api::InstanceGroupStatus;
use crate::auth::access_entries::{AccessEntryState, RoleAccessEntry};
use crate::auth::aws_auth::AuthEntryState;
use crate::aws::{
    InstanceProfile, InstanceState, LaunchTemplate, NewVersion, Role, ScalingGroup, ScalingGroupChange, TemplatePin,
    WarmPool,
};
use crate::plan::{EksStep, Pin};
use crate::plan::{IamStep, JoinStep, ObjectStep, Outcome, Plan, Recheck, StalledReason, Step};
use crate::provisioner::{
    ExtraNodes, NodeInPlaceChange, NodeReplacement, PlanContext, PlanSnapshot, Projection, Release, ReplacementLimits,
};
use crate::rotation::NodeInstance;

/// More reconciles than any group needs before it has to wait.
const MAX_PASSES: usize = 8;

impl PlanSnapshot for Snapshot {
    fn cluster(&self) -> &str {
        &self.resolved.desired.cluster
    }

    fn rejection(&self) -> Option<(StalledReason, String)> {
        self.resolved.broken.rejection()
    }

    fn is_recreated(&self) -> bool {
        self.observed.scaling_group.as_ref().is_none_or(|group| group.deleting)
    }

    fn launch_template(&self) -> Option<&LaunchTemplate> {
        self.observed.template.as_ref()
    }

    fn simulate(&self, first: &Plan, context: &PlanContext) -> Projection {
        simulate(&self.plan_input(context), first)
    }

    fn release(&self, status: &InstanceGroupStatus) -> Release {
        release(&self.resolved, &self.observed, status)
    }
}

/// Simulates what follows a plan.
pub(crate) fn simulate(input: &PlanInput, first: &Plan) -> Projection {
    let mut simulation = PlanSimulation {
        resolved: input.resolved.clone(),
        observed: input.observed.clone(),
        status: input.status.clone(),
    };
    let mut last = first.clone();
    let mut steps = Vec::new();
    for _ in 0..MAX_PASSES {
        let continues =
            matches!(last.outcome, Outcome::Progressing { recheck: Recheck::Immediately | Recheck::After(_), .. });
        if !continues || !last.steps.iter().all(|planned| simulation.apply_step(&planned.step)) {
            break;
        }
        simulation.merge_status(&serde_json::json!(last.status_update.fields));
        let PlanSimulation { resolved, observed, status } = &simulation;
        last = plan(&PlanInput { resolved, observed, status, ..*input });
        steps.extend(last.steps.iter().cloned());
    }
    let members = outdated::members(&simulation.resolved, &simulation.observed, &simulation.status);
    let (mut replacements, mut in_place) = (Vec::new(), Vec::new());
    for NodeInstance { instance, node, reasons, in_place: update, .. } in members {
        let (instance, zone, node) = (instance.id, instance.zone, node.map(|node| node.name));
        match update {
            Some(update) => in_place.push(NodeInPlaceChange { instance, node, reasons: update.reasons }),
            None if reasons.is_empty() => {}
            None => replacements.push(NodeReplacement { instance, node, zone, reasons }),
        }
    }
    let (spec, group) = (&input.resolved.desired, &input.observed.scaling_group);
    let desired = group.as_ref().map_or(0, |g| g.desired);
    let heaviest = group.iter().flat_map(|g| &g.instances).map(|i| i.weight as usize).max().unwrap_or(1);
    let nodes = usize::try_from(desired).unwrap_or(0);
    Projection {
        steps,
        outcome: last.outcome,
        max_unavailable: match spec.crd_strategy {
            Some(_) => 0,
            None => spec.rolling_update.max_unavailable.resolve_nodes(nodes, heaviest),
        },
        replacements,
        in_place,
        limits: spec.crd_strategy.is_none().then_some(ReplacementLimits {
            drain: spec.rolling_update.drain_timeout,
            join: spec.rolling_update.join_timeout,
        }),
        scale_in: group.as_ref().map_or(0, |group| surplus_instances(group, spec.max_size)),
        evictions: None,
        extra_nodes: match spec.rolling_update.max_surge.resolve_surge(nodes, heaviest) {
            0 => ExtraNodes::None,
            _ if spec.crd_strategy.is_some() => ExtraNodes::None,
            surge => ExtraNodes::Surge(surge),
        },
        irreversible: None,
    }
}

/// How many instances are removed until at most `max_size` units of capacity are desired: the lightest first, as the rotation
/// selects them. An instance that counts for more than what is left of the surplus stays.
fn surplus_instances(group: &ScalingGroup, max_size: i32) -> usize {
    let surplus = usize::try_from(group.desired.saturating_sub(max_size)).unwrap_or(0);
    if !scale_in::is_weighted(group) {
        return surplus;
    }
    let in_service = group.instances.iter().filter(|i| i.state == InstanceState::InService);
    let mut weights: Vec<_> = in_service.map(|i| i.weight.max(1) as usize).collect();
    weights.sort_unstable();
    let mut left = surplus;
    let is_removed = |weight: &&usize| {
        let fits = **weight <= left;
        left = left.saturating_sub(**weight);
        fits
    };
    weights.iter().take_while(is_removed).count()
}

/// The state after the simulated steps.
struct PlanSimulation {
    resolved: ResolvedGroup,
    observed: ObservedState,
    status: InstanceGroupStatus,
}

impl PlanSimulation {
    /// Applies a step; false when its result cannot be simulated.
    fn apply_step(&mut self, step: &Step) -> bool {
        match step {
            Step::Object(step) => self.apply_object_step(step),
            Step::Iam(step) => self.apply_iam_step(step),
            Step::Join(step) => self.apply_join_step(step),
            Step::Eks(step) => self.apply_eks_step(step),
            // These steps depend on nodes and other controllers, or belong to another provisioner.
            Step::Node(_) | Step::Strategy(_) | Step::Nodegroup(_) | Step::Fargate(_) => false,
        }
    }

    fn apply_object_step(&mut self, step: &ObjectStep) -> bool {
        match step {
            ObjectStep::AddFinalizer => self.resolved.desired.id.has_finalizer = true,
            ObjectStep::UpdateStatus { status } => self.merge_status(status),
            ObjectStep::RemoveFinalizer => return false,
        }
        true
    }

    fn apply_iam_step(&mut self, step: &IamStep) -> bool {
        match step {
            IamStep::CreateRole(_) | IamStep::RemoveRoleFromProfile { .. } | IamStep::UpdateTrustPolicy { .. } => {}
            IamStep::AttachPolicy { policy, .. } => self.observed.attached_policies.push(policy.clone()),
            IamStep::DetachPolicy { policy, .. } => self.observed.attached_policies.retain(|p| p != policy),
            IamStep::CreateProfile { .. } | IamStep::AddRoleToProfile { .. } => {
                self.observed.instance_profile = Some(self.propagated_profile())
            }
            IamStep::TagRole { tags, .. } => {
                let role = self.observed.instance_profile.as_mut().and_then(|p| p.role.as_mut());
                let role = role.into_iter().chain(&mut self.observed.role);
                role.for_each(|r| r.tags.extend(tags.iter().cloned()));
            }
            IamStep::TagProfile { tags, .. } => {
                self.observed.instance_profile.iter_mut().for_each(|p| p.tags.extend(tags.iter().cloned()));
            }
            IamStep::DeleteProfile { .. } | IamStep::DeleteRole { .. } => return false,
        }
        true
    }

    fn apply_join_step(&mut self, step: &JoinStep) -> bool {
        let join = &mut self.observed.join;
        match step {
            JoinStep::PutAwsAuthEntry(entry) if *entry != self.resolved.aws_auth_entry => {
                self.observed.previous_roles.missing_auth_entries.retain(|missing| missing != entry);
            }
            JoinStep::PutAwsAuthEntry(_) | JoinStep::WidenAwsAuthEntry(_) => {
                (join.auth_entry, join.owns_auth_entry) = (AuthEntryState::Present, true)
            }
            JoinStep::RemoveAwsAuthEntry(entry) if entry.role_arn != self.resolved.role_arn => {
                self.observed.previous_roles.unused_auth_entries.retain(|previous| previous != entry);
            }
            JoinStep::RemoveAccessEntry { principal, .. } if *principal != self.resolved.role_arn => {
                self.observed.previous_roles.unused_access_entries.retain(|previous| previous.principal != *principal);
            }
            JoinStep::RemoveAwsAuthEntry(_) => {
                (join.auth_entry, join.owns_auth_entry) = (AuthEntryState::Absent, false)
            }
            JoinStep::PutAccessEntry(entry) if entry.principal != self.resolved.role_arn => {
                self.observed.previous_roles.missing_access_entries.retain(|missing| missing != entry);
            }
            JoinStep::PutAccessEntry(entry) => {
                let kind = entry.kind.as_str().into();
                join.access_entry = AccessEntryState::Present(RoleAccessEntry {
                    kind,
                    is_owned: true,
                    created_at: None,
                    role_id: None,
                });
            }
            JoinStep::RemoveAccessEntry { .. } => join.access_entry = AccessEntryState::Absent,
        }
        true
    }

    fn apply_eks_step(&mut self, step: &EksStep) -> bool {
        match step {
            EksStep::CreateTemplate(template) => {
                let tags = template.tags.clone();
                let name = template.name.clone();
                self.observed.template =
                    Some(LaunchTemplate { id: "(new)".into(), name, default_version: 1, latest_version: 0, tags });
                self.observed.versions.clear();
                self.add_version(&template.version);
            }
            EksStep::PutTemplateVersion { version, .. } => self.add_version(version),
            EksStep::DeleteTemplateVersions { numbers, .. } => {
                self.observed.versions.retain(|n, _| !numbers.contains(n))
            }
            EksStep::DeleteConfiguration { .. } | EksStep::TagInstances { .. } => {}
            EksStep::TagTemplate { tags, .. } => {
                self.observed.template.iter_mut().for_each(|t| t.tags.extend(tags.iter().cloned()));
            }
            EksStep::PutHook { hook, .. } => {
                let hooks = self.observed.lifecycle_hooks.get_or_insert_default();
                hooks.retain(|h| h.name != hook.name);
                hooks.push(hook.clone());
            }
            EksStep::DeleteHook { hook, .. } => {
                self.observed.lifecycle_hooks.iter_mut().for_each(|all| all.retain(|h| h.name != *hook))
            }
            EksStep::UpdateGroup { change, pin, .. } => return self.update_scaling_group(change, pin.as_ref()),
            EksStep::PutTags { tags, .. } => {
                let put = |key: &String| tags.iter().any(|new| new.key == *key);
                self.edit_scaling_group(|g| {
                    g.tags.retain(|t| !put(&t.key));
                    g.unpropagated_tags.retain(|key| !put(key));
                    g.tags.extend(tags.iter().cloned());
                });
            }
            EksStep::DeleteTags { keys, .. } => self.edit_scaling_group(|g| g.tags.retain(|t| !keys.contains(&t.key))),
            EksStep::SuspendProcesses { processes, .. } => {
                self.edit_scaling_group(|g| g.suspended_processes.extend(processes.iter().cloned()))
            }
            EksStep::ResumeProcesses { processes, .. } => {
                self.edit_scaling_group(|g| g.suspended_processes.retain(|p| !processes.contains(p)))
            }
            EksStep::PutWarmPool { sizes, state, reuse_on_scale_in, .. } => {
                let state = state.clone().unwrap_or_else(|| "Stopped".into());
                let pool = WarmPool {
                    sizes: sizes.clone(),
                    state,
                    reuse_on_scale_in: *reuse_on_scale_in,
                    deleting: false,
                    size: None,
                };
                self.edit_scaling_group(|g| g.warm_pool = Some(pool));
            }
            EksStep::DeleteWarmPool { .. } => self.edit_scaling_group(|g| g.warm_pool = None),
            EksStep::EnableMetrics { metrics, .. } => {
                self.edit_scaling_group(|g| g.enabled_metrics.extend(metrics.iter().cloned()))
            }
            EksStep::DisableMetrics { metrics, .. } => {
                self.edit_scaling_group(|g| g.enabled_metrics.retain(|m| !metrics.contains(m)))
            }
            EksStep::CreateGroup { .. }
            | EksStep::ReplaceWarmInstance { .. }
            | EksStep::DeleteGroup { .. }
            | EksStep::DeleteTemplate { .. } => return false,
        }
        true
    }

    fn edit_scaling_group(&mut self, change: impl FnOnce(&mut ScalingGroup)) {
        self.observed.scaling_group.as_mut().map(change);
    }

    fn update_scaling_group(&mut self, change: &ScalingGroupChange, pin: Option<&Pin>) -> bool {
        let latest = self.observed.template.as_ref().map(|t| (t.id.clone(), t.latest_version));
        let Some(group) = &mut self.observed.scaling_group else { return false };
        group.min = change.min.unwrap_or(group.min);
        group.max = change.max.unwrap_or(group.max);
        group.subnets = change.subnets.clone().unwrap_or_else(|| group.subnets.clone());
        let (id, number) = match (pin, latest) {
            (None, _) => return true,
            (Some(Pin::Version { template, number }), _) => (template.clone(), *number),
            (Some(Pin::Made { .. }), Some(latest)) => latest,
            (Some(Pin::Made { .. }), None) => return false,
        };
        group.launch_configuration = None;
        group.template = Some(TemplatePin { id, version: number.to_string() });
        group.mixed.clone_from(&change.mixed);
        true
    }

    fn merge_status(&mut self, patch: &serde_json::Value) {
        let mut status = serde_json::json!(self.status);
        crate::api::apply_merge_patch(&mut status, patch);
        self.status = serde_json::from_value(status).unwrap_or_default();
    }

    /// The instance profile as if it had propagated in IAM.
    fn propagated_profile(&self) -> InstanceProfile {
        let r = &self.resolved;
        let role = Role {
            id: String::new(),
            name: r.names.role.clone(),
            arn: r.role_arn.clone(),
            tags: r.iam_tags(),
            ..Role::default()
        };
        InstanceProfile {
            id: String::new(),
            name: r.names.role.clone(),
            arn: r.template_data.profile_arn.clone(),
            created: None,
            role: Some(role),
            tags: r.iam_tags(),
        }
    }

    fn add_version(&mut self, version: &NewVersion) {
        let Some(template) = &mut self.observed.template else { return };
        template.latest_version += 1;
        let fingerprint = Some(self.resolved.fingerprint.clone());
        let added = ObservedVersion::new(fingerprint, Some(version.data.clone()));
        self.observed.versions.insert(template.latest_version, added);
    }
}
