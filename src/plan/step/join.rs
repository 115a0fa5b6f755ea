//! Steps that let nodes join, or no longer.

use serde::Serialize;

use super::StepInfo;
use crate::auth::aws_auth::AuthEntry;
use crate::aws::NewAccessEntry;
use crate::plan::Event;

/// One write to kube-system/aws-auth or to the access entries of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum JoinStep {
    /// The role's entry in kube-system/aws-auth.
    PutAwsAuthEntry(AuthEntry),
    /// Take our entry out of kube-system/aws-auth.
    RemoveAwsAuthEntry(AuthEntry),
    /// CreateAccessEntry; one that is there and lets such nodes join is left as it is.
    PutAccessEntry(NewAccessEntry),
    /// DeleteAccessEntry of one that carries our tags.
    RemoveAccessEntry { cluster: String, principal: String },
}

impl StepInfo for JoinStep {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn subject(&self) -> String {
        match self {
            JoinStep::PutAwsAuthEntry(entry) | JoinStep::RemoveAwsAuthEntry(entry) => entry.role_arn.clone(),
            JoinStep::PutAccessEntry(entry) => entry.principal.clone(),
            JoinStep::RemoveAccessEntry { principal, .. } => principal.clone(),
        }
    }

    fn event(&self, why: &str) -> Option<Event> {
        let joins = |text| Some(Event::normal("NodeRoleAuthorized", text));
        let removed = |text| (!why.is_empty()).then(|| Event::with_reasons("NodeRoleRevoked", text, why));
        match self {
            JoinStep::PutAwsAuthEntry(entry) => {
                joins(format!("{} may join through kube-system/aws-auth", entry.role_arn))
            }
            JoinStep::PutAccessEntry(entry) => joins(format!("{} may join by an access entry", entry.principal)),
            JoinStep::RemoveAwsAuthEntry(entry) => {
                removed(format!("removed {} from kube-system/aws-auth", entry.role_arn))
            }
            JoinStep::RemoveAccessEntry { principal, .. } => {
                removed(format!("removed the access entry of {principal}"))
            }
        }
    }
}
