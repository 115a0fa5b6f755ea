//! `rollout`: the revisions of the boundaries that the controller stored.

mod history;

use std::process::ExitCode;

use super::args::{RolloutArgs, RolloutCommand};

/// Runs the command.
///
/// # Errors
/// The API server did not answer, or the caller may not read the revisions.
pub async fn run(args: RolloutArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        RolloutCommand::History(args) => history::run(args).await,
    }
}
