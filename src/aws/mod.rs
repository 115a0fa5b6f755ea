//! Access to AWS: one narrow trait per service with plain types. Only `sdk/` uses the AWS SDK.
//!
//! Every method is one API call, or one call per page. This module makes no decisions and does not wait.

pub mod access_entry;
pub mod dry_run;
pub mod error;
pub mod fargate;
pub mod instance_type_catalog;
pub mod inventory;
pub mod mixed_instances;
pub mod nodegroup;
pub mod scaling_group;
pub mod sdk;
pub mod types;

use std::sync::Arc;

use async_trait::async_trait;

pub use access_entry::{AccessEntry, AccessEntryType, NewAccessEntry};
pub use dry_run::{DryRun, DryRunTarget};
pub use error::{AwsError, AwsErrorKind, AwsResult};
pub use fargate::{FargateApi, RouteTable};
pub use instance_type_catalog::InstanceTypeCatalog;
pub use mixed_instances::{InstanceTypeOverride, InstancesDistribution, MixedPolicy};
pub use nodegroup::NodegroupApi;
pub use scaling_group::{
    Instance, InstanceState, LifecycleHook, NewScalingGroup, ScalingActivity, ScalingGroup, ScalingGroupChange,
    WarmInstance, WarmPhase, WarmPool, WarmSizes,
};
pub use types::*;

/// Amazon EC2 Auto Scaling.
#[async_trait]
pub trait AutoScaling: Send + Sync {
    /// DescribeAutoScalingGroups for at most 100 names; absent ones are simply not in the answer.
    async fn describe_groups(&self, names: &[String]) -> AwsResult<Vec<ScalingGroup>>;
    /// DescribeLifecycleHooks of one group.
    async fn describe_hooks(&self, group: &str) -> AwsResult<Vec<LifecycleHook>>;
    /// DescribeScalingActivities, the newest `limit` of one group.
    async fn scaling_activities(&self, group: &str, limit: i32) -> AwsResult<Vec<ScalingActivity>>;
    /// DescribeInstanceRefreshes: whether one is pending or in progress.
    async fn has_active_refresh(&self, group: &str) -> AwsResult<bool>;
    /// DescribeWarmPool: the instances in a group's warm pool, pages of 50.
    async fn describe_warm_pool(&self, group: &str) -> AwsResult<Vec<WarmInstance>>;
    /// PutWarmPool; with a `state` of `None` a new pool stops its instances and a standing one keeps its way.
    async fn put_warm_pool(&self, group: &str, sizes: &WarmSizes, state: Option<&str>) -> AwsResult<()>;
    /// DeleteWarmPool with force, without which AWS keeps a pool that has instances.
    async fn delete_warm_pool(&self, group: &str) -> AwsResult<()>;
    /// SetInstanceHealth to `Unhealthy`: Auto Scaling replaces the instance, also in a warm pool.
    async fn set_unhealthy(&self, instance: &str) -> AwsResult<()>;
    /// DescribeLaunchConfigurations for at most 50 names; absent ones are simply not in the answer.
    async fn describe_launch_configurations(&self, names: &[String]) -> AwsResult<Vec<LaunchConfiguration>>;
    /// DeleteLaunchConfiguration, which AWS refuses while a scaling group refers to it.
    async fn delete_launch_configuration(&self, name: &str) -> AwsResult<()>;
    /// CreateAutoScalingGroup, hooks included.
    async fn create_group(&self, input: &NewScalingGroup) -> AwsResult<()>;
    /// UpdateAutoScalingGroup; only what is set is sent, and a pin with the policy of `change` or without any.
    async fn update_group(&self, group: &str, change: &ScalingGroupChange, pin: Option<&TemplatePin>) -> AwsResult<()>;
    /// DeleteAutoScalingGroup, never with force.
    async fn delete_group(&self, group: &str) -> AwsResult<()>;
    /// CreateOrUpdateTags, all of them propagated at launch.
    async fn put_tags(&self, group: &str, tags: &[Tag]) -> AwsResult<()>;
    /// DeleteTags by key.
    async fn delete_tags(&self, group: &str, keys: &[String]) -> AwsResult<()>;
    /// SuspendProcesses.
    async fn suspend_processes(&self, group: &str, processes: &[String]) -> AwsResult<()>;
    /// ResumeProcesses.
    async fn resume_processes(&self, group: &str, processes: &[String]) -> AwsResult<()>;
    /// EnableMetricsCollection with a granularity of one minute.
    async fn enable_metrics(&self, group: &str, metrics: &[String]) -> AwsResult<()>;
    /// DisableMetricsCollection.
    async fn disable_metrics(&self, group: &str, metrics: &[String]) -> AwsResult<()>;
    /// PutLifecycleHook.
    async fn put_hook(&self, group: &str, hook: &LifecycleHook) -> AwsResult<()>;
    /// DeleteLifecycleHook.
    async fn delete_hook(&self, group: &str, hook: &str) -> AwsResult<()>;
    /// EnterStandby of one instance, without decrement: another is launched in its place.
    async fn enter_standby(&self, group: &str, instance: &str) -> AwsResult<()>;
    /// TerminateInstanceInAutoScalingGroup for one instance.
    async fn terminate_instance(&self, instance: &str, decrement: bool) -> AwsResult<()>;
}

/// Amazon EC2: launch templates and the network objects that they name.
#[async_trait]
pub trait Ec2: Send + Sync {
    /// DescribeLaunchTemplates filtered by at most 200 names; absent ones are not in the answer.
    async fn describe_templates(&self, names: &[String]) -> AwsResult<Vec<LaunchTemplate>>;
    /// DescribeLaunchTemplates by id.
    async fn template_by_id(&self, id: &str) -> AwsResult<Option<LaunchTemplate>>;
    /// DescribeLaunchTemplateVersions of one template: the given numbers, or all when empty.
    async fn describe_versions(&self, template_id: &str, numbers: &[i64]) -> AwsResult<Vec<TemplateVersion>>;
    /// DescribeLaunchTemplateVersions of `$Default` and no template: the default version of every template there is.
    async fn default_versions(&self) -> AwsResult<Vec<TemplateVersion>>;
    /// CreateLaunchTemplate with a client token; answers its first version.
    async fn create_template(&self, input: &NewTemplate) -> AwsResult<TemplateVersion>;
    /// CreateLaunchTemplateVersion with a client token.
    async fn create_version(&self, template_id: &str, input: &NewVersion) -> AwsResult<TemplateVersion>;
    /// ModifyLaunchTemplate: the default version.
    async fn set_default_version(&self, template_id: &str, number: i64) -> AwsResult<()>;
    /// DeleteLaunchTemplateVersions, at most 200 numbers.
    async fn delete_versions(&self, template_id: &str, numbers: &[i64]) -> AwsResult<()>;
    /// DeleteLaunchTemplate with all its versions.
    async fn delete_template(&self, template_id: &str) -> AwsResult<()>;
    /// CreateTags on one resource.
    async fn create_tags(&self, resource: &str, tags: &[Tag]) -> AwsResult<()>;
    /// DescribeSubnets.
    async fn describe_subnets(&self, query: &NetworkQuery) -> AwsResult<Vec<NetworkObject>>;
    /// DescribeRouteTables of a VPC.
    async fn describe_route_tables(&self, vpc: &str) -> AwsResult<Vec<RouteTable>>;
    /// DescribeSecurityGroups.
    async fn describe_security_groups(&self, query: &NetworkQuery) -> AwsResult<Vec<NetworkObject>>;
    /// DescribeInstanceTypes for at most 100 names; those that AWS does not know are not in the answer.
    async fn instance_types(&self, names: &[String]) -> AwsResult<Vec<InstanceType>>;
    /// DescribeInstanceTypes of all types whose names start with one of at most 200 beginnings, every page.
    async fn instance_types_in_families(&self, beginnings: &[String]) -> AwsResult<Vec<InstanceType>>;
    /// DescribeInstanceTypeOfferings of the same by availability zone, every page: (type, zone).
    async fn instance_type_offerings(&self, beginnings: &[String]) -> AwsResult<Vec<(String, String)>>;
    /// DescribeImages for at most 100 ids: the available ones that this account may launch, deprecated ones included.
    async fn images(&self, ids: &[String]) -> AwsResult<Vec<Image>>;
    /// One action with `DryRun`, about a template and tags where it needs them: an error where AWS would refuse it.
    async fn dry_run(&self, action: DryRun, template: Option<&LaunchTemplate>, tags: &[Tag]) -> AwsResult<()>;
    /// DescribeInstances: the launch times of at most 100 instances.
    async fn launch_times(&self, ids: &[String]) -> AwsResult<Vec<(String, jiff::Timestamp)>>;
}

/// AWS Identity and Access Management.
#[async_trait]
pub trait Iam: Send + Sync {
    /// ListInstanceProfiles, pages of 1,000.
    async fn list_profiles(&self) -> AwsResult<Vec<InstanceProfile>>;
    /// ListEntitiesForPolicy: the names of the roles that a managed policy is attached to.
    async fn roles_with_policy(&self, policy_arn: &str) -> AwsResult<Vec<String>>;
    /// GetRole, tags included.
    async fn get_role(&self, name: &str) -> AwsResult<Option<Role>>;
    /// GetInstanceProfile, tags included.
    async fn get_profile(&self, name: &str) -> AwsResult<Option<InstanceProfile>>;
    /// ListAttachedRolePolicies: ARNs.
    async fn attached_policies(&self, role: &str) -> AwsResult<Vec<String>>;
    /// ListRolePolicies: the names of inline policies.
    async fn inline_policies(&self, role: &str) -> AwsResult<Vec<String>>;
    /// CreateRole.
    async fn create_role(&self, input: &NewRole) -> AwsResult<Role>;
    /// AttachRolePolicy.
    async fn attach_policy(&self, role: &str, policy_arn: &str) -> AwsResult<()>;
    /// DetachRolePolicy.
    async fn detach_policy(&self, role: &str, policy_arn: &str) -> AwsResult<()>;
    /// CreateInstanceProfile.
    async fn create_profile(&self, name: &str, tags: &[Tag]) -> AwsResult<InstanceProfile>;
    /// AddRoleToInstanceProfile.
    async fn add_role_to_profile(&self, profile: &str, role: &str) -> AwsResult<()>;
    /// RemoveRoleFromInstanceProfile.
    async fn remove_role_from_profile(&self, profile: &str, role: &str) -> AwsResult<()>;
    /// DeleteInstanceProfile.
    async fn delete_profile(&self, name: &str) -> AwsResult<()>;
    /// DeleteRole.
    async fn delete_role(&self, name: &str) -> AwsResult<()>;
    /// TagRole.
    async fn tag_role(&self, name: &str, tags: &[Tag]) -> AwsResult<()>;
    /// TagInstanceProfile.
    async fn tag_profile(&self, name: &str, tags: &[Tag]) -> AwsResult<()>;
    /// GetCallerIdentity of AWS STS, which needs no permission: the ARN of the caller.
    async fn caller_arn(&self) -> AwsResult<String>;
    /// SimulatePrincipalPolicy of a role or user; the answer by action.
    async fn simulate_policy(
        &self,
        principal: &str,
        asked: &PolicySimulation,
    ) -> AwsResult<Vec<(String, PolicyDecision)>>;
}

/// Amazon EKS.
#[async_trait]
pub trait Eks: Send + Sync {
    /// DescribeCluster; `None` when there is no cluster of that name.
    async fn describe_cluster(&self, name: &str) -> AwsResult<Option<Cluster>>;
    /// ListAccessEntries: the principals of all access entries of a cluster, pages of 100.
    async fn list_access_entries(&self, cluster: &str) -> AwsResult<Vec<String>>;
    /// DescribeAccessEntry, tags included.
    async fn describe_access_entry(&self, cluster: &str, principal: &str) -> AwsResult<Option<AccessEntry>>;
    /// CreateAccessEntry with a client token.
    async fn create_access_entry(&self, input: &NewAccessEntry, token: &str) -> AwsResult<()>;
    /// DeleteAccessEntry.
    async fn delete_access_entry(&self, cluster: &str, principal: &str) -> AwsResult<()>;
}

/// AWS Systems Manager's Parameter Store.
#[async_trait]
pub trait Ssm: Send + Sync {
    /// GetParameters: at most ten names; absent ones are not in the answer.
    async fn parameters(&self, names: &[String]) -> AwsResult<Vec<(String, String)>>;
}

/// The clients of all services.
#[derive(Clone)]
pub struct Aws {
    /// Amazon EC2 Auto Scaling.
    pub autoscaling: Arc<dyn AutoScaling>,
    /// Amazon EC2.
    pub ec2: Arc<dyn Ec2>,
    /// AWS IAM.
    pub iam: Arc<dyn Iam>,
    /// Amazon EKS.
    pub eks: Arc<dyn Eks>,
    /// Amazon EKS: managed node groups.
    pub nodegroups: Arc<dyn NodegroupApi>,
    /// Amazon EKS: Fargate profiles.
    pub fargate: Arc<dyn FargateApi>,
    /// AWS Systems Manager.
    pub ssm: Arc<dyn Ssm>,
}
