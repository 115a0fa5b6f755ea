//! Spot recommendations: Kubernetes events on a scaling group, published by a tool that watches spot prices.
//!
//! The API server deletes events after an hour, so the active recommendation is stored in the status of the group.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::api::SpotRecommendation;
use crate::util::recorded_time;

/// What an event recommends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recommendation {
    /// Whether to use spot instances; otherwise on-demand instances.
    pub use_spot: bool,
    /// Maximum price in dollars per hour; empty for on-demand instances.
    pub price: String,
    /// When the event last occurred.
    pub given_at: Timestamp,
}

/// How far the clock of the publisher may be ahead. An event further in the future would override all later events.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);
/// Maximum length of a message, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;
/// Maximum number of scaling groups in memory, because any client that may create events can use arbitrary names.
const MAX_SCALING_GROUPS: usize = 10_000;
/// Maximum number of namespaces with a recommendation for one scaling group.
const MAX_NAMESPACES: usize = 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpotMessage {
    api_version: String,
    #[serde(default)]
    spot_price: String,
    use_spot: bool,
}

/// Whether AWS accepts a text as a price in dollars per hour.
pub(crate) fn is_price(text: &str) -> bool {
    let digits = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    digits && text.len() <= 16 && text.parse::<f64>().is_ok_and(|price| price > 0.0)
}

/// Whether a time is further in the future than clock skew explains.
fn is_in_future(time: Timestamp, now: Timestamp) -> bool {
    recorded_time::is_ahead(time, MAX_CLOCK_SKEW, now)
}

/// Parses the message of an event.
///
/// # Errors
///
/// What is wrong with the event, without quoting it.
pub(crate) fn parse(message: &str, given_at: Timestamp, now: Timestamp) -> Result<Recommendation, &'static str> {
    if is_in_future(given_at, now) {
        return Err("it is dated more than 5 minutes in the future");
    }
    if message.len() > MAX_MESSAGE_BYTES {
        return Err("the message is longer than 1,024 bytes");
    }
    let decoded = serde_json::from_str::<SpotMessage>(message);
    let SpotMessage { api_version, spot_price, use_spot } =
        decoded.map_err(|_| "the message is not a JSON object with apiVersion, spotPrice and useSpot")?;
    if api_version != "v1alpha1" {
        return Err("apiVersion is not v1alpha1");
    }
    if use_spot && !is_price(&spot_price) {
        return Err("spotPrice is not a valid price in dollars per hour");
    }
    Ok(Recommendation { use_spot, price: if use_spot { spot_price } else { String::new() }, given_at })
}

/// The newest recommendation for each scaling group from each namespace, kept up to date by a watch.
#[derive(Default)]
pub(crate) struct Recommendations(Mutex<HashMap<String, Vec<StoredRecommendation>>>);

/// A recommendation with the event that gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRecommendation {
    /// Namespace of the event.
    pub namespace: String,
    /// UID of the event.
    pub uid: String,
    /// Spot or on-demand instances, with the price, as parsed from the event.
    pub recommendation: Recommendation,
}

impl Recommendations {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<String, Vec<StoredRecommendation>>) -> T) -> T {
        act(&mut self.0.lock().expect("lock is not poisoned"))
    }

    /// Stores the recommendation of an event if it is the newest for its scaling group in its namespace; returns whether
    /// it was stored.
    pub(crate) fn insert_if_newer(
        &self,
        scaling_group: &str,
        namespace: &str,
        uid: &str,
        recommendation: Recommendation,
    ) -> bool {
        self.with(|all| {
            let has_room = all.len() < MAX_SCALING_GROUPS || all.contains_key(scaling_group);
            let known = all.get(scaling_group).map_or(&[][..], Vec::as_slice);
            let from_namespace = known.iter().find(|stored| stored.namespace == namespace);
            match from_namespace {
                Some(old) if old.uid != uid && old.recommendation.given_at > recommendation.given_at => return false,
                None if !has_room || known.len() >= MAX_NAMESPACES => return false,
                Some(_) | None => {}
            }
            let stored = all.entry(scaling_group.into()).or_default();
            stored.retain(|stored| stored.namespace != namespace);
            stored.push(StoredRecommendation { namespace: namespace.into(), uid: uid.into(), recommendation });
            true
        })
    }

    /// Removes the recommendation of a deleted event.
    pub(crate) fn remove(&self, scaling_group: &str, uid: &str) {
        self.with(|all| {
            let Some(stored) = all.get_mut(scaling_group) else { return };
            stored.retain(|stored| stored.uid != uid);
            if stored.is_empty() {
                all.remove(scaling_group);
            }
        });
    }

    /// Removes recommendations whose events are not in a complete new list.
    pub(crate) fn retain(&self, listed: &HashSet<String>) {
        self.with(|all| {
            all.values_mut().for_each(|stored| stored.retain(|stored| listed.contains(&stored.uid)));
            all.retain(|_, stored| !stored.is_empty());
        });
    }

    /// The newest recommendation for a scaling group from the namespaces that are allowed to give one.
    pub(crate) fn get(&self, scaling_group: &str, is_allowed: impl Fn(&str) -> bool) -> Option<StoredRecommendation> {
        self.with(|all| {
            let allowed = all.get(scaling_group)?.iter().filter(|stored| is_allowed(&stored.namespace));
            allowed.max_by_key(|stored| stored.recommendation.given_at).cloned()
        })
    }
}

/// The active recommendation; `None` means that `spec_price` applies. The newer of the recorded recommendation and the
/// observed event wins. A recorded one stays active until the tenant changes the spot price in the spec, or until
/// `is_allowed` excludes the namespace of its event. One with a future time counts as older than any event.
///
/// An earlier release recorded no namespace. Such a record stays active, because nodes run with its price.
pub(crate) fn active_recommendation(
    spec_price: &str,
    recorded: Option<&SpotRecommendation>,
    observed: Option<&StoredRecommendation>,
    is_allowed: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Option<SpotRecommendation> {
    let given = |r: &SpotRecommendation| r.given.parse::<Timestamp>().ok().filter(|given| !is_in_future(*given, now));
    let recorded = recorded.filter(|r| r.namespace.as_deref().is_none_or(&is_allowed));
    let newer = observed.filter(|o| recorded.and_then(given).is_none_or(|given| o.recommendation.given_at > given));
    let still_active = recorded.filter(|r| r.over == spec_price && r.ended != Some(true));
    let Some(StoredRecommendation { namespace, recommendation, .. }) = newer else { return still_active.cloned() };
    let namespace = Some(namespace.clone());
    // A repeated event changes nothing, but the namespace that an earlier release did not record.
    let is_repeated =
        |r: &&SpotRecommendation| (r.use_spot, &r.spot_price) == (recommendation.use_spot, &recommendation.price);
    if let Some(same) = still_active.filter(is_repeated) {
        return Some(SpotRecommendation { namespace: same.namespace.clone().or(namespace), ..same.clone() });
    }
    Some(SpotRecommendation {
        use_spot: recommendation.use_spot,
        spot_price: recommendation.price.clone(),
        given: recommendation.given_at.to_string(),
        namespace,
        over: spec_price.into(),
        ended: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn use_spot(price: &str, given: i64) -> Recommendation {
        Recommendation { use_spot: true, price: price.into(), given_at: at(given) }
    }

    fn recorded(price: &str, given: i64, over: &str) -> SpotRecommendation {
        SpotRecommendation {
            use_spot: !price.is_empty(),
            spot_price: price.into(),
            given: at(given).to_string(),
            namespace: Some("ops".into()),
            over: over.into(),
            ended: None,
        }
    }

    /// A recommendation from an event in the namespace `ops`.
    fn stored(recommendation: Recommendation) -> StoredRecommendation {
        StoredRecommendation { namespace: "ops".into(), uid: "u".into(), recommendation }
    }

    #[test]
    fn invalid_message_is_described_without_quoting_it() {
        let good = r#"{"apiVersion":"v1alpha1","spotPrice":"0.0067","useSpot":true}"#;
        assert_eq!(parse(good, at(1), at(1)), Ok(use_spot("0.0067", 1)));
        let on_demand = r#"{"apiVersion":"v1alpha1","spotPrice":"","useSpot":false}"#;
        assert_eq!(
            parse(on_demand, at(1), at(1)),
            Ok(Recommendation { use_spot: false, price: String::new(), given_at: at(1) })
        );
        let long = format!(r#"{{"apiVersion":"v1alpha1","useSpot":false,"x":"{}"}}"#, "y".repeat(MAX_MESSAGE_BYTES));
        for (message, expected) in [
            ("secret", "not a JSON"),
            (r#"{"apiVersion":"v1alpha1"}"#, "not a JSON"),
            (r#"{"apiVersion":"v2","spotPrice":"1","useSpot":true}"#, "v1alpha1"),
            (r#"{"apiVersion":"v1alpha1","spotPrice":"secret","useSpot":true}"#, "not a valid price"),
            (r#"{"apiVersion":"v1alpha1","spotPrice":"0","useSpot":true}"#, "not a valid price"),
            (r#"{"apiVersion":"v1alpha1","useSpot":true}"#, "not a valid price"),
            (long.as_str(), "longer"),
        ] {
            let error = parse(message, at(1), at(1)).expect_err(message);
            assert!(error.contains(expected) && !error.contains("secret"), "{message}: {error}");
        }
    }

    #[test]
    fn only_prices_that_aws_accepts_are_valid() {
        for good in ["0.08", "1", ".5", "12.3456"] {
            assert!(is_price(good), "{good}");
        }
        for bad in ["", "0", "0.0", "-1", "1e3", "inf", "NaN", "1,5", "$1", "1.2.3", "00000000000000001"] {
            assert!(!is_price(bad), "{bad}");
        }
    }

    #[test]
    fn newest_event_wins_and_map_size_is_bounded() {
        let all = Recommendations::default();
        let insert = |namespace: &str, uid: &str, one| all.insert_if_newer("asg", namespace, uid, one);
        let newest = || all.get("asg", |_| true).map(|stored| stored.recommendation);
        assert!(insert("a", "one", use_spot("1", 10)));
        assert!(!insert("a", "two", use_spot("2", 5)), "an older event");
        assert!(insert("b", "two", use_spot("2", 5)), "an older event in another namespace");
        assert_eq!(newest(), Some(use_spot("1", 10)));
        assert!(insert("a", "three", use_spot("3", 20)));
        all.remove("asg", "one");
        assert_eq!(newest(), Some(use_spot("3", 20)));
        all.retain(&["three".to_owned()].into());
        assert_eq!(newest(), Some(use_spot("3", 20)));
        all.retain(&HashSet::new());
        assert_eq!(newest(), None);
        let kept = (0..MAX_SCALING_GROUPS + 5)
            .filter(|n| all.insert_if_newer(&format!("asg-{n}"), "a", "u", use_spot("1", 1)))
            .count();
        assert_eq!(kept, MAX_SCALING_GROUPS);
        assert!(all.insert_if_newer("asg-0", "a", "u", use_spot("2", 2)), "known scaling groups are still updated");
        let kept = (0..MAX_NAMESPACES + 5)
            .filter(|n| all.insert_if_newer("asg-0", &format!("n{n}"), "u", use_spot("1", 1)))
            .count();
        assert_eq!(kept, MAX_NAMESPACES - 1);
    }

    #[test]
    fn only_allowed_namespaces_give_recommendations() {
        let all = Recommendations::default();
        assert!(all.insert_if_newer("asg", "ops", "one", use_spot("1", 10)));
        assert!(all.insert_if_newer("asg", "tenant", "two", use_spot("9", 20)), "a newer one");
        let from_ops = StoredRecommendation { uid: "one".into(), ..stored(use_spot("1", 10)) };
        assert_eq!(all.get("asg", |namespace| namespace == "ops"), Some(from_ops));
        assert_eq!(all.get("asg", |_| false), None);
    }

    #[test]
    fn recommendation_outlives_its_event_until_replaced_or_spec_price_changes() {
        let active = |spec_price: &str, recorded: Option<&SpotRecommendation>, observed: Option<&Recommendation>| {
            active_recommendation(spec_price, recorded, observed.cloned().map(stored).as_ref(), |_| true, at(60))
        };
        let first = active("", None, Some(&use_spot("0.1", 10))).expect("the recommendation is active");
        assert_eq!(first, recorded("0.1", 10, ""));
        assert_eq!(active("", Some(&first), None), Some(first.clone()), "the event has expired");
        assert_eq!(active("", Some(&first), Some(&use_spot("0.1", 60))), Some(first.clone()), "repeated");
        assert_eq!(active("", Some(&first), Some(&use_spot("0.2", 5))), Some(first.clone()), "an older event");
        assert_eq!(active("", Some(&first), Some(&use_spot("0.2", 60))), Some(recorded("0.2", 60, "")));
        let cleared = Recommendation { use_spot: false, price: String::new(), given_at: at(60) };
        assert_eq!(active("", Some(&first), Some(&cleared)), Some(recorded("", 60, "")));
        assert_eq!(active("0.3", Some(&first), Some(&use_spot("0.1", 10))), None, "the tenant changed the price since");
        assert_eq!(active("0.3", Some(&first), Some(&use_spot("0.1", 11))), Some(recorded("0.1", 11, "0.3")));
        assert_eq!(active("0.3", None, None), None);
    }

    #[test]
    fn future_recommendation_is_ignored() {
        let good = r#"{"apiVersion":"v1alpha1","spotPrice":"","useSpot":false}"#;
        let (now, late) = (at(1_000), 1_000 + 5 * 60);
        assert!(parse(good, at(late), now).is_ok() && parse(good, at(late + 1), now).is_err());
        let from_future = recorded("0.1", late + 1, "");
        let on_demand = Recommendation { use_spot: false, price: String::new(), given_at: at(999) };
        let active = |observed: Option<&StoredRecommendation>| {
            active_recommendation("", Some(&from_future), observed, |_| true, now)
        };
        assert_eq!(active(None), Some(from_future.clone()));
        assert_eq!(active(Some(&stored(on_demand))), Some(recorded("", 999, "")));
    }

    /// Its nodes would be replaced by what was recommended long ago.
    #[test]
    fn old_spec_price_does_not_restore_a_recommendation() {
        let ended = SpotRecommendation { ended: Some(true), ..recorded("0.1", 10, "") };
        let active = |observed: Option<&StoredRecommendation>| {
            active_recommendation("", Some(&ended), observed, |_| true, at(60))
        };
        assert_eq!(active(None), None);
        assert_eq!(active(Some(&stored(use_spot("0.1", 10)))), None, "the same event");
        assert_eq!(active(Some(&stored(use_spot("0.1", 20)))), Some(recorded("0.1", 20, "")), "a new event");
    }

    /// Otherwise a tenant's price would stay in use after the admin has taken that right away.
    #[test]
    fn recorded_price_ends_when_the_policy_excludes_its_namespace() {
        let active = |recorded: &SpotRecommendation, observed: Option<Recommendation>, allowed: &str| {
            let observed = observed.map(stored);
            active_recommendation("", Some(recorded), observed.as_ref(), |namespace| namespace == allowed, at(60))
        };
        let of_ops = recorded("0.1", 10, "");
        assert_eq!(active(&of_ops, None, "ops"), Some(of_ops.clone()));
        assert_eq!(active(&of_ops, None, "platform"), None);
        let of_tenant = SpotRecommendation { namespace: Some("tenant".into()), ..recorded("9", 50, "") };
        assert_eq!(
            active(&of_tenant, Some(use_spot("0.2", 20)), "ops"),
            Some(recorded("0.2", 20, "")),
            "an older event"
        );
        let of_earlier_release = SpotRecommendation { namespace: None, ..of_ops.clone() };
        assert_eq!(active(&of_earlier_release, None, "platform"), Some(of_earlier_release.clone()));
        assert_eq!(active(&of_earlier_release, Some(use_spot("0.1", 30)), "ops"), Some(of_ops), "it is repeated");
    }
}
