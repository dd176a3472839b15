"""A proxy before a real API server that makes trouble: errors, storms of them, slowness."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from urllib.parse import urlsplit

from tests.support.fakeapi import Answer
from tests.support.kubeconfig import Login
from tests.support.serving import served

Trouble = Callable[[str, str], Answer | None]
"""Takes method and path with query of a request; gives an answer in the server's place, or None."""

_HOP = frozenset({"connection", "transfer-encoding", "content-length", "host", "authorization"})
_CHUNK = 1 << 16


def no_trouble(method: str, path: str) -> None:
    """Let every request through."""


class Troubled:
    """A running proxy: plain HTTP on loopback before the API server of a login.

    Attributes:
        url: its address.
        trouble: what becomes of requests; may be changed while it runs.
        delay_s: how long every request waits before it is passed on.
        troubled: how many requests the proxy answered itself, by status code.
        passed: how many it passed on, by method.
    """

    def __init__(self, login: Login, *, trouble: Trouble = no_trouble, delay_s: float = 0.0) -> None:
        """Take a port; `running` starts and stops it."""
        self.trouble, self.delay_s = trouble, delay_s
        self.troubled: Counter[int] = Counter()
        self.passed: Counter[str] = Counter()
        self.lock = Lock()
        self._login = login
        self._tls = ssl.create_default_context(cadata=login.ca_pem)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def connect(self) -> http.client.HTTPSConnection:
        """Open a connection to the API server."""
        address = urlsplit(self._login.server)
        return http.client.HTTPSConnection(str(address.hostname), address.port, context=self._tls)

    def headers(self, received: Message) -> dict[str, str]:
        """Give the headers of a request as they are passed on."""
        passed_on = {name: value for name, value in received.items() if name.lower() not in _HOP}
        return {**passed_on, "Authorization": f"Bearer {self._login.token}"}

    @contextmanager
    def running(self, kubeconfig: Path) -> Iterator[Troubled]:
        """Serve until the block ends; `kubeconfig` is written so that the login's context leads here."""
        user = {"name": "user", "user": {"token": self._login.token}}
        context = {"cluster": "proxy", "user": "user", "namespace": self._login.namespace}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": self._login.context,
            "clusters": [{"name": "proxy", "cluster": {"server": self.url}}],
            "users": [user],
            "contexts": [{"name": self._login.context, "context": context}],
        }
        kubeconfig.write_text(json.dumps(content))
        with served(self._server):
            yield self


def _handler(proxy: Troubled) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            self.upstream = proxy.connect()

        def finish(self) -> None:
            self.upstream.close()
            super().finish()

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            time.sleep(proxy.delay_s)
            answer = proxy.trouble(self.command, self.path)
            with proxy.lock:
                if answer is None:
                    proxy.passed[self.command] += 1
                else:
                    proxy.troubled[answer.code] += 1
            if answer is None:
                self._pass_on(body)
            else:
                self._answer(answer)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        def _answer(self, answer: Answer) -> None:
            if answer.breaks:
                self.close_connection = True
                return
            text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
            content = text.encode()
            self.send_response(answer.code)
            for name, value in (("Content-Type", answer.content_type), *answer.headers):
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _pass_on(self, body: bytes) -> None:
            try:
                self.upstream.request(self.command, self.path, body or None, proxy.headers(self.headers))
                response = self.upstream.getresponse()
            except (OSError, http.client.HTTPException):
                self.upstream.close()
                self.close_connection = True
                return
            try:
                self._stream(response)
            except (OSError, http.client.HTTPException):  # an answer that broke off breaks off here too
                self.close_connection = True

        def _stream(self, response: http.client.HTTPResponse) -> None:
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while piece := response.read1(_CHUNK):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
            response.close()  # else the connection would not take the next request

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    return Handler
