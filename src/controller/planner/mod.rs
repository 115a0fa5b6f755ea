//! Plans one group: merge, observe, resolve, plan. The controller and the command `plan` both use it. It writes nothing.

mod detached_nodes;
mod merged;
mod other_provisioner;
mod policy_checks;
mod region;
mod uncordon_unplanned;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

pub(crate) use self::merged::{GroupContext, merge_spec};
use self::merged::{
    annotations_ignored, boundaries_unavailable, confirmation_ignored, drain_forecast, fingerprint, rollout_ended,
    rollout_pending,
};
pub(crate) use self::policy_checks::kind_of;
use self::policy_checks::{
    PolicyErrors, blocked_by_unknown_provisioner, cluster_changed, deletion_protection, policy_errors,
    provisioner_changed, provisioner_kind, quota_record, recorded_provisioner, template_author,
};
use crate::api::annotations::wrong_confirmation;
use crate::api::names::fail_reason;
use crate::api::spec_error::{self, SpecError, join_messages};
use crate::api::{self, InstanceGroup, NodeDemand, ProvisionerKind};
use crate::aws::inventory::Inventory;
use crate::boundaries::MergedSpec;
use crate::boundaries::active::BoundariesSource;
use crate::controller::recorded_cluster;
use crate::controller::report::BoundariesSummary;
use crate::index::denied_calls::DeniedCall;
use crate::index::nodes::NodeIndex;
use crate::index::process_state::ProcessState;
use crate::k8s::KubeApi;
use crate::plan::{self, Outcome, Plan, StalledReason};
pub(crate) use crate::provisioner::observe::ObserveError;
use crate::provisioner::observe::{ObserveResult, Observer};
use crate::provisioner::recreated;
use crate::provisioner::rejected_fields::ValueSources;
use crate::provisioner::spec_check::{add_unnamed, decode, field_errors};
use crate::provisioner::taints::repeated_taints;
use crate::provisioner::{
    DeleteRequest, GroupId, PlanRequest, PlanResult, PlanSnapshot, dispatch, group_id, plan_nothing_to_delete,
};
use crate::settings::Settings;

/// Dependencies that the plans of all groups share.
pub(crate) struct Planner {
    /// Cached and batched AWS reads, and the AWS clients for writes.
    pub inventory: Arc<Inventory>,
    /// The API server, for what no cache has.
    pub kube: Arc<dyn KubeApi>,
    /// Nodes by EC2 instance.
    pub node_index: Arc<NodeIndex>,
    /// State that this process keeps between reconciles.
    pub process_state: Arc<ProcessState>,
    /// Settings of the process.
    pub settings: Settings,
}

/// A plan, with the result of the merge that it is based on.
pub(crate) struct Planning {
    /// All steps of the pass, not applied yet.
    pub plan: Plan,
    /// The result of the merge, for the status.
    pub boundaries: Option<BoundariesSummary>,
    /// The value of the label `reason` of the metric of failed reconciles.
    pub failure_reason: Option<&'static str>,
    /// The desired and observed state that the plan was made from, if planning reached that point.
    pub snapshot: Option<Box<dyn PlanSnapshot>>,
    /// A read that was denied, so that nothing else could be planned.
    pub denied_read: Option<DeniedCall>,
}

impl Planning {
    /// The plan of a group that continues. It counts as failed while fields of the spec cannot be used. `allowed`
    /// records what the quota of the namespace allows; it is empty without a quota, or when it rejects the request.
    fn planned(mut plan: Plan, snapshot: Box<dyn PlanSnapshot>, allowed: Vec<(String, Value)>) -> Self {
        plan.status_update.fields.extend(allowed);
        let failure_reason = snapshot.rejection().map(|_| fail_reason::RESOURCE_VALIDATION);
        Planning { plan, boundaries: None, failure_reason, snapshot: Some(snapshot), denied_read: None }
    }

    pub(super) fn blocked(plan: Plan, failure_reason: &'static str) -> Self {
        Planning { plan, boundaries: None, failure_reason: Some(failure_reason), snapshot: None, denied_read: None }
    }

    /// A blocked plan for an invalid spec. If the boundaries dropped a required value, the message names a default, not
    /// the value, as the remedy.
    fn rejected(id: &GroupId, mut errors: Vec<SpecError>, sources: &ValueSources) -> Self {
        sources.explain(&mut errors);
        let plan = plan::blocked_plan(id, spec_error::first_reason(&errors), join_messages(&errors));
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
        self.plan_observed(group, context, &self.observer(context, max_age, now)).await
    }

    /// Plans one group for a forecast: with fewer reads, and without a trace in the state that reconciles keep.
    ///
    /// # Errors
    ///
    /// As [`Planner::plan`].
    pub(crate) async fn plan_forecast(
        &self,
        group: &InstanceGroup,
        context: &GroupContext,
        max_age: Duration,
        now: Timestamp,
    ) -> ObserveResult<Planning> {
        let observer = Observer { is_forecast: true, ..self.observer(context, max_age, now) };
        self.plan_observed(group, context, &observer).await
    }

    async fn plan_observed(
        &self,
        group: &InstanceGroup,
        context: &GroupContext,
        observer: &Observer<'_>,
    ) -> ObserveResult<Planning> {
        let id = group_id(group);
        let mut planning = self.plan_group(group, &id, context, observer).await?;
        if observer.is_forecast {
            return Ok(planning);
        }
        self.uncordon_detached_nodes(&id, group.status.as_ref(), &mut planning, observer.now).await?;
        // A group with a snapshot continues, also when some of its fields cannot be used.
        if planning.failure_reason.is_none() || planning.snapshot.is_some() {
            return Ok(planning);
        }
        let status = group.status.clone().unwrap_or_default();
        let plan = self.stop_rotation(&id, &status, context, observer, planning.plan).await;
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
            let mut plan = plan::blocked_plan(id, StalledReason::BoundariesUnavailable, why);
            plan.condition_updates.extend(rollout_pending(group, context));
            plan.condition_updates.extend(drain_forecast(group, context));
            return Ok(Planning::blocked(plan, fail_reason::APPLY_DEFAULTS));
        }
        if id.is_deleting() {
            return self.plan_deletion(group, id, context, observer).await;
        }
        let region = &self.inventory.aws().region;
        if let Some(plan) = recorded_cluster::blocked_outside_cluster(id, &self.node_index, region) {
            return Ok(Planning::blocked(plan, fail_reason::HANDLE_RECONCILE));
        }
        let (merged, summary) = match merge_spec(group, id, context) {
            Ok(found) => found,
            Err(message) => {
                let plan = plan::blocked_plan(id, StalledReason::InvalidSpec, message);
                return Ok(Planning::blocked(plan, fail_reason::APPLY_DEFAULTS));
            }
        };
        let merged = Arc::new(merged);
        let mut planning = self.plan_active(group, id, merged.clone(), context, observer).await?;
        if !is_reported(group, &summary) {
            recreated::drop_events(&mut planning.plan);
        }
        planning.plan.condition_updates.extend(annotations_ignored(group, &merged, context));
        planning.plan.condition_updates.extend(rollout_pending(group, context));
        planning.plan.condition_updates.extend(drain_forecast(group, context));
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
        let lacks_config_map = context.active_boundaries.source == BoundariesSource::NotConfigured;
        let sources = ValueSources::new(merged.clone()).lacking_config_map(lacks_config_map);
        let merged = merged.as_ref();
        let (spec, mut errors, provisioner) = match decode(merged) {
            Ok(found) => found,
            Err(mut errors) => {
                add_unnamed(&mut errors, field_errors(id, merged));
                add_unnamed(&mut errors, policy_errors(id, merged, context).all());
                return Ok(Planning::rejected(id, errors, &sources));
            }
        };
        let status = group.status.clone().unwrap_or_default();
        let other = self.other_provisioner(id, &status, merged, observer).await?;
        let problem = provisioner_changed(&status, provisioner_kind(&merged.spec))
            .or_else(|| other.map(|other| other.spec_error()))
            .or_else(|| cluster_changed(id, &status, merged, provisioner));
        let PolicyErrors { violations, exceeded_quotas } = policy_errors(id, merged, context);
        errors.extend(repeated_taints(merged));
        errors.extend(violations);
        if let Some(problem) = problem {
            let mut all = [vec![problem], errors].concat();
            add_unnamed(&mut all, provisioner.field_errors(id, &merged.annotations, &spec));
            all.extend(exceeded_quotas);
            return Ok(Planning::rejected(id, all, &sources));
        }
        let quota_request = context.quota_request.filter(|_| exceeded_quotas.is_empty());
        let allowed = quota_request.map(|request| quota_record(id, &request, &status, context)).unwrap_or_default();
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
            rollout_block: context.rollout_block.as_deref(),
            allowance: context.allowance.as_ref(),
            recommendations: &context.recommendations,
            policy: context.active_boundaries.boundaries.as_ref().map(|b| &b.policy),
            template_author: template_author(merged, context),
            settings: &self.settings,
            ineffective_writes: &self.process_state.ineffective_writes(&id.key()),
            persistent_failure: &self.process_state.persistent_failure(&id.key(), id.generation, observer.now),
            is_requested: context.is_requested,
        };
        Ok(match provisioner.plan(observer, request).await? {
            PlanResult::Planned(plan, snapshot) => Planning::planned(*plan, snapshot, allowed),
            PlanResult::Rejected(errors) => Planning::rejected(id, errors, &sources),
        })
    }

    pub(crate) fn observer<'a>(
        &'a self,
        context: &'a GroupContext,
        max_cache_age: Duration,
        now: Timestamp,
    ) -> Observer<'a> {
        let resync_period = self.settings.resync_period;
        Observer {
            inventory: &self.inventory,
            kube: self.kube.as_ref(),
            node_index: &self.node_index,
            process_state: &self.process_state,
            map_roles: &context.map_roles,
            group_index: &context.group_index,
            images: context.images.as_deref(),
            max_cache_age,
            // The annotation reconcile-now requests the present state.
            consistency_delay: self.settings.timing.poll_interval * 2,
            launch_retry: self.settings.timing.launch_retry,
            drain_retry: self.settings.timing.retry_delay,
            unready_limit: self.settings.timing.kubelet_timeout,
            shared_max_cache_age: if max_cache_age.is_zero() { Duration::ZERO } else { resync_period.mul_f64(0.5) },
            is_forecast: false,
            now,
        }
    }

    /// What a group requests, for the quota of its namespace. If it cannot be merged, its own spec counts. A group is
    /// merged again only after a change, because the reconcile of every group of a namespace needs all of them.
    pub(crate) fn demand(&self, group: &InstanceGroup, context: &GroupContext) -> Arc<NodeDemand> {
        let inputs = fingerprint(&(
            (group.metadata.uid.as_deref(), group.metadata.generation, group.annotations()),
            (&context.active_boundaries.revision, &context.namespace_annotations),
        ));
        self.process_state.demand(&GroupId::key_of(&group.metadata), inputs, || {
            match merge_spec(group, &group_id(group), context) {
                Ok((merged, _)) => NodeDemand::from_spec(&merged.spec),
                Err(_) => NodeDemand::from_spec(&json!(group.spec)),
            }
        })
    }

    /// The vCPUs of an instance type; `None` while it was not read, or when AWS does not know it.
    pub(crate) fn vcpus(&self, instance_type: &str) -> Option<u64> {
        let known = self.inventory.known_instance_type(instance_type)?;
        known.vcpus.and_then(|vcpus| u64::try_from(vcpus).ok())
    }

    /// Reads instance types, so that their vCPUs are known. What AWS does not answer stays unknown.
    pub(crate) async fn prefetch_instance_types(&self, names: impl IntoIterator<Item = String>) {
        let read = |name: String| async move {
            if let Err(error) = self.inventory.instance_type(&name).await {
                tracing::debug!(%error, instance_type = name, "cannot read an instance type for a quota");
            }
        };
        futures::future::join_all(names.into_iter().map(read)).await;
    }

    /// Plans a deletion. It needs no valid spec if the status records the provisioner. Without the finalizer nothing was
    /// created, or a user removed it to keep the resources.
    async fn plan_deletion(
        &self,
        group: &InstanceGroup,
        id: &GroupId,
        context: &GroupContext,
        observer: &Observer<'_>,
    ) -> ObserveResult<Planning> {
        if !id.has_finalizer {
            let plan = plan_nothing_to_delete(id);
            return Ok(Planning { plan, boundaries: None, failure_reason: None, snapshot: None, denied_read: None });
        }
        let status = group.status.clone().unwrap_or_default();
        let merged = merge_spec(group, id, context).ok().map(|(merged, _)| merged);
        let kind = recorded_provisioner(&status).or_else(|| provisioner_kind(&merged.as_ref()?.spec));
        let forbidden = merged.as_ref().map(|merged| policy_errors(id, merged, context).all()).unwrap_or_default();
        // What is wrong with other fields must not hide the cluster, or how long evictions are waited for.
        let spec = merged.as_ref().and_then(|merged| api::validate::decode_usable(&merged.spec));
        let annotations = merged.as_ref().map(|merged| &merged.annotations);
        let protected_by = deletion_protection(group, annotations, context);
        let settings = &self.settings;
        let provisioner = dispatch::for_kind(kind.unwrap_or(ProvisionerKind::Eks));
        let region = &self.inventory.aws().region;
        let other = match &merged {
            Some(merged) => self.other_provisioner(id, &status, merged, observer).await?,
            None => None,
        };
        let mut blocked = self
            .blocked_by_region(id)
            .await?
            .or_else(|| recorded_cluster::blocked_outside_cluster(id, &self.node_index, region))
            .or_else(|| recorded_cluster::blocked_deletion(id, &status, merged.as_ref(), provisioner, settings))
            .or_else(|| if kind.is_none() { blocked_by_unknown_provisioner(id, &status) } else { None })
            .or_else(|| other.map(|other| other.blocked_deletion(id)));
        // Answers about the other resources would prove nothing. The cached answer is shared by all groups.
        if let (None, Some(cluster)) = (&blocked, provisioner.recorded_cluster(id, &status))
            && self.inventory.cluster(&cluster).await.map_err(ObserveError::Aws)?.is_none()
        {
            blocked = Some(recorded_cluster::blocked_by_missing_cluster(id, &cluster, region));
        }
        if let Some(plan) = blocked {
            return Ok(Planning { plan, boundaries: None, failure_reason: None, snapshot: None, denied_read: None });
        }
        let wrong_confirmation = wrong_confirmation(group.annotations(), &id.name);
        let status = &status;
        let request =
            DeleteRequest { id, annotations, spec, forbidden, protected_by, wrong_confirmation, status, settings };
        let mut plan = provisioner.plan_deletion(observer, request).await?;
        plan.condition_updates.extend(rollout_ended(group));
        if matches!(plan.outcome, Outcome::Blocked { reason: StalledReason::DeletionProtected, .. }) {
            plan.condition_updates.extend(confirmation_ignored(group));
        }
        Ok(Planning { plan, boundaries: None, failure_reason: None, snapshot: None, denied_read: None })
    }
}

/// Whether the last report was about the same merged spec.
fn is_reported(group: &InstanceGroup, summary: &BoundariesSummary) -> bool {
    group.status.as_ref().is_some_and(|status| {
        status.observed_generation == group.metadata.generation
            && status.config_md5.as_deref().unwrap_or_default() == summary.hash
    })
}

/// A blocked plan for a group that could not be read.
pub(crate) fn blocked(id: &GroupId, reason: StalledReason, message: String) -> Planning {
    Planning::blocked(plan::blocked_plan(id, reason, message), fail_reason::HANDLE_RECONCILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::InstanceGroupSpec;
    use crate::aws::ScalingGroup;
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::samples::{cluster, instance, scaling_group};
    use crate::boundaries::OverriddenValue;
    use crate::boundaries::active::ActiveBoundaries;
    use crate::controller::fake;
    use crate::ownership::ownership_tags;
    use crate::provisioner::{PlanContext, Projection};

    #[test]
    fn restricted_required_field_asks_the_admin_for_a_default() {
        let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        let dropped = OverriddenValue {
            path: "spec.a.role".into(),
            tenant_value: "\"mine\"".into(),
            effective_value: None,
            winner: None,
            lost_in_merge: None,
            unused_because: None,
        };
        let merged = MergedSpec { overridden: vec![dropped], ..MergedSpec::default() };
        let errors = vec![SpecError::missing("spec.a.role"), SpecError::missing("spec.a.cluster")];
        let Outcome::Blocked { message, .. } =
            Planning::rejected(&id, errors, &ValueSources::new(merged.into())).plan.outcome
        else {
            panic!("the plan is not blocked");
        };
        let (role, cluster) = message.split_once(". ").expect("two sentences");
        assert_eq!(role, "spec.a.role is required, and tenants may not set it; ask your cluster admin for a default");
        assert!(cluster.starts_with("spec.a.cluster is required; set it in the InstanceGroup"), "{cluster}");
    }

    /// To keep the nodes, a user removes the finalizer, as the messages say. Another finalizer may hold the object for
    /// long.
    #[tokio::test]
    async fn nothing_is_deleted_once_a_user_removed_the_finalizer() {
        let object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
            "metadata": {"name": "web", "namespace": "team", "uid": "own", "finalizers": ["example.com/theirs"],
                "deletionTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"provisioner": "eks", "eks": {"configuration": {"clusterName": "demo"}}},
            "status": {"provisioner": "eks", "activeScalingGroupName": "demo-team-web"},
        });
        let group: InstanceGroup = serde_json::from_value(object).expect("a group");
        let tags = ownership_tags("demo", &group_id(&group));
        let kept = ScalingGroup { tags, instances: vec![instance("i-1")], ..scaling_group("demo-team-web") };
        let aws = Arc::new(FakeAws::default());
        aws.update(|state| {
            state.groups.insert(kept.name.clone(), kept);
            state.clusters.insert("demo".to_owned(), cluster("demo"));
        });
        let client = crate::k8s::fake::client(|call| panic!("unexpected call: {call:?}"));
        let planner = fake::planner(&aws, client, NodeIndex::default());
        let active_boundaries =
            ActiveBoundaries { source: BoundariesSource::NotConfigured, ..Default::default() }.into();
        let context = GroupContext { active_boundaries, ..GroupContext::default() };
        let planning = planner.plan(&group, &context, Duration::ZERO, Timestamp::UNIX_EPOCH).await;
        let plan = planning.expect("a plan").plan;
        assert_eq!((plan.steps, plan.outcome), (vec![], Outcome::Deleted));
    }

    struct StubSnapshot {
        has_broken_fields: bool,
    }

    impl PlanSnapshot for StubSnapshot {
        fn cluster(&self) -> &str {
            "demo"
        }
        fn rejection(&self) -> Option<(StalledReason, String)> {
            self.has_broken_fields.then(|| (StalledReason::ImageNotFound, "no image".to_owned()))
        }
        fn simulate(&self, _: &Plan, _: &PlanContext) -> Projection {
            unimplemented!()
        }
    }

    /// Without the metric, no admin would notice a default that keeps all groups from new versions.
    #[test]
    fn group_that_keeps_a_rejected_field_counts_as_failed() {
        let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        let plan = || plan::blocked_plan(&id, StalledReason::ImageNotFound, "no image".into());
        let planning = |has_broken_fields, allowed| {
            Planning::planned(plan(), Box::new(StubSnapshot { has_broken_fields }), allowed)
        };
        assert_eq!(planning(true, vec![]).failure_reason, Some(fail_reason::RESOURCE_VALIDATION));
        let healthy = planning(false, vec![("quotaNodes".to_owned(), json!(7))]);
        assert_eq!((healthy.failure_reason, &healthy.plan.status_update.fields["quotaNodes"]), (None, &json!(7)));
        let refused = planning(true, vec![]).plan.status_update.fields;
        assert!(!refused.contains_key("quotaNodes"), "what the quota rejects is not recorded as allowed");
    }
}
