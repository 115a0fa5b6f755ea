//! `mapRoles` as it is read: parsed once for each version of the ConfigMap, with its entries by role.

use std::collections::{BTreeSet, HashMap};

use serde_yaml::Value;

use super::document::AwsAuthDocument;
use super::entry::{AuthEntry, WINDOWS_GROUP};
use super::{AuthEntryState, arn_key, entries_state, groups_of, str_field, unparsable_message};

/// The entries of `mapRoles`. A lookup does not depend on their number.
#[derive(Debug)]
pub struct MapRoles(Result<Entries, String>);

#[derive(Debug, Default)]
struct Entries {
    values: Vec<Value>,
    /// Positions in `values` by the key of the role.
    by_role: HashMap<String, Vec<usize>>,
}

impl Default for MapRoles {
    /// No entries.
    fn default() -> Self {
        MapRoles(Ok(Entries::default()))
    }
}

impl MapRoles {
    /// Parses the text; `None` means a ConfigMap without the key `mapRoles`, or none at all.
    pub fn parse(text: Option<&str>) -> Self {
        let document = AwsAuthDocument::parse(text.unwrap_or_default());
        MapRoles(document.map(|document| Entries::new(document.values)).map_err(|detail| unparsable_message(&detail)))
    }

    /// What `mapRoles` contains for the role of a desired entry.
    pub fn entry_state(&self, desired: &AuthEntry) -> AuthEntryState {
        match &self.0 {
            Ok(entries) => entries_state(&entries.of_role(&arn_key(&desired.role_arn)), desired),
            Err(detail) => AuthEntryState::Unparsable { detail: detail.clone() },
        }
    }

    /// Whether a role's entry authorizes Windows nodes; false when the text cannot be parsed.
    pub(crate) fn allows_windows(&self, role_arn: &str) -> bool {
        let entries = self.0.iter().flat_map(|entries| entries.of_role(&arn_key(role_arn)));
        entries.into_iter().any(|value| groups_of(value).is_some_and(|groups| groups.contains(WINDOWS_GROUP)))
    }

    /// The role ARNs of all entries, in order; empty when the text cannot be parsed.
    pub(crate) fn role_arns(&self) -> Vec<String> {
        let values = self.0.iter().flat_map(|entries| &entries.values);
        values.filter_map(|value| str_field(value, "rolearn").map(str::to_owned)).collect()
    }

    /// The roles whose entries differ from those in `old`, for [`super::contains_role`]. `None` when one of the texts
    /// cannot be parsed, so that any role may be affected.
    pub fn changed_roles(&self, old: &MapRoles) -> Option<BTreeSet<String>> {
        let (old, new) = (old.0.as_ref().ok()?, self.0.as_ref().ok()?);
        let roles = old.by_role.keys().chain(new.by_role.keys());
        Some(roles.filter(|role| old.of_role(role) != new.of_role(role)).cloned().collect())
    }
}

impl Entries {
    fn new(values: Vec<Value>) -> Self {
        let mut by_role: HashMap<String, Vec<usize>> = HashMap::new();
        for (position, value) in values.iter().enumerate() {
            if let Some(role) = str_field(value, "rolearn") {
                by_role.entry(role.to_lowercase()).or_default().push(position);
            }
        }
        Entries { values, by_role }
    }

    /// The entries of a role by its key, in order.
    fn of_role(&self, key: &str) -> Vec<&Value> {
        self.by_role.get(key).into_iter().flatten().map(|position| &self.values[*position]).collect()
    }
}
