"""What the shell offers when Tab is pressed: names found by listing folders, where they tell enough."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from pathlib import Path

import typer


def formats(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the names of the output formats."""
    return _matching(iter(("table", "yaml", "json", "name")), incomplete)


def environments(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the names of the app's environments."""
    return _matching(_environments(_root()), incomplete)


def components(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the full names of the app's components."""
    return _matching(_components(_root()), incomplete)


def component_lists(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give what the last name of a list with commas may become, the names before it kept."""
    before, comma, last = incomplete.rpartition(",")
    names = (name for name in _components(_root()) if name.startswith(last))
    return _matching((before + comma + name for name in names), incomplete)


def prototypes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the names of the installed prototypes."""
    return _matching(_prototypes(_root()), incomplete)


def packages(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the installed packages."""
    return _matching(_packages(_root()), incomplete)


def presets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the names that environments have a preset for."""
    from mlstack.files import bundled

    return _matching(iter(bundled.presets()), incomplete)


def component_and_parameter(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give components for the first word, and for the second the parameters of that component."""
    words = [word for word in ctx.params.get("words") or () if not word.startswith("-")]
    return _matching(_parameters(words[0]), incomplete) if words else components(ctx, incomplete)


def parameters(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the parameters of the component that was named before."""
    return _matching(_parameters(ctx.params.get("component") or ""), incomplete)


def mend_words(environ: MutableMapping[str, str]) -> None:
    """Join what bash takes apart: it asks for `--env=g` as three words, of which `=` is one."""
    words = environ.get("COMP_WORDS", "").split("\n")
    at = int(environ.get("COMP_CWORD") or 0)
    for index in range(len(words) - 2, 0, -1):
        if words[index] == "=" and words[index - 1].startswith("--"):
            words[index - 1 : index + 2] = ["".join(words[index - 1 : index + 2])]
            at -= min(max(at - index + 1, 0), 2)
    if len(words) > 1:
        environ.update(COMP_WORDS="\n".join(words), COMP_CWORD=str(at))


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


def _packages(root: Path | None) -> Iterator[str]:
    if root is not None:
        for found in (root / "vendor").glob("*/*/package.yaml"):
            yield f"{found.parents[1].name}/{found.parent.name.partition('@')[0]}"


def _parameters(component: str) -> Iterator[str]:
    from mlstack.errors import MlstackError
    from mlstack.files.appdir import AppDir
    from mlstack.model.app import Component

    try:
        app = AppDir.find(Path.cwd())
        found = app.component(component)
        if isinstance(found, Component):
            yield from app.prototype(found.prototype).params
    except MlstackError:  # whoever presses Tab is told nothing; the command itself says what is wrong
        return
