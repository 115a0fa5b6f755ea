//! Tells on the ConfigMap how far the roles have come on their way from aws-auth to access entries.

use std::sync::Arc;

use kube::ResourceExt;

use super::{Shared, tell};
use crate::api::names::CONFIG_MAP;
use crate::auth::migration_event::{Progress, statement};
use crate::auth::{JoinAuth, aws_auth};
use crate::k8s::Regarding;
use crate::plan::Told;

/// Looks with every poll, for ever. What holds for two looks and was not told last is told; a new leader tells anew.
pub async fn follow(shared: Arc<Shared>) {
    let poll = shared.corridor.settings.timing.poll.unsigned_abs();
    let (mut last, mut told) = (None, None);
    loop {
        tokio::time::sleep(poll).await;
        if !shared.writes() || shared.stores.missing().is_some() {
            (last, told) = (None, None);
            continue;
        }
        let (roles, without) = shared.stores.index.roles_without_entry();
        shared.metrics.roles(roles, without.len());
        let asked = shared.corridor.settings.join_auth;
        let moving = matches!(asked, JoinAuth::Both | JoinAuth::AccessEntries);
        let now = moving.then(|| progress(&shared, roles, without)).and_then(|progress| statement(asked, &progress));
        if now == last && now != told {
            if let Some(now) = &now {
                announce(now, &shared).await;
            }
            told.clone_from(&now);
        }
        last = now;
    }
}

fn progress(shared: &Shared, roles: usize, without: Vec<String>) -> Progress {
    let map_roles = shared.stores.map_roles.read().expect("nobody panics holding it").clone().flatten();
    let ours = shared.stores.index.authorised_roles();
    let is_ours = |role: &String| ours.contains(&aws_auth::without_path(role).to_lowercase());
    let (leaving, foreign): (Vec<_>, Vec<_>) = aws_auth::roles(map_roles.as_deref()).into_iter().partition(is_ours);
    Progress { roles, without, leaving: leaving.len(), foreign }
}

async fn announce(told: &Told, shared: &Shared) {
    let live = shared.stores.config.lock().await.clone().flatten();
    let about = Regarding {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some(shared.config_namespace.clone()),
        name: CONFIG_MAP.into(),
        uid: live.as_ref().and_then(ResourceExt::uid).unwrap_or_default(),
    };
    tell(&about, told, shared).await;
}
