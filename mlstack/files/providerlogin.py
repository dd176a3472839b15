"""What a kubeconfig says of an identity provider (OpenID Connect), and how new tokens are kept there."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

from mlstack.errors import ClusterError, ConfigError
from mlstack.files.kubeparts import Parts, bounded, decoded
from mlstack.files.pluginlogin import unclear
from mlstack.model import login
from mlstack.model.login import IdToken, Proof

_OIDC = "oidc"
_AUTHORITY = "idp-certificate-authority"


def read(parts: Parts) -> IdToken:
    """Read the auth-provider of a context.

    Raises:
        UnfitError: a key has a value that it cannot have.
        ValueError: what stands there is no id-token.
        ClusterError: it is another provider, or there is a plug-in beside it.
    """
    if parts.user.value.get("exec"):
        raise unclear(
            parts,
            "logs in both by a credential plug-in and by an auth-provider",
            "leave one of them in the kubeconfig: `exec` or `auth-provider`",
        )
    provider = parts.user.part("auth-provider")
    name, config = provider.text("name"), provider.part("config")
    if name != _OIDC:
        raise ClusterError(
            f"the credentials of context `{parts.context}` come from auth-provider `{name}`, "
            "which cannot be used",
            where=parts.files,
            hint="get its credentials anew, with the credential plug-in that kubectl takes today",
        )
    settings = {key: config.text(key) for key in config.value}
    token = settings.get("id-token")
    return IdToken(
        proof=login.id_token(token) if token else Proof(expires_s=0),
        settings=settings,
        file=str(parts.user.file),
        user=parts.user.name,
    )


def authority(way: IdToken) -> str | None:
    """Give the certificates to verify a provider with, None for those of the system.

    Raises:
        ValueError: they cannot be read.
    """
    data, file = (way.settings.get(f"{_AUTHORITY}{end}") for end in ("-data", ""))
    try:
        if data:
            return decoded(base64.b64decode(data, validate=True))
        return decoded(bounded(Path(file))) if file else None
    except (OSError, ValueError):
        raise ValueError(f"its `{_AUTHORITY}` cannot be read") from None


def keep(way: IdToken, tokens: Mapping[str, str]) -> None:
    """Write new tokens into the kubeconfig, as kubectl does; nothing else changes there.

    Args:
        way: where they stand.
        tokens: what stands there from now on, by key.

    Raises:
        ValueError: they cannot be written; the text says why, without any part of them.
    """
    from mlstack.files import atomic

    file = Path(way.file)
    try:
        text = _with(way, tokens, file.read_bytes().decode("utf-8"))
        try:
            atomic.write_files({file: text})
        except ConfigError:  # a file that is mounted alone cannot be replaced
            file.write_bytes(text.encode())
    except OSError as error:
        raise ValueError((error.strerror or type(error).__name__).lower()) from None
    except (ConfigError, ValueError, LookupError, TypeError):
        raise ValueError("it has changed meanwhile, or is written in an unusual way") from None


def _with(way: IdToken, tokens: Mapping[str, str], text: str) -> str:
    from mlstack.files import yamledit, yamlread

    users = yamlread.read_document(text, source=way.file, with_positions=False).value["users"]
    number = [user["name"] for user in users].index(way.user)
    if not users[number]["user"]["auth-provider"]["config"]:
        raise LookupError("config")
    for key, token in tokens.items():
        path: list[str | int] = ["users", number, "user", "auth-provider", "config", key]
        text = yamledit.set_value(text, path, token, source=way.file)
    return text
