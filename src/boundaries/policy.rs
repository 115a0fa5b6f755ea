//! The admin's policy: limits for what tenants may choose, beyond the boundaries. A missing list allows any value.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::error::{ConfigError, ConfigWarning, ErrorList};
use super::glob::{GlobKind, matches_any_glob, matches_glob};
use super::merged_spec::MergedSpec;
use super::quota::{NamespaceUsage, Quota, QuotaLevel, QuotaRequest};
use super::section::Section;
use crate::api::{display_value, names::annotation, node_count::sized_section, schema, spec_error::SpecError};

/// Every field that names a role.
pub(crate) const ROLE_PATHS: [&str; 4] = [
    "spec.eks.configuration.roleName",
    "spec.eks.configuration.instanceProfileName",
    "spec.eks-managed.configuration.nodeRole",
    "spec.eks-fargate.podExecutionRoleArn",
];

/// The lists whose items may name a role, in the field `roleArn`.
pub(crate) const ROLE_LIST_PATH: &str = "spec.eks.configuration.lifecycleHooks";

/// The field that selects pods for Fargate, possibly in namespaces of other tenants.
pub(crate) const FARGATE_SELECTORS_PATH: &str = "spec.eks-fargate.selectors";

/// The field with the number of nodes that a surge adds.
const SURGE_PATH: &str = "spec.strategy.rollingUpdate.maxSurge";

const POLICY_KEYS: [&str; 11] = [
    "roles",
    "managedPolicies",
    "strategyKinds",
    "strategyNamespaces",
    "strategyScripts",
    "spotRecommendationNamespaces",
    "excludableNamespaces",
    "lockableNamespaces",
    "protectDeletion",
    "fargateNamespaces",
    "quotas",
];
const DEFAULT_STRATEGY_KINDS: [&str; 2] = ["RollingUpgrade.upgrademgr.keikoproj.io", "Workflow.argoproj.io"];

/// The key `policy` of the ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub(super) roles: Option<Vec<String>>,
    pub(super) managed_policies: Option<Vec<String>>,
    pub(super) strategy_kinds: Option<Vec<String>>,
    strategy_namespaces: Vec<String>,
    strategy_scripts: Option<Vec<String>>,
    spot_recommendation_namespaces: Option<Vec<String>>,
    excludable_namespaces: Option<Vec<String>>,
    lockable_namespaces: Option<Vec<String>>,
    protect_deletion: Vec<String>,
    pub(super) fargate_namespaces: Option<Vec<String>>,
    quotas: Vec<(String, Quota)>,
}

/// A value that the policy does not allow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{path}: {value} {rule}; {remedy}")]
pub(crate) struct PolicyViolation {
    /// Dotted path of the value.
    pub path: String,
    /// The value, formatted for display.
    pub value: String,
    /// The rule that it violates.
    pub rule: String,
    /// What the tenant can do.
    pub remedy: String,
}

impl From<PolicyViolation> for SpecError {
    fn from(PolicyViolation { path, value, rule, remedy }: PolicyViolation) -> Self {
        SpecError::policy_violation(&path, value.trim_matches('"'), rule, remedy)
    }
}

impl Policy {
    pub(super) fn parse(section: &Section) -> Result<Self, ErrorList> {
        let given = section.map(&section.value, "")?;
        let mut errors = ErrorList::default();
        let mut root = Map::new();
        for (key, value) in given {
            // A misspelled list would allow values that the admin meant to forbid.
            let name = POLICY_KEYS.iter().find(|name| name.eq_ignore_ascii_case(key));
            let Some(name) = name else {
                errors.push(unknown_key(section, key));
                continue;
            };
            if root.insert((*name).to_owned(), value.clone()).is_some() {
                errors.push(section.error(key, &format!("is a duplicate of {name}"), "remove the duplicate"));
            }
        }
        let mut quotas = vec![];
        let given = section.map(root.get("quotas").unwrap_or(&Value::Null), "quotas");
        for (glob, value) in errors.ok(given).into_iter().flatten() {
            let quota = errors.or_default(parse_quota(section, value, &format!("quotas.{glob}")));
            quotas.push((glob.clone(), quota));
        }
        let mut list = |name: &str| match root.get(name) {
            None | Some(Value::Null) => None,
            Some(value) => errors.ok(section.strings(value, name)),
        };
        let policy = Self {
            roles: list("roles"),
            managed_policies: list("managedPolicies"),
            strategy_kinds: list("strategyKinds"),
            strategy_namespaces: list("strategyNamespaces").unwrap_or_default(),
            strategy_scripts: list("strategyScripts"),
            spot_recommendation_namespaces: list("spotRecommendationNamespaces"),
            excludable_namespaces: list("excludableNamespaces"),
            lockable_namespaces: list("lockableNamespaces"),
            protect_deletion: list("protectDeletion").unwrap_or_default(),
            fargate_namespaces: list("fargateNamespaces"),
            quotas,
        };
        errors.into_result(policy)
    }

    /// Warns about globs that match nothing, and about wildcards where none are allowed. The policy would silently allow
    /// less than the admin means, or protect less.
    pub(super) fn warn_globs(&self, section: &Section, warnings: &mut Vec<ConfigWarning>) {
        let lists = [
            ("roles", self.roles.as_deref(), GlobKind::Iam),
            ("managedPolicies", self.managed_policies.as_deref(), GlobKind::Iam),
            ("strategyKinds", self.strategy_kinds.as_deref(), GlobKind::KindName),
            ("strategyNamespaces", Some(self.strategy_namespaces.as_slice()), GlobKind::NamespaceName),
            ("strategyScripts", self.strategy_scripts.as_deref(), GlobKind::Namespace),
            ("spotRecommendationNamespaces", self.spot_recommendation_namespaces.as_deref(), GlobKind::Namespace),
            ("excludableNamespaces", self.excludable_namespaces.as_deref(), GlobKind::Namespace),
            ("lockableNamespaces", self.lockable_namespaces.as_deref(), GlobKind::Namespace),
            ("protectDeletion", Some(self.protect_deletion.as_slice()), GlobKind::Namespace),
            ("fargateNamespaces", self.fargate_namespaces.as_deref(), GlobKind::Namespace),
        ];
        let listed = lists.into_iter().flat_map(|(list, globs, kind)| {
            globs.unwrap_or_default().iter().enumerate().map(move |(i, glob)| (format!("{list}[{i}]"), glob, kind))
        });
        let quotas = self.quotas.iter().map(|(glob, _)| (format!("quotas.{glob}"), glob, GlobKind::Namespace));
        for (path, glob, kind) in listed.chain(quotas) {
            if !kind.can_match(glob) {
                let message = format!("{glob:?} matches {}", kind.nothing());
                section.warn(&path, &message, || kind.remedy().to_owned(), warnings);
            }
        }
    }

    /// Whether the policy lists the namespaces that may be excluded from boundaries.
    pub(super) fn limits_exclusion(&self) -> bool {
        self.excludable_namespaces.is_some()
    }

    /// All values of a merged spec that the policy does not allow, and the quotas that it exceeds.
    pub(crate) fn check(
        &self,
        effective: &MergedSpec,
        namespace: &str,
        request: &QuotaRequest,
    ) -> Vec<PolicyViolation> {
        let mut found = self.forbidden_values(effective, namespace);
        found.extend(self.exceeded_quotas(&effective.spec, namespace, request));
        found
    }

    /// All values of a merged spec that the policy does not allow. Values from the ConfigMap are the admin's own and
    /// are always allowed.
    pub(crate) fn forbidden_values(&self, effective: &MergedSpec, namespace: &str) -> Vec<PolicyViolation> {
        let mut found = vec![];
        for path in ROLE_PATHS {
            let value = path.split('.').skip(1).fold(&effective.spec, |value, key| &value[key]);
            check_allowed(effective, path, value, self.roles.as_deref(), "roles", &mut found);
        }
        let configuration = &effective.spec["eks"]["configuration"];
        for (index, hook) in configuration["lifecycleHooks"].as_array().into_iter().flatten().enumerate() {
            let path = format!("{ROLE_LIST_PATH}[{index}].roleArn");
            check_allowed(effective, &path, &hook["roleArn"], self.roles.as_deref(), "roles", &mut found);
        }
        for (index, value) in configuration["managedPolicies"].as_array().into_iter().flatten().enumerate() {
            let path = format!("spec.eks.configuration.managedPolicies[{index}]");
            check_allowed(effective, &path, value, self.managed_policies.as_deref(), "managedPolicies", &mut found);
        }
        self.check_selectors(effective, namespace, &mut found);
        found
    }

    /// Whether a namespace has a quota, so that usage must be counted.
    pub(crate) fn has_quota(&self, namespace: &str) -> bool {
        self.quotas.iter().any(|(glob, _)| matches_glob(glob, namespace))
    }

    /// Whether the quotas of a namespace allow a request.
    pub(crate) fn allows(&self, namespace: &str, request: &QuotaRequest) -> bool {
        self.exceeded_quotas(&Value::Null, namespace, request).is_empty()
    }

    /// The limits that a request newly exceeds.
    pub(crate) fn exceeded_quotas(
        &self,
        spec: &Value,
        namespace: &str,
        request: &QuotaRequest,
    ) -> Vec<PolicyViolation> {
        let QuotaRequest { usage: NamespaceUsage { groups, amounts: all }, requested: asked, .. } = *request;
        let section = sized_section(spec);
        let sizes = format!("spec.{section}.maxSize");
        let types =
            if request.has_larger_nodes { format!("spec.{section}.configuration.instanceType") } else { sizes.clone() };
        let mut found = vec![];
        for (glob, quota) in self.quotas.iter().filter(|(glob, _)| matches_glob(glob, namespace)) {
            let limits = [
                (request.adds_group, "groups", "metadata.namespace", quota.max_groups, Some(1), Some(groups)),
                (request.adds_nodes, "nodes", sizes.as_str(), quota.max_nodes, Some(asked.nodes), Some(all.nodes)),
                (
                    request.adds_surge,
                    "nodes of a surge",
                    SURGE_PATH,
                    quota.max_surge,
                    Some(asked.surge),
                    Some(all.surge),
                ),
                (request.adds_vcpus, "vCPUs", types.as_str(), quota.max_vcpus, asked.vcpus, all.vcpus),
            ];
            for (adds, unit, path, max, asked, all) in limits {
                let exceeded = max.filter(|max| adds && all.is_none_or(|all| all > *max));
                if let Some(max) = exceeded {
                    found.push(exceeded_quota(glob, namespace, unit, path, max, asked.zip(all)));
                }
            }
        }
        found
    }

    /// What is used of each limit of a namespace, and the smallest limit if several globs match it.
    pub(crate) fn quota_levels(&self, namespace: &str, usage: &NamespaceUsage) -> Vec<QuotaLevel> {
        let matching = || self.quotas.iter().filter(|(glob, _)| matches_glob(glob, namespace)).map(|(_, quota)| quota);
        let amounts = usage.amounts;
        let limits = [
            ("groups", matching().filter_map(|quota| quota.max_groups).min(), Some(usage.groups)),
            ("nodes", matching().filter_map(|quota| quota.max_nodes).min(), Some(amounts.nodes)),
            ("surge", matching().filter_map(|quota| quota.max_surge).min(), Some(amounts.surge)),
            ("vcpus", matching().filter_map(|quota| quota.max_vcpus).min(), amounts.vcpus),
        ];
        let level = |(resource, limit, used): (_, Option<u64>, _)| Some(QuotaLevel { resource, used, limit: limit? });
        limits.into_iter().filter_map(level).collect()
    }

    /// Whether a quota of a namespace limits vCPUs, so that those of instance types must be known.
    pub(crate) fn limits_vcpus(&self, namespace: &str) -> bool {
        self.quotas.iter().any(|(glob, quota)| quota.max_vcpus.is_some() && matches_glob(glob, namespace))
    }

    /// Whether a quota of a namespace limits the nodes of surges.
    pub(crate) fn limits_surge(&self, namespace: &str) -> bool {
        self.quotas.iter().any(|(glob, quota)| quota.max_surge.is_some() && matches_glob(glob, namespace))
    }

    /// Checks the namespaces of Fargate selectors. A tenant may select pods of its own namespace and of namespaces that
    /// the policy lists. A selector with wildcards must be listed literally, unless the policy lists `*`.
    fn check_selectors(&self, effective: &MergedSpec, own: &str, found: &mut Vec<PolicyViolation>) {
        let Some(globs) = &self.fargate_namespaces else { return };
        let selectors = effective.spec["eks-fargate"]["selectors"].as_array();
        for (index, selector) in selectors.into_iter().flatten().enumerate() {
            let path = format!("{FARGATE_SELECTORS_PATH}[{index}].namespace");
            let Some(text) = selector["namespace"].as_str() else { continue };
            let plain = !text.contains(['*', '?']);
            let listed = globs.iter().any(|glob| glob == text || glob == "*" || (plain && matches_glob(glob, text)));
            if text != own && !listed && effective.is_from_tenant(&path) {
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

    /// Whether the groups of a namespace are excluded from boundaries: the namespace's annotation requests it, and the
    /// policy allows it.
    pub(crate) fn is_excluded(&self, namespace: &str, annotations: &BTreeMap<String, String>) -> bool {
        let requested = annotation::is_true(annotations, annotation::CONFIG_EXCLUDED);
        requested && self.excludable_namespaces.as_deref().is_none_or(|globs| matches_any_glob(globs, namespace))
    }

    /// The namespaces that may be excluded from boundaries and defaults; `None` for all.
    pub(super) fn excludable_globs(&self) -> Option<&[String]> {
        self.excludable_namespaces.as_deref()
    }

    /// Whether the annotation `lock-upgrades` of a Namespace counts.
    pub(crate) fn is_namespace_lockable(&self, namespace: &str) -> bool {
        self.lockable_namespaces.as_deref().is_none_or(|globs| matches_any_glob(globs, namespace))
    }

    /// Whether events of a namespace may recommend spot prices.
    pub(crate) fn is_spot_namespace_allowed(&self, namespace: &str) -> bool {
        self.spot_recommendation_namespaces.as_deref().is_none_or(|globs| matches_any_glob(globs, namespace))
    }

    /// Whether the deletion of a group with ready nodes must be confirmed in this namespace.
    pub(crate) fn is_deletion_protected(&self, namespace: &str) -> bool {
        matches_any_glob(&self.protect_deletion, namespace)
    }

    /// Whether the crd strategy may create a resource of this kind and API group.
    pub(crate) fn is_strategy_kind_allowed(&self, kind: &str, group: &str) -> bool {
        let name = format!("{kind}.{group}");
        self.strategy_kinds().iter().any(|allowed| allowed.eq_ignore_ascii_case(&name))
    }

    /// The kinds that the crd strategy may create, as `Kind.group`.
    pub(crate) fn strategy_kinds(&self) -> Vec<String> {
        self.strategy_kinds.clone().unwrap_or_else(|| DEFAULT_STRATEGY_KINDS.map(str::to_owned).into())
    }

    /// Whether the crd strategy of a group may create resources in a namespace: the group's own, or a listed one.
    pub(crate) fn is_strategy_namespace_allowed(&self, namespace: &str, group_namespace: &str) -> bool {
        namespace == group_namespace || self.strategy_namespaces.iter().any(|allowed| allowed == namespace)
    }

    /// Whether tenants of a namespace may have upgrade-manager run scripts.
    pub(crate) fn are_scripts_allowed(&self, group_namespace: &str) -> bool {
        self.strategy_scripts.as_deref().is_some_and(|globs| matches_any_glob(globs, group_namespace))
    }
}

fn unknown_key(section: &Section, key: &str) -> ConfigError {
    let remedy = schema::closest_match(key, POLICY_KEYS.into_iter())
        .map_or_else(|| format!("use one of {}", POLICY_KEYS.join(", ")), |near| format!("did you mean {near:?}?"));
    section.error(key, "is not a known policy key", &remedy)
}

/// The unit of a limit for the number 1.
fn singular(unit: &str) -> &str {
    match unit {
        "groups" => "group",
        "nodes" => "node",
        "nodes of a surge" => "node of a surge",
        "vCPUs" => "vCPU",
        other => other,
    }
}

/// A limit that a request exceeds. `counts` are what the group requests and what the namespace would have; `None` when
/// that is not known.
fn exceeded_quota(
    glob: &str,
    namespace: &str,
    unit: &str,
    path: &str,
    max: u64,
    counts: Option<(u64, u64)>,
) -> PolicyViolation {
    let admin = "or ask your cluster admin for a higher quota";
    let Some((asked, all)) = counts else {
        return PolicyViolation {
            path: path.to_owned(),
            value: format!("an unknown number of {unit}"),
            rule: format!(
                "cannot be compared with policy.quotas[{glob}], by which {namespace} may have {max} {unit}: AWS does not know an instance type of its groups, or did not answer"
            ),
            remedy: "use instance types that AWS offers in the region, or wait until AWS answers".to_owned(),
        };
    };
    let (others, over) = (all.saturating_sub(asked), all - max);
    PolicyViolation {
        path: path.to_owned(),
        value: if asked == 1 { format!("1 {}", singular(unit)) } else { format!("{asked} {unit}") },
        rule: format!(
            "is more than policy.quotas[{glob}] leaves: {namespace} may have {max} {unit}, and its other groups have {others}"
        ),
        remedy: match unit {
            "nodes" | "nodes of a surge" | "vCPUs" if over >= asked => {
                format!("shrink or delete another group, {admin}")
            }
            "nodes" if path.starts_with("spec.eks-managed") => {
                format!("reduce it by {over} (while one node group replaces another, both count), {admin}")
            }
            "nodes" => format!("reduce it by {over} (warmPool and maxSurge count, too), {admin}"),
            "nodes of a surge" => format!("reduce it by {over}, {admin}"),
            "vCPUs" => format!(
                "use {over} fewer, with smaller sizes or instance types (each node counts as the largest listed type), {admin}"
            ),
            _ => format!("delete another group, {admin}"),
        },
    }
}

fn parse_quota(section: &Section, value: &Value, path: &str) -> Result<Quota, ErrorList> {
    let (mut quota, mut errors) = (Quota::default(), ErrorList::default());
    for (key, value) in section.map(value, path)? {
        let path = format!("{path}.{key}");
        let mut number = || {
            let number = value.as_u64();
            errors.ok(number.ok_or_else(|| section.error(&path, "is not a whole number", "write a whole number")))
        };
        match key.to_ascii_lowercase().as_str() {
            "maxgroups" => quota.max_groups = number(),
            "maxnodes" => quota.max_nodes = number(),
            "maxvcpus" => quota.max_vcpus = number(),
            "maxsurge" => quota.max_surge = number(),
            _ => {
                let remedy = "use maxGroups, maxNodes, maxVcpus or maxSurge";
                errors.push(section.error(&path, "is not a known quota", remedy));
            }
        }
    }
    errors.into_result(quota)
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
    let is_from_tenant = effective.is_from_tenant(path);
    let name = aws_managed_policy_name(text).or_else(|| role_name_from_arn(text));
    let allowed = matches_any_glob(globs, text) || name.is_some_and(|name| matches_any_glob(globs, name));
    if is_from_tenant && !allowed {
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

/// The name of an AWS managed policy, from its ARN. Policies of an account are compared by their full ARN, because an
/// account can give them any name.
fn aws_managed_policy_name(text: &str) -> Option<&str> {
    let mut parts = text.splitn(6, ':');
    let (arn, _partition, service) = (parts.next()?, parts.next()?, parts.next()?);
    let (region, account, resource) = (parts.next()?, parts.next()?, parts.next()?);
    let known = arn == "arn" && service == "iam" && region.is_empty() && account == "aws";
    resource.strip_prefix("policy/").filter(|_| known)?.rsplit('/').next()
}

/// The name of a role, from its ARN. Within an account role names are unique, regardless of their path.
fn role_name_from_arn(text: &str) -> Option<&str> {
    let (_, resource) = text.strip_prefix("arn:")?.split_once(":iam::")?;
    resource.split_once(":role/")?.1.rsplit('/').next()
}
