//! Bottlerocket: one TOML document of settings.

use std::collections::BTreeMap;

use super::quote::double;
use super::stages::{Decoded, StageKind};
use super::{BootstrapInput, UserDataProblem, validation};

pub(super) fn encode(input: &BootstrapInput, stages: &[Decoded]) -> Result<Vec<u8>, UserDataProblem> {
    let pre = fragments(stages, StageKind::Pre)?;
    let post = fragments(stages, StageKind::Post)?;
    let text = format!("{pre}\n{}{post}\n", settings(input));
    if text.len() <= super::MAX_PLAIN && text.parse::<toml::Table>().is_err() {
        return Err(UserDataProblem::TomlConflict);
    }
    Ok(text.into_bytes())
}

/// The stages of one kind, each checked alone so that a message can name stage and line.
fn fragments(stages: &[Decoded], kind: StageKind) -> Result<String, UserDataProblem> {
    let mut out = String::new();
    for stage in stages.iter().filter(|stage| stage.kind == kind) {
        let text = stage.text()?;
        if text.len() <= super::MAX_PLAIN
            && let Err(error) = text.parse::<toml::Table>()
        {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
            return Err(UserDataProblem::NotToml { stage: stage.field.clone(), line });
        }
        out.push_str(text);
    }
    Ok(out)
}

fn settings(input: &BootstrapInput) -> String {
    let wait = if input.waits { "[settings.autoscaling]\nshould-wait = true\n" } else { "" };
    let mut out = format!(
        "{wait}[settings.kubernetes]\n\
         api-server = {}\n\
         cluster-certificate = {}\n\
         cluster-name = {}\n",
        double(&input.endpoint),
        double(&input.ca_base64),
        double(&input.cluster),
    );
    if let Some(max_pods) = input.max_pods {
        out.push_str(&format!("max-pods = {max_pods}\n"));
    }
    out.push_str("[settings.kubernetes.node-labels]\n");
    for (key, value) in &input.labels {
        out.push_str(&format!("{} = {}\n", double(key), double(value)));
    }
    out.push_str("[settings.kubernetes.node-taints]\n");
    for (key, values) in taints_by_key(input) {
        let value = match values.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        out.push_str(&format!("{} = {value}\n", double(key)));
    }
    out
}

/// A key with several effects becomes an array, because TOML refuses a key that comes twice.
fn taints_by_key(input: &BootstrapInput) -> BTreeMap<&str, Vec<String>> {
    let mut by_key: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for taint in &input.taints {
        let value = double(&format!("{}:{}", taint.value, validation::effect_of(&taint.effect)));
        by_key.entry(&taint.key).or_default().push(value);
    }
    by_key
}
