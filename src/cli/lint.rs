//! `lint`: checks the ConfigMap of boundaries for CI, without a cluster and without a group.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    path::PathBuf,
    process::ExitCode,
};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::input::{
    Diagnostic, ManifestFormat, ManifestObject, find_boundaries_in_part, location_in_key, parse_objects, read_input,
    warning_in_key,
};
use super::output;
use crate::api::spec_error::SpecError;
use crate::api::{GroupId, InstanceGroup, InstanceGroupSpec, ProvisionerKind, decode_spec_with_errors, group_id};
use crate::boundaries::{Boundaries, MergedSpec, ROLLOUT_KEY, merge_empty_group, yaml};
use crate::provisioner::{eks, fargate, nodegroup};

/// Check the ConfigMap of boundaries, for CI; needs no cluster
///
/// Finds everything that the file alone shows: syntax, unknown keys, paths that name no field or are in two lists,
/// selectors and globs. It also finds choices that are left open, defaults that no boundary lists, and defaults that no
/// group could use.
///
/// Exit status: 0 when nothing is found, 1 when there are errors or warnings, 2 when a file cannot be read or an
/// argument is wrong.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct LintArgs {
    /// Files with the ConfigMap, each checked by itself; `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Output format; without it, text for people
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub output: Option<ManifestFormat>,
}

/// Exit status when a file cannot be read, or an argument is wrong.
pub(crate) const UNUSABLE: u8 = 2;

/// One finding in the output for programs.
#[derive(Serialize)]
struct LintFinding<'a> {
    /// File, with the line if it is known.
    location: &'a str,
    severity: &'static str,
    message: &'a str,
}

/// Runs the command on the process's own streams.
pub fn run(args: LintArgs) -> anyhow::Result<ExitCode> {
    let (mut out, mut err) = (vec![], vec![]);
    let status = run_with(&args, &mut std::io::stdin(), &mut out, &mut err)?;
    output::print_errors(&err);
    output::print(&out)?;
    Ok(ExitCode::from(status))
}

/// Runs the command; returns the exit status.
pub fn run_with(args: &LintArgs, stdin: &mut dyn Read, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<u8> {
    let (mut found, mut unusable) = (vec![], false);
    for path in &args.files {
        match lint_file(path, stdin) {
            Ok(diagnostics) => found.extend(diagnostics),
            Err(error) => {
                writeln!(err, "error: {error:#}")?;
                unusable = true;
            }
        }
    }
    write(&found, args.output, out)?;
    Ok(if unusable { UNUSABLE } else { u8::from(!found.is_empty()) })
}

fn write(found: &[Diagnostic], format: Option<ManifestFormat>, out: &mut dyn Write) -> anyhow::Result<()> {
    let severity = |diagnostic: &Diagnostic| if diagnostic.warning { "warning" } else { "error" };
    let findings: Vec<_> = found
        .iter()
        .map(|one| LintFinding { location: &one.location, severity: severity(one), message: &one.message })
        .collect();
    match format {
        Some(ManifestFormat::Json) => writeln!(out, "{}", serde_json::to_string_pretty(&findings)?)?,
        Some(ManifestFormat::Yaml) => write!(out, "{}", serde_yaml::to_string(&findings)?)?,
        None => {
            for diagnostic in found {
                writeln!(out, "{diagnostic}")?;
            }
            let count = |severity: &str| match findings.iter().filter(|f| f.severity == severity).count() {
                1 => format!("1 {severity}"),
                count => format!("{count} {severity}s"),
            };
            writeln!(out, "{}, {}", count("error"), count("warning"))?;
        }
    }
    Ok(())
}

fn lint_file(path: &PathBuf, stdin: &mut dyn Read) -> anyhow::Result<Vec<Diagnostic>> {
    let source = read_input(path, stdin)?;
    let mut found = vec![];
    let objects = parse_objects(&source, &mut found);
    if let Some((object, boundaries)) = find_boundaries_in_part(&source, &objects, &mut found) {
        let unusable = unusable_defaults(object, &boundaries);
        // The schema has a rule for some of these fields as well.
        let is_known =
            |new: &Diagnostic| found.iter().any(|old| old.location == new.location && old.path.ends_with(&new.path));
        let new: Vec<_> = unusable.into_iter().filter(|new| !is_known(new)).collect();
        found.extend(new);
        let text = object.value["data"][ROLLOUT_KEY].as_str().unwrap_or_default();
        let data = BTreeMap::from([(ROLLOUT_KEY.to_owned(), text.to_owned())]);
        let of_time = boundaries.time_warnings(&data, Timestamp::now());
        found.extend(of_time.iter().map(|warning| warning_in_key(object, warning)));
    }
    Ok(found)
}

/// Values of the admin that every group of a provisioner rejects, from the defaults and from each conditional.
fn unusable_defaults(object: &ManifestObject, boundaries: &Boundaries) -> Vec<Diagnostic> {
    let mut found: Vec<Diagnostic> = vec![];
    for (conditional, merged) in merge_empty_group(boundaries) {
        let diagnostics: Vec<(String, String)> = match &merged {
            Ok(merged) => {
                let kinds = ProvisionerKind::ALL.iter().filter(|kind| merged.spec[kind.as_str()].is_object());
                kinds
                    .flat_map(|kind| parse(*kind, merged))
                    .map(|error| (error.path.clone(), error.to_string()))
                    .collect()
            }
            Err(error) => vec![(error.path.clone(), error.to_string())],
        };
        for (path, message) in diagnostics {
            let finding = locate(object, conditional, &path, &message);
            // A default is part of what each conditional gives.
            if !found.contains(&finding) {
                found.push(finding);
            }
        }
    }
    found
}

/// The errors of a provisioner's parser about values of the admin. What a tenant may still set is not an error: a
/// missing value, a size without its counterpart, and the strategy type, which not every provisioner supports.
fn parse(kind: ProvisionerKind, merged: &MergedSpec) -> Vec<SpecError> {
    let Ok((spec, _)) = decode_spec_with_errors(&merged.spec) else { return vec![] };
    let id = GroupId { namespace: "a".into(), ..group_id(&InstanceGroup::new("a", InstanceGroupSpec::default())) };
    let annotations = &merged.annotations;
    let errors = match kind {
        ProvisionerKind::Eks => eks::desired::parse_with_errors(&id, annotations, &spec).1,
        ProvisionerKind::EksManaged => nodegroup::desired::parse_with_errors(&id, annotations, &spec).1,
        ProvisionerKind::EksFargate => fargate::desired::parse_with_errors(&id, &spec).1,
    };
    let section = &merged.spec[kind.as_str()];
    let has_both_sizes = section["minSize"].is_number() && section["maxSize"].is_number();
    let is_admins = |error: &SpecError| {
        let is_size = error.path.ends_with(".minSize") || error.path.ends_with(".maxSize");
        is_set(merged, &error.path) && error.path != "spec.strategy.type" && (!is_size || has_both_sizes)
    };
    errors.into_iter().filter(is_admins).collect()
}

/// Whether the merged spec has a value at a dotted path with list indexes in brackets.
fn is_set(merged: &MergedSpec, path: &str) -> bool {
    if let Some(key) = path.strip_prefix("metadata.annotations[") {
        return merged.annotations.get(key.trim_end_matches(']')).is_some();
    }
    let mut parts = path.split(['.', '[']).map(|part| part.trim_end_matches(']')).skip(1);
    let value = parts.try_fold(&merged.spec, |value: &Value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        other => other.get(part),
    });
    value.is_some_and(|value| !value.is_null())
}

/// The place of a value: in the conditional if that sets it, or else in the defaults.
fn locate(object: &ManifestObject, conditional: Option<usize>, whole_path: &str, message: &str) -> Diagnostic {
    let text = |key: &str| object.value["data"][key].as_str().unwrap_or_default();
    let path = whole_path.replacen("metadata.annotations[", "metadata.annotations.", 1);
    // The items of a list may come from both, so only the place of the list is certain.
    let field = path.split(['[', ']']).next().unwrap_or_default();
    let (holder, name) = match field.strip_prefix("metadata.annotations.") {
        Some(name) => ("metadata.annotations", name),
        None => field.rsplit_once('.').unwrap_or(("", field)),
    };
    let all: Value = yaml::read(text("conditionals")).map(|(document, _)| document.value).unwrap_or_default();
    let is_set_by = |index: &usize| {
        let defaults = all.get(*index).and_then(|entry| entry.get("defaults"));
        let holder = holder.split('.').try_fold(defaults?, |value, part| value.get(part));
        holder?.get(name).map(|_| ())
    };
    let (key, path) = match conditional.filter(|index| is_set_by(index).is_some()) {
        Some(index) => ("conditionals", format!("[{index}].defaults.{field}")),
        None => ("defaults", field.to_owned()),
    };
    let location = location_in_key(object, key, yaml::locate(text(key), 0, &path));
    Diagnostic { location, path: whole_path.to_owned(), message: format!("{key}: {message}"), warning: false }
}
