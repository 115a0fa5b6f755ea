//! A field that cannot be used stops only what needs it, for every provisioner.

use instance_manager::auth::JoinAuth;
use instance_manager::aws::nodegroup::NodegroupSizes;
use instance_manager::provisioner::eks::resolve::{RecordedRole, resolve_with_errors};
use instance_manager::provisioner::rejected_fields::{RejectedFields, ValueSources};
use instance_manager::provisioner::{fargate, nodegroup};

use super::*;

/// What the group has before.
const BEFORE: &str = "eks: {configuration: {tags: [{key: team, value: a}], suspendProcesses: [HealthCheck], metricsCollection: [GroupMinSize], lifecycleHooks: [{name: drain, lifecycle: terminate}]}}";
/// What changes together with the broken field.
const CHANGES: &str = "eks: {minSize: 3, maxSize: 9, configuration: {tags: [{key: cost, value: new}], suspendProcesses: [HealthCheck, AZRebalance], metricsCollection: [GroupMinSize, GroupMaxSize], lifecycleHooks: [{name: drain, lifecycle: terminate, heartbeatTimeout: 60}]}}";

/// The errors of a merged spec and of its references, as the provisioner finds them.
fn broken_spec(
    parts: &[&str],
    references: &References,
    join_auth: JoinAuth,
    status: &InstanceGroupStatus,
) -> ResolvedGroup {
    let mut spec = json!({"provisioner": "eks", "eks": {"minSize": 2, "maxSize": 4, "configuration": {
        "clusterName": "demo", "image": "ami-00000001", "instanceType": "m5.large",
        "subnets": ["subnet-1"], "securityGroups": ["sg-1"],
    }}});
    parts.iter().for_each(|part| deep_merge(&mut spec, &serde_yaml::from_str(part).expect("YAML")));
    let (spec, violations) = decode_spec_with_errors(&spec).expect("types are right");
    let id = common::group_id(3, timestamp(LONG_AGO));
    let (desired, errors) = desired::parse_with_errors(&id, &common::annotations(&[]), &spec);
    let desired = desired::DesiredSpec { join_auth, ..desired };
    let broken = RejectedFields::classify(
        common::all_errors(violations, errors),
        &ValueSources::default(),
        unchanged_parts::dependent_parts,
    )
    .expect("the group continues");
    let recorded = RecordedRole { arn: status.nodes_instance_role_arn.clone(), id: None };
    resolve_with_errors(desired, broken, references, NameForm::Plain, &recorded).expect("a resolved group")
}

/// The group `before`, whose spec is broken now.
fn scenario(parts: &[&str], references: &References, join_auth: JoinAuth) -> Scenario {
    attributes::converged_after(BEFORE).with(|s| {
        s.status.nodes_instance_role_arn = Some(s.resolved.role_arn.clone());
        s.status.managed.as_mut().expect("a record").tags = s.resolved.tags.iter().map(|t| t.key.clone()).collect();
        s.resolved = broken_spec(parts, references, join_auth, &s.status);
        unchanged_parts::keep(&mut s.resolved, &s.state, &s.status);
    })
}

/// A tenant breaks a launch field after replacements have failed, and corrects it. Without the record, the rotation would
/// terminate one more healthy node for a version whose nodes do not join.
#[test]
fn record_of_failed_replacements_outlasts_a_broken_launch_field() {
    let record = |parts: &[&str]| {
        let scenario = scenario(parts, &references(), JoinAuth::Both).with(|s| {
            let failed = json!({"template": "hash-2", "instances": ["i-9"], "last": LONG_AGO});
            s.status.failed_replacements = serde_json::from_value(failed).expect("a record");
        });
        scenario.plan().status_update.fields.get("failedReplacements").cloned()
    };
    assert_eq!(record(&[BEFORE]), Some(Value::Null), "the spec has changed");
    assert_eq!(record(&[BEFORE, "eks: {configuration: {image: ami-x}}"]), None, "it stays");
}

fn step_names(plan: &Plan) -> BTreeSet<&'static str> {
    plan.steps.iter().map(|p| p.step.name()).filter(|name| *name != "UpdateStatus").collect()
}

/// One revision of the ConfigMap with a broken default must not freeze what does not need it. What needs it stays: with
/// nothing else to change, the plan has no step at all.
#[test]
fn broken_field_stops_only_what_needs_it() {
    let all = ["UpdateGroup", "PutTags", "DeleteTags", "SuspendProcesses", "EnableMetrics", "PutHook"];
    let configuration = |text: &str| format!("eks: {{configuration: {{{text}}}}}");
    let mut references = references();
    references.instance_type = Lookup::Absent;
    let cases = [
        ("image: ami-x", "image", vec![]),
        ("image: latest", "instanceType", vec![]),
        ("instanceType: large", "instanceType", vec![]),
        ("securityGroups: [gone]", "securityGroups", vec![]),
        ("volumes: [{name: '', type: gp3, size: 1}]", "volumes[0].name", vec![]),
        (
            "mixedInstancesPolicy: {spotRatio: many, instancePool: SubFamilyFlexible}",
            "mixedInstancesPolicy.spotRatio",
            vec![],
        ),
        ("taints: [{key: a, effect: Never}]", "taints[0].effect", vec![]),
        ("subnets: [gone]", "subnets", vec![]),
        ("roleName: other", "instanceProfileName", vec![]),
        ("tags: [{key: '', value: x}]", "tags[0].key", vec!["PutTags", "DeleteTags"]),
        ("suspendProcesses: [Nothing]", "suspendProcesses", vec!["SuspendProcesses"]),
        ("metricsCollection: [Nothing]", "metricsCollection", vec!["EnableMetrics"]),
        ("lifecycleHooks: [{name: drain, lifecycle: later}]", "lifecycleHooks[0].lifecycle", vec!["PutHook"]),
    ];
    let cases =
        cases.map(|(text, field, without)| (configuration(text), format!("spec.eks.configuration.{field}"), without));
    let others = [
        ("eks: {minSize: 9, maxSize: 3}", "spec.eks.minSize", vec!["UpdateGroup"]),
        ("eks: {warmPool: {minSize: -1}}", "spec.eks.warmPool.minSize", vec![]),
        (
            "strategy: {type: rollingUpdate, rollingUpdate: {drainTimeout: soon}}",
            "spec.strategy.rollingUpdate.drainTimeout",
            vec![],
        ),
    ];
    let others = others.map(|(text, path, without)| (text.to_owned(), path.to_owned(), without));
    for (text, path, without) in cases.into_iter().chain(others) {
        let changed = scenario(&[BEFORE, CHANGES, &text], &references, JoinAuth::Auto).plan();
        let expected: BTreeSet<_> = all.into_iter().filter(|name| !without.contains(name)).collect();
        assert_eq!(step_names(&changed), expected, "{path}: {:#?}", changed.steps);
        assert_blocked(&scenario(&[BEFORE, &text], &references, JoinAuth::Auto).plan(), &path);
    }
}

/// An admin's broken default, or a process that someone suspended, keeps replacements from being launched. A tenant who lowers
/// `maxSize` wants none, and would pay for the nodes until others have repaired that.
#[test]
fn group_that_cannot_launch_nodes_shrinks() {
    let steps = |change: &str, suspended: &[&str]| {
        let smaller = scenario(&[BEFORE, "eks: {minSize: 1, maxSize: 1}", change], &references(), JoinAuth::Auto);
        let smaller = smaller.with_scaling_group(|group| {
            (group.min, group.max) = (1, 2);
            group.suspended_processes.extend(suspended.iter().map(|process| (*process).to_owned()));
        });
        step_names(&smaller.plan())
    };
    let image = "eks: {configuration: {image: ami-x}}";
    let shrinks: [(&str, &[&str]); 4] = [("{}", &[]), (image, &[]), ("{}", &["Launch"]), (image, &["Launch"])];
    for (change, suspended) in shrinks {
        assert_eq!(steps(change, suspended), ["CordonNode"].into(), "{change} {suspended:?}");
    }
    let strategy = "strategy: {type: rollingUpdate, rollingUpdate: {drainTimeout: soon}}";
    let stays: [(&str, &[&str]); 2] = [("{}", &["Terminate"]), (strategy, &[])];
    for (change, suspended) in stays {
        assert_eq!(steps(change, suspended), BTreeSet::new(), "{change} {suspended:?}");
    }
}

/// The plan of a group that only keeps what it has, because of a field.
fn assert_blocked(plan: &Plan, path: &str) {
    assert!(plan.steps.is_empty(), "{path}: {:#?}", plan.steps);
    let Outcome::Blocked { message, is_deleting: false, .. } = &plan.outcome else {
        panic!("{path}: {:?}", plan.outcome)
    };
    assert!(message.contains(path) && message.contains("the group keeps"), "{path}: {message}");
    let condition = plan.condition_updates.iter().find(|update| update.condition_type == "FieldsRejected");
    assert!(condition.is_some_and(|update| update.status && update.message.contains(path)), "{path}");
}

/// The spec may name only the role. A user cannot find an error at a field that the spec does not contain.
#[test]
fn missing_profile_is_reported_at_the_field_that_names_it() {
    let gone = References { existing_profile: None, ..references() };
    for (text, path) in
        [("roleName: gone", "roleName"), ("roleName: given, instanceProfileName: gone", "instanceProfileName")]
    {
        let plan = scenario(&[&format!("eks: {{configuration: {{{text}}}}}")], &gone, JoinAuth::Auto).plan();
        let condition = plan.condition_updates.iter().find(|update| update.condition_type == "FieldsRejected");
        let message = condition.map(|update| update.message.clone()).unwrap_or_default();
        assert!(message.contains(&format!("spec.eks.configuration.{path} `gone`")), "{text}: {message}");
    }
}

/// `--join-auth` and the cluster itself may be at fault as well. The entries of the role stay as they are.
#[test]
fn unsupported_join_mode_and_missing_endpoint_stop_only_what_needs_them() {
    let path = "spec.eks.configuration.clusterName";
    let unsupported = |parts: &[&str]| scenario(parts, &references(), JoinAuth::AccessEntries).plan();
    assert!(step_names(&unsupported(&[BEFORE, CHANGES])).contains("UpdateGroup"));
    assert_blocked(&unsupported(&[BEFORE]), path);
    let mut without_endpoint = references();
    without_endpoint.cluster.as_mut().expect("a cluster").endpoint = String::new();
    assert!(
        step_names(&scenario(&[BEFORE, CHANGES], &without_endpoint, JoinAuth::Auto).plan()).contains("UpdateGroup")
    );
    assert_blocked(&scenario(&[BEFORE], &without_endpoint, JoinAuth::Auto).plan(), path);
    // Nothing can be derived without the cluster.
    assert_eq!(unchanged_parts::dependent_parts(path), None);
}

/// Nodes rotate to a new version while fields are broken that say nothing about nodes.
#[test]
fn rotation_continues_beside_rejected_fields_that_do_not_concern_nodes() {
    for text in ["eks: {configuration: {subnets: [gone]}}", "eks: {minSize: 9, maxSize: 3}"] {
        let plan = scenario(&[BEFORE, text], &references(), JoinAuth::Auto)
            .with_scaling_group(|g| g.instances[0].template.as_mut().expect("a version").version = "0".into())
            .plan();
        assert!(step_names(&plan).contains("CordonNode"), "{text}: {:?} {:?}", plan.steps, plan.outcome);
        assert!(plan.condition_updates.iter().any(|update| update.condition_type == "FieldsRejected"), "{text}");
    }
    let text = "strategy: {type: rollingUpdate, rollingUpdate: {maxUnavailable: some}}";
    let plan = scenario(&[BEFORE, text], &references(), JoinAuth::Auto)
        .with_scaling_group(|g| g.instances[0].template.as_mut().expect("a version").version = "0".into())
        .plan();
    assert!(plan.steps.is_empty(), "nothing says how nodes may be replaced: {:?}", plan.steps);
}

/// A group whose own increase the quota rejects keeps its sizes, replaces its nodes, and may still shrink.
#[test]
fn rejected_increase_does_not_stop_the_rotation() {
    let refused = |text: &str| {
        attributes::converged_after(BEFORE).with(|s| {
            s.status.nodes_instance_role_arn = Some(s.resolved.role_arn.clone());
            s.resolved = broken_spec(&[BEFORE, text], &references(), JoinAuth::Auto, &s.status);
            let quota = SpecError::invalid("spec.eks.maxSize", "99 nodes", "exceeds the limit of 9", "reduce it");
            s.resolved.broken.push(&[Part::Growth], quota.with_reason(StalledReason::PolicyViolation));
            unchanged_parts::keep(&mut s.resolved, &s.state, &s.status);
        })
    };
    let grown = "eks: {minSize: 3, maxSize: 99, warmPool: {minSize: 5}}\nstrategy: {type: rollingUpdate, rollingUpdate: {maxSurge: 2}}";
    assert_blocked(&refused(grown).plan(), "spec.eks.maxSize");
    let rotating = refused(grown)
        .with_scaling_group(|g| g.instances[0].template.as_mut().expect("a version").version = "0".into())
        .plan();
    assert_eq!(step_names(&rotating), ["CordonNode"].into(), "without a surge: {:?}", rotating.outcome);
    assert!(
        rotating
            .condition_updates
            .iter()
            .any(|u| u.condition_type == "FieldsRejected" && u.reason == "PolicyViolation")
    );
    // The warm pool asks for too much; the group itself gets smaller.
    let smaller = refused("eks: {minSize: 1, maxSize: 3, warmPool: {minSize: 50}}").plan();
    assert_eq!(step_names(&smaller), ["UpdateGroup"].into());
}

/// The tags that describe nodes to the autoscaler follow the version that nodes launch from.
#[test]
fn autoscaler_tags_stay_while_labels_cannot_be_used() {
    let key = "k8s.io/cluster-autoscaler/node-template/label/team";
    let kept = attributes::converged_after(BEFORE).with(|s| {
        let group = s.state.scaling_group.as_mut().expect("a group");
        group.tags.push(Tag { key: key.into(), value: "a".into() });
        s.status.managed.as_mut().expect("a record").tags.push(key.into());
        s.status.nodes_instance_role_arn = Some(s.resolved.role_arn.clone());
        s.resolved =
            broken_spec(&[BEFORE, "eks: {configuration: {image: ami-x}}"], &references(), JoinAuth::Auto, &s.status);
        unchanged_parts::keep(&mut s.resolved, &s.state, &s.status);
    });
    assert!(step_names(&kept.plan()).is_empty(), "{:?}", kept.plan().steps);
}

/// The current role keeps its entries and its policies, whether the controller created it or not.
#[test]
fn current_role_stays_while_the_new_one_cannot_be_used() {
    let own = scenario(&[BEFORE, "eks: {configuration: {roleName: other}}"], &references(), JoinAuth::Auto);
    assert!(own.resolved.own_role && own.resolved.role_arn == own.resolved.derived_role_arn);
    let given = attributes::converged_after("eks: {configuration: {roleName: given}}").with(|s| {
        s.status.nodes_instance_role_arn = Some("arn:aws:iam::1:role/given".into());
        let text = "eks: {configuration: {roleName: gone}}";
        s.resolved =
            broken_spec(&[text], &References { existing_profile: None, ..references() }, JoinAuth::Auto, &s.status);
    });
    assert_eq!((given.resolved.role_arn.as_str(), given.resolved.own_role), ("arn:aws:iam::1:role/given", false));
    assert!(given.resolved.broken.contains(Part::Role) && given.resolved.broken.contains(Part::Launch));
    // Only the status names this role, so it gets no entry that it does not have.
    let mut without_entry = given;
    without_entry.state.join.auth_entry = AuthEntryState::Absent;
    without_entry.state.join.access_entry = AccessEntryState::Absent;
    assert!(step_names(&without_entry.plan()).is_empty(), "{:?}", without_entry.plan().steps);
}

/// An InstanceGroup that is created again finds `Launch` suspended by the deletion of the earlier one.
#[test]
fn launches_are_resumed_beside_every_broken_field() {
    let suspended = |s: &mut Scenario| {
        let group = s.state.scaling_group.as_mut().expect("a scaling group");
        group.suspended_processes.push("Launch".into());
        group.tags.push(Tag { key: "instancegroups.keikoproj.io/SuspendedByDeletion".into(), value: "Launch".into() });
    };
    for field in ["image: ami-x", "subnets: [gone]", "suspendProcesses: [Nothing]", "roleName: other"] {
        let text = format!("eks: {{configuration: {{{field}}}}}");
        for is_recreated in [false, true] {
            let mut found = scenario(&[BEFORE, &text], &references(), JoinAuth::Auto).with(suspended);
            if is_recreated {
                found.status = InstanceGroupStatus::default();
            }
            let plan = found.plan();
            let resumes = |p: &instance_manager::plan::PlannedStep| matches!(&p.step, Step::Eks(EksStep::ResumeProcesses { processes, .. }) if processes.contains(&"Launch".to_owned()));
            assert!(plan.steps.iter().any(resumes), "{field} {is_recreated}: {:?}", plan.steps);
        }
    }
}

fn managed(text: &str, broken: Option<(&'static [Part], &str)>) -> super::nodegroup::Scenario {
    super::nodegroup::broken_scenario(text, broken)
}

/// EKS cannot change a role, a subnet or an instance type in place, so a broken one would replace the node group.
#[test]
fn managed_node_group_keeps_its_current_settings_beside_a_rejected_field() {
    let changes = "eks-managed: {minSize: 3, maxSize: 9, configuration: {nodeLabels: {team: new}, tags: [{key: cost, value: new}]";
    for (text, path, missing) in [
        ("nodeRole: role", "nodeRole", ""),
        ("instanceTypes: [large]", "instanceTypes", ""),
        ("subnets: [private]", "subnets", ""),
        ("amiType: CUSTOM", "amiType", ""),
        ("taints: [{key: a, effect: Never}]", "taints[0].effect", "set_labels"),
    ] {
        let path = format!("spec.eks-managed.configuration.{path}");
        let plan = managed(&format!("{changes}, {text}}}}}"), None).plan();
        let names = step_names(&plan);
        assert!(names.contains("TagNodegroup"), "{path}: {:?}", plan.steps);
        let change = plan.steps.iter().find_map(|p| match &p.step {
            Step::Nodegroup(instance_manager::plan::NodegroupStep::UpdateNodegroup { change, .. }) => Some(change),
            _ => None,
        });
        let change = change.unwrap_or_else(|| panic!("{path}: {:?}", plan.steps));
        assert_eq!(change.sizes, Some(NodegroupSizes { min: 3, max: 9, desired: Some(3) }), "{path}");
        assert_eq!(change.set_labels.is_empty(), !missing.is_empty(), "{path}");
        assert_eq!(names.len(), 2, "{path}: {:?}", plan.steps);
        assert_blocked(&managed(&format!("eks-managed: {{configuration: {{{text}}}}}"), None).plan(), &path);
    }
    for (text, path) in [
        ("eks-managed: {minSize: 9, maxSize: 3}", "spec.eks-managed.minSize"),
        ("strategy: {type: managed, managed: {maxUnavailable: many}}", "spec.strategy.managed.maxUnavailable"),
        ("eks-managed: {configuration: {tags: [{key: '', value: x}]}}", "spec.eks-managed.configuration.tags[0].key"),
    ] {
        assert_blocked(&managed(text, None).plan(), path);
    }
    assert_eq!(nodegroup::unchanged_parts::dependent_parts("spec.eks-managed.configuration.clusterName"), None);
}

#[test]
fn managed_node_group_keeps_its_sizes_while_the_quota_rejects_more() {
    let text = "eks-managed: {minSize: 3, maxSize: 99}";
    assert_blocked(
        &managed(text, Some((&[Part::Growth], "spec.eks-managed.maxSize"))).plan(),
        "spec.eks-managed.maxSize",
    );
}

/// A profile cannot be changed, so a broken field would replace it, and its pods with it.
#[test]
fn fargate_profile_keeps_its_current_settings_beside_a_rejected_field() {
    for (text, path) in [
        ("podExecutionRoleArn: role", "podExecutionRoleArn"),
        ("selectors: [{namespace: 'Team!'}]", "selectors[0].namespace"),
        ("subnets: [gone]", "subnets"),
    ] {
        let path = format!("spec.eks-fargate.{path}");
        let spec = |text: &str| format!("eks-fargate: {{{text}}}");
        assert_blocked(&super::fargate::broken_plan(&spec(text)), &path);
        let changed = super::fargate::broken_plan(&spec(&format!("{text}, tags: [{{owner: other}}]")));
        assert_eq!(step_names(&changed), ["TagFargateProfile"].into(), "{path}: {:?}", changed.steps);
    }
    assert_blocked(&super::fargate::broken_plan("eks-fargate: {tags: [{'': x}]}"), "spec.eks-fargate.tags[0]");
    let plan = super::fargate::broken_plan("strategy: {type: rollingUpdate}");
    let Outcome::Blocked { message, .. } = &plan.outcome else { panic!("{:?}", plan.outcome) };
    assert!(message.contains("spec.strategy.type") && plan.steps.is_empty(), "{message}");
    assert_eq!(fargate::unchanged_parts::dependent_parts("spec.eks-fargate.clusterName"), None);
}
