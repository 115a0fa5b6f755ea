//! What EC2 itself says of the actions that it takes a dry run of, where IAM cannot be asked to simulate.

use futures::{StreamExt, stream};

use super::{Check, Finding};
use crate::api::names::tag;
use crate::aws::{Aws, AwsErrorKind, DryRun, DryRunTarget, LaunchTemplate, Tag};

/// Dry runs tell of whoever asks: an error in words when that is not the controller's role, or nobody knows.
pub async fn check(
    aws: &Aws,
    cluster: &str,
    role: Option<&str>,
    templates: &[LaunchTemplate],
) -> Result<Vec<Check>, String> {
    let caller = aws.iam.caller_arn().await.map_err(|error| format!("nobody could tell who asks: {error}"))?;
    if role.is_some_and(|role| !has_role_credentials(&caller, role)) {
        return Err(format!(
            "EC2's dry runs would tell of {caller}, who asks here; run this with the role's credentials"
        ));
    }
    let tags = [Tag { key: tag::CLUSTER_NAME.into(), value: cluster.into() }];
    let tagged = templates.iter().find(|t| tags.iter().all(|tag| t.tags.contains(tag)));
    let one = |action: DryRun| {
        let tags = &tags;
        async move {
            let template = match action.target() {
                DryRunTarget::Nothing => None,
                DryRunTarget::Any => Some(tagged.or(templates.first())),
                DryRunTarget::Tagged => Some(tagged),
            };
            match template {
                Some(None) => (action, Err("there is no launch template yet that it could be tried with".to_owned())),
                Some(template @ Some(_)) => (action, dry_run(aws, action, template, tags).await),
                None => (action, dry_run(aws, action, None, tags).await),
            }
        }
    };
    let answers: Vec<_> = stream::iter(DryRun::ALL).map(one).buffered(4).collect().await;
    let allowed = answers.iter().filter(|(_, answer)| *answer == Ok(true)).count();
    let message = format!("{caller} may do {allowed} of EC2's actions, as dry runs show");
    let first = Check::new("iam", if allowed > 0 { Finding::Fine } else { Finding::Note }, message);
    let rest = answers.into_iter().filter_map(|(action, answer)| failed_check(action.name(), answer, &caller));
    Ok([first].into_iter().chain(rest).collect())
}

/// A check of an action that is not allowed, or of which nobody knows.
fn failed_check(name: &str, answer: Result<bool, String>, caller: &str) -> Option<Check> {
    let (finding, message) = match answer {
        Ok(true) => return None,
        Ok(false) => (
            Finding::Missing,
            format!(
                "ec2:{name}, as a dry run shows of {caller}; add it: instance-manager preflight --policy prints the whole policy"
            ),
        ),
        Err(why) => (Finding::Unknown, format!("ec2:{name}: {why}")),
    };
    Some(Check::new("iam", finding, message))
}

/// Whether it is allowed, or why nobody knows.
async fn dry_run(aws: &Aws, action: DryRun, template: Option<&LaunchTemplate>, tags: &[Tag]) -> Result<bool, String> {
    match aws.ec2.dry_run(action, template, tags).await {
        Ok(()) => Ok(true),
        Err(error) if error.kind == AwsErrorKind::Denied => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a caller, as AWS STS tells it, has the credentials of a role: `assumed-role/NAME/SESSION`, without the path.
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
