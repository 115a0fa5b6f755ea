"""What every EKS operation that moto lacks needs: parameters, pages, client tokens, routes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any

from moto.eks import urls
from moto.eks.models import eks_backends
from moto.eks.responses import EKSResponse

from localcloud.aws.errors import Refused

PAGE = 100


def mend() -> None:
    """Let every path below a cluster reach moto's dispatcher, which finds the operation by itself."""
    for path in ("clusters/(?P<name>[^/]+)/(?P<rest>.+)$", "access-policies$"):
        urls.url_paths["{0}/" + path] = urls.response.dispatch


def put(methods: type) -> None:
    """Put the methods of a class into moto's response class."""
    for name, method in vars(methods).items():
        if not name.startswith("__"):
            setattr(EKSResponse, name, method)


def parameters(response: Any) -> dict[str, Any]:
    """The parameters of a call under their names in the API Reference; what was not given is not there."""
    response.parse_parameters(response.normalized_request)
    return {key: value for key, value in response.params.items() if value is not None}


def cluster_of(world: Any, name: str) -> Any:
    """The cluster of that name."""
    clusters = eks_backends[world.settings.account][world.settings.region].clusters
    if name not in clusters:
        raise Refused("ResourceNotFoundException", f"No cluster found for name: {name}.")
    return clusters[name]


def page(items: list[Any], params: dict[str, Any], key: Callable[[Any], str] = str) -> tuple[list[Any], str | None]:
    """One page by maxResults and nextToken, and the token of the next: the last item's key, after which it goes on.

    The items are in the order of their keys, or none of them ever goes: what goes between two pages hides nothing else.
    """
    size, token = int(params.get("maxResults", PAGE)), params.get("nextToken")
    if not 1 <= size <= PAGE:
        raise Refused("InvalidParameterException", f"maxResults: {size} is not between 1 and {PAGE}")
    keys = [key(item) for item in items]
    start = 0
    if token:
        try:
            last = base64.b64decode(token, validate=True).decode()
        except ValueError:
            raise Refused("InvalidParameterException", "Invalid nextToken") from None
        start = keys.index(last) + 1 if last in keys else sum(k < last for k in keys)
    end = start + size
    return items[start:end], base64.b64encode(keys[end - 1].encode()).decode() if end < len(items) else None


def repeated(made: Iterable[Any], params: dict[str, Any]) -> Any:
    """What an earlier call with this client token made, if it is still there; other parameters are a mistake.

    Each thing made keeps its call in `request`. That a token dies with its thing is not documented, nor is the error.
    """
    token = params.get("clientRequestToken")
    for thing in made:
        if token and thing.request.get("clientRequestToken") == token:
            if thing.request != params:
                raise Refused("InvalidParameterException", "The clientRequestToken was used before with other parameters")
            return thing
    return None
