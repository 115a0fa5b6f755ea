//! What the target of a roll-out would do to a group that has another content.

use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use serde_json::Value;

use super::decide::{Decided, namespace_texts};
use crate::api::InstanceGroup;
use crate::api::names::condition;
use crate::controller::planner::{GroupContext, Planner, Planning, merge_spec};
use crate::controller::stores::Stores;
use crate::plan::Outcome;
use crate::provisioner::{PlanContext, group_id};
use crate::rollout::{Choice, Forecast, RolloutView, Stored};

/// Decides which content a group has, and finds out before what the target would do to the group, if that matters and is
/// not known. `None` while its Namespace is unknown.
pub(crate) async fn decide_with_forecast(
    group: &InstanceGroup,
    view: &RolloutView,
    stores: &Stores,
    planner: &Planner,
    now: Timestamp,
) -> Option<Decided> {
    let namespace = stores.namespaces.get(&ObjectRef::new(&group.namespace().unwrap_or_default()))?;
    let (texts, timing) = (namespace_texts(&namespace), &planner.settings.timing);
    let decide = || stores.decide(group, view, &texts, timing, now, |_, _| {});
    let decided = decide();
    let (own, matters) = match &decided.choice {
        Choice::Use { content, .. } => {
            (content.clone(), content.as_ref().is_some_and(|own| own.hash != view.target.hash))
        }
        // A new leader knows no forecast: a group that cannot use the target must not take it because its wave is open.
        Choice::Take(take) => (None, take.record.wave.is_some()),
    };
    if !matters || decided.forecast != Forecast::Unknown || group.metadata.deletion_timestamp.is_some() {
        return Some(decided);
    }
    let forecast = forecast(group, own.as_ref(), view, stores, planner, now).await;
    stores.rollout.set_forecast(&group_id(group).key(), decided.inputs, forecast);
    Some(decide())
}

/// What the target would do to a group that has another content. It reads as a reconcile does, and writes nothing.
async fn forecast(
    group: &InstanceGroup,
    own: Option<&Stored>,
    view: &RolloutView,
    stores: &Stores,
    planner: &Planner,
    now: Timestamp,
) -> Forecast {
    let target = GroupContext { lock: None, ..stores.group_context_with(group, planner, &view.target).await };
    if let Some(own) = own {
        let own = GroupContext { lock: None, ..stores.group_context_with(group, planner, own).await };
        if has_same_effect(group, &own, &target) {
            return Forecast::Untouched;
        }
    }
    let max_age = planner.settings.resync_period.mul_f64(0.5);
    match planner.plan(group, &target, max_age, now).await {
        Ok(planning) => forecast_of(group, &planning, planner, now),
        // What AWS does not answer is not known.
        Err(_) => Forecast::Unknown,
    }
}

fn has_same_effect(group: &InstanceGroup, own: &GroupContext, target: &GroupContext) -> bool {
    let id = group_id(group);
    let policy =
        |context: &GroupContext| context.active_boundaries.boundaries.as_ref().map(|found| found.policy.clone());
    match (merge_spec(group, &id, own), merge_spec(group, &id, target)) {
        (Ok((own_spec, _)), Ok((target_spec, _))) => {
            own_spec.spec == target_spec.spec
                && own_spec.annotations == target_spec.annotations
                && (own.images == target.images || !uses_alias(&target_spec.spec))
                && policy(own) == policy(target)
        }
        _ => false,
    }
}

/// Whether the image of a merged spec is one that a revision decides.
fn uses_alias(spec: &Value) -> bool {
    let image = spec.pointer("/eks/configuration/image").and_then(Value::as_str).unwrap_or_default();
    !image.is_empty() && !image.to_ascii_lowercase().starts_with("ami-")
}

/// What a plan that was made with the target means.
fn forecast_of(group: &InstanceGroup, planning: &Planning, planner: &Planner, now: Timestamp) -> Forecast {
    let rejected = planning.plan.condition_updates.iter();
    let rejected = rejected.rev().find(|update| update.condition_type == condition::FIELDS_REJECTED && update.status);
    match (&planning.plan.outcome, rejected) {
        (_, Some(update)) if planning.failure_reason.is_some() => {
            return Forecast::Blocked { reason: update.reason.clone(), message: update.message.clone() };
        }
        (Outcome::Blocked { reason, message, .. }, _) if planning.failure_reason.is_some() => {
            return Forecast::Blocked { reason: reason.to_string(), message: message.clone() };
        }
        _ => {}
    }
    let Some(snapshot) = &planning.snapshot else { return Forecast::Unknown };
    let status = group.status.clone().unwrap_or_default();
    let context = PlanContext {
        status: &status,
        lock: None,
        hold: None,
        allowance: None,
        settings: &planner.settings,
        ineffective_writes: &Default::default(),
        refusal: &Default::default(),
        now,
    };
    let projection = snapshot.simulate(&planning.plan, &context);
    // The next nodes of a group without nodes would be the first with the new content: they wait for the wave as well.
    let is_empty = snapshot.has_nodes() && status.nodes.as_ref().is_none_or(|nodes| nodes.desired == 0);
    match projection.replacements.len() + projection.scale_in {
        0 if !is_empty => Forecast::InPlace,
        nodes => Forecast::Rotates(nodes),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A new image of AWS must not write to groups whose image it does not decide.
    #[test]
    fn only_groups_that_name_an_alias_follow_it() {
        let eks = |image: &str| json!({"eks": {"configuration": {"image": image}}});
        assert!(uses_alias(&eks("latest")) && uses_alias(&eks("ssm://release-1")));
        assert!(!uses_alias(&eks("ami-1")) && !uses_alias(&json!({"eks-managed": {}})));
    }
}
