//! Checks of a merged spec before it is planned, besides its own fields: the admin's policy with its quotas, deletion
//! protection, and what the group already has.

use kube::ResourceExt;
use serde_json::{Value, json};

use super::merged::GroupContext;
use crate::api::annotations::is_true_word;
use crate::api::names::annotation;
use crate::api::spec_error::SpecError;
use crate::api::{InstanceGroup, InstanceGroupStatus, ManagedAttributes, ProvisionerKind};
use crate::boundaries::{MergedAnnotations, MergedSpec, Policy, QuotaAmounts, QuotaRequest};
use crate::controller::recorded_cluster;
use crate::plan::{Plan, StalledReason, blocked_plan};
use crate::provisioner::fargate::ownership::has_created_resources;
use crate::provisioner::{GroupId, Provisioner, dispatch};
use crate::rotation::crd::{TEMPLATE_PATH, TemplateAuthor};

/// What protects a group from deletion, unless the deletion is confirmed. The confirmation is read from the object
/// itself: no boundary can give it.
pub(super) fn deletion_protection(
    group: &InstanceGroup,
    merged: Option<&MergedAnnotations>,
    context: &GroupContext,
) -> Option<String> {
    if group.annotations().get(annotation::CONFIRM_DELETION) == Some(&group.name_any()) {
        return None;
    }
    let requested = match merged {
        Some(merged) => merged.get(annotation::PROTECT_DELETION),
        None => group.annotations().get(annotation::PROTECT_DELETION).map(String::as_str),
    };
    if requested.is_some_and(is_true_word) {
        return Some(format!("the annotation {}", annotation::PROTECT_DELETION));
    }
    let policy = context.active_boundaries.boundaries.as_ref().map(|boundaries| &boundaries.policy);
    let namespace = group.namespace().unwrap_or_default();
    policy
        .is_some_and(|policy| policy.is_deletion_protected(&namespace))
        .then(|| format!("policy.protectDeletion for the namespace {namespace}"))
}

/// What the admin's policy does not allow in a merged spec.
#[derive(Default)]
pub(super) struct PolicyErrors {
    /// Values that it does not allow.
    pub(super) violations: Vec<SpecError>,
    /// Quotas that the group, or more nodes of it, would exceed.
    pub(super) exceeded_quotas: Vec<SpecError>,
}

impl PolicyErrors {
    pub(super) fn all(self) -> Vec<SpecError> {
        [self.violations, self.exceeded_quotas].concat()
    }
}

pub(super) fn policy_errors(id: &GroupId, merged: &MergedSpec, context: &GroupContext) -> PolicyErrors {
    let Some(boundaries) = &context.active_boundaries.boundaries else { return PolicyErrors::default() };
    let request = context.quota_request.unwrap_or_default();
    PolicyErrors {
        violations: boundaries
            .policy
            .forbidden_values(merged, &id.namespace)
            .into_iter()
            .map(SpecError::from)
            .collect(),
        exceeded_quotas: boundaries
            .policy
            .exceeded_quotas(&merged.spec, &id.namespace, &request)
            .into_iter()
            .map(SpecError::from)
            .collect(),
    }
}

/// What the status records of an allowed request: the nodes, and what else a quota of the namespace limits.
pub(super) fn quota_record(
    id: &GroupId,
    request: &QuotaRequest,
    status: &InstanceGroupStatus,
    context: &GroupContext,
) -> Vec<(String, Value)> {
    let policy = context.active_boundaries.boundaries.as_ref().map(|boundaries| &boundaries.policy);
    let limits = |limits: fn(&Policy, &str) -> bool| policy.is_some_and(|policy| limits(policy, &id.namespace));
    let QuotaAmounts { nodes, surge, vcpus } = request.requested;
    let surge = Some(surge).filter(|_| limits(Policy::limits_surge));
    let vcpus = vcpus.filter(|_| limits(Policy::limits_vcpus));
    let records = [
        ("quotaNodes", Some(nodes), false),
        ("quotaSurge", surge, status.quota_surge.is_some()),
        ("quotaVcpus", vcpus, status.quota_vcpus.is_some()),
    ];
    // A record of a limit that is gone would count if it came back.
    let written = records.into_iter().filter(|(_, value, is_recorded)| value.is_some() || *is_recorded);
    written.map(|(field, value, _)| (field.to_owned(), json!(value))).collect()
}

/// Who wrote the template of the strategy `crd`.
pub(super) fn template_author(merged: &MergedSpec, context: &GroupContext) -> TemplateAuthor {
    match &context.active_boundaries.boundaries {
        None => TemplateAuthor::Unlimited,
        Some(_) if merged.is_from_tenant(TEMPLATE_PATH) => TemplateAuthor::Tenant,
        Some(_) => TemplateAuthor::Admin,
    }
}

/// The provisioner that a merged spec names.
pub(super) fn provisioner_kind(spec: &serde_json::Value) -> Option<ProvisionerKind> {
    spec["provisioner"].as_str().and_then(ProvisionerKind::parse)
}

/// The provisioner that the status records. keikoproj/instance-manager records it for `eks` only.
pub(super) fn recorded_provisioner(status: &InstanceGroupStatus) -> Option<ProvisionerKind> {
    status.provisioner.as_deref().and_then(ProvisionerKind::parse)
}

/// The provisioner of the resources that the status records.
pub(crate) fn kind_of(status: &InstanceGroupStatus) -> ProvisionerKind {
    recorded_provisioner(status).unwrap_or(ProvisionerKind::Eks)
}

/// The plan of a deletion while neither the status nor the merged spec names the provisioner, although the status shows
/// resources that are not those of the provisioner `eks`. Without the finalizer, they would stay with their nodes.
pub(super) fn blocked_by_unknown_provisioner(id: &GroupId, status: &InstanceGroupStatus) -> Option<Plan> {
    let scaling_group = status.active_scaling_group_name.as_deref().filter(|name| !name.is_empty());
    let is_of_eks = dispatch::for_kind(ProvisionerKind::Eks).recorded_cluster(id, status).is_some();
    let resources = match scaling_group {
        Some(name) if !is_of_eks => {
            format!("names the scaling group {name}, which does not belong to the provisioner eks")
        }
        None if has_created_resources(status) => "shows that resources were created".to_owned(),
        Some(_) | None => return None,
    };
    let message = format!(
        "neither the status nor the merged spec names the provisioner of this group, so that its resources cannot be found, and the status {resources}; set spec.provisioner or correct what keeps the spec from being merged, and the deletion continues; to keep the resources, remove the finalizer"
    );
    id.has_finalizer.then(|| blocked_plan(id, StalledReason::InvalidSpec, message))
}

/// Whether the status records a resource. One that EKS is still creating, or failed to create, has no scaling group yet. A
/// user may have removed the name of one.
pub(super) fn records_resources(status: &InstanceGroupStatus) -> bool {
    status.active_scaling_group_name.as_ref().is_some_and(|name| !name.is_empty())
        || status.managed.as_ref().is_some_and(|managed| *managed != ManagedAttributes::default())
        || status.fargate.as_ref().is_some_and(|fargate| !fargate.profiles.is_empty())
}

/// Rejects a change of the provisioner once resources are recorded: the new provisioner would not remove the resources of
/// the old one.
pub(super) fn provisioner_changed(status: &InstanceGroupStatus, desired: Option<ProvisionerKind>) -> Option<SpecError> {
    let (recorded, desired) = (recorded_provisioner(status)?, desired?);
    (records_resources(status) && recorded != desired).then(|| {
        let rule = format!("cannot replace {recorded}, which created the resources of this group");
        let remedy = format!("restore {recorded}, or delete the group and create a new one");
        SpecError::invalid("spec.provisioner", desired, rule, remedy)
    })
}

/// Rejects a change of the cluster once resources are recorded. Names contain the cluster, so a change would abandon the
/// existing resources and nodes.
pub(super) fn cluster_changed(
    id: &GroupId,
    status: &InstanceGroupStatus,
    merged: &MergedSpec,
    provisioner: &dyn Provisioner,
) -> Option<SpecError> {
    let desired = recorded_cluster::desired(merged, provisioner)?;
    let recorded = provisioner.recorded_cluster(id, status).filter(|recorded| recorded != desired)?;
    let rule = format!("differs from {recorded}, the cluster of the resources in the group's status");
    let remedy = format!("restore {recorded}, and create another group in {desired}");
    Some(SpecError::invalid(provisioner.cluster_field(), desired, rule, remedy))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{self, InstanceGroupSpec};
    use crate::boundaries::{Boundaries, merge};
    use crate::provisioner::eks::names::GroupNames;
    use crate::provisioner::name_form::NameForm;
    use crate::provisioner::{dispatch, group_id};

    fn with_status(status: serde_json::Value) -> InstanceGroupStatus {
        serde_json::from_value(status).expect("a status")
    }

    #[test]
    fn provisioner_change_is_rejected_once_resources_are_recorded() {
        use ProvisionerKind::{Eks, EksFargate, EksManaged};
        let recorded = |kind: ProvisionerKind, resources: serde_json::Value| {
            let mut status = json!({ "provisioner": kind.as_str() });
            api::apply_merge_patch(&mut status, &resources);
            with_status(status)
        };
        let creating = recorded(EksManaged, json!({ "managed": { "nodegroups": ["demo/team-web"] } }));
        let profile = recorded(EksFargate, json!({ "fargate": { "cluster": "demo", "profiles": ["fargate-demo-1"] } }));
        for (status, creator) in [(&creating, EksManaged), (&profile, EksFargate)] {
            let problem = provisioner_changed(status, Some(Eks)).expect("the change is rejected");
            assert!(problem.to_string().contains(&format!("restore {creator}")), "{problem}");
            assert_eq!(provisioner_changed(status, Some(creator)), None);
        }
        // A user removed the name of the scaling group.
        let unnamed = recorded(Eks, json!({ "managed": { "authEntries": ["arn:aws:iam::1:role/demo-team-web"] } }));
        assert!(provisioner_changed(&unnamed, Some(EksManaged)).is_some(), "both would have resources then");
        for empty in [json!({}), json!({ "managed": {} })] {
            assert_eq!(provisioner_changed(&recorded(EksManaged, empty), Some(Eks)), None, "no resources are recorded");
        }
    }

    #[test]
    fn cluster_change_is_rejected_once_resources_are_recorded() {
        let id =
            GroupId { namespace: "team".into(), ..group_id(&InstanceGroup::new("web", InstanceGroupSpec::default())) };
        let spec = json!({
            "eks": { "configuration": { "clusterName": "other" } },
            "eks-managed": { "configuration": { "clusterName": "other" } },
            "eks-fargate": { "clusterName": "other" },
        });
        let raw = json!({ "metadata": {}, "spec": spec });
        let merged = merge(&Boundaries::default(), &raw, true).expect("a merged spec");
        let cluster_error =
            |kind, status| cluster_changed(&id, &with_status(status), &merged, dispatch::for_kind(kind));
        let hashed_name = GroupNames::new("demo", "team", "web").scaling_group_in(NameForm::Hashed, "us-west-2");
        for (kind, status, field) in [
            (ProvisionerKind::Eks, json!({ "activeScalingGroupName": "demo-team-web" }), "spec.eks.configuration"),
            (ProvisionerKind::Eks, json!({ "activeScalingGroupName": hashed_name }), "spec.eks.configuration"),
            (
                ProvisionerKind::EksManaged,
                json!({ "managed": { "nodegroups": ["demo/team-web"] } }),
                "spec.eks-managed.configuration",
            ),
            (ProvisionerKind::EksFargate, json!({ "fargate": { "cluster": "demo" } }), "spec.eks-fargate"),
        ] {
            let problem = cluster_error(kind, status).expect("the change is rejected").to_string();
            assert!(problem.starts_with(&format!("{field}.clusterName `other` differs from demo")), "{problem}");
            assert_eq!(cluster_error(kind, json!({})), None, "no resources are recorded");
        }
        assert_eq!(cluster_error(ProvisionerKind::Eks, json!({ "activeScalingGroupName": "other-team-web" })), None);
    }
}
