"""User data that the software of a node would not take as it is written."""

import base64

import pytest

from moto.ec2.models.instance_types import INSTANCE_TYPES

from localcloud.aws.nodes.command_lines import windows_words, words_of_environment_file, words_of_unit
from localcloud.aws.nodes.networks import network_problem
from localcloud.aws.nodes.user_data import NodeSpec, parse
from localcloud.aws.nodes.user_data_error import InvalidUserData
from localcloud.tests.aws.nodes.test_user_data import CALL, CLUSTER, START, config, mime, powershell

TAINTS = "--register-with-taints=a=b:NoSchedule"


def al2(arguments):
    """An Amazon Linux 2 node with these kubelet arguments."""
    quoted = arguments.replace("'", "'\\''")
    return parse(f"{CALL}c --kubelet-extra-args '{quoted}'", "amazonlinux2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--a=b  -v=2\t--c", ["--a=b", "-v=2", "--c"]),
        ("--a=b \\\n --c", ["--a=b", "--c"]),
        ('--a="b c" --d=e<5%,f', ["--a=b c", "--d=e<5%,f"]),
        (r"--a=\'b c\'", ["--a=b c"]),
        ("--a=%%n", ["--a=%n"]),
    ],
)
def test_systemd_splits_the_arguments_of_the_unit(arguments, words):
    """systemd.exec(5), Environment=; systemd.service(5), "Command lines"; systemd 219, load-fragment.c and util.c."""
    assert words_of_unit(arguments) == words


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (f"{TAINTS}\n-v=2", "ignores KUBELET_EXTRA_ARGS"),
        (f"{TAINTS}\n", "ignores KUBELET_EXTRA_ARGS"),
        (f"{TAINTS} \\", "ignores KUBELET_EXTRA_ARGS"),
        (f"{TAINTS} --a=\\n", "ignores KUBELET_EXTRA_ARGS"),
        (f"{TAINTS} \x07", "ignores KUBELET_EXTRA_ARGS"),
        (f"{TAINTS} --a='b c'", "ignores KUBELET_EXTRA_ARGS"),
        (f"{TAINTS} --a=b' -v=2", "cuts KUBELET_EXTRA_ARGS off"),
        (f'{TAINTS} --a="b', "unbalanced quoting"),
    ],
)
def test_a_node_whose_arguments_systemd_drops_does_not_join(arguments, reason):
    """amazon-eks-ami, bootstrap.sh: Environment='KUBELET_EXTRA_ARGS=...'; systemd 219, load-fragment.c.

    In life it joins without its labels and taints, which is worse.
    """
    with pytest.raises(InvalidUserData) as caught:
        al2(arguments)
    assert reason in str(caught.value)


def test_nodeadm_joins_flags_for_systemd():
    """amazon-eks-ami, nodeadm: internal/kubelet/environment.go; systemd 252, env-file.c."""
    assert words_of_environment_file(["--a=\"b", "c\"", "--d=e\\f"]) == ["--a=b c", "--d=ef"]


def test_only_spaces_and_tabs_separate_arguments_on_windows():
    """Microsoft C++ documentation, "Parsing C++ command-line arguments"."""
    assert windows_words('--a=b\t--c="d e" --f=C:\\g') == ["--a=b", "--c=d e", "--f=C:\\g"]
    assert windows_words(r'--a=\"b\"\" --c="d\" e" "f\\" g') == ['--a="b""', '--c=d" e', "f\\", "g"]
    assert windows_words("--a=b\n--c") == ["--a=b\n--c"]


def node(family, flags):
    """User data of a node with these kubelet flags, in which quotes are not special."""
    match family:
        case "amazonlinux2":
            return f"{CALL}c --kubelet-extra-args '{' '.join(flags)}'"
        case "amazonlinux2023":
            return mime(config(f"{CLUSTER}, kubelet: {{flags: {flags}}}"))
        case "windows":
            return powershell(f"{START}-EKSClusterName c -KubeletExtraArgs '{' '.join(flags)}'")


@pytest.mark.parametrize("family", ["amazonlinux2", "amazonlinux2023", "windows"])
def test_the_kubelet_decides_what_it_accepts(family):
    """k8s.io/kubernetes/cmd/kubelet/app: the code itself."""
    spec = parse(node(family, ["--node-labels=a=b", TAINTS, "--node-labels=c=d", "--register-with-taints=e=:NoExecute"]), family)
    assert spec.labels == {"a": "b", "c": "d"}
    assert spec.taints == [{"key": "e", "value": "", "effect": "NoExecute"}], "the last flag replaces all taints"
    for flags, reason in [
        (["--register-with-taints=a=b:NoSchedule,a=c:NoSchedule"], "duplicated taints"),
        (["--node-labels=a=b c"], "unknown command"),
        (["--node-labels=kubernetes.io/role=x"], "unknown 'kubernetes.io'"),
        (["--image-gc-high-threshold=50", "--image-gc-low-threshold=60"], "must be less than"),
        (["--container-runtime=docker"], "unknown flag"),
    ]:
        with pytest.raises(InvalidUserData) as caught:
            parse(node(family, flags), family)
        assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ('"a" = ["b:NoSchedule", "c:NoSchedule"]', "duplicated taints"),
        ('"a" = "b:Never"', "invalid taint effect"),
        ('"a" = "b:NoSchedule"\n[settings.kubernets]', "unknown settings: kubernets"),
    ],
)
def test_bottlerocket_rejects_settings(settings, reason):
    """bottlerocket.dev, "Settings Reference"; k8s.io/kubernetes/pkg/util/taints."""
    kubernetes = '[settings.kubernetes]\napi-server = "e"\ncluster-certificate = "YQ=="\ncluster-name = "c"\n'
    with pytest.raises(InvalidUserData) as caught:
        parse(f"{kubernetes}[settings.kubernetes.node-taints]\n{settings}\n", "bottlerocket")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("amazonlinux2", CALL + "c --container-runtime dockerd"),
        ("windows", powershell(START + "-EKSClusterName c -ContainerRuntime docker")),
    ],
)
def test_containerd_is_the_only_runtime(family, text):
    """amazon-eks-ami, bootstrap.sh: "containerd is the only supported container runtime as of Kubernetes version 1.24"."""
    with pytest.raises(InvalidUserData, match="only supported container runtime"):
        parse(text, family)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("kind: NodeConfig\nspec: {}", "'apiVersion' is missing"),
        ("apiVersion: node.eks.aws/v1alpha1\nspec: {}", "'Kind' is missing"),
        ("apiVersion: node.eks.aws/v1\nkind: NodeConfig", "no kind"),
        (config(f"{CLUSTER}, kubelet: {{flags: '-v=2'}}"), "cannot unmarshal string"),
        (config(f"{CLUSTER}, kubelet: {{flags: [2]}}"), "cannot unmarshal number"),
        (config(CLUSTER.replace("YQ==", "-")), "illegal base64"),
        (config(f"{CLUSTER}, kubelet: {{config: {{maxPods: many}}}}"), "cannot unmarshal string"),
    ],
)
def test_nodeadm_decides_what_it_accepts(document, reason):
    """amazon-eks-ami, nodeadm: the published types, decoded by apimachinery as in internal/api/bridge/decode.go."""
    with pytest.raises(InvalidUserData) as caught:
        parse(mime(document), "amazonlinux2023")
    assert reason in str(caught.value)


def script_part(script, encoded):
    """User data of Amazon Linux 2023 with a script."""
    header = "Content-Type: text/x-shellscript; charset=\"utf-8\"\n"
    body = f"{header}Content-Transfer-Encoding: base64\n\n{base64.b64encode(script.encode()).decode()}" if encoded else f"{header}\n{script}"
    return mime(config(CLUSTER)).replace("--X\n", f"--X\n{body}\n--X\n", 1)


@pytest.mark.parametrize("text", ["\u00fc", "\u2019", "\U0001f600"])
def test_cloud_init_needs_an_encoding_for_other_than_ascii(text):
    """cloud-init 22.2.2 and 25.1: util.fully_decoded_payload, handlers/shell_script.py; Python, email.message.get_payload."""
    script = f"#!/bin/bash\n# {text}\n"
    assert parse(script_part(script, encoded=True), "amazonlinux2023").cluster == "c"
    with pytest.raises(InvalidUserData, match="neither ASCII nor encoded"):
        parse(script_part(script, encoded=False), "amazonlinux2023")
    assert parse(script_part("#!/bin/bash\n", encoded=False), "amazonlinux2023").cluster == "c"


def test_node_configs_may_have_any_characters():
    """amazon-eks-ami, nodeadm: mime/multipart does not decode characters; cloud-init runs no part of this type."""
    assert parse(mime(config(CLUSTER) + "# \u00fc \u2019\n"), "amazonlinux2023").cluster == "c"


def test_cloud_init_drops_scripts_that_are_not_utf_8():
    """cloud-init 22.2.2 and 25.1: util.fully_decoded_payload (surrogateescape), then util.write_file, which encodes strictly."""
    script = base64.b64encode(b"#!/bin/bash\necho \xe4\n").decode()
    header = 'Content-Type: text/x-shellscript; charset="utf-8"\nContent-Transfer-Encoding: base64\n'
    text = mime(config(CLUSTER)).replace("--X\n", f"--X\n{header}\n{script}\n--X\n", 1)
    with pytest.raises(InvalidUserData, match="not UTF-8"):
        parse(text, "amazonlinux2023")


@pytest.mark.parametrize(
    ("arguments", "family"),
    [
        ("c --b64-cluster-ca a --apiserver-endpoint e --dns-cluster-ip 10.0.0.10", "ipv4"),
        ("c --b64-cluster-ca a --apiserver-endpoint e --ip-family IPv6 --service-ipv6-cidr fd30::/108", "ipv6"),
        ("c --b64-cluster-ca a --apiserver-endpoint e --service-ipv6-cidr fd30::/108", "ipv6"),
        ("c", None),
        ("c --ip-family dual", "Only ipv4 or ipv6"),
        ("c --ip-family ipv4 --service-ipv6-cidr fd30::/108", "should be ipv6"),
    ],
)
def test_bootstrap_sh_decides_the_ip_family(arguments, family):
    """amazon-eks-ami, templates/al2/runtime/bootstrap.sh: without endpoint or CA, it asks EKS."""
    if family in ("ipv4", "ipv6", None):
        assert parse(CALL + arguments, "amazonlinux2").ip_family == family
        return
    with pytest.raises(InvalidUserData, match=family):
        parse(CALL + arguments, "amazonlinux2")


@pytest.mark.parametrize(("cidr", "family"), [("10.0.0.0/16", "ipv4"), ("fd30:1c53:5f8a::/108", "ipv6"), ("ten", None)])
def test_nodeadm_derives_the_ip_family_from_the_service_range(cidr, family):
    """amazon-eks-ami, nodeadm/internal/api/net.go, GetCIDRIpFamily."""
    text = mime(config(CLUSTER.replace("10.0.0.0/16", f"'{cidr}'")))
    if family:
        assert parse(text, "amazonlinux2023").ip_family == family
        return
    with pytest.raises(InvalidUserData, match="not a valid IP Address"):
        parse(text, "amazonlinux2023")


IPV6 = "fd30:1c53:5f8a::/108"
ADDRESS = "2600:1f14::5"


@pytest.mark.parametrize(
    ("spec", "service_range", "kind", "address", "reason"),
    [
        ({"ip_family": "ipv4", "service_range": "10.0.0.0/16"}, "10.0.0.0/16", "m5.large", None, None),
        ({"ip_family": "ipv4", "dns": "10.0.0.10"}, "10.0.0.0/16", "t2.micro", None, None),
        ({"ip_family": "ipv4", "dns": "10.100.0.10"}, "10.0.0.0/16", "m5.large", None, "not in the service range"),
        ({"ip_family": "ipv4", "service_range": "10.100.0.0/16"}, "10.0.0.0/16", "m5.large", None, "is not 10.0.0.0/16"),
        ({"ip_family": "ipv4"}, IPV6, "m5.large", ADDRESS, "would use ipv4"),
        ({"ip_family": "ipv6", "service_range": IPV6}, "10.0.0.0/16", "m5.large", ADDRESS, "would use ipv6"),
        ({"ip_family": "ipv6", "service_range": IPV6}, IPV6, "m5.large", ADDRESS, None),
        ({"ip_family": "ipv6", "service_range": "fd00::/108"}, IPV6, "m5.large", ADDRESS, "the service range"),
        ({}, IPV6, "m5.metal", ADDRESS, None),
        ({}, IPV6, "m4.large", ADDRESS, "Nitro"),
        ({}, IPV6, "m5.large", None, "no IPv6 address"),
    ],
)
def test_a_node_needs_the_network_of_its_cluster(spec, service_range, kind, address, reason):
    """Amazon EKS User Guide, "Learn about IPv6 addresses to clusters, Pods, and services": "Nitro-based EC2 nodes required"."""
    found = network_problem(NodeSpec("amazonlinux2", "c", **spec), service_range, INSTANCE_TYPES[kind], address)
    assert (found is None) if reason is None else (reason in found)


@pytest.mark.parametrize(
    ("service_range", "vpc_range", "fits"),
    [
        ("172.20.0.0/16", "10.0.0.0/16", True),
        ("10.100.0.0/16", "10.0.0.0/16", False),
        ("10.100.0.0/16", "172.31.0.0/16", True),
        ("172.20.0.0/16", "192.168.0.0/16", False),
        ("10.96.0.0/16", "10.0.0.0/16", False),
    ],
)
def test_a_windows_node_assumes_its_service_range_by_its_vpc(service_range, vpc_range, fits):
    """Amazon EKS User Guide, "Create nodes with optimized Windows AMIs": -DNSClusterIP is optional, and defaults to the address
    of one of the two ranges that EKS assigns. With another range, the pods of a real node resolve no Services. A script that
    is not given the endpoint asks EKS (awslabs/amazon-eks-ami, "Windows AMI Bootstrap Script should support ServiceCidr")."""
    kind, asks_eks = INSTANCE_TYPES["m5.large"], "-EKSClusterName c"
    spec = parse(powershell(f"{START}{asks_eks} -APIServerEndpoint https://a -Base64ClusterCA Yg=="), "windows")
    assert (spec.dns, spec.service_range) == (None, None)
    found = network_problem(spec, service_range, kind, None, ("100.64.0.0/16", vpc_range))
    assert (found is None) if fits else ("the service range" in found)
    assert network_problem(parse(powershell(START + asks_eks), "windows"), service_range, kind, None, (vpc_range,)) is None


def test_a_windows_node_needs_the_dns_address_of_its_cluster():
    """Amazon EKS User Guide, "Create nodes with optimized Windows AMIs": -DNSClusterIP overrides the address."""
    wrong = NodeSpec("windows", "c", ip_family="ipv4", dns="10.100.0.10")
    assert "the DNS address" in network_problem(wrong, "10.96.0.0/16", INSTANCE_TYPES["m5.large"], None)
