//! Enqueues groups for a reconcile.

use std::sync::Arc;

use futures::channel::mpsc::UnboundedSender;
use kube::runtime::reflector::ObjectRef;

use super::context::Context;
use crate::api::GroupObject;

/// Enqueues groups. Clones send to the same queue.
#[derive(Clone)]
pub(crate) struct Trigger {
    sender: UnboundedSender<ObjectRef<GroupObject>>,
    context: Arc<Context>,
}

impl Trigger {
    /// A trigger that sends to the queue of the controller.
    pub(crate) fn new(sender: UnboundedSender<ObjectRef<GroupObject>>, context: Arc<Context>) -> Self {
        Trigger { sender, context }
    }

    /// State that all reconciles share.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Enqueues one group.
    pub(super) fn enqueue(&self, object: ObjectRef<GroupObject>) {
        let key = format!("{}/{}", object.namespace.clone().unwrap_or_default(), object.name);
        self.context.stores.queued.add(key, &self.context.metrics);
        // Sending fails only when the receiver is dropped, which happens when the process ends.
        let _ = self.sender.unbounded_send(object);
    }

    /// Enqueues every group.
    pub(crate) fn enqueue_all(&self) {
        self.enqueue_where(|_| true);
    }

    /// Enqueues groups by `namespace/name`.
    pub(crate) fn enqueue_keys(&self, keys: impl IntoIterator<Item = String>) {
        for key in keys {
            let (namespace, name) = key.split_once('/').unwrap_or_default();
            self.enqueue(ObjectRef::new(name).within(namespace));
        }
    }

    /// Enqueues the groups for which `predicate` is true.
    pub(super) fn enqueue_where(&self, predicate: impl Fn(&GroupObject) -> bool) {
        for stored in self.context.stores.groups.state() {
            if predicate(&stored) {
                self.enqueue(ObjectRef::from_obj(stored.as_ref()));
            }
        }
    }
}
