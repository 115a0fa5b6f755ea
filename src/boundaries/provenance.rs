//! Values that record their source.

use std::{collections::BTreeMap, fmt};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::path::{Path, is_zero_a_choice};

/// Author of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The InstanceGroup.
    Tenant,
    /// `defaults` of the ConfigMap.
    Default,
    /// `conditionals` of the ConfigMap; the index counts from 0.
    Conditional(usize),
}

/// The boundary that applied a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Boundary {
    /// `restricted`
    Restricted,
    /// `shared.replace`
    Replace,
    /// `shared.merge`
    Merge,
    /// `shared.mergeOverride`
    MergeOverride,
}

impl Boundary {
    /// The path of the boundary's list in the ConfigMap.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Restricted => "restricted",
            Self::Replace => "shared.replace",
            Self::Merge => "shared.merge",
            Self::MergeOverride => "shared.mergeOverride",
        }
    }
}

/// Source of a value in a merged spec. It prints as `tenant`, `default (restricted)`, `conditional 0 (shared.merge)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// Author of the value.
    pub origin: Origin,
    /// The boundary that applied the value; `None` for a tenant's own value.
    pub boundary: Option<Boundary>,
}

impl Source {
    /// A tenant's own value.
    pub(crate) const TENANT: Self = Self { origin: Origin::Tenant, boundary: None };
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.origin {
            Origin::Tenant => f.write_str("tenant")?,
            Origin::Default => f.write_str("default")?,
            Origin::Conditional(index) => write!(f, "conditional {index}")?,
        }
        self.boundary.map_or(Ok(()), |boundary| write!(f, " ({})", boundary.as_str()))
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The source of each value by path, with list indexes in brackets. A map that is not empty has no entry of its own.
pub(crate) type Provenance = BTreeMap<String, Source>;

/// A value that records the source of each of its parts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SourcedValue {
    pub source: Source,
    pub content: SourcedContent,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum SourcedContent {
    Scalar(Value),
    List(Vec<SourcedValue>),
    Map(BTreeMap<String, SourcedValue>),
}

impl SourcedValue {
    pub(crate) fn new(value: &Value, source: Source) -> Self {
        let content = match value {
            Value::Array(items) => SourcedContent::List(items.iter().map(|item| Self::new(item, source)).collect()),
            Value::Object(map) => {
                SourcedContent::Map(map.iter().map(|(key, value)| (key.clone(), Self::new(value, source))).collect())
            }
            scalar => SourcedContent::Scalar(scalar.clone()),
        };
        Self { source, content }
    }

    pub(crate) fn value(&self) -> Value {
        match &self.content {
            SourcedContent::Scalar(value) => value.clone(),
            SourcedContent::List(items) => Value::Array(items.iter().map(Self::value).collect()),
            SourcedContent::Map(map) => {
                Value::Object(map.iter().map(|(key, tree)| (key.clone(), tree.value())).collect::<Map<_, _>>())
            }
        }
    }

    /// Whether the value at a dotted path counts as unset. Of an admin, only null does. For a tenant's, see [`is_unset`].
    pub(crate) fn is_unset(&self, path: &str) -> bool {
        if self.source.origin != Origin::Tenant {
            return self.content == SourcedContent::Scalar(Value::Null);
        }
        match &self.content {
            SourcedContent::Scalar(value) => is_unset(path, value),
            SourcedContent::List(items) => items.is_empty(),
            SourcedContent::Map(map) => map.is_empty(),
        }
    }

    pub(crate) fn get(&self, path: &Path) -> Option<&Self> {
        path.segments().iter().try_fold(self, |tree, segment| match &tree.content {
            SourcedContent::Map(map) => map.get(segment),
            SourcedContent::Scalar(_) | SourcedContent::List(_) => None,
        })
    }

    /// Sets the value at a path and creates the maps above it. If a value that is not a map is in the way, nothing
    /// happens unless that value is unset.
    pub(crate) fn set(&mut self, path: &Path, tree: Self) {
        let mut node = self;
        for segment in path.segments() {
            if !matches!(node.content, SourcedContent::Map(_)) && node.is_unset("") {
                node.content = SourcedContent::Map(BTreeMap::new());
            }
            let SourcedContent::Map(map) = &mut node.content else {
                return;
            };
            node = map
                .entry(segment.clone())
                .or_insert_with(|| Self { source: tree.source, content: SourcedContent::Map(BTreeMap::new()) });
        }
        *node = tree;
    }

    pub(crate) fn remove(&mut self, path: &Path) {
        let Some((last, above)) = path.segments().split_last() else {
            return;
        };
        let mut node = self;
        for segment in above {
            let SourcedContent::Map(map) = &mut node.content else {
                return;
            };
            let Some(next) = map.get_mut(segment) else {
                return;
            };
            node = next;
        }
        if let SourcedContent::Map(map) = &mut node.content {
            map.remove(last);
        }
    }

    /// Lists the source of every leaf below the given path.
    pub(crate) fn collect_sources(&self, path: &str, found: &mut Provenance) {
        match &self.content {
            SourcedContent::List(items) if !items.is_empty() => {
                for (index, item) in items.iter().enumerate() {
                    item.collect_sources(&format!("{path}[{index}]"), found);
                }
            }
            SourcedContent::Map(map) if !map.is_empty() => {
                for (key, tree) in map {
                    tree.collect_sources(&format!("{path}.{key}"), found);
                }
            }
            SourcedContent::Scalar(_) | SourcedContent::List(_) | SourcedContent::Map(_) => {
                found.insert(path.to_owned(), self.source);
            }
        }
    }
}

/// Whether a tenant's value at a dotted path counts as unset: null, "", empty lists and maps, and a zero that is no
/// choice.
pub(super) fn is_unset(path: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.as_f64() == Some(0.0) && !is_zero_a_choice(path),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sourced_value_round_trips() {
        let value = json!({"a": [1, {"b": null}], "c": {}, "d": "x"});
        assert_eq!(SourcedValue::new(&value, Source::TENANT).value(), value);
    }

    #[test]
    fn set_creates_missing_maps() {
        let mut tree = SourcedValue::new(&json!({"a": {"b": 1}, "list": [1], "empty": null}), Source::TENANT);
        for path in ["a.c.d", "list.x", "empty.y", "a.b.z"] {
            tree.set(&Path::parse(path).unwrap(), SourcedValue::new(&json!(2), Source::TENANT));
        }
        assert_eq!(tree.value(), json!({"a": {"b": 1, "c": {"d": 2}}, "list": [1], "empty": {"y": 2}}));
        tree.remove(&Path::parse("a.c.d").unwrap());
        tree.remove(&Path::parse("list.0").unwrap());
        assert_eq!(tree.value(), json!({"a": {"b": 1, "c": {}}, "list": [1], "empty": {"y": 2}}));
    }

    #[test]
    fn sources_are_collected_per_leaf() {
        let mut found = Provenance::new();
        SourcedValue::new(&json!({"a": [{"b": 1}], "c": {}}), Source::TENANT).collect_sources("spec", &mut found);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["spec.a[0].b", "spec.c"]);
        let source = Source { origin: Origin::Conditional(2), boundary: Some(Boundary::Merge) };
        assert_eq!(source.to_string(), "conditional 2 (shared.merge)");
    }
}
