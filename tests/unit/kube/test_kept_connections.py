"""Connections that are kept open and ended by the server without a word: nothing fails or is done twice."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlstack.cli import ports
from mlstack.errors import ConflictError, UnreachableError
from mlstack.kube.client import Cluster, GuardedClient, ObjectRef, Patience
from tests.support.certificates import tls_server
from tests.support.fakeapi import kubeconfig
from tests.support.hostile import Behaviour, Call, HostileServer, Objects, Peer
from tests.support.waiting import wait_until


def config_map(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "q"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def opened(folder: Path, server: HostileServer, **cluster: Any) -> Cluster:
    """Open a cluster that asks nothing twice by itself."""
    config = kubeconfig(folder, server.url, **cluster)
    return ports.connect_once("test", config, lambda verb, status: None)


def secure(folder: Path) -> tuple[ssl.SSLContext, dict[str, str]]:
    """Give the server's side of TLS, and what the client says of its authority."""
    context, ca = tls_server(folder)
    return context, {"certificate-authority": ca}


def ends_after(objects: Objects) -> Behaviour:
    """Answer, and end without a word."""

    def behave(peer: Peer, call: Call) -> bool:
        code, body = objects.answer(call)
        peer.answer(body, code)
        return False

    return behave


def ends_at_the_second(objects: Objects) -> Behaviour:
    """Answer the first request of a connection, and end at the second without having looked at it."""

    def behave(peer: Peer, call: Call) -> bool:
        if call.number > 1:
            return peer.reset()
        code, body = objects.answer(call)
        return peer.answer(body, code)

    return behave


def heard_and_ends(objects: Objects) -> Behaviour:
    """Do what the second request of a connection asks, and end without an answer."""

    def behave(peer: Peer, call: Call) -> bool:
        code, body = objects.answer(call)
        return call.number == 1 and peer.answer(body, code)

    return behave


ENDS = {"after": ends_after, "at the second": ends_at_the_second, "heard": heard_and_ends}


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("is_secure", [False, True], ids=["http", "tls"])
def test_no_creation_fails_and_none_is_done_twice(
    tmp_path: Path, ends: Callable[[Objects], Behaviour], is_secure: bool
) -> None:
    objects = Objects()
    tls, cluster = secure(tmp_path) if is_secure else (None, {})
    with HostileServer(ends(objects), tls).running() as server:
        client = opened(tmp_path, server, **cluster)
        for number in range(10):
            applied = client.create(config_map(f"m{number}", a="b"))
            assert (applied.created, applied.object["metadata"]["name"]) == (True, f"m{number}")
    assert objects.created == len(objects.objects) == 10


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
def test_nor_does_a_replacement_or_a_deletion(tmp_path: Path, ends: Callable[[Objects], Behaviour]) -> None:
    objects = Objects()
    with HostileServer(ends(objects)).running() as server:
        client = opened(tmp_path, server)
        live = client.create(config_map("m", a="0")).object
        for number in range(1, 6):
            live = client.replace({**live, "data": {"a": str(number)}}).object
            assert live["data"] == {"a": str(number)}
        assert live["metadata"]["resourceVersion"] == "6"
        assert client.delete(ObjectRef.of(live), uid="u-1") is None
    assert objects.objects == {}


def test_what_somebody_else_made_meanwhile_is_theirs(tmp_path: Path) -> None:
    objects = Objects()

    def behave(peer: Peer, call: Call) -> bool:
        if call.number > 1 and call.method == "POST":
            objects.answer(Call(method="POST", path=call.path, body=config_map("m", a="theirs"), number=1))
            return False
        code, body = objects.answer(call)
        return peer.answer(body, code)

    with HostileServer(behave).running() as server:
        client = opened(tmp_path, server)
        client.create(config_map("first"))
        with pytest.raises(ConflictError, match="already exists"):
            client.create(config_map("m", a="ours"))


def test_what_is_to_get_a_name_is_not_created_twice(tmp_path: Path) -> None:
    with HostileServer(lambda peer, call: False).running() as server:
        with pytest.raises(UnreachableError, match="the connection broke"):
            opened(tmp_path, server).create(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"generateName": "m-", "namespace": "q"},
                }
            )
        assert len(server.calls) == 1


def test_a_creation_that_was_heard_before_the_server_went_is_done(tmp_path: Path) -> None:
    """The patient one asks again after a while, when nothing is known of the first request."""
    objects = Objects()
    silent = [False]

    def behave(peer: Peer, call: Call) -> bool:
        code, body = objects.answer(call)
        if call.method == "POST" and silent[0]:
            return False
        return peer.answer(body, code)

    class Clock:
        def now_s(self) -> float:
            return time.monotonic()

        def sleep(self, seconds: float) -> None:
            silent[0] = False

    with HostileServer(behave).running() as server:
        client = GuardedClient(opened(tmp_path, server), patience=Patience(Clock(), lambda text: None))
        client.create(config_map("first"))
        silent[0] = True
        assert client.create(config_map("m", a="b")).created
    assert objects.created == 2


@pytest.mark.slow
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_connections_opened_ahead_are_used(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """The server of TLS 1.3 sends tickets at once: there is something to read, which is no end."""
    tls, cluster = secure(tmp_path)
    tls.maximum_version = version
    objects = Objects()

    def behave(peer: Peer, call: Call) -> bool:
        code, body = objects.answer(call)
        return peer.answer(body, code)

    with HostileServer(behave, tls).running() as server:
        client = opened(tmp_path, server, **cluster)
        client.expect(3)
        wait_until(lambda: server.connections == 3, timeout_s=10, what="connections")
        time.sleep(1.2)  # as long as somebody thinks about a question
        for number in range(3):
            client.create(config_map(f"m{number}"))
        assert server.connections == 3
