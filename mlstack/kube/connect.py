"""The door to real clusters: a login and the proof for it become a client."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from tempfile import NamedTemporaryFile
from threading import Lock

from mlstack.clock import limit_s
from mlstack.errors import ClusterError, MlstackError
from mlstack.http import ConnectionPool, NoAnswerError, Sent, fingerprint, tls_context
from mlstack.kube import login as logins
from mlstack.kube.api_server import ApiServerClient
from mlstack.kube.kubeconfig import LOOK
from mlstack.kube.login import ContextLogin, IdToken, Plugin, Proof, TokenFile
from mlstack.kube.transport import AGENT, READ_TIMEOUT_S, Counted, Transport


def connect(
    context: str = "",
    *,
    kubeconfig: str | None = None,
    read_timeout_s: float | None = None,
    counted: Counted = lambda verb, status: None,
) -> ApiServerClient:
    """Prepare to speak to the cluster of a kubectl context; nothing is sent to it yet.

    Args:
        context: name of the context; empty for the current one, or, without any kubeconfig, for the service
            account of the pod this runs in.
        kubeconfig: what `--kubeconfig` says; None for what kubectl takes without it.
        read_timeout_s: how long the server may take for one answer, in seconds; None for what the user's
            MLSTACK_REQUEST_TIMEOUT says, else a minute.
        counted: told of each request, from any thread.

    Raises:
        NotFoundError: no kubeconfig, or no such context in it.
        ForbiddenError: a credential plug-in fails, or an id-token cannot be renewed.
        UsageError: MLSTACK_REQUEST_TIMEOUT is no duration.
        ClusterError: the kubeconfig or a file it names, a certificate, a key or a proxy cannot be used.
    """
    if read_timeout_s is None:
        read_timeout_s = limit_s("MLSTACK_REQUEST_TIMEOUT", READ_TIMEOUT_S, os.environ)
    resolved = logins.find(context, kubeconfig, os.environ)
    login = resolved.login
    try:
        pool = ConnectionPool(login)
    except NoAnswerError as error:
        hint = "set `proxy-url` of its cluster, or HTTPS_PROXY"
        raise ClusterError(error.text, hint=hint) from None
    try:
        ca = fingerprint(login.ca_pem) if login.ca_pem and login.verify else None
    except ValueError:
        raise ClusterError(f"the CA certificate of {login.label} cannot be read", hint=LOOK) from None
    transport = Transport(
        pool,
        login.server,
        label=login.label,
        credentials=LoginCredentials(resolved, pool),
        read_timeout_s=read_timeout_s,
        counted=counted,
    )
    return ApiServerClient(transport, ca=ca)


class LoginCredentials:
    """Gives the headers that say who we are, the same object until there are others; safe for many threads.

    A proof that expires or is refused is got anew, by one thread for all; connections show its certificate.

    Raises:
        MlstackError: there is none.
    """

    def __init__(
        self, resolved: ContextLogin, pool: ConnectionPool, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._login, self._pool, self._clock = resolved.login, pool, clock
        self._is_renewable = not isinstance(resolved.source, Proof)
        match resolved.source:
            case Plugin() as plugin:
                self._prove: Callable[[], Proof] = partial(logins.ask_plugin, resolved, plugin)
            case TokenFile() as token_file:
                self._prove = partial(logins.read_token, resolved, token_file)
            case IdToken() as id_token:
                from mlstack.kube.id_tokens import IdTokens

                self._prove = IdTokens(resolved, id_token)
            case proof:
                self._prove = lambda: proof
        self._lock = Lock()
        self._failures = 0
        self._fault: MlstackError | None = None
        self._certificate: tuple[str | None, str | None] | None = None
        self._renew()

    def __call__(self, refused: Sent | None = None) -> Sent | None:
        """Give the headers, or others than those that a server refused; None if there are no others.

        Raises:
            MlstackError: there is no proof any more; for all that waited for it.
        """
        if not self._is_renewable:
            return self._headers if refused is None else None
        failures = self._failures
        with self._lock:
            if self._fault is not None and self._failures > failures:  # it failed while we waited for it
                raise self._fault
            is_over = self._expires_s is not None and self._clock() >= self._expires_s
            if refused is self._headers or (refused is None and is_over):
                self._renew()
            return self._headers

    def _renew(self) -> None:
        try:
            proof = self._prove()
            if (proof.cert_pem, proof.key_pem) != self._certificate:
                self._show(proof)
        except MlstackError as error:
            self._failures, self._fault = self._failures + 1, error
            raise
        self._fault, self._expires_s = None, proof.expires_s
        authorization = {"authorization": proof.authorization} if proof.authorization else {}
        self._headers: Sent = {"User-Agent": AGENT, **authorization, **self._login.impersonation}

    def _show(self, proof: Proof) -> None:
        """Let connections show the certificate of a proof."""
        login = self._login
        try:
            with _file(proof.cert_pem) as cert, _file(proof.key_pem) as key:
                tls = tls_context(ca_pem=login.ca_pem, cert_file=cert, key_file=key, verify=login.verify)
        except (OSError, ValueError) as error:
            text = getattr(error, "strerror", None) or "no certificate is resolved in them"
            reason = text.partition(" (_ssl")[0].rpartition("] ")[2]
            message = f"the certificates of {login.label} cannot be used: {reason}"
            raise ClusterError(message, hint=LOOK) from None
        self._pool.use(tls)
        self._certificate = (proof.cert_pem, proof.key_pem)


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
