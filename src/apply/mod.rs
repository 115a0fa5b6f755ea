//! Does what a plan says, step by step, and answers what came of it.
//!
//! Nothing is decided here but this: a step that fails ends the pass, the
//! brake and the lease are looked at again before every act that takes nodes
//! away, and a create that finds its name taken looks whose it is.

mod aws_auth;
mod iam;
mod join;
mod node;
mod object;
mod strategy;

use std::collections::HashMap;

use jiff::Timestamp;

use crate::api::GroupId;
use crate::aws::inventory::Inventory;
use crate::aws::{AwsError, AwsErrorKind, Role, Tag, TemplatePin};
use crate::index::process_state::Memory;
use crate::k8s::{ClusterError, ClusterWrites};
use crate::ownership::owned;
use crate::plan::{NodeStep, Plan, Planned, PodRef, Reason, Step};
pub use aws_auth::{Edit, Joining};

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
    /// Rights that are missing to tag what was taken over, which stops nothing.
    pub untagged: Vec<Untagged>,
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
    Auth(#[source] crate::auth::aws_auth::AuthProblem),
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

/// A step that AWS refused, because a right to change tags is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// Its number among the plan's steps.
    pub step: usize,
    /// The right.
    pub right: String,
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

/// How a step was done.
pub enum Done {
    /// As planned.
    Yes,
    /// A budget refused an eviction.
    Refused(Refusal),
    /// The right that is missing to tag what was taken over.
    Untagged(String),
    /// The resourceVersion of the InstanceGroup that was written.
    Version(String),
}

/// What came of a step.
pub type Stepped = Result<Done, Stopped>;

/// How a topic's steps are done.
pub trait Apply {
    /// Does one step, or says why not.
    ///
    /// # Errors
    /// What AWS or Kubernetes answers, or whose the thing is.
    fn apply(&self, run: &mut Run<'_>) -> impl Future<Output = Stepped> + Send;
}

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
    let mut applied =
        Applied { done: 0, stopped: None, refusals: Vec::new(), untagged: Vec::new(), resource_version: None, plan };
    for index in 0..applied.plan.steps.len() {
        let Planned { step, because } = &applied.plan.steps[index];
        match run.step(step).await {
            Ok(Done::Yes) => {}
            Ok(Done::Refused(refusal)) => applied.refusals.push(refusal),
            Ok(Done::Untagged(right)) => {
                a.memory.untagged(&id.key(), a.now);
                applied.untagged.push(Untagged { step: index, right });
            }
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
        let refused = applied
            .refusals
            .last()
            .filter(|r| matches!(step, Step::Node(NodeStep::Evict { pod, .. }) if *pod == r.pod));
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

/// One pass under way.
pub struct Run<'a> {
    /// What it needs.
    pub a: &'a Applier<'a>,
    /// The group.
    pub id: &'a GroupId,
    /// The newest resourceVersion of the InstanceGroup that this pass knows.
    pub rv: String,
    finalizers: &'a [String],
    /// Versions that this pass made, by hash line.
    pub made: HashMap<String, TemplatePin>,
    /// Roles that this pass made or found, by name.
    roles: HashMap<String, Role>,
}

/// A step is done once AWS says so.
pub fn ok<T>(result: Result<T, AwsError>) -> Stepped {
    result.map(|_| Done::Yes).map_err(Stopped::Aws)
}

/// Tags say whose a thing is; without the right to set them everything else goes on.
pub fn tagged(result: Result<(), AwsError>) -> Stepped {
    match result {
        Err(error) if error.kind == AwsErrorKind::Denied => {
            Ok(Done::Untagged(error.missing_permission().unwrap_or_default()))
        }
        other => ok(other),
    }
}

/// A delete of what is gone already is done.
pub fn gone<T>(result: Result<T, AwsError>) -> Stepped {
    match result {
        Err(error) if error.kind == AwsErrorKind::NotFound => Ok(Done::Yes),
        other => ok(other),
    }
}

impl Run<'_> {
    async fn step(&mut self, step: &Step) -> Stepped {
        if step.disrupts() && !self.id.deleting {
            self.brake().await?;
        }
        // Last, so that nothing is waited for between the answer and the act.
        if !(self.a.leading)() {
            return Err(Stopped::NotLeading);
        }
        match step {
            Step::Object(step) => step.apply(self).await,
            Step::Iam(step) => step.apply(self).await,
            Step::Join(step) => step.apply(self).await,
            Step::Node(step) => step.apply(self).await,
            Step::Strategy(step) => step.apply(self).await,
            Step::Eks(step) => step.apply(self).await,
            Step::Nodegroup(step) => step.apply(self).await,
            Step::Fargate(step) => step.apply(self).await,
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

    /// What EKS says of a role that it does not know. One of the group's own was made a moment ago; any other, and one that
    /// it has refused for [`Applier::rest`], is refused until a person acts.
    pub(crate) fn refused_role(&self, error: AwsError, own_role: bool, field: &str) -> Stopped {
        if error.kind != AwsErrorKind::InvalidProfile {
            return Stopped::Aws(error);
        }
        let Applier { memory, rest, now, .. } = self.a;
        if own_role && memory.role_refused(&self.id.key(), true, *now) < *rest {
            return Stopped::Aws(error);
        }
        let remedy = match own_role {
            true => {
                "the role is the group's own: mend what was changed of it by hand, its trust policy above all".into()
            }
            false => format!("mend the role, or name another in {field}"),
        };
        Stopped::Aws(AwsError { kind: AwsErrorKind::Invalid, message: format!("{}; {remedy}", error.message), ..error })
    }

    /// What refused a create is ours, or someone else's. A read that does not show it lags behind: nobody knows yet.
    pub fn ours(&self, name: &str, refusal: AwsError, found: Option<Vec<Tag>>, tags: &[Tag]) -> Stepped {
        match found {
            None => Err(Stopped::Aws(refusal)),
            Some(held) if owned(&held, tags) => Ok(Done::Yes),
            Some(_) => {
                self.a.memory.set_collided(&self.id.key());
                Err(Stopped::NotOurs(name.to_owned()))
            }
        }
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
