//! Bottlerocket: one TOML document of settings.

use std::collections::BTreeMap;

use super::arguments::canonical_effect;
use super::error::UserDataError;
use super::input::BootstrapInput;
use super::limits::MAX_UNCOMPRESSED_BYTES;
use super::quote::double_quoted;
use super::stages::{DecodedStage, StageKind};

pub(super) fn encode(input: &BootstrapInput, stages: &[DecodedStage]) -> Result<Vec<u8>, UserDataError> {
    let pre = checked_fragments(stages, StageKind::Pre)?;
    let post = checked_fragments(stages, StageKind::Post)?;
    let text = format!("{pre}\n{}{post}\n", settings(input));
    if text.len() <= MAX_UNCOMPRESSED_BYTES && text.parse::<toml::Table>().is_err() {
        return Err(UserDataError::TomlConflict);
    }
    Ok(text.into_bytes())
}

/// The stages of one kind. Each is checked alone, so that an error can name stage and line.
fn checked_fragments(stages: &[DecodedStage], kind: StageKind) -> Result<String, UserDataError> {
    let mut out = String::new();
    for stage in stages.iter().filter(|stage| stage.kind == kind) {
        let text = stage.text()?;
        if text.len() <= MAX_UNCOMPRESSED_BYTES
            && let Err(error) = text.parse::<toml::Table>()
        {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
            return Err(UserDataError::NotToml { stage: stage.field.clone(), line });
        }
        out.push_str(text);
    }
    Ok(out)
}

fn settings(input: &BootstrapInput) -> String {
    let wait = if input.waits_for_service { "[settings.autoscaling]\nshould-wait = true\n" } else { "" };
    let mut out = format!(
        "{wait}[settings.kubernetes]\n\
         api-server = {}\n\
         cluster-certificate = {}\n\
         cluster-name = {}\n",
        double_quoted(&input.endpoint),
        double_quoted(&input.ca_base64),
        double_quoted(&input.cluster),
    );
    if let Some(max_pods) = input.max_pods {
        out.push_str(&format!("max-pods = {max_pods}\n"));
    }
    out.push_str("[settings.kubernetes.node-labels]\n");
    for (key, value) in &input.labels {
        out.push_str(&format!("{} = {}\n", double_quoted(key), double_quoted(value)));
    }
    out.push_str("[settings.kubernetes.node-taints]\n");
    for (key, values) in taints_by_key(input) {
        let value = match values.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        out.push_str(&format!("{} = {value}\n", double_quoted(key)));
    }
    out
}

/// A key with several effects becomes an array, because TOML allows a key only once.
fn taints_by_key(input: &BootstrapInput) -> BTreeMap<&str, Vec<String>> {
    let mut by_key: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for taint in &input.taints {
        let value = double_quoted(&format!("{}:{}", taint.value, canonical_effect(&taint.effect)));
        by_key.entry(&taint.key).or_default().push(value);
    }
    by_key
}
