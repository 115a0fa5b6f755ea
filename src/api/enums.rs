//! Enumerations of the spec and status. Parsing ignores case, and an empty string means "not set".

/// Declares an enumeration with its exact spellings, and with the items in brackets that the program uses: `PATTERN` of
/// the CRD, `ALL` values, and `parse`, which ignores case.
macro_rules! string_enum {
    (@items [$($item:ident),*] $name:ident $values:tt) => {
        $(string_enum!(@$item $name $values);)*
    };
    (@PATTERN $name:ident { $($value:ident = $word:literal $(| $other:literal)*,)+ }) => {
        impl $name {
            /// Pattern for the CRD: any of the values in any case, or an empty string.
            pub(crate) const PATTERN: &'static str = concat!("(?i)^(", $("|", $word, $("|", $other,)*)+ ")$");
        }
    };
    (@ALL $name:ident { $($value:ident = $word:literal $(| $other:literal)*,)+ }) => {
        impl $name {
            /// Every value, in the order of declaration.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$value),+];
        }
    };
    (@parse $name:ident { $($value:ident = $word:literal $(| $other:literal)*,)+ }) => {
        impl $name {
            /// Parses a value in any case; `None` for an unknown or empty text.
            pub(crate) fn parse(text: &str) -> Option<Self> {
                $(if text.eq_ignore_ascii_case($word) $(|| text.eq_ignore_ascii_case($other))* { return Some(Self::$value); })+
                None
            }
        }
    };
    ($(#[$meta:meta])* $name:ident $items:tt { $($(#[$doc:meta])* $value:ident = $word:literal $(| $other:literal)*,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $value),+ }

        impl $name {
            /// The canonical spelling.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$value => $word),+ }
            }
        }

        string_enum!(@items $items $name { $($value = $word $(| $other)*,)+ });

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

string_enum! {
    /// `spec.provisioner`: what provides the nodes.
    ProvisionerKind [PATTERN, ALL, parse] {
        /// An Auto Scaling group that the controller manages.
        Eks = "eks",
        /// An EKS managed node group.
        EksManaged = "eks-managed",
        /// An EKS Fargate profile.
        EksFargate = "eks-fargate" | "fargate",
    }
}

string_enum! {
    /// `spec.strategy.type`: how nodes are replaced; empty means `rollingUpdate`.
    StrategyType [PATTERN, parse] {
        /// The controller drains and replaces nodes itself.
        RollingUpdate = "rollingUpdate",
        /// A custom resource of another controller replaces the nodes.
        Crd = "crd",
        /// AWS replaces the nodes.
        Managed = "managed",
    }
}

string_enum! {
    /// `spec.strategy.rollingUpdate.inPlace[]`: what changes on running nodes without a rotation.
    InPlaceField [PATTERN, parse] {
        /// Labels of the Node.
        Labels = "labels",
        /// Taints of the Node.
        Taints = "taints",
        /// Tags of the EC2 instance.
        Tags = "tags",
    }
}

string_enum! {
    /// `spec.eks.type`: the resource that instances launch from.
    ScalingConfigurationKind [PATTERN, parse] {
        /// A launch template.
        LaunchTemplate = "LaunchTemplate",
        /// A launch configuration.
        LaunchConfiguration = "LaunchConfiguration",
    }
}

string_enum! {
    /// `spec.eks-managed.configuration.capacityType`: the purchase option of the instances.
    CapacityType [PATTERN, parse] {
        /// On-Demand Instances.
        OnDemand = "ON_DEMAND",
        /// Spot Instances, which AWS may interrupt.
        Spot = "SPOT",
    }
}

string_enum! {
    /// `spec.eks-managed.configuration.taints[].effect`, in the spelling of the EKS API.
    NodegroupTaintEffect [PATTERN, parse] {
        /// No new pods are scheduled on the node.
        NoSchedule = "NO_SCHEDULE" | "NoSchedule",
        /// New pods are scheduled elsewhere if possible.
        PreferNoSchedule = "PREFER_NO_SCHEDULE" | "PreferNoSchedule",
        /// No new pods are scheduled, and running pods are evicted.
        NoExecute = "NO_EXECUTE" | "NoExecute",
    }
}

string_enum! {
    /// `spec.strategy.crd.concurrencyPolicy`; an unknown value means `forbid`.
    ConcurrencyPolicy [parse] {
        /// Create a resource even while others are active.
        Allow = "allow",
        /// Wait until no other resource is active.
        Forbid = "forbid",
        /// Delete active resources first.
        Replace = "replace",
    }
}

string_enum! {
    /// `userData[].stage`; entries with an unknown stage are ignored.
    UserDataStage [parse] {
        /// Runs before the node joins the cluster.
        PreBootstrap = "PreBootstrap",
        /// Runs after the node joined the cluster.
        PostBootstrap = "PostBootstrap",
        /// A NodeConfig document of Amazon Linux 2023.
        NodeConfigYaml = "NodeConfigYaml",
    }
}

string_enum! {
    /// The annotation `instancemgr.keikoproj.io/os-family`; an unknown value means `amazonlinux2`.
    OsFamily [ALL, parse] {
        /// Amazon Linux 2.
        AmazonLinux2 = "amazonlinux2",
        /// Amazon Linux 2023.
        AmazonLinux2023 = "amazonlinux2023",
        /// Bottlerocket.
        Bottlerocket = "bottlerocket",
        /// Windows Server.
        Windows = "windows",
    }
}

string_enum! {
    /// `lifecycleHooks[].lifecycle`: the transition at which a hook pauses an instance.
    LifecycleTransition [PATTERN, parse] {
        /// Before the instance enters service.
        Launch = "launch",
        /// Before the instance is terminated.
        Terminate = "terminate",
    }
}

string_enum! {
    /// `lifecycleHooks[].defaultResult`; an unknown value means `abandon`.
    DefaultResult [parse] {
        /// Auto Scaling terminates the instance.
        Abandon = "abandon",
        /// Auto Scaling continues the transition.
        Continue = "continue",
    }
}

string_enum! {
    /// `taints[].effect`, in the spelling of Kubernetes.
    TaintEffect [PATTERN] {
        /// No new pods are scheduled on the node.
        NoSchedule = "NoSchedule",
        /// New pods are scheduled elsewhere if possible.
        PreferNoSchedule = "PreferNoSchedule",
        /// No new pods are scheduled, and running pods are evicted.
        NoExecute = "NoExecute",
    }
}

string_enum! {
    /// `volumes[].mountOptions.fileSystem`.
    FileSystem [PATTERN] {
        /// XFS.
        Xfs = "xfs",
        /// ext4.
        Ext4 = "ext4",
    }
}

string_enum! {
    /// `placement.tenancy`.
    Tenancy [PATTERN] {
        /// Shared hardware.
        Default = "default",
        /// Hardware of a single AWS account.
        Dedicated = "dedicated",
        /// A Dedicated Host.
        Host = "host",
    }
}

string_enum! {
    /// `metadataOptions.httpEndpoint`.
    HttpEndpoint [PATTERN] {
        /// The metadata service is available.
        Enabled = "enabled",
        /// The metadata service is not available.
        Disabled = "disabled",
    }
}

string_enum! {
    /// `metadataOptions.httpTokens`.
    HttpTokens [PATTERN] {
        /// Requests without a session token are accepted (IMDSv1 and IMDSv2).
        Optional = "optional",
        /// Requests need a session token (IMDSv2).
        Required = "required",
    }
}

string_enum! {
    /// `mixedInstancesPolicy.strategy`: the Spot allocation strategy.
    SpotStrategy [PATTERN, ALL, parse] {
        /// Pools with the most available capacity.
        CapacityOptimized = "CapacityOptimized",
        /// Pools with the lowest price.
        LowestPrice = "LowestPrice",
        /// Pools with the lowest price among those with the most available capacity.
        PriceCapacityOptimized = "PriceCapacityOptimized",
        /// Pools with the most available capacity, in the order of the types where possible.
        CapacityOptimizedPrioritized = "CapacityOptimizedPrioritized",
    }
}

string_enum! {
    /// `mixedInstancesPolicy.onDemandAllocationStrategy`: how On-Demand instance types are chosen.
    OnDemandStrategy [PATTERN, parse] {
        /// In the order of the types.
        Prioritized = "Prioritized",
        /// The types with the lowest price.
        LowestPrice = "LowestPrice",
    }
}

string_enum! {
    /// `mixedInstancesPolicy.instancePool`: which similar instance types the controller adds.
    InstancePool [parse] {
        /// Types of the same family, generation, architecture and size.
        SubFamilyFlexible = "SubFamilyFlexible",
    }
}

string_enum! {
    /// `status.lifecycle`: the purchase option of the group's instances.
    Lifecycle [] {
        /// On-Demand Instances.
        Normal = "normal",
        /// Spot Instances.
        Spot = "spot",
        /// On-Demand and Spot Instances.
        Mixed = "mixed",
    }
}

string_enum! {
    /// `status.currentState`: the state of the group in one word.
    CurrentState [] {
        /// The controller has not planned the group yet.
        Init = "Init",
        /// A deletion is starting.
        InitDelete = "InitDelete",
        /// An update is starting.
        InitUpdate = "InitUpdate",
        /// The controller is creating the group's resources.
        InitCreate = "InitCreate",
        /// The controller is replacing nodes.
        InitUpgrade = "InitUpgrade",
        /// The controller is deleting the group's resources.
        Deleting = "Deleting",
        /// The group's resources are deleted.
        Deleted = "Deleted",
        /// The controller is updating resources in place, or waits for AWS or for nodes.
        ReconcileModifying = "ReconcileModifying",
        /// The last update is complete.
        ReconcileModified = "ReconcileModified",
        /// Nodes are outdated, and lock-upgrades blocks their replacement.
        Locked = "Locked",
        /// The group matches its spec.
        Ready = "Ready",
        /// The group needs manual intervention.
        Error = "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enum_values_parse_in_any_case_and_print_canonically() {
        assert_eq!(ProvisionerKind::parse("EKS-Fargate"), Some(ProvisionerKind::EksFargate));
        assert_eq!(ProvisionerKind::parse("fargate"), Some(ProvisionerKind::EksFargate));
        assert_eq!(StrategyType::parse("ROLLINGUPDATE").map(StrategyType::as_str), Some("rollingUpdate"));
        assert_eq!(StrategyType::parse(""), None);
        assert_eq!(CurrentState::InitUpgrade.to_string(), "InitUpgrade");
    }

    #[test]
    fn patterns_allow_the_empty_string() {
        assert_eq!(StrategyType::PATTERN, "(?i)^(|rollingUpdate|crd|managed)$");
    }
}
