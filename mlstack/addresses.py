"""Addresses of servers, how each is reached and trusted, and the proxies that the environment names."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import field
from urllib import parse

from mlstack.dataclass import dataclass

_ADDRESS = re.compile(
    r"(?P<scheme>https?)://([^/@\s?#\\]*@)?(\[(?P<v6>[0-9A-Fa-f:.]+(%25[^]\s/?#@\\]+)?)\]|(?P<name>[^\s:/?#@\[\]\\]+))"
    r"(:(?P<port>[0-9]{1,5})?)?(?P<path>/[^\s?#]*)?(\?[^\s#]*)?",
    re.IGNORECASE,
)
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,63}")


@dataclass(frozen=True, kw_only=True)
class Address:
    """The parts of a server's address; who one is, which may stand before an `@`, is none of them.

    `host` is a name or number in small letters; `path` stands before every path, without a slash at its end.
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
        host = f"[{self.host.replace('%', '%25')}]" if ":" in self.host else self.host
        port = "" if self.port == (443 if self.is_secure else 80) else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def address(text: str) -> Address:
    """Read the address of a server; a query counts nothing, as with kubectl. A ValueError if it is none."""
    parts = _ADDRESS.fullmatch(text)
    if parts is None:
        raise ValueError("no address")
    scheme = parts["scheme"].lower()
    port = int(parts["port"] or (443 if scheme == "https" else 80))
    if not 0 < port < 1 << 16:
        raise ValueError("no port")
    host = str(ipaddress.IPv6Address(unquote(parts["v6"]))) if parts["v6"] else host_name(parts["name"])
    return Address(scheme=scheme, host=host, port=port, path=(parts["path"] or "").rstrip("/"))


def host_name(text: str) -> str:
    """Give a name as DNS is asked for it: in small letters, encoded; a ValueError if no host can have it."""
    if ip_number(text):
        return text
    name = text if text.isascii() else text.encode("idna").decode()
    if len(name) > 254 or not all(map(_LABEL.fullmatch, name.removesuffix(".").split("."))):
        raise ValueError("no host")
    return name.lower()


def ip_number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Read an IP address, None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where a server is, by whom it is trusted and how it is reached."""

    label: str  # how people call it: "context `minikube`"
    server: str  # address, `https://…`
    ca_pem: str | None = None  # certificates to verify the server with, None for those of the system
    verify: bool = True  # off only where the kubeconfig says insecure-skip-tls-verify
    server_name: str | None = None  # the name to verify, where it is not that of the address
    proxy: str | None = field(default=None, repr=False)  # URL of the proxy in between
    packed: bool = True  # whether answers may come packed (gzip)


# --- proxies of the environment ---
# The rules of Go's net/http: one variable a scheme, none for the machine itself, and exceptions in NO_PROXY.

_WITH_PORT = re.compile(r"(\[(?P<v6>[^\]]*)\]|(?P<name>[^:\[\]]*)):(?P<port>[^:]*)")


def proxy_of(server: str, environ: Mapping[str, str]) -> str | None:
    """Give the URL of the proxy by which the address of a server is reached, None where directly."""
    try:
        there = address(server)
    except ValueError:
        return None
    names = (f"{there.scheme}_proxy", "no_proxy")
    proxy, no_proxy = (environ.get(name.upper()) or environ.get(name) or "" for name in names)
    exceptions = no_proxy.split(",")
    if not proxy or there.is_here or any(_covers(entry.strip().lower(), there) for entry in exceptions):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _covers(entry: str, there: Address) -> bool:
    """Tell whether an exception is about a server, as golang.org/x/net/http/httpproxy reads it."""
    if entry in ("", "*"):
        return entry == "*"
    host, number = there.host, ip_number(there.host)
    if number is not None and "/" in entry:
        try:
            return number in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    parts = None if ip_number(entry) else _WITH_PORT.fullmatch(entry)
    name, port = (parts["v6"] or parts["name"], parts["port"]) if parts else (entry, "")
    if not name or port not in ("", str(there.port)):
        return False
    if number is not None:
        return ip_number(name) == number
    name = name[1:] if name.startswith("*.") else name
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def quote(text: str) -> str:
    """Quote one part of a path or query: all but letters, digits and `-._~:` as percent codes."""
    return parse.quote(text, safe=":")


def unquote(text: str) -> str:
    """Read what is written with percent codes."""
    return parse.unquote(text, errors="replace")


def joined(url: str, location: str) -> str:
    """Give the address that a `Location` means, seen from another address."""
    return parse.urljoin(url, location)


def shown(url: str) -> str:
    """Write an address for a message: without a password, and without what a query may hold."""
    return re.sub(r"(?<=//)[^/@]*@", "", url.partition("?")[0])
