"""What is said to a SOCKS proxy of version 5 before it connects us to a server (RFC 1928, RFC 1929)."""

from __future__ import annotations

import ipaddress
import socket

_VERSION, _LOGIN_VERSION = 5, 1
_NOBODY, _BY_PASSWORD = 0, 2
_CONNECT = 1
_V4, _NAME, _V6 = 1, 3, 4
_LENGTHS = {_V4: 4, _V6: 16}


def connect(found: socket.socket, host: str, port: int, *, person: bytes | None) -> None:
    """Ask a proxy to connect us; names of servers are looked up by it.

    Args:
        found: the connection to the proxy.
        host: name or number of the server.
        port: its port.
        person: name and password for the proxy, a colon between them; None without.

    Raises:
        OSError: it ends the connection, or does not connect us.
        ValueError: a name is too long to be said.
    """
    ways = [_NOBODY] if person is None else [_NOBODY, _BY_PASSWORD]
    found.sendall(bytes([_VERSION, len(ways), *ways]))
    version, way = _read(found, 2)
    if version != _VERSION or way not in ways:
        raise ConnectionError("it does not take us")
    if way == _BY_PASSWORD and person is not None:
        name, _, password = person.partition(b":")
        found.sendall(bytes([_LOGIN_VERSION, *_sized(name), *_sized(password)]))
        if _read(found, 2)[1] != 0:
            raise ConnectionError("it does not accept the password")
    found.sendall(bytes([_VERSION, _CONNECT, 0, *_address(host)]) + port.to_bytes(2, "big"))
    version, fault, _, kind = _read(found, 4)
    if version != _VERSION or fault:
        raise ConnectionError(f"it does not connect us ({fault})")
    _read(found, (_LENGTHS.get(kind) or _read(found, 1)[0]) + 2)


def _address(host: str) -> bytes:
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return bytes([_NAME]) + _sized(host.encode("idna"))
    return bytes([_V4 if number.version == 4 else _V6]) + number.packed


def _sized(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _read(found: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = found.recv(size - len(data))
        if not more:
            raise ConnectionError("it ended the connection")
        data += more
    return data
