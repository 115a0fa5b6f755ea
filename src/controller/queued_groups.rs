//! The groups that wait for a reconcile, and how long they wait.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::time::Instant;

use crate::telemetry::metrics::Metrics;

/// Groups (`namespace/name`) that were enqueued and whose reconcile has not started, with the time of their first trigger.
/// Requeues after a delay are not in here: the work queue of kube-rs keeps them.
#[derive(Default)]
pub(crate) struct QueuedGroups(Mutex<HashMap<String, Instant>>);

impl QueuedGroups {
    /// Records a trigger. A group that waits already keeps the time of its first trigger.
    pub(crate) fn add(&self, key: String, metrics: &Metrics) {
        let mut queued = self.0.lock().expect("lock is not poisoned");
        queued.entry(key).or_insert_with(|| {
            metrics.record_queue_add();
            Instant::now()
        });
        metrics.set_queue_depth(queued.len());
    }

    /// Records the start of a reconcile, and how long the group waited for it.
    pub(crate) fn start(&self, key: &str, metrics: &Metrics) {
        let mut queued = self.0.lock().expect("lock is not poisoned");
        if let Some(enqueued_at) = queued.remove(key) {
            metrics.record_queue_wait(enqueued_at.elapsed());
        }
        metrics.set_queue_depth(queued.len());
    }

    /// Records that a group will not be reconciled for its trigger, because it is gone or the process ends.
    pub(crate) fn remove(&self, key: &str, metrics: &Metrics) {
        let mut queued = self.0.lock().expect("lock is not poisoned");
        queued.remove(key);
        metrics.set_queue_depth(queued.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_wait_is_measured_from_the_first_trigger() {
        let (queued, metrics) = (QueuedGroups::default(), Metrics::new().unwrap());
        let value = |series: &str| {
            let text = metrics.encode().unwrap();
            let line = text.lines().find(|line| line.starts_with(series)).expect("the series");
            line.rsplit(' ').next().unwrap_or_default().parse::<f64>().unwrap()
        };
        queued.add("team/web".into(), &metrics);
        std::thread::sleep(std::time::Duration::from_millis(5));
        queued.add("team/web".into(), &metrics);
        assert_eq!((value("workqueue_adds_total{"), value("workqueue_depth{")), (1.0, 1.0));
        queued.start("team/web", &metrics);
        queued.start("team/web", &metrics);
        assert_eq!((value("workqueue_queue_duration_seconds_count{"), value("workqueue_depth{")), (1.0, 0.0));
        assert!(value("workqueue_queue_duration_seconds_sum{") >= 0.005);
    }

    /// The depth would grow with each deleted group, until an alert fires for a backlog that does not exist.
    #[test]
    fn group_that_is_gone_leaves_the_queue_without_a_wait() {
        let (queued, metrics) = (QueuedGroups::default(), Metrics::new().unwrap());
        queued.add("team/web".into(), &metrics);
        queued.remove("team/web", &metrics);
        let text = metrics.encode().unwrap();
        assert!(text.lines().any(|line| line.starts_with("workqueue_depth{") && line.ends_with(" 0")), "{text}");
        let waits = |line: &str| line.starts_with("workqueue_queue_duration_seconds_count{") && !line.ends_with(" 0");
        assert!(!text.lines().any(waits), "{text}");
    }
}
