"""Parses the service, operation and parameters of a call from the raw HTTP request, for every AWS protocol in use."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import botocore.session

CREDENTIAL = re.compile(r"Credential=([^/,]+)/\d+/([^/]+)/([^/]+)/")
USER_DATA_KEYS = {"userdata", "user-data"}


@dataclass(frozen=True)
class Call:
    """One API call of a client."""

    service: str
    operation: str
    params: Any
    access_key: str
    agent: str

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
    elif content_type.startswith("application/x-www-form-urlencoded") or "Action=" in environ.get("QUERY_STRING", ""):
        flat = dict(parse_qsl(body.decode() or environ.get("QUERY_STRING", ""), keep_blank_values=True))
        operation = flat.pop("Action", "Unknown")
        flat.pop("Version", None)
        params = parse_query_params(flat)
    else:
        path, method = environ.get("PATH_INFO", "/"), environ.get("REQUEST_METHOD", "GET")
        # Slashes of an ARN in a path are escaped in the raw path only.
        operation = rest_operation(service, method, environ.get("RAW_URI", path).split("?")[0])
        params = {"path": path} | (json.loads(body) if body and body[:1] == b"{" else {})
    return Call(service, operation, redact_user_data(params), key, agent)


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


def redact_user_data(params: Any) -> Any:
    """Replace user data by its size and hash."""
    if isinstance(params, list):
        return [redact_user_data(item) for item in params]
    if not isinstance(params, dict):
        return params
    return {
        key: fingerprint(value) if key.lower() in USER_DATA_KEYS and isinstance(value, str) else redact_user_data(value)
        for key, value in params.items()
    }


def fingerprint(value: str) -> str:
    """The size and the hash of user data, to identify it without showing it."""
    return f"[{len(value)} characters, sha256 {hashlib.sha256(value.encode()).hexdigest()[:16]}]"


@functools.cache
def rest_routes(service: str) -> list[tuple[str, re.Pattern[str], str]]:
    """The HTTP method, path pattern and name of each operation of a REST service."""
    try:
        model = botocore.session.get_session().get_service_model(service)
    except Exception:
        return []
    routes = []
    for name in model.operation_names:
        http = model.operation_model(name).http
        pattern = re.sub(r"\{(\w+)\+?\}", lambda m: ".+" if m[0].endswith("+}") else "[^/]+", http["requestUri"].split("?")[0])
        routes.append((http["method"], re.compile(pattern + "/?$"), name))
    return routes


def rest_operation(service: str, method: str, path: str) -> str:
    """The operation of a REST service that handles a path."""
    for candidate, pattern, name in rest_routes(service):
        if candidate == method and pattern.match(path):
            return name
    return f"{method} {path}"
