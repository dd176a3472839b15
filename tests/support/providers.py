"""An identity provider (OpenID Connect) on loopback, which gives tokens for a refresh-token."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from tests.support.certificates import self_signed, tls_server
from tests.support.serving import served

LATER_S = 4_000_000_000


def id_token(*, expires_s: float, name: str = "ada") -> str:
    """Write a token that nobody signed."""
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires_s, "sub": name}).encode()).decode()
    return f"e30.{claims.rstrip('=')}.c2ln"


class FakeProvider:
    """A provider that takes one refresh-token at a time: `refresh-1`, then `refresh-2`, and so on.

    Attributes:
        url: its address.
        ca: the file by which it is verified.
        asked: the forms by which it was asked for tokens.
        gives: what it answers instead of tokens, as status and JSON.
        own: the token that it gives, instead of made-up ones.
        silent: keep the refresh-token instead of giving another one.
        wants_form: refuse who shows the client's password beside the form.
        moved: where it sends those that ask it for tokens.
        endpoint: where it says that tokens are to be asked for, instead of itself.
    """

    def __init__(self, folder: Path) -> None:
        """Take a port; `running` starts and stops it."""
        tls, self.ca = tls_server(folder, self_signed("127.0.0.1", seed="provider"), "provider")
        self.asked: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.gives: tuple[int, Any] | None = None
        self.own = ""
        self.silent = self.wants_form = False
        self.moved = ""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.handle_error = lambda request, client: None  # type: ignore[method-assign]
        self._server.socket = tls.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        self.endpoint: Any = f"{self.url}/token"

    def user(self, token: str | None, **more: str) -> dict[str, Any]:
        """Give the user of a kubeconfig that has a token of it."""
        config = {
            "idp-issuer-url": self.url,
            "client-id": "mlstack",
            "refresh-token": "refresh-1",
            "idp-certificate-authority": self.ca,
            **({"id-token": token} if token else {}),
            **more,
        }
        return {"auth-provider": {"name": "oidc", "config": {k: v for k, v in config.items() if v}}}

    @contextmanager
    def running(self) -> Iterator[FakeProvider]:
        """Serve until the block ends."""
        with served(self._server):
            yield self

    def token(self, number: int) -> str:
        """Give the token of a number, counted from 1."""
        return self.own or id_token(expires_s=LATER_S + number)

    def answer(self, form: dict[str, str]) -> tuple[int, Any]:
        """Take a refresh-token for other ones."""
        self.asked.append(form)
        if self.wants_form and "authorization" in form:
            return 401, {"error": "invalid_client"}
        number = len(self.asked)
        if self.gives is not None:
            return self.gives
        if form.get("refresh_token") != (
            "refresh-1" if self.silent or self.wants_form else f"refresh-{number}"
        ):
            return 400, {"error": "invalid_grant", "error_description": str(form)}
        tokens = {"access_token": "a", "token_type": "Bearer", "id_token": self.token(number)}
        return 200, tokens if self.silent else {**tokens, "refresh_token": f"refresh-{number + 1}"}


def _handler(provider: FakeProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.paths.append(self.path)
            is_known = self.path == "/.well-known/openid-configuration"
            self._give(200 if is_known else 404, {"token_endpoint": provider.endpoint} if is_known else {})

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {key: values[-1] for key, values in parse_qs(raw).items()}
            if "Authorization" in self.headers:
                form["authorization"] = self.headers["Authorization"]
            if provider.moved:
                self._give(307, {})
                return
            self._give(*provider.answer(form))

        def _give(self, code: int, body: Mapping[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            if code == 307:
                self.send_header("Location", provider.moved)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler
