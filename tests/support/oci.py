"""OCI registries for tests: a real server, and one in this process that can be told to misbehave."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.processes import Program, answers, free_port
from tests.support.serving import served
from tests.support.tools import tool

USER, PASSWORD = "ada", "not-a-secret"
_HTPASSWD = "ada:$2b$04$ad61lmaU5fnHBpSAiQ5.d.7lf7psMGQCZYMlMrgZxVrBp6MNzq71W\n"
_CONFIG = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: {root}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
_LOGIN = "auth:\n  htpasswd: {{realm: tests, path: {file}}}\n"


@contextmanager
def real_registry(folder: Path, *, login: bool = False) -> Iterator[str]:
    """Run the registry server of the distribution project, and give its `HOST:PORT`."""
    port = free_port()
    text = _CONFIG.format(root=folder / "data", port=port)
    if login:
        (folder / "htpasswd").write_text(_HTPASSWD)
        text += _LOGIN.format(file=folder / "htpasswd")
    (folder / "registry.yml").write_text(text)
    command = [tool("registry"), "serve", folder / "registry.yml"]
    server = Program("registry", command, log=folder / "registry.log")
    server.start()
    try:
        server.wait_until(lambda: answers(port), what="listens")
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a registry answers."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False  # the connection ends with the body, whatever length the headers promise


Fault = Callable[["FakeRegistry", str, str, dict[str, str]], Reply | None]
"""Is told method, path and headers of a request; gives the answer in place of the right one, or nothing."""


class FakeRegistry:
    """Blobs and manifests in memory, behind the API of the distribution specification."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[tuple[str, str], bytes] = {}  # by repository, and tag or digest
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.bodies: list[bytes] = []
        self.fault: Fault = lambda registry, method, path, headers: None
        self.host = ""
        self.lists_referrers = False  # whether it tells what says that it belongs to a manifest

    @contextmanager
    def running(self, tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
        """Answer on a port of this machine."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        self.host = f"127.0.0.1:{server.server_address[1]}"
        with served(server):
            yield self

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        """Answer a request."""
        self.requests.append((method, path, headers))
        self.bodies.append(body)
        if (reply := self.fault(self, method, path, headers)) is not None:
            return reply
        plain, _, query = path.partition("?")
        if tags := re.fullmatch(r"/v2/(.+)/tags/list", plain):
            listed = sorted(tag for name, tag in self.manifests if name == tags[1] and ":" not in tag)
            return Reply(body=json.dumps({"tags": listed}).encode())
        if self.lists_referrers and (about := re.fullmatch(r"/v2/(.+)/referrers/(.+)", plain)):
            return Reply(body=json.dumps({"manifests": self._referrers(*about.groups())}).encode())
        parts = re.fullmatch(r"/v2/(.+)/(manifests|blobs)/(.+)", plain)
        if method == "POST":
            return Reply(status=202, headers={"Location": f"{plain}1?state=x"})
        if method == "PUT" and "/uploads/" in plain:
            self.blobs[query.rpartition("digest=")[2]] = body
            return Reply(status=201)
        if parts is None:
            return Reply(status=404)
        name, kind, reference = parts.groups()
        if method == "PUT":
            digest = f"sha256:{sha256(body).hexdigest()}"
            self.manifests |= {(name, reference): body, (name, digest): body}
            return Reply(status=201)
        data = self.blobs.get(reference) if kind == "blobs" else self.manifests.get((name, reference))
        if data is None:
            code = {"errors": [{"code": "BLOB_UNKNOWN"}]}
            return Reply(status=404, body=json.dumps(code).encode())
        return Reply(body=data)

    def _referrers(self, name: str, digest: str) -> list[dict[str, object]]:
        return [
            {"digest": reference, "size": len(data)}
            for (owner, reference), data in self.manifests.items()
            if owner == name
            and ":" in reference
            and (json.loads(data).get("subject") or {}).get("digest") == digest
        ]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                reply = registry.answer(self.command, self.path, dict(self.headers), body)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                if not reply.cut:
                    self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.close_connection = reply.cut
                if self.command != "HEAD":
                    self.wfile.write(reply.body)

            do_GET = do_HEAD = do_POST = do_PUT = _do

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        return Handler
