//! Creates the launch template, or a version of it that holds what the spec requests.

use crate::api::ScalingConfigurationKind;
use crate::api::names::annotation;
use crate::aws::{Instance, LaunchTemplate, NewTemplate, NewVersion, TemplatePin};
use crate::ownership::has_foreign_tags;
use crate::plan::{Drift, EksStep, Event, EventReason, Outcome, Pin, PlanBuilder, PlannedStep, StalledReason};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::resolve::ResolvedGroup;
use crate::provisioner::eks::user_data::OsFamily;
use crate::provisioner::recreated::recreated;
use crate::util::counted::counted;
use crate::util::digest::client_token;

/// What the launch template adds to the plan of an existing scaling group.
#[derive(Default)]
pub(crate) struct TemplateContribution {
    /// The version to pin the scaling group to; `None` keeps its pin.
    pub pin: Option<Pin>,
    /// Why the scaling group is pinned to a retained version; `None` names only the version that changes.
    pub repin_reasons: Option<Vec<Drift>>,
    /// Steps before the scaling group is updated.
    pub steps: Vec<PlannedStep>,
    /// Steps after the scaling group is updated.
    pub cleanup: Vec<PlannedStep>,
}

/// A version that holds what the spec requests.
pub(crate) struct EnsuredVersion {
    /// The version to pin.
    pub pin: Pin,
    /// The step that creates the version; `None` when it exists.
    pub step: Option<PlannedStep>,
}

impl EnsuredVersion {
    /// Whether the launch template itself is new.
    pub(crate) fn creates_template(&self) -> bool {
        use crate::plan::Step;
        self.step.as_ref().is_some_and(|planned| matches!(planned.step, Step::Eks(EksStep::CreateTemplate(_))))
    }
}

impl From<EnsuredVersion> for TemplateContribution {
    fn from(version: EnsuredVersion) -> Self {
        let steps = version.step.into_iter().collect();
        TemplateContribution { pin: Some(version.pin), steps, ..TemplateContribution::default() }
    }
}

/// Finds or creates a version with the desired content. Returns `None`, and blocks the group, when another group owns
/// a template of that name.
pub(crate) fn ensure_version(input: &PlanInput, builder: &mut PlanBuilder) -> Option<EnsuredVersion> {
    let r = input.resolved;
    let hash = r.fingerprint.hash.clone();
    builder.set_status("activeLaunchTemplateName", &r.names.template);
    let Some(found) = &input.observed.template else {
        let template = NewTemplate {
            name: r.names.template.clone(),
            tags: r.ownership_tags.clone(),
            version: new_version(input, None),
        };
        builder.events.extend(launch_warnings(r));
        let was_created = input.status.template.as_ref().is_some_and(|recorded| recorded.id.is_some());
        // With another name, the controller itself deletes the one that it had.
        let has_same_name = input.status.active_launch_template_name.as_ref() == Some(&r.names.template);
        if was_created && has_same_name && input.status.nodes.is_some() {
            let what = format!("the launch template {}", r.names.template);
            builder.events.push(recreated(&what, "DeleteLaunchTemplate", &consequence_of_new_template(input)));
        }
        return Some(EnsuredVersion { pin: Pin::Made { hash }, step: Some(EksStep::CreateTemplate(template).into()) });
    };
    if has_foreign_tags(&found.tags, &r.ownership_tags) {
        let message = format!("the launch template {} is tagged for another group", found.name);
        builder.set_outcome_once(Outcome::Blocked {
            reason: StalledReason::OwnershipConflict,
            message,
            is_deleting: false,
        });
        return None;
    }
    let same =
        input.observed.versions.iter().rev().find(|(_, v)| v.fingerprint.as_ref().is_some_and(|f| f.hash == hash));
    if let Some((number, _)) = same {
        let pin = Pin::Version { template: found.id.clone(), number: *number };
        return Some(EnsuredVersion { pin, step: None });
    }
    let step = EksStep::PutTemplateVersion { template: found.id.clone(), version: new_version(input, Some(found)) };
    Some(EnsuredVersion { pin: Pin::Made { hash }, step: Some(step.into()) })
}

/// What another launch template means for the nodes, and how a user stops it. Those of the recorded version stay while
/// its content is desired; what others were launched with is no longer recorded.
fn consequence_of_new_template(input: &PlanInput) -> String {
    let desired = input.resolved.fingerprint.hash.as_str();
    let recorded = |pin: &TemplatePin| input.status.template.as_ref()?.hash_of_deleted(&pin.id, &pin.version);
    let is_outdated = |instance: &&Instance| instance.template.as_ref().and_then(recorded) != Some(desired);
    let instances = input.observed.scaling_group.iter().flat_map(|group| &group.instances);
    let nodes = instances.filter(is_outdated).count();
    let outdated = format!(
        "; {} launched from the deleted one {} outdated",
        counted(nodes, "node"),
        if nodes == 1 { "is" } else { "are" }
    );
    match (nodes, input.lock) {
        (0, _) => String::new(),
        (_, Some(lock)) => format!("{outdated}, and lock-upgrades on {lock} blocks their replacement"),
        (_, None) => format!(
            "{outdated} and will be replaced with the group's strategy; to keep the old nodes, set the annotation {}=true on the InstanceGroup",
            annotation::LOCK_UPGRADES
        ),
    }
}

/// A version with the desired content: the first one of a new template, or the next one of an existing template.
pub(crate) fn new_version(input: &PlanInput, template: Option<&LaunchTemplate>) -> NewVersion {
    let r = input.resolved;
    NewVersion {
        token: version_token(input, template),
        description: r.fingerprint.to_description(),
        data: r.template_data.clone(),
    }
}

/// The client token of the call that creates a version. EC2 answers a known token with the first result, even if that
/// was deleted since. So the token names what was observed: a retry after a lost response repeats it, and content that
/// is wanted again later gets another one. It also names the version with which AWS refused the scaling group, because
/// another client may have deleted it before it was recorded. That a read does not show it is not proof: the read may
/// be older.
fn version_token(input: &PlanInput, template: Option<&LaunchTemplate>) -> String {
    let r = input.resolved;
    let pin = input.observed.scaling_group.as_ref().and_then(|group| group.template.as_ref());
    let pin = pin.map(|pin| format!("{}/{}", pin.id, pin.version)).unwrap_or_default();
    let recorded = input.status.template.as_ref().and_then(|recorded| recorded.id.as_deref()).unwrap_or_default();
    let latest = template.map(|found| found.latest_version.to_string()).unwrap_or_default();
    let template = template.map_or(r.names.template.as_str(), |found| found.id.as_str());
    let mut parts = vec![template, &r.desired.id.uid, &r.fingerprint.hash, &latest, &pin, recorded];
    let refused = input.observed.rejected_pin.as_ref().map(|pin| format!("{}/{}", pin.id, pin.version));
    parts.extend(refused.as_deref());
    client_token(&parts)
}

/// Why groups of Amazon Linux 2 should move (EKS User Guide, "Guide to EKS AL2 & AL2-Accelerated AMIs transition features").
const AMAZON_LINUX_2_ENDED: &str = "the OS family is amazonlinux2, whose support has ended: EKS publishes no images since \
    November 26, 2025, and Amazon Linux 2 ended on June 30, 2026; set the annotation instancemgr.keikoproj.io/os-family \
    to amazonlinux2023 or bottlerocket, which replaces the nodes";

/// Warnings about an OS family whose support has ended, and about fields that have no effect on it; published once with
/// each new version.
pub(crate) fn launch_warnings(resolved: &ResolvedGroup) -> Vec<Event> {
    let ignored =
        resolved.ignored_fields.iter().map(|field| Event::warning(EventReason::FieldIgnored, field.to_string()));
    let is_old = resolved.desired.os_family == OsFamily::AmazonLinux2;
    ignored.chain(is_old.then(|| Event::warning(EventReason::OsFamilyOutOfSupport, AMAZON_LINUX_2_ENDED))).collect()
}

/// The event for a new group that requests a launch configuration; published once, with its launch template.
pub(crate) fn launch_configuration_unsupported(resolved: &ResolvedGroup) -> Option<Event> {
    const MESSAGE: &str = "spec.eks.type LaunchConfiguration is not supported: AWS allows no new launch configurations; \
                           the group uses an equivalent launch template instead; set the type to LaunchTemplate";
    (resolved.desired.scaling_configuration == ScalingConfigurationKind::LaunchConfiguration)
        .then(|| Event::warning(EventReason::LaunchConfigurationUnsupported, MESSAGE))
}
