"""Changes that admins make to other keys of the ConfigMap and to the Namespace, and writes of the Keiko controller."""

from campaign.perturbations import perturbation
from campaign.scenario import is_wide
from campaign.user import User
from e2e.harness import CONFIG, PREFIX

LATER = [3, 10, None]
NAMESPACE = "/api/v1/namespaces/camp"
EXCLUDED = PREFIX + "config-excluded"
WINTER = """
- annotationSelector: instancemgr.keikoproj.io/os-family = amazonlinux2023
  defaults:
    spec:
      eks:
        configuration:
          labels:
            example.com/season: winter
"""
MANAGER = "manager"
"""The field manager of the Keiko controller."""


@perturbation("Namespace excluded from boundaries", when=is_wide, allows=("needless_rotation",), later=LATER)
def namespace_excluded_from_boundaries(runner, later):
    """Its groups are what their tenants wrote alone: most lack something, and wait until a user includes it again."""
    user = User(runner, None)
    user.patch(NAMESPACE, {"metadata": {"annotations": {EXCLUDED: "true"}}})
    runner.undo(lambda: user.patch(NAMESPACE, {"metadata": {"annotations": {EXCLUDED: None}}}), after=later)


@perturbation("policy tightened", when=is_wide, later=LATER, policy=["roles: []\n", "managedPolicies: []\nroles: ['*']\n", "fargateNamespaces: [nobody]\n"])
def policy_tightened(runner, later, policy):
    """Groups that the policy forbids change nothing until a user relaxes it."""
    edit_config(runner, later, policy=policy)


@perturbation("conditional default", when=is_wide, later=LATER)
def conditional_default(runner, later):
    """A label for some of the groups, which a user takes back: their nodes are replaced twice, or not at all."""
    edit_config(runner, later, conditionals=WINTER.lstrip())


@perturbation("the Keiko controller writes", when=is_wide, times=[1, 3])
def the_keiko_controller_writes(runner, group, times):
    """It was started again beside this one, which writes nothing meanwhile."""
    for count in range(times):
        User(runner, None).patch(f"{runner.path(group)}/status?fieldManager={MANAGER}", {"status": {"strategyRetryCount": count + 1}})
        runner.wait(1)


def edit_config(runner, later, **data):
    """Changes keys of the ConfigMap until a user takes that back."""
    User(runner, None).patch(CONFIG, {"data": data})
    runner.undo(lambda: runner.configure(runner.config), after=later)
