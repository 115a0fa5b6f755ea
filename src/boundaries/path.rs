//! Dotted paths into an InstanceGroup, such as `spec.eks.configuration.image`.

use std::fmt;

use serde_json::Value;

use crate::api::schema;

/// A path of map keys. It never leads into a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Path(Vec<String>);

impl Path {
    /// Parses a dotted path; surrounding space is ignored. Below a map with free keys, such as annotations or labels, the
    /// rest is one key, dots included. `None` for an empty path or an empty segment.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let dots = text.match_indices('.').map(|(at, _)| at);
        let key = dots.clone().find(|at| schema::is_free_map(&text[..*at])).map_or(text.len(), |at| at + 1);
        let (above, key) = text.split_at(key);
        let above = above.strip_suffix('.').filter(|_| !key.is_empty()).unwrap_or(above);
        let mut segments: Vec<String> = above.split('.').map(str::to_owned).collect();
        segments.extend((!key.is_empty()).then(|| key.to_owned()));
        (!segments.iter().any(String::is_empty)).then_some(Self(segments))
    }

    /// A path of these keys.
    pub(crate) fn from_segments(segments: &[&str]) -> Self {
        Self(segments.iter().map(|&segment| segment.to_owned()).collect())
    }

    /// The keys from the root downward; at least one.
    pub(crate) fn segments(&self) -> &[String] {
        &self.0
    }

    /// Whether this path equals the other path or is a parent of it.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// Whether one of the two paths covers the other one.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// The key by which lists at this path are merged; `None` where lists are merged by equality.
    pub(crate) fn merge_key(&self) -> Option<&'static str> {
        merge_key(&self.to_string())
    }
}

/// The key by which the list at a dotted path is merged.
pub(super) fn merge_key(path: &str) -> Option<&'static str> {
    match path.strip_prefix("spec.eks.configuration.")? {
        "tags" => Some("key"),
        "volumes" | "lifecycleHooks" | "userData" => Some("name"),
        _ => None,
    }
}

/// Whether a tenant's zero at a dotted path is a choice. In every other field a zero counts as unset.
pub(super) fn is_zero_a_choice(path: &str) -> bool {
    const FIELDS: [&str; 7] = [
        "spec.eks-managed.minSize",
        "spec.eks-managed.maxSize",
        "spec.eks.configuration.mixedInstancesPolicy.spotRatio",
        "spec.eks.configuration.mixedInstancesPolicy.baseCapacity",
        "spec.eks.configuration.mixedInstancesPolicy.spotPools",
        "spec.strategy.crd.maxRetries",
        "spec.strategy.rollingUpdate.maxUnavailable",
    ];
    FIELDS.contains(&path)
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// The value of a list item's merge key, in lower case; `None` without one.
pub(super) fn merge_key_value(item: &Value, key: &str) -> Option<String> {
    item.get(key)?.as_str().filter(|name| !name.is_empty()).map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_covers_itself_and_its_children() {
        let path = |text| Path::parse(text).unwrap();
        assert!(path("spec.eks").covers(&path(" spec.eks.minSize ")));
        assert!(!path("spec.eks").covers(&path("spec.eks-managed")));
        assert!(
            path("spec.eks.minSize").overlaps(&path("spec.eks"))
                && path("spec.eks").overlaps(&path("spec.eks.minSize"))
        );
        assert!(!path("spec.eks.minSize").overlaps(&path("spec.eks.maxSize")));
        assert!(["", ".", "a..b", ".a", "a."].into_iter().all(|text| Path::parse(text).is_none()));
    }

    #[test]
    fn key_of_a_free_map_may_have_dots() {
        for (text, above, key) in [
            ("metadata.annotations.a.b/c.d", vec!["metadata", "annotations"], "a.b/c.d"),
            ("spec.eks.configuration.labels.a.b/c", vec!["spec", "eks", "configuration", "labels"], "a.b/c"),
        ] {
            let path = Path::parse(text).unwrap();
            assert_eq!(path, Path::from_segments(&[&above[..], &[key]].concat()));
            assert_eq!(path.to_string(), text);
            assert!(Path::parse(&above.join(".")).unwrap().covers(&path));
        }
        assert_eq!(Path::parse("metadata.annotations."), None);
    }

    #[test]
    fn four_lists_have_a_merge_key() {
        for (text, key) in [("tags", Some("key")), ("volumes", Some("name")), ("subnets", None)] {
            assert_eq!(Path::parse(&format!("spec.eks.configuration.{text}")).unwrap().merge_key(), key);
        }
        assert_eq!(Path::parse("spec.eks-managed.configuration.tags").unwrap().merge_key(), None);
    }
}
