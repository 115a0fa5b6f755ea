//! Checks that find launch failures before a new launch template version is created.
//!
//! Only a group that needs another version is checked. An up-to-date group is not blocked when its image is deregistered.

use crate::api::InstanceGroupStatus;
use crate::api::spec_error::SpecError;
use crate::aws::{BlockDevice, Image, InstanceType};
use crate::plan::StalledReason;
use crate::provisioner::eks::ipv6;
use crate::provisioner::eks::launch_configuration;
use crate::provisioner::eks::launch_template::pin_state::{PinState, pin_state};
use crate::provisioner::eks::observed::ObservedState;
use crate::provisioner::eks::resolve::{ResolvedGroup, unknown_type};
use crate::provisioner::eks::user_data::OsFamily;
use crate::util::lookup::Lookup;

/// What AWS returns about the objects that a version refers to. Without permission to
/// read them, they are not queried.
#[derive(Clone, Debug, Default)]
pub struct LaunchFacts {
    /// The image; absent when this account may use no image with that id.
    pub image: Lookup<Image>,
    /// The instance type; absent when the region has no type with that name.
    pub instance_type: Lookup<InstanceType>,
    /// Whether the group launches this image already, so its platform is known to work.
    pub is_launched_now: bool,
}

/// Whether the group needs a version that it does not launch yet.
pub fn needs_launch_checks(resolved: &ResolvedGroup, state: &ObservedState, status: &InstanceGroupStatus) -> bool {
    let Some(group) = &state.scaling_group else { return true };
    match (&group.template, launch_configuration::current_name(group)) {
        (Some(pin), _) => !matches!(pin_state(resolved, state, status, pin), PinState::Current { .. }),
        (None, Some(name)) => !launch_configuration::configuration_drift(resolved, state, status, name).is_empty(),
        (None, None) => false,
    }
}

/// Returns all errors at once, so that the user can fix them together.
pub fn spec_errors(resolved: &ResolvedGroup, facts: &LaunchFacts) -> Vec<SpecError> {
    let mut errors = resolved.ipv6_problems.clone();
    let image = facts.image.as_present();
    if facts.image == Lookup::Absent {
        let rule = "is not an available AMI of this region that this account may launch";
        let remedy = "correct it, or share the AMI with this account";
        let problem = SpecError::invalid(IMAGE, &resolved.template_data.image_id, rule, remedy);
        errors.push(problem.with_reason(StalledReason::ImageNotFound));
    }
    match &facts.instance_type {
        Lookup::Absent => errors.push(unknown_type(&resolved.desired)),
        Lookup::Present(kind) => {
            errors.extend(image.and_then(|image| architecture(resolved, image, kind)));
            if resolved.is_ipv6 && resolved.desired.mixed_instances.is_none() {
                errors.extend(ipv6::type_problem(INSTANCE_TYPE, kind));
            }
        }
        Lookup::NotQueried => {}
    }
    errors.extend(image.filter(|_| !facts.is_launched_now).and_then(|image| platform(resolved, image)));
    for (i, device) in resolved.template_data.devices.iter().enumerate() {
        volume(&mut errors, i, device, image);
    }
    errors.extend(arns(resolved));
    errors.extend(resolved.desired.stages.iter().enumerate().filter_map(|(i, stage)| {
        let remedy = "encode it again, or write it as plain text";
        stage
            .is_truncated_base64()
            .then(|| SpecError::invalid(&stage.field_path(i), "", "looks like base64 but is not valid base64", remedy))
    }));
    errors
}

/// The field of the image.
pub(crate) const IMAGE: &str = "spec.eks.configuration.image";
/// The field of the instance type.
pub(crate) const INSTANCE_TYPE: &str = "spec.eks.configuration.instanceType";

fn architecture(resolved: &ResolvedGroup, image: &Image, kind: &InstanceType) -> Option<SpecError> {
    if image.architecture.is_empty() || kind.architectures.contains(&image.architecture) {
        return None;
    }
    let rule =
        format!("is for {}, but {} supports {}", image.architecture, kind.name, kind.architectures.join(" and "));
    let remedy = "use an AMI of the instance type's architecture, or another instanceType";
    Some(SpecError::invalid(IMAGE, &resolved.template_data.image_id, rule, remedy))
}

/// The user data of one family does not start a node of another. An image that Amazon does not own may be of any
/// family, so only Windows is known of it.
fn platform(resolved: &ResolvedGroup, image: &Image) -> Option<SpecError> {
    let family = resolved.desired.os_family;
    let is = if image.is_windows == (family == OsFamily::Windows) {
        let name = image.amazon_name.as_ref().filter(|_| !image.is_windows)?;
        let found = OsFamily::of_amazon_image(name).filter(|found| *found != family)?;
        // Both run shell scripts, and a script of the tenant may let the node join.
        let is_amazon_linux = |family| matches!(family, OsFamily::AmazonLinux2 | OsFamily::AmazonLinux2023);
        if is_amazon_linux(family) && is_amazon_linux(found) && !resolved.desired.stages.is_empty() {
            return None;
        }
        format!("{name}, Amazon's image of {found}")
    } else if image.is_windows {
        "a Windows image".to_owned()
    } else {
        "not a Windows image".to_owned()
    };
    let rule = format!("is {is}, but the group's os-family is {family}");
    let remedy = "use an AMI of that family, or correct the annotation instancemgr.keikoproj.io/os-family";
    Some(SpecError::invalid(IMAGE, &resolved.template_data.image_id, rule, remedy))
}

/// ARNs must be of the required kind. EC2 accepts any text in a launch template, and then fails to launch instances.
fn arns(resolved: &ResolvedGroup) -> Vec<SpecError> {
    let desired = &resolved.desired;
    let group = desired.placement.iter().flat_map(|p| &p.host_resource_group);
    let group = group.map(|arn| ("placement.hostResourceGroupArn".to_owned(), arn, "resource-groups", "group/"));
    let license = |(i, arn)| (format!("licenseSpecifications[{i}]"), arn, "license-manager", "license-configuration");
    let licenses = desired.licenses.iter().enumerate().map(license);
    let wrong = licenses.chain(group).filter(|(_, arn, service, kind)| {
        let parts: Vec<_> = arn.splitn(6, ':').collect();
        !matches!(parts[..], ["arn", partition, of, _, _, name]
            if partition.starts_with("aws") && of == *service && name.starts_with(kind))
    });
    let problem = |(field, arn, service, kind): (String, &String, &str, &str)| {
        let remedy = format!("use an ARN such as arn:aws:{service}:us-west-2:123456789012:{kind}...");
        SpecError::invalid(
            &format!("spec.eks.configuration.{field}"),
            arn,
            "is not an ARN of the required kind",
            remedy,
        )
    };
    wrong.map(problem).collect()
}

/// The limits of the Amazon EBS User Guide, "Amazon EBS volume types". Only lower limits: AWS raises upper ones.
fn volume(errors: &mut Vec<SpecError>, i: usize, device: &BlockDevice, image: Option<&Image>) {
    let mut wrong = |field: &str, value: Option<i32>, rule: &str, remedy: &str| {
        let value = value.map(|n| n.to_string()).unwrap_or_default();
        let path = format!("spec.eks.configuration.volumes[{i}].{field}");
        errors.push(SpecError::invalid(&path, value, rule.to_owned(), remedy));
    };
    let kind = device.volume_type.as_deref().unwrap_or("gp2");
    if device.iops.is_none() && ["io1", "io2"].contains(&kind) {
        wrong("iops", None, &format!("is required with {kind}"), "set it, or use gp3");
    }
    if let Some(iops) = device.iops.filter(|n| kind == "gp3" && *n < 3000) {
        wrong("iops", Some(iops), "is below 3000, the minimum of gp3", "use 3000 or more, or remove iops");
    }
    if let Some(throughput) = device.throughput.filter(|n| *n < 125) {
        wrong("throughput", Some(throughput), "is below 125, the minimum of gp3", "use 125 or more, or remove it");
    }
    let least = match kind {
        "st1" | "sc1" => 125,
        "io1" | "io2" => 4,
        _ => 1,
    };
    if let Some(size) = device.size.filter(|n| *n < least) {
        wrong("size", Some(size), &format!("is less than {least} GiB, the minimum of {kind}"), "use a larger size");
    }
    if device.snapshot_id.is_some() && device.encrypted.is_some() {
        wrong(
            "encrypted",
            None,
            "cannot be combined with snapshotId, which determines it",
            "remove it, or encrypt the snapshot",
        );
    }
    let Some(image) = image else { return };
    if device.name == image.root_device && ["st1", "sc1"].contains(&kind) {
        let path = format!("spec.eks.configuration.volumes[{i}].type");
        let remedy = "use gp3 for the device that the AMI boots from";
        errors.push(SpecError::invalid(&path, kind, "cannot be booted from", remedy));
    } else if device.size.is_none() && device.snapshot_id.is_none() && !image.device_names.contains(&device.name) {
        wrong("size", None, "is required for a device that the AMI does not have", "set size or snapshotId");
    }
}
