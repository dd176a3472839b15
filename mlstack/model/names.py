"""Names, references and versions: what is allowed, how they are read, which one was probably meant."""

import re
from collections.abc import Iterable

from mlstack.errors import UsageError
from mlstack.model.app import PackageRef

_COMPONENT = re.compile(r"[a-zA-Z0-9]([-_a-zA-Z0-9]*[a-zA-Z0-9])?")
_PACKAGE = re.compile(r"[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?")
_VERSION = re.compile(r"[0-9a-zA-Z]([-_.+a-zA-Z0-9]*[0-9a-zA-Z])?")
_NUMBERS = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")

MAX_NAME = 63


def check_component_name(name: str) -> str:
    """Give `name` back when it can name a component (63 characters, letters, digits, `-` and `_`).

    Raises:
        UsageError: it cannot.
    """
    return _check(name, _COMPONENT, "component name", "letters, digits, `-` and `_`")


def check_module_name(name: str) -> str:
    """Give the dotted `name` back when every part can name a folder.

    Raises:
        UsageError: a part cannot.
    """
    for part in name.split("."):
        _check(part, _COMPONENT, "module name", "letters, digits, `-` and `_`, parts joined by `.`")
    return name


def check_environment_name(name: str) -> str:
    """Give `name` back when it can name an environment; nested names hold `/` (`us-west/staging`).

    Raises:
        UsageError: it cannot.
    """
    for part in name.split("/"):
        _check(part, _PACKAGE, "environment name", "letters, digits, `-`, `_` and `.`, parts joined by `/`")
    return name


def check_app_name(name: str) -> str:
    """Give `name` back when it can name an app: it becomes a label value.

    Raises:
        UsageError: it cannot.
    """
    return _check(name, _PACKAGE, "app name", "letters, digits, `-`, `_` and `.`")


def check_registry_name(name: str) -> str:
    """Give `name` back when it can name a registry: it becomes a folder of `vendor/`.

    Raises:
        UsageError: it cannot.
    """
    return _check(name, _PACKAGE, "registry name", "letters, digits, `-`, `_` and `.`")


def check_package_name(name: str) -> str:
    """Give `name` back when it can name a package: it becomes a folder of `vendor/`.

    Raises:
        UsageError: it cannot.
    """
    return _check(name, _PACKAGE, "package name", "letters, digits, `-`, `_` and `.`")


def _check(name: str, pattern: re.Pattern[str], what: str, allowed: str) -> str:
    if pattern.fullmatch(name) and len(name) <= MAX_NAME:
        return name
    raise UsageError(
        f"`{name}` cannot be a {what}",
        hint=f"use up to {MAX_NAME} {allowed}; start and end with a letter or digit",
    )


def parse_package_ref(text: str) -> PackageRef:
    """Read `registry/package` or `registry/package@version`.

    Raises:
        UsageError: the text has another shape.
    """
    path, at, version = text.partition("@")
    registry, slash, name = path.partition("/")
    fits = slash and _PACKAGE.fullmatch(registry) and _PACKAGE.fullmatch(name)
    if not fits or (at and not _VERSION.fullmatch(version)):
        raise UsageError(
            f"`{text}` is not a package", hint="write `registry/package` or `registry/package@version`"
        )
    return PackageRef(registry=registry, name=name, version=version)


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
    """Give the known name that `name` was probably meant to be, or nothing when none is close.

    Upper and lower case, `-`, `_` and `.` do not count as differences; otherwise a third of the
    letters may differ. Ties go to the first in alphabetical order.
    """
    wanted = _plain(name)
    if not wanted:
        return None
    limit = max(1, len(wanted) // 3)
    scored = [
        (distance, candidate)
        for candidate in known
        if (distance := _distance(wanted, _plain(candidate), limit)) <= limit
    ]
    return min(scored)[1] if scored else None


def _plain(name: str) -> str:
    return re.sub(r"[-_.]", "", name).lower()


def _distance(one: str, other: str, limit: int) -> int:
    """Count the edits between two words (swapped neighbours count one); above `limit` any larger number."""
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        below = [i]
        for j, b in enumerate(other, 1):
            cost = min(row[j] + 1, below[j - 1] + 1, row[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            below.append(cost)
        before, row = row, below
    return row[-1]
