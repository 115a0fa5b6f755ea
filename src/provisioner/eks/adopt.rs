//! Adoption: the first reconcile of a group that another controller created.
//!
//! Existing resources are recorded and tagged, and their differences from the spec are reported once. No node is
//! replaced for them.

use serde_json::json;

use super::input::PlanInput;
use super::role::region::{claim_of, role_of_other_region};
use super::scaling_group::subnets;
use super::{names, observed, warm_pool};
use crate::api::{AdoptedResources, TemplateStatus};
use crate::aws::{LaunchTemplate, ScalingGroup, Tag, TemplateData};
use crate::ownership;
use crate::ownership::{has_ownership_tags, is_tagging_denied};
use crate::plan::EksStep;
use crate::plan::{Drift, IamStep, PlanBuilder};
use crate::provisioner::role_region::RegionClaim;

/// What the scaling group launches instances from at its adoption.
pub(crate) struct AdoptionSource<'a> {
    /// Names it in messages, for example `template version 3`.
    pub description: String,
    /// Its content, when it could be read.
    pub data: Option<&'a TemplateData>,
    /// How many instances were launched from something older.
    pub older_nodes: usize,
}

impl<'a> AdoptionSource<'a> {
    /// The source is a launch template version.
    pub(crate) fn from_version(input: &'a PlanInput, number: i64) -> Self {
        let instances = input.observed.scaling_group.iter().flat_map(|g| &g.instances);
        let versions =
            instances.filter_map(|i| observed::version_number(i.template.as_ref()?, input.observed.template.as_ref()));
        let data = input.observed.versions.get(&number).and_then(|v| v.data.as_ref());
        let older_nodes = versions.filter(|version| *version < number).count();
        AdoptionSource { description: format!("template version {number}"), data, older_nodes }
    }

    /// The source is a launch configuration.
    pub(crate) fn from_launch_configuration(input: &'a PlanInput, name: &str) -> Self {
        let instances = input.observed.scaling_group.iter().flat_map(|g| &g.instances);
        let older_nodes = instances.filter(|i| i.launch_configuration.as_deref() != Some(name)).count();
        AdoptionSource {
            description: format!("launch configuration {name}"),
            data: input.observed.launch_configuration.as_ref(),
            older_nodes,
        }
    }
}

/// Adopts a group as it is. Its resources are tagged and recorded before anything else, and the condition `Adopted`
/// reports how they differ from the spec.
pub(crate) fn adopt_group(
    input: &PlanInput,
    found: &AdoptionSource,
    template: &TemplateStatus,
    builder: &mut PlanBuilder,
) {
    let message = summarize(input, found);
    tag_resources(input, found, &message, builder);
    builder.record_after_steps(json!({ "template": template }));
    builder.report_adoption(message);
}

/// The message of the adoption: how the group differs from the spec.
fn summarize(input: &PlanInput, found: &AdoptionSource) -> String {
    let differences: Vec<_> = adoption_drift(input, found).iter().map(ToString::to_string).collect();
    let mut message = format!("adopted at {}; ", found.description);
    message += &match differences.is_empty() {
        true => "nothing differs".to_owned(),
        false => {
            format!("these differences are applied with the next change, or by rotate-at: {}", differences.join("; "))
        }
    };
    let foreign =
        input.observed.scaling_group.as_ref().map(|group| unmanaged_attributes(input, group)).unwrap_or_default();
    if !foreign.is_empty() {
        message += &format!("; not in the spec and left unchanged: {}", foreign.join(", "));
    }
    message
}

/// Tags and records launch template, role and instance profile. The previous controller tagged only the scaling group;
/// the others belong to the group because of their derived names and because its scaling group refers to them.
fn tag_resources(input: &PlanInput, found: &AdoptionSource, summary: &str, builder: &mut PlanBuilder) {
    let r = input.resolved;
    // Without the tag of the region where another region may use the role.
    let recorded = input.status.managed.as_ref().and_then(|managed| managed.role_region.as_ref());
    let is_claimed = recorded == Some(&r.region)
        || matches!(claim_of(r, input.observed), Some(RegionClaim::Tagged | RegionClaim::Claimable));
    let iam_tags = || if is_claimed { r.iam_tags() } else { r.ownership_tags.clone() };
    let is_foreign = role_of_other_region(input).is_some();
    let is_untagged = |tags: &[Tag]| {
        !has_ownership_tags(tags, &r.ownership_tags) && !ownership::has_foreign_tags(tags, &r.ownership_tags)
    };
    let template = input.observed.template.as_ref().filter(|t| is_untagged(&t.tags));
    let launches_with = |arn: &str| found.data.is_some_and(|data| data.profile_arn == arn);
    let profile =
        input.observed.instance_profile.as_ref().filter(|p| r.own_role && !is_foreign && launches_with(&p.arn));
    let role =
        profile.and_then(|p| p.role.as_ref()).filter(|role| role.name == r.names.role && is_untagged(&role.tags));
    let profile = profile.filter(|p| is_untagged(&p.tags));
    let is_pinned = |t: &&LaunchTemplate| {
        let pin = input.observed.scaling_group.as_ref().and_then(|g| g.template.as_ref());
        pin.is_some_and(|pin| pin.id == t.id) && names::differs_only_in_timestamp(&t.name, &r.names.template)
    };
    if template.is_none() && role.is_none() && profile.is_none() {
        return;
    }
    record_adopted(
        input,
        AdoptedResources {
            template: template.filter(is_pinned).map(|t| t.id.clone()),
            role: role.map(|role| role.id.clone()),
            profile: profile.map(|p| p.id.clone()),
            summary: None,
        },
        summary,
        builder,
    );
    if is_claimed && recorded.is_none() && role.is_some() && profile.is_some() {
        builder.record_managed("roleRegion", json!(r.region));
    }
    if let Some(template) = template {
        builder.push(EksStep::TagTemplate { template: template.id.clone(), tags: r.ownership_tags.clone() });
    }
    if let Some(role) = role {
        builder.push(IamStep::TagRole { role: role.name.clone(), tags: iam_tags() });
    }
    if let Some(profile) = profile {
        builder.push(IamStep::TagProfile { profile: profile.name.clone(), tags: iam_tags() });
    }
}

/// Records the adopted resources before they are tagged. If AWS denies the tags, the record alone proves their ownership
/// once the scaling group is deleted.
fn record_adopted(input: &PlanInput, found: AdoptedResources, summary: &str, builder: &mut PlanBuilder) {
    let old = input.status.managed.as_ref().and_then(|m| m.adopted.clone()).unwrap_or_default();
    let found = AdoptedResources {
        template: found.template.or_else(|| old.template.clone()),
        role: found.role.or_else(|| old.role.clone()),
        profile: found.profile.or_else(|| old.profile.clone()),
        summary: Some(summary.to_owned()),
    };
    if old == found {
        return;
    }
    builder.record_managed("adopted", json!(found));
}

/// Retries the tags that AWS denied at the adoption, and reports the adoption without the missing permissions. The report
/// of a further denial adds them again.
pub(crate) fn retry_tagging(input: &PlanInput, group: &ScalingGroup, builder: &mut PlanBuilder) {
    if input.observed.tag_retry_pending {
        return;
    }
    if !is_tagging_denied(input.status) {
        return;
    }
    let (r, state) = (input.resolved, input.observed);
    let number = group.template.as_ref().and_then(|pin| observed::version_number(pin, state.template.as_ref()));
    let mut found = match number {
        Some(number) => AdoptionSource::from_version(input, number),
        None => {
            AdoptionSource::from_launch_configuration(input, group.launch_configuration.as_deref().unwrap_or_default())
        }
    };
    // A version that is known only by its recorded hash has the desired content.
    let version = number.and_then(|number| state.versions.get(&number)?.fingerprint.as_ref());
    if version.is_some_and(|print| print.hash == r.fingerprint.hash) {
        found.data = Some(&r.template_data);
    }
    let recorded = input.status.managed.as_ref().and_then(|managed| managed.adopted.as_ref()?.summary.clone());
    let message = recorded.unwrap_or_else(|| summarize(input, &found));
    tag_resources(input, &found, &message, builder);
    builder.report_adoption(message);
}

/// How the adopted content differs from the spec, and how many nodes run an older one.
fn adoption_drift(input: &PlanInput, found: &AdoptionSource) -> Vec<Drift> {
    let desired = &input.resolved.template_data;
    let mut all =
        found.data.map(|data| super::launch_template::drift::template_data_drift(data, desired)).unwrap_or_default();
    if found.data.is_some_and(|data| data.user_data != desired.user_data) {
        all.push(Drift::new("userData", "as found", "as rendered now"));
    }
    if found.older_nodes > 0 {
        all.push(Drift::new("nodes", format!("{} on an older version", found.older_nodes), &found.description));
    }
    all
}

/// Attributes of the scaling group and policies of the role that the spec does not request.
fn unmanaged_attributes(input: &PlanInput, group: &ScalingGroup) -> Vec<String> {
    let (r, desired) = (input.resolved, &input.resolved.desired);
    let suspension_tag = subnets::suspension_tag();
    let has_suspension_tag = subnets::has_suspension_tag(group);
    let tags = group.tags.iter().filter(|t| **t != suspension_tag).map(|t| &t.key);
    let tags = tags.filter(|key| r.tags.iter().all(|t| t.key != **key));
    let hooks = input.observed.lifecycle_hooks.iter().flatten().map(|h| &h.name);
    let hooks = hooks.filter(|name| desired.lifecycle_hooks.iter().all(|h| h.name != **name));
    let processes = group.suspended_processes.iter().filter(|p| !desired.suspended_processes.contains(*p));
    let processes = processes.filter(|p| !(has_suspension_tag && **p == suspension_tag.value));
    let metrics = group.enabled_metrics.iter().filter(|m| !desired.metrics.contains(*m));
    let policies = input.observed.attached_policies.iter().filter(|p| r.own_role && !r.managed_policies.contains(p));
    let named = |kind: &'static str| move |name: &String| format!("{kind} {name}");
    let warm_pool = warm_pool::is_foreign(input).then(|| "the warm pool".to_owned());
    tags.map(named("tag"))
        .chain(warm_pool)
        .chain(hooks.map(named("lifecycle hook")))
        .chain(processes.map(named("suspended process")))
        .chain(metrics.map(named("metric")))
        .chain(policies.map(named("policy")))
        .collect()
}
