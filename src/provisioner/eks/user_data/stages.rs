//! The user's own stages of user data: scripts and settings.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use super::error::UserDataError;
use super::limits::MAX_UNCOMPRESSED_BYTES;
use super::os_family::OsFamily;
use crate::util::redact::Redacted;

/// Accepts what Go's standard encoding accepts: canonical padding is required, trailing bits and line breaks are allowed.
/// So the same texts count as base64 as in keikoproj/instance-manager.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// When a stage is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StageKind {
    /// Before the node joins.
    Pre,
    /// After the node joined.
    Post,
    /// A `NodeConfig` for nodeadm (Amazon Linux 2023).
    NodeConfig,
}

/// One entry of `userData`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The entry's name; may be empty.
    pub name: String,
    /// When it is used.
    pub kind: StageKind,
    /// Plain text or base64.
    pub data: Redacted<String>,
}

impl Stage {
    /// A stage with this data.
    pub fn new(name: impl Into<String>, kind: StageKind, data: impl Into<String>) -> Self {
        Self { name: name.into(), kind, data: Redacted::new(data.into()) }
    }

    /// Names the stage in messages.
    pub(crate) fn field_path(&self, index: usize) -> String {
        if self.name.is_empty() {
            format!("spec.eks.configuration.userData[{index}]")
        } else {
            format!("spec.eks.configuration.userData `{}`", self.name)
        }
    }

    /// Whether the data looks like base64 with padding but is not valid. It would run as a script unchanged.
    pub(crate) fn is_truncated_base64(&self) -> bool {
        let one_line = self.data.expose().replace(['\r', '\n'], "");
        let letters = one_line.trim_end_matches('=');
        letters.len() < one_line.len()
            && letters.len() >= 8
            && letters.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
            && BASE64.decode(&one_line).is_err()
    }
}

/// The family to render for: a `NodeConfigYaml` stage forces Amazon Linux 2023, whatever the annotation is.
pub fn effective_family(family: OsFamily, stages: &[Stage]) -> OsFamily {
    if stages.iter().any(|stage| stage.kind == StageKind::NodeConfig) { OsFamily::AmazonLinux2023 } else { family }
}

/// A decoded stage, with its field path for messages.
#[derive(Clone)]
pub(super) struct DecodedStage {
    pub field: String,
    pub kind: StageKind,
    pub data: Vec<u8>,
}

impl DecodedStage {
    /// The stage as text.
    pub(crate) fn text(&self) -> Result<&str, UserDataError> {
        std::str::from_utf8(&self.data).map_err(|_| UserDataError::NotText { stage: self.field.clone() })
    }
}

/// Decodes every stage, and checks that the last `NodeConfigYaml`, which is the one in effect, is YAML.
pub(super) fn decode(stages: &[Stage]) -> Result<Vec<DecodedStage>, UserDataError> {
    let decoded: Vec<_> = stages
        .iter()
        .enumerate()
        .map(|(index, stage)| DecodedStage {
            field: stage.field_path(index),
            kind: stage.kind,
            data: decode_data(stage.data.expose()),
        })
        .collect();
    if let Some(config) = node_config(&decoded) {
        check_yaml(config)?;
    }
    Ok(decoded)
}

/// The stages of one kind, joined without a separator.
pub(super) fn concatenated(stages: &[DecodedStage], kind: StageKind) -> Vec<u8> {
    stages.iter().filter(|stage| stage.kind == kind).flat_map(|stage| stage.data.clone()).collect()
}

/// The last `NodeConfigYaml`, when it is not blank.
pub(super) fn node_config(stages: &[DecodedStage]) -> Option<&DecodedStage> {
    stages.iter().rfind(|stage| stage.kind == StageKind::NodeConfig).filter(|stage| !stage.data.trim_ascii().is_empty())
}

/// Decodes base64; other text is returned unchanged.
fn decode_data(data: &str) -> Vec<u8> {
    let one_line = data.replace(['\r', '\n'], "");
    BASE64.decode(one_line).unwrap_or_else(|_| data.as_bytes().to_vec())
}

/// The error names a line and never the content, which may be secret.
fn check_yaml(stage: &DecodedStage) -> Result<(), UserDataError> {
    let problem = |line, detail| UserDataError::NotYaml { stage: stage.field.clone(), line, detail };
    // An oversized document is not parsed; the size check reports it.
    if stage.data.len() > MAX_UNCOMPRESSED_BYTES {
        return Ok(());
    }
    match serde_yaml::from_str::<serde_yaml::Value>(stage.text()?) {
        Ok(document @ serde_yaml::Value::Mapping(_)) => match node_config_problem(&document) {
            Some(detail) => Err(UserDataError::NotNodeConfig { stage: stage.field.clone(), detail }),
            None => Ok(()),
        },
        Ok(_) => Err(problem(1, "it is not a single mapping")),
        Err(error) => {
            let line = error.location().map_or(1, |location| location.line());
            Err(problem(line, "it does not parse"))
        }
    }
}

/// Why nodeadm would not decode a document. It then ignores all user data, and the node does not join. A document has an
/// apiVersion and a kind, and values of the right types; unknown fields are ignored (awslabs/amazon-eks-ami,
/// nodeadm/internal/api/bridge/decode.go and nodeadm/api/v1alpha1/nodeconfig_types.go).
fn node_config_problem(document: &serde_yaml::Value) -> Option<&'static str> {
    if document["apiVersion"].as_str() != Some("node.eks.aws/v1alpha1") {
        return Some("apiVersion must be node.eks.aws/v1alpha1");
    }
    if document["kind"].as_str() != Some("NodeConfig") {
        return Some("kind must be NodeConfig");
    }
    let (spec, kubelet) = (&document["spec"], &document["spec"]["kubelet"]);
    let sections = [spec, kubelet, &kubelet["config"], &spec["cluster"], &spec["instance"], &spec["containerd"]];
    if sections.iter().any(|section| !section.is_null() && !section.is_mapping()) {
        return Some("spec, its sections and kubelet.config must be mappings");
    }
    let is_list_of_strings = |flags: &serde_yaml::Value| {
        flags.as_sequence().is_some_and(|flags| flags.iter().all(serde_yaml::Value::is_string))
    };
    (!kubelet["flags"].is_null() && !is_list_of_strings(&kubelet["flags"]))
        .then_some("spec.kubelet.flags must be a list of strings; quote each flag")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded_and_other_text_is_unchanged() {
        assert_eq!(decode_data("ZWNobyBwb3N0"), b"echo post");
        assert_eq!(decode_data("ZWNobyBw\nb3N0\n"), b"echo post");
        assert_eq!(decode_data("echo post"), b"echo post");
        assert_eq!(decode_data("ZWNobyBwb3N0="), b"ZWNobyBwb3N0=");
        assert_eq!(decode_data("YQ"), b"YQ");
        assert_eq!(decode_data("abcdefgh"), [0x69, 0xb7, 0x1d, 0x79, 0xf8, 0x21]);
        assert_eq!(decode_data(""), b"");
    }

    #[test]
    fn truncated_base64_is_detected() {
        let cut = |data: &str| Stage::new("s", StageKind::Pre, data).is_truncated_base64();
        assert!(cut("ZWNobyBwb3N0=") && cut("ZWNobyBwb3\nIHBvc3Q=="));
        for valid in
            ["ZWNobyBwb3N0", "ZWNobyBwb3N0Cg==", "echo post", "ANSWER=", "export EMPTY=", "/usr/bin/prepare", ""]
        {
            assert!(!cut(valid), "{valid}");
        }
    }

    #[test]
    fn node_config_stage_forces_amazon_linux_2023() {
        let stages = [Stage::new("n", StageKind::NodeConfig, "")];
        for family in [OsFamily::AmazonLinux2, OsFamily::Bottlerocket, OsFamily::Windows] {
            assert_eq!(effective_family(family, &stages), OsFamily::AmazonLinux2023);
            assert_eq!(effective_family(family, &[]), family);
        }
    }

    #[test]
    fn last_node_config_is_used_and_must_be_yaml() {
        let good = Stage::new("good", StageKind::NodeConfig, format!("{NODE_CONFIG}spec: {{}}"));
        let bad = Stage::new("bad", StageKind::NodeConfig, "spec: {\ncanary: [");
        assert!(decode(&[bad.clone(), good.clone()]).is_ok());
        let message = decode(&[good, bad]).err().unwrap().to_string();
        assert!(message.contains("`bad`") && !message.contains("canary"), "{message}");
    }

    const NODE_CONFIG: &str = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n";

    #[test]
    fn node_config_must_be_one_that_nodeadm_decodes() {
        let problem = |text: &str| {
            let stages = [Stage::new("config", StageKind::NodeConfig, text)];
            decode(&stages).err().map(|error| error.to_string())
        };
        for good in
            ["", "spec:\n", "spec: {kubelet: {flags: ['--v=2', \"3\"]}}", "spec: {kubelet: {flags: null}, other: 1}"]
        {
            assert_eq!(problem(&format!("{NODE_CONFIG}{good}")), None, "{good}");
        }
        for (bad, part) in [
            ("spec: {kubelet: {flags: ['--v=2']}}".to_owned(), "apiVersion"),
            ("apiVersion: node.eks.aws/v1\nkind: NodeConfig".into(), "apiVersion"),
            ("apiVersion: node.eks.aws/v1alpha1\nkind: Nodeconfig".into(), "kind"),
            (format!("{NODE_CONFIG}spec: {{kubelet: {{flags: '--v=2'}}}}"), "flags"),
            (format!("{NODE_CONFIG}spec: {{kubelet: {{flags: [2]}}}}"), "flags"),
            (format!("{NODE_CONFIG}spec: {{kubelet: {{flags: [{{v: 2}}]}}}}"), "flags"),
            (format!("{NODE_CONFIG}spec: []"), "mappings"),
            (format!("{NODE_CONFIG}spec: {{kubelet: {{config: '110'}}}}"), "mappings"),
        ] {
            let message = problem(&bad).unwrap_or_else(|| panic!("{bad} is accepted"));
            assert!(message.contains("`config`") && message.contains(part), "{message}");
        }
    }
}
