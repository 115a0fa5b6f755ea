//! Whether the controller's AWS role may do what deploy/iam-policy.json lists.

use serde_json::Value;

use super::{Check, Finding};
use crate::aws::{Aws, Cluster, Simulated, Simulation};

const POLICY: &str = include_str!("../../../deploy/iam-policy.json");

/// The policy with this cluster's words in it.
pub struct Policy {
    text: String,
    complete: bool,
}

impl Policy {
    /// Of a region and, when it is known, a cluster.
    pub fn new(region: &str, cluster: Option<&Cluster>) -> Self {
        let text = POLICY.replace("REGION", region);
        let Some(cluster) = cluster else { return Policy { text, complete: false } };
        let part = |n| cluster.arn.split(':').nth(n).unwrap_or_default();
        let text = text.replace("ACCOUNT", part(4)).replace("CLUSTER", &cluster.name);
        Policy { text: text.replace("arn:aws:", &format!("arn:{}:", part(1))), complete: true }
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

/// Asks IAM to simulate; what it does not answer is unknown.
pub async fn check(policy: &Policy, aws: &Aws, role: Option<&str>) -> Vec<Check> {
    let unknown = |message: String| vec![Check::new("iam", Finding::Unknown, message)];
    let Some(role) = role else {
        return unknown("name the controller's AWS role with --role-arn, and its actions are checked".into());
    };
    if !policy.complete {
        return unknown("no cluster is known; name it with --cluster-name".into());
    }
    let mut checks = Vec::new();
    let mut allowed = 0;
    for asked in policy.asked() {
        let answers = match aws.iam.simulate(role, &asked).await {
            Ok(answers) => answers,
            Err(error) => return unknown(format!("the actions of {role} cannot be simulated: {error}")),
        };
        for (action, answer) in answers {
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
        checks.push(Check::new(
            "iam",
            Finding::Fine,
            format!("{role} may do all {allowed} that deploy/iam-policy.json lists"),
        ));
    }
    checks
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
        assert!(policy.complete && !Policy::new("eu-west-1", None).complete);
    }

    #[test]
    fn a_statement_is_asked_for_with_what_its_conditions_want() {
        let asked = policy().asked();
        let attach = asked.iter().find(|a| a.actions.contains(&"iam:AttachRolePolicy".to_owned())).unwrap();
        assert_eq!(attach.resource.as_deref(), Some("arn:aws-cn:iam::42:role/blue-preflight"));
        let told = |key: &str| attach.context.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        assert_eq!(told("aws:ResourceTag/instancegroups.keikoproj.io/ClusterName"), Some("blue"));
        assert_eq!(told("iam:PolicyARN"), Some("arn:aws-cn:iam::aws:policy/AmazonEKSWorkerNodePolicy"));
        assert!(asked.iter().any(|a| a.resource.is_none() && a.actions.contains(&"ec2:DescribeSubnets".to_owned())));
    }
}
