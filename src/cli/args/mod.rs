//! The command line. `run` takes the flags of the contract in the notation of Go programs, because
//! existing deployments pass them so; all else is ordinary.

mod values;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::api::ScalingConfigurationKind;
use crate::api::names::DEFAULT_CONFIG_NAMESPACE;
pub use crate::auth::JoinAuth;
use crate::telemetry::logging::LogFormat;
pub use values::{GroupRef, ListenAddress};
use values::{parse_bool, parse_duration, parse_minutes, parse_scaling_configuration};

/// Groups of worker nodes from short tenant manifests, within an admin's boundaries.
#[derive(Debug, Parser)]
#[command(
    name = "instance-manager",
    version,
    max_term_width = 100,
    after_help = "Flags without a command are those of `run`: see `instance-manager run --help`."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the controller (the default).
    Run(Box<RunArgs>),
    /// Show what the controller would do to one group or all, and why. Changes nothing.
    ///
    /// Exit status: 0 when nothing would change, 2 when something would, 1 on an error.
    Plan(PlanArgs),
    /// Check whether a cluster is ready to be taken over from another controller. Changes nothing.
    ///
    /// Exit status: 0 when it is, 2 when something is missing, 1 on an error. An answer that nobody could give is
    /// unknown, and does not count as missing.
    Preflight(PreflightArgs),
    /// Let scaling groups follow `$Latest` again, before going back to the controller that was there before.
    ///
    /// Refuses while this controller runs, and while nodes of any group are being replaced. Exit status: 0 when it is
    /// done, 2 when a dry run found something to do, 1 when it refuses or fails.
    Handback(ReleaseArgs),
    /// Print what groups become with a ConfigMap, offline.
    Render(super::render::RenderArgs),
    /// The same, with where each value comes from.
    Explain(super::explain::ExplainArgs),
    /// Print the CustomResourceDefinition.
    Crd(super::crd::CrdArgs),
}

/// What the controller and `plan` have to agree on, so that a plan tells what will be done.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    /// File that says how to reach the API server [default: the environment's, or the pod's own
    /// account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace of the ConfigMap `instance-manager` and of the Lease
    #[arg(long, value_name = "NAMESPACE", default_value = DEFAULT_CONFIG_NAMESPACE)]
    pub config_namespace: String,

    /// The only cluster that groups may name; others are refused [default: any]
    #[arg(long, value_name = "NAME")]
    pub cluster_name: Option<String>,

    /// Versions of a launch template to keep besides those in use
    #[arg(long, value_name = "COUNT", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub config_retention: u32,

    /// Age in minutes up to which a recommendation about spot prices counts
    #[arg(long, value_name = "MINUTES", default_value = "10", value_parser = parse_minutes)]
    pub spot_recommendation_time: Duration,

    /// What scales groups that do not say it: LaunchTemplate or LaunchConfiguration
    #[arg(long, value_name = "KIND", default_value = "LaunchTemplate",
        value_parser = parse_scaling_configuration)]
    pub default_scaling_configuration: ScalingConfigurationKind,

    /// Leave the cluster's endpoint and certificate out of the user data of Windows nodes
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true",
        num_args = 0..=1, require_equals = true, value_parser = parse_bool, action = clap::ArgAction::Set)]
    pub disable_windows_cluster_ca_injection: bool,

    /// How nodes get the right to join
    #[arg(long, value_name = "WAY", value_enum, default_value_t = JoinAuth::Auto)]
    pub join_auth: JoinAuth,
}

/// Run the controller.
#[derive(Clone, Debug, Args)]
#[command(
    args_override_self = true,
    after_help = "Flags take one dash or two, and `=` or a space before the value. A BOOL takes `=` \
        or no value at all; it is 1, t, true, 0, f or false."
)]
pub struct RunArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,

    /// Groups that are worked on at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..))]
    pub max_workers: u16,

    /// Times that a throttled or failed call to AWS is repeated
    #[arg(long, value_name = "COUNT", default_value_t = 12)]
    pub max_api_retries: u32,

    /// Address for /metrics, /healthz and /readyz; 0 serves none
    #[arg(long, value_name = "[HOST]:PORT", default_value = ":8080")]
    pub metrics_addr: ListenAddress,

    /// Copy the role label of nodes to the label `kubernetes.io/role` where it is missing
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true",
        num_args = 0..=1, require_equals = true, value_parser = parse_bool, action = clap::ArgAction::Set)]
    pub node_relabel: bool,

    /// Write only while holding a Lease; false is for a single replica that never overlaps itself
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true",
        num_args = 0..=1, require_equals = true, value_parser = parse_bool, action = clap::ArgAction::Set)]
    pub enable_leader_election: bool,

    /// Time after which a quiet group is looked at again, a fifth more or less at random
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub resync_period: Duration,

    /// Factor on the controller's own waits (polls, propagation, shortfall), for tests and demos
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, hide = true)]
    pub time_scale: f64,

    /// Form of the log lines
    #[arg(long, value_name = "FORM", value_enum, default_value_t = LogFormat::Auto)]
    pub log_format: LogFormat,
}

/// Show what the controller would do.
#[derive(Clone, Debug, Args)]
pub struct PlanArgs {
    /// The group, as NAMESPACE/NAME or as NAME with --namespace
    #[arg(value_name = "GROUP", required_unless_present = "all_namespaces")]
    pub group: Option<GroupRef>,

    /// Namespace of the group [default: default]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Plan for every group of the cluster
    #[arg(short = 'A', long, conflicts_with_all = ["group", "namespace"])]
    pub all_namespaces: bool,

    /// Plan as if this were the ConfigMap `instance-manager`
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Text for people, or the plans themselves for programs
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,

    #[command(flatten)]
    pub cluster: ClusterArgs,
}

impl PlanArgs {
    /// Namespace and name of the one group to plan for; None for all of them.
    pub fn target(&self) -> Result<Option<(String, String)>, String> {
        let Some(group) = &self.group else {
            return Ok(None);
        };
        let namespace = match (&group.namespace, &self.namespace) {
            (Some(a), Some(b)) if a != b => {
                return Err(format!("{a}/{} is not in the namespace {b}: give one of both", group.name));
            }
            (Some(namespace), _) | (None, Some(namespace)) => namespace.clone(),
            (None, None) => "default".to_owned(),
        };
        Ok(Some((namespace, group.name.clone())))
    }
}

/// Check a cluster before the swap.
#[derive(Clone, Debug, Args)]
pub struct PreflightArgs {
    /// Whose rights in Kubernetes are checked, as system:serviceaccount:NAMESPACE:NAME [default: yours]
    #[arg(long = "as", value_name = "USER")]
    pub r#as: Option<String>,

    /// The controller's AWS role, whose actions IAM is asked to simulate [default: EC2 is asked for dry runs, with your credentials]
    #[arg(long, value_name = "ARN")]
    pub role_arn: Option<String>,

    /// Print the IAM policy that the controller needs in this cluster, and nothing else
    #[arg(long)]
    pub policy: bool,

    /// Text for people, or the checks themselves for programs
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,

    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Go back to the controller that was there before.
#[derive(Clone, Debug, Args)]
pub struct ReleaseArgs {
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Form of a command's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    #[default]
    Text,
    Json,
    Yaml,
}

/// Parses a whole command line, the program's name included.
pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(normalize_args(args))
}

/// Parses the command line of this process; prints help or the error and exits otherwise. An error
/// exits with 1, because 2 is `plan`'s way to say that something would change.
pub fn parse_or_exit() -> Cli {
    parse(std::env::args_os()).unwrap_or_else(|error| {
        // When not even the message can be printed, the exit status has to do.
        let _ = error.print();
        std::process::exit(i32::from(error.use_stderr()))
    })
}

/// Puts `run` in front of bare flags, and its flags into the one form `--flag` or `--flag=value`.
/// Other commands, and what is no flag, stay as they are.
pub fn normalize_args(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args = args.peekable();
    let mut out: Vec<OsString> = args.next().into_iter().collect();
    match args.peek().map(|first| first.to_string_lossy()) {
        Some(first) if first == "run" => drop(args.next()),
        Some(first) if !first.starts_with('-') || is_global_flag(&first) => {
            return out.into_iter().chain(args).collect();
        }
        _ => {}
    }
    out.push("run".into());
    let valued = flags_with_values();
    while let Some(arg) = args.next() {
        if arg == "--" {
            out.push(arg);
            break;
        }
        let Some(flag) = arg.to_str().and_then(long_flag) else {
            out.push(arg);
            continue;
        };
        let mut normal = OsString::from(format!("--{flag}"));
        if valued.contains(flag)
            && let Some(value) = args.next()
        {
            normal.push("=");
            normal.push(value);
        }
        out.push(normal);
    }
    out.extend(args);
    out
}

/// Flags of the program as a whole.
fn is_global_flag(flag: &str) -> bool {
    ["-h", "--help", "-V", "--version"].contains(&flag)
}

/// The text of a flag without its dashes; None for `-h`, `-` and what is no flag.
fn long_flag(arg: &str) -> Option<&str> {
    match arg.strip_prefix("--") {
        Some(flag) => Some(flag),
        None => arg.strip_prefix('-').filter(|flag| flag.len() > 1),
    }
}

/// The flags of `run` after which a value may stand with a space between.
fn flags_with_values() -> BTreeSet<String> {
    let command = RunArgs::augment_args(clap::Command::new("run"));
    let with_value = command.get_arguments().filter(|arg| !arg.is_require_equals_set());
    let names = with_value.filter_map(|arg| arg.get_long().map(str::to_owned));
    names.filter(|name| name != "help" && name != "version").collect()
}

#[cfg(test)]
mod tests;
