//! Scaling groups, their instances, lifecycle hooks and activities, as the SDK has them.

use aws_sdk_autoscaling::types as sdk;

use super::convert::{missing, owned_text, required, timestamp};
use super::{mixed_instances, warm_pool};
use crate::api::names::tag;
use crate::aws::{AwsResult, Instance, InstanceState, LifecycleHook, ScalingActivity, ScalingGroup, Tag, TemplatePin};

/// The resource type of scaling groups in tag calls.
pub(super) const RESOURCE_TYPE: &str = "auto-scaling-group";

pub(super) fn sdk_tags(group: &str, tags: &[Tag]) -> Vec<sdk::Tag> {
    let sdk_tag = |one: &Tag| {
        sdk::Tag::builder()
            .resource_id(group)
            .resource_type(RESOURCE_TYPE)
            .key(&one.key)
            .value(&one.value)
            .propagate_at_launch(!tag::NOT_PROPAGATED.contains(&one.key.as_str()))
            .build()
    };
    tags.iter().map(sdk_tag).collect()
}

pub(super) fn template(pin: &TemplatePin) -> sdk::LaunchTemplateSpecification {
    sdk::LaunchTemplateSpecification::builder().launch_template_id(&pin.id).version(&pin.version).build()
}

fn pin(template: &sdk::LaunchTemplateSpecification) -> TemplatePin {
    TemplatePin {
        id: owned_text(template.launch_template_id()),
        version: template.version().unwrap_or("$Default").to_owned(),
    }
}

pub(super) fn hook_specification(hook: &LifecycleHook) -> sdk::LifecycleHookSpecification {
    sdk::LifecycleHookSpecification::builder()
        .lifecycle_hook_name(&hook.name)
        .lifecycle_transition(&hook.transition)
        .default_result(&hook.default_result)
        .heartbeat_timeout(hook.heartbeat_timeout)
        .set_notification_target_arn(hook.notification_arn.clone())
        .set_notification_metadata(hook.metadata.clone())
        .set_role_arn(hook.role_arn.clone())
        .build()
}

pub(super) fn hook(hook: &sdk::LifecycleHook) -> LifecycleHook {
    let non_empty = |value: Option<&str>| value.filter(|v| !v.is_empty()).map(str::to_owned);
    LifecycleHook {
        name: owned_text(hook.lifecycle_hook_name()),
        transition: owned_text(hook.lifecycle_transition()),
        default_result: owned_text(hook.default_result()),
        heartbeat_timeout: hook.heartbeat_timeout().unwrap_or(3600),
        notification_arn: non_empty(hook.notification_target_arn()),
        metadata: non_empty(hook.notification_metadata()),
        role_arn: non_empty(hook.role_arn()),
    }
}

pub(super) fn activity(activity: &sdk::Activity) -> ScalingActivity {
    ScalingActivity {
        status: owned_text(activity.status_code().map(|s| s.as_str())),
        description: owned_text(activity.description()),
        cause: owned_text(activity.cause()),
        zone: activity.details().and_then(zone_of),
        message: owned_text(activity.status_message()),
        started: timestamp(activity.start_time()),
    }
}

/// The zone in the details of an activity, which are a JSON object as text.
fn zone_of(details: &str) -> Option<String> {
    let details: serde_json::Value = serde_json::from_str(details).ok()?;
    details["Availability Zone"].as_str().map(str::to_owned)
}

pub(super) fn group(group: &sdk::AutoScalingGroup) -> AwsResult<ScalingGroup> {
    let operation = "DescribeAutoScalingGroups";
    let size = |value: Option<i32>, field| value.ok_or_else(|| missing("AutoScaling", operation, field));
    let policy = group.mixed_instances_policy();
    let policy_template = policy.and_then(|p| p.launch_template()).and_then(|t| t.launch_template_specification());
    let subnets = group.vpc_zone_identifier().unwrap_or_default();
    Ok(ScalingGroup {
        name: required(group.auto_scaling_group_name(), "AutoScaling", operation, "AutoScalingGroupName")?.to_owned(),
        min: size(group.min_size(), "MinSize")?,
        max: size(group.max_size(), "MaxSize")?,
        desired: size(group.desired_capacity(), "DesiredCapacity")?,
        subnets: sorted(subnets.split(',').map(str::trim).filter(|s| !s.is_empty())),
        template: group.launch_template().or(policy_template).map(pin),
        launch_configuration: group.launch_configuration_name().map(str::to_owned),
        mixed: policy.map(mixed_instances::from_sdk),
        tags: group.tags().iter().map(|t| Tag { key: owned_text(t.key()), value: owned_text(t.value()) }).collect(),
        unpropagated_tags: (group.tags().iter().filter(|t| t.propagate_at_launch() == Some(false)))
            .map(|t| owned_text(t.key()))
            .collect(),
        suspended_processes: sorted(group.suspended_processes().iter().filter_map(|p| p.process_name())),
        suspension_reasons: group.suspended_processes().iter().filter_map(suspension_reason).collect(),
        enabled_metrics: sorted(group.enabled_metrics().iter().filter_map(|m| m.metric())),
        instances: group.instances().iter().map(instance).collect(),
        warm_pool: group.warm_pool_configuration().map(|pool| warm_pool::pool(pool, group.warm_pool_size())),
        deleting: group.status().is_some_and(|s| !s.is_empty()),
        is_deletion_protected: group.deletion_protection() == Some(&sdk::DeletionProtection::PreventAllDeletion),
    })
}

/// A suspended process, and AWS's words on who suspended it and when.
fn suspension_reason(process: &sdk::SuspendedProcess) -> Option<(String, String)> {
    Some((process.process_name()?.to_owned(), process.suspension_reason()?.to_owned()))
}

fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names
}

pub(super) fn instance(instance: &sdk::Instance) -> Instance {
    let lifecycle = instance.lifecycle_state().map(|s| s.as_str()).unwrap_or_default();
    Instance {
        id: owned_text(instance.instance_id()),
        zone: owned_text(instance.availability_zone()),
        instance_type: owned_text(instance.instance_type()),
        state: state(lifecycle),
        waits_in_hook: lifecycle.ends_with(":Wait"),
        is_retained: lifecycle.ends_with(":Retained"),
        healthy: !instance.health_status().is_some_and(|h| h.eq_ignore_ascii_case("unhealthy")),
        template: instance.launch_template().map(pin),
        launch_configuration: instance.launch_configuration_name().map(str::to_owned),
        weight: mixed_instances::parse_weight(instance.weighted_capacity()),
        in_service_since: None,
        was_in_service: false,
        activity_refused_at: None,
    }
}

fn state(state: &str) -> InstanceState {
    match state.split(':').next().unwrap_or_default() {
        "InService" => InstanceState::InService,
        // The instance stays, and counts, while a root volume is replaced. It runs no pods meanwhile.
        "Pending" | "ReplacingRootVolume" | "RootVolumeReplaced" => InstanceState::Pending,
        "Terminating" | "Terminated" => InstanceState::Terminating,
        "EnteringStandby" => InstanceState::EnteringStandby,
        "Standby" => InstanceState::Standby,
        "Warmed" => InstanceState::Warmed,
        _ => InstanceState::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The controller would never remove such tags from the instances again.
    #[test]
    fn tags_about_the_group_stay_off_its_instances() {
        let tags = ["team", tag::SUSPENDED_FOR_SUBNETS].map(|key| Tag { key: key.into(), value: "x".into() });
        let propagated: Vec<_> = sdk_tags("web", &tags).iter().map(|t| t.propagate_at_launch()).collect();
        assert_eq!(propagated, [Some(true), Some(false)]);
    }

    #[test]
    fn retained_instance_is_terminating() {
        let retained = sdk::Instance::builder().lifecycle_state(sdk::LifecycleState::from("Terminating:Retained"));
        let found = instance(&retained.build());
        assert_eq!((found.state, found.is_retained), (InstanceState::Terminating, true));
    }

    #[test]
    fn state_suffixes_are_ignored() {
        assert_eq!(state("Pending:Wait"), InstanceState::Pending);
        assert_eq!(state("Terminating:Proceed"), InstanceState::Terminating);
        assert_eq!(state("Warmed:Terminating:Wait"), InstanceState::Warmed);
        assert_eq!(state("EnteringStandby"), InstanceState::EnteringStandby);
        assert!(state("EnteringStandby").is_standby() && state("Standby").is_standby());
        assert_eq!(state("ReplacingRootVolume:Wait"), InstanceState::Pending);
        assert_eq!(state("Detaching"), InstanceState::Other);
    }

    #[test]
    fn missing_size_is_an_error_and_not_zero() {
        let found = sdk::AutoScalingGroup::builder().auto_scaling_group_name("demo-team-web").min_size(1).max_size(3);
        let error = group(&found.build()).expect_err("the desired capacity is unknown");
        assert!(error.to_string().contains("DesiredCapacity"), "{error}");
    }

    /// Only AWS's words say whether a client suspended Launch, or AWS itself.
    #[test]
    fn suspended_process_keeps_its_reason() {
        let suspended = sdk::SuspendedProcess::builder().process_name("Launch").suspension_reason("Administratively");
        let found = sdk::AutoScalingGroup::builder()
            .auto_scaling_group_name("demo-team-web")
            .min_size(1)
            .max_size(3)
            .desired_capacity(2)
            .suspended_processes(suspended.build())
            .suspended_processes(sdk::SuspendedProcess::builder().process_name("AZRebalance").build());
        let group = group(&found.build()).expect("a group");
        assert_eq!(group.suspended_processes, ["AZRebalance", "Launch"]);
        let reasons = std::collections::BTreeMap::from([("Launch".to_owned(), "Administratively".to_owned())]);
        assert_eq!(group.suspension_reasons, reasons);
    }

    #[test]
    fn mixed_group_uses_the_policy_template() {
        let specification = template(&TemplatePin { id: "lt-1".into(), version: "3".into() });
        let policy_template = sdk::LaunchTemplate::builder().launch_template_specification(specification).build();
        let found = sdk::AutoScalingGroup::builder()
            .auto_scaling_group_name("demo-team-web")
            .min_size(1)
            .max_size(3)
            .desired_capacity(2)
            .vpc_zone_identifier("subnet-b, subnet-a")
            .mixed_instances_policy(sdk::MixedInstancesPolicy::builder().launch_template(policy_template).build())
            .build();
        let group = group(&found).expect("a group");
        assert!(group.mixed.is_some());
        assert_eq!(group.template, Some(TemplatePin { id: "lt-1".into(), version: "3".into() }));
        assert_eq!(group.subnets, ["subnet-a", "subnet-b"]);
    }
}
