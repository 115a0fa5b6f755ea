//! Tests of observing a group, also when AWS returns incomplete data.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::names::{FINALIZER, condition};
use crate::api::spec_error::SpecError;
use crate::api::{Condition, GroupId, InstanceGroup, InstanceGroupSpec, InstanceGroupStatus, decode_spec, group_id};
use crate::auth::access_entries::JoinMethod;
use crate::auth::aws_auth::{self, AuthEntry};
use crate::aws::inventory::fake_aws::FakeAws;
use crate::aws::samples::{cluster, instance, network_object, scaling_activity, scaling_group};
use crate::aws::{
    AccessEntry, AwsErrorKind, Cluster, Instance, InstanceProfile, LaunchTemplate, Role, ScalingGroup, Tag,
    TemplatePin, TemplateVersion,
};
use crate::provisioner::eks::launch_template::fingerprint::Fingerprint;
use crate::provisioner::eks::names::GroupNames;
use crate::provisioner::eks::observe::remaining_resources::remaining_resources;
use crate::provisioner::eks::observe::unrecorded;
use crate::provisioner::eks::observed::ObservedState;
use crate::provisioner::eks::references::References;
use crate::provisioner::eks::resolve::{ResolvedGroup, resolve};
use crate::provisioner::eks::{desired, ownership};
use crate::provisioner::join;
use crate::provisioner::name_form::NameForm;
use crate::provisioner::observe::fake::FakeCluster;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};
use crate::provisioner::rejected_fields::Part;

/// The group `team/web` in the cluster `demo`, with a role that the controller creates.
pub(super) fn resolved() -> ResolvedGroup {
    let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
    group.metadata.namespace = Some("team".into());
    let spec = json!({"provisioner": "eks", "eks": {"minSize": 1, "maxSize": 2, "configuration": {
        "clusterName": "demo", "image": "ami-00000001", "instanceType": "m5.large",
        "subnets": ["subnet-1"], "securityGroups": ["sg-1"],
    }}});
    let spec = decode_spec(&spec).expect("a spec");
    let references = References {
        cluster: Some(cluster("demo")),
        subnets: vec![network_object("subnet-1")],
        security_groups: vec![network_object("sg-1")],
        ..References::default()
    };
    let desired = desired::parse(&group_id(&group), &Default::default(), &spec).expect("a group");
    resolve(desired, &references, NameForm::Plain).expect("a resolved group")
}

async fn observe_with(
    stub: &Arc<FakeAws>,
    map_roles: &str,
    status: &InstanceGroupStatus,
) -> ObserveResult<ObservedState> {
    observe_group(stub, &resolved(), map_roles, status).await
}

async fn observe_group(
    stub: &Arc<FakeAws>,
    resolved: &ResolvedGroup,
    map_roles: &str,
    status: &InstanceGroupStatus,
) -> ObserveResult<ObservedState> {
    with_observer(stub, map_roles, async |observer| super::observe(&observer, resolved, status).await).await
}

/// Gives `read` an observer of a cluster without nodes and other groups.
async fn with_observer<T>(stub: &Arc<FakeAws>, map_roles: &str, read: impl AsyncFnOnce(Observer<'_>) -> T) -> T {
    let cluster = FakeCluster::new(stub).with_map_roles(map_roles);
    read(cluster.observer()).await
}

/// GetInstanceProfile returns no tags of the role. If the role counted as foreign, the group would use hashed names from
/// then on, and its first role and profile would be orphaned.
#[tokio::test]
async fn role_missing_from_iam_while_profile_holds_it_is_unavailable() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let name = resolved.names.role.clone();
    let profile_role = Role {
        id: "AROA-1".into(),
        name: name.clone(),
        arn: resolved.role_arn.clone(),
        tags: vec![],
        ..Role::default()
    };
    let profile = InstanceProfile {
        id: "AIPA-1".into(),
        name: name.clone(),
        arn: resolved.template_data.profile_arn.clone(),
        created: None,
        role: Some(profile_role.clone()),
        tags: resolved.iam_tags(),
    };
    stub.update(|d| _ = d.profiles.insert(name.clone(), profile));
    let status = InstanceGroupStatus::default();
    let Err(ObserveError::Aws(error)) = observe_with(&stub, "", &status).await else {
        panic!("the owner of the role is not known yet")
    };
    assert!(error.kind == AwsErrorKind::Unavailable && error.message.contains(&name), "{error}");
    stub.update(|d| _ = d.roles.insert(name, Role { tags: resolved.iam_tags(), ..profile_role }));
    let observed = observe_with(&stub, "", &status).await.expect("the role is readable now");
    assert!(!ownership::name_conflict(&resolved, &observed, &status));
    // A forecast that took the role for foreign would give the group other names as well.
    let cluster = FakeCluster::new(&stub);
    let observer = Observer { is_forecast: true, ..cluster.observer() };
    let observed = super::observe(&observer, &resolved, &status).await.expect("a state");
    assert!(!ownership::name_conflict(&resolved, &observed, &status));
}

/// Without the record, the entry of a previous role would stay forever after the scaling group was deleted manually.
#[tokio::test]
async fn previous_role_entries_stay_recorded_without_a_scaling_group() {
    let (old, admitted) = ("arn:aws:iam::1:role/before", "arn:aws:iam::1:role/admitted");
    let status = json!({"managed": {"authEntries": [resolved().role_arn, old], "accessEntries": [admitted]}});
    let status = serde_json::from_value(status).expect("a status");
    let map_roles =
        aws_auth::add_entries(None, &[AuthEntry::for_nodes(old, false)]).expect("an entry").expect("a text");
    let observed = observe_with(&Arc::new(FakeAws::default()), &map_roles, &status).await.expect("a state");
    assert!(observed.scaling_group.is_none());
    assert_eq!(
        (observed.previous_roles.recorded_auth_entries, observed.previous_roles.recorded_access_entries),
        (vec![old.to_owned()], vec![admitted.to_owned()])
    );
    assert!(
        observed.previous_roles.unused_auth_entries.is_empty()
            && observed.previous_roles.unused_access_entries.is_empty(),
        "instances with the old role may still launch"
    );
}

/// The launch template of the group, with one version.
fn own_template(resolved: &ResolvedGroup) -> LaunchTemplate {
    LaunchTemplate {
        id: "lt-1".into(),
        name: resolved.names.template.clone(),
        default_version: 1,
        latest_version: 1,
        tags: resolved.ownership_tags.clone(),
    }
}

/// A user deletes aws-auth, or applies an old copy, while the group changes its role. Nodes with the role before would
/// be silent for good, and a group whose nodes are all silent is not rotated.
#[tokio::test]
async fn deleted_entry_of_a_role_that_the_group_still_runs_with_is_missing() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let (given, forged) = ("arn:aws:iam::1:role/given", "arn:aws:iam::1:role/forged");
    let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
    let group = ScalingGroup { template: Some(pin), desired: 0, ..scaling_group(&resolved.names.scaling_group) };
    let template = own_template(&resolved);
    let mut data = resolved.template_data.clone();
    data.profile_arn = "arn:aws:iam::1:instance-profile/nodes".into();
    let role = |arn: &str| Role { id: "AROA-1".into(), name: "given".into(), arn: arn.into(), ..Role::default() };
    let profile = InstanceProfile {
        id: "AIPA-1".into(),
        name: "nodes".into(),
        arn: data.profile_arn.clone(),
        created: None,
        role: Some(role(given)),
        tags: vec![],
    };
    stub.update(|d| {
        d.groups.insert(group.name.clone(), group);
        d.templates.insert(template.name.clone(), template);
        d.versions.push(TemplateVersion { template_id: "lt-1".into(), number: 1, description: None, data });
        d.profiles.insert(profile.name.clone(), profile);
    });
    let status = json!({"managed": {"authEntries": [resolved.role_arn, given, forged]}});
    let status = serde_json::from_value(status).expect("a status");
    let found = observe_with(&stub, "", &status).await.expect("a state").previous_roles;
    assert_eq!(found.recorded_auth_entries, [given], "the record alone lets no role in");
    assert_eq!(found.missing_auth_entries, [AuthEntry::for_nodes(given, false)]);
    let broken = observe_with(&stub, "- rolearn: {", &status).await.expect("a state").previous_roles;
    assert!(broken.missing_auth_entries.is_empty(), "its content is unknown: {broken:?}");
    let mut by_access_entries = self::resolved();
    by_access_entries.join_method = JoinMethod::AccessEntries { remove_other: false };
    let status = json!({"managed": {"accessEntries": [resolved.role_arn, given, forged]}});
    let status = serde_json::from_value(status).expect("a status");
    let found = observe_group(&stub, &by_access_entries, "", &status).await.expect("a state").previous_roles;
    let restored: Vec<_> = found.missing_access_entries.iter().map(|entry| entry.principal.as_str()).collect();
    assert_eq!(restored, [given], "the record alone lets no role in");
    let kind = "EC2_LINUX".to_owned();
    let entry = AccessEntry { principal: given.into(), kind, created: None, tags: vec![] };
    stub.update(|d| d.access_entries.push(entry));
    let found = observe_group(&stub, &by_access_entries, "", &status).await.expect("a state").previous_roles;
    assert!(found.missing_access_entries.is_empty(), "{found:?}");
}

/// The pass that forgets the entry is the last one before the group is Ready. Role and profile would stay until the next
/// resync, and a group that is deleted before would have to find them again.
#[tokio::test]
async fn role_that_is_no_longer_used_is_read_in_the_pass_that_forgets_its_entry() {
    let (stub, mut resolved) = (Arc::new(FakeAws::default()), resolved());
    let own = resolved.role_arn.clone();
    (resolved.own_role, resolved.role_arn) = (false, "arn:aws:iam::1:role/given".into());
    let (pin, name) = (TemplatePin { id: "lt-1".into(), version: "1".into() }, resolved.names.role.clone());
    let group = ScalingGroup { template: Some(pin), desired: 0, ..scaling_group(&resolved.names.scaling_group) };
    let template = own_template(&resolved);
    let tags = resolved.iam_tags();
    let role = Role { id: "AROA-1".into(), name: name.clone(), arn: own.clone(), tags, ..Role::default() };
    stub.update(|d| {
        d.groups.insert(group.name.clone(), group);
        d.templates.insert(template.name.clone(), template);
        d.roles.insert(name, role);
    });
    let status = json!({
        "managed": {"authEntries": [own, resolved.role_arn], "policies": ["arn:aws:iam::aws:policy/one"]},
        "template": {"id": "lt-1", "version": "1", "hash": resolved.fingerprint.hash},
    });
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    let entry = |arn: &str| aws_auth::add_entries(None, &[AuthEntry::for_nodes(arn, false)]).unwrap().unwrap();
    let observed = observe_group(&stub, &resolved, &entry(&own), &status).await.expect("a state");
    assert!(observed.unused_role.is_none(), "its entry is removed first");
    let observed = observe_group(&stub, &resolved, &entry(&resolved.role_arn), &status).await.expect("a state");
    assert!(observed.unused_role.is_some_and(|unused| unused.role.is_some()), "nothing else is left of it");
    // keikoproj/instance-manager made the entry of a group that was taken over. It would admit any role of that name.
    let mut adopted_status = status;
    adopted_status.managed.as_mut().expect("a record").auth_entries.retain(|arn| *arn != own);
    let observed = observe_group(&stub, &resolved, &entry(&own), &adopted_status).await.expect("a state");
    assert_eq!(observed.previous_roles.unused_auth_entries, [AuthEntry::for_nodes(&own, false)]);
    assert!(observed.unused_role.is_none(), "its entry is removed first");
    let observed = observe_group(&stub, &resolved, "- rolearn: {", &adopted_status).await.expect("a state");
    assert!(observed.unused_role.is_none(), "it may have an entry as long as aws-auth cannot be parsed");
}

/// A group changes from its own role to a given one. A tenant makes a mistake in the mixed instances policy before all
/// nodes are replaced. What nodes should be like is not known then. The nodes that still run with the own role would
/// lose the cluster, and their permissions.
#[tokio::test]
async fn own_role_stays_while_it_is_not_known_which_nodes_are_outdated() {
    let (stub, mut resolved) = (Arc::new(FakeAws::default()), resolved());
    let own = resolved.role_arn.clone();
    (resolved.own_role, resolved.role_arn) = (false, "arn:aws:iam::1:role/given".into());
    let pin = |version: &str| TemplatePin { id: "lt-1".into(), version: version.into() };
    let (mut old, new) = (instance("i-old"), instance("i-new"));
    old.template = Some(pin("1"));
    let new = Instance { template: Some(pin("2")), ..new };
    let group = ScalingGroup {
        template: Some(pin("2")),
        instances: vec![old, new],
        ..scaling_group(&resolved.names.scaling_group)
    };
    let template = LaunchTemplate { latest_version: 2, ..own_template(&resolved) };
    let version = |number, hash: &str| TemplateVersion {
        template_id: "lt-1".into(),
        number,
        description: Some(Fingerprint { hash: hash.into(), parts: Default::default() }.to_description()),
        data: resolved.template_data.clone(),
    };
    let name = resolved.names.role.clone();
    let tags = resolved.iam_tags();
    let role = Role { id: "AROA-1".into(), name: name.clone(), arn: own.clone(), tags, ..Role::default() };
    stub.update(|d| {
        d.versions = vec![version(1, "before"), version(2, &resolved.fingerprint.hash)];
        d.groups.insert(group.name.clone(), group);
        d.templates.insert(template.name.clone(), template);
        d.roles.insert(name, role);
    });
    let status = json!({
        "managed": {"authEntries": [own, resolved.role_arn], "policies": ["arn:aws:iam::aws:policy/one"]},
        "template": {"id": "lt-1", "version": "2", "hash": resolved.fingerprint.hash},
    });
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    let map_roles = aws_auth::add_entries(None, &[AuthEntry::for_nodes(&own, false)]).unwrap().unwrap();
    let mistake =
        SpecError::invalid("spec.eks.configuration.mixedInstancesPolicy.spotRatio", "many", "is not a number", "");
    for is_broken in [false, true] {
        if is_broken {
            resolved.broken.push(&[Part::Launch], mistake.clone());
        }
        let observed = observe_group(&stub, &resolved, &map_roles, &status).await.expect("a state").previous_roles;
        assert_eq!(observed.recorded_auth_entries, [own.as_str()], "broken: {is_broken}");
        assert!(observed.unused_auth_entries.is_empty(), "broken: {is_broken}");
        let observed = observe_group(&stub, &resolved, "", &status).await.expect("a state");
        assert!(observed.unused_role.is_none(), "broken: {is_broken}");
    }
}

/// A user detached an instance from the scaling group to look into a problem, or launched one with the group's profile.
/// It would lose its permissions with the role.
#[tokio::test]
async fn own_role_stays_while_an_instance_outside_of_the_group_runs_with_it() {
    let (stub, mut resolved) = (Arc::new(FakeAws::default()), resolved());
    let (name, tags) = (resolved.names.role.clone(), resolved.iam_tags());
    let arn = resolved.role_arn.clone();
    let role = Role { id: "AROA-1".into(), name: name.clone(), arn, tags: tags.clone(), ..Role::default() };
    let profile = InstanceProfile {
        id: "AIPA-1".into(),
        name: name.clone(),
        arn: resolved.template_data.profile_arn.clone(),
        created: None,
        role: Some(role.clone()),
        tags,
    };
    (resolved.own_role, resolved.role_arn) = (false, "arn:aws:iam::1:role/given".into());
    let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
    let group = ScalingGroup { template: Some(pin), desired: 0, ..scaling_group(&resolved.names.scaling_group) };
    let template = own_template(&resolved);
    stub.update(|d| {
        d.groups.insert(group.name.clone(), group);
        d.templates.insert(template.name.clone(), template);
        d.roles.insert(name.clone(), role);
        d.instances = vec![("i-detached".into(), profile.arn.clone())];
        d.profiles.insert(name, profile.clone());
    });
    let own = &resolved.derived_role_arn;
    let status = json!({
        "managed": {"authEntries": [own, resolved.role_arn], "policies": ["arn:aws:iam::aws:policy/one"]},
        "template": {"id": "lt-1", "version": "1", "hash": resolved.fingerprint.hash},
    });
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    let entry = AuthEntry::for_nodes(own, false);
    let map_roles = aws_auth::add_entries(None, std::slice::from_ref(&entry)).unwrap().unwrap();
    let found = async |map_roles: &str| observe_group(&stub, &resolved, map_roles, &status).await.expect("a state");
    let previous = found(&map_roles).await.previous_roles;
    assert_eq!((previous.recorded_auth_entries, previous.unused_auth_entries), (vec![own.clone()], vec![]));
    assert!(found("").await.unused_role.is_none(), "the instance uses it");
    stub.update(|d| {
        d.instances.clear();
        d.profiles.insert("of-a-person".into(), InstanceProfile { name: "of-a-person".into(), ..profile.clone() });
    });
    let shared = found(&map_roles).await;
    assert_eq!(shared.previous_roles.unused_auth_entries, [], "nodes of the other profile join by it");
    assert_eq!(shared.previous_roles.kept[0].user, "the instance profile of-a-person");
    assert!(shared.unused_role.is_some_and(|role| role.reason_to_keep(&[]).is_some()));
    stub.update(|d| _ = d.profiles.remove("of-a-person"));
    assert_eq!(found(&map_roles).await.previous_roles.unused_auth_entries, [entry]);
    let unused = found("").await.unused_role.expect("nothing uses it any more");
    assert!(unused.role.is_some() && unused.profile.is_some());
}

/// A user put the group's role into an instance profile of their own. IAM deletes no such role, and what launches with
/// the profile would lose the role's policies before IAM returns the error.
#[tokio::test]
async fn role_in_an_instance_profile_of_others_stays() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let (names, tags) = (&resolved.names, resolved.iam_tags());
    let (name, arn) = (names.role.clone(), resolved.role_arn.clone());
    let role = Role { id: "AROA-1".into(), name: name.clone(), arn, tags: tags.clone(), ..Role::default() };
    let profile = |name: &str, tags: &[Tag]| InstanceProfile {
        id: format!("AIPA-{name}"),
        name: name.into(),
        arn: format!("arn:aws:iam::1:instance-profile/{name}"),
        created: None,
        role: Some(role.clone()),
        tags: tags.to_vec(),
    };
    let (own, other) = (profile(&name, &tags), profile("of-a-person", &[]));
    let own_arn = own.arn.clone();
    stub.update(|d| {
        d.roles.insert(name.clone(), role.clone());
        d.profiles = [own, other.clone()].map(|profile| (profile.name.clone(), profile)).into();
    });
    let remains = async || {
        let status = InstanceGroupStatus::default();
        let observed = with_observer(&stub, "", async |observer| {
            remaining_resources(&observer, &resolved.desired.id, names, &resolved.ownership_tags, &status).await
        });
        observed.await
    };
    let in_use = async || remains().await.expect("what remains").role_in_use;
    assert_eq!(in_use().await.as_deref(), Some("the instance profile of-a-person"));
    stub.update(|d| d.denied = Some("profiles of a role"));
    assert!(remains().await.is_err(), "no answer is not that there is none");
    stub.update(|d| d.denied = None);
    assert_eq!(stub.calls("profiles"), 0, "the account may have thousands");
    stub.update(|d| d.instances = vec![("i-1".into(), other.arn.clone())]);
    assert_eq!(in_use().await.as_deref(), Some("the instance i-1"));
    // A user removed the tags of the role, but not those of its profile.
    stub.update(|d| {
        d.roles.insert(name.clone(), Role { tags: vec![], ..role.clone() });
        d.instances = vec![("i-2".into(), own_arn.clone())];
    });
    assert_eq!(in_use().await.as_deref(), Some("the instance i-2"), "it has no permissions without the profile");
    stub.update(|d| _ = d.roles.insert(name.clone(), role.clone()));
    stub.update(|d| {
        d.instances.clear();
        d.profiles.remove("of-a-person");
    });
    assert_eq!(in_use().await, None);
}

/// A user breaks aws-auth while a group is deleted. The group's entry would stay forever, and admit any role of that
/// name.
#[tokio::test]
async fn deletion_waits_until_the_entries_of_its_roles_can_be_looked_for() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let (names, tags) = (&resolved.names, resolved.iam_tags());
    let role = Role { name: names.role.clone(), arn: resolved.role_arn.clone(), tags, ..Role::default() };
    let remaining = async |map_roles: &str, status: Value| {
        let status = serde_json::from_value(status).expect("a status");
        let observed = with_observer(&stub, map_roles, async |observer| {
            remaining_resources(&observer, &resolved.desired.id, names, &resolved.ownership_tags, &status).await
        });
        observed.await.expect("what remains").unreadable_aws_auth
    };
    let recorded = json!({"managed": {"authEntries": ["arn:aws:iam::1:role/given"]}});
    let (by_access_entry, by_aws_auth) = (json!({"join": {"awsAuth": false, "accessEntry": "EC2_LINUX"}}), json!({}));
    let broken = "- rolearn: {";
    let found = remaining(broken, recorded.clone()).await.expect("a problem");
    assert!(found.contains("arn:aws:iam::1:role/given") && found.contains("correct it by hand"), "{found}");
    assert_eq!(remaining("", recorded).await, None, "it can be parsed, and has no entry");
    assert_eq!(remaining(broken, by_aws_auth.clone()).await, None, "there is no role that could have an entry");
    stub.update(|d| _ = d.roles.insert(names.role.clone(), role));
    assert!(remaining(broken, by_aws_auth).await.is_some_and(|found| found.contains(&resolved.role_arn)));
    assert_eq!(remaining(broken, by_access_entry).await, None, "its nodes joined by an access entry alone");
}

/// Two groups of one role are deleted while aws-auth is broken. If neither waited, the entry would stay forever.
#[tokio::test]
async fn last_user_of_a_role_waits_for_the_others_while_aws_auth_cannot_be_parsed() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let given = "arn:aws:iam::1:role/given";
    let status = json!({"managed": {"authEntries": [given]}});
    let other = json!({
        "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup", "spec": {}, "status": status,
        "metadata": {
            "name": "app", "namespace": "team", "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": [FINALIZER],
        },
    });
    let others = [serde_json::from_value(other).expect("a group")];
    let status = serde_json::from_value(status).expect("a status");
    let cluster = FakeCluster::new(&stub).with_map_roles("- rolearn: {").with_groups(&others);
    let (id, names, tags) = (&resolved.desired.id, &resolved.names, &resolved.ownership_tags);
    let found = remaining_resources(&cluster.observer(), id, names, tags, &status).await.expect("what remains");
    assert_eq!(found.wait_for.as_deref(), Some("team/app"));
}

/// In the mode API the cluster does not read aws-auth, so what a user left there must not delay a deletion.
#[tokio::test]
async fn cluster_that_does_not_read_aws_auth_needs_no_readable_one() {
    let stub = Arc::new(FakeAws::default());
    let problem = async |mode: &str| {
        let found = Cluster { authentication_mode: mode.into(), ..cluster("demo") };
        stub.update(|d| _ = d.clusters.insert("demo".into(), found));
        let unreadable = FakeCluster::new(&stub).with_map_roles("- rolearn: {");
        join::aws_auth_problem(&unreadable.observer(), "demo").await.expect("an answer").is_some()
    };
    assert!(problem("CONFIG_MAP").await && problem("API_AND_CONFIG_MAP").await && !problem("API").await);
}

/// A user removes the status, or a backup brings the group back without it. The group would get a second scaling group,
/// and a deletion would leave everything.
#[tokio::test]
async fn resources_are_found_by_their_tags_when_the_status_does_not_name_them() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let id = &resolved.desired.id;
    let cluster = FakeCluster::new(&stub);
    let names = async || unrecorded::names(&cluster.observer(), "demo", id).await.expect("an answer").map(|n| n.names);
    let form = async || unrecorded::form_in_use(&cluster.observer(), "demo", id).await.expect("an answer");
    assert_eq!((names().await, form().await), (None, None));
    let foreign = Role {
        tags: crate::ownership::ownership_tags("demo", &GroupId { name: "api".into(), ..id.clone() }),
        name: resolved.names.role.clone(),
        ..Role::default()
    };
    stub.update(|d| _ = d.roles.insert(foreign.name.clone(), foreign.clone()));
    assert_eq!(names().await, None, "another group's");
    let ours = Role { tags: resolved.iam_tags(), ..foreign };
    stub.update(|d| _ = d.roles.insert(ours.name.clone(), ours.clone()));
    assert_eq!(names().await.map(|n| n.role), Some(resolved.names.role.clone()));
    let hashed = GroupNames::new("demo", "team", "web");
    let name = hashed.scaling_group_in(NameForm::Hashed, "us-west-2");
    let group = ScalingGroup { tags: resolved.tags.clone(), ..scaling_group(&name) };
    stub.update(|d| {
        d.roles.clear();
        d.groups.insert(name.clone(), group);
    });
    assert_eq!(names().await.map(|n| n.scaling_group), Some(name));
    assert_eq!(form().await, Some(NameForm::Hashed));
}

/// A user removes the finalizer of a group whose scaling group does not exist yet, and creates the group again. The old
/// launch template would stay forever, because its name contains the creation time of the group.
#[tokio::test]
async fn launch_template_of_an_earlier_group_of_the_name_is_used_again() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let id = &resolved.desired.id;
    let cluster = FakeCluster::new(&stub);
    let observer = cluster.observer();
    let name = async |status: &InstanceGroupStatus| {
        let name = unrecorded::template_name(&observer, "demo", id, NameForm::Plain, status).await;
        name.expect("an answer")
    };
    let new = InstanceGroupStatus::default();
    assert_eq!(name(&new).await, None);
    let left = |name: &str, tags: Vec<crate::aws::Tag>| {
        let (id, name) = (format!("lt-{name}"), name.to_owned());
        let found = LaunchTemplate { id, name: name.clone(), default_version: 1, latest_version: 1, tags };
        stub.update(|d| _ = d.templates.insert(name, found));
    };
    left("demo-team-web-20190101000000", crate::ownership::ownership_tags("other", id));
    left("demo-team-web-2-20190101000000", resolved.tags.clone());
    assert_eq!(name(&new).await, None, "of another cluster, and of another group");
    left("demo-team-web-20190101000000", resolved.tags.clone());
    assert_eq!(name(&new).await.as_deref(), Some("demo-team-web-20190101000000"));
    let found = unrecorded::names(&observer, "demo", id).await.expect("an answer").expect("names");
    assert_eq!(found.names.template, "demo-team-web-20190101000000");

    let recorded = |name: &str| InstanceGroupStatus {
        active_launch_template_name: Some(name.into()),
        ..InstanceGroupStatus::default()
    };
    let keiko = "demo-team-web-20180101000000";
    assert_eq!(name(&recorded(keiko)).await.as_deref(), Some(keiko));
    assert_eq!(name(&recorded("anything")).await, None, "the status is not proof");
}

/// Otherwise a group without capacity would report for a moment after each restart that its problem ended.
#[tokio::test]
async fn process_that_has_just_started_reads_why_recorded_shortages_last() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let group = ScalingGroup {
        name: resolved.names.scaling_group.clone(),
        min: 1,
        max: 2,
        desired: 1,
        subnets: vec!["subnet-1".into()],
        template: None,
        launch_configuration: None,
        warm_pool: None,
        mixed: None,
        tags: resolved.tags.clone(),
        unpropagated_tags: vec![],
        suspended_processes: vec![],
        enabled_metrics: vec![],
        instances: vec![],
        deleting: false,
        is_deletion_protected: false,
    };
    stub.update(|d| _ = d.groups.insert(group.name.clone(), group));
    let status = |nodes_ready| InstanceGroupStatus {
        conditions: vec![Condition::new(condition::NODES_READY, nodes_ready, "", "")],
        ..InstanceGroupStatus::default()
    };
    observe_with(&stub, "", &status(true)).await.expect("a state");
    assert_eq!(stub.calls("activities"), 0, "an instance that terminates may be replaced in time");
    observe_with(&stub, "", &status(false)).await.expect("a state");
    assert_eq!(stub.calls("activities"), 1);
}

/// A rotation reads the scaling activities at each poll. Otherwise the user would learn a minute later why a node is gone.
#[tokio::test]
async fn activities_from_before_a_loss_do_not_delay_its_cause() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let group = ScalingGroup {
        desired: 2,
        tags: resolved.tags.clone(),
        instances: vec![instance("i-1")],
        ..scaling_group(&resolved.names.scaling_group)
    };
    stub.update(|d| _ = d.groups.insert(group.name.clone(), group.clone()));
    let cluster = FakeCluster::new(&stub);
    let status = InstanceGroupStatus {
        conditions: vec![Condition::new(condition::NODES_READY, false, "", "")],
        ..InstanceGroupStatus::default()
    };
    let lost = async || {
        let observed = super::observe(&cluster.observer(), &resolved, &status).await.expect("a state");
        observed.lost_instances.into_iter().map(|lost| lost.instance).collect::<Vec<_>>()
    };
    assert_eq!((lost().await, stub.calls("activities")), (vec![], 1), "the group is short, so they are cached now");
    stub.update(|d| {
        d.groups.insert(group.name.clone(), ScalingGroup { instances: vec![], ..group });
        d.activities.push(scaling_activity("Terminating EC2 instance: i-1"));
    });
    assert_eq!(lost().await, ["i-1"]);
}

/// IAM admits few calls a second, and a new image is one for every group at once. The tags of the role matter before the
/// version is made, and not once more after it.
#[tokio::test]
async fn role_is_read_once_for_a_new_version() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let role = Role {
        id: "AROA-1".into(),
        name: resolved.names.role.clone(),
        arn: resolved.role_arn.clone(),
        tags: resolved.iam_tags(),
        ..Role::default()
    };
    let profile = InstanceProfile {
        id: "AIPA-1".into(),
        name: role.name.clone(),
        arn: resolved.template_data.profile_arn.clone(),
        created: None,
        role: Some(role.clone()),
        tags: resolved.iam_tags(),
    };
    let version = |number, hash: &str| TemplateVersion {
        template_id: "lt-1".into(),
        number,
        description: Some(Fingerprint { hash: hash.into(), parts: Default::default() }.to_description()),
        data: resolved.template_data.clone(),
    };
    let status = json!({
        "managed": {"roleRegion": resolved.region},
        "template": {"id": "lt-1", "version": "1", "hash": "before"},
    });
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    let calls = async |pinned: &str, versions: Vec<TemplateVersion>| {
        let stub = Arc::clone(&stub);
        let pin = TemplatePin { id: "lt-1".into(), version: pinned.into() };
        let tags = resolved.tags.clone();
        let group = ScalingGroup { template: Some(pin), tags, ..scaling_group(&resolved.names.scaling_group) };
        let latest_version = versions.len().try_into().expect("a number");
        let template = LaunchTemplate { latest_version, ..own_template(&resolved) };
        stub.update(|d| {
            d.groups.insert(group.name.clone(), group);
            d.templates.insert(template.name.clone(), template);
            d.versions = versions;
            d.roles.insert(role.name.clone(), role.clone());
            d.profiles.insert(role.name.clone(), profile.clone());
            d.calls.clear();
        });
        observe_with(&stub, "", &status).await.expect("a state");
        (stub.calls("role"), stub.calls("profile"))
    };
    let new = || version(2, &resolved.fingerprint.hash);
    assert_eq!(calls("1", vec![version(1, "before")]).await, (1, 1), "a version is about to be made");
    assert_eq!(calls("1", vec![version(1, "before"), new()]).await, (1, 1), "it is not in use yet");
    assert_eq!(calls("2", vec![version(1, "before"), new()]).await, (0, 0), "only the status lacks it");
}

/// The next reconcile would not report an instance that a forecast took for reported. A change for many groups would cost
/// several calls for each, and groups that only wait would cost more than a change without waves.
#[tokio::test]
async fn forecast_takes_nothing_from_the_next_reconcile_and_reads_less() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
    let group = ScalingGroup {
        desired: 2,
        template: Some(pin.clone()),
        tags: resolved.tags.clone(),
        instances: vec![Instance { template: Some(pin), ..instance("i-1") }, instance("i-2")],
        ..scaling_group(&resolved.names.scaling_group)
    };
    let (template, data) = (own_template(&resolved), resolved.template_data.clone());
    stub.update(|d| {
        d.groups.insert(group.name.clone(), group.clone());
        d.templates.insert(template.name.clone(), template);
        d.versions.push(TemplateVersion { template_id: "lt-1".into(), number: 1, description: None, data });
    });
    let cluster = FakeCluster::new(&stub);
    let status = InstanceGroupStatus::default();
    let observe = async |observer: Observer<'_>| super::observe(&observer, &resolved, &status).await.expect("a state");
    observe(cluster.observer()).await;
    stub.update(|d| {
        let left = group.instances[..1].to_vec();
        d.groups.insert(group.name.clone(), ScalingGroup { instances: left, ..group });
        d.activities.push(scaling_activity("Terminating EC2 instance: i-2"));
        d.calls.clear();
    });
    let forecast = observe(Observer { is_forecast: true, ..cluster.observer() }).await;
    assert_eq!((forecast.lost_instances.len(), forecast.versions.len()), (0, 1));
    let read = |label| stub.calls(label);
    assert_eq!(["activities", "refreshes", "role", "profile", "versions"].map(read), [0; 5]);
    let lost = observe(cluster.observer()).await.lost_instances;
    assert_eq!(lost.into_iter().map(|lost| lost.instance).collect::<Vec<_>>(), ["i-2"]);
}

/// A user deletes the version that the group launches. Nothing but the failed launch shows it, and the group would stay
/// without nodes until a user acts.
#[tokio::test]
async fn version_in_use_is_read_again_after_each_failed_launch() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let pin = TemplatePin { id: "lt-1".into(), version: "2".into() };
    let group = ScalingGroup { template: Some(pin), ..scaling_group(&resolved.names.scaling_group) };
    let (id, name) = ("lt-1".to_owned(), resolved.names.template.clone());
    let template = LaunchTemplate { id, name, default_version: 1, latest_version: 2, tags: vec![] };
    let data = resolved.template_data.clone();
    stub.update(|d| {
        d.versions.push(TemplateVersion { template_id: "lt-1".into(), number: 1, description: None, data })
    });
    let hash = &resolved.fingerprint.hash;
    let status = json!({"template": {"id": "lt-1", "version": "2", "hash": hash}});
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    let cluster = FakeCluster::new(&stub);
    let observer = cluster.observer();
    let numbers = async || {
        let found = super::versions(&observer, &resolved, &status, Some(&group), Some(&template)).await;
        found.expect("an answer").into_keys().collect::<Vec<_>>()
    };
    assert_eq!(numbers().await, [2], "the record is enough");
    let key = resolved.desired.id.key();
    for began in [10, 20] {
        let began = Some(jiff::Timestamp::from_second(began).expect("a time"));
        for _ in 0..2 {
            observer.process_state.record_failed_launch(&key, began);
        }
        assert_eq!(numbers().await, [1], "it is gone");
        observer.process_state.record_failed_launch(&key, began);
        assert_eq!(numbers().await, [2], "it is read once for each failure");
    }
}

/// The scaling group refers to its instance profile by name. The deletion would delete a profile that another client
/// created under this name after the group's own was deleted. An active group reports such a profile as a conflict.
#[tokio::test]
async fn deletion_adopts_only_a_profile_that_contains_the_role() {
    let resolved = resolved();
    let names = &resolved.names;
    let role = |name: &str| Role { id: "AROA-1".into(), name: name.into(), ..Role::default() };
    for (profile_role, adopted) in
        [(Some(role(&names.role)), true), (None, false), (Some(role("of-another-owner")), false)]
    {
        let stub = Arc::new(FakeAws::default());
        let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
        let tags = resolved.ownership_tags.clone();
        let group = ScalingGroup { template: Some(pin), tags, ..scaling_group(&names.scaling_group) };
        let (id, name) = ("lt-1".to_owned(), names.template.clone());
        let template = LaunchTemplate { id, name, default_version: 1, latest_version: 1, tags: vec![] };
        let data = resolved.template_data.clone();
        let version = TemplateVersion { template_id: "lt-1".into(), number: 1, description: None, data };
        let arn = resolved.template_data.profile_arn.clone();
        let (id, name) = ("AIPA-2".to_owned(), names.role.clone());
        let profile = InstanceProfile { id, name, arn, created: None, role: profile_role.clone(), tags: vec![] };
        stub.update(|d| {
            d.groups.insert(group.name.clone(), ScalingGroup { instances: vec![], ..group });
            d.templates.insert(template.name.clone(), template);
            d.versions.push(version);
            d.profiles.insert(names.role.clone(), profile);
            d.roles.insert(names.role.clone(), role(&names.role));
        });
        let status = json!({"managed": {"policies": ["arn:aws:iam::aws:policy/one"]}});
        let status = serde_json::from_value(status).expect("a status");
        let remaining = with_observer(&stub, "", async |observer| {
            remaining_resources(&observer, &resolved.desired.id, names, &resolved.ownership_tags, &status).await
        });
        let found = remaining.await.expect("what remains").adopted;
        assert_eq!(found.template.as_deref(), Some("lt-1"));
        let of_profile = (found.profile.is_some(), found.role.is_some());
        assert_eq!(of_profile, (adopted, adopted), "{profile_role:?}");
    }
}

/// EC2 deletes a launch template that a scaling group refers to, and a user's scaling group would launch nothing any
/// more.
#[tokio::test]
async fn launch_template_of_a_deleted_group_stays_for_the_scaling_group_of_others() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let names = &resolved.names;
    let template = own_template(&resolved);
    let of = |group: &str| (template.id.clone(), group.to_owned());
    stub.update(|d| {
        d.templates.insert(names.template.clone(), template.clone());
        d.template_users = vec![("lt-other".into(), "of-others".into()), of(&names.scaling_group)];
    });
    let plan = async |status: &InstanceGroupStatus| {
        let remaining = with_observer(&stub, "", async |observer| {
            remaining_resources(&observer, &resolved.desired.id, names, &resolved.ownership_tags, status).await
        });
        let found = remaining.await.expect("what remains");
        super::super::delete::plan_deletion(&super::super::delete::DeleteInput {
            id: &resolved.desired.id,
            ownership_tags: &resolved.ownership_tags,
            scaling_group: None,
            members: &[],
            drains: &found.drains,
            template: found.template.as_ref(),
            has_derived_template_name: true,
            launch_configurations: &[],
            role: None,
            attached_policies: &[],
            removable_policies: &[],
            inline_policies: &[],
            instance_profile: None,
            region: &resolved.region,
            status,
            adopted: &found.adopted,
            aws_auth_entries: &[],
            access_entries: &[],
            kept_entries: &[],
            wait_for: None,
            unreadable_aws_auth: None,
            role_in_use: None,
            template_in_use: found.template_in_use.as_deref(),
            drain_timeout: jiff::SignedDuration::ZERO,
            timing: &crate::settings::Timing::default(),
            now: jiff::Timestamp::UNIX_EPOCH,
        })
    };
    let deletes = |plan: &crate::plan::Plan| plan.steps.iter().any(|planned| planned.step.name() == "DeleteTemplate");
    let new = InstanceGroupStatus::default();
    assert!(deletes(&plan(&new).await), "what its own scaling group left is no use by others");
    stub.update(|d| d.template_users.push(of("of-a-person")));
    let kept = plan(&new).await;
    assert!(!deletes(&kept), "{:?}", kept.steps);
    let [update] = &kept.condition_updates[..] else { panic!("{:?}", kept.condition_updates) };
    assert_eq!((update.condition_type, update.reason.as_str()), (condition::RESOURCES_RETAINED, "TemplateInUse"));
    assert!(update.message.contains("of-a-person") && update.message.contains(&names.template), "{}", update.message);
    stub.update(|d| d.denied = Some("scaling groups of a template"));
    let denied = with_observer(&stub, "", async |observer| {
        remaining_resources(&observer, &resolved.desired.id, names, &resolved.ownership_tags, &new).await
    });
    assert!(denied.await.is_err(), "no answer is not that there is none");
}

/// A cached answer may be older than the hook, which would leave the record then and stay in AWS.
#[tokio::test]
async fn dropped_hook_is_looked_for_in_a_recent_answer() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let name = resolved.names.scaling_group.clone();
    let group = ScalingGroup { tags: resolved.tags.clone(), ..scaling_group(&name) };
    stub.update(|d| _ = d.groups.insert(name, group));
    let cluster = FakeCluster::new(&stub);
    for (hooks, calls) in [(json!([]), 0), (json!(["dropped"]), 1), (json!(["dropped"]), 2)] {
        let observer = Observer { shared_max_cache_age: std::time::Duration::from_secs(3600), ..cluster.observer() };
        let status = serde_json::from_value(json!({"managed": {"hooks": hooks}})).expect("a status");
        super::observe(&observer, &resolved, &status).await.expect("a state");
        assert_eq!(stub.calls("hooks"), calls);
    }
}
