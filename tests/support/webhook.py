"""An admission webhook that this process answers for."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tests.support.certificates import self_signed, tls_server

Review = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Answers one question of the API server, None by hanging up."""


def allow(request: Mapping[str, Any]) -> dict[str, Any]:
    """Let everything pass."""
    return {"uid": request["uid"], "allowed": True}


@contextmanager
def admission(
    folder: Path,
    review: Review = allow,
    *,
    address: str = "127.0.0.1",
    name: str = "",
    begin: Event | None = None,
) -> Iterator[tuple[int, str]]:
    """Take a port now, and answer there once it may begin; gives the port, and the authority in base64.

    Args:
        folder: gets the certificate.
        review: answers the questions.
        address: where it listens.
        name: by which the API server verifies it; its address without.
        begin: until this is set, nobody answers.
    """
    certificate = self_signed(name or address)
    context, _ = tls_server(folder, certificate, "hook")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = review(question["request"])
            if answer is None:
                self.close_connection = True
                return
            body = json.dumps({**question, "response": answer}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((address, 0), Handler, bind_and_activate=False)
    server.daemon_threads = True
    server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
    server.server_bind()
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)

    def serve() -> None:
        if begin is not None:
            begin.wait()
        server.server_activate()
        server.serve_forever(poll_interval=0.05)

    thread = Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], base64.b64encode(certificate.certificate.encode()).decode()
    finally:
        if begin is not None:
            begin.set()
        server.shutdown()
        server.server_close()
        thread.join()
