"""Checks of a rollout: what Prometheus answers decides whether waves open and pass."""

import http.server
import json
import threading
import urllib.parse

import pytest

from e2e import rotation, test_plan
from e2e.test_rollout import LONG_SOAK, ROLLOUT, launched_images, make_rollout_groups, newest, phase, policy, set_image, wait_revision, waves  # noqa: F401


class Prometheus:
    """Answers instant queries as Prometheus's HTTP API does: https://prometheus.io/docs/prometheus/latest/querying/api/"""

    def __init__(self):
        self.state = "ok"
        self.requests = []
        prometheus = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                prometheus.requests.append((self.path, form["query"][0]))
                code, answer = prometheus.answer()
                body = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self):
        if self.state == "down":
            return 503, {"status": "error", "errorType": "unavailable", "error": "the store is not ready"}
        result = [{"metric": {"node": "a"}, "value": [1800000000.0, "7"]}] if self.state == "failing" else []
        return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def prometheus():
    server = Prometheus()
    yield server
    server.close()


def checks(revision):
    """The state of each check."""
    return {check["name"]: check.get("state") for check in revision.get("status", {}).get("checks", [])}


def with_check(soak):
    query = 'sum(rate(node_errors_total{release="$RELEASE",revision="$REVISION"}[5m])) > 5'
    return policy(soak=soak, release="2026-08-20", checks=[{"name": "node-errors", "query": query, "for": "3s"}])


@pytest.mark.private
@pytest.mark.long
def test_prometheus_decides_whether_waves_open_pass_and_halt(make_rollout_groups, prometheus):  # noqa: F811
    """Ready nodes whose workloads fail are what an admin fears most of a new image."""
    prometheus.state = "down"
    rollout_groups = make_rollout_groups(with_check("1s"), flags=("--prometheus-url", prometheus.url))
    cloud, canary = rollout_groups.cloud, rollout_groups.canary
    mark = cloud.log_position()
    set_image(cloud, rollout_groups.new)
    wait_revision(cloud, lambda r: phase(r) == "Rolling" and checks(r) == {"node-errors": "Unknown"}, "the unknown check")
    asked = len(prometheus.requests)
    wait_revision(cloud, lambda r: len(prometheus.requests) > asked + 2, "further questions")
    assert waves(newest(cloud))["canary"] == "Waiting" and [group.writes(mark) for group in rollout_groups.groups] == [[], [], []]
    status = test_plan.run(cloud, "rollout", "status").stdout
    assert "wave canary (1 of 2) waits for the check node-errors, whose state is unknown" in status, status
    assert "HTTP 503: the store is not ready" in status, status
    assert 'instance_manager_rollout_check{name="node-errors",state="Unknown"} 1' in rollout_groups.controller.metrics()
    path, query = prometheus.requests[-1]
    assert path == "/api/v1/query" and query == 'sum(rate(node_errors_total{release="2026-08-20",revision="r2"}[5m])) > 5'

    prometheus.state = "ok"
    wait_revision(cloud, lambda r: phase(r) == "Complete", "the end of the rollout")
    canary.wait(lambda _: rollout_groups.settled(rollout_groups.new), ROLLOUT, "the new image everywhere")

    cloud.edit_config_map(lambda data: data.update(rollout=with_check(LONG_SOAK)))
    third = rotation.images(cloud)[2]
    set_image(cloud, third)
    found = wait_revision(cloud, lambda r: waves(r).get("canary") == "Soaking", "the soak of the canary")
    assert found["metadata"]["name"] == "r3" and launched_images(canary) == {third}
    mark, prometheus.state = cloud.log_position(), "failing"
    found = wait_revision(cloud, lambda r: phase(r) == "Halted", "the halt")
    halted = next(c for c in found["status"]["conditions"] if c["type"] == "Halted")
    assert "the check node-errors fails: the query has a result" in halted["message"], halted
    cloud.eventually(lambda: cloud.config_events("the check node-errors fails"), ROLLOUT, "the event")
    assert [group.writes(mark) for group in rollout_groups.others] == [[], []] and launched_images(canary) == {third}
