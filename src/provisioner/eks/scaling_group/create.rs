//! Creates the scaling group with its suspended processes, metrics and warm pool.

use super::mixed_instances;
use crate::aws::{NewScalingGroup, TemplatePin};
use crate::plan::{EksStep, Phase, Pin, PlanBuilder, waiting};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::recreated::recreated;

/// Adds the steps that create the scaling group, pinned to a launch template version.
pub(crate) fn create_scaling_group(input: &PlanInput, pin: Pin, builder: &mut PlanBuilder) {
    let r = input.resolved;
    let desired = &r.desired;
    let group = NewScalingGroup {
        name: r.names.scaling_group.clone(),
        min: desired.min_size,
        max: desired.max_size,
        subnets: r.subnets.clone(),
        // The applier fills it in from the pin.
        template: TemplatePin { id: String::new(), version: String::new() },
        mixed: mixed_instances::desired_policy(input, None, true),
        tags: r.tags.clone(),
        hooks: desired.lifecycle_hooks.clone(),
    };
    mixed_instances::record_pool(input, group.mixed.as_ref(), builder);
    let name = group.name.clone();
    // The status counts nodes once the scaling group has been observed.
    if input.status.nodes.is_some() {
        let recorded = input.status.active_scaling_group_name.as_deref().filter(|recorded| !recorded.is_empty());
        let deleted = recorded.unwrap_or(&name);
        // Another owner may have taken the name.
        let consequence = if deleted == name { " with new nodes".into() } else { format!(" as {name} with new nodes") };
        let what = format!("the scaling group {deleted}");
        builder.events.push(recreated(&what, "DeleteAutoScalingGroup", &consequence));
    }
    builder.push(EksStep::CreateGroup { group, pin });
    if !desired.suspended_processes.is_empty() {
        builder.push(EksStep::SuspendProcesses {
            group: name.clone(),
            processes: desired.suspended_processes.iter().cloned().collect(),
        });
    }
    if !desired.metrics.is_empty() {
        let metrics = desired.metrics.iter().cloned().collect();
        builder.push(EksStep::EnableMetrics { group: name.clone(), metrics });
    }
    if let Some(sizes) = &desired.warm_pool {
        builder.push(EksStep::PutWarmPool { group: name, sizes: sizes.clone(), state: None, reuse_on_scale_in: None });
    }
    builder.set_outcome_once(waiting(Phase::Creating, "waiting for the first nodes"));
}
