//! Selection of the active boundaries: the live ConfigMap, the last known good revision, or none.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use crate::api::names::annotation;
use crate::boundaries::{Boundaries, ConfigErrors, ConfigWarning, RolloutPolicy, is_group_locked, merge_annotations};
use crate::lock::is_locked;

/// The data of a ConfigMap.
pub(crate) type ConfigMapData = BTreeMap<String, String>;

/// The boundaries that groups are merged with: the live or the last known good ones, or none.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActiveBoundaries {
    /// The boundaries; `None` when groups run without any.
    pub boundaries: Option<Arc<Boundaries>>,
    /// Hash of the ConfigMap's keys that count, by `content_hash`; empty without boundaries. Not the name of a BoundariesRevision.
    pub revision: String,
    /// Where the boundaries come from.
    pub source: BoundariesSource,
    /// Warnings about the live ConfigMap.
    pub warnings: Vec<ConfigWarning>,
}

impl ActiveBoundaries {
    /// The policy by which a new revision reaches the groups; `None` for all at once.
    pub(crate) fn rollout(&self) -> Option<&Arc<RolloutPolicy>> {
        self.boundaries.as_ref()?.rollout.as_ref()
    }

    /// Whether the groups of a namespace are not merged: there are no boundaries, or the namespace is excluded.
    pub(crate) fn excludes(&self, namespace: &str, annotations: &BTreeMap<String, String>) -> bool {
        self.boundaries.as_ref().is_none_or(|boundaries| boundaries.policy.is_excluded(namespace, annotations))
    }

    /// The value of an annotation of a group after the merge; `None` also when the group cannot be merged.
    pub(crate) fn annotation(
        &self,
        namespace: &str,
        namespace_annotations: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
        key: &str,
    ) -> Option<String> {
        let merged = match self.boundaries.as_ref().filter(|_| !self.excludes(namespace, namespace_annotations)) {
            Some(boundaries) => merge_annotations(boundaries, annotations).ok()?,
            None => annotations.clone(),
        };
        merged.get(key).cloned()
    }

    /// Whether the annotation `lock-upgrades` of a Namespace counts. While no boundaries are available, it does.
    pub(crate) fn is_namespace_lockable(&self, namespace: &str) -> bool {
        self.boundaries.as_ref().is_none_or(|boundaries| boundaries.policy.is_namespace_lockable(namespace))
    }

    /// One sentence for each annotation of a Namespace that the policy takes the effect from.
    pub(crate) fn disallowed_annotations(
        &self,
        namespace: &str,
        annotations: &BTreeMap<String, String>,
    ) -> Vec<String> {
        let Some(policy) = self.boundaries.as_ref().map(|boundaries| &boundaries.policy) else { return Vec::new() };
        let is_lock = is_locked(annotations) && !policy.is_namespace_lockable(namespace);
        let requests = annotation::is_true(annotations, annotation::CONFIG_EXCLUDED);
        let is_exclusion = requests && !policy.is_excluded(namespace, annotations);
        let found = [
            (is_lock, annotation::LOCK_UPGRADES, "lockableNamespaces"),
            (is_exclusion, annotation::CONFIG_EXCLUDED, "excludableNamespaces"),
        ];
        let found = found.into_iter().filter(|(is_disallowed, ..)| *is_disallowed);
        found
            .map(|(_, key, list)| {
                format!("{key} has no effect, because policy.{list} does not name {namespace}; ask your cluster admin")
            })
            .collect()
    }

    /// Whether the annotation `lock-upgrades` of a group, or the admin's in its place, locks the group.
    pub(crate) fn is_group_locked(
        &self,
        namespace: &str,
        namespace_annotations: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> bool {
        let excluded = self.excludes(namespace, namespace_annotations);
        match &self.boundaries {
            Some(boundaries) => is_group_locked(boundaries, annotations, excluded),
            None => is_locked(annotations),
        }
    }
}

/// Source of the active boundaries.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum BoundariesSource {
    /// The ConfigMap was not read yet, or cannot be read. The controller writes nothing to AWS.
    #[default]
    Unknown,
    /// The live ConfigMap.
    Live,
    /// The cluster never had the ConfigMap.
    NotConfigured,
    /// The last known good revision, because the live ConfigMap is missing or invalid; the text gives the reason.
    LastKnownGood(String),
    /// The live ConfigMap is missing or invalid, no revision is stored, and existing groups were created with
    /// boundaries; the text gives the reason.
    Unavailable(String),
    /// The content that a group has is no longer stored; the text names what the group waits for.
    RevisionMissing(String),
}

impl BoundariesSource {
    /// The source in the log.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            BoundariesSource::Unknown => "unknown",
            BoundariesSource::Live => "live",
            BoundariesSource::NotConfigured => "not configured",
            BoundariesSource::LastKnownGood(_) => "last known good",
            BoundariesSource::Unavailable(_) => "unavailable",
            BoundariesSource::RevisionMissing(_) => "revision missing",
        }
    }

    /// Why the live ConfigMap is not used.
    pub(crate) fn why(&self) -> Option<&str> {
        match self {
            BoundariesSource::LastKnownGood(why)
            | BoundariesSource::Unavailable(why)
            | BoundariesSource::RevisionMissing(why) => Some(why),
            BoundariesSource::Unknown | BoundariesSource::Live | BoundariesSource::NotConfigured => None,
        }
    }
}

/// Selects the active boundaries, and returns the errors of the live ConfigMap if it is invalid. Pure.
pub(crate) fn select_active(
    live: Option<&ConfigMapData>,
    last_known_good: Option<&ConfigMapData>,
    groups_had_boundaries: bool,
) -> (ActiveBoundaries, Option<ConfigErrors>) {
    let (cause, errors) = match live.map(Boundaries::parse) {
        Some(Ok((boundaries, warnings))) => return (active(boundaries, BoundariesSource::Live, warnings), None),
        Some(Err(errors)) => (format!("the ConfigMap instance-manager is invalid: {errors}"), Some(errors)),
        None => ("the ConfigMap instance-manager is missing".to_owned(), None),
    };
    let warnings = errors.as_ref().map(|errors| errors.warnings.clone()).unwrap_or_default();
    if let Some(Ok((boundaries, _))) = last_known_good.map(Boundaries::parse) {
        return (active(boundaries, BoundariesSource::LastKnownGood(cause), warnings), errors);
    }
    let not_configured = live.is_none() && last_known_good.is_none() && !groups_had_boundaries;
    let source = if not_configured { BoundariesSource::NotConfigured } else { BoundariesSource::Unavailable(cause) };
    (ActiveBoundaries { source, warnings, ..ActiveBoundaries::default() }, errors)
}

/// The active boundaries while the live ConfigMap cannot be used although it is valid. Pure.
pub(crate) fn without_live(cause: String, last_known_good: Option<&ConfigMapData>) -> ActiveBoundaries {
    match last_known_good.map(Boundaries::parse) {
        Some(Ok((boundaries, _))) => active(boundaries, BoundariesSource::LastKnownGood(cause), Vec::new()),
        Some(Err(_)) | None => {
            ActiveBoundaries { source: BoundariesSource::Unavailable(cause), ..ActiveBoundaries::default() }
        }
    }
}

fn active(boundaries: Boundaries, source: BoundariesSource, warnings: Vec<ConfigWarning>) -> ActiveBoundaries {
    ActiveBoundaries { revision: boundaries.revision(), boundaries: Some(Arc::new(boundaries)), source, warnings }
}

/// The active boundaries, shared by all reconciles.
#[derive(Default)]
pub(crate) struct BoundariesCell(RwLock<Arc<ActiveBoundaries>>);

impl BoundariesCell {
    /// The active boundaries at this moment. A later change does not affect the returned value.
    pub(crate) fn get(&self) -> Arc<ActiveBoundaries> {
        self.0.read().expect("lock is not poisoned").clone()
    }

    /// Replaces the active boundaries.
    pub(crate) fn set(&self, new: impl Into<Arc<ActiveBoundaries>>) {
        *self.0.write().expect("lock is not poisoned") = new.into();
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
        assert!(matches!(stored.source, BoundariesSource::LastKnownGood(_)));
        assert!(error.is_some());
    }

    #[test]
    fn annotations_that_the_policy_disallows_are_reported() {
        let annotations = BTreeMap::from(
            [annotation::LOCK_UPGRADES, annotation::CONFIG_EXCLUDED].map(|key| (key.into(), "true".into())),
        );
        let warnings = |policy: &str| {
            let config = [("policy".to_owned(), policy.to_owned())].into();
            select_active(Some(&config), None, true).0.disallowed_annotations("team", &annotations)
        };
        assert_eq!(warnings(""), [""; 0]);
        let both = warnings("{lockableNamespaces: [ops], excludableNamespaces: []}");
        assert!(both[0].contains("lock-upgrades has no effect, because policy.lockableNamespaces"), "{both:?}");
        assert!(both[1].contains("config-excluded has no effect, because policy.excludableNamespaces"), "{both:?}");
        assert_eq!(warnings("{lockableNamespaces: [team], excludableNamespaces: ['t*']}"), [""; 0]);
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
