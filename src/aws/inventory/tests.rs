//! What the inventory promises, counted.
//!
//! The runtime has one thread, and `join_all` polls up to thirty futures in a
//! row: all questions of a batch are asked before it runs, however slow that is.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::stub::Stub;
use super::{Ages, Inventory};
use crate::aws::*;

const OLD: Duration = Duration::from_secs(3600);
const NOW: Duration = Duration::ZERO;

fn quick() -> Ages {
    Ages { idle: Duration::from_millis(1), longest: Duration::from_secs(3600), fill: Duration::ZERO, ..Ages::default() }
}

fn start() -> (Arc<Stub>, Arc<Inventory>) {
    let stub = Arc::new(Stub::default());
    let inventory = Inventory::with_ages(stub.aws(), quick());
    (stub, inventory)
}

fn group(name: &str) -> ScalingGroup {
    ScalingGroup {
        name: name.into(),
        min: 1,
        max: 3,
        desired: 1,
        subnets: vec![],
        template: None,
        launch_configuration: None,
        warm_pool: None,
        mixed: None,
        tags: vec![],
        unpropagated: vec![],
        suspended: vec![],
        metrics: vec![],
        instances: vec![],
        deleting: false,
    }
}

fn instance(id: &str, state: InstanceState) -> Instance {
    Instance {
        id: id.into(),
        zone: "a".into(),
        state,
        healthy: true,
        template: None,
        configuration: None,
        weight: 1,
        in_service_since: None,
    }
}

fn template(name: &str) -> LaunchTemplate {
    LaunchTemplate { id: format!("lt-{name}"), name: name.into(), default_version: 1, latest_version: 1, tags: vec![] }
}

fn version(id: &str, number: i64) -> TemplateVersion {
    TemplateVersion { template_id: id.into(), number, description: None, data: TemplateData::default() }
}

fn profile(name: &str) -> InstanceProfile {
    InstanceProfile {
        id: format!("AIPA-{name}"),
        name: name.into(),
        arn: format!("arn:{name}"),
        created: None,
        role: None,
        tags: vec![],
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("g{i:04}")).collect()
}

fn unavailable() -> AwsError {
    AwsError::unanswered("AutoScaling", "DescribeAutoScalingGroups", "Timeout", "")
}

/// Lets every task that can go on go on.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn groups_that_are_asked_for_together_are_one_call() {
    let (stub, inventory) = start();
    let names = names(20);
    let found = join_all(names.iter().map(|n| inventory.group(n, OLD))).await;
    assert!(found.into_iter().all(|g| g == Ok(None)));
    assert_eq!(stub.calls("groups"), 1);
}

#[tokio::test]
async fn a_resync_of_a_thousand_unchanged_groups_is_ten_and_five_calls() {
    let stub = Arc::new(Stub::default());
    // Full batches go at once, so none of these waits for company.
    let inventory = Inventory::with_ages(stub.aws(), Ages { idle: Duration::from_secs(3600), ..quick() });
    let names = names(1000);
    stub.edit(|d| {
        d.groups = names.iter().map(|n| (n.clone(), group(n))).collect();
        d.templates = names.iter().map(|n| (n.clone(), template(n))).collect();
    });
    let found = join_all(names.iter().map(|n| inventory.group(n, OLD))).await;
    assert!(found.into_iter().all(|g| g.unwrap().is_some()));
    join_all(names.iter().map(|n| inventory.template(n, OLD))).await;
    assert_eq!((stub.calls("groups"), stub.calls("templates")), (10, 5));
    join_all(names.iter().map(|n| inventory.group(n, OLD))).await;
    assert_eq!(stub.calls("groups"), 10);
}

#[tokio::test]
async fn spare_room_reads_the_names_that_were_not_read_for_longest() {
    let (stub, inventory) = start();
    let names = names(250);
    for together in names.chunks(25) {
        join_all(together.iter().map(|n| inventory.group(n, OLD))).await;
    }
    assert_eq!(stub.calls("groups"), 10);
    stub.edit(|d| d.groups = names.iter().map(|n| (n.clone(), group(n))).collect());
    // One stale name brings ninety-nine others along; three such calls have read them all.
    for name in &names[..3] {
        inventory.wrote_group(name);
        assert!(inventory.group(name, OLD).await.unwrap().is_some());
    }
    assert_eq!(stub.calls("groups"), 13);
    let found = join_all(names.iter().map(|n| inventory.group(n, OLD))).await;
    assert!(found.into_iter().all(|g| g.unwrap().is_some()));
    assert_eq!(stub.calls("groups"), 13);
}

#[tokio::test]
async fn an_error_reaches_everyone_and_is_not_remembered_as_absence() {
    let (stub, inventory) = start();
    stub.edit(|d| d.fail = Some(unavailable()));
    let names = names(20);
    let found = join_all(names.iter().map(|n| inventory.group(n, OLD))).await;
    assert!(found.into_iter().all(|g| g == Err(unavailable())));
    stub.edit(|d| {
        d.fail = None;
        d.groups.insert("g0000".into(), group("g0000"));
    });
    assert!(inventory.group("g0000", OLD).await.unwrap().is_some());
    assert_eq!(stub.calls("groups"), 2);
}

#[tokio::test]
async fn an_error_does_not_hide_behind_an_older_answer() {
    let (stub, inventory) = start();
    stub.edit(|d| {
        d.groups.insert("g".into(), group("g"));
    });
    inventory.group("g", NOW).await.unwrap();
    stub.edit(|d| d.fail = Some(unavailable()));
    assert_eq!(inventory.group("g", NOW).await, Err(unavailable()));
}

#[tokio::test]
async fn a_name_that_aws_refuses_fails_alone() {
    let (stub, inventory) = start();
    let names: Vec<String> = (0..8).map(|i| format!("/p{i}")).collect();
    stub.edit(|d| {
        d.parameters = names.iter().map(|n| (n.clone(), format!("ami-{n}"))).collect();
        d.poison = Some(names[5].clone());
    });
    let found = join_all(names.iter().map(|n| inventory.image(n, OLD))).await;
    for (name, answer) in names.iter().zip(found) {
        match answer {
            Ok(image) => assert_eq!(image, Some(format!("ami-{name}"))),
            Err(error) => assert_eq!((name, error.kind), (&names[5], AwsErrorKind::Invalid)),
        }
    }
}

#[tokio::test]
async fn an_image_is_read_once_however_many_groups_share_it() {
    let (stub, inventory) = start();
    stub.edit(|d| {
        d.parameters.insert("/latest".into(), "ami-1".into());
    });
    let found = join_all((0..50).map(|_| inventory.image("/latest", OLD))).await;
    assert!(found.into_iter().all(|i| i == Ok(Some("ami-1".into()))));
    assert_eq!(stub.calls("parameters"), 1);
}

#[tokio::test]
async fn a_read_that_began_before_our_write_is_neither_kept_nor_told() {
    let (stub, inventory) = start();
    let hold = Arc::new(Semaphore::new(0));
    stub.edit(|d| {
        d.groups.insert("g".into(), group("g"));
        d.hold = Some(hold.clone());
    });
    let early = tokio::spawn({
        let inventory = inventory.clone();
        async move { inventory.group("g", OLD).await }
    });
    while stub.calls("groups") == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stub.edit(|d| {
        d.groups.get_mut("g").unwrap().max = 9;
    });
    inventory.wrote_group("g");
    let late = tokio::spawn({
        let inventory = inventory.clone();
        async move { inventory.group("g", OLD).await }
    });
    settle().await;
    hold.add_permits(10);
    assert_eq!(early.await.unwrap().unwrap().unwrap().max, 3);
    assert_eq!(late.await.unwrap().unwrap().unwrap().max, 9);
    assert_eq!(stub.calls("groups"), 2);
    assert_eq!(inventory.group("g", OLD).await.unwrap().unwrap().max, 9);
    assert_eq!(stub.calls("groups"), 2);
}

#[tokio::test]
async fn who_asks_during_a_read_shares_it() {
    let (stub, inventory) = start();
    let hold = Arc::new(Semaphore::new(0));
    stub.edit(|d| d.hold = Some(hold.clone()));
    let ask = || {
        let inventory = inventory.clone();
        tokio::spawn(async move { inventory.group("g", OLD).await })
    };
    let first = ask();
    while stub.calls("groups") == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let second = ask();
    settle().await;
    hold.add_permits(10);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(None), Ok(None)));
    assert_eq!(stub.calls("groups"), 1);
}

#[tokio::test]
async fn a_reader_that_gives_up_takes_nothing_from_the_others() {
    let (stub, inventory) = start();
    let ask = || {
        let inventory = inventory.clone();
        tokio::spawn(async move { inventory.group("g", OLD).await })
    };
    let (first, second) = (ask(), ask());
    settle().await;
    first.abort();
    assert_eq!(second.await.unwrap(), Ok(None));
    assert_eq!(stub.calls("groups"), 1);
}

#[tokio::test]
async fn what_our_writes_prove_needs_no_read() {
    let (stub, inventory) = start();
    let input = NewTemplate {
        name: "t".into(),
        tags: vec![],
        version: NewVersion { token: "x".into(), description: "h".into(), data: TemplateData::default() },
    };
    inventory.made_template_of(&input, &version("lt-t", 1));
    inventory.made_version(version("lt-t", 2));
    inventory.made_default("lt-t", 2);
    let found = inventory.template("t", OLD).await.unwrap().unwrap();
    assert_eq!((found.default_version, found.latest_version), (2, 2));
    assert_eq!(inventory.version("lt-t", 2).await.unwrap().unwrap().number, 2);
    assert_eq!((stub.calls("templates"), stub.calls("versions")), (0, 0));
    inventory.gone_template("lt-t");
    assert_eq!(inventory.template("t", OLD).await.unwrap(), None);
    assert_eq!(inventory.version("lt-t", 2).await.unwrap(), None);
    assert_eq!((stub.calls("templates"), stub.calls("versions")), (0, 1));
}

#[tokio::test]
async fn what_we_made_is_believed_until_aws_had_time_to_show_it() {
    let stub = Arc::new(Stub::default());
    let believing = Inventory::with_ages(stub.aws(), quick());
    believing.made_template(template("t"));
    believing.made_profile(profile("p"));
    assert_eq!(believing.template("t", NOW).await.unwrap(), Some(template("t")));
    assert_eq!(believing.profile("p", NOW).await.unwrap(), Some(profile("p")));

    let doubting = Inventory::with_ages(stub.aws(), Ages { settle: Duration::ZERO, ..quick() });
    doubting.made_template(template("t"));
    doubting.made_profile(profile("p"));
    assert_eq!(doubting.template("t", NOW).await.unwrap(), None);
    assert_eq!(doubting.profile("p", NOW).await.unwrap(), None);

    // A write with an unknown outcome takes the belief back.
    believing.wrote_template("t");
    believing.wrote_profile("p");
    assert_eq!(believing.template("t", OLD).await.unwrap(), None);
    assert_eq!(believing.profile("p", OLD).await.unwrap(), None);
}

#[tokio::test]
async fn profiles_and_policies_are_listed_once_for_all_groups() {
    let (stub, inventory) = start();
    stub.edit(|d| {
        d.profiles = names(50).into_iter().map(|n| (n.clone(), profile(&n))).collect();
        d.policies.insert("arn:cni".into(), names(50));
    });
    let wanted = ["arn:cni".to_owned(), "arn:none".to_owned()];
    for name in names(50) {
        assert!(inventory.profile(&name, OLD).await.unwrap().is_some());
        assert_eq!(inventory.attached(&name, &wanted, OLD).await.unwrap(), ["arn:cni"]);
    }
    assert_eq!((stub.calls("profiles"), stub.calls("policies")), (1, 2));

    let role = Role { id: "AROA-r".into(), name: "r".into(), arn: "arn:r".into(), tags: vec![] };
    inventory.role_added("g0000", &role);
    inventory.detached_policy("g0000", "arn:cni");
    inventory.attached_policy("g0000", "arn:none");
    assert_eq!(inventory.profile("g0000", OLD).await.unwrap().unwrap().role, Some(role));
    assert_eq!(inventory.attached("g0000", &wanted, OLD).await.unwrap(), ["arn:none"]);
    assert_eq!(inventory.attached("g0001", &wanted, OLD).await.unwrap(), ["arn:cni"]);
    assert_eq!((stub.calls("profiles"), stub.calls("policies")), (1, 2));

    inventory.wrote_policy("g0001", "arn:cni");
    stub.edit(|d| d.policies.get_mut("arn:cni").unwrap().clear());
    assert!(inventory.attached("g0001", &wanted, OLD).await.unwrap().is_empty());
    assert_eq!(stub.calls("policies"), 3);
}

#[tokio::test]
async fn versions_are_read_once_and_many_at_a_start_with_one_listing() {
    let (stub, inventory) = start();
    stub.edit(|d| d.versions = names(30).iter().map(|n| version(n, 1)).collect());
    let names = names(30);
    let found = join_all(names.iter().map(|n| inventory.version(n, 1))).await;
    assert!(found.into_iter().all(|v| v.unwrap().is_some()));
    assert_eq!((stub.calls("default versions"), stub.calls("versions")), (1, 0));
    stub.edit(|d| d.versions.push(version("g0000", 3)));
    let found = inventory.versions("g0000", &[3, 2, 1]).await.unwrap();
    assert_eq!(found.iter().map(|v| v.number).collect::<Vec<_>>(), [1, 3]);
    inventory.version("g0000", 3).await.unwrap();
    assert_eq!(stub.calls("versions"), 2);
}

#[tokio::test]
async fn an_instance_keeps_its_time_in_service_until_it_is_gone() {
    let (stub, inventory) = start();
    let show = |instances: Vec<Instance>| {
        stub.edit(|d| {
            d.groups.insert("g".into(), ScalingGroup { instances, ..group("g") });
        });
    };
    let since = || async {
        let found = inventory.group("g", NOW).await.unwrap().unwrap();
        found.instances.iter().map(|i| i.in_service_since).collect::<Vec<Option<Timestamp>>>()
    };
    show(vec![instance("i-1", InstanceState::InService), instance("i-2", InstanceState::Pending)]);
    let first = since().await;
    assert!(first[0].is_some() && first[1].is_none());
    assert_eq!(inventory.group_of_instance("i-2").as_deref(), Some("g"));
    show(vec![instance("i-1", InstanceState::Standby)]);
    assert_eq!(since().await, first[..1]);
    assert_eq!(inventory.group_of_instance("i-2"), None);
    stub.edit(|d| {
        d.groups.clear();
    });
    assert_eq!(inventory.group("g", NOW).await.unwrap(), None);
    assert_eq!(inventory.group_of_instance("i-1"), None);
}

#[tokio::test]
async fn what_never_changes_is_read_once_and_what_is_absent_again() {
    let stub = Arc::new(Stub::default());
    let inventory = Inventory::with_ages(stub.aws(), Ages { absent: Duration::ZERO, ..quick() });
    for _ in 0..3 {
        assert!(inventory.instance_type("m5.large").await.unwrap().is_some());
    }
    assert_eq!(stub.calls("instance types"), 1);
    for _ in 0..2 {
        assert!(inventory.instance_type("m9.none").await.unwrap().is_none());
    }
    assert_eq!(stub.calls("instance types"), 3);
    let (one, two) = tokio::join!(inventory.instance_type("m5.xlarge"), inventory.instance_type("m5.2xlarge"));
    assert_eq!([one.unwrap().unwrap().name, two.unwrap().unwrap().name], ["m5.xlarge", "m5.2xlarge"]);
    assert_eq!(stub.calls("instance types"), 4, "asked for together, they are one call");
    for _ in 0..2 {
        let (one, two) = tokio::join!(inventory.ami("ami-1"), inventory.ami("ami-2"));
        assert!(one.unwrap().is_some() && two.unwrap().is_some());
    }
    assert_eq!(stub.calls("images"), 1);
    let ids = ["i-1".to_owned(), "i-2".to_owned()];
    for _ in 0..2 {
        assert_eq!(inventory.launch_times(&ids).await.unwrap().len(), 2);
    }
    assert_eq!(stub.calls("launch times"), 1);
}

#[tokio::test]
async fn a_network_name_that_does_not_resolve_costs_one_more_read() {
    let (stub, inventory) = start();
    for _ in 0..5 {
        inventory.subnets("vpc").await.unwrap();
        inventory.refresh_network("vpc").await.unwrap();
    }
    assert_eq!((stub.calls("subnets"), stub.calls("security groups")), (1, 1));
    let eager = Inventory::with_ages(stub.aws(), Ages { again: Duration::ZERO, ..quick() });
    eager.subnets("vpc").await.unwrap();
    eager.refresh_network("vpc").await.unwrap();
    assert_eq!(stub.calls("subnets"), 3);
}

#[tokio::test]
async fn a_forgotten_group_is_read_anew_and_fills_no_batch() {
    let (stub, inventory) = start();
    inventory.group("a", OLD).await.unwrap();
    inventory.hooks("a", OLD).await.unwrap();
    inventory.forget("a");
    inventory.hooks("a", OLD).await.unwrap();
    inventory.wrote_hooks("a");
    inventory.hooks("a", OLD).await.unwrap();
    assert_eq!(stub.calls("hooks"), 3);
    stub.edit(|d| d.poison = Some("a".into()));
    assert_eq!(inventory.group("b", OLD).await, Ok(None));
    assert_eq!(stub.calls("groups"), 2);
}

#[tokio::test]
async fn one_question_takes_along_new_groups_and_those_just_written() {
    let stub = Arc::new(Stub::default());
    let inventory = Inventory::with_ages(stub.aws(), Ages { fill: OLD, ..quick() });
    inventory.expect("b".into(), "b".into());
    inventory.group("a", OLD).await.unwrap();
    inventory.group("b", OLD).await.unwrap();
    assert_eq!(stub.calls("groups"), 1);
    inventory.wrote_group("a");
    inventory.wrote_group("b");
    inventory.group("a", OLD).await.unwrap();
    inventory.group("b", OLD).await.unwrap();
    assert_eq!(stub.calls("groups"), 2);
}

#[tokio::test]
async fn one_question_takes_along_groups_that_need_a_young_answer() {
    let stub = Arc::new(Stub::default());
    let inventory = Inventory::with_ages(stub.aws(), Ages { fill: OLD, ..quick() });
    for (name, age) in [("a", NOW), ("b", NOW), ("quiet", NOW), ("a", NOW), ("b", NOW), ("quiet", OLD)] {
        inventory.group(name, age).await.unwrap();
    }
    let before = stub.calls("groups");
    stub.edit(|d| d.groups = ["b", "quiet"].map(|n| (n.to_owned(), group(n))).into());
    inventory.group("a", NOW).await.unwrap();
    assert!(inventory.group("b", OLD).await.unwrap().is_some(), "read with the other one");
    assert!(inventory.group("quiet", OLD).await.unwrap().is_none(), "what was read before is young enough");
    assert_eq!(stub.calls("groups"), before + 1);
}

#[tokio::test]
async fn types_that_groups_name_are_one_call_whoever_asks_first() {
    let (stub, inventory) = start();
    let named = || ["m5.xlarge", "m9.none", "m5.*", "nonsense"].map(str::to_owned).to_vec();
    inventory.expect_types("m5.large", named);
    assert!(inventory.instance_type("m5.large").await.unwrap().is_some());
    assert!(inventory.instance_type("m5.xlarge").await.unwrap().is_some());
    assert!(inventory.instance_type("m9.none").await.unwrap().is_none());
    assert_eq!(stub.calls("instance types"), 1);
    inventory.expect_types("m5.large", || unreachable!("it is known"));
}

#[tokio::test]
async fn those_who_ask_before_a_read_has_begun_share_it() {
    let (stub, inventory) = start();
    join_all((0..5).map(|_| inventory.hooks("a", NOW))).await;
    assert_eq!(stub.calls("hooks"), 1);
}

#[tokio::test]
async fn lines_are_read_once_for_all_groups_and_together() {
    let (stub, inventory) = start();
    let names = (0..50).map(|n| if n % 2 == 0 { "m5.large" } else { "c6.large" });
    let found = join_all(names.map(|name| inventory.catalogue(name))).await;
    for (n, catalogue) in found.into_iter().enumerate() {
        let (own, like) = if n % 2 == 0 { ("m5.large", "m5a.large") } else { ("c6.large", "c6a.large") };
        assert_eq!(catalogue.unwrap().like(own), [like]);
    }
    inventory.catalogue("m5a.large").await.unwrap();
    settle().await;
    assert_eq!((stub.calls("catalogue"), stub.calls("offers")), (1, 1));
}

#[tokio::test]
async fn a_type_of_a_line_that_was_read_needs_no_call() {
    let (stub, inventory) = start();
    inventory.catalogue("m5.large").await.unwrap();
    assert!(inventory.instance_type("m5a.large").await.unwrap().is_some());
    assert_eq!(stub.calls("instance types"), 0);
    // AWS may have launched it since.
    assert!(inventory.instance_type("m5.2xlarge").await.unwrap().is_some());
    assert!(inventory.instance_type("m5z.none").await.unwrap().is_none());
    assert_eq!(stub.calls("instance types"), 2);
}

#[tokio::test]
async fn a_line_that_is_not_there_is_not_asked_for_in_every_look() {
    let (stub, inventory) = start();
    for name in ["zz9.large", "zz9.large", "m*5.large", "nonsense"] {
        assert!(inventory.catalogue(name).await.unwrap().like(name).is_empty());
    }
    assert_eq!(stub.calls("catalogue"), 1);
}

#[tokio::test]
async fn a_line_that_could_not_be_read_is_an_error_and_no_empty_pool() {
    let (stub, inventory) = start();
    let error = AwsError::answered("EC2", "DescribeInstanceTypes", "RequestLimitExceeded", "slow down", 503);
    stub.edit(|d| d.fail = Some(error));
    assert!(inventory.catalogue("m5.large").await.is_err());
    stub.edit(|d| d.fail = None);
    assert_eq!(inventory.catalogue("m5.large").await.unwrap().like("m5.large"), ["m5a.large"]);
}

#[tokio::test]
async fn nobody_waits_while_an_old_catalogue_is_read_again() {
    let stub = Arc::new(Stub::default());
    let inventory =
        Inventory::with_ages(stub.aws(), Ages { catalogue: Duration::ZERO, idle: Duration::ZERO, ..quick() });
    inventory.catalogue("m5.large").await.unwrap();
    settle().await;
    let before = stub.calls("catalogue");
    // The second reading does not end before a permit is given.
    stub.edit(|d| d.hold = Some(Arc::new(tokio::sync::Semaphore::new(0))));
    for _ in 0..3 {
        assert!(inventory.catalogue("m5.large").await.unwrap().offered("m5a.large", &["a"]));
        settle().await;
    }
    assert_eq!(stub.calls("catalogue"), before + 1);
}

#[tokio::test]
async fn fargate_profiles_of_a_cluster_are_listed_once_and_a_write_is_seen() {
    let (stub, inventory) = start();
    let profile = fargate::FargateProfile {
        name: "p".into(),
        arn: "arn:p".into(),
        role_arn: "arn:r".into(),
        subnets: vec![],
        selectors: vec![],
        status: fargate::ProfileStatus::Active,
        issues: vec![],
        tags: vec![],
    };
    stub.edit(|d| d.fargate = [("p".into(), profile.clone())].into());
    for _ in 0..3 {
        assert_eq!(*inventory.fargate_profile_names("c", OLD).await.unwrap(), ["p"]);
        assert_eq!(inventory.fargate_profile("c", "p", OLD).await.unwrap(), Some(profile.clone()));
    }
    assert_eq!((stub.calls("fargate names"), stub.calls("fargate profiles")), (1, 1));
    stub.edit(|d| d.fargate.clear());
    inventory.wrote_fargate_profile("c", "p");
    assert!(inventory.fargate_profile_names("c", OLD).await.unwrap().is_empty());
    assert_eq!(inventory.fargate_profile("c", "p", OLD).await.unwrap(), None);
}
