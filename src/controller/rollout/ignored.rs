//! Reports to an admin what has no effect on the rollout: orders about waves that it does not have, about groups
//! that do not exist, or for an older revision, and waves without groups.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;

use crate::api::BoundariesRevision;
use crate::controller::context::{Context, publish_event};
use crate::k8s::EventTarget;
use crate::plan::{Event, EventReason};
use crate::rollout::{
    GroupSummary, LateOrders, RolloutView, empty_waves, knows_all_groups, late_orders, unknown_groups, unknown_waves,
};

/// Publishes what has no effect on the ConfigMap, and what concerns orders on the revision as well. `reported` has what
/// was published before.
pub(super) async fn publish(
    ctx: &Context,
    view: &RolloutView,
    summary: &GroupSummary,
    target: &EventTarget,
    reported: &mut BTreeSet<String>,
) {
    let (of_waves, of_orders) = (empty_waves(view, summary), ignored_orders(ctx, view));
    // While a group is unknown, so is whether a wave is still empty.
    let is_known = knows_all_groups(summary);
    reported.retain(|old| !is_known || of_waves.contains(old) || of_orders.contains(old));
    let all = of_waves.into_iter().map(|message| (message, false));
    for (message, is_order) in all.chain(of_orders.into_iter().map(|message| (message, true))) {
        if !reported.insert(message.clone()) {
            continue;
        }
        let event = Event::warning(EventReason::BoundariesWarning, message);
        publish_event(&ctx.boundaries_target().await, &event, ctx).await;
        if is_order {
            publish_event(target, &event, ctx).await;
        }
    }
}

/// Publishes the orders that came too late for an older revision, on that one and on the ConfigMap. `reported` has what was
/// published before.
pub(super) async fn publish_late_orders(
    ctx: &Context,
    view: &RolloutView,
    stored: &[BoundariesRevision],
    reported: &mut BTreeSet<String>,
    now: Timestamp,
) {
    let found = late_orders(stored, &view.target, now);
    reported.retain(|old| found.iter().any(|late| late.message == *old));
    for LateOrders { name, uid, message } in found {
        if !reported.insert(message.clone()) {
            continue;
        }
        let event = Event::warning(EventReason::BoundariesWarning, message);
        publish_event(&ctx.boundaries_target().await, &event, ctx).await;
        publish_event(&event_target(ctx, &name, &uid), &event, ctx).await;
    }
}

/// A stored revision as the target of an event.
pub(super) fn event_target(ctx: &Context, name: &str, uid: &str) -> EventTarget {
    EventTarget {
        api_version: "instancemgr.keikoproj.io/v1alpha1".into(),
        kind: "BoundariesRevision".into(),
        namespace: Some(ctx.config_namespace.clone()),
        name: name.to_owned(),
        uid: uid.to_owned(),
    }
}

/// Orders without effect on a rollout that is under way. When it is over, the waves may be renamed; of a policy that
/// cannot be read, they are unknown.
fn ignored_orders(ctx: &Context, view: &RolloutView) -> Vec<String> {
    if !view.phase().is_under_way() || view.policy_problem.is_some() {
        return vec![];
    }
    let waves: Vec<&str> = view.policy.waves.iter().map(|wave| wave.name.as_str()).collect();
    let exists = |key: &str| {
        let parts = key.split_once('/');
        parts.is_some_and(|(namespace, name)| ctx.stores.groups.get(&ObjectRef::new(name).within(namespace)).is_some())
    };
    let name = &view.target.name;
    let all = unknown_waves(&view.orders, &waves).into_iter().chain(unknown_groups(&view.orders, exists));
    all.map(|text| format!("{name}: {text}")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::super::tests::open_rollout;
    use super::*;
    use crate::api::rfc3339;
    use crate::controller::fake::TestContext;
    use crate::rollout::WaveSummary;

    /// A context, with the kinds and notes of its events.
    fn context() -> (TestContext, Arc<Mutex<Vec<String>>>) {
        let events = Arc::new(Mutex::new(vec![]));
        let log = events.clone();
        let test = crate::controller::fake::context(crate::k8s::fake::client(move |call| {
            let about = call.body["regarding"]["kind"].as_str().unwrap_or_default().to_owned();
            if call.path.contains("/events") {
                log.lock().unwrap().push(format!("{about} {}", call.body["note"]));
            }
            (201, call.body)
        }));
        (test, events)
    }

    /// A user who patches the orders with a misspelled name, or an admin whose selector matches nothing, would wait without
    /// a word. Each poll finds it again, and a full log of events hides the rest.
    #[tokio::test]
    async fn orders_and_waves_without_effect_are_published_once() {
        let (mut test, events) = context();
        let mut view = open_rollout("waves: [{name: canary, namespaces: 'tier = test'}, {name: rest}]");
        view.orders.approved = vec!["canry".into()];
        view.orders.without = vec!["team/web".into(), "team/wbe".into()];
        let web = crate::controller::fake::group_object("web", "u1");
        test.groups.as_mut().expect("a writer").apply_watcher_event(&kube::runtime::watcher::Event::Apply(web));
        let mut summary = GroupSummary { waves: vec![WaveSummary::default(); 2], ..GroupSummary::default() };
        summary.matched = vec![false, true];
        let target = EventTarget {
            api_version: "instancemgr.keikoproj.io/v1alpha1".into(),
            kind: "BoundariesRevision".into(),
            namespace: Some("im".into()),
            name: "r2".into(),
            uid: "u".into(),
        };
        let mut reported = BTreeSet::new();
        for _ in 0..3 {
            publish(&test.ctx, &view, &summary, &target, &mut reported).await;
        }
        let found = events.lock().unwrap().clone();
        let count = |kind: &str, words: &str| {
            found.iter().filter(|event| event.starts_with(kind) && event.contains(words)).count()
        };
        let order = "r2: spec.orders.approved names the wave canry";
        assert_eq!((count("ConfigMap", order), count("BoundariesRevision", order)), (1, 1), "{found:?}");
        assert_eq!(count("ConfigMap", "the selectors of wave canary match no group"), 1, "{found:?}");
        let order = "r2: spec.orders.without leaves out groups that do not exist: team/wbe;";
        assert_eq!((count("ConfigMap", order), count("BoundariesRevision", order)), (1, 1), "{found:?}");
        assert_eq!(found.len(), 5, "{found:?}");
        // The last wave takes what is left, and a Namespace that is not known could be a canary.
        summary.matched = vec![true, false];
        view.orders.approved.clear();
        view.orders.without.clear();
        publish(&test.ctx, &view, &summary, &target, &mut reported).await;
        (summary.matched, summary.unseen) = (vec![false, true], 1);
        publish(&test.ctx, &view, &summary, &target, &mut reported).await;
        assert_eq!(events.lock().unwrap().len(), 5);
        // A Namespace that is unknown for a moment makes no event be published again.
        for unseen in [0, 1, 0] {
            summary.unseen = unseen;
            publish(&test.ctx, &view, &summary, &target, &mut reported).await;
        }
        assert_eq!(events.lock().unwrap().len(), 6);
        view.orders.approved = vec!["canry".into()];
        view.policy_problem = Some("the policy cannot be read".into());
        assert_eq!(ignored_orders(&test.ctx, &view), [""; 0], "the waves are unknown");
    }

    /// A user who patched an older revision looks at that one, and an admin at the ConfigMap.
    #[tokio::test]
    async fn orders_for_an_older_revision_are_published_once() {
        let (test, events) = context();
        let view = open_rollout("waves: [{name: all}]");
        let now = Timestamp::now();
        let revision = |number: i64, orders: serde_json::Value| -> BoundariesRevision {
            let fields = json!({"f:spec": {"f:orders": {"f:approved": {}}}});
            let written =
                json!({"manager": "kubectl", "time": rfc3339(now), "operation": "Update", "fieldsV1": fields});
            let (name, created) = (format!("r{number}"), "2026-01-01T00:00:00Z");
            let metadata = json!({"name": name, "uid": "u", "creationTimestamp": created, "managedFields": [written]});
            let object = json!({
                "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "BoundariesRevision", "metadata": metadata,
                "spec": {"number": number, "hash": "x", "data": {}, "from": {}, "orders": orders},
                "status": {"phase": "Rolling"},
            });
            serde_json::from_value(object).expect("a revision")
        };
        let stored = [revision(1, json!({"approved": ["all"]})), revision(2, json!({"approved": ["all"]}))];
        let mut reported = BTreeSet::new();
        for _ in 0..3 {
            publish_late_orders(&test.ctx, &view, &stored, &mut reported, now).await;
        }
        let found = events.lock().unwrap().clone();
        let order = "r1: what was written to spec.orders.approved has no effect";
        let count = |kind: &str| found.iter().filter(|event| event.starts_with(kind) && event.contains(order)).count();
        assert_eq!((count("ConfigMap"), count("BoundariesRevision"), found.len()), (1, 1, 2), "{found:?}");
    }
}
