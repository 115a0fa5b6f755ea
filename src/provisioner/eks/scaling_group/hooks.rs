//! Lifecycle hooks of the scaling group.
//!
//! PutLifecycleHook changes a hook in place, but keeps the optional fields that the call leaves out. A hook that loses
//! one is therefore deleted and created again. DeleteLifecycleHook completes the lifecycle actions of the hook: AWS
//! terminates a launching instance, and no longer waits with the termination of another. So a hook is kept while an
//! instance of the group or of its warm pool waits in a hook of its transition. It is also kept while a lock is set.

use crate::api::{InstanceGroupStatus, ManagedAttributes};
use crate::aws::{InstanceState, LifecycleHook, ScalingGroup, WarmPhase};
use crate::plan::{Drift, EksStep, Outcome, Phase, PlanBuilder, waiting};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::launch_template::drift::{drops_fields, hook_drift};
use crate::provisioner::eks::observed::ObservedState;
use crate::provisioner::eks::resolve::ResolvedGroup;
use crate::provisioner::recreated::{recreated, was_ready};

/// Sets hooks that differ, and deletes those that only the controller had set. AWS allows 50 hooks, so room for new ones
/// is made first.
pub(crate) fn plan_hooks(
    input: &PlanInput,
    group: &ScalingGroup,
    managed: &ManagedAttributes,
    builder: &mut PlanBuilder,
) {
    let Some(present) = &input.observed.lifecycle_hooks else { return };
    let delete = |hook: &LifecycleHook| EksStep::DeleteHook { group: group.name.clone(), hook: hook.name.clone() };
    let may_end = |hook: &LifecycleHook| blocker(input, group, hook).is_none();
    for hook in removed_hooks(input.resolved, input.observed, managed).filter(|hook| may_end(hook)) {
        let reasons = vec![Drift::new(format!("lifecycleHooks[{}]", hook.name), "present", "")];
        builder.push_with_reasons(delete(hook), reasons);
    }
    for hook in &input.resolved.desired.lifecycle_hooks {
        let found = present.iter().find(|h| h.name == hook.name);
        if found.is_none() && managed.hooks.contains(&hook.name) && was_ready(input.status) {
            let what = format!("the lifecycle hook {}", hook.name);
            builder.events.push(recreated(&what, "DeleteLifecycleHook", ""));
        }
        let reasons = match found {
            None => vec![Drift::new(format!("lifecycleHooks[{}]", hook.name), "", "present")],
            Some(found) => hook_drift(found, hook),
        };
        if let Some(found) = found.filter(|found| ends_actions(found, hook)) {
            if !may_end(found) {
                continue;
            }
            if drops_fields(found, hook) {
                builder.push(delete(hook));
            }
        }
        if !reasons.is_empty() {
            builder.push_with_reasons(EksStep::PutHook { group: group.name.clone(), hook: hook.clone() }, reasons);
        }
    }
}

/// Reports hooks that are not removed or changed yet, when nothing else decides the outcome.
pub(crate) fn report_pending(input: &PlanInput, group: &ScalingGroup, builder: &mut PlanBuilder) {
    let managed = input.status.managed.clone().unwrap_or_default();
    let mut ending = ending_hooks(input.resolved, input.observed, &managed);
    if let Some(outcome) = ending.find_map(|hook| blocker(input, group, hook)) {
        builder.set_outcome_once(outcome);
    }
}

/// Whether the spec ends lifecycle actions of a hook. The instances of the warm pool must then be known.
pub(crate) fn ends_hook(resolved: &ResolvedGroup, state: &ObservedState, status: &InstanceGroupStatus) -> bool {
    let managed = status.managed.clone().unwrap_or_default();
    ending_hooks(resolved, state, &managed).next().is_some()
}

/// The hooks whose lifecycle actions the spec ends.
fn ending_hooks<'a>(
    resolved: &'a ResolvedGroup,
    state: &'a ObservedState,
    managed: &'a ManagedAttributes,
) -> impl Iterator<Item = &'a LifecycleHook> + 'a {
    let changed = state.lifecycle_hooks.iter().flatten().filter(|found| {
        let desired = resolved.desired.lifecycle_hooks.iter().find(|hook| hook.name == found.name);
        desired.is_some_and(|hook| ends_actions(found, hook))
    });
    removed_hooks(resolved, state, managed).chain(changed)
}

/// The hooks that the controller set and the spec no longer has.
fn removed_hooks<'a>(
    resolved: &'a ResolvedGroup,
    state: &'a ObservedState,
    managed: &'a ManagedAttributes,
) -> impl Iterator<Item = &'a LifecycleHook> + 'a {
    let is_desired =
        |hook: &LifecycleHook| resolved.desired.lifecycle_hooks.iter().any(|desired| desired.name == hook.name);
    let present = state.lifecycle_hooks.iter().flatten();
    present.filter(move |hook| managed.hooks.contains(&hook.name) && !is_desired(hook))
}

/// Whether the change from one hook to the other ends the lifecycle actions of the first.
fn ends_actions(from: &LifecycleHook, to: &LifecycleHook) -> bool {
    drops_fields(from, to) || from.transition != to.transition
}

/// Why the lifecycle actions of this hook must not end now: instances wait in it, or a lock is set.
fn blocker(input: &PlanInput, group: &ScalingGroup, hook: &LifecycleHook) -> Option<Outcome> {
    let name = &hook.name;
    if let Some(lock) = input.lock {
        let message = format!("the lifecycle hook {name} is outdated; its removal is blocked by {lock}");
        return Some(Outcome::Locked { message });
    }
    // AWS does not report which hook of a transition an instance waits in.
    let (state, phase) = match hook.transition.as_str() {
        "autoscaling:EC2_INSTANCE_LAUNCHING" => (InstanceState::Pending, WarmPhase::Pending),
        _ => (InstanceState::Terminating, WarmPhase::Leaving),
    };
    let warm = match (&group.warm_pool, &input.observed.warm_instances) {
        (Some(_), None) => {
            let message = format!(
                "the lifecycle hook {name} is outdated; waiting for AWS to list the instances of the warm pool"
            );
            return Some(waiting(Phase::Modifying, message));
        }
        (_, warm) => warm.iter().flatten().filter(|w| w.phase == phase).map(|w| &w.instance),
    };
    let waits = group.instances.iter().filter(|i| i.state == state).chain(warm).filter(|i| i.waits_in_hook);
    let waits: Vec<_> = waits.map(|i| i.id.as_str()).collect();
    (!waits.is_empty()).then(|| {
        let message = format!(
            "the lifecycle hook {name} is outdated, but its removal would end pending lifecycle actions; the controller keeps it until those of {} are completed or time out",
            waits.join(", ")
        );
        waiting(Phase::Modifying, message)
    })
}
