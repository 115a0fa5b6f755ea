//! Formats labels, taints and kubelet arguments.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::input::{BootstrapInput, Taint};
use super::quote::environment_escaped;

/// `k=v,k2=v2`, sorted by key.
pub(super) fn label_list(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

/// `k=v:Effect`, in the order of the spec.
pub(super) fn taint_list(taints: &[Taint]) -> Vec<String> {
    taints.iter().map(|taint| format!("{}={}:{}", taint.key, taint.value, canonical_effect(&taint.effect))).collect()
}

/// The value of `--kubelet-extra-args` on Amazon Linux 2. bootstrap.sh writes it, without quoting, into
/// `Environment='KUBELET_EXTRA_ARGS=...'` of a systemd unit. If systemd rejects that line, the kubelet starts without its
/// labels and taints.
pub(super) fn environment_arguments(input: &BootstrapInput) -> String {
    let text = input.bootstrap_arguments.expose().as_str();
    // systemd joins lines that end in a backslash. Any other one at the end of the text would escape the closing quote.
    let one_line = text.replace("\\\n", " ");
    let arguments = match has_line_break(&one_line) || one_line.contains('\\') {
        false => Cow::Borrowed(text),
        true => Cow::Owned(without_continuations(text).split_whitespace().collect::<Vec<_>>().join(" ")),
    };
    kubelet_arguments(input, &environment_escaped(&arguments))
}

/// The value of `-KubeletExtraArgs` on Windows, where only spaces and tabs separate arguments. A backslash may end a path,
/// so that only one that stands alone continues a line.
pub(super) fn windows_arguments(input: &BootstrapInput) -> String {
    let text = input.bootstrap_arguments.expose().as_str();
    let continues = text.split_whitespace().any(|word| word == "\\");
    let arguments = match has_line_break(text) || continues {
        false => Cow::Borrowed(text),
        true => Cow::Owned(text.split_whitespace().filter(|word| *word != "\\").collect::<Vec<_>>().join(" ")),
    };
    kubelet_arguments(input, &arguments)
}

/// White space that neither systemd nor Windows takes between two arguments of one line.
fn has_line_break(text: &str) -> bool {
    text.contains(|c: char| c.is_whitespace() && !matches!(c, ' ' | '\t'))
}

/// Replaces each backslash that a shell would read as the continuation of a line, before white space or at the end.
pub(super) fn without_continuations(text: &str) -> String {
    let mut following = text.chars().skip(1);
    text.chars()
        .map(|c| match (c, following.next()) {
            ('\\', next) if next.is_none_or(char::is_whitespace) => ' ',
            _ => c,
        })
        .collect()
}

/// The kubelet's arguments as one string; the first two flags are written even when they are empty.
fn kubelet_arguments(input: &BootstrapInput, more: &str) -> String {
    let mut taints = taint_list(&input.taints);
    taints.sort();
    let mut out =
        format!("--node-labels={} --register-with-taints={} {}", label_list(&input.labels), taints.join(","), more);
    if let Some(max_pods) = input.max_pods {
        out.push_str(&format!(" --max-pods={max_pods}"));
    }
    out
}

/// The effects of a taint.
pub(super) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The kubelet's spelling of a valid effect.
pub(crate) fn canonical_effect(text: &str) -> &str {
    EFFECTS.iter().find(|known| known.eq_ignore_ascii_case(text)).copied().unwrap_or(text)
}
