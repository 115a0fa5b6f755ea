//! Amazon EC2 Auto Scaling.

use async_trait::async_trait;
use aws_sdk_autoscaling::config::retry::RetryConfig;
use aws_sdk_autoscaling::types as sdk;
use aws_sdk_autoscaling::{Client, config};

use super::convert::to_aws_error;
use super::scaling_group::{RESOURCE_TYPE, activity, group, hook, hook_specification, instance, sdk_tags, template};
use super::{launch_configuration, mixed_instances, warm_pool};
use crate::aws::{
    AutoScaling, AwsResult, LaunchConfiguration, LifecycleHook, NewScalingGroup, ScalingActivity, ScalingGroup,
    ScalingGroupChange, Tag, TemplatePin, WarmInstance, WarmSizes,
};

const SERVICE: &str = "AutoScaling";
/// Maximum page size, and the maximum number of names in one DescribeAutoScalingGroups.
const MAX_PAGE: i32 = 100;

pub(super) struct AutoScalingSdk(pub Client);

#[async_trait]
impl AutoScaling for AutoScalingSdk {
    async fn describe_groups(&self, names: &[String]) -> AwsResult<Vec<ScalingGroup>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let request = self.0.describe_auto_scaling_groups().set_auto_scaling_group_names(Some(names.to_vec()));
        let groups = request.into_paginator().page_size(MAX_PAGE).items().send().try_collect().await;
        let groups: Vec<_> = groups.map_err(to_aws_error(SERVICE, "DescribeAutoScalingGroups"))?;
        groups.iter().map(group).collect()
    }

    async fn describe_hooks(&self, group: &str) -> AwsResult<Vec<LifecycleHook>> {
        let response = self.0.describe_lifecycle_hooks().auto_scaling_group_name(group).send().await;
        let response = response.map_err(to_aws_error(SERVICE, "DescribeLifecycleHooks"))?;
        let mut hooks: Vec<_> = response.lifecycle_hooks().iter().map(hook).collect();
        hooks.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(hooks)
    }

    async fn scaling_activities(&self, group: &str, limit: i32) -> AwsResult<Vec<ScalingActivity>> {
        let request = self.0.describe_scaling_activities().auto_scaling_group_name(group);
        let response = request.max_records(limit.clamp(1, MAX_PAGE)).send().await;
        let response = response.map_err(to_aws_error(SERVICE, "DescribeScalingActivities"))?;
        Ok(response.activities().iter().map(activity).collect())
    }

    async fn has_active_refresh(&self, group: &str) -> AwsResult<bool> {
        use sdk::InstanceRefreshStatus::{Cancelled, Failed, RollbackFailed, RollbackSuccessful, Successful};
        let request = self.0.describe_instance_refreshes().auto_scaling_group_name(group);
        let mut pages = request.into_paginator().page_size(MAX_PAGE).send();
        while let Some(page) = pages.next().await {
            let page = page.map_err(to_aws_error(SERVICE, "DescribeInstanceRefreshes"))?;
            let completed = [Successful, Failed, Cancelled, RollbackSuccessful, RollbackFailed];
            if page.instance_refreshes().iter().filter_map(|r| r.status()).any(|s| !completed.contains(s)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn describe_warm_pool(&self, group: &str) -> AwsResult<Vec<WarmInstance>> {
        let request = self.0.describe_warm_pool().auto_scaling_group_name(group);
        let found = request.into_paginator().page_size(warm_pool::MAX_PAGE).items().send().try_collect().await;
        let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "DescribeWarmPool"))?;
        Ok(found.iter().map(|i| warm_pool::instance(instance(i), i)).collect())
    }

    async fn put_warm_pool(
        &self,
        group: &str,
        sizes: &WarmSizes,
        state: Option<&str>,
        reuse_on_scale_in: Option<bool>,
    ) -> AwsResult<()> {
        let request = self.0.put_warm_pool().auto_scaling_group_name(group).min_size(sizes.min);
        // -1 removes an earlier value.
        let request = request.max_group_prepared_capacity(sizes.max.unwrap_or(-1));
        let reuse = |returned| sdk::InstanceReusePolicy::builder().reuse_on_scale_in(returned).build();
        let request = request.set_instance_reuse_policy(reuse_on_scale_in.map(reuse));
        let response = request.set_pool_state(state.map(sdk::WarmPoolState::from)).send().await;
        response.map_err(to_aws_error(SERVICE, "PutWarmPool"))?;
        Ok(())
    }

    async fn delete_warm_pool(&self, group: &str) -> AwsResult<()> {
        let request = self.0.delete_warm_pool().auto_scaling_group_name(group).force_delete(true);
        request.send().await.map_err(to_aws_error(SERVICE, "DeleteWarmPool"))?;
        Ok(())
    }

    async fn set_unhealthy(&self, instance: &str) -> AwsResult<()> {
        let request = self.0.set_instance_health().instance_id(instance).health_status("Unhealthy");
        let response = request.should_respect_grace_period(false).send().await;
        response.map_err(to_aws_error(SERVICE, "SetInstanceHealth"))?;
        Ok(())
    }

    async fn all_groups(&self) -> AwsResult<Vec<ScalingGroup>> {
        let request = self.0.describe_auto_scaling_groups();
        let groups = request.into_paginator().page_size(MAX_PAGE).items().send().try_collect().await;
        let groups: Vec<_> = groups.map_err(to_aws_error(SERVICE, "DescribeAutoScalingGroups"))?;
        groups.iter().map(group).collect()
    }

    async fn all_launch_configurations(&self) -> AwsResult<Vec<LaunchConfiguration>> {
        let request = self.0.describe_launch_configurations();
        let found = request.into_paginator().page_size(MAX_PAGE).items().send().try_collect().await;
        let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "DescribeLaunchConfigurations"))?;
        Ok(found.iter().map(launch_configuration::from_sdk).collect())
    }

    async fn describe_launch_configurations(&self, names: &[String]) -> AwsResult<Vec<LaunchConfiguration>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let request = self.0.describe_launch_configurations().set_launch_configuration_names(Some(names.to_vec()));
        let found = request.into_paginator().page_size(MAX_PAGE).items().send().try_collect().await;
        let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "DescribeLaunchConfigurations"))?;
        Ok(found.iter().map(launch_configuration::from_sdk).collect())
    }

    async fn delete_launch_configuration(&self, name: &str) -> AwsResult<()> {
        let request = self.0.delete_launch_configuration().launch_configuration_name(name);
        request.send().await.map_err(to_aws_error(SERVICE, "DeleteLaunchConfiguration"))?;
        Ok(())
    }

    async fn create_group(&self, input: &NewScalingGroup) -> AwsResult<()> {
        let request = self
            .0
            .create_auto_scaling_group()
            .auto_scaling_group_name(&input.name)
            .min_size(input.min)
            .max_size(input.max)
            .desired_capacity(input.min)
            .vpc_zone_identifier(input.subnets.join(","))
            .set_launch_template(input.mixed.is_none().then(|| template(&input.template)))
            .set_mixed_instances_policy(
                input.mixed.as_ref().map(|m| mixed_instances::to_sdk(m, template(&input.template))),
            )
            .set_tags(Some(sdk_tags(&input.name, &input.tags)))
            .set_lifecycle_hook_specification_list(
                (!input.hooks.is_empty()).then(|| input.hooks.iter().map(hook_specification).collect()),
            );
        request.send().await.map_err(to_aws_error(SERVICE, "CreateAutoScalingGroup"))?;
        Ok(())
    }

    async fn update_group(&self, group: &str, change: &ScalingGroupChange, pin: Option<&TemplatePin>) -> AwsResult<()> {
        let policy = change.mixed.as_ref().zip(pin).map(|(policy, pin)| mixed_instances::to_sdk(policy, template(pin)));
        let request = self
            .0
            .update_auto_scaling_group()
            .auto_scaling_group_name(group)
            .set_min_size(change.min)
            .set_max_size(change.max)
            .set_vpc_zone_identifier(change.subnets.as_ref().map(|s| s.join(",")))
            .set_launch_template(pin.filter(|_| policy.is_none()).map(template))
            .set_mixed_instances_policy(policy);
        request.send().await.map_err(to_aws_error(SERVICE, "UpdateAutoScalingGroup"))?;
        Ok(())
    }

    async fn delete_group(&self, group: &str) -> AwsResult<()> {
        let request = self.0.delete_auto_scaling_group().auto_scaling_group_name(group);
        request.send().await.map_err(to_aws_error(SERVICE, "DeleteAutoScalingGroup"))?;
        Ok(())
    }

    async fn put_tags(&self, group: &str, tags: &[Tag]) -> AwsResult<()> {
        let request = self.0.create_or_update_tags().set_tags(Some(sdk_tags(group, tags)));
        request.send().await.map_err(to_aws_error(SERVICE, "CreateOrUpdateTags"))?;
        Ok(())
    }

    async fn delete_tags(&self, group: &str, keys: &[String]) -> AwsResult<()> {
        let tag = |key: &String| sdk::Tag::builder().resource_id(group).resource_type(RESOURCE_TYPE).key(key).build();
        let request = self.0.delete_tags().set_tags(Some(keys.iter().map(tag).collect()));
        request.send().await.map_err(to_aws_error(SERVICE, "DeleteTags"))?;
        Ok(())
    }

    async fn suspend_processes(&self, group: &str, processes: &[String]) -> AwsResult<()> {
        let request = self.0.suspend_processes().auto_scaling_group_name(group);
        let response = request.set_scaling_processes(Some(processes.to_vec())).send().await;
        response.map_err(to_aws_error(SERVICE, "SuspendProcesses"))?;
        Ok(())
    }

    async fn resume_processes(&self, group: &str, processes: &[String]) -> AwsResult<()> {
        let request = self.0.resume_processes().auto_scaling_group_name(group);
        let response = request.set_scaling_processes(Some(processes.to_vec())).send().await;
        response.map_err(to_aws_error(SERVICE, "ResumeProcesses"))?;
        Ok(())
    }

    async fn enable_metrics(&self, group: &str, metrics: &[String]) -> AwsResult<()> {
        let request = self.0.enable_metrics_collection().auto_scaling_group_name(group);
        let response = request.set_metrics(Some(metrics.to_vec())).granularity("1Minute").send().await;
        response.map_err(to_aws_error(SERVICE, "EnableMetricsCollection"))?;
        Ok(())
    }

    async fn disable_metrics(&self, group: &str, metrics: &[String]) -> AwsResult<()> {
        let request = self.0.disable_metrics_collection().auto_scaling_group_name(group);
        let response = request.set_metrics(Some(metrics.to_vec())).send().await;
        response.map_err(to_aws_error(SERVICE, "DisableMetricsCollection"))?;
        Ok(())
    }

    async fn put_hook(&self, group: &str, hook: &LifecycleHook) -> AwsResult<()> {
        let request = self
            .0
            .put_lifecycle_hook()
            .auto_scaling_group_name(group)
            .lifecycle_hook_name(&hook.name)
            .lifecycle_transition(&hook.transition)
            .default_result(&hook.default_result)
            .heartbeat_timeout(hook.heartbeat_timeout)
            .set_notification_target_arn(hook.notification_arn.clone())
            .set_notification_metadata(hook.metadata.clone())
            .set_role_arn(hook.role_arn.clone());
        request.send().await.map_err(to_aws_error(SERVICE, "PutLifecycleHook"))?;
        Ok(())
    }

    async fn delete_hook(&self, group: &str, hook: &str) -> AwsResult<()> {
        let request = self.0.delete_lifecycle_hook().auto_scaling_group_name(group).lifecycle_hook_name(hook);
        request.send().await.map_err(to_aws_error(SERVICE, "DeleteLifecycleHook"))?;
        Ok(())
    }

    async fn enter_standby(&self, group: &str, instance: &str) -> AwsResult<()> {
        let request = self.0.enter_standby().auto_scaling_group_name(group).instance_ids(instance);
        let request = request.should_decrement_desired_capacity(false);
        let response = request.customize().config_override(one_attempt()).send().await;
        response.map_err(to_aws_error(SERVICE, "EnterStandby"))?;
        Ok(())
    }

    async fn terminate_instance(&self, instance: &str, decrement: bool) -> AwsResult<()> {
        let request = self.0.terminate_instance_in_auto_scaling_group().instance_id(instance);
        let request = request.should_decrement_desired_capacity(decrement);
        let response = match decrement {
            true => request.customize().config_override(one_attempt()).send().await,
            false => request.send().await,
        };
        response.map_err(to_aws_error(SERVICE, "TerminateInstanceInAutoScalingGroup"))?;
        Ok(())
    }
}

/// The settings of a call that is not idempotent and has no client token. The SDK does not repeat it, because AWS may
/// have performed it although the response was lost. The next reconcile observes the group before it decides again. All
/// other writes set an absolute value, name what they create or delete, or have a client token.
fn one_attempt() -> config::Builder {
    config::Builder::new().retry_config(RetryConfig::standard().with_max_attempts(1))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::aws::sdk::CallObserver;
    use crate::aws::sdk::call_metrics::CallCounter;
    use crate::aws::sdk::fake_http::FakeHttp;
    use crate::aws::{AwsError, AwsErrorKind};
    use crate::telemetry::metrics::Metrics;

    fn sdk(http: &FakeHttp) -> AutoScalingSdk {
        AutoScalingSdk(Client::from_conf(config(http).build()))
    }

    fn config(http: &FakeHttp) -> config::Builder {
        config::Builder::new()
            .behavior_version(config::BehaviorVersion::latest())
            .region(config::Region::new("us-west-2"))
            .credentials_provider(config::Credentials::new("id", "secret", None, None, "test"))
            .retry_config(
                RetryConfig::standard().with_max_attempts(3).with_initial_backoff(std::time::Duration::from_millis(1)),
            )
            .http_client(http.client())
    }

    struct NoObserver;

    impl CallObserver for NoObserver {
        fn record_call(&self, _: &'static str, _: &'static str, _: Option<AwsErrorKind>) {}
    }

    /// Its group then reports AWS's error, and since when, without waiting for attempts of its own.
    #[tokio::test]
    async fn call_of_a_failing_operation_is_not_sent_and_fails_with_the_last_error() {
        let http = FakeHttp::without_response();
        let counter = CallCounter { observer: Arc::new(NoObserver), circuit_breaker: Arc::default() };
        let throttled = || AwsError::from_response("AutoScaling", "TerminateInstance", "Throttling", "slow down", 400);
        let operation = ("autoscaling", "TerminateInstanceInAutoScalingGroup");
        let before = Instant::now().checked_sub(Duration::from_secs(60)).expect("a machine that has run for a minute");
        counter.circuit_breaker.record(operation, Some(throttled()), before);
        counter.circuit_breaker.record(operation, Some(throttled()), Instant::now());
        let sdk = AutoScalingSdk(Client::from_conf(config(&http).interceptor(counter).build()));
        let error = sdk.terminate_instance("i-1", false).await.expect_err("an error");
        assert_eq!((error.kind, error.message.as_str()), (AwsErrorKind::Throttled, "slow down"));
        assert!(error.failing_since.is_some() && http.requests().is_empty(), "{error}");
        assert!(sdk.enter_standby("demo-team-web", "i-1").await.is_err());
        assert_eq!(http.requests().len(), 1, "another operation is tried");
    }

    /// An admin whose groups wait for AWS reads there which operation is throttled.
    #[tokio::test]
    async fn throttled_attempts_are_in_the_metrics() {
        let http = FakeHttp::with_error(400, "<ErrorResponse><Error><Code>Throttling</Code></Error></ErrorResponse>");
        let metrics = Arc::new(Metrics::new().expect("metrics"));
        let counter = CallCounter { observer: metrics.clone(), circuit_breaker: Arc::default() };
        let sdk = AutoScalingSdk(Client::from_conf(config(&http).interceptor(counter).build()));
        let labels = |outcome: &str| format!("{{operation=\"EnterStandby\",{outcome}service=\"autoscaling\"}}");
        let throttles = format!("instance_manager_aws_api_throttle_total{}", labels(""));
        let calls = format!("instance_manager_aws_calls_total{}", labels("outcome=\"throttled\","));
        let shown = || [&throttles, &calls].map(|series| metrics.value(series));
        assert_eq!(shown(), [None, None]);
        assert!(sdk.enter_standby("demo-team-web", "i-1").await.is_err());
        assert_eq!(shown(), ["1", "1"].map(|value| Some(value.to_owned())));
    }

    #[tokio::test]
    async fn calls_that_are_not_idempotent_are_sent_once() {
        let http = FakeHttp::without_response();
        assert!(sdk(&http).terminate_instance("i-1", true).await.is_err());
        assert_eq!(http.requests().len(), 1, "AWS may decrement again with each attempt");
        assert!(http.requests()[0].contains("ShouldDecrementDesiredCapacity=true"));
        let http = FakeHttp::without_response();
        assert!(sdk(&http).enter_standby("demo-team-web", "i-1").await.is_err());
        assert_eq!(http.requests().len(), 1);
        let http = FakeHttp::without_response();
        assert!(sdk(&http).terminate_instance("i-1", false).await.is_err());
        assert_eq!(http.requests().len(), 3, "the instance is replaced once, however often it is terminated");
    }

    #[tokio::test]
    async fn put_warm_pool_repeats_the_reuse_policy() {
        for (reuse, sent) in [(Some(true), true), (None, false)] {
            let http = FakeHttp::with_response("<PutWarmPoolResponse><PutWarmPoolResult/></PutWarmPoolResponse>");
            let sizes = WarmSizes { min: 1, max: None };
            sdk(&http).put_warm_pool("demo-team-web", &sizes, Some("Stopped"), reuse).await.expect("a response");
            assert_eq!(http.requests()[0].contains("InstanceReusePolicy.ReuseOnScaleIn=true"), sent);
        }
    }
}
