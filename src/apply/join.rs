//! Applies join steps: entries of kube-system/aws-auth, and access entries.

use super::aws_auth::AwsAuthEdit;
use super::error::StepError;
use super::run::{Apply, ApplyRun, StepOutcome, StepResult};
use crate::aws::{AccessEntry, AccessEntryType, AwsErrorKind, NewAccessEntry};
use crate::plan::JoinStep;
use crate::util::digest::client_token;

impl Apply for JoinStep {
    async fn apply(&self, run: &mut ApplyRun<'_>) -> StepResult {
        match self {
            JoinStep::PutAwsAuthEntry(entry) => run.edit_aws_auth(AwsAuthEdit::Put(entry.clone())).await,
            JoinStep::WidenAwsAuthEntry(entry) => run.edit_aws_auth(AwsAuthEdit::Widen(entry.clone())).await,
            JoinStep::RemoveAwsAuthEntry(entry) => run.edit_aws_auth(AwsAuthEdit::Remove(entry.clone())).await,
            JoinStep::PutAccessEntry(entry) => run.put_access_entry(entry).await,
            JoinStep::RemoveAccessEntry { cluster, principal } => run.remove_access_entry(cluster, principal).await,
        }
    }
}

impl ApplyRun<'_> {
    async fn edit_aws_auth(&self, edit: AwsAuthEdit) -> StepResult {
        let changed = self.ctx.aws_auth.submit(self.ctx.kube, edit, self.ctx.request_write).await?;
        Ok(if changed { StepOutcome::Applied } else { StepOutcome::Unchanged })
    }

    /// Creates an access entry. An existing entry is kept if it lets these nodes join; otherwise the next pass reports
    /// the conflict.
    async fn put_access_entry(&self, input: &NewAccessEntry) -> StepResult {
        let NewAccessEntry { cluster, principal, kind, own_role, tags } = input;
        let inventory = self.ctx.inventory;
        // The resourceVersion keeps the token stable until the status is written. A retried call then refers to the same
        // entry, and a call after the entry was deleted gets a new token.
        let token = client_token(&[cluster, principal, kind.as_str(), &self.id.uid, &self.resource_version]);
        match inventory.aws().eks.create_access_entry(input, &token).await {
            Ok(()) => {
                self.ctx.process_state.track_role_rejection(&self.id.key(), false, self.ctx.now);
                inventory.upsert_access_entry(
                    cluster,
                    AccessEntry {
                        principal: principal.clone(),
                        kind: kind.as_str().into(),
                        created: Some(self.ctx.now),
                        tags: tags.clone(),
                    },
                );
                Ok(StepOutcome::Applied)
            }
            Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
                inventory.invalidate_access_entry(cluster, principal);
                let found =
                    inventory.aws().eks.describe_access_entry(cluster, principal).await.map_err(StepError::Aws)?;
                match found.filter(|entry| kind.allows(&entry.kind)) {
                    Some(entry) => {
                        inventory.upsert_access_entry(cluster, entry);
                        Ok(StepOutcome::Applied)
                    }
                    None => Err(StepError::Aws(error)),
                }
            }
            Err(error) => {
                inventory.invalidate_access_entry(cluster, principal);
                let field = match kind {
                    AccessEntryType::FargateLinux => "spec.eks-fargate.podExecutionRoleArn",
                    AccessEntryType::Ec2Linux | AccessEntryType::Ec2Windows => "spec.eks.configuration.roleName",
                };
                Err(self.classify_role_error(error, *own_role, field))
            }
        }
    }

    async fn remove_access_entry(&self, cluster: &str, principal: &str) -> StepResult {
        let inventory = self.ctx.inventory;
        match inventory.aws().eks.delete_access_entry(cluster, principal).await {
            Err(error) if !error.is_not_found() => {
                inventory.invalidate_access_entry(cluster, principal);
                Err(StepError::Aws(error))
            }
            Ok(()) | Err(_) => {
                inventory.remove_access_entry(cluster, principal);
                Ok(StepOutcome::Applied)
            }
        }
    }
}
