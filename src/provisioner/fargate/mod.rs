//! The provisioner `eks-fargate`: a Fargate profile, and the role of its pods.
//!
//! A profile cannot be changed. What is wanted otherwise makes another one beside it, and the older one is deleted when
//! the newer is `ACTIVE`; EKS makes or deletes one profile of a cluster at a time, so that groups take [`turn`]s.

pub mod adopt;
pub mod apply;
pub mod create;
pub mod delete;
pub mod desired;
pub mod input;
pub mod join;
pub mod names;
pub mod observe;
pub mod observed;
pub mod ownership;
pub mod plan;
pub mod plan_builder;
pub mod profile_slot;
pub mod record;
pub mod resolve;
pub mod role;
pub mod simulate;

use async_trait::async_trait;

use super::{Farewell, GroupId, Order, Provisioner, Verdict, elsewhere, never_accepted};
use crate::api::InstanceGroupStatus;
use crate::ownership::ownership;
use crate::plan::{Plan, Reason};
use crate::provisioner::observe::{Observed, Observer};
use desired::Wanted;
use names::ProfileNames;
use ownership::Evidence;

/// The field that names the cluster.
const CLUSTER: &str = "spec.eks-fargate.clusterName";

/// The provisioner `eks-fargate`.
pub struct Fargate;

#[async_trait]
impl Provisioner for Fargate {
    async fn walk(&self, o: &Observer<'_>, order: Order<'_>) -> Observed<Verdict> {
        let Order { id, status, settings, .. } = order;
        let wanted = match desired::parse(id, &order.spec) {
            Ok(wanted) => Wanted { join_auth: settings.join_auth, ..wanted },
            Err(problems) => return Ok(Verdict::Refused(problems)),
        };
        if let Some(problem) = elsewhere(settings, CLUSTER, &wanted.cluster) {
            return Ok(Verdict::Refused(vec![problem]));
        }
        let environment = observe::environment(o, &wanted).await?;
        let derived = ProfileNames::new(&wanted.cluster, &id.namespace, &id.name, true);
        let made = status.active_scaling_group_name.as_ref().is_some_and(|name| derived.covers(name));
        let mut distinct = made || o.memory.collided(&id.key());
        let (resolved, state) = loop {
            let resolved = match resolve::resolve(wanted.clone(), &environment, distinct) {
                Ok(resolved) => resolved,
                Err(problems) => return Ok(Verdict::Refused(problems)),
            };
            let state = observe::state(o, &resolved, status).await?;
            if distinct || !observed::taken(&state.profiles, &resolved.names, &resolved.ownership) {
                break (resolved, state);
            }
            o.memory.set_collided(&id.key());
            distinct = true;
        };
        let problems = resolve::public(&resolved, &observe::routes(o, &resolved, &state, status).await?);
        if !problems.is_empty() {
            return Ok(Verdict::Refused(problems));
        }
        let world = input::World { resolved, state };
        let plan = plan::plan(&world.input(&order.given(o.now)));
        Ok(Verdict::Planned(Box::new(plan), Box::new(world)))
    }

    async fn deletion(&self, o: &Observer<'_>, farewell: Farewell<'_>) -> Observed<Plan> {
        let Farewell { id, status, settings, .. } = farewell;
        let spec = farewell.spec.as_ref().and_then(|spec| spec.eks_fargate.clone()).unwrap_or_default();
        let Some(cluster) = ownership::recorded(status).cloned().or(spec.cluster_name).filter(|name| !name.is_empty())
        else {
            if !ownership::made(status) {
                return Ok(delete::nothing(id));
            }
            let message = format!(
                "{CLUSTER} does not say where the Fargate profile is; set it, or remove the finalizer when there is none"
            );
            return Ok(crate::plan::blocked(id, Reason::InvalidSpec, message));
        };
        if !ownership::made(status) && elsewhere(settings, CLUSTER, &cluster).is_some() {
            return Ok(never_accepted(id, &farewell.refused(CLUSTER, &cluster)));
        }
        let ownership = ownership(&cluster, id);
        let refused = !farewell.forbidden.is_empty();
        let evidence = Evidence::of(spec.pod_execution_role_arn.as_deref(), refused, status);
        let left = observe::remains(o, id, &cluster, &evidence, &ownership, status).await?;
        Ok(delete::plan(&delete::Input {
            id,
            cluster: &cluster,
            ownership: &ownership,
            forbidden: &farewell.forbidden,
            profiles: &left.profiles,
            untagged_role: left.untagged_role.as_deref(),
            role: left.role.as_ref(),
            role_in_use: left.role_in_use.as_deref(),
            auth: &left.auth,
            access: &left.access,
            after: left.after.as_deref(),
            tagging_rests: o.memory.tagging_rests(&id.key(), o.resync, o.now),
            queue: left.queue,
            status,
            timing: &settings.timing,
            now: o.now,
        }))
    }

    fn cluster_field(&self) -> &'static str {
        CLUSTER
    }

    fn cluster_on_record(&self, _: &GroupId, status: &InstanceGroupStatus) -> Option<String> {
        ownership::recorded(status).cloned()
    }
}
