"""One IAM for the simulated AWS of several regions.

IAM belongs to no region (IAM User Guide, "What is IAM?": it is a global service). The process of one region keeps it. That of
another region (`--iam`) forwards the calls of IAM there, and reads from it which roles and instance profiles exist.
"""

from __future__ import annotations

import base64
import pickle
from datetime import UTC, datetime
from typing import Any

import requests

GLOBAL_SERVICES = ("iam", "sts")
TIMEOUT = 10.0
HOP_HEADERS = ("connection", "content-length", "date", "server", "transfer-encoding")


class SharedIam:
    """The IAM that the process of another region keeps."""

    def __init__(self, simulator: Any, home: str) -> None:
        self.simulator = simulator
        self.home = home
        self.session = requests.Session()

    def forward(self, environ: dict[str, Any], body: bytes) -> tuple[str, list[tuple[str, str]], bytes]:
        """Perform a call where IAM is."""
        headers = {key[5:].replace("_", "-").title(): value for key, value in environ.items() if key.startswith("HTTP_")}
        headers.pop("Host", None)
        headers |= {"Content-Type": environ.get("CONTENT_TYPE", "")}
        url = self.home + environ.get("PATH_INFO", "/")
        answer = self.session.request(environ["REQUEST_METHOD"], url, data=body, headers=headers, timeout=TIMEOUT)
        kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in HOP_HEADERS]
        return f"{answer.status_code} {answer.reason}", kept, answer.content

    def refresh(self) -> None:
        """Copy the roles and instance profiles, which the services of this region look up."""
        answer = self.session.get(f"{self.home}/_local/iam", timeout=TIMEOUT)
        answer.raise_for_status()
        iam, state = self.simulator.iam, pickle.loads(base64.b64decode(answer.json()["state"]))
        iam.roles, iam.instance_profiles = state["roles"], state["profiles"]
        self.simulator.changed_profiles = state["changed"]

    def report_use(self, role: str, region: str) -> None:
        """Report the use of a role in this region."""
        self.session.post(f"{self.home}/_local/role-used", json={"role": role, "region": region}, timeout=TIMEOUT).raise_for_status()


def export_state(simulator: Any) -> dict[str, str]:
    """The roles and instance profiles, for another region."""
    with simulator.lock:
        state = {"roles": simulator.iam.roles, "profiles": simulator.iam.instance_profiles, "changed": simulator.changed_profiles}
        return {"state": base64.b64encode(pickle.dumps(state)).decode()}


def record_use(simulator: Any, name: str, region: str) -> None:
    """Set the role's last use (IAM API Reference, RoleLastUsed). AWS reports it with a delay, which is not simulated."""
    with simulator.lock:
        role = next((role for role in simulator.iam.roles.values() if role.name == name), None)
        if role:
            role.last_used, role.last_used_region = datetime.now(UTC).replace(tzinfo=None), region


def on_instance_running(simulator: Any, role: Any) -> None:
    """The software on an instance calls AWS with the credentials of the instance's role."""
    if role is None:
        return
    if simulator.shared_iam:
        simulator.shared_iam.report_use(role.name, simulator.settings.region)
    else:
        record_use(simulator, role.name, simulator.settings.region)
