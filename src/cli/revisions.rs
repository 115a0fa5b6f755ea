//! The stored revisions of the boundaries, read with the permissions of the caller.

use std::time::Duration;

use kube::Client;

use crate::api::BoundariesRevision;
use crate::k8s::{KubeApi, KubeClient, KubeError};

/// How often the API server is read, in seconds: it answers TooManyRequests until it has read the objects of a new
/// kind.
const MAX_ATTEMPTS: usize = 15;

/// The stored revisions; `None` when the cluster does not have the kind.
///
/// # Errors
/// The API server did not answer, or the caller may not list them.
pub(super) async fn stored_revisions(
    client: &Client,
    namespace: &str,
) -> Result<Option<Vec<BoundariesRevision>>, KubeError> {
    let kube = KubeClient::new(client.clone(), "instance-manager");
    for _ in 1..MAX_ATTEMPTS {
        match kube.boundaries_revisions(namespace).await {
            Err(KubeError::TooManyRequests { .. }) => tokio::time::sleep(Duration::from_secs(1)).await,
            found => return found,
        }
    }
    kube.boundaries_revisions(namespace).await
}
