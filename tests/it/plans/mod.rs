//! From what is wanted and what there is to the whole plan, against golden files.
//! `UPDATE_GOLDEN=1 cargo test --test plans` writes them anew; a hash in them that has been released never changes.

use crate::common;

use instance_manager::plan::EksStep;
use std::collections::BTreeMap;
use std::path::Path;

use instance_manager::api::{
    AdoptedResources, InstanceGroupStatus, ManagedAttributes, SpotRecommendation, decode_spec,
};
use instance_manager::auth::access_entries::{Access, Found};
use instance_manager::auth::aws_auth::EntryState;
use instance_manager::aws::{
    Catalogue, Instance, InstanceProfile, InstanceState, InstanceType, LaunchTemplate, LifecycleHook, MixedPolicy,
    NetworkObject, Override, Role, ScalingGroup, Tag, TemplatePin,
};
use instance_manager::plan::{IamStep, Outcome, Plan, Reason, Step};
use instance_manager::provisioner::eks::input::Input;
use instance_manager::provisioner::eks::observed::{State, Version};
use instance_manager::provisioner::eks::plan::plan;
use instance_manager::provisioner::eks::resolve::{Environment, Resolved, resolve};
use instance_manager::provisioner::eks::{delete, desired};
use instance_manager::rotation::{Disruption, Drains, Fleet, Member, NodeView};
use instance_manager::settings::Timing;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: &str = "2026-01-02T00:00:00Z";
const LONG_AGO: &str = "2026-01-01T00:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// The shortest spec that stands for a complete group; `extra` is laid over `spec`.
fn resolved(extra: &str, annotations: &[(&str, &str)]) -> Resolved {
    let base = "provisioner: eks\neks: {minSize: 2, maxSize: 4, configuration: {clusterName: demo, image: ami-00000001, instanceType: m5.large, subnets: [subnet-1], securityGroups: [sg-1]}}";
    let mut spec: Value = serde_yaml::from_str(base).expect("YAML");
    overlay(&mut spec, &serde_yaml::from_str(extra).expect("YAML"));
    let id = common::group_id(3, at(LONG_AGO));
    let annotations =
        annotations.iter().map(|(k, v)| (format!("instancemgr.keikoproj.io/{k}"), (*v).to_owned())).collect();
    let spec = decode_spec(&spec).expect("a spec");
    resolve(desired::parse(&id, &annotations, &spec).expect("a group"), &environment(), false).expect("it resolves")
}

fn overlay(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.iter().for_each(|(key, value)| overlay(into.entry(key).or_insert(Value::Null), value));
        }
        (_, Value::Null) => {}
        (into, from) => *into = from.clone(),
    }
}

fn environment() -> Environment {
    let network = |id: &str| {
        vec![NetworkObject { id: id.into(), name: None, vpc: "vpc-1".into(), zone: Some("us-west-2a".into()) }]
    };
    let role =
        Role { id: "AROA-given".into(), name: "given".into(), arn: "arn:aws:iam::1:role/given".into(), tags: vec![] };
    Environment {
        cluster: Some(common::cluster()),
        subnets: network("subnet-1"),
        security_groups: network("sg-1"),
        elsewhere: vec![],
        image: None,
        instance_type: None,
        given_profile: Some(InstanceProfile {
            id: "AIPA-given".into(),
            name: "given".into(),
            arn: "arn:aws:iam::1:instance-profile/given".into(),
            created: None,
            role: Some(role),
            tags: vec![],
        }),
        catalogue: Some(catalogue().into()),
        ..Environment::default()
    }
}

fn catalogue() -> Catalogue {
    let of = |name: &str| InstanceType {
        name: name.into(),
        architectures: vec!["x86_64".into()],
        vcpus: 2,
        memory: 8192,
        ..InstanceType::default()
    };
    let names = ["m5.large", "m5a.large", "m5d.large", "m5n.large", "m5zn.large", "c5.large"];
    let offers = names.iter().filter(|n| **n != "m5zn.large").map(|n| ((*n).into(), "us-west-2a".into()));
    Catalogue::new(&names.map(of), offers)
}

/// Why nothing is done with what is not the group's.
fn blocked(plan: &Plan) -> &str {
    match &plan.outcome {
        Outcome::Blocked { reason: Reason::NotOurs, message, .. } => message,
        other => panic!("it is blocked: {other:?}"),
    }
}

/// A group, what there is of it, and what its status remembers.
#[derive(Clone, Debug)]
struct World {
    resolved: Resolved,
    state: State,
    status: InstanceGroupStatus,
    lock: Option<&'static str>,
}

/// Nothing has been made.
fn fresh(resolved: Resolved) -> World {
    let state = State {
        group: None,
        template: None,
        leftover: None,
        versions: BTreeMap::new(),
        configuration: None,
        warm: None,
        profile: None,
        role: None,
        attached: vec![],
        hooks: None,
        refreshing: false,
        activities: vec![],
        short_for: SignedDuration::ZERO,
        pool_waits: SignedDuration::ZERO,
        tagging_rests: false,
        launched: BTreeMap::new(),
        join: Found {
            auth: EntryState::Absent,
            auth_is_ours: false,
            windows: false,
            access: Access::Unasked,
            shared: false,
            others_have_it: true,
            role_id: None,
        },
        former: Default::default(),
        nodes: BTreeMap::new(),
        fleet: Fleet { known: 10, not_ready: 0 },
        drains: Drains::new(),
        strategy: None,
    };
    World { resolved, state, status: InstanceGroupStatus::default(), lock: None }
}

/// Everything has been made and two nodes are Ready.
fn standing(resolved: Resolved) -> World {
    let mut world = fresh(resolved);
    let World { resolved: r, state, status, .. } = &mut world;
    let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
    let instance = |id: &str| Instance {
        id: id.into(),
        zone: "us-west-2a".into(),
        state: InstanceState::InService,
        healthy: true,
        template: Some(pin.clone()),
        configuration: None,
        weight: 1,
        in_service_since: Some(at(LONG_AGO)),
    };
    state.group = Some(ScalingGroup {
        name: r.names.group.clone(),
        min: 2,
        max: 4,
        desired: 2,
        subnets: r.subnets.clone(),
        template: Some(pin.clone()),
        launch_configuration: None,
        warm_pool: None,
        mixed: r.wanted.mixed.as_ref().map(|m| MixedPolicy {
            distribution: m.distribution.clone(),
            overrides: (m.types.iter().cloned())
                .chain(r.pool.iter().flat_map(|p| &p.now).map(|name| of_type(name)))
                .collect(),
        }),
        tags: r.tags.clone(),
        unpropagated: vec![],
        suspended: vec![],
        metrics: vec![],
        instances: vec![instance("i-1"), instance("i-2")],
        deleting: false,
    });
    state.template = Some(LaunchTemplate {
        id: "lt-1".into(),
        name: r.names.template.clone(),
        default_version: 1,
        latest_version: 1,
        tags: r.ownership.clone(),
    });
    state.versions = [(1, Version { fingerprint: Some(r.fingerprint.clone()), data: Some(r.data.clone()) })].into();
    let role = Role { id: "AROA-1".into(), name: r.names.role.clone(), arn: r.role_arn.clone(), tags: vec![] };
    state.profile = Some(InstanceProfile {
        id: "AIPA-1".into(),
        name: r.names.role.clone(),
        arn: r.data.profile_arn.clone(),
        created: Some(at(LONG_AGO)),
        role: Some(role),
        tags: vec![],
    });
    state.attached = r.policies.clone();
    (state.join.auth, state.join.auth_is_ours) = (EntryState::Present, true);
    state.nodes = ["i-1", "i-2"].map(|id| (id.to_owned(), node(id))).into();
    let keys: Vec<_> = r.tags.iter().map(|t| t.key.clone()).collect();
    let mut sorted = (keys, r.policies.clone());
    sorted.0.sort();
    sorted.1.sort();
    *status = serde_json::from_value(json!({
        "currentState": "Ready",
        "activeScalingGroupName": r.names.group,
        "activeLaunchTemplateName": r.names.template,
        "template": {"id": "lt-1", "version": "1", "hash": r.fingerprint.hash, "lastReadyVersion": "1"},
        "managed": {"tags": sorted.0, "policies": sorted.1, "authEntries": [r.role_arn]},
    }))
    .expect("a status");
    world
}

fn node(instance: &str) -> NodeView {
    NodeView {
        name: format!("node-{instance}"),
        resource_version: "7".into(),
        ready: true,
        was_ready: true,
        ready_since: Some(at(LONG_AGO)),
        cordoned: false,
        disruption: None,
        surge: None,
        created: at(LONG_AGO),
        rivals: vec![],
    }
}

impl World {
    /// The same cloud, another wish.
    fn wants(mut self, extra: &str) -> Self {
        self.resolved = resolved(extra, &[]);
        self
    }

    fn with(mut self, change: impl FnOnce(&mut World)) -> Self {
        change(&mut self);
        self
    }

    fn group(self, change: impl FnOnce(&mut ScalingGroup)) -> Self {
        self.with(|w| change(w.state.group.as_mut().expect("a group")))
    }

    fn plan(&self) -> Plan {
        let timing = Timing::default();
        plan(&Input {
            resolved: &self.resolved,
            state: &self.state,
            status: &self.status,
            lock: self.lock,
            retention: 2,
            timing: &timing,
            now: at(NOW),
        })
    }
}

fn plain() -> World {
    standing(resolved("{}", &[]))
}

/// Everything but the scaling group, known by its tags as our own writes tell them.
fn ungrouped(w: &mut World) {
    w.state.group = None;
    let ours = w.resolved.ownership.clone();
    let profile = w.state.profile.as_mut().expect("a profile");
    profile.role.as_mut().expect("a role").tags.clone_from(&ours);
    profile.tags = ours;
}

fn of_type(name: &str) -> Override {
    Override { instance_type: name.into(), weight: 1 }
}

/// Without a type that AWS has launched since.
fn pooled() -> World {
    standing(resolved(POOL, &[])).group(|g| {
        g.mixed.as_mut().expect("a policy").overrides.retain(|o| o.instance_type != "m5n.large");
    })
}

fn mixed() -> World {
    standing(resolved(MIXED, &[]))
}

/// Two nodes of one unit and one of two.
fn weighted() -> World {
    standing(resolved(WEIGHTED, &[]))
        .group(|g| {
            g.instances.push(Instance { id: "i-3".into(), weight: 2, ..g.instances[0].clone() });
        })
        .with(|w| _ = w.state.nodes.insert("i-3".into(), node("i-3")))
}

fn foreign() -> [Tag; 1] {
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

/// What others set, in a group that remembers what it set itself, or not.
fn theirs(world: World) -> World {
    world
        .group(|g| {
            g.tags.extend(foreign());
            g.suspended = vec!["AZRebalance".into()];
            g.metrics = vec!["GroupMaxSize".into()];
        })
        .with(|w| w.state.hooks = Some(vec![hook("theirs")]))
}

/// A second version that is not ours, at `$Latest`, while a node runs the first, which is not ours either.
fn left_by_another() -> World {
    plain()
        .with(|w| {
            w.state.versions.get_mut(&1).expect("a version").fingerprint = None;
            let data = resolved(NEW_IMAGE, &[]).data;
            w.state.versions.insert(2, Version { fingerprint: None, data: Some(data) });
            let template = w.state.template.as_mut().expect("a template");
            (template.default_version, template.latest_version) = (2, 2);
            template.tags.clear();
        })
        .group(|g| {
            g.template.as_mut().expect("a pin").version = "$Latest".into();
            g.instances[1].template.as_mut().expect("a version").version = "2".into();
        })
}

fn scenarios() -> Vec<(&'static str, World)> {
    let given = || resolved("eks: {configuration: {roleName: given}}", &[]);
    let second = |w: &mut World| {
        let newer = resolved(NEW_IMAGE, &[]);
        w.state.versions.insert(2, Version { fingerprint: Some(newer.fingerprint), data: Some(newer.data) });
        w.state.template.as_mut().expect("a template").latest_version = 2;
    };
    vec![
        ("create-own-role", fresh(resolved("{}", &[])).with(|w| w.resolved.wanted.id.finalizer = false)),
        ("create-given-role", fresh(given())),
        (
            "create-after-a-collision",
            fresh(given()).with(|w| {
                let ours = w.resolved.ownership.clone();
                w.state.leftover = Some(LaunchTemplate {
                    id: "lt-0".into(),
                    name: "taken-by-another".into(),
                    default_version: 1,
                    latest_version: 1,
                    tags: ours,
                });
            }),
        ),
        ("create-second-pass", plain().with(ungrouped)),
        (
            "create-auth-conflict",
            fresh(given())
                .with(|w| w.state.join.auth = EntryState::Conflict { detail: "another entry has this rolearn".into() }),
        ),
        ("converged", plain()),
        ("sizes", plain().wants("eks: {minSize: 1, maxSize: 6}")),
        ("scale-in-is-paced", plain().group(|g| g.desired = 4).wants("eks: {minSize: 1, maxSize: 1}")),
        (
            "scale-in-drains",
            plain().group(|g| (g.min, g.max, g.desired) = (1, 2, 2)).wants("eks: {minSize: 1, maxSize: 1}"),
        ),
        (
            "scale-in-ends",
            plain()
                .group(|g| {
                    (g.min, g.max, g.desired) = (1, 2, 1);
                    g.instances.truncate(1);
                })
                .wants("eks: {minSize: 1, maxSize: 1}"),
        ),
        ("subnets", plain().group(|g| g.subnets = vec!["subnet-9".into()])),
        ("tag-repaired", plain().group(|g| g.tags.retain(|t| t.key != "KubernetesCluster"))),
        ("attributes-added", plain().with(|w| w.state.hooks = Some(vec![])).wants(ATTRIBUTES)),
        ("role-repaired", plain().with(|w| _ = w.state.attached.pop())),
        (
            "profile-repaired",
            plain().with(|w| {
                let (ours, profile) = (w.resolved.ownership.clone(), w.state.profile.as_mut().expect("a profile"));
                (profile.role, profile.tags) = (None, ours);
            }),
        ),
        ("auth-repaired", plain().with(|w| w.state.join.auth = EntryState::Absent)),
        ("new-version", plain().wants(NEW_IMAGE)),
        ("repin-a-retained-version", plain().with(second).wants(NEW_IMAGE)),
        (
            "rotation-begins",
            plain().with(second).group(|g| g.template.as_mut().expect("a pin").version = "2".into()).wants(NEW_IMAGE),
        ),
        (
            "rotation-surges",
            plain()
                .with(second)
                .group(|g| g.template.as_mut().expect("a pin").version = "2".into())
                .wants("{strategy: {rollingUpdate: {maxSurge: 50%}}, eks: {configuration: {image: ami-00000002}}}"),
        ),
        (
            "rotation-locked",
            plain()
                .with(second)
                .group(|g| g.template.as_mut().expect("a pin").version = "2".into())
                .wants(NEW_IMAGE)
                .with(|w| w.lock = Some("the annotation lock-upgrades")),
        ),
        (
            "nodes-of-another-template",
            plain().group(|g| g.instances[0].template.as_mut().expect("a pin").id = "lt-9".into()),
        ),
        (
            "revert-gives-nodes-back",
            plain().with(|w| {
                let mark = Disruption {
                    group: "uid-1".into(),
                    template_version: "2".into(),
                    since: at(LONG_AGO),
                    cordoned_before: false,
                };
                w.state.nodes.get_mut("i-1").expect("a node").disruption = Some(mark);
            }),
        ),
        (
            "adoption",
            plain()
                .wants(NEW_IMAGE)
                .with(|w| {
                    w.status = InstanceGroupStatus::default();
                    w.state.versions.get_mut(&1).expect("a version").fingerprint = None;
                    w.state.template.as_mut().expect("a template").tags.clear();
                })
                .group(|g| g.template.as_mut().expect("a pin").version = "$Latest".into()),
        ),
        ("adoption-with-older-nodes", theirs(left_by_another()).with(|w| w.status = InstanceGroupStatus::default())),
        (
            "older-nodes-stay-after-an-adoption",
            left_by_another()
                .with(|w| {
                    let template = w.status.template.as_mut().expect("a record");
                    template.version = Some("2".into());
                    template.adopted_hash = template.hash.clone();
                    template.adopted_version = Some("2".into());
                })
                .group(|g| g.template.as_mut().expect("a pin").version = "2".into()),
        ),
        (
            "adoption-after-another-controller-led-in-between",
            left_by_another().with(|w| w.status.latest_template_version = Some("2".into())),
        ),
        ("a-version-that-a-person-made-is-no-takeover", left_by_another()),
        (
            "rotate-at-brings-what-a-takeover-left",
            plain().with(|w| {
                w.resolved = resolved(NEW_IMAGE, &[("rotate-at", NOW)]);
                w.state.versions.get_mut(&1).expect("a version").fingerprint = None;
                w.state.launched = ["i-1", "i-2"].map(|id| (id.to_owned(), at(LONG_AGO))).into();
                let template = w.status.template.as_mut().expect("a record");
                template.adopted_hash = Some(w.resolved.fingerprint.hash.clone());
                template.adopted_version = Some("1".into());
            }),
        ),
        (
            "rotate-at-is-waited-for",
            plain().with(|w| w.resolved = resolved("{}", &[("rotate-at", "2026-01-03T00:00:00Z")])),
        ),
        (
            "launched-in-the-second-of-rotate-at",
            plain().with(|w| {
                w.resolved = resolved("{}", &[("rotate-at", "2026-01-01T00:00:00.9Z")]);
                w.state.launched = ["i-1", "i-2"].map(|id| (id.to_owned(), at(LONG_AGO))).into();
            }),
        ),
        ("foreign-attributes-live-on", theirs(plain())),
        ("foreign-attributes-live-on-without-a-record", theirs(plain()).with(|w| w.status.managed = None)),
        (
            "recorded-attributes-go",
            theirs(plain()).with(|w| {
                let managed = w.status.managed.as_mut().expect("a record");
                managed.tags.push("cost-centre".into());
                managed.hooks = vec!["theirs".into()];
                managed.processes = vec!["AZRebalance".into()];
                managed.metrics = vec!["GroupMaxSize".into()];
            }),
        ),
        ("mixed-is-created", mixed().with(ungrouped)),
        ("mixed-converged", mixed()),
        (
            "mixed-ratio-changes-in-place",
            mixed().wants(MIXED).with(|w| {
                w.resolved = resolved(&MIXED.replace("50", "80%"), &[]);
            }),
        ),
        ("mixed-is-added", plain().wants(MIXED)),
        ("mixed-is-added-without-spot", plain().wants(WEIGHTED)),
        ("mixed-is-removed", standing(resolved(WEIGHTED, &[])).wants("{}")),
        (
            "mixed-is-repaired",
            mixed().group(|g| {
                let held = g.mixed.as_mut().expect("a policy");
                held.overrides.pop();
                held.distribution.on_demand_base = 0;
                held.distribution.spot_max_price = Some("0.1".into());
            }),
        ),
        ("mixed-gets-a-new-version", mixed().with(|w| w.resolved.fingerprint.hash = "other".into())),
        (
            "mixed-of-the-original",
            mixed().group(|g| {
                let held = g.mixed.as_mut().expect("a policy");
                held.overrides.insert(1, held.overrides[0].clone());
            }),
        ),
        ("pool-is-computed-at-creation", pooled().with(ungrouped)),
        ("pool-that-grew-changes-nothing", pooled()),
        ("pool-grows-with-another-change", pooled().with(|w| w.resolved = resolved(&POOL.replace("50", "80"), &[]))),
        ("pool-grows-with-a-new-version", pooled().with(|w| w.resolved.fingerprint.hash = "other".into())),
        (
            "pool-in-the-order-of-the-original",
            pooled().group(|g| g.mixed.as_mut().expect("a policy").overrides.reverse()),
        ),
        ("pool-that-was-never-filled", pooled().group(|g| g.mixed.as_mut().expect("a policy").overrides.truncate(1))),
        (
            "pool-member-that-somebody-took-out-comes-back",
            pooled()
                .with(|w| w.status.managed.as_mut().expect("a record").pool = vec!["m5a.large".into()])
                .group(|g| g.mixed.as_mut().expect("a policy").overrides.retain(|o| o.instance_type != "m5a.large")),
        ),
        (
            "pool-without-a-foreign-type",
            pooled().group(|g| g.mixed.as_mut().expect("a policy").overrides.push(of_type("c5.large"))),
        ),
        (
            "spot-is-created",
            standing(resolved(SPOT, &[])).with(|w| {
                ungrouped(w);
                w.state.template = None;
            }),
        ),
        ("spot-converged", standing(resolved(SPOT, &[]))),
        ("spot-price-changes", standing(resolved(SPOT, &[])).wants(&SPOT.replace("0.08", "0.1"))),
        ("spot-goes", standing(resolved(SPOT, &[])).wants("{}")),
        (
            "spot-is-recommended",
            plain().wants(SPOT).with(|w| {
                w.resolved.wanted.recommended = Some(SpotRecommendation {
                    use_spot: true,
                    spot_price: "0.08".into(),
                    given: LONG_AGO.into(),
                    over: String::new(),
                });
            }),
        ),
        (
            "spot-is-ignored-in-a-mixed-group",
            mixed()
                .wants(&MIXED.replace("mixedInst", "spotPrice: '1', mixedInst"))
                .with(|w| w.resolved.fingerprint.hash = "other".into()),
        ),
        (
            "weighted-scale-in-takes-what-fits",
            weighted().group(|g| (g.max, g.desired) = (4, 4)).wants(WEIGHTED).with(|w| w.resolved.wanted.max = 3),
        ),
        (
            "weighted-scale-in-that-fits-no-node",
            weighted()
                .group(|g| {
                    (g.max, g.desired) = (4, 4);
                    g.instances.truncate(2);
                    g.instances.iter_mut().for_each(|i| i.weight = 2);
                })
                .with(|w| w.resolved.wanted.max = 3),
        ),
        (
            "name-collision",
            plain().group(|g| {
                g.tags = vec![Tag { key: "instancegroups.keikoproj.io/Namespace".into(), value: "other".into() }]
            }),
        ),
        (
            "launch-suspended",
            plain()
                .with(second)
                .group(|g| {
                    g.template.as_mut().expect("a pin").version = "2".into();
                    g.suspended = vec!["Launch".into()];
                })
                .wants(NEW_IMAGE),
        ),
    ]
}

fn hold(name: &str, plan: &Plan) {
    let value = serde_json::to_value(plan).expect("a plan is data");
    hold_text(name, &serde_yaml::to_string(&value).expect("a plan is YAML"));
}

fn hold_text(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/plans/{name}.yaml"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("the directory is made");
        std::fs::write(&path, text).expect("the golden file is written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == text, "{} is stale: UPDATE_GOLDEN=1 cargo test --test plans\n{text}", path.display());
}

#[test]
fn plans_are_what_the_golden_files_hold() {
    for (name, world) in scenarios() {
        hold(name, &world.plan());
    }
}

mod fargate;

mod release;

mod access_entries;

mod takeover_tags;

mod attributes;

mod warm_pool;

mod launch_configuration;

mod crd_strategy;

mod ownership;

mod nodegroup;

#[test]
fn deletions_are_what_the_golden_files_hold() {
    let world = plain();
    let r = &world.resolved;
    let timing = Timing::default();
    let members: Vec<_> = (world.state.group.iter().flat_map(|g| &g.instances))
        .map(|i| Member { instance: i.clone(), node: world.state.nodes.get(&i.id).cloned(), outdated: vec![] })
        .collect();
    let emptied = ScalingGroup {
        min: 0,
        suspended: vec!["Launch".into()],
        instances: vec![],
        ..world.state.group.clone().expect("a group")
    };
    let going = ScalingGroup { deleting: true, ..emptied.clone() };
    let role =
        Role { id: "AROA-1".into(), name: r.names.role.clone(), arn: r.role_arn.clone(), tags: r.ownership.clone() };
    let profile = InstanceProfile { tags: r.ownership.clone(), ..world.state.profile.clone().expect("a profile") };
    let adopted = AdoptedResources::default();
    let configurations = [launch_configuration::FOUND.to_owned()];
    let added: Vec<_> = r.policies.iter().cloned().chain(["arn:aws:iam::1:policy/theirs".to_owned()]).collect();
    let rest = |group, members, attached| delete::Input {
        id: &r.wanted.id,
        ownership: &r.ownership,
        group,
        members,
        drains: &world.state.drains,
        template: world.state.template.as_ref(),
        configurations: &configurations,
        role: Some(&role),
        attached,
        our_policies: &r.policies,
        inline: &[],
        profile: Some(&profile),
        adopted: &adopted,
        auth: std::slice::from_ref(&r.auth),
        access: &[],
        after: None,
        timing: &timing,
        now: at(NOW),
    };
    let policies = r.policies.as_slice();
    hold("delete-drains", &delete::plan(&rest(world.state.group.as_ref(), &members, policies)));
    let launched = ScalingGroup {
        template: None,
        launch_configuration: Some("demo-team-web-20250101000001".into()),
        ..emptied.clone()
    };
    hold("delete-records-the-configuration", &delete::plan(&rest(Some(&launched), &[], policies)));
    hold("delete-empty-group", &delete::plan(&rest(Some(&emptied), &[], policies)));
    hold("delete-waits-for-aws", &delete::plan(&rest(Some(&going), &[], policies)));
    hold("delete-the-rest", &delete::plan(&rest(None, &[], policies)));
    hold("delete-blocked-by-a-policy", &delete::plan(&rest(None, &[], &added)));
    let plan = delete::plan(&delete::Input { after: Some("team/db"), ..rest(None, &[], policies) });
    assert!(
        plan.steps.is_empty()
            && matches!(&plan.outcome, Outcome::Progressing { message, .. } if message.contains("team/db")),
        "{plan:?}"
    );
    // Its tags were damaged, or taken off: its nodes run by the role, and by the entry that lets them join.
    let standing = || world.state.group.clone().expect("a group");
    let mut tags = standing().tags;
    tags.retain(|t| !t.key.ends_with("/Namespace"));
    let damaged = ScalingGroup { tags, ..standing() };
    hold("delete-blocked-by-damaged-tags", &delete::plan(&rest(Some(&damaged), &members, policies)));
    let stripped = ScalingGroup { tags: vec![], ..standing() };
    let plan = delete::plan(&rest(Some(&stripped), &members, policies));
    let remedy = "to keep it, take the finalizer finalizer.instancegroups.keikoproj.io off";
    assert!(plan.steps.is_empty() && blocked(&plan).contains(remedy), "no tag is left to take off: {plan:?}");
    let pin = TemplatePin { id: "lt-of-somebody".into(), version: "1".into() };
    let half = ScalingGroup { template: Some(pin.clone()), ..damaged.clone() };
    let plan = delete::plan(&rest(Some(&half), &[], policies));
    assert!(plan.steps.is_empty() && blocked(&plan).contains("else take those tags off"), "{plan:?}");
    let somebodys = ScalingGroup { template: Some(pin), ..stripped.clone() };
    let plan = delete::plan(&rest(Some(&somebodys), &[], policies));
    assert_eq!(plan.outcome, Outcome::Deleted, "a name alone keeps no finalizer");
    // What was taken over and could not be tagged.
    let bare = (
        LaunchTemplate { tags: vec![], ..world.state.template.clone().expect("a template") },
        Role { tags: vec![], ..role.clone() },
        InstanceProfile { tags: vec![], ..profile.clone() },
    );
    let of = |adopted| delete::Input {
        template: Some(&bare.0),
        role: Some(&bare.1),
        profile: Some(&bare.2),
        adopted,
        ..rest(None, &[], policies)
    };
    let id = |id: &str| Some(id.to_owned());
    let recorded = AdoptedResources { template: id("lt-1"), role: id("AROA-1"), profile: id("AIPA-1") };
    hold("delete-what-lacks-its-tags", &delete::plan(&of(&recorded)));
    let later = AdoptedResources { template: id("lt-0"), role: id("AROA-0"), profile: id("AIPA-0") };
    hold("delete-nothing-of-the-same-name", &delete::plan(&of(&later)));
    let claim = Tag { key: "instancegroups.keikoproj.io/InstanceGroup".into(), value: "another".into() };
    let claimed = InstanceProfile { tags: vec![claim], ..profile.clone() };
    let plan = delete::plan(&delete::Input { profile: Some(&claimed), ..of(&recorded) });
    assert!(
        plan.steps.iter().all(|s| !matches!(
            s.step,
            Step::Iam(IamStep::DeleteProfile { .. }) | Step::Iam(IamStep::TagProfile { .. })
        ))
    );
}

/// What one pass sends as the largest size, if anything.
fn largest(world: &World) -> Option<i32> {
    world.plan().steps.iter().find_map(|planned| match &planned.step {
        Step::Eks(EksStep::UpdateGroup { change, .. }) => change.max,
        _ => None,
    })
}

#[test]
fn a_smaller_maximum_never_leaves_so_much_beyond_desired_as_a_node_weighs() {
    let of = |weights: &[u32], desired: i32, max: i32, wanted: i32| {
        weighted()
            .group(|g| {
                let one = g.instances[0].clone();
                g.instances = (weights.iter().enumerate())
                    .map(|(n, weight)| Instance { id: format!("i-{n}"), weight: *weight, ..one.clone() })
                    .collect();
                (g.min, g.max, g.desired) = (1, max, desired);
            })
            .with(|w| (w.resolved.wanted.min, w.resolved.wanted.max) = (1, wanted))
    };
    let ends = |world: World| world.plan().steps.iter().filter(|p| p.step.disrupts()).count();
    assert_eq!(largest(&of(&[4, 4, 4], 10, 12, 8)), Some(9), "twelve units are there, though ten are desired");
    assert_eq!((largest(&of(&[4, 4, 4], 9, 9, 8)), ends(of(&[4, 4, 4], 9, 9, 8))), (None, 1));
    assert_eq!(largest(&of(&[4, 4], 8, 9, 8)), Some(8));
    assert_eq!(largest(&of(&[4, 4, 4], 10, 12, 9)), Some(9), "three units are less than any node");
    assert_eq!(largest(&of(&[4, 4, 2], 10, 12, 8)), Some(9));
    assert_eq!(largest(&of(&[4, 4], 10, 12, 8)), Some(10), "a third one is on its way");
    let failing = of(&[4, 4], 10, 12, 8).with(|w| w.state.short_for = SignedDuration::from_mins(5));
    assert_eq!(largest(&failing), Some(8), "and never came");
    assert_eq!(
        ends(of(&[1, 1, 1, 1, 1], 4, 4, 4)),
        0,
        "the fifth was launched to balance zones: Auto Scaling takes one"
    );
}

#[test]
fn an_instance_that_two_nodes_say_they_are_is_neither_drained_nor_terminated() {
    let claimed = |w: &mut World| w.state.nodes.values_mut().for_each(|n| n.rivals = vec!["node-liar".into()]);
    let second = |w: &mut World| {
        let wanted = Version { fingerprint: Some(w.resolved.fingerprint.clone()), data: Some(w.resolved.data.clone()) };
        w.state.versions.insert(2, wanted);
        w.state.template.as_mut().expect("a template").latest_version = 2;
    };
    let repinned = |g: &mut ScalingGroup| g.template.as_mut().expect("a pin").version = "2".into();
    let outdated = || plain().wants(NEW_IMAGE).with(second).group(repinned);
    assert!(outdated().plan().steps.iter().any(|p| p.step.disrupts()), "alone they would go");
    let plan = outdated().with(claimed).plan();
    assert!(!plan.steps.iter().any(|p| p.step.disrupts()), "{:?}", plan.steps);
    let told = plan.notes.iter().find(|n| n.condition == "DrainBlocked" && n.status).expect("a condition");
    assert!(told.message.contains("node-i-1, node-liar"), "{}", told.message);
}

#[test]
fn a_converged_group_has_no_step() {
    assert_eq!(plain().plan().steps, vec![]);
    assert_eq!(plain().plan().outcome, Outcome::Converged);
}

/// Any observed state of a group that was once in order.
fn any_world() -> impl Strategy<Value = World> {
    let wish = prop::sample::select(vec!["{}", NEW_IMAGE, ATTRIBUTES, "eks: {minSize: 0, maxSize: 1}"]);
    let state = prop::sample::select(vec![
        InstanceState::InService,
        InstanceState::Pending,
        InstanceState::Terminating,
        InstanceState::Standby,
        InstanceState::Other,
    ]);
    let instance = (state, any::<(bool, bool, bool, bool)>(), 1i64..4);
    let seen = any::<(bool, bool, bool, bool, bool, bool)>();
    (wish, prop::collection::vec(instance, 0..6), seen, 0i32..6, any::<bool>()).prop_map(
        |(wish, instances, (record, profile, attached, floating, launch, auth), desired, locked)| {
            let mut world = theirs(plain()).wants(wish);
            world.lock = locked.then_some("a test");
            if !record {
                world.status.managed = None;
            }
            if !profile {
                world.state.profile = None;
            }
            if !attached {
                world.state.attached.clear();
            }
            if !auth {
                world.state.join.auth = EntryState::Absent;
            }
            let group = world.state.group.as_mut().expect("a group");
            group.desired = desired;
            if floating {
                group.template.as_mut().expect("a pin").version = "$Latest".into();
            }
            if launch {
                group.suspended.push("Launch".into());
            }
            group.instances.clear();
            world.state.nodes.clear();
            for (number, (state, (joined, ready, cordoned, marked), version)) in instances.into_iter().enumerate() {
                let id = format!("i-{number}");
                let mut one = node(&id);
                (one.ready, one.cordoned) = (ready, cordoned);
                let mark = || Disruption {
                    group: "uid-1".into(),
                    template_version: "1".into(),
                    since: at(LONG_AGO),
                    cordoned_before: false,
                };
                one.disruption = marked.then(mark);
                if joined {
                    world.state.nodes.insert(id.clone(), one);
                }
                let template = Some(TemplatePin { id: "lt-1".into(), version: version.to_string() });
                let zone = "us-west-2a".into();
                let in_service_since = Some(at(LONG_AGO));
                group.instances.push(Instance {
                    id,
                    zone,
                    state,
                    healthy: true,
                    template,
                    configuration: None,
                    weight: 1,
                    in_service_since,
                });
            }
            world
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_plan_takes_nodes_away_while_locked(mut world in any_world()) {
        world.lock = Some("a test");
        let plan = world.plan();
        prop_assert!(!plan.steps.iter().any(|planned| planned.step.disrupts()), "{:?}", plan.steps);
    }

    #[test]
    fn no_plan_removes_what_is_not_recorded(world in any_world()) {
        let managed = world.status.managed.clone().unwrap_or_default();
        for planned in world.plan().steps {
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
    fn planning_twice_gives_the_same(world in any_world()) {
        prop_assert_eq!(world.plan(), world.plan());
    }
}

#[test]
fn only_a_group_that_needs_another_version_is_looked_at_before() {
    use instance_manager::provisioner::eks::launch_template::launch_checks::due;
    let due = |w: &World| due(&w.resolved, &w.state, &w.status);
    assert!(due(&fresh(resolved("{}", &[]))), "nothing has been made");
    assert!(!due(&plain()), "its image may be gone by now, and nothing needs it");
    assert!(!due(&plain().wants("eks: {minSize: 3}")), "sizes need no version");
    assert!(due(&plain().wants(NEW_IMAGE)), "the image changed");
}
