"""Who we are in each request: one proof for all threads, got anew when it expires or is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from mlstack.cluster.transport import AGENT
from mlstack.cluster.wire import Sent
from mlstack.errors import MlstackError
from mlstack.model.login import Login, Proof


class Renewed:
    """Gives the headers of a login, the same object until there are others.

    Args:
        login: where we log in.
        prove: gives a proof; one thread at a time asks it.
        show: takes each proof for the connections that are made from now on.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        login: Login,
        prove: Callable[[], Proof],
        *,
        show: Callable[[Proof], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Get the first proof.

        Raises:
            MlstackError: there is none.
        """
        self._login, self._prove, self._show, self._clock = login, prove, show, clock
        self._lock = Lock()
        self._failures = 0
        self._fault: MlstackError | None = None
        self._renew()

    def __call__(self, *, refused: Sent | None = None) -> Sent | None:
        """Give the headers, or others than those that a server refused.

        Raises:
            MlstackError: there is no proof any more; for all that waited for it.
        """
        failures = self._failures
        with self._lock:
            if self._fault is not None and self._failures > failures:  # it failed while we waited for it
                raise self._fault
            if refused is self._headers or (refused is None and self._is_over()):
                self._renew()
            return self._headers

    def _is_over(self) -> bool:
        return self._expires_s is not None and self._clock() >= self._expires_s

    def _renew(self) -> None:
        try:
            proof = self._prove()
            self._show(proof)
        except MlstackError as error:
            self._failures, self._fault = self._failures + 1, error
            raise
        self._fault, self._expires_s = None, proof.expires_s
        self._headers = headers(self._login, proof)


class Fixed:
    """Gives the headers of a proof that stays as it is."""

    def __init__(self, login: Login, proof: Proof) -> None:
        """Write the headers."""
        self._headers = headers(login, proof)

    def __call__(self, *, refused: Sent | None = None) -> Sent | None:
        """Give the headers; there are no others."""
        return self._headers if refused is None else None


def headers(login: Login, proof: Proof) -> Sent:
    """Give the headers of a login: our name, the proof, and as whom we act."""
    authorization = {"authorization": proof.authorization} if proof.authorization else {}
    return {"User-Agent": AGENT, **authorization, **login.impersonation}
