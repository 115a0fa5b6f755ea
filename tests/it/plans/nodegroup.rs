//! Managed node groups: made, changed in place, updated, replaced by another, and what EKS says of them.

use instance_manager::api::spec_error::Problem;
use instance_manager::aws::nodegroup::{
    Issue, Nodegroup, NodegroupName, NodegroupSizes, NodegroupStatus, NodegroupUpdate, UpdateStatus,
};
use instance_manager::ownership;
use instance_manager::plan::NodegroupStep;
use instance_manager::plan::{NodeStep, ObjectStep, Reason, Recheck, Step};
use instance_manager::provisioner::nodegroup::observed::{Group, State};
use instance_manager::provisioner::nodegroup::{delete, desired, input, observed, plan, resolve};
use instance_manager::rotation::{DrainView, PodView};

use super::*;

const ROLE: &str = "arn:aws:iam::1:role/nodes";

/// The shortest spec that stands for a complete group; `extra` is laid over its configuration.
fn parsed(extra: &str) -> Result<desired::Wanted, Vec<Problem>> {
    let base = "provisioner: eks-managed\neks-managed: {minSize: 2, maxSize: 4, configuration: {clusterName: demo, nodeRole: 'arn:aws:iam::1:role/nodes', instanceType: m5.large, subnets: [subnet-1]}}";
    let mut spec: Value = serde_yaml::from_str(base).expect("YAML");
    overlay(&mut spec, &serde_yaml::from_str(extra).expect("YAML"));
    desired::parse(&common::group_id(3, at(LONG_AGO)), &BTreeMap::new(), &decode_spec(&spec).expect("a spec"))
}

fn wish(extra: &str) -> resolve::Resolved {
    let network = resolve::Network::default();
    resolve::resolve(parsed(extra).expect("a group"), &network).expect("it resolves")
}

fn text(configuration: &str) -> String {
    format!("eks-managed: {{configuration: {{{configuration}}}}}")
}

/// A node group that has what is wanted, with two Ready nodes.
fn made(resolved: &resolve::Resolved, first: usize) -> Group {
    let w = &resolved.wanted;
    let tags = w.tags.clone().into_iter().chain(resolved.ownership.iter().map(|t| (t.key.clone(), t.value.clone())));
    let scaling = format!("eks-{}", resolved.name.nodegroup);
    let nodegroup = Nodegroup {
        name: resolved.name.clone(),
        arn: format!("arn:aws:eks:us-west-2:1:nodegroup/{}", resolved.name),
        created: Some(at(NOW)),
        status: NodegroupStatus::Active,
        version: w.version.clone().unwrap_or("1.33".into()),
        release_version: w.release_version.clone().unwrap_or("1.33.0-20250101".into()),
        capacity_type: w.shape.capacity_type.clone().unwrap_or("ON_DEMAND".into()),
        sizes: NodegroupSizes { min: w.min, max: w.max, desired: Some(2) },
        instance_types: w.shape.instance_types.clone(),
        subnets: w.shape.subnets.clone(),
        key_pair: w.shape.key_pair.clone(),
        security_groups: w.shape.security_groups.clone(),
        ami_type: "AL2023_x86_64_STANDARD".into(),
        node_role: w.shape.node_role.clone(),
        labels: w.labels.clone(),
        taints: w.taints.clone(),
        scaling_groups: vec![scaling.clone()],
        disk_size: Some(20),
        issues: vec![],
        max_unavailable: None,
        repair: false,
        tags: tags.collect(),
    };
    let pin = TemplatePin { id: "lt-eks".into(), version: "1".into() };
    let instance = |n: usize| Instance {
        id: format!("i-{n}"),
        zone: "us-west-2a".into(),
        state: InstanceState::InService,
        healthy: true,
        weight: 1,
        template: Some(pin.clone()),
        configuration: None,
        in_service_since: Some(at(LONG_AGO)),
    };
    let instances: Vec<_> = (first..first + 2).map(instance).collect();
    let members =
        instances.iter().map(|i| Member { node: Some(node(&i.id)), outdated: vec![], instance: i.clone() }).collect();
    let scaling = vec![ScalingGroup {
        name: scaling,
        min: w.min,
        max: w.max,
        desired: 2,
        subnets: vec!["subnet-1".into()],
        template: Some(pin),
        launch_configuration: None,
        mixed: None,
        tags: vec![],
        unpropagated: Default::default(),
        suspended: vec![],
        metrics: vec![],
        instances,
        warm_pool: None,
        deleting: false,
    }];
    Group { nodegroup, scaling, members }
}

/// A group, its node groups, and what its status remembers.
#[derive(Clone)]
struct Cloud {
    wish: resolve::Resolved,
    state: State,
    status: InstanceGroupStatus,
    lock: Option<&'static str>,
}

impl Cloud {
    fn of(groups: Vec<Group>, extra: &str) -> Self {
        let names: Vec<_> = groups.iter().map(|g| g.nodegroup.name.to_string()).collect();
        let arns: Vec<_> = groups.iter().map(|g| g.nodegroup.arn.clone()).collect();
        let managed = json!({ "nodegroups": names, "nodegroupArns": arns });
        let status = json!({ "provisioner": "eks-managed", "managed": managed });
        let status = serde_json::from_value(status).expect("a status");
        Cloud { wish: wish(extra), state: State { groups, ..State::default() }, status, lock: None }
    }

    /// One node group, made for `before`; `extra` is wanted now.
    fn standing(before: &str, extra: &str) -> Self {
        Self::of(vec![made(&wish(before), 1)], extra)
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn nodegroup(self, change: impl FnOnce(&mut Nodegroup)) -> Self {
        self.with(|c| change(&mut c.state.groups[0].nodegroup))
    }

    /// Nobody but this group's own reasons say why nodes have to go, as observing does.
    fn plan(&self) -> Plan {
        let mut state = self.state.clone();
        let current = observed::split(&self.wish, &state, &self.status).current.map(|g| g.nodegroup.name.clone());
        for group in state.groups.iter_mut().filter(|g| Some(&g.nodegroup.name) != current.as_ref()) {
            let because = observed::differences(&self.wish, &group.nodegroup);
            group.members.iter_mut().for_each(|m| m.outdated.clone_from(&because));
        }
        plan::plan(&input::Input {
            resolved: &self.wish,
            state: &state,
            status: &self.status,
            lock: self.lock,
            retention: 2,
            timing: &Timing::default(),
            now: at(NOW),
        })
    }

    /// The same after what the plan records was written.
    fn recorded(&self) -> Self {
        let mut status = json!(self.status);
        for planned in self.plan().steps {
            if let Step::Object(ObjectStep::Record { status: patch }) = planned.step {
                instance_manager::api::merge_patch(&mut status, &patch);
            }
        }
        Cloud { status: serde_json::from_value(status).expect("a status"), ..self.clone() }
    }

    fn steps(&self) -> Vec<&'static str> {
        self.plan().steps.iter().map(|planned| planned.step.name()).collect()
    }

    fn blocked(&self) -> (Reason, String) {
        match self.plan().outcome {
            Outcome::Blocked { reason, message, .. } => (reason, message),
            other => panic!("not blocked: {other:?}"),
        }
    }
}

const C5: &str = "eks-managed: {configuration: {instanceType: c5.large}}";

const RELEASED: &str = "eks-managed: {configuration: {version: '1.34', releaseVersion: 1.34.0-20250601}}";

/// The original made the node group, and nothing is on record.
fn found(c: &mut Cloud) {
    let nodegroup = &mut c.state.groups[0].nodegroup;
    nodegroup.name = NodegroupName::new("demo", "web");
    nodegroup.tags.clear();
    c.status = InstanceGroupStatus::default();
}

/// The second node group stands beside the first.
fn beside() -> Cloud {
    Cloud::of(vec![made(&wish(""), 1), made(&wish(C5), 3)], C5)
}

fn issue(code: &str) -> Issue {
    Issue { code: code.into(), message: "EKS's words".into(), resources: vec!["i-1".into()] }
}

fn update(status: UpdateStatus, kind: &str) -> NodegroupUpdate {
    NodegroupUpdate { id: "update-1".into(), status, kind: kind.into(), created: Some(at(NOW)), errors: vec![] }
}

/// The nodes of the first node group carry our record; what stands on them is `pods`.
fn drained(cloud: Cloud, pods: bool) -> Cloud {
    cloud.with(|c| {
        for member in &mut c.state.groups[0].members {
            let node = member.node.as_mut().expect("a node");
            node.cordoned = true;
            node.disruption = Some(Disruption {
                group: "uid-1".into(),
                template_version: c.wish.name.nodegroup.clone(),
                since: at(NOW),
                cordoned_before: false,
            });
            let pod =
                instance_manager::plan::PodRef { namespace: "team".into(), name: "app".into(), uid: "pod-1".into() };
            let pod = PodView { pod, stays: false, finished: false, bare: false, terminating: false, grace: 30 };
            let pods = if pods { vec![pod] } else { vec![] };
            c.state
                .drains
                .insert(node.name.clone(), DrainView { pods, empty_since: Some(at(NOW)), ..DrainView::default() });
        }
    })
}

#[test]
fn plans_are_what_the_golden_files_hold() {
    let everything = text(
        "instanceTypes: [m5a.large], capacityType: spot, amiType: AL2023_x86_64_STANDARD, volSize: 40, keyPairName: key, \
         securityGroups: [sg-1], nodeLabels: {team: web}, taints: [{key: a, value: b, effect: NoSchedule}], \
         tags: [{key: owner, value: web}], version: '1.33', releaseVersion: 1.33.0-20250101, nodeRepairConfig: {enabled: true}",
    ) + "\nstrategy: {managed: {maxUnavailable: 25%}}";
    let newer = text("releaseVersion: 1.33.0-20250601");
    let in_place = text(
        "nodeLabels: {tier: gold}, taints: [{key: a, value: c, effect: NO_EXECUTE}], nodeRepairConfig: {enabled: true}",
    ) + "\nstrategy: {managed: {maxUnavailable: 2}}";
    let sized = "eks-managed: {minSize: 3, maxSize: 9}";
    let scenarios = [
        ("create", Cloud::of(vec![], &everything)),
        ("converged", Cloud::standing("", "")),
        (
            "changes-in-place",
            Cloud::standing(&text("nodeLabels: {team: web}"), &in_place).with(|c| {
                c.status.managed.as_mut().expect("a record").labels = vec!["team".into()];
            }),
        ),
        (
            "tags-change-at-once",
            Cloud::standing(&text("tags: [{key: owner, value: web}]"), &text("tags: [{key: tier, value: gold}]"))
                .with(|c| c.status.managed.as_mut().expect("a record").tags = vec!["owner".into()]),
        ),
        (
            "tags-that-aws-refuses-rest",
            Cloud::standing("", &text("tags: [{key: tier, value: gold}]")).with(|c| c.state.tagging_rests = true),
        ),
        ("desired-is-sent-when-it-would-be-outside", Cloud::standing("", sized)),
        ("a-new-release-is-an-update", Cloud::standing("", &newer)),
        (
            "an-update-is-followed",
            Cloud::standing("", &newer).nodegroup(|n| n.status = NodegroupStatus::Updating).with(|c| {
                c.status.update_id = Some("update-1".into());
                c.state.update = Some(update(UpdateStatus::InProgress, "VersionUpdate"));
                c.state.groups[0].scaling[0].template.as_mut().expect("a pin").version = "2".into();
            }),
        ),
        ("a-second-group-is-made", Cloud::standing("", C5)),
        ("old-nodes-are-drained-one-at-a-time", beside()),
        ("drained-nodes-stay-until-their-group-is-deleted", drained(beside(), false)),
        ("taken-over", Cloud::standing("", C5).with(found)),
        ("taken-over-with-another-release", Cloud::standing("", RELEASED).with(found)),
    ];
    for (name, cloud) in scenarios {
        hold(&format!("managed/{name}"), &cloud.plan());
    }
}

#[test]
fn a_takeover_replaces_no_node_in_its_own_pass_nor_after_any_cut() {
    for wanted in [C5, RELEASED] {
        let first = Cloud::standing("", wanted).with(found);
        assert_eq!(first.steps(), ["Record", "TagNodegroup"], "{wanted}");
        let cut = first.recorded();
        assert_eq!(cut.steps(), ["TagNodegroup"], "{wanted}: all of it is in the one record");
        let tagged = cut.with(|c| {
            let ownership = c.wish.ownership.iter().map(|t| (t.key.clone(), t.value.clone())).collect();
            c.state.groups[0].nodegroup.tags = ownership;
        });
        assert_eq!(tagged.steps(), [""; 0], "{wanted}");
        assert_eq!(tagged.plan().outcome, Outcome::Converged, "{wanted}");
    }
    let later = Cloud::standing("", RELEASED).with(found).recorded();
    let changed = later.with(|c| c.wish = wish(&text("version: '1.34', releaseVersion: 1.34.0-20251001")));
    assert!(changed.steps().contains(&"UpdateNodegroupVersion"), "the next change brings it");
}

#[test]
fn what_was_removed_last_leaves_the_record_and_the_plans_come_to_rest() {
    let before =
        text("nodeLabels: {team: web}, taints: [{key: a, effect: NoSchedule}], tags: [{key: owner, value: web}]");
    let bare = Cloud::standing(&before, &before).recorded().with(|c| {
        c.wish = wish("");
        c.state.groups[0].nodegroup = made(&wish(""), 1).nodegroup;
    });
    assert_eq!(bare.steps(), ["Record"]);
    let after = bare.recorded();
    let managed = after.status.managed.clone().expect("a record");
    assert!(managed.labels.is_empty() && managed.taints.is_empty() && managed.tags.is_empty(), "{managed:?}");
    assert_eq!(after.steps(), [""; 0]);
}

#[test]
fn the_autoscalers_size_is_left_unsaid_while_it_fits() {
    let sizes = "eks-managed: {minSize: 1, maxSize: 9}";
    let change = |cloud: Cloud| match &cloud.plan().steps.last().expect("a step").step {
        Step::Nodegroup(NodegroupStep::UpdateNodegroup { change, .. }) => change.sizes.expect("sizes"),
        other => panic!("{other:?}"),
    };
    assert_eq!(change(Cloud::standing("", sizes)).desired, None);
    let shrunk = "eks-managed: {minSize: 1, maxSize: 1}";
    assert_eq!(change(Cloud::standing("", shrunk)).desired, Some(1));
}

#[test]
fn an_update_that_somebody_runs_is_waited_for_and_never_doubled() {
    let cloud = Cloud::standing("", &text("releaseVersion: 1.33.0-20250601, nodeLabels: {a: b}"));
    let busy = cloud.clone().nodegroup(|n| n.status = NodegroupStatus::Updating);
    assert_eq!(busy.steps(), ["Record"]);
    assert!(matches!(busy.plan().outcome, Outcome::Progressing { .. }));
    assert_eq!(cloud.steps(), ["Record", "UpdateNodegroup"], "labels first; one change at a time");
}

#[test]
fn an_update_that_failed_is_told_and_begun_again_after_an_hour_or_for_something_else() {
    let newer = text("releaseVersion: 1.33.0-20250601");
    let of = match &Cloud::standing("", &newer).plan().steps.last().expect("a step").step {
        Step::Nodegroup(NodegroupStep::UpdateNodegroupVersion { of, .. }) => of.clone(),
        other => panic!("{other:?}"),
    };
    let failed = Cloud::standing("", &newer).with(|c| {
        c.status.update_id = Some("update-1".into());
        c.status.update_of = Some(of);
        let mut update = update(UpdateStatus::Failed, "VersionUpdate");
        update.errors = vec![issue("PodEvictionFailure")];
        c.state.update = Some(update);
    });
    let (reason, message) = failed.blocked();
    assert_eq!(reason, Reason::DrainBlocked);
    assert!(
        message.contains("update-1") && message.contains("i-1") && message.contains("disruption budgets"),
        "{message}"
    );
    assert!(failed.plan().wake.is_some());
    let later = failed.clone().with(|c| c.state.update.as_mut().expect("it").created = Some(at(LONG_AGO)));
    assert!(later.steps().contains(&"UpdateNodegroupVersion"));
    let other = failed.with(|c| c.wish = wish(&text("releaseVersion: 1.33.0-20251001")));
    assert!(other.steps().contains(&"UpdateNodegroupVersion"));
}

#[test]
fn a_lock_holds_what_replaces_nodes_and_nothing_else() {
    let locked = |cloud: Cloud| cloud.with(|c| c.lock = Some("lock-upgrades on the group"));
    let both = "eks-managed: {configuration: {instanceType: c5.large, nodeLabels: {a: b}}}";
    assert_eq!(locked(Cloud::standing("", both)).steps(), ["Record", "UpdateNodegroup"]);
    for cloud in [Cloud::standing("", C5), Cloud::standing("", &text("releaseVersion: x")), beside()] {
        let plan = locked(cloud).plan();
        assert!(matches!(plan.outcome, Outcome::Locked { .. }), "{:?}", plan.outcome);
        assert!(plan.steps.iter().all(|s| !s.step.disrupts() && !s.step.makes()), "{:?}", plan.steps);
    }
    let given_back = locked(drained(beside(), false)).steps();
    assert_eq!(given_back.iter().filter(|s| **s == "UnmarkNode").count(), 2, "{given_back:?}");
}

#[test]
fn no_old_node_is_touched_before_the_new_ones_are_ready() {
    let waiting = beside().with(|c| c.state.groups[1].members[0].node = None);
    assert!(waiting.steps().iter().all(|s| *s == "Record"), "{:?}", waiting.steps());
    let late =
        waiting.with(|c| c.state.groups[1].members[0].instance.in_service_since = Some(at("2026-01-01T12:00:00Z")));
    assert_eq!(late.blocked().0, Reason::ReplacementsNotReady);
    let sick = beside().with(|c| c.state.fleet = Fleet { known: 4, not_ready: 3 });
    assert_eq!(sick.blocked().0, Reason::ClusterUnhealthy);
    assert_eq!(sick.steps(), ["Record"; 0]);
}

#[test]
fn replacements_that_cannot_be_made_halt_and_the_old_nodes_stay() {
    let failed = beside().with(|c| {
        c.state.groups[1].nodegroup.status = NodegroupStatus::CreateFailed;
        c.state.groups[1].nodegroup.issues = vec![issue("AsgInstanceLaunchFailures")];
    });
    let (reason, message) = failed.blocked();
    assert_eq!(reason, Reason::ReplacementsNotReady);
    assert!(message.contains("spec.eks-managed.configuration.instanceTypes"), "{message}");
    assert!(failed.plan().notes.iter().any(|n| n.condition == "RotationHalted" && n.status));
    assert!(failed.steps().iter().all(|s| *s == "Record"));
}

#[test]
fn a_change_that_is_taken_back_uncordons_the_old_nodes_and_drains_the_new_ones() {
    let back = drained(beside(), true).with(|c| c.wish = wish(""));
    let steps = back.steps();
    assert_eq!(steps.iter().filter(|s| **s == "UnmarkNode").count(), 2, "{steps:?}");
    assert!(!steps.contains(&"Evict"), "{steps:?}");
    let plan = Cloud { wish: wish(""), ..beside() }.plan();
    let marked: Vec<_> = plan
        .steps
        .iter()
        .filter_map(|s| match &s.step {
            Step::Node(NodeStep::MarkNode { instance, .. }) => Some(instance.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(marked, ["i-3"]);
}

#[test]
fn a_third_wish_in_the_middle_is_as_large_as_the_largest() {
    let third = Cloud { wish: wish(&text("instanceType: m6i.large")), ..beside() };
    let plan = third.plan();
    let Some(Step::Nodegroup(NodegroupStep::CreateNodegroup(new))) = plan.steps.last().map(|s| &s.step) else {
        panic!("{plan:?}")
    };
    assert_eq!(new.sizes.desired, Some(2));
}

#[test]
fn what_eks_says_is_wrong_is_a_condition_with_a_remedy() {
    let degraded = |code: &str| {
        Cloud::standing("", "").nodegroup(|n| {
            n.status = NodegroupStatus::Degraded;
            n.issues = vec![issue(code)];
        })
    };
    for (code, reason, words) in [
        ("AccessDenied", Reason::MissingPermission, "AmazonEKSWorkerNodePolicy"),
        ("AsgInstanceLaunchFailures", Reason::LaunchFailed, "instanceTypes"),
        ("InsufficientFreeAddresses", Reason::InsufficientCapacity, "subnets"),
        ("InstanceLimitExceeded", Reason::QuotaExceeded, "quota"),
        ("Ec2SubnetNotFound", Reason::NotFound, "configuration.subnets"),
        ("IamNodeRoleNotFound", Reason::NotFound, "nodeRole"),
        ("SomethingNew", Reason::Degraded, "EKS's words"),
    ] {
        let (found, message) = degraded(code).blocked();
        assert_eq!(found, reason, "{code}");
        assert!(message.contains(words) && message.contains("i-1"), "{code}: {message}");
    }
    let role = degraded("NodeCreationFailure").with(|c| c.state.lacking = vec!["AmazonEKSWorkerNodePolicy".into()]);
    let (reason, message) = role.blocked();
    assert_eq!(reason, Reason::NodesNotReady);
    assert!(message.contains("nodeRole lacks AmazonEKSWorkerNodePolicy"), "{message}");
    let (_, message) = Cloud::standing("", "")
        .nodegroup(|n| {
            n.status = NodegroupStatus::CreateFailed;
            n.issues = vec![issue("Ec2SubnetNotFound")];
        })
        .blocked();
    assert!(message.contains("could not be made") && message.contains("mend it"), "{message}");
}

#[test]
fn what_a_new_node_group_refers_to_is_judged_by_field_before_anything_is_made() {
    let r = wish(&text("keyPairName: key, securityGroups: [sg-1]"));
    let object = |id: &str, vpc: &str| NetworkObject { id: id.into(), name: None, vpc: vpc.into(), zone: None };
    let env = resolve::Environment {
        cluster: Some(common::cluster()),
        network: vec![object("sg-1", "vpc-2")],
        role_missing: true,
    };
    let problems = resolve::problems(&r, &env);
    let told = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for field in ["nodeRole", "subnets", "securityGroups"] {
        assert!(told.contains(&format!("spec.eks-managed.configuration.{field}")), "{told}");
    }
    let blocked = Cloud::of(vec![], "").with(|c| c.state.problems = problems);
    assert_eq!(blocked.blocked().0, Reason::NotFound);
    assert_eq!(blocked.steps(), [""; 0]);
    let taken = Cloud::of(vec![], "").with(|c| c.state.taken = Some(c.wish.name.clone()));
    assert_eq!(taken.blocked().0, Reason::NotOurs);
    let older = Cloud::standing("", &text("version: '1.32'"));
    let (reason, message) = older.blocked();
    assert!(reason == Reason::InvalidSpec && message.contains("configuration.version `1.32`"), "{message}");
}

#[test]
fn a_spec_that_eks_would_refuse_is_told_at_once_and_by_field() {
    let wrong = "eks-managed: {minSize: 5, maxSize: 4, configuration: {nodeRole: nodes, instanceTypes: [huge], amiType: CUSTOM, volSize: -1, taints: [{effect: NoSchedule}], tags: [{key: 'aws:x', value: y}]}}\nstrategy: {managed: {maxUnavailable: 9}}";
    let problems = parsed(wrong).expect_err("much is wrong");
    let paths: Vec<_> = problems.iter().map(|p| p.path.replace("spec.eks-managed.", "")).collect();
    for path in [
        "minSize",
        "configuration.nodeRole",
        "configuration.instanceTypes",
        "configuration.amiType",
        "configuration.volSize",
        "configuration.taints[0].key",
        "configuration.tags[0].key",
        "spec.strategy.managed.maxUnavailable",
    ] {
        assert!(paths.iter().any(|p| p == path), "{path} of {paths:?}");
    }
    let empty = decode_spec(&json!({ "provisioner": "eks-managed" })).expect("a spec");
    let id = common::group_id(1, at(LONG_AGO));
    let missing = desired::parse(&id, &BTreeMap::new(), &empty).expect_err("nothing is there");
    assert!(
        missing.iter().any(|p| p.path.ends_with(".nodeRole")) && missing.iter().any(|p| p.path.ends_with(".subnets"))
    );
}

#[test]
fn whose_a_node_group_is_follows_from_tags_record_and_name() {
    use observed::{Whose, whose};
    let r = wish("");
    let named = |name: &str| {
        let mut found = made(&r, 1).nodegroup;
        found.name = NodegroupName::new("demo", name);
        found.tags.clear();
        found
    };
    let status = |text: &str| serde_json::from_value(json!({ "activeScalingGroupName": text })).expect("a status");
    let none = InstanceGroupStatus::default();
    assert_eq!(whose(&r, &none, &named("web")), Whose::Found);
    assert_eq!(whose(&r, &none, &named("web2")), Whose::Others);
    let other_role = Nodegroup { node_role: "arn:aws:iam::1:role/other".into(), ..named("web") };
    assert_eq!(whose(&r, &none, &other_role), Whose::Others);
    let asg = other_role.scaling_groups[0].clone();
    assert_eq!(whose(&r, &status(&asg), &other_role), Whose::Found, "the status of before names its scaling group");
    assert_eq!(whose(&r, &status("eks-another"), &named("web")), Whose::Others);
    let mut foreign = named("web");
    foreign.tags = [("instancegroups.keikoproj.io/Namespace".to_owned(), "other".to_owned())].into();
    assert_eq!(whose(&r, &none, &foreign), Whose::Others);
    assert_eq!(whose(&r, &none, &made(&r, 1).nodegroup), Whose::Ours);
}

/// Whoever may make an InstanceGroup may call it as any node group there is: theirs is none that was there before.
#[test]
fn a_node_group_that_was_there_before_the_instancegroup_is_not_taken_over_by_its_name() {
    use observed::{Whose, whose};
    let r = wish("");
    let none = InstanceGroupStatus::default();
    let found = Nodegroup { tags: BTreeMap::new(), name: NodegroupName::new("demo", "web"), ..made(&r, 1).nodegroup };
    let born = r.wanted.id.created;
    let of = |created| Nodegroup { created, ..found.clone() };
    assert_eq!(whose(&r, &none, &of(Some(born))), Whose::Found, "the original makes it after the InstanceGroup");
    let older = of(Some(born - SignedDuration::from_secs(1)));
    let told = InstanceGroupStatus {
        active_scaling_group_name: Some(found.scaling_groups[0].clone()),
        ..InstanceGroupStatus::default()
    };
    assert_eq!(whose(&r, &told, &older), Whose::Found, "the status of before names its scaling group");
    let mut id = common::group_id(3, at(LONG_AGO));
    id.deleting = true;
    let ownership = |cluster: &str| ownership::ownership(cluster, &id);
    for left in [older.clone(), of(None)] {
        assert_eq!(whose(&r, &none, &left), Whose::Older);
        let (resolved, nodegroups) = (Some(&r), std::slice::from_ref(&left));
        let (status, tagging_rests) = (&none, false);
        let input = delete::Input { id: &id, ownership: &ownership, status, resolved, nodegroups, tagging_rests };
        let steps: Vec<_> = delete::plan(&input).steps.iter().map(|s| s.step.name()).collect();
        assert_eq!(steps, ["RemoveFinalizer"]);
    }
    let mut cloud = Cloud::of(vec![], "").with(|c| c.state.older = Some(found.name.clone()));
    assert_eq!(cloud.steps(), [""; 0]);
    let (reason, message) = cloud.blocked();
    let tags = r.ownership.iter().all(|tag| message.contains(&format!("{}={}", tag.key, tag.value)));
    assert!(reason == Reason::NotOurs && tags, "{message}");
    let by_hand = Nodegroup { tags: made(&r, 1).nodegroup.tags, ..older };
    assert_eq!(whose(&r, &none, &by_hand), Whose::Found);
    cloud.state = Cloud::standing("", "").state;
    cloud.state.older = Some(found.name);
    assert_eq!(cloud.plan().outcome, Outcome::Converged, "one of its own needs no other");
}

#[test]
fn a_name_on_record_proves_nothing_without_the_tags_or_the_arn_that_it_had() {
    use observed::{Whose, whose};
    let r = wish("");
    let mut id = common::group_id(3, at(LONG_AGO));
    id.deleting = true;
    let ownership = |cluster: &str| ownership::ownership(cluster, &id);
    let taken = Cloud::standing("", "").with(found).recorded();
    let ours = taken.state.groups[0].nodegroup.clone();
    let named = InstanceGroupStatus {
        managed: Some(ManagedAttributes { nodegroups: vec!["demo/web".into()], ..Default::default() }),
        active_scaling_group_name: Some("eks-before".into()),
        ..InstanceGroupStatus::default()
    };
    let told = InstanceGroupStatus { active_scaling_group_name: Some("eks-before".into()), ..taken.status.clone() };
    let again = Nodegroup { arn: format!("{}-made-again", ours.arn), ..ours.clone() };
    let tagged = Nodegroup { tags: made(&r, 1).nodegroup.tags, ..again.clone() };
    let other = Nodegroup {
        tags: [("instancegroups.keikoproj.io/Namespace".to_owned(), "other".to_owned())].into(),
        ..ours.clone()
    };
    for (status, nodegroup, whose_it_is, what) in [
        (&told, &ours, Whose::Ours, "the ARN on record, not tagged yet"),
        (&told, &again, Whose::Others, "another one of the same name"),
        (&told, &other, Whose::Others, "claimed by another since"),
        (&named, &ours, Whose::Others, "a name alone"),
        (&named, &tagged, Whose::Ours, "a record without ARNs, and tags"),
    ] {
        assert_eq!(whose(&r, status, nodegroup), whose_it_is, "{what}");
        let nodegroups = std::slice::from_ref(nodegroup);
        let input =
            delete::Input { id: &id, ownership: &ownership, status, resolved: None, nodegroups, tagging_rests: false };
        let plan = delete::plan(&input);
        let touches = plan.steps.iter().any(|s| ["TagNodegroup", "DeleteNodegroup"].contains(&s.step.name()));
        assert_eq!(touches, whose_it_is == Whose::Ours, "{what}");
    }
}

#[test]
fn a_deletion_of_what_was_never_adopted_waits_for_a_spec_that_names_it() {
    let mut id = common::group_id(3, at(LONG_AGO));
    id.deleting = true;
    let ownership = |cluster: &str| ownership::ownership(cluster, &id);
    let told =
        InstanceGroupStatus { active_scaling_group_name: Some("eks-web".into()), ..InstanceGroupStatus::default() };
    let none = InstanceGroupStatus::default();
    let plan = |status, resolved| {
        delete::plan(&delete::Input {
            id: &id,
            ownership: &ownership,
            status,
            resolved,
            nodegroups: &[],
            tagging_rests: false,
        })
    };
    let refused = plan(&told, None);
    assert!(
        matches!(&refused.outcome, Outcome::Blocked { deleting: true, message, .. } if message.contains("remove the finalizer")),
        "{:?}",
        refused.outcome
    );
    assert!(refused.steps.is_empty(), "{:?}", refused.steps);
    let r = wish("");
    for plan in [plan(&told, Some(&r)), plan(&none, None)] {
        assert_eq!(plan.outcome, Outcome::Deleted);
        assert_eq!(plan.steps.len(), 1);
    }
}

#[test]
fn sizes_that_take_nodes_wait_for_the_lock_and_for_a_healthy_cluster() {
    let wanted = "eks-managed: {minSize: 1, maxSize: 1, configuration: {nodeLabels: {a: b}}}";
    let shrunk = Cloud::standing("", wanted);
    let sizes = |cloud: &Cloud| match &cloud.plan().steps.last().expect("a step").step {
        Step::Nodegroup(NodegroupStep::UpdateNodegroup { change, .. }) => {
            (change.sizes.map(|s| s.max), change.set_labels.len())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(sizes(&shrunk), (Some(1), 1));
    let lock = |c: &mut Cloud| c.lock = Some("lock-upgrades on the group");
    let sick = |c: &mut Cloud| c.state.fleet = Fleet { known: 4, not_ready: 3 };
    let labelled = |c: &mut Cloud| c.state.groups[0].nodegroup.labels = c.wish.wanted.labels.clone();
    assert_eq!(sizes(&shrunk.clone().with(lock)), (None, 1), "the rest goes on");
    assert_eq!(sizes(&shrunk.clone().with(sick)), (None, 1), "the rest goes on");
    let locked = shrunk.clone().with(lock).with(labelled);
    assert!(
        matches!(locked.plan().outcome, Outcome::Locked { message } if message.contains("1 of 2 nodes")),
        "{:?}",
        locked.plan().outcome
    );
    assert_eq!(locked.steps(), ["Record"]);
    assert_eq!(shrunk.clone().with(sick).with(labelled).blocked().0, Reason::ClusterUnhealthy);
    let disrupts = |cloud: &Cloud| cloud.plan().steps.last().expect("a step").step.disrupts();
    assert!(disrupts(&shrunk), "the locks are looked at again right before it");
    assert!(!disrupts(&shrunk.clone().with(lock)), "what takes no node away is not held up");
    let grown = Cloud::standing("", "eks-managed: {minSize: 3, maxSize: 9}");
    assert!(sizes(&grown).0 == Some(9) && !disrupts(&grown));
    let room = Cloud::standing("", "eks-managed: {minSize: 1, maxSize: 3, configuration: {nodeLabels: {a: b}}}");
    assert_eq!(sizes(&room.with(lock)), (Some(3), 1), "a lock holds no size that takes nothing");
}

/// Else nobody would learn why a tag does not come, and EKS would be asked for it in every pass.
#[test]
fn tags_that_aws_refuses_are_told_and_rest_while_everything_else_goes_on() {
    let owner = |more: &str| text(&format!("tags: [{{key: owner, value: web}}{more}]"));
    let standing = Cloud::standing(&owner(""), &owner("")).recorded();
    let wants = |extra: &str| standing.clone().with(|c| c.wish = wish(extra));
    let rests = |cloud: Cloud| cloud.with(|c| c.state.tagging_rests = true);
    assert_eq!(rests(wants(&owner(""))).plan().outcome, Outcome::Converged, "nothing is to be tagged");
    let both = text("tags: [{key: tier, value: gold}]");
    for (wanted, steps, rights) in [
        (owner(", {key: tier, value: gold}"), vec!["TagNodegroup"], "not eks:TagResource;"),
        (String::new(), vec!["UntagNodegroup"], "not eks:UntagResource;"),
        (both, vec!["TagNodegroup", "UntagNodegroup"], "not eks:TagResource and eks:UntagResource;"),
    ] {
        let cloud = wants(&wanted).recorded();
        assert_eq!(cloud.steps(), steps);
        assert!(matches!(cloud.plan().outcome, Outcome::Progressing { recheck: Recheck::Soon, .. }));
        let cloud = rests(cloud);
        assert_eq!(cloud.steps(), [""; 0], "{wanted}");
        let (reason, message) = cloud.blocked();
        assert!(reason == Reason::MissingPermission && message.contains(rights), "{message}");
        assert_eq!(cloud.plan().facts.nodes_ready, Some(true));
        let labelled = cloud.with(|c| c.wish.wanted.labels = BTreeMap::from([("a".into(), "b".into())])).recorded();
        assert_eq!(labelled.steps(), ["UpdateNodegroup"]);
    }
}

#[test]
fn an_update_that_failed_is_asked_for_no_more_once_nothing_is_wanted_of_it() {
    let failed = |wanted: &str| {
        Cloud::standing("", wanted).with(|c| {
            c.status.update_id = Some("update-1".into());
            c.status.update_of = Some("what it was to reach".into());
            c.state.update = Some(update(UpdateStatus::Failed, "VersionUpdate"));
        })
    };
    let reverted = failed("").plan();
    assert_eq!(reverted.outcome, Outcome::Converged);
    assert_eq!(reverted.facts.status.get("updateOf"), Some(&Value::Null));
    assert_eq!(failed(RELEASED).plan().facts.status.get("updateOf"), None, "it is begun again");
}

#[test]
fn a_lock_spares_the_look_at_what_a_second_node_group_would_refer_to() {
    let state = Cloud::standing("", C5).state;
    assert!(state.holds(Some("lock-upgrades on the group")) && !state.holds(None));
    let gone = Cloud::standing("", C5).nodegroup(|n| n.status = NodegroupStatus::Deleting).state;
    for free in [gone, State::default()] {
        assert!(!free.holds(Some("lock-upgrades on the group")), "the next one is a first one");
    }
}

#[test]
fn a_deletion_waits_for_eks_and_leaves_what_is_others() {
    let mut id = common::group_id(3, at(LONG_AGO));
    id.deleting = true;
    let tags = |cluster: &str| ownership::ownership(cluster, &id);
    let cloud = Cloud::standing("", "");
    let plan = |nodegroups: &[Nodegroup]| {
        delete::plan(&delete::Input {
            id: &id,
            ownership: &tags,
            status: &cloud.status,
            resolved: None,
            nodegroups,
            tagging_rests: false,
        })
    };
    let one = cloud.state.groups[0].nodegroup.clone();
    let of = |status| Nodegroup { status, ..one.clone() };
    let steps = |plan: &Plan| plan.steps.iter().map(|s| s.step.name()).collect::<Vec<_>>();
    assert_eq!(steps(&plan(&[of(NodegroupStatus::Active)])), ["DeleteNodegroup"]);
    for busy in [NodegroupStatus::Creating, NodegroupStatus::Updating, NodegroupStatus::Deleting] {
        assert_eq!(steps(&plan(&[of(busy)])), [""; 0]);
    }
    let refused =
        Nodegroup { issues: vec![issue("Ec2SecurityGroupDeletionFailure")], ..of(NodegroupStatus::DeleteFailed) };
    let refused = plan(&[refused]);
    assert!(
        matches!(&refused.outcome, Outcome::Blocked { deleting: true, message, .. } if message.contains("mend it"))
    );
    assert_eq!(steps(&refused), ["DeleteNodegroup"], "it is tried again");
    let mut foreign = one.clone();
    foreign.tags.insert("instancegroups.keikoproj.io/Namespace".into(), "other".into());
    assert_eq!(steps(&plan(&[foreign])), ["RemoveFinalizer"]);
    assert_eq!(steps(&plan(&[])), ["RemoveFinalizer"]);
}

/// The rights that are shipped reach no node group without the tags: its deletion would be refused for ever.
#[test]
fn what_the_original_made_is_tagged_before_it_is_deleted() {
    let mut id = common::group_id(3, at(LONG_AGO));
    id.deleting = true;
    let ownership = |cluster: &str| ownership::ownership(cluster, &id);
    let cloud = Cloud::standing("", "").with(found);
    let plan = |nodegroup: &Nodegroup, tagging_rests| {
        let (status, resolved) = (&cloud.status, Some(&cloud.wish));
        let nodegroups = std::slice::from_ref(nodegroup);
        delete::plan(&delete::Input { id: &id, ownership: &ownership, status, resolved, nodegroups, tagging_rests })
    };
    let steps = |plan: &Plan| plan.steps.iter().map(|s| s.step.name()).collect::<Vec<_>>();
    let mut nodegroup = cloud.state.groups[0].nodegroup.clone();
    let rests = plan(&nodegroup, true);
    assert_eq!(steps(&rests), [""; 0]);
    assert!(
        matches!(&rests.outcome, Outcome::Blocked { reason: Reason::MissingPermission, deleting: true, message } if message.contains("eks:TagResource")),
        "{:?}",
        rests.outcome
    );
    let first = plan(&nodegroup, false);
    assert_eq!(steps(&first), ["TagNodegroup"]);
    let Step::Nodegroup(NodegroupStep::TagNodegroup { tags, .. }) = &first.steps[0].step else { panic!("{first:?}") };
    nodegroup.tags.extend(tags.clone());
    assert_eq!(steps(&plan(&nodegroup, false)), ["DeleteNodegroup"]);
    let leaving = Nodegroup { status: NodegroupStatus::Deleting, tags: BTreeMap::new(), ..nodegroup };
    assert_eq!(steps(&plan(&leaving, false)), [""; 0]);
}

#[test]
fn the_role_is_the_one_that_the_spec_names() {
    assert_eq!(wish("").wanted.shape.node_role, ROLE);
    assert_eq!(desired::role_name("arn:aws-cn:iam::1:role/path/to/nodes"), Some("nodes"));
    assert_eq!(desired::role_name("nodes"), None);
}
