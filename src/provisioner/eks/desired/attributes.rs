//! Parses the attributes of the scaling group: tags, hooks, suspended processes, metrics and the warm pool.

use std::collections::{BTreeMap, BTreeSet};

use super::mixed_instances::MixedInstances;
use super::types::DesiredSpec;
use crate::api::names::tag;
use crate::api::spec_error::{SpecError, SpecErrors, non_empty};
use crate::api::{EksConfiguration, EksSpec, LifecycleTransition};
use crate::aws::{LifecycleHook, Tag, TagSpecification, WarmSizes};
use crate::provisioner::eks::names::{reserved_tag, reserved_tag_at_launch};
use crate::provisioner::eks::user_data::OsFamily;
use crate::provisioner::limits;

/// All processes of a scaling group that can be suspended (API reference, SuspendProcesses).
pub(crate) const PROCESSES: &[&str] = &[
    "AZRebalance",
    "AddToLoadBalancer",
    "AlarmNotification",
    "HealthCheck",
    "InstanceRefresh",
    "Launch",
    "ReplaceUnhealthy",
    "ScheduledActions",
    "Terminate",
];

/// All group metrics (API reference, EnableMetricsCollection).
pub(crate) const METRICS: &[&str] = &[
    "GroupAndWarmPoolDesiredCapacity",
    "GroupAndWarmPoolTotalCapacity",
    "GroupDesiredCapacity",
    "GroupInServiceCapacity",
    "GroupInServiceInstances",
    "GroupMaxSize",
    "GroupMinSize",
    "GroupPendingCapacity",
    "GroupPendingInstances",
    "GroupStandbyCapacity",
    "GroupStandbyInstances",
    "GroupTerminatingCapacity",
    "GroupTerminatingInstances",
    "GroupTotalCapacity",
    "GroupTotalInstances",
    "WarmPoolDesiredCapacity",
    "WarmPoolMinSize",
    "WarmPoolPendingCapacity",
    "WarmPoolTerminatingCapacity",
    "WarmPoolTotalCapacity",
    "WarmPoolWarmedCapacity",
];

pub(super) fn tags(errors: &mut SpecErrors, cluster: &str, field: &str, given: &[crate::api::Tag]) -> Vec<Tag> {
    checked_tags(errors, field, given, |key| reserved_tag(key, cluster))
}

/// The tags of a list; `reserved` gives the reason why a key may not be set.
fn checked_tags(
    errors: &mut SpecErrors,
    field: &str,
    given: &[crate::api::Tag],
    reserved: impl Fn(&str) -> Option<&'static str>,
) -> Vec<Tag> {
    let mut tags = BTreeMap::new();
    for (i, tag) in given.iter().enumerate() {
        let (key, value) = (tag.key.clone().unwrap_or_default(), tag.value.clone().unwrap_or_default());
        let path = format!("{field}[{i}].key");
        if key.is_empty() || key.chars().count() > 128 {
            errors.push_invalid(&path, &key, "is not a valid tag key", "use 1 to 128 characters");
        }
        if let Some(why) = reserved(&key) {
            errors.push_invalid(&path, &key, format!("is a reserved tag: {why}"), "use another key");
        }
        if value.chars().count() > 256 {
            errors.push_invalid(&format!("{field}[{i}].value"), "", "is longer than 256 characters", "shorten it");
        }
        tags.insert(key, value);
    }
    if tags.len() > 40 {
        errors.push_invalid(
            field,
            tags.len(),
            "is more than the number of tags that a scaling group can hold besides the controller's",
            "use at most 40",
        );
    }
    tags.into_iter().map(|(key, value)| Tag { key, value }).collect()
}

/// Resources that a launch template can tag (EC2 API reference, LaunchTemplateTagSpecificationRequest).
const TAGGED_AT_LAUNCH: [&str; 4] = ["instance", "volume", "network-interface", "spot-instances-request"];

pub(super) fn tag_specifications(errors: &mut SpecErrors, c: &EksConfiguration) -> Vec<TagSpecification> {
    for (i, given) in c.tag_specifications.iter().flatten().enumerate() {
        let kind = given.resource_type.as_deref().unwrap_or_default();
        if given.tags.as_ref().is_some_and(|tags| !tags.is_empty()) && !TAGGED_AT_LAUNCH.contains(&kind) {
            let remedy = format!("use {}", TAGGED_AT_LAUNCH.join(", "));
            let rule = "is not a resource that EC2 tags when it launches an instance";
            errors.push_invalid(&format!("tagSpecifications[{i}].resourceType"), kind, rule, remedy);
        }
    }
    let mut specifications: Vec<_> = (c.tag_specifications.iter().flatten().enumerate())
        .map(|(i, s)| TagSpecification {
            resource_type: s.resource_type.clone().unwrap_or_default(),
            tags: checked_tags(
                errors,
                &format!("tagSpecifications[{i}].tags"),
                s.tags.as_deref().unwrap_or_default(),
                |key| reserved_tag_at_launch(key, c.cluster_name.as_deref().unwrap_or_default()),
            ),
        })
        .filter(|s| !s.tags.is_empty())
        .collect();
    specifications.sort_by(|a, b| a.resource_type.cmp(&b.resource_type));
    specifications
}

pub(super) fn known_names(
    errors: &mut SpecErrors,
    field: &str,
    given: &Option<Vec<String>>,
    known: &[&str],
    all: &[&str],
) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for name in given.iter().flatten() {
        if name.eq_ignore_ascii_case("all") {
            found.extend(all.iter().map(|n| (*n).to_owned()));
        } else if let Some(known) = known.iter().find(|k| k.eq_ignore_ascii_case(name)) {
            found.insert((*known).to_owned());
        } else {
            errors.push_invalid(
                field,
                name,
                "is not known to Auto Scaling",
                format!("use all, or some of {}", known.join(", ")),
            );
        }
    }
    found
}

/// Parses the warm pool. Without `maxSize` it is 0, and the pool has its `minSize`.
pub(super) fn warm_pool(
    errors: &mut SpecErrors,
    eks: &EksSpec,
    c: &EksConfiguration,
    mixed: Option<&MixedInstances>,
) -> Option<WarmSizes> {
    let pool = eks.warm_pool.as_ref()?;
    let (min, max) = (pool.min_size.unwrap_or(0), pool.max_size.unwrap_or(0));
    let mut wrong = |field: &str, value: i64, least: i64, remedy: &str| {
        if !(least..=10_000).contains(&value) {
            let path = format!("spec.eks.warmPool.{field}");
            errors.push_error(SpecError::invalid(&path, value, "is not a valid size of a warm pool", remedy));
        }
    };
    wrong("minSize", min, 0, "use a number from 0 to 10000");
    wrong("maxSize", max, -1, "use a number from 0 to 10000, or -1 for the group's maxSize");
    let others = [
        ("spotPrice", mixed.is_none() && non_empty(&c.spot_price).is_some(), "remove one of the two"),
        (
            "mixedInstancesPolicy.spotRatio",
            mixed.is_some_and(MixedInstances::uses_spot),
            "set spotRatio to 0, or remove the warm pool",
        ),
        (
            "mixedInstancesPolicy.instanceTypes[].weight",
            mixed.is_some_and(MixedInstances::is_weighted),
            "remove the weights, or remove the warm pool",
        ),
    ];
    for (other, _, remedy) in others.into_iter().filter(|(_, is_given, _)| *is_given) {
        let rule = format!(
            "cannot be combined with spec.eks.configuration.{other}: AWS supports no warm pool for such groups"
        );
        errors.push_error(SpecError::invalid("spec.eks.warmPool", "", rule, remedy));
    }
    Some(WarmSizes { min: min.clamp(0, 10_000) as i32, max: (max >= 0).then_some(max.min(10_000) as i32) })
}

pub(super) fn hooks(errors: &mut SpecErrors, c: &EksConfiguration) -> Vec<LifecycleHook> {
    let mut hooks = Vec::<LifecycleHook>::new();
    for (i, hook) in c.lifecycle_hooks.iter().flatten().enumerate() {
        let path = |field: &str| format!("lifecycleHooks[{i}].{field}");
        let name = hook.name.clone().unwrap_or_default();
        match name.as_str() {
            "" => errors.push_invalid(&path("name"), "", "is required", "name the hook"),
            name => limits::HOOK_NAME.check(errors, &path("name"), name),
        }
        if let Some(metadata) = non_empty(&hook.metadata) {
            limits::HOOK_METADATA.check(errors, &path("metadata"), &metadata);
        }
        for (field, arn) in [("notificationArn", &hook.notification_arn), ("roleArn", &hook.role_arn)] {
            if let Some(arn) = non_empty(arn) {
                limits::HOOK_ARN.check(errors, &path(field), &arn);
            }
        }
        let lifecycle = hook.lifecycle.clone().unwrap_or_default();
        let transition = match LifecycleTransition::parse(&lifecycle) {
            Some(LifecycleTransition::Launch) => "autoscaling:EC2_INSTANCE_LAUNCHING",
            Some(LifecycleTransition::Terminate) => "autoscaling:EC2_INSTANCE_TERMINATING",
            None => {
                errors.push_invalid(
                    &path("lifecycle"),
                    &lifecycle,
                    "is not a lifecycle transition",
                    "use launch or terminate",
                );
                ""
            }
        };
        let timeout = hook.heartbeat_timeout.filter(|t| *t != 0).unwrap_or(300);
        if !(30..=7200).contains(&timeout) {
            errors.push_invalid(&path("heartbeatTimeout"), timeout, "is out of range", "use 30 to 7200 seconds");
        }
        check_notification(errors, &path, non_empty(&hook.notification_arn), non_empty(&hook.role_arn));
        if hooks.iter().any(|other| other.name == name) {
            errors.push_invalid(
                &path("name"),
                &name,
                "is also the name of another hook",
                "give each hook a unique name",
            );
        }
        let continues = hook.default_result.as_deref().is_some_and(|r| r.eq_ignore_ascii_case("continue"));
        hooks.push(LifecycleHook {
            name,
            transition: transition.into(),
            default_result: if continues { "CONTINUE" } else { "ABANDON" }.into(),
            heartbeat_timeout: timeout.clamp(30, 7200) as i32,
            notification_arn: non_empty(&hook.notification_arn),
            metadata: non_empty(&hook.metadata),
            role_arn: non_empty(&hook.role_arn),
        });
    }
    hooks
}

/// Checks the notification target of a hook and the role that Auto Scaling uses for it.
fn check_notification(
    errors: &mut SpecErrors,
    path: &dyn Fn(&str) -> String,
    target_arn: Option<String>,
    role_arn: Option<String>,
) {
    let Some(arn) = target_arn else {
        if let Some(role) = role_arn {
            let remedy = "set notificationArn or remove roleArn";
            errors.push_invalid(&path("roleArn"), role, "needs a notificationArn", remedy);
        }
        return;
    };
    match notification_service(&arn) {
        None => errors.push_invalid(
            &path("notificationArn"),
            arn,
            "is not an SNS topic, SQS queue or Lambda function",
            "use an ARN such as arn:aws:sqs:us-west-2:123456789012:nodes",
        ),
        Some("lambda") => {}
        Some(_) if role_arn.is_some() => {}
        Some(_) => errors.push_invalid(
            &path("notificationArn"),
            arn,
            "needs a roleArn: Auto Scaling notifies topics and queues only with a role that may write to them",
            "set roleArn, or remove notificationArn and listen to Amazon EventBridge, which needs neither",
        ),
    }
}

/// The service of a notification target (Amazon EC2 Auto Scaling User Guide, "Prepare to add a lifecycle hook").
fn notification_service(arn: &str) -> Option<&str> {
    let parts: Vec<_> = arn.splitn(6, ':').collect();
    let ["arn", partition, service @ ("sns" | "sqs" | "lambda"), region, account, name] = parts[..] else {
        return None;
    };
    let named = if service == "lambda" { name.strip_prefix("function:").unwrap_or_default() } else { name };
    let whole = [region, account, named].iter().all(|part| !part.is_empty());
    (whole && partition.starts_with("aws")).then_some(service)
}

/// Adds the tags that the cluster autoscaler reads for a group without nodes, and checks all tags against the limits of AWS (Amazon EC2
/// Auto Scaling User Guide, "Tag Auto Scaling groups and instances": 50 tags, 128 characters in a key).
pub(super) fn with_autoscaler_tags(
    errors: &mut SpecErrors,
    mut desired: DesiredSpec,
    c: &EksConfiguration,
) -> DesiredSpec {
    if !desired.has_autoscaler_tags {
        return desired;
    }
    let windows = desired.os_family == OsFamily::Windows;
    let prefix = tag::CLUSTER_AUTOSCALER_PREFIX;
    let mut add = |field: &str, key: String, value: &str| {
        let tag = Tag { key: format!("{prefix}{key}"), value: value.into() };
        let length = tag.key.chars().count();
        if length > 128 {
            let given = key.splitn(3, '/').last().unwrap_or_default();
            let rule = format!(
                "becomes a tag for the cluster autoscaler whose key has {length} characters, but AWS allows 128"
            );
            errors.push_invalid(field, given, rule, "shorten it, or remove the annotation cluster-autoscaler-enabled");
        }
        desired.tags.push(tag);
    };
    add("clusterName", desired.cluster.clone(), "owned");
    add("clusterName", "enabled".into(), "true");
    add("labels", "node-template/label/kubernetes.io/os".into(), if windows { "windows" } else { "linux" });
    if windows {
        add("labels", "node-template/label/kubernetes.io/arch".into(), "amd64");
    }
    for (key, value) in &desired.labels {
        add("labels", format!("node-template/label/{key}"), value);
    }
    for (i, taint) in desired.taints.iter().enumerate() {
        let value = format!("{}:{}", taint.value, taint.effect);
        add(&format!("taints[{i}].key"), format!("node-template/taint/{}", taint.key), &value);
    }
    // The rest of the 50 are the ownership tags, the cluster, the name, and the addresses of a Windows node.
    let (most, own) = if windows { (44, 4) } else { (45, 3) };
    let keys: BTreeSet<_> = desired.tags.iter().map(|t| &t.key).collect();
    if keys.len() > most {
        let given = |key: &&String| c.labels.as_ref().is_some_and(|labels| labels.contains_key(*key));
        let own = own + desired.labels.keys().filter(|key| !given(key)).count();
        let rule = "is more than the number of tags that a scaling group can hold besides the controller's, counting the labels and taints that become tags for the cluster autoscaler";
        let left = most.saturating_sub(own);
        let remedy = format!(
            "use at most {left} tags, labels and taints together, or remove the annotation cluster-autoscaler-enabled"
        );
        errors.push_invalid("tags", keys.len().saturating_sub(own), rule, remedy);
    }
    desired
}
