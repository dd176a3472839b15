"""Move this process into a network namespace of its own, where only loopback exists.

API servers, operators and hubs dial addresses that exist only in the simulation: cluster IPs, pod IPs. With
a default route such packets leave the machine, and something out there may answer. In the namespace the same
dial fails at once. What it takes is made here by system calls: not every machine has `unshare` and `ip`.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

ADVERTISED = "198.51.100.1"
"""The one address beside 127.0.0.1: an API server wants one that is not loopback to advertise (RFC 5737)."""

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_SIOCSIFADDR = 0x8916
_SIOCSIFNETMASK = 0x891C
_IFF_UP = 0x1


class NoIsolationError(Exception):
    """This machine lets us make no network namespace; the message says which step failed and why."""


def enter_network_namespace() -> None:
    """Leave the machine's network for good: this thread and all processes it starts from now on.

    Call it before any thread is started: threads that run already stay outside, and a user without rights
    cannot even enter while there are any.

    Raises:
        NoIsolationError: the system refuses.
    """
    try:
        _unshare()
        _bring_up_loopback()
    except (OSError, AttributeError) as error:
        raise NoIsolationError(f"no network namespace can be made here: {error}") from error


def add_address(address: str) -> None:
    """Let loopback answer for one more address, as for the cluster IP of a Service; it stays to the end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        name = b"lo:%d" % (2 + int.from_bytes(socket.inet_aton(address)[2:], "big"))
        _set_address(control, _SIOCSIFADDR, address, name)
        _set_address(control, _SIOCSIFNETMASK, "255.255.255.255", name)


def _unshare() -> None:
    user, group = os.geteuid(), os.getegid()
    flags = _CLONE_NEWNET if user == 0 else _CLONE_NEWNET | _CLONE_NEWUSER
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        code = ctypes.get_errno()
        threads = len(list(Path("/proc/self/task").iterdir()))
        raise OSError(code, f"unshare by user {user} with {threads} threads: {os.strerror(code)}")
    if user != 0:
        # Everybody stays who they were; only the rights over the new network are gained.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sh22x", b"lo", 0))
        (flags,) = struct.unpack_from("h", answer, 16)
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | _IFF_UP))
        _set_address(control, _SIOCSIFADDR, ADVERTISED)
        # The address alone: with the mask of its class, loopback would answer for 255 more.
        _set_address(control, _SIOCSIFNETMASK, "255.255.255.255")


def _set_address(control: socket.socket, request: int, address: str, name: bytes = b"lo:1") -> None:
    fcntl.ioctl(
        control, request, struct.pack("16sHH4s16x", name, socket.AF_INET, 0, socket.inet_aton(address))
    )
