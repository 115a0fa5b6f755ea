//! The events on the ConfigMap `instance-manager` about the state of its boundaries.

use k8s_openapi::api::core::v1::ConfigMap;

use crate::api::names::CONFIG_MAP;
use crate::boundaries::ConfigErrors;
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
use crate::controller::context::{Context, config_map_target, publish_event};
use crate::plan::{Event, EventKind, EventReason};

/// Publishes the state of the boundaries as events on the ConfigMap, for the admin.
pub(super) async fn publish_boundaries_events(
    live: Option<&ConfigMap>,
    active: &ActiveBoundaries,
    news: &News,
    errors: Option<&ConfigErrors>,
    ctx: &Context,
) {
    let target = config_map_target(&ctx.config_namespace, CONFIG_MAP, live);
    for event in boundaries_events(active, news, errors) {
        publish_event(&target, &event, ctx).await;
    }
}

/// What was not published on the ConfigMap yet.
pub(super) struct News {
    /// The content was not active before.
    pub is_newly_active: bool,
    /// How many of the first warnings were published: a process that stored this content as the last known good one did
    /// it.
    pub known_warnings: usize,
    /// The ConfigMap is not used because it cannot be stored as a BoundariesRevision.
    pub is_not_stored: bool,
}

impl News {
    /// Compares the active boundaries with those that were published last. After a start or a change of leader that
    /// state is unknown; `is_stored` is whether the last known good content equals the active one. Only the first
    /// `content_warnings` warnings were then published.
    pub(super) fn since(
        old: &ActiveBoundaries,
        active: &ActiveBoundaries,
        is_stored: bool,
        content_warnings: usize,
    ) -> Self {
        let has_started = old.source == BoundariesSource::Unknown;
        let has_changed = old.source != active.source || old.revision != active.revision;
        News {
            is_newly_active: if has_started { !is_stored } else { has_changed },
            known_warnings: if has_started && is_stored { content_warnings } else { 0 },
            is_not_stored: false,
        }
    }
}

/// The events about the state of the boundaries. Each error has an event of its own: a message has a maximum length.
pub(super) fn boundaries_events(active: &ActiveBoundaries, news: &News, errors: Option<&ConfigErrors>) -> Vec<Event> {
    let new_warnings = active.warnings.iter().skip(news.known_warnings);
    let mut events: Vec<_> =
        new_warnings.map(|w| Event::warning(EventReason::BoundariesWarning, w.to_string())).collect();
    match (&active.source, errors) {
        (BoundariesSource::LastKnownGood(why) | BoundariesSource::Unavailable(why), errors) => {
            let effect = match &active.source {
                BoundariesSource::LastKnownGood(_) => format!("revision {} stays active", active.revision),
                _ => "the controller changes nothing in AWS until a valid ConfigMap is in use".to_owned(),
            };
            let Some(errors) = errors else {
                let reason = match news.is_not_stored {
                    true => EventReason::BoundariesNotStored,
                    false => EventReason::BoundariesMissing,
                };
                events.push(Event::warning(reason, format!("{why}; {effect}")));
                return events;
            };
            let listed = errors.errors.iter().map(|error| (error.reason(), error.to_string()));
            let omission = errors.omission().map(|omission| (errors.reason(), omission));
            events.extend(listed.chain(omission).map(|(reason, error)| {
                Event::for_condition(
                    EventKind::Warning,
                    reason,
                    format!("the ConfigMap instance-manager is invalid: {error}; {effect}"),
                )
            }));
        }
        (BoundariesSource::Live, _) if news.is_newly_active => events
            .push(Event::normal(EventReason::BoundariesApplied, format!("revision {} is active", active.revision))),
        (
            BoundariesSource::Live
            | BoundariesSource::NotConfigured
            | BoundariesSource::Unknown
            | BoundariesSource::RevisionMissing(_),
            _,
        ) => {}
    }
    events
}
