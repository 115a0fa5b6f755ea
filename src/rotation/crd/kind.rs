//! Kinds of resources that the crd strategy creates.

use serde::Serialize;

/// A kind of resource as the API server serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResourceKind {
    /// API group.
    pub group: String,
    /// API version, without the group.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Plural name, as used in API paths and RBAC rules.
    pub plural: String,
}

impl std::fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.kind, self.group)
    }
}

/// What API discovery returns for a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredKind {
    /// Plural name.
    pub plural: String,
    /// Whether its resources are namespaced.
    pub namespaced: bool,
}
