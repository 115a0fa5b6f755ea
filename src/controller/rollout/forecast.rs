//! What the target of a rollout would do to a group that has another content.

use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::decide::{Decided, namespace_texts, uses_alias};
use crate::api::{GroupId, InstanceGroup};
use crate::controller::planner::{GroupContext, Planner, Planning, merge_spec};
use crate::controller::stores::Stores;
use crate::plan::{Outcome, StalledReason};
use crate::provisioner::{PlanContext, Projection, group_id};
use crate::rollout::{
    KnownImpact, RevisionDecision, RevisionImpact, RevisionSwitch, RolloutView, StoredRevision, SwitchReason,
};

/// Computes the impact of the target on a group, if it matters and is unknown or may have changed. Decides which
/// revision the group has. Runs once for each reconcile. `None` while its Namespace is unknown.
pub(crate) async fn decide_with_forecast(
    group: &InstanceGroup,
    view: &RolloutView,
    stores: &Stores,
    planner: &Planner,
    now: Timestamp,
) -> Option<Decided> {
    let namespace = stores.namespaces.get(&ObjectRef::new(&group.namespace().unwrap_or_default()))?;
    let texts = namespace_texts(&namespace);
    let decide = || stores.decide(group, view, &texts, planner, now, |_, _| {});
    let decided = decide();
    let is_superseded =
        |switch: &RevisionSwitch| matches!(switch.why, SwitchReason::Superseded | SwitchReason::Stopped);
    let (own, is_requested) = match &decided.choice {
        RevisionDecision::Use { content, .. } => {
            let matters = content.as_ref().is_some_and(|own| own.hash != view.target.hash);
            (content.clone(), matters && decided.forecast.may_change())
        }
        // The group may have grown since, and lose nodes by a smaller maximum.
        RevisionDecision::Switch(switch) if decided.forecast == RevisionImpact::InPlace => {
            let recorded = group.status.as_ref().and_then(|status| status.boundaries_revision.as_deref());
            let own = recorded.and_then(|hash| view.stored.get(hash)).cloned();
            (own, switch.why == SwitchReason::InPlace)
        }
        // A new leader has no forecast: a group that cannot use the target must not switch to it because its wave is
        // open. For one that steps back from a superseded revision, the impact of the target is computed next.
        RevisionDecision::Switch(switch) => {
            (None, (switch.record.wave.is_some() || is_superseded(switch)) && decided.forecast.may_change())
        }
    };
    if !is_requested || group.metadata.deletion_timestamp.is_some() {
        return Some(decided);
    }
    let fresh = forecast(group, own.as_ref(), view, stores, planner, now).await;
    let forecast = match decided.choice {
        // Without an answer of AWS, the change may remove nodes that the group has by now: it waits for its wave.
        RevisionDecision::Switch(_) if decided.forecast == RevisionImpact::InPlace => fresh,
        _ => fresh.or(decided.forecast),
    };
    let known = KnownImpact { inputs: decided.inputs, retries: view.orders.retries, forecast };
    stores.rollout.set_forecast(&GroupId::key_of(&group.metadata), known);
    Some(decide())
}

/// The same for the command `plan`, which writes nothing. A group that switches to the target in its wave takes room of
/// the wave and of the budget. Groups that are planned after it then find what is left, as in the controller.
pub(crate) async fn decide_and_count(
    group: &InstanceGroup,
    view: &RolloutView,
    stores: &Stores,
    planner: &Planner,
    now: Timestamp,
) -> Option<Decided> {
    let decided = decide_with_forecast(group, view, stores, planner, now).await?;
    if let RevisionDecision::Switch(switch) = &decided.choice
        && let Some(wave) = view.wave_index(switch.record.wave.as_deref())
    {
        stores.rollout.count_switch(wave, &GroupId::key_of(&group.metadata));
    }
    Some(decided)
}

/// What the target would do to a group that has another content. It writes nothing, and reads less than a reconcile.
async fn forecast(
    group: &InstanceGroup,
    own: Option<&StoredRevision>,
    view: &RolloutView,
    stores: &Stores,
    planner: &Planner,
    now: Timestamp,
) -> RevisionImpact {
    let target = GroupContext { lock: None, ..stores.group_context_with(group, planner, &view.target).await };
    let own = match own {
        Some(own) => Some(GroupContext { lock: None, ..stores.group_context_with(group, planner, own).await }),
        None => None,
    };
    if own.as_ref().is_some_and(|own| has_same_effect(group, own, &target)) {
        return RevisionImpact::Untouched;
    }
    // A user who resumes the rollout may have corrected something a moment ago.
    let max_age = match view.orders.retries {
        0 => planner.settings.resync_period.mul_f64(0.5),
        _ => planner.settings.timing.poll_interval.unsigned_abs(),
    };
    let Ok(planning) = planner.plan_forecast(group, &target, max_age, now).await else {
        // What AWS does not answer is not known.
        return RevisionImpact::Unknown;
    };
    let Forecast { impact, projection: found } = forecast_of(group, &planning, planner, now);
    if let (RevisionImpact::Rotate { .. }, Some(found), Some(own)) = (&impact, &found, &own) {
        // The nodes that the group's own edit replaces anyway are not the target's.
        let Ok(planning) = planner.plan_forecast(group, own, max_age, now).await else {
            return RevisionImpact::Unknown;
        };
        return impact_beyond(found, projection(group, &planning, planner, now));
    }
    impact
}

/// What the target's projection means beside the own one of a group.
fn impact_beyond(target: &Projection, own: Option<Projection>) -> RevisionImpact {
    let own_evictions = own.as_ref().and_then(|own| own.evictions);
    match (replaced_beyond(target, own), target.evictions) {
        (0, Some(nodes)) if own_evictions.is_none() => RevisionImpact::Evict { nodes },
        (nodes, _) => RevisionImpact::Rotate { nodes },
    }
}

/// How many nodes one projection replaces or removes that the other one leaves, or replaces for another reason.
fn replaced_beyond(target: &Projection, own: Option<Projection>) -> usize {
    let Some(own) = own else { return target.replacements.len() + target.scale_in };
    let replaced = target.replacements.iter().filter(|node| !own.replacements.contains(node)).count();
    replaced + target.scale_in.saturating_sub(own.scale_in)
}

/// The impact of a plan with the target, and the projection that shows it.
struct Forecast {
    impact: RevisionImpact,
    projection: Option<Projection>,
}

impl From<RevisionImpact> for Forecast {
    fn from(impact: RevisionImpact) -> Self {
        Self { impact, projection: None }
    }
}

fn has_same_effect(group: &InstanceGroup, own: &GroupContext, target: &GroupContext) -> bool {
    let id = group_id(group);
    let policy =
        |context: &GroupContext| context.active_boundaries.boundaries.as_ref().map(|found| found.policy.clone());
    match (merge_spec(group, &id, own), merge_spec(group, &id, target)) {
        (Ok((own_spec, _)), Ok((target_spec, _))) => {
            own_spec.spec == target_spec.spec
                && own_spec.annotations == target_spec.annotations
                && (own.images == target.images || !uses_alias(&target_spec.spec))
                && policy(own) == policy(target)
        }
        _ => false,
    }
}

/// What a plan that was made with the target means.
fn forecast_of(group: &InstanceGroup, planning: &Planning, planner: &Planner, now: Timestamp) -> Forecast {
    // The group does not switch to the target, so what it would keep beside its rejected fields is not reported.
    if let Some((reason, message)) = planning.snapshot.as_ref().and_then(|snapshot| snapshot.rejection()) {
        return RevisionImpact::CannotUse { reason: reason.to_string(), message }.into();
    }
    match &planning.plan.outcome {
        // Nothing is planned for resources that may be another owner's. The nodes would be replaced after that, in no wave.
        Outcome::Blocked { reason, message, .. }
            if planning.failure_reason.is_some() || *reason == StalledReason::OwnershipConflict =>
        {
            return RevisionImpact::CannotUse { reason: reason.to_string(), message: message.clone() }.into();
        }
        _ => {}
    }
    let Some(snapshot) = &planning.snapshot else { return RevisionImpact::Unknown.into() };
    let Some(projection) = projection(group, planning, planner, now) else { return RevisionImpact::Unknown.into() };
    let nodes = group.status.as_ref().and_then(|status| status.nodes.as_ref());
    // The next nodes of a group without nodes would be the first with the new content: they wait for the wave as well.
    let is_empty = snapshot.has_nodes() && (snapshot.is_recreated() || nodes.is_none_or(|nodes| nodes.desired == 0));
    let impact = match (projection.replacements.len() + projection.scale_in, projection.evictions) {
        (0, Some(nodes)) => RevisionImpact::Evict { nodes },
        (0, None) if !is_empty => RevisionImpact::InPlace,
        (nodes, _) => RevisionImpact::Rotate { nodes },
    };
    Forecast { impact, projection: Some(projection) }
}

/// What follows a plan; `None` without a snapshot.
fn projection(group: &InstanceGroup, planning: &Planning, planner: &Planner, now: Timestamp) -> Option<Projection> {
    let status = group.status.clone().unwrap_or_default();
    let context = PlanContext {
        status: &status,
        lock: None,
        rollout_block: None,
        allowance: None,
        settings: &planner.settings,
        ineffective_writes: &Default::default(),
        persistent_failure: &Default::default(),
        is_requested: false,
        now,
    };
    Some(planning.snapshot.as_ref()?.simulate(&planning.plan, &context))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::boundaries::active::select_active;
    use crate::controller::fake;
    use crate::plan::{Plan, blocked_plan};
    use crate::provisioner::{ExtraNodes, PlanSnapshot, Projection};

    struct StubSnapshot {
        projection: Projection,
        is_recreated: bool,
    }

    impl PlanSnapshot for StubSnapshot {
        fn cluster(&self) -> &str {
            "demo"
        }
        fn rejection(&self) -> Option<(StalledReason, String)> {
            None
        }
        fn simulate(&self, _: &Plan, _: &PlanContext) -> Projection {
            self.projection.clone()
        }
        fn is_recreated(&self) -> bool {
            self.is_recreated
        }
    }

    /// What empties every node of every group at once is not a change in place, although no node is replaced.
    #[tokio::test]
    async fn change_that_evicts_pods_or_removes_nodes_is_not_in_place() {
        let object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
            "metadata": {"name": "web", "namespace": "team"}, "spec": {}, "status": {"nodes": {"desired": 2}},
        });
        let group: InstanceGroup = serde_json::from_value(object).expect("a group");
        let planner =
            fake::planner(&Arc::default(), crate::k8s::fake::client(|call| panic!("{call:?}")), Default::default());
        let impact_of = |outcome: Outcome, is_recreated: bool, scale_in: usize, evictions: Option<usize>| {
            let projection = Projection {
                steps: vec![],
                outcome: Outcome::Converged,
                replacements: vec![],
                in_place: vec![],
                max_unavailable: 1,
                limits: None,
                scale_in,
                evictions,
                extra_nodes: ExtraNodes::None,
                irreversible: None,
            };
            let plan = blocked_plan(&group_id(&group), StalledReason::InvalidSpec, String::new());
            let plan = Plan { outcome, ..plan };
            let snapshot: Option<Box<dyn PlanSnapshot>> = Some(Box::new(StubSnapshot { projection, is_recreated }));
            let planning = Planning { plan, boundaries: None, failure_reason: None, snapshot, denied_read: None };
            forecast_of(&group, &planning, &planner, Timestamp::UNIX_EPOCH).impact
        };
        let impact = |scale_in, evictions| impact_of(Outcome::Converged, false, scale_in, evictions);
        assert_eq!(impact(0, None), RevisionImpact::InPlace);
        assert_eq!(impact(0, Some(2)), RevisionImpact::Evict { nodes: 2 });
        assert_eq!(impact(0, Some(0)), RevisionImpact::Evict { nodes: 0 });
        assert_eq!(impact(1, Some(2)), RevisionImpact::Rotate { nodes: 1 });
        // A user deleted the scaling group: all nodes of the next one would have the new content.
        assert_eq!(impact_of(Outcome::Converged, true, 0, None), RevisionImpact::Rotate { nodes: 0 });
        // Nothing is planned, and the nodes would be replaced as soon as a user restores the tags.
        let message = "the scaling group web lacks its tags".to_owned();
        let conflict = Outcome::Blocked { reason: StalledReason::OwnershipConflict, message, is_deleting: false };
        let found = impact_of(conflict, false, 0, None);
        assert!(
            matches!(&found, RevisionImpact::CannotUse { reason, .. } if reason == "OwnershipConflict"),
            "{found:?}"
        );
    }

    /// An edit of the tenant that is under way when a revision arrives is not the revision's doing.
    #[test]
    fn nodes_that_the_group_replaces_anyway_are_not_counted() {
        let node = |id: &str, to: &str| crate::provisioner::NodeReplacement {
            instance: id.to_owned(),
            node: None,
            zone: "us-west-2a".to_owned(),
            reasons: vec![crate::plan::Drift::new("image", "ami-0", to)],
        };
        let projection = |replacements, scale_in| Projection {
            steps: vec![],
            outcome: Outcome::Converged,
            replacements,
            in_place: vec![],
            max_unavailable: 1,
            limits: None,
            scale_in,
            evictions: None,
            extra_nodes: crate::provisioner::ExtraNodes::None,
            irreversible: None,
        };
        let own = || Some(projection(vec![node("i-1", "ami-1"), node("i-2", "ami-1")], 1));
        let tagged = projection(vec![node("i-1", "ami-1"), node("i-2", "ami-1")], 1);
        assert_eq!(replaced_beyond(&tagged, own()), 0, "the revision replaces nothing");
        let other = projection(vec![node("i-1", "ami-1"), node("i-2", "ami-2"), node("i-3", "ami-2")], 3);
        assert_eq!(replaced_beyond(&other, own()), 4, "two for another reason, and two by a smaller maximum");
        assert_eq!(replaced_beyond(&other, None), 6);
    }

    /// A new image of AWS must not write to groups whose image it does not decide.
    #[test]
    fn only_groups_that_name_an_alias_follow_it() {
        let eks = |image: &str| json!({"eks": {"configuration": {"image": image}}});
        assert!(uses_alias(&eks("latest")) && uses_alias(&eks("ssm://release-1")));
        assert!(!uses_alias(&eks("ami-1")) && !uses_alias(&json!({"eks-managed": {}})));
    }

    /// A field that moves to another list of the boundaries, or a default for other groups, replaces nothing. A policy
    /// that forbids a value is a difference, even if the spec stays the same.
    #[test]
    fn only_what_the_merge_makes_of_the_group_and_its_policy_count() {
        let context = |boundaries: &str, more: &[(&str, &str)]| {
            let more = more.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
            let data = more.chain([("boundaries".to_owned(), boundaries.to_owned())]).collect();
            let active_boundaries = Arc::new(select_active(Some(&data), None, true).0);
            GroupContext { namespace_annotations: Some(BTreeMap::new()), active_boundaries, ..GroupContext::default() }
        };
        let (merge, restricted) =
            ("shared: {merge: [spec.eks.configuration.tags]}", "restricted: [spec.eks.configuration.tags]");
        let tagged = [("defaults", "spec: {eks: {configuration: {tags: [{key: a, value: b}]}}}")];
        let group = |tags: Value| {
            let object = json!({
                "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
                "metadata": {"name": "web", "namespace": "team"}, "spec": {"eks": {"configuration": {"tags": tags}}},
            });
            serde_json::from_value::<InstanceGroup>(object).expect("a group")
        };
        let (plain, own) = (group(json!([])), group(json!([{"key": "mine", "value": "x"}])));
        let base = context(merge, &tagged);
        assert!(has_same_effect(&plain, &base, &context(restricted, &tagged)), "it has no value of its own");
        assert!(!has_same_effect(&own, &base, &context(restricted, &tagged)), "its own tag is refused");
        let conditional =
            "- annotationSelector: other\n  defaults: {spec: {eks: {configuration: {tags: [{key: c, value: d}]}}}}";
        assert!(has_same_effect(&own, &base, &context(merge, &[tagged[0], ("conditionals", conditional)])));
        let quota = "quotas: {team: {maxNodes: 1}}";
        assert!(!has_same_effect(&own, &base, &context(merge, &[tagged[0], ("policy", quota)])), "a smaller quota");
        let images = |image: &str| Some(Arc::new([("alias".to_owned(), image.to_owned())].into()));
        let with = |image: &str| GroupContext { images: images(image), ..context(merge, &tagged) };
        assert!(has_same_effect(&own, &with("ami-1"), &with("ami-2")), "it names no alias");
    }
}
