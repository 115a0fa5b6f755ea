//! Steps that let nodes join the cluster, or revoke that permission.

use serde::Serialize;

use super::info::StepInfo;
use crate::auth::aws_auth::AuthEntry;
use crate::aws::NewAccessEntry;
use crate::plan::EventReason;
use crate::plan::event::Event;

/// One write to kube-system/aws-auth or to the access entries of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum JoinStep {
    /// Add the role's entry to kube-system/aws-auth.
    PutAwsAuthEntry(AuthEntry),
    /// Replace the role's entry in kube-system/aws-auth, which the controller added, with this one, which has more groups.
    WidenAwsAuthEntry(AuthEntry),
    /// Remove the role's entry, which the controller added, from kube-system/aws-auth.
    RemoveAwsAuthEntry(AuthEntry),
    /// CreateAccessEntry; an existing entry that lets these nodes join is left unchanged.
    PutAccessEntry(NewAccessEntry),
    /// DeleteAccessEntry of an entry that carries the controller's tags.
    RemoveAccessEntry { cluster: String, principal: String },
}

impl StepInfo for JoinStep {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn subject(&self) -> String {
        match self {
            JoinStep::PutAwsAuthEntry(entry)
            | JoinStep::WidenAwsAuthEntry(entry)
            | JoinStep::RemoveAwsAuthEntry(entry) => entry.role_arn.clone(),
            JoinStep::PutAccessEntry(entry) => entry.principal.clone(),
            JoinStep::RemoveAccessEntry { principal, .. } => principal.clone(),
        }
    }

    fn event(&self, reasons: &str) -> Option<Event> {
        match self {
            JoinStep::PutAwsAuthEntry(_) | JoinStep::WidenAwsAuthEntry(_) | JoinStep::PutAccessEntry(_) => {
                Some(Event::normal(EventReason::NodeRoleAuthorized, self.log_text()))
            }
            JoinStep::RemoveAwsAuthEntry(_) | JoinStep::RemoveAccessEntry { .. } => (!reasons.is_empty())
                .then(|| Event::with_reasons(EventReason::NodeRoleRevoked, self.log_text(), reasons)),
        }
    }

    fn log_text(&self) -> String {
        match self {
            JoinStep::PutAwsAuthEntry(entry) | JoinStep::WidenAwsAuthEntry(entry) => {
                format!("nodes with the role {} can join through kube-system/aws-auth", entry.role_arn)
            }
            JoinStep::PutAccessEntry(entry) => {
                format!("nodes with the role {} can join through an access entry", entry.principal)
            }
            JoinStep::RemoveAwsAuthEntry(entry) => format!("removed {} from kube-system/aws-auth", entry.role_arn),
            JoinStep::RemoveAccessEntry { principal, .. } => format!("removed the access entry of {principal}"),
        }
    }
}
