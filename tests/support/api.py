"""Speak to a Kubernetes API server by hand, so that tests see the cluster with other eyes than mlstack's."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

Json = dict[str, Any]

_PATIENCE = 20
_PAUSE_S = 0.25


class ApiRefusedError(Exception):
    """The server answered with an error.

    Attributes:
        status: the HTTP status.
        body: the answer: a Status object, or `{"text": ...}` where the server sent plain text.
    """

    def __init__(self, request: str, status: int, body: Json) -> None:
        super().__init__(f"{request}: {status} {body.get('message') or body}")
        self.status = status
        self.body = body


class ApiClient:
    """One user at one API server; a connection a request."""

    def __init__(self, server: str, *, ca_pem: str, token: str, timeout_s: float = 30.0) -> None:
        """Prepare a client; nothing is sent.

        Args:
            server: `https://host:port`.
            ca_pem: the certificate that signs the server's.
            token: the user's bearer token.
            timeout_s: seconds after which an unanswered request fails.
        """
        self._address = urlsplit(server)
        self._context = ssl.create_default_context(cadata=ca_pem)
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._timeout_s = timeout_s

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | list[Any] | None = None,
        *,
        content_type: str = "application/json",
    ) -> Json:
        """Send one request and give the answer.

        Args:
            method: GET, POST, PUT, PATCH, DELETE.
            path: path and query.
            body: sent as JSON.
            content_type: of the body; a PATCH needs `application/merge-patch+json` or its like.

        A server that asks for patience (429, as for the objects of a CRD that is new) is asked again.

        Raises:
            ApiRefusedError: the answer's status is 400 or more.
            OSError: the server cannot be reached.
        """
        text = None if body is None else json.dumps(body)
        status, answer = 429, {}
        for _ in range(_PATIENCE):
            status, answer = self._send(method, path, text, content_type)
            if status != 429:
                break
            time.sleep(_PAUSE_S)
        if status >= 400:
            raise ApiRefusedError(f"{method} {path}", status, answer)
        return answer

    def _send(self, method: str, path: str, text: str | None, content_type: str) -> tuple[int, Json]:
        host, port = str(self._address.hostname), self._address.port
        connection = http.client.HTTPSConnection(host, port, context=self._context, timeout=self._timeout_s)
        try:
            connection.request(method, path, text, {**self._headers, "Content-Type": content_type})
            response = connection.getresponse()
            return response.status, _parse(response.read())
        finally:
            connection.close()

    def find(self, path: str) -> Json | None:
        """Give the object at `path`, or None where there is none."""
        try:
            return self.request("GET", path)
        except ApiRefusedError as error:
            if error.status == 404:
                return None
            raise

    def is_ready(self) -> bool:
        """Say whether the server answers that it is ready to serve."""
        try:
            self.request("GET", "/readyz")
        except (OSError, http.client.HTTPException, ApiRefusedError):
            return False
        return True


def _parse(answer: bytes) -> Json:
    text = answer.decode()
    try:
        return cast(Json, json.loads(text))
    except ValueError:
        return {"text": text}
