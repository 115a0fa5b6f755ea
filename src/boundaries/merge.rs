//! Boundaries and a group become an effective group.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::merged_spec::Effective;
use super::overridden::{Refused, refusals};
use super::parse::Boundaries;
use super::path::{Path, index_of};
use super::provenance::{Boundary, Node, Origin, Provenance, Source, Tree};
use crate::api::{names, schema};
use crate::util::digest::sha256;

/// A group that cannot be merged with the ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}; {remedy}")]
pub struct MergeError {
    /// Where the two do not fit.
    pub path: String,
    /// Why.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// Merges a group, given as `{metadata: {annotations}, spec}`, with the boundaries. An excluded group stays as it is.
pub fn merge(boundaries: &Boundaries, group: &Value, excluded: bool) -> Result<Effective, MergeError> {
    // A group without a spec is one with an empty spec.
    let spec = if group["spec"].is_null() { json!({}) } else { group["spec"].clone() };
    let tenant = json!({ "metadata": { "annotations": group["metadata"]["annotations"] }, "spec": spec });
    let mut tree = Tree::new(&tenant, Source::TENANT);
    if excluded {
        return Ok(effective(&tree, vec![], String::new()));
    }
    let conditionals = boundaries.matching(&strings(&tenant["metadata"]["annotations"]));
    for path in &boundaries.replace {
        // An unset strategy counts as set here: existing groups would otherwise change how they rotate.
        let set = path.to_string() == "spec.strategy" || tree.get(path).is_some_and(|own| !own.is_unset());
        if let Some(wanted) = stand_in(boundaries, &conditionals, path, Boundary::Replace).filter(|_| !set) {
            tree.set(path, wanted);
        }
    }
    for (paths, kind) in [(&boundaries.merge, Boundary::Merge), (&boundaries.merge_override, Boundary::MergeOverride)] {
        for path in paths {
            if let Some(merged) = shared(boundaries, &conditionals, path, kind, tree.get(path))? {
                tree.set(path, merged);
            }
        }
    }
    for path in &boundaries.restricted {
        match stand_in(boundaries, &conditionals, path, Boundary::Restricted) {
            Some(wanted) => tree.set(path, wanted),
            None => tree.remove(path),
        }
    }
    let refused = refusals(&tenant, &tree);
    let hash = hash(&tree);
    Ok(effective(&tree, refused, hash))
}

fn effective(tree: &Tree, refused: Vec<Refused>, hash: String) -> Effective {
    let mut value = tree.value();
    let mut provenance = Provenance::new();
    if let Node::Map(roots) = &tree.node {
        roots.iter().for_each(|(key, root)| root.sources(key, &mut provenance));
    }
    provenance.retain(|path, _| path != "metadata" && path != "metadata.annotations");
    let spec = value["spec"].take();
    Effective { annotations: strings(&value["metadata"]["annotations"]), spec, provenance, refused, hash }
}

/// Only the annotations that the controller reads count: what other tools note on a group must not cause a write.
fn hash(tree: &Tree) -> String {
    let value = tree.value();
    let mut annotations = strings(&value["metadata"]["annotations"]);
    annotations.retain(|key, _| key.starts_with(names::GROUP));
    let text = json!({ "annotations": annotations, "spec": value["spec"] }).to_string();
    sha256(&text)
}

fn strings(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// The default of a path, as a tree; unset ones count as none.
fn default(boundaries: &Boundaries, path: &Path, boundary: Boundary) -> Option<Tree> {
    let source = Source { origin: Origin::Default, boundary: Some(boundary) };
    at(&boundaries.defaults, path).map(|value| Tree::new(value, source)).filter(|tree| !tree.is_unset())
}

/// What the last conditional that matches and says something says about a path.
fn conditional(boundaries: &Boundaries, matching: &[usize], path: &Path, boundary: Boundary) -> Option<Tree> {
    matching.iter().rev().find_map(|index| {
        let source = Source { origin: Origin::Conditional(*index), boundary: Some(boundary) };
        let value = at(&boundaries.conditionals[*index].defaults, path)?;
        Some(Tree::new(value, source)).filter(|tree| !tree.is_unset())
    })
}

/// The conditional's value of a path, or else the default's.
fn stand_in(boundaries: &Boundaries, matching: &[usize], path: &Path, boundary: Boundary) -> Option<Tree> {
    conditional(boundaries, matching, path, boundary).or_else(|| default(boundaries, path, boundary))
}

fn at<'a>(value: &'a Value, path: &Path) -> Option<&'a Value> {
    path.segments().iter().try_fold(value, |value, segment| value.as_object()?.get(segment))
}

/// The outcome of shared.merge and shared.mergeOverride at one path; `None` leaves the tenant's value as it is.
fn shared(
    boundaries: &Boundaries,
    matching: &[usize],
    path: &Path,
    kind: Boundary,
    own: Option<&Tree>,
) -> Result<Option<Tree>, MergeError> {
    let index_key = path.index_key();
    let over = conditional(boundaries, matching, path, kind);
    let base = match (default(boundaries, path, kind), over) {
        (None, None) => return Ok(None),
        (Some(one), None) | (None, Some(one)) => one,
        // The conditional comes first and wins, except among scalars, where the default is asked before it.
        (Some(default), Some(over)) => combine(path, over, default, Winner::First, index_key)?,
    };
    // Duplicates collapse whether or not the tenant adds to them, so that merging twice is merging once.
    let base = match base.node {
        Node::List(items) => {
            let node = Node::List(unite(items, vec![], Winner::First, index_key));
            Tree { node, ..base }
        }
        Node::Scalar(_) | Node::Map(_) => base,
    };
    let base_is_scalar = matches!(base.node, Node::Scalar(_));
    match own.filter(|own| !own.is_unset()) {
        None if base_is_scalar => Ok(default(boundaries, path, kind).or(Some(base))),
        None => Ok(Some(base)),
        Some(own) if base_is_scalar && matches!(own.node, Node::Scalar(_)) => Ok(None),
        Some(own) => {
            let winner = if kind == Boundary::MergeOverride { Winner::Second } else { Winner::First };
            combine(path, base, own.clone(), winner, index_key).map(Some)
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Winner {
    First,
    Second,
}

/// Merges two values of one kind: maps by key, one level; lists with an index key by it, others by equality. Of two scalars the
/// first is kept.
fn combine(
    path: &Path,
    first: Tree,
    second: Tree,
    winner: Winner,
    index_key: Option<&str>,
) -> Result<Tree, MergeError> {
    let source = first.source;
    match (first.node, second.node) {
        (Node::Map(mut all), Node::Map(more)) => {
            // Among labels and annotations an empty text is a value like any other; a field that is empty is unset.
            let free = schema::is_free_map(&path.to_string());
            let said = |tree: &Tree| if free { tree.node != Node::Scalar(Value::Null) } else { !tree.is_unset() };
            for (key, tree) in more.into_iter().filter(|(_, tree)| said(tree)) {
                let keep = winner == Winner::First && all.get(&key).is_some_and(said);
                if !keep {
                    all.insert(key, tree);
                }
            }
            Ok(Tree { source, node: Node::Map(all) })
        }
        (Node::List(all), Node::List(more)) => {
            Ok(Tree { source, node: Node::List(unite(all, more, winner, index_key)) })
        }
        (Node::Scalar(value), Node::Scalar(_)) => Ok(Tree { source, node: Node::Scalar(value) }),
        (first, second) => Err(MergeError {
            path: path.to_string(),
            message: format!("{} cannot be merged with {}", kind_of(&second), kind_of(&first)),
            remedy: "write the same kind of value in the InstanceGroup, the defaults and the conditionals".to_owned(),
        }),
    }
}

fn kind_of(node: &Node) -> &'static str {
    match node {
        Node::Scalar(_) => "a single value",
        Node::List(_) => "a list",
        Node::Map(_) => "a map",
    }
}

fn unite(first: Vec<Tree>, second: Vec<Tree>, winner: Winner, index_key: Option<&str>) -> Vec<Tree> {
    let mut all: Vec<(Option<String>, Value, Tree)> = vec![];
    for (tree, replaces) in first
        .into_iter()
        .map(|tree| (tree, false))
        .chain(second.into_iter().map(|tree| (tree, winner == Winner::Second)))
    {
        let value = tree.value();
        let name = index_key.and_then(|key| index_of(&value, key));
        // Items without a name never stand for each other, unless they are equal.
        let known = all.iter_mut().find(|(other, content, _)| match (&name, other) {
            (Some(name), Some(other)) => name == other,
            (None, None) => *content == value,
            (Some(_), None) | (None, Some(_)) => false,
        });
        match known {
            Some(known) if replaces && known.1 != value => *known = (name, value, tree),
            Some(_) => {}
            None => all.push((name, value, tree)),
        }
    }
    all.into_iter().map(|(_, _, tree)| tree).collect()
}
