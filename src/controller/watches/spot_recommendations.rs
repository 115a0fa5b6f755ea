//! Watches spot recommendations, which other tools publish as Kubernetes events on a scaling group.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt, reflector::ObjectRef};
use kube::{Api, Client, Resource, ResourceExt};

use super::{next_event, watch_config};
use crate::api::GroupObject;
use crate::controller::context::{event_target, publish_event};
use crate::controller::trigger::Trigger;
use crate::index::spot;
use crate::index::spot::Recommendations;
use crate::plan::{Event as PlanEvent, EventReason};

/// The reason of the events that recommend Spot Instances, or no longer do.
const RECOMMENDATION: &str = "SpotRecommendationGiven";

/// The field selector that limits the watch to recommendations.
pub(crate) fn field_selector() -> String {
    format!("reason={}", RECOMMENDATION)
}

/// Watches recommendations in all namespaces and never returns. An event older than `max_age` is stored but does not enqueue a group.
pub(crate) async fn watch(client: Client, trigger: Trigger, max_age: Duration) {
    let api: Api<Event> = Api::all(client);
    let mut stream = std::pin::pin!(watcher(api, watch_config().fields(&field_selector())).default_backoff());
    let mut listed = HashSet::new();
    let recommendations = trigger.context().stores.recommendations.clone();
    while let Some(change) = next_event(&mut stream, "events").await {
        match change {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(event) => {
                listed.insert(event.uid().unwrap_or_default());
                handle_event(&event, &recommendations, &trigger, max_age).await;
            }
            watcher::Event::InitDone => recommendations.retain(&std::mem::take(&mut listed)),
            watcher::Event::Apply(event) => handle_event(&event, &recommendations, &trigger, max_age).await,
            watcher::Event::Delete(event) => {
                recommendations.remove(scaling_group_name(&event), &event.uid().unwrap_or_default())
            }
        }
    }
}

/// Stores the recommendation of an event. Returns whether it is the newest one of its namespace for its scaling group.
///
/// # Errors
///
/// What is wrong with the event, without quoting it.
pub(crate) fn ingest(event: &Event, recommendations: &Recommendations, now: Timestamp) -> Result<bool, &'static str> {
    let recommendation = spot::parse(event.message.as_deref().unwrap_or_default(), last_occurrence(event), now)?;
    let (namespace, uid) = (event.namespace().unwrap_or_default(), event.uid().unwrap_or_default());
    Ok(recommendations.insert_if_newer(scaling_group_name(event), &namespace, &uid, recommendation))
}

fn scaling_group_name(event: &Event) -> &str {
    event.involved_object.name.as_deref().unwrap_or_default()
}

/// When the event last occurred, in either of the two event APIs.
fn last_occurrence(event: &Event) -> Timestamp {
    let series = event.series.as_ref().and_then(|s| s.last_observed_time.as_ref());
    let event_time = series.or(event.event_time.as_ref()).map(|t| t.0);
    let created = event.meta().creation_timestamp.as_ref().map(|t| t.0);
    event.last_timestamp.as_ref().map(|t| t.0).or(event_time).or(created).unwrap_or(Timestamp::UNIX_EPOCH)
}

async fn handle_event(event: &Event, recommendations: &Recommendations, trigger: &Trigger, max_age: Duration) {
    let now = Timestamp::now();
    let age = now.duration_since(last_occurrence(event)).as_secs();
    let is_recent = u64::try_from(age).unwrap_or(0) <= max_age.as_secs();
    let ingested = ingest(event, recommendations, now);
    let groups = trigger.context().stores.group_index.with_scaling_group(scaling_group_name(event));
    match ingested {
        Ok(true) if is_recent => trigger.enqueue_keys(groups),
        Ok(_) => {}
        Err(why) if is_recent && trigger.context().is_leader() => {
            for key in groups {
                report_ignored_event(&key, why, trigger).await;
            }
        }
        Err(_) => {}
    }
}

async fn report_ignored_event(key: &str, why: &str, trigger: &Trigger) {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let Some(stored) = trigger.context().stores.groups.get(&ObjectRef::<GroupObject>::new(name).within(namespace))
    else {
        return;
    };
    let message = format!(
        "ignored an event {} for the group's scaling group: {why}; the previous recommendation stays active",
        RECOMMENDATION
    );
    let event = PlanEvent::warning(EventReason::SpotRecommendationIgnored, message);
    publish_event(&event_target(stored.meta()), &event, trigger.context()).await;
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(patch: &Value) -> Event {
        let mut object = json!({
            "metadata": { "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "involvedObject": { "name": "asg" },
            "message": r#"{"apiVersion":"v1alpha1","spotPrice":"0.1","useSpot":true}"#,
        });
        crate::api::apply_merge_patch(&mut object, patch);
        serde_json::from_value(object).expect("an event")
    }

    fn now() -> Timestamp {
        "2026-01-03T00:00:00Z".parse().expect("a time")
    }

    #[test]
    fn future_event_is_rejected_and_current_event_is_accepted() {
        let all = Recommendations::default();
        assert!(ingest(&event(&json!({ "lastTimestamp": "2099-01-01T00:00:00Z" })), &all, now()).is_err());
        let message = r#"{"apiVersion":"v1alpha1","useSpot":false}"#;
        let present =
            json!({ "metadata": { "uid": "v" }, "message": message, "lastTimestamp": "2026-01-03T00:00:00Z" });
        assert_eq!(ingest(&event(&present), &all, now()), Ok(true));
        assert_eq!(all.get("asg", |_| true).map(|r| r.recommendation.use_spot), Some(false));
    }

    #[test]
    fn event_age_is_its_last_occurrence_in_both_event_apis() {
        for (patch, time) in [
            (json!({}), "2026-01-01T00:00:00Z"),
            (json!({ "lastTimestamp": "2026-01-01T02:00:00Z" }), "2026-01-01T02:00:00Z"),
            (json!({ "eventTime": "2026-01-01T03:00:00.000000Z", "lastTimestamp": null }), "2026-01-01T03:00:00Z"),
            (
                json!({ "eventTime": "2026-01-01T03:00:00.000000Z", "series": { "count": 2, "lastObservedTime": "2026-01-01T04:00:00.000000Z" } }),
                "2026-01-01T04:00:00Z",
            ),
        ] {
            let all = Recommendations::default();
            assert_eq!(ingest(&event(&patch), &all, now()), Ok(true), "{patch}");
            let given = all.get("asg", |_| true).expect("a recommendation").recommendation.given_at;
            assert_eq!(given, time.parse().expect("a time"), "{patch}");
        }
    }

    #[test]
    fn invalid_event_does_not_replace_a_recommendation() {
        let all = Recommendations::default();
        assert_eq!(ingest(&event(&json!({})), &all, now()), Ok(true));
        let later = json!({ "message": "nonsense", "lastTimestamp": "2026-01-02T00:00:00Z" });
        assert!(ingest(&event(&later), &all, now()).is_err());
        assert_eq!(all.get("asg", |_| true).map(|r| r.recommendation.price), Some("0.1".into()));
    }
}
