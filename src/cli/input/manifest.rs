//! Manifests as they stand in files: objects, and messages that name file and line.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::PathBuf;

use anyhow::Context;
use serde_json::Value;

use crate::api::{GroupId, InstanceGroup, InstanceGroupSpec, group_id};
use crate::boundaries::yaml;
use crate::util::escape::escape_control;

/// An error or warning about the input: `file:line: field: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// File, with the line if it is known.
    pub location: String,
    /// Dotted path of the field within its key; empty where nothing compares it.
    pub path: String,
    /// The field and what is wrong with it, for display.
    pub message: String,
    /// Whether it is only a warning.
    pub warning: bool,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.warning { "warning: " } else { "" };
        write!(f, "{}: {kind}{}", escape_control(&self.location), escape_control(&self.message))
    }
}

/// A file with manifests.
pub(in crate::cli) struct InputFile {
    /// Its name for messages.
    pub name: String,
    pub(super) text: String,
}

/// One object of a file: the index of its document, and its path in the document (`items[3].`, or empty).
pub(in crate::cli) struct ManifestObject<'a> {
    pub(super) file: &'a InputFile,
    pub(super) document_index: usize,
    pub(super) path_prefix: String,
    /// The object as JSON, not validated.
    pub value: Value,
}

impl ManifestObject<'_> {
    pub(super) fn location(&self, path: &str) -> String {
        match yaml::locate(&self.file.text, self.document_index, &format!("{}{path}", self.path_prefix)) {
            Some(line) => format!("{}:{line}", self.file.name),
            None => self.file.name.clone(),
        }
    }

    pub(super) fn diagnostic(&self, path: &str, message: impl Into<String>, warning: bool) -> Diagnostic {
        Diagnostic { location: self.location(path), path: String::new(), message: message.into(), warning }
    }

    /// The text at a JSON pointer; empty if there is none.
    pub(in crate::cli) fn str_at(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn group_id(&self) -> GroupId {
        let mut group = InstanceGroup::new(self.str_at("/metadata/name"), InstanceGroupSpec::default());
        group.metadata.namespace = Some(self.namespace().to_owned());
        group_id(&group)
    }

    pub(super) fn namespace(&self) -> &str {
        Some(self.str_at("/metadata/namespace")).filter(|name| !name.is_empty()).unwrap_or("default")
    }
}

/// Reads a file, or standard input for `-`.
///
/// # Errors
///
/// It cannot be read, or is not UTF-8.
pub(in crate::cli) fn read_input(path: &PathBuf, stdin: &mut dyn Read) -> anyhow::Result<InputFile> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        stdin.read_to_string(&mut text).context("cannot read standard input as UTF-8 text")?;
        return Ok(InputFile { name: "<stdin>".to_owned(), text });
    }
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    Ok(InputFile { name, text })
}

/// The objects of a file, and the items of its lists.
pub(in crate::cli) fn parse_objects<'a>(
    file: &'a InputFile,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<ManifestObject<'a>> {
    let documents = match yaml::read_all(&file.text) {
        Ok(documents) => documents,
        Err(error) => {
            let location = error.line.map_or(file.name.clone(), |line| format!("{}:{line}", file.name));
            diagnostics.push(Diagnostic { location, path: String::new(), message: error.message, warning: false });
            return vec![];
        }
    };
    let mut found = vec![];
    for (document_index, yaml::YamlDocument { value, duplicates }) in documents.into_iter().enumerate() {
        diagnostics.extend(duplicates.into_iter().map(|yaml::DuplicateKey { path, line }| Diagnostic {
            location: line.map_or_else(|| file.name.clone(), |line| format!("{}:{line}", file.name)),
            message: format!("{path}: is a duplicate key, and only the last value is used; remove the duplicate"),
            path,
            warning: true,
        }));
        if value["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) {
            let items = value["items"].as_array().cloned().unwrap_or_default().into_iter().enumerate();
            found.extend(items.map(|(index, value)| ManifestObject {
                file,
                document_index,
                path_prefix: format!("items[{index}]."),
                value,
            }));
        } else if !value.is_null() {
            found.push(ManifestObject { file, document_index, path_prefix: String::new(), value });
        }
    }
    found
}

pub(super) fn warn_other_kinds(objects: &[ManifestObject], diagnostics: &mut Vec<Diagnostic>) {
    for object in objects {
        if !["InstanceGroup", "ConfigMap", "Namespace"].contains(&object.str_at("/kind")) {
            diagnostics.push(object.diagnostic(
                "kind",
                "kind: is not InstanceGroup, ConfigMap or Namespace; the object is ignored",
                true,
            ));
        }
    }
}

pub(super) fn annotations(value: &Value) -> BTreeMap<String, String> {
    let entries = value["metadata"]["annotations"].as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
