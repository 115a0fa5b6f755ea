//! How nodes get into the cluster: the entries of `kube-system/aws-auth`.

pub mod aws_auth;
mod document;
mod edit;
