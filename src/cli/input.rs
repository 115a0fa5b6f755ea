//! Reads manifests from files and standard input, for the commands that need no cluster.

use std::{
    collections::BTreeMap,
    fmt,
    io::{Read, Write},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context;
use serde_json::{Value, json};

use crate::{
    api::{
        GroupId, InstanceGroup, InstanceGroupSpec, NodeDemand, group_id, has_resources,
        names::{self, DEFAULT_CONFIG_NAMESPACE},
        spec_error::SpecError,
        used_nodes,
        validate::{SchemaViolationKind, check_spec, find_violations},
    },
    boundaries::{
        Boundaries, ConfigError, ConfigWarning, MergedSpec, NamespaceUsage, QuotaAmounts, QuotaClaim, merge, yaml,
    },
    provisioner::{rejected_fields::ValueSources, spec_check::errors_without_reads},
    util::escape::escape_control,
};

/// Input arguments of `render` and `explain`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct InputArgs {
    /// Files with InstanceGroups, the ConfigMap of the boundaries, and Namespaces with their annotations; `-` reads standard
    /// input. Only for `explain`: NAMESPACE/NAME of a group of the cluster
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// File with the ConfigMap, instead of one among the other manifests
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Merge as in a Namespace with the annotation that excludes it from boundaries and defaults
    #[arg(long)]
    pub namespace_excluded: bool,
    /// Output format; without it, `render` prints YAML, and `explain` text for people
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub output: Option<ManifestFormat>,
}

/// Output formats of `render` and `explain`.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestFormat {
    /// YAML
    Yaml,
    /// JSON
    Json,
}

/// An error or warning about the input: `file:line: field: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// File, with the line if it is known.
    pub location: String,
    /// Dotted path of the field within its key; empty where nothing compares it.
    pub path: String,
    /// Field and message.
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

/// A group and the result of its merge.
#[derive(Clone)]
pub struct MergedGroup {
    /// The manifest from the input.
    pub manifest: Value,
    /// Namespace and name.
    pub id: String,
    /// The group after the merge.
    pub merged: Arc<MergedSpec>,
}

/// The result of loading the input.
#[derive(Clone, Default)]
pub struct LoadResult {
    /// Groups that could be merged, in order of appearance.
    pub groups: Vec<MergedGroup>,
    /// Errors and warnings.
    pub diagnostics: Vec<Diagnostic>,
}

impl LoadResult {
    /// Whether there are errors, not counting warnings.
    pub(crate) fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|problem| !problem.warning)
    }
}

/// A file with manifests.
pub(super) struct InputFile {
    /// Its name for messages.
    pub name: String,
    text: String,
}

/// One object of a file: the index of its document, and its path in the document (`items[3].`, or empty).
pub(super) struct ManifestObject<'a> {
    file: &'a InputFile,
    document_index: usize,
    path_prefix: String,
    /// The object itself.
    pub value: Value,
}

impl ManifestObject<'_> {
    fn location(&self, path: &str) -> String {
        match yaml::locate(&self.file.text, self.document_index, &format!("{}{path}", self.path_prefix)) {
            Some(line) => format!("{}:{line}", self.file.name),
            None => self.file.name.clone(),
        }
    }

    fn diagnostic(&self, path: &str, message: impl Into<String>, warning: bool) -> Diagnostic {
        Diagnostic { location: self.location(path), path: String::new(), message: message.into(), warning }
    }

    /// The text at a JSON pointer; empty if there is none.
    pub(super) fn str_at(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    fn group_id(&self) -> GroupId {
        let mut group = InstanceGroup::new(self.str_at("/metadata/name"), InstanceGroupSpec::default());
        group.metadata.namespace = Some(self.namespace().to_owned());
        group_id(&group)
    }

    fn namespace(&self) -> &str {
        Some(self.str_at("/metadata/namespace")).filter(|name| !name.is_empty()).unwrap_or("default")
    }
}

/// Merges the input, writes diagnostics to `err` and the groups to `out` with `write`; returns whether there are no errors.
pub(crate) fn load_and_write(
    args: &InputArgs,
    stdin: &mut dyn Read,
    out: &mut dyn Write,
    err: &mut dyn Write,
    write: fn(&[MergedGroup], Option<ManifestFormat>, &mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let result = load(args, stdin)?;
    for problem in &result.diagnostics {
        writeln!(err, "{problem}")?;
    }
    write(&result.groups, args.output, out)?;
    Ok(!result.has_errors())
}

/// The exit code of a command that merges: 0, or 1 if there are errors.
pub(crate) fn exit_code(ok: bool) -> ExitCode {
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reads and merges the input. Errors in the content are a [`Diagnostic`].
///
/// # Errors
///
/// A file cannot be read.
pub fn load(args: &InputArgs, stdin: &mut dyn Read) -> anyhow::Result<LoadResult> {
    let mut sources = vec![];
    for path in args.config.iter().chain(&args.files) {
        sources.push(read_input(path, stdin)?);
    }
    Ok(load_sources(&sources, args.namespace_excluded))
}

/// Merges objects that were read from a cluster. Their diagnostics have no lines.
pub(super) fn load_objects(objects: Vec<Value>) -> LoadResult {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    load_sources(&[InputFile { name: "cluster".to_owned(), text: list.to_string() }], false)
}

fn load_sources(sources: &[InputFile], namespace_excluded: bool) -> LoadResult {
    let mut result = LoadResult::default();
    let objects: Vec<ManifestObject> =
        sources.iter().flat_map(|source| parse_objects(source, &mut result.diagnostics)).collect();
    warn_other_kinds(&objects, &mut result.diagnostics);
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object.str_at("/kind") == kind);
    if result.has_errors() {
        return result;
    }
    let Some(boundaries) = parse_boundaries(of_kind("ConfigMap").collect(), &mut result.diagnostics) else {
        return result;
    };
    let has_config_map = of_kind("ConfigMap").next().is_some();
    let namespaces: BTreeMap<&str, BTreeMap<String, String>> =
        of_kind("Namespace").map(|object| (object.str_at("/metadata/name"), annotations(&object.value))).collect();
    let mut usages: BTreeMap<String, NamespaceUsage> = BTreeMap::new();
    for object in of_kind("InstanceGroup") {
        let in_namespace = of_kind("InstanceGroup").filter(|other| other.namespace() == object.namespace());
        usages
            .entry(object.namespace().to_owned())
            .or_insert_with(|| NamespaceUsage::sum(in_namespace.map(|other| claim(other, &other.value["spec"]))));
    }
    for object in of_kind("InstanceGroup") {
        let is_excluded = namespaces
            .get(object.namespace())
            .is_some_and(|known| boundaries.policy.is_excluded(object.namespace(), known));
        let usage = usages.entry(object.namespace().to_owned()).or_default();
        let context = MergeContext {
            boundaries: &boundaries,
            has_config_map,
            is_excluded: is_excluded || namespace_excluded,
            usage: *usage,
        };
        let merged = merge_group(object, context, &mut result.diagnostics);
        let spec = merged.as_ref().map_or(&object.value["spec"], |group| &group.merged.spec);
        let request = usage.request(claim(object, spec));
        if boundaries.policy.allows(object.namespace(), &request) {
            *usage = request.usage;
        }
        result.groups.extend(merged);
    }
    if result.groups.is_empty() && !result.has_errors() {
        let message = "the input contains no InstanceGroup; add a file with one".to_owned();
        result.diagnostics.push(Diagnostic {
            location: "input".to_owned(),
            path: String::new(),
            message,
            warning: false,
        });
    }
    result
}

/// A ConfigMap from a file, which replaces the live one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ConfigFile {
    /// Its annotations; `lock-upgrades` is one of them.
    pub annotations: BTreeMap<String, String>,
    /// Its data.
    pub data: BTreeMap<String, String>,
    /// Errors and warnings.
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
pub(super) fn find_boundaries<'o, 'f>(
    source: &InputFile,
    objects: &'o [ManifestObject<'f>],
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<(&'o ManifestObject<'f>, Boundaries)> {
    let before = diagnostics.len();
    let found = find_boundaries_in_part(source, objects, diagnostics)?;
    diagnostics[before..].iter().all(|problem| problem.warning).then_some(found)
}

/// The ConfigMap of a file with what can be used of its boundaries, to find more mistakes in it.
pub(super) fn find_boundaries_in_part<'o, 'f>(
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

/// Reads a file, or standard input for `-`.
///
/// # Errors
///
/// It cannot be read, or is not UTF-8.
pub(super) fn read_input(path: &PathBuf, stdin: &mut dyn Read) -> anyhow::Result<InputFile> {
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
pub(super) fn parse_objects<'a>(file: &'a InputFile, diagnostics: &mut Vec<Diagnostic>) -> Vec<ManifestObject<'a>> {
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

fn warn_other_kinds(objects: &[ManifestObject], diagnostics: &mut Vec<Diagnostic>) {
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

fn annotations(value: &Value) -> BTreeMap<String, String> {
    let entries = value["metadata"]["annotations"].as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Parses the boundaries of the ConfigMap. Without a ConfigMap, they are empty; `None` after an error.
fn parse_boundaries(config_maps: Vec<&ManifestObject>, diagnostics: &mut Vec<Diagnostic>) -> Option<Boundaries> {
    parse_partially(config_maps, diagnostics).filter(|(_, is_complete)| *is_complete).map(|(boundaries, _)| boundaries)
}

/// Parses what can be used of the boundaries of the ConfigMap, and says whether that is all of it; `None` without a text.
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

fn warning_in_key(object: &ManifestObject, warning: &ConfigWarning) -> Diagnostic {
    Diagnostic {
        location: location_in_key(object, &warning.key, warning.line),
        path: warning.path.clone(),
        message: format!("{}: {}: {}; {}", warning.key, warning.path, warning.message, warning.remedy),
        warning: true,
    }
}

/// Converts a line of a key's text block to a line of the file. The block starts below the line of the key.
pub(super) fn location_in_key(object: &ManifestObject, key: &str, line: Option<usize>) -> String {
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

/// What a group in a file counts for in a quota. Files do not say how many vCPUs an instance type has, so those are not
/// checked.
fn claim(object: &ManifestObject, spec: &Value) -> QuotaClaim {
    let status = serde_json::from_value(object.value["status"].clone()).unwrap_or_default();
    let (demand, nodes) = (NodeDemand::from_spec(spec), used_nodes(&status, &object.value["spec"]));
    let vcpus = |_: &str| Some(0);
    let used = QuotaAmounts { vcpus: Some(0), ..QuotaAmounts::used(&status, nodes, &demand, &vcpus) };
    QuotaClaim { exists: has_resources(&status), used, requested: QuotaAmounts::requested(&demand, &vcpus) }
}

/// What a group is merged with.
struct MergeContext<'a> {
    boundaries: &'a Boundaries,
    /// Whether the boundaries are those of a ConfigMap; otherwise nothing is known of the defaults.
    has_config_map: bool,
    /// Whether the Namespace excludes its groups from the boundaries.
    is_excluded: bool,
    usage: NamespaceUsage,
}

fn merge_group(
    object: &ManifestObject,
    context: MergeContext,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<MergedGroup> {
    let MergeContext { boundaries, has_config_map, is_excluded, usage } = context;
    let spec = &object.value["spec"];
    let findings = find_violations(spec);
    let id = format!("{}/{}", object.namespace(), object.str_at("/metadata/name"));
    diagnostics.extend(findings.iter().map(|finding| {
        object.diagnostic(&finding.path, finding.to_string(), finding.kind == SchemaViolationKind::Unknown)
    }));
    if findings.iter().any(|finding| finding.kind == SchemaViolationKind::WrongType) {
        return None;
    }
    let group = json!({"metadata": {"annotations": object.value["metadata"]["annotations"]}, "spec": spec});
    let merged = match merge(boundaries, &group, is_excluded) {
        Ok(merged) => merged,
        Err(error) => {
            diagnostics.push(object.diagnostic(&error.path, error.to_string(), false));
            return None;
        }
    };
    let merged = Arc::new(merged);
    let is_reported = |error: &SpecError| findings.iter().any(|finding| finding.path == error.path);
    let mut errors = if has_config_map {
        errors_without_reads(&object.group_id(), &merged)
    } else {
        // The defaults are unknown, so only the values in the file are checked.
        let found = check_spec(&merged.spec).into_iter();
        found.map(|finding| SpecError::invalid(&finding.path, &finding.value, finding.rule, finding.remedy)).collect()
    };
    errors.retain(|error| !is_reported(error));
    let request = usage.request(claim(object, &merged.spec));
    let violations = boundaries.policy.check(&merged, object.namespace(), &request);
    let mut violations: Vec<_> = violations.into_iter().map(SpecError::from).collect();
    ValueSources::new(merged.clone()).explain(&mut violations);
    for error in errors.iter().chain(&violations) {
        let path = own_path(object, error.author_path.as_deref().unwrap_or(&error.path));
        diagnostics.push(object.diagnostic(&path, format!("{id}: {error}"), false));
    }
    Some(MergedGroup { manifest: object.value.clone(), id, merged })
}

/// The path of a value in its own manifest. An entry of a list that the boundaries merged is named by one of its fields, as in
/// `taints[key=team]`.
fn own_path(object: &ManifestObject, path: &str) -> String {
    let index = |(list, rest): (&str, &str)| {
        let ((field, text), rest) = (rest.split_once(']')?.0.split_once('=')?, rest.split_once(']')?.1);
        let items = object.value.pointer(&format!("/{}", list.replace('.', "/")))?.as_array()?;
        let own = items.iter().position(|item| item[field].as_str() == Some(text))?;
        Some(format!("{list}[{own}]{rest}"))
    };
    path.split_once('[').and_then(index).unwrap_or_else(|| path.to_owned())
}
