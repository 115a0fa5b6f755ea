//! Dry runs of EC2.

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types as sdk;

use super::convert::ec2_tag;
use super::convert::to_aws_error;
use crate::aws::{AwsError, AwsResult, DryRun, LaunchTemplate, Tag};

const SERVICE: &str = "EC2";
/// What an allowed dry run answers with, which is an error.
const DRY_RUN_ALLOWED: &str = "DryRunOperation";
/// The name that a launch template would get.
const PROBE_TEMPLATE_NAME: &str = "preflight";

/// Asks for one action; a launch template that would be made, and tags that would be put, are given `tags`.
pub(super) async fn send(
    client: &Client,
    action: DryRun,
    template: Option<&LaunchTemplate>,
    tags: &[Tag],
) -> AwsResult<()> {
    let id = template.map(|t| t.id.clone());
    let tags: Vec<_> = tags.iter().map(ec2_tag).collect();
    let data = || sdk::RequestLaunchTemplateData::builder().instance_type(sdk::InstanceType::M5Large).build();
    macro_rules! ask {
        ($request:expr) => {
            $request.dry_run(true).send().await.map(drop).map_err(to_aws_error(SERVICE, action.name()))
        };
    }
    let answer = match action {
        DryRun::DescribeImages => ask!(client.describe_images().owners("self")),
        DryRun::DescribeInstanceTypeOfferings => ask!(client.describe_instance_type_offerings()),
        DryRun::DescribeInstanceTypes => ask!(client.describe_instance_types()),
        DryRun::DescribeInstances => ask!(client.describe_instances()),
        DryRun::DescribeLaunchTemplateVersions => ask!(client.describe_launch_template_versions().versions("$Default")),
        DryRun::DescribeLaunchTemplates => ask!(client.describe_launch_templates()),
        DryRun::DescribeSecurityGroups => ask!(client.describe_security_groups()),
        DryRun::DescribeSubnets => ask!(client.describe_subnets()),
        DryRun::CreateLaunchTemplate => {
            let of = sdk::TagSpecification::builder().resource_type(sdk::ResourceType::LaunchTemplate);
            let request =
                client.create_launch_template().launch_template_name(PROBE_TEMPLATE_NAME).launch_template_data(data());
            ask!(request.tag_specifications(of.set_tags(Some(tags)).build()))
        }
        DryRun::CreateTags => ask!(client.create_tags().set_resources(id.map(|id| vec![id])).set_tags(Some(tags))),
        DryRun::CreateLaunchTemplateVersion => {
            ask!(client.create_launch_template_version().set_launch_template_id(id).launch_template_data(data()))
        }
        DryRun::DeleteLaunchTemplate => ask!(client.delete_launch_template().set_launch_template_id(id)),
        DryRun::DeleteLaunchTemplateVersions => {
            let newest = template.map(|t| t.latest_version.to_string());
            let request = client.delete_launch_template_versions().set_launch_template_id(id);
            ask!(request.set_versions(newest.map(|number| vec![number])))
        }
        DryRun::ModifyLaunchTemplate => {
            let default = template.map(|t| t.default_version.to_string());
            ask!(client.modify_launch_template().set_launch_template_id(id).set_default_version(default))
        }
    };
    match answer {
        Err(error) if error.code == DRY_RUN_ALLOWED => Ok(()),
        Err(error) => Err(error),
        Ok(()) => {
            Err(AwsError::no_response(SERVICE, action.name(), "InvalidResponse", "a dry run was not taken for one"))
        }
    }
}
