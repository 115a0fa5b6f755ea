//! `rollout undo`: takes a complete revision back. Before an admin confirms that, the command says what it takes.

use std::process::ExitCode;

use anyhow::bail;
use jiff::{SignedDuration, Timestamp};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::order::{order_named, phase, stable};
use super::read::{find_with_return, remedy};
use super::status::read_policy;
use crate::api::{BoundariesRevision, GroupObject, InstanceGroupStatus, RolloutPhase, RolloutRecord};
use crate::boundaries::RolloutPolicy;
use crate::cli::args::UndoArgs;
use crate::cli::plan::rollout::format_minutes;
use crate::cli::plan::snapshot::list_all;
use crate::cli::plan::{BATCH, ClusterNodes, Work, return_minutes};
use crate::provisioner::ExtraNodes;
use crate::util::counted::counted;

pub(super) async fn undo(args: UndoArgs) -> anyhow::Result<ExitCode> {
    let UndoArgs { revision, yes: is_confirmed, revisions } = args;
    if revision.is_none() && is_confirmed {
        // A newer one could come between the read and the order.
        bail!("name the revision that --yes aborts; without --yes, the command shows the newest one");
    }
    let (client, found, returns) = find_with_return(&revisions, revision.as_ref()).await?;
    let policy = read_policy(client.clone(), &revisions.config_namespace, &found).await;
    // Without permission to list them, the order can be given nevertheless.
    let groups = list_all(Api::<GroupObject>::all(client), "instancegroups").await.ok();
    let work = groups.map(|groups| ReturnWork::new(&found, policy.as_ref(), groups.iter().filter_map(status_of)));
    order_named(&revisions, revision.as_ref(), |revision, _| {
        let name = revision.name_any();
        let stable = stable(revision, returns.as_deref())?;
        if phase(revision).is_some_and(|phase| matches!(phase, RolloutPhase::Returning | RolloutPhase::Aborted)) {
            return Ok((
                json!({}),
                format!("{name} is aborted already: its groups return to {stable}; {}", remedy(revision)),
            ));
        }
        let work = work.as_ref().filter(|_| revision.spec.hash == found.spec.hash);
        let effect = effect(revision, stable, work);
        match is_confirmed {
            true => Ok((json!({"aborted": true, "paused": false}), format!("{effect}; {}", remedy(revision)))),
            false => Ok((json!({}), format!("{effect}; to do it: instance-manager rollout undo {name} --yes"))),
        }
    })
    .await
}

/// What the order does, as a sentence. Without `work`, the groups could not be listed.
fn effect(revision: &BoundariesRevision, stable: &str, work: Option<&ReturnWork>) -> String {
    let (name, counts) = (revision.name_any(), revision.status.as_ref().and_then(|status| status.groups));
    let counts = counts.unwrap_or_default();
    let Some(work) = work else {
        return format!(
            "{} groups whose nodes {name} replaced, and {} others, return to {stable} (the nodes are not known, because you may not list InstanceGroups)",
            counts.done, counts.in_place
        );
    };
    let (groups, nodes) = (counted(work.groups, "group"), counted(work.nodes, "node"));
    let within = if work.has_budget { " within the budget" } else { "" };
    let time = match work.minutes {
        0 => String::new(),
        minutes => format!(", in about {}{within}", format_minutes(minutes)),
    };
    format!("{groups} ({nodes}) whose nodes {name} replaced, and {} others, return to {stable}{time}", counts.in_place)
}

fn status_of(group: &GroupObject) -> Option<&InstanceGroupStatus> {
    match &group.0 {
        Ok(group) => group.status.as_ref(),
        Err(invalid) => invalid.status.as_ref(),
    }
}

/// What the return of all groups of a revision takes.
#[derive(Debug, PartialEq, Eq)]
struct ReturnWork {
    /// Groups whose nodes the revision replaced.
    groups: usize,
    /// Their nodes that run it.
    nodes: usize,
    /// An estimate of how long their replacement takes.
    minutes: usize,
    /// Whether a budget limits it.
    has_budget: bool,
}

impl ReturnWork {
    /// From the statuses of all groups of the cluster.
    fn new<'a>(
        revision: &BoundariesRevision,
        policy: Option<&RolloutPolicy>,
        statuses: impl Iterator<Item = &'a InstanceGroupStatus>,
    ) -> Self {
        let (mut all_nodes, mut work, mut groups) = (0, vec![], 0);
        let is_timed = policy.is_some_and(has_no_times);
        for status in statuses {
            all_nodes += status.nodes.as_ref().map_or(0, |nodes| usize::try_from(nodes.desired).unwrap_or_default());
            let record = status.rollout.as_ref().filter(|record| record.wave.is_some());
            let has_it = status.boundaries_revision.as_ref() == Some(&revision.spec.hash);
            if let Some(record) = record.filter(|_| has_it) {
                groups += 1;
                work.extend(work_of(status, record, is_timed));
            }
        }
        let budget = policy.map(|policy| policy.budget).unwrap_or_default();
        // In which zones the nodes are is not in the statuses.
        let cluster_nodes = ClusterNodes { nodes: all_nodes, zones: vec![] };
        Self {
            groups,
            nodes: work.iter().map(|work| work.nodes).sum(),
            minutes: return_minutes(&budget, &work, &cluster_nodes),
            has_budget: budget.is_set(),
        }
    }
}

/// Whether the rollout waited for no window: what a group took then is how long it takes to return, which waits for none.
fn has_no_times(policy: &RolloutPolicy) -> bool {
    let waves = policy.waves.iter().all(|wave| wave.windows.is_empty());
    waves && policy.windows.is_empty() && policy.freezes.is_empty()
}

/// The replacement of a group's nodes: as long as it took before, or else one node after the other in the time that
/// `plan` assumes.
fn work_of(status: &InstanceGroupStatus, record: &RolloutRecord, is_timed: bool) -> Option<Work> {
    let updated = status.nodes.as_ref()?.updated;
    let nodes = usize::try_from(updated).ok().filter(|nodes| *nodes > 0)?;
    let at = |time: &Option<String>| time.as_deref()?.parse::<Timestamp>().ok();
    let took = at(&record.since).zip(at(&record.settled)).map(|(since, settled)| settled.duration_since(since));
    let took = took.filter(|took| is_timed && *took > SignedDuration::ZERO);
    // Rounded up: no node takes no time.
    let batch = took.map_or(BATCH, |took| SignedDuration::from_secs((took.as_secs() + updated - 1) / updated));
    Some(Work { nodes, max_unavailable: 1, batch, extra: ExtraNodes::None, vcpus: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundaries::{Boundaries, ROLLOUT_KEY};

    fn revision() -> BoundariesRevision {
        let object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "BoundariesRevision", "metadata": {"name": "r2"},
            "spec": {"number": 2, "hash": "new", "data": {}, "from": {}},
            "status": {"phase": "Complete", "stable": "r1", "groups": {"done": 5, "inPlace": 3}},
        });
        serde_json::from_value(object).expect("a revision")
    }

    /// A group with so many nodes, which took the revision with this hash in a wave, and so many minutes for it.
    fn status(hash: &str, wave: Option<&str>, nodes: i64, minutes: i64) -> InstanceGroupStatus {
        let settled = format!("2026-08-20T12:{minutes:02}:00Z");
        let object = json!({
            "boundariesRevision": hash, "nodes": {"desired": nodes, "updated": nodes},
            "rollout": {"revision": "r2", "wave": wave, "since": "2026-08-20T12:00:00Z", "settled": settled},
        });
        serde_json::from_value(object).expect("a status")
    }

    fn text(policy: &str, statuses: &[InstanceGroupStatus]) -> String {
        let data = [(ROLLOUT_KEY.to_owned(), policy.to_owned())].into();
        let policy = Boundaries::parse(&data).expect("a policy").0.rollout.expect("a policy");
        effect(&revision(), "r1", Some(&ReturnWork::new(&revision(), Some(&*policy), statuses.iter())))
    }

    /// An admin decides by this at night: ten nodes in ten minutes, or a thousand until tomorrow.
    #[test]
    fn undo_names_the_nodes_and_about_how_long_they_take() {
        let groups = [
            status("new", Some("canary"), 4, 20),
            status("new", Some("rest"), 6, 12),
            status("new", None, 9, 1),
            status("old", Some("rest"), 80, 50),
        ];
        let said =
            |rest: &str| format!("2 groups (10 nodes) whose nodes r2 replaced, and 3 others, return to r1{rest}");
        let waves = "waves: [{name: canary, soak: 4h}, {name: rest, atOnce: 1, approval: admin}]";
        assert_eq!(text(waves, &groups), said(", in about 20m"), "side by side, as long as each took");
        let budget = format!("budget: {{nodes: 1%}}\n{waves}");
        assert_eq!(text(&budget, &groups), said(", in about 32m within the budget"), "one of 99 nodes at once");
        // What they took contains the days between two windows.
        let night = format!("windows: [{{from: '22:00', to: '04:00', zone: UTC}}]\n{waves}");
        assert_eq!(text(&night, &groups), said(", in about 30m"), "five minutes for each of six nodes");
        assert_eq!(
            text(waves, &groups[3..]),
            "0 groups (0 nodes) whose nodes r2 replaced, and 3 others, return to r1",
            "nothing has it"
        );
        let unknown = effect(&revision(), "r1", None);
        assert!(unknown.starts_with("5 groups whose nodes r2 replaced") && unknown.contains("not known"), "{unknown}");
    }
}
