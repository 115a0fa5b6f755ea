//! All cache ages and batch limits for reads from AWS, with the reasons for each value.
//!
//! Resources that a reconcile bases its plan on (scaling groups, templates, profiles, policies, hooks, images) have no
//! age here: the caller passes the maximum age.

use std::time::Duration;

/// The maximum age of data that never changes.
pub(crate) const NEVER_EXPIRES: Duration = Duration::MAX;

/// Cache ages and batch delays. The defaults are those of the controller; tests use others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheConfig {
    /// A batch is sent when no key was added for this long. Reconciles that start together read within milliseconds.
    pub batch_idle: Duration,
    /// A batch is sent after this long at the latest, so that a steady stream of reads does not delay it.
    pub batch_max_wait: Duration,
    /// Free places in a batch are filled with keys that were not read for this long.
    pub prefetch_age: Duration,
    /// A read in flight is shared if it started this recently, even with callers that need an uncached value.
    pub share_in_flight: Duration,
    /// How long EC2 and IAM may not return a recent write. During that time the response of the write is used.
    pub consistency_window: Duration,
    /// How long subnets, security groups, the cluster and AMIs are cached. They change rarely.
    pub network_ttl: Duration,
    /// How long a name that does not resolve is cached. A typo must not cost a call in every reconcile.
    pub negative_ttl: Duration,
    /// How long unknown objects are cached, for example an instance that is not listed yet.
    pub unknown_ttl: Duration,
    /// How long the state of an instance refresh is cached. Rotations read it in every reconcile.
    pub instance_refresh_ttl: Duration,
    /// How long scaling activities are cached. A failing launch repeats every few minutes.
    pub activities_ttl: Duration,
    /// How long the instance types of a family are cached. AWS adds only a few types per month.
    pub catalog_ttl: Duration,
}

impl Default for CacheConfig {
    fn default() -> Self {
        CacheConfig {
            batch_idle: Duration::from_millis(100),
            batch_max_wait: Duration::from_secs(1),
            prefetch_age: Duration::from_secs(60),
            share_in_flight: Duration::from_secs(1),
            consistency_window: Duration::from_secs(60),
            network_ttl: Duration::from_secs(600),
            negative_ttl: Duration::from_secs(60),
            unknown_ttl: Duration::from_secs(600),
            instance_refresh_ttl: Duration::from_secs(60),
            activities_ttl: Duration::from_secs(60),
            catalog_ttl: Duration::from_secs(24 * 3600),
        }
    }
}

/// The maximum number of keys in one call, and other limits of calls.
pub(super) mod limits {
    pub(crate) const GROUPS: usize = 100;
    pub(crate) const CONFIGURATIONS: usize = 50;
    pub(crate) const TEMPLATES: usize = 200;
    pub(crate) const VERSIONS: usize = 200;
    pub(crate) const PARAMETERS: usize = 10;
    pub(crate) const INSTANCES: usize = 100;
    pub(crate) const INSTANCE_TYPES: usize = 100;
    /// A family has up to 160 instance types, so one read returns up to 3,200 types.
    pub(crate) const FAMILIES: usize = 20;
    pub(crate) const IDS: usize = 100;
}
