"""The tokens of identity providers: that of the kubeconfig while it counts, else a new one, kept there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from mlstack.errors import ForbiddenError
from mlstack.files import logins, providerlogin
from mlstack.files.logins import Found
from mlstack.model import login
from mlstack.model.login import IdToken, Proof

_LOG_IN = "log in to the identity provider again, so that new tokens are written to the kubeconfig"


class IdTokens:
    """Gives a token that was not given before; one thread at a time asks it.

    Args:
        found: the login, as it was read.
        way: what it says of the token.
        clock: seconds since 1970.
    """

    def __init__(self, found: Found, way: IdToken, *, clock: Callable[[], float] = time.time) -> None:
        """Hold the parts."""
        self._found, self._way, self._clock = found, way, clock
        self._given: str | None = None

    def __call__(self) -> Proof:
        """Give the token of the kubeconfig, which others renew as well, or get a new one.

        Raises:
            ForbiddenError: there is none.
            MlstackError: the kubeconfig cannot be read any more.
        """
        if self._given:
            way = logins.find(self._found.context, self._found.option, os.environ).way
            self._way = way if isinstance(way, IdToken) else self._way
        proof = self._way.proof
        if self._state():
            proof = self._renewed()
        self._given = proof.authorization
        return proof

    def _state(self) -> str:
        """Say why the token of the kubeconfig does not do; nothing if it does."""
        proof = self._way.proof
        if not proof.authorization:
            return "is missing"
        if self._clock() >= (proof.expires_s or 0):
            return "has expired"
        return "is refused by the API server" if proof.authorization == self._given else ""

    def _renewed(self) -> Proof:
        from mlstack.cluster import kube

        try:
            tokens = kube.renewed(self._way.settings, ca_pem=providerlogin.authority(self._way))
        except ValueError as error:
            raise self._failed(f"{self._state()} and cannot be renewed: {error}") from None
        try:
            proof = login.id_token(tokens[kube.ID_TOKEN])
        except ValueError:
            raise self._failed(f"{self._state()}, and what its provider gives anew is none") from None
        try:
            providerlogin.keep(self._way, tokens)
        except ValueError as error:
            raise self._failed(
                f"was renewed and cannot be written to {self._way.file}: {error}",
                "let that file be changed, and log in to the identity provider again",
            ) from None
        return self._way.with_token(proof)

    def _failed(self, text: str, hint: str = _LOG_IN) -> ForbiddenError:
        return ForbiddenError(
            f"the id-token of {self._found.login.label} {text}",
            why="credentials",
            where=self._found.files,
            hint=hint,
        )
