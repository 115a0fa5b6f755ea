//! `rollout wait`: for scripts that continue when a revision is complete, or has passed a wave.

use std::process::ExitCode;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt};

use super::read::{MissingRevision, NO_ROLLOUT, find, is_about_to_begin};
use crate::api::names::{CONFIG_MAP, condition};
use crate::api::{BoundariesRevision, RolloutPhase, WaveState};
use crate::boundaries::content_hash;
use crate::cli::args::{RevisionRef, RolloutWaitArgs, WaitTarget};
use crate::cli::output::{describe_error, print};
use crate::k8s::call;
use crate::rollout::has_texts;

/// The interval between two polls.
const INTERVAL: Duration = Duration::from_secs(2);

/// Runs the command. Exit status: 0 when the state is reached, 2 when the rollout is halted, aborted or superseded, 1 when
/// the time is over or the revision was deleted.
pub(super) async fn run(args: RolloutWaitArgs) -> anyhow::Result<ExitCode> {
    let end = tokio::time::Instant::now() + args.timeout;
    // A wrong argument or a missing permission is reported at once. Later errors are retried, because the API server
    // may be unavailable for a moment.
    let wanted = args.revision.as_ref();
    let (client, mut revision) = loop {
        match find(&args.revisions, wanted).await {
            Err(error) if may_be_stored_later(wanted, &error) && tokio::time::Instant::now() < end => {
                tokio::time::sleep(INTERVAL).await;
            }
            found => break found?,
        }
    };
    let mut number = named_number(wanted, &revision);
    let mut last_error = None;
    loop {
        // What was applied right before may not be stored yet.
        let is_meant = number.is_some() || is_meant(&args, &client, &revision).await;
        if is_meant {
            // A newer revision is another change.
            number = Some(revision.spec.number);
            if let Some((code, text)) = wait_result(&revision, &args.awaited)? {
                print(format!("{text}\n").as_bytes())?;
                return Ok(ExitCode::from(code));
            }
        }
        if tokio::time::Instant::now() >= end {
            anyhow::bail!(time_is_over(&revision.name_any(), is_meant, last_error.as_ref()));
        }
        tokio::time::sleep(INTERVAL).await;
        let meant = number.map(RevisionRef::of_number);
        let found = find(&args.revisions, meant.as_ref().or(wanted)).await.map(|(_, found)| found);
        last_error = record_poll(found, number, &mut revision)?;
    }
}

/// The number that a user named. A release may get a newer revision, so that it stands for no number yet.
fn named_number(wanted: Option<&RevisionRef>, found: &BoundariesRevision) -> Option<i64> {
    wanted.and_then(RevisionRef::number).filter(|number| *number == found.spec.number)
}

/// Whether a revision is missing that may have been applied right before: its number cannot be known, but its release can.
fn may_be_stored_later(wanted: Option<&RevisionRef>, error: &anyhow::Error) -> bool {
    error.is::<MissingRevision>() && wanted.is_some_and(|wanted| wanted.number().is_none())
}

/// Whether what was found is what the user means: the ConfigMap has no content that is not stored yet. Without the newest
/// revision, a release counts as the newest.
async fn is_meant(args: &RolloutWaitArgs, client: &Client, found: &BoundariesRevision) -> bool {
    let newest = match args.revision {
        Some(_) => find(&args.revisions, None).await.ok(),
        None => None,
    };
    let is_older = newest.is_some_and(|(_, newest)| newest.spec.number > found.spec.number);
    is_older || is_newest_applied(client, &args.revisions.config_namespace, found).await
}

/// Keeps what a poll has found, or returns why it found nothing, to be shown at the end. A revision that is awaited and
/// was deleted is an error at once: it does not come back.
fn record_poll(
    found: anyhow::Result<BoundariesRevision>,
    number: Option<i64>,
    revision: &mut BoundariesRevision,
) -> anyhow::Result<Option<anyhow::Error>> {
    match found {
        Ok(found) => {
            *revision = found;
            Ok(None)
        }
        Err(error) if number.is_some() && error.is::<MissingRevision>() => Err(error),
        Err(error) => Ok(Some(error)),
    }
}

/// The text when the time is over, with the error of the last poll: the state that was read may be old.
fn time_is_over(name: &str, is_meant: bool, last_error: Option<&anyhow::Error>) -> String {
    let text = match is_meant {
        true => format!("the time is over; see instance-manager rollout status {name}"),
        false => format!(
            "the time is over, and the controller has not stored the content of the ConfigMap {CONFIG_MAP}: see its events; the newest revision is {name}"
        ),
    };
    let cause = last_error.map(|error| format!("; the last attempt to read it failed: {}", describe_error(error)));
    text + &cause.unwrap_or_default()
}

/// Whether the newest revision has what the ConfigMap has now; also when the ConfigMap cannot be read.
async fn is_newest_applied(client: &Client, namespace: &str, newest: &BoundariesRevision) -> bool {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    match call("get", "configmaps", maps.get_opt(CONFIG_MAP)).await {
        Ok(Some(live)) => has_texts(newest, &content_hash(&live.data.unwrap_or_default())),
        Ok(None) | Err(_) => true,
    }
}

/// The exit status and the text, once there is nothing to wait for.
fn wait_result(revision: &BoundariesRevision, awaited: &WaitTarget) -> anyhow::Result<Option<(u8, String)>> {
    let name = revision.name_any();
    if is_about_to_begin(revision) {
        return Ok(None);
    }
    let Some(status) = revision.status.as_ref().filter(|status| status.phase.is_some()) else {
        return Ok(Some((0, format!("{name}: {NO_ROLLOUT}"))));
    };
    let phase = status.phase.unwrap_or(RolloutPhase::Assessing);
    match phase {
        RolloutPhase::Complete => return Ok(Some((0, format!("{name} is complete")))),
        RolloutPhase::Halted | RolloutPhase::Returning | RolloutPhase::Aborted | RolloutPhase::Superseded => {
            let found = status.conditions.iter().find(|found| found.r#type == condition::HALTED);
            let why = found.and_then(|found| found.message.clone()).unwrap_or_default();
            return Ok(Some((2, format!("{name} is {phase}: {why}").trim_end_matches([':', ' ']).to_owned())));
        }
        RolloutPhase::Assessing | RolloutPhase::Rolling => {}
    }
    let WaitTarget::Wave(wanted) = awaited else { return Ok(None) };
    let Some(wave) = status.waves.iter().find(|wave| wave.name == *wanted) else {
        let names: Vec<_> = status.waves.iter().map(|wave| wave.name.as_str()).collect();
        anyhow::ensure!(names.is_empty(), "{name} has no wave {wanted}; it has {}", names.join(", "));
        return Ok(None);
    };
    Ok((wave.state == Some(WaveState::Passed)).then(|| (0, format!("{name} has passed wave {wanted}"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{BoundariesRevisionSpec, BoundariesRevisionStatus, WaveStatus};
    use crate::cli::rollout::read::stored;
    use crate::k8s::fake;
    use serde_json::json;

    /// A pipeline that applies the ConfigMap and waits at once would succeed because of the previous revision.
    #[tokio::test]
    async fn revision_before_what_was_applied_is_not_waited_for() {
        let mut newest = revision(RolloutPhase::Complete, WaveState::Passed);
        newest.spec.data.insert("defaults".into(), "spec: {}".into());
        newest.spec.hash = content_hash(&newest.spec.data);
        for (defaults, expected) in [("spec: {}", true), ("spec: {eks: {}}", false)] {
            let client = fake::client(move |_| {
                let metadata = json!({"name": "instance-manager", "namespace": "im"});
                (
                    200,
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"defaults": defaults}}),
                )
            });
            assert_eq!(is_newest_applied(&client, "im", &newest).await, expected);
        }
        let client = fake::client(|_| fake::failure(403, "Forbidden", "no"));
        assert!(is_newest_applied(&client, "im", &newest).await, "without permission the newest one counts");
    }

    /// A pipeline that applies a correction of the same release would succeed because of the revision before. One that
    /// applies a new release would fail because it is not stored yet.
    #[test]
    fn release_stands_for_no_number_and_may_be_stored_later() {
        let mut found = revision(RolloutPhase::Complete, WaveState::Passed);
        found.spec.number = 2;
        let missing = anyhow::Error::from(MissingRevision("there is no such revision".to_owned()));
        for (text, number, waits) in [("r2", Some(2), false), ("2026-08-20", None, true)] {
            let wanted = RevisionRef(text.to_owned());
            assert_eq!(named_number(Some(&wanted), &found), number, "{text}");
            assert_eq!(may_be_stored_later(Some(&wanted), &missing), waits, "{text}");
            assert!(!may_be_stored_later(Some(&wanted), &anyhow::anyhow!("forbidden")), "{text}");
        }
    }

    fn revision(phase: RolloutPhase, wave: WaveState) -> BoundariesRevision {
        let waves = vec![WaveStatus { name: "canary".into(), state: Some(wave), ..WaveStatus::default() }];
        let mut revision = BoundariesRevision::new("r2", BoundariesRevisionSpec::default());
        revision.status =
            Some(BoundariesRevisionStatus { phase: Some(phase), waves, ..BoundariesRevisionStatus::default() });
        revision
    }

    /// A pipeline whose permission was revoked would say after hours that the rollout is slow. One whose revision was deleted
    /// would wait for it until the end.
    #[tokio::test]
    async fn failed_polls_are_named_and_a_deleted_revision_is_not_waited_for() {
        let client = fake::client(|_| fake::failure(401, "Unauthorized", "the token has expired"));
        let unauthorized = stored(client, "im").await.map(|mut all| all.remove(0));
        let mut known = revision(RolloutPhase::Rolling, WaveState::Open);
        let error = record_poll(unauthorized, Some(2), &mut known).expect("it is tried again");
        let text = time_is_over("r2", true, error.as_ref());
        assert!(text.contains("rollout status r2") && text.contains("the token has expired"), "{text}");
        let next = revision(RolloutPhase::Complete, WaveState::Passed);
        let error = record_poll(Ok(next), Some(2), &mut known).expect("a revision");
        assert!(!time_is_over("r2", true, error.as_ref()).contains("failed"), "the last poll has succeeded");
        let phase = known.status.as_ref().and_then(|status| status.phase);
        assert!(phase == Some(RolloutPhase::Complete));
        let gone = || -> anyhow::Result<BoundariesRevision> {
            Err(MissingRevision("there is no revision r2; there are r1".to_owned()).into())
        };
        assert!(record_poll(gone(), Some(2), &mut known).is_err());
        assert!(record_poll(gone(), None, &mut known).is_ok(), "the first one may still be stored");
    }

    /// A pipeline must neither continue with an aborted change, nor wait for it forever.
    #[test]
    fn wait_succeeds_when_the_state_is_reached_and_fails_when_it_cannot_be() {
        use RolloutPhase::{Aborted, Complete, Halted, Rolling, Superseded};
        let canary = WaitTarget::Wave("canary".into());
        for (phase, wave, awaited, code) in [
            (Rolling, WaveState::Soaking, &canary, None),
            (Rolling, WaveState::Passed, &canary, Some(0)),
            (Rolling, WaveState::Passed, &WaitTarget::Complete, None),
            (Complete, WaveState::Passed, &WaitTarget::Complete, Some(0)),
            (Halted, WaveState::Open, &canary, Some(2)),
            (Aborted, WaveState::Passed, &WaitTarget::Complete, Some(2)),
            (Superseded, WaveState::Open, &WaitTarget::Complete, Some(2)),
        ] {
            let found = wait_result(&revision(phase, wave), awaited).expect("a result").map(|(code, _)| code);
            assert_eq!(found, code, "{phase} {wave} {awaited:?}");
        }
        // The controller reads a new revision a moment after it was stored.
        let mut new = BoundariesRevision::new("r3", BoundariesRevisionSpec::default());
        let without_key = wait_result(&new, &canary).expect("a result").map(|(code, _)| code);
        new.spec.data.insert("rollout".into(), "{}".into());
        assert_eq!((without_key, wait_result(&new, &canary).expect("a result")), (Some(0), None));
        let error =
            wait_result(&revision(Rolling, WaveState::Open), &WaitTarget::Wave("first".into())).expect_err("no wave");
        assert!(error.to_string().contains("it has canary"), "{error}");
    }
}
