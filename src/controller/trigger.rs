//! The bell that wakes groups.

use std::sync::Arc;

use futures::channel::mpsc::UnboundedSender;
use kube::runtime::reflector::ObjectRef;

use super::{Shared, Stored};

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
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Wakes one group.
    pub(super) fn ring(&self, object: ObjectRef<Stored>) {
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

    /// Wakes those of which it is true.
    pub(super) fn some(&self, which: impl Fn(&Stored) -> bool) {
        for stored in self.shared.stores.groups.state() {
            if which(&stored) {
                self.ring(ObjectRef::from_obj(stored.as_ref()));
            }
        }
    }
}
