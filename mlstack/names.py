"""Names, references and versions: what is allowed, how they are read, which one was probably meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

from mlstack import __version__
from mlstack.errors import NotFoundError, SchemaError, UsageError

if TYPE_CHECKING:
    from semantic_version import NpmSpec, Version

# Texts, which `re` compiles at first use and keeps: a command meets few of them, and each takes 0.2 ms.
_COMPONENT = r"[a-zA-Z0-9]([-_a-zA-Z0-9]*[a-zA-Z0-9])?"
_NAMESPACE = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_OBJECT = r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?"
_PACKAGE = r"[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?"
_PARAMETER = r"[a-zA-Z_][-_a-zA-Z0-9]*"
_VERSION = r"[0-9a-zA-Z]([-_.+a-zA-Z0-9]*[0-9a-zA-Z])?"
_NUMBERS = r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"

MAX_NAME = 63
_OF_ENVIRONMENTS = ("environment.yaml", "params.yaml", "patches")
_PLAIN = "letters, digits, `-` and `_`"
_DOTTED = "letters, digits, `-`, `_` and `.`"


def _check(pattern: str, what: str, allowed: str, most: int = MAX_NAME) -> Callable[[str], str]:
    """Make a function that gives a name back, or raises a UsageError that says what is allowed."""

    def check(name: str) -> str:
        if re.fullmatch(pattern, name) and len(name) <= most:
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
    if "" in name.split("."):
        hint = "names of modules in others are joined by single dots, as `models.vision`"
        raise UsageError(f"`{name}` cannot be a module name: a part of it is empty", hint=hint)
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
            message = f"{what} `{other}` is there, and `{name}` differs from it in letter case alone"
            hint = "choose another name: on macOS and Windows their files would be one"
            raise UsageError(message, hint=hint)
    return name


def is_parameter_name(name: str) -> bool:
    """Tell whether a prototype may call a parameter so: letters, digits, `_` and `-`, as an option is."""
    return len(name) <= MAX_NAME and re.fullmatch(_PARAMETER, name) is not None


def names_a_package(registry: str, name: str, version: str) -> bool:
    """Tell whether the parts of `registry/package@version` may be such; an empty version is none."""
    names_fit = re.fullmatch(_PACKAGE, registry) and re.fullmatch(_PACKAGE, name)
    return bool(names_fit and (not version or re.fullmatch(_VERSION, version)))


def version_key(version: str) -> tuple[int, int, int, int, tuple[tuple[int, int, str], ...], str]:
    """Give the sort key of a version: semantic order, a pre-release below its release, others lowest."""
    match = re.fullmatch(_NUMBERS, version)
    if not match:
        return (-1, 0, 0, 1, (), version)
    major, minor, patch = (int(part or 0) for part in match.group(1, 2, 3))
    pre = match.group(4)
    words = filter(None, (pre or "").split("."))
    parts = tuple((0, int(word), "") if word.isdigit() else (1, 0, word) for word in words)
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


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Ask whether the nearest known name is meant, or give another text where nothing is near."""
    near = nearest(name, known)
    return f"did you mean `{near}`?" if near else otherwise


def not_found(
    message: str, name: str, known: Iterable[str], *, hint: str | None = None, where: str | None = None
) -> NotFoundError:
    """Make the error for a name that leads to nothing; its hint is the nearest known one, if any."""
    near = nearest(name, known)
    return NotFoundError(message, near=near, where=where, hint=None if near else hint)


def listed(names: Sequence[str], most: int = 3) -> str:
    """Write the first names for a sentence, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


# --- versions of packages, and ranges of them: `^1.2`, `~1.2`, `>=1.0 <2`, `1.x`, `^1 || ^2` ---

_RANGE = r"[\^~<>=*|,\s]|(^|\.)[xX](\.|$)"
_SPACES = r"(?<=[\^~<>=])\s+"


def is_range(text: str) -> bool:
    """Tell whether a text is written as a range; anything else is one version, branch, tag or commit."""
    return bool(re.search(_RANGE, text))


def check_range(text: str) -> str:
    """Give a range back; raises a ValueError if it cannot be read."""
    if is_range(text):
        _spec(text)
    return text


@lru_cache(maxsize=65536)  # a resolver asks the same over and over
def fits(version: str, wanted: str) -> bool:
    """Tell whether a version is in a range, or is the one that is named; any is when nothing is.

    A pre-release is only in a range that names one of the same number.
    """
    if not is_range(wanted):
        return wanted in ("", version)
    parsed = _version(version)
    return parsed is not None and bool(_spec(wanted).match(parsed))


def best_first(versions: Iterable[str], wanted: str = "") -> list[str]:
    """Give the versions that fit, the highest first; pre-releases last where none is asked for."""
    fitting = sorted((version for version in versions if fits(version, wanted)), key=version_key)
    if wanted:
        return fitting[::-1]
    return sorted(reversed(fitting), key=lambda version: version_key(version)[3], reverse=True)


def check_mlstack(wanted: str, *, what: str, where: str) -> None:
    """Refuse `what` if it says `where` that it needs another mlstack than this one (`requiresMlstack`).

    Raises:
        SchemaError: this mlstack does not fit, or the range cannot be read.
    """
    release = ".".join(re.findall(r"\d+", __version__)[:3])  # `0.3.0.dev1` is as good as 0.3.0
    try:
        if not wanted or fits(release, wanted):
            return
    except ValueError as error:
        raise SchemaError(f"`requiresMlstack` {error}", where=where) from error
    hint = "install one that fits (pip install 'mlstack VERSION'), or change `requiresMlstack`"
    raise SchemaError(f"{what} needs mlstack {wanted}, this is {__version__}", where=where, hint=hint)


@lru_cache(maxsize=4096)
def _spec(text: str) -> NpmSpec:
    from semantic_version import NpmSpec

    try:
        return NpmSpec(" ".join(re.sub(_SPACES, "", text.replace(",", " ")).split()))
    except ValueError:
        message = f"`{text}` is no range of versions: write it as ^1.2, ~1.2, 1.x or >=1.0 <2"
        raise ValueError(message) from None


@lru_cache(maxsize=65536)
def _version(text: str) -> Version | None:
    from semantic_version import Version

    try:
        return Version.coerce(text.removeprefix("v")) if re.fullmatch(_NUMBERS, text) else None
    except ValueError:
        return None


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


def percent_encoded(match: re.Match[str]) -> str:
    """Write what matches as addresses have it: `:` is `%3A`."""
    return "".join(f"%{byte:02X}" for byte in match[0].encode())
