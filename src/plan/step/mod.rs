//! A step of a plan: one write with its complete input. Each topic has a file with its steps, their names and their
//! events. [`crate::apply`] has a file of the same name that runs them; the steps of one provisioner run in `apply` of
//! that provisioner.

mod eks;
mod fargate;
mod iam;
mod info;
mod join;
mod node;
mod nodegroup;
mod object;
mod strategy;

use serde::Serialize;

pub use eks::{EksStep, Pin};
pub use fargate::FargateStep;
pub use iam::IamStep;
pub use info::{StepFields, StepInfo};
pub use join::JoinStep;
pub(crate) use node::on_pod;
pub use node::{NodeStep, PodRef, UncordonReason};
pub use nodegroup::NodegroupStep;
pub use object::ObjectStep;
pub use strategy::StrategyStep;

/// One write, by topic. It is serialized like the step of its topic.
///
/// ```
/// use instance_manager::plan::{EksStep, NodeStep, Step};
///
/// let terminate = Step::from(NodeStep::Terminate {
///     scaling_group: "demo-team-web".into(),
///     instance: "i-1".into(),
///     node: Some("ip-10-0-0-1".into()),
///     decrement_desired: false,
/// });
/// assert_eq!(terminate.name(), "Terminate");
/// assert!(terminate.is_disruptive()); // lock-upgrades blocks it
///
/// let tags = Step::from(EksStep::PutTags { group: "demo-team-web".into(), tags: vec![] });
/// assert!(!tags.is_disruptive() && !tags.creates_nodes());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Step {
    /// Writes to the InstanceGroup.
    Object(ObjectStep),
    /// Writes to IAM: roles, policies and instance profiles.
    Iam(IamStep),
    /// Writes that let nodes join the cluster: aws-auth and access entries.
    Join(JoinStep),
    /// Writes that cordon, drain and terminate single nodes.
    Node(NodeStep),
    /// Writes to the resources of the crd strategy.
    Strategy(StrategyStep),
    /// Writes of the provisioner `eks`: launch templates and scaling groups.
    Eks(EksStep),
    /// Writes of the provisioner `eks-managed`: managed node groups.
    Nodegroup(NodegroupStep),
    /// Writes of the provisioner `eks-fargate`: Fargate profiles.
    Fargate(FargateStep),
}

impl Step {
    /// The description by the topic of the step.
    pub(crate) fn info(&self) -> &dyn StepInfo {
        match self {
            Step::Object(step) => step,
            Step::Iam(step) => step,
            Step::Join(step) => step,
            Step::Node(step) => step,
            Step::Strategy(step) => step,
            Step::Eks(step) => step,
            Step::Nodegroup(step) => step,
            Step::Fargate(step) => step,
        }
    }

    /// See [`StepInfo::name`].
    pub fn name(&self) -> &'static str {
        self.info().name()
    }

    /// See [`StepInfo::is_disruptive`].
    pub fn is_disruptive(&self) -> bool {
        self.info().is_disruptive()
    }

    /// See [`StepInfo::creates_nodes`].
    pub fn creates_nodes(&self) -> bool {
        self.info().creates_nodes()
    }

    /// Whether it is a step of a rotation. A change in place moves no pod.
    pub(crate) fn is_of_rotation(&self) -> bool {
        matches!(self, Step::Node(step) if !matches!(step, NodeStep::ChangeNodeInPlace { .. }))
    }

    /// Whether it starts to replace or remove nodes. The controller checks the rollout block again right before
    /// such a step.
    pub(crate) fn begins_replacement(&self) -> bool {
        match self {
            Step::Node(step) => match step {
                NodeStep::CordonNode { .. } | NodeStep::RecordSurge { .. } => true,
                NodeStep::UncordonNode { .. }
                | NodeStep::ClearSurge { .. }
                | NodeStep::ChangeNodeInPlace { .. }
                | NodeStep::EnterStandby { .. }
                | NodeStep::Evict { .. }
                | NodeStep::ForceDelete { .. }
                | NodeStep::Terminate { .. } => false,
            },
            Step::Nodegroup(NodegroupStep::CreateNodegroup(_)) | Step::Strategy(_) => true,
            Step::Nodegroup(_) | Step::Fargate(_) => self.is_disruptive(),
            Step::Object(_) | Step::Iam(_) | Step::Join(_) | Step::Eks(_) => false,
        }
    }

    /// Whether it lets EKS, or the strategy `crd`, replace nodes, several at once.
    pub(crate) fn begins_batch(&self) -> bool {
        matches!(
            self,
            Step::Nodegroup(NodegroupStep::CreateNodegroup(_) | NodegroupStep::UpdateNodegroupVersion { .. })
                | Step::Strategy(StrategyStep::CreateStrategyResource { .. })
        )
    }

    /// Whether it takes an instance out of service.
    pub(crate) fn removes_from_service(&self) -> bool {
        matches!(self, Step::Node(NodeStep::Terminate { decrement_desired: false, .. } | NodeStep::EnterStandby { .. }))
    }

    /// Whether the step removes an instance from its scaling group.
    pub(crate) fn removes_instance(&self) -> bool {
        matches!(self, Step::Node(NodeStep::Terminate { .. } | NodeStep::EnterStandby { .. }))
    }

    /// Whether a watch shows what it changes. While the watch is late, the step is planned again and finds nothing to change.
    pub(crate) fn is_seen_by_watch(&self) -> bool {
        matches!(self, Step::Join(_) | Step::Node(NodeStep::ClearSurge { .. } | NodeStep::ChangeNodeInPlace { .. }))
    }

    /// Whether it only records something in the status.
    pub(crate) fn is_status_write(&self) -> bool {
        matches!(self, Step::Object(ObjectStep::UpdateStatus { .. }))
    }
}

impl From<ObjectStep> for Step {
    fn from(step: ObjectStep) -> Self {
        Step::Object(step)
    }
}

impl From<IamStep> for Step {
    fn from(step: IamStep) -> Self {
        Step::Iam(step)
    }
}

impl From<JoinStep> for Step {
    fn from(step: JoinStep) -> Self {
        Step::Join(step)
    }
}

impl From<NodeStep> for Step {
    fn from(step: NodeStep) -> Self {
        Step::Node(step)
    }
}

impl From<StrategyStep> for Step {
    fn from(step: StrategyStep) -> Self {
        Step::Strategy(step)
    }
}

impl From<EksStep> for Step {
    fn from(step: EksStep) -> Self {
        Step::Eks(step)
    }
}

impl From<NodegroupStep> for Step {
    fn from(step: NodegroupStep) -> Self {
        Step::Nodegroup(step)
    }
}

impl From<FargateStep> for Step {
    fn from(step: FargateStep) -> Self {
        Step::Fargate(step)
    }
}
