//! Builds [`Settings`] from the flags that `run`, `plan`, `preflight` and `release` share.

use std::time::Duration;

use super::args::ClusterArgs;
use crate::settings::{Settings, Timing};

/// The settings for planning. `resync_period` also limits the age of cached AWS reads.
pub(crate) fn settings(args: &ClusterArgs, timing: Timing, resync_period: Duration) -> Settings {
    Settings {
        timing,
        resync_period,
        config_retention: args.config_retention as usize,
        cluster_name: args.cluster_name.clone(),
        default_scaling_configuration: args.default_scaling_configuration,
        windows_discovers_endpoint: args.disable_windows_cluster_ca_injection,
        join_auth: args.join_auth,
        config_namespace: args.config_namespace.clone(),
    }
}
