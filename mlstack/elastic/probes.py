"""Answers `/healthz`, `/readyz` and `/metrics` over HTTP."""

from __future__ import annotations

import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from mlstack.elastic.health import Metrics


class HealthServer:
    """Answers `/healthz`, `/readyz` and `/metrics`.

    Args:
        metrics: what is told.
        address: where to listen, a name or an address of either family; empty and `::` are every address of
            this machine, IPv4 and IPv6, as far as it has them.
        port: likewise; 0 for a free one.
    """

    def __init__(self, metrics: Metrics, *, address: str, port: int) -> None:
        """Open the port.

        Raises:
            OSError: it cannot be opened.
        """
        listening = _listening_socket(address, port)
        self._server = ThreadingHTTPServer(
            listening.getsockname()[:2], _handler(metrics), bind_and_activate=False
        )
        self._server.socket.close()
        self._server.socket = listening

    @property
    def port(self) -> int:
        """Give the port."""
        return int(self._server.socket.getsockname()[1])

    def start(self) -> None:
        """Begin to answer, in a thread."""
        Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


def _listening_socket(address: str, port: int) -> socket.socket:
    """Open a port; kubelets of an IPv6-only cluster probe by IPv6, and a node may have IPv6 switched off."""
    if address in ("", "::") and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    family = socket.getaddrinfo(address or "0.0.0.0", port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((address, port), family=family)


def _handler(metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, metrics.text(), "text/plain; version=0.0.4; charset=utf-8")
            elif path in ("/healthz", "/readyz"):
                good = metrics.is_alive if path == "/healthz" else metrics.is_ready
                self._answer(200 if good else 503, b"ok\n" if good else b"not yet\n", "text/plain")
            else:
                self._answer(404, b"there are /healthz, /readyz and /metrics\n", "text/plain")

        def _answer(self, code: int, body: bytes, content_type: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: probes come every few seconds."""

    return Handler
