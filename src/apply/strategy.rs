//! Resources of the strategy `crd`.

use super::{Done, Run, Step_, Stopped};
use crate::cluster::ClusterError;
use crate::plan::Step;

impl Run<'_> {
    pub(super) async fn strategy(&self, step: &Step) -> Step_ {
        let cluster = self.a.cluster;
        let result = match step {
            Step::SubmitStrategy { kind, namespace, object, .. } => {
                match cluster.submit_strategy(kind, namespace, object.expose()).await {
                    // One of that name is there: made by a submission whose answer was lost, or someone else's. The next
                    // look tells.
                    Err(ClusterError::Conflict { .. }) => Ok(()),
                    other => other,
                }
            }
            Step::DeleteStrategy { kind, namespace, name, uid } => {
                cluster.delete_strategy(kind, namespace, name, uid).await
            }
            other => unreachable!("{} is no step of a strategy", other.name()),
        };
        result.map(|()| Done::Yes).map_err(Stopped::Cluster)
    }
}
