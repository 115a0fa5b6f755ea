//! From the spec and the facts that AWS reports to launch template data, or to errors that name field and remedy.

use crate::aws::samples;
use crate::common;

use std::collections::BTreeMap;

use base64::Engine;

use instance_manager::api::decode_spec;
use instance_manager::api::spec_error::{SpecError, join_messages};
use instance_manager::aws::{Cluster, Image, InstanceType, InstanceTypeCatalog, NetworkObject};
use instance_manager::provisioner::eks::desired::{DesiredSpec, parse};
use instance_manager::provisioner::eks::launch_template::launch_checks::{LaunchFacts, spec_errors};
use instance_manager::provisioner::eks::references::References;
use instance_manager::provisioner::eks::resolve::{ResolvedGroup, resolve};
use instance_manager::provisioner::eks::user_data::OsFamily;
use instance_manager::provisioner::name_form::NameForm;
use instance_manager::util::lookup::Lookup;
use jiff::Timestamp;
use serde_json::Value;

/// A group with `configuration` in addition to the required fields.
fn parse_desired(configuration: &str, annotations: &[(&str, &str)]) -> Result<DesiredSpec, Vec<SpecError>> {
    let base = "{clusterName: demo, image: ami-00000001, instanceType: m5.large, subnets: [s], securityGroups: [g]}";
    let mut all: Value = serde_yaml::from_str(base).expect("YAML");
    let extra: Value = serde_yaml::from_str(configuration).expect("YAML");
    all.as_object_mut().expect("a mapping").extend(extra.as_object().expect("a mapping").clone());
    let spec = serde_json::json!({"provisioner": "eks", "eks": {"minSize": 1, "maxSize": 2, "configuration": all}});
    let id = common::group_id(1, Timestamp::UNIX_EPOCH);
    parse(&id, &common::annotations(annotations), &decode_spec(&spec).expect("a spec"))
}

fn test_references() -> References {
    let network = |id: &str| {
        vec![NetworkObject {
            id: id.into(),
            name: Some(id.into()),
            vpc: "vpc-1".into(),
            zone: None,
            ipv4_cidr: None,
            assigns_ipv6: None,
        }]
    };
    References {
        cluster: Some(samples::cluster("demo")),
        subnets: network("s"),
        security_groups: network("g"),
        in_other_vpcs: vec![],
        standard_image: None,
        image: None,
        instance_type: Lookup::Present(InstanceType {
            name: "m5.large".into(),
            architectures: vec!["x86_64".into()],
            vcpus: Some(2),
            memory_mib: Some(8192),
            max_interfaces: Some(3),
            ipv4_per_interface: Some(10),
            accelerator: None,
            is_xen: false,
        }),
        existing_profile: None,
        mixed_types: BTreeMap::new(),
        catalog: None,
    }
}

fn resolved(configuration: &str, annotations: &[(&str, &str)]) -> ResolvedGroup {
    let desired =
        parse_desired(configuration, annotations).unwrap_or_else(|errors| panic!("{}", join_messages(&errors)));
    resolve(desired, &test_references(), NameForm::Plain).unwrap_or_else(|errors| panic!("{}", join_messages(&errors)))
}

fn user_data(resolved: &ResolvedGroup) -> String {
    use base64::Engine;
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(resolved.template_data.user_data.expose()).expect("base64");
    String::from_utf8(bytes).expect("text")
}

/// The value of `--max-pods` in the user data.
fn pod_limit(resolved: &ResolvedGroup) -> Option<u32> {
    let text = user_data(resolved);
    let (_, rest) = text.split_once("--max-pods=")?;
    rest.split('\'').next()?.parse().ok()
}

#[test]
fn custom_networking_reduces_pod_limit() {
    let on = ("custom-networking-enabled", "True");
    let prefixes = ("custom-networking-prefix-assignment-enabled", "true");
    for (annotations, configuration, pods) in [
        (vec![on], "{}", Some(2 * 9 + 2)),
        (vec![on, ("custom-networking-host-pods", "5")], "{}", Some(2 * 9 + 5)),
        (vec![on, prefixes], "{}", Some(110)),
        (vec![on, prefixes], "{bootstrapOptions: {maxPods: 250}}", Some(250)),
        (vec![prefixes, ("custom-networking-host-pods", "5")], "{}", None),
    ] {
        let limit = pod_limit(&resolved(configuration, &annotations));
        assert_eq!(limit, pods, "{annotations:?} {configuration}");
    }
    let errors = parse_desired("{}", &[on, ("custom-networking-host-pods", "many")]).unwrap_err();
    let message = join_messages(&errors);
    assert!(
        message.contains("metadata.annotations[instancemgr.keikoproj.io/custom-networking-host-pods] `many`"),
        "{message}"
    );
}

/// Without its counts, a type would get a pod limit of zero addresses: only pods on the host network would start.
#[test]
fn unknown_interface_counts_are_an_error_and_not_zero() {
    let unknown =
        InstanceType { name: "m5n.large".into(), architectures: vec!["x86_64".into()], ..InstanceType::default() };
    let errors = |configuration: &str, annotations: &[(&str, &str)], references: References| {
        let desired = parse_desired(configuration, annotations).expect("a group");
        resolve(desired, &references, NameForm::Plain).map(|_| ()).map_err(|errors| join_messages(&errors))
    };
    let on = ("custom-networking-enabled", "true");
    let primary = || References { instance_type: Lookup::Present(unknown.clone()), ..test_references() };
    let error = errors("{}", &[on], primary()).expect_err("the limit is unknown");
    assert!(error.starts_with("spec.eks.configuration.instanceType `m5n.large` has no known number"), "{error}");
    assert!(error.contains("set bootstrapOptions.maxPods"), "{error}");
    assert_eq!(errors("{bootstrapOptions: {maxPods: 20}}", &[on], primary()), Ok(()));
    assert_eq!(errors("{}", &[], primary()), Ok(()), "nothing depends on it");
    let listed =
        References { mixed_types: [("m5n.large".to_owned(), Some(unknown.clone()))].into(), ..test_references() };
    let mixed = "{mixedInstancesPolicy: {instanceTypes: [{type: m5n.large}]}}";
    let error = errors(mixed, &[on], listed).expect_err("the limit is unknown");
    assert!(error.starts_with("spec.eks.configuration.mixedInstancesPolicy.instanceTypes[0].type"), "{error}");
    // From the tag, the cluster autoscaler learns how many addresses a Windows node has.
    let windows = [("os-family", "windows"), ("cluster-autoscaler-enabled", "true")];
    assert!(errors("{}", &windows, primary()).is_err_and(|error| error.contains("cluster-autoscaler-enabled")));
}

#[test]
fn smallest_type_limits_pods_of_mixed_group() {
    let on = ("custom-networking-enabled", "true");
    let of = |name: &str, max_interfaces, ipv4_per_interface| InstanceType {
        name: name.into(),
        architectures: vec!["x86_64".into()],
        vcpus: Some(2),
        memory_mib: Some(8192),
        max_interfaces: Some(max_interfaces),
        ipv4_per_interface: Some(ipv4_per_interface),
        accelerator: None,
        is_xen: false,
    };
    let types = [of("m5.large", 3, 10), of("m5a.large", 2, 10), of("m5n.large", 4, 15)];
    let offers = types.iter().map(|t| (t.name.clone(), "a".to_owned()));
    let references = References {
        catalog: Some(InstanceTypeCatalog::new(&types, offers).into()),
        mixed_types: types.iter().map(|t| (t.name.clone(), Some(t.clone()))).collect(),
        ..test_references()
    };
    let mixed = |policy: &str, annotations: &[(&str, &str)]| {
        let desired = parse_desired(&format!("{{mixedInstancesPolicy: {{{policy}}}}}"), annotations).expect("a group");
        resolve(desired, &references, NameForm::Plain).expect("a resolved group")
    };
    let listed = |names: &str| pod_limit(&mixed(&format!("instanceTypes: [{names}]"), &[on]));
    assert_eq!(listed("{type: m5n.large}"), Some(2 * 9 + 2), "the primary type has the lower limit");
    assert_eq!(listed("{type: m5n.large}, {type: m5a.large}"), Some(9 + 2));
    // New types in the pool must not lower the limit, which would replace nodes. Types that are too small are left out.
    let pool = mixed("instancePool: SubFamilyFlexible", &[on]);
    assert_eq!(
        (pod_limit(&pool), pool.type_pool.expect("a pool").offered_now),
        (Some(2 * 9 + 2), vec!["m5n.large".to_owned()])
    );
    assert_eq!(
        mixed("instancePool: SubFamilyFlexible", &[]).type_pool.expect("a pool").offered_now,
        ["m5a.large", "m5n.large"]
    );
}

#[test]
fn unknown_instance_type_is_reported_where_its_properties_are_needed() {
    let on = [("custom-networking-enabled", "true")];
    let desired = parse_desired("{}", &on).expect("a group");
    assert!(desired.needs_instance_type());
    let references = References { instance_type: Lookup::Absent, ..test_references() };
    let message = join_messages(&resolve(desired, &references, NameForm::Plain).unwrap_err());
    assert!(message.contains("spec.eks.configuration.instanceType `m5.large` is not an instance type"), "{message}");
}

#[test]
fn windows_groups_have_windows_entry_and_autoscaler_tags() {
    let windows = [("os-family", "Windows"), ("cluster-autoscaler-enabled", "true")];
    let group = resolved("{}", &windows);
    assert!(group.desired.needs_instance_type());
    assert!(group.aws_auth_entry.groups.iter().any(|g| g == "eks:kube-proxy-windows"));
    let template = "k8s.io/cluster-autoscaler/node-template/";
    let template_tags: BTreeMap<_, _> =
        group.tags.iter().filter_map(|t| Some((t.key.strip_prefix(template)?, t.value.as_str()))).collect();
    assert_eq!(template_tags["label/kubernetes.io/os"], "windows");
    assert_eq!(template_tags["label/kubernetes.io/arch"], "amd64");
    assert_eq!(template_tags["resources/vpc.amazonaws.com/PrivateIPv4Address"], "9");
    let linux = resolved("{}", &windows[1..]);
    assert!(!linux.tags.iter().any(|t| t.key.contains("arch") || t.key.contains("PrivateIPv4")));
    assert!(!linux.aws_auth_entry.groups.iter().any(|g| g.contains("windows")));
}

/// Otherwise AWS would reject the scaling group after the other resources are created.
#[test]
fn autoscaler_tags_count_towards_aws_limits() {
    let on = [("cluster-autoscaler-enabled", "true")];
    let key = format!("example.com/{}", "k".repeat(78));
    let long = format!("{{labels: {{{key}: v}}}}");
    assert!(parse_desired(&long, &[]).is_ok(), "without the annotation the label is not a tag");
    let message = join_messages(&parse_desired(&long, &on).unwrap_err());
    let expected = format!("spec.eks.configuration.labels `{key}` becomes a tag for the cluster autoscaler");
    assert!(message.starts_with(&expected) && message.contains("136 characters"), "{message}");
    assert!(parse_desired(&format!("{{labels: {{{}: v}}}}", &key[..82]), &on).is_ok());
    let tainted = parse_desired(&format!("{{taints: [{{key: {key}, effect: NoSchedule}}]}}"), &on);
    assert!(join_messages(&tainted.unwrap_err()).starts_with("spec.eks.configuration.taints[0].key"));
    let tags = |n: usize| (0..n).map(|n| format!("{{key: t{n}, value: v}}")).collect::<Vec<_>>().join(", ");
    let labels = |n: usize| (0..n).map(|n| format!("l{n}: v")).collect::<Vec<_>>().join(", ");
    let many = |n: usize| format!("{{tags: [{}], labels: {{{}}}}}", tags(n - 5), labels(5));
    assert!(parse_desired(&many(45), &[]).is_ok());
    let windows = [on[0], ("os-family", "windows")];
    for (annotations, most) in [(&on[..], 40), (&windows[..], 38)] {
        let allowed = resolved(&many(most), annotations);
        assert_eq!(allowed.tags.len(), 50, "{annotations:?}");
        let message = join_messages(&parse_desired(&many(most + 1), annotations).unwrap_err());
        assert!(
            message.starts_with(&format!("spec.eks.configuration.tags `{}` is more than the number of tags", most + 1)),
            "{message}"
        );
        assert!(message.contains(&format!("use at most {most} tags, labels and taints together")), "{message}");
    }
}

#[test]
fn windows_nodes_discover_the_endpoint_if_the_flag_is_set() {
    let mut group = parse_desired("{}", &[("os-family", "windows")]).expect("a group");
    assert_eq!(group.os_family, OsFamily::Windows);
    let in_user_data =
        user_data(&resolve(group.clone(), &test_references(), NameForm::Plain).expect("a resolved group"));
    assert!(
        in_user_data.contains("-APIServerEndpoint 'https://demo'") && in_user_data.contains("-Base64ClusterCA 'Y2E='")
    );
    group.discovers_endpoint = true;
    let discovered = user_data(&resolve(group, &test_references(), NameForm::Plain).expect("a resolved group"));
    assert!(!discovered.contains("-APIServerEndpoint") && !discovered.contains("-Base64ClusterCA"));
    assert!(discovered.contains("-EKSClusterName 'demo'"));
}

/// Facts about the image and the instance type that all these groups name.
fn launch_facts() -> LaunchFacts {
    let image = Image {
        id: "ami-00000001".into(),
        architecture: "x86_64".into(),
        is_windows: false,
        amazon_name: None,
        root_device: "/dev/xvda".into(),
        device_names: vec!["/dev/xvda".into()],
        volume_sizes: BTreeMap::new(),
    };
    LaunchFacts {
        image: Lookup::Present(image),
        instance_type: test_references().instance_type,
        is_launched_now: false,
    }
}

#[test]
fn image_must_exist_and_match_instance_type_and_os_family() {
    let group = resolved("{}", &[]);
    let errors_with = |change: fn(&mut Image)| {
        let mut facts = launch_facts();
        let Lookup::Present(image) = &mut facts.image else { unreachable!("the image exists") };
        change(image);
        join_messages(&spec_errors(&group, &facts))
    };
    assert_eq!(errors_with(|_| {}), "");
    let message = errors_with(|image| image.architecture = "arm64".into());
    assert!(
        message.contains("spec.eks.configuration.image `ami-00000001` is for arm64, but m5.large supports x86_64"),
        "{message}"
    );
    let message = errors_with(|image| image.is_windows = true);
    assert!(message.contains("is a Windows image, but the group's os-family is amazonlinux2"), "{message}");
    let running = LaunchFacts { is_launched_now: true, ..launch_facts() };
    // The family of an image that Amazon published is in its name.
    let with_name = |configuration: &str, family: &str, name: Option<&str>, is_launched_now| {
        let mut facts = LaunchFacts { is_launched_now, ..launch_facts() };
        let Lookup::Present(image) = &mut facts.image else { unreachable!("the image exists") };
        image.amazon_name = name.map(str::to_owned);
        join_messages(&spec_errors(&resolved(configuration, &[("os-family", family)]), &facts))
    };
    let names = [
        ("amazonlinux2", "amazon-eks-node-1.32-v20250920"),
        ("amazonlinux2", "amazon-eks-gpu-node-1.32-v20250920"),
        ("amazonlinux2", "amazon-eks-arm64-node-1.32-v20250920"),
        ("amazonlinux2023", "amazon-eks-node-al2023-x86_64-standard-1.33-v20250920"),
        ("amazonlinux2023", "amazon-eks-node-al2023-arm64-nvidia-1.33-v20250920"),
        ("bottlerocket", "bottlerocket-aws-k8s-1.33-nvidia-x86_64-v1.44.0-5ed15786"),
    ];
    for (of, name) in names {
        for family in ["amazonlinux2", "amazonlinux2023", "bottlerocket"] {
            let message = with_name("{}", family, Some(name), false);
            let expected =
                format!("is {name}, Amazon's image of {of}, but the group's os-family is {family}; use an AMI");
            assert!(if family == of { message.is_empty() } else { message.contains(&expected) }, "{family}: {message}");
            assert_eq!(with_name("{}", family, Some(name), true), "", "nodes already run this image");
        }
    }
    for name in [None, Some("amazon-eks-node-custom"), Some("al2023-ami-2023.9-kernel-6.1-x86_64")] {
        assert_eq!(with_name("{}", "bottlerocket", name, false), "", "the family of {name:?} is not known");
    }
    let script = "{userData: [{name: join, stage: PreBootstrap, data: 'nodeadm init'}]}";
    assert_eq!(with_name(script, "amazonlinux2", Some(names[3].1), false), "", "a script may let the node join");
    let windows = resolved("{}", &[("os-family", "windows")]);
    assert_eq!(spec_errors(&windows, &running), [], "nodes already run this image");
    let gone = LaunchFacts { image: Lookup::Absent, instance_type: Lookup::Absent, is_launched_now: true };
    let message = join_messages(&spec_errors(&group, &gone));
    for part in ["spec.eks.configuration.image `ami-00000001`", "spec.eks.configuration.instanceType `m5.large`"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(spec_errors(&group, &LaunchFacts::default()), [], "facts that could not be read cause no error");
}

#[test]
fn volumes_must_match_ebs_limits() {
    for (volume, field) in [
        ("{name: /dev/xvdb, type: io2, size: 50}", "iops"),
        ("{name: /dev/xvdb, type: gp3, size: 50, iops: 500}", "iops `500`"),
        ("{name: /dev/xvdb, type: gp3, size: 50, throughput: 60}", "throughput `60`"),
        ("{name: /dev/xvdb, type: st1, size: 50}", "size `50`"),
        ("{name: /dev/xvdb, type: gp3}", "size"),
        ("{name: /dev/xvdb, type: gp3, snapshotId: snap-1, encrypted: true}", "encrypted"),
        ("{name: /dev/xvda, type: sc1, size: 500}", "type `sc1`"),
    ] {
        let group = resolved(&format!("{{volumes: [{{name: /dev/xvdz, type: gp3, size: 8}}, {volume}]}}"), &[]);
        let message = join_messages(&spec_errors(&group, &launch_facts()));
        assert!(message.starts_with(&format!("spec.eks.configuration.volumes[1].{field} ")), "{volume}: {message}");
        assert!(!message.contains("volumes[0]"), "{message}");
    }
    for valid in [
        "{name: /dev/xvda, type: gp3}",
        "{name: /dev/xvdb, type: io1, size: 50, iops: 500}",
        "{name: /dev/xvdb, type: io2, size: 50, iops: 500, encrypted: true}",
        "{name: /dev/xvdb, type: gp3, size: 50, iops: 3500, throughput: 200}",
        "{name: /dev/xvdb, type: gp3, snapshotId: snap-1}",
        "{name: /dev/xvdb, type: st1, size: 125}",
        "{name: /dev/xvdb, type: sc1, size: 500}",
        "{name: /dev/xvdb, size: 5}",
    ] {
        let group = resolved(&format!("{{volumes: [{valid}]}}"), &[]);
        assert_eq!(spec_errors(&group, &launch_facts()), [], "{valid}");
    }
}

#[test]
fn truncated_base64_is_rejected() {
    let group = resolved("{userData: [{name: setup, stage: PreBootstrap, data: ZWNobyBwb3N0=}]}", &[]);
    let message = join_messages(&spec_errors(&group, &launch_facts()));
    assert!(message.starts_with("spec.eks.configuration.userData `setup` looks like base64"), "{message}");
}

#[test]
fn hooks_need_valid_target_and_unique_name() {
    let hook = |arn: &str| {
        format!("{{name: h, lifecycle: launch, notificationArn: '{arn}', roleArn: 'arn:aws:iam::1:role/h'}}")
    };
    for arn in ["arn:aws:sns:us-west-2:123456789012:t", "arn:aws-cn:sqs:cn-north-1:123456789012:q"] {
        assert!(parse_desired(&format!("{{lifecycleHooks: [{}]}}", hook(arn)), &[]).is_ok(), "{arn}");
    }
    for arn in ["my-queue", "arn:aws:lambda:us-west-2:1:layer:f", "arn:aws:sns:us-west-2:1:", "arn:aws:iam::1:role/sns"]
    {
        let message = join_messages(&parse_desired(&format!("{{lifecycleHooks: [{}]}}", hook(arn)), &[]).unwrap_err());
        assert!(
            message.starts_with(&format!("spec.eks.configuration.lifecycleHooks[0].notificationArn `{arn}`")),
            "{message}"
        );
    }
    let without_role =
        |arn: &str| format!("{{lifecycleHooks: [{{name: h, lifecycle: launch, notificationArn: '{arn}'}}]}}");
    assert!(
        parse_desired(&without_role("arn:aws:lambda:us-west-2:123456789012:function:f:live"), &[]).is_ok(),
        "Lambda functions need no role"
    );
    let message =
        join_messages(&parse_desired(&without_role("arn:aws:sqs:us-west-2:123456789012:q"), &[]).unwrap_err());
    assert!(message.contains("lifecycleHooks[0].notificationArn") && message.contains("needs a roleArn"), "{message}");
    let twice = "{lifecycleHooks: [{name: h, lifecycle: launch}, {name: h, lifecycle: terminate}]}";
    let message = join_messages(&parse_desired(twice, &[]).unwrap_err());
    assert!(message.starts_with("spec.eks.configuration.lifecycleHooks[1].name `h`"), "{message}");
}

#[test]
fn network_object_of_other_vpc_is_reported() {
    let group = parse_desired("{subnets: [subnet-9], securityGroups: [g, sg-9]}", &[]).expect("a group");
    let object = |id: &str| NetworkObject { vpc: "vpc-9".into(), ..samples::network_object(id) };
    let references = References { in_other_vpcs: vec![object("subnet-9"), object("sg-9")], ..test_references() };
    let message = join_messages(&resolve(group, &references, NameForm::Plain).unwrap_err());
    for (field, id) in [("subnets", "subnet-9"), ("securityGroups", "sg-9")] {
        let part = format!("spec.eks.configuration.{field} `{id}` is in vpc-9, but the cluster's VPC is vpc-1");
        assert!(message.contains(&part), "{message}");
    }
}

/// A tenant cannot list the subnets of the account, and finds a wrong letter nowhere else.
#[test]
fn misspelled_name_of_a_subnet_is_reported_with_the_right_one() {
    let group = parse_desired("{subnets: [private-us-west2-a], securityGroups: [web]}", &[]).expect("a group");
    let named = |name: &str| NetworkObject { name: Some(name.into()), ..samples::network_object("subnet-1") };
    let subnets = vec![named("public-us-east-1c"), named("private-us-west-2a")];
    let references = References { subnets, security_groups: vec![], ..test_references() };
    let message = join_messages(&resolve(group, &references, NameForm::Plain).unwrap_err());
    assert!(message.contains("did you mean \"private-us-west-2a\"?"), "{message}");
    assert!(message.contains("securityGroups `web`") && message.contains("or tag the resource"), "{message}");
}

/// EKS may answer without the VPC or the endpoint. That is unknown, and neither another VPC nor an empty endpoint.
#[test]
fn what_eks_does_not_tell_of_the_cluster_is_unknown() {
    let unknown = |change: fn(&mut Cluster)| {
        let mut references = test_references();
        references.cluster.iter_mut().for_each(change);
        references
    };
    let by_id = parse_desired("{subnets: [subnet-1], securityGroups: [sg-1]}", &[]).expect("a group");
    let known = |id: &str| vec![samples::network_object(id)];
    let without_vpc = References {
        subnets: known("subnet-1"),
        security_groups: known("sg-1"),
        ..unknown(|cluster| cluster.vpc = None)
    };
    assert!(resolve(by_id, &without_vpc, NameForm::Plain).is_ok(), "ids need no VPC");
    let by_name = parse_desired("{subnets: [private], securityGroups: [sg-9]}", &[]).expect("a group");
    let message = join_messages(&resolve(by_name, &without_vpc, NameForm::Plain).unwrap_err());
    assert!(message.contains("because EKS did not return the cluster's VPC"), "{message}");
    assert!(message.contains("`sg-9` does not exist in this account and region"), "{message}");
    for without in [unknown(|cluster| cluster.endpoint.clear()), unknown(|cluster| cluster.ca.clear())] {
        let group = parse_desired("{}", &[]).expect("a group");
        let message = join_messages(&resolve(group, &without, NameForm::Plain).unwrap_err());
        assert!(message.contains("has no API endpoint or certificate authority yet"), "{message}");
    }
}

#[test]
fn licenses_and_host_groups_reach_the_template_and_must_be_arns() {
    let licenses = ["b", "a"].map(|id| format!("arn:aws:license-manager:us-west-2:1:license-configuration:lic-{id}"));
    let hosts = "arn:aws:resource-groups:us-west-2:1:group/hosts";
    let text = |licenses: &[String], tenancy: &str, hosts: &str| {
        format!(
            "{{licenseSpecifications: ['{}'], placement: {{tenancy: {tenancy}, hostResourceGroupArn: '{hosts}'}}}}",
            licenses.join("', '")
        )
    };
    let group = resolved(&text(&licenses, "host", hosts), &[]);
    assert_eq!(group.template_data.licenses, [licenses[1].clone(), licenses[0].clone()]);
    assert_eq!(group.template_data.placement.as_ref().and_then(|p| p.host_resource_group.as_deref()), Some(hosts));
    assert_eq!(spec_errors(&group, &launch_facts()), []);
    let other = resolved(&text(&licenses[..1], "host", hosts), &[]);
    assert_ne!(group.fingerprint, other.fingerprint, "other licenses need other nodes");
    let reordered = [licenses[1].clone(), licenses[0].clone()];
    assert_eq!(
        group.fingerprint,
        resolved(&text(&reordered, "host", hosts), &[]).fingerprint,
        "the order of licenses is ignored"
    );
    let wrong = resolved(&text(&["lic-1".into()], "host", "hosts"), &[]);
    let message = join_messages(&spec_errors(&wrong, &launch_facts()));
    for part in [
        "spec.eks.configuration.licenseSpecifications[0] `lic-1`",
        "spec.eks.configuration.placement.hostResourceGroupArn `hosts`",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let message = join_messages(&parse_desired(&text(&licenses, "default", hosts), &[]).unwrap_err());
    assert!(message.starts_with("spec.eks.configuration.placement.tenancy `default`"), "{message}");
}

/// A spec in a cluster with this service range, as EKS describes it.
fn in_cluster(service_cidr: &str, version: &str, configuration: &str, annotations: &[(&str, &str)]) -> ResolvedGroup {
    let is_ipv6 = service_cidr.contains(':');
    let cluster =
        Cluster { service_cidr: service_cidr.into(), is_ipv6, version: version.into(), ..samples::cluster("demo") };
    let mut references = References { cluster: Some(cluster), ..test_references() };
    references.subnets[0].assigns_ipv6 = Some(true);
    in_network(references, configuration, annotations)
}

fn in_network(references: References, configuration: &str, annotations: &[(&str, &str)]) -> ResolvedGroup {
    let desired = parse_desired(configuration, annotations).expect("a spec");
    resolve(desired, &references, NameForm::Plain).unwrap_or_else(|errors| panic!("{}", join_messages(&errors)))
}

fn user_data_text(group: &ResolvedGroup) -> String {
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(group.template_data.user_data.expose()).expect("base64");
    String::from_utf8(bytes).expect("UTF-8")
}

const IPV6_RANGE: &str = "fd30:1c53:5f8a::/108";
const WITH_CNI_POLICY: &str = "managedPolicies: ['arn:aws:iam::1:policy/AmazonEKS_CNI_IPv6_Policy']";

#[test]
fn user_data_has_the_service_range_of_every_cluster() {
    let families = ["amazonlinux2", "amazonlinux2023", "bottlerocket", "windows"];
    let text = |range: &str, family: &str| {
        let group = in_cluster(range, "1.32", WITH_CNI_POLICY, &[("os-family", family)]);
        assert_eq!(group.ipv6_problems.is_empty(), !(range.contains(':') && family == "windows"), "{family}");
        user_data_text(&group)
    };
    for (range, al2, al2023, windows) in [
        ("10.100.0.0/16", "--dns-cluster-ip 10.100.0.10", "cidr: \"10.100.0.0/16\"", None),
        ("172.20.0.0/16", "--dns-cluster-ip 172.20.0.10", "cidr: \"172.20.0.0/16\"", None),
        (
            "10.96.0.0/16",
            "--dns-cluster-ip 10.96.0.10",
            "cidr: \"10.96.0.0/16\"",
            Some("-DNSClusterIP '10.96.0.10' -ServiceCIDR '10.96.0.0/16'"),
        ),
        (
            IPV6_RANGE,
            "--ip-family ipv6 --service-ipv6-cidr fd30:1c53:5f8a::/108",
            "cidr: \"fd30:1c53:5f8a::/108\"",
            None,
        ),
    ] {
        let [first, second, bottlerocket, last] = families.map(|family| text(range, family));
        assert!(first.contains(al2), "{first}");
        assert!(second.contains(al2023), "{second}");
        // Bottlerocket asks EKS itself (pluto's README).
        assert!(!bottlerocket.contains(range.split('/').next().unwrap_or_default()), "{bottlerocket}");
        match windows {
            Some(parameters) => assert!(last.contains(parameters), "{last}"),
            None => assert!(!last.contains("-ServiceCIDR"), "{last}"),
        }
    }
}

/// The bootstrap script of Windows assumes one of two ranges by the ranges of the VPC. The pods of a node with the wrong one
/// resolve no Services. Groups whose nodes have the right one keep their version.
#[test]
fn windows_nodes_are_reported_a_range_that_the_bootstrap_script_does_not_assume() {
    let group = |service_cidr: &str, vpc_ranges: &[&str]| {
        let cluster = Cluster { service_cidr: service_cidr.into(), ..samples::cluster("demo") };
        let subnet =
            |range: &&str| NetworkObject { ipv4_cidr: Some((*range).into()), ..samples::network_object("subnet-9") };
        let mut references = References { cluster: Some(cluster), ..test_references() };
        references.subnets.extend(vpc_ranges.iter().map(subnet));
        in_network(references, "{}", &[("os-family", "windows")])
    };
    let (first, second) = ("10.100.0.0/16", "172.20.0.0/16");
    for (service_cidr, vpc_ranges, is_passed) in [
        (second, &["100.64.0.0/19", "10.0.1.0/24"][..], false),
        (first, &["100.64.0.0/19", "10.0.1.0/24"], true),
        (first, &["172.31.0.0/20"], false),
        (second, &["172.31.0.0/20"], true),
        (second, &["110.0.0.0/20"], true),
        (first, &[], false),
        (second, &[], false),
        ("10.96.0.0/16", &[], true),
    ] {
        let (group, unknown) = (group(service_cidr, vpc_ranges), group(service_cidr, &[]));
        let text = user_data_text(&group);
        assert_eq!(
            text.contains(&format!("-ServiceCIDR '{service_cidr}'")),
            is_passed,
            "{service_cidr} {vpc_ranges:?}"
        );
        if !is_passed {
            assert_eq!(text, user_data_text(&unknown));
            assert_eq!(group.fingerprint.hash, unknown.fingerprint.hash);
        }
    }
    let broken = group(first, &["10.0.1.0/24"]);
    assert_ne!(broken.fingerprint.hash, group(first, &[]).fingerprint.hash, "its nodes are replaced");
}

/// Only nodes that need another range get another version.
#[test]
fn service_range_changes_the_hash_only_where_it_is_used() {
    let hash = |range: &str, family: &str| {
        in_cluster(range, "1.33", WITH_CNI_POLICY, &[("os-family", family)]).fingerprint.hash
    };
    assert_eq!(hash("", "bottlerocket"), hash(IPV6_RANGE, "bottlerocket"), "its nodes join an IPv6 cluster already");
    assert_ne!(hash("", "amazonlinux2023"), hash(IPV6_RANGE, "amazonlinux2023"), "its nodes did not join");
    let parts = |range: &str| {
        let group = in_cluster(range, "1.33", "{}", &[("os-family", "windows")]);
        group.fingerprint.parts.into_keys().collect::<Vec<_>>()
    };
    assert!(!parts("172.20.0.0/16").contains(&"dns".to_owned()));
    assert!(parts("192.168.0.0/16").contains(&"dns".to_owned()));
}

#[test]
fn ipv6_clusters_say_what_a_group_lacks() {
    let fields = |group: &ResolvedGroup| group.ipv6_problems.iter().map(|p| p.path.clone()).collect::<Vec<_>>();
    let of = |configuration: &str, annotations: &[(&str, &str)]| {
        fields(&in_cluster(IPV6_RANGE, "1.33", configuration, annotations))
    };
    let linux = ("os-family", "amazonlinux2023");
    assert_eq!(of(WITH_CNI_POLICY, &[linux]), Vec::<String>::new());
    assert_eq!(of("{}", &[linux, ("irsa-enabled", "true")]), Vec::<String>::new(), "the CNI has its own role");
    assert_eq!(of("{}", &[linux]), ["spec.eks.configuration.managedPolicies"]);
    let aws = "managedPolicies: [AmazonSSMManagedInstanceCore, 'arn:aws:iam::aws:policy/ReadOnlyAccess']";
    assert_eq!(of(aws, &[linux]), ["spec.eks.configuration.managedPolicies"], "AWS has no such policy");
    let networking = ("custom-networking-enabled", "true");
    assert_eq!(
        of(WITH_CNI_POLICY, &[linux, networking]),
        ["metadata.annotations.instancemgr.keikoproj.io/custom-networking-enabled"]
    );
    assert_eq!(
        of(WITH_CNI_POLICY, &[("os-family", "windows")]),
        ["metadata.annotations.instancemgr.keikoproj.io/os-family"]
    );
    assert_eq!(fields(&in_cluster("10.100.0.0/16", "1.33", "{}", &[linux])), Vec::<String>::new());
    // A subnet that EC2 says nothing about is not refused.
    for (assigns_ipv6, expected) in [(None, 0), (Some(true), 0), (Some(false), 1)] {
        let cluster = Cluster { service_cidr: IPV6_RANGE.into(), is_ipv6: true, ..samples::cluster("demo") };
        let mut references = References { cluster: Some(cluster), ..test_references() };
        references.subnets[0].assigns_ipv6 = assigns_ipv6;
        let desired = parse_desired(WITH_CNI_POLICY, &[linux]).expect("a spec");
        let group = resolve(desired, &references, NameForm::Plain).expect("a group");
        assert_eq!(group.ipv6_problems.len(), expected, "{assigns_ipv6:?}");
        let found = spec_errors(&group, &LaunchFacts::default());
        assert_eq!(found.len(), expected, "a group that needs no new version is not checked");
    }
}

/// Amazon EKS User Guide, "Learn about IPv6 addresses": "Nitro-based EC2 nodes required".
#[test]
fn ipv6_clusters_need_nitro_based_types() {
    let xen = |name: &str| InstanceType { name: name.into(), is_xen: true, ..InstanceType::default() };
    let of = |range: &str, configuration: &str, references: References| {
        let cluster = Cluster { service_cidr: range.into(), is_ipv6: range.contains(':'), ..samples::cluster("demo") };
        let references = References { cluster: Some(cluster), ..references };
        let desired = parse_desired(configuration, &[("os-family", "amazonlinux2023")]).expect("a spec");
        let group = resolve(desired, &references, NameForm::Plain).expect("a group");
        let facts = LaunchFacts { instance_type: Lookup::Present(xen("m5.large")), ..LaunchFacts::default() };
        spec_errors(&group, &facts).into_iter().map(|problem| problem.path).collect::<Vec<_>>()
    };
    assert_eq!(of(IPV6_RANGE, WITH_CNI_POLICY, test_references()), ["spec.eks.configuration.instanceType"]);
    assert_eq!(of("10.100.0.0/16", WITH_CNI_POLICY, test_references()), Vec::<String>::new());
    let types = ["m5.large", "m4.large"].map(|name| (name.to_owned(), Some(xen(name))));
    let mixed = References { mixed_types: types.into(), ..test_references() };
    let configuration = format!("{WITH_CNI_POLICY}\nmixedInstancesPolicy: {{instanceTypes: [{{type: m4.large}}]}}");
    assert_eq!(
        of(IPV6_RANGE, &configuration, mixed),
        ["spec.eks.configuration.instanceType", "spec.eks.configuration.mixedInstancesPolicy.instanceTypes[0].type"]
    );
}

#[test]
fn windows_images_are_named_by_release_and_edition() {
    let windows = &[("os-family", "windows")];
    for known in ["latest", "2019", "2022", "2025-full", "2022-Core"] {
        parse_desired(&format!("image: 'ssm://{known}'"), windows).expect("a release");
    }
    for unknown in ["2016", "2022.11.21", "2022-nano"] {
        let errors = parse_desired(&format!("image: 'ssm://{unknown}'"), windows).unwrap_err();
        assert!(join_messages(&errors).contains("use ssm://2019, 2022 or 2025"), "{}", join_messages(&errors));
    }
}
