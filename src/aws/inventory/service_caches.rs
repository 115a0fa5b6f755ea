//! The caches of one service that belong together: Fargate, managed node groups and instance types.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::try_join;

use super::batched_cache::{BatchedCache, ReadFn};
use super::cache_config::limits::{FAMILIES, INSTANCE_TYPES};
use super::cache_config::{CacheConfig, NEVER_EXPIRES};
use super::readers::{read_each, read_many};
use crate::aws::error::none_if_not_found;
use crate::aws::fargate::{FargateProfile, RouteTable};
use crate::aws::instance_type_catalog::family_key;
use crate::aws::nodegroup::{Nodegroup, NodegroupName};
use crate::aws::{Aws, InstanceType, InstanceTypeCatalog};

/// The caches for Fargate.
pub(super) struct FargateCaches {
    pub names: Arc<BatchedCache<Arc<Vec<String>>>>,
    pub profiles: Arc<BatchedCache<FargateProfile>>,
    pub route_tables: Arc<BatchedCache<Arc<Vec<RouteTable>>>>,
}

impl FargateCaches {
    pub(super) fn new(aws: &Aws, config: CacheConfig) -> Self {
        FargateCaches {
            names: BatchedCache::new(1, config, profile_names(aws)),
            profiles: BatchedCache::new(1, config, profiles(aws)),
            route_tables: BatchedCache::new(1, config, route_tables(aws)),
        }
    }
}

fn profile_names(aws: &Aws) -> ReadFn<Arc<Vec<String>>> {
    read_each(aws, |aws, cluster| {
        async move {
            // A deleted cluster has no profiles.
            let names = none_if_not_found(aws.fargate.list_fargate_profiles(&cluster).await)?;
            Ok(names.map(Arc::new))
        }
        .boxed()
    })
}

fn profiles(aws: &Aws) -> ReadFn<FargateProfile> {
    read_each(aws, |aws, key| {
        async move {
            let (cluster, name) = key.split_once('/').unwrap_or_default();
            aws.fargate.describe_fargate_profile(cluster, name).await
        }
        .boxed()
    })
}

fn route_tables(aws: &Aws) -> ReadFn<Arc<Vec<RouteTable>>> {
    read_each(aws, |aws, vpc| async move { Ok(Some(Arc::new(aws.ec2.describe_route_tables(&vpc).await?))) }.boxed())
}

/// The caches for managed node groups.
pub(super) struct NodegroupCaches {
    pub nodegroups: Arc<BatchedCache<Arc<Nodegroup>>>,
    pub names: Arc<BatchedCache<Arc<Vec<String>>>>,
}

impl NodegroupCaches {
    pub(super) fn new(aws: &Aws, config: CacheConfig) -> Self {
        NodegroupCaches {
            nodegroups: BatchedCache::new(1, config, nodegroups(aws)),
            names: BatchedCache::new(1, config, nodegroup_names(aws)),
        }
    }
}

fn nodegroups(aws: &Aws) -> ReadFn<Arc<Nodegroup>> {
    read_each(aws, |aws, key| {
        async move {
            let Some(name) = NodegroupName::parse(&key) else { return Ok(None) };
            Ok(aws.nodegroups.describe_nodegroup(&name).await?.map(Arc::new))
        }
        .boxed()
    })
}

fn nodegroup_names(aws: &Aws) -> ReadFn<Arc<Vec<String>>> {
    read_each(aws, |aws, cluster| {
        async move { Ok(Some(Arc::new(aws.nodegroups.list_nodegroups(&cluster).await?))) }.boxed()
    })
}

/// The caches for instance types.
pub(super) struct InstanceTypeCaches {
    pub types: Arc<BatchedCache<InstanceType>>,
    /// Catalogs by family. Families that were read in one batch share a catalog.
    pub catalogs: Arc<BatchedCache<Arc<InstanceTypeCatalog>>>,
    /// Families that are being read again.
    refreshing: Arc<Mutex<HashSet<String>>>,
    config: CacheConfig,
}

impl InstanceTypeCaches {
    pub(super) fn new(aws: &Aws, config: CacheConfig) -> Self {
        // A batch must not prefetch what is still valid: that would only make the response longer.
        let types_config = CacheConfig { prefetch_age: NEVER_EXPIRES, ..config };
        let catalogs_config = CacheConfig { prefetch_age: config.catalog_ttl, ..config };
        InstanceTypeCaches {
            types: BatchedCache::new(INSTANCE_TYPES, types_config, types(aws)),
            catalogs: BatchedCache::new(FAMILIES, catalogs_config, catalogs(aws)),
            refreshing: Arc::default(),
            config,
        }
    }

    /// A type that was read by its name or with its family.
    pub(super) fn cached(&self, name: &str) -> Option<InstanceType> {
        let in_family = || self.catalogs.peek(family_key(name)?)?.get(name).cloned();
        self.types.peek(name).or_else(in_family)
    }

    /// Reads a family again in the background, unless such a read is in progress. After a failure, the next attempt is
    /// delayed by `unknown_ttl`.
    pub(super) fn refresh(&self, family: &str) {
        if !self.refreshing.lock().unwrap_or_else(PoisonError::into_inner).insert(family.to_owned()) {
            return;
        }
        let (catalogs, refreshing) = (self.catalogs.clone(), self.refreshing.clone());
        let (family, config) = (family.to_owned(), self.config);
        tokio::spawn(async move {
            if let Err(error) = catalogs.get(&family, config.catalog_ttl).await {
                tracing::warn!(%error, family, "instance type refresh failed, keeping cached types");
                tokio::time::sleep(config.unknown_ttl).await;
            }
            refreshing.lock().unwrap_or_else(PoisonError::into_inner).remove(&family);
        });
    }
}

fn types(aws: &Aws) -> ReadFn<InstanceType> {
    read_many(aws, |aws, names| {
        async move { Ok(aws.ec2.instance_types(&names).await?.into_iter().map(|t| (t.name.clone(), t)).collect()) }
            .boxed()
    })
}

/// Reads families. All families of one read share a catalog. A family without types is missing from the result.
fn catalogs(aws: &Aws) -> ReadFn<Arc<InstanceTypeCatalog>> {
    read_many(aws, |aws, families| {
        async move {
            let (types, offerings) =
                try_join(aws.ec2.instance_types_in_families(&families), aws.ec2.instance_type_offerings(&families))
                    .await?;
            let found: HashSet<_> = types.iter().filter_map(|t| family_key(&t.name)).collect();
            let catalog = Arc::new(InstanceTypeCatalog::new(&types, offerings));
            let existing = families.into_iter().filter(|family| found.contains(family.as_str()));
            Ok(existing.map(|family| (family, catalog.clone())).collect::<HashMap<_, _>>())
        }
        .boxed()
    })
}
