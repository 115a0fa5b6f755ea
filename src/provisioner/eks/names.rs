//! Derives names, tags and labels of a group's AWS resources.
//!
//! A matching name is not proof of ownership: two groups can share a name (`a-b/c` and `a/b-c`). Only tags are proof.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use md5::{Digest, Md5};

use crate::api::annotations::label_items;
use crate::provisioner::limits::MAX_SCALING_GROUP_NAME;
use crate::provisioner::name_form::NameForm;
use crate::util::digest::hex;

/// The longest derived name of an IAM role or instance profile, in characters; a longer one becomes a hash.
const MAX_IAM_NAME: usize = 63;
/// The longest name of an IAM role, in characters (IAM API reference, CreateRole). Its instance profile has the same name.
const MAX_ROLE_NAME: usize = 64;
/// The longest name of a launch template, in characters (EC2 API reference).
const MAX_TEMPLATE_NAME: usize = 128;

/// Number of hexadecimal digits of the hash in a name.
const HASH_DIGITS: usize = 8;

/// Node label with the group's name.
pub(crate) const ROLE_LABEL: &str = "node.kubernetes.io/role";
/// Node label with `normal`, `spot` or `mixed`.
pub(crate) const LIFECYCLE_LABEL: &str = "instancemgr.keikoproj.io/lifecycle";
/// Node label with the image's id.
pub(crate) const IMAGE_LABEL: &str = "instancemgr.keikoproj.io/image";

/// Cluster, namespace and name of a group, from which its resource names are derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupNames<'a> {
    /// The EKS cluster's name.
    pub cluster: &'a str,
    /// The InstanceGroup's namespace, which is part of each derived name.
    pub namespace: &'a str,
    /// The InstanceGroup's name.
    pub name: &'a str,
}

impl<'a> GroupNames<'a> {
    /// The names of one group.
    pub(crate) fn new(cluster: &'a str, namespace: &'a str, name: &'a str) -> Self {
        Self { cluster, namespace, name }
    }

    /// The scaling group's name, which is also the prefix of the other names.
    pub(crate) fn scaling_group(&self) -> String {
        format!("{}-{}-{}", self.cluster, self.namespace, self.name)
    }

    /// The IAM role's name.
    pub(crate) fn role(&self) -> String {
        let stem = self.scaling_group();
        if stem.len() > MAX_IAM_NAME { md5_hex(&stem) } else { stem }
    }

    /// The launch template's name. `created` is the InstanceGroup's creationTimestamp, so that a
    /// template is found again when the response to its creation was lost.
    pub(crate) fn launch_template(&self, created: Timestamp) -> String {
        let stem = self.scaling_group();
        let stamp = timestamp(created);
        let name = format!("{stem}-{stamp}");
        if name.len() > MAX_TEMPLATE_NAME { format!("{}-{stamp}", md5_hex(&stem)) } else { name }
    }

    /// The scaling group's name in a form.
    pub(crate) fn scaling_group_in(&self, form: NameForm, region: &str) -> String {
        self.in_form(&self.scaling_group(), form, region, MAX_SCALING_GROUP_NAME)
    }

    /// The IAM role's name in a form.
    pub(crate) fn role_in(&self, form: NameForm, region: &str) -> String {
        self.in_form(&self.role(), form, region, MAX_ROLE_NAME)
    }

    /// The launch template's name in a form.
    pub(crate) fn launch_template_in(&self, created: Timestamp, form: NameForm, region: &str) -> String {
        self.in_form(&self.launch_template(created), form, region, MAX_TEMPLATE_NAME)
    }

    /// The form of the names whose scaling group has this name; `None` when the group derives no such name.
    pub(crate) fn form_of(&self, scaling_group: &str, region: &str) -> Option<NameForm> {
        NameForm::ALL.into_iter().find(|form| self.scaling_group_in(*form, region) == scaling_group)
    }

    /// A derived name in a form. Names with a hash end with it; in a name that would be longer than `max_length`, the
    /// derived name becomes a hash too.
    fn in_form(&self, derived: &str, form: NameForm, region: &str, max_length: usize) -> String {
        let Some(text) = form.hashed_text(self.cluster, self.namespace, self.name, region) else {
            return derived.to_owned();
        };
        let hash = &md5_hex(&text)[..HASH_DIGITS];
        let name = format!("{derived}-{hash}");
        if name.len() > max_length { format!("{}-{hash}", md5_hex(derived)) } else { name }
    }
}

/// Why a tag may not be set by a tenant, or `None`. The cluster's own `kubernetes.io/cluster/` tag is allowed, because nodes
/// of older clusters need it, and so are the tags of the cluster autoscaler: those that the annotation adds win.
pub(crate) fn reserved_tag(key: &str, cluster: &str) -> Option<&'static str> {
    if key == "KubernetesCluster" || key == "Name" {
        return Some("the controller sets it");
    }
    reserved_tag_at_launch(key, cluster)
}

/// The same for a tag of `tagSpecifications`, with which EC2 creates instances and volumes: the controller names neither.
pub(crate) fn reserved_tag_at_launch(key: &str, cluster: &str) -> Option<&'static str> {
    // IAM ignores the case of tag keys in conditions (IAM User Guide, aws:ResourceTag). With a second key that differs in case
    // alone, AWS may deny the controller every change of its own resources.
    if has_prefix(key, "instancegroups.keikoproj.io/") {
        return Some("it records the owner of the resource");
    }
    if key.strip_prefix("kubernetes.io/cluster/").is_some_and(|of| of != cluster) {
        return Some("it claims the resource for another cluster");
    }
    if has_prefix(key, "aws:") {
        return Some("AWS reserves the prefix");
    }
    None
}

/// Whether a key begins with a prefix, whatever the case of its letters.
fn has_prefix(key: &str, prefix: &str) -> bool {
    key.get(..prefix.len()).is_some_and(|found| found.eq_ignore_ascii_case(prefix))
}

/// The AWS partition of a region, as in an ARN.
pub(crate) fn partition(region: &str) -> &'static str {
    const BY_PREFIX: [(&str, &str); 7] = [
        ("cn-", "aws-cn"),
        ("us-gov-", "aws-us-gov"),
        ("us-iso-", "aws-iso"),
        ("us-isob-", "aws-iso-b"),
        ("eu-isoe-", "aws-iso-e"),
        ("us-isof-", "aws-iso-f"),
        ("eusc-", "aws-eusc"),
    ];
    BY_PREFIX.iter().find_map(|(prefix, partition)| region.starts_with(prefix).then_some(*partition)).unwrap_or("aws")
}

/// The service principal of EC2 in a role's trust policy.
pub(crate) fn ec2_principal(region: &str) -> &'static str {
    match partition(region) {
        "aws-cn" => "ec2.amazonaws.com.cn",
        "aws-iso" => "ec2.c2s.ic.gov",
        "aws-iso-b" => "ec2.sc2s.sgov.gov",
        "aws-iso-e" => "ec2.cloud.adc-e.uk",
        "aws-iso-f" => "ec2.csp.hci.ic.gov",
        _ => "ec2.amazonaws.com",
    }
}

/// The ARNs of the managed policies of a role that the controller creates: the standard policies, then `extra`, which
/// holds names or ARNs. Without duplicates.
pub(crate) fn managed_policy_arns(region: &str, irsa: bool, extra: &[String]) -> Vec<String> {
    let mut names = vec!["AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryReadOnly"];
    if !irsa {
        names.push("AmazonEKS_CNI_Policy");
    }
    let partition = partition(region);
    let mut arns: Vec<String> = Vec::new();
    for name in names.into_iter().chain(extra.iter().map(String::as_str)) {
        let arn = match name.starts_with("arn:") {
            true => name.to_owned(),
            false => format!("arn:{partition}:iam::aws:policy/{name}"),
        };
        if !arns.contains(&arn) {
            arns.push(arn);
        }
    }
    arns
}

/// Node labels, and the items of the annotation `default-labels` that are not `key=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeLabels {
    /// The labels that the node registers with.
    pub labels: BTreeMap<String, String>,
    /// Items of `default-labels` that were ignored.
    pub ignored: Vec<String>,
}

/// The labels of a node. The annotation `default-labels`, or without it the role label, overrides the spec; lifecycle
/// and image override both.
pub(crate) fn node_labels(
    group: &str,
    spec: &BTreeMap<String, String>,
    default_labels: Option<&str>,
    lifecycle: &str,
    image: &str,
) -> NodeLabels {
    let mut out = NodeLabels { labels: spec.clone(), ignored: Vec::new() };
    match default_labels.filter(|text| !text.trim().is_empty()) {
        Some(text) => {
            for item in label_items(text) {
                match item {
                    Ok((key, value)) => _ = out.labels.insert(key.to_owned(), value.to_owned()),
                    Err(item) => out.ignored.push(item.to_owned()),
                }
            }
        }
        None => {
            out.labels.insert(ROLE_LABEL.to_owned(), group.to_owned());
        }
    }
    out.labels.insert(LIFECYCLE_LABEL.to_owned(), lifecycle.to_owned());
    out.labels.insert(IMAGE_LABEL.to_owned(), image.to_owned());
    out
}

fn md5_hex(text: &str) -> String {
    hex(&Md5::digest(text.as_bytes()))
}

/// Whether two names differ only in the timestamp at their end.
pub(crate) fn differs_only_in_timestamp(name: &str, derived: &str) -> bool {
    let stem =
        |name: &str| name.rsplit_once('-').map(|(stem, time)| (stem.to_owned(), time.len(), is_all_digits(time)));
    matches!((stem(name), stem(derived)), (Some(a), Some(b)) if a == b && a.2)
}

/// Whether a launch template's name is one that the controller derives: `derived`, or the same with another timestamp.
/// In a name with a hash, the timestamp stands before it.
pub(crate) fn is_derived_template_name(name: &str, derived: &str) -> bool {
    let without_hash = || {
        let ((name, hash), (derived, own)) = (name.rsplit_once('-')?, derived.rsplit_once('-')?);
        (hash == own && own.len() == HASH_DIGITS).then(|| differs_only_in_timestamp(name, derived))
    };
    name == derived || differs_only_in_timestamp(name, derived) || without_hash().unwrap_or_default()
}

/// A filter value of EC2 that matches a launch template's name with any time in the place of `created`.
pub(crate) fn with_any_time(template: &str, created: Timestamp) -> String {
    let stamp = timestamp(created);
    template.replacen(&stamp, &"?".repeat(stamp.len()), 1)
}

/// The time in the name of a launch template.
fn timestamp(created: Timestamp) -> String {
    created.to_zoned(TimeZone::UTC).strftime("%Y%m%d%H%M%S").to_string()
}

fn is_all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::api::{GroupId, InstanceGroup, InstanceGroupSpec, group_id};
    use crate::aws::policies::POLICIES;
    use crate::ownership::{has_ownership_tags, ownership_tags};

    fn id(namespace: &str, name: &str) -> GroupId {
        let mut group = InstanceGroup::new(name, InstanceGroupSpec::default());
        group.metadata.namespace = Some(namespace.to_owned());
        group_id(&group)
    }

    #[test]
    fn names_join_cluster_namespace_and_name() {
        let names = GroupNames::new("bench", "tenant-a", "plain");
        assert_eq!(names.scaling_group(), "bench-tenant-a-plain");
        assert_eq!(names.role(), "bench-tenant-a-plain");
        let created = "2026-11-21T08:37:22.9+02:00".parse().unwrap();
        assert_eq!(names.launch_template(created), "bench-tenant-a-plain-20261121063722");
    }

    #[test]
    fn long_names_become_their_md5_hash() {
        let group = "x".repeat(63 - "c-n-".len());
        let names = GroupNames::new("c", "n", &group);
        assert_eq!(names.role().len(), 63);
        assert!(names.role().starts_with("c-n-x"));
        let group = format!("{group}x");
        let names = GroupNames::new("c", "n", &group);
        assert_eq!(names.role(), md5_hex(&names.scaling_group()));
        assert_eq!(md5_hex("abc"), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(names.scaling_group().len(), 64);

        let created = "2026-01-02T03:04:05Z".parse().unwrap();
        let group = "x".repeat(128 - "c-n-".len() - "-20260102030405".len());
        assert_eq!(GroupNames::new("c", "n", &group).launch_template(created).len(), 128);
        let group = format!("{group}x");
        let names = GroupNames::new("c", "n", &group);
        let hashed = format!("{}-20260102030405", md5_hex(&names.scaling_group()));
        assert_eq!(names.launch_template(created), hashed);
    }

    #[test]
    fn scaling_group_name_reveals_the_naming_scheme() {
        let names = GroupNames::new("demo", "team", "web");
        let forms = NameForm::ALL.map(|form| names.scaling_group_in(form, "us-west-2"));
        assert_eq!(forms[0], "demo-team-web");
        assert_eq!(forms.clone().map(|name| names.form_of(&name, "us-west-2")), NameForm::ALL.map(Some));
        assert_eq!(names.form_of(&forms[2], "eu-west-1"), None);
        assert_eq!(names.form_of("demo-team-api", "us-west-2"), None);
    }

    #[test]
    fn policies_follow_the_partition() {
        let extra = ["AmazonSSMManagedInstanceCore".to_owned(), "arn:aws:iam::1:policy/p".to_owned()];
        assert_eq!(
            managed_policy_arns("us-west-2", false, &extra),
            [
                "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy",
                "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly",
                "arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy",
                "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore",
                "arn:aws:iam::1:policy/p",
            ]
        );
        let again = ["AmazonEKSWorkerNodePolicy".to_owned()];
        let arns = managed_policy_arns("cn-north-1", true, &again);
        assert_eq!(arns.len(), 2);
        assert!(arns.iter().all(|arn| arn.starts_with("arn:aws-cn:iam::aws:policy/")));
        assert_eq!(partition("us-gov-east-1"), "aws-us-gov");
        assert_eq!(ec2_principal("us-gov-east-1"), "ec2.amazonaws.com");
        assert_eq!(ec2_principal("cn-north-1"), "ec2.amazonaws.com.cn");
    }

    /// A role is passed to the service that its trust policy names. Without it, no new group would get nodes in China.
    #[test]
    fn roles_may_be_passed_to_ec2_in_every_partition() {
        let text = POLICIES.iter().find(|(name, _)| *name == "node-roles").expect("the policy").1;
        let policy: serde_json::Value = serde_json::from_str(text).expect("JSON");
        let statements = policy["Statement"].as_array().expect("statements");
        let passes = statements.iter().find(|statement| statement["Action"] == "iam:PassRole").expect("a statement");
        let services = passes["Condition"]["StringEquals"]["iam:PassedToService"].as_array().expect("services");
        for region in [
            "us-west-2",
            "us-gov-west-1",
            "cn-north-1",
            "us-iso-east-1",
            "us-isob-east-1",
            "eu-isoe-west-1",
            "us-isof-south-1",
        ] {
            let principal = ec2_principal(region);
            assert!(services.iter().any(|service| service == principal), "{region}: {principal}");
        }
    }

    #[test]
    fn tags_of_ownership_cluster_and_aws_are_reserved() {
        for key in [
            "instancegroups.keikoproj.io/Namespace",
            "instancegroups.keikoproj.io/Other",
            "Instancegroups.keikoproj.io/ClusterName",
            "KubernetesCluster",
            "Name",
            "kubernetes.io/cluster/other",
            "aws:autoscaling:groupName",
            "AWS:x",
        ] {
            assert!(reserved_tag(key, "bench").is_some(), "{key}");
        }
        for key in ["kubernetes.io/cluster/bench", "k8s.io/cluster-autoscaler/enabled", "owner", "name", "é:x", ""] {
            assert_eq!(reserved_tag(key, "bench"), None, "{key}");
        }
        for key in ["Name", "KubernetesCluster"] {
            assert_eq!(reserved_tag_at_launch(key, "bench"), None, "{key}: volumes and instances have no other");
        }
        assert!(reserved_tag_at_launch("instancegroups.keikoproj.io/Namespace", "bench").is_some());
    }

    #[test]
    fn derived_template_names_differ_in_the_timestamp_alone() {
        for (name, derived, expected) in [
            ("demo-team-web-20260101000000", "demo-team-web-20260101000000", true),
            ("demo-team-web-20250101000000", "demo-team-web-20260101000000", true),
            ("demo-team-web-20250101000000-0123abcd", "demo-team-web-20260101000000-0123abcd", true),
            ("demo-team-web-20250101000000-ffffffff", "demo-team-web-20260101000000-0123abcd", false),
            ("demo-team-1-20260101000000", "demo-team-2-20260101000000", false),
            ("demo-team-web-api-20260101000000", "demo-team-web-20260101000000", false),
            ("demo-team-web", "demo-team-web-20260101000000", false),
            ("terraform", "demo-team-web-20260101000000", false),
        ] {
            assert_eq!(is_derived_template_name(name, derived), expected, "{name} {derived}");
        }
    }

    #[test]
    fn annotation_labels_replace_role_label_and_override_spec() {
        let spec = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        let labels = |annotation| node_labels("web", &spec, annotation, "normal", "ami-1");
        let read =
            |labels: &NodeLabels| labels.labels.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(",");
        let fixed = "instancemgr.keikoproj.io/image=ami-1,instancemgr.keikoproj.io/lifecycle=normal";
        assert_eq!(read(&labels(None)), format!("{fixed},node.kubernetes.io/role=web,team=a"));
        let own = labels(Some("team=b, x=y,broken,a=b=c,=z,instancemgr.keikoproj.io/image=no"));
        assert_eq!(read(&own), format!("{fixed},team=b,x=y"));
        assert_eq!(own.ignored, ["broken", "a=b=c", "=z"]);
    }

    proptest! {
        #[test]
        fn groups_with_equal_names_own_only_their_resources(
            cluster in "[ab](-?[ab]){0,3}", namespace in "[ab](-?[ab]){0,3}", name in "[ab](-?[ab]){0,3}",
            cluster2 in "[ab](-?[ab]){0,3}", namespace2 in "[ab](-?[ab]){0,3}", name2 in "[ab](-?[ab]){0,3}",
        ) {
            let one = GroupNames::new(&cluster, &namespace, &name);
            let two = GroupNames::new(&cluster2, &namespace2, &name2);
            let tags = ownership_tags(&cluster, &id(&namespace, &name));
            let tags2 = ownership_tags(&cluster2, &id(&namespace2, &name2));
            prop_assert!(has_ownership_tags(&tags, &tags));
            prop_assert_eq!(has_ownership_tags(&tags, &tags2), one == two);
            let shared = one.scaling_group();
            let hashed = |names: GroupNames| names.in_form(&shared, NameForm::Hashed, "us-west-2", usize::MAX);
            prop_assert_eq!(hashed(one) == hashed(two), one == two);
        }

        #[test]
        fn names_respect_aws_length_limits(
            cluster in "[a-z0-9-]{1,100}", namespace in "[a-z0-9-]{1,63}", name in "[a-z0-9.-]{1,253}",
        ) {
            let names = GroupNames::new(&cluster, &namespace, &name);
            prop_assert!(names.role().len() <= 63);
            let template = names.launch_template(Timestamp::UNIX_EPOCH);
            prop_assert!(template.len() <= 128);
            let scaling_group = names.scaling_group_in(NameForm::RegionHashed, "us-west-2");
            prop_assert!(names.scaling_group().len() > 255 || scaling_group.len() <= 255, "{}", scaling_group);
            for (derived, limit) in [(names.role(), 64), (template, 128)] {
                let form = |limit| names.in_form(&derived, NameForm::Hashed, "us-west-2", limit);
                let (name, longer) = (form(limit), form(usize::MAX));
                let in_region = |region| names.in_form(&derived, NameForm::RegionHashed, region, limit);
                prop_assert!(in_region("us-west-2").len() <= limit && in_region("us-west-2") != name);
                prop_assert!(in_region("us-west-2") != in_region("eu-west-1"));
                prop_assert!(name.len() <= limit && name != derived, "{}", name);
                prop_assert!(longer.len() > limit || name == longer, "an existing name changes: {}", name);
                prop_assert_eq!(name.rsplit('-').next(), longer.rsplit('-').next());
            }
        }
    }
}
