//! Which InstanceGroups a node group may serve besides one, from the statuses of all groups. Keiko controller names a node
//! group without the namespace, so groups of one name share it.

use std::collections::BTreeSet;

use super::ownership::{self, Doubt, Owner, UnprovenNodegroup, owner_of};
use super::resolve::ResolvedGroup;
use crate::api::{GroupId, InstanceGroupStatus};
use crate::aws::nodegroup::Nodegroup;
use crate::index::shared_entries::DeletionOrder;
use crate::provisioner::observe::Observer;

/// Classifies the owner of a node group. An untagged node group that another InstanceGroup's status names, and this
/// one's does not, belongs to the other group. That holds even if both have the same name and node role. If the statuses
/// of both name it, or none does, only tags can say whose it is.
pub(super) fn classify_owner(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    found: &Nodegroup,
) -> Owner {
    let owner = owner_of(resolved, status, found);
    if !matches!(owner, Owner::Found | Owner::Unproven(_)) || ownership::names_owner(found) {
        return owner;
    }
    let id = &resolved.desired.id;
    let sharing = if ownership::is_named_by(status, found) {
        sharing_groups(o, id, found)
    } else if named_by_others(o, id, found).is_empty() {
        o.group_index.unrecorded_namesakes(id)
    } else {
        return Owner::Others;
    };
    if sharing.is_empty() { owner } else { Owner::Unproven(Doubt::SharedWith(sharing)) }
}

/// Classifies the owner of a node group whose group is being deleted. Without a resolved spec, one that no other group
/// shares counts as this group's: the plan of the deletion compares its tags with the records.
pub(super) fn classify_for_deletion(
    o: &Observer<'_>,
    id: &GroupId,
    resolved: Option<&ResolvedGroup>,
    status: &InstanceGroupStatus,
    found: &Nodegroup,
) -> Owner {
    let owner = resolved.map_or(Owner::Ours, |resolved| classify_owner(o, resolved, status, found));
    let sharing = sharing_groups(o, id, found);
    // Such a node group was adopted, and is not tagged yet.
    let is_shared = owner.is_deletable() && !sharing.is_empty();
    if is_shared { Owner::Unproven(Doubt::SharedWith(sharing)) } else { owner }
}

/// The other groups that may be served by a node group that the group `id` has recorded, unless its tags say whose it is.
fn sharing_groups(o: &Observer<'_>, id: &GroupId, found: &Nodegroup) -> BTreeSet<String> {
    if ownership::names_owner(found) {
        return BTreeSet::new();
    }
    let mut groups = named_by_others(o, id, found);
    // The Keiko controller gives a node group the name of its InstanceGroup.
    if found.name.nodegroup == id.name {
        groups.extend(o.group_index.undecodable_namesakes(id));
    }
    groups
}

/// The other groups whose status names a node group or its scaling groups. A group that adopted it may have replaced it
/// since, and names the scaling group of the next one while it drains the nodes.
fn named_by_others(o: &Observer<'_>, id: &GroupId, found: &Nodegroup) -> BTreeSet<String> {
    let scaling_groups = found.scaling_groups.join(",");
    let mut groups = match scaling_groups.as_str() {
        "" => BTreeSet::new(),
        names => o.group_index.with_scaling_group(names),
    };
    groups.remove(&id.key());
    // Only one group can own a node group of any other name.
    if found.name.nodegroup == id.name {
        groups.extend(o.group_index.recording_namesakes(&found.name.to_string(), id));
    }
    groups
}

/// The group that a deletion waits for, because these node groups may serve it as well: all groups that share them are
/// being deleted, and the group `id` is the last of them by name.
pub(super) fn group_to_wait_for(o: &Observer<'_>, id: &GroupId, unproven: &[UnprovenNodegroup]) -> Option<String> {
    let mut sharing = BTreeSet::new();
    for nodegroup in unproven {
        if let Doubt::SharedWith(groups) = &nodegroup.doubt {
            sharing.extend(groups.iter().cloned());
        }
    }
    match o.group_index.deletion_order_among(&sharing, &id.key()) {
        DeletionOrder::WaitFor(other) => Some(other),
        DeletionOrder::RemoveNow | DeletionOrder::Keep => None,
    }
}
