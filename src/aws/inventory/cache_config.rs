//! How old an answer may be before AWS is asked again: all of it, with reasons.
//!
//! What a reconcile decides on (groups, templates, profiles, policies, hooks,
//! images) has no age here: the caller says how fresh it must be.

use std::time::Duration;

/// Windows, limits and ages.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    /// A batch goes when nothing was added for this long: reconciles that start together ask within milliseconds.
    pub batch_idle: Duration,
    /// A batch goes after this long at the latest, so that a steady stream of questions delays none of them for long.
    pub batch_max_wait: Duration,
    /// Spare room in a batch is filled with names not read for this long; younger ones would only make answers longer.
    pub prefetch_age: Duration,
    /// A read in flight is joined when it began this recently, even by those who want no cached answer.
    pub share_in_flight: Duration,
    /// How long EC2 and IAM may deny what they have just made; within it our own write's answer is believed.
    pub consistency_window: Duration,
    /// Subnets, security groups, the cluster and which AMIs there are change by hand, and rarely.
    pub network_ttl: Duration,
    /// A name that does not resolve may have been made since; a typo must not cost a call in every reconcile.
    pub negative_ttl: Duration,
    /// What AWS did not know: an instance type of a new region, a launch that is not listed yet.
    pub unknown_ttl: Duration,
    /// A refresh that someone starts is seen after this long; rotations ask in every pass.
    pub instance_refresh_ttl: Duration,
    /// Failures to launch repeat every few minutes.
    pub activities_ttl: Duration,
    /// AWS launches a handful of instance types in a month.
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

/// The page sizes of AWS's by-name describes.
pub(super) mod limits {
    pub const GROUPS: usize = 100;
    pub const CONFIGURATIONS: usize = 50;
    pub const TEMPLATES: usize = 200;
    pub const VERSIONS: usize = 200;
    pub const PARAMETERS: usize = 10;
    pub const INSTANCES: usize = 100;
    pub const INSTANCE_TYPES: usize = 100;
    /// A line has up to 160 types.
    pub const FAMILIES: usize = 20;
    pub const IDS: usize = 100;
    /// From this many templates on, one listing of every default version is cheaper than a call for each.
    pub const LIST_DEFAULTS_THRESHOLD: usize = 4;
    /// Enough to reach past the repetitions of one failure.
    pub const ACTIVITIES: i32 = 20;
}
