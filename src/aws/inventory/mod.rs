//! Shared, batched and cached reads of AWS for all groups.
//!
//! It gives two guarantees. A resync of N unchanged groups costs about N/100 + N/200 calls. A read after a write by the
//! controller never returns the state before the write. For that, the writer calls `invalidate_*`, `upsert_*` or
//! `remove_*` after the write.
//!
//! Reads fail with the error of the AWS call. `None` and empty results mean that AWS reported the resource as absent.
//! `max_age` is the maximum age of a cached result; zero forces a read.

mod access_entries;
mod batched_cache;
mod cache_config;
#[cfg(test)]
pub(crate) mod fake_aws;
mod fargate;
mod instance_types;
mod instances;
mod list_cache;
mod nodegroups;
mod readers;
mod service_caches;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{try_join, try_join_all};

use super::{
    AccessEntry, Aws, AwsError, AwsResult, Cluster, Image, InstanceLaunch, InstanceProfile, LaunchConfiguration,
    LaunchTemplate, LifecycleHook, NetworkObject, PolicyRole, ScalingActivity, ScalingGroup, TemplatePin,
    TemplateVersion, WarmInstance,
};
use batched_cache::{BatchedCache, MaxAge};
use instances::Instances;
use list_cache::ListCache;

pub(crate) use self::readers::versions_of_template;
pub(crate) use cache_config::{CacheConfig, NEVER_EXPIRES};
use readers::PROFILES;
use service_caches::{FargateCaches, InstanceTypeCaches, NodegroupCaches};

/// The shared, batched and cached reads of AWS.
pub(crate) struct Inventory {
    aws: Aws,
    config: CacheConfig,
    instances: Arc<Mutex<Instances>>,
    groups: Arc<BatchedCache<ScalingGroup>>,
    hooks: Arc<BatchedCache<Arc<Vec<LifecycleHook>>>>,
    refreshes: Arc<BatchedCache<bool>>,
    activities: Arc<BatchedCache<Arc<Vec<ScalingActivity>>>>,
    launch_configurations: Arc<BatchedCache<Arc<LaunchConfiguration>>>,
    warm_pools: Arc<BatchedCache<Arc<Vec<WarmInstance>>>>,
    templates: Arc<BatchedCache<LaunchTemplate>>,
    versions: Arc<BatchedCache<Arc<TemplateVersion>>>,
    /// The default version of launch templates, by ID, when the versions in use were last known to exist.
    default_versions: Mutex<HashMap<String, i64>>,
    /// The launch template version with which AWS refused a scaling group last, by namespace/name of its InstanceGroup.
    rejected_pins: Mutex<HashMap<String, TemplatePin>>,
    launches: Arc<BatchedCache<InstanceLaunch>>,
    profiles: ListCache<InstanceProfile>,
    policies: ListCache<PolicyRole>,
    clusters: Arc<BatchedCache<Cluster>>,
    nodegroups: NodegroupCaches,
    access_lists: ListCache<()>,
    access_entries: Arc<BatchedCache<AccessEntry>>,
    subnets: Arc<BatchedCache<Arc<Vec<NetworkObject>>>>,
    security_groups: Arc<BatchedCache<Arc<Vec<NetworkObject>>>>,
    network_objects: Arc<BatchedCache<NetworkObject>>,
    instance_types: InstanceTypeCaches,
    amis: Arc<BatchedCache<Image>>,
    ssm_images: Arc<BatchedCache<String>>,
    fargate: FargateCaches,
}

impl Inventory {
    /// An empty inventory. Nothing is read until it is needed.
    pub(crate) fn new(aws: Aws) -> Arc<Self> {
        Self::with_config(aws, CacheConfig::default())
    }

    /// An empty inventory with other cache ages.
    pub(crate) fn with_config(aws: Aws, config: CacheConfig) -> Arc<Self> {
        use cache_config::limits::{CONFIGURATIONS, GROUPS, IDS, INSTANCES, PARAMETERS, TEMPLATES, VERSIONS};
        let instances = Arc::new(Mutex::default());
        let launches = BatchedCache::new(INSTANCES, config, readers::launches(&aws));
        Arc::new(Inventory {
            groups: BatchedCache::new(GROUPS, config, readers::groups(&aws, &instances, &launches)),
            hooks: BatchedCache::new(1, config, readers::hooks(&aws)),
            refreshes: BatchedCache::new(1, config, readers::refreshes(&aws)),
            activities: BatchedCache::new(1, config, readers::activities(&aws)),
            warm_pools: BatchedCache::new(1, config, readers::warm_pools(&aws)),
            launch_configurations: BatchedCache::new(CONFIGURATIONS, config, readers::launch_configurations(&aws)),
            templates: BatchedCache::new(TEMPLATES, config, readers::templates(&aws)),
            // Each template costs a call, and a version never changes: none is read with others or again.
            versions: BatchedCache::new(
                VERSIONS,
                CacheConfig { prefetch_age: NEVER_EXPIRES, ..config },
                readers::versions(&aws),
            ),
            default_versions: Mutex::default(),
            rejected_pins: Mutex::default(),
            launches,
            profiles: ListCache::new(config, readers::profiles(&aws)),
            policies: ListCache::new(config, readers::policies(&aws)),
            clusters: BatchedCache::new(1, config, readers::clusters(&aws)),
            fargate: FargateCaches::new(&aws, config),
            nodegroups: NodegroupCaches::new(&aws, config),
            access_lists: ListCache::new(config, readers::access_lists(&aws)),
            access_entries: BatchedCache::new(1, config, readers::access_entries(&aws)),
            subnets: BatchedCache::new(1, config, readers::subnets(&aws)),
            security_groups: BatchedCache::new(1, config, readers::security_groups(&aws)),
            network_objects: BatchedCache::new(IDS, config, readers::network_objects(&aws)),
            amis: BatchedCache::new(IDS, config, readers::amis(&aws)),
            instance_types: InstanceTypeCaches::new(&aws, config),
            ssm_images: BatchedCache::new(PARAMETERS, config, readers::ssm_images(&aws)),
            instances,
            config,
            aws,
        })
    }

    /// The AWS clients, for writes and for rare reads that are not shared.
    pub(crate) fn aws(&self) -> &Aws {
        &self.aws
    }

    /// A scaling group by name. `None` only after AWS reported that it does not exist.
    pub(crate) async fn group(&self, name: &str, max_age: Duration) -> AwsResult<Option<ScalingGroup>> {
        self.groups.get(name, max_age).await
    }

    /// Adds a group and its template, which are expected to be read soon, to the next batches.
    pub(crate) fn prefetch(&self, group: String, template: String) {
        self.groups.prefetch(group);
        self.templates.prefetch(template);
    }

    /// The name of the scaling group that an instance belonged to at the last read.
    pub(crate) fn group_of_instance(&self, instance: &str) -> Option<String> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner).group_of(instance)
    }

    /// The ids of the instances that a scaling group had at the last read.
    pub(crate) fn instances_of(&self, group: &str) -> Vec<String> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner).instances_of(group)
    }

    /// The lifecycle hooks of a group, sorted by name.
    pub(crate) async fn hooks(&self, group: &str, max_age: Duration) -> AwsResult<Arc<Vec<LifecycleHook>>> {
        Ok(self.of_group(group, self.hooks.get(group, max_age).await)?.unwrap_or_default())
    }

    /// Whether an instance refresh is pending or in progress.
    pub(crate) async fn has_active_refresh(&self, group: &str) -> AwsResult<bool> {
        let answer = self.refreshes.get(group, self.config.instance_refresh_ttl).await;
        Ok(self.of_group(group, answer)?.unwrap_or_default())
    }

    /// The latest scaling activities of a group, newest first.
    pub(crate) async fn activities(&self, group: &str) -> AwsResult<Arc<Vec<ScalingActivity>>> {
        self.recent_activities(group, self.config.activities_ttl).await
    }

    /// The same, at most as old as `max_age`.
    pub(crate) async fn recent_activities(
        &self,
        group: &str,
        max_age: Duration,
    ) -> AwsResult<Arc<Vec<ScalingActivity>>> {
        let max_age = max_age.min(self.config.activities_ttl);
        Ok(self.of_group(group, self.activities.get(group, max_age).await)?.unwrap_or_default())
    }

    /// The instances in a group's warm pool.
    pub(crate) async fn warm_pool(&self, group: &str, max_age: Duration) -> AwsResult<Arc<Vec<WarmInstance>>> {
        Ok(self.of_group(group, self.warm_pools.get(group, max_age).await)?.unwrap_or_default())
    }

    /// An answer about a scaling group. When AWS returns that the group does not exist, the cached group is out of
    /// date: the next pass reads it again.
    fn of_group<T>(&self, group: &str, answer: AwsResult<T>) -> AwsResult<T> {
        if answer.as_ref().is_err_and(AwsError::is_not_found) {
            self.invalidate_group(group);
        }
        answer
    }

    /// A launch configuration by name. Its content never changes, so it is read once.
    pub(crate) async fn launch_configuration(&self, name: &str) -> AwsResult<Option<Arc<LaunchConfiguration>>> {
        self.launch_configurations.get(name, MaxAge { present: NEVER_EXPIRES, absent: Duration::ZERO }).await
    }

    /// A launch template by name. `None` only after AWS reported that it does not exist.
    pub(crate) async fn template(&self, name: &str, max_age: Duration) -> AwsResult<Option<LaunchTemplate>> {
        self.templates.get(name, max_age).await
    }

    /// The launch template with the greatest name of those that match `pattern`, in which each `?` stands for a digit. `exact`
    /// is one of these names; without a match, it is known to be absent.
    pub(crate) async fn template_like(
        &self,
        pattern: &str,
        exact: &str,
        max_age: Duration,
    ) -> AwsResult<Option<LaunchTemplate>> {
        let found = self.templates.get(pattern, max_age).await?;
        // A write updates the entry of a name, and not that of a pattern.
        self.templates.remove_where(|key| key == pattern);
        self.templates.insert(found.as_ref().map_or(exact, |template| &template.name), found.clone());
        Ok(found)
    }

    /// Whether another client made another version of a launch template the default one. This process never does, and
    /// EC2 deletes no default version: the one in use may be gone, so it is read again.
    pub(crate) fn has_new_default(&self, template: &LaunchTemplate) -> bool {
        let mut known = self.default_versions.lock().unwrap_or_else(PoisonError::into_inner);
        *known.entry(template.id.clone()).or_insert(template.default_version) != template.default_version
    }

    /// The launch template version with which AWS refused the scaling group of an InstanceGroup last. It may be gone.
    pub(crate) fn rejected_pin(&self, group: &str) -> Option<TemplatePin> {
        self.rejected_pins.lock().unwrap_or_else(PoisonError::into_inner).get(group).cloned()
    }

    /// Records that the versions in use exist.
    pub(crate) fn confirm_versions(&self, template: &LaunchTemplate) {
        let mut known = self.default_versions.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(template.id.clone(), template.default_version);
    }

    /// One version of a launch template. Versions never change, so each is read once.
    pub(crate) async fn version(&self, template_id: &str, number: i64) -> AwsResult<Option<Arc<TemplateVersion>>> {
        let max_age = MaxAge { present: NEVER_EXPIRES, absent: Duration::ZERO };
        self.versions.get(&readers::version_key(template_id, number), max_age).await
    }

    /// The given versions of a launch template, sorted by number. Versions that do not exist are omitted.
    pub(crate) async fn versions(&self, template_id: &str, numbers: &[i64]) -> AwsResult<Vec<Arc<TemplateVersion>>> {
        let found = try_join_all(numbers.iter().map(|n| self.version(template_id, *n))).await?;
        let mut found: Vec<_> = found.into_iter().flatten().collect();
        found.sort_by_key(|v| v.number);
        found.dedup_by_key(|v| v.number);
        Ok(found)
    }

    /// All versions of a launch template, sorted by number. They are always read, because other writers add versions.
    pub(crate) async fn all_versions(&self, template_id: &str) -> AwsResult<Vec<Arc<TemplateVersion>>> {
        let found = self.aws.ec2.describe_versions(template_id, &[]).await?;
        let mut found: Vec<_> = found.into_iter().map(Arc::new).collect();
        found.sort_by_key(|v| v.number);
        for version in &found {
            let key = readers::version_key(template_id, version.number);
            if self.versions.peek(&key).is_none() {
                self.versions.insert(&key, Some(version.clone()));
            }
        }
        Ok(found)
    }

    /// How instances were launched, by ID. Instances that do not exist are omitted.
    pub(crate) async fn launches(&self, ids: &[String]) -> AwsResult<HashMap<String, InstanceLaunch>> {
        let max_age = MaxAge { present: NEVER_EXPIRES, absent: self.config.negative_ttl };
        let launch = |id: &String| {
            let id = id.clone();
            async move { Ok((id.clone(), self.launches.get(&id, max_age).await?)) }
        };
        let found = try_join_all(ids.iter().map(launch)).await?;
        Ok(found.into_iter().filter_map(|(id, launch)| Some((id, launch?))).collect())
    }

    /// The names of the scaling groups that these instances are in; not cached. At most 100 instances.
    pub(crate) async fn scaling_groups_of(&self, ids: &[String]) -> AwsResult<BTreeSet<String>> {
        let found = self.aws.ec2.scaling_groups_of(ids).await?;
        Ok(found.into_iter().map(|(_, name)| name).collect())
    }

    /// An instance profile by name, without its tags and the tags of its role.
    pub(crate) async fn profile(&self, name: &str, max_age: Duration) -> AwsResult<Option<InstanceProfile>> {
        self.profiles.get(PROFILES, name, max_age).await
    }

    /// Which of the given managed policies are attached to a role, in the given order.
    pub(crate) async fn attached_policies(
        &self,
        role: &str,
        arns: &[String],
        max_age: Duration,
    ) -> AwsResult<Vec<String>> {
        let found = try_join_all(arns.iter().map(|arn| self.policies.get(arn, role, max_age))).await?;
        Ok(arns.iter().zip(found).filter_map(|(arn, row)| row.map(|_| arn.clone())).collect())
    }

    /// A role with a managed policy; `None` if the policy is not attached to it.
    pub(crate) async fn role_with_policy(
        &self,
        role: &str,
        policy_arn: &str,
        max_age: Duration,
    ) -> AwsResult<Option<PolicyRole>> {
        self.policies.get(policy_arn, role, max_age).await
    }

    /// An EKS cluster by name.
    pub(crate) async fn cluster(&self, name: &str) -> AwsResult<Option<Cluster>> {
        self.clusters.get(name, MaxAge { present: self.config.network_ttl, absent: self.config.negative_ttl }).await
    }

    /// An EKS cluster by name, as it is now.
    pub(crate) async fn fresh_cluster(&self, name: &str) -> AwsResult<Option<Cluster>> {
        self.clusters.get(name, MaxAge { present: Duration::ZERO, absent: Duration::ZERO }).await
    }

    /// The subnets of a VPC.
    pub(crate) async fn subnets(&self, vpc: &str) -> AwsResult<Arc<Vec<NetworkObject>>> {
        Ok(self.subnets.get(vpc, self.config.network_ttl).await?.unwrap_or_default())
    }

    /// The security groups of a VPC.
    pub(crate) async fn security_groups(&self, vpc: &str) -> AwsResult<Arc<Vec<NetworkObject>>> {
        Ok(self.security_groups.get(vpc, self.config.network_ttl).await?.unwrap_or_default())
    }

    /// The subnets and security groups of a VPC, not older than `negative_ttl`, for names that did not resolve.
    pub(crate) async fn refresh_network(
        &self,
        vpc: &str,
    ) -> AwsResult<(Arc<Vec<NetworkObject>>, Arc<Vec<NetworkObject>>)> {
        let max_age = self.config.negative_ttl;
        let (subnets, groups) =
            try_join(self.subnets.get(vpc, max_age), self.security_groups.get(vpc, max_age)).await?;
        Ok((subnets.unwrap_or_default(), groups.unwrap_or_default()))
    }

    /// A subnet or a security group by ID, in any VPC.
    pub(crate) async fn network_object(&self, id: &str) -> AwsResult<Option<NetworkObject>> {
        self.network_objects
            .get(id, MaxAge { present: self.config.network_ttl, absent: self.config.negative_ttl })
            .await
    }

    /// An AMI by ID. It is read again from time to time, because it may be deregistered.
    pub(crate) async fn image_by_id(&self, id: &str) -> AwsResult<Option<Image>> {
        self.amis.get(id, MaxAge { present: self.config.network_ttl, absent: self.config.negative_ttl }).await
    }

    /// The ID of the AMI in an SSM parameter; all groups that use the parameter share one read.
    pub(crate) async fn ssm_image(&self, parameter: &str, max_age: Duration) -> AwsResult<Option<String>> {
        self.ssm_images.get(parameter, max_age).await
    }
}
