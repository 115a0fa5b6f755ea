//! The hash of every example's launch template version. A released hash must never change: a change would replace all nodes.
//! `UPDATE_GOLDEN=1 cargo test --test it` adds the hashes of new examples.

use crate::aws::samples;
use crate::common;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use instance_manager::api::decode_spec;
use instance_manager::aws::{Cluster, InstanceProfile, InstanceType, NetworkObject, Role};
use instance_manager::cli::input::{InputArgs, MergedGroup, load};
use instance_manager::provisioner::GroupId;
use instance_manager::provisioner::eks::desired;
use instance_manager::provisioner::eks::desired::DesiredSpec;
use instance_manager::provisioner::eks::references::References;
use instance_manager::provisioner::eks::resolve::resolve;
use instance_manager::provisioner::name_form::NameForm;
use instance_manager::util::lookup::Lookup;
use jiff::Timestamp;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Each example of the provisioner `eks` with its ConfigMap, if it needs one.
const EXAMPLES: [&[&str]; 14] = [
    &["examples/full.yaml"],
    &["boundaries/basic.yaml", "examples/short.yaml"],
    &["boundaries/architectures.yaml", "examples/conditionals.yaml"],
    &["examples/own-role.yaml"],
    &["examples/by-name.yaml"],
    &["examples/bottlerocket.yaml"],
    &["examples/amazonlinux2023.yaml"],
    &["examples/windows.yaml"],
    &["examples/mixed.yaml"],
    &["examples/pool.yaml"],
    &["examples/spot.yaml"],
    &["examples/warm-pool.yaml"],
    &["examples/crd-rolling-upgrade.yaml"],
    &["examples/crd-workflow.yaml"],
];

fn desired(group: &MergedGroup) -> DesiredSpec {
    let (namespace, name) = group.id.split_once('/').expect("an id");
    let id = GroupId { namespace: namespace.into(), name: name.into(), ..common::group_id(1, Timestamp::UNIX_EPOCH) };
    let spec = decode_spec(&group.merged.spec).expect("a spec");
    desired::parse(&id, &group.merged.annotations, &spec).expect("a group")
}

/// References in which every object that the spec names exists.
fn references(desired: &DesiredSpec) -> References {
    let all = |names: &[String]| {
        let one = |name: &String| NetworkObject {
            id: name.clone(),
            name: Some(name.clone()),
            vpc: "vpc-1".into(),
            zone: None,
            ipv4_cidr: None,
            assigns_ipv6: None,
        };
        names.iter().map(one).collect()
    };
    References {
        cluster: Some(Cluster {
            name: desired.cluster.clone(),
            arn: format!("arn:aws:eks:us-west-2:123456789012:cluster/{}", desired.cluster),
            endpoint: "https://example.com".into(),
            ..samples::cluster("demo")
        }),
        subnets: all(&desired.subnets),
        security_groups: all(&desired.security_groups),
        in_other_vpcs: vec![],
        standard_image: None,
        image: Some(("parameter".into(), Some("ami-0123456789abcdef0".into()))),
        instance_type: Lookup::Present(InstanceType {
            name: desired.instance_type.clone(),
            architectures: vec!["x86_64".into()],
            max_interfaces: Some(3),
            ipv4_per_interface: Some(10),
            ..InstanceType::default()
        }),
        existing_profile: desired.existing_role.as_ref().map(|given| InstanceProfile {
            id: String::new(),
            name: given.profile.clone(),
            arn: format!("arn:aws:iam::123456789012:instance-profile/{}", given.profile),
            created: None,
            role: Some(Role {
                id: String::new(),
                name: given.role.clone(),
                arn: format!("arn:aws:iam::123456789012:role/{}", given.role),
                tags: vec![],
                ..Role::default()
            }),
            tags: vec![],
        }),
        ..References::default()
    }
}

#[test]
fn released_hashes_are_stable() {
    let mut text = String::new();
    for files in EXAMPLES {
        let args = InputArgs { files: files.iter().map(|file| root(file)).collect(), ..InputArgs::default() };
        let groups = load(&args, &mut std::io::empty()).expect("the files can be read").groups;
        assert!(!groups.is_empty(), "{files:?}");
        for group in &groups {
            let spec = desired(group);
            let references = references(&spec);
            let resolved = resolve(spec, &references, NameForm::Plain).expect("a resolved group");
            let file = files.last().expect("a file");
            writeln!(text, "{file} {} {}", group.id, resolved.fingerprint.hash).expect("writing to a String");
        }
    }
    let path = root("tests/golden/hashes.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).expect("the golden file is written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(stored, text, "changed hashes replace all nodes of these groups");
}
