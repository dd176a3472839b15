"""The seam between requests and what carries them, and the faults that both speak of."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

CONNECT_TIMEOUT_S = 10.0
CONNECTIONS = 32
"""How many connections are kept for the next request: as many as ever write and wait at once."""

MOST_BYTES = 128 << 20
"""How much an answer may have, as it comes and unpacked: ten times of what a large cluster lists at once."""
MOST_HEAD_BYTES = 1 << 20
"""How much may come before the body of an answer."""

_LENGTH = re.compile(r"[0-9]{1,15}")
_KUBECONFIG = "check `server` of the kubectl context, and that the cluster runs: kubectl cluster-info"
_TLS = "check certificate-authority, tls-server-name and client certificate of the kubectl context"


Sent = Mapping[str, "str | tuple[str, ...]"]
"""Headers to send by name; those that have several values are sent several times."""


class Headers(Protocol):
    """The headers of an answer by name, in any case."""

    def get(self, name: str, /) -> str | None:
        """Give one, None if it is not there."""
        ...


@dataclass(frozen=True, kw_only=True)
class Received:
    """An answer as it came.

    Attributes:
        status: HTTP status.
        headers: by name; where one comes several times, one of them.
        warnings: all `Warning` headers.
        data: the body, empty if it was not to be read.
        chunks: the body as it comes, if it was not read; ends with it, whatever ends it.
        close: gives the connection up if the body was not read to its end.
        repeated: the request was sent once before, and nobody knows what became of that.
    """

    status: int
    headers: Headers
    warnings: Sequence[str]
    data: bytes
    chunks: Callable[[], Iterator[bytes]]
    close: Callable[[], None]
    repeated: bool = False


class FaultError(Exception):
    """Raised when there is no answer.

    Args:
        text: why, in a few words.
        hint: what to do.
        broken: the connection broke after it was made: the server may or may not have seen the request.
    """

    def __init__(self, text: str, *, hint: str = _KUBECONFIG, broken: bool = False) -> None:
        """Hold the facts."""
        super().__init__(text)
        self.text, self.hint, self.broken = text, hint, broken


class Carrier(Protocol):
    """Carries requests to one server; safe for many threads."""

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
        """Send a request and wait for the answer: to its end if it is wanted `whole`, or is no 200.

        Raises:
            FaultError: there is none.
        """
        ...

    def expect(self, requests: int) -> None:
        """Begin to connect, so that so many requests at once find connections that are open."""
        ...

    def use(self, tls: ssl.SSLContext) -> None:
        """Greet the server in this way from now on."""
        ...


def unknown_name() -> FaultError:
    """Give the fault of a server whose name leads nowhere."""
    return FaultError("its name is not known (DNS)")


def refused(text: str) -> FaultError:
    """Give the fault of a server that takes no connection, by the system's words."""
    return FaultError("connection refused" if "refused" in text else text)


def unconnected() -> FaultError:
    """Give the fault of a server that does not answer the connection."""
    return FaultError(f"no connection within {CONNECT_TIMEOUT_S:g} s")


def silent() -> FaultError:
    """Give the fault of a server that answers nothing."""
    hint = "try again; the server may be overloaded"
    return FaultError("it accepted the request and stayed silent", hint=hint)


def slow(timeout_s: float) -> FaultError:
    """Give the fault of a server whose answer does not end."""
    return FaultError(
        f"its answer did not end within {timeout_s:g} s", hint="try again; the server may be overloaded"
    )


def too_long() -> FaultError:
    """Give the fault of a server whose answer is larger than any that is meant."""
    return FaultError(f"its answer is longer than {MOST_BYTES >> 20} MiB")


def no_http() -> FaultError:
    """Give the fault of a server that speaks something else."""
    return FaultError("it does not speak HTTP")


def check_length(said: Sequence[str]) -> None:
    """Return if the lengths that an answer gives its body may be believed.

    Raises:
        FaultError: they are none, several, or too large.
    """
    if not said:
        return
    if len(set(said)) > 1 or not _LENGTH.fullmatch(said[0]):
        raise FaultError("it does not speak HTTP: the Content-Length of its answer is no number")
    if int(said[0]) > MOST_BYTES:
        raise too_long()


def broken() -> FaultError:
    """Give the fault of a connection that ended under a request."""
    return FaultError("the connection broke", hint="run the command again", broken=True)


def unsendable() -> FaultError:
    """Give the fault of credentials that no header takes; without them."""
    return FaultError(
        "the credentials of the kubeconfig have characters that cannot be sent",
        hint="get them anew: a token is one line of plain letters and digits",
    )


def untrusted(text: str) -> FaultError:
    """Give the fault of TLS, by OpenSSL's words."""
    return FaultError(f"TLS fails: {_reason(text)}", hint=_TLS)


def _reason(text: str) -> str:
    if "WRONG_VERSION_NUMBER" in text or "record layer failure" in text:
        return "the server does not speak TLS"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return text.rpartition("certificate verify failed: ")[2].partition(" (_ssl")[0]
    if "doesn't match" in text:
        return "the certificate is for another name"
    return text.partition(" (_ssl")[0].rpartition("] ")[2] or text
