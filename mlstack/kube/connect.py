"""Who we are in each request: one proof for all threads, got anew when it expires or is refused."""

from __future__ import annotations

import os
import re
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import Any

from mlstack.errors import ClusterError, ForbiddenError, MlstackError
from mlstack.kube import kubeconfig
from mlstack.kube import kubeconfig as logins
from mlstack.kube.api_server import ApiServerClient
from mlstack.kube.http import (
    AGENT,
    READ_TIMEOUT_S,
    ConnectionPool,
    Counted,
    Credentials,
    NoAnswerError,
    Received,
    Sent,
    Transport,
    decoded,
    fingerprint,
    quote,
    tls_context,
)
from mlstack.kube.kubeconfig import (
    Found,
    IdToken,
    Interactive,
    Login,
    Plugin,
    Proof,
    TokenFile,
    address,
    basic,
)
from mlstack.kube.parallel import prefetch

# --- Who we are in each request: one proof for all threads, got anew when it expires or is refused ---


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


# --- The door to a real API server: a login and its proof become a cluster ---

_LOOK = "kubectl config view shows what it holds"


def connect_directly(
    login: Login,
    proof: Proof | Callable[[], Proof],
    *,
    read_timeout_s: float = READ_TIMEOUT_S,
    counted: Counted = lambda verb, status: None,
) -> ApiServerClient:
    """Prepare to speak to a cluster; nothing is sent to it yet.

    Args:
        login: where it is.
        proof: what shows who we are; or what gives it, asked now and whenever it expires or is refused.
        read_timeout_s: how long the server may stay silent in one request, in seconds.
        counted: told of each request, from any thread.

    Raises:
        MlstackError: there is no proof.
        ClusterError: a certificate, a key, an address or a proxy cannot be used.
    """
    door = _Door(login)
    credentials: Credentials
    if isinstance(proof, Proof):
        door.show(proof)
        credentials = Fixed(login, proof)
    else:
        credentials = Renewed(login, proof, show=door.show)
    transport = Transport(
        door.carrier,
        login.server,
        label=login.label,
        credentials=credentials,
        read_timeout_s=read_timeout_s,
        counted=counted,
    )
    return ApiServerClient(transport, ca=door.ca)


class _Door:
    """The connections to a server, and the certificates that are shown there."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._shown: tuple[str | None, str | None] | None = None
        self.carrier = ConnectionPool(login)
        try:
            self.ca = fingerprint(login.ca_pem) if login.ca_pem and login.verify else None
        except ValueError:
            raise ClusterError(f"the CA certificate of {login.label} cannot be read", hint=_LOOK) from None

    def show(self, proof: Proof) -> None:
        """Show the client certificate of a proof from now on."""
        shown = (proof.cert_pem, proof.key_pem)
        if shown != self._shown:
            self.carrier.use(_tls(self._login, proof))
            self._shown = shown


def _tls(login: Login, proof: Proof) -> ssl.SSLContext:
    try:
        with _file(proof.cert_pem) as cert_file, _file(proof.key_pem) as key_file:
            return tls_context(
                ca_pem=login.ca_pem, cert_file=cert_file, key_file=key_file, verify=login.verify
            )
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or "no certificate is found in them"
        reason = said.partition(" (_ssl")[0].rpartition("] ")[2]
        raise ClusterError(
            f"the certificates of {login.label} cannot be used: {reason}", hint=_LOOK
        ) from None


@contextmanager
def _file(pem: str | None) -> Iterator[str | None]:
    """Put a text into a file of ours alone for a moment: OpenSSL reads client certificates from files."""
    if pem is None:
        yield None
        return
    file = NamedTemporaryFile("wb", delete=False)  # noqa: SIM115 # Windows opens it once
    try:
        with file:
            file.write(pem.encode("utf-8", "surrogateescape"))
        yield file.name
    finally:
        os.unlink(file.name)  # noqa: PTH108 # a name is all there is


# --- Renews the tokens of identity providers (OpenID Connect), as the auth-provider `oidc` of
# kubectl does
# See https://openid.net/specs/openid-connect-core-1_0.html#RefreshTokens

ID_TOKEN, REFRESH_TOKEN = "id-token", "refresh-token"
TIMEOUT_S = 20.0
"""How long a provider has for all that it is asked."""

_ISSUER = "idp-issuer-url"
_NEEDED = (REFRESH_TOKEN, _ISSUER, "client-id")
_CODE = re.compile(r"[a-z_]{1,30}")
_USELESS = "its provider gives no answer that can be used"


def renewed(settings: Mapping[str, str], *, ca_pem: str | None = None) -> dict[str, str]:
    """Get a new id-token for a refresh-token.

    Args:
        settings: what a kubeconfig says of the auth-provider `oidc`.
        ca_pem: certificates to verify the provider with, None for those of the system.

    Returns:
        What is to stand there now: the new id-token, and the refresh-token for the next time.

    Raises:
        ValueError: there is none; the text says why, without any part of a token or password.
    """
    given = {key: value for key, value in settings.items() if value}
    if missing := [key for key in _NEEDED if key not in given]:
        raise ValueError(f"the kubeconfig has no `{missing[0]}`")
    try:
        return prefetch(lambda: _renewed(given, ca_pem))(TIMEOUT_S)
    except TimeoutError:
        raise ValueError(f"its provider did not answer within {TIMEOUT_S:g} s") from None
    except NoAnswerError as fault:
        raise ValueError(f"its provider gives no answer: {fault.text}") from None


def _renewed(given: Mapping[str, str], ca_pem: str | None) -> dict[str, str]:
    ask = partial(_send, ca_pem=ca_pem)
    issuer = given[_ISSUER].rstrip("/")
    known = ask("GET", f"{issuer}/.well-known/openid-configuration")
    endpoint = _read(known).get("token_endpoint")
    if known.status != 200 or not isinstance(endpoint, str):
        raise ValueError(_USELESS)
    form = {"grant_type": "refresh_token", "refresh_token": given[REFRESH_TOKEN]}
    name, secret = given["client-id"], given.get("client-secret", "")
    alone = {**form, "client_id": name, **({"client_secret": secret} if secret else {})}
    # With a password as Go's oauth2: first beside the form, then, for those who want it so, in it.
    proof = {"Authorization": basic(quote(name), quote(secret))}
    answer = ask("POST", endpoint, form, proof) if secret else None
    if answer is None or answer.status in (400, 401):
        answer = ask("POST", endpoint, alone)
    tokens = _read(answer)
    if answer.status != 200:
        code = tokens.get("error")
        is_code = isinstance(code, str) and _CODE.fullmatch(code)
        raise ValueError(f"its provider refuses ({code})" if is_code else _USELESS)
    new, next_one = tokens.get("id_token"), tokens.get("refresh_token") or given[REFRESH_TOKEN]
    if not (isinstance(new, str) and isinstance(next_one, str)):
        raise ValueError("its provider gives none for a refresh-token")
    return {ID_TOKEN: new, REFRESH_TOKEN: next_one}


def _send(
    method: str,
    url: str,
    form: Mapping[str, str] | None = None,
    proof: Sent | None = None,
    *,
    ca_pem: str | None,
) -> Received:
    """Ask a provider; where it leads elsewhere, nobody follows with a token."""
    place, mark, query = url.partition("?")
    try:
        there = address(place)
    except ValueError:
        raise ValueError("the address of its provider is not a URL of a host") from None
    proxy = kubeconfig.between(place, os.environ)
    if not there.is_secure and (proxy or not there.is_here):
        raise ValueError("nothing secret is sent to its provider over http://")
    carrier = ConnectionPool(Login(label="its provider", server=place, proxy=proxy))
    try:
        carrier.use(tls_context(ca_pem=ca_pem, cert_file=None, key_file=None, verify=True))
    except (OSError, ValueError):
        raise ValueError("its `idp-certificate-authority` cannot be used") from None
    said = {"Accept": "application/json", **(proof or {})}
    body = None if form is None else "&".join(f"{key}={quote(value)}" for key, value in form.items()).encode()
    if body is not None:
        said["Content-Type"] = "application/x-www-form-urlencoded"
    return carrier.send(
        method,
        f"{carrier.address.path}{mark}{query}",
        body=body,
        headers=said,
        timeout_s=TIMEOUT_S,
        whole=True,
    )


def _read(answer: Received) -> Mapping[str, Any]:
    try:
        value = decoded(answer.data)
    except ValueError:
        raise ValueError(_USELESS) from None
    if not isinstance(value, Mapping):
        raise ValueError(_USELESS)
    return value


# --- Opens the real cluster behind a kubectl context: reads the login and comes by the proof for it ---


def connect(
    context: str = "",
    *,
    kubeconfig: str | None = None,
    read_timeout_s: float = READ_TIMEOUT_S,
    counted: Counted = lambda verb, status: None,
) -> ApiServerClient:
    """Prepare to speak to the cluster of a kubectl context; nothing is sent to it yet.

    Args:
        context: name of the context; empty for the current one, or, without any kubeconfig, for the service
            account of the pod this runs in.
        kubeconfig: what `--kubeconfig` says; None for what kubectl takes without it.
        read_timeout_s: how long the server may stay silent in one request, in seconds.
        counted: told of each request, from any thread.

    Raises:
        NotFoundError: no kubeconfig, or no such context in it.
        ForbiddenError: a credential plug-in fails, or an id-token cannot be renewed.
        ClusterError: the kubeconfig or a file it names cannot be used.
    """
    found = logins.find(context, kubeconfig, os.environ)
    return connect_directly(found.login, _proof(found), read_timeout_s=read_timeout_s, counted=counted)


def _proof(found: Found) -> Proof | Callable[[], Proof]:
    way = found.way
    if isinstance(way, Plugin):
        return partial(_asked, found, way)
    if isinstance(way, TokenFile):
        return partial(logins.read_token, found, way)
    if isinstance(way, IdToken):
        return IdTokens(found, way)
    return way


def _asked(found: Found, asked: Plugin) -> Proof:
    """Ask a credential plug-in.

    Raises:
        ForbiddenError: it is missing, fails, or answers something else.
    """
    from mlstack import programs

    interactive = _can_ask(found, asked)
    settings = {**asked.env, kubeconfig.INFO: kubeconfig.question(asked, interactive=interactive)}
    try:
        output = programs.ask(asked.command, asked.args, settings=settings, reads_terminal=interactive)
        answer = kubeconfig.answered(asked, output)
    except programs.ProgramMissingError:
        hint = asked.install_hint or "install it and make sure that it is on the PATH"
        raise _failed(found, asked, "is not installed", hint) from None
    except programs.ProgramError as error:
        text = f"failed with exit code {error.status}" if error.status is not None else "cannot run"
        raise _failed(found, asked, text) from None
    except ValueError as error:  # says nothing of what may be secret
        raise _failed(found, asked, f"gives no answer that can be used: {error}") from None
    return Proof(
        authorization=kubeconfig.bearer(answer.token) if answer.token else None,
        cert_pem=answer.cert_pem or None,
        key_pem=answer.key_pem or None,
        expires_s=answer.expires_s,
    )


def _can_ask(found: Found, asked: Plugin) -> bool:
    """Tell whether a plug-in can ask the person."""
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    if asked.interactive is Interactive.ALWAYS and not is_terminal:
        raise _failed(
            found,
            asked,
            "wants to ask a person, and standard input is no terminal",
            "run it on a terminal, or log in for programs: a service account's token",
        )
    return is_terminal and asked.interactive is not Interactive.NEVER


def _failed(found: Found, asked: Plugin, text: str, hint: str = "") -> ForbiddenError:
    return ForbiddenError(
        f"the credential plug-in `{asked.command}` of {found.login.label} {text}",
        why="credentials",
        where=found.files,
        hint=hint or f"log in with it again, then try: kubectl --context {found.context} version",
    )


# --- The tokens of identity providers: that of the kubeconfig while it counts, else a new one, kept
# there

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
            way = kubeconfig.find(self._found.context, self._found.option, os.environ).way
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
        try:
            tokens = renewed(self._way.settings, ca_pem=kubeconfig.authority(self._way))
        except ValueError as error:
            raise self._failed(f"{self._state()} and cannot be renewed: {error}") from None
        try:
            proof = kubeconfig.id_token(tokens[ID_TOKEN])
        except ValueError:
            raise self._failed(f"{self._state()}, and what its provider gives anew is none") from None
        try:
            kubeconfig.keep(self._way, tokens)
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
