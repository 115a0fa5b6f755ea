//! What lets nodes join: entries of kube-system/aws-auth, and access entries.

use super::{Apply, ApplyRun, AwsAuthEdit, StepError, StepOutcome, StepResult};
use crate::aws::{AccessEntry, AccessEntryType, AwsErrorKind, NewAccessEntry};
use crate::plan::JoinStep;
use crate::util::digest::idempotency_token;

impl Apply for JoinStep {
    async fn apply(&self, run: &mut ApplyRun<'_>) -> StepResult {
        match self {
            JoinStep::PutAwsAuthEntry(entry) => run.join(AwsAuthEdit::Put(entry.clone())).await,
            JoinStep::RemoveAwsAuthEntry(entry) => run.join(AwsAuthEdit::Remove(entry.clone())).await,
            JoinStep::PutAccessEntry(entry) => run.put_access_entry(entry).await,
            JoinStep::RemoveAccessEntry { cluster, principal } => run.remove_access_entry(cluster, principal).await,
        }
    }
}

impl ApplyRun<'_> {
    async fn join(&self, edit: AwsAuthEdit) -> StepResult {
        self.ctx.aws_auth.submit(self.ctx.kube, edit).await.map(|()| StepOutcome::Yes)
    }

    /// One that is there already is adopted when such nodes join by it; what it is else, the next pass tells.
    async fn put_access_entry(&self, input: &NewAccessEntry) -> StepResult {
        let NewAccessEntry { cluster, principal, kind, own_role, tags } = input;
        let inventory = self.ctx.inventory;
        // The same until the status tells what came of it: a repeated call asks for the same entry, and one for an entry
        // that was deleted since asks for another.
        let token = idempotency_token(&[cluster, principal, kind.as_str(), &self.id.uid, &self.resource_version]);
        match inventory.aws().eks.create_access_entry(input, &token).await {
            Ok(()) => {
                self.ctx.process_state.track_role_refusal(&self.id.key(), false, self.ctx.now);
                inventory.upsert_access_entry(
                    cluster,
                    AccessEntry {
                        principal: principal.clone(),
                        kind: kind.as_str().into(),
                        created: Some(self.ctx.now),
                        tags: tags.clone(),
                    },
                );
                Ok(StepOutcome::Yes)
            }
            Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
                inventory.invalidate_access_entry(cluster, principal);
                let found =
                    inventory.aws().eks.describe_access_entry(cluster, principal).await.map_err(StepError::Aws)?;
                match found.filter(|entry| kind.allows(&entry.kind)) {
                    Some(entry) => {
                        inventory.upsert_access_entry(cluster, entry);
                        Ok(StepOutcome::Yes)
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
                Ok(StepOutcome::Yes)
            }
        }
    }
}
