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

#[test]
fn every_field_has_a_description() {
    fn visit(schema: &serde_json::Value, path: &str, missing: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if property["description"].as_str().is_none_or(str::is_empty) {
                missing.push(path.clone());
            }
            visit(property, &path, missing);
            visit(&property["items"], &path, missing);
        }
    }
    for (name, text) in api::crd_files() {
        let crd: serde_json::Value = serde_yaml::from_str(&text).expect("the CRD is YAML");
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut missing = vec![];
        visit(&schema["properties"]["spec"], "spec", &mut missing);
        visit(&schema["properties"]["status"], "status", &mut missing);
        assert_eq!(missing, Vec::<String>::new(), "{name}");
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
