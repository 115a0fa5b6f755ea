//! Resources of the strategy `crd`.

use super::{Apply, Done, Run, Stepped, Stopped};
use crate::k8s::ClusterError;
use crate::plan::StrategyStep;

impl Apply for StrategyStep {
    async fn apply(&self, run: &mut Run<'_>) -> Stepped {
        let cluster = run.a.cluster;
        let result = match self {
            StrategyStep::SubmitStrategy { kind, namespace, object, .. } => {
                match cluster.submit_strategy(kind, namespace, object.expose()).await {
                    // One of that name is there: made by a submission whose answer was lost, or someone else's. The next
                    // look tells.
                    Err(ClusterError::Conflict { .. }) => Ok(()),
                    other => other,
                }
            }
            StrategyStep::DeleteStrategy { kind, namespace, name, uid } => {
                cluster.delete_strategy(kind, namespace, name, uid).await
            }
        };
        result.map(|()| Done::Yes).map_err(Stopped::Cluster)
    }
}
