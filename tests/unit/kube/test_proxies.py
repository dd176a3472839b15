"""The way through proxies: plain and over TLS, to plain servers and to those behind TLS."""

from __future__ import annotations

import base64
import socket
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import pytest

from mlstack.addresses import proxy_of
from mlstack.errors import ClusterError, UnreachableError
from mlstack.kube.api_server import connect
from mlstack.kube.client import ObjectRef
from tests.support.certificates import self_signed, tls_server
from tests.support.fakeapi import Answer, always, kubeconfig, serve
from tests.support.proxies import ConnectingProxy, SocksProxy

MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "q"}}
LARGE = {**MAP, "data": {"a": "x" * 200_000}}
REF = ObjectRef("v1", "ConfigMap", "q", "a")


@pytest.mark.slow
@pytest.mark.parametrize("over_tls", [False, True], ids=["http", "https"])
def test_a_proxy_connects_us_to_a_server_behind_tls(tmp_path: Path, over_tls: bool) -> None:
    context, ca = tls_server(tmp_path)
    api = serve(always(Answer(body=LARGE)), tls=context)
    with api.running(), ConnectingProxy(api.url, context if over_tls else None).running() as proxy:
        url = proxy.url.replace("//", "//ada:p%40ss@")
        config = kubeconfig(tmp_path, api.url, **{"certificate-authority": ca, "proxy-url": url})
        cluster = connect("test", kubeconfig=config)
        assert cluster.get(REF) == cluster.get(REF) == LARGE
        with ThreadPoolExecutor(4) as pool:
            assert all(applied.object == LARGE for applied in pool.map(cluster.apply, [LARGE] * 8))
    place = api.url.removeprefix("https://")
    assert proxy.heads[0].startswith(f"CONNECT {place} HTTP/1.")
    assert "Proxy-Authorization: Basic YWRhOnBAc3M=" in proxy.heads[0].splitlines()
    assert all("proxy-authorization" not in request.headers for request in api.asked)
    assert all("token" not in head for head in proxy.heads)


def test_a_watch_comes_through_a_proxy_over_tls(tmp_path: Path) -> None:
    context, ca = tls_server(tmp_path)
    event = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}\n'
    api = serve(always(Answer(body=[event, event])), tls=context)
    with api.running(), ConnectingProxy(api.url, context).running() as proxy:
        config = kubeconfig(tmp_path, api.url, **{"certificate-authority": ca, "proxy-url": proxy.url})
        cluster = connect("test", kubeconfig=config)
        assert len(list(cluster.watch("v1", "ConfigMap", namespace="q", timeout_s=5))) == 2


def test_a_proxy_asks_a_plain_server_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "")
    with serve(always(Answer(body=MAP))).running() as api:
        monkeypatch.setenv("HTTP_PROXY", api.url)
        config = kubeconfig(tmp_path, "http://cluster.example:8080/base")
        assert connect("test", kubeconfig=config).get(REF) == MAP
    assert api.asked[0].headers["host"] == "cluster.example:8080"
    assert api.asked[0].path.startswith("/base/api/v1/")


def test_what_a_proxy_refuses_is_told(tmp_path: Path) -> None:
    with ConnectingProxy("http://127.0.0.1:1", None, says="407 Who are you").running() as proxy:
        config = kubeconfig(tmp_path, "https://127.0.0.1:1", **{"proxy-url": proxy.url})
        with pytest.raises(UnreachableError, match=r"the proxy does not connect \(HTTP 407\)"):
            connect("test", kubeconfig=config).get(REF)


def test_a_proxy_that_is_nobody_we_trust_gets_no_request(tmp_path: Path) -> None:
    context, _ = tls_server(tmp_path)
    other = self_signed("127.0.0.1", seed="other").certificate
    authority = base64.b64encode(other.encode()).decode()
    with ConnectingProxy("http://127.0.0.1:1", context).running() as proxy:
        cluster = {"certificate-authority-data": authority, "proxy-url": proxy.url}
        with pytest.raises(UnreachableError, match="the proxy does not connect"):
            connect("test", kubeconfig=kubeconfig(tmp_path, "https://127.0.0.1:1", **cluster)).get(REF)
    assert proxy.heads == []


@pytest.mark.parametrize("url", ["socks4://a:hush@p", "p:3128", "http://", "http://u:hush@p:x"])
def test_what_is_no_proxy_of_ours_is_refused_without_its_password(tmp_path: Path, url: str) -> None:
    file = kubeconfig(tmp_path, "https://s", **{"proxy-url": url})
    with pytest.raises(ClusterError, match="a proxy that mlstack does not speak to") as caught:
        connect("test", kubeconfig=file)
    assert "hush" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_socks_proxies_are_gone_through(tmp_path: Path, scheme: str) -> None:
    context, ca = tls_server(tmp_path)
    api = serve(always(Answer(body=MAP)), tls=context if scheme == "https" else None)
    with api.running(), SocksProxy(api.url).running() as proxy:
        more = {"certificate-authority": ca, "proxy-url": proxy.url}
        cluster = connect("test", kubeconfig=kubeconfig(tmp_path, f"{scheme}://127.0.0.1", **more))
        assert cluster.get(REF) == cluster.get(REF) == MAP
    assert proxy.heads[0].startswith("050100")


def test_a_socks_proxy_is_told_names_and_passwords(tmp_path: Path) -> None:
    received = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve_() -> None:
            peer = listener.accept()[0]
            with peer:
                for size, answer in (
                    (4, b"\x05\x02"),
                    (10, b"\x01\x00"),
                    (22, b"\x05\x05\x00\x01" + bytes(6)),
                ):
                    received.append(peer.recv(size))
                    peer.sendall(answer)

        Thread(target=serve_, daemon=True).start()
        url = f"socks5://ada:p%3Ass@127.0.0.1:{listener.getsockname()[1]}"
        config = kubeconfig(tmp_path, "https://cluster.example", **{"proxy-url": url})
        with pytest.raises(UnreachableError, match="the proxy does not connect"):
            connect("test", kubeconfig=config).get(REF)
    assert received[1:] == [b"\x01\x03ada\x04p:ss", b"\x05\x01\x00\x03\x0fcluster.example\x01\xbb"]


PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("environ", "server", "expected"),
    [
        ({}, "https://host", None),
        ({"HTTPS_PROXY": PROXY}, "https://host", PROXY),
        ({"https_proxy": PROXY}, "https://host", PROXY),
        ({"HTTPS_PROXY": "proxy:3128"}, "https://host", PROXY),
        ({"HTTPS_PROXY": PROXY}, "http://host", None),
        ({"HTTP_PROXY": PROXY}, "https://host", None),
        ({"HTTP_PROXY": PROXY}, "http://host", PROXY),
        ({"ALL_PROXY": PROXY}, "https://host", None),
        ({"HTTPS_PROXY": PROXY}, "https://localhost:6443", None),
        ({"HTTPS_PROXY": PROXY}, "https://127.0.0.1:6443", None),
        ({"HTTPS_PROXY": PROXY}, "https://[::1]:6443", None),
        ({"HTTPS_PROXY": PROXY}, "https://10.0.0.1:6443/k8s", PROXY),
        ({"HTTPS_PROXY": PROXY}, "no address", None),
    ],
)
def test_the_proxy_of_the_scheme_counts(environ: dict[str, str], server: str, expected: str | None) -> None:
    assert proxy_of(server, environ) == expected


@pytest.mark.parametrize(
    ("server", "exceptions", "is_excepted"),
    [
        ("https://a.example.org", "*", True),
        ("https://a.example.org", "example.org", True),
        ("https://a.example.org", " x , .example.org", True),
        ("https://a.example.org", "*.example.org", True),
        ("https://A.Example.org", "a.EXAMPLE.org", True),
        ("https://example.org", ".example.org", False),
        ("https://notexample.org", "example.org", False),
        ("https://a.example.org:6443", "a.example.org:6443", True),
        ("https://a.example.org", "a.example.org:443", True),
        ("https://a.example.org", "a.example.org:6443", False),
        ("https://10.1.2.3", "10.0.0.0/8", True),
        ("https://10.1.2.3", "10.1.2.3", True),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", True),
        ("https://10.1.2.3", "2.3", False),
        ("https://11.1.2.3", "10.0.0.0/8,nonsense/99", False),
        ("https://[fd00::1]:6443", "fd00::/16", True),
        ("https://[fd00::1]:6443", "fd00::1", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        ("https://[fd00::1]:6443", "fd00::2", False),
        ("https://a.example.org", "", False),
        ("https://a.example.org", "x,*,y", True),
        ("https://example.org", "*example.org", False),
        ("https://example.org", "*.example.org", False),
        ("https://a.example.org", "example.org:", True),
        ("https://a.example.org", "example.org:https", False),
        ("https://a.example.org", ":443", False),
        ("https://a.example.org", ".example.org:443", True),
        ("https://a.example.org:8443", "*.example.org:443", False),
        ("https://10.1.2.3", "10.1.2.3/8", True),
        ("https://10.1.2.3:6443", "10.1.2.3:443", False),
        ("https://10.1.2.3", "10.0.0.0/8:443", False),
        ("https://[fd00::1]:6443", "[fd00::1]", False),
        ("https://[fd00:0::1]:6443", "fd00::1", True),
        ("https://[fe80::1%25eth0]:6443", "fe80::/10", True),
    ],
)
def test_exceptions(server: str, exceptions: str, is_excepted: bool) -> None:
    proxy = proxy_of(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": exceptions})
    assert (proxy is None) is is_excepted
