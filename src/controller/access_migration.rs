//! Publishes on the ConfigMap how far the migration of node roles from aws-auth to access entries is.

use std::sync::Arc;

use super::context::{Context, publish_event};
use crate::auth::migration::{MigrationProgress, migration_event};
use crate::auth::{JoinAuth, aws_auth};
use crate::plan::Event;

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
        let current = check(&ctx);
        if current == last && current != published {
            if let Some(event) = &current {
                publish_event(&ctx.boundaries_target().await, event, &ctx).await;
            }
            published.clone_from(&current);
        }
        last = current;
    }
}

/// Sets the metrics of the roles, and returns the event about the progress; `None` without a migration.
fn check(ctx: &Context) -> Option<Event> {
    let (roles, missing) = ctx.stores.group_index.roles_without_access_entry();
    ctx.metrics.set_roles(roles, missing.len());
    let join_auth = ctx.planner.settings.join_auth;
    let is_migrating = matches!(join_auth, JoinAuth::Both | JoinAuth::AccessEntries);
    let progress = is_migrating.then(|| migration_progress(ctx, roles, missing))?;
    migration_event(join_auth, &progress)
}

fn migration_progress(ctx: &Context, roles: usize, missing: Vec<String>) -> MigrationProgress {
    let recorded = ctx.stores.group_index.aws_auth_roles();
    let is_recorded = |role: &String| recorded.contains(&aws_auth::without_path(role).to_lowercase());
    let (remaining, foreign): (Vec<_>, Vec<_>) = ctx.stores.map_roles().role_arns().into_iter().partition(is_recorded);
    MigrationProgress { roles, missing, remaining_auth_entries: remaining.len(), foreign }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::GroupObject;
    use crate::controller::fake;
    use crate::k8s::fake::{client, failure};

    /// An admin who removes aws-auth too early, because the metrics count no role, locks nodes out.
    #[tokio::test]
    async fn roles_with_and_without_access_entries_are_in_the_metrics() {
        let ctx = fake::context(client(|_| failure(404, "NotFound", "there is none"))).ctx;
        let upsert = |name: &str, access_entry: Value| {
            let role = format!("arn:aws:iam::1:role/{name}");
            let join = json!({"awsAuth": true, "accessEntry": access_entry});
            let status = json!({"nodesInstanceRoleArn": role, "join": join, "managed": {"authEntries": [role]}});
            let group: GroupObject = serde_json::from_value(json!({
                "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
                "metadata": {"namespace": "team", "name": name}, "spec": {}, "status": status,
            }))
            .expect("a group");
            ctx.stores.group_index.upsert(&group);
        };
        let names = ["instance_manager_roles", "instance_manager_roles_without_access_entry"];
        let shown = || names.map(|name| ctx.metrics.value(name).expect("a series"));
        assert_eq!(shown(), ["0", "0"]);
        upsert("a", Value::Null);
        upsert("b", json!("EC2_LINUX"));
        check(&ctx);
        assert_eq!(shown(), ["2", "1"]);
        upsert("a", json!("EC2_LINUX"));
        check(&ctx);
        assert_eq!(shown(), ["2", "0"]);
    }
}
