"""Connections: kept, taken up again, given up; what comes packed is unpacked."""

from __future__ import annotations

import gc
import gzip
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from threading import Thread
from threading import enumerate as enumerate_threads
from typing import Any
from warnings import catch_warnings, simplefilter

import pytest
from urllib3.exceptions import HTTPError
from urllib3.util import connection

from mlstack.http import (
    CONNECTIONS,
    MOST_HEAD_BYTES,
    ConnectionPool,
    NoAnswerError,
    Response,
    give_up,
    tls_context,
)
from mlstack.kube.kubeconfig import Login
from tests.support.fakeapi import Answer, always, in_turn, serve
from tests.support.waiting import wait_until

BODY = {"kind": "ConfigMap"}


def ask(pool: ConnectionPool, path: str = "/a", *, whole: bool = True) -> Response:
    return pool.send("GET", path, body=None, headers={}, timeout_s=5, whole=whole)


def pool_of(server: str) -> ConnectionPool:
    pool = ConnectionPool(Login(label="test", server=server))
    pool.use(tls_context(ca_pem=None, cert_file=None, key_file=None, verify=True))
    return pool


class Peer:
    """Answers every connection, once or as long as it `stays`; counts them."""

    def __init__(self, *, stays: bool) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.connections, self.stays = 0, stays
        self.peers: list[socket.socket] = []
        Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer = self.listener.accept()[0]
            except OSError:
                return
            self.connections += 1
            self.peers.append(peer)
            Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        with peer:
            while peer.recv(1 << 16):
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                if not self.stays:
                    break


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    started: list[Peer] = []
    yield started
    for peer in started:
        peer.listener.close()


def test_a_connection_is_used_again(peers: list[Peer]) -> None:
    peers.append(Peer(stays=True))
    pool = pool_of(peers[0].url)
    for _ in range(3):
        assert ask(pool).data == b"{}"
    assert peers[0].connections == 1


def test_what_was_greeted_in_another_way_is_not_kept(peers: list[Peer]) -> None:
    peers.append(Peer(stays=True))
    pool = pool_of(peers[0].url)
    ask(pool)
    pool.use(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    assert ask(pool).data == b"{}"
    assert peers[0].connections == 2


def test_what_is_expected_finds_open_connections(peers: list[Peer]) -> None:
    peers.append(Peer(stays=True))
    pool = pool_of(peers[0].url)
    pool.expect(3)
    pool.expect(3)
    wait_until(lambda: peers[0].connections == 3, timeout_s=10, what="connections")
    for _ in range(3):
        assert ask(pool).data == b"{}"
    assert peers[0].connections == 3


def test_watches_that_have_ended_leave_their_places_to_others(peers: list[Peer]) -> None:
    peers.append(Peer(stays=True))
    pool = pool_of(peers[0].url)
    for _ in range(CONNECTIONS):
        give_up(ask(pool, whole=False).raw)
    pool.expect(3)
    wait_until(lambda: peers[0].connections == CONNECTIONS + 3, timeout_s=10, what="connections")
    wait_until(lambda: not opening(), timeout_s=10, what="the attempts")
    for _ in range(3):
        assert ask(pool).data == b"{}"
    assert peers[0].connections == CONNECTIONS + 3


def test_that_nobody_answers_is_told_by_the_request_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    pool = pool_of(url)
    pool.expect(2)
    wait_until(lambda: not opening(), timeout_s=10, what="the attempts")
    with pytest.raises(NoAnswerError, match="refused"):
        ask(pool)


def test_a_server_that_ends_before_the_greeting_is_broken_off_and_leaves_no_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    pool = pool_of(f"https://127.0.0.1:{listener.getsockname()[1]}")
    original = connection.create_connection

    def connect(*args: Any, **options: Any) -> socket.socket:
        connection = original(*args, **options)
        listener.close()
        return connection

    monkeypatch.setattr(connection, "create_connection", connect)

    with pytest.raises(NoAnswerError) as raised:
        ask(pool)

    assert raised.value.broken
    with catch_warnings(record=True) as warned:
        simplefilter("always")
        del raised
        gc.collect()
    assert warned == []


def test_packed_answers_are_unpacked() -> None:
    packed = Answer(body=gzip.compress(json.dumps(BODY).encode()), headers=(("Content-Encoding", "gzip"),))
    with serve(always(packed)).running() as api:
        assert json.loads(ask(pool_of(api.url)).data) == BODY
    assert api.asked[0].headers["accept-encoding"] == "gzip"


def test_an_answer_that_is_badly_packed_is_a_broken_connection() -> None:
    packed = Answer(body=b"no gzip", headers=(("Content-Encoding", "gzip"),))
    with serve(always(packed)).running() as api, pytest.raises(NoAnswerError) as caught:
        ask(pool_of(api.url))
    assert caught.value.broken


def test_an_answer_may_be_longer_than_its_head() -> None:
    long = {"data": "x" * (2 * MOST_HEAD_BYTES)}
    with serve(always(Answer(body=long))).running() as api:
        assert json.loads(ask(pool_of(api.url)).data) == long


def test_a_stream_gives_what_there_is_and_ends_with_the_connection() -> None:
    parts = Answer(body=[b'{"a":1}\n', b'{"b":2}\n'], breaks=True)
    with serve(always(parts)).running() as api:
        received = ask(pool_of(api.url), whole=False)
        assert b"".join(_chunks(received)) == b'{"a":1}\n{"b":2}\n'


def test_after_a_stream_others_get_another_connection() -> None:
    script = in_turn(Answer(body=[b"1\n"]), Answer(body=BODY))
    with serve(script).running() as api:
        pool = pool_of(api.url)
        stream = ask(pool, whole=False)
        assert json.loads(ask(pool).data) == BODY
        stream.raw.close()


@pytest.mark.parametrize("server", ["https://", "https://a b", "https://[::1", "https://h:123456", "ftp://h"])
def test_what_is_no_address_is_refused(server: str) -> None:
    with pytest.raises(ValueError, match="address"):
        pool_of(server)


def test_a_header_that_cannot_be_sent_is_a_fault() -> None:
    with serve(always(Answer(body=BODY))).running() as api, pytest.raises(NoAnswerError):
        pool_of(api.url).send("GET", "/a", body=None, headers={"X": "a\nb"}, timeout_s=5, whole=True)
    assert api.asked == []


@pytest.mark.parametrize(
    ("error", "message", "broken"),
    [
        (
            ssl.SSLError(1, "[SSL] tlsv13 alert certificate required (_ssl.c:2580)"),
            "certificate required",
            False,
        ),
        (
            ssl.SSLEOFError(8, "[SSL] unexpected eof while reading (_ssl.c:2580)"),
            "the connection broke",
            True,
        ),
    ],
    ids=["refused", "ended"],
)
def test_a_server_may_refuse_a_certificate_after_the_greeting(
    monkeypatch: pytest.MonkeyPatch, error: OSError, message: str, broken: bool
) -> None:
    def answer(self: HTTPConnection) -> None:
        raise error

    monkeypatch.setattr(HTTPConnection, "getresponse", answer)
    with (
        serve(always(Answer(body=BODY))).running() as api,
        pytest.raises(NoAnswerError, match=message) as caught,
    ):
        ask(pool_of(api.url))
    assert caught.value.broken is broken


@pytest.mark.parametrize("is_read", [False, True], ids=["unread", "broken"])
def test_a_watch_that_is_the_last_of_its_connection_leaves_no_socket_open(is_read: bool) -> None:
    def answer(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(1 << 16)
            head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            peer.sendall(head + b"3\r\n{}\n\r\n9\r\n")

    with catch_warnings(), socket.create_server(("127.0.0.1", 0)) as listener:
        simplefilter("error")
        Thread(target=answer, args=(listener,), daemon=True).start()
        watch = ask(pool_of(f"http://127.0.0.1:{listener.getsockname()[1]}"), whole=False)
        if is_read:
            assert b"".join(_chunks(watch)) == b"{}\n"
        else:
            watch.raw.close()
        sockets = [sock for sock in gc.get_objects() if isinstance(sock, socket.socket) and sock.fileno() > 0]
        assert [sock for sock in sockets if sock is not listener and _leads_to(sock, listener)] == []


def opening() -> bool:
    return any(thread.name == "mlstack-connect" for thread in enumerate_threads())


def _chunks(received: Response) -> Iterator[bytes]:
    """Give what came before the end, whatever ends it."""
    with suppress(HTTPError):
        yield from received.raw.stream(1 << 16)
    received.raw.close()


def _leads_to(sock: socket.socket, listener: socket.socket) -> bool:
    try:
        return bool(sock.getpeername() == listener.getsockname())
    except OSError:
        return False
