"""A server on loopback and a client of it, for the tests of the real client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mlstack.cluster import direct, kube
from mlstack.cluster.remote import RemoteCluster
from mlstack.files import logins
from tests.support.fakeapi import FakeApi, Script, Serve, kubeconfig, serve

Connect = Callable[..., RemoteCluster]


def directly(context: str, *, kubeconfig: str, **options: Any) -> RemoteCluster:
    """Open a cluster without the library; a kubeconfig that needs it is the library's."""
    login = logins.fixed(context, kubeconfig, {})
    opened = direct.connect(login, **options) if login is not None else None
    return opened or kube.connect(context, kubeconfig=kubeconfig, **options)


@pytest.fixture(params=[directly, kube.connect], ids=["direct", "library"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Open a cluster through each of the two doors."""
    found: Connect = request.param
    return found


@pytest.fixture
def served(tmp_path: Path, connect: Connect) -> Iterator[Serve]:
    """Start a server with a script; gives it and a client of it."""
    with ExitStack() as stack:

        def start(script: Script) -> tuple[FakeApi, RemoteCluster]:
            api = stack.enter_context(serve(script).running())
            return api, connect("test", kubeconfig=kubeconfig(tmp_path, api.url))

        yield start
