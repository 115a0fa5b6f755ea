//! The watches: each feeds a store and wakes the groups that it concerns.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, store::Writer};
use kube::runtime::watcher::{self, Event, watch_object, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Api, Client, Resource, ResourceExt};

use super::{Shared, Stored, key};
use crate::api::names::{CONFIG_MAP, annotation, label};
use crate::auth::aws_auth;
use crate::cluster::Regarding;
use crate::config::{Source, judge};
use crate::nodes;
use crate::others::Trace;
use crate::plan::Told;

/// Wakes groups.
#[derive(Clone)]
pub struct Bell {
    sender: UnboundedSender<ObjectRef<Stored>>,
    shared: Arc<Shared>,
}

impl Bell {
    /// A bell that rings for the queue.
    pub fn new(sender: UnboundedSender<ObjectRef<Stored>>, shared: Arc<Shared>) -> Self {
        Bell { sender, shared }
    }

    /// What all reconciles share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    fn ring(&self, object: ObjectRef<Stored>) {
        let key = format!("{}/{}", object.namespace.clone().unwrap_or_default(), object.name);
        let mut waiting = self.shared.stores.waiting.lock().expect("nobody panics holding it");
        if waiting.insert(key) {
            self.shared.metrics.queue_added();
        }
        self.shared.metrics.queue_depth(waiting.len());
        drop(waiting);
        // The queue is gone only when the process ends.
        let _ = self.sender.unbounded_send(object);
    }

    /// Wakes every group.
    pub fn all(&self) {
        self.some(|_| true);
    }

    /// Wakes groups by `namespace/name`.
    pub fn keys(&self, keys: impl IntoIterator<Item = String>) {
        for key in keys {
            let (namespace, name) = key.split_once('/').unwrap_or_default();
            self.ring(ObjectRef::new(name).within(namespace));
        }
    }

    fn some(&self, which: impl Fn(&Stored) -> bool) {
        for stored in self.shared.stores.groups.state() {
            if which(&stored) {
                self.ring(ObjectRef::from_obj(stored.as_ref()));
            }
        }
    }
}

pub(super) fn config() -> watcher::Config {
    watcher::Config::default().page_size(500)
}

/// What of a group wakes it: never its status.
#[derive(Clone, PartialEq)]
struct Cause {
    generation: Option<i64>,
    deleting: bool,
    annotations: std::collections::BTreeMap<String, String>,
    finalizers: Vec<String>,
}

fn cause(stored: &Stored) -> Cause {
    let meta = stored.meta();
    Cause {
        generation: meta.generation,
        deleting: meta.deletion_timestamp.is_some(),
        annotations: meta.annotations.clone().unwrap_or_default(),
        finalizers: meta.finalizers.clone().unwrap_or_default(),
    }
}

/// InstanceGroups.
pub async fn groups(client: Client, mut writer: Writer<Stored>, bell: Bell) {
    let api: Api<Stored> = Api::all(client);
    let mut known = std::collections::HashMap::new();
    let stream = watcher(api, config()).default_backoff();
    let mut stream = std::pin::pin!(stream);
    let mut listed = std::collections::BTreeSet::new();
    while let Some(mut event) = next(&mut stream, "instancegroups").await {
        if let Event::Apply(stored) | Event::InitApply(stored) = &mut event {
            trim(stored, &bell.shared);
        }
        writer.apply_watcher_event(&event);
        let index = &bell.shared.stores.index;
        match event {
            Event::Init => listed.clear(),
            Event::Apply(stored) | Event::InitApply(stored) => {
                index.put(&stored);
                listed.insert(key(&stored));
                let cause = cause(&stored);
                if known.insert(key(&stored), cause.clone()) != Some(cause) {
                    bell.ring(ObjectRef::from_obj(&stored));
                }
            }
            Event::Delete(stored) => {
                index.remove(&key(&stored));
                forget(&key(&stored), &mut known, &bell.shared);
            }
            Event::InitDone => {
                index.retain(&listed).iter().for_each(|key| forget(key, &mut known, &bell.shared));
                if !bell.shared.stores.groups_seen.load(Ordering::Acquire) {
                    bell.shared.others.listed();
                }
                bell.shared.stores.groups_seen.store(true, Ordering::Release);
            }
        }
    }
}

/// Who wrote the status is looked at here; the store needs it no more.
fn trim(stored: &mut Stored, shared: &Shared) {
    stored.annotations_mut().remove("kubectl.kubernetes.io/last-applied-configuration");
    let fields = stored.meta_mut().managed_fields.take().unwrap_or_default();
    let status = stored.0.as_ref().ok().map(|group| &group.status);
    let trace = Trace::new(fields, &status);
    shared.others.saw(&key(stored), trace, || super::regarding(stored.meta()));
}

/// A group is gone, and so is everything that was remembered of it.
fn forget(key: &str, known: &mut std::collections::HashMap<String, Cause>, shared: &Shared) {
    known.remove(key);
    shared.others.forget(key);
    shared.corridor.memory.forget_group(key);
    shared.metrics.forget_group(key);
}

/// Namespaces: their annotations exclude and lock.
pub async fn namespaces(client: Client, writer: Writer<PartialObjectMeta<Namespace>>, bell: Bell) {
    let stream = watcher(Api::<PartialObjectMeta<Namespace>>::all(client), config())
        .default_backoff()
        .modify(|n| n.metadata.managed_fields = None);
    let mut stream = std::pin::pin!(reflector(writer, stream));
    let mut known = std::collections::HashMap::new();
    while let Some(event) = next(&mut stream, "namespaces").await {
        if let Event::InitDone = event {
            bell.shared.stores.namespaces_seen.store(true, Ordering::Release);
        }
        let (Event::Apply(namespace) | Event::InitApply(namespace)) = event else { continue };
        let ours = |a: &str| namespace.annotations().get(a).cloned();
        let seen = (ours(annotation::CONFIG_EXCLUDED), ours(annotation::LOCK_UPGRADES));
        let name = namespace.name_any();
        if known.insert(name.clone(), seen.clone()).is_some_and(|old| old != seen) {
            bell.keys(bell.shared.stores.index.in_namespace(&name));
        }
    }
}

/// Nodes: what joins, becomes Ready, falls silent or goes.
pub async fn nodes(client: Client, bell: Bell, relabel: bool) {
    let stream = watcher(Api::<Node>::all(client), config()).default_backoff().modify(nodes::trim);
    let mut stream = std::pin::pin!(stream);
    let shared = bell.shared.clone();
    while let Some(event) = next(&mut stream, "nodes").await {
        let changed = shared.corridor.nodes.apply(&event);
        let groups: std::collections::BTreeSet<_> =
            changed.iter().filter_map(|i| shared.corridor.inventory.group_of_instance(i)).collect();
        bell.keys(groups.iter().flat_map(|name| shared.stores.index.with_scaling_group(name)));
        if let (true, Event::Apply(node) | Event::InitApply(node)) = (relabel, &event) {
            label_role(node, &shared).await;
        }
    }
}

/// Copies the role label to where older tools look for it.
async fn label_role(node: &Node, shared: &Shared) {
    let labels = node.labels();
    let Some(role) = labels.get(label::NODE_ROLE).filter(|_| !labels.contains_key(label::LEGACY_NODE_ROLE)) else {
        return;
    };
    if shared.writes() {
        copy_role(&node.name_any(), role, shared).await;
    } else {
        shared.stores.unlabelled.lock().expect("nobody panics holding it").insert(node.name_any(), role.clone());
    }
}

async fn copy_role(node: &str, role: &str, shared: &Shared) {
    let wanted = [(label::LEGACY_NODE_ROLE.to_owned(), role.to_owned())].into();
    match shared.corridor.cluster.label_node(node, &wanted).await {
        Err(error) if !error.is_not_found() => tracing::warn!(%node, %error, "the role label was not copied"),
        Ok(()) | Err(_) => {}
    }
}

/// What came by while this process only read.
pub async fn label_the_rest(shared: &Shared) {
    let rest = std::mem::take(&mut *shared.stores.unlabelled.lock().expect("nobody panics holding it"));
    for (node, role) in rest {
        copy_role(&node, &role, shared).await;
    }
}

/// kube-system/aws-auth: how nodes join.
pub async fn aws_auth(client: Client, bell: Bell) {
    let api: Api<ConfigMap> = Api::namespaced(client, "kube-system");
    let mut stream = std::pin::pin!(watch_object(api, "aws-auth"));
    let mut was_near = false;
    while let Some(found) = next_object(&mut stream, "kube-system/aws-auth").await {
        let near = found.as_ref().is_some_and(near_limit);
        if near && !was_near && bell.shared.leads() {
            warn_near_limit(found.as_ref(), &bell.shared).await;
        }
        was_near = near;
        let roles = found.and_then(|map| map.data?.get("mapRoles").cloned());
        let old = bell.shared.stores.map_roles.write().expect("nobody panics holding it").replace(roles.clone());
        if let Some(old) = old.filter(|old| *old != roles) {
            wake_users(aws_auth::changed(old.as_deref(), roles.as_deref()).as_ref(), &bell);
        }
    }
}

fn near_limit(map: &ConfigMap) -> bool {
    crate::auth::aws_auth::near_limit(map.data.iter().flatten().map(|(key, value)| key.len() + value.len()))
}

async fn warn_near_limit(map: Option<&ConfigMap>, shared: &Shared) {
    let about = Regarding {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some("kube-system".into()),
        name: "aws-auth".into(),
        uid: map.and_then(ResourceExt::uid).unwrap_or_default(),
    };
    let message = "aws-auth holds more than 80 % of the 1 MiB that a ConfigMap can; share roles between groups, or remove entries that nobody uses";
    super::tell(&about, &Told { warning: true, reason: "AwsAuthNearLimit".into(), message: message.into() }, shared)
        .await;
}

/// Wakes the groups whose role's entry changed; all of them when nobody can tell.
fn wake_users(changed: Option<&std::collections::BTreeSet<String>>, bell: &Bell) {
    let role = |stored: &Stored| stored.0.as_ref().ok()?.status.as_ref()?.nodes_instance_role_arn.clone();
    bell.some(|stored| {
        changed.is_none_or(|changed| role(stored).is_some_and(|role| aws_auth::is_among(changed, &role)))
    });
}

/// The boundaries. They are judged once per edit, and every group looks whether it is concerned.
pub async fn boundaries(client: Client, bell: Bell) {
    let shared = bell.shared.clone();
    let api: Api<ConfigMap> = Api::namespaced(client, &shared.config_namespace);
    let mut stream = std::pin::pin!(watch_object(api, CONFIG_MAP));
    while let Some(live) = next_object(&mut stream, CONFIG_MAP).await {
        settle(live.as_ref(), &shared).await;
        bell.all();
        *shared.stores.config.lock().await = Some(live);
    }
}

/// A new leader stores and tells what the one before it may not have.
pub async fn settle_again(shared: &Shared) {
    let live = shared.stores.config.lock().await.clone();
    if let Some(live) = live {
        settle(live.as_ref(), shared).await;
    }
}

async fn settle(live: Option<&ConfigMap>, shared: &Shared) {
    while !shared.stores.groups_seen.load(Ordering::Acquire) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let locked = live.is_some_and(|m| {
        m.annotations().get(annotation::LOCK_UPGRADES).is_some_and(|v| v.eq_ignore_ascii_case("true"))
    });
    *shared.stores.config_locked.write().expect("nobody panics holding it") = locked;
    let data = live.map(|m| m.data.clone().unwrap_or_default());
    let stored = last_good(shared).await;
    let merged = |s: &Arc<Stored>| {
        s.0.as_ref()
            .ok()
            .and_then(|g| g.status.as_ref())
            .and_then(|s| s.config_md5.as_ref())
            .is_some_and(|m| !m.is_empty())
    };
    let had_one = shared.stores.groups.state().iter().any(merged);
    let (in_force, error) = judge(data.as_ref(), stored.as_ref(), had_one);
    let valid = matches!(in_force.source, Source::Live | Source::Never);
    shared.metrics.boundaries(
        Some(in_force.revision.as_str()).filter(|r| !r.is_empty()),
        valid,
        in_force.warnings.len(),
    );
    let changed = {
        let old = shared.stores.current.get();
        old.source != in_force.source || old.revision != in_force.revision || old.warnings != in_force.warnings
    };
    if changed {
        tracing::info!(source = ?in_force.source, revision = %in_force.revision, "boundaries in force");
    }
    if shared.leads() {
        if in_force.source == Source::Live
            && shared.writes()
            && let Some(data) = &data
            && let Err(error) = shared.corridor.cluster.put_last_good(&shared.config_namespace, data).await
        {
            tracing::warn!(%error, "the good boundaries were not stored");
        }
        if changed {
            announce(live, &in_force, error.as_ref(), shared).await;
        }
    }
    shared.stores.current.set(in_force);
}

/// The stored revision. Until the API server answers nobody knows, and what was in force stays so.
async fn last_good(shared: &Shared) -> Option<crate::config::Data> {
    loop {
        match shared.corridor.cluster.last_good(&shared.config_namespace).await {
            Ok(stored) => return stored,
            Err(error) => {
                tracing::warn!(%error, "the last good boundaries cannot be read");
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    }
}

/// Tells the admin on the ConfigMap itself.
async fn announce(
    live: Option<&ConfigMap>,
    in_force: &crate::config::InForce,
    error: Option<&crate::boundaries::ConfigError>,
    shared: &Shared,
) {
    let about = Regarding {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some(shared.config_namespace.clone()),
        name: CONFIG_MAP.into(),
        uid: live.and_then(ResourceExt::uid).unwrap_or_default(),
    };
    let warning = |reason: &str, message: String| Told { warning: true, reason: reason.into(), message };
    let mut told: Vec<_> = in_force.warnings.iter().map(|w| warning("BoundariesWarning", w.to_string())).collect();
    match (&in_force.source, error) {
        (Source::LastGood(why) | Source::Unavailable(why), error) => {
            told.push(warning(error.map_or("BoundariesMissing", |e| e.reason()), why.clone()))
        }
        (Source::Live, _) => told.push(Told {
            warning: false,
            reason: "BoundariesApplied".into(),
            message: format!("revision {} is in force", in_force.revision),
        }),
        (Source::Never | Source::Unknown, _) => {}
    }
    for told in told {
        super::tell(&about, &told, shared).await;
    }
}

/// The next event; an error is logged and waited out by the watch's own backoff.
pub(super) async fn next<T>(stream: &mut (impl Stream<Item = watcher::Result<T>> + Unpin), what: &str) -> Option<T> {
    loop {
        match stream.try_next().await {
            Ok(event) => return event,
            Err(error) => tracing::warn!(watch = what, %error, "the watch is interrupted"),
        }
    }
}

async fn next_object(
    stream: &mut (impl Stream<Item = watcher::Result<Option<ConfigMap>>> + Unpin),
    what: &str,
) -> Option<Option<ConfigMap>> {
    loop {
        match stream.next().await? {
            Ok(found) => return Some(found),
            Err(error) => {
                tracing::warn!(watch = what, %error, "the watch is interrupted");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}
