"""Hands of the cluster's admins on the ConfigMap's other keys and on the Namespace, and of the controller that was replaced."""

from campaign.person import Person
from campaign.perturbations import perturbation
from campaign.scenario import is_wide
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
def namespace_excluded_from_boundaries(stage, later):
    """Its groups are what their tenants wrote alone: most lack something, and wait until a person includes it again."""
    person = Person(stage, None)
    person.patch(NAMESPACE, {"metadata": {"annotations": {EXCLUDED: "true"}}})
    stage.undo(lambda: person.patch(NAMESPACE, {"metadata": {"annotations": {EXCLUDED: None}}}), after=later)


@perturbation("policy tightened", when=is_wide, later=LATER, policy=["roles: []\n", "managedPolicies: []\nroles: ['*']\n", "fargateNamespaces: [nobody]\n"])
def policy_tightened(stage, later, policy):
    """Groups that the policy forbids change nothing until a person relaxes it."""
    edit_config(stage, later, policy=policy)


@perturbation("conditional default", when=is_wide, later=LATER)
def conditional_default(stage, later):
    """A label for some of the groups, which a person takes back: their nodes are replaced twice, or not at all."""
    edit_config(stage, later, conditionals=WINTER.lstrip())


@perturbation("the Keiko controller writes", when=is_wide, times=[1, 3])
def the_keiko_controller_writes(stage, group, times):
    """It was started again beside this one, which writes nothing meanwhile."""
    for count in range(times):
        Person(stage, None).patch(f"{stage.path(group)}/status?fieldManager={MANAGER}", {"status": {"strategyRetryCount": count + 1}})
        stage.wait(1)


def edit_config(stage, later, **data):
    """Changes keys of the ConfigMap until a person takes that back."""
    Person(stage, None).patch(CONFIG, {"data": data})
    stage.undo(lambda: stage.configure(stage.config), after=later)
