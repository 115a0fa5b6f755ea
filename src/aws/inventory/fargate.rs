//! Fargate profiles: one listing of names for each cluster, and one call for each profile. Also the route tables that
//! identify private subnets.

use std::sync::Arc;
use std::time::Duration;

use super::Inventory;
use crate::aws::fargate::{FargateProfile, RouteTable};
use crate::aws::{AwsErrorKind, AwsResult};

/// The key of a profile in the cache. The name of a cluster cannot contain a slash.
fn key(cluster: &str, name: &str) -> String {
    format!("{cluster}/{name}")
}

impl Inventory {
    /// The names of all Fargate profiles of a cluster; all groups share one listing. Empty if the cluster does not
    /// exist.
    pub(crate) async fn fargate_profile_names(&self, cluster: &str, max_age: Duration) -> AwsResult<Arc<Vec<String>>> {
        Ok(self.fargate.names.get(cluster, max_age).await?.unwrap_or_default())
    }

    /// A Fargate profile by name. `None` only after EKS reported that it does not exist.
    pub(crate) async fn fargate_profile(
        &self,
        cluster: &str,
        name: &str,
        max_age: Duration,
    ) -> AwsResult<Option<FargateProfile>> {
        let key = key(cluster, name);
        let found = self.fargate.profiles.get(&key, max_age).await?;
        if found.is_none() {
            self.fargate.profiles.remove_where(|cached| cached == key);
        }
        Ok(found)
    }

    /// The route tables of a VPC; `None` if the controller lacks the permission. They are at most `negative_ttl` old: a profile
    /// may wait for a route that an admin adds.
    pub(crate) async fn route_tables(&self, vpc: &str) -> AwsResult<Option<Arc<Vec<RouteTable>>>> {
        match self.fargate.route_tables.get(vpc, self.config.negative_ttl).await {
            Err(error) if error.kind == AwsErrorKind::Denied => Ok(None),
            result => result,
        }
    }

    /// Call this after CreateFargateProfile succeeded: it caches the profile, and its name is read anew.
    pub(crate) fn upsert_fargate_profile(&self, cluster: &str, profile: FargateProfile) {
        let key = key(cluster, &profile.name);
        self.fargate.profiles.insert(&key, Some(profile));
        self.fargate.names.invalidate(cluster);
    }

    /// Call this after a Fargate profile was created or deleted with an unknown outcome, or tagged: it is read anew.
    pub(crate) fn invalidate_fargate_profile(&self, cluster: &str, name: &str) {
        self.fargate.profiles.invalidate(&key(cluster, name));
        self.fargate.names.invalidate(cluster);
    }
}
