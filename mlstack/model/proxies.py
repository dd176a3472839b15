"""Whether a proxy named by the environment stands between us and a server: kubectl's rules.

Those of Go's net/http: one variable a scheme, none for the machine itself, and exceptions in NO_PROXY.
"""

import ipaddress
import re
from collections.abc import Mapping

_ADDRESS = re.compile(
    r"(?P<scheme>https?)://([^/@]*@)?(\[(?P<v6>[^\]]*)\]|(?P<name>[^/:?#]*))(:(?P<port>\d+))?(/.*)?",
    re.IGNORECASE,
)
_ENTRY = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*|[^:]*:[^:]*:.*?)(:(?P<port>\d+))?")
_PORTS = {"http": "80", "https": "443"}


def between(server: str, environ: Mapping[str, str]) -> str | None:
    """Give the URL of the proxy that a server is reached by, None where it is reached directly.

    Args:
        server: address of the server.
        environ: the environment.
    """
    found = _ADDRESS.fullmatch(server)
    if found is None:
        return None
    scheme = found["scheme"].lower()
    host, port = (found["v6"] or found["name"] or "").lower(), found["port"] or _PORTS[scheme]
    proxy = _variable(f"{scheme}_proxy", environ)
    if not proxy or _is_here(host) or _is_excepted(host, port, _variable("no_proxy", environ)):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(name: str, environ: Mapping[str, str]) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _is_here(host: str) -> bool:
    number = _number(host)
    return host == "localhost" or (number is not None and number.is_loopback)


def _is_excepted(host: str, port: str, exceptions: str) -> bool:
    return any(_covers(entry.strip().lower(), host, port) for entry in exceptions.split(","))


def _covers(entry: str, host: str, port: str) -> bool:
    if entry in ("", "*"):
        return entry == "*"
    number = _number(host)
    if number is not None and "/" in entry:
        return _is_in(number, entry)
    found = _ENTRY.fullmatch(entry)
    name, wanted = (found["host"], found["port"]) if found and _number(entry) is None else (entry, None)
    if wanted not in (None, port):
        return False
    if number is not None:
        return _number(name.strip("[]")) == number
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _is_in(number: ipaddress.IPv4Address | ipaddress.IPv6Address, network: str) -> bool:
    try:
        return number in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
