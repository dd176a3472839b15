"""A server on loopback and a client of it, for the tests of the real client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mlstack.kube import api_server as kube
from mlstack.kube.api_server import ApiServerClient
from tests.support.fakeapi import FakeApi, Script, Serve, kubeconfig, serve

Connect = Callable[..., ApiServerClient]


@pytest.fixture
def connect() -> Connect:
    """Open a cluster by a kubeconfig."""
    return kube.connect


@pytest.fixture
def served(tmp_path: Path, connect: Connect) -> Iterator[Serve]:
    """Start a server with a script; gives it and a client of it."""
    with ExitStack() as stack:

        def start(script: Script) -> tuple[FakeApi, ApiServerClient]:
            api = stack.enter_context(serve(script).running())
            return api, connect("test", kubeconfig=kubeconfig(tmp_path, api.url))

        yield start
