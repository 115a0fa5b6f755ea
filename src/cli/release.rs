//! `release`: makes scaling groups follow `$Latest` again, before going back to keikoproj/instance-manager.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use kube::{Client, ResourceExt};

use super::args::{ReleaseArgs, Target};
use super::output;
use super::plan::report::GroupPlan;
use super::plan::snapshot::ClusterSnapshot;
use crate::aws::{AutoScaling, ScalingGroupChange, TemplatePin};
use crate::controller::{GroupObject, group_key};
use crate::leader::election::LeaderConfig;
use crate::plan::Outcome;
use crate::provisioner::Release;
use crate::util::counted::counted;

/// Runs the command. Exit status: 0 when every group is released. 2 when a dry run found something to do, or a group
/// could not be read. 1 when it refuses, or a group could not be changed.
pub async fn run(args: ReleaseArgs) -> anyhow::Result<ExitCode> {
    let client = args.cluster.connection.connect().await?;
    if let Some(holder) = lease_holder(&client, &args.cluster.config_namespace).await? {
        anyhow::bail!("{holder} holds the Lease and would pin the groups again; scale its Deployment to 0 first");
    }
    let snapshot = ClusterSnapshot::read(&args.cluster, &Target::All, None).await?;
    let mut releases = Vec::new();
    for stored in snapshot.select(&Target::All)? {
        releases.push(check_group(&snapshot, &stored).await);
    }
    let blocking = releases.iter().filter(|(.., release)| blocks_release(release)).count();
    let mut print = |line: &str| output::print(line.as_bytes());
    let (changed, failed) = if args.dry_run || blocking > 0 {
        for (group, _, release) in &releases {
            print(&format!("{group}  {}\n", describe(release, true)))?;
        }
        (releases.iter().filter(|(.., release)| matches!(release, Release::FollowLatest { .. })).count(), 0)
    } else {
        follow_latest(&*snapshot.planner.inventory.aws().autoscaling, &releases, &mut print).await?
    };
    if blocking > 0 {
        anyhow::bail!("nothing has been changed, because of {blocking} of {} groups", releases.len());
    }
    let summary = if args.dry_run { "would follow $Latest. Nothing has been changed" } else { "follow $Latest now" };
    print(&format!("{changed} of {} groups {summary}.\n", releases.len()))?;
    let skipped = releases.iter().filter(|(.., release)| matches!(release, Release::Skipped(_))).count();
    if skipped > 0 {
        output::print_error(&format!(
            "{} cannot be read and may still be pinned; correct the cause, and run this again",
            counted(skipped, "group")
        ));
    }
    if failed > 0 {
        anyhow::bail!("{} could not be changed; correct the cause, and run this again", counted(failed, "group"));
    }
    Ok(ExitCode::from(if skipped > 0 || (args.dry_run && changed > 0) { 2 } else { 0 }))
}

/// Makes the scaling groups follow `$Latest`, and prints the line of each group once that is done. A group that cannot be
/// changed does not keep the others from it. Returns how many follow `$Latest` now, and how many could not be changed.
async fn follow_latest(
    autoscaling: &dyn AutoScaling,
    releases: &[(String, String, Release)],
    print: &mut dyn FnMut(&str) -> std::io::Result<()>,
) -> std::io::Result<(usize, usize)> {
    let (mut changed, mut failed) = (0, 0);
    for (group, name, release) in releases {
        let mut line = describe(release, false);
        if let Release::FollowLatest { template, mixed, number } = release {
            let pin = TemplatePin { id: template.clone(), version: "$Latest".into() };
            let change = ScalingGroupChange { mixed: mixed.clone(), ..ScalingGroupChange::default() };
            match autoscaling.update_group(name, &change, Some(&pin)).await {
                Ok(()) => changed += 1,
                Err(error) => {
                    failed += 1;
                    line = format!("failed, and may still be pinned to version {number}: {error}");
                }
            }
        }
        print(&format!("{group}  {line}\n"))?;
    }
    Ok((changed, failed))
}

/// The key of a group, the name of its scaling group, and what the release does with it.
async fn check_group(snapshot: &ClusterSnapshot, stored: &GroupObject) -> (String, String, Release) {
    let id = group_key(stored);
    let Ok(group) = &stored.0 else {
        let why = GroupPlan::invalid_object(id.clone()).message;
        return (id, String::new(), Release::Skipped(why));
    };
    let planned = match snapshot.plan(group, Timestamp::now()).await {
        Ok(planned) => planned,
        Err(error) => return (id, String::new(), Release::Unknown(error.to_string())),
    };
    let (planning, behind) = (planned.planning, planned.rollout.and_then(|rollout| rollout.behind()));
    let status = group.status.clone().unwrap_or_default();
    let release = match (planning.snapshot, planning.plan.outcome) {
        _ if group.metadata.deletion_timestamp.is_none() && behind.is_some() => {
            Release::BehindConfigMap(behind.unwrap_or_default())
        }
        (Some(snapshot), _) => snapshot.release(&status),
        (None, _) if group.metadata.deletion_timestamp.is_some() => Release::NotNeeded("is being deleted"),
        (None, Outcome::Blocked { reason, message, .. }) => Release::Skipped(format!("{reason}: {message}")),
        (None, _) => Release::Skipped("run `instance-manager plan` for details".to_owned()),
    };
    (id, status.active_scaling_group_name.unwrap_or_default(), release)
}

fn blocks_release(release: &Release) -> bool {
    matches!(
        release,
        Release::Unknown(_)
            | Release::RotationInProgress(_)
            | Release::BehindConfigMap(_)
            | Release::PinnedToOlderVersion { .. }
    )
}

fn describe(release: &Release, only_planned: bool) -> String {
    match release {
        Release::FollowLatest { number, .. } if only_planned => {
            format!("version {number} -> $Latest, which is the same now")
        }
        Release::FollowLatest { number, .. } => format!("version {number} -> $Latest"),
        Release::NotNeeded(why) => (*why).to_owned(),
        Release::Skipped(why) => format!("skipped, because it cannot be read: {why}"),
        Release::Unknown(error) => {
            format!("refused: it is unknown whether its nodes are being replaced: {error}; run this again")
        }
        Release::RotationInProgress(instance) => format!(
            "refused: {instance} is being replaced or is outdated; let the rotation finish, or restore the old value"
        ),
        Release::BehindConfigMap(what) => format!(
            "refused: it {what}, which the Keiko controller would bring to every group at once; let the rollout end, or revert the ConfigMap"
        ),
        Release::PinnedToOlderVersion { number, latest } => format!(
            "refused: it is pinned to version {number}, and $Latest is version {latest}; delete the newer versions, which no node runs"
        ),
    }
}

/// The holder of the Lease, or `None` if it is free or the holder has crashed. A holder counts as crashed when it does not
/// renew the Lease for its whole duration on this host's clock; clocks of different hosts are never compared.
pub(crate) async fn lease_holder(client: &Client, namespace: &str) -> anyhow::Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let LeaderConfig { name, lease_duration, .. } = LeaderConfig::new(namespace, "");
    let read_lease =
        async || leases.get_opt(&name).await.with_context(|| format!("reading the Lease {namespace}/{name}"));
    let Some(first) = read_lease().await? else { return Ok(None) };
    let spec = first.spec.clone().unwrap_or_default();
    let Some(holder) = spec.holder_identity.filter(|holder| !holder.is_empty()) else { return Ok(None) };
    // A user may have written a shorter one, which the holder does not read.
    let recorded = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default();
    let seconds = recorded.max(lease_duration.as_secs()) + 1;
    for _ in 0..seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let current = read_lease().await?;
        if current.as_ref().and_then(ResourceExt::resource_version) != first.resource_version() {
            return Ok(current.and_then(|lease| lease.spec?.holder_identity).filter(|holder| !holder.is_empty()));
        }
    }
    tracing::debug!(holder, "Lease holder has not renewed in time");
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::samples::scaling_group;
    use crate::cli::plan::rollout::GroupRollout;

    /// The user who starts the Keiko controller next must know which groups are still pinned.
    #[tokio::test]
    async fn group_that_aws_does_not_change_is_named_and_keeps_no_other_group() {
        let fake = Arc::new(FakeAws::default());
        for name in ["asg-1", "asg-3"] {
            fake.data.lock().unwrap().groups.insert(name.into(), scaling_group(name));
        }
        let release = |index: i64| {
            let release = Release::FollowLatest { template: "lt-1".into(), number: index, mixed: None };
            (format!("team/{index}"), format!("asg-{index}"), release)
        };
        let mut releases: Vec<_> = (1..=3).map(release).collect();
        releases.push(("team/4".into(), String::new(), Release::Skipped("its spec is invalid".into())));
        let (aws, mut lines) = (fake.aws(), Vec::new());
        let mut print = |line: &str| {
            lines.push(line.to_owned());
            Ok::<_, std::io::Error>(())
        };
        let counts = follow_latest(&*aws.autoscaling, &releases, &mut print).await.expect("lines");
        assert_eq!(counts, (2, 1));
        assert_eq!((lines.len(), lines[0].as_str()), (4, "team/1  version 1 -> $Latest\n"));
        assert!(lines[1].starts_with("team/2  failed, and may still be pinned to version 2: "), "{}", lines[1]);
        assert!(lines[1].contains("name not found") && !lines[1].contains("$Latest"), "{}", lines[1]);
        assert_eq!(lines[2], "team/3  version 3 -> $Latest\n");
        assert!(lines[3].contains("skipped, because it cannot be read: its spec is invalid"), "{}", lines[3]);
    }

    /// A group that rotates may not be left half way, and without an answer it is unknown which ones do.
    #[test]
    fn group_that_could_not_be_read_blocks_the_release() {
        let release = Release::Unknown("AutoScaling DescribeAutoScalingGroups: Throttling".into());
        assert!(blocks_release(&release) && !blocks_release(&Release::Skipped("its spec is invalid".into())));
        assert!(describe(&release, true).contains("Throttling; run this again"), "{}", describe(&release, true));
    }

    /// The Keiko controller has no waves: it would apply what waits to every group at the same time.
    #[test]
    fn group_without_what_the_config_map_has_is_not_released() {
        let group = |revision: Option<&str>, takes: bool| GroupRollout {
            revision: revision.map(str::to_owned),
            target: "r2".into(),
            wave: "rest".into(),
            position: 2,
            waves: 2,
            takes,
            reason: None,
            waits: None,
            effect: None,
            fails_wave: false,
        };
        assert_eq!(group(Some("r2"), false).behind(), None);
        for (revision, takes, words) in [
            (Some("r1"), false, "has r1, and the ConfigMap has r2"),
            (Some("r2"), true, "takes r2 now"),
            (Some("r1"), true, "takes r1 now"),
            (None, false, "has an unknown revision"),
        ] {
            let release = Release::BehindConfigMap(group(revision, takes).behind().expect(words));
            assert!(
                blocks_release(&release) && describe(&release, true).contains(words),
                "{}",
                describe(&release, true)
            );
        }
    }
}
