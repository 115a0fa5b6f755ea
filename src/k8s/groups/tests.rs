use std::sync::{Arc, Mutex};

use super::*;
use crate::api::names::annotation;
use crate::k8s::fake;
use crate::k8s::fake::Call;

const PATH: &str = "/apis/instancemgr.keikoproj.io/v1alpha1/namespaces/team/instancegroups/web";

/// A cluster that responds to every write with version 8 and records the write.
fn cluster() -> (Client, Arc<Mutex<Vec<Call>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = calls.clone();
    let client = fake::client(move |call| {
        seen.lock().unwrap().push(call.clone());
        if call.method == "POST" {
            return (201, call.body);
        }
        let body = json!({"apiVersion": "instancemgr.keikoproj.io/v1alpha1",
            "kind": "InstanceGroup", "metadata": {"name": "web", "resourceVersion": "8"}});
        (200, body)
    });
    (client, calls)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn status_is_patched_at_the_version_read() {
    let (client, calls) = cluster();
    let status = json!({"currentState": "Ready", "lifecycle": null});
    let version = patch_status(&client, "team", "web", "7", status).await;
    assert_eq!(version.unwrap(), "8");
    let calls = calls.lock().unwrap();
    assert_eq!(calls[0].route(), ("PATCH", format!("{PATH}/status").as_str()));
    let expected = json!({"metadata": {"resourceVersion": "7"},
        "status": {"currentState": "Ready", "lifecycle": null}});
    assert_eq!(calls[0].body, expected);
}

#[tokio::test]
async fn version_is_read_from_the_api_server() {
    let (client, calls) = cluster();
    assert_eq!(group_version(&client, "team", "web").await.unwrap().as_deref(), Some("8"));
    assert_eq!(calls.lock().unwrap()[0].route(), ("GET", PATH));
    let client = fake::client(|_| fake::failure(404, "NotFound", "no such group"));
    assert_eq!(group_version(&client, "team", "web").await.unwrap(), None);
}

#[tokio::test]
async fn first_finalizer_creates_the_list() {
    let (client, calls) = cluster();
    let version = add_finalizer(&client, "team", "web", "7", &[]).await;
    assert_eq!(version.unwrap(), "8");
    let calls = calls.lock().unwrap();
    assert_eq!(calls[0].route(), ("PATCH", PATH));
    assert_eq!(calls[0].content_type, "application/json-patch+json");
    assert_eq!(
        calls[0].body,
        json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]},
        ])
    );
}

#[tokio::test]
async fn finalizer_is_appended_to_existing_ones() {
    let (client, calls) = cluster();
    let present = names(&["a/b"]);
    add_finalizer(&client, "team", "web", "7", &present).await.unwrap();
    let body = &calls.lock().unwrap()[0].body;
    assert_eq!(body[1], json!({"op": "test", "path": "/metadata/finalizers", "value": ["a/b"]}));
    let add = json!({"op": "add", "path": "/metadata/finalizers/-", "value": FINALIZER});
    assert_eq!(body[2], add);
}

#[tokio::test]
async fn existing_finalizer_is_not_added_again() {
    let (client, calls) = cluster();
    let present = names(&[FINALIZER]);
    let version = add_finalizer(&client, "team", "web", "7", &present).await;
    assert_eq!(version.unwrap(), "7");
    assert_eq!(calls.lock().unwrap().len(), 0);
}

/// A process that was paused before this write must not take the finalizer of a group that was created since under the name: a
/// deletion would leave what it has in AWS.
#[tokio::test]
async fn only_own_finalizer_is_removed_at_its_index() {
    let (client, calls) = cluster();
    let present = names(&["a/b", FINALIZER, "c/d"]);
    remove_finalizer(&client, "team", "web", "u1", &present).await.unwrap();
    assert_eq!(
        calls.lock().unwrap()[0].body,
        json!([
            {"op": "test", "path": "/metadata/uid", "value": "u1"},
            {"op": "test", "path": "/metadata/finalizers/1", "value": FINALIZER},
            {"op": "remove", "path": "/metadata/finalizers/1"},
        ])
    );
}

#[tokio::test]
async fn foreign_finalizers_cause_no_write() {
    let (client, calls) = cluster();
    remove_finalizer(&client, "team", "web", "u1", &names(&["a/b"])).await.unwrap();
    assert_eq!(calls.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn changed_finalizers_are_a_conflict_and_a_missing_group_is_success() {
    let present = names(&[FINALIZER]);
    let changed = fake::client(|_| fake::failure(422, "Invalid", "test failed"));
    let error = remove_finalizer(&changed, "team", "web", "u1", &present).await.unwrap_err();
    assert!(error.is_conflict());
    let gone = fake::client(|_| fake::failure(404, "NotFound", "no such group"));
    remove_finalizer(&gone, "team", "web", "u1", &present).await.unwrap();
}

fn event_target() -> EventTarget {
    EventTarget {
        api_version: "instancemgr.keikoproj.io/v1alpha1".into(),
        kind: "InstanceGroup".into(),
        namespace: Some("team".into()),
        name: "web".into(),
        uid: "u1".into(),
    }
}

fn event(note: &str) -> KubeEvent {
    KubeEvent {
        kind: EventKind::Warning,
        reason: "DrainBlocked".into(),
        action: "Drain".into(),
        note: note.into(),
        once: None,
    }
}

/// A process that is killed before it records what it published is followed by one that publishes it again.
#[tokio::test]
async fn event_that_must_be_published_once_has_the_same_name_each_time() {
    let once = KubeEvent { once: Some("rejected-7".into()), ..event("x") };
    let client = fake::client(|call| {
        assert_eq!(call.body["metadata"]["name"], "web.rejected-7");
        fake::failure(409, "AlreadyExists", "it exists")
    });
    publish(&client, "pod-2", &event_target(), &once).await.unwrap();
    let client = fake::client(|_| fake::failure(409, "AlreadyExists", "it exists"));
    assert!(publish(&client, "pod-2", &event_target(), &event("x")).await.is_err(), "another event is lost");
}

#[tokio::test]
async fn event_names_its_object_and_its_reporter() {
    let (client, calls) = cluster();
    publish(&client, "pod-1", &event_target(), &event("A budget blocks it.")).await.unwrap();
    let calls = calls.lock().unwrap();
    let route = ("POST", "/apis/events.k8s.io/v1/namespaces/team/events");
    assert_eq!(calls[0].route(), route);
    let body = &calls[0].body;
    assert_eq!(body["type"], "Warning");
    assert_eq!(body["note"], "A budget blocks it.");
    assert_eq!(body["regarding"]["uid"], "u1");
    assert_eq!(body["reportingController"], FIELD_MANAGER);
    assert_eq!(body["reportingInstance"], "pod-1");
}

#[tokio::test]
async fn terminating_namespace_may_reject_events() {
    for (code, reason, cause, accepted) in
        [(403, "Forbidden", "NamespaceTerminating", true), (404, "NotFound", "", true), (403, "Forbidden", "", false)]
    {
        let client = fake::client(move |_| fake::failure_with_cause(code, reason, cause, "denied"));
        let result = publish(&client, "pod-1", &event_target(), &event("x")).await;
        assert_eq!(result.is_ok(), accepted, "{reason} {cause}");
    }
}

#[test]
fn long_note_is_truncated_between_characters() {
    let note = truncate_note(&"ä".repeat(600));
    assert!(note.len() <= MAX_NOTE_BYTES && note.len() > MAX_NOTE_BYTES - 4);
    assert!(note.ends_with("ä..."));
    assert_eq!(truncate_note("short"), "short");
}

/// A cluster whose three objects have the given values of lock-upgrades.
fn client_with_locks(group: &'static str, namespace: &'static str, map: Option<&'static str>) -> Client {
    fake::client(move |call| {
        let value = match call.path.as_str() {
            PATH => Some(group),
            "/api/v1/namespaces/team" => Some(namespace),
            "/api/v1/namespaces/im/configmaps/instance-manager" => map,
            other => panic!("unexpected read of {other}"),
        };
        let Some(value) = value else {
            return fake::failure(404, "NotFound", "no such map");
        };
        let body = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"name": "x", "annotations": {annotation::LOCK_UPGRADES: value}}});
        (200, body)
    })
}

#[tokio::test]
async fn lock_is_read_from_each_of_three_objects() {
    for (client, expected) in [
        (client_with_locks("false", "", None), [false, false, false]),
        (client_with_locks("true", "", None), [true, false, false]),
        (client_with_locks("", "True", Some("no")), [false, true, false]),
        (client_with_locks("", "", Some("true")), [false, false, true]),
    ] {
        let locks = locks(&client, "team", "web", "im").await.unwrap();
        assert_eq!([locks.group, locks.namespace, locks.config_map == ConfigMapLock::Present], expected);
    }
}

#[tokio::test]
async fn unreadable_lock_is_an_error() {
    let client = fake::client(|call| match call.path.as_str() {
        "/api/v1/namespaces/im/configmaps/instance-manager" => fake::failure(503, "ServiceUnavailable", "away"),
        _ => (
            200,
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"name": "x"}}),
        ),
    });
    let error = locks(&client, "team", "web", "im").await.unwrap_err();
    assert_eq!(error.class(), "Unavailable");
}
