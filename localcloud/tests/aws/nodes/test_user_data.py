"""Parsing of user data. Pure, without a simulator."""

import pytest

from localcloud.aws.nodes import authenticator
from localcloud.aws.nodes.powershell import Script
from localcloud.aws.nodes.user_data import parse, waits_in_warm_pool
from localcloud.aws.nodes.user_data_error import InvalidUserData
from localcloud.tests.aws.support import REPOSITORY

GOLDEN = REPOSITORY / "tests" / "golden" / "user_data"
FAMILIES = {"al2": "amazonlinux2", "al2023": "amazonlinux2023", "bottlerocket": "bottlerocket", "windows": "windows"}
CALL = "#!/bin/bash\n/etc/eks/bootstrap.sh "
START = "& 'C:\\Program Files\\Amazon\\EKS\\Start-EKSBootstrap.ps1' "
CLUSTER = "cluster: {name: c, apiServerEndpoint: e, certificateAuthority: YQ==, cidr: 10.0.0.0/16}"


def mime(*bodies, kind="application/node.eks.aws"):
    """A MIME message with these parts."""
    parts = "".join(f"--X\nContent-Type: {kind}\n\n{body}\n" for body in bodies)
    return f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="X"\n\n{parts}--X--\n'


def config(spec):
    """A NodeConfig document."""
    return f"apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {{{spec}}}\n"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_golden_user_data_of_the_controller_is_valid(path):
    """The controller's golden user data, parsed as its family does."""
    spec = parse(path.read_text(), FAMILIES[path.stem.split("_")[0]])
    assert spec.cluster
    assert spec.labels["node.kubernetes.io/role"]


@pytest.mark.parametrize(
    ("arguments", "labels", "taints", "pods"),
    [
        ("c", {}, 0, None),
        ("c --kubelet-extra-args '--node-labels=a=b,c= --max-pods=7'", {"a": "b", "c": ""}, 0, 7),
        ('c \\\n  --kubelet-extra-args "--node-labels a=b \\\n --register-with-taints=x=y:NoSchedule,z:NoExecute -v=2"', {"a": "b"}, 2, None),
        ("--container-runtime containerd c && echo done", {}, 0, None),
        ("c --kubelet-extra-args '--node-labels= --register-with-taints= '; reboot", {}, 0, None),
    ],
)
def test_bootstrap_arguments_are_split_as_a_shell_does(arguments, labels, taints, pods):
    """amazon-eks-ami, bootstrap.sh."""
    spec = parse(CALL + arguments, "amazonlinux2")
    assert (spec.cluster, spec.labels, len(spec.taints), spec.max_pods) == ("c", labels, taints, pods)


def test_node_configs_are_merged_and_their_flags_appended():
    """amazon-eks-ami, nodeadm: "Using user data": later documents win."""
    text = mime(
        config("kubelet: {flags: ['--node-labels=a=1'], config: {maxPods: 5}}"),
        config(f"{CLUSTER}, kubelet: {{flags: ['--node-labels=b=2'], config: {{maxPods: 9}}}}"),
    )
    spec = parse(text, "amazonlinux2023")
    assert (spec.cluster, spec.labels, spec.max_pods) == ("c", {"a": "1", "b": "2"}, 9)


def powershell(script):
    """User data that EC2Launch runs."""
    return f"<powershell>\n{script}\n</powershell>\n"


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("plain", "plain"),
        ("''", ""),
        ("'it''s'", "it's"),
        ("'a\u2019\u2019b'", "a\u2019b"),
        ("\u2018a b\u2019", "a b"),
        ("'$x `n \"q\" ; & | { #'", '$x `n "q" ; & | { #'),
        ('"two ""words"" `"more`" `$x"', 'two "words" "more" $x'),
        ('"\u201d\u201d"', "\u201d"),
        ('"$name-$env:ProgramFiles $(1 + 1)!"', "web-C:\\Program Files !"),
        ("$name", "web"),
        ("${name}", "web"),
        ("a`;b", "a;b"),
        ("@'\nit's\nraw $x\n'@", "it's\nraw $x"),
    ],
)
def test_powershell_words_are_evaluated(word, value):
    """PowerShell, "about_Quoting_Rules" and "about_Special_Characters"; typographic quotes are quotes."""
    commands = Script(f"$name = 'web'\n  Call {word} -Next 3>&1 # not 'this\n").read()
    assert [[w.value for w in words] for words in commands] == [["Call", value, "-Next"]]


@pytest.mark.parametrize(
    ("arguments", "labels", "pods"),
    [
        ("-EKSClusterName c", {}, None),
        ("-eksclustername 'c' `\n  -KubeletExtraArgs '--node-labels=a=b --max-pods=7' 3>&1 4>&1", {"a": "b"}, 7),
        ("-EKSClusterName c -ContainerRuntime containerd; Restart-Computer", {}, None),
        ('-KubeletExtraArgs "--node-labels=a=$env:nothing,c=d" -EKSClusterName c', {"a": "", "c": "d"}, None),
    ],
)
def test_windows_arguments_are_parsed_as_powershell_does(arguments, labels, pods):
    """Amazon EKS User Guide, "Bootstrap script configuration parameters"."""
    for script in (START + arguments, f"if ($x) {{ Write-Host 'no' }} else {{ {START}{arguments} }}"):
        spec = parse(powershell(script), "windows")
        assert (spec.cluster, spec.labels, spec.max_pods) == ("c", labels, pods)


@pytest.mark.parametrize(
    ("family", "text", "reason"),
    [
        ("amazonlinux2", "echo no shebang\n/etc/eks/bootstrap.sh c", "does not start with #!"),
        ("amazonlinux2", "#!/bin/bash\n# /etc/eks/bootstrap.sh c", "does not call"),
        ("amazonlinux2", CALL + "c 'open", "open quotation"),
        ("amazonlinux2", CALL + "--dns-cluster-ip 10.0.0.10", "cluster name"),
        ("amazonlinux2", CALL + "c d", "unexpected arguments"),
        ("amazonlinux2", CALL + "c --kubelet-extra-args '--colour=red'", "unknown flag"),
        ("amazonlinux2", CALL + "c --kubelet-extra-args '--node-labels=a b'", "unknown command b"),
        ("amazonlinux2", CALL + "c --kubelet-extra-args '--node-labels=node-restriction.kubernetes.io/a=b'", "unknown 'kubernetes.io'"),
        ("amazonlinux2", CALL + "c --kubelet-extra-args '--node-labels=k8s.io/a=b'", "unknown 'kubernetes.io'"),
        ("amazonlinux2", CALL + "c --kubelet-extra-args '--node-labels=a=b/c'", "a valid label must be"),
        ("amazonlinux2", CALL + "c --kubelet-extra-args '--register-with-taints=a=b:Never'", "invalid taint"),
        ("amazonlinux2", CALL + "c --kubelet-extra-args '--max-pods=many'", "invalid syntax"),
        ("amazonlinux2023", mime("#!/bin/bash", kind="text/x-shellscript"), "could not find NodeConfig"),
        ("amazonlinux2023", mime("", config(CLUSTER)), "'Kind' is missing"),
        ("amazonlinux2023", mime(config("cluster: {name: c}")), "Apiserver endpoint is missing"),
        ("amazonlinux2023", mime(config(CLUSTER.replace(", cidr: 10.0.0.0/16", ""))), "CIDR is missing"),
        ("amazonlinux2023", mime("{"), "unexpected end of JSON input"),
        ("windows", START + "-EKSClusterName c", "no <powershell>"),
        ("windows", powershell("# " + START + "-EKSClusterName c"), "does not call"),
        ("windows", powershell("Write-Host '" + START.replace("'", "''") + "'"), "does not call"),
        ("windows", powershell("<# " + START + "-EKSClusterName c #>"), "does not call"),
        ("windows", powershell("@'\n" + START + "-EKSClusterName c\n'@"), "does not call"),
        ("windows", powershell(START + "-EKSClusterName 'c"), "missing the terminator"),
        ("windows", powershell("if ($x) { " + START + "-EKSClusterName c"), "missing closing '}'"),
        ("windows", powershell(START + "-KubeletExtraArgs '--max-pods=7'"), "EKSClusterName is missing"),
        ("windows", powershell(START + "-EKSClusterName"), "missing an argument"),
        ("windows", powershell(START + "-EKSClusterName c d"), "positional"),
        ("windows", powershell(START + "-EKSClusterName c -Colour red"), "matches parameter name 'Colour'"),
        ("windows", powershell(START + "-EKSClusterName c -KubeletExtraArgs '--colour=red'"), "unknown flag"),
        ("bottlerocket", "settings", "not TOML"),
        ("bottlerocket", "[settings.motd]\n", "[settings.kubernetes] is missing"),
        ("bottlerocket", '[settings.kubernetes]\ncluster-name="c"\n', "api-server is missing"),
        ("bottlerocket", '[settings.kubernetes]\ncluster-nam="c"\n', "unknown settings"),
    ],
)
def test_invalid_user_data_is_rejected_with_the_reason(family, text, reason):
    """The documentation that localcloud.aws.nodes.user_data refers to."""
    with pytest.raises(InvalidUserData) as caught:
        parse(text, family)
    assert reason in str(caught.value)


HOLD = (
    "printf '[Unit]\\nConditionPathExists=!/run/warmed\\n' > /run/systemd/system/nodeadm-run.service.d/hold.conf; "
    "systemctl daemon-reload"
)


@pytest.mark.parametrize(
    ("family", "script", "waits"),
    [
        ("amazonlinux2", "", False),
        ("amazonlinux2", "exit 0", True),
        ("amazonlinux2023", "exit 0", False),
        ("amazonlinux2023", "systemctl mask --runtime --now nodeadm-run.service", False),
        ("amazonlinux2023", HOLD, True),
    ],
)
def test_a_script_can_prevent_joining_from_a_warm_pool(family, script, waits):
    """Amazon EC2 Auto Scaling User Guide, "Retrieve the target lifecycle state"; amazon-eks-ami, nodeadm-run.service: After=cloud-final.

    systemd.unit(5), "Unit File Load Path": /etc takes precedence over /run; drop-ins take precedence over unit files.
    """
    state = "curl http://169.254.169.254/latest/meta-data/autoscaling/target-lifecycle-state"
    text = f"#!/bin/bash\nif [[ $({state}) == Warmed* ]]; then {script}; fi\n" if script else "#!/bin/bash\n"
    assert waits_in_warm_pool(text, family) is waits


@pytest.mark.parametrize(("setting", "waits"), [("", False), ("should-wait = false", False), ("should-wait = true", True)])
def test_bottlerocket_should_wait_prevents_joining_from_a_warm_pool(setting, waits):
    """Bottlerocket, Settings reference, settings.autoscaling.should-wait: "Whether to wait for the instance to reach the InService state"."""
    assert waits_in_warm_pool(f"[settings.autoscaling]\n{setting}\n", "bottlerocket") is waits


@pytest.mark.parametrize(
    ("map_roles", "part"),
    [
        (None, "does not exist"),
        ("", "no entry"),
        ("- {", "not YAML"),
        ("a: b", "not a list"),
        ("- {rolearn: 'arn:aws:iam::1:role/path/r', username: u, groups: []}", "no entry"),
        ("- {rolearn: 'arn:aws:iam::1:role/r', username: u, groups: []}", "username"),
        (
            "- {rolearn: 'arn:aws:iam::1:role/r', username: 'system:node:{{EC2PrivateDNSName}}', groups: [system:nodes]}",
            "system:bootstrappers",
        ),
        (
            "- {rolearn: 'arn:aws:iam::1:role/R', username: 'system:node:{{EC2PrivateDNSName}}', groups: [system:nodes, system:bootstrappers]}",
            None,
        ),
    ],
)
def test_aws_auth_entries_must_be_complete(map_roles, part):
    """Amazon EKS User Guide, "Grant IAM users access to Kubernetes with a ConfigMap"."""
    reason = authenticator.aws_auth_problem(map_roles, "arn:aws:iam::1:role/path/r", "EC2_LINUX")
    assert (reason is None) if part is None else (part in reason)
    assert reason or "eks:kube-proxy-windows" in authenticator.aws_auth_problem(map_roles, "arn:aws:iam::1:role/path/r", "EC2_WINDOWS")
