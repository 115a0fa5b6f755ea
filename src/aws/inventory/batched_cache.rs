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
    pub epoch: u64,
}

/// The maximum age of a cached value, for present and for absent keys.
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

type BatchResults<V> = HashMap<String, AwsResult<CacheEntry<V>>>;
type BatchReceiver<V> = watch::Receiver<Option<Arc<BatchResults<V>>>>;

pub(super) struct BatchedCache<V> {
    read: ReadFn<V>,
    batch_size: usize,
    config: CacheConfig,
    state: Mutex<CacheState<V>>,
}

struct CacheState<V> {
    epoch: u64,
    batches: u64,
    slots: HashMap<String, Slot<V>>,
    open_batch: Option<OpenBatch<V>>,
    /// Full batches that have not been sent yet.
    full_batches: HashMap<u64, (Vec<String>, BatchReceiver<V>)>,
}

struct Slot<V> {
    entry: Option<CacheEntry<V>>,
    /// Reads of earlier epochs are discarded.
    min_epoch: u64,
    /// When the controller's own write inserted the value.
    upserted_at: Option<Instant>,
    /// Whether the key is expected to be read soon.
    needs_prefetch: bool,
    /// The maximum age that the last caller accepted.
    requested_max_age: Duration,
    in_flight: Option<InFlightRead<V>>,
}

struct InFlightRead<V> {
    batch: u64,
    epoch: u64,
    started_at: Instant,
    done: BatchReceiver<V>,
}

struct OpenBatch<V> {
    batch: u64,
    keys: Vec<String>,
    last_added: Instant,
    full: Arc<Notify>,
    done: BatchReceiver<V>,
}

enum CacheLookup<V> {
    Known(CacheEntry<V>),
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
    pub fn new(batch_size: usize, config: CacheConfig, read: ReadFn<V>) -> Arc<Self> {
        let state =
            CacheState { epoch: 0, batches: 0, slots: HashMap::new(), open_batch: None, full_batches: HashMap::new() };
        Arc::new(BatchedCache { read, batch_size, config, state: Mutex::new(state) })
    }

    /// The value of a key, read from AWS unless the cached value is young enough.
    pub async fn get(self: &Arc<Self>, key: &str, max_age: impl Into<MaxAge>) -> AwsResult<Option<V>> {
        Ok(self.read(key, max_age.into(), 0).await?.value)
    }

    /// Like `get`, but rejects values from epochs before `not_before`.
    pub async fn read(self: &Arc<Self>, key: &str, max_age: MaxAge, not_before: u64) -> AwsResult<CacheEntry<V>> {
        let mut done = match self.lookup(key, max_age, not_before) {
            CacheLookup::Known(reading) => return Ok(reading),
            CacheLookup::Wait(done) => done,
        };
        let answers = done.wait_for(Option::is_some).await.map(|answers| answers.clone());
        match answers.ok().flatten().and_then(|answers| answers.get(key).cloned()) {
            Some(answer) => answer,
            None => Err(AwsError::no_response("AWS", "Describe", "Abandoned", "the read was cancelled")),
        }
    }

    /// Adds a key that is expected to be read soon to the next batch.
    pub fn prefetch(&self, key: String) {
        self.lock().slots.entry(key).or_insert_with(|| Slot { needs_prefetch: true, ..Slot::default() });
    }

    /// Discards the value after a write whose response does not contain the new value.
    pub fn invalidate(&self, key: &str) {
        let mut state = self.lock();
        let turn = state.next_epoch();
        let slot = state.slots.entry(key.to_owned()).or_default();
        slot.min_epoch = turn;
        slot.upserted_at = None;
    }

    /// Stores the value from the response of a write.
    pub fn insert(&self, key: &str, value: Option<V>) {
        let now = Instant::now();
        let mut state = self.lock();
        let epoch = state.next_epoch();
        let slot = state.slots.entry(key.to_owned()).or_default();
        slot.min_epoch = epoch;
        slot.upserted_at = value.is_some().then_some(now);
        slot.entry = Some(CacheEntry { value, read_at: now, epoch });
    }

    /// Applies a write whose response contains a part of the value. The rest keeps its age.
    pub fn update_where(&self, which: impl Fn(&V) -> bool, change: impl Fn(&mut V)) {
        let mut state = self.lock();
        let turn = state.next_epoch();
        for slot in state.slots.values_mut() {
            let Some(reading) = &mut slot.entry else { continue };
            let Some(value) = reading.value.as_mut().filter(|v| which(v)) else { continue };
            change(value);
            if reading.epoch >= slot.min_epoch {
                reading.epoch = turn;
            }
            slot.min_epoch = turn;
        }
    }

    /// Removes keys that are no longer needed.
    pub fn remove_where(&self, which: impl Fn(&str) -> bool) {
        self.lock().slots.retain(|key, _| !which(key));
    }

    /// The key of a value, whatever its age.
    pub fn key_where(&self, which: impl Fn(&V) -> bool) -> Option<String> {
        let state = self.lock();
        let holds = |slot: &Slot<V>| slot.entry.as_ref().and_then(|r| r.value.as_ref()).is_some_and(&which);
        state.slots.iter().find(|(_, slot)| holds(slot)).map(|(key, _)| key.clone())
    }

    /// Starts a new epoch for a write to a part of a value.
    pub fn next_epoch(&self) -> u64 {
        self.lock().next_epoch()
    }

    /// The last cached value, regardless of its age. For updates only, not for decisions.
    pub fn peek(&self, key: &str) -> Option<V> {
        self.lock().slots.get(key)?.entry.as_ref()?.value.clone()
    }

    fn lock(&self) -> MutexGuard<'_, CacheState<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lookup(self: &Arc<Self>, key: &str, max_age: MaxAge, not_before: u64) -> CacheLookup<V> {
        let mut state = self.lock();
        if let Some(slot) = state.slots.get_mut(key) {
            slot.requested_max_age = max_age.present;
            let from = slot.min_epoch.max(not_before);
            if let Some(reading) = slot.entry.as_ref().filter(|r| r.epoch >= from) {
                let age = if reading.value.is_some() { max_age.present } else { max_age.absent };
                if reading.read_at.elapsed() <= age {
                    return CacheLookup::Known(reading.clone());
                }
            }
            let joined = slot.in_flight.as_ref().filter(|flight| {
                let age = max_age.present.max(self.config.share_in_flight);
                flight.epoch >= from && flight.started_at.elapsed() <= age && flight.done.has_changed().is_ok()
            });
            if let Some(flight) = joined {
                return CacheLookup::Wait(flight.done.clone());
            }
        }
        CacheLookup::Wait(self.join_batch(&mut state, key))
    }

    /// Adds a key to the open batch, which is sent later.
    fn join_batch(self: &Arc<Self>, state: &mut CacheState<V>, key: &str) -> BatchReceiver<V> {
        if let Some((_, done)) = state.full_batches.values().find(|(keys, _)| keys.iter().any(|k| k == key)) {
            return done.clone();
        }
        let mut gathering = state.open_batch.take().unwrap_or_else(|| self.open_batch(&mut state.batches));
        if !gathering.keys.iter().any(|k| k == key) {
            gathering.keys.push(key.to_owned());
            gathering.last_added = Instant::now();
        }
        let done = gathering.done.clone();
        if gathering.keys.len() < self.batch_size {
            state.open_batch = Some(gathering);
        } else {
            gathering.full.notify_one();
            state.full_batches.insert(gathering.batch, (gathering.keys, gathering.done));
        }
        done
    }

    /// Runs the batch in its own task, because the first caller may be cancelled before it completes.
    fn open_batch(self: &Arc<Self>, batches: &mut u64) -> OpenBatch<V> {
        *batches += 1;
        let (sender, done) = watch::channel(None);
        let full = Arc::new(Notify::new());
        tokio::spawn(self.clone().run(*batches, full.clone(), sender));
        OpenBatch { batch: *batches, keys: Vec::new(), last_added: Instant::now(), full, done }
    }

    async fn run(self: Arc<Self>, batch: u64, full: Arc<Notify>, sender: watch::Sender<Option<Arc<BatchResults<V>>>>) {
        self.wait_for_batch(batch, &full).await;
        let (keys, turn, at) = self.start_read(batch, &sender);
        let answers = self.fetch(keys).await;
        let answers = self.store_results(batch, turn, at, answers);
        sender.send_replace(Some(Arc::new(answers)));
    }

    async fn wait_for_batch(&self, batch: u64, full: &Notify) {
        let latest = Instant::now() + self.config.batch_max_wait;
        loop {
            let until = match self.lock().open_batch.as_ref().filter(|g| g.batch == batch) {
                Some(gathering) => latest.min(gathering.last_added + self.config.batch_idle),
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

    fn start_read(
        &self,
        batch: u64,
        sender: &watch::Sender<Option<Arc<BatchResults<V>>>>,
    ) -> (Vec<String>, u64, Instant) {
        let started_at = Instant::now();
        let mut state = self.lock();
        let mut keys = match state.open_batch.take() {
            Some(gathering) if gathering.batch == batch => gathering.keys,
            other => {
                state.open_batch = other;
                state.full_batches.remove(&batch).map(|(keys, _)| keys).unwrap_or_default()
            }
        };
        let oldest = self.prefetch_keys(&state, &keys);
        keys.extend(oldest);
        let epoch = state.epoch;
        for key in &keys {
            let flight = InFlightRead { batch, epoch, started_at, done: sender.subscribe() };
            let slot = state.slots.entry(key.clone()).or_default();
            (slot.in_flight, slot.needs_prefetch) = (Some(flight), false);
        }
        (keys, epoch, started_at)
    }

    /// Names to fill a batch's spare room with, so that a resync's questions find their answers there, those after a
    /// write of ours, those about groups that are new together, and those of groups in flux, which look at the same
    /// moment and yet not all at once.
    fn prefetch_keys(&self, state: &CacheState<V>, keys: &[String]) -> Vec<String> {
        let spare = self.batch_size.saturating_sub(keys.len());
        if spare == 0 {
            return Vec::new();
        }
        let old = |slot: &Slot<V>| match &slot.entry {
            None => slot.needs_prefetch,
            Some(reading) => {
                reading.epoch < slot.min_epoch
                    || reading.read_at.elapsed() >= self.config.prefetch_age.min(slot.requested_max_age)
            }
        };
        let mut old: Vec<(Option<Instant>, &String)> = state
            .slots
            .iter()
            .filter(|(key, slot)| slot.in_flight.is_none() && old(slot) && !keys.contains(key))
            .map(|(key, slot)| (slot.entry.as_ref().map(|reading| reading.read_at), key))
            .collect();
        old.sort();
        old.into_iter().take(spare).map(|(_, key)| key.clone()).collect()
    }

    /// Reads all keys in one call. An invalid key must fail alone, so a rejected batch is split in halves and retried.
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
                    let mut answers = self.fetch(keys).await;
                    answers.extend(self.fetch(rest).await);
                    answers
                }
                Err(error) => keys.into_iter().map(|key| (key, Err(error.clone()))).collect(),
            }
        }
        .boxed()
    }

    fn store_results(
        &self,
        batch: u64,
        epoch: u64,
        read_at: Instant,
        answers: HashMap<String, AwsResult<Option<V>>>,
    ) -> BatchResults<V> {
        let mut state = self.lock();
        let mut told = HashMap::with_capacity(answers.len());
        for (key, answer) in answers {
            let slot = state.slots.get_mut(&key);
            let answer = answer.map(|value| CacheEntry { value, read_at, epoch });
            let answer = match slot {
                Some(slot) => slot.store_result(batch, answer, self.config.consistency_window),
                None => answer,
            };
            told.insert(key, answer);
        }
        told
    }
}

impl<V> CacheState<V> {
    fn next_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }
}

impl<V: Clone> Slot<V> {
    /// Stores the result of a batch and returns the results for its waiting callers.
    fn store_result(
        &mut self,
        batch: u64,
        answer: AwsResult<CacheEntry<V>>,
        settle: Duration,
    ) -> AwsResult<CacheEntry<V>> {
        self.in_flight.take_if(|flight| flight.batch == batch);
        let reading = answer?;
        if reading.epoch < self.min_epoch {
            return Ok(reading);
        }
        let believed = self.upserted_at.is_some_and(|made| made.elapsed() < settle) && reading.value.is_none();
        if let Some(own) = self.entry.as_ref().filter(|own| believed && own.value.is_some()) {
            return Ok(own.clone());
        }
        if self.entry.as_ref().is_none_or(|own| own.read_at <= reading.read_at) {
            self.entry = Some(reading.clone());
            self.upserted_at = self.upserted_at.filter(|_| believed);
        }
        Ok(reading)
    }
}

/// Whether a single key may have caused the error of the batch.
fn should_split_batch(kind: AwsErrorKind) -> bool {
    matches!(kind, AwsErrorKind::Invalid | AwsErrorKind::NotFound)
}
