//! `render`: prints InstanceGroups after the merge with the ConfigMap, without a cluster.

use std::{
    io::{Read, Write},
    process::ExitCode,
};

use serde_json::{Value, json};

use super::input::{InputArgs, ManifestFormat, MergedGroup, exit_code, load_and_write};
use super::output;

/// Print InstanceGroups after the merge with the ConfigMap; needs no cluster
///
/// Exit codes: 0 when every group could be merged and is valid, 1 otherwise. Diagnostics go to standard error as
/// `file:line: field: message`; warnings do not change the exit code.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct RenderArgs {
    /// Input files and output format.
    #[command(flatten)]
    pub input: InputArgs,
}

/// Runs the command on the process's own streams.
pub fn run(args: RenderArgs) -> anyhow::Result<ExitCode> {
    let (mut out, mut err) = (vec![], vec![]);
    let ok = run_with(&args, &mut std::io::stdin(), &mut out, &mut err);
    output::print_errors(&err);
    output::print(&out)?;
    ok.map(exit_code)
}

/// Runs the command; returns whether the input has no errors.
pub fn run_with(
    args: &RenderArgs,
    stdin: &mut dyn Read,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<bool> {
    load_and_write(&args.input, stdin, out, err, write)
}

fn write(groups: &[MergedGroup], format: Option<ManifestFormat>, out: &mut dyn Write) -> anyhow::Result<()> {
    let items: Vec<Value> = groups.iter().map(manifest).collect();
    match format.unwrap_or(ManifestFormat::Yaml) {
        ManifestFormat::Yaml => {
            let texts: Result<Vec<_>, _> = items.iter().map(serde_yaml::to_string).collect();
            write!(out, "{}", texts?.join("---\n"))?;
        }
        ManifestFormat::Json => {
            serde_json::to_writer_pretty(&mut *out, &json!({"apiVersion": "v1", "kind": "List", "items": items}))?;
            writeln!(out)?;
        }
    }
    Ok(())
}

fn manifest(group: &MergedGroup) -> Value {
    let mut manifest = group.manifest.clone();
    if let Some(object) = manifest.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = manifest["metadata"].as_object_mut() {
        metadata.remove("annotations");
    }
    if !group.merged.annotations.as_map().is_empty() {
        manifest["metadata"]["annotations"] = json!(group.merged.annotations);
    }
    manifest["spec"] = group.merged.spec.clone();
    manifest
}
