//! Lists that one call tells as a whole, asked for by row, and corrected by
//! what our own writes prove.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::batched_cache::{Batched, Read};
use super::cache_config::Ages;
use crate::aws::AwsResult;

/// The rows of a list by name.
pub(super) type Rows<V> = Arc<HashMap<String, V>>;

pub(super) struct Listing<V> {
    lists: Arc<Batched<Rows<V>>>,
    settle: Duration,
    notes: Mutex<HashMap<(String, String), Note<V>>>,
}

/// What we wrote to one row since the list was read.
#[derive(Clone)]
struct Note<V> {
    turn: u64,
    at: Instant,
    /// What the row is now (`None`: gone), where our write's answer proves it.
    proved: Option<Option<V>>,
}

impl<V: Clone + Send + Sync + 'static> Listing<V> {
    pub fn new(ages: Ages, read: Read<Rows<V>>) -> Self {
        Listing { lists: Batched::new(1, ages, read), settle: ages.settle, notes: Mutex::default() }
    }

    /// One row of a list.
    pub async fn get(&self, list: &str, row: &str, max_age: Duration) -> AwsResult<Option<V>> {
        let key = (list.to_owned(), row.to_owned());
        let note = self.lock().get(&key).cloned();
        let proved = note.as_ref().and_then(|n| n.proved.clone().filter(|_| n.at.elapsed() <= max_age));
        if let Some(value) = proved {
            return Ok(value);
        }
        let not_before = note.as_ref().map_or(0, |n| n.turn);
        let reading = self.lists.read(list, max_age.into(), not_before).await?;
        let found = reading.value.as_ref().and_then(|rows| rows.get(row).cloned());
        let Some(note) = note else { return Ok(found) };
        // IAM may not show yet what it has just done.
        if let Some(value) = note.proved.filter(|v| v.is_some() != found.is_some() && note.at.elapsed() < self.settle) {
            return Ok(value);
        }
        let mut notes = self.lock();
        if notes.get(&key).is_some_and(|n| n.turn == note.turn) {
            notes.remove(&key);
        }
        Ok(found)
    }

    /// Our own write proves what the row is now.
    pub fn put(&self, list: &str, row: &str, value: Option<V>) {
        self.note(list, row, Some(value));
    }

    /// Our own write changed the row, and its answer does not tell how.
    pub fn stale(&self, list: &str, row: &str) {
        self.note(list, row, None);
    }

    /// The row as it was last proved or read, whatever its age.
    pub fn last(&self, list: &str, row: &str) -> Option<V> {
        let note = self.lock().get(&(list.to_owned(), row.to_owned())).cloned();
        match note.map(|n| n.proved) {
            Some(Some(proved)) => proved,
            Some(None) => None,
            None => self.lists.last(list)?.get(row).cloned(),
        }
    }

    fn note(&self, list: &str, row: &str, proved: Option<Option<V>>) {
        let note = Note { turn: self.lists.open_turn(), at: Instant::now(), proved };
        self.lock().insert((list.to_owned(), row.to_owned()), note);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Note<V>>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
