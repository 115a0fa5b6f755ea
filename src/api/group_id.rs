//! Which InstanceGroup, as the rest of the house knows it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::names::FINALIZER;
use super::spec::InstanceGroup;

/// Which InstanceGroup, as far as a plan must know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupId {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID; the record on a node carries it.
    pub uid: String,
    /// Its generation.
    pub generation: i64,
    /// When it was created; part of the launch template's name.
    pub created_at: Timestamp,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Whether our finalizer is on it.
    pub has_finalizer: bool,
    /// Its own annotations, before any merge.
    pub annotations: BTreeMap<String, String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

impl GroupId {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The identity of a group, as far as a plan needs it.
pub fn group_id(group: &InstanceGroup) -> GroupId {
    let meta = &group.metadata;
    GroupId {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        created_at: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0),
        is_deleting: meta.deletion_timestamp.is_some(),
        has_finalizer: meta.finalizers.iter().flatten().any(|f| f == FINALIZER),
        annotations: meta.annotations.clone().unwrap_or_default(),
        labels: meta.labels.clone().unwrap_or_default(),
    }
}
