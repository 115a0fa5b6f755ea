//! Tells on the ConfigMap how far the roles have come on their way from aws-auth to access entries.

use std::sync::Arc;

use kube::ResourceExt;

use super::{Context, publish_event};
use crate::api::names::CONFIG_MAP;
use crate::auth::migration::{MigrationProgress, migration_event};
use crate::auth::{JoinAuth, aws_auth};
use crate::k8s::EventTarget;
use crate::plan::Event;

/// Looks with every poll, for ever. What holds for two looks and was not told last is told; a new leader tells anew.
pub async fn run(shared: Arc<Context>) {
    let poll = shared.planner.settings.timing.poll_interval.unsigned_abs();
    let (mut last, mut told) = (None, None);
    loop {
        tokio::time::sleep(poll).await;
        if !shared.can_write() || shared.stores.not_synced().is_some() {
            (last, told) = (None, None);
            continue;
        }
        let (roles, without) = shared.stores.group_index.roles_without_access_entry();
        shared.metrics.set_roles(roles, without.len());
        let asked = shared.planner.settings.join_auth;
        let moving = matches!(asked, JoinAuth::Both | JoinAuth::AccessEntries);
        let now = moving
            .then(|| migration_progress(&shared, roles, without))
            .and_then(|progress| migration_event(asked, &progress));
        if now == last && now != told {
            if let Some(now) = &now {
                publish_progress(now, &shared).await;
            }
            told.clone_from(&now);
        }
        last = now;
    }
}

fn migration_progress(shared: &Context, roles: usize, missing: Vec<String>) -> MigrationProgress {
    let map_roles = shared.stores.map_roles.read().expect("nobody panics holding it").clone().flatten();
    let ours = shared.stores.group_index.aws_auth_roles();
    let is_ours = |role: &String| ours.contains(&aws_auth::without_path(role).to_lowercase());
    let (leaving, foreign): (Vec<_>, Vec<_>) = aws_auth::role_arns(map_roles.as_deref()).into_iter().partition(is_ours);
    MigrationProgress { roles, missing, remaining_auth_entries: leaving.len(), foreign }
}

async fn publish_progress(told: &Event, shared: &Context) {
    let live = shared.stores.config_map.lock().await.clone().flatten();
    let about = EventTarget {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some(shared.config_namespace.clone()),
        name: CONFIG_MAP.into(),
        uid: live.as_ref().and_then(ResourceExt::uid).unwrap_or_default(),
    };
    publish_event(&about, told, shared).await;
}
