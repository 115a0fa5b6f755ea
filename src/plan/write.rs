//! What a step writes, as data: which attribute, and which value. The controller compares it with earlier writes, to
//! distinguish a repeated difference from a new one.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use super::step::{EksStep, FargateStep, IamStep, JoinStep, NodeStep, NodegroupStep, ObjectStep, Step};
use super::types::PlannedStep;

/// One attribute that is written, and its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Write {
    /// The resource and its attribute, for example `demo-team-web tags[cost]`. Steps that set and remove an attribute
    /// name the same one.
    pub attribute: String,
    /// A digest of the value. It is compared within one process only.
    pub value: u64,
}

impl Write {
    /// A write of `value` to an attribute of a resource.
    pub(crate) fn new(resource: &str, attribute: &str, value: &impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Write { attribute: format!("{resource} {attribute}"), value: hasher.finish() }
    }
}

/// What must wait while a step is delayed because it has had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// Nothing: no node depends on the attribute, so even a rotation continues.
    Nothing,
    /// What later passes do once the step has taken effect, such as a rotation.
    LaterPasses,
    /// Later steps of the same plan as well: those that let nodes join, or launch nodes that could not join.
    LaterJoins,
    /// All later steps of the same plan as well.
    LaterSteps,
}

/// The values of an attribute that exists or does not.
const PRESENT: &str = "present";
const ABSENT: &str = "absent";

/// Fields of a step that differ between equal writes.
const VOLATILE: [&str; 3] = ["resourceVersion", "token", "changeHash"];

impl PlannedStep {
    /// What the step writes. Empty for steps whose repetition has its own limits: evictions and records in the status.
    pub fn writes(&self) -> Vec<Write> {
        match &self.step {
            Step::Object(ObjectStep::AddFinalizer) => vec![Write::new("InstanceGroup", "finalizer", &PRESENT)],
            Step::Object(ObjectStep::RemoveFinalizer | ObjectStep::UpdateStatus { .. })
            | Step::Node(NodeStep::Evict { .. } | NodeStep::ForceDelete { .. }) => Vec::new(),
            Step::Iam(IamStep::AttachPolicy { role, policy }) => existence(role, "managedPolicies", [policy], PRESENT),
            Step::Iam(IamStep::DetachPolicy { role, policy }) => existence(role, "managedPolicies", [policy], ABSENT),
            Step::Join(step) => vec![join_write(step)],
            Step::Node(NodeStep::CordonNode { node, .. }) => vec![Write::new(node, "unschedulable", &PRESENT)],
            Step::Node(NodeStep::UncordonNode { node, .. }) => vec![Write::new(node, "unschedulable", &ABSENT)],
            Step::Node(NodeStep::RecordSurge { node, .. }) => vec![Write::new(node, "surge", &PRESENT)],
            Step::Node(NodeStep::ClearSurge { node, .. }) => vec![Write::new(node, "surge", &ABSENT)],
            Step::Node(NodeStep::ChangeNodeInPlace { node, change, .. }) => {
                vec![Write::new(node, "labels and taints", &serde_json::json!(change.record).to_string())]
            }
            Step::Eks(step) => self.eks_writes(step),
            Step::Nodegroup(step) => self.nodegroup_writes(step),
            Step::Fargate(step) => self.fargate_writes(step),
            Step::Iam(_) | Step::Node(_) | Step::Strategy(_) => vec![self.write_of_whole_step()],
        }
    }

    fn eks_writes(&self, step: &EksStep) -> Vec<Write> {
        match step {
            EksStep::UpdateGroup { group, change, pin } => {
                // AWS takes the policy together with the version.
                let template = serde_json::json!([pin, change.mixed]);
                let pinned = pin.iter().map(|_| Write::new(group, "template", &template.to_string()));
                let change = crate::aws::ScalingGroupChange { mixed: None, ..change.clone() };
                fields(group, &serde_json::json!(change)).chain(pinned).collect()
            }
            EksStep::SuspendProcesses { group, processes } => existence(group, "suspendProcesses", processes, PRESENT),
            EksStep::ResumeProcesses { group, processes } => existence(group, "suspendProcesses", processes, ABSENT),
            EksStep::EnableMetrics { group, metrics } => existence(group, "metricsCollection", metrics, PRESENT),
            EksStep::DisableMetrics { group, metrics } => existence(group, "metricsCollection", metrics, ABSENT),
            EksStep::PutHook { group, hook } => {
                let value = serde_json::json!(hook).to_string();
                vec![Write::new(group, &format!("lifecycleHooks[{}]", hook.name), &value)]
            }
            EksStep::DeleteHook { group, hook } => existence(group, "lifecycleHooks", [hook], ABSENT),
            EksStep::PutWarmPool { group, .. } => {
                vec![Write { attribute: format!("{group} warmPool"), ..self.write_of_whole_step() }]
            }
            EksStep::DeleteWarmPool { group } => vec![Write::new(group, "warmPool", &ABSENT)],
            EksStep::TagInstances { group, .. } => {
                let tags = self.reasons.iter().map(|drift| (&drift.field, &drift.to));
                tags.map(|(field, to)| Write::new(group, &format!("instances {field}"), to)).collect()
            }
            EksStep::PutTags { .. } | EksStep::DeleteTags { .. } => self.reason_writes(),
            EksStep::CreateTemplate(_)
            | EksStep::PutTemplateVersion { .. }
            | EksStep::DeleteTemplateVersions { .. }
            | EksStep::DeleteTemplate { .. }
            | EksStep::TagTemplate { .. }
            | EksStep::DeleteConfiguration { .. }
            | EksStep::CreateGroup { .. }
            | EksStep::ReplaceWarmInstance { .. }
            | EksStep::DeleteGroup { .. } => vec![self.write_of_whole_step()],
        }
    }

    fn nodegroup_writes(&self, step: &NodegroupStep) -> Vec<Write> {
        match step {
            NodegroupStep::UpdateNodegroup { nodegroup, change, .. } => {
                fields(&nodegroup.nodegroup, &serde_json::json!(change)).collect()
            }
            NodegroupStep::TagNodegroup { .. } | NodegroupStep::UntagNodegroup { .. } => self.reason_writes(),
            NodegroupStep::CreateNodegroup(_)
            | NodegroupStep::UpdateNodegroupVersion { .. }
            | NodegroupStep::DeleteNodegroup { .. } => vec![self.write_of_whole_step()],
        }
    }

    fn fargate_writes(&self, step: &FargateStep) -> Vec<Write> {
        match step {
            FargateStep::CreateFargateProfile(profile) => vec![Write::new(&profile.name, "profile", &PRESENT)],
            FargateStep::DeleteFargateProfile { profile, .. } => vec![Write::new(profile, "profile", &ABSENT)],
            FargateStep::TagFargateProfile { .. } | FargateStep::UntagFargateProfile { .. } => self.reason_writes(),
        }
    }

    /// One write for each difference that the step removes. Some calls must repeat tags that do not differ.
    fn reason_writes(&self) -> Vec<Write> {
        if self.reasons.is_empty() {
            return vec![self.write_of_whole_step()];
        }
        let subject = self.step.info().subject();
        self.reasons.iter().map(|drift| Write::new(&subject, &drift.field, &drift.to)).collect()
    }

    /// The step with its complete input as one write.
    fn write_of_whole_step(&self) -> Write {
        let mut input = serde_json::json!(self.step);
        if let Some(input) = input.as_object_mut() {
            input.retain(|key, _| !VOLATILE.contains(&key.as_str()));
        }
        Write::new(&self.step.info().subject(), self.step.name(), &input.to_string())
    }

    /// What must wait while the step is delayed.
    pub(crate) fn dependents(&self) -> Dependents {
        match &self.step {
            _ if self.is_optional => Dependents::Nothing,
            Step::Eks(
                EksStep::PutTags { .. }
                | EksStep::DeleteTags { .. }
                | EksStep::TagInstances { .. }
                | EksStep::TagTemplate { .. }
                | EksStep::EnableMetrics { .. }
                | EksStep::DisableMetrics { .. }
                | EksStep::PutHook { .. }
                | EksStep::DeleteHook { .. },
            )
            | Step::Iam(IamStep::TagRole { .. } | IamStep::TagProfile { .. })
            | Step::Node(NodeStep::ChangeNodeInPlace { .. })
            | Step::Nodegroup(NodegroupStep::TagNodegroup { .. } | NodegroupStep::UntagNodegroup { .. })
            | Step::Fargate(FargateStep::TagFargateProfile { .. } | FargateStep::UntagFargateProfile { .. }) => {
                Dependents::Nothing
            }
            Step::Join(JoinStep::PutAwsAuthEntry(_) | JoinStep::WidenAwsAuthEntry(_) | JoinStep::PutAccessEntry(_)) => {
                Dependents::LaterJoins
            }
            // Later steps refer to what these create, or rely on the record that they make.
            Step::Object(_)
            | Step::Node(_)
            | Step::Iam(IamStep::CreateRole(_) | IamStep::CreateProfile { .. } | IamStep::AddRoleToProfile { .. })
            | Step::Eks(EksStep::CreateTemplate(_) | EksStep::PutTemplateVersion { .. }) => Dependents::LaterSteps,
            Step::Eks(
                EksStep::DeleteTemplateVersions { .. }
                | EksStep::DeleteTemplate { .. }
                | EksStep::DeleteConfiguration { .. }
                | EksStep::CreateGroup { .. }
                | EksStep::UpdateGroup { .. }
                | EksStep::SuspendProcesses { .. }
                | EksStep::ResumeProcesses { .. }
                | EksStep::PutWarmPool { .. }
                | EksStep::DeleteWarmPool { .. }
                | EksStep::ReplaceWarmInstance { .. }
                | EksStep::DeleteGroup { .. },
            )
            | Step::Nodegroup(
                NodegroupStep::CreateNodegroup(_)
                | NodegroupStep::UpdateNodegroup { .. }
                | NodegroupStep::UpdateNodegroupVersion { .. }
                | NodegroupStep::DeleteNodegroup { .. },
            )
            | Step::Fargate(FargateStep::CreateFargateProfile(_) | FargateStep::DeleteFargateProfile { .. })
            | Step::Iam(
                IamStep::UpdateTrustPolicy { .. }
                | IamStep::AttachPolicy { .. }
                | IamStep::DetachPolicy { .. }
                | IamStep::RemoveRoleFromProfile { .. }
                | IamStep::DeleteProfile { .. }
                | IamStep::DeleteRole { .. },
            )
            | Step::Join(JoinStep::RemoveAwsAuthEntry(_) | JoinStep::RemoveAccessEntry { .. })
            | Step::Strategy(_) => Dependents::LaterPasses,
        }
    }

    /// Whether the step must wait for earlier ones that let nodes join: it changes what nodes join with, or launches nodes
    /// from something new.
    pub(crate) fn needs_join(&self) -> bool {
        matches!(
            self.step,
            Step::Join(_)
                | Step::Eks(EksStep::CreateGroup { .. } | EksStep::UpdateGroup { pin: Some(_), .. })
                | Step::Fargate(FargateStep::CreateFargateProfile(_))
        )
    }

    /// What was written and what is shown instead, as text, and who else may write it.
    pub(crate) fn describe_repetition(&self) -> String {
        let subject = self.step.info().subject();
        let shown = |text: &str| if text.is_empty() { "nothing".to_owned() } else { format!("`{text}`") };
        let differences = self.reasons.iter().map(|drift| match &self.step {
            Step::Join(step) => describe_repeated_join(step),
            _ => format!(
                "the controller set {} of {subject} to {} several times, and read back {} each time",
                drift.field,
                shown(&drift.to),
                shown(&drift.from)
            ),
        });
        let mut differences: Vec<_> = differences.collect();
        if differences.is_empty() {
            differences.push(format!("{subject} did not show what {} wrote, several times", self.step.name()));
        }
        format!("{}; {}", differences.join(", "), other_writers(&self.step))
    }
}

fn describe_repeated_join(step: &JoinStep) -> String {
    match step {
        JoinStep::PutAwsAuthEntry(entry) | JoinStep::WidenAwsAuthEntry(entry) => format!(
            "the controller wrote the entry of {} to kube-system/aws-auth several times, and found it missing or changed each time",
            entry.role_arn
        ),
        JoinStep::RemoveAwsAuthEntry(entry) => format!(
            "the controller removed the entry of {} from kube-system/aws-auth several times, and found it there each time",
            entry.role_arn
        ),
        JoinStep::PutAccessEntry(entry) => format!(
            "the controller created the access entry of {} several times, and found it missing each time",
            entry.principal
        ),
        JoinStep::RemoveAccessEntry { principal, .. } => format!(
            "the controller deleted the access entry of {principal} several times, and found it there each time"
        ),
    }
}

/// The write of a status patch. The times in it are not part of the value: they differ each time.
pub(crate) fn status_write(patch: &Value) -> Write {
    let mut patch = patch.clone();
    for condition in patch["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"].take();
    }
    // A record that is not kept is made with another time at each try.
    if let Some(since) = patch.pointer_mut("/rollout/since") {
        since.take();
    }
    Write::new("InstanceGroup", "status", &patch.to_string())
}

/// Who else may write what the step writes, and where to look.
fn other_writers(step: &Step) -> &'static str {
    match step {
        Step::Object(_) | Step::Strategy(_) => {
            "a GitOps tool or an admission webhook may write it: metadata.managedFields names the writers"
        }
        Step::Node(_) => {
            "an autoscaler, a node agent or an admission webhook may write it: managedFields of the Node names the writers"
        }
        Step::Join(JoinStep::PutAwsAuthEntry(_) | JoinStep::WidenAwsAuthEntry(_) | JoinStep::RemoveAwsAuthEntry(_)) => {
            "eksctl, Terraform or a GitOps tool may write it: metadata.managedFields of kube-system/aws-auth names the writers"
        }
        Step::Join(_) | Step::Iam(_) | Step::Nodegroup(_) | Step::Fargate(_) => {
            "Terraform, CloudFormation, eksctl or a compliance tool may write it: CloudTrail names the callers"
        }
        Step::Eks(_) => {
            "Terraform, CloudFormation, a scheduled action or a compliance tool may write it: CloudTrail names the callers"
        }
    }
}

/// Elements of a list that a step adds or removes.
fn existence<'a>(
    resource: &str,
    list: &str,
    elements: impl IntoIterator<Item = &'a String>,
    value: &'static str,
) -> Vec<Write> {
    elements.into_iter().map(|element| Write::new(resource, &format!("{list}[{element}]"), &value)).collect()
}

/// The fields of a change, and the keys of its maps, as one write each.
fn fields<'a>(resource: &'a str, change: &'a Value) -> impl Iterator<Item = Write> + use<> {
    let mut writes = Vec::new();
    for (field, value) in change.as_object().into_iter().flatten() {
        match value.as_object() {
            Some(map) => writes.extend(
                map.iter().map(|(key, value)| Write::new(resource, &format!("{field}[{key}]"), &value.to_string())),
            ),
            None => writes.push(Write::new(resource, field, &value.to_string())),
        }
    }
    writes.into_iter()
}

fn join_write(step: &JoinStep) -> Write {
    let entry = |kind: &str, role: &str, value| Write::new(role, kind, &value);
    match step {
        JoinStep::PutAwsAuthEntry(put) => entry("aws-auth", &put.role_arn, PRESENT),
        JoinStep::WidenAwsAuthEntry(widened) => entry("aws-auth", &widened.role_arn, "widened"),
        JoinStep::RemoveAwsAuthEntry(removed) => entry("aws-auth", &removed.role_arn, ABSENT),
        JoinStep::PutAccessEntry(put) => entry("access entry", &put.principal, PRESENT),
        JoinStep::RemoveAccessEntry { principal, .. } => entry("access entry", principal, ABSENT),
    }
}

/// The value that each attribute has once all steps are applied. A hook is deleted and put by two steps of one plan.
pub(crate) fn last_values<'a>(steps: impl IntoIterator<Item = &'a PlannedStep>) -> BTreeMap<String, u64> {
    let writes = steps.into_iter().flat_map(PlannedStep::writes);
    writes.map(|write| (write.attribute, write.value)).collect()
}

/// The same attribute with the value that it has in the end.
pub(crate) fn last_value(write: Write, values: &BTreeMap<String, u64>) -> Write {
    Write { value: values.get(&write.attribute).copied().unwrap_or(write.value), ..write }
}
