//! The hash of every example's launch template version. A released hash never changes: a change here rotates every node there is.
//! `UPDATE_GOLDEN=1 cargo test --test hashes` adds those of new examples.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use instance_manager::api::decode_spec;
use instance_manager::aws::{Cluster, InstanceProfile, InstanceType, NetworkObject, Role};
use instance_manager::cli::input::{InputArgs, Merged, load};
use instance_manager::provisioner::GroupId;
use instance_manager::provisioner::eks::desired;
use instance_manager::provisioner::eks::desired::Wanted;
use instance_manager::provisioner::eks::resolve::{Environment, resolve};
use jiff::Timestamp;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Each example with the ConfigMap that it belongs to.
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

fn wanted(group: &Merged) -> Wanted {
    let (namespace, name) = group.id.split_once('/').expect("an id");
    let id = GroupId {
        namespace: namespace.into(),
        name: name.into(),
        uid: "uid".into(),
        generation: 1,
        created: Timestamp::UNIX_EPOCH,
        deleting: false,
        finalizer: true,
        annotations: group.effective.annotations.clone(),
        labels: Default::default(),
    };
    let spec = decode_spec(&group.effective.spec).expect("a spec");
    desired::parse(&id, &group.effective.annotations, &spec).expect("a group")
}

/// A world in which everything that a group names is there.
fn environment(wanted: &Wanted) -> Environment {
    let all = |names: &[String]| {
        let one = |name: &String| NetworkObject {
            id: name.clone(),
            name: Some(name.clone()),
            vpc: "vpc-1".into(),
            zone: None,
        };
        names.iter().map(one).collect()
    };
    Environment {
        cluster: Some(Cluster {
            name: wanted.cluster.clone(),
            arn: format!("arn:aws:eks:us-west-2:123456789012:cluster/{}", wanted.cluster),
            version: "1.33".into(),
            endpoint: "https://example.com".into(),
            ca: "Y2E=".into(),
            service_cidr: "10.100.0.0/16".into(),
            vpc: "vpc-1".into(),
            authentication_mode: "CONFIG_MAP".into(),
        }),
        subnets: all(&wanted.subnets),
        security_groups: all(&wanted.security_groups),
        elsewhere: vec![],
        image: Some(("parameter".into(), Some("ami-0123456789abcdef0".into()))),
        instance_type: Some(Some(InstanceType {
            name: wanted.instance_type.clone(),
            architectures: vec!["x86_64".into()],
            interfaces: 3,
            addresses: 10,
            ..InstanceType::default()
        })),
        given_profile: wanted.given_role.as_ref().map(|given| InstanceProfile {
            id: String::new(),
            name: given.profile.clone(),
            arn: format!("arn:aws:iam::123456789012:instance-profile/{}", given.profile),
            created: None,
            role: Some(Role {
                id: String::new(),
                name: given.role.clone(),
                arn: format!("arn:aws:iam::123456789012:role/{}", given.role),
                tags: vec![],
            }),
            tags: vec![],
        }),
        ..Environment::default()
    }
}

#[test]
fn a_released_hash_never_changes() {
    let mut text = String::new();
    for files in EXAMPLES {
        let args = InputArgs { files: files.iter().map(|file| root(file)).collect(), ..InputArgs::default() };
        let groups = load(&args, &mut std::io::empty()).expect("the files are there").groups;
        assert!(!groups.is_empty(), "{files:?}");
        for group in &groups {
            let wanted = wanted(group);
            let environment = environment(&wanted);
            let resolved = resolve(wanted, &environment, false).expect("it resolves");
            let file = files.last().expect("a file");
            writeln!(text, "{file} {} {}", group.id, resolved.fingerprint.hash).expect("a String takes everything");
        }
    }
    let path = root("tests/golden/hashes.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).expect("the golden file is written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(stored, text, "every node of such groups would be replaced");
}
