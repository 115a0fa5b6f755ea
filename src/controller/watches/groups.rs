//! The watch of InstanceGroups.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;

use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::{ObjectRef, store::Writer};
use kube::runtime::watcher::{Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};

use super::{next_event, watch_config};
use crate::api::GroupObject;
use crate::controller::context::{Context, event_target, group_key};
use crate::controller::trigger::Trigger;
use crate::leader::other_controller::StatusWriters;

/// The fields of a group whose change enqueues it. The status is not among them: the controller writes it itself.
#[derive(Clone, PartialEq)]
struct TriggerFields {
    uid: Option<String>,
    generation: Option<i64>,
    is_deleting: bool,
    annotations: BTreeMap<String, String>,
    finalizers: Vec<String>,
}

fn trigger_fields(stored: &GroupObject) -> TriggerFields {
    let meta = stored.meta();
    TriggerFields {
        uid: meta.uid.clone(),
        generation: meta.generation,
        is_deleting: meta.deletion_timestamp.is_some(),
        annotations: meta.annotations.clone().unwrap_or_default(),
        finalizers: meta.finalizers.clone().unwrap_or_default(),
    }
}

/// Watches InstanceGroups. Fills the store and the index, and observes who writes the status.
pub(crate) async fn groups(client: Client, writer: Writer<GroupObject>, trigger: Trigger) {
    let api: Api<GroupObject> = Api::all(client);
    let stream = watcher(api, watch_config()).default_backoff();
    let mut stream = std::pin::pin!(stream);
    let mut watch = GroupWatch::new(writer, trigger);
    while let Some(event) = next_event(&mut stream, "instancegroups").await {
        watch.apply(event);
    }
}

/// A group whose trigger fields changed.
struct Change {
    object: ObjectRef<GroupObject>,
    /// The object was created again: what is known of its predecessor is not true of it.
    is_replaced: bool,
}

/// What the watch remembers between two events.
struct GroupWatch {
    writer: Writer<GroupObject>,
    trigger: Trigger,
    known: HashMap<String, TriggerFields>,
    /// The groups of the list in progress.
    listed: BTreeSet<String>,
    /// The changes of the list in progress. The store shows them only when the list is complete: a group that is enqueued
    /// before would be reconciled as it was, or not at all.
    waiting: Vec<Change>,
}

impl GroupWatch {
    fn new(writer: Writer<GroupObject>, trigger: Trigger) -> Self {
        Self { writer, trigger, known: HashMap::new(), listed: BTreeSet::new(), waiting: Vec::new() }
    }

    fn apply(&mut self, mut event: Event<GroupObject>) {
        let ctx = self.trigger.context().clone();
        if let Event::Apply(stored) | Event::InitApply(stored) = &mut event {
            trim_group(stored, &ctx);
        }
        self.writer.apply_watcher_event(&event);
        let index = &ctx.stores.group_index;
        match event {
            Event::Init => self.listed.clear(),
            Event::Apply(stored) => {
                index.upsert(&stored);
                self.change(&stored).into_iter().for_each(|change| self.enqueue(change));
            }
            Event::InitApply(stored) => {
                index.upsert(&stored);
                self.listed.insert(group_key(&stored));
                let change = self.change(&stored);
                self.waiting.extend(change);
            }
            Event::Delete(stored) => {
                index.remove(&group_key(&stored));
                self.forget(&group_key(&stored));
            }
            Event::InitDone => {
                index.retain(&self.listed).iter().for_each(|key| self.forget(key));
                if !ctx.stores.groups_synced.load(Ordering::Acquire) {
                    ctx.conflict_detector.initial_list_done();
                }
                ctx.stores.groups_synced.store(true, Ordering::Release);
                std::mem::take(&mut self.waiting).into_iter().for_each(|change| self.enqueue(change));
            }
        }
    }

    /// The change of a group; `None` if its trigger fields are the same as before.
    fn change(&mut self, stored: &GroupObject) -> Option<Change> {
        let fields = trigger_fields(stored);
        let before = self.known.insert(group_key(stored), fields.clone());
        let is_replaced = before.as_ref().is_some_and(|before| before.uid != fields.uid);
        (before != Some(fields)).then(|| Change { object: ObjectRef::from_obj(stored), is_replaced })
    }

    fn enqueue(&self, Change { object, is_replaced }: Change) {
        if is_replaced {
            let key = format!("{}/{}", object.namespace.as_deref().unwrap_or_default(), object.name);
            self.trigger.context().forget_group(&key);
        }
        self.trigger.enqueue(object);
    }

    /// Drops everything that the process knows about a deleted group.
    fn forget(&mut self, key: &str) {
        let ctx = self.trigger.context();
        self.known.remove(key);
        ctx.conflict_detector.forget(key);
        ctx.stores.queued_groups.remove(key, &ctx.metrics);
        ctx.forget_group(key);
    }
}

/// Passes the writers of the status to the conflict detector, and drops fields that no reconcile reads.
fn trim_group(stored: &mut GroupObject, ctx: &Context) {
    stored.annotations_mut().remove("kubectl.kubernetes.io/last-applied-configuration");
    let fields = stored.meta_mut().managed_fields.take().unwrap_or_default();
    let status = stored.0.as_ref().ok().map(|group| &group.status);
    let writers = StatusWriters::new(fields, &status);
    ctx.conflict_detector.observe(&group_key(stored), writers, || event_target(stored.meta()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::fake::{TestContext, context, group_object};

    fn watch() -> (GroupWatch, TestContext) {
        let mut test = context(crate::k8s::fake::client(|call| panic!("unexpected call: {call:?}")));
        let writer = test.groups.take().expect("the writer of the store");
        (GroupWatch::new(writer, Trigger::new(test.ctx.clone())), test)
    }

    fn relist(watch: &mut GroupWatch, test: &mut TestContext, groups: &[(&str, &str)]) -> [Vec<String>; 2] {
        watch.apply(Event::Init);
        groups.iter().for_each(|(name, uid)| watch.apply(Event::InitApply(group_object(name, uid))));
        let early = test.enqueued();
        watch.apply(Event::InitDone);
        [early, test.enqueued()]
    }

    /// The queue drops a group that the store does not have yet, and nothing would enqueue it again.
    #[tokio::test]
    async fn group_created_while_the_watch_relists_is_reconciled() {
        let (mut watch, mut test) = watch();
        assert_eq!(relist(&mut watch, &mut test, &[("a", "1")]), [vec![], vec!["team/a".to_owned()]]);
        assert_eq!(relist(&mut watch, &mut test, &[("a", "1"), ("b", "2")]), [vec![], vec!["team/b".to_owned()]]);
        // A list that breaks off begins again, and has no news then.
        watch.apply(Event::Init);
        watch.apply(Event::InitApply(group_object("c", "3")));
        let again = relist(&mut watch, &mut test, &[("a", "1"), ("b", "2"), ("c", "3")]);
        assert_eq!(again, [vec![], vec!["team/c".to_owned()]]);
        watch.apply(Event::Apply(group_object("d", "4")));
        assert_eq!(test.enqueued(), ["team/d"]);
    }

    /// The new group would wait as long as the old one, which failed for hours.
    #[tokio::test]
    async fn group_recreated_while_the_watch_was_down_has_no_old_state() {
        let (mut watch, mut test) = watch();
        relist(&mut watch, &mut test, &[("a", "1")]);
        let failures = || test.ctx.planner.process_state.record_failure("team/a");
        assert_eq!([failures(), failures()], [1, 2]);
        watch.apply(Event::Apply(group_object("a", "1")));
        assert_eq!(failures(), 3);
        relist(&mut watch, &mut test, &[("a", "9")]);
        assert_eq!(test.ctx.planner.process_state.record_failure("team/a"), 1);
    }
}
