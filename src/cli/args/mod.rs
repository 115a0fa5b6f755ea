//! The command line. `run` also accepts the flag notation of Go programs, because existing deployments of
//! keikoproj/instance-manager use it.

mod connection;
mod rollout;
mod values;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::Uri;
use clap::{Args, Parser, Subcommand};

use crate::api::ScalingConfigurationKind;
use crate::api::names::DEFAULT_CONFIG_NAMESPACE;
pub(crate) use crate::auth::JoinAuth;
use crate::telemetry::logging::LogFormat;
pub(crate) use connection::Target;
pub use connection::{ConnectionArgs, NamespaceArgs, ScopeArgs};
pub use rollout::{
    ApproveArgs, HistoryArgs, OrderArgs, RevisionsArgs, RolloutArgs, RolloutCommand, RolloutStatusArgs,
    RolloutWaitArgs, SkipArgs, UndoArgs,
};
pub(crate) use values::{GroupRef, ListenAddress, OutputFormat, RevisionRef, WaitTarget};
use values::{parse_bool, parse_duration, parse_minutes, parse_prometheus_url, parse_scaling_configuration};

/// Manages EKS worker nodes from InstanceGroups, within the boundaries that a cluster admin sets.
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

/// The commands of the program, one for each purpose; `run` is the controller.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the controller (the default).
    Run(Box<RunArgs>),
    /// Show what the controller would change for one group, a namespace or all groups, and why. Changes nothing.
    ///
    /// Reads the cluster with your kubeconfig and AWS with your credentials. Give it the flags that the controller runs with,
    /// such as --cluster-name, or it answers for another configuration. Exit status: 0 when nothing would change, 2 when
    /// something would, 1 on an error.
    #[command(after_help = "Examples:\n  instance-manager plan team-a/web\n  \
        instance-manager plan -A --config new.yaml    # what would this ConfigMap change?")]
    Plan(PlanArgs),
    /// Show one group with its nodes, what its drains wait for, and its last events; or a line for each group.
    ///
    /// Needs no AWS credentials. It reads Kubernetes with your permissions, so that tenants can use it: what you may not
    /// read is named and left out. Without a group, it lists those of your kubeconfig's namespace.
    #[command(after_help = "Examples:\n  instance-manager status team-a/web\n  \
        instance-manager status -A    # all groups, those with a problem first")]
    Status(StatusArgs),
    /// Check whether a cluster is ready for this controller, before it replaces another one. Changes nothing.
    ///
    /// Checks the Kubernetes version, the CRDs, the controller's permissions in Kubernetes and AWS, and what would change in
    /// each group. Exit status: 0 when it is ready, 2 when something is missing, 1 on an error. A check that could not be made
    /// is reported as unknown and does not count as missing. When the groups could not be read, the exit status is 1.
    #[command(after_help = "Examples:\n  \
        instance-manager preflight --as system:serviceaccount:instance-manager:instance-manager --role-arn ARN\n  \
        instance-manager preflight --policy scaling-groups > policy.json")]
    Preflight(PreflightArgs),
    /// Prepare the scaling groups for a return to keikoproj/instance-manager.
    ///
    /// This controller pins each scaling group to a number of its launch template's versions. `release` lets them launch
    /// `$Latest` again, as keikoproj/instance-manager expects. It refuses while this controller runs, and while nodes of any
    /// group are being replaced. Exit status: 0 when every group is released. 2 when a dry run found something to do, or a
    /// group was skipped. 1 when it refuses, or a group could not be changed.
    #[command(after_help = "Example:\n  \
        kubectl -n instance-manager scale deployment instance-manager --replicas 0\n  instance-manager release --dry-run")]
    Release(ReleaseArgs),
    /// Show and control how a change of the ConfigMap of boundaries reaches the groups: status, pause, abort and more.
    ///
    /// Each valid content of the ConfigMap `instance-manager` is a revision with a number: 3 or r3. The key `rollout` of the
    /// ConfigMap says in which waves a revision reaches the groups.
    #[command(after_help = "Examples:\n  instance-manager rollout status\n  instance-manager rollout abort 3")]
    Rollout(RolloutArgs),
    /// Ask the controller to reconcile a group now, and wait for the result.
    ///
    /// Use it after a repair, instead of waiting for the next resync. It sets an annotation of the group with your Kubernetes
    /// permissions. Exit status: 0 when the group is Ready, and 2 when it is not. 1 on an error, or when the controller does
    /// not answer in time.
    #[command(after_help = "Example:\n  instance-manager reconcile team-a/web")]
    Reconcile(ReconcileArgs),
    /// Print the spec of InstanceGroups in files after the merge with the ConfigMap. Needs no cluster.
    ///
    /// Every rule is checked that needs no read from AWS. Without a ConfigMap, only the values that the files contain are
    /// checked. The output contains user data.
    ///
    /// Exit status: 0 when every group could be merged and is valid, 1 otherwise. Problems go to standard error as
    /// `file:line: field: message`; warnings do not change the exit status.
    #[command(after_help = "Example:\n  instance-manager render --config boundaries.yaml team-a/web.yaml")]
    Render(super::render::RenderArgs),
    /// Print where each value of a group's spec comes from: the tenant, or a default or boundary of the ConfigMap.
    ///
    /// NAMESPACE/NAME is a group of the cluster, explained with the active boundaries and your Kubernetes permissions. Files
    /// need no cluster. Values of the tenant that were not used are listed. User data is never printed. Exit status: 0 when
    /// all groups are valid, 1 otherwise, or when a permission is missing.
    #[command(after_help = "Examples:\n  instance-manager explain team-a/web\n  \
        instance-manager explain --config boundaries.yaml team-a/web.yaml")]
    Explain(super::explain::ExplainArgs),
    /// Check the ConfigMap of the boundaries in a file, for CI. Needs no cluster.
    ///
    /// Finds everything that the file alone shows: syntax, unknown keys, paths that name no field or are in two lists,
    /// selectors and globs. It also finds choices that are left open, defaults that no boundary lists, and defaults
    /// that no group could use. Exit status: 0 when nothing is found, 1 when there are errors or warnings, 2 when a
    /// file cannot be read or an argument is wrong.
    #[command(after_help = "Example:\n  instance-manager lint boundaries.yaml")]
    Lint(super::lint::LintArgs),
    /// Print a Kubernetes admission policy that warns tenants who set a restricted field. Needs no cluster.
    ///
    /// The output is a ValidatingAdmissionPolicy with its binding, which Kubernetes 1.30 or newer evaluates by itself. Commit
    /// it beside the ConfigMap, and generate it again when the list `restricted` or `policy.excludableNamespaces` changes.
    /// `kubectl apply` shows the warnings; Argo CD does not. Exit status: 0 on success, 1 on an error, 2 when --check finds a
    /// difference.
    #[command(after_help = "Examples:\n  instance-manager admission --config boundaries.yaml > admission.yaml\n  \
        instance-manager admission --config boundaries.yaml --check admission.yaml    # for CI")]
    Admission(super::admission::AdmissionArgs),
    /// Print the CustomResourceDefinitions of this version. Needs no cluster.
    #[command(after_help = "Example:\n  instance-manager crd | kubectl apply --server-side -f -")]
    Crd(super::crd::CrdArgs),
}

/// Flags that must have the same values for the controller and for `plan`, so that the plan matches the controller.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Namespace of the ConfigMap `instance-manager` and of the Lease
    #[arg(long, value_name = "NAMESPACE", default_value = DEFAULT_CONFIG_NAMESPACE)]
    pub config_namespace: String,

    /// The only EKS cluster that groups may name; other names are rejected [default: any]
    #[arg(long, value_name = "NAME")]
    pub cluster_name: Option<String>,

    /// Number of unused launch template versions to keep
    #[arg(long, value_name = "COUNT", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub config_retention: u32,

    /// Maximum age of a spot recommendation event, in minutes
    #[arg(long, value_name = "MINUTES", default_value = "10", value_parser = parse_minutes)]
    pub spot_recommendation_time: Duration,

    /// Default for spec.eks.type: LaunchTemplate or LaunchConfiguration
    #[arg(long, value_name = "KIND", default_value = "LaunchTemplate",
        value_parser = parse_scaling_configuration)]
    pub default_scaling_configuration: ScalingConfigurationKind,

    /// Omit the cluster's endpoint and certificate from the user data of Windows nodes
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true",
        num_args = 0..=1, require_equals = true, value_parser = parse_bool, action = clap::ArgAction::Set)]
    pub disable_windows_cluster_ca_injection: bool,

    /// How nodes are authorized to join the cluster
    #[arg(long, value_name = "METHOD", value_enum, default_value_t = JoinAuth::Auto)]
    pub join_auth: JoinAuth,
}

/// Run the controller.
#[derive(Clone, Debug, Args)]
#[command(
    args_override_self = true,
    after_help = "Flags take one dash or two, and `=` or a space before the value. A BOOL takes `=` \
        or no value; valid values are 1, t, true, 0, f and false."
)]
pub struct RunArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,

    /// Maximum number of concurrent reconciles
    #[arg(long, value_name = "COUNT", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..))]
    pub max_workers: u16,

    /// Maximum number of attempts of an AWS call that is throttled or fails, the first one included
    #[arg(long, value_name = "COUNT", default_value_t = 12)]
    pub max_api_retries: u32,

    /// Address of /metrics, /healthz and /readyz; 0 disables the server
    #[arg(long, value_name = "[HOST]:PORT", default_value = ":8080")]
    pub metrics_addr: ListenAddress,

    /// Label the nodes of groups with their InstanceGroup and its namespace, and copy the label `node.kubernetes.io/role` to
    /// `kubernetes.io/role` where that is missing
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true",
        num_args = 0..=1, require_equals = true, value_parser = parse_bool, action = clap::ArgAction::Set)]
    pub node_relabel: bool,

    /// Write only while holding the Lease; use false only for a single replica without rolling updates
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true",
        num_args = 0..=1, require_equals = true, value_parser = parse_bool, action = clap::ArgAction::Set)]
    pub enable_leader_election: bool,

    /// Interval at which an unchanged group is reconciled again, with a jitter of 20 %
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub resync_period: Duration,

    /// Address of the Prometheus server that answers the checks of rollouts, such as http://prometheus.monitoring.svc:9090
    /// [default: no checks]
    #[arg(long, value_name = "URL", value_parser = parse_prometheus_url)]
    pub prometheus_url: Option<Uri>,

    /// File with a bearer token for that server; it is read for each query
    #[arg(long, value_name = "FILE", requires = "prometheus_url")]
    pub prometheus_token_file: Option<PathBuf>,

    /// Factor on the controller's waits and timeouts, for tests and demos
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, hide = true)]
    pub time_scale: f64,

    /// Format of the log lines
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Auto)]
    pub log_format: LogFormat,
}

/// Show what the controller would do.
#[derive(Clone, Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub scope: ScopeArgs,

    /// Plan as if this file were the ConfigMap `instance-manager`
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Output format: text for people, JSON or YAML for programs
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,

    #[command(flatten)]
    pub cluster: ClusterArgs,
}

impl PlanArgs {
    /// The groups to plan for. Plans of a namespace or of all groups take long, so they are asked for.
    ///
    /// # Errors
    /// The arguments name no group, or two namespaces.
    pub(crate) fn target(&self) -> anyhow::Result<Target> {
        anyhow::ensure!(
            !self.scope.is_empty(),
            "which group? Write NAMESPACE/NAME for one group, -n NAMESPACE for all groups of a namespace, or -A for all \
             groups"
        );
        self.scope.target()
    }
}

/// Show the state of one group or a list of groups.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub scope: ScopeArgs,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Ask the controller to reconcile a group now.
#[derive(Clone, Debug, Args)]
pub struct ReconcileArgs {
    /// The group, as NAMESPACE/NAME or as NAME with --namespace
    #[arg(value_name = "GROUP")]
    pub group: GroupRef,

    #[command(flatten)]
    pub namespace: NamespaceArgs,

    /// How long to wait for the controller
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_duration)]
    pub timeout: Duration,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Check a cluster before the cut-over.
#[derive(Clone, Debug, Args)]
pub struct PreflightArgs {
    /// Account whose Kubernetes permissions are checked, as system:serviceaccount:NAMESPACE:NAME [default: yours]
    #[arg(long = "as", value_name = "USER")]
    pub r#as: Option<String>,

    /// AWS role of the controller, whose permissions IAM simulates [default: EC2 dry runs with your credentials]
    #[arg(long, value_name = "ARN")]
    pub role_arn: Option<String>,

    /// Print an IAM policy for this cluster and nothing else: scaling-groups, node-roles, access-entries,
    /// managed-node-groups, fargate, or all of them in one object
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "all")]
    pub policy: Option<String>,

    /// Output format: text for people, JSON or YAML for programs
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,

    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Release scaling groups before going back to keikoproj/instance-manager.
#[derive(Clone, Debug, Args)]
pub struct ReleaseArgs {
    /// Print what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Parses a whole command line, the program's name included.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(normalize_args(args))
}

/// Parses the command line of this process; prints help or the error and exits otherwise. An error exits with 1,
/// because 2 means in `plan` that something would change. In `lint`, 1 means a finding, and an error exits with 2.
pub fn parse_or_exit() -> Cli {
    parse(std::env::args_os()).unwrap_or_else(|error| {
        // If the message cannot be printed, the exit status still shows the error.
        let _ = error.print();
        let is_lint = std::env::args_os().nth(1).is_some_and(|command| command == "lint");
        let status = if is_lint { super::lint::UNUSABLE } else { 1 };
        std::process::exit(if error.use_stderr() { status.into() } else { 0 })
    })
}

/// Inserts `run` before flags without a command, and normalizes the flags of `run` to `--flag` or `--flag=value`.
/// Other commands and positional arguments are not changed.
pub(crate) fn normalize_args(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
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

/// The text of a flag without its dashes; `None` for `-`, and for an argument that is not a flag.
fn long_flag(arg: &str) -> Option<&str> {
    match arg.strip_prefix("--") {
        Some(flag) => Some(flag),
        None => arg.strip_prefix('-').filter(|flag| flag.len() > 1),
    }
}

/// The flags of `run` that accept a value after a space.
fn flags_with_values() -> BTreeSet<String> {
    let command = RunArgs::augment_args(clap::Command::new("run"));
    let with_value = command.get_arguments().filter(|arg| !arg.is_require_equals_set());
    let names = with_value.filter_map(|arg| arg.get_long().map(str::to_owned));
    names.filter(|name| name != "help" && name != "version").collect()
}

#[cfg(test)]
mod tests;
