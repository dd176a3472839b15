"""The syntax of names and keys in Kubernetes: each function says what is wrong with a text, None if nothing.

The rules are those of the API conventions and RFC 1035, 1123 and 6335.
"""

from __future__ import annotations

import re

from mlstack.model.validation.base import shown

MAX_LABEL = 63
MAX_SUBDOMAIN = 253
_PORT_NAME = 15
_KUBERNETES_RELAXED_ENV = 32
"""From 1.32 on the name of an environment variable may be any printable ASCII but `=`."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_ENV = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_RELAXED_ENV = re.compile(r"[ -<>-~]+")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")


def _matches(pattern: re.Pattern[str], text: str, limit: int, expected: str) -> str | None:
    if len(text) > limit:
        return f"must have at most {limit} characters, got {len(text)}"
    if not pattern.fullmatch(text):
        return f"must be {expected}, got {shown(text)}"
    return None


def label(text: str) -> str | None:
    """Check a DNS label (RFC 1123), as names of containers and namespaces are."""
    return _matches(
        _LABEL, text, MAX_LABEL, "lower-case letters, digits and `-`, with a letter or digit at both ends"
    )


def label_1035(text: str) -> str | None:
    """Check a DNS label that starts with a letter (RFC 1035), as names of Services are."""
    expected = "lower-case letters, digits and `-`, starting with a letter and not ending in `-`"
    return _matches(_LABEL_1035, text, MAX_LABEL, expected)


def subdomain(text: str) -> str | None:
    """Check a DNS subdomain, as names of most objects are."""
    expected = "lower-case letters, digits, `-` and `.`, with a letter or digit at both ends of every part"
    return _matches(_SUBDOMAIN, text, MAX_SUBDOMAIN, expected)


def path_segment(text: str) -> str | None:
    """Check a name that only has to fit into an address, as names of roles are."""
    if text in (".", "..") or "/" in text or "%" in text:
        return f"must not be `.` or `..` or contain `/` or `%`, got {shown(text)}"
    return None


def label_value(text: str) -> str | None:
    """Check the value of a label."""
    if not text:
        return None
    expected = "letters, digits, `-`, `_` and `.`, with a letter or digit at both ends"
    return _matches(_WORD, text, MAX_LABEL, expected)


def qualified_name(text: str) -> str | None:
    """Check the key of a label or annotation, or the name of a resource: `[prefix/]name`."""
    prefix, slash, name = text.rpartition("/")
    if slash and not prefix:
        return f"must have something before the `/`, got {shown(text)}"
    if slash and (wrong := subdomain(prefix)):
        return f"prefix {wrong}"
    expected = "letters, digits, `-`, `_` and `.`, with a letter or digit at both ends (and a prefix and `/`)"
    return _matches(_WORD, name, MAX_LABEL, expected)


def env_name(text: str, *, minor: int) -> str | None:
    """Check the name of an environment variable for Kubernetes 1.`minor`."""
    if minor >= _KUBERNETES_RELAXED_ENV:
        return _matches(_RELAXED_ENV, text, len(text), "printable ASCII characters other than `=`")
    if text in (".", "..") or text.startswith(".."):
        return f"must not be `.` or start with `..`, got {shown(text)}"
    return _matches(_ENV, text, len(text), "letters, digits, `_`, `-` and `.`, not starting with a digit")


def port_name(text: str) -> str | None:
    """Check the name of a port (RFC 6335)."""
    if len(text) > _PORT_NAME:
        return f"must have at most {_PORT_NAME} characters, got {len(text)}"
    if not _LABEL.fullmatch(text) or "--" in text or not re.search("[a-z]", text):
        return (
            f"must be lower-case letters, digits and single `-`, with at least one letter, got {shown(text)}"
        )
    return None


def config_key(text: str) -> str | None:
    """Check a key of a ConfigMap or Secret: it may become a file name."""
    if text == "." or text.startswith(".."):
        return f"must not be `.` or start with `..`, got {shown(text)}"
    return _matches(_CONFIG_KEY, text, MAX_SUBDOMAIN, "letters, digits, `-`, `_` and `.`")


def relative_path(text: str) -> str | None:
    """Check a path that must stay inside its volume."""
    if text.startswith("/"):
        return f"must be a relative path, got {shown(text)}"
    return no_parent(text)


def no_parent(text: str) -> str | None:
    """Check that a path does not lead upwards."""
    return f"must not contain `..`, got {shown(text)}" if ".." in text.split("/") else None
