"""The way through proxies: plain and over TLS, to plain servers and to those behind TLS."""

from __future__ import annotations

import base64
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlstack.cli import kube
from mlstack.cluster import proxying
from mlstack.cluster.api import ObjectRef
from mlstack.cluster.proxying import Proxy
from mlstack.errors import ClusterError, UnreachableError
from mlstack.model.login import Login
from tests.support.certificates import self_signed
from tests.support.fakeapi import Answer, always, kubeconfig, serve
from tests.support.proxies import ConnectingProxy

MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "q"}}
LARGE = {**MAP, "data": {"a": "x" * 200_000}}
REF = ObjectRef("v1", "ConfigMap", "q", "a")


def certified(folder: Path) -> tuple[ssl.SSLContext, str]:
    certificate, key = self_signed("127.0.0.1").write(folder, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, str(certificate)


@pytest.mark.parametrize("over_tls", [False, True], ids=["http", "https"])
def test_a_proxy_connects_us_to_a_server_behind_tls(tmp_path: Path, over_tls: bool) -> None:
    context, ca = certified(tmp_path)
    api = serve(always(Answer(body=LARGE)), tls=context)
    with api.running(), ConnectingProxy(api.url, context if over_tls else None).running() as proxy:
        url = proxy.url.replace("//", "//ada:p%40ss@")
        config = kubeconfig(tmp_path, api.url, **{"certificate-authority": ca, "proxy-url": url})
        cluster = kube.connect("test", kubeconfig=config)
        assert cluster.get(REF) == cluster.get(REF) == LARGE
        with ThreadPoolExecutor(4) as pool:
            assert all(found.object == LARGE for found in pool.map(cluster.apply, [LARGE] * 8))
    place = api.url.removeprefix("https://")
    assert proxy.heads[0].splitlines()[:3] == [
        f"CONNECT {place} HTTP/1.1",
        f"Host: {place}",
        "Proxy-Authorization: Basic YWRhOnBAc3M=",
    ]
    assert all("proxy-authorization" not in asked.headers for asked in api.asked)
    assert all("token" not in head for head in proxy.heads)


def test_a_watch_comes_through_a_proxy_over_tls(tmp_path: Path) -> None:
    context, ca = certified(tmp_path)
    event = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}\n'
    api = serve(always(Answer(body=[event, event])), tls=context)
    with api.running(), ConnectingProxy(api.url, context).running() as proxy:
        config = kubeconfig(tmp_path, api.url, **{"certificate-authority": ca, "proxy-url": proxy.url})
        cluster = kube.connect("test", kubeconfig=config)
        assert len(list(cluster.watch("v1", "ConfigMap", namespace="q", timeout_s=5))) == 2


def test_a_proxy_asks_a_plain_server_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "")
    with serve(always(Answer(body=MAP))).running() as api:
        monkeypatch.setenv("HTTP_PROXY", api.url)
        config = kubeconfig(tmp_path, "http://cluster.example:8080/base")
        assert kube.connect("test", kubeconfig=config).get(REF) == MAP
    assert api.asked[0].headers["host"] == "cluster.example:8080"
    assert api.asked[0].path.startswith("/base/api/v1/")


def test_what_a_proxy_refuses_is_told(tmp_path: Path) -> None:
    with ConnectingProxy("http://127.0.0.1:1", None, says="407 Who are you").running() as proxy:
        config = kubeconfig(tmp_path, "https://127.0.0.1:1", **{"proxy-url": proxy.url})
        with pytest.raises(UnreachableError, match=r"the proxy does not connect \(HTTP 407\)"):
            kube.connect("test", kubeconfig=config).get(REF)


def test_a_proxy_that_is_nobody_we_trust_gets_no_request(tmp_path: Path) -> None:
    context, _ = certified(tmp_path)
    other = self_signed("127.0.0.1", seed="other").certificate
    authority = base64.b64encode(other.encode()).decode()
    with ConnectingProxy("http://127.0.0.1:1", context).running() as proxy:
        cluster = {"certificate-authority-data": authority, "proxy-url": proxy.url}
        with pytest.raises(UnreachableError, match="the proxy does not connect"):
            kube.connect("test", kubeconfig=kubeconfig(tmp_path, "https://127.0.0.1:1", **cluster)).get(REF)
    assert proxy.heads == []


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://p", Proxy(scheme="http", host="p", port=80)),
        ("HTTPS://p/", Proxy(scheme="https", host="p", port=443)),
        ("http://[::1]:3128", Proxy(scheme="http", host="::1", port=3128)),
        ("socks5://p", Proxy(scheme="socks5", host="p", port=1080)),
        ("socks5h://p", Proxy(scheme="socks5", host="p", port=1080)),
        ("http://a:%3A@p", Proxy(scheme="http", host="p", port=80, person=b"a::")),
    ],
)
def test_a_url_says_which_proxy(url: str, proxy: Proxy) -> None:
    assert proxying.read(Login(label="l", server="https://s", proxy=url)) == proxy


@pytest.mark.parametrize("url", ["socks4://a:hush@p", "p:3128", "http://", "http://a b", "http://p:x"])
def test_what_is_no_proxy_of_ours_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ClusterError, match="a proxy that mlstack does not speak to") as caught:
        proxying.read(Login(label="l", server="https://s", proxy=url))
    assert "hush" not in caught.value.describe()
