//! `run`: the controller.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::{FutureExt, StreamExt};
use kube::runtime::controller::{Config, applier};
use kube::runtime::reflector;
use tokio::sync::watch;

use super::args::RunArgs;
use super::settings::settings;
use crate::aws::inventory::Inventory;
use crate::aws::sdk::{self, CallObserver};
use crate::controller::planner::Planner;
use crate::controller::stores::Stores;
use crate::controller::trigger::Trigger;
use crate::controller::watches::{boundaries, spot_recommendations};
use crate::controller::{Context, GroupObject, access_migration, error_policy, reconcile, watches, write_gate};
use crate::index::nodes::NodeIndex;
use crate::index::process_state::ProcessState;
use crate::k8s;
use crate::k8s::KubeClient;
use crate::leader::election;
use crate::leader::election::{ElectionEnd, LeaderConfig, Leadership};
use crate::leader::other_controller::ConflictDetector;
use crate::settings::Timing;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::{logging, server};

impl CallObserver for Metrics {
    fn record_call(&self, service: &'static str, operation: &'static str, outcome: &'static str) {
        self.record_aws_call(service, operation, outcome);
        if outcome == "throttled" {
            self.record_aws_throttle(service, operation);
        }
    }
}

/// Runs until SIGTERM, SIGINT, or the loss of the lease.
pub async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    logging::init(args.log_format)?;
    let metrics = Arc::new(Metrics::new()?);
    metrics.set_max_workers(args.max_workers.into());
    let connected = sdk::connect(metrics.clone(), args.max_api_retries).await?;
    let client = k8s::connect(args.cluster.kubeconfig.as_deref()).await.context("connecting to the API server")?;
    tracing::info!(region = connected.region, version = env!("CARGO_PKG_VERSION"), "starting");

    let identity = election::identity();
    let (stop_electing, electing) = watch::channel(false);
    let (leadership, election) = start_election(&args, &client, &identity, electing);
    let timing = Timing::default().scaled(args.time_scale);
    let (groups, groups_writer) = reflector::store::<GroupObject>();
    let (namespaces, namespaces_writer) = reflector::store();
    let shared = Arc::new(Context {
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
        conflict_detector: ConflictDetector::new(args.resync_period, timing.startup_grace.unsigned_abs()),
        aws_auth_writer: Default::default(),
        config_namespace: args.cluster.config_namespace.clone(),
        started_at: tokio::time::Instant::now(),
    });

    let (stop, stopping) = watch::channel(false);
    let server = serve_http(&args, &shared, stopping.clone()).await?;
    let (ring, queue) = futures::channel::mpsc::unbounded();
    let bell = Trigger::new(ring, shared.clone());
    tokio::spawn(watches::groups(client.clone(), groups_writer, bell.clone()));
    tokio::spawn(watches::namespaces(client.clone(), namespaces_writer, bell.clone()));
    tokio::spawn(watches::nodes(client.clone(), bell.clone(), args.node_relabel));
    tokio::spawn(watches::aws_auth(client.clone(), bell.clone()));
    let limit = args.cluster.spot_recommendation_time;
    tokio::spawn(spot_recommendations::watch(client.clone(), bell.clone(), limit));
    tokio::spawn(boundaries::watch(client, bell.clone()));
    tokio::spawn(access_migration::run(shared.clone()));
    let working = tokio::spawn(run_workers(shared.clone(), queue, args.max_workers, stopping));
    tokio::spawn(write_gate::run(leadership, shared.clone(), bell));

    let code = wait_for_exit(election).await;
    // The step under way ends; then others may lead at once.
    let _ = stop.send(true);
    if tokio::time::timeout(Duration::from_secs(20), working).await.is_err() {
        tracing::warn!("reconciles under way were abandoned");
    }
    let _ = stop_electing.send(true);
    code.wait_for_lease_release().await;
    if let Some(server) = server {
        let _ = tokio::time::timeout(Duration::from_secs(2), server).await;
    }
    Ok(code.exit_code)
}

type ElectionTask = Option<tokio::task::JoinHandle<ElectionEnd>>;

/// Stands for election; without one this process leads.
fn start_election(
    args: &RunArgs,
    client: &kube::Client,
    identity: &str,
    electing: watch::Receiver<bool>,
) -> (watch::Receiver<Leadership>, ElectionTask) {
    if !args.enable_leader_election {
        return (election::always(), None);
    }
    let config = LeaderConfig::new(&args.cluster.config_namespace, identity);
    let (leadership, task) = election::spawn(client.clone(), config, electing);
    (leadership, Some(task))
}

/// Reconciles what the bell rings for, when every store has synced.
async fn run_workers(
    shared: Arc<Context>,
    queue: futures::channel::mpsc::UnboundedReceiver<kube::runtime::reflector::ObjectRef<GroupObject>>,
    workers: u16,
    mut stopping: watch::Receiver<bool>,
) {
    wait_until_synced(&shared).await;
    tracing::info!("every store has synced");
    let store = shared.stores.groups.clone();
    let stop = async move {
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    let queue = queue.map(Ok::<_, std::convert::Infallible>).take_until(stop);
    let config = Config::default().concurrency(workers);
    let turn = |stored, shared| reconcile(stored, shared).boxed();
    applier(turn, error_policy, shared, store, queue, config).for_each(|_| std::future::ready(())).await;
}

async fn wait_until_synced(shared: &Context) {
    let stores = &shared.stores;
    while stores.not_synced().is_some() || !shared.planner.node_index.is_synced() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn serve_http(
    args: &RunArgs,
    shared: &Arc<Context>,
    stopping: watch::Receiver<bool>,
) -> anyhow::Result<Option<tokio::task::JoinHandle<()>>> {
    let Some(address) = args.metrics_addr.0 else { return Ok(None) };
    let listener = server::bind(address).await.with_context(|| format!("listening on {address} (--metrics-addr)"))?;
    let ready = shared.clone();
    let readiness: server::Readiness = Arc::new(move || {
        if let Some(missing) = ready.stores.not_synced() {
            return Err(missing.into());
        }
        if !ready.planner.node_index.is_synced() {
            return Err("the nodes have not been seen".into());
        }
        if !ready.is_leader() {
            return Err("another instance leads".into());
        }
        Ok(())
    });
    let metrics = shared.metrics.clone();
    Ok(Some(tokio::spawn(async move {
        if let Err(error) = server::serve(listener, metrics, readiness, stopping).await {
            tracing::error!(%error, "the HTTP server ended");
        }
    })))
}

struct Shutdown {
    exit_code: ExitCode,
    election: ElectionTask,
}

impl Shutdown {
    async fn wait_for_lease_release(&self) {
        if let Some(election) = &self.election {
            for _ in 0..50 {
                if election.is_finished() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Until a signal, or until the lease is lost.
async fn wait_for_exit(election: ElectionTask) -> Shutdown {
    let signal = async {
        let mut term =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("signals can be handled");
        tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = tokio::signal::ctrl_c() => "SIGINT",
        }
    };
    let Some(mut election) = election else {
        tracing::info!(signal = signal.await, "stopping");
        return Shutdown { exit_code: ExitCode::SUCCESS, election: None };
    };
    tokio::select! {
        name = signal => {
            tracing::info!(signal = name, "stopping");
            Shutdown { exit_code: ExitCode::SUCCESS, election: Some(election) }
        }
        _ = &mut election => {
            tracing::error!("the lease is lost; another instance may lead");
            Shutdown { exit_code: ExitCode::FAILURE, election: None }
        }
    }
}
