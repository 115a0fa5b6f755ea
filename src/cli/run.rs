//! `run`: the controller.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::{FutureExt, StreamExt};
use kube::runtime::controller::{Config, applier};
use kube::runtime::reflector;
use tokio::sync::watch;

use super::args::RunArgs;
use super::settings::settings;
use crate::aws::inventory::Inventory;
use crate::aws::sdk::{self, CallObserver};
use crate::controller::planner::Corridor;
use crate::controller::stores::Stores;
use crate::controller::trigger::Bell;
use crate::controller::watches::{boundaries, spot_recommendations};
use crate::controller::write_gate::follow;
use crate::controller::{Shared, Stored, access_migration, failed, reconcile, watches};
use crate::index::nodes::NodeIndex;
use crate::index::process_state::Memory;
use crate::k8s;
use crate::k8s::KubeCluster;
use crate::leader::election;
use crate::leader::election::{Ended, LeaderConfig, Leadership};
use crate::leader::other_controller::Others;
use crate::settings::Timing;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::{logging, server};

impl CallObserver for Metrics {
    fn call(&self, service: &'static str, operation: &'static str, outcome: &'static str) {
        self.aws_call(service, operation, outcome);
        if outcome == "throttled" {
            self.aws_throttled(service, operation);
        }
    }
}

/// Runs until SIGTERM, SIGINT, or the loss of the lease.
pub async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    logging::init(args.log_format)?;
    let metrics = Arc::new(Metrics::new()?);
    metrics.max_workers(args.max_workers.into());
    let connected = sdk::connect(metrics.clone(), args.max_api_retries).await?;
    let client = k8s::connect(args.cluster.kubeconfig.as_deref()).await.context("connecting to the API server")?;
    tracing::info!(region = connected.region, version = env!("CARGO_PKG_VERSION"), "starting");

    let identity = election::identity();
    let (stop_electing, electing) = watch::channel(false);
    let (leadership, election) = elect(&args, &client, &identity, electing);
    let timing = Timing::default().scaled(args.time_scale);
    let (groups, groups_writer) = reflector::store::<Stored>();
    let (namespaces, namespaces_writer) = reflector::store();
    let shared = Arc::new(Shared {
        corridor: Corridor {
            inventory: Inventory::new(connected.aws),
            cluster: Arc::new(KubeCluster::new(client.clone(), identity)),
            nodes: Arc::new(NodeIndex::default()),
            memory: Arc::new(Memory::default()),
            settings: settings(&args.cluster, timing, args.resync_period),
        },
        stores: Stores::new(groups.clone(), namespaces.clone()),
        metrics: metrics.clone(),
        leadership: leadership.clone(),
        others: Others::new(args.resync_period, timing.overlap.unsigned_abs()),
        joining: Default::default(),
        config_namespace: args.cluster.config_namespace.clone(),
        began: tokio::time::Instant::now(),
    });

    let (stop, stopping) = watch::channel(false);
    let server = serve(&args, &shared, stopping.clone()).await?;
    let (ring, queue) = futures::channel::mpsc::unbounded();
    let bell = Bell::new(ring, shared.clone());
    tokio::spawn(watches::groups(client.clone(), groups_writer, bell.clone()));
    tokio::spawn(watches::namespaces(client.clone(), namespaces_writer, bell.clone()));
    tokio::spawn(watches::nodes(client.clone(), bell.clone(), args.node_relabel));
    tokio::spawn(watches::aws_auth(client.clone(), bell.clone()));
    let limit = args.cluster.spot_recommendation_time;
    tokio::spawn(spot_recommendations::recommendations(client.clone(), bell.clone(), limit));
    tokio::spawn(boundaries::watch(client, bell.clone()));
    tokio::spawn(access_migration::follow(shared.clone()));
    let working = tokio::spawn(work(shared.clone(), queue, args.max_workers, stopping));
    tokio::spawn(follow(leadership, shared.clone(), bell));

    let code = wait(election).await;
    // The step under way ends; then others may lead at once.
    let _ = stop.send(true);
    if tokio::time::timeout(Duration::from_secs(20), working).await.is_err() {
        tracing::warn!("reconciles under way were abandoned");
    }
    let _ = stop_electing.send(true);
    code.finish().await;
    if let Some(server) = server {
        let _ = tokio::time::timeout(Duration::from_secs(2), server).await;
    }
    Ok(code.exit)
}

type Election = Option<tokio::task::JoinHandle<Ended>>;

/// Stands for election; without one this process leads.
fn elect(
    args: &RunArgs,
    client: &kube::Client,
    identity: &str,
    electing: watch::Receiver<bool>,
) -> (watch::Receiver<Leadership>, Election) {
    if !args.enable_leader_election {
        return (election::always(), None);
    }
    let config = LeaderConfig::new(&args.cluster.config_namespace, identity);
    let (leadership, task) = election::spawn(client.clone(), config, electing);
    (leadership, Some(task))
}

/// Reconciles what the bell rings for, when every store has synced.
async fn work(
    shared: Arc<Shared>,
    queue: futures::channel::mpsc::UnboundedReceiver<kube::runtime::reflector::ObjectRef<Stored>>,
    workers: u16,
    mut stopping: watch::Receiver<bool>,
) {
    synced(&shared).await;
    tracing::info!("every store has synced");
    let store = shared.stores.groups.clone();
    let stop = async move {
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    let queue = queue.map(Ok::<_, std::convert::Infallible>).take_until(stop);
    let config = Config::default().concurrency(workers);
    let turn = |stored, shared| reconcile(stored, shared).boxed();
    applier(turn, failed, shared, store, queue, config).for_each(|_| std::future::ready(())).await;
}

async fn synced(shared: &Shared) {
    let stores = &shared.stores;
    while stores.missing().is_some() || !shared.corridor.nodes.synced() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn serve(
    args: &RunArgs,
    shared: &Arc<Shared>,
    stopping: watch::Receiver<bool>,
) -> anyhow::Result<Option<tokio::task::JoinHandle<()>>> {
    let Some(address) = args.metrics_addr.0 else { return Ok(None) };
    let listener = server::bind(address).await.with_context(|| format!("listening on {address} (--metrics-addr)"))?;
    let ready = shared.clone();
    let readiness: server::Readiness = Arc::new(move || {
        if let Some(missing) = ready.stores.missing() {
            return Err(missing.into());
        }
        if !ready.corridor.nodes.synced() {
            return Err("the nodes have not been seen".into());
        }
        if !ready.leads() {
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

struct Ending {
    exit: ExitCode,
    election: Election,
}

impl Ending {
    async fn finish(&self) {
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
async fn wait(election: Election) -> Ending {
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
        return Ending { exit: ExitCode::SUCCESS, election: None };
    };
    tokio::select! {
        name = signal => {
            tracing::info!(signal = name, "stopping");
            Ending { exit: ExitCode::SUCCESS, election: Some(election) }
        }
        _ = &mut election => {
            tracing::error!("the lease is lost; another instance may lead");
            Ending { exit: ExitCode::FAILURE, election: None }
        }
    }
}
