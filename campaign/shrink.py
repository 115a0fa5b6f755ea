"""Shrinks a scenario that fails: fewer events and groups with which the same oracle still fails."""


def shrink(scenario, fails):
    """A smaller scenario for which `fails(scenario)` is still true; it is asked as seldom as delta debugging allows."""
    scenario = shrink_list(scenario, "events", scenario["events"], lambda events: {**scenario, "events": events}, fails)
    for name in sorted(scenario["groups"]):
        smaller = without_group(scenario, name)
        if smaller["groups"] and fails(smaller):
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
    events = [e for e in scenario["events"] if name not in (e.get("group"), e.get("arguments", {}).get("group"))]
    return {**scenario, "groups": groups, "events": events}


def shrink_scenario(worlds, scenario, failures, name, tries=24):
    """Shrinks on real clouds, with at most so many plays."""
    wanted = {failure["oracle"] for failure in failures}
    left = [tries]

    def fails(smaller):
        if left[0] <= 0:
            return False
        left[0] -= 1
        found, _ = worlds.judge(smaller, f"{name}-smaller")
        return bool(wanted & {failure["oracle"] for failure in found})

    return shrink(scenario, fails)
