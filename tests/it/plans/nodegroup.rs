//! Plans for managed node groups: creation, in-place changes, updates, blue/green replacement, health and deletion.

use instance_manager::api::spec_error::SpecError;
use instance_manager::aws::nodegroup::{
    MaxUnavailable, Nodegroup, NodegroupIssue, NodegroupName, NodegroupSizes, NodegroupStatus, NodegroupUpdate,
    UpdateStatus,
};
use instance_manager::ownership;
use instance_manager::plan::NodegroupStep;
use instance_manager::plan::{NodeStep, ObjectStep, Phase, PodRef, Recheck, StalledReason, Step};
use instance_manager::provisioner::nodegroup::observed::{ObservedNodegroup, ObservedState};
use instance_manager::provisioner::nodegroup::{
    delete, desired, drift, input, observed, plan, resolve, unchanged_parts,
};
use instance_manager::provisioner::rejected_fields::{RejectedFields, ValueSources};
use instance_manager::rotation::{DrainView, PodView};

use super::*;

const ROLE: &str = "arn:aws:iam::1:role/nodes";

/// A minimal valid spec, merged with `extra`.
fn parsed(extra: &str) -> Result<desired::DesiredSpec, Vec<SpecError>> {
    let base = "provisioner: eks-managed\neks-managed: {minSize: 2, maxSize: 4, configuration: {clusterName: demo, nodeRole: 'arn:aws:iam::1:role/nodes', instanceType: m5.large, subnets: [subnet-1]}}";
    let mut spec: Value = serde_yaml::from_str(base).expect("YAML");
    deep_merge(&mut spec, &serde_yaml::from_str(extra).expect("YAML"));
    desired::parse(
        &common::group_id(3, timestamp(LONG_AGO)),
        &common::annotations(&[]),
        &decode_spec(&spec).expect("a spec"),
    )
}

fn resolve_spec(extra: &str) -> resolve::ResolvedGroup {
    let network = resolve::ClusterNetwork::default();
    resolve::resolve(parsed(extra).expect("a group"), &network).expect("a resolved group")
}

fn spec_text(configuration: &str) -> String {
    format!("eks-managed: {{configuration: {{{configuration}}}}}")
}

/// A node group that matches the spec, with two Ready nodes; the number of its first instance is `first`.
fn existing_nodegroup(resolved: &resolve::ResolvedGroup, first: usize) -> ObservedNodegroup {
    let desired = &resolved.desired;
    let tags = desired
        .tags
        .clone()
        .into_iter()
        .chain(resolved.ownership_tags.iter().map(|t| (t.key.clone(), t.value.clone())));
    let scaling_groups = format!("eks-{}", resolved.name.nodegroup);
    let nodegroup = Nodegroup {
        arn: format!("arn:aws:eks:us-west-2:1:nodegroup/{}", resolved.name),
        created: Some(timestamp(NOW)),
        version: desired.version.clone().unwrap_or("1.33".into()),
        release_version: desired.release_version.clone().unwrap_or("1.33.0-20250101".into()),
        ami_type: desired.immutable.ami_type.clone().unwrap_or("AL2023_x86_64_STANDARD".into()),
        capacity_type: desired.immutable.capacity_type.clone().unwrap_or("ON_DEMAND".into()),
        sizes: NodegroupSizes { min: desired.min_size, max: desired.max_size, desired: Some(2) },
        instance_types: desired.immutable.instance_types.clone(),
        subnets: desired.immutable.subnets.clone(),
        key_pair: desired.immutable.key_pair.clone(),
        security_groups: desired.immutable.security_groups.clone(),
        node_role: desired.immutable.node_role.clone(),
        labels: desired.labels.clone(),
        taints: desired.taints.clone(),
        scaling_groups: vec![scaling_groups.clone()],
        tags: tags.collect(),
        ..samples::nodegroup(resolved.name.clone())
    };
    let pin = TemplatePin { id: "lt-eks".into(), version: "1".into() };
    let instance = |n: usize| Instance {
        template: Some(pin.clone()),
        in_service_since: Some(timestamp(LONG_AGO)),
        ..samples::instance(&format!("i-{n}"))
    };
    let instances: Vec<_> = (first..first + 2).map(instance).collect();
    let members = instances
        .iter()
        .map(|i| NodeInstance {
            is_recorded_standby: false,
            node: Some(node(&i.id)),
            lost_node: None,
            reasons: vec![],
            in_place: None,
            instance: i.clone(),
        })
        .collect();
    let scaling_groups = vec![ScalingGroup {
        min: desired.min_size,
        max: desired.max_size,
        desired: 2,
        subnets: vec!["subnet-1".into()],
        template: Some(pin),
        instances,
        ..samples::scaling_group(&scaling_groups)
    }];
    ObservedNodegroup { nodegroup, scaling_groups, members }
}

/// A group with its node groups and its status.
#[derive(Clone)]
pub(super) struct Scenario {
    resolved: resolve::ResolvedGroup,
    state: ObservedState,
    status: InstanceGroupStatus,
    lock: Option<&'static str>,
    rollout_block: Option<&'static str>,
    persistent_failure: PersistentFailure,
    is_requested: bool,
}

/// A converged group whose spec cannot be used now: as parsed, or with an error of these parts at a path.
pub(super) fn broken_scenario(text: &str, error: Option<(&'static [Part], &str)>) -> Scenario {
    let mut scenario = Scenario::converged("{}", "{}");
    let base = "provisioner: eks-managed\neks-managed: {minSize: 2, maxSize: 4, configuration: {clusterName: demo, nodeRole: 'arn:aws:iam::1:role/nodes', instanceType: m5.large, subnets: [subnet-1]}}";
    let mut spec: Value = serde_yaml::from_str(base).expect("YAML");
    deep_merge(&mut spec, &serde_yaml::from_str(text).expect("YAML"));
    let (spec, violations) = decode_spec_with_errors(&spec).expect("types are right");
    let id = common::group_id(3, timestamp(LONG_AGO));
    let (mut desired, errors) = desired::parse_with_errors(&id, &common::annotations(&[]), &spec);
    let mut broken = RejectedFields::classify(
        common::all_errors(violations, errors),
        &ValueSources::default(),
        unchanged_parts::dependent_parts,
    )
    .expect("the group continues");
    broken.extend(&[Part::Immutable], resolve::resolve_names(&mut desired, &resolve::ClusterNetwork::default()));
    if let Some((parts, path)) = error {
        broken.push(parts, SpecError::invalid(path, "x", "cannot be used", "correct it"));
    }
    let found = scenario.state.nodegroups[0].nodegroup.clone();
    unchanged_parts::keep(&mut desired, &found, &broken, &scenario.status);
    scenario.resolved = resolve::build_resolved(desired, broken);
    scenario
}

impl Scenario {
    fn new(nodegroups: Vec<ObservedNodegroup>, extra: &str) -> Self {
        let names: Vec<_> = nodegroups.iter().map(|g| g.nodegroup.name.to_string()).collect();
        let arns: Vec<_> = nodegroups.iter().map(|g| g.nodegroup.arn.clone()).collect();
        let managed = json!({ "nodegroups": names, "nodegroupArns": arns });
        let status = json!({ "provisioner": "eks-managed", "managed": managed });
        let status = serde_json::from_value(status).expect("a status");
        Scenario {
            resolved: resolve_spec(extra),
            state: ObservedState { nodegroups, ..ObservedState::default() },
            status,
            lock: None,
            rollout_block: None,
            persistent_failure: PersistentFailure::None,
            is_requested: false,
        }
    }

    /// A group with one node group that matches the spec `before`; the spec is `extra` now.
    fn converged(before: &str, extra: &str) -> Self {
        Self::new(vec![existing_nodegroup(&resolve_spec(before), 1)], extra)
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn nodegroup(self, change: impl FnOnce(&mut Nodegroup)) -> Self {
        self.with(|s| change(&mut s.state.nodegroups[0].nodegroup))
    }

    /// Plans one reconcile. Like the observation, it first sets why the nodes of outgoing node groups are outdated.
    pub(super) fn plan(&self) -> Plan {
        let mut state = self.state.clone();
        let current =
            observed::partition(&self.resolved, &state, &self.status).current.map(|g| g.nodegroup.name.clone());
        for group in state.nodegroups.iter_mut().filter(|g| Some(&g.nodegroup.name) != current.as_ref()) {
            let reasons = drift::immutable_drift(&self.resolved, &group.nodegroup);
            group.members.iter_mut().for_each(|m| m.reasons.clone_from(&reasons));
        }
        plan::plan(&input::PlanInput {
            resolved: &self.resolved,
            observed: &state,
            status: &self.status,
            lock: self.lock,
            rollout_block: self.rollout_block,
            allowance: None,
            config_retention: 2,
            ineffective_writes: &Default::default(),
            persistent_failure: &self.persistent_failure,
            is_requested: self.is_requested,
            timing: &Timing::default(),
            now: timestamp(NOW),
        })
    }

    /// The same group after the plan's records were written.
    fn with_records(&self) -> Self {
        let mut status = json!(self.status);
        for planned in self.plan().steps {
            if let Step::Object(ObjectStep::UpdateStatus { status: patch }) = planned.step {
                instance_manager::api::apply_merge_patch(&mut status, &patch);
            }
        }
        Scenario { status: serde_json::from_value(status).expect("a status"), ..self.clone() }
    }

    fn step_names(&self) -> Vec<&'static str> {
        self.plan().steps.iter().map(|planned| planned.step.name()).collect()
    }

    fn blocked(&self) -> (StalledReason, String) {
        match self.plan().outcome {
            Outcome::Blocked { reason, message, .. } => (reason, message),
            other => panic!("not blocked: {other:?}"),
        }
    }
}

/// What the command `plan` and the forecast of a rollout say of a change.
fn projection(scenario: &Scenario) -> instance_manager::provisioner::Projection {
    use instance_manager::provisioner::nodegroup::input::Snapshot;
    use instance_manager::provisioner::{PlanContext, PlanSnapshot as _};
    let settings = instance_manager::settings::Settings::default();
    let snapshot = Snapshot { resolved: scenario.resolved.clone(), observed: scenario.state.clone() };
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
    snapshot.simulate(&scenario.plan(), &context)
}

/// A person who commits a new version should know in advance that EKS cannot undo it.
#[test]
fn plan_says_what_runs_in_addition_and_what_is_irreversible() {
    use instance_manager::provisioner::ExtraNodes;
    let simulated = |spec: &str| {
        let scenario = Scenario::converged("", spec);
        let projection = projection(&scenario);
        (projection.replacements.len(), projection.extra_nodes, projection.irreversible.is_some())
    };
    let has_limits = |spec: &str| projection(&Scenario::converged("", spec)).limits.is_some();
    assert!(has_limits(C5) && !has_limits(RELEASED), "drainForce helps only where the controller drains the nodes");
    assert_eq!(simulated(RELEASED), (2, ExtraNodes::None, true), "EKS replaces the nodes");
    assert_eq!(simulated(C5), (2, ExtraNodes::SecondGroup, false));
    assert_eq!(simulated(""), (0, ExtraNodes::None, false));
}

/// EKS puts such a taint on all running nodes at once, so that a rollout must count it as what it is.
#[test]
fn plan_says_from_how_many_nodes_a_taint_evicts_pods() {
    let evictions = |spec: &str, change: fn(&mut Scenario)| {
        let mut scenario = Scenario::converged("", spec);
        change(&mut scenario);
        projection(&scenario).evictions
    };
    let taint =
        |effect: &str| format!("eks-managed: {{configuration: {{taints: [{{key: a, value: b, effect: {effect}}}]}}}}");
    assert_eq!(evictions(&taint("NO_EXECUTE"), |_| ()), Some(2));
    let is_updating = |s: &mut Scenario| s.state.nodegroups[0].nodegroup.status = NodegroupStatus::Updating;
    assert_eq!(evictions(&taint("NO_EXECUTE"), is_updating), Some(2), "an update of before hides it");
    let has_no_node = |s: &mut Scenario| s.state.nodegroups[0].members.clear();
    assert_eq!(evictions(&taint("NO_EXECUTE"), has_no_node), None);
    assert_eq!(evictions(&taint("NO_SCHEDULE"), |_| ()), None);
    assert_eq!(evictions("", |_| ()), None);
}

const C5: &str = "eks-managed: {configuration: {instanceType: c5.large}}";

const RELEASED: &str = "eks-managed: {configuration: {version: '1.34', releaseVersion: 1.34.0-20250601}}";

/// Makes the node group one that Keiko controller created and the status does not record.
fn make_adoptable(s: &mut Scenario) {
    let nodegroup = &mut s.state.nodegroups[0].nodegroup;
    nodegroup.name = NodegroupName::new("demo", "web");
    nodegroup.tags.clear();
    s.status = InstanceGroupStatus::default();
}

/// A group during its blue/green replacement: both node groups exist.
fn during_replacement() -> Scenario {
    Scenario::new(vec![existing_nodegroup(&resolve_spec(""), 1), existing_nodegroup(&resolve_spec(C5), 3)], C5)
}

fn issue(code: &str) -> NodegroupIssue {
    NodegroupIssue { code: code.into(), message: "message of EKS".into(), resources: vec!["i-1".into()] }
}

fn update(status: UpdateStatus, kind: &str) -> NodegroupUpdate {
    NodegroupUpdate { id: "update-1".into(), status, kind: kind.into(), created: Some(timestamp(NOW)), errors: vec![] }
}

/// The nodes of the first node group carry the group's disruption record; with `has_pods`, a pod still runs on each.
fn with_drained_nodes(scenario: Scenario, has_pods: bool) -> Scenario {
    scenario.with(|s| {
        for member in &mut s.state.nodegroups[0].members {
            let node = member.node.as_mut().expect("a node");
            node.cordoned = true;
            node.disruption = Some(DisruptionRecord {
                group: "uid-1".into(),
                template_version: s.resolved.name.nodegroup.clone(),
                since: timestamp(NOW),
                cordoned_before: false,
                scale_down_disabled: false,
                terminated_at: None,
            });
            let pod =
                instance_manager::plan::PodRef { namespace: "team".into(), name: "app".into(), uid: "pod-1".into() };
            let pod = PodView {
                pod,
                is_ignored: false,
                is_finished: false,
                is_unmanaged: false,
                is_terminating: false,
                terminating_until: None,
                created: None,
                tolerates_cordon: false,
                is_newer_than_drain: false,
                grace_seconds: 30,
            };
            let pods = if has_pods { vec![pod] } else { vec![] };
            s.state.drains.insert(
                node.name.clone(),
                DrainView { pods, empty_since: Some(timestamp(NOW)), ..DrainView::default() },
            );
        }
    })
}

#[test]
fn plans_match_golden_files() {
    let everything = spec_text(
        "instanceTypes: [m5a.large], capacityType: spot, amiType: AL2023_x86_64_STANDARD, volSize: 40, keyPairName: key, \
         securityGroups: [sg-1], nodeLabels: {team: web}, taints: [{key: a, value: b, effect: NoSchedule}], \
         tags: [{key: owner, value: web}], version: '1.33', releaseVersion: 1.33.0-20250101, nodeRepairConfig: {enabled: true}",
    ) + "\nstrategy: {managed: {maxUnavailable: 25%}}";
    let newer = spec_text("releaseVersion: 1.33.0-20250601");
    let in_place = spec_text(
        "nodeLabels: {tier: gold}, taints: [{key: a, value: c, effect: NO_EXECUTE}], nodeRepairConfig: {enabled: true}",
    ) + "\nstrategy: {managed: {maxUnavailable: 2}}";
    let sized = "eks-managed: {minSize: 3, maxSize: 9}";
    let scenarios = [
        ("create", Scenario::new(vec![], &everything)),
        ("converged", Scenario::converged("", "")),
        (
            "config-update",
            Scenario::converged(&spec_text("nodeLabels: {team: web}"), &in_place).with(|s| {
                s.status.managed.as_mut().expect("a record").labels = vec!["team".into()];
            }),
        ),
        (
            "tags-changed",
            Scenario::converged(
                &spec_text("tags: [{key: owner, value: web}]"),
                &spec_text("tags: [{key: tier, value: gold}]"),
            )
            .with(|s| s.status.managed.as_mut().expect("a record").tags = vec!["owner".into()]),
        ),
        (
            "tags-denied",
            Scenario::converged("", &spec_text("tags: [{key: tier, value: gold}]"))
                .with(|s| s.state.tag_retry_pending = true),
        ),
        ("desired-size-clamped", Scenario::converged("", sized)),
        ("release-update-started", Scenario::converged("", &newer)),
        (
            "update-in-progress",
            Scenario::converged("", &newer).nodegroup(|n| n.status = NodegroupStatus::Updating).with(|s| {
                s.status.update_id = Some("update-1".into());
                s.state.update = Some(update(UpdateStatus::InProgress, "VersionUpdate"));
                s.state.nodegroups[0].scaling_groups[0].template.as_mut().expect("a pin").version = "2".into();
            }),
        ),
        ("replacement-created", Scenario::converged("", C5)),
        ("old-nodes-drained-one-at-a-time", during_replacement()),
        ("drained-nodes-kept-until-deletion", with_drained_nodes(during_replacement(), false)),
        ("adopted", Scenario::converged("", C5).with(make_adoptable)),
        ("adopted-with-other-release", Scenario::converged("", RELEASED).with(make_adoptable)),
    ];
    for (name, scenario) in scenarios {
        assert_golden(&format!("nodegroup/{name}"), &scenario.plan());
    }
}

#[test]
fn adoption_never_replaces_nodes() {
    for spec in [C5, RELEASED] {
        let first = Scenario::converged("", spec).with(make_adoptable);
        assert_eq!(first.step_names(), ["UpdateStatus", "TagNodegroup"], "{spec}");
        let recorded = first.with_records();
        assert_eq!(recorded.step_names(), ["TagNodegroup"], "{spec}: one record holds the whole adoption");
        let tagged = with_tags(recorded);
        assert_eq!(tagged.step_names(), [""; 0], "{spec}");
        assert_eq!(tagged.plan().outcome, Outcome::Converged, "{spec}");
    }
    let adopted = Scenario::converged("", RELEASED).with(make_adoptable).with_records();
    let changed =
        adopted.with(|s| s.resolved = resolve_spec(&spec_text("version: '1.34', releaseVersion: 1.34.0-20251001")));
    assert!(changed.step_names().contains(&"UpdateNodegroupVersion"), "the next spec change applies the differences");
}

/// The same group after the tags of its plan were set.
fn with_tags(scenario: Scenario) -> Scenario {
    let set = scenario.plan().steps.into_iter().find_map(|planned| match planned.step {
        Step::Nodegroup(NodegroupStep::TagNodegroup { tags, .. }) => Some(tags),
        _ => None,
    });
    scenario.nodegroup(|n| n.tags.extend(set.expect("tags")))
}

const ADOPTED_HASH: &str = "instancegroups.keikoproj.io/AdoptedHash";

/// The nodes would never get the change, and the group would be Ready.
#[test]
fn change_is_applied_although_the_status_of_an_adopted_nodegroup_was_lost() {
    let adopted = with_tags(Scenario::converged("", C5).with(make_adoptable).with_records());
    let lost = |spec: &str| {
        adopted.clone().with(|s| (s.status, s.resolved) = (InstanceGroupStatus::default(), resolve_spec(spec)))
    };
    let same = lost(C5);
    assert_eq!(same.step_names(), ["UpdateStatus"], "the adoption is recorded again, without a rotation");
    assert_eq!(same.with_records().status.template, adopted.status.template);
    let changed = lost(&spec_text("instanceType: m5.xlarge"));
    assert_eq!(changed.step_names(), ["UpdateStatus", "CreateNodegroup"]);
    assert!(changed.plan().condition_updates.iter().all(|update| update.condition_type != "Adopted"));
    let released = lost(RELEASED);
    assert!(released.step_names().contains(&"UpdateNodegroupVersion"), "{:?}", released.step_names());
    let without_hash = lost(C5).with(|s| s.status.managed.clone_from(&adopted.status.managed));
    assert_eq!(without_hash.step_names(), [""; 0], "only a part of the status was lost");
}

/// A release that did not set the tag adopted the node group.
#[test]
fn nodegroup_that_was_adopted_without_the_tag_gets_it_once() {
    let adopted = with_tags(Scenario::converged("", C5).with(make_adoptable).with_records());
    let earlier = adopted.nodegroup(|n| _ = n.tags.remove(ADOPTED_HASH));
    assert_eq!(earlier.step_names(), ["TagNodegroup"]);
    let tagged = with_tags(earlier.clone());
    assert_eq!((tagged.step_names(), tagged.plan().outcome), (vec![], Outcome::Converged));
    assert_eq!(earlier.plan().outcome, Outcome::Converged);
    let denied = earlier.clone().with(|s| s.state.tag_retry_pending = true);
    assert_eq!(
        (denied.step_names(), denied.plan().outcome),
        (vec![], Outcome::Converged),
        "it lacks nothing of the spec"
    );
    let crowded = tagged.nodegroup(|n| {
        let missing = n.tags.len()..50;
        n.tags.extend(missing.map(|i| (format!("of-others-{i}"), String::new())));
    });
    assert_eq!(crowded.step_names(), [""; 0]);
    let more = crowded.with(|s| _ = s.resolved.desired.tags.insert("cost".into(), "a".into())).with_records();
    assert_eq!(more.step_names(), ["UntagNodegroup", "TagNodegroup"], "the tag of the spec comes first");
    let full = earlier.nodegroup(|n| {
        let missing = n.tags.len()..50;
        n.tags.extend(missing.map(|i| (format!("of-others-{i}"), String::new())));
    });
    assert_eq!(full.step_names(), [""; 0], "EKS allows no more tags, and would refuse the call again and again");
}

#[test]
fn removed_attributes_leave_the_record() {
    let before =
        spec_text("nodeLabels: {team: web}, taints: [{key: a, effect: NoSchedule}], tags: [{key: owner, value: web}]");
    let removed = Scenario::converged(&before, &before).with_records().with(|s| {
        s.resolved = resolve_spec("");
        s.state.nodegroups[0].nodegroup = existing_nodegroup(&resolve_spec(""), 1).nodegroup;
    });
    assert_eq!(removed.step_names(), ["UpdateStatus"]);
    let after = removed.with_records();
    let managed = after.status.managed.clone().expect("a record");
    assert!(managed.labels.is_empty() && managed.taints.is_empty() && managed.tags.is_empty(), "{managed:?}");
    assert_eq!(after.step_names(), [""; 0]);
}

#[test]
fn desired_size_is_omitted_while_in_range() {
    let sizes = "eks-managed: {minSize: 1, maxSize: 9}";
    let change = |scenario: Scenario| match &scenario.plan().steps.last().expect("a step").step {
        Step::Nodegroup(NodegroupStep::UpdateNodegroup { change, .. }) => change.sizes.expect("sizes"),
        other => panic!("{other:?}"),
    };
    assert_eq!(change(Scenario::converged("", sizes)).desired, None);
    let shrunk = "eks-managed: {minSize: 1, maxSize: 1}";
    assert_eq!(change(Scenario::converged("", shrunk)).desired, Some(1));
}

#[test]
fn foreign_update_is_awaited() {
    let scenario = Scenario::converged("", &spec_text("releaseVersion: 1.33.0-20250601, nodeLabels: {a: b}"));
    let busy = scenario.clone().nodegroup(|n| n.status = NodegroupStatus::Updating);
    assert_eq!(busy.step_names(), ["UpdateStatus"]);
    assert!(matches!(busy.plan().outcome, Outcome::Progressing { .. }));
    assert_eq!(scenario.step_names(), ["UpdateStatus", "UpdateNodegroup"], "one change at a time, labels first");
}

/// EKS refuses such a call each time, so that each attempt would only use up the API rate limit.
#[test]
fn earlier_release_is_reported_without_a_call() {
    let older = Scenario::converged("", &spec_text("releaseVersion: 1.33.0-20240101"));
    assert!(!older.step_names().contains(&"UpdateNodegroupVersion"), "{:?}", older.step_names());
    let (reason, message) = older.blocked();
    let found = &older.state.nodegroups[0].nodegroup.release_version;
    assert!(
        reason == StalledReason::RefusedByAws && message.contains("1.33.0-20240101") && message.contains(found),
        "{message}"
    );
}

/// The spec adds a label and drops it again before EKS has set it: it would stay on the nodes.
#[test]
fn dropped_keys_stay_recorded_until_eks_has_set_them_or_time_has_passed() {
    let spec = spec_text("nodeLabels: {a: b}, taints: [{key: k, value: v, effect: NO_SCHEDULE}]");
    let added = Scenario::converged("", &spec).with_records();
    let dropped = added.with(|s| s.resolved = resolve_spec(""));
    let recorded = |scenario: &Scenario| {
        let managed = scenario.status.managed.clone().expect("a record");
        (managed.labels, managed.taints)
    };
    assert!(!recorded(&dropped).0.is_empty() && !recorded(&dropped).1.is_empty(), "{:?}", dropped.status.managed);
    let busy = dropped.clone().nodegroup(|n| n.status = NodegroupStatus::Updating).with_records();
    assert_eq!(recorded(&busy), recorded(&dropped), "EKS is setting them");
    let unseen = ["label a", "taint k:NO_SCHEDULE"].map(str::to_owned);
    let early = dropped.clone().with(|s| s.state.unseen_names = unseen.into()).with_records();
    assert_eq!(recorded(&early), recorded(&dropped), "EKS may show them soon");
    let outcome = early.plan().outcome;
    assert!(matches!(outcome, Outcome::Progressing { .. }), "a quiet group would read an old answer: {outcome:?}");
    let late = dropped.nodegroup(|n| _ = n.labels.insert("a".into(), "b".into()));
    assert!(late.step_names().contains(&"UpdateNodegroup"), "{:?}", late.step_names());
}

/// The spec goes back while the replacement is under way, without the label that the old node group has.
#[test]
fn labels_of_an_outgoing_nodegroup_stay_recorded() {
    let replacing = during_replacement().with(|s| {
        s.status.managed.get_or_insert_default().labels = vec!["old".into()];
        let outgoing = s.state.nodegroups.first_mut().expect("an outgoing node group");
        outgoing.nodegroup.labels.insert("old".into(), "x".into());
    });
    let after = replacing.with_records();
    assert_eq!(after.status.managed.expect("a record").labels, ["old"]);
}

/// Ownership is proven before a deletion, and the shipped IAM policy denies it otherwise.
#[test]
fn outgoing_nodegroup_without_tags_is_tagged_before_it_is_deleted() {
    let drained = during_replacement().with(|s| {
        let outgoing = s.state.nodegroups.first_mut().expect("an outgoing node group");
        outgoing.members.clear();
        outgoing.nodegroup.tags.clear();
    });
    let steps = drained.with_records().step_names();
    assert!(steps.contains(&"TagNodegroup") && !steps.contains(&"DeleteNodegroup"), "{steps:?}");
}

#[test]
fn failed_update_is_retried_after_an_hour_a_spec_change_or_on_request() {
    let newer = spec_text("releaseVersion: 1.33.0-20250601");
    let change_hash = match &Scenario::converged("", &newer).plan().steps.last().expect("a step").step {
        Step::Nodegroup(NodegroupStep::UpdateNodegroupVersion { change_hash, .. }) => change_hash.clone(),
        other => panic!("{other:?}"),
    };
    let failed = Scenario::converged("", &newer).with(|s| {
        s.status.update_id = Some("update-1".into());
        s.status.update_of = Some(change_hash);
        let mut update = update(UpdateStatus::Failed, "VersionUpdate");
        update.errors = vec![issue("PodEvictionFailure")];
        s.state.update = Some(update);
    });
    let (reason, message) = failed.blocked();
    assert_eq!(reason, StalledReason::DrainBlocked);
    assert!(
        message.contains("update-1") && message.contains("i-1") && message.contains("PodDisruptionBudgets"),
        "{message}"
    );
    let named = failed.clone().with(|s| {
        let blocked =
            |pod: u8| format!("pod team/web-{pod} on ip-1: PodDisruptionBudget web, minAvailable 5 of 5 pods");
        s.state.eviction_blockers = (0..5).map(blocked).collect();
    });
    let message = named.blocked().1;
    for word in ["i-1", "team/web-0", "PodDisruptionBudget web", "team/web-2", "2 other pods", "retried at"] {
        assert!(message.contains(word), "{word:?} in {message}");
    }
    assert!(failed.plan().recheck_at.is_some());
    assert_eq!(failed.plan().status_update.fields.get("updateFailedAt"), Some(&json!(NOW)));
    let later = failed.clone().with(|s| s.status.update_failed_at = Some(LONG_AGO.into()));
    assert!(later.step_names().contains(&"UpdateNodegroupVersion"));
    assert_eq!(later.plan().status_update.fields.get("updateFailedAt"), None, "the step forgets it");
    let asked = failed.clone().with(|s| s.is_requested = true);
    assert!(asked.step_names().contains(&"UpdateNodegroupVersion"));
    let other = failed.with(|s| s.resolved = resolve_spec(&spec_text("releaseVersion: 1.33.0-20251001")));
    assert!(other.step_names().contains(&"UpdateNodegroupVersion"));
}

/// EKS takes hours for many nodes. An update that fails after them would be started again at once, forever.
#[test]
fn update_that_ran_for_hours_before_it_failed_is_retried_an_hour_after_the_failure() {
    let newer = spec_text("releaseVersion: 1.33.0-20250601");
    let change_hash = match &Scenario::converged("", &newer).plan().steps.last().expect("a step").step {
        Step::Nodegroup(NodegroupStep::UpdateNodegroupVersion { change_hash, .. }) => change_hash.clone(),
        other => panic!("{other:?}"),
    };
    let failed = Scenario::converged("", &newer).with(|s| {
        (s.status.update_id, s.status.update_of) = (Some("update-1".into()), Some(change_hash));
        let update = update(UpdateStatus::Failed, "VersionUpdate");
        s.state.update = Some(NodegroupUpdate { created: Some(timestamp(LONG_AGO)), ..update });
    });
    assert_eq!(failed.blocked().0, StalledReason::UpdateFailed);
    let first = failed.plan();
    assert_eq!(first.status_update.fields.get("updateFailedAt"), Some(&json!(NOW)));
    // The clock was ahead when the failure was recorded.
    let ahead = failed.clone().with(|s| s.status.update_failed_at = Some("2026-01-02T05:00:00Z".into())).plan();
    assert_eq!(ahead.recheck_at, first.recheck_at);
    assert_eq!(ahead.status_update.fields.get("updateFailedAt"), Some(&json!(NOW)), "it is corrected");
    let second = failed.with(|s| s.status.update_failed_at = Some(NOW.into())).plan();
    assert_eq!((second.outcome, second.recheck_at), (first.outcome, first.recheck_at), "nothing is written");
    assert_eq!(second.status_update.fields.get("updateFailedAt"), None);
}

#[test]
fn lock_blocks_only_node_replacement() {
    let locked = |scenario: Scenario| scenario.with(|s| s.lock = Some("lock-upgrades on the group"));
    let both = "eks-managed: {configuration: {instanceType: c5.large, nodeLabels: {a: b}}}";
    assert_eq!(locked(Scenario::converged("", both)).step_names(), ["UpdateStatus", "UpdateNodegroup"]);
    for scenario in
        [Scenario::converged("", C5), Scenario::converged("", &spec_text("releaseVersion: x")), during_replacement()]
    {
        let plan = locked(scenario).plan();
        assert!(matches!(plan.outcome, Outcome::Locked { .. }), "{:?}", plan.outcome);
        assert!(plan.steps.iter().all(|s| !s.step.is_disruptive() && !s.step.creates_nodes()), "{:?}", plan.steps);
    }
    let uncordoned = locked(with_drained_nodes(during_replacement(), false)).step_names();
    assert_eq!(uncordoned.iter().filter(|s| **s == "UncordonNode").count(), 2, "{uncordoned:?}");
}

#[test]
fn old_nodes_wait_for_ready_replacements() {
    let waiting = during_replacement().with(|s| s.state.nodegroups[1].members[0].node = None);
    assert!(waiting.step_names().iter().all(|s| *s == "UpdateStatus"), "{:?}", waiting.step_names());
    let late = waiting
        .with(|s| s.state.nodegroups[1].members[0].instance.in_service_since = Some(timestamp("2026-01-01T12:00:00Z")));
    assert_eq!(late.blocked().0, StalledReason::ReplacementsNotReady);
    let unhealthy = during_replacement().with(|s| s.state.cluster_health = ClusterHealth { total: 4, unready: 3 });
    assert_eq!(unhealthy.blocked().0, StalledReason::ClusterUnhealthy);
    assert_eq!(unhealthy.step_names(), ["UpdateStatus"; 0]);
}

#[test]
fn failed_replacement_halts_rotation() {
    let failed = during_replacement().with(|s| {
        s.state.nodegroups[1].nodegroup.status = NodegroupStatus::CreateFailed;
        s.state.nodegroups[1].nodegroup.issues = vec![issue("AsgInstanceLaunchFailures")];
    });
    let (reason, message) = failed.blocked();
    assert_eq!(reason, StalledReason::ReplacementsNotReady);
    assert!(message.contains("spec.eks-managed.configuration.instanceTypes"), "{message}");
    assert!(failed.plan().condition_updates.iter().any(|n| n.condition_type == "RotationHalted" && n.status));
    assert!(failed.step_names().iter().all(|s| *s == "UpdateStatus"));
}

#[test]
fn reverted_change_uncordons_old_nodes() {
    let reverted = with_drained_nodes(during_replacement(), true).with(|s| s.resolved = resolve_spec(""));
    let steps = reverted.step_names();
    assert_eq!(steps.iter().filter(|s| **s == "UncordonNode").count(), 2, "{steps:?}");
    assert!(!steps.contains(&"Evict"), "{steps:?}");
    let plan = Scenario { resolved: resolve_spec(""), ..during_replacement() }.plan();
    let cordoned: Vec<_> = plan
        .steps
        .iter()
        .filter_map(|s| match &s.step {
            Step::Node(NodeStep::CordonNode { instance, .. }) => Some(instance.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(cordoned, ["i-3"]);
}

/// Nodes must not stay cordoned until a person acts.
#[test]
fn blocked_replacement_uncordons_old_nodes() {
    let draining = || with_drained_nodes(during_replacement(), true);
    let uncordoned = |scenario: &Scenario| {
        let steps = scenario.step_names();
        steps.iter().filter(|name| **name == "UncordonNode").count() == 2 && !steps.contains(&"Evict")
    };
    assert!(!uncordoned(&draining()), "{:?}", draining().step_names());
    let with_status = |status: NodegroupStatus| draining().with(|s| s.state.nodegroups[1].nodegroup.status = status);
    for status in [NodegroupStatus::CreateFailed, NodegroupStatus::DeleteFailed] {
        let failed = with_status(status);
        assert!(uncordoned(&failed), "{status:?}: {:?}", failed.step_names());
        assert!(matches!(failed.plan().outcome, Outcome::Blocked { .. }));
    }
    let unreachable = with_status(NodegroupStatus::DeleteFailed)
        .with(|s| s.state.nodegroups[1].nodegroup.issues = vec![issue("ClusterUnreachable")]);
    assert!(uncordoned(&unreachable), "{:?}", unreachable.step_names());
    let updating = with_status(NodegroupStatus::Updating);
    assert!(!uncordoned(&updating), "EKS ends the update: {:?}", updating.step_names());
    for status in [NodegroupStatus::Creating, NodegroupStatus::Updating] {
        let long = with_status(status).with(|s| s.state.pause = Timing::default().pause_limit);
        assert!(uncordoned(&long), "{status:?}: {:?}", long.step_names());
    }
    let active = draining().with(|s| s.state.pause = Timing::default().pause_limit);
    assert!(!uncordoned(&active), "the rotation continues");
    let refused = with_status(NodegroupStatus::Updating).with(|s| s.persistent_failure = PersistentFailure::Pass);
    assert!(uncordoned(&refused), "{:?}", refused.step_names());
    let third = draining().with(|s| s.resolved = resolve_spec(&spec_text("instanceType: m6i.large")));
    assert!(uncordoned(&third.with(|s| s.lock = Some("a lock"))));
    let persistent_failure = PersistentFailure::Rotation {
        until: timestamp("2026-01-03T00:00:00Z"),
        reason: StalledReason::MissingPermission,
        message: "Evict: no".into(),
        is_watched: false,
    };
    let refused = draining().with(|s| s.persistent_failure = persistent_failure);
    assert!(uncordoned(&refused) && refused.blocked().0 == StalledReason::MissingPermission);
}

/// A node group that another client deletes is created again after the deletion. One whose deletion EKS could not
/// finish would otherwise stay so forever, while the status says that the deletion is retried.
#[test]
fn failed_deletion_of_the_wanted_nodegroup_is_retried() {
    let failed = || {
        Scenario::converged("", "").with_records().nodegroup(|n| {
            n.status = NodegroupStatus::DeleteFailed;
            n.issues = vec![issue("Ec2SecurityGroupDeletionFailure")];
        })
    };
    assert_eq!(failed().step_names(), ["DeleteNodegroup"]);
    let (reason, message) = failed().blocked();
    assert!(reason == StalledReason::Degraded && message.contains("the deletion is retried"), "{message}");
    let locked = failed().with(|s| s.lock = Some("a lock"));
    assert_eq!(locked.step_names(), [""; 0]);
    assert!(
        matches!(locked.plan().outcome, Outcome::Locked { message } if message.contains("EKS failed to delete") && message.contains("a lock"))
    );
    let unhealthy = failed().with(|s| s.state.cluster_health = ClusterHealth { total: 4, unready: 3 });
    assert_eq!((unhealthy.step_names(), unhealthy.blocked().0), (vec![], StalledReason::ClusterUnhealthy));
    let untagged = failed().nodegroup(|n| n.tags.clear());
    assert_eq!(untagged.step_names(), ["TagNodegroup"], "the shipped IAM policy denies its deletion");
    let gone = failed().with(|s| s.state.nodegroups.clear());
    assert!(gone.step_names().contains(&"CreateNodegroup"), "{:?}", gone.step_names());
    let rejected = failed().with(|s| s.resolved = broken_scenario("", Some((&[Part::Immutable], "subnets"))).resolved);
    assert_eq!(rejected.step_names(), [""; 0]);
    let (_, message) = rejected.blocked();
    assert!(message.contains("is retried once the rejected fields of the spec are corrected"), "{message}");
}

/// A cause outside of the spec (an aws-auth that cannot be read, no capacity) may end, and EKS still does not retry the
/// creation. A node that was ever Ready may run pods, so only a user may delete it.
#[test]
fn nodegroup_that_eks_could_not_create_is_created_again() {
    let failed = |ago: SignedDuration| {
        Scenario::converged("", "").with_records().with(|s| s.state.creation_failed_for = ago).nodegroup(|n| {
            n.status = NodegroupStatus::CreateFailed;
            n.issues = vec![issue("NodeCreationFailure")];
        })
    };
    let never_joined = |ago: i64| {
        failed(SignedDuration::from_mins(ago)).with(|s| {
            s.state.nodegroups[0].members.iter_mut().for_each(|m| m.node = None);
        })
    };
    let waiting = never_joined(14);
    assert_eq!(waiting.step_names(), [""; 0]);
    let (reason, message) = waiting.blocked();
    assert!(
        reason == StalledReason::NodesNotReady && message.contains("is deleted and recreated at 2026-01-02T00:01:00Z"),
        "{message}"
    );
    assert_eq!(waiting.plan().recheck_at, Some(timestamp("2026-01-02T00:01:00Z")));
    let due = || never_joined(15);
    assert_eq!(due().step_names(), ["UpdateStatus", "DeleteNodegroup"]);
    assert_eq!(
        never_joined(14).with(|s| s.is_requested = true).step_names(),
        ["UpdateStatus", "DeleteNodegroup"],
        "a person asks for it"
    );
    let locked = due().with(|s| s.lock = Some("a lock"));
    assert!(locked.step_names().is_empty() && locked.blocked().1.contains("another attempt is blocked by a lock"));
    let unhealthy = due().with(|s| s.state.cluster_health = ClusterHealth { total: 4, unready: 3 });
    assert_eq!((unhealthy.step_names(), unhealthy.plan().recheck_at), (vec![], None), "it is not asked all the time");
    let untagged = due().nodegroup(|n| n.tags.clear());
    assert_eq!(untagged.step_names(), ["TagNodegroup"], "the shipped IAM policy denies its deletion");
    let rejected = due().with(|s| s.resolved = broken_scenario("", Some((&[Part::Immutable], "subnets"))).resolved);
    assert!(rejected.step_names().is_empty() && rejected.plan().recheck_at.is_none(), "{:?}", rejected.step_names());
    let (_, message) = rejected.blocked();
    assert!(message.contains("recreated once the rejected fields of the spec are corrected"), "{message}");

    let served = failed(SignedDuration::from_hours(9));
    assert!(served.step_names().is_empty(), "{:?}", served.step_names());
    let (_, message) = served.blocked();
    assert!(message.contains("pods may run on its nodes") && message.contains("delete the node group"), "{message}");
    let lost = due().with(|s| {
        let lost = instance_manager::rotation::LostNode { name: "n1".into(), since: timestamp(NOW) };
        s.state.nodegroups[0].members[0].lost_node = Some(lost);
    });
    assert_eq!(lost.step_names(), [""; 0]);

    // A replacement, beside the node group that it replaces.
    let replacement = |ago: i64| {
        during_replacement().with(|s| {
            s.state.creation_failed_for = SignedDuration::from_mins(ago);
            s.state.nodegroups[1].nodegroup.status = NodegroupStatus::CreateFailed;
            s.state.nodegroups[1].members.clear();
        })
    };
    let (reason, message) = replacement(1).blocked();
    assert!(reason == StalledReason::ReplacementsNotReady && message.contains("the old nodes are kept"), "{message}");
    let name = replacement(1).state.nodegroups[1].nodegroup.name.clone();
    let steps = replacement(15).plan().steps;
    let deletes =
        |s: &Step| matches!(s, Step::Nodegroup(NodegroupStep::DeleteNodegroup { nodegroup }) if *nodegroup == name);
    assert!(steps.len() == 1 && deletes(&steps[0].step), "{steps:?}");
}

/// EKS does not create a deleted scaling group again: there would be no nodes until an admin deletes the node group.
#[test]
fn nodegroup_that_lost_its_scaling_group_and_its_nodes_is_created_again() {
    let degraded = |ago: i64| {
        Scenario::converged("", "").with_records().with(|s| {
            s.state.creation_failed_for = SignedDuration::from_mins(ago);
            let nodegroup = &mut s.state.nodegroups[0].nodegroup;
            nodegroup.status = NodegroupStatus::Degraded;
            nodegroup.issues = vec![issue("AutoScalingGroupNotFound")];
        })
    };
    let lost = |ago: i64| {
        degraded(ago).with(|s| {
            s.state.has_lost_scaling_group = true;
            s.state.nodegroups[0].scaling_groups.clear();
            s.state.nodegroups[0].members.clear();
        })
    };
    let waiting = lost(14);
    assert_eq!((waiting.step_names(), waiting.plan().recheck_at), (vec![], Some(timestamp("2026-01-02T00:01:00Z"))));
    let (reason, message) = waiting.blocked();
    assert!(
        reason == StalledReason::Degraded
            && message.contains("has lost its scaling group")
            && message.contains("is deleted and recreated at 2026-01-02T00:01:00Z"),
        "{message}"
    );
    assert_eq!(lost(15).step_names(), ["UpdateStatus", "DeleteNodegroup"]);
    let requested = waiting.with(|s| s.is_requested = true);
    assert_eq!(requested.step_names(), ["UpdateStatus", "DeleteNodegroup"], "a person asks for it");

    let locked = lost(15).with(|s| s.lock = Some("a lock"));
    let paused = lost(15).with(|s| s.rollout_block = Some("a lock"));
    for held in [locked, paused] {
        assert!(held.step_names().is_empty() && held.blocked().1.contains("another attempt is blocked by a lock"));
    }
    let unhealthy = lost(15).with(|s| s.state.cluster_health = ClusterHealth { total: 4, unready: 3 });
    assert_eq!((unhealthy.step_names(), unhealthy.plan().recheck_at), (vec![], None), "it is not asked all the time");
    let still_has_nodes = degraded(15);
    assert_eq!(still_has_nodes.step_names(), [""; 0]);
    assert!(still_has_nodes.blocked().1.contains("once no node of the node group is left"));

    // A replacement, beside the node group that it replaces.
    let replacement = during_replacement().with(|s| {
        s.state.has_lost_scaling_group = true;
        s.state.creation_failed_for = SignedDuration::from_mins(15);
        s.state.nodegroups[1].nodegroup.status = NodegroupStatus::Degraded;
        s.state.nodegroups[1].members.clear();
    });
    let name = replacement.state.nodegroups[1].nodegroup.name.clone();
    let deleted = Step::Nodegroup(NodegroupStep::DeleteNodegroup { nodegroup: name });
    let steps = replacement.plan().steps;
    assert!(steps.len() == 1 && steps[0].step == deleted, "{steps:?}");
}

/// Without a report, the group would stay Ready with a node group that costs money and runs no pods.
#[test]
fn outgoing_nodegroup_with_an_instance_out_of_service_is_reported() {
    for (state, word) in [(InstanceState::Standby, "Standby"), (InstanceState::Pending, "Pending")] {
        let scenario = with_drained_nodes(during_replacement(), false).with(|s| {
            let member = &mut s.state.nodegroups[0].members[0];
            member.instance.state = state;
            let node = member.node.as_mut().expect("a node");
            (node.cordoned, node.disruption) = (false, None);
        });
        let (name, id) = {
            let old = &scenario.state.nodegroups[0];
            (old.nodegroup.name.nodegroup.clone(), old.members[0].instance.id.clone())
        };
        let plan = scenario.plan();
        let Outcome::Progressing { phase: Phase::Rotating, message, .. } = &plan.outcome else {
            panic!("{state:?}: {:?}", plan.outcome)
        };
        assert!([name.as_str(), id.as_str(), word].iter().all(|part| message.contains(part)), "{message}");
        assert!(!scenario.step_names().contains(&"DeleteNodegroup"), "{state:?}");
    }
}

/// EKS may need hours to delete a node group. Nodes of the old one must not stay cordoned for that time.
#[test]
fn nodes_are_uncordoned_while_the_new_nodegroup_is_being_deleted() {
    let deleting = with_drained_nodes(during_replacement(), true)
        .with(|s| s.state.nodegroups[1].nodegroup.status = NodegroupStatus::Deleting);
    assert!(deleting.state.waits_for_eks(false, "uid-1"));
    assert!(!deleting.state.waits_for_eks(true, "uid-1"), "another node group serves");
    assert!(!deleting.state.waits_for_eks(false, "uid-2"), "no node of this group is drained");
    assert!(!during_replacement().state.waits_for_eks(false, "uid-1"));
    assert!(!deleting.step_names().contains(&"UncordonNode"), "it may be short");
    let long = deleting.with(|s| s.state.pause = Timing::default().pause_limit);
    assert_eq!(long.step_names().iter().filter(|name| **name == "UncordonNode").count(), 2, "{:?}", long.step_names());
}

/// A person edits a tag of the old node group during a replacement. Its nodes would run forever, without a report.
#[test]
fn outgoing_nodegroup_with_edited_tags_stays_recorded() {
    let edited = during_replacement().with_records().with(|s| {
        let mut old = s.state.nodegroups.remove(0).nodegroup;
        old.tags.insert("instancegroups.keikoproj.io/Namespace".into(), "edited".into());
        s.state.disowned.push(old);
    });
    let name = edited.state.disowned[0].name.clone();
    assert_eq!(edited.step_names(), [""; 0], "its name and its ARN stay recorded, and nothing touches it");
    let (reason, message) = edited.blocked();
    assert_eq!(reason, StalledReason::OwnershipConflict);
    assert!(
        message.contains(&name.nodegroup) && message.contains("instancegroups.keikoproj.io/Namespace"),
        "{message}"
    );
    let degraded = edited.clone().nodegroup(|n| n.status = NodegroupStatus::Degraded);
    assert_eq!(degraded.blocked().0, StalledReason::Degraded, "the conflict hides no other problem");
    let third = edited.clone().with(|s| s.resolved = resolve_spec(&spec_text("instanceType: m6i.large")));
    let recorded = third.with_records().status.managed.expect("a record");
    assert!(third.step_names().contains(&"CreateNodegroup"), "{:?}", third.step_names());
    assert_eq!((recorded.nodegroups.len(), recorded.nodegroup_arns.len()), (3, 2), "{recorded:?}");
    let gone = edited.with(|s| s.state.disowned.clear()).with_records().status.managed.expect("a record");
    assert_eq!((gone.nodegroups.len(), gone.nodegroup_arns.len()), (1, 1), "it was seen before: {gone:?}");
}

/// A second node group would double the nodes, and the event would claim that another client deleted the first one.
#[test]
fn only_nodegroup_with_edited_tags_is_neither_replaced_nor_reported_as_deleted() {
    let edited = |spec: &str| {
        Scenario::converged("", spec).with_records().with(|s| {
            let mut only = s.state.nodegroups.remove(0).nodegroup;
            only.tags.remove("instancegroups.keikoproj.io/Namespace");
            s.state.disowned.push(only);
        })
    };
    for spec in ["", C5] {
        let scenario = edited(spec).with(|s| {
            s.status.managed.as_mut().expect("a record").nodegroups.truncate(1);
        });
        assert_eq!(scenario.step_names(), [""; 0], "{spec}");
        assert!(scenario.plan().events.is_empty(), "{spec}: {:?}", scenario.plan().events);
        let (reason, message) = scenario.blocked();
        assert!(reason == StalledReason::OwnershipConflict && message.contains("is missing"), "{message}");
    }
    // The new node group was recorded, and another client deleted it: it does not wait for the tags of the old one.
    let both = edited(C5).with(|s| {
        let managed = s.status.managed.as_mut().expect("a record");
        managed.nodegroup_arns.push(format!("arn:aws:eks:us-west-2:1:nodegroup/{}/id", s.resolved.name));
    });
    let events = both.plan().events;
    assert!(both.step_names().contains(&"CreateNodegroup"), "{:?}", both.step_names());
    assert!(events.len() == 1 && events[0].message.contains(&both.resolved.name.nodegroup), "{events:?}");
}

/// The answer to the first look after a creation may be older than the node group, and the spec may change right then.
#[test]
fn nodegroup_that_was_never_seen_leaves_the_record_after_two_observations() {
    let created = Scenario::converged("", C5).with_records();
    let name = created.resolved.name.to_string();
    let records = |scenario: &Scenario| scenario.status.managed.as_ref().expect("a record").nodegroups.contains(&name);
    let reverted = created.clone().with(|s| s.resolved = resolve_spec("")).with_records();
    assert!(records(&created) && records(&reverted), "{:?}", reverted.status.managed);
    let ready = reverted.clone().with(|s| {
        s.status.conditions.push(instance_manager::api::Condition::new("Ready", true, "Ready", ""));
    });
    assert!(!records(&ready.with_records()), "the group was Ready without it");
    let third = created.with(|s| s.resolved = resolve_spec(&spec_text("instanceType: m6i.large"))).with_records();
    assert!(records(&third) && !records(&third.with_records()), "another one was recorded since");
}

/// Another client deleted the node group and created a new one with its name and tags. The controller would wait
/// forever for its own.
#[test]
fn nodegroup_recreated_by_another_client_is_a_conflict() {
    let other = |status| {
        Scenario::converged("", "").with_records().nodegroup(|n| {
            n.node_role = "arn:aws:iam::1:role/other".into();
            n.status = status;
        })
    };
    let recreated = other(NodegroupStatus::Active);
    assert_eq!(recreated.step_names(), [""; 0]);
    let (reason, message) = recreated.blocked();
    assert_eq!(reason, StalledReason::OwnershipConflict);
    assert!(message.contains("nodeRole: arn:aws:iam::1:role/other"), "{message}");
    assert!(matches!(other(NodegroupStatus::Deleting).plan().outcome, Outcome::Progressing { .. }));
}

/// Otherwise a node group would be left behind when the spec changes right after a creation that was retried.
#[test]
fn failed_creation_keeps_its_recorded_name() {
    let replacing = Scenario::converged("", C5);
    assert_eq!(replacing.step_names(), ["UpdateStatus", "CreateNodegroup"]);
    assert_eq!(replacing.with_records().step_names(), ["CreateNodegroup"]);
}

#[test]
fn third_nodegroup_matches_largest_size() {
    let third = Scenario { resolved: resolve_spec(&spec_text("instanceType: m6i.large")), ..during_replacement() };
    let plan = third.plan();
    let Some(Step::Nodegroup(NodegroupStep::CreateNodegroup(new))) = plan.steps.last().map(|s| &s.step) else {
        panic!("{plan:?}")
    };
    assert_eq!(new.sizes.desired, Some(2));
}

#[test]
fn eks_issues_become_conditions_with_remedies() {
    let degraded = |code: &str| {
        Scenario::converged("", "")
            .nodegroup(|n| {
                n.status = NodegroupStatus::Degraded;
                n.issues = vec![issue(code)];
            })
            .with(|s| s.state.nodegroups[0].members[0].node = None)
    };
    for (code, reason, words) in [
        ("AccessDenied", StalledReason::MissingPermission, "AmazonEKSWorkerNodePolicy"),
        ("AsgInstanceLaunchFailures", StalledReason::LaunchFailed, "instanceTypes"),
        ("InsufficientFreeAddresses", StalledReason::InsufficientCapacity, "subnets"),
        ("InstanceLimitExceeded", StalledReason::QuotaExceeded, "quota"),
        ("Ec2SubnetNotFound", StalledReason::NotFound, "configuration.subnets"),
        ("IamNodeRoleNotFound", StalledReason::NotFound, "nodeRole"),
        ("ClusterUnreachable", StalledReason::ClusterUnhealthy, "API server"),
        ("AutoScalingGroupInstanceRefreshActive", StalledReason::ProcessSuspended, "instance refresh"),
        ("IamThrottling", StalledReason::AwsFailed, "API rate"),
        ("InternalFailure", StalledReason::AwsFailed, "AWS Support"),
        ("SomethingNew", StalledReason::Degraded, "message of EKS"),
    ] {
        let (found, message) = degraded(code).blocked();
        assert_eq!(found, reason, "{code}");
        assert!(message.contains(words) && message.contains("i-1"), "{code}: {message}");
    }
    // EKS keeps the issue of a launch until another one succeeds, also when an autoscaler has given up.
    let complete =
        degraded("AsgInstanceLaunchFailures").with(|s| s.state.nodegroups[0].members[0].node = Some(node("i-1")));
    assert_eq!(complete.plan().outcome, Outcome::Converged);
    let role =
        degraded("NodeCreationFailure").with(|s| s.state.missing_policies = vec!["AmazonEKSWorkerNodePolicy".into()]);
    let (reason, message) = role.blocked();
    assert_eq!(reason, StalledReason::NodesNotReady);
    assert!(message.contains("nodeRole lacks AmazonEKSWorkerNodePolicy"), "{message}");
    let (_, message) = Scenario::converged("", "")
        .nodegroup(|n| {
            n.status = NodegroupStatus::CreateFailed;
            n.issues = vec![issue("Ec2SubnetNotFound")];
        })
        .blocked();
    assert!(message.contains("failed to create") && message.contains("fix the cause"), "{message}");
}

#[test]
fn references_are_checked_before_creation() {
    let r = resolve_spec(&spec_text("keyPairName: key, securityGroups: [sg-1]"));
    let object = |id: &str, vpc: &str| NetworkObject {
        id: id.into(),
        name: None,
        vpc: vpc.into(),
        zone: None,
        ipv4_cidr: None,
        assigns_ipv6: None,
    };
    let references = resolve::References {
        cluster: Some(samples::cluster("demo")),
        network_objects: vec![object("sg-1", "vpc-2")],
        is_role_missing: true,
        unknown_types: vec!["m5.lrge".into()],
    };
    let errors = resolve::reference_errors(&r, &references);
    let messages = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for field in ["nodeRole", "subnets", "securityGroups", "instanceType `m5.lrge`"] {
        assert!(messages.contains(&format!("spec.eks-managed.configuration.{field}")), "{messages}");
    }
    let blocked = Scenario::new(vec![], "").with(|s| s.state.reference_errors = errors);
    assert_eq!(blocked.blocked().0, StalledReason::NotFound);
    assert_eq!(blocked.step_names(), [""; 0]);
    let conflicting = Scenario::new(vec![], "").with(|s| s.state.name_conflict = Some(s.resolved.name.clone()));
    assert_eq!(conflicting.blocked().0, StalledReason::OwnershipConflict);
    let older = Scenario::converged("", &spec_text("version: '1.32'"));
    let (reason, message) = older.blocked();
    assert!(reason == StalledReason::InvalidSpec && message.contains("configuration.version `1.32`"), "{message}");
}

#[test]
fn invalid_spec_is_reported_by_field() {
    let invalid = "eks-managed: {minSize: 5, maxSize: 4, configuration: {nodeRole: nodes, instanceTypes: [huge], amiType: CUSTOM, volSize: -1, taints: [{effect: NoSchedule}], tags: [{key: 'aws:x', value: y}]}}\nstrategy: {managed: {maxUnavailable: 9}}";
    let errors = parsed(invalid).expect_err("an invalid spec");
    let paths: Vec<_> = errors.iter().map(|p| p.path.replace("spec.eks-managed.", "")).collect();
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
    let id = common::group_id(1, timestamp(LONG_AGO));
    let missing = desired::parse(&id, &common::annotations(&[]), &empty).expect_err("required fields are missing");
    assert!(
        missing.iter().any(|p| p.path.ends_with(".nodeRole")) && missing.iter().any(|p| p.path.ends_with(".subnets"))
    );
}

#[test]
fn owner_follows_from_tags_record_and_name() {
    use instance_manager::provisioner::nodegroup::ownership::{Doubt, Owner, owner_of};
    let r = resolve_spec("");
    let named = |name: &str| {
        let mut found = existing_nodegroup(&r, 1).nodegroup;
        found.name = NodegroupName::new("demo", name);
        found.tags.clear();
        found
    };
    let status = |text: &str| serde_json::from_value(json!({ "activeScalingGroupName": text })).expect("a status");
    let none = InstanceGroupStatus::default();
    assert_eq!(owner_of(&r, &none, &named("web")), Owner::Found);
    assert_eq!(owner_of(&r, &none, &named("web2")), Owner::Others);
    let other_role = Nodegroup { node_role: "arn:aws:iam::1:role/other".into(), ..named("web") };
    assert_eq!(owner_of(&r, &none, &other_role), Owner::Others);
    let asg = other_role.scaling_groups[0].clone();
    assert_eq!(
        owner_of(&r, &status(&asg), &other_role),
        Owner::Found,
        "the previous controller's status names its scaling group"
    );
    let doubt = Doubt::OtherScalingGroup { recorded: "eks-another".into(), found: asg };
    assert_eq!(owner_of(&r, &status("eks-another"), &named("web")), Owner::Unproven(doubt));
    assert_eq!(owner_of(&r, &status("eks-another"), &other_role), Owner::Others);
    let managed = json!({ "activeScalingGroupName": "eks-another", "managed": { "nodegroups": ["demo/team-web-1"] } });
    let managed = serde_json::from_value(managed).expect("a status");
    assert_eq!(owner_of(&r, &managed, &named("web")), Owner::Others, "this controller created the group's own");
    let mut foreign = named("web");
    foreign.tags = [("instancegroups.keikoproj.io/Namespace".to_owned(), "other".to_owned())].into();
    assert_eq!(owner_of(&r, &none, &foreign), Owner::Others);
    assert_eq!(owner_of(&r, &none, &existing_nodegroup(&r, 1).nodegroup), Owner::Ours);
}

/// A tenant can give an InstanceGroup the name of any existing node group. That must not make the tenant its owner.
#[test]
fn unproven_nodegroup_is_not_adopted_by_name() {
    use instance_manager::provisioner::nodegroup::ownership::{Doubt, Owner, UnprovenNodegroup, owner_of};
    let r = resolve_spec("");
    let none = InstanceGroupStatus::default();
    let found = Nodegroup {
        tags: BTreeMap::new(),
        name: NodegroupName::new("demo", "web"),
        ..existing_nodegroup(&r, 1).nodegroup
    };
    let created_at = r.desired.id.created_at;
    let of = |created| Nodegroup { created, ..found.clone() };
    assert_eq!(
        owner_of(&r, &none, &of(Some(created_at))),
        Owner::Found,
        "Keiko controller creates it after the InstanceGroup"
    );
    // An admin's Terraform creates its node group again while the tenant's group of this name waits.
    let waiting = InstanceGroupStatus { observed_generation: Some(3), ..InstanceGroupStatus::default() };
    assert_eq!(owner_of(&r, &waiting, &of(Some(created_at))), Owner::Unproven(Doubt::NoEvidence));
    let older = of(Some(created_at - SignedDuration::from_secs(1)));
    let recorded = InstanceGroupStatus {
        active_scaling_group_name: Some(found.scaling_groups[0].clone()),
        ..InstanceGroupStatus::default()
    };
    assert_eq!(
        owner_of(&r, &recorded, &older),
        Owner::Found,
        "the previous controller's status names its scaling group"
    );
    let mut id = common::group_id(3, timestamp(LONG_AGO));
    id.deletion_requested_at = Some(id.created_at);
    let ownership = |cluster: &str| ownership::ownership_tags(cluster, &id);
    for nodegroup in [older.clone(), of(None)] {
        assert_eq!(owner_of(&r, &none, &nodegroup), Owner::Unproven(Doubt::NoEvidence));
        let (resolved, nodegroups) = (Some(&r), std::slice::from_ref(&nodegroup));
        let (status, tag_retry_pending) = (&none, false);
        let input = delete::DeleteInput {
            id: &id,
            ownership_tags: &ownership,
            status,
            resolved,
            nodegroups,
            unseen: None,
            unproven: &[],
            wait_for: None,
            tag_retry_pending,
        };
        let steps: Vec<_> = delete::plan(&input).steps.iter().map(|s| s.step.name()).collect();
        assert_eq!(steps, ["RemoveFinalizer"]);
    }
    let unproven = |doubt| Some(UnprovenNodegroup { name: found.name.clone(), doubt });
    let mut scenario = Scenario::new(vec![], "").with(|s| s.state.unproven_nodegroup = unproven(Doubt::NoEvidence));
    assert_eq!(scenario.step_names(), [""; 0]);
    let (reason, message) = scenario.blocked();
    let tags = r.ownership_tags.iter().all(|tag| message.contains(&format!("{}={}", tag.key, tag.value)));
    assert!(reason == StalledReason::OwnershipConflict && tags, "{message}");
    let tagged_manually = Nodegroup { tags: existing_nodegroup(&r, 1).nodegroup.tags, ..older };
    assert_eq!(owner_of(&r, &none, &tagged_manually), Owner::Found);
    scenario.state = Scenario::converged("", "").state;
    scenario.state.unproven_nodegroup = unproven(Doubt::NoEvidence);
    assert_eq!(scenario.plan().outcome, Outcome::Converged, "the group has its own node group");
}

/// Keiko controller creates a deleted node group again, and records its new scaling group late. A second node group would
/// double the nodes, and the first one would never be deleted.
#[test]
fn nodegroup_of_another_scaling_group_than_recorded_is_neither_doubled_nor_left_behind() {
    use instance_manager::provisioner::nodegroup::ownership::{Doubt, UnprovenNodegroup};
    let with_scaling_group = |found: &str| {
        let doubt = Doubt::OtherScalingGroup { recorded: "eks-web-1".into(), found: found.into() };
        UnprovenNodegroup { name: NodegroupName::new("demo", "web"), doubt }
    };
    let mut id = common::group_id(3, timestamp(LONG_AGO));
    id.deletion_requested_at = Some(id.created_at);
    let ownership = |cluster: &str| ownership::ownership_tags(cluster, &id);
    let status =
        InstanceGroupStatus { active_scaling_group_name: Some("eks-web-1".into()), ..InstanceGroupStatus::default() };
    for (scaling_group, says) in [("eks-web-2", "has eks-web-2"), ("", "has none yet")] {
        let unproven = with_scaling_group(scaling_group);
        let scenario = Scenario::new(vec![], "").with(|s| {
            s.status = status.clone();
            s.state.unproven_nodegroup = Some(unproven.clone());
        });
        assert_eq!(scenario.step_names(), [""; 0]);
        let plan = delete::plan(&delete::DeleteInput {
            id: &id,
            ownership_tags: &ownership,
            status: &status,
            resolved: Some(&scenario.resolved),
            nodegroups: &[],
            unseen: None,
            unproven: std::slice::from_ref(&unproven),
            wait_for: None,
            tag_retry_pending: false,
        });
        assert!(plan.steps.is_empty(), "the finalizer stays: {:?}", plan.steps);
        for outcome in [scenario.plan().outcome, plan.outcome] {
            let Outcome::Blocked { reason, message, .. } = outcome else { panic!("{outcome:?}") };
            let is_clear =
                ["eks-web-1", says, "InstanceGroup=", "Namespace="].iter().all(|word| message.contains(word));
            assert!(reason == StalledReason::OwnershipConflict && is_clear, "{message}");
        }
    }
}

/// The group's own node group, and one that Keiko controller created after a return to it. The status names the latter.
fn second_takeover() -> Scenario {
    Scenario::converged("", "").with(|s| {
        let mut keiko = existing_nodegroup(&s.resolved, 3);
        keiko.nodegroup.name = NodegroupName::new("demo", "web");
        keiko.nodegroup.arn = "arn:aws:eks:us-west-2:1:nodegroup/demo/web/id".into();
        keiko.nodegroup.scaling_groups = vec!["eks-web-2".into()];
        keiko.nodegroup.tags.clear();
        s.status.active_scaling_group_name = Some("eks-web-2".into());
        s.state.nodegroups.push(keiko);
    })
}

/// Otherwise both node groups would run forever, and the second one longer than the group.
#[test]
fn nodegroup_of_keiko_controller_is_recorded_drained_and_deleted_after_a_second_takeover() {
    let active = |plan: Plan| plan.status_update.fields.get("activeScalingGroupName").cloned();
    let first = second_takeover();
    assert_eq!(active(first.plan()), None, "nothing else names the node group yet");
    let recorded = first.with_records();
    let own = recorded.state.nodegroups[0].nodegroup.clone();
    let managed = recorded.status.managed.clone().expect("a record");
    assert_eq!(managed.nodegroups, [own.name.to_string(), "demo/web".into()]);
    assert_eq!(active(recorded.plan()), Some(json!(own.scaling_groups[0])));
    let drained = recorded.with(|s| s.state.nodegroups[1].members.clear());
    let steps = drained.step_names();
    assert!(steps.contains(&"TagNodegroup") && !steps.contains(&"DeleteNodegroup"), "{steps:?}");
    let tagged = drained.with(|s| s.state.nodegroups[1].nodegroup.tags = own.tags);
    let steps = tagged.step_names();
    assert!(steps.contains(&"DeleteNodegroup"), "{steps:?}");
}

/// Such a node group may run the nodes of another group. It is not forgotten while the tags do not decide.
#[test]
fn shared_nodegroup_beside_the_groups_own_one_stays_reported() {
    use instance_manager::provisioner::nodegroup::ownership::{Doubt, UnprovenNodegroup};
    let shared = second_takeover().with(|s| {
        let name = s.state.nodegroups.pop().expect("the node group of Keiko controller").nodegroup.name;
        let doubt = Doubt::SharedWith(["other/web".to_owned()].into());
        s.state.unproven_nodegroup = Some(UnprovenNodegroup { name, doubt });
    });
    assert!(!shared.with_records().step_names().contains(&"DeleteNodegroup"));
    assert!(!shared.plan().status_update.fields.contains_key("activeScalingGroupName"));
    let (reason, message) = shared.blocked();
    assert!(reason == StalledReason::OwnershipConflict && message.contains("other/web"), "{message}");
}

/// Keiko controller shares a node group between groups of one name. None of them may take it from the others.
#[test]
fn shared_nodegroup_blocks_the_group_and_the_message_names_the_others() {
    use instance_manager::provisioner::nodegroup::ownership::{Doubt, UnprovenNodegroup};
    let doubt = Doubt::SharedWith(["other/web".to_owned()].into());
    let unproven = UnprovenNodegroup { name: NodegroupName::new("demo", "web"), doubt };
    let scenario = Scenario::new(vec![], "").with(|s| s.state.unproven_nodegroup = Some(unproven));
    assert_eq!(scenario.step_names(), [""; 0]);
    let (reason, message) = scenario.blocked();
    let tags = scenario.resolved.ownership_tags.iter().all(|tag| message.contains(&tag.value));
    assert!(reason == StalledReason::OwnershipConflict && tags && message.contains("other/web"), "{message}");
}

#[test]
fn recorded_name_without_tags_is_not_ownership() {
    use instance_manager::provisioner::nodegroup::ownership::{Owner, owner_of};
    let r = resolve_spec("");
    let mut id = common::group_id(3, timestamp(LONG_AGO));
    id.deletion_requested_at = Some(id.created_at);
    let ownership = |cluster: &str| ownership::ownership_tags(cluster, &id);
    let adopted = Scenario::converged("", "").with(make_adoptable).with_records();
    let ours = adopted.state.nodegroups[0].nodegroup.clone();
    let named = InstanceGroupStatus {
        managed: Some(ManagedAttributes { nodegroups: vec!["demo/web".into()], ..Default::default() }),
        active_scaling_group_name: Some("eks-before".into()),
        ..InstanceGroupStatus::default()
    };
    let recorded =
        InstanceGroupStatus { active_scaling_group_name: Some("eks-before".into()), ..adopted.status.clone() };
    let recreated = Nodegroup { arn: format!("{}-recreated", ours.arn), ..ours.clone() };
    let tagged = Nodegroup { tags: existing_nodegroup(&r, 1).nodegroup.tags, ..recreated.clone() };
    let other = Nodegroup {
        tags: [("instancegroups.keikoproj.io/Namespace".to_owned(), "other".to_owned())].into(),
        ..ours.clone()
    };
    for (status, nodegroup, owner, case) in [
        (&recorded, &ours, Owner::Ours, "recorded ARN, not tagged yet"),
        (&recorded, &recreated, Owner::Others, "another node group of the same name"),
        (&recorded, &other, Owner::Others, "tagged by another group since"),
        (&named, &ours, Owner::Others, "recorded name only"),
        (&named, &tagged, Owner::Ours, "recorded name and tags"),
    ] {
        assert_eq!(owner_of(&r, status, nodegroup), owner, "{case}");
        let nodegroups = std::slice::from_ref(nodegroup);
        let input = delete::DeleteInput {
            id: &id,
            ownership_tags: &ownership,
            status,
            resolved: None,
            nodegroups,
            unseen: None,
            unproven: &[],
            wait_for: None,
            tag_retry_pending: false,
        };
        let plan = delete::plan(&input);
        let touches = plan.steps.iter().any(|s| ["TagNodegroup", "DeleteNodegroup"].contains(&s.step.name()));
        assert_eq!(touches, owner == Owner::Ours, "{case}");
    }
}

#[test]
fn deletion_of_unadopted_nodegroup_needs_valid_spec() {
    let mut id = common::group_id(3, timestamp(LONG_AGO));
    id.deletion_requested_at = Some(id.created_at);
    let ownership = |cluster: &str| ownership::ownership_tags(cluster, &id);
    let recorded =
        InstanceGroupStatus { active_scaling_group_name: Some("eks-web".into()), ..InstanceGroupStatus::default() };
    let none = InstanceGroupStatus::default();
    let plan = |status, resolved| {
        delete::plan(&delete::DeleteInput {
            id: &id,
            ownership_tags: &ownership,
            status,
            resolved,
            nodegroups: &[],
            unseen: None,
            unproven: &[],
            wait_for: None,
            tag_retry_pending: false,
        })
    };
    let blocked = plan(&recorded, None);
    assert!(
        matches!(&blocked.outcome, Outcome::Blocked { is_deleting: true, message, .. } if message.contains("remove the finalizer")),
        "{:?}",
        blocked.outcome
    );
    assert!(blocked.steps.is_empty(), "{:?}", blocked.steps);
    let r = resolve_spec("");
    for plan in [plan(&recorded, Some(&r)), plan(&none, None)] {
        assert_eq!(plan.outcome, Outcome::Deleted);
        assert_eq!(plan.steps.len(), 1);
    }
}

#[test]
fn scale_in_waits_for_lock_rollout_and_healthy_cluster() {
    let spec = "eks-managed: {minSize: 1, maxSize: 1, configuration: {nodeLabels: {a: b}}}";
    let shrunk = Scenario::converged("", spec);
    let sizes = |scenario: &Scenario| match &scenario.plan().steps.last().expect("a step").step {
        Step::Nodegroup(NodegroupStep::UpdateNodegroup { change, .. }) => {
            (change.sizes.map(|s| s.max), change.set_labels.len())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(sizes(&shrunk), (Some(1), 1));
    let lock = |s: &mut Scenario| s.lock = Some("lock-upgrades on the group");
    let unhealthy = |s: &mut Scenario| s.state.cluster_health = ClusterHealth { total: 4, unready: 3 };
    let labeled = |s: &mut Scenario| s.state.nodegroups[0].nodegroup.labels = s.resolved.desired.labels.clone();
    assert_eq!(sizes(&shrunk.clone().with(lock)), (None, 1), "other changes continue");
    assert_eq!(sizes(&shrunk.clone().with(unhealthy)), (None, 1), "other changes continue");
    let closed = |s: &mut Scenario| s.rollout_block = Some("the rollout of r2: the rollout window is closed");
    assert_eq!(sizes(&shrunk.clone().with(closed)), (None, 1), "no node is removed outside of the window");
    let waiting = shrunk.clone().with(closed).with(labeled);
    assert!(
        matches!(waiting.plan().outcome, Outcome::Locked { message } if message.contains("window is closed")),
        "{:?}",
        waiting.plan().outcome
    );
    let locked = shrunk.clone().with(lock).with(labeled);
    assert!(
        matches!(locked.plan().outcome, Outcome::Locked { message } if message.contains("1 of 2 nodes")),
        "{:?}",
        locked.plan().outcome
    );
    assert_eq!(locked.step_names(), ["UpdateStatus"]);
    assert_eq!(shrunk.clone().with(unhealthy).with(labeled).blocked().0, StalledReason::ClusterUnhealthy);
    let disrupts = |scenario: &Scenario| scenario.plan().steps.last().expect("a step").step.is_disruptive();
    assert!(disrupts(&shrunk), "locks are checked again before the step");
    assert!(!disrupts(&shrunk.clone().with(lock)), "a change that removes no node is not disruptive");
    let grown = Scenario::converged("", "eks-managed: {minSize: 3, maxSize: 9}");
    assert!(sizes(&grown).0 == Some(9) && !disrupts(&grown));
    let still_fits =
        Scenario::converged("", "eks-managed: {minSize: 1, maxSize: 3, configuration: {nodeLabels: {a: b}}}");
    assert_eq!(sizes(&still_fits.with(lock)), (Some(3), 1), "a lock does not block a size change that removes no node");
}

/// Otherwise a denied tag would not be reported, and every reconcile would call EKS for it.
#[test]
fn denied_tags_do_not_block_other_changes() {
    let owner = |more: &str| spec_text(&format!("tags: [{{key: owner, value: web}}{more}]"));
    let converged = Scenario::converged(&owner(""), &owner("")).with_records();
    let with_spec = |extra: &str| converged.clone().with(|s| s.resolved = resolve_spec(extra));
    let retry_pending = |scenario: Scenario| scenario.with(|s| s.state.tag_retry_pending = true);
    assert_eq!(retry_pending(with_spec(&owner(""))).plan().outcome, Outcome::Converged, "no tag differs");
    let both = spec_text("tags: [{key: tier, value: gold}]");
    for (spec, steps, permissions) in [
        (owner(", {key: tier, value: gold}"), vec!["TagNodegroup"], "lacks eks:TagResource;"),
        (String::new(), vec!["UntagNodegroup"], "lacks eks:UntagResource;"),
        (both, vec!["UntagNodegroup", "TagNodegroup"], "lacks eks:TagResource and eks:UntagResource;"),
    ] {
        let scenario = with_spec(&spec).with_records();
        assert_eq!(scenario.step_names(), steps);
        assert!(matches!(scenario.plan().outcome, Outcome::Progressing { recheck: Recheck::Immediately, .. }));
        let scenario = retry_pending(scenario);
        assert_eq!(scenario.step_names(), [""; 0], "{spec}");
        let (reason, message) = scenario.blocked();
        assert!(reason == StalledReason::MissingPermission && message.contains(permissions), "{message}");
        assert_eq!(scenario.plan().status_update.nodes_ready, Some(true));
        let labeled =
            scenario.with(|s| s.resolved.desired.labels = BTreeMap::from([("a".into(), "b".into())])).with_records();
        assert_eq!(labeled.step_names(), ["UpdateNodegroup"]);
    }
}

#[test]
fn obsolete_failed_update_is_cleared() {
    let failed = |spec: &str| {
        Scenario::converged("", spec).with(|s| {
            s.status.update_id = Some("update-1".into());
            s.status.update_of = Some("hash of the change".into());
            s.state.update = Some(update(UpdateStatus::Failed, "VersionUpdate"));
        })
    };
    let reverted = failed("").plan();
    assert_eq!(reverted.outcome, Outcome::Converged);
    assert_eq!(reverted.status_update.fields.get("updateOf"), Some(&Value::Null));
    assert_eq!(failed(RELEASED).plan().status_update.fields.get("updateOf"), None, "the update is retried");
}

/// A user who reads UPDATED after a failure must see how many nodes EKS has updated.
#[test]
fn only_nodes_with_the_new_version_are_counted_as_updated() {
    let counts = |scenario: &Scenario| {
        let nodes = scenario.plan().status_update.fields["nodes"].clone();
        let listed = nodes["outdatedInstances"].as_array().map_or(0, Vec::len);
        assert_eq!(Some(listed as i64), nodes["outdated"].as_i64(), "`status` marks these nodes: {nodes}");
        (nodes["updated"].as_i64(), nodes["outdated"].as_i64())
    };
    let templates = |pinned: &'static str, first: &'static str| {
        move |s: &mut Scenario| {
            let group = &mut s.state.nodegroups[0];
            group.scaling_groups[0].template.as_mut().expect("a pin").version = pinned.into();
            group.members[0].instance.template.as_mut().expect("a pin").version = first.into();
        }
    };
    let updating = |status: UpdateStatus, kind: &'static str| {
        move |s: &mut Scenario| {
            s.status.update_id = Some("update-1".into());
            s.status.update_of = Some("hash of the change".into());
            s.state.update = Some(update(status, kind));
        }
    };
    let newer = || Scenario::converged("", RELEASED);
    assert_eq!(counts(&newer()), (Some(0), Some(2)), "the update has not begun");
    let locked = newer().with(|s| s.lock = Some("lock-upgrades"));
    assert_eq!(counts(&locked), (Some(0), Some(2)), "a lock holds the update");
    for status in [UpdateStatus::InProgress, UpdateStatus::Failed, UpdateStatus::Cancelled] {
        let at = |pinned, first| newer().with(updating(status, "VersionUpdate")).with(templates(pinned, first));
        assert_eq!(counts(&at("1", "1")), (Some(0), Some(2)), "{status:?}: EKS has made no template version");
        assert_eq!(counts(&at("2", "1")), (Some(0), Some(2)), "{status:?}: EKS has replaced no node");
        assert_eq!(counts(&at("2", "2")), (Some(1), Some(1)), "{status:?}");
        assert_eq!(counts(&at("1", "2")), (Some(1), Some(1)), "{status:?}: EKS took the scaling group back");
    }
    let partly = newer().with(updating(UpdateStatus::Failed, "VersionUpdate")).with(templates("2", "2"));
    let locked = partly.with(|s| s.lock = Some("lock-upgrades")).plan().outcome;
    assert!(matches!(&locked, Outcome::Locked { message } if message.starts_with("1 of 2 nodes")), "{locked:?}");
    let labeled = newer().with(updating(UpdateStatus::Failed, "ConfigUpdate")).with(templates("2", "2"));
    assert_eq!(counts(&labeled), (Some(0), Some(2)), "the other version is of labels");
    let reverted = Scenario::converged("", "").with(updating(UpdateStatus::Failed, "VersionUpdate"));
    assert_eq!(counts(&reverted), (Some(2), Some(0)), "the spec asks for the old version again");
}

/// The start alone would leave open since when the nodes have what the spec asks for.
#[test]
fn completed_update_has_one_event() {
    let after = |kind: &str, spec: &str| {
        let scenario = Scenario::converged(spec, spec).with_records();
        scenario.with(|s| {
            s.status.update_id = Some("update-1".into());
            s.status.update_of = Some("hash of the change".into());
            s.state.update = Some(update(UpdateStatus::Successful, kind));
        })
    };
    for (kind, lock) in [("VersionUpdate", None), ("ConfigUpdate", None), ("ConfigUpdate", Some("lock-upgrades"))] {
        let plan = after(kind, RELEASED).with(|s| s.lock = lock).plan();
        let [event] = plan.events.as_slice() else { panic!("{kind}: {:?}", plan.events) };
        let name = resolve_spec(RELEASED).name.nodegroup;
        for part in ["completed", "update-1", kind, &name, NOW] {
            assert!(event.message.contains(part), "{kind}: {part} is not in {}", event.message);
        }
        assert_eq!(plan.status_update.fields.get("updateOf"), Some(&Value::Null), "{kind}: it is reported once");
    }
    let waits = after("ConfigUpdate", "").with(|s| s.resolved = resolve_spec(RELEASED));
    let started = waits.plan();
    assert!(started.steps.iter().any(|p| p.step.name() == "UpdateNodegroupVersion") && started.events.len() == 1);
    assert_eq!(started.status_update.fields.get("updateOf"), None, "the step records the next update");
}

#[test]
fn lock_skips_reference_checks() {
    let state = Scenario::converged("", C5).state;
    assert!(state.lock_prevents_creation(Some("lock-upgrades on the group")) && !state.lock_prevents_creation(None));
    let deleting = Scenario::converged("", C5).nodegroup(|n| n.status = NodegroupStatus::Deleting).state;
    for state in [deleting, ObservedState::default()] {
        assert!(!state.lock_prevents_creation(Some("lock-upgrades on the group")), "no node group is replaced");
    }
}

#[test]
fn deletion_waits_for_eks_and_skips_foreign_nodegroups() {
    let mut id = common::group_id(3, timestamp(LONG_AGO));
    id.deletion_requested_at = Some(id.created_at);
    let tags = |cluster: &str| ownership::ownership_tags(cluster, &id);
    let scenario = Scenario::converged("", "");
    let plan = |nodegroups: &[Nodegroup]| {
        delete::plan(&delete::DeleteInput {
            id: &id,
            ownership_tags: &tags,
            status: &scenario.status,
            resolved: None,
            nodegroups,
            unseen: None,
            unproven: &[],
            wait_for: None,
            tag_retry_pending: false,
        })
    };
    let one = scenario.state.nodegroups[0].nodegroup.clone();
    let of = |status| Nodegroup { status, ..one.clone() };
    let steps = |plan: &Plan| plan.steps.iter().map(|s| s.step.name()).collect::<Vec<_>>();
    assert_eq!(steps(&plan(&[of(NodegroupStatus::Active)])), ["DeleteNodegroup"]);
    for busy in [NodegroupStatus::Creating, NodegroupStatus::Updating, NodegroupStatus::Deleting] {
        assert_eq!(steps(&plan(&[of(busy)])), [""; 0]);
    }
    let delete_failed =
        Nodegroup { issues: vec![issue("Ec2SecurityGroupDeletionFailure")], ..of(NodegroupStatus::DeleteFailed) };
    let plan_after_failure = plan(&[delete_failed]);
    assert!(
        matches!(&plan_after_failure.outcome, Outcome::Blocked { is_deleting: true, message, .. } if message.contains("the deletion is retried"))
    );
    assert_eq!(steps(&plan_after_failure), ["DeleteNodegroup"], "the deletion is retried");
    let mut edited = one.clone();
    edited.tags.insert("instancegroups.keikoproj.io/Namespace".into(), "other".into());
    let of_another_name = Nodegroup { name: NodegroupName::new("demo", "theirs"), ..edited.clone() };
    assert_eq!(steps(&plan(&[of_another_name])), ["RemoveFinalizer"]);
    let edited = plan(&[edited]);
    assert_eq!(steps(&edited), [""; 0], "no controller would find it again");
    let Outcome::Blocked { reason, message, is_deleting: true } = edited.outcome else {
        panic!("{:?}", edited.outcome)
    };
    assert!(
        reason == StalledReason::OwnershipConflict && message.contains("restore its tags, or delete it"),
        "{message}"
    );
    assert_eq!(steps(&plan(&[])), ["RemoveFinalizer"]);
}

/// The shipped IAM policy allows deleting tagged node groups only, so an untagged one could never be deleted.
#[test]
fn keiko_nodegroup_is_tagged_before_deletion() {
    let mut id = common::group_id(3, timestamp(LONG_AGO));
    id.deletion_requested_at = Some(id.created_at);
    let ownership = |cluster: &str| ownership::ownership_tags(cluster, &id);
    let scenario = Scenario::converged("", "").with(make_adoptable);
    let plan = |nodegroup: &Nodegroup, tag_retry_pending| {
        let (status, resolved) = (&scenario.status, Some(&scenario.resolved));
        let nodegroups = std::slice::from_ref(nodegroup);
        delete::plan(&delete::DeleteInput {
            id: &id,
            ownership_tags: &ownership,
            status,
            resolved,
            nodegroups,
            unseen: None,
            unproven: &[],
            wait_for: None,
            tag_retry_pending,
        })
    };
    let steps = |plan: &Plan| plan.steps.iter().map(|s| s.step.name()).collect::<Vec<_>>();
    let mut nodegroup = scenario.state.nodegroups[0].nodegroup.clone();
    let retry_pending = plan(&nodegroup, true);
    assert_eq!(steps(&retry_pending), [""; 0]);
    assert!(
        matches!(&retry_pending.outcome, Outcome::Blocked { reason: StalledReason::MissingPermission, is_deleting: true, message } if message.contains("eks:TagResource")),
        "{:?}",
        retry_pending.outcome
    );
    let first = plan(&nodegroup, false);
    assert_eq!(steps(&first), ["TagNodegroup"]);
    let Step::Nodegroup(NodegroupStep::TagNodegroup { tags, .. }) = &first.steps[0].step else { panic!("{first:?}") };
    nodegroup.tags.extend(tags.clone());
    assert_eq!(steps(&plan(&nodegroup, false)), ["DeleteNodegroup"]);
    let deleting = Nodegroup { status: NodegroupStatus::Deleting, tags: BTreeMap::new(), ..nodegroup };
    assert_eq!(steps(&plan(&deleting, false)), [""; 0]);
}

#[test]
fn node_role_comes_from_spec() {
    assert_eq!(resolve_spec("").desired.immutable.node_role, ROLE);
    assert_eq!(desired::role_name("arn:aws-cn:iam::1:role/path/to/nodes"), Some("nodes"));
    assert_eq!(desired::role_name("nodes"), None);
}

/// EKS always has a role, subnets, types and versions for a node group. A field that its answer lacks is not a difference,
/// because a difference would replace every node.
#[test]
fn field_that_eks_does_not_return_is_not_drift() {
    let spec = spec_text(
        "version: '1.33', releaseVersion: 1.33.0-20250101, amiType: AL2023_x86_64_STANDARD, capacityType: spot",
    );
    let plan = Scenario::converged(&spec, &spec)
        .nodegroup(|group| {
            group.node_role.clear();
            group.subnets.clear();
            group.instance_types.clear();
            group.capacity_type.clear();
            group.ami_type.clear();
            group.version.clear();
            group.release_version.clear();
        })
        .plan();
    let names: Vec<_> = plan.steps.iter().map(|p| p.step.name()).filter(|name| *name != "UpdateStatus").collect();
    assert_eq!((names, plan.outcome), (Vec::<&str>::new(), Outcome::Converged));
}

/// "No Node in the cache" is not "drained": the plan that deletes the node group is made again from what the API server says.
#[test]
fn pods_of_an_instance_without_a_node_keep_the_outgoing_nodegroup() {
    let before = resolve_spec("");
    let after = "eks-managed: {configuration: {instanceType: m5.xlarge}}";
    let mut scenario =
        Scenario::new(vec![existing_nodegroup(&before, 1), existing_nodegroup(&resolve_spec(after), 1)], after);
    let outgoing = &mut scenario.state.nodegroups[0];
    outgoing.members.iter_mut().for_each(|member| member.node = None);
    let instance = outgoing.members[0].instance.id.clone();
    let steps = |scenario: &Scenario| scenario.plan().steps.iter().map(|s| s.step.name()).collect::<Vec<_>>();
    assert!(steps(&scenario).contains(&"DeleteNodegroup"), "{:?}", steps(&scenario));
    let pod = PodView {
        pod: PodRef { namespace: "team".into(), name: "web".into(), uid: "1".into() },
        is_ignored: false,
        is_finished: false,
        is_unmanaged: false,
        is_terminating: false,
        terminating_until: None,
        created: None,
        tolerates_cordon: false,
        is_newer_than_drain: false,
        grace_seconds: 30,
    };
    scenario.state.drains.insert(instance.clone(), DrainView { pods: vec![pod.clone()], ..DrainView::default() });
    assert!(!steps(&scenario).contains(&"DeleteNodegroup"), "{:?}", steps(&scenario));
    let finished = DrainView { pods: vec![PodView { is_finished: true, ..pod }], ..DrainView::default() };
    scenario.state.drains.insert(instance, finished);
    assert!(steps(&scenario).contains(&"DeleteNodegroup"));
}

/// An answer of AWS may lack a scaling group. Without known nodes, the node group would be deleted with all of them at once,
/// and EKS drains them by its own limits.
#[test]
fn outgoing_nodegroup_stays_while_its_scaling_group_is_not_shown() {
    let (before, after) = (resolve_spec(""), "eks-managed: {configuration: {instanceType: m5.xlarge}}");
    let deletes = |change: fn(&mut ObservedNodegroup)| {
        let mut outgoing = existing_nodegroup(&before, 1);
        outgoing.members.clear();
        change(&mut outgoing);
        let scenario = Scenario::new(vec![outgoing, existing_nodegroup(&resolve_spec(after), 3)], after);
        scenario.step_names().contains(&"DeleteNodegroup")
    };
    assert!(deletes(|_| {}), "its scaling group has no instances");
    assert!(!deletes(|group| group.scaling_groups.clear()));
    let is_deleted_after_the_loss = deletes(|group| {
        group.scaling_groups.clear();
        group.nodegroup.issues = vec![issue("AutoScalingGroupNotFound")];
    });
    assert!(is_deleted_after_the_loss, "EKS says that it is gone");
}

#[test]
fn values_that_eks_always_refuses_are_rejected() {
    let errors = |configuration: &str| {
        let errors = parsed(&spec_text(configuration)).err().unwrap_or_default();
        let path = |error: SpecError| error.path.trim_start_matches("spec.eks-managed.configuration.").to_owned();
        errors.into_iter().map(path).collect::<Vec<_>>()
    };
    let long = format!("{}/{}", "p".repeat(32), "n".repeat(31));
    assert_eq!(
        errors(&format!("nodeLabels: {{{long}: v}}")),
        ["nodeLabels"],
        "prefix and name have 64 characters in all"
    );
    assert_eq!(errors("nodeLabels: {a: ''}"), ["nodeLabels.a"]);
    assert_eq!(errors(&format!("taints: [{{key: {long}, effect: NO_SCHEDULE}}]")), ["taints[0].key"]);
    let taints = |count: usize| {
        let taint = |n: usize| format!("{{key: k{n}, effect: NO_SCHEDULE}}");
        format!("taints: [{}]", (0..count).map(taint).collect::<Vec<_>>().join(", "))
    };
    assert_eq!((errors(&taints(50)), errors(&taints(51))), (vec![], vec!["taints".to_owned()]));
    let tags = |count: usize| {
        let tag = |n: usize| format!("{{key: k{n}, value: ''}}");
        format!("tags: [{}]", (0..count).map(tag).collect::<Vec<_>>().join(", "))
    };
    assert_eq!((errors(&tags(47)), errors(&tags(48))), (vec![], vec!["tags".to_owned()]));
    assert_eq!(errors(&format!("tags: [{{key: a, value: {}}}]", "v".repeat(257))), ["tags[0].value"]);
    assert_eq!(errors(&format!("clusterName: {}", "c".repeat(101))), ["clusterName"]);
    assert_eq!(
        errors("nodeLabels: {team: a}, taints: [{key: a, value: '', effect: NO_EXECUTE}]"),
        Vec::<String>::new()
    );
}

fn deletion_events(scenario: &Scenario) -> Vec<String> {
    let plan = scenario.plan();
    let events = plan.events.iter().filter(|event| event.reason == "ResourceRecreated");
    events.map(|event| event.message.clone()).collect()
}

/// An admin would search CloudTrail for another client, and find the controller's own call.
#[test]
fn node_group_that_the_controller_deleted_is_reported_with_the_reason() {
    let useless = Scenario::converged("", "").with_records().with(|s| {
        s.state.creation_failed_for = SignedDuration::from_mins(15);
        s.state.nodegroups[0].members.clear();
    });
    let failed = useless.clone().nodegroup(|n| n.status = NodegroupStatus::CreateFailed);
    let lost = useless.with(|s| {
        s.state.has_lost_scaling_group = true;
        s.state.nodegroups[0].nodegroup.status = NodegroupStatus::Degraded;
    });
    for (unusable, why) in [(failed, "EKS could not create it"), (lost, "it had lost its scaling group")] {
        assert!(unusable.step_names().contains(&"DeleteNodegroup"), "{why}: {:?}", unusable.step_names());
        let deleting = unusable.with_records().with(|s| {
            s.state.has_lost_scaling_group = false;
            s.state.nodegroups[0].nodegroup.status = NodegroupStatus::Deleting;
        });
        let gone = deleting.with_records().with(|s| s.state.nodegroups.clear());
        let events = deletion_events(&gone);
        assert!(events.len() == 1 && events[0].starts_with("the controller deleted the node group "), "{events:?}");
        assert!(events[0].contains(why) && !events[0].contains("another client"), "{events:?}");
        let serving = Scenario::converged("", "").state;
        let created = Scenario { state: serving, ..gone.with_records() };
        let deleted = created.with_records().with(|s| s.state.nodegroups.clear());
        assert!(deletion_events(&deleted)[0].contains("another client"), "the next deletion is not the controller's");
    }
}

/// A creation alone reads as if the node group had never been there.
#[test]
fn externally_deleted_node_group_is_reported() {
    let deleted = Scenario::converged("{}", "{}").with(|s| s.state.nodegroups.clear());
    let events = deletion_events(&deleted);
    assert!(events.len() == 1 && events[0].starts_with("the node group "), "{events:?}");
    assert!(events[0].contains("with new nodes") && events[0].contains("DeleteNodegroup"), "{events:?}");
    assert_eq!(deletion_events(&deleted.with_records()), [""; 0], "once");
    assert_eq!(deletion_events(&Scenario::new(vec![], "{}")), [""; 0], "a new group");
    assert_eq!(deletion_events(&Scenario::converged("{}", "{}")), [""; 0]);
}

/// Who sets the version before the cluster has it sees no failed update, and a rollout does not go back.
#[test]
fn version_that_the_cluster_does_not_have_waits_for_it() {
    let with_cluster = |spec: &str, cluster: &str| {
        Scenario::converged("", &spec_text(spec)).with(|s| s.state.cluster_version = Some(cluster.into()))
    };
    let is_updated = |scenario: &Scenario| scenario.step_names().contains(&"UpdateNodegroupVersion");
    for spec in ["version: '1.34'", "releaseVersion: 1.34.0-20250601"] {
        let ahead = with_cluster(spec, "1.33");
        let Outcome::Progressing { message, .. } = ahead.plan().outcome else { panic!("{:?}", ahead.plan().outcome) };
        assert!(!is_updated(&ahead) && message.contains("once the cluster has 1.34"), "{message}");
        let between = with_cluster(spec, "1.35");
        let (reason, message) = between.blocked();
        assert!(!is_updated(&between) && reason == StalledReason::InvalidSpec, "{message}");
        assert!(message.contains("the cluster (1.35)") && message.contains("the nodes (1.33)"), "{message}");
        assert!(is_updated(&with_cluster(spec, "1.34")), "{spec}");
    }
    assert!(is_updated(&with_cluster("releaseVersion: 1.33.0-20250601", "1.35")), "the version of the nodes");
    assert!(is_updated(&with_cluster("version: latest", "1.33")), "EKS itself refuses it");
}

/// EKS fills in an omitted field with the latest release, or with the cluster's version, and no later update can undo
/// that.
#[test]
fn version_update_sends_version_and_release_together() {
    let to = |scenario: Scenario| match scenario.plan().steps.pop().expect("a step").step {
        Step::Nodegroup(NodegroupStep::UpdateNodegroupVersion { to, .. }) => (to.version, to.release_version),
        other => panic!("{other:?}"),
    };
    let pinned = spec_text("version: '1.33', releaseVersion: 1.33.0-20250101");
    let newer_release = Scenario::converged(&pinned, &spec_text("version: '1.33', releaseVersion: 1.33.0-20250601"));
    assert_eq!(to(newer_release), ("1.33".into(), Some("1.33.0-20250601".into())));
    let both = Scenario::converged(&pinned, &spec_text("version: '1.34', releaseVersion: 1.34.0-20250601"));
    assert_eq!(to(both), ("1.34".into(), Some("1.34.0-20250601".into())));
    let release_alone = Scenario::converged("", &spec_text("releaseVersion: 1.33.0-20250601"));
    assert_eq!(to(release_alone), ("1.33".into(), Some("1.33.0-20250601".into())), "the version of the nodes");
    let version_alone = Scenario::converged("", &spec_text("version: '1.34'"));
    assert_eq!(to(version_alone), ("1.34".into(), None));
    let next_minor = Scenario::converged("", &spec_text("releaseVersion: 1.34.0-20250601"));
    assert_eq!(to(next_minor).0, "1.34", "EKS rejects a release of another version than the one in the request");
    let release = spec_text("amiType: BOTTLEROCKET_x86_64, releaseVersion: 1.49.0-713f44ce");
    let bottlerocket = Scenario::converged(&spec_text("amiType: BOTTLEROCKET_x86_64"), &release);
    assert_eq!(to(bottlerocket).0, "1.33", "1.49 is Bottlerocket's own version");
}

/// Load grows while EKS cannot create the replacement, for hours perhaps: the node group that serves must follow its spec.
#[test]
fn serving_nodegroup_follows_its_spec_while_its_replacement_fails() {
    let larger = "eks-managed: {maxSize: 9, configuration: {instanceType: c5.large}}";
    let resized = |scenario: Scenario| {
        let name = scenario.state.nodegroups[0].nodegroup.name.clone();
        let changes = |step: &instance_manager::plan::PlannedStep| {
            matches!(&step.step, Step::Nodegroup(NodegroupStep::UpdateNodegroup { nodegroup, change, .. })
                if *nodegroup == name && change.sizes.is_some_and(|sizes| sizes.max == 9))
        };
        scenario.plan().steps.iter().any(changes)
    };
    let failed = Scenario::new(
        vec![existing_nodegroup(&resolve_spec(""), 1), existing_nodegroup(&resolve_spec(larger), 3)],
        larger,
    )
    .with(|s| {
        s.state.nodegroups[1].nodegroup.status = NodegroupStatus::CreateFailed;
        s.state.nodegroups[1].nodegroup.issues = vec![issue("AsgInstanceLaunchFailures")];
        s.state.nodegroups[1].members.clear();
    });
    let remains = failed.clone().with(|s| s.state.nodegroups[1].nodegroup.status = NodegroupStatus::DeleteFailed);
    assert!(resized(failed), "EKS could not create the replacement");
    assert!(resized(remains), "EKS could not delete the failed one");
    let alone = || Scenario::converged("", larger);
    assert!(resized(alone().with(|s| s.state.cluster_health = ClusterHealth { total: 4, unready: 3 })));
    assert!(resized(alone().with(|s| s.persistent_failure = PersistentFailure::Pass)), "EKS refuses the creation");
    assert!(!resized(alone()), "the replacement has the size");
}

/// A tenant tries one instance type without capacity after the other. The node group that serves must follow the spec
/// meanwhile, and decide how large the next one is: EKS refuses every change of those that it could not create.
#[test]
fn nodegroup_that_eks_could_not_create_is_not_taken_for_the_one_that_serves() {
    let third = "eks-managed: {maxSize: 9, configuration: {instanceType: c6i.large}}";
    let failed = |spec: &str| {
        let nodegroups = ["", C5, third].map(resolve_spec);
        let nodegroups = nodegroups.iter().zip([1, 3, 5]).map(|(resolved, first)| existing_nodegroup(resolved, first));
        Scenario::new(nodegroups.collect(), spec).with(|s| {
            for failed in &mut s.state.nodegroups[1..] {
                (failed.nodegroup.status, failed.nodegroup.sizes.min) = (NodegroupStatus::CreateFailed, 2);
                failed.members.clear();
            }
        })
    };
    let updated = |scenario: &Scenario| -> Vec<usize> {
        let index = |name: &NodegroupName| {
            scenario.state.nodegroups.iter().position(|group| group.nodegroup.name == *name).expect("a node group")
        };
        let plan = scenario.plan();
        let of_update = |planned: &instance_manager::plan::PlannedStep| match &planned.step {
            Step::Nodegroup(NodegroupStep::UpdateNodegroup { nodegroup, .. }) => Some(index(nodegroup)),
            _ => None,
        };
        plan.steps.iter().filter_map(of_update).collect()
    };
    let fourth = "eks-managed: {maxSize: 9, configuration: {instanceType: m6i.large}}";
    let locked = failed(fourth).with(|s| s.lock = Some("a lock"));
    let refused = failed(fourth).with(|s| s.persistent_failure = PersistentFailure::Pass);
    for scenario in [failed(third), locked.clone(), refused] {
        assert_eq!(updated(&scenario), [0], "{:?}", scenario.plan().outcome);
    }
    let status = locked.plan().status_update.fields;
    let served_by = &locked.state.nodegroups[0].nodegroup.scaling_groups;
    assert_eq!(status["activeScalingGroupName"], json!(served_by.join(",")), "{status:?}");
    let next = failed(fourth).with(|s| s.state.nodegroups[2].scaling_groups[0].desired = 7).plan();
    let sizes = next.steps.iter().find_map(|planned| match &planned.step {
        Step::Nodegroup(NodegroupStep::CreateNodegroup(new)) => new.sizes.desired,
        _ => None,
    });
    assert_eq!(sizes, Some(2), "a node group without nodes has none to replace");
    let alone = Scenario::converged("", fourth)
        .nodegroup(|n| n.status = NodegroupStatus::CreateFailed)
        .with(|s| s.persistent_failure = PersistentFailure::Pass);
    assert_eq!(updated(&alone), [0; 0]);
    assert!(alone.step_names().contains(&"CreateNodegroup"), "{:?}", alone.step_names());
}

/// EKS tags the scaling group of every node group for the Cluster Autoscaler, which removes nodes that are empty: as few as
/// `minSize` would be left when the old nodes are drained.
#[test]
fn replacement_keeps_its_nodes_until_the_old_ones_are_gone() {
    let spec = |extra: &str| format!("eks-managed: {{minSize: 1, maxSize: 9, configuration: {{{extra}}}}}");
    let (before, after) = (spec(""), spec("instanceType: c5.large"));
    let created = Scenario::converged(&before, &after).plan();
    let sizes = created.steps.iter().find_map(|planned| match &planned.step {
        Step::Nodegroup(NodegroupStep::CreateNodegroup(new)) => Some(new.sizes),
        _ => None,
    });
    assert_eq!(sizes, Some(NodegroupSizes { min: 2, max: 9, desired: Some(2) }));
    let both = |after: &str| {
        let mut new = existing_nodegroup(&resolve_spec(after), 3);
        (new.nodegroup.sizes.min, new.nodegroup.sizes.max) = (2, 9);
        Scenario::new(vec![existing_nodegroup(&resolve_spec(&before), 1), new], after)
    };
    let resized = |scenario: &Scenario| {
        scenario.plan().steps.iter().find_map(|planned| match &planned.step {
            Step::Nodegroup(NodegroupStep::UpdateNodegroup { change, .. }) => change.sizes,
            _ => None,
        })
    };
    let replacing = both(&after);
    assert_eq!(resized(&replacing), None, "{:?}", replacing.step_names());
    assert!(replacing.step_names().contains(&"CordonNode"));
    let shrunk = both(&after).with(|s| {
        s.state.nodegroups[1].members.truncate(1);
        s.state.nodegroups[1].scaling_groups.iter_mut().for_each(|group| group.desired = 1);
    });
    assert!(!shrunk.step_names().contains(&"CordonNode"), "one node has no place to go to");
    let smaller = both("eks-managed: {minSize: 1, maxSize: 1, configuration: {instanceType: c5.large}}");
    assert_eq!(resized(&smaller).map(|sizes| (sizes.min, sizes.max)), Some((1, 1)), "the tenant wants fewer");
    let failed = both(&after).with(|s| {
        s.state.nodegroups[0].members.clear();
        s.state.nodegroups[0].nodegroup.status = NodegroupStatus::DeleteFailed;
        s.state.nodegroups[0].nodegroup.issues = vec![issue("Ec2SecurityGroupDeletionFailure")];
    });
    let (_, message) = failed.blocked();
    assert!(message.contains("stays 2 instead of 1"), "nothing else says why: {message}");
    let alone = both(&after).with(|s| _ = s.state.nodegroups.remove(0));
    assert_eq!(resized(&alone), Some(NodegroupSizes { min: 1, max: 9, desired: None }));
}

/// The spec goes back in the middle of a replacement. The Cluster Autoscaler has removed the nodes of the old node group that
/// were drained: the pods of the new one would have no place to go to.
#[test]
fn nodegroup_that_the_spec_goes_back_to_grows_before_the_other_one_is_drained() {
    let spec = |extra: &str| format!("eks-managed: {{minSize: 1, maxSize: 9, configuration: {{{extra}}}}}");
    let (before, after) = (spec(""), spec("instanceType: c5.large"));
    let mut new = existing_nodegroup(&resolve_spec(&after), 3);
    new.nodegroup.sizes.min = 2;
    let reverted = Scenario::new(vec![existing_nodegroup(&resolve_spec(&before), 1), new], &before).with(|s| {
        let old = &mut s.state.nodegroups[0];
        (old.nodegroup.sizes.min, old.nodegroup.sizes.max) = (1, 9);
        old.members.truncate(1);
        old.scaling_groups.iter_mut().for_each(|group| group.desired = 1);
    });
    let resized = |scenario: &Scenario| {
        scenario.plan().steps.iter().find_map(|planned| match &planned.step {
            Step::Nodegroup(NodegroupStep::UpdateNodegroup { change, .. }) => change.sizes,
            _ => None,
        })
    };
    assert!(!reverted.step_names().contains(&"CordonNode"), "{:?}", reverted.step_names());
    assert_eq!(resized(&reverted), Some(NodegroupSizes { min: 2, max: 9, desired: Some(2) }));
    let grown = reverted.clone().with(|s| {
        let old = &mut s.state.nodegroups[0];
        old.nodegroup.sizes = NodegroupSizes { min: 2, max: 9, desired: Some(2) };
        old.scaling_groups.iter_mut().for_each(|group| group.desired = 2);
    });
    assert_eq!((resized(&grown), grown.step_names().contains(&"CordonNode")), (None, false), "its node is not Ready");
    let ready = grown.with(|s| s.state.nodegroups[0].members = existing_nodegroup(&s.resolved, 1).members);
    assert!(ready.step_names().contains(&"CordonNode"), "{:?}", ready.step_names());
    let locked = reverted.with(|s| s.lock = Some("a lock"));
    assert_eq!(resized(&locked), None, "no node is drained");
    let alone = ready.with(|s| _ = s.state.nodegroups.remove(1));
    assert_eq!(resized(&alone).map(|sizes| sizes.min), Some(1));
}

/// Kubernetes evicts the pods of all nodes at once for it, and asks no PodDisruptionBudget.
#[test]
fn taint_that_evicts_pods_waits_for_locks_and_rollouts() {
    let taint = |effect: &str| {
        let spec = format!("eks-managed: {{configuration: {{taints: [{{key: a, value: b, effect: {effect}}}]}}}}");
        Scenario::converged("", &spec)
    };
    let sets_taint = |scenario: &Scenario| {
        let plan = scenario.plan();
        let is_disruptive = plan.steps.iter().any(|planned| planned.step.is_disruptive());
        (scenario.step_names().contains(&"UpdateNodegroup"), is_disruptive)
    };
    assert_eq!(sets_taint(&taint("NO_EXECUTE")), (true, true), "the lock is asked for once more before the call");
    assert_eq!(sets_taint(&taint("NO_SCHEDULE")), (true, false));
    for block in [(|s: &mut Scenario| s.lock = Some("lock-upgrades on the group")) as fn(&mut Scenario), |s| {
        s.state.cluster_health = ClusterHealth { total: 4, unready: 3 }
    }] {
        assert_eq!(sets_taint(&taint("NO_EXECUTE").with(block)), (false, false));
        assert!(sets_taint(&taint("NO_SCHEDULE").with(block)).0);
    }
    let Outcome::Locked { message } =
        taint("NO_EXECUTE").with(|s| s.lock = Some("lock-upgrades on the group")).plan().outcome
    else {
        panic!("nothing says why the taint does not come")
    };
    assert!(message.contains("a=b:NO_EXECUTE") && message.contains("lock-upgrades on the group"), "{message}");
}

/// A taint whose effect changes is removed and added. Pods of others would be scheduled to the nodes while the new one waits,
/// and be evicted at once when it comes.
#[test]
fn taint_stays_while_the_one_that_replaces_it_waits() {
    let spec = "eks-managed: {configuration: {taints: [{key: a, value: b, effect: NO_EXECUTE}]}}";
    let old = resolve_spec(&spec.replace("NO_EXECUTE", "NO_SCHEDULE")).desired.taints[0].clone();
    let changed = || {
        let managed = json!({"managed": {"taints": ["a:NO_SCHEDULE"]}});
        Scenario::converged("", spec).nodegroup(|n| n.taints = vec![old.clone()]).with(|s| {
            let mut status = json!(s.status);
            instance_manager::api::apply_merge_patch(&mut status, &managed);
            s.status = serde_json::from_value(status).expect("a status");
        })
    };
    let locked = changed().with(|s| s.lock = Some("a lock"));
    assert_eq!(locked.step_names(), ["UpdateStatus"], "both are recorded");
    assert!(matches!(locked.plan().outcome, Outcome::Locked { .. }), "{:?}", locked.plan().outcome);
    let steps = changed().plan().steps;
    let Some(Step::Nodegroup(NodegroupStep::UpdateNodegroup { change, .. })) = steps.last().map(|p| &p.step) else {
        panic!("{steps:?}")
    };
    assert_eq!((change.set_taints.len(), change.remove_taints.as_slice()), (1, [old.clone()].as_slice()));
}

/// EKS adds nodes for its update, and would be asked for as many again.
#[test]
fn replacement_waits_for_an_update_of_the_nodegroup_that_it_replaces() {
    let updating = Scenario::converged("", C5).nodegroup(|n| n.status = NodegroupStatus::Updating);
    assert_eq!(updating.step_names(), [""; 0]);
    let Outcome::Progressing { message, .. } = updating.plan().outcome else { panic!("it waits") };
    assert!(message.contains("is replaced after that") && message.contains("c5.large"), "{message}");
}

/// EKS refuses a maximum size below the number of nodes that an update may take at once.
#[test]
fn smaller_max_size_lowers_an_unset_max_unavailable() {
    let change = |found: MaxUnavailable| {
        let smaller = "eks-managed: {minSize: 1, maxSize: 3}";
        let scenario = Scenario::converged("", smaller).nodegroup(|n| n.max_unavailable = Some(found));
        match scenario.plan().steps.pop().expect("a step").step {
            Step::Nodegroup(NodegroupStep::UpdateNodegroup { change, .. }) => change.max_unavailable,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(change(MaxUnavailable::Count(5)), Some(MaxUnavailable::Count(3)));
    assert_eq!(change(MaxUnavailable::Count(3)), None);
    assert_eq!(change(MaxUnavailable::Percent(50)), None);
}

/// EKS makes a new template version for them, and changes the nodes in place: an alert about outdated nodes would not end.
#[test]
fn labels_in_place_make_no_node_outdated() {
    let outdated = |update: Option<NodegroupUpdate>| {
        let scenario = Scenario::converged("", "").with(|s| {
            let pin = TemplatePin { id: "lt-eks".into(), version: "2".into() };
            s.state.nodegroups[0].scaling_groups[0].template = Some(pin);
            s.state.update = update;
        });
        scenario.plan().status_update.fields["nodes"]["outdated"].clone()
    };
    assert_eq!(outdated(None), 0);
    assert_eq!(outdated(Some(update(UpdateStatus::InProgress, "ConfigUpdate"))), 0);
    assert_eq!(outdated(Some(update(UpdateStatus::InProgress, "VersionUpdate"))), 2);
}

/// EKS prepares an update for minutes before it changes the scaling group. No one would expect old nodes any more.
#[test]
fn update_that_has_just_begun_has_replaced_no_node() {
    let newer = spec_text("releaseVersion: 1.33.0-20250601");
    let begun = Scenario::converged("", &newer).nodegroup(|n| n.status = NodegroupStatus::Updating).with(|s| {
        s.status.update_id = Some("update-1".into());
        s.state.update = Some(update(UpdateStatus::InProgress, "VersionUpdate"));
    });
    let plan = begun.plan();
    let Outcome::Progressing { message, .. } = &plan.outcome else { panic!("{:?}", plan.outcome) };
    assert!(message.contains("0 of 2 nodes run the new version"), "{message}");
    assert_eq!(plan.status_update.fields["nodes"]["updated"], 0, "the message and the counts agree");
}

/// New nodes would not join, long after the change was accepted.
#[test]
fn labels_that_no_kubelet_accepts_are_refused() {
    let message = |label: &str| {
        let errors = parsed(&spec_text(&format!("nodeLabels: {{{label}: x}}"))).err()?;
        Some(errors.iter().map(ToString::to_string).collect::<String>())
    };
    for label in ["node-role.kubernetes.io/web", "eks.amazonaws.com/capacity", "'a b'"] {
        let message = message(label).unwrap_or_else(|| panic!("{label} is accepted"));
        assert!(message.contains("nodeLabels"), "{message}");
    }
    for label in ["team", "example.com/team", "node.kubernetes.io/pool"] {
        assert_eq!(message(label), None, "{label}");
    }
}

/// EKS would continue to replace nodes that do not recover, and many nodes at once, although no field asks for it any more.
#[test]
fn fields_that_change_in_place_and_leave_the_spec_go_back_to_the_defaults_of_eks() {
    let set =
        "strategy: {managed: {maxUnavailable: 2}}\neks-managed: {configuration: {nodeRepairConfig: {enabled: true}}}";
    let as_set = |n: &mut Nodegroup| (n.max_unavailable, n.repair) = (Some(MaxUnavailable::Count(2)), true);
    let as_created = |n: &mut Nodegroup| (n.max_unavailable, n.repair) = (Some(MaxUnavailable::Count(1)), false);
    let change = |scenario: &Scenario| {
        let update = scenario.plan().steps.into_iter().find_map(|planned| match planned.step {
            Step::Nodegroup(NodegroupStep::UpdateNodegroup { change, .. }) => Some(change),
            _ => None,
        });
        update.map(|change| (change.max_unavailable, change.repair))
    };
    let setting = Scenario::converged("", set).nodegroup(as_created);
    assert_eq!(change(&setting), Some((Some(MaxUnavailable::Count(2)), Some(true))));
    let dropped = setting.with_records().nodegroup(as_set).with(|s| s.resolved = resolve_spec(""));
    assert_eq!(change(&dropped), Some((Some(MaxUnavailable::Count(1)), Some(false))));
    assert_eq!(change(&dropped.with_records()), change(&dropped), "also if the process ends right after the record");
    let restored = dropped.nodegroup(as_created).with_records();
    assert_eq!(restored.step_names(), [""; 0]);
    let of_others = restored.nodegroup(as_set);
    assert_eq!(change(&of_others), None, "what others set stays");
}

/// The strategy cannot be used, so that its maxUnavailable is unknown.
#[test]
fn max_unavailable_stays_while_the_strategy_cannot_be_used() {
    let mut broken = broken_scenario("strategy: {rollingUpdate: {drainTimeout: 5 parsecs}}", None);
    broken.status.managed.get_or_insert_default().max_unavailable = true;
    let broken = broken.nodegroup(|n| n.max_unavailable = Some(MaxUnavailable::Count(2)));
    assert!(!broken.step_names().contains(&"UpdateNodegroup"), "{:?}", broken.step_names());
}

/// A group that is created without the field gets what EKS chooses, and the nodes would stay Spot Instances forever. What
/// equals EKS's choice is not replaced.
#[test]
fn field_that_the_spec_drops_goes_back_to_what_eks_chooses() {
    let replaced = |before: &str, after: &str| {
        let created = Scenario::converged(&spec_text(before), &spec_text(after)).nodegroup(|n| {
            n.disk_size = resolve_spec(&spec_text(before)).desired.immutable.disk_size.or(Some(20));
        });
        let creation = created.plan().steps.into_iter().find(|planned| planned.step.name() == "CreateNodegroup");
        creation.map(|planned| planned.reasons.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let reasons = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    assert_eq!(replaced("capacityType: SPOT", ""), reasons(&["capacityType: SPOT -> ON_DEMAND"]));
    assert_eq!(replaced("volSize: 40", ""), reasons(&["volSize: 40 -> 20"]));
    assert_eq!(replaced("", "instanceType: ''"), reasons(&["instanceTypes: m5.large -> t3.medium"]));
    assert_eq!(
        replaced("amiType: BOTTLEROCKET_x86_64, volSize: 30, capacityType: SPOT", "volSize: 30"),
        reasons(&["capacityType: SPOT -> ON_DEMAND", "amiType: BOTTLEROCKET_x86_64 -> AL2023_x86_64_STANDARD"])
    );
    assert_eq!(replaced("volSize: 50, amiType: WINDOWS_CORE_2022_x86_64", "amiType: WINDOWS_CORE_2022_x86_64"), None);
    assert_eq!(replaced("volSize: 20, capacityType: ON_DEMAND, amiType: AL2023_ARM_64_STANDARD", ""), None);
}

/// EKS's default image is for x86 without accelerators. The pods of drained GPU nodes would find no GPU on the new ones.
#[test]
fn image_for_arm_or_accelerators_is_not_lost_with_the_field() {
    for image in ["AL2023_ARM_64_STANDARD", "AL2023_x86_64_NVIDIA", "AL2023_x86_64_NEURON", "BOTTLEROCKET_ARM_64"] {
        let before = format!("volSize: 20, amiType: {image}");
        let scenario = |after: &str| Scenario::converged(&spec_text(&before), &spec_text(after));
        let blocked = scenario("volSize: 30").plan();
        let Outcome::Blocked { reason, message, .. } = &blocked.outcome else {
            panic!("{image}: {:?}", blocked.outcome)
        };
        assert_eq!(*reason, StalledReason::InvalidSpec);
        assert!(message.contains("amiType is omitted") && message.contains(image), "{message}");
        assert!(!scenario("volSize: 30").step_names().contains(&"CreateNodegroup"));
        let larger = spec_text("volSize: 30").replace("eks-managed: {", "eks-managed: {maxSize: 9, ");
        let larger = Scenario::converged(&spec_text(&before), &larger).step_names();
        assert!(larger.contains(&"UpdateNodegroup"), "the node group that serves follows its spec: {larger:?}");
        for after in [format!("volSize: 30, amiType: {image}"), "volSize: 30, amiType: AL2023_x86_64_STANDARD".into()] {
            assert!(scenario(&after).step_names().contains(&"CreateNodegroup"), "{image}: {after}");
        }
    }
}

/// The name of a node group says that EKS chose the value, or it is another controller's.
#[test]
fn field_that_the_spec_never_had_stays_as_it_is() {
    let spot = |name: Option<&str>| {
        Scenario::converged("", "").nodegroup(|n| {
            n.capacity_type = "SPOT".into();
            n.disk_size = Some(40);
            n.name.nodegroup = name.map_or(n.name.nodegroup.clone(), str::to_owned);
        })
    };
    assert!(!spot(None).step_names().contains(&"CreateNodegroup"), "{:?}", spot(None).step_names());
    assert!(!spot(Some("web")).step_names().contains(&"CreateNodegroup"), "{:?}", spot(Some("web")).step_names());
}
