//! A stored object that does not match its schema: it is reported, and its rotation stops.

use jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};

use super::apply_plan::apply_plan;
use super::context::{Context, Error, event_target, publish_event};
use super::report::Report;
use super::status_update::{publish_transitions, report_refusal, set_gauges};
use super::{report, requeue};
use crate::api::names::{condition, fail_reason};
use crate::api::{GroupId, GroupObject, InstanceGroup, InstanceGroupSpec, group_id, rfc3339};
use crate::apply::Applied;
use crate::plan::{ConditionUpdate, Plan, StalledReason, blocked_plan};
use crate::telemetry::metrics::ReconcileResult;

/// Reports a stored object that cannot be decoded, once per generation. Other groups are not affected.
pub(super) async fn report_invalid_object(stored: &GroupObject, key: &str, ctx: &Context) -> Result<Action, Error> {
    ctx.metrics.record_reconcile(key, ReconcileResult::Failed(fail_reason::GET_REQUEST));
    let Err(invalid) = &stored.0 else { return Ok(Action::await_change()) };
    // A status that cannot be decoded either is written from scratch.
    let status = invalid.status.clone().unwrap_or_default();
    let (metadata, spec) = (invalid.metadata.clone(), InstanceGroupSpec::default());
    let group = InstanceGroup { metadata, spec, status: Some(status.clone()) };
    let applied = Applied::new(invalid_object_plan(&group));
    let report = report::report(&status, &applied, None, &rfc3339(Timestamp::now()));
    set_gauges(&group, key, &applied, &report, ctx);
    let generation = stored.meta().generation;
    if !ctx.stores.is_reported(key, generation) {
        write_report(&group, key, &report, ctx).await?;
        ctx.stores.set_reported(key, generation);
    }
    stop_invalid_rotation(stored, ctx).await
}

/// The plan that the report of an invalid object is made from: the group is blocked, and its drains end.
fn invalid_object_plan(group: &InstanceGroup) -> Plan {
    let message = format!("{}, correct it in Git and apply it again", report::INVALID_OBJECT);
    let mut plan = blocked_plan(&group_id(group), StalledReason::InvalidSpec, message);
    plan.condition_updates.push(ConditionUpdate {
        condition_type: condition::DRAIN_BLOCKED,
        status: false,
        reason: "NotBlocked".to_owned(),
        message: String::new(),
    });
    plan
}

/// Writes the status of an invalid object, and publishes what changed. A process before this one may have done both.
async fn write_report(group: &InstanceGroup, key: &str, report: &Report, ctx: &Context) -> Result<(), Error> {
    let Some(patch) = &report.patch else { return Ok(()) };
    let (namespace, name) = (group.namespace().unwrap_or_default(), group.name_any());
    let version = group.resource_version().unwrap_or_default();
    let result = ctx.planner.kube.patch_status(&namespace, &name, &version, patch.clone()).await;
    report_refusal(group, key, result.as_ref().err(), ctx).await;
    let version = result.map_err(Error::Status)?;
    ctx.planner.process_state.own_writes(key, |own| own.record(&version, Timestamp::now()));
    publish_transitions(group, key, report, ctx).await;
    Ok(())
}

/// Stops the rotation of an object that cannot be decoded. It is repeated until no node of the group has a record.
async fn stop_invalid_rotation(stored: &GroupObject, ctx: &Context) -> Result<Action, Error> {
    let (planner, now) = (&ctx.planner, Timestamp::now());
    let Err(invalid) = &stored.0 else { return Ok(Action::await_change()) };
    let (uid, key) = (stored.uid().unwrap_or_default(), GroupId::key_of(stored.meta()));
    let has_drains = planner.node_index.may_have_drains_of(&uid, &key);
    let Some(status) = invalid.status.clone().filter(|_| has_drains) else { return Ok(Action::await_change()) };
    let metadata = invalid.metadata.clone();
    let group = InstanceGroup { metadata, spec: InstanceGroupSpec::default(), status: Some(status.clone()) };
    let (id, context) = (group_id(&group), ctx.stores.group_context(&group, planner).await);
    let observer = planner.observer(&context, requeue::max_cache_age(planner.settings.timing.poll_interval), now);
    let rejected = blocked_plan(&id, StalledReason::InvalidSpec, report::INVALID_OBJECT.to_owned());
    let plan = planner.stop_rotation(&id, &status, &context, &observer, rejected).await;
    if plan.recheck_at.is_none() {
        // The drains are of other groups.
        return Ok(Action::await_change());
    }
    let applied = apply_plan(&group, plan, "", true, ctx, now).await;
    for event in &report::report(&status, &applied, None, &rfc3339(now)).step_events {
        publish_event(&event_target(&group.metadata), event, ctx).await;
    }
    Ok(Action::requeue(planner.settings.timing.poll_interval.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};

    use super::*;
    use crate::api::apply_merge_patch;
    use crate::controller::fake;

    /// A group that was Ready, with a spec that cannot be decoded.
    fn object() -> Value {
        json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
            "metadata": {"name": "web", "namespace": "team", "uid": "u1", "generation": 4, "resourceVersion": "7"},
            "spec": 7,
            "status": {"currentState": "Ready", "observedGeneration": 3, "conditions": [
                {"type": "Ready", "status": "True", "reason": "Ready"},
                {"type": "BoundariesApplied", "status": "True", "reason": "Applied"},
            ]},
        })
    }

    /// What two passes of one process write and publish, and the metrics after them.
    async fn passes(object: &Value) -> (Vec<Value>, Vec<String>, String) {
        let (patches, reasons) = (Arc::<Mutex<Vec<Value>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (patched, published, answer) = (patches.clone(), reasons.clone(), object.clone());
        let client = crate::k8s::fake::client(move |call| match call.route() {
            ("PATCH", path) if path.ends_with("/status") => {
                patched.lock().unwrap().push(call.body["status"].clone());
                (200, answer.clone())
            }
            _ => {
                published.lock().unwrap().push(call.body["reason"].as_str().unwrap_or_default().to_owned());
                (201, call.body)
            }
        });
        let test = fake::context(client);
        let stored: GroupObject = serde_json::from_value(object.clone()).expect("an object");
        for _ in 0..2 {
            report_invalid_object(&stored, "team/web", &test.ctx).await.expect("an action");
        }
        let (patches, reasons) = (patches.lock().unwrap().clone(), reasons.lock().unwrap().clone());
        (patches, reasons, test.ctx.metrics.encode().expect("metrics"))
    }

    /// Otherwise neither `kubectl describe` nor the log says since when the group is ignored, and its metric says that it is
    /// Ready. The other conditions stay, because tools wait for them.
    #[tokio::test]
    async fn invalid_object_has_an_event_and_the_metric_of_its_state() {
        let mut object = object();
        let (patches, reasons, metrics) = passes(&object).await;
        assert_eq!((patches.len(), reasons), (1, vec!["InvalidSpec".to_owned()]));
        let status = "instance_manager_instance_group_status{instancegroup=\"team/web\",status=\"Error\"} 1";
        assert!(metrics.contains(status), "{metrics}");
        let conditions = patches[0]["conditions"].as_array().expect("conditions");
        let shown: Vec<_> =
            conditions.iter().map(|c| format!("{}={}", c["type"], c["status"]).replace('"', "")).collect();
        assert_eq!(shown, ["Ready=False", "BoundariesApplied=True", "Reconciling=False", "Stalled=True"]);
        // The next process finds what this one wrote.
        apply_merge_patch(&mut object["status"], &patches[0]);
        let (patches, reasons, metrics) = passes(&object).await;
        assert_eq!((patches, reasons), (vec![], vec![]));
        assert!(metrics.contains(status), "{metrics}");
    }
}
