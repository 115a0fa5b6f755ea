//! The InstanceGroup itself.

use super::{Apply, ApplyRun, StepError, StepOutcome, StepResult};
use crate::api::GroupId;
use crate::plan::ObjectStep;

impl Apply for ObjectStep {
    async fn apply(&self, run: &mut ApplyRun<'_>) -> StepResult {
        let GroupId { namespace, name, .. } = run.id;
        let cluster = run.ctx.kube;
        let result = match self {
            ObjectStep::AddFinalizer => cluster
                .add_finalizer(namespace, name, &run.resource_version, run.finalizers)
                .await
                .map(StepOutcome::Version),
            ObjectStep::Record { status } => cluster
                .patch_status(namespace, name, &run.resource_version, status.clone())
                .await
                .map(StepOutcome::Version),
            ObjectStep::RemoveFinalizer => {
                cluster.remove_finalizer(namespace, name, run.finalizers).await.map(|()| StepOutcome::Yes)
            }
        };
        result.map_err(StepError::Cluster)
    }
}
