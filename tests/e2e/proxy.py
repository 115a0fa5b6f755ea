"""A proxy in front of the API server: it holds one chosen write, fails, loses or delays requests, and freezes or cuts watches.

The controller reaches it through a kubeconfig of its own; watches and other long answers stream through.
"""

import contextlib
import dataclasses
import http.client
import http.server
import json
import pathlib
import re
import select
import socket
import ssl
import threading
import urllib.parse

TLS = ssl._create_unverified_context()
WRITES = ("POST", "PUT", "PATCH", "DELETE")
HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


class Held:
    """One write that is to be held: the first that fits, after `skip` others."""

    def __init__(self, method, path, before, skip=0):
        self.method, self.path, self.before, self._skip = method, re.compile(path), before, skip
        self.reached = threading.Event()
        self._go = threading.Event()
        self._lose = False
        self.taken = False

    def fits(self, method, path):
        """Whether a request is the one; counts those before it."""
        if method not in WRITES or self.taken or not re.fullmatch(self.method, method) or not self.path.search(path):
            return False
        self._skip -= 1
        return self._skip < 0

    def wait(self):
        """Blocks the request until it is released; whether its answer is to be lost."""
        self.reached.set()
        self._go.wait()
        return self._lose

    def release(self, lose):
        """Lets the answer go, or drops the connection."""
        self._lose = lose
        self._go.set()


STATUS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
"""The reasons that the API server gives with a code."""


def refusal(code):
    """The Status with which the API server refuses a request."""
    reason = STATUS[code]
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": f"{reason}: a fault of the test", "reason": reason, "code": code}


@dataclasses.dataclass
class Fault:
    """What happens to requests whose method and path fit: `after` of them pass, then `count` are hit (-1: all).

    They are answered after `seconds`, with `status` (a key of STATUS) and not performed, or not answered: `lose` is
    "request" (not performed) or "answer" (performed).
    """

    method: str = ".*"
    path: str = ""
    status: int = 0
    lose: str = ""
    seconds: float = 0
    after: int = 0
    count: int = 1
    hits: int = 0
    ended: threading.Event = dataclasses.field(default_factory=threading.Event)

    def meets(self, method, path):
        """Whether it hits a request; counts it."""
        if self.count == 0 or not re.fullmatch(self.method, method) or not re.search(self.path, path):
            return False
        if self.after:
            self.after -= 1
            return False
        self.count -= self.count > 0
        self.hits += 1
        return True


class Watch:
    """One open watch of the controller, which `Proxy.cut` ends."""

    def __init__(self, path, upstream):
        self.path, self._upstream, self.ending = path, upstream, None

    def end(self, ending):
        """Ends it, as "cut" or "expired"."""
        self.ending = ending
        with contextlib.suppress(OSError, AttributeError):
            self._upstream.sock.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Listens on a free port of the loopback address until `stop`."""

    def __init__(self, cloud):
        target = urllib.parse.urlsplit(cloud["apiserver"])
        proxy = self

        class Handler(_Handler):
            pass

        Handler.proxy, Handler.target = proxy, target
        self.token = cloud.controller_token
        """client-go sends none over plain HTTP."""
        self._lock = threading.Lock()
        self._held = []
        self._faults = []
        self._watches = set()
        self._frozen, self._moving = None, threading.Event()
        self.written = []
        """Method and path of every write that passed, in order."""
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        # A client that ends has nothing to read.
        self._server.handle_error = lambda *_: None
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.kubeconfig = self._write_kubeconfig(cloud)

    def _write_kubeconfig(self, cloud):
        config = json.loads(pathlib.Path(cloud["controller_kubeconfig"]).read_text())
        host, port = self._server.server_address
        config["clusters"][0]["cluster"] = {"server": f"http://{host}:{port}"}
        path = pathlib.Path(cloud["state"]) / f"proxy-{port}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        return path

    def hold(self, method, path, before=False, skip=0):
        """Holds the next write whose method and path match these patterns, after `skip` others."""
        held = Held(method, path, before, skip)
        with self._lock:
            self._held.append(held)
        return held

    def fault(self, **fields):
        """Fails, loses or delays requests from now on, until `end_fault`; see Fault."""
        fault = Fault(**fields)
        with self._lock:
            self._faults.append(fault)
        return fault

    def end_fault(self, fault):
        """Ends a fault; requests that it delays continue."""
        with self._lock:
            self._faults = [each for each in self._faults if each is not fault]
        fault.ended.set()

    def end_hold(self, held):
        """Ends a hold: a write that it holds gets no answer, and no other write is held."""
        with self._lock:
            self._held = [each for each in self._held if each is not held]
            held.taken = True
        held.release(lose=True)

    def cut(self, path="", ending="cut"):
        """Ends the open watches whose path fits: "cut" drops the connection, "expired" says that it has to list again (410)."""
        with self._lock:
            found = [watch for watch in self._watches if re.search(path, watch.path)]
        for watch in found:
            watch.end(ending)
        return len(found)

    @contextlib.contextmanager
    def watching(self, path, upstream):
        """Registers an open watch, for `cut`."""
        watch = Watch(path, upstream)
        with self._lock:
            self._watches.add(watch)
        try:
            yield watch
        finally:
            with self._lock:
                self._watches.discard(watch)

    def freeze(self, path):
        """Holds back what watches of a path (a pattern) answer, until `thaw`. Other reads answer as always."""
        self._moving.clear()
        self._frozen = path

    def thaw(self):
        """Resumes the watches."""
        self._frozen = None
        self._moving.set()

    def wait_moving(self, path):
        """Blocks the answer of a watch while it is frozen."""
        url = urllib.parse.urlsplit(path)
        while (frozen := self._frozen) and re.fullmatch(frozen, url.path) and "watch=" in url.query:
            self._moving.wait()

    def take(self, method, path):
        """The hold and the fault that a request meets, if any."""
        with self._lock:
            fault = next((each for each in self._faults if each.meets(method, path)), None)
            if fault and (fault.status or fault.lose == "request"):
                return None, fault
            found = next((held for held in self._held if held.fits(method, path)), None)
            if found:
                found.taken = True
            if method in WRITES:
                self.written.append((method, path))
            return found, fault

    def clear(self):
        """Forgets what was not met, and lets everything else go without an answer."""
        self.thaw()
        with self._lock:
            for fault in self._faults:
                fault.ended.set()
            self._faults.clear()
            for held in self._held:
                held.taken = True
                held.release(lose=True)
            self._held.clear()

    def stop(self):
        """Ends the faults, answers what is held, and closes the port."""
        self.clear()
        self._server.shutdown()
        self._server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    _kept = None
    """The connection to the API server that the next request of this client may use."""

    def log_message(self, *_):
        """Drops the log lines of http.server, one for each request."""

    def _serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
        held, fault = self.proxy.take(self.command, self.path)
        if fault:
            fault.ended.wait(fault.seconds)
            if fault.lose == "request":
                return self._drop()
            if fault.status:
                return self._refuse(fault.status)
        if held and held.before and held.wait():
            return self._drop()
        upstream, answer = self._connection(), None
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
            if "Authorization" not in self.headers:
                headers["Authorization"] = f"Bearer {self.proxy.token}"
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            if fault and fault.lose:
                answer.read()
                return self._drop()
            if held and not held.before:
                content = answer.read()
                return self._drop() if held.wait() else self._whole(answer, content)
            return self._stream(answer, upstream)
        except (OSError, http.client.HTTPException):
            return self._drop()
        finally:
            self._keep_or_close(upstream, answer)

    def _connection(self):
        """A connection to the API server: that of the client's last request, if it is still open."""
        kept, self._kept = self._kept, None
        if kept is not None and not select.select([kept.sock], [], [], 0)[0]:
            return kept
        if kept is not None:
            kept.close()
        return http.client.HTTPSConnection(self.target.hostname, self.target.port, context=TLS)

    def _keep_or_close(self, upstream, answer):
        """Keeps a connection for the next request if the answer was read to its end, and closes it otherwise."""
        if answer is not None and answer.isclosed() and not answer.will_close:
            self._kept = upstream
        else:
            upstream.close()

    def finish(self):
        """The client has gone."""
        if self._kept is not None:
            self._kept.close()
        super().finish()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _head(self, answer, extra):
        self.send_response(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in HOP:
                self.send_header(name, value)
        self.send_header(*extra)
        self.end_headers()

    def _whole(self, answer, content):
        self._head(answer, ("Content-Length", str(len(content))))
        self.wfile.write(content)

    def _refuse(self, code):
        content = json.dumps(refusal(code)).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, answer, upstream):
        if answer.length is not None:
            return self._whole(answer, answer.read())
        self._head(answer, ("Transfer-Encoding", "chunked"))
        if "watch=" not in self.path:
            return self._pass(answer)
        with self.proxy.watching(self.path, upstream) as watch:
            try:
                self._pass(answer)
            except (OSError, http.client.HTTPException):
                if watch.ending != "expired":
                    raise
                self._chunk(json.dumps({"type": "ERROR", "object": refusal(410)}).encode() + b"\n")
                self._chunk(b"")
        return None

    def _pass(self, answer):
        while piece := answer.read1(65536):
            self.proxy.wait_moving(self.path)
            self._chunk(piece)
        self._chunk(b"")

    def _chunk(self, piece):
        self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.flush()

    def _drop(self):
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(2)
