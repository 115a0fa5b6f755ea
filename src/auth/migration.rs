//! What an admin who moves roles from aws-auth to access entries reads on the ConfigMap.

use super::JoinAuth;
use crate::plan::{Event, EventKind};

/// How many roles a message names.
const MAX_LISTED_ROLES: usize = 5;

/// How far the roles of all groups have come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationProgress {
    /// How many roles the groups use.
    pub roles: usize,
    /// Those that some group has not seen an access entry of, sorted.
    pub missing: Vec<String>,
    /// Entries of groups that are in aws-auth.
    pub remaining_auth_entries: usize,
    /// Roles of others that aws-auth lets in, in its order.
    pub foreign: Vec<String>,
}

/// What is to be told; nothing while no role moves.
pub fn migration_event(asked: JoinAuth, progress: &MigrationProgress) -> Option<Event> {
    let MigrationProgress { roles, missing, remaining_auth_entries, foreign } = progress;
    let moving = match asked {
        JoinAuth::Both | JoinAuth::AccessEntries => *roles > 0,
        JoinAuth::Auto | JoinAuth::AwsAuth => false,
    };
    let have = format!("{} of {roles} roles of groups have an access entry", roles.saturating_sub(missing.len()));
    let told = |kind, reason: &str, message| Some(Event { kind, reason: reason.into(), message });
    match (moving, asked) {
        (false, _) => None,
        (true, _) if !missing.is_empty() => told(
            EventKind::Warning,
            "AccessEntriesMissing",
            format!("{have}; not yet: {}; their groups say why", list_roles(missing)),
        ),
        (true, JoinAuth::Both) => {
            let next = "with --join-auth=access-entries their entries go from kube-system/aws-auth";
            told(EventKind::Normal, "AccessEntriesComplete", format!("{have}; {next}"))
        }
        (true, _) if *remaining_auth_entries > 0 => None,
        (true, _) if !foreign.is_empty() => {
            let left = "kube-system/aws-auth holds entries that no group put there, and that stay";
            told(EventKind::Normal, "AwsAuthEntriesRemaining", format!("{have}; {left}: {}", list_roles(foreign)))
        }
        (true, _) => {
            told(EventKind::Normal, "AwsAuthNotUsed", format!("{have}; no role is in kube-system/aws-auth any more"))
        }
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

    fn told(asked: JoinAuth, roles: usize, without: &[&str], foreign: &[&str]) -> Option<(String, String)> {
        let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        migration_event(
            asked,
            &MigrationProgress { roles, missing: owned(without), remaining_auth_entries: 0, foreign: owned(foreign) },
        )
        .map(|told| (told.reason, told.message))
    }

    #[test]
    fn next_step_is_named_once_every_role_has_an_entry() {
        let (reason, message) = told(JoinAuth::Both, 3, &["arn:b"], &["arn:admin"]).expect("told");
        assert_eq!(reason, "AccessEntriesMissing");
        assert!(message.contains("2 of 3") && message.contains("arn:b"), "{message}");
        let (reason, message) = told(JoinAuth::Both, 3, &[], &["arn:admin"]).expect("told");
        assert_eq!(reason, "AccessEntriesComplete");
        assert!(message.contains("3 of 3") && message.contains("--join-auth=access-entries"), "{message}");
    }

    #[test]
    fn foreign_aws_auth_entries_are_listed() {
        let names: Vec<_> = (0..7).map(|n| format!("arn:{n}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let (reason, message) = told(JoinAuth::AccessEntries, 1, &[], &names).expect("told");
        assert_eq!(reason, "AwsAuthEntriesRemaining");
        assert!(message.contains("arn:4 and 2 more"), "{message}");
        assert_eq!(told(JoinAuth::AccessEntries, 1, &[], &[]).expect("told").0, "AwsAuthNotUsed");
        let under_way = MigrationProgress { roles: 1, remaining_auth_entries: 1, ..MigrationProgress::default() };
        assert_eq!(migration_event(JoinAuth::AccessEntries, &under_way), None);
    }

    #[test]
    fn no_event_without_migration() {
        for asked in [JoinAuth::Auto, JoinAuth::AwsAuth] {
            assert_eq!(told(asked, 3, &["arn:a"], &["arn:admin"]), None);
        }
        assert_eq!(told(JoinAuth::Both, 0, &[], &[]), None);
    }
}
