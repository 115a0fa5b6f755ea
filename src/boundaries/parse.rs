//! Parser of the ConfigMap: from text to [`Boundaries`], or an error that names key, line and path.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    error::{ConfigError, ConfigErrors, ConfigWarning, ErrorList, suggestion},
    path::Path,
    policy::{FARGATE_SELECTORS_PATH, Policy, ROLE_LIST_PATH, ROLE_PATHS},
    provenance::Boundary,
    rollout_checks::warn_about_checks,
    rollout_policy::RolloutPolicy,
    rollout_warnings::{
        warn_about_covered_globs, warn_about_covered_waves, warn_about_delays, warn_about_long_freezes,
        warn_about_times, warn_about_whole_days,
    },
    section::Section,
    selector::AnnotationSelector,
};
use crate::api::{names::fail_reason, schema};
use crate::util::digest::sha256_hex;

/// The keys of the ConfigMap that make a revision.
pub(crate) const CONFIG_MAP_KEYS: [&str; 4] = ["boundaries", "defaults", "conditionals", "policy"];

/// The key of the ConfigMap that defines how a revision reaches the groups. It is not part of the revision.
pub(crate) const ROLLOUT_KEY: &str = "rollout";

/// Fields of keikoproj/instance-manager, and the fields of this controller alone that extend them.
pub(super) const EXTENSIONS: [(&str, &[&str]); 5] = [
    (
        "spec.eks-managed.configuration.instanceType",
        &["spec.eks-managed.configuration.instanceTypes", "spec.eks-managed.configuration.capacityType"],
    ),
    ("spec.eks-managed.configuration.nodeLabels", &["spec.eks-managed.configuration.taints"]),
    ("spec.eks-managed.configuration.version", &["spec.eks-managed.configuration.nodeRepairConfig"]),
    (
        "spec.eks.configuration.mixedInstancesPolicy.strategy",
        &["spec.eks.configuration.mixedInstancesPolicy.onDemandAllocationStrategy"],
    ),
    (
        "spec.strategy.rollingUpdate.maxUnavailable",
        &[
            "spec.strategy.rollingUpdate.maxSurge",
            "spec.strategy.rollingUpdate.drainForce",
            "spec.strategy.rollingUpdate.drainTimeout",
            "spec.strategy.rollingUpdate.joinTimeout",
            "spec.strategy.managed.maxUnavailable",
        ],
    ),
];

/// The content of the admin's ConfigMap.
#[derive(Clone, Default, PartialEq)]
pub struct Boundaries {
    pub(super) restricted: Arc<[Path]>,
    pub(super) replace: Vec<Path>,
    pub(super) merge: Vec<Path>,
    pub(super) merge_override: Vec<Path>,
    pub(super) defaults: Value,
    pub(super) conditionals: Vec<ConditionalDefaults>,
    /// Limits for what tenants may choose.
    pub policy: Policy,
    /// How a new revision reaches the groups; `None` for all at once.
    pub(crate) rollout: Option<Arc<RolloutPolicy>>,
    revision: String,
}

impl std::fmt::Debug for Boundaries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Boundaries")
            .field("revision", &self.revision)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Defaults for groups whose annotations match a selector.
#[derive(Clone, Default, PartialEq)]
pub(super) struct ConditionalDefaults {
    pub selector: AnnotationSelector,
    pub defaults: Value,
}

impl Boundaries {
    /// Parses the ConfigMap's data. Missing and empty keys are allowed.
    ///
    /// ```
    /// use instance_manager::boundaries::Boundaries;
    ///
    /// let defaults = "spec:\n  eks:\n    minSize: three\n".to_owned();
    /// let found = Boundaries::parse(&[("defaults".to_owned(), defaults)].into()).unwrap_err();
    /// assert_eq!(
    ///     found.errors[0].to_string(),
    ///     "defaults line 3: spec.eks.minSize: \"three\" is not a whole number; write a whole number"
    /// );
    /// ```
    ///
    /// # Errors
    /// All errors of all keys; probable mistakes are returned as warnings.
    pub fn parse(data: &BTreeMap<String, String>) -> Result<(Self, Vec<ConfigWarning>), ConfigErrors> {
        let (parsed, found) = Self::parse_partially(data);
        Ok((parsed, found?))
    }

    /// Parses the ConfigMap's data without what is wrong in it, to find further mistakes; not for a group.
    pub(crate) fn parse_partially(data: &BTreeMap<String, String>) -> (Self, Result<Vec<ConfigWarning>, ConfigErrors>) {
        let (mut warnings, mut errors) = (unknown_keys(data), ErrorList::default());
        let mut read = |key: &'static str| {
            let section = Section::parse(key, data.get(key).map_or("", String::as_str), &mut warnings);
            errors.ok(section).unwrap_or_else(|| Section::empty(key))
        };
        let (boundaries, defaults, conditionals, policy) =
            (read("boundaries"), read("defaults"), read("conditionals"), read("policy"));
        let rollout = read(ROLLOUT_KEY);
        let empty = Map::new();
        let root = errors.ok(boundaries.map(&boundaries.value, "")).unwrap_or(&empty);
        let root = boundaries.keys(root, "", &["restricted", "shared"], &mut warnings, &mut errors);
        let shared = root.get("shared").unwrap_or(&Value::Null);
        let shared = errors.ok(boundaries.map(shared, "shared")).unwrap_or(&empty);
        let known = ["merge", "mergeOverride", "replace"];
        let shared = boundaries.keys(shared, "shared", &known, &mut warnings, &mut errors);
        let mut listed_paths = vec![];
        let mut paths = |from: &Map<String, Value>, name: &str, boundary: Boundary| {
            let list = from.get(name).unwrap_or(&Value::Null);
            let found = errors.or_default(boundaries.paths(list, boundary.as_str(), &mut warnings));
            let place =
                |(index, path): &(usize, Path)| (boundary, format!("{}[{index}]", boundary.as_str()), path.clone());
            listed_paths.extend(found.iter().map(place));
            found.into_iter().map(|(_, path)| path).collect::<Vec<_>>()
        };
        let replace = paths(&shared, "replace", Boundary::Replace);
        let merge = paths(&shared, "merge", Boundary::Merge);
        let merge_override = paths(&shared, "mergeOverride", Boundary::MergeOverride);
        let restricted = paths(&root, "restricted", Boundary::Restricted).into();
        let parsed = Self {
            replace,
            merge,
            merge_override,
            restricted,
            defaults: defaults.fragment(defaults.value.clone(), "", &mut warnings, &mut errors),
            conditionals: parse_conditionals(&conditionals, &mut warnings, &mut errors),
            policy: errors.or_default(Policy::parse(&policy)),
            rollout: errors.or_default(RolloutPolicy::parse(&rollout, &mut warnings)).map(Arc::new),
            revision: content_hash(data),
        };
        if errors.count() > 0 {
            let keys: Vec<_> = CONFIG_MAP_KEYS.into_iter().chain([ROLLOUT_KEY]).collect();
            return (parsed, Err(errors.sorted(&keys, warnings)));
        }
        parsed.policy.warn_globs(&policy, &mut warnings);
        if let Some(policy) = &parsed.rollout {
            let conditional = parsed.conditionals.iter().map(|conditional| &conditional.defaults);
            let defaults = [&parsed.defaults].into_iter().chain(conditional);
            policy.budget.warn_about_batches(&rollout, defaults, &mut warnings);
            warn_about_covered_waves(&rollout, &policy.waves, &mut warnings);
            warn_about_whole_days(&rollout, policy, &mut warnings);
            warn_about_covered_globs(&rollout, policy, &mut warnings);
            warn_about_long_freezes(&rollout, &policy.freezes, &mut warnings);
        }
        warn_clashes(&listed_paths, &boundaries, &mut warnings);
        parsed.warn_unrestricted(&mut warnings);
        parsed.warn_open_extensions(&listed_paths, &boundaries, &mut warnings);
        let listed: Vec<&Path> = parsed.all_paths().collect();
        defaults.warn_unreached(&parsed.defaults, "", &listed, &mut warnings);
        for (index, conditional) in parsed.conditionals.iter().enumerate() {
            let prefix = format!("[{index}].defaults.");
            conditionals.warn_unreached(&conditional.defaults, &prefix, &listed, &mut warnings);
        }
        (parsed, Ok(warnings))
    }

    /// Warnings about parts of `data`, from which this was parsed, that have no effect, or another one, with the flags of this
    /// process: without a Prometheus, or without a cluster name.
    pub(crate) fn flag_warnings(
        &self,
        data: &BTreeMap<String, String>,
        has_prometheus: bool,
        has_cluster: bool,
    ) -> Vec<ConfigWarning> {
        self.rollout_warnings(data, |section, policy, warnings| {
            warn_about_checks(section, &policy.checks, has_prometheus, has_cluster, warnings);
            warn_about_delays(section, &policy.delay, has_cluster, warnings);
        })
    }

    /// Warnings about parts of `data`, from which this was parsed, that depend on the time: waves that do not open, and
    /// an urgency that is cut.
    pub(crate) fn time_warnings(&self, data: &BTreeMap<String, String>, now: Timestamp) -> Vec<ConfigWarning> {
        self.rollout_warnings(data, |section, policy, warnings| warn_about_times(section, policy, now, warnings))
    }

    /// The warnings that `warn` adds about the key `rollout`; none without it.
    fn rollout_warnings(
        &self,
        data: &BTreeMap<String, String>,
        warn: impl FnOnce(&Section, &RolloutPolicy, &mut Vec<ConfigWarning>),
    ) -> Vec<ConfigWarning> {
        let mut warnings = vec![];
        if let (Some(policy), Some(text)) = (&self.rollout, data.get(ROLLOUT_KEY))
            && let Ok(section) = Section::parse(ROLLOUT_KEY, text, &mut vec![])
        {
            warn(&section, policy, &mut warnings);
        }
        warnings
    }

    /// Revision of the text, which changes with any of the four keys. Empty without a ConfigMap.
    pub(crate) fn revision(&self) -> String {
        self.revision.clone()
    }

    /// Every path that any boundary lists.
    fn all_paths(&self) -> impl Iterator<Item = &Path> {
        [&self.restricted[..], &self.replace[..], &self.merge[..], &self.merge_override[..]].into_iter().flatten()
    }

    /// Whether any boundary names this path, a parent of it, or something below it.
    pub(super) fn concerns(&self, path: &Path) -> bool {
        self.all_paths().any(|listed| listed.overlaps(path))
    }

    /// Indexes of the conditionals whose selectors match, in order.
    pub(super) fn matching_conditionals(&self, annotations: &BTreeMap<String, String>) -> Vec<usize> {
        let all = self.conditionals.iter().enumerate();
        all.filter(|(_, conditional)| conditional.selector.matches(annotations)).map(|(index, _)| index).collect()
    }

    /// Whether a conditional selects groups by an annotation.
    pub(crate) fn selects_by(&self, annotation: &str) -> bool {
        self.conditionals.iter().any(|conditional| conditional.selector.has_key(annotation))
    }

    /// Warns about fields that keikoproj/instance-manager does not have and that no boundary mentions, although the
    /// field that they extend is restricted. Boundaries that were written for it leave them open.
    fn warn_open_extensions(&self, listed: &[ListedPath], section: &Section, warnings: &mut Vec<ConfigWarning>) {
        let path = |text: &str| Path::parse(text).into_iter();
        for (field, extensions) in EXTENSIONS {
            let covers = |(boundary, _, above): &&ListedPath| {
                *boundary == Boundary::Restricted && path(field).any(|field| above.covers(&field))
            };
            let Some((_, at, _)) = listed.iter().find(covers) else { continue };
            let open: Vec<_> = extensions.iter().filter(|open| !path(open).any(|open| self.concerns(&open))).collect();
            for extension in open {
                warnings.push(ConfigWarning {
                    key: "boundaries".to_owned(),
                    line: section.line_of(at),
                    path: field.to_owned(),
                    message: format!("is restricted, and {extension}, which extends it, is open to tenants"),
                    remedy: format!("restrict {extension} too, or list it under shared"),
                });
            }
        }
    }

    /// Warns about missing policy lists: without a list or a restriction, tenants choose the permissions of their
    /// nodes.
    fn warn_unrestricted(&self, warnings: &mut Vec<ConfigWarning>) {
        let role_paths: Vec<&str> = ROLE_PATHS.into_iter().chain([ROLE_LIST_PATH]).collect();
        let lists: [(&str, bool, &[&str]); 2] = [
            ("roles", self.policy.roles.is_none(), &role_paths),
            ("managedPolicies", self.policy.managed_policies.is_none(), &["spec.eks.configuration.managedPolicies"]),
        ];
        let restricted =
            |path: &str| Path::parse(path).is_some_and(|path| self.restricted.iter().any(|above| above.covers(&path)));
        for (list, _, fields) in lists.into_iter().filter(|(_, open, _)| *open) {
            let fields: Vec<_> = fields.iter().copied().filter(|path| !restricted(path)).collect();
            if !fields.is_empty() {
                let fields = fields.join(", ");
                warnings.push(ConfigWarning {
                    key: "policy".to_owned(),
                    line: None,
                    path: list.to_owned(),
                    message: format!("without this list, tenants may choose any value for {fields}"),
                    remedy: format!("list the allowed values, or restrict {fields}"),
                });
            }
        }
        if self.policy.fargate_namespaces.is_none() && !restricted(FARGATE_SELECTORS_PATH) {
            warnings.push(ConfigWarning {
                key: "policy".to_owned(),
                line: None,
                path: "fargateNamespaces".to_owned(),
                message: "without this list, a tenant's Fargate profile may select pods of other namespaces".to_owned(),
                remedy: format!(
                    "list the namespaces ([] for only the tenant's own), or restrict {FARGATE_SELECTORS_PATH}"
                ),
            });
        }
        if !self.policy.limits_exclusion() {
            warnings.push(ConfigWarning {
                key: "policy".to_owned(),
                line: None,
                path: "excludableNamespaces".to_owned(),
                message: "without this list, who may annotate a Namespace can exclude its groups from boundaries and \
                          defaults"
                    .to_owned(),
                remedy: "list the namespaces ([] for none, [\"*\"] for all)".to_owned(),
            });
        }
        if self.policy.strategy_kinds.is_none() && !restricted("spec.strategy.crd") {
            warnings.push(ConfigWarning {
                key: "policy".to_owned(),
                line: None,
                path: "strategyKinds".to_owned(),
                message:
                    "without this list, tenants may create RollingUpgrades and Workflows, whose pods can run with the \
                          permissions of any ServiceAccount"
                        .to_owned(),
                remedy: "list the kinds ([] for none), or restrict spec.strategy.crd".to_owned(),
            });
        }
    }
}

/// A path with the list that it stands in, and its place there, such as `restricted[2]`.
type ListedPath = (Boundary, String, Path);

/// Warns about a path that is listed twice, and about a shared path that a restricted one covers. `listed` is in the order
/// in which the lists are applied.
fn warn_clashes(listed: &[ListedPath], section: &Section, warnings: &mut Vec<ConfigWarning>) {
    let is_restricted = |(boundary, ..): &&ListedPath| *boundary == Boundary::Restricted;
    let restricted: BTreeSet<_> = listed.iter().filter(is_restricted).map(|(.., path)| path.segments()).collect();
    let mut first: BTreeMap<&Path, Boundary> = BTreeMap::new();
    for (boundary, at, path) in listed {
        let above =
            || (1..path.segments().len()).map(|count| &path.segments()[..count]).find(|p| restricted.contains(p));
        if let Some(other) = first.get(path) {
            let message = match boundary {
                _ if other == boundary => format!("{path} is listed twice"),
                Boundary::Restricted => format!("{path} is also listed under {}, and restricted wins", other.as_str()),
                Boundary::Replace | Boundary::Merge | Boundary::MergeOverride => {
                    format!("{path} is also listed under {}, and both apply", other.as_str())
                }
            };
            section.warn(at, &message, || "keep one of the two".to_owned(), warnings);
        } else if let Some(above) = above().filter(|_| *boundary != Boundary::Restricted).map(|path| path.join(".")) {
            let message = format!("{path} has no effect, because restricted lists {above}");
            section.warn(at, &message, || format!("remove it, or restrict less than {above}"), warnings);
        }
        first.entry(path).or_insert(*boundary);
    }
}

/// Hash of the keys that the controller reads, as in the status of groups. It changes with any edit of their text.
pub(crate) fn content_hash(data: &BTreeMap<String, String>) -> String {
    let known: Vec<_> = CONFIG_MAP_KEYS.iter().map(|key| data.get(*key)).collect();
    let mut hash = sha256_hex(&json!(known).to_string());
    hash.truncate(16);
    hash
}

fn unknown_keys(data: &BTreeMap<String, String>) -> Vec<ConfigWarning> {
    let all = || CONFIG_MAP_KEYS.into_iter().chain([ROLLOUT_KEY]);
    let unknown = data.keys().filter(|key| !all().any(|known| known == key.as_str()));
    unknown
        .map(|key| ConfigWarning {
            key: key.clone(),
            line: None,
            path: String::new(),
            message: "is not a known key and has no effect".to_owned(),
            remedy: suggestion(schema::closest_match(key, all())),
        })
        .collect()
}

fn parse_conditionals(
    section: &Section,
    warnings: &mut Vec<ConfigWarning>,
    errors: &mut ErrorList,
) -> Vec<ConditionalDefaults> {
    let mut found = vec![];
    for (index, item) in errors.ok(section.list(&section.value, "")).into_iter().flatten().enumerate() {
        let at = format!("[{index}]");
        let Some(item) = errors.ok(section.map(item, &at)) else {
            found.push(ConditionalDefaults::default());
            continue;
        };
        let item = section.keys(item, &at, &["annotationSelector", "defaults"], warnings, errors);
        let selector_at = format!("{at}.annotationSelector");
        let text = section.text(item.get("annotationSelector").unwrap_or(&Value::Null), &selector_at);
        let text = errors.or_default(text);
        let selector = AnnotationSelector::parse(&text).map_err(|problem| ConfigError {
            reason: fail_reason::APPLY_DEFAULTS,
            ..section.error(
                &selector_at,
                &format!("is not a valid selector: {problem}"),
                "use the grammar of Kubernetes label selectors, such as 'a = b, c in (d, e), !f'",
            )
        });
        let defaults = item.get("defaults").cloned().unwrap_or_default();
        let defaults = section.fragment(defaults, &format!("{at}.defaults."), warnings, errors);
        // One with a wrong selector keeps the indexes of the others.
        let selector = errors.ok(selector).unwrap_or_default();
        found.push(ConditionalDefaults { selector, defaults });
    }
    found
}
