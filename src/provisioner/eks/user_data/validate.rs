//! Validates the inputs of user data before AWS is called. Errors name the field and a remedy.

use std::net::{IpAddr, Ipv4Addr};

use super::arguments::{EFFECTS, label_list, taint_list, without_continuations};
use super::error::UserDataError;
use super::input::{BootstrapInput, Taint};
use super::limits::{MAX_BYTES, MAX_UNCOMPRESSED_BYTES};
use super::mounts::mount_script;
use super::stages::DecodedStage;
use crate::provisioner::label_rules;

const LABELS: &str = "spec.eks.configuration.labels";
const TAINTS: &str = "spec.eks.configuration.taints";
const ARGUMENTS: &str = "spec.eks.configuration.bootstrapArguments";
const RUNTIME: &str = "spec.eks.configuration.bootstrapOptions.containerRuntime";
/// The runtime of every node since Kubernetes 1.24.
const CONTAINERD: &str = "containerd";
/// The other runtime that keikoproj/instance-manager accepts. It has no effect on Amazon Linux 2023 and Bottlerocket, where
/// groups run with it.
const DOCKERD: &str = "dockerd";
const REDACTED: &str = "[redacted]";
const UNPAIRED_RULE: &str = "contains a quotation mark without its pair: remove it";

fn invalid_value(field: &'static str, value: &str, rule: &'static str) -> UserDataError {
    let value = value.chars().take(128).collect();
    UserDataError::BadValue { field, value, rule }
}

/// Checks every value that user data contains.
pub(super) fn check_input(input: &BootstrapInput) -> Result<(), UserDataError> {
    check_no_control_characters("spec.eks.configuration.clusterName", &input.cluster)?;
    check_no_control_characters("the cluster's endpoint", &input.endpoint)?;
    check_no_control_characters("the cluster's certificate authority", &input.ca_base64)?;
    let runtime = input.container_runtime.as_deref().unwrap_or_default();
    if !["", CONTAINERD, DOCKERD].contains(&runtime) {
        return Err(invalid_value(RUNTIME, runtime, "is not a container runtime of EKS nodes: remove it"));
    }
    if input.bootstrap_arguments.expose().contains(|c: char| c.is_control() && !c.is_whitespace()) {
        return Err(invalid_value(ARGUMENTS, REDACTED, "contains a control character: remove it"));
    }
    service_cidr_address(&input.service_cidr)?;
    for (key, value) in &input.labels {
        label_error(key, value).map_or(Ok(()), Err)?;
    }
    for (index, taint) in input.taints.iter().enumerate() {
        taint_error(&taint.key, &taint.value, &taint.effect).map_or(Ok(()), Err)?;
        let repeats = |other: &Taint| other.key == taint.key && other.effect.eq_ignore_ascii_case(&taint.effect);
        if input.taints[..index].iter().any(repeats) {
            let rule = "has the same effect twice, on which the kubelet exits: remove one of the two taints";
            return Err(invalid_value(TAINTS, &taint.key, rule));
        }
    }
    for mount in &input.mounts {
        check_no_control_characters("spec.eks.configuration.volumes[].name", &mount.device)?;
        check_no_control_characters("spec.eks.configuration.volumes[].mountOptions.mount", &mount.path)?;
        if !["xfs", "ext4"].iter().any(|fs| mount.file_system.eq_ignore_ascii_case(fs)) {
            let field = "spec.eks.configuration.volumes[].mountOptions.fileSystem";
            return Err(invalid_value(field, &mount.file_system, "must be xfs or ext4"));
        }
    }
    Ok(())
}

/// Rejects a runtime that no node has: since Kubernetes 1.24, containerd is the only one. `bootstrap.sh` exits on any other
/// word, also in another case (awslabs/amazon-eks-ami, issue 1024), and the script for Windows has no such parameter.
pub(super) fn check_runtime(input: &BootstrapInput) -> Result<(), UserDataError> {
    match input.container_runtime.as_deref() {
        None | Some("" | CONTAINERD) => Ok(()),
        Some(other) => {
            Err(invalid_value(RUNTIME, other, "is not containerd, the only runtime of EKS nodes: remove it"))
        }
    }
}

/// Rejects stages that are not UTF-8: cloud-init decodes user data as UTF-8 and stops at other bytes (cloudinit/util.py,
/// decode_binary).
pub(super) fn check_text(stages: &[DecodedStage]) -> Result<(), UserDataError> {
    stages.iter().try_for_each(|stage| stage.text().map(drop))
}

/// Rejects arguments that systemd would not pass to the kubelet as they are written.
pub(super) fn check_systemd_arguments(input: &BootstrapInput) -> Result<(), UserDataError> {
    let text = without_continuations(input.bootstrap_arguments.expose());
    if text.contains('\\') {
        return Err(invalid_value(ARGUMENTS, REDACTED, "contains a backslash, which systemd would drop: remove it"));
    }
    let open = text.chars().fold(None, |open, c| match open {
        Some(quote) if quote == c => None,
        None if matches!(c, '\'' | '"') => Some(c),
        _ => open,
    });
    open.map_or(Ok(()), |_| Err(invalid_value(ARGUMENTS, REDACTED, UNPAIRED_RULE)))
}

/// Rejects text that quoting cannot protect on Windows. EC2Launch searches the whole text for its tags. An old
/// PowerShell reads a script in the machine's code page, where other bytes can be quotes.
pub(super) fn check_windows(input: &BootstrapInput) -> Result<(), UserDataError> {
    let tag = |text: &str| {
        let after = text.split('<').skip(1);
        after.filter_map(|rest| rest.chars().next()).any(|c| c == '/' || c.is_alphabetic())
    };
    for (field, value, shown) in [
        ("spec.eks.configuration.clusterName", input.cluster.as_str(), input.cluster.as_str()),
        ("the cluster's endpoint", &input.endpoint, &input.endpoint),
        ("the cluster's certificate authority", &input.ca_base64, &input.ca_base64),
        (ARGUMENTS, input.bootstrap_arguments.expose(), REDACTED),
    ] {
        if tag(value) {
            return Err(invalid_value(
                field,
                shown,
                "contains a tag such as <script>, which EC2Launch would run: remove it",
            ));
        }
        if !value.is_ascii() {
            return Err(invalid_value(
                field,
                shown,
                "contains a character that is not ASCII, which PowerShell may misread: remove it",
            ));
        }
    }
    if has_open_quotation(input.bootstrap_arguments.expose()) {
        return Err(invalid_value(ARGUMENTS, REDACTED, UNPAIRED_RULE));
    }
    Ok(())
}

/// Whether a Windows command line ends within double quotes. An odd number of backslashes escapes a quote.
fn has_open_quotation(text: &str) -> bool {
    let (open, _) = text.chars().fold((false, 0), |(open, backslashes), c| match c {
        '\\' => (open, backslashes + 1),
        '"' => (open != (backslashes % 2 == 0), 0),
        _ => (open, 0),
    });
    open
}

fn check_no_control_characters(field: &'static str, value: &str) -> Result<(), UserDataError> {
    if value.chars().any(char::is_control) {
        return Err(invalid_value(field, value, "contains a control character: remove it"));
    }
    Ok(())
}

/// The address that EKS gives to the cluster's DNS service in an IPv4 range.
pub(super) fn dns_address(base: Ipv4Addr) -> String {
    let [a, b, c, _] = base.octets();
    format!("{a}.{b}.{c}.10")
}

/// The base address of the service CIDR; `None` when it is unknown.
pub(super) fn service_cidr_address(cidr: &str) -> Result<Option<IpAddr>, UserDataError> {
    if cidr.is_empty() {
        return Ok(None);
    }
    let wrong = || invalid_value("the cluster's service CIDR", cidr, "is not a CIDR such as 172.20.0.0/16");
    let (address, length) = cidr.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let length: u8 = length.parse().map_err(|_| wrong())?;
    let widest = if address.is_ipv4() { 32 } else { 128 };
    if length > widest {
        return Err(wrong());
    }
    Ok(Some(address))
}

/// Why a kubelet would reject a label; `None` for a valid one.
pub(crate) fn label_error(key: &str, value: &str) -> Option<UserDataError> {
    let error = |what: &str, rule| invalid_value(LABELS, what, rule);
    let of_key = || label_rules::key_problem(key).or_else(|| label_rules::kubelet_problem(key));
    match label_rules::value_problem(value) {
        _ if let Some(rule) = of_key() => Some(error(key, rule)),
        rule => rule.map(|rule| error(value, rule)),
    }
}

/// Why a kubelet would reject a taint; `None` for a valid one.
pub(crate) fn taint_error(key: &str, value: &str, effect: &str) -> Option<UserDataError> {
    if let Some(rule) = label_rules::key_problem(key) {
        return Some(invalid_value(TAINTS, key, rule));
    }
    if let Some(rule) = label_rules::value_problem(value) {
        return Some(invalid_value(TAINTS, value, rule));
    }
    if !EFFECTS.iter().any(|known| known.eq_ignore_ascii_case(effect)) {
        let rule = "is not a taint effect: use NoSchedule, PreferNoSchedule or NoExecute";
        return Some(invalid_value(TAINTS, effect, rule));
    }
    None
}

/// Checks the transmitted size against [`MAX_BYTES`]; the error names the largest part that the user can shorten.
pub(super) fn check_size(
    plain: &[u8],
    compressed: Option<&[u8]>,
    input: &BootstrapInput,
    stages: &[DecodedStage],
) -> Result<(), UserDataError> {
    let size = compressed.unwrap_or(plain).len();
    if size <= MAX_BYTES && (compressed.is_none() || plain.len() <= MAX_UNCOMPRESSED_BYTES) {
        return Ok(());
    }
    let labels = label_list(&input.labels).len();
    let taints = taint_list(&input.taints).join(",").len();
    let mounts = mount_script(&input.mounts).len();
    let arguments = input.bootstrap_arguments.expose().len();
    let fields = [
        (LABELS.to_owned(), labels),
        (TAINTS.to_owned(), taints),
        (ARGUMENTS.to_owned(), arguments),
        ("spec.eks.configuration.volumes[].mountOptions".to_owned(), mounts),
    ];
    let stages = stages.iter().map(|stage| (stage.field.clone(), stage.data.len()));
    let (largest, largest_size) =
        fields.into_iter().chain(stages).max_by_key(|(_, length)| *length).unwrap_or_default();
    let (size, limit, how) = match compressed {
        Some(_) if plain.len() > MAX_UNCOMPRESSED_BYTES => {
            (plain.len(), MAX_UNCOMPRESSED_BYTES, "before they are compressed")
        }
        Some(_) => (size, MAX_BYTES, "although they are compressed"),
        None => (size, MAX_BYTES, "on this OS family"),
    };
    Err(UserDataError::TooLarge { size, limit, how, largest, largest_size })
}

#[cfg(test)]
mod tests {
    use super::super::arguments::canonical_effect;
    use super::*;

    #[test]
    fn labels_follow_kubelet_rules() {
        for (key, value) in [
            ("team", "search"),
            ("node.kubernetes.io/role", "web"),
            ("instancemgr.keikoproj.io/image", "ami-1"),
            ("x.node.kubernetes.io/y", ""),
            ("topology.kubernetes.io/zone", "us-west-2a"),
            ("mykubernetes.io/a", "b"),
        ] {
            assert_eq!(label_error(key, value), None, "{key}={value}");
        }
        for (key, value) in [
            ("", "x"),
            ("a b", "x"),
            ("a", "x y"),
            ("a", "x,--anonymous-auth=true"),
            ("a", "it's"),
            ("a", "x\ny"),
            ("a/b/c", "x"),
            ("Upper.io/a", "x"),
            ("a", "-x"),
            ("node-restriction.kubernetes.io/a", "x"),
            ("node-role.kubernetes.io/web", ""),
            ("kubernetes.io/role", "web"),
            ("k8s.io/x", "y"),
        ] {
            assert!(label_error(key, value).is_some(), "{key}={value}");
        }
        let long = "a".repeat(64);
        assert!(label_error(&long, "").is_some() && label_error("a", &long).is_some());
    }

    #[test]
    fn effects_are_case_insensitive() {
        assert_eq!(taint_error("gpu", "", "prefernoschedule"), None);
        assert_eq!(canonical_effect("noexecute"), "NoExecute");
        assert!(taint_error("gpu", "", "Never").is_some());
    }

    #[test]
    fn service_cidrs_are_parsed() {
        assert_eq!(service_cidr_address("").unwrap(), None);
        assert!(service_cidr_address("172.20.0.0/16").unwrap().unwrap().is_ipv4());
        assert!(service_cidr_address("fd30:1c53:5f8a::/108").unwrap().unwrap().is_ipv6());
        for wrong in ["172.20.0.0", "x/16", "172.20.0.0/33", "172.20.0.0/x", "; rm -rf /"] {
            assert!(service_cidr_address(wrong).is_err(), "{wrong}");
        }
    }
}
