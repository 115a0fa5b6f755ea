use std::sync::{Arc, Mutex};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use super::super::budgets::PodBudget;
use super::*;
use crate::k8s::fake;
use crate::k8s::fake::Call;

const POD: &str = "/api/v1/namespaces/team/pods/web-1";
const EVICTION: &str = "/api/v1/namespaces/team/pods/web-1/eviction";
const BUDGETS: &str = "/apis/policy/v1/namespaces/team/poddisruptionbudgets";

fn list_of(items: Vec<Value>) -> (u16, Value) {
    (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
}

fn pod(uid: &str) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "web-1", "namespace": "team", "uid": uid, "labels": {"app": "web"}}})
}

fn budget(name: &str, selector: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"selector": selector}})
}

/// One pod of each kind, and a finished one.
fn pods_of_each_kind() -> Vec<Value> {
    let owner = |kind: &str| {
        json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o",
        "uid": format!("uid-{kind}"), "controller": true}])
    };
    vec![
        json!({"metadata": {"name": "ds", "namespace": "kube-system", "uid": "1",
                "ownerReferences": owner("DaemonSet")},
            "spec": {"containers": []}, "status": {"phase": "Running"}}),
        json!({"metadata": {"name": "static", "namespace": "kube-system", "uid": "2",
                "annotations": {MIRROR_ANNOTATION: "x"}, "ownerReferences": owner("Node")},
            "spec": {"containers": []}, "status": {"phase": "Running"}}),
        json!({"metadata": {"name": "bare", "namespace": "team", "uid": "3"},
            "spec": {"containers": []},
            "status": {"phase": "Running"}}),
        json!({"metadata": {"name": "web", "namespace": "team", "uid": "4",
                "deletionTimestamp": "2026-01-01T00:00:30Z",
                "ownerReferences": owner("ReplicaSet")},
            "spec": {"containers": [], "terminationGracePeriodSeconds": 5},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
        json!({"metadata": {"name": "job", "namespace": "team", "uid": "5",
                "ownerReferences": owner("Job")},
            "spec": {"containers": []}, "status": {"phase": "Succeeded"}}),
    ]
}

#[tokio::test]
async fn pods_of_a_node_are_selected_by_the_api_server_page_by_page() {
    let client = fake::client(|call| {
        assert!(call.query.contains("fieldSelector=spec.nodeName%3Dn1"));
        assert!(call.query.contains("limit=500"));
        let all = pods_of_each_kind();
        let (items, next) =
            if call.query.contains("continue=more") { (all[2..].to_vec(), "") } else { (all[..2].to_vec(), "more") };
        let body = json!({"kind": "PodList", "apiVersion": "v1",
            "metadata": {"continue": next}, "items": items});
        (200, body)
    });
    let pods = on_node(&client, "n1").await.unwrap();
    let kinds: Vec<_> = pods.iter().map(|pod| (pod.name.as_str(), pod.kind)).collect();
    let expected = [
        ("ds", PodKind::DaemonSet),
        ("static", PodKind::Mirror),
        ("bare", PodKind::Unmanaged),
        ("web", PodKind::Owned),
        ("job", PodKind::Owned),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn pod_info_has_owner_grace_period_and_deletion_time() {
    let all = pods_of_each_kind();
    let web = PodInfo::from(&serde_json::from_value(all[3].clone()).unwrap());
    assert_eq!(web.grace_seconds, 5);
    assert_eq!(web.owner_uid.as_deref(), Some("uid-ReplicaSet"));
    assert_eq!(web.deletion_timestamp, Some("2026-01-01T00:00:30Z".parse().unwrap()));
    let bare = PodInfo::from(&serde_json::from_value(all[2].clone()).unwrap());
    assert_eq!((bare.grace_seconds, bare.owner_kind), (30, None));
}

#[tokio::test]
async fn eviction_has_the_pod_uid_as_precondition() {
    let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
    let seen = calls.clone();
    let client = fake::client(move |call| {
        seen.lock().unwrap().push(call);
        (201, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
    });
    let outcome = evict(&client, "team", "web-1", "u1").await.unwrap();
    assert_eq!(outcome, EvictOutcome::Evicted);
    let calls = calls.lock().unwrap();
    assert_eq!(calls[0].route(), ("POST", EVICTION));
    assert_eq!(calls[0].body["kind"], "Eviction");
    assert_eq!(calls[0].body["deleteOptions"]["preconditions"], json!({"uid": "u1"}));
}

/// A cluster that responds to the eviction with `response`, with one pod and four budgets.
fn client_blocking_evictions(response: (u16, Value), uid: &'static str) -> Client {
    client_with_right(true, response, uid)
}

/// A client whose evictions get this response; RBAC allows them or not.
fn client_with_right(is_allowed: bool, response: (u16, Value), uid: &'static str) -> Client {
    fake::client(move |call| match call.route() {
        ("POST", EVICTION) => response.clone(),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews") => {
            (201, json!({"spec": {}, "status": {"allowed": is_allowed}}))
        }
        ("GET", POD) => (200, pod(uid)),
        ("GET", BUDGETS) => list_of(vec![
            budget("other", json!({"matchLabels": {"app": "db"}})),
            budget("web", json!({"matchLabels": {"app": "web"}})),
            budget("everything", json!({})),
            budget("nothing", Value::Null),
        ]),
        route => panic!("unexpected call {route:?}"),
    })
}

#[tokio::test]
async fn blocked_eviction_names_selecting_budgets() {
    let cause = "DisruptionBudget";
    for response in [
        fake::failure_with_cause(429, "TooManyRequests", cause, "needs 3 healthy pods"),
        fake::failure(500, "", "whatever the API server says of two budgets"),
    ] {
        let client = client_blocking_evictions(response, "u1");
        let outcome = evict(&client, "team", "web-1", "u1").await.unwrap();
        let EvictOutcome::Blocked(blocker) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(blocker.cause.contains("web, everything") && blocker.remedy.contains("keep one"), "{blocker:?}");
    }
}

/// A failure of the API server must not read as a budget that the owner of the pod is asked to relax.
#[tokio::test]
async fn unexplained_failure_is_no_budget_without_two_of_them() {
    let answer = |budgets: (u16, Value), uid: &'static str| {
        fake::client(move |call| match call.route() {
            ("POST", EVICTION) => fake::failure(500, "", "etcdserver: This pod has more than one PodDisruptionBudget"),
            ("GET", POD) => (200, pod(uid)),
            ("GET", BUDGETS) => budgets.clone(),
            route => panic!("unexpected call {route:?}"),
        })
    };
    let one = || list_of(vec![budget("web", json!({"matchLabels": {"app": "web"}}))]);
    for budgets in [one(), fake::failure(403, "Forbidden", "no")] {
        evict(&answer(budgets, "u1"), "team", "web-1", "u1").await.expect_err("no error names two budgets");
    }
    assert_eq!(evict(&answer(one(), "u2"), "team", "web-1", "u1").await.unwrap(), EvictOutcome::Gone);
}

/// A budget that needs every replica blocks each drain forever, and its owner learns it from the numbers.
#[test]
fn budget_is_described_with_its_numbers() {
    let described = |spec: Value, (healthy, expected, needed): (i32, i32, i32)| {
        let status = json!({"currentHealthy": healthy, "desiredHealthy": needed, "expectedPods": expected, "disruptionsAllowed": 0});
        let budget = json!({"metadata": {"name": "web"}, "spec": spec, "status": status});
        PodBudget::from(&serde_json::from_value::<PodDisruptionBudget>(budget).unwrap()).describe()
    };
    for (spec, numbers, words, never) in [
        (json!({"minAvailable": 2}), (2, 2, 2), "minAvailable 2; 2 of 2", true),
        (json!({"maxUnavailable": 0}), (3, 3, 3), "maxUnavailable 0; 3 of 3", true),
        (json!({"minAvailable": "50%"}), (1, 2, 1), "minAvailable 50%; 1 of 2", false),
        (json!({"minAvailable": 1}), (0, 0, 0), "minAvailable 1; 0 of 0", false),
    ] {
        let text = described(spec, numbers);
        assert!(text.starts_with("web (") && text.contains(words), "{text}");
        assert_eq!(text.contains("never"), never, "{text}");
    }
}

/// One pod that a webhook protects, or whose namespace is being deleted, must not end the drains of all others. Webhooks
/// choose their codes and texts.
#[tokio::test]
async fn eviction_denied_by_admission_blocks_only_that_pod() {
    let why = "the pod is moved by its operator";
    for response in [
        fake::failure(500, "InternalError", why),
        fake::failure(403, "Forbidden", why),
        fake::failure(400, "", why),
        fake::failure(409, "Conflict", why),
        fake::failure(422, "Invalid", why),
        fake::failure_with_cause(403, "Forbidden", "NamespaceTerminating", "it is being terminated"),
    ] {
        let outcome = evict(&client_blocking_evictions(response.clone(), "u1"), "team", "web-1", "u1").await.unwrap();
        let EvictOutcome::Blocked(blocker) = outcome else { panic!("{response:?}: {outcome:?}") };
        assert!(blocker.cause.starts_with("the API server (") && !blocker.remedy.is_empty(), "{blocker:?}");
    }
}

/// What ends every eviction is the controller's problem, and not that of one pod.
#[tokio::test]
async fn missing_permission_or_an_overloaded_server_is_not_a_blocked_eviction() {
    for (is_allowed, response) in [
        (false, fake::failure(403, "Forbidden", "pods \"web-1\" is forbidden: an admission webhook is not the cause")),
        (true, fake::failure(401, "Unauthorized", "the token has expired")),
        (true, fake::failure(429, "", "Too many requests, please try again later.")),
        (true, fake::failure(503, "ServiceUnavailable", "the API server is shutting down")),
    ] {
        let client = client_with_right(is_allowed, response.clone(), "u1");
        evict(&client, "team", "web-1", "u1").await.expect_err(&format!("{response:?}"));
    }
}

/// An admin would look for a missing permission, and every other drain would stop, because of one budget.
#[tokio::test]
async fn budget_with_a_broken_status_blocks_only_its_pods() {
    let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
    let mut response =
        fake::failure(403, "Forbidden", &format!("poddisruptionbudget.policy \"web\" is forbidden: {why}"));
    response.1["details"] = json!({"group": "policy", "kind": "poddisruptionbudget", "name": "web"});
    let outcome = evict(&client_blocking_evictions(response.clone(), "u1"), "team", "web-1", "u1").await.unwrap();
    let EvictOutcome::Blocked(blocker) = outcome else { panic!("{outcome:?}") };
    assert!(blocker.cause.starts_with("PodDisruptionBudget web") && blocker.cause.contains(why), "{blocker:?}");
    assert!(!blocker.is_by_admission, "{blocker:?}");
    let outcome = evict(&client_blocking_evictions(response.clone(), "u2"), "team", "web-1", "u1").await.unwrap();
    assert_eq!(outcome, EvictOutcome::Gone, "another pod of that name");
    response.1["details"] = json!({"kind": "pods", "name": "web-1"});
    evict(&client_with_right(false, response, "u1"), "team", "web-1", "u1").await.expect_err("a missing permission");
}

/// Evictions of a large application change its budget all the time. The drains of all other pods must continue, and a
/// pod is not gone because its budget is.
#[tokio::test]
async fn budget_that_changes_during_the_eviction_blocks_only_its_pods() {
    let about_budget = |code, reason: &str, message: &str| {
        let mut response = fake::failure(code, reason, message);
        response.1["details"] = json!({"group": "policy", "kind": "poddisruptionbudgets", "name": "web"});
        response
    };
    let mut timeout = fake::failure(504, "Timeout", "whatever the API server says of conflicts");
    timeout.1["details"] = json!({"retryAfterSeconds": 10});
    for (response, words) in [
        (
            about_budget(409, "Conflict", "the object has been modified"),
            ["PodDisruptionBudget web, ", "changes too often"],
        ),
        (timeout, ["says of conflicts", "changes too often"]),
        (about_budget(404, "NotFound", "not found"), ["PodDisruptionBudget web, ", "was deleted"]),
        (about_budget(422, "Invalid", "spec.selector: Invalid value"), ["PodDisruptionBudget web, ", "cannot be used"]),
    ] {
        let outcome = evict(&client_blocking_evictions(response, "u1"), "team", "web-1", "u1").await.unwrap();
        let EvictOutcome::Blocked(blocker) = outcome else { panic!("{outcome:?}") };
        assert!(words.iter().all(|word| blocker.cause.contains(word)) && !blocker.remedy.is_empty(), "{blocker:?}");
    }
    let overloaded = fake::failure(504, "Timeout", "no answer to PodDisruptionBudget's webhook in time");
    evict(&client_blocking_evictions(overloaded, "u1"), "team", "web-1", "u1")
        .await
        .expect_err("it says nothing of a budget");
}

#[test]
fn tolerations_of_a_cordon_are_those_of_the_scheduler() {
    let tolerates = |toleration: Value| tolerates_cordon(&serde_json::from_value(toleration).expect("a toleration"));
    for toleration in [
        json!({"operator": "Exists"}),
        json!({"operator": "Exists", "effect": "NoSchedule"}),
        json!({"key": UNSCHEDULABLE_TAINT, "operator": "Exists"}),
        json!({"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}),
    ] {
        assert!(tolerates(toleration.clone()), "{toleration}");
    }
    for toleration in [
        json!({"operator": "Exists", "effect": "NoExecute"}),
        json!({"key": "dedicated", "operator": "Exists"}),
        json!({"key": UNSCHEDULABLE_TAINT, "value": "x"}),
    ] {
        assert!(!tolerates(toleration.clone()), "{toleration}");
    }
}

#[tokio::test]
async fn eviction_stays_blocked_when_budgets_cannot_be_read() {
    let cause = "DisruptionBudget";
    let client = fake::client(move |call| match call.route() {
        ("POST", EVICTION) => fake::failure_with_cause(429, "TooManyRequests", cause, "blocked by a budget"),
        _ => fake::failure(403, "Forbidden", "no"),
    });
    let outcome = evict(&client, "team", "web-1", "u1").await.unwrap();
    assert_eq!(outcome, EvictOutcome::Blocked(EvictionBlocker::from_budgets(&[])));
}

#[tokio::test]
async fn budget_blocking_a_successor_reports_the_pod_gone() {
    let cause = "DisruptionBudget";
    let response = fake::failure_with_cause(429, "TooManyRequests", cause, "blocked by a budget");
    let outcome = evict(&client_blocking_evictions(response, "u2"), "team", "web-1", "u1").await.unwrap();
    assert_eq!(outcome, EvictOutcome::Gone);
}

#[tokio::test]
async fn throttled_api_server_is_not_a_blocked_eviction() {
    let mut response = fake::failure(429, "TooManyRequests", "slow down");
    response.1["details"] = json!({"retryAfterSeconds": 7});
    let error = evict(&client_blocking_evictions(response, "u1"), "team", "web-1", "u1").await.unwrap_err();
    let seven = std::time::Duration::from_secs(7);
    assert!(
        matches!(&error, KubeError::TooManyRequests { retry_after, .. }
            if *retry_after == Some(seven)),
        "{error:?}"
    );
}

#[tokio::test]
async fn pod_with_same_name_and_other_uid_is_another_pod() {
    let conflict = fake::failure(409, "Conflict", "uid in precondition");
    let client = client_blocking_evictions(conflict.clone(), "u2");
    let outcome = evict(&client, "team", "web-1", "u1").await.unwrap();
    assert_eq!(outcome, EvictOutcome::Gone);
    let outcome = evict(&client_blocking_evictions(conflict, "u1"), "team", "web-1", "u1").await.unwrap();
    assert!(matches!(outcome, EvictOutcome::Blocked(_)), "the same pod: {outcome:?}");
    let absent = fake::failure(404, "NotFound", "no such pod");
    let outcome = evict(&client_blocking_evictions(absent, "u1"), "team", "web-1", "u1").await.unwrap();
    assert_eq!(outcome, EvictOutcome::Gone);
}

#[tokio::test]
async fn missing_evict_permission_is_named() {
    let response = fake::failure(403, "Forbidden", "no");
    let error = evict(&client_with_right(false, response, "u1"), "team", "web-1", "u1").await.unwrap_err();
    assert_eq!(error.to_string(), "not allowed to create pods/eviction: no");
}

#[tokio::test]
async fn deletion_has_uid_and_grace_period() {
    let client = fake::client(|call| {
        assert_eq!(call.route(), ("DELETE", POD));
        let expected = json!({"gracePeriodSeconds": 3, "preconditions": {"uid": "u1"}});
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&call.body[key], value);
        }
        (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
    });
    delete(&client, "team", "web-1", "u1", Some(3)).await.unwrap();
}

#[tokio::test]
async fn only_unschedulable_pods_of_the_owners_count() {
    let pending = |name: &str, owner: &str, reason: &str| {
        json!({"metadata": {"name": name, "namespace": "team", "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": owner,
                 "controller": true}]},
            "spec": {"containers": []},
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": reason,
                 "message": "0/3 nodes are available"}]}})
    };
    let client = fake::client(move |_| {
        list_of(vec![
            pending("a", "mine", "Unschedulable"),
            pending("b", "foreign", "Unschedulable"),
            pending("c", "mine", "SchedulingGated"),
        ])
    });
    let owners = BTreeSet::from(["mine".to_owned()]);
    let stuck = unschedulable(&client, "team", &owners).await.unwrap();
    assert_eq!(stuck.len(), 1);
    assert_eq!((stuck[0].name.as_str(), stuck[0].owner_uid.as_str()), ("a", "mine"));
    assert_eq!(stuck[0].message, "0/3 nodes are available");
}
