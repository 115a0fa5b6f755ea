//! The volume of a group whose spec lists none. Pure.
//!
//! It is 32 GiB at `/dev/xvda`, from which the images of Amazon Linux boot. Other images boot from another device, where
//! the volume would be an unused disk. A group whose version has the volume at `/dev/xvda` keeps it until another change
//! creates a version, so that no node is replaced for it. No version is created while the controller may not read such
//! an image: the group would keep the usual volume.

use super::launch_checks::IMAGE;
use crate::api::spec_error::SpecError;
use crate::api::{DefaultVolume, InstanceGroupStatus};
use crate::aws::Image;
use crate::plan::StalledReason;
use crate::provisioner::eks::desired::DesiredSpec;
use crate::provisioner::eks::resolve::ResolvedGroup;
use crate::provisioner::eks::user_data::OsFamily;

/// Where Bottlerocket keeps images, logs and the storage of pods; the root device has only the operating system
/// (bottlerocket-os/bottlerocket, README, "Default Volumes").
const BOTTLEROCKET_DATA: &str = "/dev/xvdb";

/// The default volume on record for the image of a group.
pub(crate) fn recorded<'s>(resolved: &ResolvedGroup, status: &'s InstanceGroupStatus) -> Option<&'s DefaultVolume> {
    let recorded = status.template.as_ref()?.default_volume.as_ref()?;
    (recorded.image == resolved.template_data.image_id).then_some(recorded)
}

/// Whether the status records a version with the content of `resolved`, or its adoption.
pub(crate) fn has_recorded_content(resolved: &ResolvedGroup, status: &InstanceGroupStatus) -> bool {
    let hashes = status.template.iter().flat_map(|t| [&t.hash, &t.adopted_hash]);
    hashes.flatten().any(|hash| *hash == resolved.fingerprint.hash)
}

/// The default volume for an image; `None` when it is the usual one, or EC2 does not return the root device.
pub(crate) fn of_image(desired: &DesiredSpec, image: &Image) -> Option<DefaultVolume> {
    let usual = desired.block_devices.first().filter(|_| desired.has_default_volume)?;
    let is_data = |name: &&String| desired.os_family == OsFamily::Bottlerocket && *name == BOTTLEROCKET_DATA;
    let device = image.device_names.iter().find(is_data).unwrap_or(&image.root_device);
    if device.is_empty() {
        return None;
    }
    let size = usual.size?.max(image.volume_sizes.get(device).copied().unwrap_or_default());
    let volume = DefaultVolume { image: image.id.clone(), device: device.clone(), size };
    (volume.device != usual.name || Some(volume.size) != usual.size).then_some(volume)
}

/// The error of an image that decides about the default volume, and that the controller may not read.
pub(crate) fn unreadable_image(resolved: &ResolvedGroup) -> SpecError {
    let rule = "cannot be read, so the device of the default volume is not known";
    let remedy = "allow the controller's IAM role to call ec2:DescribeImages, or list volumes";
    SpecError::invalid(IMAGE, &resolved.template_data.image_id, rule, remedy)
        .with_reason(StalledReason::MissingPermission)
}

/// Gives the default volume its device and size.
pub(crate) fn set(desired: &mut DesiredSpec, volume: &DefaultVolume) {
    for device in desired.block_devices.iter_mut().filter(|_| desired.has_default_volume) {
        device.name.clone_from(&volume.device);
        device.size = Some(volume.size);
    }
    desired.default_volume = Some(volume.clone());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{InstanceGroup, InstanceGroupSpec, decode_spec, group_id};
    use crate::aws::samples::{cluster, network_object};
    use crate::provisioner::eks::desired::parse;
    use crate::provisioner::eks::references::References;
    use crate::provisioner::eks::resolve::resolve;
    use crate::provisioner::name_form::NameForm;

    fn image(root: &str, devices: &[(&str, i32)]) -> Image {
        Image {
            id: "ami-1".into(),
            root_device: root.into(),
            device_names: devices.iter().map(|(name, _)| (*name).to_owned()).collect(),
            volume_sizes: devices.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect(),
            ..Image::default()
        }
    }

    fn desired(os_family: OsFamily, configuration: &str) -> DesiredSpec {
        let spec = format!(
            "eks: {{minSize: 1, maxSize: 1, configuration: {{clusterName: demo, image: ami-00000001, instanceType: m5.large, subnets: [subnet-1], securityGroups: [sg-1], {configuration}}}}}"
        );
        let spec = decode_spec(&serde_yaml::from_str(&spec).expect("YAML")).expect("a spec");
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        group.metadata.namespace = Some("team".into());
        let parsed = parse(&group_id(&group), &Default::default(), &spec);
        DesiredSpec { os_family, ..parsed.expect("a group") }
    }

    /// A group keeps its version when the controller has another default, and its image is not read again.
    #[test]
    fn recorded_content_and_volume_are_kept() {
        let mut references = References::default();
        (references.subnets, references.security_groups) =
            (vec![network_object("subnet-1")], vec![network_object("sg-1")]);
        references.cluster = Some(cluster("demo"));
        let resolved = |desired: DesiredSpec| resolve(desired, &references, NameForm::Plain).expect("a group");
        let mut windows = desired(OsFamily::Windows, "");
        let usual = resolved(windows.clone());
        let status = |template: serde_json::Value| -> InstanceGroupStatus {
            serde_json::from_value(serde_json::json!({ "template": template })).expect("a status")
        };
        for recorded in ["hash", "adoptedHash"] {
            let of_earlier_release = status(serde_json::json!({ recorded: usual.fingerprint.hash }));
            assert!(has_recorded_content(&usual, &of_earlier_release));
        }
        let volume = DefaultVolume { image: "ami-00000001".into(), device: "/dev/sda1".into(), size: 50 };
        set(&mut windows, &volume);
        let corrected = resolved(windows);
        assert_ne!(usual.fingerprint.hash, corrected.fingerprint.hash);
        assert_eq!(corrected.template_data.devices[0].name, "/dev/sda1");
        let made = status(serde_json::json!({ "hash": corrected.fingerprint.hash, "defaultVolume": volume }));
        assert!(!has_recorded_content(&usual, &made));
        assert_eq!(recorded(&usual, &made), Some(&volume));
        let other_image = status(serde_json::json!({
            "hash": corrected.fingerprint.hash,
            "defaultVolume": DefaultVolume { image: "ami-00000002".into(), ..volume },
        }));
        assert_eq!(recorded(&usual, &other_image), None, "the device of another image");
    }

    #[test]
    fn default_volume_follows_the_image() {
        let of =
            |family, image: &Image| of_image(&desired(family, ""), image).map(|volume| (volume.device, volume.size));
        let linux = image("/dev/xvda", &[("/dev/xvda", 20)]);
        assert_eq!(of(OsFamily::AmazonLinux2023, &linux), None);
        let large = image("/dev/xvda", &[("/dev/xvda", 40)]);
        assert_eq!(of(OsFamily::AmazonLinux2, &large), Some(("/dev/xvda".into(), 40)), "EC2 refuses a smaller volume");
        let windows = image("/dev/sda1", &[("/dev/sda1", 50)]);
        assert_eq!(of(OsFamily::Windows, &windows), Some(("/dev/sda1".into(), 50)));
        let bottlerocket = image("/dev/xvda", &[("/dev/xvda", 2), ("/dev/xvdb", 20)]);
        assert_eq!(of(OsFamily::Bottlerocket, &bottlerocket), Some(("/dev/xvdb".into(), 32)));
        assert_eq!(of(OsFamily::Windows, &image("", &[])), None, "EC2 does not return the root device");
        let listed = desired(OsFamily::Windows, "volumes: [{name: /dev/xvda, size: 60, type: gp3}]");
        assert_eq!(of_image(&listed, &windows), None, "the spec lists volumes");
    }
}
