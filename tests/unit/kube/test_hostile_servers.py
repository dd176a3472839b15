"""Servers that stall, lie and never stop: each is a cluster that cannot be used, soon, with its place."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mlstack import http
from mlstack.cli import ports
from mlstack.errors import ClusterError, InvalidError, UnreachableError
from mlstack.kube.api_server import ApiServerClient, connect
from mlstack.kube.client import ObjectRef
from mlstack.kube.transport import error_of
from tests.support.fakeapi import kubeconfig
from tests.support.hostile import JSON, Call, HostileServer, Peer

pytestmark = pytest.mark.slow

MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "q"}}
REF = ObjectRef("v1", "ConfigMap", "q", "a")
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
PACKED = b"Content-Encoding: gzip\r\n"
Speech = Callable[[Peer], object]


def for_ever(piece: bytes, first: bytes = b"") -> Speech:
    def speak(peer: Peer) -> None:
        peer.send(first)
        while True:
            peer.send(piece)

    return speak


def drop_by_drop(piece: bytes, first: bytes = b"", pause_s: float = 0.05) -> Speech:
    def speak(peer: Peer) -> None:
        peer.send(first)
        while True:
            peer.send(piece)
            time.sleep(pause_s)

    return speak


def once(*pieces: bytes) -> Speech:
    """Say it, and stay there."""

    def speak(peer: Peer) -> None:
        peer.send(*pieces)
        peer.socket.settimeout(20)
        peer.socket.recv(1)

    return speak


def length(text: bytes, body: bytes = b"{}") -> Speech:
    return once(OK, JSON, b"Content-Length: ", text, b"\r\n\r\n", body)


def bomb(size: int) -> bytes:
    """Pack a text of blanks."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = b" " * (1 << 20)
    packed = b"".join(packer.compress(piece) for _ in range(size >> 20))
    return packed + packer.flush()


ENDLESS: dict[str, Speech] = {
    "headers": for_ever(b"A: b\r\n" * 1000, OK),
    "a header": for_ever(b"a" * 65536, OK + b"A: "),
    "a status": for_ever(b"a" * 65536, b"HTTP/1.1 200 "),
    "body": for_ever(b" " * 65536, OK + JSON + b"\r\n"),
    "chunks": for_ever(b"10000\r\n" + b" " * 65536 + b"\r\n", CHUNKED),
    "chunk size": for_ever(b"0" * 65536, CHUNKED),
    "trailers": for_ever(b"A: b\r\n" * 10000, CHUNKED + b"2\r\n{}\r\n0\r\n"),
    "100-continue": for_ever(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
}
SLOW: dict[str, Speech] = {
    "status": drop_by_drop(b"H"),
    "headers": drop_by_drop(b"A: b\r\n", OK),
    "100-continue": drop_by_drop(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": drop_by_drop(b" ", OK + JSON + b"Content-Length: 9999\r\n\r\n"),
    "chunks": drop_by_drop(b"1\r\n \r\n", CHUNKED),
    "trailers": drop_by_drop(b"A: b\r\n", CHUNKED + b"2\r\n{}\r\n0\r\n"),
    "packed": drop_by_drop(
        b"\0", OK + JSON + PACKED + b"Content-Length: 9999\r\n\r\n" + gzip.compress(b" ")[:10]
    ),
}
LIES: dict[str, tuple[Speech, str]] = {
    "negative length": (length(b"-1"), "Content-Length"),
    "textual length": (length(b"two"), "Content-Length"),
    "empty length": (length(b""), "Content-Length"),
    "odd digits": (length("²".encode()), "Content-Length"),
    "huge length": (length(b"9" * 15), "is longer than"),
    "endless length": (length(b"9" * 5000), "Content-Length"),
    "two lengths": (length(b"2\r\nContent-Length: 3"), "Content-Length"),
    "huge chunk": (once(CHUNKED, b"7fffffffffffffff\r\n{}"), "did not end"),
    "negative chunk": (once(CHUNKED, b"-1\r\n{}\r\n0\r\n\r\n"), "context"),
    "textual chunk": (once(CHUNKED, b"two\r\n{}\r\n0\r\n\r\n"), "the connection broke"),
    "short body": (length(b"3"), "did not end"),
    "other coding": (
        once(OK, JSON, b"Content-Encoding: br\r\nContent-Length: 2\r\n\r\n\0\1"),
        "no Kubernetes",
    ),
    "half a packet": (
        once(OK, JSON, PACKED, b"Content-Length: 10\r\n\r\n", gzip.compress(b"{}")[:10]),
        "the connection broke|no Kubernetes",
    ),
    "no packet": (once(OK, JSON, PACKED, b"Content-Length: 2\r\n\r\n{}"), "no answer"),
}


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the limits be small: what is tested is that they hold."""
    for name in ("MOST_BYTES", "MOST_HEAD_BYTES"):
        monkeypatch.setattr(http, name, 1 << 20)


@pytest.fixture(params=["directly", "by a proxy"])
def opened(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., ApiServerClient]]:
    """Open a cluster whose server says the same to every request."""
    with ExitStack() as stack:

        def start(speech: Speech, *, timeout_s: float = 10.0) -> ApiServerClient:
            def behave(peer: Peer, call: Call) -> bool:
                speech(peer)
                return False

            server = stack.enter_context(HostileServer(behave).running())
            # A proxy is asked for plain addresses as the server would be: here it is the server.
            options = {} if request.param == "directly" else {"proxy-url": server.url}
            config = kubeconfig(tmp_path, server.url, **options)
            monkeypatch.setenv("MLSTACK_REQUEST_TIMEOUT", f"{timeout_s}s")
            return connect("test", kubeconfig=config)

        yield start


@pytest.mark.parametrize("endless", ENDLESS)
def test_an_answer_without_end_ends_by_its_size(
    opened: Callable[..., ApiServerClient], limits: None, endless: str
) -> None:
    with pytest.raises(ClusterError, match="context `test`") as caught:
        opened(ENDLESS[endless]).get(REF)
    assert caught.value.exit_code == 6


@pytest.mark.parametrize("slow", SLOW)
def test_an_answer_has_so_much_time_in_all(opened: Callable[..., ApiServerClient], slow: str) -> None:
    begun_s = time.monotonic()
    with pytest.raises(UnreachableError, match=r"did not end within 0\.7 s"):
        opened(SLOW[slow], timeout_s=0.7).create(MAP)
    assert time.monotonic() - begun_s < 5


@pytest.mark.parametrize("lie", LIES)
def test_a_length_is_not_believed_blindly(opened: Callable[..., ApiServerClient], lie: str) -> None:
    speech, message = LIES[lie]
    with pytest.raises(ClusterError, match=message) as caught:
        opened(speech, timeout_s=0.7).get(REF)
    assert caught.value.exit_code == 6


def test_what_is_packed_is_unpacked_within_its_limit(
    opened: Callable[..., ApiServerClient], limits: None
) -> None:
    packed = bomb(1 << 26)
    answer = (OK, JSON, PACKED, b"Content-Length: %d\r\n\r\n" % len(packed), packed)
    tracemalloc.start()
    try:
        with pytest.raises(UnreachableError, match="is longer than"):
            opened(once(*answer)).get(REF)
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


def test_an_answer_packed_in_parts_is_whole(opened: Callable[..., ApiServerClient]) -> None:
    text = json.dumps(MAP).encode()
    packed = gzip.compress(text[:20]) + gzip.compress(text[20:])
    assert opened(once(OK, JSON, PACKED, b"Content-Length: %d\r\n\r\n" % len(packed), packed)).get(REF) == MAP


def test_a_watch_ends_by_its_own_time(
    opened: Callable[..., ApiServerClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlstack.kube.api_server.SILENCE_S", 0.5)
    cluster = opened(drop_by_drop(b"1\r\n\n\r\n", CHUNKED))
    begun_s = time.monotonic()
    assert list(cluster.watch("v1", "ConfigMap", timeout_s=0.1)) == []
    assert time.monotonic() - begun_s < 5


def test_a_watch_ends_with_a_line_without_end(
    opened: Callable[..., ApiServerClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_LONGEST_LINE", 1 << 20)
    cluster = opened(for_ever(b"10000\r\n" + b" " * 65536 + b"\r\n", CHUNKED))
    assert list(cluster.watch("v1", "ConfigMap", timeout_s=10)) == []


DEEP = b'{"metadata":{"name":"a"},"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
ODD: dict[str, Any] = {
    "nothing": {},
    "a list": [],
    "a number": 7,
    "null": None,
    "deep": DEEP,
    "rather deep": b'{"metadata":{"name":"a"},"x":' + b"[" * 300 + b"]" * 300 + b"}",
    "no number": b'{"metadata":{"name":"a"},"x":NaN}',
    "digits": b'{"metadata":{"name":"a"},"x":' + b"1" * 5000 + b"}",
    "no text": b'{"metadata":{"name":"a\xff"}}',
    "twenty": {"metadata": 20},
    "nameless": {"metadata": {}},
    "an odd name": {"metadata": {"name": 3}},
    "labels": {"metadata": {"name": "a", "labels": ["x"]}},
    "a label": {"metadata": {"name": "a", "labels": {"x": 1}}},
    "annotations": {"metadata": {"name": "a", "annotations": "x"}},
    "uid": {"metadata": {"name": "a", "uid": {}}},
    "generation": {"metadata": {"name": "a", "generation": "x"}},
    "finalizers": {"metadata": {"name": "a", "finalizers": "x"}},
    "owners": {"metadata": {"name": "a", "ownerReferences": ["x"]}},
    "managers": {"metadata": {"name": "a", "managedFields": [{"fieldsV1": ["x"]}]}},
    "a manager": {"metadata": {"name": "a", "managedFields": [{"manager": 7}]}},
    "time": {"metadata": {"name": "a", "creationTimestamp": "yesterday"}},
    "end": {"metadata": {"name": "a", "deletionTimestamp": 7}},
}
ASKS: dict[str, Callable[[ApiServerClient], object]] = {
    "get": lambda cluster: cluster.get(REF),
    "list": lambda cluster: cluster.list("v1", "ConfigMap"),
    "apply": lambda cluster: cluster.apply(MAP),
    "create": lambda cluster: cluster.create(MAP),
    "delete": lambda cluster: cluster.delete(REF),
    "identity": lambda cluster: cluster.identity(),
    "kinds": lambda cluster: cluster.kinds(),
    "rights": lambda cluster: cluster.rights("q"),
}


def answering(tmp_path: Path, body: Any) -> tuple[HostileServer, ApiServerClient]:
    server = HostileServer(lambda peer, call: peer.answer(body))
    return server, connect("test", kubeconfig=kubeconfig(tmp_path, server.url))


@pytest.mark.parametrize("ask", ASKS)
def test_what_is_no_answer_of_an_api_server_is_told(tmp_path: Path, ask: str) -> None:
    answers: list[Any] = [None]
    server = HostileServer(lambda peer, call: peer.answer(answers[0]))
    with server.running():
        for odd in ODD.values():
            answers[0] = odd
            cluster = connect("test", kubeconfig=kubeconfig(tmp_path, server.url))
            with pytest.raises(ClusterError, match="is no Kubernetes API server") as caught:
                ASKS[ask](cluster)
            assert caught.value.exit_code == 6


@pytest.mark.parametrize("odd", [name for name in ODD if name != "nothing"])
def test_so_it_is_in_lists_and_watches(tmp_path: Path, odd: str) -> None:
    raw = ODD[odd] if isinstance(ODD[odd], bytes) else json.dumps(ODD[odd]).encode()
    listing = b'{"kind":"List","metadata":{},"items":[' + raw + b"]}"
    server, cluster = answering(tmp_path, listing)
    with server.running(), pytest.raises(ClusterError, match="is no Kubernetes API server"):
        cluster.list("v1", "ConfigMap")
    server, cluster = answering(tmp_path, b'{"type":"ADDED","object":' + raw + b"}\n")
    with server.running(), pytest.raises(ClusterError):
        list(cluster.watch("v1", "ConfigMap", timeout_s=1))


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422, 429, 500, 503])
def test_refusals_of_any_form_are_told(code: int) -> None:
    odd = (7, "x", ["x"], {"causes": 7}, {"causes": [7]}, {"causes": [{"field": [], "message": {}}]}, None)
    for part in ("details", "message", "reason", "code", "status"):
        for value in odd:
            body = {"kind": "Status", "code": code, "reason": "Conflict", "message": "no", part: value}
            assert error_of(code, body, subject="`x`").exit_code == 6


@pytest.mark.parametrize(
    "piece",
    [
        "got &value.valueUnstructured{Value:a ",
        *(": Invalid value: ", 'conflict with "', 'admission webhook "', "conversion webhook for "),
    ],
)
def test_a_long_refusal_costs_no_more_than_its_length(piece: str) -> None:
    message = f"failed to create typed patch object (q/a; v1, Kind=ConfigMap): .x: {piece * 20_000}"
    causes = [{"reason": "FieldManagerConflict", "field": "x", "message": message}]
    begun_s = time.process_time()
    for code in (400, 403, 409, 422, 500):
        body = {"message": message, "details": {"causes": causes}}
        assert len(error_of(code, body, subject="`x`").message) < 2000
    assert time.process_time() - begun_s < 10


def test_a_list_without_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlstack.kube.api_server.MOST_PAGES", 20)
    page = {"kind": "List", "metadata": {"continue": "more"}, "items": [MAP]}
    server, cluster = answering(tmp_path, page)
    with server.running(), pytest.raises(ClusterError, match="without end"):
        cluster.list("v1", "ConfigMap")


def test_halves_of_characters_are_read_as_none(tmp_path: Path) -> None:
    body = b'{"kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"a\\ud800b","\\uDC00":"\\ud83d\\ude00"}}'
    server, cluster = answering(tmp_path, body)
    with server.running():
        live = cluster.get(REF)
    assert live is not None
    assert live["data"] == {"k": "a\ufffdb", "\ufffd": "\U0001f600"}


@pytest.mark.parametrize("name", [".", ".."])
@pytest.mark.parametrize("part", ["name", "namespace"])
def test_a_path_leads_nowhere_else(tmp_path: Path, name: str, part: str) -> None:
    server, cluster = answering(tmp_path, MAP)
    obj = {**MAP, "metadata": {**MAP["metadata"], part: name}}  # type: ignore[dict-item]
    with server.running():
        for write in (cluster.apply, cluster.replace) if part == "name" else (cluster.apply, cluster.create):
            with pytest.raises(InvalidError, match="cannot stand in the path"):
                write(obj)
        with pytest.raises(InvalidError):
            cluster.delete(ObjectRef.of(obj))
        assert cluster.get(ObjectRef.of(obj)) is None
    assert server.calls == []


FILES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "token": ({"tokenFile": "/dev/zero"}, {}),
    "token in a folder": ({"tokenFile": "/"}, {}),
    "certificate": ({"client-certificate": "/dev/zero", "client-key": "/dev/zero"}, {}),
    "authority": ({}, {"certificate-authority": "/dev/zero"}),
    "deep id-token": (
        {"auth-provider": {"name": "oidc", "config": {"id-token": "e30." + "W1tb" * 30_000 + ".e30"}}},
        {},
    ),
    "no host": ({}, {"server": "https://a..b"}),
    "long label": ({}, {"server": f"https://{'a' * 64}.example"}),
    "zero byte": ({}, {"server": "https://a\0b"}),
    "port": ({}, {"server": "https://127.0.0.1:70000"}),
    "empty label": ({}, {"server": "https://127.0.0.1:1", "tls-server-name": "a..b"}),
    "long server name": ({}, {"server": "https://127.0.0.1:1", "tls-server-name": "a" * 64}),
    "zero server name": ({}, {"server": "https://127.0.0.1:1", "tls-server-name": "a\0b"}),
    "dotted server name": ({}, {"server": "https://127.0.0.1:1", "tls-server-name": ".a"}),
    "proxy": ({}, {"server": "https://127.0.0.1:1", "proxy-url": "http://a..b"}),
    "long proxy": ({}, {"server": "https://127.0.0.1:1", "proxy-url": f"http://{'a' * 64}"}),
}


@pytest.mark.parametrize("odd", FILES)
def test_what_a_kubeconfig_names_is_told_with_its_place(tmp_path: Path, odd: str) -> None:
    user, cluster = FILES[odd]
    config = kubeconfig(tmp_path, **{"server": "https://127.0.0.1:1", **cluster}, user=user)
    with pytest.raises(ClusterError, match=r"context `test`|the kubeconfig cannot be read") as caught:
        cluster_ = ports.connect("test", config)
        cluster_.expect(4)
        cluster_.get(REF)
    assert caught.value.exit_code == 6
    assert config in caught.value.describe() or "proxy-url" in caught.value.describe()


def test_no_thread_of_a_command_ends_in_a_traceback(tmp_path: Path) -> None:
    """Names that no resolver takes ended whole processes."""
    config = kubeconfig(tmp_path, "https://a..b")
    command = [sys.executable, "-m", "mlstack", "elastic", "plan", "--kubeconfig", config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 6
    assert "Traceback" not in done.stderr
    assert "is not a URL of a host" in done.stderr


def test_the_limits_are_far_above_what_clusters_answer() -> None:
    assert http.MOST_BYTES >= 64 << 20
