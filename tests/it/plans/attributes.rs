//! Every attribute of a group: made with it, added later, repaired when someone changed it, and removed when the spec does.
//! One golden file holds the steps of each case.

use instance_manager::aws::TagSpecification;
use instance_manager::plan::EksStep;
use instance_manager::plan::{JoinStep, ObjectStep, PlannedStep, Step};

use super::*;

/// The field, what asks for it, and what someone did to it behind our back.
type Case = (&'static str, &'static str, fn(&mut Scenario));

/// What stands on the scaling group.
fn scaling_group_cases() -> Vec<Case> {
    fn group(w: &mut Scenario) -> &mut ScalingGroup {
        w.state.scaling_group.as_mut().expect("a group")
    }
    vec![
        ("tags", "tags: [{key: team, value: a}]", |w| {
            group(w).tags.iter_mut().filter(|t| t.key == "team").for_each(|t| t.value = "b".into());
        }),
        ("tags: what reaches no instance", "tags: [{key: team, value: a}]", |w| {
            group(w).unpropagated_tags = vec!["team".into(), "of-others".into()];
        }),
        ("suspendProcesses", "suspendProcesses: [AZRebalance, HealthCheck]", |w| {
            _ = group(w).suspended_processes.pop()
        }),
        ("suspendProcesses: all", "suspendProcesses: [all]", |w| group(w).suspended_processes.clear()),
        ("metricsCollection", "metricsCollection: [GroupMinSize, GroupMaxSize]", |w| {
            _ = group(w).enabled_metrics.pop()
        }),
        ("metricsCollection: all", "metricsCollection: [ALL]", |w| group(w).enabled_metrics.clear()),
        ("lifecycleHooks", "lifecycleHooks: [{name: drain, lifecycle: terminate, heartbeatTimeout: 60}]", |w| {
            w.state.lifecycle_hooks.as_mut().expect("hooks")[0].heartbeat_timeout = 90;
        }),
        ("lifecycleHooks: what goes from one", "lifecycleHooks: [{name: drain, lifecycle: launch}]", |w| {
            w.state.lifecycle_hooks.as_mut().expect("hooks")[0].metadata = Some("theirs".into());
        }),
        ("scaling_group/subnets", "subnets: [subnet-1]", |w| group(w).subnets.push("subnet-2".into())),
    ]
}

/// Everything is on the group as the spec asks, and recorded.
fn converged_after(extra: &str) -> Scenario {
    converged_with(resolved(extra, &[])).with(|w| {
        let wanted = w.resolved.desired.clone();
        let group = w.state.scaling_group.as_mut().expect("a group");
        (group.suspended_processes, group.enabled_metrics) =
            (wanted.suspended_processes.iter().cloned().collect(), wanted.metrics.iter().cloned().collect());
        let managed = w.status.managed.as_mut().expect("a record");
        (managed.processes, managed.metrics) = (group.suspended_processes.clone(), group.enabled_metrics.clone());
        managed.hooks = wanted.lifecycle_hooks.iter().map(|h| h.name.clone()).collect();
        w.state.lifecycle_hooks = (!wanted.lifecycle_hooks.is_empty()).then_some(wanted.lifecycle_hooks);
    })
}

/// What a plan does about attributes, without what every new group takes.
fn planned_steps(world: &Scenario) -> Value {
    let steps = world.plan().steps;
    let of_all = |p: &&PlannedStep| {
        matches!(
            p.step,
            Step::Object(ObjectStep::UpdateStatus { .. })
                | Step::Join(JoinStep::PutAwsAuthEntry(_))
                | Step::Eks(EksStep::CreateTemplate(_))
                | Step::Object(ObjectStep::AddFinalizer)
        )
    };
    json!(steps.iter().filter(|p| !of_all(p)).collect::<Vec<_>>())
}

#[test]
fn attribute_plans_match_golden_file() {
    let mut all = BTreeMap::new();
    for (field, asks, meddle) in scaling_group_cases() {
        let extra = format!("eks: {{configuration: {{roleName: given, {asks}}}}}");
        let mut meddled = converged_after(&extra);
        meddle(&mut meddled);
        let cases = [
            ("1 made with the group", new_group(resolved(&extra, &[]))),
            (
                "2 added later",
                converged_after("eks: {configuration: {roleName: given}}").with(|w| {
                    w.state.lifecycle_hooks = Some(vec![]);
                    w.resolved = resolved(&extra, &[]);
                }),
            ),
            ("3 repaired", meddled),
            ("4 removed", converged_after(&extra).with_spec("eks: {configuration: {roleName: given}}")),
        ];
        assert_eq!(planned_steps(&converged_after(&extra)), json!([]), "{field} is as asked");
        all.insert(
            field,
            cases.map(|(case, world)| (case, planned_steps(&world))).into_iter().collect::<BTreeMap<_, _>>(),
        );
    }
    assert_golden_text("attributes/attributes", &serde_yaml::to_string(&json!(all)).expect("YAML"));
}

/// What a template version holds: the field, as it is told, and what asks for it.
const TEMPLATE_CASES: [(&str, &str); 14] = [
    ("image", "image: ami-00000002"),
    ("instanceType", "instanceType: m5.xlarge"),
    ("keyPairName", "keyPairName: key"),
    ("volumes", "volumes: [{name: /dev/xvda, type: io2, size: 50, iops: 3000, encrypted: true}]"),
    ("volumes", "volumes: [{name: /dev/xvda, type: gp3, throughput: 300, snapshotId: snap-1}]"),
    ("metadataOptions", "metadataOptions: {httpTokens: required, httpPutHopLimit: 2}"),
    ("placement", "placement: {tenancy: dedicated, availabilityZone: us-west-2a}"),
    ("tagSpecifications", "tagSpecifications: [{resourceType: volume, tags: [{key: team, value: a}]}]"),
    ("labels", "labels: {team: a}"),
    ("taints", "taints: [{key: team, value: a, effect: NoSchedule}]"),
    ("maxPods", "bootstrapOptions: {maxPods: 20}"),
    ("bootstrapArguments", "bootstrapArguments: --v=3"),
    ("userData", "userData: [{name: a, stage: PreBootstrap, data: echo}]"),
    ("mounts", "volumes: [{name: /dev/xvdb, size: 10, mountOptions: {fileSystem: xfs, mount: /data}}]"),
];

#[test]
fn template_change_creates_version_with_field_reason() {
    let named = |world: Scenario| {
        let plan = world.plan();
        let version = plan.steps.iter().find(|p| matches!(p.step, Step::Eks(EksStep::PutTemplateVersion { .. })));
        let because = &version.unwrap_or_else(|| panic!("no new version: {:?}", plan.steps)).reasons;
        because.iter().map(|d| d.field.clone()).collect::<Vec<_>>()
    };
    for (field, asks) in TEMPLATE_CASES {
        let extra = format!("eks: {{configuration: {{{asks}}}}}");
        assert!(named(converged().with_spec(&extra)).iter().any(|f| f == field), "{asks}");
        assert!(named(converged_with(resolved(&extra, &[])).with_spec("{}")).iter().any(|f| f == field), "{asks} goes");
        assert_eq!(converged_with(resolved(&extra, &[])).plan().steps, vec![], "{asks} stays");
    }
}

#[test]
fn tag_specifications_are_sorted_and_never_empty() {
    let extra = "eks: {configuration: {tagSpecifications: [{resourceType: volume, tags: [{key: b, value: '1'}, {key: a, value: '2'}]}, {resourceType: instance, tags: []}]}}";
    let tag = |key: &str, value: &str| Tag { key: key.into(), value: value.into() };
    let tags = vec![tag("a", "2"), tag("b", "1")];
    let wanted = vec![TagSpecification { resource_type: "volume".into(), tags }];
    assert_eq!(resolved(extra, &[]).template_data.tag_specifications, wanted);
}

#[test]
fn emptied_record_is_written_once() {
    let emptied = |field: &str| {
        let mut world = converged_with(resolved("{}", &[])).with(|w| {
            let managed = w.status.managed.as_mut().expect("a record");
            (managed.hooks, managed.processes) = (vec!["drain".into()], vec!["AZRebalance".into()]);
            managed.metrics = vec!["GroupMinSize".into()];
            managed.warm_pool = true;
        });
        let records = |w: &Scenario| -> Vec<Value> {
            let steps = w.plan().steps;
            let record = |p: PlannedStep| {
                if let Step::Object(ObjectStep::UpdateStatus { status }) = p.step { Some(status) } else { None }
            };
            steps.into_iter().filter_map(record).collect()
        };
        let first = records(&world);
        assert_eq!(first.len(), 1, "{first:?}");
        let mut stored = json!(world.status);
        instance_manager::api::apply_merge_patch(&mut stored, &first[0]);
        assert!(stored["managed"].get(field).is_none(), "{field}: {stored}");
        world.status = serde_json::from_value(stored).expect("a status");
        assert_eq!(records(&world), Vec::<Value>::new(), "{field}");
    };
    ["hooks", "processes", "metrics", "warmPool"].into_iter().for_each(emptied);
}
