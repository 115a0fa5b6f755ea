//! Dry runs of EC2 actions.

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types as sdk;

use super::convert::{ec2_tag, to_aws_error};
use crate::aws::{AwsError, AwsResult, DryRun, LaunchTemplate, Tag};

const SERVICE: &str = "EC2";
/// The error code with which EC2 reports that the action is allowed.
const DRY_RUN_ALLOWED: &str = "DryRunOperation";
/// Name in the dry run of CreateLaunchTemplate. No such template is created.
const PROBE_TEMPLATE_NAME: &str = "preflight";

/// Sends one action as a dry run. `tags` are those of a template that CreateLaunchTemplate would create, or that
/// CreateTags would set.
pub(super) async fn send(
    client: &Client,
    action: DryRun,
    template: Option<&LaunchTemplate>,
    tags: &[Tag],
) -> AwsResult<()> {
    let id = template.map(|t| t.id.clone());
    let tags: Vec<_> = tags.iter().map(ec2_tag).collect();
    let data = || sdk::RequestLaunchTemplateData::builder().instance_type(sdk::InstanceType::M5Large).build();
    macro_rules! dry_run {
        ($request:expr) => {
            $request.dry_run(true).send().await.map(drop).map_err(to_aws_error(SERVICE, action.name()))
        };
    }
    let result = match action {
        DryRun::DescribeImages => dry_run!(client.describe_images().owners("self")),
        DryRun::DescribeInstanceTypeOfferings => dry_run!(client.describe_instance_type_offerings()),
        DryRun::DescribeInstanceTypes => dry_run!(client.describe_instance_types()),
        DryRun::DescribeInstances => dry_run!(client.describe_instances()),
        DryRun::DescribeLaunchTemplateVersions => {
            dry_run!(client.describe_launch_template_versions().versions("$Default"))
        }
        DryRun::DescribeLaunchTemplates => dry_run!(client.describe_launch_templates()),
        DryRun::DescribeSecurityGroups => dry_run!(client.describe_security_groups()),
        DryRun::DescribeSubnets => dry_run!(client.describe_subnets()),
        DryRun::CreateLaunchTemplate => {
            let specification = sdk::TagSpecification::builder().resource_type(sdk::ResourceType::LaunchTemplate);
            let request =
                client.create_launch_template().launch_template_name(PROBE_TEMPLATE_NAME).launch_template_data(data());
            dry_run!(request.tag_specifications(specification.set_tags(Some(tags)).build()))
        }
        DryRun::CreateTags => dry_run!(client.create_tags().set_resources(id.map(|id| vec![id])).set_tags(Some(tags))),
        DryRun::CreateLaunchTemplateVersion => {
            dry_run!(client.create_launch_template_version().set_launch_template_id(id).launch_template_data(data()))
        }
        DryRun::DeleteLaunchTemplate => dry_run!(client.delete_launch_template().set_launch_template_id(id)),
        DryRun::DeleteLaunchTemplateVersions => {
            let latest = template.map(|t| t.latest_version.to_string());
            let request = client.delete_launch_template_versions().set_launch_template_id(id);
            dry_run!(request.set_versions(latest.map(|number| vec![number])))
        }
    };
    match result {
        Err(error) if error.code == DRY_RUN_ALLOWED => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(AwsError::no_response(
            SERVICE,
            action.name(),
            "InvalidResponse",
            "EC2 did not treat the request as a dry run",
        )),
    }
}
