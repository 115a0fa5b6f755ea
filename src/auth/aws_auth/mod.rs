//! Edits of `mapRoles` in the ConfigMap `kube-system/aws-auth`, from text to text.
//!
//! Everything else stays byte for byte the same: other entries, comments, order and indentation. An edit inserts or
//! removes whole entries at positions from a YAML parser. The result is parsed again and compared before it is
//! returned. A text that cannot be parsed is never overwritten.

pub(crate) mod document;
pub(crate) mod edit;
pub(crate) mod entry;
pub(crate) mod map_roles;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_yaml::Value;

use document::AwsAuthDocument;
pub use entry::{AuthEntry, NODE_GROUPS, NODE_USERNAME, POD_USERNAME, PROXIER_GROUP, WINDOWS_GROUP, without_path};
pub use map_roles::MapRoles;

/// The API server's limit for the data of a ConfigMap, in bytes.
pub const CONFIG_MAP_LIMIT: usize = 1_048_576;

/// What `mapRoles` contains for a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthEntryState {
    /// The desired entry exists.
    Present,
    /// There is no entry for this role.
    Absent,
    /// There is an entry as the controller creates it, without a group that the desired one has: Linux and Windows nodes
    /// share the role, or the group's nodes became Windows nodes. Only an entry that the controller added may be widened, or
    /// the entry of a role that is the group's alone.
    Narrow {
        /// The content of the entry, and the remedy.
        detail: String,
    },
    /// There is an entry for this role with other content; it is left unchanged.
    Conflict {
        /// The content of the entry, and the remedy.
        detail: String,
    },
    /// The text cannot be parsed; it is left unchanged.
    Unparsable {
        /// Where and why, and the remedy.
        detail: String,
    },
}

/// Why the text cannot be edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AwsAuthError {
    /// The text cannot be parsed.
    #[error("{detail}")]
    Unparsable {
        /// Where and why, and the remedy.
        detail: String,
    },
    /// There is another entry for the role, which this edit may not change.
    #[error("{detail}")]
    Conflict {
        /// The content of the entry, and the remedy.
        detail: String,
    },
    /// The ConfigMap is immutable.
    #[error(
        "the ConfigMap kube-system/aws-auth is immutable, so no role can be added or removed, and nodes whose role has no entry lose \
         access to the cluster: save it with `kubectl get configmap aws-auth --namespace kube-system --output yaml`, delete it, and \
         create it again without `immutable`"
    )]
    Immutable,
    /// The API server rejects the edited ConfigMap.
    #[error(
        "the API server rejects every change of the ConfigMap kube-system/aws-auth: {detail}; correct what rejects it, for example an admission webhook or the size of the ConfigMap"
    )]
    Rejected {
        /// The error of the API server.
        detail: String,
    },
    /// The edited text does not parse to the expected entries.
    #[error(
        "mapRoles in the ConfigMap kube-system/aws-auth cannot be edited without changing entries \
         of others: rewrite it as a plain list, one `- rolearn:` after the other"
    )]
    Unsafe,
}

/// Whether the values of a ConfigMap, given by their sizes in bytes, reach 80 % of [`CONFIG_MAP_LIMIT`].
pub fn is_near_size_limit(sizes: impl IntoIterator<Item = usize>) -> bool {
    sizes.into_iter().sum::<usize>() >= CONFIG_MAP_LIMIT / 100 * 80
}

/// Whether a role is among those that [`MapRoles::changed_roles`] found.
pub fn contains_role(changed: &BTreeSet<String>, role_arn: &str) -> bool {
    changed.contains(&arn_key(role_arn))
}

/// Adds the desired entries that are absent, in order. Entries in conflict are skipped; see [`MapRoles::entry_state`]. `None`
/// when there is nothing to add.
///
/// ```
/// use instance_manager::auth::aws_auth::{AuthEntry, AuthEntryState, MapRoles, add_entries};
///
/// let admins = "- rolearn: arn:aws:iam::1:role/admins # by hand\n  username: admin\n  groups: [system:masters]\n";
/// let nodes = AuthEntry::for_nodes("arn:aws:iam::1:role/nodes", false);
/// let edited = add_entries(Some(admins), &[nodes.clone()]).unwrap().expect("an entry is absent");
///
/// assert!(edited.starts_with(admins), "other entries stay byte for byte");
/// assert_eq!(MapRoles::parse(Some(&edited)).entry_state(&nodes), AuthEntryState::Present);
/// assert_eq!(add_entries(Some(&edited), &[nodes]), Ok(None));
/// ```
///
/// # Errors
/// The text cannot be parsed, or cannot be edited safely.
pub fn add_entries(map_roles: Option<&str>, desired: &[AuthEntry]) -> Result<Option<String>, AwsAuthError> {
    Ok(parse(map_roles)?.with_entries(desired)?.map(|document| document.text))
}

/// Removes the entries of these roles that are exactly as [`AuthEntry::for_nodes`] or [`AuthEntry::for_pods`] creates
/// them. An entry with other content or additional keys stays. Whole-line comments stay; a comment at the end of a
/// removed line is removed with it. `None` when there is nothing to remove.
///
/// # Errors
/// The text cannot be parsed, or cannot be edited safely.
pub fn remove_entries<S: AsRef<str>>(map_roles: Option<&str>, role_arns: &[S]) -> Result<Option<String>, AwsAuthError> {
    Ok(parse(map_roles)?.without_entries(role_arns)?.map(|document| document.text))
}

/// Parses `mapRoles`; `None` means a ConfigMap without this key, or none at all.
///
/// # Errors
/// The text cannot be parsed.
pub(crate) fn parse(map_roles: Option<&str>) -> Result<AwsAuthDocument, AwsAuthError> {
    let parsed = AwsAuthDocument::parse(map_roles.unwrap_or_default().to_owned());
    parsed.map_err(|detail| AwsAuthError::Unparsable { detail: unparsable_message(&detail) })
}

/// Edits from document to document, so that each text is parsed once. `None`: nothing changes.
impl AwsAuthDocument {
    /// See [`add_entries`].
    fn with_entries(&self, desired: &[AuthEntry]) -> Result<Option<Self>, AwsAuthError> {
        let mut seen = BTreeSet::new();
        let missing: Vec<&AuthEntry> = desired
            .iter()
            .filter(|entry| entry_state_in(self, entry) == AuthEntryState::Absent)
            .filter(|entry| seen.insert(arn_key(&entry.role_arn)))
            .collect();
        if missing.is_empty() {
            return Ok(None);
        }
        let after = edit::insert_entries(self, &missing);
        let mut values = self.values.clone();
        values.extend(missing.into_iter().map(entry_value));
        verify(after, &values).map(Some)
    }

    /// Adds the desired entry. `None` when it exists.
    ///
    /// # Errors
    /// The role has another entry, or the text cannot be edited safely.
    pub(crate) fn with_entry(&self, desired: &AuthEntry) -> Result<Option<Self>, AwsAuthError> {
        match entry_state_in(self, desired) {
            AuthEntryState::Present => Ok(None),
            AuthEntryState::Absent => self.with_entries(std::slice::from_ref(desired)),
            AuthEntryState::Narrow { detail } | AuthEntryState::Conflict { detail } => {
                Err(AwsAuthError::Conflict { detail })
            }
            AuthEntryState::Unparsable { detail } => Err(AwsAuthError::Unparsable { detail }),
        }
    }

    /// Like [`Self::with_entry`], but replaces a [`AuthEntryState::Narrow`] entry by the desired one, in one edit.
    ///
    /// # Errors
    /// The role has an entry with other content, or the text cannot be edited safely.
    pub(crate) fn with_widened_entry(&self, desired: &AuthEntry) -> Result<Option<Self>, AwsAuthError> {
        if !matches!(entry_state_in(self, desired), AuthEntryState::Narrow { .. }) {
            return self.with_entry(desired);
        }
        let without = self.without_entries(std::slice::from_ref(&desired.role_arn))?;
        without.as_ref().unwrap_or(self).with_entries(std::slice::from_ref(desired))
    }

    /// See [`remove_entries`].
    pub(crate) fn without_entries<S: AsRef<str>>(&self, role_arns: &[S]) -> Result<Option<Self>, AwsAuthError> {
        let roles: BTreeSet<String> = role_arns.iter().map(|arn| arn_key(arn.as_ref())).collect();
        let (removed, kept): (Vec<_>, Vec<_>) =
            self.values.iter().enumerate().partition(|(_, value)| is_unmodified_entry(value, &roles));
        if removed.is_empty() {
            return Ok(None);
        }
        let removed: Vec<usize> = removed.into_iter().map(|(index, _)| index).collect();
        let kept: Vec<Value> = kept.into_iter().map(|(_, value)| value.clone()).collect();
        let after = edit::remove_entries(self, &removed).ok_or(AwsAuthError::Unsafe)?;
        verify(after, &kept).map(Some)
    }
}

fn unparsable_message(detail: &str) -> String {
    format!(
        "mapRoles in the ConfigMap kube-system/aws-auth cannot be parsed and is left unchanged: \
         {detail}; correct it by hand"
    )
}

/// Parses an edited text, and checks that it has the expected entries.
fn verify(after: String, values: &[Value]) -> Result<AwsAuthDocument, AwsAuthError> {
    match AwsAuthDocument::parse(after) {
        Ok(document) if document.values == values => Ok(document),
        _ => Err(AwsAuthError::Unsafe),
    }
}

/// The key by which ARNs are compared: aws-iam-authenticator ignores their case.
fn arn_key(role_arn: &str) -> String {
    without_path(role_arn).to_lowercase()
}

fn entry_state_in(document: &AwsAuthDocument, desired: &AuthEntry) -> AuthEntryState {
    let key = arn_key(&desired.role_arn);
    let of_role = |value: &&Value| str_field(value, "rolearn").is_some_and(|arn| arn.to_lowercase() == key);
    entries_state(&document.values.iter().filter(of_role).collect::<Vec<_>>(), desired)
}

/// The state of a desired entry; `found` are the entries of its role.
fn entries_state(found: &[&Value], desired: &AuthEntry) -> AuthEntryState {
    let groups: BTreeSet<_> = desired.groups.iter().map(String::as_str).collect();
    // Nodes join with further groups as well: a role that Linux and Windows groups share has an entry for Windows, and
    // users grant their nodes more.
    let has_groups = |value: &Value| groups_of(value).is_some_and(|found| found.is_superset(&groups));
    let conflict =
        found.iter().find(|value| str_field(value, "username") != Some(&desired.username) || !has_groups(value));
    let Some(value) = conflict else {
        return if found.is_empty() { AuthEntryState::Absent } else { AuthEntryState::Present };
    };
    let detail = format!(
        "mapRoles in the ConfigMap kube-system/aws-auth has an entry for {} with username \
         {} and groups {}, but nodes need username {} and groups {}: correct the entry or \
         remove it",
        without_path(&desired.role_arn),
        str_field(value, "username").unwrap_or("(none)"),
        groups_of(value).map_or("(none)".to_owned(), |groups| comma_separated(&groups)),
        desired.username,
        comma_separated(&groups),
    );
    let lacks_groups = str_field(value, "username") == Some(&desired.username)
        && groups_of(value).is_some_and(|found| found.is_subset(&groups));
    match found.len() == 1 && lacks_groups && is_unmodified_entry(value, &[arn_key(&desired.role_arn)].into()) {
        true => AuthEntryState::Narrow { detail },
        false => AuthEntryState::Conflict { detail },
    }
}

fn comma_separated(groups: &BTreeSet<&str>) -> String {
    groups.iter().copied().collect::<Vec<_>>().join(", ")
}

/// A field of an entry. aws-iam-authenticator is written in Go and ignores the case of keys.
fn field<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    let is_key = |found: &Value| found.as_str().is_some_and(|text| text.eq_ignore_ascii_case(key));
    value.as_mapping()?.iter().find_map(|(found, value)| is_key(found).then_some(value))
}

fn str_field<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    field(value, key)?.as_str()
}

/// The groups of an entry, without their order, which has no meaning. `None` if they are not a list of texts.
fn groups_of(value: &Value) -> Option<BTreeSet<&str>> {
    field(value, "groups")?.as_sequence()?.iter().map(Value::as_str).collect()
}

/// Whether an entry is for one of `roles` and exactly as the controller creates it.
fn is_unmodified_entry(value: &Value, roles: &BTreeSet<String>) -> bool {
    let own_entries = [AuthEntry::for_nodes("", false), AuthEntry::for_nodes("", true), AuthEntry::for_pods("")];
    let equals = |entry: &AuthEntry| {
        str_field(value, "username") == Some(&entry.username)
            && groups_of(value) == Some(entry.groups.iter().map(String::as_str).collect())
    };
    value.as_mapping().is_some_and(|mapping| mapping.len() == 3)
        && str_field(value, "rolearn").is_some_and(|arn| roles.contains(&arn.to_lowercase()))
        && own_entries.iter().any(equals)
}

fn entry_value(entry: &AuthEntry) -> Value {
    let groups = entry.groups.iter().cloned().map(Value::from).collect();
    [
        ("rolearn", Value::from(without_path(&entry.role_arn))),
        ("username", Value::from(entry.username.clone())),
        ("groups", Value::Sequence(groups)),
    ]
    .into_iter()
    .map(|(key, value)| (Value::from(key), value))
    .collect::<serde_yaml::Mapping>()
    .into()
}
