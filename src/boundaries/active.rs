//! Which boundaries are in force: the live ones, the last good ones, none, or nobody knows.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use crate::boundaries::{Boundaries, ConfigError, Warning};

/// The data of a ConfigMap.
pub type Data = BTreeMap<String, String>;

/// What is in force now.
#[derive(Clone, Debug, Default)]
pub struct InForce {
    /// The boundaries; `None` when groups run without.
    pub boundaries: Option<Arc<Boundaries>>,
    /// Their revision; empty without.
    pub revision: String,
    /// Where they come from.
    pub source: Source,
    /// What an admin should know about the live ones.
    pub warnings: Vec<Warning>,
}

/// Where the boundaries in force come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Source {
    /// Nothing has been looked at yet, or nobody can know: no write to AWS.
    #[default]
    Unknown,
    /// The live ConfigMap.
    Live,
    /// This cluster never had one.
    Never,
    /// The stored revision, because the live one is missing or broken.
    LastGood(String),
    /// The live one is missing or broken, none is stored, and groups were made with one.
    Unavailable(String),
}

/// Judges what is in force. Pure.
pub fn judge(live: Option<&Data>, last_good: Option<&Data>, groups_had_one: bool) -> (InForce, Option<ConfigError>) {
    let (why, error) = match live.map(Boundaries::parse) {
        Some(Ok((boundaries, warnings))) => return (in_force(boundaries, Source::Live, warnings), None),
        Some(Err(error)) => (format!("the ConfigMap instance-manager is broken: {error}"), Some(error)),
        None => ("the ConfigMap instance-manager is missing".to_owned(), None),
    };
    if let Some(Ok((boundaries, _))) = last_good.map(Boundaries::parse) {
        return (in_force(boundaries, Source::LastGood(why), Vec::new()), error);
    }
    let never = live.is_none() && last_good.is_none() && !groups_had_one;
    let source = if never { Source::Never } else { Source::Unavailable(why) };
    (InForce { source, ..InForce::default() }, error)
}

fn in_force(boundaries: Boundaries, source: Source, warnings: Vec<Warning>) -> InForce {
    InForce { revision: boundaries.revision(), boundaries: Some(Arc::new(boundaries)), source, warnings }
}

/// The boundaries in force, shared by all reconciles.
#[derive(Default)]
pub struct Current(RwLock<Arc<InForce>>);

impl Current {
    /// What is in force at this moment.
    pub fn get(&self) -> Arc<InForce> {
        self.0.read().expect("nobody panics holding it").clone()
    }

    /// From now on this is in force.
    pub fn set(&self, new: InForce) {
        *self.0.write().expect("nobody panics holding it") = Arc::new(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(boundaries: &str) -> Data {
        [("boundaries".to_owned(), boundaries.to_owned())].into()
    }

    #[test]
    fn a_broken_config_map_leaves_the_last_good_one_in_force() {
        let good = data("restricted: [spec.eks.configuration.image]");
        let broken = data("restricted: {");
        let (live, _) = judge(Some(&good), None, false);
        let (stored, error) = judge(Some(&broken), Some(&good), true);
        assert_eq!(live.revision, stored.revision);
        assert!(matches!(stored.source, Source::LastGood(_)));
        assert!(error.is_some());
    }

    #[test]
    fn without_any_revision_only_a_cluster_that_never_had_one_goes_on() {
        assert_eq!(judge(None, None, false).0.source, Source::Never);
        assert!(matches!(judge(None, None, true).0.source, Source::Unavailable(_)));
        assert!(matches!(judge(Some(&data("restricted: {")), None, false).0.source, Source::Unavailable(_)));
    }
}
