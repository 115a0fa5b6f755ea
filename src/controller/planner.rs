//! The corridor that the controller and `plan` walk alike: merge, look up,
//! resolve, observe, plan. It writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::api::names::fail_reason;
use crate::api::spec_error;
use crate::api::spec_error::{SpecError, join_messages};
use crate::api::{self, InstanceGroup, InstanceGroupSpec, InstanceGroupStatus, ProvisionerKind};
use crate::aws::inventory::Inventory;
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
use crate::boundaries::{Boundaries, MergedSpec, NamespaceUsage, OverriddenValue, merge};
use crate::controller::report::BoundariesSummary;
use crate::index::groups::GroupIndex;
use crate::index::nodes::NodeIndex;
use crate::index::process_state::ProcessState;
use crate::index::spot::Recommendations;
use crate::k8s::KubeApi;
use crate::plan::{self, Plan, Reason};
pub use crate::provisioner::observe::ObserveError;
use crate::provisioner::observe::{ObserveResult, Observer};
use crate::provisioner::{
    DeleteRequest, GroupId, PlanRequest, PlanResult, PlanSnapshot, Provisioner, Settings, dispatch, group_id,
};

/// What every walk shares.
pub struct Planner {
    /// Batched reads of AWS, and AWS itself for writes.
    pub inventory: Arc<Inventory>,
    /// Kubernetes.
    pub kube: Arc<dyn KubeApi>,
    /// Nodes by instance.
    pub node_index: Arc<NodeIndex>,
    /// Clocks.
    pub process_state: Arc<ProcessState>,
    /// What this process was started with.
    pub settings: Settings,
}

/// What stands around one group, from the watched stores.
#[derive(Clone, Default)]
pub struct GroupContext {
    /// Annotations of its namespace; `None` when the namespace is not known.
    pub namespace_annotations: Option<BTreeMap<String, String>>,
    /// The boundaries in force.
    pub active_boundaries: Arc<ActiveBoundaries>,
    /// `mapRoles` of kube-system/aws-auth.
    pub map_roles: Option<String>,
    /// What it shares with other groups.
    pub group_index: Arc<GroupIndex>,
    /// What the namespace holds, for its quota.
    pub counts: NamespaceUsage,
    /// Who holds the brake.
    pub lock: Option<String>,
    /// Recommendations about spot instances.
    pub recommendations: Arc<Recommendations>,
}

/// A plan and how the boundaries stand for its group.
pub struct Planning {
    /// What would be done.
    pub plan: Plan,
    /// For the status.
    pub boundaries: Option<BoundariesSummary>,
    /// The effective spec, when there is one.
    pub merged: Option<MergedSpec>,
    /// A bounded reason for the metric of failures.
    pub failure_reason: Option<&'static str>,
    /// What the plan was made from, when it got so far.
    pub snapshot: Option<Box<dyn PlanSnapshot>>,
}

impl Planning {
    fn blocked(plan: Plan, failed: &'static str) -> Self {
        Planning { plan, boundaries: None, merged: None, failure_reason: Some(failed), snapshot: None }
    }

    /// A value that the tenant gave and did not get is not asked of the tenant again.
    fn rejected(id: &GroupId, mut problems: Vec<SpecError>, dropped: &[OverriddenValue]) -> Self {
        for problem in problems.iter_mut().filter(|p| p.is_missing() && dropped.iter().any(|d| d.path == p.path)) {
            problem.rule = "is required, and restricted".into();
            problem.remedy = "ask your cluster admin for a default".into();
        }
        let plan = plan::blocked_plan(id, spec_error::first_reason(&problems), join_messages(&problems));
        Self::blocked(plan, fail_reason::RESOURCE_VALIDATION)
    }
}

impl Planner {
    /// Walks with one group. An error means that somebody did not answer; nothing was decided.
    pub async fn plan(
        &self,
        group: &InstanceGroup,
        around: &GroupContext,
        max_age: Duration,
        now: Timestamp,
    ) -> ObserveResult<Planning> {
        let id = group_id(group);
        if let Some(why) = boundaries_unavailable(around) {
            let plan = plan::blocked_plan(&id, Reason::BoundariesUnavailable, why);
            return Ok(Planning::blocked(plan, fail_reason::APPLY_DEFAULTS));
        }
        let observer = self.observer(around, max_age, now);
        if id.is_deleting {
            return self.plan_deletion(group, &id, around, &observer).await;
        }
        let (effective, bounds) = match merge_spec(group, &id, around) {
            Ok(found) => found,
            Err(message) => {
                let plan = plan::blocked_plan(&id, Reason::InvalidSpec, message);
                return Ok(Planning::blocked(plan, fail_reason::APPLY_DEFAULTS));
            }
        };
        let walked = self.plan_active(group, &id, &effective, around, &observer).await?;
        Ok(Planning { boundaries: Some(bounds), merged: Some(effective), ..walked })
    }

    async fn plan_active(
        &self,
        group: &InstanceGroup,
        id: &GroupId,
        effective: &MergedSpec,
        around: &GroupContext,
        observer: &Observer<'_>,
    ) -> ObserveResult<Planning> {
        let (spec, provisioner) = match decode_and_check(id, effective, around) {
            Ok(found) => found,
            Err(problems) => return Ok(Planning::rejected(id, problems, &effective.overridden)),
        };
        let status = group.status.clone().unwrap_or_default();
        let problem = provisioner_changed(&status, provisioner_kind(&effective.spec))
            .or_else(|| cluster_changed(id, &status, effective, provisioner));
        if let Some(problem) = problem {
            return Ok(Planning::rejected(id, vec![problem], &effective.overridden));
        }
        let order = PlanRequest {
            id,
            is_new: group.status.is_none(),
            annotations: &effective.annotations,
            spec,
            status: &status,
            lock: around.lock.as_deref(),
            recommendations: &around.recommendations,
            policy: around.active_boundaries.boundaries.as_ref().map(|b| &b.policy),
            settings: &self.settings,
        };
        Ok(match provisioner.plan(observer, order).await? {
            PlanResult::Planned(plan, seen) => {
                Planning { plan: *plan, boundaries: None, merged: None, failure_reason: None, snapshot: Some(seen) }
            }
            PlanResult::Refused(problems) => Planning::rejected(id, problems, &effective.overridden),
        })
    }

    fn observer<'a>(&'a self, around: &'a GroupContext, max_cache_age: Duration, now: Timestamp) -> Observer<'a> {
        Observer {
            inventory: &self.inventory,
            kube: self.kube.as_ref(),
            node_index: &self.node_index,
            process_state: &self.process_state,
            map_roles: around.map_roles.as_deref(),
            group_index: &around.group_index,
            max_cache_age,
            shared_max_cache_age: self.settings.resync_period.mul_f64(0.5),
            now,
        }
    }

    /// How many nodes a group may grow to, for its namespace's quota.
    pub fn max_nodes(&self, group: &InstanceGroup, around: &GroupContext) -> u64 {
        let Ok((effective, _)) = merge_spec(group, &group_id(group), around) else { return 0 };
        let section = match provisioner_kind(&effective.spec) {
            Some(ProvisionerKind::EksManaged) => "eks-managed",
            Some(ProvisionerKind::Eks | ProvisionerKind::EksFargate) | None => "eks",
        };
        effective.spec[section]["maxSize"].as_u64().unwrap_or(0)
    }

    /// A group that is to go needs no valid spec, as long as its status tells who made it.
    async fn plan_deletion(
        &self,
        group: &InstanceGroup,
        id: &GroupId,
        around: &GroupContext,
        observer: &Observer<'_>,
    ) -> ObserveResult<Planning> {
        let status = group.status.clone().unwrap_or_default();
        let effective = merge_spec(group, id, around).ok().map(|(effective, _)| effective);
        let kind = recorded_provisioner(&status)
            .or_else(|| provisioner_kind(&effective.as_ref()?.spec))
            .unwrap_or(ProvisionerKind::Eks);
        let forbidden =
            effective.as_ref().map(|effective| policy_violations(id, effective, around)).unwrap_or_default();
        let spec = effective.and_then(|effective| api::validate::decode_spec(&effective.spec).ok());
        let farewell = DeleteRequest { id, spec, forbidden, status: &status, settings: &self.settings };
        let plan = dispatch::for_kind(kind).plan_deletion(observer, farewell).await?;
        Ok(Planning { plan, boundaries: None, merged: None, failure_reason: None, snapshot: None })
    }
}

/// Why nobody knows the boundaries, when nobody does.
fn boundaries_unavailable(around: &GroupContext) -> Option<String> {
    let why = match &around.active_boundaries.source {
        BoundariesSource::Unavailable(why) => why.as_str(),
        BoundariesSource::Unknown => "the ConfigMap instance-manager has not been read",
        BoundariesSource::Live | BoundariesSource::LastGood(_) | BoundariesSource::NotConfigured => return None,
    };
    Some(format!("{why}, and no good revision is stored; nothing is changed in AWS until the ConfigMap is mended"))
}

/// The merged spec, decoded and allowed, and who makes its nodes.
fn decode_and_check(
    id: &GroupId,
    effective: &MergedSpec,
    around: &GroupContext,
) -> Result<(InstanceGroupSpec, &'static dyn Provisioner), Vec<SpecError>> {
    let spec = api::validate::decode_spec(&effective.spec).map_err(|errors| {
        let problem =
            |e: &api::validate::FieldError| SpecError::invalid(&e.path, &e.value, e.rule.clone(), e.remedy.clone());
        errors.iter().map(problem).collect::<Vec<_>>()
    })?;
    let given = spec.provisioner.clone().unwrap_or_default();
    if given.is_empty() {
        return Err(vec![SpecError::missing("spec.provisioner")]);
    }
    let Some(kind) = ProvisionerKind::parse(&given) else {
        let remedy = "use eks, eks-managed or eks-fargate";
        return Err(vec![SpecError::invalid("spec.provisioner", given, "is no provisioner", remedy)]);
    };
    let violations = policy_violations(id, effective, around);
    if violations.is_empty() { Ok((spec, dispatch::for_kind(kind))) } else { Err(violations) }
}

/// What the admin's policy forbids of a merged spec.
fn policy_violations(id: &GroupId, effective: &MergedSpec, around: &GroupContext) -> Vec<SpecError> {
    let policy =
        around.active_boundaries.boundaries.as_ref().map(|b| b.policy.check(effective, &id.namespace, around.counts));
    let problem = |v: &crate::boundaries::PolicyViolation| {
        SpecError::invalid(&v.path, &v.value, v.rule.clone(), v.remedy.clone()).with_reason(Reason::PolicyViolation)
    };
    policy.unwrap_or_default().iter().map(problem).collect()
}

/// Who makes the nodes, as a merged spec says it.
fn provisioner_kind(spec: &serde_json::Value) -> Option<ProvisionerKind> {
    spec["provisioner"].as_str().and_then(ProvisionerKind::parse)
}

/// Who made what there is, as the status remembers it; the original remembers it for `eks` alone.
fn recorded_provisioner(status: &InstanceGroupStatus) -> Option<ProvisionerKind> {
    status.provisioner.as_deref().and_then(ProvisionerKind::parse)
}

/// What one provisioner made, another does not know: it would run on beside what that makes, and nobody would remove it.
fn provisioner_changed(status: &InstanceGroupStatus, wanted: Option<ProvisionerKind>) -> Option<SpecError> {
    let (made_by, wanted) = (recorded_provisioner(status)?, wanted?);
    // What EKS has not finished making, or failed to, has no scaling group yet.
    let made = status.active_scaling_group_name.as_ref().is_some_and(|name| !name.is_empty())
        || status.managed.as_ref().is_some_and(|managed| !managed.nodegroups.is_empty())
        || status.fargate.as_ref().is_some_and(|fargate| !fargate.profiles.is_empty());
    (made && made_by != wanted).then(|| {
        let rule = format!("is another provisioner than {made_by}, which made what this group has");
        let remedy = format!("put {made_by} back, or delete the group and make another");
        SpecError::invalid("spec.provisioner", wanted, rule, remedy)
    })
}

/// A group stays in its cluster: names are derived from that, so that another one would leave behind what there is, and
/// with it nodes that nobody looks after.
fn cluster_changed(
    id: &GroupId,
    status: &InstanceGroupStatus,
    effective: &MergedSpec,
    provisioner: &dyn Provisioner,
) -> Option<SpecError> {
    let path = provisioner.cluster_field();
    let wanted = path.split('.').skip(1).fold(&effective.spec, |value, key| &value[key]).as_str()?;
    let recorded = provisioner.recorded_cluster(id, status).filter(|recorded| recorded != wanted)?;
    let rule = format!("is another cluster than {recorded}, where this group has what its status records");
    let remedy = format!("put {recorded} back, or delete the group and make another");
    (!wanted.is_empty()).then(|| SpecError::invalid(path, wanted, rule, remedy))
}

/// A group that cannot even be looked at.
pub fn blocked(id: &GroupId, reason: Reason, message: String) -> Planning {
    Planning::blocked(plan::blocked_plan(id, reason, message), fail_reason::HANDLE_RECONCILE)
}

/// The first door: the tenant's fragment and the boundaries become one.
pub fn merge_spec(
    group: &InstanceGroup,
    id: &GroupId,
    around: &GroupContext,
) -> Result<(MergedSpec, BoundariesSummary), String> {
    let raw = json!({ "metadata": { "annotations": id.annotations }, "spec": group.spec });
    let none = Boundaries::default();
    let boundaries = around.active_boundaries.boundaries.as_deref().unwrap_or(&none);
    let namespace = around.namespace_annotations.as_ref().ok_or("its namespace is not known yet")?;
    let excluded =
        around.active_boundaries.boundaries.is_none() || boundaries.policy.is_excluded(&id.namespace, namespace);
    let effective = merge(boundaries, &raw, excluded).map_err(|error| error.to_string())?;
    let last_good = match &around.active_boundaries.source {
        BoundariesSource::LastGood(why) => Some(why.clone()),
        BoundariesSource::Unknown
        | BoundariesSource::Live
        | BoundariesSource::NotConfigured
        | BoundariesSource::Unavailable(_) => None,
    };
    let revision = if excluded { String::new() } else { around.active_boundaries.revision.clone() };
    let bounds = BoundariesSummary {
        hash: effective.hash.clone(),
        revision,
        overridden: effective.overridden.clone(),
        last_known_good: last_good.filter(|_| !excluded),
    };
    Ok((effective, bounds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Outcome;
    use crate::provisioner::eks::names::GroupNames;

    #[test]
    fn restricted_required_field_asks_the_admin_for_a_default() {
        let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        let dropped = OverriddenValue {
            path: "spec.a.role".into(),
            tenant_value: "\"mine\"".into(),
            effective_value: None,
            winner: None,
        };
        let problems = vec![SpecError::missing("spec.a.role"), SpecError::missing("spec.a.cluster")];
        let Outcome::Blocked { message, .. } = Planning::rejected(&id, problems, &[dropped]).plan.outcome else {
            panic!("nothing can be done for it");
        };
        let (role, cluster) = message.split_once(". ").expect("two sentences");
        assert_eq!(role, "spec.a.role is required, and restricted; ask your cluster admin for a default");
        assert!(cluster.starts_with("spec.a.cluster is required; set it in the InstanceGroup"), "{cluster}");
    }

    fn with_status(status: serde_json::Value) -> InstanceGroupStatus {
        serde_json::from_value(status).expect("a status")
    }

    #[test]
    fn provisioner_change_is_rejected_once_resources_are_recorded() {
        use ProvisionerKind::{Eks, EksFargate, EksManaged};
        let begun = |kind: ProvisionerKind, made: serde_json::Value| {
            let mut status = json!({ "provisioner": kind.as_str() });
            api::apply_merge_patch(&mut status, &made);
            with_status(status)
        };
        let creating = begun(EksManaged, json!({ "managed": { "nodegroups": ["demo/team-web"] } }));
        let profile = begun(EksFargate, json!({ "fargate": { "cluster": "demo", "profiles": ["fargate-demo-1"] } }));
        for (status, made_by) in [(&creating, EksManaged), (&profile, EksFargate)] {
            let problem = provisioner_changed(status, Some(Eks)).expect("it is refused");
            assert!(problem.to_string().contains(&format!("put {made_by} back")), "{problem}");
            assert_eq!(provisioner_changed(status, Some(made_by)), None);
        }
        assert_eq!(provisioner_changed(&begun(EksManaged, json!({})), Some(Eks)), None, "nothing was made");
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
        let effective = merge(&Boundaries::default(), &raw, true).expect("it is merged");
        let refused = |kind, status| cluster_changed(&id, &with_status(status), &effective, dispatch::for_kind(kind));
        let distinct = GroupNames::new("demo", "team", "web").hashed("demo-team-web");
        for (kind, status, field) in [
            (ProvisionerKind::Eks, json!({ "activeScalingGroupName": "demo-team-web" }), "spec.eks.configuration"),
            (ProvisionerKind::Eks, json!({ "activeScalingGroupName": distinct }), "spec.eks.configuration"),
            (
                ProvisionerKind::EksManaged,
                json!({ "managed": { "nodegroups": ["demo/team-web"] } }),
                "spec.eks-managed.configuration",
            ),
            (ProvisionerKind::EksFargate, json!({ "fargate": { "cluster": "demo" } }), "spec.eks-fargate"),
        ] {
            let problem = refused(kind, status).expect("it is refused").to_string();
            assert!(
                problem.starts_with(&format!("{field}.clusterName `other` is another cluster than demo")),
                "{problem}"
            );
            assert_eq!(refused(kind, json!({})), None, "nothing is on record");
        }
        assert_eq!(refused(ProvisionerKind::Eks, json!({ "activeScalingGroupName": "other-team-web" })), None);
    }
}
