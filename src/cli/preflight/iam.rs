//! Whether the controller's AWS role may do what deploy/iam-policy.json lists.

use serde_json::Value;

use super::{Check, Finding, dry_runs};
use crate::aws::{Aws, AwsResult, Cluster, LaunchTemplate, PolicyDecision, PolicySimulation};

const POLICY_TEMPLATE: &str = include_str!("../../../deploy/iam-policy.json");

/// The policy with this cluster's words in it.
pub struct IamPolicy {
    text: String,
    /// Whose words are in it.
    cluster: Option<String>,
}

impl IamPolicy {
    /// Of a region and, when it is known, a cluster.
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

    /// One question for each statement: its actions on one of its resources, under its conditions.
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

/// Asks IAM to simulate, or else EC2 for dry runs; what neither answers is unknown.
pub async fn check(policy: &IamPolicy, aws: &Aws, role: Option<&str>, templates: &[LaunchTemplate]) -> Vec<Check> {
    let unknown = |message: String| Check::new("iam", Finding::Unknown, message);
    let Some(cluster) = &policy.cluster else {
        return vec![unknown("no cluster is known; name it with --cluster-name".into())];
    };
    let why = match role {
        None => "name the controller's AWS role with --role-arn".to_owned(),
        Some(role) => match simulate(policy, aws, role).await {
            Ok(checks) => return checks,
            Err(error) => format!("the actions of {role} cannot be simulated ({error})"),
        },
    };
    let (mut checks, dry) = match dry_runs::check(aws, cluster, role, templates).await {
        Ok(checks) => (checks, String::new()),
        Err(dry) => (Vec::new(), format!("; {dry}")),
    };
    checks.push(unknown(format!(
        "the actions that no dry run tells of: {why}; whoever asks needs iam:SimulatePrincipalPolicy on it{dry}"
    )));
    checks
}

async fn simulate(policy: &IamPolicy, aws: &Aws, role: &str) -> AwsResult<Vec<Check>> {
    let mut checks = Vec::new();
    let mut allowed = 0;
    for asked in policy.simulations() {
        for (action, answer) in aws.iam.simulate_policy(role, &asked).await? {
            match answer {
                PolicyDecision::Allowed => allowed += 1,
                PolicyDecision::Unclear => checks.push(Check::new(
                    "iam",
                    Finding::Unknown,
                    format!("{action}: depends on what IAM was not told"),
                )),
                PolicyDecision::Denied => {
                    let on = asked.resource.as_deref().map(|on| format!(" on {on}")).unwrap_or_default();
                    let message =
                        format!("{action}{on}; add it: instance-manager preflight --policy prints the whole policy");
                    checks.push(Check::new("iam", Finding::Missing, message));
                }
            }
        }
    }
    if checks.is_empty() {
        let message = format!("{role} may do all {allowed} that deploy/iam-policy.json lists");
        checks.push(Check::new("iam", Finding::Fine, message));
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
    fn the_policy_is_complete_for_a_cluster() {
        let policy = policy();
        for word in ["REGION", "ACCOUNT", "CLUSTER", "arn:aws:"] {
            assert!(!policy.text().contains(word), "{word}");
        }
        assert!(policy.cluster.is_some() && IamPolicy::new("eu-west-1", None).cluster.is_none());
    }

    #[test]
    fn simulation_carries_the_statement_conditions() {
        let asked = policy().simulations();
        let nodes = |a: &&PolicySimulation| a.resource.as_deref() == Some("arn:aws-cn:iam::42:role/blue-preflight");
        let attaches = |a: &&PolicySimulation| a.actions.contains(&"iam:AttachRolePolicy".to_owned());
        let attach = asked.iter().filter(nodes).find(attaches).unwrap();
        let told = |key: &str| attach.context.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        assert_eq!(told("aws:ResourceTag/instancegroups.keikoproj.io/ClusterName"), Some("blue"));
        assert_eq!(told("iam:PolicyARN"), Some("arn:aws-cn:iam::aws:policy/AmazonEKSWorkerNodePolicy"));
        assert!(asked.iter().any(|a| a.resource.is_none() && a.actions.contains(&"ec2:DescribeSubnets".to_owned())));
    }
}
