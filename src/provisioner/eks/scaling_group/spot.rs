//! Applies spot recommendations, which may replace the spot price of the spec.

use jiff::Timestamp;

use crate::api::{InstanceGroupSpec, InstanceGroupStatus, SpotRecommendation};
use crate::boundaries::Policy;
use crate::index::spot;
use crate::index::spot::Recommendations;

/// Replaces the spot price of the spec by an active recommendation, once the scaling group exists. The policy may
/// limit the namespaces whose events count.
pub(crate) fn apply_spot_recommendation(
    spec: &mut InstanceGroupSpec,
    status: &InstanceGroupStatus,
    all: &Recommendations,
    policy: Option<&Policy>,
    now: Timestamp,
) -> Option<SpotRecommendation> {
    let is_allowed = |namespace: &str| policy.is_none_or(|policy| policy.is_spot_namespace_allowed(namespace));
    let recommended = status.active_scaling_group_name.as_ref().and_then(|name| all.get(name, is_allowed));
    let eks = spec.eks.as_mut()?;
    let pool = eks.warm_pool.is_some();
    let configuration = eks.configuration.as_mut()?;
    // A recommendation is ignored where AWS would reject spot instances; it must not block the group.
    let tenancy = configuration.placement.as_ref().and_then(|p| p.tenancy.as_deref()).unwrap_or_default();
    if pool || configuration.mixed_instances_policy.is_some() || tenancy.eq_ignore_ascii_case("host") {
        return None;
    }
    let own = configuration.spot_price.clone().unwrap_or_default();
    let found =
        spot::active_recommendation(&own, status.spot_recommendation.as_ref(), recommended.as_ref(), is_allowed, now)?;
    configuration.spot_price = found.use_spot.then(|| found.spot_price.clone());
    Some(found)
}
