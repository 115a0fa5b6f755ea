//! Refused steps that do not end the pass. One kind are steps that no other step depends on. The other kind are join
//! entries: without them, only changes that neither launch nor replace a node continue.

use super::error::StepError;
use crate::api::names::tag;
use crate::auth::aws_auth::AwsAuthError;
use crate::aws::{AwsError, AwsErrorKind};
use crate::index::denied_calls::DeniedCall;
use crate::k8s::KubeError;
use crate::plan::{EksStep, FargateStep, JoinStep, NodeStep, NodegroupStep, PlannedStep, Step, Write};

/// A step that was refused, and that the rest of the pass does not depend on.
#[derive(Debug)]
pub struct IndependentFailure {
    /// Name of the step.
    pub(crate) step: &'static str,
    /// The call, if a permission is missing.
    pub(crate) denied_call: Option<DeniedCall>,
    /// What the step writes, if no node depends on it. A rotation does not wait for such a write.
    pub(crate) writes: Vec<Write>,
}

/// The refused steps of one pass, and the steps that wait for them.
#[derive(Default)]
pub(super) struct IndependentFailures {
    /// Why the first one was refused.
    first_error: Option<StepError>,
    failures: Vec<IndependentFailure>,
    refused: Vec<PlannedStep>,
    dependents: Vec<PlannedStep>,
    joins_wait: bool,
}

/// How a pass ended with regard to them.
pub(super) struct Remainder {
    /// Why the first step was refused.
    pub first_error: Option<StepError>,
    /// The refused steps with their errors, which the conditions and events of the group report.
    pub failures: Vec<IndependentFailure>,
    /// Names of the steps that wait for them.
    pub waiting: Vec<&'static str>,
    /// The steps that were not applied: the refused ones, then those that wait for them.
    pub steps: Vec<PlannedStep>,
}

impl IndependentFailures {
    /// Whether the pass can continue without a step that failed with this error. The error must not cause a call in
    /// each pass. A denied call waits for its turn, a rejected change of a node for its time, and an aws-auth that cannot
    /// be edited is only read. Tags that EKS refused wait for their time, too.
    pub(super) fn can_continue_without(planned: &PlannedStep, error: &StepError) -> bool {
        let is_paced = error.denied_call().is_some()
            || is_rejected_change(&planned.step, error)
            || eks_tag_refusal(&planned.step, error).is_some()
            || matches!(
                error,
                StepError::AwsAuth(AwsAuthError::Unparsable { .. } | AwsAuthError::Unsafe | AwsAuthError::Immutable)
            );
        is_paced && (is_independent(planned) || is_join_entry(&planned.step))
    }

    /// Whether a step must wait, because it depends on one that was refused.
    pub(super) fn blocks(&self, planned: &PlannedStep) -> bool {
        self.joins_wait && !is_independent(planned) && !is_safe_without_join(&planned.step)
    }

    /// Takes a step that must wait.
    pub(super) fn add_dependent(&mut self, planned: PlannedStep) {
        self.dependents.push(planned);
    }

    /// Takes a step that was refused.
    pub(super) fn add(&mut self, planned: PlannedStep, error: StepError) {
        let is_independent = is_independent(&planned);
        self.joins_wait |= !is_independent;
        let writes = if is_independent { planned.writes() } else { Vec::new() };
        let (step, denied_call) = (planned.step.name(), error.denied_call());
        self.failures.push(IndependentFailure { step, denied_call, writes });
        self.first_error.get_or_insert(error);
        self.refused.push(planned);
    }

    /// What is left of the plan.
    pub(super) fn finish(self) -> Remainder {
        Remainder {
            first_error: self.first_error,
            failures: self.failures,
            waiting: self.dependents.iter().map(|planned| planned.step.name()).collect(),
            steps: self.refused.into_iter().chain(self.dependents).collect(),
        }
    }
}

/// Whether neither a node nor another step depends on a step. A tag that marks what follows is set before it.
fn is_independent(planned: &PlannedStep) -> bool {
    match &planned.step {
        _ if planned.is_optional => true,
        Step::Eks(EksStep::PutTags { tags, .. }) => {
            !tags.iter().any(|tag| tag::NOT_PROPAGATED.contains(&tag.key.as_str()))
        }
        Step::Eks(EksStep::DeleteTags { .. } | EksStep::EnableMetrics { .. } | EksStep::DisableMetrics { .. })
        | Step::Node(NodeStep::ChangeNodeInPlace { .. }) => true,
        step => is_eks_tag(step),
    }
}

/// Whether the API server, or an admission policy, rejected what a change in place writes to a node.
fn is_rejected_change(step: &Step, error: &StepError) -> bool {
    matches!(step, Step::Node(NodeStep::ChangeNodeInPlace { .. }))
        && matches!(error, StepError::Kube(KubeError::Invalid { .. }) | StepError::RejectedBefore(_))
}

/// Whether a step sets tags of a node group or a Fargate profile. Nothing depends on them: the tags that a deletion needs are
/// read before it.
pub(super) fn is_eks_tag(step: &Step) -> bool {
    matches!(
        step,
        Step::Nodegroup(NodegroupStep::TagNodegroup { .. }) | Step::Fargate(FargateStep::TagFargateProfile { .. })
    )
}

/// The error with which EKS refused tags, for example because of a character, or because there would be more than fifty.
pub(super) fn eks_tag_refusal<'a>(step: &Step, error: &'a StepError) -> Option<&'a AwsError> {
    match error {
        StepError::Aws(error) if is_eks_tag(step) && error.kind == AwsErrorKind::Invalid => Some(error),
        _ => None,
    }
}

/// Whether a step lets nodes join.
fn is_join_entry(step: &Step) -> bool {
    let Step::Join(step) = step else { return false };
    matches!(step, JoinStep::PutAwsAuthEntry(_) | JoinStep::WidenAwsAuthEntry(_) | JoinStep::PutAccessEntry(_))
}

/// Whether a step neither launches nodes of a new kind, nor replaces nodes, nor removes what nodes need. Sizes may
/// change, and the controller may uncordon nodes in progress.
fn is_safe_without_join(step: &Step) -> bool {
    matches!(
        step,
        Step::Eks(EksStep::UpdateGroup { pin: None, .. })
            | Step::Node(NodeStep::UncordonNode { .. } | NodeStep::ClearSurge { .. })
    )
}
