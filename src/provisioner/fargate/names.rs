//! Derives the names of a group's Fargate profiles and of their pod execution role.
//!
//! A matching name is not proof of ownership: two groups can derive the same name (`a-b/c` and `a/b-c`). Tags decide.

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
    /// Derives the names. With `hashed` they contain a hash of the group's identity, for groups whose plain names belong to
    /// another owner.
    pub(crate) fn new(cluster: &str, namespace: &str, name: &str, hashed: bool) -> Self {
        let number = fnv1a(&format!("{cluster}-{namespace}-{name}"));
        let identity = hash_digits(&format!("{cluster}/{namespace}/{name}"));
        let short = format!("fargate-{number}-{identity}");
        let mut first_profile = format!("fargate-{cluster}-{number}");
        if hashed {
            first_profile = format!("{first_profile}-{identity}");
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
    use super::*;

    #[test]
    fn existing_profile_keeps_its_derived_name() {
        // Test vectors of the FNV reference for the empty text and "a".
        assert_eq!((fnv1a(""), fnv1a("a")), (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c));
        let names = ProfileNames::new("demo", "team", "web", false);
        assert_eq!(names.first_profile, format!("fargate-demo-{}", fnv1a("demo-team-web")));
        assert_eq!(names.role, format!("{}-role", names.first_profile));
    }

    #[test]
    fn covers_only_own_profile_names() {
        let names = ProfileNames::new("demo", "team", "web", false);
        let later = names.replacement_name("other selectors");
        assert_ne!(later, names.replacement_name("yet others"));
        assert!(names.covers(&names.first_profile) && names.covers(&later));
        let other = ProfileNames::new("demo", "team", "api", false);
        assert!(!names.covers(&other.first_profile) && !names.covers(&format!("{}1", names.first_profile)));
        assert!(!names.covers(&format!("{}-extra", names.first_profile)));
    }

    #[test]
    fn ambiguous_group_names_get_hashed_names() {
        let one = |namespace, name, hashed| ProfileNames::new("demo", namespace, name, hashed);
        assert_eq!(one("a-b", "c", false), one("a", "b-c", false));
        assert_ne!(one("a-b", "c", true), one("a", "b-c", true));
        assert_ne!(one("a-b", "c", true).role, one("a-b", "c", false).role);
    }

    #[test]
    fn names_respect_aws_length_limits() {
        for length in [1, 20, 30, 31, 64, 71, 100] {
            for hashed in [false, true] {
                let names = ProfileNames::new(&"c".repeat(length), "team", "web", hashed);
                assert!(names.replacement_name("x").len() <= MAX_PROFILE_NAME, "{length} {hashed}");
                assert!(names.role.len() <= MAX_ROLE_NAME, "{length} {hashed}");
                assert!(names.covers(&names.replacement_name("x")));
            }
        }
    }
}
