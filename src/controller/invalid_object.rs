//! A stored object that does not match its schema: it is reported, and its rotation stops.

use jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};

use super::apply_plan::apply_plan;
use super::context::{Context, Error, event_target, publish_event};
use super::{report, requeue};
use crate::api::names::fail_reason;
use crate::api::{GroupObject, InstanceGroup, InstanceGroupSpec, group_id, rfc3339};
use crate::plan::{Reason, blocked_plan};
use crate::telemetry::metrics::ReconcileResult;

/// Reports a stored object that cannot be decoded, once per generation. Other groups are not affected.
pub(super) async fn report_invalid_object(stored: &GroupObject, key: &str, ctx: &Context) -> Result<Action, Error> {
    ctx.metrics.record_reconcile(key, ReconcileResult::Failed(fail_reason::GET_REQUEST));
    ctx.metrics.set_group_stalled(key, Some(Reason::InvalidSpec.to_string()));
    let generation = stored.meta().generation;
    if !ctx.stores.is_reported(key, generation) {
        let patch = report::invalid_object_patch(generation, &rfc3339(Timestamp::now()));
        let (namespace, name) = (stored.namespace().unwrap_or_default(), stored.name_any());
        let version = stored.resource_version().unwrap_or_default();
        ctx.planner.kube.patch_status(&namespace, &name, &version, patch).await.map_err(Error::Status)?;
        ctx.stores.set_reported(key, generation);
    }
    stop_invalid_rotation(stored, ctx).await
}

/// Stops the rotation of an object that cannot be decoded. It is repeated until no node has a record of the group.
async fn stop_invalid_rotation(stored: &GroupObject, ctx: &Context) -> Result<Action, Error> {
    let (planner, now) = (&ctx.planner, Timestamp::now());
    let Err(invalid) = &stored.0 else { return Ok(Action::await_change()) };
    let uid = stored.uid().unwrap_or_default();
    let Some(status) = invalid.status.clone().filter(|_| !planner.node_index.with_records_of(&uid).is_empty()) else {
        return Ok(Action::await_change());
    };
    let metadata = invalid.metadata.clone();
    let group = InstanceGroup { metadata, spec: InstanceGroupSpec::default(), status: Some(status.clone()) };
    let (id, context) = (group_id(&group), ctx.stores.group_context(&group, planner).await);
    let observer = planner.observer(&context, requeue::max_cache_age(planner.settings.timing.poll_interval), now);
    let rejected = blocked_plan(&id, Reason::InvalidSpec, report::INVALID_OBJECT.to_owned());
    let plan = planner.stop_rotation(&id, &status, &context, &observer, rejected).await;
    if let Some(applied) = apply_plan(&group, plan, "", true, ctx, now).await {
        for event in &report::report(&status, &applied, None, &rfc3339(now)).step_events {
            publish_event(&event_target(&group.metadata), event, ctx).await;
        }
    }
    Ok(Action::requeue(planner.settings.timing.poll_interval.unsigned_abs()))
}
