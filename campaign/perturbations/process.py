"""Perturbations of the controller's process: killed at a write, restarted, paused while another one leads."""

from campaign.perturbations import perturbation
from campaign.scenario import is_wide

PATIENCE = 8
"""How long a process has to reach the write at which it is killed, in seconds."""
OBJECTS = r"^(?!.*(/leases|/events))"


@perturbation("killed at an AWS write")
def killed_at_an_aws_write(runner, number, before, lose):
    """The call is held before or after it is performed; the process ends without its answer, or with it."""
    fault = hold_aws_write(runner, number, before)
    if wait_for_write(runner, lambda: runner.held_calls(fault)) and not lose and not before:
        runner.release(lose=False, fault=fault)
    kill(runner, lambda: runner.end_fault(fault))


@killed_at_an_aws_write.draw
def _(random, scenario):
    return {"number": random.randrange(6), "before": random.random() < 0.3, "lose": random.random() < 0.7}


@perturbation("killed at an API write", number=range(8), before=[True, False])
def killed_at_an_api_write(runner, number, before):
    """The same for a write to the API server."""
    held = runner.proxy.hold(".*", OBJECTS, before=before, skip=number)
    wait_for_write(runner, held.reached.is_set)
    kill(runner, lambda: runner.proxy.end_hold(held))


@perturbation("killed at a later write", when=is_wide, system=["AWS", "API server"], number=range(0, 60, 4))
def killed_at_a_later_write(runner, system, number):
    """Everything else continues until then. The write is performed, and the process ends without its answer."""
    if system == "AWS":
        fault = hold_aws_write(runner, number, before=False)
        runner.once(lambda: runner.held_calls(fault), lambda: kill(runner, lambda: runner.end_fault(fault)))
    else:
        held = runner.proxy.hold(".*", OBJECTS, skip=number)
        runner.once(held.reached.is_set, lambda: kill(runner, lambda: runner.proxy.end_hold(held)))


def hold_aws_write(runner, number, before):
    """Holds the controller's AWS write after so many others; returns the fault that does it."""
    return runner.fault(action="hold", kind="write", after=number, before=before)


def wait_for_write(runner, is_held):
    """Whether the write comes in time at which the process is to end. If it does not, the process ends all the same."""
    found = runner.wait_until(is_held, PATIENCE)
    if not found:
        runner.note("killed without a write")
    return found


def kill(runner, end_hold):
    """Kills the controller at the write that it waits for, ends the hold, and starts another one."""
    runner.kill()
    runner.note("killed")
    end_hold()
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
