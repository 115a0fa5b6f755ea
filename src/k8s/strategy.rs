//! Resources of the strategy `crd`, whose kinds are known only at run time.

use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Preconditions, PropagationPolicy};
use serde_json::Value;

use super::KubeError;
use super::error::call;
use super::groups::post_params;
use super::lists::list_pages;
use crate::api::names::{annotation, label};
use crate::rotation::crd::{DiscoveredKind, ResourceKind};

/// Objects per page. Resources of other controllers may be large, and only the group's own are kept.
const PAGE_SIZE: u32 = 50;

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

/// The resource as a Role spells it.
fn resource(kind: &ResourceKind) -> String {
    format!("{}.{}", kind.plural, kind.group)
}

/// Adds to a permission error how to grant access: permissions on kinds of the crd strategy are aggregated from labeled
/// ClusterRoles.
fn with_rbac_hint(error: KubeError, kind: &ResourceKind) -> KubeError {
    match error {
        KubeError::Forbidden { verb, resource, message, source } => {
            let message = format!(
                "{message}; grant get, list, create and delete on {} of the API group {} in a ClusterRole with the label {}: \"true\"",
                kind.plural,
                kind.group,
                label::AGGREGATE_TO_STRATEGIES
            );
            KubeError::Forbidden { verb, resource, message, source }
        }
        other => other,
    }
}

/// What the API server serves for a kind. Only the list of all API groups proves that a group does not exist.
pub(super) async fn discover_kind(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
) -> Result<Option<DiscoveredKind>, KubeError> {
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
    Ok(resource.map(|r| DiscoveredKind { plural: r.name, namespaced: r.namespaced }))
}

pub(super) async fn get(
    client: &Client,
    kind: &ResourceKind,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, KubeError> {
    match call("get", resource(kind), api(client, kind, namespace).get(name)).await {
        Ok(object) => Ok(Some(to_json(&object))),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(with_rbac_hint(error, kind)),
    }
}

/// The resources of one scaling group, by the controller's annotation.
pub(super) async fn list(
    client: &Client,
    kind: &ResourceKind,
    namespace: &str,
    scaling_group: &str,
) -> Result<Vec<Value>, KubeError> {
    let api = api(client, kind, namespace);
    let of_group = |object: DynamicObject| {
        let scope = object.metadata.annotations.iter().flatten().find(|(key, _)| *key == annotation::UPGRADE_SCOPE);
        scope.filter(|(_, value)| *value == scaling_group).map(|_| to_json(&object))
    };
    let params = ListParams::default().limit(PAGE_SIZE);
    let found = list_pages(resource(kind), &api, params, of_group).await;
    found.map_err(|error| with_rbac_hint(error, kind))
}

fn to_json(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

pub(super) async fn create(
    client: &Client,
    kind: &ResourceKind,
    namespace: &str,
    object: &Value,
) -> Result<Option<String>, KubeError> {
    let (api, params) = (api(client, kind, namespace), post_params());
    let request = async {
        let object = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
        api.create(&params, &object).await
    };
    let created = call("create", resource(kind), request).await.map_err(|error| with_rbac_hint(error, kind))?;
    Ok(created.metadata.uid)
}

/// Deletes the resource with this UID. It is not an error if it no longer exists or was replaced.
pub(super) async fn delete(
    client: &Client,
    kind: &ResourceKind,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<(), KubeError> {
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    match call("delete", resource(kind), api(client, kind, namespace).delete(name, &params)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        Err(error) => Err(with_rbac_hint(error, kind)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::k8s::fake;
    use crate::k8s::fake::Call;
    use serde_json::json;

    const WORKFLOWS: &str = "/apis/argoproj.io/v1alpha1/namespaces/ops/workflows";

    fn kind() -> ResourceKind {
        let [group, version, kind, plural] = ["argoproj.io", "v1alpha1", "Workflow", "workflows"].map(str::to_owned);
        ResourceKind { group, version, kind, plural }
    }

    fn groups(names: &[&str]) -> (u16, Value) {
        let version = |name: &str| json!({"groupVersion": format!("{name}/v1alpha1"), "version": "v1alpha1"});
        let one = |name: &&str| json!({"name": name, "versions": [version(name)], "preferredVersion": version(name)});
        (200, json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": names.iter().map(one).collect::<Vec<_>>()}))
    }

    fn served_by(known: &'static [&'static str], response: fn() -> (u16, Value)) -> Client {
        fake::client(move |call| match call.route() {
            ("GET", "/apis") => groups(known),
            ("GET", "/apis/argoproj.io/v1alpha1") => response(),
            other => panic!("{other:?}"),
        })
    }

    fn resources() -> (u16, Value) {
        let one = |name: &str, kind: &str, namespaced: bool| json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": []});
        let all =
            [one("workflows/status", "Workflow", true), one("workflows", "Workflow", true), one("all", "All", false)];
        (
            200,
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "argoproj.io/v1alpha1", "resources": all}),
        )
    }

    #[tokio::test]
    async fn kind_is_absent_only_when_the_group_list_says_so() {
        let not_found = || (404, json!("404 page not found"));
        let discover = |client: Client, kind: &'static str| async move {
            discover_kind(&client, "argoproj.io", "v1alpha1", kind).await
        };
        let found = discover(served_by(&[], resources), "Workflow").await.unwrap();
        assert_eq!(found, Some(DiscoveredKind { plural: "workflows".into(), namespaced: true }));
        assert_eq!(discover(served_by(&[], resources), "CronWorkflow").await.unwrap(), None);
        assert_eq!(discover(served_by(&["other.io"], not_found), "Workflow").await.unwrap(), None);
        assert!(discover(served_by(&["argoproj.io"], not_found), "Workflow").await.is_err(), "unknown is not absent");
        let down = fake::client(|_| fake::failure(500, "InternalError", "down"));
        assert!(discover(down, "Workflow").await.is_err());
    }

    #[tokio::test]
    async fn only_resources_of_the_scaling_group_are_kept_from_all_pages() {
        let item = |name: &str, scope: &str| json!({"metadata": {"name": name, "annotations": {annotation::UPGRADE_SCOPE: scope}}});
        let client = fake::client(move |call| {
            assert_eq!(call.route(), ("GET", WORKFLOWS));
            let (items, next) = match call.query.contains("continue=more") {
                true => (vec![item("c", "mine")], ""),
                false => (vec![item("a", "mine"), item("b", "theirs"), json!({"metadata": {"name": "d"}})], "more"),
            };
            (
                200,
                json!({"kind": "WorkflowList", "apiVersion": "argoproj.io/v1alpha1", "metadata": {"continue": next}, "items": items}),
            )
        });
        let found = list(&client, &kind(), "ops", "mine").await.unwrap();
        let names: Vec<_> =
            found.iter().map(|object| object["metadata"]["name"].as_str().unwrap_or_default()).collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[tokio::test]
    async fn missing_permission_names_verb_resource_and_label() {
        let client = fake::client(|_| fake::failure(403, "Forbidden", "no"));
        let object = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "a"}});
        let kind = kind();
        let errors = [
            get(&client, &kind, "ops", "a").await.unwrap_err(),
            list(&client, &kind, "ops", "mine").await.unwrap_err(),
            create(&client, &kind, "ops", &object).await.unwrap_err(),
            delete(&client, &kind, "ops", "a", "u1").await.unwrap_err(),
        ];
        for (error, verb) in errors.iter().zip(["get", "list", "create", "delete"]) {
            let text = error.to_string();
            assert!(text.starts_with(&format!("not allowed to {verb} workflows.argoproj.io: no")), "{text}");
            assert!(text.contains(label::AGGREGATE_TO_STRATEGIES), "{text}");
        }
    }

    #[tokio::test]
    async fn only_the_observed_uid_is_deleted() {
        let seen = Arc::new(Mutex::new(Vec::<Call>::new()));
        let calls = seen.clone();
        let client = fake::client(move |call| {
            calls.lock().unwrap().push(call);
            fake::failure(409, "Conflict", "another UID")
        });
        delete(&client, &kind(), "ops", "a", "u1").await.unwrap();
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].body["preconditions"], json!({"uid": "u1"}));
        assert_eq!(seen[0].body["propagationPolicy"], json!("Background"));
    }
}
