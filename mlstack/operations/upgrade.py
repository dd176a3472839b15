"""Bringing the files of an app up to date with this mlstack, version after version; comments stay.

A new format of our files is one `Migration` at the end of `MIGRATIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlstack.app import atomic, layout
from mlstack.app.app import API_VERSION
from mlstack.app.document import decode, is_newer
from mlstack.app.edit import app_lock
from mlstack.app.files import read_file
from mlstack.dataclass import dataclass
from mlstack.errors import SchemaError
from mlstack.yaml import read, rewrite


@dataclass(frozen=True, kw_only=True)
class Migration:
    """The step from one version of our files to the next: what changes in the files of a kind, in place."""

    before: str  # an apiVersion
    after: str
    changes: Mapping[str, Callable[[Any], None]]  # by kind; the others change their apiVersion alone


MIGRATIONS: tuple[Migration, ...] = ()


@dataclass(frozen=True, kw_only=True)
class UpgradedFile:
    """A file that had an older format."""

    file: str  # below the app directory
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Upgraded:
    """The files that were brought up to date, or would be."""

    files: tuple[UpgradedFile, ...]  # those that had an older format
    dry_run: bool = False  # whether nothing was written


def upgrade(root: Path, *, dry_run: bool = False, migrations: Sequence[Migration] = MIGRATIONS) -> Upgraded:
    """Rewrite the files of an app that have an older format, all or none; comments stay.

    Raises:
        SchemaError: a file is of a newer mlstack, of ksonnet, or of a version that no release wrote.
        ConfigError: a file cannot be read or written.
    """
    texts = _migrated(root, migrations)
    if texts and not dry_run:
        with app_lock(root):
            texts = _migrated(root, migrations)
            atomic.write_files({root / entry.file: text for entry, text in texts.items()})
    return Upgraded(files=tuple(texts), dry_run=dry_run)


def _migrated(root: Path, migrations: Sequence[Migration]) -> dict[UpgradedFile, str]:
    """Give the files of an app that have an older format, with their text up to date; nothing is written."""
    last = migrations[-1].after if migrations else API_VERSION
    steps = {migration.before: migration for migration in migrations}
    texts: dict[UpgradedFile, str] = {}
    for file in _own_files(root):
        text = decode(read_file(root / file), file=file)
        version = _version(text, file)
        if version in ("", last):
            continue
        if version not in steps:
            raise _refusal(version, last, file)
        [document] = rewrite.load(text, source=file)
        before = version
        while version in steps:
            step = steps[version]
            step.changes.get(str(document.get("kind")), lambda document: None)(document)
            document["apiVersion"] = version = step.after
        texts[UpgradedFile(file=file, before=before, after=version)] = rewrite.dump(document)
    return texts


def _own_files(root: Path) -> Iterator[str]:
    yield layout.APP_FILE
    if (root / layout.LOCK_FILE).is_file():
        yield layout.LOCK_FILE
    for folder in (layout.COMPONENTS, layout.ENVIRONMENTS):
        for place, _, files in layout.walk(root / folder):
            inside = Path(place).relative_to(root)
            yield from ((inside / file).as_posix() for file in files if file.endswith((".yaml", ".yml")))


def _version(text: str, file: str) -> str:
    """Give the version of a file of ours; empty for a manifest."""
    if "mlstack.dev/" not in text and file != layout.APP_FILE:
        return ""
    documents = read.read_documents(text, source=file)
    value = documents[0].value if len(documents) == 1 else None
    version = str(value.get("apiVersion", "")) if isinstance(value, Mapping) else ""
    if file == layout.APP_FILE and isinstance(value, Mapping) and value.get("kind") == "ksonnet.io/app":
        hint = "bring it over: mlstack import ksonnet-app DIR --out NEW"
        raise SchemaError("this is an app of ksonnet", where=file, hint=hint)
    return version if version.startswith("mlstack.dev/") else ""


def _refusal(version: str, last: str, file: str) -> SchemaError:
    if is_newer(version):
        message = f"`apiVersion` is `{version}`, which a newer mlstack wrote; this one writes `{last}`"
        return SchemaError(message, where=file, hint="upgrade mlstack")
    message = f"`apiVersion` is `{version}`, which no release of mlstack wrote"
    return SchemaError(message, where=file, hint=f"write apiVersion: {last}, and run mlstack validate ENV")
