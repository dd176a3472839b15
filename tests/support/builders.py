"""Build files, parameters and prototypes for tests from short descriptions."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

from mlstack.app.document import Origin
from mlstack.app.params import Declared, Layer, Resolved
from mlstack.app.prototype import Param
from mlstack.disk_cache import ByteStore

Tree = Mapping[str, str | bytes]

MINIMAL_APP = """\
    apiVersion: mlstack.dev/v1
    kind: App
    name: demo
    """


def write_tree(root: Path, tree: Tree) -> Path:
    """Write files below `root` from path → content; texts are dedented, folders made."""
    root.mkdir(parents=True, exist_ok=True)
    for path, content in tree.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else dedent(content).encode()
        file.write_bytes(data)
    return root


def read_tree(root: Path) -> dict[str, bytes]:
    """Read all files below `root`, as `write_tree` takes them; git's own folder is left out."""
    tree = {}
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name != ".git")
        place = folder[len(str(root)) + 1 :]
        for name in sorted(files):
            if name != ".git" and os.path.isfile(f"{folder}/{name}"):  # noqa: PTH113  # thousands of them
                tree[f"{place}/{name}" if place else name] = _read(f"{folder}/{name}")
    return tree


def restore_tree(root: Path, tree: Mapping[str, bytes]) -> None:
    """Make the files below `root` those of a tree again; what is right already stays, empty folders go."""
    unchanged = set()
    for folder, folders, files in os.walk(root, topdown=False):
        place = folder[len(str(root)) + 1 :]
        links = [name for name in folders if os.path.islink(f"{folder}/{name}")]  # noqa: PTH114
        for name in [*files, *links]:
            path = f"{place}/{name}" if place else name
            if path in tree and _read(f"{folder}/{name}") == tree[path]:
                unchanged.add(path)
            else:
                Path(folder, name).unlink()
        if place and not os.listdir(folder):  # noqa: PTH208
            Path(folder).rmdir()
    write_tree(root, {name: data for name, data in tree.items() if name not in unchanged})


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123  # thousands of them
        return file.read()


def param(name: str = "value", **fields: Any) -> Param:
    """Make a parameter; keywords of JSON Schema and of Param may be mixed."""
    both = {"default", "unit", "description", "examples"}
    own = {"has_default", "required", "aliases", "secret", "deprecated", "format", "value_aliases"}
    schema = {key: value for key, value in fields.items() if key not in own}
    settings = {key: value for key, value in fields.items() if key in own | both}
    if "default" in settings:
        settings.setdefault("has_default", True)
    return Param(name=name, schema=schema, **settings)


def params(**declared: Mapping[str, Any]) -> dict[str, Param]:
    """Make parameters by name: `params(num_gpus={"type": "integer", "default": 0})`."""
    return {name: param(name, **fields) for name, fields in declared.items()}


def layer(kind: str, *, file: str = "", **values: Any) -> Layer:
    """Make a layer whose values stand on lines 1, 2, 3 … of `file` (by default the kind's name)."""
    origins = {(name,): Origin(file or kind, line) for line, name in enumerate(values, 1)}
    return Layer(kind, values, origins)


def resolve(declared: Mapping[str, Param], layers: Sequence[Layer], *, prototype: str = "") -> Resolved:
    """Resolve parameters that a prototype of that name could declare."""
    return Declared(declared, prototype=prototype).resolve(layers)


def kubeconfig(*contexts: str, current: str = "", server: str = "https://127.0.0.1:6443") -> str:
    """Write a kubeconfig (as JSON, which is YAML) with one cluster and user a context."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": current or (contexts[0] if contexts else ""),
            "clusters": [{"name": name, "cluster": {"server": server}} for name in contexts],
            "users": [{"name": name, "user": {"token": "not-a-real-token"}} for name in contexts],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in contexts],
        }
    )


class MemoryCache(dict[str, bytes], ByteStore):
    """A cache in memory."""

    def put(self, key: str, data: bytes) -> None:
        """Keep an entry."""
        self[key] = data
