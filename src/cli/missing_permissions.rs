//! Permissions that the caller of a command lacks, as text: which, and who can grant them.

use std::fmt;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};

use crate::k8s::{KubeError, call};

/// A right that the caller lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeniedPermission {
    verb: &'static str,
    /// As in a Role.
    resource: String,
    namespace: Option<String>,
}

impl fmt::Display for DeniedPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        match &self.namespace {
            Some(namespace) => write!(f, " in the namespace {namespace}"),
            None => Ok(()),
        }
    }
}

/// Permissions that the caller lacks; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingPermissions(pub Vec<DeniedPermission>);

impl std::error::Error for MissingPermissions {}

impl fmt::Display for MissingPermissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        let them = if all.len() == 1 { "it" } else { "them" };
        write!(
            f,
            "you do not have permission to {}; a cluster admin can grant {them}: see Permissions in docs/cli.md",
            all.join(", and to ")
        )
    }
}

/// Why a read with the permissions of the caller failed: the missing permission, or the error.
pub(crate) fn explain_denied(error: &KubeError, namespace: Option<&str>) -> String {
    let KubeError::Forbidden { verb, resource, .. } = error else { return error.to_string() };
    let namespace = namespace.map(str::to_owned);
    MissingPermissions(vec![DeniedPermission { verb, resource: resource.to_string(), namespace }]).to_string()
}

/// Reads that a command makes with the permissions of its caller. What is denied is noted.
#[derive(Default)]
pub(crate) struct PermissionCheck {
    missing: Vec<DeniedPermission>,
}

impl PermissionCheck {
    /// The result of a read; `None` if it was denied. `name` is that of a single object.
    ///
    /// # Errors
    /// The read failed for another reason.
    pub(crate) fn allowed<T>(
        &mut self,
        result: Result<T, KubeError>,
        name: Option<&str>,
        namespace: Option<&str>,
    ) -> Result<Option<T>, KubeError> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(KubeError::Forbidden { verb, resource, .. }) => {
                let resource = name.map_or_else(|| resource.to_string(), |name| format!("{resource}/{name}"));
                self.missing.push(DeniedPermission { verb, resource, namespace: namespace.map(str::to_owned) });
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The permissions that were missing until now, if any.
    pub(crate) fn missing(self) -> Option<MissingPermissions> {
        (!self.missing.is_empty()).then_some(MissingPermissions(self.missing))
    }
}

/// A ConfigMap; `None` when it does not exist, and when the caller may not read it, which is noted in `permissions`.
pub(crate) async fn get_config_map(
    client: &Client,
    permissions: &mut PermissionCheck,
    namespace: &str,
    name: &str,
) -> Result<Option<ConfigMap>, KubeError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = call("get", "configmaps", maps.get_opt(name)).await;
    Ok(permissions.allowed(found, Some(name), Some(namespace))?.flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(verb: &'static str, resource: &'static str) -> Result<(), KubeError> {
        Err(KubeError::Forbidden { verb, resource: resource.into(), message: "no".into(), source: "no".into() })
    }

    #[test]
    fn missing_rights_are_named_with_who_can_grant_them() {
        let mut permissions = PermissionCheck::default();
        assert!(permissions.allowed(Ok(()), None, None).expect("an answer").is_some());
        permissions.allowed(denied("get", "configmaps"), Some("instance-manager"), Some("im")).expect("an answer");
        permissions.allowed(denied("list", "nodes"), None, None).expect("an answer");
        let text = permissions.missing().expect("permissions are missing").to_string();
        for part in
            ["get configmaps/instance-manager in the namespace im", "to list nodes", "a cluster admin can grant them"]
        {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(PermissionCheck::default().missing(), None);
        let text = explain_denied(&denied("list", "nodes").expect_err("a denial"), None);
        assert!(text.contains("permission to list nodes") && text.contains("grant it"), "{text}");
    }

    #[test]
    fn outage_is_not_a_missing_permission() {
        let error = KubeError::Unavailable { verb: "get", resource: "nodes".into(), source: "timeout".into() };
        assert!(PermissionCheck::default().allowed(Err::<(), _>(error), None, None).is_err());
    }
}
