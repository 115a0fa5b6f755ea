"""The runner plays one scenario on a local cloud and records what happened. It judges nothing."""

import contextlib
import datetime
import json
import math
import pathlib
import signal
import time

import pytest
import requests

from campaign import foreign_resources, hits, perturbations, rollouts, spec_generator, upgrade_manager
from campaign import controller as processes
from campaign import scenario as scenarios
from campaign.clock import Clock
from campaign.user import User, owned
from campaign.writes import WriteInactivity, Writes
from e2e import harness, keiko_groups, keiko_loader, logs

NAMESPACE = "camp"
GROUPS = f"{harness.GROUPS}/namespaces/{NAMESPACE}/instancegroups"
REVISIONS = f"{harness.GROUPS}/namespaces/instance-manager/boundariesrevisions"
RESUME = 10
"""How often a user has a rollout tried again that halted, in seconds."""
SETTLE = 60
"""How long a settle in the middle of a scenario may take, in seconds: faults may be at work."""
LATE = 85
"""Until when the last writes of a run may come that nothing waits for, in seconds."""
IDLE = 4
"""How long a controller that has something to do may write nothing, in seconds: more than its poll interval."""
START = 40
"""How long a controller may take until it leads."""
POLL = 0.1


class Runner:
    """A private cloud with a controller, for one run of a scenario."""

    def __init__(self, pool, scenario, settings, directory):
        self.scenario, self.settings, self.directory = scenario, settings, pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._pool, self._undo, self._awaited, self.journal = pool, [], [], []
        self.present, self.bad, self.controllers = {}, set(), []
        self.helped = {}
        """Groups whose node groups EKS may have given up, and how often a user had them tried again."""
        self.autoscaled = set()
        """Groups beside which a Cluster Autoscaler runs."""
        self._upgrade_manager, self._resumed, self._helped_at = None, 0, 0
        self.config = scenario["config"]
        self.registry = perturbations.load()
        self.cloud = pool.take("--authentication-mode", scenario["mode"])
        self._writes = Writes(self.cloud, settings["user"])
        self.proxy, self.clock = hits.CountingProxy(self.cloud), Clock(self.directory)
        self.tenant = None
        self._faults, self._hits, self._perturbed = [], {}, []
        """Ids of all faults of AWS calls, how many calls each has hit, and of each perturbation its last note and its faults."""

    # --- what a perturbation uses -----------------------------------------------------------------

    def path(self, name):
        """The path of an InstanceGroup of the scenario."""
        return f"{GROUPS}/{name}"

    def revisions(self):
        """The stored revisions of the ConfigMap, oldest first; none of a controller without rollouts."""
        return sorted((self.cloud.get(REVISIONS) or {"items": []})["items"], key=lambda revision: revision["spec"]["number"])

    def newest_revision(self):
        """The newest stored revision, or None."""
        return (self.revisions() or [None])[-1]

    @staticmethod
    def revision_path(name):
        """The path of a stored revision."""
        return f"{REVISIONS}/{name}"

    def start(self, beside=False):
        """Starts a controller, and waits until it leads; with `beside` another one runs already, and nothing is awaited."""
        number = len(self.controllers) + 1
        made = processes.Controller(self.settings, self.cloud, self.proxy.kubeconfig, number, self.directory / f"controller-{number}.log", self.clock)
        self.controllers.append(made.start())
        if not beside:
            self.wait_until(lambda: self.leader() is not None, START)
        return made

    def kill(self, graceful=False):
        """Ends every controller. Its lease goes with it: waiting for its end would test nothing but the election."""
        for each in self.controllers:
            each.expected = False
            if each.running:
                each.signal(signal.SIGCONT)
                each.end(graceful)
        self._free_lease()

    def _free_lease(self):
        if self.settings["lease"]:
            self.cloud.api("DELETE", self.settings["lease"])

    def configure(self, data):
        """Writes the controller's ConfigMap, which `config` has from then on."""
        self.config = data
        if not self.cloud.api("PUT", harness.CONFIG, _config_map(data)).ok:
            self.cloud.create(harness.CONFIG.rpartition("/")[0], _config_map(data))

    def pause(self):
        """Stops the controller that was started last, as a suspended machine would; returns it."""
        self._restart_ended()
        chosen = next(c for c in reversed(self.controllers) if c.running)
        chosen.signal(signal.SIGSTOP)
        self.undo(lambda: self.resume(chosen))
        return chosen

    def resume(self, paused):
        """Resumes a paused controller."""
        paused.signal(signal.SIGCONT)

    def leader(self):
        """Who holds the lease, or None; of controllers without one, the one that runs."""
        if not self.settings["lease"]:
            return next((each.key for each in self.controllers if each.running), None)
        return ((self.cloud.get(self.settings["lease"]) or {}).get("spec") or {}).get("holderIdentity") or None

    def fault(self, lasting=None, **fields):
        """A fault of the controllers' AWS calls, see localcloud/aws/control.py; gone after so many seconds, or before the final settle."""
        number = self.cloud.control("POST", "faults", **{"caller": "controller", **fields})["id"]
        self._faults.append(number)
        self.undo(lambda: self.end_fault(number), after=lasting)
        return number

    def _count_hits(self):
        """Counts the calls that each fault has hit so far."""
        self._hits |= {fault["id"]: fault["hits"] for fault in self.cloud.control("GET", "faults")}

    def clear_faults(self):
        """Takes every fault of AWS calls away, and lets held calls go without an answer."""
        self._count_hits()
        self.cloud.control("DELETE", "faults")
        self.release(lose=True)

    def end_fault(self, number):
        """Ends one fault of AWS calls, whose hits are kept. A call that it holds goes without an answer."""
        self._count_hits()
        self.cloud.control("DELETE", "faults", id=number)
        self.release(lose=True, fault=number)

    def held_calls(self, fault):
        """Numbers of the AWS calls that a fault holds."""
        return [int(number) for number, call in self.cloud.control("GET", "held").items() if call["fault"] == fault]

    def release(self, lose, fault=None):
        """Lets the AWS calls go that a fault holds, or all held ones, with or without their answers."""
        for which in [{}] if fault is None else [{"id": number} for number in self.held_calls(fault)]:
            self.cloud.control("POST", "release", lose=lose, **which)

    def once(self, predicate, function):
        """Has `function` called as soon as `predicate` is true, whenever the runner waits; no longer after the last event."""
        self._awaited.append((predicate, function))

    def undo(self, function, after=None, group=None):
        """Has `function` called once: after so many seconds, at the latest before the final settle, or before a user creates `group` again."""
        self._undo.append((time.monotonic() + after if after is not None else None, function, group))

    def wait_until(self, predicate, seconds):
        """Whether it came true in that time. Meanwhile faults end when their time is over, and ended controllers start again."""
        deadline = time.monotonic() + seconds
        while not (found := predicate()):
            if time.monotonic() > deadline:
                return False
            self._undo_due()
            self._call_awaited()
            self._restart_ended()
            time.sleep(POLL)
        return found

    def wait(self, seconds):
        """Lets time pass."""
        self.wait_until(lambda: False, seconds)

    def _undo_due(self):
        now = time.monotonic()
        due = [entry for entry in self._undo if entry[0] is not None and entry[0] <= now]
        self._undo = [entry for entry in self._undo if entry not in due]
        for _, function, _ in due:
            self._undo_or_retry(function)

    def _call_awaited(self):
        for entry in list(self._awaited):
            # A call waits, too, and may have made another one.
            if entry in self._awaited and entry[0]():
                self._awaited.remove(entry)
                entry[1]()

    def _undo_of(self, group):
        """Ends what a user did to a group that is gone: a resource without its tags would be another owner's for the next one.

        What its deletion kept for want of tags, and the next one does not use, the user deletes, as the controller asked.
        """
        kept = any(not owned(thing["tags"]) for kind in ("roles", "profiles") for _, thing in User(self, group).each(kind))
        due = [entry for entry in self._undo if entry[2] == group]
        self._undo = [entry for entry in self._undo if entry not in due]
        for _, function, _ in due:
            self._undo_or_retry(function)
        if kept and not scenarios.has_own_role(self.present[group]["spec"]):
            User(self, group).delete_roles_and_profiles()

    def _undo_all(self):
        deadline = time.monotonic() + START
        while self._undo:
            self._undo_or_retry(self._undo.pop()[1], deadline)

    def _undo_or_retry(self, function, deadline=math.inf):
        """Undoes a fault. While the API server is away, a user tries again, and other faults end first."""
        try:
            function()
        except requests.ConnectionError:
            if time.monotonic() > deadline:
                raise
            self._undo.insert(0, (time.monotonic() + 1, function, None))
            time.sleep(POLL)

    def _restart_ended(self):
        """Starts a controller again that ended by itself, for example without its lease, as a Deployment does."""
        ended = [each for each in self.controllers if each.expected and not each.running]
        for each in ended:
            each.expected = False
            self.note("ended by itself", controller=each.key, code=each.process.returncode)
        if ended and not any(each.expected for each in self.controllers):
            # While the API server is away, the next one waits until the lease has expired.
            with contextlib.suppress(requests.ConnectionError):
                self._free_lease()
            self.start(beside=True)

    def note(self, what, **more):
        """A line of the journal: what the runner did, and when."""
        self.journal.append({"time": _now(), "what": what, **more})

    # --- playing ----------------------------------------------------------------------------------

    def play(self):
        """Plays the scenario; returns the record of it, for the oracles."""
        try:
            self._set_up()
            for event in self.scenario["events"]:
                self._wait_for(event["trigger"])
                self._perform(event)
            return self._end()
        finally:
            self._tear_down()

    def _set_up(self):
        self.configure(self.config)
        # The last run of this control plane had a namespace of the same name.
        self.wait_until(lambda: self.cloud.get(f"/api/v1/namespaces/{NAMESPACE}") is None, START)
        self.tenant = harness.Tenant(self.cloud, None, namespace=NAMESPACE)
        self._grant()
        self._make_what_specs_name()
        self.foreign_resources = foreign_resources.plant(self.cloud, self.scenario["mode"])
        self._load_taken_over()
        self.note("begin", foreign_resources=foreign_resources.snapshot(self.cloud.snapshot()))
        self.start()
        for name, group in self.scenario["groups"].items():
            self._apply(name, group)
        self.settle(self.settings["patience"])
        self.note("made")

    def _grant(self):
        """Binds the controller's user to the role that its settings name, beside the permissions that are shipped for this one."""
        if role := self.settings.get("cluster role"):
            group = "rbac.authorization.k8s.io"
            subjects = [{"kind": "User", "name": self.settings["user"], "apiGroup": group}]
            body = {"metadata": {"name": "campaign"}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role}, "subjects": subjects}
            answer = self.cloud.api("POST", f"/apis/{group}/v1/clusterrolebindings", body)
            assert answer.ok or answer.status_code == 409, answer.text

    def _make_what_specs_name(self):
        """Roles, a security group, a key pair, and the controller of the crd strategy, which specs of the scenario name."""
        text = json.dumps([scenarios.specs(self.scenario, name) for name in scenarios.names(self.scenario)])
        for name in spec_generator.roles_of_people(text):
            self.cloud.make_role(name)
        for arn in spec_generator.POD_ROLES:
            self._make_pod_role(arn.rpartition("/")[2])
        ec2, more = self.cloud.boto("ec2"), spec_generator.SECURITY_GROUPS[1]
        ec2.create_key_pair(KeyName=spec_generator.KEY_PAIR)
        tags = [{"ResourceType": "security-group", "Tags": [{"Key": "Name", "Value": more}]}]
        ec2.create_security_group(GroupName=more, Description="nodes", VpcId=self.cloud["vpc"], TagSpecifications=tags)
        if '"crd"' in text:
            self._upgrade_manager = upgrade_manager.UpgradeManager(self.cloud, NAMESPACE)

    def _make_pod_role(self, name):
        """A role that the pods of a Fargate profile start with."""
        iam, policy = self.cloud.boto("iam"), "arn:aws:iam::aws:policy/AmazonEKSFargatePodExecutionRolePolicy"
        trust = {"Effect": "Allow", "Principal": {"Service": "eks-fargate-pods.amazonaws.com"}, "Action": "sts:AssumeRole"}
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}))
        iam.attach_role_policy(RoleName=name, PolicyArn=policy)

    def _load_taken_over(self):
        """Groups as keikoproj/instance-manager leaves them, with their nodes."""
        site = keiko_loader.Site.of(self.cloud, NAMESPACE)
        states = {name: keiko_groups.STATES[state](site)[0] for name, state in self.scenario.get("taken over", {}).items()}
        for name, state in states.items():
            body = state.data["instanceGroup"]
            # The admin's default is another one.
            body["metadata"]["annotations"] = {spec_generator.PREFIX + "os-family": "amazonlinux2023" if name == "al2023" else "amazonlinux2"}
            self.present[name] = {"annotations": body["metadata"]["annotations"], "spec": body["spec"]}
            self.note("apply", group=name, to=self.present[name], bad=False)
        if states:
            keiko_loader.load_all(self.cloud, states)
        for name in states:
            self._own(name)

    def _own(self, name):
        """Makes everything in a group that was loaded its team's: fields that are applied no longer are gone then."""
        self.tenant.apply(self._document(name, self.present[name]))
        found = self.cloud.get(self.path(name))
        found["metadata"]["managedFields"] = [each for each in found["metadata"]["managedFields"] if each["manager"] == "kubectl"]
        answer = self.cloud.api("PUT", self.path(name), found)
        assert answer.ok, answer.text

    @staticmethod
    def _document(name, group):
        metadata = {"name": name, "annotations": group["annotations"]}
        return {"apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup", "metadata": metadata, "spec": group["spec"]}

    def _apply(self, name, group, bad=False):
        self.present[name] = group
        self.bad.add(name) if bad else self.bad.discard(name)
        self.note("apply", group=name, to=group, bad=bad)
        # An object that is being deleted takes changes, and is gone with them. Users wait, as `kubectl delete` does, and put
        # right what holds it.
        if not self.wait_until(lambda: not self.is_being_deleted(name), self.settings["patience"] / 3):
            self._undo_all()
            self.wait_until(lambda: not self.is_being_deleted(name), self.settings["patience"])
        if self.cloud.get(self.path(name)) is None:
            self._undo_of(name)
        if not bad:
            self._workload(name, group)
        try:
            self.tenant.apply(self._document(name, group))
        except AssertionError as refused:
            assert bad, refused
            self.note("refused", group=name, message=str(refused))

    def is_being_deleted(self, name):
        """Whether a group is there and has a deletion timestamp."""
        return "deletionTimestamp" in (self.cloud.get(self.path(name)) or {"metadata": {}})["metadata"]

    def _workload(self, name, group):
        """Pods on the group's nodes, of which a budget lets one go at a time: two, if there are nodes for two."""
        section = group["spec"][group["spec"]["provisioner"]]
        if group["spec"]["provisioner"] == "eks-fargate":
            return
        # Two pods on a single node could never leave it: the first would wait for the node's replacement, and the second for the first.
        replicas = min(section["minSize"], 2) or 1
        # A pod that tolerates a cordon comes back to the node that it was evicted from.
        comes_back = scenarios.is_wide(self.scenario) and scenarios.names(self.scenario).index(name) % 3 == 0
        keys = [taint["key"] for taint in spec_generator.TAINTS] + (["node.kubernetes.io/unschedulable"] if comes_back else [])
        taints = [{"key": key, "operator": "Exists"} for key in keys]
        # Longer than the controller's poll interval: it sees pods that terminate.
        stop = {"local.instance-manager/stop-after": "2500ms"} if self._stops_slowly(name) else {}
        self.tenant.deployment(f"on-{name}", replicas, {"pool": name}, {"maxUnavailable": 1}, annotations=stop, tolerations=taints)

    def _stops_slowly(self, name):
        """Whether the pods of a group take their time to stop: those of every other group."""
        return scenarios.names(self.scenario).index(name) % 2 == 0

    def _move_workload(self, name):
        """The pods of a group that is deleted go somewhere else, soon: nothing can take them, and their budget holds the drain."""
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/on-{name}"
        self.undo(lambda: self.cloud.api("DELETE", path, {"propagationPolicy": "Background"}), after=2)

    def _wait_for(self, trigger):
        if "writes" in trigger:
            self._wait_for_writes(trigger["writes"])
        else:
            self.wait(trigger["after"])

    def _late_writes_end(self):
        """Waits until nothing has been written for longer than a resync; whether it came to that.

        A join entry that another one took the place of goes a while later, and AWS may be late to say why an instance left.
        """
        resync, inactivity = self.settings["resync"], WriteInactivity(self._writes)
        # The settle before has seen the first seconds of it.
        needed = 2 * resync + 10 if scenarios.is_wide(self.scenario) else max(0, resync - self.settings["quiet"])
        return bool(self.wait_until(lambda: inactivity.seconds() > needed, LATE + needed))

    def _wait_for_writes(self, count):
        """Waits for the controller's next writes, or until it writes nothing any more."""
        target, inactivity = self._writes.count() + count, WriteInactivity(self._writes)
        self.wait_until(lambda: inactivity.seconds() > IDLE or self._writes.count() >= target, 10)

    def _perform(self, event):
        kind = event["kind"]
        if kind == "transition":
            self._apply(event["group"], event["to"], event.get("bad", False))
        elif kind == "config":
            self.note("config", config=event["config"])
            self.configure(event["config"])
        elif kind == "mode":
            self.note("mode", mode=event["mode"])
            self.cloud.boto("eks").update_cluster_config(name="demo", accessConfig={"authenticationMode": event["mode"]})
        elif kind == "delete":
            self.note("delete", group=event["group"])
            self.present.pop(event["group"], None)
            self.cloud.api("DELETE", self.path(event["group"]))
            self._move_workload(event["group"])
        elif kind == "wait":
            self.note("waited")
        elif kind == "settle":
            self.note("settle", done=self.settle(SETTLE))
        else:
            self.note("perturbation", name=event["name"], arguments=event["arguments"])
            of_aws, of_api = len(self._faults), len(self.proxy.made)
            self.registry[event["name"]](self, **event["arguments"])
            self.note("perturbed", name=event["name"])
            self._perturbed.append((self.journal[-1], self._faults[of_aws:], self.proxy.made[of_api:]))

    def settle(self, patience, resume=False):
        """Waits until every group is as it should be and nothing has been written for a while; whether it came to that.

        With `resume`, a user has a rollout tried again that halts, and what EKS gave up.
        """
        inactivity = WriteInactivity(self._writes)

        def is_settled():
            if inactivity.seconds() < self.settings["quiet"]:
                return False
            if resume:
                self._resume_rollout()
                self._help_node_groups()
            return not self.unsettled()

        return bool(self.wait_until(is_settled, patience))

    def _resume_rollout(self):
        """What `instance-manager rollout resume` does, if the rollout halted, was aborted, or failed on groups."""
        found = self.newest_revision() if rollouts.has_rollout(self.scenario) else None
        status = (found or {}).get("status", {})
        is_halted = status.get("phase") in ("Halted", "Returning", "Aborted") or (status.get("groups") or {}).get("failed")
        if not is_halted or time.monotonic() < self._resumed + RESUME:
            return
        self._resumed = time.monotonic()
        name, retries = found["metadata"]["name"], found["spec"].get("orders", {}).get("retries") or 0
        self.note("resumed", revision=name, phase=status["phase"])
        orders = {"paused": False, "aborted": False, "retries": retries + 1}
        User(self, None).patch(self.revision_path(name), {"spec": {"orders": orders}})

    def _help_node_groups(self):
        """What `instance-manager reconcile` does, for node groups that EKS gave up. If that does not help, pods run on one that failed."""
        names = [name for name in self.helped.keys() & self.unsettled().keys() if name in self.present]
        if not names or time.monotonic() < self._helped_at + RESUME:
            return
        self._helped_at = time.monotonic()
        for name in names:
            user = User(self, name)
            user.patch(self.path(name), {"metadata": {"annotations": {spec_generator.PREFIX + "reconcile-now": _now()}}})
            self.helped[name] += 1
            for group, found in user.each("nodegroups"):
                if found["status"] == "CREATE_FAILED" and self.helped[name] > 2:
                    user.do("eks", "delete_nodegroup", clusterName="demo", nodegroupName=group)
            self.note("helped", group=name)

    def _open_rollout(self):
        """What is open of the newest rollout, or None."""
        found = self.newest_revision() if rollouts.has_rollout(self.scenario) else None
        status = (found or {}).get("status", {})
        is_done = found is None or (status.get("phase") == "Complete" and not (status.get("groups") or {}).get("failed"))
        return None if is_done else {"state": f"{found['metadata']['name']} is {status.get('phase')}", "conditions": status}

    def unsettled(self):
        """Groups that are not done: {name: what there is}."""
        found = {}
        items = {item["metadata"]["name"]: item for item in self.cloud.get(GROUPS)["items"]}
        for name in {*self.present, *items}:
            status = items.get(name, {}).get("status", {})
            if name not in self.present:
                found[name] = {"state": "being deleted", "conditions": status.get("conditions")}
            elif name not in self.bad and (status.get("currentState") != "Ready" or not _is_seen(items[name])):
                found[name] = {"state": status.get("currentState"), "conditions": status.get("conditions")}
        if rollout := self._open_rollout():
            found["the rollout"] = rollout
        return found

    def _end(self):
        """Takes every fault away, waits, and takes pictures: of the end, of a quiet while, and of what deletions leave."""
        self._awaited.clear()
        self._undo_all()
        self.clear_faults()
        self.proxy.clear()
        self._restart_ended()
        if not any(c.running for c in self.controllers):
            self.start()
        self._note_hits()
        self.note("final")
        self.settle(self._patience(), resume=True)
        if self._fill_empty_groups():
            self.wait(self.settings["resync"])
            self.settle(self._patience(), resume=True)
        self.note("settled")
        ended = self._late_writes_end()
        unsettled = self.unsettled()
        end = self._picture()
        self.note("end", **{"unsettled": unsettled, "late writes ended": ended})
        # A write with each resync is seen only while one passes.
        self.wait(max(self.settings["quiet"], self.settings["resync"]))
        self.note("quiet")
        left = self._delete_all()
        world = {"subnets": self.cloud["subnets"], "security_group": self.cloud["security_group"], "foreign_resources": self.foreign_resources}
        run = {"settings": self.settings, "scenario": self.scenario, "journal": self.journal, "end": end, "left": left}
        return {**run, "world": world, "aws": self._writes.aws(), "audit": self._writes.audit()}

    def _note_hits(self):
        """Adds to the notes of perturbations that set faults whether a request met one."""
        for note, of_aws, of_api in self._perturbed:
            if of_aws or of_api:
                note["met"] = any(self._hits.get(number) for number in of_aws) or any(map(hits.is_met, of_api))

    def _patience(self):
        """How long the end of a run is awaited, in seconds: the waves of a rollout come one after the other."""
        return self.settings["patience"] * (3 if rollouts.has_rollout(self.scenario) else 1)

    def _fill_empty_groups(self):
        """Asks for a node in each group that may be empty and is, as an autoscaler does: there is something to compare then."""
        found = {name: User(self, name).scaling_group() for name in self.present}
        empty = {name: group for name, group in found.items() if group and group["DesiredCapacity"] == 0 < group["MaxSize"]}
        for name, group in empty.items():
            User(self, name).do("autoscaling", "set_desired_capacity", AutoScalingGroupName=group["AutoScalingGroupName"], DesiredCapacity=1)
            self.note("filled", group=name)
        return bool(empty)

    def _delete_all(self):
        """Deletes every group; the picture of what is left."""
        for kind in ("deployments", "poddisruptionbudgets"):
            group = "apps" if kind == "deployments" else "policy"
            self.cloud.api("DELETE", f"/apis/{group}/v1/namespaces/{NAMESPACE}/{kind}", {"propagationPolicy": "Background"})
        for name in list(self.present):
            self.note("delete", group=name)
            self.present.pop(name)
            self.cloud.api("DELETE", self.path(name))
        self.wait_until(lambda: not self.unsettled(), self.settings["patience"])
        self.note("left", unsettled=self.unsettled())
        return self._picture()

    def _picture(self):
        """The whole account, and what there is in Kubernetes."""
        pods = self.cloud.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        groups = self.cloud.get(GROUPS)["items"]
        nodes = self.cloud.get("/api/v1/nodes")["items"]
        kubernetes = {"groups": groups, "nodes": nodes, "pods": pods, "map_roles": self.cloud.map_roles()}
        return {"aws": self.cloud.snapshot(), "kubernetes": kubernetes}

    def _tear_down(self):
        for each in self.controllers:
            each.signal(signal.SIGCONT)
            if each.running:
                each.end()
        with contextlib.suppress(Exception):
            self.clear_faults()
        self.proxy.stop()
        if self._upgrade_manager:
            with contextlib.suppress(pytest.fail.Exception):
                self._upgrade_manager.stop()
        try:
            self._pool.give_back(self.cloud)
        except AssertionError:
            pass
        except requests.RequestException:
            self.cloud.control_plane.stop()
        logs.log.cache_clear()


def _now():
    """The present time as the logs write it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")[:26]


def _is_seen(group):
    """Whether the controller has looked at a group's last spec, if it says so."""
    generation = group["metadata"]["generation"]
    # The definition's default is -1: a controller that knows no such field leaves it.
    return group.get("status", {}).get("observedGeneration", -1) in (-1, generation)


def _config_map(data):
    metadata = {"name": "instance-manager", "namespace": "instance-manager"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
