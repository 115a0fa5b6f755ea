"""A proxy in front of the API server that holds one chosen write, before or after it is performed, or freezes a watch.

The controller reaches it through a kubeconfig of its own; watches and other long answers stream through.
"""

import contextlib
import http.client
import http.server
import json
import pathlib
import re
import ssl
import threading
import urllib.parse

WRITES = ("POST", "PUT", "PATCH", "DELETE")
HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


class Held:
    """One write that is to be held: the first that fits and is not passed over."""

    def __init__(self, method, path, before):
        self.method, self.path, self.before = method, re.compile(path), before
        self.reached = threading.Event()
        self._go = threading.Event()
        self._lose = False
        self.taken = False

    def fits(self, method, path):
        """Whether a request is the one."""
        return method in WRITES and not self.taken and re.fullmatch(self.method, method) and self.path.search(path)

    def wait(self):
        """Blocks the request until it is released; whether its answer is to be lost."""
        self.reached.set()
        self._go.wait()
        return self._lose

    def release(self, lose):
        """Lets the answer go, or drops the connection."""
        self._lose = lose
        self._go.set()


class Proxy:
    """Listens on a free port of the loopback address until `stop`."""

    def __init__(self, cloud):
        target = urllib.parse.urlsplit(cloud["apiserver"])
        proxy = self

        class Handler(_Handler):
            pass

        Handler.proxy, Handler.target = proxy, target
        self._lock = threading.Lock()
        self._held = []
        self._frozen, self._moving = None, threading.Event()
        self.written = []
        """Method and path of every write that passed, in order."""
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
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

    def hold(self, method, path, before=False):
        """Holds the next write whose method and path match these patterns."""
        held = Held(method, path, before)
        with self._lock:
            self._held.append(held)
        return held

    def freeze(self, path):
        """Holds back what watches of a path answer, until `thaw`. Other reads answer as always."""
        self._moving.clear()
        self._frozen = path

    def thaw(self):
        """Lets the watches go on."""
        self._frozen = None
        self._moving.set()

    def wait_moving(self, path):
        """Blocks the answer of a watch while it is frozen."""
        url = urllib.parse.urlsplit(path)
        while self._frozen == url.path and "watch=" in url.query:
            self._moving.wait()

    def take(self, method, path):
        """The hold that a request meets, if any."""
        with self._lock:
            found = next((held for held in self._held if held.fits(method, path)), None)
            if found:
                found.taken = True
            if method in WRITES:
                self.written.append((method, path))
            return found

    def clear(self):
        """Forgets what was not met, and lets everything else go without an answer."""
        self.thaw()
        with self._lock:
            for held in self._held:
                held.taken = True
                held.release(lose=True)
            self._held.clear()

    def stop(self):
        """Ends it."""
        self.clear()
        self._server.shutdown()
        self._server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Says nothing."""

    def _serve(self):
        held = self.proxy.take(self.command, self.path)
        if held and held.before and held.wait():
            return self._drop()
        upstream = http.client.HTTPSConnection(self.target.hostname, self.target.port, context=ssl._create_unverified_context())
        with contextlib.closing(upstream), contextlib.suppress(OSError, http.client.HTTPException):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            if held and not held.before:
                content = answer.read()
                return self._drop() if held.wait() else self._whole(answer, content)
            return self._stream(answer)
        return self._drop()

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

    def _stream(self, answer):
        if answer.length is not None:
            return self._whole(answer, answer.read())
        self._head(answer, ("Transfer-Encoding", "chunked"))
        while piece := answer.read1(65536):
            self.proxy.wait_moving(self.path)
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        return None

    def _drop(self):
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(2)
