"""Throw-away TLS certificates, made here: no test needs a program or a library for them.

The keys are P-256 and as weak as their seed; they protect nothing.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

# Curve P-256 (FIPS 186-4, D.1.2.3).
_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_Point = tuple[int, int] | None

_EC_KEY = bytes.fromhex("06072a8648ce3d0201")
_CURVE = bytes.fromhex("06082a8648ce3d030107")
ECDSA_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A certificate and its key, as PEM, and the name of its subject with its secret number."""

    certificate: str
    key: str
    subject: tuple[str, int]

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write both files and give their places."""
        files = folder / f"{name}.crt", folder / f"{name}.key"
        for file, text in zip(files, (self.certificate, self.key), strict=True):
            file.write_text(text)
        return files


def self_signed(
    host: str, *, seed: str = "", issuer: Certificate | None = None, has_alternative: bool = True
) -> Certificate:
    """Make a certificate for a host name or IP address, good from 2020 to 2049.

    Args:
        host: the name.
        seed: others for the same name differ by it.
        issuer: who signs it, if not it itself.
        has_alternative: whether the name stands as subject alternative name too, as it must.
    """
    secret = number(f"key {host} {seed}")
    by, signer = issuer.subject if issuer else (host, secret)
    public = _public(secret)
    more = _alternative_name(host) if has_alternative else b""
    body = tlv(
        0x30,
        tlv(0xA0, integer(2))
        + integer(number(f"serial {host} {seed}") >> 100)
        + ECDSA_SHA256
        + name(by)
        + tlv(0x30, tlv(0x17, b"200101000000Z") + tlv(0x17, b"491231235959Z"))
        + name(host)
        + public_key(secret)
        + tlv(0xA3, tlv(0x30, _basic_constraints() + more)),
    )
    signed = tlv(0x30, body + ECDSA_SHA256 + bits(sign(signer, body)))
    key = tlv(
        0x30, integer(1) + tlv(0x04, secret.to_bytes(32, "big")) + tlv(0xA0, _CURVE) + tlv(0xA1, public)
    )
    return Certificate(
        certificate=pem("CERTIFICATE", signed), key=pem("EC PRIVATE KEY", key), subject=(host, secret)
    )


def tls_server(
    folder: Path, host: str | Certificate = "127.0.0.1", name: str = "server"
) -> tuple[SSLContext, str]:
    """Make the TLS context of a server, by its name or certificate, and the file that it is trusted by."""
    files = (self_signed(host) if isinstance(host, str) else host).write(folder, name)
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context, str(files[0])


def _public(secret: int) -> bytes:
    return bits(b"\x04" + b"".join(part.to_bytes(32, "big") for part in _times(secret, _G) or ()))


def public_key(secret: int) -> bytes:
    """Give the public key of a secret number, as DER."""
    return tlv(0x30, tlv(0x30, _EC_KEY + _CURVE) + _public(secret))


def name(text: str) -> bytes:
    """Give a distinguished name with one common name, as DER."""
    return tlv(0x30, tlv(0x31, tlv(0x30, bytes.fromhex("0603550403") + tlv(0x0C, text.encode()))))


def _basic_constraints() -> bytes:
    return tlv(0x30, bytes.fromhex("0603551d130101ff") + tlv(0x04, bytes.fromhex("30030101ff")))


def _alternative_name(host: str) -> bytes:
    try:
        entry = tlv(0x87, ip_address(host).packed)
    except ValueError:
        entry = tlv(0x82, host.encode())
    return tlv(0x30, bytes.fromhex("0603551d11") + tlv(0x04, tlv(0x30, entry)))


def number(text: str) -> int:
    """Give a secret number made of a text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big") % _N


def sign(secret: int, message: bytes) -> bytes:
    """Sign by ECDSA with SHA-256; the signature is DER."""
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    nonce = number(f"nonce {secret} {digest}")
    r = (_times(nonce, _G) or (0, 0))[0] % _N
    return tlv(0x30, integer(r) + integer(pow(nonce, -1, _N) * (digest + r * secret) % _N))


def _times(factor: int, point: _Point) -> _Point:
    total: _Point = None
    while factor:
        if factor & 1:
            total = _plus(total, point)
        point = _plus(point, point)
        factor >>= 1
    return total


def _plus(first: _Point, second: _Point) -> _Point:
    if first is None or second is None:
        return first or second
    if first == second:
        slope = 3 * (first[0] ** 2 - 1) * pow(2 * first[1], -1, _P)
    elif first[0] == second[0]:
        return None
    else:
        slope = (second[1] - first[1]) * pow(second[0] - first[0], -1, _P)
    x = (slope**2 - first[0] - second[0]) % _P
    return x, (slope * (first[0] - x) - first[1]) % _P


def integer(value: int) -> bytes:
    """Give a whole number as DER."""
    return tlv(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def bits(content: bytes) -> bytes:
    """Give bytes as a bit string."""
    return tlv(0x03, b"\x00" + content)


def tlv(tag: int, content: bytes) -> bytes:
    """Give a tag with its content as DER."""
    size = len(content)
    if size < 128:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def pem(label: str, der: bytes) -> str:
    """Write DER as PEM."""
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"
