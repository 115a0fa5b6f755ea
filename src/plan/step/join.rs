//! Steps that let nodes join, or no longer.

use serde::Serialize;

use super::Act;
use crate::auth::aws_auth::AuthEntry;
use crate::aws::NewAccessEntry;
use crate::plan::Told;

/// One write to kube-system/aws-auth or to the access entries of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum JoinStep {
    /// The role's entry in kube-system/aws-auth.
    PutAuthEntry(AuthEntry),
    /// Take our entry out of kube-system/aws-auth.
    RemoveAuthEntry(AuthEntry),
    /// CreateAccessEntry; one that is there and lets such nodes join is left as it is.
    PutAccessEntry(NewAccessEntry),
    /// DeleteAccessEntry of one that carries our tags.
    RemoveAccessEntry { cluster: String, principal: String },
}

impl Act for JoinStep {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn subject(&self) -> String {
        match self {
            JoinStep::PutAuthEntry(entry) | JoinStep::RemoveAuthEntry(entry) => entry.role_arn.clone(),
            JoinStep::PutAccessEntry(entry) => entry.principal.clone(),
            JoinStep::RemoveAccessEntry { principal, .. } => principal.clone(),
        }
    }

    fn event(&self, why: &str) -> Option<Told> {
        let joins = |text| Some(Told::normal("JoinAuthorised", text));
        let removed = |text| (!why.is_empty()).then(|| Told::because("JoinEntryRemoved", text, why));
        match self {
            JoinStep::PutAuthEntry(entry) => joins(format!("{} may join through kube-system/aws-auth", entry.role_arn)),
            JoinStep::PutAccessEntry(entry) => joins(format!("{} may join by an access entry", entry.principal)),
            JoinStep::RemoveAuthEntry(entry) => {
                removed(format!("removed {} from kube-system/aws-auth", entry.role_arn))
            }
            JoinStep::RemoveAccessEntry { principal, .. } => {
                removed(format!("removed the access entry of {principal}"))
            }
        }
    }
}
