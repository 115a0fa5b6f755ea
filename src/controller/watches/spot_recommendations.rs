//! The watch of recommendations about spot instances, which others write as events.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt, reflector::ObjectRef};
use kube::{Api, Client, Resource, ResourceExt};

use super::{next_event, watch_config};
use crate::api::names::event;
use crate::controller::GroupObject;
use crate::controller::trigger::Trigger;
use crate::index::spot;
use crate::index::spot::Recommendations;
use crate::k8s::EventTarget;
use crate::plan::Event as PlanEvent;

/// Which events are recommendations: the API server shows no others.
pub fn field_selector() -> String {
    format!("reason={}", event::SPOT_RECOMMENDATION_GIVEN)
}

/// Events about scaling groups, in whichever namespace. One that is older than `limit` wakes nobody.
pub async fn watch(client: Client, bell: Trigger, limit: Duration) {
    let api: Api<Event> = Api::all(client);
    let mut stream = std::pin::pin!(watcher(api, watch_config().fields(&field_selector())).default_backoff());
    let mut listed = HashSet::new();
    let all = bell.context().stores.recommendations.clone();
    while let Some(seen) = next_event(&mut stream, "events").await {
        match seen {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(event) => {
                listed.insert(event.uid().unwrap_or_default());
                handle_event(&event, &all, &bell, limit).await;
            }
            watcher::Event::InitDone => all.retain(&std::mem::take(&mut listed)),
            watcher::Event::Apply(event) => handle_event(&event, &all, &bell, limit).await,
            watcher::Event::Delete(event) => all.remove(scaling_group_name(&event), &event.uid().unwrap_or_default()),
        }
    }
}

/// Takes one event in; answers whether it is heard, or what is wrong with it.
pub fn ingest(event: &Event, all: &Recommendations, now: Timestamp) -> Result<bool, &'static str> {
    let recommendation = spot::parse(event.message.as_deref().unwrap_or_default(), last_occurrence(event), now)?;
    Ok(all.insert_if_newer(scaling_group_name(event), &event.uid().unwrap_or_default(), recommendation))
}

fn scaling_group_name(event: &Event) -> &str {
    event.involved_object.name.as_deref().unwrap_or_default()
}

/// When it was given last, by whichever of the two kinds of events it was written.
fn last_occurrence(event: &Event) -> Timestamp {
    let series = event.series.as_ref().and_then(|s| s.last_observed_time.as_ref());
    let micro = series.or(event.event_time.as_ref()).map(|t| t.0);
    let made = event.meta().creation_timestamp.as_ref().map(|t| t.0);
    event.last_timestamp.as_ref().map(|t| t.0).or(micro).or(made).unwrap_or(Timestamp::UNIX_EPOCH)
}

async fn handle_event(event: &Event, all: &Recommendations, bell: &Trigger, limit: Duration) {
    let now = Timestamp::now();
    let age = now.duration_since(last_occurrence(event)).as_secs();
    let young = u64::try_from(age).unwrap_or(0) <= limit.as_secs();
    let taken = ingest(event, all, now);
    let groups = bell.context().stores.group_index.with_scaling_group(scaling_group_name(event));
    match taken {
        Ok(true) if young => bell.enqueue_keys(groups),
        Ok(_) => {}
        Err(why) if young && bell.context().is_leader() => {
            for key in groups {
                report_ignored_event(&key, why, bell).await;
            }
        }
        Err(_) => {}
    }
}

async fn report_ignored_event(key: &str, why: &str, bell: &Trigger) {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let Some(stored) = bell.context().stores.groups.get(&ObjectRef::<GroupObject>::new(name).within(namespace)) else {
        return;
    };
    let about = EventTarget {
        api_version: "instancemgr.keikoproj.io/v1alpha1".into(),
        kind: "InstanceGroup".into(),
        namespace: Some(namespace.into()),
        name: name.into(),
        uid: stored.uid().unwrap_or_default(),
    };
    let message = format!(
        "an event {} about this group's scaling group is ignored: {why}; what was recommended before it stays",
        event::SPOT_RECOMMENDATION_GIVEN
    );
    let told = PlanEvent::warning("SpotRecommendationIgnored", message);
    crate::controller::publish_event(&about, &told, bell.context()).await;
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(more: &Value) -> Event {
        let mut whole = json!({
            "metadata": { "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "involvedObject": { "name": "asg" },
            "message": r#"{"apiVersion":"v1alpha1","spotPrice":"0.1","useSpot":true}"#,
        });
        crate::api::apply_merge_patch(&mut whole, more);
        serde_json::from_value(whole).expect("an event")
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
        assert_eq!(all.get("asg").map(|r| r.use_spot), Some(false));
    }

    #[test]
    fn event_age_is_its_last_occurrence_in_both_event_apis() {
        for (more, time) in [
            (json!({}), "2026-01-01T00:00:00Z"),
            (json!({ "lastTimestamp": "2026-01-01T02:00:00Z" }), "2026-01-01T02:00:00Z"),
            (json!({ "eventTime": "2026-01-01T03:00:00.000000Z", "lastTimestamp": null }), "2026-01-01T03:00:00Z"),
            (
                json!({ "eventTime": "2026-01-01T03:00:00.000000Z", "series": { "count": 2, "lastObservedTime": "2026-01-01T04:00:00.000000Z" } }),
                "2026-01-01T04:00:00Z",
            ),
        ] {
            let all = Recommendations::default();
            assert_eq!(ingest(&event(&more), &all, now()), Ok(true), "{more}");
            let given = all.get("asg").expect("heard").given_at;
            assert_eq!(given, time.parse().expect("a time"), "{more}");
        }
    }

    #[test]
    fn invalid_event_does_not_replace_a_recommendation() {
        let all = Recommendations::default();
        assert_eq!(ingest(&event(&json!({})), &all, now()), Ok(true));
        let later = json!({ "message": "nonsense", "lastTimestamp": "2026-01-02T00:00:00Z" });
        assert!(ingest(&event(&later), &all, now()).is_err());
        assert_eq!(all.get("asg").map(|r| r.price), Some("0.1".into()));
    }
}
