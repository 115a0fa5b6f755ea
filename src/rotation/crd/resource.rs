//! Validates the resource that a template renders to. A resource that is not allowed is rejected, never rewritten.

use serde_json::{Map, Value};

pub(crate) use super::kind::{DiscoveredKind, ResourceKind};
use super::types::{CRD_NAME_PATH, SubmissionPolicy, TEMPLATE_PATH, TemplateAuthor};
use crate::api::names::annotation;
use crate::api::spec_error::SpecError;
use crate::boundaries::yaml;
use crate::plan::stalled_reason::StalledReason;
use crate::util::digest::sha256_hex;
use crate::util::redact::Redacted;

/// Namespace of a resource whose template sets none.
const DEFAULT_NAMESPACE: &str = "default";
/// Longest name, in bytes, before a short one replaces it.
const MAX_NAME_LENGTH: usize = 63;
/// Metadata that a template may set. Finalizers and owner references are not among them.
const ALLOWED_METADATA: [&str; 5] = ["name", "generateName", "namespace", "labels", "annotations"];

/// A resource that passed all checks that need no API server.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedResource {
    /// API group, such as `upgrademgr.keikoproj.io`.
    pub group: String,
    /// API version, without the group.
    pub version: String,
    /// Kind, such as `RollingUpgrade`.
    pub kind: String,
    /// Namespace of the custom resource.
    pub namespace: String,
    /// Name, which ends with the id of the desired template version.
    pub name: String,
    /// The whole resource, with the controller's annotations.
    pub object: Redacted<Value>,
}

impl RenderedResource {
    /// Whether its own controller deletes it some time after its end, like a Workflow of Argo with `ttlStrategy`.
    pub(crate) fn has_time_to_live(&self) -> bool {
        let spec = &self.object.expose()["spec"];
        ["ttlStrategy", "ttlSecondsAfterFinished"].into_iter().any(|field| !spec[field].is_null())
    }

    /// The same resource with a name that no other group has. A template may give every group one name, and groups that
    /// were created in the same second have the same version ids.
    pub(crate) fn with_own_name(&self, scaling_group: &str) -> Self {
        let own = format!("{}-{}", self.name, &sha256_hex(scaling_group)[..8]);
        let fits = own.len() <= MAX_NAME_LENGTH;
        let name = if fits { own } else { format!("instancemgr-{}", &sha256_hex(&own)[..16]) };
        let mut object = self.object.expose().clone();
        object["metadata"]["name"] = name.clone().into();
        Self { name, object: Redacted::new(object), ..self.clone() }
    }
}

/// The values from which the name and the annotations of a resource are built.
pub(crate) struct RenderTarget<'a> {
    /// The namespace of the InstanceGroup.
    pub group_namespace: &'a str,
    /// Name of the scaling group.
    pub scaling_group: &'a str,
    /// Id of the desired template version: the end of the launch template's name, and the version number.
    pub version_id: &'a str,
}

fn invalid_template(value: impl ToString, rule: impl Into<String>, remedy: impl Into<String>) -> SpecError {
    SpecError::invalid(TEMPLATE_PATH, value, rule, remedy)
}

fn policy_violation(value: impl ToString, rule: impl Into<String>, remedy: impl Into<String>) -> SpecError {
    invalid_template(value, rule, remedy).with_reason(StalledReason::PolicyViolation)
}

/// Validates the rendered template and adds the name, the namespace and the controller's annotations.
///
/// # Errors
/// The first rule of the format or of the admin's policy that the resource breaks.
pub(crate) fn validate_resource(
    rendered: &str,
    allowed: &SubmissionPolicy,
    target: &RenderTarget,
) -> Result<RenderedResource, SpecError> {
    let mut object = parse_document(rendered)?;
    let (group, version, kind) = validate_kind(&object, allowed)?;
    let metadata = validate_metadata(&object)?;
    let text = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let namespace = text("namespace");
    let namespace = if namespace.is_empty() { DEFAULT_NAMESPACE.to_owned() } else { namespace };
    validate_namespace(&namespace, allowed, target)?;
    let name = resource_name(&text("name"), &text("generateName"), target.version_id)?;
    if (kind.as_str(), group.as_str()) == ("RollingUpgrade", "upgrademgr.keikoproj.io") {
        validate_scaling_group(&object, target.scaling_group)?;
        validate_scripts(&scripts(&object), allowed, target)?;
    }
    let mut metadata = metadata.clone();
    metadata.insert("name".into(), name.clone().into());
    metadata.insert("namespace".into(), namespace.clone().into());
    let mut annotations = metadata.get("annotations").and_then(Value::as_object).cloned().unwrap_or_default();
    annotations.insert(annotation::MANAGED_BY.into(), annotation::MANAGED_BY_VALUE.into());
    annotations.insert(annotation::UPGRADE_SCOPE.into(), target.scaling_group.into());
    metadata.insert("annotations".into(), Value::Object(annotations));
    object.insert("metadata".into(), Value::Object(metadata));
    Ok(RenderedResource { group, version, kind, namespace, name, object: Redacted::new(Value::Object(object)) })
}

/// A tenant's resource goes to its own namespace or to one that the policy lists. In the namespace of the ConfigMap it could
/// use the controller's ServiceAccount, so only the admin's own template may name that.
fn validate_namespace(namespace: &str, allowed: &SubmissionPolicy, target: &RenderTarget) -> Result<(), SpecError> {
    let is_admins = allowed.author != TemplateAuthor::Tenant && namespace == allowed.config_namespace;
    if is_admins || allowed.policy.is_strategy_namespace_allowed(namespace, target.group_namespace) {
        return Ok(());
    }
    let rule = "is not an allowed namespace for resources of this group (metadata.namespace of the rendered template)";
    let remedy =
        format!("use {}, or ask your cluster admin to list it in policy.strategyNamespaces", target.group_namespace);
    Err(policy_violation(truncate(namespace), rule, remedy))
}

/// The fields of a RollingUpgrade that upgrade-manager runs with `/bin/sh -c` in its own pod.
const SCRIPTS: [(&str, &str); 4] =
    [("preDrain", "script"), ("postDrain", "script"), ("postDrain", "postWaitScript"), ("postTerminate", "script")];

/// The scripts of a RollingUpgrade: path and text. Keys count in any case, as in Go.
fn scripts(object: &Map<String, Value>) -> Vec<(String, String)> {
    let entries = |value: &Value, name: &str| -> Vec<Value> {
        let all = value.as_object().into_iter().flatten();
        all.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone()).collect()
    };
    let root = Value::Object(object.clone());
    let mut found = vec![];
    for (hook, field) in SCRIPTS {
        let hooks = entries(&root, "spec").into_iter().flat_map(|spec| entries(&spec, hook));
        let texts = hooks.flat_map(|hook| entries(&hook, field)).filter(|text| !text.is_null() && text != "");
        found.extend(texts.map(|text| (format!("spec.{hook}.{field}"), text.to_string())));
    }
    found
}

fn validate_scripts(
    scripts: &[(String, String)],
    allowed: &SubmissionPolicy,
    target: &RenderTarget,
) -> Result<(), SpecError> {
    let is_tenants = allowed.author == TemplateAuthor::Tenant;
    match scripts.first().filter(|_| is_tenants && !allowed.policy.are_scripts_allowed(target.group_namespace)) {
        Some((path, _)) => Err(policy_violation(
            path,
            "runs in upgrade-manager's own pod, with its permissions",
            "remove it, or ask your cluster admin to list the namespace in policy.strategyScripts",
        )),
        None => Ok(()),
    }
}

/// Whether the scripts of the admin's template must not depend on text of the tenant.
pub(crate) fn limits_script_text(allowed: &SubmissionPolicy, group_namespace: &str) -> bool {
    allowed.author == TemplateAuthor::Admin && !allowed.policy.are_scripts_allowed(group_namespace)
}

/// Checks the scripts of the admin's template. `without_text` is the same template, rendered without the texts of the
/// tenant that a shell may not read as one plain word.
///
/// # Errors
/// A text of the tenant is part of a script.
pub(crate) fn validate_script_text(
    resource: &RenderedResource,
    without_text: impl FnOnce() -> Result<String, SpecError>,
) -> Result<(), SpecError> {
    let texts = |object: &Map<String, Value>| scripts(object);
    let found = resource.object.expose().as_object().map(texts).unwrap_or_default();
    let Some((path, _)) = found.first() else { return Ok(()) };
    let plain = without_text().and_then(|text| parse_document(&text)).map(|object| texts(&object));
    if plain.is_ok_and(|plain| plain == found) {
        return Ok(());
    }
    Err(policy_violation(
        path,
        "contains text of the tenant, and runs in upgrade-manager's own pod, with its permissions",
        "use plain words in what the template prints, or ask your cluster admin to list the namespace in \
         policy.strategyScripts",
    ))
}

/// Parses the rendered template, which must be one YAML document with an object.
fn parse_document(rendered: &str) -> Result<Map<String, Value>, SpecError> {
    let documents = yaml::read_all(rendered).map_err(|error| {
        let position = error.line.map(|line| format!(" (line {line} of the rendered template)")).unwrap_or_default();
        invalid_template(
            "",
            format!("does not render to valid YAML{position}"),
            "fix the template; strings may need quotes",
        )
    })?;
    let mut documents: Vec<_> = documents.into_iter().filter(|document| !document.value.is_null()).collect();
    let count = documents.len();
    match (documents.pop().map(|document| document.value), count) {
        (Some(Value::Object(object)), 1) => Ok(object),
        (_, 0 | 1) => Err(invalid_template("", "does not render to an object", "render exactly one resource")),
        (_, count) => Err(invalid_template(
            "",
            format!("renders to {count} documents"),
            "render exactly one resource, without `---`; one Workflow can have several steps",
        )),
    }
}

/// Returns API group, version and kind, which must be on the admin's list.
fn validate_kind(
    object: &Map<String, Value>,
    allowed: &SubmissionPolicy,
) -> Result<(String, String, String), SpecError> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or_default();
    let kind = text("kind");
    if !allowed.policy.is_strategy_kind_allowed(kind, group) || group.is_empty() || kind.is_empty() {
        let rule = "is not an allowed kind (kind and apiVersion of the rendered template)";
        let remedy = format!(
            "use one of {}, or ask your cluster admin to list it in policy.strategyKinds",
            allowed.policy.strategy_kinds().join(", ")
        );
        return Err(policy_violation(format!("{}.{}", truncate(kind), truncate(group)), rule, remedy));
    }
    let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !plain(version) {
        return Err(invalid_template(truncate(version), "is not a valid API version", "write apiVersion as group/v1"));
    }
    if object.contains_key("status") {
        return Err(invalid_template("status", "is written only by the resource's own controller", "remove it"));
    }
    Ok((group.to_owned(), version.to_owned(), kind.to_owned()))
}

fn validate_metadata(object: &Map<String, Value>) -> Result<&Map<String, Value>, SpecError> {
    let Some(metadata) = object.get("metadata").and_then(Value::as_object) else {
        return Err(invalid_template("metadata", "is missing, or is not a map", "give the resource a metadata.name"));
    };
    if let Some(forbidden) = metadata.keys().find(|key| !ALLOWED_METADATA.contains(&key.as_str())) {
        let value = format!("metadata.{}", truncate(forbidden));
        return Err(policy_violation(
            value,
            "may not be set by a template",
            format!("use only {}", ALLOWED_METADATA.join(", ")),
        ));
    }
    let strings = ["name", "generateName", "namespace"].map(|name| (name, metadata.get(name)));
    if let Some((name, _)) = strings.iter().find(|(_, v)| v.is_some_and(|v| !v.is_string() && !v.is_null())) {
        return Err(invalid_template(format!("metadata.{name}"), "is not a string", "write it in quotes"));
    }
    let is_string_map = |map: &Value| map.as_object().is_some_and(|map| map.values().all(Value::is_string));
    for name in ["labels", "annotations"] {
        if metadata.get(name).is_some_and(|map| !map.is_null() && !is_string_map(map)) {
            return Err(invalid_template(
                format!("metadata.{name}"),
                "is not a map of strings",
                "write each value in quotes",
            ));
        }
    }
    Ok(metadata)
}

/// The name from the template with the id of the desired version; a short name when that is too long.
fn resource_name(template_name: &str, generate_name: &str, id: &str) -> Result<String, SpecError> {
    let shorten = |name: String| if name.len() > MAX_NAME_LENGTH { format!("instancemgr-{id}") } else { name };
    let name = match (template_name, generate_name) {
        ("", "") => {
            return Err(invalid_template(
                "metadata.name",
                "is required",
                "give the resource a name, or a generateName",
            ));
        }
        (name, "") if name.ends_with(id) => name.to_owned(),
        (name, "") => shorten(format!("{name}-{id}")),
        (_, prefix) => shorten(format!("{prefix}-{id}")),
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = name.len() <= 253
        && name.split('.').all(|part| part.starts_with(plain) && part.ends_with(plain))
        && name.chars().all(|c| plain(c) || matches!(c, '-' | '.'));
    if !fits {
        let rule = "is not a valid resource name (metadata.name of the rendered template)";
        return Err(invalid_template(truncate(&name), rule, "use lowercase letters, digits, '-' and '.'"));
    }
    Ok(name)
}

/// Checks that a RollingUpgrade replaces the nodes of this group's own scaling group.
fn validate_scaling_group(object: &Map<String, Value>, scaling_group: &str) -> Result<(), SpecError> {
    let named = object.get("spec").and_then(|spec| spec["asgName"].as_str()).unwrap_or_default();
    if named == scaling_group {
        return Ok(());
    }
    let rule = match named {
        "" => format!("names no scaling group; spec.asgName of the rendered template must be {scaling_group}"),
        _ => format!("is not this group's own scaling group, {scaling_group} (spec.asgName of the rendered template)"),
    };
    Err(policy_violation(truncate(named), rule, "use {{ .InstanceGroup.Status.ActiveScalingGroupName }}"))
}

/// Checks the kind that the API server serves: it must be namespaced, and `crdName` must name it.
///
/// # Errors
/// The kind is cluster-scoped, or `crdName` names another CRD.
pub(crate) fn resolve_kind(
    request: &RenderedResource,
    served: &DiscoveredKind,
    crd_name: &str,
) -> Result<ResourceKind, SpecError> {
    let RenderedResource { group, version, kind, .. } = request;
    if !served.namespaced {
        let rule = "is cluster-scoped; the resource of a strategy must be namespaced";
        return Err(policy_violation(format!("{kind}.{group}"), rule, "use a namespaced kind"));
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

/// Shortens rendered text for a message.
fn truncate(text: &str) -> String {
    text.chars().take(80).collect()
}
