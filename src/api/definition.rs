//! The CustomResourceDefinitions as YAML. The API server quotes a pattern that a value does not match, which a user
//! must then decipher. In the YAML, each pattern is therefore a CEL rule of the same meaning whose message names what
//! to write.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt;

use super::validate::{describe_pattern, pattern_words};
use super::{BoundariesRevision, InstanceGroup};

/// Longest text that a rule is evaluated for where the words of an enumeration bound the length anyway. The API server
/// estimates the cost of a rule from it.
const MAX_WORD: i64 = 64;

/// The CustomResourceDefinitions as YAML, with their file names in `crds/`.
pub fn crd_files() -> [(&'static str, String); 2] {
    [("instancegroups.yaml", crd_yaml()), ("boundariesrevisions.yaml", definition_yaml(BoundariesRevision::crd()))]
}

/// The CustomResourceDefinition of InstanceGroups as YAML, exactly as in `crds/instancegroups.yaml`.
pub fn crd_yaml() -> String {
    definition_yaml(InstanceGroup::crd())
}

fn definition_yaml(mut crd: CustomResourceDefinition) -> String {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            patterns_to_rules(schema);
        }
    }
    let body = serde_yaml::to_string(&crd).unwrap_or_else(|error| format!("# {error}\n"));
    format!("# Generated from src/api by `instance-manager crd`; change the types, not this file.\n---\n{body}")
}

fn patterns_to_rules(schema: &mut JSONSchemaProps) {
    if let Some(pattern) = schema.pattern.take() {
        if pattern_words(&pattern).is_some() {
            schema.max_length.get_or_insert(MAX_WORD);
        }
        let is_text = schema.x_kubernetes_int_or_string != Some(true);
        schema.x_kubernetes_validations.get_or_insert_default().push(pattern_rule(&pattern, is_text));
    }
    schema.properties.iter_mut().flat_map(|fields| fields.values_mut()).for_each(patterns_to_rules);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        patterns_to_rules(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        patterns_to_rules(values);
    }
}

/// The rule of a pattern. The API server shows the value before the message.
fn pattern_rule(pattern: &str, is_text: bool) -> ValidationRule {
    let matches = format!("self.matches({})", cel_text(pattern));
    ValidationRule {
        rule: if is_text { matches } else { format!("type(self) != string || {matches}") },
        message: Some(format!("must be {}", describe_pattern(pattern))),
        ..ValidationRule::default()
    }
}

/// A text as a literal of CEL.
fn cel_text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
