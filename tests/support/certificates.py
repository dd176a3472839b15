"""Throw-away TLS certificates, made here: no test needs a program or a library for them.

The keys are P-256 and as weak as their seed; they protect nothing.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

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
_ECDSA_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")


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
    secret = _number(f"key {host} {seed}")
    by, signer = issuer.subject if issuer else (host, secret)
    public = _bits(b"\x04" + b"".join(part.to_bytes(32, "big") for part in _times(secret, _G) or ()))
    more = _alternative_name(host) if has_alternative else b""
    body = _tlv(
        0x30,
        _tlv(0xA0, _integer(2))
        + _integer(_number(f"serial {host} {seed}") >> 100)
        + _ECDSA_SHA256
        + _name(by)
        + _tlv(0x30, _tlv(0x17, b"200101000000Z") + _tlv(0x17, b"491231235959Z"))
        + _name(host)
        + _tlv(0x30, _tlv(0x30, _EC_KEY + _CURVE) + public)
        + _tlv(0xA3, _tlv(0x30, _basic_constraints() + more)),
    )
    signed = _tlv(0x30, body + _ECDSA_SHA256 + _bits(_sign(signer, body)))
    key = _tlv(
        0x30, _integer(1) + _tlv(0x04, secret.to_bytes(32, "big")) + _tlv(0xA0, _CURVE) + _tlv(0xA1, public)
    )
    return Certificate(
        certificate=_pem("CERTIFICATE", signed), key=_pem("EC PRIVATE KEY", key), subject=(host, secret)
    )


def _name(text: str) -> bytes:
    return _tlv(0x30, _tlv(0x31, _tlv(0x30, bytes.fromhex("0603550403") + _tlv(0x0C, text.encode()))))


def _basic_constraints() -> bytes:
    return _tlv(0x30, bytes.fromhex("0603551d130101ff") + _tlv(0x04, bytes.fromhex("30030101ff")))


def _alternative_name(host: str) -> bytes:
    try:
        entry = _tlv(0x87, ip_address(host).packed)
    except ValueError:
        entry = _tlv(0x82, host.encode())
    return _tlv(0x30, bytes.fromhex("0603551d11") + _tlv(0x04, _tlv(0x30, entry)))


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big") % _N


def _sign(secret: int, message: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    nonce = _number(f"nonce {secret} {digest}")
    r = (_times(nonce, _G) or (0, 0))[0] % _N
    return _tlv(0x30, _integer(r) + _integer(pow(nonce, -1, _N) * (digest + r * secret) % _N))


def _times(factor: int, point: _Point) -> _Point:
    total: _Point = None
    while factor:
        if factor & 1:
            total = _plus(total, point)
        point = _plus(point, point)
        factor >>= 1
    return total


def _plus(one: _Point, other: _Point) -> _Point:
    if one is None or other is None:
        return one or other
    if one == other:
        slope = 3 * (one[0] ** 2 - 1) * pow(2 * one[1], -1, _P)
    elif one[0] == other[0]:
        return None
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, _P)
    x = (slope**2 - one[0] - other[0]) % _P
    return x, (slope * (one[0] - x) - one[1]) % _P


def _integer(value: int) -> bytes:
    return _tlv(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(content: bytes) -> bytes:
    return _tlv(0x03, b"\x00" + content)


def _tlv(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def _pem(label: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"
