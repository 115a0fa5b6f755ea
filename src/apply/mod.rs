//! Applies a plan step by step and returns what was done.
//!
//! A failing step ends the pass. The exception is a denied step that the rest does not depend on, or a denied join
//! entry: see `independent_failures`. A missing permission for a tag does not stop a rotation. When AWS denies a call
//! to many groups, only a few of them try it.
//!
//! The right to write is checked before every step, and `lock-upgrades` before every disruptive step. Before every step
//! of a deletion, the controller asks the API server whether the group is still being deleted. A new group may have the
//! name. A create that finds its name taken adopts the resource only if it carries the group's tags.

mod aws_auth;
mod error;
mod iam;
mod in_place;
mod independent_failures;
mod join;
mod node;
mod object;
mod run;
mod strategy;

use std::collections::{BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use crate::api::GroupId;
use crate::aws::AwsErrorKind;
use crate::index::process_state::ProcessState;
use crate::plan::{EksStep, Pin, Plan, PlannedStep, Step, StepFields, TEMPLATE_VERSION};
pub(crate) use aws_auth::AwsAuthWriter;
pub use error::StepError;
pub use independent_failures::IndependentFailure;
use independent_failures::{IndependentFailures, Remainder};
pub(crate) use run::{
    Applier, Apply, ApplyRun, BlockedEviction, StepOutcome, StepResult, allow_tag_denied, done, ignore_not_found,
};

/// How long AWS may not know a new role or instance profile before this counts as an error. IAM documents no limit
/// ("Changes that I make are not always immediately visible"); a few seconds are usual.
const PROPAGATION_LIMIT: SignedDuration = SignedDuration::from_secs(30);

/// A plan, and how far it was applied.
#[derive(Debug)]
pub struct Applied {
    /// The plan.
    pub plan: Plan,
    /// How many of its steps were applied.
    pub steps_done: usize,
    /// Why the next step failed; `None` when all steps were applied.
    pub error: Option<StepError>,
    /// Steps that were refused while the pass went on. In the plan, they follow those that were tried, and those that depend
    /// on them come last. If no other step failed, `error` is that of the first of them.
    pub independent_failures: Vec<IndependentFailure>,
    /// Names of the steps that wait for them.
    pub waiting_steps: Vec<&'static str>,
    /// Whether `error` is that of a step in `independent_failures`.
    pub is_error_independent: bool,
    /// Evictions that a PodDisruptionBudget blocked.
    pub blocked_evictions: Vec<BlockedEviction>,
    /// Tagging steps that AWS denied; they do not end the pass.
    pub tag_denials: Vec<TagDenied>,
    /// Indexes of applied steps that found nothing to change.
    pub unchanged_steps: Vec<usize>,
    /// UID of the resource of the crd strategy that was created.
    pub created_strategy_uid: Option<String>,
    /// The resourceVersion after the last write of this pass to the InstanceGroup.
    pub resource_version: Option<String>,
}

/// A tagging step that AWS denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagDenied {
    /// Index of the step in the plan.
    pub step_index: usize,
    /// The missing permission.
    pub permission: String,
}

/// Applies a plan to the group that it was made for.
pub(crate) async fn apply(
    ctx: &Applier<'_>,
    id: &GroupId,
    resource_version: &str,
    finalizers: &[String],
    plan: Plan,
) -> Applied {
    let mut run = ApplyRun {
        ctx,
        id,
        resource_version: resource_version.to_owned(),
        evictions_end: plan.evictions_end,
        finalizers,
        created_versions: HashMap::new(),
        replaced_warm_instances: BTreeSet::new(),
        roles: HashMap::new(),
    };
    let mut applied = Applied::new(plan);
    let mut refused = IndependentFailures::default();
    while let Some(planned) = applied.plan.steps.get_mut(applied.steps_done) {
        let index = applied.steps_done;
        name_created_version(planned, &run);
        if refused.blocks(planned) {
            refused.add_dependent(applied.plan.steps.remove(index));
            continue;
        }
        let backoff_error = ctx.backoff_error(&id.key(), &planned.step);
        let was_tried = backoff_error.is_none();
        let result = match backoff_error {
            Some(error) => Err(error),
            None => run.apply_step(&planned.step).await,
        };
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => {
                if was_tried {
                    let is_expected = is_propagating(ctx.process_state, &id.key(), &error, ctx.now);
                    log_failed_step(id, planned, &error, is_expected);
                }
                if !id.is_deleting() && IndependentFailures::can_continue_without(planned, &error) {
                    refused.add(applied.plan.steps.remove(index), error);
                    continue;
                }
                applied.error = Some(error);
                break;
            }
        };
        let had_effect = !matches!(outcome, StepOutcome::Unchanged | StepOutcome::EvictionBlocked(_));
        if had_effect {
            log_applied_step(id, planned);
        }
        applied.record_outcome(outcome, &mut run);
        applied.steps_done = index + 1;
    }
    let Remainder { first_error, failures, waiting, steps } = refused.finish();
    // The step that ended the pass stays the next one.
    let index = applied.steps_done + usize::from(applied.error.is_some());
    applied.plan.steps.splice(index..index, steps);
    if applied.error.is_none() && first_error.is_some() {
        (applied.error, applied.is_error_independent) = (first_error, true);
    }
    (applied.independent_failures, applied.waiting_steps) = (failures, waiting);
    if applied.error.is_none() {
        ctx.process_state.track_unknown_profile(&id.key(), false, ctx.now);
    }
    applied
}

impl Applied {
    /// A plan of which nothing has been applied.
    pub fn new(plan: Plan) -> Self {
        Applied {
            plan,
            steps_done: 0,
            error: None,
            independent_failures: Vec::new(),
            waiting_steps: Vec::new(),
            is_error_independent: false,
            blocked_evictions: Vec::new(),
            tag_denials: Vec::new(),
            unchanged_steps: Vec::new(),
            created_strategy_uid: None,
            resource_version: None,
        }
    }

    /// Whether all steps were applied but those that were refused, and those that depend on them.
    pub(crate) fn is_complete(&self) -> bool {
        self.error.is_none() || self.is_error_independent
    }

    /// Records how the next step ended.
    fn record_outcome(&mut self, outcome: StepOutcome, run: &mut ApplyRun<'_>) {
        let (key, step_index) = (run.id.key(), self.steps_done);
        match outcome {
            StepOutcome::Applied => {}
            StepOutcome::Unchanged => self.unchanged_steps.push(step_index),
            StepOutcome::EvictionBlocked(blocked) => {
                // It is tried again and again; the condition DrainBlocked is logged once.
                tracing::debug!(group = %key, pod = %blocked.pod.name, budgets = blocked.blocker.cause, "eviction blocked");
                self.blocked_evictions.push(blocked);
            }
            StepOutcome::TagDenied(permission) => {
                run.ctx.process_state.record_tag_denied(&key, run.ctx.now);
                self.tag_denials.push(TagDenied { step_index, permission });
            }
            StepOutcome::StrategyResourceCreated(uid) => self.created_strategy_uid = Some(uid),
            StepOutcome::ObjectUpdated(version) => {
                run.resource_version.clone_from(&version);
                self.resource_version = Some(version);
            }
        }
    }
}

/// Names the launch template version that this pass created in the reasons of the step that pins it: the plan could not know
/// its number.
fn name_created_version(planned: &mut PlannedStep, run: &ApplyRun<'_>) {
    let Step::Eks(EksStep::UpdateGroup { pin: Some(Pin::Made { hash }), .. }) = &planned.step else { return };
    let Some(created) = run.created_version(hash) else { return };
    for reason in planned.reasons.iter_mut().filter(|reason| reason.field == TEMPLATE_VERSION) {
        reason.to.clone_from(&created.version);
    }
}

/// Whether a step failed only because IAM has yet to make a new role or instance profile known to other services, which
/// happens at the creation of nearly every group.
fn is_propagating(state: &ProcessState, group: &str, error: &StepError, now: Timestamp) -> bool {
    let is_unknown = matches!(error, StepError::Aws(error) if error.kind == AwsErrorKind::InvalidProfile);
    is_unknown && state.track_unknown_profile(group, true, now) < PROPAGATION_LIMIT
}

/// Logs one line for each write: the text of its event, with its objects as fields. Events expire after an hour; then
/// only the log says which instance was terminated, and why.
fn log_applied_step(id: &GroupId, planned: &PlannedStep) {
    let StepFields { node, instance, pod, resource, version } = planned.step.info().fields();
    let (group, step, reasons) = (id.key(), planned.step.name(), Some(planned.why()).filter(|why| !why.is_empty()));
    tracing::info!(group, step, node, instance, pod, resource, version, reasons, "{}", planned.step.info().log_text());
}

fn log_failed_step(id: &GroupId, planned: &PlannedStep, error: &StepError, is_expected: bool) {
    let StepFields { node, instance, pod, resource, version } = planned.step.info().fields();
    let (group, step) = (id.key(), planned.step.name());
    if matches!(error, StepError::RolloutBlocked(_)) {
        return tracing::info!(group, step, node, instance, resource, %error, "the step waits for the rollout");
    }
    if is_expected {
        return tracing::info!(group, step, resource, %error, "waiting for IAM to propagate a new role or profile");
    }
    tracing::warn!(group, step, node, instance, pod, resource, version, %error, "step failed");
}

impl ApplyRun<'_> {
    async fn apply_step(&mut self, step: &Step) -> StepResult {
        match self.id.is_deleting() {
            true => self.check_deletion().await?,
            false if step.is_disruptive() => self.check_locks().await?,
            false => {}
        }
        if step.begins_replacement()
            && let Some(rollout_block) = (self.ctx.rollout_block)(step)
        {
            return Err(StepError::RolloutBlocked(rollout_block));
        }
        // The last check, so that nothing is awaited between it and the write.
        if !(self.ctx.request_write)() {
            return Err(StepError::MayNotWrite);
        }
        match step {
            Step::Object(step) => step.apply(self).await,
            Step::Iam(step) => step.apply(self).await,
            Step::Join(step) => step.apply(self).await,
            Step::Node(step) => step.apply(self).await,
            Step::Strategy(step) => step.apply(self).await,
            Step::Eks(step) => step.apply(self).await,
            Step::Nodegroup(step) => step.apply(self).await,
            Step::Fargate(step) => step.apply(self).await,
        }
    }

    /// Asks the API server, not a cache, whether this group is still being deleted.
    async fn check_deletion(&self) -> Result<(), StepError> {
        let uid = self.ctx.kube.group_deletion(&self.id.namespace, &self.id.name).await.map_err(StepError::Kube)?;
        if uid.as_deref() == Some(self.id.uid.as_str()) { Ok(()) } else { Err(StepError::GroupGone) }
    }

    /// Reads `lock-upgrades` from the objects themselves, not from a cache, right before a disruptive step.
    async fn check_locks(&self) -> Result<(), StepError> {
        let locks = self
            .ctx
            .kube
            .locks(&self.id.namespace, &self.id.name, self.ctx.config_namespace)
            .await
            .map_err(StepError::Kube)?;
        locks.only(self.ctx.counted_locks).holder().map_or(Ok(()), |holder| Err(StepError::Locked(holder)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;
    use crate::api::names::annotation;
    use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};
    use crate::auth::aws_auth::AuthEntry;
    use crate::aws::AwsError;
    use crate::aws::ScalingGroupChange;
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::inventory::{CacheConfig, Inventory};
    use crate::k8s::{KubeClient, fake};
    use crate::plan::{
        EksStep, InPlaceChange, InPlaceRecord, JoinStep, NodeStep, ObjectStep, Pin, PodRef, Reason, UncordonReason,
        blocked_plan,
    };

    /// Applies steps while the rollout blocks the group for this reason. Returns the error and the writes.
    async fn apply_blocked(steps: Vec<NodeStep>, rollout_block: Option<&str>) -> (Option<String>, Vec<String>) {
        let (applied, writes) = apply_steps(steps, rollout_block, |call| {
            let kind = if call.path.contains("/pods/") { "Pod" } else { "Node" };
            (200, json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": "any"}}))
        })
        .await;
        (applied.error.map(|error| error.to_string()), writes)
    }

    /// Applies steps to an API server that answers like this. Returns the writes that it got.
    async fn apply_steps(
        steps: Vec<impl Into<Step>>,
        rollout_block: Option<&str>,
        answer: impl Fn(&fake::Call) -> (u16, serde_json::Value) + Clone + Send + Sync + 'static,
    ) -> (Applied, Vec<String>) {
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        group.metadata.namespace = Some("team".into());
        apply_steps_to(&group, steps, rollout_block, answer).await
    }

    /// Applies steps to this group, as [`apply_steps`] does.
    async fn apply_steps_to(
        group: &InstanceGroup,
        steps: Vec<impl Into<Step>>,
        rollout_block: Option<&str>,
        answer: impl Fn(&fake::Call) -> (u16, serde_json::Value) + Clone + Send + Sync + 'static,
    ) -> (Applied, Vec<String>) {
        let writes = Arc::new(Mutex::new(Vec::new()));
        let seen = writes.clone();
        let client = fake::client(move |call| {
            if call.method != "GET" {
                seen.lock().expect("lock is not poisoned").push(format!("{} {}", call.method, call.path));
            }
            answer(&call)
        });
        let id = group_id(group);
        let steps = steps.into_iter().map(|step| PlannedStep::new(step, Vec::new())).collect();
        let plan = Plan { steps, ..blocked_plan(&id, Reason::InvalidSpec, String::new()) };
        let inventory = Inventory::with_config(Arc::new(FakeAws::default()).aws(), CacheConfig::default());
        let (kube, process_state) = (KubeClient::new(client, "test"), ProcessState::default());
        let aws_auth = AwsAuthWriter::default();
        let applier = Applier {
            rollout_block: &|_| rollout_block.map(str::to_owned),
            ..Applier::for_tests(&inventory, &kube, &process_state, &aws_auth)
        };
        let applied = apply(&applier, &id, "1", &[], plan).await;
        let writes = writes.lock().expect("lock is not poisoned").clone();
        (applied, writes)
    }

    /// The plan read the Node from a cache. Another instance may have its name now, and another client may write to it
    /// between the read and the patch.
    #[tokio::test]
    async fn only_the_node_of_the_instance_changes_in_place_and_only_as_it_was_read() {
        let change = InPlaceChange {
            set_labels: [("team".to_owned(), "b".to_owned())].into(),
            record: InPlaceRecord { instance: "i-1".into(), ..InPlaceRecord::default() },
            ..InPlaceChange::default()
        };
        let step = || NodeStep::ChangeNodeInPlace { node: "n".into(), instance: "i-1".into(), change: change.clone() };
        let node = |instance: &str| {
            let spec = json!({"providerID": format!("aws:///us-west-2a/{instance}")});
            json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "resourceVersion": "7"}, "spec": spec})
        };
        let (own, other) = (node("i-1"), node("i-2"));
        let (applied, writes) = apply_steps(vec![step()], None, move |_| (200, other.clone())).await;
        assert_eq!((applied.unchanged_steps, writes), (vec![0], vec![]), "the Node of another instance");
        let gone = |_: &fake::Call| fake::failure(404, "NotFound", "gone");
        let (applied, writes) = apply_steps(vec![step()], None, gone).await;
        assert_eq!((applied.error.is_none(), applied.unchanged_steps, writes), (true, vec![0], vec![]));
        let (node, patch) = (own.clone(), "PATCH /api/v1/nodes/n");
        let (applied, writes) = apply_steps(vec![step()], None, move |_| (200, node.clone())).await;
        assert_eq!((applied.error.is_none(), applied.unchanged_steps.len(), writes), (true, 0, vec![patch.to_owned()]));
        let conflict = move |call: &fake::Call| match call.method.as_str() {
            "GET" => (200, own.clone()),
            _ => fake::failure(409, "Conflict", "changed"),
        };
        let (applied, writes) = apply_steps(vec![step()], None, conflict).await;
        assert!(matches!(&applied.error, Some(StepError::Kube(error)) if error.is_conflict()), "{applied:?}");
        assert_eq!(writes.len(), 1, "the next pass reads it again");
    }

    /// One missing permission would keep the group from everything: a change of its sizes, a rotation, a repair.
    #[tokio::test]
    async fn refused_step_blocks_only_steps_that_depend_on_it() {
        let entry = AuthEntry::for_nodes("arn:aws:iam::1:role/nodes", false);
        let pin = Some(Pin::Version { template: "lt-1".into(), number: 2 });
        let steps = || -> Vec<Step> {
            vec![
                JoinStep::PutAwsAuthEntry(entry.clone()).into(),
                EksStep::UpdateGroup { group: "g".into(), change: ScalingGroupChange::default(), pin: pin.clone() }
                    .into(),
                NodeStep::UncordonNode { node: "n".into(), reason: UncordonReason::RotationBlocked }.into(),
                NodeStep::Terminate {
                    scaling_group: "g".into(),
                    instance: "i-1".into(),
                    node: None,
                    decrement_desired: false,
                }
                .into(),
            ]
        };
        let record = json!({annotation::DISRUPTION: "{}"});
        let answer = move |call: &fake::Call| match call.path.contains("configmaps") {
            true => fake::failure(403, "Forbidden", "configmaps is forbidden"),
            false => (
                200,
                json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "resourceVersion": "7", "annotations": record}}),
            ),
        };
        let (applied, writes) = apply_steps(steps(), None, answer).await;
        assert_eq!(writes.last().map(String::as_str), Some("PATCH /api/v1/nodes/n"), "{writes:?}");
        assert!(applied.is_complete() && applied.steps_done == 1, "{applied:?}");
        let names: Vec<_> = applied.plan.steps.iter().map(|planned| planned.step.name()).collect();
        assert_eq!(names, ["UncordonNode", "PutAwsAuthEntry", "UpdateGroup", "Terminate"], "new nodes could not join");
        assert_eq!(applied.waiting_steps, ["UpdateGroup", "Terminate"]);
        assert!(applied.error.is_some_and(|error| error.stalled_reason() == Some(Reason::MissingPermission)));
        let lost = |call: &fake::Call| match call.path.contains("configmaps") {
            true => fake::failure(503, "ServiceUnavailable", "away"),
            false => panic!("{call:?}"),
        };
        let (applied, _) = apply_steps(steps(), None, lost).await;
        assert!(!applied.is_complete() && applied.steps_done == 0, "nobody knows whether it was done: {applied:?}");
    }

    /// What the record says would not be so, and nothing would set the tags any more.
    #[tokio::test]
    async fn record_of_a_refused_step_is_not_written() {
        let steps = |first: Step| vec![first, ObjectStep::UpdateStatus { status: json!({}) }.into()];
        let denied = |_: &fake::Call| fake::failure(403, "Forbidden", "no");
        let change = InPlaceChange { record: InPlaceRecord::default(), ..InPlaceChange::default() };
        let first = NodeStep::ChangeNodeInPlace { node: "n".into(), instance: "i-1".into(), change };
        let (applied, writes) = apply_steps(steps(first.into()), None, denied).await;
        assert!(applied.steps_done == 0 && writes.is_empty() && !applied.is_complete(), "{applied:?}");
    }

    /// The reported next step must be the one that ended the pass, so that the user sees what the group waits for.
    #[tokio::test]
    async fn step_that_ends_the_pass_stays_the_next_one() {
        let entry = AuthEntry::for_nodes("arn:aws:iam::1:role/nodes", false);
        let steps: Vec<Step> = vec![
            JoinStep::PutAwsAuthEntry(entry).into(),
            NodeStep::UncordonNode { node: "n".into(), reason: UncordonReason::RotationBlocked }.into(),
        ];
        let answer = |call: &fake::Call| match call.path.contains("configmaps") {
            true => fake::failure(403, "Forbidden", "configmaps is forbidden"),
            false => fake::failure(503, "ServiceUnavailable", "away"),
        };
        let (applied, _) = apply_steps(steps, None, answer).await;
        let names: Vec<_> = applied.plan.steps.iter().map(|planned| planned.step.name()).collect();
        assert_eq!((names, applied.steps_done), (vec!["UncordonNode", "PutAwsAuthEntry"], 0));
        assert!(!applied.is_complete() && applied.error.is_some_and(|error| error.stalled_reason().is_none()));
    }

    /// A person removes the finalizer, and Argo CD creates the group again: the nodes belong to the new group.
    #[tokio::test]
    async fn deletion_does_not_terminate_nodes_of_a_recreated_group() {
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        group.metadata.namespace = Some("team".into());
        group.metadata.uid = Some("uid-1".into());
        group.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
        let pod = PodRef { namespace: "apps".into(), name: "p".into(), uid: "uid-p".into() };
        let steps = || vec![NodeStep::ForceDelete { node: "n".into(), pod: pod.clone() }];
        let answer = |uid: &'static str, deleted: Option<&'static str>| {
            move |call: &fake::Call| match call.path.contains("instancegroups") {
                true => (
                    200,
                    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "web", "uid": uid, "deletionTimestamp": deleted}}),
                ),
                false => (200, json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}})),
            }
        };
        let at = Some("1970-01-01T00:00:00Z");
        let (applied, writes) = apply_steps_to(&group, steps(), None, answer("uid-1", at)).await;
        assert_eq!((applied.error.is_none(), writes.len()), (true, 1), "{:?}", applied.error);
        for other in [answer("uid-2", None), answer("uid-2", at)] {
            let (applied, writes) = apply_steps_to(&group, steps(), None, other).await;
            assert!(matches!(applied.error, Some(StepError::GroupGone)), "{:?}", applied.error);
            assert_eq!(writes, Vec::<String>::new());
        }
        let gone = |_: &fake::Call| fake::failure(404, "NotFound", "gone");
        let (applied, writes) = apply_steps_to(&group, steps(), None, gone).await;
        assert!(matches!(applied.error, Some(StepError::GroupGone)) && writes.is_empty(), "{applied:?}");
    }

    /// A window may close while the plan is made; a drain that has begun goes to its end.
    #[tokio::test]
    async fn rollout_block_stops_new_replacements() {
        let text = |text: &str| text.to_owned();
        let cordon = NodeStep::CordonNode {
            node: text("n"),
            resource_version: text("1"),
            instance: text("i-1"),
            template_version: text("2"),
            was_cordoned: false,
        };
        let pod = PodRef { namespace: text("apps"), name: text("p"), uid: text("uid-p") };
        let drain = NodeStep::ForceDelete { node: text("n"), pod };
        let closed = Some("the window closed");
        assert_eq!(apply_blocked(vec![cordon.clone()], closed).await, (closed.map(text), vec![]));
        assert_eq!(
            apply_blocked(vec![drain], closed).await,
            (None, vec![text("DELETE /api/v1/namespaces/apps/pods/p")])
        );
        let (error, writes) = apply_blocked(vec![cordon], None).await;
        assert_eq!((error, writes.len()), (None, 1));
    }

    /// A warning at each creation would teach people to ignore warnings. Without any warning, a deleted profile would
    /// go unnoticed.
    #[test]
    fn unknown_profile_is_expected_for_half_a_minute() {
        let state = ProcessState::default();
        let at = |second| Timestamp::from_second(second).expect("a time");
        let unknown = "Invalid IAM Instance Profile name";
        let expected = |message: &str, second| {
            let error =
                AwsError::from_response("AutoScaling", "CreateAutoScalingGroup", "ValidationError", message, 400);
            is_propagating(&state, "team/web", &StepError::Aws(error), at(second))
        };
        assert_eq!([0, 8, 24, 56].map(|second| expected(unknown, second)), [true, true, true, false]);
        assert!(!expected("the subnet does not exist", 1), "another error is none that passes by itself");
        state.track_unknown_profile("team/web", false, at(60));
        assert!(expected(unknown, 4000), "another profile, hours later");
    }
}
