//! Orders of people about the roll-out of a revision. Each is one patch of `spec.orders`, which fails if the revision was
//! changed meanwhile.

use std::process::ExitCode;

use anyhow::{Context, bail};
use kube::api::{Api, Patch, PatchParams, ValidationDirective};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::read::{NO_ROLLOUT, find, remedy};
use crate::api::{BoundariesRevision, RolloutOrders, RolloutPhase};
use crate::cli::args::{ApproveArgs, OrderArgs, RevisionsArgs, SkipArgs, UndoArgs};
use crate::cli::output::print;
use crate::k8s::call;

/// The field manager of the orders.
const MANAGER: &str = "instance-manager-rollout";

pub(super) async fn pause(args: OrderArgs) -> anyhow::Result<ExitCode> {
    order(&args, |revision, orders| {
        let name = revision.name_any();
        if orders.paused {
            return Ok((json!({}), format!("{name} is paused already")));
        }
        let text = format!("{name} is paused: no group takes it, and no node is replaced for it. To go on: instance-manager rollout resume {name}");
        Ok((json!({"paused": true}), text))
    })
    .await
}

pub(super) async fn resume(args: OrderArgs) -> anyhow::Result<ExitCode> {
    order(&args, |revision, orders| {
        let (name, phase) = (revision.name_any(), phase(revision));
        let halted = matches!(phase, Some(RolloutPhase::Halted | RolloutPhase::Returning | RolloutPhase::Aborted));
        let has_refusals =
            revision.status.as_ref().is_some_and(|status| status.groups.is_some_and(|groups| groups.failed > 0));
        let mut patch = json!({"paused": false, "aborted": false});
        if halted || has_refusals {
            patch["retries"] = json!(orders.retries + 1);
        } else if !orders.paused {
            return Ok((json!({}), format!("{name} is neither paused nor halted")));
        }
        let how = match phase {
            Some(RolloutPhase::Returning | RolloutPhase::Aborted) => "begins again at the first wave",
            _ => "goes on",
        };
        Ok((patch, format!("{name} {how}; groups on which it failed take it again in their wave")))
    })
    .await
}

pub(super) async fn abort(args: OrderArgs) -> anyhow::Result<ExitCode> {
    order(&args, |revision, _| {
        let name = revision.name_any();
        let stable = stable(revision)?;
        let text = format!("{name} is taken back: every group returns to {stable}; {}", remedy(revision));
        Ok((json!({"aborted": true, "paused": false}), text))
    })
    .await
}

pub(super) async fn undo(args: UndoArgs) -> anyhow::Result<ExitCode> {
    let UndoArgs { revision, yes: is_confirmed, revisions } = args;
    if revision.is_none() && is_confirmed {
        // A newer one could come between the look and the order.
        bail!("name the revision that --yes takes back; without --yes, the command shows the newest one");
    }
    order_for(&revisions, revision, |revision, _| {
        let name = revision.name_any();
        let stable = stable(revision)?;
        let groups = revision.status.as_ref().and_then(|status| status.groups).unwrap_or_default();
        let effect = format!(
            "{} groups whose nodes {name} replaced, and {} others, return to {stable}",
            groups.done, groups.in_place
        );
        match is_confirmed {
            true => Ok((json!({"aborted": true, "paused": false}), format!("{effect}; {}", remedy(revision)))),
            false => Ok((json!({}), format!("{effect}; to do it: instance-manager rollout undo {name} --yes"))),
        }
    })
    .await
}

pub(super) async fn approve(args: ApproveArgs) -> anyhow::Result<ExitCode> {
    let ApproveArgs { order: target, wave, all } = args;
    order(&target, move |revision, orders| {
        let name = revision.name_any();
        let wave = if all { "*".to_owned() } else { wave.context("name a wave")? };
        let waves = revision.status.iter().flat_map(|status| &status.waves);
        let known: Vec<_> = waves.clone().map(|wave| wave.name.as_str()).collect();
        if wave != "*" && !known.contains(&wave.as_str()) {
            bail!("{name} has no wave {wave}; it has {}", known.join(", "));
        }
        let which = if wave == "*" { "every wave".to_owned() } else { format!("wave {wave}") };
        if orders.approved.contains(&wave) {
            return Ok((json!({}), format!("{name}: {which} is approved already")));
        }
        let approved: Vec<_> = orders.approved.iter().cloned().chain([wave]).collect();
        Ok((
            json!({"approved": approved}),
            format!("{name}: {which} is approved; it opens when the waves before it have passed"),
        ))
    })
    .await
}

pub(super) async fn skip(args: SkipArgs) -> anyhow::Result<ExitCode> {
    let SkipArgs { order: target, wave, group, all } = args;
    order(&target, move |revision, orders| {
        let name = revision.name_any();
        let wave = if all { Some("*".to_owned()) } else { wave };
        if let Some(wave) = wave {
            let waves = revision.status.iter().flat_map(|status| &status.waves).map(|wave| wave.name.as_str());
            let known: Vec<_> = waves.collect();
            if wave != "*" && !known.contains(&wave.as_str()) {
                bail!("{name} has no wave {wave}; it has {}", known.join(", "));
            }
            let mut skipped = orders.skipped.clone();
            skipped.retain(|known| *known != wave);
            skipped.push(wave.clone());
            let which = if wave == "*" {
                "no wave waits for another one".to_owned()
            } else {
                format!("the waves behind {wave} do not wait for it")
            };
            return Ok((json!({"skipped": skipped}), format!("{name}: {which}")));
        }
        let group = group.context("name a wave or a group")?;
        let mut without = orders.without.clone();
        without.retain(|known| *known != group);
        without.push(group.clone());
        Ok((json!({"without": without}), format!("{group} does not take {name}")))
    })
    .await
}

/// Reads the revision, and writes the orders that `decide` returns; an empty object is not written.
async fn order(
    args: &OrderArgs,
    decide: impl FnOnce(&BoundariesRevision, &RolloutOrders) -> anyhow::Result<(Value, String)>,
) -> anyhow::Result<ExitCode> {
    order_for(&args.revisions, Some(args.revision), decide).await
}

/// The same for the revision with this number, or the newest one.
async fn order_for(
    revisions: &RevisionsArgs,
    number: Option<i64>,
    decide: impl FnOnce(&BoundariesRevision, &RolloutOrders) -> anyhow::Result<(Value, String)>,
) -> anyhow::Result<ExitCode> {
    let (client, revision) = find(revisions, number).await?;
    if phase(&revision).is_none() {
        bail!("{}: {NO_ROLLOUT}", revision.name_any());
    }
    if phase(&revision) == Some(RolloutPhase::Superseded) {
        bail!("{} is superseded by a newer revision; see instance-manager rollout status", revision.name_any());
    }
    let (orders, text) = decide(&revision, &revision.spec.orders)?;
    if orders.as_object().is_some_and(|fields| !fields.is_empty()) {
        write(client, &revision, orders).await?;
    }
    print(format!("{text}\n").as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

async fn write(client: Client, revision: &BoundariesRevision, orders: Value) -> anyhow::Result<()> {
    let (namespace, name) = (revision.namespace().unwrap_or_default(), revision.name_any());
    let api: Api<BoundariesRevision> = Api::namespaced(client, &namespace);
    let patch = json!({"metadata": {"resourceVersion": revision.resource_version()}, "spec": {"orders": orders}});
    // Without it, the API server drops an order that an older definition does not have, and says nothing.
    let field_validation = Some(ValidationDirective::Strict);
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), field_validation, ..PatchParams::default() };
    match call("patch", "boundariesrevisions", api.patch(&name, &params, &Patch::Merge(patch))).await {
        Err(error) if error.is_conflict() => {
            bail!("{name} was changed meanwhile; look at it again: instance-manager rollout status {name}")
        }
        other => other.map(drop).map_err(Into::into),
    }
}

fn phase(revision: &BoundariesRevision) -> Option<RolloutPhase> {
    revision.status.as_ref()?.phase
}

/// The revision that groups would return to.
fn stable(revision: &BoundariesRevision) -> anyhow::Result<&str> {
    let stable = revision.status.as_ref().and_then(|status| status.stable.as_deref());
    stable.with_context(|| format!("{} is the first revision: there is none to go back to", revision.name_any()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::k8s::fake;

    /// Of two people who order at the same time, the second one must look again, and undo nothing of the first.
    #[tokio::test]
    async fn order_after_an_old_look_changes_nothing() {
        let client = fake::client(|call| {
            let body = json!({"metadata": {"resourceVersion": "7"}, "spec": {"orders": {"paused": false}}});
            assert_eq!((call.method.as_str(), call.body), ("PATCH", body));
            fake::failure(409, "Conflict", "the object has been modified")
        });
        let mut revision = BoundariesRevision::new("r2", Default::default());
        revision.metadata.namespace = Some("instance-manager".into());
        revision.metadata.resource_version = Some("7".into());
        let error = write(client, &revision, json!({"paused": false})).await.expect_err("a conflict");
        assert!(error.to_string().starts_with("r2 was changed meanwhile"), "{error}");
    }
}
