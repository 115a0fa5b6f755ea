//! The InstanceGroup itself.

use super::{Apply, Done, Run, Stepped, Stopped};
use crate::api::GroupId;
use crate::plan::ObjectStep;

impl Apply for ObjectStep {
    async fn apply(&self, run: &mut Run<'_>) -> Stepped {
        let GroupId { namespace, name, .. } = run.id;
        let cluster = run.a.cluster;
        let result = match self {
            ObjectStep::AddFinalizer => {
                cluster.add_finalizer(namespace, name, &run.rv, run.finalizers).await.map(Done::Version)
            }
            ObjectStep::Record { status } => {
                cluster.patch_status(namespace, name, &run.rv, status.clone()).await.map(Done::Version)
            }
            ObjectStep::RemoveFinalizer => {
                cluster.remove_finalizer(namespace, name, run.finalizers).await.map(|()| Done::Yes)
            }
        };
        result.map_err(Stopped::Cluster)
    }
}
