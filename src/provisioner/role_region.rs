//! In which region an IAM role and its instance profile are used. Pure.
//!
//! IAM is global, and clusters are not. Two clusters of one account can have the same name in two regions; their groups
//! then derive the same IAM names. The tag `Region` beside the three ownership tags distinguishes them. Resources from
//! other controllers and from earlier releases lack it.

use std::fmt::{self, Display, Formatter};

use serde_json::Value;

use crate::api::names::tag;
use crate::aws::{InstanceProfile, Role, Tag, tag_map};
use crate::ownership::has_foreign_tags;

/// The tags of an IAM resource of a group: the ownership tags, and the cluster's region.
pub fn iam_tags(ownership: &[Tag], region: &str) -> Vec<Tag> {
    ownership.iter().cloned().chain([Tag { key: tag::REGION.into(), value: region.into() }]).collect()
}

/// Evidence of the use of a role in another region, and which region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherRegion {
    /// The tag of the role or of its instance profile.
    Tagged(String),
    /// The trust policy, which admits no Fargate profile of the group's region.
    Trusted(String),
    /// AWS reports the last use of the role there (IAM API reference, RoleLastUsed).
    LastUsed(String),
}

impl Display for OtherRegion {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            OtherRegion::Tagged(region) => write!(f, "its tag {} is {region}", tag::REGION),
            OtherRegion::Trusted(region) => write!(f, "its trust policy admits only Fargate profiles in {region}"),
            OtherRegion::LastUsed(region) => write!(f, "AWS reports its last use in {region}"),
        }
    }
}

/// The region that tags name.
pub(crate) fn tagged_region(tags: &[Tag]) -> Option<&str> {
    tag_map(tags).get(tag::REGION).copied()
}

/// The region other than `region` that the tags of a role or of its instance profile name.
pub(crate) fn tagged_for_other(role: Option<&Role>, profile_tags: &[Tag], region: &str) -> Option<OtherRegion> {
    let tags = role.map_or(&[][..], |role| &role.tags);
    let other = [tags, profile_tags].into_iter().filter_map(tagged_region).find(|tagged| *tagged != region)?;
    Some(OtherRegion::Tagged(other.to_owned()))
}

/// Evidence of the use of a role in another region than `region`.
///
/// A role with the tag of `region` was created for it. `is_tag_added`: the tag was added to an existing role, which
/// another region may use as well; the last use then counts too.
pub(crate) fn other_region(
    role: Option<&Role>,
    profile_tags: &[Tag],
    is_tag_added: bool,
    region: &str,
) -> Option<OtherRegion> {
    if let Some(other) = tagged_for_other(role, profile_tags, region) {
        return Some(other);
    }
    let role = role.filter(|role| is_tag_added || tagged_region(&role.tags).is_none())?;
    match role.trust_policy.as_deref().and_then(trusted_regions) {
        Some(regions) if regions.iter().any(|trusted| trusted == region) => None,
        Some(regions) => regions.into_iter().next().map(OtherRegion::Trusted),
        None => role.last_used_region.clone().filter(|used| used != region).map(OtherRegion::LastUsed),
    }
}

/// The region in the tags of the role and the instance profile that a group's nodes launch with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RegionClaim {
    /// Both have the tag of the group's region.
    Tagged,
    /// The tag is missing, and nothing speaks for another region: the group may add it.
    Claimable,
    /// The role may be in use in another region. The group does not add the tag.
    Other(OtherRegion),
    /// The tags name another group.
    OtherGroup,
}

/// Compares the tags of a role and its instance profile with the group's region.
///
/// A Fargate role has no instance profile.
pub(crate) fn region_claim(
    role: &Role,
    profile: Option<&InstanceProfile>,
    ownership: &[Tag],
    region: &str,
) -> RegionClaim {
    let profile_tags = profile.map(|profile| profile.tags.as_slice());
    let all: Vec<_> = [role.tags.as_slice()].into_iter().chain(profile_tags).collect();
    if all.iter().any(|tags| has_foreign_tags(tags, ownership)) {
        return RegionClaim::OtherGroup;
    }
    match other_region(Some(role), profile_tags.unwrap_or_default(), false, region) {
        Some(other) => RegionClaim::Other(other),
        None if all.iter().all(|tags| tagged_region(tags) == Some(region)) => RegionClaim::Tagged,
        None => RegionClaim::Claimable,
    }
}

/// The regions to whose Fargate profiles a trust policy limits the use of the role; `None` if it limits it to no region.
fn trusted_regions(policy: &str) -> Option<Vec<String>> {
    let policy: Value = serde_json::from_str(policy).ok()?;
    let mut regions = Vec::new();
    for statement in as_list(&policy["Statement"]) {
        let sources = source_arns(statement);
        if sources.is_empty() {
            return None;
        }
        for arn in sources {
            let region = arn.split(':').nth(3).filter(|region| !region.is_empty() && !region.contains(['*', '?']))?;
            regions.push(region.to_owned());
        }
    }
    (!regions.is_empty()).then_some(regions)
}

/// Whether a trust policy lets the Fargate profiles with this ARN pattern use the role: a statement for Fargate without
/// `aws:SourceArn`, or with one that covers them. Other conditions are not evaluated. An unreadable policy does not.
pub(crate) fn admits_profiles(policy: &str, service: &str, profiles: &str) -> bool {
    let Ok(policy) = serde_json::from_str::<Value>(policy) else { return false };
    as_list(&policy["Statement"]).into_iter().any(|statement| {
        let services = as_list(&statement["Principal"]["Service"]);
        let sources = source_arns(statement);
        statement["Effect"] == "Allow"
            && services.iter().any(|found| **found == *service)
            && (sources.is_empty() || sources.iter().any(|source| covers(source, profiles)))
    })
}

/// Whether an ARN pattern covers every ARN of another pattern, which ends with `*`.
fn covers(source: &str, profiles: &str) -> bool {
    source == profiles
        || source.strip_suffix('*').is_some_and(|prefix| !prefix.contains(['*', '?']) && profiles.starts_with(prefix))
}

/// The values of `aws:SourceArn` in the conditions of a statement, whatever the operator.
fn source_arns(statement: &Value) -> Vec<&str> {
    let operators = statement["Condition"].as_object().into_iter().flat_map(|all| all.values());
    let keys = operators.filter_map(Value::as_object).flatten();
    let sources = keys.filter(|(key, _)| key.eq_ignore_ascii_case("aws:SourceArn"));
    sources.flat_map(|(_, value)| as_list(value)).filter_map(Value::as_str).collect()
}

/// An element of a policy as a list; policies may have a single value instead.
fn as_list(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Null => Vec::new(),
        single => vec![single],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HERE: &str = "us-west-2";
    const ELSEWHERE: &str = "eu-west-1";
    const SERVICE: &str = "eks-fargate-pods.amazonaws.com";

    fn tagged(region: &str) -> Vec<Tag> {
        vec![Tag { key: tag::REGION.into(), value: region.into() }]
    }

    fn profiles(region: &str) -> String {
        format!("arn:aws:eks:{region}:1:fargateprofile/demo/*")
    }

    fn trust(condition: &Value) -> String {
        let statement = json!({ "Effect": "Allow", "Principal": { "Service": SERVICE }, "Action": "sts:AssumeRole" });
        let mut policy = json!({ "Version": "2012-10-17", "Statement": [statement] });
        if !condition.is_null() {
            policy["Statement"][0]["Condition"] = condition.clone();
        }
        policy.to_string()
    }

    fn source(arn: &str) -> Value {
        json!({ "ArnLike": { "aws:SourceArn": arn } })
    }

    #[test]
    fn tag_decides_before_last_use() {
        let role = |tags: Vec<Tag>, used: Option<&str>| Role {
            tags,
            last_used_region: used.map(str::to_owned),
            ..Role::default()
        };
        let other = |role: &Role, profile: &[Tag], added| other_region(Some(role), profile, added, HERE);
        assert_eq!(other(&role(vec![], None), &[], false), None, "unused, or too new for AWS to report a use");
        assert_eq!(other(&role(vec![], Some(HERE)), &[], false), None);
        assert_eq!(other(&role(vec![], Some(ELSEWHERE)), &[], false), Some(OtherRegion::LastUsed(ELSEWHERE.into())));
        assert_eq!(other(&role(tagged(HERE), Some(ELSEWHERE)), &[], false), None, "its pods may call other regions");
        assert!(other(&role(tagged(HERE), Some(ELSEWHERE)), &[], true).is_some(), "the tag was added later");
        for (role, profile) in [(role(tagged(ELSEWHERE), Some(HERE)), vec![]), (role(vec![], None), tagged(ELSEWHERE))]
        {
            assert_eq!(other(&role, &profile, false), Some(OtherRegion::Tagged(ELSEWHERE.into())));
        }
        assert_eq!(
            other_region(None, &tagged(ELSEWHERE), false, HERE),
            Some(OtherRegion::Tagged(ELSEWHERE.into())),
            "a profile without its role"
        );
    }

    #[test]
    fn trust_policy_names_the_region_of_its_profiles() {
        let cases = [
            (Value::Null, None, true),
            (source(&profiles(HERE)), Some(HERE), true),
            (source(&profiles(ELSEWHERE)), Some(ELSEWHERE), false),
            (source("arn:aws:eks:us-west-2:1:*"), Some(HERE), true),
            (source("arn:aws:eks:*:1:fargateprofile/demo/*"), None, false),
            (source("arn:aws:eks:us-west-2:1:fargateprofile/other/*"), Some(HERE), false),
            (json!({ "StringEquals": { "aws:SourceAccount": "1" } }), None, true),
        ];
        for (condition, region, admits) in cases {
            let policy = trust(&condition);
            assert_eq!(trusted_regions(&policy), region.map(|region| vec![region.to_owned()]), "{policy}");
            assert_eq!(admits_profiles(&policy, SERVICE, &profiles(HERE)), admits, "{policy}");
        }
        let role = |region: &str| Role {
            trust_policy: Some(trust(&source(&profiles(region)))),
            last_used_region: Some("us-east-1".into()),
            ..Role::default()
        };
        let other = |role: &Role| other_region(Some(role), &[], false, HERE);
        assert_eq!(other(&role(ELSEWHERE)), Some(OtherRegion::Trusted(ELSEWHERE.into())));
        assert_eq!(other(&role(HERE)), None, "no pod of another region can use it");
        assert!(!admits_profiles("no JSON", SERVICE, &profiles(HERE)));
    }
}
