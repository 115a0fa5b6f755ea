//! Who gave the orders of a revision. The API server records the writer of each field in `metadata.managedFields`: the
//! commands write as a field manager that holds the user's name.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{Api, Client, ResourceExt, api::PostParams};

use crate::api::{BoundariesRevision, rfc3339};
use crate::k8s::{FIELD_MANAGER, call};

/// Field manager of the orders; the user's name follows after a colon.
const MANAGER: &str = "instance-manager-rollout";
/// How long the API server lets the name of a field manager be, in bytes.
const MAX_MANAGER: usize = 128;

/// The field manager that an order of this caller is written as. Without an answer about who that is, it names no user.
pub(super) async fn field_manager(client: &Client) -> String {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = SelfSubjectReview::default();
    let answer = call("create", "selfsubjectreviews", api.create(&PostParams::default(), &review)).await;
    let user = answer.ok().and_then(|review| review.status?.user_info?.username);
    user.map_or_else(|| MANAGER.to_owned(), |user| named(&user))
}

/// The end of a long name stays: in AWS it is the session's name.
fn named(user: &str) -> String {
    let printable: String = user.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect();
    let room = MAX_MANAGER - MANAGER.len() - 1;
    format!("{MANAGER}:{}", &printable[printable.len().saturating_sub(room)..])
}

/// Who wrote the orders last, and when: "jane at 2026-08-21T08:00:00Z". `None` if only the controller wrote them.
pub(super) fn last_order(revision: &BoundariesRevision) -> Option<String> {
    let gave_orders = |fields: &serde_json::Value| fields.pointer("/f:spec/f:orders").is_some();
    let entries = revision.managed_fields().iter().filter(|entry| entry.subresource.is_none());
    let entries = entries.filter(|entry| entry.manager.as_deref() != Some(FIELD_MANAGER));
    let entries = entries.filter(|entry| entry.fields_v1.as_ref().is_some_and(|fields| gave_orders(&fields.0)));
    let last = entries.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    let manager = last.manager.as_deref().unwrap_or("an unknown client");
    let user = manager.strip_prefix(MANAGER).and_then(|rest| rest.strip_prefix(':')).unwrap_or(manager);
    let at = last.time.as_ref().map(|time| rfc3339(time.0));
    Some(at.map_or_else(|| user.to_owned(), |at| format!("{user} at {at}")))
}

/// The orders as text: "paused, approved canary"; empty without any.
pub(super) fn words(revision: &BoundariesRevision) -> String {
    let orders = &revision.spec.orders;
    let list = |what: &str, names: &[String]| (!names.is_empty()).then(|| format!("{what} {}", names.join(" ")));
    let all = [
        orders.paused.then(|| "paused".to_owned()),
        orders.aborted.then(|| "aborted".to_owned()),
        orders.urgent.then(|| "urgent".to_owned()),
        list("approved", &orders.approved),
        list("skipped", &orders.skipped),
        list("without", &orders.without),
        (orders.retries > 0).then(|| format!("resumed {}x", orders.retries)),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn revision(managed_fields: serde_json::Value) -> BoundariesRevision {
        let object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "BoundariesRevision",
            "metadata": {"name": "r2", "managedFields": managed_fields},
            "spec": {"number": 2, "hash": "x", "data": {}, "from": {},
                "orders": {"paused": true, "approved": ["canary", "early"], "retries": 1}},
        });
        serde_json::from_value(object).expect("a revision")
    }

    /// At night, the next question about a paused rollout is whom to call.
    #[test]
    fn last_writer_of_the_orders_is_named() {
        let entry = |manager: &str, time: &str, fields: serde_json::Value| json!({"manager": manager, "time": time, "operation": "Update", "fieldsV1": fields});
        let orders = json!({"f:spec": {"f:orders": {"f:paused": {}}}});
        let mut status = entry(FIELD_MANAGER, "2026-08-21T12:00:00Z", orders.clone());
        status["subresource"] = json!("status");
        let found = revision(json!([
            entry(FIELD_MANAGER, "2026-08-21T13:00:00Z", json!({"f:spec": {"f:orders": {}}})),
            entry("kubectl-edit", "2026-08-21T08:00:00Z", orders.clone()),
            entry("instance-manager-rollout:jane", "2026-08-21T09:00:00Z", orders),
            entry("kubectl-label", "2026-08-21T11:00:00Z", json!({"f:metadata": {"f:labels": {}}})),
            status,
        ]));
        assert_eq!(last_order(&found).as_deref(), Some("jane at 2026-08-21T09:00:00Z"));
        assert_eq!(last_order(&revision(json!([]))), None);
        assert_eq!(words(&found), "paused, approved canary early, resumed 1x");
    }

    #[test]
    fn field_manager_is_one_that_the_api_server_accepts() {
        assert_eq!(named("jane@corp"), "instance-manager-rollout:jane@corp");
        let long = named(&format!("arn:aws:sts::111122223333:assumed-role/{}/jané", "r".repeat(200)));
        assert!(long.len() == MAX_MANAGER && long.ends_with("rr/jan_"), "{long}");
        assert_eq!(named("a b\n"), "instance-manager-rollout:a_b_");
    }
}
