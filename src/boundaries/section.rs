//! One key of the ConfigMap: typed access to its YAML, with line numbers for errors.

use std::cell::Cell;

use serde_json::{Map, Value, json};

use super::{
    error::{ConfigError, ConfigWarning, ErrorList, MAX_ERRORS, suggestion},
    normalize::normalize,
    path::Path,
    yaml,
};
use crate::api::{
    annotations::{self, AnnotationName},
    names::fail_reason,
    schema,
    validate::{SchemaViolationKind, find_violations, remove_wrong_types},
};

/// Maximum number of warnings about a ConfigMap.
const MAX_WARNINGS: usize = 50;

/// One key of the ConfigMap: its text, for line numbers, and its value.
pub(super) struct Section<'a> {
    key: &'static str,
    text: &'a str,
    pub(super) value: Value,
    /// How many more errors get a line. To look one up costs a pass through the text.
    lines_left: Cell<usize>,
}

impl<'a> Section<'a> {
    pub(super) fn parse(
        key: &'static str,
        text: &'a str,
        warnings: &mut Vec<ConfigWarning>,
    ) -> Result<Self, ConfigError> {
        let (document, has_more) = yaml::read(text).map_err(|error| ConfigError {
            key,
            line: error.line,
            path: String::new(),
            message: error.message,
            remedy: "correct the YAML: its brackets, quotes and indentation, at this line or before it".to_owned(),
            reason: fail_reason::UNMARSHAL_DEFAULTS,
        })?;
        warnings.extend(document.duplicates.into_iter().map(|yaml::DuplicateKey { path, line }| ConfigWarning {
            key: key.to_owned(),
            line,
            path,
            message: "is a duplicate key, and only the last value is used".to_owned(),
            remedy: "remove the duplicate".to_owned(),
        }));
        if has_more {
            warnings.push(ConfigWarning {
                key: key.to_owned(),
                line: None,
                path: "---".to_owned(),
                message: "begins another document, and only the first is used".to_owned(),
                remedy: "write one YAML document".to_owned(),
            });
        }
        Ok(Self { key, text, value: document.value, lines_left: Cell::new(MAX_ERRORS) })
    }

    /// A key that cannot be read, as if it were absent.
    pub(super) fn empty(key: &'static str) -> Self {
        Self { key, text: "", value: Value::Null, lines_left: Cell::new(0) }
    }

    pub(super) fn line_of(&self, path: &str) -> Option<usize> {
        yaml::locate(self.text, 0, path)
    }

    pub(super) fn error(&self, path: &str, message: &str, remedy: &str) -> ConfigError {
        let lines_left = self.lines_left.get();
        self.lines_left.set(lines_left.saturating_sub(1));
        ConfigError {
            key: self.key,
            line: (lines_left > 0).then(|| self.line_of(path)).flatten(),
            path: truncate(path),
            message: truncate(message),
            remedy: truncate(remedy),
            reason: fail_reason::UNMARSHAL_DEFAULTS,
        }
    }

    /// Adds a warning, unless the maximum is reached.
    pub(super) fn warn(
        &self,
        path: &str,
        message: &str,
        remedy: impl FnOnce() -> String,
        warnings: &mut Vec<ConfigWarning>,
    ) {
        if warnings.len() < MAX_WARNINGS {
            let (key, line) = (self.key.to_owned(), self.line_of(path));
            warnings.push(ConfigWarning {
                key,
                line,
                path: truncate(path),
                message: truncate(message),
                remedy: remedy(),
            });
        }
    }

    /// The value as a map; null is an empty map.
    pub(super) fn map<'v>(&self, value: &'v Value, path: &str) -> Result<&'v Map<String, Value>, ConfigError> {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        match value {
            Value::Null => Ok(&EMPTY),
            Value::Object(map) => Ok(map),
            _ => Err(self.error(path, "is not a map", "write a map")),
        }
    }

    /// The value as a list; null is an empty list.
    pub(super) fn list<'v>(&self, value: &'v Value, path: &str) -> Result<&'v [Value], ConfigError> {
        match value {
            Value::Null => Ok(&[]),
            Value::Array(items) => Ok(items),
            _ => Err(self.error(path, "is not a list", "write a list")),
        }
    }

    /// The value as a text. Numbers and booleans are texts without quotes, and null is the empty text, as for the Keiko
    /// controller.
    pub(super) fn text(&self, value: &Value, path: &str) -> Result<String, ConfigError> {
        match value {
            Value::Null => Ok(String::new()),
            Value::String(text) => Ok(text.clone()),
            Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
            Value::Array(_) | Value::Object(_) => Err(self.error(path, "is not a string", "write a string")),
        }
    }

    pub(super) fn strings(&self, value: &Value, path: &str) -> Result<Vec<String>, ErrorList> {
        let items = self.list(value, path)?.iter().enumerate();
        let mut errors = ErrorList::default();
        let texts = items.filter_map(|(index, item)| {
            let text = item.as_str().map(str::to_owned);
            errors.ok(text.ok_or_else(|| self.error(&format!("{path}[{index}]"), "is not a string", "write a string")))
        });
        let texts = texts.collect();
        errors.into_result(texts)
    }

    /// The paths of a list, each with its index there.
    pub(super) fn paths(
        &self,
        value: &Value,
        at: &str,
        warnings: &mut Vec<ConfigWarning>,
    ) -> Result<Vec<(usize, Path)>, ErrorList> {
        let (mut found, mut errors) = (vec![], ErrorList::default());
        for (index, item) in self.list(value, at)?.iter().enumerate() {
            let at = format!("{at}[{index}]");
            let Some(text) = &errors.ok(self.text(item, &at)) else { continue };
            match Path::parse(text) {
                Some(path) => {
                    let name = path.to_string();
                    if !schema::is_known_path(path.segments()) {
                        let message = format!("{name:?} matches no field and has no effect");
                        self.warn(&at, &message, || suggestion(schema::closest_path(&name)), warnings);
                    }
                    if let [_, _, key] = path.segments()
                        && name.starts_with("metadata.annotations.")
                        && let AnnotationName::Unknown { likely } = annotations::classify_name(key)
                    {
                        let message = format!("{key} is not a known annotation, so the path has no effect");
                        self.warn(&at, &message, || suggestion(likely), warnings);
                    }
                    found.push((index, path));
                }
                None => {
                    let message = format!("{text:?} is not a dotted path");
                    self.warn(&at, &message, || "write a path such as spec.eks.minSize".to_owned(), warnings);
                }
            }
        }
        errors.into_result(found)
    }

    /// A map whose known keys have their exact spelling. Keys are read in any case. A misspelled key is an error, because
    /// it would silently open a field. Any other unknown key has no effect in the Keiko controller either, and is a
    /// warning.
    pub(super) fn keys(
        &self,
        map: &Map<String, Value>,
        at: &str,
        known: &[&str],
        warnings: &mut Vec<ConfigWarning>,
        errors: &mut ErrorList,
    ) -> Map<String, Value> {
        let mut found = Map::new();
        for (key, value) in map {
            let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
            if let Some(name) = known.iter().find(|name| name.eq_ignore_ascii_case(key)) {
                if found.insert((*name).to_owned(), value.clone()).is_some() {
                    let message = format!("is a duplicate of {name}, and only one of them is used");
                    self.warn(&path, &message, || "remove the duplicate".to_owned(), warnings);
                }
            } else if let Some(name) = schema::misspelled(key, known.iter().copied()) {
                errors.push(self.error(&path, "is not a known key", &suggestion(Some(name))));
            } else {
                self.warn(&path, "is not a known key and has no effect", || suggestion(None), warnings);
            }
        }
        found
    }

    pub(super) fn warn_unknown(
        &self,
        map: &Map<String, Value>,
        at: &str,
        known: &[&str],
        warnings: &mut Vec<ConfigWarning>,
    ) {
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
            let remedy = || suggestion(schema::closest_match(key, known.iter().copied()));
            self.warn(&path, "is not a known key and has no effect", remedy, warnings);
        }
    }

    /// Parses a fragment of an InstanceGroup at `prefix`: `{metadata: {annotations}, spec}`. Returns it without values of
    /// wrong types, which are errors.
    pub(super) fn fragment(
        &self,
        mut value: Value,
        prefix: &str,
        warnings: &mut Vec<ConfigWarning>,
        errors: &mut ErrorList,
    ) -> Value {
        let root_path = prefix.trim_end_matches('.');
        let empty = json!({"metadata": {"annotations": {}}, "spec": {}});
        let Some(root) = errors.ok(self.map(&value, root_path)) else { return empty };
        self.warn_unknown(root, root_path, &["apiVersion", "kind", "metadata", "spec"], warnings);
        let metadata = root.get("metadata").unwrap_or(&Value::Null);
        let metadata = errors.ok(self.map(metadata, &format!("{prefix}metadata")));
        let mut annotations = metadata.and_then(|metadata| metadata.get("annotations")).cloned().unwrap_or_default();
        let map_of_strings = json!({"type": "object", "additionalProperties": {"type": "string"}});
        let mut converted = vec![];
        normalize(&map_of_strings, &mut annotations, "metadata.annotations", &mut converted);
        let at = format!("{prefix}metadata.annotations");
        for (key, value) in errors.ok(self.map(&annotations, &at)).into_iter().flatten() {
            if !value.is_string() {
                errors.push(self.error(&format!("{at}.{key}"), "is not a string", "write a string"));
            }
        }
        if let Some(map) = annotations.as_object_mut() {
            map.retain(|_, value| value.is_string());
        }
        let mut spec = value["spec"].take();
        if errors.ok(self.map(&spec, &format!("{prefix}spec"))).is_none() {
            return empty;
        }
        normalize(schema::spec(), &mut spec, "spec", &mut converted);
        for warning in converted {
            self.warn(&format!("{prefix}{}", warning.path), &warning.message, || warning.remedy.to_owned(), warnings);
        }
        for finding in find_violations(&spec) {
            let path = format!("{prefix}{}", finding.path);
            match finding.kind {
                SchemaViolationKind::WrongType => {
                    errors.push(self.error(&path, &format!("{} {}", finding.value, finding.rule), &finding.remedy));
                }
                SchemaViolationKind::Rule | SchemaViolationKind::Unknown => {
                    let message = format!("{} {}", finding.value, finding.rule);
                    self.warn(&path, &message, || finding.remedy, warnings);
                }
            }
        }
        remove_wrong_types(&mut spec);
        json!({"metadata": {"annotations": annotations}, "spec": spec})
    }

    /// Warns about values in a fragment that have no effect, because no boundary lists their path.
    pub(super) fn warn_unreached(
        &self,
        fragment: &Value,
        prefix: &str,
        listed: &[&Path],
        warnings: &mut Vec<ConfigWarning>,
    ) {
        let mut unreached = vec![];
        collect_unreached(&fragment["metadata"]["annotations"], "metadata.annotations", listed, &mut unreached);
        collect_unreached(&fragment["spec"], "spec", listed, &mut unreached);
        // A boundary cannot list what is not a field. Another warning names the field that was meant.
        let is_unknown = |path: &String| {
            let unknown = SchemaViolationKind::Unknown;
            find_violations(&fragment["spec"]).iter().any(|found| found.kind == unknown && found.path == *path)
        };
        unreached.retain(|path| !is_unknown(path));
        for path in unreached {
            let message = "has no effect, because no boundary lists it";
            let remedy = || format!("list {path} under restricted or shared, or remove it");
            self.warn(&format!("{prefix}{path}"), message, remedy, warnings);
        }
    }
}

fn collect_unreached(value: &Value, at: &str, listed: &[&Path], found: &mut Vec<String>) {
    let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
    let Some(path) = Path::parse(at).filter(|_| !is_empty) else { return };
    if listed.iter().any(|boundary| boundary.covers(&path)) {
        return;
    }
    match value {
        Value::Object(map) if listed.iter().any(|boundary| path.covers(boundary)) => {
            map.iter().for_each(|(key, value)| collect_unreached(value, &format!("{at}.{key}"), listed, found));
        }
        _ => found.push(at.to_owned()),
    }
}

/// Shortens a text from the ConfigMap, because conditions and events have size limits.
fn truncate(text: &str) -> String {
    match text.char_indices().nth(400) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
