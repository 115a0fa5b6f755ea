"""Shrinks a scenario that fails: fewer events and groups with which the same oracle still fails."""

import traceback

from campaign import scenario as scenarios


def shrink(scenario, fails):
    """A smaller scenario for which `fails(scenario)` is still true; it is asked as seldom as delta debugging allows.

    It is not asked for one that could not come to its end by itself: that would fail for another reason.
    """

    def fails_by_itself(smaller):
        return scenarios.is_playable(smaller) and fails(smaller)

    scenario = shrink_list(scenario, "events", scenario["events"], lambda events: {**scenario, "events": events}, fails_by_itself)
    for name in sorted({*scenario["groups"], *scenario.get("taken over", ())}):
        smaller = without_group(scenario, name)
        if smaller["groups"] and fails_by_itself(smaller):
            scenario = smaller
    return scenario


def shrink_list(scenario, key, items, rebuild, fails):
    """The scenario with fewer of the items: halves are tried first, then smaller parts, then single ones."""
    size = max(1, len(items) // 2)
    while items:
        start = 0
        while start < len(items):
            fewer = items[:start] + items[start + size :]
            if fails(rebuild(fewer)):
                items, scenario = fewer, rebuild(fewer)
            else:
                start += size
        if size == 1:
            break
        size = max(1, size // 2)
    return {**scenario, key: items}


def without_group(scenario, name):
    """The scenario without a group and what happens to it."""
    groups = {other: group for other, group in scenario["groups"].items() if other != name}
    taken_over = {other: state for other, state in scenario.get("taken over", {}).items() if other != name}
    events = [e for e in scenario["events"] if name not in (e.get("group"), e.get("arguments", {}).get("group"))]
    return {**scenario, "groups": groups, "taken over": taken_over, "events": events}


def shrink_scenario(worlds, scenario, failures, name, tries=24):
    """Shrinks on real clouds, with at most so many plays."""
    wanted = {failure["oracle"] for failure in failures}
    left = [tries]

    def fails(smaller):
        if left[0] <= 0:
            return False
        left[0] -= 1
        try:
            found, _ = worlds.judge(smaller, f"{name}-smaller")
        except KeyboardInterrupt:
            raise
        except BaseException:  # pytest's failures are not Exceptions
            traceback.print_exc(limit=-6)
            return False
        return bool(wanted & {failure["oracle"] for failure in found})

    return shrink(scenario, fails)
