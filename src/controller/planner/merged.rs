//! The cached state that the plan of one group depends on, and the merge of its spec with the active boundaries.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use kube::ResourceExt;
use serde_json::json;

use crate::api::InstanceGroup;
use crate::api::annotations::{ignored_on_group, ignored_on_namespace, wrong_confirmation};
use crate::api::names::condition;
use crate::auth::aws_auth::MapRoles;
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
use crate::boundaries::{Boundaries, MergedSpec, QuotaLevel, QuotaRequest, merge};
use crate::controller::report::BoundariesSummary;
use crate::index::groups::GroupIndex;
use crate::index::spot::Recommendations;
use crate::plan::{Allowance, ConditionUpdate};
use crate::provisioner::GroupId;
use crate::rollout::Images;
use crate::rollout::Wait;
use crate::util::lookup::Lookup;
use crate::util::text::shorten;

/// The cached state that the plan of one group depends on.
#[derive(Clone, Default)]
pub(crate) struct GroupContext {
    /// Annotations of the namespace; `None` when the cache does not have the namespace yet.
    pub namespace_annotations: Option<BTreeMap<String, String>>,
    /// The boundaries that the group is merged with, which may be those of an older revision.
    pub active_boundaries: Arc<ActiveBoundaries>,
    /// `mapRoles` of kube-system/aws-auth.
    pub map_roles: Arc<MapRoles>,
    /// Resources that groups share, by resource.
    pub group_index: Arc<GroupIndex>,
    /// What the group requests from the quota of its namespace; `None` without a quota.
    pub quota_request: Option<QuotaRequest>,
    /// Describes the lock (annotation `lock-upgrades`) that applies to the group, if there is one.
    pub lock: Option<String>,
    /// Why no further node may be replaced; replacements in progress are finished. `None` when nodes may be replaced.
    pub rollout_block: Option<String>,
    /// Whether the rollout itself blocks the group, so that a plan made with this context begins no replacement for it.
    pub is_rollout_blocked: bool,
    /// How many further nodes may be replaced; `None` for any number.
    pub allowance: Option<Allowance>,
    /// The images that aliases resolve to; `None` where they resolve to AWS's present image.
    pub images: Option<Arc<Images>>,
    /// Recommendations about spot instances.
    pub recommendations: Arc<Recommendations>,
    /// Why the group does not switch to the newest revision of the boundaries now; `None` without a reason.
    pub revision_wait: Option<Wait>,
    /// What will block the drains that this revision requests.
    pub drain_forecast: Lookup<String>,
    /// Whether a user requested this reconcile.
    pub is_requested: bool,
}

impl GroupContext {
    /// What the namespace uses of its quota with what the group asks for, if the quota allows that; empty without a quota.
    pub(crate) fn quota_levels(&self, namespace: &str) -> Vec<QuotaLevel> {
        let policy = self.active_boundaries.boundaries.as_ref().map(|boundaries| &boundaries.policy);
        let levels = policy.zip(self.quota_request).map(|(policy, request)| {
            let usage = if policy.allows(namespace, &request) { request.usage } else { request.before };
            policy.quota_levels(namespace, &usage)
        });
        levels.unwrap_or_default()
    }
}

/// Why no boundaries are available; `None` when they are, or when groups run without.
pub(super) fn boundaries_unavailable(context: &GroupContext) -> Option<String> {
    let why = match &context.active_boundaries.source {
        BoundariesSource::Unavailable(why) => {
            format!("{}, and no last known good revision is stored", shorten(why, MAX_CONFIG_ERRORS))
        }
        BoundariesSource::RevisionMissing(why) => return Some(why.clone()),
        BoundariesSource::Unknown => "the ConfigMap instance-manager has not been read yet".to_owned(),
        BoundariesSource::Live | BoundariesSource::LastKnownGood(_) | BoundariesSource::NotConfigured => return None,
    };
    Some(format!(
        "{why}; the controller changes nothing in AWS until a valid ConfigMap instance-manager is in use; ask your cluster admin, who finds each error in its events"
    ))
}

/// How many characters of the ConfigMap's errors a group reports. Its tenant cannot correct them.
const MAX_CONFIG_ERRORS: usize = 300;

/// The condition about annotations without effect. It is not set before there is one.
pub(super) fn annotations_ignored(
    group: &InstanceGroup,
    merged: &MergedSpec,
    context: &GroupContext,
) -> Option<ConditionUpdate> {
    let own = group.annotations();
    // An annotation that the boundaries replace is reported with the tenant's other values.
    let is_exempt = |key: &str| {
        let replaced = merged.annotations.get(key) != own.get(key).map(String::as_str);
        replaced || context.active_boundaries.boundaries.as_ref().is_some_and(|b| b.selects_by(key))
    };
    let on_namespace = |problem: String| format!("on the Namespace: {problem}");
    let namespace = context.namespace_annotations.iter();
    let unknown_there = namespace.clone().flat_map(ignored_on_namespace).map(on_namespace);
    let unconfirmed = wrong_confirmation(own, &group.name_any());
    let of_group = ignored_on_group(own, &merged.spec, is_exempt).into_iter().chain(unconfirmed);
    let unknown: Vec<_> = of_group.chain(unknown_there).collect();
    let name = group.namespace().unwrap_or_default();
    let disallowed = namespace.flat_map(|found| context.active_boundaries.disallowed_annotations(&name, found));
    let reason = if unknown.is_empty() { "NotAllowed" } else { "NoEffect" };
    ignored_update(group, unknown.into_iter().chain(disallowed.map(on_namespace)).collect(), reason)
}

/// The same condition of a group that is being deleted: only its confirmation matters.
pub(super) fn confirmation_ignored(group: &InstanceGroup) -> Option<ConditionUpdate> {
    let wrong = wrong_confirmation(group.annotations(), &group.name_any());
    ignored_update(group, wrong.into_iter().collect(), "NoEffect")
}

fn ignored_update(group: &InstanceGroup, ignored: Vec<String>, reason: &str) -> Option<ConditionUpdate> {
    let conditions = group.status.iter().flat_map(|status| &status.conditions);
    let exists = conditions.into_iter().any(|condition| condition.r#type == condition::ANNOTATIONS_IGNORED);
    let status = !ignored.is_empty();
    (status || exists).then(|| ConditionUpdate {
        condition_type: condition::ANNOTATIONS_IGNORED,
        status,
        reason: if status { reason } else { "NoneIgnored" }.into(),
        message: ignored.join("; "),
    })
}

/// The condition about a newer revision of the boundaries that the group does not take yet. It is not set before there is
/// one.
pub(super) fn rollout_pending(group: &InstanceGroup, context: &GroupContext) -> Option<ConditionUpdate> {
    let conditions = group.status.iter().flat_map(|status| &status.conditions);
    let exists = conditions.into_iter().any(|condition| condition.r#type == condition::ROLLOUT_PENDING);
    let wait = context.revision_wait.as_ref();
    (wait.is_some() || exists).then(|| ConditionUpdate {
        condition_type: condition::ROLLOUT_PENDING,
        status: wait.is_some(),
        reason: wait.map_or_else(|| "NotPending".to_owned(), |wait| wait.reason.to_string()),
        message: wait.map(|wait| wait.message.clone()).unwrap_or_default(),
    })
}

/// The conditions about a rollout, for a group that is being deleted: it takes no revision any more.
pub(super) fn rollout_ended(group: &InstanceGroup) -> Vec<ConditionUpdate> {
    let conditions = group.status.iter().flat_map(|status| &status.conditions);
    let ended = |(condition_type, reason): (&'static str, &str)| {
        let is_true = conditions.clone().any(|found| found.r#type == condition_type && found.is_true());
        let (reason, message) = (reason.to_owned(), String::new());
        is_true.then_some(ConditionUpdate { condition_type, status: false, reason, message })
    };
    let all = [(condition::ROLLOUT_PENDING, "NotPending"), (condition::DRAIN_FORECAST, "NotForecast")];
    all.into_iter().filter_map(ended).collect()
}

/// The condition about drains that are expected to block. It is not set before there is one, and stays while that is unknown.
pub(super) fn drain_forecast(group: &InstanceGroup, context: &GroupContext) -> Option<ConditionUpdate> {
    let conditions = group.status.iter().flat_map(|status| &status.conditions);
    let exists = conditions.into_iter().any(|condition| condition.r#type == condition::DRAIN_FORECAST);
    let drain_forecast = context.drain_forecast.as_present();
    let is_known = context.drain_forecast.is_queried();
    (drain_forecast.is_some() || (exists && is_known)).then(|| ConditionUpdate {
        condition_type: condition::DRAIN_FORECAST,
        status: drain_forecast.is_some(),
        reason: if drain_forecast.is_some() { "EvictionBlocked" } else { "NotForecast" }.to_owned(),
        message: drain_forecast.cloned().unwrap_or_default(),
    })
}

/// Merges the tenant's spec with the active boundaries.
///
/// # Errors
///
/// The reason why the merge is not possible.
pub(crate) fn merge_spec(
    group: &InstanceGroup,
    id: &GroupId,
    context: &GroupContext,
) -> Result<(MergedSpec, BoundariesSummary), String> {
    let raw = json!({ "metadata": { "annotations": group.annotations() }, "spec": group.spec });
    let no_boundaries = Boundaries::default();
    let boundaries = context.active_boundaries.boundaries.as_deref().unwrap_or(&no_boundaries);
    let namespace =
        context.namespace_annotations.as_ref().ok_or("the namespace cache does not have the group's namespace yet")?;
    let excluded = context.active_boundaries.excludes(&id.namespace, namespace);
    let merged = merge(boundaries, &raw, excluded).map_err(|error| error.to_string())?;
    let last_known_good = match &context.active_boundaries.source {
        BoundariesSource::LastKnownGood(why) => Some(why.clone()),
        BoundariesSource::Unknown
        | BoundariesSource::Live
        | BoundariesSource::NotConfigured
        | BoundariesSource::Unavailable(_)
        | BoundariesSource::RevisionMissing(_) => None,
    };
    let revision = if excluded { String::new() } else { context.active_boundaries.revision.clone() };
    let summary = BoundariesSummary {
        hash: merged.hash.clone(),
        spec_fingerprint: fingerprint(&merged.spec),
        revision,
        overridden: merged.overridden.clone(),
        last_known_good: last_known_good.filter(|_| !excluded),
    };
    Ok((merged, summary))
}

/// A number that differs when the value does. Only comparable within one process.
pub(super) fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{InstanceGroupSpec, names};
    use crate::boundaries::active::select_active;
    use crate::provisioner::group_id;

    /// "r2 reaches the group" is untrue of a group that is on its way out.
    #[test]
    fn deleted_group_waits_for_no_revision() {
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        assert_eq!(rollout_ended(&group), []);
        let pending = crate::api::Condition::new(condition::ROLLOUT_PENDING, true, "WaveNotOpen", "r2 comes");
        group.status.get_or_insert_default().conditions.push(pending);
        let ended = rollout_ended(&group);
        assert!(ended.len() == 1 && ended[0].condition_type == condition::ROLLOUT_PENDING && !ended[0].status);
    }

    /// A new leader, or an API server that does not answer, must not report to a tenant that its budget is corrected.
    #[test]
    fn drain_forecast_stays_reported_while_it_is_unknown() {
        let update = |exists: bool, drain_forecast: Lookup<String>| {
            let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
            if exists {
                let condition = crate::api::Condition::new(condition::DRAIN_FORECAST, true, "EvictionBlocked", "redis");
                group.status.get_or_insert_default().conditions.push(condition);
            }
            let context = GroupContext { drain_forecast, ..GroupContext::default() };
            super::drain_forecast(&group, &context).map(|update| (update.status, update.message))
        };
        let redis = || Lookup::Present("redis".to_owned());
        assert_eq!(update(false, redis()), Some((true, "redis".to_owned())));
        assert_eq!(update(true, Lookup::NotQueried), None, "it is unknown");
        assert_eq!(update(true, Lookup::Absent), Some((false, String::new())));
        assert_eq!(update(false, Lookup::Absent), None, "it never was");
    }

    /// An admin's edit for another tenant, or a tool that changes an annotation, must not restart writes that are
    /// delayed.
    #[test]
    fn spec_fingerprint_changes_with_the_merged_spec_alone() {
        let fingerprint_of = |size: &str, defaults: &str, turn: &str| {
            let config = [
                ("boundaries".to_owned(), "shared:\n  merge: [spec.eks]".to_owned()),
                ("defaults".to_owned(), format!("spec:\n  eks:\n    minSize: {size}\n{defaults}")),
            ]
            .into();
            let (active_boundaries, _) = select_active(Some(&config), None, true);
            let context = GroupContext {
                namespace_annotations: Some(BTreeMap::new()),
                active_boundaries: active_boundaries.into(),
                ..GroupContext::default()
            };
            let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
            group.metadata.annotations = Some([(format!("{}/turn", names::GROUP), turn.to_owned())].into());
            let (_, summary) = merge_spec(&group, &group_id(&group), &context).expect("the spec merges");
            (summary.spec_fingerprint, summary.revision)
        };
        let (before, revision) = fingerprint_of("1", "", "1");
        let (unrelated, other_revision) = fingerprint_of("1", "# of another tenant\n", "2");
        assert_ne!(revision, other_revision);
        assert_eq!(before, unrelated);
        assert_ne!(before, fingerprint_of("2", "", "1").0);
    }
}
