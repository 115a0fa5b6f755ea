//! Conversion of launch template data to and from the AWS SDK.

use aws_sdk_ec2::types as sdk;

use super::convert::{ec2_tag, missing, owned_text, tags_from_ec2};
use crate::aws::{AwsResult, BlockDevice, MetadataOptions, Placement, TagSpecification, TemplateData, TemplateVersion};
use crate::util::redact::Redacted;

/// Template data for CreateLaunchTemplate and CreateLaunchTemplateVersion.
pub(super) fn request_data(data: &TemplateData) -> sdk::RequestLaunchTemplateData {
    let profile = sdk::LaunchTemplateIamInstanceProfileSpecificationRequest::builder().arn(&data.profile_arn).build();
    let user_data = data.user_data.expose();
    let security_groups = (!data.security_groups.is_empty()).then(|| data.security_groups.clone());
    sdk::RequestLaunchTemplateData::builder()
        .image_id(&data.image_id)
        .instance_type(sdk::InstanceType::from(data.instance_type.as_str()))
        .set_key_name(data.key_name.clone())
        .iam_instance_profile(profile)
        .set_security_group_ids(security_groups)
        .set_user_data((!user_data.is_empty()).then(|| user_data.to_string()))
        .set_block_device_mappings((!data.devices.is_empty()).then(|| data.devices.iter().map(device).collect()))
        .metadata_options(metadata(data.metadata.as_ref()))
        .set_placement(data.placement.as_ref().map(placement))
        .set_license_specifications((!data.licenses.is_empty()).then(|| data.licenses.iter().map(license).collect()))
        .set_instance_market_options(data.spot_price.as_deref().map(spot_options))
        .set_tag_specifications(
            (!data.tag_specifications.is_empty())
                .then(|| data.tag_specifications.iter().map(tag_specification).collect()),
        )
        .build()
}

fn device(device: &BlockDevice) -> sdk::LaunchTemplateBlockDeviceMappingRequest {
    let ebs = sdk::LaunchTemplateEbsBlockDeviceRequest::builder()
        .set_volume_type(device.volume_type.as_deref().map(sdk::VolumeType::from))
        .set_volume_size(device.size)
        .set_iops(device.iops)
        .set_throughput(device.throughput)
        .delete_on_termination(device.delete_on_termination)
        .set_encrypted(device.encrypted)
        .set_snapshot_id(device.snapshot_id.clone())
        .build();
    sdk::LaunchTemplateBlockDeviceMappingRequest::builder().device_name(&device.name).ebs(ebs).build()
}

/// Metadata options always disable tags in instance metadata, also if the spec has no other options: the account's default
/// decides what is omitted. With such tags EC2 would reject a launch, because the controller's tag keys contain a slash.
fn metadata(options: Option<&MetadataOptions>) -> sdk::LaunchTemplateInstanceMetadataOptionsRequest {
    sdk::LaunchTemplateInstanceMetadataOptionsRequest::builder()
        .set_http_endpoint(options.and_then(|o| o.http_endpoint.as_deref()).map(Into::into))
        .set_http_tokens(options.and_then(|o| o.http_tokens.as_deref()).map(Into::into))
        .set_http_put_response_hop_limit(options.and_then(|o| o.hop_limit))
        .instance_metadata_tags(sdk::LaunchTemplateInstanceMetadataTagsState::Disabled)
        .build()
}

fn placement(placement: &Placement) -> sdk::LaunchTemplatePlacementRequest {
    sdk::LaunchTemplatePlacementRequest::builder()
        .set_availability_zone(placement.availability_zone.clone())
        .set_tenancy(placement.tenancy.as_deref().map(sdk::Tenancy::from))
        .set_host_resource_group_arn(placement.host_resource_group.clone())
        .build()
}

fn license(arn: &String) -> sdk::LaunchTemplateLicenseConfigurationRequest {
    sdk::LaunchTemplateLicenseConfigurationRequest::builder().license_configuration_arn(arn).build()
}

fn spot_options(price: &str) -> sdk::LaunchTemplateInstanceMarketOptionsRequest {
    let price = Some(price.to_owned()).filter(|p| !p.is_empty());
    sdk::LaunchTemplateInstanceMarketOptionsRequest::builder()
        .market_type(sdk::MarketType::Spot)
        .spot_options(sdk::LaunchTemplateSpotMarketOptionsRequest::builder().set_max_price(price).build())
        .build()
}

fn spot_price_from_sdk(options: &sdk::LaunchTemplateInstanceMarketOptions) -> Option<String> {
    let spot = options.market_type() == Some(&sdk::MarketType::Spot);
    spot.then(|| owned_text(options.spot_options().and_then(|s| s.max_price())))
}

fn tag_specification(specification: &TagSpecification) -> sdk::LaunchTemplateTagSpecificationRequest {
    sdk::LaunchTemplateTagSpecificationRequest::builder()
        .resource_type(sdk::ResourceType::from(specification.resource_type.as_str()))
        .set_tags(Some(specification.tags.iter().map(ec2_tag).collect()))
        .build()
}

/// A version from AWS, with the fields that the controller sets.
///
/// # Errors
/// The response lacks the number or the content of the version.
pub(super) fn version(version: &sdk::LaunchTemplateVersion) -> AwsResult<TemplateVersion> {
    let missing = |field| missing("EC2", "DescribeLaunchTemplateVersions", field);
    Ok(TemplateVersion {
        template_id: owned_text(version.launch_template_id()),
        number: version.version_number().ok_or_else(|| missing("VersionNumber"))?,
        description: version.version_description().map(str::to_owned),
        data: version.launch_template_data().map(data_from_sdk).ok_or_else(|| missing("LaunchTemplateData"))?,
    })
}

fn data_from_sdk(data: &sdk::ResponseLaunchTemplateData) -> TemplateData {
    let profile = data.iam_instance_profile();
    let mut security_groups = data.security_group_ids().to_vec();
    security_groups.sort();
    let mut tag_specifications: Vec<_> = data.tag_specifications().iter().map(tag_specification_from_sdk).collect();
    tag_specifications.sort_by(|a, b| a.resource_type.cmp(&b.resource_type));
    let mut licenses: Vec<_> =
        data.license_specifications().iter().map(|l| owned_text(l.license_configuration_arn())).collect();
    licenses.sort();
    let mut devices: Vec<_> = data.block_device_mappings().iter().map(device_from_sdk).collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    TemplateData {
        image_id: owned_text(data.image_id()),
        instance_type: owned_text(data.instance_type().map(|t| t.as_str())),
        key_name: data.key_name().map(str::to_owned),
        // A version that another writer created may contain the name instead of the ARN.
        profile_arn: owned_text(profile.and_then(|p| p.arn().or(p.name()))),
        security_groups,
        user_data: Redacted::new(owned_text(data.user_data())),
        devices,
        metadata: data.metadata_options().map(metadata_from_sdk).filter(|m| *m != MetadataOptions::default()),
        licenses,
        placement: data.placement().map(|p| Placement {
            availability_zone: p.availability_zone().map(str::to_owned),
            tenancy: p.tenancy().map(|t| t.as_str().to_owned()),
            host_resource_group: p.host_resource_group_arn().map(str::to_owned),
        }),
        spot_price: data.instance_market_options().and_then(spot_price_from_sdk),
        tag_specifications,
    }
}

/// Tags in instance metadata are not compared, because the spec has no field for them.
fn metadata_from_sdk(options: &sdk::LaunchTemplateInstanceMetadataOptions) -> MetadataOptions {
    MetadataOptions {
        http_endpoint: options.http_endpoint().map(|v| v.as_str().to_owned()),
        http_tokens: options.http_tokens().map(|v| v.as_str().to_owned()),
        hop_limit: options.http_put_response_hop_limit(),
    }
}

fn device_from_sdk(mapping: &sdk::LaunchTemplateBlockDeviceMapping) -> BlockDevice {
    let ebs = mapping.ebs();
    BlockDevice {
        name: owned_text(mapping.device_name()),
        volume_type: ebs.and_then(|e| e.volume_type()).map(|t| t.as_str().to_owned()),
        size: ebs.and_then(|e| e.volume_size()),
        iops: ebs.and_then(|e| e.iops()),
        throughput: ebs.and_then(|e| e.throughput()),
        delete_on_termination: ebs.and_then(|e| e.delete_on_termination()).unwrap_or_default(),
        encrypted: ebs.and_then(|e| e.encrypted()),
        snapshot_id: ebs.and_then(|e| e.snapshot_id()).map(str::to_owned),
    }
}

fn tag_specification_from_sdk(found: &sdk::LaunchTemplateTagSpecification) -> TagSpecification {
    let mut tags = tags_from_ec2(found.tags());
    tags.sort();
    TagSpecification { resource_type: owned_text(found.resource_type().map(|t| t.as_str())), tags }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where an account's default enables such tags, no instance of the group would ever launch.
    #[test]
    fn tags_in_instance_metadata_are_disabled_whatever_the_spec_has() {
        let disabled = Some(&sdk::LaunchTemplateInstanceMetadataTagsState::Disabled);
        let required = MetadataOptions { http_tokens: Some("required".into()), ..MetadataOptions::default() };
        for metadata in [None, Some(required)] {
            let tokens = metadata.as_ref().and_then(|options| options.http_tokens.clone());
            let sent = request_data(&TemplateData { metadata, ..TemplateData::default() });
            let options = sent.metadata_options().expect("options");
            assert_eq!(options.instance_metadata_tags(), disabled);
            assert_eq!(options.http_tokens().map(|value| value.as_str().to_owned()), tokens);
            assert_eq!((options.http_endpoint(), options.http_put_response_hop_limit()), (None, None));
        }
    }

    /// A version of an earlier release lacks the setting. It stays current, and its nodes stay.
    #[test]
    fn metadata_tags_setting_is_not_drift() {
        assert_eq!(data_from_sdk(&sdk::ResponseLaunchTemplateData::builder().build()), TemplateData::default());
        let options = sdk::LaunchTemplateInstanceMetadataOptions::builder()
            .instance_metadata_tags(sdk::LaunchTemplateInstanceMetadataTagsState::Disabled);
        let data = |options| sdk::ResponseLaunchTemplateData::builder().metadata_options(options).build();
        assert_eq!(data_from_sdk(&data(options.clone().build())), TemplateData::default());
        let required = options.http_tokens(sdk::LaunchTemplateHttpTokensState::Required).build();
        let read = data_from_sdk(&data(required)).metadata.expect("options");
        assert_eq!(read, MetadataOptions { http_tokens: Some("required".into()), ..MetadataOptions::default() });
    }
}
