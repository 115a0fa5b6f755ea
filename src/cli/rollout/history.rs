//! `rollout history`: what the ConfigMap held, since when, and who changed it.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Context;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::read::{missing, named, remedy, serialized, stored};
use crate::api::names::CONFIG_MAP;
use crate::api::{BoundariesRevision, RolloutPhase};
use crate::boundaries::{Boundaries, content_hash};
use crate::cli::args::{HistoryArgs, OutputFormat};
use crate::cli::output::print;
use crate::cli::table::table;
use crate::k8s;
use crate::rollout::{changes, foreign_names, has_texts, image_changes, sorted};
use crate::util::escape::escape_control;

/// Prints the stored revisions, or one of them with what it changed.
pub(super) async fn run(args: HistoryArgs) -> anyhow::Result<ExitCode> {
    let client = args.connection.connect().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &args.config_namespace);
    let stored = stored(client, &args.config_namespace).await?;
    let revisions = sorted(&stored);
    let text = match &args.revision {
        Some(wanted) => {
            let found = named(wanted, &revisions).with_context(|| missing(Some(wanted), &revisions))?;
            let before = revisions.iter().rev().find(|before| before.spec.number < found.spec.number);
            match args.output {
                OutputFormat::Text => describe(found, before.copied()),
                format => serialized(&manifest(found, &args.config_namespace), format)?,
            }
        }
        None => {
            let live =
                k8s::call("get", "configmaps", maps.get_opt(CONFIG_MAP)).await?.map(|map| map.data.unwrap_or_default());
            let active_revision = active_revision(&revisions, live.as_ref());
            match args.output {
                OutputFormat::Text => list(&revisions, &active_revision) + &foreign(&foreign_names(&stored)),
                format => serialized(&documents(&revisions, &active_revision), format)?,
            }
        }
    };
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each object that the controller did not store.
fn foreign(names: &[(String, &str)]) -> String {
    let line = |(name, why): &(String, &str)| format!("{} {why}\n", escape_control(name));
    names.iter().map(line).collect()
}

/// Which revision is active: the one that groups begin with, and that a failed group returns to.
struct ActiveRevision {
    number: Option<i64>,
    /// Why it is not the content of the ConfigMap, or what is under way.
    why: Option<String>,
}

fn active_revision(revisions: &[&BoundariesRevision], live: Option<&BTreeMap<String, String>>) -> ActiveRevision {
    let newest = revisions.last();
    let phase = newest.and_then(|newest| newest.status.as_ref()).and_then(|status| status.phase);
    let stable = newest.and_then(|newest| newest.status.as_ref()?.stable.clone());
    let stable = revisions.iter().find(|revision| stable.is_some() && revision.metadata.name == stable);
    let name = newest.map(|newest| newest.name_any()).unwrap_or_default();
    let (number, rollout) = match (phase, stable) {
        (Some(RolloutPhase::Assessing | RolloutPhase::Rolling | RolloutPhase::Halted), Some(stable)) => (
            Some(stable.spec.number),
            Some(format!("{name} reaches the groups in waves: instance-manager rollout status")),
        ),
        (Some(RolloutPhase::Returning | RolloutPhase::Aborted), Some(stable)) => {
            (Some(stable.spec.number), newest.map(|newest| format!("{name} was aborted; {}", remedy(newest))))
        }
        _ => (newest.map(|newest| newest.spec.number), None),
    };
    let why = match live.map(|live| (live, Boundaries::parse(live))) {
        None => Some("the ConfigMap instance-manager is missing".to_owned()),
        Some((_, Err(error))) => Some(format!("the ConfigMap instance-manager is invalid: {error}")),
        Some((live, Ok(_))) if revisions.last().is_none_or(|newest| !has_texts(newest, &content_hash(live))) => Some(
            "the controller has not stored the content of the ConfigMap instance-manager yet; see its events"
                .to_owned(),
        ),
        Some((_, Ok(_))) => rollout,
    };
    ActiveRevision { number, why }
}

fn list(revisions: &[&BoundariesRevision], active_revision: &ActiveRevision) -> String {
    let header = ["REVISION", "PHASE", "GROUPS", "SINCE", "BY", "RELEASE", "CHANGE"].map(str::to_owned);
    let rows = revisions.iter().rev().map(|revision| {
        let mark = if active_revision.number == Some(revision.spec.number) { "*" } else { "" };
        let from = &revision.spec.from;
        let status = revision.status.as_ref();
        let phase = status.and_then(|status| status.phase).map(|phase| phase.to_string());
        let counts = status.and_then(|status| status.groups.as_ref());
        let groups = counts.map(|counts| format!("{}/{}", counts.done, counts.affected));
        [
            format!("r{}{mark}", revision.spec.number),
            phase.unwrap_or_else(|| "-".to_owned()),
            groups.unwrap_or_else(|| "-".to_owned()),
            since(revision),
            or_dash(&from.manager),
            or_dash(&from.release),
            or_dash(&from.change),
        ]
    });
    let mut text = table(&[header].into_iter().chain(rows).collect::<Vec<_>>(), "");
    match &active_revision.why {
        Some(why) => text += &format!("\n* is active: {}\n", escape_control(why)),
        None => text += "\n* is active\n",
    }
    text
}

fn describe(revision: &BoundariesRevision, before: Option<&BoundariesRevision>) -> String {
    let (spec, from) = (&revision.spec, &revision.spec.from);
    let mut text =
        format!("r{}  since {}  by {}  hash {}\n", spec.number, since(revision), or_dash(&from.manager), spec.hash);
    match before {
        None => text += "\nthe revision before is not stored\n",
        Some(before) => {
            text += &format!("\nchanged from r{}:\n", before.spec.number);
            for change in changes(&before.spec.data, &spec.data).into_iter().chain(image_changes(before, revision)) {
                text += &format!("  {}\n", escape_control(&change));
            }
        }
    }
    text + &format!(
        "\ninstance-manager rollout history --revision {} -o yaml prints it as a ConfigMap to commit\n",
        spec.number
    )
}

/// The time at which the content became active: when it was stored.
fn since(revision: &BoundariesRevision) -> String {
    let stored_at = revision.metadata.creation_timestamp.as_ref();
    stored_at.map_or_else(|| "-".to_owned(), |at| crate::api::rfc3339(at.0))
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// A ConfigMap with the content of a revision.
fn manifest(revision: &BoundariesRevision, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": namespace},
        "data": revision.spec.data,
    })
}

fn documents(revisions: &[&BoundariesRevision], active_revision: &ActiveRevision) -> Value {
    let document = |revision: &&BoundariesRevision| {
        let spec = &revision.spec;
        json!({
            "revision": spec.number,
            "hash": spec.hash,
            "since": since(revision),
            "phase": revision.status.as_ref().and_then(|status| status.phase),
            "active": active_revision.number == Some(spec.number),
            "from": spec.from,
        })
    };
    json!({"revisions": revisions.iter().rev().map(document).collect::<Vec<_>>(), "why": active_revision.why})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{BoundariesRevisionSpec, RevisionSource};
    use crate::cli::args::RevisionRef;

    fn revision(number: i64, image: &str, change: &str) -> BoundariesRevision {
        let data = data(image);
        let from =
            RevisionSource { manager: "argocd-controller".into(), change: change.into(), ..RevisionSource::default() };
        let hash = content_hash(&data);
        let spec = BoundariesRevisionSpec { number, hash, data, from, ..BoundariesRevisionSpec::default() };
        let mut revision = BoundariesRevision::new(&format!("r{number}"), spec);
        revision.metadata.creation_timestamp = serde_json::from_value(json!("2026-08-21T08:02:11Z")).ok();
        revision
    }

    fn data(image: &str) -> BTreeMap<String, String> {
        let defaults = format!(
            "spec: {{eks: {{configuration: {{image: {image}, userData: [{{name: a, data: canary-{image}}}]}}}}}}"
        );
        [("defaults".to_owned(), defaults)].into()
    }

    #[test]
    fn list_shows_the_newest_first_and_marks_the_active_one() {
        let (first, mut second) = (revision(1, "ami-1", ""), revision(2, "ami-2", "image: \"ami-1\" -> \"ami-2\""));
        second.spec.from.release = "2026-08-20".into();
        second.status = serde_json::from_value(json!({"phase": "Rolling", "groups": {"affected": 41, "done": 3}})).ok();
        let revisions = [&first, &second];
        let text = list(&revisions, &active_revision(&revisions, Some(&data("ami-2"))));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[1],
            "r2*       Rolling  3/41    2026-08-21T08:02:11Z  argocd-controller  2026-08-20  image: \"ami-1\" -> \"ami-2\""
        );
        assert!(lines[2].starts_with("r1  ") && lines[2].ends_with('-'), "{text}");
        assert_eq!(lines.last(), Some(&"* is active"));
        let broken = [("defaults".to_owned(), "{".to_owned())].into();
        for (live, why) in [
            (None, "is missing"),
            (Some(&broken), "is invalid: defaults line"),
            (Some(&data("ami-3")), "has not stored"),
        ] {
            let text = list(&revisions, &active_revision(&revisions, live));
            assert!(
                text.lines().last().is_some_and(|line| line.starts_with("* is active: ") && line.contains(why)),
                "{text}"
            );
        }
    }

    /// An admin who reverts a change must not mistake an aborted revision for the active one.
    #[test]
    fn revision_that_is_rolling_or_was_aborted_is_not_active() {
        for (phase, number, words) in [
            ("Rolling", 1, "r2 reaches the groups in waves"),
            ("Halted", 1, "r2 reaches the groups in waves"),
            ("Aborted", 1, "r2 was aborted; the ConfigMap still holds it: revert it"),
            ("Complete", 2, "* is active"),
        ] {
            let (first, mut second) = (revision(1, "ami-1", ""), revision(2, "ami-2", ""));
            second.status = serde_json::from_value(json!({"phase": phase, "stable": "r1"})).ok();
            let revisions = [&first, &second];
            let found = active_revision(&revisions, Some(&data("ami-2")));
            assert_eq!(found.number, Some(number), "{phase}");
            let text = list(&revisions, &found);
            assert!(text.contains(&format!("r{number}* ")) && text.contains(words), "{text}");
            assert!(text.lines().nth(1).is_some_and(|line| line.contains(phase)), "{text}");
        }
    }

    #[test]
    fn one_revision_shows_its_changes_and_can_be_committed() {
        let (first, second) = (revision(1, "ami-1", ""), revision(2, "ami-2", ""));
        let text = describe(&second, Some(&first));
        assert!(
            text.contains("changed from r1:\n  image: \"ami-1\" -> \"ami-2\"\n  userData[a].data changed\n"),
            "{text}"
        );
        assert!(!text.contains("canary"), "{text}");
        assert!(describe(&first, None).contains("the revision before is not stored"));
        let map: ConfigMap = serde_json::from_value(manifest(&first, "im")).unwrap();
        assert_eq!(map.data, Some(data("ami-1")));
        let missing = missing(Some(&RevisionRef::of_number(9)), &[&first, &second]);
        assert!(missing.contains("no revision r9; there are r1, r2"), "{missing}");
    }
}
