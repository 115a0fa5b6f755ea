//! The identity of an InstanceGroup, as planning needs it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::core::ObjectMeta;
use serde::Serialize;

use super::names::FINALIZER;
use super::spec::InstanceGroup;

/// Identity and metadata of an InstanceGroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupId {
    /// Namespace of the InstanceGroup.
    pub namespace: String,
    /// Name of the InstanceGroup.
    pub name: String,
    /// UID of the InstanceGroup; disruption and surge records on Nodes contain it.
    pub uid: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Creation time; part of the launch template's name.
    pub created_at: Timestamp,
    /// When the deletion of the InstanceGroup was requested; `None` for an active group.
    pub deletion_requested_at: Option<Timestamp>,
    /// Whether the InstanceGroup has the controller's finalizer.
    pub has_finalizer: bool,
    /// Labels of the InstanceGroup.
    pub labels: BTreeMap<String, String>,
}

impl GroupId {
    /// `namespace/name`.
    pub(crate) fn key(&self) -> String {
        key(&self.namespace, &self.name)
    }

    /// The key of the InstanceGroup with this metadata, without its other fields: a poll of a rollout asks for thousands.
    pub(crate) fn key_of(metadata: &ObjectMeta) -> String {
        key(metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
    }

    /// Whether the InstanceGroup has a deletion timestamp.
    pub(crate) fn is_deleting(&self) -> bool {
        self.deletion_requested_at.is_some()
    }
}

fn key(namespace: &str, name: &str) -> String {
    [namespace, "/", name].concat()
}

/// Reads the identity from an InstanceGroup's metadata.
pub fn group_id(group: &InstanceGroup) -> GroupId {
    let meta = &group.metadata;
    GroupId {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        created_at: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0),
        deletion_requested_at: meta.deletion_timestamp.as_ref().map(|t| t.0),
        has_finalizer: meta.finalizers.iter().flatten().any(|f| f == FINALIZER),
        labels: meta.labels.clone().unwrap_or_default(),
    }
}
