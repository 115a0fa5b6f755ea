"""Specs with hostile text in every field that reaches user data, and the software of nodes that reads the result.

Each node gets the labels, taints and pod limit that its spec asks for, or the spec is rejected with the field named.
Pure, except that the controller renders the user data in a Rust test, and that the kubelet's and nodeadm's code reads it.
"""

import base64
import gzip
import json
import os
import random
import subprocess

import pytest
import yaml

from localcloud.aws.nodes.user_data import parse
from localcloud.tests.support import REPOSITORY

SEED = 20260101
SPECS_OF_FAMILY = 250
FAMILIES = ("amazonlinux2", "amazonlinux2023", "bottlerocket", "windows")
PIECES = (
    ["'", '"', "`", "''", "\\'", '\\"']
    + ["\n", "\r\n", "\t", "  ", "\u00a0", "\u2028", "\u0085"]
    + ["\\", "\\\n", "\\n", "\\\\", "%", "%%", "%n", "%H", "5%,", "$", "$(x)", "${x}", "$env:x", "`x`"]
    + ["\u00fc", "\u00df", "\u2019", "\u201c", "\u4e2d", "\U0001f600", "\ufeff", "e\u0301"]
    + [";", "&", "|", "<", ">", "#", ",", "=", ":", "/", "--", "{", "}", "[", "]", "!", "*", "~", "?", "@", "^"]
    + ["<script>", "</powershell>", "--BOUNDARY", "EOF", "\x07", "\x00", "\x1b", "MIME-Version: 1.0"]
    + ["a", "b", "7", "Z", "a" * 60, "x" * 300]
)
LONG = ["x" * 300, "a" * 5_000, "7\n" * 20_000, "\u00fc" * 40_000]
RUNTIMES = ["containerd", "containerd", "containerd", "dockerd", "docker", "Containerd"]
BINARY = [b"\xff\xfe", b"\x80\x81\x82", b"\xc3", b"#!/bin/bash\necho \xe4\n", gzip.compress(b"#!/bin/bash\n", mtime=0)]
NAMES = ["a", "team", "search-1", "a.b/c", "node.kubernetes.io/pool", "x" * 63, "9"]
EFFECTS = ["NoSchedule", "NoExecute", "PreferNoSchedule"]


class Specs:
    """Makes specs from a seed. `hostile` lists the fields that got hostile text."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.hostile = []

    def text(self, most=5):
        """Hostile text."""
        return "".join(self.random.choices(PIECES, k=self.random.randint(1, most)))

    def long(self):
        """Text that is longer than most fields accept; some is too long even when it is compressed."""
        if self.random.random() < 0.2:
            return base64.b64encode(self.random.randbytes(30_000)).decode() + "!"
        return self.random.choice(LONG)

    def runtime(self):
        """A container runtime."""
        return self.text(2) if self.random.random() < 0.1 else self.random.choice(RUNTIMES)

    def sometimes(self, field, ordinary):
        """Mostly ordinary text, sometimes hostile text."""
        if self.random.random() < 0.08:
            self.hostile.append(field)
            return self.text(3) if self.random.random() < 0.8 else self.long()
        return self.random.choice(ordinary)

    def arguments(self, family):
        """Kubelet arguments: words with hostile text in quotation marks that the text does not have, on several lines."""
        marks = ('"', "'") if family != "windows" else ('"',)
        words = ["-v=2"]
        for flag in self.random.sample(["--root-dir", "--cert-dir", "--volume-plugin-dir"], self.random.randint(1, 3)):
            text = "/" + self.text(3) if self.random.random() < 0.5 else "/var/lib/kubelet"
            quote = next((mark for mark in marks if mark not in text), "")
            words.append(f"{flag}={quote}{text}{quote}")
        if self.random.random() < 0.2:
            words.append("--eviction-hard=memory.available<5%,nodefs.available<10%")
        separator = self.random.choice([" ", " ", "  ", "\t", "\n", "\r\n", " \\\n"])
        return separator.join(words) + self.random.choice(["", "", "\n", " ", " \\"])

    def stage(self, family, number):
        """A stage whose lines are comments. A NodeConfig has the text in a value."""
        text = self.text(8) if self.random.random() < 0.9 else self.long()
        if family == "windows" and number == 0:
            # A NUL makes the stage binary, which Windows does not take; the other stages show that it is refused.
            text = text.replace("\0", "")
        kinds = ["PreBootstrap", "PostBootstrap"] + ["NodeConfigYaml"] * (family == "amazonlinux2023")
        kind = self.random.choice(kinds)
        if kind == "NodeConfigYaml":
            document = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "metadata": {"annotations": {"a": text}}}
            data = yaml.safe_dump(document, allow_unicode=self.random.random() < 0.5)
        else:
            data = "".join(f"# {line}\n" for line in text.splitlines() or [""])
        if self.random.random() < 0.06 and family != "windows":
            data = base64.b64encode(self.random.choice(BINARY)).decode()
        elif self.random.random() < 0.3:
            data = base64.b64encode(data.encode()).decode()
        name = self.text(2) if self.random.random() < 0.3 else f"stage-{number}"
        return {"name": name, "stage": kind, "data": data}

    def make(self, family):
        """A spec, and the fields with hostile text."""
        self.hostile = ["bootstrapArguments", "userData", "containerRuntime"]
        taints = {
            (self.sometimes("taints", NAMES), self.sometimes("taints", EFFECTS)): self.sometimes("taints", ["", *NAMES[:3]])
            for _ in range(self.random.randint(0, 3))
        }
        labels = {self.sometimes("labels", NAMES): self.sometimes("labels", ["", "b", "A.b_c-1"]) for _ in range(self.random.randint(0, 4))}
        configuration = {
            "labels": labels,
            "taints": [{"key": key, "value": value, "effect": effect} for (key, effect), value in taints.items()],
            "userData": [self.stage(family, number) for number in range(self.random.randint(0, 2))],
        }
        if self.random.random() < 0.6:
            configuration["bootstrapArguments"] = self.arguments(family)
        if self.random.random() < 0.6:
            configuration["bootstrapOptions"] = {"maxPods": self.random.randint(1, 250), "containerRuntime": self.runtime()}
        if self.random.random() < 0.3 and family.startswith("amazonlinux"):
            mount = {"fileSystem": self.sometimes("volumes", ["xfs", "ext4"]), "mount": "/" + self.text(2), "persistance": True}
            device = "/dev/" + self.sometimes("volumes", ["xvdb", "sdc"])
            configuration["volumes"] = [{"name": device, "type": "gp3", "size": 10, "mountOptions": mount}]
            self.hostile.append("volumes")
        return configuration, list(self.hostile)


def spec_of(configuration):
    """A whole spec with this configuration."""
    base = {"clusterName": "demo", "image": "ami-00000001", "instanceType": "m5.large", "subnets": ["subnet-1"], "securityGroups": ["sg-1"]}
    return {"provisioner": "eks", "eks": {"minSize": 1, "maxSize": 2, "configuration": base | configuration}}


def render(given, directory):
    """What the controller makes of specs: user data in base64, or errors."""
    specs, results = directory / "specs.json", directory / "results.json"
    specs.write_text(json.dumps(given))
    environment = os.environ | {"USER_DATA_SPECS": str(specs), "USER_DATA_RESULTS": str(results)}
    test = ["--", "--ignored", "--exact", "plans::user_data::user_data_of_given_specs"]
    subprocess.run(["cargo", "test", "--locked", "--quiet", "--test", "it", *test], cwd=REPOSITORY, env=environment, check=True, capture_output=True)
    return json.loads(results.read_text())


def is_unusable(family, configuration):
    """Whether no node could use the runtime, or a stage of a script or of settings."""
    runtime = configuration.get("bootstrapOptions", {}).get("containerRuntime", "containerd")
    known = ("containerd", "dockerd") if family in ("amazonlinux2023", "bottlerocket") else ("containerd",)
    binary = [base64.b64encode(data).decode() for data in BINARY]
    return (runtime.strip() and runtime not in known) or any(stage["data"] in binary for stage in configuration["userData"])


def plain_text(user_data):
    """User data as text."""
    data = base64.b64decode(user_data)
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """Each spec with its family, its fields with hostile text, and what the controller made of it."""
    specs = Specs(SEED)
    made = [(family, *specs.make(family)) for family in FAMILIES for _ in range(SPECS_OF_FAMILY)]
    results = render([{"spec": spec_of(configuration), "osFamily": family} for family, configuration, _ in made], tmp_path_factory.mktemp("specs"))
    return [(*case, result) for case, result in zip(made, results, strict=True)]


@pytest.mark.private
@pytest.mark.parametrize("family", FAMILIES)
def test_nodes_get_what_hostile_specs_ask_for(cases, family):
    """The node's labels, taints and pod limit are those of the spec, or an error names the field."""
    accepted = 0
    for case_family, configuration, hostile, result in cases:
        if case_family != family:
            continue
        described = json.dumps(configuration)
        assert "errors" in result or not is_unusable(family, configuration), described
        if "errors" in result:
            assert result["errors"] and all(any(field in error for field in hostile) for error in result["errors"]), (result, described)
            continue
        accepted += 1
        try:
            node = parse(plain_text(result["userData"]), family)
        except Exception as error:
            raise AssertionError(f"{error}: {described}\n{plain_text(result['userData'])}") from error
        assert node.cluster == "demo", described
        assert {key: node.labels.get(key) for key in configuration["labels"]} == configuration["labels"], described
        asked = {(taint["key"], taint["value"], taint["effect"]) for taint in configuration["taints"]}
        assert {(taint["key"], taint["value"], taint["effect"]) for taint in node.taints} == asked, described
        assert node.max_pods == configuration.get("bootstrapOptions", {}).get("maxPods"), described
    assert accepted > SPECS_OF_FAMILY / 4
