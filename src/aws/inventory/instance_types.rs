//! Instance types: single types by name, and all types of a family generation for pools of similar types.

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

pub(super) struct InstanceTypeCaches {
    types: Arc<BatchedCache<InstanceType>>,
    /// By line.
    catalogs: Arc<BatchedCache<Arc<InstanceTypeCatalog>>>,
    /// Lines that are being read again.
    refreshing: Arc<Mutex<HashSet<String>>>,
    config: CacheConfig,
}

impl InstanceTypeCaches {
    pub fn new(aws: &Aws, config: CacheConfig) -> Self {
        // What is known needs no second reading: it would only make answers longer.
        let (once, daily) = (
            CacheConfig { prefetch_age: NEVER_EXPIRES, ..config },
            CacheConfig { prefetch_age: config.catalog_ttl, ..config },
        );
        InstanceTypeCaches {
            types: BatchedCache::new(INSTANCE_TYPES, once, types(aws)),
            catalogs: BatchedCache::new(FAMILIES, daily, catalogs(aws)),
            refreshing: Arc::default(),
            config,
        }
    }

    /// What was read of a type, by its name or with its line.
    fn cached(&self, name: &str) -> Option<InstanceType> {
        let of_line = || self.catalogs.peek(family_key(name)?)?.get(name).cloned();
        self.types.peek(name).or_else(of_line)
    }

    /// Reads a line again in the background, one at a time; after a failure the old reading stays for a while.
    fn refresh(&self, line: &str) {
        if !self.refreshing.lock().unwrap_or_else(PoisonError::into_inner).insert(line.to_owned()) {
            return;
        }
        let (catalogues, refreshing) = (self.catalogs.clone(), self.refreshing.clone());
        let (line, ages) = (line.to_owned(), self.config);
        tokio::spawn(async move {
            if let Err(error) = catalogues.get(&line, ages.catalog_ttl).await {
                tracing::warn!(%error, line, "instance type refresh failed, keeping cached types");
                tokio::time::sleep(ages.unknown_ttl).await;
            }
            refreshing.lock().unwrap_or_else(PoisonError::into_inner).remove(&line);
        });
    }
}

fn types(aws: &Aws) -> ReadFn<InstanceType> {
    read_many(aws, |aws, names| {
        async move { Ok(aws.ec2.instance_types(&names).await?.into_iter().map(|t| (t.name.clone(), t)).collect()) }
            .boxed()
    })
}

/// Lines that are asked for together are one index; a line without a type is not there.
fn catalogs(aws: &Aws) -> ReadFn<Arc<InstanceTypeCatalog>> {
    read_many(aws, |aws, lines| {
        async move {
            let (types, offers) =
                try_join(aws.ec2.instance_types_in_families(&lines), aws.ec2.instance_type_offerings(&lines)).await?;
            let told: HashSet<_> = types.iter().filter_map(|t| family_key(&t.name)).collect();
            let index = Arc::new(InstanceTypeCatalog::new(&types, offers));
            let there = lines.into_iter().filter(|line| told.contains(line.as_str()));
            Ok(there.map(|line| (line, index.clone())).collect::<HashMap<_, _>>())
        }
        .boxed()
    })
}

impl Inventory {
    /// An instance type, which never changes; several asked for together are one call, and a line that was read for a
    /// pool needs none.
    pub async fn instance_type(&self, name: &str) -> AwsResult<Option<InstanceType>> {
        match self.instance_types.cached(name) {
            Some(known) => Ok(Some(known)),
            None => {
                let age = MaxAge { present: NEVER_EXPIRES, absent: self.config.unknown_ttl };
                self.instance_types.types.get(name, age).await
            }
        }
    }

    /// Others will be asked for soon, when one is not known: the call that asks for it takes them along.
    pub fn prefetch_types(&self, name: &str, others: impl FnOnce() -> Vec<String>) {
        if self.instance_types.cached(name).is_none() {
            let names = others().into_iter().filter(|other| family_key(other).is_some());
            names.for_each(|other| self.instance_types.types.prefetch(other));
        }
    }

    /// The instance types that may be like one. The first who asks for its line waits; when the reading is a day old
    /// the line is read again, and who asks meanwhile gets the old one.
    pub async fn instance_type_catalog(&self, name: &str) -> AwsResult<Arc<InstanceTypeCatalog>> {
        let Some(line) = family_key(name) else { return Ok(Arc::default()) };
        let kept = MaxAge { present: NEVER_EXPIRES, absent: self.config.unknown_ttl };
        let found = self.instance_types.catalogs.read(line, kept, 0).await?;
        let Some(catalogue) = found.value else { return Ok(Arc::default()) };
        if found.read_at.elapsed() >= self.config.catalog_ttl {
            self.instance_types.refresh(line);
        }
        Ok(catalogue)
    }
}
