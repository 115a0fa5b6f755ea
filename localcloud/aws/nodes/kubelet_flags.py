"""Flags, labels and taints that a kubelet accepts.

Follows "kubelet" and "Well-Known Labels, Annotations and Taints" in the Kubernetes reference.
"""

from __future__ import annotations

import re

from localcloud.aws.nodes.user_data_error import InvalidUserData

KUBELET_FLAGS = frozenset(
    """
    node-labels register-with-taints max-pods kube-reserved system-reserved kube-reserved-cgroup system-reserved-cgroup
    reserved-cpus reserved-memory eviction-hard eviction-soft eviction-soft-grace-period eviction-max-pod-grace-period
    eviction-minimum-reclaim eviction-pressure-transition-period enforce-node-allocatable feature-gates v cluster-dns
    cluster-domain cgroup-driver cgroup-root cgroups-per-qos image-gc-high-threshold image-gc-low-threshold
    minimum-image-ttl-duration container-log-max-size container-log-max-files read-only-port event-qps event-burst
    registry-qps registry-burst serialize-image-pulls cpu-manager-policy cpu-manager-policy-options
    cpu-manager-reconcile-period topology-manager-policy topology-manager-scope memory-manager-policy
    allowed-unsafe-sysctls cloud-provider node-ip hostname-override pod-max-pids pods-per-core protect-kernel-defaults
    rotate-certificates rotate-server-certificates runtime-request-timeout streaming-connection-idle-timeout
    kube-api-qps kube-api-burst kube-api-content-type resolv-conf root-dir max-open-files cpu-cfs-quota
    cpu-cfs-quota-period image-credential-provider-config image-credential-provider-bin-dir anonymous-auth
    authentication-token-webhook authorization-mode client-ca-file tls-cipher-suites tls-min-version
    make-iptables-util-chains node-status-update-frequency volume-plugin-dir seccomp-default config config-dir
    kubeconfig address port healthz-port healthz-bind-address sync-frequency file-check-frequency fail-swap-on
    node-status-max-images local-storage-capacity-isolation experimental-allocatable-ignore-eviction logging-format
    """.split()
)
ALLOWED_LABELS = {
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "node.kubernetes.io/windows-build",
}
RESERVED = re.compile(r"(^|\.)(kubernetes\.io|k8s\.io)$")
ALLOWED_NAMESPACES = re.compile(r"(^|\.)(kubelet|node)\.kubernetes\.io$")
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
PREFIX = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
TAINT = re.compile(r"(?P<key>[^=:]+)(=(?P<value>[^:]*))?:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute)")


def check_label(key: str, value: str) -> None:
    """Reject invalid labels, and labels that a kubelet may not set on its own node."""
    namespace, slash, name = key.rpartition("/")
    if not NAME.fullmatch(name) or (slash and not PREFIX.fullmatch(namespace)) or (value and not NAME.fullmatch(value)):
        raise InvalidUserData(f"kubelet: {key}={value} is not a valid label")
    if RESERVED.search(namespace) and key not in ALLOWED_LABELS and not ALLOWED_NAMESPACES.search(namespace):
        raise InvalidUserData(
            f"kubelet: unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{key}]; they must begin with an allowed "
            "prefix (kubelet.kubernetes.io, node.kubernetes.io) or be in the specifically allowed set"
        )


def parse_taint(text: str) -> dict[str, str]:
    """Parse `key=value:effect` or `key:effect`."""
    match = TAINT.fullmatch(text)
    if not match:
        raise InvalidUserData(f"kubelet: invalid taint {text!r}")
    namespace, slash, name = match["key"].rpartition("/")
    if not NAME.fullmatch(name) or (slash and not PREFIX.fullmatch(namespace)) or (match["value"] and not NAME.fullmatch(match["value"])):
        raise InvalidUserData(f"kubelet: invalid taint {text!r}")
    return {"key": match["key"], "value": match["value"] or "", "effect": match["effect"]}
