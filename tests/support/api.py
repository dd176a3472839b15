"""Speak to a Kubernetes API server by hand, so that tests see the cluster with other eyes than mlstack's."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping
from typing import Any, cast

import urllib3

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
    """One user at one API server; any number of threads may ask at once."""

    def __init__(self, server: str, *, ca_pem: str, token: str, timeout_s: float = 30.0) -> None:
        """Prepare a client; nothing is sent.

        Args:
            server: `https://host:port`.
            ca_pem: the certificate that signs the server's.
            token: the user's bearer token.
            timeout_s: seconds after which an unanswered request fails.
        """
        context = ssl.create_default_context(cadata=ca_pem)
        self._pool = urllib3.connection_from_url(
            server, ssl_context=context, timeout=timeout_s, retries=False, maxsize=16
        )
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | list[Any] | None = None,
        *,
        content_type: str = "",
    ) -> Json:
        """Send one request and give the answer.

        Args:
            method: GET, POST, PUT, PATCH, DELETE.
            path: path and query.
            body: sent as JSON.
            content_type: of the body; without one, a PATCH is a merge patch.

        A server that asks for patience (429, as for the objects of a CRD that is new) is asked again.

        Raises:
            ApiRefusedError: the answer's status is 400 or more.
            OSError: the server cannot be reached.
        """
        return self.request_with_warnings(method, path, body, content_type=content_type)[0]

    def request_with_warnings(
        self, method: str, path: str, body: Any = None, *, content_type: str = ""
    ) -> tuple[Json, list[str]]:
        """Do what `request` does, and give the warnings beside the answer too."""
        text = None if body is None else json.dumps(body)
        content_type = content_type or f"application/{'merge-patch+' if method == 'PATCH' else ''}json"
        for _ in range(_PATIENCE):
            response = self._send(method, path, text, content_type)
            if response.status != 429:
                break
            time.sleep(_PAUSE_S)
        answer = _parse(response.data)
        if response.status >= 400:
            raise ApiRefusedError(f"{method} {path}", response.status, answer)
        return answer, response.headers.getlist("Warning")

    def _send(self, method: str, path: str, text: str | None, content_type: str) -> urllib3.BaseHTTPResponse:
        headers = {**self._headers, "Content-Type": content_type}
        try:
            return self._pool.urlopen(method, path, text, headers, retries=False)
        except urllib3.exceptions.HTTPError as error:
            raise OSError(f"{method} {path}: {error}") from error

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
        except (OSError, ApiRefusedError):
            return False
        return True


def _parse(answer: bytes) -> Json:
    text = answer.decode()
    try:
        return cast(Json, json.loads(text))
    except ValueError:
        return {"text": text}
