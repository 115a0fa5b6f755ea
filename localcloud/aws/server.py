"""Starts the simulated AWS.

`LOCAL_AWS_PLAIN_MOTO=1` starts unpatched moto with the same resources: tests of patched behavior must fail there.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="localcloud.aws.server", description="The simulated AWS of the local cloud.")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one (see aws.json)")
    parser.add_argument("--state", required=True, help="directory for aws.json and aws-events.jsonl")
    parser.add_argument("--kubeconfig-json", help='file with {"url", "token", "ca"}; without it there are no nodes')
    parser.add_argument("--delays", default="short", help="short, realistic, or e.g. short,join=3")
    parser.add_argument("--cluster-name", default="demo")
    parser.add_argument("--cluster-version", default="1.32")
    parser.add_argument("--region", default="us-west-2")
    parser.add_argument("--iam", default="", help="endpoint of the simulated AWS of another region, which keeps IAM for both")
    parser.add_argument("--service-cidr", default="172.20.0.0/16")
    parser.add_argument("--authentication-mode", choices=("CONFIG_MAP", "API_AND_CONFIG_MAP", "API"), default="CONFIG_MAP")
    return parser.parse_args(arguments)


def set_moto_environment() -> None:
    """Set the environment variables that moto reads when it is imported."""
    os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    os.environ.setdefault("MOTO_DISABLE_GLOBAL_CORS", "true")
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "local")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "local")
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")


def import_modules() -> None:
    """Import the modules that `serve` uses. They read the environment (see `set_moto_environment`)."""
    import moto.moto_server.werkzeug_app
    import werkzeug.serving

    import localcloud.aws.gateway
    import localcloud.aws.simulator  # noqa: F401


def serve(options: argparse.Namespace) -> None:
    """Create the initial resources and serve requests until the process is killed."""
    import moto.core.responses as responses
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    from localcloud.aws.gateway import Gateway
    from localcloud.aws.settings import Settings, parse_delays
    from localcloud.aws.simulator import Simulator

    patched = os.environ.get("LOCAL_AWS_PLAIN_MOTO", "") in ("", "0")
    kube = json.loads(Path(options.kubeconfig_json).read_text()) if options.kubeconfig_json else None
    settings = Settings(
        state_dir=options.state,
        delays=parse_delays(options.delays),
        region=options.region,
        iam=options.iam,
        cluster_name=options.cluster_name,
        cluster_version=options.cluster_version,
        service_cidr=options.service_cidr,
        authentication_mode=options.authentication_mode,
    )
    simulator = Simulator(settings, kube, patched)
    # moto lists the methods of a class for every call, which takes longer than most calls. Cache the list.
    responses.method_names_from_class = functools.cache(responses.method_names_from_class)
    moto = DomainDispatcherApplication(create_backend_app)
    # moto lists its directory and matches the patterns of all services for every call. Cache the result.
    moto.get_backend_for_host = functools.cache(moto.get_backend_for_host)

    class QuietRequestHandler(MotoRequestHandler):
        """A request handler that logs nothing: the event log has every call."""

        def log_request(self, *_: Any) -> None:
            pass

    class KeepAliveRequestHandler(QuietRequestHandler):
        """A request handler that keeps connections open. werkzeug's starts a thread for every call."""

        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def run_wsgi(self) -> None:
            started: list[Any] = []
            environ = self.make_environ()
            # The gateway reads a body of a known length only.
            self.close_connection = self.close_connection or "Transfer-Encoding" in self.headers
            try:
                content = b"".join(self.server.app(environ, lambda *start: started.extend(start)))
            except ConnectionAbortedError:
                self.close_connection = True
                return
            except Exception:
                logging.exception("%s %s", self.command, self.path)
                started, content = ["500 Internal Server Error", []], b""
            status, headers = started[:2]
            code, _, reason = status.partition(" ")
            self.send_response(int(code), reason)
            for name, value in headers:
                if name.lower() not in ("connection", "content-length", "date", "server"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    app, handler = (Gateway(simulator, moto), KeepAliveRequestHandler) if patched else (moto, QuietRequestHandler)
    server = make_server("127.0.0.1", options.port, app, threaded=True, request_handler=handler)
    server.daemon_threads = True
    # Nearly all objects are modules, models and resources, which live as long as this process. Looking for garbage among
    # them takes a tenth of its CPU time.
    gc.freeze()
    gc.set_threshold(50_000)
    write_connection_info(Path(options.state), simulator.connection_info | {"aws_endpoint": f"http://127.0.0.1:{server.server_port}"})
    server.serve_forever()


def write_connection_info(state: Path, info: dict[str, Any]) -> None:
    """Write aws.json atomically, so that readers never see a part of it."""
    info["control"] = info["aws_endpoint"] + "/_local"
    info["env"] = {
        "AWS_ENDPOINT_URL": info["aws_endpoint"],
        "AWS_REGION": info["region"],
        "AWS_DEFAULT_REGION": info["region"],
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    partial = state / "aws.json.partial"
    partial.write_text(json.dumps(info, indent=1))
    partial.rename(state / "aws.json")


def main(arguments: list[str] | None = None) -> None:
    """Entry point. `arguments` replace those of the command line."""
    logging.basicConfig(level=logging.WARNING, format="aws: %(levelname)s %(name)s: %(message)s")
    options = parse_arguments(arguments)
    Path(options.state).mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    set_moto_environment()
    serve(options)


if __name__ == "__main__":
    sys.exit(main())
