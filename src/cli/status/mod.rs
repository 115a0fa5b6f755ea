//! `status`: one group with its nodes, drains and events, or a line for each group. It reads Kubernetes alone, with the
//! rights of the caller, so that tenants can use it.

mod read;
mod text;

use std::process::ExitCode;

use anyhow::Context;
use jiff::Timestamp;

use super::args::{StatusArgs, StatusTarget};
use super::output::print;
use crate::k8s;

/// Runs the command.
///
/// # Errors
/// The API server did not answer, or the caller may not read InstanceGroups.
pub async fn run(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let target = args.target().map_err(anyhow::Error::msg)?;
    let client = k8s::connect(args.kubeconfig.as_deref(), args.context.as_deref())
        .await
        .context("connecting to the API server")?;
    let namespace_or_default = |given: Option<String>| given.unwrap_or_else(|| client.default_namespace().to_owned());
    let now = Timestamp::now();
    let text = match target {
        StatusTarget::All => text::list(&read::groups(&client, None).await?, None, now),
        StatusTarget::Namespace(given) => {
            let namespace = namespace_or_default(given);
            text::list(&read::groups(&client, Some(&namespace)).await?, Some(&namespace), now)
        }
        StatusTarget::Group(given, name) => {
            let namespace = namespace_or_default(given);
            let details = read::details(&client, &namespace, &name).await;
            text::group(&details.with_context(|| format!("InstanceGroup {namespace}/{name}"))?, now)
        }
    };
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
