//! Free places of a batch are filled with keys that will be read soon.

use futures::future::join_all;

use super::*;

#[tokio::test]
async fn spare_batch_slots_prefetch_oldest_entries() {
    let (fake, inventory) = inventory_with_fake_aws();
    let names = names(250);
    for chunk in names.chunks(25) {
        join_all(chunk.iter().map(|n| inventory.group(n, ANY_AGE))).await;
    }
    assert_eq!(fake.calls("groups"), 10);
    fake.update(|d| d.groups = names.iter().map(|n| (n.clone(), group(n))).collect());
    // Each read of a stale name prefetches 99 others, so three calls read all 250.
    for name in &names[..3] {
        inventory.invalidate_group(name);
        assert!(inventory.group(name, ANY_AGE).await.unwrap().is_some());
    }
    assert_eq!(fake.calls("groups"), 13);
    let found = join_all(names.iter().map(|n| inventory.group(n, ANY_AGE))).await;
    assert!(found.into_iter().all(|g| g.unwrap().is_some()));
    assert_eq!(fake.calls("groups"), 13);
}

#[tokio::test]
async fn batch_prefetches_new_and_invalidated_groups() {
    let fake = Arc::new(FakeAws::default());
    let inventory = Inventory::with_config(fake.aws(), CacheConfig { prefetch_age: ANY_AGE, ..fast_config() });
    inventory.prefetch("b".into(), "b".into());
    inventory.group("a", ANY_AGE).await.unwrap();
    inventory.group("b", ANY_AGE).await.unwrap();
    assert_eq!(fake.calls("groups"), 1);
    inventory.invalidate_group("a");
    inventory.invalidate_group("b");
    inventory.group("a", ANY_AGE).await.unwrap();
    inventory.group("b", ANY_AGE).await.unwrap();
    assert_eq!(fake.calls("groups"), 2);
}

#[tokio::test]
async fn batch_prefetches_groups_that_need_fresh_reads() {
    let fake = Arc::new(FakeAws::default());
    let inventory = Inventory::with_config(fake.aws(), CacheConfig { prefetch_age: ANY_AGE, ..fast_config() });
    for (name, age) in
        [("a", NO_CACHE), ("b", NO_CACHE), ("quiet", NO_CACHE), ("a", NO_CACHE), ("b", NO_CACHE), ("quiet", ANY_AGE)]
    {
        inventory.group(name, age).await.unwrap();
    }
    let before = fake.calls("groups");
    fake.update(|d| d.groups = ["b", "quiet"].map(|n| (n.to_owned(), group(n))).into());
    inventory.group("a", NO_CACHE).await.unwrap();
    assert!(inventory.group("b", ANY_AGE).await.unwrap().is_some(), "prefetched with a");
    assert!(inventory.group("quiet", ANY_AGE).await.unwrap().is_none(), "its last reader accepted any age");
    assert_eq!(fake.calls("groups"), before + 1);
}

#[tokio::test]
async fn instance_types_are_prefetched_in_one_call() {
    let (fake, inventory) = inventory_with_fake_aws();
    let others = || ["m5.xlarge", "m9.none", "m5.*", "nonsense"].map(str::to_owned).to_vec();
    inventory.prefetch_types("m5.large", others);
    assert!(inventory.instance_type("m5.large").await.unwrap().is_some());
    assert!(inventory.instance_type("m5.xlarge").await.unwrap().is_some());
    assert!(inventory.instance_type("m9.none").await.unwrap().is_none());
    assert_eq!(fake.calls("instance types"), 1);
    inventory.prefetch_types("m5.large", || unreachable!("m5.large is cached"));
}

#[tokio::test]
async fn forgotten_group_is_not_prefetched() {
    let (fake, inventory) = inventory_with_fake_aws();
    inventory.group("a", ANY_AGE).await.unwrap();
    inventory.hooks("a", ANY_AGE).await.unwrap();
    inventory.forget_group("a");
    inventory.hooks("a", ANY_AGE).await.unwrap();
    inventory.invalidate_hooks("a");
    inventory.hooks("a", ANY_AGE).await.unwrap();
    assert_eq!(fake.calls("hooks"), 3);
    fake.update(|d| d.rejected_name = Some("a".into()));
    assert_eq!(inventory.group("b", ANY_AGE).await, Ok(None));
    assert_eq!(fake.calls("groups"), 2);
}
