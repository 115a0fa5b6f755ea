//! EC2's actions that can be asked for without being done.

/// An action that takes `DryRun`, which checks the right and changes nothing (Amazon EC2 API Reference, "Common query
/// parameters").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the API's own name")]
pub enum DryRun {
    DescribeImages,
    DescribeInstanceTypeOfferings,
    DescribeInstanceTypes,
    DescribeInstances,
    DescribeLaunchTemplateVersions,
    DescribeLaunchTemplates,
    DescribeSecurityGroups,
    DescribeSubnets,
    CreateLaunchTemplate,
    CreateTags,
    CreateLaunchTemplateVersion,
    DeleteLaunchTemplate,
    DeleteLaunchTemplateVersions,
    ModifyLaunchTemplate,
}

impl DryRun {
    /// All that the controller calls, beside RunInstances, which is Auto Scaling's call.
    pub const ALL: [DryRun; 14] = [
        DryRun::DescribeImages,
        DryRun::DescribeInstanceTypeOfferings,
        DryRun::DescribeInstanceTypes,
        DryRun::DescribeInstances,
        DryRun::DescribeLaunchTemplateVersions,
        DryRun::DescribeLaunchTemplates,
        DryRun::DescribeSecurityGroups,
        DryRun::DescribeSubnets,
        DryRun::CreateLaunchTemplate,
        DryRun::CreateTags,
        DryRun::CreateLaunchTemplateVersion,
        DryRun::DeleteLaunchTemplate,
        DryRun::DeleteLaunchTemplateVersions,
        DryRun::ModifyLaunchTemplate,
    ];

    /// The API operation.
    pub fn name(self) -> &'static str {
        match self {
            DryRun::DescribeImages => "DescribeImages",
            DryRun::DescribeInstanceTypeOfferings => "DescribeInstanceTypeOfferings",
            DryRun::DescribeInstanceTypes => "DescribeInstanceTypes",
            DryRun::DescribeInstances => "DescribeInstances",
            DryRun::DescribeLaunchTemplateVersions => "DescribeLaunchTemplateVersions",
            DryRun::DescribeLaunchTemplates => "DescribeLaunchTemplates",
            DryRun::DescribeSecurityGroups => "DescribeSecurityGroups",
            DryRun::DescribeSubnets => "DescribeSubnets",
            DryRun::CreateLaunchTemplate => "CreateLaunchTemplate",
            DryRun::CreateTags => "CreateTags",
            DryRun::CreateLaunchTemplateVersion => "CreateLaunchTemplateVersion",
            DryRun::DeleteLaunchTemplate => "DeleteLaunchTemplate",
            DryRun::DeleteLaunchTemplateVersions => "DeleteLaunchTemplateVersions",
            DryRun::ModifyLaunchTemplate => "ModifyLaunchTemplate",
        }
    }

    /// Which launch template it has to name.
    pub fn target(self) -> DryRunTarget {
        match self {
            DryRun::DescribeImages
            | DryRun::DescribeInstanceTypeOfferings
            | DryRun::DescribeInstanceTypes
            | DryRun::DescribeInstances
            | DryRun::DescribeLaunchTemplateVersions
            | DryRun::DescribeLaunchTemplates
            | DryRun::DescribeSecurityGroups
            | DryRun::DescribeSubnets
            | DryRun::CreateLaunchTemplate => DryRunTarget::Nothing,
            DryRun::CreateTags => DryRunTarget::Any,
            DryRun::CreateLaunchTemplateVersion
            | DryRun::DeleteLaunchTemplate
            | DryRun::DeleteLaunchTemplateVersions
            | DryRun::ModifyLaunchTemplate => DryRunTarget::Tagged,
        }
    }
}

/// Which launch template a dry run is about: EC2 looks for it before it judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRunTarget {
    /// None that is there.
    Nothing,
    /// Any of a group's.
    Any,
    /// One that carries the cluster's tag.
    Tagged,
}
