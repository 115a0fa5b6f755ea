//! Instances of the desired version that left the scaling group while their nodes were not Ready: they had never been,
//! or had failed within `joinTimeout`. AWS no longer shows them, and the Cluster Autoscaler, which removes such
//! instances, has lowered the desired capacity. Without a record, the rotation would continue with the next healthy
//! node, down to `minSize`.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::{FailedReplacements, InstanceGroupStatus, rfc3339};
use crate::rotation::NodeInstance;
use crate::util::recorded_time;

/// How many instances the record names.
const MAX_NAMED: usize = 5;

/// What is known of failed replacements.
pub(crate) struct Replacements<'a> {
    /// Hash of the desired template.
    pub hash: &'a str,
    /// Instances that left the group unready since the last pass, without the controller.
    pub left: &'a [String],
    /// All instances of the group.
    pub members: &'a [NodeInstance],
    /// How long a node must have been Ready to count.
    pub min_ready_time: SignedDuration,
    /// Whether a user requests another attempt.
    pub is_requested: bool,
    /// The time of the pass, from which Ready times are counted.
    pub now: Timestamp,
}

impl Replacements<'_> {
    /// The record for the status after this pass; `None` without a failed replacement, and once a later one is Ready.
    pub(crate) fn record(&self, status: &InstanceGroupStatus) -> Option<FailedReplacements> {
        let old = status.failed_replacements.as_ref().filter(|old| old.template == self.hash && !self.is_requested);
        let mut record = old.cloned().unwrap_or_else(|| FailedReplacements {
            template: self.hash.to_owned(),
            instances: Vec::new(),
            last: String::new(),
        });
        let new: Vec<_> = self.left.iter().filter(|id| !record.instances.contains(id)).cloned().collect();
        if !new.is_empty() {
            record.instances.splice(0..0, new);
            record.instances.truncate(MAX_NAMED);
            record.last = rfc3339(self.now);
        }
        let last = recorded_time::past(&record.last, self.now)?;
        record.last = rfc3339(last);
        let became_ready = |m: &NodeInstance| {
            let since = m.node.as_ref().and_then(|node| node.ready_changed_at);
            m.ready_for(self.now).is_some_and(|time| time >= self.min_ready_time)
                && since.is_some_and(|since| since > last)
        };
        // Without an outdated node there is nothing to give up.
        let has_recovered = self.current().any(became_ready) || self.members.iter().all(|m| m.reasons.is_empty());
        (!record.instances.is_empty() && !has_recovered).then_some(record)
    }

    /// The value of the status field, if it changes.
    pub(crate) fn update(&self, status: &InstanceGroupStatus) -> Option<Value> {
        let record = self.record(status);
        (record != status.failed_replacements).then(|| record.map_or(Value::Null, |record| json!(record)))
    }

    /// Why no further node is replaced. A version that has a Ready node is known to work, so the rotation tries it
    /// again after `retry`.
    pub(crate) fn halt(&self, status: &InstanceGroupStatus, retry: SignedDuration) -> Option<String> {
        let FailedReplacements { instances, last, .. } = self.record(status)?;
        let next_try = last.parse::<Timestamp>().ok()?.checked_add(retry).unwrap_or(Timestamp::MAX);
        let is_proven = self.current().any(NodeInstance::is_ready);
        if is_proven && self.now >= next_try {
            return None;
        }
        let until = match is_proven {
            true => format!("until one is Ready, or until {}", rfc3339(next_try)),
            false => {
                "until one is Ready, the spec changes, or instance-manager reconcile asks for another try".to_owned()
            }
        };
        Some(format!(
            "left the scaling group while their nodes were not Ready: {} (the Cluster Autoscaler, for example, removes \
             such instances, and lowers the desired capacity; see the events InstanceLost); no further node is \
             replaced {until}",
            instances.join(", ")
        ))
    }

    fn current(&self) -> impl Iterator<Item = &NodeInstance> {
        self.members.iter().filter(|m| m.reasons.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::samples::instance;
    use crate::index::nodes::node_view;
    use crate::plan::Drift;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    /// A node that has been Ready since this minute.
    fn ready(id: &str, since: i64, is_current: bool) -> NodeInstance {
        let mut node = node_view(&k8s_openapi::api::core::v1::Node::default());
        (node.ready, node.ready_changed_at) = (true, Some(at(since)));
        let reasons = if is_current { vec![] } else { vec![Drift::new("image", "1", "2")] };
        NodeInstance {
            instance: instance(id),
            node: Some(node),
            lost_node: None,
            is_recorded_standby: false,
            reasons,
            in_place: None,
        }
    }

    /// The record and the halt after a pass.
    fn pass(
        status: &InstanceGroupStatus,
        hash: &str,
        left: &[&str],
        members: &[NodeInstance],
        minute: i64,
        is_requested: bool,
    ) -> (InstanceGroupStatus, Option<String>) {
        let left: Vec<_> = left.iter().map(|id| (*id).to_owned()).collect();
        let min_ready_time = SignedDuration::from_secs(30);
        let found = Replacements { hash, left: &left, members, min_ready_time, is_requested, now: at(minute) };
        let next = InstanceGroupStatus { failed_replacements: found.record(status), ..status.clone() };
        assert_eq!(found.update(&next), if left.is_empty() { found.update(&next) } else { None }, "one write");
        (next, found.halt(status, SignedDuration::from_mins(30)))
    }

    /// The rotation would terminate one healthy node after the other for an image whose nodes never join, down to
    /// `minSize`.
    #[test]
    fn rotation_stops_for_an_image_that_was_never_ready() {
        let old = [ready("old", 0, false)];
        let (status, halt) = pass(&InstanceGroupStatus::default(), "v2", &["i-1"], &old, 16, false);
        assert!(halt.is_some_and(|halt| halt.contains("i-1") && halt.contains("instance-manager reconcile")));
        assert!(pass(&status, "v2", &[], &old, 6000, false).1.is_some(), "it holds, however long that takes");
        for (what, hash, members, is_requested) in [
            ("the spec changed", "v3", old.to_vec(), false),
            ("a person asks", "v2", old.to_vec(), true),
            ("one is Ready", "v2", vec![ready("old", 0, false), ready("i-2", 20, true)], false),
        ] {
            let (next, halt) = pass(&status, hash, &[], &members, 25, is_requested);
            assert_eq!((next.failed_replacements, halt), (None, None), "{what}");
        }
    }

    /// The clock was an hour ahead. Without the correction, no replacement would count as Ready, and the rotation would
    /// stop for that hour.
    #[test]
    fn record_from_the_future_does_not_halt_for_longer() {
        let members = [ready("old", 0, false), ready("i-1", 5, true)];
        let (ahead, _) = pass(&InstanceGroupStatus::default(), "v2", &["i-2"], &members, 80, false);
        let (corrected, halt) = pass(&ahead, "v2", &[], &members, 20, false);
        assert_eq!(corrected.failed_replacements.as_ref().expect("a record").last, "1970-01-01T00:20:00Z");
        assert!(halt.is_some_and(|halt| halt.contains("until 1970-01-01T00:50:00Z")));
        let recovered = [ready("old", 0, false), ready("i-3", 25, true)];
        assert_eq!(pass(&corrected, "v2", &[], &recovered, 30, false).1, None);
        assert_eq!(pass(&corrected, "v2", &[], &members, 50, false).1, None);
    }

    /// A zone may have had a bad moment. Otherwise a rotation whose other nodes are Ready would never finish.
    #[test]
    fn image_that_has_proven_itself_is_tried_again() {
        let members = [ready("old", 0, false), ready("i-1", 5, true)];
        let (status, halt) = pass(&InstanceGroupStatus::default(), "v2", &["i-2"], &members, 20, false);
        assert!(halt.is_some_and(|halt| halt.contains("until 1970-01-01T00:50:00Z")));
        assert!(pass(&status, "v2", &[], &members, 49, false).1.is_some(), "it was Ready before");
        assert_eq!(pass(&status, "v2", &[], &members, 50, false).1, None);
        let (status, halt) = pass(&status, "v2", &["i-3"], &members, 70, false);
        assert!(halt.is_some(), "the next try failed, too");
        assert_eq!(status.failed_replacements.expect("a record").instances, ["i-3", "i-2"]);
    }
}
