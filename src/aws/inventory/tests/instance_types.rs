//! Catalogs of instance type families.

use futures::future::join_all;
use tokio::sync::Semaphore;

use super::*;

#[tokio::test]
async fn families_are_read_once_in_one_batch() {
    let (fake, inventory) = inventory_with_fake_aws();
    let names = (0..50).map(|n| if n % 2 == 0 { "m5.large" } else { "c6.large" });
    let found = join_all(names.map(|name| inventory.instance_type_catalog(name))).await;
    for (n, catalog) in found.into_iter().enumerate() {
        let (name, similar) = if n % 2 == 0 { ("m5.large", "m5a.large") } else { ("c6.large", "c6a.large") };
        assert_eq!(catalog.unwrap().similar_to(name), [similar]);
    }
    inventory.instance_type_catalog("m5a.large").await.unwrap();
    let_tasks_run().await;
    assert_eq!((fake.calls("families"), fake.calls("offerings")), (1, 1));
}

#[tokio::test]
async fn type_of_cached_family_needs_no_call() {
    let (fake, inventory) = inventory_with_fake_aws();
    inventory.instance_type_catalog("m5.large").await.unwrap();
    assert!(inventory.instance_type("m5a.large").await.unwrap().is_some());
    assert_eq!(fake.calls("instance types"), 0);
    // A type that is missing from a cached family is read, because AWS may have added it.
    assert!(inventory.instance_type("m5.2xlarge").await.unwrap().is_some());
    assert!(inventory.instance_type("m5z.none").await.unwrap().is_none());
    assert_eq!(fake.calls("instance types"), 2);
}

#[tokio::test]
async fn unknown_family_is_cached() {
    let (fake, inventory) = inventory_with_fake_aws();
    for name in ["zz9.large", "zz9.large", "m*5.large", "nonsense"] {
        assert!(inventory.instance_type_catalog(name).await.unwrap().similar_to(name).is_empty());
    }
    assert_eq!(fake.calls("families"), 1);
}

#[tokio::test]
async fn failed_family_read_is_an_error() {
    let (fake, inventory) = inventory_with_fake_aws();
    let error = AwsError::from_response("EC2", "DescribeInstanceTypes", "RequestLimitExceeded", "slow down", 503);
    fake.update(|d| d.failure = Some(error));
    assert!(inventory.instance_type_catalog("m5.large").await.is_err());
    fake.update(|d| d.failure = None);
    assert_eq!(inventory.instance_type_catalog("m5.large").await.unwrap().similar_to("m5.large"), ["m5a.large"]);
}

#[tokio::test]
async fn stale_catalog_is_refreshed_in_background() {
    let fake = Arc::new(FakeAws::default());
    let inventory = Inventory::with_config(
        fake.aws(),
        CacheConfig { catalog_ttl: Duration::ZERO, batch_idle: Duration::ZERO, ..fast_config() },
    );
    inventory.instance_type_catalog("m5.large").await.unwrap();
    let_tasks_run().await;
    let before = fake.calls("families");
    // Without permits, the refresh does not complete.
    fake.update(|d| d.read_permits = Some(Arc::new(Semaphore::new(0))));
    for _ in 0..3 {
        assert!(inventory.instance_type_catalog("m5.large").await.unwrap().offered_in_zones("m5a.large", &["a"]));
        let_tasks_run().await;
    }
    assert_eq!(fake.calls("families"), before + 1);
}
