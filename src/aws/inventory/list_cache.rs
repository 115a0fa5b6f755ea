//! A cache for lists that AWS returns as a whole and that callers read row by row. The controller's own writes correct
//! the cached list, so that a write does not require another read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::batched_cache::{BatchedCache, ReadFn};
use super::cache_config::CacheConfig;
use crate::aws::AwsResult;

/// The rows of a list by name.
pub(super) type Rows<V> = Arc<HashMap<String, V>>;

/// A cache of lists by name.
pub(super) struct ListCache<V> {
    lists: Arc<BatchedCache<Rows<V>>>,
    consistency_window: Duration,
    /// Writes since the last read, by list and row.
    pending_writes: Mutex<HashMap<(String, String), PendingWrite<V>>>,
}

/// A write of the controller to one row since the list was read.
#[derive(Clone)]
struct PendingWrite<V> {
    epoch: u64,
    written_at: Instant,
    row: WrittenRow<V>,
}

/// What is known about a row after a write.
#[derive(Clone)]
enum WrittenRow<V> {
    /// The response contains the row.
    Present(V),
    /// The response confirms that the row is deleted.
    Deleted,
    /// The row must be read again.
    Unknown,
}

impl<V> WrittenRow<V> {
    fn is_present(&self) -> bool {
        matches!(self, WrittenRow::Present(_))
    }

    fn is_known(&self) -> bool {
        !matches!(self, WrittenRow::Unknown)
    }

    fn into_value(self) -> Option<V> {
        match self {
            WrittenRow::Present(value) => Some(value),
            WrittenRow::Deleted | WrittenRow::Unknown => None,
        }
    }
}

impl<V: Clone + Send + Sync + 'static> ListCache<V> {
    pub(crate) fn new(config: CacheConfig, read: ReadFn<Rows<V>>) -> Self {
        ListCache {
            lists: BatchedCache::new(1, config, read),
            consistency_window: config.consistency_window,
            pending_writes: Mutex::default(),
        }
    }

    /// Reads one row of a list. `None` if the list does not contain it.
    ///
    /// # Errors
    /// The read of the list failed.
    pub(crate) async fn get(&self, list: &str, row: &str, max_age: Duration) -> AwsResult<Option<V>> {
        let key = (list.to_owned(), row.to_owned());
        let pending = self.lock().get(&key).cloned();
        if let Some(write) = pending.as_ref().filter(|w| w.row.is_known() && w.written_at.elapsed() <= max_age) {
            return Ok(write.row.clone().into_value());
        }
        let min_epoch = pending.as_ref().map_or(0, |w| w.epoch);
        let entry = self.lists.read(list, max_age.into(), min_epoch).await?;
        let found = entry.value.as_ref().and_then(|rows| rows.get(row).cloned());
        let Some(write) = pending else { return Ok(found) };
        // IAM is eventually consistent: a recent write may not be visible yet.
        let contradicts = write.row.is_known() && write.row.is_present() != found.is_some();
        if contradicts && write.written_at.elapsed() < self.consistency_window {
            return Ok(write.row.into_value());
        }
        let mut pending_writes = self.lock();
        if pending_writes.get(&key).is_some_and(|w| w.epoch == write.epoch) {
            pending_writes.remove(&key);
        }
        Ok(found)
    }

    /// Records a write after which the row is known: `value`, or `None` after a deletion.
    pub(crate) fn insert(&self, list: &str, row: &str, value: Option<V>) {
        self.record_write(list, row, value.map_or(WrittenRow::Deleted, WrittenRow::Present));
    }

    /// Records a write after which the row is unknown, so that it must be read again.
    pub(crate) fn invalidate(&self, list: &str, row: &str) {
        self.record_write(list, row, WrittenRow::Unknown);
    }

    /// The row as last written or read, regardless of its age.
    pub(crate) fn peek(&self, list: &str, row: &str) -> Option<V> {
        let pending = self.lock().get(&(list.to_owned(), row.to_owned())).cloned();
        match pending {
            Some(write) => write.row.into_value(),
            None => self.lists.peek(list)?.get(row).cloned(),
        }
    }

    fn record_write(&self, list: &str, row: &str, written: WrittenRow<V>) {
        let write = PendingWrite { epoch: self.lists.next_epoch(), written_at: Instant::now(), row: written };
        self.lock().insert((list.to_owned(), row.to_owned()), write);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), PendingWrite<V>>> {
        self.pending_writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
