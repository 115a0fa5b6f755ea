//! What lets nodes join: entries of kube-system/aws-auth, and access entries.

use super::{Apply, Done, Edit, Run, Stepped, Stopped};
use crate::aws::{AccessEntry, AccessKind, AwsErrorKind, NewAccessEntry};
use crate::plan::JoinStep;
use crate::provisioner::eks::create::token;

impl Apply for JoinStep {
    async fn apply(&self, run: &mut Run<'_>) -> Stepped {
        match self {
            JoinStep::PutAuthEntry(entry) => run.join(Edit::Put(entry.clone())).await,
            JoinStep::RemoveAuthEntry(entry) => run.join(Edit::Remove(entry.clone())).await,
            JoinStep::PutAccessEntry(entry) => run.put_access_entry(entry).await,
            JoinStep::RemoveAccessEntry { cluster, principal } => run.remove_access_entry(cluster, principal).await,
        }
    }
}

impl Run<'_> {
    async fn join(&self, edit: Edit) -> Stepped {
        self.a.joining.submit(self.a.cluster, edit).await.map(|()| Done::Yes)
    }

    /// One that is there already is adopted when such nodes join by it; what it is else, the next pass tells.
    async fn put_access_entry(&self, input: &NewAccessEntry) -> Stepped {
        let NewAccessEntry { cluster, principal, kind, own_role, tags } = input;
        let inventory = self.a.inventory;
        // The same until the status tells what came of it: a repeated call asks for the same entry, and one for an entry
        // that was deleted since asks for another.
        let token = token(&[cluster, principal, kind.as_str(), &self.id.uid, &self.rv]);
        match inventory.aws().eks.create_access_entry(input, &token).await {
            Ok(()) => {
                self.a.memory.role_refused(&self.id.key(), false, self.a.now);
                inventory.made_access_entry(
                    cluster,
                    AccessEntry {
                        principal: principal.clone(),
                        kind: kind.as_str().into(),
                        created: Some(self.a.now),
                        tags: tags.clone(),
                    },
                );
                Ok(Done::Yes)
            }
            Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
                inventory.wrote_access_entry(cluster, principal);
                let found =
                    inventory.aws().eks.describe_access_entry(cluster, principal).await.map_err(Stopped::Aws)?;
                match found.filter(|entry| kind.admits(&entry.kind)) {
                    Some(entry) => {
                        inventory.made_access_entry(cluster, entry);
                        Ok(Done::Yes)
                    }
                    None => Err(Stopped::Aws(error)),
                }
            }
            Err(error) => {
                inventory.wrote_access_entry(cluster, principal);
                let field = match kind {
                    AccessKind::FargateLinux => "spec.eks-fargate.podExecutionRoleArn",
                    AccessKind::Ec2Linux | AccessKind::Ec2Windows => "spec.eks.configuration.roleName",
                };
                Err(self.refused_role(error, *own_role, field))
            }
        }
    }

    async fn remove_access_entry(&self, cluster: &str, principal: &str) -> Stepped {
        let inventory = self.a.inventory;
        match inventory.aws().eks.delete_access_entry(cluster, principal).await {
            Err(error) if !error.is_not_found() => {
                inventory.wrote_access_entry(cluster, principal);
                Err(Stopped::Aws(error))
            }
            Ok(()) | Err(_) => {
                inventory.gone_access_entry(cluster, principal);
                Ok(Done::Yes)
            }
        }
    }
}
