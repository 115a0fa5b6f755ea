//! Plans in-place changes of a node group. Tags change immediately; EKS applies all other changes as one update at a time.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::drift::{is_unchanged_since_adoption, version_drift};
use super::input::PlanInput;
use super::names::sha256_hex;
use super::observed::ObservedNodegroup;
use super::ownership::to_tags;
use super::resolve::ResolvedGroup;
use super::{adopt, cluster_version, health};
use crate::api::ManagedAttributes;
use crate::api::names::tag;
use crate::aws::nodegroup::{MaxUnavailable, NodegroupChange, NodegroupSizes, NodegroupTaint, NodegroupVersion};
use crate::ownership::{has_ownership_tags, tagging_blocked};
use crate::plan::NodegroupStep;
use crate::plan::{Drift, Outcome, Phase, PlanBuilder, PlannedStep, Recheck, StalledReason, waiting};
use crate::provisioner::rejected_fields::Part;

/// The key of a taint in the record: Kubernetes identifies a taint by its key and effect.
pub(crate) fn taint_key(taint: &NodegroupTaint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}

/// The client token of an EKS call. It is the same for a repeated request and changes with `previous`, which identifies the
/// last completed operation.
pub(crate) fn client_token(uid: &str, request: &Value, previous: &str) -> String {
    sha256_hex(&format!("{uid} {request} {previous}"))[..32].to_owned()
}

/// Plans tag changes: adds missing or different tags and removes recorded tags that the spec no longer has. Returns the
/// outcome for a group without other work. Denied tagging is reported and retried after a delay; during an adoption
/// (`is_adopting`) the `Adopted` condition reports it.
pub(crate) fn plan_tags(
    input: &PlanInput,
    current: &ObservedNodegroup,
    is_adopting: bool,
    builder: &mut PlanBuilder,
) -> Option<Outcome> {
    let (r, found) = (input.resolved, &current.nodegroup);
    let ownership: BTreeMap<_, _> = r.ownership_tags.iter().map(|t| (t.key.clone(), t.value.clone())).collect();
    let adopted = adopt::hash_tag(input, found, is_adopting).map(|tag| (tag.key, tag.value));
    let adopted: BTreeMap<_, _> = adopted.into_iter().collect();
    let desired = r.desired.tags.iter().chain(&ownership).chain(&adopted);
    let differing: BTreeMap<_, _> = desired
        .filter(|(key, value)| found.tags.get(*key) != Some(*value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let recorded = input.status.managed.iter().flat_map(|managed| &managed.tags);
    // It makes room for the tags of the spec.
    let adoption_key = tag::ADOPTED_HASH.to_owned();
    let recorded = recorded.chain(adopted.is_empty().then_some(&adoption_key));
    let removed: Vec<_> =
        recorded.filter(|key| found.tags.contains_key(*key) && !r.desired.tags.contains_key(*key)).cloned().collect();
    if differing.is_empty() && removed.is_empty() {
        return None;
    }
    let is_tagged = has_ownership_tags(&to_tags(&found.tags), &r.ownership_tags);
    // Nothing waits for the hash of an adoption: without the permission, the group is as good as before.
    let is_only_hash = differing.keys().chain(&removed).all(|key| *key == adoption_key);
    let sets_outcome = is_tagged && !is_adopting && !is_only_hash;
    if input.observed.tag_retry_pending {
        return sets_outcome.then(|| tagging_blocked(!differing.is_empty(), !removed.is_empty(), false));
    }
    let mut removal = (!removed.is_empty()).then(|| {
        let reasons = removed.iter().map(|key| Drift::new(format!("tags[{key}]"), &found.tags[key], "")).collect();
        let (nodegroup, arn) = (found.name.clone(), found.arn.clone());
        PlannedStep::new(NodegroupStep::UntagNodegroup { nodegroup, arn, keys: removed }, reasons)
    });
    // EKS allows 50 tags, so room for new ones is made first. The ownership tags permit the removal.
    if is_tagged {
        builder.steps.extend(removal.take());
    }
    if !differing.is_empty() {
        let drift = |key: &String| {
            Drift::new(format!("tags[{key}]"), found.tags.get(key).cloned().unwrap_or_default(), &differing[key])
        };
        let reasons = differing.keys().map(drift).collect();
        // The shipped IAM policy requires the ownership tags in every tagging call.
        let tags = differing.clone().into_iter().chain(ownership).collect();
        builder.push_with_reasons(
            NodegroupStep::TagNodegroup { nodegroup: found.name.clone(), arn: found.arn.clone(), tags },
            reasons,
        );
        // A retry of denied tagging: the condition is restored, and a new denial is reported on it again.
        if !is_tagged && !is_adopting {
            adopt::report_adoption(input, current, builder);
        }
    }
    builder.steps.extend(removal);
    let message = "changing in place".into();
    sets_outcome.then_some(Outcome::Progressing { phase: Phase::Modifying, message, recheck: Recheck::Immediately })
}

/// Plans one update for sizes, labels, taints, node repair and maxUnavailable. `replaced`: how many nodes of other node
/// groups, which still exist, it is to replace; `None` without others.
pub(crate) fn plan_config_update(
    input: &PlanInput,
    current: &ObservedNodegroup,
    replaced: Option<i32>,
    builder: &mut PlanBuilder,
) {
    let mut reasons = Vec::new();
    let change = config_change(input, current, replaced, &mut reasons);
    if reasons.is_empty() {
        return;
    }
    let change_hash = sha256_hex(&json!(change).to_string());
    if input.update_retry_at(&change_hash).is_some() {
        return builder.set_outcome_once(health::update_failed(input));
    }
    let nodegroup = current.name().clone();
    let token = client_token(&input.resolved.desired.id.uid, &json!([nodegroup, change]), last_update_id(input));
    let removes_nodes =
        change.sizes.and_then(|sizes| sizes.desired).is_some_and(|desired| desired < current.desired_size());
    let disrupts_nodes = removes_nodes || change.set_taints.iter().any(evicts_pods);
    builder.push_with_reasons(
        NodegroupStep::UpdateNodegroup { nodegroup, change, token, change_hash, disrupts_nodes },
        reasons,
    );
    builder.starts_update = true;
    builder.set_outcome_once(waiting(Phase::Modifying, "EKS is updating the node group in place"));
}

fn last_update_id<'a>(input: &'a PlanInput) -> &'a str {
    input.status.update_id.as_deref().unwrap_or_default()
}

fn config_change(
    input: &PlanInput,
    current: &ObservedNodegroup,
    replaced: Option<i32>,
    reasons: &mut Vec<Drift>,
) -> NodegroupChange {
    let (spec, found) = (&input.resolved.desired, &current.nodegroup);
    let empty = Default::default();
    let managed = input.status.managed.as_ref().unwrap_or(&empty);
    let mut change =
        NodegroupChange { sizes: size_change(input, current, replaced, reasons), ..NodegroupChange::default() };
    for (key, value) in spec.labels.iter().filter(|(key, value)| found.labels.get(*key) != Some(*value)) {
        let from = found.labels.get(key).cloned().unwrap_or_default();
        reasons.push(Drift::new(format!("nodeLabels[{key}]"), from, value));
        change.set_labels.insert(key.clone(), value.clone());
    }
    let is_removed = |key: &&String| found.labels.contains_key(*key) && !spec.labels.contains_key(*key);
    for key in managed.labels.iter().filter(is_removed) {
        reasons.push(Drift::new(format!("nodeLabels[{key}]"), &found.labels[key], ""));
        change.remove_labels.push(key.clone());
    }
    let is_blocked = eviction_blocker(input, current).is_some();
    let missing = spec.taints.iter().filter(|taint| !found.taints.contains(taint));
    for taint in missing.filter(|taint| !(is_blocked && evicts_pods(taint))) {
        let from = found.taints.iter().find(|t| taint_key(t) == taint_key(taint)).map(ToString::to_string);
        reasons.push(Drift::new("taints", from.unwrap_or_default(), taint));
        change.set_taints.push(taint.clone());
    }
    let desired_taints: Vec<_> = spec.taints.iter().map(taint_key).collect();
    let is_recorded = |taint: &&NodegroupTaint| managed.taints.contains(&taint_key(taint));
    let removed = found.taints.iter().filter(is_recorded).filter(|taint| !desired_taints.contains(&taint_key(taint)));
    // A taint that waits may replace one that the spec drops. Until then, the old one keeps pods away.
    for taint in removed.filter(|_| !is_blocked) {
        reasons.push(Drift::new("taints", taint, ""));
        change.remove_taints.push(taint.clone());
    }
    let max_unavailable = spec.max_unavailable.or_else(|| default_max_unavailable(input, managed));
    if let Some(to) = max_unavailable.filter(|to| Some(*to) != found.max_unavailable) {
        let from = found.max_unavailable.map(|n| n.to_string()).unwrap_or_default();
        reasons.push(Drift::new("strategy.managed.maxUnavailable", from, to));
        change.max_unavailable = Some(to);
    }
    // The spec sets none, and EKS refuses a maximum size below what it has.
    if let (Some(sizes), None, Some(MaxUnavailable::Count(count))) =
        (change.sizes, max_unavailable, found.max_unavailable)
        && count > sizes.max
    {
        reasons.push(Drift::new("updateConfig.maxUnavailable", count, sizes.max));
        change.max_unavailable = Some(MaxUnavailable::Count(sizes.max));
    }
    let repair = spec.node_repair.or_else(|| managed.node_repair.then_some(false));
    if let Some(repair) = repair.filter(|repair| *repair != found.repair) {
        reasons.push(Drift::new("nodeRepairConfig.enabled", found.repair, repair));
        change.repair = Some(repair);
    }
    change
}

/// The default of EKS, once the spec no longer has the value that it had set. It is not known whether a strategy that
/// cannot be used has one.
fn default_max_unavailable(input: &PlanInput, managed: &ManagedAttributes) -> Option<MaxUnavailable> {
    let is_known = !input.resolved.broken.contains(Part::Rotation);
    (managed.max_unavailable && is_known).then_some(MaxUnavailable::DEFAULT)
}

/// The size change to send. EKS rejects a minimum or maximum that excludes the desired size, so the desired size is sent
/// only in that case. Otherwise it is left to the autoscaler.
///
/// A replacement keeps the minimum that it was created with until the node groups that it replaces are gone: its nodes are
/// empty until then. One that is smaller than what it replaces grows first: an autoscaler shrinks a node group that is being
/// drained, and the spec may go back to it.
fn size_change(
    input: &PlanInput,
    current: &ObservedNodegroup,
    replaced: Option<i32>,
    reasons: &mut Vec<Drift>,
) -> Option<NodegroupSizes> {
    let (spec, found) = (&input.resolved.desired, &current.nodegroup.sizes);
    if size_change_blocker(input, current).is_some() {
        return None;
    }
    let kept = replaced.map_or(spec.min_size, |nodes| found.min.max(nodes).min(spec.max_size));
    let min = spec.min_size.max(kept);
    for (field, from, to) in [("minSize", found.min, min), ("maxSize", found.max, spec.max_size)] {
        if from != to {
            reasons.push(Drift::new(field, from, to));
        }
    }
    let desired = current.desired_size();
    let clamped = desired.clamp(min, spec.max_size);
    let sent = (clamped != desired).then_some(clamped);
    let differs = (found.min, found.max) != (min, spec.max_size);
    differs.then_some(NodegroupSizes { min, max: spec.max_size, desired: sent })
}

/// The outcome that blocks a size change. A maximum below the desired size makes EKS remove nodes, so a lock, a rollout or
/// an unhealthy cluster blocks it.
pub(crate) fn size_change_blocker(input: &PlanInput, current: &ObservedNodegroup) -> Option<Outcome> {
    let (spec, found) = (&input.resolved.desired, &current.nodegroup.sizes);
    let desired = current.desired_size();
    if desired <= spec.max_size || (found.min, found.max) == (spec.min_size, spec.max_size) {
        return None;
    }
    let locked = |lock| {
        let message = format!(
            "maxSize {} would remove {} of {desired} nodes; this is blocked by {lock}",
            spec.max_size,
            desired - spec.max_size
        );
        Outcome::Locked { message }
    };
    input.lock.or(input.rollout_block).map(locked).or_else(|| health::cluster_unhealthy(input))
}

/// Whether a taint makes Kubernetes evict the pods of a running node that do not tolerate it. It respects no
/// PodDisruptionBudget.
fn evicts_pods(taint: &NodegroupTaint) -> bool {
    taint.effect == "NO_EXECUTE"
}

/// A taint of the spec that the node group does not have, and that evicts pods.
pub(super) fn evicting_taint<'a>(
    resolved: &'a ResolvedGroup,
    current: &ObservedNodegroup,
) -> Option<&'a NodegroupTaint> {
    resolved.desired.taints.iter().find(|taint| evicts_pods(taint) && !current.nodegroup.taints.contains(taint))
}

/// The outcome that blocks a new taint which evicts pods. EKS puts it on all running nodes at once, so that a lock, a rollout
/// or an unhealthy cluster blocks it.
pub(crate) fn eviction_blocker(input: &PlanInput, current: &ObservedNodegroup) -> Option<Outcome> {
    let taint = evicting_taint(input.resolved, current)?;
    let locked = |lock| {
        let message = format!(
            "the taint {taint} would evict pods from all {} nodes at once, past every PodDisruptionBudget; this is blocked by {lock}, and no taint is removed until then",
            current.members.len()
        );
        Outcome::Locked { message }
    };
    input.lock.or(input.rollout_block).map(locked).or_else(|| health::cluster_unhealthy(input))
}

/// Plans an update of the Kubernetes version or the image release. EKS replaces the nodes.
pub(crate) fn plan_version_update(input: &PlanInput, current: &ObservedNodegroup, builder: &mut PlanBuilder) {
    let (spec, found) = (&input.resolved.desired, &current.nodegroup);
    if is_unchanged_since_adoption(input.resolved, input.status, found) {
        return;
    }
    let reasons = version_drift(input.resolved, found);
    if reasons.is_empty() {
        return;
    }
    if let Some(version) =
        spec.version.as_ref().filter(|version| parse_minor_version(version) < parse_minor_version(&found.version))
    {
        let message = format!(
            "spec.eks-managed.configuration.version `{version}` is older than the version of the nodes ({}), and EKS does not support a downgrade; use {} or later",
            found.version, found.version
        );
        return builder.set_outcome_once(Outcome::Blocked {
            reason: StalledReason::InvalidSpec,
            message,
            is_deleting: false,
        });
    }
    if let Some(release) =
        spec.release_version.as_ref().filter(|release| is_older_release(release, &found.release_version))
    {
        let message = format!(
            "spec.eks-managed.configuration.releaseVersion `{release}` is older than the release of the nodes ({}), and EKS cannot return a node group to an earlier one; use {} or later, or remove releaseVersion to keep the nodes as they are",
            found.release_version, found.release_version
        );
        return builder.set_outcome_once(Outcome::Blocked {
            reason: StalledReason::RefusedByAws,
            message,
            is_deleting: false,
        });
    }
    if let Some(outcome) = cluster_version::refusal(input, found) {
        return builder.set_outcome_once(outcome);
    }
    let drift: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    if let Some(lock) = input.lock.or(input.rollout_block) {
        let message = format!(
            "{} of {} nodes are outdated ({}); replacement is blocked by {lock}",
            health::outdated_nodes(input, current).len(),
            current.members.len(),
            drift.join("; ")
        );
        return builder.set_outcome_once(Outcome::Locked { message });
    }
    if let Some(outcome) = health::cluster_unhealthy(input) {
        return builder.set_outcome_once(outcome);
    }
    // EKS takes a default for what is omitted: the cluster's version, and the latest release.
    let version = spec.kubernetes_version(Some(&found.ami_type)).unwrap_or_else(|| found.version.clone());
    let to = NodegroupVersion { version, release_version: spec.release_version.clone() };
    let change_hash = sha256_hex(&json!(to).to_string());
    if input.update_retry_at(&change_hash).is_some() {
        return builder.set_outcome_once(health::update_failed(input));
    }
    let nodegroup = current.name().clone();
    let token = client_token(&spec.id.uid, &json!([nodegroup, to]), last_update_id(input));
    builder.push_with_reasons(NodegroupStep::UpdateNodegroupVersion { nodegroup, to, token, change_hash }, reasons);
    builder.starts_update = true;
    builder.set_outcome_once(waiting(Phase::Rotating, format!("EKS is starting an update: {}", drift.join("; "))));
}

/// Parses a version such as `1.33`. A part that is not a number counts as the largest number, so that an unknown version
/// is never treated as older.
fn parse_minor_version(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(u32::MAX));
    (parts.next().unwrap_or(u32::MAX), parts.next().unwrap_or(u32::MAX))
}

/// Whether a release of an image is known to be older than another one. The minor version decides, then the date, such
/// as `1.33.5-20251108` and Windows' `1.33-2025.11.21`, or else the rest of the version, such as Bottlerocket's
/// `1.49.0-713f44ce`.
fn is_older_release(release: &str, than: &str) -> bool {
    let numbers = |text: &str| text.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>();
    let parts = |text: &str| text.split_once('-').map(|(version, build)| (numbers(version), build.to_owned()));
    let (Some((Some(version), build)), Some((Some(than_version), than_build))) = (parts(release), parts(than)) else {
        return false;
    };
    let minor = |version: &[u64]| version.iter().take(2).copied().collect::<Vec<_>>();
    if minor(&version) != minor(&than_version) {
        return minor(&version) < minor(&than_version);
    }
    // The hash of a commit may consist of digits.
    let date = |text: &str| {
        numbers(text).filter(|_| text.replace('.', "").len() == "20251108".len() && text.starts_with("20"))
    };
    match (date(&build), date(&than_build)) {
        (Some(date), Some(than)) => date < than,
        _ => version < than_version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_only_where_their_order_is_known() {
        for (release, than, is_older) in [
            ("1.33.5-20251001", "1.33.5-20251108", true),
            ("1.33.5-20251108", "1.33.5-20251108", false),
            ("1.33.3-20251108", "1.33.5-20251001", false),
            ("1.48.0-713f44ce", "1.49.0-a13f44ce", true),
            ("1.49.0-713f44ce", "1.49.0-a13f44ce", false),
            ("1.33-2025.10.18", "1.33-2025.11.21", true),
            ("latest", "1.33.5-20251108", false),
            ("1.33.5-20251108", "", false),
            ("1.34.0-20251001", "1.33.5-20251108", false),
            ("1.33.5-20251108", "1.34.0-20251001", true),
        ] {
            assert_eq!(is_older_release(release, than), is_older, "{release} {than}");
        }
    }
}
