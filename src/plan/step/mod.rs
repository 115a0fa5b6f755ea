//! A step of a plan: one write, which carries its complete input. Each topic
//! says in a file of its own what its steps are and how a person is told of
//! them; what only one provisioner does stands in that provisioner's folder.

mod eks;
mod fargate;
mod iam;
mod join;
mod node;
mod nodegroup;
mod object;
mod strategy;

use serde::Serialize;

use super::Event;
pub use eks::{EksStep, Pin};
pub use fargate::FargateStep;
pub use iam::IamStep;
pub use join::JoinStep;
pub use node::{NodeStep, PodRef};
pub use nodegroup::NodegroupStep;
pub use object::ObjectStep;
pub use strategy::StrategyStep;

/// One write, by its topic. It is serialised as the topic's step is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "a plan has a few steps, and its largest are what it is for")]
pub enum Step {
    /// On the InstanceGroup itself.
    Object(ObjectStep),
    /// Of IAM.
    Iam(IamStep),
    /// What lets nodes join.
    Join(JoinStep),
    /// What takes nodes out of service, one by one.
    Node(NodeStep),
    /// Of the crd strategy's resources.
    Strategy(StrategyStep),
    /// Of the provisioner `eks`: launch templates and scaling groups.
    Eks(EksStep),
    /// Of the provisioner `eks-managed`: managed node groups.
    Nodegroup(NodegroupStep),
    /// Of the provisioner `eks-fargate`: Fargate profiles.
    Fargate(FargateStep),
}

/// What a topic tells of its steps.
pub trait StepInfo {
    /// A bounded name for logs, metrics and `plan`.
    fn name(&self) -> &'static str;

    /// What it acts on, in a word.
    fn subject(&self) -> String;

    /// What a person follows in `kubectl describe` once it is done; `why` are its reasons, empty when it has none.
    fn event(&self, why: &str) -> Option<Event>;

    /// Whether a person's brake stops it: what takes nodes away.
    fn is_disruptive(&self) -> bool {
        false
    }

    /// Whether it makes the nodes of a group for the first time.
    fn creates_nodes(&self) -> bool {
        false
    }
}

impl Step {
    /// What its topic tells of it.
    pub fn info(&self) -> &dyn StepInfo {
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

    /// See [`Act::name`].
    pub fn name(&self) -> &'static str {
        self.info().name()
    }

    /// See [`Act::disrupts`].
    pub fn is_disruptive(&self) -> bool {
        self.info().is_disruptive()
    }

    /// See [`Act::makes`].
    pub fn creates_nodes(&self) -> bool {
        self.info().creates_nodes()
    }

    /// Whether it only writes what the status remembers.
    pub fn is_status_write(&self) -> bool {
        matches!(self, Step::Object(ObjectStep::Record { .. }))
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
