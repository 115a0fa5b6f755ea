//! Every attribute of a group: set at creation, added later, repaired after a manual change, and removed with its spec field.
//! One golden file holds the steps of all cases.

use instance_manager::aws::{TagSpecification, WarmInstance, WarmPhase, WarmPool, WarmSizes};
use instance_manager::plan::EksStep;
use instance_manager::plan::{JoinStep, ObjectStep, PlannedStep, Step};

use super::*;

/// The field, the spec that sets it, and a manual change in AWS.
type Case = (&'static str, &'static str, fn(&mut Scenario));

/// Attributes of the scaling group.
fn scaling_group_cases() -> Vec<Case> {
    fn group(s: &mut Scenario) -> &mut ScalingGroup {
        s.state.scaling_group.as_mut().expect("a group")
    }
    vec![
        ("tags", "tags: [{key: team, value: a}]", |s| {
            group(s).tags.iter_mut().filter(|t| t.key == "team").for_each(|t| t.value = "b".into());
        }),
        ("tags: not propagated", "tags: [{key: team, value: a}]", |s| {
            group(s).unpropagated_tags = vec!["team".into(), "of-others".into()];
        }),
        ("suspendProcesses", "suspendProcesses: [AZRebalance, HealthCheck]", |s| {
            _ = group(s).suspended_processes.pop()
        }),
        ("suspendProcesses: all", "suspendProcesses: [all]", |s| group(s).suspended_processes.clear()),
        ("metricsCollection", "metricsCollection: [GroupMinSize, GroupMaxSize]", |s| {
            _ = group(s).enabled_metrics.pop()
        }),
        ("metricsCollection: all", "metricsCollection: [ALL]", |s| group(s).enabled_metrics.clear()),
        ("lifecycleHooks", "lifecycleHooks: [{name: drain, lifecycle: terminate, heartbeatTimeout: 60}]", |s| {
            s.state.lifecycle_hooks.as_mut().expect("hooks")[0].heartbeat_timeout = 90;
        }),
        ("lifecycleHooks: field removed", "lifecycleHooks: [{name: drain, lifecycle: launch}]", |s| {
            s.state.lifecycle_hooks.as_mut().expect("hooks")[0].metadata = Some("theirs".into());
        }),
        ("scaling_group/subnets", "subnets: [subnet-1]", |s| group(s).subnets.clear()),
    ]
}

/// A converged group with this spec, whose attributes are set and recorded.
pub(super) fn converged_after(extra: &str) -> Scenario {
    converged_with(resolved(extra, &[])).with(|s| {
        let desired = s.resolved.desired.clone();
        let group = s.state.scaling_group.as_mut().expect("a group");
        (group.suspended_processes, group.enabled_metrics) =
            (desired.suspended_processes.iter().cloned().collect(), desired.metrics.iter().cloned().collect());
        let managed = s.status.managed.as_mut().expect("a record");
        (managed.processes, managed.metrics) = (group.suspended_processes.clone(), group.enabled_metrics.clone());
        managed.hooks = desired.lifecycle_hooks.iter().map(|h| h.name.clone()).collect();
        s.state.lifecycle_hooks = (!desired.lifecycle_hooks.is_empty()).then_some(desired.lifecycle_hooks);
    })
}

/// A tool that resets a tag or a hook each time must not keep nodes from security updates. A size that is reset does
/// block the rotation.
#[test]
fn rotation_continues_beside_ineffective_attributes() {
    let is_rotating = |plan: &Plan| plan.steps.iter().any(|p| p.step.name() == "CordonNode");
    for (name, spec, change) in scaling_group_cases() {
        let spec = format!("eks: {{configuration: {{{spec}}}}}");
        let scenario = converged_after(&spec).with(change).with_scaling_group(|g| {
            g.instances[0].template.as_mut().expect("a version").version = "0".into();
        });
        let plan = scenario.plan();
        let written: BTreeSet<_> = plan.steps.iter().flat_map(PlannedStep::writes).collect();
        assert!(!written.is_empty() && !is_rotating(&plan), "{name}: {plan:?}");
        let must_rotate = ["tags", "metricsCollection", "lifecycleHooks"].iter().any(|field| name.starts_with(field));
        assert_eq!(is_rotating(&scenario.plan_without_effect(&written)), must_rotate, "{name}");
    }
}

/// The steps of a plan without those that every new group has.
fn planned_steps(scenario: &Scenario) -> Value {
    let steps = scenario.plan().steps;
    let is_common = |p: &&PlannedStep| {
        matches!(
            p.step,
            Step::Object(ObjectStep::UpdateStatus { .. })
                | Step::Join(JoinStep::PutAwsAuthEntry(_))
                | Step::Eks(EksStep::CreateTemplate(_))
                | Step::Object(ObjectStep::AddFinalizer)
        )
    };
    json!(steps.iter().filter(|p| !is_common(p)).collect::<Vec<_>>())
}

#[test]
fn attribute_plans_match_golden_file() {
    let mut all = BTreeMap::new();
    for (field, spec, change_manually) in scaling_group_cases() {
        let extra = format!("eks: {{configuration: {{roleName: given, {spec}}}}}");
        let mut changed = converged_after(&extra);
        change_manually(&mut changed);
        let cases = [
            ("1 created with the group", new_group(resolved(&extra, &[]))),
            (
                "2 added later",
                converged_after("eks: {configuration: {roleName: given}}").with(|s| {
                    s.state.lifecycle_hooks = Some(vec![]);
                    s.resolved = resolved(&extra, &[]);
                }),
            ),
            ("3 repaired", changed),
            ("4 removed", converged_after(&extra).with_spec("eks: {configuration: {roleName: given}}")),
        ];
        assert_eq!(planned_steps(&converged_after(&extra)), json!([]), "{field} is converged");
        all.insert(
            field,
            cases.map(|(case, scenario)| (case, planned_steps(&scenario))).into_iter().collect::<BTreeMap<_, _>>(),
        );
    }
    assert_golden_text("attributes/attributes", &serde_yaml::to_string(&json!(all)).expect("YAML"));
}

/// Fields of a template version: the field in the drift, and the spec that sets it.
const TEMPLATE_CASES: [(&str, &str); 14] = [
    ("image", "image: ami-00000002"),
    ("instanceType", "instanceType: m5.xlarge"),
    ("keyPairName", "keyPairName: key"),
    ("volumes", "volumes: [{name: /dev/xvda, type: io2, size: 50, iops: 3000, encrypted: true}]"),
    ("volumes", "volumes: [{name: /dev/xvda, type: gp3, throughput: 300, snapshotId: snap-1}]"),
    ("metadataOptions", "metadataOptions: {httpTokens: required, httpPutHopLimit: 2}"),
    ("placement", "placement: {tenancy: dedicated, availabilityZone: us-west-2a}"),
    ("tagSpecifications", "tagSpecifications: [{resourceType: volume, tags: [{key: team, value: a}]}]"),
    ("labels[team]", "labels: {team: a}"),
    ("taints", "taints: [{key: team, value: a, effect: NoSchedule}]"),
    ("maxPods", "bootstrapOptions: {maxPods: 20}"),
    ("bootstrapArguments", "bootstrapArguments: --v=3"),
    ("userData", "userData: [{name: a, stage: PreBootstrap, data: echo hi}]"),
    ("mounts", "volumes: [{name: /dev/xvdb, size: 10, mountOptions: {fileSystem: xfs, mount: /data}}]"),
];

#[test]
fn template_change_creates_version_with_field_reason() {
    let drift_fields = |scenario: Scenario| {
        let plan = scenario.plan();
        let version = plan.steps.iter().find(|p| matches!(p.step, Step::Eks(EksStep::PutTemplateVersion { .. })));
        let reasons = &version.unwrap_or_else(|| panic!("no new version: {:?}", plan.steps)).reasons;
        reasons.iter().map(|d| d.field.clone()).collect::<Vec<_>>()
    };
    // Or of a part of the field, such as `volumes[/dev/xvda].size`.
    let is_of = |drift: &str, field: &str| {
        drift.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    for (field, spec) in TEMPLATE_CASES {
        let extra = format!("eks: {{configuration: {{{spec}}}}}");
        assert!(drift_fields(converged().with_spec(&extra)).iter().any(|f| is_of(f, field)), "{spec}");
        assert!(
            drift_fields(converged_with(resolved(&extra, &[])).with_spec("{}")).iter().any(|f| is_of(f, field)),
            "{spec} is removed"
        );
        assert_eq!(converged_with(resolved(&extra, &[])).plan().steps, vec![], "{spec} is unchanged");
    }
}

#[test]
fn tag_specifications_are_sorted_and_never_empty() {
    let extra = "eks: {configuration: {tagSpecifications: [{resourceType: volume, tags: [{key: b, value: '1'}, {key: a, value: '2'}]}, {resourceType: instance, tags: []}]}}";
    let tag = |key: &str, value: &str| Tag { key: key.into(), value: value.into() };
    let tags = vec![tag("a", "2"), tag("b", "1")];
    let expected = vec![TagSpecification { resource_type: "volume".into(), tags }];
    assert_eq!(resolved(extra, &[]).template_data.tag_specifications, expected);
}

#[test]
fn emptied_record_is_written_once() {
    let emptied = |field: &str| {
        let mut scenario = converged_with(resolved("{}", &[])).with(|s| {
            let managed = s.status.managed.as_mut().expect("a record");
            (managed.hooks, managed.processes) = (vec!["drain".into()], vec!["AZRebalance".into()]);
            managed.metrics = vec!["GroupMinSize".into()];
            managed.warm_pool = true;
        });
        let records = |s: &Scenario| -> Vec<Value> {
            let steps = s.plan().steps;
            let record = |p: PlannedStep| {
                if let Step::Object(ObjectStep::UpdateStatus { status }) = p.step { Some(status) } else { None }
            };
            steps.into_iter().filter_map(record).collect()
        };
        let first = records(&scenario);
        assert_eq!(first.len(), 1, "{first:?}");
        let mut stored = json!(scenario.status);
        instance_manager::api::apply_merge_patch(&mut stored, &first[0]);
        assert!(stored["managed"].get(field).is_none(), "{field}: {stored}");
        scenario.status = serde_json::from_value(stored).expect("a status");
        assert_eq!(records(&scenario), Vec::<Value>::new(), "{field}");
    };
    ["hooks", "processes", "metrics", "warmPool"].into_iter().for_each(emptied);
}

/// A group whose spec sets a hook for launches, and that now has this spec.
fn with_launch_hook(spec: &str) -> Scenario {
    let hook = "lifecycleHooks: [{name: prepare, lifecycle: launch, notificationArn: 'arn:aws:lambda:us-west-2:1:function:a'}]";
    let extra = |spec: &str| format!("eks: {{configuration: {{roleName: given, {spec}}}}}");
    converged_after(&extra(hook)).with_spec(&extra(spec))
}

/// The second instance waits in a hook.
fn with_waiting_instance(scenario: Scenario, state: InstanceState) -> Scenario {
    scenario.with_scaling_group(|g| {
        g.desired = 3;
        g.instances.push(Instance { id: "i-3".into(), state, waits_in_hook: true, ..g.instances[0].clone() });
    })
}

fn hook_steps(scenario: &Scenario) -> Vec<&'static str> {
    let steps = scenario.plan().steps;
    steps.iter().map(|p| p.step.name()).filter(|name| name.ends_with("Hook")).collect()
}

#[test]
fn hook_is_kept_while_an_instance_waits_in_it() {
    let removed = "";
    let loses_a_field = "lifecycleHooks: [{name: prepare, lifecycle: launch}]";
    let other_transition = "lifecycleHooks: [{name: prepare, lifecycle: terminate, notificationArn: 'arn:aws:lambda:us-west-2:1:function:a'}]";
    for (spec, steps) in [
        (removed, vec!["DeleteHook"]),
        (loses_a_field, vec!["DeleteHook", "PutHook"]),
        (other_transition, vec!["PutHook"]),
    ] {
        let scenario = with_launch_hook(spec);
        assert_eq!(hook_steps(&scenario), steps, "nothing waits");
        let terminating = with_waiting_instance(scenario.clone(), InstanceState::Terminating);
        assert_eq!(hook_steps(&terminating), steps, "it waits in a hook of the other transition");
        let waiting = with_waiting_instance(scenario.clone(), InstanceState::Pending);
        assert_eq!(hook_steps(&waiting), [""; 0]);
        let locked = scenario.with(|s| s.lock = Some("the annotation lock-upgrades"));
        assert_eq!(hook_steps(&locked), [""; 0]);
        let Outcome::Locked { message } = locked.plan().outcome else { panic!("not locked") };
        assert!(message.contains("the lifecycle hook prepare is outdated"), "{message}");
    }
    let waiting = with_waiting_instance(with_launch_hook(removed), InstanceState::Pending).with_scaling_group(|g| {
        // The other two instances suffice, so that no missing node decides the outcome.
        g.desired = 2;
    });
    let Outcome::Progressing { message, .. } = waiting.plan().outcome else { panic!("not progressing") };
    assert!(message.contains("those of i-3 are completed or time out"), "{message}");
}

/// AWS would end what a warm instance waits for: it would terminate one that a person prepares, or lose what another one is
/// to leave behind.
#[test]
fn hook_is_kept_while_a_warm_instance_waits_in_it() {
    let pool = || {
        let sizes = WarmSizes { min: 1, max: None };
        WarmPool { sizes, state: "Stopped".into(), reuse_on_scale_in: None, deleting: false, size: None }
    };
    let with_pool = || with_launch_hook("").with_scaling_group(|g| g.warm_pool = Some(pool()));
    let warm = |phase, waits_in_hook| {
        let instance = Instance { state: InstanceState::Warmed, waits_in_hook, ..samples::instance("i-8") };
        with_pool().with(|s| s.state.warm_instances = Some(vec![WarmInstance { instance, phase }]))
    };
    assert_eq!(hook_steps(&warm(WarmPhase::Pending, true)), [""; 0]);
    assert_eq!(hook_steps(&warm(WarmPhase::Pending, false)), ["DeleteHook"]);
    assert_eq!(
        hook_steps(&warm(WarmPhase::Leaving, true)),
        ["DeleteHook"],
        "it waits in a hook of the other transition"
    );
    assert_eq!(hook_steps(&with_pool()), [""; 0], "an unread pool may have instances that wait");
    let Outcome::Progressing { message, .. } = warm(WarmPhase::Pending, true).plan().outcome else {
        panic!("not progressing")
    };
    assert!(message.contains("those of i-8 are completed or time out"), "{message}");
}

#[test]
fn hook_changes_in_place_while_an_instance_waits_in_it() {
    let spec = "lifecycleHooks: [{name: prepare, lifecycle: launch, heartbeatTimeout: 60, notificationArn: 'arn:aws:lambda:us-west-2:1:function:b'}]";
    let waiting = with_waiting_instance(with_launch_hook(spec), InstanceState::Pending);
    assert_eq!(hook_steps(&waiting), ["PutHook"]);
    assert_eq!(hook_steps(&waiting.with(|s| s.lock = Some("a test"))), ["PutHook"]);
}

/// The spec adds a tag and drops it at once, and AWS does not show it yet. Without its record, it would stay forever.
#[test]
fn what_aws_may_show_later_stays_recorded_and_is_looked_for_again() {
    let record = |plan: &Plan| {
        let mut patches = plan.steps.iter().filter_map(|planned| match &planned.step {
            Step::Object(ObjectStep::UpdateStatus { status }) => status["managed"].get("tags").cloned(),
            _ => None,
        });
        patches.next_back()
    };
    let given_up = converged().with(|s| {
        let managed = s.status.managed.get_or_insert_default();
        managed.tags = s.resolved.tags.iter().map(|tag| tag.key.clone()).chain(["zone".to_owned()]).collect();
        managed.tags.sort();
        s.state.unseen_names = ["tag zone".to_owned()].into();
    });
    let plan = given_up.plan();
    assert_eq!(record(&plan), None, "it stays");
    assert!(
        matches!(&plan.outcome, Outcome::Progressing { message, .. } if message.contains("tag zone")),
        "{:?}",
        plan.outcome
    );
    let gone = given_up.with(|s| s.state.unseen_names.clear());
    let tags = record(&gone.plan()).expect("a record");
    assert!(!tags.to_string().contains("zone"), "{tags}");
}
