//! Access entries: one listing of each cluster says which there are; what an entry is, is read once for all groups.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use super::batched_cache::ReadFn;
use super::list_cache::Rows;
use super::readers::read_each;
use super::{Inventory, MaxAge, NEVER_EXPIRES};
use crate::aws::{AccessEntry, Aws, AwsResult};

/// The key of an entry in its cache; no name of a cluster holds a slash.
fn key(cluster: &str, principal: &str) -> String {
    format!("{cluster}/{principal}")
}

pub(super) fn lists(aws: &Aws) -> ReadFn<Rows<()>> {
    read_each(aws, |aws, cluster| {
        async move {
            let found = aws.eks.list_access_entries(&cluster).await?;
            let rows: HashMap<_, _> = found.into_iter().map(|principal| (principal, ())).collect();
            Ok(Some(Arc::new(rows)))
        }
        .boxed()
    })
}

pub(super) fn entries(aws: &Aws) -> ReadFn<AccessEntry> {
    read_each(aws, |aws, key| {
        async move {
            let (cluster, principal) = key.split_once('/').unwrap_or_default();
            aws.eks.describe_access_entry(cluster, principal).await
        }
        .boxed()
    })
}

impl Inventory {
    /// Whether a cluster has an access entry for a role. `false` only when AWS listed the cluster's entries without it.
    pub async fn has_access_entry(&self, cluster: &str, principal: &str, max_age: Duration) -> AwsResult<bool> {
        let listed = self.access_lists.get(cluster, principal, max_age).await?.is_some();
        if !listed {
            self.access_entries.remove_where(|known| known == key(cluster, principal));
        }
        Ok(listed)
    }

    /// A role's access entry. What it is never changes, so that one that stays listed is read once; one that was deleted
    /// and made again between two listings is seen when `fresh` is asked for.
    pub async fn access_entry(
        &self,
        cluster: &str,
        principal: &str,
        max_age: Duration,
        fresh: bool,
    ) -> AwsResult<Option<AccessEntry>> {
        if !fresh && !self.has_access_entry(cluster, principal, max_age).await? {
            return Ok(None);
        }
        let present = if fresh { Duration::ZERO } else { NEVER_EXPIRES };
        let age = MaxAge { present, absent: Duration::ZERO };
        self.access_entries.get(&key(cluster, principal), age).await
    }

    /// CreateAccessEntry answered, or an entry was read after it.
    pub fn upsert_access_entry(&self, cluster: &str, entry: AccessEntry) {
        self.access_lists.insert(cluster, &entry.principal, Some(()));
        let key = key(cluster, &entry.principal);
        self.access_entries.insert(&key, Some(entry));
    }

    /// DeleteAccessEntry answered.
    pub fn remove_access_entry(&self, cluster: &str, principal: &str) {
        self.access_lists.insert(cluster, principal, None);
        self.access_entries.insert(&key(cluster, principal), None);
    }

    /// An access entry was written with an unknown outcome.
    pub fn invalidate_access_entry(&self, cluster: &str, principal: &str) {
        self.access_lists.invalidate(cluster, principal);
        self.access_entries.invalidate(&key(cluster, principal));
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;
    use crate::aws::inventory::fake_aws::FakeAws;

    const ANY_AGE: Duration = Duration::from_secs(3600);

    fn entry(principal: &str) -> AccessEntry {
        AccessEntry { principal: principal.into(), kind: "EC2_LINUX".into(), created: None, tags: vec![] }
    }

    fn start(principals: &[&str]) -> (Arc<FakeAws>, Arc<Inventory>) {
        let stub = Arc::new(FakeAws::default());
        stub.update(|d| d.access_entries = principals.iter().map(|p| entry(p)).collect());
        let inventory = Inventory::new(stub.aws());
        (stub, inventory)
    }

    #[tokio::test]
    async fn idle_groups_share_one_listing() {
        let (stub, inventory) = start(&["shared", "own"]);
        for age in [ANY_AGE, ANY_AGE, Duration::ZERO] {
            let asked = ["shared", "shared", "own"].map(|p| inventory.access_entry("demo", p, age, false));
            assert!(join_all(asked).await.into_iter().all(|found| found.unwrap().is_some()));
        }
        assert!(stub.calls("access entries") <= 1 + 3, "the listing is shared");
        assert_eq!(stub.calls("access entry"), 2);
    }

    #[tokio::test]
    async fn unlisted_entry_is_read_again_when_listed() {
        let (stub, inventory) = start(&["a"]);
        assert!(inventory.access_entry("demo", "a", ANY_AGE, false).await.unwrap().is_some());
        stub.update(|d| d.access_entries.clear());
        assert_eq!(inventory.access_entry("demo", "a", Duration::ZERO, false).await, Ok(None));
        stub.update(|d| d.access_entries = vec![AccessEntry { kind: "STANDARD".into(), ..entry("a") }]);
        let found = inventory.access_entry("demo", "a", Duration::ZERO, false).await.unwrap();
        assert_eq!(found.map(|e| e.kind).as_deref(), Some("STANDARD"));
    }

    #[tokio::test]
    async fn own_writes_need_no_read() {
        let (stub, inventory) = start(&["a"]);
        assert!(!inventory.has_access_entry("demo", "b", ANY_AGE).await.unwrap());
        inventory.upsert_access_entry("demo", entry("b"));
        inventory.remove_access_entry("demo", "a");
        assert!(inventory.access_entry("demo", "b", ANY_AGE, false).await.unwrap().is_some());
        assert!(!inventory.has_access_entry("demo", "a", ANY_AGE).await.unwrap());
        assert_eq!((stub.calls("access entries"), stub.calls("access entry")), (1, 0));
    }
}
