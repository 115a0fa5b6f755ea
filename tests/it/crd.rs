//! The files in `crds/` must match the API types. `UPDATE_GOLDEN=1 cargo test --test it` regenerates it.

use instance_manager::api;

#[test]
fn crd_files_match_types() {
    for (name, generated) in api::crd_files() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("crds").join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &generated).expect("the golden file is written");
        }
        let stored = std::fs::read_to_string(&path).expect("the golden file exists");
        assert!(stored == generated, "crds/{name} is stale: run UPDATE_GOLDEN=1 cargo test --test it");
    }
}

/// The description of a field of `spec`: what it means, its default, and who sets it. `None` if a part is missing.
pub fn spec_description(text: &str) -> Option<(&str, &str, &str)> {
    let (meaning, rest) = text.split_once(" Default: ")?;
    let (default, by) = rest.strip_suffix('.')?.split_once(". Set by: ")?;
    (!default.is_empty() && !by.is_empty()).then_some((meaning, default, by))
}

/// The description of each field below a schema, on one line, by the field's path.
fn descriptions(schema: &serde_json::Value, path: &str) -> Vec<(String, String)> {
    let mut found = vec![];
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let text = field["description"].as_str().unwrap_or_default().replace('\n', " ");
        found.push((path.clone(), text));
        found.extend(descriptions(field, &path));
        found.extend(descriptions(&field["items"], &format!("{path}[]")));
        found.extend(descriptions(&field["additionalProperties"], &format!("{path}.*")));
    }
    found
}

/// The paths in a part of a definition whose descriptions do not pass a check.
fn bad_descriptions(definition: &str, part: &str, is_good: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let crd: serde_json::Value = serde_yaml::from_str(definition).expect("the CRD is YAML");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part];
    let mut all = descriptions(schema, part);
    assert!(all.len() > 10, "{part} has fields");
    all.retain(|(_, text)| !is_good(text));
    all
}

/// Whether a text is made of sentences, of which one has at least five words. "Why, in one word." is a clause.
fn is_sentences(text: &str) -> bool {
    let begins_clause = ["Whether ", "What ", "Why", "How "].iter().any(|word| text.starts_with(word));
    let is_whole = text.starts_with(|c: char| c.is_ascii_uppercase()) && text.ends_with('.');
    is_whole && !begins_clause && text.split(". ").any(|sentence| sentence.split_whitespace().count() >= 5)
}

/// Whether a text says in sentences what a field is, its default, and who sets it.
fn is_spec_description(text: &str) -> bool {
    let setters = ["tenants, within the boundaries", "the controller", "users who may patch BoundariesRevisions"];
    spec_description(text)
        .is_some_and(|(meaning, _, by)| is_sentences(meaning) && setters.iter().any(|setter| by.starts_with(setter)))
}

/// A tenant learns from `kubectl explain` alone what to write, what applies without it, and whether tenants may set it.
#[test]
fn spec_field_says_in_sentences_what_it_is_and_its_default_and_who_sets_it() {
    for (name, text) in api::crd_files() {
        let bad = bad_descriptions(&text, "spec", is_spec_description);
        assert!(bad.is_empty(), "{name}: {bad:#?}");
    }
}

/// A person who reads a status by `kubectl explain` must not guess the subject of a phrase.
#[test]
fn status_field_is_described_in_a_sentence() {
    for (name, text) in api::crd_files() {
        let bad = bad_descriptions(&text, "status", is_sentences);
        assert!(bad.is_empty(), "{name}: {bad:#?}");
    }
}

/// kubectl reads some words as booleans: a field of that name gets another one in the cluster, and its values are dropped.
#[test]
fn no_field_is_named_like_a_boolean() {
    fn visit(value: &serde_json::Value, found: &mut Vec<String>) {
        let words = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
        if let Some(properties) = value["properties"].as_object() {
            found.extend(properties.keys().filter(|key| words.contains(&key.to_lowercase().as_str())).cloned());
        }
        match value {
            serde_json::Value::Object(map) => map.values().for_each(|value| visit(value, found)),
            serde_json::Value::Array(items) => items.iter().for_each(|value| visit(value, found)),
            _ => {}
        }
    }
    for (name, text) in api::crd_files() {
        let mut found = vec![];
        visit(&serde_yaml::from_str(&text).expect("the CRD is YAML"), &mut found);
        assert_eq!(found, [""; 0], "{name}");
    }
}

/// The API server quotes a pattern, which a person must decipher, and says what to write for a rule.
#[test]
fn no_field_is_checked_by_a_pattern_that_people_read() {
    fn count(value: &serde_json::Value, key: &str) -> usize {
        match value {
            serde_json::Value::Object(map) => {
                let own = usize::from(map.get(key).is_some_and(serde_json::Value::is_string));
                own + map.values().map(|value| count(value, key)).sum::<usize>()
            }
            serde_json::Value::Array(items) => items.iter().map(|item| count(item, key)).sum(),
            _ => 0,
        }
    }
    let crd: serde_json::Value = serde_yaml::from_str(&api::crd_yaml()).expect("the CRD is YAML");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert_eq!(count(schema, "pattern"), 0);
    assert!(count(schema, "message") > 40);
    let provisioner = &schema["properties"]["spec"]["properties"]["provisioner"]["x-kubernetes-validations"][0];
    assert_eq!(provisioner["message"], "must be one of eks, eks-managed, eks-fargate, fargate");
}

/// A tenant learns from `kubectl explain` that the admin limits a field, before the controller refuses a value.
#[test]
fn field_that_a_policy_limits_names_that_policy() {
    let crd: serde_json::Value = serde_yaml::from_str(&api::crd_yaml()).expect("the CRD is YAML");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    for (path, policy) in [
        ("spec.eks.maxSize", "quotas"),
        ("spec.eks.configuration.roleName", "roles"),
        ("spec.eks.configuration.instanceProfileName", "roles"),
        ("spec.eks.configuration.lifecycleHooks[].roleArn", "roles"),
        ("spec.eks.configuration.managedPolicies", "managedPolicies"),
        ("spec.eks.configuration.spotPrice", "spotRecommendationNamespaces"),
        ("spec.eks-managed.maxSize", "quotas"),
        ("spec.eks-managed.configuration.nodeRole", "roles"),
        ("spec.eks-fargate.podExecutionRoleArn", "roles"),
        ("spec.eks-fargate.selectors", "fargateNamespaces"),
        ("spec.strategy.crd", "strategyKinds"),
        ("spec.strategy.crd", "strategyNamespaces"),
        ("spec.strategy.crd", "strategyScripts"),
        ("spec.strategy.rollingUpdate.maxSurge", "quotas"),
    ] {
        let field = path.split('.').fold(schema, |schema, name| match name.strip_suffix("[]") {
            Some(name) => &schema["properties"][name]["items"],
            None => &schema["properties"][name],
        });
        let text = field["description"].as_str().unwrap_or_default();
        assert!(text.contains(&format!("policy.{policy}")), "{path}: {text}");
    }
}

#[test]
fn spec_has_no_required_fields() {
    let crd: serde_json::Value = serde_yaml::from_str(&api::crd_yaml()).expect("the CRD is YAML");
    let spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].to_string();
    assert!(!spec.contains("\"required\""));
}
