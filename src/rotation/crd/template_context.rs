//! The value that a template renders: `.InstanceGroup` with the Go field names of keikoproj/instance-manager, so that
//! existing templates work. Every field of the schema exists, empty where it is not set; any other field is an error.

use std::collections::HashMap;

use gtmpl_ng::Value as Go;
use serde_json::{Value, json};

use crate::api::{GroupId, InstanceGroupStatus, schema};

/// Input of [`template_context`].
pub(crate) struct TemplateSource<'a> {
    /// Identity of the group whose nodes the resource replaces.
    pub id: &'a GroupId,
    /// The group's labels and its merged annotations.
    pub metadata: &'a Value,
    /// The merged spec. User data and bootstrap arguments are not passed to the template.
    pub spec: &'a Value,
    /// Id of the resolved image.
    pub image: &'a str,
    /// Status of the group.
    pub status: &'a InstanceGroupStatus,
}

/// The value for the template, and its approximate size in bytes.
pub(crate) fn template_context(source: &TemplateSource) -> (Go, usize) {
    let mut spec = source.spec.clone();
    spec["eks"]["configuration"]["image"] = json!(source.image);
    spec["strategy"]["crd"]["spec"] = json!("");
    // Tenants can read the rendered resource, and the merged spec contains the admin's user data.
    spec["eks"]["configuration"]["bootstrapArguments"] = json!("");
    for stage in spec["eks"]["configuration"]["userData"].as_array_mut().into_iter().flatten() {
        stage["data"] = json!("");
    }
    let status = json!(source.status);
    let weight = [&spec, &status, source.metadata].iter().map(|part| 4 * part.to_string().len()).sum();
    (Go::Object(HashMap::from([("InstanceGroup".to_owned(), group_value(source, &spec, &status))])), weight)
}

/// A copy in which every text that a shell may not read as one plain word is `x`.
pub(crate) fn plain_words(value: &Value) -> Value {
    let plain = |text: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._/:".contains(c);
        if text.chars().all(is_plain) && !text.starts_with('-') { text.to_owned() } else { "x".to_owned() }
    };
    match value {
        Value::String(text) => plain(text).into(),
        Value::Array(items) => items.iter().map(plain_words).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (plain(key), plain_words(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn group_value(source: &TemplateSource, spec: &Value, status: &Value) -> Go {
    let id = source.id;
    let map = |name: &str| free_map(&source.metadata[name]);
    let mut metadata = HashMap::from([
        ("Name".to_owned(), Go::from(id.name.clone())),
        ("Namespace".into(), Go::from(id.namespace.clone())),
        ("UID".into(), Go::from(id.uid.clone())),
        ("Generation".into(), Go::from(id.generation)),
        ("CreationTimestamp".into(), Go::from(id.created_at.to_string())),
        ("Labels".into(), map("labels")),
        ("Annotations".into(), map("annotations")),
    ]);
    let getters: Vec<_> = metadata.iter().map(|(name, value)| (format!("Get{name}"), value.clone())).collect();
    metadata.extend(getters);
    let spec = struct_value(schema::spec(), spec, "spec");
    let status = struct_value(schema::status(), status, "status");
    let eks = field(&spec, "EKSSpec");
    let mut group = metadata.clone();
    group.extend([
        ("ObjectMeta".to_owned(), Go::Object(metadata)),
        ("APIVersion".into(), Go::from("instancemgr.keikoproj.io/v1alpha1")),
        ("Kind".into(), Go::from("InstanceGroup")),
        ("NamespacedName".into(), Go::from(id.key())),
        ("GetEKSConfiguration".into(), field(&eks, "EKSConfiguration")),
        ("GetEKSSpec".into(), eks),
        ("GetUpgradeStrategy".into(), field(&spec, "AwsUpgradeStrategy")),
        ("GetStatus".into(), status.clone()),
        ("Spec".into(), spec),
        ("Status".into(), status),
    ]);
    Go::Object(group)
}

fn field(object: &Go, name: &str) -> Go {
    match object {
        Go::Object(fields) => fields.get(name).cloned().unwrap_or(Go::Nil),
        _ => Go::Nil,
    }
}

/// A struct with every field of the schema, and with Go getters for the fields that are not structs.
fn struct_value(schema: &Value, value: &Value, path: &str) -> Go {
    let Some(known) = schema["properties"].as_object() else { return leaf_value(schema, value, path) };
    // Tags are maps in Go.
    if path.ends_with(".tags[]") {
        return free_map(value);
    }
    let mut fields = HashMap::new();
    for (name, inner) in known {
        let below = format!("{path}.{name}");
        let found = struct_value(inner, &value[name], &below);
        let go = go_name(&below);
        if inner["properties"].is_null() {
            fields.insert(format!("Get{go}"), found.clone());
            fields.insert(format!("Get{}", capitalize(name)), found.clone());
        }
        fields.insert(go, found);
    }
    Go::Object(fields)
}

fn leaf_value(schema: &Value, value: &Value, path: &str) -> Go {
    if schema["additionalProperties"].is_object() {
        return free_map(value);
    }
    match (schema["type"].as_str().unwrap_or_default(), value) {
        ("array", items) => {
            let below = format!("{path}[]");
            let items = items.as_array().into_iter().flatten();
            Go::Array(items.map(|item| struct_value(&schema["items"], item, &below)).collect())
        }
        (_, Value::String(text)) => Go::from(text.clone()),
        (_, Value::Bool(is)) => Go::from(*is),
        (_, Value::Number(number)) => Go::from(number.as_i64().unwrap_or_default()),
        ("integer", _) => Go::from(0_i64),
        ("boolean", _) => Go::from(false),
        _ => Go::from(""),
    }
}

fn free_map(value: &Value) -> Go {
    let entries = value.as_object().into_iter().flatten();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Go::Map(entries.map(|(key, value)| (key.clone(), Go::from(text(value)))).collect())
}

/// The Go name of a field.
fn go_name(path: &str) -> String {
    let special = match path {
        "spec.eks" => "EKSSpec",
        "spec.eks-managed" => "EKSManagedSpec",
        "spec.eks-fargate" => "EKSFargateSpec",
        "spec.strategy" => "AwsUpgradeStrategy",
        "spec.strategy.crd" => "CRDType",
        "spec.strategy.crd.crdName" => "CRDName",
        "spec.strategy.rollingUpdate" => "RollingUpdateType",
        "spec.eks.configuration" => "EKSConfiguration",
        "spec.eks-managed.configuration" => "EKSManagedConfiguration",
        "spec.eks.configuration.clusterName" | "spec.eks-managed.configuration.clusterName" => "EksClusterName",
        "spec.eks.configuration.securityGroups" | "spec.eks-managed.configuration.securityGroups" => {
            "NodeSecurityGroups"
        }
        "spec.eks.configuration.suspendProcesses" => "SuspendedProcesses",
        "spec.eks.configuration.roleName" => "ExistingRoleName",
        "spec.eks.configuration.instanceProfileName" => "ExistingInstanceProfileName",
        "spec.eks.configuration.volumes[].snapshotId" => "SnapshotID",
        "status.nodesInstanceRoleArn" => "NodesArn",
        "status.configMD5" => "ConfigHash",
        _ => return capitalize(path.rsplit('.').next().unwrap_or_default()),
    };
    special.to_owned()
}

fn capitalize(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}
