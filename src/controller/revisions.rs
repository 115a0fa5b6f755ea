//! Stores each content of the ConfigMap `instance-manager` as a BoundariesRevision, if that kind is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;

use super::context::{Context, group_key};
use crate::api::names::CHANGE_CAUSE;
use crate::api::{GroupObject, InstanceGroupStatus, RevisionSource, rfc3339};
use crate::boundaries::active::ActiveBoundaries;
use crate::boundaries::{DEFAULT_HISTORY, content_hash};
use crate::index::cache_state::CacheState;
use crate::k8s::{KubeApi, KubeError};
use crate::rollout::{
    Current, History, HistoryWrite, UsedNumbers, has_texts, next_write, sorted, used_numbers as numbers_in_status,
};
use crate::util::text::shorten;

/// How many steps are tried in a row. Each removes one difference; only another writer makes more necessary.
const MAX_STEPS: usize = 20;

/// Stores the content of the live ConfigMap and, unless polls of a rollout do it, deletes what is too old. `before` is what
/// was active until now. Nothing is done without the kind, or when the content is no longer active.
///
/// # Errors
/// The API server did not answer, or denied a call. The history is then continued with the next edit or leader.
pub(crate) async fn store(
    kube: &dyn KubeApi,
    namespace: &str,
    live: &ConfigMap,
    before: Option<&BTreeMap<String, String>>,
    history: &History,
    is_active: impl Fn() -> bool,
) -> Result<(), KubeError> {
    let data = live.data.clone().unwrap_or_default();
    for _ in 0..MAX_STEPS {
        let Some(stored) = kube.boundaries_revisions(namespace).await? else { return Ok(()) };
        if !is_active() {
            return Ok(());
        }
        let from = RevisionSource { release: history.release.clone(), ..source(live) };
        match next_write(&stored, before, &Current { data: &data, from }, history, namespace) {
            None => return Ok(()),
            Some(HistoryWrite::Create(mut revision)) => {
                // A history begins with the content before this one, which had another cause.
                if has_texts(&revision, &content_hash(&data)) {
                    // An edit that left the annotation as it was has another cause.
                    let stored = sorted(&stored);
                    let last = stored.iter().rev().find_map(|old| old.annotations().get(CHANGE_CAUSE));
                    revision.metadata.annotations = change_cause(live).filter(|found| found.get(CHANGE_CAUSE) != last);
                }
                match kube.create_boundaries_revision(&revision).await {
                    // Another writer took the name meanwhile.
                    Err(error) if error.is_conflict() => {}
                    other => {
                        other?;
                        let (name, change) = (revision.name_any(), &revision.spec.from.change);
                        tracing::info!(revision = %name, hash = %revision.spec.hash, by = %revision.spec.from.manager, %change, "stored a revision of the boundaries");
                    }
                }
            }
            Some(HistoryWrite::Delete { name, uid }) => kube.delete_boundaries_revision(namespace, &name, &uid).await?,
        }
    }
    Ok(())
}

/// How many revisions are kept: by the policy of the ConfigMap, or by the one that continues without it.
pub(crate) fn kept(active: &ActiveBoundaries, ctx: &Context) -> usize {
    let view = ctx.stores.rollout.view();
    active.rollout().or(view.as_ref().map(|view| &view.policy)).map_or(DEFAULT_HISTORY, |policy| policy.history)
}

/// Which part of the history is kept: by the policy, and by the revisions that the status of a group names.
pub(crate) fn history(active: &ActiveBoundaries, ctx: &Context) -> History {
    let policy = active.rollout();
    let groups = ctx.stores.groups.state();
    let (needed, has_unknown_needs) = needs(&groups);
    let view = ctx.stores.rollout.view();
    History {
        release: policy.and_then(|policy| policy.release.clone()).unwrap_or_default(),
        kept: kept(active, ctx),
        needed,
        has_unknown_needs: has_unknown_needs || groups.iter().any(|group| is_behind(group, ctx)),
        is_deleted_by_polls: policy.is_some() || view.is_some(),
        policy_under_way: view.and_then(|view| view.policy_under_way()),
        used_numbers: used_numbers(ctx),
    }
}

/// The numbers of revisions that the statuses of groups name, and those that this process has seen stored.
pub(crate) fn used_numbers(ctx: &Context) -> UsedNumbers {
    let mut used = UsedNumbers::new();
    for group in ctx.stores.groups.state() {
        used.extend(status_of(&group).map(numbers_in_status).unwrap_or_default());
    }
    if let Some(view) = ctx.stores.rollout.view() {
        used.extend(view.stored.values().map(|stored| (stored.number, stored.hash.clone())));
    }
    used
}

/// The status of a group; `None` if it has none, or if it cannot be decoded.
fn status_of(group: &GroupObject) -> Option<&InstanceGroupStatus> {
    match &group.0 {
        Ok(group) => group.status.as_ref(),
        Err(invalid) => invalid.status.as_ref(),
    }
}

/// The contents that groups have or would return to, and whether that is unknown of some group.
fn needs(groups: &[Arc<GroupObject>]) -> (BTreeSet<String>, bool) {
    let (mut needed, mut has_unknown_needs) = (BTreeSet::new(), false);
    for group in groups {
        let Some(status) = status_of(group) else {
            has_unknown_needs |= group.0.is_err();
            continue;
        };
        let previous = status.rollout.as_ref().and_then(|record| record.previous.as_ref());
        for hash in status.boundaries_revision.iter().chain(previous) {
            if !needed.contains(hash) {
                needed.insert(hash.clone());
            }
        }
    }
    (needed, has_unknown_needs)
}

/// Whether the cache does not show what the controller wrote to a group: the revision to which it has just switched.
fn is_behind(group: &GroupObject, ctx: &Context) -> bool {
    let (version, now) = (group.resource_version(), Timestamp::now());
    let process_state = &ctx.planner.process_state;
    let state = process_state.own_writes(&group_key(group), |own| own.cache_state(version.as_deref(), now));
    state != CacheState::Current
}

/// Stores the active content again, which a user deleted. Its rollout begins again with the first wave.
///
/// # Errors
/// The API server did not answer, or denied a call.
pub(crate) async fn store_again(active: &ActiveBoundaries, ctx: &Context) -> Result<(), KubeError> {
    let live = ctx.stores.config_map.lock().await.clone();
    let data = |live: &ConfigMap| live.data.clone().unwrap_or_default();
    // While an edit is being loaded, the ConfigMap may be ahead.
    let Some(live) = live.as_present().filter(|live| content_hash(&data(live)) == active.revision) else {
        return Ok(());
    };
    let (kube, namespace) = (ctx.planner.kube.as_ref(), &ctx.config_namespace);
    let _turn = ctx.stores.revision_mutex.lock().await;
    let is_active = || ctx.can_write() && ctx.stores.boundaries.get().revision == active.revision;
    store(kube, namespace, live, None, &history(active, ctx), is_active).await
}

/// The longest cause of a change that is copied, in characters.
const MAX_CAUSE: usize = 300;

/// The annotation with the cause of the change; no other is copied, because GitOps tools know their objects by annotations.
fn change_cause(live: &ConfigMap) -> Option<BTreeMap<String, String>> {
    let cause = live.annotations().get(CHANGE_CAUSE).filter(|cause| !cause.trim().is_empty())?;
    Some([(CHANGE_CAUSE.to_owned(), shorten(cause, MAX_CAUSE))].into())
}

/// Who wrote the data of the ConfigMap last, and when, as the API server returns it.
fn source(live: &ConfigMap) -> RevisionSource {
    let writers = live.managed_fields().iter().filter(|entry| {
        let has_data = |fields: &serde_json::Value| fields.get("f:data").is_some();
        entry.subresource.is_none() && entry.fields_v1.as_ref().is_some_and(|fields| has_data(&fields.0))
    });
    let last = writers.max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    RevisionSource {
        manager: last.and_then(|entry| entry.manager.clone()).unwrap_or_default(),
        time: last.and_then(|entry| entry.time.as_ref()).map(|time| rfc3339(time.0)),
        resource_version: live.resource_version().unwrap_or_default(),
        release: String::new(),
        change: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;
    use crate::api::{BoundariesRevision, BoundariesRevisionSpec};

    /// The API server may refuse a call while it starts; the caller tries again. What is no longer active is not
    /// stored.
    #[tokio::test]
    async fn content_is_stored_while_it_is_active() {
        let created = Arc::new(Mutex::new(vec![]));
        let log = created.clone();
        let client = crate::k8s::fake::client(move |call| match call.method.as_str() {
            "POST" => {
                log.lock().unwrap().push(call.body["metadata"]["name"].as_str().unwrap_or_default().to_owned());
                crate::k8s::fake::failure(429, "TooManyRequests", "storage is initializing")
            }
            _ => (
                200,
                json!({"apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "BoundariesRevisionList", "metadata": {}, "items": []}),
            ),
        });
        let kube = crate::k8s::KubeClient::new(client, "test");
        let store = async |is_active: bool| {
            store(&kube, "im", &ConfigMap::default(), None, &History::default(), || is_active).await
        };
        assert!(store(true).await.is_err(), "the caller must learn that it is not stored");
        assert!(store(false).await.is_ok());
        assert_eq!(*created.lock().unwrap(), ["r1"]);
    }

    /// Two processes that both consider themselves leader store the same content once. That a name already exists is
    /// not an error.
    #[tokio::test]
    async fn content_that_two_processes_store_at_once_is_stored_once() {
        for same_content in [true, false] {
            let calls = Arc::new(Mutex::new(vec![]));
            let log = calls.clone();
            let data: BTreeMap<String, String> = [("defaults".to_owned(), "{}".to_owned())].into();
            let foreign =
                if same_content { data.clone() } else { [("defaults".to_owned(), "spec: {}".to_owned())].into() };
            let client = crate::k8s::fake::client(move |call| {
                let mut log = log.lock().unwrap();
                if call.method == "POST" {
                    log.push(call.body["metadata"]["name"].as_str().unwrap_or_default().to_owned());
                    if log.len() == 1 {
                        return crate::k8s::fake::failure(409, "AlreadyExists", "r1 exists");
                    }
                    return (201, call.body);
                }
                let other = |name: &str, number: i64, data: &BTreeMap<String, String>| {
                    let (hash, data) = (content_hash(data), data.clone());
                    json!(BoundariesRevision::new(
                        name,
                        BoundariesRevisionSpec { number, hash, data, ..Default::default() }
                    ))
                };
                let mut items = vec![];
                if !log.is_empty() {
                    items.push(other("r1", 1, &foreign));
                }
                if log.len() == 2 {
                    items.push(other("r2", 2, &[("defaults".to_owned(), "{}".to_owned())].into()));
                }
                (
                    200,
                    json!({"apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "BoundariesRevisionList", "metadata": {}, "items": items}),
                )
            });
            let kube = crate::k8s::KubeClient::new(client, "test");
            let live = ConfigMap { data: Some(data), ..ConfigMap::default() };
            store(&kube, "im", &live, None, &History::default(), || true).await.expect("it is stored");
            let expected: &[&str] = if same_content { &["r1"] } else { &["r1", "r2"] };
            assert_eq!(*calls.lock().unwrap(), expected, "the same content: {same_content}");
        }
    }

    /// A tenant's broken object must not take away what the group returns to once it is corrected.
    #[test]
    fn needs_of_groups_that_cannot_be_decoded_are_kept() {
        let group = |spec: serde_json::Value, status: serde_json::Value| -> Arc<GroupObject> {
            let object = json!({
                "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
                "metadata": {"name": "web", "namespace": "team"}, "spec": spec, "status": status,
            });
            Arc::new(serde_json::from_value(object).expect("an object"))
        };
        let status = || json!({"boundariesRevision": "one", "rollout": {"previous": "two"}});
        let hashes = |needs: BTreeSet<String>| needs.into_iter().collect::<Vec<_>>().join(" ");
        let found = |group| needs(&[group]);
        assert!(group(json!(7), status()).0.is_err() && group(json!({}), json!(7)).0.is_err());
        for (group, needed, is_unknown) in [
            (group(json!({}), status()), "one two", false),
            (group(json!(7), status()), "one two", false),
            (group(json!({}), json!(null)), "", false),
            (group(json!({}), json!(7)), "", true),
        ] {
            let (needs, has_unknown_needs) = found(group);
            assert_eq!((hashes(needs).as_str(), has_unknown_needs), (needed, is_unknown));
        }
    }

    /// The watch does not deliver that a group has just switched. The revision that it has by now must not be deleted: nothing
    /// would be changed of the group until its wave of the next one.
    #[tokio::test]
    async fn nothing_is_deleted_while_the_cache_does_not_show_a_switch() {
        let client = crate::k8s::fake::client(|call| panic!("unexpected call: {call:?}"));
        let mut test = crate::controller::fake::context(client);
        let web: GroupObject = serde_json::from_value(json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
            "metadata": {"name": "web", "namespace": "team", "resourceVersion": "7"}, "spec": {},
        }))
        .expect("an object");
        let event = kube::runtime::watcher::Event::Apply(web);
        test.groups.as_mut().expect("a writer").apply_watcher_event(&event);
        let has_unknown_needs = || history(&ActiveBoundaries::default(), &test.ctx).has_unknown_needs;
        assert!(!has_unknown_needs());
        test.ctx.planner.process_state.own_writes("team/web", |own| own.record("9", Timestamp::now()));
        assert!(has_unknown_needs());
        test.ctx.planner.process_state.own_writes("team/web", |own| own.record("7", Timestamp::now()));
        assert!(!has_unknown_needs(), "the cache shows it");
    }

    /// The person on call reads why the content changed. Another annotation would make a GitOps tool delete the revision.
    #[tokio::test]
    async fn only_the_cause_of_the_change_is_copied_from_the_config_map() {
        let created = Arc::new(Mutex::new(vec![]));
        let log = created.clone();
        let client = crate::k8s::fake::client(move |call| {
            let mut log = log.lock().unwrap();
            if call.method == "POST" {
                log.push(call.body.clone());
                return (201, call.body);
            }
            (
                200,
                json!({"apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "BoundariesRevisionList", "metadata": {}, "items": *log}),
            )
        });
        let kube = crate::k8s::KubeClient::new(client, "test");
        let data = |text: &str| -> BTreeMap<String, String> { [("defaults".to_owned(), text.to_owned())].into() };
        let annotations =
            [(CHANGE_CAUSE, "AMI 2026.08.20 (#4711)"), ("argocd.argoproj.io/tracking-id", "platform:/ConfigMap:im/x")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut live = ConfigMap { data: Some(data("spec: {}")), ..ConfigMap::default() };
        live.metadata.annotations = Some(annotations.into());
        let before = data("{}");
        store(&kube, "im", &live, Some(&before), &History::default(), || true).await.expect("it is stored");
        let cause = json!({CHANGE_CAUSE: "AMI 2026.08.20 (#4711)"});
        let found = || -> Vec<serde_json::Value> {
            created.lock().unwrap().iter().map(|revision| revision["metadata"]["annotations"].clone()).collect()
        };
        assert_eq!(found(), [json!(null), cause.clone()]);
        // A `kubectl edit` leaves the annotation of the change before.
        live.data = Some(data("spec: {eks: {}}"));
        store(&kube, "im", &live, None, &History::default(), || true).await.expect("it is stored");
        assert_eq!(found(), [json!(null), cause, json!(null)]);
    }

    #[test]
    fn last_writer_of_the_data_is_named() {
        let entry = |manager: &str, time: &str, fields: serde_json::Value| json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields});
        let map: ConfigMap = serde_json::from_value(
            json!({"metadata": {"name": "instance-manager", "resourceVersion": "7", "managedFields": [
                entry("argocd-controller", "2026-08-21T08:02:11Z", json!({"f:data": {"f:defaults": {}}})),
                entry("kubectl-edit", "2026-08-20T08:02:11Z", json!({"f:data": {"f:policy": {}}})),
                entry("kubectl-annotate", "2026-08-22T08:02:11Z", json!({"f:metadata": {}})),
            ]}}),
        )
        .unwrap();
        let source = source(&map);
        assert_eq!(
            (source.manager.as_str(), source.time.as_deref()),
            ("argocd-controller", Some("2026-08-21T08:02:11Z"))
        );
        assert_eq!(source.resource_version, "7");
    }
}
