//! A ValidatingAdmissionPolicy that warns tenants, when they apply an InstanceGroup, which of their fields are not
//! used.
//!
//! It is generated from the ConfigMap, because CEL cannot read YAML out of a ConfigMap. Kubernetes evaluates it by itself:
//! nothing of the controller has to run for it.

use serde_json::{Value, json};

use super::parse::Boundaries;
use super::path::Path;
use crate::api::names::{self, annotation};
use crate::api::schema;

/// Name of the policy and of its binding.
pub(crate) const POLICY_NAME: &str = "instance-manager-boundaries";

/// The variable that is true in a namespace that is excluded from the boundaries.
const IS_EXCLUDED: &str = "isExcluded";

/// What happens to an InstanceGroup that sets a restricted field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionAction {
    /// The client gets a warning; the object is stored.
    Warn,
    /// The object is rejected.
    Deny,
}

/// The policy and its binding. It concerns fields that are restricted: a tenant's value of any other field may be used.
/// An update that does not change such a field passes, so groups that are older than the policy can be edited.
pub(crate) fn admission_policy(boundaries: &Boundaries, action: AdmissionAction) -> [Value; 2] {
    // A path that names no field restricts nothing, and could make the API server fail on a list.
    let known = boundaries.restricted.iter().filter(|path| schema::is_known_path(path.segments()));
    let validations: Vec<_> = known.map(|path| validation(path, action)).collect();
    let (verb, failure) = match action {
        AdmissionAction::Warn => ("Warn", "Ignore"),
        AdmissionAction::Deny => ("Deny", "Fail"),
    };
    let metadata = json!({"name": POLICY_NAME});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "failurePolicy": failure,
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [names::GROUP],
                "apiVersions": [names::VERSION],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["instancegroups"],
            }]},
            // A match condition cannot read the Namespace.
            "variables": [{"name": IS_EXCLUDED, "expression": excluded(boundaries)}],
            "validations": validations,
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {"policyName": POLICY_NAME, "validationActions": [verb]},
    });
    [policy, binding]
}

/// Whether the boundaries restrict anything: Kubernetes rejects a policy without validations.
pub(crate) fn has_restrictions(boundaries: &Boundaries) -> bool {
    boundaries.restricted.iter().any(|path| schema::is_known_path(path.segments()))
}

fn validation(path: &Path, action: AdmissionAction) -> Value {
    let remedy = match action {
        AdmissionAction::Warn => "your value is not used",
        AdmissionAction::Deny => "remove it",
    };
    let message = format!("{path} is decided by your cluster admin; {remedy}");
    json!({"expression": format!("variables.{IS_EXCLUDED} || ({})", expression(path)), "message": message})
}

/// True while the field is absent, or is as it was before.
fn expression(path: &Path) -> String {
    if path.covers(&Path::from_segments(&["metadata", "annotations"])) {
        // Of all annotations, only those that the controller reads are of interest.
        let annotations = |object: &str| format!("{object}.metadata.?annotations");
        let (new, old) = (annotations("object"), annotations("oldObject"));
        let prefix = literal(&format!("{}/", names::GROUP));
        let same = format!("oldObject != null && {old}[?key].orValue(\"\") == {new}[?key].orValue(\"\")");
        return format!("{new}.orValue({{}}).all(key, !key.startsWith({prefix}) || ({same}))");
    }
    let (new, old) = (field("object", path), field("oldObject", path));
    format!("!{new}.hasValue() || (oldObject != null && {old} == {new})")
}

/// An optional selection, which is none where the field or a parent of it is absent.
fn field(object: &str, path: &Path) -> String {
    path.segments().iter().fold(object.to_owned(), |parent, segment| format!("{parent}[?{}]", literal(segment)))
}

/// True where the namespace is excluded from the boundaries.
fn excluded(boundaries: &Boundaries) -> String {
    let annotations = "namespaceObject.metadata.?annotations";
    let requested =
        format!("{annotations}[?{}].orValue(\"\").lowerAscii() == \"true\"", literal(annotation::CONFIG_EXCLUDED));
    let Some(globs) = boundaries.policy.excludable_globs() else { return requested };
    let matches = |glob: &String| format!("request.namespace.matches({})", literal(&regex(glob)));
    match globs.iter().map(matches).collect::<Vec<_>>().as_slice() {
        [] => "false".to_owned(),
        some => format!("{requested} && ({})", some.join(" || ")),
    }
}

/// The regular expression of a glob, in which `*` stands for any text and `?` for one character.
fn regex(glob: &str) -> String {
    let part = |c: char| match c {
        '*' => ".*".to_owned(),
        '?' => ".".to_owned(),
        c if c.is_alphanumeric() || c == '-' => c.to_string(),
        c => format!("\\{c}"),
    };
    format!("^{}$", glob.chars().map(part).collect::<String>())
}

/// A CEL string. JSON's escapes are CEL's as well.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(boundaries: &str, policy: &str) -> Boundaries {
        let data = [("boundaries", boundaries), ("policy", policy)].map(|(k, v)| (k.to_owned(), v.to_owned()));
        Boundaries::parse(&data.into()).expect("boundaries").0
    }

    fn exclusion(policy: &str) -> String {
        let [policy, _] = admission_policy(&parse("restricted: [spec.eks.minSize]", policy), AdmissionAction::Warn);
        policy["spec"]["variables"][0]["expression"].as_str().expect("an expression").to_owned()
    }

    /// A path into a list would make the API server reject every group that has the list.
    #[test]
    fn path_that_names_no_field_has_no_rule() {
        let unknown = "restricted: [spec.eks.configuration.volumes.snapshotId]";
        assert!(!has_restrictions(&parse(unknown, "")));
        let both = "restricted: [spec.eks.configuration.volumes.snapshotId, spec.eks.minSize]";
        let [policy, _] = admission_policy(&parse(both, ""), AdmissionAction::Deny);
        let rules = policy["spec"]["validations"].as_array().expect("rules");
        assert_eq!(rules.len(), 1, "{rules:?}");
    }

    /// A field with a dash, and a key with dots, are one step of a path each.
    #[test]
    fn each_restricted_path_has_a_rule_that_names_it() {
        let paths = ["spec.eks-managed.configuration.amiType", "spec.eks.configuration.labels.a.b/c", "spec.eks"];
        let boundaries =
            parse(&format!("{{restricted: [{}], shared: {{merge: [spec.strategy]}}}}", paths.join(", ")), "");
        let [policy, binding] = admission_policy(&boundaries, AdmissionAction::Warn);
        let rules = policy["spec"]["validations"].as_array().expect("rules");
        for (rule, path) in rules.iter().zip(paths) {
            assert!(rule["message"].as_str().is_some_and(|message| message.starts_with(&format!("{path} is decided"))));
        }
        assert_eq!(rules.len(), paths.len(), "a shared field may be set");
        let first = rules[1]["expression"].as_str().expect("an expression");
        let optional = r#"object[?"spec"][?"eks"][?"configuration"][?"labels"][?"a.b/c"]"#;
        assert!(first.starts_with(&format!("variables.isExcluded || (!{optional}.hasValue()")), "{first}");
        // The API server offers the Namespace to variables and validations, and to no match condition.
        assert_eq!(policy["spec"]["matchConditions"], Value::Null);
        assert_eq!(
            (&policy["spec"]["failurePolicy"], &binding["spec"]["validationActions"]),
            (&json!("Ignore"), &json!(["Warn"]))
        );
        let [policy, binding] = admission_policy(&boundaries, AdmissionAction::Deny);
        assert_eq!(
            (&policy["spec"]["failurePolicy"], &binding["spec"]["validationActions"]),
            (&json!("Fail"), &json!(["Deny"]))
        );
    }

    #[test]
    fn exclusion_counts_where_the_policy_of_the_boundaries_allows_it() {
        assert!(exclusion("").starts_with("namespaceObject.metadata") && !exclusion("").contains("matches"));
        assert_eq!(exclusion("excludableNamespaces: []"), "false");
        let some = exclusion("excludableNamespaces: [kube-*, 'a.?']");
        assert!(
            some.contains(r#"request.namespace.matches("^kube-.*$") || request.namespace.matches("^a\\..$")"#),
            "{some}"
        );
    }
}
