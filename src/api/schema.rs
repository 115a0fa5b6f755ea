//! Queries about paths in the CRD's schema: which fields exist, their types, and the closest match for a misspelled
//! name.

use std::sync::LazyLock;

use kube::CustomResourceExt;
use serde_json::Value;

use super::InstanceGroup;
pub(crate) use crate::util::similar::{closest_match, misspelled};

static ROOT: LazyLock<Value> = LazyLock::new(|| {
    let crd = serde_json::to_value(InstanceGroup::crd()).unwrap_or_default();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
});

/// Every dotted path in the schema, with `metadata.annotations` first. Lists add no segment.
static PATHS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut paths = vec!["metadata.annotations".to_owned()];
    collect_paths(spec(), "spec", &mut paths);
    paths
});

fn collect_paths(schema: &Value, path: &str, paths: &mut Vec<String>) {
    paths.push(path.to_owned());
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        collect_paths(property, &format!("{path}.{name}"), paths);
    }
}

/// The schema of `spec`.
pub(crate) fn spec() -> &'static Value {
    &ROOT["properties"]["spec"]
}

/// The schema of `status`.
pub(crate) fn status() -> &'static Value {
    &ROOT["properties"]["status"]
}

/// Whether a path of keys names `metadata.annotations`, one annotation, or a field of the spec outside lists. Any key of
/// a map such as `labels` is known.
pub(crate) fn is_known_path(segments: &[String]) -> bool {
    if let [metadata, annotations, below @ ..] = segments
        && metadata == "metadata"
        && annotations == "annotations"
    {
        return below.len() <= 1;
    }
    let mut schema: &Value = &ROOT;
    for segment in segments {
        schema = match (&schema["properties"][segment], &schema["additionalProperties"]) {
            (Value::Null, Value::Null) => return false,
            (Value::Null, map) => map,
            (property, _) => property,
        };
    }
    segments.first().is_some_and(|root| root == "spec")
}

/// Whether a dotted path names a map with arbitrary keys, such as labels or annotations.
pub(crate) fn is_free_map(path: &str) -> bool {
    let field = path.split('.').try_fold(&*ROOT, |schema, segment| schema["properties"].get(segment));
    path == "metadata.annotations" || field.is_some_and(|schema| schema["additionalProperties"].is_object())
}

/// The known path closest to an unknown one.
pub(crate) fn closest_path(path: &str) -> Option<&'static str> {
    closest_match(path, PATHS.iter().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_paths_come_from_the_schema() {
        let is_known = |path: &str| is_known_path(&path.split('.').map(str::to_owned).collect::<Vec<_>>());
        for path in ["metadata.annotations", "spec", "spec.strategy", "spec.eks.configuration.labels.team"] {
            assert!(is_known(path), "{path}");
        }
        for path in ["spec.eks.strategy", "metadata", "status", "", "spec.", "spec.eks.configuration.tags.key", "x.y"] {
            assert!(!is_known(path), "{path}");
        }
        let annotation = ["metadata", "annotations", "a.b/c"].map(str::to_owned);
        assert!(is_known_path(&annotation) && !is_known_path(&[&annotation[..], &["x".to_owned()]].concat()));
    }

    #[test]
    fn unknown_path_suggests_the_closest_known_path() {
        assert_eq!(closest_path("spec.eks.strategy"), Some("spec.strategy"));
        assert_eq!(closest_path("spec.eks.configuration.clustername"), Some("spec.eks.configuration.clusterName"));
        assert_eq!(closest_path("zzzzzzzz"), None);
    }
}
