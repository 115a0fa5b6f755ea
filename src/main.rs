//! Entry point: parses the command line and runs the command.

use std::process::ExitCode;

use instance_manager::cli;
use instance_manager::cli::args::{Command, parse_or_exit};

/// A reconcile allocates many small objects, and with glibc's allocator a third of its CPU time goes there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    command().unwrap_or_else(|error| {
        cli::output::print_error(&format!("error: {}", cli::output::describe_error(&error)));
        ExitCode::FAILURE
    })
}

fn command() -> anyhow::Result<ExitCode> {
    // Select one TLS provider; without it, creating the first client panics.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match parse_or_exit().command {
        Command::Run(args) => runtime()?.block_on(cli::run::run(*args)),
        Command::Render(args) => cli::render::run(args),
        Command::Explain(args) => runtime()?.block_on(cli::explain::run(args)),
        Command::Admission(args) => cli::admission::run(args),
        Command::Lint(args) => cli::lint::run(args),
        Command::Crd(args) => cli::crd::run(args),
        Command::Preflight(args) => runtime()?.block_on(cli::preflight::run(args)),
        Command::Release(args) => runtime()?.block_on(cli::release::run(args)),
        Command::Status(args) => runtime()?.block_on(cli::status::run(args)),
        Command::Reconcile(args) => runtime()?.block_on(cli::reconcile::run(args)),
        Command::Rollout(args) => runtime()?.block_on(cli::rollout::run(args)),
        Command::Plan(args) => runtime()?.block_on(cli::plan::run(args)),
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}
