//! `reconcile`: requests a reconcile of a group and waits for it.

use std::process::ExitCode;

use anyhow::Context;
use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use serde_json::json;

use super::args::ReconcileArgs;
use super::group_error;
use super::output::print;
use crate::api::names::{annotation, condition};
use crate::api::{GroupObject, InstanceGroupStatus};
use crate::k8s::call;
use crate::util::duration;

/// Runs the command. Exit status: 0 when the group is Ready, 2 when it is not.
pub async fn run(args: ReconcileArgs) -> anyhow::Result<ExitCode> {
    let (namespace, name) = args.namespace.of_group(&args.group)?;
    let client = args.connection.connect().await?;
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let groups: Api<GroupObject> = Api::namespaced(client, &namespace);
    let asked = Timestamp::now().to_string();
    let patch = json!({ "metadata": { "annotations": { annotation::RECONCILE_NOW: asked } } });
    let params = PatchParams::default();
    let patched = call("patch", "instancegroups", groups.patch_metadata(&name, &params, &Patch::Merge(patch))).await;
    patched.map_err(|error| group_error(error, &namespace, &name))?;
    let is_answered = |stored: Option<&GroupObject>| {
        stored.is_none_or(|stored| {
            status_of(stored).is_none_or(|status| status.last_reconcile_now.as_ref() == Some(&asked))
        })
    };
    let answer = tokio::time::timeout(args.timeout, await_condition(groups.clone(), &name, is_answered)).await;
    let Ok(stored) = answer else {
        let limit = duration::format(args.timeout.try_into().unwrap_or_default());
        let stored = call("get", "instancegroups", groups.get_opt(&name)).await.ok().flatten();
        let why = stored.as_ref().and_then(status_of).map(describe).filter(|text| text.contains('\n'));
        // An error is one line.
        match why.map(|why| why.replace("\n  ", "; ")) {
            Some(why) => anyhow::bail!("the controller has not reconciled {namespace}/{name} within {limit}: {why}"),
            None => anyhow::bail!(
                "the controller has not reconciled {namespace}/{name} within {limit}: no controller holds the Lease, another controller writes the groups (event ConflictingController), or many groups wait"
            ),
        }
    };
    let Some(stored) = stored.context("watching the InstanceGroup")? else {
        anyhow::bail!("the InstanceGroup {namespace}/{name} was deleted");
    };
    let Some(status) = status_of(&stored) else { anyhow::bail!("{namespace}/{name} does not match its schema") };
    print(format!("{namespace}/{name}  {}\n", describe(status)).as_bytes())?;
    Ok(ExitCode::from(if is_ready(status) { 0 } else { 2 }))
}

/// The status of a group; `None` for an object that cannot be decoded.
fn status_of(stored: &GroupObject) -> Option<&InstanceGroupStatus> {
    static EMPTY: std::sync::LazyLock<InstanceGroupStatus> = std::sync::LazyLock::new(InstanceGroupStatus::default);
    stored.0.as_ref().ok().map(|group| group.status.as_ref().unwrap_or(&EMPTY))
}

fn is_ready(status: &InstanceGroupStatus) -> bool {
    status.conditions.iter().any(|found| found.r#type == condition::READY && found.is_true())
}

/// The state, the nodes, and what the group waits for or is stopped by.
fn describe(status: &InstanceGroupStatus) -> String {
    let mut text = status.current_state.clone().unwrap_or_default();
    if let Some(nodes) = &status.nodes {
        text += &format!(", {} of {} {} ready", nodes.ready, nodes.desired, nodes.unit());
    }
    let reported = [condition::STALLED, condition::RECONCILING];
    for found in status.conditions.iter().filter(|found| reported.contains(&found.r#type.as_str()) && found.is_true()) {
        let (reason, message) = (found.reason.as_deref(), found.message.as_deref());
        text += &format!("\n  {}: {}: {}", found.r#type, reason.unwrap_or_default(), message.unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Condition, NodeCounts};

    #[test]
    fn result_names_state_nodes_and_causes() {
        let mut status = InstanceGroupStatus {
            current_state: Some("Error".into()),
            nodes: Some(NodeCounts { desired: 3, ready: 2, ..NodeCounts::default() }),
            ..InstanceGroupStatus::default()
        };
        status.conditions = vec![
            Condition::new(condition::READY, false, "Blocked", ""),
            Condition::new(
                condition::STALLED,
                true,
                "MissingPermission",
                "the role lacks autoscaling:UpdateAutoScalingGroup",
            ),
            Condition::new(condition::RECONCILING, false, "Blocked", "no"),
        ];
        let text = describe(&status);
        assert_eq!(
            text,
            "Error, 2 of 3 nodes ready\n  Stalled: MissingPermission: the role lacks autoscaling:UpdateAutoScalingGroup"
        );
        assert!(!is_ready(&status));
        status.conditions[0] = Condition::new(condition::READY, true, "Ready", "");
        assert!(is_ready(&status));
    }
}
