//! EC2 actions that support `DryRun`, which checks a permission without performing the action.

/// An EC2 action that the preflight check sends with `DryRun` (Amazon EC2 API Reference, "Common query parameters").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DryRun {
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
}

impl DryRun {
    /// All such actions of the controller. RunInstances is not among them: Auto Scaling calls it.
    pub(crate) const ALL: [DryRun; 13] = [
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
    ];

    /// The name of the API operation.
    pub(crate) fn name(self) -> &'static str {
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
        }
    }

    /// The launch template that the request must name.
    pub(crate) fn target(self) -> DryRunTarget {
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
            | DryRun::DeleteLaunchTemplateVersions => DryRunTarget::Tagged,
        }
    }
}

/// The launch template that a dry run needs. EC2 looks up the template before it checks the permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DryRunTarget {
    /// No existing template.
    Nothing,
    /// Any template of a group.
    Any,
    /// A template with the cluster's tag, because the IAM policy requires that tag.
    Tagged,
}
