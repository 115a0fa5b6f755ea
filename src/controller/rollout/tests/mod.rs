//! What the controller writes about a group that switches to a revision, and what `plan` shows of it from the same
//! state.

mod forecasts;
mod plan;
mod replacements;
mod stored_revisions;
mod switching;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::runtime::{reflector, watcher::Event};
use serde_json::{Value, json};

use super::decide::forecast_inputs;
use super::{count_running, count_unavailable, decide_and_count, images, switch_revision};
use crate::api::names::{annotation, condition};
use crate::api::{
    BoundariesRevision, BoundariesRevisionSpec, Condition, InstanceGroup, RolloutPhase, WaveState, WaveStatus, rfc3339,
    set_condition,
};
use crate::aws::AwsError;
use crate::aws::inventory::fake_aws::FakeAws;
use crate::aws::inventory::{CacheConfig, Inventory};
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource, select_active};
use crate::controller::context::Context;
use crate::controller::fake;
use crate::controller::planner::Planner;
use crate::controller::stores::Stores;
use crate::index::nodes::NodeIndex;
use crate::leader::election::Leadership;
use crate::plan::{NodeStart, NodeStep, NodeUsage, Step};
use crate::rollout::{KnownImpact, RevisionDecision, RevisionImpact, RolloutView};

/// A group: whether it is a canary, how many nodes it is to have and how many are Ready, and whether it replaces nodes for
/// the target already.
pub(super) type Facts = (bool, usize, usize, bool);

/// A rollout whose waves are open, in the middle.
pub(super) fn open_rollout(policy: &str) -> RolloutView {
    let map = |image: &str| -> BTreeMap<String, String> {
        let defaults = format!("spec: {{eks: {{configuration: {{image: {image}}}}}}}");
        let boundaries = "restricted: [spec.eks.configuration.image]";
        [("rollout", policy), ("boundaries", boundaries), ("defaults", &defaults)]
            .map(|(key, text)| (key.to_owned(), text.to_owned()))
            .into()
    };
    let data = map("ami-2");
    let active = Arc::new(select_active(Some(&data), None, true).0);
    let mut view = RolloutView::of_content(&[], Some(&map("ami-1")), &data, &active, None).expect("a rollout");
    view.status.phase = Some(RolloutPhase::Rolling);
    let open =
        |name: &String| WaveStatus { name: name.clone(), state: Some(WaveState::Passed), ..WaveStatus::default() };
    view.status.waves = view.policy.waves.iter().map(|wave| open(&wave.name)).collect();
    view
}

pub(super) fn group(index: usize, facts: Facts, view: &RolloutView) -> InstanceGroup {
    let (is_canary, desired, ready, is_rolling) = facts;
    let (namespace, name) = (if is_canary { "canary" } else { "team" }, format!("g{index}"));
    let own = if is_rolling { &view.target } else { view.stable.as_ref().expect("r1") };
    let wave = if is_canary { "canary" } else { "rest" };
    let record = json!({"revision": "r2", "wave": wave, "since": "2026-01-01T00:00:00Z", "generation": 1});
    let object = json!({
        "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{index}"), "generation": 1, "resourceVersion": "1"},
        "spec": {},
        "status": {
            "boundariesRevision": own.hash, "rollout": is_rolling.then_some(record),
            "nodes": {"desired": desired, "ready": ready.min(desired)},
        },
    });
    serde_json::from_value(object).expect("a group")
}

fn namespace(name: &str) -> PartialObjectMeta<Namespace> {
    let labels = json!({"rollout/wave": name});
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).expect("a Namespace")
}

/// The caches of a process that has just synced, with what the target means for each group. `names` are the Namespaces that
/// it knows.
pub(super) fn stores(groups: &[InstanceGroup], view: &RolloutView, names: &[&str]) -> Stores {
    let ((store, mut writer), (namespaces, mut namespaces_writer)) = (reflector::store(), reflector::store());
    for group in groups {
        writer.apply_watcher_event(&Event::Apply(crate::api::GroupObject(Ok(group.clone()))));
    }
    for name in names {
        namespaces_writer.apply_watcher_event(&Event::Apply(namespace(name)));
    }
    let stores = Stores::new(store, namespaces);
    stores.rollout.set_view(Some(Arc::new(view.clone())));
    for group in groups {
        let recorded = group.status.as_ref().and_then(|status| status.boundaries_revision.as_deref());
        let own = recorded.and_then(|hash| view.stored.get(hash));
        let inputs = forecast_inputs(group, own, &view.target, &BTreeMap::new());
        let known = KnownImpact { inputs, retries: 0, forecast: RevisionImpact::Rotate { nodes: 1 } };
        stores.rollout.set_forecast(&key(group), known);
    }
    stores
}

pub(super) fn key(group: &InstanceGroup) -> String {
    crate::api::GroupId::key_of(&group.metadata)
}

fn node_index() -> NodeIndex {
    let index = NodeIndex::default();
    for event in [Event::Init, Event::InitDone] {
        index.apply(&event);
    }
    index
}

/// Paths and bodies of writes.
pub(super) type Writes = Arc<Mutex<Vec<(String, Value)>>>;

/// A context with these caches, and the paths and bodies of its writes of statuses and revisions.
pub(super) fn controller(stores: Stores) -> (fake::TestContext, Writes) {
    let writes = Arc::new(Mutex::new(vec![]));
    let log = writes.clone();
    let mut test = fake::context(crate::k8s::fake::client(move |call| {
        if !call.path.contains("/events") {
            log.lock().unwrap().push((call.path.clone(), call.body.clone()));
        }
        if call.path.contains("/boundariesrevisions") {
            return (201, call.body);
        }
        let metadata = json!({"name": "x", "namespace": "team", "resourceVersion": "2"});
        (
            200,
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata, "spec": {}}),
        )
    }));
    let ctx = Arc::get_mut(&mut test.ctx).expect("no other task has it");
    ctx.stores = stores;
    ctx.planner.node_index = Arc::new(node_index());
    (test, writes)
}
