//! `plan`: shows what the controller would do, with the same reads and the same planner. It writes nothing.

mod drain_forecast;
mod duration;
mod estimate;
mod quota;
pub(crate) mod report;
pub(super) mod rollout;
mod rollout_text;
mod schedule;
pub(crate) mod snapshot;
mod text;

use std::process::ExitCode;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::Api;

pub(super) use self::estimate::BATCH;
use self::report::{GroupPlan, PlanReport};
pub(super) use self::schedule::{ClusterNodes, Work, return_minutes};
use self::snapshot::{ClusterSnapshot, list_all};
use super::args::{OutputFormat, PlanArgs, Target};
use super::input::ConfigFile;
use super::missing_permissions::MissingPermissions;
use super::output;
use super::read_group;
use crate::api::NodeDemand;
use crate::boundaries::active::ActiveBoundaries;
use crate::controller::planner::Planner;
use crate::k8s::KubeError;
use crate::provisioner::ExtraNodes;

/// Limit of concurrent plans. More would only wait for the same batched reads.
const MAX_CONCURRENT_PLANS: usize = 64;

/// Runs the command. Exit status: 0 when nothing would change, 2 when something would, 1 on an error.
pub async fn run(args: PlanArgs) -> anyhow::Result<ExitCode> {
    let target = args.target()?;
    let config =
        args.config.as_ref().map(|path| super::input::read_config_map(path, &mut std::io::stdin())).transpose()?;
    config.iter().flat_map(|config| &config.diagnostics).for_each(|problem| output::print_error(&problem.to_string()));
    if config.as_ref().is_some_and(ConfigFile::has_errors) {
        return Ok(ExitCode::FAILURE);
    }
    let file_given = config.is_some();
    let snapshot = match ClusterSnapshot::read(&args.cluster, &target, config).await {
        Ok(snapshot) => snapshot,
        Err(error) => {
            let missing: MissingPermissions = error.downcast()?;
            let report = unplanned(&args, &target, &missing).await?;
            return print_report(&report, &args, file_given);
        }
    };
    let groups = snapshot.select(&target)?;
    let now = Timestamp::now();
    let plans = stream::iter(groups).map(|stored| plan_group(&snapshot, stored, now)).buffered(MAX_CONCURRENT_PLANS);
    let mut plans: Vec<GroupPlan> = plans.collect().await;
    drain_forecast::add_drain_forecasts(&snapshot.planner, &mut plans).await;
    duration::add_estimates(&snapshot.planner, &mut plans).await;
    let mut report = PlanReport::new(plans, &snapshot.active_boundaries());
    report.notes.clone_from(&snapshot.notes);
    let shares = report.groups.iter().filter_map(GroupPlan::share);
    report.rollout = snapshot.file_rollout(shares, report.zones(), now);
    print_report(&report, &args, file_given)
}

fn print_report(report: &PlanReport, args: &PlanArgs, file_given: bool) -> anyhow::Result<ExitCode> {
    let file = args.config.as_ref().filter(|_| file_given);
    let printed = match args.output {
        OutputFormat::Text => text::render(report, file.map(|file| file.display().to_string()).as_deref()),
        OutputFormat::Yaml => serde_yaml::to_string(&serde_json::to_value(report)?)?,
        OutputFormat::Json => serde_json::to_string_pretty(report)? + "\n",
    };
    output::print(printed.as_bytes())?;
    Ok(ExitCode::from(report.exit_code()))
}

/// What can be shown without the permissions that a plan needs: what the controller reported about each group, and what
/// is missing.
async fn unplanned(args: &PlanArgs, target: &Target, missing: &MissingPermissions) -> anyhow::Result<PlanReport> {
    let client = args.cluster.connection.connect().await?;
    let target = target.clone().with_default_namespace(client.default_namespace());
    let groups = match (&target, target.namespace()) {
        (Target::Group(_, name), Some(namespace)) => vec![read_group(&client, namespace, name).await?],
        (_, Some(namespace)) => list_all(Api::namespaced(client.clone(), namespace), "instancegroups").await?,
        (_, None) => match list_all(Api::all(client.clone()), "instancegroups").await {
            // This right is among those that are named.
            Err(KubeError::Forbidden { .. }) => Vec::new(),
            found => found?,
        },
    };
    let plans = groups.iter().map(GroupPlan::without_rights).collect();
    let mut report = PlanReport::new(plans, &ActiveBoundaries::default());
    report.is_planned = false;
    report.notes.push(format!("nothing is planned: {missing}"));
    Ok(report)
}

async fn plan_group(
    snapshot: &ClusterSnapshot,
    stored: std::sync::Arc<crate::controller::GroupObject>,
    now: Timestamp,
) -> GroupPlan {
    let key = crate::controller::group_key(&stored);
    match &stored.0 {
        Err(_) => GroupPlan::invalid_object(key),
        Ok(group) => {
            let group_plan = |result| match result {
                Ok(planned) => GroupPlan::new(group, planned, &snapshot.planner, now),
                Err(error) => GroupPlan::unknown(key.clone(), &error),
            };
            let live = snapshot.plan_live(group, now).await.map(group_plan);
            let planned = snapshot.plan(group, now).await;
            let demand = planned.as_ref().ok().map(|planned| planned.demand.clone());
            let mut plan = group_plan(planned);
            if let Some(demand) = demand.filter(|_| plan.extra_nodes != ExtraNodes::None) {
                plan.node_vcpus = node_vcpus(&snapshot.planner, &demand).await;
            }
            match live {
                Some(live) => plan.compare_with_live(&live),
                None => plan,
            }
        }
    }
}

/// The most vCPUs that one node of a group can have; `None` when AWS does not return it.
async fn node_vcpus(planner: &Planner, demand: &NodeDemand) -> Option<u64> {
    planner.prefetch_instance_types(demand.types.iter().map(|(name, _)| name.clone())).await;
    demand.vcpus(1, &|name| planner.vcpus(name))
}
