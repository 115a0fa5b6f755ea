//! `plan`: what the controller would do, from the same look and the same decisions. It writes nothing.

pub(crate) mod answer;
mod text;
pub(crate) mod world;

use std::io::Write;
use std::process::ExitCode;

use futures::{StreamExt, stream};
use jiff::Timestamp;

use super::args::{Output, PlanArgs};
use super::input::ConfigFile;
use answer::{Answer, Answers};
use world::World;

/// More groups at once would only wait for the same batched reads.
const AT_ONCE: usize = 64;

/// Runs the command on the process's own streams: 0 when nothing would change, 2 when something would, 1 on an error.
pub async fn run(args: PlanArgs) -> anyhow::Result<ExitCode> {
    let target = args.target().map_err(anyhow::Error::msg)?;
    let config = args.config.as_ref().map(|path| super::input::config_map(path, &mut std::io::stdin())).transpose()?;
    config.iter().flat_map(|config| &config.problems).for_each(|problem| eprintln!("{problem}"));
    if config.as_ref().is_some_and(ConfigFile::failed) {
        return Ok(ExitCode::FAILURE);
    }
    let world = World::read(&args.cluster, config).await?;
    let groups = world.select(target.as_ref())?;
    let now = Timestamp::now();
    let plans = stream::iter(groups).map(|stored| answer(&world, stored, now)).buffered(AT_ONCE);
    let answers = Answers::new(plans.collect().await, &world.in_force());
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Text => write!(out, "{}", text::show(&answers))?,
        Output::Yaml => write!(out, "{}", serde_yaml::to_string(&serde_json::to_value(&answers)?)?)?,
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&answers)?)?,
    }
    Ok(ExitCode::from(answers.exit_code()))
}

async fn answer(world: &World, stored: std::sync::Arc<crate::controller::Stored>, now: Timestamp) -> Answer {
    let key = crate::controller::key(&stored);
    match &stored.0 {
        Err(_) => Answer::undecodable(key),
        Ok(group) => match world.walk(group, now).await {
            Ok((walked, lock)) => Answer::new(group, walked, lock, &world.corridor, now),
            Err(error) => Answer::unknown(key, &error),
        },
    }
}
