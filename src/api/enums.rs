//! Closed sets of words. They are matched without regard to case, and an empty string means "not set".

/// Declares an enumeration with its exact spellings, a parser that ignores case, and the pattern that the CRD uses.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal $(| $other:literal)*),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vmeta])* $variant),+ }

        impl $name {
            /// Pattern for the CRD: any of the words in any case, or nothing.
            pub const PATTERN: &'static str = concat!("(?i)^(", $("|", $word, $("|", $other,)*)+ ")$");
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The canonical spelling.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// The value of a word in any case; `None` for an unknown or empty one.
            pub fn parse(text: &str) -> Option<Self> {
                $(if text.eq_ignore_ascii_case($word) $(|| text.eq_ignore_ascii_case($other))* { return Some(Self::$variant); })+
                None
            }
        }

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

words! {
    /// `spec.provisioner`: who makes the nodes.
    ProvisionerKind {
        /// A scaling group of our own.
        Eks = "eks",
        /// An EKS managed node group.
        EksManaged = "eks-managed",
        /// An EKS Fargate profile.
        EksFargate = "eks-fargate" | "fargate",
    }
}

words! {
    /// `spec.strategy.type`: how nodes are replaced; empty means `rollingUpdate`.
    StrategyType {
        /// The controller drains and replaces nodes itself.
        RollingUpdate = "rollingUpdate",
        /// A custom resource of another controller does it.
        Crd = "crd",
        /// AWS does it.
        Managed = "managed",
    }
}

words! {
    /// `spec.eks.type`: what the scaling group launches from.
    ScalingConfigurationKind {
        /// A launch template.
        LaunchTemplate = "LaunchTemplate",
        /// A launch configuration.
        LaunchConfiguration = "LaunchConfiguration",
    }
}

words! {
    /// `spec.eks-managed.configuration.capacityType`: how instances are bought.
    CapacityType {
        /// By the hour.
        OnDemand = "ON_DEMAND",
        /// Spare capacity, which AWS may take back.
        Spot = "SPOT",
    }
}

words! {
    /// `spec.eks-managed.configuration.taints[].effect`, as the EKS API spells it.
    NodegroupTaintEffect {
        /// New pods stay away.
        NoSchedule = "NO_SCHEDULE" | "NoSchedule",
        /// New pods stay away where they can.
        PreferNoSchedule = "PREFER_NO_SCHEDULE" | "PreferNoSchedule",
        /// Pods that are there have to leave as well.
        NoExecute = "NO_EXECUTE" | "NoExecute",
    }
}

words! {
    /// `spec.strategy.crd.concurrencyPolicy`; an unknown word means `forbid`.
    ConcurrencyPolicy {
        /// Submit beside active ones.
        Allow = "allow",
        /// Wait for active ones.
        Forbid = "forbid",
        /// Delete active ones first.
        Replace = "replace",
    }
}

words! {
    /// `userData[].stage`; an unknown stage is ignored.
    UserDataStage {
        /// Before the node joins.
        PreBootstrap = "PreBootstrap",
        /// After the node joined.
        PostBootstrap = "PostBootstrap",
        /// A NodeConfig document of Amazon Linux 2023.
        NodeConfigYaml = "NodeConfigYaml",
    }
}

words! {
    /// The annotation `instancemgr.keikoproj.io/os-family`; an unknown family means `amazonlinux2`.
    OsFamily {
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

words! {
    /// `lifecycleHooks[].lifecycle`: the transition at which a hook stops an instance.
    LifecycleTransition {
        /// Before it is in service.
        Launch = "launch",
        /// Before it is terminated.
        Terminate = "terminate",
    }
}

words! {
    /// `lifecycleHooks[].defaultResult`; an unknown word means `abandon`.
    DefaultResult {
        /// Give the instance up.
        Abandon = "abandon",
        /// Go on with it.
        Continue = "continue",
    }
}

words! {
    /// `taints[].effect`, in the spelling of Kubernetes.
    TaintEffect {
        /// New pods stay away.
        NoSchedule = "NoSchedule",
        /// New pods stay away if they can.
        PreferNoSchedule = "PreferNoSchedule",
        /// All pods leave.
        NoExecute = "NoExecute",
    }
}

words! {
    /// `volumes[].mountOptions.fileSystem`.
    FileSystem {
        /// XFS.
        Xfs = "xfs",
        /// ext4.
        Ext4 = "ext4",
    }
}

words! {
    /// `placement.tenancy`.
    Tenancy {
        /// Shared hardware.
        Default = "default",
        /// Hardware of one account.
        Dedicated = "dedicated",
        /// A dedicated host.
        Host = "host",
    }
}

words! {
    /// `metadataOptions.httpEndpoint`.
    HttpEndpoint {
        /// The metadata service answers.
        Enabled = "enabled",
        /// It does not.
        Disabled = "disabled",
    }
}

words! {
    /// `metadataOptions.httpTokens`.
    HttpTokens {
        /// Requests without a token are answered.
        Optional = "optional",
        /// Requests need a token.
        Required = "required",
    }
}

words! {
    /// `mixedInstancesPolicy.strategy`: how spot capacity is chosen.
    SpotStrategy {
        /// From the pools least likely to be interrupted.
        CapacityOptimized = "CapacityOptimized",
        /// From the cheapest pools.
        LowestPrice = "LowestPrice",
        /// From the cheapest of the pools that are least likely to be interrupted.
        PriceCapacityOptimized = "PriceCapacityOptimized",
        /// From the pools least likely to be interrupted, in the order of the types where it can.
        CapacityOptimizedPrioritized = "CapacityOptimizedPrioritized",
    }
}

words! {
    /// `mixedInstancesPolicy.onDemandAllocationStrategy`: how types are chosen for what is on demand.
    OnDemandStrategy {
        /// In the order of the types.
        Prioritized = "Prioritized",
        /// The cheapest.
        LowestPrice = "LowestPrice",
    }
}

words! {
    /// `mixedInstancesPolicy.instancePool`: which types are added by themselves.
    InstancePool {
        /// Of the same family, generation, architecture and size.
        SubFamilyFlexible = "SubFamilyFlexible",
    }
}

words! {
    /// `status.lifecycle`: how the group's instances are bought.
    Lifecycle {
        /// On demand.
        Normal = "normal",
        /// Spot.
        Spot = "spot",
        /// Some of each.
        Mixed = "mixed",
    }
}

words! {
    /// `status.currentState`: one word for where the group is.
    CurrentState {
        /// Seen, nothing decided yet.
        Init = "Init",
        /// A deletion begins.
        InitDelete = "InitDelete",
        /// An update begins.
        InitUpdate = "InitUpdate",
        /// Its resources are being made.
        InitCreate = "InitCreate",
        /// Nodes are being replaced.
        InitUpgrade = "InitUpgrade",
        /// Its resources are being removed.
        Deleting = "Deleting",
        /// Its resources are gone.
        Deleted = "Deleted",
        /// Changing in place, or waiting for AWS or nodes.
        ReconcileModifying = "ReconcileModifying",
        /// Changed.
        ReconcileModified = "ReconcileModified",
        /// Something is outdated and a lock holds it.
        Locked = "Locked",
        /// Converged.
        Ready = "Ready",
        /// Blocked until a person acts.
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
