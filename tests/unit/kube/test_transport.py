"""How requests take a server that is busy, broken, silent, absent or none at all."""

from __future__ import annotations

import socket
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from mlstack.cli import ports
from mlstack.errors import ClusterError, InvalidError, TransientError, UnreachableError, WatchExpiredError
from mlstack.http import PATIENCE_S
from mlstack.kube import transport
from mlstack.kube.client import ObjectRef
from tests.support.fakeapi import Answer, Asked, Serve, always, in_turn, kubeconfig, serve, status
from tests.unit.kube.conftest import Connect

MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "q", "resourceVersion": "7", "uid": "u"},
}
REF = ObjectRef("v1", "ConfigMap", "q", "a")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let no test wait: the pauses that would have been made."""
    sleeps: list[float] = []
    original = transport.Transport.__init__

    def patched(self: transport.Transport, *args: Any, **options: Any) -> None:
        original(self, *args, **options, sleep=sleeps.append, clock=lambda: sum(sleeps))

    monkeypatch.setattr(transport.Transport, "__init__", patched)
    return sleeps


def test_a_server_that_asks_for_patience_gets_it(pauses: list[float], served: Serve) -> None:
    busy = status(429, "later", reason="TooManyRequests")
    asks = Answer(code=429, body=busy.body, headers=(("Retry-After", "3"),))
    api, cluster = served(in_turn(asks, asks, Answer(body=MAP)))
    assert cluster.apply(MAP).object == MAP
    assert pauses == [3, 3]
    assert len(api.asked) == 3


def test_patience_ends(pauses: list[float], served: Serve) -> None:
    asks = Answer(code=503, body=status(503, "no").body, headers=(("Retry-After", "9000"),))
    _, cluster = served(always(asks))
    with pytest.raises(TransientError):
        cluster.apply(MAP)
    assert 0 < sum(pauses) <= PATIENCE_S


def test_a_wrong_manifest_is_sent_once(pauses: list[float], served: Serve) -> None:
    text = "failed to create typed patch object (q/a; v1, Kind=ConfigMap): .x: field not declared in schema"
    api, cluster = served(always(status(500, text)))
    with pytest.raises(InvalidError):
        cluster.apply(MAP)
    assert (len(api.asked), pauses) == (1, [])


def test_a_connection_that_breaks_is_tried_again_where_that_does_no_harm(served: Serve) -> None:
    api, cluster = served(in_turn(Answer(breaks=True), Answer(body=MAP)))
    assert cluster.get(REF) == MAP
    assert len(api.asked) == 2


def test_a_deletion_is_not_sent_twice(served: Serve) -> None:
    api, cluster = served(always(Answer(breaks=True)))
    with pytest.raises(UnreachableError, match="the connection broke"):
        cluster.delete(REF)
    assert len(api.asked) == 1


def test_what_is_no_kubernetes_is_told(served: Serve) -> None:
    _, cluster = served(always(Answer(body="<html>log in</html>", content_type="text/html")))
    with pytest.raises(ClusterError, match="is no Kubernetes API server") as caught:
        cluster.get(REF)
    assert caught.value.hint is not None


def moved(location: str) -> Answer:
    return Answer(code=307, body={}, headers=(("Location", location),))


@pytest.mark.parametrize("address", ["/k8s{}", "{}/k8s{}"], ids=["path", "address"])
def test_reading_is_led_elsewhere_on_the_same_server(served: Serve, address: str) -> None:
    def script(request: Asked) -> Answer:
        if request.path.startswith("/k8s"):
            return Answer(body=MAP)
        return moved(address.format(*[api.url][: address.count("{}") - 1], f"{request.path}?a=b"))

    api, cluster = served(script)
    assert cluster.get(REF) == MAP
    assert [request.query for request in api.asked] == [{}, {"a": "b"}]
    assert {request.headers["authorization"] for request in api.asked} == {"Bearer token-of-tests"}


def test_writing_is_not(served: Serve) -> None:
    api, cluster = served(always(moved("/k8s")))
    with pytest.raises(ClusterError, match="307"):
        cluster.apply(MAP)
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    "location", ["http://127.0.0.1:1/api", "https://127.0.0.1/api", "//elsewhere/a", "http://["]
)
def test_nor_to_another_server(served: Serve, location: str) -> None:
    api, cluster = served(always(moved(location)))
    with pytest.raises(ClusterError, match="307"):
        cluster.get(REF)
    assert len(api.asked) == 1


def test_a_redirect_in_a_circle_ends(served: Serve) -> None:
    api, cluster = served(always(moved("/login")))
    with pytest.raises(ClusterError, match="307"):
        cluster.get(REF)
    assert len(api.asked) == 11


def test_paths_go_below_that_of_the_server_whose_query_is_nothing(tmp_path: Path, connect: Connect) -> None:
    with serve(always(Answer(body=MAP))).running() as api:
        cluster = connect("test", kubeconfig=kubeconfig(tmp_path, f"{api.url}/k8s/clusters/c-1/?token=hush"))
        assert cluster.get(REF) == MAP
        assert "hush" not in str(cluster.identity())
    assert api.asked[0].path == "/k8s/clusters/c-1/api/v1/namespaces/q/configmaps/a"
    assert api.asked[0].query == {}


def test_refused_connections_say_so(tmp_path: Path, connect: Connect) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{closed.getsockname()[1]}"
        cluster = connect("test", kubeconfig=kubeconfig(tmp_path, server))
        with pytest.raises(
            UnreachableError, match=r"context `test` at https://\S+: connection refused"
        ) as caught:
            cluster.get(REF)
    assert caught.value.hint is not None


def test_an_unknown_host_says_so(tmp_path: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    cluster = connect("test", kubeconfig=kubeconfig(tmp_path, "https://no-such-host.invalid"))
    with pytest.raises(UnreachableError, match="its name is not known"):
        cluster.get(REF)


@pytest.mark.parametrize("server", ["https://127.0.0.1:99999999", "127.0.0.1:6443", "https://[::1"])
def test_an_address_that_is_none_says_so(tmp_path: Path, connect: Connect, server: str) -> None:
    with pytest.raises(ClusterError):
        connect("test", kubeconfig=kubeconfig(tmp_path, server)).get(REF)


def speak(text: bytes) -> tuple[int, Thread]:
    """Start a server that says the same to everyone, once, whatever it is asked."""
    listener = socket.create_server(("127.0.0.1", 0))

    def talk() -> None:
        with listener, listener.accept()[0] as peer:
            peer.recv(1 << 16)
            peer.sendall(text)
            peer.settimeout(5)
            if not text:
                peer.recv(1)

    thread = Thread(target=talk, daemon=True)
    thread.start()
    return listener.getsockname()[1], thread


def test_garbage_says_so(tmp_path: Path, connect: Connect) -> None:
    port, thread = speak(b"\x00\x01garbage\r\n\r\n")
    cluster = connect("test", kubeconfig=kubeconfig(tmp_path, f"http://127.0.0.1:{port}"))
    with pytest.raises(UnreachableError, match="does not speak HTTP"):
        cluster.get(REF)
    thread.join()


def test_a_silent_server_is_given_up(
    tmp_path: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, thread = speak(b"")
    config = kubeconfig(tmp_path, f"http://127.0.0.1:{port}")
    monkeypatch.setenv("MLSTACK_REQUEST_TIMEOUT", "0.1s")
    with pytest.raises(UnreachableError, match="stayed silent"):
        connect("test", kubeconfig=config).get(REF)
    thread.join()


def test_each_request_is_counted_by_verb_and_status(pauses: list[float], tmp_path: Path) -> None:
    counted: list[tuple[str, int | None]] = []
    later = Answer(code=429, body=status(429, "later").body)
    refusal = status(404, "gone")
    script = in_turn(
        Answer(code=201, body=MAP),
        later,
        Answer(body=MAP),
        refusal,
        Answer(body={"items": [], "metadata": {}}),
        Answer(body=MAP),
        Answer(body=MAP),
        status(410, "too old"),
        Answer(breaks=True),
    )
    with serve(script).running() as api:
        config = kubeconfig(tmp_path, api.url)
        cluster = ports.connect_once("test", config, lambda verb, code: counted.append((verb, code)))
        cluster.create(MAP)
        cluster.apply(MAP)
        assert cluster.get(REF) is None
        cluster.list("v1", "ConfigMap")
        cluster.replace(MAP)
        cluster.patch(REF, {"data": {}})
        with pytest.raises(WatchExpiredError):
            next(iter(cluster.watch("v1", "ConfigMap", resource_version="1", timeout_s=1)))
        with pytest.raises(UnreachableError):
            cluster.delete(REF)
    assert counted == [
        ("create", 201),
        ("apply", 429),
        ("apply", 200),
        ("get", 404),
        ("get", 200),
        ("update", 200),
        ("patch", 200),
        ("watch", 410),
        ("delete", None),
    ]


@pytest.mark.parametrize(("more", "coding"), [({}, "gzip"), ({"disable-compression": True}, "identity")])
@pytest.mark.parametrize("by_proxy", [False, True], ids=["directly", "by a proxy"])
def test_answers_come_packed_unless_the_kubeconfig_says_otherwise(
    tmp_path: Path, connect: Connect, more: dict[str, Any], coding: str, by_proxy: bool
) -> None:
    with serve(always(Answer(body=MAP))).running() as api:
        proxy = {"proxy-url": api.url} if by_proxy else {}
        assert connect("test", kubeconfig=kubeconfig(tmp_path, api.url, **proxy, **more)).get(REF) == MAP
    assert api.asked[0].headers["accept-encoding"] == coding
