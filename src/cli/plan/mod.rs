//! `plan`: shows what the controller would do, with the same reads and the same planner. It writes nothing.

pub(crate) mod report;
pub(crate) mod snapshot;
mod text;

use std::io::Write;
use std::process::ExitCode;

use futures::{StreamExt, stream};
use jiff::Timestamp;

use self::report::{GroupPlan, PlanReport};
use self::snapshot::ClusterSnapshot;
use super::args::{OutputFormat, PlanArgs};
use super::input::ConfigFile;

/// Limit of concurrent plans. More would only wait for the same batched reads.
const MAX_CONCURRENT_PLANS: usize = 64;

/// Runs the command. Exit status: 0 when nothing would change, 2 when something would, 1 on an error.
pub async fn run(args: PlanArgs) -> anyhow::Result<ExitCode> {
    let target = args.target().map_err(anyhow::Error::msg)?;
    let config =
        args.config.as_ref().map(|path| super::input::read_config_map(path, &mut std::io::stdin())).transpose()?;
    config.iter().flat_map(|config| &config.diagnostics).for_each(|problem| eprintln!("{problem}"));
    if config.as_ref().is_some_and(ConfigFile::has_errors) {
        return Ok(ExitCode::FAILURE);
    }
    let snapshot = ClusterSnapshot::read(&args.cluster, config).await?;
    let groups = snapshot.select(target.as_ref())?;
    let now = Timestamp::now();
    let plans = stream::iter(groups).map(|stored| plan_group(&snapshot, stored, now)).buffered(MAX_CONCURRENT_PLANS);
    let report = PlanReport::new(plans.collect().await, &snapshot.active_boundaries());
    let mut out = std::io::stdout().lock();
    match args.output {
        OutputFormat::Text => write!(out, "{}", text::render(&report))?,
        OutputFormat::Yaml => write!(out, "{}", serde_yaml::to_string(&serde_json::to_value(&report)?)?)?,
        OutputFormat::Json => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
    }
    Ok(ExitCode::from(report.exit_code()))
}

async fn plan_group(
    snapshot: &ClusterSnapshot,
    stored: std::sync::Arc<crate::controller::GroupObject>,
    now: Timestamp,
) -> GroupPlan {
    let key = crate::controller::group_key(&stored);
    match &stored.0 {
        Err(_) => GroupPlan::invalid_object(key),
        Ok(group) => match snapshot.plan(group, now).await {
            Ok((planning, lock)) => GroupPlan::new(group, planning, lock, &snapshot.planner, now),
            Err(error) => GroupPlan::unknown(key, &error),
        },
    }
}
