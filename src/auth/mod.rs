//! Authorization of nodes to join the cluster: entries in `kube-system/aws-auth`, and access entries.

pub mod access_entries;
pub mod aws_auth;
pub mod migration;

pub use access_entries::JoinAuth;
