//! Plans from desired and observed state, compared with golden files.
//! `UPDATE_GOLDEN=1 cargo test --test it` regenerates them. A released hash in them must never change.

use crate::aws::samples;
use crate::common;

use instance_manager::plan::EksStep;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use instance_manager::api::spec_error::SpecError;
use instance_manager::api::{
    AdoptedResources, GroupId, InstanceGroupStatus, ManagedAttributes, NodeCounts, SpotRecommendation, decode_spec,
    decode_spec_with_errors,
};
use instance_manager::auth::access_entries::{AccessEntryState, ObservedEntries};
use instance_manager::auth::aws_auth::AuthEntryState;
use instance_manager::aws::{
    Instance, InstanceProfile, InstanceState, InstanceType, InstanceTypeCatalog, InstanceTypeOverride, LaunchTemplate,
    LifecycleHook, MixedPolicy, NetworkObject, Role, ScalingGroup, Tag, TemplatePin,
};
use instance_manager::plan::{IamStep, Outcome, PersistentFailure, Plan, StalledReason, Step, Write};
use instance_manager::provisioner::eks::input::PlanInput;
use instance_manager::provisioner::eks::observed::{ObservedState, ObservedVersion};
use instance_manager::provisioner::eks::plan::plan;
use instance_manager::provisioner::eks::references::References;
use instance_manager::provisioner::eks::resolve::{ResolvedGroup, resolve};
use instance_manager::provisioner::eks::{delete, desired, unchanged_parts};
use instance_manager::provisioner::name_form::NameForm;
use instance_manager::provisioner::rejected_fields::Part;
use instance_manager::rotation::{ClusterHealth, DisruptionRecord, Drains, NodeInstance, NodeView};
use instance_manager::settings::Timing;
use instance_manager::util::lookup::Lookup;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The names of a plan's steps, in order.
fn step_names(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(|planned| planned.step.name()).collect()
}

const NOW: &str = "2026-01-02T00:00:00Z";
const LONG_AGO: &str = "2026-01-01T00:00:00Z";

fn timestamp(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// A minimal valid spec, merged with `extra`.
fn resolved(extra: &str, annotations: &[(&str, &str)]) -> ResolvedGroup {
    let base = "provisioner: eks\neks: {minSize: 2, maxSize: 4, configuration: {clusterName: demo, image: ami-00000001, instanceType: m5.large, subnets: [subnet-1], securityGroups: [sg-1]}}";
    let mut spec: Value = serde_yaml::from_str(base).expect("YAML");
    deep_merge(&mut spec, &serde_yaml::from_str(extra).expect("YAML"));
    let id = common::group_id(3, timestamp(LONG_AGO));
    let annotations = common::annotations(annotations);
    let spec = decode_spec(&spec).expect("a spec");
    resolve(desired::parse(&id, &annotations, &spec).expect("a group"), &references(), NameForm::Plain)
        .expect("a resolved group")
}

fn deep_merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.iter().for_each(|(key, value)| deep_merge(into.entry(key).or_insert(Value::Null), value));
        }
        (_, Value::Null) => {}
        (into, from) => *into = from.clone(),
    }
}

fn references() -> References {
    let network = |id: &str| vec![samples::network_object(id)];
    let role = Role {
        id: "AROA-given".into(),
        name: "given".into(),
        arn: "arn:aws:iam::1:role/given".into(),
        tags: vec![],
        ..Role::default()
    };
    References {
        cluster: Some(samples::cluster("demo")),
        subnets: network("subnet-1"),
        security_groups: network("sg-1"),
        in_other_vpcs: vec![],
        standard_image: None,
        image: None,
        instance_type: Lookup::NotQueried,
        existing_profile: Some(InstanceProfile {
            id: "AIPA-given".into(),
            name: "given".into(),
            arn: "arn:aws:iam::1:instance-profile/given".into(),
            created: None,
            role: Some(role),
            tags: vec![],
        }),
        catalog: Some(instance_type_catalog().into()),
        ..References::default()
    }
}

fn instance_type_catalog() -> InstanceTypeCatalog {
    let of = |name: &str| InstanceType {
        name: name.into(),
        architectures: vec!["x86_64".into()],
        vcpus: Some(2),
        memory_mib: Some(8192),
        ..InstanceType::default()
    };
    let names = ["m5.large", "m5a.large", "m5d.large", "m5n.large", "m5zn.large", "c5.large"];
    let offers = names.iter().filter(|n| **n != "m5zn.large").map(|n| ((*n).into(), "us-west-2a".into()));
    InstanceTypeCatalog::new(&names.map(of), offers)
}

/// The message of a plan that an ownership conflict blocks.
fn blocked(plan: &Plan) -> &str {
    match &plan.outcome {
        Outcome::Blocked { reason: StalledReason::OwnershipConflict, message, .. } => message,
        other => panic!("the plan is not blocked: {other:?}"),
    }
}

/// A group with its observed state and its status.
#[derive(Clone, Debug)]
struct Scenario {
    resolved: ResolvedGroup,
    state: ObservedState,
    status: InstanceGroupStatus,
    lock: Option<&'static str>,
    persistent_failure: PersistentFailure,
}

/// The entries of a role that has none in aws-auth. The access entry is not queried.
fn no_join_entries() -> ObservedEntries {
    ObservedEntries {
        auth_entry: AuthEntryState::Absent,
        owns_auth_entry: false,
        is_auth_entry_modified: false,
        allows_windows: false,
        access_entry: AccessEntryState::NotQueried,
        is_shared: false,
        peers_have_access_entry: true,
        role_id: None,
        role_created_at: None,
    }
}

/// The record of a drain that the group `team/web` started for this template version.
fn disruption_record(template_version: &str) -> DisruptionRecord {
    DisruptionRecord {
        group: "uid-1".into(),
        template_version: template_version.into(),
        since: timestamp(LONG_AGO),
        cordoned_before: false,
        scale_down_disabled: false,
        terminated_at: None,
    }
}

/// Adds the version 2, which has the desired content.
fn add_desired_version(s: &mut Scenario) {
    let version = ObservedVersion::new(Some(s.resolved.fingerprint.clone()), Some(s.resolved.template_data.clone()));
    s.state.versions.insert(2, version);
    s.state.template.as_mut().expect("a template").latest_version = 2;
}

/// A group without any resources.
fn new_group(resolved: ResolvedGroup) -> Scenario {
    let state = ObservedState {
        scaling_group: None,
        template: None,
        rejected_pin: None,
        orphaned_template: None,
        template_users: BTreeMap::new(),
        versions: BTreeMap::new(),
        launch_configuration: None,
        warm_instances: None,
        instance_profile: None,
        role: None,
        attached_policies: vec![],
        lifecycle_hooks: None,
        unrecorded_policies: Vec::new(),
        unseen_names: BTreeSet::new(),
        instance_refresh_active: false,
        activities: vec![],
        failed_launch: None,
        failed_replacements: vec![],
        lost_instances: vec![],
        is_cause_of_loss_expected: false,
        shortage_duration: SignedDuration::ZERO,
        warm_pool_wait: SignedDuration::ZERO,
        tag_retry_pending: false,
        launch_times: BTreeMap::new(),
        instance_subnets: BTreeMap::new(),
        join: no_join_entries(),
        previous_roles: Default::default(),
        unused_role: None,
        nodes: BTreeMap::new(),
        lost_nodes: BTreeMap::new(),
        cluster_health: ClusterHealth { total: 10, unready: 0 },
        drains: Drains::new(),
        strategy_state: None,
    };
    Scenario {
        resolved,
        state,
        status: InstanceGroupStatus::default(),
        lock: None,
        persistent_failure: PersistentFailure::None,
    }
}

/// A converged group with two Ready nodes.
fn converged_with(resolved: ResolvedGroup) -> Scenario {
    let mut scenario = new_group(resolved);
    let Scenario { resolved: r, state, status, .. } = &mut scenario;
    let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
    let instance = |id: &str| Instance {
        template: Some(pin.clone()),
        in_service_since: Some(timestamp(LONG_AGO)),
        ..samples::instance(id)
    };
    state.scaling_group = Some(ScalingGroup {
        min: 2,
        max: 4,
        desired: 2,
        subnets: r.subnets.clone(),
        template: Some(pin.clone()),
        mixed: r.desired.mixed_instances.as_ref().map(|m| MixedPolicy {
            weighted: m.overrides.iter().any(|o| o.weight != 1),
            distribution: m.distribution.clone(),
            overrides: (m.overrides.iter().cloned())
                .chain(r.type_pool.iter().flat_map(|p| &p.offered_now).map(|name| type_override(name)))
                .collect(),
        }),
        tags: r.tags.clone(),
        instances: vec![instance("i-1"), instance("i-2")],
        ..samples::scaling_group(&r.names.scaling_group)
    });
    state.template = Some(LaunchTemplate {
        id: "lt-1".into(),
        name: r.names.template.clone(),
        default_version: 1,
        latest_version: 1,
        tags: r.ownership_tags.clone(),
    });
    state.versions = [(1, ObservedVersion::new(Some(r.fingerprint.clone()), Some(r.template_data.clone())))].into();
    let role = Role {
        id: "AROA-1".into(),
        name: r.names.role.clone(),
        arn: r.role_arn.clone(),
        tags: vec![],
        ..Role::default()
    };
    state.instance_profile = Some(InstanceProfile {
        id: "AIPA-1".into(),
        name: r.names.role.clone(),
        arn: r.template_data.profile_arn.clone(),
        created: Some(timestamp(LONG_AGO)),
        role: Some(role),
        tags: vec![],
    });
    state.attached_policies = r.managed_policies.clone();
    (state.join.auth_entry, state.join.owns_auth_entry) = (AuthEntryState::Present, true);
    state.nodes = ["i-1", "i-2"].map(|id| (id.to_owned(), node(id))).into();
    let keys: Vec<_> = r.tags.iter().map(|t| t.key.clone()).collect();
    let (mut tag_keys, mut policies) = (keys, r.managed_policies.clone());
    tag_keys.sort();
    policies.sort();
    *status = serde_json::from_value(json!({
        "currentState": "Ready",
        "activeScalingGroupName": r.names.scaling_group,
        "activeLaunchTemplateName": r.names.template,
        "template": {"id": "lt-1", "version": "1", "hash": r.fingerprint.hash, "lastReadyVersion": "1"},
        "managed": {"tags": tag_keys, "policies": policies, "authEntries": [r.role_arn]},
    }))
    .expect("a status");
    scenario
}

fn node(instance: &str) -> NodeView {
    NodeView {
        name: format!("node-{instance}"),
        resource_version: "7".into(),
        ready: true,
        was_ready: true,
        ready_changed_at: Some(timestamp(LONG_AGO)),
        ready_reason: None,
        kubelet_silent: false,
        cordoned: false,
        unschedulable_since: None,
        disruption: None,
        orphaned_disruption: None,
        termination_sent_at: None,
        surge: None,
        drain_after: None,
        in_place: None,
        labeled_group: None,
        nodegroup: None,
        zone: None,
        created_at: timestamp(LONG_AGO),
        drain_last: false,
        is_removed_by_autoscaler: false,
        autoscaler_since: None,
        duplicates: vec![],
    }
}

impl Scenario {
    /// The same observed state with another spec.
    fn with_spec(mut self, extra: &str) -> Self {
        self.resolved = resolved(extra, &[]);
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Scenario)) -> Self {
        change(&mut self);
        self
    }

    fn with_scaling_group(self, change: impl FnOnce(&mut ScalingGroup)) -> Self {
        self.with(|s| change(s.state.scaling_group.as_mut().expect("a group")))
    }

    fn plan(&self) -> Plan {
        self.plan_without_effect(&BTreeSet::new())
    }

    /// Plans while these writes had no effect so far.
    fn plan_without_effect(&self, ineffective_writes: &BTreeSet<Write>) -> Plan {
        let timing = Timing::default();
        plan(&PlanInput {
            resolved: &self.resolved,
            observed: &self.state,
            status: &self.status,
            lock: self.lock,
            rollout_block: None,
            allowance: None,
            config_retention: 2,
            ineffective_writes,
            persistent_failure: &self.persistent_failure,
            is_requested: false,
            timing: &timing,
            now: timestamp(NOW),
        })
    }
}

fn converged() -> Scenario {
    converged_with(resolved("{}", &[]))
}

/// Removes the scaling group. The other resources carry the ownership tags that prove their owner.
fn remove_scaling_group(s: &mut Scenario) {
    s.state.scaling_group = None;
    let ownership = s.resolved.ownership_tags.clone();
    let profile = s.state.instance_profile.as_mut().expect("a profile");
    profile.role.as_mut().expect("a role").tags.clone_from(&ownership);
    profile.tags = ownership;
}

fn type_override(name: &str) -> InstanceTypeOverride {
    InstanceTypeOverride { instance_type: name.into(), weight: 1, has_foreign_fields: false }
}

/// A group with an instance pool, whose policy lacks a type that AWS offers since.
fn with_instance_pool() -> Scenario {
    converged_with(resolved(POOL, &[])).with_scaling_group(|g| {
        g.mixed.as_mut().expect("a policy").overrides.retain(|o| o.instance_type != "m5n.large");
    })
}

fn with_mixed_instances() -> Scenario {
    converged_with(resolved(MIXED, &[]))
}

/// A group with two nodes of weight 1 and one of weight 2.
fn with_weighted_types() -> Scenario {
    converged_with(resolved(WEIGHTED, &[]))
        .with_scaling_group(|g| {
            g.instances.push(Instance { id: "i-3".into(), weight: 2, ..g.instances[0].clone() });
        })
        .with(|s| _ = s.state.nodes.insert("i-3".into(), node("i-3")))
}

fn foreign_tags() -> [Tag; 1] {
    [Tag { key: "cost-centre".into(), value: "17".into() }]
}

fn hook(name: &str) -> LifecycleHook {
    LifecycleHook {
        name: name.into(),
        transition: "autoscaling:EC2_INSTANCE_TERMINATING".into(),
        default_result: "CONTINUE".into(),
        heartbeat_timeout: 300,
        notification_arn: None,
        metadata: None,
        role_arn: None,
    }
}

const NEW_IMAGE: &str = "eks: {configuration: {image: ami-00000002}}";
const MIXED: &str = "eks: {configuration: {mixedInstancesPolicy: {spotRatio: 50, baseCapacity: 1, instanceTypes: [{type: m5a.large}, {type: m5n.large}]}}}";
const WEIGHTED: &str = "eks: {configuration: {mixedInstancesPolicy: {strategy: LowestPrice, instanceTypes: [{type: m5.xlarge, weight: 2}]}}}";
const POOL: &str = "eks: {configuration: {mixedInstancesPolicy: {spotRatio: 50, instancePool: SubFamilyFlexible}}}";
const SPOT: &str = "eks: {configuration: {spotPrice: '0.08'}}";
const ATTRIBUTES: &str = "eks: {configuration: {suspendProcesses: [AZRebalance], metricsCollection: [GroupMinSize], tags: [{key: team, value: a}], lifecycleHooks: [{name: drain, lifecycle: terminate}]}}";

/// Adds attributes that other controllers or users set.
fn with_foreign_attributes(scenario: Scenario) -> Scenario {
    scenario
        .with_scaling_group(|g| {
            g.tags.extend(foreign_tags());
            g.suspended_processes = vec!["AZRebalance".into()];
            g.enabled_metrics = vec!["GroupMaxSize".into()];
        })
        .with(|s| s.state.lifecycle_hooks = Some(vec![hook("theirs")]))
}

/// Another controller created both template versions. The group follows `$Latest`, and one node runs the older version.
fn changed_by_other_controller() -> Scenario {
    converged()
        .with(|s| {
            s.state.versions.get_mut(&1).expect("a version").fingerprint = None;
            let data = resolved(NEW_IMAGE, &[]).template_data;
            s.state.versions.insert(2, ObservedVersion::new(None, Some(data)));
            let template = s.state.template.as_mut().expect("a template");
            (template.default_version, template.latest_version) = (2, 2);
        })
        .with_scaling_group(|g| {
            g.template.as_mut().expect("a pin").version = "$Latest".into();
            g.instances[1].template.as_mut().expect("a version").version = "2".into();
        })
}

fn second_version(s: &mut Scenario) {
    let newer = resolved(NEW_IMAGE, &[]);
    s.state.versions.insert(2, ObservedVersion::new(Some(newer.fingerprint), Some(newer.template_data)));
    s.state.template.as_mut().expect("a template").latest_version = 2;
}

fn scenarios() -> Vec<(&'static str, Scenario)> {
    let given = || resolved("eks: {configuration: {roleName: given}}", &[]);
    vec![
        ("create/own-role", new_group(resolved("{}", &[])).with(|s| s.resolved.desired.id.has_finalizer = false)),
        ("create/existing-role", new_group(given())),
        (
            "create/after-name-conflict",
            new_group(given()).with(|s| {
                let ours = s.resolved.ownership_tags.clone();
                s.state.orphaned_template = Some(LaunchTemplate {
                    id: "lt-0".into(),
                    name: "taken-by-another".into(),
                    default_version: 1,
                    latest_version: 1,
                    tags: ours,
                });
            }),
        ),
        ("create/second-pass", converged().with(remove_scaling_group)),
        (
            "create/auth-conflict",
            new_group(given()).with(|s| {
                s.state.join.auth_entry = AuthEntryState::Conflict { detail: "another entry has this rolearn".into() }
            }),
        ),
        ("scaling_group/converged", converged()),
        ("scaling_group/sizes", converged().with_spec("eks: {minSize: 1, maxSize: 6}")),
        (
            "scale_in/is-paced",
            converged().with_scaling_group(|g| g.desired = 4).with_spec("eks: {minSize: 1, maxSize: 1}"),
        ),
        (
            "scale_in/drains",
            converged()
                .with_scaling_group(|g| (g.min, g.max, g.desired) = (1, 2, 2))
                .with_spec("eks: {minSize: 1, maxSize: 1}"),
        ),
        (
            "scale_in/ends",
            converged()
                .with_scaling_group(|g| {
                    (g.min, g.max, g.desired) = (1, 2, 1);
                    g.instances.truncate(1);
                })
                .with_spec("eks: {minSize: 1, maxSize: 1}"),
        ),
        ("scaling_group/subnet-removal-begins", subnets::with_subnets(&["subnet-1", "subnet-9"])),
        (
            "scaling_group/subnet-removal-suspended",
            subnets::with_subnets(&["subnet-1", "subnet-9"]).with(subnets::suspend),
        ),
        ("scaling_group/subnet-removal-rotates", subnets::with_subnets(&["subnet-1"]).with(subnets::suspend)),
        (
            "scaling_group/subnet-removal-locked",
            subnets::with_subnets(&["subnet-1", "subnet-9"]).with(|s| s.lock = Some("the annotation lock-upgrades")),
        ),
        (
            "scaling_group/subnet-removal-ends",
            subnets::with_subnets(&["subnet-1"]).with(subnets::suspend).with(|s| {
                s.state.instance_subnets.values_mut().for_each(|subnet| *subnet = "subnet-1".into());
            }),
        ),
        (
            "attributes/tag-repaired",
            converged().with_scaling_group(|g| g.tags.retain(|t| t.key != "KubernetesCluster")),
        ),
        (
            "attributes/attributes-added",
            converged().with(|s| s.state.lifecycle_hooks = Some(vec![])).with_spec(ATTRIBUTES),
        ),
        ("role/role-repaired", converged().with(|s| _ = s.state.attached_policies.pop())),
        (
            "role/profile-repaired",
            converged().with(|s| {
                let (ours, profile) =
                    (s.resolved.ownership_tags.clone(), s.state.instance_profile.as_mut().expect("a profile"));
                (profile.role, profile.tags) = (None, ours);
            }),
        ),
        ("access_entries/auth-repaired", converged().with(|s| s.state.join.auth_entry = AuthEntryState::Absent)),
        ("launch_template/new-version", converged().with_spec(NEW_IMAGE)),
        ("launch_template/retained-version-pinned-again", converged().with(second_version).with_spec(NEW_IMAGE)),
        (
            "rotation/begins",
            converged()
                .with(second_version)
                .with_scaling_group(|g| g.template.as_mut().expect("a pin").version = "2".into())
                .with_spec(NEW_IMAGE),
        ),
        (
            "rotation/surges",
            converged()
                .with(second_version)
                .with_scaling_group(|g| g.template.as_mut().expect("a pin").version = "2".into())
                .with_spec("{strategy: {rollingUpdate: {maxSurge: 50%}}, eks: {configuration: {image: ami-00000002}}}"),
        ),
        (
            "rotation/locked",
            converged()
                .with(second_version)
                .with_scaling_group(|g| g.template.as_mut().expect("a pin").version = "2".into())
                .with_spec(NEW_IMAGE)
                .with(|s| s.lock = Some("the annotation lock-upgrades")),
        ),
        (
            "rotation/nodes-from-other-template",
            converged().with_scaling_group(|g| g.instances[0].template.as_mut().expect("a pin").id = "lt-9".into()),
        ),
        (
            "rotation/revert-uncordons-nodes",
            converged().with(|s| {
                s.state.nodes.get_mut("i-1").expect("a node").disruption = Some(disruption_record("2"));
            }),
        ),
    ]
}

/// Apart from the others: one function that makes all of them needs more stack than a test has.
fn scenarios_of_adoption() -> Vec<(&'static str, Scenario)> {
    vec![
        (
            "adoption/adoption",
            converged()
                .with_spec(NEW_IMAGE)
                .with(|s| {
                    s.status = InstanceGroupStatus::default();
                    s.state.versions.get_mut(&1).expect("a version").fingerprint = None;
                    s.state.template.as_mut().expect("a template").tags.clear();
                })
                .with_scaling_group(|g| g.template.as_mut().expect("a pin").version = "$Latest".into()),
        ),
        (
            "adoption/adoption-with-older-nodes",
            with_foreign_attributes(changed_by_other_controller()).with(|s| {
                s.status = InstanceGroupStatus::default();
                s.state.template.as_mut().expect("a template").tags.clear();
            }),
        ),
        (
            "adoption/adoption-keeps-older-nodes",
            changed_by_other_controller()
                .with(|s| {
                    let template = s.status.template.as_mut().expect("a record");
                    template.version = Some("2".into());
                    template.adopted_hash = template.hash.clone();
                    template.adopted_version = Some("2".into());
                })
                .with_scaling_group(|g| g.template.as_mut().expect("a pin").version = "2".into()),
        ),
        (
            "adoption/readopted-after-other-controller",
            changed_by_other_controller().with(|s| {
                s.status.latest_template_version = Some("2".into());
                s.state.template.as_mut().expect("a template").tags.clear();
            }),
        ),
        ("adoption/manual-template-version-is-not-adopted", changed_by_other_controller()),
        (
            "rotation/rotate-at-after-adoption",
            converged().with(|s| {
                s.resolved = resolved(NEW_IMAGE, &[("rotate-at", NOW)]);
                s.state.versions.get_mut(&1).expect("a version").fingerprint = None;
                s.state.launch_times = ["i-1", "i-2"].map(|id| (id.to_owned(), timestamp(LONG_AGO))).into();
                let template = s.status.template.as_mut().expect("a record");
                template.adopted_hash = Some(s.resolved.fingerprint.hash.clone());
                template.adopted_version = Some("1".into());
            }),
        ),
        (
            "rotation/rotate-at-in-future",
            converged().with(|s| s.resolved = resolved("{}", &[("rotate-at", "2026-01-03T00:00:00Z")])),
        ),
        (
            "rotation/rotate-at-equals-launch-time",
            converged().with(|s| {
                s.resolved = resolved("{}", &[("rotate-at", "2026-01-01T00:00:00.9Z")]);
                s.state.launch_times = ["i-1", "i-2"].map(|id| (id.to_owned(), timestamp(LONG_AGO))).into();
            }),
        ),
        ("attributes/foreign-attributes-kept", with_foreign_attributes(converged())),
        (
            "attributes/foreign-attributes-kept-without-record",
            with_foreign_attributes(converged()).with(|s| s.status.managed = None),
        ),
        (
            "attributes/recorded-attributes-removed",
            with_foreign_attributes(converged()).with(|s| {
                let managed = s.status.managed.as_mut().expect("a record");
                managed.tags.push("cost-centre".into());
                managed.hooks = vec!["theirs".into()];
                managed.processes = vec!["AZRebalance".into()];
                managed.metrics = vec!["GroupMaxSize".into()];
            }),
        ),
        ("mixed_instances/created", with_mixed_instances().with(remove_scaling_group)),
        ("mixed_instances/converged", with_mixed_instances()),
        (
            "mixed_instances/ratio-changed",
            with_mixed_instances().with_spec(MIXED).with(|s| {
                s.resolved = resolved(&MIXED.replace("50", "80%"), &[]);
            }),
        ),
        ("mixed_instances/added", converged().with_spec(MIXED)),
        ("mixed_instances/added-without-spot", converged().with_spec(WEIGHTED)),
        ("mixed_instances/removed", converged_with(resolved(WEIGHTED, &[])).with_spec("{}")),
        (
            "mixed_instances/repaired",
            with_mixed_instances().with_scaling_group(|g| {
                let policy = g.mixed.as_mut().expect("a policy");
                policy.overrides.pop();
                policy.distribution.on_demand_base = 0;
                policy.distribution.spot_max_price = Some("0.1".into());
            }),
        ),
        ("mixed_instances/new-version", with_mixed_instances().with(|s| s.resolved.fingerprint.hash = "other".into())),
        (
            "mixed_instances/adopted-from-keiko",
            with_mixed_instances().with_scaling_group(|g| {
                let policy = g.mixed.as_mut().expect("a policy");
                policy.overrides.insert(1, policy.overrides[0].clone());
            }),
        ),
        ("mixed_instances/instance-pool-computed-at-creation", with_instance_pool().with(remove_scaling_group)),
        ("mixed_instances/instance-pool-new-type-ignored", with_instance_pool()),
        (
            "mixed_instances/instance-pool-extended-with-other-change",
            with_instance_pool().with(|s| s.resolved = resolved(&POOL.replace("50", "80"), &[])),
        ),
        (
            "mixed_instances/instance-pool-extended-with-new-version",
            with_instance_pool().with(|s| s.resolved.fingerprint.hash = "other".into()),
        ),
        (
            "mixed_instances/instance-pool-in-keiko-order",
            with_instance_pool().with_scaling_group(|g| g.mixed.as_mut().expect("a policy").overrides.reverse()),
        ),
        (
            "mixed_instances/instance-pool-never-computed",
            with_instance_pool().with_scaling_group(|g| g.mixed.as_mut().expect("a policy").overrides.truncate(1)),
        ),
        (
            "mixed_instances/instance-pool-removed-type-restored",
            with_instance_pool()
                .with(|s| s.status.managed.as_mut().expect("a record").pool = vec!["m5a.large".into()])
                .with_scaling_group(|g| {
                    g.mixed.as_mut().expect("a policy").overrides.retain(|o| o.instance_type != "m5a.large")
                }),
        ),
        (
            "mixed_instances/instance-pool-foreign-type-removed",
            with_instance_pool()
                .with_scaling_group(|g| g.mixed.as_mut().expect("a policy").overrides.push(type_override("c5.large"))),
        ),
        (
            "spot/created",
            converged_with(resolved(SPOT, &[])).with(|s| {
                remove_scaling_group(s);
                s.state.template = None;
            }),
        ),
        ("spot/converged", converged_with(resolved(SPOT, &[]))),
        ("spot/price-changed", converged_with(resolved(SPOT, &[])).with_spec(&SPOT.replace("0.08", "0.1"))),
        ("spot/removed", converged_with(resolved(SPOT, &[])).with_spec("{}")),
        (
            "spot/recommended",
            converged().with_spec(SPOT).with(|s| {
                s.resolved.desired.spot_recommendation = Some(SpotRecommendation {
                    use_spot: true,
                    spot_price: "0.08".into(),
                    given: LONG_AGO.into(),
                    namespace: Some("ops".into()),
                    over: String::new(),
                    ended: None,
                });
            }),
        ),
        (
            "spot/recommendation-ended",
            converged_with(resolved(SPOT, &[])).with(|s| {
                s.status.spot_recommendation = Some(SpotRecommendation {
                    use_spot: true,
                    spot_price: "0.05".into(),
                    given: LONG_AGO.into(),
                    namespace: Some("ops".into()),
                    over: String::new(),
                    ended: None,
                });
            }),
        ),
        (
            "spot/ignored-in-mixed-group",
            with_mixed_instances()
                .with_spec(&MIXED.replace("mixedInst", "spotPrice: '1', mixedInst"))
                .with(|s| s.resolved.fingerprint.hash = "other".into()),
        ),
        (
            "scale_in/weighted-scale-in",
            with_weighted_types()
                .with_scaling_group(|g| (g.max, g.desired) = (4, 4))
                .with_spec(WEIGHTED)
                .with(|s| s.resolved.desired.max_size = 3),
        ),
        (
            "scale_in/weighted-scale-in-without-fitting-node",
            with_weighted_types()
                .with_scaling_group(|g| {
                    (g.max, g.desired) = (4, 4);
                    g.instances.truncate(2);
                    g.instances.iter_mut().for_each(|i| i.weight = 2);
                })
                .with(|s| s.resolved.desired.max_size = 3),
        ),
        (
            "create/name-conflict",
            converged().with_scaling_group(|g| {
                g.tags = vec![Tag { key: "instancegroups.keikoproj.io/Namespace".into(), value: "other".into() }]
            }),
        ),
        (
            "scaling_group/resumes-what-a-deletion-suspended",
            converged().with_scaling_group(|g| {
                g.suspended_processes = vec!["AZRebalance".into(), "Launch".into()];
                let key = "instancegroups.keikoproj.io/SuspendedByDeletion".into();
                g.tags.push(Tag { key, value: "Launch".into() });
            }),
        ),
        (
            "rotation/launch-suspended",
            converged()
                .with(second_version)
                .with_scaling_group(|g| {
                    g.template.as_mut().expect("a pin").version = "2".into();
                    g.suspended_processes = vec!["Launch".into()];
                })
                .with_spec(NEW_IMAGE),
        ),
    ]
}

fn assert_golden(name: &str, plan: &Plan) {
    let value = serde_json::to_value(plan).expect("a plan serializes");
    assert_golden_text(name, &serde_yaml::to_string(&value).expect("YAML"));
}

fn assert_golden_text(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/plans/{name}.yaml"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("the directory is created");
        std::fs::write(&path, text).expect("the golden file is written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == text, "{} is stale: run UPDATE_GOLDEN=1 cargo test --test it\n{text}", path.display());
}

#[test]
fn plans_match_golden_files() {
    for (name, scenario) in scenarios() {
        assert_golden(name, &scenario.plan());
    }
    for (name, scenario) in scenarios_of_adoption() {
        assert_golden(name, &scenario.plan());
    }
}

mod fargate;

mod release;
mod standby;
mod subnets;
mod weights;

mod access_entries;

mod takeover_tags;

mod attributes;
mod rejected_fields;

mod node_problems;
mod transitions;
mod user_data;

mod warm_pool;

mod launch_configurations;

mod launch_templates;

mod crd_strategy;

mod ownership;

mod role_region;

mod given_role;

mod in_place;
mod interrupted;

mod refused_values;

mod removed_tags;

mod nodegroup;

#[test]
fn deletion_plans_match_golden_files() {
    let scenario = converged();
    let r = &scenario.resolved;
    let timing = Timing::default();
    let members: Vec<_> = (scenario.state.scaling_group.iter().flat_map(|g| &g.instances))
        .map(|i| NodeInstance {
            is_recorded_standby: false,
            instance: i.clone(),
            node: scenario.state.nodes.get(&i.id).cloned(),
            lost_node: None,
            reasons: vec![],
            in_place: None,
        })
        .collect();
    let empty = ScalingGroup {
        min: 0,
        suspended_processes: vec!["Launch".into()],
        instances: vec![],
        ..scenario.state.scaling_group.clone().expect("a group")
    };
    let deleting = ScalingGroup { deleting: true, ..empty.clone() };
    let role = Role {
        id: "AROA-1".into(),
        name: r.names.role.clone(),
        arn: r.role_arn.clone(),
        tags: r.ownership_tags.clone(),
        ..Role::default()
    };
    let profile = InstanceProfile {
        tags: r.ownership_tags.clone(),
        ..scenario.state.instance_profile.clone().expect("a profile")
    };
    let adopted = AdoptedResources::default();
    let configurations = [launch_configurations::FOUND.to_owned()];
    let with_foreign_policy: Vec<_> =
        r.managed_policies.iter().cloned().chain(["arn:aws:iam::1:policy/theirs".to_owned()]).collect();
    let input = |scaling_group, members, attached_policies| delete::DeleteInput {
        id: &r.desired.id,
        ownership_tags: &r.ownership_tags,
        scaling_group,
        members,
        drains: &scenario.state.drains,
        template: scenario.state.template.as_ref(),
        has_derived_template_name: true,
        launch_configurations: &configurations,
        role: Some(&role),
        attached_policies,
        removable_policies: &r.managed_policies,
        inline_policies: &[],
        instance_profile: Some(&profile),
        region: "us-west-2",
        status: &scenario.status,
        adopted: &adopted,
        aws_auth_entries: std::slice::from_ref(&r.aws_auth_entry),
        access_entries: &[],
        kept_entries: &[],
        modified_auth_entries: &[],
        wait_for: None,
        unreadable_aws_auth: None,
        role_in_use: None,
        template_in_use: None,
        drain_timeout: SignedDuration::from_mins(30),
        timing: &timing,
        now: timestamp(NOW),
    };
    let policies = r.managed_policies.as_slice();
    assert_golden(
        "delete/drains",
        &delete::plan_deletion(&input(scenario.state.scaling_group.as_ref(), &members, policies)),
    );
    let launched = ScalingGroup {
        template: None,
        launch_configuration: Some("demo-team-web-20250101000001".into()),
        ..empty.clone()
    };
    assert_golden(
        "delete/records-launch-configuration",
        &delete::plan_deletion(&input(Some(&launched), &[], policies)),
    );
    // AWS would refuse the deletion in the end, after all nodes were drained and terminated.
    let protected =
        ScalingGroup { is_deletion_protected: true, ..scenario.state.scaling_group.clone().expect("a group") };
    let plan = delete::plan_deletion(&input(Some(&protected), &members, policies));
    let is_blocked = matches!(&plan.outcome, Outcome::Blocked { reason: StalledReason::DeletionProtected, message, is_deleting: true }
        if message.contains("--deletion-protection none"));
    assert!(plan.steps.is_empty() && is_blocked, "{plan:?}");
    assert_golden("delete/empty-group", &delete::plan_deletion(&input(Some(&empty), &[], policies)));
    assert_golden("delete/waits-for-aws", &delete::plan_deletion(&input(Some(&deleting), &[], policies)));
    assert_golden("delete/supporting-resources", &delete::plan_deletion(&input(None, &[], policies)));
    assert_golden("delete/blocked-by-attached-policy", &delete::plan_deletion(&input(None, &[], &with_foreign_policy)));
    let plan = delete::plan_deletion(&delete::DeleteInput { wait_for: Some("team/db"), ..input(None, &[], policies) });
    assert!(
        plan.steps.is_empty()
            && matches!(&plan.outcome, Outcome::Progressing { message, .. } if message.contains("team/db")),
        "{plan:?}"
    );
    let problem = Some("mapRoles cannot be parsed");
    let plan =
        delete::plan_deletion(&delete::DeleteInput { unreadable_aws_auth: problem, ..input(None, &[], policies) });
    let waits = matches!(&plan.outcome, Outcome::Blocked { reason: StalledReason::AuthConflict, message, .. } if message.starts_with("mapRoles cannot be parsed"));
    assert!(plan.steps.is_empty() && waits, "{plan:?}");
    // AWS may not show yet what was created right before the deletion: a scaling group, also one that a user had
    // deleted, or only a role.
    let at_once = GroupId { deletion_requested_at: Some(timestamp(NOW)), ..r.desired.id.clone() };
    let deletes = |nodes, seconds, template: Option<&LaunchTemplate>| {
        let status = InstanceGroupStatus { nodes, ..scenario.status.clone() };
        let now = timestamp(NOW) + SignedDuration::from_secs(seconds);
        let input = delete::DeleteInput { id: &at_once, status: &status, now, template, ..input(None, &[], policies) };
        !delete::plan_deletion(&input).steps.is_empty()
    };
    let (template, counted) = (scenario.state.template.as_ref(), Some(NodeCounts::default()));
    for (nodes, template) in [(None, template), (counted, template), (None, None)] {
        assert!(!deletes(nodes.clone(), 5, template), "nothing would delete it once the finalizer is gone");
        assert!(deletes(nodes.clone(), 20, template));
        assert!(deletes(nodes, -3600, template), "a clock that was set back delays nothing");
    }
    // The scaling group's tags were modified or removed. Its nodes still use the role and its join entry.
    let existing = || scenario.state.scaling_group.clone().expect("a group");
    let mut tags = existing().tags;
    tags.retain(|t| !t.key.ends_with("/Namespace"));
    let modified = ScalingGroup { tags, ..existing() };
    assert_golden(
        "delete/blocked-by-modified-tags",
        &delete::plan_deletion(&input(Some(&modified), &members, policies)),
    );
    let untagged = ScalingGroup { tags: vec![], ..existing() };
    let plan = delete::plan_deletion(&input(Some(&untagged), &members, policies));
    let remedy = "to keep it, remove the finalizer finalizer.instancegroups.keikoproj.io from";
    assert!(plan.steps.is_empty() && blocked(&plan).contains(remedy), "{plan:?}");
    let gone = delete::DeleteInput { template: None, ..input(Some(&untagged), &members, policies) };
    let plan = delete::plan_deletion(&gone);
    assert!(plan.steps.is_empty() && blocked(&plan).contains(remedy), "the nodes would stay: {plan:?}");
    let pin = TemplatePin { id: "lt-foreign".into(), version: "1".into() };
    let with_foreign_template = ScalingGroup { template: Some(pin.clone()), ..modified.clone() };
    let plan = delete::plan_deletion(&input(Some(&with_foreign_template), &[], policies));
    assert!(plan.steps.is_empty() && blocked(&plan).contains("otherwise remove the ownership tags"), "{plan:?}");
    let foreign = ScalingGroup { template: Some(pin), ..untagged.clone() };
    let plan = delete::plan_deletion(&input(Some(&foreign), &[], policies));
    assert_eq!(plan.outcome, Outcome::Deleted, "a matching name alone does not block the deletion");
    // Adopted resources whose tagging AWS denied.
    let untagged_resources = (
        LaunchTemplate { tags: vec![], ..scenario.state.template.clone().expect("a template") },
        Role { tags: vec![], ..role.clone() },
        InstanceProfile { tags: vec![], ..profile.clone() },
    );
    let with_adopted = |adopted| delete::DeleteInput {
        template: Some(&untagged_resources.0),
        role: Some(&untagged_resources.1),
        instance_profile: Some(&untagged_resources.2),
        adopted,
        ..input(None, &[], policies)
    };
    let id = |id: &str| Some(id.to_owned());
    let recorded = AdoptedResources { template: id("lt-1"), role: id("AROA-1"), profile: id("AIPA-1"), summary: None };
    assert_golden("delete/tags-untagged-resources-first", &delete::plan_deletion(&with_adopted(&recorded)));
    let later = AdoptedResources { template: id("lt-0"), role: id("AROA-0"), profile: id("AIPA-0"), summary: None };
    assert_golden("delete/skips-later-group-of-same-name", &delete::plan_deletion(&with_adopted(&later)));
    let other_owner = Tag { key: "instancegroups.keikoproj.io/InstanceGroup".into(), value: "another".into() };
    let foreign_profile = InstanceProfile { tags: vec![other_owner], ..profile.clone() };
    let plan = delete::plan_deletion(&delete::DeleteInput {
        instance_profile: Some(&foreign_profile),
        ..with_adopted(&recorded)
    });
    assert!(
        plan.steps.iter().all(|s| !matches!(
            s.step,
            Step::Iam(IamStep::DeleteProfile { .. }) | Step::Iam(IamStep::TagProfile { .. })
        ))
    );
}

/// The mixed instances policy that a plan sets, if any.
fn planned_policy(scenario: &Scenario) -> Option<MixedPolicy> {
    scenario.plan().steps.iter().find_map(|planned| match &planned.step {
        Step::Eks(EksStep::UpdateGroup { change, .. }) => change.mixed.clone(),
        Step::Eks(EksStep::CreateGroup { group, .. }) => group.mixed.clone(),
        _ => None,
    })
}

/// AWS launches the first types first, and another client may exchange them.
#[test]
fn listed_types_are_put_back_before_the_pool_and_in_their_order() {
    let spec = POOL.replace("SubFamilyFlexible", "SubFamilyFlexible, instanceTypes: [{type: c5.large}]");
    let converged = converged_with(resolved(&spec, &[]));
    let swapped = |a: usize, b: usize| {
        converged.clone().with_scaling_group(|g| g.mixed.as_mut().expect("a policy").overrides.swap(a, b))
    };
    let types = |policy: MixedPolicy| policy.overrides.iter().map(ToString::to_string).collect::<Vec<_>>();
    let in_order = Some(["m5.large", "c5.large", "m5a.large", "m5d.large", "m5n.large"].map(str::to_owned).to_vec());
    for (a, b) in [(0, 1), (1, 2)] {
        assert_eq!(planned_policy(&swapped(a, b)).map(types), in_order, "{a} {b}");
    }
    assert_eq!(planned_policy(&swapped(2, 3)), None, "the spec does not order the pool");
}

/// The `maxSize` that a plan sends to Auto Scaling, if any.
fn planned_max_size(scenario: &Scenario) -> Option<i32> {
    scenario.plan().steps.iter().find_map(|planned| match &planned.step {
        Step::Eks(EksStep::UpdateGroup { change, .. }) => change.max,
        _ => None,
    })
}

#[test]
fn lowered_max_size_keeps_less_than_one_node_weight() {
    let with_weights = |weights: &[u32], desired: i32, max: i32, desired_max: i32| {
        with_weighted_types()
            .with_scaling_group(|g| {
                let one = g.instances[0].clone();
                g.instances = (weights.iter().enumerate())
                    .map(|(n, weight)| Instance { id: format!("i-{n}"), weight: *weight, ..one.clone() })
                    .collect();
                (g.min, g.max, g.desired) = (1, max, desired);
            })
            .with(|s| (s.resolved.desired.min_size, s.resolved.desired.max_size) = (1, desired_max))
    };
    let disruptions = |scenario: Scenario| scenario.plan().steps.iter().filter(|p| p.step.is_disruptive()).count();
    assert_eq!(
        planned_max_size(&with_weights(&[4, 4, 4], 10, 12, 8)),
        Some(9),
        "the instances have 12 units, although 10 are desired"
    );
    assert_eq!(
        (planned_max_size(&with_weights(&[4, 4, 4], 9, 9, 8)), disruptions(with_weights(&[4, 4, 4], 9, 9, 8))),
        (None, 1)
    );
    assert_eq!(planned_max_size(&with_weights(&[4, 4], 8, 9, 8)), Some(8));
    assert_eq!(
        planned_max_size(&with_weights(&[4, 4, 4], 10, 12, 9)),
        Some(9),
        "3 units are less than the lightest node"
    );
    assert_eq!(planned_max_size(&with_weights(&[4, 4, 2], 10, 12, 8)), Some(9));
    assert_eq!(planned_max_size(&with_weights(&[4, 4], 10, 12, 8)), Some(10), "a third instance is launching");
    let failing = with_weights(&[4, 4], 10, 12, 8).with(|s| s.state.shortage_duration = SignedDuration::from_mins(5));
    assert_eq!(planned_max_size(&failing), Some(8), "the third instance failed to launch");
    assert_eq!(
        disruptions(with_weights(&[1, 1, 1, 1, 1], 4, 4, 4)),
        0,
        "Auto Scaling itself removes the fifth node, which it launched to balance zones"
    );
}

#[test]
fn duplicate_provider_id_blocks_drain_and_termination() {
    let with_duplicate =
        |s: &mut Scenario| s.state.nodes.values_mut().for_each(|n| n.duplicates = vec!["node-duplicate".into()]);
    let repinned = |g: &mut ScalingGroup| g.template.as_mut().expect("a pin").version = "2".into();
    let outdated = || converged().with_spec(NEW_IMAGE).with(add_desired_version).with_scaling_group(repinned);
    assert!(
        outdated().plan().steps.iter().any(|p| p.step.is_disruptive()),
        "without a duplicate the nodes are drained"
    );
    let plan = outdated().with(with_duplicate).plan();
    assert!(!plan.steps.iter().any(|p| p.step.is_disruptive()), "{:?}", plan.steps);
    let condition =
        plan.condition_updates.iter().find(|n| n.condition_type == "DrainBlocked" && n.status).expect("a condition");
    assert!(condition.message.contains("node-i-1, node-duplicate"), "{}", condition.message);
}

#[test]
fn converged_group_has_no_steps() {
    assert_eq!(converged().plan().steps, vec![]);
    assert_eq!(converged().plan().outcome, Outcome::Converged);
}

/// A group that was converged once, in any observed state.
fn any_scenario() -> impl Strategy<Value = Scenario> {
    let spec = prop::sample::select(vec!["{}", NEW_IMAGE, ATTRIBUTES, "eks: {minSize: 0, maxSize: 1}"]);
    let state = prop::sample::select(vec![
        InstanceState::InService,
        InstanceState::Pending,
        InstanceState::Terminating,
        InstanceState::Standby,
        InstanceState::Other,
    ]);
    let instance = (state, any::<(bool, bool, bool, bool)>(), 1i64..4);
    let flags = any::<(bool, bool, bool, bool, bool, bool)>();
    (spec, prop::collection::vec(instance, 0..6), flags, 0i32..6, any::<bool>()).prop_map(
        |(spec, instances, (recorded, profile, attached, follows_latest, suspended, auth), desired, locked)| {
            let mut scenario = with_foreign_attributes(converged()).with_spec(spec);
            scenario.lock = locked.then_some("a test");
            if !recorded {
                scenario.status.managed = None;
            }
            if !profile {
                scenario.state.instance_profile = None;
            }
            if !attached {
                scenario.state.attached_policies.clear();
            }
            if !auth {
                scenario.state.join.auth_entry = AuthEntryState::Absent;
            }
            let group = scenario.state.scaling_group.as_mut().expect("a group");
            group.desired = desired;
            if follows_latest {
                group.template.as_mut().expect("a pin").version = "$Latest".into();
            }
            if suspended {
                group.suspended_processes.push("Launch".into());
            }
            group.instances.clear();
            scenario.state.nodes.clear();
            for (number, (state, (joined, ready, cordoned, draining), version)) in instances.into_iter().enumerate() {
                let id = format!("i-{number}");
                let mut one = node(&id);
                (one.ready, one.cordoned) = (ready, cordoned);
                one.disruption = draining.then(|| disruption_record("1"));
                if joined {
                    scenario.state.nodes.insert(id.clone(), one);
                }
                let template = Some(TemplatePin { id: "lt-1".into(), version: version.to_string() });
                let in_service_since = Some(timestamp(LONG_AGO));
                group.instances.push(Instance { state, template, in_service_since, ..samples::instance(&id) });
            }
            scenario
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn locked_plans_remove_no_nodes(mut scenario in any_scenario()) {
        scenario.lock = Some("a test");
        let plan = scenario.plan();
        prop_assert!(!plan.steps.iter().any(|planned| planned.step.is_disruptive()), "{:?}", plan.steps);
    }

    #[test]
    fn plans_remove_only_recorded_attributes(scenario in any_scenario()) {
        let managed = scenario.status.managed.clone().unwrap_or_default();
        for planned in scenario.plan().steps {
            match planned.step {
                Step::Eks(EksStep::DeleteTags { keys, .. }) => prop_assert!(keys.iter().all(|k| managed.tags.contains(k))),
                Step::Eks(EksStep::DeleteHook { hook, .. }) => prop_assert!(managed.hooks.contains(&hook)),
                Step::Iam(IamStep::DetachPolicy { policy, .. }) => prop_assert!(managed.policies.contains(&policy)),
                Step::Eks(EksStep::ResumeProcesses { processes, .. }) => {
                    prop_assert!(processes.iter().all(|p| managed.processes.contains(p)));
                }
                Step::Eks(EksStep::DisableMetrics { metrics, .. }) => {
                    prop_assert!(metrics.iter().all(|m| managed.metrics.contains(m)));
                }
                _ => {}
            }
        }
    }

    #[test]
    fn planning_is_deterministic(scenario in any_scenario()) {
        prop_assert_eq!(scenario.plan(), scenario.plan());
    }
}

#[test]
fn launch_checks_run_only_for_new_versions() {
    use instance_manager::provisioner::eks::launch_template::launch_checks::needs_launch_checks;
    let needs_checks = |s: &Scenario| needs_launch_checks(&s.resolved, &s.state, &s.status);
    assert!(needs_checks(&new_group(resolved("{}", &[]))), "a new group creates a version");
    assert!(!needs_checks(&converged()), "a converged group launches nothing new");
    assert!(!needs_checks(&converged().with_spec("eks: {minSize: 3}")), "a size change creates no version");
    assert!(needs_checks(&converged().with_spec(NEW_IMAGE)), "the image changed");
}

/// One revision of the ConfigMap with an AMI that does not exist must not freeze the sizes and tags of healthy groups.
#[test]
fn broken_launch_field_stops_only_what_needs_it() {
    let spec = "eks: {minSize: 3, maxSize: 9, configuration: {image: ami-0000dead, tags: [{key: cost, value: new}], suspendProcesses: [AZRebalance]}}";
    let problem = SpecError::invalid("spec.eks.configuration.image", "ami-0000dead", "is not an AMI", "correct it");
    let broken = converged().with_spec(spec).with(|s| {
        s.resolved.broken.push(&[Part::Launch], problem.with_reason(StalledReason::ImageNotFound));
    });
    let changed = broken.plan();
    let steps: Vec<_> = changed.steps.iter().map(|planned| planned.step.name()).collect();
    assert_eq!(steps, ["UpdateStatus", "UpdateGroup", "PutTags", "SuspendProcesses"], "{:#?}", changed.steps);
    let updates = changed.steps.iter().filter_map(|planned| match &planned.step {
        Step::Eks(EksStep::UpdateGroup { change, pin, .. }) => Some((change.min, change.max, pin.is_none())),
        _ => None,
    });
    assert_eq!(updates.collect::<Vec<_>>(), [(Some(3), Some(9), true)]);
    let settled = broken
        .with_scaling_group(|group| {
            (group.min, group.max) = (3, 9);
            group.tags.push(Tag { key: "cost".into(), value: "new".into() });
            group.suspended_processes = vec!["AZRebalance".into()];
        })
        .with(|s| {
            let managed = s.status.managed.as_mut().expect("a record");
            managed.tags.insert(managed.tags.partition_point(|key| key.as_str() < "cost"), "cost".into());
            managed.processes = vec!["AZRebalance".into()];
        })
        .plan();
    assert!(settled.steps.is_empty(), "no node is touched: {:#?}", settled.steps);
    let Outcome::Blocked { reason: StalledReason::ImageNotFound, message, .. } = &settled.outcome else {
        panic!("the plan is not blocked: {:?}", settled.outcome);
    };
    assert!(message.contains("spec.eks.configuration.image `ami-0000dead`") && message.contains("keeps"), "{message}");
}

/// Each of these errors is in a field that only a new launch template version needs. More parts depend on the other
/// fields.
#[test]
fn errors_of_launch_fields_are_kept_apart() {
    let id = common::group_id(3, timestamp(LONG_AGO));
    for (configuration, is_launch_only) in [
        ("image: ami-x", true),
        ("instanceType: large", true),
        ("image: 'ssm://'", true),
        ("subnets: []", false),
        ("image: ami-x, subnets: []", false),
    ] {
        let base = "{clusterName: demo, image: ami-00000001, instanceType: m5.large, subnets: [subnet-1], securityGroups: [sg-1]}";
        let mut all: Value = serde_yaml::from_str(base).expect("YAML");
        deep_merge(&mut all, &serde_yaml::from_str(&format!("{{{configuration}}}")).expect("YAML"));
        let spec = json!({"provisioner": "eks", "eks": {"minSize": 2, "maxSize": 4, "configuration": all}});
        let spec = decode_spec(&spec).unwrap_or_else(|errors| panic!("{configuration}: {errors:?}"));
        assert!(desired::parse(&id, &common::annotations(&[]), &spec).is_err(), "{configuration}");
        let (_, errors) = desired::parse_with_errors(&id, &common::annotations(&[]), &spec);
        let launch = errors.iter().filter(|e| unchanged_parts::dependent_parts(&e.path) == Some(&[Part::Launch]));
        assert_eq!(launch.count() == errors.len(), is_launch_only, "{configuration}");
    }
}
