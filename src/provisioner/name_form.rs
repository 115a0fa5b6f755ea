//! The forms of a group's derived names.

/// The form of the names of a group's AWS resources. A group uses the first form whose names belong to no other owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameForm {
    /// The names that keikoproj/instance-manager derives as well.
    Plain,
    /// With a hash of cluster, namespace and name, because two groups of one cluster can derive the same plain name.
    Hashed,
    /// With a hash that also contains the region. IAM is global, and clusters of one name in several regions derive the
    /// same names in both other forms.
    RegionHashed,
}

impl NameForm {
    /// All forms, in the order in which a group tries them.
    pub(crate) const ALL: [NameForm; 3] = [NameForm::Plain, NameForm::Hashed, NameForm::RegionHashed];

    /// The form to use when names of this form belong to another owner.
    pub(crate) fn next(self) -> Option<Self> {
        match self {
            NameForm::Plain => Some(NameForm::Hashed),
            NameForm::Hashed => Some(NameForm::RegionHashed),
            NameForm::RegionHashed => None,
        }
    }

    /// The text whose hash the names contain; `None` for names without a hash.
    pub(crate) fn hashed_text(self, cluster: &str, namespace: &str, name: &str, region: &str) -> Option<String> {
        let identity = format!("{cluster}/{namespace}/{name}");
        match self {
            NameForm::Plain => None,
            NameForm::Hashed => Some(identity),
            NameForm::RegionHashed => Some(format!("{identity}/{region}")),
        }
    }
}
