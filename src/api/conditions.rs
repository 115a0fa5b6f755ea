//! Status conditions, which report the state of a group to users and tools.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::fields::lenient;
use super::names::condition::current_type;

/// One aspect of the group's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The type names the aspect that the condition describes, such as Ready, Reconciling, Stalled or NodesReady.
    #[serde(deserialize_with = "renamed_type")]
    pub r#type: String,
    /// The status of the condition is True, False or Unknown.
    pub status: String,
    /// The controller gives the reason for the status in one CamelCase word, for programs.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The controller says what happened and what to do about it, for people.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The status of the condition last changed at this time, in RFC 3339.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// The condition describes the spec of this generation.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Decodes the type of a condition; a status may have the name of an earlier release.
fn renamed_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(current_type(&String::deserialize(deserializer)?).to_owned())
}

impl Condition {
    /// A condition without a transition time; [`set_condition`] sets it.
    pub fn new(r#type: &str, status: bool, reason: &str, message: impl Into<String>) -> Self {
        Self {
            r#type: r#type.to_owned(),
            status: if status { "True" } else { "False" }.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.into()),
            ..Self::default()
        }
    }

    /// Whether its reason is this one.
    pub(crate) fn has_reason(&self, reason: &str) -> bool {
        self.reason.as_deref() == Some(reason)
    }

    /// Whether the status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// Inserts `new` into the list, or replaces the condition of its type, and returns whether anything changed. The
/// transition time becomes `now` (RFC 3339) only when the status changes. A difference in `observedGeneration` alone
/// counts as a change.
pub fn set_condition(list: &mut Vec<Condition>, mut new: Condition, now: &str) -> bool {
    match list.iter_mut().find(|old| old.r#type == new.r#type) {
        None => {
            new.last_transition_time.get_or_insert_with(|| now.to_owned());
            list.push(new);
            true
        }
        Some(old) => {
            new.last_transition_time =
                if old.status == new.status { old.last_transition_time.clone() } else { Some(now.to_owned()) };
            let changed = *old != new;
            *old = new;
            changed
        }
    }
}

/// A time in RFC 3339 with whole seconds, as Kubernetes writes times.
pub fn rfc3339(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transition_time_changes_only_with_status() {
        let mut list = vec![];
        assert!(set_condition(&mut list, Condition::new("Ready", false, "Creating", "a"), "t1"));
        assert!(!set_condition(&mut list, Condition::new("Ready", false, "Creating", "a"), "t2"));
        assert!(set_condition(&mut list, Condition::new("Ready", false, "Waiting", "b"), "t3"));
        assert_eq!(list[0].last_transition_time.as_deref(), Some("t1"));
        assert!(set_condition(&mut list, Condition::new("Ready", true, "Ready", ""), "t4"));
        assert_eq!(list[0].last_transition_time.as_deref(), Some("t4"));
    }

    #[test]
    fn condition_decodes_from_type_and_status_alone() {
        let old: Condition =
            serde_json::from_value(serde_json::json!({"type": "NodesReady", "status": "True"})).unwrap();
        assert!(old.is_true());
    }

    /// Under two names, the condition of before would stay True forever beside the new one.
    #[test]
    fn condition_of_an_earlier_release_has_its_current_type() {
        let old = serde_json::json!({"type": "DrainForeseen", "status": "True", "lastTransitionTime": "t1"});
        let mut list: Vec<Condition> = vec![serde_json::from_value(old).unwrap()];
        set_condition(&mut list, Condition::new("DrainForecast", true, "EvictionBlocked", "redis"), "t2");
        assert_eq!(list.len(), 1, "{list:?}");
        assert_eq!(list[0].last_transition_time.as_deref(), Some("t1"), "it has been True since");
    }
}
