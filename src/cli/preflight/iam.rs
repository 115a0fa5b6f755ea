//! Checks that the controller's AWS role has the permissions in deploy/iam-policy.json.

use serde_json::Value;

use super::{Check, Finding, dry_runs};
use crate::aws::{Aws, AwsResult, Cluster, LaunchTemplate, PolicyDecision, PolicySimulation};

const POLICY_TEMPLATE: &str = include_str!("../../../deploy/iam-policy.json");

/// The IAM policy of the controller, filled in for one cluster.
pub struct IamPolicy {
    text: String,
    /// The name of the cluster that it is filled in for.
    cluster: Option<String>,
}

impl IamPolicy {
    /// Fills in the region and, if it is known, the cluster.
    pub fn new(region: &str, cluster: Option<&Cluster>) -> Self {
        let text = POLICY_TEMPLATE.replace("REGION", region);
        let Some(cluster) = cluster else { return IamPolicy { text, cluster: None } };
        let part = |n| cluster.arn.split(':').nth(n).unwrap_or_default();
        let text = text.replace("ACCOUNT", part(4)).replace("CLUSTER", &cluster.name);
        let text = text.replace("arn:aws:", &format!("arn:{}:", part(1)));
        IamPolicy { text, cluster: Some(cluster.name.clone()) }
    }

    /// As JSON, ready for `aws iam create-policy`.
    pub fn text(&self) -> &str {
        self.text.trim_end()
    }

    /// One simulation for each statement: its actions on one of its resources, with its conditions.
    fn simulations(&self) -> Vec<PolicySimulation> {
        let policy: Value = serde_json::from_str(&self.text).expect("deploy/iam-policy.json is JSON");
        let statements = policy["Statement"].as_array().cloned().unwrap_or_default();
        statements.iter().map(simulation).collect()
    }
}

fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(strings).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

fn simulation(statement: &Value) -> PolicySimulation {
    let resource = strings(&statement["Resource"]).into_iter().next().filter(|resource| resource != "*");
    let conditions = statement["Condition"].as_object().into_iter().flatten();
    let context = conditions.flat_map(|(_, keys)| keys.as_object().cloned().unwrap_or_default());
    PolicySimulation {
        actions: strings(&statement["Action"]),
        resource: resource.map(|resource| resource.replace('*', "preflight")),
        context: context
            .filter_map(|(key, value)| Some((key, strings(&value).into_iter().next()?.replace('*', "preflight"))))
            .collect(),
    }
}

/// Simulates the policy with IAM. Without permission for that, it uses EC2 dry runs and reports the rest as unknown.
pub async fn check(policy: &IamPolicy, aws: &Aws, role: Option<&str>, templates: &[LaunchTemplate]) -> Vec<Check> {
    let unknown = |message: String| Check::new("iam", Finding::Unknown, message);
    let Some(cluster) = &policy.cluster else {
        return vec![unknown("the cluster is unknown; set --cluster-name".into())];
    };
    let why = match role {
        None => "name the controller's AWS role with --role-arn".to_owned(),
        Some(role) => match simulate(policy, aws, role).await {
            Ok(checks) => return checks,
            Err(error) => format!("the actions of {role} cannot be simulated ({error})"),
        },
    };
    let (mut checks, dry_run_error) = match dry_runs::check(aws, cluster, role, templates).await {
        Ok(checks) => (checks, String::new()),
        Err(error) => (Vec::new(), format!("; {error}")),
    };
    checks.push(unknown(format!(
        "actions without a dry run were not checked: {why}; the caller needs iam:SimulatePrincipalPolicy on the role{dry_run_error}"
    )));
    checks
}

async fn simulate(policy: &IamPolicy, aws: &Aws, role: &str) -> AwsResult<Vec<Check>> {
    let mut checks = Vec::new();
    let mut allowed = 0;
    for simulation in policy.simulations() {
        for (action, decision) in aws.iam.simulate_policy(role, &simulation).await? {
            match decision {
                PolicyDecision::Allowed => allowed += 1,
                PolicyDecision::Unclear => checks.push(Check::new(
                    "iam",
                    Finding::Unknown,
                    format!("{action}: depends on conditions that the simulation does not know"),
                )),
                PolicyDecision::Denied => {
                    let on =
                        simulation.resource.as_deref().map(|resource| format!(" on {resource}")).unwrap_or_default();
                    let message = format!(
                        "{action}{on}; add it to the role; instance-manager preflight --policy prints the whole policy"
                    );
                    checks.push(Check::new("iam", Finding::Missing, message));
                }
            }
        }
    }
    if checks.is_empty() {
        let message = format!("{role} has all {allowed} permissions of deploy/iam-policy.json");
        checks.push(Check::new("iam", Finding::Ok, message));
    }
    Ok(checks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> IamPolicy {
        let cluster = Cluster {
            name: "blue".into(),
            arn: "arn:aws-cn:eks:cn-north-1:42:cluster/blue".into(),
            version: "1.33".into(),
            endpoint: String::new(),
            ca: String::new(),
            service_cidr: String::new(),
            vpc: String::new(),
            authentication_mode: String::new(),
        };
        IamPolicy::new("cn-north-1", Some(&cluster))
    }

    #[test]
    fn policy_has_no_placeholder_for_a_known_cluster() {
        let policy = policy();
        for placeholder in ["REGION", "ACCOUNT", "CLUSTER", "arn:aws:"] {
            assert!(!policy.text().contains(placeholder), "{placeholder}");
        }
        assert!(policy.cluster.is_some() && IamPolicy::new("eu-west-1", None).cluster.is_none());
    }

    #[test]
    fn simulation_carries_the_statement_conditions() {
        let simulations = policy().simulations();
        let nodes = |a: &&PolicySimulation| a.resource.as_deref() == Some("arn:aws-cn:iam::42:role/blue-preflight");
        let attaches = |a: &&PolicySimulation| a.actions.contains(&"iam:AttachRolePolicy".to_owned());
        let attach = simulations.iter().filter(nodes).find(attaches).unwrap();
        let context = |key: &str| attach.context.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        assert_eq!(context("aws:ResourceTag/instancegroups.keikoproj.io/ClusterName"), Some("blue"));
        assert_eq!(context("iam:PolicyARN"), Some("arn:aws-cn:iam::aws:policy/AmazonEKSWorkerNodePolicy"));
        assert!(
            simulations.iter().any(|a| a.resource.is_none() && a.actions.contains(&"ec2:DescribeSubnets".to_owned()))
        );
    }
}
