//! Which boundaries are in force: the live ones, the last good ones, none, or nobody knows.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use crate::boundaries::{Boundaries, ConfigError, ConfigWarning};

/// The data of a ConfigMap.
pub type ConfigMapData = BTreeMap<String, String>;

/// What is in force now.
#[derive(Clone, Debug, Default)]
pub struct ActiveBoundaries {
    /// The boundaries; `None` when groups run without.
    pub boundaries: Option<Arc<Boundaries>>,
    /// Their revision; empty without.
    pub revision: String,
    /// Where they come from.
    pub source: BoundariesSource,
    /// What an admin should know about the live ones.
    pub warnings: Vec<ConfigWarning>,
}

/// Where the boundaries in force come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum BoundariesSource {
    /// Nothing has been looked at yet, or nobody can know: no write to AWS.
    #[default]
    Unknown,
    /// The live ConfigMap.
    Live,
    /// This cluster never had one.
    NotConfigured,
    /// The stored revision, because the live one is missing or broken.
    LastGood(String),
    /// The live one is missing or broken, none is stored, and groups were made with one.
    Unavailable(String),
}

/// Judges what is in force. Pure.
pub fn select_active(
    live: Option<&ConfigMapData>,
    last_good: Option<&ConfigMapData>,
    groups_had_one: bool,
) -> (ActiveBoundaries, Option<ConfigError>) {
    let (why, error) = match live.map(Boundaries::parse) {
        Some(Ok((boundaries, warnings))) => return (active(boundaries, BoundariesSource::Live, warnings), None),
        Some(Err(error)) => (format!("the ConfigMap instance-manager is invalid: {error}"), Some(error)),
        None => ("the ConfigMap instance-manager is missing".to_owned(), None),
    };
    if let Some(Ok((boundaries, _))) = last_good.map(Boundaries::parse) {
        return (active(boundaries, BoundariesSource::LastGood(why), Vec::new()), error);
    }
    let not_configured = live.is_none() && last_good.is_none() && !groups_had_one;
    let source = if not_configured { BoundariesSource::NotConfigured } else { BoundariesSource::Unavailable(why) };
    (ActiveBoundaries { source, ..ActiveBoundaries::default() }, error)
}

fn active(boundaries: Boundaries, source: BoundariesSource, warnings: Vec<ConfigWarning>) -> ActiveBoundaries {
    ActiveBoundaries { revision: boundaries.revision(), boundaries: Some(Arc::new(boundaries)), source, warnings }
}

/// The boundaries in force, shared by all reconciles.
#[derive(Default)]
pub struct BoundariesCell(RwLock<Arc<ActiveBoundaries>>);

impl BoundariesCell {
    /// What is in force at this moment.
    pub fn get(&self) -> Arc<ActiveBoundaries> {
        self.0.read().expect("nobody panics holding it").clone()
    }

    /// From now on this is in force.
    pub fn set(&self, new: ActiveBoundaries) {
        *self.0.write().expect("nobody panics holding it") = Arc::new(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(boundaries: &str) -> ConfigMapData {
        [("boundaries".to_owned(), boundaries.to_owned())].into()
    }

    #[test]
    fn broken_config_map_falls_back_to_last_known_good() {
        let good = data("restricted: [spec.eks.configuration.image]");
        let broken = data("restricted: {");
        let (live, _) = select_active(Some(&good), None, false);
        let (stored, error) = select_active(Some(&broken), Some(&good), true);
        assert_eq!(live.revision, stored.revision);
        assert!(matches!(stored.source, BoundariesSource::LastGood(_)));
        assert!(error.is_some());
    }

    #[test]
    fn missing_boundaries_block_unless_never_configured() {
        assert_eq!(select_active(None, None, false).0.source, BoundariesSource::NotConfigured);
        assert!(matches!(select_active(None, None, true).0.source, BoundariesSource::Unavailable(_)));
        assert!(matches!(
            select_active(Some(&data("restricted: {")), None, false).0.source,
            BoundariesSource::Unavailable(_)
        ));
    }
}
