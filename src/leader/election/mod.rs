//! Leader election on a Lease: of all replicas at most one writes.
//!
//! Clocks of different hosts are never compared. A standby acquires the Lease only after it has observed the
//! same record for the whole lease duration on its own monotonic clock. The leader considers itself leader
//! for a shorter time, counted from before its last successful write. A process that was paused
//! therefore steps down when it resumes, before it observes its successor.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, PostParams};
use kube::core::ObjectMeta;
use kube::{Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::k8s::{FIELD_MANAGER, KubeError, call_with_timeout};

/// The candidate, its Lease and the timing of the election.
#[derive(Clone, Debug)]
pub(crate) struct LeaderConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Unique per process, not only per pod: a restarted process must not treat its predecessor's
    /// Lease as its own.
    pub identity: String,
    /// How long others wait for a renewal before they acquire the Lease. Whole seconds.
    pub lease_duration: Duration,
    /// How long this process remains leader after a renewal; less than `lease_duration`.
    pub renew_deadline: Duration,
    /// Time between two attempts, up to a fifth longer at random.
    pub retry_period: Duration,
}

impl LeaderConfig {
    /// The default durations of client-go (15 s, 10 s, 2 s) on the Lease `instance-manager`.
    pub(crate) fn new(namespace: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: "instance-manager".to_owned(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// An identity that is unique to this process: the name of the pod or host, and a random suffix.
pub(crate) fn identity() -> String {
    let names = ["POD_NAME", "HOSTNAME"];
    let name = names.iter().find_map(|key| std::env::var(key).ok().filter(|name| !name.is_empty()));
    let name = name.unwrap_or_else(|| "instance-manager".to_owned());
    format!("{name}_{:08x}", rand::random::<u32>())
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LeadershipState {
    Always,
    LeaderUntil(Instant),
    /// Another process holds the Lease until then, unless it renews it; `None` when no holder is known.
    Standby(Option<Instant>),
}

/// Whether this process is the leader. Check again before every write, because leadership expires with time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leadership {
    state: LeadershipState,
}

impl Leadership {
    /// Leadership without an election, for a single replica.
    pub(crate) fn always() -> Self {
        Self { state: LeadershipState::Always }
    }

    /// The leadership of a process whose Lease another one has.
    #[cfg(test)]
    pub(crate) fn lost() -> watch::Receiver<Self> {
        watch::channel(Self::standby()).1
    }

    fn standby() -> Self {
        Self { state: LeadershipState::Standby(None) }
    }

    /// Whether this process is the leader now.
    pub(crate) fn is_leader(&self) -> bool {
        self.is_leader_at(Instant::now())
    }

    fn is_leader_at(&self, now: Instant) -> bool {
        match self.state {
            LeadershipState::Always => true,
            LeadershipState::LeaderUntil(deadline) => now < deadline,
            LeadershipState::Standby(_) => false,
        }
    }

    /// Whether this process waits while another one is the leader.
    pub(crate) fn has_other_leader(&self) -> bool {
        matches!(self.state, LeadershipState::Standby(Some(until)) if Instant::now() < until)
    }
}

/// Why an election ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElectionEnd {
    /// Shutdown was requested. The Lease, if it was held, is released.
    Released,
    /// This process was the leader and lost the Lease. It should exit and restart.
    Lost,
}

/// Leadership without an election. The value never changes.
pub(crate) fn always() -> watch::Receiver<Leadership> {
    watch::channel(Leadership::always()).1
}

/// Takes part in the election until `shutdown` becomes true or its sender is dropped. Set it only when no
/// write is in progress: another process may become leader immediately.
pub(crate) fn spawn(
    client: Client,
    config: LeaderConfig,
    mut shutdown: watch::Receiver<bool>,
) -> (watch::Receiver<Leadership>, JoinHandle<ElectionEnd>) {
    let mut elector = Elector::new(client, config);
    let (sender, receiver) = watch::channel(elector.leadership());
    let task = tokio::spawn(async move {
        loop {
            let ended = elector.run_round(Instant::now).await;
            sender.send_if_modified(|current| {
                let next = elector.leadership();
                // That the other process renewed the Lease changes nothing for those who wait for this one.
                let is_standby = |leadership: &Leadership| matches!(leadership.state, LeadershipState::Standby(_));
                let stays_standby = is_standby(current) && is_standby(&next);
                std::mem::replace(current, next.clone()) != next && !stays_standby
            });
            if ended == Some(ElectionEnd::Lost) {
                return ElectionEnd::Lost;
            }
            let pause = elector.config.retry_period.mul_f64(rand::random_range(1.0..1.2));
            tokio::select! {
                _ = shutdown.wait_for(|stop| *stop) => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        sender.send_replace(Leadership::standby());
        elector.release(Instant::now()).await;
        ElectionEnd::Released
    });
    (receiver, task)
}

/// The Lease as it was last read or written.
#[derive(Clone, Debug)]
struct ObservedLease {
    lease: Lease,
    /// When this process first saw this resourceVersion.
    first_seen: Instant,
    /// Whether it was deleted. Its holder may not have noticed yet, so its last record still counts.
    deleted: bool,
}

impl ObservedLease {
    fn spec(&self) -> LeaseSpec {
        self.lease.spec.clone().unwrap_or_default()
    }

    fn holder(&self) -> Option<String> {
        self.spec().holder_identity.filter(|name| !name.is_empty())
    }

    /// When the Lease is free unless its holder renews it. The holder's own duration counts, if it is longer than this
    /// process's: a shorter one may be an edit of the Lease, and the holder leads on for its own deadline.
    fn expires_at(&self, config: &LeaderConfig) -> Instant {
        let recorded_seconds = self.spec().lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        self.first_seen + config.lease_duration.max(Duration::from_secs(recorded_seconds.unwrap_or_default()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseAction {
    Create,
    /// Take the Lease over: it is free, or its holder has not renewed it in time.
    Acquire,
    Renew,
    Wait,
}

/// The next action on the Lease: a pure function of the observed record and its age.
fn next_lease_action(observed: Option<&ObservedLease>, config: &LeaderConfig, now: Instant) -> LeaseAction {
    let Some(observed) = observed else {
        return LeaseAction::Create;
    };
    let acquire = if observed.deleted { LeaseAction::Create } else { LeaseAction::Acquire };
    let Some(holder) = observed.holder() else {
        return acquire;
    };
    if holder == config.identity {
        return if observed.deleted { LeaseAction::Create } else { LeaseAction::Renew };
    }
    if now >= observed.expires_at(config) { acquire } else { LeaseAction::Wait }
}

/// One candidate: the Lease as it last observed it, and until when it is the leader.
struct Elector {
    api: Api<Lease>,
    config: LeaderConfig,
    observed: Option<ObservedLease>,
    /// False when the last write's outcome is unknown, or nothing was read yet.
    is_lease_current: bool,
    leader_until: Option<Instant>,
    /// The resourceVersion of the Lease went back, for example after etcd was restored.
    versions_went_back: bool,
}

impl Elector {
    fn new(client: Client, config: LeaderConfig) -> Self {
        Self {
            api: Api::namespaced(client, &config.namespace),
            config,
            observed: None,
            is_lease_current: false,
            leader_until: None,
            versions_went_back: false,
        }
    }

    /// A request gets half the deadline, which leaves time for a second try.
    async fn call<T>(
        &self,
        verb: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, KubeError> {
        call_with_timeout(self.config.renew_deadline / 2, verb, "leases", request).await
    }

    fn term(&self) -> i32 {
        let spec = self.observed.as_ref().map(ObservedLease::spec);
        spec.and_then(|spec| spec.lease_transitions).unwrap_or(0)
    }

    fn other_lease_expires_at(&self) -> Option<Instant> {
        let observed = self.observed.as_ref().filter(|observed| !observed.deleted)?;
        let holder = observed.holder()?;
        (holder != self.config.identity).then(|| observed.expires_at(&self.config))
    }

    fn leadership(&self) -> Leadership {
        match self.leader_until {
            None => Leadership { state: LeadershipState::Standby(self.other_lease_expires_at()) },
            Some(deadline) => Leadership { state: LeadershipState::LeaderUntil(deadline) },
        }
    }

    /// One round: read the Lease unless it is known to be current, decide, write. Returns `Lost` when this process was
    /// the leader before the round and is not after it, and when the resourceVersion of the Lease went back. The caches
    /// of the process could then miss changes, and it must restart before it leads.
    async fn run_round(&mut self, clock: impl Fn() -> Instant) -> Option<ElectionEnd> {
        let was_leader = self.leader_until.is_some();
        let started = clock();
        let mut result = self.acquire_or_renew(started).await;
        // Another client wrote the Lease. It may have set a label, and the holder is still this process.
        if was_leader && result.as_ref().is_err_and(KubeError::is_conflict) {
            self.is_lease_current = false;
            result = self.acquire_or_renew(started).await;
        }
        match result {
            Ok(true) => self.leader_until = Some(started + self.config.renew_deadline),
            Ok(false) => self.leader_until = None,
            Err(error) => {
                tracing::warn!(%error, lease = self.config.name, "cannot read or renew Lease");
                self.is_lease_current = false;
                if error.is_conflict() || error.is_not_found() {
                    self.leader_until = None;
                }
            }
        }
        if self.leader_until.is_some_and(|deadline| clock() >= deadline) {
            self.leader_until = None;
        }
        if !was_leader && self.leader_until.is_some() {
            tracing::info!(lease = self.config.name, term = self.term(), "became leader");
        }
        if self.versions_went_back {
            tracing::error!(
                lease = self.config.name,
                "resourceVersions of the API server went back, as after a restore of etcd; everything has to be read again"
            );
            self.leader_until = None;
            return Some(ElectionEnd::Lost);
        }
        if was_leader && self.leader_until.is_none() {
            tracing::error!(lease = self.config.name, "lost leadership");
            return Some(ElectionEnd::Lost);
        }
        None
    }

    /// Whether this process holds the Lease after this round. Only the leader may skip the read and rely on its last
    /// write.
    async fn acquire_or_renew(&mut self, now: Instant) -> Result<bool, KubeError> {
        if self.leader_until.is_none() || !self.is_lease_current {
            let found = self.call("get", self.api.get_opt(&self.config.name)).await?;
            self.observe(found, now);
            if self.versions_went_back {
                return Ok(false);
            }
        }
        let action = next_lease_action(self.observed.as_ref(), &self.config, now);
        if action == LeaseAction::Wait {
            return Ok(false);
        }
        let lease = self.write(action).await?;
        self.observe(Some(lease), now);
        Ok(true)
    }

    fn observe(&mut self, found: Option<Lease>, now: Instant) {
        self.is_lease_current = true;
        let number = |lease: &Lease| lease.resource_version().and_then(|version| version.parse::<u64>().ok());
        let before = self.observed.as_ref().and_then(|known| number(&known.lease));
        let after = found.as_ref().and_then(number);
        self.versions_went_back = before.zip(after).is_some_and(|(before, after)| after < before);
        let version = |lease: &Lease| lease.resource_version();
        let known = self.observed.take();
        self.observed = match (found, known) {
            (None, known) => known.map(|known| ObservedLease { deleted: true, ..known }),
            (Some(lease), Some(known)) if version(&known.lease) == version(&lease) => Some(known),
            (Some(lease), _) => Some(ObservedLease { lease, first_seen: now, deleted: false }),
        };
    }

    async fn write(&self, action: LeaseAction) -> Result<Lease, KubeError> {
        let lease = self.build_lease(action);
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        if action == LeaseAction::Create {
            return self.call("create", self.api.create(&params, &lease)).await;
        }
        let request = self.api.replace(&self.config.name, &params, &lease);
        self.call("update", request).await
    }

    /// The Lease with this process as its holder. It keeps the observed resourceVersion, so that the API server
    /// rejects the write if another process wrote first.
    fn build_lease(&self, action: LeaseAction) -> Lease {
        let now = Some(MicroTime(Timestamp::now()));
        let observed = self.observed.as_ref();
        let spec = observed.map(ObservedLease::spec).unwrap_or_default();
        let (acquire_time, transitions) = match action {
            LeaseAction::Create if observed.is_none() => (now.clone(), 0),
            LeaseAction::Create | LeaseAction::Acquire => (now.clone(), self.term().saturating_add(1)),
            LeaseAction::Renew | LeaseAction::Wait => (spec.acquire_time.clone(), self.term()),
        };
        let seconds = self.config.lease_duration.as_secs();
        let updated = observed.filter(|_| action != LeaseAction::Create);
        let metadata = updated.map(|observed| observed.lease.metadata.clone());
        Lease {
            metadata: metadata.unwrap_or_else(|| ObjectMeta {
                name: Some(self.config.name.clone()),
                namespace: Some(self.config.namespace.clone()),
                ..ObjectMeta::default()
            }),
            spec: Some(LeaseSpec {
                holder_identity: Some(self.config.identity.clone()),
                lease_duration_seconds: i32::try_from(seconds).ok(),
                acquire_time,
                renew_time: now,
                lease_transitions: Some(transitions),
                ..spec
            }),
        }
    }

    /// Releases the Lease if this process certainly holds it. A failure only delays the next leader.
    async fn release(&mut self, now: Instant) {
        let is_leader = self.leader_until.take().is_some_and(|deadline| now < deadline);
        if !is_leader || !self.is_lease_current {
            return;
        }
        let mut lease = self.build_lease(LeaseAction::Renew);
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
        }
        let params = PostParams::default();
        let request = self.api.replace(&self.config.name, &params, &lease);
        match self.call("update", request).await {
            Ok(_) => tracing::info!(lease = self.config.name, "released Lease"),
            Err(error) => tracing::warn!(%error, lease = self.config.name, "cannot release Lease"),
        }
    }
}

#[cfg(test)]
mod tests;
