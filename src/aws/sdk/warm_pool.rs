//! Conversion of warm pools and their instances from the AWS SDK.

use aws_sdk_autoscaling::types as sdk;

use crate::aws::{Instance, WarmInstance, WarmPhase, WarmPool, WarmSizes};

/// Maximum page size of DescribeWarmPool.
pub(super) const MAX_PAGE: i32 = 50;

/// The warm pool of a scaling group.
pub(super) fn pool(found: &sdk::WarmPoolConfiguration, size: Option<i32>) -> WarmPool {
    WarmPool {
        sizes: WarmSizes {
            min: found.min_size().unwrap_or_default(),
            max: found.max_group_prepared_capacity().filter(|max| *max >= 0),
        },
        state: found.pool_state().map_or("Stopped", |s| s.as_str()).to_owned(),
        reuse_on_scale_in: found.instance_reuse_policy().and_then(|policy| policy.reuse_on_scale_in()),
        deleting: found.status().is_some(),
        size,
    }
}

/// An instance in a warm pool.
pub(super) fn instance(instance: Instance, found: &sdk::Instance) -> WarmInstance {
    let state = found.lifecycle_state().map(|s| s.as_str()).unwrap_or_default();
    WarmInstance { instance, phase: phase(state) }
}

/// An instance with another state is leaving the pool: AWS terminates it or moves it to the group.
fn phase(state: &str) -> WarmPhase {
    match state.strip_prefix("Warmed:").and_then(|rest| rest.split(':').next()) {
        Some("Pending") => WarmPhase::Pending,
        Some("Stopped" | "Running" | "Hibernated") => WarmPhase::Ready,
        _ => WarmPhase::Leaving,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifecycle_states_map_to_phases() {
        assert_eq!(phase("Warmed:Pending:Wait"), WarmPhase::Pending);
        assert_eq!(phase("Warmed:Hibernated"), WarmPhase::Ready);
        assert_eq!(phase("Warmed:Terminating:Proceed"), WarmPhase::Leaving);
        assert_eq!(phase("Pending"), WarmPhase::Leaving);
    }

    #[test]
    fn removed_max_size_is_none() {
        let found = sdk::WarmPoolConfiguration::builder().min_size(1).max_group_prepared_capacity(-1).build();
        assert_eq!(pool(&found, None).sizes, WarmSizes { min: 1, max: None });
        let deleting = sdk::WarmPoolConfiguration::builder().status(sdk::WarmPoolStatus::PendingDelete).build();
        assert!(pool(&deleting, None).deleting);
        assert_eq!(pool(&deleting, None).reuse_on_scale_in, None);
        let policy = sdk::InstanceReusePolicy::builder().reuse_on_scale_in(true).build();
        let reused = sdk::WarmPoolConfiguration::builder().instance_reuse_policy(policy).build();
        assert_eq!(pool(&reused, None).reuse_on_scale_in, Some(true));
    }
}
