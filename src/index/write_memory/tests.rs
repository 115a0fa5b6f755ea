use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};
use crate::auth::aws_auth::AuthEntry;
use crate::aws::nodegroup::{NodegroupChange, NodegroupName, NodegroupSizes};
use crate::aws::{AccessEntryType, LifecycleHook, NewAccessEntry, ScalingGroupChange, Tag, WarmSizes};
use crate::plan::write::status_write;
use crate::plan::{
    Drift, EksStep, EventReason, FargateStep, IamStep, JoinStep, NodeStep, NodegroupStep, ObjectStep, Pin, PlanBuilder,
    StalledReason, UncordonReason,
};

const RESYNC: Duration = Duration::from_secs(300);
const GROUP: &str = "demo-team-web";

fn at(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(1_700_000_000_000 + milliseconds).expect("a time")
}

fn plan(steps: Vec<PlannedStep>, outcome: Outcome) -> Plan {
    let mut builder = PlanBuilder::with_outcome(outcome);
    builder.steps = steps;
    builder.build(&group_id(&InstanceGroup::new("web", InstanceGroupSpec::default())), None)
}

fn changing() -> Outcome {
    Outcome::Progressing { phase: Phase::Modifying, message: "changing in place".into(), recheck: Recheck::Immediately }
}

fn because(step: impl Into<crate::plan::Step>, field: &str, from: &str, to: &str) -> PlannedStep {
    PlannedStep::new(step, vec![Drift::new(field, from, to)])
}

fn tag(key: &str, value: &str) -> Tag {
    Tag { key: key.into(), value: value.into() }
}

fn put_tag(from: &str, to: &str) -> PlannedStep {
    let step = EksStep::PutTags { group: GROUP.into(), tags: vec![tag("cost", to)] };
    because(step, "tags[cost]", from, to)
}

fn hook() -> LifecycleHook {
    LifecycleHook {
        name: "drain".into(),
        transition: "autoscaling:EC2_INSTANCE_TERMINATING".into(),
        default_result: "CONTINUE".into(),
        heartbeat_timeout: 120,
        notification_arn: None,
        metadata: None,
        role_arn: None,
    }
}

fn update_group(change: ScalingGroupChange, pin: Option<Pin>) -> EksStep {
    EksStep::UpdateGroup { group: GROUP.into(), change, pin }
}

/// A group that is reconciled whenever the controller requeues it, and what it wrote.
#[derive(Default)]
struct Loop {
    memory: WriteMemory,
    /// Times of the writes in milliseconds, by the name of the step.
    written: Vec<(i64, &'static str)>,
}

impl Loop {
    /// One reconcile. Returns the plan as it was applied.
    fn pass(&mut self, milliseconds: i64, spec: &str, plan: Plan) -> Plan {
        let mut plan = plan;
        self.memory.suppress_repeats(&mut plan, spec, RESYNC, at(milliseconds));
        let writes = plan.steps.iter().filter(|planned| !planned.step.is_status_write());
        self.written.extend(writes.map(|planned| (milliseconds, planned.step.name())));
        self.memory.record(plan.steps.iter(), at(milliseconds));
        plan
    }

    /// Reconciles for `seconds` while each pass shows the same difference. `poll`: how often other triggers come.
    fn run(&mut self, seconds: i64, poll: i64, steps: &[PlannedStep]) {
        let (mut now, end) = (0, seconds * 1000);
        while now < end {
            let applied = self.pass(now, "1", plan(steps.to_vec(), changing()));
            now += match applied.outcome {
                Outcome::Progressing { recheck: Recheck::Immediately, .. } => 20,
                Outcome::Progressing { recheck: Recheck::After(delay), .. } => {
                    i64::try_from(delay.as_millis()).expect("a delay").clamp(20, poll)
                }
                _ => poll,
            };
        }
    }

    fn message(&self) -> String {
        let condition = self.memory.condition(true).expect("a condition");
        assert!(condition.status && condition.reason == "WrittenRepeatedly", "{condition:?}");
        condition.message
    }
}

/// Every kind of attribute that the controller writes through a plan, and a word of the report.
fn every_kind() -> Vec<(Vec<PlannedStep>, &'static str)> {
    let group = || GROUP.to_owned();
    let nodegroup = || NodegroupName { cluster: "demo".into(), nodegroup: "team-web".into() };
    let access_entry = NewAccessEntry {
        cluster: "demo".into(),
        principal: "arn:aws:iam::1:role/web".into(),
        kind: AccessEntryType::Ec2Linux,
        own_role: true,
        tags: Vec::new(),
    };
    let sizes = NodegroupSizes { min: 1, max: 3, desired: None };
    let node_change = NodegroupChange {
        sizes: Some(sizes),
        set_labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        ..NodegroupChange::default()
    };
    let update_nodegroup = NodegroupStep::UpdateNodegroup {
        nodegroup: nodegroup(),
        change: node_change,
        token: "differs".into(),
        change_hash: "hash".into(),
        disrupts_nodes: false,
    };
    let tag_nodegroup = NodegroupStep::TagNodegroup {
        nodegroup: nodegroup(),
        arn: "arn".into(),
        tags: BTreeMap::from([("cost".to_owned(), "42".to_owned()), ("owner".to_owned(), "us".to_owned())]),
    };
    let tag_profile = FargateStep::TagFargateProfile {
        cluster: "demo".into(),
        profile: "team-web".into(),
        arn: "arn".into(),
        tags: vec![tag("cost", "42")],
    };
    let cordon = NodeStep::CordonNode {
        node: "node-1".into(),
        resource_version: "7".into(),
        instance: "i-1".into(),
        template_version: "1".into(),
        was_cordoned: false,
    };
    let pin = Pin::Version { template: "lt-1".into(), number: 2 };
    let warm_pool = EksStep::PutWarmPool {
        group: group(),
        sizes: WarmSizes { min: 1, max: None },
        state: None,
        reuse_on_scale_in: None,
    };
    let entry = AuthEntry::for_nodes("arn:aws:iam::1:role/web", false);
    let min = ScalingGroupChange { min: Some(2), ..ScalingGroupChange::default() };
    let subnets = ScalingGroupChange { subnets: Some(vec!["subnet-1".into()]), ..ScalingGroupChange::default() };
    let policy = IamStep::AttachPolicy { role: "web".into(), policy: "arn:policy".into() };
    let processes = || vec!["AZRebalance".to_owned()];
    let put_hook = because(EksStep::PutHook { group: group(), hook: hook() }, "lifecycleHooks[drain]", "1m", "2m");
    vec![
        (vec![because(update_group(min, None), "minSize", "1", "2")], "minSize"),
        (vec![because(update_group(subnets, None), "subnets", "subnet-2", "subnet-1")], "subnets"),
        (
            vec![because(update_group(ScalingGroupChange::default(), Some(pin)), "template version", "1", "2")],
            "template version",
        ),
        (vec![put_tag("41", "42")], "tags[cost]"),
        (
            vec![because(EksStep::DeleteTags { group: group(), keys: vec!["old".into()] }, "tags[old]", "1", "")],
            "nothing",
        ),
        (
            vec![because(
                EksStep::SuspendProcesses { group: group(), processes: processes() },
                "suspendProcesses",
                "",
                "AZRebalance",
            )],
            "AZRebalance",
        ),
        (
            vec![because(
                EksStep::EnableMetrics { group: group(), metrics: vec!["GroupMinSize".into()] },
                "metricsCollection",
                "",
                "GroupMinSize",
            )],
            "metricsCollection",
        ),
        (vec![EksStep::DeleteHook { group: group(), hook: "drain".into() }.into(), put_hook], "lifecycleHooks[drain]"),
        (vec![because(warm_pool, "warmPool.minSize", "0", "1")], "warmPool"),
        (vec![EksStep::TagTemplate { template: "lt-1".into(), tags: vec![tag("a", "b")] }.into()], "TagTemplate"),
        (vec![because(policy, "managedPolicies", "", "arn:policy")], "managedPolicies"),
        (vec![JoinStep::PutAwsAuthEntry(entry).into()], "kube-system/aws-auth"),
        (vec![JoinStep::PutAccessEntry(access_entry).into()], "PutAccessEntry"),
        (
            vec![PlannedStep::new(
                update_nodegroup,
                vec![Drift::new("minSize", 0, 1), Drift::new("nodeLabels[a]", "", "b")],
            )],
            "nodeLabels[a]",
        ),
        (vec![because(tag_nodegroup, "tags[cost]", "41", "42")], "tags[cost]"),
        (vec![because(tag_profile, "tags.cost", "41", "42")], "tags.cost"),
        (vec![PlannedStep::from(cordon)], "managedFields of the Node"),
        (vec![ObjectStep::AddFinalizer.into()], "metadata.managedFields"),
    ]
}

/// AWS does not show what was written, or another writer reverts it before the next read. The old behavior was a write
/// in each pass: 9,000 in this time.
#[test]
fn ineffective_writes_back_off_for_each_kind_of_attribute() {
    for (steps, word) in every_kind() {
        let mut group = Loop::default();
        group.run(180, 1000, &steps);
        let first = steps[0].step.name();
        let times: Vec<_> = group.written.iter().filter(|(_, name)| *name == first).map(|(at, _)| *at / 1000).collect();
        assert_eq!(times, [0, 1, 3, 7, 15, 31, 63, 127], "{first}");
        assert_eq!(group.written.len(), times.len() * steps.len(), "{first}");
        let message = group.message();
        assert!(message.contains(word) && message.contains(" may write it: "), "{message}");
    }
}

/// Another writer undoes it later, and in between it is shown as written. A watch starts a pass at each change.
#[test]
fn fight_with_another_writer_slows_down_and_is_reported() {
    for (steps, _) in every_kind() {
        let mut group = Loop::default();
        for second in 0..180 {
            group.pass(second * 1000, "1", plan(steps.clone(), changing()));
            group.pass(second * 1000 + 500, "1", plan(Vec::new(), Outcome::Converged));
        }
        let writes = group.written.len() / steps.len();
        assert_eq!(writes, 8, "{:?}", group.written);
        assert!(group.memory.condition(false).expect("a condition").status);
        assert!(group.pass(0, "1", plan(Vec::new(), Outcome::Converged)).steps.is_empty());
    }
}

#[test]
fn interval_ends_at_the_resync_period() {
    let mut group = Loop::default();
    group.run(3600, 1000, &[put_tag("41", "42")]);
    let times: Vec<_> = group.written.iter().map(|(at, _)| at / 1000).collect();
    let intervals: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(intervals.iter().all(|interval| *interval <= 300) && intervals.ends_with(&[300, 300]), "{intervals:?}");
}

/// A rotation, a spec that toggles, and a user's own changes are no repetitions.
#[test]
fn different_writes_are_not_delayed() {
    let mut group = Loop::default();
    for pass in 0..20 {
        let cordon = NodeStep::CordonNode {
            node: format!("node-{pass}"),
            resource_version: "1".into(),
            instance: format!("i-{pass}"),
            template_version: "1".into(),
            was_cordoned: false,
        };
        let max = ScalingGroupChange { max: Some(20 - i32::try_from(pass).unwrap()), ..ScalingGroupChange::default() };
        let value = if pass % 2 == 0 { ("a", "b") } else { ("b", "a") };
        let mut steps = vec![cordon.into(), update_group(max, None).into(), put_tag(value.0, value.1)];
        let uncordon = NodeStep::UncordonNode { node: "node".into(), reason: UncordonReason::Locked };
        let processes = vec!["Launch".to_owned()];
        steps.push(match pass % 2 {
            0 => EksStep::SuspendProcesses { group: GROUP.into(), processes }.into(),
            _ => EksStep::ResumeProcesses { group: GROUP.into(), processes }.into(),
        });
        if pass == 7 {
            steps.push(uncordon.into());
        }
        let count = steps.len();
        let applied = group.pass(pass * 20, "1", plan(steps, changing()));
        assert_eq!(applied.steps.len(), count, "pass {pass}");
        assert_eq!(applied.outcome, changing());
    }
    assert!(group.memory.ineffective().is_empty());
}

/// The same value again after the spec changed: the tenant edits a value to and fro, or corrects something.
#[test]
fn spec_change_resets_the_write_delays() {
    let mut group = Loop::default();
    for generation in 0..10 {
        let applied = group.pass(generation * 20, &generation.to_string(), plan(vec![put_tag("41", "42")], changing()));
        assert_eq!(applied.steps.len(), 1);
    }
    assert!(group.memory.ineffective().is_empty());
}

/// A new difference is written at once, although another one of the same call is delayed.
#[test]
fn each_difference_has_its_own_delay() {
    let mut group = Loop::default();
    group.run(20, 1000, &[put_tag("41", "42")]);
    let metrics = EksStep::EnableMetrics { group: GROUP.into(), metrics: vec!["GroupMinSize".into()] };
    let applied = group.pass(20_500, "1", plan(vec![put_tag("41", "42"), metrics.into()], changing()));
    assert_eq!(applied.steps.iter().map(|p| p.step.name()).collect::<Vec<_>>(), ["EnableMetrics"]);
    assert_eq!(applied.outcome, changing());
    let both = EksStep::PutTags { group: GROUP.into(), tags: vec![tag("cost", "42"), tag("new", "1")] };
    let reasons = vec![Drift::new("tags[cost]", "41", "42"), Drift::new("tags[new]", "", "1")];
    let applied = group.pass(20_520, "1", plan(vec![PlannedStep::new(both, reasons)], changing()));
    assert_eq!(applied.steps.len(), 1);
}

/// A tag that has no effect neither keeps the group from Ready nor is it announced again; a size does keep it.
#[test]
fn group_converges_without_what_no_node_depends_on() {
    let mut group = Loop::default();
    group.run(4, 1000, &[put_tag("41", "42")]);
    let delayed = group.pass(6_000, "1", plan(vec![put_tag("41", "42")], changing()));
    assert_eq!((delayed.steps.len(), delayed.outcome, delayed.recheck_at), (0, Outcome::Converged, Some(at(7_000))));
    let retried = group.pass(7_000, "1", plan(vec![put_tag("41", "42")], changing()));
    assert_eq!((retried.steps.len(), retried.outcome, retried.recheck_at), (1, Outcome::Converged, Some(at(15_000))));
    assert!(retried.steps[0].is_retry);

    let mut group = Loop::default();
    let min = || {
        let change = ScalingGroupChange { min: Some(2), ..ScalingGroupChange::default() };
        because(update_group(change, None), "minSize", "1", "2")
    };
    group.run(4, 1000, &[min()]);
    let delayed = group.pass(6_000, "1", plan(vec![min()], changing()));
    assert!(
        matches!(delayed.outcome, Outcome::Progressing { recheck: Recheck::After(delay), .. } if delay.as_secs() == 1)
    );
}

/// Later steps wait for a delayed step that they rely on: a pinned version, a record, the rest of a deletion.
#[test]
fn dependents_of_a_delayed_step_wait() {
    let entry = || JoinStep::PutAwsAuthEntry(AuthEntry::for_nodes("arn:aws:iam::1:role/web", false));
    let delete = || IamStep::DeleteRole { role: "web".into() };
    let status = json!({"managed": {"tags": ["cost"]}});
    let mut group = Loop::default();
    group.pass(0, "1", plan(vec![entry().into()], changing()));
    let version = Some(Pin::Version { template: "lt-1".into(), number: 2 });
    let update = update_group(ScalingGroupChange { min: Some(2), ..ScalingGroupChange::default() }, version);
    let record = ObjectStep::UpdateStatus { status };
    let applied = group.pass(20, "1", plan(vec![record.into(), entry().into(), update.into()], changing()));
    assert_eq!(applied.steps.iter().map(|p| p.step.name()).collect::<Vec<_>>(), ["UpdateStatus"]);

    let mut group = Loop::default();
    let create = || PlannedStep::from(IamStep::CreateProfile { profile: "web".into(), tags: vec![] });
    group.pass(0, "1", plan(vec![create()], changing()));
    let applied = group.pass(20, "1", plan(vec![create(), put_tag("41", "42")], changing()));
    assert!(applied.steps.is_empty());

    let mut group = Loop::default();
    group.pass(0, "1", plan(vec![delete().into()], Outcome::Deleted));
    let applied =
        group.pass(20, "1", plan(vec![delete().into(), ObjectStep::RemoveFinalizer.into()], Outcome::Deleted));
    assert!(applied.steps.is_empty(), "the finalizer must not go before the role");
    assert!(matches!(applied.outcome, Outcome::Progressing { phase: Phase::Deleting, .. }), "{:?}", applied.outcome);
}

/// An entry in aws-auth that another tool removes each time delays neither the attributes of the group nor the report
/// of their writes.
#[test]
fn delayed_join_entry_does_not_delay_other_attributes() {
    let entry = || PlannedStep::from(JoinStep::PutAwsAuthEntry(AuthEntry::for_nodes("arn:aws:iam::1:role/web", false)));
    let processes = vec!["AZRebalance".to_owned()];
    let suspend = || {
        let step = EksStep::SuspendProcesses { group: GROUP.into(), processes: processes.clone() };
        because(step, "suspendProcesses", "", "AZRebalance")
    };
    let mut group = Loop::default();
    for pass in 0..4 {
        group.pass(pass * 10_000, "1", plan(vec![entry()], changing()));
    }
    for milliseconds in [40_000, 41_000, 43_000] {
        let applied = group.pass(milliseconds, "1", plan(vec![entry(), put_tag("41", "42"), suspend()], changing()));
        let names: Vec<_> = applied.steps.iter().map(|p| p.step.name()).collect();
        assert!(names.ends_with(&["PutTags", "SuspendProcesses"]), "{milliseconds}: {names:?}");
    }
    let message = group.message();
    assert!(message.contains("tags[cost]") && message.contains("suspendProcesses"), "{message}");
}

/// Writes outside of plans: the status, which another writer changes each time, and the role label of a Node.
#[test]
fn each_write_outside_of_plans_slows_down() {
    let status = |at: usize| {
        let ready =
            json!({"type": "Ready", "status": "True", "lastTransitionTime": format!("2026-01-01T00:00:{at:02}Z")});
        status_write(&json!({"currentState": "ready", "conditions": [ready]}))
    };
    let label = |_: usize| Write::new("node", "kubernetes.io/role", &"web");
    let writes: [&dyn Fn(usize) -> Write; 2] = [&status, &label];
    for write in writes {
        let (mut memory, mut times, mut reported) = (WriteMemory::default(), vec![], 0);
        for pass in 0..180 * 50 {
            let (now, write) = (at(pass * 20), write(usize::try_from(pass).expect("a number") % 60));
            if memory.is_due(&write, RESYNC, now) {
                times.push(pass * 20);
                reported += usize::from(memory.record_write(write, String::new, now));
            }
        }
        assert_eq!(times, [0, 1_000, 3_000, 7_000, 15_000, 31_000, 63_000, 127_000]);
        assert_eq!(reported, 1);
    }
    let other = status_write(&json!({"currentState": "error"}));
    assert_ne!(other, status(0));
}

/// A plan reports a step each time that it plans it, also while the step is delayed or has no effect.
#[test]
fn events_of_repeated_plans_slow_down() {
    let retained = Event::warning(EventReason::RoleRetained, "keeping the role web");
    let mut memory = WriteMemory::default();
    let mut published = vec![];
    for pass in 0..60 * 50 {
        let mut plan = plan(vec![put_tag("41", "42")], changing());
        plan.events.push(retained.clone());
        memory.suppress_repeats(&mut plan, "1", RESYNC, at(pass * 20));
        memory.record(plan.steps.iter(), at(pass * 20));
        memory.record_events(&plan.events, at(pass * 20));
        published.extend(plan.events.iter().map(|_| pass * 20));
    }
    assert_eq!(published, [0, 1_000, 3_000, 7_000, 15_000, 31_000]);
    let mut other = plan(vec![], changing());
    other.events.push(Event::warning(EventReason::RoleRetained, "keeping the role api"));
    memory.suppress_repeats(&mut other, "1", RESYNC, at(60_000));
    assert_eq!(other.events.len(), 1);
}

#[test]
fn blocked_group_stays_blocked() {
    let mut group = Loop::default();
    group.run(4, 1000, &[put_tag("41", "42")]);
    let blocked = Outcome::Blocked { reason: StalledReason::NotFound, message: "no subnet".into(), is_deleting: false };
    assert_eq!(group.pass(6_000, "1", plan(vec![put_tag("41", "42")], blocked.clone())).outcome, blocked);
}

/// The memory is bounded, ends with what it remembers, and a process that begins without one keeps the condition until
/// nothing differs.
#[test]
fn memory_is_bounded_and_forgets() {
    let mut memory = WriteMemory::default();
    for number in 0..2 * CAPACITY {
        memory.record_write(Write::new("node", &number.to_string(), &"v"), String::new, at(number as i64));
    }
    assert_eq!(memory.writes.len(), CAPACITY);
    memory.forget_old(RESYNC, at(10 * 300 * 1000));
    assert!(memory.writes.is_empty());
    assert!(memory.condition(true).is_none());
    assert!(!memory.condition(false).expect("a condition").status);
}

/// The status would stay as it is for as long as the clock was set back.
#[test]
fn clock_that_is_set_back_makes_a_repeated_write_due() {
    let (mut memory, write) = (WriteMemory::default(), || status_write(&json!({"currentState": "Ready"})));
    memory.record_write(write(), String::new, at(0));
    assert!(!memory.is_due(&write(), RESYNC, at(999)) && memory.is_due(&write(), RESYNC, at(1000)));
    assert!(memory.is_due(&write(), RESYNC, at(-3_600_000)));
}
