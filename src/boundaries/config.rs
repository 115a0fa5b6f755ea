//! The ConfigMap's text becomes [`Boundaries`], or an error that names key, line and path.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    merge::hex, normalize::normalize, path::Path, policy::Policy, selector::AnnotationSelector,
    yaml,
};
use crate::api::{
    names::fail_reason,
    schema,
    validate::{FieldErrorKind, find_all},
};

/// The keys of the ConfigMap that have a meaning.
pub const KEYS: [&str; 4] = ["boundaries", "defaults", "conditionals", "policy"];

/// What an admin's ConfigMap says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Boundaries {
    pub(super) restricted: Vec<Path>,
    pub(super) replace: Vec<Path>,
    pub(super) merge: Vec<Path>,
    pub(super) merge_override: Vec<Path>,
    pub(super) defaults: Value,
    pub(super) conditionals: Vec<Conditional>,
    /// What tenants may choose.
    pub policy: Policy,
    revision: String,
}

/// Defaults for the groups whose annotations match.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conditional {
    pub selector: AnnotationSelector,
    pub defaults: Value,
}

/// Something in the ConfigMap that probably is not what was meant. It stops nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}{}: {path}: {message}; {remedy}", at_line(.line))]
pub struct Warning {
    /// Key of the ConfigMap.
    pub key: String,
    /// Line within that key, counted from 1.
    pub line: Option<usize>,
    /// Where.
    pub path: String,
    /// What is odd.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// A ConfigMap that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}{}: {path}{}{message}; {remedy}", at_line(.line), if .path.is_empty() { "" } else { ": " })]
pub struct ConfigError {
    /// Key of the ConfigMap.
    pub key: String,
    /// Line within that key, counted from 1.
    pub line: Option<usize>,
    /// Where; empty for the whole key.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
    reason: &'static str,
}

fn at_line(line: &Option<usize>) -> String {
    line.map(|line| format!(" line {line}")).unwrap_or_default()
}

impl ConfigError {
    /// `UnmarshalDefaults` for text that does not parse, `ApplyDefaults` for a selector that does not.
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

impl Boundaries {
    /// Reads the ConfigMap's data. Keys that are missing or empty say nothing.
    pub fn parse(data: &BTreeMap<String, String>) -> Result<(Self, Vec<Warning>), ConfigError> {
        let mut warnings = unknown_keys(data);
        let mut read = |key: &'static str| {
            Section::read(key, data.get(key).map_or("", String::as_str), &mut warnings)
        };
        let (boundaries, defaults, conditionals, policy) = (
            read("boundaries")?,
            read("defaults")?,
            read("conditionals")?,
            read("policy")?,
        );
        let root = boundaries.map(&boundaries.value, "")?;
        boundaries.warn_unknown(root, "", &["restricted", "shared"], &mut warnings);
        let empty = Map::new();
        let shared = root
            .get("shared")
            .map_or(Ok(&empty), |shared| boundaries.map(shared, "shared"))?;
        boundaries.warn_unknown(
            shared,
            "shared",
            &["merge", "mergeOverride", "replace"],
            &mut warnings,
        );
        let mut paths = |from: &Map<String, Value>, at: &str, name: &str| {
            let list = from.get(name).unwrap_or(&Value::Null);
            boundaries.paths(list, &format!("{at}{name}"), &mut warnings)
        };
        let mut parsed = Self {
            restricted: paths(root, "", "restricted")?,
            replace: paths(shared, "shared.", "replace")?,
            merge: paths(shared, "shared.", "merge")?,
            merge_override: paths(shared, "shared.", "mergeOverride")?,
            defaults: defaults.fragment(defaults.value.clone(), "", &mut warnings)?,
            conditionals: read_conditionals(&conditionals, &mut warnings)?,
            policy: Policy::read(&policy)?,
            revision: revision(data),
        };
        parsed.warn_open_choices(&mut warnings);
        parsed.revision.truncate(16);
        Ok((parsed, warnings))
    }

    /// The text's revision: it changes when any of the four keys does. Empty without a ConfigMap.
    pub fn revision(&self) -> String {
        self.revision.clone()
    }

    /// Indexes of the conditionals whose selectors match, in order.
    pub(super) fn matching(&self, annotations: &BTreeMap<String, String>) -> Vec<usize> {
        let all = self.conditionals.iter().enumerate();
        all.filter(|(_, conditional)| conditional.selector.matches(annotations))
            .map(|(index, _)| index)
            .collect()
    }

    /// Without a list and without a restriction, tenants choose the power of their nodes.
    fn warn_open_choices(&self, warnings: &mut Vec<Warning>) {
        let fields = [
            ("roles", "roleName", self.policy.roles.is_none()),
            ("roles", "instanceProfileName", self.policy.roles.is_none()),
            (
                "managedPolicies",
                "managedPolicies",
                self.policy.managed_policies.is_none(),
            ),
        ];
        for (list, field, open) in fields {
            let path = format!("spec.eks.configuration.{field}");
            let restricted = Path::parse(&path)
                .is_some_and(|path| self.restricted.iter().any(|above| above.covers(&path)));
            if open && !restricted {
                warnings.push(Warning {
                    key: "policy".to_owned(),
                    line: None,
                    path: list.to_owned(),
                    message: format!("without this list, tenants may choose any value for {path}"),
                    remedy: format!("list what they may choose, or restrict {path}"),
                });
            }
        }
    }
}

fn revision(data: &BTreeMap<String, String>) -> String {
    let known: Vec<_> = KEYS.iter().map(|key| data.get(*key)).collect();
    hex(&Sha256::digest(json!(known).to_string().as_bytes()))
}

fn unknown_keys(data: &BTreeMap<String, String>) -> Vec<Warning> {
    let unknown = data.keys().filter(|key| !KEYS.contains(&key.as_str()));
    unknown
        .map(|key| Warning {
            key: key.clone(),
            line: None,
            path: key.clone(),
            message: "is not a key that has a meaning here".to_owned(),
            remedy: suggestion(schema::nearest(key, KEYS.into_iter())),
        })
        .collect()
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "remove it".to_owned(),
        |near| format!("did you mean {near:?}?"),
    )
}

fn read_conditionals(
    section: &Section,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<Conditional>, ConfigError> {
    let mut found = vec![];
    for (index, item) in section.list(&section.value, "")?.iter().enumerate() {
        let at = format!("[{index}]");
        let item = section.map(item, &at)?;
        section.warn_unknown(item, &at, &["annotationSelector", "defaults"], warnings);
        let selector_at = format!("{at}.annotationSelector");
        let text = match item.get("annotationSelector") {
            None | Some(Value::Null) => "",
            Some(Value::String(text)) => text,
            Some(_) => {
                return Err(section.error(
                    &selector_at,
                    "is not a string",
                    "write a label selector in quotes",
                ));
            }
        };
        let selector = AnnotationSelector::parse(text).map_err(|problem| ConfigError {
            reason: fail_reason::APPLY_DEFAULTS,
            ..section.error(
                &selector_at,
                &format!("is not a selector: {problem}"),
                "use the grammar of Kubernetes label selectors, such as 'a = b, c in (d, e), !f'",
            )
        })?;
        let defaults = item.get("defaults").cloned().unwrap_or_default();
        found.push(Conditional {
            selector,
            defaults: section.fragment(defaults, &format!("{at}.defaults."), warnings)?,
        });
    }
    Ok(found)
}

/// One key of the ConfigMap: its text, for lines, and its value.
pub(super) struct Section<'a> {
    key: &'static str,
    text: &'a str,
    pub(super) value: Value,
}

impl<'a> Section<'a> {
    pub(super) fn read(
        key: &'static str,
        text: &'a str,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, ConfigError> {
        let document = yaml::read(text).map_err(|error| ConfigError {
            key: key.to_owned(),
            line: error.line,
            path: String::new(),
            message: error.message,
            remedy: "write one YAML document".to_owned(),
            reason: fail_reason::UNMARSHAL_DEFAULTS,
        })?;
        warnings.extend(document.duplicates.into_iter().map(|name| Warning {
            key: key.to_owned(),
            line: None,
            path: name,
            message: "stands twice in one map, and the last one counts".to_owned(),
            remedy: "remove one".to_owned(),
        }));
        Ok(Self {
            key,
            text,
            value: document.value,
        })
    }

    fn line(&self, path: &str) -> Option<usize> {
        yaml::locate(self.text, 0, path)
    }

    pub(super) fn error(&self, path: &str, message: &str, remedy: &str) -> ConfigError {
        ConfigError {
            key: self.key.to_owned(),
            line: self.line(path),
            path: path.to_owned(),
            message: message.to_owned(),
            remedy: remedy.to_owned(),
            reason: fail_reason::UNMARSHAL_DEFAULTS,
        }
    }

    fn warning(&self, path: &str, message: &str, remedy: String) -> Warning {
        let line = self.line(path);
        Warning {
            key: self.key.to_owned(),
            line,
            path: path.to_owned(),
            message: message.to_owned(),
            remedy,
        }
    }

    /// The value as a map; nothing counts as an empty one.
    pub(super) fn map<'v>(
        &self,
        value: &'v Value,
        path: &str,
    ) -> Result<&'v Map<String, Value>, ConfigError> {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        match value {
            Value::Null => Ok(&EMPTY),
            Value::Object(map) => Ok(map),
            _ => Err(self.error(path, "is not a map", "write a map")),
        }
    }

    /// The value as a list; nothing counts as an empty one.
    pub(super) fn list<'v>(
        &self,
        value: &'v Value,
        path: &str,
    ) -> Result<&'v [Value], ConfigError> {
        match value {
            Value::Null => Ok(&[]),
            Value::Array(items) => Ok(items),
            _ => Err(self.error(path, "is not a list", "write a list")),
        }
    }

    pub(super) fn strings(&self, value: &Value, path: &str) -> Result<Vec<String>, ConfigError> {
        let items = self.list(value, path)?.iter().enumerate();
        let texts = items.map(|(index, item)| {
            let text = item.as_str().map(str::to_owned);
            text.ok_or_else(|| {
                self.error(
                    &format!("{path}[{index}]"),
                    "is not a string",
                    "write a string",
                )
            })
        });
        texts.collect()
    }

    fn paths(
        &self,
        value: &Value,
        at: &str,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<Path>, ConfigError> {
        let mut found = vec![];
        for (index, text) in self.strings(value, at)?.iter().enumerate() {
            let at = format!("{at}[{index}]");
            match Path::parse(text) {
                Some(path) => {
                    let name = path.to_string();
                    if !schema::is_known(&name) {
                        let message = format!("{name:?} names no field, so it has no effect");
                        warnings.push(self.warning(
                            &at,
                            &message,
                            suggestion(schema::nearest_path(&name)),
                        ));
                    }
                    found.push(path);
                }
                None => warnings.push(self.warning(
                    &at,
                    &format!("{text:?} is not a dotted path"),
                    "write a path such as spec.eks.minSize".to_owned(),
                )),
            }
        }
        Ok(found)
    }

    fn warn_unknown(
        &self,
        map: &Map<String, Value>,
        at: &str,
        known: &[&str],
        warnings: &mut Vec<Warning>,
    ) {
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            let path = if at.is_empty() {
                key.clone()
            } else {
                format!("{at}.{key}")
            };
            let remedy = suggestion(schema::nearest(key, known.iter().copied()));
            warnings.push(self.warning(&path, "has no meaning here", remedy));
        }
    }

    /// A fragment of an InstanceGroup, found at `prefix`: `{metadata: {annotations}, spec}`.
    fn fragment(
        &self,
        mut value: Value,
        prefix: &str,
        warnings: &mut Vec<Warning>,
    ) -> Result<Value, ConfigError> {
        let root_path = prefix.trim_end_matches('.');
        let root = self.map(&value, root_path)?;
        self.warn_unknown(
            root,
            root_path,
            &["apiVersion", "kind", "metadata", "spec"],
            warnings,
        );
        self.map(
            &root.get("metadata").cloned().unwrap_or_default(),
            &format!("{prefix}metadata"),
        )?;
        let mut annotations = value["metadata"]["annotations"].take();
        let map_of_strings = json!({"type": "object", "additionalProperties": {"type": "string"}});
        normalize(&map_of_strings, &mut annotations);
        let at = format!("{prefix}metadata.annotations");
        for (key, value) in self.map(&annotations, &at)? {
            if !value.is_string() {
                return Err(self.error(
                    &format!("{at}.{key}"),
                    "is not a string",
                    "write a string",
                ));
            }
        }
        let mut spec = value["spec"].take();
        self.map(&spec, &format!("{prefix}spec"))?;
        normalize(schema::spec(), &mut spec);
        for finding in find_all(&spec) {
            let path = format!("{prefix}{}", finding.path);
            match finding.kind {
                FieldErrorKind::WrongType => {
                    return Err(self.error(
                        &path,
                        &format!("{} {}", finding.value, finding.rule),
                        &finding.remedy,
                    ));
                }
                FieldErrorKind::Rule | FieldErrorKind::Unknown => {
                    let message = format!("{} {}", finding.value, finding.rule);
                    warnings.push(self.warning(&path, &message, finding.remedy));
                }
            }
        }
        Ok(json!({"metadata": {"annotations": annotations}, "spec": spec}))
    }
}
