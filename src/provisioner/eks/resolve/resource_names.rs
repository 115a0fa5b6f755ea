//! The names and ARNs of the resources of one group.

use super::super::desired::DesiredSpec;
use super::super::names::GroupNames;
use crate::provisioner::GroupId;
use crate::provisioner::name_form::NameForm;

/// The names of the AWS resources that the controller creates for one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceNames {
    /// Name of the scaling group.
    pub scaling_group: String,
    /// Name of both the IAM role and its instance profile.
    pub role: String,
    /// Name of the launch template.
    pub template: String,
}

impl ResourceNames {
    /// Derives the names of a group in a region.
    pub(crate) fn derive(desired: &DesiredSpec, form: NameForm, region: &str) -> Self {
        let GroupId { namespace, name, created_at, .. } = &desired.id;
        let group = GroupNames::new(&desired.cluster, namespace, name);
        ResourceNames {
            scaling_group: group.scaling_group_in(form, region),
            role: group.role_in(form, region),
            template: group.launch_template_in(*created_at, form, region),
        }
    }

    /// All derived names of the group.
    pub(crate) fn all(&self) -> [&str; 3] {
        [&self.scaling_group, &self.role, &self.template]
    }
}

/// Partition, region and account of a cluster's ARN.
pub(super) struct AccountInfo<'a> {
    pub(super) partition: &'a str,
    pub(super) region: &'a str,
    account_id: &'a str,
}

impl<'a> AccountInfo<'a> {
    pub(super) fn from_arn(arn: &'a str) -> Self {
        let part = |n| arn.split(':').nth(n).unwrap_or_default();
        AccountInfo { partition: part(1), region: part(3), account_id: part(4) }
    }

    pub(super) fn iam_arn(&self, kind: &str, name: &str) -> String {
        format!("arn:{}:iam::{}:{kind}/{name}", self.partition, self.account_id)
    }
}
