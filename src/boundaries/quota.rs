//! Quotas of a namespace: what its groups have and ask for, and which request would exceed a limit.
//!
//! A quota refuses the group that asks for more than it has, never a group that only keeps, reduces or replaces its nodes.
//! Of groups that ask for more at the same time the older ones come first, and what is refused does not count.

/// Limits of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Quota {
    pub max_groups: Option<u64>,
    pub max_nodes: Option<u64>,
}

/// What one group counts for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QuotaClaim {
    /// Whether it has resources, so that it counts as a group whatever it asks for.
    pub exists: bool,
    /// The nodes that it has.
    pub held_nodes: u64,
    /// The nodes that it asks for.
    pub requested_nodes: u64,
}

/// The usage of a namespace. Sums saturate: a size may be any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamespaceUsage {
    /// Number of groups.
    pub groups: u64,
    /// Sum of their nodes.
    pub nodes: u64,
}

impl NamespaceUsage {
    /// The usage by what these groups have.
    pub(crate) fn held(claims: impl Iterator<Item = QuotaClaim>) -> Self {
        claims.fold(Self::default(), |usage, claim| Self {
            groups: usage.groups.saturating_add(claim.exists.into()),
            nodes: usage.nodes.saturating_add(claim.held_nodes),
        })
    }

    /// The request of a group whose claim is part of this usage.
    pub(crate) fn request(self, claim: QuotaClaim) -> QuotaRequest {
        let more = claim.requested_nodes.saturating_sub(claim.held_nodes);
        let usage =
            Self { groups: self.groups.saturating_add((!claim.exists).into()), nodes: self.nodes.saturating_add(more) };
        QuotaRequest { usage, adds_group: !claim.exists, adds_nodes: more > 0, requested_nodes: claim.requested_nodes }
    }
}

/// What a group asks of its namespace's quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QuotaRequest {
    /// The usage of the namespace if the request is allowed.
    pub usage: NamespaceUsage,
    /// The group is new.
    pub adds_group: bool,
    /// The group asks for more nodes than it has.
    pub adds_nodes: bool,
    /// The nodes that the group asks for.
    pub requested_nodes: u64,
}
