//! The bell that wakes groups.

use std::sync::Arc;

use futures::channel::mpsc::UnboundedSender;
use kube::runtime::reflector::ObjectRef;

use super::{Context, GroupObject};

/// Wakes groups.
#[derive(Clone)]
pub struct Trigger {
    sender: UnboundedSender<ObjectRef<GroupObject>>,
    context: Arc<Context>,
}

impl Trigger {
    /// A bell that rings for the queue.
    pub fn new(sender: UnboundedSender<ObjectRef<GroupObject>>, context: Arc<Context>) -> Self {
        Trigger { sender, context }
    }

    /// What all reconciles share.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Wakes one group.
    pub(super) fn enqueue(&self, object: ObjectRef<GroupObject>) {
        let key = format!("{}/{}", object.namespace.clone().unwrap_or_default(), object.name);
        let mut waiting = self.context.stores.queued.lock().expect("nobody panics holding it");
        if waiting.insert(key) {
            self.context.metrics.record_queue_add();
        }
        self.context.metrics.set_queue_depth(waiting.len());
        drop(waiting);
        // The queue is gone only when the process ends.
        let _ = self.sender.unbounded_send(object);
    }

    /// Wakes every group.
    pub fn enqueue_all(&self) {
        self.enqueue_where(|_| true);
    }

    /// Wakes groups by `namespace/name`.
    pub fn enqueue_keys(&self, keys: impl IntoIterator<Item = String>) {
        for key in keys {
            let (namespace, name) = key.split_once('/').unwrap_or_default();
            self.enqueue(ObjectRef::new(name).within(namespace));
        }
    }

    /// Wakes those of which it is true.
    pub(super) fn enqueue_where(&self, which: impl Fn(&GroupObject) -> bool) {
        for stored in self.context.stores.groups.state() {
            if which(&stored) {
                self.enqueue(ObjectRef::from_obj(stored.as_ref()));
            }
        }
    }
}
