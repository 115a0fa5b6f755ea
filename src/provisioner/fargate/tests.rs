//! Tests of observing a group.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::names::ProfileNames;
use super::observe::{RemainingResources, remaining_resources};
use super::observed::{ObservedProfiles, ObservedState};
use super::ownership::{OwnershipEvidence, RecordedOwner};
use super::resolve::References;
use super::{Fargate, desired, resolve_and_observe};
use crate::api::names::tag;
use crate::api::{Condition, GroupId, GroupObject, InstanceGroup, InstanceGroupSpec, InstanceGroupStatus, group_id};
use crate::auth::access_entries::AccessEntryState;
use crate::auth::aws_auth::{self, AuthEntry};
use crate::aws::fargate::{FargateProfile, FargateSelector, ProfileStatus};
use crate::aws::inventory::fake_aws::FakeAws;
use crate::aws::samples::cluster;
use crate::aws::{AccessEntry, Cluster, InstanceProfile, Role, Tag};
use crate::ownership::ownership_tags;
use crate::plan::Outcome;
use crate::provisioner::name_form::NameForm;
use crate::provisioner::observe::Observer;
use crate::provisioner::observe::fake::FakeCluster;
use crate::provisioner::rejected_fields::RejectedFields;
use crate::provisioner::{DeleteRequest, Provisioner as _};
use crate::settings::Settings;

/// Two groups can derive the same profile name. A group that failed to create its profile, because the profile belongs
/// to the other group, must not be treated as its owner.
#[test]
fn tags_tell_the_group_of_the_same_profile_name_from_edited_ones() {
    let of = |namespace: &str, name: &str| {
        let mut group = InstanceGroup::new(name, InstanceGroupSpec::default());
        group.metadata.namespace = Some(namespace.into());
        group_id(&group)
    };
    let (id, namesake) = (of("a-b", "c"), of("a", "b-c"));
    let names = ProfileNames::new("demo", &id, NameForm::Plain, "us-west-2");
    let ownership = ownership_tags("demo", &id);
    let own_role = format!("arn:aws:iam::1:role/{}", names.role);
    let owner = |name: &str, tags: &[Tag], role: &str, recorded: &[String]| {
        let profile = FargateProfile {
            name: name.into(),
            arn: "arn".into(),
            role_arn: role.into(),
            subnets: vec![],
            selectors: vec![],
            status: ProfileStatus::Active,
            issues: vec![],
            tags: tags.to_vec(),
        };
        RecordedOwner::for_profile(&profile, recorded, &names.role, &["arn:aws:iam::1:role/given"], &ownership)
    };
    for name in [names.first_profile.clone(), names.replacement_name("x")] {
        let recorded = std::slice::from_ref(&name);
        let (own, unclear) = (Some(RecordedOwner::Ours), Some(RecordedOwner::Unclear));
        let other = ownership_tags("demo", &of("x", "y"));
        let given = "arn:aws:iam::1:role/given";
        assert_eq!(owner(&name, &[], &own_role, &[]), None, "not recorded");
        assert_eq!(owner(&name, &ownership, &own_role, recorded), None, "it has the tags");
        assert_eq!(owner(&name, &ownership_tags("demo", &namesake), &own_role, recorded), None);
        assert_eq!(owner(&name, &other, &own_role, recorded), unclear, "the other group derives another name");
        assert_eq!(owner(&name, &ownership[..1], &own_role, recorded), unclear);
        assert_eq!(owner(&name, &[], "arn:aws:iam::1:role/x", recorded), unclear, "with a role of others");
        assert_eq!([&own_role[..], given].map(|role| owner(&name, &[], role, recorded)), [own, own]);
    }
}

/// Names with a hash are for a group whose plain names another group has. A group that used them because of an edited
/// tag would create a second profile and a second role.
#[tokio::test]
async fn edited_tags_do_not_change_the_names_of_a_group() {
    let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
    group.metadata.namespace = Some("team".into());
    let id = group_id(&group);
    let spec: InstanceGroupSpec = serde_json::from_value(json!({
        "provisioner": "eks-fargate", "strategy": {"type": "managed"},
        "eks-fargate": {"clusterName": "demo", "selectors": [{"namespace": "team"}]},
    }))
    .expect("a spec");
    let desired = desired::parse(&id, &spec).expect("a valid spec");
    let references = References { cluster: Some(cluster("demo")), ..References::default() };
    let names = ProfileNames::new("demo", &id, NameForm::Plain, "us-west-2");
    let mut tags = ownership_tags("demo", &id);
    tags.pop();
    let stub = Arc::new(FakeAws::default());
    let profile = FargateProfile {
        name: names.first_profile.clone(),
        arn: "arn".into(),
        role_arn: format!("arn:aws:iam::1:role/{}", names.role),
        subnets: vec![],
        selectors: desired.selectors.clone(),
        status: ProfileStatus::Active,
        issues: vec![],
        tags,
    };
    stub.update(|d| _ = d.fargate.insert(profile.name.clone(), profile));
    for (recorded, keeps) in [(vec![names.first_profile.clone()], true), (vec![], false)] {
        let status = json!({"fargate": {"cluster": "demo", "profiles": recorded}});
        let status = serde_json::from_value(status).expect("a status");
        let fake = FakeCluster::new(&stub);
        let broken = RejectedFields::default();
        let found = resolve_and_observe(&fake.observer(), desired.clone(), broken, &references, &status).await;
        let (resolved, _) = found.expect("the observed state").expect("a resolved group");
        assert_eq!(resolved.names.first_profile == names.first_profile, keeps, "{recorded:?}");
    }
}

/// A group, and the pod execution role that the controller created for it.
fn group_with_own_role() -> (GroupId, Role) {
    let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
    group.metadata.namespace = Some("team".into());
    let id = group_id(&group);
    let name = ProfileNames::new("demo", &id, NameForm::Plain, "us-west-2").role;
    let arn = format!("arn:aws:iam::1:role/{name}");
    let role = Role { name, arn, tags: ownership_tags("demo", &id), ..Role::default() };
    (id, role)
}

/// A spec with one selector, and perhaps a role.
fn fargate_spec(role: Option<&str>) -> InstanceGroupSpec {
    let settings = json!({"clusterName": "demo", "selectors": [{"namespace": "team"}], "podExecutionRoleArn": role});
    serde_json::from_value(json!({
        "provisioner": "eks-fargate", "strategy": {"type": "managed"}, "eks-fargate": settings,
    }))
    .expect("a spec")
}

/// A user breaks aws-auth while a group is deleted. The entry of its role would stay forever, and admit any later role
/// of that name.
#[tokio::test]
async fn deletion_waits_until_the_entry_of_its_role_can_be_looked_for() {
    let stub = Arc::new(FakeAws::default());
    let (id, role) = group_with_own_role();
    let (name, arn, tags) = (role.name.clone(), role.arn.clone(), role.tags.clone());
    let entry = AuthEntry::for_pods(&arn);
    let readable = aws_auth::add_entries(None, std::slice::from_ref(&entry)).unwrap().unwrap();
    let remaining = async |map_roles: &str, status: Value| -> RemainingResources {
        let status = serde_json::from_value(status).expect("a status");
        let cluster = FakeCluster::new(&stub).with_map_roles(map_roles);
        let evidence = OwnershipEvidence::from_status(None, false, &status);
        remaining_resources(&cluster.observer(), &id, "demo", &evidence, &tags, &status).await.expect("what remains")
    };
    let (broken, recorded) = ("- rolearn: {", json!({"nodesInstanceRoleArn": arn}));
    assert_eq!(remaining(broken, json!({})).await.unreadable_aws_auth, None, "no role could have an entry");
    stub.update(|d| _ = d.roles.insert(name, role));
    for (status, case) in [(recorded, "recorded"), (json!({}), "a person removed the status")] {
        let found = remaining(broken, status.clone()).await.unreadable_aws_auth;
        assert!(found.as_ref().is_some_and(|found| found.contains(&arn)), "{case}: {found:?}");
        let found = remaining(&readable, status).await;
        assert_eq!((found.unreadable_aws_auth, found.aws_auth_entries), (None, vec![entry.clone()]), "{case}");
    }
    let by_access_entry =
        json!({"nodesInstanceRoleArn": arn, "join": {"awsAuth": false, "accessEntry": "FARGATE_LINUX"}});
    assert_eq!(
        remaining(broken, by_access_entry).await.unreadable_aws_auth,
        None,
        "it joined by an access entry alone"
    );
}

/// A user gave the controller's role to a Fargate profile of their own, for example with eksctl, or to an instance
/// profile. Its pods or instances would lose their credentials and their access with the role, its policies and its
/// entry.
#[tokio::test]
async fn role_that_a_profile_of_others_uses_stays() {
    let stub = Arc::new(FakeAws::default());
    let (id, role) = group_with_own_role();
    let (name, arn, tags) = (role.name.clone(), role.arn.clone(), role.tags.clone());
    let profile = FargateProfile {
        name: "of-a-person".into(),
        arn: "arn".into(),
        role_arn: arn.clone(),
        subnets: vec![],
        selectors: vec![],
        status: ProfileStatus::Active,
        issues: vec![],
        tags: vec![],
    };
    stub.update(|d| {
        d.roles.insert(name.clone(), role);
        d.fargate.insert(profile.name.clone(), profile);
    });
    let map_roles = aws_auth::add_entries(None, &[AuthEntry::for_pods(&arn)]).unwrap().unwrap();
    let cluster = FakeCluster::new(&stub).with_map_roles(&map_roles);
    let deleted = async || {
        let status = json!({"nodesInstanceRoleArn": arn, "managed": {"authEntries": [arn], "policies": ["p"]}});
        let status = serde_json::from_value(status).expect("a status");
        let evidence = OwnershipEvidence::from_status(None, false, &status);
        remaining_resources(&cluster.observer(), &id, "demo", &evidence, &tags, &status).await.expect("what remains")
    };
    let kept = deleted().await;
    assert_eq!(kept.role_in_use, Some((name.clone(), "the Fargate profile of-a-person".to_owned())));
    assert!(kept.previous_role.is_none() && kept.aws_auth_entries.is_empty());
    stub.update(|d| {
        d.fargate.clear();
        let held = InstanceProfile {
            id: "AIPA-1".into(),
            name: "of-a-person".into(),
            arn: "arn".into(),
            created: None,
            role: d.roles.values().next().cloned(),
            tags: vec![],
        };
        d.profiles.insert(held.name.clone(), held);
    });
    let kept = deleted().await;
    assert_eq!(kept.role_in_use, Some((name.clone(), "the instance profile of-a-person".to_owned())));
    assert!(kept.previous_role.is_none(), "IAM deletes no role that an instance profile holds");
    stub.update(|d| d.profiles.clear());
    let gone = deleted().await;
    assert_eq!(gone.role_in_use, None);
    assert!(gone.previous_role.is_some() && gone.aws_auth_entries.len() == 1);
}

/// EKS made an access entry for the group's role while its pods joined through aws-auth. The spec names another role now.
/// The entry would outlive the role, and lock out the next role of that name.
#[tokio::test]
async fn access_entry_of_eks_goes_with_the_role_that_is_no_longer_used() {
    let stub = Arc::new(FakeAws::default());
    let (id, role) = group_with_own_role();
    let arn = role.arn.clone();
    let spec: InstanceGroupSpec = serde_json::from_value(json!({
        "provisioner": "eks-fargate", "strategy": {"type": "managed"},
        "eks-fargate": {
            "clusterName": "demo",
            "selectors": [{"namespace": "team"}],
            "podExecutionRoleArn": "arn:aws:iam::1:role/given",
        },
    }))
    .expect("a spec");
    let desired = desired::parse(&id, &spec).expect("a valid spec");
    let in_mode = Cluster { authentication_mode: "API_AND_CONFIG_MAP".into(), ..cluster("demo") };
    let references = References { cluster: Some(in_mode.clone()), ..References::default() };
    let kind = "FARGATE_LINUX".to_owned();
    let entry = AccessEntry { principal: arn.clone(), kind, created: None, tags: vec![] };
    stub.update(|d| {
        d.roles.insert(role.name.clone(), role);
        d.clusters.insert("demo".into(), in_mode);
        d.access_entries.push(entry.clone());
    });
    let unused_entries = async |policies: &[&str]| {
        let status = json!({"managed": {"authEntries": [arn], "policies": policies}});
        let status = serde_json::from_value(status).expect("a status");
        let (fake, broken) = (FakeCluster::new(&stub), RejectedFields::default());
        let found = resolve_and_observe(&fake.observer(), desired.clone(), broken, &references, &status).await;
        let (resolved, observed) = found.expect("the observed state").expect("a resolved group");
        assert_eq!(resolved.derived_role_arn, arn);
        observed.unused_access_entries
    };
    assert_eq!(unused_entries(&["p"]).await, [entry]);
    assert_eq!(unused_entries(&[]).await, [], "the controller has no role to delete");
}

/// A user removed the status after the spec named another role, or took the tags off the role that the controller created.
/// The role would stay with its entry until the group is deleted.
#[tokio::test]
async fn unused_own_role_is_looked_for_until_it_is_gone() {
    let (id, role) = group_with_own_role();
    let (name, arn, given) = (role.name.clone(), role.arn.clone(), "arn:aws:iam::1:role/given");
    let desired = desired::parse(&id, &fargate_spec(Some(given))).expect("a valid spec");
    let references = References { cluster: Some(cluster("demo")), ..References::default() };
    let names = ProfileNames::new("demo", &id, NameForm::Plain, "us-west-2");
    let profile = |name: String, role: &str| FargateProfile {
        name,
        arn: "arn".into(),
        role_arn: role.into(),
        subnets: vec![],
        selectors: desired.selectors.clone(),
        status: ProfileStatus::Active,
        issues: vec![],
        tags: ownership_tags("demo", &id),
    };
    let (old, new) = (profile(names.first_profile.clone(), &arn), profile(names.replacement_name("x"), given));
    let entry = AuthEntry::for_pods(&arn);
    let map_roles = aws_auth::add_entries(None, std::slice::from_ref(&entry)).unwrap().unwrap();
    let stub = Arc::new(FakeAws::default());
    stub.update(|d| _ = d.roles.insert(name.clone(), role));
    let observed = async |profiles: &[&FargateProfile], status: Value| -> ObservedState {
        stub.update(|d| d.fargate = profiles.iter().map(|p| (p.name.clone(), (*p).clone())).collect());
        let status = serde_json::from_value(status).expect("a status");
        let (fake, broken) = (FakeCluster::new(&stub).with_map_roles(&map_roles), RejectedFields::default());
        let found = resolve_and_observe(&fake.observer(), desired.clone(), broken, &references, &status).await;
        found.expect("the observed state").expect("a resolved group").1
    };
    for (profiles, status, case) in [
        (&[&old, &new][..], json!({}), "its own profile has the role"),
        (&[], json!({}), "a new group"),
        (&[&new], json!({"managed": {}}), "the status shows that there is none"),
    ] {
        let found = observed(profiles, status).await;
        assert!(found.previous_role.is_none() && found.unused_auth_entries.is_empty(), "{case}: {found:?}");
    }
    assert_eq!(stub.calls("role"), 0);
    stub.update(|d| d.denied = Some("role"));
    assert!(observed(&[&new], json!({})).await.previous_role.is_none(), "a given role needs no permissions");
    stub.update(|d| d.denied = None);
    let lost = observed(&[&new], json!({})).await;
    assert_eq!((lost.previous_role.is_some(), lost.unused_auth_entries), (true, vec![entry.clone()]));
    let recorded = || json!({"managed": {"policies": ["p"]}});
    for (tags, is_untagged) in [(vec![], true), (ownership_tags("other", &id), false)] {
        stub.update(|d| d.roles.get_mut(&name).expect("the role").tags = tags);
        let found = observed(&[&new], recorded()).await;
        assert_eq!((found.is_own_role_unknown, found.previous_role.is_none()), (is_untagged, true));
        assert_eq!(found.unused_auth_entries, [], "the role stays");
    }
    let observed_with_broken_aws_auth = async || {
        let status = serde_json::from_value(recorded()).expect("a status");
        let (fake, broken) = (FakeCluster::new(&stub).with_map_roles("- {"), RejectedFields::default());
        let found = resolve_and_observe(&fake.observer(), desired.clone(), broken, &references, &status).await;
        found.expect("the observed state").expect("a resolved group").1
    };
    stub.update(|d| d.roles.get_mut(&name).expect("the role").tags = ownership_tags("demo", &id));
    let broken = observed_with_broken_aws_auth().await;
    assert_eq!(
        (broken.is_own_role_unknown, broken.previous_role.is_none()),
        (true, true),
        "its entry cannot be removed"
    );
    stub.update(|d| d.roles.clear());
    let gone = observed(&[&new], recorded()).await;
    assert_eq!((gone.is_own_role_unknown, gone.unused_auth_entries), (false, vec![entry]));
}

/// A user took the tags off the role that the controller created. Without an event, no user would know that the
/// deletion leaves it.
#[tokio::test]
async fn deletion_reports_the_role_that_lost_its_tags() {
    let (id, role) = group_with_own_role();
    let (name, settings) = (role.name.clone(), Settings::default());
    let stub = Arc::new(FakeAws::default());
    let own = ownership_tags("demo", &id);
    for (policies, tags, is_reported) in [
        (vec!["p"], own.clone(), false),
        (vec!["p"], vec![], true),
        (vec!["p"], ownership_tags("other", &id), true),
        (vec![], vec![], false),
    ] {
        stub.update(|d| _ = d.roles.insert(name.clone(), Role { tags: tags.clone(), ..role.clone() }));
        let status = json!({
            "nodesInstanceRoleArn": role.arn, "fargate": {"cluster": "demo"}, "managed": {"policies": policies},
        });
        let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
        let request = DeleteRequest {
            id: &id,
            annotations: None,
            spec: Some(fargate_spec(None)),
            forbidden: vec![],
            protected_by: None,
            wrong_confirmation: None,
            status: &status,
            settings: &settings,
        };
        let plan = Fargate.plan_deletion(&FakeCluster::new(&stub).observer(), request).await.expect("a plan");
        let deletes = plan.steps.iter().any(|planned| planned.step.name() == "DeleteRole");
        let reports = plan.events.iter().any(|e| e.reason == "RoleRetained" && e.message.contains(&name));
        assert_eq!((deletes, reports), (tags == own, is_reported), "{policies:?} {tags:?}: {plan:?}");
    }
}

/// A user edited the trust policy of the group's role, and EKS creates no profile with it. A role that is not read cannot
/// be repaired. A profile that serves the group needs no read.
#[tokio::test]
async fn own_role_is_read_before_a_profile_is_created() {
    let (id, role) = group_with_own_role();
    let arn = role.arn.clone();
    let desired = desired::parse(&id, &fargate_spec(None)).expect("a valid spec");
    let references = References { cluster: Some(cluster("demo")), ..References::default() };
    let names = ProfileNames::new("demo", &id, NameForm::Plain, "us-west-2");
    let profile = |status: ProfileStatus, selectors: &[FargateSelector]| FargateProfile {
        name: names.first_profile.clone(),
        arn: "arn".into(),
        role_arn: arn.clone(),
        subnets: vec![],
        selectors: selectors.to_vec(),
        status,
        issues: vec![],
        tags: ownership_tags("demo", &id),
    };
    let stub = Arc::new(FakeAws::default());
    let policy = "arn:aws:iam::aws:policy/AmazonEKSFargatePodExecutionRolePolicy";
    stub.update(|d| {
        d.policies.insert(policy.into(), vec![role.name.clone()]);
        d.roles.insert(role.name.clone(), role);
    });
    let status = json!({"nodesInstanceRoleArn": arn, "managed": {"policies": [policy], "roleRegion": "us-west-2"}});
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    for (found, is_read) in [
        (None, true),
        (Some(profile(ProfileStatus::Active, &[])), true),
        (Some(profile(ProfileStatus::Active, &desired.selectors)), false),
        (Some(profile(ProfileStatus::Creating, &desired.selectors)), false),
    ] {
        stub.update(|d| d.fargate = found.iter().map(|found| (found.name.clone(), found.clone())).collect());
        let (fake, broken) = (FakeCluster::new(&stub), RejectedFields::default());
        let observed = resolve_and_observe(&fake.observer(), desired.clone(), broken, &references, &status).await;
        let (resolved, observed) = observed.expect("the observed state").expect("a resolved group");
        assert!(observed.is_role_ready && resolved.role_arn == arn, "{observed:?}");
        assert_eq!(observed.role.is_some(), is_read, "{found:?}");
    }
}

/// A user deletes the group's role and creates it again with its policy. EKS knows a role by its id: through the old entry,
/// no pod could start, and the group would stay Ready.
#[tokio::test]
async fn role_that_a_user_created_again_is_not_taken_for_the_recorded_one() {
    let (id, role) = group_with_own_role();
    let arn = role.arn.clone();
    let desired = desired::parse(&id, &fargate_spec(None)).expect("a valid spec");
    let in_mode = Cluster { authentication_mode: "API".into(), ..cluster("demo") };
    let references = References { cluster: Some(in_mode), ..References::default() };
    let profile = FargateProfile {
        name: ProfileNames::new("demo", &id, NameForm::Plain, "us-west-2").first_profile,
        arn: "arn".into(),
        role_arn: arn.clone(),
        subnets: vec![],
        selectors: desired.selectors.clone(),
        status: ProfileStatus::Active,
        issues: vec![],
        tags: ownership_tags("demo", &id),
    };
    let mut tags = ownership_tags("demo", &id);
    tags.push(Tag { key: tag::ROLE_ID.into(), value: "AROA-1".into() });
    let entry = AccessEntry { principal: arn.clone(), kind: "FARGATE_LINUX".into(), created: None, tags };
    let policy = "arn:aws:iam::aws:policy/AmazonEKSFargatePodExecutionRolePolicy";
    let status = json!({
        "nodesInstanceRoleArn": arn,
        "join": {"awsAuth": false, "accessEntry": "FARGATE_LINUX", "roleId": "AROA-1"},
        "managed": {"policies": [policy], "roleRegion": "us-west-2", "accessEntries": [arn]},
    });
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    for (role_id, reads) in [("AROA-1", 0), ("AROA-2", 1)] {
        let stub = Arc::new(FakeAws::default());
        stub.update(|d| {
            d.roles.insert(role.name.clone(), Role { id: role_id.into(), ..role.clone() });
            d.policies.insert(policy.into(), vec![role.name.clone()]);
            d.fargate.insert(profile.name.clone(), profile.clone());
            d.access_entries.push(entry.clone());
        });
        let (fake, broken) = (FakeCluster::new(&stub), RejectedFields::default());
        let found = resolve_and_observe(&fake.observer(), desired.clone(), broken, &references, &status).await;
        let (_, observed) = found.expect("the observed state").expect("a resolved group");
        assert!(observed.is_role_ready);
        assert_eq!((observed.join_state.role_id.as_deref(), stub.calls("role")), (Some(role_id), reads));
        let AccessEntryState::Present(entry) = observed.join_state.access_entry else { panic!("{role_id}") };
        let is_of_deleted_role = entry.is_owned && entry.role_id.as_deref() == Some("AROA-1");
        assert_eq!(is_of_deleted_role, role_id == "AROA-2", "{entry:?}");
    }
}

/// A user edits a tag of a profile, or removes the ownership tags. The group would not notice it for an hour, however
/// short the resync period is, and whether or not a user requests a reconcile.
#[tokio::test]
async fn idle_profile_is_described_again_after_some_resyncs_and_on_request() {
    let (id, role) = group_with_own_role();
    let desired = desired::parse(&id, &fargate_spec(None)).expect("a valid spec");
    let references = References { cluster: Some(cluster("demo")), ..References::default() };
    let profile = FargateProfile {
        name: ProfileNames::new("demo", &id, NameForm::Plain, "us-west-2").first_profile,
        arn: "arn".into(),
        role_arn: role.arn,
        subnets: vec![],
        selectors: desired.selectors.clone(),
        status: ProfileStatus::Active,
        issues: vec![],
        tags: ownership_tags("demo", &id),
    };
    // An idle group accepts for each read what it accepts for shared reads; a request accepts no cached answer.
    for (age, expected) in [(Duration::from_hours(1), 1), (Duration::from_nanos(1), 2), (Duration::ZERO, 2)] {
        let stub = Arc::new(FakeAws::default());
        stub.update(|d| _ = d.fargate.insert(profile.name.clone(), profile.clone()));
        let (fake, status) = (FakeCluster::new(&stub), InstanceGroupStatus::default());
        for _ in 0..2 {
            let observer = Observer { max_cache_age: age, shared_max_cache_age: age, ..fake.observer() };
            let broken = RejectedFields::default();
            let observed = resolve_and_observe(&observer, desired.clone(), broken, &references, &status).await;
            assert!(observed.expect("the observed state").is_some());
        }
        assert_eq!(stub.calls("Fargate profile"), expected, "{age:?}");
    }
}

/// The controller derives one profile name and one role for `a-b/c` and `a/b-c`. The deletion of one group must not
/// delete the profile of the other one, with its pods.
#[tokio::test]
async fn untagged_profile_is_left_alone_while_a_group_of_the_same_names_may_own_it() {
    let mut group = InstanceGroup::new("b-c", InstanceGroupSpec::default());
    group.metadata.namespace = Some("a".into());
    let (id, settings) = (group_id(&group), Settings::default());
    let spec: InstanceGroupSpec = serde_json::from_value(json!({
        "provisioner": "eks-fargate", "strategy": {"type": "managed"},
        "eks-fargate": {"clusterName": "demo", "selectors": [{"namespace": "team"}]},
    }))
    .expect("a spec");
    let desired = desired::parse(&id, &spec).expect("a valid spec");
    let references = References { cluster: Some(cluster("demo")), ..References::default() };
    let names = ProfileNames::new("demo", &id, NameForm::Plain, "us-west-2");
    let profile = FargateProfile {
        name: names.first_profile.clone(),
        arn: "arn".into(),
        role_arn: format!("arn:aws:iam::1:role/{}", names.role),
        subnets: vec![],
        selectors: desired.selectors.clone(),
        status: ProfileStatus::Active,
        issues: vec![],
        tags: vec![],
    };
    let stub = Arc::new(FakeAws::default());
    stub.update(|d| _ = d.fargate.insert(profile.name.clone(), profile));
    let ready = || json!({"currentState": "Ready"});
    let adopted = json!({"currentState": "Ready", "fargate": {"cluster": "demo", "adoptedHash": "x"}});
    for (own, other, is_own) in [
        (json!({}), ready(), false),
        (json!({}), Value::Null, false),
        (ready(), ready(), false),
        (ready(), Value::Null, true),
        (ready(), json!({"currentState": "Ready", "provisioner": "eks"}), true),
        (adopted, ready(), true),
    ] {
        let case = format!("{own}, {other}");
        let object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup", "spec": {}, "status": other,
            "metadata": {"name": "c", "namespace": "a-b"},
        });
        let others: [GroupObject; 1] = [serde_json::from_value(object).expect("a group")];
        let status: InstanceGroupStatus = serde_json::from_value(own).expect("a status");
        let fake = FakeCluster::new(&stub).with_groups(&others);
        let broken = RejectedFields::default();
        let found = resolve_and_observe(&fake.observer(), desired.clone(), broken, &references, &status).await;
        let (resolved, observed) = found.expect("the observed state").expect("a resolved group");
        let found = ObservedProfiles::classify(&resolved, &observed, &status);
        assert_eq!((found.untagged.is_some(), found.foreign_profile.is_none()), (is_own, is_own), "{case}");
        let request = DeleteRequest {
            id: &id,
            annotations: None,
            spec: Some(spec.clone()),
            forbidden: vec![],
            protected_by: None,
            wrong_confirmation: None,
            status: &status,
            settings: &settings,
        };
        let plan = Fargate.plan_deletion(&fake.observer(), request).await.expect("a plan");
        let tags = plan.steps.iter().any(|planned| planned.step.name() == "TagFargateProfile");
        assert_eq!(tags, is_own, "{case}: {:?}", plan.steps);
        let names_other = matches!(&plan.outcome, Outcome::Blocked { message, .. } if message.contains("a-b/c"));
        assert_eq!(names_other, !is_own, "{case}: {:?}", plan.outcome);
        let records_cluster = plan.status_update.fields["fargate"]["cluster"] == "demo";
        let message = "the deletion of a group that created nothing keeps no other group from its profile";
        assert_eq!(records_cluster, status.shows_fargate_profile(), "{case}: {message}");
    }
}

/// A lock keeps a profile whose role the spec no longer names, and a user deletes the entry of that role. The pods of the
/// profile would lose the cluster until the lock is removed.
#[tokio::test]
async fn deleted_entry_of_a_role_that_a_profile_of_the_group_still_has_is_missing() {
    let stub = Arc::new(FakeAws::default());
    let (id, role) = group_with_own_role();
    let (arn, forged) = (role.arn.clone(), "arn:aws:iam::1:role/forged");
    let spec: InstanceGroupSpec = serde_json::from_value(json!({
        "provisioner": "eks-fargate", "strategy": {"type": "managed"},
        "eks-fargate": {
            "clusterName": "demo",
            "selectors": [{"namespace": "team"}],
            "podExecutionRoleArn": "arn:aws:iam::1:role/given",
        },
    }))
    .expect("a spec");
    let desired = desired::parse(&id, &spec).expect("a valid spec");
    let profile = FargateProfile {
        name: ProfileNames::new("demo", &id, NameForm::Plain, "us-west-2").first_profile,
        arn: "arn".into(),
        role_arn: arn.clone(),
        subnets: vec![],
        selectors: desired.selectors.clone(),
        status: ProfileStatus::Active,
        issues: vec![],
        tags: ownership_tags("demo", &id),
    };
    let set_status = |status| {
        let profile = FargateProfile { status, ..profile.clone() };
        stub.update(|d| _ = d.fargate.insert(profile.name.clone(), profile));
    };
    set_status(ProfileStatus::Active);
    let missing = async |mode: &str, managed: Value| {
        let cluster = Cluster { authentication_mode: mode.into(), ..cluster("demo") };
        stub.update(|d| _ = d.clusters.insert("demo".into(), cluster.clone()));
        let references = References { cluster: Some(cluster), ..References::default() };
        let status = serde_json::from_value(json!({"managed": managed})).expect("a status");
        let (fake, broken) = (FakeCluster::new(&stub), RejectedFields::default());
        let found = resolve_and_observe(&fake.observer(), desired.clone(), broken, &references, &status).await;
        let (_, observed) = found.expect("the observed state").expect("a resolved group");
        let access_entries: Vec<_> = observed.missing_access_entries.into_iter().map(|entry| entry.principal).collect();
        (observed.missing_auth_entries, access_entries)
    };
    let (none, by_aws_auth) = ((vec![], vec![]), json!({"authEntries": [arn, forged]}));
    let by_access_entry = json!({"accessEntries": [arn, forged]});
    let access_entry = (vec![], vec![arn.clone()]);
    assert_eq!(missing("API", by_access_entry.clone()).await, access_entry, "the record alone lets no role in");
    assert_eq!(missing("API_AND_CONFIG_MAP", by_access_entry.clone()).await, access_entry);
    assert_eq!(missing("API", by_aws_auth.clone()).await, access_entry, "the cluster does not read aws-auth any more");
    assert_eq!(missing("CONFIG_MAP", by_aws_auth).await, (vec![AuthEntry::for_pods(&arn)], vec![]));
    assert_eq!(missing("API", json!({})).await, none, "the controller did not create the entry");
    set_status(ProfileStatus::Deleting);
    assert_eq!(missing("API", by_access_entry.clone()).await, none, "EKS deletes its pods");
    set_status(ProfileStatus::Active);
    let kind = "FARGATE_LINUX".to_owned();
    stub.update(|d| d.access_entries.push(AccessEntry { principal: arn.clone(), kind, created: None, tags: vec![] }));
    assert_eq!(missing("API", by_access_entry).await, none, "it is there");
}

/// A person granted the pods of the role before more, or marked its entry. No step removes such an entry, so that a plan
/// to remove it would be repeated at once, forever. Without the record, the entry would stay after the change is undone.
#[tokio::test]
async fn entry_of_a_previous_role_that_a_person_changed_is_not_to_be_removed() {
    let (stub, (id, _)) = (Arc::new(FakeAws::default()), group_with_own_role());
    let (before, given) = ("arn:aws:iam::1:role/before", "arn:aws:iam::1:role/given");
    let desired = desired::parse(&id, &fargate_spec(Some(given))).expect("a valid spec");
    let references = References { cluster: Some(cluster("demo")), ..References::default() };
    let status = serde_json::from_value(json!({"managed": {"authEntries": [before]}})).expect("a status");
    let entry = AuthEntry::for_pods(before);
    let with_group = AuthEntry { groups: [entry.groups.clone(), vec!["ops:view".into()]].concat(), ..entry.clone() };
    let text = |entry: &AuthEntry| aws_auth::add_entries(None, std::slice::from_ref(entry)).unwrap().unwrap();
    let with_key = text(&entry).replace("  username:", "  x-owner: platform\n  username:");
    let of_others = text(&AuthEntry { username: "ops".into(), ..entry.clone() });
    let changed = [with_key, text(&with_group), of_others].map(|text| (text, vec![], vec![before.to_owned()]));
    for (map_roles, unused, kept) in [(text(&entry), vec![entry], vec![])].into_iter().chain(changed) {
        let (fake, broken) = (FakeCluster::new(&stub).with_map_roles(&map_roles), RejectedFields::default());
        let found = resolve_and_observe(&fake.observer(), desired.clone(), broken, &references, &status).await;
        let (_, observed) = found.expect("the observed state").expect("a resolved group");
        let found = (observed.unused_auth_entries, observed.kept_auth_entries);
        assert_eq!(found, (unused, kept), "{map_roles}");
    }
}

/// A person changed the entry of a role. It outlives the group, and no user would know.
#[tokio::test]
async fn deletion_reports_the_entry_that_a_person_changed() {
    let (stub, (id, _), settings) = (Arc::new(FakeAws::default()), group_with_own_role(), Settings::default());
    let (id, before) = (GroupId { has_finalizer: true, ..id }, "arn:aws:iam::1:role/before");
    let text = aws_auth::add_entries(None, &[AuthEntry::for_pods(before)]).unwrap().unwrap();
    let changed = text.replace("  username:", "  x-owner: platform\n  username:");
    let fake = FakeCluster::new(&stub).with_map_roles(&changed);
    let status = json!({"fargate": {"cluster": "demo"}, "managed": {"authEntries": [before]}});
    let mut status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    for is_reported in [false, true] {
        let request = DeleteRequest {
            id: &id,
            annotations: None,
            spec: Some(fargate_spec(None)),
            forbidden: vec![],
            protected_by: None,
            wrong_confirmation: None,
            status: &status,
            settings: &settings,
        };
        let plan = Fargate.plan_deletion(&fake.observer(), request).await.expect("a plan");
        let is_removed = plan.steps.iter().any(|planned| planned.step.name() == "RemoveFinalizer");
        assert_eq!((is_removed, plan.condition_updates.is_empty()), (is_reported, is_reported), "{plan:?}");
        for update in plan.condition_updates {
            assert_eq!(update.reason, "EntryModified");
            assert!(update.message.contains(before), "{}", update.message);
            status.conditions.push(Condition::new(update.condition_type, true, &update.reason, &update.message));
        }
    }
}
