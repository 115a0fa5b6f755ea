//! BoundariesRevisions that are deleted, refused, stored by a user, or cannot be read.

use super::*;
use crate::lock::ConfigMapLock;

/// A ConfigMap with an image, and a policy of one wave.
fn map(image: &str) -> BTreeMap<String, String> {
    map_with(image, "waves: [{name: all}]")
}

fn map_with(image: &str, policy: &str) -> BTreeMap<String, String> {
    let defaults = format!("spec: {{eks: {{configuration: {{image: {image}}}}}}}");
    [("rollout".to_owned(), policy.to_owned()), ("defaults".to_owned(), defaults)].into()
}

/// The stored revision `r1`, `r2`, ... of a content.
fn stored(number: i64, data: BTreeMap<String, String>, phase: Option<RolloutPhase>) -> BoundariesRevision {
    let (name, hash) = (format!("r{number}"), crate::boundaries::content_hash(&data));
    let spec = BoundariesRevisionSpec { number, hash, data, ..BoundariesRevisionSpec::default() };
    let mut revision = BoundariesRevision::new(&name, spec);
    revision.status.get_or_insert_default().phase = phase;
    (revision.metadata.resource_version, revision.metadata.uid) = (Some("1".into()), Some(format!("uid-{number}")));
    revision
}

/// A user deletes the newest revision, and an older one with the same texts was aborted: no group would ever switch to
/// the content of the ConfigMap.
#[tokio::test]
async fn deleted_revision_is_stored_again_although_an_older_one_has_its_texts() {
    let stored = |number: i64, image: &str, phase: RolloutPhase| json!(stored(number, map(image), Some(phase)));
    use RolloutPhase::{Aborted, Complete};
    let foreign = json!(BoundariesRevision::new("mine", BoundariesRevisionSpec::default()));
    let items = [stored(1, "ami-1", Complete), stored(2, "ami-2", Aborted), stored(3, "ami-1", Complete), foreign];
    let (created, notes) = (Arc::new(Mutex::new(vec![])), Arc::new(Mutex::new(String::new())));
    let (log, events) = (created.clone(), notes.clone());
    let mut test = fake::context(crate::k8s::fake::client(move |call| match call.route() {
        ("GET", path) if path.ends_with("/boundariesrevisions") => {
            let created = log.lock().unwrap().clone();
            let items: Vec<Value> = items.iter().cloned().chain(created).collect();
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
        }
        ("POST", path) if path.ends_with("/boundariesrevisions") => {
            log.lock().unwrap().push(call.body.clone());
            (201, call.body)
        }
        ("PATCH", _) => (200, items[0].clone()),
        _ => {
            *events.lock().unwrap() += &call.body["note"].to_string();
            (200, call.body)
        }
    }));
    let ctx = Arc::get_mut(&mut test.ctx).expect("no other task has it");
    ctx.planner.node_index = Arc::new(node_index());
    let (live, data) = (k8s_openapi::api::core::v1::ConfigMap::default(), map("ami-2"));
    let live = k8s_openapi::api::core::v1::ConfigMap { data: Some(data.clone()), ..live };
    *test.ctx.stores.config_map.lock().await = crate::util::lookup::Lookup::Present(live);
    test.ctx.stores.boundaries.set(select_active(Some(&data), None, true).0);
    let (trigger, mut polled) = (crate::controller::trigger::Trigger::new(test.ctx.clone()), Default::default());
    for _ in 0..2 {
        super::super::poll(&test.ctx, &trigger, &mut polled).await.expect("the API server answers");
    }
    let created = created.lock().unwrap();
    let names: Vec<_> = created.iter().map(|revision| revision["metadata"]["name"].as_str().unwrap_or("")).collect();
    assert_eq!(names, ["r4"]);
    assert!(notes.lock().unwrap().contains("mine is none that the controller stored"), "of what has no effect");
    assert_eq!(test.ctx.stores.rollout.view().map(|view| view.target.name.clone()).as_deref(), Some("r4"));
}

/// The same while the ConfigMap cannot be used, so that nothing is stored again: groups keep the rollout that they know.
#[tokio::test]
async fn deleted_revision_changes_no_rollout_while_the_config_map_is_missing() {
    let stored = |number: i64, image: &str, phase: RolloutPhase| stored(number, map(image), Some(phase));
    use RolloutPhase::{Aborted, Complete};
    let items = json!([stored(1, "ami-1", Complete), stored(2, "ami-2", Aborted), stored(3, "ami-1", Complete)]);
    let test = fake::context(crate::k8s::fake::client(move |call| match call.route() {
        ("GET", path) if path.ends_with("/boundariesrevisions") => {
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
        }
        _ => panic!("unexpected call: {call:?}"),
    }));
    test.ctx.stores.boundaries.set(select_active(None, Some(&map("ami-2")), true).0);
    let known = Arc::new(open_rollout("waves: [{name: all}]"));
    test.ctx.stores.rollout.set_view(Some(known.clone()));
    let (trigger, mut polled) = (crate::controller::trigger::Trigger::new(test.ctx.clone()), Default::default());
    super::super::poll(&test.ctx, &trigger, &mut polled).await.expect("the API server answers");
    let view = test.ctx.stores.rollout.view().expect("a rollout");
    assert!(Arc::ptr_eq(&known, &view), "{:?}", view.phase());
}

/// The key `rollout` is lost in the middle of a rollout, and a user deletes the revision, which has the only copy of the
/// policy. The groups must not be released: the revision is stored again with the policy.
#[tokio::test]
async fn rollout_without_the_key_is_stored_again_with_its_policy() {
    let stored = |number: i64, image: &str, phase: RolloutPhase| stored(number, map(image), Some(phase));
    let (first, second) = (stored(1, "ami-1", RolloutPhase::Complete), stored(2, "ami-2", RolloutPhase::Rolling));
    let (answer, created) = (json!(first), Arc::new(Mutex::new(vec![])));
    let log = created.clone();
    let test = fake::context(crate::k8s::fake::client(move |call| match call.route() {
        ("GET", path) if path.ends_with("/boundariesrevisions") => {
            let created = log.lock().unwrap().clone();
            let items: Vec<Value> = [answer.clone()].into_iter().chain(created).collect();
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
        }
        ("POST", path) if path.ends_with("/boundariesrevisions") => {
            log.lock().unwrap().push(call.body.clone());
            (201, call.body)
        }
        ("PATCH", _) => (200, answer.clone()),
        _ => (200, call.body),
    }));
    let mut live = map("ami-2");
    live.remove("rollout");
    let active = Arc::new(select_active(Some(&live), None, true).0);
    let view = RolloutView::new(&[first, second], &active, None, None).expect("the policy is retained");
    let config_map = k8s_openapi::api::core::v1::ConfigMap { data: Some(live), ..Default::default() };
    *test.ctx.stores.config_map.lock().await = crate::util::lookup::Lookup::Present(config_map);
    test.ctx.stores.boundaries.set(active.clone());
    test.ctx.stores.rollout.set_view(Some(Arc::new(view)));
    let refreshed = super::super::refresh(&test.ctx, &active).await.expect("the API server answers");
    assert!(refreshed.is_some(), "a load of the ConfigMap releases no group, either");
    let (trigger, mut polled) = (crate::controller::trigger::Trigger::new(test.ctx.clone()), Default::default());
    super::super::poll(&test.ctx, &trigger, &mut polled).await.expect("the API server answers");
    assert!(test.ctx.stores.rollout.view().is_some(), "no group is released");
    let created = created.lock().unwrap();
    let names: Vec<_> = created.iter().map(|revision| revision["metadata"]["name"].as_str().unwrap_or("")).collect();
    assert_eq!((names, &created[0]["spec"]["data"]["rollout"]), (vec!["r2"], &json!("waves: [{name: all}]")));
}

/// A policy of the cluster refuses the status of the revision. A person who aborts the rollout must not see further groups take
/// it, and learns why the status does not show the abort.
#[tokio::test]
async fn abort_counts_although_the_api_server_refuses_to_record_it() {
    let stored = |number: i64, image: &str, phase: RolloutPhase| {
        let mut revision = stored(number, map(image), Some(phase));
        let open = WaveStatus { name: "all".into(), state: Some(WaveState::Open), ..WaveStatus::default() };
        revision.status.get_or_insert_default().waves = vec![open];
        revision
    };
    let mut target = stored(2, "ami-2", RolloutPhase::Rolling);
    target.spec.orders.aborted = true;
    let items = json!([stored(1, "ami-1", RolloutPhase::Complete), target]);
    let (events, is_refused) = (Arc::new(Mutex::new(vec![])), Arc::new(Mutex::new(true)));
    let (log, refuses) = (events.clone(), is_refused.clone());
    let mut test = fake::context(crate::k8s::fake::client(move |call| match call.route() {
        ("GET", path) if path.ends_with("/boundariesrevisions") => {
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
        }
        ("PATCH", _) if *refuses.lock().unwrap() => {
            (403, json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no"}))
        }
        ("PATCH", _) => (200, items[1].clone()),
        _ => {
            log.lock().unwrap().push(call.body["reason"].as_str().unwrap_or_default().to_owned());
            (201, call.body)
        }
    }));
    let ctx = Arc::get_mut(&mut test.ctx).expect("no other task has it");
    ctx.planner.node_index = Arc::new(node_index());
    let live = k8s_openapi::api::core::v1::ConfigMap { data: Some(map("ami-2")), ..Default::default() };
    *test.ctx.stores.config_map.lock().await = crate::util::lookup::Lookup::Present(live);
    test.ctx.stores.boundaries.set(select_active(Some(&map("ami-2")), None, true).0);
    let trigger = crate::controller::trigger::Trigger::new(test.ctx.clone());
    let delay = test.ctx.planner.settings.timing.failed_observation_delay;
    let mut polled = super::super::PollState { target: ("r2".into(), "uid-2".into()), ..Default::default() };
    polled.refused = Some((Timestamp::now() - delay * 2, false));
    for _ in 0..2 {
        super::super::poll(&test.ctx, &trigger, &mut polled).await.expect_err("the status is refused");
        assert!(test.ctx.stores.rollout.view().expect("a rollout").is_aborted(), "no group takes it");
    }
    assert_eq!(*events.lock().unwrap(), ["RolloutNotRecorded"], "once");
    *is_refused.lock().unwrap() = false;
    super::super::poll(&test.ctx, &trigger, &mut polled).await.expect("the status is written");
    assert!(polled.unrecorded_stop.is_none());
    assert!(events.lock().unwrap().contains(&"RolloutAborted".to_owned()), "{events:?}");
}

/// A policy of the cluster refuses the status of an older revision, which only records that it was superseded. The rollout
/// of the newest one must continue, and an event names the refusal once.
#[tokio::test]
async fn older_revision_whose_status_is_refused_delays_nothing() {
    let stored = |number: i64, phase: Option<RolloutPhase>| stored(number, map(&format!("ami-{number}")), phase);
    let rolling = Some(RolloutPhase::Rolling);
    let revisions = [stored(1, Some(RolloutPhase::Complete)), stored(2, rolling), stored(3, rolling), stored(4, None)];
    let (items, calls) = (json!(revisions), Arc::new(Mutex::new(vec![])));
    let log = calls.clone();
    let mut test = fake::context(crate::k8s::fake::client(move |call| match call.route() {
        ("GET", path) if path.ends_with("/boundariesrevisions") => {
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
        }
        ("PATCH", path) if path.ends_with("/r3/status") => {
            (403, json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no"}))
        }
        ("PATCH", path) => {
            log.lock().unwrap().push(path.rsplit('/').nth(1).unwrap_or_default().to_owned());
            (200, items[3].clone())
        }
        _ => {
            log.lock().unwrap().push(call.body["reason"].as_str().unwrap_or_default().to_owned());
            (201, call.body)
        }
    }));
    let ctx = Arc::get_mut(&mut test.ctx).expect("no other task has it");
    ctx.planner.node_index = Arc::new(node_index());
    test.ctx.stores.boundaries.set(select_active(Some(&map("ami-4")), None, true).0);
    let (trigger, mut polled) = (crate::controller::trigger::Trigger::new(test.ctx.clone()), Default::default());
    for _ in 0..2 {
        super::super::poll(&test.ctx, &trigger, &mut polled).await.expect_err("a status is refused");
    }
    let calls = calls.lock().unwrap();
    let count = |what: &str| calls.iter().filter(|call| *call == what).count();
    assert_eq!(count("RolloutNotRecorded"), 1, "{calls:?}");
    assert!(count("r2") > 0, "the other one is recorded: {calls:?}");
    assert_ne!(test.ctx.stores.rollout.view().expect("a rollout").status.phase, None, "the groups follow the poll");
}

/// A quota or a policy of the cluster lets no BoundariesRevision be created. An admin who removes the key `rollout` then must
/// not lose the ConfigMap with all its later edits.
#[tokio::test]
async fn config_map_without_the_key_is_loaded_although_nothing_can_be_stored() {
    let mut data: BTreeMap<String, String> =
        [("rollout", "waves: [{name: all}]"), ("defaults", "spec: {}")].map(|(k, v)| (k.into(), v.into())).into();
    let hash = crate::boundaries::content_hash(&data);
    let spec = BoundariesRevisionSpec { number: 1, hash, data: data.clone(), ..BoundariesRevisionSpec::default() };
    let mut revision = BoundariesRevision::new("r1", spec);
    let status = revision.status.get_or_insert_default();
    (status.phase, status.images) = (Some(RolloutPhase::Complete), [("latest".into(), "ami-1".into())].into());
    let (items, refused) = (json!([revision]), Arc::new(Mutex::new(0)));
    let creates = refused.clone();
    let test = fake::context(crate::k8s::fake::client(move |call| match call.route() {
        ("POST", path) if path.ends_with("/boundariesrevisions") => {
            *creates.lock().unwrap() += 1;
            (
                403,
                json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "quota"}),
            )
        }
        _ => (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})),
    }));
    data.remove("rollout");
    let active = Arc::new(select_active(Some(&data), None, true).0);
    let view = super::super::refresh(&test.ctx, &active).await.expect("the ConfigMap is loaded");
    assert!(view.is_none() && *refused.lock().unwrap() == 1);
}

/// The ConfigMap is edited while a poll writes the status of the revision before. The groups must not decide by that one
/// again, whose wave has just opened.
#[test]
fn poll_does_not_replace_a_newer_rollout() {
    let polled = Arc::new(open_rollout("waves: [{name: all}]"));
    let (store, namespaces) = (reflector::store().0, reflector::store().0);
    let stores = Stores::new(store, namespaces);
    stores.rollout.set_view(Some(polled.clone()));
    let with_phase = |phase: RolloutPhase| {
        let mut view = (*polled).clone();
        view.status.phase = Some(phase);
        view
    };
    let phase = || stores.rollout.view().expect("a rollout").phase();
    stores.rollout.replace_view(Some(&polled), Some(Arc::new(with_phase(RolloutPhase::Halted))));
    assert_eq!(phase(), RolloutPhase::Halted);
    stores.rollout.set_view(Some(Arc::new(with_phase(RolloutPhase::Assessing))));
    stores.rollout.replace_view(Some(&polled), Some(Arc::new(with_phase(RolloutPhase::Halted))));
    assert_eq!(phase(), RolloutPhase::Assessing, "the edit");
}

/// An admin would look for the annotation on a ConfigMap that does not exist.
#[test]
fn rollout_with_the_lock_of_a_deleted_config_map_names_the_remedy() {
    let problem = |lock| open_rollout("waves: [{name: all}]").with_lock(lock).config_problem.unwrap_or_default();
    let deleted = problem(ConfigMapLock::Deleted);
    assert!(deleted.contains("when it was deleted; create it again without the annotation"), "{deleted}");
    assert!(problem(ConfigMapLock::Present).contains("remove it to continue"));
}

/// The ConfigMap is edited or locked, and loaded, before the API server has answered a poll. The groups must not decide by the
/// answer, in which the wave of the revision before is open and the ConfigMap has no lock.
#[tokio::test]
async fn poll_that_began_before_an_edit_does_not_replace_its_rollout() {
    let stored = |number: i64, image: &str, phase: RolloutPhase| stored(number, map(image), Some(phase));
    let items = json!([stored(1, "ami-1", RolloutPhase::Complete), stored(2, "ami-2", RolloutPhase::Rolling)]);
    let edits: Arc<Mutex<Option<Arc<Context>>>> = Arc::default();
    let loads = edits.clone();
    let mut test = fake::context(crate::k8s::fake::client(move |call| match call.route() {
        ("GET", path) if path.ends_with("/boundariesrevisions") => {
            if let Some(ctx) = loads.lock().unwrap().as_ref() {
                let edited = open_rollout("waves: [{name: edited}]").with_lock(ConfigMapLock::Present);
                ctx.stores.rollout.set_view(Some(Arc::new(edited)));
            }
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
        }
        ("PATCH", _) => (200, items[1].clone()),
        _ => (201, call.body),
    }));
    let ctx = Arc::get_mut(&mut test.ctx).expect("no other task has it");
    ctx.planner.node_index = Arc::new(node_index());
    test.ctx.stores.boundaries.set(select_active(Some(&map("ami-2")), None, true).0);
    let (trigger, mut polled) = (crate::controller::trigger::Trigger::new(test.ctx.clone()), Default::default());
    for is_edited in [false, true] {
        *edits.lock().unwrap() = is_edited.then(|| test.ctx.clone());
        super::super::poll(&test.ctx, &trigger, &mut polled).await.expect("the API server answers");
        let view = test.ctx.stores.rollout.view().expect("a rollout");
        assert_eq!(view.policy.waves[0].name == "edited", is_edited);
        assert_eq!(view.config_problem.is_some(), is_edited, "the lock");
    }
}

/// A person stores a BoundariesRevision by hand, and believes that it is in effect. Only an event says that it is not, and one
/// per poll would hide all others.
#[tokio::test]
async fn stored_revision_without_effect_is_reported_once() {
    let view = open_rollout("waves: [{name: all}]");
    let notes = Arc::new(Mutex::new(vec![]));
    let log = notes.clone();
    let test = fake::context(crate::k8s::fake::client(move |call| {
        assert!(call.path.contains("/events"), "unexpected call: {call:?}");
        log.lock().unwrap().push((call.body["regarding"]["name"].clone(), call.body["note"].to_string()));
        (201, call.body)
    }));
    let foreign = BoundariesRevision::new("mine", BoundariesRevisionSpec::default());
    let mut reported = Default::default();
    let found = std::slice::from_ref(&foreign);
    for stored in [found, found, &[], found] {
        super::super::history_warnings::publish(&test.ctx, &view, stored, &mut reported).await;
    }
    let notes = notes.lock().unwrap();
    assert_eq!(notes.len(), 2, "once, and once more after it was deleted: {notes:?}");
    for (object, note) in notes.iter() {
        assert!(object == "instance-manager" && note.contains("mine is none that the controller stored"), "{note}");
    }
}

/// Only these events report why no group switches to the content of the ConfigMap.
#[test]
fn revisions_that_cannot_be_read_are_named() {
    let view = RolloutView {
        stable_problem: Some("the policy of r1 cannot be read".into()),
        ..open_rollout("waves: [{name: all}]")
    };
    let [held] = super::super::history_warnings::warnings(&view, &[]).try_into().expect("one warning");
    assert_eq!(held, format!("no group takes {}, because the policy of r1 cannot be read", view.target.name));
    let unreadable = [("hash".to_owned(), "r7".to_owned())].into();
    let view = RolloutView { unreadable, ..open_rollout("waves: [{name: all}]") };
    let [others] = super::super::history_warnings::warnings(&view, &[]).try_into().expect("one warning");
    assert!(others.contains("BoundariesRevision r7 are not changed"), "{others}");
}

/// The cache shows a group as it was before the controller's last writes, and does not catch up: a poll counts that.
#[tokio::test]
async fn poll_notices_a_group_whose_cached_object_is_older_than_the_controllers_writes() {
    let view = open_rollout("waves: [{name: rest}]");
    let group = group(1, (false, 2, 2, true), &view);
    let (test, _) = controller(stores(std::slice::from_ref(&group), &view, &["team"]));
    let now = Timestamp::now();
    for (written, age, doubtful) in [("1", 60, 0), ("5", 1, 0), ("5", 60, 1)] {
        let at = now - SignedDuration::from_secs(age);
        test.ctx.planner.process_state.own_writes(&key(&group), |own| own.record(written, at));
        let poll = super::super::survey(&test.ctx, &view, &mut super::super::PollState::default(), now);
        assert_eq!(poll.summary.waves[0].doubtful, doubtful, "{written}, {age} s ago");
    }
}

/// The watch of a large wave lags in its soak. Each poll finds another number of groups, and must not wake all groups.
#[test]
fn number_of_groups_that_keep_a_wave_soaking_is_no_transition() {
    let status = |state: WaveState, why: Option<&str>| crate::api::BoundariesRevisionStatus {
        waves: vec![WaveStatus { state: Some(state), why: why.map(str::to_owned), ..WaveStatus::default() }],
        ..Default::default()
    };
    let changes = |state, one, other| super::super::is_transition(&status(state, one), &status(state, other));
    assert!(!changes(WaveState::Soaking, None, Some("1 of its groups")));
    assert!(!changes(WaveState::Soaking, Some("1 of its groups"), Some("2 of its groups")));
    assert!(changes(WaveState::Waiting, None, Some("an approval")), "users wait for that");
}

/// The clock of the node is set ahead while a canary soaks, and a small edit brings the next revision, with which the soak
/// continues. The time that did not pass must not end the soak.
#[test]
fn soak_that_continues_does_not_count_a_jump_of_the_clock() {
    let now: Timestamp = "2026-08-20T12:00:00Z".parse().expect("a time");
    let status = |settled: Option<Timestamp>| crate::api::BoundariesRevisionStatus {
        waves: vec![WaveStatus { name: "canary".into(), settled: settled.map(rfc3339), ..WaveStatus::default() }],
        ..Default::default()
    };
    for (since_jump, expected) in [(None, 90), (Some(30), 30), (Some(300), 90)] {
        let mut polled = super::super::PollState::default();
        let since_jump = since_jump.map(std::time::Duration::from_secs);
        let settled = now - SignedDuration::from_secs(90);
        polled.record_soaks(&status(None), &status(Some(settled)), since_jump, now);
        let soaked = polled.soaks["canary"].elapsed().as_secs();
        assert!((expected..expected + 20).contains(&soaked), "{soaked} s, jumped {since_jump:?} ago");
    }
}

/// An old answer of the API server, or a cache that has just synced, must not delete what a group still has. What the API
/// server refuses is not asked for at each poll.
#[tokio::test]
async fn one_revision_is_deleted_by_two_polls_that_agree() {
    let map = |image: &str| map_with(image, "history: 2\nwaves: [{name: all}]");
    let stored = |number: i64| json!(stored(number, map(&format!("ami-{number}")), Some(RolloutPhase::Complete)));
    let items = Arc::new(Mutex::new((1..=5).map(stored).collect::<Vec<_>>()));
    let (is_refused, calls) = (Arc::new(Mutex::new(true)), Arc::new(Mutex::new(vec![])));
    let (present, refuses, log) = (items.clone(), is_refused.clone(), calls.clone());
    let mut test = fake::context(crate::k8s::fake::client(move |call| {
        let mut items = present.lock().unwrap();
        match call.route() {
            ("GET", _) => (
                200,
                json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": *items}),
            ),
            ("DELETE", path) => {
                let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                log.lock().unwrap().push(name.clone());
                if *refuses.lock().unwrap() {
                    return crate::k8s::fake::failure(403, "Forbidden", "a policy");
                }
                // A finalizer of another tool holds r2.
                items.retain(|item| item["metadata"]["name"] != name.as_str() || name == "r2");
                let held = items.iter_mut().find(|item| item["metadata"]["name"] == name.as_str());
                held.into_iter().for_each(|item| item["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
                (200, json!({"kind": "Status", "status": "Success"}))
            }
            ("PATCH", _) => {
                let newest = items.last_mut().expect("a revision");
                let fields = call.body["status"].as_object().expect("a status").clone();
                newest["status"].as_object_mut().expect("a status").extend(fields);
                (200, newest.clone())
            }
            _ => (200, call.body),
        }
    }));
    let ctx = Arc::get_mut(&mut test.ctx).expect("no other task has it");
    ctx.planner.node_index = Arc::new(node_index());
    ctx.planner.settings.resync_period = std::time::Duration::from_millis(1);
    test.ctx.stores.boundaries.set(select_active(Some(&map("ami-5")), None, true).0);
    let (trigger, mut polled) = (crate::controller::trigger::Trigger::new(test.ctx.clone()), Default::default());
    let deleted = || calls.lock().unwrap().join(" ");
    let mut poll = async || super::super::poll(&test.ctx, &trigger, &mut polled).await;
    for _ in 0..10 {
        // The first polls record the progress.
        if !deleted().is_empty() || poll().await.is_err() {
            break;
        }
    }
    assert_eq!(deleted(), "r1", "it is refused");
    *is_refused.lock().unwrap() = false;
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    poll().await.expect("it is deleted");
    assert_eq!(deleted(), "r1 r1");
    poll().await.expect("r2 is found");
    assert_eq!(deleted(), "r1 r1", "the next one is found once");
    poll().await.expect("r2 is deleted");
    assert_eq!(deleted(), "r1 r1 r2");
    for _ in 0..4 {
        poll().await.expect("r3 is deleted");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert_eq!(deleted(), "r1 r1 r2 r3", "two are kept");
}

/// An admin removes the key `rollout` while a change is under way, which continues. What its policy keeps is kept.
#[tokio::test]
async fn policy_that_continues_without_its_key_says_how_many_revisions_are_kept() {
    let test = fake::context(crate::k8s::fake::client(|call| panic!("unexpected call: {call:?}")));
    let with_key = |text: &str| select_active(Some(&[("rollout".to_owned(), text.to_owned())].into()), None, true).0;
    let without_key = select_active(Some(&BTreeMap::new()), None, true).0;
    let kept = |active| crate::controller::revisions::kept(active, &test.ctx);
    assert_eq!(kept(&without_key), crate::boundaries::DEFAULT_HISTORY);
    test.ctx.stores.rollout.set_view(Some(Arc::new(open_rollout("history: 40\nwaves: [{name: all}]"))));
    assert_eq!(kept(&without_key), 40);
    assert_eq!(kept(&with_key("history: 7\nwaves: [{name: all}]")), 7, "the admin has written another number");
}

/// The canary fails with an image of AWS, and the change is aborted. The admin waits for the next image, as the docs say, and
/// goes forward. The process still knows the old image.
#[tokio::test]
async fn image_that_was_aborted_is_not_the_first_one_of_the_next_change() {
    const ALIAS: &str = "amazonlinux2023/amd64/latest";
    let image_of =
        |revision: &BoundariesRevision| revision.status.as_ref().expect("a status").images.get(ALIAS).cloned();
    let mut aborted = stored(2, map("latest"), Some(RolloutPhase::Aborted));
    aborted.status.get_or_insert_default().images = [(ALIAS.to_owned(), "ami-7".to_owned())].into();
    let data = map_with("latest", "waves: [{name: some, percent: 10}, {name: all}]");
    let items = json!([stored(1, map("ami-1"), Some(RolloutPhase::Complete)), aborted, stored(3, data.clone(), None)]);
    let newest = Arc::new(Mutex::new(stored(3, data.clone(), None)));
    let written = newest.clone();
    let mut test = fake::context(crate::k8s::fake::client(move |call| match call.route() {
        ("GET", path) if path.ends_with("/boundariesrevisions") => {
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
        }
        ("PATCH", path) if path.ends_with("/r3/status") => {
            let mut newest = written.lock().unwrap();
            newest.status = serde_json::from_value(call.body["status"].clone()).expect("a status");
            (200, json!(*newest))
        }
        _ => (200, call.body),
    }));
    let ctx = Arc::get_mut(&mut test.ctx).expect("no other task has it");
    ctx.planner.node_index = Arc::new(node_index());
    let aliases = test.ctx.planner.process_state.clone();
    let first = |image: &str| aliases.image_aliases.first_resolved(ALIAS, "/parameter", image.into());
    assert_eq!(first("ami-7"), "ami-7");
    test.ctx.stores.boundaries.set(select_active(Some(&data), None, true).0);
    let (trigger, mut polled) = (crate::controller::trigger::Trigger::new(test.ctx.clone()), Default::default());
    super::super::poll(&test.ctx, &trigger, &mut polled).await.expect("the status is written");
    assert!(test.ctx.stores.rollout.view().is_some_and(|view| view.target.name == "r3"));
    assert_eq!(image_of(&newest.lock().unwrap()), None, "no group has met an image yet");
    assert_eq!(first("ami-8"), "ami-8");
    assert_eq!(first("ami-9"), "ami-8", "all groups of a change get one image");
}

/// A person aborts r2, whose status the API server refuses, and deletes it. It is stored again by its name, and its rollout
/// begins with the first wave.
#[tokio::test]
async fn stop_that_was_not_recorded_ends_with_its_revision() {
    let first = stored(1, map("ami-1"), Some(RolloutPhase::Complete));
    let mut target = stored(2, map("ami-2"), Some(RolloutPhase::Rolling));
    target.spec.orders.aborted = true;
    let items = Arc::new(Mutex::new(vec![first, target]));
    let present = items.clone();
    let mut test = fake::context(crate::k8s::fake::client(move |call| match call.route() {
        ("GET", path) if path.ends_with("/boundariesrevisions") => {
            let items = present.lock().unwrap().clone();
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
        }
        ("PATCH", _) => crate::k8s::fake::failure(403, "Forbidden", "a policy"),
        _ => (201, call.body),
    }));
    let ctx = Arc::get_mut(&mut test.ctx).expect("no other task has it");
    ctx.planner.node_index = Arc::new(node_index());
    test.ctx.stores.boundaries.set(select_active(Some(&map("ami-2")), None, true).0);
    let (trigger, mut polled) = (crate::controller::trigger::Trigger::new(test.ctx.clone()), Default::default());
    let mut is_aborted = async || {
        super::super::poll(&test.ctx, &trigger, &mut polled).await.expect_err("the status is refused");
        test.ctx.stores.rollout.view().expect("a rollout").is_aborted()
    };
    assert!(is_aborted().await);
    let mut again = stored(2, map("ami-2"), None);
    again.metadata.uid = Some("another".into());
    items.lock().unwrap()[1] = again;
    assert!(!is_aborted().await);
}

/// A policy of the cluster keeps one revision for an audit. The others are deleted nevertheless.
#[tokio::test]
async fn revision_whose_deletion_is_refused_does_not_keep_the_others() {
    let map = |image: &str| map_with(image, "history: 2\nwaves: [{name: all}]");
    let stored = |number: i64| stored(number, map(&format!("ami-{number}")), Some(RolloutPhase::Complete));
    let items = Arc::new(Mutex::new((1..=5).map(stored).collect::<Vec<_>>()));
    let calls = Arc::new(Mutex::new(vec![]));
    let (present, log) = (items.clone(), calls.clone());
    let mut test = fake::context(crate::k8s::fake::client(move |call| {
        let mut items = present.lock().unwrap();
        match call.route() {
            ("GET", _) => (
                200,
                json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": *items}),
            ),
            ("DELETE", path) => {
                let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                log.lock().unwrap().push(name.clone());
                if name == "r1" {
                    return crate::k8s::fake::failure(403, "Forbidden", "a policy");
                }
                items.retain(|item| item.metadata.name.as_ref() != Some(&name));
                (200, json!({"kind": "Status", "status": "Success"}))
            }
            ("PATCH", _) => {
                let newest = items.last_mut().expect("a revision");
                let mut fields = json!(newest.status);
                fields
                    .as_object_mut()
                    .expect("a status")
                    .extend(call.body["status"].as_object().expect("a status").clone());
                newest.status = serde_json::from_value(fields).expect("a status");
                (200, json!(newest))
            }
            _ => (200, call.body),
        }
    }));
    let ctx = Arc::get_mut(&mut test.ctx).expect("no other task has it");
    ctx.planner.node_index = Arc::new(node_index());
    test.ctx.stores.boundaries.set(select_active(Some(&map("ami-5")), None, true).0);
    let (trigger, mut polled) = (crate::controller::trigger::Trigger::new(test.ctx.clone()), Default::default());
    for _ in 0..20 {
        let _ = super::super::poll(&test.ctx, &trigger, &mut polled).await;
    }
    assert_eq!(calls.lock().unwrap().join(" "), "r1 r2 r3");
}
