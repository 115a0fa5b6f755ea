//! Gathers what the decision about one group depends on.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use serde_json::Value;

use crate::api::{GroupId, InstanceGroup, InstanceGroupStatus, group_id, has_resources};
use crate::controller::planner::{GroupContext, Planner, merge_spec};
use crate::controller::stores::Stores;
use crate::rollout::{
    DecisionInput, GroupView, RevisionDecision, RevisionImpact, RolloutView, StoredRevision, WaitReason, choose,
    uid_hash,
};

/// Labels and annotations of a Namespace; an annotation wins over a label of its name.
pub(super) fn namespace_texts(namespace: &PartialObjectMeta<Namespace>) -> BTreeMap<String, String> {
    let mut texts = namespace.labels().clone();
    texts.extend(namespace.annotations().clone());
    texts
}

/// Whether a status records neither the group's revision nor its resources.
fn has_no_record(status: &InstanceGroupStatus) -> bool {
    let is_empty = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
    is_empty(&status.boundaries_revision) && is_empty(&status.config_md5) && !has_resources(status)
}

/// What a forecast depends on. One that was made before all nodes ran what the group has was about other nodes. A tenant
/// may exclude its Namespace from boundaries, or include it again, at any time.
pub(super) fn forecast_inputs(
    group: &InstanceGroup,
    own: Option<&StoredRevision>,
    target: &StoredRevision,
    namespace_annotations: &BTreeMap<String, String>,
) -> String {
    let namespace = group.namespace().unwrap_or_default();
    let excludes = |content: &StoredRevision| content.active.excludes(&namespace, namespace_annotations);
    let excluded = (own.map(excludes), excludes(target));
    let uid = group.metadata.uid.as_deref().unwrap_or_default();
    let own = own.map(|own| own.hash.as_str()).unwrap_or_default();
    let record = group.status.as_ref().and_then(|status| status.rollout.as_ref());
    let settled = record.and_then(|record| record.settled.as_deref()).unwrap_or_default();
    let generation = group.metadata.generation.unwrap_or_default();
    format!("{uid} {generation} {own} {settled} {} {excluded:?} {:?}", target.hash, group.annotations())
}

/// Whether the image of a merged spec is one that a revision decides.
pub(super) fn uses_alias(spec: &Value) -> bool {
    let image = spec.pointer("/eks/configuration/image").and_then(Value::as_str).unwrap_or_default();
    !image.is_empty() && !image.to_ascii_lowercase().starts_with("ami-")
}

/// A group with the decision about it.
pub(crate) struct Decided {
    /// Which revision the group has or takes, and why it waits.
    pub choice: RevisionDecision,
    /// What the forecast depends on, as text.
    pub inputs: String,
    /// What the target would do to the group.
    pub forecast: RevisionImpact,
    /// The index of the group's wave.
    pub wave: usize,
    /// Whether its nodes are replaced within the budget of the rollout.
    pub rotates_for_revision: bool,
    /// Whether it counts as a failure of its wave, because it cannot use the target.
    pub fails_wave: bool,
    /// Whether it has a part in the rollout: it is neither deleted nor excluded.
    pub has_part: bool,
}

impl Stores {
    /// Decides which content a group has. `texts` are those of its namespace.
    pub(super) fn decide(
        &self,
        group: &InstanceGroup,
        view: &RolloutView,
        texts: &BTreeMap<String, String>,
        planner: &Planner,
        now: Timestamp,
        observe: impl FnOnce(&GroupView, &RevisionDecision),
    ) -> Decided {
        let (namespace, key) = (group.namespace().unwrap_or_default(), GroupId::key_of(&group.metadata));
        let stored = self.namespaces.get(&ObjectRef::new(&namespace));
        let empty = BTreeMap::new();
        let annotations = stored.as_ref().map_or(&empty, |namespace| namespace.annotations());
        let unwritten = InstanceGroupStatus::default();
        let status = group.status.as_ref().unwrap_or(&unwritten);
        let recorded = status.boundaries_revision.as_deref().and_then(|hash| view.stored.get(hash));
        let inputs = forecast_inputs(group, recorded, &view.target, annotations);
        let forecast = self.rollout.forecast(&key, &inputs, view.orders.retries);
        let lock = self.own_lock(group, Some(annotations));
        let uid = group.metadata.uid.as_deref().unwrap_or_default();
        let yielding = self.rollout.with_yielding_groups(|groups| groups.reason(&key));
        let group_view = GroupView {
            key: &key,
            uid_hash: uid_hash(uid),
            generation: group.metadata.generation.unwrap_or_default(),
            is_deleting: group.metadata.deletion_timestamp.is_some(),
            status,
            annotations: group.annotations(),
            namespace: &namespace,
            namespace_annotations: annotations,
            namespace_texts: texts,
            lock: lock.as_deref(),
            forecast: &forecast,
            has_marked_nodes: planner.node_index.has_records_of(uid),
            yielding: yielding.as_deref(),
            has_lost_status: has_no_record(status)
                && !planner.node_index.names_by_group(&[key.clone()].into()).is_empty(),
        };
        let merged = |content: &StoredRevision| {
            let context = GroupContext {
                namespace_annotations: Some(annotations.clone()),
                active_boundaries: content.active.clone(),
                ..GroupContext::default()
            };
            merge_spec(group, &group_id(group), &context).ok().map(|(merged, _)| merged)
        };
        let has_room = |wave| self.rollout.has_room(view, wave, &key);
        let failure_delay = planner.settings.timing.revision_failure_delay;
        // A group that has just become Stalled must not look as if it had been for long.
        let has_jumped = planner.process_state.has_clock_jumped_within(failure_delay);
        let failure_delay = if has_jumped { SignedDuration::MAX } else { failure_delay };
        let choice = choose(&DecisionInput {
            view,
            group: group_view,
            merged_hash: &|content| merged(content).map(|merged| merged.hash),
            uses_alias: &|content| merged(content).is_none_or(|merged| uses_alias(&merged.spec)),
            has_room: &has_room,
            budget_used_up: &|| self.rollout.budget_used_up(view, &key),
            failure_delay,
            now,
        });
        observe(&group_view, &choice);
        let wave = group_view.wave(view);
        let rotates_for_revision =
            matches!(&choice, RevisionDecision::Use { content: Some(own), .. } if group_view.rotates_for_revision(own));
        let cannot_use =
            matches!(&choice, RevisionDecision::Use { waits: Some(wait), .. } if wait.reason == WaitReason::CannotUse);
        let is_new = |reason: &String| !group_view.is_blocked_by(reason);
        let fails_wave = cannot_use && matches!(&forecast, RevisionImpact::CannotUse { reason, .. } if is_new(reason));
        let has_part = group_view.has_part(view);
        Decided { choice, inputs, forecast, wave, rotates_for_revision, fails_wave, has_part }
    }
}
