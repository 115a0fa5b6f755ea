//! `crd`: the CustomResourceDefinition.

use std::{io::Write, process::ExitCode};

/// Print the CustomResourceDefinition, ready for `kubectl apply -f -`
#[derive(clap::Args, Clone, Debug, Default)]
pub struct CrdArgs {}

/// Runs the command on the process's own streams.
pub fn run(_: CrdArgs) -> anyhow::Result<ExitCode> {
    std::io::stdout().write_all(crate::api::crd_yaml().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
