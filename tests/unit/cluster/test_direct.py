"""The door without the library: it trusts, tells who we are and fails as the library's does."""

from __future__ import annotations

import base64
import ssl
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlstack.cluster import direct, kube
from mlstack.cluster.api import ObjectRef
from mlstack.cluster.remote import RemoteCluster
from mlstack.errors import ClusterError, ForbiddenError, UnreachableError
from mlstack.files import logins
from tests.support.certificates import self_signed
from tests.support.fakeapi import Answer, always, kubeconfig, serve, status

MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "q", "resourceVersion": "7"},
}
REF = ObjectRef("v1", "ConfigMap", "q", "a")
# The key of `self_signed("ada")` under the password `x`.
ENCRYPTED = """\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAh8f4skLCwF0gICA+gw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEAQIEEPCJ5/trzsaCtVuaQ7hHiMIEgZD0
U3GH99IRZ/J98KXU2VHGQKpenjTVxDoc4KWpBc+7oajfP5+H1NEPMqzLyRymgqUW
XqBcUHlIGlPISz9BirdbnXRN0mRqLLBw4qUuQqXwNd10HOlOmbigu2sJDNphY9OF
/K6JnfLdmhElOZCYwjUDcHfYyy+zHnUnYQLOB+Vuw5pHF0p1gtCqSoxkmsAOPdQ=
-----END ENCRYPTED PRIVATE KEY-----
"""
Open = Callable[[str], RemoteCluster]


def by_library(config: str) -> RemoteCluster:
    return kube.connect("test", kubeconfig=config)


def directly(config: str) -> RemoteCluster:
    login = logins.fixed("test", config, {})
    assert login is not None
    opened = direct.connect(login)
    assert opened is not None
    return opened


@pytest.fixture(params=[directly, by_library], ids=["direct", "library"])
def opened(request: pytest.FixtureRequest) -> Open:
    found: Open = request.param
    return found


def tls(folder: Path, host: str) -> tuple[ssl.SSLContext, str]:
    """Make a server's TLS context for a host, and the file clients trust it by."""
    certificate, key = self_signed(host).write(folder, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, str(certificate)


def test_the_server_is_verified_and_told_who_we_are(tmp_path: Path, opened: Open) -> None:
    context, ca = tls(tmp_path, "127.0.0.1")
    with serve(always(Answer(body=MAP)), tls=context).running() as api:
        config = kubeconfig(tmp_path, api.url, user={"token": "t-1"}, **{"certificate-authority": ca})
        assert opened(config).get(REF) == MAP
    headers = {name.lower(): value for name, value in api.asked[0].headers.items()}
    assert headers["authorization"] == "Bearer t-1"
    assert headers["user-agent"].startswith("mlstack/")


def test_both_doors_see_the_same_cluster(tmp_path: Path) -> None:
    context, ca = tls(tmp_path, "127.0.0.1")
    body = {"metadata": {"name": "kube-system", "uid": "u-1"}}
    with serve(always(Answer(body=body)), tls=context).running() as api:
        data = base64.b64encode(Path(ca).read_bytes()).decode()
        config = kubeconfig(tmp_path, api.url, **{"certificate-authority-data": data})
        one, other = directly(config).identity(), by_library(config).identity()
    assert one == other
    assert one.ca is not None


@pytest.mark.parametrize(
    ("host", "trusted", "reason"),
    [
        ("127.0.0.1", False, "TLS fails: self-signed certificate"),
        ("elsewhere.example", True, "TLS fails: IP address mismatch"),
    ],
    ids=["unknown CA", "another name"],
)
def test_a_server_that_cannot_be_verified_gets_no_request(
    tmp_path: Path, opened: Open, host: str, trusted: bool, reason: str
) -> None:
    context, ca = tls(tmp_path, host)
    with serve(always(Answer(body={})), tls=context).running() as api:
        config = kubeconfig(tmp_path, api.url, **({"certificate-authority": ca} if trusted else {}))
        with pytest.raises(UnreachableError, match=reason):
            opened(config).get(REF)
    assert api.asked == []


def test_the_name_to_verify_can_be_another_than_the_address(tmp_path: Path, opened: Open) -> None:
    context, ca = tls(tmp_path, "kubernetes")
    with serve(always(Answer(body=MAP)), tls=context).running() as api:
        cluster = {"certificate-authority": ca, "tls-server-name": "kubernetes"}
        assert opened(kubeconfig(tmp_path, api.url, **cluster)).get(REF) == MAP


def test_verification_is_off_only_where_the_kubeconfig_says_so(tmp_path: Path, opened: Open) -> None:
    context, _ = tls(tmp_path, "127.0.0.1")
    with serve(always(Answer(body=MAP)), tls=context).running() as api:
        config = kubeconfig(tmp_path, api.url, **{"insecure-skip-tls-verify": True})
        assert opened(config).get(REF) == MAP


@pytest.mark.parametrize("inline", [True, False], ids=["in the kubeconfig", "in files"])
def test_a_client_certificate_is_shown(tmp_path: Path, opened: Open, inline: bool) -> None:
    context, ca = tls(tmp_path, "127.0.0.1")
    own, key = self_signed("ada").write(tmp_path, "client")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cafile=own)
    files = {"client-certificate": own, "client-key": key}
    user: dict[str, Any] = (
        {f"{name}-data": base64.b64encode(file.read_bytes()).decode() for name, file in files.items()}
        if inline
        else {name: str(file) for name, file in files.items()}
    )
    with serve(always(Answer(body=MAP)), tls=context).running() as api:
        config = kubeconfig(tmp_path, api.url, user=user, **{"certificate-authority": ca})
        assert opened(config).get(REF) == MAP


def test_one_acts_as_whom_the_kubeconfig_says(tmp_path: Path, opened: Open) -> None:
    with serve(always(Answer(body=MAP))).running() as api:
        user = {"token": "t", "as": "ada", "as-groups": ["dev", "ops"], "as-uid": "7"}
        assert opened(kubeconfig(tmp_path, api.url, user=user)).get(REF) == MAP
    sent = api.asked[0].headers
    assert (sent["impersonate-user"], sent["impersonate-uid"]) == ("ada", "7")
    assert sent["impersonate-group"] == "ops"  # the last of two headers, not both in one
    assert sent["authorization"] == "Bearer t"


def test_an_authority_that_verifies_nobody_is_no_part_of_the_identity(tmp_path: Path, opened: Open) -> None:
    context, ca = tls(tmp_path, "127.0.0.1")
    body = {"metadata": {"name": "kube-system", "uid": "u-1"}}
    with serve(always(Answer(body=body)), tls=context).running() as api:
        cluster = {"certificate-authority": ca, "insecure-skip-tls-verify": True}
        assert opened(kubeconfig(tmp_path, api.url, **cluster)).identity().ca is None


def test_a_token_that_no_header_takes_is_told_without_it(tmp_path: Path, opened: Open) -> None:
    with serve(always(Answer(body=MAP))).running() as api:
        config = kubeconfig(tmp_path, api.url, user={"token": "hush\nX: y"})
        with pytest.raises(UnreachableError, match="characters that cannot be sent") as caught:
            opened(config).get(REF)
    assert "hush" not in "".join(traceback.format_exception(caught.value))
    assert api.asked == []


def test_an_encrypted_key_is_refused_and_nobody_asked_for_its_password(tmp_path: Path) -> None:
    own, key = self_signed("ada").write(tmp_path, "client")
    key.write_text(ENCRYPTED)
    user = {"client-certificate": str(own), "client-key": str(key)}
    config = kubeconfig(tmp_path, "https://127.0.0.1:1", user=user)
    login = logins.fixed("test", config, {})
    assert login is not None
    assert direct.connect(login) is None
    with pytest.raises(ClusterError, match="cannot be used: the client key is encrypted"):
        kube.connect("test", kubeconfig=config)


def test_refused_credentials_are_told(tmp_path: Path, opened: Open) -> None:
    context, ca = tls(tmp_path, "127.0.0.1")
    with serve(always(status(401, "Unauthorized", reason="Unauthorized")), tls=context).running() as api:
        config = kubeconfig(tmp_path, api.url, user={"token": "old"}, **{"certificate-authority": ca})
        with pytest.raises(ForbiddenError) as caught:
            opened(config).get(REF)
    assert caught.value.why == "credentials"


def test_certificates_that_cannot_be_used_are_left_to_the_library(tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    ca.write_text("no certificate")
    config = kubeconfig(tmp_path, "https://127.0.0.1:1", **{"certificate-authority": str(ca)})
    login = logins.fixed("test", config, {})
    assert login is not None
    assert direct.connect(login) is None


def test_the_library_is_not_imported(tmp_path: Path) -> None:
    context, ca = tls(tmp_path, "127.0.0.1")
    with serve(always(Answer(body=MAP)), tls=context).running() as api:
        config = kubeconfig(tmp_path, api.url, **{"certificate-authority": ca})
        code = (
            "import os, sys\n"
            "from mlstack.cli import adapters\n"
            "from mlstack.cluster.api import ObjectRef\n"
            f"adapters.connect('test', {config!r}).get(ObjectRef('v1', 'ConfigMap', 'q', 'a'))\n"
            "sys.exit('kubernetes' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], env={}, check=False)
    assert done.returncode == 0
