//! Which ConfigMap is in force: fail closed, and survive a restart.

use std::{collections::BTreeMap, fmt};

use super::config::{Boundaries, ConfigError, KEYS, Warning};

/// Data of a ConfigMap.
pub type Data = BTreeMap<String, String>;

/// The boundaries that groups are merged with, or why there are none.
#[derive(Clone, Debug, PartialEq)]
pub enum InForce {
    /// The live ConfigMap is good. `store` holds what the last good revision must become, when it differs.
    Live {
        /// What it says.
        boundaries: Box<Boundaries>,
        /// What is odd about it.
        warnings: Vec<Warning>,
        /// Data to write to the ConfigMap of the last good revision.
        store: Option<Data>,
    },
    /// The live ConfigMap is missing or broken, and the last good revision stays in force.
    LastGood {
        /// What it says.
        boundaries: Box<Boundaries>,
        /// What is wrong with the live one.
        problem: Problem,
    },
    /// There has never been a ConfigMap: groups run without boundaries.
    Never,
    /// The live ConfigMap is missing or broken and nothing stands in for it: no write to AWS, for any group.
    Unavailable {
        /// What is wrong with the live one.
        problem: Problem,
    },
}

/// What is wrong with the live ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It is not there.
    Missing,
    /// It cannot be used.
    Broken(ConfigError),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the ConfigMap is missing; put it back, or delete the stored revision as well to run without boundaries"),
            Self::Broken(error) => write!(f, "the ConfigMap is broken: {error}"),
        }
    }
}

impl InForce {
    /// Decides from the live ConfigMap, the last good revision (`None` only where an API server said that it is not there), and
    /// whether any group carries a hash of a merge (`status.configMD5`), which says that there once was a ConfigMap.
    pub fn decide(live: Option<&Data>, last_good: Option<&Data>, any_group_was_merged: bool) -> Self {
        let problem = match live.map(Boundaries::parse) {
            Some(Ok((boundaries, warnings))) => {
                let data = live.map(known).unwrap_or_default();
                let store = (last_good.map(known).as_ref() != Some(&data)).then_some(data);
                return Self::Live { boundaries: Box::new(boundaries), warnings, store };
            }
            Some(Err(error)) => Problem::Broken(error),
            None => Problem::Missing,
        };
        match last_good.map(Boundaries::parse) {
            Some(Ok((boundaries, _))) => Self::LastGood { boundaries: Box::new(boundaries), problem },
            None if problem == Problem::Missing && !any_group_was_merged => Self::Never,
            Some(Err(_)) | None => Self::Unavailable { problem },
        }
    }
}

/// The keys that have a meaning; others come and go without effect.
fn known(data: &Data) -> Data {
    data.iter().filter(|(key, _)| KEYS.contains(&key.as_str())).map(|(key, text)| (key.clone(), text.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(defaults: &str) -> Data {
        Data::from([("defaults".to_owned(), defaults.to_owned()), ("note".to_owned(), "x".to_owned())])
    }

    fn decide(live: Option<&str>, last_good: Option<&str>, merged: bool) -> &'static str {
        match InForce::decide(live.map(data).as_ref(), last_good.map(data).as_ref(), merged) {
            InForce::Live { store: Some(_), .. } => "live, store",
            InForce::Live { store: None, .. } => "live",
            InForce::LastGood { .. } => "last good",
            InForce::Never => "never",
            InForce::Unavailable { .. } => "unavailable",
        }
    }

    #[test]
    fn a_good_config_map_is_in_force_and_stored_once() {
        assert_eq!(decide(Some("spec: {}"), None, true), "live, store");
        assert_eq!(decide(Some("spec: {}"), Some("spec: {}"), true), "live");
        assert_eq!(decide(Some("spec: {}"), Some("spec: {eks: {}}"), true), "live, store");
        assert_eq!(decide(Some("spec: {}"), Some("spec: ["), true), "live, store");
    }

    #[test]
    fn the_last_good_revision_stands_in_for_a_missing_or_broken_one() {
        for live in [None, Some("spec: ["), Some("spec: {eks: {minSize: x}}")] {
            assert_eq!(decide(live, Some("spec: {}"), false), "last good", "{live:?}");
        }
    }

    #[test]
    fn without_a_stored_revision_it_fails_closed() {
        assert_eq!(decide(None, None, true), "unavailable");
        assert_eq!(decide(None, Some("spec: ["), false), "unavailable");
        assert_eq!(decide(Some("spec: ["), None, false), "unavailable");
        assert_eq!(decide(None, None, false), "never");
    }
}
