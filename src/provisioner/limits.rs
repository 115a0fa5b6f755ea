//! Limits of AWS for names and values of a spec. AWS rejects values beyond these limits each time, also in reads, so the
//! controller rejects them first.

use crate::api::spec_error::{SpecError, SpecErrors};

/// The longest name of a scaling group, in characters (Auto Scaling API reference, CreateAutoScalingGroup).
pub(crate) const MAX_SCALING_GROUP_NAME: usize = 255;

/// Text that AWS accepts in a field.
pub(crate) struct TextLimit {
    /// The largest number of characters.
    max: usize,
    is_allowed: fn(char) -> bool,
    /// The characters, for messages.
    characters: &'static str,
}

/// The name of an EKS cluster (EKS API reference, CreateCluster). It also begins with a letter or digit.
const CLUSTER_NAME: TextLimit = TextLimit {
    max: 100,
    is_allowed: |c| c.is_ascii_alphanumeric() || "-_".contains(c),
    characters: "letters, digits, `-` and `_`",
};
/// The name of an IAM role (IAM API reference, CreateRole).
pub(crate) const ROLE_NAME: TextLimit = TextLimit { max: 64, ..PROFILE_NAME };
/// The name of an instance profile (IAM API reference, CreateInstanceProfile).
pub(crate) const PROFILE_NAME: TextLimit = TextLimit {
    max: 128,
    is_allowed: |c| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c),
    characters: "letters, digits and `_+=,.@-`",
};
/// The name of a lifecycle hook (Auto Scaling API reference, PutLifecycleHook).
pub(crate) const HOOK_NAME: TextLimit = TextLimit {
    max: 255,
    is_allowed: |c| c.is_ascii_alphanumeric() || "-_/".contains(c),
    characters: "letters, digits, `-`, `_` and `/`",
};
/// The metadata of a lifecycle hook (Auto Scaling API model, PutLifecycleHook).
pub(crate) const HOOK_METADATA: TextLimit = TextLimit {
    max: 4000,
    is_allowed: |c| matches!(c, ' '..='~' | '\t' | '\n' | '\r'),
    characters: "printable ASCII characters",
};
/// An ARN of a lifecycle hook (Auto Scaling API reference, PutLifecycleHook).
pub(crate) const HOOK_ARN: TextLimit =
    TextLimit { max: 255, is_allowed: |c| !c.is_control(), characters: "characters" };
/// Key and value of a label, and the key of a taint, of a managed node group (EKS API model, CreateNodegroup: 1 to 63). The
/// prefix of a key counts.
pub(crate) const NODEGROUP_TEXT: TextLimit =
    TextLimit { max: 63, is_allowed: |c| !c.is_control(), characters: "characters in all" };
/// The key of a tag.
pub(crate) const TAG_KEY: TextLimit = TextLimit { max: 128, is_allowed: |_| true, characters: "characters" };
/// The largest number of characters in the value of a tag.
pub(crate) const MAX_TAG_VALUE: usize = 256;

impl TextLimit {
    /// Adds an error if AWS refuses the text. An empty one is refused.
    pub(crate) fn check(&self, errors: &mut SpecErrors, field: &str, text: &str) {
        let count = text.chars().count();
        if count == 0 || count > self.max || !text.chars().all(self.is_allowed) {
            let remedy = format!("use 1 to {} {}", self.max, self.characters);
            errors.push_invalid(field, text, "is refused by AWS", remedy);
        }
    }
}

/// The required name of the EKS cluster, from the field `clusterName`.
pub(crate) fn cluster_name(errors: &mut SpecErrors, value: &Option<String>) -> String {
    let name = errors.required("clusterName", value);
    if name.starts_with(['-', '_']) {
        errors.push_invalid("clusterName", &name, "is refused by AWS", "begin it with a letter or digit");
    } else if !name.is_empty() {
        CLUSTER_NAME.check(errors, "clusterName", &name);
    }
    name
}

/// Adds an error if the scaling group of an InstanceGroup would have a name that AWS refuses.
pub(crate) fn check_scaling_group_name(errors: &mut SpecErrors, group: &str, scaling_group: &str) {
    let length = scaling_group.chars().count();
    if length > MAX_SCALING_GROUP_NAME {
        let rule = format!(
            "gives the scaling group a name of {length} characters (cluster, namespace and name), but AWS allows {MAX_SCALING_GROUP_NAME}"
        );
        errors.push_error(SpecError::invalid("metadata.name", group, rule, "use a shorter name"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(limit: &TextLimit, text: &str) -> Vec<SpecError> {
        let mut errors = SpecErrors::under("spec");
        limit.check(&mut errors, "field", text);
        errors.into_errors()
    }

    #[test]
    fn text_that_aws_refuses_is_an_error() {
        for (limit, accepted, refused) in [
            (&CLUSTER_NAME, "demo-1_a".to_owned(), "demo.1".to_owned()),
            (&ROLE_NAME, "r".repeat(64), "r".repeat(65)),
            (&PROFILE_NAME, "a+=,.@-_".to_owned(), "path/name".to_owned()),
            (&HOOK_NAME, "team/drain".to_owned(), "drain nodes".to_owned()),
            (&HOOK_METADATA, "{\"a\": 1}\n".to_owned(), "\u{fc}".to_owned()),
            (&HOOK_ARN, "a".repeat(255), "a".repeat(256)),
            (&NODEGROUP_TEXT, "k".repeat(63), "k".repeat(64)),
            (&TAG_KEY, "k".repeat(128), "k".repeat(129)),
        ] {
            assert_eq!(errors(limit, &accepted), [], "{accepted}");
            let message = errors(limit, &refused).first().expect("an error").to_string();
            assert!(message.starts_with("spec.field") && message.contains("use 1 to"), "{message}");
            assert_eq!(errors(limit, "").len(), 1);
        }
    }

    #[test]
    fn cluster_name_begins_with_a_letter_or_digit() {
        let named = |name: &str| {
            let mut errors = SpecErrors::under("spec");
            cluster_name(&mut errors, &Some(name.into()));
            match errors.into_errors().len() {
                0 => Ok(()),
                count => Err(count),
            }
        };
        assert_eq!(
            (named("demo"), named("-demo"), named(""), named(&"c".repeat(101))),
            (Ok(()), Err(1), Err(1), Err(1))
        );
    }
}
