//! Concurrent reads share calls, and errors reach the readers that they concern.

use futures::future::join_all;
use tokio::sync::Semaphore;

use super::*;

#[tokio::test]
async fn concurrent_reads_share_one_call() {
    let (fake, inventory) = inventory_with_fake_aws();
    let names = names(20);
    let found = join_all(names.iter().map(|n| inventory.group(n, ANY_AGE))).await;
    assert!(found.into_iter().all(|g| g == Ok(None)));
    assert_eq!(fake.calls("groups"), 1);
}

#[tokio::test]
async fn readers_before_the_batch_starts_share_it() {
    let (fake, inventory) = inventory_with_fake_aws();
    join_all((0..5).map(|_| inventory.hooks("a", NO_CACHE))).await;
    assert_eq!(fake.calls("hooks"), 1);
}

#[tokio::test]
async fn in_flight_read_is_shared() {
    let (fake, inventory) = inventory_with_fake_aws();
    let permits = Arc::new(Semaphore::new(0));
    fake.update(|d| d.read_permits = Some(permits.clone()));
    let read = || {
        let inventory = inventory.clone();
        tokio::spawn(async move { inventory.group("g", ANY_AGE).await })
    };
    let first = read();
    while fake.calls("groups") == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let second = read();
    let_tasks_run().await;
    permits.add_permits(10);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(None), Ok(None)));
    assert_eq!(fake.calls("groups"), 1);
}

#[tokio::test]
async fn canceled_reader_does_not_cancel_the_shared_read() {
    let (fake, inventory) = inventory_with_fake_aws();
    let read = || {
        let inventory = inventory.clone();
        tokio::spawn(async move { inventory.group("g", ANY_AGE).await })
    };
    let (first, second) = (read(), read());
    let_tasks_run().await;
    first.abort();
    assert_eq!(second.await.unwrap(), Ok(None));
    assert_eq!(fake.calls("groups"), 1);
}

#[tokio::test]
async fn shared_image_is_read_once() {
    let (fake, inventory) = inventory_with_fake_aws();
    fake.update(|d| {
        d.parameters.insert("/latest".into(), "ami-1".into());
    });
    let found = join_all((0..50).map(|_| inventory.ssm_image("/latest", ANY_AGE))).await;
    assert!(found.into_iter().all(|i| i == Ok(Some("ami-1".into()))));
    assert_eq!(fake.calls("parameters"), 1);
}

#[tokio::test]
async fn resync_of_1000_unchanged_groups_is_15_calls() {
    let fake = Arc::new(FakeAws::default());
    // A full batch is sent at once, so no read waits for `batch_idle`.
    let inventory =
        Inventory::with_config(fake.aws(), CacheConfig { batch_idle: Duration::from_secs(3600), ..fast_config() });
    let names = names(1000);
    fake.update(|d| {
        d.groups = names.iter().map(|n| (n.clone(), group(n))).collect();
        d.templates = names.iter().map(|n| (n.clone(), template(n))).collect();
    });
    let found = join_all(names.iter().map(|n| inventory.group(n, ANY_AGE))).await;
    assert!(found.into_iter().all(|g| g.unwrap().is_some()));
    join_all(names.iter().map(|n| inventory.template(n, ANY_AGE))).await;
    assert_eq!((fake.calls("groups"), fake.calls("templates")), (10, 5));
    join_all(names.iter().map(|n| inventory.group(n, ANY_AGE))).await;
    assert_eq!(fake.calls("groups"), 10);
}

#[tokio::test]
async fn rejected_name_fails_only_its_reader() {
    let (fake, inventory) = inventory_with_fake_aws();
    let names: Vec<String> = (0..8).map(|i| format!("/p{i}")).collect();
    fake.update(|d| {
        d.parameters = names.iter().map(|n| (n.clone(), format!("ami-{n}"))).collect();
        d.rejected_name = Some(names[5].clone());
    });
    let found = join_all(names.iter().map(|n| inventory.ssm_image(n, ANY_AGE))).await;
    for (name, result) in names.iter().zip(found) {
        match result {
            Ok(image) => assert_eq!(image, Some(format!("ami-{name}"))),
            Err(error) => assert_eq!((name, error.kind), (&names[5], AwsErrorKind::Invalid)),
        }
    }
}

#[tokio::test]
async fn errors_reach_all_readers_and_are_not_cached() {
    let (fake, inventory) = inventory_with_fake_aws();
    fake.update(|d| d.failure = Some(unavailable()));
    let names = names(20);
    let found = join_all(names.iter().map(|n| inventory.group(n, ANY_AGE))).await;
    assert!(found.into_iter().all(|g| g == Err(unavailable())));
    fake.update(|d| {
        d.failure = None;
        d.groups.insert("g0000".into(), group("g0000"));
    });
    assert!(inventory.group("g0000", ANY_AGE).await.unwrap().is_some());
    assert_eq!(fake.calls("groups"), 2);
}

#[tokio::test]
async fn errors_are_not_masked_by_cached_entries() {
    let (fake, inventory) = inventory_with_fake_aws();
    fake.update(|d| {
        d.groups.insert("g".into(), group("g"));
    });
    inventory.group("g", NO_CACHE).await.unwrap();
    fake.update(|d| d.failure = Some(unavailable()));
    assert_eq!(inventory.group("g", NO_CACHE).await, Err(unavailable()));
}
