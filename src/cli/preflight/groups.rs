//! What each group would be taken over as: the controller's own walk, which changes nothing.

use futures::{StreamExt, stream};
use jiff::Timestamp;

use super::{Check, Finding};
use crate::api::names::condition;
use crate::aws::{Cluster, LaunchTemplate};
use crate::cli::args::PreflightArgs;
use crate::cli::plan::answer::{Answer, Change};
use crate::cli::plan::world::World;
use crate::controller::{Stored, key};

/// What looking at all groups shows.
pub struct Judged {
    /// A check for each group.
    pub checks: Vec<Check>,
    /// The cluster that the groups are of.
    pub cluster: Option<Cluster>,
    /// The launch templates that they have.
    pub templates: Vec<LaunchTemplate>,
}

/// Looks at every group.
pub async fn judge(world: &World, args: &PreflightArgs) -> anyhow::Result<Judged> {
    let groups = world.select(None)?;
    let mut name = args.cluster.cluster_name.clone();
    let answers = stream::iter(groups).map(|stored| one(world, stored)).buffered(64);
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
        Some(name) => world.corridor.inventory.cluster(&name).await.unwrap_or_default(),
        None => None,
    };
    Ok(Judged { checks, cluster, templates })
}

async fn one(world: &World, stored: std::sync::Arc<Stored>) -> (Check, Option<(String, Option<LaunchTemplate>)>) {
    let (now, id) = (Timestamp::now(), key(&stored));
    let check = |finding, message: String| Check::new("groups", finding, format!("{id}: {message}"));
    let Ok(group) = &stored.0 else {
        return (check(Finding::Missing, Answer::undecodable(id.clone()).message), None);
    };
    let (walked, lock) = match world.walk(group, now).await {
        Ok(found) => found,
        Err(error) => return (check(Finding::Unknown, error.to_string()), None),
    };
    let seen = walked.seen.as_ref().map(|seen| (seen.cluster().to_owned(), seen.template().cloned()));
    let taken = walked.plan.notes.iter().find(|note| note.condition == condition::ADOPTED && note.status);
    let taken = taken.map(|note| note.message.clone());
    let answer = Answer::new(group, walked, lock, &world.corridor, now);
    let nodes = answer.rotate.len();
    let (finding, message) = match answer.change {
        Change::Unchanged => (Finding::Fine, "stays as it is".to_owned()),
        Change::InPlace => (Finding::Fine, "changes in place; no node is replaced".to_owned()),
        Change::Create => (Finding::Note, "is made anew".to_owned()),
        Change::Delete => (Finding::Note, "is being deleted".to_owned()),
        Change::Rotate => (
            Finding::Missing,
            format!("{nodes} nodes would be replaced; lock it with lock-upgrades, or let the rotation end first"),
        ),
        Change::Blocked => {
            let reason = answer.reason.unwrap_or_default();
            (Finding::Missing, format!("waits for a person, {reason}: {}", answer.message))
        }
        Change::Unknown => (Finding::Unknown, answer.message),
    };
    (check(finding, taken.filter(|_| finding == Finding::Fine).unwrap_or(message)), seen)
}
