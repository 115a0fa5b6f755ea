//! Dotted paths into an InstanceGroup, such as `spec.eks.configuration.image`.

use std::fmt;

use serde_json::Value;

/// A path of map keys. It never leads into a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Path(Vec<String>);

impl Path {
    /// Parses a dotted path; surrounding space is ignored. `None` for an empty path or an empty segment.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let segments: Vec<String> = text.trim().split('.').map(str::to_owned).collect();
        (!segments.iter().any(String::is_empty)).then_some(Self(segments))
    }

    /// The keys from the root downward; at least one.
    pub(crate) fn segments(&self) -> &[String] {
        &self.0
    }

    /// Whether this path equals the other path or is a parent of it.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
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
    const FIELDS: [&str; 5] = [
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
        assert!(["", ".", "a..b", ".a", "a."].into_iter().all(|text| Path::parse(text).is_none()));
    }

    #[test]
    fn four_lists_have_a_merge_key() {
        for (text, key) in [("tags", Some("key")), ("volumes", Some("name")), ("subnets", None)] {
            assert_eq!(Path::parse(&format!("spec.eks.configuration.{text}")).unwrap().merge_key(), key);
        }
        assert_eq!(Path::parse("spec.eks-managed.configuration.tags").unwrap().merge_key(), None);
    }
}
