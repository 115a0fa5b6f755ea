"""Parses user data as a node does: the cluster to join, and the node's labels and taints.

Pure: the input is text, and the output is :class:`NodeSpec` or :class:`InvalidUserData`. The kubelet's and nodeadm's own
code decides what they accept (see programs.py). The rest follows bootstrap.sh of amazon-eks-ami, cloud-init
(`user_data.py`, `util.fully_decoded_payload` and `handlers/`), "Bottlerocket settings reference", and "Bootstrap script
configuration parameters" for Windows (Amazon EKS User Guide).
"""

from __future__ import annotations

import email
import ipaddress
import re
import shlex
import tomllib
from dataclasses import dataclass, field
from typing import Any

from localcloud.aws.nodes import powershell, programs
from localcloud.aws.nodes.command_lines import windows_words, words_of_environment_file, words_of_unit
from localcloud.aws.nodes.user_data_error import InvalidUserData

BOOTSTRAP = "/etc/eks/bootstrap.sh"
RUNTIME = "containerd"
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

BOTTLEROCKET_SETTINGS = frozenset(
    """
    autoscaling aws boot bootstrap-commands bootstrap-containers cloudformation container-registry container-runtime
    container-runtime-plugins dns ecs host-containers kernel kubelet-device-plugins kubernetes metrics motd network ntp
    nvidia-container-runtime oci-defaults oci-hooks pki updates
    """.split()
)


@dataclass
class NodeSpec:
    """The node settings of user data.

    `ip_family` is ipv4 or ipv6, or None if the node asks EKS. `service_range` and `dns` are None if the user data does not
    contain them.
    """

    family: str
    cluster: str
    endpoint: str | None = None
    ca: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)
    max_pods: int | None = None
    ip_family: str | None = None
    service_range: str | None = None
    dns: str | None = None


def parse(text: str, family: str | None) -> NodeSpec:
    """Parse user data as an AMI of this family does. With None, the family is detected from the text."""
    if family is None:
        family = detect_family(text)
    match family:
        case "bottlerocket":
            return bottlerocket(text)
        case "amazonlinux2023":
            return amazon_linux_2023(text)
        case "amazonlinux2":
            return amazon_linux_2(text)
        case "windows":
            return windows(text)
    raise InvalidUserData(f"an AMI of family {family} is not simulated")


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


def scripts(text: str) -> list[str]:
    """The scripts that cloud-init runs.

    cloud-init drops a part that it cannot write as UTF-8, and rewrites characters of a part that is neither ASCII nor
    encoded. In life the node joins without that script, or with another one. Here it does not join.
    """
    if not is_mime(text):
        parts = [("text/plain", text, text)]
    else:
        message = email.message_from_string(text)
        parts = [decoded_part(part) for part in message.walk() if not part.is_multipart()]
    found = []
    for number, (kind, payload, written) in enumerate(parts, 1):
        if kind not in ("text/x-shellscript", "text/plain") or not payload.lstrip().startswith("#!"):
            continue
        if payload != written:
            raise InvalidUserData(f"cloud-init changes or drops part {number}, which is neither ASCII nor encoded")
        if not is_utf8(payload):
            raise InvalidUserData(f"cloud-init drops part {number}, which is not UTF-8")
        found.append(payload)
    return found


def is_utf8(text: str) -> bool:
    """Whether text has only characters that cloud-init can write to a file (`util.write_file`)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def decoded_part(part: Any) -> tuple[str, str, str]:
    """Content type of a MIME part, its content as cloud-init decodes it, and as it was written."""
    payload = part.get_payload(decode=True).decode("utf-8", "surrogateescape")
    written = part.get_payload() if not part.get("Content-Transfer-Encoding") else payload
    return part.get_content_type(), payload, written


def amazon_linux_2(text: str) -> NodeSpec:
    """Parse the arguments of bootstrap.sh in a shell script."""
    found = scripts(text)
    if not found:
        raise InvalidUserData("cloud-init runs no script that does not start with #!")
    for script in found:
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
    if options.get("--container-runtime", RUNTIME) != RUNTIME:
        raise InvalidUserData(f"{BOOTSTRAP}: containerd is the only supported container runtime as of Kubernetes version 1.24")
    spec = NodeSpec("amazonlinux2", positional[0], options.get("--apiserver-endpoint"), options.get("--b64-cluster-ca"))
    set_network(spec, options)
    return started(spec, words_of_unit(options.get("--kubelet-extra-args", "")))


def set_network(spec: NodeSpec, options: dict[str, str]) -> None:
    """Set the IP family and the service range as bootstrap.sh does. Without endpoint or CA, it asks EKS."""
    family, ipv6_range = options.get("--ip-family", "").lower(), options.get("--service-ipv6-cidr")
    if family not in ("", "ipv4", "ipv6"):
        raise InvalidUserData(f"{BOOTSTRAP}: invalid --ip-family. Only ipv4 or ipv6 are allowed")
    if ipv6_range and family == "ipv4":
        raise InvalidUserData(f"{BOOTSTRAP}: --ip-family should be ipv6 when --service-ipv6-cidr is specified")
    asks = spec.endpoint is None or spec.ca is None
    spec.ip_family = "ipv6" if ipv6_range else family or (None if asks else "ipv4")
    spec.service_range, spec.dns = ipv6_range, options.get("--dns-cluster-ip")


def started(spec: NodeSpec, arguments: list[str], config: dict[str, Any] | None = None) -> NodeSpec:
    """The node with what its kubelet registers it with."""
    kubelet = programs.kubelet(arguments, config)
    spec.labels = kubelet["labels"] or {}
    spec.taints = [{"key": taint["key"], "value": taint.get("value", ""), "effect": taint["effect"]} for taint in kubelet["taints"] or []]
    spec.max_pods = kubelet["maxPods"]
    return spec


def amazon_linux_2023(text: str) -> NodeSpec:
    """Parse the NodeConfig documents. The scripts must be ones that cloud-init runs as they are written."""
    if is_mime(text):
        scripts(text)
    read = programs.nodeadm(text)
    cluster = read["cluster"]
    spec = NodeSpec("amazonlinux2023", cluster["name"], cluster["endpoint"], cluster["ca"], service_range=cluster["cidr"])
    try:
        spec.ip_family = f"ipv{ipaddress.ip_network(cluster['cidr'], strict=False).version}"
    except ValueError:
        raise InvalidUserData(f"nodeadm: {cluster['cidr']} is not a valid IP Address") from None
    return started(spec, words_of_environment_file(read["flags"] or []), read.get("config"))


def bottlerocket(text: str) -> NodeSpec:
    """Parse the TOML settings of Bottlerocket, which rejects unknown settings."""
    try:
        settings = tomllib.loads(text).get("settings", {})
    except tomllib.TOMLDecodeError as error:
        raise InvalidUserData(f"bottlerocket: the user data is not TOML: {error}") from None
    unknown = set(settings) - BOTTLEROCKET_SETTINGS
    if unknown:
        raise InvalidUserData(f"bottlerocket: unknown settings: {', '.join(sorted(unknown))}")
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
    taints = [
        f"{key}={value}"
        for key, values in kubernetes.get("node-taints", {}).items()
        for value in (values if isinstance(values, list) else [values])
    ]
    pods = kubernetes.get("max-pods")
    if pods is not None and (not isinstance(pods, int) or isinstance(pods, bool)):
        raise InvalidUserData("bottlerocket: settings.kubernetes.max-pods must be a number")
    arguments = [
        "--node-labels=" + ",".join(f"{key}={value}" for key, value in labels.items()),
        "--register-with-taints=" + ",".join(taints),
    ]
    return started(spec, arguments, None if pods is None else {"maxPods": pods})


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
    if parameters.get("ContainerRuntime", RUNTIME).lower() != RUNTIME:
        raise InvalidUserData(f"{WINDOWS_BOOTSTRAP}: containerd is the only supported container runtime as of Kubernetes version 1.24")
    spec = NodeSpec("windows", parameters["EKSClusterName"], parameters.get("APIServerEndpoint"), parameters.get("Base64ClusterCA"))
    spec.ip_family, spec.service_range, spec.dns = "ipv4", parameters.get("ServiceCIDR"), parameters.get("DNSClusterIP")
    return started(spec, windows_words(parameters.get("KubeletExtraArgs", "")))
