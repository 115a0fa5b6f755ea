//! Amazon Linux 2023: MIME parts with shell scripts and `NodeConfig` documents for nodeadm.

use base64::Engine;

use super::al2::before_bootstrap;
use super::arguments::{label_list, taint_list};
use super::error::UserDataError;
use super::input::BootstrapInput;
use super::quote::double_quoted;
use super::stages::{DecodedStage, StageKind, concatenated, node_config};
use super::validate;

const SHELL: &str = "text/x-shellscript; charset=\"utf-8\"";
const NODE_CONFIG: &str = "application/node.eks.aws";
/// The longest line of base64 in MIME (RFC 2045).
const BASE64_LINE: usize = 76;
/// Keeps a warm instance from joining. nodeadm starts the node after cloud-init even when a script exited early, and
/// cloud-init also runs the later scripts. The AMI has the unit in /etc/systemd/system, which takes precedence over a
/// runtime mask, but not over a drop-in (systemd.unit(5)). The drop-in and the marker file are under /run, so the next
/// boot removes them.
const STOP_NODEADM: &str = "    : > /run/instance-manager-warmed
    mkdir -p /run/systemd/system/nodeadm-run.service.d
    printf '[Unit]\\nConditionPathExists=!/run/instance-manager-warmed\\n' > /run/systemd/system/nodeadm-run.service.d/90-instance-manager.conf
    systemctl daemon-reload
";
/// Skips the scripts after the bootstrap on a warm instance.
const POST_BOOTSTRAP_GUARD: &str = "#!/bin/bash\n[ -e /run/instance-manager-warmed ] && exit 0\n";

struct MimePart {
    content_type: &'static str,
    content: Vec<u8>,
}

impl MimePart {
    /// Whether the part is sent in base64. Without it, cloud-init drops or changes a script that is not ASCII. nodeadm
    /// reads its own parts as raw UTF-8.
    fn is_encoded(&self) -> bool {
        self.content_type == SHELL && !self.content.is_ascii()
    }
}

/// nodeadm merges the documents in order. The controller's document follows the user's, so it decides which cluster the
/// node joins.
pub(super) fn encode(input: &BootstrapInput, stages: &[DecodedStage]) -> Result<Vec<u8>, UserDataError> {
    validate::check_systemd_arguments(input)?;
    validate::check_text(stages)?;
    let mut parts = vec![MimePart { content_type: SHELL, content: before_bootstrap(input, stages, STOP_NODEADM) }];
    if let Some(stage) = node_config(stages) {
        parts.push(MimePart { content_type: NODE_CONFIG, content: stage.data.clone() });
    }
    parts.push(MimePart { content_type: NODE_CONFIG, content: node_config_document(input).into_bytes() });
    let post = concatenated(stages, StageKind::Post);
    if !post.is_empty() {
        let content = [POST_BOOTSTRAP_GUARD.as_bytes(), &post].concat();
        parts.push(MimePart { content_type: SHELL, content });
    }
    Ok(mime(&parts))
}

fn node_config_document(input: &BootstrapInput) -> String {
    let mut out = format!(
        "apiVersion: node.eks.aws/v1alpha1\n\
         kind: NodeConfig\n\
         spec:\n\
         \x20 cluster:\n\
         \x20   name: {}\n\
         \x20   apiServerEndpoint: {}\n\
         \x20   certificateAuthority: {}\n",
        double_quoted(&input.cluster),
        double_quoted(&input.endpoint),
        double_quoted(&input.ca_base64),
    );
    if !input.service_cidr.is_empty() {
        out.push_str(&format!("    cidr: {}\n", double_quoted(&input.service_cidr)));
    }
    out.push_str("  kubelet:\n");
    if let Some(max_pods) = input.max_pods {
        out.push_str(&format!("    config:\n      maxPods: {max_pods}\n"));
    }
    out.push_str("    flags:\n");
    for flag in kubelet_flags(input) {
        out.push_str(&format!("    - {}\n", double_quoted(&flag)));
    }
    out
}

/// Splits the arguments at white space, as the kubelet's systemd unit does.
fn kubelet_flags(input: &BootstrapInput) -> Vec<String> {
    let mut flags = vec![format!("--node-labels={}", label_list(&input.labels))];
    if !input.taints.is_empty() {
        flags.push(format!("--register-with-taints={}", taint_list(&input.taints).join(",")));
    }
    flags.extend(input.bootstrap_arguments.expose().split_whitespace().map(str::to_owned));
    flags
}

fn mime(parts: &[MimePart]) -> Vec<u8> {
    let boundary = unused_boundary(parts);
    let mut out = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\n\n").into_bytes();
    for part in parts {
        out.extend_from_slice(format!("--{boundary}\nContent-Type: {}\n", part.content_type).as_bytes());
        match part.is_encoded() {
            true => out.extend_from_slice(base64_body(&part.content).as_bytes()),
            false => out.extend([b"\n", part.content.as_slice(), b"\n"].concat()),
        }
    }
    out.extend_from_slice(format!("--{boundary}--\n").as_bytes());
    out
}

/// The end of a part's header, and its content.
fn base64_body(content: &[u8]) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(content);
    let mut out = "Content-Transfer-Encoding: base64\n\n".to_owned();
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, following) = rest.split_at(rest.len().min(BASE64_LINE));
        out.push_str(line);
        out.push('\n');
        rest = following;
    }
    out
}

/// A boundary that no part contains, so that no script can end its own part.
fn unused_boundary(parts: &[MimePart]) -> String {
    let is_used = |boundary: &str| {
        let line = format!("--{boundary}");
        parts.iter().any(|part| part.content.windows(line.len()).any(|at| at == line.as_bytes()))
    };
    let mut boundary = "BOUNDARY".to_owned();
    let mut number = 0;
    while is_used(&boundary) {
        number += 1;
        boundary = format!("BOUNDARY{number}");
    }
    boundary
}
