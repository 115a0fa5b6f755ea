//! The commands. Each takes its parsed arguments and returns an exit code.

use kube::{Api, Client};

use crate::api::GroupObject;
use crate::k8s::{KubeError, call};

pub mod admission;
pub mod args;
pub mod crd;
pub mod explain;
pub mod input;
pub mod lint;
mod missing_permissions;
pub mod output;
pub mod plan;
pub mod preflight;
pub mod reconcile;
pub mod release;
pub mod render;
mod revisions;
pub mod rollout;
pub mod run;
mod settings;
pub mod status;
mod table;

/// One InstanceGroup, with the permissions of the caller. That it does not exist is reported once, with its name.
async fn read_group(client: &Client, namespace: &str, name: &str) -> anyhow::Result<GroupObject> {
    let api: Api<GroupObject> = Api::namespaced(client.clone(), namespace);
    call("get", "instancegroups", api.get(name)).await.map_err(|error| group_error(error, namespace, name))
}

/// Why an InstanceGroup could not be read or changed.
fn group_error(error: KubeError, namespace: &str, name: &str) -> anyhow::Error {
    match error {
        KubeError::NotFound { .. } => anyhow::anyhow!(
            "InstanceGroup {namespace}/{name} not found; `instance-manager status -n {namespace}` lists those of the namespace"
        ),
        error => {
            anyhow::anyhow!(
                "InstanceGroup {namespace}/{name}: {}",
                missing_permissions::explain_denied(&error, Some(namespace))
            )
        }
    }
}
