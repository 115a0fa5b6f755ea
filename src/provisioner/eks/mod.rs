//! The provisioner `eks`: a launch template, a scaling group, and a role.

pub mod adopt;
pub mod apply;
pub mod create;
pub mod delete;
pub mod desired;
pub mod input;
pub mod join;
pub mod launch_configuration;
pub mod launch_template;
pub mod names;
pub mod observe;
pub mod observed;
pub mod ownership;
pub mod plan;
pub mod record;
pub mod release;
pub mod resolve;
pub mod role;
pub mod rotation;
pub mod scaling_group;
pub mod simulate;
pub mod user_data;
pub mod warm_pool;

use async_trait::async_trait;
use jiff::Timestamp;

use super::{Farewell, GroupId, Order, Provisioner, Verdict, elsewhere};
use crate::api::InstanceGroupStatus;
use crate::api::spec_error::Problem;
use crate::plan::{Draft, ObjectStep, Outcome, Plan};
use crate::provisioner::observe::{Observed, Observer};
use crate::rotation::crd::Allowed;
use names::GroupNames;
use observe::{references, remaining_resources};
use scaling_group::spot::recommended;
use user_data::OsFamily;

/// The provisioner `eks`.
pub struct Eks;

#[async_trait]
impl Provisioner for Eks {
    async fn walk(&self, o: &Observer<'_>, mut order: Order<'_>) -> Observed<Verdict> {
        let wanted = match wanted(&mut order, o.now) {
            Ok(wanted) => wanted,
            Err(problems) => return Ok(Verdict::Refused(problems)),
        };
        let Order { id, status, .. } = order;
        if order.new {
            expect(o, &wanted.cluster, id);
        }
        let environment = references::environment(o, &wanted).await?;
        let mut distinct = goes_by_a_hash(&wanted, status);
        let (resolved, state) = loop {
            let resolved = match resolve::resolve(wanted.clone(), &environment, distinct) {
                Ok(resolved) => resolved,
                Err(problems) => return Ok(Verdict::Refused(problems)),
            };
            let state = observe::state(o, &resolved, status).await?;
            // A scaling group that is there keeps its name, whatever else of the name was refused.
            let collided = state.group.is_none() && o.memory.collided(&id.key());
            if distinct || !(collided || ownership::taken(&resolved, &state, status)) {
                break (resolved, state);
            }
            o.memory.set_collided(&id.key());
            distinct = true;
        };
        if let Some(looked) = references::looked(o, &resolved, &state, status).await? {
            let problems = launch_template::launch_checks::problems(&resolved, &looked);
            if !problems.is_empty() {
                return Ok(Verdict::Refused(problems));
            }
        }
        let world = input::World { resolved, state };
        let plan = plan::plan(&world.input(&order.given(o.now)));
        Ok(Verdict::Planned(Box::new(plan), Box::new(world)))
    }

    async fn deletion(&self, o: &Observer<'_>, farewell: Farewell<'_>) -> Observed<Plan> {
        let Farewell { id, status, settings, .. } = farewell;
        let Some(remaining_resources::Traces { names, ownership, .. }) = remaining_resources::traces(id, status) else {
            return Ok(nothing_made(id));
        };
        let left = remaining_resources::remains(o, id, &names, &ownership, status).await?;
        let managed = status.managed.clone().unwrap_or_default();
        let our_policies: Vec<_> =
            left.attached.iter().filter(|p| delete::standard(p) || managed.policies.contains(p)).cloned().collect();
        Ok(delete::plan(&delete::Input {
            id,
            ownership: &ownership,
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
            adopted: &managed.adopted.clone().unwrap_or_default(),
            auth: &left.auth,
            access: &left.access,
            after: left.after.as_deref(),
            timing: &settings.timing,
            now: o.now,
        }))
    }

    fn cluster_field(&self) -> &'static str {
        resolve::CLUSTER
    }

    fn cluster_on_record(&self, id: &GroupId, status: &InstanceGroupStatus) -> Option<String> {
        remaining_resources::traces(id, status).map(|traces| traces.cluster)
    }
}

/// Everything that can be wrong with the merged spec itself.
fn wanted(order: &mut Order, now: Timestamp) -> Result<desired::Wanted, Vec<Problem>> {
    let settings = order.settings;
    if let Some(eks) = order.spec.eks.as_mut().filter(|e| e.r#type.as_deref().unwrap_or_default().is_empty()) {
        eks.r#type = Some(settings.default_kind.as_str().into());
    }
    let recommended = recommended(&mut order.spec, order.status, order.recommendations, now);
    let mut wanted = desired::parse(order.id, order.annotations, &order.spec)?;
    wanted.recommended = recommended;
    wanted.join_auth = settings.join_auth;
    if let Some(crd) = &mut wanted.crd {
        let policy = order.policy.cloned().unwrap_or_default();
        crd.allowed = Allowed { policy, config_namespace: settings.config_namespace.clone() };
    }
    wanted.asks_for_endpoint = settings.windows_asks_for_endpoint && wanted.family == OsFamily::Windows;
    match elsewhere(settings, resolve::CLUSTER, &wanted.cluster) {
        Some(problem) => Err(vec![problem]),
        None => Ok(wanted),
    }
}

/// New groups are nearly always of one cluster: the first looks at all of them.
fn expect(o: &Observer<'_>, cluster: &str, id: &GroupId) {
    for id in o.groups.new_ones(&id.key()) {
        let names = GroupNames::new(cluster, &id.namespace, &id.name);
        o.inventory.expect(names.scaling_group(), names.launch_template(id.created));
    }
}

/// Whether the group went by names with a hash before, because someone else had the derived ones.
fn goes_by_a_hash(wanted: &desired::Wanted, status: &InstanceGroupStatus) -> bool {
    let derived = GroupNames::new(&wanted.cluster, &wanted.id.namespace, &wanted.id.name);
    let taken = derived.distinct(&derived.scaling_group());
    status.active_scaling_group_name.as_ref() == Some(&taken)
}

/// The status names nothing, so there is nothing.
fn nothing_made(id: &GroupId) -> Plan {
    let mut draft = Draft::default();
    if id.finalizer {
        draft.step(ObjectStep::RemoveFinalizer);
    }
    draft.decide(Outcome::Deleted);
    draft.finish(id, None)
}
