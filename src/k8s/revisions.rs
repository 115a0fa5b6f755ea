//! Stored revisions of the boundaries.

use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, ValidationDirective};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::error::call;
use super::groups::{patch_params, post_params};
use super::{KubeError, strategy};
use crate::api::BoundariesRevision;
use crate::api::names::{GROUP, VERSION};

const RESOURCE: &str = "boundariesrevisions";

fn api(client: &Client, namespace: &str) -> Api<BoundariesRevision> {
    Api::namespaced(client.clone(), namespace)
}

/// Lists the revisions; `None` when the API server does not serve the kind. Its 404 for an unknown kind has no reason
/// and is not `NotFound`, so a discovery request decides.
pub(super) async fn list(client: &Client, namespace: &str) -> Result<Option<Vec<BoundariesRevision>>, KubeError> {
    let listed = call("list", RESOURCE, api(client, namespace).list(&ListParams::default())).await;
    match listed {
        Ok(found) => Ok(Some(found.items)),
        Err(error) => match strategy::discover_kind(client, GROUP, VERSION, "BoundariesRevision").await? {
            None => Ok(None),
            Some(_) => Err(error),
        },
    }
}

pub(super) async fn create(client: &Client, revision: &BoundariesRevision) -> Result<(), KubeError> {
    let (api, params) = (api(client, &revision.namespace().unwrap_or_default()), post_params());
    if !revision.spec.images.is_empty() {
        // The API server silently drops a field that an older definition does not have.
        let params = PostParams { dry_run: true, ..params.clone() };
        let stored = call("create", RESOURCE, api.create(&params, revision)).await?;
        if stored.spec.images != revision.spec.images {
            let message = "its definition has no spec.images: apply the CustomResourceDefinitions of this release";
            return Err(KubeError::Invalid {
                verb: "create",
                resource: RESOURCE.into(),
                message: message.to_owned(),
                source: message.into(),
            });
        }
    }
    call("create", RESOURCE, api.create(&params, revision)).await.map(drop)
}

pub(super) async fn patch_status(
    client: &Client,
    namespace: &str,
    name: &str,
    resource_version: &str,
    status: Value,
) -> Result<(), KubeError> {
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": resource_version}, "status": status}));
    // Otherwise a field that an older definition does not have would be written again and again.
    let field_validation = Some(ValidationDirective::Strict);
    let (api, params) = (api(client, namespace), PatchParams { field_validation, ..patch_params() });
    call("patch", "boundariesrevisions/status", api.patch_status(name, &params, &patch)).await.map(drop)
}

pub(super) async fn delete(client: &Client, namespace: &str, name: &str, uid: &str) -> Result<(), KubeError> {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let api = api(client, namespace);
    match call("delete", RESOURCE, api.delete(name, &params)).await {
        // Another object has the name: the one that was meant is gone.
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::k8s::fake;

    const LIST: (&str, &str) = ("GET", "/apis/instancemgr.keikoproj.io/v1alpha1/namespaces/im/boundariesrevisions");
    const DISCOVERY: (&str, &str) = ("GET", "/apis/instancemgr.keikoproj.io/v1alpha1");

    /// An API server that answers the list with `list`, and that serves these kinds.
    fn cluster(list: (u16, serde_json::Value), kinds: &'static [&'static str]) -> Client {
        fake::client(move |call| match call.route() {
            LIST => list.clone(),
            DISCOVERY => {
                let resource = |kind: &&str| json!({"name": kind.to_lowercase() + "s", "singularName": "", "kind": kind, "namespaced": true, "verbs": []});
                let resources: Vec<_> = kinds.iter().map(resource).collect();
                (
                    200,
                    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "instancemgr.keikoproj.io/v1alpha1", "resources": resources}),
                )
            }
            other => panic!("unexpected call: {other:?}"),
        })
    }

    /// Without its definition, the controller must work as before; with an answer that is missing, it must not begin a
    /// second history.
    #[tokio::test]
    async fn only_a_kind_that_is_not_served_means_no_store() {
        let kinds: &[&str] = &["InstanceGroup", "BoundariesRevision"];
        let not_served = (404, json!("404 page not found"));
        assert_eq!(list(&cluster(not_served.clone(), &["InstanceGroup"]), "im").await.unwrap(), None);
        assert!(list(&cluster(not_served, kinds), "im").await.is_err());
        assert!(list(&cluster(fake::failure(403, "Forbidden", "no"), kinds), "im").await.is_err());
        let empty = json!({"apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "BoundariesRevisionList", "metadata": {}, "items": []});
        assert_eq!(list(&cluster((200, empty), kinds), "im").await.unwrap(), Some(vec![]));
    }

    #[tokio::test]
    async fn only_the_revision_that_was_meant_is_deleted() {
        let client = fake::client(|call| {
            assert_eq!((call.method.as_str(), &call.body["preconditions"]["uid"]), ("DELETE", &json!("uid-1")));
            fake::failure(409, "Conflict", "the UID in the precondition does not match")
        });
        delete(&client, "im", "r1", "uid-1").await.unwrap();
    }
}
