"""TLS and sockets of the connections to an API server, and the fingerprint of whom they trust."""

from __future__ import annotations

import errno
import hashlib
import re
import socket
import ssl
from pathlib import Path

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def tls_context(
    *,
    ca_file: str | None = None,
    ca_pem: str | None = None,
    cert_file: str | None,
    key_file: str | None,
    verify: bool,
) -> ssl.SSLContext:
    """Make the TLS context of one login; servers are verified unless `verify` is off.

    Args:
        ca_file: PEM file of the CAs to trust; without it and `ca_pem` those of the system.
        ca_pem: the CAs to trust, where they are in no file.
        cert_file: PEM file of the client certificate, None without.
        key_file: PEM file of its key.
        verify: off only where a kubeconfig says insecure-skip-tls-verify.

    Raises:
        OSError: a file cannot be read or is no certificate.
    """
    # Not `create_default_context`: its strict flag (Python 3.13) refuses CAs that kubectl and clusters use.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_file or ca_pem:
        context.load_verify_locations(cafile=ca_file, cadata=ca_pem)
    else:
        context.load_default_certs()
    if cert_file:
        context.load_cert_chain(cert_file, key_file, password=_no_password)
    return context


def _no_password() -> str:
    """Refuse to unlock a key: OpenSSL would ask on the terminal, in the middle of a run."""
    raise PermissionError(errno.EACCES, "the client key is encrypted")


def socket_options() -> list[tuple[int, int, int]]:
    """Send small writes at once, and notice within two minutes that the other side is gone."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def ca_fingerprint(ca_file: str | None) -> str | None:
    """Hash the CA certificates by their DER: order, comments and line ends of the file do not count.

    Gives None without a file: the server is verified with the system's public CAs.
    """
    return fingerprint(Path(ca_file).read_text("utf-8", "replace")) if ca_file else None


def fingerprint(pem: str) -> str | None:
    """Hash CA certificates as `ca_fingerprint` does; None if the text holds none."""
    found = sorted({ssl.PEM_cert_to_DER_cert(one) for one in _CERTIFICATE.findall(pem)})
    return f"sha256:{hashlib.sha256(b''.join(found)).hexdigest()}" if found else None
