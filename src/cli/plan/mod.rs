//! `plan`: what the controller would do, from the same look and the same decisions. It writes nothing.

pub(crate) mod report;
pub(crate) mod snapshot;
mod text;

use std::io::Write;
use std::process::ExitCode;

use futures::{StreamExt, stream};
use jiff::Timestamp;

use super::args::{OutputFormat, PlanArgs};
use super::input::ConfigFile;
use report::{GroupPlan, PlanReport};
use snapshot::ClusterSnapshot;

/// More groups at once would only wait for the same batched reads.
const MAX_CONCURRENT_PLANS: usize = 64;

/// Runs the command on the process's own streams: 0 when nothing would change, 2 when something would, 1 on an error.
pub async fn run(args: PlanArgs) -> anyhow::Result<ExitCode> {
    let target = args.target().map_err(anyhow::Error::msg)?;
    let config =
        args.config.as_ref().map(|path| super::input::read_config_map(path, &mut std::io::stdin())).transpose()?;
    config.iter().flat_map(|config| &config.diagnostics).for_each(|problem| eprintln!("{problem}"));
    if config.as_ref().is_some_and(ConfigFile::has_errors) {
        return Ok(ExitCode::FAILURE);
    }
    let world = ClusterSnapshot::read(&args.cluster, config).await?;
    let groups = world.select(target.as_ref())?;
    let now = Timestamp::now();
    let plans = stream::iter(groups).map(|stored| plan_group(&world, stored, now)).buffered(MAX_CONCURRENT_PLANS);
    let answers = PlanReport::new(plans.collect().await, &world.active_boundaries());
    let mut out = std::io::stdout().lock();
    match args.output {
        OutputFormat::Text => write!(out, "{}", text::render(&answers))?,
        OutputFormat::Yaml => write!(out, "{}", serde_yaml::to_string(&serde_json::to_value(&answers)?)?)?,
        OutputFormat::Json => writeln!(out, "{}", serde_json::to_string_pretty(&answers)?)?,
    }
    Ok(ExitCode::from(answers.exit_code()))
}

async fn plan_group(
    world: &ClusterSnapshot,
    stored: std::sync::Arc<crate::controller::GroupObject>,
    now: Timestamp,
) -> GroupPlan {
    let key = crate::controller::group_key(&stored);
    match &stored.0 {
        Err(_) => GroupPlan::invalid_object(key),
        Ok(group) => match world.plan(group, now).await {
            Ok((walked, lock)) => GroupPlan::new(group, walked, lock, &world.planner, now),
            Err(error) => GroupPlan::unknown(key, &error),
        },
    }
}
