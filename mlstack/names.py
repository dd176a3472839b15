"""Names, references and versions: what is allowed, how they are read, which one was probably meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from mlstack.errors import NotFoundError, UsageError

_COMPONENT = re.compile(r"[a-zA-Z0-9]([-_a-zA-Z0-9]*[a-zA-Z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_OBJECT = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_PACKAGE = re.compile(r"[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?")
_PARAMETER = re.compile(r"[a-zA-Z_][-_a-zA-Z0-9]*")
_VERSION = re.compile(r"[0-9a-zA-Z]([-_.+a-zA-Z0-9]*[0-9a-zA-Z])?")
_NUMBERS = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")

MAX_NAME = 63
_OF_ENVIRONMENTS = ("environment.yaml", "params.yaml", "patches")
_PLAIN = "letters, digits, `-` and `_`"
_DOTTED = "letters, digits, `-`, `_` and `.`"


def _check(pattern: re.Pattern[str], what: str, allowed: str, most: int = MAX_NAME) -> Callable[[str], str]:
    """Make a function that gives a name back, or raises a UsageError that says what is allowed."""

    def check(name: str) -> str:
        if pattern.fullmatch(name) and len(name) <= most:
            return name
        hint = f"use up to {most} {allowed}; start and end with a letter or digit"
        raise UsageError(f"`{name}` cannot be {what}", hint=hint)

    return check


check_component_name = _check(_COMPONENT, "a component name", _PLAIN)
check_app_name = _check(_PACKAGE, "an app name", _DOTTED)
check_namespace = _check(_NAMESPACE, "a namespace", "lower-case letters, digits and `-`")
check_object_name = _check(_OBJECT, "the name of an object", "lower-case letters, digits, `-` and `.`", 253)
check_registry_name = _check(_PACKAGE, "a registry name", _DOTTED)
check_package_name = _check(_PACKAGE, "a package name", _DOTTED)
_check_module_part = _check(_COMPONENT, "a module name", f"{_PLAIN}, parts joined by `.`")
_check_environment_part = _check(_PACKAGE, "an environment name", f"{_DOTTED}, parts joined by `/`")


def check_module_name(name: str) -> str:
    """Refuse a dotted name with a part that cannot name a folder."""
    return ".".join(map(_check_module_part, name.split(".")))


def check_environment_name(name: str) -> str:
    """Refuse what cannot name an environment; nested names hold `/` (`us-west/staging`)."""
    if "" in (parts := name.split("/")):
        hint = "names of nested environments are joined by single `/`, as `us-west/staging`"
        raise UsageError(f"`{name}` cannot be an environment name: a part of it is empty", hint=hint)
    for number, part in enumerate(map(_check_environment_part, parts)):
        if number and part.lower() in _OF_ENVIRONMENTS:
            message = f"cannot be an environment name: `{part}` in an environment's folder is its own"
            raise UsageError(f"`{name}` {message}", hint="choose another name")
    return name


def check_new_name(name: str, known: Iterable[str], what: str) -> str:
    """Refuse a name whose file is another's on systems that do not tell letter case apart."""
    for other in known:
        if other != name and other.casefold() == name.casefold():
            raise UsageError(
                f"{what} `{other}` is there, and `{name}` differs from it in letter case alone",
                hint="choose another name: on macOS and Windows their files would be one",
            )
    return name


def is_parameter_name(name: str) -> bool:
    """Tell whether a prototype may call a parameter so: letters, digits, `_` and `-`, as an option is."""
    return len(name) <= MAX_NAME and _PARAMETER.fullmatch(name) is not None


def names_a_package(registry: str, name: str, version: str) -> bool:
    """Tell whether the parts of `registry/package@version` may be such; an empty version is none."""
    names_fit = _PACKAGE.fullmatch(registry) and _PACKAGE.fullmatch(name)
    return bool(names_fit and (not version or _VERSION.fullmatch(version)))


def version_key(version: str) -> tuple[int, int, int, int, tuple[tuple[int, int, str], ...], str]:
    """Give the sort key of a version: semantic order, a pre-release below its release, others lowest."""
    match = _NUMBERS.fullmatch(version)
    if not match:
        return (-1, 0, 0, 0, (), version)
    major, minor, patch = (int(part or 0) for part in match.group(1, 2, 3))
    pre = match.group(4)
    parts = tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in (pre or "").split(".") if part
    )
    return (major, minor, patch, 0 if pre else 1, parts, version)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Find the known name that a mistyped one most likely stands for, or None when nothing is near.

    Letter case and the difference between `-` and `_` do not count, nor does the order of the known names,
    so that messages are the same everywhere.
    """
    from difflib import get_close_matches  # only wrong input pays for this import

    def folded(text: str) -> str:
        return text.lower().replace("-", "_")

    short = folded(name)
    by_form = {folded(candidate): candidate for candidate in sorted(known, reverse=True)}
    forms = sorted(by_form, key=by_form.__getitem__)
    matches = get_close_matches(short, forms, n=1, cutoff=0.6)
    parts = (form for form in forms if min(len(short), len(form)) > 2 and (short in form or form in short))
    form = matches[0] if matches else next(parts, None)
    return None if form is None else by_form[form]


# --- things registered under names: protocols, readiness rules, output formats ---

T = TypeVar("T")


class Table(Generic[T]):
    """Things registered under one or more names, where they are written."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._rows: dict[str, T] = {}

    def register(self, *names: str) -> Callable[[T], T]:
        """Give a decorator that enters a thing under `names` and returns it unchanged."""

        def enter(thing: T) -> T:
            for name in names:
                if name in self._rows:
                    raise ValueError(f"two entries claim the {self._what} `{name}`")
                self._rows[name] = thing
            return thing

        return enter

    def get(self, name: str) -> T | None:
        """Give the thing of that name, or nothing."""
        return self._rows.get(name)

    def find(self, name: str) -> T:
        """Give the thing of that name.

        Raises:
            NotFoundError: there is none; carries the nearest known name.
        """
        if name not in self._rows:
            known = ", ".join(f"`{known_name}`" for known_name in self.names())
            raise NotFoundError(f"no {self._what} `{name}`; known: {known}", near=nearest(name, self._rows))
        return self._rows[name]

    def names(self) -> tuple[str, ...]:
        """Give all names, sorted."""
        return tuple(sorted(self._rows))

    def __iter__(self) -> Iterator[tuple[str, T]]:
        return iter(sorted(self._rows.items(), key=lambda row: row[0]))

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __len__(self) -> int:
        return len(self._rows)
