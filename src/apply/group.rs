//! Scaling groups.

use super::{Done, Run, Step_, Stopped, gone, ok};
use crate::aws::{AwsErrorKind, NewScalingGroup, TemplatePin};
use crate::plan::{Pin, Step};

impl Run<'_> {
    fn pin(&self, pin: &Pin) -> TemplatePin {
        match pin {
            Pin::Version { template, number } => TemplatePin { id: template.clone(), version: number.to_string() },
            Pin::Made { hash } => {
                let made = self.made.iter().find(|(line, _)| line.contains(hash.as_str()));
                made.map(|(_, pin)| pin.clone()).expect("a plan makes a version before it pins it")
            }
        }
    }

    pub(super) async fn create_group(&self, group: &NewScalingGroup, pin: &Pin) -> Step_ {
        let inventory = self.a.inventory;
        let input = NewScalingGroup { template: self.pin(pin), ..group.clone() };
        let answer = inventory.aws().autoscaling.create_group(&input).await;
        inventory.wrote_group(&group.name);
        match answer {
            Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
                let found = inventory.group(&group.name, std::time::Duration::ZERO).await.map_err(Stopped::Aws)?;
                let ownership: Vec<_> = (input.tags.iter())
                    .filter(|t| crate::provisioner::ownership::KEYS.contains(&t.key.as_str()))
                    .cloned()
                    .collect();
                self.ours(&group.name, error, found.map(|g| g.tags), &ownership)
            }
            other => ok(other),
        }
    }

    /// One that another group refers to as well is not ours alone any more, and stays.
    async fn delete_configuration(&self, name: &str) -> Step_ {
        let answer = self.a.inventory.aws().autoscaling.delete_configuration(name).await;
        self.a.inventory.gone_configuration(name);
        match answer {
            Err(error) if error.kind == AwsErrorKind::InUse => {
                tracing::warn!(group = %self.id.key(), configuration = name, %error, "the launch configuration stays");
                Ok(Done::Yes)
            }
            answer => gone(answer),
        }
    }

    pub(super) async fn scaling_group(&self, step: &Step) -> Step_ {
        let inventory = self.a.inventory;
        let asg = &inventory.aws().autoscaling;
        let (group, answer) = match step {
            Step::UpdateGroup { group, change, pin } => {
                (group, asg.update_group(group, change, pin.as_ref().map(|p| self.pin(p)).as_ref()).await)
            }
            Step::PutTags { group, tags } => (group, asg.put_tags(group, tags).await),
            Step::DeleteTags { group, keys } => (group, asg.delete_tags(group, keys).await),
            Step::SuspendProcesses { group, processes } => (group, asg.suspend_processes(group, processes).await),
            Step::ResumeProcesses { group, processes } => (group, asg.resume_processes(group, processes).await),
            Step::EnableMetrics { group, metrics } => (group, asg.enable_metrics(group, metrics).await),
            Step::DisableMetrics { group, metrics } => (group, asg.disable_metrics(group, metrics).await),
            Step::PutHook { group, hook } => {
                inventory.wrote_hooks(group);
                (group, asg.put_hook(group, hook).await)
            }
            Step::DeleteHook { group, hook } => {
                inventory.wrote_hooks(group);
                (group, asg.delete_hook(group, hook).await)
            }
            Step::PutWarmPool { group, sizes, state } => {
                (group, asg.put_warm_pool(group, sizes, state.as_deref()).await)
            }
            Step::DeleteWarmPool { group } => (group, asg.delete_warm_pool(group).await),
            Step::ReplaceWarmed { group, instance } => (group, asg.set_unhealthy(instance).await),
            Step::DeleteConfiguration { configuration } => return self.delete_configuration(configuration).await,
            Step::DeleteGroup { group } => (group, asg.delete_group(group).await),
            Step::EnterStandby { group, instance, .. } => (group, asg.enter_standby(group, instance).await),
            Step::Terminate { group, instance, decrement, .. } => {
                (group, asg.terminate_instance(instance, *decrement).await)
            }
            other => unreachable!("{} is no step of a scaling group", other.name()),
        };
        inventory.wrote_group(group);
        if let Step::PutHook { .. } | Step::DeleteHook { .. } = step {
            inventory.wrote_hooks(group);
        }
        if let Step::PutWarmPool { .. } | Step::DeleteWarmPool { .. } | Step::ReplaceWarmed { .. } = step {
            inventory.wrote_warm_pool(group);
        }
        let ends = matches!(
            step,
            Step::DeleteGroup { .. }
                | Step::Terminate { .. }
                | Step::DeleteHook { .. }
                | Step::DeleteWarmPool { .. }
                | Step::ReplaceWarmed { .. }
        );
        if ends { gone(answer) } else { ok(answer) }
    }
}
