//! The scaling groups of nodes that join while nothing else would look at their group: an autoscaler or a person raised it.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::controller::trigger::Trigger;
use crate::index::nodes::{NodeIndex, instance_id};

/// How long to wait for more nodes that join, so that one call asks for all of them.
const BATCH_WINDOW: Duration = Duration::from_secs(1);
/// The number of instances in one call.
const BATCH_SIZE: usize = 100;

/// The instances whose first Node this event shows, and that may be in a group which no reconcile has read since. Empty
/// for the first list: every group is enqueued at the start. `changed` is what the index said of the event.
pub(super) fn joined(event: &Event<Node>, was_synced: bool, known: bool, changed: &[String]) -> Vec<String> {
    match event {
        Event::Apply(node) if !known => instance_id(node).into_iter().collect(),
        Event::InitDone if was_synced => changed.to_vec(),
        _ => Vec::new(),
    }
}

/// Whether the index has a Node of the instance that an event is about.
pub(super) fn is_known(event: &Event<Node>, index: &NodeIndex) -> bool {
    let Event::Apply(node) = event else { return false };
    instance_id(node).is_some_and(|instance| index.get(&instance).is_some())
}

/// Asks EC2 for the scaling groups of these instances, and enqueues their InstanceGroups, which then read the scaling group
/// anew.
pub(super) async fn enqueue_groups(mut joined: UnboundedReceiver<String>, trigger: Trigger) {
    let mut instances = Vec::new();
    while joined.recv_many(&mut instances, BATCH_SIZE).await > 0 {
        tokio::time::sleep(BATCH_WINDOW).await;
        while instances.len() < BATCH_SIZE
            && let Ok(instance) = joined.try_recv()
        {
            instances.push(instance);
        }
        let batch: BTreeSet<_> = instances.drain(..).collect();
        enqueue_groups_of(batch.into_iter().collect(), &trigger).await;
    }
}

async fn enqueue_groups_of(instances: Vec<String>, trigger: &Trigger) {
    let ctx = trigger.context();
    // A new leader enqueues every group.
    if !ctx.is_leader() {
        return;
    }
    let inventory = &ctx.planner.inventory;
    let unknown: Vec<_> = instances.into_iter().filter(|i| inventory.group_of_instance(i).is_none()).collect();
    match inventory.scaling_groups_of(&unknown).await {
        Ok(scaling_groups) => {
            for name in scaling_groups {
                let groups = ctx.stores.group_index.with_scaling_group(&name);
                if !groups.is_empty() {
                    inventory.invalidate_group(&name);
                    trigger.enqueue_keys(groups);
                }
            }
        }
        Err(error) => {
            tracing::warn!(
                %error, instances = unknown.join(","),
                "cannot read which scaling groups the new nodes are in; their InstanceGroups notice them at the next resync"
            );
        }
    }
}
