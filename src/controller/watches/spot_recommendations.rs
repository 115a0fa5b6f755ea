//! The watch of recommendations about spot instances, which others write as events.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt, reflector::ObjectRef};
use kube::{Api, Client, Resource, ResourceExt};

use super::{config, next};
use crate::api::names::event;
use crate::controller::Stored;
use crate::controller::trigger::Bell;
use crate::index::spot;
use crate::index::spot::Recommendations;
use crate::k8s::Regarding;
use crate::plan::Told;

/// Which events are recommendations: the API server shows no others.
pub fn selector() -> String {
    format!("reason={}", event::SPOT_RECOMMENDATION_GIVEN)
}

/// Events about scaling groups, in whichever namespace. One that is older than `limit` wakes nobody.
pub async fn recommendations(client: Client, bell: Bell, limit: Duration) {
    let api: Api<Event> = Api::all(client);
    let mut stream = std::pin::pin!(watcher(api, config().fields(&selector())).default_backoff());
    let mut listed = HashSet::new();
    let all = bell.shared().stores.recommendations.clone();
    while let Some(seen) = next(&mut stream, "events").await {
        match seen {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(event) => {
                listed.insert(event.uid().unwrap_or_default());
                heard(&event, &all, &bell, limit).await;
            }
            watcher::Event::InitDone => all.retain(&std::mem::take(&mut listed)),
            watcher::Event::Apply(event) => heard(&event, &all, &bell, limit).await,
            watcher::Event::Delete(event) => all.forget(name(&event), &event.uid().unwrap_or_default()),
        }
    }
}

/// Takes one event in; answers whether it is heard, or what is wrong with it.
pub fn take(event: &Event, all: &Recommendations, now: Timestamp) -> Result<bool, &'static str> {
    let recommendation = spot::read(event.message.as_deref().unwrap_or_default(), given(event), now)?;
    Ok(all.hear(name(event), &event.uid().unwrap_or_default(), recommendation))
}

fn name(event: &Event) -> &str {
    event.involved_object.name.as_deref().unwrap_or_default()
}

/// When it was given last, by whichever of the two kinds of events it was written.
fn given(event: &Event) -> Timestamp {
    let series = event.series.as_ref().and_then(|s| s.last_observed_time.as_ref());
    let micro = series.or(event.event_time.as_ref()).map(|t| t.0);
    let made = event.meta().creation_timestamp.as_ref().map(|t| t.0);
    event.last_timestamp.as_ref().map(|t| t.0).or(micro).or(made).unwrap_or(Timestamp::UNIX_EPOCH)
}

async fn heard(event: &Event, all: &Recommendations, bell: &Bell, limit: Duration) {
    let now = Timestamp::now();
    let age = now.duration_since(given(event)).as_secs();
    let young = u64::try_from(age).unwrap_or(0) <= limit.as_secs();
    let taken = take(event, all, now);
    let groups = bell.shared().stores.index.with_scaling_group(name(event));
    match taken {
        Ok(true) if young => bell.keys(groups),
        Ok(_) => {}
        Err(why) if young && bell.shared().leads() => {
            for key in groups {
                malformed(&key, why, bell).await;
            }
        }
        Err(_) => {}
    }
}

async fn malformed(key: &str, why: &str, bell: &Bell) {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let Some(stored) = bell.shared().stores.groups.get(&ObjectRef::<Stored>::new(name).within(namespace)) else {
        return;
    };
    let about = Regarding {
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
    let told = Told { warning: true, reason: "SpotRecommendationIgnored".into(), message };
    crate::controller::tell(&about, &told, bell.shared()).await;
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
        crate::api::merge_patch(&mut whole, more);
        serde_json::from_value(whole).expect("an event")
    }

    fn now() -> Timestamp {
        "2026-01-03T00:00:00Z".parse().expect("a time")
    }

    #[test]
    fn an_event_from_the_future_is_not_heard_and_a_present_one_after_it_is() {
        let all = Recommendations::default();
        assert!(take(&event(&json!({ "lastTimestamp": "2099-01-01T00:00:00Z" })), &all, now()).is_err());
        let message = r#"{"apiVersion":"v1alpha1","useSpot":false}"#;
        let present =
            json!({ "metadata": { "uid": "v" }, "message": message, "lastTimestamp": "2026-01-03T00:00:00Z" });
        assert_eq!(take(&event(&present), &all, now()), Ok(true));
        assert_eq!(all.newest("asg").map(|r| r.use_spot), Some(false));
    }

    #[test]
    fn an_event_of_either_kind_is_as_old_as_its_last_occurrence() {
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
            assert_eq!(take(&event(&more), &all, now()), Ok(true), "{more}");
            let given = all.newest("asg").expect("heard").given;
            assert_eq!(given, time.parse().expect("a time"), "{more}");
        }
    }

    #[test]
    fn what_is_no_recommendation_does_not_replace_one() {
        let all = Recommendations::default();
        assert_eq!(take(&event(&json!({})), &all, now()), Ok(true));
        let later = json!({ "message": "nonsense", "lastTimestamp": "2026-01-02T00:00:00Z" });
        assert!(take(&event(&later), &all, now()).is_err());
        assert_eq!(all.newest("asg").map(|r| r.price), Some("0.1".into()));
    }
}
