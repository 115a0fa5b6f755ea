//! Tests of observing a group.

use std::sync::Arc;

use serde_json::{Value, json};

use super::names::ProfileNames;
use super::observe::{RemainingResources, remaining_resources};
use super::ownership::OwnershipEvidence;
use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};
use crate::auth::aws_auth::{self, AuthEntry};
use crate::aws::Role;
use crate::aws::inventory::fake_aws::FakeAws;
use crate::ownership::ownership_tags;
use crate::provisioner::name_form::NameForm;
use crate::provisioner::observe::fake::FakeCluster;

/// A person breaks aws-auth and a group is deleted meanwhile. The entry of its role would stay for ever, and admit any later
/// role of that name.
#[tokio::test]
async fn deletion_waits_until_the_entry_of_its_role_can_be_looked_for() {
    let stub = Arc::new(FakeAws::default());
    let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
    group.metadata.namespace = Some("team".into());
    let id = group_id(&group);
    let tags = ownership_tags("demo", &id);
    let name = ProfileNames::new("demo", &id, NameForm::Plain, "us-west-2").role;
    let arn = format!("arn:aws:iam::1:role/{name}");
    let role = Role { name: name.clone(), arn: arn.clone(), tags: tags.clone(), ..Role::default() };
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
