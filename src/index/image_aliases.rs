//! The image aliases that groups use, such as the recommended image of an operating system for an architecture.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// The aliases that this process has met.
#[derive(Default)]
pub(crate) struct ImageAliases(Mutex<BTreeMap<String, Alias>>);

#[derive(Clone)]
struct Alias {
    /// The SSM parameter in which AWS publishes the image.
    parameter: String,
    /// The image that it resolved to when no revision recorded it yet.
    first: Option<String>,
}

impl ImageAliases {
    /// Records that a group uses an alias that a revision records.
    pub(crate) fn note(&self, alias: &str, parameter: &str) {
        let mut aliases = self.0.lock().expect("lock is not poisoned");
        match aliases.get_mut(alias) {
            // The parameter names the version of the control plane.
            Some(known) if known.parameter == parameter => {}
            Some(known) => parameter.clone_into(&mut known.parameter),
            None => _ = aliases.insert(alias.to_owned(), Alias { parameter: parameter.to_owned(), first: None }),
        }
    }

    /// Records the image of an alias that no revision records yet. Returns the image of its first use: groups must not
    /// get different images until that is stored.
    pub(crate) fn first_resolved(&self, alias: &str, parameter: &str, image: String) -> String {
        self.note(alias, parameter);
        let mut aliases = self.0.lock().expect("lock is not poisoned");
        let known = aliases.get_mut(alias).expect("it was noted");
        known.first.get_or_insert(image).clone()
    }

    /// The images that aliases resolved to when no revision recorded them.
    pub(crate) fn first(&self) -> BTreeMap<String, String> {
        let aliases = self.0.lock().expect("lock is not poisoned");
        aliases.iter().filter_map(|(alias, known)| Some((alias.clone(), known.first.clone()?))).collect()
    }

    /// Forgets that these images were the first ones of their aliases: AWS may have published others since.
    pub(crate) fn forget_first(&self, refused: &BTreeSet<(String, String)>) {
        for (alias, known) in self.0.lock().expect("lock is not poisoned").iter_mut() {
            known.first.take_if(|image| refused.contains(&(alias.clone(), image.clone())));
        }
    }

    /// The SSM parameters by alias.
    pub(crate) fn parameters(&self) -> BTreeMap<String, String> {
        let aliases = self.0.lock().expect("lock is not poisoned");
        aliases.iter().map(|(alias, known)| (alias.clone(), known.parameter.clone())).collect()
    }

    /// Forgets all of them: without a policy, aliases resolve to AWS's present image.
    pub(crate) fn clear(&self) {
        self.0.lock().expect("lock is not poisoned").clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alias_keeps_the_image_that_it_was_met_with() {
        let aliases = ImageAliases::default();
        aliases.note("a/b/latest", "/1.33/a");
        assert!(aliases.first().is_empty());
        assert_eq!(aliases.first_resolved("a/b/latest", "/1.33/a", "ami-1".into()), "ami-1");
        assert_eq!(aliases.first_resolved("a/b/latest", "/1.34/a", "ami-2".into()), "ami-1");
        assert_eq!(aliases.parameters(), [("a/b/latest".to_owned(), "/1.34/a".to_owned())].into());
        assert_eq!(aliases.first(), [("a/b/latest".to_owned(), "ami-1".to_owned())].into());
        aliases.forget_first(&[("a/b/latest".to_owned(), "ami-0".to_owned())].into());
        assert_eq!(aliases.first_resolved("a/b/latest", "/1.34/a", "ami-2".into()), "ami-1", "another was aborted");
        aliases.forget_first(&[("a/b/latest".to_owned(), "ami-1".to_owned())].into());
        assert_eq!(aliases.first_resolved("a/b/latest", "/1.34/a", "ami-2".into()), "ami-2");
    }
}
