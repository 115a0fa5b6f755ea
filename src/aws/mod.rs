//! Access to AWS: one narrow trait per service with plain types. Only `sdk/` uses the AWS SDK.
//!
//! Every method is one API call, or one call per page, and is named in its documentation. Every method fails with the
//! classified [`AwsError`] of its call. This module makes no decisions and does not wait.

pub(crate) mod access_entry;
pub(crate) mod dry_run;
pub(crate) mod error;
pub mod fargate;
pub(crate) mod instance_type_catalog;
pub(crate) mod inventory;
pub(crate) mod mixed_instances;
pub mod nodegroup;
pub(crate) mod policies;
#[cfg(test)]
pub(crate) mod samples;
pub(crate) mod scaling_group;
pub mod sdk;
pub(crate) mod types;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;

pub use access_entry::AccessEntry;
pub(crate) use access_entry::{AccessEntryType, NewAccessEntry};
pub(crate) use dry_run::{DryRun, DryRunTarget};
pub(crate) use error::{AwsError, AwsErrorKind, AwsResult};
pub(crate) use fargate::{FargateApi, RouteTable};
pub use instance_type_catalog::InstanceTypeCatalog;
pub use mixed_instances::{InstanceTypeOverride, InstancesDistribution, MixedPolicy};
pub(crate) use nodegroup::NodegroupApi;
pub(crate) use scaling_group::MAX_ACTIVITIES;
pub use scaling_group::{
    Instance, InstanceLaunch, InstanceState, LifecycleHook, NewScalingGroup, ScalingActivity, ScalingGroup,
    ScalingGroupChange, StateReason, WarmInstance, WarmPhase, WarmPool, WarmSizes,
};
pub use types::*;

/// Amazon EC2 Auto Scaling.
#[async_trait]
pub(crate) trait AutoScaling: Send + Sync {
    /// DescribeAutoScalingGroups for at most 100 names. Groups that do not exist are missing from the result.
    async fn describe_groups(&self, names: &[String]) -> AwsResult<Vec<ScalingGroup>>;
    /// DescribeLifecycleHooks of one group.
    async fn describe_hooks(&self, group: &str) -> AwsResult<Vec<LifecycleHook>>;
    /// DescribeScalingActivities: the newest `limit` (1 to 100) activities of one group, newest first.
    async fn scaling_activities(&self, group: &str, limit: i32) -> AwsResult<Vec<ScalingActivity>>;
    /// DescribeInstanceRefreshes: whether an instance refresh of a group is pending or in progress.
    async fn has_active_refresh(&self, group: &str) -> AwsResult<bool>;
    /// DescribeWarmPool, in pages of 50: the instances in a group's warm pool.
    async fn describe_warm_pool(&self, group: &str) -> AwsResult<Vec<WarmInstance>>;
    /// PutWarmPool. `state` is `Stopped`, `Running` or `Hibernated`; `None` keeps the state of an existing pool and
    /// means `Stopped` for a new pool. `reuse_on_scale_in` is the pool's instance reuse policy, which AWS may reset when it
    /// is left out; `None` leaves it out.
    async fn put_warm_pool(
        &self,
        group: &str,
        sizes: &WarmSizes,
        state: Option<&str>,
        reuse_on_scale_in: Option<bool>,
    ) -> AwsResult<()>;
    /// DeleteWarmPool with force. Without force, AWS does not delete a pool that has instances.
    async fn delete_warm_pool(&self, group: &str) -> AwsResult<()>;
    /// SetInstanceHealth to `Unhealthy`, so that Auto Scaling replaces the instance, also in a warm pool. The health
    /// check grace period is ignored.
    async fn set_unhealthy(&self, instance: &str) -> AwsResult<()>;
    /// DescribeAutoScalingGroups, in pages of 100: all groups in the region.
    async fn all_groups(&self) -> AwsResult<Vec<ScalingGroup>>;
    /// DescribeLaunchConfigurations, in pages of 100: all launch configurations in the region.
    async fn all_launch_configurations(&self) -> AwsResult<Vec<LaunchConfiguration>>;
    /// DescribeLaunchConfigurations for at most 50 names. Those that do not exist are missing from the result.
    async fn describe_launch_configurations(&self, names: &[String]) -> AwsResult<Vec<LaunchConfiguration>>;
    /// DeleteLaunchConfiguration. AWS rejects it while a scaling group uses the launch configuration.
    async fn delete_launch_configuration(&self, name: &str) -> AwsResult<()>;
    /// CreateAutoScalingGroup, lifecycle hooks included.
    async fn create_group(&self, input: &NewScalingGroup) -> AwsResult<()>;
    /// UpdateAutoScalingGroup. Fields of `change` that are `None` are not sent. `pin` is the new launch template: with
    /// a policy in `change` it becomes the template of that policy, else it replaces any policy of the group.
    async fn update_group(&self, group: &str, change: &ScalingGroupChange, pin: Option<&TemplatePin>) -> AwsResult<()>;
    /// DeleteAutoScalingGroup, never with force.
    async fn delete_group(&self, group: &str) -> AwsResult<()>;
    /// CreateOrUpdateTags. All tags propagate to instances at launch.
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
    /// EnterStandby for one instance. The desired capacity stays, so Auto Scaling launches a replacement. The call is sent
    /// once.
    async fn enter_standby(&self, group: &str, instance: &str) -> AwsResult<()>;
    /// TerminateInstanceInAutoScalingGroup for one instance. `decrement` also lowers the desired capacity; otherwise
    /// Auto Scaling launches a replacement. A call with `decrement` is sent once, because AWS may decrement with each call.
    async fn terminate_instance(&self, instance: &str, decrement: bool) -> AwsResult<()>;
}

/// Amazon EC2: launch templates and the network objects that they name.
#[async_trait]
pub(crate) trait Ec2: Send + Sync {
    /// DescribeLaunchTemplates for at most 200 names, in which `?` matches one character at most. Templates that do not exist
    /// are missing from the result.
    async fn describe_templates(&self, names: &[String]) -> AwsResult<Vec<LaunchTemplate>>;
    /// DescribeLaunchTemplates for one ID; `None` if the template does not exist.
    async fn template_by_id(&self, id: &str) -> AwsResult<Option<LaunchTemplate>>;
    /// DescribeLaunchTemplateVersions of one template: the given numbers, or all versions if `numbers` is empty. If one
    /// of the numbers does not exist, the call fails.
    async fn describe_versions(&self, template_id: &str, numbers: &[i64]) -> AwsResult<Vec<TemplateVersion>>;
    /// DescribeLaunchTemplateVersions for `$Default`: the default version of every template in the region.
    async fn default_versions(&self) -> AwsResult<Vec<TemplateVersion>>;
    /// DescribeLaunchTemplateVersions for `$Latest`: the latest version of every template in the region.
    async fn latest_versions(&self) -> AwsResult<Vec<TemplateVersion>>;
    /// CreateLaunchTemplate with a client token; returns its first version.
    async fn create_template(&self, input: &NewTemplate) -> AwsResult<TemplateVersion>;
    /// CreateLaunchTemplateVersion with a client token; returns the version.
    async fn create_version(&self, template_id: &str, input: &NewVersion) -> AwsResult<TemplateVersion>;
    /// DeleteLaunchTemplateVersions for at most 200 numbers. Versions that do not exist are not an error.
    async fn delete_versions(&self, template_id: &str, numbers: &[i64]) -> AwsResult<()>;
    /// DeleteLaunchTemplate with all its versions.
    async fn delete_template(&self, template_id: &str) -> AwsResult<()>;
    /// CreateTags on one resource, by its ID.
    async fn create_tags(&self, resource: &str, tags: &[Tag]) -> AwsResult<()>;
    /// CreateTags on at most 1,000 instances.
    async fn tag_instances(&self, ids: &[String], tags: &[Tag]) -> AwsResult<()>;
    /// DeleteTags on at most 1,000 instances. A tag that has another value now stays.
    async fn untag_instances(&self, ids: &[String], tags: &[Tag]) -> AwsResult<()>;
    /// DescribeSubnets, in pages of 1,000.
    async fn describe_subnets(&self, query: &NetworkQuery) -> AwsResult<Vec<NetworkObject>>;
    /// DescribeRouteTables of a VPC, in pages of 100.
    async fn describe_route_tables(&self, vpc: &str) -> AwsResult<Vec<RouteTable>>;
    /// DescribeSecurityGroups, in pages of 1,000.
    async fn describe_security_groups(&self, query: &NetworkQuery) -> AwsResult<Vec<NetworkObject>>;
    /// DescribeInstanceTypes for at most 100 names. Types that AWS does not know are missing from the result.
    async fn instance_types(&self, names: &[String]) -> AwsResult<Vec<InstanceType>>;
    /// DescribeInstanceTypes, in pages of 100: all types with a name that starts with one of at most 200 prefixes.
    async fn instance_types_in_families(&self, prefixes: &[String]) -> AwsResult<Vec<InstanceType>>;
    /// DescribeInstanceTypeOfferings of the same types, in pages of 1,000: pairs of type and availability zone.
    async fn instance_type_offerings(&self, prefixes: &[String]) -> AwsResult<Vec<(String, String)>>;
    /// DescribeImages for at most 100 IDs: the available images that this account may launch, deprecated ones included.
    async fn images(&self, ids: &[String]) -> AwsResult<Vec<Image>>;
    /// Sends one action with `DryRun`, which changes nothing. `template` and `tags` are used by actions that need them.
    ///
    /// # Errors
    /// AWS would reject the action.
    async fn dry_run(&self, action: DryRun, template: Option<&LaunchTemplate>, tags: &[Tag]) -> AwsResult<()>;
    /// DescribeInstances for at most 100 instances: pairs of instance ID and how it was launched.
    async fn launches(&self, ids: &[String]) -> AwsResult<Vec<(String, InstanceLaunch)>>;
    /// DescribeInstances for at most 100 instances: pairs of instance ID and why it last changed its state. Instances without
    /// a reason are omitted, and terminated ones about an hour after their end.
    async fn state_reasons(&self, ids: &[String]) -> AwsResult<Vec<(String, StateReason)>>;
    /// DescribeInstances for at most 100 instances: pairs of instance ID and private DNS name. An instance without a
    /// private DNS name is missing from the result.
    async fn private_dns_names(&self, ids: &[String]) -> AwsResult<Vec<(String, String)>>;
    /// DescribeInstances for at most 100 instances: pairs of instance ID and the name of its scaling group, which EC2 Auto
    /// Scaling sets as the tag `aws:autoscaling:groupName`. Instances without a scaling group are omitted.
    async fn scaling_groups_of(&self, ids: &[String]) -> AwsResult<Vec<(String, String)>>;
    /// DescribeInstances for at most 100 instances: those that run.
    async fn running_instances(&self, ids: &[String]) -> AwsResult<Vec<String>>;
    /// DescribeInstances, in pages of 1,000: IDs of the instances that have one of these instance profiles and are not
    /// being terminated.
    async fn instances_with_profiles(&self, profile_arns: &[String]) -> AwsResult<Vec<String>>;
    /// DescribeInstances, in pages of 1,000: names of the scaling groups whose instances were launched from a launch
    /// template and are not being terminated.
    async fn scaling_groups_of_template(&self, template_id: &str) -> AwsResult<BTreeSet<String>>;
}

/// AWS Identity and Access Management.
#[async_trait]
pub(crate) trait Iam: Send + Sync {
    /// ListInstanceProfiles, in pages of 1,000. Tags are not included.
    async fn list_profiles(&self) -> AwsResult<Vec<InstanceProfile>>;
    /// ListInstanceProfilesForRole. Tags are not included. Empty also when the role does not exist.
    async fn profiles_of_role(&self, role: &str) -> AwsResult<Vec<InstanceProfile>>;
    /// ListEntitiesForPolicy, in pages of 1,000: the roles that a managed policy is attached to.
    async fn roles_with_policy(&self, policy_arn: &str) -> AwsResult<Vec<PolicyRole>>;
    /// GetRole with tags, last use and trust policy; `None` if the role does not exist.
    async fn get_role(&self, name: &str) -> AwsResult<Option<Role>>;
    /// GetInstanceProfile, tags included; `None` if the profile does not exist.
    async fn get_profile(&self, name: &str) -> AwsResult<Option<InstanceProfile>>;
    /// ListAttachedRolePolicies, in pages of 1,000: ARNs of managed policies.
    async fn attached_policies(&self, role: &str) -> AwsResult<Vec<String>>;
    /// ListRolePolicies, in pages of 1,000: names of inline policies.
    async fn inline_policies(&self, role: &str) -> AwsResult<Vec<String>>;
    /// CreateRole; returns the role with its tags.
    async fn create_role(&self, input: &NewRole) -> AwsResult<Role>;
    /// UpdateAssumeRolePolicy: replaces the trust policy.
    async fn update_trust_policy(&self, role: &str, policy: &str) -> AwsResult<()>;
    /// AttachRolePolicy.
    async fn attach_policy(&self, role: &str, policy_arn: &str) -> AwsResult<()>;
    /// DetachRolePolicy.
    async fn detach_policy(&self, role: &str, policy_arn: &str) -> AwsResult<()>;
    /// CreateInstanceProfile; returns the profile with its tags.
    async fn create_profile(&self, name: &str, tags: &[Tag]) -> AwsResult<InstanceProfile>;
    /// AddRoleToInstanceProfile.
    async fn add_role_to_profile(&self, profile: &str, role: &str) -> AwsResult<()>;
    /// RemoveRoleFromInstanceProfile.
    async fn remove_role_from_profile(&self, profile: &str, role: &str) -> AwsResult<()>;
    /// DeleteInstanceProfile.
    async fn delete_profile(&self, name: &str) -> AwsResult<()>;
    /// DeleteRole.
    async fn delete_role(&self, name: &str) -> AwsResult<()>;
    /// TagRole: adds or overwrites tags.
    async fn tag_role(&self, name: &str, tags: &[Tag]) -> AwsResult<()>;
    /// TagInstanceProfile: adds or overwrites tags.
    async fn tag_profile(&self, name: &str, tags: &[Tag]) -> AwsResult<()>;
    /// GetCallerIdentity of AWS STS, which needs no permission: ARN of the controller's identity.
    async fn caller_arn(&self) -> AwsResult<String>;
    /// SimulatePrincipalPolicy for the ARN of a role or user: the decision for each action.
    async fn simulate_policy(
        &self,
        principal: &str,
        simulation: &PolicySimulation,
    ) -> AwsResult<Vec<(String, PolicyDecision)>>;
}

/// Amazon EKS: clusters and access entries.
#[async_trait]
pub(crate) trait Eks: Send + Sync {
    /// DescribeCluster; `None` if the cluster does not exist.
    async fn describe_cluster(&self, name: &str) -> AwsResult<Option<Cluster>>;
    /// ListAccessEntries, in pages of 100: the principal ARNs of all access entries of a cluster.
    async fn list_access_entries(&self, cluster: &str) -> AwsResult<Vec<String>>;
    /// DescribeAccessEntry, tags included; `None` if the entry or the cluster does not exist.
    async fn describe_access_entry(&self, cluster: &str, principal: &str) -> AwsResult<Option<AccessEntry>>;
    /// CreateAccessEntry with a client token.
    async fn create_access_entry(&self, input: &NewAccessEntry, client_token: &str) -> AwsResult<()>;
    /// DeleteAccessEntry.
    async fn delete_access_entry(&self, cluster: &str, principal: &str) -> AwsResult<()>;
}

/// AWS Systems Manager Parameter Store.
#[async_trait]
pub(crate) trait Ssm: Send + Sync {
    /// GetParameters for at most ten names: pairs of name and value. Parameters that do not exist are missing from the
    /// result.
    async fn parameters(&self, names: &[String]) -> AwsResult<Vec<(String, String)>>;
}

/// The clients of all services.
#[derive(Clone)]
pub(crate) struct Aws {
    /// The region that the clients call, for example `us-west-2`.
    pub region: String,
    /// Amazon EC2 Auto Scaling.
    pub autoscaling: Arc<dyn AutoScaling>,
    /// Amazon EC2: launch templates, instances, images and the network.
    pub ec2: Arc<dyn Ec2>,
    /// AWS IAM and AWS STS.
    pub iam: Arc<dyn Iam>,
    /// Amazon EKS: clusters and access entries.
    pub eks: Arc<dyn Eks>,
    /// Amazon EKS: managed node groups.
    pub nodegroups: Arc<dyn NodegroupApi>,
    /// Amazon EKS: Fargate profiles.
    pub fargate: Arc<dyn FargateApi>,
    /// AWS Systems Manager: the public parameters with the IDs of AWS's images.
    pub ssm: Arc<dyn Ssm>,
}
