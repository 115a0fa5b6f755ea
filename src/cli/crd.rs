//! `crd`: the CustomResourceDefinition.

use std::process::ExitCode;

use super::output;

/// Print the CustomResourceDefinition, ready for `kubectl apply -f -`
#[derive(clap::Args, Clone, Debug, Default)]
pub struct CrdArgs {}

/// Runs the command on the process's own streams.
pub fn run(_: CrdArgs) -> anyhow::Result<ExitCode> {
    output::print(crate::api::crd_yaml().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
