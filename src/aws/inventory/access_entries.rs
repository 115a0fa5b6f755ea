//! Access entries. All groups share one listing of each cluster; each listed entry is read once.

use std::time::Duration;

use super::{Inventory, MaxAge};
use crate::aws::{AccessEntry, AwsResult};

/// The key of an entry in the cache. The name of a cluster cannot contain a slash.
fn key(cluster: &str, principal: &str) -> String {
    format!("{cluster}/{principal}")
}

impl Inventory {
    /// Whether a cluster has an access entry for a role. `false` only after AWS listed the entries without it.
    pub(crate) async fn has_access_entry(&self, cluster: &str, principal: &str, max_age: Duration) -> AwsResult<bool> {
        let listed = self.access_lists.get(cluster, principal, max_age).await?.is_some();
        if !listed {
            self.access_entries.remove_where(|cached| cached == key(cluster, principal));
        }
        Ok(listed)
    }

    /// A role's access entry. Its type never changes, so one read is enough while it stays listed: [`super::NEVER_EXPIRES`]. A
    /// smaller `entry_age` also finds an entry that was deleted and created again between two listings.
    pub(crate) async fn access_entry(
        &self,
        cluster: &str,
        principal: &str,
        max_age: Duration,
        entry_age: Duration,
    ) -> AwsResult<Option<AccessEntry>> {
        if !entry_age.is_zero() && !self.has_access_entry(cluster, principal, max_age).await? {
            return Ok(None);
        }
        let age = MaxAge { present: entry_age, absent: Duration::ZERO };
        self.access_entries.get(&key(cluster, principal), age).await
    }

    /// CreateAccessEntry succeeded, or a read returned the entry.
    pub(crate) fn upsert_access_entry(&self, cluster: &str, entry: AccessEntry) {
        self.access_lists.insert(cluster, &entry.principal, Some(()));
        let key = key(cluster, &entry.principal);
        self.access_entries.insert(&key, Some(entry));
    }

    /// DeleteAccessEntry succeeded.
    pub(crate) fn remove_access_entry(&self, cluster: &str, principal: &str) {
        self.access_lists.insert(cluster, principal, None);
        self.access_entries.insert(&key(cluster, principal), None);
    }

    /// An access entry was written with an unknown outcome.
    pub(crate) fn invalidate_access_entry(&self, cluster: &str, principal: &str) {
        self.access_lists.invalidate(cluster, principal);
        self.access_entries.invalidate(&key(cluster, principal));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::future::join_all;

    use super::*;
    use crate::aws::inventory::NEVER_EXPIRES;
    use crate::aws::inventory::fake_aws::FakeAws;

    const ANY_AGE: Duration = Duration::from_secs(3600);

    fn entry(principal: &str) -> AccessEntry {
        AccessEntry { principal: principal.into(), kind: "EC2_LINUX".into(), created: None, tags: vec![] }
    }

    fn inventory_with_entries(principals: &[&str]) -> (Arc<FakeAws>, Arc<Inventory>) {
        let fake = Arc::new(FakeAws::default());
        fake.update(|d| d.access_entries = principals.iter().map(|p| entry(p)).collect());
        let inventory = Inventory::new(fake.aws());
        (fake, inventory)
    }

    #[tokio::test]
    async fn idle_groups_share_one_listing() {
        let (fake, inventory) = inventory_with_entries(&["shared", "own"]);
        for age in [ANY_AGE, ANY_AGE, Duration::ZERO] {
            let reads = ["shared", "shared", "own"].map(|p| inventory.access_entry("demo", p, age, NEVER_EXPIRES));
            assert!(join_all(reads).await.into_iter().all(|found| found.unwrap().is_some()));
        }
        assert!(fake.calls("access entries") <= 1 + 3, "the listing is shared");
        assert_eq!(fake.calls("access entry"), 2);
    }

    #[tokio::test]
    async fn unlisted_entry_is_read_again_when_listed() {
        let (fake, inventory) = inventory_with_entries(&["a"]);
        assert!(inventory.access_entry("demo", "a", ANY_AGE, NEVER_EXPIRES).await.unwrap().is_some());
        fake.update(|d| d.access_entries.clear());
        assert_eq!(inventory.access_entry("demo", "a", Duration::ZERO, NEVER_EXPIRES).await, Ok(None));
        fake.update(|d| d.access_entries = vec![AccessEntry { kind: "STANDARD".into(), ..entry("a") }]);
        let found = inventory.access_entry("demo", "a", Duration::ZERO, NEVER_EXPIRES).await.unwrap();
        assert_eq!(found.map(|e| e.kind).as_deref(), Some("STANDARD"));
    }

    #[tokio::test]
    async fn own_writes_need_no_read() {
        let (fake, inventory) = inventory_with_entries(&["a"]);
        assert!(!inventory.has_access_entry("demo", "b", ANY_AGE).await.unwrap());
        inventory.upsert_access_entry("demo", entry("b"));
        inventory.remove_access_entry("demo", "a");
        assert!(inventory.access_entry("demo", "b", ANY_AGE, NEVER_EXPIRES).await.unwrap().is_some());
        assert!(!inventory.has_access_entry("demo", "a", ANY_AGE).await.unwrap());
        assert_eq!((fake.calls("access entries"), fake.calls("access entry")), (1, 0));
    }
}
