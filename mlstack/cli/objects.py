"""Whole Kubernetes objects on stdout, and what a render has to say on stderr."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlstack.cli.streams import say, write

if TYPE_CHECKING:
    from mlstack.model.objects import DesiredState, KubeObject


def show(state: DesiredState, output_format: str) -> int:
    """Print the objects of a render; its notes go to stderr."""
    if state.notes:
        say(notes_text(state))
    write(WRITERS[output_format](state.objects))
    return 0


def notes_text(state: DesiredState) -> str:
    """Write the notes of a render, one a line."""
    return "\n".join(f"note: {note}" for note in state.notes)


def yaml_text(objects: Sequence[KubeObject]) -> str:
    """Write the objects as one YAML stream, in the order they are applied."""
    from mlstack.model import emit

    return emit.to_yaml_documents(found.data for found in objects)


def json_text(objects: Sequence[KubeObject]) -> str:
    """Write the objects as one Kubernetes List."""
    from mlstack.model import emit

    return emit.to_json(
        {"apiVersion": "v1", "kind": "List", "items": [dict(found.data) for found in objects]}
    )


def name_text(objects: Sequence[KubeObject]) -> str:
    """Write the objects as people name them, one a line."""
    return "\n".join(str(found.identity) for found in objects)


WRITERS: dict[str, Callable[[Sequence[KubeObject]], str]] = {
    "yaml": yaml_text,
    "json": json_text,
    "name": name_text,
}
SUFFIX = {"yaml": "yaml", "json": "json"}


def files(objects: Sequence[KubeObject], output_format: str) -> dict[Path, bytes]:
    """Give one file an object, named by component, kind, namespace and name."""
    from mlstack.model import emit

    writer = emit.to_yaml if output_format == "yaml" else emit.to_json
    return {_file(found, SUFFIX[output_format]): writer(dict(found.data)).encode() for found in objects}


def _file(found: KubeObject, suffix: str) -> Path:
    kind = f"{found.kind}.{found.group}" if found.group else found.kind
    parts = [kind.lower(), *([found.namespace] if found.namespace else []), found.name]
    name = "_".join(part.replace("/", "-").replace(":", "-") for part in parts)
    return Path(found.component or "_", f"{name}.{suffix}")
