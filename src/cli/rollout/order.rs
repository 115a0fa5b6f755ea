//! Orders of users about the rollout of a revision. Each is one patch of `spec.orders`, which fails if another user
//! changed the orders meanwhile.

use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use kube::api::{Api, Patch, PatchParams, ValidationDirective};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::ordered_by::{field_manager, last_order, words};
use super::read::{NO_ROLLOUT, find, find_with_return, is_about_to_begin, remedy};
use crate::api::{BoundariesRevision, GroupObject, RolloutOrders, RolloutPhase, WaveState};
use crate::cli::args::{ApproveArgs, OrderArgs, RevisionRef, RevisionsArgs, SkipArgs};
use crate::cli::output::print;
use crate::k8s::call;

/// How often an order is written again because the controller wrote the status of the revision in between.
const MAX_ATTEMPTS: usize = 5;

pub(super) async fn pause(args: OrderArgs) -> anyhow::Result<ExitCode> {
    order_revision(&args, |revision, orders| {
        let name = revision.name_any();
        if orders.paused {
            return Ok((json!({}), format!("{name} is paused already")));
        }
        let text = format!("{name} is paused: no group takes it, and no node is replaced for it. To continue: instance-manager rollout resume {name}");
        Ok((json!({"paused": true}), text))
    })
    .await
}

pub(super) async fn resume(args: OrderArgs) -> anyhow::Result<ExitCode> {
    // A pause of a complete revision holds the groups that follow it late, also after a newer one came.
    let is_held = |revision: &BoundariesRevision| revision.spec.orders.paused;
    order(&args.revisions, Some(&args.revision), is_held, |revision, orders| Ok(resumed(revision, orders))).await
}

/// The order that ends a pause, a halt or an abort.
fn resumed(revision: &BoundariesRevision, orders: &RolloutOrders) -> (Value, String) {
    let (name, phase) = (revision.name_any(), phase(revision));
    let halted = matches!(phase, Some(RolloutPhase::Halted | RolloutPhase::Returning | RolloutPhase::Aborted));
    let has_refusals =
        revision.status.as_ref().is_some_and(|status| status.groups.is_some_and(|groups| groups.failed > 0));
    let mut patch = json!({"paused": false, "aborted": false});
    if halted || has_refusals {
        patch["retries"] = json!(orders.retries + 1);
    } else if !orders.paused && !orders.aborted {
        return (json!({}), format!("{name} is neither paused nor halted"));
    }
    let how = match phase {
        Some(RolloutPhase::Returning | RolloutPhase::Aborted) => "begins again at the first wave",
        _ => "continues",
    };
    // What has failed must not reach every group at once.
    let ends_urgency = orders.urgent && (halted || orders.aborted);
    if ends_urgency {
        patch["urgent"] = json!(false);
    }
    let urgency = if ends_urgency { "; it is no longer urgent" } else { "" };
    let failed = match has_refusals {
        true => "; groups on which it failed take it again in their wave",
        false => "",
    };
    (patch, format!("{name} {how}{failed}{urgency}"))
}

pub(super) async fn abort(args: OrderArgs) -> anyhow::Result<ExitCode> {
    let (.., returns) = find_with_return(&args.revisions, Some(&args.revision)).await?;
    order_revision(&args, |revision, _| {
        let name = revision.name_any();
        let stable = stable(revision, returns.as_deref())?;
        let text = format!("{name} is aborted: every group that has it returns to the complete revision that it had before, as a rule {stable}; {}", remedy(revision));
        Ok((json!({"aborted": true, "paused": false}), text))
    })
    .await
}

pub(super) async fn approve(args: ApproveArgs) -> anyhow::Result<ExitCode> {
    let ApproveArgs { order: target, wave, all } = args;
    order_revision(&target, move |revision, orders| {
        let name = revision.name_any();
        let wave = if all { "*".to_owned() } else { wave.clone().context("name a wave")? };
        let waves = revision.status.iter().flat_map(|status| &status.waves);
        let known: Vec<_> = waves.clone().map(|wave| wave.name.as_str()).collect();
        if wave != "*" && !known.is_empty() && !known.contains(&wave.as_str()) {
            bail!("{name} has no wave {wave}; it has {}", known.join(", "));
        }
        let which = if wave == "*" { "every wave".to_owned() } else { format!("wave {wave}") };
        if orders.approved.contains(&wave) {
            return Ok((json!({}), format!("{name}: {which} is approved already")));
        }
        let approved: Vec<_> = orders.approved.iter().cloned().chain([wave.clone()]).collect();
        let state = waves.clone().find(|known| known.name == wave).and_then(|wave| wave.state);
        let effect = match state.filter(|state| *state != WaveState::Waiting) {
            _ if let Some(stop) = stop(revision, orders) => stop,
            Some(_) => "groups that came to it after it opened take the revision".to_owned(),
            None => "it opens when the waves before it have passed".to_owned(),
        };
        Ok((json!({"approved": approved}), format!("{name}: {which} is approved; {effect}")))
    })
    .await
}

pub(super) async fn skip(args: SkipArgs) -> anyhow::Result<ExitCode> {
    let SkipArgs { order: target, wave, group, all, now } = args;
    if let Some(group) = &group {
        check_left_out(&target, group).await?;
    }
    order_revision(&target, move |revision, orders| {
        if now {
            return Ok(make_urgent(revision, orders));
        }
        let name = revision.name_any();
        let wave = if all { Some("*".to_owned()) } else { wave.clone() };
        if let Some(wave) = wave {
            let waves = revision.status.iter().flat_map(|status| &status.waves).map(|wave| wave.name.as_str());
            let known: Vec<_> = waves.collect();
            if wave != "*" && !known.is_empty() && !known.contains(&wave.as_str()) {
                bail!("{name} has no wave {wave}; it has {}", known.join(", "));
            }
            let mut skipped = orders.skipped.clone();
            skipped.retain(|known| *known != wave);
            skipped.push(wave.clone());
            let which = if wave == "*" {
                "no wave waits for another one, or for an approval".to_owned()
            } else {
                format!("the waves after {wave} do not wait for it, and it does not wait for an approval")
            };
            let stop = stop(revision, orders).map(|stop| format!("; {stop}")).unwrap_or_default();
            return Ok((json!({"skipped": skipped}), format!("{name}: {which}{stop}")));
        }
        let group = group.clone().context("name a wave or a group")?;
        let mut without = orders.without.clone();
        without.retain(|known| *known != group);
        without.push(group.clone());
        Ok((json!({"without": without}), format!("{group} does not take {name}")))
    })
    .await
}

/// The order that lets nothing delay the revision but what protects the cluster.
fn make_urgent(revision: &BoundariesRevision, orders: &RolloutOrders) -> (Value, String) {
    let name = revision.name_any();
    if orders.urgent {
        return (json!({}), format!("{name} is urgent already"));
    }
    let stop = stop(revision, orders).map(|stop| format!("; {stop}")).unwrap_or_default();
    let text = format!(
        "{name}: all groups take it now, whatever waves, soaks, windows, freezes, deferrals and approvals say; a halt, locks, atOnce and budgets still apply{stop}"
    );
    (json!({"urgent": true}), text)
}

/// Fails if leaving the group out would do nothing: it does not exist, or has the revision already. Without permission
/// to read it, nothing is printed.
async fn check_left_out(target: &OrderArgs, group: &str) -> anyhow::Result<()> {
    let (client, revision) = find(&target.revisions, Some(&target.revision)).await?;
    let (namespace, name) = group.split_once('/').with_context(|| format!("{group} is not NAMESPACE/NAME"))?;
    let api: Api<GroupObject> = Api::namespaced(client, namespace);
    let found = match call("get", "instancegroups", api.get_opt(name)).await {
        Ok(found) => found.with_context(|| format!("there is no InstanceGroup {group}"))?,
        Err(_) => return Ok(()),
    };
    let status = found.0.map_or_else(|invalid| invalid.status, |group| group.status);
    let has_it = status.and_then(|status| status.boundaries_revision).as_ref() == Some(&revision.spec.hash);
    if has_it {
        let revision = revision.name_any();
        bail!(
            "{group} has {revision} already; to stop its nodes, lock the group, or take {revision} back: instance-manager rollout abort {revision}"
        );
    }
    Ok(())
}

/// Reads the revision, and writes the orders that `decide` returns; an empty object is not written.
async fn order_revision(
    args: &OrderArgs,
    decide: impl Fn(&BoundariesRevision, &RolloutOrders) -> anyhow::Result<(Value, String)>,
) -> anyhow::Result<ExitCode> {
    order_named(&args.revisions, Some(&args.revision), decide).await
}

/// The same for the revision that a user names, or the newest one.
pub(super) async fn order_named(
    revisions: &RevisionsArgs,
    wanted: Option<&RevisionRef>,
    decide: impl Fn(&BoundariesRevision, &RolloutOrders) -> anyhow::Result<(Value, String)>,
) -> anyhow::Result<ExitCode> {
    order(revisions, wanted, |_| false, decide).await
}

/// The same. Without `is_effective`, the controller does not follow the orders of an older revision.
async fn order(
    revisions: &RevisionsArgs,
    wanted: Option<&RevisionRef>,
    is_effective: impl Fn(&BoundariesRevision) -> bool,
    decide: impl Fn(&BoundariesRevision, &RolloutOrders) -> anyhow::Result<(Value, String)>,
) -> anyhow::Result<ExitCode> {
    let (client, revision) = find(revisions, wanted).await?;
    let (_, newest) = find(revisions, None).await?;
    if !is_effective(&revision) {
        check_newest(&revision, &newest)?;
    }
    let text = write_order(client, revision, decide).await?;
    print(format!("{text}\n").as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Fails for an older revision. The controller follows the orders of the newest one.
fn check_newest(revision: &BoundariesRevision, newest: &BoundariesRevision) -> anyhow::Result<()> {
    let (name, newest_name) = (revision.name_any(), newest.name_any());
    ensure!(
        revision.spec.number >= newest.spec.number,
        "{name} is not the newest revision, so an order for it has no effect; the newest one is {newest_name}: see instance-manager rollout status"
    );
    Ok(())
}

/// Writes the orders that `decide` returns for the revision, and returns its text. The controller writes the status of
/// a revision every few seconds; a conflict with such a write is retried.
async fn write_order(
    client: Client,
    mut revision: BoundariesRevision,
    decide: impl Fn(&BoundariesRevision, &RolloutOrders) -> anyhow::Result<(Value, String)>,
) -> anyhow::Result<String> {
    let name = revision.name_any();
    let api: Api<BoundariesRevision> = Api::namespaced(client.clone(), &revision.namespace().unwrap_or_default());
    let known = revision.spec.orders.clone();
    for _ in 0..MAX_ATTEMPTS {
        match phase(&revision) {
            None if !is_about_to_begin(&revision) => bail!("{name}: {NO_ROLLOUT}"),
            // Its pause still holds the groups that had begun.
            Some(RolloutPhase::Superseded) if !known.paused => {
                bail!("{name} is superseded by a newer revision; see instance-manager rollout status")
            }
            Some(_) | None => {}
        }
        let (orders, text) = decide(&revision, &known)?;
        let is_empty = orders.as_object().is_some_and(serde_json::Map::is_empty);
        if is_empty || is_written(&client, &api, &revision, orders).await? {
            return Ok(text);
        }
        revision = call("get", "boundariesrevisions", api.get(&name)).await?;
        if revision.spec.orders != known {
            let by = last_order(&revision).map(|by| format!(" by {by}")).unwrap_or_default();
            let now = Some(words(&revision)).filter(|words| !words.is_empty()).unwrap_or("none".into());
            bail!(
                "the orders of {name} were changed meanwhile{by}; they are now: {now}. Nothing else was changed; to apply your change anyway, repeat the command"
            );
        }
    }
    bail!("your change was not written, because {name} was modified {MAX_ATTEMPTS} times meanwhile; repeat the command")
}

/// Writes the orders; `false` if the revision was changed since it was read.
async fn is_written(
    client: &Client,
    api: &Api<BoundariesRevision>,
    revision: &BoundariesRevision,
    orders: Value,
) -> anyhow::Result<bool> {
    let patch = json!({"metadata": {"resourceVersion": revision.resource_version()}, "spec": {"orders": orders}});
    // Without it, the API server silently drops an order that an older definition does not have.
    let field_validation = Some(ValidationDirective::Strict);
    let field_manager = Some(field_manager(client).await);
    let params = PatchParams { field_manager, field_validation, ..PatchParams::default() };
    match call("patch", "boundariesrevisions", api.patch(&revision.name_any(), &params, &Patch::Merge(patch))).await {
        Err(error) if error.is_conflict() => Ok(false),
        other => other.map(|_| true).map_err(Into::into),
    }
}

/// The recorded phase.
pub(super) fn phase(revision: &BoundariesRevision) -> Option<RolloutPhase> {
    revision.status.as_ref()?.phase
}

/// Why an order to continue has no effect yet, and what else the rollout needs. The pause is that of the orders.
fn stop(revision: &BoundariesRevision, orders: &RolloutOrders) -> Option<String> {
    let state = match phase(revision) {
        Some(RolloutPhase::Halted) => "halted",
        Some(RolloutPhase::Returning | RolloutPhase::Aborted) => "aborted",
        Some(_) | None if orders.paused => "paused",
        Some(_) | None => return None,
    };
    let name = revision.name_any();
    Some(format!(
        "the rollout is {state}, so no further group takes {name}; to continue: instance-manager rollout resume {name}"
    ))
}

/// The revision that groups would return to: `returns`, unless the revision is a return itself.
pub(super) fn stable<'a>(revision: &BoundariesRevision, returns: Option<&'a str>) -> anyhow::Result<&'a str> {
    let name = revision.name_any();
    let status = revision.status.as_ref();
    if is_about_to_begin(revision) {
        bail!("no group has {name} yet; to stop it: instance-manager rollout pause {name}, or revert the ConfigMap");
    }
    let stable = status.and_then(|status| status.stable.as_deref());
    if stable.is_some() && status.is_some_and(|status| status.without_waves == Some(true)) {
        bail!(
            "{name} has the content that was complete before, so there is nothing else to return to; to stop it: instance-manager rollout pause {name}"
        );
    }
    returns.with_context(|| match stable {
        Some(stable) => format!("{stable}, to which groups would return from {name}, is no longer stored; correct the ConfigMap, or to stop: instance-manager rollout pause {name}"),
        None => format!("{name} is the first revision: there is none to return to"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::k8s::fake;

    fn revision(version: &str, paused: bool) -> BoundariesRevision {
        let object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "BoundariesRevision",
            "metadata": {"name": "r2", "namespace": "im", "resourceVersion": version, "managedFields": [
                {"manager": "instance-manager-rollout:jane", "time": "2026-08-21T08:00:00Z",
                 "fieldsV1": {"f:spec": {"f:orders": {"f:paused": {}}}}}]},
            "spec": {"number": 2, "hash": "x", "data": {}, "from": {}, "orders": {"paused": paused}},
            "status": {"phase": "Rolling"},
        });
        serde_json::from_value(object).expect("a revision")
    }

    /// An API server with the revision at version 8, whose orders are paused or not. It accepts writes at version 8.
    fn server(paused: bool) -> Client {
        fake::client(move |call| match call.route() {
            ("POST", _) => (201, json!({"status": {"userInfo": {"username": "joe"}}})),
            ("GET", _) => (200, serde_json::to_value(revision("8", paused)).expect("JSON")),
            ("PATCH", _) => {
                assert!(call.query.contains("fieldManager=instance-manager-rollout%3Ajoe"), "{}", call.query);
                match call.body["metadata"]["resourceVersion"].as_str() {
                    Some("8") => (200, serde_json::to_value(revision("9", true)).expect("JSON")),
                    _ => fake::failure(409, "Conflict", "the object has been modified"),
                }
            }
            route => panic!("{route:?}"),
        })
    }

    fn pause(_: &BoundariesRevision, _: &RolloutOrders) -> anyhow::Result<(Value, String)> {
        Ok((json!({"paused": true}), "paused".to_owned()))
    }

    /// Of two users who order at the same time, the second one must read again, and undo nothing of the first.
    #[tokio::test]
    async fn order_after_another_users_order_changes_nothing_and_names_that_user() {
        let error = write_order(server(true), revision("7", false), pause).await.expect_err("a conflict").to_string();
        for words in ["r2 were changed meanwhile by jane at 2026-08-21T08:00:00Z", "now: paused"] {
            assert!(error.contains(words), "{error}");
        }
    }

    /// In an emergency, an admin must read what still stops the change.
    #[test]
    fn urgent_order_is_given_once_and_names_what_stops_it() {
        let mut revision = revision("8", true);
        let (patch, text) = make_urgent(&revision, &revision.spec.orders);
        assert_eq!(patch, json!({"urgent": true}));
        for words in ["r2: all groups take it now", "locks, atOnce and budgets", "the rollout is paused"] {
            assert!(text.contains(words), "{text}");
        }
        revision.spec.orders.urgent = true;
        let (patch, text) = make_urgent(&revision, &revision.spec.orders);
        assert_eq!((patch, text.as_str()), (json!({}), "r2 is urgent already"));
    }

    /// What failed while it was urgent would reach every group at once when an admin resumes it.
    #[test]
    fn resume_of_a_halted_urgent_revision_ends_its_urgency_and_says_so() {
        let mut revision = revision("8", true);
        revision.spec.orders.urgent = true;
        let (patch, text) = resumed(&revision, &revision.spec.orders);
        assert!(patch.get("urgent").is_none() && !text.contains("urgent"), "a pause is no failure: {text}");
        revision.status.get_or_insert_default().phase = Some(RolloutPhase::Halted);
        let (patch, text) = resumed(&revision, &revision.spec.orders);
        assert_eq!(patch["urgent"], json!(false));
        assert!(text.ends_with("r2 continues; it is no longer urgent"), "{text}");
    }

    /// An admin approves or skips a wave and believes that the rollout continues, but it is halted or paused.
    #[test]
    fn order_to_continue_names_the_halt_and_how_to_end_it() {
        use RolloutPhase::{Halted, Returning, Rolling};
        let mut revision = revision("8", false);
        assert_eq!(stop(&revision, &revision.spec.orders), None);
        for (phase, paused, word) in
            [(Halted, false, "halted"), (Returning, false, "aborted"), (Rolling, true, "paused")]
        {
            revision.status.get_or_insert_default().phase = Some(phase);
            revision.spec.orders.paused = paused;
            let stop = stop(&revision, &revision.spec.orders).expect("it is stopped");
            assert!(stop.contains(word) && stop.contains("instance-manager rollout resume r2"), "{stop}");
        }
    }

    /// An order for an older revision would be stored, and nothing would follow it: the controller reads those of the newest.
    #[test]
    fn order_for_an_older_revision_is_refused_and_names_the_newest() {
        let (older, mut newest) = (revision("8", false), revision("8", false));
        (newest.metadata.name, newest.spec.number) = (Some("r3".into()), 3);
        let error = check_newest(&older, &newest).expect_err("an older one").to_string();
        assert!(error.starts_with("r2 is not the newest revision") && error.contains("newest one is r3"), "{error}");
        assert!(check_newest(&newest, &newest).is_ok());
        // A newer one may have been stored between the two reads.
        assert!(check_newest(&newest, &older).is_ok());
    }

    /// The revision to which groups would return was deleted. An order that names it would have no effect.
    #[test]
    fn abort_names_the_revision_that_is_stored() {
        let mut revision = revision("8", false);
        assert!(stable(&revision, None).expect_err("nothing").to_string().contains("is the first revision"));
        revision.status.get_or_insert_default().stable = Some("r1".into());
        assert_eq!(stable(&revision, Some("r0")).expect("an older one"), "r0");
        assert!(
            stable(&revision, None).expect_err("it is gone").to_string().contains("r1, to which groups would return")
        );
    }

    /// The pause of a revision holds groups between two nodes, also after a newer one came.
    #[tokio::test]
    async fn pause_of_a_superseded_revision_can_be_ended() {
        for paused in [true, false] {
            let mut old = revision("8", paused);
            old.status.get_or_insert_default().phase = Some(RolloutPhase::Superseded);
            let resumes =
                |_: &BoundariesRevision, _: &RolloutOrders| Ok((json!({"paused": false}), "continues".to_owned()));
            assert_eq!(write_order(server(paused), old, resumes).await.is_ok(), paused);
        }
    }

    /// The emergency stop must not fail because the controller wrote how far the rollout is.
    #[tokio::test]
    async fn order_is_retried_after_a_status_write_conflict() {
        assert_eq!(write_order(server(false), revision("7", false), pause).await.expect("an order"), "paused");
    }
}
