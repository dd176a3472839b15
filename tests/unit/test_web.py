"""Requests to any server: where redirects lead, what is shown to whom, what is no address."""

import socket
from pathlib import Path

import pytest

from mlstack.addresses import joined, shown
from mlstack.errors import RegistryError
from mlstack.web import Web
from tests.support.certificates import tls_server
from tests.support.oci import FakeRegistry, Reply
from tests.support.proxies import ConnectingProxy


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("https://other.example.org/x", "https://other.example.org/x"),
        ("//other.example.org/x", "https://other.example.org/x"),
        ("/x?q=1", "https://example.org/x?q=1"),
        ("x", "https://example.org/a/x"),
        ("?q=2", "https://example.org/a/b?q=2"),
    ],
)
def test_a_location_is_read_from_where_one_is(location: str, url: str) -> None:
    assert joined("https://example.org/a/b?q=1#f", location) == url
    assert joined("https://example.org", "x") == "https://example.org/x"


def test_a_redirect_is_followed_for_reading_alone() -> None:
    with FakeRegistry().running() as server:
        server.fault = lambda running, method, path, headers: (
            Reply(status=302, headers={"Location": "/there"}) if path == "/here?x=1" else Reply(body=b"here")
        )
        answer = Web().get(f"http://{server.host}/here?x=1")
        assert (answer.url, answer.data) == (f"http://{server.host}/there", b"here")
        assert Web().send("PUT", f"http://{server.host}/here?x=1", body=b"").status == 302


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://example.org/x", "plain http"),
        ("ftp://example.org/x", "no address of the web"),
        ("https://", "no address of the web"),
        ("https://exa mple.org", "no address of the web"),
        ("http://127.0.0.1:1/", "connection refused"),
    ],
)
def test_what_cannot_be_asked_is_told(url: str, message: str) -> None:
    with pytest.raises(RegistryError, match=message) as caught:
        Web().get(url)
    assert caught.value.hint


def test_a_login_in_an_address_is_sent_and_never_shown() -> None:
    with FakeRegistry().running() as server:
        server.fault = lambda running, method, path, headers: Reply(status=404)
        Web().get(f"http://ada:hu%20sh@{server.host}/x")
        assert server.requests[0][2]["Authorization"] == "Basic YWRhOmh1IHNo"
    assert shown("https://ada:hush@example.org/x?token=y") == "https://example.org/x"


# --- proxies ---


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy"])
def test_a_server_is_reached_through_the_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    context, certificate = tls_server(tmp_path, "registry.example.org")
    monkeypatch.setenv("SSL_CERT_FILE", certificate)
    with (
        FakeRegistry().running(context) as server,
        ConnectingProxy(f"http://{server.host}", None).running() as proxy,
    ):
        server.fault = lambda running, method, path, headers: Reply(body=b"here")
        monkeypatch.setenv(name, proxy.url.replace("//", "//ada:hush@"))
        url = "https://ida:secret@registry.example.org/x"
        assert Web().get(url).data == b"here"
        assert proxy.heads[0].startswith("CONNECT registry.example.org:443 HTTP/1.")
        assert "Proxy-Authorization: Basic YWRhOmh1c2g=" in proxy.heads[0]
        assert "aWRhOnNlY3JldA==" not in proxy.heads[0]
        assert "Proxy-Authorization" not in server.requests[0][2]


def unknown(*question: object, **more: object) -> None:
    raise socket.gaierror("nobody is asked in tests")


def test_a_proxy_that_does_not_connect_is_told_and_no_proxy_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    with ConnectingProxy("http://127.0.0.1:1", None, says="407 Who are you").running() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(RegistryError, match=r"the proxy does not connect \(HTTP 407\)") as caught:
            Web().get("https://registry.example.invalid/x")
        assert caught.value.hint == "check HTTPS_PROXY and NO_PROXY"
        monkeypatch.setenv("NO_PROXY", ".invalid")
        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        with pytest.raises(RegistryError, match="not known"):
            Web().get("https://registry.example.invalid/x")
        assert len(proxy.heads) == 1


def test_this_machine_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with FakeRegistry().running() as here:
        assert Web().get(f"http://{here.host}/x").status == 404
