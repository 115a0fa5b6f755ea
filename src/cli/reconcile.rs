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
use crate::api::{Condition, GroupObject, InstanceGroupStatus};
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
        let status = stored.as_ref().and_then(status_of);
        anyhow::bail!(describe_timeout(&format!("{namespace}/{name}"), &limit, status));
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

/// Why a request may stay without an answer.
const NOT_RECONCILED: &str = "no controller holds the Lease, another controller writes the groups (event ConflictingController), or many groups wait";

/// Why the controller has not answered in time, in one line. The status is of an earlier pass, and explains it only where
/// that pass could not read the group.
fn describe_timeout(group: &str, limit: &str, status: Option<&InstanceGroupStatus>) -> String {
    let is_failure = |found: &Condition| {
        let has_reason = || condition::READ_FAILURES.iter().any(|reason| found.has_reason(reason));
        found.r#type == condition::RECONCILING && found.is_true() && has_reason()
    };
    let last = status.map(|status| describe(status).replace("\n  ", "; ")).filter(|text| !text.is_empty());
    let why = match last {
        Some(last) if status.is_some_and(|status| status.conditions.iter().any(is_failure)) => last,
        Some(last) => format!("{NOT_RECONCILED}; its last status: {last}"),
        None => NOT_RECONCILED.to_owned(),
    };
    format!("the controller has not reconciled {group} within {limit}: {why}")
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
    use crate::api::NodeCounts;

    /// The controller was stopped during a rotation: a user who sees only that the group rotates waits forever.
    #[test]
    fn timeout_names_its_possible_causes_beside_an_old_status() {
        let status = |reason: &str, message: &str| InstanceGroupStatus {
            current_state: Some("InitUpgrade".into()),
            conditions: vec![Condition::new(condition::RECONCILING, true, reason, message)],
            ..InstanceGroupStatus::default()
        };
        let text = |status: Option<&InstanceGroupStatus>| describe_timeout("team-a/web", "2m", status);
        let rotating = text(Some(&status("Rotating", "1 of 3 done")));
        for words in
            ["team-a/web within 2m: no controller holds the Lease", "its last status: InitUpgrade", "1 of 3 done"]
        {
            assert!(rotating.contains(words), "{rotating}");
        }
        let unread = text(Some(&status(condition::AWS_UNAVAILABLE, "AWS does not answer")));
        assert!(unread.contains("AWS does not answer") && !unread.contains("Lease"), "{unread}");
        assert!(text(None).contains("Lease") && !text(Some(&InstanceGroupStatus::default())).contains("last status"));
    }

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
