"""The perturbations, by name. Each is a function of a module in this package; see docs/reliability.md."""

import importlib
import pkgutil

REGISTRY = {}
"""Every perturbation by its name."""


class Perturbation:
    """One way to disturb a world: `act` does it on a stage, and `draw` gives its arguments, as plain JSON, by chance."""

    def __init__(self, name, act, needs, allows):
        self.name, self._act, self.needs, self.allows = name, act, needs, frozenset(allows)
        self._draw = self._draw_group

    def __call__(self, stage, **arguments):
        return self._act(stage, **arguments)

    def draw(self, function):
        """A decorator: `function(random, scenario)` is pure and gives the arguments."""
        self._draw = function
        return self

    def arguments(self, random, scenario):
        """Arguments for one use in this scenario."""
        return self._draw(random, scenario)

    def fits(self, scenario):
        """Whether the scenario has a group of the provisioner that it needs."""
        return self.needs is None or bool(groups_of(scenario, self.needs))

    def _draw_group(self, random, scenario):
        return {"group": random.choice(groups_of(scenario, self.needs))}


def groups_of(scenario, provisioner=None):
    """Names of the scenario's groups of one provisioner, or of any."""
    return [name for name, group in scenario["groups"].items() if provisioner in (None, group["spec"]["provisioner"])]


def perturbation(name, needs=None, allows=()):
    """A decorator that registers a function as a perturbation.

    `needs` is the provisioner of the group that it acts on. `allows` names the oracles that do not judge that group
    (every group, if it acts on none), because the perturbation itself does what they look for.
    """

    def register(act):
        assert name not in REGISTRY, f"two perturbations are called {name!r}"
        REGISTRY[name] = Perturbation(name, act, needs, allows)
        return REGISTRY[name]

    return register


def load():
    """Every perturbation of every module in this package, by name, in the order of their names."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(REGISTRY.items()))
