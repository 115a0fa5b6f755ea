//! Does what a plan says, step by step, and answers what came of it.
//!
//! Nothing is decided here but this: a step that fails ends the pass, the
//! brake and the lease are looked at again before every act that takes nodes
//! away, and a create that finds its name taken looks whose it is.

mod join;

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::json;

use crate::auth::aws_auth;
use crate::aws::inventory::Inventory;
use crate::aws::{
    AwsError, AwsErrorKind, InstanceProfile, LaunchTemplate, NewRole, NewScalingGroup, NewTemplate, Role, Tag,
    TemplatePin, TemplateVersion,
};
use crate::cluster::{ClusterError, ClusterWrites, EvictOutcome};
use crate::memory::Memory;
use crate::plan::{Pin, Plan, Planned, PodRef, Reason, Step};
use crate::provisioner::GroupId;
use crate::provisioner::eks::state::owned;
use crate::upgrade::Disruption;
pub use join::{Edit, Joining};

/// What an apply needs.
pub struct Applier<'a> {
    /// AWS, with the memory of our own writes.
    pub inventory: &'a Inventory,
    /// Kubernetes writes.
    pub cluster: &'a dyn ClusterWrites,
    /// Clocks of drains.
    pub memory: &'a Memory,
    /// The only writer of aws-auth.
    pub joining: &'a Joining,
    /// Whether this process may write, asked again at every step.
    pub leading: &'a (dyn Fn() -> bool + Sync),
    /// Where the ConfigMap with the brake is.
    pub config_namespace: &'a str,
    /// How long a drain that ran into its timeout rests.
    pub rest: jiff::SignedDuration,
    /// The moment of the plan.
    pub now: Timestamp,
}

/// What came of a plan.
#[derive(Debug)]
pub struct Applied {
    /// The plan.
    pub plan: Plan,
    /// How many of its steps were done.
    pub done: usize,
    /// Why the next one was not.
    pub stopped: Option<Stopped>,
    /// Evictions that a budget refused.
    pub refusals: Vec<Refusal>,
    /// The resourceVersion that our last write to the InstanceGroup gave.
    pub resource_version: Option<String>,
}

/// Why a pass ended early.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// AWS refused or did not answer.
    #[error("{0}")]
    Aws(#[source] AwsError),
    /// Kubernetes refused or did not answer.
    #[error("{0}")]
    Cluster(#[source] ClusterError),
    /// aws-auth cannot be edited.
    #[error("{0}")]
    Auth(#[source] aws_auth::AuthProblem),
    /// The name belongs to someone else.
    #[error("{0} is there and carries another owner's tags")]
    NotOurs(String),
    /// Somebody pulled the brake.
    #[error("lock-upgrades is set on {0}")]
    Locked(&'static str),
    /// The lease is gone.
    #[error("another instance of the controller leads now")]
    NotLeading,
}

/// An eviction that a budget refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The pod.
    pub pod: PodRef,
    /// The budgets that select it.
    pub budgets: Vec<String>,
    /// The API server's words.
    pub message: String,
    /// Pods of the same owner that find no room.
    pub homeless: Vec<String>,
}

enum Done {
    Yes,
    Refused(Refusal),
    Version(String),
}

type Step_ = Result<Done, Stopped>;

/// Applies a plan to the group it was made for.
pub async fn apply(
    a: &Applier<'_>,
    id: &GroupId,
    resource_version: &str,
    finalizers: &[String],
    plan: Plan,
) -> Applied {
    let mut run =
        Run { a, id, rv: resource_version.to_owned(), finalizers, made: HashMap::new(), roles: HashMap::new() };
    let mut applied = Applied { done: 0, stopped: None, refusals: Vec::new(), resource_version: None, plan };
    for index in 0..applied.plan.steps.len() {
        let Planned { step, because } = &applied.plan.steps[index];
        match run.step(step).await {
            Ok(Done::Yes) => {}
            Ok(Done::Refused(refusal)) => applied.refusals.push(refusal),
            Ok(Done::Version(version)) => {
                run.rv.clone_from(&version);
                applied.resource_version = Some(version);
            }
            Err(stopped) => {
                tracing::warn!(group = %id.key(), step = step.name(), %stopped, "a step was not done");
                applied.stopped = Some(stopped);
                break;
            }
        }
        let refused = applied.refusals.last().filter(|r| matches!(step, Step::Evict { pod, .. } if *pod == r.pod));
        if let Some(refusal) = refused {
            tracing::info!(group = %id.key(), step = step.name(), budgets = ?refusal.budgets, "refused");
            applied.done = index + 1;
            continue;
        }
        let why: Vec<_> = because.iter().map(ToString::to_string).collect();
        tracing::info!(group = %id.key(), step = step.name(), because = %why.join("; "), "done");
        applied.done = index + 1;
    }
    applied
}

struct Run<'a> {
    a: &'a Applier<'a>,
    id: &'a GroupId,
    rv: String,
    finalizers: &'a [String],
    /// Versions that this pass made, by hash line.
    made: HashMap<String, TemplatePin>,
    /// Roles that this pass made or found, by name.
    roles: HashMap<String, Role>,
}

fn ok<T>(result: Result<T, AwsError>) -> Step_ {
    result.map(|_| Done::Yes).map_err(Stopped::Aws)
}

/// A delete of what is gone already is done.
fn gone<T>(result: Result<T, AwsError>) -> Step_ {
    match result {
        Err(error) if error.kind == AwsErrorKind::NotFound => Ok(Done::Yes),
        other => ok(other),
    }
}

impl Run<'_> {
    async fn step(&mut self, step: &Step) -> Step_ {
        if step.disrupts() && !self.id.deleting {
            self.brake().await?;
        }
        // Last, so that nothing is waited for between the answer and the act.
        if !(self.a.leading)() {
            return Err(Stopped::NotLeading);
        }
        match step {
            Step::AddFinalizer | Step::RemoveFinalizer | Step::Record { .. } => self.group_object(step).await,
            Step::CreateRole(_)
            | Step::AttachPolicy { .. }
            | Step::DetachPolicy { .. }
            | Step::CreateProfile { .. }
            | Step::AddRoleToProfile { .. }
            | Step::RemoveRoleFromProfile { .. }
            | Step::DeleteProfile { .. }
            | Step::DeleteRole { .. } => self.iam(step).await,
            Step::CreateTemplate(_)
            | Step::PutTemplateVersion { .. }
            | Step::DeleteTemplateVersions { .. }
            | Step::DeleteTemplate { .. }
            | Step::TagTemplate { .. } => self.template(step).await,
            Step::CreateGroup { group, pin } => self.create_group(group, pin).await,
            Step::UpdateGroup { .. }
            | Step::PutTags { .. }
            | Step::DeleteTags { .. }
            | Step::SuspendProcesses { .. }
            | Step::ResumeProcesses { .. }
            | Step::EnableMetrics { .. }
            | Step::DisableMetrics { .. }
            | Step::PutHook { .. }
            | Step::DeleteHook { .. }
            | Step::DeleteGroup { .. }
            | Step::Terminate { .. } => self.scaling_group(step).await,
            Step::PutAuthEntry(entry) => self.join(Edit::Put(entry.clone())).await,
            Step::RemoveAuthEntry(entry) => self.join(Edit::Remove(entry.clone())).await,
            Step::MarkNode { .. } | Step::UnmarkNode { .. } | Step::Evict { .. } | Step::ForceDelete { .. } => {
                self.node(step).await
            }
        }
    }

    /// Read from the objects themselves, right before the act.
    async fn brake(&self) -> Result<(), Stopped> {
        let locks = self
            .a
            .cluster
            .locks(&self.id.namespace, &self.id.name, self.a.config_namespace)
            .await
            .map_err(Stopped::Cluster)?;
        match (locks.group, locks.namespace, locks.config_map) {
            (true, _, _) => Err(Stopped::Locked("the InstanceGroup")),
            (_, true, _) => Err(Stopped::Locked("its Namespace")),
            (_, _, true) => Err(Stopped::Locked("the instance-manager ConfigMap")),
            (false, false, false) => Ok(()),
        }
    }

    async fn group_object(&mut self, step: &Step) -> Step_ {
        let GroupId { namespace, name, .. } = self.id;
        let cluster = self.a.cluster;
        let result = match step {
            Step::AddFinalizer => cluster.add_finalizer(namespace, name, &self.rv, self.finalizers).await,
            Step::Record { status } => cluster.patch_status(namespace, name, &self.rv, status.clone()).await,
            _ => {
                return cluster
                    .remove_finalizer(namespace, name, self.finalizers)
                    .await
                    .map(|()| Done::Yes)
                    .map_err(Stopped::Cluster);
            }
        };
        result.map(Done::Version).map_err(Stopped::Cluster)
    }

    async fn iam(&mut self, step: &Step) -> Step_ {
        let inventory = self.a.inventory;
        let iam = &inventory.aws().iam;
        match step {
            Step::CreateRole(input) => self.create_role(input).await,
            Step::AttachPolicy { role, policy } => {
                ok(iam.attach_policy(role, policy).await.inspect(|()| inventory.attached_policy(role, policy)))
            }
            Step::DetachPolicy { role, policy } => {
                gone(iam.detach_policy(role, policy).await.inspect(|()| inventory.detached_policy(role, policy)))
            }
            Step::CreateProfile { profile, tags } => self.create_profile(profile, tags).await,
            Step::AddRoleToProfile { profile, role } => {
                iam.add_role_to_profile(profile, role).await.map_err(Stopped::Aws)?;
                match self.roles.get(role) {
                    Some(role) => inventory.role_added(profile, role),
                    None => inventory.wrote_profile(profile),
                }
                Ok(Done::Yes)
            }
            Step::RemoveRoleFromProfile { profile, role } => {
                gone(iam.remove_role_from_profile(profile, role).await.inspect(|()| inventory.role_removed(profile)))
            }
            Step::DeleteProfile { profile } => {
                gone(iam.delete_profile(profile).await.inspect(|()| inventory.gone_profile(profile)))
            }
            Step::DeleteRole { role } => gone(iam.delete_role(role).await),
            other => unreachable!("{} is no step of IAM", other.name()),
        }
    }

    /// A role that is there already is adopted when its tags are ours: a create whose answer was lost.
    async fn create_role(&mut self, input: &NewRole) -> Step_ {
        let iam = self.a.inventory.aws().iam.clone();
        let role = match iam.create_role(input).await {
            Ok(role) => role,
            Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
                let found = iam.get_role(&input.name).await.map_err(Stopped::Aws)?;
                self.ours(&input.name, error.clone(), found.as_ref().map(|r| r.tags.clone()), &input.tags)?;
                found.ok_or(Stopped::Aws(error))?
            }
            Err(error) => return Err(Stopped::Aws(error)),
        };
        self.roles.insert(role.name.clone(), role);
        Ok(Done::Yes)
    }

    async fn create_profile(&self, name: &str, tags: &[Tag]) -> Step_ {
        let inventory = self.a.inventory;
        match inventory.aws().iam.create_profile(name, tags).await {
            Ok(profile) => inventory.made_profile(profile),
            Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
                let found: Option<InstanceProfile> =
                    inventory.aws().iam.get_profile(name).await.map_err(Stopped::Aws)?;
                self.ours(name, error, found.as_ref().map(|p| p.tags.clone()), tags)?;
                found.into_iter().for_each(|p| inventory.made_profile(p));
            }
            Err(error) => return Err(Stopped::Aws(error)),
        }
        Ok(Done::Yes)
    }

    /// What refused a create is ours, or someone else's. A read that does not show it lags behind: nobody knows yet.
    fn ours(&self, name: &str, refusal: AwsError, found: Option<Vec<Tag>>, tags: &[Tag]) -> Step_ {
        match found {
            None => Err(Stopped::Aws(refusal)),
            Some(held) if owned(&held, tags) => Ok(Done::Yes),
            Some(_) => {
                self.a.memory.set_collided(&self.id.key());
                Err(Stopped::NotOurs(name.to_owned()))
            }
        }
    }

    async fn template(&mut self, step: &Step) -> Step_ {
        let inventory = self.a.inventory;
        let ec2 = &inventory.aws().ec2;
        match step {
            Step::CreateTemplate(input) => self.create_template(input).await,
            Step::PutTemplateVersion { template, version } => {
                let made = ec2.create_version(template, version).await.map_err(Stopped::Aws)?;
                self.made(&version.description, made);
                Ok(Done::Yes)
            }
            Step::DeleteTemplateVersions { template, numbers } => gone(
                ec2.delete_versions(template, numbers).await.inspect(|()| inventory.gone_versions(template, numbers)),
            ),
            Step::DeleteTemplate { template } => {
                gone(ec2.delete_template(template).await.inspect(|()| inventory.gone_template(template)))
            }
            Step::TagTemplate { template, tags } => {
                ok(ec2.create_tags(template, tags).await.inspect(|()| inventory.wrote_template_id(template)))
            }
            other => unreachable!("{} is no step of launch templates", other.name()),
        }
    }

    async fn create_template(&mut self, input: &NewTemplate) -> Step_ {
        let inventory = self.a.inventory;
        match inventory.aws().ec2.create_template(input).await {
            Ok(version) => {
                let template = LaunchTemplate {
                    id: version.template_id.clone(),
                    name: input.name.clone(),
                    default_version: 1,
                    latest_version: 1,
                    tags: input.tags.clone(),
                };
                inventory.made_template(template);
                self.made(&input.version.description, version);
                Ok(Done::Yes)
            }
            Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
                let found = inventory.template(&input.name, std::time::Duration::ZERO).await.map_err(Stopped::Aws)?;
                self.ours(&input.name, error.clone(), found.map(|t| t.tags), &input.tags)?;
                // Ours after all: the next pass sees it and its versions.
                Err(Stopped::Aws(error))
            }
            Err(error) => Err(Stopped::Aws(error)),
        }
    }

    fn made(&mut self, line: &str, version: TemplateVersion) {
        self.made.insert(
            line.to_owned(),
            TemplatePin { id: version.template_id.clone(), version: version.number.to_string() },
        );
        self.a.inventory.made_version(version);
    }

    fn pin(&self, pin: &Pin) -> TemplatePin {
        match pin {
            Pin::Version { template, number } => TemplatePin { id: template.clone(), version: number.to_string() },
            Pin::Made { hash } => {
                let made = self.made.iter().find(|(line, _)| line.contains(hash.as_str()));
                made.map(|(_, pin)| pin.clone()).expect("a plan makes a version before it pins it")
            }
        }
    }

    async fn create_group(&self, group: &NewScalingGroup, pin: &Pin) -> Step_ {
        let inventory = self.a.inventory;
        let input = NewScalingGroup { template: self.pin(pin), ..group.clone() };
        let answer = inventory.aws().autoscaling.create_group(&input).await;
        inventory.wrote_group(&group.name);
        match answer {
            Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
                let found = inventory.group(&group.name, std::time::Duration::ZERO).await.map_err(Stopped::Aws)?;
                let ownership: Vec<_> = (input.tags.iter())
                    .filter(|t| crate::provisioner::eks::names::OWNERSHIP_KEYS.contains(&t.key.as_str()))
                    .cloned()
                    .collect();
                self.ours(&group.name, error, found.map(|g| g.tags), &ownership)
            }
            other => ok(other),
        }
    }

    async fn scaling_group(&self, step: &Step) -> Step_ {
        let inventory = self.a.inventory;
        let asg = &inventory.aws().autoscaling;
        let (group, answer) = match step {
            Step::UpdateGroup { group, change, pin } => {
                (group, asg.update_group(group, change, pin.as_ref().map(|p| self.pin(p)).as_ref()).await)
            }
            Step::PutTags { group, tags } => (group, asg.put_tags(group, tags).await),
            Step::DeleteTags { group, keys } => (group, asg.delete_tags(group, keys).await),
            Step::SuspendProcesses { group, processes } => (group, asg.suspend_processes(group, processes).await),
            Step::ResumeProcesses { group, processes } => (group, asg.resume_processes(group, processes).await),
            Step::EnableMetrics { group, metrics } => (group, asg.enable_metrics(group, metrics).await),
            Step::DisableMetrics { group, metrics } => (group, asg.disable_metrics(group, metrics).await),
            Step::PutHook { group, hook } => {
                inventory.wrote_hooks(group);
                (group, asg.put_hook(group, hook).await)
            }
            Step::DeleteHook { group, hook } => {
                inventory.wrote_hooks(group);
                (group, asg.delete_hook(group, hook).await)
            }
            Step::DeleteGroup { group } => (group, asg.delete_group(group).await),
            Step::Terminate { group, instance, decrement, .. } => {
                (group, asg.terminate_instance(instance, *decrement).await)
            }
            other => unreachable!("{} is no step of a scaling group", other.name()),
        };
        inventory.wrote_group(group);
        if let Step::PutHook { .. } | Step::DeleteHook { .. } = step {
            inventory.wrote_hooks(group);
        }
        let ends = matches!(step, Step::DeleteGroup { .. } | Step::Terminate { .. } | Step::DeleteHook { .. });
        if ends { gone(answer) } else { ok(answer) }
    }

    async fn join(&self, edit: Edit) -> Step_ {
        self.a.joining.submit(self.a.cluster, edit).await.map(|()| Done::Yes)
    }

    async fn node(&self, step: &Step) -> Step_ {
        let (cluster, memory) = (self.a.cluster, self.a.memory);
        match step {
            Step::MarkNode { node, resource_version, template_version, cordoned, .. } => {
                let record = Disruption {
                    group: self.id.uid.clone(),
                    template_version: template_version.clone(),
                    since: self.a.now,
                    cordoned_before: *cordoned,
                };
                cluster.mark_node(node, resource_version, &json!(record)).await.map_err(Stopped::Cluster)?;
            }
            Step::UnmarkNode { node, why } => {
                cluster.unmark_node(node).await.map_err(Stopped::Cluster)?;
                memory.forget_node(node);
                if why.contains("drainTimeout") {
                    memory.rest(node, self.a.now + self.a.rest);
                }
            }
            Step::Evict { node, pod, .. } => return self.evict(node, pod).await,
            Step::ForceDelete { pod, .. } => {
                cluster.delete_pod(&pod.namespace, &pod.name, &pod.uid, None).await.map_err(Stopped::Cluster)?
            }
            other => unreachable!("{} is no step of a node", other.name()),
        }
        Ok(Done::Yes)
    }

    async fn evict(&self, node: &str, pod: &PodRef) -> Step_ {
        match self.a.cluster.evict(&pod.namespace, &pod.name, &pod.uid).await.map_err(Stopped::Cluster)? {
            EvictOutcome::Evicted | EvictOutcome::Gone => {
                self.a.memory.evicted(node);
                Ok(Done::Yes)
            }
            EvictOutcome::Refused { message, budgets } => {
                self.a.memory.refused(node, self.a.now);
                let homeless = self.homeless(node, pod).await;
                Ok(Done::Refused(Refusal { pod: pod.clone(), budgets, message, homeless }))
            }
        }
    }

    /// Pods of the same owner that the scheduler cannot place; an answer that fails tells nothing and stops nothing.
    async fn homeless(&self, node: &str, pod: &PodRef) -> Vec<String> {
        let Ok(pods) = self.a.cluster.pods_on_node(node).await else { return Vec::new() };
        let owners = pods.into_iter().filter(|p| p.uid == pod.uid).filter_map(|p| p.owner_uid).collect();
        let waiting = self.a.cluster.unschedulable_pods(&pod.namespace, &owners).await.unwrap_or_default();
        waiting.into_iter().map(|p| format!("{}/{}", p.namespace, p.name)).collect()
    }
}

impl Stopped {
    /// The reason that a person sees, and whether waiting helps.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Stopped::Aws(error) => match error.kind {
                AwsErrorKind::Denied => Some(Reason::MissingPermission),
                AwsErrorKind::Quota => Some(Reason::QuotaExceeded),
                AwsErrorKind::Invalid => Some(Reason::RefusedByAws),
                AwsErrorKind::NotFound
                | AwsErrorKind::AlreadyExists
                | AwsErrorKind::Throttled
                | AwsErrorKind::InUse
                | AwsErrorKind::InvalidProfile
                | AwsErrorKind::Unavailable
                | AwsErrorKind::Other => None,
            },
            Stopped::Cluster(ClusterError::Forbidden { .. }) => Some(Reason::MissingPermission),
            Stopped::Cluster(_) | Stopped::NotLeading | Stopped::Locked(_) => None,
            Stopped::Auth(_) => Some(Reason::AuthConflict),
            Stopped::NotOurs(_) => Some(Reason::NotOurs),
        }
    }
}
