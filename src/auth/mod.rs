//! Authorization of nodes to join the cluster, through entries in `kube-system/aws-auth` or access entries.

pub mod access_entries;
pub mod aws_auth;
pub(crate) mod migration;

pub use access_entries::JoinAuth;
