//! Log setup: text on a terminal, JSON otherwise.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// The filter without `RUST_LOG`: info of this crate, warnings of libraries.
const DEFAULT_FILTER: &str = "warn,instance_manager=info";

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// Text for people.
    Text,
    /// One JSON object for each line.
    Json,
}

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TelemetryError {
    /// `RUST_LOG` cannot be parsed.
    #[error("RUST_LOG is not a valid filter; use for example `info` or `instance_manager=debug`")]
    Filter(#[source] ParseError),
    /// Logging was already set up.
    #[error("logging is already set up")]
    Init(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Starts logging to standard error, so that a command's own output stays clean.
pub(crate) fn init(format: LogFormat) -> Result<(), TelemetryError> {
    let filter = filter(std::env::var("RUST_LOG").ok().as_deref())?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let terminal = io::stderr().is_terminal();
    let json = match format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let started = if json {
        lines.json().flatten_event(true).try_init()
    } else {
        lines.with_ansi(terminal).with_target(false).try_init()
    };
    started.map_err(TelemetryError::Init)
}

fn filter(filter_text: Option<&str>) -> Result<EnvFilter, TelemetryError> {
    let filter_text = filter_text.filter(|filter_text| !filter_text.trim().is_empty());
    EnvFilter::builder().parse(filter_text.unwrap_or(DEFAULT_FILTER)).map_err(TelemetryError::Filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_log_selects_the_filter() {
        for (filter_text, expected) in [
            (None, DEFAULT_FILTER),
            (Some(" "), DEFAULT_FILTER),
            (Some("debug"), "debug"),
            (Some("kube=trace"), "kube=trace"),
        ] {
            let mut got: Vec<_> = filter(filter_text).unwrap().to_string().split(',').map(str::to_owned).collect();
            let mut expected: Vec<_> = expected.split(',').map(str::to_owned).collect();
            got.sort();
            expected.sort();
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn invalid_filter_error_names_rust_log() {
        let error = filter(Some("kube=loudly")).unwrap_err();
        assert!(error.to_string().contains("RUST_LOG"));
    }
}
