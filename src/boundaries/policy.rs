//! What tenants may choose, beyond what boundaries say. Every list that is absent leaves the choice open.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::error::ConfigError;
use super::merged_spec::MergedSpec;
use super::provenance::Origin;
use super::section::Section;
use crate::api::{display_value, names::annotation, schema};

/// Every field that names a role.
pub const ROLE_PATHS: [&str; 4] = [
    "spec.eks.configuration.roleName",
    "spec.eks.configuration.instanceProfileName",
    "spec.eks-managed.configuration.nodeRole",
    "spec.eks-fargate.podExecutionRoleArn",
];

/// Which pods run on Fargate, those of other tenants' namespaces included.
pub const FARGATE_SELECTORS_PATH: &str = "spec.eks-fargate.selectors";

const POLICY_KEYS: [&str; 7] = [
    "roles",
    "managedPolicies",
    "strategyKinds",
    "strategyNamespaces",
    "excludableNamespaces",
    "fargateNamespaces",
    "quotas",
];
const DEFAULT_STRATEGY_KINDS: [&str; 2] = ["RollingUpgrade.upgrademgr.keikoproj.io", "Workflow.argoproj.io"];

/// The ConfigMap's key `policy`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub(super) roles: Option<Vec<String>>,
    pub(super) managed_policies: Option<Vec<String>>,
    pub(super) strategy_kinds: Option<Vec<String>>,
    strategy_namespaces: Vec<String>,
    excludable_namespaces: Option<Vec<String>>,
    pub(super) fargate_namespaces: Option<Vec<String>>,
    quotas: Vec<(String, Quota)>,
}

/// How much a namespace may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Quota {
    max_groups: Option<u64>,
    max_nodes: Option<u64>,
}

/// What a namespace has, up to and including the group in question, in order of creation; so an older group is never refused
/// because of a younger one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceUsage {
    /// Number of groups.
    pub groups: u64,
    /// Sum of their effective maximum sizes.
    pub nodes: u64,
}

/// A choice that the policy does not allow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{path}: {value} {rule}; {remedy}")]
pub struct PolicyViolation {
    /// Where.
    pub path: String,
    /// The value, shown as people may see it.
    pub value: String,
    /// The rule that it breaks.
    pub rule: String,
    /// What to do.
    pub remedy: String,
}

impl Policy {
    pub(super) fn parse(section: &Section) -> Result<Self, ConfigError> {
        let root = section.map(&section.value, "")?;
        // A mistyped list would leave a choice open that was meant to be closed.
        if let Some(unknown) = root.keys().find(|key| !POLICY_KEYS.contains(&key.as_str())) {
            let remedy = schema::closest_match(unknown, POLICY_KEYS.into_iter()).map_or_else(
                || format!("use one of {}", POLICY_KEYS.join(", ")),
                |near| format!("did you mean {near:?}?"),
            );
            return Err(section.error(unknown, "is not a known policy key", &remedy));
        }
        let list = |name: &str| match root.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => section.strings(value, name).map(Some),
        };
        let mut quotas = vec![];
        for (glob, value) in section.map(root.get("quotas").unwrap_or(&Value::Null), "quotas")? {
            quotas.push((glob.clone(), parse_quota(section, value, &format!("quotas.{glob}"))?));
        }
        Ok(Self {
            roles: list("roles")?,
            managed_policies: list("managedPolicies")?,
            strategy_kinds: list("strategyKinds")?,
            strategy_namespaces: list("strategyNamespaces")?.unwrap_or_default(),
            excludable_namespaces: list("excludableNamespaces")?,
            fargate_namespaces: list("fargateNamespaces")?,
            quotas,
        })
    }

    /// Whether any namespace has a quota, so that counting is worth while.
    pub fn has_quotas(&self) -> bool {
        !self.quotas.is_empty()
    }

    /// Everything in an effective group that the policy does not allow. Values that come from the ConfigMap are the admin's own
    /// and pass.
    pub fn check(&self, effective: &MergedSpec, namespace: &str, counts: NamespaceUsage) -> Vec<PolicyViolation> {
        let mut found = vec![];
        for path in ROLE_PATHS {
            let value = path.split('.').skip(1).fold(&effective.spec, |value, key| &value[key]);
            check_allowed(effective, path, value, self.roles.as_deref(), "roles", &mut found);
        }
        let configuration = &effective.spec["eks"]["configuration"];
        for (index, value) in configuration["managedPolicies"].as_array().into_iter().flatten().enumerate() {
            let path = format!("spec.eks.configuration.managedPolicies[{index}]");
            check_allowed(effective, &path, value, self.managed_policies.as_deref(), "managedPolicies", &mut found);
        }
        self.check_selectors(effective, namespace, &mut found);
        for (glob, quota) in self.quotas.iter().filter(|(glob, _)| matches_glob(glob, namespace)) {
            let mut limit = |path: &str, what: &str, count: u64, most: Option<u64>| {
                if let Some(most) = most.filter(|most| count > *most) {
                    found.push(PolicyViolation {
                        path: path.to_owned(),
                        value: format!("{count} {what}"),
                        rule: format!("exceeds the limit of {most} that policy.quotas[{glob}] sets for the namespace"),
                        remedy: "reduce it, or ask your cluster admin for a higher quota".to_owned(),
                    });
                }
            };
            limit("metadata.namespace", "groups", counts.groups, quota.max_groups);
            let managed = effective.spec["provisioner"].as_str().is_some_and(|p| p.eq_ignore_ascii_case("eks-managed"));
            let path = if managed { "spec.eks-managed.maxSize" } else { "spec.eks.maxSize" };
            limit(path, "nodes", counts.nodes, quota.max_nodes);
        }
        found
    }

    /// A tenant's Fargate profile takes pods of its own namespace, and of those that the policy lists. A selector with
    /// wildcards of its own has to be listed as it is, or all are with `*`.
    fn check_selectors(&self, effective: &MergedSpec, own: &str, found: &mut Vec<PolicyViolation>) {
        let Some(globs) = &self.fargate_namespaces else { return };
        let selectors = effective.spec["eks-fargate"]["selectors"].as_array();
        for (index, selector) in selectors.into_iter().flatten().enumerate() {
            let path = format!("{FARGATE_SELECTORS_PATH}[{index}].namespace");
            let Some(text) = selector["namespace"].as_str() else { continue };
            let plain = !text.contains(['*', '?']);
            let listed = globs.iter().any(|glob| glob == text || glob == "*" || (plain && matches_glob(glob, text)));
            if text != own && !listed && is_tenant_value(effective, &path) {
                found.push(PolicyViolation {
                    value: display_value(&path, &selector["namespace"]),
                    path,
                    rule: "is not allowed by policy.fargateNamespaces".to_owned(),
                    remedy: format!(
                        "select pods of the namespace {own}, or ask your cluster admin to allow more namespaces"
                    ),
                });
            }
        }
    }

    /// Whether a namespace's groups skip boundaries and defaults: it asks for it, and the policy grants it.
    pub fn is_excluded(&self, namespace: &str, annotations: &BTreeMap<String, String>) -> bool {
        let requested = annotation::is_true(annotations, annotation::CONFIG_EXCLUDED);
        requested && self.excludable_namespaces.as_deref().is_none_or(|globs| matches_any_glob(globs, namespace))
    }

    /// Whether the crd strategy may submit a resource of this kind and API group.
    pub fn is_strategy_kind_allowed(&self, kind: &str, group: &str) -> bool {
        let name = format!("{kind}.{group}");
        self.strategy_kinds().iter().any(|allowed| allowed.eq_ignore_ascii_case(&name))
    }

    /// The kinds that the crd strategy may submit, as `Kind.group`.
    pub fn strategy_kinds(&self) -> Vec<String> {
        self.strategy_kinds.clone().unwrap_or_else(|| DEFAULT_STRATEGY_KINDS.map(str::to_owned).into())
    }

    /// Whether the crd strategy of a group may submit to a namespace: the group's own, the ConfigMap's, or a listed one.
    pub fn is_strategy_namespace_allowed(
        &self,
        namespace: &str,
        group_namespace: &str,
        config_namespace: &str,
    ) -> bool {
        namespace == group_namespace
            || namespace == config_namespace
            || self.strategy_namespaces.iter().any(|allowed| allowed == namespace)
    }
}

fn parse_quota(section: &Section, value: &Value, path: &str) -> Result<Quota, ConfigError> {
    let mut quota = Quota::default();
    for (key, value) in section.map(value, path)? {
        let path = format!("{path}.{key}");
        let number =
            || value.as_u64().ok_or_else(|| section.error(&path, "is not a whole number", "write a whole number"));
        match key.as_str() {
            "maxGroups" => quota.max_groups = Some(number()?),
            "maxNodes" => quota.max_nodes = Some(number()?),
            _ => return Err(section.error(&path, "is not a known quota", "use maxGroups or maxNodes")),
        }
    }
    Ok(quota)
}

/// Whether a tenant gave the value at a path, or what it is part of.
fn is_tenant_value(effective: &MergedSpec, path: &str) -> bool {
    let mut path = path;
    loop {
        if let Some(source) = effective.provenance.get(path) {
            return source.origin == Origin::Tenant;
        }
        match path.rfind(['.', '[']) {
            Some(end) => path = &path[..end],
            None => return true,
        }
    }
}

fn check_allowed(
    effective: &MergedSpec,
    path: &str,
    value: &Value,
    globs: Option<&[String]>,
    list: &str,
    found: &mut Vec<PolicyViolation>,
) {
    let (Some(text), Some(globs)) = (value.as_str().filter(|text| !text.is_empty()), globs) else {
        return;
    };
    let by_tenant = effective.provenance.get(path).is_none_or(|source| source.origin == Origin::Tenant);
    let name = aws_managed_policy_name(text).or_else(|| role_name_from_arn(text));
    let allowed = matches_any_glob(globs, text) || name.is_some_and(|name| matches_any_glob(globs, name));
    if by_tenant && !allowed {
        found.push(PolicyViolation {
            path: path.to_owned(),
            value: display_value(path, value),
            rule: format!("is not allowed by policy.{list}"),
            remedy: match globs {
                [] => "remove it: the policy allows no value".to_owned(),
                globs => format!("use one of {}", globs.join(", ")),
            },
        });
    }
}

/// The name of a policy of AWS itself, from its ARN. Policies of an account are judged by their whole ARN, because anyone may
/// have given them any name.
fn aws_managed_policy_name(text: &str) -> Option<&str> {
    let mut parts = text.splitn(6, ':');
    let (arn, _partition, service) = (parts.next()?, parts.next()?, parts.next()?);
    let (region, account, resource) = (parts.next()?, parts.next()?, parts.next()?);
    let known = arn == "arn" && service == "iam" && region.is_empty() && account == "aws";
    resource.strip_prefix("policy/").filter(|_| known)?.rsplit('/').next()
}

/// The name of a role, from its ARN: within an account a role's name is its own, whatever its path.
fn role_name_from_arn(text: &str) -> Option<&str> {
    let (_, resource) = text.strip_prefix("arn:")?.split_once(":iam::")?;
    resource.split_once(":role/")?.1.rsplit('/').next()
}

fn matches_any_glob(globs: &[String], text: &str) -> bool {
    globs.iter().any(|glob| matches_glob(glob, text))
}

/// Whether a text matches a glob: `*` stands for any characters, `?` for one.
pub fn matches_glob(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut g, mut t) = (0, 0);
    // Where the last star stands, and how far it reaches.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match (glob.get(g), star) {
            (Some('*'), _) => {
                star = Some((g, t));
                g += 1;
            }
            (Some(c), _) if *c == '?' || *c == text[t] => {
                g += 1;
                t += 1;
            }
            (_, Some((at, reach))) => {
                star = Some((at, reach + 1));
                g = at + 1;
                t = reach + 1;
            }
            (_, None) => return false,
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}
