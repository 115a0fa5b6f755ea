"""A simulated upgrade-manager: it replaces the nodes of a scaling group for each RollingUpgrade, one at a time."""

import contextlib
import threading
import time

from botocore.exceptions import BotoCoreError, ClientError

from e2e import harness, strategies

ENDED = ("completed", "error")
POLL = 0.3
PATIENCE = 45
"""Seconds without a node that comes back, after which a RollingUpgrade fails instead of waiting forever."""
DEFINITION = f"{strategies.ROLLING_UPGRADE[2]}.{strategies.ROLLING_UPGRADE[0]}"
PATH = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{DEFINITION}"
TEMPLATE = strategies.ROLLING_UPGRADE_TEMPLATE + "  forceRefresh: true\n"
"""Also replaces nodes of the wanted version: those in subnets that the group has lost."""


class UpgradeManager:
    """Works on a thread of its own from the start until `stop`, which also takes the definition away."""

    def __init__(self, cloud, namespace):
        self._cloud = cloud
        self._scaling = cloud.boto("autoscaling", key="upgrade-manager")
        kind, group = strategies.ROLLING_UPGRADE[2], strategies.ROLLING_UPGRADE[0]
        self._collection = f"/apis/{group}/{strategies.VERSION}/namespaces/{namespace}/{kind}"
        self._todo, self._progress, self._stopped = {}, {}, threading.Event()
        cloud.create(PATH.rpartition("/")[0], strategies.rolling_upgrade_definition())
        harness.support.eventually(lambda: cloud.api("GET", self._collection).ok, harness.WAIT, f"{DEFINITION} to be served")
        self._thread = threading.Thread(target=self._work, name="upgrade-manager", daemon=True)
        self._thread.start()

    def stop(self):
        """Ends it, and takes its definition with all resources away."""
        self._stopped.set()
        self._thread.join()
        self._cloud.api("DELETE", PATH)
        harness.support.eventually(lambda: self._cloud.get(PATH) is None, harness.WAIT, f"the end of {DEFINITION}")

    def _work(self):
        while not self._stopped.wait(POLL):
            # The API server and AWS may be out of service: it looks again.
            with contextlib.suppress(OSError, BotoCoreError, ClientError, AssertionError):
                for item in (self._cloud.get(self._collection) or {"items": []})["items"]:
                    if (item.get("status") or {}).get("currentStatus") not in ENDED:
                        self._go_on(item)

    def _go_on(self, item):
        """Takes the next node of a RollingUpgrade, if those that it took before are back."""
        found = self._scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[item["spec"]["asgName"]])["AutoScalingGroups"]
        if not found:
            self._report(item, "error")
            return
        (group,) = found
        present = {i["InstanceId"]: i for i in group["Instances"] if not i["LifecycleState"].startswith("Terminating")}
        left = self._todo.setdefault(item["metadata"]["uid"], sorted(present))
        left[:] = [instance for instance in left if instance in present]
        ready = self._ready() & {identifier for identifier, i in present.items() if i["LifecycleState"] == "InService"}
        broken = [instance for instance in left if instance not in ready]
        complete = sum(int(present[i].get("WeightedCapacity", 1)) for i in ready) >= group["DesiredCapacity"]
        last = self._progress.setdefault(item["metadata"]["uid"], time.monotonic())
        if broken or (left and complete):
            self._progress[item["metadata"]["uid"]] = time.monotonic()
            self._report(item, "running")
            victim = (broken or left)[0]
            # AWS refuses it while the instance is being launched.
            self._scaling.terminate_instance_in_auto_scaling_group(InstanceId=victim, ShouldDecrementDesiredCapacity=False)
            left.remove(victim)
        elif complete:
            self._report(item, "completed")
        elif time.monotonic() - last > PATIENCE:
            self._report(item, "error")

    def _ready(self):
        """Ids of instances with a Ready node."""
        nodes = self._cloud.get("/api/v1/nodes")["items"]
        return {node["spec"].get("providerID", "").rpartition("/")[2] for node in nodes if harness.node_ready(node)}

    def _report(self, item, word):
        if (item.get("status") or {}).get("currentStatus") != word:
            path = f"{self._collection}/{item['metadata']['name']}"
            self._cloud.api("PATCH", f"{path}/status", {"status": {"currentStatus": word}}, content_type="application/merge-patch+json")
