//! What all reconciles and watches share: the context, the error of a reconcile, and helpers for events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};

use super::planner::{ObserveError, Planner};
use super::rollout::Prometheus;
use super::stores::Stores;
use crate::api::names::CONFIG_MAP;
use crate::api::{GroupId, GroupObject};
use crate::apply::AwsAuthWriter;
use crate::index::invalid_groups::InvalidGroups;
use crate::k8s::{EventTarget, KubeError, KubeEvent};
use crate::leader::election::Leadership;
use crate::leader::other_controller::ConflictDetector;
use crate::plan::{Event, EventKind, EventObject};
use crate::telemetry::metrics::Metrics;

/// Delay before a group is reconciled again when its cached object is behind a write or a related watch.
pub(super) const CACHE_LAG_DELAY: Duration = Duration::from_millis(200);

/// Delay before a cached object is compared with the API server again, if it does not catch up.
pub(super) const CACHE_BEHIND_DELAY: Duration = Duration::from_secs(5);

/// State that all reconciles share.
pub(crate) struct Context {
    /// Plans one group; used by `plan` as well.
    pub planner: Planner,
    /// The caches that the watches fill.
    pub stores: Stores,
    /// Metrics of the process.
    pub metrics: Arc<Metrics>,
    /// Whether this process is the leader.
    pub leadership: tokio::sync::watch::Receiver<Leadership>,
    /// Whether a write was refused since the last call of [`Context::take_write_blocked`].
    pub write_blocked: AtomicBool,
    /// Detects other controllers that write to the same groups.
    pub conflict_detector: ConflictDetector,
    /// The only writer of aws-auth in this process.
    pub aws_auth_writer: AwsAuthWriter,
    /// Answers the checks of rollouts; `None` without `--prometheus-url`.
    pub prometheus: Option<Prometheus>,
    /// The region of the AWS clients.
    pub region: String,
    /// ARN of the controller's AWS role, once it was read.
    pub own_role: tokio::sync::OnceCell<String>,
    /// Namespace of the ConfigMap `instance-manager`.
    pub config_namespace: String,
    /// Whether the controller labels nodes (`--node-relabel`).
    pub labels_nodes: bool,
    /// Requests that the process exits and is restarted, because its caches can no longer follow the API server.
    pub restart: tokio::sync::Notify,
    /// Groups that the active boundaries made invalid.
    pub rejections: InvalidGroups,
    /// The queue of groups to reconcile.
    pub queue: UnboundedSender<ObjectRef<GroupObject>>,
    /// Start time of the process. Polls are aligned to it, so that one batched AWS call serves many groups.
    pub started_at: tokio::time::Instant,
}

impl Context {
    /// Whether this process is the leader now.
    pub(crate) fn is_leader(&self) -> bool {
        self.leadership.borrow().is_leader()
    }

    /// Whether this process may write now: it is the leader, and no other controller is active.
    pub(crate) fn can_write(&self) -> bool {
        self.is_leader() && self.conflict_detector.hold().is_none()
    }

    /// Like [`Context::can_write`], for a caller that writes if it may and otherwise stops. A refusal is recorded: the
    /// write gate then enqueues every group once this process may write again.
    pub(crate) fn request_write(&self) -> bool {
        let can_write = self.can_write();
        if !can_write {
            self.record_blocked_write();
        }
        can_write
    }

    /// Puts on record that a write was refused.
    pub(super) fn record_blocked_write(&self) {
        self.write_blocked.store(true, Ordering::Relaxed);
    }

    /// Whether [`Context::request_write`] refused a write since the last call. Leadership expires with time, and a late
    /// renewal restores it: the groups that were refused in between wait for the write gate to enqueue them.
    pub(super) fn take_write_blocked(&self) -> bool {
        self.write_blocked.swap(false, Ordering::Relaxed)
    }

    /// Has one group reconciled soon, and counts it as queued until then.
    pub(super) fn enqueue(&self, object: ObjectRef<GroupObject>) {
        let key = format!("{}/{}", object.namespace.clone().unwrap_or_default(), object.name);
        self.stores.queued_groups.add(key, &self.metrics);
        // Sending fails only when the receiver is dropped, which happens when the process ends.
        let _ = self.queue.unbounded_send(object);
    }

    /// Enqueues groups by `namespace/name`.
    pub(crate) fn enqueue_keys(&self, keys: impl IntoIterator<Item = String>) {
        for key in keys {
            let (namespace, name) = key.split_once('/').unwrap_or_default();
            self.enqueue(ObjectRef::new(name).within(namespace));
        }
    }

    /// Drops the state of the process about a group that is gone, or that was created again.
    pub(crate) fn forget_group(&self, key: &str) {
        self.stores.quota_grants.forget(key);
        self.stores.forget_reported(key);
        self.stores.rollout.forget(key);
        self.planner.process_state.forget_group(key);
        self.metrics.forget_group(key);
        let namespace = key.split('/').next().unwrap_or_default();
        if self.stores.group_index.in_namespace(namespace).is_empty() {
            self.metrics.set_quota(namespace, &[]);
        }
    }

    /// The ConfigMap `instance-manager` as the target of an event, with its UID if the watch has seen it.
    pub(super) async fn boundaries_target(&self) -> EventTarget {
        let live = self.stores.config_map.lock().await;
        config_map_target(&self.config_namespace, CONFIG_MAP, live.as_present())
    }
}

/// Why a reconcile failed. The cause is logged, and the reconcile is retried.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// AWS or the API server did not answer a read, so no plan could be made.
    #[error(transparent)]
    Observe(ObserveError),
    /// The API server rejected the status write, or did not answer.
    #[error("cannot write the status: {0}")]
    Status(#[source] KubeError),
}

/// The key of a group in maps, metrics and logs: `namespace/name`.
pub(crate) fn group_key(stored: &GroupObject) -> String {
    GroupId::key_of(stored.meta())
}

/// An InstanceGroup as the target of an event.
pub(crate) fn event_target(meta: &ObjectMeta) -> EventTarget {
    EventTarget {
        api_version: "instancemgr.keikoproj.io/v1alpha1".into(),
        kind: "InstanceGroup".into(),
        namespace: meta.namespace.clone(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
    }
}

/// A ConfigMap as the target of an event; `live` supplies the UID.
pub(super) fn config_map_target(namespace: &str, name: &str, live: Option<&ConfigMap>) -> EventTarget {
    EventTarget {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some(namespace.into()),
        name: name.into(),
        uid: live.and_then(ResourceExt::uid).unwrap_or_default(),
    }
}

/// A Node or a pod as the target of an event.
pub(super) fn object_target(object: &EventObject) -> EventTarget {
    match object {
        EventObject::Node(name) => node_target(name),
        EventObject::Pod { namespace, name, uid } => EventTarget {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: Some(namespace.clone()),
            name: name.clone(),
            uid: uid.clone(),
        },
    }
}

/// A Node as the target of an event. Like the kubelet's events, it has the Node's name as UID: `kubectl describe node`
/// shows these, too.
pub(super) fn node_target(name: &str) -> EventTarget {
    EventTarget { api_version: "v1".into(), kind: "Node".into(), namespace: None, name: name.into(), uid: name.into() }
}

/// Whether a published event gets a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventLog {
    /// The event is logged.
    Log,
    /// The log has a line of its own for it.
    LoggedBefore,
}

/// Publishes an event and logs it, if this process is the leader. A failure is logged and not retried, because events are
/// only informative.
pub(crate) async fn publish_event(target: &EventTarget, event: &Event, ctx: &Context) {
    send(target, event, None, ctx, EventLog::Log).await;
}

/// Like [`publish_event`], for an event that must not be repeated by the next process: `once` distinguishes it.
pub(super) async fn publish_event_once(target: &EventTarget, event: &Event, once: Option<String>, ctx: &Context) {
    send(target, event, once, ctx, EventLog::Log).await;
}

/// Like [`publish_event`], with a choice about the log.
pub(super) async fn publish(target: &EventTarget, event: &Event, ctx: &Context, log: EventLog) {
    send(target, event, None, ctx, log).await;
}

async fn send(target: &EventTarget, event: &Event, once: Option<String>, ctx: &Context, log: EventLog) {
    // A process that was paused must not report what another leader does meanwhile.
    if !ctx.is_leader() {
        return;
    }
    if log == EventLog::Log {
        log_event(target, event);
    }
    let kind = event.kind;
    let record =
        KubeEvent { kind, reason: event.reason.clone(), action: "Reconcile".into(), note: event.message.clone(), once };
    if let Err(error) = ctx.planner.kube.publish(target, &record).await {
        tracing::warn!(object = %target.name, reason = %event.reason, %error, "cannot publish event");
    }
}

fn log_event(target: &EventTarget, event: &Event) {
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let object = format!("{namespace}/{}", target.name);
    let object = object.trim_start_matches('/');
    let (group, object) = if target.kind == "InstanceGroup" { (Some(object), None) } else { (None, Some(object)) };
    let kind = object.map(|_| &target.kind);
    match event.kind {
        EventKind::Warning => tracing::warn!(group, kind, object, reason = event.reason, "{}", event.message),
        EventKind::Normal => tracing::info!(group, kind, object, reason = event.reason, "{}", event.message),
    }
}
