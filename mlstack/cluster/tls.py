"""TLS and sockets of the connections to an API server, and the fingerprint of whom they trust."""

from __future__ import annotations

import errno
import hashlib
import re
import socket
import ssl

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def tls_context(
    *,
    ca_pem: str | None,
    cert_file: str | None,
    key_file: str | None,
    verify: bool,
) -> ssl.SSLContext:
    """Make the TLS context of one login; servers are verified unless `verify` is off.

    Args:
        ca_pem: the certificates to trust, of CAs, of those below them or of the server itself, and whatever
            stands between them; None for those of the system.
        cert_file: PEM file of the client certificate, None without.
        key_file: PEM file of its key.
        verify: off only where a kubeconfig says insecure-skip-tls-verify.

    Raises:
        OSError: a file cannot be read or is no certificate.
        ValueError: there is no certificate in `ca_pem`.
    """
    # Not `create_default_context`: its strict flag (Python 3.13) refuses CAs that kubectl and clusters use.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As Go: the common name is no name of a server, and a chain may end at any certificate that is trusted.
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_pem is not None:
        context.load_verify_locations(cadata="\n".join(_CERTIFICATE.findall(ca_pem)))
    else:
        context.load_default_certs()
    if cert_file:
        context.load_cert_chain(cert_file, key_file, password=_no_password)
    return context


def _no_password() -> str:
    """Refuse to unlock a key: OpenSSL would ask on the terminal, in the middle of a run."""
    raise PermissionError(errno.EACCES, "the client key is encrypted")


def socket_options() -> list[tuple[int, int, int]]:
    """Send small writes at once, and notice within two minutes at most that the other is gone."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPINTVL", 15),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", 30_000),
    ):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def fingerprint(pem: str) -> str | None:
    """Hash CA certificates by their DER, so that order, comments and line ends do not count; None without."""
    found = sorted({ssl.PEM_cert_to_DER_cert(one) for one in _CERTIFICATE.findall(pem)})
    return f"sha256:{hashlib.sha256(b''.join(found)).hexdigest()}" if found else None
