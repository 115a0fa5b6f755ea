//! Checks that the controller's AWS role has the permissions in deploy/iam/.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Finding, PreflightCheck, dry_runs};
use crate::api::ProvisionerKind;
use crate::aws::policies::{self, ASKS_ABOUT_ITSELF, POLICIES};
use crate::aws::{Aws, AwsResult, Cluster, LaunchTemplate, PolicyDecision, PolicySimulation};

/// The IAM policies of the controller, filled in for one cluster.
pub(crate) struct IamPolicies {
    policies: Vec<IamPolicy>,
    cluster: Option<Cluster>,
}

/// One policy, for one purpose.
struct IamPolicy {
    name: &'static str,
    text: String,
}

impl IamPolicies {
    /// Fills in the region and, if it is known, the cluster.
    pub(crate) fn new(region: &str, cluster: Option<&Cluster>) -> Self {
        let fill_in =
            |text| policies::fill_in(text, region, cluster.map(|cluster| (cluster.arn.as_str(), &*cluster.name)));
        let policies = POLICIES.iter().map(|(name, text)| IamPolicy { name, text: fill_in(text) }).collect();
        IamPolicies { policies, cluster: cluster.cloned() }
    }

    /// One policy as JSON, ready for `aws iam create-policy`; or, for `all`, a JSON object with each policy by its name.
    ///
    /// # Errors
    ///
    /// No policy has that name.
    pub(crate) fn text(&self, name: &str) -> anyhow::Result<String> {
        if name == ALL {
            let all: serde_json::Map<_, _> = self.policies.iter().map(|p| (p.name.to_owned(), p.document())).collect();
            return Ok(serde_json::to_string_pretty(&all)?);
        }
        let names = || POLICIES.map(|(name, _)| name).join(", ");
        let found = self.policies.iter().find(|policy| policy.name == name);
        let found = found.ok_or_else(|| anyhow::anyhow!("`{name}` is not a policy; use {}, or {ALL}", names()))?;
        Ok(found.text.trim_end().to_owned())
    }

    /// Whether the cluster needs a policy: the first two always, the others for what is in use.
    fn is_needed(&self, policy: &IamPolicy, used: &BTreeSet<ProvisionerKind>) -> bool {
        match policy.name {
            "managed-node-groups" => used.contains(&ProvisionerKind::EksManaged),
            "fargate" => used.contains(&ProvisionerKind::EksFargate),
            "access-entries" => self.cluster.as_ref().is_none_or(|cluster| cluster.authentication_mode != "CONFIG_MAP"),
            _ => true,
        }
    }
}

/// The value of `--policy` that stands for all policies.
pub(crate) const ALL: &str = "all";

impl IamPolicy {
    fn document(&self) -> Value {
        serde_json::from_str(&self.text).expect("the files in deploy/iam are JSON")
    }

    /// One simulation for each statement: its actions on one of its resources, with its conditions.
    fn simulations(&self) -> Vec<PolicySimulation> {
        policies::simulations(&self.document())
    }
}

/// Simulates the policies with IAM. Without permission for that, it uses EC2 dry runs and reports the rest as unknown.
pub(crate) async fn check(
    policies: &IamPolicies,
    used: &BTreeSet<ProvisionerKind>,
    aws: &Aws,
    role: Option<&str>,
    templates: &[LaunchTemplate],
) -> Vec<PreflightCheck> {
    let unknown = |message: String| PreflightCheck::new("iam", Finding::Unknown, message);
    let Some(cluster) = &policies.cluster else {
        return vec![unknown("the cluster is unknown; set --cluster-name".into())];
    };
    let why = match role {
        None => "name the controller's AWS role with --role-arn".to_owned(),
        Some(role) => match simulate(policies, used, aws, role).await {
            Ok(checks) => return checks,
            Err(error) => format!("the actions of {role} cannot be simulated ({error})"),
        },
    };
    let (mut checks, dry_run_error) = match dry_runs::check(aws, &cluster.name, role, templates).await {
        Ok(checks) => (checks, String::new()),
        Err(error) => (Vec::new(), format!("; {error}")),
    };
    checks.push(unknown(format!(
        "actions without a dry run were not checked: {why}; the caller needs iam:SimulatePrincipalPolicy on the role{dry_run_error}"
    )));
    checks
}

async fn simulate(
    policies: &IamPolicies,
    used: &BTreeSet<ProvisionerKind>,
    aws: &Aws,
    role: &str,
) -> AwsResult<Vec<PreflightCheck>> {
    let mut checks = Vec::new();
    for policy in &policies.policies {
        let (mut allowed, mut has_own_action, mut failed_checks) = (0, false, Vec::new());
        for mut simulated in policy.simulations() {
            if simulated.actions.iter().any(|action| action == ASKS_ABOUT_ITSELF) {
                simulated.resource = Some(role.to_owned());
            }
            for (action, decision) in aws.iam.simulate_policy(role, &simulated).await? {
                match decision {
                    PolicyDecision::Allowed => {
                        allowed += 1;
                        has_own_action |= !policies.is_in_another(policy, &action);
                    }
                    PolicyDecision::Unclear => failed_checks.push(PreflightCheck::new(
                        "iam",
                        Finding::Unknown,
                        format!("{action}: depends on conditions that the simulation does not know"),
                    )),
                    PolicyDecision::Denied => {
                        failed_checks.push(denied(&action, simulated.resource.as_deref(), policy.name));
                    }
                }
            }
        }
        let name = policy.name;
        if !has_own_action && !policies.is_needed(policy, used) {
            let message = format!("{role} does not have the policy {name}, and nothing in this cluster needs it");
            checks.push(PreflightCheck::new("iam", Finding::Note, message));
        } else if failed_checks.is_empty() {
            let message = format!("{role} has all {allowed} permissions of the policy {name}");
            checks.push(PreflightCheck::new("iam", Finding::Ok, message));
        } else {
            checks.append(&mut failed_checks);
        }
    }
    Ok(checks)
}

impl IamPolicies {
    /// Whether another policy grants the action too, so that it does not prove that the role has this one.
    fn is_in_another(&self, policy: &IamPolicy, action: &str) -> bool {
        let others = self.policies.iter().filter(|other| other.name != policy.name);
        others.flat_map(IamPolicy::simulations).any(|simulated| simulated.actions.iter().any(|other| other == action))
    }
}

fn denied(action: &str, resource: Option<&str>, policy: &str) -> PreflightCheck {
    let on = resource.map(|resource| format!(" on {resource}")).unwrap_or_default();
    let message = format!("{action}{on}; add it to the role; instance-manager preflight --policy {policy} prints it");
    PreflightCheck::new("iam", Finding::Missing, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::samples::cluster;

    fn policies() -> IamPolicies {
        let arn = "arn:aws-cn:eks:cn-north-1:42:cluster/blue".into();
        let cluster = Cluster { arn, ..cluster("blue") };
        IamPolicies::new("cn-north-1", Some(&cluster))
    }

    #[test]
    fn printed_policies_are_complete_for_a_cluster() {
        let policies = policies();
        let all: Value = serde_json::from_str(&policies.text(ALL).unwrap()).unwrap();
        assert_eq!(all.as_object().unwrap().len(), POLICIES.len());
        for (name, _) in POLICIES {
            let text = policies.text(name).unwrap();
            for word in ["REGION", "ACCOUNT", "CLUSTER", "arn:aws:"] {
                assert!(!text.contains(word), "{name} holds {word}");
            }
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), all[name]);
        }
        let error = policies.text("farm").unwrap_err().to_string();
        assert!(error.contains("`farm`") && error.contains("fargate"), "{error}");
    }

    #[test]
    fn only_used_provisioners_need_their_policy() {
        let needed = |mode: &str, used: &[ProvisionerKind]| {
            let mut policies = policies();
            policies.cluster.as_mut().unwrap().authentication_mode = mode.into();
            let used = used.iter().copied().collect();
            let names = policies.policies.iter().filter(|p| policies.is_needed(p, &used)).map(|p| p.name);
            names.collect::<Vec<_>>()
        };
        assert_eq!(needed("CONFIG_MAP", &[ProvisionerKind::Eks]), ["scaling-groups", "node-roles"]);
        let all = [ProvisionerKind::EksManaged, ProvisionerKind::EksFargate];
        assert_eq!(needed("API", &all), POLICIES.map(|(name, _)| name));
    }

    #[test]
    fn simulation_carries_the_statement_conditions() {
        let policies = policies();
        let simulations: Vec<_> = policies.policies.iter().flat_map(IamPolicy::simulations).collect();
        let nodes = |a: &&PolicySimulation| a.resource.as_deref() == Some("arn:aws-cn:iam::42:role/blue-preflight");
        let attaches = |a: &&PolicySimulation| a.actions.contains(&"iam:AttachRolePolicy".to_owned());
        let attach = simulations.iter().filter(nodes).find(attaches).unwrap();
        let context = |key: &str| attach.context.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        assert_eq!(context("aws:ResourceTag/instancegroups.keikoproj.io/ClusterName"), Some("blue"));
        assert_eq!(context("iam:PolicyARN"), Some("arn:aws-cn:iam::aws:policy/AmazonEKSWorkerNodePolicy"));
        let subnets = "ec2:DescribeSubnets".to_owned();
        assert!(simulations.iter().any(|a| a.resource.is_none() && a.actions.contains(&subnets)));
    }
}
