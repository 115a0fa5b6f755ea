//! `handback`: scaling groups follow `$Latest` again, before the controller that was there before comes back.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use kube::{Client, ResourceExt};

use super::plan::world::World;
use crate::args::HandbackArgs;
use crate::aws::{ScalingGroupChange, TemplatePin};
use crate::cluster;
use crate::controller::key;
use crate::leader::LeaderConfig;
use crate::provisioner::eks::handback::{Handback, handback};

/// Runs the command: 0 when every group is handed back, 2 when a dry run found something to do, 1 when it refuses.
pub async fn run(args: HandbackArgs) -> anyhow::Result<ExitCode> {
    let client = cluster::connect(args.cluster.kubeconfig.as_deref()).await.context("connecting to the API server")?;
    if let Some(holder) = leader(&client, &args.cluster.config_namespace).await? {
        anyhow::bail!("{holder} holds the Lease and would pin the groups again; scale its Deployment to 0 first");
    }
    let world = World::read(&args.cluster, None).await?;
    let mut found = Vec::new();
    for stored in world.select(None)? {
        let Ok(group) = &stored.0 else { continue };
        let (walked, _) = world.walk(group, Timestamp::now()).await.with_context(|| key(&stored))?;
        let status = group.status.clone().unwrap_or_default();
        let verdict = walked.seen.map_or(Handback::Nothing("cannot be looked at: see plan"), |seen| {
            handback(&seen.resolved, &seen.state, &status)
        });
        let name = status.active_scaling_group_name.unwrap_or_default();
        found.push((key(&stored), name, verdict));
    }
    let refused = found.iter().filter(|(.., verdict)| refuses(verdict)).count();
    for (group, _, verdict) in &found {
        println!("{group}  {}", words(verdict, args.dry_run || refused > 0));
    }
    if refused > 0 {
        anyhow::bail!("nothing has been changed, because of {refused} of {} groups", found.len());
    }
    let mut changed = 0;
    for (group, name, verdict) in &found {
        let Handback::Follow { template, mixed, .. } = verdict else { continue };
        changed += 1;
        if !args.dry_run {
            let pin = TemplatePin { id: template.clone(), version: "$Latest".into() };
            let asg = &world.corridor.inventory.aws().autoscaling;
            let change = ScalingGroupChange { mixed: mixed.clone(), ..ScalingGroupChange::default() };
            asg.update_group(name, &change, Some(&pin)).await.with_context(|| group.clone())?;
        }
    }
    let done = if args.dry_run { "would follow $Latest. Nothing has been changed" } else { "follow $Latest now" };
    println!("{changed} of {} groups {done}.", found.len());
    Ok(ExitCode::from(if args.dry_run && changed > 0 { 2 } else { 0 }))
}

fn refuses(verdict: &Handback) -> bool {
    matches!(verdict, Handback::Rotating(_) | Handback::Older { .. })
}

fn words(verdict: &Handback, dry: bool) -> String {
    match verdict {
        Handback::Follow { number, .. } if dry => format!("version {number} -> $Latest, which is the same now"),
        Handback::Follow { number, .. } => format!("version {number} -> $Latest"),
        Handback::Nothing(why) => (*why).to_owned(),
        Handback::Rotating(instance) => format!(
            "refused: {instance} is being replaced or is outdated; let the rotation end, or put the old value back"
        ),
        Handback::Older { number, latest } => format!(
            "refused: it is pinned to version {number}, and $Latest is version {latest}; delete the newer versions, which no node runs"
        ),
    }
}

/// Who holds the Lease. A holder that gives no sign of life for as long as it promised to has crashed; only that it
/// keeps silent is looked at, because nobody's clock is compared with another's.
pub async fn leader(client: &Client, namespace: &str) -> anyhow::Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let name = LeaderConfig::new(namespace, "").name;
    let read = async || leases.get_opt(&name).await.with_context(|| format!("reading the Lease {namespace}/{name}"));
    let Some(first) = read().await? else { return Ok(None) };
    let spec = first.spec.clone().unwrap_or_default();
    let Some(holder) = spec.holder_identity.filter(|holder| !holder.is_empty()) else { return Ok(None) };
    let patience = u64::try_from(spec.lease_duration_seconds.unwrap_or(15)).unwrap_or(15) + 1;
    for _ in 0..patience {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = read().await?;
        if now.as_ref().and_then(ResourceExt::resource_version) != first.resource_version() {
            return Ok(now.and_then(|lease| lease.spec?.holder_identity).filter(|holder| !holder.is_empty()));
        }
    }
    tracing::debug!(holder, "the holder of the Lease gives no sign of life");
    Ok(None)
}
