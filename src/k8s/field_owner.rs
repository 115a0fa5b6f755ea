//! Which fields of a Node the controller wrote, by its `managedFields`. They show it also after a client removed the
//! controller's records, and after a restart.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

use super::FIELD_MANAGER;

/// Whether a Node is cordoned, and the controller cordoned it. A client that uncordons and cordons it again takes the cordon
/// over; one that cordons a cordoned Node changes nothing.
pub(crate) fn is_cordoned_by_controller(node: &Node) -> bool {
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    is_cordoned && is_field_of_controller(node, &["f:spec", "f:unschedulable"])
}

/// Whether the controller alone owns a field of a Node: a field belongs to the manager that last changed its value, and
/// also to those that apply it (Kubernetes documentation, Server-Side Apply, Field management).
pub(super) fn is_field_of_controller(node: &Node, path: &[&str]) -> bool {
    let entries = node.metadata.managed_fields.iter().flatten();
    let owners: Vec<_> = entries.filter(|entry| has_field(entry, path)).map(|entry| entry.manager.as_deref()).collect();
    !owners.is_empty() && owners.iter().all(|owner| *owner == Some(FIELD_MANAGER))
}

fn has_field(entry: &ManagedFieldsEntry, path: &[&str]) -> bool {
    let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
    path.iter().fold(fields, |found, key| found?.get(key)).is_some()
}
