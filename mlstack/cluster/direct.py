"""The door to a real API server: a login and its proof become a cluster."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile

from mlstack.cluster.connections import Connections
from mlstack.cluster.credentials import Fixed, Renewed
from mlstack.cluster.pooled import Pooled
from mlstack.cluster.remote import RemoteCluster
from mlstack.cluster.tls import fingerprint, tls_context
from mlstack.cluster.transport import READ_TIMEOUT_S, Counted, Credentials, Transport
from mlstack.cluster.wire import Carrier
from mlstack.errors import ClusterError
from mlstack.model.login import Login, Proof

_LOOK = "kubectl config view shows what it holds"


def connect(
    login: Login,
    proof: Proof | Callable[[], Proof],
    *,
    read_timeout_s: float = READ_TIMEOUT_S,
    counted: Counted = lambda verb, status: None,
) -> RemoteCluster:
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
    return RemoteCluster(transport, ca=door.ca)


class _Door:
    """The connections to a server, and the certificates that are shown there."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._shown: tuple[str | None, str | None] | None = None
        self.carrier = carrier_of(login)
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


def carrier_of(login: Login) -> Carrier:
    """Give what carries requests to a server, directly or through its proxy.

    Raises:
        ClusterError: the proxy is one that we cannot speak to.
    """
    if login.proxy:
        return Pooled(login)
    return Connections(login.server, server_name=login.server_name, packed=login.packed)


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
