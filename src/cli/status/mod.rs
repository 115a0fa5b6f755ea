//! `status`: one group with its nodes, drains and events, or a line for each group. It reads Kubernetes alone, with the
//! permissions of the caller, so that tenants can use it.

mod read;
mod text;

use std::process::ExitCode;

use jiff::Timestamp;

use super::args::{StatusArgs, Target};
use super::group_error;
use super::output::print;
use super::permissions::explain_denied;

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
            text::list(&groups.map_err(|error| anyhow::anyhow!(explain_denied(&error, namespace)))?, namespace, now)
        }
    };
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
