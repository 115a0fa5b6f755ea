//! What has no effect on a rollout, for an admin: orders about waves that it does not have, about groups that do not
//! exist, or for an older revision, and waves without groups.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::retention::sorted;
use super::stored_phase::is_aborted;
use super::summary::GroupSummary;
use super::view::{RolloutView, StoredRevision};
use crate::api::{BoundariesRevision, RolloutOrders};
use crate::util::text::shorten;

/// The longest list of groups in a sentence, in characters.
const MAX_LIST: usize = 300;

/// One sentence for each order about a wave that is not one of `waves`.
pub(crate) fn unknown_waves(orders: &RolloutOrders, waves: &[&str]) -> Vec<String> {
    let mut found = vec![];
    for (order, names) in [("approved", &orders.approved), ("skipped", &orders.skipped)] {
        let unknown = names.iter().filter(|name| *name != "*" && !waves.contains(&name.as_str()));
        found.extend(unknown.map(|name| {
            let known = waves.join(", ");
            format!("spec.orders.{order} names the wave {name}, which the rollout does not have; it has {known}")
        }));
    }
    found
}

/// A sentence about the groups that an order leaves out and that do not exist; `None` without one.
pub(crate) fn unknown_groups(orders: &RolloutOrders, exists: impl Fn(&str) -> bool) -> Option<String> {
    let unknown: Vec<&str> = orders.without.iter().map(String::as_str).filter(|key| !exists(key)).collect();
    (!unknown.is_empty()).then(|| {
        let list = shorten(&unknown.join(", "), MAX_LIST);
        format!("spec.orders.without leaves out groups that do not exist: {list}; write each as NAMESPACE/NAME")
    })
}

/// Whether the waves of all groups are known.
pub(crate) fn knows_all_groups(summary: &GroupSummary) -> bool {
    summary.unseen == 0 && !summary.has_undecodable
}

/// One sentence for each wave whose selectors match no group of the cluster. The last one takes all groups that are left.
pub(crate) fn empty_waves(view: &RolloutView, summary: &GroupSummary) -> Vec<String> {
    // Groups that are not known yet could be in it.
    if !knows_all_groups(summary) || !summary.matched.contains(&true) {
        return vec![];
    }
    let last = view.policy.waves.len() - 1;
    let waves = view.policy.waves.iter().zip(&summary.matched);
    let empty = waves.take(last).filter(|(_, is_matched)| !**is_matched);
    let describe = |name: &str| {
        format!(
            "rollout: the selectors of wave {name} match no group of this cluster; correct them, or remove the wave"
        )
    };
    empty.map(|(wave, _)| describe(&wave.name)).collect()
}

/// An older revision that was given orders after a newer one had come.
#[derive(Debug)]
pub(crate) struct LateOrders {
    /// Name of the older revision.
    pub name: String,
    /// UID of its object.
    pub uid: String,
    /// What to tell about them.
    pub message: String,
}

/// How long ago an order may be to be reported: a new leader would report old ones again.
const MAX_ORDER_AGE: SignedDuration = SignedDuration::from_hours(1);

/// The orders that have no effect because they are of an older revision than the target, and were given when a newer one was
/// stored already. Those that were given before had their effect.
pub(crate) fn late_orders(stored: &[BoundariesRevision], target: &StoredRevision, now: Timestamp) -> Vec<LateOrders> {
    let sorted = sorted(stored);
    let created = |revision: &BoundariesRevision| revision.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let late_of = |(index, revision): (usize, &&BoundariesRevision)| {
        let superseded = sorted[index + 1..].iter().filter_map(|newer| created(newer)).min()?;
        let fields = ignored_fields(revision, &fields_written(revision, superseded, now));
        let (name, newest) = (revision.metadata.name.clone()?, &target.name);
        (!fields.is_empty()).then(|| LateOrders {
            message: format!(
                "{name}: what was written to {} has no effect, because {name} is not the newest revision; the controller follows the orders of {newest}: give them with instance-manager rollout, or patch {newest}",
                fields.join(" and ")
            ),
            uid: revision.metadata.uid.clone().unwrap_or_default(),
            name,
        })
    };
    let is_older = |(_, revision): &(usize, &&BoundariesRevision)| revision.spec.number < target.number;
    sorted.iter().enumerate().filter(is_older).filter_map(late_of).collect()
}

/// The fields of the orders, such as `f:approved`, that were written after a time, and not long ago. The API server records
/// who wrote which field, and when the writer last did.
fn fields_written(revision: &BoundariesRevision, after: Timestamp, now: Timestamp) -> BTreeSet<String> {
    let entries = revision.metadata.managed_fields.iter().flatten().filter(|entry| entry.subresource.is_none());
    let is_late = |at: Timestamp| after < at && now.duration_since(at) < MAX_ORDER_AGE;
    let entries = entries.filter(|entry| entry.time.as_ref().is_some_and(|time| is_late(time.0)));
    let orders = entries.filter_map(|entry| entry.fields_v1.as_ref()?.0.pointer("/f:spec/f:orders")?.as_object());
    // A client has one time for all that it wrote. Of one that paused or resumed, which still has an effect, it is not known
    // when it wrote the rest.
    let paused = "f:paused";
    let clear = |fields: &serde_json::Map<String, serde_json::Value>| match fields.contains_key(paused) {
        true => vec![paused.to_owned()],
        false => fields.keys().cloned().collect(),
    };
    orders.flat_map(clear).collect()
}

/// Those of the written orders that have no effect on an older revision. A pause counts for the groups that have it, and so
/// does an abort of one from which groups can return.
fn ignored_fields(revision: &BoundariesRevision, written: &BTreeSet<String>) -> Vec<String> {
    let orders = &revision.spec.orders;
    let is_resumed = written.contains("f:paused");
    let fields = [
        ("aborted", orders.aborted && !is_aborted(revision)),
        ("urgent", orders.urgent),
        ("approved", !orders.approved.is_empty()),
        ("skipped", !orders.skipped.is_empty()),
        ("without", !orders.without.is_empty()),
        // The command that ends a pause raises it as well.
        ("retries", orders.retries > 0 && !is_resumed),
    ];
    let ignored = fields.into_iter().filter(|(field, is_set)| *is_set && written.contains(&format!("f:{field}")));
    ignored.map(|(field, _)| format!("spec.orders.{field}")).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::boundaries::active::select_active;

    /// A user who approves by `kubectl patch` would wait for a wave that never opens.
    #[test]
    fn orders_about_unknown_waves_are_named() {
        let orders = |approved: &[&str], skipped: &[&str]| RolloutOrders {
            approved: approved.iter().map(|name| (*name).to_owned()).collect(),
            skipped: skipped.iter().map(|name| (*name).to_owned()).collect(),
            ..RolloutOrders::default()
        };
        let waves = ["canary", "rest"];
        assert_eq!(unknown_waves(&orders(&["rest", "*"], &["canary", "*"]), &waves), [""; 0]);
        let found = unknown_waves(&orders(&["general", "rest"], &["canry"]), &waves);
        let [approved, skipped] = found.try_into().expect("two sentences");
        assert!(approved.contains("orders.approved names the wave general") && approved.ends_with("canary, rest"));
        assert!(skipped.contains("orders.skipped names the wave canry"), "{skipped}");
    }

    /// The misspelled group would have its nodes replaced, although a user left it out.
    #[test]
    fn orders_about_unknown_groups_are_named() {
        let without = |keys: &[&str]| {
            let without = keys.iter().map(|key| (*key).to_owned()).collect();
            unknown_groups(&RolloutOrders { without, ..RolloutOrders::default() }, |key| key == "team/web")
        };
        assert_eq!((without(&[]), without(&["team/web"])), (None, None));
        let found = without(&["team/web", "web", "team/wbe"]).expect("a sentence");
        assert!(found.contains("orders.without leaves out groups that do not exist: web, team/wbe; write"), "{found}");
    }

    /// A revision r1 or r2 with a history of the writes to its orders: who wrote which fields at what time.
    fn stored(number: i64, phase: &str, orders: Value, writes: &[(&str, &str, &str)]) -> BoundariesRevision {
        let entry = |(manager, time, field): &(&str, &str, &str)| {
            let written: serde_json::Map<_, _> = field.split(' ').map(|field| (field.to_owned(), json!({}))).collect();
            let fields = json!({"f:spec": {"f:orders": written}});
            json!({"manager": manager, "time": time, "operation": "Update", "fieldsV1": fields})
        };
        let created = format!("2026-08-2{number}T08:00:00Z");
        let mut status = entry(&("instance-manager", "2026-08-22T10:00:00Z", "f:approved"));
        status["subresource"] = json!("status");
        let entries: Vec<Value> = writes.iter().map(entry).chain([status]).collect();
        let object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "BoundariesRevision",
            "metadata": {
                "name": format!("r{number}"), "uid": format!("u{number}"), "creationTimestamp": created, "managedFields": entries,
            },
            "spec": {"number": number, "hash": "x", "data": {}, "from": {}, "orders": orders},
            "status": {"phase": phase, "stable": "r0"},
        });
        serde_json::from_value(object).expect("a revision")
    }

    /// A user who patches the revision of yesterday would wait for an effect. Orders that had theirs before the newer revision
    /// came are no mistake, and neither are those that count still.
    #[test]
    fn orders_for_a_revision_that_is_no_longer_the_newest_are_named() {
        let data = BTreeMap::from([("rollout".to_owned(), "waves: [{name: all}]".to_owned())]);
        let active = Arc::new(select_active(Some(&data), None, true).0);
        let mut target = RolloutView::of_content(&[], None, &data, &active, None).expect("a rollout").target;
        (target.name, target.number) = ("r2".into(), 2);
        let (early, late, now) = ("2026-08-22T07:00:00Z", "2026-08-22T10:00:00Z", "2026-08-22T10:30:00Z");
        let found = |phase: &str, orders: Value, writes: &[(&str, &str, &str)], now: &str| {
            let newest = stored(2, "Rolling", json!({"approved": ["all"]}), &[("kubectl", now, "f:approved")]);
            let all = [stored(1, phase, orders, writes), newest];
            late_orders(&all, &target, now.parse().expect("a time"))
        };
        let approved = || json!({"approved": ["rest"], "paused": true, "skipped": ["early"]});
        let by_jane = [("jane", late, "f:approved"), ("joe", late, "f:paused"), ("kubectl", early, "f:skipped")];
        let [one] = found("Superseded", approved(), &by_jane, now).try_into().expect("one revision");
        assert_eq!((one.name.as_str(), one.uid.as_str()), ("r1", "u1"));
        let words = "r1: what was written to spec.orders.approved has no effect, because r1 is not the newest revision; the controller follows the orders of r2";
        assert!(one.message.starts_with(words), "{}", one.message);
        let count = |phase: &str, orders: Value, writes: &[(&str, &str, &str)], now: &str| {
            found(phase, orders, writes, now).len()
        };
        assert_eq!(count("Superseded", approved(), &[("jane", early, "f:approved")], now), 0, "it had its effect");
        assert_eq!(count("Superseded", approved(), &by_jane, "2026-08-22T11:00:00Z"), 0, "told an hour ago");
        assert_eq!(count("Superseded", json!({}), &by_jane, now), 0, "the order was taken back");
        let aborts = [("jane", late, "f:aborted")];
        assert_eq!(count("Superseded", json!({"aborted": true}), &aborts, now), 1);
        assert_eq!(count("Complete", json!({"aborted": true}), &aborts, now), 0, "nothing returns to it any more");
        let resumed = [("jane", late, "f:paused"), ("jane", late, "f:retries")];
        assert_eq!(count("Superseded", json!({"retries": 1}), &resumed, now), 0, "it ends a pause");
        assert_eq!(count("Superseded", json!({"retries": 1}), &resumed[1..], now), 1);
        let both = [("jane", late, "f:approved f:paused")];
        assert_eq!(count("Superseded", approved(), &both, now), 0, "the approval may have been in time");
    }
}
