//! The IAM policies of the controller in deploy/iam, and the simulation requests to IAM about them. Pure.

use serde_json::Value;

use super::PolicySimulation;

/// The IAM policies by name. A managed policy holds 6,144 characters, so there is one for each purpose.
pub(crate) const POLICIES: [(&str, &str); 5] = [
    ("scaling-groups", include_str!("../../deploy/iam/scaling-groups.json")),
    ("node-roles", include_str!("../../deploy/iam/node-roles.json")),
    ("access-entries", include_str!("../../deploy/iam/access-entries.json")),
    ("managed-node-groups", include_str!("../../deploy/iam/managed-node-groups.json")),
    ("fargate", include_str!("../../deploy/iam/fargate.json")),
];

/// The only action that the policies allow on the controller's own role.
pub(crate) const ASKS_ABOUT_ITSELF: &str = "iam:SimulatePrincipalPolicy";

/// The length of the longest cluster name that each name of a role for Fargate pods contains.
const MAX_NAME_IN_FARGATE_ROLE: usize = 21;
/// The roles for Fargate pods whose names contain the cluster's name.
const FARGATE_ROLES: &str = r#""arn:aws:iam::ACCOUNT:role/fargate-CLUSTER-*""#;
/// Those whose names are too short for the cluster's name.
const SHORT_FARGATE_ROLES: &str = r#""arn:aws:iam::ACCOUNT:role/fargate-*-role""#;
/// The access entries of the first ones. The statement names other entries as well.
const FARGATE_ENTRIES: &str = r#""arn:aws:eks:REGION:ACCOUNT:access-entry/CLUSTER/role/ACCOUNT/fargate-CLUSTER-*""#;
/// The access entries of those with short names.
const SHORT_FARGATE_ENTRIES: &str =
    r#""arn:aws:eks:REGION:ACCOUNT:access-entry/CLUSTER/role/ACCOUNT/fargate-*-role/*""#;

/// A policy with the region and, if it is known, the cluster filled in. `arn` is any ARN of the cluster's account. With a long
/// cluster name, the policy names roles for Fargate pods without it as well.
pub(crate) fn fill_in(text: &str, region: &str, cluster: Option<(&str, &str)>) -> String {
    let Some((arn, name)) = cluster else { return text.replace("REGION", region) };
    let text = match name.len() > MAX_NAME_IN_FARGATE_ROLE {
        true => text
            .replace(FARGATE_ROLES, &format!("[{SHORT_FARGATE_ROLES}, {FARGATE_ROLES}]"))
            .replace(FARGATE_ENTRIES, &format!("{SHORT_FARGATE_ENTRIES}, {FARGATE_ENTRIES}")),
        false => text.to_owned(),
    };
    let text = text.replace("REGION", region);
    let part = |n| arn.split(':').nth(n).unwrap_or_default();
    let text = text.replace("ACCOUNT", part(4)).replace("CLUSTER", name);
    text.replace("arn:aws:", &format!("arn:{}:", part(1)))
}

/// One simulation for each statement of a policy: its actions on one of its resources, with its conditions.
pub(crate) fn simulations(document: &Value) -> Vec<PolicySimulation> {
    document["Statement"].as_array().into_iter().flatten().map(simulation).collect()
}

/// The simulation of one action for a resource of a cluster, as the policies allow it; `None` if they do not name it.
pub(crate) fn simulation_of(action: &str, region: &str, arn: &str, cluster: &str) -> Option<PolicySimulation> {
    let documents = POLICIES
        .iter()
        .filter_map(|(_, text)| serde_json::from_str::<Value>(&fill_in(text, region, Some((arn, cluster)))).ok());
    let mut all = documents.flat_map(|document| simulations(&document));
    let found = all.find(|simulation| simulation.actions.iter().any(|named| named == action))?;
    Some(PolicySimulation { actions: vec![action.to_owned()], ..found })
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
    // A negated condition names what the request must not have.
    let conditions = statement["Condition"].as_object().into_iter().flatten();
    let conditions = conditions.filter(|(operator, _)| !operator.contains("Not"));
    let context = conditions.flat_map(|(_, keys)| keys.as_object().cloned().unwrap_or_default());
    PolicySimulation {
        actions: strings(&statement["Action"]),
        resource: resource.map(|resource| resource.replace('*', "preflight")),
        context: context
            .filter_map(|(key, value)| Some((key, strings(&value).into_iter().next()?.replace('*', "preflight"))))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A permission that depends on the cluster's tag would always seem to be missing.
    #[test]
    fn question_about_one_action_carries_the_conditions_of_its_statement() {
        let role = "arn:aws-cn:iam::42:role/controller";
        let ask = |action| simulation_of(action, "cn-north-1", role, "blue");
        let found = ask("autoscaling:TerminateInstanceInAutoScalingGroup").expect("the policies allow it");
        assert_eq!(found.actions, ["autoscaling:TerminateInstanceInAutoScalingGroup"]);
        let tag = ("aws:ResourceTag/instancegroups.keikoproj.io/ClusterName".to_owned(), "blue".to_owned());
        assert_eq!((found.resource, found.context), (None, vec![tag]));
        assert_eq!(
            ask("iam:DeleteRole").unwrap().resource.unwrap(),
            "arn:aws-cn:iam::42:instance-profile/blue-preflight"
        );
        assert_eq!(ask("s3:GetObject"), None);
        let untagging = ask("ec2:DeleteTags").expect("the policies allow it");
        assert!(untagging.context.iter().all(|(key, _)| key != "aws:TagKeys"), "the policy forbids these keys");
    }
}
