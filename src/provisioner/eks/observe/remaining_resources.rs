//! Looks at what is left of a group that is to go.

use std::collections::BTreeSet;
use std::time::Duration;

use super::previous_roles;
use crate::api::InstanceGroupStatus;
use crate::auth::aws_auth::AuthEntry;
use crate::aws::{AccessEntry, Instance, InstanceProfile, LaunchTemplate, Role, ScalingGroup, Tag};
use crate::index::groups::bequeathed;
use crate::ownership::{owned, ownership, proven};
use crate::provisioner::eks::names::GroupNames;
use crate::provisioner::eks::resolve::Names;
use crate::provisioner::observe::{ObserveError, Observed, Observer, drains};
use crate::provisioner::{GroupId, join};
use crate::rotation::{Drains, Member};

/// What a group left behind, by the names in its status.
pub struct Traces {
    /// The cluster, as the scaling group's name tells it.
    pub cluster: String,
    /// Derived, or as the status has them.
    pub names: Names,
    /// The tags that prove that something is ours.
    pub ownership: Vec<Tag>,
}

/// What the status names; `None` when nothing was made.
pub fn traces(id: &GroupId, status: &InstanceGroupStatus) -> Option<Traces> {
    let group = status.active_scaling_group_name.clone().filter(|g| !g.is_empty())?;
    let suffix = format!("-{}-{}", id.namespace, id.name);
    let cluster = match group.strip_suffix(&suffix) {
        Some(cluster) => cluster.to_owned(),
        // A name with a hash: the hash is the last word.
        None => group.rsplit_once('-')?.0.strip_suffix(&suffix)?.to_owned(),
    };
    let derived = GroupNames::new(&cluster, &id.namespace, &id.name);
    let distinct = group != derived.scaling_group();
    let of = |name: String| if distinct { derived.distinct(&name) } else { name };
    let template = status.active_launch_template_name.clone().filter(|t| !t.is_empty());
    let names = Names {
        role: of(derived.role()),
        template: template.unwrap_or_else(|| of(derived.launch_template(id.created))),
        group,
    };
    Some(Traces { names, ownership: ownership(&cluster, id), cluster })
}

/// What there is of a group that is to go.
pub struct Remains {
    /// The scaling group.
    pub group: Option<ScalingGroup>,
    /// Its instances with their nodes.
    pub members: Vec<Member>,
    /// What is on its marked nodes.
    pub drains: Drains,
    /// The launch template.
    pub template: Option<LaunchTemplate>,
    /// The role of the derived name.
    pub role: Option<Role>,
    /// Its attached policies.
    pub attached: Vec<String>,
    /// Its inline policies.
    pub inline: Vec<String>,
    /// The profile of the derived name.
    pub profile: Option<InstanceProfile>,
    /// Our entries in aws-auth that no other group needs.
    pub auth: Vec<AuthEntry>,
    /// The same of access entries.
    pub access: Vec<AccessEntry>,
    /// A group that has to be gone before.
    pub after: Option<String>,
}

/// Looks at what is left of a group.
pub async fn remains(
    o: &Observer<'_>,
    id: &GroupId,
    names: &Names,
    ownership: &[Tag],
    status: &InstanceGroupStatus,
) -> Observed<Remains> {
    let aws = ObserveError::Aws;
    let group = o.inventory.group(&names.group, o.max_age).await.map_err(aws)?;
    let instances: Vec<Instance> = group.iter().flat_map(|g| g.instances.clone()).collect();
    let members: Vec<_> = instances
        .into_iter()
        .map(|instance| Member { node: o.nodes.get(&instance.id), outdated: Vec::new(), instance })
        .collect();
    let drains = drains(o, &members, &id.uid).await?;
    let mut remains = Remains {
        members,
        drains,
        template: None,
        role: None,
        attached: vec![],
        inline: vec![],
        profile: None,
        auth: vec![],
        access: vec![],
        after: None,
        group,
    };
    if remains.group.as_ref().is_some_and(|g| owned(&g.tags, ownership)) {
        return Ok(remains);
    }
    remains.template = o.inventory.template(&names.template, Duration::ZERO).await.map_err(aws)?;
    let iam = &o.inventory.aws().iam;
    remains.profile = iam.get_profile(&names.role).await.map_err(aws)?;
    remains.role = iam.get_role(&names.role).await.map_err(aws)?;
    let adopted = status.managed.as_ref().and_then(|m| m.adopted.as_ref()).and_then(|a| a.role.as_ref());
    let ours = |r: &Role| proven(&r.id, &r.tags, adopted, ownership);
    if remains.role.as_ref().is_some_and(ours) {
        remains.attached = iam.attached_policies(&names.role).await.map_err(aws)?;
        remains.inline = iam.inline_policies(&names.role).await.map_err(aws)?;
    }
    // The entry of a role that goes, goes along, whoever wrote it; that of any other only when it is recorded as ours.
    let own = remains.role.as_ref().filter(|role| ours(role)).map(|role| &role.arn);
    let managed = status.managed.iter();
    let roles: BTreeSet<_> = managed.clone().flat_map(|m| &m.auth_entries).chain(own).collect();
    let (groups, key) = (o.groups, id.key());
    let there = roles.into_iter().filter(|arn| previous_roles::entry(o, arn).is_some());
    let (auth, before) = bequeathed(there, |arn| groups.legacy(arn, &groups.authorised_by(arn, &key), &key));
    remains.auth = auth.into_iter().filter_map(|arn| previous_roles::entry(o, arn)).collect();
    let recorded = managed.flat_map(|m| &m.access_entries);
    let (access, after) = bequeathed(recorded, |arn| groups.legacy(arn, &groups.admitted_by(arn, &key), &key));
    for arn in access {
        remains.access.extend(join::left(o, &key, &ownership[0].value, arn, status).await?);
    }
    remains.after = before.or(after);
    Ok(remains)
}
