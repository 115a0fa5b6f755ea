//! Checks how the cut-over would change each group, with the same planner as the controller. It changes nothing.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use jiff::Timestamp;

use super::{Finding, PreflightCheck};
use crate::api::{InstanceGroup, ProvisionerKind};
use crate::aws::{Cluster, LaunchTemplate};
use crate::cli::args::{PreflightArgs, Target};
use crate::cli::plan::report::{ChangeKind, GroupPlan};
use crate::cli::plan::snapshot::ClusterSnapshot;
use crate::controller::{GroupObject, group_key};
use crate::util::counted::{are, counted};

/// The checks of all groups, and what they found for the IAM checks.
pub(crate) struct GroupChecks {
    /// A check for each group.
    pub checks: Vec<PreflightCheck>,
    /// The EKS cluster of the groups.
    pub cluster: Option<Cluster>,
    /// The launch templates of the groups.
    pub templates: Vec<LaunchTemplate>,
    /// The provisioners of the groups.
    pub provisioners: BTreeSet<ProvisionerKind>,
}

/// Plans every group and checks the result.
pub(crate) async fn check_groups(snapshot: &ClusterSnapshot, args: &PreflightArgs) -> anyhow::Result<GroupChecks> {
    let groups = snapshot.select(&Target::All)?;
    let provisioners = groups.iter().filter_map(|stored| Some(provisioner(stored.0.as_ref().ok()?))).collect();
    let mut name = args.cluster.cluster_name.clone();
    let plans = stream::iter(groups).map(|stored| check_group(snapshot, stored)).buffered(64);
    let (mut checks, mut templates) = (Vec::new(), Vec::new());
    for (check, found) in plans.collect::<Vec<_>>().await {
        checks.push(check);
        let Some((cluster, template)) = found else { continue };
        name = name.or(Some(cluster));
        templates.extend(template);
    }
    if checks.is_empty() {
        checks.push(PreflightCheck::new("groups", Finding::Note, "there are no InstanceGroups"));
    }
    let cluster = match name {
        Some(name) => snapshot.planner.inventory.cluster(&name).await.unwrap_or_default(),
        None => None,
    };
    Ok(GroupChecks { checks, cluster, templates, provisioners })
}

/// The provisioner of a group, from its own manifest or its status.
fn provisioner(group: &InstanceGroup) -> ProvisionerKind {
    let recorded = group.status.as_ref().and_then(|status| status.provisioner.as_deref());
    let named = group.spec.provisioner.as_deref().or(recorded);
    named.and_then(ProvisionerKind::parse).unwrap_or(ProvisionerKind::Eks)
}

async fn check_group(
    snapshot: &ClusterSnapshot,
    stored: std::sync::Arc<GroupObject>,
) -> (PreflightCheck, Option<(String, Option<LaunchTemplate>)>) {
    let (now, id) = (Timestamp::now(), group_key(&stored));
    let check = |finding, message: String| PreflightCheck::new("groups", finding, format!("{id}: {message}"));
    let Ok(group) = &stored.0 else {
        return (check(Finding::Missing, GroupPlan::invalid_object(id.clone()).message), None);
    };
    let planned = match snapshot.plan(group, now).await {
        Ok(found) => found,
        Err(error) => return (check(Finding::Unknown, error.to_string()), None),
    };
    let planning = &planned.planning;
    let found = planning.snapshot.as_ref().map(|s| (s.cluster().to_owned(), s.launch_template().cloned()));
    let adopted = planning.plan.adoption.clone();
    let plan = GroupPlan::new(group, planned, &snapshot.planner, now);
    let nodes = plan.nodes_to_rotate.len();
    let (finding, message) = match plan.change {
        ChangeKind::Unchanged => (Finding::Ok, "unchanged".to_owned()),
        ChangeKind::InPlace => (Finding::Ok, "changes in place; no node is replaced".to_owned()),
        ChangeKind::Create => (Finding::Note, "would be created".to_owned()),
        ChangeKind::Delete => (Finding::Note, "is being deleted".to_owned()),
        ChangeKind::Rotate if let Some(lock) = &plan.blocked_by => {
            (Finding::Note, format!("{} outdated, and none is replaced: {lock}", are(nodes, "node")))
        }
        ChangeKind::Rotate => (
            Finding::Missing,
            format!(
                "{} would be replaced; set the annotation lock-upgrades, or let the rotation finish first",
                counted(nodes, "node")
            ),
        ),
        ChangeKind::Blocked => {
            let reason = plan.reason.unwrap_or_default();
            (Finding::Missing, format!("needs manual intervention, {reason}: {}", plan.message))
        }
        ChangeKind::Unknown => (Finding::Unknown, plan.message),
    };
    (check(finding, adopted.filter(|_| finding == Finding::Ok).unwrap_or(message)), found)
}
