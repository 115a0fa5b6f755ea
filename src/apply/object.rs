//! Applies steps on the InstanceGroup itself: its finalizer and its status.

use super::error::StepError;
use super::run::{Apply, ApplyRun, StepOutcome, StepResult};
use crate::api::GroupId;
use crate::plan::ObjectStep;

impl Apply for ObjectStep {
    async fn apply(&self, run: &mut ApplyRun<'_>) -> StepResult {
        let GroupId { namespace, name, uid, .. } = run.id;
        let kube = run.ctx.kube;
        let result = match self {
            ObjectStep::AddFinalizer => kube
                .add_finalizer(namespace, name, &run.resource_version, run.finalizers)
                .await
                .map(StepOutcome::ObjectUpdated),
            ObjectStep::UpdateStatus { status } => kube
                .patch_status(namespace, name, &run.resource_version, status.clone())
                .await
                .map(StepOutcome::ObjectUpdated),
            ObjectStep::RemoveFinalizer => {
                kube.remove_finalizer(namespace, name, uid, run.finalizers).await.map(|()| StepOutcome::Applied)
            }
        };
        result.map_err(StepError::Kube)
    }
}
