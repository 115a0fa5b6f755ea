//! Reads the remaining resources of a group that is being deleted.

use std::collections::BTreeSet;
use std::time::Duration;

use super::previous_roles;
use super::template_users::template_user;
use crate::api::{AdoptedResources, InstanceGroupStatus};
use crate::auth::aws_auth::AuthEntry;
use crate::aws::{AccessEntry, Instance, InstanceProfile, LaunchTemplate, Role, ScalingGroup, Tag};
use crate::index::shared_entries::entries_to_remove;
use crate::ownership::{has_foreign_tags, has_ownership_tags, is_owned, ownership_tags};
use crate::provisioner::eks::names::{GroupNames, is_derived_template_name};
use crate::provisioner::eks::observed::version_number;
use crate::provisioner::eks::resolve::ResourceNames;
use crate::provisioner::name_form::NameForm;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer, complete_nodes, drain_views};
use crate::provisioner::role_users::{KeptEntry, node_user, other_profiles};
use crate::provisioner::{GroupId, join};
use crate::rotation::{Drains, NodeInstance};

/// The names in the status of a group that is being deleted.
pub struct RecordedNames {
    /// The cluster, from the scaling group's name.
    pub cluster: String,
    /// Resource names, from the status or derived.
    pub names: ResourceNames,
    /// Whether the launch template's name is one that the controller derives. A template of another name is the group's
    /// only by its tags: the status alone does not prove it.
    pub has_derived_template_name: bool,
    /// The tags that prove that a resource belongs to this group.
    pub ownership_tags: Vec<Tag>,
}

/// Reads the names of a group in `region` from the status; `None` when nothing was created.
pub fn recorded_names(id: &GroupId, status: &InstanceGroupStatus, region: &str) -> Option<RecordedNames> {
    let scaling_group = status.active_scaling_group_name.clone().filter(|g| !g.is_empty())?;
    let suffix = format!("-{}-{}", id.namespace, id.name);
    let cluster = match scaling_group.strip_suffix(&suffix) {
        Some(cluster) => cluster.to_owned(),
        // A name with a hash ends with `-<hash>`.
        None => scaling_group.rsplit_once('-')?.0.strip_suffix(&suffix)?.to_owned(),
    };
    let derived = GroupNames::new(&cluster, &id.namespace, &id.name);
    let form = derived.form_of(&scaling_group, region).unwrap_or(NameForm::Hashed);
    let derived_template = derived.launch_template_in(id.created_at, form, region);
    let template = status.active_launch_template_name.clone().filter(|t| !t.is_empty());
    let template = template.unwrap_or_else(|| derived_template.clone());
    let has_derived_template_name = is_derived_template_name(&template, &derived_template);
    let names = ResourceNames { role: derived.role_in(form, region), template, scaling_group };
    Some(RecordedNames { names, has_derived_template_name, ownership_tags: ownership_tags(&cluster, id), cluster })
}

/// The resources that still exist for a group that is being deleted.
pub(crate) struct RemainingResources {
    /// The scaling group; `None` once it is deleted.
    pub scaling_group: Option<ScalingGroup>,
    /// Its instances with their nodes.
    pub members: Vec<NodeInstance>,
    /// The pods on its nodes with a disruption record.
    pub drains: Drains,
    /// The launch template; `None` also while the scaling group exists, because it is read later.
    pub template: Option<LaunchTemplate>,
    /// The role of the derived name.
    pub role: Option<Role>,
    /// ARNs of the managed policies that are attached to the role.
    pub attached_policies: Vec<String>,
    /// Names of the role's inline policies.
    pub inline_policies: Vec<String>,
    /// The profile of the derived name.
    pub instance_profile: Option<InstanceProfile>,
    /// The controller's entries in aws-auth that no other group needs.
    pub aws_auth_entries: Vec<AuthEntry>,
    /// The controller's access entries that no other group needs.
    pub access_entries: Vec<AccessEntry>,
    /// The controller's entries that no other group needs, and that stay because others use the role.
    pub kept_entries: Vec<KeptEntry>,
    /// ARNs of the roles whose entry in aws-auth stays because a person changed it.
    pub modified_auth_entries: Vec<String>,
    /// Another group that has to be deleted first, because it removes a shared entry.
    pub wait_for: Option<String>,
    /// Why the group's entries in aws-auth cannot be searched for, if they may exist.
    pub unreadable_aws_auth: Option<String>,
    /// Who uses the group's own role, so that the role, its profile and its entries stay.
    pub role_in_use: Option<String>,
    /// Another scaling group that has instances from the launch template, so that it stays.
    pub template_in_use: Option<String>,
    /// The recorded adopted resources, and those without tags that the empty scaling group proves to be the group's.
    pub adopted: AdoptedResources,
}

/// The instances with their nodes, and the nodes that are being drained.
pub(crate) async fn members_with_drains(
    o: &Observer<'_>,
    instances: &[Instance],
    uid: &str,
    status: &InstanceGroupStatus,
) -> ObserveResult<(Vec<NodeInstance>, Drains)> {
    let with_node = |i: &Instance| NodeInstance {
        is_recorded_standby: status.managed.as_ref().is_some_and(|managed| managed.standby.contains(&i.id)),
        node: o.node_index.get(&i.id),
        lost_node: None,
        reasons: Vec::new(),
        in_place: None,
        instance: i.clone(),
    };
    let mut members: Vec<_> = instances.iter().map(with_node).collect();
    complete_nodes(o, &mut members, uid);
    let drains = drain_views(o, &members, uid).await?;
    Ok((members, drains))
}

/// Reads the remaining resources. While the scaling group exists, only its nodes are read, and once it is empty, what it
/// launches from.
pub(crate) async fn remaining_resources(
    o: &Observer<'_>,
    id: &GroupId,
    names: &ResourceNames,
    ownership: &[Tag],
    status: &InstanceGroupStatus,
) -> ObserveResult<RemainingResources> {
    let aws = ObserveError::Aws;
    let scaling_group = o.inventory.group(&names.scaling_group, o.max_cache_age).await.map_err(aws)?;
    let instances = scaling_group.as_ref().map(|g| g.instances.as_slice()).unwrap_or_default();
    let (members, drains) = members_with_drains(o, instances, &id.uid, status).await?;
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
        kept_entries: vec![],
        modified_auth_entries: vec![],
        wait_for: None,
        unreadable_aws_auth: None,
        role_in_use: None,
        template_in_use: None,
        adopted: status.managed.as_ref().and_then(|m| m.adopted.clone()).unwrap_or_default(),
        scaling_group,
    };
    if let Some(group) = remaining.scaling_group.as_ref().filter(|g| has_ownership_tags(&g.tags, ownership)) {
        if remaining.members.is_empty() && group.warm_pool.is_none() && !group.deleting {
            remaining.adopted = untagged_resources(o, group, names, ownership, status).await?;
        }
        return Ok(remaining);
    }
    remaining.template = o.inventory.template(&names.template, Duration::ZERO).await.map_err(aws)?;
    remaining.template_in_use = match &remaining.template {
        Some(template) => template_user(o, &template.id, &names.scaling_group).await.map_err(aws)?,
        None => None,
    };
    let iam = &o.inventory.aws().iam;
    remaining.instance_profile = iam.get_profile(&names.role).await.map_err(aws)?;
    remaining.role = iam.get_role(&names.role).await.map_err(aws)?;
    let adopted = status.managed.as_ref().and_then(|m| m.adopted.as_ref()).and_then(|a| a.role.as_ref());
    let is_own = |r: &Role| is_owned(&r.id, &r.tags, adopted, ownership);
    if remaining.role.as_ref().is_some_and(is_own) {
        remaining.attached_policies = iam.attached_policies(&names.role).await.map_err(aws)?;
        remaining.inline_policies = iam.inline_policies(&names.role).await.map_err(aws)?;
    }
    let own_role = remaining.role.as_ref().filter(|role| is_own(role)).cloned();
    let (role_in_use, user_wait) = role_use(o, id, own_role.as_ref(), remaining.instance_profile.as_ref()).await?;
    remaining.role_in_use = role_in_use;
    // The entry of a role that is deleted is removed with it, whatever created the entry. The entry of any other role is
    // removed only when the status records it as the controller's.
    let own = match &remaining.role {
        Some(role) => Some(&role.arn).filter(|_| is_own(role)),
        // Another client has deleted the role before.
        None => status.nodes_instance_role_arn.as_ref().filter(|arn| arn.ends_with(&format!(":role/{}", names.role))),
    };
    let managed = status.managed.iter();
    let roles: BTreeSet<_> = managed.clone().flat_map(|m| &m.auth_entries).chain(own).collect();
    let (groups, key) = (o.group_index, id.key());
    let problem = join::aws_auth_problem(o, &ownership[0].value).await?;
    let unreadable = join::with_unreadable_entry(problem.as_ref(), &roles, status).into_iter();
    let (unreadable, unreadable_wait) =
        entries_to_remove(unreadable, |arn| groups.deletion_order(arn, &groups.aws_auth_users(arn, &key), &key));
    let unremovable = unreadable.first().zip(problem.as_ref());
    remaining.unreadable_aws_auth = unremovable.map(|(arn, problem)| join::unremovable_entry(arn, problem));
    let modified = roles.iter().copied().filter(|arn| o.map_roles.is_modified(arn));
    let (modified, _) =
        entries_to_remove(modified, |arn| groups.deletion_order(arn, &groups.aws_auth_users(arn, &key), &key));
    let present = roles.into_iter().filter(|arn| previous_roles::aws_auth_entry(o, arn).is_some());
    let (auth_roles, auth_wait) =
        entries_to_remove(present, |arn| groups.deletion_order(arn, &groups.aws_auth_users(arn, &key), &key));
    let seen = match own {
        Some(_) if !join::may_have_access_entry(o, &ownership[0].value, status).await? => None,
        own => own,
    };
    let recorded: BTreeSet<_> = managed.flat_map(|m| &m.access_entries).chain(seen).collect();
    let (access_roles, access_wait) =
        entries_to_remove(recorded, |arn| groups.deletion_order(arn, &groups.access_entry_users(arn, &key), &key));
    let given: BTreeSet<_> = auth_roles.iter().chain(&access_roles).copied().filter(|arn| Some(*arn) != own).collect();
    let own_template = remaining.template.as_ref().map(|template| template.id.clone());
    for arn in given {
        if let Some(user) = node_user(o, arn, own_template.as_deref()).await? {
            remaining.kept_entries.push(KeptEntry { role_arn: arn.clone(), user });
        }
    }
    let stays = |arn: &String| remaining.role_in_use.is_some() && Some(arn) == own;
    remaining.modified_auth_entries = modified.into_iter().filter(|arn| !stays(arn)).cloned().collect();
    let is_kept = |arn: &String| stays(arn) || remaining.kept_entries.iter().any(|kept| kept.role_arn == *arn);
    remaining.aws_auth_entries = auth_roles
        .into_iter()
        .filter(|arn| !is_kept(arn))
        .filter_map(|arn| previous_roles::aws_auth_entry(o, arn))
        .collect();
    for arn in access_roles.into_iter().filter(|arn| !is_kept(arn)).collect::<Vec<_>>() {
        let (cluster, is_own) = (&ownership[0].value, Some(arn) == own);
        let entry = join::remaining_access_entry(o, &key, cluster, arn, status, is_own).await?;
        remaining.access_entries.extend(entry);
    }
    remaining.wait_for = auth_wait.or(unreadable_wait).or(access_wait).or(user_wait);
    Ok(remaining)
}

/// Who uses the group's own role besides the group: nodes that run with it would lose the cluster and AWS. The second one is
/// a group that is being deleted, which leaves it soon. Without `role`, the profile may hold one that is not the group's any
/// more: an instance that runs with the profile would lose its permissions all the same.
async fn role_use(
    o: &Observer<'_>,
    id: &GroupId,
    role: Option<&Role>,
    profile: Option<&InstanceProfile>,
) -> ObserveResult<(Option<String>, Option<String>)> {
    let user = role.and_then(|role| o.group_index.role_user(&role.arn, &id.key()));
    if let Some(user) = user.as_ref().filter(|user| !user.is_deleting) {
        return Ok((Some(format!("the InstanceGroup {}", user.group)), None));
    }
    let others = match role {
        Some(role) => other_profiles(o, &role.name).await?,
        None => Vec::new(),
    };
    let profiles: Vec<_> = profile.into_iter().chain(&others).map(|profile| profile.arn.clone()).collect();
    if profiles.is_empty() {
        return Ok((None, None));
    }
    let running = o.inventory.aws().ec2.instances_with_profiles(&profiles).await.map_err(ObserveError::Aws)?;
    Ok(match (running.first(), user) {
        (Some(_), Some(deleting)) => (None, Some(deleting.group)),
        (Some(instance), None) => (Some(format!("the instance {instance}")), None),
        // IAM deletes no role that an instance profile holds, and what launches with it needs the role's policies.
        (None, _) => (others.first().map(|other| format!("the instance profile {}", other.name)), None),
    })
}

/// Adds to the adopted resources those whose tags were removed. The scaling group launches from them, and nothing else
/// proves their owner once it is deleted.
async fn untagged_resources(
    o: &Observer<'_>,
    group: &ScalingGroup,
    names: &ResourceNames,
    ownership: &[Tag],
    status: &InstanceGroupStatus,
) -> ObserveResult<AdoptedResources> {
    let (aws, inventory) = (ObserveError::Aws, o.inventory);
    let managed = status.managed.clone().unwrap_or_default();
    let mut found = managed.adopted.unwrap_or_default();
    let unclaimed = |tags: &[Tag]| !has_ownership_tags(tags, ownership) && !has_foreign_tags(tags, ownership);
    let mut profile_arn = None;
    if let Some(pin) = &group.template {
        let template = inventory.template(&names.template, Duration::ZERO).await.map_err(aws)?;
        if let Some(template) = template.filter(|template| template.id == pin.id) {
            found.template = unclaimed(&template.tags).then(|| template.id.clone()).or(found.template);
            let number = version_number(pin, Some(&template)).unwrap_or(template.default_version);
            let versions = inventory.versions(&template.id, &[number]).await.map_err(aws)?;
            profile_arn = versions.first().map(|version| version.data.profile_arn.clone());
        }
    } else if let Some(name) = &group.launch_configuration {
        let configuration = inventory.launch_configuration(name).await.map_err(aws)?;
        profile_arn = configuration.map(|configuration| configuration.data.profile_arn.clone());
    }
    // Without recorded policies, the spec named the role.
    let Some(arn) = profile_arn.filter(|_| !managed.policies.is_empty()) else { return Ok(found) };
    let iam = &inventory.aws().iam;
    let profile = iam.get_profile(&names.role).await.map_err(aws)?.filter(|profile| profile.arn == arn);
    // The scaling group refers to the profile by its name. A profile that another client created under that name does
    // not hold the group's role.
    let has_role = |profile: &InstanceProfile| profile.role.as_ref().is_some_and(|role| role.name == names.role);
    let Some(profile) = profile.filter(has_role) else { return Ok(found) };
    found.profile = unclaimed(&profile.tags).then(|| profile.id.clone()).or(found.profile);
    let role = iam.get_role(&names.role).await.map_err(aws)?.filter(|role| unclaimed(&role.tags));
    found.role = role.map(|role| role.id).or(found.role);
    Ok(found)
}
