//! Publishes on the ConfigMap how far the migration of node roles from aws-auth to access entries is.

use std::sync::Arc;

use super::context::{Context, publish_event};
use crate::auth::migration::{MigrationProgress, migration_event};
use crate::auth::{JoinAuth, aws_auth};

/// Checks the progress at every poll interval and never returns. An event is published once two checks in a row agree on
/// it and it differs from the last published one. A new leader publishes it again.
pub(crate) async fn run(ctx: Arc<Context>) {
    let poll = ctx.planner.settings.timing.poll_interval.unsigned_abs();
    let (mut last, mut published) = (None, None);
    loop {
        tokio::time::sleep(poll).await;
        if !ctx.can_write() || ctx.stores.not_synced().is_some() {
            (last, published) = (None, None);
            continue;
        }
        let (roles, missing) = ctx.stores.group_index.roles_without_access_entry();
        ctx.metrics.set_roles(roles, missing.len());
        let join_auth = ctx.planner.settings.join_auth;
        let is_migrating = matches!(join_auth, JoinAuth::Both | JoinAuth::AccessEntries);
        let current = is_migrating
            .then(|| migration_progress(&ctx, roles, missing))
            .and_then(|progress| migration_event(join_auth, &progress));
        if current == last && current != published {
            if let Some(event) = &current {
                publish_event(&ctx.boundaries_target().await, event, &ctx).await;
            }
            published.clone_from(&current);
        }
        last = current;
    }
}

fn migration_progress(ctx: &Context, roles: usize, missing: Vec<String>) -> MigrationProgress {
    let recorded = ctx.stores.group_index.aws_auth_roles();
    let is_recorded = |role: &String| recorded.contains(&aws_auth::without_path(role).to_lowercase());
    let (remaining, foreign): (Vec<_>, Vec<_>) = ctx.stores.map_roles().role_arns().into_iter().partition(is_recorded);
    MigrationProgress { roles, missing, remaining_auth_entries: remaining.len(), foreign }
}
