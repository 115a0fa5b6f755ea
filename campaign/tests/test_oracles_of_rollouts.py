"""The oracles of rollouts find what is planted for them, and nothing in a rollout where all is well."""

from campaign import controller, foreign_resources, oracles, rollouts

USER = controller.settings()["user"]
OLD, NEW = "ami-02100000000000001", "ami-02100000000000002"
ADMIN = {"image": OLD, "instance_type": "m5.large", "owner": "platform", "pool": "shared"}
POLICY = {"waves": [{"name": "canary", "groups": f"{rollouts.WAVE} = canary", "soak": "6s"}, {"name": "rest"}], "budget": {"nodes": 1}}


class Story:
    """A rollout that is written line by line: a canary and another group with two nodes each, and an image that changes."""

    def __init__(self):
        self.seconds, self.aws, self.audit, self.journal = 0, [], [], []
        self.note("begin", foreign_resources={})
        self.groups = {name: self.group(name) for name in ("alpha", "bravo")}
        self.wait(60)
        self.note("config", config=rollouts.config_of({**ADMIN, "image": NEW}, POLICY))

    def moment(self):
        """The present time, which advances."""
        self.seconds += 0.001
        return f"2026-01-01T00:{int(self.seconds) // 60:02}:{self.seconds % 60:09.6f}"[:26]

    def wait(self, seconds):
        self.seconds += seconds

    def note(self, what, **more):
        self.journal.append({"time": self.moment(), "what": what, **more})

    def call(self, operation, **params):
        self.aws.append({"seq": 1, "time": self.moment(), "kind": "call", "service": "x", "operation": operation, "params": params, "status": 200, "caller": {"key": "controller"}})

    def state(self, **fields):
        self.aws.append({"seq": 1, "time": self.moment(), "kind": "state", **fields})

    def group(self, name):
        """A group with two nodes of the old image."""
        spec = {"provisioner": "eks", "strategy": {"rollingUpdate": {"maxUnavailable": 1}}, "eks": {"configuration": {}}}
        found = {"annotations": {rollouts.WAVE: "canary"} if name == "alpha" else {}, "spec": spec}
        self.note("apply", group=name, to=found, bad=False)
        self.call("CreateLaunchTemplate", LaunchTemplateName=f"demo-camp-{name}", LaunchTemplateData={"ImageId": OLD})
        for number in (1, 2):
            self.launch(name, number, "1")
        return found

    def launch(self, name, number, version):
        """An instance that becomes a node."""
        about = {"group": f"demo-camp-{name}"}
        self.state(object="instance", id=f"i-{name}-{number}", state="InService", desired=2, version=version, template=f"demo-camp-{name}", **about)
        self.state(object="node", id=f"node-{name}-{number}", instance=f"i-{name}-{number}", state="ready", **about)

    def begin(self, name):
        """The group takes the new image."""
        self.call("CreateLaunchTemplateVersion", LaunchTemplateName=f"demo-camp-{name}", LaunchTemplateData={"ImageId": NEW})

    def take(self, name, number):
        """The controller takes a node."""
        self.state(object="instance", id=f"i-{name}-{number}", group=f"demo-camp-{name}", state="Terminating", desired=2)
        self.call("TerminateInstanceInAutoScalingGroup", InstanceId=f"i-{name}-{number}", ShouldDecrementDesiredCapacity="false")

    def replace(self, name):
        """A whole rotation, one node at a time."""
        self.begin(name)
        for number in (1, 2):
            self.take(name, number)
            self.wait(3)
            self.launch(name, number + 2, "2")

    def stored(self, number, image):
        """The controller stores a revision."""
        spec = {"number": number, "data": rollouts.config_of({**ADMIN, "image": image}, POLICY), "images": {}}
        ref = {"resource": "boundariesrevisions", "name": f"r{number}", "namespace": "instance-manager"}
        self.audit.append({"auditID": "x", "verb": "create", "objectRef": ref, "user": {"username": USER}, "requestObject": {"spec": spec},
                           "responseStatus": {"code": 201}, "stageTimestamp": self.moment()})  # fmt: skip

    def found(self):
        """The oracles of rollouts for which something was wrong."""
        scenario = {"groups": self.groups, "config": rollouts.config_of(ADMIN, POLICY), "events": []}
        run = {"settings": controller.settings(), "scenario": scenario, "journal": self.journal, "aws": self.aws, "audit": self.audit}
        judged = oracles.Run(run)
        return {oracle.__name__ for oracle in (oracles.waves, oracles.rollout_budget, oracles.revisions) if list(oracle(judged))}


def test_a_rollout_in_which_all_is_well():
    """The canary, the soak, then the rest, one node of the budget at a time."""
    story = Story()
    story.stored(1, OLD)
    story.stored(2, NEW)
    story.replace("alpha")
    story.wait(7)
    story.replace("bravo")
    story.stored(3, OLD)
    assert story.found() == set()


def test_a_group_that_begins_while_the_canary_has_an_old_node():
    """The first wave is there to show what the change does, before others have it."""
    story = Story()
    story.begin("alpha")
    story.take("alpha", 1)
    story.wait(10)
    story.begin("bravo")
    assert story.found() == {"waves"}


def test_a_group_that_begins_before_the_end_of_the_soak():
    """An image may fail some time after it is Ready."""
    story = Story()
    story.replace("alpha")
    story.begin("bravo")
    assert story.found() == {"waves"}


def test_replacements_of_two_groups_at_once_exceed_the_budget():
    """Each group keeps to its maxUnavailable, and both together take more than the budget."""
    story = Story()
    story.begin("alpha")
    story.take("alpha", 1)
    story.wait(30)
    story.begin("bravo")
    story.take("bravo", 1)
    assert "rollout_budget" in story.found()


def test_what_a_tenant_changes_waits_for_no_budget():
    """A tenant's own change is not part of a rollout."""
    story = Story()
    story.begin("alpha")
    story.take("alpha", 1)
    story.wait(30)
    story.note("apply", group="bravo", to=story.groups["bravo"], bad=False)
    story.begin("bravo")
    story.take("bravo", 1)
    assert "rollout_budget" not in story.found()


def test_a_content_that_is_stored_twice():
    """A leader that was killed after it stored a revision finds that one."""
    story = Story()
    story.stored(1, OLD)
    story.stored(2, OLD)
    assert story.found() == {"revisions"}
