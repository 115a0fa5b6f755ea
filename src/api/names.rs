//! Names that other programs rely on: annotations, labels, tags, condition types and their reasons.

/// API group of `InstanceGroup`.
pub(crate) const GROUP: &str = "instancemgr.keikoproj.io";
/// API version of `InstanceGroup`.
pub(crate) const VERSION: &str = "v1alpha1";
/// Full name of the CustomResourceDefinition.
pub(crate) const CRD_NAME: &str = "instancegroups.instancemgr.keikoproj.io";
/// The controller's finalizer. The controller removes no other finalizer.
pub(crate) const FINALIZER: &str = "finalizer.instancegroups.keikoproj.io";
/// Name of the ConfigMap that holds boundaries, defaults, conditionals and policy.
pub(crate) const CONFIG_MAP: &str = "instance-manager";
/// Name of the ConfigMap, in the namespace of [`CONFIG_MAP`], that stores the last known good revision.
pub(crate) const LAST_KNOWN_GOOD_CONFIG_MAP: &str = "instance-manager-last-good";
/// Annotation in which a person says why an object was changed. It is copied from [`CONFIG_MAP`] to its BoundariesRevision.
pub(crate) const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";
/// Default of `--config-namespace`.
pub(crate) const DEFAULT_CONFIG_NAMESPACE: &str = "instance-manager";

/// Annotations. Each comment begins with the kind of object that has the annotation.
pub(crate) mod annotation {
    use std::collections::BTreeMap;

    /// Whether an annotation is set to "true", in any case.
    pub(crate) fn is_true(annotations: &BTreeMap<String, String>, key: &str) -> bool {
        annotations.get(key).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Namespace: "true" (any case) excludes its groups from boundaries and defaults.
    pub(crate) const CONFIG_EXCLUDED: &str = "instancemgr.keikoproj.io/config-excluded";
    /// Group, Namespace or ConfigMap: "true" blocks cordons, drains and terminations.
    pub(crate) const LOCK_UPGRADES: &str = "instancemgr.keikoproj.io/lock-upgrades";
    /// Group: "k=v,k2=v2" replaces the role labels of its nodes.
    pub(crate) const DEFAULT_LABELS: &str = "instancemgr.keikoproj.io/default-labels";
    /// Group: the nodes' role does not get the CNI policy.
    pub(crate) const IRSA_ENABLED: &str = "instancemgr.keikoproj.io/irsa-enabled";
    /// Group: see [`crate::api::OsFamily`].
    pub(crate) const OS_FAMILY: &str = "instancemgr.keikoproj.io/os-family";
    /// Group: the scaling group gets the cluster autoscaler's tags.
    pub(crate) const CLUSTER_AUTOSCALER_ENABLED: &str = "instancemgr.keikoproj.io/cluster-autoscaler-enabled";
    /// Group: pods use other subnets than their node, so the controller computes maxPods.
    pub(crate) const CUSTOM_NETWORKING_ENABLED: &str = "instancemgr.keikoproj.io/custom-networking-enabled";
    /// Group: number of pods on the host network, for the computed maxPods (default 2).
    pub(crate) const CUSTOM_NETWORKING_HOST_PODS: &str = "instancemgr.keikoproj.io/custom-networking-host-pods";
    /// Group: the CNI assigns prefixes, for the computed maxPods.
    pub(crate) const CUSTOM_NETWORKING_PREFIX: &str =
        "instancemgr.keikoproj.io/custom-networking-prefix-assignment-enabled";
    /// Group: time in RFC 3339; nodes launched before it are outdated.
    pub(crate) const ROTATE_AT: &str = "instancemgr.keikoproj.io/rotate-at";
    /// Group: when the value changes, the controller reconciles the group at once, from fresh reads.
    pub(crate) const RECONCILE_NOW: &str = "instancemgr.keikoproj.io/reconcile-now";
    /// Group: "true" lets a deletion with ready nodes wait until it is confirmed.
    pub(crate) const PROTECT_DELETION: &str = "instancemgr.keikoproj.io/protect-deletion";
    /// Group: its own name confirms the deletion of a protected group.
    pub(crate) const CONFIRM_DELETION: &str = "instancemgr.keikoproj.io/confirm-deletion";
    /// Group or Namespace: time in RFC 3339 until which the group defers a revision of the boundaries.
    pub(crate) const DEFER_UNTIL: &str = "instancemgr.keikoproj.io/defer-until";
    /// Group or Namespace: number, name, hash or release of the revision that is wanted now.
    pub(crate) const APPROVE_REVISION: &str = "instancemgr.keikoproj.io/approve-revision";
    /// Group or Namespace: "sat-sun 02:00-06:00 Europe/Berlin"; the tenant's own window for rollouts.
    pub(crate) const WINDOW: &str = "instancemgr.keikoproj.io/window";
    /// Node: record of a disruption in progress.
    pub(crate) const DISRUPTION: &str = "instancemgr.keikoproj.io/disruption";
    /// Node: time in RFC 3339 before which its drain, which timed out or was stopped by another client, is not
    /// repeated.
    pub(crate) const DRAIN_AFTER: &str = "instancemgr.keikoproj.io/drain-after";
    /// Node: record that the controller put the node's instance into standby.
    pub(crate) const SURGE: &str = "instancemgr.keikoproj.io/surge";
    /// Node: the labels and taints that the controller gave it after it had joined.
    pub(crate) const IN_PLACE: &str = "instancemgr.keikoproj.io/in-place";
    /// Node: keeps the Cluster Autoscaler from removing it (kubernetes/autoscaler, FAQ).
    pub(crate) const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
    /// Strategy resource: name of the scaling group that it upgrades.
    pub(crate) const UPGRADE_SCOPE: &str = "instancemgr.keikoproj.io/upgrade-scope";
    /// Strategy resource: name of the program that created it.
    pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// Value of [`MANAGED_BY`].
    pub(crate) const MANAGED_BY_VALUE: &str = "instance-manager";
}

/// Labels on nodes.
pub(crate) mod label {
    /// Name of the group, set by the kubelet at registration.
    pub(crate) const NODE_ROLE: &str = "node.kubernetes.io/role";
    /// Legacy role label. The controller copies it from [`NODE_ROLE`] where it is missing.
    pub(crate) const LEGACY_NODE_ROLE: &str = "kubernetes.io/role";
    /// Name of the InstanceGroup of a node. Two groups of one name differ in [`NAMESPACE`].
    pub(crate) const INSTANCE_GROUP: &str = super::tag::INSTANCE_GROUP;
    /// Namespace of the InstanceGroup of a node.
    pub(crate) const NAMESPACE: &str = super::tag::NAMESPACE;
    /// ID of the machine image that the node was launched from.
    pub(crate) const IMAGE: &str = "instancemgr.keikoproj.io/image";
    /// Name of the managed node group of a node, set by EKS.
    pub(crate) const NODEGROUP: &str = "eks.amazonaws.com/nodegroup";
    /// [`IMAGE`] on a node of a managed node group, set by EKS.
    pub(crate) const NODEGROUP_IMAGE: &str = "eks.amazonaws.com/nodegroup-image";
    /// On a ClusterRole, "true": aggregates its permissions into the controller's role, for kinds of the crd strategy.
    pub(crate) const AGGREGATE_TO_STRATEGIES: &str = "instancemgr.keikoproj.io/aggregate-to-strategies";
}

/// Tags on AWS resources.
pub(crate) mod tag {
    /// First ownership tag: the name of the cluster.
    pub(crate) const CLUSTER_NAME: &str = "instancegroups.keikoproj.io/ClusterName";
    /// Second ownership tag: the name of the InstanceGroup.
    pub(crate) const INSTANCE_GROUP: &str = "instancegroups.keikoproj.io/InstanceGroup";
    /// Third ownership tag: the namespace of the InstanceGroup.
    pub(crate) const NAMESPACE: &str = "instancegroups.keikoproj.io/Namespace";
    /// Fourth tag, on IAM resources only: the cluster's region. IAM resources belong to no region.
    pub(crate) const REGION: &str = "instancegroups.keikoproj.io/Region";
    /// On an access entry: ID of the role that the entry was created for.
    pub(crate) const ROLE_ID: &str = "instancegroups.keikoproj.io/RoleId";
    /// On a scaling group: the processes that the deletion of its InstanceGroup suspended. A group that takes the scaling
    /// group over resumes them.
    pub(crate) const SUSPENDED_BY_DELETION: &str = "instancegroups.keikoproj.io/SuspendedByDeletion";
    /// On a scaling group: the process that the controller suspended because subnets leave. It outlives the status.
    pub(crate) const SUSPENDED_FOR_SUBNETS: &str = "instancegroups.keikoproj.io/SuspendedForSubnets";
    /// On an adopted node group or Fargate profile: the hash of the spec at its adoption. It outlives the status.
    pub(crate) const ADOPTED_HASH: &str = "instancegroups.keikoproj.io/AdoptedHash";
    /// Tags about the scaling group itself, which its instances do not get.
    pub(crate) const NOT_PROPAGATED: [&str; 2] = [SUSPENDED_BY_DELETION, SUSPENDED_FOR_SUBNETS];
    /// Name of the cluster, in the tag that other tools read.
    pub(crate) const KUBERNETES_CLUSTER: &str = "KubernetesCluster";
    /// Name that the AWS console shows.
    pub(crate) const NAME: &str = "Name";
    /// Prefix of the cluster autoscaler's tags.
    pub(crate) const CLUSTER_AUTOSCALER_PREFIX: &str = "k8s.io/cluster-autoscaler/";
}

/// Types of the entries in `status.conditions`.
pub(crate) mod condition {
    /// All desired nodes exist and are Ready.
    pub(crate) const NODES_READY: &str = "NodesReady";
    /// The group matches its spec.
    pub(crate) const READY: &str = "Ready";
    /// The controller is changing the group, or waits for something that needs no intervention.
    pub(crate) const RECONCILING: &str = "Reconciling";
    /// The group needs manual intervention; the message contains the remedy.
    pub(crate) const STALLED: &str = "Stalled";
    /// A lock holds a change of nodes; the message names the lock and the change. It is not a failure.
    pub(crate) const LOCKED: &str = "Locked";
    /// Whether the ConfigMap was applied, and which values of the tenant it overrode.
    pub(crate) const BOUNDARIES_APPLIED: &str = "BoundariesApplied";
    /// A rotation halted because replacement nodes do not become Ready.
    pub(crate) const ROTATION_HALTED: &str = "RotationHalted";
    /// A node cannot be drained; the message names the pod and the budget.
    pub(crate) const DRAIN_BLOCKED: &str = "DrainBlocked";
    /// A newer revision of the boundaries has not reached the group; the message gives the reason. It is not a failure.
    pub(crate) const ROLLOUT_PENDING: &str = "RolloutPending";
    /// Pods will block drains that a newer revision of the boundaries will start. The message names the owner of the
    /// pods, the budget and the remedy. It is not a failure.
    pub(crate) const DRAIN_FORECAST: &str = "DrainForecast";
    /// The controller adopted existing resources; the message lists differences from a new group.
    pub(crate) const ADOPTED: &str = "Adopted";

    /// A deletion leaves AWS resources behind; the message names them and says why.
    pub(crate) const RESOURCES_RETAINED: &str = "ResourcesRetained";

    /// Fields of the spec cannot be used; the message names each with the remedy, and what stays as it is in AWS.
    pub(crate) const FIELDS_REJECTED: &str = "FieldsRejected";

    /// Annotations below the controller's prefix have no effect; the message names each with the remedy.
    pub(crate) const ANNOTATIONS_IGNORED: &str = "AnnotationsIgnored";

    /// What the controller wrote repeatedly has no effect; the message names the field, both values, and who may write it.
    pub(crate) const WRITES_INEFFECTIVE: &str = "WritesIneffective";

    /// Reason of `RECONCILING` while AWS throttles the controller's calls.
    pub(crate) const AWS_THROTTLED: &str = "AWSThrottled";
    /// Reason of `RECONCILING` while AWS fails or does not answer.
    pub(crate) const AWS_UNAVAILABLE: &str = "AWSUnavailable";
    /// Reason of `RECONCILING` while AWS rejects the controller's credentials, or the controller has none.
    pub(crate) const AWS_CREDENTIALS_REJECTED: &str = "AWSCredentialsRejected";
    /// Reason of `RECONCILING` while the group cannot be read for another cause.
    pub(crate) const READ_FAILED: &str = "ReadFailed";
    /// Reason of `RECONCILING` after a reconcile of the group panicked.
    pub(crate) const INTERNAL_ERROR: &str = "InternalError";
    /// The reasons of `RECONCILING` that say why a pass did not reach the group.
    pub(crate) const READ_FAILURES: [&str; 5] =
        [AWS_THROTTLED, AWS_UNAVAILABLE, AWS_CREDENTIALS_REJECTED, READ_FAILED, INTERNAL_ERROR];

    /// The rollout of a BoundariesRevision was halted or aborted; the message gives the cause and the remedy.
    pub(crate) const HALTED: &str = "Halted";

    /// The conditions that report a problem while they are True.
    pub(crate) const PROBLEMS: [&str; 7] = [
        STALLED,
        ROTATION_HALTED,
        DRAIN_BLOCKED,
        RESOURCES_RETAINED,
        FIELDS_REJECTED,
        ANNOTATIONS_IGNORED,
        WRITES_INEFFECTIVE,
    ];

    /// The current name of a reason that was read from a status. Earlier releases wrote some reasons under another
    /// name, so every decision that compares a reason from a status must call this first.
    pub(crate) fn current_reason(reason: &str) -> &str {
        match reason {
            "TakenOver" => "ResourcesAdopted",
            "TakenBack" => "Aborted",
            "NotTagged" => TAGGING_DENIED,
            "NotOurs" => "OwnershipConflict",
            "ClaimedTwice" => "DuplicateProviderID",
            "BudgetRefused" => "EvictionBlocked",
            "NeedsCapacity" => "UnschedulablePods",
            "StrategyMissing" => "StrategyKindNotFound",
            "TenantValuesRefused" => "TenantValuesOverridden",
            "LastGoodInForce" => "UsingLastKnownGood",
            "NotForeseen" => "NotForecast",
            other => other,
        }
    }

    /// The current type of a condition that was read from a status. Earlier releases wrote some types under another
    /// name.
    pub(crate) fn current_type(name: &str) -> &str {
        match name {
            "DrainForeseen" => DRAIN_FORECAST,
            other => other,
        }
    }

    /// Reason of `ADOPTED` while ownership tags are missing because the controller may not set them.
    pub(crate) const TAGGING_DENIED: &str = "TaggingDenied";
}

/// Label values of `instance_manager_reconcile_fail_total`, and reasons of the matching conditions.
pub(crate) mod fail_reason {
    /// The group could not be read.
    pub(crate) const GET_REQUEST: &str = "GetRequest";
    /// The ConfigMap does not parse.
    pub(crate) const UNMARSHAL_DEFAULTS: &str = "UnmarshalDefaults";
    /// The ConfigMap could not be merged with the group.
    pub(crate) const APPLY_DEFAULTS: &str = "ApplyDefaults";
    /// The merged spec is not valid.
    pub(crate) const RESOURCE_VALIDATION: &str = "ResourceValidation";
    /// A step failed.
    pub(crate) const HANDLE_RECONCILE: &str = "HandleReconcile";
}
