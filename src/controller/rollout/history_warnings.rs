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
    let foreign = foreign_names(stored).into_iter().map(|name| {
        format!("the BoundariesRevision {name} is none that the controller stored, and has no effect; delete it")
    });
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
