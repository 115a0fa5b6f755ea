"""Perturbations of the controller's process: killed at a write, restarted, paused while another one leads."""

from campaign.perturbations import perturbation

PATIENCE = 8
"""How long a process has to reach the write at which it is killed, in seconds."""
OBJECTS = r"^(?!.*(/leases|/events))"


@perturbation("killed at an AWS write")
def killed_at_an_aws_write(stage, number, before, lose):
    """The call is held before or after it is performed; the process ends without its answer, or with it."""
    stage.fault(action="hold", kind="write", after=number, before=before)
    if stage.wait_until(stage.held_calls, PATIENCE):
        if not lose and not before:
            stage.release(lose=False)
        stage.kill()
        stage.release(lose=True)
    stage.clear_faults()
    stage.start()


@killed_at_an_aws_write.draw
def _(random, scenario):
    return {"number": random.randrange(6), "before": random.random() < 0.3, "lose": random.random() < 0.7}


@perturbation("killed at an API write", number=range(8), before=[True, False])
def killed_at_an_api_write(stage, number, before):
    """The same for a write to the API server."""
    held = stage.proxy.hold(".*", OBJECTS, before=before, skip=number)
    if stage.wait_until(held.reached.is_set, PATIENCE):
        stage.kill()
    stage.proxy.clear()
    stage.start()


@perturbation("restarted")
def restarted(stage):
    """Asked to end, as in a rollout, and started again."""
    stage.kill(graceful=True)
    stage.start()


@perturbation("paused while another leads", seconds=[0, 1, 3])
def paused_while_another_leads(stage, seconds):
    """The leader stops as if its machine did; another one takes the lease over when it has expired; then the first wakes."""
    if not stage.settings["lease"]:
        return
    before = stage.leader()
    paused = stage.pause()
    stage.start(beside=True)
    stage.wait_until(lambda: stage.leader() not in (None, before), 25)
    stage.wait(seconds)
    stage.resume(paused)
