//! The resource that a template renders to. It is judged as it is rendered, and
//! what is not allowed is refused, never rewritten.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{CRD_NAME_PATH, SubmissionPolicy, TEMPLATE_PATH};
use crate::api::names::annotation;
use crate::api::spec_error::SpecError;
use crate::boundaries::yaml;
use crate::plan::Reason;
use crate::util::redact::Redacted;

/// Where a resource goes that does not say it.
const DEFAULT_NAMESPACE: &str = "default";
/// Longest name before it is shortened.
const MAX_NAME_LENGTH: usize = 63;
/// What a template may say of a resource, beside its kind and its spec; finalizers and owners are not for it to give.
const ALLOWED_METADATA: [&str; 5] = ["name", "generateName", "namespace", "labels", "annotations"];

/// A kind of resource as the API server serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResourceKind {
    /// API group.
    pub group: String,
    /// API version, without the group.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// The plural, as it stands in paths and rights.
    pub plural: String,
}

impl std::fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.kind, self.group)
    }
}

/// What the API server knows of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredKind {
    /// Its plural.
    pub plural: String,
    /// Its resources are in namespaces.
    pub namespaced: bool,
}

/// A resource that may be submitted, as far as it can be judged without the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedResource {
    /// API group.
    pub group: String,
    /// API version, without the group.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Where it goes.
    pub namespace: String,
    /// Its name with the id of what is wanted.
    pub name: String,
    /// All of it, with our annotations.
    pub object: Redacted<Value>,
}

/// What the name and the annotations of a resource depend on.
pub struct RenderTarget<'a> {
    /// The namespace of the InstanceGroup.
    pub group_namespace: &'a str,
    /// The scaling group.
    pub scaling_group: &'a str,
    /// What is wanted: the end of the launch template's name, and its version.
    pub version_id: &'a str,
}

fn invalid_template(value: impl ToString, rule: impl Into<String>, remedy: impl Into<String>) -> SpecError {
    SpecError::invalid(TEMPLATE_PATH, value, rule, remedy)
}

fn policy_violation(value: impl ToString, rule: impl Into<String>, remedy: impl Into<String>) -> SpecError {
    invalid_template(value, rule, remedy).with_reason(Reason::PolicyViolation)
}

/// Judges what a template was rendered to.
pub fn validate_resource(
    rendered: &str,
    allowed: &SubmissionPolicy,
    purpose: &RenderTarget,
) -> Result<RenderedResource, SpecError> {
    let mut object = parse_document(rendered)?;
    let (group, version, kind) = validate_kind(&object, allowed)?;
    let metadata = validate_metadata(&object)?;
    let text = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let namespace = text("namespace");
    let namespace = if namespace.is_empty() { DEFAULT_NAMESPACE.to_owned() } else { namespace };
    if !allowed.policy.is_strategy_namespace_allowed(&namespace, purpose.group_namespace, &allowed.config_namespace) {
        let rule = "is no namespace that resources of this group may go to (metadata.namespace of what it renders to)";
        let remedy = format!(
            "use {} or {}, or ask your cluster admin to list it in policy.strategyNamespaces",
            purpose.group_namespace, allowed.config_namespace
        );
        return Err(policy_violation(truncate(&namespace), rule, remedy));
    }
    let name = resource_name(&text("name"), &text("generateName"), purpose.version_id)?;
    if (kind.as_str(), group.as_str()) == ("RollingUpgrade", "upgrademgr.keikoproj.io") {
        validate_scaling_group(&object, purpose.scaling_group)?;
    }
    let mut metadata = metadata.clone();
    metadata.insert("name".into(), name.clone().into());
    metadata.insert("namespace".into(), namespace.clone().into());
    let mut annotations = metadata.get("annotations").and_then(Value::as_object).cloned().unwrap_or_default();
    annotations.insert(annotation::MANAGED_BY.into(), annotation::MANAGED_BY_VALUE.into());
    annotations.insert(annotation::UPGRADE_SCOPE.into(), purpose.scaling_group.into());
    metadata.insert("annotations".into(), Value::Object(annotations));
    object.insert("metadata".into(), Value::Object(metadata));
    Ok(RenderedResource { group, version, kind, namespace, name, object: Redacted::new(Value::Object(object)) })
}

/// The one document, as an object.
fn parse_document(rendered: &str) -> Result<Map<String, Value>, SpecError> {
    let documents = yaml::read_all(rendered).map_err(|error| {
        let place = error.line.map(|line| format!(" (line {line} of what it renders to)")).unwrap_or_default();
        invalid_template("", format!("renders to no YAML{place}"), "mend the template; texts may need quotes")
    })?;
    let mut documents: Vec<_> = documents.into_iter().filter(|document| !document.value.is_null()).collect();
    let count = documents.len();
    match (documents.pop().map(|document| document.value), count) {
        (Some(Value::Object(object)), 1) => Ok(object),
        (_, 0 | 1) => Err(invalid_template("", "renders to no object", "let it render to one resource")),
        (_, count) => Err(invalid_template(
            "",
            format!("renders to {count} documents"),
            "let it render to one resource, without `---`; a Workflow can do several things in one",
        )),
    }
}

/// API group, version and kind, which must be on the admin's list.
fn validate_kind(
    object: &Map<String, Value>,
    allowed: &SubmissionPolicy,
) -> Result<(String, String, String), SpecError> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or_default();
    let kind = text("kind");
    if !allowed.policy.is_strategy_kind_allowed(kind, group) || group.is_empty() || kind.is_empty() {
        let rule = "is no kind that may be submitted (kind and apiVersion of what it renders to)";
        let remedy = format!(
            "use one of {}, or ask your cluster admin to list it in policy.strategyKinds",
            allowed.policy.strategy_kinds().join(", ")
        );
        return Err(policy_violation(format!("{}.{}", truncate(kind), truncate(group)), rule, remedy));
    }
    let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !plain(version) {
        return Err(invalid_template(truncate(version), "is no version of an API", "write apiVersion as group/v1"));
    }
    if object.contains_key("status") {
        return Err(invalid_template("status", "is for the resource's own controller to write", "remove it"));
    }
    Ok((group.to_owned(), version.to_owned(), kind.to_owned()))
}

fn validate_metadata(object: &Map<String, Value>) -> Result<&Map<String, Value>, SpecError> {
    let Some(metadata) = object.get("metadata").and_then(Value::as_object) else {
        return Err(invalid_template("metadata", "is missing, or is no map", "give the resource a metadata.name"));
    };
    if let Some(other) = metadata.keys().find(|key| !ALLOWED_METADATA.contains(&key.as_str())) {
        let value = format!("metadata.{}", truncate(other));
        return Err(policy_violation(
            value,
            "is not for a template to set",
            format!("use only {}", ALLOWED_METADATA.join(", ")),
        ));
    }
    let texts = ["name", "generateName", "namespace"].map(|name| (name, metadata.get(name)));
    if let Some((name, _)) = texts.iter().find(|(_, v)| v.is_some_and(|v| !v.is_string() && !v.is_null())) {
        return Err(invalid_template(format!("metadata.{name}"), "is not a text", "write it in quotes"));
    }
    let texts = |map: &Value| map.as_object().is_some_and(|map| map.values().all(Value::is_string));
    for name in ["labels", "annotations"] {
        if metadata.get(name).is_some_and(|map| !map.is_null() && !texts(map)) {
            return Err(invalid_template(
                format!("metadata.{name}"),
                "is no map of texts",
                "write each value in quotes",
            ));
        }
    }
    Ok(metadata)
}

/// The resource's own name, with the id of what is wanted, and shortened where it would be too long.
fn resource_name(given: &str, generate: &str, id: &str) -> Result<String, SpecError> {
    let long = |name: String| if name.len() > MAX_NAME_LENGTH { format!("instancemgr-{id}") } else { name };
    let name = match (given, generate) {
        ("", "") => {
            return Err(invalid_template(
                "metadata.name",
                "is required",
                "give the resource a name, or a generateName",
            ));
        }
        (given, "") if given.ends_with(id) => given.to_owned(),
        (given, "") => long(format!("{given}-{id}")),
        (_, generate) => long(format!("{generate}-{id}")),
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = name.len() <= 253
        && name.split('.').all(|part| part.starts_with(plain) && part.ends_with(plain))
        && name.chars().all(|c| plain(c) || matches!(c, '-' | '.'));
    if !fits {
        let rule = "is no name of a resource (metadata.name of what it renders to)";
        return Err(invalid_template(truncate(&name), rule, "use small letters, digits, '-' and '.'"));
    }
    Ok(name)
}

/// A RollingUpgrade says which scaling group it takes the nodes of: never another one's.
fn validate_scaling_group(object: &Map<String, Value>, scaling_group: &str) -> Result<(), SpecError> {
    let named = object.get("spec").and_then(|spec| spec["asgName"].as_str()).unwrap_or_default();
    if named == scaling_group {
        return Ok(());
    }
    let rule = format!("is not this group's own scaling group, {scaling_group} (spec.asgName of what it renders to)");
    Err(policy_violation(truncate(named), rule, "use {{ .InstanceGroup.Status.ActiveScalingGroupName }}"))
}

/// Whether what the API server serves is what `crdName` names, and in namespaces.
pub fn resolve_kind(
    request: &RenderedResource,
    served: &DiscoveredKind,
    crd_name: &str,
) -> Result<ResourceKind, SpecError> {
    let RenderedResource { group, version, kind, .. } = request;
    if !served.namespaced {
        let rule = "is a kind of the whole cluster; resources of a strategy are in namespaces";
        return Err(policy_violation(format!("{kind}.{group}"), rule, "use a kind whose resources are in namespaces"));
    }
    let full = format!("{}.{group}", served.plural);
    if ![&served.plural, &full].iter().any(|name| name.eq_ignore_ascii_case(crd_name)) {
        let rule = format!("does not name the CRD of {kind}, which is {full}");
        return Err(SpecError::invalid(CRD_NAME_PATH, crd_name, rule, "correct crdName, or the template's kind"));
    }
    Ok(ResourceKind {
        group: group.clone(),
        version: version.clone(),
        kind: kind.clone(),
        plural: served.plural.clone(),
    })
}

/// What a template renders to may be long.
fn truncate(text: &str) -> String {
    text.chars().take(80).collect()
}
