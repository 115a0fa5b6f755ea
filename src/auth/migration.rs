//! The event on the ConfigMap that reports the progress of the migration from aws-auth to access entries.

use super::JoinAuth;
use crate::plan::{Event, EventKind, EventReason};

/// Maximum number of roles that a message lists.
const MAX_LISTED_ROLES: usize = 5;

/// Progress of the migration over the roles of all groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MigrationProgress {
    /// Number of roles that the groups use.
    pub roles: usize,
    /// ARNs of roles for which no group has observed an access entry, sorted.
    pub missing: Vec<String>,
    /// Number of entries in aws-auth that belong to groups.
    pub remaining_auth_entries: usize,
    /// ARNs of roles in aws-auth that no group uses, in the order of their entries.
    pub foreign: Vec<String>,
}

/// The event to publish. `None` without a migration, and while entries of groups are still to be removed from aws-auth.
pub(crate) fn migration_event(requested: JoinAuth, progress: &MigrationProgress) -> Option<Event> {
    let MigrationProgress { roles, missing, remaining_auth_entries, foreign } = progress;
    let migrating = match requested {
        JoinAuth::Both | JoinAuth::AccessEntries => *roles > 0,
        JoinAuth::Auto | JoinAuth::AwsAuth => false,
    };
    let summary =
        format!("{} of {roles} roles of InstanceGroups have an access entry", roles.saturating_sub(missing.len()));
    let event = |kind, reason: EventReason, message| Some(Event { kind, reason: reason.to_string(), message });
    match (migrating, requested) {
        (false, _) => None,
        (true, _) if !missing.is_empty() => event(
            EventKind::Warning,
            EventReason::AccessEntriesMissing,
            format!("{summary}; missing: {}; the conditions of their groups name the cause", list_roles(missing)),
        ),
        (true, JoinAuth::Both) => {
            let next = "set --join-auth=access-entries to remove their entries from kube-system/aws-auth";
            event(EventKind::Normal, EventReason::AccessEntriesComplete, format!("{summary}; {next}"))
        }
        (true, _) if *remaining_auth_entries > 0 => None,
        (true, _) if !foreign.is_empty() => {
            let remaining = "entries in kube-system/aws-auth that no InstanceGroup added remain";
            event(
                EventKind::Normal,
                EventReason::AwsAuthEntriesRemaining,
                format!("{summary}; {remaining}: {}", list_roles(foreign)),
            )
        }
        (true, _) => event(
            EventKind::Normal,
            EventReason::AwsAuthNotUsed,
            format!("{summary}; kube-system/aws-auth contains no roles"),
        ),
    }
}

fn list_roles(roles: &[String]) -> String {
    let more = roles.len().saturating_sub(MAX_LISTED_ROLES);
    let named = roles.iter().take(MAX_LISTED_ROLES).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason_and_message(
        requested: JoinAuth,
        roles: usize,
        missing: &[&str],
        foreign: &[&str],
    ) -> Option<(String, String)> {
        let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        migration_event(
            requested,
            &MigrationProgress { roles, missing: owned(missing), remaining_auth_entries: 0, foreign: owned(foreign) },
        )
        .map(|event| (event.reason, event.message))
    }

    #[test]
    fn next_step_is_named_once_every_role_has_an_entry() {
        let (reason, message) = reason_and_message(JoinAuth::Both, 3, &["arn:b"], &["arn:admin"]).expect("an event");
        assert_eq!(reason, "AccessEntriesMissing");
        assert!(message.contains("2 of 3") && message.contains("arn:b"), "{message}");
        let (reason, message) = reason_and_message(JoinAuth::Both, 3, &[], &["arn:admin"]).expect("an event");
        assert_eq!(reason, "AccessEntriesComplete");
        assert!(message.contains("3 of 3") && message.contains("--join-auth=access-entries"), "{message}");
    }

    #[test]
    fn foreign_aws_auth_entries_are_listed() {
        let names: Vec<_> = (0..7).map(|n| format!("arn:{n}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let (reason, message) = reason_and_message(JoinAuth::AccessEntries, 1, &[], &names).expect("an event");
        assert_eq!(reason, "AwsAuthEntriesRemaining");
        assert!(message.contains("arn:4 and 2 more"), "{message}");
        assert_eq!(reason_and_message(JoinAuth::AccessEntries, 1, &[], &[]).expect("an event").0, "AwsAuthNotUsed");
        let in_progress = MigrationProgress { roles: 1, remaining_auth_entries: 1, ..MigrationProgress::default() };
        assert_eq!(migration_event(JoinAuth::AccessEntries, &in_progress), None);
    }

    #[test]
    fn no_event_without_migration() {
        for requested in [JoinAuth::Auto, JoinAuth::AwsAuth] {
            assert_eq!(reason_and_message(requested, 3, &["arn:a"], &["arn:admin"]), None);
        }
        assert_eq!(reason_and_message(JoinAuth::Both, 0, &[], &[]), None);
    }
}
