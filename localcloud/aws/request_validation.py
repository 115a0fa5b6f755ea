"""Checks requests against the AWS service models that botocore ships, as the services' own front ends do.

The models give required members, types, lengths, ranges, enumerations and patterns. Pure: the input is the content of
a request, and the output is a list of :class:`Violation`. A member that the model does not have is a violation too.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import botocore.exceptions
from moto.core.utils import get_service_model

NUMBERS = {"integer": int, "long": int, "float": float, "double": float}
EC2_CODES = {"missing": "MissingParameter", "unknown": "UnknownParameter", "type": "InvalidParameterValue"}
OPEN_ENUMERATIONS = {("ec2", "InstanceType")}
"""EC2 has types before a release of botocore has them."""
OWN_CHECKS = {"ec2", "eks"}
"""Services that check values themselves, with errors of their own, and some only when a launch uses them: "Launch template
parameters are not fully validated when you create the launch template" (Amazon EC2 User Guide). The simulator has those.
"""
SURROGATE_PAIRS = r"\uD800\uDC00-\uDBFF\uDFFF", r"\U00010000-\U0010FFFF"
UNICODE_CLASSES = {
    r"\p{L}": r"\w",
    r"\p{M}": r"\u0300-\u036F",
    r"\p{N}": r"\d",
    r"\p{P}": r"!-#%-*,-/:;?@\[-\]_{}",
    r"\p{S}": r"$+<->^`|~",
    r"\p{Z}": r"\u0020\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000",
}
"""Java's classes of characters, approximately: what controllers and tests send is in them or not in either language."""
Check = Callable[[Any, str], Iterator["Violation"]]


@dataclass(frozen=True)
class Violation:
    """One broken constraint. `kind` is missing, unknown, type or value."""

    kind: str
    path: str
    value: Any
    constraint: str

    def __str__(self) -> str:
        value = "" if self.kind == "missing" else f" '{shown(self.value)}'"
        return f"Value{value} at '{self.path}' failed to satisfy constraint: {self.constraint}"


def violations(service: str, operation: str, params: Any) -> list[Violation]:
    """The constraints of the service's model that these parameters break. Other services have no model."""
    check = operation_check(service, operation)
    return list(check(params, "")) if check else []


def rejection(service: str, found: list[Violation]) -> tuple[str, str] | None:
    """Code and message of the response of the service's front end, whose HTTP status is 400. None if it lets the request
    pass to the service's own checks.

    "Common errors" of Amazon EC2 Auto Scaling and IAM (ValidationError), "Error codes for the Amazon EC2 API", "Common
    error types" of Systems Manager (ValidationException) and the errors of Amazon EKS (InvalidParameterException).
    """
    found = [violation for violation in found if violation.kind != "value" or service not in OWN_CHECKS]
    if not found:
        return None
    first = found[0]
    if service == "ec2":
        messages = {
            "missing": f"The request must contain the parameter {first.path}",
            "unknown": f"The parameter {first.path} is not recognized",
            "type": f"Value ({shown(first.value)}) for parameter {first.path} is invalid. {first.constraint}",
        }
        return EC2_CODES[first.kind], messages[first.kind]
    code = {"ssm": "ValidationException", "eks": "InvalidParameterException"}.get(service, "ValidationError")
    plural = "s" if len(found) > 1 else ""
    return code, f"{len(found)} validation error{plural} detected: " + "; ".join(map(str, found))


def shown(value: Any) -> str:
    """A value in a message, without the secrets that long values may be."""
    text = str(value)
    return text if len(text) <= 300 else f"{text[:40]}... ({len(text)} characters)"


@functools.cache
def operation_check(service: str, operation: str) -> Check | None:
    """The check of an operation's input, or None if there is no model."""
    try:
        model = get_service_model(service)
        shape = model.operation_model(operation).input_shape
    except (botocore.exceptions.UnknownServiceError, botocore.exceptions.DataNotFoundError, botocore.model.OperationNotFoundError):
        return None
    if shape is None:
        return lambda _value, _path: iter(())
    return Checks(service, model.metadata["protocol"]).of(shape)


class Checks:
    """Builds the checks of shapes in one protocol. A check is built when a request first needs it."""

    def __init__(self, service: str, protocol: str) -> None:
        self.service, self.protocol = service, protocol
        self.is_text = protocol in ("query", "ec2")
        self.built: dict[str, Check] = {}

    def of(self, shape: Any) -> Check:
        """The check of a shape."""
        built = self.built.get(shape.name)
        if built is None:
            make = getattr(self, shape.type_name, None) or (self.number if shape.type_name in NUMBERS else self.string)
            built = self.built[shape.name] = make(shape)
        return built

    def wire_name(self, name: str, shape: Any) -> str:
        """A member's name in a request."""
        if self.protocol == "ec2":
            chosen = shape.serialization.get("queryName")
            return chosen or capitalized(shape.serialization.get("name", name))
        if self.protocol == "rest-json":
            return name
        return shape.serialization.get("name", name)

    def structure(self, shape: Any) -> Check:
        """Members: none that is unknown, all that are required, and the check of each."""
        members = {self.wire_name(name, member): (name, member) for name, member in shape.members.items()}
        names = {name: wire for wire, (name, _) in members.items()}
        required = [(names[name], shown_name(self.protocol, name)) for name in shape.required_members]
        resolved: dict[str, tuple[str, Check]] = {}

        def check(value: Any, path: str) -> Iterator[Violation]:
            if value == "" and self.is_text:
                value = {}
            if not isinstance(value, dict):
                yield Violation("type", path, value, "Member must be a structure")
                return
            for wire, given in value.items():
                found = resolved.get(wire)
                if found is None:
                    if wire not in members:
                        yield Violation("unknown", below(path, wire), given, "Member must be one that the operation has")
                        continue
                    name, member = members[wire]
                    found = resolved[wire] = (shown_name(self.protocol, name), self.of(member))
                yield from found[1](given, below(path, found[0]))
            for wire, name in required:
                if value.get(wire) is None:
                    yield Violation("missing", below(path, name), None, "Member must not be null")

        return check

    def list(self, shape: Any) -> Check:
        """The length, and the check of each item."""
        length = bounds(shape, "length")
        item_check: list[Check] = []

        def check(value: Any, path: str) -> Iterator[Violation]:
            if value == "" and self.is_text:
                value = []
            if not isinstance(value, list):
                yield Violation("type", path, value, "Member must be a list")
                return
            constraint = length(len(value))
            if constraint:
                yield Violation("value", path, value, constraint)
            if value and not item_check:
                item_check.append(self.of(shape.member))
            for number, item in enumerate(value, 1):
                yield from item_check[0](item, f"{path}.{number}")

        return check

    def map(self, shape: Any) -> Check:
        """The length, and the check of each key and value."""
        length, key_check, value_check = bounds(shape, "length"), self.of(shape.key), self.of(shape.value)

        def check(value: Any, path: str) -> Iterator[Violation]:
            if not isinstance(value, dict):
                yield Violation("type", path, value, "Member must be a map")
                return
            constraint = length(len(value))
            if constraint:
                yield Violation("value", path, value, constraint)
            for key, item in value.items():
                yield from key_check(key, f"{path}.{key}.key")
                yield from value_check(item, f"{path}.{key}.value")

        return check

    def string(self, shape: Any) -> Check:
        """The length, the enumeration and the pattern."""
        length = bounds(shape, "length")
        allowed = frozenset(() if (self.service, shape.name) in OPEN_ENUMERATIONS else shape.enum)
        text = shape.metadata.get("pattern")
        matches = pattern(text).fullmatch if text else None

        def check(value: Any, path: str) -> Iterator[Violation]:
            if not isinstance(value, str):
                yield Violation("type", path, value, "Member must be a string")
                return
            if allowed and value not in allowed:
                yield Violation("value", path, value, f"Member must satisfy enum value set: [{', '.join(sorted(allowed))}]")
            constraint = length(len(value))
            if constraint:
                yield Violation("value", path, value, constraint)
            if matches and not matches(value):
                yield Violation("value", path, value, f"Member must satisfy regular expression pattern: {text}")

        return check

    def number(self, shape: Any) -> Check:
        """The type and the range."""
        limit, parse = bounds(shape, "value"), NUMBERS[shape.type_name]

        def check(value: Any, path: str) -> Iterator[Violation]:
            if self.is_text:
                try:
                    value = parse(value)
                except (TypeError, ValueError):
                    yield Violation("type", path, value, f"Member must be of type {shape.type_name}")
                    return
            elif isinstance(value, bool) or not isinstance(value, (parse, int)):
                yield Violation("type", path, value, f"Member must be of type {shape.type_name}")
                return
            constraint = limit(value)
            if constraint:
                yield Violation("value", path, value, constraint)

        return check

    def boolean(self, _shape: Any) -> Check:
        """`true` or `false`."""

        def check(value: Any, path: str) -> Iterator[Violation]:
            if value not in ("true", "false") if self.is_text else not isinstance(value, bool):
                yield Violation("type", path, value, "Member must be of type boolean")

        return check

    def timestamp(self, _shape: Any) -> Check:
        """An ISO 8601 time, or seconds in JSON."""

        def check(value: Any, path: str) -> Iterator[Violation]:
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return
            try:
                datetime.fromisoformat(value)
            except (TypeError, ValueError):
                yield Violation("type", path, value, "Member must be of type timestamp")

        return check

    def blob(self, _shape: Any) -> Check:
        """Base64."""

        def check(value: Any, path: str) -> Iterator[Violation]:
            try:
                base64.b64decode(value, validate=True)
            except (TypeError, ValueError, binascii.Error):
                yield Violation("type", path, value, "Member must be of type blob")

        return check


def bounds(shape: Any, what: str) -> Callable[[float], str | None]:
    """The broken constraint of a length or value, or None."""
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    words = "have length " if what == "length" else "have value "

    def check(actual: float) -> str | None:
        if low is not None and actual < low:
            return f"Member must {words}greater than or equal to {low}"
        if high is not None and actual > high:
            return f"Member must {words}less than or equal to {high}"
        return None

    return check


@functools.cache
def pattern(text: str) -> re.Pattern[str]:
    """A pattern of a model, which is written for Java: \\w and \\d are ASCII. One that Python cannot read accepts all."""
    translated = text.replace(*SURROGATE_PAIRS)
    flags = re.ASCII if "\\p{" not in text else re.NOFLAG
    for java, python in UNICODE_CLASSES.items():
        translated = translated.replace(java, python)
    try:
        return re.compile(translated, flags)
    except re.error:
        return re.compile("(?s:.*)")


def below(path: str, name: str) -> str:
    """The path of a member."""
    return f"{path}.{name}" if path else name


def shown_name(protocol: str, name: str) -> str:
    """A member's name in messages."""
    return capitalized(name) if protocol == "ec2" else name[:1].lower() + name[1:]


def capitalized(name: str) -> str:
    """The name with its first letter in upper case."""
    return name[:1].upper() + name[1:]
