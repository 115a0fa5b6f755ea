//! Reports to the admin, once for each revision of the boundaries, how many groups it makes invalid. Each group has its
//! own condition and event, but an admin who edits the ConfigMap looks at the ConfigMap.
//!
//! Groups are counted when their outcome changes, so an unchanged group costs nothing.

use std::sync::Arc;

use serde_json::json;

use super::context::{Context, publish_event_once};
use super::planner::Planning;
use crate::api::InstanceGroupStatus;
use crate::api::names::condition;
use crate::plan::{FieldRejection, Outcome};
use crate::rollout::has_texts;

/// How many polls in a row must find no further group before the summary is published.
const QUIET_POLLS: u32 = 1;
/// After how many polls the summary is published even if more groups follow.
const MAX_POLLS: u32 = 20;

/// Why this plan rejects a group that `revision` made invalid although its tenant did not change it; `None` for every other
/// group. The status records the revision, so that a new process counts the same groups.
fn rejection_by(revision: &str, old: &InstanceGroupStatus, planned: &Planning) -> Option<FieldRejection> {
    let is_recorded = old.rejected_by_revision.as_deref() == Some(revision);
    if is_recorded && old.observed_generation == Some(planned.plan.generation) {
        return rejection(planned);
    }
    new_rejection(old, planned)
}

/// Why this plan rejects fields of a group that were fine until now, although its tenant did not change it; `None` for
/// every other group.
fn new_rejection(old: &InstanceGroupStatus, planned: &Planning) -> Option<FieldRejection> {
    let plan = &planned.plan;
    let is_unchanged = old.observed_generation == Some(plan.generation);
    // Without a merge there is no hash, and the ConfigMap is the reason.
    let is_other_spec =
        planned.boundaries.as_ref().is_none_or(|summary| old.config_md5.as_ref() != Some(&summary.hash));
    let was_rejected = old.conditions.iter().any(|known| {
        known.is_true() && [condition::STALLED, condition::FIELDS_REJECTED].contains(&known.r#type.as_str())
    });
    if !is_unchanged || !is_other_spec || was_rejected {
        return None;
    }
    rejection(planned)
}

/// Why this plan rejects the group or fields of it.
fn rejection(planned: &Planning) -> Option<FieldRejection> {
    let plan = &planned.plan;
    planned.failure_reason?;
    match (&plan.rejected_fields, &plan.outcome) {
        (Some(rejection), _) => Some(rejection.clone()),
        (None, Outcome::Blocked { reason, message, .. }) => {
            Some(FieldRejection { reason: *reason, message: message.clone() })
        }
        (None, _) => None,
    }
}

/// Counts the group if the active revision makes it invalid, records that for its status, and schedules the summary.
pub(crate) fn observe(key: &str, old: &InstanceGroupStatus, planned: &mut Planning, ctx: &Arc<Context>) {
    let revision = ctx.stores.boundaries.get().revision.clone();
    let found = rejection_by(&revision, old, planned).filter(|_| !revision.is_empty());
    let earlier = old.rejected_by_revision.clone().filter(|_| rejection(planned).is_some());
    let recorded = if found.is_some() { Some(revision.clone()) } else { earlier };
    if recorded != old.rejected_by_revision {
        planned.plan.status_update.fields.insert("rejectedByRevision".to_owned(), json!(recorded));
    }
    if let Some(rejection) = found
        && ctx.rejections.count(&revision, key, &rejection)
    {
        tokio::spawn(publish(revision, ctx.clone()));
    }
}

/// Waits until no further group becomes invalid, and publishes the summary, unless an earlier process did. The stored
/// copy of the revision records it, and the event is named after this copy. A process that was killed in between
/// therefore does not repeat it. When the API server does not answer, the event is published once more.
async fn publish(revision: String, ctx: Arc<Context>) {
    let (mut count, mut quiet) = (0, 0);
    for _ in 0..MAX_POLLS {
        tokio::time::sleep(ctx.planner.settings.timing.poll_interval.unsigned_abs()).await;
        let Some(tally) = ctx.rejections.tally(&revision) else { return };
        quiet = if tally.invalid.len() == count { quiet + 1 } else { 0 };
        count = tally.invalid.len();
        if quiet >= QUIET_POLLS {
            break;
        }
    }
    let Some(tally) = ctx.rejections.tally(&revision).filter(|_| ctx.request_write()) else { return };
    let (kube, namespace) = (&ctx.planner.kube, &ctx.config_namespace);
    let once = match kube.reported_rejections(namespace).await {
        Ok(reported) if reported.revision.as_ref() == Some(&revision) => return,
        Ok(reported) => reported.stored_version.map(|version| format!("groups-rejected-{version}")),
        Err(error) => {
            tracing::warn!(%error, "cannot read which rejections were reported");
            None
        }
    };
    let stored = kube.boundaries_revisions(namespace).await.ok().flatten().unwrap_or_default();
    let stored = stored.iter().filter(|stored| has_texts(stored, &revision)).max_by_key(|stored| stored.spec.number);
    let event = tally.event(ctx.stores.groups.state().len(), stored.and_then(|stored| stored.metadata.name.as_deref()));
    publish_event_once(&ctx.boundaries_target().await, &event, once, &ctx).await;
    if let Err(error) = kube.set_reported_rejections(namespace, &revision).await {
        tracing::warn!(%error, "cannot record which rejections were reported");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Condition, InstanceGroup, InstanceGroupSpec, group_id};
    use crate::controller::report::BoundariesSummary;
    use crate::plan::{StalledReason, blocked_plan};

    fn planning(hash: Option<&str>, failure: Option<&'static str>) -> Planning {
        let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        let plan = blocked_plan(&id, StalledReason::InvalidSpec, "spec.a `x` is wrong; correct it".into());
        let boundaries = hash.map(|hash| BoundariesSummary { hash: hash.into(), ..BoundariesSummary::default() });
        Planning { plan, boundaries, failure_reason: failure, snapshot: None, denied_read: None }
    }

    fn status(generation: i64, stalled: bool) -> InstanceGroupStatus {
        InstanceGroupStatus {
            observed_generation: Some(generation),
            config_md5: Some("old".into()),
            conditions: vec![Condition::new(condition::STALLED, stalled, "InvalidSpec", "")],
            ..InstanceGroupStatus::default()
        }
    }

    #[test]
    fn only_groups_that_the_revision_makes_invalid_are_counted() {
        let generation = planning(None, None).plan.generation;
        let failed = Some("ResourceValidation");
        for (status, planning, counts, why) in [
            (status(generation, false), planning(Some("new"), failed), true, "the merged spec changed"),
            (status(generation, false), planning(None, failed), true, "the merge fails"),
            (status(generation, false), planning(Some("old"), failed), false, "AWS changed, not the ConfigMap"),
            (status(generation + 1, false), planning(Some("new"), failed), false, "the tenant changed the group"),
            (status(generation, true), planning(Some("new"), failed), false, "it was invalid before"),
            (status(generation, false), planning(Some("new"), None), false, "it is blocked for another reason"),
        ] {
            assert_eq!(rejection_by("r2", &status, &planning).is_some(), counts, "{why}");
        }
    }

    /// A restart must neither lose the groups that were reported before it, nor blame a revision for older mistakes.
    #[test]
    fn groups_that_the_status_records_are_counted_after_a_restart() {
        let generation = planning(None, None).plan.generation;
        let recorded = |revision: &str, generation| InstanceGroupStatus {
            rejected_by_revision: Some(revision.into()),
            config_md5: Some("new".into()),
            ..status(generation, true)
        };
        let counts = |status, failure| rejection_by("r2", &status, &planning(Some("new"), failure)).is_some();
        assert!(counts(recorded("r2", generation), Some("ResourceValidation")));
        assert!(!counts(recorded("r1", generation), Some("ResourceValidation")), "an older revision did it");
        assert!(!counts(recorded("r2", generation + 1), Some("ResourceValidation")), "its tenant changed it since");
        assert!(!counts(recorded("r2", generation), None), "it is valid again");
    }
}
