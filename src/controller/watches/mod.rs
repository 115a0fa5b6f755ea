//! The watches: each feeds a store and wakes the groups that it concerns.

pub mod boundaries;
pub mod spot_recommendations;

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, store::Writer};
use kube::runtime::watcher::{self, Event, watch_object, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Api, Client, Resource, ResourceExt};

use super::trigger::Bell;
use super::{Shared, Stored, key};
use crate::api::names::{annotation, label};
use crate::auth::aws_auth;
use crate::index::nodes;
use crate::k8s::Regarding;
use crate::leader::other_controller::Trace;
use crate::plan::Told;

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
            trim(stored, bell.shared());
        }
        writer.apply_watcher_event(&event);
        let index = &bell.shared().stores.index;
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
                forget(&key(&stored), &mut known, bell.shared());
            }
            Event::InitDone => {
                index.retain(&listed).iter().for_each(|key| forget(key, &mut known, bell.shared()));
                if !bell.shared().stores.groups_seen.load(Ordering::Acquire) {
                    bell.shared().others.listed();
                }
                bell.shared().stores.groups_seen.store(true, Ordering::Release);
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
            bell.shared().stores.namespaces_seen.store(true, Ordering::Release);
        }
        let (Event::Apply(namespace) | Event::InitApply(namespace)) = event else { continue };
        let ours = |a: &str| namespace.annotations().get(a).cloned();
        let seen = (ours(annotation::CONFIG_EXCLUDED), ours(annotation::LOCK_UPGRADES));
        let name = namespace.name_any();
        if known.insert(name.clone(), seen.clone()).is_some_and(|old| old != seen) {
            bell.keys(bell.shared().stores.index.in_namespace(&name));
        }
    }
}

/// Nodes: what joins, becomes Ready, falls silent or goes.
pub async fn nodes(client: Client, bell: Bell, relabel: bool) {
    let stream = watcher(Api::<Node>::all(client), config()).default_backoff().modify(nodes::trim);
    let mut stream = std::pin::pin!(stream);
    let shared = bell.shared().clone();
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
        if near && !was_near && bell.shared().leads() {
            warn_near_limit(found.as_ref(), bell.shared()).await;
        }
        was_near = near;
        let roles = found.and_then(|map| map.data?.get("mapRoles").cloned());
        let old = bell.shared().stores.map_roles.write().expect("nobody panics holding it").replace(roles.clone());
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

/// The next event; an error is logged and waited out by the watch's own backoff.
pub(super) async fn next<T>(stream: &mut (impl Stream<Item = watcher::Result<T>> + Unpin), what: &str) -> Option<T> {
    loop {
        match stream.try_next().await {
            Ok(event) => return event,
            Err(error) => tracing::warn!(watch = what, %error, "the watch is interrupted"),
        }
    }
}

/// The object as it is now, or that it is gone; an error is logged and waited out.
pub(super) async fn next_object(
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
