//! One key of the ConfigMap: typed access to its YAML, with lines for what is wrong.

use serde_json::{Map, Value, json};

use super::{
    config::{ConfigError, Warning, suggestion},
    normalize::normalize,
    path::Path,
    yaml,
};
use crate::api::{
    names::fail_reason,
    schema,
    validate::{FieldErrorKind, find_all},
};

/// One key of the ConfigMap: its text, for lines, and its value.
pub(super) struct Section<'a> {
    key: &'static str,
    text: &'a str,
    pub(super) value: Value,
}

impl<'a> Section<'a> {
    pub(super) fn read(key: &'static str, text: &'a str, warnings: &mut Vec<Warning>) -> Result<Self, ConfigError> {
        let document = yaml::read(text).map_err(|error| ConfigError {
            key,
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
        Ok(Self { key, text, value: document.value })
    }

    fn line(&self, path: &str) -> Option<usize> {
        yaml::locate(self.text, 0, path)
    }

    pub(super) fn error(&self, path: &str, message: &str, remedy: &str) -> ConfigError {
        ConfigError {
            key: self.key,
            line: self.line(path),
            path: path.to_owned(),
            message: message.to_owned(),
            remedy: remedy.to_owned(),
            reason: fail_reason::UNMARSHAL_DEFAULTS,
        }
    }

    fn warning(&self, path: &str, message: &str, remedy: String) -> Warning {
        let line = self.line(path);
        Warning { key: self.key.to_owned(), line, path: path.to_owned(), message: message.to_owned(), remedy }
    }

    /// The value as a map; nothing counts as an empty one.
    pub(super) fn map<'v>(&self, value: &'v Value, path: &str) -> Result<&'v Map<String, Value>, ConfigError> {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        match value {
            Value::Null => Ok(&EMPTY),
            Value::Object(map) => Ok(map),
            _ => Err(self.error(path, "is not a map", "write a map")),
        }
    }

    /// The value as a list; nothing counts as an empty one.
    pub(super) fn list<'v>(&self, value: &'v Value, path: &str) -> Result<&'v [Value], ConfigError> {
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
            text.ok_or_else(|| self.error(&format!("{path}[{index}]"), "is not a string", "write a string"))
        });
        texts.collect()
    }

    pub(super) fn paths(&self, value: &Value, at: &str, warnings: &mut Vec<Warning>) -> Result<Vec<Path>, ConfigError> {
        let mut found = vec![];
        for (index, text) in self.strings(value, at)?.iter().enumerate() {
            let at = format!("{at}[{index}]");
            match Path::parse(text) {
                Some(path) => {
                    let name = path.to_string();
                    if !schema::is_known(&name) {
                        let message = format!("{name:?} names no field, so it has no effect");
                        warnings.push(self.warning(&at, &message, suggestion(schema::nearest_path(&name))));
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

    pub(super) fn warn_unknown(&self, map: &Map<String, Value>, at: &str, known: &[&str], warnings: &mut Vec<Warning>) {
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
            let remedy = suggestion(schema::nearest(key, known.iter().copied()));
            warnings.push(self.warning(&path, "has no meaning here", remedy));
        }
    }

    /// A fragment of an InstanceGroup, found at `prefix`: `{metadata: {annotations}, spec}`.
    pub(super) fn fragment(
        &self,
        mut value: Value,
        prefix: &str,
        warnings: &mut Vec<Warning>,
    ) -> Result<Value, ConfigError> {
        let root_path = prefix.trim_end_matches('.');
        let root = self.map(&value, root_path)?;
        self.warn_unknown(root, root_path, &["apiVersion", "kind", "metadata", "spec"], warnings);
        self.map(&root.get("metadata").cloned().unwrap_or_default(), &format!("{prefix}metadata"))?;
        let mut annotations = value["metadata"]["annotations"].take();
        let map_of_strings = json!({"type": "object", "additionalProperties": {"type": "string"}});
        normalize(&map_of_strings, &mut annotations);
        let at = format!("{prefix}metadata.annotations");
        for (key, value) in self.map(&annotations, &at)? {
            if !value.is_string() {
                return Err(self.error(&format!("{at}.{key}"), "is not a string", "write a string"));
            }
        }
        let mut spec = value["spec"].take();
        self.map(&spec, &format!("{prefix}spec"))?;
        normalize(schema::spec(), &mut spec);
        for finding in find_all(&spec) {
            let path = format!("{prefix}{}", finding.path);
            match finding.kind {
                FieldErrorKind::WrongType => {
                    return Err(self.error(&path, &format!("{} {}", finding.value, finding.rule), &finding.remedy));
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
