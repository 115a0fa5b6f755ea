"""The simulator's own small parts."""

import base64
import threading

import pytest

from localcloud.aws.request import numbered_to_lists, parse_query_params, redact_user_data
from localcloud.aws.settings import REALISTIC, SHORT, parse_delays
from localcloud.aws.timers import Timers


def test_delays_can_be_overridden_individually():
    assert parse_delays("short") == SHORT
    assert parse_delays("realistic") == REALISTIC
    assert parse_delays("short,join=7").join == 7
    for bad in ("brief", "short,colour=1", "short,join=x"):
        with pytest.raises(ValueError):
            parse_delays(bad)


def test_query_parameters_are_parsed_into_nested_values():
    flat = {"Tags.member.1.Key": "k", "Tags.member.2.Key": "l", "LaunchTemplateData.UserData": "secret", "Name": "n"}
    assert parse_query_params(flat) == {"Tags": [{"Key": "k"}, {"Key": "l"}], "LaunchTemplateData": {"UserData": "secret"}, "Name": "n"}
    assert numbered_to_lists({"2": "b", "1": "a", "10": "c"}) == ["a", "b", "c"]


def test_user_data_is_redacted():
    shown = redact_user_data({"LaunchTemplateData": [{"UserData": "c2VjcmV0"}]})
    assert "c2VjcmV0" not in str(shown)
    assert "8 characters" in str(shown)


def test_user_data_of_two_clouds_is_the_same_without_their_endpoints():
    """Else a group's content on one cloud cannot be compared with that on another one."""
    shown = {}
    for endpoint in ("https://127.0.0.1:1", "https://127.0.0.1:20000"):
        data = {"UserData": base64.b64encode(f"join {endpoint}".encode()).decode()}
        shown[endpoint] = redact_user_data(data, {endpoint: "endpoint"})
    assert len({str(each) for each in shown.values()}) == 1


def test_timers_run_in_order_and_survive_a_failure():
    timers, seen, done = Timers("test"), [], threading.Event()
    timers.after(0.2, done.set)
    timers.after(0.1, lambda: seen.append("second"))
    timers.after(0, lambda: 1 / 0)
    timers.after(0, lambda: seen.append("first"))
    assert done.wait(10)
    assert seen == ["first", "second"]
