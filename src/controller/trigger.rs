//! Enqueues groups for a reconcile.

use std::sync::Arc;

use kube::runtime::reflector::ObjectRef;

use super::context::Context;
use crate::api::GroupObject;

/// Enqueues groups. Clones send to the same queue.
#[derive(Clone)]
pub(crate) struct Trigger {
    context: Arc<Context>,
}

impl Trigger {
    /// A trigger that sends to the queue of the controller.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Trigger { context }
    }

    /// State that all reconciles share.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Has one group reconciled soon, for example after an event of its Node.
    pub(super) fn enqueue(&self, object: ObjectRef<GroupObject>) {
        self.context.enqueue(object);
    }

    /// Has every group reconciled, for example after a change of the boundaries.
    pub(crate) fn enqueue_all(&self) {
        self.enqueue_where(|_| true);
    }

    /// Enqueues groups by `namespace/name`.
    pub(crate) fn enqueue_keys(&self, keys: impl IntoIterator<Item = String>) {
        self.context.enqueue_keys(keys);
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
