//! Quotas of a namespace: what its groups have and request, and which request would exceed a limit.
//!
//! A quota rejects the group that requests more than it has, never a group that only keeps, reduces or replaces its
//! nodes. Of groups that request more at the same time, the oldest is considered first. A rejected request does not
//! count.

use crate::api::{InstanceGroupStatus, NodeDemand, has_resources};

/// Limits of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Quota {
    pub max_groups: Option<u64>,
    pub max_nodes: Option<u64>,
    pub max_vcpus: Option<u64>,
    pub max_surge: Option<u64>,
}

/// What a group, or the groups of a namespace, count for in a quota. Sums saturate: a size may be any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuotaAmounts {
    /// Nodes at the maximum size, with warm pools and surges.
    pub nodes: u64,
    /// The nodes among them that a surge adds.
    pub surge: u64,
    /// vCPUs of those nodes; `None` when those of an instance type are not known.
    pub vcpus: Option<u64>,
}

/// A group without nodes: zero of each amount, with known vCPUs.
impl Default for QuotaAmounts {
    fn default() -> Self {
        Self { nodes: 0, surge: 0, vcpus: Some(0) }
    }
}

impl QuotaAmounts {
    /// What a spec requests. `vcpus` gives those of an instance type.
    pub(crate) fn requested(demand: &NodeDemand, vcpus: &dyn Fn(&str) -> Option<u64>) -> Self {
        Self { nodes: demand.nodes, surge: demand.surge, vcpus: demand.vcpus(demand.nodes, vcpus) }
    }

    /// What a group has: what the quota allowed last, or what its status and its spec record. `nodes` are those that it
    /// has.
    pub(crate) fn used(
        status: &InstanceGroupStatus,
        nodes: u64,
        demand: &NodeDemand,
        vcpus: &dyn Fn(&str) -> Option<u64>,
    ) -> Self {
        let number = |count: i64| u64::try_from(count).unwrap_or(0);
        let allowed_nodes = status.quota_nodes.map_or(0, number).max(1);
        let surge = match status.quota_surge {
            Some(allowed) => number(allowed),
            // Its status is older than the limit.
            None if has_resources(status) => demand.surge,
            None => 0,
        };
        let vcpus = match status.quota_vcpus.map(number) {
            // Nodes beyond what is allowed now are still there.
            Some(allowed) if nodes > allowed_nodes => {
                let all = u128::from(allowed) * u128::from(nodes);
                Some(u64::try_from(all.div_ceil(u128::from(allowed_nodes))).unwrap_or(u64::MAX))
            }
            Some(allowed) => Some(allowed),
            None => demand.vcpus(nodes, vcpus),
        };
        Self { nodes, surge, vcpus }
    }

    /// The larger of two amounts, each by itself.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.max(other.nodes),
            surge: self.surge.max(other.surge),
            vcpus: self.vcpus.max(other.vcpus),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.saturating_add(other.nodes),
            surge: self.surge.saturating_add(other.surge),
            vcpus: self.vcpus.zip(other.vcpus).map(|(one, two)| one.saturating_add(two)),
        }
    }
}

/// What one group counts for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QuotaClaim {
    /// Whether it has resources, so that it counts as a group whatever it requests.
    pub exists: bool,
    /// Nodes, surge and vCPUs that it has.
    pub used: QuotaAmounts,
    /// Nodes, surge and vCPUs that its spec requests.
    pub requested: QuotaAmounts,
}

/// The usage of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamespaceUsage {
    /// How many of its groups have resources.
    pub groups: u64,
    /// The sum of what they count for.
    pub amounts: QuotaAmounts,
}

impl NamespaceUsage {
    /// The usage by what these groups have.
    pub(crate) fn sum(claims: impl Iterator<Item = QuotaClaim>) -> Self {
        claims.fold(Self::default(), |usage, claim| Self {
            groups: usage.groups.saturating_add(claim.exists.into()),
            amounts: usage.amounts.plus(claim.used),
        })
    }

    /// The request of a group whose claim is part of this usage.
    pub(crate) fn request(self, claim: QuotaClaim) -> QuotaRequest {
        let (used, requested) = (claim.used, claim.requested);
        let adds_nodes = requested.nodes > used.nodes;
        let (adds_vcpus, more_vcpus) = match (requested.vcpus, used.vcpus) {
            (Some(requested), Some(used)) => (requested > used, Some(requested.saturating_sub(used))),
            // An unknown number does not count as an increase: the group only keeps what it has.
            (None, None) => (adds_nodes, None),
            (None, Some(_)) | (Some(_), None) => (true, None),
        };
        let more = QuotaAmounts {
            nodes: requested.nodes.saturating_sub(used.nodes),
            surge: requested.surge.saturating_sub(used.surge),
            vcpus: more_vcpus,
        };
        let groups = self.groups.saturating_add((!claim.exists).into());
        QuotaRequest {
            before: self,
            usage: Self { groups, amounts: self.amounts.plus(more) },
            adds_group: !claim.exists,
            adds_nodes,
            adds_surge: more.surge > 0,
            adds_vcpus,
            has_larger_nodes: has_larger_nodes(requested, used),
            requested,
        }
    }
}

/// Whether the vCPUs of each node grow, so that another instance type requests more, and not the sizes alone.
fn has_larger_nodes(requested: QuotaAmounts, used: QuotaAmounts) -> bool {
    match (requested.vcpus, used.vcpus) {
        (Some(new), Some(old)) => {
            u128::from(new) * u128::from(used.nodes) > u128::from(old) * u128::from(requested.nodes)
        }
        (None, Some(_)) => true,
        (_, None) => false,
    }
}

/// What a group requests from its namespace's quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QuotaRequest {
    /// The usage of the namespace without the request.
    pub before: NamespaceUsage,
    /// The usage of the namespace if the request is allowed.
    pub usage: NamespaceUsage,
    /// The group is new.
    pub adds_group: bool,
    /// The group requests more nodes than it has.
    pub adds_nodes: bool,
    /// The group requests more nodes of a surge than it has.
    pub adds_surge: bool,
    /// The group requests more vCPUs than it has, or it is not known whether it does.
    pub adds_vcpus: bool,
    /// Its nodes would have more vCPUs than they have.
    pub has_larger_nodes: bool,
    /// What the group requests.
    pub requested: QuotaAmounts,
}

/// The usage of one limit of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuotaLevel {
    /// What is limited: groups, nodes, surge or vcpus.
    pub resource: &'static str,
    /// How much the groups have; `None` when it is not known.
    pub used: Option<u64>,
    /// How much they may have.
    pub limit: u64,
}
