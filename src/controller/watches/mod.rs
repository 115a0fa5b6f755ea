//! The watches of the API server. Each one fills a cache and enqueues the groups that a change affects.

pub(crate) mod boundaries;
mod groups;
mod joined_nodes;
mod namespaces;
pub(crate) mod spot_recommendations;

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watch_object, watcher};
use kube::{Api, Client, ResourceExt};

pub(crate) use groups::groups;
pub(crate) use namespaces::namespaces;

use super::context::{Context, config_map_target, publish_event};
use super::node_labels::{self, SeenNode};
use super::trigger::Trigger;
use crate::auth::aws_auth::{self, MapRoles};
use crate::index::nodes::{self, NodeChanges};
use crate::plan::Event as PlanEvent;
use crate::plan::EventReason;
use crate::util::lookup::Lookup;

pub(super) fn watch_config() -> watcher::Config {
    watcher::Config::default().page_size(500)
}

/// Watches Nodes, and enqueues the group of each node that joins, changes its state or is deleted.
pub(crate) async fn nodes(client: Client, trigger: Trigger) {
    let stream = watcher(Api::<Node>::all(client), watch_config()).default_backoff().modify(nodes::trim);
    let mut stream = std::pin::pin!(stream);
    let ctx = trigger.context().clone();
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(joined_nodes::enqueue_groups(receiver, trigger.clone()));
    let (seen_nodes, seen) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(node_labels::copy_roles(seen, ctx.clone()));
    while let Some(event) = next_event(&mut stream, "nodes").await {
        let index = &ctx.planner.node_index;
        let NodeChanges { changed, joined } = index.apply(&event);
        if let Event::Delete(node) = &event {
            ctx.planner.process_state.forget_node(&node.name_any());
        }
        for instance in joined {
            if ctx.planner.inventory.group_of_instance(&instance).is_none() {
                // Its receiver ends with the process.
                let _ = sender.send(instance);
            }
        }
        let groups: std::collections::BTreeSet<_> =
            changed.iter().filter_map(|i| ctx.planner.inventory.group_of_instance(i)).collect();
        trigger.enqueue_keys(groups.iter().flat_map(|name| ctx.stores.group_index.with_scaling_group(name)));
        if let Event::Apply(node) | Event::InitApply(node) = &event {
            // Its receiver ends with the process.
            let _ = seen_nodes.send(SeenNode::new(node));
        }
    }
}

/// Watches kube-system/aws-auth, and enqueues the groups whose role entry changed.
pub(crate) async fn aws_auth(client: Client, trigger: Trigger) {
    let api: Api<ConfigMap> = Api::namespaced(client, "kube-system");
    let mut stream = std::pin::pin!(watch_object(api, "aws-auth"));
    let mut known = None::<String>;
    while let Some(found) = next_object(&mut stream, "kube-system/aws-auth").await {
        let map = found.as_present();
        let near = map.filter(|map| is_near_limit(map));
        let near = near.map(|map| config_map_target("kube-system", "aws-auth", Some(map)));
        trigger.context().stores.aws_auth_size.lock().expect("lock is not poisoned").observe(near);
        report_aws_auth_size(trigger.context()).await;
        let text = map.and_then(|map| map.data.as_ref()?.get("mapRoles"));
        let map_roles = &trigger.context().stores.map_roles;
        if known.as_ref() == text && map_roles.read().expect("lock is not poisoned").is_queried() {
            continue;
        }
        let new = Arc::new(MapRoles::parse(text.map(String::as_str)));
        known = text.cloned();
        let old =
            std::mem::replace(&mut *map_roles.write().expect("lock is not poisoned"), Lookup::Present(new.clone()));
        if let Some(old) = old.as_present() {
            enqueue_role_users(new.changed_roles(old).as_ref(), &trigger);
        }
    }
}

fn is_near_limit(map: &ConfigMap) -> bool {
    crate::auth::aws_auth::is_near_size_limit(map.data.iter().flatten().map(|(key, value)| key.len() + value.len()))
}

/// Warns once, as the leader, that aws-auth is near the size limit of a ConfigMap.
pub(crate) async fn report_aws_auth_size(ctx: &Context) {
    let due = ctx.stores.aws_auth_size.lock().expect("lock is not poisoned").take_due(ctx.is_leader());
    let Some(target) = due else { return };
    let message = "aws-auth uses more than 80 % of the 1 MiB size limit of a ConfigMap; share roles between groups, or remove unused entries";
    publish_event(&target, &PlanEvent::warning(EventReason::AwsAuthNearLimit, message), ctx).await;
}

/// Enqueues the groups for whose roles an entry changed, also roles that their nodes had before; all groups when `changed` is
/// `None`, because aws-auth cannot be parsed.
fn enqueue_role_users(changed: Option<&std::collections::BTreeSet<String>>, trigger: &Trigger) {
    trigger.enqueue_where(|stored| {
        let Some(changed) = changed else { return true };
        let Some(status) = stored.0.as_ref().ok().and_then(|group| group.status.as_ref()) else { return false };
        let recorded = status.managed.iter().flat_map(|managed| &managed.auth_entries);
        status.nodes_instance_role_arn.iter().chain(recorded).any(|role| aws_auth::contains_role(changed, role))
    });
}

/// The next event. Errors are logged; the watch retries with its own backoff.
pub(super) async fn next_event<T>(
    stream: &mut (impl Stream<Item = watcher::Result<T>> + Unpin),
    watch_name: &str,
) -> Option<T> {
    loop {
        match stream.try_next().await {
            Ok(event) => return event,
            Err(error) => log_interruption(watch_name, &error),
        }
    }
}

/// Watches expire all the time, and begin again by themselves.
fn log_interruption(watch: &str, error: &watcher::Error) {
    let text = error_text(error);
    match error {
        watcher::Error::WatchError(status) if status.code == 410 => {
            tracing::info!(watch, error = text, "the watch expired and begins again")
        }
        _ => tracing::warn!(watch, error = text, "watch interrupted"),
    }
}

/// A failed watch as text. An error of the API server would be followed by its fields as Rust prints them.
fn error_text(error: &watcher::Error) -> String {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    match error {
        WatchError(status) => status.message.clone(),
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status)) => status.message.clone(),
        other => other.to_string(),
    }
}

/// The current ConfigMap, or `Absent` if it does not exist; `None` when the stream has ended. Errors are logged and
/// retried.
pub(super) async fn next_object(
    stream: &mut (impl Stream<Item = watcher::Result<Option<ConfigMap>>> + Unpin),
    watch_name: &str,
) -> Option<Lookup<ConfigMap>> {
    loop {
        match stream.next().await? {
            Ok(found) => return Some(found.into()),
            Err(error) => {
                log_interruption(watch_name, &error);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::Router;
    use axum::extract::Request;
    use serde_json::json;

    use super::*;
    use crate::api::names::label;
    use crate::controller::fake;

    /// While the API server answers late, rotations would be planned from an old state of the nodes.
    #[tokio::test]
    async fn no_node_waits_for_the_label_of_another() {
        let is_labeling = Arc::new(AtomicBool::new(false));
        let labels = is_labeling.clone();
        let respond = move |request: Request| {
            let labels = labels.clone();
            async move {
                let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
                let is_label = request.method() == "PATCH";
                labels.fetch_or(is_label, Ordering::AcqRel);
                if is_watch || is_label {
                    std::future::pending::<()>().await;
                }
                let node = json!({
                    "metadata": {"name": "a", "labels": {label::NODE_ROLE: "web"}},
                    "spec": {"providerID": "aws:///us-west-2a/i-1"},
                });
                let metadata = json!({"resourceVersion": "1"});
                json!({"kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": [node]}).to_string()
            }
        };
        let client = Client::new(Router::new().fallback(respond), "default");
        let mut ctx = fake::context(client.clone()).ctx;
        Arc::get_mut(&mut ctx).expect("nothing else uses it").labels_nodes = true;
        let is_synced = async {
            while !(ctx.planner.node_index.is_synced() && is_labeling.load(Ordering::Acquire)) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = nodes(client, Trigger::new(ctx.clone())) => panic!("the watch ended"),
            result = tokio::time::timeout(Duration::from_secs(5), is_synced) => {
                assert!(result.is_ok(), "the list of nodes waits for a label");
            }
        }
    }
}
