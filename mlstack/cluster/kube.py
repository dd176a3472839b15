"""The only door to the `kubernetes` library: it renews the tokens of identity providers (OpenID Connect).

The library is imported on first use: that takes a third of a second, and few log in so.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any

ID_TOKEN, REFRESH_TOKEN = "id-token", "refresh-token"

_NEEDED = (REFRESH_TOKEN, "idp-issuer-url", "client-id")
_AUTHORITY = "idp-certificate-authority"
# The library renews what has expired alone: this has, by its claim `{"exp": 1}`.
_EXPIRED = "e30.eyJleHAiOjF9.e30"
_CODE = re.compile(r"[a-z_]{1,30}")


def renewed(settings: Mapping[str, str]) -> dict[str, str]:
    """Get a new id-token for a refresh-token.

    Args:
        settings: what a kubeconfig says of the auth-provider `oidc`.

    Returns:
        What is to stand there now: the new id-token, and the refresh-token for the next time.

    Raises:
        ValueError: there is none; the text says why, without any part of a token or password.
    """
    given = {key: value for key, value in settings.items() if value}
    if missing := [key for key in _NEEDED if key not in given]:
        raise ValueError(f"the kubeconfig has no `{missing[0]}`")
    asked = {"client-secret": "", **given, ID_TOKEN: _EXPIRED}
    asked["idp-issuer-url"] = asked["idp-issuer-url"].rstrip("/")
    if not any(key.startswith(_AUTHORITY) for key in given):
        asked[_AUTHORITY] = _authorities()  # else the library would trust anybody
    try:
        _renew(asked)
    except Exception as error:
        # The library lets through whatever its parts raise; their texts may quote what was sent.
        raise ValueError(_reason(error)) from None
    if asked[ID_TOKEN] == _EXPIRED:  # the library says nothing of some refusals
        raise ValueError("its provider refuses")
    return {key: asked[key] for key in (ID_TOKEN, REFRESH_TOKEN)}


def _renew(settings: dict[str, str]) -> None:
    """Let the library put other tokens into the settings, if it gets some."""
    from kubernetes.client import Configuration
    from kubernetes.config import kube_config

    library: Any = kube_config
    config = {
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {}}],
        "users": [{"name": "u", "user": {"auth-provider": {"name": "oidc", "config": settings}}}],
    }
    library.KubeConfigLoader(config_dict=config, active_context="c").load_and_set(Configuration())


def _authorities() -> str:
    """Give the file of the authorities that this machine trusts."""
    from certifi import where

    return ssl.get_default_verify_paths().cafile or where()


def _reason(error: Exception) -> str:
    code = getattr(error, "error", None)  # oauthlib's
    if isinstance(code, str) and _CODE.fullmatch(code):
        return f"its provider refuses ({code})"
    if isinstance(error, KeyError) and error.args == ("id_token",):
        return "its provider gives none for a refresh-token"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "the certificate of its provider cannot be verified"
    return "its provider gives no answer that can be used"
