//! `run`: starts the controller and runs it until it is stopped or loses the Lease.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt;
use kube::runtime::controller::{self, applier};
use kube::runtime::reflector;
use tokio::sync::watch;

use super::args::RunArgs;
use super::settings::settings;
use crate::aws::AwsErrorKind;
use crate::aws::inventory::Inventory;
use crate::aws::sdk::{self, CallObserver};
use crate::controller::context::group_key;
use crate::controller::planner::Planner;
use crate::controller::rollout::Prometheus;
use crate::controller::stores::Stores;
use crate::controller::trigger::Trigger;
use crate::controller::watches::{boundaries, spot_recommendations};
use crate::controller::workers::Workers;
use crate::controller::{
    Context, GroupObject, access_migration, aws_outages, error_policy, permission_probes, reconcile, rollout, watches,
    write_gate,
};
use crate::index::nodes::NodeIndex;
use crate::index::process_state::ProcessState;
use crate::k8s::KubeClient;
use crate::leader::election;
use crate::leader::election::{ElectionEnd, LeaderConfig, Leadership};
use crate::leader::other_controller::ConflictDetector;
use crate::settings::Timing;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::{logging, server};

impl CallObserver for Metrics {
    fn record_call(&self, service: &'static str, operation: &'static str, error: Option<AwsErrorKind>) {
        self.record_aws_call(service, operation, error.map_or("ok", AwsErrorKind::outcome));
        if error == Some(AwsErrorKind::Throttled) {
            self.record_aws_throttle(service, operation);
        }
    }
}

/// Runs until SIGTERM, SIGINT, or the loss of the Lease.
pub async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    logging::init(args.log_format)?;
    let metrics = Arc::new(Metrics::new()?);
    metrics.set_max_workers(args.max_workers.into());
    let connected = sdk::connect(metrics.clone(), args.max_api_retries).await?;
    if let Some(error) = &connected.credentials_error {
        tracing::warn!(%error, "cannot load the AWS credentials, trying again with each call");
    }
    let client = args.cluster.connection.connect().await?;
    tracing::info!(region = connected.region, version = env!("CARGO_PKG_VERSION"), "starting");

    let identity = election::identity();
    let (stop_election, election_shutdown) = watch::channel(false);
    let (leadership, election) = start_election(&args, &client, &identity, election_shutdown);
    let timing = Timing::default().scaled(args.time_scale);
    let (groups, groups_writer) = reflector::store::<GroupObject>();
    let (namespaces, namespaces_writer) = reflector::store();
    let (sender, queue) = futures::channel::mpsc::unbounded();
    let ctx = Arc::new(Context {
        planner: Planner {
            inventory: Inventory::new(connected.aws),
            kube: Arc::new(KubeClient::new(client.clone(), identity)),
            node_index: Arc::new(NodeIndex::default()),
            process_state: Arc::new(ProcessState::default()),
            settings: settings(&args.cluster, timing, args.resync_period),
        },
        stores: Stores::new(groups.clone(), namespaces.clone()),
        metrics: metrics.clone(),
        leadership: leadership.clone(),
        write_blocked: Default::default(),
        conflict_detector: ConflictDetector::new(args.resync_period, timing.startup_grace.unsigned_abs()),
        aws_auth_writer: Default::default(),
        prometheus: connect_prometheus(&args)?,
        config_namespace: args.cluster.config_namespace.clone(),
        region: connected.region,
        own_role: Default::default(),
        labels_nodes: args.node_relabel,
        restart: tokio::sync::Notify::new(),
        rejections: Default::default(),
        queue: sender,
        started_at: tokio::time::Instant::now(),
    });

    let (stop, stopping) = watch::channel(false);
    let server = serve_http(&args, &ctx, stopping.clone()).await?;
    let trigger = Trigger::new(ctx.clone());
    tokio::spawn(watches::groups(client.clone(), groups_writer, trigger.clone()));
    tokio::spawn(watches::namespaces(client.clone(), namespaces_writer, trigger.clone()));
    tokio::spawn(watches::nodes(client.clone(), trigger.clone()));
    tokio::spawn(watches::aws_auth(client.clone(), trigger.clone()));
    let max_age = args.cluster.spot_recommendation_time;
    tokio::spawn(spot_recommendations::watch(client.clone(), trigger.clone(), max_age));
    tokio::spawn(boundaries::watch(client, trigger.clone()));
    tokio::spawn(access_migration::run(ctx.clone()));
    tokio::spawn(aws_outages::run(ctx.clone(), connected.circuit_breaker));
    tokio::spawn(permission_probes::run(ctx.clone()));
    tokio::spawn(rollout::run(ctx.clone(), trigger.clone()));
    tokio::spawn(rollout::run_checks(ctx.clone()));
    let workers = tokio::spawn(run_workers(ctx.clone(), queue, args.max_workers, stopping));
    tokio::spawn(write_gate::run(leadership, ctx.clone(), trigger));

    let shutdown = wait_for_exit(election, &ctx.restart).await;
    let _ = stop.send(true);
    if shutdown.is_lease_lost {
        // Another process may lead by now: steps in progress end with this process.
        return Ok(shutdown.exit_code);
    }
    // Wait for the step in progress; after the Lease is released, another process may become leader immediately.
    let is_idle = tokio::time::timeout(Duration::from_secs(20), workers).await.is_ok();
    if !is_idle {
        tracing::warn!("shutdown timed out, reconciles abandoned");
    }
    shutdown.end_election(stop_election, is_idle).await;
    if let Some(server) = server {
        let _ = tokio::time::timeout(Duration::from_secs(2), server).await;
    }
    Ok(shutdown.exit_code)
}

fn connect_prometheus(args: &RunArgs) -> anyhow::Result<Option<Prometheus>> {
    let Some(url) = args.prometheus_url.clone() else { return Ok(None) };
    let connected =
        Prometheus::new(url, args.prometheus_token_file.clone()).context("preparing the client of --prometheus-url")?;
    Ok(Some(connected))
}

type ElectionTask = Option<tokio::task::JoinHandle<ElectionEnd>>;

/// Takes part in the leader election; without it, this process is always the leader.
fn start_election(
    args: &RunArgs,
    client: &kube::Client,
    identity: &str,
    shutdown: watch::Receiver<bool>,
) -> (watch::Receiver<Leadership>, ElectionTask) {
    if !args.enable_leader_election {
        return (election::always(), None);
    }
    let config = LeaderConfig::new(&args.cluster.config_namespace, identity);
    let (leadership, task) = election::spawn(client.clone(), config, shutdown);
    (leadership, Some(task))
}

/// Reconciles the groups of the queue, after all caches have synced.
async fn run_workers(
    ctx: Arc<Context>,
    queue: futures::channel::mpsc::UnboundedReceiver<kube::runtime::reflector::ObjectRef<GroupObject>>,
    max_workers: u16,
    mut stopping: watch::Receiver<bool>,
) {
    wait_until_synced(&ctx).await;
    tracing::info!("caches synced");
    let (store, workers) = (ctx.stores.groups.clone(), Workers::new(max_workers));
    let waiting = workers.clone();
    let stop = async move {
        let _ = stopping.wait_for(|stop| *stop).await;
        waiting.stop();
    };
    let queue = queue.map(Ok::<_, std::convert::Infallible>).take_until(stop);
    let groups = store.clone();
    let reconcile = move |stored: Arc<GroupObject>, ctx: Arc<Context>| {
        let (key, shared) = (group_key(&stored), ctx.clone());
        let leave = move || shared.stores.queued_groups.remove(&key, &shared.metrics);
        workers.run(stored, groups.clone(), |stored| reconcile(stored, ctx), leave)
    };
    let ended = applier(reconcile, error_policy, ctx.clone(), store, queue, Workers::config());
    ended
        .for_each(|result| {
            if let Err(controller::Error::ObjectNotFound(gone)) = result {
                let key = format!("{}/{}", gone.namespace.unwrap_or_default(), gone.name);
                ctx.stores.queued_groups.remove(&key, &ctx.metrics);
            }
            std::future::ready(())
        })
        .await;
}

async fn wait_until_synced(ctx: &Context) {
    let stores = &ctx.stores;
    while stores.not_synced().is_some() || !ctx.planner.node_index.is_synced() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn serve_http(
    args: &RunArgs,
    ctx: &Arc<Context>,
    stopping: watch::Receiver<bool>,
) -> anyhow::Result<Option<tokio::task::JoinHandle<()>>> {
    let Some(address) = args.metrics_addr.0 else { return Ok(None) };
    let listener = server::bind(address).await.with_context(|| format!("listening on {address} (--metrics-addr)"))?;
    let ready = ctx.clone();
    let readiness: server::ReadinessCheck = Arc::new(move || {
        if let Some(missing) = ready.stores.not_synced() {
            return Err(missing.into());
        }
        if !ready.planner.node_index.is_synced() {
            return Err("node cache not synced".into());
        }
        if ready.is_leader() {
            return Ok("ok");
        }
        // Otherwise a Deployment of several replicas would never be complete.
        if ready.leadership.borrow().has_other_leader() {
            return Ok("standby: another process is the leader");
        }
        Err("no process is known to be the leader".into())
    });
    let metrics = ctx.metrics.clone();
    Ok(Some(tokio::spawn(async move {
        if let Err(error) = server::serve(listener, metrics, readiness, stopping).await {
            tracing::error!(%error, "HTTP server failed");
        }
    })))
}

struct Shutdown {
    exit_code: ExitCode,
    election: ElectionTask,
    is_lease_lost: bool,
}

impl Shutdown {
    /// Releases the Lease if no step is in progress. Otherwise the Lease is kept until it expires: the next leader must not
    /// begin while the write of a step may still arrive.
    async fn end_election(&self, stop: watch::Sender<bool>, is_idle: bool) {
        let Some(election) = &self.election else { return };
        if !is_idle {
            return election.abort();
        }
        let _ = stop.send(true);
        for _ in 0..50 {
            if election.is_finished() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Waits for a signal, for the loss of the Lease, or until the caches can no longer follow the API server.
async fn wait_for_exit(election: ElectionTask, restart: &tokio::sync::Notify) -> Shutdown {
    let signal = async {
        let mut term =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("signals can be handled");
        tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = tokio::signal::ctrl_c() => "SIGINT",
        }
    };
    let mut election = election;
    let lease_lost = async {
        match &mut election {
            Some(election) => _ = election.await,
            None => std::future::pending().await,
        }
    };
    let exit_code = tokio::select! {
        name = signal => {
            tracing::info!(signal = name, "stopping");
            ExitCode::SUCCESS
        }
        () = restart.notified() => {
            tracing::error!("caches cannot follow the API server, exiting");
            ExitCode::FAILURE
        }
        () = lease_lost => {
            tracing::error!("Lease lost, exiting");
            return Shutdown { exit_code: ExitCode::FAILURE, election: None, is_lease_lost: true };
        }
    };
    Shutdown { exit_code, election, is_lease_lost: false }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Whether an election that stops like the real one releases the Lease.
    async fn releases_lease(is_idle: bool) -> bool {
        let (stop, mut stopping) = watch::channel(false);
        let released = Arc::new(AtomicBool::new(false));
        let record = released.clone();
        let election = tokio::spawn(async move {
            let _ = stopping.wait_for(|stop| *stop).await;
            record.store(true, Ordering::Release);
            ElectionEnd::Released
        });
        let shutdown = Shutdown { exit_code: ExitCode::SUCCESS, election: Some(election), is_lease_lost: false };
        shutdown.end_election(stop, is_idle).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        released.load(Ordering::Acquire)
    }

    /// The next leader would terminate a node while the abandoned step of this process terminates another one.
    #[tokio::test]
    async fn lease_is_not_released_while_a_step_is_in_progress() {
        assert!(releases_lease(true).await);
        assert!(!releases_lease(false).await);
    }
}
