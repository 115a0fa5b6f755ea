//! Parses and validates the merged spec of an `eks-fargate` group. Later stages use the typed values and do not validate
//! again.

use std::collections::BTreeMap;

use crate::api::spec_error::{SpecError, SpecErrors, non_empty, non_empty_items};
use crate::api::{EksFargateSpec, InstanceGroupSpec, StrategyType};
use crate::auth::JoinAuth;
use crate::aws::Tag;
use crate::aws::fargate::FargateSelector;
use crate::provisioner::eks::names::reserved_tag;
use crate::provisioner::{GroupId, limits};

/// The desired state of a group, from the tenant's spec and the admin's defaults.
#[derive(Clone, Debug)]
pub struct DesiredSpec {
    /// The group's identity.
    pub id: GroupId,
    /// The EKS cluster's name.
    pub cluster: String,
    /// ARN of an existing pod execution role. The controller does not modify it.
    pub existing_role: Option<String>,
    /// Subnet ids or Name tags. If empty, EKS selects the subnets.
    pub subnets: Vec<String>,
    /// Sorted selectors; their order has no meaning.
    pub selectors: Vec<FargateSelector>,
    /// Tags from the spec.
    pub tags: Vec<Tag>,
    /// The value of `--join-auth`.
    pub join_auth: JoinAuth,
}

/// Path of the provisioner's settings in the spec.
pub(crate) const SPEC_PATH: &str = "spec.eks-fargate";
/// Maximum number of selectors per profile (EKS API reference, CreateFargateProfile, selectors).
const MAX_SELECTORS: usize = 5;
/// Maximum number of tags besides the controller's three (EKS API reference, TagMap: 50).
const MAX_TAGS: usize = 47;

/// Parses a merged spec.
///
/// # Errors
/// Every error in the spec, with its field path.
pub fn parse(id: &GroupId, spec: &InstanceGroupSpec) -> Result<DesiredSpec, Vec<SpecError>> {
    let (desired, errors) = parse_with_errors(id, spec);
    if errors.is_empty() { Ok(desired) } else { Err(errors) }
}

/// Parses a merged spec. The fields that errors name have no meaning.
pub fn parse_with_errors(id: &GroupId, spec: &InstanceGroupSpec) -> (DesiredSpec, Vec<SpecError>) {
    let empty = EksFargateSpec::default();
    let settings = spec.eks_fargate.as_ref().unwrap_or(&empty);
    let mut errors = SpecErrors::under(SPEC_PATH);
    check_strategy(&mut errors, spec);
    let cluster = limits::cluster_name(&mut errors, &settings.cluster_name);
    let desired = DesiredSpec {
        id: id.clone(),
        existing_role: parse_role(&mut errors, settings),
        subnets: non_empty_items(&settings.subnets),
        selectors: parse_selectors(&mut errors, settings),
        tags: parse_tags(&mut errors, settings, &cluster),
        join_auth: JoinAuth::default(),
        cluster,
    };
    (desired, errors.into_errors())
}

fn check_strategy(errors: &mut SpecErrors, spec: &InstanceGroupSpec) {
    let strategy = spec.strategy.as_ref().and_then(|s| s.r#type.clone()).unwrap_or_default();
    if StrategyType::parse(&strategy) != Some(StrategyType::Managed) {
        let rule = "is not supported for Fargate profiles, which have no nodes to replace";
        let shown = if strategy.is_empty() { "rollingUpdate (the default)".to_owned() } else { strategy };
        errors.push_error(SpecError::invalid("spec.strategy.type", shown, rule, "use managed"));
    }
}

fn parse_role(errors: &mut SpecErrors, settings: &EksFargateSpec) -> Option<String> {
    let arn = non_empty(&settings.pod_execution_role_arn)?;
    let parts: Vec<_> = arn.splitn(6, ':').collect();
    let fits = matches!(parts.as_slice(), ["arn", _, "iam", "", account, role]
        if !account.is_empty() && role.strip_prefix("role/").is_some_and(|name| !name.is_empty()));
    if !fits {
        let (rule, remedy) = ("is not the ARN of an IAM role", "use arn:aws:iam::<account>:role/<name>, or remove it");
        errors.push_invalid("podExecutionRoleArn", &arn, rule, remedy);
    }
    Some(arn)
}

/// Parses the selectors. The number of labels per selector is an adjustable AWS quota, so only EKS checks it.
fn parse_selectors(errors: &mut SpecErrors, settings: &EksFargateSpec) -> Vec<FargateSelector> {
    let given = settings.selectors.as_deref().unwrap_or_default();
    if given.is_empty() {
        errors.push_missing("selectors");
    }
    if given.len() > MAX_SELECTORS {
        let rule = "exceeds the number of selectors that a Fargate profile can have";
        errors.push_invalid("selectors", given.len(), rule, "use at most 5, or more groups");
    }
    let mut selectors = Vec::new();
    for (i, selector) in given.iter().enumerate() {
        let namespace = selector.namespace.clone().unwrap_or_default();
        let path = format!("selectors[{i}]");
        if namespace.is_empty() {
            errors.push_missing(&format!("{path}.namespace"));
        } else if namespace.len() > 63 || !namespace.chars().all(is_namespace_char) {
            let rule = "is not a valid namespace";
            let remedy = "use lower-case letters, digits and dashes, with * for any characters and ? for one";
            errors.push_invalid(&format!("{path}.namespace"), &namespace, rule, remedy);
        }
        let labels = selector.labels.clone().unwrap_or_default();
        for (key, value) in &labels {
            check_label(errors, &path, key, value);
        }
        selectors.push(FargateSelector { namespace, labels });
    }
    selectors.sort();
    selectors.dedup();
    selectors
}

fn check_label(errors: &mut SpecErrors, path: &str, key: &str, value: &str) {
    let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
    let remedy = "use a valid Kubernetes label, with * for any characters and ? for one";
    if name.is_empty() || name.len() > 63 || !key.chars().all(|c| is_label_char(c) || c == '/') {
        errors.push_invalid(&format!("{path}.labels"), key, "is not a valid label key", remedy);
    }
    if value.len() > 63 || !value.chars().all(is_label_char) {
        errors.push_invalid(&format!("{path}.labels.{key}"), value, "is not a valid label value", remedy);
    }
}

/// Whether a character is allowed in a namespace, wildcards included (EKS User Guide, "Fargate profile wildcards").
fn is_namespace_char(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || "-*?".contains(c)
}

fn is_label_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.*?".contains(c)
}

/// Parses the tags: each entry of each map is a tag. The last of several entries with the same key wins.
fn parse_tags(errors: &mut SpecErrors, settings: &EksFargateSpec, cluster: &str) -> Vec<Tag> {
    let mut tags = BTreeMap::new();
    for (i, map) in settings.tags.iter().flatten().enumerate() {
        for (key, value) in map {
            let path = format!("tags[{i}]");
            if key.is_empty() || key.chars().count() > 128 {
                errors.push_invalid(&path, key, "is not a valid tag key", "use 1 to 128 characters");
            }
            // The controller sets no Name tag on profiles, so the tenant may.
            if let Some(why) = reserved_tag(key, cluster).filter(|_| key != "Name") {
                let rule = format!("is a reserved tag: {why}");
                errors.push_invalid(&path, key, rule, "use another key");
            }
            if value.chars().count() > 256 {
                errors.push_invalid(&format!("{path}.{key}"), "", "is longer than 256 characters", "shorten it");
            }
            tags.insert(key.clone(), value.clone());
        }
    }
    if tags.len() > MAX_TAGS {
        let rule = "exceeds the number of tags that a Fargate profile can have besides the controller's";
        errors.push_invalid("tags", tags.len(), rule, format!("use at most {MAX_TAGS}"));
    }
    tags.into_iter().map(|(key, value)| Tag { key, value }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::{InstanceGroup, decode_spec, group_id};

    fn id() -> GroupId {
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        group.metadata.namespace = Some("team".into());
        group_id(&group)
    }

    fn parsed(strategy: &str, settings: Value) -> Result<DesiredSpec, Vec<String>> {
        let spec = json!({ "provisioner": "fargate", "strategy": { "type": strategy }, "eks-fargate": settings });
        let spec = decode_spec(&spec).expect("a spec");
        parse(&id(), &spec).map_err(|errors| errors.into_iter().map(|p| p.path).collect())
    }

    #[test]
    fn all_errors_are_reported_with_their_paths() {
        let selector = json!({ "namespace": "Team!", "labels": { "a b": "x", "ok": "no spaces" } });
        let settings = json!({
            "podExecutionRoleArn": "my-role",
            "selectors": [selector, {}],
            "tags": [{ "instancegroups.keikoproj.io/Namespace": "x" }, { "long": "v".repeat(257) }],
        });
        let paths = parsed("rollingUpdate", settings).expect_err("the spec is rejected");
        assert_eq!(
            paths,
            [
                "spec.strategy.type",
                "spec.eks-fargate.clusterName",
                "spec.eks-fargate.podExecutionRoleArn",
                "spec.eks-fargate.selectors[0].namespace",
                "spec.eks-fargate.selectors[0].labels",
                "spec.eks-fargate.selectors[0].labels.ok",
                "spec.eks-fargate.selectors[1].namespace",
                "spec.eks-fargate.tags[0]",
                "spec.eks-fargate.tags[1].long",
            ]
        );
    }

    #[test]
    fn wildcards_are_accepted() {
        let selector = json!({ "namespace": "prod-*", "labels": { "app*": "front?nd", "example.com/tier": "" } });
        let desired = parsed("Managed", json!({ "clusterName": "demo", "selectors": [selector] })).expect("a group");
        assert_eq!(desired.selectors[0].to_string(), "prod-*(app*=front?nd,example.com/tier=)");
        assert!(desired.subnets.is_empty() && desired.existing_role.is_none());
    }

    #[test]
    fn selector_order_is_ignored_and_last_tag_wins() {
        let settings = |namespaces: [&str; 2]| {
            let selectors = namespaces.map(|n| json!({ "namespace": n }));
            json!({ "clusterName": "demo", "selectors": selectors, "tags": [{ "b": "1", "Name": "n" }, { "b": "2" }] })
        };
        let one = parsed("managed", settings(["x", "y"])).expect("a group");
        let two = parsed("managed", settings(["y", "x"])).expect("a group");
        assert_eq!(one.selectors, two.selectors);
        let tags: Vec<_> = one.tags.iter().map(|t| format!("{}={}", t.key, t.value)).collect();
        assert_eq!(tags, ["Name=n", "b=2"]);
    }

    #[test]
    fn selector_count_is_limited() {
        let with = |n: usize| {
            let selectors: Vec<_> = (0..n).map(|i| json!({ "namespace": format!("n{i}") })).collect();
            parsed("managed", json!({ "clusterName": "demo", "selectors": selectors }))
        };
        assert_eq!(with(0).expect_err("none"), ["spec.eks-fargate.selectors"]);
        assert_eq!(with(6).expect_err("six"), ["spec.eks-fargate.selectors"]);
        assert_eq!(with(5).expect("five").selectors.len(), 5);
    }
}
