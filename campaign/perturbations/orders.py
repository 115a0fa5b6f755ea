"""Orders of users about a rollout, and their changes of the stored revisions and the ConfigMap."""

from campaign.perturbations import perturbation
from campaign.rollouts import has_rollout
from campaign.user import User
from e2e.harness import CONFIG

LATER = [3, 10, None]


@perturbation("rollout paused", when=has_rollout, later=LATER)
def rollout_paused(runner, later):
    """No group takes the revision, and no node is replaced for it, until a user resumes it."""
    name = order(runner, paused=True)
    runner.undo(lambda: order(runner, name, paused=False), after=later)


@perturbation("rollout aborted", when=has_rollout, later=LATER)
def rollout_aborted(runner, later):
    """Every group returns to what it came from, until a user tries the revision again."""
    name = order(runner, aborted=True)
    runner.undo(lambda: order(runner, name, aborted=False, retries=retries(runner, name) + 1), after=later)


@perturbation("group left out of a rollout", when=has_rollout, needs="eks", later=LATER)
def group_excluded_from_a_rollout(runner, group, later):
    """It keeps its revision, and no wave waits for it."""
    name = order(runner, without=[f"camp/{group}"])
    runner.undo(lambda: order(runner, name, without=[]), after=later)


@perturbation("wave skipped", when=has_rollout, allows=("waves",))
def wave_skipped(runner):
    """The waves after it do not wait for it."""
    order(runner, skipped=["canary"])


@perturbation("progress of a rollout wiped", when=has_rollout, allows=("waves",))
def progress_of_a_rollout_deleted(runner):
    """As by a restore from a backup: the rollout of the newest revision begins again."""
    if found := runner.newest_revision():
        path = runner.revision_path(found["metadata"]["name"]) + "/status"
        User(runner, None).patch(path, {"status": dict.fromkeys(found.get("status", {}))})


@perturbation("revision deleted", when=has_rollout, allows=("waves", "revisions", "rollout_budget"), which=["newest", "oldest"])
def revision_deleted(runner, which):
    """One that is needed is stored again, or its groups take the newest one in their turn."""
    if found := runner.revisions():
        runner.cloud.api("DELETE", runner.revision_path(found[-1 if which == "newest" else 0]["metadata"]["name"]))


@perturbation("key rollout lost", when=has_rollout, allows=("waves", "rollout_budget"), later=LATER)
def key_rollout_removed(runner, later):
    """As by a patch that is lost: what is under way continues in its waves. A user puts it back."""
    User(runner, None).patch(CONFIG, {"data": {"rollout": None}})
    runner.undo(lambda: runner.configure(runner.config), after=later)


# --- orders ---------------------------------------------------------------------------------------


def order(runner, name=None, **orders):
    """Changes the orders of a revision, or of the newest one; returns its name."""
    name = name or (runner.newest_revision() or {"metadata": {"name": "none"}})["metadata"]["name"]
    User(runner, None).patch(runner.revision_path(name), {"spec": {"orders": orders}})
    return name


def retries(runner, name):
    """How often users had a revision tried again."""
    found = runner.cloud.get(runner.revision_path(name)) or {}
    return found.get("spec", {}).get("orders", {}).get("retries") or 0
