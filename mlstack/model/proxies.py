"""Whether a proxy named by the environment stands between us and a server: kubectl's rules.

Those of Go's net/http: one variable a scheme, none for the machine itself, and exceptions in NO_PROXY.
"""

import ipaddress
import re
from collections.abc import Mapping

from mlstack.model.login import address, ip_number

_WITH_PORT = re.compile(r"(\[(?P<v6>[^\]]*)\]|(?P<name>[^:\[\]]*)):(?P<port>[^:]*)")


def between(server: str, environ: Mapping[str, str]) -> str | None:
    """Give the URL of the proxy that a server is reached by, None where it is reached directly.

    Args:
        server: address of the server.
        environ: the environment.
    """
    try:
        there = address(server)
    except ValueError:
        return None
    proxy = _variable(f"{there.scheme}_proxy", environ)
    exceptions = _variable("no_proxy", environ)
    if not proxy or there.is_here or _is_excepted(there.host, str(there.port), exceptions):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(name: str, environ: Mapping[str, str]) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _is_excepted(host: str, port: str, exceptions: str) -> bool:
    return any(_covers(entry.strip().lower(), host, port) for entry in exceptions.split(","))


def _covers(entry: str, host: str, port: str) -> bool:
    """Tell whether an exception is about a server, as golang.org/x/net/http/httpproxy reads it."""
    if entry in ("", "*"):
        return entry == "*"
    number = ip_number(host)
    if number is not None and _is_in(number, entry):
        return True
    found = None if ip_number(entry) else _WITH_PORT.fullmatch(entry)
    name, wanted = (found["v6"] or found["name"], found["port"]) if found else (entry, "")
    if not name or wanted not in ("", port):
        return False
    if number is not None:
        return ip_number(name) == number
    name = name[1:] if name.startswith("*.") else name
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _is_in(number: ipaddress.IPv4Address | ipaddress.IPv6Address, network: str) -> bool:
    if "/" not in network:
        return False
    try:
        return number in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
