//! How old an answer may be before AWS is asked again: all of it, with reasons.
//!
//! What a reconcile decides on (groups, templates, profiles, policies, hooks,
//! images) has no age here: the caller says how fresh it must be.

use std::time::Duration;

/// Windows, limits and ages.
#[derive(Clone, Copy, Debug)]
pub struct Ages {
    /// A batch goes when nothing was added for this long: reconciles that start together ask within milliseconds.
    pub idle: Duration,
    /// A batch goes after this long at the latest, so that a steady stream of questions delays none of them for long.
    pub longest: Duration,
    /// Spare room in a batch is filled with names not read for this long; younger ones would only make answers longer.
    pub fill: Duration,
    /// A read in flight is joined when it began this recently, even by those who want no cached answer.
    pub join: Duration,
    /// How long EC2 and IAM may deny what they have just made; within it our own write's answer is believed.
    pub settle: Duration,
    /// Subnets, security groups, the cluster and which AMIs there are change by hand, and rarely.
    pub network: Duration,
    /// A name that does not resolve may have been made since; a typo must not cost a call in every reconcile.
    pub again: Duration,
    /// What AWS did not know: an instance type of a new region, a launch that is not listed yet.
    pub absent: Duration,
    /// A refresh that someone starts is seen after this long; rotations ask in every pass.
    pub refresh: Duration,
    /// Failures to launch repeat every few minutes.
    pub activities: Duration,
    /// AWS launches a handful of instance types in a month.
    pub catalogue: Duration,
}

impl Default for Ages {
    fn default() -> Self {
        Ages {
            idle: Duration::from_millis(100),
            longest: Duration::from_secs(1),
            fill: Duration::from_secs(60),
            join: Duration::from_secs(1),
            settle: Duration::from_secs(60),
            network: Duration::from_secs(600),
            again: Duration::from_secs(60),
            absent: Duration::from_secs(600),
            refresh: Duration::from_secs(60),
            activities: Duration::from_secs(60),
            catalogue: Duration::from_secs(24 * 3600),
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
    pub const TYPES: usize = 100;
    /// A line has up to 160 types.
    pub const LINES: usize = 20;
    pub const IDS: usize = 100;
    /// From this many templates on, one listing of every default version is cheaper than a call for each.
    pub const LIST_DEFAULTS: usize = 4;
    /// Enough to reach past the repetitions of one failure.
    pub const ACTIVITIES: i32 = 20;
}
