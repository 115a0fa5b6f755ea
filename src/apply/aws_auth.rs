//! The only writer of kube-system/aws-auth in this process. Edits that arrive during a write are
//! batched into the next one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;

use super::error::StepError;
use crate::auth::aws_auth::{self, AuthEntry, AwsAuthError};
use crate::k8s::{KubeApi, KubeError};

/// One change of `mapRoles`.
#[derive(Clone, Debug)]
pub(crate) enum AwsAuthEdit {
    /// Add the entry.
    Put(AuthEntry),
    /// Replace the entry that the controller added with this one, which has more groups.
    Widen(AuthEntry),
    /// Remove the entry, which the controller added.
    Remove(AuthEntry),
}

/// Whether an edit changed the map.
type EditResult = Result<bool, AwsAuthError>;

struct PendingEdit {
    id: u64,
    edit: AwsAuthEdit,
    reply: oneshot::Sender<EditResult>,
}

/// Batches concurrent edits into few writes, so that groups do not conflict with each other.
#[derive(Default)]
pub(crate) struct AwsAuthWriter {
    next_id: AtomicU64,
    pending: Mutex<Vec<PendingEdit>>,
    write_lock: tokio::sync::Mutex<()>,
}

impl AwsAuthWriter {
    /// Writes one edit to the ConfigMap. Returns when it is written, and whether it changed the map.
    ///
    /// An edit may wait for other writes and for a read, and the Lease may expire meanwhile. So `request_write` is
    /// called again.
    ///
    /// # Errors
    /// The API server rejected the write of this edit, the map cannot be edited, or this process may not write any
    /// more.
    pub(crate) async fn submit(
        &self,
        kube: &dyn KubeApi,
        edit: AwsAuthEdit,
        request_write: &(dyn Fn() -> bool + Sync),
    ) -> Result<bool, StepError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, mut receiver) = oneshot::channel();
        self.pending.lock().expect("lock is not poisoned").push(PendingEdit { id, edit, reply: sender });
        let _write_guard = self.write_lock.lock().await;
        if let Ok(result) = receiver.try_recv() {
            // Another task has written this edit with its own batch.
            return result.map_err(StepError::AwsAuth);
        }
        let batch = std::mem::take(&mut *self.pending.lock().expect("lock is not poisoned"));
        match write_batch(kube, &batch, request_write).await {
            Ok(outcomes) => {
                for (pending, outcome) in batch.into_iter().zip(outcomes) {
                    // The receiver is gone if its task was canceled.
                    let _ = pending.reply.send(outcome);
                }
                receiver.try_recv().unwrap_or(Ok(false)).map_err(StepError::AwsAuth)
            }
            Err(error) => {
                // The other edits stay pending: their own tasks write them and get their own result.
                let others = batch.into_iter().filter(|pending| pending.id != id && !pending.reply.is_closed());
                self.pending.lock().expect("lock is not poisoned").extend(others);
                Err(error)
            }
        }
    }
}

/// Reads the map without a cache, applies every edit that is valid, and replaces exactly the version that was read.
async fn write_batch(
    kube: &dyn KubeApi,
    batch: &[PendingEdit],
    request_write: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<EditResult>, StepError> {
    // Tasks that waited behind a refused write must not each read the map.
    if !request_write() {
        return Err(StepError::MayNotWrite);
    }
    let map = kube.aws_auth().await.map_err(StepError::Kube)?;
    let before = map.as_ref().and_then(|m| m.map_roles.as_deref());
    let mut document = match aws_auth::parse(before) {
        Ok(document) => document,
        Err(error) => return Ok(batch.iter().map(|_| Err(error.clone())).collect()),
    };
    let mut outcomes = Vec::new();
    for pending in batch {
        let edited = match &pending.edit {
            AwsAuthEdit::Put(entry) => document.with_entry(entry),
            AwsAuthEdit::Widen(entry) => document.with_widened_entry(entry),
            AwsAuthEdit::Remove(entry) => document.without_entries(std::slice::from_ref(&entry.role_arn)),
        };
        outcomes.push(match edited {
            Ok(Some(changed)) => {
                document = changed;
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        });
    }
    let written = match &map {
        _ if document.text == before.unwrap_or_default() => Ok(()),
        _ if !request_write() => return Err(StepError::MayNotWrite),
        // The API server would refuse each try.
        Some(map) if map.is_immutable => return Ok(refuse(outcomes, &AwsAuthError::Immutable)),
        Some(map) => kube.update_aws_auth(&map.resource_version, &document.text).await,
        None => kube.create_aws_auth(&document.text).await,
    };
    let rejected = match written {
        Ok(()) => return Ok(outcomes),
        Err(KubeError::Invalid { message: detail, .. }) => AwsAuthError::Rejected { detail },
        Err(error) => return Err(StepError::Kube(error)),
    };
    Ok(refuse(outcomes, &rejected))
}

/// The outcomes of edits that cannot be written. Those that change nothing need no write.
fn refuse(outcomes: Vec<EditResult>, error: &AwsAuthError) -> Vec<EditResult> {
    outcomes.into_iter().map(|edited| if edited == Ok(false) { edited } else { Err(error.clone()) }).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::auth::aws_auth::document::PARSED;
    use crate::k8s::{KubeClient, fake};

    fn entry(name: &str) -> AuthEntry {
        AuthEntry::for_nodes(&format!("arn:aws:iam::1:role/{name}"), false)
    }

    /// The data of the ConfigMap, the number of writes so far, and how many of the next writes fail with a conflict.
    type Server = Arc<Mutex<(Value, usize, usize)>>;

    /// An API server with one ConfigMap; the first `failing` writes fail with a conflict.
    fn fake_api_server(failing: usize) -> (Arc<KubeClient>, Server) {
        let state = Arc::new(Mutex::new((json!({"mapRoles": "# ours\n"}), 0, failing)));
        let shared = state.clone();
        let client = fake::client(move |call| {
            let mut state = shared.lock().expect("lock is not poisoned");
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
        let (kube, state) = fake_api_server(0);
        let writer = AwsAuthWriter::default();
        let names = ["a", "b", "c", "d"];
        let edits = names.map(|n| writer.submit(kube.as_ref(), AwsAuthEdit::Put(entry(n)), &|| true));
        assert!(futures::future::join_all(edits).await.into_iter().all(|r| r.is_ok()));
        let (data, writes, _) = state.lock().expect("lock is not poisoned").clone();
        let text = data["mapRoles"].as_str().unwrap_or_default();
        assert!(names.iter().all(|n| text.contains(&format!("role/{n}"))) && text.starts_with("# ours"), "{text}");
        assert!(writes < names.len(), "{writes} writes for {} edits", names.len());
    }

    /// At aws-auth's 1 MiB, each parse takes a tenth of a second.
    #[tokio::test]
    async fn each_text_of_a_batch_is_parsed_once() {
        let (kube, _) = fake_api_server(0);
        let edits = ["a", "b", "c", "a"].map(|name| AwsAuthEdit::Put(entry(name)));
        let edits = edits.into_iter().chain([AwsAuthEdit::Remove(entry("b"))]);
        let pending = edits.map(|edit| PendingEdit { id: 0, edit, reply: oneshot::channel().0 });
        let before = PARSED.with(std::cell::Cell::get);
        let outcomes = write_batch(kube.as_ref(), &pending.collect::<Vec<_>>(), &|| true).await.expect("a write");
        assert_eq!(outcomes, [true, true, true, false, true].map(Ok));
        assert_eq!(PARSED.with(std::cell::Cell::get) - before, 5, "the text that was read, and each changed one");
    }

    #[tokio::test]
    async fn conflict_fails_one_edit_and_the_others_are_written() {
        let (kube, state) = fake_api_server(1);
        let writer = AwsAuthWriter::default();
        let edits = ["a", "b", "c"].map(|n| writer.submit(kube.as_ref(), AwsAuthEdit::Put(entry(n)), &|| true));
        let failed = futures::future::join_all(edits).await.into_iter().filter(|r| r.is_err()).count();
        assert_eq!(failed, 1);
        let text = state.lock().expect("lock is not poisoned").0["mapRoles"].to_string();
        assert_eq!(text.matches("rolearn").count(), 2, "{text}");
    }

    /// Linux and Windows groups that share a role may both find that it has no entry.
    #[tokio::test]
    async fn entry_that_lacks_groups_is_not_a_success() {
        let (kube, state) = fake_api_server(0);
        let writer = AwsAuthWriter::default();
        let windows = AuthEntry::for_nodes("arn:aws:iam::1:role/a", true);
        let edits = [entry("a"), windows.clone()].map(|e| writer.submit(kube.as_ref(), AwsAuthEdit::Put(e), &|| true));
        let results = futures::future::join_all(edits).await;
        assert!(matches!(results[0], Ok(true)), "{results:?}");
        assert!(matches!(results[1], Err(StepError::AwsAuth(AwsAuthError::Conflict { .. }))), "{results:?}");
        for changed in [true, false] {
            let widened = writer.submit(kube.as_ref(), AwsAuthEdit::Widen(windows.clone()), &|| true).await;
            assert_eq!(widened.expect("the entry is widened"), changed);
        }
        let data = state.lock().expect("lock is not poisoned").0.clone();
        let text = data["mapRoles"].as_str().unwrap_or_default();
        assert!(text.starts_with("# ours") && text.contains("eks:kube-proxy-windows"), "{text}");
        assert_eq!(text.matches("rolearn").count(), 1, "{text}");
        let linux = writer.submit(kube.as_ref(), AwsAuthEdit::Put(entry("a")), &|| true).await;
        assert!(!linux.expect("Linux nodes can join"), "nothing was written");
    }

    #[tokio::test]
    async fn existing_entry_is_not_written_again() {
        let (kube, state) = fake_api_server(0);
        let writer = AwsAuthWriter::default();
        for changed in [true, false] {
            let written = writer.submit(kube.as_ref(), AwsAuthEdit::Put(entry("a")), &|| true).await;
            assert_eq!(written.expect("the entry is written"), changed);
        }
        assert_eq!(state.lock().expect("lock is not poisoned").1, 1);
    }

    /// No retry helps, so the message must name the remedy.
    #[tokio::test]
    async fn immutable_map_is_reported_for_each_group_that_needs_a_change() {
        let map = |immutable: bool| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "immutable": immutable, "data": {"mapRoles": ""},
                "metadata": {"name": "aws-auth", "resourceVersion": "1"}})
        };
        for (immutable, expected) in [(true, "create it again without `immutable`"), (false, "field is too long")] {
            let client = fake::client(move |call| match call.method.as_str() {
                "GET" => (200, map(immutable)),
                _ => fake::failure(422, "Invalid", "field is too long"),
            });
            let (kube, writer) = (KubeClient::new(client, "test"), AwsAuthWriter::default());
            let edits = ["a", "b"].map(|n| writer.submit(&kube, AwsAuthEdit::Put(entry(n)), &|| true));
            for result in futures::future::join_all(edits).await {
                let error = result.expect_err("it is rejected");
                assert_eq!(error.stalled_reason(), Some(crate::plan::StalledReason::AuthConflict), "{error}");
                assert!(error.to_string().contains(expected), "{error}");
            }
            let removed = writer.submit(&kube, AwsAuthEdit::Remove(entry("c")), &|| true).await;
            assert!(!removed.expect("there is nothing to remove"));
        }
    }

    /// The next leader may have decided otherwise about the entry by then.
    #[tokio::test]
    async fn process_that_loses_the_lease_while_an_edit_waits_does_not_write() {
        let (kube, state) = fake_api_server(0);
        let writer = AwsAuthWriter::default();
        let asked = AtomicU64::new(0);
        let is_leader_until_the_read = || asked.fetch_add(1, Ordering::Relaxed) == 0;
        let edits = ["a", "b"].map(|name| AwsAuthEdit::Put(entry(name)));
        let edits = edits.map(|edit| writer.submit(kube.as_ref(), edit, &is_leader_until_the_read));
        let results = futures::future::join_all(edits).await;
        assert!(results.iter().all(|result| matches!(result, Err(StepError::MayNotWrite))), "{results:?}");
        assert_eq!(state.lock().expect("lock is not poisoned").1, 0, "no write");
        let later = writer.submit(kube.as_ref(), AwsAuthEdit::Put(entry("c")), &|| true).await;
        assert!(later.expect("a leader writes"));
        let text = state.lock().expect("lock is not poisoned").0["mapRoles"].to_string();
        assert_eq!(text.matches("rolearn").count(), 1, "the refused edits are not written later: {text}");
    }
}
