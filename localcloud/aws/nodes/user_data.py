"""Parses user data as a node does: the cluster to join, and the node's labels and taints.

Pure: the input is text, and the output is :class:`NodeSpec` or :class:`InvalidUserData`. Follows the documentation of
amazon-eks-ami (bootstrap.sh, nodeadm's NodeConfig), "Bottlerocket settings reference: kubernetes", "Bootstrap script
configuration parameters" for Windows (Amazon EKS User Guide), and the kubelet's own rules for labels and taints.
"""

from __future__ import annotations

import email
import re
import shlex
import tomllib
from dataclasses import dataclass, field
from typing import Any

import yaml

from localcloud.aws.nodes import powershell
from localcloud.aws.nodes.kubelet_flags import KUBELET_FLAGS, check_label, parse_taint
from localcloud.aws.nodes.user_data_error import InvalidUserData

BOOTSTRAP = "/etc/eks/bootstrap.sh"
WINDOWS_BOOTSTRAP = "Start-EKSBootstrap.ps1"
WINDOWS_PARAMETERS = {
    name.lower(): name
    for name in """
    EKSClusterName KubeletExtraArgs KubeProxyExtraArgs APIServerEndpoint Base64ClusterCA DNSClusterIP ContainerRuntime
    ServiceCIDR ExcludedSnatCIDRs
    """.split()
}
NODE_CONFIG = "application/node.eks.aws"
BOTTLEROCKET_KEYS = frozenset(
    """
    api-server cluster-certificate cluster-name cluster-dns-ip cluster-domain max-pods node-labels node-taints
    authentication-mode bootstrap-token standalone-mode eviction-hard eviction-soft eviction-soft-grace-period
    eviction-max-pod-grace-period kube-reserved system-reserved allowed-unsafe-sysctls server-tls-bootstrap
    cloud-provider registry-qps registry-burst event-qps event-burst kube-api-qps kube-api-burst container-log-max-size
    container-log-max-files cpu-manager-policy cpu-manager-reconcile-period cpu-manager-policy-options
    topology-manager-scope topology-manager-policy pod-pids-limit image-gc-high-threshold-percent
    image-gc-low-threshold-percent provider-id log-level credential-providers static-pods shutdown-grace-period
    shutdown-grace-period-for-critical-pods memory-manager-policy memory-manager-reserved-memory reserved-cpus
    hostname-override hostname-override-source seccomp-default cpu-cfs-quota-enforced
    device-ownership-from-security-context single-process-oom-kill node-ip
    """.split()
)


@dataclass
class NodeSpec:
    """The node settings of user data."""

    family: str
    cluster: str
    endpoint: str | None = None
    ca: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)
    max_pods: int | None = None


def parse(text: str, family: str | None) -> NodeSpec:
    """Parse user data as an AMI of this family does. With None, the family is detected from the text."""
    if family is None:
        family = detect_family(text)
    match family:
        case "bottlerocket":
            spec = bottlerocket(text)
        case "amazonlinux2023":
            spec = amazon_linux_2023(text)
        case "amazonlinux2":
            spec = amazon_linux_2(text)
        case "windows":
            spec = windows(text)
        case _:
            raise InvalidUserData(f"an AMI of family {family} is not simulated")
    for key, value in spec.labels.items():
        check_label(key, value)
    return spec


def waits_in_warm_pool(text: str, family: str) -> bool:
    """Whether user data keeps the node from joining while its instance is in a warm pool.

    A script reads the target lifecycle state from the metadata service. On Amazon Linux 2 and Windows, ending the
    script is sufficient, because the script itself starts the node. On Amazon Linux 2023, nodeadm-run.service starts
    the node after cloud-init in any case. Its unit is in /etc/systemd/system, which takes precedence over a runtime mask
    (systemd.unit(5)), so the script needs a drop-in with a condition. Bottlerocket has a setting.
    """
    if family == "bottlerocket":
        return tomllib.loads(text).get("settings", {}).get("autoscaling", {}).get("should-wait") is True
    asks = "autoscaling/target-lifecycle-state" in text and "Warmed" in text
    holds_nodeadm = all(part in text for part in ("/nodeadm-run.service.d/", "ConditionPathExists=!/run/", "daemon-reload"))
    return asks and (family in ("amazonlinux2", "windows") or holds_nodeadm)


def detect_family(text: str) -> str:
    """The family for which user data is written."""
    if is_mime(text) and NODE_CONFIG in text:
        return "amazonlinux2023"
    if "<powershell>" in text.lower():
        return "windows"
    return "amazonlinux2" if text.startswith("#!") or is_mime(text) else "bottlerocket"


def is_mime(text: str) -> bool:
    """Whether cloud-init recognizes a MIME message."""
    return bool(re.match(r"(MIME-Version|Content-Type):", text, re.IGNORECASE))


def mime_parts(text: str) -> list[tuple[str, str]]:
    """Content type and body of each part of a MIME message. A script is its own only part."""
    if not is_mime(text):
        return [("text/x-shellscript", text)]
    message = email.message_from_string(text)
    if not message.is_multipart():
        return [(message.get_content_type(), str(message.get_payload()))]
    return [(part.get_content_type(), str(part.get_payload())) for part in message.walk() if not part.is_multipart()]


def amazon_linux_2(text: str) -> NodeSpec:
    """Parse the arguments of bootstrap.sh in a shell script."""
    scripts = [body for kind, body in mime_parts(text) if kind in ("text/x-shellscript", "text/plain")]
    if not any(script.lstrip("\n").startswith("#!") for script in scripts):
        raise InvalidUserData("cloud-init runs no script that does not start with #!")
    for script in scripts:
        words = bootstrap_call(script)
        if words is not None:
            return bootstrap_arguments(words)
    raise InvalidUserData(f"the user data does not call {BOOTSTRAP}")


def bootstrap_call(script: str) -> list[str] | None:
    """The words of the call of bootstrap.sh, split as a shell does. None if it is not called."""
    lines = script.split("\n")
    for number, line in enumerate(lines):
        if not re.match(rf"\s*(exec\s+|sudo\s+|bash\s+)*{re.escape(BOOTSTRAP)}(\s|$)", line):
            continue
        command = ""
        for following in lines[number:]:
            command += following
            if command.endswith("\\"):
                command = command[:-1]
                continue
            try:
                words = shell_words(command)
            except ValueError:
                command += "\n"
                continue
            return words[words.index(BOOTSTRAP) + 1 :]
        raise InvalidUserData(f"the call of {BOOTSTRAP} has an open quotation")
    return None


def shell_words(command: str) -> list[str]:
    """The words of the first command."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    for word in lexer:
        if set(word) <= set(";&|<>") and word:
            break
        words.append(word)
    return words


def bootstrap_arguments(words: list[str]) -> NodeSpec:
    """Parse the arguments of bootstrap.sh."""
    options: dict[str, str] = {}
    positional: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            if not rest:
                raise InvalidUserData(f"{BOOTSTRAP}: {word} lacks its value")
            options[word] = rest.pop(0)
        else:
            positional.append(word)
    if not positional:
        raise InvalidUserData(f"{BOOTSTRAP}: cluster name is not defined")
    if len(positional) > 1:
        raise InvalidUserData(f"{BOOTSTRAP}: unexpected arguments {positional[1:]}")
    spec = NodeSpec("amazonlinux2", positional[0], options.get("--apiserver-endpoint"), options.get("--b64-cluster-ca"))
    apply_flags(spec, options.get("--kubelet-extra-args", "").split())
    return spec


def apply_flags(spec: NodeSpec, words: list[str]) -> None:
    """Parse kubelet flags. An unknown flag prevents the kubelet from starting."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name != "-v" and not (name.startswith("--") and name[2:] in KUBELET_FLAGS):
            raise InvalidUserData(f"kubelet: unknown flag or argument {word!r}")
        if not equals and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        match name:
            case "--node-labels":
                spec.labels |= dict(pair.partition("=")[::2] for pair in value.split(",") if pair)
            case "--register-with-taints":
                spec.taints += [parse_taint(item) for item in value.split(",") if item]
            case "--max-pods":
                spec.max_pods = positive_integer(value, "--max-pods")


def positive_integer(value: Any, name: str) -> int:
    """A whole number above zero."""
    if not re.fullmatch(r"[1-9]\d*", str(value)):
        raise InvalidUserData(f"{name}: {value!r} is not a number")
    return int(value)


def amazon_linux_2023(text: str) -> NodeSpec:
    """Parse the NodeConfig documents, merged as nodeadm merges them."""
    if is_mime(text):
        documents = [body for kind, body in mime_parts(text) if kind == NODE_CONFIG]
    else:
        documents = [text]
    if not documents:
        raise InvalidUserData("nodeadm: the user data has no part of type application/node.eks.aws")
    merged: dict[str, Any] = {}
    for body in documents:
        merged = merge(merged, node_config(body))
    cluster = merged.get("cluster") or {}
    names = {"name": "Name", "apiServerEndpoint": "Apiserver endpoint", "certificateAuthority": "Certificate authority", "cidr": "CIDR"}
    for key, shown in names.items():
        if not cluster.get(key):
            raise InvalidUserData(f"nodeadm: {shown} is missing in cluster configuration")
    spec = NodeSpec("amazonlinux2023", cluster["name"], cluster["apiServerEndpoint"], cluster["certificateAuthority"])
    kubelet = merged.get("kubelet") or {}
    apply_flags(spec, [str(flag) for flag in kubelet.get("flags") or []])
    config = kubelet.get("config") or {}
    if "maxPods" in config:
        spec.max_pods = positive_integer(config["maxPods"], "maxPods")
    for taint in config.get("registerWithTaints") or []:
        spec.taints.append({"key": taint["key"], "value": taint.get("value", ""), "effect": taint["effect"]})
    return spec


def node_config(body: str) -> dict[str, Any]:
    """The spec of one NodeConfig document."""
    try:
        document = yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise InvalidUserData(f"nodeadm: a NodeConfig is not YAML: {error}") from None
    if not isinstance(document, dict) or document.get("kind") != "NodeConfig":
        raise InvalidUserData("nodeadm: Object 'Kind' is missing in a part of type application/node.eks.aws, or is not NodeConfig")
    if document.get("apiVersion") != "node.eks.aws/v1alpha1":
        raise InvalidUserData(f"nodeadm: unknown apiVersion {document.get('apiVersion')!r}")
    spec = document.get("spec") or {}
    if not isinstance(spec, dict):
        raise InvalidUserData("nodeadm: spec of a NodeConfig is not a mapping")
    return spec


def merge(first: Any, second: Any) -> Any:
    """Merge two documents. Later values win, mappings are merged, kubelet flags are appended."""
    if isinstance(first, dict) and isinstance(second, dict):
        return {
            key: merge(first[key], second[key]) if key in first and key in second else second.get(key, first.get(key))
            for key in {**first, **second}
        }
    if isinstance(first, list) and isinstance(second, list):
        return first + second
    return first if second is None else second


def bottlerocket(text: str) -> NodeSpec:
    """Parse the TOML settings of Bottlerocket, which rejects unknown settings."""
    try:
        settings = tomllib.loads(text).get("settings", {})
    except tomllib.TOMLDecodeError as error:
        raise InvalidUserData(f"bottlerocket: the user data is not TOML: {error}") from None
    kubernetes = settings.get("kubernetes")
    if not isinstance(kubernetes, dict):
        raise InvalidUserData("bottlerocket: [settings.kubernetes] is missing")
    unknown = set(kubernetes) - BOTTLEROCKET_KEYS
    if unknown:
        raise InvalidUserData(f"bottlerocket: unknown settings in [settings.kubernetes]: {', '.join(sorted(unknown))}")
    for key in ("cluster-name", "api-server", "cluster-certificate"):
        if not isinstance(kubernetes.get(key), str) or not kubernetes[key]:
            raise InvalidUserData(f"bottlerocket: settings.kubernetes.{key} is missing")
    spec = NodeSpec("bottlerocket", kubernetes["cluster-name"], kubernetes["api-server"], kubernetes["cluster-certificate"])
    labels = kubernetes.get("node-labels", {})
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise InvalidUserData("bottlerocket: settings.kubernetes.node-labels must map strings to strings")
    spec.labels = dict(labels)
    for key, values in kubernetes.get("node-taints", {}).items():
        for value in values if isinstance(values, list) else [values]:
            spec.taints.append(parse_taint(f"{key}={value}"))
    if "max-pods" in kubernetes:
        if not isinstance(kubernetes["max-pods"], int):
            raise InvalidUserData("bottlerocket: settings.kubernetes.max-pods must be a number")
        spec.max_pods = positive_integer(kubernetes["max-pods"], "max-pods")
    return spec


def windows(text: str) -> NodeSpec:
    """Parse the arguments of Start-EKSBootstrap.ps1 in the PowerShell script that EC2Launch runs."""
    script = re.search(r"<powershell>(.*?)</powershell>", text, re.DOTALL | re.IGNORECASE)
    if not script:
        raise InvalidUserData("EC2Launch: the user data has no <powershell> with its end")
    words = powershell.script_arguments(script[1], WINDOWS_BOOTSTRAP)
    if words is None:
        raise InvalidUserData(f"the user data does not call {WINDOWS_BOOTSTRAP}")
    parameters: dict[str, str] = {}
    while words:
        name = words.pop(0)
        if not name.raw.startswith("-"):
            raise InvalidUserData(f"{WINDOWS_BOOTSTRAP}: a positional parameter cannot be found that accepts argument {name.value!r}")
        parameter = WINDOWS_PARAMETERS.get(name.raw[1:].lower())
        if not parameter:
            raise InvalidUserData(f"{WINDOWS_BOOTSTRAP}: a parameter cannot be found that matches parameter name {name.raw[1:]!r}")
        if not words or words[0].raw.startswith("-"):
            raise InvalidUserData(f"{WINDOWS_BOOTSTRAP}: missing an argument for parameter {parameter!r}")
        parameters[parameter] = words.pop(0).value
    if not parameters.get("EKSClusterName"):
        raise InvalidUserData(f"{WINDOWS_BOOTSTRAP}: EKSClusterName is missing")
    spec = NodeSpec("windows", parameters["EKSClusterName"], parameters.get("APIServerEndpoint"), parameters.get("Base64ClusterCA"))
    apply_flags(spec, parameters.get("KubeletExtraArgs", "").split())
    return spec
