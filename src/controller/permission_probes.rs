//! Checks with IAM and the API server for missing permissions that block rotations. The controller thus notices a
//! restored permission without evicting pods for a try.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::OnceCell;

use super::context::Context;
use super::requeue;
use crate::aws::{Aws, AwsErrorKind, AwsResult, PolicyDecision, policies};
use crate::index::denied_rotations::{Permission, PermissionAnswer};

/// How many times per period the controller checks whether a question is due.
const CHECKS_PER_PERIOD: u32 = 10;

/// Checks each permission that blocks a rotation, once a period, and never returns.
pub(crate) async fn run(ctx: Arc<Context>) {
    let (state, period) = (&ctx.planner.process_state, requeue::permission_period(ctx.planner.settings.resync_period));
    let pause = (period.unsigned_abs() / CHECKS_PER_PERIOD).max(Duration::from_millis(100));
    loop {
        tokio::time::sleep(pause).await;
        if !ctx.can_write() {
            continue;
        }
        for permission in state.denied_rotations(|holds| holds.due(period, Timestamp::now())) {
            probe(&permission, &ctx, Timestamp::now()).await;
        }
    }
}

/// The result of a permission check by IAM or the API server, at most one period old. Rotations that were blocked for
/// lack of it continue once it is granted.
pub(super) async fn probe(permission: &Permission, ctx: &Context, now: Timestamp) -> PermissionAnswer {
    let (state, period) = (&ctx.planner.process_state, requeue::permission_period(ctx.planner.settings.resync_period));
    if let Some(answer) = state.denied_rotations(|holds| holds.recent_answer(permission, period, now)) {
        return answer;
    }
    let answer = match permission {
        Permission::Aws { action, cluster } => probe_iam(action, cluster, ctx).await,
        Permission::Kube { verb, resource, namespace } => {
            match ctx.planner.kube.is_allowed(verb, resource, namespace.as_deref()).await {
                Ok(true) => PermissionAnswer::Allowed,
                Ok(false) => PermissionAnswer::Denied,
                Err(error) => {
                    tracing::debug!(%error, ?permission, "the API server does not say whether a call is allowed");
                    PermissionAnswer::Unknown
                }
            }
        }
    };
    let unblocked_groups = state.answer_permission(permission, answer, now);
    if !unblocked_groups.is_empty() {
        tracing::info!(?permission, groups = unblocked_groups.len(), "permission restored");
    }
    ctx.enqueue_keys(unblocked_groups);
    answer
}

async fn probe_iam(action: &str, cluster: &str, ctx: &Context) -> PermissionAnswer {
    let (aws, region) = (ctx.planner.inventory.aws(), &ctx.region);
    let role = match own_role(aws, &ctx.own_role).await {
        Ok(role) => role,
        Err(error) => {
            tracing::debug!(%error, "the controller's AWS role is not known");
            return PermissionAnswer::Unknown;
        }
    };
    let Some(simulation) = policies::simulation_of(action, region, &role, cluster) else {
        return PermissionAnswer::Unknown;
    };
    match aws.iam.simulate_policy(&role, &simulation).await.as_deref() {
        Ok([(_, PolicyDecision::Allowed)]) => PermissionAnswer::Allowed,
        Ok([(_, PolicyDecision::Denied)]) => PermissionAnswer::Denied,
        Ok([(_, PolicyDecision::Unclear)]) => PermissionAnswer::DeniedUnlessConditions,
        Ok(_) => PermissionAnswer::Unknown,
        Err(error) => {
            tracing::debug!(%error, action, "IAM does not say whether the controller may call an action");
            PermissionAnswer::Unknown
        }
    }
}

/// The ARN of the controller's role, which `known` keeps. The ARN of its session, which STS gives, lacks the role's path.
///
/// A role that the controller may not read is taken for one without a path, until it may.
async fn own_role(aws: &Aws, known: &OnceCell<String>) -> AwsResult<String> {
    if let Some(role) = known.get() {
        return Ok(role.clone());
    }
    let caller = aws.iam.caller_arn().await?;
    let role = match role_of_session(&caller) {
        None => caller,
        Some((name, without_path)) => match aws.iam.get_role(&name).await {
            Ok(Some(role)) => role.arn,
            Ok(None) => return Ok(without_path),
            Err(error) if error.kind == AwsErrorKind::Denied => return Ok(without_path),
            Err(error) => return Err(error),
        },
    };
    Ok(known.get_or_init(|| async { role }).await.clone())
}

/// The name of the role of a session, and its ARN if it has no path; `None` for a caller that is not a role.
fn role_of_session(caller: &str) -> Option<(String, String)> {
    let (before, session) = caller.split_once(":assumed-role/")?;
    let name = session.split('/').next()?;
    Some((name.to_owned(), format!("{}:role/{name}", before.replace(":sts:", ":iam:"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::{AwsError, Role};

    #[test]
    fn role_is_found_by_the_arn_of_its_session() {
        let session = "arn:aws-cn:sts::42:assumed-role/instance-manager/eks-blue";
        let role = ("instance-manager".to_owned(), "arn:aws-cn:iam::42:role/instance-manager".to_owned());
        assert_eq!(role_of_session(session), Some(role));
        assert_eq!(role_of_session("arn:aws:iam::42:user/person"), None);
    }

    /// IAM knows no role by an ARN without its path, so every question would stay without an answer until a restart.
    #[tokio::test]
    async fn role_with_a_path_is_found_by_name_and_a_guess_is_not_kept() {
        let (fake, known) = (Arc::new(FakeAws::default()), OnceCell::new());
        let aws = fake.aws();
        let fail = |code, status| {
            let error = AwsError::from_response("IAM", "GetRole", code, "", status);
            fake.update(|state| state.failure = Some(error));
        };
        fail("Throttling", 400);
        assert_eq!(own_role(&aws, &known).await.unwrap_err().code, "Throttling");
        fail("AccessDenied", 403);
        assert_eq!(own_role(&aws, &known).await.unwrap(), "arn:aws:iam::42:role/instance-manager");
        let arn = "arn:aws:iam::42:role/team/instance-manager";
        let (id, name) = ("AROA".into(), "instance-manager".to_owned());
        let role = Role { id, name, arn: arn.into(), ..Role::default() };
        fake.update(|state| {
            state.failure = None;
            state.roles.insert(role.name.clone(), role);
        });
        assert_eq!(own_role(&aws, &known).await.unwrap(), arn);
        assert_eq!(own_role(&aws, &known).await.unwrap(), arn);
        assert_eq!(fake.calls("role"), 3, "what AWS said is kept");
    }
}
