"""When a proxy of the environment stands in between: as Go's net/http, and so kubectl, decides it."""

from __future__ import annotations

import pytest

from mlstack.kube import kubeconfig

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
    assert kubeconfig.proxy_of(server, environ) == expected


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
    ],
)
def test_exceptions(server: str, exceptions: str, is_excepted: bool) -> None:
    found = kubeconfig.proxy_of(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": exceptions})
    assert (found is None) is is_excepted
