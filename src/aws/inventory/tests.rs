//! What the inventory promises, counted.
//!
//! The runtime has one thread, and `join_all` polls up to thirty futures in a
//! row: all questions of a batch are asked before it runs, however slow that is.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::fake_aws::FakeAws;
use super::{CacheConfig, Inventory};
use crate::aws::*;

const ANY_AGE: Duration = Duration::from_secs(3600);
const NO_CACHE: Duration = Duration::ZERO;

fn fast_config() -> CacheConfig {
    CacheConfig {
        batch_idle: Duration::from_millis(1),
        batch_max_wait: Duration::from_secs(3600),
        prefetch_age: Duration::ZERO,
        ..CacheConfig::default()
    }
}

fn inventory_with_fake_aws() -> (Arc<FakeAws>, Arc<Inventory>) {
    let stub = Arc::new(FakeAws::default());
    let inventory = Inventory::with_config(stub.aws(), fast_config());
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
        unpropagated_tags: vec![],
        suspended_processes: vec![],
        enabled_metrics: vec![],
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
        launch_configuration: None,
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
    AwsError::no_response("AutoScaling", "DescribeAutoScalingGroups", "Timeout", "")
}

/// Lets every task that can go on go on.
async fn let_tasks_run() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn concurrent_reads_share_one_call() {
    let (stub, inventory) = inventory_with_fake_aws();
    let names = names(20);
    let found = join_all(names.iter().map(|n| inventory.group(n, ANY_AGE))).await;
    assert!(found.into_iter().all(|g| g == Ok(None)));
    assert_eq!(stub.calls("groups"), 1);
}

#[tokio::test]
async fn resync_of_1000_unchanged_groups_is_15_calls() {
    let stub = Arc::new(FakeAws::default());
    // Full batches go at once, so none of these waits for company.
    let inventory =
        Inventory::with_config(stub.aws(), CacheConfig { batch_idle: Duration::from_secs(3600), ..fast_config() });
    let names = names(1000);
    stub.update(|d| {
        d.groups = names.iter().map(|n| (n.clone(), group(n))).collect();
        d.templates = names.iter().map(|n| (n.clone(), template(n))).collect();
    });
    let found = join_all(names.iter().map(|n| inventory.group(n, ANY_AGE))).await;
    assert!(found.into_iter().all(|g| g.unwrap().is_some()));
    join_all(names.iter().map(|n| inventory.template(n, ANY_AGE))).await;
    assert_eq!((stub.calls("groups"), stub.calls("templates")), (10, 5));
    join_all(names.iter().map(|n| inventory.group(n, ANY_AGE))).await;
    assert_eq!(stub.calls("groups"), 10);
}

#[tokio::test]
async fn spare_batch_slots_prefetch_oldest_entries() {
    let (stub, inventory) = inventory_with_fake_aws();
    let names = names(250);
    for together in names.chunks(25) {
        join_all(together.iter().map(|n| inventory.group(n, ANY_AGE))).await;
    }
    assert_eq!(stub.calls("groups"), 10);
    stub.update(|d| d.groups = names.iter().map(|n| (n.clone(), group(n))).collect());
    // One stale name brings ninety-nine others along; three such calls have read them all.
    for name in &names[..3] {
        inventory.invalidate_group(name);
        assert!(inventory.group(name, ANY_AGE).await.unwrap().is_some());
    }
    assert_eq!(stub.calls("groups"), 13);
    let found = join_all(names.iter().map(|n| inventory.group(n, ANY_AGE))).await;
    assert!(found.into_iter().all(|g| g.unwrap().is_some()));
    assert_eq!(stub.calls("groups"), 13);
}

#[tokio::test]
async fn errors_reach_all_readers_and_are_not_cached() {
    let (stub, inventory) = inventory_with_fake_aws();
    stub.update(|d| d.failure = Some(unavailable()));
    let names = names(20);
    let found = join_all(names.iter().map(|n| inventory.group(n, ANY_AGE))).await;
    assert!(found.into_iter().all(|g| g == Err(unavailable())));
    stub.update(|d| {
        d.failure = None;
        d.groups.insert("g0000".into(), group("g0000"));
    });
    assert!(inventory.group("g0000", ANY_AGE).await.unwrap().is_some());
    assert_eq!(stub.calls("groups"), 2);
}

#[tokio::test]
async fn errors_are_not_masked_by_cached_entries() {
    let (stub, inventory) = inventory_with_fake_aws();
    stub.update(|d| {
        d.groups.insert("g".into(), group("g"));
    });
    inventory.group("g", NO_CACHE).await.unwrap();
    stub.update(|d| d.failure = Some(unavailable()));
    assert_eq!(inventory.group("g", NO_CACHE).await, Err(unavailable()));
}

#[tokio::test]
async fn rejected_name_fails_only_its_reader() {
    let (stub, inventory) = inventory_with_fake_aws();
    let names: Vec<String> = (0..8).map(|i| format!("/p{i}")).collect();
    stub.update(|d| {
        d.parameters = names.iter().map(|n| (n.clone(), format!("ami-{n}"))).collect();
        d.rejected_name = Some(names[5].clone());
    });
    let found = join_all(names.iter().map(|n| inventory.ssm_image(n, ANY_AGE))).await;
    for (name, answer) in names.iter().zip(found) {
        match answer {
            Ok(image) => assert_eq!(image, Some(format!("ami-{name}"))),
            Err(error) => assert_eq!((name, error.kind), (&names[5], AwsErrorKind::Invalid)),
        }
    }
}

#[tokio::test]
async fn shared_image_is_read_once() {
    let (stub, inventory) = inventory_with_fake_aws();
    stub.update(|d| {
        d.parameters.insert("/latest".into(), "ami-1".into());
    });
    let found = join_all((0..50).map(|_| inventory.ssm_image("/latest", ANY_AGE))).await;
    assert!(found.into_iter().all(|i| i == Ok(Some("ami-1".into()))));
    assert_eq!(stub.calls("parameters"), 1);
}

#[tokio::test]
async fn read_started_before_a_write_is_discarded() {
    let (stub, inventory) = inventory_with_fake_aws();
    let hold = Arc::new(Semaphore::new(0));
    stub.update(|d| {
        d.groups.insert("g".into(), group("g"));
        d.read_permits = Some(hold.clone());
    });
    let early = tokio::spawn({
        let inventory = inventory.clone();
        async move { inventory.group("g", ANY_AGE).await }
    });
    while stub.calls("groups") == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stub.update(|d| {
        d.groups.get_mut("g").unwrap().max = 9;
    });
    inventory.invalidate_group("g");
    let late = tokio::spawn({
        let inventory = inventory.clone();
        async move { inventory.group("g", ANY_AGE).await }
    });
    let_tasks_run().await;
    hold.add_permits(10);
    assert_eq!(early.await.unwrap().unwrap().unwrap().max, 3);
    assert_eq!(late.await.unwrap().unwrap().unwrap().max, 9);
    assert_eq!(stub.calls("groups"), 2);
    assert_eq!(inventory.group("g", ANY_AGE).await.unwrap().unwrap().max, 9);
    assert_eq!(stub.calls("groups"), 2);
}

#[tokio::test]
async fn in_flight_read_is_shared() {
    let (stub, inventory) = inventory_with_fake_aws();
    let hold = Arc::new(Semaphore::new(0));
    stub.update(|d| d.read_permits = Some(hold.clone()));
    let ask = || {
        let inventory = inventory.clone();
        tokio::spawn(async move { inventory.group("g", ANY_AGE).await })
    };
    let first = ask();
    while stub.calls("groups") == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let second = ask();
    let_tasks_run().await;
    hold.add_permits(10);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(None), Ok(None)));
    assert_eq!(stub.calls("groups"), 1);
}

#[tokio::test]
async fn cancelled_reader_does_not_affect_others() {
    let (stub, inventory) = inventory_with_fake_aws();
    let ask = || {
        let inventory = inventory.clone();
        tokio::spawn(async move { inventory.group("g", ANY_AGE).await })
    };
    let (first, second) = (ask(), ask());
    let_tasks_run().await;
    first.abort();
    assert_eq!(second.await.unwrap(), Ok(None));
    assert_eq!(stub.calls("groups"), 1);
}

#[tokio::test]
async fn upserted_entries_need_no_read() {
    let (stub, inventory) = inventory_with_fake_aws();
    let input = NewTemplate {
        name: "t".into(),
        tags: vec![],
        version: NewVersion { token: "x".into(), description: "h".into(), data: TemplateData::default() },
    };
    inventory.upsert_template_with_version(&input, &version("lt-t", 1));
    inventory.upsert_version(version("lt-t", 2));
    inventory.update_default_version("lt-t", 2);
    let found = inventory.template("t", ANY_AGE).await.unwrap().unwrap();
    assert_eq!((found.default_version, found.latest_version), (2, 2));
    assert_eq!(inventory.version("lt-t", 2).await.unwrap().unwrap().number, 2);
    assert_eq!((stub.calls("templates"), stub.calls("versions")), (0, 0));
    inventory.remove_template("lt-t");
    assert_eq!(inventory.template("t", ANY_AGE).await.unwrap(), None);
    assert_eq!(inventory.version("lt-t", 2).await.unwrap(), None);
    assert_eq!((stub.calls("templates"), stub.calls("versions")), (0, 1));
}

#[tokio::test]
async fn created_resource_survives_eventual_consistency() {
    let stub = Arc::new(FakeAws::default());
    let believing = Inventory::with_config(stub.aws(), fast_config());
    believing.upsert_template(template("t"));
    believing.upsert_profile(profile("p"));
    assert_eq!(believing.template("t", NO_CACHE).await.unwrap(), Some(template("t")));
    assert_eq!(believing.profile("p", NO_CACHE).await.unwrap(), Some(profile("p")));

    let doubting =
        Inventory::with_config(stub.aws(), CacheConfig { consistency_window: Duration::ZERO, ..fast_config() });
    doubting.upsert_template(template("t"));
    doubting.upsert_profile(profile("p"));
    assert_eq!(doubting.template("t", NO_CACHE).await.unwrap(), None);
    assert_eq!(doubting.profile("p", NO_CACHE).await.unwrap(), None);

    // A write with an unknown outcome takes the belief back.
    believing.invalidate_template("t");
    believing.invalidate_profile("p");
    assert_eq!(believing.template("t", ANY_AGE).await.unwrap(), None);
    assert_eq!(believing.profile("p", ANY_AGE).await.unwrap(), None);
}

#[tokio::test]
async fn profiles_and_policies_share_one_listing() {
    let (stub, inventory) = inventory_with_fake_aws();
    stub.update(|d| {
        d.profiles = names(50).into_iter().map(|n| (n.clone(), profile(&n))).collect();
        d.policies.insert("arn:cni".into(), names(50));
    });
    let wanted = ["arn:cni".to_owned(), "arn:none".to_owned()];
    for name in names(50) {
        assert!(inventory.profile(&name, ANY_AGE).await.unwrap().is_some());
        assert_eq!(inventory.attached_policies(&name, &wanted, ANY_AGE).await.unwrap(), ["arn:cni"]);
    }
    assert_eq!((stub.calls("profiles"), stub.calls("policies")), (1, 2));

    let role = Role { id: "AROA-r".into(), name: "r".into(), arn: "arn:r".into(), tags: vec![] };
    inventory.upsert_profile_role("g0000", &role);
    inventory.remove_attached_policy("g0000", "arn:cni");
    inventory.upsert_attached_policy("g0000", "arn:none");
    assert_eq!(inventory.profile("g0000", ANY_AGE).await.unwrap().unwrap().role, Some(role));
    assert_eq!(inventory.attached_policies("g0000", &wanted, ANY_AGE).await.unwrap(), ["arn:none"]);
    assert_eq!(inventory.attached_policies("g0001", &wanted, ANY_AGE).await.unwrap(), ["arn:cni"]);
    assert_eq!((stub.calls("profiles"), stub.calls("policies")), (1, 2));

    inventory.invalidate_policy("g0001", "arn:cni");
    stub.update(|d| d.policies.get_mut("arn:cni").unwrap().clear());
    assert!(inventory.attached_policies("g0001", &wanted, ANY_AGE).await.unwrap().is_empty());
    assert_eq!(stub.calls("policies"), 3);
}

#[tokio::test]
async fn versions_are_listed_in_bulk_at_startup() {
    let (stub, inventory) = inventory_with_fake_aws();
    stub.update(|d| d.versions = names(30).iter().map(|n| version(n, 1)).collect());
    let names = names(30);
    let found = join_all(names.iter().map(|n| inventory.version(n, 1))).await;
    assert!(found.into_iter().all(|v| v.unwrap().is_some()));
    assert_eq!((stub.calls("default versions"), stub.calls("versions")), (1, 0));
    stub.update(|d| d.versions.push(version("g0000", 3)));
    let found = inventory.versions("g0000", &[3, 2, 1]).await.unwrap();
    assert_eq!(found.iter().map(|v| v.number).collect::<Vec<_>>(), [1, 3]);
    inventory.version("g0000", 3).await.unwrap();
    assert_eq!(stub.calls("versions"), 2);
}

#[tokio::test]
async fn in_service_time_is_kept_until_instance_is_removed() {
    let (stub, inventory) = inventory_with_fake_aws();
    let show = |instances: Vec<Instance>| {
        stub.update(|d| {
            d.groups.insert("g".into(), ScalingGroup { instances, ..group("g") });
        });
    };
    let since = || async {
        let found = inventory.group("g", NO_CACHE).await.unwrap().unwrap();
        found.instances.iter().map(|i| i.in_service_since).collect::<Vec<Option<Timestamp>>>()
    };
    show(vec![instance("i-1", InstanceState::InService), instance("i-2", InstanceState::Pending)]);
    let first = since().await;
    assert!(first[0].is_some() && first[1].is_none());
    assert_eq!(inventory.group_of_instance("i-2").as_deref(), Some("g"));
    show(vec![instance("i-1", InstanceState::Standby)]);
    assert_eq!(since().await, first[..1]);
    assert_eq!(inventory.group_of_instance("i-2"), None);
    stub.update(|d| {
        d.groups.clear();
    });
    assert_eq!(inventory.group("g", NO_CACHE).await.unwrap(), None);
    assert_eq!(inventory.group_of_instance("i-1"), None);
}

#[tokio::test]
async fn immutable_entries_are_cached_and_absent_ones_retried() {
    let stub = Arc::new(FakeAws::default());
    let inventory = Inventory::with_config(stub.aws(), CacheConfig { unknown_ttl: Duration::ZERO, ..fast_config() });
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
        let (one, two) = tokio::join!(inventory.image_by_id("ami-1"), inventory.image_by_id("ami-2"));
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
async fn unresolved_network_name_costs_one_extra_read() {
    let (stub, inventory) = inventory_with_fake_aws();
    for _ in 0..5 {
        inventory.subnets("vpc").await.unwrap();
        inventory.refresh_network("vpc").await.unwrap();
    }
    assert_eq!((stub.calls("subnets"), stub.calls("security groups")), (1, 1));
    let eager = Inventory::with_config(stub.aws(), CacheConfig { negative_ttl: Duration::ZERO, ..fast_config() });
    eager.subnets("vpc").await.unwrap();
    eager.refresh_network("vpc").await.unwrap();
    assert_eq!(stub.calls("subnets"), 3);
}

#[tokio::test]
async fn forgotten_group_is_not_prefetched() {
    let (stub, inventory) = inventory_with_fake_aws();
    inventory.group("a", ANY_AGE).await.unwrap();
    inventory.hooks("a", ANY_AGE).await.unwrap();
    inventory.forget_group("a");
    inventory.hooks("a", ANY_AGE).await.unwrap();
    inventory.invalidate_hooks("a");
    inventory.hooks("a", ANY_AGE).await.unwrap();
    assert_eq!(stub.calls("hooks"), 3);
    stub.update(|d| d.rejected_name = Some("a".into()));
    assert_eq!(inventory.group("b", ANY_AGE).await, Ok(None));
    assert_eq!(stub.calls("groups"), 2);
}

#[tokio::test]
async fn batch_prefetches_new_and_invalidated_groups() {
    let stub = Arc::new(FakeAws::default());
    let inventory = Inventory::with_config(stub.aws(), CacheConfig { prefetch_age: ANY_AGE, ..fast_config() });
    inventory.prefetch("b".into(), "b".into());
    inventory.group("a", ANY_AGE).await.unwrap();
    inventory.group("b", ANY_AGE).await.unwrap();
    assert_eq!(stub.calls("groups"), 1);
    inventory.invalidate_group("a");
    inventory.invalidate_group("b");
    inventory.group("a", ANY_AGE).await.unwrap();
    inventory.group("b", ANY_AGE).await.unwrap();
    assert_eq!(stub.calls("groups"), 2);
}

#[tokio::test]
async fn batch_prefetches_groups_that_need_fresh_reads() {
    let stub = Arc::new(FakeAws::default());
    let inventory = Inventory::with_config(stub.aws(), CacheConfig { prefetch_age: ANY_AGE, ..fast_config() });
    for (name, age) in
        [("a", NO_CACHE), ("b", NO_CACHE), ("quiet", NO_CACHE), ("a", NO_CACHE), ("b", NO_CACHE), ("quiet", ANY_AGE)]
    {
        inventory.group(name, age).await.unwrap();
    }
    let before = stub.calls("groups");
    stub.update(|d| d.groups = ["b", "quiet"].map(|n| (n.to_owned(), group(n))).into());
    inventory.group("a", NO_CACHE).await.unwrap();
    assert!(inventory.group("b", ANY_AGE).await.unwrap().is_some(), "read with the other one");
    assert!(inventory.group("quiet", ANY_AGE).await.unwrap().is_none(), "what was read before is young enough");
    assert_eq!(stub.calls("groups"), before + 1);
}

#[tokio::test]
async fn instance_types_are_prefetched_in_one_call() {
    let (stub, inventory) = inventory_with_fake_aws();
    let named = || ["m5.xlarge", "m9.none", "m5.*", "nonsense"].map(str::to_owned).to_vec();
    inventory.prefetch_types("m5.large", named);
    assert!(inventory.instance_type("m5.large").await.unwrap().is_some());
    assert!(inventory.instance_type("m5.xlarge").await.unwrap().is_some());
    assert!(inventory.instance_type("m9.none").await.unwrap().is_none());
    assert_eq!(stub.calls("instance types"), 1);
    inventory.prefetch_types("m5.large", || unreachable!("it is known"));
}

#[tokio::test]
async fn readers_before_the_batch_starts_share_it() {
    let (stub, inventory) = inventory_with_fake_aws();
    join_all((0..5).map(|_| inventory.hooks("a", NO_CACHE))).await;
    assert_eq!(stub.calls("hooks"), 1);
}

#[tokio::test]
async fn families_are_read_once_in_one_batch() {
    let (stub, inventory) = inventory_with_fake_aws();
    let names = (0..50).map(|n| if n % 2 == 0 { "m5.large" } else { "c6.large" });
    let found = join_all(names.map(|name| inventory.instance_type_catalog(name))).await;
    for (n, catalogue) in found.into_iter().enumerate() {
        let (own, like) = if n % 2 == 0 { ("m5.large", "m5a.large") } else { ("c6.large", "c6a.large") };
        assert_eq!(catalogue.unwrap().similar_to(own), [like]);
    }
    inventory.instance_type_catalog("m5a.large").await.unwrap();
    let_tasks_run().await;
    assert_eq!((stub.calls("catalogue"), stub.calls("offers")), (1, 1));
}

#[tokio::test]
async fn type_of_cached_family_needs_no_call() {
    let (stub, inventory) = inventory_with_fake_aws();
    inventory.instance_type_catalog("m5.large").await.unwrap();
    assert!(inventory.instance_type("m5a.large").await.unwrap().is_some());
    assert_eq!(stub.calls("instance types"), 0);
    // AWS may have launched it since.
    assert!(inventory.instance_type("m5.2xlarge").await.unwrap().is_some());
    assert!(inventory.instance_type("m5z.none").await.unwrap().is_none());
    assert_eq!(stub.calls("instance types"), 2);
}

#[tokio::test]
async fn unknown_family_is_cached() {
    let (stub, inventory) = inventory_with_fake_aws();
    for name in ["zz9.large", "zz9.large", "m*5.large", "nonsense"] {
        assert!(inventory.instance_type_catalog(name).await.unwrap().similar_to(name).is_empty());
    }
    assert_eq!(stub.calls("catalogue"), 1);
}

#[tokio::test]
async fn failed_family_read_is_an_error() {
    let (stub, inventory) = inventory_with_fake_aws();
    let error = AwsError::from_response("EC2", "DescribeInstanceTypes", "RequestLimitExceeded", "slow down", 503);
    stub.update(|d| d.failure = Some(error));
    assert!(inventory.instance_type_catalog("m5.large").await.is_err());
    stub.update(|d| d.failure = None);
    assert_eq!(inventory.instance_type_catalog("m5.large").await.unwrap().similar_to("m5.large"), ["m5a.large"]);
}

#[tokio::test]
async fn stale_catalog_is_refreshed_in_background() {
    let stub = Arc::new(FakeAws::default());
    let inventory = Inventory::with_config(
        stub.aws(),
        CacheConfig { catalog_ttl: Duration::ZERO, batch_idle: Duration::ZERO, ..fast_config() },
    );
    inventory.instance_type_catalog("m5.large").await.unwrap();
    let_tasks_run().await;
    let before = stub.calls("catalogue");
    // The second reading does not end before a permit is given.
    stub.update(|d| d.read_permits = Some(Arc::new(tokio::sync::Semaphore::new(0))));
    for _ in 0..3 {
        assert!(inventory.instance_type_catalog("m5.large").await.unwrap().offered_in_zones("m5a.large", &["a"]));
        let_tasks_run().await;
    }
    assert_eq!(stub.calls("catalogue"), before + 1);
}

#[tokio::test]
async fn fargate_profiles_share_one_listing_until_a_write() {
    let (stub, inventory) = inventory_with_fake_aws();
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
    stub.update(|d| d.fargate = [("p".into(), profile.clone())].into());
    for _ in 0..3 {
        assert_eq!(*inventory.fargate_profile_names("c", ANY_AGE).await.unwrap(), ["p"]);
        assert_eq!(inventory.fargate_profile("c", "p", ANY_AGE).await.unwrap(), Some(profile.clone()));
    }
    assert_eq!((stub.calls("fargate names"), stub.calls("fargate profiles")), (1, 1));
    stub.update(|d| d.fargate.clear());
    inventory.invalidate_fargate_profile("c", "p");
    assert!(inventory.fargate_profile_names("c", ANY_AGE).await.unwrap().is_empty());
    assert_eq!(inventory.fargate_profile("c", "p", ANY_AGE).await.unwrap(), None);
}
