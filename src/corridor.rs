//! The corridor that the controller and `plan` walk alike: merge, look up,
//! resolve, observe, plan. It writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::api::names::tag;
use crate::api::{self, InstanceGroup, ProvisionerKind, ScalingConfigurationKind};
use crate::aws::Tag;
use crate::aws::inventory::Inventory;
use crate::boundaries::{Boundaries, Counts, Effective, merge};
use crate::cluster::ClusterWrites;
use crate::config::{InForce, Source};
use crate::groups::GroupIndex;
use crate::memory::Memory;
use crate::nodes::NodeIndex;
use crate::plan::{Facts, Outcome, Plan, Reason};
use crate::provisioner::eks::{
    check, delete, environment, names::GroupNames, observe, plan, remains, resolve, state, user_data::OsFamily, wanted,
};
use crate::provisioner::{GroupId, Problem, identity, sentence};
use crate::report::Bounds;
use crate::spot::{self, Recommendations};
use crate::timing::Timing;

pub use crate::provisioner::eks::observe::ObserveError;

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
    /// How long things take.
    pub timing: Timing,
    /// `--resync-period`.
    pub resync: Duration,
    /// `--config-retention`.
    pub retention: usize,
    /// `--cluster-name`.
    pub cluster_name: Option<String>,
    /// `--default-scaling-configuration`: for groups that do not say it.
    pub default_kind: ScalingConfigurationKind,
    /// `--disable-windows-cluster-ca-injection`: Windows nodes ask EKS for the cluster's endpoint and certificate.
    pub windows_asks_for_endpoint: bool,
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
    pub seen: Option<Seen>,
}

/// What is wanted and what there is, for going on from a plan.
pub struct Seen {
    /// What is wanted.
    pub resolved: resolve::Resolved,
    /// What there is.
    pub state: state::State,
}

impl Corridor {
    /// Walks with one group. An error means that somebody did not answer; nothing was decided.
    pub async fn walk(
        &self,
        group: &InstanceGroup,
        around: &Surroundings,
        max_age: Duration,
        now: Timestamp,
    ) -> Result<Walked, ObserveError> {
        let id = identity(group);
        if let Source::Unknown | Source::Unavailable(_) = &around.in_force.source {
            let why = match &around.in_force.source {
                Source::Unavailable(why) => why.as_str(),
                _ => "the ConfigMap instance-manager has not been read",
            };
            let message = format!(
                "{why}, and no good revision is stored; nothing is changed in AWS until the ConfigMap is mended"
            );
            return Ok(blocked(
                &id,
                Reason::BoundariesUnavailable,
                message,
                None,
                Some(api::names::fail_reason::APPLY_DEFAULTS),
            ));
        }
        if id.deleting {
            return self.deletion(group, &id, around, max_age, now).await;
        }
        let (effective, bounds) = match effective(group, &id, around) {
            Ok(found) => found,
            Err(message) => {
                return Ok(blocked(
                    &id,
                    Reason::InvalidSpec,
                    message,
                    None,
                    Some(api::names::fail_reason::APPLY_DEFAULTS),
                ));
            }
        };
        let status = group.status.clone().unwrap_or_default();
        let wanted = match self.wanted(&id, &effective, around, &status) {
            Ok(wanted) => wanted,
            Err(problems) => {
                let reason = wanted::reason(&problems);
                let failed = Some(api::names::fail_reason::RESOURCE_VALIDATION);
                return Ok(Walked {
                    effective: Some(effective),
                    ..blocked(&id, reason, sentence(&problems), Some(bounds), failed)
                });
            }
        };
        let walked = self.eks(group, wanted, around, max_age, now).await?;
        Ok(Walked { bounds: Some(bounds), effective: Some(effective), ..walked })
    }

    /// Everything that can be wrong with the merged spec itself.
    fn wanted(
        &self,
        id: &GroupId,
        effective: &Effective,
        around: &Surroundings,
        status: &api::InstanceGroupStatus,
    ) -> Result<wanted::Wanted, Vec<Problem>> {
        let mut spec = api::validate::decode_spec(&effective.spec).map_err(|errors| {
            errors
                .iter()
                .map(|e| Problem::invalid(&e.path, &e.value, e.rule.clone(), e.remedy.clone()))
                .collect::<Vec<_>>()
        })?;
        if let Some(eks) = spec.eks.as_mut().filter(|e| e.r#type.as_deref().unwrap_or_default().is_empty()) {
            eks.r#type = Some(self.default_kind.as_str().into());
        }
        match spec.provisioner.as_deref().filter(|p| !p.is_empty()).map(ProvisionerKind::parse) {
            None => return Err(vec![Problem::missing("spec.provisioner")]),
            Some(None) => {
                let given = spec.provisioner.clone().unwrap_or_default();
                return Err(vec![Problem::invalid("spec.provisioner", given, "is no provisioner", "use eks")]);
            }
            Some(Some(ProvisionerKind::EksManaged | ProvisionerKind::EksFargate)) => {
                return Err(crate::provisioner::supported::unsupported(&spec, &effective.annotations));
            }
            Some(Some(ProvisionerKind::Eks)) => {}
        }
        let policy =
            around.in_force.boundaries.as_ref().map(|b| b.policy.check(effective, &id.namespace, around.counts));
        let violations = policy.unwrap_or_default();
        if !violations.is_empty() {
            let problem = |v: &crate::boundaries::Violation| {
                Problem::invalid(&v.path, &v.value, v.rule.clone(), v.remedy.clone()).because(Reason::PolicyViolation)
            };
            return Err(violations.iter().map(problem).collect());
        }
        let recommended = recommended(&mut spec, status, &around.recommendations);
        let mut wanted = wanted::parse(id, &effective.annotations, &spec)?;
        wanted.recommended = recommended;
        wanted.asks_for_endpoint = self.windows_asks_for_endpoint && wanted.family == OsFamily::Windows;
        match &self.cluster_name {
            Some(name) if *name != wanted.cluster => Err(vec![
                Problem::invalid(
                    "spec.eks.configuration.clusterName",
                    &wanted.cluster,
                    format!("is not this cluster ({name})"),
                    "correct it, or remove it",
                )
                .because(Reason::PolicyViolation),
            ]),
            _ => Ok(wanted),
        }
    }

    async fn eks(
        &self,
        group: &InstanceGroup,
        wanted: wanted::Wanted,
        around: &Surroundings,
        max_age: Duration,
        now: Timestamp,
    ) -> Result<Walked, ObserveError> {
        let status = group.status.clone().unwrap_or_default();
        let observer = self.observer(around, max_age, now);
        if group.status.is_none() {
            self.expect(&wanted.cluster, &around.groups.new_ones(&wanted.id.key()));
        }
        let environment = environment::environment(&observer, &wanted).await?;
        let mut distinct = self.distinct(&wanted, &status);
        let id = wanted.id.clone();
        let (resolved, state) = loop {
            let resolved = match resolve::resolve(wanted.clone(), &environment, distinct) {
                Ok(resolved) => resolved,
                Err(problems) => {
                    let failed = Some(api::names::fail_reason::RESOURCE_VALIDATION);
                    return Ok(blocked(&id, wanted::reason(&problems), sentence(&problems), None, failed));
                }
            };
            let state = observe::state(&observer, &resolved, &status).await?;
            if distinct || !state::taken(&state, &resolved.ownership) {
                break (resolved, state);
            }
            self.memory.set_collided(&id.key());
            distinct = true;
        };
        if let Some(looked) = environment::looked(&observer, &resolved, &state, &status).await? {
            let problems = check::problems(&resolved, &looked);
            if !problems.is_empty() {
                let failed = Some(api::names::fail_reason::RESOURCE_VALIDATION);
                return Ok(blocked(&id, wanted::reason(&problems), sentence(&problems), None, failed));
            }
        }
        let lock = around.lock.as_deref();
        let input = plan::Input {
            resolved: &resolved,
            state: &state,
            status: &status,
            lock,
            retention: self.retention,
            timing: &self.timing,
            now,
        };
        let plan = plan::plan(&input);
        Ok(Walked { plan, bounds: None, effective: None, failed: None, seen: Some(Seen { resolved, state }) })
    }

    /// New groups are nearly always of one cluster: the first looks at all of them.
    fn expect(&self, cluster: &str, new_ones: &[GroupId]) {
        for id in new_ones {
            let names = GroupNames::new(cluster, &id.namespace, &id.name);
            self.inventory.expect(names.scaling_group(), names.launch_template(id.created));
        }
    }

    /// Whether the group goes by names with a hash, because someone else has the derived ones.
    fn distinct(&self, wanted: &wanted::Wanted, status: &api::InstanceGroupStatus) -> bool {
        let derived = GroupNames::new(&wanted.cluster, &wanted.id.namespace, &wanted.id.name);
        let taken = derived.distinct(&derived.scaling_group());
        status.active_scaling_group_name.as_ref() == Some(&taken) || self.memory.collided(&wanted.id.key())
    }

    fn observer<'a>(&'a self, around: &'a Surroundings, max_age: Duration, now: Timestamp) -> observe::Observer<'a> {
        observe::Observer {
            inventory: &self.inventory,
            cluster: self.cluster.as_ref(),
            nodes: &self.nodes,
            memory: &self.memory,
            map_roles: around.map_roles.as_deref(),
            groups: &around.groups,
            max_age,
            resync: self.resync.mul_f64(0.5),
            now,
        }
    }

    /// How many nodes a group may grow to, for its namespace's quota.
    pub fn most_nodes(&self, group: &InstanceGroup, around: &Surroundings) -> u64 {
        let max = effective(group, &identity(group), around).ok().and_then(|(e, _)| e.spec["eks"]["maxSize"].as_u64());
        max.unwrap_or(0)
    }

    async fn deletion(
        &self,
        group: &InstanceGroup,
        id: &GroupId,
        around: &Surroundings,
        max_age: Duration,
        now: Timestamp,
    ) -> Result<Walked, ObserveError> {
        let status = group.status.clone().unwrap_or_default();
        let Some(traces) = traces(id, &status) else {
            return Ok(nothing_made(id, &status));
        };
        let observer = self.observer(around, max_age, now);
        let role_arn = status.nodes_instance_role_arn.as_deref();
        let mut left = remains::remains(&observer, &traces.names, &id.uid, &traces.ownership, role_arn).await?;
        let managed = status.managed.clone().unwrap_or_default();
        let shared = role_arn.is_some_and(|arn| around.groups.shares_role(arn, &id.key()));
        let own =
            left.role.is_some() || role_arn.is_some_and(|arn| arn.ends_with(&format!("role/{}", traces.names.role)));
        let ours = own || role_arn.is_some_and(|arn| managed.auth_entries.iter().any(|e| e == arn));
        left.auth = left.auth.filter(|_| ours && !shared);
        let standard = |arn: &String| {
            arn.ends_with("/AmazonEKSWorkerNodePolicy")
                || arn.ends_with("/AmazonEC2ContainerRegistryReadOnly")
                || arn.ends_with("/AmazonEKS_CNI_Policy")
        };
        let our_policies: Vec<_> =
            left.attached.iter().filter(|p| standard(p) || managed.policies.contains(p)).cloned().collect();
        let plan = delete::plan(&delete::Input {
            id,
            ownership: &traces.ownership,
            group: left.group.as_ref(),
            members: &left.members,
            drains: &left.drains,
            template: left.template.as_ref(),
            configurations: &managed.configurations,
            role: left.role.as_ref(),
            attached: &left.attached,
            our_policies: &our_policies,
            inline: &left.inline,
            profile: left.profile.as_ref(),
            auth: left.auth.as_ref(),
            timing: &self.timing,
            now,
        });
        Ok(Walked { plan, bounds: None, effective: None, failed: None, seen: None })
    }
}

/// A recommendation about spot instances takes the place of the spec's own price, once there is a scaling group.
fn recommended(
    spec: &mut api::InstanceGroupSpec,
    status: &api::InstanceGroupStatus,
    all: &Recommendations,
) -> Option<api::SpotRecommendation> {
    let heard = status.active_scaling_group_name.as_ref().and_then(|name| all.newest(name));
    let eks = spec.eks.as_mut()?;
    let pool = eks.warm_pool.is_some();
    let configuration = eks.configuration.as_mut()?;
    // Where spot would be refused, somebody's event must not stop the group.
    let tenancy = configuration.placement.as_ref().and_then(|p| p.tenancy.as_deref()).unwrap_or_default();
    if pool || configuration.mixed_instances_policy.is_some() || tenancy.eq_ignore_ascii_case("host") {
        return None;
    }
    let own = configuration.spot_price.clone().unwrap_or_default();
    let found = spot::in_force(&own, status.spot_recommendation.as_ref(), heard.as_ref())?;
    configuration.spot_price = found.use_spot.then(|| found.spot_price.clone());
    Some(found)
}

/// What a group left behind, by the names in its status.
struct Traces {
    names: resolve::Names,
    ownership: Vec<Tag>,
}

fn traces(id: &GroupId, status: &api::InstanceGroupStatus) -> Option<Traces> {
    let group = status.active_scaling_group_name.clone().filter(|g| !g.is_empty())?;
    let suffix = format!("-{}-{}", id.namespace, id.name);
    let cluster = match group.strip_suffix(&suffix) {
        Some(cluster) => cluster.to_owned(),
        // A name with a hash: the hash is the last word.
        None => group.rsplit_once('-')?.0.strip_suffix(&suffix)?.to_owned(),
    };
    let derived = GroupNames::new(&cluster, &id.namespace, &id.name);
    let distinct = group != derived.scaling_group();
    let of = |name: String| if distinct { derived.distinct(&name) } else { name };
    let template = status.active_launch_template_name.clone().filter(|t| !t.is_empty());
    let names = resolve::Names {
        role: of(derived.role()),
        template: template.unwrap_or_else(|| of(derived.launch_template(id.created))),
        group,
    };
    let ownership = [(tag::CLUSTER_NAME, &cluster), (tag::INSTANCE_GROUP, &id.name), (tag::NAMESPACE, &id.namespace)];
    Some(Traces {
        names,
        ownership: ownership.map(|(key, value)| Tag { key: key.into(), value: value.clone() }).into(),
    })
}

/// The status names nothing: nothing of the provisioner `eks` was made.
fn nothing_made(id: &GroupId, status: &api::InstanceGroupStatus) -> Walked {
    let other = status.provisioner.as_deref().is_some_and(|p| !p.is_empty() && !p.eq_ignore_ascii_case("eks"));
    let mut walked = blocked(
        id,
        Reason::NotSupported,
        format!(
            "what the provisioner {} made cannot be removed by this release; remove it by hand, then the finalizer",
            status.provisioner.clone().unwrap_or_default()
        ),
        None,
        None,
    );
    if other {
        walked.plan.outcome = match walked.plan.outcome {
            Outcome::Blocked { reason, message, .. } => Outcome::Blocked { reason, message, deleting: true },
            outcome => outcome,
        };
        return walked;
    }
    walked.plan.outcome = Outcome::Deleted;
    if id.finalizer {
        walked.plan.steps.push(crate::plan::Step::RemoveFinalizer.into());
    }
    walked
}

/// A group that cannot even be looked at.
pub fn stalled(id: &GroupId, reason: Reason, message: String) -> Walked {
    blocked(id, reason, message, None, Some(api::names::fail_reason::HANDLE_RECONCILE))
}

fn blocked(
    id: &GroupId,
    reason: Reason,
    message: String,
    bounds: Option<Bounds>,
    failed: Option<&'static str>,
) -> Walked {
    let plan = Plan {
        group: id.key(),
        generation: id.generation,
        steps: Vec::new(),
        outcome: Outcome::Blocked { reason, message, deleting: id.deleting },
        facts: Facts::default(),
        notes: Vec::new(),
        events: Vec::new(),
        wake: None,
    };
    Walked { plan, bounds, effective: None, failed, seen: None }
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
