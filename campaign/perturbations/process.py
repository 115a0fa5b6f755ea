"""Perturbations of the controller's process: killed at a write, restarted, paused while another one leads."""

from campaign.perturbations import perturbation

PATIENCE = 8
"""How long a process has to reach the write at which it is killed, in seconds."""
OBJECTS = r"^(?!.*(/leases|/events))"


@perturbation("killed at an AWS write")
def killed_at_an_aws_write(runner, number, before, lose):
    """The call is held before or after it is performed; the process ends without its answer, or with it."""
    runner.fault(action="hold", kind="write", after=number, before=before)
    if runner.wait_until(runner.held_calls, PATIENCE):
        if not lose and not before:
            runner.release(lose=False)
        runner.kill()
        runner.release(lose=True)
    runner.clear_faults()
    runner.start()


@killed_at_an_aws_write.draw
def _(random, scenario):
    return {"number": random.randrange(6), "before": random.random() < 0.3, "lose": random.random() < 0.7}


@perturbation("killed at an API write", number=range(8), before=[True, False])
def killed_at_an_api_write(runner, number, before):
    """The same for a write to the API server."""
    held = runner.proxy.hold(".*", OBJECTS, before=before, skip=number)
    if runner.wait_until(held.reached.is_set, PATIENCE):
        runner.kill()
    runner.proxy.clear()
    runner.start()


@perturbation("restarted")
def restarted(runner):
    """Asked to end, as in a rollout, and started again."""
    runner.kill(graceful=True)
    runner.start()


@perturbation("paused while another leads", seconds=[0, 1, 3])
def paused_while_another_leads(runner, seconds):
    """The leader stops as if its machine did; another one takes the lease over when it has expired; then the first wakes."""
    if not runner.settings["lease"]:
        return
    before = runner.leader()
    paused = runner.pause()
    runner.start(beside=True)
    runner.wait_until(lambda: runner.leader() not in (None, before), 25)
    runner.wait(seconds)
    runner.resume(paused)
