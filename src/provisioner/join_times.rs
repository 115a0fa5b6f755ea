//! Since when instances wait for their nodes to become Ready. AWS does not return when an instance entered service, so
//! the first observation counts. The status records it, so that `joinTimeout` does not start again with the process.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::InstanceGroupStatus;
use crate::aws::{Instance, InstanceState};
use crate::rotation::NodeInstance;

/// Sets the recorded times of instances that this process first observed later.
pub(crate) fn restore<'a>(status: &InstanceGroupStatus, instances: impl IntoIterator<Item = &'a mut Instance>) {
    for instance in instances {
        let recorded = status.joining.get(&instance.id).and_then(|since| since.parse::<Timestamp>().ok());
        instance.in_service_since = match (recorded, instance.in_service_since) {
            (Some(recorded), Some(observed)) => Some(recorded.min(observed)),
            (_, observed) => observed,
        };
    }
}

/// The new value of `status.joining`; `None` when it stays. A wait is recorded after a tenth of the timeout, so that
/// nodes that join normally cost no status write. A process that finds the instance in service records it at once: it
/// may be one of many that end early.
pub(crate) fn update<'a>(
    status: &InstanceGroupStatus,
    members: impl IntoIterator<Item = &'a NodeInstance>,
    join_timeout: SignedDuration,
    now: Timestamp,
) -> Option<Value> {
    let joining: BTreeMap<String, String> = (members.into_iter())
        .filter(|m| m.instance.state == InstanceState::InService && !m.is_ready())
        .filter_map(|m| Some((m, m.instance.in_service_since?)))
        .filter(|(m, since)| {
            m.instance.was_in_service || m.lost_node.is_some() || now.duration_since(*since) * 10 >= join_timeout
        })
        // The Node of an instance that had joined was deleted, so the wait begins with that.
        .map(|(m, since)| (&m.instance, m.lost_node.as_ref().map_or(since, |lost| lost.since)))
        .map(|(instance, since)| (instance.id.clone(), since.to_string()))
        .collect();
    (joining != status.joining).then(|| if joining.is_empty() { Value::Null } else { json!(joining) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::samples::instance;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    /// An instance without a node that this process has observed since `since`.
    fn member(since: &str) -> NodeInstance {
        let instance = Instance { in_service_since: Some(at(since)), ..instance("i-1") };
        NodeInstance {
            instance,
            node: None,
            lost_node: None,
            is_recorded_standby: false,
            reasons: vec![],
            in_place: None,
        }
    }

    #[test]
    fn join_time_survives_a_restart() {
        let (timeout, mut status) = (SignedDuration::from_mins(15), InstanceGroupStatus::default());
        let mut member = member("2026-01-01T00:00:00Z");
        let updated = |status: &InstanceGroupStatus, member: &NodeInstance, now: &str| {
            update(status, std::iter::once(member), timeout, at(now))
        };
        assert_eq!(updated(&status, &member, "2026-01-01T00:01:00Z"), None, "it may join in time");
        let recorded = updated(&status, &member, "2026-01-01T00:02:00Z").expect("a record");
        assert_eq!(recorded, json!({"i-1": "2026-01-01T00:00:00Z"}));
        status.joining = serde_json::from_value(recorded).expect("a map");
        assert_eq!(updated(&status, &member, "2026-01-01T00:03:00Z"), None, "one write for each wait");
        member.instance.in_service_since = Some(at("2026-01-01T00:09:00Z"));
        restore(&status, [&mut member.instance]);
        assert_eq!(member.instance.in_service_since, Some(at("2026-01-01T00:00:00Z")));
        member.instance.state = InstanceState::Terminating;
        assert_eq!(updated(&status, &member, "2026-01-01T00:10:00Z"), Some(Value::Null));
    }

    /// Without a record, a process that ends before a tenth of the timeout would begin the wait again each time.
    #[test]
    fn wait_that_a_process_finds_is_recorded_at_once() {
        let (timeout, mut status) = (SignedDuration::from_mins(15), InstanceGroupStatus::default());
        for restart in 0..20 {
            let start = at("2026-01-01T00:00:00Z") + SignedDuration::from_mins(restart);
            let mut member = member(&start.to_string());
            member.instance.was_in_service = restart > 0;
            restore(&status, [&mut member.instance]);
            let updated = update(&status, std::iter::once(&member), timeout, start + SignedDuration::from_secs(1));
            if let Some(joining) = updated {
                status.joining = serde_json::from_value(joining).expect("a map");
            }
            let since = member.instance.in_service_since.expect("a time");
            assert_eq!(since, at("2026-01-01T00:00:00Z") + SignedDuration::from_mins(restart.min(1)));
        }
    }
}
