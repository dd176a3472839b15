"""Requests through a proxy, which is urllib3's to speak to: plain and over TLS, with TLS inside of TLS."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mlstack.cluster import wire
from mlstack.cluster.connection import Response
from mlstack.cluster.tls import socket_options
from mlstack.cluster.wire import (
    CONNECT_TIMEOUT_S,
    CONNECTIONS,
    MOST_BYTES,
    FaultError,
    Received,
    Sent,
    too_long,
)
from mlstack.errors import ClusterError
from mlstack.model.login import Login, address, basic, host_name

_QUOTED = re.compile(rb"%([0-9A-Fa-f]{2})")
_TUNNEL = re.compile(r"Tunnel connection failed: (\d{3})")
_PIECE = 1 << 16


class Pooled:
    """Carries requests to one server through the proxy of its login.

    Args:
        login: where the server is.
    """

    def __init__(self, login: Login) -> None:
        """Read the addresses; nothing is sent.

        Raises:
            ValueError: that of the server is none.
            ClusterError: the proxy is one that we cannot speak to.
        """
        from urllib3 import disable_warnings
        from urllib3.exceptions import InsecureRequestWarning

        # Who we are stands in the headers: what the address says of it is nothing for a proxy.
        self._server = address(login.server).url
        self._login, self._proxy = login, _proxy(login)
        self._pool: Any = None
        if not login.verify:
            disable_warnings(InsecureRequestWarning)

    def expect(self, requests: int) -> None:
        """Do nothing: it is connected when a request comes."""

    def use(self, tls: ssl.SSLContext) -> None:
        """Greet server and proxy in this way from now on: kubectl trusts both by the same authorities."""
        self._pool = self._proxy(
            tls,
            ssl_context=tls,
            server_hostname=self._login.server_name,
            maxsize=CONNECTIONS,
            socket_options=socket_options(),
        )
        self._pool.pool_classes_by_scheme = {
            scheme: _bounded(pool) for scheme, pool in self._pool.pool_classes_by_scheme.items()
        }

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

        fields = HTTPHeaderDict({"Accept-Encoding": "gzip" if whole and self._login.packed else "identity"})
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
                preload_content=False,
            )
            data = _body(raw) if whole or raw.status != 200 else b""
        except FaultError:
            raise
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


def _proxy(login: Login) -> Callable[..., Any]:
    """Give what makes the pool of a proxy, by our TLS context for it and what else urllib3 wants to know.

    Raises:
        ClusterError: it is one that we cannot speak to.
    """
    from urllib3 import ProxyManager
    from urllib3.exceptions import LocationParseError
    from urllib3.util import parse_url

    try:
        url = parse_url(login.proxy or "")
        host_name((url.host or "").strip("[]"))
    except (LocationParseError, ValueError):
        url = parse_url("")
    name, _, password = _unquoted(url.auth or "").partition(":")
    place = url._replace(auth=None)
    if url.host and url.scheme in ("http", "https"):
        said = {"Proxy-Authorization": basic(name, password)} if url.auth else {}
        return lambda tls, **more: ProxyManager(place.url, proxy_headers=said, proxy_ssl_context=tls, **more)
    if url.host and url.scheme in ("socks5", "socks5h"):
        from urllib3.contrib.socks import SOCKSProxyManager

        # The proxy looks up names, as with kubectl.
        far = place._replace(scheme="socks5h").url
        return lambda tls, **more: SOCKSProxyManager(far, name or None, password or None, **more)
    raise ClusterError(
        f"{login.label} is reached through a proxy that mlstack does not speak to: "
        "only http://, https:// and socks5://",
        hint="set `proxy-url` of its cluster, or HTTPS_PROXY",
    )


def _unquoted(text: str) -> str:
    octets = _QUOTED.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode())
    return octets.decode("utf-8", "replace")


def _bounded(pool: Any) -> Any:
    """Give a kind of pool whose answers are read within their bounds."""
    near = type("BoundedConnection", (pool.ConnectionCls,), {"response_class": Response})
    return type("BoundedPool", (pool,), {"ConnectionCls": near})


def _body(raw: Any) -> bytes:
    """Read an answer to its end, and unpack it; as much as it may have."""
    kept, size = [], 0
    try:
        for piece in raw.stream(_PIECE, decode_content=True):
            kept.append(piece)
            size += len(piece)
            if size > MOST_BYTES:
                raise too_long()
    except BaseException:
        raw.close()
        raise
    return b"".join(kept)


def _chunks(raw: Any) -> Iterator[bytes]:
    from urllib3.exceptions import HTTPError

    try:
        yield from raw.stream(_PIECE, decode_content=True)
    except (FaultError, HTTPError, OSError):
        # A stream ends in many ways (server restarted, a proxy's limit, silence): all mean "watch again".
        return
    finally:
        raw.close()


def _fault(error: Exception) -> FaultError:
    """Say why there is no answer."""
    from urllib3 import exceptions as faults

    text = str(error)
    if isinstance(error, faults.ProxyError | faults.NewConnectionError | faults.ConnectTimeoutError):
        said = _TUNNEL.search(text)
        hint = "check `proxy-url` of the context and HTTPS_PROXY"
        return FaultError(f"the proxy does not connect{f' (HTTP {said[1]})' if said else ''}", hint=hint)
    if isinstance(error, faults.SSLError):
        return wire.untrusted(text)
    if isinstance(error, faults.ReadTimeoutError):
        return wire.silent()
    if isinstance(error, faults.ProtocolError | faults.DecodeError):
        return wire.no_http() if "BadStatusLine" in text else wire.broken()
    if isinstance(error, ValueError):
        return wire.unsendable()
    return FaultError(type(error).__name__)
