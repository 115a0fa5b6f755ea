//! Reads after the controller's own writes.

use tokio::sync::Semaphore;

use super::*;

#[tokio::test]
async fn read_started_before_a_write_is_discarded() {
    let (fake, inventory) = inventory_with_fake_aws();
    let permits = Arc::new(Semaphore::new(0));
    fake.update(|d| {
        d.groups.insert("g".into(), group("g"));
        d.read_permits = Some(permits.clone());
    });
    let before_write = tokio::spawn({
        let inventory = inventory.clone();
        async move { inventory.group("g", ANY_AGE).await }
    });
    while fake.calls("groups") == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fake.update(|d| {
        d.groups.get_mut("g").unwrap().max = 9;
    });
    inventory.invalidate_group("g");
    let after_write = tokio::spawn({
        let inventory = inventory.clone();
        async move { inventory.group("g", ANY_AGE).await }
    });
    let_tasks_run().await;
    permits.add_permits(10);
    assert_eq!(before_write.await.unwrap().unwrap().unwrap().max, 3);
    assert_eq!(after_write.await.unwrap().unwrap().unwrap().max, 9);
    assert_eq!(fake.calls("groups"), 2);
    assert_eq!(inventory.group("g", ANY_AGE).await.unwrap().unwrap().max, 9);
    assert_eq!(fake.calls("groups"), 2);
}

#[tokio::test]
async fn upserted_entries_need_no_read() {
    let (fake, inventory) = inventory_with_fake_aws();
    inventory.upsert_template(template("t"));
    inventory.upsert_version(version("lt-t", 2));
    let found = inventory.template("t", ANY_AGE).await.unwrap().unwrap();
    assert_eq!((found.default_version, found.latest_version), (1, 2));
    assert_eq!(inventory.version("lt-t", 2).await.unwrap().unwrap().number, 2);
    assert_eq!((fake.calls("templates"), fake.calls("versions")), (0, 0));
    inventory.remove_template("lt-t");
    assert_eq!(inventory.template("t", ANY_AGE).await.unwrap(), None);
    assert_eq!(inventory.version("lt-t", 2).await.unwrap(), None);
    assert_eq!((fake.calls("templates"), fake.calls("versions")), (0, 1));
}

#[tokio::test]
async fn created_resource_survives_eventual_consistency() {
    let fake = Arc::new(FakeAws::default());
    let inventory = Inventory::with_config(fake.aws(), fast_config());
    inventory.upsert_template(template("t"));
    inventory.upsert_profile(profile("p"));
    assert_eq!(inventory.template("t", NO_CACHE).await.unwrap(), Some(template("t")));
    assert_eq!(inventory.profile("p", NO_CACHE).await.unwrap(), Some(profile("p")));

    let without_window =
        Inventory::with_config(fake.aws(), CacheConfig { consistency_window: Duration::ZERO, ..fast_config() });
    without_window.upsert_template(template("t"));
    without_window.upsert_profile(profile("p"));
    assert_eq!(without_window.template("t", NO_CACHE).await.unwrap(), None);
    assert_eq!(without_window.profile("p", NO_CACHE).await.unwrap(), None);

    // After an invalidation, the next read returns what AWS returns.
    inventory.invalidate_template_by_id("lt-t");
    inventory.invalidate_profile("p");
    assert_eq!(inventory.template("t", ANY_AGE).await.unwrap(), None);
    assert_eq!(inventory.profile("p", ANY_AGE).await.unwrap(), None);
}

/// A group is created, deleted with its status, and created again within seconds: its template must be found then.
#[tokio::test]
async fn template_of_any_time_is_read_again_after_a_write() {
    let (fake, inventory) = inventory_with_fake_aws();
    let find = async || inventory.template_like("web-??", "web-11", ANY_AGE).await.unwrap();
    assert_eq!(find().await, None);
    assert_eq!(inventory.template("web-11", ANY_AGE).await.unwrap(), None);
    assert_eq!(fake.calls("templates"), 1, "the read says that no name of the form exists");
    for name in ["web-10", "web-x1", "web-101"] {
        fake.update(|d| _ = d.templates.insert(name.into(), template(name)));
    }
    assert_eq!(find().await, Some(template("web-10")));
    fake.update(|d| d.templates.clear());
    inventory.remove_template("lt-web-10");
    assert_eq!(find().await, None);
}

#[tokio::test]
async fn profiles_and_policies_share_one_listing() {
    let (fake, inventory) = inventory_with_fake_aws();
    fake.update(|d| {
        d.profiles = names(50).into_iter().map(|n| (n.clone(), profile(&n))).collect();
        d.policies.insert("arn:cni".into(), names(50));
    });
    let arns = ["arn:cni".to_owned(), "arn:none".to_owned()];
    for name in names(50) {
        assert!(inventory.profile(&name, ANY_AGE).await.unwrap().is_some());
        assert_eq!(inventory.attached_policies(&name, &arns, ANY_AGE).await.unwrap(), ["arn:cni"]);
    }
    assert_eq!((fake.calls("profiles"), fake.calls("policies")), (1, 2));

    let role = Role { id: "AROA-r".into(), name: "r".into(), arn: "arn:r".into(), tags: vec![], ..Role::default() };
    inventory.upsert_profile_role("g0000", &role);
    inventory.remove_attached_policy("g0000", "arn:cni");
    inventory.upsert_attached_policy("g0000", "arn:none");
    assert_eq!(inventory.profile("g0000", ANY_AGE).await.unwrap().unwrap().role, Some(role));
    assert_eq!(inventory.attached_policies("g0000", &arns, ANY_AGE).await.unwrap(), ["arn:none"]);
    assert_eq!(inventory.attached_policies("g0001", &arns, ANY_AGE).await.unwrap(), ["arn:cni"]);
    assert_eq!((fake.calls("profiles"), fake.calls("policies")), (1, 2));

    inventory.invalidate_profile("g0001");
    fake.update(|d| d.profiles.clear());
    assert_eq!(inventory.profile("g0001", ANY_AGE).await.unwrap(), None);
    assert_eq!(fake.calls("profiles"), 2);
}

#[tokio::test]
async fn fargate_profiles_share_one_listing_until_a_write() {
    let (fake, inventory) = inventory_with_fake_aws();
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
    fake.update(|d| d.fargate = [("p".into(), profile.clone())].into());
    for _ in 0..3 {
        assert_eq!(*inventory.fargate_profile_names("c", ANY_AGE).await.unwrap(), ["p"]);
        assert_eq!(inventory.fargate_profile("c", "p", ANY_AGE).await.unwrap(), Some(profile.clone()));
    }
    assert_eq!((fake.calls("Fargate profile names"), fake.calls("Fargate profile")), (1, 1));
    fake.update(|d| d.fargate.clear());
    inventory.invalidate_fargate_profile("c", "p");
    assert!(inventory.fargate_profile_names("c", ANY_AGE).await.unwrap().is_empty());
    assert_eq!(inventory.fargate_profile("c", "p", ANY_AGE).await.unwrap(), None);
}
