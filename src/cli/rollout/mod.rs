//! `rollout`: the revisions of the boundaries, how far the newest one is, and orders of users about it.

mod history;
mod order;
mod ordered_by;
mod read;
mod status;
mod undo;
mod wait;

use std::process::ExitCode;

use super::args::{RolloutArgs, RolloutCommand};

/// Runs the command.
///
/// # Errors
/// The API server did not answer, or the caller may not read or patch the revisions.
pub async fn run(args: RolloutArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        RolloutCommand::History(args) => history::run(args).await,
        RolloutCommand::Status(args) => status::run(args).await,
        RolloutCommand::Pause(args) => order::pause(args).await,
        RolloutCommand::Resume(args) => order::resume(args).await,
        RolloutCommand::Abort(args) => order::abort(args).await,
        RolloutCommand::Approve(args) => order::approve(args).await,
        RolloutCommand::Skip(args) => order::skip(args).await,
        RolloutCommand::Undo(args) => undo::undo(args).await,
        RolloutCommand::Wait(args) => wait::run(args).await,
    }
}
