//! The two ConfigMaps that the controller writes: aws-auth and the last known good boundaries.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch};
use kube::core::ObjectMeta;
use kube::{Client, ResourceExt};
use serde_json::json;

use super::error::call;
use super::groups::{patch_params, post_params};
use super::{AwsAuthMap, KubeError, ReportedRejections};
use crate::api::names::LAST_KNOWN_GOOD_CONFIG_MAP;

const AWS_AUTH_NAMESPACE: &str = "kube-system";
const AWS_AUTH_NAME: &str = "aws-auth";
const MAP_ROLES: &str = "mapRoles";
/// Annotation of the last known good boundaries: the revision whose effect on groups was reported.
const REJECTIONS_REPORTED: &str = "instancemgr.keikoproj.io/rejections-reported";

fn config_map_api(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

fn config_map(namespace: &str, name: &str, data: BTreeMap<String, String>) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..ConfigMap::default()
    }
}

async fn create(client: &Client, map: &ConfigMap) -> Result<(), KubeError> {
    let namespace = map.namespace().unwrap_or_default();
    let maps = config_map_api(client, &namespace);
    let params = post_params();
    let request = maps.create(&params, map);
    call("create", "configmaps", request).await.map(drop)
}

pub(super) async fn aws_auth(client: &Client) -> Result<Option<AwsAuthMap>, KubeError> {
    let maps = config_map_api(client, AWS_AUTH_NAMESPACE);
    let found = call("get", "configmaps", maps.get_opt(AWS_AUTH_NAME)).await?;
    Ok(found.map(|map| AwsAuthMap {
        resource_version: map.resource_version().unwrap_or_default(),
        is_immutable: map.immutable == Some(true),
        map_roles: map.data.and_then(|mut data| data.remove(MAP_ROLES)),
    }))
}

/// Writes a merge patch at a resourceVersion. The API server rejects it when another writer was faster, and all other
/// keys stay byte for byte the same.
pub(super) async fn update_aws_auth(client: &Client, resource_version: &str, map_roles: &str) -> Result<(), KubeError> {
    let patch = Patch::Merge(json!({
        "metadata": {"resourceVersion": resource_version},
        "data": {MAP_ROLES: map_roles},
    }));
    let maps = config_map_api(client, AWS_AUTH_NAMESPACE);
    let params = patch_params();
    let request = maps.patch(AWS_AUTH_NAME, &params, &patch);
    call("patch", "configmaps", request).await.map(drop)
}

pub(super) async fn create_aws_auth(client: &Client, map_roles: &str) -> Result<(), KubeError> {
    let data = BTreeMap::from([(MAP_ROLES.to_owned(), map_roles.to_owned())]);
    create(client, &config_map(AWS_AUTH_NAMESPACE, AWS_AUTH_NAME, data)).await
}

pub(super) async fn last_known_good(
    client: &Client,
    namespace: &str,
) -> Result<Option<BTreeMap<String, String>>, KubeError> {
    let maps = config_map_api(client, namespace);
    let found = call("get", "configmaps", maps.get_opt(LAST_KNOWN_GOOD_CONFIG_MAP)).await?;
    Ok(found.map(|map| map.data.unwrap_or_default()))
}

pub(super) async fn reported_rejections(client: &Client, namespace: &str) -> Result<ReportedRejections, KubeError> {
    let maps = config_map_api(client, namespace);
    let found = call("get", "configmaps", maps.get_metadata_opt(LAST_KNOWN_GOOD_CONFIG_MAP)).await?;
    Ok(found.map_or_else(ReportedRejections::default, |map| ReportedRejections {
        revision: map.annotations().get(REJECTIONS_REPORTED).cloned(),
        stored_version: map.resource_version(),
    }))
}

pub(super) async fn set_reported_rejections(client: &Client, namespace: &str, revision: &str) -> Result<(), KubeError> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {REJECTIONS_REPORTED: revision}}}));
    let maps = config_map_api(client, namespace);
    let params = patch_params();
    let request = maps.patch_metadata(LAST_KNOWN_GOOD_CONFIG_MAP, &params, &patch);
    call("patch", "configmaps", request).await.map(drop)
}

pub(super) async fn put_last_known_good(
    client: &Client,
    namespace: &str,
    data: &BTreeMap<String, String>,
) -> Result<bool, KubeError> {
    let maps = config_map_api(client, namespace);
    let found = call("get", "configmaps", maps.get_opt(LAST_KNOWN_GOOD_CONFIG_MAP)).await?;
    let Some(mut map) = found else {
        let new = config_map(namespace, LAST_KNOWN_GOOD_CONFIG_MAP, data.clone());
        return create(client, &new).await.map(|()| true);
    };
    if map.data.as_ref() == Some(data) {
        return Ok(false);
    }
    map.data = Some(data.clone());
    // The same revision may come back later, and is reported again then.
    if let Some(annotations) = &mut map.metadata.annotations {
        annotations.remove(REJECTIONS_REPORTED);
    }
    let params = post_params();
    let request = maps.replace(LAST_KNOWN_GOOD_CONFIG_MAP, &params, &map);
    call("update", "configmaps", request).await.map(|_| true)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::Value;

    use super::*;
    use crate::k8s::fake;
    use crate::k8s::fake::Call;

    /// A cluster with at most one ConfigMap, which records the writes.
    fn cluster(map: Option<Value>) -> (Client, Arc<Mutex<Vec<Call>>>) {
        let writes = Arc::new(Mutex::new(Vec::new()));
        let seen = writes.clone();
        let client = fake::client(move |call| match (call.method.as_str(), &map) {
            ("GET", Some(map)) => (200, map.clone()),
            ("GET", None) => fake::failure(404, "NotFound", "no such map"),
            _ => {
                let body = json!({"metadata": {"name": "written"}});
                seen.lock().unwrap().push(call);
                (200, body)
            }
        });
        (client, writes)
    }

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        owned.collect()
    }

    #[tokio::test]
    async fn aws_auth_is_read_with_its_version() {
        let map = json!({"metadata": {"name": "aws-auth", "resourceVersion": "5"},
            "data": {"mapRoles": "roles", "mapUsers": "users"}});
        let (client, _) = cluster(Some(map));
        let expected =
            AwsAuthMap { map_roles: Some("roles".into()), resource_version: "5".into(), is_immutable: false };
        assert_eq!(aws_auth(&client).await.unwrap(), Some(expected));
    }

    #[tokio::test]
    async fn only_not_found_means_aws_auth_is_absent() {
        let (client, _) = cluster(None);
        assert_eq!(aws_auth(&client).await.unwrap(), None);
        let broken = fake::client(|_| fake::failure(500, "InternalError", "etcd"));
        assert_eq!(aws_auth(&broken).await.unwrap_err().class(), "Unavailable");
        let proxy = fake::client(|_| (404, json!("page not found")));
        assert_eq!(aws_auth(&proxy).await.unwrap_err().class(), "Unavailable");
    }

    #[tokio::test]
    async fn aws_auth_update_patches_one_key_at_one_version() {
        let (client, writes) = cluster(None);
        update_aws_auth(&client, "5", "- rolearn: x\n").await.unwrap();
        let writes = writes.lock().unwrap();
        let route = ("PATCH", "/api/v1/namespaces/kube-system/configmaps/aws-auth");
        assert_eq!(writes[0].route(), route);
        let expected = json!({"metadata": {"resourceVersion": "5"},
            "data": {"mapRoles": "- rolearn: x\n"}});
        assert_eq!(writes[0].body, expected);
    }

    #[tokio::test]
    async fn stored_revision_is_not_written_again() {
        let map = json!({"metadata": {"name": "last", "resourceVersion": "3"},
            "data": {"boundaries": "a"}});
        let (client, writes) = cluster(Some(map));
        put_last_known_good(&client, "im", &data(&[("boundaries", "a")])).await.unwrap();
        assert_eq!(writes.lock().unwrap().len(), 0);
        put_last_known_good(&client, "im", &data(&[("boundaries", "b")])).await.unwrap();
        let writes = writes.lock().unwrap();
        assert_eq!(writes.len(), 1);
        assert_eq!(writes[0].method, "PUT");
        assert_eq!(writes[0].body["metadata"]["resourceVersion"], "3");
        assert_eq!(writes[0].body["data"], json!({"boundaries": "b"}));
    }

    /// When the revision comes back, its effect on groups is reported again.
    #[tokio::test]
    async fn rejections_of_another_revision_are_not_yet_reported() {
        let metadata = json!({
            "name": LAST_KNOWN_GOOD_CONFIG_MAP, "namespace": "im", "resourceVersion": "3",
            "annotations": {REJECTIONS_REPORTED: "r1", "kept": "yes"},
        });
        let (client, writes) = cluster(Some(json!({"metadata": metadata, "data": {"boundaries": "a"}})));
        let reported = reported_rejections(&client, "im").await.unwrap();
        assert_eq!((reported.revision.as_deref(), reported.stored_version.as_deref()), (Some("r1"), Some("3")));
        put_last_known_good(&client, "im", &data(&[("boundaries", "b")])).await.unwrap();
        set_reported_rejections(&client, "im", "r2").await.unwrap();
        let writes = writes.lock().unwrap();
        assert_eq!(writes[0].body["metadata"]["annotations"], json!({"kept": "yes"}));
        assert_eq!(writes[1].body["metadata"]["annotations"], json!({REJECTIONS_REPORTED: "r2"}));
    }

    #[tokio::test]
    async fn first_revision_creates_the_config_map() {
        let (client, writes) = cluster(None);
        put_last_known_good(&client, "im", &data(&[("defaults", "d")])).await.unwrap();
        let writes = writes.lock().unwrap();
        assert_eq!(writes[0].route(), ("POST", "/api/v1/namespaces/im/configmaps"));
        assert_eq!(writes[0].body["metadata"]["name"], LAST_KNOWN_GOOD_CONFIG_MAP);
    }
}
