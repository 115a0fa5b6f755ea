//! `preflight`: checks whether a cluster is ready for the cut-over from another controller. It changes nothing.

mod check;
mod dry_runs;
mod groups;
mod iam;
mod kubernetes;

use std::process::ExitCode;

use super::args::{OutputFormat, PreflightArgs, Target};
use super::missing_permissions::MissingPermissions;
use super::output;
use super::plan::snapshot::ClusterSnapshot;
use crate::aws::sdk::ConnectError;
pub(crate) use check::{Finding, PreflightCheck};

/// Runs the command: 0 when the cluster is ready, 2 when something is missing, 1 on an error.
pub async fn run(args: PreflightArgs) -> anyhow::Result<ExitCode> {
    let client = args.cluster.connection.connect().await?;
    let controller = args.cluster.connection.connect_as(args.r#as.as_deref()).await?;
    let namespace = &args.cluster.config_namespace;
    let mut checks = vec![kubernetes::version(&client).await, kubernetes::crd(&client).await];
    checks.extend(kubernetes::permissions(&controller, namespace, args.r#as.is_some()).await);
    let snapshot = ClusterSnapshot::read(&args.cluster, &Target::All, None).await;
    match &snapshot {
        // The policy names the cluster and the account, which the snapshot contains.
        Err(_) if args.policy.is_some() => return snapshot.map(|_| ExitCode::FAILURE),
        Err(error) => checks.extend(unread_checks(error)),
        Ok(snapshot) => {
            let groups::GroupChecks { checks: group_checks, cluster, templates, provisioners } =
                groups::check_groups(snapshot, &args).await?;
            let policies = iam::IamPolicies::new(&snapshot.region, cluster.as_ref());
            if let Some(name) = &args.policy {
                output::print(format!("{}\n", policies.text(name)?).as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            let (aws, role) = (snapshot.planner.inventory.aws(), args.role_arn.as_deref());
            checks.extend(iam::check(&policies, &provisioners, aws, role, &templates).await);
            checks.extend(kubernetes::status_writers(&client, namespace, snapshot).await);
            checks.extend(group_checks);
        }
    }
    let printed = match args.output {
        OutputFormat::Text => text(&checks),
        OutputFormat::Yaml => serde_yaml::to_string(&serde_json::to_value(&checks)?)?,
        OutputFormat::Json => serde_json::to_string_pretty(&checks)? + "\n",
    };
    output::print(printed.as_bytes())?;
    Ok(ExitCode::from(exit_code(&checks, snapshot.is_ok())))
}

/// The checks that need the objects of the cluster, when these could not be read: only a permission or credentials that
/// the caller lacks are missing. What was not checked is named.
fn unread_checks(error: &anyhow::Error) -> Vec<PreflightCheck> {
    let (failed, finding, message) = match () {
        () if error.is::<ConnectError>() => ("aws", Finding::Missing, error.to_string()),
        () if error.is::<MissingPermissions>() => ("groups", Finding::Missing, error.to_string()),
        () => ("groups", Finding::Unknown, output::describe_error(error)),
    };
    let others = ["iam", "writers", "groups"].into_iter().filter(|area| *area != failed);
    let unknown = |area| PreflightCheck::new(area, Finding::Unknown, format!("not checked; see the line of {failed}"));
    [PreflightCheck::new(failed, finding, message)].into_iter().chain(others.map(unknown)).collect()
}

/// 2 when something is missing; 1 when the objects of the cluster could not be read for another reason; otherwise 0.
fn exit_code(checks: &[PreflightCheck], is_read: bool) -> u8 {
    match () {
        () if checks.iter().any(|check| check.finding == Finding::Missing) => 2,
        () if !is_read => 1,
        () => 0,
    }
}

fn text(checks: &[PreflightCheck]) -> String {
    let word = |finding| match finding {
        Finding::Ok => "ok",
        Finding::Note => "note",
        Finding::Unknown => "unknown",
        Finding::Missing => "MISSING",
    };
    let line = |check: &PreflightCheck| format!("{:8} {:11} {}\n", word(check.finding), check.area, check.message);
    let count = |finding| checks.iter().filter(|check| check.finding == finding).count();
    let mut out: String = checks.iter().map(line).collect();
    out += &match (count(Finding::Missing), count(Finding::Unknown)) {
        (0, 0) => "\nReady for the cut-over. Nothing has been changed.\n".to_owned(),
        (0, unknown) => format!("\nNothing is missing; {unknown} checks are unknown. Nothing has been changed.\n"),
        (missing, _) => format!("\nNot ready: {missing} checks must be fixed first. Nothing has been changed.\n"),
    };
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::missing_permissions::PermissionCheck;
    use crate::k8s::KubeError;

    fn findings(checks: &[PreflightCheck]) -> Vec<(&str, Finding)> {
        checks.iter().map(|check| (check.area, check.finding)).collect()
    }

    /// An admin must not look for a missing object or permission when the API server did not answer in time.
    #[test]
    fn api_server_that_does_not_answer_is_unknown_and_not_missing() {
        let away = KubeError::Unavailable { verb: "list", resource: "nodes".into(), source: "timed out".into() };
        let checks = unread_checks(&away.into());
        let expected = ["groups", "iam", "writers"].map(|area| (area, Finding::Unknown));
        assert_eq!(findings(&checks), expected, "what was not checked is named");
        assert!(checks[0].message.contains("cannot list nodes: timed out"), "{}", checks[0].message);
        assert_eq!([exit_code(&checks, false), exit_code(&[], true)], [1, 0]);
    }

    #[test]
    fn missing_permission_and_missing_credentials_are_missing() {
        let (verb, message, source) = ("list", "no".to_owned(), "no".into());
        let denied = Err::<(), _>(KubeError::Forbidden { verb, resource: "nodes".into(), message, source });
        let mut permissions = PermissionCheck::default();
        permissions.allowed(denied, None, None).expect("an answer");
        let checks = unread_checks(&permissions.missing().expect("a missing permission").into());
        assert_eq!(findings(&checks)[0], ("groups", Finding::Missing));
        assert!(checks[0].message.contains("to list nodes"), "{}", checks[0].message);
        assert_eq!(exit_code(&checks, false), 2);
        let checks = unread_checks(&ConnectError::NoRegion.into());
        assert_eq!((findings(&checks)[0], checks.len()), (("aws", Finding::Missing), 4));
    }
}
