//! What a tenant set and did not get.

use serde::Serialize;
use serde_json::Value;

use super::{
    path::{index_key, index_of},
    provenance::{Boundary, Node, Source, Tree, is_unset},
};
use crate::api::show;

/// A value that a tenant set and did not get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Where the tenant set it.
    pub path: String,
    /// The tenant's value as people may see it: shortened, and redacted where it may be secret.
    pub tenant_value: String,
    /// The value that stands there instead, shown in the same way; `None` when none does.
    pub effective_value: Option<String>,
    /// Where that value came from; `None` when the tenant's was dropped and nothing stands there.
    pub winner: Option<Source>,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} was not used", self.path, self.tenant_value)?;
        match (&self.winner, &self.effective_value) {
            (Some(winner), Some(value)) => write!(f, ", {winner} is {value}"),
            _ => write!(f, ", the field is {}", Boundary::Restricted.as_str()),
        }
    }
}

/// One text for a condition: the first values by name, and how many more there are. `None` when nothing was refused.
pub fn summary(refused: &[Refused]) -> Option<String> {
    const NAMED: usize = 20;
    let named = refused.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    match refused.len() {
        0 => None,
        count if count > NAMED => Some(format!("{named}; and {} more", count - NAMED)),
        _ => Some(named),
    }
}

/// Compares what a tenant wrote with what became of it.
pub(super) fn refusals(tenant: &Value, effective: &Tree) -> Vec<Refused> {
    let mut found = vec![];
    if let Node::Map(roots) = &effective.node {
        for root in ["metadata", "spec"] {
            compare(root, &tenant[root], roots.get(root), &mut found);
        }
    }
    found
}

fn compare(path: &str, tenant: &Value, effective: Option<&Tree>, found: &mut Vec<Refused>) {
    match (tenant, effective.map(|tree| &tree.node)) {
        (own, _) if says_nothing(own) => {}
        (Value::Object(own), Some(Node::Map(map))) => {
            for (key, value) in own {
                compare(&format!("{path}.{key}"), value, map.get(key), found);
            }
        }
        (Value::Array(own), Some(Node::List(items))) => compare_lists(path, own, items, effective, found),
        (own, _) if effective.is_some_and(|tree| tree.value() == *own) => {}
        (own, _) => found.push(refused(path.to_owned(), path, own, effective)),
    }
}

/// Whether everything in a value is unset.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.values().all(says_nothing),
        other => is_unset(other),
    }
}

fn compare_lists(path: &str, own: &[Value], items: &[Tree], list: Option<&Tree>, found: &mut Vec<Refused>) {
    let name_of = |item: &Value| index_of(item, index_key(path)?);
    for (index, value) in own.iter().enumerate().filter(|(_, value)| !items.iter().any(|item| item.value() == **value))
    {
        let name = name_of(value);
        let namesake = items.iter().find(|item| name.is_some() && name_of(&item.value()) == name);
        let label = name.unwrap_or_else(|| index.to_string());
        found.push(refused(format!("{path}[{label}]"), path, value, namesake.or(list)));
    }
}

fn refused(path: String, show_as: &str, own: &Value, winner: Option<&Tree>) -> Refused {
    Refused {
        path,
        tenant_value: show(show_as, own),
        effective_value: winner.map(|tree| show(show_as, &tree.value())),
        winner: winner.map(|tree| tree.source),
    }
}
