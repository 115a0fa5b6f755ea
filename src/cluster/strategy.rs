//! Resources of the strategy `crd`, whose kinds are known only at run time.

use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Preconditions, PropagationPolicy};
use serde_json::Value;

use super::ClusterError;
use super::error::call;
use super::groups::post_params;
use crate::api::names::{annotation, label};
use crate::upgrade::crd::{ResourceKind, Served};

/// Objects per page: those of other controllers may be large, and only the group's own are kept.
const PAGE: u32 = 50;

fn api(client: &Client, kind: &ResourceKind, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: kind.group.clone(),
        version: kind.version.clone(),
        api_version: format!("{}/{}", kind.group, kind.version),
        kind: kind.kind.clone(),
        plural: kind.plural.clone(),
    };
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// As a Role needs it.
fn resource(kind: &ResourceKind) -> String {
    format!("{}.{}", kind.plural, kind.group)
}

/// Rights on the kinds of strategies are collected from roles with a label, whoever brings them.
fn explained(error: ClusterError, kind: &ResourceKind) -> ClusterError {
    match error {
        ClusterError::Forbidden { verb, resource, message, source } => {
            let message = format!(
                "{message}; give get, list, create and delete on {} of the API group {} in a ClusterRole with the label {}: \"true\"",
                kind.plural,
                kind.group,
                label::AGGREGATE_TO_STRATEGIES
            );
            ClusterError::Forbidden { verb, resource, message, source }
        }
        other => other,
    }
}

/// What the API server serves under a kind. That a group is not there is only believed of the list of all groups.
pub(super) async fn served(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
) -> Result<Option<Served>, ClusterError> {
    let api_version = format!("{group}/{version}");
    let found = match call("get", "apis", client.list_api_group_resources(&api_version)).await {
        Ok(found) => found,
        Err(error) => {
            let groups = call("get", "apis", client.list_api_groups()).await?;
            let listed = (groups.groups.iter().filter(|g| g.name == group))
                .any(|g| g.versions.iter().any(|v| v.version == version));
            return if listed { Err(error) } else { Ok(None) };
        }
    };
    let resource = found.resources.into_iter().find(|r| r.kind == kind && !r.name.contains('/'));
    Ok(resource.map(|r| Served { plural: r.name, namespaced: r.namespaced }))
}

pub(super) async fn get(
    client: &Client,
    kind: &ResourceKind,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, ClusterError> {
    match call("get", resource(kind), api(client, kind, namespace).get(name)).await {
        Ok(object) => Ok(Some(plain(&object))),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(explained(error, kind)),
    }
}

/// Those of one scaling group, by our annotation.
pub(super) async fn list(
    client: &Client,
    kind: &ResourceKind,
    namespace: &str,
    scaling_group: &str,
) -> Result<Vec<Value>, ClusterError> {
    let api = api(client, kind, namespace);
    let mut params = ListParams::default().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = call("list", resource(kind), api.list(&params)).await.map_err(|error| explained(error, kind))?;
        let next = page.metadata.continue_.clone();
        let mine = |object: &&DynamicObject| {
            let scope = object.metadata.annotations.iter().flatten().find(|(key, _)| *key == annotation::UPGRADE_SCOPE);
            scope.is_some_and(|(_, value)| value == scaling_group)
        };
        found.extend(page.items.iter().filter(mine).map(plain));
        match next.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

fn plain(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

pub(super) async fn create(
    client: &Client,
    kind: &ResourceKind,
    namespace: &str,
    object: &Value,
) -> Result<(), ClusterError> {
    let (api, params) = (api(client, kind, namespace), post_params());
    let request = async {
        let object = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
        api.create(&params, &object).await
    };
    call("create", resource(kind), request).await.map(drop).map_err(|error| explained(error, kind))
}

/// Deletes exactly this one; that it is gone already, or is another one by now, is success.
pub(super) async fn delete(
    client: &Client,
    kind: &ResourceKind,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<(), ClusterError> {
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    match call("delete", resource(kind), api(client, kind, namespace).delete(name, &params)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        Err(error) => Err(explained(error, kind)),
    }
}
