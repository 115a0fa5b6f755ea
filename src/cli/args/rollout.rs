//! Arguments of `rollout`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::connection::ConnectionArgs;
use super::values::{
    OutputFormat, RevisionRef, WaitTarget, parse_awaited, parse_duration, parse_group_key, parse_revision,
};
use crate::api::names::DEFAULT_CONFIG_NAMESPACE;

/// Show and control how a change of the boundaries reaches the groups.
#[derive(Clone, Debug, Args)]
pub struct RolloutArgs {
    #[command(subcommand)]
    pub command: RolloutCommand,
}

/// The commands of `rollout`.
#[derive(Clone, Debug, Subcommand)]
pub enum RolloutCommand {
    /// Show how far a revision is, wave by wave, and which groups are behind.
    #[command(after_help = "Example:\n  instance-manager rollout status")]
    Status(RolloutStatusArgs),
    /// Stop a revision where it is: no further group takes it, and no further node is replaced for it.
    ///
    /// Groups that have it keep it. Continue with `rollout resume`, or return with `rollout abort`.
    #[command(after_help = "Example:\n  instance-manager rollout pause 3")]
    Pause(OrderArgs),
    /// Continue with a revision after a pause, a halt or an abort. Groups on which it failed try it again.
    ///
    /// After an abort it begins at the first wave.
    #[command(after_help = "Example:\n  instance-manager rollout resume 3")]
    Resume(OrderArgs),
    /// End a rollout in progress: every group that has its revision returns to the complete revision that it had before.
    ///
    /// Nodes that were replaced for it are replaced again. The ConfigMap is not changed. For a revision that all groups have,
    /// use `rollout undo`.
    #[command(after_help = "Example:\n  instance-manager rollout abort 3")]
    Abort(OrderArgs),
    /// Skip a wave (--wave), all waves (--all) or one group (--group).
    #[command(after_help = "Examples:\n  instance-manager rollout skip 3 --wave canary\n  \
        instance-manager rollout skip 3 --group team-a/web\n  instance-manager rollout skip 3 --all --now")]
    Skip(SkipArgs),
    /// Approve a wave that needs the approval of an admin, or all of them.
    #[command(after_help = "Example:\n  instance-manager rollout approve 14 --wave general")]
    Approve(ApproveArgs),
    /// Return all groups to the revision before one that all of them have. Without --yes, it only says what would happen.
    #[command(after_help = "Examples:\n  instance-manager rollout undo\n  instance-manager rollout undo 3 --yes")]
    Undo(UndoArgs),
    /// Wait until a revision has reached all groups, or has passed a wave; for pipelines.
    ///
    /// Exit status: 0 when it has, 2 when it is halted, aborted or superseded, 1 when the time is over.
    #[command(after_help = "Example:\n  instance-manager rollout wait --for wave=canary --timeout 1h")]
    Wait(RolloutWaitArgs),
    /// List the stored revisions, newest first; or show one of them with its differences to the one before.
    ///
    /// To revert, commit an earlier content: `rollout history --revision 3 -o yaml` prints it as a ConfigMap.
    #[command(after_help = "Examples:\n  instance-manager rollout history\n  \
        instance-manager rollout history --revision 3 -o yaml > boundaries.yaml")]
    History(HistoryArgs),
}

/// Where the revisions are.
#[derive(Clone, Debug, Args)]
pub struct RevisionsArgs {
    /// Namespace of the ConfigMap `instance-manager`
    #[arg(long, value_name = "NAMESPACE", default_value = DEFAULT_CONFIG_NAMESPACE)]
    pub config_namespace: String,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Show the progress of a rollout.
#[derive(Clone, Debug, Args)]
pub struct RolloutStatusArgs {
    /// Number of the revision, as `rollout history` lists it: 3 or r3; or its release [default: the newest]
    #[arg(value_name = "REVISION", value_parser = parse_revision)]
    pub revision: Option<RevisionRef>,

    /// Output format: text for people, the resource for programs
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,

    #[command(flatten)]
    pub revisions: RevisionsArgs,
}

/// Control the rollout of a revision.
#[derive(Clone, Debug, Args)]
pub struct OrderArgs {
    /// Number of the revision, as `rollout history` lists it: 3 or r3; or its release
    #[arg(value_name = "REVISION", value_parser = parse_revision)]
    pub revision: RevisionRef,

    #[command(flatten)]
    pub revisions: RevisionsArgs,
}

/// Skip a wave or a group.
#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct SkipArgs {
    #[command(flatten)]
    pub order: OrderArgs,

    /// Let this wave open without an approval, and the following waves begin without waiting for it
    #[arg(long, value_name = "WAVE", group = "what")]
    pub wave: Option<String>,

    /// Leave this group, as NAMESPACE/NAME, at the revision that it has
    #[arg(long, value_name = "GROUP", group = "what", value_parser = parse_group_key)]
    pub group: Option<String>,

    /// Let all waves begin now, without approvals
    #[arg(long, group = "what")]
    pub all: bool,

    /// With --all, for an emergency: let no window, freeze or deferral of a tenant delay it either. A halt still stops it
    #[arg(long, requires = "all")]
    pub now: bool,
}

/// Approve a wave.
#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub struct ApproveArgs {
    #[command(flatten)]
    pub order: OrderArgs,

    /// Approve this wave
    #[arg(long, value_name = "WAVE", group = "which")]
    pub wave: Option<String>,

    /// Approve all waves
    #[arg(long, group = "which")]
    pub all: bool,
}

/// Return from a complete revision to the one before.
#[derive(Clone, Debug, Args)]
pub struct UndoArgs {
    /// Number of the revision, as `rollout history` lists it: 3 or r3; or its release [default: the newest]
    #[arg(value_name = "REVISION", value_parser = parse_revision)]
    pub revision: Option<RevisionRef>,

    /// Do it; without this flag, the command only says what would happen
    #[arg(long)]
    pub yes: bool,

    #[command(flatten)]
    pub revisions: RevisionsArgs,
}

/// Wait for a rollout.
#[derive(Clone, Debug, Args)]
pub struct RolloutWaitArgs {
    /// Number of the revision, as `rollout history` lists it: 3 or r3; or its release [default: the newest]
    #[arg(value_name = "REVISION", value_parser = parse_revision)]
    pub revision: Option<RevisionRef>,

    /// What to wait for: complete, or wave=NAME for a wave that has passed
    #[arg(long = "for", value_name = "STATE", default_value = "complete", value_parser = parse_awaited)]
    pub awaited: WaitTarget,

    /// How long to wait
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = parse_duration)]
    pub timeout: Duration,

    #[command(flatten)]
    pub revisions: RevisionsArgs,
}

/// List or show revisions.
#[derive(Clone, Debug, Args)]
pub struct HistoryArgs {
    /// Show this revision and all its differences to the one before; 3 or r3, or its release
    #[arg(long, value_name = "REVISION", value_parser = parse_revision)]
    pub revision: Option<RevisionRef>,

    /// Output format: text for people; JSON or YAML, with --revision, is a ConfigMap to commit, with its user data
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,

    /// Namespace of the ConfigMap `instance-manager`
    #[arg(long, value_name = "NAMESPACE", default_value = DEFAULT_CONFIG_NAMESPACE)]
    pub config_namespace: String,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}
