"""A tiny HTTP server on loopback that answers as a test tells it: recorded answers, and faults."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from mlstack.kube.api_server import ApiServerClient
from tests.support.serving import served

JSON = "application/json"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request as the server saw it; `query` has the last value of each parameter."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server gives.

    Attributes:
        code: HTTP status.
        body: JSON value, raw text or bytes; a list of bytes is sent in chunks.
        content_type: media type.
        headers: more headers, each possibly several times.
        breaks: close the connection instead of answering, or after the last chunk without ending the stream.
    """

    code: int = 200
    body: Any = field(default_factory=dict)
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    breaks: bool = False


Script = Callable[[Asked], Answer]


class FakeApi:
    """A running server.

    Attributes:
        url: its address.
        asked: all requests so far.
        connections: how many were made so far.
    """

    def __init__(self, script: Script, tls: ssl.SSLContext | None) -> None:
        """Take a port; `running` starts and stops it."""
        self.asked: list[Asked] = []
        self.connections = 0
        self._script = script
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.handle_error = lambda request, client: None  # type: ignore[method-assign]
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, asked: Asked) -> Answer:
        """Note a request and give the answer of the script."""
        self.asked.append(asked)
        return self._script(asked)

    @contextmanager
    def running(self) -> Iterator[FakeApi]:
        """Serve until the block ends."""
        with served(self._server):
            yield self


Serve = Callable[[Script], tuple[FakeApi, ApiServerClient]]
"""Starts a server with a script; gives it and a client of it."""


def serve(script: Script, *, tls: ssl.SSLContext | None = None) -> FakeApi:
    """Prepare a server; it runs while its `running` block does."""
    return FakeApi(script, tls)


def always(answer: Answer) -> Script:
    """Give the same answer to everything."""
    return lambda asked: answer


def in_turn(*answers: Answer) -> Script:
    """Give one answer after the other."""
    rest = iter(answers)
    return lambda asked: next(rest)


def status(code: int, message: str = "", *, reason: str = "", **details: Any) -> Answer:
    """Give the Status answer of a Kubernetes API server."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body |= {"code": code, "message": message}
    if reason:
        body["reason"] = reason
    if details:
        body["details"] = details
    return Answer(code=code, body=body)


def kubeconfig(folder: Path, server: str, *, user: Mapping[str, Any] | None = None, **cluster: Any) -> str:
    """Write a kubeconfig whose one context `test` leads to a server, and give its place."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user if user is not None else {"token": "token-of-tests"}}],
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(content))
    return str(file)


def _handler(api: FakeApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            api.connections += 1
            super().setup()

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            parts = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
            asked = Asked(
                method=self.command,
                path=parts.path,
                query=query,
                headers={key.lower(): value for key, value in self.headers.items()},
                body=json.loads(raw) if raw else None,
            )
            self._give(api.answer(asked))

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        def _give(self, answer: Answer) -> None:
            if isinstance(answer.body, list) and all(isinstance(part, bytes) for part in answer.body):
                self._give_chunks(answer)
                return
            if answer.breaks:
                self.close_connection = True
                return
            body = answer.body
            data = (
                body
                if isinstance(body, bytes)
                else (body.encode() if isinstance(body, str) else json.dumps(body).encode())
            )
            self._head(answer, ("Content-Length", str(len(data))))
            self.wfile.write(data)

        def _give_chunks(self, answer: Answer) -> None:
            self._head(answer, ("Transfer-Encoding", "chunked"))
            for part in answer.body:
                self.wfile.write(b"%X\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
            if answer.breaks:
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")

        def _head(self, answer: Answer, size: tuple[str, str]) -> None:
            self.send_response(answer.code)
            for name, value in (("Content-Type", answer.content_type), size, *answer.headers):
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler
