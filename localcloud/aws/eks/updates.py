"""Updates of the cluster and of managed node groups.

Follows the Amazon EKS API Reference: Update, DescribeUpdate, ListUpdates.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from moto.core.responses import ActionResult

from localcloud.aws.eks.operations import add_operations, get_cluster, page, request_params
from localcloud.aws.errors import AwsError


@dataclass
class Update:
    """One update. `nodegroup` is empty for an update of the cluster itself."""

    type: str
    params: dict[str, Any]
    request: dict[str, Any]
    nodegroup: str = ""
    status: str = "InProgress"
    errors: list[dict[str, Any]] = field(default_factory=list)
    id: str = field(default_factory=lambda: str(uuid4()))
    created: datetime = field(default_factory=lambda: datetime.now(UTC))

    def describe(self) -> dict[str, Any]:
        """The update as DescribeUpdate returns it."""
        params = [{"type": key, "value": text(value)} for key, value in self.params.items()]
        return {
            "id": self.id,
            "status": self.status,
            "type": self.type,
            "params": params,
            "createdAt": self.created,
            "errors": self.errors,
        }


def text(value: Any) -> str:
    """A parameter's value as text."""
    return value if isinstance(value, str) else json.dumps(value)


class Updates:
    """All updates of the cluster and its node groups."""

    def __init__(self, simulator: Any) -> None:
        self.simulator = simulator
        self.all: list[Update] = []

    def begin(self, type_: str, params: dict[str, Any], request: dict[str, Any], nodegroup: str = "") -> Update:
        """Start an update.

        `params` are the returned UpdateParams. `request` is the whole call, for its client token.
        """
        update = Update(type_, params, request, nodegroup)
        self.all.append(update)
        self.log_state(update)
        return update

    def end(self, update: Update, *errors: dict[str, Any], status: str | None = None) -> None:
        """Finish an update: Failed if there are errors (ErrorDetail), otherwise Successful, unless `status` is given."""
        update.errors = list(errors)
        update.status = status or ("Failed" if errors else "Successful")
        self.log_state(update)

    def running(self, nodegroup: str = "") -> Update | None:
        """The update in progress of a node group, or of the cluster itself."""
        return next((u for u in self.all if u.status == "InProgress" and u.nodegroup == nodegroup), None)

    def log_state(self, update: Update) -> None:
        """Write an update's state to the event log."""
        more = {"nodegroup": update.nodegroup} if update.nodegroup else {}
        self.simulator.log.state("update", update.id, type=update.type, state=update.status, errors=update.errors or None, **more)


def install(simulator: Any) -> None:
    """Add the operations to moto, which lacks them."""

    class Operations:
        """Methods for moto's response class. `self` is an instance of that class."""

        def describe_update(self) -> ActionResult:
            params = request_params(self)
            get_cluster(simulator, params["name"])
            found = [u for u in simulator.updates.all if u.id == params["updateId"] and u.nodegroup == params.get("nodegroupName", "")]
            if not found:
                raise AwsError("ResourceNotFoundException", f"No update found for ID: {params['updateId']}")
            return ActionResult({"update": found[0].describe()})

        def list_updates(self) -> ActionResult:
            params = request_params(self)
            get_cluster(simulator, params["name"])
            ids_for_target = [u.id for u in reversed(simulator.updates.all) if u.nodegroup == params.get("nodegroupName", "")]
            ids, token = page(ids_for_target, params)
            return ActionResult({"updateIds": ids, "nextToken": token})

    add_operations(Operations)
