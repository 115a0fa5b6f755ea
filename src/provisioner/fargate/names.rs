//! Derives the names of a group's Fargate profiles and of their pod execution role.
//!
//! A matching name is not proof of ownership: two groups can derive the same name (`a-b/c` and `a/b-c`). Tags decide.

use crate::provisioner::GroupId;
use crate::provisioner::name_form::NameForm;
use crate::util::digest::sha256_hex;

/// Maximum length of the profile names that the controller uses.
const MAX_PROFILE_NAME: usize = 100;
/// Maximum length of an IAM role name (IAM API reference, CreateRole).
const MAX_ROLE_NAME: usize = 64;
/// Length of the suffix of a replacement's name: a dash and eight hexadecimal digits.
const SUFFIX_LENGTH: usize = 9;

/// The names that a group derives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileNames {
    /// Name of the first profile.
    pub first_profile: String,
    /// Prefix of the replacements' names: the first profile's name, unless it is too long.
    replacement_prefix: String,
    /// Name of the pod execution role.
    pub role: String,
}

impl ProfileNames {
    /// Derives the names of a group in a region.
    pub(crate) fn new(cluster: &str, id: &GroupId, form: NameForm, region: &str) -> Self {
        let GroupId { namespace, name, .. } = id;
        let hash = form.hashed_text(cluster, namespace, name, region).map(|text| hash_digits(&text));
        Self::with_hash(cluster, namespace, name, hash)
    }

    /// Whether a group derives this profile name in the plain form, in which two groups can derive the same one.
    pub(crate) fn is_plain(cluster: &str, namespace: &str, name: &str, profile: &str) -> bool {
        Self::with_hash(cluster, namespace, name, None).covers(profile)
    }

    fn with_hash(cluster: &str, namespace: &str, name: &str, hash: Option<String>) -> Self {
        let number = fnv1a(&format!("{cluster}-{namespace}-{name}"));
        let identity = || hash_digits(&format!("{cluster}/{namespace}/{name}"));
        let short = format!("fargate-{number}-{}", hash.clone().unwrap_or_else(identity));
        let mut first_profile = format!("fargate-{cluster}-{number}");
        if let Some(hash) = hash {
            first_profile = format!("{first_profile}-{hash}");
        }
        if first_profile.len() > MAX_PROFILE_NAME {
            first_profile.clone_from(&short);
        }
        let replacement_prefix =
            if first_profile.len() + SUFFIX_LENGTH > MAX_PROFILE_NAME { short.clone() } else { first_profile.clone() };
        let role = format!("{first_profile}-role");
        let role = if role.len() > MAX_ROLE_NAME { format!("{short}-role") } else { role };
        ProfileNames { first_profile, replacement_prefix, role }
    }

    /// The names of a group in every form.
    pub(crate) fn all(cluster: &str, id: &GroupId, region: &str) -> [ProfileNames; 3] {
        NameForm::ALL.map(|form| ProfileNames::new(cluster, id, form, region))
    }

    /// The name of a replacement profile, from a hash of its content.
    pub fn replacement_name(&self, content: &str) -> String {
        format!("{}-{}", self.replacement_prefix, hash_digits(content))
    }

    /// Whether the group could have derived this profile name.
    pub(crate) fn covers(&self, name: &str) -> bool {
        let suffix = name.strip_prefix(&self.replacement_prefix).and_then(|rest| rest.strip_prefix('-'));
        let hash = |text: &str| text.len() == SUFFIX_LENGTH - 1 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        name == self.first_profile || suffix.is_some_and(hash)
    }
}

/// The first eight hexadecimal digits of the SHA-256 of a text.
fn hash_digits(text: &str) -> String {
    sha256_hex(text)[..8].to_owned()
}

/// 64-bit FNV-1a. Existing profile names depend on it.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};
    use crate::aws::policies::{POLICIES, fill_in};

    fn id(namespace: &str, name: &str) -> GroupId {
        let mut group = InstanceGroup::new(name, InstanceGroupSpec::default());
        group.metadata.namespace = Some(namespace.to_owned());
        group_id(&group)
    }

    fn names(namespace: &str, name: &str, form: NameForm) -> ProfileNames {
        ProfileNames::new("demo", &id(namespace, name), form, "us-west-2")
    }

    #[test]
    fn existing_profile_keeps_its_derived_name() {
        // Test vectors of the FNV reference for the empty text and "a".
        assert_eq!((fnv1a(""), fnv1a("a")), (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c));
        let names = names("team", "web", NameForm::Plain);
        assert_eq!(names.first_profile, format!("fargate-demo-{}", fnv1a("demo-team-web")));
        assert_eq!(names.role, format!("{}-role", names.first_profile));
    }

    #[test]
    fn covers_only_own_profile_names() {
        let other = names("team", "api", NameForm::Plain);
        let names = names("team", "web", NameForm::Plain);
        let later = names.replacement_name("other selectors");
        assert_ne!(later, names.replacement_name("yet others"));
        assert!(names.covers(&names.first_profile) && names.covers(&later));
        assert!(!names.covers(&other.first_profile) && !names.covers(&format!("{}1", names.first_profile)));
        assert!(!names.covers(&format!("{}-extra", names.first_profile)));
    }

    #[test]
    fn ambiguous_group_names_get_hashed_names() {
        let [plain, hashed, _] = NameForm::ALL;
        assert_eq!(names("a-b", "c", plain), names("a", "b-c", plain));
        assert_ne!(names("a-b", "c", hashed), names("a", "b-c", hashed));
        assert_ne!(names("a-b", "c", hashed).role, names("a-b", "c", plain).role);
    }

    #[test]
    fn regions_of_one_cluster_name_have_distinct_roles() {
        let of = |region| ProfileNames::all("demo", &id("team", "web"), region).map(|names| names.role);
        let (west, east) = (of("us-west-2"), of("us-east-1"));
        assert_eq!((&west[..2], west[2] == east[2]), (&east[..2], false));
        assert!(west[1] != west[2] && west[2] != east[1]);
    }

    /// IAM denies every call for a role whose name no statement of the controller's policy covers.
    #[test]
    fn iam_policy_covers_the_roles_of_every_cluster_name() {
        let text = POLICIES.iter().find(|(name, _)| *name == "fargate").expect("the policy").1;
        let covers = |resource: &Value, role: &str| {
            let (start, end) = resource.as_str().and_then(|pattern| pattern.split_once('*')).expect("a pattern");
            role.starts_with(start) && role.ends_with(end)
        };
        for length in 1..=100 {
            let cluster = "c".repeat(length);
            let policy = fill_in(text, "us-west-2", Some(("arn:aws:eks:us-west-2:42:cluster/c", &cluster)));
            let policy: Value = serde_json::from_str(&policy).expect("JSON");
            let statements = policy["Statement"].as_array().expect("statements").iter();
            let of_roles: Vec<_> =
                statements.filter(|s| s["Resource"].to_string().contains(":role/fargate-")).collect();
            assert_eq!(of_roles.len(), 5);
            for names in
                ["web", "api", "db"].iter().flat_map(|name| ProfileNames::all(&cluster, &id("team", name), "us-west-2"))
            {
                let role = format!("arn:aws:iam::42:role/{}", names.role);
                for statement in &of_roles {
                    let is_covered = match &statement["Resource"] {
                        Value::Array(resources) => resources.iter().any(|resource| covers(resource, &role)),
                        resource => covers(resource, &role),
                    };
                    assert!(is_covered, "{role}: {}", statement["Sid"]);
                }
            }
        }
    }

    /// A missing permission for the access entry that EKS made would keep every group from being deleted.
    #[test]
    fn iam_policy_covers_the_access_entries_of_the_roles_of_every_cluster_name() {
        let text = POLICIES.iter().find(|(name, _)| *name == "access-entries").expect("the policy").1;
        for length in 1..=100 {
            let cluster = "c".repeat(length);
            let policy = fill_in(text, "us-west-2", Some(("arn:aws:eks:us-west-2:42:cluster/c", &cluster)));
            let policy: Value = serde_json::from_str(&policy).expect("JSON");
            let mut statements = policy["Statement"].as_array().expect("statements").iter();
            let own = statements.find(|s| s["Sid"] == "DeleteAccessEntriesOfOwnRoles").expect("the statement");
            let patterns: Vec<_> =
                own["Resource"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
            for names in ProfileNames::all(&cluster, &id("team", "web"), "us-west-2") {
                let entry = format!("arn:aws:eks:us-west-2:42:access-entry/{cluster}/role/42/{}/uuid", names.role);
                let is_covered = patterns.iter().any(|pattern| {
                    let (start, end) = pattern.split_once('*').expect("a pattern");
                    let end = end.trim_end_matches('*');
                    entry.strip_prefix(start).is_some_and(|rest| rest.contains(end))
                });
                assert!(is_covered, "{entry}: {patterns:?}");
            }
        }
    }

    #[test]
    fn names_respect_aws_length_limits() {
        for length in [1, 20, 30, 31, 64, 71, 100] {
            for names in ProfileNames::all(&"c".repeat(length), &id("team", "web"), "us-west-2") {
                assert!(names.replacement_name("x").len() <= MAX_PROFILE_NAME, "{length}");
                assert!(names.role.len() <= MAX_ROLE_NAME, "{length}");
                assert!(names.covers(&names.replacement_name("x")));
            }
        }
    }
}
