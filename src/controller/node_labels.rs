//! Labels that the controller sets on nodes: their InstanceGroup, and the role label that older tools read. They are set
//! on the Node and are no part of user data, so they replace no node.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use tokio::sync::mpsc::UnboundedReceiver;

use super::context::{Context, node_target, publish_event};
use crate::api::InstanceGroup;
use crate::api::names::{condition, label};
use crate::plan::{Event, EventKind, Write};

/// The longest value of a label.
const MAX_LABEL_VALUE: usize = 63;

/// Sets the labels that name the group on its nodes, for `kubectl get nodes -l`. Also sets the role labels that the API
/// server rejected before. Only nodes in the cache of this process are labeled; a node that joins starts another
/// reconcile.
pub(super) async fn label_group_nodes(group: &InstanceGroup, key: &str, ctx: &Context) {
    let (namespace, name) = (group.namespace().unwrap_or_default(), group.name_any());
    if !ctx.labels_nodes || group.metadata.deletion_timestamp.is_some() || name.len() > MAX_LABEL_VALUE {
        return;
    }
    let scaling_groups = group.status.iter().filter_map(|status| status.active_scaling_group_name.as_deref());
    for scaling_group in scaling_groups.flat_map(|names| names.split(',')) {
        let instances = ctx.planner.inventory.instances_of(scaling_group);
        for (node, is_labeled) in ctx.planner.node_index.labeled(&instances, key) {
            if !is_labeled {
                let labels = [(label::NAMESPACE, namespace.as_str()), (label::INSTANCE_GROUP, name.as_str())];
                set_labels(&node, &labels, ctx).await;
            }
            let role = backlog(ctx).remove(&node);
            if let Some(role) = role {
                set_role(&node, role, ctx).await;
            }
        }
    }
}

/// A node as the watch saw it.
pub(super) struct SeenNode {
    name: String,
    /// The role to copy; `None` if there is nothing to copy.
    missing_role: Option<String>,
}

impl SeenNode {
    pub(super) fn new(node: &Node) -> Self {
        let labels = node.labels();
        let role = labels.get(label::NODE_ROLE).filter(|_| !labels.contains_key(label::LEGACY_NODE_ROLE));
        SeenNode { name: node.name_any(), missing_role: role.cloned() }
    }
}

/// Copies the role label of each node to `kubernetes.io/role`, which older tools read; later, if this process may not
/// write now. The API server may answer late, so the watch that sees the nodes does not wait for it.
pub(super) async fn copy_roles(mut seen: UnboundedReceiver<SeenNode>, ctx: Arc<Context>) {
    while let Some(SeenNode { name, missing_role }) = seen.recv().await {
        match missing_role {
            Some(role) if ctx.labels_nodes => set_role(&name, role, &ctx).await,
            Some(_) => {}
            None => {
                // The leader copied it meanwhile.
                backlog(&ctx).remove(&name);
            }
        }
    }
}

/// Sets the role label. If the API server does not store it, a later reconcile of the node's group tries again.
async fn set_role(node: &str, role: String, ctx: &Context) {
    if !set_labels(node, &[(label::LEGACY_NODE_ROLE, &role)], ctx).await {
        backlog(ctx).insert(node.to_owned(), role);
    }
}

fn backlog(ctx: &Context) -> MutexGuard<'_, BTreeMap<String, String>> {
    ctx.stores.label_backlog.lock().expect("lock is not poisoned")
}

/// Copies the role label of the nodes that this process saw while it could not write.
pub(super) async fn copy_role_backlog(ctx: &Context) {
    let waiting = std::mem::take(&mut *backlog(ctx));
    for (node, role) in waiting {
        set_role(&node, role, ctx).await;
    }
}

/// Sets labels in one patch; returns whether they are set, or the node is gone. While something removes a label each time,
/// the intervals grow; the third time is reported on the Node.
async fn set_labels(node: &str, labels: &[(&str, &str)], ctx: &Context) -> bool {
    let (process_state, resync) = (&ctx.planner.process_state, ctx.planner.settings.resync_period);
    let now = Timestamp::now();
    let write = |(label, value): (&str, &str)| Write::new(node, label, &value);
    let is_due = |one: &(&str, &str)| process_state.other_writes(|writes| writes.is_due(&write(*one), resync, now));
    let due: Vec<_> = labels.iter().copied().filter(is_due).collect();
    if due.is_empty() || !ctx.request_write() {
        return false;
    }
    let patch: BTreeMap<_, _> = due.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
    let is_set = match ctx.planner.kube.label_node(node, &patch).await {
        Err(error) if !error.is_not_found() => {
            tracing::warn!(node, %error, "cannot label the node");
            false
        }
        Ok(()) | Err(_) => true,
    };
    for (label, value) in due {
        let is_repeated = process_state.other_writes(|w| w.record_write(write((label, value)), String::new, now));
        if is_repeated && is_set {
            let message = format!(
                "the label {label} is removed each time it is set to {value}; find the other writer in metadata.managedFields, or start the controller with --node-relabel=false"
            );
            let event = Event::for_condition(EventKind::Warning, condition::WRITES_INEFFECTIVE, message);
            publish_event(&node_target(node), &event, ctx).await;
        }
    }
    is_set
}
