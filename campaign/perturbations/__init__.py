"""The perturbations, by name. Each is a function of a module in this package; see docs/reliability.md."""

import importlib
import inspect
import pkgutil

REGISTRY = {}
"""Every perturbation by its name."""


class Perturbation:
    """One way to disturb a world: `act` does it with a runner, and `draw` gives its arguments, as plain JSON, by chance."""

    def __init__(self, name, act, needs, allows, when, choices):
        self.name, self._act, self.needs, self.allows = name, act, needs, frozenset(allows)
        self.module = act.__module__
        self._when, self._choices, self._draw = when, choices, self._draw_arguments
        self._names = [parameter for parameter in inspect.signature(act).parameters if parameter != "runner"]

    def __call__(self, runner, **arguments):
        return self._act(runner, **arguments)

    def draw(self, function):
        """A decorator: `function(random, scenario)` is pure and gives the arguments."""
        self._draw = function
        return self

    def arguments(self, random, scenario):
        """Arguments for one use in this scenario."""
        return self._draw(random, scenario)

    def fits(self, scenario):
        """Whether the scenario has a group of a provisioner that it needs, and what else it needs."""
        return bool(groups_of(scenario, self.needs)) and self._when(scenario)

    def _draw_arguments(self, random, scenario):
        groups = {"group": groups_of(scenario, self.needs)}
        return {name: random.choice((groups | self._choices)[name]) for name in self._names}


def groups_of(scenario, provisioners=None):
    """Names of the scenario's groups of a provisioner, of one of several, or of any."""
    wanted = (provisioners,) if isinstance(provisioners, str) else provisioners
    return [name for name, group in scenario["groups"].items() if wanted is None or group["spec"]["provisioner"] in wanted]


def perturbation(name, needs=None, allows=(), when=lambda scenario: True, **choices):
    """A decorator that registers a function as a perturbation.

    The function's arguments are the runner, a `group` if it acts on one, and `choices`: what each other argument may be.
    `needs` is the provisioner of that group, or several, and `when(scenario)` says whether a scenario has what else it needs.
    A new perturbation has `when=is_wide` of campaign.scenario: the scenarios of the fixed seeds are not wide, and would be
    others otherwise. A list of `choices` of an older one does not change, either.
    `allows` names the oracles that do not judge that group (every group, if it acts on none), because the perturbation
    itself does what they look for.
    """

    def register(act):
        assert name not in REGISTRY, f"two perturbations are called {name!r}"
        REGISTRY[name] = Perturbation(name, act, needs, allows, when, {key: list(values) for key, values in choices.items()})
        return REGISTRY[name]

    return register


def load():
    """Every perturbation of every module in this package, by name, in the order of their names."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(REGISTRY.items()))
