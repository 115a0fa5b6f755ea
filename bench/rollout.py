"""Measures one change of the image that reaches every group at once, and the same change in three waves."""

import json
import statistics
import sys
import time

import requests
import yaml

import bench
from e2e import harness

MINUTES = 5
"""How many minutes of the first soak, and without a rollout before it, are measured."""
SOAK = 60 * MINUTES + 120
"""How long the first wave soaks, in seconds."""
POLICY = yaml.safe_dump({
    "waves": [
        {"name": "canary", "percent": 5, "soak": f"{SOAK}s"},
        {"name": "early", "percent": 30, "soak": "60s"},
        {"name": "rest"},
    ]
})
GOALS = {
    "AWS calls with / without waves": 1,
    f"writes in {MINUTES} minutes of soak": 0,
    "ms of computing a poll of the rollout": 20,
    "KiB of the revision's status": 256,
    "memory with / without waves": 1.05,
}
REVISIONS = f"{harness.GROUPS}/namespaces/instance-manager/boundariesrevisions"


def measure(cloud, controller):
    """Creates the groups and changes their image twice. Returns whether the goals are met."""
    images = cloud["amis"]["amazonlinux2023"]
    groups = [bench.group(number) for number in range(bench.GROUPS)]
    bench.build(cloud, controller, groups)
    # Both changes begin in a new process: memory that one leaves would count for the next.
    controller.restart()
    time.sleep(30)
    at_once = change(cloud, controller, images[0], images[1])
    # Without the policy: a rollout that is complete is looked at as well.
    idle = minutes(cloud, controller)
    cloud.edit_config_map(lambda data: data.update(rollout=POLICY))
    wait(cloud, lambda: newest(cloud).get("status", {}).get("phase") == "Complete", "the first revision with the policy")
    controller.restart()
    time.sleep(30)
    soak = []
    in_waves = change(cloud, controller, images[1], images[2], lambda: soak or measure_soak(cloud, controller, soak))
    wait(cloud, lambda: newest(cloud)["status"]["phase"] == "Complete", "the end of the rollout")
    figures = {
        "AWS calls with / without waves": calls_of_change(in_waves, idle) / calls_of_change(at_once, idle),
        f"writes in {MINUTES} minutes of soak": sum(each["writes"] for each in soak),
        "ms of computing a poll of the rollout": poll_cost(soak),
        "KiB of the revision's status": len(json.dumps(newest(cloud)["status"])) / 1024,
        "memory with / without waves": in_waves["peak"] / at_once["peak"],
    }
    for name, found in (("at once", at_once), ("in waves", in_waves)):
        print(f"  {name:9} {found['seconds']:.0f} s, {found['reads']} reads and {found['writes']} writes of AWS, {found['cpu']:.1f} CPU seconds, {found['peak']:.0f} MB at most")
        print("           " + ", ".join(f"{operation} {count}" for operation, count in found["counted"]["reads"].items()))
    for name, found in (("idle", idle), ("soaking", soak)):
        described = ", ".join(f"{each['cpu']:.2f} CPU seconds and {each['reads']} reads" for each in found)
        print(f"  {name} minutes: {described}")
        print("           " + ", ".join(f"{each['polls']:.0f} polls in {1000 * each['poll_seconds']:.1f} ms" for each in found))
    return bench.show(f"a new image for {len(groups)} groups of one node", figures, GOALS, {"reads": {}, "writes": {}})


def newest(cloud):
    """The newest revision of the boundaries."""
    return max(cloud.get(REVISIONS)["items"], key=lambda item: item["spec"]["number"])


def wait(cloud, is_so, what):
    """Waits for something; ends the program when that takes too long."""
    started = time.monotonic()
    while not is_so():
        if time.monotonic() - started > 2 * bench.TIMEOUT:
            sys.exit(f"{what} did not come: {json.dumps(newest(cloud).get('status'), indent=1)}")
        time.sleep(max(1, bench.GROUPS / 100))


def change(cloud, controller, old, new, meanwhile=lambda: None):
    """Replaces a text of the defaults, and measures until every node has it."""
    requests.post(f"{cloud['control']}/reset-log", timeout=10)
    started, cpu = time.monotonic(), controller.cpu()
    assert old in cloud.get(harness.CONFIG)["data"]["defaults"]
    cloud.edit_config_map(lambda data: data.update(defaults=data["defaults"].replace(old, new)))

    def is_done():
        meanwhile()
        return all(has(item, new) for item in cloud.get(bench.API)["items"])

    wait(cloud, is_done, f"{new} on every node")
    print(f"  {new} on every node after {time.monotonic() - started:.0f} s", flush=True)
    time.sleep(20)
    counted = bench.calls(cloud)
    return {"counted": counted, "reads": counted["total"]["reads"], "writes": counted["total"]["writes"], "seconds": time.monotonic() - started, "cpu": controller.cpu() - cpu, "peak": controller.peak()}


def has(item, new):
    """Whether all nodes of a group have an image or instance type, and it is Ready."""
    status = item.get("status", {})
    return f'"{new}"' in json.dumps(status.get("effective", {})) and status.get("nodes", {}).get("outdated") == 0 and bench.is_ready(item)


def calls_of_change(change, idle):
    """The calls to AWS that a change caused: those of its time without those that an idle controller makes in that time."""
    idle_reads = statistics.mean(each["reads"] for each in idle)
    return change["reads"] + change["writes"] - idle_reads * change["seconds"] / 60


def polls(controller):
    """How many polls of a rollout the process has made, and how many seconds it computed for them, without waits."""
    return tuple(controller.metric(f"instance_manager_rollout_poll_seconds_{part}") for part in ("count", "sum"))


def poll_cost(soak):
    """Milliseconds of one poll in the soak. Where other processes had the processor meanwhile, it includes their time."""
    return 1000 * sum(each["poll_seconds"] for each in soak) / sum(each["polls"] for each in soak)


def measure_soak(cloud, controller, soak):
    """Measures minutes of the soak of the first wave, as soon as it has begun."""
    if next((wave.get("state") for wave in newest(cloud).get("status", {}).get("waves", [])), None) == "Soaking":
        soak.extend(minutes(cloud, controller))


def minutes(cloud, controller):
    """Measures several minutes that begin after what was under way has ended."""
    time.sleep(20)
    return [minute(cloud, controller) for _ in range(MINUTES)]


def minute(cloud, controller):
    """CPU seconds, polls and the seconds that they took, reads of AWS, and writes of a minute."""
    before, audited, cpu = bench.calls(cloud)["total"], len(cloud.audit()), controller.cpu()
    polled = polls(controller)
    time.sleep(60)
    count, seconds = (after - before for after, before in zip(polls(controller), polled))
    after, written = bench.calls(cloud)["total"], bench.kube_writes(cloud, audited)
    for event in written:
        print(f"  written: {event['verb']} {event['requestURI']}")
    return {
        "cpu": controller.cpu() - cpu,
        "polls": count,
        "poll_seconds": seconds,
        "reads": after["reads"] - before["reads"],
        "writes": after["writes"] - before["writes"] + len(written),
    }
