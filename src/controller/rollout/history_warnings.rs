//! What is wrong with the stored revisions, for the admin.

use std::collections::BTreeSet;

use crate::api::BoundariesRevision;
use crate::controller::context::{Context, publish_event};
use crate::plan::{Event, EventReason};
use crate::rollout::{RolloutView, foreign_names};

/// Publishes on the ConfigMap what is wrong with the stored revisions. `reported` has what was published before.
pub(super) async fn publish(
    ctx: &Context,
    view: &RolloutView,
    stored: &[BoundariesRevision],
    reported: &mut BTreeSet<String>,
) {
    let found = warnings(view, stored);
    reported.retain(|old| found.contains(old));
    for message in found.into_iter().filter(|message| reported.insert(message.clone())).collect::<Vec<_>>() {
        tracing::warn!(revision = %view.target.name, message, "a stored BoundariesRevision cannot be used");
        let event = Event::warning(EventReason::BoundariesWarning, message);
        publish_event(&ctx.boundaries_target().await, &event, ctx).await;
    }
}

pub(super) fn warnings(view: &RolloutView, stored: &[BoundariesRevision]) -> Vec<String> {
    let foreign = foreign_names(stored).into_iter().map(|(name, why)| format!("the BoundariesRevision {name} {why}"));
    let problem = view.stable_problem.as_ref().or(view.policy_problem.as_ref());
    let held = problem.map(|problem| format!("no group takes {}, because {problem}", view.target.name));
    let others = match &view.stable_problem {
        Some(_) => None,
        None => view.unreadable.values().next().map(|unreadable| {
            format!("groups that have the BoundariesRevision {unreadable} are not changed until they take a newer one")
        }),
    };
    foreign.chain(held).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::api::BoundariesRevisionSpec;
    use crate::boundaries::active::select_active;

    /// A user who creates such an object expects an effect, and an admin must know who has a name that the controller
    /// leaves out.
    #[test]
    fn foreign_revision_is_named_with_a_remedy() {
        let data = BTreeMap::from([("rollout".to_owned(), "waves: [{name: all}]".to_owned())]);
        let active = Arc::new(select_active(Some(&data), None, true).0);
        let view = RolloutView::of_content(&[], None, &data, &active, None).expect("a rollout");
        let spec = BoundariesRevisionSpec { number: 15, data, ..BoundariesRevisionSpec::default() };
        let found = warnings(&view, &["mine", "r15"].map(|name| BoundariesRevision::new(name, spec.clone())));
        let [mine, numbered] = found.try_into().expect("two warnings");
        assert!(mine.contains("BoundariesRevision mine is none that the controller stored"), "{mine}");
        // The only copy of what a backup restored must not be deleted without thought.
        assert!(numbered.contains("BoundariesRevision r15 has no effect") && numbered.contains("backup"), "{numbered}");
        assert!([mine, numbered].iter().all(|text| text.ends_with("delete it")));
        assert_eq!(warnings(&view, &[]), [""; 0]);
    }
}
