//! How nodes get into the cluster: the entries of `kube-system/aws-auth`, or access entries.

pub mod access_entries;
pub mod aws_auth;
mod document;
mod edit;
mod entry;
pub mod statement;

pub use access_entries::JoinAuth;
