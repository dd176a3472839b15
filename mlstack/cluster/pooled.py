"""Requests over the connection pool that the `kubernetes` library sets up: proxies and all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from mlstack.cluster import wire
from mlstack.cluster.wire import CONNECT_TIMEOUT_S, FaultError, Received, Sent


class Pooled:
    """Carries requests over a pool of urllib3.

    Args:
        pool: urllib3's pool manager, set up for the server.
        server: address of the server.
    """

    def __init__(self, pool: Any, server: str) -> None:
        """Hold the parts; nothing is sent."""
        self._pool, self._server = pool, server.rstrip("/")

    def expect(self, requests: int) -> None:
        """Do nothing: the pool connects when a request comes."""

    def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None,
        headers: Sent,
        read_timeout_s: float,
        whole: bool,
    ) -> Received:
        """Send a request and wait for the answer."""
        from urllib3 import HTTPHeaderDict, Timeout
        from urllib3.exceptions import HTTPError

        fields = HTTPHeaderDict({"Accept-Encoding": "gzip"})
        for name, value in headers.items():
            for one in value if isinstance(value, tuple) else (value,):
                fields.add(name, one)
        try:
            raw = self._pool.request(
                method,
                f"{self._server}{path}",
                body=body,
                headers=fields,
                timeout=Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s),
                retries=False,
                redirect=False,
                preload_content=whole,
            )
            data = raw.data if whole or raw.status != 200 else b""
        except (HTTPError, OSError, ValueError) as error:
            # What is wrong with a header repeats it, a token included.
            raise _fault(error) from (None if isinstance(error, ValueError) else error)
        return Received(
            status=raw.status,
            headers=raw.headers,
            warnings=raw.headers.getlist("Warning"),
            data=data,
            chunks=partial(_chunks, raw),
            close=raw.close,
        )


def _chunks(raw: Any) -> Iterator[bytes]:
    from urllib3.exceptions import HTTPError

    try:
        yield from raw.stream(1 << 16, decode_content=True)
    except (HTTPError, OSError):
        # A stream ends in many ways (server restarted, a proxy's limit, silence): all mean "watch again".
        return
    finally:
        raw.close()


def _fault(error: Exception) -> FaultError:
    """Say why there is no answer."""
    from urllib3 import exceptions as faults

    text = str(error)
    if isinstance(error, faults.SSLError):
        return wire.untrusted(text)
    if isinstance(error, faults.ProxyError):
        hint = "check `proxy-url` of the context and HTTPS_PROXY"
        return FaultError("the proxy does not connect", hint=hint)
    if isinstance(error, faults.NameResolutionError):
        return wire.unknown_name()
    if isinstance(error, faults.NewConnectionError):
        return wire.refused(text.rpartition(": ")[2])
    if isinstance(error, faults.ConnectTimeoutError):
        return wire.unconnected()
    if isinstance(error, faults.ReadTimeoutError):
        return wire.silent()
    if isinstance(error, faults.ProtocolError):
        return wire.no_http() if "BadStatusLine" in text or "Bad status line" in text else wire.broken()
    if isinstance(error, faults.LocationParseError):
        return wire.no_address()
    if isinstance(error, ValueError):
        return wire.unsendable()
    return FaultError(type(error).__name__)
