//! What is cached, and for how long.

use futures::future::join_all;
use jiff::Timestamp;

use super::*;

/// After a restart, groups that change read their versions, a few at a time. A listing of all versions of the region for
/// each few groups would grow with the square of their number.
#[tokio::test]
async fn versions_are_read_once_by_their_template() {
    let (fake, inventory) = inventory_with_fake_aws();
    fake.update(|d| d.versions = names(30).iter().map(|n| version(n, 1)).collect());
    let names = names(30);
    let found = join_all(names.iter().map(|n| inventory.version(n, 1))).await;
    assert!(found.into_iter().all(|v| v.unwrap().is_some()));
    assert_eq!((fake.calls("default versions"), fake.calls("versions")), (0, 30));
    fake.update(|d| d.versions.push(version("g0000", 3)));
    let found = inventory.versions("g0000", &[3, 2, 1]).await.unwrap();
    assert_eq!(found.iter().map(|v| v.number).collect::<Vec<_>>(), [1, 3]);
    inventory.version("g0000", 3).await.unwrap();
    assert_eq!(fake.calls("versions"), 32);
}

/// A node that never joins would be reported as one that the controller found in service when it started.
#[tokio::test]
async fn first_instance_of_an_empty_group_was_not_in_service_before() {
    let (fake, inventory) = inventory_with_fake_aws();
    for (instances, expected) in [(vec![], vec![]), (vec![instance("i-1", InstanceState::InService)], vec![false])] {
        fake.update(|d| {
            d.groups.insert("g".into(), ScalingGroup { instances, ..group("g") });
        });
        let found = inventory.group("g", NO_CACHE).await.unwrap().unwrap();
        assert_eq!(found.instances.iter().map(|i| i.was_in_service).collect::<Vec<_>>(), expected);
    }
}

/// A user deletes a scaling group. What is read beside it says so first, and must not fail until the cache is too old.
#[tokio::test]
async fn group_that_aws_no_longer_knows_is_read_again() {
    let (fake, inventory) = inventory_with_fake_aws();
    fake.update(|d| {
        d.groups.insert("g".into(), group("g"));
    });
    assert!(inventory.group("g", ANY_AGE).await.unwrap().is_some());
    let gone = AwsError::from_response(
        "AutoScaling",
        "DescribeLifecycleHooks",
        "ValidationError",
        "AutoScalingGroup name not found - AutoScalingGroup 'g' not found",
        400,
    );
    fake.update(|d| {
        d.groups.clear();
        d.failure = Some(gone);
    });
    assert!(inventory.hooks("g", NO_CACHE).await.is_err_and(|error| error.is_not_found()));
    fake.update(|d| d.failure = None);
    assert!(inventory.group("g", ANY_AGE).await.unwrap().is_none());
}

#[tokio::test]
async fn in_service_time_is_kept_until_instance_is_removed() {
    let (fake, inventory) = inventory_with_fake_aws();
    let set_instances = |instances: Vec<Instance>| {
        fake.update(|d| {
            d.groups.insert("g".into(), ScalingGroup { instances, ..group("g") });
        });
    };
    let read_in_service_times = || async {
        let found = inventory.group("g", NO_CACHE).await.unwrap().unwrap();
        found.instances.iter().map(|i| i.in_service_since).collect::<Vec<Option<Timestamp>>>()
    };
    set_instances(vec![instance("i-1", InstanceState::InService), instance("i-2", InstanceState::Pending)]);
    let first = read_in_service_times().await;
    assert!(first[0].is_some() && first[1].is_none());
    assert_eq!(inventory.group_of_instance("i-2").as_deref(), Some("g"));
    let found = inventory.group("g", NO_CACHE).await.unwrap().unwrap();
    assert_eq!(found.instances.iter().map(|i| i.was_in_service).collect::<Vec<_>>(), [true, false]);
    set_instances(vec![instance("i-1", InstanceState::InService), instance("i-2", InstanceState::InService)]);
    let found = inventory.group("g", NO_CACHE).await.unwrap().unwrap();
    assert_eq!(found.instances.iter().map(|i| i.was_in_service).collect::<Vec<_>>(), [true, false]);
    set_instances(vec![instance("i-1", InstanceState::Standby)]);
    assert_eq!(read_in_service_times().await, first[..1]);
    assert_eq!(inventory.group_of_instance("i-2"), None);
    fake.update(|d| {
        d.groups.clear();
    });
    assert_eq!(inventory.group("g", NO_CACHE).await.unwrap(), None);
    assert_eq!(inventory.group_of_instance("i-1"), None);
}

#[tokio::test]
async fn immutable_entries_are_cached_and_absent_ones_retried() {
    let fake = Arc::new(FakeAws::default());
    let inventory = Inventory::with_config(fake.aws(), CacheConfig { unknown_ttl: Duration::ZERO, ..fast_config() });
    for _ in 0..3 {
        assert!(inventory.instance_type("m5.large").await.unwrap().is_some());
    }
    assert_eq!(fake.calls("instance types"), 1);
    for _ in 0..2 {
        assert!(inventory.instance_type("m9.none").await.unwrap().is_none());
    }
    assert_eq!(fake.calls("instance types"), 3);
    let (one, two) = tokio::join!(inventory.instance_type("m5.xlarge"), inventory.instance_type("m5.2xlarge"));
    assert_eq!([one.unwrap().unwrap().name, two.unwrap().unwrap().name], ["m5.xlarge", "m5.2xlarge"]);
    assert_eq!(fake.calls("instance types"), 4, "concurrent reads share a call");
    for _ in 0..2 {
        let (one, two) = tokio::join!(inventory.image_by_id("ami-1"), inventory.image_by_id("ami-2"));
        assert!(one.unwrap().is_some() && two.unwrap().is_some());
    }
    assert_eq!(fake.calls("images"), 1);
    let ids = ["i-1".to_owned(), "i-2".to_owned()];
    for _ in 0..2 {
        assert_eq!(inventory.launches(&ids).await.unwrap().len(), 2);
    }
    assert_eq!(fake.calls("launches"), 1);
}

#[tokio::test]
async fn unresolved_network_name_costs_one_extra_read() {
    let (fake, inventory) = inventory_with_fake_aws();
    for _ in 0..5 {
        inventory.subnets("vpc").await.unwrap();
        inventory.refresh_network("vpc").await.unwrap();
    }
    assert_eq!((fake.calls("subnets"), fake.calls("security groups")), (1, 1));
    let uncached = Inventory::with_config(fake.aws(), CacheConfig { negative_ttl: Duration::ZERO, ..fast_config() });
    uncached.subnets("vpc").await.unwrap();
    uncached.refresh_network("vpc").await.unwrap();
    assert_eq!(fake.calls("subnets"), 3);
}
