//! Watches the ConfigMap `instance-manager`, activates its boundaries, and publishes their state for the admin.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client, ResourceExt};

use super::next_object;
use crate::api::BoundariesRevision;
use crate::api::annotations::is_unknown_switch;
use crate::api::names::{CONFIG_MAP, LAST_KNOWN_GOOD_CONFIG_MAP, annotation};
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource, ConfigMapData, select_active, without_live};
use crate::boundaries::{ConfigErrors, ConfigWarning};
use crate::controller::context::{Context, config_map_target, publish_event};
use crate::controller::planner::Planner;
use crate::controller::revisions;
use crate::controller::rollout;
use crate::controller::trigger::Trigger;
use crate::k8s::KubeError;
use crate::lock::is_locked;
use crate::plan::{Event, EventKind, EventReason, Write};
use crate::rollout::{RolloutView, policy_is_retained};

/// Watches the ConfigMap and never returns. Each edit is parsed once and enqueues every group. If the API server does
/// not store an edit, it is loaded again every minute.
pub(crate) async fn watch(client: Client, trigger: Trigger) {
    let ctx = trigger.context().clone();
    let api: Api<ConfigMap> = Api::namespaced(client, &ctx.config_namespace);
    let mut stream = std::pin::pin!(watch_object(api, CONFIG_MAP));
    let retry_interval = ctx.planner.settings.resync_period.min(Duration::from_secs(60));
    loop {
        let is_refused = ctx.stores.boundaries_not_stored.load(Ordering::Acquire);
        tokio::select! {
            edited = next_object(&mut stream, CONFIG_MAP) => {
                let Some(live) = edited else { return };
                *ctx.stores.config_map.lock().await = live;
                reload(&ctx).await;
            }
            () = tokio::time::sleep(retry_interval), if is_refused => {
                reload(&ctx).await;
                if ctx.stores.boundaries_not_stored.load(Ordering::Acquire) {
                    continue;
                }
            }
        }
        trigger.enqueue_all();
    }
}

/// Loads the boundaries from what the watch returned last, if it returned anything yet. Called for each edit, and after this
/// process became able to write: the previous leader may not have stored the last known good revision or published the
/// events. One call at a time, so that an older content never replaces a newer one.
pub(crate) async fn reload(ctx: &Arc<Context>) {
    let _turn = ctx.stores.reload_mutex.lock().await;
    while !ctx.stores.groups_synced.load(Ordering::Acquire) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    loop {
        let live = ctx.stores.config_map.lock().await.clone();
        if !live.is_queried() {
            return;
        }
        let reads = ctx.request_write();
        load(live.as_present(), reads, ctx).await;
        // A process that leads by now, or no longer, has a view of the rollout that is not its own.
        if ctx.can_write() == reads {
            return;
        }
    }
}

/// Loads the boundaries once. `reads`: whether this process could write when it began, so that it reads the stored revisions.
async fn load(live: Option<&ConfigMap>, reads: bool, ctx: &Arc<Context>) {
    let locked = live.is_some_and(|map| is_locked(map.annotations()));
    *ctx.stores.config_map_locked.write().expect("lock is not poisoned") = locked;
    let data = live.map(|m| m.data.clone().unwrap_or_default());
    let stored = read_last_known_good(ctx).await;
    let were_configured = ctx.stores.groups.state().iter().any(|group| group.may_have_had_boundaries());
    let (mut active, errors) = select_active(data.as_ref(), stored.as_ref(), were_configured);
    // Without the key `rollout`, a rollout may still be under way.
    let revisions = if reads { read_revisions(ctx).await } else { None };
    let is_served = !reads || revisions.is_some();
    let mut is_refused = active.rollout().is_some() && !is_served;
    if is_refused {
        active = without_live(NOT_SERVED.to_owned(), stored.as_ref());
    }
    let is_staged = active.rollout().is_some() || revisions.as_deref().is_some_and(policy_is_retained);
    let is_stored_first = active.source == BoundariesSource::Live && is_staged && ctx.request_write();
    if is_stored_first {
        // Before it becomes the last known good content, which a history begins with.
        match store_now(live, stored.as_ref(), &active, ctx).await {
            StoreResult::Stored => {}
            StoreResult::Rejected(error) => {
                is_refused = true;
                active = without_live(not_stored(&error), stored.as_ref());
            }
            // Its own load follows.
            StoreResult::Superseded => return,
        }
    }
    ctx.stores.boundaries_not_stored.store(is_refused, Ordering::Release);
    let content_warnings = active.warnings.len();
    warn_about_flags_and_times(&mut active, data.as_ref(), ctx);
    active.warnings.extend(live.and_then(|map| unknown_lock(map.annotations())));
    let valid = matches!(active.source, BoundariesSource::Live | BoundariesSource::NotConfigured);
    let is_change = |old: &ActiveBoundaries| {
        old.source != active.source || old.revision != active.revision || old.warnings != active.warnings
    };
    let old = ctx.stores.boundaries.get();
    // No leader may have published what this process activated while it did not lead.
    let reported = match ctx.stores.boundaries_reported.load(Ordering::Acquire) {
        true => old.clone(),
        false => Arc::default(),
    };
    let is_unreported = is_change(&reported);
    let news = News {
        is_not_stored: is_refused,
        ..News::since(&reported, &active, stored.as_ref() == data.as_ref(), content_warnings)
    };
    if is_change(&old) {
        let (source, why) = (active.source.name(), active.source.why());
        tracing::info!(source, revision = %active.revision, why, "boundaries activated");
        // They have no event, which the log would repeat.
        for warning in active.warnings.iter().take(news.known_warnings) {
            tracing::warn!(%warning, "a part of the boundaries has no effect or leaves a choice open");
        }
    }
    let is_live = active.source == BoundariesSource::Live;
    if ctx.is_leader() {
        if is_live
            && ctx.request_write()
            && let Some(data) = &data
        {
            store_last_known_good(data, &ctx.planner, &ctx.config_namespace, Timestamp::now()).await;
        }
        if is_unreported {
            publish_boundaries_events(live, &active, &news, errors.as_ref(), ctx).await;
        }
    }
    ctx.stores.boundaries_reported.store(ctx.is_leader(), Ordering::Release);
    let (revision, warnings) = (active.revision.clone(), active.warnings.len());
    let active = Arc::new(active);
    // The groups must know that the new content waits for its wave before they see it.
    let view = match reads && is_served {
        true => read_view(&active, ctx).await,
        false => None,
    };
    let has_view = view.is_some();
    if has_view {
        ctx.stores.rollout.set_view(view);
    }
    ctx.stores.boundaries.set(active);
    if !has_view {
        ctx.stores.rollout.set_view(None);
    }
    ctx.stores.rollout.set_read(reads);
    if is_live && !is_stored_first && ctx.request_write() {
        store_revision(live, stored, revision.clone(), ctx);
    }
    // Set last: once the metric shows a revision, every new plan uses it.
    ctx.metrics.set_boundaries(Some(revision.as_str()).filter(|r| !r.is_empty()), valid, warnings);
}

/// Adds warnings about parts of the live ConfigMap that depend on the flags of this process, or on the time.
fn warn_about_flags_and_times(active: &mut ActiveBoundaries, data: Option<&ConfigMapData>, ctx: &Context) {
    let data = data.filter(|_| active.source == BoundariesSource::Live);
    if let (Some(boundaries), Some(data)) = (&active.boundaries, data) {
        let has_cluster = ctx.planner.settings.cluster_name.is_some();
        active.warnings.extend(boundaries.flag_warnings(data, ctx.prometheus.is_some(), has_cluster));
        active.warnings.extend(boundaries.time_warnings(data, Timestamp::now()));
    }
}

/// The warning about a lock on the ConfigMap whose value does not lock. In an emergency, an admin would not notice a
/// wrong value.
fn unknown_lock(annotations: &BTreeMap<String, String>) -> Option<ConfigWarning> {
    let (key, value) = annotations.get_key_value(annotation::LOCK_UPGRADES)?;
    Some(ConfigWarning {
        key: "metadata.annotations".to_owned(),
        line: None,
        path: key.clone(),
        message: format!("{value:?} locks nothing"),
        remedy: "use \"true\" or \"false\"".to_owned(),
    })
    .filter(|_| is_unknown_switch(key, value))
}

/// Why a ConfigMap with the key `rollout` is not used.
const NOT_SERVED: &str = "the key rollout of the ConfigMap instance-manager needs the CustomResourceDefinition boundariesrevisions.instancemgr.keikoproj.io and permissions for it; apply both (instance-manager crd | kubectl apply -f - and deploy/rbac.yaml), or remove the key; the controller retries each minute";

/// The stored revisions; `None` when the API server does not serve the kind, or does not allow it. Retries until it answers:
/// what is not known could be a rollout that is under way.
async fn read_revisions(ctx: &Context) -> Option<Vec<BoundariesRevision>> {
    loop {
        match ctx.planner.kube.boundaries_revisions(&ctx.config_namespace).await {
            Ok(stored) => return stored,
            Err(KubeError::Forbidden { .. }) => return None,
            Err(error) => {
                tracing::warn!(%error, "cannot read the stored boundaries");
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    }
}

/// The rollout of the active content. Retries until the API server answers, or this process may no longer write.
async fn read_view(active: &Arc<ActiveBoundaries>, ctx: &Context) -> Option<Arc<RolloutView>> {
    while ctx.can_write() {
        match rollout::refresh(ctx, active).await {
            Ok(view) => return view,
            Err(error) => {
                tracing::warn!(%error, "cannot read the stored boundaries");
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    }
    None
}

/// The result of storing content; groups use it only once it is stored.
enum StoreResult {
    /// It is stored, or this process may no longer write.
    Stored,
    /// The API server rejects it; a retry cannot succeed before an admin changes something.
    Rejected(KubeError),
    /// The ConfigMap was edited meanwhile.
    Superseded,
}

/// Stores the content before any group sees it. Retries until the API server answers, this process may no longer write, or
/// another edit follows.
async fn store_now(
    live: Option<&ConfigMap>,
    before: Option<&ConfigMapData>,
    active: &ActiveBoundaries,
    ctx: &Arc<Context>,
) -> StoreResult {
    let Some(live) = live else { return StoreResult::Stored };
    let (kube, namespace) = (ctx.planner.kube.as_ref(), &ctx.config_namespace);
    let _turn = ctx.stores.revision_mutex.lock().await;
    let history = revisions::history(active, ctx);
    while let Err(error) = revisions::store(kube, namespace, live, before, &history, || ctx.can_write()).await {
        tracing::warn!(%error, "cannot store the boundaries as a BoundariesRevision");
        if matches!(error, KubeError::Forbidden { .. } | KubeError::Invalid { .. }) {
            return StoreResult::Rejected(error);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        if !ctx.can_write() {
            return StoreResult::Stored;
        }
        if ctx.stores.config_map.lock().await.as_present().and_then(|map| map.data.as_ref()) != live.data.as_ref() {
            return StoreResult::Superseded;
        }
    }
    StoreResult::Stored
}

/// Why a content is not used that a rollout takes to the groups.
fn not_stored(error: &KubeError) -> String {
    format!(
        "the ConfigMap instance-manager cannot be stored as a BoundariesRevision, which a rollout needs, because the API server refuses it: {error}; remove the cause, or the key rollout; the controller retries each minute"
    )
}

/// Adds the active content to the history, beside everything else. `before` is the last known good content, with which
/// a history begins. While the API server does not store it, the intervals grow; another content or leader ends it.
fn store_revision(live: Option<&ConfigMap>, before: Option<ConfigMapData>, revision: String, ctx: &Arc<Context>) {
    let (Some(live), ctx) = (live.cloned(), ctx.clone()) else { return };
    tokio::spawn(async move {
        let mut delay = Duration::from_secs(1);
        let (kube, namespace) = (ctx.planner.kube.as_ref(), &ctx.config_namespace);
        // Without it, a content that is no longer active could be stored after its successor.
        let _turn = ctx.stores.revision_mutex.lock().await;
        let is_active = || ctx.request_write() && ctx.stores.boundaries.get().revision == revision;
        let history = revisions::history(&ctx.stores.boundaries.get(), &ctx);
        while let Err(error) = revisions::store(kube, namespace, &live, before.as_ref(), &history, is_active).await {
            tracing::warn!(%error, "cannot store the boundaries as a BoundariesRevision");
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(ctx.planner.settings.resync_period);
        }
    });
}

/// Stores a valid revision. While another writer puts another one in its place, the intervals grow.
async fn store_last_known_good(data: &ConfigMapData, planner: &Planner, namespace: &str, now: Timestamp) {
    let (process_state, resync) = (&planner.process_state, planner.settings.resync_period);
    let write = Write::new(LAST_KNOWN_GOOD_CONFIG_MAP, "data", data);
    if !process_state.other_writes(|writes| writes.is_due(&write, resync, now)) {
        return;
    }
    match planner.kube.put_last_known_good(namespace, data).await {
        Err(error) => tracing::warn!(%error, "cannot store the last known good boundaries"),
        Ok(false) => {}
        Ok(true) => {
            if process_state.other_writes(|writes| writes.record_write(write, String::new, now)) {
                tracing::warn!(
                    "the ConfigMap {LAST_KNOWN_GOOD_CONFIG_MAP} is changed each time it is written; find the other writer in metadata.managedFields"
                );
            }
        }
    }
}

/// Reads the last known good revision. Retries until the API server answers; the active boundaries stay until then.
async fn read_last_known_good(ctx: &Context) -> Option<ConfigMapData> {
    loop {
        match ctx.planner.kube.last_known_good(&ctx.config_namespace).await {
            Ok(stored) => return stored,
            Err(error) => {
                tracing::warn!(%error, "cannot read the last known good boundaries");
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    }
}

/// Publishes the state of the boundaries as events on the ConfigMap, for the admin.
async fn publish_boundaries_events(
    live: Option<&ConfigMap>,
    active: &ActiveBoundaries,
    news: &News,
    errors: Option<&ConfigErrors>,
    ctx: &Context,
) {
    let target = config_map_target(&ctx.config_namespace, CONFIG_MAP, live);
    for event in boundaries_events(active, news, errors) {
        publish_event(&target, &event, ctx).await;
    }
}

/// What was not published on the ConfigMap yet.
struct News {
    /// The content was not active before.
    is_newly_active: bool,
    /// How many of the first warnings were published: a process that stored this content as the last known good one did
    /// it.
    known_warnings: usize,
    /// The ConfigMap is not used because it cannot be stored as a BoundariesRevision.
    is_not_stored: bool,
}

impl News {
    /// Compares the active boundaries with those that were published last. After a start or a change of leader that
    /// state is unknown; `is_stored` is whether the last known good content equals the active one. Only the first
    /// `content_warnings` warnings were then published.
    fn since(old: &ActiveBoundaries, active: &ActiveBoundaries, is_stored: bool, content_warnings: usize) -> Self {
        let has_started = old.source == BoundariesSource::Unknown;
        let has_changed = old.source != active.source || old.revision != active.revision;
        News {
            is_newly_active: if has_started { !is_stored } else { has_changed },
            known_warnings: if has_started && is_stored { content_warnings } else { 0 },
            is_not_stored: false,
        }
    }
}

/// The events about the state of the boundaries. Each error has an event of its own: a message has a maximum length.
fn boundaries_events(active: &ActiveBoundaries, news: &News, errors: Option<&ConfigErrors>) -> Vec<Event> {
    let new_warnings = active.warnings.iter().skip(news.known_warnings);
    let mut events: Vec<_> =
        new_warnings.map(|w| Event::warning(EventReason::BoundariesWarning, w.to_string())).collect();
    match (&active.source, errors) {
        (BoundariesSource::LastKnownGood(why) | BoundariesSource::Unavailable(why), errors) => {
            let effect = match &active.source {
                BoundariesSource::LastKnownGood(_) => format!("revision {} stays active", active.revision),
                _ => "no AWS changes will be made until the ConfigMap is fixed".to_owned(),
            };
            let Some(errors) = errors else {
                let reason = match news.is_not_stored {
                    true => EventReason::BoundariesNotStored,
                    false => EventReason::BoundariesMissing,
                };
                events.push(Event::warning(reason, format!("{why}; {effect}")));
                return events;
            };
            let listed = errors.errors.iter().map(|error| (error.reason(), error.to_string()));
            let omission = errors.omission().map(|omission| (errors.reason(), omission));
            events.extend(listed.chain(omission).map(|(reason, error)| {
                Event::for_condition(
                    EventKind::Warning,
                    reason,
                    format!("the ConfigMap instance-manager is invalid: {error}; {effect}"),
                )
            }));
        }
        (BoundariesSource::Live, _) if news.is_newly_active => events
            .push(Event::normal(EventReason::BoundariesApplied, format!("revision {} is active", active.revision))),
        (
            BoundariesSource::Live
            | BoundariesSource::NotConfigured
            | BoundariesSource::Unknown
            | BoundariesSource::RevisionMissing(_),
            _,
        ) => {}
    }
    events
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};

    use super::*;
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::index::nodes::NodeIndex;
    use crate::util::lookup::Lookup;

    /// Another writer restores its own value each second, and the ConfigMap `instance-manager` is edited as often. An
    /// admin who sets the lock in an emergency would not notice a typing error.
    #[test]
    fn ineffective_lock_on_the_config_map_causes_a_warning() {
        let warned = |value: &str| unknown_lock(&BTreeMap::from([(annotation::LOCK_UPGRADES.into(), value.into())]));
        assert_eq!(["true", "yes", "false", "", "off"].map(warned), [const { None }; 5]);
        let warning = warned("ture").expect("a warning").to_string();
        assert!(warning.contains("lock-upgrades") && warning.contains("\"ture\" locks nothing"), "{warning}");
    }

    /// An admin who reads the events of the ConfigMap would look for an edit that did not happen, after each restart of
    /// the controller. The end of an error is news, also when the old content is back.
    #[test]
    fn restart_of_the_controller_does_not_announce_the_content_again() {
        let data = |text: &str| Some(ConfigMapData::from([("boundaries".to_owned(), text.to_owned())]));
        let good = data("restricted: [spec.eks.configuration.image]");
        let active = |live: &Option<ConfigMapData>| select_active(live.as_ref(), good.as_ref(), true);
        let announced = |old: &ActiveBoundaries, live: &Option<ConfigMapData>| {
            let (active, errors) = active(live);
            let news = News::since(old, &active, *live == good, active.warnings.len());
            let events = boundaries_events(&active, &news, errors.as_ref());
            events.iter().any(|event| event.reason == EventReason::BoundariesApplied.to_string())
        };
        let started = ActiveBoundaries::default();
        assert!(started.source == BoundariesSource::Unknown);
        assert!(!announced(&started, &good), "nothing changed while no controller ran");
        assert!(announced(&started, &data("restricted: [spec.eks.maxSize]")), "it was edited meanwhile");
        let broken = active(&data("restricted: [")).0;
        assert!(announced(&broken, &good), "the last known good content is live again");
        assert!(!announced(&active(&good).0, &good));
    }

    /// The metric shows the warnings all the time. A warning about a flag or the lock is not about the stored content,
    /// so it is repeated.
    #[test]
    fn restart_of_the_controller_does_not_repeat_warnings_about_the_content() {
        let data = ConfigMapData::from([("boundaries".to_owned(), "restricted: [spec.eks.no.such.field]".to_owned())]);
        let mut active = select_active(Some(&data), Some(&data), true).0;
        let of_content = active.warnings.len();
        assert!(of_content > 0);
        active.warnings.extend(unknown_lock(&BTreeMap::from([(annotation::LOCK_UPGRADES.into(), "ture".into())])));
        let warned = |old: &ActiveBoundaries, is_stored| {
            boundaries_events(&active, &News::since(old, &active, is_stored, of_content), None)
                .iter()
                .filter(|event| event.has_reason(EventReason::BoundariesWarning))
                .count()
        };
        let started = ActiveBoundaries::default();
        assert_eq!(warned(&started, true), 1, "only the one about the lock");
        assert_eq!(warned(&started, false), of_content + 1, "the content was edited while no controller ran");
        let other = select_active(None, None, false).0;
        assert_eq!(warned(&other, true), of_content + 1, "the content is live again");
    }

    /// An admin edits the ConfigMap while no controller leads. The admin reads in the events of the ConfigMap whether
    /// the edit is valid and active. What the leader before has published is not repeated.
    #[tokio::test]
    async fn new_leader_publishes_what_it_loaded_while_nobody_led() {
        let good = "restricted: [spec.eks.maxSize]";
        for (edit, stored, expected) in [
            (good, None, vec!["BoundariesWarning", "BoundariesApplied"]),
            (good, Some(good), vec![]),
            ("restricted: [", Some(good), vec!["UnmarshalDefaults"]),
        ] {
            let reasons = Arc::new(Mutex::new(vec![]));
            let log = reasons.clone();
            let client = crate::k8s::fake::client(move |call| match call.route() {
                ("POST", path) if path.contains("/events") => {
                    log.lock().unwrap().push(call.body["reason"].as_str().unwrap_or_default().to_owned());
                    (201, call.body)
                }
                ("GET", path) if path.ends_with(LAST_KNOWN_GOOD_CONFIG_MAP) && stored.is_some() => {
                    let data = json!({"boundaries": stored});
                    (200, json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}, "data": data}))
                }
                ("GET", path) if path.ends_with("boundariesrevisions") => {
                    (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}))
                }
                ("GET", _) => crate::k8s::fake::failure(404, "NotFound", "there is none"),
                _ => crate::k8s::fake::failure(403, "Forbidden", "not now"),
            });
            let mut ctx = context(client);
            let lead = |ctx: &mut Arc<Context>, leadership| {
                Arc::get_mut(ctx).expect("no task writes meanwhile").leadership = leadership;
            };
            lead(&mut ctx, crate::leader::election::Leadership::lost());
            let data = Some([("boundaries".to_owned(), edit.to_owned())].into());
            *ctx.stores.config_map.lock().await = Lookup::Present(ConfigMap { data, ..ConfigMap::default() });
            reload(&ctx).await;
            assert_eq!(*reasons.lock().unwrap(), [""; 0], "a standby publishes nothing");
            lead(&mut ctx, crate::leader::election::always());
            for _ in 0..2 {
                tokio::time::timeout(Duration::from_secs(5), reload(&ctx)).await.expect("it waits for nothing");
                let mut published = reasons.lock().unwrap().clone();
                published.dedup();
                assert_eq!(published, expected, "{edit} {stored:?}");
            }
        }
    }

    #[tokio::test]
    async fn stored_revision_is_not_fought_over() {
        let (stored, written) = (Arc::new(Mutex::new(json!({"boundaries": "theirs"}))), Arc::new(Mutex::new(0)));
        let (shown, count) = (stored.clone(), written.clone());
        let client = crate::k8s::fake::client(move |call| {
            if call.method == "PUT" {
                *shown.lock().unwrap() = call.body["data"].clone();
                *count.lock().unwrap() += 1;
            }
            let metadata = json!({"name": LAST_KNOWN_GOOD_CONFIG_MAP, "resourceVersion": "1"});
            (
                200,
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": *shown.lock().unwrap()}),
            )
        });
        let planner = crate::controller::fake::planner(&Arc::new(FakeAws::default()), client, NodeIndex::default());
        let data = |text: &str| ConfigMapData::from([("boundaries".to_owned(), text.to_owned())]);
        for second in 0..180 {
            let now = Timestamp::from_second(second).expect("a time");
            store_last_known_good(&data("ours"), &planner, "im", now).await;
            *stored.lock().unwrap() = json!({"boundaries": "theirs"});
        }
        let repeated = *written.lock().unwrap();
        assert!((3..=8).contains(&repeated), "{repeated} writes in three minutes");
        let now = Timestamp::from_second(181).expect("a time");
        store_last_known_good(&data("another revision"), &planner, "im", now).await;
        assert_eq!(*written.lock().unwrap(), repeated + 1, "another value is stored at once");
        store_last_known_good(&data("another revision"), &planner, "im", now).await;
        assert_eq!(*written.lock().unwrap(), repeated + 1, "it is stored already");
    }

    /// An admin reverts an edit while this process is elected. The reverted edit must not stay active.
    #[tokio::test]
    async fn boundaries_of_an_older_edit_never_replace_those_of_a_newer_one() {
        let failures = Arc::new(Mutex::new(1));
        let client = crate::k8s::fake::client(move |call| {
            let mut failures = failures.lock().unwrap();
            match call.route() {
                ("GET", path) if path.ends_with(LAST_KNOWN_GOOD_CONFIG_MAP) && *failures > 0 => {
                    *failures -= 1;
                    crate::k8s::fake::failure(500, "InternalError", "try again")
                }
                ("GET", path) if path.ends_with("boundariesrevisions") => {
                    (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}))
                }
                ("GET", _) => crate::k8s::fake::failure(404, "NotFound", "there is none"),
                _ => crate::k8s::fake::failure(403, "Forbidden", "not now"),
            }
        });
        let ctx = crate::controller::fake::context(client).ctx;
        ctx.stores.groups_synced.store(true, Ordering::Release);
        let live = |boundaries: &str| {
            let data = Some([("boundaries".to_owned(), boundaries.to_owned())].into());
            Lookup::Present(ConfigMap { data, ..ConfigMap::default() })
        };
        let (older, newer) = ("restricted: [spec.eks.configuration.image]", "restricted: [spec.eks.maxSize]");
        *ctx.stores.config_map.lock().await = live(older);
        let edit = async {
            // The older content waits for the API server.
            tokio::time::sleep(Duration::from_millis(100)).await;
            *ctx.stores.config_map.lock().await = live(newer);
            reload(&ctx).await;
        };
        futures::join!(reload(&ctx), edit);
        let data = [("boundaries".to_owned(), newer.to_owned())].into();
        assert_eq!(ctx.stores.boundaries.get().revision, select_active(Some(&data), None, false).0.revision);
    }

    /// A change would wait for the end of the freeze, and its admin would not learn that there is none.
    #[tokio::test]
    async fn policy_that_never_opens_is_warned_about_once() {
        let (events, stored) = (Arc::new(Mutex::new(vec![])), Arc::new(Mutex::new(Vec::<Value>::new())));
        let log = events.clone();
        let ctx = context(crate::k8s::fake::client(move |call| match call.route() {
            (_, path) if path.contains("/events") => {
                log.lock().unwrap().push(format!("{} {}", call.body["reason"], call.body["note"]));
                (201, call.body)
            }
            ("GET", path) if path.ends_with("boundariesrevisions") => {
                let items = stored.lock().unwrap().clone();
                (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
            }
            ("POST", path) if path.ends_with("boundariesrevisions") => {
                stored.lock().unwrap().push(call.body.clone());
                (201, call.body)
            }
            ("GET", _) => crate::k8s::fake::failure(404, "NotFound", "there is none"),
            _ => crate::k8s::fake::failure(403, "Forbidden", "not now"),
        }));
        edit(&ctx, "maxSize", Some("freezes: [{from: 2020-01-01, to: 9999-12-31, zone: UTC}]")).await;
        let first = events.lock().unwrap().clone();
        let is_warning = |event: &&String| event.contains("BoundariesWarning") && event.contains("leave no opening");
        assert_eq!(first.iter().filter(is_warning).count(), 1, "{first:?}");
        for _ in 0..2 {
            tokio::time::timeout(Duration::from_secs(5), reload(&ctx)).await.expect("it waits for nothing");
        }
        assert_eq!(*events.lock().unwrap(), first, "nothing is repeated");
    }

    const POLICY: Option<&str> = Some("waves: [{name: all}]");

    /// A context whose API server stores revisions, but none with the text that an admission policy denies.
    fn storing(stored: &Arc<Mutex<Vec<Value>>>, denied: &Arc<Mutex<&'static str>>) -> Arc<Context> {
        let (stored, denied) = (stored.clone(), denied.clone());
        context(crate::k8s::fake::client(move |call| match call.route() {
            ("GET", path) if path.ends_with("boundariesrevisions") => {
                let items = stored.lock().unwrap().clone();
                (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
            }
            ("POST", path) if path.ends_with("boundariesrevisions") => {
                if call.body.to_string().contains(*denied.lock().unwrap()) {
                    return crate::k8s::fake::failure(403, "Forbidden", "the policy no-sizes denies it");
                }
                stored.lock().unwrap().push(call.body.clone());
                (201, call.body.clone())
            }
            ("GET", _) => crate::k8s::fake::failure(404, "NotFound", "there is none"),
            _ => crate::k8s::fake::failure(403, "Forbidden", "not now"),
        }))
    }

    fn context(client: Client) -> Arc<Context> {
        let ctx = crate::controller::fake::context(client).ctx;
        ctx.stores.groups_synced.store(true, Ordering::Release);
        ctx
    }

    /// An admin edits which field is restricted, and the key `rollout`.
    async fn edit(ctx: &Arc<Context>, field: &str, policy: Option<&str>) {
        let boundaries = ("boundaries".to_owned(), format!("restricted: [spec.eks.{field}]"));
        let policy = policy.map(|text| ("rollout".to_owned(), text.to_owned()));
        let data = Some([boundaries].into_iter().chain(policy).collect());
        *ctx.stores.config_map.lock().await = Lookup::Present(ConfigMap { data, ..ConfigMap::default() });
        tokio::time::timeout(Duration::from_secs(5), reload(ctx)).await.expect("no edit waits");
    }

    /// Why the live ConfigMap is not used, and is tried again; `None` when it is active.
    fn refusal(ctx: &Context) -> Option<String> {
        let (active, is_refused) =
            (ctx.stores.boundaries.get(), ctx.stores.boundaries_not_stored.load(Ordering::Acquire));
        assert_eq!(active.source == BoundariesSource::Live, !is_refused, "{:?}", active.source);
        active.source.why().map(str::to_owned)
    }

    /// An admission policy may refuse the BoundariesRevision of one content. Later edits must not wait for it.
    #[tokio::test]
    async fn content_that_cannot_be_stored_is_not_active_and_does_not_delay_later_edits() {
        let (stored, denied) = (Arc::default(), Arc::new(Mutex::new("maxSize")));
        let ctx = storing(&stored, &denied);
        edit(&ctx, "maxSize", POLICY).await;
        let why = refusal(&ctx).expect("it is refused");
        assert!(why.contains("the policy no-sizes denies it") && why.contains("remove the cause"), "{why}");
        edit(&ctx, "configuration.image", POLICY).await;
        assert_eq!(refusal(&ctx), None);
        edit(&ctx, "maxSize", POLICY).await;
        assert!(refusal(&ctx).is_some());
        *denied.lock().unwrap() = "nothing";
        reload(&ctx).await;
        assert_eq!((refusal(&ctx), stored.lock().unwrap().len()), (None, 2));
    }

    /// An admin would look for an error in a ConfigMap that has none, and `lint` would find nothing.
    #[tokio::test]
    async fn valid_content_that_cannot_be_stored_is_not_called_missing() {
        let events = Arc::new(Mutex::new(vec![]));
        let log = events.clone();
        let ctx = context(crate::k8s::fake::client(move |call| match call.route() {
            ("POST", path) if path.contains("/events") => {
                log.lock().unwrap().push(format!("{} {}", call.body["reason"], call.body["note"]));
                (201, call.body)
            }
            ("GET", path) if path.ends_with("boundariesrevisions") => {
                (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}))
            }
            ("GET", _) => crate::k8s::fake::failure(404, "NotFound", "there is none"),
            _ => crate::k8s::fake::failure(403, "Forbidden", "the policy no-sizes denies it"),
        }));
        edit(&ctx, "maxSize", POLICY).await;
        let events = events.lock().unwrap();
        let is_about = |reason: &str, cause: &str| events.iter().any(|e| e.contains(reason) && e.contains(cause));
        assert!(is_about("BoundariesNotStored", "the policy no-sizes denies it"), "{events:?}");
        assert!(!is_about("BoundariesMissing", ""), "{events:?}");
    }

    /// An edit loses the key `rollout` while a change is under way. It must be stored with the policy of that change
    /// before any group sees it. Otherwise all groups would switch to it at once.
    #[tokio::test]
    async fn edit_that_loses_the_policy_is_stored_before_groups_see_it() {
        let (stored, denied) = (Arc::default(), Arc::new(Mutex::new("minSize")));
        let ctx = storing(&stored, &denied);
        for field in ["configuration.image", "maxSize"] {
            edit(&ctx, field, POLICY).await;
        }
        edit(&ctx, "minSize", None).await;
        assert!(refusal(&ctx).is_some());
        *denied.lock().unwrap() = "nothing";
        reload(&ctx).await;
        assert_eq!((refusal(&ctx), stored.lock().unwrap().len()), (None, 3));
        let view = ctx.stores.rollout.view().expect("a rollout");
        assert_eq!((view.target.name.as_str(), view.is_retained_policy), ("r3", true));
    }

    /// An admin writes waves, and the kind is not installed or may not be read. The change must not reach every group
    /// at once because of that.
    #[tokio::test]
    async fn policy_without_the_kind_or_without_the_right_to_read_it_is_not_active() {
        for kind in ["InstanceGroup", "BoundariesRevision"] {
            let ctx = context(crate::k8s::fake::client(move |call| match call.route() {
                ("GET", "/apis/instancemgr.keikoproj.io/v1alpha1") => {
                    let kind = json!({"name": "x", "singularName": "", "kind": kind, "namespaced": true, "verbs": []});
                    let version = "instancemgr.keikoproj.io/v1alpha1";
                    (
                        200,
                        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [kind]}),
                    )
                }
                ("GET", path) if path.ends_with(LAST_KNOWN_GOOD_CONFIG_MAP) => {
                    crate::k8s::fake::failure(404, "NotFound", "there is none")
                }
                _ => crate::k8s::fake::failure(403, "Forbidden", "it is not allowed"),
            }));
            edit(&ctx, "maxSize", POLICY).await;
            let why = refusal(&ctx).unwrap_or_default();
            assert!(why.contains("needs the CustomResourceDefinition boundariesrevisions"), "{kind}: {why}");
            edit(&ctx, "maxSize", None).await;
            assert_eq!(refusal(&ctx), None, "{kind}: without waves nothing is missing");
        }
    }
}
