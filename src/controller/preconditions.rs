//! Whether a reconcile may start: permission to write, and a cache that shows this controller's own writes.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;

use super::context::{CACHE_BEHIND_DELAY, CACHE_LAG_DELAY, Context, Error};
use super::planner::Planner;
use crate::api::{GroupObject, InstanceGroup};
use crate::index::cache_state::{CacheState, CacheVerdict, OwnWrites, compare_versions};
use crate::k8s::KubeError;

/// Whether a reconcile may start.
pub(super) enum Precondition<'a> {
    /// The reconcile may start with this group.
    Met(&'a InstanceGroup),
    /// The reconcile ends here; the action has the time of the next attempt.
    NotMet(Action),
    /// The cached object does not catch up with this controller's writes.
    CacheDoubtful,
    /// The stored object does not match its schema.
    InvalidObject,
}

/// The early exits of a reconcile. None of them reads from AWS or writes anything.
pub(super) fn check_preconditions<'a>(
    stored: &'a GroupObject,
    key: &str,
    ctx: &Context,
    now: Timestamp,
) -> Precondition<'a> {
    let process_state = &ctx.planner.process_state;
    if !ctx.request_write() {
        return Precondition::NotMet(Action::await_change());
    }
    match process_state.own_writes(key, |own| own.cache_state(stored.resource_version().as_deref(), now)) {
        CacheState::Current => {}
        CacheState::Behind(elapsed) => {
            let delay = elapsed.clamp(Duration::from_millis(50), Duration::from_secs(1));
            return Precondition::NotMet(Action::requeue(delay));
        }
        CacheState::Doubtful => return Precondition::CacheDoubtful,
    }
    if process_state.is_finalized(key, stored.uid().as_deref()) {
        return Precondition::NotMet(Action::await_change());
    }
    match &stored.0 {
        // The decoding error is not used, because it may quote values.
        Err(_) => Precondition::InvalidObject,
        Ok(group) if ctx.stores.has_namespace(group) => Precondition::Met(group),
        Ok(_) => Precondition::NotMet(Action::requeue(CACHE_LAG_DELAY)),
    }
}

/// Compares a cached object that does not catch up with the object in the API server. If its resourceVersions went
/// back, the process restarts and reads everything again, as Kubernetes recommends after a restore of etcd.
pub(super) async fn check_source(stored: &GroupObject, key: &str, ctx: &Context) -> Result<Action, Error> {
    Ok(match read_source(stored, key, &ctx.planner).await.map_err(Error::Status)? {
        CacheVerdict::Current => Action::requeue(Duration::ZERO),
        CacheVerdict::Behind => Action::requeue(CACHE_BEHIND_DELAY),
        CacheVerdict::WentBack => {
            ctx.restart.notify_one();
            Action::requeue(CACHE_BEHIND_DELAY)
        }
    })
}

/// Compares a cached object with the object itself. If they are equal, the cache counts as current from now on.
async fn read_source(stored: &GroupObject, key: &str, planner: &Planner) -> Result<CacheVerdict, KubeError> {
    let (namespace, name) = (stored.namespace().unwrap_or_default(), stored.name_any());
    let actual = planner.kube.group_version(&namespace, &name).await?;
    let cached = stored.resource_version();
    let written = planner.process_state.own_writes(key, |own| own.last_version());
    let verdict = compare_versions(cached.as_deref(), written, actual.as_deref());
    match verdict {
        CacheVerdict::Current => planner.process_state.own_writes(key, OwnWrites::confirm),
        CacheVerdict::Behind => {}
        CacheVerdict::WentBack => {
            tracing::error!(group = %key, ?cached, ?written, ?actual, "resourceVersions of the API server went back");
        }
    }
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::controller::fake;
    use crate::index::nodes::NodeIndex;

    fn stored(resource_version: &str) -> GroupObject {
        let metadata = json!({"name": "web", "namespace": "team", "resourceVersion": resource_version});
        let kind = json!({"apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup"});
        let mut object = json!({"spec": {}, "metadata": metadata});
        object.as_object_mut().expect("an object").extend(kind.as_object().expect("an object").clone());
        serde_json::from_value(object).expect("a group")
    }

    /// A restore of etcd sets resourceVersions back, and the watch may be silent. The group must neither wait forever
    /// for its own write nor reconcile in a loop without reading anything.
    #[tokio::test]
    async fn group_reconciles_again_after_etcd_was_restored() {
        let client = crate::k8s::fake::client(|_| {
            let metadata = json!({"name": "web", "namespace": "team", "resourceVersion": "500"});
            (200, json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata}))
        });
        let planner = || fake::planner(&Arc::new(FakeAws::default()), client.clone(), NodeIndex::default());
        let (written_at, key) = (Timestamp::UNIX_EPOCH, "team/web");
        let state = |planner: &Planner, version: &str, seconds: i64| {
            let now = Timestamp::from_second(seconds).expect("a time");
            planner.process_state.own_writes(key, |own| own.cache_state(Some(version), now))
        };
        // The watch still shows what was there before the last write.
        let before = planner();
        before.process_state.own_writes(key, |own| own.record("1000", written_at));
        assert_eq!(state(&before, "990", 9), CacheState::Behind(Duration::from_secs(9)));
        assert_eq!(state(&before, "990", 10), CacheState::Doubtful);
        let verdict = read_source(&stored("990"), key, &before).await.expect("an answer");
        assert_eq!(verdict, CacheVerdict::WentBack, "the process restarts");
        // The new process reads everything again, and reconciles at once, also after its next write.
        let restarted = planner();
        assert_eq!(state(&restarted, "500", 11), CacheState::Current);
        restarted.process_state.own_writes(key, |own| own.record("501", written_at));
        assert_eq!(state(&restarted, "501", 12), CacheState::Current);
        // The watch was opened again by itself: the process that wrote 1000 continues without a restart.
        assert_eq!(state(&before, "500", 10), CacheState::Doubtful);
        let verdict = read_source(&stored("500"), key, &before).await.expect("an answer");
        assert_eq!(verdict, CacheVerdict::Current);
        assert_eq!(state(&before, "500", 10), CacheState::Current);
    }
}
