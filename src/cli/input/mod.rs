//! Reads manifests from files and standard input, for the commands that need no cluster.

mod config_map;
mod manifest;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::spec_error::SpecError;
use crate::api::validate::{SchemaViolationKind, check_spec, find_violations};
use crate::api::{NodeDemand, has_resources, used_nodes};
use crate::boundaries::{Boundaries, MergedSpec, NamespaceUsage, QuotaAmounts, QuotaClaim, merge};
use crate::provisioner::rejected_fields::ValueSources;
use crate::provisioner::spec_check::errors_without_reads;
use config_map::parse_boundaries;
pub(crate) use config_map::{ConfigFile, read_config_map};
pub(super) use config_map::{find_boundaries, find_boundaries_in_part, location_in_key, warning_in_key};
pub use manifest::Diagnostic;
pub(super) use manifest::{InputFile, ManifestObject, parse_objects, read_input};
use manifest::{annotations, warn_other_kinds};

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

/// A group and the result of its merge.
#[derive(Clone)]
pub struct MergedGroup {
    /// The manifest from the input.
    pub manifest: Value,
    /// The group as `namespace/name`.
    pub id: String,
    /// The group after the merge.
    pub merged: Arc<MergedSpec>,
}

/// The result of loading the input.
#[derive(Clone, Default)]
pub struct LoadResult {
    /// Groups that could be merged, in order of appearance.
    pub groups: Vec<MergedGroup>,
    /// What is wrong with any of the files.
    pub diagnostics: Vec<Diagnostic>,
}

impl LoadResult {
    /// Whether there are errors, not counting warnings.
    pub(crate) fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|problem| !problem.warning)
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

/// What a group in a file counts for in a quota. Files do not contain the vCPUs of an instance type, so those are not
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
