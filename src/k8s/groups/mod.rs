//! Writes to InstanceGroups, events about them, and reads of lock-upgrades.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ObjectReference};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::error::call;
use super::{EventKind, EventTarget, FIELD_MANAGER, KubeError, KubeEvent};
use crate::api::names::{CONFIG_MAP, FINALIZER, GROUP, VERSION};
use crate::lock::{ConfigMapLock, Locks, is_locked};

const MAX_NOTE_BYTES: usize = 1024;

fn resource() -> ApiResource {
    ApiResource {
        group: GROUP.into(),
        version: VERSION.into(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "InstanceGroup".into(),
        plural: "instancegroups".into(),
    }
}

fn api(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource())
}

/// Parameters of patches. They name the field manager, so that status writes of another controller can be distinguished
/// from writes of this one.
pub(super) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

pub(super) fn post_params() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

pub(super) async fn patch_status(
    client: &Client,
    namespace: &str,
    name: &str,
    resource_version: &str,
    status: Value,
) -> Result<String, KubeError> {
    let patch = Patch::Merge(json!({
        "metadata": {"resourceVersion": resource_version},
        "status": status,
    }));
    let api = api(client, namespace);
    let params = patch_params();
    let request = api.patch_status(name, &params, &patch);
    let group = call("patch", "instancegroups/status", request).await?;
    Ok(group.resource_version().unwrap_or_default())
}

/// The operations that add the controller's finalizer. Their tests fail if the list changed since it was read.
fn add_finalizer_patch(resource_version: &str, present: &[String]) -> Value {
    if present.is_empty() {
        return json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": resource_version},
            {"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]},
        ]);
    }
    json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": resource_version},
        {"op": "test", "path": "/metadata/finalizers", "value": present},
        {"op": "add", "path": "/metadata/finalizers/-", "value": FINALIZER},
    ])
}

/// The operations that remove the controller's finalizer; `None` when it is not present. Their tests fail if another group has
/// the name by now.
fn remove_finalizer_patch(uid: &str, present: &[String]) -> Option<Value> {
    let index = present.iter().position(|name| name == FINALIZER)?;
    let path = format!("/metadata/finalizers/{index}");
    Some(json!([
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": path, "value": FINALIZER},
        {"op": "remove", "path": path},
    ]))
}

async fn patch_json(
    client: &Client,
    namespace: &str,
    name: &str,
    operations: Value,
) -> Result<DynamicObject, KubeError> {
    // The operations are always well-formed, so parsing them cannot fail.
    let operations = serde_json::from_value(operations).map_err(kube::Error::SerdeError);
    let api = api(client, namespace);
    let request = async {
        let patch = Patch::Json::<()>(operations?);
        api.patch(name, &patch_params(), &patch).await
    };
    call("patch", "instancegroups", request).await.map_err(KubeError::failed_test_is_conflict)
}

pub(super) async fn add_finalizer(
    client: &Client,
    namespace: &str,
    name: &str,
    resource_version: &str,
    present: &[String],
) -> Result<String, KubeError> {
    if present.iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(resource_version.to_owned());
    }
    let operations = add_finalizer_patch(resource_version, present);
    let group = patch_json(client, namespace, name, operations).await?;
    Ok(group.resource_version().unwrap_or_default())
}

pub(super) async fn remove_finalizer(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
    present: &[String],
) -> Result<(), KubeError> {
    let Some(operations) = remove_finalizer_patch(uid, present) else {
        return Ok(());
    };
    match patch_json(client, namespace, name, operations).await {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

/// Truncates a note at the API server's limit, between two characters.
fn truncate_note(note: &str) -> String {
    const MARK: &str = "...";
    if note.len() <= MAX_NOTE_BYTES {
        return note.to_owned();
    }
    let cut = note.floor_char_boundary(MAX_NOTE_BYTES - MARK.len());
    format!("{}{MARK}", &note[..cut])
}

pub(super) async fn publish(
    client: &Client,
    identity: &str,
    target: &EventTarget,
    event: &KubeEvent,
) -> Result<(), KubeError> {
    let now = Timestamp::now();
    let namespace = target.namespace.as_deref().unwrap_or("default");
    let distinction = event.once.clone().unwrap_or_else(|| format!("{:x}", now.as_nanosecond()));
    let object = Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{distinction}", target.name)),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        type_: Some(
            match event.kind {
                EventKind::Normal => "Normal",
                EventKind::Warning => "Warning",
            }
            .to_owned(),
        ),
        reason: Some(event.reason.clone()),
        action: Some(event.action.clone()),
        note: Some(truncate_note(&event.note)),
        regarding: Some(ObjectReference {
            api_version: Some(target.api_version.clone()),
            kind: Some(target.kind.clone()),
            namespace: target.namespace.clone(),
            name: Some(target.name.clone()),
            uid: Some(target.uid.clone()),
            ..ObjectReference::default()
        }),
        reporting_controller: Some(FIELD_MANAGER.to_owned()),
        reporting_instance: Some(identity.to_owned()),
        ..Event::default()
    };
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    match call("create", "events", api.create(&post_params(), &object)).await {
        Err(error) if error.is_not_found() || error.has_cause("NamespaceTerminating") => Ok(()),
        Err(error) if error.is_conflict() && event.once.is_some() => Ok(()),
        other => other.map(drop),
    }
}

fn has_lock(metadata: &ObjectMeta) -> bool {
    metadata.annotations.as_ref().is_some_and(is_locked)
}

pub(super) async fn group_version(client: &Client, namespace: &str, name: &str) -> Result<Option<String>, KubeError> {
    let found = call("get", "instancegroups", api(client, namespace).get_metadata_opt(name)).await?;
    Ok(found.and_then(|group| group.resource_version()))
}

pub(super) async fn group_deletion(client: &Client, namespace: &str, name: &str) -> Result<Option<String>, KubeError> {
    let found = call("get", "instancegroups", api(client, namespace).get_metadata_opt(name)).await?;
    Ok(found.filter(|group| group.metadata.deletion_timestamp.is_some()).and_then(|group| group.uid()))
}

pub(super) async fn locks(
    client: &Client,
    namespace: &str,
    group: &str,
    config_namespace: &str,
) -> Result<Locks, KubeError> {
    let groups = api(client, namespace);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), config_namespace);
    let (group, namespace, map) = futures::try_join!(
        call("get", "instancegroups", groups.get_metadata(group)),
        call("get", "namespaces", namespaces.get_metadata(namespace)),
        call("get", "configmaps", maps.get_metadata_opt(CONFIG_MAP)),
    )?;
    Ok(Locks {
        group: has_lock(&group.metadata),
        namespace: has_lock(&namespace.metadata),
        config_map: map.map_or(ConfigMapLock::None, |map| ConfigMapLock::of(map.annotations())),
    })
}

#[cfg(test)]
mod tests;
