//! The scaling groups of nodes that join while nothing else would reconcile their group: an autoscaler or a user raised
//! its size.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::controller::trigger::Trigger;

/// How long to wait for more nodes to join, to read all of them with one call.
const BATCH_WINDOW: Duration = Duration::from_secs(1);
/// The delay before a failed read of the instances' scaling groups is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// The number of instances in one call.
const BATCH_SIZE: usize = 100;

/// Reads from EC2 the scaling groups of these instances, and enqueues their InstanceGroups, whose reconcile then reads
/// the scaling group without the cache. What could not be read is read again.
pub(super) async fn enqueue_groups(mut joined: UnboundedReceiver<String>, trigger: Trigger) {
    let mut pending = BTreeSet::new();
    loop {
        if pending.is_empty() {
            let Some(instance) = joined.recv().await else { return };
            pending.insert(instance);
        }
        tokio::time::sleep(BATCH_WINDOW).await;
        while let Ok(instance) = joined.try_recv() {
            pending.insert(instance);
        }
        while let Some(batch) = next_batch(&mut pending) {
            if !enqueue_groups_of(&batch, &trigger).await {
                pending.extend(batch);
                tokio::time::sleep(RETRY_INTERVAL).await;
                break;
            }
        }
    }
}

fn next_batch(pending: &mut BTreeSet<String>) -> Option<Vec<String>> {
    let batch: Vec<_> = (0..BATCH_SIZE).map_while(|_| pending.pop_first()).collect();
    (!batch.is_empty()).then_some(batch)
}

/// Returns whether the scaling groups could be read.
async fn enqueue_groups_of(instances: &[String], trigger: &Trigger) -> bool {
    let ctx = trigger.context();
    // A new leader enqueues every group.
    if !ctx.is_leader() {
        return true;
    }
    let inventory = &ctx.planner.inventory;
    let unknown: Vec<_> = instances.iter().filter(|i| inventory.group_of_instance(i).is_none()).cloned().collect();
    match inventory.scaling_groups_of(&unknown).await {
        Ok(scaling_groups) => {
            for name in scaling_groups {
                let groups = ctx.stores.group_index.with_scaling_group(&name);
                if !groups.is_empty() {
                    inventory.invalidate_group(&name);
                    trigger.enqueue_keys(groups);
                }
            }
            true
        }
        Err(error) => {
            tracing::warn!(
                %error, instances = unknown.join(","), retry_after_seconds = RETRY_INTERVAL.as_secs(),
                "cannot read which scaling groups the new nodes are in"
            );
            false
        }
    }
}
