//! The permissions of deploy/rbac.yaml and deploy/rollout-operator.yaml.

use serde::Deserialize as _;
use serde_json::{Value, json};

fn documents(file: &str) -> Vec<Value> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file);
    let text = std::fs::read_to_string(path).expect("the permissions");
    let documents =
        serde_yaml::Deserializer::from_str(&text).map(|document| Value::deserialize(document).expect("YAML"));
    documents.collect()
}

fn texts(rule: &Value, field: &str) -> Vec<String> {
    serde_json::from_value(rule[field].clone()).unwrap_or_default()
}

/// Whether a rule covers a resource of the API group of InstanceGroups.
fn covers(rule: &Value, resource: &str) -> bool {
    let has = |field: &str, name: &str| texts(rule, field).iter().any(|found| found == name || found == "*");
    has("apiGroups", "instancemgr.keikoproj.io") && has("resources", resource)
}

/// What people order and what is stored must not change because of a defect of the controller; and a tenant must neither
/// read an admin's user data nor order anything.
#[test]
fn neither_the_controller_nor_tenants_write_revisions() {
    let mut found = vec![];
    for document in documents("rbac.yaml") {
        let (name, labels) = (&document["metadata"]["name"], &document["metadata"]["labels"]);
        let is_of_tenants = labels.as_object().is_some_and(|labels| {
            labels.keys().any(|label| label.starts_with("rbac.authorization.k8s.io/aggregate-to-"))
        });
        for rule in document["rules"].as_array().into_iter().flatten() {
            for resource in ["boundariesrevisions", "boundariesrevisions/status"] {
                if covers(rule, resource) {
                    assert!(!is_of_tenants, "{name} has permissions on {resource}");
                    found.push(json!([document["kind"], name, resource, rule["verbs"]]));
                }
            }
        }
    }
    let role = |resource: &str, verbs: &[&str]| json!(["Role", "instance-manager", resource, verbs]);
    let expected =
        [role("boundariesrevisions", &["list", "create", "delete"]), role("boundariesrevisions/status", &["patch"])];
    assert_eq!(found, expected);
}

/// A person on call stops a bad change. With this role alone, that person replaces no ConfigMap and edits no group.
#[test]
fn rollout_operators_order_and_read_and_do_nothing_else() {
    let documents = documents("rollout-operator.yaml");
    assert_eq!(documents.len(), 1, "nothing binds the role: {documents:?}");
    let role = &documents[0];
    assert_eq!(role["kind"], "ClusterRole");
    assert_eq!(role["metadata"], json!({"name": "instance-manager-rollout-operator"}));
    let rule = |resource: &str, verbs: &[&str]| json!({"apiGroups": ["instancemgr.keikoproj.io"], "resources": [resource], "verbs": verbs});
    let revisions = rule("boundariesrevisions", &["get", "list", "watch", "patch"]);
    let groups = rule("instancegroups", &["get", "list", "watch"]);
    assert_eq!(role["rules"], json!([revisions, groups]));
}
