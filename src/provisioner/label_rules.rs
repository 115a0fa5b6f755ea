//! What Kubernetes accepts as a label of a node that its kubelet sets, and as the key and value of a taint.

const KEY_RULE: &str = "is not a valid label key: use at most 63 letters, digits, `-`, `_` and `.`, \
                        starting and ending with a letter or digit, after an optional DNS name and `/`";
const VALUE_RULE: &str = "is not a valid label value: use at most 63 letters, digits, `-`, `_` and `.`, \
                          starting and ending with a letter or digit, or leave it empty";
const KUBELET_RULE: &str = "is a kubernetes.io or k8s.io label that a kubelet may not set on its own node: \
                            remove it, or use the prefix node.kubernetes.io/";

/// What is wrong with the key of a label or taint; `None` for a valid one.
pub(crate) fn key_problem(key: &str) -> Option<&'static str> {
    let is_valid = match key.split_once('/') {
        Some((prefix, name)) => is_dns_name(prefix) && is_qualified_name(name),
        None => is_qualified_name(key),
    };
    (!is_valid).then_some(KEY_RULE)
}

/// What is wrong with the value of a label or taint; `None` for a valid one.
pub(crate) fn value_problem(value: &str) -> Option<&'static str> {
    (!value.is_empty() && !is_qualified_name(value)).then_some(VALUE_RULE)
}

/// Why a kubelet does not start with a label of this key in `--node-labels`; `None` if it does.
pub(crate) fn kubelet_problem(key: &str) -> Option<&'static str> {
    const ALLOWED: [&str; 11] = [
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    ];
    let (prefix, _) = key.split_once('/')?;
    let within = |domain: &str| prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let reserved = within("kubernetes.io") || within("k8s.io");
    let is_allowed =
        !reserved || within("node.kubernetes.io") || within("kubelet.kubernetes.io") || ALLOWED.contains(&key);
    (!is_allowed).then_some(KUBELET_RULE)
}

fn is_qualified_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let bytes = name.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|b| inner(*b))
        && bytes[0].is_ascii_alphanumeric()
        && bytes[bytes.len() - 1].is_ascii_alphanumeric()
}

fn is_dns_name(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= 253
        && name.split('.').all(|part| {
            let bytes = part.as_bytes();
            !bytes.is_empty()
                && bytes.iter().all(|b| letter(*b) || *b == b'-')
                && letter(bytes[0])
                && letter(bytes[bytes.len() - 1])
        })
}
