//! `status`: one group with its nodes, drains and events, or a line for each group. It reads Kubernetes alone, with the
//! permissions of the caller, so that tenants can use it.

mod read;
mod text;

use std::process::ExitCode;

use jiff::Timestamp;

use super::args::{StatusArgs, Target};
use super::group_error;
use super::missing_permissions::explain_denied;
use super::output::print;
use crate::k8s::KubeError;

/// Runs the command.
///
/// # Errors
/// The API server did not answer, or the caller may not read InstanceGroups.
pub async fn run(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let client = args.connection.connect().await?;
    let target = args.scope.target()?.with_default_namespace(client.default_namespace());
    let now = Timestamp::now();
    let namespace = target.namespace();
    let text = match (&target, namespace) {
        (Target::Group(_, name), Some(namespace)) => {
            let details = read::details(&client, namespace, name).await;
            text::group(&details.map_err(|error| group_error(error, namespace, name))?, now)
        }
        _ => {
            let groups = read::groups(&client, namespace).await;
            text::list(&groups.map_err(|error| anyhow::anyhow!(list_error(&error, namespace)))?, namespace, now)
        }
    };
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Why groups cannot be listed. Most tenants may read one namespace only.
fn list_error(error: &KubeError, namespace: Option<&str>) -> String {
    let hint = match (error, namespace) {
        (KubeError::Forbidden { .. }, None) => "; for the groups of one namespace, use -n NAMESPACE",
        _ => "",
    };
    explain_denied(error, namespace) + hint
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_without_list_permission_sees_how_to_list_its_own_groups() {
        let status = kube::core::Status::failure("no", "Forbidden").with_code(403).boxed();
        let error = KubeError::classify("list", "instancegroups", kube::Error::Api(status));
        assert!(list_error(&error, None).ends_with("use -n NAMESPACE"));
        assert!(!list_error(&error, Some("team")).contains("-n NAMESPACE"), "it has done so");
    }
}
