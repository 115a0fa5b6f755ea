//! `explain`: like `render`, with the source of each field.

mod live;

use std::{
    io::{Read, Write},
    process::ExitCode,
};

use serde_json::{Value, json};

use super::args::{ConnectionArgs, NamespaceArgs};
use super::input::{InputArgs, ManifestFormat, MergedGroup, exit_code, load_and_write};
use super::output;
use crate::{
    api::{
        annotations::label_items,
        display_value,
        names::{DEFAULT_CONFIG_NAMESPACE, annotation},
    },
    boundaries::Source,
    util::escape::escape_control,
};

/// Print the source of each field of a merged group, and the tenant's values that were not used
///
/// The argument NAMESPACE/NAME explains a group of the cluster, with the active boundaries and your Kubernetes
/// permissions; files need no cluster. Text for people; `-o json` or `-o yaml` for programs. Exit codes and diagnostics are
/// those of `render`; 1 also where a permission is missing. User data is never printed.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ExplainArgs {
    /// Input files and output format.
    #[command(flatten)]
    pub input: InputArgs,

    #[command(flatten)]
    pub namespace: NamespaceArgs,

    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Namespace of the ConfigMap `instance-manager`
    #[arg(long, value_name = "NAMESPACE", default_value = DEFAULT_CONFIG_NAMESPACE)]
    pub config_namespace: String,
}

/// Runs the command on the process's own streams.
pub async fn run(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    let (mut out, mut err) = (vec![], vec![]);
    let ExplainArgs { input, namespace, connection, config_namespace } = &args;
    let place = live::Place { connection, namespace, config_namespace };
    if let Some(group) = live::requested_group(input, place) {
        let found = live::read(place, &group).await?;
        found.notes.iter().for_each(|note| output::print_error(&format!("note: {note}")));
        found.result.diagnostics.iter().for_each(|problem| output::print_error(&problem.to_string()));
        write(&found.result.groups, input.output, &mut out)?;
        output::print(&out)?;
        return Ok(exit_code(found.notes.is_empty() && !found.result.has_errors()));
    }
    let ok = run_with(&args, &mut std::io::stdin(), &mut out, &mut err);
    output::print_errors(&err);
    output::print(&out)?;
    ok.map(exit_code)
}

/// Runs the command; returns whether the input has no errors.
pub fn run_with(
    args: &ExplainArgs,
    stdin: &mut dyn Read,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<bool> {
    load_and_write(&args.input, stdin, out, err, write)
}

fn write(groups: &[MergedGroup], format: Option<ManifestFormat>, out: &mut dyn Write) -> anyhow::Result<()> {
    let documents = || Value::Array(groups.iter().map(document).collect());
    match format {
        None => {
            let texts: Vec<_> = groups.iter().map(text).collect();
            write!(out, "{}", texts.join("\n"))?;
        }
        Some(ManifestFormat::Yaml) => write!(out, "{}", serde_yaml::to_string(&documents())?)?,
        Some(ManifestFormat::Json) => {
            serde_json::to_writer_pretty(&mut *out, &documents())?;
            writeln!(out)?;
        }
    }
    Ok(())
}

/// Annotations that set nothing of a group: the copy that kubectl keeps, and a request.
const NO_SETTINGS: [&str; 2] = ["kubectl.kubernetes.io/last-applied-configuration", annotation::RECONCILE_NOW];

struct ProvenanceRow {
    /// The path as it is.
    path: String,
    /// The path for people.
    field: String,
    value: String,
    source: Source,
}

fn rows(group: &MergedGroup) -> Vec<ProvenanceRow> {
    let mut whole = json!({"metadata": {"annotations": group.merged.annotations}, "spec": group.merged.spec});
    if let Some(annotations) = whole["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|key, _| !NO_SETTINGS.contains(&key.as_str()));
    }
    let mut found = vec![];
    collect_rows(&whole["metadata"]["annotations"], "metadata.annotations", group, &mut found);
    collect_rows(&whole["spec"], "spec", group, &mut found);
    add_annotation_labels(group, &mut found);
    found
}

/// Shows the labels in the annotation `default-labels` as what they are: labels, in place of those of the spec.
fn add_annotation_labels(group: &MergedGroup, rows: &mut Vec<ProvenanceRow>) {
    let source = group.merged.provenance.get(&format!("metadata.annotations.{}", annotation::DEFAULT_LABELS));
    let text = group.merged.annotations.get(annotation::DEFAULT_LABELS);
    let (Some(source), Some(text), true) = (source, text, group.merged.spec["eks"].is_object()) else { return };
    for (key, value) in label_items(text).flatten() {
        let path = format!("spec.eks.configuration.labels.{key}");
        let row = ProvenanceRow {
            field: escape_control(&path),
            value: display_value(&path, &value.into()),
            source: *source,
            path,
        };
        match rows.iter_mut().find(|known| known.path == row.path) {
            Some(known) => *known = row,
            None => rows.push(row),
        }
    }
}

/// Descends into the values themselves, because keys of annotations contain dots and a path alone is ambiguous.
fn collect_rows(value: &Value, path: &str, group: &MergedGroup, found: &mut Vec<ProvenanceRow>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                collect_rows(value, &format!("{path}.{key}"), group, found);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                collect_rows(item, &format!("{path}[{index}]"), group, found);
            }
        }
        leaf => {
            if let Some(source) = group.merged.provenance.get(path) {
                found.push(ProvenanceRow {
                    path: path.to_owned(),
                    field: escape_control(path),
                    value: display_value(path, leaf),
                    source: *source,
                });
            }
        }
    }
}

fn text(group: &MergedGroup) -> String {
    let rows = rows(group);
    let widest = |column: fn(&ProvenanceRow) -> usize, min: usize| rows.iter().map(column).max().unwrap_or(0).max(min);
    let (field, source) = (widest(|row| row.field.len(), 5), widest(|row| row.source.to_string().len(), 6));
    let mut lines = vec![escape_control(&group.id), format!("  {:field$}  {:source$}  VALUE", "FIELD", "SOURCE")];
    lines.extend(
        rows.iter().map(|row| format!("  {:field$}  {:source$}  {}", row.field, row.source.to_string(), row.value)),
    );
    if !group.merged.overridden.is_empty() {
        lines.push("  not used:".to_owned());
        lines.extend(group.merged.overridden.iter().map(|value| format!("    {value}")));
    }
    lines.join("\n") + "\n"
}

fn document(group: &MergedGroup) -> Value {
    let fields: Vec<Value> =
        rows(group).iter().map(|row| json!({"path": row.path, "source": row.source, "value": row.value})).collect();
    json!({"group": group.id, "hash": group.merged.hash, "fields": fields, "overridden": group.merged.overridden})
}
