"""The HTTP entry point: logs every call, applies faults, and lets moto respond."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any
from uuid import uuid4
from xml.sax.saxutils import escape

from localcloud.aws import control
from localcloud.aws.event_log import is_read
from localcloud.aws.faults import Fault, HeldCall
from localcloud.aws.iam.shared import GLOBAL_SERVICES
from localcloud.aws.request import Call, read_call
from localcloud.aws.request_validation import rejection, violations

Response = tuple[str, list[tuple[str, str]], bytes]
NOT_PERFORMED: Response = ("000", [], b"")
"""Logged as status 0: the call was never performed."""
VERSION = re.compile(rb"<versionNumber>(\d+)<")
ERROR_CODE = re.compile(rb"<Code>([^<]+)</Code>")
JSON_SERVICES = {"ssm", "eks", "sts-json"}
THROTTLING_CODES = {"ec2": ("RequestLimitExceeded", 503), "ssm": ("ThrottlingException", 400), "eks": ("ThrottlingException", 429)}
SERVER_ERROR_CODES = {"ec2": "InternalError", "iam": "ServiceFailure", "ssm": "InternalServerError", "eks": "ServerException"}
ACCESS_DENIED_CODES = {"ec2": "UnauthorizedOperation", "ssm": "AccessDeniedException", "eks": "AccessDeniedException"}
HELD_CALL_IDS = itertools.count(1)


class Gateway:
    """A WSGI application in front of moto's. One lock serializes calls and timers."""

    def __init__(self, simulator: Any, moto: Callable) -> None:
        self.simulator = simulator
        self.moto = moto
        self.last_responses: dict[str, Response] = {}

    def __call__(self, environ: dict[str, Any], start_response: Callable) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        if environ.get("PATH_INFO", "").startswith("/_local/"):
            status, headers, content = control.respond(self.simulator, environ, body)
        else:
            status, headers, content = self.serve(environ, body)
        start_response(status, headers)
        return [content]

    def serve(self, environ: dict[str, Any], body: bytes) -> Response:
        """Respond to one AWS call, or drop its connection if a fault requires it."""
        call = read_call(environ, body)
        rejected = self.check(call)
        if rejected:
            return rejected
        fault = self.simulator.faults.next_fault(call)
        if fault is None:
            return self.perform(call, environ, body)
        match fault.action:
            case "throttle" | "error5xx" | "deny" | "error":
                response = fault_response(call, fault)
                self.record(call, response, fault)
                return response
            case "delay":
                time.sleep(fault.seconds)
                return self.perform(call, environ, body, fault)
            case "stale":
                return self.perform_stale(call, environ, body, fault)
            case "hold":
                return self.hold(call, environ, body, fault)
        if fault.before:
            self.record(call, NOT_PERFORMED, fault)
        else:
            self.perform(call, environ, body, fault)
        drop_connection(environ)

    def check(self, call: Call) -> Response | None:
        """Log a request that breaks the service's model. Respond to it if the service's front end would."""
        found = violations(call.service, call.operation, call.content)
        if not found:
            return None
        self.simulator.log.invalid(call.service, call.operation, call.caller, [str(violation) for violation in found])
        error = rejection(call.service, found)
        if error is None:
            return None
        response = error_response(call.service, error[0], 400, error[1])
        self.record(call, response, None)
        return response

    def perform(self, call: Call, environ: dict[str, Any], body: bytes, fault: Fault | None = None) -> Response:
        """Let moto respond and log the call while holding the lock, so that the log has the real order."""
        shared_iam = self.simulator.shared_iam
        with self.simulator.lock:
            if shared_iam and call.service in GLOBAL_SERVICES:
                response = shared_iam.forward(environ, body)
            else:
                if shared_iam:
                    shared_iam.refresh()
                response = call_app(self.moto, environ, body)
            self.record(call, response, fault)
            if is_read(call.operation):
                self.last_responses[f"{call.service}{call.operation}{call.text}"] = response
            else:
                self.simulator.faults.written(self.simulator.copy_state)
        return response

    def perform_stale(self, call: Call, environ: dict[str, Any], body: bytes, fault: Fault) -> Response:
        """Respond from an earlier state: that when the fault was set, or that before the last writes."""
        with self.simulator.lock:
            if call.service in ("autoscaling", "ec2"):
                with self.simulator.restored_state(fault.states[0]):
                    response = call_app(self.moto, environ, body)
            else:
                response = self.last_responses.get(f"{call.service}{call.operation}{call.text}") or call_app(self.moto, environ, body)
            self.record(call, response, fault)
        return response

    def hold(self, call: Call, environ: dict[str, Any], body: bytes, fault: Fault) -> Response:
        """Hold the response back, before or after the call is performed."""
        held = HeldCall({"service": call.service, "operation": call.operation, "params": call.params, "before": fault.before, "fault": fault.id})
        number = next(HELD_CALL_IDS)
        response = None if fault.before else self.perform(call, environ, body, fault)
        self.simulator.faults.held[number] = held
        held.wait()
        self.simulator.faults.held.pop(number, None)
        if response is None and not held.lose:
            response = self.perform(call, environ, body, fault)
        if response is None:
            self.record(call, NOT_PERFORMED, fault)
        if response is None or held.lose:
            drop_connection(environ)
        return response

    def record(self, call: Call, response: Response, fault: Fault | None) -> None:
        """Write the call to the event log."""
        status = int(response[0].split()[0])
        self.simulator.log.call(
            call.service,
            call.operation,
            params=call.params,
            status=status,
            error=error_code(response) if status >= 300 else None,
            version=template_version(response) if call.operation == "CreateLaunchTemplateVersion" else None,
            fault=fault.action if fault else None,
            caller=call.caller,
        )


def call_app(app: Callable, environ: dict[str, Any], body: bytes) -> Response:
    """Call a WSGI application and collect its whole response."""
    received: dict[str, Any] = {}

    def start_response(status: str, headers: list, _exc_info: Any = None) -> None:
        received.update(status=status, headers=headers)

    result = app({**environ, "wsgi.input": io.BytesIO(body)}, start_response)
    try:
        content = b"".join(result)
    finally:
        if hasattr(result, "close"):
            result.close()
    return received["status"], received["headers"], content


def template_version(response: Response) -> int | None:
    """The number of the launch template version that the call created."""
    match = VERSION.search(response[2])
    return int(match[1]) if match else None


def error_code(response: Response) -> str | None:
    """The service's error code in a response of any protocol."""
    match = ERROR_CODE.search(response[2])
    if match:
        return match[1].decode()
    for name, value in response[1]:
        if name.lower() == "x-amzn-errortype":
            return value.split(":")[0]
    try:
        return json.loads(response[2]).get("__type", "").rsplit("#")[-1] or None
    except (ValueError, AttributeError):
        return None


def fault_response(call: Call, fault: Fault) -> Response:
    """The error response of a fault, in the protocol of the called service."""
    service = call.service
    match fault.action:
        case "throttle":
            code, status = THROTTLING_CODES.get(service, ("Throttling", 400))
            message = "Request limit exceeded." if service == "ec2" else "Rate exceeded"
        case "error5xx":
            code, status, message = SERVER_ERROR_CODES.get(service, "InternalFailure"), 500, "An internal error has occurred"
        case "deny":
            code, status = ACCESS_DENIED_CODES.get(service, "AccessDenied"), 403
            action = f"{service}:{call.operation}"
            message = f"User: arn:aws:sts::123456789012:assumed-role/instance-manager/local is not authorized to perform: {action}"
            message += f" because no identity-based policy allows the {action} action"
        case _:
            code, status, message = fault.code or "ValidationError", fault.status, fault.message or "injected by a fault"
    return error_response(service, fault.code or code, status, fault.message or message)


def error_response(service: str, code: str, status: int, message: str) -> Response:
    """An error response in the protocol of a service."""
    request_id = str(uuid4())
    line = f"{status} {code}"
    if service in JSON_SERVICES:
        content = json.dumps({"__type": code, "message": message}).encode()
        return line, [("Content-Type", "application/x-amz-json-1.1"), ("x-amzn-ErrorType", code)], content
    error = f"<Code>{code}</Code><Message>{escape(message)}</Message>"
    if service == "ec2":
        text = f"<Response><Errors><Error>{error}</Error></Errors><RequestID>{request_id}</RequestID></Response>"
    else:
        text = f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    return line, [("Content-Type", "text/xml")], text.encode()


def drop_connection(environ: dict[str, Any]) -> None:
    """Close the connection without a response, so that the client cannot know the outcome."""
    connection = environ.get("werkzeug.socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError("a fault dropped the response")
