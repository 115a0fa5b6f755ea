//! Applies steps of the crd strategy: its resources are created and deleted.

use super::error::StepError;
use super::run::{Apply, ApplyRun, StepOutcome, StepResult};
use crate::k8s::KubeError;
use crate::plan::StrategyStep;

impl Apply for StrategyStep {
    async fn apply(&self, run: &mut ApplyRun<'_>) -> StepResult {
        let kube = run.ctx.kube;
        match self {
            StrategyStep::CreateStrategyResource { kind, namespace, object, .. } => {
                match kube.create_strategy_resource(kind, namespace, object.expose()).await {
                    Ok(Some(uid)) => return Ok(StepOutcome::StrategyResourceCreated(uid)),
                    Ok(None) => {}
                    // The name exists: an earlier create succeeded and its response was lost, or the resource belongs to
                    // another owner. The next pass reads it and decides.
                    Err(KubeError::Conflict { .. }) => return Ok(StepOutcome::Unchanged),
                    Err(error) => return Err(StepError::Kube(error)),
                }
            }
            StrategyStep::DeleteStrategyResource { kind, namespace, name, uid } => {
                kube.delete_strategy_resource(kind, namespace, name, uid).await.map_err(StepError::Kube)?;
            }
        }
        Ok(StepOutcome::Applied)
    }
}
