//! Validation of a spec against the CRD's schema without an API server: for merged specs, and for the fragments in the
//! ConfigMap, which the API server never validates.

use serde_json::{Map, Value};

use super::{
    fields::{DURATION, INT_OR_PERCENT, LABEL_KEY, LABEL_VALUE},
    redact::display_value,
    schema,
    spec::InstanceGroupSpec,
};
use crate::util::{duration, escape::escape_control};

/// Kind of a field error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaViolationKind {
    /// The value has another type than the schema; it cannot be decoded.
    WrongType,
    /// The value violates a rule of the schema.
    Rule,
    /// The schema has no such field, so the value has no effect.
    Unknown,
}

/// An error in one field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {value} {rule}; {remedy}", escape_control(.path))]
pub struct SchemaViolation {
    /// Kind of the error.
    pub kind: SchemaViolationKind,
    /// Dotted path of the field, with list indexes in brackets.
    pub path: String,
    /// The value as [`crate::api::display_value`] formats it.
    pub value: String,
    /// The rule that the value violates.
    pub rule: String,
    /// What the user can do.
    pub remedy: String,
}

/// Errors in a merged spec: wrong types and violated rules. Unknown fields are no errors, because the API server drops
/// them.
pub(crate) fn check_spec(spec: &Value) -> Vec<SchemaViolation> {
    let mut found = find_violations(spec);
    found.retain(|error| error.kind != SchemaViolationKind::Unknown);
    found
}

/// All errors in a spec or a fragment of one, including unknown fields.
pub(crate) fn find_violations(spec: &Value) -> Vec<SchemaViolation> {
    let mut found = vec![];
    validate_value(schema::spec(), spec, "spec", &mut found);
    check_timeouts(spec, &mut found);
    found
}

/// Decodes a spec.
///
/// ```
/// use instance_manager::api::decode_spec;
/// use serde_json::json;
///
/// let spec = decode_spec(&json!({"eks": {"minSize": 1, "maxSize": 3}})).unwrap();
/// assert_eq!(spec.eks.unwrap().max_size, Some(3));
///
/// let errors = decode_spec(&json!({"eks": {"maxSize": "three"}})).unwrap_err();
/// assert_eq!(errors[0].path, "spec.eks.maxSize");
/// ```
///
/// # Errors
/// All errors in the spec.
pub fn decode_spec(spec: &Value) -> Result<InstanceGroupSpec, Vec<SchemaViolation>> {
    let (decoded, found) = decode_spec_with_errors(spec)?;
    if found.is_empty() { Ok(decoded) } else { Err(found) }
}

/// Decodes a spec whose values may violate rules of the schema. Returns these violations, too.
///
/// # Errors
/// All errors in the spec, if one of them is a value of a wrong type.
pub fn decode_spec_with_errors(
    spec: &Value,
) -> Result<(InstanceGroupSpec, Vec<SchemaViolation>), Vec<SchemaViolation>> {
    let found = check_spec(spec);
    if found.iter().any(|error| error.kind == SchemaViolationKind::WrongType) {
        return Err(found);
    }
    // The checks above cover every type. An error of serde beyond them is reported without its text, which may quote values.
    let decoded = InstanceGroupSpec::deserialize_from(spec).ok_or_else(|| {
        vec![schema_violation(
            SchemaViolationKind::WrongType,
            "spec",
            spec,
            "cannot be decoded",
            "compare it with docs/reference.md",
        )]
    })?;
    Ok((decoded, found))
}

/// Decodes what is usable of a spec, for a deletion: values may violate rules, and those of wrong types are left out.
pub(crate) fn decode_usable(spec: &Value) -> Option<InstanceGroupSpec> {
    let with_violations = decode_spec_with_errors(spec).ok().map(|(decoded, _)| decoded);
    with_violations.or_else(|| decode_fitting(spec).map(|(decoded, _)| decoded))
}

/// Decodes a spec without its values of wrong types, to find what else is wrong with it. Not for a plan: what is left out
/// would get defaults. Returns the paths that were left out, too.
pub(crate) fn decode_fitting(spec: &Value) -> Option<(InstanceGroupSpec, Vec<String>)> {
    let mut fitting = spec.clone();
    let removed = remove_wrong_types(&mut fitting);
    Some((InstanceGroupSpec::deserialize_from(&fitting)?, removed))
}

/// Removes values of wrong types from a spec, and returns their paths. A list that contains one is removed as a whole, so
/// that the indexes of others stay.
pub(crate) fn remove_wrong_types(spec: &mut Value) -> Vec<String> {
    let (mut found, mut removed) = (check_spec(spec), vec![]);
    found.retain(|error| error.kind == SchemaViolationKind::WrongType);
    remove_values(spec, "spec", &found, &mut removed);
    removed
}

/// Removes the values that errors are about.
fn remove_values(value: &mut Value, path: &str, errors: &[SchemaViolation], removed: &mut Vec<String>) {
    let is_wrong = |path: &str| errors.iter().any(|error| error.path == path);
    match value {
        Value::Object(map) => map.retain(|key, child| {
            let path = format!("{path}.{key}");
            let items = child.as_array().map(Vec::len).unwrap_or_default();
            if is_wrong(&path) || (0..items).any(|index| is_wrong(&format!("{path}[{index}]"))) {
                removed.push(path);
                return false;
            }
            remove_values(child, &path, errors, removed);
            true
        }),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                remove_values(item, &format!("{path}[{index}]"), errors, removed);
            }
        }
        _ => {}
    }
}

impl InstanceGroupSpec {
    fn deserialize_from(spec: &Value) -> Option<Self> {
        if spec.is_null() { Some(Self::default()) } else { serde_json::from_value(spec.clone()).ok() }
    }
}

fn schema_violation(
    kind: SchemaViolationKind,
    path: &str,
    value: &Value,
    rule: impl Into<String>,
    remedy: impl Into<String>,
) -> SchemaViolation {
    SchemaViolation {
        kind,
        path: path.to_owned(),
        value: display_value(path, value),
        rule: rule.into(),
        remedy: remedy.into(),
    }
}

fn validate_value(schema: &Value, value: &Value, path: &str, found: &mut Vec<SchemaViolation>) {
    // A field may be null, which is the same as leaving it out; an item of a list or map may not.
    if value.is_null() && (schema["nullable"] == true || path == "spec") {
        return;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        match value {
            Value::String(text) => check_text(schema, text, value, path, found),
            Value::Number(number) if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {}
            _ => found.push(wrong_type(path, value, "a number or a percentage such as \"25%\"")),
        }
        return;
    }
    match (schema["type"].as_str().unwrap_or_default(), value) {
        ("string", Value::String(text)) => check_text(schema, text, value, path, found),
        ("integer", Value::Number(number)) if number.is_i64() => {}
        ("boolean", Value::Bool(_)) => {}
        ("array", Value::Array(items)) => {
            check_count(schema, "maxItems", items.len(), value, path, found);
            for (index, item) in items.iter().enumerate() {
                validate_value(&schema["items"], item, &format!("{path}[{index}]"), found);
            }
        }
        ("object", Value::Object(map)) => {
            check_count(schema, "maxProperties", map.len(), value, path, found);
            validate_map(schema, map, path, found);
        }
        (name, _) => found.push(wrong_type(path, value, describe_type(name))),
    }
}

fn validate_map(schema: &Value, map: &Map<String, Value>, path: &str, found: &mut Vec<SchemaViolation>) {
    for (key, value) in map {
        let path = format!("{path}.{key}");
        match (&schema["properties"][key], &schema["additionalProperties"]) {
            (Value::Null, Value::Null) => {
                let known =
                    schema["properties"].as_object().into_iter().flat_map(|known| known.keys()).map(String::as_str);
                let remedy = match schema::closest_match(key, known) {
                    Some(closest) => format!("did you mean {closest:?}?"),
                    None => "remove it, or compare it with docs/reference.md".to_owned(),
                };
                found.push(schema_violation(
                    SchemaViolationKind::Unknown,
                    &path,
                    value,
                    "is not a field of an InstanceGroup",
                    remedy,
                ));
            }
            (Value::Null, entry) => validate_value(entry, value, &path, found),
            (property, _) => validate_value(property, value, &path, found),
        }
    }
}

fn wrong_type(path: &str, value: &Value, expected: &str) -> SchemaViolation {
    schema_violation(
        SchemaViolationKind::WrongType,
        path,
        value,
        format!("is not {expected}"),
        format!("write {expected}"),
    )
}

fn describe_type(name: &str) -> &str {
    match name {
        "string" => "a string",
        "integer" => "a whole number",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "a map",
        other => other,
    }
}

fn check_count(schema: &Value, limit: &str, count: usize, value: &Value, path: &str, found: &mut Vec<SchemaViolation>) {
    if let Some(max) = schema[limit].as_u64().filter(|max| count as u64 > *max) {
        found.push(schema_violation(
            SchemaViolationKind::Rule,
            path,
            value,
            format!("has more than {max} entries"),
            format!("write at most {max} entries"),
        ));
    }
}

fn check_text(schema: &Value, text: &str, value: &Value, path: &str, found: &mut Vec<SchemaViolation>) {
    if let Some(max) = schema["maxLength"].as_u64().filter(|max| text.chars().count() as u64 > *max) {
        found.push(schema_violation(
            SchemaViolationKind::Rule,
            path,
            value,
            format!("is longer than {max} characters"),
            format!("write at most {max} characters"),
        ));
    }
    if let Some(pattern) = schema["pattern"].as_str().filter(|pattern| !matches_pattern(pattern, text)) {
        let expected = describe_pattern(pattern);
        found.push(schema_violation(
            SchemaViolationKind::Rule,
            path,
            value,
            format!("is not {expected}"),
            format!("write {expected}"),
        ));
    }
}

/// The values of an enumeration's pattern; `None` for another pattern.
pub(super) fn pattern_words(pattern: &str) -> Option<impl Iterator<Item = &str>> {
    Some(pattern.strip_prefix("(?i)^(")?.strip_suffix(")$")?.split('|'))
}

/// What a value must be to match a pattern of the schema.
pub(super) fn describe_pattern(pattern: &str) -> String {
    match pattern {
        INT_OR_PERCENT => "a number or a percentage such as \"25%\"".to_owned(),
        DURATION => "a duration such as 90s, 15m or 1h30m".to_owned(),
        LABEL_VALUE => "a label value (letters, digits, '-', '_' and '.', a letter or digit at both ends)".to_owned(),
        LABEL_KEY => "a label key ([prefix/]name)".to_owned(),
        _ => pattern_words(pattern).map_or_else(
            || format!("of the form {pattern}"),
            |words| format!("one of {}", words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ")),
        ),
    }
}

/// Whether a text matches a pattern of the schema. Each of the few patterns has its own matcher; a test checks that
/// none is missing.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    match pattern {
        INT_OR_PERCENT => text.is_empty() || is_count(text.strip_suffix('%').unwrap_or(text)),
        DURATION => text.is_empty() || duration::parse(text).is_some(),
        LABEL_VALUE => is_label_name(text),
        LABEL_KEY => match text.split_once('/') {
            None => is_label_name(text),
            Some((prefix, name)) => is_prefix(prefix) && !name.is_empty() && is_label_name(name),
        },
        _ => pattern_words(pattern).is_none_or(|mut words| words.any(|word| word.eq_ignore_ascii_case(text))),
    }
}

fn is_count(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_label_name(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    ends(text.chars().next())
        && ends(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn is_prefix(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(plain) && text.ends_with(plain) && text.chars().all(|c| plain(c) || matches!(c, '-' | '.'))
}

/// Checks the rules that the CRD states in CEL.
fn check_timeouts(spec: &Value, found: &mut Vec<SchemaViolation>) {
    let fields = [
        ("drainTimeout", 168, "omit the field: then drains have no time limit"),
        ("joinTimeout", 24, "omit the field for the default of 15m"),
    ];
    for (field, max_hours, without) in fields {
        let value = &spec["strategy"]["rollingUpdate"][field];
        let Some(time) = value.as_str().and_then(duration::parse) else { continue };
        let (problem, remedy) = match () {
            () if time.as_secs_f64() > f64::from(max_hours) * 3600.0 => {
                (format!("is more than {max_hours}h"), format!("write at most {max_hours}h"))
            }
            () if time.as_secs() < 1 => ("is less than 1s".to_owned(), format!("write a longer time, or {without}")),
            () => continue,
        };
        let path = format!("spec.strategy.rollingUpdate.{field}");
        found.push(schema_violation(SchemaViolationKind::Rule, &path, value, problem, remedy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    use crate::util::redact::REDACTED;

    /// A deletion needs the cluster and the limit of the drain, whatever else is wrong.
    #[test]
    fn deletion_decodes_what_is_usable_of_a_broken_spec() {
        let spec = json!({
            "provisioner": "eks", "strategy": {"type": "rollingUpdate", "rollingUpdate": {"drainTimeout": "24h"}},
            "eks": {"minSize": "many", "configuration": {"clusterName": "demo", "volumes": [{"type": "gp9"}]}},
        });
        let decoded = decode_usable(&spec).expect("a spec");
        let rolling = decoded.strategy.and_then(|strategy| strategy.rolling_update).expect("a strategy");
        assert_eq!(rolling.drain_timeout.as_deref(), Some("24h"));
        let eks = decoded.eks.expect("a section");
        assert_eq!(eks.configuration.and_then(|c| c.cluster_name).as_deref(), Some("demo"));
    }

    /// Values that mostly fit the schema: every field may hold something of its type, or of another one.
    fn value_of(schema: &'static Value) -> BoxedStrategy<Value> {
        let fitting = match schema["type"].as_str() {
            Some("string") => prop_oneof![Just(json!("")), Just(json!("eks")), Just(json!("15m"))].boxed(),
            Some("integer") => prop_oneof![Just(json!(0)), any::<i64>().prop_map(Value::from)].boxed(),
            Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
            Some("array") => prop::collection::vec(value_of(&schema["items"]), 0..2).prop_map(Value::from).boxed(),
            Some("object") => {
                let fields = schema["properties"].as_object().into_iter().flatten();
                let fields: Vec<_> = fields
                    .map(|(key, field)| (Just(key.clone()), prop::option::weighted(0.3, value_of(field))))
                    .collect();
                let keep = |fields: Vec<(String, Option<Value>)>| {
                    fields.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
                };
                fields.prop_map(keep).boxed()
            }
            _ => prop_oneof![Just(json!("25%")), any::<i64>().prop_map(Value::from)].boxed(),
        };
        prop_oneof![60 => fitting, 1 => Just(Value::Null), 1 => Just(json!([1])), 1 => Just(json!({"a": null}))].boxed()
    }

    /// The value at a dotted path of maps below `spec`.
    fn at<'a>(spec: &'a Value, path: &str) -> &'a Value {
        path.split('.').skip(1).fold(spec, |value, key| &value[key])
    }

    proptest! {
        #[test]
        fn validation_agrees_with_decoding(spec in value_of(schema::spec())) {
            let found = check_spec(&spec);
            let wrong: Vec<_> = found.iter().filter(|found| found.kind == SchemaViolationKind::WrongType).collect();
            let decodes = spec.is_null() || serde_json::from_value::<InstanceGroupSpec>(spec.clone()).is_ok();
            prop_assert!(decodes || !wrong.is_empty(), "{}", spec);
            // Serde accepts a list of one item for a map of one field; the check still reports it.
            prop_assert!(!decodes || wrong.iter().all(|found| at(&spec, &found.path).is_array()), "{}: {:?}", spec, wrong);
        }
    }

    #[test]
    fn errors_name_path_value_rule_and_remedy() {
        let found = find_violations(&json!({
            "provisioner": "gke", "eks": {"minSize": "three", "configuration": {"clustername": "x", "volumes": [{"size": true}]}},
        }));
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "spec.eks.configuration.clustername: \"x\" is not a field of an InstanceGroup; did you mean \"clusterName\"?",
                "spec.eks.configuration.volumes[0].size: true is not a whole number; write a whole number",
                "spec.eks.minSize: \"three\" is not a whole number; write a whole number",
                "spec.provisioner: \"gke\" is not one of eks, eks-managed, eks-fargate, fargate; write one of eks, eks-managed, eks-fargate, fargate",
            ]
        );
    }

    #[test]
    fn valid_spec_decodes() {
        let spec = json!({
            "provisioner": "EKS", "strategy": {"type": "ROLLINGUPDATE", "rollingUpdate": {"maxUnavailable": "25%", "joinTimeout": "20m"}},
            "eks": {"configuration": {"labels": {"team": "search"}, "taints": [{"key": "a/b", "value": "", "effect": "noschedule"}]}},
        });
        assert_eq!(check_spec(&spec), []);
        assert!(decode_spec(&spec).is_ok());
        assert!(decode_spec(&Value::Null).is_ok());
    }

    #[test]
    fn user_data_is_never_shown() {
        let found = find_violations(
            &json!({"eks": {"configuration": {"userData": [{"data": 42, "name": "canary", "stge": "canary"}], "bootstrapArguments": true}}}),
        );
        assert_eq!(found.len(), 3);
        assert!(
            found.iter().all(|error| !error.to_string().contains("canary") && error.value == REDACTED),
            "{found:?}"
        );
    }

    /// `kubectl drain --timeout=0s` has no limit. Here, it would end each drain before its first eviction.
    #[test]
    fn timeouts_have_limits() {
        let found = |drain: &str, join: &str| {
            let spec = json!({"strategy": {"rollingUpdate": {"drainTimeout": drain, "joinTimeout": join}}});
            check_spec(&spec).into_iter().map(|error| error.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(found("168h", "1s"), [""; 0]);
        let (long, zero) = (found("169h", "1h"), found("0s", "999ms"));
        assert!(
            long.len() == 1 && long[0].contains("rollingUpdate.drainTimeout") && long[0].contains("168h"),
            "{long:?}"
        );
        assert!(zero.len() == 2 && zero[0].contains("omit the field: then drains have no time limit"), "{zero:?}");
        assert!(zero[1].contains("rollingUpdate.joinTimeout") && zero[1].contains("15m"), "{zero:?}");
    }

    #[test]
    fn every_pattern_of_the_schema_has_a_matcher() {
        fn patterns<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
            match schema {
                Value::Object(map) => {
                    found.extend(map.get("pattern").and_then(Value::as_str));
                    map.values().for_each(|value| patterns(value, found));
                }
                Value::Array(items) => items.iter().for_each(|item| patterns(item, found)),
                _ => {}
            }
        }
        let mut found = vec![];
        patterns(schema::spec(), &mut found);
        assert!(found.len() > 15);
        for pattern in found {
            assert!(
                pattern_words(pattern).is_some()
                    || [INT_OR_PERCENT, DURATION, LABEL_VALUE, LABEL_KEY].contains(&pattern),
                "{pattern}"
            );
        }
    }

    #[test]
    fn label_values_and_keys_follow_kubernetes() {
        for good in ["", "a", "A-b_c.9"] {
            assert!(matches_pattern(LABEL_VALUE, good), "{good}");
        }
        for bad in ["-a", "a b", "a\nb", "a'", "é"] {
            assert!(!matches_pattern(LABEL_VALUE, bad), "{bad:?}");
        }
        for (key, good) in
            [("a/b", true), ("example.com/Team", true), ("a/", false), ("/a", false), ("A/b", false), ("a/b/c", false)]
        {
            assert_eq!(matches_pattern(LABEL_KEY, key), good, "{key}");
        }
    }
}
