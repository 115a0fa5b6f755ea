//! The names that other programs rely on: annotations, labels, tags, condition types and event reasons.

/// API group of `InstanceGroup`.
pub const GROUP: &str = "instancemgr.keikoproj.io";
/// API version of `InstanceGroup`.
pub const VERSION: &str = "v1alpha1";
/// Full name of the CustomResourceDefinition.
pub const CRD_NAME: &str = "instancegroups.instancemgr.keikoproj.io";
/// The finalizer that the controller sets, and the only one that it removes.
pub const FINALIZER: &str = "finalizer.instancegroups.keikoproj.io";
/// Name of the ConfigMap that holds boundaries, defaults, conditionals and policy.
pub const CONFIG_MAP: &str = "instance-manager";
/// Name of the ConfigMap, beside [`CONFIG_MAP`], that keeps the last good revision.
pub const LAST_KNOWN_GOOD_CONFIG_MAP: &str = "instance-manager-last-good";
/// Default of `--config-namespace`.
pub const DEFAULT_CONFIG_NAMESPACE: &str = "instance-manager";

/// Annotations; the object that carries each is named.
pub mod annotation {
    /// Namespace: "true" (any case) makes its groups skip boundaries and defaults.
    pub const CONFIG_EXCLUDED: &str = "instancemgr.keikoproj.io/config-excluded";
    /// Group, Namespace or ConfigMap: "true" holds cordon, drain and terminate.
    pub const LOCK_UPGRADES: &str = "instancemgr.keikoproj.io/lock-upgrades";
    /// Group: "k=v,k2=v2" replaces the role labels of its nodes.
    pub const DEFAULT_LABELS: &str = "instancemgr.keikoproj.io/default-labels";
    /// Group: the nodes' role does not get the CNI policy.
    pub const IRSA_ENABLED: &str = "instancemgr.keikoproj.io/irsa-enabled";
    /// Group: see [`crate::api::OsFamily`].
    pub const OS_FAMILY: &str = "instancemgr.keikoproj.io/os-family";
    /// Group: the scaling group gets the cluster autoscaler's tags.
    pub const CLUSTER_AUTOSCALER_ENABLED: &str = "instancemgr.keikoproj.io/cluster-autoscaler-enabled";
    /// Group: pods use other subnets than their node, so maxPods is computed.
    pub const CUSTOM_NETWORKING_ENABLED: &str = "instancemgr.keikoproj.io/custom-networking-enabled";
    /// Group: number of pods on the host network, for the computed maxPods (default 2).
    pub const CUSTOM_NETWORKING_HOST_PODS: &str = "instancemgr.keikoproj.io/custom-networking-host-pods";
    /// Group: the CNI assigns prefixes, for the computed maxPods.
    pub const CUSTOM_NETWORKING_PREFIX: &str = "instancemgr.keikoproj.io/custom-networking-prefix-assignment-enabled";
    /// Group: RFC 3339; nodes launched before it are outdated.
    pub const ROTATE_AT: &str = "instancemgr.keikoproj.io/rotate-at";
    /// Node: the record of a disruption under way.
    pub const DISRUPTION: &str = "instancemgr.keikoproj.io/disruption";
    /// Node: the record that its group put its instance into standby.
    pub const SURGE: &str = "instancemgr.keikoproj.io/surge";
    /// Strategy resource: the scaling group that it upgrades.
    pub const UPGRADE_SCOPE: &str = "instancemgr.keikoproj.io/upgrade-scope";
    /// Strategy resource: the writer.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// Value of [`MANAGED_BY`].
    pub const MANAGED_BY_VALUE: &str = "instance-manager";
}

/// Labels on nodes.
pub mod label {
    /// Name of the group, set by the kubelet at registration.
    pub const NODE_ROLE: &str = "node.kubernetes.io/role";
    /// The legacy role label, copied from [`NODE_ROLE`] where it is missing.
    pub const LEGACY_NODE_ROLE: &str = "kubernetes.io/role";
    /// normal, spot or mixed.
    pub const LIFECYCLE: &str = "instancemgr.keikoproj.io/lifecycle";
    /// The image that the node was made from.
    pub const IMAGE: &str = "instancemgr.keikoproj.io/image";
    /// On a ClusterRole, "true": its rights become the controller's, for kinds that the crd strategy submits.
    pub const AGGREGATE_TO_STRATEGIES: &str = "instancemgr.keikoproj.io/aggregate-to-strategies";
}

/// Tags on AWS resources.
pub mod tag {
    /// First mark of ownership: the cluster.
    pub const CLUSTER_NAME: &str = "instancegroups.keikoproj.io/ClusterName";
    /// Second mark of ownership: the group's name.
    pub const INSTANCE_GROUP: &str = "instancegroups.keikoproj.io/InstanceGroup";
    /// Third mark of ownership: the group's namespace.
    pub const NAMESPACE: &str = "instancegroups.keikoproj.io/Namespace";
    /// On an access entry: the id of the role that it was made for.
    pub const ROLE_ID: &str = "instancegroups.keikoproj.io/RoleId";
    /// The cluster, as other tools look for it.
    pub const KUBERNETES_CLUSTER: &str = "KubernetesCluster";
    /// The name that consoles show.
    pub const NAME: &str = "Name";
    /// Prefix of the cluster autoscaler's tags.
    pub const CLUSTER_AUTOSCALER_PREFIX: &str = "k8s.io/cluster-autoscaler/";
}

/// Types of the entries in `status.conditions`.
pub mod condition {
    /// Every wanted node is there and Ready.
    pub const NODES_READY: &str = "NodesReady";
    /// The group is converged.
    pub const READY: &str = "Ready";
    /// The controller is working on the group or waits for something that moves by itself.
    pub const RECONCILING: &str = "Reconciling";
    /// Nothing goes on until a person acts; the message holds the remedy.
    pub const STALLED: &str = "Stalled";
    /// Whether the ConfigMap was applied, and which of the tenant's values it refused.
    pub const BOUNDARIES_APPLIED: &str = "BoundariesApplied";
    /// A rotation stopped because its replacements do not become Ready.
    pub const ROTATION_HALTED: &str = "RotationHalted";
    /// A node cannot be drained; the message names pod and budget.
    pub const DRAIN_BLOCKED: &str = "DrainBlocked";
    /// The group was taken over; the message lists what differs from what would be made now.
    pub const ADOPTED: &str = "Adopted";
    /// The present name of a reason that was read from a status. Earlier releases wrote some reasons under another
    /// name, so every decision that compares a reason from a status must call this first.
    pub fn current_reason(reason: &str) -> &str {
        match reason {
            "TakenOver" => "ResourcesAdopted",
            "NotTagged" => TAGGING_DENIED,
            "NotOurs" => "OwnershipConflict",
            "ClaimedTwice" => "DuplicateProviderID",
            "BudgetRefused" => "EvictionBlocked",
            "NeedsCapacity" => "UnschedulablePods",
            "StrategyMissing" => "StrategyKindNotFound",
            "TenantValuesRefused" => "TenantValuesOverridden",
            "LastGoodInForce" => "UsingLastKnownGood",
            other => other,
        }
    }

    /// Reason of `ADOPTED` while tags that prove whose a thing is are missing, because the right to set them is.
    pub const TAGGING_DENIED: &str = "TaggingDenied";
}

/// Reasons of events on the group.
pub mod event {
    /// The group's resources were made.
    pub const CREATED: &str = "InstanceGroupCreated";
    /// The group's resources are gone.
    pub const DELETED: &str = "InstanceGroupDeleted";
    /// All nodes became Ready.
    pub const NODES_READY: &str = "InstanceGroupNodesReady";
    /// Some node is no longer Ready (Warning).
    pub const NODES_NOT_READY: &str = "InstanceGroupNodesNotReady";
    /// A rotation failed (Warning).
    pub const UPGRADE_FAILED: &str = "InstanceGroupUpgradeFailed";
    /// Consumed: a recommendation about spot instances.
    pub const SPOT_RECOMMENDATION_GIVEN: &str = "SpotRecommendationGiven";
}

/// Label values of `instance_manager_reconcile_fail_total`, and reasons of the matching conditions.
pub mod fail_reason {
    /// The group could not be read.
    pub const GET_REQUEST: &str = "GetRequest";
    /// The ConfigMap does not parse.
    pub const UNMARSHAL_DEFAULTS: &str = "UnmarshalDefaults";
    /// The ConfigMap could not be applied to the group.
    pub const APPLY_DEFAULTS: &str = "ApplyDefaults";
    /// The effective spec is not valid.
    pub const RESOURCE_VALIDATION: &str = "ResourceValidation";
    /// Anything that failed while acting.
    pub const HANDLE_RECONCILE: &str = "HandleReconcile";
}
