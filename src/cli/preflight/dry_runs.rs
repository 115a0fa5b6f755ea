//! Checks EC2 permissions with dry runs, for when IAM policy simulation is not available.

use futures::{StreamExt, stream};

use super::{Finding, PreflightCheck};
use crate::api::names::tag;
use crate::aws::{Aws, AwsErrorKind, DryRun, DryRunTarget, LaunchTemplate, Tag};

/// Checks every EC2 action that supports a dry run.
///
/// # Errors
///
/// The caller is unknown or does not have the role's credentials, so that dry runs would not check the role.
pub(crate) async fn check(
    aws: &Aws,
    cluster: &str,
    role: Option<&str>,
    templates: &[LaunchTemplate],
) -> Result<Vec<PreflightCheck>, String> {
    let caller = aws.iam.caller_arn().await.map_err(|error| format!("cannot determine the caller: {error}"))?;
    if role.is_some_and(|role| !has_role_credentials(&caller, role)) {
        return Err(format!("EC2 dry runs would check {caller}, which is not this role; use the role's credentials"));
    }
    let tags = [Tag { key: tag::CLUSTER_NAME.into(), value: cluster.into() }];
    let tagged = templates.iter().find(|t| tags.iter().all(|tag| t.tags.contains(tag)));
    let try_action = |action: DryRun| {
        let tags = &tags;
        async move {
            let template = match action.target() {
                DryRunTarget::Nothing => None,
                DryRunTarget::Any => Some(tagged.or(templates.first())),
                DryRunTarget::Tagged => Some(tagged),
            };
            match template {
                Some(None) => (action, Err("no launch template exists yet to try it with".to_owned())),
                Some(template @ Some(_)) => (action, dry_run(aws, action, template, tags).await),
                None => (action, dry_run(aws, action, None, tags).await),
            }
        }
    };
    let results: Vec<_> = stream::iter(DryRun::ALL).map(try_action).buffered(4).collect().await;
    let allowed = results.iter().filter(|(_, result)| *result == Ok(true)).count();
    let message = format!("{caller} may do {allowed} of EC2's actions, as dry runs show");
    let summary = PreflightCheck::new("iam", if allowed > 0 { Finding::Ok } else { Finding::Note }, message);
    let failed = results.into_iter().filter_map(|(action, result)| failed_check(action.name(), result, &caller));
    Ok([summary].into_iter().chain(failed).collect())
}

/// The check of an action that is denied, or whose dry run failed; `None` if it is allowed.
fn failed_check(name: &str, result: Result<bool, String>, caller: &str) -> Option<PreflightCheck> {
    let (finding, message) = match result {
        Ok(true) => return None,
        Ok(false) => (
            Finding::Missing,
            format!(
                "ec2:{name}, as a dry run shows of {caller}; add it to the role; instance-manager preflight --policy scaling-groups prints it"
            ),
        ),
        Err(why) => (Finding::Unknown, format!("ec2:{name}: {why}")),
    };
    Some(PreflightCheck::new("iam", finding, message))
}

/// Whether an action is allowed.
///
/// # Errors
///
/// Why the dry run is inconclusive.
async fn dry_run(aws: &Aws, action: DryRun, template: Option<&LaunchTemplate>, tags: &[Tag]) -> Result<bool, String> {
    match aws.ec2.dry_run(action, template, tags).await {
        Ok(()) => Ok(true),
        Err(error) if error.kind == AwsErrorKind::Denied => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether the caller ARN that AWS STS returns is a session of a role: `assumed-role/NAME/SESSION`, without the path.
fn has_role_credentials(caller: &str, role: &str) -> bool {
    let account = |arn: &str| arn.split(':').nth(4).map(str::to_owned);
    let name = role.rsplit('/').next();
    let assumed = caller.split_once(":assumed-role/").and_then(|(_, rest)| rest.split('/').next());
    caller == role || (assumed.is_some() && assumed == name && account(caller) == account(role))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assumed_role_session_has_role_credentials() {
        let role = "arn:aws:iam::42:role/teams/blue/controller";
        assert!(has_role_credentials("arn:aws:sts::42:assumed-role/controller/session", role));
        for other in [
            "arn:aws:sts::42:assumed-role/another/controller",
            "arn:aws:sts::43:assumed-role/controller/session",
            "arn:aws:iam::42:user/controller",
        ] {
            assert!(!has_role_credentials(other, role), "{other}");
        }
    }
}
