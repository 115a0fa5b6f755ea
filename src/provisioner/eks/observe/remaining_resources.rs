//! Reads the remaining resources of a group that is being deleted.

use std::collections::BTreeSet;
use std::time::Duration;

use super::previous_roles;
use crate::api::InstanceGroupStatus;
use crate::auth::aws_auth::AuthEntry;
use crate::aws::{AccessEntry, Instance, InstanceProfile, LaunchTemplate, Role, ScalingGroup, Tag};
use crate::index::shared_entries::entries_to_remove;
use crate::ownership::{has_ownership_tags, is_owned, ownership_tags};
use crate::provisioner::eks::names::GroupNames;
use crate::provisioner::eks::resolve::ResourceNames;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer, drain_views, find_orphaned_records};
use crate::provisioner::{GroupId, join};
use crate::rotation::{Drains, NodeInstance};

/// The names in the status of a group that is being deleted.
pub struct RecordedNames {
    /// The cluster, from the scaling group's name.
    pub cluster: String,
    /// Resource names, from the status or derived.
    pub names: ResourceNames,
    /// The tags that prove that a resource belongs to this group.
    pub ownership_tags: Vec<Tag>,
}

/// Reads the names from the status; `None` when nothing was created.
pub fn recorded_names(id: &GroupId, status: &InstanceGroupStatus) -> Option<RecordedNames> {
    let scaling_group = status.active_scaling_group_name.clone().filter(|g| !g.is_empty())?;
    let suffix = format!("-{}-{}", id.namespace, id.name);
    let cluster = match scaling_group.strip_suffix(&suffix) {
        Some(cluster) => cluster.to_owned(),
        // A name with a hash ends with `-<hash>`.
        None => scaling_group.rsplit_once('-')?.0.strip_suffix(&suffix)?.to_owned(),
    };
    let derived = GroupNames::new(&cluster, &id.namespace, &id.name);
    let hashed = scaling_group != derived.scaling_group();
    let template = status.active_launch_template_name.clone().filter(|t| !t.is_empty());
    let names = ResourceNames {
        role: derived.role_of(hashed),
        template: template.unwrap_or_else(|| derived.launch_template_of(id.created_at, hashed)),
        scaling_group,
    };
    Some(RecordedNames { names, ownership_tags: ownership_tags(&cluster, id), cluster })
}

/// The resources that still exist for a group that is being deleted.
pub struct RemainingResources {
    /// The scaling group.
    pub scaling_group: Option<ScalingGroup>,
    /// Its instances with their nodes.
    pub members: Vec<NodeInstance>,
    /// The pods on its nodes with a disruption record.
    pub drains: Drains,
    /// The launch template.
    pub template: Option<LaunchTemplate>,
    /// The role of the derived name.
    pub role: Option<Role>,
    /// Its attached policies.
    pub attached_policies: Vec<String>,
    /// Its inline policies.
    pub inline_policies: Vec<String>,
    /// The profile of the derived name.
    pub instance_profile: Option<InstanceProfile>,
    /// The controller's entries in aws-auth that no other group needs.
    pub aws_auth_entries: Vec<AuthEntry>,
    /// The controller's access entries that no other group needs.
    pub access_entries: Vec<AccessEntry>,
    /// Another group that has to be deleted first, because it removes a shared entry.
    pub wait_for: Option<String>,
}

/// The instances with their nodes, and the nodes that are being drained.
pub(crate) async fn members_with_drains(
    o: &Observer<'_>,
    instances: &[Instance],
    uid: &str,
) -> ObserveResult<(Vec<NodeInstance>, Drains)> {
    let with_node =
        |i: &Instance| NodeInstance { node: o.node_index.get(&i.id), reasons: Vec::new(), instance: i.clone() };
    let mut members: Vec<_> = instances.iter().map(with_node).collect();
    find_orphaned_records(o, uid, members.iter_mut().filter_map(|m| m.node.as_mut()).collect()).await?;
    let drains = drain_views(o, &members, uid).await?;
    Ok((members, drains))
}

/// Reads the remaining resources. While the scaling group exists, only its nodes are read.
pub async fn remaining_resources(
    o: &Observer<'_>,
    id: &GroupId,
    names: &ResourceNames,
    ownership: &[Tag],
    status: &InstanceGroupStatus,
) -> ObserveResult<RemainingResources> {
    let aws = ObserveError::Aws;
    let scaling_group = o.inventory.group(&names.scaling_group, o.max_cache_age).await.map_err(aws)?;
    let instances = scaling_group.as_ref().map(|g| g.instances.as_slice()).unwrap_or_default();
    let (members, drains) = members_with_drains(o, instances, &id.uid).await?;
    let mut remaining = RemainingResources {
        members,
        drains,
        template: None,
        role: None,
        attached_policies: vec![],
        inline_policies: vec![],
        instance_profile: None,
        aws_auth_entries: vec![],
        access_entries: vec![],
        wait_for: None,
        scaling_group,
    };
    if remaining.scaling_group.as_ref().is_some_and(|g| has_ownership_tags(&g.tags, ownership)) {
        return Ok(remaining);
    }
    remaining.template = o.inventory.template(&names.template, Duration::ZERO).await.map_err(aws)?;
    let iam = &o.inventory.aws().iam;
    remaining.instance_profile = iam.get_profile(&names.role).await.map_err(aws)?;
    remaining.role = iam.get_role(&names.role).await.map_err(aws)?;
    let adopted = status.managed.as_ref().and_then(|m| m.adopted.as_ref()).and_then(|a| a.role.as_ref());
    let ours = |r: &Role| is_owned(&r.id, &r.tags, adopted, ownership);
    if remaining.role.as_ref().is_some_and(ours) {
        remaining.attached_policies = iam.attached_policies(&names.role).await.map_err(aws)?;
        remaining.inline_policies = iam.inline_policies(&names.role).await.map_err(aws)?;
    }
    // The entry of a role that is deleted is removed with it, whatever created the entry. The entry of any other role is
    // removed only when the status records it as the controller's.
    let own = remaining.role.as_ref().filter(|role| ours(role)).map(|role| &role.arn);
    let managed = status.managed.iter();
    let roles: BTreeSet<_> = managed.clone().flat_map(|m| &m.auth_entries).chain(own).collect();
    let (groups, key) = (o.group_index, id.key());
    let present = roles.into_iter().filter(|arn| previous_roles::aws_auth_entry(o, arn).is_some());
    let (auth_roles, auth_wait) =
        entries_to_remove(present, |arn| groups.deletion_order(arn, &groups.aws_auth_users(arn, &key), &key));
    remaining.aws_auth_entries =
        auth_roles.into_iter().filter_map(|arn| previous_roles::aws_auth_entry(o, arn)).collect();
    let recorded = managed.flat_map(|m| &m.access_entries);
    let (access_roles, access_wait) =
        entries_to_remove(recorded, |arn| groups.deletion_order(arn, &groups.access_entry_users(arn, &key), &key));
    for arn in access_roles {
        remaining.access_entries.extend(join::remaining_access_entry(o, &key, &ownership[0].value, arn, status).await?);
    }
    remaining.wait_for = auth_wait.or(access_wait);
    Ok(remaining)
}
