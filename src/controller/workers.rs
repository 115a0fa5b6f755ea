//! The workers of the controller: how many groups are reconciled at the same time, and in which order.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::sync::Semaphore;

/// Workers, which serve groups in the order in which these became due.
///
/// kube-rs can limit concurrent reconciles itself, but takes the next group from a hash set. While more groups are due than
/// there are workers, the same few would be served again and again, and others never. So kube-rs starts each group as soon as
/// it is due, and the reconcile waits here for its turn.
#[derive(Clone)]
pub(crate) struct Workers(Arc<Semaphore>);

impl Workers {
    /// This number of workers.
    pub(crate) fn new(count: u16) -> Self {
        Self(Arc::new(Semaphore::new(count.into())))
    }

    /// The configuration of kube-rs with which all groups that are due wait for a worker.
    pub(crate) fn config() -> Config {
        Config::default().concurrency(0)
    }

    /// Ends the wait of all groups that have no worker yet. Reconciles in progress continue.
    pub(crate) fn stop(&self) {
        self.0.close();
    }

    /// Runs `reconcile` when a worker is free, on the object as it is then. Without an object, or after [`Workers::stop`],
    /// `leave` is called instead.
    pub(crate) fn run<K, E, F>(
        &self,
        object: Arc<K>,
        store: Store<K>,
        reconcile: impl FnOnce(Arc<K>) -> F + Send + 'static,
        leave: impl FnOnce() + Send + 'static,
    ) -> BoxFuture<'static, Result<Action, E>>
    where
        K: kube::Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
        E: Send + 'static,
        F: Future<Output = Result<Action, E>> + Send,
    {
        let (workers, reference) = (self.0.clone(), ObjectRef::from_obj(object.as_ref()));
        drop(object);
        async move {
            let worker = workers.acquire().await;
            match store.get(&reference).filter(|_| worker.is_ok()) {
                Some(object) => reconcile(object).await,
                None => {
                    leave();
                    Ok(Action::await_change())
                }
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::time::Duration;

    use futures::StreamExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;
    use kube::runtime::controller::applier;
    use kube::runtime::reflector::store;
    use kube::runtime::watcher::Event;

    use super::*;

    const OBJECTS: usize = 40;

    /// How often each of 40 objects is reconciled within `turns` reconciles, if all of them are always due.
    async fn reconciles(workers: Workers, turns: usize) -> BTreeMap<String, usize> {
        let (reader, mut writer) = store::<ConfigMap>();
        writer.apply_watcher_event(&Event::Init);
        let (sender, queue) = futures::channel::mpsc::unbounded();
        for number in 0..OBJECTS {
            let metadata = ObjectMeta { name: Some(format!("group-{number}")), ..ObjectMeta::default() };
            let object = ConfigMap { metadata, ..ConfigMap::default() };
            sender.unbounded_send(ObjectRef::from_obj(&object)).unwrap();
            writer.apply_watcher_event(&Event::InitApply(object));
        }
        writer.apply_watcher_event(&Event::InitDone);
        let counts = Arc::new(Mutex::new(BTreeMap::new()));
        let (all, count) = (reader.clone(), counts.clone());
        let reconcile = move |object: Arc<ConfigMap>, _: Arc<()>| {
            let count = count.clone();
            let reconcile = async move |object: Arc<ConfigMap>| {
                tokio::time::sleep(Duration::from_millis(2)).await;
                *count.lock().unwrap().entry(object.metadata.name.clone().unwrap()).or_default() += 1;
                Ok::<_, Infallible>(Action::requeue(Duration::from_millis(1)))
            };
            workers.run(object, all.clone(), reconcile, || {})
        };
        let queue = queue.map(Ok::<_, Infallible>);
        let error_policy = |_, _: &Infallible, _| Action::await_change();
        let stream = applier(reconcile, error_policy, Arc::new(()), reader, queue, Workers::config());
        stream.take(turns).for_each(|_| std::future::ready(())).await;
        counts.lock().unwrap().clone()
    }

    /// While a ConfigMap's change rotates thousands of groups, a group that is deleted or locked must have its turn as well.
    #[tokio::test]
    async fn no_group_is_passed_over_while_more_are_due_than_there_are_workers() {
        let counts = reconciles(Workers::new(2), 5 * OBJECTS).await;
        assert_eq!(counts.len(), OBJECTS);
        assert!(counts.values().all(|count| *count >= 3), "{counts:?}");
    }

    /// A process that ends must not begin with the groups that wait.
    #[tokio::test]
    async fn groups_that_wait_for_a_worker_are_left_when_the_process_ends() {
        let workers = Workers::new(2);
        workers.stop();
        assert_eq!(reconciles(workers, OBJECTS).await, BTreeMap::new());
    }

    /// Its key would count as queued forever.
    #[tokio::test]
    async fn object_deleted_while_it_waits_for_a_worker_leaves_the_queue() {
        let (reader, mut writer) = store::<ConfigMap>();
        let metadata = ObjectMeta { name: Some("group".into()), ..ObjectMeta::default() };
        let object = Arc::new(ConfigMap { metadata, ..ConfigMap::default() });
        let left = Arc::new(Mutex::new(0));
        let run = |workers: &Workers| {
            let left = left.clone();
            let reconcile = async |_| Ok::<_, Infallible>(Action::await_change());
            workers.run(object.clone(), reader.clone(), reconcile, move || *left.lock().unwrap() += 1)
        };
        let workers = Workers::new(1);
        run(&workers).await.unwrap();
        assert_eq!(*left.lock().unwrap(), 1, "it is gone");
        writer.apply_watcher_event(&Event::Apply(object.as_ref().clone()));
        run(&workers).await.unwrap();
        assert_eq!(*left.lock().unwrap(), 1, "it is reconciled");
        workers.stop();
        run(&workers).await.unwrap();
        assert_eq!(*left.lock().unwrap(), 2, "the process ends");
    }
}
