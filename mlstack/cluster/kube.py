"""Renews the tokens of identity providers (OpenID Connect), as the auth-provider `oidc` of kubectl does.

See https://openid.net/specs/openid-connect-core-1_0.html#RefreshTokens
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from mlstack.cluster.ahead import soon
from mlstack.cluster.direct import carrier_of
from mlstack.cluster.tls import tls_context
from mlstack.cluster.transport import decoded, quote
from mlstack.cluster.wire import FaultError, Received, Sent
from mlstack.model import proxies
from mlstack.model.login import Login, address, basic

ID_TOKEN, REFRESH_TOKEN = "id-token", "refresh-token"
TIMEOUT_S = 20.0
"""How long a provider has for all that it is asked."""

_ISSUER = "idp-issuer-url"
_NEEDED = (REFRESH_TOKEN, _ISSUER, "client-id")
_CODE = re.compile(r"[a-z_]{1,30}")
_USELESS = "its provider gives no answer that can be used"


def renewed(settings: Mapping[str, str], *, ca_pem: str | None = None) -> dict[str, str]:
    """Get a new id-token for a refresh-token.

    Args:
        settings: what a kubeconfig says of the auth-provider `oidc`.
        ca_pem: certificates to verify the provider with, None for those of the system.

    Returns:
        What is to stand there now: the new id-token, and the refresh-token for the next time.

    Raises:
        ValueError: there is none; the text says why, without any part of a token or password.
    """
    given = {key: value for key, value in settings.items() if value}
    if missing := [key for key in _NEEDED if key not in given]:
        raise ValueError(f"the kubeconfig has no `{missing[0]}`")
    try:
        return soon(lambda: _renewed(given, ca_pem))(TIMEOUT_S)
    except TimeoutError:
        raise ValueError(f"its provider did not answer within {TIMEOUT_S:g} s") from None
    except FaultError as fault:
        raise ValueError(f"its provider gives no answer: {fault.text}") from None


def _renewed(given: Mapping[str, str], ca_pem: str | None) -> dict[str, str]:
    ask = partial(_send, ca_pem=ca_pem)
    issuer = given[_ISSUER].rstrip("/")
    known = ask("GET", f"{issuer}/.well-known/openid-configuration")
    endpoint = _read(known).get("token_endpoint")
    if known.status != 200 or not isinstance(endpoint, str):
        raise ValueError(_USELESS)
    form = {"grant_type": "refresh_token", "refresh_token": given[REFRESH_TOKEN]}
    name, secret = given["client-id"], given.get("client-secret", "")
    alone = {**form, "client_id": name, **({"client_secret": secret} if secret else {})}
    # With a password as Go's oauth2: first beside the form, then, for those who want it so, in it.
    proof = {"Authorization": basic(quote(name), quote(secret))}
    answer = ask("POST", endpoint, form, proof) if secret else None
    if answer is None or answer.status in (400, 401):
        answer = ask("POST", endpoint, alone)
    tokens = _read(answer)
    if answer.status != 200:
        code = tokens.get("error")
        is_code = isinstance(code, str) and _CODE.fullmatch(code)
        raise ValueError(f"its provider refuses ({code})" if is_code else _USELESS)
    new, next_one = tokens.get("id_token"), tokens.get("refresh_token") or given[REFRESH_TOKEN]
    if not (isinstance(new, str) and isinstance(next_one, str)):
        raise ValueError("its provider gives none for a refresh-token")
    return {ID_TOKEN: new, REFRESH_TOKEN: next_one}


def _send(
    method: str,
    url: str,
    form: Mapping[str, str] | None = None,
    proof: Sent | None = None,
    *,
    ca_pem: str | None,
) -> Received:
    """Ask a provider; where it leads elsewhere, nobody follows with a token."""
    place, mark, query = url.partition("?")
    try:
        there = address(place)
    except ValueError:
        raise ValueError("the address of its provider is not a URL of a host") from None
    proxy = proxies.between(place, os.environ)
    if not there.is_secure and (proxy or not there.is_here):
        raise ValueError("nothing secret is sent to its provider over http://")
    carrier = carrier_of(Login(label="its provider", server=place, proxy=proxy))
    try:
        carrier.use(tls_context(ca_pem=ca_pem, cert_file=None, key_file=None, verify=True))
    except (OSError, ValueError):
        raise ValueError("its `idp-certificate-authority` cannot be used") from None
    said = {"Accept": "application/json", **(proof or {})}
    body = None if form is None else "&".join(f"{key}={quote(value)}" for key, value in form.items()).encode()
    if body is not None:
        said["Content-Type"] = "application/x-www-form-urlencoded"
    return carrier.send(
        method, f"{mark}{query}", body=body, headers=said, read_timeout_s=TIMEOUT_S, whole=True
    )


def _read(answer: Received) -> Mapping[str, Any]:
    try:
        value = decoded(answer.data)
    except ValueError:
        raise ValueError(_USELESS) from None
    if not isinstance(value, Mapping):
        raise ValueError(_USELESS)
    return value
