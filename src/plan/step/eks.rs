//! Steps of the provisioner `eks`: launch templates and scaling groups.

use serde::Serialize;

use super::info::{StepFields, StepInfo};
use crate::aws::{LifecycleHook, NewScalingGroup, NewTemplate, NewVersion, ScalingGroupChange, Tag, WarmSizes};
use crate::plan::EventReason;
use crate::plan::event::Event;
use crate::util::counted::counted;

/// Which launch template version a scaling group is pinned to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Pin {
    /// An existing version.
    Version {
        /// Id of the launch template: `lt-...`.
        template: String,
        /// Number of the version: 1, 2, ...
        number: i64,
    },
    /// The version that an earlier step of this plan creates, by its hash.
    Made {
        /// The hash line in the description of the version.
        hash: String,
    },
}

impl std::fmt::Display for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Pin::Version { template, number } => write!(f, "{template}:{number}"),
            Pin::Made { hash } => f.write_str(hash),
        }
    }
}

/// One write to a launch template or a scaling group.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum EksStep {
    /// CreateLaunchTemplate with its first version.
    CreateTemplate(NewTemplate),
    /// CreateLaunchTemplateVersion.
    PutTemplateVersion {
        template: String,
        #[serde(flatten)]
        version: NewVersion,
    },
    /// DeleteLaunchTemplateVersions for versions that no instance or scaling group uses.
    DeleteTemplateVersions { template: String, numbers: Vec<i64> },
    /// DeleteLaunchTemplate.
    DeleteTemplate { template: String },
    /// CreateTags on an adopted launch template.
    TagTemplate { template: String, tags: Vec<Tag> },
    /// DeleteLaunchConfiguration for one that this group launched from.
    DeleteConfiguration { configuration: String },
    /// CreateAutoScalingGroup; the launch template version comes from `pin`.
    CreateGroup {
        #[serde(flatten)]
        group: NewScalingGroup,
        pin: Pin,
    },
    /// UpdateAutoScalingGroup.
    UpdateGroup {
        group: String,
        #[serde(flatten)]
        change: ScalingGroupChange,
        #[serde(skip_serializing_if = "Option::is_none")]
        pin: Option<Pin>,
    },
    /// CreateOrUpdateTags.
    PutTags { group: String, tags: Vec<Tag> },
    /// DeleteTags.
    DeleteTags { group: String, keys: Vec<String> },
    /// CreateTags and DeleteTags on the instances of the group, as AWS lists them right before.
    TagInstances { group: String, set: Vec<Tag>, remove: Vec<Tag> },
    /// SuspendProcesses.
    SuspendProcesses { group: String, processes: Vec<String> },
    /// ResumeProcesses.
    ResumeProcesses { group: String, processes: Vec<String> },
    /// EnableMetricsCollection.
    EnableMetrics { group: String, metrics: Vec<String> },
    /// DisableMetricsCollection.
    DisableMetrics { group: String, metrics: Vec<String> },
    /// PutLifecycleHook.
    PutHook { group: String, hook: LifecycleHook },
    /// DeleteLifecycleHook. AWS terminates instances that wait in the hook without a drain.
    DeleteHook { group: String, hook: String },
    /// PutWarmPool.
    PutWarmPool { group: String, sizes: WarmSizes, state: Option<String>, reuse_on_scale_in: Option<bool> },
    /// DeleteWarmPool with its instances, which run no pods.
    DeleteWarmPool { group: String },
    /// SetInstanceHealth: Auto Scaling terminates an instance of the warm pool and replaces it.
    ReplaceWarmInstance { group: String, instance: String },
    /// DeleteAutoScalingGroup, without force.
    DeleteGroup { group: String },
}

/// The event of a changed scaling group.
const UPDATED: EventReason = EventReason::ScalingGroupUpdated;

impl StepInfo for EksStep {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn subject(&self) -> String {
        match self {
            EksStep::CreateTemplate(template) => template.name.clone(),
            EksStep::PutTemplateVersion { template, .. }
            | EksStep::DeleteTemplateVersions { template, .. }
            | EksStep::DeleteTemplate { template }
            | EksStep::TagTemplate { template, .. } => template.clone(),
            EksStep::DeleteConfiguration { configuration } => configuration.clone(),
            EksStep::CreateGroup { group, .. } => format!("{} with {} to {} nodes", group.name, group.min, group.max),
            EksStep::UpdateGroup { group, .. }
            | EksStep::PutTags { group, .. }
            | EksStep::DeleteTags { group, .. }
            | EksStep::TagInstances { group, .. }
            | EksStep::DeleteWarmPool { group }
            | EksStep::DeleteGroup { group } => group.clone(),
            EksStep::PutWarmPool { group, sizes, .. } => {
                format!("{group} (minSize {}, maxSize {})", sizes.min, sizes.max.unwrap_or(-1))
            }
            EksStep::ReplaceWarmInstance { instance, .. } => instance.clone(),
            EksStep::SuspendProcesses { group, processes } | EksStep::ResumeProcesses { group, processes } => {
                format!("{group} ({})", processes.join(", "))
            }
            EksStep::EnableMetrics { group, metrics } | EksStep::DisableMetrics { group, metrics } => {
                format!("{group} ({} metrics)", metrics.len())
            }
            EksStep::PutHook { group, hook } => format!("{group} ({})", hook.name),
            EksStep::DeleteHook { group, hook } => format!("{group} ({hook})"),
        }
    }

    fn fields(&self) -> StepFields {
        let version = match self {
            EksStep::CreateGroup { pin: pin @ Pin::Version { .. }, .. }
            | EksStep::UpdateGroup { pin: Some(pin @ Pin::Version { .. }), .. } => Some(pin.to_string()),
            _ => None,
        };
        let instance = match self {
            EksStep::ReplaceWarmInstance { instance, .. } => Some(instance.clone()),
            _ => None,
        };
        let resource = match self {
            EksStep::CreateGroup { group, .. } => group.name.clone(),
            EksStep::PutWarmPool { group, .. }
            | EksStep::SuspendProcesses { group, .. }
            | EksStep::ResumeProcesses { group, .. }
            | EksStep::EnableMetrics { group, .. }
            | EksStep::DisableMetrics { group, .. }
            | EksStep::PutHook { group, .. }
            | EksStep::DeleteHook { group, .. } => group.clone(),
            _ => self.subject(),
        };
        StepFields { resource: Some(resource), instance, version, ..StepFields::default() }
    }

    fn event(&self, reasons: &str) -> Option<Event> {
        let with_reasons = |reason, text| Some(Event::with_reasons(reason, text, reasons));
        let changed = |what: String| with_reasons(UPDATED, format!("changed {what}"));
        match self {
            EksStep::CreateGroup { .. } => {
                with_reasons(EventReason::InstanceGroupCreated, format!("created the scaling group {}", self.subject()))
            }
            EksStep::PutTemplateVersion { .. } => {
                with_reasons(EventReason::TemplateVersionCreated, "created a launch template version".into())
            }
            EksStep::PutWarmPool { group, .. } => changed(format!("the warm pool of {group}")),
            EksStep::DeleteWarmPool { group } => with_reasons(UPDATED, format!("deleted the warm pool of {group}")),
            EksStep::ReplaceWarmInstance { instance, .. } => {
                with_reasons(EventReason::WarmInstanceReplaced, format!("replacing {instance} in the warm pool"))
            }
            EksStep::DeleteConfiguration { configuration } => Some(Event::normal(
                EventReason::LaunchConfigurationDeleted,
                format!("deleted the launch configuration {configuration}, which no instance uses anymore"),
            )),
            EksStep::PutTags { group, .. } | EksStep::DeleteTags { group, .. } => {
                changed(format!("the tags of {group}"))
            }
            EksStep::TagInstances { group, .. } => {
                with_reasons(EventReason::InstancesTagged, format!("changed the tags of the instances of {group}"))
            }
            EksStep::UpdateGroup { group, .. } => changed(group.clone()),
            EksStep::SuspendProcesses { group, processes } => {
                with_reasons(UPDATED, format!("suspended {} on {group}", processes.join(", ")))
            }
            EksStep::ResumeProcesses { group, processes } => {
                with_reasons(UPDATED, format!("resumed {} on {group}", processes.join(", ")))
            }
            EksStep::EnableMetrics { group, .. } | EksStep::DisableMetrics { group, .. } => {
                changed(format!("the metrics of {group}"))
            }
            EksStep::PutHook { group, hook } => changed(format!("the lifecycle hook {} of {group}", hook.name)),
            EksStep::DeleteHook { group, hook } => {
                with_reasons(UPDATED, format!("deleted the lifecycle hook {hook} of {group}"))
            }
            EksStep::CreateTemplate(_)
            | EksStep::DeleteTemplateVersions { .. }
            | EksStep::DeleteTemplate { .. }
            | EksStep::TagTemplate { .. }
            | EksStep::DeleteGroup { .. } => None,
        }
    }

    fn log_text(&self) -> String {
        match self {
            EksStep::CreateTemplate(template) => format!("created the launch template {}", template.name),
            EksStep::DeleteTemplateVersions { template, numbers } => {
                format!("deleted {} of the launch template {template}", counted(numbers.len(), "unused version"))
            }
            EksStep::DeleteTemplate { template } => format!("deleted the launch template {template}"),
            EksStep::TagTemplate { template, .. } => format!("tagged the launch template {template}"),
            EksStep::DeleteGroup { group } => format!("deleted the scaling group {group}"),
            _ => self.event("").map(|event| event.message).unwrap_or_default(),
        }
    }

    fn is_disruptive(&self) -> bool {
        matches!(self, EksStep::ReplaceWarmInstance { .. } | EksStep::DeleteHook { .. })
    }

    fn creates_nodes(&self) -> bool {
        matches!(self, EksStep::CreateGroup { .. })
    }
}
