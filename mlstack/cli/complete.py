"""What the shell offers when Tab is pressed: names found by listing folders, no file is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer


def environments(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the names of the app's environments."""
    return _matching(_environments(_root()), incomplete)


def components(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the full names of the app's components."""
    return _matching(_components(_root()), incomplete)


def component_lists(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give what the last name of a list with commas may become, the names before it kept."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in components(ctx, last)]


def prototypes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the names of the installed prototypes."""
    return _matching(_prototypes(_root()), incomplete)


def _matching(names: Iterator[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


def _root() -> Path | None:
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / "app.yaml").is_file()), None)


def _environments(root: Path | None) -> Iterator[str]:
    if root is not None:
        base = root / "environments"
        for found in base.rglob("environment.yaml"):
            yield found.parent.relative_to(base).as_posix()


def _components(root: Path | None) -> Iterator[str]:
    if root is not None:
        base = root / "components"
        for found in base.rglob("*"):
            if found.suffix in (".yaml", ".yml", ".json") and found.name != "params.yaml":
                yield ".".join(found.relative_to(base).with_suffix("").parts)


def _prototypes(root: Path | None) -> Iterator[str]:
    if root is not None:
        for found in (root / "vendor").glob("*/*/*/prototype.yaml"):
            yield found.parent.name
