//! Entries of `mapRoles` in `kube-system/aws-auth`.

use serde::Serialize;

/// Kubernetes user name of nodes. aws-iam-authenticator replaces the placeholder with the DNS name.
pub const NODE_USERNAME: &str = "system:node:{{EC2PrivateDNSName}}";
/// Kubernetes groups of every node.
pub const NODE_GROUPS: [&str; 2] = ["system:bootstrappers", "system:nodes"];
/// Additional group of Windows nodes.
pub const WINDOWS_GROUP: &str = "eks:kube-proxy-windows";
/// Kubernetes user name of Fargate nodes. aws-iam-authenticator replaces the placeholder with the session name.
pub const POD_USERNAME: &str = "system:node:{{SessionName}}";
/// Additional group of Fargate nodes, which run no kube-proxy pod.
pub const PROXIER_GROUP: &str = "system:node-proxier";

/// An entry of `mapRoles`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct AuthEntry {
    /// ARN of the role. Comparison and output ignore its path.
    pub role_arn: String,
    /// Kubernetes user name of the role.
    pub username: String,
    /// Kubernetes groups of the user.
    pub groups: Vec<String>,
}

impl AuthEntry {
    /// The entry that authorizes pods on Fargate with this pod execution role.
    pub fn for_pods(role_arn: &str) -> Self {
        let groups = NODE_GROUPS.into_iter().chain([PROXIER_GROUP]);
        Self {
            role_arn: without_path(role_arn),
            username: POD_USERNAME.to_owned(),
            groups: groups.map(str::to_owned).collect(),
        }
    }

    /// The entry that authorizes nodes with this role; with `windows` also Windows nodes.
    pub fn for_nodes(role_arn: &str, windows: bool) -> Self {
        let groups = NODE_GROUPS.into_iter().chain(windows.then_some(WINDOWS_GROUP));
        Self {
            role_arn: without_path(role_arn),
            username: NODE_USERNAME.to_owned(),
            groups: groups.map(str::to_owned).collect(),
        }
    }
}

/// The ARN of a role without its path, as aws-iam-authenticator compares it.
pub fn without_path(role_arn: &str) -> String {
    match (role_arn.split_once(":role/"), role_arn.rsplit_once('/')) {
        (Some((head, _)), Some((_, name))) => format!("{head}:role/{name}"),
        _ => role_arn.to_owned(),
    }
}
