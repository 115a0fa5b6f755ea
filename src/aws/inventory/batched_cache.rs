//! A cache whose misses are read in batches.
//!
//! Every read belongs to an epoch. A write by the controller starts a new epoch for its key. The result of a read that
//! started in an earlier epoch is neither cached nor returned to callers after the write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::cache_config::CacheConfig;
use crate::aws::{AwsError, AwsErrorKind, AwsResult};

/// Reads some keys. A key that is missing from the result does not exist.
pub(super) type ReadFn<V> = Box<dyn Fn(Vec<String>) -> BoxFuture<'static, AwsResult<HashMap<String, V>>> + Send + Sync>;

/// The value that AWS returned for a key, and when it was requested.
#[derive(Clone, Debug)]
pub(super) struct CacheEntry<V> {
    pub value: Option<V>,
    pub read_at: Instant,
    /// The epoch in which the read or write started.
    pub epoch: u64,
}

/// The maximum age of a cache entry, for present and for absent keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaxAge {
    pub present: Duration,
    pub absent: Duration,
}

impl From<Duration> for MaxAge {
    fn from(age: Duration) -> Self {
        MaxAge { present: age, absent: age }
    }
}

/// The result for each key of a batch.
type BatchResults<V> = HashMap<String, AwsResult<CacheEntry<V>>>;
/// Receives the results of a batch when its read completes.
type BatchReceiver<V> = watch::Receiver<Option<Arc<BatchResults<V>>>>;

/// A cache of values by key. Misses wait in an open batch, which one call reads from AWS.
pub(super) struct BatchedCache<V> {
    read: ReadFn<V>,
    batch_size: usize,
    config: CacheConfig,
    state: Mutex<BatchedState<V>>,
}

struct BatchedState<V> {
    epoch: u64,
    /// Number of batches so far; the number of the latest batch is its ID.
    batches: u64,
    slots: HashMap<String, Slot<V>>,
    open_batch: Option<OpenBatch<V>>,
    /// Full batches that have not been sent yet.
    full_batches: HashMap<u64, (Vec<String>, BatchReceiver<V>)>,
}

/// The state of a key in the cache.
struct Slot<V> {
    entry: Option<CacheEntry<V>>,
    /// Reads of earlier epochs are discarded.
    min_epoch: u64,
    /// When the controller's own write inserted the value.
    upserted_at: Option<Instant>,
    /// Whether the key is expected to be read soon.
    needs_prefetch: bool,
    /// The maximum age that the last caller accepted for a present key.
    requested_max_age: Duration,
    in_flight: Option<InFlightRead<V>>,
}

/// A read of a key that has started.
struct InFlightRead<V> {
    batch: u64,
    epoch: u64,
    started_at: Instant,
    done: BatchReceiver<V>,
}

/// A batch that accepts further keys.
struct OpenBatch<V> {
    batch: u64,
    keys: Vec<String>,
    last_added: Instant,
    /// Notified when the batch has no place left.
    full: Arc<Notify>,
    done: BatchReceiver<V>,
}

enum CacheLookup<V> {
    Cached(CacheEntry<V>),
    Wait(BatchReceiver<V>),
}

impl<V> Default for Slot<V> {
    fn default() -> Self {
        Slot {
            entry: None,
            min_epoch: 0,
            upserted_at: None,
            needs_prefetch: false,
            requested_max_age: Duration::MAX,
            in_flight: None,
        }
    }
}

impl<V: Clone + Send + Sync + 'static> BatchedCache<V> {
    /// Creates a cache that reads at most `batch_size` keys per call. With a size of one, reads are not delayed.
    pub(crate) fn new(batch_size: usize, config: CacheConfig, read: ReadFn<V>) -> Arc<Self> {
        let state = BatchedState {
            epoch: 0,
            batches: 0,
            slots: HashMap::new(),
            open_batch: None,
            full_batches: HashMap::new(),
        };
        Arc::new(BatchedCache { read, batch_size, config, state: Mutex::new(state) })
    }

    /// The value of a key, read from AWS unless a cached value of at most `max_age` exists. `None` if the key does not
    /// exist.
    ///
    /// # Errors
    /// The read failed or was canceled. A cached value that is too old is not returned instead.
    pub(crate) async fn get(self: &Arc<Self>, key: &str, max_age: impl Into<MaxAge>) -> AwsResult<Option<V>> {
        Ok(self.read(key, max_age.into(), 0).await?.value)
    }

    /// Like `get`, but rejects entries from epochs before `min_epoch`.
    pub(crate) async fn read(self: &Arc<Self>, key: &str, max_age: MaxAge, min_epoch: u64) -> AwsResult<CacheEntry<V>> {
        let mut done = match self.lookup(key, max_age, min_epoch) {
            CacheLookup::Cached(entry) => return Ok(entry),
            CacheLookup::Wait(done) => done,
        };
        let results = done.wait_for(Option::is_some).await.map(|results| results.clone());
        match results.ok().flatten().and_then(|results| results.get(key).cloned()) {
            Some(result) => result,
            None => Err(AwsError::no_response("AWS", "Describe", "Abandoned", "the read was canceled")),
        }
    }

    /// Adds a key that is expected to be read soon to the next batch.
    pub(crate) fn prefetch(&self, key: String) {
        self.lock().slots.entry(key).or_insert_with(|| Slot { needs_prefetch: true, ..Slot::default() });
    }

    /// Discards the value after a write whose response does not contain the new value.
    pub(crate) fn invalidate(&self, key: &str) {
        let mut state = self.lock();
        let epoch = state.next_epoch();
        let slot = state.slots.entry(key.to_owned()).or_default();
        slot.min_epoch = epoch;
        slot.upserted_at = None;
    }

    /// Stores the value from the response of a write; `None` after a deletion.
    pub(crate) fn insert(&self, key: &str, value: Option<V>) {
        let now = Instant::now();
        let mut state = self.lock();
        let epoch = state.next_epoch();
        let slot = state.slots.entry(key.to_owned()).or_default();
        slot.min_epoch = epoch;
        slot.upserted_at = value.is_some().then_some(now);
        slot.entry = Some(CacheEntry { value, read_at: now, epoch });
    }

    /// Applies a write whose response contains a part of the value. The rest keeps its age.
    pub(crate) fn update_where(&self, matches: impl Fn(&V) -> bool, change: impl Fn(&mut V)) {
        let mut state = self.lock();
        let epoch = state.next_epoch();
        for slot in state.slots.values_mut() {
            let Some(entry) = &mut slot.entry else { continue };
            let Some(value) = entry.value.as_mut().filter(|v| matches(v)) else { continue };
            change(value);
            if entry.epoch >= slot.min_epoch {
                entry.epoch = epoch;
            }
            slot.min_epoch = epoch;
        }
    }

    /// Removes keys that are no longer needed, so that no batch reads them again.
    pub(crate) fn remove_where(&self, matches: impl Fn(&str) -> bool) {
        self.lock().slots.retain(|key, _| !matches(key));
    }

    /// The key of the first cached value that matches, regardless of its age.
    pub(crate) fn key_where(&self, matches: impl Fn(&V) -> bool) -> Option<String> {
        let state = self.lock();
        let slot_matches = |slot: &Slot<V>| slot.entry.as_ref().and_then(|e| e.value.as_ref()).is_some_and(&matches);
        state.slots.iter().find(|(_, slot)| slot_matches(slot)).map(|(key, _)| key.clone())
    }

    /// Starts a new epoch for a write to a part of a value.
    pub(crate) fn next_epoch(&self) -> u64 {
        self.lock().next_epoch()
    }

    /// The last cached value, regardless of its age. For updates only, not for decisions.
    pub(crate) fn peek(&self, key: &str) -> Option<V> {
        self.lock().slots.get(key)?.entry.as_ref()?.value.clone()
    }

    fn lock(&self) -> MutexGuard<'_, BatchedState<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a cached entry or a read in flight that is acceptable, else adds the key to a batch.
    fn lookup(self: &Arc<Self>, key: &str, max_age: MaxAge, min_epoch: u64) -> CacheLookup<V> {
        let mut state = self.lock();
        if let Some(slot) = state.slots.get_mut(key) {
            slot.requested_max_age = max_age.present;
            let min_epoch = slot.min_epoch.max(min_epoch);
            if let Some(entry) = slot.entry.as_ref().filter(|e| e.epoch >= min_epoch) {
                let max_age = if entry.value.is_some() { max_age.present } else { max_age.absent };
                if entry.read_at.elapsed() <= max_age {
                    return CacheLookup::Cached(entry.clone());
                }
            }
            let shared = slot.in_flight.as_ref().filter(|read| {
                let max_age = max_age.present.max(self.config.share_in_flight);
                read.epoch >= min_epoch && read.started_at.elapsed() <= max_age && read.done.has_changed().is_ok()
            });
            if let Some(read) = shared {
                return CacheLookup::Wait(read.done.clone());
            }
        }
        CacheLookup::Wait(self.join_batch(&mut state, key))
    }

    /// Adds a key to the open batch, or finds it in a full batch that was not sent yet.
    fn join_batch(self: &Arc<Self>, state: &mut BatchedState<V>, key: &str) -> BatchReceiver<V> {
        if let Some((_, done)) = state.full_batches.values().find(|(keys, _)| keys.iter().any(|k| k == key)) {
            return done.clone();
        }
        let mut open = state.open_batch.take().unwrap_or_else(|| self.open_batch(&mut state.batches));
        if !open.keys.iter().any(|k| k == key) {
            open.keys.push(key.to_owned());
            open.last_added = Instant::now();
        }
        let done = open.done.clone();
        if open.keys.len() < self.batch_size {
            state.open_batch = Some(open);
        } else {
            open.full.notify_one();
            state.full_batches.insert(open.batch, (open.keys, open.done));
        }
        done
    }

    /// Opens a batch. It runs in its own task, because its first caller may be canceled before it completes.
    fn open_batch(self: &Arc<Self>, batches: &mut u64) -> OpenBatch<V> {
        *batches += 1;
        let (sender, done) = watch::channel(None);
        let full = Arc::new(Notify::new());
        tokio::spawn(self.clone().run(*batches, full.clone(), sender));
        OpenBatch { batch: *batches, keys: Vec::new(), last_added: Instant::now(), full, done }
    }

    async fn run(self: Arc<Self>, batch: u64, full: Arc<Notify>, sender: watch::Sender<Option<Arc<BatchResults<V>>>>) {
        self.wait_for_batch(batch, &full).await;
        let (keys, epoch, started_at) = self.start_read(batch, &sender);
        let values = self.fetch(keys).await;
        let results = self.store_results(batch, epoch, started_at, values);
        sender.send_replace(Some(Arc::new(results)));
    }

    /// Waits until the batch is full, until no key was added for `batch_idle`, or for `batch_max_wait`.
    async fn wait_for_batch(&self, batch: u64, full: &Notify) {
        let latest = Instant::now() + self.config.batch_max_wait;
        loop {
            let until = match self.lock().open_batch.as_ref().filter(|open| open.batch == batch) {
                Some(open) => latest.min(open.last_added + self.config.batch_idle),
                None => return,
            };
            if Instant::now() >= until {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = full.notified() => return,
            }
        }
    }

    /// Takes the keys of the batch, adds keys to prefetch, and marks all of them as in flight. Returns the keys, the
    /// epoch and the start time.
    fn start_read(
        &self,
        batch: u64,
        sender: &watch::Sender<Option<Arc<BatchResults<V>>>>,
    ) -> (Vec<String>, u64, Instant) {
        let started_at = Instant::now();
        let mut state = self.lock();
        let mut keys = match state.open_batch.take() {
            Some(open) if open.batch == batch => open.keys,
            other => {
                state.open_batch = other;
                state.full_batches.remove(&batch).map(|(keys, _)| keys).unwrap_or_default()
            }
        };
        let prefetched = self.prefetch_keys(&state, &keys);
        keys.extend(prefetched);
        let epoch = state.epoch;
        for key in &keys {
            let read = InFlightRead { batch, epoch, started_at, done: sender.subscribe() };
            let slot = state.slots.entry(key.clone()).or_default();
            (slot.in_flight, slot.needs_prefetch) = (Some(read), false);
        }
        (keys, epoch, started_at)
    }

    /// Keys for the free places of a batch, the oldest entries first: keys that reconciles will read soon. These are
    /// new keys, keys after a write of the controller, and keys with an entry that is older than its last reader
    /// accepted.
    fn prefetch_keys(&self, state: &BatchedState<V>, keys: &[String]) -> Vec<String> {
        let free = self.batch_size.saturating_sub(keys.len());
        if free == 0 {
            return Vec::new();
        }
        let is_stale = |slot: &Slot<V>| match &slot.entry {
            None => slot.needs_prefetch,
            Some(entry) => {
                entry.epoch < slot.min_epoch
                    || entry.read_at.elapsed() >= self.config.prefetch_age.min(slot.requested_max_age)
            }
        };
        let mut stale: Vec<(Option<Instant>, &String)> = state
            .slots
            .iter()
            .filter(|(key, slot)| slot.in_flight.is_none() && is_stale(slot) && !keys.contains(key))
            .map(|(key, slot)| (slot.entry.as_ref().map(|entry| entry.read_at), key))
            .collect();
        stale.sort();
        stale.into_iter().take(free).map(|(_, key)| key.clone()).collect()
    }

    /// Reads all keys in one call. An invalid key must not fail the others, so a rejected batch is split in halves and
    /// retried.
    fn fetch(&self, mut keys: Vec<String>) -> BoxFuture<'_, HashMap<String, AwsResult<Option<V>>>> {
        async move {
            match (self.read)(keys.clone()).await {
                Ok(mut found) => keys
                    .into_iter()
                    .map(|key| {
                        let value = found.remove(&key);
                        (key, Ok(value))
                    })
                    .collect(),
                Err(error) if keys.len() > 1 && should_split_batch(error.kind) => {
                    let rest = keys.split_off(keys.len() / 2);
                    let mut results = self.fetch(keys).await;
                    results.extend(self.fetch(rest).await);
                    results
                }
                Err(error) => keys.into_iter().map(|key| (key, Err(error.clone()))).collect(),
            }
        }
        .boxed()
    }

    /// Stores the values of a batch and returns the results for its waiting callers.
    fn store_results(
        &self,
        batch: u64,
        epoch: u64,
        read_at: Instant,
        values: HashMap<String, AwsResult<Option<V>>>,
    ) -> BatchResults<V> {
        let mut state = self.lock();
        let mut results = HashMap::with_capacity(values.len());
        for (key, value) in values {
            let slot = state.slots.get_mut(&key);
            let entry = value.map(|value| CacheEntry { value, read_at, epoch });
            let result = match slot {
                Some(slot) => slot.store_result(batch, entry, self.config.consistency_window),
                None => entry,
            };
            results.insert(key, result);
        }
        results
    }
}

impl<V> BatchedState<V> {
    fn next_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }
}

impl<V: Clone> Slot<V> {
    /// Stores what a batch read for this key and returns the result for the waiting callers. Within
    /// `consistency_window` after the controller created the value, AWS may not return it yet; then the created value
    /// is kept and returned.
    fn store_result(
        &mut self,
        batch: u64,
        result: AwsResult<CacheEntry<V>>,
        consistency_window: Duration,
    ) -> AwsResult<CacheEntry<V>> {
        self.in_flight.take_if(|read| read.batch == batch);
        let found = result?;
        if found.epoch < self.min_epoch {
            return Ok(found);
        }
        let is_recent = self.upserted_at.is_some_and(|at| at.elapsed() < consistency_window);
        let not_visible_yet = is_recent && found.value.is_none();
        if let Some(cached) = self.entry.as_ref().filter(|cached| not_visible_yet && cached.value.is_some()) {
            return Ok(cached.clone());
        }
        if self.entry.as_ref().is_none_or(|cached| cached.read_at <= found.read_at) {
            self.entry = Some(found.clone());
            self.upserted_at = self.upserted_at.filter(|_| not_visible_yet);
        }
        Ok(found)
    }
}

/// Whether a single key may have caused the error of the batch.
fn should_split_batch(kind: AwsErrorKind) -> bool {
    matches!(kind, AwsErrorKind::Invalid | AwsErrorKind::NotFound)
}
