//! What each group would be taken over as: the controller's own walk, which changes nothing.

use futures::{StreamExt, stream};
use jiff::Timestamp;

use super::{Check, Finding};
use crate::api::names::condition;
use crate::aws::{Cluster, LaunchTemplate};
use crate::cli::args::PreflightArgs;
use crate::cli::plan::report::{ChangeKind, GroupPlan};
use crate::cli::plan::snapshot::ClusterSnapshot;
use crate::controller::{GroupObject, group_key};

/// What looking at all groups shows.
pub struct GroupChecks {
    /// A check for each group.
    pub checks: Vec<Check>,
    /// The cluster that the groups are of.
    pub cluster: Option<Cluster>,
    /// The launch templates that they have.
    pub templates: Vec<LaunchTemplate>,
}

/// Looks at every group.
pub async fn check_groups(world: &ClusterSnapshot, args: &PreflightArgs) -> anyhow::Result<GroupChecks> {
    let groups = world.select(None)?;
    let mut name = args.cluster.cluster_name.clone();
    let answers = stream::iter(groups).map(|stored| check_group(world, stored)).buffered(64);
    let (mut checks, mut templates) = (Vec::new(), Vec::new());
    for (check, seen) in answers.collect::<Vec<_>>().await {
        checks.push(check);
        let Some((cluster, template)) = seen else { continue };
        name = name.or(Some(cluster));
        templates.extend(template);
    }
    if checks.is_empty() {
        checks.push(Check::new("groups", Finding::Note, "there are none"));
    }
    let cluster = match name {
        Some(name) => world.planner.inventory.cluster(&name).await.unwrap_or_default(),
        None => None,
    };
    Ok(GroupChecks { checks, cluster, templates })
}

async fn check_group(
    world: &ClusterSnapshot,
    stored: std::sync::Arc<GroupObject>,
) -> (Check, Option<(String, Option<LaunchTemplate>)>) {
    let (now, id) = (Timestamp::now(), group_key(&stored));
    let check = |finding, message: String| Check::new("groups", finding, format!("{id}: {message}"));
    let Ok(group) = &stored.0 else {
        return (check(Finding::Missing, GroupPlan::invalid_object(id.clone()).message), None);
    };
    let (walked, lock) = match world.plan(group, now).await {
        Ok(found) => found,
        Err(error) => return (check(Finding::Unknown, error.to_string()), None),
    };
    let seen = walked.snapshot.as_ref().map(|seen| (seen.cluster().to_owned(), seen.launch_template().cloned()));
    let taken =
        walked.plan.condition_updates.iter().find(|note| note.condition_type == condition::ADOPTED && note.status);
    let taken = taken.map(|note| note.message.clone());
    let answer = GroupPlan::new(group, walked, lock, &world.planner, now);
    let nodes = answer.nodes_to_rotate.len();
    let (finding, message) = match answer.change {
        ChangeKind::Unchanged => (Finding::Fine, "stays as it is".to_owned()),
        ChangeKind::InPlace => (Finding::Fine, "changes in place; no node is replaced".to_owned()),
        ChangeKind::Create => (Finding::Note, "is made anew".to_owned()),
        ChangeKind::Delete => (Finding::Note, "is being deleted".to_owned()),
        ChangeKind::Rotate => (
            Finding::Missing,
            format!("{nodes} nodes would be replaced; lock it with lock-upgrades, or let the rotation end first"),
        ),
        ChangeKind::Blocked => {
            let reason = answer.reason.unwrap_or_default();
            (Finding::Missing, format!("waits for a person, {reason}: {}", answer.message))
        }
        ChangeKind::Unknown => (Finding::Unknown, answer.message),
    };
    (check(finding, taken.filter(|_| finding == Finding::Fine).unwrap_or(message)), seen)
}
