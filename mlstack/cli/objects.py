"""Whole Kubernetes objects on stdout, and what a render has to say on stderr."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlstack.cli.streams import escaped, indented, json_escaped, say, write

if TYPE_CHECKING:
    from mlstack.objects.kube_object import DesiredState, KubeObject


def show(state: DesiredState, output_format: str) -> int:
    """Print the objects of a render; its notes go to stderr."""
    if state.notes:
        say(*notes_text(state).split("\n"))
    found = state.objects
    if state.has_secrets and sys.stdout.isatty():
        found = tuple(each.with_data(masked(each.data, state)) for each in found)
        say(
            f"note: secrets are hidden on a terminal; `mlstack render {state.environment} > FILE` writes them"
        )
    write(WRITERS[output_format](found), exact=True)
    return 0


def masked(data: Mapping[str, Any], state: DesiredState) -> dict[str, Any]:
    """Give an object as a person may read it."""
    from mlstack.objects import masking

    return dict(masking.scrubbed_value(masking.mask_values(masking.mask_object(data), state.secrets)))


def notes_text(state: DesiredState) -> str:
    """Write the notes of a render, each on lines of its own."""
    return "\n".join(indented(f"note: {note}") for note in state.notes)


def yaml_text(objects: Sequence[KubeObject]) -> str:
    """Write the objects as one YAML stream, in the order they are applied."""
    from mlstack.yaml import write

    return write.to_yaml_documents(found.data for found in objects)


def json_text(objects: Sequence[KubeObject]) -> str:
    """Write the objects as one Kubernetes List."""
    from mlstack.yaml import write

    return json_escaped(
        write.to_json({"apiVersion": "v1", "kind": "List", "items": [dict(found.data) for found in objects]})
    )


def name_text(objects: Sequence[KubeObject]) -> str:
    """Write the objects as people name them, one a line."""
    return "\n".join(escaped(str(found.identity), kept="") for found in objects)


WRITERS: dict[str, Callable[[Sequence[KubeObject]], str]] = {
    "yaml": yaml_text,
    "json": json_text,
    "name": name_text,
}
_LONGEST_FILE = 180  # bytes, of 255: a temporary name is longer
SUFFIX = {"yaml": "yaml", "json": "json"}


def files(objects: Sequence[KubeObject], output_format: str) -> dict[Path, tuple[KubeObject, bytes]]:
    """Give one file an object, named by component, kind, namespace and name."""
    from mlstack.yaml import write

    writer = write.to_yaml if output_format == "yaml" else write.to_json
    return {
        _file(found, SUFFIX[output_format]): (found, writer(dict(found.data)).encode()) for found in objects
    }


def _file(found: KubeObject, suffix: str) -> Path:
    """Name the file of an object.

    Names of some kinds (roles, bindings) hold any character but `/` and `%`. What two names must differ in on
    every system, and must not be lost, is written as in addresses: `a:b` is `a%3Ab`.
    """
    kind = f"{found.kind}.{found.group}" if found.group else found.kind
    parts = [kind.lower(), *([found.namespace] if found.namespace else []), found.name]
    name = "_".join(_escaped_part(part) for part in parts)
    if len(name) > _LONGEST_FILE:
        name = f"{name[: _LONGEST_FILE - 13]}-{sha256(name.encode()).hexdigest()[:12]}"
    return Path(found.component or "_", f"{name}.{suffix}")


def _escaped_part(part: str) -> str:
    return re.sub(r"[^a-z0-9.-]", lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), part)
