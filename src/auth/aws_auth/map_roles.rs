//! `mapRoles` as it is read: parsed once for each version of the ConfigMap, with its entries by role.

use std::collections::{BTreeSet, HashMap};

use serde_yaml::Value;

use super::document::AwsAuthDocument;
use super::entry::{AuthEntry, WINDOWS_GROUP};
use super::{AuthEntryState, arn_key, entries_state, groups_of, is_unmodified_entry, str_field, unparsable_message};

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
    /// A `mapRoles` without entries.
    fn default() -> Self {
        MapRoles(Ok(Entries::default()))
    }
}

impl MapRoles {
    /// Parses the text; `None` means a ConfigMap without the key `mapRoles`, or none at all.
    pub fn parse(text: Option<&str>) -> Self {
        let document = AwsAuthDocument::parse(text.unwrap_or_default().to_owned());
        MapRoles(document.map(|document| Entries::new(document.values)).map_err(|detail| unparsable_message(&detail)))
    }

    /// What `mapRoles` contains for the role of a desired entry.
    pub fn entry_state(&self, desired: &AuthEntry) -> AuthEntryState {
        match &self.0 {
            Ok(entries) => entries_state(&entries.of_role(&arn_key(&desired.role_arn)), desired),
            Err(detail) => AuthEntryState::Unparsable { detail: detail.clone() },
        }
    }

    /// Why the text cannot be parsed, and the remedy. It may have any entry then.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    /// Whether a role has entries, and none of them is as the controller creates it; false when the text cannot be parsed.
    pub(crate) fn is_modified(&self, role_arn: &str) -> bool {
        let key = arn_key(role_arn);
        let entries: Vec<_> = self.0.iter().flat_map(|entries| entries.of_role(&key)).collect();
        let roles = [key].into();
        !entries.is_empty() && !entries.into_iter().any(|value| is_unmodified_entry(value, &roles))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::aws_auth::add_entries;

    #[test]
    fn entry_with_another_key_is_modified() {
        let role = "arn:aws:iam::1:role/nodes";
        let text = add_entries(None, &[AuthEntry::for_nodes(role, false)]).expect("an edit").expect("a text");
        assert!(!MapRoles::parse(Some(&text)).is_modified(role) && !MapRoles::default().is_modified(role));
        let with_key = text.replace("  username:", "  x-owner: platform\n  username:");
        let with_key = MapRoles::parse(Some(&with_key));
        assert!(with_key.is_modified(role));
        assert_eq!(with_key.entry_state(&AuthEntry::for_nodes(role, false)), AuthEntryState::Present);
    }
}
