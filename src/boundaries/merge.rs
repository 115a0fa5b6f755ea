//! The merge of the boundaries and an InstanceGroup into a merged spec.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::merged_spec::{MergedAnnotations, MergedSpec};
use super::overridden::{OverriddenValue, find_overridden, overridden_value};
use super::parse::Boundaries;
use super::path::{Path, merge_key_value};
use super::provenance::{Boundary, Origin, Provenance, Source, SourcedContent, SourcedValue};
use super::unused::find_unused;
use crate::api::annotations::label_items;
use crate::api::{names, schema};
use crate::lock::is_locked;
use crate::util::digest::sha256_hex;

/// A conflict of types between an InstanceGroup and the ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}; {remedy}")]
pub struct MergeError {
    /// Dotted path of the conflict.
    pub path: String,
    /// Which types the values of the group and of the ConfigMap have.
    pub message: String,
    /// What the admin or the tenant can change to end the conflict.
    pub remedy: String,
}

/// Merges a group, given as `{metadata: {annotations}, spec}`, with the boundaries. An excluded group is returned
/// unchanged.
///
/// ```
/// use instance_manager::boundaries::{Boundaries, merge};
/// use serde_json::json;
///
/// let config_map = [
///     ("boundaries".to_owned(), "restricted: [spec.eks.configuration.image]".to_owned()),
///     ("defaults".to_owned(), "spec: {eks: {configuration: {image: ami-admin}}}".to_owned()),
/// ];
/// let (boundaries, _warnings) = Boundaries::parse(&config_map.into()).unwrap();
/// let group = json!({ "spec": { "eks": { "maxSize": 3, "configuration": { "image": "ami-tenant" } } } });
/// let merged = merge(&boundaries, &group, false).unwrap();
///
/// assert_eq!(merged.spec, json!({ "eks": { "maxSize": 3, "configuration": { "image": "ami-admin" } } }));
/// assert_eq!(merged.provenance["spec.eks.maxSize"].to_string(), "tenant");
/// assert_eq!(merged.provenance["spec.eks.configuration.image"].to_string(), "default (restricted)");
/// assert_eq!(merged.overridden[0].tenant_value, "\"ami-tenant\"");
/// ```
///
/// # Errors
/// Values of different kinds that a boundary would merge.
pub fn merge(boundaries: &Boundaries, group: &Value, excluded: bool) -> Result<MergedSpec, MergeError> {
    // A group without a spec is treated like one with an empty spec.
    let spec = if group["spec"].is_null() { json!({}) } else { group["spec"].clone() };
    let tenant = json!({ "metadata": { "annotations": group["metadata"]["annotations"] }, "spec": spec });
    let tree = SourcedValue::new(&tenant, Source::TENANT);
    if excluded {
        return Ok(build_merged_spec(&tree, vec![], String::new()));
    }
    let conditionals = boundaries.matching_conditionals(&string_map(&tenant["metadata"]["annotations"]));
    let mut merged = apply_boundaries(boundaries, &conditionals, tree.clone())?;
    let mut overridden = find_overridden(&tenant, &merged);
    for value in overridden.iter_mut().filter(|value| value.winner.is_none()) {
        value.lost_in_merge = lost_in_merge(boundaries, &value.path);
    }
    overridden.extend(limit_annotation_labels(boundaries, &conditionals, tree, &mut merged)?);
    let hash = hash_spec(&merged);
    let restricted = boundaries.restricted.clone();
    Ok(MergedSpec { restricted, ..build_merged_spec(&merged, overridden, hash) })
}

/// What a group that sets nothing gets: from the defaults alone (`None`), and with each conditional alone (its index).
pub(crate) fn merge_empty_group(boundaries: &Boundaries) -> Vec<(Option<usize>, Result<MergedSpec, MergeError>)> {
    let tree = SourcedValue::new(&json!({ "metadata": { "annotations": {} }, "spec": {} }), Source::TENANT);
    let merged = |conditionals: &[usize]| {
        let merged = apply_boundaries(boundaries, conditionals, tree.clone())?;
        Ok(build_merged_spec(&merged, vec![], String::new()))
    };
    let conditionals = (0..boundaries.conditionals.len()).map(|index| (Some(index), merged(&[index])));
    std::iter::once((None, merged(&[]))).chain(conditionals).collect()
}

/// Whether the group's own annotation `lock-upgrades`, or the admin's in its place, locks the group.
pub(crate) fn is_group_locked(boundaries: &Boundaries, annotations: &BTreeMap<String, String>, excluded: bool) -> bool {
    let path = Path::from_segments(&["metadata", "annotations", names::annotation::LOCK_UPGRADES]);
    // A merge costs more than all else that a poll of the rollout asks about a group, and brings nothing that nobody set.
    let sets_it = |defaults: &Value| value_at(defaults, &path).is_some();
    let is_set = annotations.contains_key(names::annotation::LOCK_UPGRADES)
        || sets_it(&boundaries.defaults)
        || boundaries.conditionals.iter().any(|conditional| sets_it(&conditional.defaults));
    if excluded || !is_set || !boundaries.concerns(&path) {
        return is_locked(annotations);
    }
    // What cannot be merged is not planned at all, so its lock stays.
    merge_annotations(boundaries, annotations).map_or(true, |merged| is_locked(&merged))
}

/// The annotations of a group after the merge, without the cost of a merge of its spec.
///
/// # Errors
/// See [`merge`]; values of the spec cannot conflict here.
pub(crate) fn merge_annotations(
    boundaries: &Boundaries,
    annotations: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, MergeError> {
    let tree = SourcedValue::new(&json!({ "metadata": { "annotations": annotations } }), Source::TENANT);
    let conditionals = boundaries.matching_conditionals(annotations);
    let part = Path::from_segments(&["metadata", "annotations"]);
    let mut merged = apply_boundaries_to(Some(&part), boundaries, &conditionals, tree.clone())?;
    limit_annotation_labels(boundaries, &conditionals, tree, &mut merged)?;
    Ok(string_map(&merged.value()["metadata"]["annotations"]))
}

fn apply_boundaries(
    boundaries: &Boundaries,
    conditionals: &[usize],
    tree: SourcedValue,
) -> Result<SourcedValue, MergeError> {
    apply_boundaries_to(None, boundaries, conditionals, tree)
}

/// Applies the boundaries whose paths touch `part` of the tree; `None` is the whole tree.
fn apply_boundaries_to(
    part: Option<&Path>,
    boundaries: &Boundaries,
    conditionals: &[usize],
    mut tree: SourcedValue,
) -> Result<SourcedValue, MergeError> {
    let concerned = |path: &&Path| part.is_none_or(|part| path.overlaps(part));
    for path in boundaries.replace.iter().filter(concerned) {
        // shared.replace never applies to the strategy, even when it is unset: existing groups would change how they rotate.
        let name = path.to_string();
        let is_set = name == "spec.strategy" || tree.get(path).is_some_and(|own| !own.is_unset(&name));
        if let Some(value) = admin_value(boundaries, conditionals, path, Boundary::Replace).filter(|_| !is_set) {
            tree.set(path, value);
        }
    }
    for (paths, kind) in [(&boundaries.merge, Boundary::Merge), (&boundaries.merge_override, Boundary::MergeOverride)] {
        for path in paths.iter().filter(concerned) {
            if let Some(merged) = shared_value(boundaries, conditionals, path, kind, tree.get(path))? {
                tree.set(path, merged);
            }
        }
    }
    for path in boundaries.restricted.iter().filter(concerned) {
        match admin_value(boundaries, conditionals, path, Boundary::Restricted) {
            Some(value) => tree.set(path, value),
            None => tree.remove(path),
        }
    }
    Ok(tree)
}

/// Why a tenant's value was dropped although no boundary restricts it. Maps are merged one level deep, so the admin's
/// value of a parent field replaced it.
fn lost_in_merge(boundaries: &Boundaries, path: &str) -> Option<String> {
    let path = Path::parse(path)?;
    let covers = |paths: &[Path]| paths.iter().find(|above| above.covers(&path)).cloned();
    let merged = covers(&boundaries.merge).filter(|_| covers(&boundaries.restricted).is_none())?;
    let above = path.segments().get(..=merged.segments().len())?.join(".");
    Some(format!(
        "{} of {merged} takes the admin's {above} as a whole; ask your cluster admin to list {above} there instead",
        Boundary::Merge.as_str()
    ))
}

/// Removes from a tenant's annotation `default-labels` what the tenant could not set in `labels`, and returns it. The
/// annotation goes through the boundaries of `labels`: it is merged once more as if it were that field.
fn limit_annotation_labels(
    boundaries: &Boundaries,
    conditionals: &[usize],
    mut as_field: SourcedValue,
    merged: &mut SourcedValue,
) -> Result<Vec<OverriddenValue>, MergeError> {
    let annotation = Path::from_segments(&["metadata", "annotations", names::annotation::DEFAULT_LABELS]);
    let labels = ["spec", "eks", "configuration", "labels"];
    let text = match merged.get(&annotation) {
        Some(SourcedValue { source: Source::TENANT, content: SourcedContent::Scalar(Value::String(text)) }) => {
            text.clone()
        }
        _ => return Ok(vec![]),
    };
    if !boundaries.concerns(&Path::from_segments(&labels)) {
        return Ok(vec![]);
    }
    let path = |key: &str| Path::from_segments(&[&labels[..], &[key]].concat());
    for (key, value) in label_items(&text).flatten() {
        as_field.set(&path(key), SourcedValue::new(&value.into(), Source::TENANT));
    }
    let allowed = apply_boundaries(boundaries, conditionals, as_field)?;
    let is_allowed =
        |key: &str, value: &str| allowed.get(&path(key)).is_some_and(|tree| tree.value().as_str() == Some(value));
    let (mut kept, mut dropped) = (vec![], vec![]);
    // A later item of the same key counts.
    let last: BTreeMap<_, _> = label_items(&text).flatten().collect();
    for item in label_items(&text) {
        match item {
            Ok((key, _)) if !is_allowed(key, last[key]) => {
                dropped.retain(|known| *known != key);
                dropped.push(key);
            }
            Ok((key, value)) => kept.push(format!("{key}={value}")),
            Err(ignored) => kept.push(ignored.to_owned()),
        }
    }
    let overridden = |key: &&str| {
        let show_as = format!("{annotation}[{key}]");
        overridden_value(show_as.clone(), &show_as, &last[key].into(), merged.get(&path(key)))
    };
    let overridden: Vec<_> = dropped.iter().map(overridden).collect();
    match (overridden.is_empty(), kept.is_empty()) {
        (true, _) => {}
        (false, true) => merged.remove(&annotation),
        (false, false) => merged.set(&annotation, SourcedValue::new(&kept.join(",").into(), Source::TENANT)),
    }
    Ok(overridden)
}

fn build_merged_spec(tree: &SourcedValue, overridden: Vec<OverriddenValue>, hash: String) -> MergedSpec {
    let mut value = tree.value();
    let mut provenance = Provenance::new();
    if let SourcedContent::Map(roots) = &tree.content {
        roots.iter().for_each(|(key, root)| root.collect_sources(key, &mut provenance));
    }
    provenance.retain(|path, _| path != "metadata" && path != "metadata.annotations");
    let spec = value["spec"].take();
    let annotations = MergedAnnotations::new(string_map(&value["metadata"]["annotations"]));
    let mut merged = MergedSpec { annotations, spec, provenance, overridden, hash, restricted: Arc::default() };
    let unused = find_unused(&merged);
    merged.overridden.extend(unused);
    merged
}

/// Hashes the spec and only the annotations that the controller reads, so that annotations of other tools cause no
/// write. A request for a reconcile changes nothing of the spec.
fn hash_spec(tree: &SourcedValue) -> String {
    let value = tree.value();
    let mut annotations = string_map(&value["metadata"]["annotations"]);
    annotations.retain(|key, _| key.starts_with(names::GROUP) && key != names::annotation::RECONCILE_NOW);
    let text = json!({ "annotations": annotations, "spec": value["spec"] }).to_string();
    sha256_hex(&text)
}

fn string_map(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// The default of a path with its source; `None` when it is unset.
fn default_value(boundaries: &Boundaries, path: &Path, boundary: Boundary) -> Option<SourcedValue> {
    let source = Source { origin: Origin::Default, boundary: Some(boundary) };
    value_at(&boundaries.defaults, path).map(|value| SourcedValue::new(value, source)).filter(|tree| !tree.is_unset(""))
}

/// The values of a path from the matching conditionals that set it, in order.
fn conditional_values<'a>(
    boundaries: &'a Boundaries,
    matching: &'a [usize],
    path: &'a Path,
    boundary: Boundary,
) -> impl DoubleEndedIterator<Item = SourcedValue> + 'a {
    matching.iter().filter_map(move |index| {
        let source = Source { origin: Origin::Conditional(*index), boundary: Some(boundary) };
        let value = value_at(&boundaries.conditionals[*index].defaults, path)?;
        Some(SourcedValue::new(value, source)).filter(|tree| !tree.is_unset(""))
    })
}

/// The value of a path from the last conditional that sets it, or else the default.
fn admin_value(boundaries: &Boundaries, matching: &[usize], path: &Path, boundary: Boundary) -> Option<SourcedValue> {
    let last = conditional_values(boundaries, matching, path, boundary).next_back();
    last.or_else(|| default_value(boundaries, path, boundary))
}

fn value_at<'a>(value: &'a Value, path: &Path) -> Option<&'a Value> {
    path.segments().iter().try_fold(value, |value, segment| value.as_object()?.get(segment))
}

/// The result of shared.merge or shared.mergeOverride at one path; `None` keeps the tenant's value.
fn shared_value(
    boundaries: &Boundaries,
    matching: &[usize],
    path: &Path,
    kind: Boundary,
    own: Option<&SourcedValue>,
) -> Result<Option<SourcedValue>, MergeError> {
    let merge_key = path.merge_key();
    // Each conditional is merged over what precedes it, and wins conflicts in maps and lists. Of scalars the earlier one
    // stays: the default, or else the first conditional.
    let mut base = default_value(boundaries, path, kind);
    for conditional in conditional_values(boundaries, matching, path, kind) {
        base = Some(match base {
            None => conditional,
            Some(before) => merge_values(path, conditional, before, Winner::First, merge_key)?,
        });
    }
    let Some(base) = base else { return Ok(None) };
    let base_is_scalar = matches!(base.content, SourcedContent::Scalar(_));
    match own.filter(|own| !own.is_unset(&path.to_string())) {
        None => Ok(Some(base)),
        Some(own) if base_is_scalar && matches!(own.content, SourcedContent::Scalar(_)) => Ok(None),
        Some(own) => {
            let winner = if kind == Boundary::MergeOverride { Winner::Second } else { Winner::First };
            merge_values(path, base, own.clone(), winner, merge_key).map(Some)
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Winner {
    First,
    Second,
}

/// Merges two values of one kind. Maps are merged by key, one level deep; lists by their merge key, or else by
/// equality. Of two scalars the second is kept.
fn merge_values(
    path: &Path,
    first: SourcedValue,
    second: SourcedValue,
    winner: Winner,
    merge_key: Option<&str>,
) -> Result<SourcedValue, MergeError> {
    let source = first.source;
    match (first.content, second.content) {
        (SourcedContent::Map(mut merged), SourcedContent::Map(added)) => {
            // In maps with free keys, such as labels, an empty text is a value; elsewhere an empty field is unset.
            let name = path.to_string();
            let free = schema::is_free_map(&name);
            let is_set = |key: &str, tree: &SourcedValue| {
                if free {
                    tree.content != SourcedContent::Scalar(Value::Null)
                } else {
                    !tree.is_unset(&format!("{name}.{key}"))
                }
            };
            for (key, tree) in added.into_iter().filter(|(key, tree)| is_set(key, tree)) {
                let keep = winner == Winner::First && merged.get(&key).is_some_and(|known| is_set(&key, known));
                if !keep {
                    merged.insert(key, tree);
                }
            }
            Ok(SourcedValue { source, content: SourcedContent::Map(merged) })
        }
        (SourcedContent::List(first), SourcedContent::List(second)) => {
            Ok(SourcedValue { source, content: SourcedContent::List(merge_lists(first, second, winner, merge_key)) })
        }
        (SourcedContent::Scalar(_), scalar @ SourcedContent::Scalar(_)) => {
            Ok(SourcedValue { source: second.source, content: scalar })
        }
        (first, second) => Err(MergeError {
            path: path.to_string(),
            message: format!("{} cannot be merged with {}", describe_kind(&second), describe_kind(&first)),
            remedy: "write the same kind of value in the InstanceGroup, the defaults and the conditionals".to_owned(),
        }),
    }
}

fn describe_kind(node: &SourcedContent) -> &'static str {
    match node {
        SourcedContent::Scalar(_) => "a single value",
        SourcedContent::List(_) => "a list",
        SourcedContent::Map(_) => "a map",
    }
}

/// Merges two lists. An admin's own entries all count, even of one name; a tenant's entry of a known name is dropped, or
/// replaces the known one.
fn merge_lists(
    first: Vec<SourcedValue>,
    second: Vec<SourcedValue>,
    winner: Winner,
    merge_key: Option<&str>,
) -> Vec<SourcedValue> {
    struct Item {
        name: Option<String>,
        value: Value,
        tree: SourcedValue,
    }
    let item = |tree: SourcedValue| {
        let value = tree.value();
        Item { name: merge_key.and_then(|key| merge_key_value(&value, key)), value, tree }
    };
    let mut merged: Vec<Item> = first.into_iter().map(item).collect();
    let first_count = merged.len();
    for new in second.into_iter().map(item) {
        let is_admins_own = merge_key.is_some() && new.tree.source.origin != Origin::Tenant;
        let others = if is_admins_own { &mut merged[..first_count] } else { &mut merged[..] };
        if others.iter().any(|other| other.value == new.value) {
            continue;
        }
        // Items without a merge key are the same only if they are equal.
        match others.iter_mut().find(|other| new.name.is_some() && other.name == new.name) {
            Some(known) if winner == Winner::Second => *known = new,
            Some(_) => {}
            None => merged.push(new),
        }
    }
    merged.into_iter().map(|item| item.tree).collect()
}
