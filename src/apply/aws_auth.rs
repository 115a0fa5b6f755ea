//! The one writer of kube-system/aws-auth in this process: what waits while
//! one write is under way goes into the next one together.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;

use super::StepError;
use crate::auth::aws_auth::{self, AuthEntry, AwsAuthError};
use crate::k8s::{KubeApi, KubeError};

/// One change of the map.
#[derive(Clone, Debug)]
pub enum AwsAuthEdit {
    /// This entry is to be there.
    Put(AuthEntry),
    /// This entry of ours is to be gone.
    Remove(AuthEntry),
}

struct PendingEdit {
    id: u64,
    edit: AwsAuthEdit,
    reply: oneshot::Sender<Result<(), AwsAuthError>>,
}

/// Collects edits and writes them.
#[derive(Default)]
pub struct AwsAuthWriter {
    next_id: AtomicU64,
    pending: Mutex<Vec<PendingEdit>>,
    write_lock: tokio::sync::Mutex<()>,
}

impl AwsAuthWriter {
    /// Returns when the edit stands in the ConfigMap, or why it does not.
    ///
    /// # Errors
    /// What the API server answers to this edit's own write, or that the map cannot be edited.
    pub async fn submit(&self, cluster: &dyn KubeApi, edit: AwsAuthEdit) -> Result<(), StepError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, mut receiver) = oneshot::channel();
        self.pending.lock().expect("nobody panics holding it").push(PendingEdit { id, edit, reply: sender });
        let _turn = self.write_lock.lock().await;
        if let Ok(answer) = receiver.try_recv() {
            // Somebody else's turn has written it along.
            return answer.map_err(StepError::Auth);
        }
        let jobs = std::mem::take(&mut *self.pending.lock().expect("nobody panics holding it"));
        match write_batch(cluster, &jobs).await {
            Ok(outcomes) => {
                for (job, outcome) in jobs.into_iter().zip(outcomes) {
                    // One that has given up waiting needs no answer.
                    let _ = job.reply.send(outcome);
                }
                receiver.try_recv().unwrap_or(Ok(())).map_err(StepError::Auth)
            }
            Err(error) => {
                // The others take their own turn, and get their own answer.
                let others = jobs.into_iter().filter(|job| job.id != id && !job.reply.is_closed());
                self.pending.lock().expect("nobody panics holding it").extend(others);
                Err(StepError::Cluster(error))
            }
        }
    }
}

/// A fresh read, all edits that can be made, and one write of exactly that version.
async fn write_batch(cluster: &dyn KubeApi, jobs: &[PendingEdit]) -> Result<Vec<Result<(), AwsAuthError>>, KubeError> {
    let map = cluster.aws_auth().await?;
    let before = map.as_ref().and_then(|m| m.map_roles.clone());
    let mut text = before.clone();
    let mut outcomes = Vec::new();
    for job in jobs {
        let edited = match &job.edit {
            AwsAuthEdit::Put(entry) => aws_auth::add_entries(text.as_deref(), std::slice::from_ref(entry)),
            AwsAuthEdit::Remove(entry) => {
                aws_auth::remove_entries(text.as_deref(), std::slice::from_ref(&entry.role_arn))
            }
        };
        outcomes.push(edited.map(|edited| text = edited.or(text.take())));
    }
    match (&map, text) {
        (Some(map), Some(text)) if before.as_ref() != Some(&text) => {
            cluster.update_aws_auth(&map.resource_version, &text).await?
        }
        (None, Some(text)) => cluster.create_aws_auth(&text).await?,
        (_, _) => {}
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::k8s::{KubeClient, fake};

    fn entry(name: &str) -> AuthEntry {
        AuthEntry::for_nodes(&format!("arn:aws:iam::1:role/{name}"), false)
    }

    /// The map's data, the writes so far, and how many of the next ones are conflicts.
    type Server = Arc<Mutex<(Value, usize, usize)>>;

    /// An API server with one ConfigMap; the `failing` first writes are conflicts.
    fn fake_api_server(failing: usize) -> (Arc<KubeClient>, Server) {
        let state = Arc::new(Mutex::new((json!({"mapRoles": "# ours\n"}), 0, failing)));
        let seen = state.clone();
        let client = fake::client(move |call| {
            let mut state = seen.lock().expect("nobody panics holding it");
            if call.method != "GET" {
                state.1 += 1;
                if state.2 > 0 {
                    state.2 -= 1;
                    return (
                        409,
                        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409, "message": "changed"}),
                    );
                }
                state.0 = call.body["data"].clone();
            }
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "aws-auth", "resourceVersion": "1"}, "data": state.0});
            (200, map)
        });
        (Arc::new(KubeClient::new(client, "test")), state)
    }

    #[tokio::test]
    async fn concurrent_edits_are_batched_into_one_write() {
        let (cluster, state) = fake_api_server(0);
        let joining = AwsAuthWriter::default();
        let names = ["a", "b", "c", "d"];
        let edits = names.map(|n| joining.submit(cluster.as_ref(), AwsAuthEdit::Put(entry(n))));
        assert!(futures::future::join_all(edits).await.into_iter().all(|r| r.is_ok()));
        let (data, writes, _) = state.lock().expect("nobody panics holding it").clone();
        let text = data["mapRoles"].as_str().unwrap_or_default();
        assert!(names.iter().all(|n| text.contains(&format!("role/{n}"))) && text.starts_with("# ours"), "{text}");
        assert!(writes < names.len(), "{writes} writes for {} edits", names.len());
    }

    #[tokio::test]
    async fn a_conflict_fails_one_edit_and_the_others_are_written() {
        let (cluster, state) = fake_api_server(1);
        let joining = AwsAuthWriter::default();
        let edits = ["a", "b", "c"].map(|n| joining.submit(cluster.as_ref(), AwsAuthEdit::Put(entry(n))));
        let failed = futures::future::join_all(edits).await.into_iter().filter(|r| r.is_err()).count();
        assert_eq!(failed, 1);
        let text = state.lock().expect("nobody panics holding it").0["mapRoles"].to_string();
        assert_eq!(text.matches("rolearn").count(), 2, "{text}");
    }

    #[tokio::test]
    async fn existing_entry_is_not_written_again() {
        let (cluster, state) = fake_api_server(0);
        let joining = AwsAuthWriter::default();
        for _ in 0..2 {
            joining.submit(cluster.as_ref(), AwsAuthEdit::Put(entry("a"))).await.expect("it is put");
        }
        assert_eq!(state.lock().expect("nobody panics holding it").1, 1);
    }
}
