"""Shared parts of the EKS operations: parameters, pages, client tokens and routes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any

from moto.eks import urls
from moto.eks.models import eks_backends
from moto.eks.responses import EKSResponse

from localcloud.aws.errors import AwsError

PAGE = 100


def install() -> None:
    """Route every path below a cluster to moto's dispatcher, which selects the operation."""
    for path in ("clusters/(?P<name>[^/]+)/(?P<rest>.+)$", "access-policies$"):
        urls.url_paths["{0}/" + path] = urls.response.dispatch


def add_operations(methods: type) -> None:
    """Add the methods of a class to moto's response class."""
    for name, method in vars(methods).items():
        if not name.startswith("__"):
            setattr(EKSResponse, name, method)


def request_params(response: Any) -> dict[str, Any]:
    """The parameters of a call under their names in the API Reference. Omitted parameters are absent."""
    response.parse_parameters(response.normalized_request)
    return {key: value for key, value in response.params.items() if value is not None}


def get_cluster(simulator: Any, name: str) -> Any:
    """The cluster of that name. Raises EKS's error if it does not exist."""
    clusters = eks_backends[simulator.settings.account][simulator.settings.region].clusters
    if name not in clusters:
        raise AwsError("ResourceNotFoundException", f"No cluster found for name: {name}.")
    return clusters[name]


def page(items: list[Any], params: dict[str, Any], key: Callable[[Any], str] = str) -> tuple[list[Any], str | None]:
    """One page by maxResults and nextToken, and the next token: the key of the page's last item.

    Items must be ordered by their keys, or never be deleted. A deletion between two pages then skips no other item.
    """
    size, token = int(params.get("maxResults", PAGE)), params.get("nextToken")
    if not 1 <= size <= PAGE:
        raise AwsError("InvalidParameterException", f"maxResults: {size} is not between 1 and {PAGE}")
    keys = [key(item) for item in items]
    start = 0
    if token:
        try:
            last = base64.b64decode(token, validate=True).decode()
        except ValueError:
            raise AwsError("InvalidParameterException", "Invalid nextToken") from None
        start = keys.index(last) + 1 if last in keys else sum(k < last for k in keys)
    end = start + size
    return items[start:end], base64.b64encode(keys[end - 1].encode()).decode() if end < len(items) else None


def find_repeated_call(resources: Iterable[Any], params: dict[str, Any]) -> Any:
    """The resource that an earlier call with the same client token created, if it still exists.

    Each resource keeps the call in `request`. Other parameters with the same token are an error. AWS documents neither
    that error nor that a token expires with its resource.
    """
    token = params.get("clientRequestToken")
    for resource in resources:
        if token and resource.request.get("clientRequestToken") == token:
            if resource.request != params:
                raise AwsError("InvalidParameterException", "The clientRequestToken was used before with other parameters")
            return resource
    return None
