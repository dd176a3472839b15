"""Requests to any server: where redirects lead, what is shown to whom, what is no address."""

import pytest

from mlstack.errors import RegistryError
from mlstack.web import Web, joined, shown
from tests.support.oci import FakeRegistry, Reply


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
    ("url", "told"),
    [
        ("http://example.org/x", "plain http"),
        ("ftp://example.org/x", "no address of the web"),
        ("https://", "no address of the web"),
        ("https://exa mple.org", "no address of the web"),
        ("http://127.0.0.1:1/", "connection refused"),
    ],
)
def test_what_cannot_be_asked_is_told(url: str, told: str) -> None:
    with pytest.raises(RegistryError, match=told) as caught:
        Web().get(url)
    assert caught.value.hint


def test_a_login_in_an_address_is_sent_and_never_shown() -> None:
    with FakeRegistry().running() as server:
        server.fault = lambda running, method, path, headers: Reply(status=404)
        Web().get(f"http://ada:hu%20sh@{server.host}/x")
        assert server.requests[0][2]["Authorization"] == "Basic YWRhOmh1IHNo"
    assert shown("https://ada:hush@example.org/x?token=y") == "https://example.org/x"
