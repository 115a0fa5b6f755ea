//! Whether the controller's AWS role may do what deploy/iam-policy.json lists.

use serde_json::Value;

use super::{Check, Finding, dry_runs};
use crate::aws::{Aws, AwsResult, Cluster, LaunchTemplate, Simulated, Simulation};

const POLICY: &str = include_str!("../../../deploy/iam-policy.json");

/// The policy with this cluster's words in it.
pub struct Policy {
    text: String,
    /// Whose words are in it.
    cluster: Option<String>,
}

impl Policy {
    /// Of a region and, when it is known, a cluster.
    pub fn new(region: &str, cluster: Option<&Cluster>) -> Self {
        let text = POLICY.replace("REGION", region);
        let Some(cluster) = cluster else { return Policy { text, cluster: None } };
        let part = |n| cluster.arn.split(':').nth(n).unwrap_or_default();
        let text = text.replace("ACCOUNT", part(4)).replace("CLUSTER", &cluster.name);
        let text = text.replace("arn:aws:", &format!("arn:{}:", part(1)));
        Policy { text, cluster: Some(cluster.name.clone()) }
    }

    /// As JSON, ready for `aws iam create-policy`.
    pub fn text(&self) -> &str {
        self.text.trim_end()
    }

    /// One question for each statement: its actions on one of its resources, under its conditions.
    fn asked(&self) -> Vec<Simulation> {
        let policy: Value = serde_json::from_str(&self.text).expect("deploy/iam-policy.json is JSON");
        let statements = policy["Statement"].as_array().cloned().unwrap_or_default();
        statements.iter().map(question).collect()
    }
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

fn question(statement: &Value) -> Simulation {
    let resource = texts(&statement["Resource"]).into_iter().next().filter(|resource| resource != "*");
    let conditions = statement["Condition"].as_object().into_iter().flatten();
    let context = conditions.flat_map(|(_, keys)| keys.as_object().cloned().unwrap_or_default());
    Simulation {
        actions: texts(&statement["Action"]),
        resource: resource.map(|resource| resource.replace('*', "preflight")),
        context: context
            .filter_map(|(key, value)| Some((key, texts(&value).into_iter().next()?.replace('*', "preflight"))))
            .collect(),
    }
}

/// Asks IAM to simulate, or else EC2 for dry runs; what neither answers is unknown.
pub async fn check(policy: &Policy, aws: &Aws, role: Option<&str>, templates: &[LaunchTemplate]) -> Vec<Check> {
    let unknown = |message: String| Check::new("iam", Finding::Unknown, message);
    let Some(cluster) = &policy.cluster else {
        return vec![unknown("no cluster is known; name it with --cluster-name".into())];
    };
    let why = match role {
        None => "name the controller's AWS role with --role-arn".to_owned(),
        Some(role) => match simulated(policy, aws, role).await {
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

async fn simulated(policy: &Policy, aws: &Aws, role: &str) -> AwsResult<Vec<Check>> {
    let mut checks = Vec::new();
    let mut allowed = 0;
    for asked in policy.asked() {
        for (action, answer) in aws.iam.simulate(role, &asked).await? {
            match answer {
                Simulated::Allowed => allowed += 1,
                Simulated::Unclear => checks.push(Check::new(
                    "iam",
                    Finding::Unknown,
                    format!("{action}: depends on what IAM was not told"),
                )),
                Simulated::Denied => {
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

    fn policy() -> Policy {
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
        Policy::new("cn-north-1", Some(&cluster))
    }

    #[test]
    fn the_policy_is_complete_for_a_cluster() {
        let policy = policy();
        for word in ["REGION", "ACCOUNT", "CLUSTER", "arn:aws:"] {
            assert!(!policy.text().contains(word), "{word}");
        }
        assert!(policy.cluster.is_some() && Policy::new("eu-west-1", None).cluster.is_none());
    }

    #[test]
    fn a_statement_is_asked_for_with_what_its_conditions_want() {
        let asked = policy().asked();
        let nodes = |a: &&Simulation| a.resource.as_deref() == Some("arn:aws-cn:iam::42:role/blue-preflight");
        let attaches = |a: &&Simulation| a.actions.contains(&"iam:AttachRolePolicy".to_owned());
        let attach = asked.iter().filter(nodes).find(attaches).unwrap();
        let told = |key: &str| attach.context.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        assert_eq!(told("aws:ResourceTag/instancegroups.keikoproj.io/ClusterName"), Some("blue"));
        assert_eq!(told("iam:PolicyARN"), Some("arn:aws-cn:iam::aws:policy/AmazonEKSWorkerNodePolicy"));
        assert!(asked.iter().any(|a| a.resource.is_none() && a.actions.contains(&"ec2:DescribeSubnets".to_owned())));
    }
}
