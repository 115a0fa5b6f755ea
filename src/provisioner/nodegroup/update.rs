//! Plans in-place changes of a node group. Tags change immediately; EKS applies all other changes as one update at a time.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::drift::{is_unchanged_since_adoption, version_drift};
use super::input::PlanInput;
use super::names::sha256_hex;
use super::observed::ObservedNodegroup;
use super::ownership::to_tags;
use super::{adopt, health};
use crate::aws::nodegroup::{NodegroupChange, NodegroupSizes, NodegroupTaint, NodegroupVersion};
use crate::ownership::{has_ownership_tags, tagging_blocked};
use crate::plan::NodegroupStep;
use crate::plan::{Drift, Outcome, Phase, PlanBuilder, Reason, Recheck, waiting};

/// The key of a taint in the record: Kubernetes identifies a taint by its key and effect.
pub fn taint_key(taint: &NodegroupTaint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}

/// The client token of an EKS call. It is the same for a repeated request and changes with `previous`, which identifies the
/// last completed operation.
pub fn client_token(uid: &str, request: &Value, previous: &str) -> String {
    sha256_hex(&format!("{uid} {request} {previous}"))[..32].to_owned()
}

/// Plans tag changes: adds missing or different tags and removes recorded tags that the spec no longer has. Returns the
/// outcome for a group without other work. Denied tagging is reported and retried after a delay; during an adoption
/// (`is_adopting`) the `Adopted` condition reports it.
pub fn plan_tags(
    input: &PlanInput,
    current: &ObservedNodegroup,
    is_adopting: bool,
    draft: &mut PlanBuilder,
) -> Option<Outcome> {
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
    let is_tagged = has_ownership_tags(&to_tags(&found.tags), &r.ownership_tags);
    let sets_outcome = is_tagged && !is_adopting;
    if input.observed.tag_retry_pending {
        return sets_outcome.then(|| tagging_blocked(!differing.is_empty(), !gone.is_empty(), false));
    }
    if !differing.is_empty() {
        let because = |key: &String| {
            Drift::new(format!("tags[{key}]"), found.tags.get(key).cloned().unwrap_or_default(), &differing[key])
        };
        let because = differing.keys().map(because).collect();
        // The shipped IAM policy requires the ownership tags in every tagging call.
        let tags = differing.clone().into_iter().chain(ownership).collect();
        draft.push_with_reasons(
            NodegroupStep::TagNodegroup { nodegroup: found.name.clone(), arn: found.arn.clone(), tags },
            because,
        );
        // A retry of denied tagging: the condition is restored, and a new denial is reported on it again.
        if !is_tagged && !is_adopting {
            adopt::report_adoption(input, current, draft);
        }
    }
    if !gone.is_empty() {
        let because = gone.iter().map(|key| Drift::new(format!("tags[{key}]"), &found.tags[key], "")).collect();
        draft.push_with_reasons(
            NodegroupStep::UntagNodegroup { nodegroup: found.name.clone(), arn: found.arn.clone(), keys: gone },
            because,
        );
    }
    let message = "changing in place".into();
    sets_outcome.then_some(Outcome::Progressing { phase: Phase::Modifying, message, recheck: Recheck::Immediately })
}

/// Plans one update for sizes, labels, taints, node repair and maxUnavailable.
pub fn plan_config_update(input: &PlanInput, current: &ObservedNodegroup, draft: &mut PlanBuilder) {
    let mut because = Vec::new();
    let change = config_change(input, current, &mut because);
    if because.is_empty() {
        return;
    }
    let change_hash = sha256_hex(&json!(change).to_string());
    if input.update_retry_at(&change_hash).is_some() {
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
    draft.set_outcome_once(waiting(Phase::Modifying, "EKS is updating the node group in place"));
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

/// The size change to send. EKS rejects a minimum or maximum that excludes the desired size, so the desired size is sent
/// only in that case. Otherwise it is left to the autoscaler.
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
    let clamped = desired.clamp(w.min_size, w.max_size);
    let sent = (clamped != desired).then_some(clamped);
    ((found.min, found.max) != (w.min_size, w.max_size)).then_some(NodegroupSizes {
        min: w.min_size,
        max: w.max_size,
        desired: sent,
    })
}

/// The outcome that blocks a size change. A maximum below the desired size makes EKS remove nodes, so a lock or an
/// unhealthy cluster blocks it.
pub fn size_change_blocker(input: &PlanInput, current: &ObservedNodegroup) -> Option<Outcome> {
    let (w, found) = (&input.resolved.desired, &current.nodegroup.sizes);
    let desired = current.desired_size();
    if desired <= w.max_size || (found.min, found.max) == (w.min_size, w.max_size) {
        return None;
    }
    let locked = |lock| {
        let message = format!(
            "maxSize {} would remove {} of {desired} nodes; this is blocked by {lock}",
            w.max_size,
            desired - w.max_size
        );
        Outcome::Locked { message }
    };
    input.lock.map(locked).or_else(|| health::cluster_unhealthy(input))
}

/// Plans an update of the Kubernetes version or the image release. EKS replaces the nodes.
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
            "spec.eks-managed.configuration.version `{wanted}` is older than the version of the nodes ({}), and EKS does not support a downgrade; use {} or later",
            found.version, found.version
        );
        return draft.set_outcome_once(Outcome::Blocked { reason: Reason::InvalidSpec, message, is_deleting: false });
    }
    let drift: Vec<_> = because.iter().map(ToString::to_string).collect();
    if let Some(lock) = input.lock {
        let message = format!(
            "{} of {} nodes are outdated ({}); replacement is blocked by {lock}",
            current.members.len(),
            current.members.len(),
            drift.join("; ")
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
    if input.update_retry_at(&change_hash).is_some() {
        return draft.set_outcome_once(health::update_failed(input));
    }
    let nodegroup = current.name().clone();
    let token = client_token(&w.id.uid, &json!([nodegroup, to]), last_update_id(input));
    draft.push_with_reasons(NodegroupStep::UpdateNodegroupVersion { nodegroup, to, token, change_hash }, because);
    draft.set_outcome_once(waiting(Phase::Rotating, format!("EKS is starting an update: {}", drift.join("; "))));
}

/// Parses a version such as `1.33`. A part that is not a number counts as the largest number, so that an unknown version
/// is never treated as older.
fn parse_minor_version(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(u32::MAX));
    (parts.next().unwrap_or(u32::MAX), parts.next().unwrap_or(u32::MAX))
}
