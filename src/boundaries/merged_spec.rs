//! The result of the merge.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::overridden::OverriddenValue;
use super::path::Path;
use super::provenance::{Origin, Provenance, Source};
use crate::api::names::annotation::is_true;
use crate::api::redacted;

/// The fields that users know an entry of a list by.
const IDENTIFYING_FIELDS: [&str; 5] = ["name", "key", "type", "resourceType", "namespace"];

/// Annotations of an InstanceGroup after the merge with the boundaries. Only the merge makes them, so that no annotation
/// of a tenant takes effect past a boundary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct MergedAnnotations(BTreeMap<String, String>);

impl MergedAnnotations {
    pub(super) fn new(annotations: BTreeMap<String, String>) -> Self {
        Self(annotations)
    }

    /// The value of an annotation.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Whether an annotation is set to "true", in any case.
    pub(crate) fn is_true(&self, key: &str) -> bool {
        is_true(&self.0, key)
    }

    /// All annotations, by key.
    pub(crate) fn as_map(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

/// An InstanceGroup after the merge with the boundaries.
#[derive(Clone, Default, PartialEq, Serialize)]
pub struct MergedSpec {
    /// Annotations after the merge.
    pub annotations: MergedAnnotations,
    /// Spec after the merge, as JSON; [`crate::api::decode_spec`] decodes it.
    pub spec: Value,
    /// Source of each value.
    pub provenance: Provenance,
    /// Every value that the tenant set and that is not in the merged spec, by path; then those without effect.
    pub overridden: Vec<OverriddenValue>,
    /// SHA-256, in hex, of the merged spec and the annotations that the controller reads; empty for an excluded group.
    pub hash: String,
    /// The paths that tenants may not set; empty for an excluded group.
    #[serde(skip)]
    pub(crate) restricted: Arc<[Path]>,
}

impl MergedSpec {
    /// Whether tenants may not set the value at a dotted path.
    pub(crate) fn is_restricted(&self, path: &str) -> bool {
        Path::parse(path).is_some_and(|path| self.restricted.iter().any(|above| above.covers(&path)))
    }

    /// Where the cluster admin wrote the value at a path; `None` if the tenant wrote it or a part of it, or if there is
    /// none.
    pub(crate) fn admin_source(&self, path: &str) -> Option<Source> {
        let is_part =
            |key: &str| key.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        let with_prefix = self.provenance.range(path.to_owned()..).take_while(|(key, _)| key.starts_with(path));
        let mut parts = with_prefix.filter(|(key, _)| is_part(key)).map(|(_, source)| *source);
        let Some(first) = parts.next() else {
            let (parent, _) = path.rsplit_once(['.', '['])?;
            return self.provenance.get(parent).copied().filter(|source| source.origin != Origin::Tenant);
        };
        let is_admin = |source: &Source| source.origin != Origin::Tenant;
        (is_admin(&first) && parts.all(|source| is_admin(&source))).then_some(first)
    }

    /// A path with the entry of a list as its author knows it; `None` where the index is that of the author's own list.
    /// The entries of a list that the boundaries merged have other indexes than in the lists it was merged from. They
    /// are named by what identifies them, as in `taints[key=team]`, or by the tenant's own index.
    pub(crate) fn author_path(&self, path: &str) -> Option<String> {
        let (list, rest) = path.split_once('[')?;
        let (index, rest) = rest.split_once(']')?;
        let index: usize = index.parse().ok()?;
        let pointer = format!("/{}", list.strip_prefix("spec.")?.replace('.', "/"));
        let items = self.spec.pointer(&pointer)?.as_array()?;
        let is_tenants = |index: usize| self.admin_source(&format!("{list}[{index}]")).is_none();
        if (0..items.len()).all(is_tenants) {
            return None;
        }
        let item = items.get(index)?;
        let identity = IDENTIFYING_FIELDS.iter().find_map(|field| {
            let text = item[field].as_str().filter(|text| !text.is_empty() && text.len() <= 128)?;
            Some(format!("{field}={text}"))
        });
        let own_index = || is_tenants(index).then(|| (0..index).filter(|other| is_tenants(*other)).count().to_string());
        Some(format!("{list}[{}]{rest}", identity.or_else(own_index)?))
    }

    /// Whether the tenant set the value at a path, or a value that contains it.
    pub(crate) fn is_from_tenant(&self, path: &str) -> bool {
        let mut path = path;
        loop {
            if let Some(source) = self.provenance.get(path) {
                return source.origin == Origin::Tenant;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return true,
            }
        }
    }
}

impl std::fmt::Debug for MergedSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { annotations, spec, provenance: _, overridden, hash, restricted: _ } = self;
        let mut parts = f.debug_struct("MergedSpec");
        parts.field("annotations", annotations).field("spec", &redacted(spec).to_string());
        parts.field("overridden", overridden).field("hash", hash).finish_non_exhaustive()
    }
}
