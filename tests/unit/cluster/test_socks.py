"""What is said to SOCKS proxies, and how their answers are taken."""

from __future__ import annotations

import socket
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from mlstack.cli import kube
from mlstack.cluster import socks
from mlstack.cluster.api import ObjectRef
from mlstack.errors import UnreachableError
from tests.support.fakeapi import Answer, always, kubeconfig, serve

MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "q"}}
REF = ObjectRef("v1", "ConfigMap", "q", "a")
DONE = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50"


class Scripted:
    """A proxy that answers what it is told piece by piece, then carries to a server."""

    def __init__(self, *steps: tuple[int, bytes], target: str = "") -> None:
        self.told: list[bytes] = []
        self._steps, self._target = steps, target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        peer = self._listener.accept()[0]
        self._listener.close()
        with peer:
            for size, answer in self._steps:
                self.told.append(_exactly(peer, size))
                peer.sendall(answer)
            if self._target:
                host, _, port = self._target.rpartition("//")[2].rpartition(":")
                with socket.create_connection((host, int(port))) as server:
                    there = Thread(target=_carry, args=(peer, server), daemon=True)
                    there.start()
                    _carry(server, peer)


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := peer.recv(size - len(data))):
        data += more
    return data


def _carry(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(1 << 16):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def connected(proxy: Scripted, host: str, *, person: bytes | None = None) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), 10) as found:
        socks.connect(found, host, 443, person=person)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("cluster.example", b"\x03\x0fcluster.example"),
        ("192.0.2.7", b"\x01\xc0\x00\x02\x07"),
        ("2001:db8::1", b"\x04\x20\x01\x0d\xb8" + bytes(11) + b"\x01"),
    ],
)
def test_a_server_is_named_as_it_is(host: str, address: bytes) -> None:
    proxy = Scripted((3, b"\x05\x00"), (5 + len(address), DONE))
    connected(proxy, host)
    assert proxy.told == [b"\x05\x01\x00", b"\x05\x01\x00" + address + b"\x01\xbb"]


def test_a_password_is_told_where_it_is_wanted() -> None:
    proxy = Scripted((4, b"\x05\x02"), (10, b"\x01\x00"), (10, DONE))
    connected(proxy, "192.0.2.7", person=b"ada:p:ss")
    assert proxy.told[:2] == [b"\x05\x02\x00\x02", b"\x01\x03ada\x04p:ss"]


@pytest.mark.parametrize(
    "steps",
    [
        [(3, b"\x05\xff")],
        [(3, b"HT")],
        [(3, b"\x05")],
        [(3, b"\x05\x00"), (10, b"\x05\x05\x00\x01" + bytes(6))],
        [(3, b"\x05\x00"), (10, DONE[:5])],
    ],
    ids=["takes nobody", "another protocol", "ends", "refuses", "ends late"],
)
def test_what_does_not_connect_us_is_a_fault(steps: list[tuple[int, bytes]]) -> None:
    with pytest.raises(OSError, match="it"):
        connected(Scripted(*steps), "192.0.2.7")


def test_a_wrong_password_is_a_fault() -> None:
    with pytest.raises(OSError, match="the password"):
        connected(Scripted((4, b"\x05\x02"), (5, b"\x01\x01")), "192.0.2.7", person=b"a:b")


def test_a_name_that_cannot_be_said_is_a_fault() -> None:
    with pytest.raises(ValueError, match="label"):
        connected(Scripted((3, b"\x05\x00")), "x" * 300)


@pytest.mark.parametrize("name", [b"\x03\x04here"])
def test_the_answer_may_have_a_name(name: bytes) -> None:
    connected(Scripted((3, b"\x05\x00"), (10, DONE[:3] + name + b"\x00\x50")), "192.0.2.7")


def config(folder: Path, proxy: Scripted, server: str) -> Any:
    return kubeconfig(folder, server, **{"proxy-url": f"socks5://127.0.0.1:{proxy.port}"})


def test_requests_go_through_it(tmp_path: Path) -> None:
    with serve(always(Answer(body=MAP))).running() as api:
        proxy = Scripted((3, b"\x05\x00"), (22, DONE), target=api.url)
        cluster = kube.connect("test", kubeconfig=config(tmp_path, proxy, "http://cluster.example"))
        assert cluster.get(REF) == cluster.get(REF) == MAP
    assert api.asked[0].headers["host"] == "cluster.example"


def test_that_it_does_not_connect_is_told(tmp_path: Path) -> None:
    proxy = Scripted((3, b"\x05\xff"))
    with pytest.raises(UnreachableError, match="the proxy does not connect"):
        kube.connect("test", kubeconfig=config(tmp_path, proxy, "https://cluster.example")).get(REF)
