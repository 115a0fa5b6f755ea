//! The settings of the process, and all waits and timeouts of the controller in one place.

use std::time::Duration;

use jiff::SignedDuration;

use crate::api::ScalingConfigurationKind;
use crate::auth::JoinAuth;

/// The settings of the process that a plan depends on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long the controller waits, for example for drains and for IAM.
    pub timing: Timing,
    /// `--resync-period`: the interval at which an unchanged group is reconciled again.
    pub resync_period: Duration,
    /// `--config-retention`: the number of unused launch template versions to keep.
    pub config_retention: usize,
    /// `--cluster-name`: the only cluster that groups may name; `None` allows any.
    pub cluster_name: Option<String>,
    /// `--default-scaling-configuration`: the default for `spec.eks.type`.
    pub default_scaling_configuration: ScalingConfigurationKind,
    /// `--disable-windows-cluster-ca-injection`: Windows nodes read the cluster's endpoint and certificate from EKS.
    pub windows_discovers_endpoint: bool,
    /// `--join-auth`: how nodes are authorized to join.
    pub join_auth: JoinAuth,
    /// `--config-namespace`: the namespace of the ConfigMap. Resources of the crd strategy may be created there.
    pub config_namespace: String,
}

/// The defaults of the flags.
impl Default for Settings {
    fn default() -> Self {
        Settings {
            timing: Timing::default(),
            resync_period: Duration::from_mins(5),
            config_retention: 2,
            cluster_name: None,
            default_scaling_configuration: ScalingConfigurationKind::LaunchTemplate,
            windows_discovers_endpoint: false,
            join_auth: JoinAuth::Auto,
            config_namespace: "instance-manager".into(),
        }
    }
}

/// Waits and timeouts of the controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Interval between polls of a group that is changing. Instances take tens of seconds to start, so a shorter interval
    /// only costs AWS calls.
    pub poll_interval: SignedDuration,
    /// Wait before a scaling group refers to a new instance profile, because IAM is eventually consistent.
    pub iam_propagation: SignedDuration,
    /// Minimum age of a role's access entry before the role's entry in aws-auth is removed. EKS applies an access entry
    /// after some seconds, and no API shows when.
    pub auth_handover: SignedDuration,
    /// How long fewer instances than desired may run before the controller reads the scaling activities for the cause.
    pub launch_shortfall: SignedDuration,
    /// How long the reads of a group may fail before the group reports it.
    pub failed_observation_delay: SignedDuration,
    /// How long a node may be NotReady before its drain no longer waits for evictions, and before its group is Stalled.
    pub kubelet_timeout: SignedDuration,
    /// How long a drained node waits for its volumes to detach.
    pub volume_detach_timeout: SignedDuration,
    /// Drain timeout when a group is deleted.
    pub deletion_drain_timeout: SignedDuration,
    /// Wait before a retry after a failure with a cause outside of the controller. Examples are a drain that ran into
    /// its timeout, a failed Fargate profile or strategy resource, and a role that EKS does not accept yet.
    pub retry_delay: SignedDuration,
    /// How long a rotation begins no further node after Auto Scaling failed to launch an instance, or after a replacement left
    /// unready. An autoscaler lowers the desired capacity then, so that nothing seems to be missing.
    pub launch_retry: SignedDuration,
    /// How long AWS may fail to answer, or EKS may work on a node group, before nodes whose drain is in progress are
    /// uncordoned.
    pub pause_limit: SignedDuration,
    /// How long a replacement must be Ready before the next batch starts. A replacement that fails immediately then
    /// does not cost another node.
    pub min_ready_time: SignedDuration,
    /// How long writes are paused after a start that takes over groups. A Deployment stops the old pod only after the new
    /// pod runs, and the old pod has this time to shut down.
    pub startup_grace: SignedDuration,
    /// How long a group must be blocked before that counts as a failure of the revision of the boundaries that it took.
    pub revision_failure_delay: SignedDuration,
    /// How long a rollout may take to find out what its revision means for each group.
    pub assessment_limit: SignedDuration,
    /// Interval at which the query of each check of a rollout runs.
    pub check_interval: SignedDuration,
    /// How long a termination that lowers the desired capacity is not repeated. AWS may lower the capacity again with each
    /// call, and its answers may be older than the last one: they show the instance in service. Auto Scaling would then
    /// remove another node, which is not drained.
    pub decrement_interval: SignedDuration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            poll_interval: SignedDuration::from_secs(15),
            iam_propagation: SignedDuration::from_secs(8),
            auth_handover: SignedDuration::from_mins(1),
            launch_shortfall: SignedDuration::from_mins(2),
            failed_observation_delay: SignedDuration::from_mins(1),
            kubelet_timeout: SignedDuration::from_mins(5),
            volume_detach_timeout: SignedDuration::from_mins(2),
            deletion_drain_timeout: SignedDuration::from_mins(15),
            retry_delay: SignedDuration::from_mins(5),
            launch_retry: SignedDuration::from_mins(30),
            pause_limit: SignedDuration::from_mins(2),
            min_ready_time: SignedDuration::from_secs(30),
            startup_grace: SignedDuration::from_secs(30),
            revision_failure_delay: SignedDuration::from_mins(5),
            assessment_limit: SignedDuration::from_mins(10),
            check_interval: SignedDuration::from_secs(30),
            decrement_interval: SignedDuration::from_mins(2),
        }
    }
}

impl Timing {
    /// The same values multiplied by `factor`, for tests and the demo.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        let scale = |d: SignedDuration| SignedDuration::try_from_secs_f64(d.as_secs_f64() * factor).unwrap_or(d);
        let Timing {
            poll_interval,
            iam_propagation,
            auth_handover,
            launch_shortfall,
            failed_observation_delay,
            kubelet_timeout,
            volume_detach_timeout,
            deletion_drain_timeout,
            retry_delay,
            launch_retry,
            pause_limit,
            min_ready_time,
            startup_grace,
            revision_failure_delay,
            assessment_limit,
            check_interval,
            decrement_interval,
        } = self;
        Timing {
            poll_interval: scale(poll_interval),
            iam_propagation: scale(iam_propagation),
            auth_handover: scale(auth_handover),
            launch_shortfall: scale(launch_shortfall),
            failed_observation_delay: scale(failed_observation_delay),
            kubelet_timeout: scale(kubelet_timeout),
            volume_detach_timeout: scale(volume_detach_timeout),
            deletion_drain_timeout: scale(deletion_drain_timeout),
            retry_delay: scale(retry_delay),
            launch_retry: scale(launch_retry),
            pause_limit: scale(pause_limit),
            min_ready_time: scale(min_ready_time),
            startup_grace: scale(startup_grace),
            revision_failure_delay: scale(revision_failure_delay),
            assessment_limit: scale(assessment_limit),
            check_interval: scale(check_interval),
            decrement_interval: scale(decrement_interval),
        }
    }
}
