//! Lists that one call tells as a whole, asked for by row, and corrected by
//! what our own writes prove.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::batched_cache::{BatchedCache, ReadFn};
use super::cache_config::CacheConfig;
use crate::aws::AwsResult;

/// The rows of a list by name.
pub(super) type Rows<V> = Arc<HashMap<String, V>>;

pub(super) struct ListCache<V> {
    lists: Arc<BatchedCache<Rows<V>>>,
    consistency_window: Duration,
    pending_writes: Mutex<HashMap<(String, String), PendingWrite<V>>>,
}

/// What we wrote to one row since the list was read.
#[derive(Clone)]
struct PendingWrite<V> {
    epoch: u64,
    written_at: Instant,
    /// What the row is now (`None`: gone), where our write's answer proves it.
    known: Option<Option<V>>,
}

impl<V: Clone + Send + Sync + 'static> ListCache<V> {
    pub fn new(ages: CacheConfig, read: ReadFn<Rows<V>>) -> Self {
        ListCache {
            lists: BatchedCache::new(1, ages, read),
            consistency_window: ages.consistency_window,
            pending_writes: Mutex::default(),
        }
    }

    /// One row of a list.
    pub async fn get(&self, list: &str, row: &str, max_age: Duration) -> AwsResult<Option<V>> {
        let key = (list.to_owned(), row.to_owned());
        let note = self.lock().get(&key).cloned();
        let proved = note.as_ref().and_then(|n| n.known.clone().filter(|_| n.written_at.elapsed() <= max_age));
        if let Some(value) = proved {
            return Ok(value);
        }
        let not_before = note.as_ref().map_or(0, |n| n.epoch);
        let reading = self.lists.read(list, max_age.into(), not_before).await?;
        let found = reading.value.as_ref().and_then(|rows| rows.get(row).cloned());
        let Some(note) = note else { return Ok(found) };
        // IAM may not show yet what it has just done.
        if let Some(value) =
            note.known.filter(|v| v.is_some() != found.is_some() && note.written_at.elapsed() < self.consistency_window)
        {
            return Ok(value);
        }
        let mut notes = self.lock();
        if notes.get(&key).is_some_and(|n| n.epoch == note.epoch) {
            notes.remove(&key);
        }
        Ok(found)
    }

    /// Our own write proves what the row is now.
    pub fn insert(&self, list: &str, row: &str, value: Option<V>) {
        self.record_write(list, row, Some(value));
    }

    /// Our own write changed the row, and its answer does not tell how.
    pub fn invalidate(&self, list: &str, row: &str) {
        self.record_write(list, row, None);
    }

    /// The row as it was last proved or read, whatever its age.
    pub fn peek(&self, list: &str, row: &str) -> Option<V> {
        let note = self.lock().get(&(list.to_owned(), row.to_owned())).cloned();
        match note.map(|n| n.known) {
            Some(Some(proved)) => proved,
            Some(None) => None,
            None => self.lists.peek(list)?.get(row).cloned(),
        }
    }

    fn record_write(&self, list: &str, row: &str, known: Option<Option<V>>) {
        let note = PendingWrite { epoch: self.lists.next_epoch(), written_at: Instant::now(), known };
        self.lock().insert((list.to_owned(), row.to_owned()), note);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), PendingWrite<V>>> {
        self.pending_writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
