//! `crd`: the CustomResourceDefinitions.

use std::process::ExitCode;

use super::output;

/// Print the CustomResourceDefinitions, ready for `kubectl apply -f -`
#[derive(clap::Args, Clone, Debug, Default)]
pub struct CrdArgs {}

/// Runs the command on the process's own streams.
pub fn run(_: CrdArgs) -> anyhow::Result<ExitCode> {
    let all: String = crate::api::crd_files().into_iter().map(|(_, text)| text).collect();
    output::print(all.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
