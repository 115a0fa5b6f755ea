//! Edits of the ConfigMap, and what a process publishes and stores of them.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, OnceLock};

use serde_json::{Value, json};

use super::events::boundaries_events;
use super::stored::store_last_known_good;
use super::*;
use crate::api::names::LAST_KNOWN_GOOD_CONFIG_MAP;
use crate::api::{BoundariesRevision, BoundariesRevisionSpec, RolloutPhase};
use crate::aws::inventory::fake_aws::FakeAws;
use crate::index::nodes::NodeIndex;
use crate::plan::EventReason;

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
async fn new_leader_publishes_what_it_loaded_without_a_leader() {
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
        (200, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": *shown.lock().unwrap()}))
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

/// Another writer changes the copy of the content at the same moment. Once the ConfigMap is broken or deleted, every
/// group would return to the content before.
#[tokio::test]
async fn content_whose_copy_was_not_stored_stays_active_and_is_stored_again() {
    let copy = Arc::new(Mutex::new(json!({"boundaries": "restricted: [spec.eks.minSize]"})));
    let (is_failing, calls) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(0)));
    let (stored, fails, count) = (copy.clone(), is_failing.clone(), calls.clone());
    let ctx = context(crate::k8s::fake::client(move |call| match call.route() {
        (method, path) if path.ends_with(LAST_KNOWN_GOOD_CONFIG_MAP) => {
            *count.lock().unwrap() += 1;
            if method == "PUT" {
                if fails.load(Ordering::Acquire) {
                    return crate::k8s::fake::failure(409, "Conflict", "it was changed");
                }
                *stored.lock().unwrap() = call.body["data"].clone();
            }
            let data = stored.lock().unwrap().clone();
            let metadata = json!({"name": LAST_KNOWN_GOOD_CONFIG_MAP, "resourceVersion": "1"});
            (200, json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data}))
        }
        ("GET", path) if path.ends_with("boundariesrevisions") => {
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}))
        }
        ("GET", _) => crate::k8s::fake::failure(404, "NotFound", "there is none"),
        _ => crate::k8s::fake::failure(403, "Forbidden", "not now"),
    }));
    edit(&ctx, "maxSize", None).await;
    let edited = ctx.stores.boundaries.get().revision.clone();
    *ctx.stores.config_map.lock().await = Lookup::Absent;
    reload(&ctx).await;
    let active = ctx.stores.boundaries.get();
    assert!(matches!(active.source, BoundariesSource::LastKnownGood(_)), "{:?}", active.source);
    assert_eq!(active.revision, edited, "the stored copy is older");
    is_failing.store(false, Ordering::Release);
    assert!(!retry(&ctx).await, "no group is affected");
    assert_eq!(*copy.lock().unwrap(), json!({"boundaries": "restricted: [spec.eks.maxSize]"}));
    let before = *calls.lock().unwrap();
    retry(&ctx).await;
    assert_eq!(*calls.lock().unwrap(), before, "it is stored");
}

/// A Role may lack the right to read the stored content. A valid ConfigMap does not need it, and a broken one must not
/// hold back the edit that fixes it.
#[tokio::test]
async fn denied_read_of_the_stored_content_does_not_hold_back_a_valid_edit() {
    let ctx = context(crate::k8s::fake::client(|call| match call.route() {
        ("GET", path) if path.ends_with(LAST_KNOWN_GOOD_CONFIG_MAP) => {
            crate::k8s::fake::failure(403, "Forbidden", "it is not allowed")
        }
        ("GET", path) if path.ends_with("boundariesrevisions") => {
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}))
        }
        ("GET", _) => crate::k8s::fake::failure(404, "NotFound", "there is none"),
        _ => crate::k8s::fake::failure(403, "Forbidden", "not now"),
    }));
    let broken = "x, [";
    edit(&ctx, broken, None).await;
    assert_eq!(ctx.stores.boundaries.get().source, BoundariesSource::Unknown, "a stored content may exist");
    edit(&ctx, "maxSize", POLICY).await;
    let source = ctx.stores.boundaries.get().source.clone();
    assert_eq!(source, BoundariesSource::Unknown, "a rollout begins with the content before it");
    edit(&ctx, "maxSize", None).await;
    let valid = ctx.stores.boundaries.get();
    assert_eq!(valid.source, BoundariesSource::Live);
    edit(&ctx, broken, None).await;
    let kept = ctx.stores.boundaries.get();
    assert!(matches!(kept.source, BoundariesSource::LastKnownGood(_)), "{:?}", kept.source);
    assert_eq!(kept.revision, valid.revision);
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
    let is_warning = |event: &&String| event.contains("BoundariesWarning") && event.contains("leaves no opening");
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

/// The ConfigMap with a restricted field, and the key `rollout`.
fn config_map(field: &str, policy: Option<&str>) -> ConfigMap {
    let boundaries = ("boundaries".to_owned(), format!("restricted: [spec.eks.{field}]"));
    let policy = policy.map(|text| ("rollout".to_owned(), text.to_owned()));
    let data = Some([boundaries].into_iter().chain(policy).collect());
    ConfigMap { data, ..ConfigMap::default() }
}

/// An admin edits which field is restricted, and the key `rollout`.
async fn edit(ctx: &Arc<Context>, field: &str, policy: Option<&str>) {
    *ctx.stores.config_map.lock().await = Lookup::Present(config_map(field, policy));
    tokio::time::timeout(Duration::from_secs(5), reload(ctx)).await.expect("no edit waits");
}

/// Why the live ConfigMap is not used, and is tried again; `None` when it is active.
fn refusal(ctx: &Context) -> Option<String> {
    let (active, is_refused) = (ctx.stores.boundaries.get(), ctx.stores.boundaries_not_stored.load(Ordering::Acquire));
    assert_eq!(active.source == BoundariesSource::Live, !is_refused, "{:?}", active.source);
    active.source.why().map(str::to_owned)
}

/// In an incident, an admin locks everything, and the ConfigMap is deleted: by a pruning GitOps tool, or between the two
/// halves of a replacement. All groups would begin to replace nodes at once.
#[tokio::test]
async fn deleted_config_map_does_not_lift_its_lock() {
    let ctx = storing(&Arc::default(), &Arc::new(Mutex::new("nothing")));
    let locked = |value: Option<&str>| {
        let mut map = config_map("maxSize", None);
        map.metadata.annotations = value.map(|value| [(annotation::LOCK_UPGRADES.to_owned(), value.to_owned())].into());
        Lookup::Present(map)
    };
    for (live, expected) in [
        (Lookup::Absent, ConfigMapLock::None),
        (locked(Some("true")), ConfigMapLock::Present),
        (Lookup::Absent, ConfigMapLock::Deleted),
        (locked(None), ConfigMapLock::None),
    ] {
        set_live(&ctx, live).await;
        tokio::time::timeout(Duration::from_secs(5), reload(&ctx)).await.expect("no edit waits");
        assert_eq!(ctx.stores.config_map_lock().active, expected);
    }
}

/// One edit corrects an image and lifts the lock that kept nodes from it. Groups must not replace nodes by the image before.
#[tokio::test]
async fn lock_holds_until_the_content_of_the_edit_that_lifts_it_is_active() {
    let (known, seen) = (Arc::new(OnceLock::<Arc<Context>>::new()), Arc::new(Mutex::new(Vec::new())));
    let (context_of, log) = (known.clone(), seen.clone());
    let stored = Arc::new(Mutex::new(Vec::<Value>::new()));
    let ctx = context(crate::k8s::fake::client(move |call| match call.route() {
        ("GET", path) if path.ends_with("boundariesrevisions") => {
            let items = stored.lock().unwrap().clone();
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
        }
        ("POST", path) if path.ends_with("boundariesrevisions") => {
            log.lock().unwrap().push(context_of.get().expect("a context").stores.config_map_lock().active);
            stored.lock().unwrap().push(call.body.clone());
            (201, call.body.clone())
        }
        ("GET", _) => crate::k8s::fake::failure(404, "NotFound", "there is none"),
        _ => crate::k8s::fake::failure(403, "Forbidden", "not now"),
    }));
    _ = known.set(ctx.clone());
    let mut locked = config_map("maxSize", POLICY);
    locked.metadata.annotations = Some([(annotation::LOCK_UPGRADES.to_owned(), "true".to_owned())].into());
    for map in [locked, config_map("minSize", POLICY)] {
        set_live(&ctx, Lookup::Present(map)).await;
        tokio::time::timeout(Duration::from_secs(5), reload(&ctx)).await.expect("no edit waits");
    }
    assert_eq!(*seen.lock().unwrap(), [ConfigMapLock::Present; 2]);
    assert_eq!(ctx.stores.config_map_lock().active, ConfigMapLock::None);
}

/// The API server does not store an edit yet. An admin locks everything meanwhile, and then the ConfigMap is deleted.
#[tokio::test]
async fn lock_of_a_config_map_that_is_deleted_during_a_load_holds() {
    let (watch, mut edits) = futures::channel::mpsc::unbounded::<watcher::Result<Option<ConfigMap>>>();
    let mut locked = config_map("maxSize", POLICY);
    locked.metadata.annotations = Some([(annotation::LOCK_UPGRADES.to_owned(), "true".to_owned())].into());
    let news = Arc::new(Mutex::new(vec![Some(locked), None]));
    let ctx = context(crate::k8s::fake::client(move |call| match call.route() {
        ("GET", path) if path.ends_with("boundariesrevisions") => {
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}))
        }
        ("POST", path) if path.ends_with("boundariesrevisions") => {
            for found in news.lock().unwrap().drain(..) {
                watch.unbounded_send(Ok(found)).expect("the watch goes on");
            }
            crate::k8s::fake::failure(500, "InternalError", "try again")
        }
        ("GET", _) => crate::k8s::fake::failure(404, "NotFound", "there is none"),
        _ => crate::k8s::fake::failure(403, "Forbidden", "not now"),
    }));
    set_live(&ctx, Lookup::Present(config_map("maxSize", POLICY))).await;
    for is_edited_again in [true, false] {
        let loaded = load_beside_watch(&mut edits, true, &ctx);
        let loaded = tokio::time::timeout(Duration::from_secs(20), loaded).await.expect("no edit waits");
        assert_eq!(loaded.expect("the watch goes on").1, is_edited_again);
    }
    assert_eq!(ctx.stores.config_map_lock().active, ConfigMapLock::Deleted);
}

/// An admin whose edit has no effect sees it there, also long after the event is gone.
#[tokio::test]
async fn warnings_about_the_content_are_in_the_metrics() {
    let ctx = storing(&Arc::default(), &Arc::new(Mutex::new("nothing")));
    let shown = || ctx.metrics.value("instance_manager_boundaries_warnings").expect("a series");
    assert_eq!(shown(), "0");
    edit(&ctx, "no.such.field", None).await;
    let warnings = ctx.stores.boundaries.get().warnings.len();
    assert!(warnings > 0);
    assert_eq!(shown(), warnings.to_string());
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

/// An admin corrects an edit that the API server has not stored yet. Groups of the first wave would take the first edit, and
/// replace nodes for it.
#[tokio::test]
async fn edit_that_is_replaced_before_it_is_stored_reaches_no_group() {
    let (watch, mut edits) = futures::channel::mpsc::unbounded::<watcher::Result<Option<ConfigMap>>>();
    let stored = Arc::new(Mutex::new(Vec::<Value>::new()));
    let (log, correction) = (stored.clone(), Arc::new(Mutex::new(Some(config_map("minSize", POLICY)))));
    let ctx = context(crate::k8s::fake::client(move |call| match call.route() {
        ("GET", path) if path.ends_with("boundariesrevisions") => {
            let items = log.lock().unwrap().clone();
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
        }
        ("POST", path) if path.ends_with("boundariesrevisions") => {
            if let Some(correction) = correction.lock().unwrap().take() {
                watch.unbounded_send(Ok(Some(correction))).expect("the watch goes on");
                return crate::k8s::fake::failure(500, "InternalError", "try again");
            }
            log.lock().unwrap().push(call.body.clone());
            (201, call.body.clone())
        }
        ("GET", _) => crate::k8s::fake::failure(404, "NotFound", "there is none"),
        _ => crate::k8s::fake::failure(403, "Forbidden", "not now"),
    }));
    *ctx.stores.config_map.lock().await = Lookup::Present(config_map("maxSize", POLICY));
    for is_replaced in [true, false] {
        let loaded = load_beside_watch(&mut edits, true, &ctx);
        let loaded = tokio::time::timeout(Duration::from_secs(20), loaded).await.expect("no edit waits");
        let (_, is_edited_again) = loaded.expect("the watch goes on");
        assert_eq!(is_edited_again, is_replaced, "the correction is loaded next");
        let is_unknown = ctx.stores.boundaries.get().source == BoundariesSource::Unknown;
        assert_eq!(is_unknown, is_replaced, "no group may use the first edit");
    }
    assert_eq!(refusal(&ctx), None);
    let stored = stored.lock().unwrap();
    assert!(stored.len() == 1 && stored[0].to_string().contains("minSize"), "{stored:?}");
}

/// An edit with waves is stored before groups see it. It must not wait until a revision without waves can be stored.
#[tokio::test]
async fn revision_that_is_not_stored_does_not_hold_back_the_next_one() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let ctx = context(crate::k8s::fake::client(move |call| match call.route() {
        ("GET", path) if path.ends_with("boundariesrevisions") => {
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}))
        }
        ("GET", _) => crate::k8s::fake::failure(404, "NotFound", "there is none"),
        (_, path) => {
            counted.fetch_add(usize::from(path.ends_with("boundariesrevisions")), Ordering::Relaxed);
            crate::k8s::fake::failure(403, "Forbidden", "not now")
        }
    }));
    edit(&ctx, "maxSize", None).await;
    let next_turn = async {
        while attempts.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        ctx.stores.revision_mutex.lock().await
    };
    let turn = tokio::time::timeout(Duration::from_secs(20), next_turn).await.expect("the task waits without its turn");
    drop(turn);
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

/// A leader starts while a change continues whose policy the ConfigMap has lost. It has no view of the rollout yet, and its
/// caches have just synced: a deletion now could take what a group still has. Polls delete, after two of them agree.
#[tokio::test]
async fn load_deletes_no_revision_of_a_change_that_continues() {
    let stored = |number: i64| {
        let field = format!("f{number}");
        let data = config_map(&field, POLICY).data.expect("data");
        let hash = crate::boundaries::content_hash(&data);
        let spec = BoundariesRevisionSpec { number, hash, data, ..Default::default() };
        let mut revision = BoundariesRevision::new(&format!("r{number}"), spec);
        let is_newest = number == NEWEST;
        let phase = if is_newest { RolloutPhase::Rolling } else { RolloutPhase::Complete };
        revision.status.get_or_insert_default().phase = Some(phase);
        (revision.metadata.resource_version, revision.metadata.uid) = (Some("1".into()), Some(field));
        json!(revision)
    };
    const NEWEST: i64 = crate::boundaries::DEFAULT_HISTORY as i64 + 3;
    let items = Arc::new(Mutex::new((1..=NEWEST).map(stored).collect::<Vec<_>>()));
    let deleted = Arc::new(Mutex::new(vec![]));
    let (present, log) = (items.clone(), deleted.clone());
    let ctx = context(crate::k8s::fake::client(move |call| match call.route() {
        ("GET", path) if path.ends_with("boundariesrevisions") => {
            let items = present.lock().unwrap().clone();
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
        }
        ("POST", path) if path.ends_with("boundariesrevisions") => {
            present.lock().unwrap().push(call.body.clone());
            (201, call.body)
        }
        ("DELETE", path) => {
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            present.lock().unwrap().retain(|item| item["metadata"]["name"] != name.as_str());
            log.lock().unwrap().push(name);
            (200, json!({"kind": "Status", "status": "Success"}))
        }
        ("GET", _) => crate::k8s::fake::failure(404, "NotFound", "there is none"),
        _ => crate::k8s::fake::failure(403, "Forbidden", "not now"),
    }));
    edit(&ctx, "minSize", None).await;
    assert_eq!(items.lock().unwrap().last().expect("a revision")["spec"]["number"], NEWEST + 1);
    assert_eq!(*deleted.lock().unwrap(), [""; 0]);
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
