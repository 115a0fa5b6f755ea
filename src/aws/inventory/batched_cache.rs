//! A cache whose misses are read in batches.
//!
//! Every question belongs to a turn; a write of ours opens a new turn for its
//! key, and a reading that began in an earlier turn is neither kept nor given
//! to anyone who asks after the write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::cache_config::Ages;
use crate::aws::{AwsError, AwsErrorKind, AwsResult};

/// Reads some keys; what is not in the answer is not there.
pub(super) type Read<V> = Box<dyn Fn(Vec<String>) -> BoxFuture<'static, AwsResult<HashMap<String, V>>> + Send + Sync>;

/// What AWS said of one key, and when it was asked.
#[derive(Clone, Debug)]
pub(super) struct Reading<V> {
    pub value: Option<V>,
    pub at: Instant,
    pub turn: u64,
}

/// How old a reading may be, by whether the thing was there.
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

type Answers<V> = HashMap<String, AwsResult<Reading<V>>>;
type Done<V> = watch::Receiver<Option<Arc<Answers<V>>>>;

pub(super) struct Batched<V> {
    read: Read<V>,
    limit: usize,
    ages: Ages,
    state: Mutex<State<V>>,
}

struct State<V> {
    turn: u64,
    batches: u64,
    slots: HashMap<String, Slot<V>>,
    gathering: Option<Gathering<V>>,
    /// Batches that are full and have not begun.
    full: HashMap<u64, (Vec<String>, Done<V>)>,
}

struct Slot<V> {
    reading: Option<Reading<V>>,
    /// Readings of earlier turns are void.
    not_before: u64,
    /// When our own write made it.
    made: Option<Instant>,
    /// Somebody will ask for it soon.
    expected: bool,
    /// How old it might be for whoever asked last.
    asked: Duration,
    flight: Option<Flight<V>>,
}

struct Flight<V> {
    batch: u64,
    turn: u64,
    at: Instant,
    done: Done<V>,
}

struct Gathering<V> {
    batch: u64,
    keys: Vec<String>,
    last: Instant,
    full: Arc<Notify>,
    done: Done<V>,
}

enum Asked<V> {
    Known(Reading<V>),
    Wait(Done<V>),
}

impl<V> Default for Slot<V> {
    fn default() -> Self {
        Slot { reading: None, not_before: 0, made: None, expected: false, asked: Duration::MAX, flight: None }
    }
}

impl<V: Clone + Send + Sync + 'static> Batched<V> {
    /// Batches of at most `limit` keys; with a limit of one nothing waits for company.
    pub fn new(limit: usize, ages: Ages, read: Read<V>) -> Arc<Self> {
        let state = State { turn: 0, batches: 0, slots: HashMap::new(), gathering: None, full: HashMap::new() };
        Arc::new(Batched { read, limit, ages, state: Mutex::new(state) })
    }

    /// The value, read again unless a reading is young enough.
    pub async fn get(self: &Arc<Self>, key: &str, max_age: impl Into<MaxAge>) -> AwsResult<Option<V>> {
        Ok(self.read(key, max_age.into(), 0).await?.value)
    }

    /// Like `get`, of no turn before `not_before`.
    pub async fn read(self: &Arc<Self>, key: &str, max_age: MaxAge, not_before: u64) -> AwsResult<Reading<V>> {
        let mut done = match self.ask(key, max_age, not_before) {
            Asked::Known(reading) => return Ok(reading),
            Asked::Wait(done) => done,
        };
        let answers = done.wait_for(Option::is_some).await.map(|answers| answers.clone());
        match answers.ok().flatten().and_then(|answers| answers.get(key).cloned()) {
            Some(answer) => answer,
            None => Err(AwsError::unanswered("AWS", "Describe", "Abandoned", "the read was given up")),
        }
    }

    /// Somebody will ask for it soon: the next batch takes it along.
    pub fn expect(&self, key: String) {
        self.lock().slots.entry(key).or_insert_with(|| Slot { expected: true, ..Slot::default() });
    }

    /// Our own write changed it in a way that its answer does not tell.
    pub fn stale(&self, key: &str) {
        let mut state = self.lock();
        let turn = state.next_turn();
        let slot = state.slots.entry(key.to_owned()).or_default();
        slot.not_before = turn;
        slot.made = None;
    }

    /// Our own write's answer proves what it is now.
    pub fn put(&self, key: &str, value: Option<V>) {
        let now = Instant::now();
        let mut state = self.lock();
        let turn = state.next_turn();
        let slot = state.slots.entry(key.to_owned()).or_default();
        slot.not_before = turn;
        slot.made = value.is_some().then_some(now);
        slot.reading = Some(Reading { value, at: now, turn });
    }

    /// Our own write's answer proves a part of what it is now; the rest keeps its age.
    pub fn change(&self, which: impl Fn(&V) -> bool, change: impl Fn(&mut V)) {
        let mut state = self.lock();
        let turn = state.next_turn();
        for slot in state.slots.values_mut() {
            let Some(reading) = &mut slot.reading else { continue };
            let Some(value) = reading.value.as_mut().filter(|v| which(v)) else { continue };
            change(value);
            if reading.turn >= slot.not_before {
                reading.turn = turn;
            }
            slot.not_before = turn;
        }
    }

    /// No one asks for it any more.
    pub fn forget(&self, which: impl Fn(&str) -> bool) {
        self.lock().slots.retain(|key, _| !which(key));
    }

    /// The key of a value, whatever its age.
    pub fn key_where(&self, which: impl Fn(&V) -> bool) -> Option<String> {
        let state = self.lock();
        let holds = |slot: &Slot<V>| slot.reading.as_ref().and_then(|r| r.value.as_ref()).is_some_and(&which);
        state.slots.iter().find(|(_, slot)| holds(slot)).map(|(key, _)| key.clone())
    }

    /// A turn of its own for a write that concerns a part of a value.
    pub fn open_turn(&self) -> u64 {
        self.lock().next_turn()
    }

    /// The last accepted value, whatever its age: to change it, and never to decide on.
    pub fn last(&self, key: &str) -> Option<V> {
        self.lock().slots.get(key)?.reading.as_ref()?.value.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(self: &Arc<Self>, key: &str, max_age: MaxAge, not_before: u64) -> Asked<V> {
        let mut state = self.lock();
        if let Some(slot) = state.slots.get_mut(key) {
            slot.asked = max_age.present;
            let from = slot.not_before.max(not_before);
            if let Some(reading) = slot.reading.as_ref().filter(|r| r.turn >= from) {
                let age = if reading.value.is_some() { max_age.present } else { max_age.absent };
                if reading.at.elapsed() <= age {
                    return Asked::Known(reading.clone());
                }
            }
            let joined = slot.flight.as_ref().filter(|flight| {
                let age = max_age.present.max(self.ages.join);
                flight.turn >= from && flight.at.elapsed() <= age && flight.done.has_changed().is_ok()
            });
            if let Some(flight) = joined {
                return Asked::Wait(flight.done.clone());
            }
        }
        Asked::Wait(self.gather(&mut state, key))
    }

    /// Puts a key into the batch that is being gathered, which begins after this.
    fn gather(self: &Arc<Self>, state: &mut State<V>, key: &str) -> Done<V> {
        if let Some((_, done)) = state.full.values().find(|(keys, _)| keys.iter().any(|k| k == key)) {
            return done.clone();
        }
        let mut gathering = state.gathering.take().unwrap_or_else(|| self.open_batch(&mut state.batches));
        if !gathering.keys.iter().any(|k| k == key) {
            gathering.keys.push(key.to_owned());
            gathering.last = Instant::now();
        }
        let done = gathering.done.clone();
        if gathering.keys.len() < self.limit {
            state.gathering = Some(gathering);
        } else {
            gathering.full.notify_one();
            state.full.insert(gathering.batch, (gathering.keys, gathering.done));
        }
        done
    }

    /// The batch runs in a task of its own: who asked first may be gone before it is done.
    fn open_batch(self: &Arc<Self>, batches: &mut u64) -> Gathering<V> {
        *batches += 1;
        let (sender, done) = watch::channel(None);
        let full = Arc::new(Notify::new());
        tokio::spawn(self.clone().run(*batches, full.clone(), sender));
        Gathering { batch: *batches, keys: Vec::new(), last: Instant::now(), full, done }
    }

    async fn run(self: Arc<Self>, batch: u64, full: Arc<Notify>, sender: watch::Sender<Option<Arc<Answers<V>>>>) {
        self.wait_for_company(batch, &full).await;
        let (keys, turn, at) = self.begin(batch, &sender);
        let answers = self.fetch(keys).await;
        let answers = self.finish(batch, turn, at, answers);
        sender.send_replace(Some(Arc::new(answers)));
    }

    async fn wait_for_company(&self, batch: u64, full: &Notify) {
        let latest = Instant::now() + self.ages.longest;
        loop {
            let until = match self.lock().gathering.as_ref().filter(|g| g.batch == batch) {
                Some(gathering) => latest.min(gathering.last + self.ages.idle),
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

    fn begin(&self, batch: u64, sender: &watch::Sender<Option<Arc<Answers<V>>>>) -> (Vec<String>, u64, Instant) {
        let at = Instant::now();
        let mut state = self.lock();
        let mut keys = match state.gathering.take() {
            Some(gathering) if gathering.batch == batch => gathering.keys,
            other => {
                state.gathering = other;
                state.full.remove(&batch).map(|(keys, _)| keys).unwrap_or_default()
            }
        };
        let oldest = self.oldest(&state, &keys);
        keys.extend(oldest);
        let turn = state.turn;
        for key in &keys {
            let flight = Flight { batch, turn, at, done: sender.subscribe() };
            let slot = state.slots.entry(key.clone()).or_default();
            (slot.flight, slot.expected) = (Some(flight), false);
        }
        (keys, turn, at)
    }

    /// Names to fill a batch's spare room with, so that a resync's questions find their answers there, those after a
    /// write of ours, those about groups that are new together, and those of groups in flux, which look at the same
    /// moment and yet not all at once.
    fn oldest(&self, state: &State<V>, keys: &[String]) -> Vec<String> {
        let spare = self.limit.saturating_sub(keys.len());
        if spare == 0 {
            return Vec::new();
        }
        let old = |slot: &Slot<V>| match &slot.reading {
            None => slot.expected,
            Some(reading) => reading.turn < slot.not_before || reading.at.elapsed() >= self.ages.fill.min(slot.asked),
        };
        let mut old: Vec<(Option<Instant>, &String)> = state
            .slots
            .iter()
            .filter(|(key, slot)| slot.flight.is_none() && old(slot) && !keys.contains(key))
            .map(|(key, slot)| (slot.reading.as_ref().map(|reading| reading.at), key))
            .collect();
        old.sort();
        old.into_iter().take(spare).map(|(_, key)| key.clone()).collect()
    }

    /// Asks for all keys in one call. A value that AWS refuses must fail its own
    /// key only, so a refused batch is asked again in halves.
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
                Err(error) if keys.len() > 1 && splits(error.kind) => {
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

    fn finish(&self, batch: u64, turn: u64, at: Instant, answers: HashMap<String, AwsResult<Option<V>>>) -> Answers<V> {
        let mut state = self.lock();
        let mut told = HashMap::with_capacity(answers.len());
        for (key, answer) in answers {
            let slot = state.slots.get_mut(&key);
            let answer = answer.map(|value| Reading { value, at, turn });
            let answer = match slot {
                Some(slot) => slot.settle(batch, answer, self.ages.settle),
                None => answer,
            };
            told.insert(key, answer);
        }
        told
    }
}

impl<V> State<V> {
    fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }
}

impl<V: Clone> Slot<V> {
    /// Takes in the answer of a batch, and says what those who waited for it are told.
    fn settle(&mut self, batch: u64, answer: AwsResult<Reading<V>>, settle: Duration) -> AwsResult<Reading<V>> {
        self.flight.take_if(|flight| flight.batch == batch);
        let reading = answer?;
        if reading.turn < self.not_before {
            return Ok(reading);
        }
        let believed = self.made.is_some_and(|made| made.elapsed() < settle) && reading.value.is_none();
        if let Some(own) = self.reading.as_ref().filter(|own| believed && own.value.is_some()) {
            return Ok(own.clone());
        }
        if self.reading.as_ref().is_none_or(|own| own.at <= reading.at) {
            self.reading = Some(reading.clone());
            self.made = self.made.filter(|_| believed);
        }
        Ok(reading)
    }
}

/// Whether the fault may lie with one key of many.
fn splits(kind: AwsErrorKind) -> bool {
    matches!(kind, AwsErrorKind::Invalid | AwsErrorKind::NotFound)
}
