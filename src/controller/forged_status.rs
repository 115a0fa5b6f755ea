//! A user who may write the status of a group could name the resources of another group, or of another owner, in it. Each
//! resource below has `victim` in its name, ID or ARN, and no plan touches it.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::fake;
use super::planner::GroupContext;
use crate::api::names::FINALIZER;
use crate::api::{self, GroupObject, InstanceGroup, group_id, schema};
use crate::auth::aws_auth::MapRoles;
use crate::aws::fargate::{FargateProfile, ProfileStatus};
use crate::aws::inventory::fake_aws::FakeAws;
use crate::aws::nodegroup::{Nodegroup, NodegroupName};
use crate::aws::samples::{self, cluster, instance, network_object, scaling_group};
use crate::aws::{
    AccessEntry, Cluster, InstanceProfile, LaunchTemplate, Role, ScalingGroup, Tag, TemplateData, TemplatePin,
    TemplateVersion,
};
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
use crate::index::groups::GroupIndex;
use crate::index::nodes::NodeIndex;
use crate::ownership::ownership_tags;
use crate::plan::{IamStep, ObjectStep, PlannedStep, Step};

const VICTIM_ROLE: &str = "arn:aws:iam::1:role/victim";
const VICTIM_NODEGROUP: &str = "arn:aws:eks:us-west-2:1:nodegroup/demo/victim/1";
/// The role of this name belongs to another group, whose resources derive the same names.
const CLAIMED_ROLE: &str = "demo-team-web";

/// What a hostile writer puts into each field that names a resource, with what else the attack needs.
fn forged_statuses() -> Vec<(&'static str, Value)> {
    let strategy = json!({
        "strategyResourceName": "victim", "strategyResourceNamespace": "victim",
        "strategyProgress": {"state": "Submitted", "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
            "uid": "victim", "statusJSONPath": ".status.phase"},
    });
    let adopted = |field: &str, id: &str| json!({"managed": {"policies": ["x"], "adopted": {field: id}}});
    let nodegroup = json!({"managed": {"nodegroups": ["demo/victim"], "nodegroupArns": [VICTIM_NODEGROUP]}});
    vec![
        ("activeScalingGroupName", json!({"activeScalingGroupName": "victim"})),
        ("activeScalingGroupName", json!({"activeScalingGroupName": "demo-team-victim"})),
        // The group of the same namespace and name in another cluster of the account.
        ("activeScalingGroupName", json!({"activeScalingGroupName": "victim-team-web"})),
        ("activeLaunchTemplateName", json!({"activeLaunchTemplateName": "victim"})),
        ("activeLaunchConfigurationName", json!({"activeLaunchConfigurationName": "victim"})),
        ("template.id", json!({"activeLaunchTemplateName": "victim", "template": {"id": "lt-victim"}})),
        ("nodesInstanceRoleArn", json!({"nodesInstanceRoleArn": VICTIM_ROLE})),
        ("strategyResourceName", strategy.clone()),
        ("strategyResourceNamespace", strategy.clone()),
        ("strategyProgress.uid", strategy.clone()),
        ("strategyProgress.apiVersion", strategy.clone()),
        ("strategyProgress.kind", strategy),
        ("managed.configurations", json!({"managed": {"configurations": ["victim", "demo-team-web-victim-1"]}})),
        ("managed.policies", json!({"managed": {"policies": ["arn:aws:iam::1:policy/victim"]}})),
        ("managed.nodegroups", json!({"managed": {"nodegroups": ["demo/victim"]}})),
        ("managed.nodegroups", json!({"managed": {"nodegroups": ["victim/web"]}})),
        ("managed.nodegroups", json!({"managed": {"nodegroups": ["demo/web", "victim/web"]}})),
        ("managed.nodegroupArns", nodegroup),
        ("managed.authEntries", json!({"managed": {"authEntries": [VICTIM_ROLE]}})),
        ("managed.accessEntries", json!({"managed": {"accessEntries": [VICTIM_ROLE]}})),
        (
            "managed.adopted.template",
            json!({"activeLaunchTemplateName": "victim", "managed": {"adopted": {"template": "lt-victim"}}}),
        ),
        ("managed.adopted.role", adopted("role", "AROA-victim")),
        ("managed.adopted.profile", adopted("profile", "AIPA-victim")),
        ("join.roleId", json!({"nodesInstanceRoleArn": VICTIM_ROLE, "join": {"roleId": "AROA-victim"}})),
        ("fargate.cluster", json!({"fargate": {"cluster": "victim", "profiles": ["victim"]}})),
        ("fargate.profiles", json!({"fargate": {"cluster": "demo", "profiles": ["victim"], "adoptedHash": "x"}})),
        ("updateId", json!({"updateId": "victim", "updateOf": "x"})),
    ]
}

/// Fields that name no resource, or only what belongs to a resource of the group itself.
const NAME_NO_OTHER_RESOURCE: [&str; 71] = [
    "boundariesRevision",
    "conditions",
    "configMD5",
    "currentState",
    "effective.image",
    "effective.instanceVersions",
    "effective.instanceTypes",
    "effective.subnets",
    "effective.versions",
    "effective.zones",
    "failedReplacements.instances",
    "failedReplacements.last",
    "failedReplacements.template",
    "fargate.adoptedHash",
    "fargate.retryAt",
    "fargate.subnets",
    "fargate.waitingSince",
    "join.accessEntry",
    "joining",
    "lastReconcileNow",
    "latestTemplateVersion",
    "lifecycle",
    "managed.adopted.summary",
    "managed.hooks",
    "managed.instanceTags",
    "managed.labels",
    "managed.leavingSubnets",
    "managed.metrics",
    "managed.nodegroupDeletion",
    "managed.pool",
    "managed.processes",
    "managed.roleExchangedAt",
    "managed.roleRegion",
    // Counts only for instances of the group's own scaling group.
    "managed.standby",
    "managed.standbyAt",
    "managed.startedInstanceTags",
    "managed.tags",
    "managed.taints",
    "nodes.outdatedInstances",
    "provisioner",
    "rejectedByRevision",
    "rollout.failure",
    "rollout.previous",
    "rollout.refused",
    "rollout.refusedHash",
    "rollout.revision",
    "rollout.settled",
    "rollout.since",
    "rollout.wave",
    "spotRecommendation.given",
    "spotRecommendation.namespace",
    "spotRecommendation.over",
    "spotRecommendation.spotPrice",
    "strategy",
    "strategyProgress.state",
    "strategyProgress.statusFailureString",
    "strategyProgress.statusJSONPath",
    "strategyProgress.statusSuccessString",
    "template.adoptedHash",
    "template.adoptedVersion",
    "template.defaultVolume.device",
    "template.defaultVolume.image",
    "template.deleted.hash",
    "template.deleted.id",
    "template.deleted.version",
    "template.hash",
    "template.lastReadyVersion",
    "template.version",
    "template.warmPool",
    "updateFailedAt",
    "updateOf",
];

/// Paths of all fields that contain text.
fn text_fields(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match property["type"].as_str() {
            Some("string" | "array") => found.push(path),
            Some("object") if property["properties"].is_object() => text_fields(property, &path, found),
            Some("object") => found.push(path),
            _ => {}
        }
    }
}

#[test]
fn every_field_of_the_status_has_a_case() {
    let mut fields = Vec::new();
    text_fields(schema::status(), "", &mut fields);
    let mut known: Vec<_> = forged_statuses().iter().map(|(field, _)| (*field).to_owned()).collect();
    known.extend(NAME_NO_OTHER_RESOURCE.map(str::to_owned));
    fields.sort();
    known.sort();
    known.dedup();
    assert_eq!(fields, known, "put a resource of another owner into the new field, or say that it names none");
}

fn spec_of(provisioner: &str) -> Value {
    let configuration = json!({"clusterName": "demo", "image": "ami-1", "instanceType": "m5.large",
        "subnets": ["subnet-1"], "securityGroups": ["sg-1"]});
    let nodegroup = json!({"clusterName": "demo", "nodeRole": "arn:aws:iam::1:role/nodes", "instanceType": "m5.large",
        "subnets": ["subnet-1"]});
    match provisioner {
        "eks" => json!({"eks": {"minSize": 1, "maxSize": 3, "configuration": configuration}}),
        // The role cannot be used, so the current one stays.
        "eks, broken role" => {
            let mut broken = configuration;
            broken["instanceProfileName"] = json!("missing");
            broken["roleName"] = json!("missing");
            json!({"eks": {"minSize": 1, "maxSize": 3, "configuration": broken}})
        }
        "eks-managed" => json!({"eks-managed": {"minSize": 1, "maxSize": 3, "configuration": nodegroup}}),
        _ => json!({"eks-fargate": {"clusterName": "demo", "selectors": [{"namespace": "team"}]}}),
    }
}

fn group(provisioner: &str, attack: &Value, is_deleting: bool) -> InstanceGroup {
    let kind = provisioner.split(',').next().unwrap_or_default();
    let mut spec = spec_of(provisioner);
    spec["provisioner"] = json!(kind);
    let mut status = json!({
        "provisioner": kind, "managed": {}, "activeLaunchTemplateName": "demo-team-web-20260101000000",
        "activeScalingGroupName": "demo-team-web",
    });
    api::apply_merge_patch(&mut status, attack);
    let object = json!({
        "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup", "spec": spec, "status": status,
        "metadata": {"name": "web", "namespace": "team", "uid": "own", "finalizers": [FINALIZER]},
    });
    let mut group: InstanceGroup = serde_json::from_value(object).expect("a group");
    // Nothing waits any more for what may have been created right before.
    let deleted_at = Timestamp::UNIX_EPOCH - SignedDuration::from_mins(1);
    group.metadata.deletion_timestamp = is_deleting.then_some(Time(deleted_at));
    group
}

fn own_tags(cluster: &str, name: &str) -> Vec<Tag> {
    let mut id = group_id(&group("eks", &json!({}), false));
    id.name = name.into();
    ownership_tags(cluster, &id)
}

fn group_of(name: &str, tags: Vec<Tag>, template: &str) -> ScalingGroup {
    let instance = instance(&format!("i-{name}"));
    ScalingGroup {
        subnets: vec!["subnet-1".into()],
        template: Some(TemplatePin { id: template.into(), version: "1".into() }),
        tags,
        instances: vec![instance],
        ..scaling_group(name)
    }
}

fn nodegroup(cluster: &str, name: &str, arn: &str, tags: &[Tag]) -> Nodegroup {
    let tags = tags.iter().map(|tag| (tag.key.clone(), tag.value.clone())).collect();
    let scaling_groups = vec!["victim".into()];
    Nodegroup { arn: arn.into(), scaling_groups, tags, ..samples::nodegroup(NodegroupName::new(cluster, name)) }
}

fn role(name: &str, id: &str, tags: Vec<Tag>) -> Role {
    let arn = format!("arn:aws:iam::1:role/{name}");
    Role { id: id.into(), name: name.into(), arn, tags, ..Role::default() }
}

fn profile(id: &str, role: Role) -> InstanceProfile {
    let (name, tags) = (role.name.clone(), role.tags.clone());
    let arn = format!("arn:aws:iam::1:instance-profile/{name}");
    InstanceProfile { id: id.into(), name, arn, created: None, role: Some(role), tags }
}

fn template(name: &str, id: &str, tags: Vec<Tag>) -> LaunchTemplate {
    LaunchTemplate { id: id.into(), name: name.into(), default_version: 1, latest_version: 1, tags }
}

/// The victims, and with `exists` the resources of the group itself.
fn world(exists: bool) -> Arc<FakeAws> {
    let aws = Arc::new(FakeAws::default());
    aws.update(|d| {
        for name in ["demo", "victim"] {
            let mode = "API_AND_CONFIG_MAP".into();
            d.clusters.insert(name.into(), Cluster { authentication_mode: mode, ..cluster(name) });
        }
        d.subnets.push(network_object("subnet-1"));
        d.security_groups.push(network_object("sg-1"));
        let mut groups = vec![
            group_of("victim", vec![], "lt-victim"),
            group_of("demo-team-victim", own_tags("demo", "victim"), "lt-victim"),
            group_of("victim-team-web", own_tags("victim", "web"), "lt-victim"),
        ];
        let mut templates = vec![template("victim", "lt-victim", vec![])];
        if exists {
            groups.push(group_of("demo-team-web", own_tags("demo", "web"), "lt-own"));
            templates.push(template("demo-team-web-20260101000000", "lt-own", own_tags("demo", "web")));
            let data = TemplateData { profile_arn: "own".into(), ..TemplateData::default() };
            d.versions.push(TemplateVersion { template_id: "lt-own".into(), number: 1, description: None, data });
        }
        d.groups = groups.into_iter().map(|group| (group.name.clone(), group)).collect();
        d.templates = templates.into_iter().map(|template| (template.name.clone(), template)).collect();
        let data = TemplateData { profile_arn: "victim".into(), ..TemplateData::default() };
        d.versions.push(TemplateVersion { template_id: "lt-victim".into(), number: 1, description: None, data });
        let victim = role("victim", "AROA-victim", vec![]);
        let claimed = role(CLAIMED_ROLE, "AROA-victim", own_tags("demo", "victim"));
        for (id, role) in [("AIPA-other", victim), ("AIPA-victim", claimed)] {
            d.profiles.insert(role.name.clone(), profile(id, role.clone()));
            d.roles.insert(role.name.clone(), role);
        }
        d.instances.push(("i-victim".into(), "arn:aws:iam::1:instance-profile/victim".into()));
        for found in [
            nodegroup("demo", "victim", VICTIM_NODEGROUP, &[]),
            nodegroup("victim", "web", "arn:victim", &own_tags("victim", "web")),
        ] {
            d.nodegroups.insert(found.name.to_string(), found);
        }
        let found = FargateProfile {
            name: "victim".into(),
            arn: "arn:victim".into(),
            role_arn: VICTIM_ROLE.into(),
            subnets: vec!["subnet-1".into()],
            selectors: vec![],
            status: ProfileStatus::Active,
            issues: vec![],
            tags: own_tags("victim", "web"),
        };
        d.fargate.insert("victim".into(), found);
        d.access_entries.push(AccessEntry {
            principal: VICTIM_ROLE.into(),
            kind: "STANDARD".into(),
            created: None,
            tags: vec![],
        });
    });
    aws
}

fn context() -> GroupContext {
    let entry = format!(
        "- rolearn: {VICTIM_ROLE}\n  username: system:node:{{{{EC2PrivateDNSName}}}}\n  groups: ['system:bootstrappers', 'system:nodes']\n"
    );
    GroupContext {
        namespace_annotations: Some(Default::default()),
        active_boundaries: Arc::new(ActiveBoundaries {
            source: BoundariesSource::NotConfigured,
            ..ActiveBoundaries::default()
        }),
        map_roles: Arc::new(MapRoles::parse(Some(&entry))),
        group_index: Arc::new(GroupIndex::default()),
        ..GroupContext::default()
    }
}

/// An API server without pods, and with a Workflow that no InstanceGroup submitted.
fn api_server() -> kube::Client {
    crate::k8s::fake::client(|call| match call.path.as_str() {
        "/apis/argoproj.io/v1alpha1" => {
            let resource =
                json!({"name": "workflows", "kind": "Workflow", "namespaced": true, "singularName": "", "verbs": []});
            (200, json!({"kind": "APIResourceList", "groupVersion": "argoproj.io/v1alpha1", "resources": [resource]}))
        }
        path if path.ends_with("/workflows/victim") => (
            200,
            json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
                "metadata": {"name": "victim", "namespace": "victim", "uid": "victim"}, "status": {"phase": "Running"}}),
        ),
        path if path.starts_with("/api/v1/nodes/") => crate::k8s::fake::failure(404, "NotFound", "no such node"),
        _ => (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []})),
    })
}

fn touches_victim(step: &Step) -> bool {
    match step {
        // What is recorded is judged when it is read.
        Step::Object(ObjectStep::UpdateStatus { .. }) => false,
        // Policies are detached from the group's own role alone.
        Step::Iam(IamStep::DetachPolicy { role, .. }) => role == CLAIMED_ROLE || role.contains("victim"),
        Step::Iam(iam) => {
            format!("{iam:?}").contains(&format!("\"{CLAIMED_ROLE}\"")) || format!("{iam:?}").contains("victim")
        }
        step => format!("{step:?}").contains("victim"),
    }
}

/// The number of steps of a plan, and those that touch a victim.
async fn plan_steps(
    field: &str,
    provisioner: &str,
    attack: &Value,
    exists: bool,
    is_deleting: bool,
) -> (usize, Vec<String>) {
    let group = group(provisioner, attack, is_deleting);
    let planner = fake::planner(&world(exists), api_server(), NodeIndex::default());
    let context = context();
    context.group_index.upsert(&GroupObject(Ok(group.clone())));
    let planning = planner.plan(&group, &context, Duration::ZERO, Timestamp::UNIX_EPOCH).await;
    let plan = planning.unwrap_or_else(|error| panic!("{field} {provisioner}: {error}")).plan;
    let hits = plan.steps.iter().filter(|planned| touches_victim(&planned.step));
    let describe = |planned: &PlannedStep| {
        format!("{field}, {provisioner}, exists {exists}, deleting {is_deleting}: {:?}", planned.step)
    };
    (plan.steps.len(), hits.map(describe).collect())
}

#[tokio::test]
async fn no_plan_touches_what_only_the_status_names() {
    let forged_statuses = forged_statuses();
    let mut plans = Vec::new();
    for (field, attack) in &forged_statuses {
        for provisioner in ["eks", "eks, broken role", "eks-managed", "eks-fargate"] {
            for (exists, is_deleting) in [(true, false), (false, false), (true, true), (false, true)] {
                plans.push(plan_steps(field, provisioner, attack, exists, is_deleting));
            }
        }
    }
    let (steps, touched): (Vec<_>, Vec<_>) = futures::future::join_all(plans).await.into_iter().unzip();
    let touched: Vec<_> = touched.into_iter().flatten().collect();
    assert!(touched.is_empty(), "{touched:#?}");
    assert!(steps.iter().sum::<usize>() > 100, "the plans are not what the test is about");
}
