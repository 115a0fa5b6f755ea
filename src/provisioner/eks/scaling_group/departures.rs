//! Reports instances that left the scaling group without the controller, and why.

use crate::aws::ScalingActivity;
use crate::plan::Event;

/// How many instances have an event of their own in one pass.
const MAX_EVENTS: usize = 10;

/// An instance that left the scaling group without the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Departure {
    /// `i-...`
    pub instance: String,
    /// What Auto Scaling did with it.
    pub activity: ScalingActivity,
}

/// The departures whose cause AWS says, of the instances that left.
pub(crate) fn explained(left: Vec<String>, activities: &[ScalingActivity]) -> Vec<Departure> {
    let find = |instance: &String| activities.iter().find(|activity| activity.removes(instance)).cloned();
    left.into_iter().filter_map(|instance| find(&instance).map(|activity| Departure { instance, activity })).collect()
}

/// The events about them: one for each, and of many the rest together.
pub(crate) fn events(departures: &[Departure]) -> Vec<Event> {
    let (single, rest) = departures.split_at(departures.len().min(MAX_EVENTS));
    let one = |Departure { instance, activity }: &Departure| {
        let (done, cause) = (activity.description.trim_end_matches('.'), activity.cause.trim_end_matches('.'));
        let text = format!("{instance} left the scaling group without the controller. AWS says: {done}: {cause}");
        Event::normal("InstanceLost", text)
    };
    let mut events: Vec<_> = single.iter().map(one).collect();
    if !rest.is_empty() {
        let names: Vec<_> = rest.iter().take(MAX_EVENTS).map(|departure| departure.instance.as_str()).collect();
        let text = format!(
            "{} more instances left the scaling group without the controller, for example {}; the scaling activities say why",
            rest.len(),
            names.join(", ")
        );
        events.push(Event::normal("InstanceLost", text));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(description: &str, cause: &str) -> ScalingActivity {
        ScalingActivity {
            status: "InProgress".into(),
            description: description.into(),
            cause: cause.into(),
            zone: None,
            message: String::new(),
            started: None,
        }
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
        let [event] = events(&found).try_into().expect("one event");
        assert_eq!(event.reason, "InstanceLost");
        assert!(event.message.starts_with("i-1 left") && event.message.contains("EC2 health check"), "{event:?}");
    }

    #[test]
    fn detached_instance_is_not_called_terminated() {
        let found = explained(vec!["i-1".into()], &[activity("Detaching EC2 instance: i-1", "a user request")]);
        let message = &events(&found)[0].message;
        assert!(message.contains("Detaching") && !message.contains("erminat"), "{message}");
    }

    #[test]
    fn loss_of_many_instances_does_not_flood_the_events() {
        let departures: Vec<_> = (0..100)
            .map(|number| Departure { instance: format!("i-{number}"), activity: activity("Terminating", CAUSE) })
            .collect();
        let events = events(&departures);
        assert_eq!(events.len(), MAX_EVENTS + 1);
        assert!(events[MAX_EVENTS].message.contains("90 more") && events[MAX_EVENTS].message.contains("i-10"));
    }
}
