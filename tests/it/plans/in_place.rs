//! Labels and taints that change on running nodes (`inPlace`), and the differences that still replace nodes.

use super::*;
use instance_manager::aws::TemplateData;
use instance_manager::plan::{InPlaceChange, InPlaceRecord, NodeStep, NodeTaint, ObjectStep, PlannedStep};
use instance_manager::provisioner::eks::input::Snapshot;
use instance_manager::provisioner::{PlanContext, PlanSnapshot as _, Projection};
use instance_manager::rotation::rolling_update::settings::RollingUpdateSettings;
use instance_manager::settings::Settings;

const BOTH: &str = "[labels, taints]";
const OLD: &str = "labels: {team: a, tier: web}, taints: [{key: gpu, value: a, effect: NoSchedule}]";
const NEW: &str = "labels: {team: b, zone: z}, taints: [{key: gpu, value: b, effect: NoSchedule}]";

/// A spec with these fields of the configuration.
fn spec(in_place: &str, configuration: &str) -> String {
    format!(
        "{{strategy: {{type: rollingUpdate, rollingUpdate: {{inPlace: {in_place}}}}}, eks: {{configuration: {{{configuration}}}}}}}"
    )
}

/// A group whose spec changed: its scaling group launches the new version, and its nodes run the old one.
fn changed_by(from: ResolvedGroup, to: ResolvedGroup) -> Scenario {
    let hash = to.fingerprint.hash.clone();
    converged_with(from)
        .with(|s| s.resolved = to)
        .with(add_desired_version)
        .with_scaling_group(|g| g.template.as_mut().expect("a pin").version = "2".into())
        .with(|s| {
            let recorded = s.status.template.as_mut().expect("a record");
            (recorded.version, recorded.hash) = (Some("2".into()), Some(hash));
        })
}

fn changed(in_place: &str, from: &str, to: &str) -> Scenario {
    changed_by(resolved(&spec("[]", from), &[]), resolved(&spec(in_place, to), &[]))
}

/// The changes of nodes in a plan, by the name of the node.
fn changes(plan: &Plan) -> Vec<(String, InPlaceChange)> {
    let change = |planned: &PlannedStep| match &planned.step {
        Step::Node(NodeStep::ChangeNodeInPlace { node, change, .. }) => Some((node.clone(), change.clone())),
        _ => None,
    };
    plan.steps.iter().filter_map(change).collect()
}

/// The outdated nodes, by the counts for the status.
fn outdated(plan: &Plan) -> i64 {
    plan.status_update.fields["nodes"]["outdated"].as_i64().expect("a number")
}

/// What the command `plan` and the forecast of a rollout say of a change.
fn projection(scenario: &Scenario) -> Projection {
    let settings = Settings::default();
    let context = PlanContext {
        status: &scenario.status,
        lock: None,
        rollout_block: None,
        allowance: None,
        settings: &settings,
        ineffective_writes: &Default::default(),
        persistent_failure: &Default::default(),
        is_requested: false,
        now: timestamp(NOW),
    };
    let snapshot = Snapshot { resolved: scenario.resolved.clone(), observed: scenario.state.clone() };
    snapshot.simulate(&scenario.plan(), &context)
}

/// How many nodes are replaced, and how many change in place.
fn projected(scenario: &Scenario) -> (usize, usize) {
    let projection = projection(scenario);
    (projection.replacements.len(), projection.in_place.len())
}

/// An admin who lowers the default of `maxSize` takes nodes away from tenants, which must reach them in waves.
#[test]
fn lowered_max_size_counts_as_a_change_that_removes_nodes() {
    let of =
        |desired, spec| projection(&converged().with_scaling_group(|g| g.desired = desired).with_spec(spec)).scale_in;
    assert_eq!(of(4, "eks: {minSize: 1, maxSize: 1}"), 3);
    assert_eq!(of(4, "eks: {minSize: 1, maxSize: 4}"), 0, "what runs is within the new size");
}

/// Two instances that count for four units each are two nodes.
#[test]
fn lowered_max_size_of_a_weighted_group_counts_instances() {
    let removed = |max_size, weights: &[u32]| {
        let weighted = converged().with_scaling_group(|g| {
            let one = g.instances[0].clone();
            let instance =
                |(n, weight): (usize, &u32)| Instance { id: format!("i-{n}"), weight: *weight, ..one.clone() };
            g.instances = weights.iter().enumerate().map(instance).collect();
            g.desired = weights.iter().sum::<u32>() as i32;
        });
        projection(&weighted.with(|s| s.resolved.desired.max_size = max_size)).scale_in
    };
    assert_eq!(removed(4, &[4, 4, 4]), 2);
    assert_eq!(removed(5, &[4, 4, 4]), 1, "the second one counts for more than what is left of the surplus");
    assert_eq!(removed(10, &[8, 1, 1, 2]), 2, "the lightest go first");
}

fn progress(plan: &Plan) -> &str {
    match &plan.outcome {
        Outcome::Progressing { message, .. } => message,
        other => panic!("nothing is under way: {other:?}"),
    }
}

fn is_cordoned(plan: &Plan) -> bool {
    plan.steps.iter().any(|planned| planned.step.is_disruptive())
}

/// Writes the records of a plan to the nodes and to the status.
fn with_records(scenario: Scenario) -> Scenario {
    let plan = scenario.plan();
    let written: BTreeMap<_, _> = changes(&plan).into_iter().collect();
    scenario.with(|s| {
        let mut status = json!(s.status);
        for planned in &plan.steps {
            if let Step::Object(ObjectStep::UpdateStatus { status: recorded }) = &planned.step {
                instance_manager::api::apply_merge_patch(&mut status, recorded);
            }
        }
        s.status = serde_json::from_value(status).expect("a status");
        for node in s.state.nodes.values_mut() {
            node.in_place = written.get(&node.name).map(|change| change.record.clone()).or(node.in_place.take());
        }
    })
}

#[test]
fn plans_match_golden_files() {
    let change = || changed(BOTH, OLD, NEW);
    for (name, scenario) in [
        ("in_place/new-version", converged_with(resolved(&spec(BOTH, OLD), &[])).with_spec(&spec(BOTH, NEW))),
        ("in_place/changes-nodes", change()),
        ("in_place/not-asked-for", changed("[]", OLD, NEW)),
        ("in_place/done", with_records(change())),
        ("in_place/locked", change().with(|s| s.lock = Some("the annotation lock-upgrades"))),
    ] {
        assert_golden(name, &scenario.plan());
    }
}

/// Without this, a new label would replace each node of the group.
#[test]
fn labels_and_taints_change_without_a_rotation() {
    let plan = changed(BOTH, OLD, NEW).plan();
    let all = changes(&plan);
    assert_eq!(all.iter().map(|(node, _)| node.as_str()).collect::<Vec<_>>(), ["node-i-1", "node-i-2"]);
    assert!(!is_cordoned(&plan) && outdated(&plan) == 0);
    assert_eq!(plan.status_update.fields["nodes"]["updated"], 0, "they are current once they are changed");
    let message = "changing 2 nodes in place: labels[team]: a -> b, labels[tier]: web -> (none), \
                   labels[zone]: (none) -> z, taints: gpu=a:NoSchedule -> gpu=b:NoSchedule on 2 nodes";
    assert_eq!(progress(&plan), message);
}

#[test]
fn changed_nodes_are_current_also_when_in_place_is_removed() {
    let done = with_records(changed(BOTH, OLD, NEW));
    let removed = done.clone().with(|s| s.resolved = resolved(&spec("[]", NEW), &[]));
    for scenario in [done, removed] {
        let plan = scenario.plan();
        assert_eq!((changes(&plan).len(), is_cordoned(&plan), outdated(&plan)), (0, false, 0));
        assert_eq!(plan.status_update.fields["nodes"]["updated"], 2);
        assert_eq!(plan.outcome, Outcome::Converged);
    }
}

/// The version that the nodes were launched from is the desired one again, and the nodes are not as it says.
#[test]
fn reverted_change_is_reverted_on_the_nodes() {
    let reverted = |in_place: &str| {
        with_records(changed(BOTH, OLD, NEW))
            .with(|s| s.resolved = resolved(&spec(in_place, OLD), &[]))
            .with_scaling_group(|g| g.template.as_mut().expect("a pin").version = "1".into())
    };
    let plan = reverted(BOTH).plan();
    let all = changes(&plan);
    assert_eq!((all.len(), is_cordoned(&plan)), (2, false));
    let change = &all[0].1;
    assert_eq!(json!(change.set_labels), json!({"team": "a", "tier": "web"}));
    assert_eq!(json!(change.remove_labels), json!({"zone": "z"}));
    assert_eq!(json!(change.set_taints), json!([{"key": "gpu", "value": "a", "effect": "NoSchedule"}]));
    let plan = reverted("[]").plan();
    assert!(is_cordoned(&plan) && outdated(&plan) == 2, "without inPlace they are replaced");
}

#[test]
fn only_the_listed_fields_change_in_place() {
    for (in_place, from, to, stays) in [
        ("[labels]", "labels: {team: a}", "labels: {team: b}", true),
        ("[labels]", OLD, NEW, false),
        ("[taints]", "labels: {team: a}", "labels: {team: b}", false),
        ("[taints]", "labels: {team: a}", "labels: {team: a}, taints: [{key: gpu, effect: NoSchedule}]", true),
        ("[Taints, LABELS]", OLD, NEW, true),
        ("[]", "labels: {team: a}", "labels: {team: b}", false),
    ] {
        let plan = changed(in_place, from, to).plan();
        let found = (is_cordoned(&plan), changes(&plan).len());
        assert_eq!(found, if stays { (false, 2) } else { (true, 0) }, "{in_place}: {from} -> {to}");
    }
}

#[test]
fn other_differences_still_replace_nodes() {
    for to in [
        "labels: {team: b}, image: ami-00000002",
        "labels: {team: b}, bootstrapOptions: {maxPods: 20}",
        "labels: {team: b}, userData: [{name: x, stage: PreBootstrap, data: echo hello}]",
        "labels: {team: b}, tagSpecifications: [{resourceType: volume, tags: [{key: a, value: b}]}]",
        "labels: {team: a}, taints: [{key: gpu, effect: NoExecute}]",
        "labels: {team: a, node.kubernetes.io/web: ''}",
        "labels: {team: b}, taints: [{key: node.kubernetes.io/x, effect: NoSchedule}]",
        "labels: {team: b}, mixedInstancesPolicy: {spotRatio: 50, instanceTypes: [{type: m5a.large}]}",
    ] {
        assert_eq!(projected(&changed(BOTH, "labels: {team: a}", to)), (2, 0), "{to}");
    }
    let annotated = |role: &str| {
        let annotations = [("default-labels", role)];
        resolved(&spec(BOTH, "labels: {team: a}"), &annotations)
    };
    let role = changed_by(annotated("node.kubernetes.io/role=web"), annotated("node.kubernetes.io/role=api"));
    assert_eq!(projected(&role), (2, 0), "a role label: {:#?}", role.plan().steps);
    let rotated = changed(BOTH, OLD, NEW).with(|s| {
        s.resolved.desired.rolling_update.rotate_at = Some(timestamp(NOW));
        s.state.launch_times = [("i-1".to_owned(), timestamp(LONG_AGO))].into();
    });
    let plan = rotated.plan();
    let nodes: Vec<_> = changes(&plan).into_iter().map(|(node, _)| node).collect();
    assert_eq!((nodes, outdated(&plan)), (vec!["node-i-2".to_owned()], 1), "rotate-at replaces the other node");
}

/// The removal of an evicting taint evicts no pod.
#[test]
fn removed_no_execute_taint_changes_in_place() {
    let from = "taints: [{key: gpu, effect: NoExecute}, {key: gpu, effect: NoSchedule}]";
    let plan = changed(BOTH, from, "taints: [{key: gpu, effect: NoSchedule}]").plan();
    let all = changes(&plan);
    assert_eq!(all.len(), 2);
    assert_eq!(json!(all[0].1.remove_taints), json!([{"key": "gpu", "effect": "NoExecute"}]));
}

/// A new order is a new version, because the kubelet's arguments differ, and the same taints for a node.
#[test]
fn new_order_of_taints_changes_no_node() {
    let (a, b) = ("{key: a, effect: NoSchedule}", "{key: b, effect: NoSchedule}");
    let (from, to) = (format!("taints: [{a}, {b}]"), format!("taints: [{b}, {a}]"));
    let plan = changed(BOTH, &from, &to).plan();
    assert_eq!((changes(&plan).len(), outdated(&plan), &plan.outcome), (0, 0, &Outcome::Converged));
    assert_eq!(outdated(&changed("[]", &from, &to).plan()), 2, "without inPlace the version decides");
}

/// The name of a `userData` entry is no part of the version. The same edit without it changes labels on running nodes.
#[test]
fn inputs_without_a_difference_in_the_version_replace_no_node() {
    let stage = |name: &str| format!("userData: [{{name: {name}, stage: PreBootstrap, data: echo hello}}]");
    let plan = changed(BOTH, &format!("{OLD}, {}", stage("one")), &format!("{NEW}, {}", stage("two"))).plan();
    assert_eq!((changes(&plan).len(), outdated(&plan)), (2, 0), "{:?}", plan.steps);
}

/// What a node was launched with must be proven: otherwise a label that it never had would count as given.
#[test]
fn nodes_of_unproven_versions_are_replaced() {
    type Damage = fn(&mut ObservedVersion);
    let cases: [(&str, Damage); 4] = [
        ("another controller's version", |v| *v = ObservedVersion::new(None, v.data.clone())),
        ("user data that was not read", |v| *v = ObservedVersion::new(v.fingerprint.clone(), None)),
        ("user data that cannot be read back", |v| {
            let mut data = v.data.clone().expect("data");
            data.user_data = String::from("b3RoZXI=").into();
            *v = ObservedVersion::new(v.fingerprint.clone(), Some(data));
        }),
        ("a hash of other inputs", |v| {
            let mut print = v.fingerprint.clone().expect("a fingerprint");
            print.hash = "0".repeat(64);
            let data = TemplateData { instance_type: "m5.xlarge".into(), ..v.data.clone().expect("data") };
            *v = ObservedVersion::new(Some(print), Some(data));
        }),
    ];
    for (name, change) in cases {
        let plan = changed(BOTH, OLD, NEW).with(|s| change(s.state.versions.get_mut(&1).expect("a version"))).plan();
        assert!(changes(&plan).is_empty() && outdated(&plan) == 2, "{name}: {:?}", plan.steps);
    }
    let other_template = changed(BOTH, OLD, NEW).with_scaling_group(|g| {
        g.instances.iter_mut().for_each(|i| i.template.as_mut().expect("a pin").id = "lt-9".into())
    });
    assert_eq!(outdated(&other_template.plan()), 2);
}

/// A Node of the same name, made by the kubelet of a later instance, has what that instance was launched with.
#[test]
fn record_of_another_instance_does_not_count() {
    let foreign = with_records(changed(BOTH, OLD, NEW)).with(|s| {
        let record: &mut InPlaceRecord =
            s.state.nodes.get_mut("i-1").expect("a node").in_place.as_mut().expect("a record");
        record.instance = "i-0".into();
    });
    assert_eq!(changes(&foreign.plan()).into_iter().map(|(node, _)| node).collect::<Vec<_>>(), ["node-i-1"]);
}

/// A kubelet can write annotations of its own Node, but it cannot remove taints.
#[test]
fn forged_record_removes_no_foreign_labels_or_taints() {
    let quarantine = NodeTaint { key: "quarantine".into(), value: String::new(), effect: "NoSchedule".into() };
    let forged = with_records(changed(BOTH, OLD, NEW)).with(|s| {
        let record = s.state.nodes.get_mut("i-1").expect("a node").in_place.as_mut().expect("a record");
        record.labels.as_mut().expect("labels").insert("owner".into(), "security".into());
        record.taints.as_mut().expect("taints").insert(quarantine.clone());
    });
    assert!(changes(&forged.plan()).is_empty());
    let of_earlier_spec = forged.with(|s| {
        let managed = s.status.managed.as_mut().expect("a record");
        managed.labels.push("owner".into());
        managed.taints.push("quarantine:NoSchedule".into());
    });
    let all = changes(&of_earlier_spec.plan());
    assert_eq!(all.len(), 1);
    assert_eq!(json!(all[0].1.remove_labels), json!({"owner": "security"}));
    assert_eq!(all[0].1.remove_taints, [quarantine].into());
}

/// If the Node object is deleted, its kubelet makes it again with the labels of its launch.
#[test]
fn node_that_lost_its_record_is_changed_again() {
    let lost =
        with_records(changed(BOTH, OLD, NEW)).with(|s| s.state.nodes.get_mut("i-2").expect("a node").in_place = None);
    assert_eq!(changes(&lost.plan()).into_iter().map(|(node, _)| node).collect::<Vec<_>>(), ["node-i-2"]);
}

#[test]
fn nodes_that_have_not_joined_or_are_ambiguous_wait() {
    let scenario = changed(BOTH, OLD, NEW).with(|s| {
        s.state.nodes.remove("i-1");
        s.state.nodes.get_mut("i-2").expect("a node").duplicates = vec!["other".into()];
    });
    let plan = scenario.plan();
    assert_eq!((changes(&plan).len(), outdated(&plan)), (0, 0));
    let message = progress(&plan);
    assert!(message.contains("duplicate Nodes to be deleted (Nodes node-i-2, other all claim"), "{message}");
}

#[test]
fn one_pass_changes_a_hundred_nodes() {
    let scenario = changed(BOTH, OLD, NEW).with(|s| {
        let ids: Vec<_> = (1..=150).map(|number| format!("i-{number}")).collect();
        s.state.nodes = ids.iter().map(|id| (id.clone(), node(id))).collect();
        let group = s.state.scaling_group.as_mut().expect("a group");
        let first = group.instances[0].clone();
        group.instances = ids.into_iter().map(|id| Instance { id, ..first.clone() }).collect();
        (group.desired, group.max) = (150, 150);
        s.resolved.desired.max_size = 150;
    });
    let plan = scenario.plan();
    assert_eq!(changes(&plan).len(), 100);
    assert!(plan.events[0].message.ends_with("on 100 nodes; 50 more nodes follow"), "{:?}", plan.events);
    let rest = with_records(scenario).plan();
    assert_eq!(changes(&rest).len(), 50);
}

/// With a rollout, a change that takes no node of a group reaches it at once: the forecast counts the replacements.
#[test]
fn simulation_replaces_no_node() {
    let before = |in_place: &str| converged_with(resolved(&spec("[]", OLD), &[])).with_spec(&spec(in_place, NEW));
    assert_eq!((projected(&before(BOTH)), projected(&before("[]"))), ((0, 2), (2, 0)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    /// The field alone changes no hash, and no plan of a group whose labels and taints do not differ.
    #[test]
    fn groups_whose_labels_and_taints_do_not_differ_have_the_same_plans(scenario in any_scenario()) {
        let with_field = scenario.clone().with(|s| {
            let field = resolved(&spec(BOTH, ""), &[]).desired.rolling_update.in_place;
            let rolling = &mut s.resolved.desired.rolling_update;
            *rolling = RollingUpdateSettings { in_place: field, ..rolling.clone() };
        });
        let without_record = |scenario: &Scenario| {
            let mut plan = scenario.plan();
            plan.steps.retain(|planned| !matches!(planned.step, Step::Object(ObjectStep::UpdateStatus { .. })));
            plan
        };
        prop_assert_eq!(without_record(&scenario), without_record(&with_field));
    }
}

const TAGS: &str = "[tags]";

/// The steps that tag instances, as (tags set, tags removed), each as key=value.
fn tagged(plan: &Plan) -> Vec<(Vec<String>, Vec<String>)> {
    let texts = |tags: &[Tag]| tags.iter().map(|tag| format!("{}={}", tag.key, tag.value)).collect();
    let step = |planned: &PlannedStep| match &planned.step {
        Step::Eks(EksStep::TagInstances { set, remove, .. }) => Some((texts(set), texts(remove))),
        _ => None,
    };
    plan.steps.iter().filter_map(step).collect()
}

fn with_tags(in_place: &str, tags: &str) -> ResolvedGroup {
    resolved(&spec(in_place, &format!("tags: [{tags}]")), &[])
}

/// Applies the plan to what the planner sees: the tags of the scaling group and the record in the status.
fn after(scenario: Scenario) -> Scenario {
    after_steps(scenario, |_| true)
}

/// The same up to the step that tags instances: what follows it is not written any more.
fn interrupted(scenario: Scenario) -> Scenario {
    let mut tagged = false;
    after_steps(scenario, |step| {
        tagged |= matches!(step, Step::Eks(EksStep::TagInstances { .. }));
        !tagged
    })
}

fn after_steps(scenario: Scenario, is_applied: impl FnMut(&Step) -> bool) -> Scenario {
    let mut is_applied = is_applied;
    let plan = scenario.plan();
    let applied = plan.steps.iter().take_while(|planned| is_applied(&planned.step));
    let patches = applied.filter_map(|planned| match &planned.step {
        Step::Object(ObjectStep::UpdateStatus { status }) => status.get("managed").cloned(),
        _ => None,
    });
    let patches: Vec<_> = patches.collect();
    let tags = scenario.resolved.tags.clone();
    scenario.with(|s| {
        let mut managed = serde_json::to_value(s.status.managed.clone().unwrap_or_default()).expect("a record");
        for patch in &patches {
            instance_manager::api::apply_merge_patch(&mut managed, patch);
        }
        s.status.managed = Some(serde_json::from_value(managed).expect("a record"));
        s.state.scaling_group.as_mut().expect("a group").tags = tags;
    })
}

/// A cost report would show the old team until the next rotation.
#[test]
fn tags_of_running_instances_change_after_those_of_the_scaling_group() {
    let old = "{key: cost, value: a}, {key: old, value: x}, {key: same, value: s}";
    let settled = after(after(converged_with(with_tags(TAGS, old))));
    assert_eq!(settled.plan().steps, [], "nothing differs");
    let changed = settled
        .with(|s| s.resolved = with_tags(TAGS, "{key: cost, value: b}, {key: same, value: s}, {key: new, value: n}"));
    let plan = changed.plan();
    assert!(tagged(&plan).is_empty(), "instances that are launched meanwhile must get the new tags first");
    assert!(step_names(&plan).contains(&"PutTags") && step_names(&plan).contains(&"DeleteTags"), "{plan:?}");
    let ready = after(changed);
    let plan = ready.plan();
    let expected = (vec!["cost=b".to_owned(), "new=n".to_owned()], vec!["old=x".to_owned()]);
    assert_eq!(tagged(&plan), [expected], "only what differs is written");
    assert!(progress(&plan).contains("tags[cost]: a -> b"), "{}", progress(&plan));
    assert!(!is_cordoned(&plan) && outdated(&plan) == 0);
    assert_eq!(after(after(ready)).plan().steps, [], "and it is written once");
}

/// Instances may have been launched before earlier changes of the tags.
#[test]
fn instances_get_all_tags_once_when_the_group_asks_for_it_first() {
    let plain = after(converged_with(with_tags("[]", "{key: cost, value: a}, {key: old, value: x}")));
    let status = |s: &Scenario| serde_json::to_value(&s.status.managed).expect("a record");
    assert!(status(&plain).get("instanceTags").is_none(), "nothing is recorded without inPlace");
    let asks = after(plain.with(|s| s.resolved = with_tags(TAGS, "{key: cost, value: a}")));
    assert_eq!(tagged(&asks.plan()), [(vec!["cost=a".to_owned()], vec!["old=x".to_owned()])]);
    let done = after(asks);
    assert!(tagged(&done.plan()).is_empty());
    let without = after(done.with(|s| s.resolved = with_tags("[]", "{key: cost, value: b}")));
    assert!(tagged(&after(without.clone()).plan()).is_empty());
    assert_eq!(status(&without)["instanceTags"], serde_json::json!({"cost": "a"}), "the instances still have it");
}

/// A tag that the spec dropped while tags did not change in place would stay on the instances, also once they do again.
#[test]
fn tags_that_were_dropped_without_in_place_are_removed_once_it_lists_tags_again() {
    let with = |scenario: &Scenario, in_place: &str, tags: &str| {
        let resolved = with_tags(in_place, tags);
        scenario.clone().with(|s| s.resolved = resolved)
    };
    let settled = after(after(converged_with(with_tags(TAGS, "{key: cost, value: a}, {key: stage, value: test}"))));
    let without = after(with(&settled, "[]", "{key: cost, value: b}, {key: old, value: x}"));
    let dropped = after(with(&without, "[]", "{key: cost, value: b}"));
    for scenario in [&without, &dropped] {
        assert!(tagged(&scenario.plan()).is_empty(), "the instances keep the tags of their launch");
    }
    let values = |s: &Scenario| s.status.managed.clone().map(|managed| managed.started_instance_tags);
    assert_eq!(values(&after(dropped.clone())), values(&dropped), "nothing more is recorded");
    let back = with(&dropped, TAGS, "{key: cost, value: b}");
    let removed = ["old=x", "stage=test"].map(str::to_owned).to_vec();
    assert_eq!(tagged(&back.plan()), [(vec!["cost=b".to_owned()], removed)]);
    assert_eq!(after(back).plan().steps, []);
}

/// The process may stop after it tagged the instances, or the spec may change before it recorded that: the write of the
/// record is refused then. Instances would keep the tags of a spec that no one remembers.
#[test]
fn tags_of_a_change_whose_end_was_not_recorded_are_set_again_or_removed() {
    let spec_has = |scenario: &Scenario, tags: &str| {
        let resolved = with_tags(TAGS, tags);
        after(scenario.clone().with(|s| s.resolved = resolved))
    };
    let settled = after(after(converged_with(with_tags(TAGS, "{key: cost, value: a}"))));
    let changed = interrupted(spec_has(&settled, "{key: cost, value: b}, {key: stage, value: test}"));
    let back = spec_has(&changed, "{key: cost, value: a}");
    let expected = (vec!["cost=a".to_owned()], vec!["stage=test".to_owned()]);
    assert_eq!(tagged(&back.plan()), [expected], "instances may have either");
    assert_eq!(after(back).plan().steps, [], "and it is written once");

    let twice = interrupted(spec_has(&changed, "{key: stage, value: live}"));
    let removed = spec_has(&twice, "");
    let all = ["cost=a", "cost=b", "stage=live", "stage=test"].map(str::to_owned).to_vec();
    assert_eq!(tagged(&removed.plan()), [(vec![], all)], "each value that they may have is removed");
    assert_eq!(after(removed).plan().steps, []);

    let again = spec_has(&interrupted(spec_has(&settled, "")), "{key: cost, value: a}");
    assert_eq!(tagged(&again.plan()), [(vec!["cost=a".to_owned()], vec![])], "some instances may have lost it");
    assert_eq!(after(again).plan().steps, []);
}

/// A typo in the strategy and a removed tag in one edit: the instances would keep the tag, and all others would be written
/// again.
#[test]
fn tags_of_instances_stay_recorded_while_the_strategy_cannot_be_used() {
    let settled = after(after(converged_with(with_tags(TAGS, "{key: cost, value: a}, {key: old, value: x}"))));
    let managed = settled.status.managed.clone();
    let broken = after(settled.with(|s| {
        s.resolved = with_tags("[]", "{key: cost, value: a}");
        let error = SpecError::invalid("spec.strategy.rollingUpdate.maxSurge", "x", "is wrong", "correct it");
        s.resolved.broken.push(&[Part::Rotation], error);
    }));
    assert!(tagged(&broken.plan()).is_empty());
    let record = |managed: &Option<ManagedAttributes>| managed.clone().map(|found| found.instance_tags);
    assert_eq!(record(&broken.status.managed), record(&managed));
    let corrected = broken.with(|s| s.resolved = with_tags(TAGS, "{key: cost, value: a}"));
    assert_eq!(tagged(&corrected.plan()), [(vec![], vec!["old=x".to_owned()])]);
}

/// A user who can write the status must not make instances lose their ownership tags.
#[test]
fn recorded_tags_that_prove_ownership_are_not_removed() {
    let forged = after(after(converged_with(with_tags(TAGS, "{key: cost, value: a}")))).with(|s| {
        let managed = s.status.managed.as_mut().expect("a record");
        let tags = managed.instance_tags.as_mut().expect("tags");
        tags.extend(s.resolved.ownership_tags.iter().map(|tag| (tag.key.clone(), tag.value.clone())));
        tags.insert("aws:autoscaling:groupName".into(), "demo-team-web".into());
        managed.started_instance_tags = tags.iter().map(|(key, value)| (key.clone(), [value.clone()].into())).collect();
        managed.started_instance_tags.remove("cost");
    });
    let removed: Vec<_> = tagged(&forged.plan()).into_iter().flat_map(|(_, removed)| removed).collect();
    assert_eq!(removed, Vec::<String>::new());
}

/// An answer of AWS may be older than the scaling group. The instances would keep the old tags forever.
#[test]
fn tags_of_instances_stay_recorded_while_the_scaling_group_is_not_seen() {
    let settled = after(after(converged_with(with_tags(TAGS, "{key: cost, value: a}"))));
    let before = settled.status.managed.as_ref().expect("a record").instance_tags.clone();
    let changed = settled.with(|s| s.resolved = with_tags(TAGS, "{key: cost, value: b}")).with(remove_scaling_group);
    let patches = changed.plan().steps.into_iter().filter_map(|planned| match planned.step {
        Step::Object(ObjectStep::UpdateStatus { status }) => status["managed"].get("instanceTags").cloned(),
        _ => None,
    });
    let patches: Vec<_> = patches.collect();
    assert!(patches.iter().all(|tags| *tags == serde_json::json!(before)), "{patches:?}");
}

/// The label would count as another owner's, and stay on the nodes forever.
#[test]
fn labels_and_taints_stay_recorded_while_the_scaling_group_is_not_seen() {
    let done = with_records(changed(BOTH, OLD, NEW));
    let (old, new) = (done.status.managed.clone().expect("a record"), "labels: {team: b}");
    assert!(old.labels.contains(&"zone".to_owned()) && !old.taints.is_empty(), "{old:?}");
    let unseen = done.with(|s| s.resolved = resolved(&spec(BOTH, new), &[])).with(remove_scaling_group);
    let recorded = with_records(unseen).status.managed.expect("a record");
    assert!(recorded.labels.contains(&"zone".to_owned()) && recorded.taints == old.taints, "{recorded:?}");
}

/// Instances that were launched while tags did not change in place would keep a value that the spec had only then.
#[test]
fn tags_that_had_another_value_without_in_place_are_set_once_it_lists_tags_again() {
    let with = |scenario: Scenario, in_place: &str, tags: &str| {
        let resolved = with_tags(in_place, tags);
        scenario.with(|s| s.resolved = resolved)
    };
    let settled = after(after(converged_with(with_tags(TAGS, "{key: cost, value: a}"))));
    let other = after(with(settled, "[]", "{key: cost, value: b}"));
    let returned = after(with(other, "[]", "{key: cost, value: a}"));
    let back = with(returned, TAGS, "{key: cost, value: a}");
    assert_eq!(tagged(&back.plan()), [(vec!["cost=a".to_owned()], vec![])]);
    assert!(tagged(&after(back).plan()).is_empty());
}
