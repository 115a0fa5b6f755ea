//! Resources of the strategy `crd`.

use super::{Apply, ApplyRun, StepError, StepOutcome, StepResult};
use crate::k8s::KubeError;
use crate::plan::StrategyStep;

impl Apply for StrategyStep {
    async fn apply(&self, run: &mut ApplyRun<'_>) -> StepResult {
        let cluster = run.ctx.kube;
        let result = match self {
            StrategyStep::CreateStrategyResource { kind, namespace, object, .. } => {
                match cluster.create_strategy_resource(kind, namespace, object.expose()).await {
                    // One of that name is there: made by a submission whose answer was lost, or someone else's. The next
                    // look tells.
                    Err(KubeError::Conflict { .. }) => Ok(()),
                    other => other,
                }
            }
            StrategyStep::DeleteStrategyResource { kind, namespace, name, uid } => {
                cluster.delete_strategy_resource(kind, namespace, name, uid).await
            }
        };
        result.map(|()| StepOutcome::Yes).map_err(StepError::Cluster)
    }
}
