//! The names of a group's Fargate profiles and of their role.
//!
//! A name proves nothing: two groups can share one (`a-b/c` and `a/b-c`). Ownership is judged by the tags.

use crate::util::digest::sha256_hex;

/// The longest name of a Fargate profile that is used.
const MAX_PROFILE_NAME: usize = 100;
/// The longest name of an IAM role (IAM API reference, CreateRole).
const MAX_ROLE_NAME: usize = 64;
/// What a later profile's name has beyond the first one's: a dash and eight digits.
const SUFFIX_LENGTH: usize = 9;

/// What a group's names are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileNames {
    /// The first profile's name.
    pub first_profile: String,
    /// The stem of the others' names: the first one's, unless that is too long.
    replacement_prefix: String,
    /// The role's name.
    pub role: String,
}

impl ProfileNames {
    /// The derived names; with `distinct` those for when another owner has the derived ones.
    pub fn new(cluster: &str, namespace: &str, name: &str, distinct: bool) -> Self {
        let number = fnv1a(&format!("{cluster}-{namespace}-{name}"));
        let identity = hash_digits(&format!("{cluster}/{namespace}/{name}"));
        let short = format!("fargate-{number}-{identity}");
        let mut first_profile = format!("fargate-{cluster}-{number}");
        if distinct {
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

    /// The name of a profile that takes another one's place, from what sets it apart.
    pub fn replacement_name(&self, content: &str) -> String {
        format!("{}-{}", self.replacement_prefix, hash_digits(content))
    }

    /// Whether a profile's name is one that the group could have given.
    pub fn covers(&self, name: &str) -> bool {
        let suffix = name.strip_prefix(&self.replacement_prefix).and_then(|rest| rest.strip_prefix('-'));
        let hash = |text: &str| text.len() == SUFFIX_LENGTH - 1 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        name == self.first_profile || suffix.is_some_and(hash)
    }
}

/// Eight hexadecimal digits of the SHA-256 of a text.
fn hash_digits(text: &str) -> String {
    sha256_hex(text)[..8].to_owned()
}

/// FNV-1a with 64 bits, as the derived names have always had it.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_profile_keeps_its_derived_name() {
        // FNV-1a of the empty text and of "a", from the reference of the algorithm.
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
        let one = |namespace, name, distinct| ProfileNames::new("demo", namespace, name, distinct);
        assert_eq!(one("a-b", "c", false), one("a", "b-c", false));
        assert_ne!(one("a-b", "c", true), one("a", "b-c", true));
        assert_ne!(one("a-b", "c", true).role, one("a-b", "c", false).role);
    }

    #[test]
    fn names_respect_aws_length_limits() {
        for length in [1, 20, 30, 31, 64, 71, 100] {
            for distinct in [false, true] {
                let names = ProfileNames::new(&"c".repeat(length), "team", "web", distinct);
                assert!(names.replacement_name("x").len() <= MAX_PROFILE_NAME, "{length} {distinct}");
                assert!(names.role.len() <= MAX_ROLE_NAME, "{length} {distinct}");
                assert!(names.covers(&names.replacement_name("x")));
            }
        }
    }
}
