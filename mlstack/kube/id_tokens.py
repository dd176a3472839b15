"""Tokens of identity providers (OpenID Connect), renewed as the auth-provider `oidc` of kubectl does.

The renewal is ours because `kubernetes` sets no time limit and follows redirects with the refresh-token. See
https://openid.net/specs/openid-connect-core-1_0.html#RefreshTokens
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlstack.addresses import Endpoint, address, proxy_of
from mlstack.errors import ConfigError
from mlstack.http import ConnectionPool, NoAnswerError, Sent, basic, tls_context
from mlstack.kube import login
from mlstack.kube.kubeconfig import pem_text, read_bounded
from mlstack.kube.login import AUTHORITY, ContextLogin, IdToken, Proof, id_token_proof
from mlstack.kube.parallel import prefetch
from mlstack.kube.transport import decoded, quote

ID_TOKEN, REFRESH_TOKEN = "id-token", "refresh-token"
TIMEOUT_S = 20.0
"""How long a provider has for all that it is asked."""

_ISSUER = "idp-issuer-url"
_USELESS = "its provider gives no answer that can be used"


class IdTokens:
    """Gives the token of a kubeconfig while it counts, else a new one, which is kept there.

    It gives none twice: to be asked again says that it was refused. One thread at a time asks it.
    """

    def __init__(
        self, resolved: ContextLogin, source: IdToken, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._login, self._source, self._clock = resolved, source, clock
        self._given: str | None = None

    def __call__(self) -> Proof:
        """Give the token of the kubeconfig, which others renew as well, or get a new one.

        Raises:
            ForbiddenError: there is none.
            MlstackError: the kubeconfig cannot be read any more.
        """
        if self._given:
            source = login.find(self._login.context, self._login.option, os.environ).source
            self._source = source if isinstance(source, IdToken) else self._source
        proof = self._source.proof
        if not proof.authorization:
            proof = self._renew("is missing")
        elif self._clock() >= (proof.expires_s or 0):
            proof = self._renew("has expired")
        elif proof.authorization == self._given:
            proof = self._renew("is refused by the API server")
        self._given = proof.authorization
        return proof

    def _renew(self, fault: str) -> Proof:
        source, subject = self._source, f"the id-token of {self._login.login.label}"
        log_in = "log in to the identity provider again, so that new tokens are written to the kubeconfig"
        try:
            tokens = renew(source.settings)
        except ValueError as error:
            raise self._login.fault(f"{subject} {fault} and cannot be renewed: {error}", log_in) from None
        try:
            proof = id_token_proof(tokens[ID_TOKEN])
        except ValueError:
            text = f"{subject} {fault}, and what its provider gives anew is none"
            raise self._login.fault(text, log_in) from None
        try:
            keep(source, tokens)
        except ValueError as error:
            raise self._login.fault(
                f"{subject} was renewed and cannot be written to {source.file}: {error}",
                "let that file be changed, and log in to the identity provider again",
            ) from None
        return replace(proof, cert_pem=source.proof.cert_pem, key_pem=source.proof.key_pem)


def keep(source: IdToken, tokens: Mapping[str, str]) -> None:
    """Write new tokens into the kubeconfig, as kubectl does; nothing else changes there.

    Raises:
        ValueError: they cannot be written; the text says why, without any part of them.
    """
    from mlstack.app import atomic
    from mlstack.yaml import edit, read

    file = Path(source.file)
    try:
        text = file.read_bytes().decode("utf-8")
        users = read.read_document(text, source=source.file, with_positions=False).value["users"]
        number = [user["name"] for user in users].index(source.user)
        if not users[number]["user"]["auth-provider"]["config"]:
            raise LookupError("config")
        for key, token in tokens.items():
            path: list[str | int] = ["users", number, "user", "auth-provider", "config", key]
            text = edit.set_value(text, path, token, source=source.file)
        try:
            atomic.write_files({file: text})
        except ConfigError:  # a file that is mounted alone cannot be replaced
            file.write_bytes(text.encode())
    except OSError as error:
        raise ValueError((error.strerror or type(error).__name__).lower()) from None
    except (ConfigError, ValueError, LookupError, TypeError):
        raise ValueError("it has changed meanwhile, or is written in an unusual way") from None


def renew(settings: Mapping[str, str]) -> dict[str, str]:
    """Get a new id-token for a refresh-token, by what a kubeconfig says of the auth-provider `oidc`.

    Returns:
        What is to stand there now: the new id-token, and the refresh-token for the next time.

    Raises:
        ValueError: there is none; the text says why, without any part of a token or password.
    """
    data, file = (settings.get(f"{AUTHORITY}{end}") for end in ("-data", ""))
    try:
        authority = (
            base64.b64decode(data, validate=True) if data else read_bounded(Path(file)) if file else None
        )
    except (OSError, ValueError):
        raise ValueError(f"its `{AUTHORITY}` cannot be read") from None
    ca_pem = pem_text(authority) if authority is not None else None
    given = {key: value for key, value in settings.items() if value}
    if missing := [key for key in (REFRESH_TOKEN, _ISSUER, "client-id") if key not in given]:
        raise ValueError(f"the kubeconfig has no `{missing[0]}`")
    try:
        return prefetch(lambda: _ask_provider(given, ca_pem))(TIMEOUT_S)
    except TimeoutError:
        raise ValueError(f"its provider did not answer within {TIMEOUT_S:g} s") from None
    except NoAnswerError as error:
        raise ValueError(f"its provider gives no answer: {error.text}") from None


def _ask_provider(given: Mapping[str, str], ca_pem: str | None) -> dict[str, str]:
    url = f"{given[_ISSUER].rstrip('/')}/.well-known/openid-configuration"
    status, configuration = _send("GET", url, ca_pem=ca_pem)
    endpoint = configuration.get("token_endpoint")
    if status != 200 or not isinstance(endpoint, str):
        raise ValueError(_USELESS)
    form = {"grant_type": "refresh_token", "refresh_token": given[REFRESH_TOKEN]}
    name, secret = given["client-id"], given.get("client-secret", "")
    alone = {**form, "client_id": name, **({"client_secret": secret} if secret else {})}
    # With a password as Go's oauth2: first beside the form, then, for those who want it so, in it.
    status, tokens = 400, dict[str, Any]()
    if secret:
        proof = {"Authorization": basic(quote(name), quote(secret))}
        status, tokens = _send("POST", endpoint, form, proof, ca_pem=ca_pem)
    if status in (400, 401):
        status, tokens = _send("POST", endpoint, alone, ca_pem=ca_pem)
    if status != 200:
        code = tokens.get("error")
        is_code = isinstance(code, str) and re.fullmatch(r"[a-z_]{1,30}", code)
        raise ValueError(f"its provider refuses ({code})" if is_code else _USELESS)
    id_token, refresh_token = tokens.get("id_token"), tokens.get("refresh_token") or given[REFRESH_TOKEN]
    if not (isinstance(id_token, str) and isinstance(refresh_token, str)):
        raise ValueError("its provider gives none for a refresh-token")
    return {ID_TOKEN: id_token, REFRESH_TOKEN: refresh_token}


def _send(
    method: str,
    url: str,
    form: Mapping[str, str] | None = None,
    proof: Sent | None = None,
    *,
    ca_pem: str | None,
) -> tuple[int, dict[str, Any]]:
    """Ask a provider; gives status and map. Where it leads elsewhere, nobody follows with a token."""
    place, mark, query = url.partition("?")
    try:
        there = address(place)
    except ValueError:
        raise ValueError("the address of its provider is not a URL of a host") from None
    proxy = proxy_of(place, os.environ)
    if not there.is_secure and (proxy or not there.is_here):
        raise ValueError("nothing secret is sent to its provider over http://")
    pool = ConnectionPool(Endpoint(label="its provider", server=place, proxy=proxy))
    try:
        pool.use(tls_context(ca_pem=ca_pem, cert_file=None, key_file=None, verify=True))
    except (OSError, ValueError):
        raise ValueError("its `idp-certificate-authority` cannot be used") from None
    headers, body = {"Accept": "application/json", **(proof or {})}, None
    if form is not None:
        body = "&".join(f"{key}={quote(value)}" for key, value in form.items()).encode()
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    path = f"{there.path}{mark}{query}"
    answer = pool.send(method, path, body=body, headers=headers, timeout_s=TIMEOUT_S, whole=True)
    try:
        value = decoded(answer.data)
    except ValueError:
        raise ValueError(_USELESS) from None
    if not isinstance(value, Mapping):
        raise ValueError(_USELESS)
    return answer.status, dict(value)
