//! What EKS changes in place: tags at once, the rest as one update at a time.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::health;
use super::input::PlanInput;
use super::names::sha256_hex;
use super::observed::{ObservedNodegroup, is_unchanged_since_adoption, to_tags, version_drift};
use crate::api::names::condition;
use crate::aws::nodegroup::{Nodegroup, NodegroupChange, NodegroupSizes, NodegroupTaint, NodegroupVersion};
use crate::ownership::{UNTAGGED_SUFFIX, has_ownership_tags, tagging_blocked, tagging_denied_condition};
use crate::plan::NodegroupStep;
use crate::plan::{ConditionUpdate, Drift, Outcome, Phase, PlanBuilder, Reason, Recheck, waiting};

/// A taint as the record names it: key and effect together are what Kubernetes tells taints apart by.
pub fn taint_key(taint: &NodegroupTaint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}

/// The same for the same act, and another one once something else has been done in between: `after` says what came last.
pub fn client_token(uid: &str, act: &Value, after: &str) -> String {
    sha256_hex(&format!("{uid} {act} {after}"))[..32].to_owned()
}

/// Tags that are missing or differ, and ours that are no longer wanted. Answers how a group stands that has nothing else to
/// do: what AWS refuses is told, and tried again when that has rested. A takeover tells it in its own condition.
pub fn plan_tags(input: &PlanInput, current: &ObservedNodegroup, draft: &mut PlanBuilder) -> Option<Outcome> {
    let (r, found) = (input.resolved, &current.nodegroup);
    let ownership: BTreeMap<_, _> = r.ownership_tags.iter().map(|t| (t.key.clone(), t.value.clone())).collect();
    let wanted = r.desired.tags.iter().chain(&ownership);
    let differing: BTreeMap<_, _> = wanted
        .filter(|(key, value)| found.tags.get(*key) != Some(*value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let recorded = input.status.managed.iter().flat_map(|managed| &managed.tags);
    let gone: Vec<_> =
        recorded.filter(|key| found.tags.contains_key(*key) && !r.desired.tags.contains_key(*key)).cloned().collect();
    if differing.is_empty() && gone.is_empty() {
        return None;
    }
    let ours = has_ownership_tags(&to_tags(&found.tags), &r.ownership_tags) && !reports_adoption(draft);
    if input.observed.tag_retry_pending {
        return ours.then(|| tagging_blocked(!differing.is_empty(), !gone.is_empty(), false));
    }
    if !differing.is_empty() {
        let because = |key: &String| {
            Drift::new(format!("tags[{key}]"), found.tags.get(key).cloned().unwrap_or_default(), &differing[key])
        };
        let because = differing.keys().map(because).collect();
        // With those that say whose it is: a policy lets nobody tag what is not the cluster's.
        let tags = differing.clone().into_iter().chain(ownership).collect();
        draft.push_with_reasons(
            NodegroupStep::TagNodegroup { nodegroup: found.name.clone(), arn: found.arn.clone(), tags },
            because,
        );
        drop_untagged_suffix(input, found, draft);
    }
    if !gone.is_empty() {
        let because = gone.iter().map(|key| Drift::new(format!("tags[{key}]"), &found.tags[key], "")).collect();
        draft.push_with_reasons(
            NodegroupStep::UntagNodegroup { nodegroup: found.name.clone(), arn: found.arn.clone(), keys: gone },
            because,
        );
    }
    let message = "changing in place".into();
    ours.then_some(Outcome::Progressing { phase: Phase::Modifying, message, recheck: Recheck::Soon })
}

fn reports_adoption(draft: &PlanBuilder) -> bool {
    draft.condition_updates.iter().any(|note| note.condition_type == condition::ADOPTED)
}

/// What the takeover told stays told, without what is tagged now.
fn drop_untagged_suffix(input: &PlanInput, found: &Nodegroup, draft: &mut PlanBuilder) {
    if has_ownership_tags(&to_tags(&found.tags), &input.resolved.ownership_tags) || reports_adoption(draft) {
        return;
    }
    let told = tagging_denied_condition(input.status).and_then(|told| told.message.as_deref()).unwrap_or_default();
    let message = told.split(UNTAGGED_SUFFIX).next().unwrap_or_default().to_owned();
    draft.condition_updates.push(ConditionUpdate {
        condition_type: condition::ADOPTED,
        status: true,
        reason: "ResourcesAdopted".into(),
        message,
    });
}

/// Sizes, labels, taints, repair and the pace of updates, in one update.
pub fn plan_config_update(input: &PlanInput, current: &ObservedNodegroup, draft: &mut PlanBuilder) {
    let mut because = Vec::new();
    let change = config_change(input, current, &mut because);
    if because.is_empty() {
        return;
    }
    let change_hash = sha256_hex(&json!(change).to_string());
    if input.again(&change_hash).is_some() {
        return draft.set_outcome_once(health::update_failed(input));
    }
    let nodegroup = current.name().clone();
    let token = client_token(&input.resolved.desired.id.uid, &json!([nodegroup, change]), last_update_id(input));
    let removes_nodes =
        change.sizes.and_then(|sizes| sizes.desired).is_some_and(|desired| desired < current.desired_size());
    draft.push_with_reasons(
        NodegroupStep::UpdateNodegroup { nodegroup, change, token, change_hash, removes_nodes },
        because,
    );
    draft.set_outcome_once(waiting(Phase::Modifying, "EKS changes the node group in place"));
}

fn last_update_id<'a>(input: &'a PlanInput) -> &'a str {
    input.status.update_id.as_deref().unwrap_or_default()
}

fn config_change(input: &PlanInput, current: &ObservedNodegroup, because: &mut Vec<Drift>) -> NodegroupChange {
    let (w, found) = (&input.resolved.desired, &current.nodegroup);
    let empty = Default::default();
    let managed = input.status.managed.as_ref().unwrap_or(&empty);
    let mut change = NodegroupChange { sizes: size_change(input, current, because), ..NodegroupChange::default() };
    for (key, value) in w.labels.iter().filter(|(key, value)| found.labels.get(*key) != Some(*value)) {
        let from = found.labels.get(key).cloned().unwrap_or_default();
        because.push(Drift::new(format!("nodeLabels[{key}]"), from, value));
        change.set_labels.insert(key.clone(), value.clone());
    }
    let gone = |key: &&String| found.labels.contains_key(*key) && !w.labels.contains_key(*key);
    for key in managed.labels.iter().filter(gone) {
        because.push(Drift::new(format!("nodeLabels[{key}]"), &found.labels[key], ""));
        change.remove_labels.push(key.clone());
    }
    for taint in w.taints.iter().filter(|taint| !found.taints.contains(taint)) {
        let from = found.taints.iter().find(|t| taint_key(t) == taint_key(taint)).map(ToString::to_string);
        because.push(Drift::new("taints", from.unwrap_or_default(), taint));
        change.set_taints.push(taint.clone());
    }
    let wanted: Vec<_> = w.taints.iter().map(taint_key).collect();
    let ours = |taint: &&NodegroupTaint| managed.taints.contains(&taint_key(taint));
    for taint in found.taints.iter().filter(ours).filter(|taint| !wanted.contains(&taint_key(taint))) {
        because.push(Drift::new("taints", taint, ""));
        change.remove_taints.push(taint.clone());
    }
    if w.max_unavailable.is_some() && w.max_unavailable != found.max_unavailable {
        let text = |n: Option<crate::aws::nodegroup::MaxUnavailable>| n.map(|n| n.to_string()).unwrap_or_default();
        because.push(Drift::new(
            "strategy.managed.maxUnavailable",
            text(found.max_unavailable),
            text(w.max_unavailable),
        ));
        change.max_unavailable = w.max_unavailable;
    }
    if let Some(repair) = w.node_repair.filter(|repair| *repair != found.repair) {
        because.push(Drift::new("nodeRepairConfig.enabled", found.repair, repair));
        change.repair = Some(repair);
    }
    change
}

/// EKS refuses sizes that the desired one is outside of, and takes no change of them without it then; inside, the
/// autoscaler's stays unsaid.
fn size_change(input: &PlanInput, current: &ObservedNodegroup, because: &mut Vec<Drift>) -> Option<NodegroupSizes> {
    let (w, found) = (&input.resolved.desired, &current.nodegroup.sizes);
    if size_change_blocker(input, current).is_some() {
        return None;
    }
    for (field, from, to) in [("minSize", found.min, w.min_size), ("maxSize", found.max, w.max_size)] {
        if from != to {
            because.push(Drift::new(field, from, to));
        }
    }
    let desired = current.desired_size();
    let inside = desired.clamp(w.min_size, w.max_size);
    let sent = (inside != desired).then_some(inside);
    ((found.min, found.max) != (w.min_size, w.max_size)).then_some(NodegroupSizes {
        min: w.min_size,
        max: w.max_size,
        desired: sent,
    })
}

/// EKS takes nodes at once when sizes arrive that the desired one is above: what holds nodes holds those sizes.
pub fn size_change_blocker(input: &PlanInput, current: &ObservedNodegroup) -> Option<Outcome> {
    let (w, found) = (&input.resolved.desired, &current.nodegroup.sizes);
    let desired = current.desired_size();
    if desired <= w.max_size || (found.min, found.max) == (w.min_size, w.max_size) {
        return None;
    }
    let locked = |lock| {
        let message = format!(
            "maxSize {} would take {} of {desired} nodes, and {lock} holds them",
            w.max_size,
            desired - w.max_size
        );
        Outcome::Locked { message }
    };
    input.lock.map(locked).or_else(|| health::cluster_unhealthy(input))
}

/// The version of Kubernetes and the release of the image: EKS replaces the nodes.
pub fn plan_version_update(input: &PlanInput, current: &ObservedNodegroup, draft: &mut PlanBuilder) {
    let (w, found) = (&input.resolved.desired, &current.nodegroup);
    if is_unchanged_since_adoption(input.resolved, input.status, found) {
        return;
    }
    let because = version_drift(input.resolved, found);
    if because.is_empty() {
        return;
    }
    if let Some(wanted) =
        w.version.as_ref().filter(|wanted| parse_minor_version(wanted) < parse_minor_version(&found.version))
    {
        let message = format!(
            "spec.eks-managed.configuration.version `{wanted}` is older than what the nodes run ({}), and EKS takes no node group back; set it to {} or later",
            found.version, found.version
        );
        return draft.set_outcome_once(Outcome::Blocked { reason: Reason::InvalidSpec, message, is_deleting: false });
    }
    let told: Vec<_> = because.iter().map(ToString::to_string).collect();
    if let Some(lock) = input.lock {
        let message = format!(
            "{} of {} nodes are outdated ({}), and {lock} holds them",
            current.members.len(),
            current.members.len(),
            told.join("; ")
        );
        return draft.set_outcome_once(Outcome::Locked { message });
    }
    if let Some(outcome) = health::cluster_unhealthy(input) {
        return draft.set_outcome_once(outcome);
    }
    let to = NodegroupVersion {
        version: w.version.clone().filter(|version| *version != found.version),
        release_version: w.release_version.clone().filter(|release| *release != found.release_version),
    };
    let change_hash = sha256_hex(&json!(to).to_string());
    if input.again(&change_hash).is_some() {
        return draft.set_outcome_once(health::update_failed(input));
    }
    let nodegroup = current.name().clone();
    let token = client_token(&w.id.uid, &json!([nodegroup, to]), last_update_id(input));
    draft.push_with_reasons(NodegroupStep::UpdateNodegroupVersion { nodegroup, to, token, change_hash }, because);
    draft.set_outcome_once(waiting(Phase::Rotating, format!("EKS begins an update: {}", told.join("; "))));
}

/// `1.33` as numbers; what cannot be read is older than nothing.
fn parse_minor_version(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(u32::MAX));
    (parts.next().unwrap_or(u32::MAX), parts.next().unwrap_or(u32::MAX))
}
