//! `render`: the ConfigMap and InstanceGroups become effective InstanceGroups, without a cluster.

use std::{
    io::{Read, Write},
    process::ExitCode,
};

use serde_json::{Value, json};

use super::input::{Format, InputArgs, Merged, answer, exit_code};

/// Print what groups become when the ConfigMap is merged into them, without a cluster
///
/// Exit codes: 0 when every group could be merged and is valid, 1 otherwise. Findings go to standard error as
/// `file:line: field: message`; warnings do not change the exit code.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct RenderArgs {
    /// What to read, and how to write.
    #[command(flatten)]
    pub input: InputArgs,
}

/// Runs the command on the process's own streams.
pub fn run(args: RenderArgs) -> anyhow::Result<ExitCode> {
    run_with(&args, &mut std::io::stdin(), &mut std::io::stdout(), &mut std::io::stderr()).map(exit_code)
}

/// Runs the command and tells whether everything is in order.
pub fn run_with(
    args: &RenderArgs,
    stdin: &mut dyn Read,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<bool> {
    answer(&args.input, stdin, out, err, write)
}

fn write(groups: &[Merged], format: Option<Format>, out: &mut dyn Write) -> anyhow::Result<()> {
    let items: Vec<Value> = groups.iter().map(manifest).collect();
    match format.unwrap_or(Format::Yaml) {
        Format::Yaml => {
            let texts: Result<Vec<_>, _> = items.iter().map(serde_yaml::to_string).collect();
            write!(out, "{}", texts?.join("---\n"))?;
        }
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &json!({"apiVersion": "v1", "kind": "List", "items": items}))?;
            writeln!(out)?;
        }
    }
    Ok(())
}

fn manifest(group: &Merged) -> Value {
    let mut manifest = group.manifest.clone();
    if let Some(object) = manifest.as_object_mut() {
        object.remove("status");
    }
    if !group.effective.annotations.is_empty() {
        manifest["metadata"]["annotations"] = json!(group.effective.annotations);
    }
    manifest["spec"] = group.effective.spec.clone();
    manifest
}
