"""A login whose credentials stand in the kubeconfig, so that nobody has to be asked for them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_AS = {"as": "Impersonate-User", "as-uid": "Impersonate-Uid", "as-groups": "Impersonate-Group"}
_EXTRA = "as-user-extra"
IMPERSONATION = frozenset({*_AS, _EXTRA})
"""What a user of a kubeconfig may say of somebody else, whose rights he wants to have."""

_UNFIT = re.compile(r"[^a-z0-9!#$&'*+.^_`|~-]")


@dataclass(frozen=True, kw_only=True)
class FixedLogin:
    """Where an API server is, whom it is trusted by, and who we say we are.

    Attributes:
        context: name of the kubectl context.
        server: address, `https://…`.
        ca_pem: certificates to verify the server with, None for those of the system.
        verify: off only where the kubeconfig says insecure-skip-tls-verify.
        server_name: the name to verify, where it is not that of the address.
        token: bearer token, None without.
        cert_pem: client certificate, None without.
        key_pem: its key.
        impersonation: headers that say as whom the server shall take us.
    """

    context: str
    server: str
    ca_pem: str | None = None
    verify: bool = True
    server_name: str | None = None
    token: str | None = field(default=None, repr=False)
    cert_pem: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
    impersonation: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def impersonation(user: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Give the headers by which a user of a kubeconfig acts as another one, as kubectl sends them.

    Raises:
        ValueError: it cannot be told as whom; to go on would be to act with the user's own rights.
    """
    given = {key: user[key] for key in IMPERSONATION if user.get(key)}
    if given and not (isinstance(given.get("as"), str) and isinstance(given.get("as-uid", ""), str)):
        raise ValueError("no user")
    extra = given.pop(_EXTRA, {})
    if not isinstance(extra, Mapping):
        raise ValueError(_EXTRA)
    headers = {_AS[key]: _texts(value) for key, value in given.items()}
    return headers | {f"Impersonate-Extra-{_escaped(key)}": _texts(value) for key, value in extra.items()}


def _texts(value: Any) -> tuple[str, ...]:
    texts = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("no text")
    return texts


def _escaped(key: Any) -> str:
    """Write a key so that it can stand in the name of a header."""
    return _UNFIT.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), str(key).lower())
