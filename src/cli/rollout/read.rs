//! What the commands of `rollout` read, and how they print it for programs.

use anyhow::Context;
use kube::Client;
use serde_json::Value;

use crate::api::BoundariesRevision;
use crate::boundaries::ROLLOUT_KEY;
use crate::cli::args::{OutputFormat, RevisionRef, RevisionsArgs};
use crate::cli::revisions::stored_revisions;
use crate::rollout::{is_of_aws, returns_to, sorted};
use crate::util::escape::escape_control;

/// Reads all stored revisions. Their missing definition is an error with the remedy.
pub(super) async fn stored(client: Client, namespace: &str) -> anyhow::Result<Vec<BoundariesRevision>> {
    let stored = stored_revisions(&client, namespace).await?;
    stored.context(
        "the cluster has no BoundariesRevisions; install their definition: instance-manager crd | kubectl apply -f -",
    )
}

/// The revision that a user names, or the newest one.
pub(super) async fn find(
    args: &RevisionsArgs,
    wanted: Option<&RevisionRef>,
) -> anyhow::Result<(Client, BoundariesRevision)> {
    let (client, found, _) = find_with_return(args, wanted).await?;
    Ok((client, found))
}

/// The same, with the name of the revision to which its groups would return.
pub(super) async fn find_with_return(
    args: &RevisionsArgs,
    wanted: Option<&RevisionRef>,
) -> anyhow::Result<(Client, BoundariesRevision, Option<String>)> {
    let client = args.connection.connect().await?;
    let all = stored(client.clone(), &args.config_namespace).await?;
    let sorted = sorted(&all);
    let found = match wanted {
        None => sorted.last().copied(),
        Some(wanted) => named(wanted, &sorted),
    };
    let found = found.ok_or_else(|| MissingRevision(missing(wanted, &sorted)))?;
    Ok((client, found.clone(), returns_to(&all, found)))
}

/// The revision with a number, or else the newest one of a release.
pub(super) fn named<'a>(wanted: &RevisionRef, sorted: &[&'a BoundariesRevision]) -> Option<&'a BoundariesRevision> {
    let by_number = sorted.iter().find(|revision| wanted.number() == Some(revision.spec.number));
    by_number.or_else(|| sorted.iter().rev().find(|revision| revision.spec.from.release == wanted.0)).copied()
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
pub(super) fn missing(wanted: Option<&RevisionRef>, revisions: &[&BoundariesRevision]) -> String {
    let name = |revision: &&BoundariesRevision| match revision.spec.from.release.as_str() {
        "" => format!("r{}", revision.spec.number),
        release => format!("r{} ({})", revision.spec.number, escape_control(release)),
    };
    let names: Vec<_> = revisions.iter().map(name).collect();
    match (names.as_slice(), wanted) {
        ([], _) | (_, None) => "there are no revisions; the controller stores the first one when it runs".to_owned(),
        (_, Some(wanted)) => {
            let name = wanted.number().map_or_else(|| wanted.0.clone(), |number| format!("r{number}"));
            format!("there is no revision {name}; there are {}", names.join(", "))
        }
    }
}

/// A value for programs.
pub(super) fn serialized(value: &Value, format: OutputFormat) -> anyhow::Result<String> {
    Ok(match format {
        OutputFormat::Json => serde_json::to_string_pretty(value)? + "\n",
        OutputFormat::Yaml | OutputFormat::Text => serde_yaml::to_string(value)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{BoundariesRevisionSpec, RevisionSource};

    /// A person on call reads the release in the change, and must not look up its number in each cluster.
    #[test]
    fn revision_is_named_by_its_number_or_its_release() {
        let revision = |number: i64, release: &str| {
            let from = RevisionSource { release: release.into(), ..RevisionSource::default() };
            let spec = BoundariesRevisionSpec { number, from, ..BoundariesRevisionSpec::default() };
            BoundariesRevision::new(&format!("r{number}"), spec)
        };
        let all = [revision(1, ""), revision(2, "2026-08-20"), revision(3, "2026-08-20"), revision(4, "2")];
        let sorted: Vec<_> = all.iter().collect();
        let number = |text: &str| named(&RevisionRef(text.into()), &sorted).map(|found| found.spec.number);
        assert_eq!([number("1"), number("r2")], [Some(1), Some(2)]);
        assert_eq!(number("2026-08-20"), Some(3), "the corrected change of the same release");
        assert_eq!(number("2"), Some(2), "a number goes before a release");
        assert_eq!([number("r9"), number("2026-08")], [None, None]);
        let text = missing(Some(&RevisionRef("2026-09-01".into())), &sorted);
        assert!(text.starts_with("there is no revision 2026-09-01; there are r1, r2 (2026-08-20)"), "{text}");
    }
}
