"""Parses the service, operation and parameters of a call from the raw HTTP request, for every AWS protocol in use."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote

import botocore.session

CREDENTIAL = re.compile(r"Credential=([^/,]+)/\d+/([^/]+)/([^/]+)/")
USER_DATA_KEYS = {"userdata", "user-data"}


@dataclass(frozen=True)
class Call:
    """One API call of a client.

    `params` are for the log. `content` has all values, user data among them, in the shape of the operation's input.
    """

    service: str
    operation: str
    params: Any
    access_key: str
    agent: str
    content: Any = field(repr=False)

    @property
    def caller(self) -> dict[str, str]:
        """The access key and the user agent of the client."""
        return {"key": self.access_key, "agent": self.agent}

    @functools.cached_property
    def text(self) -> str:
        """The parameters as text, so that a fault can match a resource's name."""
        return json.dumps(self.params, sort_keys=True)


def read_call(environ: dict[str, Any], body: bytes) -> Call:
    """Parse the service, operation and parameters of a request."""
    match = CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
    key, service = (match[1], match[3]) if match else ("anonymous", "unknown")
    agent = environ.get("HTTP_USER_AGENT", "").partition(" ")[0]
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    content_type = environ.get("CONTENT_TYPE", "")
    if target:
        operation, params = target.rsplit(".", 1)[-1], json.loads(body or b"{}")
        content = params
    elif content_type.startswith("application/x-www-form-urlencoded") or "Action=" in environ.get("QUERY_STRING", ""):
        flat = dict(parse_qsl(body.decode() or environ.get("QUERY_STRING", ""), keep_blank_values=True))
        operation = flat.pop("Action", "Unknown")
        flat.pop("Version", None)
        params = content = parse_query_params(flat)
    else:
        path, method = environ.get("PATH_INFO", "/"), environ.get("REQUEST_METHOD", "GET")
        # Slashes of an ARN in a path are escaped in the raw path only.
        operation, labels = rest_operation(service, method, environ.get("RAW_URI", path).split("?")[0])
        document = json.loads(body) if body and body[:1] == b"{" else {}
        params = {"path": path} | document
        content = document | rest_members(service, operation, labels, environ.get("QUERY_STRING", ""))
    return Call(service, operation, redact_user_data(params), key, agent, content)


def parse_query_params(flat: dict[str, str]) -> Any:
    """Turn query parameters such as `Tags.member.1.Key=x` into nested dictionaries and lists."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        parts = [part for part in key.split(".") if part != "member"]
        node = tree
        for part in parts[:-1]:
            child = node.setdefault(part, {})
            node = child if isinstance(child, dict) else node.setdefault(part + ".", {})
        node[parts[-1]] = value
    return numbered_to_lists(tree)


def numbered_to_lists(tree: Any) -> Any:
    """Replace dictionaries whose keys are all numbers by lists."""
    if not isinstance(tree, dict):
        return tree
    if tree and all(key.isdigit() for key in tree):
        return [numbered_to_lists(tree[key]) for key in sorted(tree, key=int)]
    return {key: numbered_to_lists(value) for key, value in tree.items()}


def redact_user_data(params: Any, masked: Mapping[str, str] | None = None) -> Any:
    """Replace user data by its size and hash. `masked` is what differs between two clouds, and what stands for it."""
    if isinstance(params, list):
        return [redact_user_data(item, masked) for item in params]
    if not isinstance(params, dict):
        return params
    return {
        key: fingerprint(value, masked) if key.lower() in USER_DATA_KEYS and isinstance(value, str) else redact_user_data(value, masked)
        for key, value in params.items()
    }


def fingerprint(value: str, masked: Mapping[str, str] | None = None) -> str:
    """The size and the hash of user data, to identify it without showing it."""
    if masked:
        with contextlib.suppress(ValueError):
            value = base64.b64decode(value).decode()
        for text, instead in masked.items():
            value = value.replace(text, instead)
    return f"[{len(value)} characters, sha256 {hashlib.sha256(value.encode()).hexdigest()[:16]}]"


@functools.cache
def rest_model(service: str) -> Any:
    """The model of a REST service, or None."""
    try:
        return botocore.session.get_session().get_service_model(service)
    except Exception:
        return None


@functools.cache
def rest_routes(service: str) -> list[tuple[str, re.Pattern[str], str]]:
    """The HTTP method, path pattern and name of each operation of a REST service."""
    model = rest_model(service)
    routes = []
    for name in model.operation_names if model else ():
        http = model.operation_model(name).http
        pattern = re.sub(
            r"\{(\w+)\+?\}", lambda m: f"(?P<{m[1]}>{'.+' if m[0].endswith('+}') else '[^/]+'})", http["requestUri"].split("?")[0]
        )
        routes.append((http["method"], re.compile(pattern + "/?$"), name))
    return routes


def rest_operation(service: str, method: str, path: str) -> tuple[str, dict[str, str]]:
    """The operation of a REST service that handles a path, and the values in the path."""
    for candidate, pattern, name in rest_routes(service):
        match = pattern.match(path) if candidate == method else None
        if match:
            return name, {label: unquote(value) for label, value in match.groupdict().items()}
    return f"{method} {path}", {}


@functools.cache
def rest_locations(service: str, operation: str) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """The members of an operation that are in the path, by label, and those in the query, with their types, by name."""
    model = rest_model(service)
    shape = model.operation_model(operation).input_shape if model and operation in model.operation_names else None
    labels, queries = {}, {}
    for name, member in shape.members.items() if shape else ():
        location, wire = member.serialization.get("location"), member.serialization.get("name", name)
        if location == "uri":
            labels[wire] = name
        elif location == "querystring":
            queries[wire] = (name, member.type_name)
    return labels, queries


def rest_members(service: str, operation: str, labels: dict[str, str], query: str) -> dict[str, Any]:
    """The members of a REST operation's input that are not in the body. Text that is not a number stays text."""
    by_label, by_query = rest_locations(service, operation)
    members: dict[str, Any] = {by_label.get(label, label): value for label, value in labels.items()}
    for wire, values in parse_qs(query, keep_blank_values=True).items():
        name, kind = by_query.get(wire, (wire, "string"))
        value = values[-1]
        if kind == "list":
            members[name] = values
        elif kind == "boolean":
            members[name] = {"true": True, "false": False}.get(value, value)
        elif kind in ("integer", "long") and value.lstrip("-").isdigit():
            members[name] = int(value)
        else:
            members[name] = value
    return members
