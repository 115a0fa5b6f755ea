//! Applies steps to scaling groups, launch templates and launch configurations.

mod instance_tags;
mod launch_template;
mod warm_pool;

use crate::apply::{Apply, ApplyRun, StepError, StepOutcome, StepResult, done, ignore_not_found};
use crate::aws::{AwsErrorKind, NewScalingGroup, TemplatePin};
use crate::plan::{EksStep, Pin};

impl Apply for EksStep {
    async fn apply(&self, run: &mut ApplyRun<'_>) -> StepResult {
        let inventory = run.ctx.inventory;
        let asg = &inventory.aws().autoscaling;
        let (group, response) = match self {
            EksStep::CreateTemplate(input) => return launch_template::create(run, input).await,
            EksStep::PutTemplateVersion { template, version } => {
                return launch_template::create_version(run, template, version).await;
            }
            EksStep::DeleteTemplateVersions { template, numbers } => {
                return launch_template::delete_versions(run, template, numbers).await;
            }
            EksStep::DeleteTemplate { template } => return launch_template::delete(run, template).await,
            EksStep::TagTemplate { template, tags } => return launch_template::tag(run, template, tags).await,
            EksStep::CreateGroup { group, pin } => return create_scaling_group(run, group, pin).await,
            EksStep::UpdateGroup { group, change, pin } => {
                let pin = pin.as_ref().map(|pin| resolve_pin(run, pin));
                let response = asg.update_group(group, change, pin.as_ref()).await;
                pin.iter().for_each(|pin| record_pin(run, pin, response.is_err()));
                (group, response)
            }
            EksStep::TagInstances { group, set, remove } => {
                return instance_tags::change(run, group, set, remove).await;
            }
            EksStep::PutTags { group, tags } => (group, asg.put_tags(group, tags).await),
            EksStep::DeleteTags { group, keys } => (group, asg.delete_tags(group, keys).await),
            EksStep::SuspendProcesses { group, processes } => (group, asg.suspend_processes(group, processes).await),
            EksStep::ResumeProcesses { group, processes } => (group, asg.resume_processes(group, processes).await),
            EksStep::EnableMetrics { group, metrics } => (group, asg.enable_metrics(group, metrics).await),
            EksStep::DisableMetrics { group, metrics } => (group, asg.disable_metrics(group, metrics).await),
            EksStep::PutHook { group, hook } => {
                inventory.invalidate_hooks(group);
                (group, asg.put_hook(group, hook).await)
            }
            EksStep::DeleteHook { group, hook } => {
                inventory.invalidate_hooks(group);
                (group, asg.delete_hook(group, hook).await)
            }
            EksStep::PutWarmPool { group, sizes, state, reuse_on_scale_in } => {
                (group, asg.put_warm_pool(group, sizes, state.as_deref(), *reuse_on_scale_in).await)
            }
            EksStep::DeleteWarmPool { group } => (group, asg.delete_warm_pool(group).await),
            EksStep::ReplaceWarmInstance { group, instance } => return warm_pool::replace(run, group, instance).await,
            EksStep::DeleteConfiguration { configuration } => {
                return delete_launch_configuration(run, configuration).await;
            }
            EksStep::DeleteGroup { group } => (group, asg.delete_group(group).await),
        };
        inventory.invalidate_group(group);
        if let EksStep::PutHook { .. } | EksStep::DeleteHook { .. } = self {
            inventory.invalidate_hooks(group);
        }
        if let EksStep::PutWarmPool { .. } | EksStep::DeleteWarmPool { .. } = self {
            inventory.invalidate_warm_pool(group);
        }
        let is_deletion =
            matches!(self, EksStep::DeleteGroup { .. } | EksStep::DeleteHook { .. } | EksStep::DeleteWarmPool { .. });
        if is_deletion { ignore_not_found(response) } else { done(response) }
    }
}

fn resolve_pin(run: &ApplyRun<'_>, pin: &Pin) -> TemplatePin {
    match pin {
        Pin::Version { template, number } => TemplatePin { id: template.clone(), version: number.to_string() },
        Pin::Made { hash } => {
            let created = run.created_versions.iter().find(|(description, _)| description.contains(hash.as_str()));
            created.map(|(_, pin)| pin.clone()).expect("a plan creates a version before it pins it")
        }
    }
}

async fn create_scaling_group(run: &ApplyRun<'_>, group: &NewScalingGroup, pin: &Pin) -> StepResult {
    let inventory = run.ctx.inventory;
    let input = NewScalingGroup { template: resolve_pin(run, pin), ..group.clone() };
    let response = inventory.aws().autoscaling.create_group(&input).await;
    inventory.invalidate_group(&group.name);
    match response {
        Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
            let found = inventory.group(&group.name, std::time::Duration::ZERO).await.map_err(StepError::Aws)?;
            let ownership: Vec<_> = (input.tags.iter())
                .filter(|t| crate::ownership::OWNERSHIP_TAG_KEYS.contains(&t.key.as_str()))
                .cloned()
                .collect();
            run.adopt_if_owned(&group.name, error, found.map(|g| g.tags), &ownership)
        }
        other => {
            record_pin(run, &input.template, other.is_err());
            done(other)
        }
    }
}

/// Records whether AWS accepted a launch template version for the scaling group.
fn record_pin(run: &ApplyRun<'_>, pin: &TemplatePin, is_refused: bool) {
    let (inventory, key) = (run.ctx.inventory, run.id.key());
    if is_refused { inventory.record_refused_pin(&key, pin) } else { inventory.forget_refused_pin(&key) }
}

/// Deletes a launch configuration. One that another scaling group uses is kept, which is not an error.
async fn delete_launch_configuration(run: &ApplyRun<'_>, name: &str) -> StepResult {
    let response = run.ctx.inventory.aws().autoscaling.delete_launch_configuration(name).await;
    run.ctx.inventory.remove_launch_configuration(name);
    match response {
        Err(error) if error.kind == AwsErrorKind::InUse => {
            tracing::warn!(group = %run.id.key(), configuration = name, %error, "launch configuration is still in use, not deleted");
            Ok(StepOutcome::Applied)
        }
        response => ignore_not_found(response),
    }
}
