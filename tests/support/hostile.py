"""Servers of raw bytes on loopback: those that end, stall, lie or never stop."""

from __future__ import annotations

import json
import random
import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Lock, Thread
from typing import Any

from mlstack.errors import ClusterError
from mlstack.kube.api_server import object_fault
from mlstack.kube.client import Applied, ClientWrapper, Cluster, Listing, ObjectRef, WatchEvent

JSON = b"Content-Type: application/json\r\n"


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request as it came.

    Attributes:
        method: HTTP method.
        path: with its query.
        body: decoded JSON, None without.
        number: which of its connection it is, from 1.
    """

    method: str
    path: str
    body: Any
    number: int


Behaviour = Callable[["Peer", Call], bool]
"""Answers a request; gives whether the connection goes on."""


@dataclass(frozen=True)
class Peer:
    """The server's end of a connection."""

    socket: socket.socket

    def send(self, *pieces: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(b"".join(pieces))

    def answer(self, body: Any, code: int = 200, head: bytes = b"") -> bool:
        """Answer as a server does; gives True."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        length = b"Content-Length: %d\r\n" % len(data)
        self.send(b"HTTP/1.1 %d Code\r\n" % code, JSON, length, head, b"\r\n", data)
        return True

    def reset(self) -> bool:
        """End the connection as one that nobody knows; gives False."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False


class HostileServer:
    """Answers every request by a behaviour, each connection in a thread.

    Attributes:
        url: its address.
        connections: how many were made.
        calls: all requests.
    """

    def __init__(self, behaviour: Behaviour, tls: ssl.SSLContext | None = None) -> None:
        """Take a port."""
        self.behaviour, self._tls = behaviour, tls
        self.connections = 0
        self.calls: list[Call] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._peers: list[socket.socket] = []

    @contextmanager
    def running(self) -> Iterator[HostileServer]:
        """Serve until the block ends."""
        Thread(target=self._serve, daemon=True).start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            for peer in self._peers:
                with suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            try:
                peer = self._listener.accept()[0]
            except OSError:
                return
            self.connections += 1
            Thread(target=self._talk, args=(peer,), daemon=True).start()

    def _talk(self, peer: socket.socket) -> None:
        with suppress(OSError, ValueError):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with peer if self._tls is None else self._tls.wrap_socket(peer, server_side=True) as near:
                self._peers.append(near)
                number = 0
                while (call := _call(near, number := number + 1)) is not None:
                    self.calls.append(call)
                    if not self.behaviour(Peer(near), call):
                        return


def _call(peer: socket.socket, number: int) -> Call | None:
    raw = b""
    while b"\r\n\r\n" not in raw:
        if not (piece := peer.recv(1 << 16)):
            return None
        raw += piece
    head, _, body = raw.partition(b"\r\n\r\n")
    method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
    headers = {line.partition(b":")[0].lower(): line.partition(b":")[2] for line in head.split(b"\r\n")[1:]}
    while len(body) < int(headers.get(b"content-length", 0)):
        body += peer.recv(1 << 16)
    return Call(method=method, path=path, body=json.loads(body) if body else None, number=number)


class Objects:
    """A store of namespaced objects that answers creation, reading and deletion as an API server does."""

    def __init__(self) -> None:
        self.objects: dict[str, Mapping[str, Any]] = {}
        self.created = 0
        self._lock = Lock()

    def answer(self, call: Call) -> tuple[int, Any]:
        """Do what is asked; gives HTTP status and body."""
        path = call.path.partition("?")[0]
        with self._lock:
            if call.method == "POST":
                path = f"{path}/{call.body['metadata']['name']}"
                if path in self.objects:
                    return 409, _status(409, "AlreadyExists")
                self.created += 1
                metadata = {**call.body["metadata"], "uid": f"u-{self.created}", "resourceVersion": "1"}
                self.objects[path] = {**call.body, "metadata": metadata}
                return 201, self.objects[path]
            if path not in self.objects:
                return 404, {**_status(404, "NotFound"), "details": {"name": path.rpartition("/")[2]}}
            if call.method == "PUT":
                live = self.objects[path]
                if call.body["metadata"]["resourceVersion"] != live["metadata"]["resourceVersion"]:
                    return 409, _status(409, "Conflict")
                version = str(int(live["metadata"]["resourceVersion"]) + 1)
                metadata = {**call.body["metadata"], "resourceVersion": version}
                self.objects[path] = {**call.body, "metadata": metadata}
            if call.method == "DELETE":
                return 200, self.objects.pop(path)
            return 200, self.objects[path]


def _status(code: int, reason: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "code": code, "reason": reason}


JUNK: tuple[Any, ...] = (
    *(7, -1, "x", "", True, None, 1.5, 10**30, "9" * 50),
    *([], ["x"], [7], [{}], [[]], [None], {}, {"a": 1}, {"a": {"b": []}}),
)
"""Values of every type, for fields that were to have another."""


class OddCluster(ClientWrapper):
    """Another cluster, of whose objects some have one field of another type than it gave it.

    What the real client finds in metadata is found here too. What managers own is left as it is: it would be
    most of all fields.

    Args:
        cluster: what is asked.
        seed: others are odd by another one.
        share: how many of the objects are odd.
    """

    def __init__(self, cluster: Cluster, seed: int, share: float = 0.1) -> None:
        super().__init__(cluster)
        self._random, self._share = random.Random(seed), share

    def get(self, ref: ObjectRef) -> dict[str, Any] | None:
        live = super().get(ref)
        return None if live is None else self._odd(live)

    def list(self, *words: Any, **named: Any) -> Listing:
        listed = super().list(*words, **named)
        return replace(listed, items=tuple(map(self._odd, listed.items)))

    def watch(self, *words: Any, **named: Any) -> Iterator[WatchEvent]:
        for event in super().watch(*words, **named):
            yield event if event.type == "BOOKMARK" else replace(event, object=self._odd(event.object))

    def apply(self, *words: Any, **named: Any) -> Applied:
        done = super().apply(*words, **named)
        return replace(done, object=self._odd(done.object))

    def _odd(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        copy: dict[str, Any] = json.loads(json.dumps(obj))
        if self._random.random() > self._share:
            return copy
        part = self._random.choice([name for name in copy if name not in ("kind", "apiVersion")])
        places = [path for path in _paths(copy[part], (part,)) if "managedFields" not in path]
        path = self._random.choice(places)
        inside: Any = copy
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = self._random.choice(JUNK)
        if fault := object_fault(copy, str(obj.get("kind"))):
            raise ClusterError(f"no object: {fault}")
        return copy


def _paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paths(item, (*path, key))
