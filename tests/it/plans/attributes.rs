//! Every attribute of a group: made with it, added later, repaired when someone changed it, and removed when the spec does.
//! One golden file holds the steps of each case.

use instance_manager::aws::TagSpecification;
use instance_manager::plan::EksStep;
use instance_manager::plan::{JoinStep, ObjectStep, Planned, Step};

use super::*;

/// The field, what asks for it, and what someone did to it behind our back.
type Case = (&'static str, &'static str, fn(&mut World));

/// What stands on the scaling group.
fn on_the_group() -> Vec<Case> {
    fn group(w: &mut World) -> &mut ScalingGroup {
        w.state.group.as_mut().expect("a group")
    }
    vec![
        ("tags", "tags: [{key: team, value: a}]", |w| {
            group(w).tags.iter_mut().filter(|t| t.key == "team").for_each(|t| t.value = "b".into());
        }),
        ("tags: what reaches no instance", "tags: [{key: team, value: a}]", |w| {
            group(w).unpropagated = vec!["team".into(), "of-others".into()];
        }),
        ("suspendProcesses", "suspendProcesses: [AZRebalance, HealthCheck]", |w| _ = group(w).suspended.pop()),
        ("suspendProcesses: all", "suspendProcesses: [all]", |w| group(w).suspended.clear()),
        ("metricsCollection", "metricsCollection: [GroupMinSize, GroupMaxSize]", |w| _ = group(w).metrics.pop()),
        ("metricsCollection: all", "metricsCollection: [ALL]", |w| group(w).metrics.clear()),
        ("lifecycleHooks", "lifecycleHooks: [{name: drain, lifecycle: terminate, heartbeatTimeout: 60}]", |w| {
            w.state.hooks.as_mut().expect("hooks")[0].heartbeat_timeout = 90;
        }),
        ("lifecycleHooks: what goes from one", "lifecycleHooks: [{name: drain, lifecycle: launch}]", |w| {
            w.state.hooks.as_mut().expect("hooks")[0].metadata = Some("theirs".into());
        }),
        ("subnets", "subnets: [subnet-1]", |w| group(w).subnets.push("subnet-2".into())),
    ]
}

/// Everything is on the group as the spec asks, and recorded.
fn as_asked(extra: &str) -> World {
    standing(resolved(extra, &[])).with(|w| {
        let wanted = w.resolved.wanted.clone();
        let group = w.state.group.as_mut().expect("a group");
        (group.suspended, group.metrics) =
            (wanted.suspend.iter().cloned().collect(), wanted.metrics.iter().cloned().collect());
        let managed = w.status.managed.as_mut().expect("a record");
        (managed.processes, managed.metrics) = (group.suspended.clone(), group.metrics.clone());
        managed.hooks = wanted.hooks.iter().map(|h| h.name.clone()).collect();
        w.state.hooks = (!wanted.hooks.is_empty()).then_some(wanted.hooks);
    })
}

/// What a plan does about attributes, without what every new group takes.
fn told(world: &World) -> Value {
    let steps = world.plan().steps;
    let of_all = |p: &&Planned| {
        matches!(
            p.step,
            Step::Object(ObjectStep::Record { .. })
                | Step::Join(JoinStep::PutAuthEntry(_))
                | Step::Eks(EksStep::CreateTemplate(_))
                | Step::Object(ObjectStep::AddFinalizer)
        )
    };
    json!(steps.iter().filter(|p| !of_all(p)).collect::<Vec<_>>())
}

#[test]
fn attributes_of_the_scaling_group_are_what_the_golden_file_holds() {
    let mut all = BTreeMap::new();
    for (field, asks, meddle) in on_the_group() {
        let extra = format!("eks: {{configuration: {{roleName: given, {asks}}}}}");
        let mut meddled = as_asked(&extra);
        meddle(&mut meddled);
        let cases = [
            ("1 made with the group", fresh(resolved(&extra, &[]))),
            (
                "2 added later",
                as_asked("eks: {configuration: {roleName: given}}").with(|w| {
                    w.state.hooks = Some(vec![]);
                    w.resolved = resolved(&extra, &[]);
                }),
            ),
            ("3 repaired", meddled),
            ("4 removed", as_asked(&extra).wants("eks: {configuration: {roleName: given}}")),
        ];
        assert_eq!(told(&as_asked(&extra)), json!([]), "{field} is as asked");
        all.insert(field, cases.map(|(case, world)| (case, told(&world))).into_iter().collect::<BTreeMap<_, _>>());
    }
    hold_text("attributes", &serde_yaml::to_string(&json!(all)).expect("YAML"));
}

/// What a template version holds: the field, as it is told, and what asks for it.
const IN_THE_TEMPLATE: [(&str, &str); 14] = [
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
fn a_change_of_what_nodes_are_made_of_is_a_new_version_that_names_the_field_in_both_directions() {
    let named = |world: World| {
        let plan = world.plan();
        let version = plan.steps.iter().find(|p| matches!(p.step, Step::Eks(EksStep::PutTemplateVersion { .. })));
        let because = &version.unwrap_or_else(|| panic!("no new version: {:?}", plan.steps)).because;
        because.iter().map(|d| d.field.clone()).collect::<Vec<_>>()
    };
    for (field, asks) in IN_THE_TEMPLATE {
        let extra = format!("eks: {{configuration: {{{asks}}}}}");
        assert!(named(plain().wants(&extra)).iter().any(|f| f == field), "{asks}");
        assert!(named(standing(resolved(&extra, &[])).wants("{}")).iter().any(|f| f == field), "{asks} goes");
        assert_eq!(standing(resolved(&extra, &[])).plan().steps, vec![], "{asks} stays");
    }
}

#[test]
fn tag_specifications_are_sorted_and_empty_ones_are_none() {
    let extra = "eks: {configuration: {tagSpecifications: [{resourceType: volume, tags: [{key: b, value: '1'}, {key: a, value: '2'}]}, {resourceType: instance, tags: []}]}}";
    let tag = |key: &str, value: &str| Tag { key: key.into(), value: value.into() };
    let tags = vec![tag("a", "2"), tag("b", "1")];
    let wanted = vec![TagSpecification { resource_type: "volume".into(), tags }];
    assert_eq!(resolved(extra, &[]).data.tag_specifications, wanted);
}

#[test]
fn a_record_that_empties_is_written_once_and_is_gone() {
    let emptied = |field: &str| {
        let mut world = standing(resolved("{}", &[])).with(|w| {
            let managed = w.status.managed.as_mut().expect("a record");
            (managed.hooks, managed.processes) = (vec!["drain".into()], vec!["AZRebalance".into()]);
            managed.metrics = vec!["GroupMinSize".into()];
            managed.warm_pool = true;
        });
        let records = |w: &World| -> Vec<Value> {
            let steps = w.plan().steps;
            let record =
                |p: Planned| if let Step::Object(ObjectStep::Record { status }) = p.step { Some(status) } else { None };
            steps.into_iter().filter_map(record).collect()
        };
        let first = records(&world);
        assert_eq!(first.len(), 1, "{first:?}");
        let mut stored = json!(world.status);
        instance_manager::api::merge_patch(&mut stored, &first[0]);
        assert!(stored["managed"].get(field).is_none(), "{field}: {stored}");
        world.status = serde_json::from_value(stored).expect("a status");
        assert_eq!(records(&world), Vec::<Value>::new(), "{field}");
    };
    ["hooks", "processes", "metrics", "warmPool"].into_iter().for_each(emptied);
}
