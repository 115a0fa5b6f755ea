//! Finds the resources of a group whose status does not name them: a user removed it, or a backup brought the group
//! back without it. Only the tags prove whose they are.

use std::time::Duration;

use super::remaining_resources::RecordedNames;
use crate::api::InstanceGroupStatus;
use crate::aws::{LaunchTemplate, Tag};
use crate::ownership::{has_ownership_tags, ownership_tags};
use crate::provisioner::GroupId;
use crate::provisioner::eks::names::{GroupNames, differs_only_in_timestamp, is_derived_template_name, with_any_time};
use crate::provisioner::eks::resolve::ResourceNames;
use crate::provisioner::limits::MAX_SCALING_GROUP_NAME;
use crate::provisioner::name_form::NameForm;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};

/// The form of the names under which the group has a scaling group; `None` without one.
pub(crate) async fn form_in_use(o: &Observer<'_>, cluster: &str, id: &GroupId) -> ObserveResult<Option<NameForm>> {
    let (derived, tags) = (GroupNames::new(cluster, &id.namespace, &id.name), ownership_tags(cluster, id));
    for form in NameForm::ALL {
        let name = derived.scaling_group_in(form, &o.inventory.aws().region);
        if has_scaling_group(o, &name, &tags).await? {
            return Ok(Some(form));
        }
    }
    Ok(None)
}

/// The name of the launch template that the group continues to use: the recorded one, or without a record one that an
/// earlier InstanceGroup of this name left, which a user deleted together with its status. `None` for the derived name.
pub(crate) async fn template_name(
    o: &Observer<'_>,
    cluster: &str,
    id: &GroupId,
    form: NameForm,
    status: &InstanceGroupStatus,
) -> ObserveResult<Option<String>> {
    let names = GroupNames::new(cluster, &id.namespace, &id.name);
    let derived = names.launch_template_in(id.created_at, form, &o.inventory.aws().region);
    let recorded = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
    if let Some(name) = recorded(&status.active_launch_template_name) {
        return Ok(Some(name).filter(|name| is_derived_template_name(name, &derived)));
    }
    if recorded(&status.active_scaling_group_name).is_some() {
        return Ok(None);
    }
    let left = newest_derived_template(o, &derived, id, o.shared_max_cache_age).await?;
    Ok(left.filter(|t| has_ownership_tags(&t.tags, &ownership_tags(cluster, id))).map(|template| template.name))
}

/// The youngest launch template of the derived name, with any time.
async fn newest_derived_template(
    o: &Observer<'_>,
    derived: &str,
    id: &GroupId,
    max_age: Duration,
) -> ObserveResult<Option<LaunchTemplate>> {
    let pattern = with_any_time(derived, id.created_at);
    o.inventory.template_like(&pattern, derived, max_age).await.map_err(ObserveError::Aws)
}

/// The names of a group that is being deleted, in the form in which the group has a scaling group, launch template, instance
/// profile or role; `None` when it has none of these.
pub(crate) async fn names(o: &Observer<'_>, cluster: &str, id: &GroupId) -> ObserveResult<Option<RecordedNames>> {
    let (derived, tags) = (GroupNames::new(cluster, &id.namespace, &id.name), ownership_tags(cluster, id));
    let (region, aws) = (&o.inventory.aws().region, ObserveError::Aws);
    let iam = &o.inventory.aws().iam;
    for form in NameForm::ALL {
        let mut names = ResourceNames {
            role: derived.role_in(form, region),
            template: derived.launch_template_in(id.created_at, form, region),
            scaling_group: derived.scaling_group_in(form, region),
        };
        let is_used = has_scaling_group(o, &names.scaling_group, &tags).await?;
        let is_ours = |found: &[Tag]| has_ownership_tags(found, &tags);
        let left = newest_derived_template(o, &names.template, id, Duration::ZERO).await?.filter(|t| is_ours(&t.tags));
        let is_found = is_used
            || left.is_some()
            || iam.get_profile(&names.role).await.map_err(aws)?.is_some_and(|profile| is_ours(&profile.tags))
            || iam.get_role(&names.role).await.map_err(aws)?.is_some_and(|role| is_ours(&role.tags));
        if !is_found {
            continue;
        }
        let in_use = if is_used { template_in_use(o, &names).await? } else { None };
        names.template = in_use.or(left.map(|template| template.name)).unwrap_or(names.template);
        return Ok(Some(RecordedNames {
            cluster: cluster.to_owned(),
            names,
            has_derived_template_name: true,
            ownership_tags: tags,
        }));
    }
    Ok(None)
}

async fn has_scaling_group(o: &Observer<'_>, name: &str, tags: &[Tag]) -> ObserveResult<bool> {
    // AWS rejects a search for a longer name.
    if name.len() > MAX_SCALING_GROUP_NAME {
        return Ok(false);
    }
    let found = o.inventory.group(name, Duration::ZERO).await.map_err(ObserveError::Aws)?;
    Ok(found.is_some_and(|group| has_ownership_tags(&group.tags, tags)))
}

/// The name of the template that the scaling group launches from: keikoproj/instance-manager ends it with another time.
async fn template_in_use(o: &Observer<'_>, names: &ResourceNames) -> ObserveResult<Option<String>> {
    let group = o.inventory.group(&names.scaling_group, o.max_cache_age).await.map_err(ObserveError::Aws)?;
    let Some(pin) = group.and_then(|group| group.template) else { return Ok(None) };
    let found = o.inventory.aws().ec2.template_by_id(&pin.id).await.map_err(ObserveError::Aws)?;
    Ok(found.map(|template| template.name).filter(|name| differs_only_in_timestamp(name, &names.template)))
}
