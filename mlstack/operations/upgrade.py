"""Bringing the files of an app up to date with this mlstack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlstack.app import atomic
from mlstack.app.edit import app_lock
from mlstack.app.migrate import MIGRATIONS, Migration, migrated


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
    if dry_run or not migrated(root, migrations):
        changed = migrated(root, migrations)
    else:
        with app_lock(root):
            changed = migrated(root, migrations)
            atomic.write_files({root / entry.file: entry.text for entry in changed})
    rows = tuple(UpgradedFile(file=entry.file, before=entry.before, after=entry.after) for entry in changed)
    return Upgraded(files=rows, dry_run=dry_run)
