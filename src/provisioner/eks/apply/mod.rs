//! Applies steps to scaling groups, launch templates and launch configurations.

mod instance_tags;
mod launch_template;
mod warm_pool;

use std::time::Duration;

use crate::apply::{Apply, ApplyRun, StepError, StepOutcome, StepResult, done, ignore_not_found};
use crate::aws::{AwsError, AwsErrorKind, NewScalingGroup, ScalingGroupChange, TemplatePin};
use crate::plan::{EksStep, Pin};
use crate::provisioner::eks::scaling_group::scale_in::would_terminate_nodes;

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
                if change.max.is_some() && would_terminate_unplanned_nodes(run, group, change).await? {
                    return Ok(StepOutcome::Unchanged);
                }
                let pin = pin.as_ref().map(|pin| resolve_pin(run, pin));
                let response = asg.update_group(group, change, pin.as_ref()).await;
                pin.iter().for_each(|pin| record_pin(run, pin, response.as_ref().err()));
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
        // An answer from before the update lacks what the old version launched since.
        if let EksStep::PutWarmPool { .. } | EksStep::DeleteWarmPool { .. } | EksStep::UpdateGroup { .. } = self {
            inventory.invalidate_warm_pool(group);
        }
        let is_deletion =
            matches!(self, EksStep::DeleteGroup { .. } | EksStep::DeleteHook { .. } | EksStep::DeleteWarmPool { .. });
        if is_deletion { ignore_not_found(response) } else { done(response) }
    }
}

/// Whether a smaller `maxSize` would terminate nodes that the plan did not contain: an autoscaler may have launched
/// them since. The next pass plans with them.
async fn would_terminate_unplanned_nodes(
    run: &ApplyRun<'_>,
    group: &str,
    change: &ScalingGroupChange,
) -> Result<bool, StepError> {
    let inventory = run.ctx.inventory;
    let known = inventory.group(group, Duration::MAX).await.map_err(StepError::Aws)?;
    if known.is_some_and(|known| change.max.is_some_and(|max| max >= known.max)) {
        return Ok(false);
    }
    let found = inventory.group(group, Duration::ZERO).await.map_err(StepError::Aws)?;
    if !(run.ctx.request_write)() {
        return Err(StepError::MayNotWrite);
    }
    Ok(found.is_some_and(|found| would_terminate_nodes(&found, change)))
}

fn resolve_pin(run: &ApplyRun<'_>, pin: &Pin) -> TemplatePin {
    match pin {
        Pin::Version { template, number } => TemplatePin { id: template.clone(), version: number.to_string() },
        Pin::Made { hash } => run.created_version(hash).cloned().expect("a plan creates a version before it pins it"),
    }
}

async fn create_scaling_group(run: &ApplyRun<'_>, group: &NewScalingGroup, pin: &Pin) -> StepResult {
    let inventory = run.ctx.inventory;
    let input = NewScalingGroup { template: resolve_pin(run, pin), ..group.clone() };
    let response = inventory.aws().autoscaling.create_group(&input).await;
    inventory.invalidate_group(&group.name);
    match response {
        Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
            let found = inventory.group(&group.name, Duration::ZERO).await.map_err(StepError::Aws)?;
            let ownership: Vec<_> = (input.tags.iter())
                .filter(|t| crate::ownership::OWNERSHIP_TAG_KEYS.contains(&t.key.as_str()))
                .cloned()
                .collect();
            run.adopt_if_owned(&group.name, error, found.map(|g| g.tags), &ownership)
        }
        other => {
            if other.is_ok() {
                inventory.record_created_group(&group.name);
            }
            record_pin(run, &input.template, other.as_ref().err());
            done(other)
        }
    }
}

/// Records whether AWS accepted a launch template version for the scaling group. One that it refuses may have been
/// deleted, and is read again.
fn record_pin(run: &ApplyRun<'_>, pin: &TemplatePin, refusal: Option<&AwsError>) {
    let (inventory, key) = (run.ctx.inventory, run.id.key());
    let Some(error) = refusal else { return inventory.forget_rejected_pin(&key) };
    inventory.record_rejected_pin(&key, pin);
    if matches!(error.kind, AwsErrorKind::Invalid | AwsErrorKind::NotFound | AwsErrorKind::Other) {
        pin.version_number().into_iter().for_each(|number| inventory.remove_versions(&pin.id, &[number]));
    }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};
    use crate::apply::{Applied, Applier, AwsAuthWriter, apply};
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::inventory::{CacheConfig, Inventory};
    use crate::aws::samples::{instance, scaling_group};
    use crate::aws::{
        AwsError, Instance, InstanceState, NewScalingGroup, NewVersion, ScalingGroup, ScalingGroupChange, TemplateData,
        TemplatePin, TemplateVersion, WarmInstance, WarmPhase,
    };
    use crate::index::process_state::ProcessState;
    use crate::k8s::{KubeClient, fake};
    use crate::plan::{Drift, EksStep, Pin, Plan, PlannedStep, StalledReason, TEMPLATE_VERSION, blocked_plan};

    /// Applies all steps to the group `web`, which nothing locks.
    async fn apply_to(inventory: &Inventory, steps: Vec<PlannedStep>) -> Applied {
        let applied = try_apply_to(inventory, steps).await;
        assert!(applied.error.is_none(), "{:?}", applied.error);
        applied
    }

    /// The same, whether or not AWS refuses a step.
    async fn try_apply_to(inventory: &Inventory, steps: Vec<PlannedStep>) -> Applied {
        let unlocked = serde_json::json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "web"}});
        let kube = KubeClient::new(fake::client(move |_| (200, unlocked.clone())), "test");
        let (process_state, aws_auth) = (ProcessState::default(), AwsAuthWriter::default());
        let applier = Applier::for_tests(inventory, &kube, &process_state, &aws_auth);
        let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        let plan = Plan { steps, ..blocked_plan(&id, StalledReason::InvalidSpec, String::new()) };
        apply(&applier, &id, "1", &[], plan).await
    }

    /// A tenant whose new group never joins would read that its nodes may have served before.
    #[tokio::test]
    async fn first_instance_of_a_created_group_counts_as_new() {
        for is_created in [true, false] {
            let aws = Arc::new(FakeAws::default());
            let inventory = Inventory::with_config(aws.aws(), CacheConfig::default());
            if is_created {
                let (template, number) = ("lt-1".to_owned(), 1);
                let group = NewScalingGroup {
                    name: "web".into(),
                    min: 1,
                    max: 1,
                    subnets: vec![],
                    template: TemplatePin { id: template.clone(), version: "1".into() },
                    mixed: None,
                    tags: vec![],
                    hooks: vec![],
                };
                let step = EksStep::CreateGroup { group, pin: Pin::Version { template, number } };
                apply_to(&inventory, vec![PlannedStep::new(step, Vec::new())]).await;
            }
            let instances = vec![instance("i-1")];
            let launched = ScalingGroup { instances, ..scaling_group("web") };
            aws.update(|state| _ = state.groups.insert("web".into(), launched));
            let found = inventory.group("web", std::time::Duration::ZERO).await.expect("an answer").expect("a group");
            assert_eq!(found.instances[0].was_in_service, !is_created, "created by this process: {is_created}");
        }
    }

    /// AWS numbers a version when it creates it. A user who reads `1 -> a new version` has to look for the number.
    #[tokio::test]
    async fn reason_of_a_new_pin_names_the_version_that_was_created() {
        let aws = Arc::new(FakeAws::default());
        let inventory = Inventory::with_config(aws.aws(), CacheConfig::default());
        let content =
            |hash: &str| NewVersion { token: String::new(), description: hash.into(), data: TemplateData::default() };
        aws.update(|state| _ = state.groups.insert("web".into(), scaling_group("web")));
        let put = |hash: &str| {
            let step = EksStep::PutTemplateVersion { template: "lt-1".into(), version: content(hash) };
            PlannedStep::new(step, Vec::new())
        };
        apply_to(&inventory, vec![put("first")]).await;
        let pin = Some(Pin::Made { hash: "second".into() });
        let update = EksStep::UpdateGroup { group: "web".into(), change: ScalingGroupChange::default(), pin };
        let reasons = vec![Drift::new("minSize", 1, 2), Drift::new(TEMPLATE_VERSION, 1, "a new version")];
        let applied = apply_to(&inventory, vec![put("second"), PlannedStep::new(update, reasons)]).await;
        assert_eq!(applied.plan.steps[1].why(), "minSize: 1 -> 2; template version: 1 -> 2");
    }

    /// A user deleted the version that the spec asks for again. The group would be given the deleted one with each
    /// reconcile, until the process ends.
    #[tokio::test]
    async fn version_that_aws_refuses_is_read_again() {
        let failure = |code: &str| AwsError::from_response("AutoScaling", "UpdateAutoScalingGroup", code, "", 400);
        for (code, expected) in [("ValidationError", vec![1]), ("Throttling", vec![1, 2])] {
            let aws = Arc::new(FakeAws::default());
            let version = |number| TemplateVersion {
                template_id: "lt-1".into(),
                number,
                description: None,
                data: TemplateData::default(),
            };
            aws.update(|state| state.versions = vec![version(1)]);
            let inventory = Inventory::with_config(aws.aws(), CacheConfig::default());
            inventory.upsert_version(version(2));
            aws.update(|state| state.failure = Some(failure(code)));
            let pin = Some(Pin::Version { template: "lt-1".into(), number: 2 });
            let step = EksStep::UpdateGroup { group: "web".into(), change: ScalingGroupChange::default(), pin };
            let refused = try_apply_to(&inventory, vec![PlannedStep::new(step, Vec::new())]).await;
            assert!(refused.error.is_some(), "{code}");
            aws.update(|state| state.failure = None);
            let found = inventory.versions("lt-1", &[1, 2]).await.expect("an answer");
            assert_eq!(found.iter().map(|v| v.number).collect::<Vec<_>>(), expected, "{code}");
        }
    }

    /// The plan may rest on an answer that is minutes old. AWS lowers the desired capacity with the maximum, and
    /// terminates nodes of its choice without a drain.
    #[tokio::test]
    async fn smaller_max_size_is_not_set_below_the_nodes_that_run_now() {
        for (nodes, expected) in [(4, 5), (5, 5), (8, 10)] {
            let aws = Arc::new(FakeAws::default());
            let instances = (0..nodes).map(|number| instance(&format!("i-{number}"))).collect();
            let group = ScalingGroup { max: 10, desired: nodes, instances, ..scaling_group("web") };
            aws.update(|state| _ = state.groups.insert("web".into(), group));
            let inventory = Inventory::with_config(aws.aws(), CacheConfig::default());
            let change = ScalingGroupChange { max: Some(5), ..ScalingGroupChange::default() };
            let step = EksStep::UpdateGroup { group: "web".into(), change, pin: None };
            apply_to(&inventory, vec![PlannedStep::new(step, Vec::new())]).await;
            assert_eq!(aws.data.lock().unwrap().groups["web"].max, expected, "{nodes} nodes");
        }
    }

    /// An answer from before the update lacks an instance that the old version launched since. The pool would count as
    /// current, and the instance would stay.
    #[tokio::test]
    async fn warm_pool_is_read_again_once_its_group_launches_another_version() {
        let aws = Arc::new(FakeAws::default());
        aws.update(|state| _ = state.groups.insert("web".into(), scaling_group("web")));
        let inventory = Inventory::with_config(aws.aws(), CacheConfig::default());
        let size = async || inventory.warm_pool("web", std::time::Duration::MAX).await.expect("an answer").len();
        assert_eq!(size().await, 0);
        let warmed = Instance { state: InstanceState::Warmed, ..instance("i-1") };
        aws.update(|state| state.warm_instances = vec![WarmInstance { instance: warmed, phase: WarmPhase::Ready }]);
        let pin = Some(Pin::Version { template: "lt-1".into(), number: 2 });
        let step = EksStep::UpdateGroup { group: "web".into(), change: ScalingGroupChange::default(), pin };
        apply_to(&inventory, vec![PlannedStep::new(step, Vec::new())]).await;
        assert_eq!(size().await, 1);
    }
}
