//! Whether an admin has to be warned that aws-auth is near the size limit of a ConfigMap. Pure.

use crate::k8s::EventTarget;

/// The size of aws-auth as the watch saw it last, and whether this process warned of it.
#[derive(Debug, Default)]
pub(crate) struct SizeWarning {
    /// The ConfigMap while it is near the limit.
    near: Option<EventTarget>,
    is_reported: bool,
}

impl SizeWarning {
    /// Records whether the ConfigMap is near the limit. Once it is smaller again, the next growth is a new one.
    pub(crate) fn observe(&mut self, near: Option<EventTarget>) {
        self.is_reported &= near.is_some();
        self.near = near;
    }

    /// The ConfigMap to warn of, once while it stays near the limit. A standby warns when it becomes the leader, because the
    /// events of the leader before it are gone after an hour.
    pub(crate) fn take_due(&mut self, is_leader: bool) -> Option<EventTarget> {
        let due = self.near.as_ref().filter(|_| is_leader && !self.is_reported)?.clone();
        self.is_reported = true;
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aws_auth() -> Option<EventTarget> {
        Some(EventTarget {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: Some("kube-system".into()),
            name: "aws-auth".into(),
            uid: "1".into(),
        })
    }

    /// In a rolling update of the controller, the new process sees aws-auth before it leads.
    #[test]
    fn process_that_was_a_standby_warns_once_it_leads() {
        let mut warning = SizeWarning::default();
        warning.observe(aws_auth());
        assert_eq!(warning.take_due(false), None, "the leader warns");
        assert_eq!(warning.take_due(true), aws_auth());
        warning.observe(aws_auth());
        assert_eq!(warning.take_due(true), None, "an edit that leaves it as large");
    }

    #[test]
    fn map_that_grows_again_is_reported_again() {
        let mut warning = SizeWarning::default();
        assert_eq!(warning.take_due(true), None);
        for _ in 0..2 {
            warning.observe(aws_auth());
            assert_eq!(warning.take_due(true), aws_auth());
            warning.observe(None);
            assert_eq!(warning.take_due(true), None);
        }
    }
}
