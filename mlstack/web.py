"""Requests to any server: redirects, proxies of the environment, limits, every fault in a sentence."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlstack
from mlstack.addresses import Address, Endpoint, address, joined, proxy_of, shown, unquote
from mlstack.dataclass import dataclass, row
from mlstack.errors import RegistryError
from mlstack.http import (
    About,
    ConnectionPool,
    NoAnswerError,
    Response,
    basic,
    patiently,
    pieces_of,
    tls_context,
)

if TYPE_CHECKING:
    from ssl import SSLContext

TIMEOUT_S = 60.0
"""How long one answer may take, from its first byte to its last."""
_MOST_REDIRECTS = 5
_BUSY = (502, 503, 504)
_AGENT = f"mlstack/{mlstack.__version__}"
_HINTS: Mapping[About, str] = {
    "address": "check the address and the network",
    "tls": "SSL_CERT_FILE names the authorities to trust, where they are not the system's",
    "proxy": "check HTTPS_PROXY and NO_PROXY",
    "load": "try again later",
    "credentials": "log in anew",
    "connection": "try again",
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a server answered, at the address where the redirects ended."""

    url: str
    status: int
    headers: Mapping[str, str] = field(repr=False)
    data: bytes = field(repr=False)
    raw: Any = field(default=None, repr=False)

    def pieces(self) -> Iterator[bytes]:
        """Give the body of an answer that was not read whole, as it comes.

        Raises:
            RegistryError: it breaks off.
        """
        try:
            yield from pieces_of(self.raw)
        except NoAnswerError as error:
            message = f"`{shown(self.url)}` does not answer to the end: {error.text}"
            raise RegistryError(message, hint=_HINTS[error.about]) from error


@dataclass(frozen=True, kw_only=True)
class Trust:
    """How one server is trusted, and who we are for it, where a person has said so; files by their paths."""

    server: str  # an address there
    authorities: str = ""
    certificate: str = ""
    key: str = ""
    verify: bool = True


class Web:
    """Sends requests to any server; the connections to each are kept for the next one.

    Args:
        trust: what holds for one of the servers; of the others those of the system are trusted.
        sleep: pauses where a server asks for patience.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        trust: Trust | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pools: dict[str, ConnectionPool] = {}
        self._trust, self._sleep, self._clock = trust, sleep, clock

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Get what stands at an address, whatever its status; errors are those of `send`."""
        return self.send("GET", url, headers=headers)

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterable[bytes] | None = None,
        timeout_s: float = TIMEOUT_S,
        whole: bool = True,
    ) -> Answer:
        """Send a request and read the whole answer, whatever its status.

        A 200 that is not wanted `whole` is left to be read piece by piece. It goes again while the server
        asks for patience. Reading is led elsewhere up to five times. What shows who we are goes to the first
        server alone, and nothing goes over plain http but to this machine.

        Raises:
            RegistryError: the address is none, there is no answer, or it is led in a circle or to http.
        """
        sent = {"User-Agent": _AGENT, "Accept": "*/*", **_login(url), **(headers or {})}
        for _ in range(_MOST_REDIRECTS + 1):
            send = partial(self._answer, method, url, sent, body, timeout_s, whole)
            answer = patiently(send, sleep=self._sleep, clock=self._clock, busy=_BUSY)
            location = answer.headers.get("Location") if method in ("GET", "HEAD") else None
            if not (300 <= answer.status < 400 and location):
                return row(Answer, answer, url=url)
            there = joined(url, location)
            if _origin(there) != _origin(url):
                sent = {name: value for name, value in sent.items() if name.lower() != "authorization"}
            url = there
        raise RegistryError(f"`{shown(url)}` leads elsewhere again and again", hint="check the address")

    def _answer(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes] | None,
        timeout_s: float,
        whole: bool,
    ) -> Response:
        place, mark, query = url.partition("#")[0].partition("?")
        there = _address(url)
        path = f"{there.path}{'/' if place.endswith('/') or not there.path else ''}{mark}{query}"
        is_repeated = method not in ("GET", "HEAD")
        while True:
            try:
                pool = self._pool(there, place)
                return pool.send(method, path, body=body, headers=headers, timeout_s=timeout_s, whole=whole)
            except NoAnswerError as error:
                if error.broken and not is_repeated:  # a kept connection that the server has closed
                    is_repeated = True
                    continue
                hint = _HINTS[error.about]
                raise RegistryError(f"`{shown(url)}` does not answer: {error.text}", hint=hint) from error

    def _pool(self, there: Address, place: str) -> ConnectionPool:
        origin = f"{there.scheme}://{there.host}:{there.port}"
        if origin not in self._pools:
            proxy = proxy_of(place, os.environ)
            own = self._trust
            trust = own if own and _origin(own.server) == _origin(place) else Trust(server=place)
            label, verify = f"`{there.host}`", trust.verify
            login = Endpoint(label=label, server=place, proxy=proxy, verify=verify, packed=False)
            pool = ConnectionPool(login)
            pool.use(_context(trust))
            self._pools[origin] = pool
        return self._pools[origin]


def _context(trust: Trust) -> SSLContext:
    try:
        return tls_context(
            ca_pem=Path(trust.authorities).read_text("utf-8") if trust.authorities else None,
            cert_file=trust.certificate or None,
            key_file=trust.key or None,
            verify=trust.verify,
        )
    except (OSError, ValueError) as error:
        files = " or ".join(f"`{file}`" for file in (trust.authorities, trust.certificate, trust.key) if file)
        message = f"`{shown(trust.server)}` is to be trusted by {files}, which cannot be read: {error}"
        raise RegistryError(message, hint="give the files anew: helm repo add --force-update") from error


def _login(url: str) -> dict[str, str]:
    """Give the header of a name and a password that stand in an address."""
    login = re.match(r"[a-z]+://([^/\s?#]*)@", url)
    if login is None:
        return {}
    name, _, password = unquote(login[1]).partition(":")
    return {"Authorization": basic(name, password)}


def _origin(url: str) -> tuple[str, str, int]:
    there = _address(url)
    return there.scheme, there.host, there.port


def _address(url: str) -> Address:
    try:
        there = address(url)
    except ValueError:
        message = f"`{shown(url)}` is no address of the web"
        raise RegistryError(message, hint="write https://HOST/PATH") from None
    if not (there.is_secure or there.is_here):
        message = f"`{shown(url)}` is plain http, where anybody on the way can change what comes"
        raise RegistryError(message, hint="write https://")
    return there
