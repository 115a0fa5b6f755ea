//! `preflight`: checks whether a cluster is ready for the cut-over from another controller. It changes nothing.

mod check;
mod dry_runs;
mod groups;
mod iam;
mod kubernetes;

use std::process::ExitCode;

use super::args::{OutputFormat, PreflightArgs, Target};
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
        Err(error) if error.is::<ConnectError>() => {
            checks.push(PreflightCheck::new("aws", Finding::Missing, error.to_string()))
        }
        Err(error) => checks.push(PreflightCheck::new("groups", Finding::Missing, format!("{error:#}"))),
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
    let missing = checks.iter().any(|check| check.finding == Finding::Missing);
    Ok(ExitCode::from(if missing { 2 } else { 0 }))
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
