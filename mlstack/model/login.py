"""How one gets to an API server, and how one shows there who one is: what a kubeconfig says of a context."""

import base64
import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mlstack.model import masking
from mlstack.model.plugin import Plugin

_AS = {"as": "Impersonate-User", "as-uid": "Impersonate-Uid", "as-groups": "Impersonate-Group"}
_EXTRA = "as-user-extra"
IMPERSONATION = frozenset({*_AS, _EXTRA})
"""What a user of a kubeconfig may say of somebody else, whose rights he wants to have."""

_ADDRESS = re.compile(
    r"(?P<scheme>https?)://([^/@\s?#\\]*@)?(\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:/?#@\[\]\\]+))"
    r"(:(?P<port>[0-9]{1,5})?)?(?P<path>/[^\s?#]*)?",
    re.IGNORECASE,
)
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,63}")
_LONGEST_NAME = 253

_UNFIT = re.compile(r"[^a-z0-9!#$&'*+.^_`|~-]")

_ID_TOKEN_MARGIN_S = 10  # client-go's


@dataclass(frozen=True, kw_only=True)
class Address:
    """The parts of a server's address; who one is, which may stand before an `@`, is none of them.

    Attributes:
        scheme: `http` or `https`.
        host: name or number, in small letters.
        port: its port.
        path: what stands before every path, without a slash at its end.
    """

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def is_secure(self) -> bool:
        """Tell whether it is spoken to over TLS."""
        return self.scheme == "https"

    @property
    def is_here(self) -> bool:
        """Tell whether it is this machine itself, by its number or the name that never leads elsewhere."""
        number = ip_number(self.host)
        return self.host.removesuffix(".") == "localhost" or (number is not None and number.is_loopback)

    @property
    def url(self) -> str:
        """Write it as short as it can be."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == (443 if self.is_secure else 80) else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def address(text: str) -> Address:
    """Read the address of a server.

    Raises:
        ValueError: it is none, or that of no host.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ValueError("no address")
    scheme = found["scheme"].lower()
    port = int(found["port"] or (443 if scheme == "https" else 80))
    if not 0 < port < 1 << 16:
        raise ValueError("no port")
    host = str(ipaddress.IPv6Address(found["v6"])) if found["v6"] else host_name(found["name"])
    return Address(scheme=scheme, host=host, port=port, path=(found["path"] or "").rstrip("/"))


def host_name(text: str) -> str:
    """Give a name as it is asked for in DNS: in small letters, those of other alphabets encoded; or a number.

    Raises:
        ValueError: no host can have it.
    """
    if ip_number(text):
        return text
    name = text if text.isascii() else text.encode("idna").decode()
    if len(name) > _LONGEST_NAME + 1 or not all(map(_LABEL.fullmatch, name.removesuffix(".").split("."))):
        raise ValueError("no host")
    return name.lower()


def ip_number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Read an IP address, None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


@dataclass(frozen=True, kw_only=True)
class Login:
    """Where an API server is, by whom it is trusted and how it is reached, and as whom we act there.

    Attributes:
        label: how people call it: "context `minikube`".
        server: address, `https://…`.
        ca_pem: certificates to verify the server with, None for those of the system.
        verify: off only where the kubeconfig says insecure-skip-tls-verify.
        server_name: the name to verify, where it is not that of the address.
        proxy: URL of the proxy in between, None without.
        packed: whether answers may come packed (gzip).
        impersonation: headers that say as whom the server shall take us.
    """

    label: str
    server: str
    ca_pem: str | None = None
    verify: bool = True
    server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)
    packed: bool = True
    impersonation: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What shows an API server who we are; with nothing in it we are nobody.

    Attributes:
        authorization: value of the header of that name, None without.
        cert_pem: client certificate, None without.
        key_pem: its key.
        expires_s: when it stops to count, in seconds since 1970; None if nobody knows.
    """

    authorization: str | None = field(default=None, repr=False)
    cert_pem: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
    expires_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class TokenFile:
    """A token in a file that others write anew before it expires.

    Attributes:
        path: the file.
        proof: what is shown beside the token, and alone while the file cannot be read.
    """

    path: str
    proof: Proof = field(default_factory=Proof)


@dataclass(frozen=True, kw_only=True)
class IdToken:
    """A token of an identity provider (OpenID Connect), which gives another one for a refresh-token.

    Attributes:
        proof: what is shown; without authorization if there is no token yet.
        settings: what the kubeconfig says of the provider, by its keys.
        file: the kubeconfig file in which that stands.
        user: name of the user to whom it belongs there.
    """

    proof: Proof
    settings: Mapping[str, str] = field(repr=False)
    file: str
    user: str

    def with_token(self, proof: Proof) -> Proof:
        """Give the proof by another token; the certificate beside it stays."""
        return replace(proof, cert_pem=self.proof.cert_pem, key_pem=self.proof.key_pem)


Way = Proof | TokenFile | IdToken | Plugin
"""How one comes by a proof: it is there, it is read, a provider renews it, or a plug-in is asked for it."""


def bearer(token: str) -> str:
    """Give the header of a token."""
    masking.note(token)
    return f"Bearer {token}"


def basic(user: str, password: str) -> str:
    """Give the header of a name and a password."""
    masking.note(password, f"{user}:{password}".encode())
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def id_token(token: str) -> Proof:
    """Give the proof of an OpenID Connect token, which says itself when it expires.

    Raises:
        ValueError: it is no such token.
    """
    _, payload, _ = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    expires_s = claims["exp"] if isinstance(claims, Mapping) and "exp" in claims else 0
    if not isinstance(expires_s, int | float):
        raise ValueError("no time")
    return Proof(authorization=bearer(token), expires_s=expires_s - _ID_TOKEN_MARGIN_S)


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
