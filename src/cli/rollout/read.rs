//! What the commands of `rollout` read, and how they print it for programs.

use anyhow::Context;
use kube::Client;
use serde_json::Value;

use crate::api::BoundariesRevision;
use crate::boundaries::ROLLOUT_KEY;
use crate::cli::args::{OutputFormat, RevisionsArgs};
use crate::cli::revisions::stored_revisions;
use crate::rollout::{is_of_aws, returns_to, sorted};

/// The stored revisions.
pub(super) async fn stored(client: Client, namespace: &str) -> anyhow::Result<Vec<BoundariesRevision>> {
    let stored = stored_revisions(&client, namespace).await?;
    stored.context(
        "the cluster has no BoundariesRevisions; install their definition: instance-manager crd | kubectl apply -f -",
    )
}

/// The revision with this number, or the newest one.
pub(super) async fn find(args: &RevisionsArgs, number: Option<i64>) -> anyhow::Result<(Client, BoundariesRevision)> {
    let (client, found, _) = find_with_return(args, number).await?;
    Ok((client, found))
}

/// The same, with the name of the revision to which its groups would return.
pub(super) async fn find_with_return(
    args: &RevisionsArgs,
    number: Option<i64>,
) -> anyhow::Result<(Client, BoundariesRevision, Option<String>)> {
    let client = args.connection.connect().await?;
    let all = stored(client.clone(), &args.config_namespace).await?;
    let sorted = sorted(&all);
    let found = match number {
        None => sorted.last(),
        Some(number) => sorted.iter().find(|revision| revision.spec.number == number),
    };
    let found = found.ok_or_else(|| MissingRevision(missing(number.unwrap_or_default(), &sorted)))?;
    Ok((client, (*found).clone(), returns_to(&all, found)))
}

/// The text for a revision without a rollout.
pub(super) const NO_ROLLOUT: &str = "it has no rollout: without the key `rollout` in the ConfigMap instance-manager, all groups switch at once; see Rollouts in the documentation";

/// Whether the controller has not read a revision yet whose rollout it is about to begin.
pub(super) fn is_about_to_begin(revision: &BoundariesRevision) -> bool {
    let phase = revision.status.as_ref().and_then(|status| status.phase);
    phase.is_none() && revision.spec.data.contains_key(ROLLOUT_KEY)
}

/// What a user does about a revision that was aborted.
pub(super) fn remedy(revision: &BoundariesRevision) -> &'static str {
    match is_of_aws(revision) {
        true => "name an AMI in the ConfigMap, or wait for the next image of AWS",
        false => "the ConfigMap still holds it: revert it in Git",
    }
}

/// The API server answered, and has no such revision.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct MissingRevision(pub String);

/// Why a revision is not found.
pub(super) fn missing(number: i64, revisions: &[&BoundariesRevision]) -> String {
    let names: Vec<_> = revisions.iter().map(|revision| format!("r{}", revision.spec.number)).collect();
    match names.as_slice() {
        [] => "there are no revisions; the controller stores the first one when it runs".to_owned(),
        _ => format!("there is no revision r{number}; there are {}", names.join(", ")),
    }
}

/// A value for programs.
pub(super) fn serialized(value: &Value, format: OutputFormat) -> anyhow::Result<String> {
    Ok(match format {
        OutputFormat::Json => serde_json::to_string_pretty(value)? + "\n",
        OutputFormat::Yaml | OutputFormat::Text => serde_yaml::to_string(value)?,
    })
}
