//! Instance types: single types by name, and all types of a family for groups that use similar types.
//!
//! For families see [`family_key`].

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::try_join;

use super::batched_cache::{BatchedCache, MaxAge, ReadFn};
use super::cache_config::CacheConfig;
use super::cache_config::limits::{FAMILIES, INSTANCE_TYPES};
use super::readers::read_many;
use super::{Inventory, NEVER_EXPIRES};
use crate::aws::instance_type_catalog::family_key;
use crate::aws::{Aws, AwsResult, InstanceType, InstanceTypeCatalog};

/// The caches for instance types.
pub(super) struct InstanceTypeCaches {
    types: Arc<BatchedCache<InstanceType>>,
    /// Catalogs by family. Families that were read in one batch share a catalog.
    catalogs: Arc<BatchedCache<Arc<InstanceTypeCatalog>>>,
    /// Families that are being read again.
    refreshing: Arc<Mutex<HashSet<String>>>,
    config: CacheConfig,
}

impl InstanceTypeCaches {
    pub(crate) fn new(aws: &Aws, config: CacheConfig) -> Self {
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
    fn cached(&self, name: &str) -> Option<InstanceType> {
        let in_family = || self.catalogs.peek(family_key(name)?)?.get(name).cloned();
        self.types.peek(name).or_else(in_family)
    }

    /// Reads a family again in the background, unless such a read is in progress. After a failure, the next attempt is
    /// delayed by `unknown_ttl`.
    fn refresh(&self, family: &str) {
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

impl Inventory {
    /// An instance type by name; `None` if AWS does not know it. Types never change, so each is read once. Concurrent
    /// reads share a call. A type of a cached family needs no call.
    pub(crate) async fn instance_type(&self, name: &str) -> AwsResult<Option<InstanceType>> {
        match self.instance_types.cached(name) {
            Some(cached) => Ok(Some(cached)),
            None => {
                let max_age = MaxAge { present: NEVER_EXPIRES, absent: self.config.unknown_ttl };
                self.instance_types.types.get(name, max_age).await
            }
        }
    }

    /// An instance type that was read before.
    pub(crate) fn known_instance_type(&self, name: &str) -> Option<InstanceType> {
        self.instance_types.cached(name)
    }

    /// If a type is not cached, adds `others` to the call that will read it. Other groups are expected to read them
    /// soon.
    pub(crate) fn prefetch_types(&self, name: &str, others: impl FnOnce() -> Vec<String>) {
        if self.instance_types.cached(name).is_none() {
            let names = others().into_iter().filter(|other| family_key(other).is_some());
            names.for_each(|other| self.instance_types.types.prefetch(other));
        }
    }

    /// A catalog that contains all types of a type's family; empty for an unknown family. The first read of a family
    /// waits for AWS. When the catalog is older than `catalog_ttl`, it is refreshed in the background and meanwhile
    /// returned.
    pub(crate) async fn instance_type_catalog(&self, name: &str) -> AwsResult<Arc<InstanceTypeCatalog>> {
        let Some(family) = family_key(name) else { return Ok(Arc::default()) };
        let max_age = MaxAge { present: NEVER_EXPIRES, absent: self.config.unknown_ttl };
        let found = self.instance_types.catalogs.read(family, max_age, 0).await?;
        let Some(catalog) = found.value else { return Ok(Arc::default()) };
        if found.read_at.elapsed() >= self.config.catalog_ttl {
            self.instance_types.refresh(family);
        }
        Ok(catalog)
    }
}
