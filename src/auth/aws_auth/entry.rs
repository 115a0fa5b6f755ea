//! An entry of `kube-system/aws-auth`.

use serde::Serialize;

/// The name that a node's role gets; aws-iam-authenticator fills in the DNS name.
pub const NODE_USERNAME: &str = "system:node:{{EC2PrivateDNSName}}";
/// The groups of every node.
pub const NODE_GROUPS: [&str; 2] = ["system:bootstrappers", "system:nodes"];
/// The further group of Windows nodes.
pub const WINDOWS_GROUP: &str = "eks:kube-proxy-windows";
/// The name of a pod's host on Fargate.
pub const POD_USERNAME: &str = "system:node:{{SessionName}}";
/// The further group of hosts on Fargate, which run no kube-proxy of their own.
pub const PROXIER_GROUP: &str = "system:node-proxier";

/// An entry of `mapRoles`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct AuthEntry {
    /// The role's ARN; a path in it is dropped wherever it is compared or written.
    pub role_arn: String,
    /// The user that the role becomes.
    pub username: String,
    /// The groups of that user.
    pub groups: Vec<String>,
}

impl AuthEntry {
    /// The entry that lets pods on Fargate run with this pod execution role.
    pub fn for_pods(role_arn: &str) -> Self {
        let groups = NODE_GROUPS.into_iter().chain([PROXIER_GROUP]);
        Self {
            role_arn: without_path(role_arn),
            username: POD_USERNAME.to_owned(),
            groups: groups.map(str::to_owned).collect(),
        }
    }

    /// The entry that lets nodes with this role join.
    pub fn for_nodes(role_arn: &str, windows: bool) -> Self {
        let groups = NODE_GROUPS.into_iter().chain(windows.then_some(WINDOWS_GROUP));
        Self {
            role_arn: without_path(role_arn),
            username: NODE_USERNAME.to_owned(),
            groups: groups.map(str::to_owned).collect(),
        }
    }
}

/// The ARN of a role without its path, which is what aws-iam-authenticator compares with.
pub fn without_path(role_arn: &str) -> String {
    match (role_arn.split_once(":role/"), role_arn.rsplit_once('/')) {
        (Some((head, _)), Some((_, name))) => format!("{head}:role/{name}"),
        _ => role_arn.to_owned(),
    }
}
