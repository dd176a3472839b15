"""Tokens of identity providers: used while they count, renewed and kept, and told when that fails."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import ConfigError, ForbiddenError
from mlstack.kube.api_server import connect
from mlstack.kube.client import ObjectRef
from tests.support.fakeapi import Answer, Asked, Script, always, kubeconfig, serve, status
from tests.support.providers import LATER_S, FakeProvider, id_token

MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "q"}}
REF = ObjectRef("v1", "ConfigMap", "q", "a")
OLD = id_token(expires_s=1)
NOBODY = status(401, "Unauthorized", reason="Unauthorized")


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[FakeProvider]:
    with FakeProvider(tmp_path).running() as running:
        yield running


def only(token: str) -> Script:
    def script(request: Asked) -> Answer:
        return Answer(body=MAP) if request.headers.get("authorization") == f"Bearer {token}" else NOBODY

    return script


def settings_of(config: str) -> dict[str, Any]:
    """Give what the kubeconfig says of the provider now."""
    user: dict[str, Any] = json.loads(Path(config).read_text())["users"][0]["user"]
    settings: dict[str, Any] = user["auth-provider"]["config"]
    return settings


def failed(tmp_path: Path, user: dict[str, Any]) -> ForbiddenError:
    config = kubeconfig(tmp_path, "https://127.0.0.1:1", user=user)
    before = Path(config).read_text()
    with pytest.raises(ForbiddenError) as caught:
        connect("test", kubeconfig=config)
    assert Path(config).read_text() == before
    assert caught.value.why == "credentials"
    assert caught.value.hint is not None
    text = "".join(traceback.format_exception(caught.value)) + caught.value.describe()
    assert not [secret for secret in ("refresh-1", "hush", OLD) if secret in text]
    return caught.value


def test_a_token_counts_until_it_expires(tmp_path: Path, provider: FakeProvider) -> None:
    token = id_token(expires_s=LATER_S)
    with serve(only(token)).running() as api:
        config = kubeconfig(tmp_path, api.url, user=provider.user(token))
        assert connect("test", kubeconfig=config).get(REF) == MAP
    assert provider.asked == []


@pytest.mark.parametrize("token", [OLD, None], ids=["old", "missing"])
def test_what_has_expired_is_renewed_once_and_kept(
    tmp_path: Path, provider: FakeProvider, token: str | None
) -> None:
    with serve(only(provider.token(1))).running() as api:
        config = kubeconfig(tmp_path, api.url, user=provider.user(token, **{"client-secret": "hush"}))
        before = settings_of(config)
        cluster = connect("test", kubeconfig=config)
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(cluster.get, [REF] * 8)) == [MAP] * 8
        assert connect("test", kubeconfig=config).get(REF) == MAP
    assert len(provider.asked) == 1
    form = provider.asked[0]
    assert (form["grant_type"], form["refresh_token"]) == ("refresh_token", "refresh-1")
    assert form["authorization"] == "Basic bWxzdGFjazpodXNo"
    assert settings_of(config) == {**before, "id-token": provider.token(1), "refresh-token": "refresh-2"}


def test_a_refused_token_is_renewed_and_the_request_sent_anew(tmp_path: Path, provider: FakeProvider) -> None:
    with serve(only(provider.token(1))).running() as api:
        config = kubeconfig(tmp_path, api.url, user=provider.user(id_token(expires_s=LATER_S)))
        assert connect("test", kubeconfig=config).get(REF) == MAP
    assert len(api.asked) == 2
    assert settings_of(config)["id-token"] == provider.token(1)


def test_what_others_renewed_meanwhile_is_taken(tmp_path: Path, provider: FakeProvider) -> None:
    new = id_token(expires_s=LATER_S, name="new")
    with serve(only(new)).running() as api:
        config = kubeconfig(tmp_path, api.url, user=provider.user(id_token(expires_s=LATER_S)))
        cluster = connect("test", kubeconfig=config)
        kubeconfig(tmp_path, api.url, user=provider.user(new))
        assert cluster.get(REF) == MAP
    assert provider.asked == []


def test_a_refresh_token_that_is_not_renewed_stays(tmp_path: Path, provider: FakeProvider) -> None:
    provider.silent = True
    config = kubeconfig(tmp_path, "https://127.0.0.1:1", user=provider.user(OLD))
    connect("test", kubeconfig=config)
    assert settings_of(config)["refresh-token"] == "refresh-1"


def test_the_rest_of_the_file_stays_as_it_is(tmp_path: Path, provider: FakeProvider) -> None:
    settings = provider.user(OLD)["auth-provider"]["config"]
    lines = "".join(f"        {key}: {value} # {key}\n" for key, value in settings.items())
    text = (
        "# mine\ncurrent-context: test\ncontexts: [{name: test, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers:\n- name: other\n"
        f"- name: u\n  user:\n    auth-provider:\n      name: oidc\n      config:\n{lines}"
    )
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text(text)
    real.chmod(0o600)
    link.symlink_to(real)
    connect("test", kubeconfig=str(link))
    assert real.read_text() == text.replace(OLD, provider.token(1)).replace("refresh-1", "refresh-2")
    assert (real.stat().st_mode & 0o777, link.is_symlink()) == (0o600, True)


def test_the_authority_may_stand_in_the_kubeconfig(tmp_path: Path, provider: FakeProvider) -> None:
    data = base64.b64encode(Path(provider.ca).read_bytes()).decode()
    more = {"idp-certificate-authority": "", "idp-certificate-authority-data": data}
    config = kubeconfig(tmp_path, "https://127.0.0.1:1", user=provider.user(None, **more))
    connect("test", kubeconfig=config)
    assert settings_of(config)["id-token"] == provider.token(1)


@pytest.mark.parametrize("empty", ["", None], ids=["none", "empty"])
def test_a_provider_without_an_authority_is_still_verified(
    tmp_path: Path, provider: FakeProvider, empty: str | None
) -> None:
    user = provider.user(OLD, **{"idp-certificate-authority": "", "client-secret": "hush"})
    if empty is None:
        user["auth-provider"]["config"]["idp-certificate-authority"] = ""
    error = failed(tmp_path, user)
    assert "cannot be renewed: its provider gives no answer: TLS fails: self-signed" in error.message
    assert (provider.paths, provider.asked) == ([], [])


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"refresh-token": ""}, "the kubeconfig has no `refresh-token`"),
        ({"client-id": ""}, "the kubeconfig has no `client-id`"),
        ({"idp-issuer-url": "https://127.0.0.1:1"}, "its provider gives no answer: connection refused"),
        ({"idp-issuer-url": "https://a..b"}, "the address of its provider is not a URL of a host"),
        ({"idp-issuer-url": "http://issuer.example"}, "nothing secret is sent to its provider over http://"),
        ({"idp-certificate-authority": "/dev/zero"}, "its `idp-certificate-authority` cannot be read"),
        ({"refresh-token": "hush"}, "its provider refuses (invalid_grant)"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_renewed_is_told_without_secrets(
    tmp_path: Path, provider: FakeProvider, more: dict[str, str], reason: str
) -> None:
    error = failed(tmp_path, provider.user(OLD, **more))
    assert error.message == f"the id-token of context `test` has expired and cannot be renewed: {reason}"


def test_a_silent_provider_is_given_up(
    tmp_path: Path, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlstack.kube.login.TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        error = failed(tmp_path, provider.user(OLD, **{"idp-issuer-url": url}))
    assert "its provider did not answer within 0.3 s" in error.message


def test_a_provider_that_wants_its_password_in_the_form_gets_it_there(
    tmp_path: Path, provider: FakeProvider
) -> None:
    provider.wants_form = True
    config = kubeconfig(tmp_path, "https://127.0.0.1:1", user=provider.user(OLD, **{"client-secret": "hush"}))
    connect("test", kubeconfig=config)
    assert [form.get("client_secret") for form in provider.asked] == [None, "hush"]


def test_a_provider_that_leads_elsewhere_is_not_followed(tmp_path: Path, provider: FakeProvider) -> None:
    with serve(always(Answer(body={}))).running() as elsewhere:
        provider.moved = f"{elsewhere.url}/token"
        error = failed(tmp_path, provider.user(OLD))
    assert "gives no answer that can be used" in error.message
    assert elsewhere.asked == []


@pytest.mark.parametrize("endpoint", ["http://issuer.example/token", "https://a..b/token", "", 7])
def test_tokens_are_asked_of_nobody_insecure(tmp_path: Path, provider: FakeProvider, endpoint: Any) -> None:
    provider.endpoint = endpoint
    assert "cannot be renewed" in failed(tmp_path, provider.user(OLD)).message
    assert provider.asked == []


def test_a_renewal_says_nothing_to_the_person(tmp_path: Path, provider: FakeProvider) -> None:
    user = provider.user(OLD, **{"idp-issuer-url": "https://127.0.0.1:1"})
    code = (
        "from mlstack.kube import api_server as kube\n"
        "from mlstack.errors import ForbiddenError\n"
        f"try: kube.connect('test', kubeconfig={kubeconfig(tmp_path, 'https://127.0.0.1:1', user=user)!r})\n"
        "except ForbiddenError: print('told')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("told\n", "")


@pytest.mark.parametrize(
    ("gives", "message"),
    [
        ((200, {"access_token": "hush", "token_type": "Bearer"}), "gives none for a refresh-token"),
        ((200, {"access_token": "a", "id_token": "hush"}), "what its provider gives anew is none"),
        ((200, []), "gives no answer that can be used"),
        ((500, {"error": "hush " * 9}), "gives no answer that can be used"),
        ((401, {"error": "invalid_client"}), "its provider refuses (invalid_client)"),
    ],
    ids=["access alone", "no token", "list", "fault", "client"],
)
def test_an_odd_answer_of_a_provider_is_told(
    tmp_path: Path, provider: FakeProvider, gives: tuple[int, Any], message: str
) -> None:
    provider.gives = gives
    assert message in failed(tmp_path, provider.user(OLD)).message


def test_a_kubeconfig_that_cannot_be_written_is_told(
    tmp_path: Path, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    config = kubeconfig(tmp_path, "https://127.0.0.1:1", user=provider.user(OLD))
    monkeypatch.setattr("mlstack.app.edit.write_files", refuse)
    with pytest.raises(ForbiddenError, match=r"was renewed and cannot be written to .*: permission denied"):
        connect("test", kubeconfig=config)


def test_a_file_that_cannot_be_replaced_is_written_in_place(
    tmp_path: Path, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ConfigError("busy")

    config = kubeconfig(tmp_path, "https://127.0.0.1:1", user=provider.user(OLD))
    monkeypatch.setattr("mlstack.app.edit.write_files", refuse)
    connect("test", kubeconfig=config)
    assert settings_of(config)["id-token"] == provider.token(1)


def test_when_it_is_refused_again_that_is_told(tmp_path: Path, provider: FakeProvider) -> None:
    with serve(always(NOBODY)).running() as api:
        config = kubeconfig(tmp_path, api.url, user=provider.user(id_token(expires_s=LATER_S)))
        with pytest.raises(ForbiddenError, match="does not accept the credentials"):
            connect("test", kubeconfig=config).get(REF)
    assert len(api.asked) == 2
