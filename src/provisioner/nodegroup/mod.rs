//! The provisioner `eks-managed`: node groups that EKS makes, updates and drains.

pub mod adopt;
pub mod apply;
pub mod blue_green;
pub mod create;
pub mod delete;
pub mod desired;
pub mod health;
pub mod input;
pub mod names;
pub mod observe;
pub mod observed;
pub mod plan;
pub mod record;
pub mod resolve;
pub mod simulate;
pub mod update;

use async_trait::async_trait;

use super::{Farewell, GroupId, Order, Provisioner, Verdict, elsewhere, never_accepted};
use crate::api::InstanceGroupStatus;
use crate::api::spec_error::Problem;
use crate::ownership::ownership;
use crate::plan::Plan;
use crate::provisioner::observe::{ObserveError, Observed, Observer};
use desired::Wanted;
use observed::Whose;

/// The field that names the cluster.
const CLUSTER: &str = "spec.eks-managed.configuration.clusterName";

/// The provisioner `eks-managed`.
pub struct EksManaged;

#[async_trait]
impl Provisioner for EksManaged {
    async fn walk(&self, o: &Observer<'_>, order: Order<'_>) -> Observed<Verdict> {
        let wanted = match wanted(&order) {
            Ok(wanted) => wanted,
            Err(problems) => return Ok(Verdict::Refused(problems)),
        };
        let network = observe::network(o, &wanted).await?;
        let resolved = match resolve::resolve(wanted, &network) {
            Ok(resolved) => resolved,
            Err(problems) => return Ok(Verdict::Refused(problems)),
        };
        let state = observe::state(o, &resolved, order.status, order.lock).await?;
        let world = input::World { resolved, state };
        let plan = plan::plan(&world.input(&order.given(o.now)));
        Ok(Verdict::Planned(Box::new(plan), Box::new(world)))
    }

    async fn deletion(&self, o: &Observer<'_>, farewell: Farewell<'_>) -> Observed<Plan> {
        let Farewell { id, status, .. } = farewell;
        let mut names: Vec<_> = observe::recorded(status).collect();
        let mut nodegroups = Vec::new();
        // A group that was never looked at is known by its spec alone.
        let spec = farewell.spec.as_ref().filter(|_| names.is_empty());
        let wanted = spec.and_then(|spec| desired::parse(id, &id.annotations, spec).ok());
        if let Some(wanted) = wanted.as_ref().filter(|_| !delete::told(status)) {
            let problems = farewell.refused(CLUSTER, &wanted.cluster);
            if !problems.is_empty() {
                return Ok(never_accepted(id, &problems));
            }
        }
        let resolved = match wanted {
            Some(wanted) => resolve::resolve(wanted.clone(), &observe::network(o, &wanted).await?).ok(),
            None => None,
        };
        if let Some(resolved) = &resolved {
            names = observe::candidates(o, resolved, status).await?;
        }
        for name in names {
            let found = o.inventory.nodegroup(&name, o.max_age).await.map_err(ObserveError::Aws)?;
            let Some(found) = found else {
                o.inventory.forget_nodegroup(&name);
                continue;
            };
            let judged = resolved.as_ref().map(|resolved| observe::judged(o, resolved, status, &found));
            if judged.is_none_or(Whose::may_go) {
                nodegroups.push((*found).clone());
            }
        }
        Ok(delete::plan(&delete::Input {
            id,
            ownership: &|cluster: &str| ownership(cluster, id),
            status,
            resolved: resolved.as_ref(),
            nodegroups: &nodegroups,
            tagging_rests: o.memory.tagging_rests(&id.key(), o.resync, o.now),
        }))
    }

    fn cluster_field(&self) -> &'static str {
        CLUSTER
    }

    fn cluster_on_record(&self, _: &GroupId, status: &InstanceGroupStatus) -> Option<String> {
        observe::recorded(status).next().map(|name| name.cluster)
    }
}

/// Everything that can be wrong with the merged spec itself.
fn wanted(order: &Order) -> Result<Wanted, Vec<Problem>> {
    let wanted = desired::parse(order.id, order.annotations, &order.spec)?;
    match elsewhere(order.settings, CLUSTER, &wanted.cluster) {
        Some(problem) => Err(vec![problem]),
        None => Ok(wanted),
    }
}
