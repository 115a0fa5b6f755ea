//! The watch of Namespaces.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{Event, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Api, Client, ResourceExt};

use super::{next_event, watch_config};
use crate::api::names::annotation;
use crate::controller::trigger::Trigger;

/// Watches Namespaces, whose annotations can exclude groups from the boundaries or lock them.
pub(crate) async fn namespaces(client: Client, writer: Writer<PartialObjectMeta<Namespace>>, trigger: Trigger) {
    let stream = watcher(Api::<PartialObjectMeta<Namespace>>::all(client), watch_config())
        .default_backoff()
        .modify(|n| n.metadata.managed_fields = None);
    let mut stream = std::pin::pin!(reflector(writer, stream));
    let mut watch = NamespaceWatch::default();
    while let Some(event) = next_event(&mut stream, "namespaces").await {
        let is_complete = matches!(event, Event::InitDone);
        let changed = watch.apply(event);
        if is_complete {
            trigger.context().stores.namespaces_synced.store(true, Ordering::Release);
        }
        for name in changed {
            trigger.enqueue_keys(trigger.context().stores.group_index.in_namespace(&name));
        }
    }
}

/// The annotations of a Namespace that matter to its groups.
#[derive(Clone, PartialEq)]
struct Annotations {
    config_excluded: Option<String>,
    lock_upgrades: Option<String>,
}

/// What the watch remembers between two events.
#[derive(Default)]
struct NamespaceWatch {
    known: HashMap<String, Annotations>,
    /// The changed Namespaces of the list in progress. The store shows them only when the list is complete.
    waiting: Vec<String>,
}

impl NamespaceWatch {
    /// The Namespaces whose groups are to be reconciled after this event.
    fn apply(&mut self, event: Event<PartialObjectMeta<Namespace>>) -> Vec<String> {
        match event {
            Event::Init | Event::Delete(_) => Vec::new(),
            Event::Apply(namespace) => self.change(&namespace).into_iter().collect(),
            Event::InitApply(namespace) => {
                let changed = self.change(&namespace);
                self.waiting.extend(changed);
                Vec::new()
            }
            Event::InitDone => std::mem::take(&mut self.waiting),
        }
    }

    /// The name of a Namespace that was known before with other annotations.
    fn change(&mut self, namespace: &PartialObjectMeta<Namespace>) -> Option<String> {
        let value_of = |a: &str| namespace.annotations().get(a).cloned();
        let annotations = Annotations {
            config_excluded: value_of(annotation::CONFIG_EXCLUDED),
            lock_upgrades: value_of(annotation::LOCK_UPGRADES),
        };
        let before = self.known.insert(namespace.name_any(), annotations.clone());
        before.is_some_and(|before| before != annotations).then(|| namespace.name_any())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(locked: bool) -> PartialObjectMeta<Namespace> {
        let mut namespace = PartialObjectMeta::<Namespace>::default();
        namespace.metadata.name = Some("team".into());
        if locked {
            namespace.annotations_mut().insert(annotation::LOCK_UPGRADES.into(), "true".into());
        }
        namespace
    }

    /// Groups that are enqueued before would be planned without the lock, and not again.
    #[test]
    fn lock_set_while_the_watch_relists_reaches_the_groups_after_the_store_has_it() {
        let mut watch = NamespaceWatch::default();
        let mut changed = |event| watch.apply(event);
        for event in [Event::Init, Event::InitApply(namespace(false)), Event::InitDone, Event::Init] {
            assert_eq!(changed(event), [""; 0]);
        }
        assert_eq!(changed(Event::InitApply(namespace(true))), [""; 0], "the store does not have it yet");
        assert_eq!(changed(Event::InitDone), ["team"]);
        assert_eq!(changed(Event::Apply(namespace(true))), [""; 0]);
        assert_eq!(changed(Event::Apply(namespace(false))), ["team"]);
    }
}
