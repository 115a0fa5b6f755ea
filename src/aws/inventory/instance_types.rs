//! Instance types: single types by name, and all types of a family for groups that use similar types.
//!
//! For families see [`family_key`].

use std::sync::Arc;

use super::batched_cache::MaxAge;
use super::{Inventory, NEVER_EXPIRES};
use crate::aws::instance_type_catalog::family_key;
use crate::aws::{AwsResult, InstanceType, InstanceTypeCatalog};

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
