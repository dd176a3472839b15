"""Registries whose certificates an authority of one's own has signed."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE

import pytest

from mlstack.errors import RegistryError
from mlstack.registries.oci import place_of
from tests.support.certificates import self_signed
from tests.support.cli import Runner
from tests.support.oci import FakeRegistry
from tests.support.packages import JOBS, as_files
from tests.support.registries import opened, repository
from tests.support.registry import REGISTRY
from tests.support.serving import served

pytestmark = pytest.mark.slow
NAME = "registry.example.org"


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """Give the certificate of the authority; that of the server lies beside it."""
    own = self_signed("our authority")
    for host in (NAME, "127.0.0.1"):
        self_signed(host, issuer=own).write(tmp_path, host)
    return own.write(tmp_path, "authority")[0]


def tls(folder: Path, host: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{host}.crt", folder / f"{host}.key")
    return context


@pytest.fixture
def host(tmp_path: Path, authority: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give a registry that is spoken to over TLS, since its name is not this machine's."""
    with FakeRegistry().running(tls(tmp_path, NAME)) as fake:
        port = int(fake.host.rpartition(":")[2])
        here = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *question, **more: here)
        yield f"{NAME}:{port}"


def test_an_oci_registry_is_trusted_by_the_authorities_that_are_named(
    host: str, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RegistryError, match="unable to get local issuer certificate") as caught:
        assert opened(f"oci://{host}/ml", fresh=True).index
    assert caught.value.hint is not None
    assert "SSL_CERT_FILE" in caught.value.hint
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    place_of(f"oci://{host}/ml").publish(as_files(JOBS))
    assert opened(f"oci://{host}/ml", fresh=True).fetch("jobs") == as_files(JOBS)


def test_an_authority_of_another_name_is_not_enough(
    tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(self_signed("another").write(tmp_path, "another")[0]))
    with pytest.raises(RegistryError, match="unable to get local issuer certificate"):
        assert opened(f"oci://{host}/ml", fresh=True).index


def test_a_git_registry_is_trusted_as_git_was_told(
    tmp_path: Path, authority: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(tmp_path / "repo", {path[9:]: text for path, text in REGISTRY.items()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), smart_git(tmp_path))
    server.socket = tls(tmp_path, "127.0.0.1").wrap_socket(server.socket, server_side=True)
    address = f"https://127.0.0.1:{server.server_address[1]}/repo/.git"
    run.ok("init demo --skip-default-registries")
    monkeypatch.chdir(tmp_path / "demo")
    with served(server):
        refused = run(f"registry add own {address} --type git")
        assert (refused.code, "certificate" in refused.err) == (5, True)
        assert "GIT_SSL_CAINFO" in refused.err
        monkeypatch.setenv("GIT_SSL_CAINFO", str(authority))
        run.ok(f"registry add own {address} --type git")
        run.ok("pkg install own/tools")


def smart_git(root: Path) -> type[BaseHTTPRequestHandler]:
    """Give what serves the repositories below a folder, by the program that git has for it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            place, _, query = self.path.partition("?")
            cgi = {
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": place,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            }
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            command = ["git", "http-backend"]
            answer = subprocess.run(command, input=body, env={**os.environ, **cgi}, stdout=PIPE, check=True)
            head, _, content = answer.stdout.partition(b"\r\n\r\n")
            self.send_response(200)
            for line in head.decode().splitlines():
                name, _, value = line.partition(": ")
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _do

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler
