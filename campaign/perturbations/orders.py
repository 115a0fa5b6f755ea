"""People's orders about a rollout, and their hands on the stored revisions of the ConfigMap."""

from campaign.person import Person
from campaign.perturbations import perturbation
from campaign.rollouts import has_rollout
from e2e.harness import CONFIG

LATER = [3, 10, None]


@perturbation("rollout paused", when=has_rollout, later=LATER)
def rollout_paused(stage, later):
    """No group takes the revision, and no node is replaced for it, until a person lets it go on."""
    name = order(stage, paused=True)
    stage.undo(lambda: order(stage, name, paused=False), after=later)


@perturbation("rollout aborted", when=has_rollout, later=LATER)
def rollout_aborted(stage, later):
    """Every group returns to what it came from, until a person tries the revision again."""
    name = order(stage, aborted=True)
    stage.undo(lambda: order(stage, name, aborted=False, retries=retries(stage, name) + 1), after=later)


@perturbation("group left out of a rollout", when=has_rollout, needs="eks", later=LATER)
def group_left_out_of_a_rollout(stage, group, later):
    """It keeps its revision, and no wave waits for it."""
    name = order(stage, without=[f"camp/{group}"])
    stage.undo(lambda: order(stage, name, without=[]), after=later)


@perturbation("wave skipped", when=has_rollout, allows=("waves",))
def wave_skipped(stage):
    """The waves behind it do not wait for it."""
    order(stage, skipped=["canary"])


@perturbation("progress of a rollout wiped", when=has_rollout, allows=("waves",))
def progress_of_a_rollout_wiped(stage):
    """As by a restore from a backup: the rollout of the newest revision begins again."""
    if found := stage.newest_revision():
        path = stage.revision_path(found["metadata"]["name"]) + "/status"
        Person(stage, None).patch(path, {"status": dict.fromkeys(found.get("status", {}))})


@perturbation("revision deleted", when=has_rollout, allows=("waves", "revisions", "rollout_budget"), which=["newest", "oldest"])
def revision_deleted(stage, which):
    """One that is needed is stored again, or its groups take the newest one in their turn."""
    if found := stage.revisions():
        stage.cloud.api("DELETE", stage.revision_path(found[-1 if which == "newest" else 0]["metadata"]["name"]))


@perturbation("key rollout lost", when=has_rollout, allows=("waves", "rollout_budget"), later=LATER)
def key_rollout_lost(stage, later):
    """As by a patch that is lost: what is under way goes on in its waves. A person puts it back."""
    Person(stage, None).patch(CONFIG, {"data": {"rollout": None}})
    stage.undo(lambda: stage.configure(stage.config), after=later)


# --- orders ---------------------------------------------------------------------------------------


def order(stage, name=None, **orders):
    """Changes the orders of a revision, or of the newest one; returns its name."""
    name = name or (stage.newest_revision() or {"metadata": {"name": "none"}})["metadata"]["name"]
    Person(stage, None).patch(stage.revision_path(name), {"spec": {"orders": orders}})
    return name


def retries(stage, name):
    """How often people had a revision tried again."""
    found = stage.cloud.get(stage.revision_path(name)) or {}
    return found.get("spec", {}).get("orders", {}).get("retries") or 0
