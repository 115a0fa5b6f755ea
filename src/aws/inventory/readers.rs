//! The reads from AWS: one function for each cache.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::{self, StreamExt, TryStreamExt};
use futures::{FutureExt, future::BoxFuture};
use jiff::Timestamp;

use super::batched_cache::{BatchedCache, ReadFn};
use super::instances::Instances;
use super::list_cache::Rows;
use crate::aws::error::none_if_not_found;
use crate::aws::{
    AccessEntry, Aws, AwsResult, Cluster, Ec2, Image, InstanceLaunch, InstanceProfile, LaunchConfiguration,
    LaunchTemplate, LifecycleHook, MAX_ACTIVITIES, NetworkObject, NetworkQuery, PolicyRole, ScalingActivity,
    ScalingGroup, TemplateVersion, WarmInstance,
};

/// The name of the only list of instance profiles.
pub(super) const PROFILES: &str = "profiles";

/// A read that calls AWS once per key.
pub(super) fn read_each<V, F>(aws: &Aws, read: F) -> ReadFn<V>
where
    V: Send + 'static,
    F: Fn(Aws, String) -> BoxFuture<'static, AwsResult<Option<V>>> + Send + Sync + 'static,
{
    read_many(aws, move |aws, keys| {
        let reads: Vec<_> = keys.into_iter().map(|key| (read(aws.clone(), key.clone()), key)).collect();
        async move {
            let mut found = HashMap::new();
            for (result, key) in reads {
                if let Some(value) = result.await? {
                    found.insert(key, value);
                }
            }
            Ok(found)
        }
        .boxed()
    })
}

/// A read that calls AWS once for many keys.
pub(super) fn read_many<V, F>(aws: &Aws, read: F) -> ReadFn<V>
where
    F: Fn(Aws, Vec<String>) -> BoxFuture<'static, AwsResult<HashMap<String, V>>> + Send + Sync + 'static,
{
    let aws = aws.clone();
    Box::new(move |keys| read(aws.clone(), keys))
}

/// Reads scaling groups, and updates what is kept of their instances.
pub(super) fn groups(
    aws: &Aws,
    instances: &Arc<Mutex<Instances>>,
    launches: &Arc<BatchedCache<InstanceLaunch>>,
) -> ReadFn<ScalingGroup> {
    let (instances, launches) = (instances.clone(), launches.clone());
    read_many(aws, move |aws, names| {
        let (instances, launches) = (instances.clone(), launches.clone());
        async move {
            let found = aws.autoscaling.describe_groups(&names).await?;
            let mut found: HashMap<_, _> = found.into_iter().map(|group| (group.name.clone(), group)).collect();
            let mut removed = Vec::new();
            {
                let now = Timestamp::now();
                let mut instances = instances.lock().unwrap_or_else(PoisonError::into_inner);
                for name in &names {
                    removed.extend(match found.get_mut(name) {
                        Some(group) => instances.update_group(group, now),
                        None => instances.remove_group(name),
                    });
                }
            }
            if !removed.is_empty() {
                launches.remove_where(|id| removed.iter().any(|r| r == id));
            }
            Ok(found)
        }
        .boxed()
    })
}

pub(super) fn hooks(aws: &Aws) -> ReadFn<Arc<Vec<LifecycleHook>>> {
    read_each(aws, |aws, group| {
        async move { Ok(Some(Arc::new(aws.autoscaling.describe_hooks(&group).await?))) }.boxed()
    })
}

pub(super) fn refreshes(aws: &Aws) -> ReadFn<bool> {
    read_each(aws, |aws, group| async move { Ok(Some(aws.autoscaling.has_active_refresh(&group).await?)) }.boxed())
}

pub(super) fn activities(aws: &Aws) -> ReadFn<Arc<Vec<ScalingActivity>>> {
    read_each(aws, |aws, group| {
        async move { Ok(Some(Arc::new(aws.autoscaling.scaling_activities(&group, MAX_ACTIVITIES).await?))) }.boxed()
    })
}

pub(super) fn warm_pools(aws: &Aws) -> ReadFn<Arc<Vec<WarmInstance>>> {
    read_each(aws, |aws, group| {
        async move { Ok(Some(Arc::new(aws.autoscaling.describe_warm_pool(&group).await?))) }.boxed()
    })
}

pub(super) fn launch_configurations(aws: &Aws) -> ReadFn<Arc<LaunchConfiguration>> {
    read_many(aws, |aws, names| {
        async move {
            let found = aws.autoscaling.describe_launch_configurations(&names).await?;
            Ok(found.into_iter().map(|c| (c.name.clone(), Arc::new(c))).collect())
        }
        .boxed()
    })
}

pub(super) fn templates(aws: &Aws) -> ReadFn<LaunchTemplate> {
    read_many(aws, |aws, names| {
        async move {
            let found = aws.ec2.describe_templates(&names).await?;
            let patterns = names.iter().filter(|name| name.contains('?'));
            let youngest = |pattern: &String| {
                let of_pattern = found.iter().filter(|template| matches_pattern(&template.name, pattern));
                of_pattern.max_by(|a, b| a.name.cmp(&b.name)).map(|template| (pattern.clone(), template.clone()))
            };
            let mut all: HashMap<_, _> = patterns.filter_map(youngest).collect();
            all.extend(found.into_iter().map(|t| (t.name.clone(), t)));
            Ok(all)
        }
        .boxed()
    })
}

/// Whether a name matches a filter value of EC2 in which each `?` stands for a digit.
fn matches_pattern(name: &str, pattern: &str) -> bool {
    let fits = |(found, pattern): (u8, u8)| if pattern == b'?' { found.is_ascii_digit() } else { found == pattern };
    name.len() == pattern.len() && name.bytes().zip(pattern.bytes()).all(fits)
}

/// The key of a launch template version in the cache.
pub(super) fn version_key(template_id: &str, number: i64) -> String {
    format!("{template_id}/{number}")
}

/// Reads launch template versions with one call per template. The call that needs no template lists those of all
/// templates in the region, and would be repeated for each few groups that change after a restart.
pub(super) fn versions(aws: &Aws) -> ReadFn<Arc<TemplateVersion>> {
    read_many(aws, |aws, keys| {
        async move {
            let mut missing: BTreeMap<String, Vec<i64>> = BTreeMap::new();
            for (id, number) in keys.iter().filter_map(|key| key.split_once('/')) {
                missing.entry(id.to_owned()).or_default().extend(number.parse::<i64>());
            }
            let reads: Vec<_> =
                missing.into_iter().map(|(id, numbers)| versions_of_template(aws.ec2.clone(), id, numbers)).collect();
            let found: Vec<_> = stream::iter(reads).buffer_unordered(8).try_collect().await?;
            let key = |version: &TemplateVersion| version_key(&version.template_id, version.number);
            Ok(found.into_iter().flatten().map(|version| (key(&version), Arc::new(version))).collect())
        }
        .boxed()
    })
}

/// AWS rejects the whole call if one of several versions does not exist. Then all versions of the template are read.
///
/// # Errors
/// AWS did not answer, or refused. A template that is gone has no versions.
pub(crate) async fn versions_of_template(
    ec2: Arc<dyn Ec2>,
    id: String,
    numbers: Vec<i64>,
) -> AwsResult<Vec<TemplateVersion>> {
    let mut found = none_if_not_found(ec2.describe_versions(&id, &numbers).await)?;
    if found.is_none() && numbers.len() > 1 {
        found = none_if_not_found(ec2.describe_versions(&id, &[]).await)?;
    }
    Ok(found.unwrap_or_default())
}

pub(super) fn launches(aws: &Aws) -> ReadFn<InstanceLaunch> {
    read_many(aws, |aws, ids| async move { Ok(aws.ec2.launches(&ids).await?.into_iter().collect()) }.boxed())
}

pub(super) fn profiles(aws: &Aws) -> ReadFn<Rows<InstanceProfile>> {
    read_each(aws, |aws, list| {
        async move {
            debug_assert_eq!(list, PROFILES);
            let found = aws.iam.list_profiles().await?;
            Ok(Some(Arc::new(found.into_iter().map(|p| (p.name.clone(), p)).collect())))
        }
        .boxed()
    })
}

/// Reads the roles that a policy is attached to. A policy that does not exist is attached to no role; attaching it
/// fails with a clear error.
pub(super) fn policies(aws: &Aws) -> ReadFn<Rows<PolicyRole>> {
    read_each(aws, |aws, arn| {
        async move {
            let roles = none_if_not_found(aws.iam.roles_with_policy(&arn).await)?;
            Ok(roles.map(|roles| Arc::new(roles.into_iter().map(|role| (role.name.clone(), role)).collect())))
        }
        .boxed()
    })
}

pub(super) fn clusters(aws: &Aws) -> ReadFn<Cluster> {
    read_each(aws, |aws, name| async move { aws.eks.describe_cluster(&name).await }.boxed())
}

pub(super) fn subnets(aws: &Aws) -> ReadFn<Arc<Vec<NetworkObject>>> {
    read_each(aws, |aws, vpc| {
        async move { Ok(Some(Arc::new(aws.ec2.describe_subnets(&NetworkQuery::Vpc(vpc)).await?))) }.boxed()
    })
}

pub(super) fn security_groups(aws: &Aws) -> ReadFn<Arc<Vec<NetworkObject>>> {
    read_each(aws, |aws, vpc| {
        async move { Ok(Some(Arc::new(aws.ec2.describe_security_groups(&NetworkQuery::Vpc(vpc)).await?))) }.boxed()
    })
}

/// Reads subnets and security groups by ID, in any VPC.
pub(super) fn network_objects(aws: &Aws) -> ReadFn<NetworkObject> {
    read_many(aws, |aws, ids| {
        async move {
            let (subnets, groups): (Vec<_>, Vec<_>) = ids.into_iter().partition(|id| id.starts_with("subnet-"));
            let mut found = Vec::new();
            if !subnets.is_empty() {
                found.extend(aws.ec2.describe_subnets(&NetworkQuery::Ids(subnets)).await?);
            }
            if !groups.is_empty() {
                found.extend(aws.ec2.describe_security_groups(&NetworkQuery::Ids(groups)).await?);
            }
            Ok(found.into_iter().map(|o| (o.id.clone(), o)).collect())
        }
        .boxed()
    })
}

pub(super) fn amis(aws: &Aws) -> ReadFn<Image> {
    read_many(aws, |aws, ids| {
        async move { Ok(aws.ec2.images(&ids).await?.into_iter().map(|i| (i.id.clone(), i)).collect()) }.boxed()
    })
}

pub(super) fn ssm_images(aws: &Aws) -> ReadFn<String> {
    read_many(aws, |aws, names| async move { Ok(aws.ssm.parameters(&names).await?.into_iter().collect()) }.boxed())
}

/// Reads the principals of the access entries of a cluster.
pub(super) fn access_lists(aws: &Aws) -> ReadFn<Rows<()>> {
    read_each(aws, |aws, cluster| {
        async move {
            let found = aws.eks.list_access_entries(&cluster).await?;
            let rows: HashMap<_, _> = found.into_iter().map(|principal| (principal, ())).collect();
            Ok(Some(Arc::new(rows)))
        }
        .boxed()
    })
}

/// Reads one access entry.
pub(super) fn access_entries(aws: &Aws) -> ReadFn<AccessEntry> {
    read_each(aws, |aws, key| {
        async move {
            let (cluster, principal) = key.split_once('/').unwrap_or_default();
            aws.eks.describe_access_entry(cluster, principal).await
        }
        .boxed()
    })
}
