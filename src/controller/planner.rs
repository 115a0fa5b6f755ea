//! Plans one group: merge, observe, resolve, plan. The controller and the command `plan` both use it. It writes nothing.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use crate::api::annotations::{ignored_on_group, ignored_on_namespace, is_true_word};
use crate::api::names::{annotation, condition, fail_reason};
use crate::api::spec_error;
use crate::api::spec_error::{SpecError, join_messages};
use crate::api::{self, InstanceGroup, InstanceGroupSpec, InstanceGroupStatus, ProvisionerKind};
use crate::auth::aws_auth::MapRoles;
use crate::aws::inventory::Inventory;
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
use crate::boundaries::{Boundaries, MergedAnnotations, MergedSpec, PolicyViolation, QuotaRequest, merge};
use crate::controller::recorded_cluster;
use crate::controller::report::BoundariesSummary;
use crate::index::groups::GroupIndex;
use crate::index::nodes::NodeIndex;
use crate::index::process_state::ProcessState;
use crate::index::spot::Recommendations;
use crate::k8s::KubeApi;
use crate::plan::{self, ConditionUpdate, Plan, Reason};
use crate::provisioner::broken_fields::ValueSources;
pub(crate) use crate::provisioner::observe::ObserveError;
use crate::provisioner::observe::{ObserveResult, Observer};
use crate::provisioner::taints::repeated_taints;
use crate::provisioner::{
    DeleteRequest, GroupId, PlanRequest, PlanResult, PlanSnapshot, Provisioner, dispatch, group_id,
};
use crate::rotation::crd::{TEMPLATE_PATH, TemplateAuthor};
use crate::settings::Settings;

/// Dependencies that the plans of all groups share.
pub(crate) struct Planner {
    /// Cached and batched AWS reads, and the AWS clients for writes.
    pub inventory: Arc<Inventory>,
    /// The Kubernetes API.
    pub kube: Arc<dyn KubeApi>,
    /// Nodes by EC2 instance.
    pub node_index: Arc<NodeIndex>,
    /// State that this process keeps between reconciles.
    pub process_state: Arc<ProcessState>,
    /// Settings of the process.
    pub settings: Settings,
}

/// The cached state that the plan of one group depends on.
#[derive(Clone, Default)]
pub(crate) struct GroupContext {
    /// Annotations of the namespace; `None` when the cache does not have the namespace yet.
    pub namespace_annotations: Option<BTreeMap<String, String>>,
    /// The active boundaries.
    pub active_boundaries: Arc<ActiveBoundaries>,
    /// `mapRoles` of kube-system/aws-auth.
    pub map_roles: Arc<MapRoles>,
    /// Resources that groups share, by resource.
    pub group_index: Arc<GroupIndex>,
    /// What the group asks of the quota of its namespace; `None` without a quota.
    pub quota_request: Option<QuotaRequest>,
    /// Describes the lock (annotation `lock-upgrades`) that applies to the group, if there is one.
    pub lock: Option<String>,
    /// Recommendations about spot instances.
    pub recommendations: Arc<Recommendations>,
}

/// A plan, with the result of the merge that it is based on.
pub(crate) struct Planning {
    /// The plan.
    pub plan: Plan,
    /// The result of the merge, for the status.
    pub boundaries: Option<BoundariesSummary>,
    /// The value of the label `reason` of the metric of failed reconciles.
    pub failure_reason: Option<&'static str>,
    /// The desired and observed state that the plan was made from, if planning reached that point.
    pub snapshot: Option<Box<dyn PlanSnapshot>>,
}

impl Planning {
    /// The plan of a group that goes on. It counts as failed while fields of the spec cannot be used. `allowed` is what the
    /// quota of the namespace allows; `None` without a quota, or when it rejects the request.
    fn planned(mut plan: Plan, snapshot: Box<dyn PlanSnapshot>, allowed: Option<QuotaRequest>) -> Self {
        if let Some(request) = allowed {
            plan.status_update.fields.insert("quotaNodes".to_owned(), json!(request.requested_nodes));
        }
        let failure_reason = snapshot.has_broken_fields().then_some(fail_reason::RESOURCE_VALIDATION);
        Planning { plan, boundaries: None, failure_reason, snapshot: Some(snapshot) }
    }

    pub(super) fn blocked(plan: Plan, failure_reason: &'static str) -> Self {
        Planning { plan, boundaries: None, failure_reason: Some(failure_reason), snapshot: None }
    }

    /// A blocked plan for an invalid spec. If the boundaries dropped a required value, the message asks for a default
    /// rather than for the value.
    fn rejected(id: &GroupId, mut problems: Vec<SpecError>, sources: &ValueSources) -> Self {
        sources.explain(&mut problems);
        let plan = plan::blocked_plan(id, spec_error::first_reason(&problems), join_messages(&problems));
        Self::blocked(plan, fail_reason::RESOURCE_VALIDATION)
    }
}

impl Planner {
    /// Plans one group.
    ///
    /// # Errors
    ///
    /// AWS or the API server did not answer a read, or denied it.
    pub(crate) async fn plan(
        &self,
        group: &InstanceGroup,
        context: &GroupContext,
        max_age: Duration,
        now: Timestamp,
    ) -> ObserveResult<Planning> {
        let id = group_id(group);
        let observer = self.observer(context, max_age, now);
        let planning = self.plan_group(group, &id, context, &observer).await?;
        // A group with a snapshot goes on, also when some of its fields cannot be used.
        if planning.failure_reason.is_none() || planning.snapshot.is_some() {
            return Ok(planning);
        }
        let status = group.status.clone().unwrap_or_default();
        let plan = self.stop_rotation(&id, &status, context, &observer, planning.plan).await;
        Ok(Planning { plan, ..planning })
    }

    async fn plan_group(
        &self,
        group: &InstanceGroup,
        id: &GroupId,
        context: &GroupContext,
        observer: &Observer<'_>,
    ) -> ObserveResult<Planning> {
        if let Some(why) = boundaries_unavailable(context) {
            let plan = plan::blocked_plan(id, Reason::BoundariesUnavailable, why);
            return Ok(Planning::blocked(plan, fail_reason::APPLY_DEFAULTS));
        }
        if id.is_deleting() {
            return self.plan_deletion(group, id, context, observer).await;
        }
        let (merged, summary) = match merge_spec(group, id, context) {
            Ok(found) => found,
            Err(message) => {
                let plan = plan::blocked_plan(id, Reason::InvalidSpec, message);
                return Ok(Planning::blocked(plan, fail_reason::APPLY_DEFAULTS));
            }
        };
        let merged = Arc::new(merged);
        let mut planning = self.plan_active(group, id, merged.clone(), context, observer).await?;
        planning.plan.condition_updates.extend(annotations_ignored(group, &merged, context));
        Ok(Planning { boundaries: Some(summary), ..planning })
    }

    async fn plan_active(
        &self,
        group: &InstanceGroup,
        id: &GroupId,
        merged: Arc<MergedSpec>,
        context: &GroupContext,
        observer: &Observer<'_>,
    ) -> ObserveResult<Planning> {
        let sources = ValueSources::new(merged.clone());
        let merged = merged.as_ref();
        let (spec, mut errors, provisioner) = match decode(merged) {
            Ok(found) => found,
            Err(problems) => return Ok(Planning::rejected(id, problems, &sources)),
        };
        let status = group.status.clone().unwrap_or_default();
        let problem = provisioner_changed(&status, provisioner_kind(&merged.spec))
            .or_else(|| cluster_changed(id, &status, merged, provisioner));
        if let Some(problem) = problem {
            return Ok(Planning::rejected(id, [vec![problem], errors].concat(), &sources));
        }
        let PolicyErrors { violations, exceeded_quotas } = policy_errors(id, merged, context);
        errors.extend(repeated_taints(merged));
        errors.extend(violations);
        let quota_request = context.quota_request.filter(|_| exceeded_quotas.is_empty());
        let request = PlanRequest {
            id,
            is_new: status.is_unwritten(),
            annotations: &merged.annotations,
            spec,
            errors,
            exceeded_quotas,
            sources: &sources,
            status: &status,
            lock: context.lock.as_deref(),
            recommendations: &context.recommendations,
            policy: context.active_boundaries.boundaries.as_ref().map(|b| &b.policy),
            template_author: template_author(merged, context),
            settings: &self.settings,
            ineffective_writes: &self.process_state.ineffective_writes(&id.key()),
            refusal: &self.process_state.lasting_refusal(&id.key(), id.generation, observer.now),
        };
        Ok(match provisioner.plan(observer, request).await? {
            PlanResult::Planned(plan, snapshot) => Planning::planned(*plan, snapshot, quota_request),
            PlanResult::Rejected(problems) => Planning::rejected(id, problems, &sources),
        })
    }

    pub(super) fn observer<'a>(
        &'a self,
        context: &'a GroupContext,
        max_cache_age: Duration,
        now: Timestamp,
    ) -> Observer<'a> {
        Observer {
            inventory: &self.inventory,
            kube: self.kube.as_ref(),
            node_index: &self.node_index,
            process_state: &self.process_state,
            map_roles: &context.map_roles,
            group_index: &context.group_index,
            max_cache_age,
            shared_max_cache_age: self.settings.resync_period.mul_f64(0.5),
            now,
        }
    }

    /// The maximum number of nodes that a group asks for, for the quota of its namespace. If it cannot be merged, its own
    /// spec counts. A group is merged again only after a change, because every group of a namespace asks for all of them.
    pub(crate) fn requested_nodes(&self, group: &InstanceGroup, context: &GroupContext) -> u64 {
        let inputs = fingerprint(&(
            (group.metadata.uid.as_deref(), group.metadata.generation, group.annotations()),
            (&context.active_boundaries.revision, &context.namespace_annotations),
        ));
        self.process_state.requested_nodes(&group_id(group).key(), inputs, || Self::merged_nodes(group, context))
    }

    fn merged_nodes(group: &InstanceGroup, context: &GroupContext) -> u64 {
        match merge_spec(group, &group_id(group), context) {
            Ok((merged, _)) => api::requested_nodes(&merged.spec),
            Err(_) => api::requested_nodes(&json!(group.spec)),
        }
    }

    /// Plans a deletion. It needs no valid spec if the status records the provisioner.
    async fn plan_deletion(
        &self,
        group: &InstanceGroup,
        id: &GroupId,
        context: &GroupContext,
        observer: &Observer<'_>,
    ) -> ObserveResult<Planning> {
        let status = group.status.clone().unwrap_or_default();
        let merged = merge_spec(group, id, context).ok().map(|(merged, _)| merged);
        let kind = recorded_provisioner(&status)
            .or_else(|| provisioner_kind(&merged.as_ref()?.spec))
            .unwrap_or(ProvisionerKind::Eks);
        let forbidden = merged.as_ref().map(|merged| policy_errors(id, merged, context).all()).unwrap_or_default();
        let spec = merged.as_ref().and_then(|merged| api::validate::decode_spec(&merged.spec).ok());
        let annotations = merged.as_ref().map(|merged| &merged.annotations);
        let protected_by = deletion_protection(group, annotations, context);
        let settings = &self.settings;
        let provisioner = dispatch::for_kind(kind);
        let blocked = recorded_cluster::blocked_deletion(id, &status, merged.as_ref(), provisioner, settings);
        if let Some(plan) = blocked {
            return Ok(Planning { plan, boundaries: None, failure_reason: None, snapshot: None });
        }
        let request = DeleteRequest { id, annotations, spec, forbidden, protected_by, status: &status, settings };
        let plan = provisioner.plan_deletion(observer, request).await?;
        Ok(Planning { plan, boundaries: None, failure_reason: None, snapshot: None })
    }
}

/// What protects a group from deletion, unless the deletion is confirmed. The confirmation is read from the object
/// itself: no boundary can give it.
fn deletion_protection(
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

/// Why no boundaries are available; `None` when they are, or when groups run without.
fn boundaries_unavailable(context: &GroupContext) -> Option<String> {
    let why = match &context.active_boundaries.source {
        BoundariesSource::Unavailable(why) => format!("{why}, and no last known good revision is stored"),
        BoundariesSource::Unknown => "the ConfigMap instance-manager has not been read yet".to_owned(),
        BoundariesSource::Live | BoundariesSource::LastKnownGood(_) | BoundariesSource::NotConfigured => return None,
    };
    Some(format!("{why}; no AWS changes will be made until the ConfigMap is fixed"))
}

/// The condition about annotations without effect. It is not set before there is one.
fn annotations_ignored(group: &InstanceGroup, merged: &MergedSpec, context: &GroupContext) -> Option<ConditionUpdate> {
    let own = group.annotations();
    // An annotation that the boundaries replace is reported with the tenant's other values.
    let is_exempt = |key: &str| {
        let replaced = merged.annotations.get(key) != own.get(key).map(String::as_str);
        replaced || context.active_boundaries.boundaries.as_ref().is_some_and(|b| b.selects_by(key))
    };
    let on_namespace = |problem: String| format!("on the Namespace: {problem}");
    let namespace = context.namespace_annotations.iter();
    let unknown_there = namespace.clone().flat_map(ignored_on_namespace).map(on_namespace);
    let unknown: Vec<_> = ignored_on_group(own, &merged.spec, is_exempt).into_iter().chain(unknown_there).collect();
    let name = group.namespace().unwrap_or_default();
    let disallowed = namespace.flat_map(|found| context.active_boundaries.disallowed_annotations(&name, found));
    let reason = if unknown.is_empty() { "NotAllowed" } else { "UnknownAnnotation" };
    let ignored: Vec<_> = unknown.into_iter().chain(disallowed.map(on_namespace)).collect();
    let conditions = group.status.iter().flat_map(|status| &status.conditions);
    let exists = conditions.into_iter().any(|condition| condition.r#type == condition::ANNOTATIONS_IGNORED);
    let status = !ignored.is_empty();
    (status || exists).then(|| ConditionUpdate {
        condition_type: condition::ANNOTATIONS_IGNORED,
        status,
        reason: if status { reason } else { "NoneIgnored" }.into(),
        message: ignored.join("; "),
    })
}

/// Decodes the merged spec, and selects the provisioner. Returns violations of the schema's rules, too.
fn decode(
    merged: &MergedSpec,
) -> Result<(InstanceGroupSpec, Vec<SpecError>, &'static dyn Provisioner), Vec<SpecError>> {
    let problems = |errors: Vec<api::validate::FieldError>| -> Vec<_> {
        errors.into_iter().map(|e| SpecError::invalid(&e.path, &e.value, e.rule, e.remedy)).collect()
    };
    let (spec, errors) = api::validate::decode_spec_with_errors(&merged.spec).map_err(problems)?;
    let name = spec.provisioner.clone().unwrap_or_default();
    if name.is_empty() {
        return Err(vec![SpecError::missing("spec.provisioner")]);
    }
    let Some(kind) = ProvisionerKind::parse(&name) else {
        let remedy = "use eks, eks-managed or eks-fargate";
        return Err(vec![SpecError::invalid("spec.provisioner", name, "is an unknown provisioner", remedy)]);
    };
    Ok((spec, problems(errors), dispatch::for_kind(kind)))
}

/// What the admin's policy does not allow in a merged spec.
#[derive(Default)]
struct PolicyErrors {
    /// Values that it does not allow.
    violations: Vec<SpecError>,
    /// Quotas that the group, or more nodes of it, would exceed.
    exceeded_quotas: Vec<SpecError>,
}

impl PolicyErrors {
    fn all(self) -> Vec<SpecError> {
        [self.violations, self.exceeded_quotas].concat()
    }
}

fn policy_errors(id: &GroupId, merged: &MergedSpec, context: &GroupContext) -> PolicyErrors {
    let Some(boundaries) = &context.active_boundaries.boundaries else { return PolicyErrors::default() };
    let problem = |v: PolicyViolation| {
        SpecError::invalid(&v.path, &v.value, v.rule, v.remedy).with_reason(Reason::PolicyViolation)
    };
    let request = context.quota_request.unwrap_or_default();
    PolicyErrors {
        violations: boundaries.policy.forbidden_values(merged, &id.namespace).into_iter().map(problem).collect(),
        exceeded_quotas: boundaries
            .policy
            .exceeded_quotas(&merged.spec, &id.namespace, &request)
            .into_iter()
            .map(problem)
            .collect(),
    }
}

/// Who wrote the template of the strategy `crd`.
fn template_author(merged: &MergedSpec, context: &GroupContext) -> TemplateAuthor {
    match &context.active_boundaries.boundaries {
        None => TemplateAuthor::Unlimited,
        Some(_) if merged.is_from_tenant(TEMPLATE_PATH) => TemplateAuthor::Tenant,
        Some(_) => TemplateAuthor::Admin,
    }
}

/// The provisioner that a merged spec names.
fn provisioner_kind(spec: &serde_json::Value) -> Option<ProvisionerKind> {
    spec["provisioner"].as_str().and_then(ProvisionerKind::parse)
}

/// The provisioner that the status records. keikoproj/instance-manager records it for `eks` only.
fn recorded_provisioner(status: &InstanceGroupStatus) -> Option<ProvisionerKind> {
    status.provisioner.as_deref().and_then(ProvisionerKind::parse)
}

/// The provisioner of the resources that the status records.
pub(super) fn kind_of(status: &InstanceGroupStatus) -> ProvisionerKind {
    recorded_provisioner(status).unwrap_or(ProvisionerKind::Eks)
}

/// Rejects a change of the provisioner once resources are recorded: the new provisioner would not remove the resources of
/// the old one.
fn provisioner_changed(status: &InstanceGroupStatus, desired: Option<ProvisionerKind>) -> Option<SpecError> {
    let (recorded, desired) = (recorded_provisioner(status)?, desired?);
    // A resource that EKS is still creating, or failed to create, has no scaling group yet.
    let has_resources = status.active_scaling_group_name.as_ref().is_some_and(|name| !name.is_empty())
        || status.managed.as_ref().is_some_and(|managed| !managed.nodegroups.is_empty())
        || status.fargate.as_ref().is_some_and(|fargate| !fargate.profiles.is_empty());
    (has_resources && recorded != desired).then(|| {
        let rule = format!("cannot replace {recorded}, which created the resources of this group");
        let remedy = format!("restore {recorded}, or delete the group and create a new one");
        SpecError::invalid("spec.provisioner", desired, rule, remedy)
    })
}

/// Rejects a change of the cluster once resources are recorded. Names contain the cluster, so a change would abandon the
/// existing resources and nodes.
fn cluster_changed(
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

/// A blocked plan for a group that could not be read.
pub(crate) fn blocked(id: &GroupId, reason: Reason, message: String) -> Planning {
    Planning::blocked(plan::blocked_plan(id, reason, message), fail_reason::HANDLE_RECONCILE)
}

/// A number that differs when the value does. Only comparable within one process.
fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Merges the tenant's spec with the active boundaries.
///
/// # Errors
///
/// A message that says why the merge is not possible.
pub(crate) fn merge_spec(
    group: &InstanceGroup,
    id: &GroupId,
    context: &GroupContext,
) -> Result<(MergedSpec, BoundariesSummary), String> {
    let raw = json!({ "metadata": { "annotations": group.annotations() }, "spec": group.spec });
    let no_boundaries = Boundaries::default();
    let boundaries = context.active_boundaries.boundaries.as_deref().unwrap_or(&no_boundaries);
    let namespace =
        context.namespace_annotations.as_ref().ok_or("the namespace cache does not have the group's namespace yet")?;
    let excluded = context.active_boundaries.excludes(&id.namespace, namespace);
    let merged = merge(boundaries, &raw, excluded).map_err(|error| error.to_string())?;
    let last_known_good = match &context.active_boundaries.source {
        BoundariesSource::LastKnownGood(why) => Some(why.clone()),
        BoundariesSource::Unknown
        | BoundariesSource::Live
        | BoundariesSource::NotConfigured
        | BoundariesSource::Unavailable(_) => None,
    };
    let revision = if excluded { String::new() } else { context.active_boundaries.revision.clone() };
    let summary = BoundariesSummary {
        hash: merged.hash.clone(),
        spec_fingerprint: fingerprint(&merged.spec),
        revision,
        overridden: merged.overridden.clone(),
        last_known_good: last_known_good.filter(|_| !excluded),
    };
    Ok((merged, summary))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names;
    use crate::boundaries::OverriddenValue;
    use crate::boundaries::active::select_active;
    use crate::plan::Outcome;
    use crate::provisioner::eks::names::GroupNames;
    use crate::provisioner::name_form::NameForm;
    use crate::provisioner::{PlanContext, Projection};

    #[test]
    fn restricted_required_field_asks_the_admin_for_a_default() {
        let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        let dropped = OverriddenValue {
            path: "spec.a.role".into(),
            tenant_value: "\"mine\"".into(),
            effective_value: None,
            winner: None,
            unused_because: None,
        };
        let merged = MergedSpec { overridden: vec![dropped], ..MergedSpec::default() };
        let problems = vec![SpecError::missing("spec.a.role"), SpecError::missing("spec.a.cluster")];
        let Outcome::Blocked { message, .. } =
            Planning::rejected(&id, problems, &ValueSources::new(merged.into())).plan.outcome
        else {
            panic!("the plan is not blocked");
        };
        let (role, cluster) = message.split_once(". ").expect("two sentences");
        assert_eq!(role, "spec.a.role is required, and tenants may not set it; ask your cluster admin for a default");
        assert!(cluster.starts_with("spec.a.cluster is required; set it in the InstanceGroup"), "{cluster}");
    }

    /// An edit for another tenant, or a tool that changes an annotation, must not let held back writes start again.
    #[test]
    fn spec_fingerprint_changes_with_the_merged_spec_alone() {
        let fingerprint_of = |size: &str, defaults: &str, turn: &str| {
            let config = [
                ("boundaries".to_owned(), "shared:\n  merge: [spec.eks]".to_owned()),
                ("defaults".to_owned(), format!("spec:\n  eks:\n    minSize: {size}\n{defaults}")),
            ]
            .into();
            let (active_boundaries, _) = select_active(Some(&config), None, true);
            let context = GroupContext {
                namespace_annotations: Some(BTreeMap::new()),
                active_boundaries: active_boundaries.into(),
                ..GroupContext::default()
            };
            let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
            group.metadata.annotations = Some([(format!("{}/turn", names::GROUP), turn.to_owned())].into());
            let (_, summary) = merge_spec(&group, &group_id(&group), &context).expect("the spec merges");
            (summary.spec_fingerprint, summary.revision)
        };
        let (before, revision) = fingerprint_of("1", "", "1");
        let (unrelated, other_revision) = fingerprint_of("1", "# of another tenant\n", "2");
        assert_ne!(revision, other_revision);
        assert_eq!(before, unrelated);
        assert_ne!(before, fingerprint_of("2", "", "1").0);
    }

    struct StubSnapshot {
        has_broken_fields: bool,
    }

    impl PlanSnapshot for StubSnapshot {
        fn cluster(&self) -> &str {
            "demo"
        }
        fn has_broken_fields(&self) -> bool {
            self.has_broken_fields
        }
        fn simulate(&self, _: &Plan, _: &PlanContext) -> Projection {
            unimplemented!()
        }
    }

    /// Without the metric, nobody would notice a default that keeps all groups from new versions.
    #[test]
    fn group_that_goes_on_with_a_broken_field_counts_as_failed() {
        let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        let plan = || plan::blocked_plan(&id, Reason::ImageNotFound, "no image".into());
        let planning = |has_broken_fields, allowed| {
            Planning::planned(plan(), Box::new(StubSnapshot { has_broken_fields }), allowed)
        };
        assert_eq!(planning(true, None).failure_reason, Some(fail_reason::RESOURCE_VALIDATION));
        let allowed = QuotaRequest { requested_nodes: 7, ..QuotaRequest::default() };
        let healthy = planning(false, Some(allowed));
        assert_eq!((healthy.failure_reason, &healthy.plan.status_update.fields["quotaNodes"]), (None, &json!(7)));
        let refused = planning(true, None).plan.status_update.fields;
        assert!(!refused.contains_key("quotaNodes"), "what the quota rejects is not recorded as allowed");
    }

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
        assert_eq!(provisioner_changed(&recorded(EksManaged, json!({})), Some(Eks)), None, "no resources are recorded");
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
