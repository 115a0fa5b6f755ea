//! Checks of the cluster: Kubernetes version, CustomResourceDefinition, RBAC permissions, and controllers that write status.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::{Finding, PreflightCheck};
use crate::api::names::{CRD_NAME, VERSION};
use crate::boundaries::yaml;
use crate::cli::args::Target;
use crate::cli::plan::snapshot::ClusterSnapshot;
use crate::k8s::{FIELD_MANAGER, describe};
use crate::util::counted::counted;

/// The minimum minor version of Kubernetes 1: from this one on, validation rules can compare an update with the stored object.
const MIN_MINOR_VERSION: u32 = 30;
const RBAC_MANIFEST: &str = include_str!("../../../deploy/rbac.yaml");
/// The namespace in deploy/rbac.yaml.
const RBAC_NAMESPACE: &str = "instance-manager";

/// Whether the API server is new enough.
pub(crate) async fn version(client: &Client) -> PreflightCheck {
    match client.apiserver_version().await {
        Err(error) => PreflightCheck::new(
            "kubernetes",
            Finding::Unknown,
            format!("cannot read the version: {}", describe(&error)),
        ),
        Ok(info) => {
            let minor: u32 = info.minor.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0);
            let new_enough = info.major != "1" || minor >= MIN_MINOR_VERSION;
            let rule = if new_enough {
                String::new()
            } else {
                format!("; version 1.{MIN_MINOR_VERSION} or newer is required")
            };
            let finding = if new_enough { Finding::Ok } else { Finding::Missing };
            PreflightCheck::new("kubernetes", finding, format!("{}.{}{rule}", info.major, info.minor))
        }
    }
}

/// Whether the installed CustomResourceDefinition has every field that the controller uses.
pub(crate) async fn crd(client: &Client) -> PreflightCheck {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = match api.get_opt(CRD_NAME).await {
        Err(error) => {
            return PreflightCheck::new(
                "crd",
                Finding::Unknown,
                format!("cannot read {CRD_NAME}: {}", describe(&error)),
            );
        }
        Ok(None) => {
            return PreflightCheck::new("crd", Finding::Missing, format!("{CRD_NAME} is not installed; apply crds/"));
        }
        Ok(Some(found)) => serde_json::to_value(found).unwrap_or_default(),
    };
    let definition: Value = serde_yaml::from_str(&crate::api::crd_yaml()).unwrap_or_default();
    let (installed, required) = (field_paths(&found), field_paths(&definition));
    let missing: Vec<_> = required.iter().filter(|field| !installed.contains(field)).cloned().collect();
    match missing.as_slice() {
        [] => PreflightCheck::new("crd", Finding::Ok, format!("{CRD_NAME} has every field")),
        [first, ..] => {
            let message = format!("{CRD_NAME} lacks {} fields, for example {first}; apply crds/", missing.len());
            PreflightCheck::new("crd", Finding::Missing, message)
        }
    }
}

/// The dotted paths of all fields of the version that the controller uses.
fn field_paths(definition: &Value) -> Vec<String> {
    let versions = definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for version in versions.iter().filter(|version| version["name"] == VERSION) {
        collect_field_paths(&version["schema"]["openAPIV3Schema"], "", &mut found);
    }
    found
}

fn collect_field_paths(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect_field_paths(field, &path, found);
        collect_field_paths(&field["items"], &path, found);
        found.push(path);
    }
}

/// Checks that the identity of `client` has every permission in deploy/rbac.yaml.
pub(crate) async fn permissions(client: &Client, namespace: &str, as_controller: bool) -> Vec<PreflightCheck> {
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let reviews = stream::iter(required_permissions(namespace)).map(|permission| {
        let api = &api;
        async move {
            let spec =
                SelfSubjectAccessReviewSpec { resource_attributes: Some(permission.clone()), ..Default::default() };
            let review = SelfSubjectAccessReview { spec, ..Default::default() };
            let response = api.create(&PostParams::default(), &review).await;
            (permission, response.map(|review| review.status.is_some_and(|status| status.allowed)))
        }
    });
    let results: Vec<_> = reviews.buffered(16).collect().await;
    let total = results.len();
    let mut checks: Vec<_> =
        results.into_iter().filter_map(|(permission, result)| permission_check(&permission, result)).collect();
    if checks.is_empty() {
        checks.push(PreflightCheck::new(
            "permissions",
            Finding::Ok,
            format!("all {total} permissions of deploy/rbac.yaml are granted"),
        ));
    }
    if !as_controller {
        let message =
            "checked for your own account; use --as system:serviceaccount:NAMESPACE:NAME to check the controller's";
        checks.push(PreflightCheck::new("permissions", Finding::Note, message));
    }
    checks
}

fn permission_check(permission: &ResourceAttributes, allowed: kube::Result<bool>) -> Option<PreflightCheck> {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let resource = [text(&permission.resource), text(&permission.subresource)].join("/");
    let mut what = format!("{} {}", text(&permission.verb), resource.trim_end_matches('/'));
    if let Some(name) = &permission.name {
        what += &format!(" {name}");
    }
    if let Some(namespace) = &permission.namespace {
        what += &format!(" in {namespace}");
    }
    match allowed {
        Ok(true) => None,
        Ok(false) => {
            Some(PreflightCheck::new("permissions", Finding::Missing, format!("{what}; apply deploy/rbac.yaml")))
        }
        Err(error) => {
            Some(PreflightCheck::new("permissions", Finding::Unknown, format!("{what}: {}", describe(&error))))
        }
    }
}

/// One access review for each verb on each resource of each rule.
fn required_permissions(namespace: &str) -> Vec<ResourceAttributes> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let documents = yaml::read_all(RBAC_MANIFEST).expect("deploy/rbac.yaml is YAML");
    let mut all = Vec::new();
    // Roles that Kubernetes adds to its own ones are for users.
    let is_for_people = |object: &Value| {
        let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
        labels.into_iter().any(|(label, _)| label.starts_with("rbac.authorization.k8s.io/aggregate-to-"))
    };
    for object in documents.iter().map(|document| &document.value).filter(|object| !is_for_people(object)) {
        let role_namespace = object["metadata"]["namespace"].as_str().filter(|_| object["kind"] == "Role");
        let role_namespace =
            role_namespace.map(|name| if name == RBAC_NAMESPACE { namespace } else { name }.to_owned());
        for rule in object["rules"].as_array().into_iter().flatten() {
            let names = texts(&rule["resourceNames"]);
            let names = if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
            for (group, resource) in cartesian_product(&texts(&rule["apiGroups"]), &texts(&rule["resources"])) {
                let (resource, sub) = match resource.split_once('/') {
                    Some((resource, sub)) => (resource.to_owned(), Some(sub.to_owned())),
                    None => (resource, None),
                };
                for (verb, name) in cartesian_product(&texts(&rule["verbs"]), &names) {
                    all.push(ResourceAttributes {
                        group: Some(group.clone()),
                        resource: Some(resource.clone()),
                        subresource: sub.clone(),
                        verb: Some(verb),
                        name,
                        namespace: role_namespace.clone(),
                        ..ResourceAttributes::default()
                    });
                }
            }
        }
    }
    all
}

fn cartesian_product<A: Clone, B: Clone>(one: &[A], other: &[B]) -> Vec<(A, B)> {
    one.iter().flat_map(|a| other.iter().map(|b| (a.clone(), b.clone()))).collect()
}

/// Lists the field managers that write the status of groups, and checks whether this controller runs already.
pub(crate) async fn status_writers(
    client: &Client,
    namespace: &str,
    snapshot: &ClusterSnapshot,
) -> Vec<PreflightCheck> {
    let mut writers: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for stored in snapshot.select(&Target::All).unwrap_or_default() {
        let entries = stored.managed_fields().iter().filter(|entry| entry.subresource.as_deref() == Some("status"));
        for entry in entries {
            let (groups, last) = writers.entry(entry.manager.clone().unwrap_or_default()).or_default();
            *groups += 1;
            let time = entry.time.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
            *last = time.max(std::mem::take(last));
        }
    }
    let mut checks: Vec<_> = (writers.into_iter())
        .map(|(manager, (groups, last))| {
            let writer = if manager == FIELD_MANAGER {
                "this controller".to_owned()
            } else {
                format!("field manager {manager}")
            };
            let message = format!("{writer} wrote the status of {}, last at {last}", counted(groups, "group"));
            PreflightCheck::new("writers", Finding::Note, message)
        })
        .collect();
    checks.push(match crate::cli::release::lease_holder(client, namespace).await {
        Ok(None) => PreflightCheck::new("writers", Finding::Ok, "the Lease is free"),
        Ok(Some(holder)) => PreflightCheck::new(
            "writers",
            Finding::Note,
            format!("{holder} holds the Lease; this controller is already running"),
        ),
        Err(error) => PreflightCheck::new("writers", Finding::Unknown, format!("{error:#}")),
    });
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rbac_rule_is_checked_in_its_namespace() {
        let all = required_permissions("elsewhere");
        let has = |verb: &str, resource: &str, name: Option<&str>, namespace: Option<&str>| {
            all.iter().any(|permission| {
                permission.verb.as_deref() == Some(verb)
                    && permission.resource.as_deref() == Some(resource)
                    && permission.name.as_deref() == name
                    && permission.namespace.as_deref() == namespace
            })
        };
        assert!(has("patch", "nodes", None, None));
        assert!(has("patch", "configmaps", Some("aws-auth"), Some("kube-system")));
        assert!(has("update", "leases", Some("instance-manager"), Some("elsewhere")));
        assert!(
            all.iter().any(|r| r.resource.as_deref() == Some("pods") && r.subresource.as_deref() == Some("eviction"))
        );
        assert!(!all.iter().any(|permission| permission.namespace.as_deref() == Some(RBAC_NAMESPACE)));
    }

    #[test]
    fn crd_without_required_fields_is_detected() {
        let definition: Value = serde_yaml::from_str(&crate::api::crd_yaml()).unwrap();
        let known = field_paths(&definition);
        assert!(known.contains(&"status.template.adoptedHash".to_owned()));
        assert!(known.contains(&"spec.eks.configuration.userData.stage".to_owned()));
        assert!(field_paths(&serde_json::json!({"spec": {"versions": [{"name": "v1beta1"}]}})).is_empty());
    }
}
