//! Conversion of launch configurations to the data of launch templates.

use aws_sdk_autoscaling::types as sdk;

use super::convert::owned_text;
use crate::aws::{BlockDevice, LaunchConfiguration, MetadataOptions, Placement, TemplateData};
use crate::util::redact::Redacted;

/// A launch configuration from AWS. Fields that launch templates do not have are dropped.
pub(super) fn from_sdk(found: &sdk::LaunchConfiguration) -> LaunchConfiguration {
    let non_empty = |value: Option<&str>| value.filter(|v| !v.is_empty()).map(str::to_owned);
    let mut security_groups = found.security_groups().to_vec();
    security_groups.sort();
    let mut devices: Vec<_> = found.block_device_mappings().iter().map(device).collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    let data = TemplateData {
        image_id: owned_text(found.image_id()),
        instance_type: owned_text(found.instance_type()),
        key_name: non_empty(found.key_name()),
        profile_arn: owned_text(found.iam_instance_profile()),
        security_groups,
        user_data: Redacted::new(owned_text(found.user_data())),
        devices,
        metadata: found.metadata_options().map(|m| MetadataOptions {
            http_endpoint: m.http_endpoint().map(|v| v.as_str().to_owned()),
            http_tokens: m.http_tokens().map(|v| v.as_str().to_owned()),
            hop_limit: m.http_put_response_hop_limit(),
        }),
        placement: non_empty(found.placement_tenancy())
            .map(|tenancy| Placement { tenancy: Some(tenancy), ..Placement::default() }),
        spot_price: non_empty(found.spot_price()),
        ..TemplateData::default()
    };
    LaunchConfiguration { name: owned_text(found.launch_configuration_name()), data }
}

fn device(mapping: &sdk::BlockDeviceMapping) -> BlockDevice {
    let ebs = mapping.ebs();
    BlockDevice {
        name: owned_text(mapping.device_name()),
        volume_type: ebs.and_then(|e| e.volume_type()).map(str::to_owned),
        size: ebs.and_then(|e| e.volume_size()),
        iops: ebs.and_then(|e| e.iops()),
        throughput: ebs.and_then(|e| e.throughput()),
        delete_on_termination: ebs.and_then(|e| e.delete_on_termination()).unwrap_or(true),
        encrypted: ebs.and_then(|e| e.encrypted()),
        snapshot_id: ebs.and_then(|e| e.snapshot_id()).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launch_configuration_maps_to_template_data() {
        let ebs = sdk::Ebs::builder().volume_type("gp2").volume_size(32).delete_on_termination(true).build();
        let mapping = sdk::BlockDeviceMapping::builder().device_name("/dev/xvda").ebs(ebs).build();
        let found = sdk::LaunchConfiguration::builder()
            .launch_configuration_name("c-n-g-20260101000000")
            .image_id("ami-1")
            .instance_type("m5.large")
            .key_name("")
            .iam_instance_profile("arn:aws:iam::1:instance-profile/c-n-g")
            .security_groups("sg-2")
            .security_groups("sg-1")
            .block_device_mappings(mapping)
            .build();
        let LaunchConfiguration { name, data } = from_sdk(&found);
        assert_eq!((name.as_str(), data.image_id.as_str(), data.key_name), ("c-n-g-20260101000000", "ami-1", None));
        assert_eq!(data.security_groups, ["sg-1", "sg-2"]);
        assert_eq!((data.devices[0].size, data.placement), (Some(32), None));
    }
}
