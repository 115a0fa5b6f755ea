//! Replaces instances of a warm pool.

use crate::apply::{ApplyRun, StepError, StepOutcome, StepResult, ignore_not_found};
use crate::aws::AwsErrorKind;
use crate::provisioner::eks::warm_pool::may_replace;

/// Marks an instance unhealthy, so that Auto Scaling terminates and replaces it.
///
/// The plan was made from an answer that may be seconds old. Meanwhile the instance may have moved from the pool to the
/// group, where it runs pods. Or it may be ready now, and the pool would lose more than half of its instances. So the
/// controller reads from AWS again, and the next pass decides about an instance that is left alone.
pub(super) async fn replace(run: &mut ApplyRun<'_>, group: &str, instance: &str) -> StepResult {
    let inventory = run.ctx.inventory;
    inventory.invalidate_group(group);
    inventory.invalidate_warm_pool(group);
    let autoscaling = &inventory.aws().autoscaling;
    let pool = match autoscaling.describe_warm_pool(group).await {
        Err(error) if error.kind == AwsErrorKind::NotFound => return Ok(StepOutcome::Unchanged),
        answer => answer.map_err(StepError::Aws)?,
    };
    if !may_replace(&pool, instance, &run.replaced_warm_instances) {
        return Ok(StepOutcome::Unchanged);
    }
    if !(run.ctx.request_write)() {
        return Err(StepError::MayNotWrite);
    }
    let response = autoscaling.set_unhealthy(instance).await;
    inventory.invalidate_group(group);
    inventory.invalidate_warm_pool(group);
    run.replaced_warm_instances.insert(instance.to_owned());
    ignore_not_found(response)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::api::{GroupId, InstanceGroup, InstanceGroupSpec, group_id};
    use crate::apply::{Applied, Applier, AwsAuthWriter, apply};
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::inventory::{CacheConfig, Inventory};
    use crate::aws::samples::instance;
    use crate::aws::{Instance, InstanceState, WarmInstance, WarmPhase};
    use crate::index::process_state::ProcessState;
    use crate::k8s::{KubeClient, fake};
    use crate::plan::{EksStep, Plan, PlannedStep, StalledReason, blocked_plan};

    fn warm(id: &str, phase: WarmPhase) -> WarmInstance {
        let instance = Instance { state: InstanceState::Warmed, ..instance(id) };
        WarmInstance { instance, phase }
    }

    fn unlocked() -> serde_json::Value {
        serde_json::json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "web"}})
    }

    fn plan(id: &GroupId, instances: &[&str]) -> Plan {
        let step = |instance: &&str| {
            let step = EksStep::ReplaceWarmInstance { group: "web".into(), instance: (*instance).to_owned() };
            PlannedStep::new(step, Vec::new())
        };
        let steps = instances.iter().map(step).collect();
        Plan { steps, ..blocked_plan(id, StalledReason::InvalidSpec, String::new()) }
    }

    /// Applies the replacement of `instances`, which the plan saw starting, to a pool that is now in another state.
    async fn replace(pool: Vec<WarmInstance>, instances: &[&str]) -> (Applied, Vec<String>) {
        let aws = Arc::new(FakeAws::default());
        aws.update(|state| state.warm_instances = pool);
        let inventory = Inventory::with_config(aws.aws(), CacheConfig::default());
        let kube = KubeClient::new(fake::client(|_| (200, unlocked())), "test");
        let (process_state, aws_auth) = (ProcessState::default(), AwsAuthWriter::default());
        let applier = Applier::for_tests(&inventory, &kube, &process_state, &aws_auth);
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        group.metadata.namespace = Some("team".into());
        let id = group_id(&group);
        let applied = apply(&applier, &id, "1", &[], plan(&id, instances)).await;
        assert!(applied.error.is_none(), "{:?}", applied.error);
        let unhealthy = aws.data.lock().unwrap().unhealthy.clone();
        (applied, unhealthy)
    }

    #[tokio::test]
    async fn half_of_a_pool_that_came_to_rest_after_the_plan_stays() {
        let ids = ["i-1", "i-2", "i-3", "i-4"];
        let (applied, unhealthy) = replace(ids.map(|id| warm(id, WarmPhase::Ready)).into(), &ids).await;
        assert_eq!(unhealthy, ["i-1", "i-2"], "a scale-out would find no instance in the pool");
        assert_eq!((applied.steps_done, applied.unchanged_steps), (4, vec![2, 3]), "no event claims a replacement");
    }

    #[tokio::test]
    async fn instances_that_are_still_starting_are_all_replaced() {
        let (_, unhealthy) =
            replace(["i-1", "i-2", "i-3"].map(|id| warm(id, WarmPhase::Pending)).into(), &["i-1", "i-2", "i-3"]).await;
        assert_eq!(unhealthy, ["i-1", "i-2", "i-3"]);
    }

    #[tokio::test]
    async fn an_instance_that_left_the_pool_for_the_group_is_not_terminated() {
        let pool = vec![warm("i-2", WarmPhase::Leaving), warm("i-3", WarmPhase::Ready)];
        let (applied, unhealthy) = replace(pool, &["i-1", "i-2"]).await;
        assert_eq!(unhealthy, Vec::<String>::new(), "i-1 may be a node with pods");
        assert_eq!(applied.unchanged_steps, [0, 1]);
    }
}
