//! The corridor that the controller and `plan` walk alike: merge, look up,
//! resolve, observe, plan. It writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::api::names::fail_reason;
use crate::api::spec_error;
use crate::api::spec_error::{Problem, sentence};
use crate::api::{self, InstanceGroup, InstanceGroupSpec, InstanceGroupStatus, ProvisionerKind};
use crate::aws::inventory::Inventory;
use crate::boundaries::active::{InForce, Source};
use crate::boundaries::{Boundaries, Counts, Effective, Refused, merge};
use crate::controller::report::Bounds;
use crate::index::groups::GroupIndex;
use crate::index::nodes::NodeIndex;
use crate::index::process_state::Memory;
use crate::index::spot::Recommendations;
use crate::k8s::ClusterWrites;
use crate::plan::{self, Plan, Reason};
pub use crate::provisioner::observe::ObserveError;
use crate::provisioner::observe::{Observed, Observer};
use crate::provisioner::{Farewell, GroupId, Order, Provisioner, Seen, Settings, Verdict, dispatch, identity};

/// What every walk shares.
pub struct Corridor {
    /// Batched reads of AWS, and AWS itself for writes.
    pub inventory: Arc<Inventory>,
    /// Kubernetes.
    pub cluster: Arc<dyn ClusterWrites>,
    /// Nodes by instance.
    pub nodes: Arc<NodeIndex>,
    /// Clocks.
    pub memory: Arc<Memory>,
    /// What this process was started with.
    pub settings: Settings,
}

/// What stands around one group, from the watched stores.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// Annotations of its namespace; `None` when the namespace is not known.
    pub namespace: Option<BTreeMap<String, String>>,
    /// The boundaries in force.
    pub in_force: Arc<InForce>,
    /// `mapRoles` of kube-system/aws-auth.
    pub map_roles: Option<String>,
    /// What it shares with other groups.
    pub groups: Arc<GroupIndex>,
    /// What the namespace holds, for its quota.
    pub counts: Counts,
    /// Who holds the brake.
    pub lock: Option<String>,
    /// Recommendations about spot instances.
    pub recommendations: Arc<Recommendations>,
}

/// A plan and how the boundaries stand for its group.
pub struct Walked {
    /// What would be done.
    pub plan: Plan,
    /// For the status.
    pub bounds: Option<Bounds>,
    /// The effective spec, when there is one.
    pub effective: Option<Effective>,
    /// A bounded reason for the metric of failures.
    pub failed: Option<&'static str>,
    /// What the plan was made from, when it got so far.
    pub seen: Option<Box<dyn Seen>>,
}

impl Walked {
    fn stalled(plan: Plan, failed: &'static str) -> Self {
        Walked { plan, bounds: None, effective: None, failed: Some(failed), seen: None }
    }

    /// A value that the tenant gave and did not get is not asked of the tenant again.
    fn refused(id: &GroupId, mut problems: Vec<Problem>, dropped: &[Refused]) -> Self {
        for problem in problems.iter_mut().filter(|p| p.is_missing() && dropped.iter().any(|d| d.path == p.path)) {
            problem.rule = "is required, and restricted".into();
            problem.remedy = "ask your cluster admin for a default of it".into();
        }
        let plan = plan::blocked(id, spec_error::reason(&problems), sentence(&problems));
        Self::stalled(plan, fail_reason::RESOURCE_VALIDATION)
    }
}

impl Corridor {
    /// Walks with one group. An error means that somebody did not answer; nothing was decided.
    pub async fn walk(
        &self,
        group: &InstanceGroup,
        around: &Surroundings,
        max_age: Duration,
        now: Timestamp,
    ) -> Observed<Walked> {
        let id = identity(group);
        if let Some(why) = unavailable(around) {
            let plan = plan::blocked(&id, Reason::BoundariesUnavailable, why);
            return Ok(Walked::stalled(plan, fail_reason::APPLY_DEFAULTS));
        }
        let observer = self.observer(around, max_age, now);
        if id.deleting {
            return self.deletion(group, &id, around, &observer).await;
        }
        let (effective, bounds) = match effective(group, &id, around) {
            Ok(found) => found,
            Err(message) => {
                let plan = plan::blocked(&id, Reason::InvalidSpec, message);
                return Ok(Walked::stalled(plan, fail_reason::APPLY_DEFAULTS));
            }
        };
        let walked = self.living(group, &id, &effective, around, &observer).await?;
        Ok(Walked { bounds: Some(bounds), effective: Some(effective), ..walked })
    }

    async fn living(
        &self,
        group: &InstanceGroup,
        id: &GroupId,
        effective: &Effective,
        around: &Surroundings,
        observer: &Observer<'_>,
    ) -> Observed<Walked> {
        let (spec, provisioner) = match judged(id, effective, around) {
            Ok(found) => found,
            Err(problems) => return Ok(Walked::refused(id, problems, &effective.refused)),
        };
        let status = group.status.clone().unwrap_or_default();
        let problem = switched(&status, kind(&effective.spec)).or_else(|| moved(id, &status, effective, provisioner));
        if let Some(problem) = problem {
            return Ok(Walked::refused(id, vec![problem], &effective.refused));
        }
        let order = Order {
            id,
            new: group.status.is_none(),
            annotations: &effective.annotations,
            spec,
            status: &status,
            lock: around.lock.as_deref(),
            recommendations: &around.recommendations,
            policy: around.in_force.boundaries.as_ref().map(|b| &b.policy),
            settings: &self.settings,
        };
        Ok(match provisioner.walk(observer, order).await? {
            Verdict::Planned(plan, seen) => {
                Walked { plan: *plan, bounds: None, effective: None, failed: None, seen: Some(seen) }
            }
            Verdict::Refused(problems) => Walked::refused(id, problems, &effective.refused),
        })
    }

    fn observer<'a>(&'a self, around: &'a Surroundings, max_age: Duration, now: Timestamp) -> Observer<'a> {
        Observer {
            inventory: &self.inventory,
            cluster: self.cluster.as_ref(),
            nodes: &self.nodes,
            memory: &self.memory,
            map_roles: around.map_roles.as_deref(),
            groups: &around.groups,
            max_age,
            resync: self.settings.resync.mul_f64(0.5),
            now,
        }
    }

    /// How many nodes a group may grow to, for its namespace's quota.
    pub fn most_nodes(&self, group: &InstanceGroup, around: &Surroundings) -> u64 {
        let Ok((effective, _)) = effective(group, &identity(group), around) else { return 0 };
        let section = match kind(&effective.spec) {
            Some(ProvisionerKind::EksManaged) => "eks-managed",
            Some(ProvisionerKind::Eks | ProvisionerKind::EksFargate) | None => "eks",
        };
        effective.spec[section]["maxSize"].as_u64().unwrap_or(0)
    }

    /// A group that is to go needs no valid spec, as long as its status tells who made it.
    async fn deletion(
        &self,
        group: &InstanceGroup,
        id: &GroupId,
        around: &Surroundings,
        observer: &Observer<'_>,
    ) -> Observed<Walked> {
        let status = group.status.clone().unwrap_or_default();
        let effective = effective(group, id, around).ok().map(|(effective, _)| effective);
        let kind = made_by(&status).or_else(|| kind(&effective.as_ref()?.spec)).unwrap_or(ProvisionerKind::Eks);
        let forbidden = effective.as_ref().map(|effective| forbidden(id, effective, around)).unwrap_or_default();
        let spec = effective.and_then(|effective| api::validate::decode_spec(&effective.spec).ok());
        let farewell = Farewell { id, spec, forbidden, status: &status, settings: &self.settings };
        let plan = dispatch::for_kind(kind).deletion(observer, farewell).await?;
        Ok(Walked { plan, bounds: None, effective: None, failed: None, seen: None })
    }
}

/// Why nobody knows the boundaries, when nobody does.
fn unavailable(around: &Surroundings) -> Option<String> {
    let why = match &around.in_force.source {
        Source::Unavailable(why) => why.as_str(),
        Source::Unknown => "the ConfigMap instance-manager has not been read",
        Source::Live | Source::LastGood(_) | Source::Never => return None,
    };
    Some(format!("{why}, and no good revision is stored; nothing is changed in AWS until the ConfigMap is mended"))
}

/// The merged spec, decoded and allowed, and who makes its nodes.
fn judged(
    id: &GroupId,
    effective: &Effective,
    around: &Surroundings,
) -> Result<(InstanceGroupSpec, &'static dyn Provisioner), Vec<Problem>> {
    let spec = api::validate::decode_spec(&effective.spec).map_err(|errors| {
        let problem =
            |e: &api::validate::FieldError| Problem::invalid(&e.path, &e.value, e.rule.clone(), e.remedy.clone());
        errors.iter().map(problem).collect::<Vec<_>>()
    })?;
    let given = spec.provisioner.clone().unwrap_or_default();
    if given.is_empty() {
        return Err(vec![Problem::missing("spec.provisioner")]);
    }
    let Some(kind) = ProvisionerKind::parse(&given) else {
        let remedy = "use eks, eks-managed or eks-fargate";
        return Err(vec![Problem::invalid("spec.provisioner", given, "is no provisioner", remedy)]);
    };
    let violations = forbidden(id, effective, around);
    if violations.is_empty() { Ok((spec, dispatch::for_kind(kind))) } else { Err(violations) }
}

/// What the admin's policy forbids of a merged spec.
fn forbidden(id: &GroupId, effective: &Effective, around: &Surroundings) -> Vec<Problem> {
    let policy = around.in_force.boundaries.as_ref().map(|b| b.policy.check(effective, &id.namespace, around.counts));
    let problem = |v: &crate::boundaries::Violation| {
        Problem::invalid(&v.path, &v.value, v.rule.clone(), v.remedy.clone()).because(Reason::PolicyViolation)
    };
    policy.unwrap_or_default().iter().map(problem).collect()
}

/// Who makes the nodes, as a merged spec says it.
fn kind(spec: &serde_json::Value) -> Option<ProvisionerKind> {
    spec["provisioner"].as_str().and_then(ProvisionerKind::parse)
}

/// Who made what there is, as the status remembers it; the original remembers it for `eks` alone.
fn made_by(status: &InstanceGroupStatus) -> Option<ProvisionerKind> {
    status.provisioner.as_deref().and_then(ProvisionerKind::parse)
}

/// What one provisioner made, another does not know: it would run on beside what that makes, and nobody would remove it.
fn switched(status: &InstanceGroupStatus, wanted: Option<ProvisionerKind>) -> Option<Problem> {
    let (made_by, wanted) = (made_by(status)?, wanted?);
    // What EKS has not finished making, or failed to, has no scaling group yet.
    let made = status.active_scaling_group_name.as_ref().is_some_and(|name| !name.is_empty())
        || status.managed.as_ref().is_some_and(|managed| !managed.nodegroups.is_empty())
        || status.fargate.as_ref().is_some_and(|fargate| !fargate.profiles.is_empty());
    (made && made_by != wanted).then(|| {
        let rule = format!("is another provisioner than {made_by}, which made what this group has");
        let remedy = format!("put {made_by} back, or delete the group and make another");
        Problem::invalid("spec.provisioner", wanted, rule, remedy)
    })
}

/// A group stays in its cluster: names are derived from that, so that another one would leave behind what there is, and
/// with it nodes that nobody looks after.
fn moved(
    id: &GroupId,
    status: &InstanceGroupStatus,
    effective: &Effective,
    provisioner: &dyn Provisioner,
) -> Option<Problem> {
    let path = provisioner.cluster_field();
    let wanted = path.split('.').skip(1).fold(&effective.spec, |value, key| &value[key]).as_str()?;
    let recorded = provisioner.cluster_on_record(id, status).filter(|recorded| recorded != wanted)?;
    let rule = format!("is another cluster than {recorded}, where this group has what its status records");
    let remedy = format!("put {recorded} back, or delete the group and make another");
    (!wanted.is_empty()).then(|| Problem::invalid(path, wanted, rule, remedy))
}

/// A group that cannot even be looked at.
pub fn stalled(id: &GroupId, reason: Reason, message: String) -> Walked {
    Walked::stalled(plan::blocked(id, reason, message), fail_reason::HANDLE_RECONCILE)
}

/// The first door: the tenant's fragment and the boundaries become one.
pub fn effective(group: &InstanceGroup, id: &GroupId, around: &Surroundings) -> Result<(Effective, Bounds), String> {
    let raw = json!({ "metadata": { "annotations": id.annotations }, "spec": group.spec });
    let none = Boundaries::default();
    let boundaries = around.in_force.boundaries.as_deref().unwrap_or(&none);
    let namespace = around.namespace.as_ref().ok_or("its namespace is not known yet")?;
    let excluded = around.in_force.boundaries.is_none() || boundaries.policy.excluded(&id.namespace, namespace);
    let effective = merge(boundaries, &raw, excluded).map_err(|error| error.to_string())?;
    let last_good = match &around.in_force.source {
        Source::LastGood(why) => Some(why.clone()),
        Source::Unknown | Source::Live | Source::Never | Source::Unavailable(_) => None,
    };
    let revision = if excluded { String::new() } else { around.in_force.revision.clone() };
    let bounds = Bounds {
        hash: effective.hash.clone(),
        revision,
        refused: effective.refused.clone(),
        last_good: last_good.filter(|_| !excluded),
    };
    Ok((effective, bounds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Outcome;
    use crate::provisioner::eks::names::GroupNames;

    #[test]
    fn a_required_field_that_the_tenant_gave_and_may_not_give_is_asked_of_the_admin() {
        let id = identity(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        let dropped = Refused {
            path: "spec.a.role".into(),
            tenant_value: "\"mine\"".into(),
            effective_value: None,
            winner: None,
        };
        let problems = vec![Problem::missing("spec.a.role"), Problem::missing("spec.a.cluster")];
        let Outcome::Blocked { message, .. } = Walked::refused(&id, problems, &[dropped]).plan.outcome else {
            panic!("nothing can be done for it");
        };
        let (role, cluster) = message.split_once(". ").expect("two sentences");
        assert_eq!(role, "spec.a.role is required, and restricted; ask your cluster admin for a default of it");
        assert!(cluster.starts_with("spec.a.cluster is required; set it in the InstanceGroup"), "{cluster}");
    }

    fn with_status(status: serde_json::Value) -> InstanceGroupStatus {
        serde_json::from_value(status).expect("a status")
    }

    #[test]
    fn what_another_provisioner_has_begun_to_make_is_not_left_behind() {
        use ProvisionerKind::{Eks, EksFargate, EksManaged};
        let begun = |kind: ProvisionerKind, made: serde_json::Value| {
            let mut status = json!({ "provisioner": kind.as_str() });
            api::merge_patch(&mut status, &made);
            with_status(status)
        };
        let creating = begun(EksManaged, json!({ "managed": { "nodegroups": ["demo/team-web"] } }));
        let profile = begun(EksFargate, json!({ "fargate": { "cluster": "demo", "profiles": ["fargate-demo-1"] } }));
        for (status, made_by) in [(&creating, EksManaged), (&profile, EksFargate)] {
            let problem = switched(status, Some(Eks)).expect("it is refused");
            assert!(problem.to_string().contains(&format!("put {made_by} back")), "{problem}");
            assert_eq!(switched(status, Some(made_by)), None);
        }
        assert_eq!(switched(&begun(EksManaged, json!({})), Some(Eks)), None, "nothing was made");
    }

    #[test]
    fn a_group_stays_in_the_cluster_where_something_of_it_is_on_record() {
        let id =
            GroupId { namespace: "team".into(), ..identity(&InstanceGroup::new("web", InstanceGroupSpec::default())) };
        let spec = json!({
            "eks": { "configuration": { "clusterName": "other" } },
            "eks-managed": { "configuration": { "clusterName": "other" } },
            "eks-fargate": { "clusterName": "other" },
        });
        let raw = json!({ "metadata": {}, "spec": spec });
        let effective = merge(&Boundaries::default(), &raw, true).expect("it is merged");
        let refused = |kind, status| moved(&id, &with_status(status), &effective, dispatch::for_kind(kind));
        let distinct = GroupNames::new("demo", "team", "web").distinct("demo-team-web");
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
