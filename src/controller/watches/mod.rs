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

use super::trigger::Trigger;
use super::{Context, GroupObject, group_key};
use crate::api::names::{annotation, label};
use crate::auth::aws_auth;
use crate::index::nodes;
use crate::k8s::EventTarget;
use crate::leader::other_controller::StatusWriters;
use crate::plan::Event as PlanEvent;

pub(super) fn watch_config() -> watcher::Config {
    watcher::Config::default().page_size(500)
}

/// What of a group wakes it: never its status.
#[derive(Clone, PartialEq)]
struct TriggerFields {
    generation: Option<i64>,
    deleting: bool,
    annotations: std::collections::BTreeMap<String, String>,
    finalizers: Vec<String>,
}

fn trigger_fields(stored: &GroupObject) -> TriggerFields {
    let meta = stored.meta();
    TriggerFields {
        generation: meta.generation,
        deleting: meta.deletion_timestamp.is_some(),
        annotations: meta.annotations.clone().unwrap_or_default(),
        finalizers: meta.finalizers.clone().unwrap_or_default(),
    }
}

/// InstanceGroups.
pub async fn groups(client: Client, mut writer: Writer<GroupObject>, bell: Trigger) {
    let api: Api<GroupObject> = Api::all(client);
    let mut known = std::collections::HashMap::new();
    let stream = watcher(api, watch_config()).default_backoff();
    let mut stream = std::pin::pin!(stream);
    let mut listed = std::collections::BTreeSet::new();
    while let Some(mut event) = next_event(&mut stream, "instancegroups").await {
        if let Event::Apply(stored) | Event::InitApply(stored) = &mut event {
            trim_group(stored, bell.context());
        }
        writer.apply_watcher_event(&event);
        let index = &bell.context().stores.group_index;
        match event {
            Event::Init => listed.clear(),
            Event::Apply(stored) | Event::InitApply(stored) => {
                index.upsert(&stored);
                listed.insert(group_key(&stored));
                let cause = trigger_fields(&stored);
                if known.insert(group_key(&stored), cause.clone()) != Some(cause) {
                    bell.enqueue(ObjectRef::from_obj(&stored));
                }
            }
            Event::Delete(stored) => {
                index.remove(&group_key(&stored));
                forget_group(&group_key(&stored), &mut known, bell.context());
            }
            Event::InitDone => {
                index.retain(&listed).iter().for_each(|key| forget_group(key, &mut known, bell.context()));
                if !bell.context().stores.groups_synced.load(Ordering::Acquire) {
                    bell.context().conflict_detector.initial_list_done();
                }
                bell.context().stores.groups_synced.store(true, Ordering::Release);
            }
        }
    }
}

/// Who wrote the status is looked at here; the store needs it no more.
fn trim_group(stored: &mut GroupObject, shared: &Context) {
    stored.annotations_mut().remove("kubectl.kubernetes.io/last-applied-configuration");
    let fields = stored.meta_mut().managed_fields.take().unwrap_or_default();
    let status = stored.0.as_ref().ok().map(|group| &group.status);
    let trace = StatusWriters::new(fields, &status);
    shared.conflict_detector.observe(&group_key(stored), trace, || super::event_target(stored.meta()));
}

/// A group is gone, and so is everything that was remembered of it.
fn forget_group(key: &str, known: &mut std::collections::HashMap<String, TriggerFields>, shared: &Context) {
    known.remove(key);
    shared.conflict_detector.forget(key);
    shared.planner.process_state.forget_group(key);
    shared.metrics.forget_group(key);
}

/// Namespaces: their annotations exclude and lock.
pub async fn namespaces(client: Client, writer: Writer<PartialObjectMeta<Namespace>>, bell: Trigger) {
    let stream = watcher(Api::<PartialObjectMeta<Namespace>>::all(client), watch_config())
        .default_backoff()
        .modify(|n| n.metadata.managed_fields = None);
    let mut stream = std::pin::pin!(reflector(writer, stream));
    let mut known = std::collections::HashMap::new();
    while let Some(event) = next_event(&mut stream, "namespaces").await {
        if let Event::InitDone = event {
            bell.context().stores.namespaces_synced.store(true, Ordering::Release);
        }
        let (Event::Apply(namespace) | Event::InitApply(namespace)) = event else { continue };
        let ours = |a: &str| namespace.annotations().get(a).cloned();
        let seen = (ours(annotation::CONFIG_EXCLUDED), ours(annotation::LOCK_UPGRADES));
        let name = namespace.name_any();
        if known.insert(name.clone(), seen.clone()).is_some_and(|old| old != seen) {
            bell.enqueue_keys(bell.context().stores.group_index.in_namespace(&name));
        }
    }
}

/// Nodes: what joins, becomes Ready, falls silent or goes.
pub async fn nodes(client: Client, bell: Trigger, relabel: bool) {
    let stream = watcher(Api::<Node>::all(client), watch_config()).default_backoff().modify(nodes::trim);
    let mut stream = std::pin::pin!(stream);
    let shared = bell.context().clone();
    while let Some(event) = next_event(&mut stream, "nodes").await {
        let changed = shared.planner.node_index.apply(&event);
        let groups: std::collections::BTreeSet<_> =
            changed.iter().filter_map(|i| shared.planner.inventory.group_of_instance(i)).collect();
        bell.enqueue_keys(groups.iter().flat_map(|name| shared.stores.group_index.with_scaling_group(name)));
        if let (true, Event::Apply(node) | Event::InitApply(node)) = (relabel, &event) {
            label_node_role(node, &shared).await;
        }
    }
}

/// Copies the role label to where older tools look for it.
async fn label_node_role(node: &Node, shared: &Context) {
    let labels = node.labels();
    let Some(role) = labels.get(label::NODE_ROLE).filter(|_| !labels.contains_key(label::LEGACY_NODE_ROLE)) else {
        return;
    };
    if shared.can_write() {
        copy_role_label(&node.name_any(), role, shared).await;
    } else {
        shared.stores.label_backlog.lock().expect("nobody panics holding it").insert(node.name_any(), role.clone());
    }
}

async fn copy_role_label(node: &str, role: &str, shared: &Context) {
    let wanted = [(label::LEGACY_NODE_ROLE.to_owned(), role.to_owned())].into();
    match shared.planner.kube.label_node(node, &wanted).await {
        Err(error) if !error.is_not_found() => tracing::warn!(%node, %error, "the role label was not copied"),
        Ok(()) | Err(_) => {}
    }
}

/// What came by while this process only read.
pub async fn label_backlog(shared: &Context) {
    let rest = std::mem::take(&mut *shared.stores.label_backlog.lock().expect("nobody panics holding it"));
    for (node, role) in rest {
        copy_role_label(&node, &role, shared).await;
    }
}

/// kube-system/aws-auth: how nodes join.
pub async fn aws_auth(client: Client, bell: Trigger) {
    let api: Api<ConfigMap> = Api::namespaced(client, "kube-system");
    let mut stream = std::pin::pin!(watch_object(api, "aws-auth"));
    let mut was_near = false;
    while let Some(found) = next_object(&mut stream, "kube-system/aws-auth").await {
        let near = found.as_ref().is_some_and(is_near_limit);
        if near && !was_near && bell.context().is_leader() {
            warn_near_limit(found.as_ref(), bell.context()).await;
        }
        was_near = near;
        let roles = found.and_then(|map| map.data?.get("mapRoles").cloned());
        let old = bell.context().stores.map_roles.write().expect("nobody panics holding it").replace(roles.clone());
        if let Some(old) = old.filter(|old| *old != roles) {
            enqueue_role_users(aws_auth::changed_roles(old.as_deref(), roles.as_deref()).as_ref(), &bell);
        }
    }
}

fn is_near_limit(map: &ConfigMap) -> bool {
    crate::auth::aws_auth::is_near_size_limit(map.data.iter().flatten().map(|(key, value)| key.len() + value.len()))
}

async fn warn_near_limit(map: Option<&ConfigMap>, shared: &Context) {
    let about = EventTarget {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some("kube-system".into()),
        name: "aws-auth".into(),
        uid: map.and_then(ResourceExt::uid).unwrap_or_default(),
    };
    let message = "aws-auth holds more than 80 % of the 1 MiB that a ConfigMap can; share roles between groups, or remove entries that nobody uses";
    super::publish_event(&about, &PlanEvent::warning("AwsAuthNearLimit", message), shared).await;
}

/// Wakes the groups whose role's entry changed; all of them when nobody can tell.
fn enqueue_role_users(changed: Option<&std::collections::BTreeSet<String>>, bell: &Trigger) {
    let role = |stored: &GroupObject| stored.0.as_ref().ok()?.status.as_ref()?.nodes_instance_role_arn.clone();
    bell.enqueue_where(|stored| {
        changed.is_none_or(|changed| role(stored).is_some_and(|role| aws_auth::contains_role(changed, &role)))
    });
}

/// The next event; an error is logged and waited out by the watch's own backoff.
pub(super) async fn next_event<T>(
    stream: &mut (impl Stream<Item = watcher::Result<T>> + Unpin),
    what: &str,
) -> Option<T> {
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
