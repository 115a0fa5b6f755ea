//! Parsers for the values of flags.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use axum::http::Uri;
use clap::ValueEnum;

use crate::api::ScalingConfigurationKind;

/// Format of a command's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    #[default]
    Text,
    Json,
    Yaml,
}

/// What `rollout wait` waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitTarget {
    /// All waves have passed.
    Complete,
    /// This wave has passed.
    Wave(String),
}

/// A revision as a user names it: its number, as `3` or `r3`, or the `release` that the ConfigMap had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionRef(pub String);

impl RevisionRef {
    /// The revision with a number.
    pub(crate) fn of_number(number: i64) -> Self {
        Self(format!("r{number}"))
    }

    /// The number, if it is one.
    pub(crate) fn number(&self) -> Option<i64> {
        self.0.strip_prefix('r').unwrap_or(&self.0).parse().ok().filter(|number| *number > 0)
    }
}

/// The address to listen on; `None` disables the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress(pub Option<SocketAddr>);

impl FromStr for ListenAddress {
    type Err = String;

    /// Reads `:8080` (all addresses), `HOST:PORT` with an IP address or `localhost`, and `0`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "0" {
            return Ok(Self(None));
        }
        let port = |digits: &str| digits.parse::<u16>().ok();
        let local = text.strip_prefix("localhost:").and_then(port);
        let address = match (text.strip_prefix(':').and_then(port), local) {
            (Some(port), _) => Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))),
            (None, Some(port)) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            (None, None) => text.parse().ok(),
        };
        let help = "expected `:PORT` or `ADDRESS:PORT`, such as `:8080` or `127.0.0.1:8080`";
        address.map(|address| Self(Some(address))).ok_or_else(|| help.to_owned())
    }
}

/// A group, with or without its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRef {
    pub namespace: Option<String>,
    pub name: String,
}

impl GroupRef {
    /// Namespace and name, with the namespace of a flag; without either, that of the kubeconfig counts.
    ///
    /// # Errors
    /// The flag names another namespace.
    pub(crate) fn in_namespace(&self, flag: Option<&str>) -> Result<(Option<String>, String), String> {
        match (self.namespace.as_deref(), flag) {
            (Some(own), Some(given)) if own != given => {
                Err(format!("{own}/{} is not in the namespace {given}; set the namespace only once", self.name))
            }
            (own, given) => Ok((own.or(given).map(str::to_owned), self.name.clone())),
        }
    }
}

impl FromStr for GroupRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<_> = text.split('/').collect();
        match parts.as_slice() {
            [name] if !name.is_empty() => Ok(Self { namespace: None, name: (*name).to_owned() }),
            [namespace, name] if !namespace.is_empty() && !name.is_empty() => {
                Ok(Self { namespace: Some((*namespace).to_owned()), name: (*name).to_owned() })
            }
            _ => Err("expected NAME or NAMESPACE/NAME".to_owned()),
        }
    }
}

/// The address of a Prometheus server. An error does not repeat the text, which may hold a password.
pub(super) fn parse_prometheus_url(text: &str) -> Result<Uri, String> {
    let example = "such as http://prometheus.monitoring.svc:9090";
    let url: Uri = text.parse().map_err(|_| format!("expected a URL, {example}"))?;
    match (url.scheme_str(), url.authority()) {
        (Some("http" | "https"), Some(authority)) if authority.as_str().contains('@') => {
            Err("must not contain a password; use --prometheus-token-file".to_owned())
        }
        (Some("http" | "https"), Some(_)) if url.query().is_some() => {
            Err("must not contain a query; give the address of the server, without /api/v1/query".to_owned())
        }
        (Some("http" | "https"), Some(_)) => Ok(url),
        _ => Err(format!("expected a URL that begins with http:// or https://, {example}")),
    }
}

/// A boolean in the spellings of Go.
pub(super) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// A positive duration such as `5m`, `300s` or `1h30m`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let parsed = crate::util::duration::parse(text).and_then(|parsed| Duration::try_from(parsed).ok());
    let positive = parsed.filter(|parsed| !parsed.is_zero());
    positive.ok_or_else(|| "expected a duration such as `5m`, `300s` or `1h30m`".to_owned())
}

/// A number of minutes, decimals allowed.
pub(super) fn parse_minutes(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<f64>().ok();
    let parsed = parsed.and_then(|minutes| Duration::try_from_secs_f64(minutes * 60.0).ok());
    parsed.ok_or_else(|| "expected a number of minutes, such as `10`".to_owned())
}

/// A revision as `3` or `r3`, or as the name of its release.
pub(super) fn parse_revision(text: &str) -> Result<RevisionRef, String> {
    match text.trim() {
        "" => Err("expected a revision, such as `3`, or its release".to_owned()),
        text => Ok(RevisionRef(text.to_owned())),
    }
}

/// A group as NAMESPACE/NAME.
pub(super) fn parse_group_key(text: &str) -> Result<String, String> {
    let parts: Vec<&str> = text.split('/').collect();
    match parts.as_slice() {
        [namespace, name] if !namespace.is_empty() && !name.is_empty() => Ok(text.to_owned()),
        _ => Err("expected NAMESPACE/NAME".to_owned()),
    }
}

/// What `rollout wait` waits for.
pub(super) fn parse_awaited(text: &str) -> Result<WaitTarget, String> {
    match text.split_once('=') {
        None if text.eq_ignore_ascii_case("complete") => Ok(WaitTarget::Complete),
        Some(("wave", name)) if !name.is_empty() => Ok(WaitTarget::Wave(name.to_owned())),
        _ => Err("expected complete, or wave=NAME".to_owned()),
    }
}

/// The kind of scaling configuration, case-insensitive.
pub(super) fn parse_scaling_configuration(text: &str) -> Result<ScalingConfigurationKind, String> {
    ScalingConfigurationKind::parse(text).ok_or_else(|| "expected LaunchTemplate or LaunchConfiguration".to_owned())
}
