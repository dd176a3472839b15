"""Proxies on loopback that connect to one server and note who asked."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread


class ConnectingProxy:
    """A proxy that connects whoever asks, to the one server it knows; notes what it was told."""

    def __init__(self, target: str, tls: ssl.SSLContext | None, *, says: str = "200 OK") -> None:
        self.heads: list[str] = []
        host, _, port = target.rpartition("//")[2].rpartition(":")
        self._target, self._tls, self._says = (host, int(port)), tls, says
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    @contextmanager
    def running(self) -> Iterator[ConnectingProxy]:
        Thread(target=self._serve, daemon=True).start()
        try:
            yield self
        finally:
            self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                peer = self._listener.accept()[0]
            except OSError:
                return
            Thread(target=self._connect, args=(peer,), daemon=True).start()

    def _connect(self, peer: socket.socket) -> None:
        try:
            if self._tls is not None:
                peer = self._tls.wrap_socket(peer, server_side=True)
            if self._greet(peer):
                self._carry(peer)
        except OSError:
            pass
        finally:
            peer.close()

    def _greet(self, peer: socket.socket) -> bool:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += peer.recv(1)
        self.heads.append(head.decode())
        peer.sendall(f"HTTP/1.1 {self._says}\r\n\r\n".encode())
        return self._says.startswith("200")

    def _carry(self, peer: socket.socket) -> None:
        """Carry bytes both ways; over TLS two threads must not touch one connection, so they take turns."""
        with socket.create_connection(self._target) as server:
            peer.settimeout(0.005)
            server.settimeout(0.005)
            ends = {peer: server, server: peer}
            while True:
                for source, target in ends.items():
                    try:
                        data = source.recv(1 << 16)
                    except TimeoutError:
                        continue
                    if not data:
                        return
                    target.settimeout(10)
                    target.sendall(data)
                    target.settimeout(0.005)


class SocksProxy(ConnectingProxy):
    """A proxy of SOCKS 5 that connects whoever asks, by number, to the one server it knows."""

    def __init__(self, target: str) -> None:
        super().__init__(target, None)
        self.url = self.url.replace("http:", "socks5:")

    def _greet(self, peer: socket.socket) -> bool:
        peer.recv(257)
        peer.sendall(b"\x05\x00")
        self.heads.append(peer.recv(10).hex())
        peer.sendall(b"\x05\x00\x00\x01" + bytes(6))
        return True
