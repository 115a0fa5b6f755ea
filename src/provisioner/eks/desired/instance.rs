//! Parses the settings of one instance: volumes, metadata service and placement.

use crate::api::spec_error::{SpecErrors, non_empty};
use crate::api::{EksConfiguration, Volume};
use crate::aws::{BlockDevice, MetadataOptions, Placement};
use crate::provisioner::eks::user_data::Mount;

pub(super) fn mounts(errors: &mut SpecErrors, c: &EksConfiguration) -> Vec<Mount> {
    let mut mounts = Vec::new();
    for (i, volume) in c.volumes.iter().flatten().enumerate() {
        let Some(options) = volume.mount_options.as_ref() else { continue };
        let path = format!("volumes[{i}].mountOptions");
        let (file_system, mount) =
            (options.file_system.clone().unwrap_or_default(), options.mount.clone().unwrap_or_default());
        if !["xfs", "ext4"].iter().any(|known| known.eq_ignore_ascii_case(&file_system)) {
            errors.push_invalid(
                &format!("{path}.fileSystem"),
                &file_system,
                "is not a supported file system",
                "use xfs or ext4",
            );
        }
        if !mount.starts_with('/') {
            errors.push_invalid(
                &format!("{path}.mount"),
                &mount,
                "is not an absolute path",
                "use a path such as /data",
            );
        }
        mounts.push(Mount {
            device: volume.name.clone().unwrap_or_default(),
            file_system,
            path: mount,
            persist: options.is_persistent(),
        });
    }
    mounts
}

pub(super) fn devices(errors: &mut SpecErrors, c: &EksConfiguration) -> Vec<BlockDevice> {
    let volumes = c.volumes.as_deref().unwrap_or_default();
    if volumes.is_empty() {
        return vec![BlockDevice {
            name: "/dev/xvda".into(),
            volume_type: Some("gp2".into()),
            size: Some(32),
            iops: None,
            throughput: None,
            delete_on_termination: true,
            encrypted: None,
            snapshot_id: None,
        }];
    }
    for (i, volume) in volumes.iter().enumerate() {
        let is_repeated = volumes[..i].iter().any(|other| other.name == volume.name);
        if let Some(name) = non_empty(&volume.name).filter(|_| is_repeated) {
            let path = format!("volumes[{i}].name");
            errors.push_invalid(&path, name, "is also the device of another volume", "use one device for each volume");
        }
    }
    volumes.iter().enumerate().map(|(i, volume)| device(errors, i, volume)).collect()
}

pub(super) fn device(errors: &mut SpecErrors, i: usize, v: &Volume) -> BlockDevice {
    let path = |field: &str| format!("volumes[{i}].{field}");
    let kind = non_empty(&v.r#type).map(|t| t.to_ascii_lowercase());
    let number = |n: Option<i64>| n.filter(|n| *n > 0).map(|n| n.min(i32::MAX.into()) as i32);
    if non_empty(&v.name).is_none() {
        errors.push_invalid(&path("name"), "", "is required", "name the device, for example /dev/xvda");
    }
    if let Some(k) = &kind
        && !["gp2", "gp3", "io1", "io2", "sc1", "st1", "standard"].contains(&k.as_str())
    {
        errors.push_invalid(&path("type"), k, "is not a volume type", "use gp2, gp3, io1, io2, sc1, st1 or standard");
    }
    let supports = |types: &[&str]| kind.as_deref().is_none_or(|k| types.contains(&k));
    if let Some(iops) = number(v.iops) {
        if !supports(&["io1", "io2", "gp3"]) {
            errors.push_invalid(
                &path("iops"),
                iops,
                "is not supported by this volume type",
                "use io1, io2 or gp3, or remove iops",
            );
        } else if iops < 100 {
            errors.push_invalid(&path("iops"), iops, "is below 100", "use 100 or more");
        }
    }
    if let Some(throughput) = number(v.throughput)
        && !supports(&["gp3"])
    {
        errors.push_invalid(
            &path("throughput"),
            throughput,
            "is supported by gp3 only",
            "use gp3 or remove throughput",
        );
    }
    if non_empty(&v.snapshot_id).is_some() && number(v.size).is_some() {
        errors.push_invalid(
            &path("size"),
            v.size.unwrap_or_default(),
            "cannot be combined with snapshotId",
            "remove one of the two",
        );
    }
    BlockDevice {
        name: v.name.clone().unwrap_or_default(),
        volume_type: kind,
        size: number(v.size),
        iops: number(v.iops),
        throughput: number(v.throughput),
        delete_on_termination: v.delete_on_termination.unwrap_or(true),
        encrypted: v.encrypted,
        snapshot_id: non_empty(&v.snapshot_id),
    }
}

pub(super) fn one_of(errors: &mut SpecErrors, field: &str, value: &Option<String>, allowed: &[&str]) -> Option<String> {
    let text = non_empty(value)?.to_ascii_lowercase();
    if !allowed.contains(&text.as_str()) {
        errors.push_invalid(field, &text, "is not allowed here", format!("use {}", allowed.join(" or ")));
    }
    Some(text)
}

/// Without the metadata service, a node knows neither its instance nor its role, and cannot join.
fn http_endpoint(errors: &mut SpecErrors, value: &Option<String>) -> Option<String> {
    let field = "metadataOptions.httpEndpoint";
    let endpoint = one_of(errors, field, value, &["enabled", "disabled"])?;
    if endpoint == "disabled" {
        let rule = "keeps nodes from joining: they read their identity and role from the metadata service";
        let remedy = "use enabled, and httpTokens and httpPutHopLimit to keep pods away from it";
        errors.push_invalid(field, &endpoint, rule, remedy);
    }
    Some(endpoint)
}

pub(super) fn metadata(errors: &mut SpecErrors, c: &EksConfiguration) -> Option<MetadataOptions> {
    let m = c.metadata_options.as_ref()?;
    let hop_limit = m.http_put_hop_limit.filter(|n| *n != 0);
    if let Some(n) = hop_limit
        && !(1..=64).contains(&n)
    {
        errors.push_invalid("metadataOptions.httpPutHopLimit", n, "is out of range", "use 1 to 64");
    }
    let options = MetadataOptions {
        http_endpoint: http_endpoint(errors, &m.http_endpoint),
        http_tokens: one_of(errors, "metadataOptions.httpTokens", &m.http_tokens, &["optional", "required"]),
        hop_limit: hop_limit.map(|n| n.clamp(1, 64) as i32),
    };
    (options != MetadataOptions::default()).then_some(options)
}

pub(super) fn placement(errors: &mut SpecErrors, c: &EksConfiguration) -> Option<Placement> {
    let p = c.placement.as_ref()?;
    let placement = Placement {
        availability_zone: non_empty(&p.availability_zone),
        tenancy: one_of(errors, "placement.tenancy", &p.tenancy, &["default", "dedicated", "host"]),
        host_resource_group: non_empty(&p.host_resource_group_arn),
    };
    if placement == Placement::default() {
        return None;
    }
    match placement.tenancy.as_deref() {
        None => errors.push_invalid(
            "placement.tenancy",
            "",
            "is required with a placement",
            "use default, dedicated or host",
        ),
        Some(tenancy) if tenancy != "host" && placement.host_resource_group.is_some() => {
            errors.push_invalid(
                "placement.tenancy",
                tenancy,
                "cannot be combined with hostResourceGroupArn",
                "use host",
            );
        }
        Some(_) => {}
    }
    Some(placement)
}

/// Checks the form `<family>.<size>` of an instance type.
pub(super) fn check_type_name(errors: &mut SpecErrors, field: &str, text: &str) {
    let part =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !text.split_once('.').is_some_and(|(family, size)| part(family) && part(size)) {
        errors.push_invalid(field, text, "is not a valid instance type", "write it as AWS does, for example m5.large");
    }
}
