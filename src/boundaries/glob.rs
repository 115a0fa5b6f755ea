//! Globs: the patterns in which the policy and rollouts name namespaces, roles and clusters.

/// What an entry of the policy is compared with.
#[derive(Clone, Copy)]
pub(super) enum GlobKind {
    /// Names and ARNs of roles and policies.
    Iam,
    /// Names of namespaces.
    Namespace,
    /// One namespace, without wildcards.
    NamespaceName,
    /// One kind and its API group, without wildcards.
    KindName,
}

impl GlobKind {
    /// Whether any name has this form. IAM allows letters, digits and `+=,.@_-` in names (IAM User Guide, "IAM and AWS STS
    /// quotas, name requirements"); an ARN and a path add `:` and `/`.
    pub(super) fn can_match(self, glob: &str) -> bool {
        let of =
            |allowed: &str| !glob.is_empty() && glob.chars().all(|c| c.is_ascii_alphanumeric() || allowed.contains(c));
        let is_lower_case = !glob.contains(|c: char| c.is_ascii_uppercase());
        match self {
            Self::Iam => of("+=,.@_-:/*?"),
            Self::Namespace => of("-*?") && is_lower_case,
            Self::NamespaceName => of("-") && is_lower_case,
            Self::KindName => {
                of("-.") && glob.split_once('.').is_some_and(|(kind, group)| !kind.is_empty() && !group.is_empty())
            }
        }
    }

    pub(super) fn nothing(self) -> &'static str {
        match self {
            Self::Iam => "no role or policy",
            Self::Namespace | Self::NamespaceName => "no namespace",
            Self::KindName => "no kind",
        }
    }

    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::Iam => "use a name or an ARN, with * for any characters and ? for one",
            Self::Namespace => "use lower-case letters, digits and dashes, with * for any characters and ? for one",
            Self::NamespaceName => "use the name of a namespace; this list has no wildcards",
            Self::KindName => "use Kind.group, such as Workflow.argoproj.io; this list has no wildcards",
        }
    }
}

/// Whether a text matches one of the globs.
pub(super) fn matches_any_glob(globs: &[String], text: &str) -> bool {
    globs.iter().any(|glob| matches_glob(glob, text))
}

/// Whether a glob matches every text that another one matches. With a `?`, only its equal counts.
pub(super) fn covers_glob(glob: &str, other: &str) -> bool {
    // What stands for the star of the other one is a part of what the star of this one matches.
    glob == other || (!glob.contains('?') && matches_glob(glob, other))
}

/// Whether a text matches a glob: `*` matches any characters, `?` matches one.
pub(super) fn matches_glob(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut g, mut t) = (0, 0);
    // Position of the last star, and how much of the text it matches.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match (glob.get(g), star) {
            (Some('*'), _) => {
                star = Some((g, t));
                g += 1;
            }
            (Some(c), _) if *c == '?' || *c == text[t] => {
                g += 1;
                t += 1;
            }
            (_, Some((at, reach))) => {
                star = Some((at, reach + 1));
                g = at + 1;
                t = reach + 1;
            }
            (_, None) => return false,
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}
