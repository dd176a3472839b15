"""The door to API servers for logins that stand whole in the kubeconfig: without the `kubernetes` library.

The library's import takes longer than writing 300 objects. It is `kube` that knows all other ways to log in.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile

from mlstack.cluster.connections import Connections
from mlstack.cluster.remote import RemoteCluster
from mlstack.cluster.tls import fingerprint, tls_context
from mlstack.cluster.transport import AGENT, READ_TIMEOUT_S, Transport
from mlstack.cluster.wire import Sent
from mlstack.model.login import FixedLogin


def connect(login: FixedLogin, *, read_timeout_s: float = READ_TIMEOUT_S) -> RemoteCluster | None:
    """Prepare to speak to a cluster; nothing is sent yet.

    Args:
        login: where it is and who we are.
        read_timeout_s: how long the server may stay silent in one request, in seconds.

    Returns:
        None if a certificate or key cannot be used: `kube` says which one, and why.
    """
    try:
        carrier = Connections(login.server, _tls(login), server_name=login.server_name)
        ca = fingerprint(login.ca_pem) if login.ca_pem and login.verify else None
    except (OSError, ValueError):
        return None
    transport = Transport(
        carrier,
        login.server,
        label=f"context `{login.context}`",
        credentials=_Headers(login),
        read_timeout_s=read_timeout_s,
    )
    return RemoteCluster(transport, ca=ca)


class _Headers:
    """Gives the headers of a login; there are no newer ones."""

    def __init__(self, login: FixedLogin) -> None:
        authorization = {"authorization": f"Bearer {login.token}"} if login.token else {}
        self._headers: Sent = {"User-Agent": AGENT, **authorization, **login.impersonation}

    def __call__(self, *, refresh: bool) -> Sent | None:
        return None if refresh else self._headers


def _tls(login: FixedLogin) -> ssl.SSLContext:
    """Make the TLS context.

    Raises:
        OSError: a certificate or key is none.
    """
    with _file(login.cert_pem) as cert_file, _file(login.key_pem) as key_file:
        return tls_context(ca_pem=login.ca_pem, cert_file=cert_file, key_file=key_file, verify=login.verify)


@contextmanager
def _file(pem: str | None) -> Iterator[str | None]:
    """Put a text into a file of ours alone for a moment: OpenSSL reads client certificates from files."""
    if pem is None:
        yield None
        return
    file = NamedTemporaryFile("w", encoding="utf-8", delete=False)  # noqa: SIM115 # Windows opens it once
    try:
        with file:
            file.write(pem)
        yield file.name
    finally:
        os.unlink(file.name)  # noqa: PTH108 # a name is all there is
