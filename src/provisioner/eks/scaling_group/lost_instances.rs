//! Reports instances that left the scaling group without the controller, and why.

use std::collections::HashMap;

use crate::aws::{ScalingActivity, StateReason};
use crate::plan::{Event, EventReason};

/// How many instances have an event of their own in one pass.
pub(crate) const MAX_EVENTS: usize = 10;

/// An instance that left the scaling group without the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct LostInstance {
    /// `i-...`
    pub instance: String,
    /// What Auto Scaling did with it.
    pub activity: ScalingActivity,
    /// Why EC2 ended the instance; `None` if EC2 does not return it.
    pub state_reason: Option<StateReason>,
}

impl LostInstance {
    /// Whether EC2 ended the instance, and neither a user nor a program.
    fn is_by_ec2(&self) -> bool {
        self.state_reason.as_ref().is_some_and(|reason| reason.is_spot_interruption() || reason.is_by_ec2())
    }

    fn event(&self) -> Event {
        let LostInstance { instance, activity, state_reason } = self;
        match state_reason {
            Some(reason) if reason.is_spot_interruption() => {
                let text = format!(
                    "EC2 reclaimed the Spot Instance {instance} ({}). Auto Scaling launches a replacement; more instance types and \
                     zones make this rarer",
                    reason.code
                );
                Event::warning(INSTANCE_LOST, text)
            }
            Some(reason) if reason.is_by_ec2() => {
                let text = format!("EC2 ended {instance}: {} ({})", reason.message.trim_end_matches('.'), reason.code);
                Event::warning(INSTANCE_LOST, text)
            }
            Some(_) | None => {
                let (done, cause) = (activity.description.trim_end_matches('.'), activity.cause.trim_end_matches('.'));
                let text = format!(
                    "{instance} left the scaling group, and this controller did not remove it. AWS reports: {done}: {cause}. CloudTrail names the \
                     caller, if a user or a tool did it"
                );
                Event::normal(INSTANCE_LOST, text)
            }
        }
    }
}

const INSTANCE_LOST: EventReason = EventReason::InstanceLost;

/// Those of the instances that left whose cause AWS gives.
pub(crate) fn explained(left: Vec<String>, activities: &[ScalingActivity]) -> Vec<LostInstance> {
    let find = |instance: &String| activities.iter().find(|activity| activity.removes(instance)).cloned();
    let lost = |instance| Some(LostInstance { activity: find(&instance)?, instance, state_reason: None });
    left.into_iter().filter_map(lost).collect()
}

/// Adds why EC2 ended the instances.
pub(crate) fn add_state_reasons(lost_instances: &mut [LostInstance], mut reasons: HashMap<String, StateReason>) {
    for lost in lost_instances {
        lost.state_reason = reasons.remove(&lost.instance);
    }
}

/// The events about them: one for each, and of many the rest together. With `is_replaced_by_resource`, the resource of the
/// strategy `crd` replaces nodes, so only those that EC2 ended are worth an event.
pub(crate) fn events(lost_instances: &[LostInstance], is_replaced_by_resource: bool) -> Vec<Event> {
    let is_reported = |lost: &&LostInstance| !is_replaced_by_resource || lost.is_by_ec2();
    let lost_instances: Vec<_> = lost_instances.iter().filter(is_reported).collect();
    let (single, rest) = lost_instances.split_at(lost_instances.len().min(MAX_EVENTS));
    let mut events: Vec<_> = single.iter().map(|lost| lost.event()).collect();
    if !rest.is_empty() {
        let names: Vec<_> = rest.iter().take(MAX_EVENTS).map(|lost| lost.instance.as_str()).collect();
        let text = format!(
            "{} more instances left the scaling group, and this controller did not remove them, for example {}; see the scaling activities",
            rest.len(),
            names.join(", ")
        );
        events.push(Event::normal(INSTANCE_LOST, text));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::samples::scaling_activity;
    use crate::plan::EventKind;

    fn activity(description: &str, cause: &str) -> ScalingActivity {
        ScalingActivity { cause: cause.into(), ..scaling_activity(description) }
    }

    const CAUSE: &str =
        "At 2026-01-01T00:00:00Z an instance was taken out of service in response to an EC2 health check.";

    #[test]
    fn event_names_the_instance_and_the_cause() {
        let activities = [
            activity("Launching a new EC2 instance: i-1", "At 2026-01-01T00:01:00Z an instance was launched."),
            activity("Terminating EC2 instance: i-12", "something else"),
            activity("Terminating EC2 instance: i-1", CAUSE),
        ];
        let found = explained(vec!["i-1".into(), "i-7".into()], &activities);
        assert_eq!(found.len(), 1, "no activity names i-7 yet");
        let [event] = events(&found, false).try_into().expect("one event");
        assert_eq!(event.reason, "InstanceLost");
        assert!(event.message.starts_with("i-1 left") && event.message.contains("EC2 health check"), "{event:?}");
    }

    #[test]
    fn detached_instance_is_not_called_terminated() {
        let found = explained(vec!["i-1".into()], &[activity("Detaching EC2 instance: i-1", "a user request")]);
        let message = &events(&found, false)[0].message;
        assert!(message.contains("Detaching") && !message.contains("erminat"), "{message}");
    }

    /// Auto Scaling reports the same for both: that its health check found the instance terminated.
    #[test]
    fn reclaimed_spot_instance_is_distinguished_from_a_user_termination() {
        let activities =
            [activity("Terminating EC2 instance: i-1", CAUSE), activity("Terminating EC2 instance: i-2", CAUSE)];
        let mut found = explained(vec!["i-1".into(), "i-2".into()], &activities);
        let reason = |code: &str| StateReason { code: code.into(), message: "words of EC2.".into() };
        let reasons = [("i-1", "Server.SpotInstanceTermination"), ("i-2", "Client.UserInitiatedShutdown")];
        add_state_reasons(&mut found, reasons.map(|(id, code)| (id.to_owned(), reason(code))).into());
        let [spot, person] = events(&found, false).try_into().expect("two events");
        assert_eq!((spot.kind, person.kind), (EventKind::Warning, EventKind::Normal));
        assert!(
            spot.message.contains("reclaimed the Spot Instance i-1") && !person.message.contains("Spot"),
            "{spot:?}"
        );
        assert!(person.message.contains("CloudTrail"), "{person:?}");
        let [event] = events(&found, true).try_into().expect("one event: a resource may have replaced the other one");
        assert!(event.message.contains("i-1"), "{event:?}");
        found[0].state_reason = Some(reason("Server.ScheduledStop"));
        let message = &events(&found, false)[0].message;
        assert!(message.contains("EC2 ended i-1: words of EC2 (Server.ScheduledStop)"), "{message}");
    }

    #[test]
    fn loss_of_many_instances_does_not_flood_the_events() {
        let lost_instances: Vec<_> = (0..100)
            .map(|number| LostInstance {
                instance: format!("i-{number}"),
                activity: activity("Terminating", CAUSE),
                state_reason: None,
            })
            .collect();
        let events = events(&lost_instances, false);
        assert_eq!(events.len(), MAX_EVENTS + 1);
        assert!(events[MAX_EVENTS].message.contains("90 more") && events[MAX_EVENTS].message.contains("i-10"));
    }
}
