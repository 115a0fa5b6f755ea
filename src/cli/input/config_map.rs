//! The ConfigMap of the boundaries among manifests, and what is wrong with it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use super::manifest::{
    Diagnostic, InputFile, ManifestObject, annotations, parse_objects, read_input, warn_other_kinds,
};
use crate::api::names::{self, DEFAULT_CONFIG_NAMESPACE};
use crate::boundaries::{Boundaries, ConfigError, ConfigWarning, yaml};

/// A ConfigMap from a file, which replaces the live one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ConfigFile {
    /// Its annotations; `lock-upgrades` is one of them.
    pub annotations: BTreeMap<String, String>,
    /// Its data: the text of each key.
    pub data: BTreeMap<String, String>,
    /// What is wrong with the ConfigMap, each with file and line.
    pub diagnostics: Vec<Diagnostic>,
}

impl ConfigFile {
    /// Whether there are errors, not counting warnings.
    pub(crate) fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|problem| !problem.warning)
    }
}

/// Reads the ConfigMap of a file.
///
/// # Errors
///
/// The file cannot be read.
pub(crate) fn read_config_map(path: &PathBuf, stdin: &mut dyn Read) -> anyhow::Result<ConfigFile> {
    let source = read_input(path, stdin)?;
    let mut diagnostics = vec![];
    let objects = parse_objects(&source, &mut diagnostics);
    warn_other_kinds(&objects, &mut diagnostics);
    let found = find_boundaries(&source, &objects, &mut diagnostics);
    let value = found.map(|(object, _)| object.value.clone()).unwrap_or_default();
    let data = serde_json::from_value(value["data"].clone()).unwrap_or_default();
    Ok(ConfigFile { annotations: annotations(&value), data, diagnostics })
}

/// The ConfigMap of a file with its boundaries; `None` after an error.
pub(in crate::cli) fn find_boundaries<'o, 'f>(
    source: &InputFile,
    objects: &'o [ManifestObject<'f>],
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<(&'o ManifestObject<'f>, Boundaries)> {
    let before = diagnostics.len();
    let found = find_boundaries_in_part(source, objects, diagnostics)?;
    diagnostics[before..].iter().all(|problem| problem.warning).then_some(found)
}

/// The ConfigMap of a file with what can be used of its boundaries, to find more mistakes in it.
pub(in crate::cli) fn find_boundaries_in_part<'o, 'f>(
    source: &InputFile,
    objects: &'o [ManifestObject<'f>],
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<(&'o ManifestObject<'f>, Boundaries)> {
    let maps: Vec<_> = objects.iter().filter(|object| object.str_at("/kind") == "ConfigMap").collect();
    if maps.is_empty() && diagnostics.iter().all(|problem| problem.warning) {
        let message = format!("the file contains no ConfigMap; add one named {}", names::CONFIG_MAP);
        diagnostics.push(Diagnostic { location: source.name.clone(), path: String::new(), message, warning: false });
    }
    let chosen = maps.iter().copied().max_by_key(|object| object.str_at("/metadata/name") == names::CONFIG_MAP);
    let (boundaries, _) = parse_partially(maps, diagnostics)?;
    Some((chosen?, boundaries))
}

/// Parses the boundaries of the ConfigMap. Without a ConfigMap, they are empty; `None` after an error.
pub(super) fn parse_boundaries(
    config_maps: Vec<&ManifestObject>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Boundaries> {
    parse_partially(config_maps, diagnostics).filter(|(_, is_complete)| *is_complete).map(|(boundaries, _)| boundaries)
}

/// Parses what can be used of the boundaries of the ConfigMap, and returns whether that is all of it; `None` without a
/// text.
fn parse_partially(config_maps: Vec<&ManifestObject>, diagnostics: &mut Vec<Diagnostic>) -> Option<(Boundaries, bool)> {
    let named: Vec<&ManifestObject> =
        config_maps.iter().copied().filter(|object| object.str_at("/metadata/name") == names::CONFIG_MAP).collect();
    let candidates = if named.is_empty() { config_maps } else { named };
    let object = match candidates.as_slice() {
        [] => return Some((Boundaries::default(), true)),
        [one] => *one,
        [_, second, ..] => {
            let message = format!(
                "the input contains more than one ConfigMap; keep one, named {} in {DEFAULT_CONFIG_NAMESPACE}",
                names::CONFIG_MAP
            );
            diagnostics.push(second.diagnostic("kind", message, false));
            return None;
        }
    };
    let name = object.str_at("/metadata/name");
    if !name.is_empty() && name != names::CONFIG_MAP {
        let message = format!("metadata.name: is not {}, so the controller does not read it", names::CONFIG_MAP);
        diagnostics.push(object.diagnostic("metadata.name", message, true));
    }
    let mut data = BTreeMap::new();
    for (key, value) in object.value["data"].as_object().into_iter().flatten() {
        match value.as_str() {
            Some(text) => _ = data.insert(key.clone(), text.to_owned()),
            None => {
                let path = format!("data.{key}");
                diagnostics.push(object.diagnostic(
                    &path,
                    format!("{path}: is not a string; write a text block (|)"),
                    false,
                ));
                return None;
            }
        }
    }
    let (boundaries, found) = Boundaries::parse_partially(&data);
    let is_complete = found.is_ok();
    match found {
        Ok(warnings) => diagnostics.extend(warnings.iter().map(|warning| warning_in_key(object, warning))),
        Err(found) => {
            diagnostics.extend(found.errors.iter().map(|error| {
                let ConfigError { key, line, path, message, remedy, .. } = error;
                let field = if path.is_empty() { String::new() } else { format!("{path}: ") };
                Diagnostic {
                    location: location_in_key(object, key, *line),
                    path: path.clone(),
                    message: format!("{key}: {field}{message}; {remedy}"),
                    warning: false,
                }
            }));
            diagnostics.extend(found.omission().map(|omission| object.diagnostic("data", omission, false)));
            diagnostics.extend(found.warnings.iter().map(|warning| warning_in_key(object, warning)));
        }
    }
    Some((boundaries, is_complete))
}

/// A warning about the boundaries, with its place in the file.
pub(in crate::cli) fn warning_in_key(object: &ManifestObject, warning: &ConfigWarning) -> Diagnostic {
    Diagnostic {
        location: location_in_key(object, &warning.key, warning.line),
        path: warning.path.clone(),
        message: format!("{}: {}: {}; {}", warning.key, warning.path, warning.message, warning.remedy),
        warning: true,
    }
}

/// Converts a line of a key's text block to a line of the file. The block starts below the line of the key.
pub(in crate::cli) fn location_in_key(object: &ManifestObject, key: &str, line: Option<usize>) -> String {
    let start = yaml::locate(&object.file.text, object.document_index, &format!("{}data.{key}", object.path_prefix));
    let is_block = |line: &usize| {
        let text = object.file.text.lines().nth(line - 1).unwrap_or_default();
        text.trim_end().ends_with(['|', '>', '-', '+']) && text.contains(['|', '>'])
    };
    match (start.filter(is_block), line) {
        (Some(start), Some(line)) => format!("{}:{}", object.file.name, start + line),
        _ => object.location(&format!("data.{key}")),
    }
}
