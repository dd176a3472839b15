"""From the text of a template or manifest to Kubernetes objects, each with the place it stands at."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mlstack.errors import ConfigError, YamlError
from mlstack.files import yamlread
from mlstack.files.wording import described, expectation
from mlstack.model.objects import KubeObject, Source
from mlstack.model.places import Place
from mlstack.model.values import join_path

Path = tuple[str | int, ...]
PlaceOf = Callable[[int], Place | None]
"""Gives the place that a line of the text stands at in the files."""


def at_template(error: YamlError, places: Sequence[Place | None], file: str) -> YamlError:
    """Move a fault in rendered text to the line of the template that wrote it."""
    rendered = (error.where or "").rpartition(":")[2]
    found = place_of_line(places)(int(rendered)) if rendered.isdigit() else None
    where = file if found is None else f"{found.file}:{found.line}"
    return YamlError(f"the template renders no sound YAML: {error.message}", where=where, hint=error.hint)


def place_of_line(places: Sequence[Place | None]) -> PlaceOf:
    """Give what looks a line up in the places of all lines of a text."""
    return lambda rendered: places[rendered - 1] if 0 < rendered <= len(places) else None


def objects_of(
    document: yamlread.Document, *, component: str, file: str, place_of: PlaceOf, locate: bool
) -> Iterator[KubeObject]:
    """Give the objects of a document; a List gives its items.

    Args:
        document: with positions if every part is to be located.
        component: full name of the component that brings them.
        file: the file, where the line of an object is not known.
        place_of: gives the place of a line.
        locate: note the place of every part of every object.

    Raises:
        ConfigError: the document is no Kubernetes object.
    """
    for path, data in _unpacked(document.value):
        first = place_of(document.position(path).line if document.positions else document.line)
        source = Source(
            component=component,
            file=first.file if first else file,
            line=first.line if first else None,
            places=_places(document, path, place_of) if locate else {},
        )
        check_object(data, source.at)
        yield KubeObject(data=data, component=component, source=source)


def _places(document: yamlread.Document, path: Path, place_of: PlaceOf) -> dict[Path, str]:
    inside = (
        (where[len(path) :], place_of(position.line))
        for where, position in document.positions.items()
        if where[: len(path)] == path
    )
    return {where: f"{place.file}:{place.line}" for where, place in inside if place is not None}


def _unpacked(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if _is_list(value):
        for place, item in enumerate(value["items"]):
            yield from _unpacked(item, (*path, "items", place))
    else:
        yield path, value


def _is_list(value: Any) -> bool:
    """Tell what `kubectl get` writes for several objects from a kind whose name happens to end so."""
    if not isinstance(value, Mapping) or not str(value.get("kind", "")).endswith("List"):
        return False
    return isinstance(value.get("items"), list) and "name" not in (value.get("metadata") or {})


def check_object(data: Any, at: Callable[[Path], str]) -> None:
    """Raise for what cannot be addressed in a cluster, or marked as ours.

    Args:
        data: an object as it was written.
        at: gives the place of a part of it.

    Raises:
        ConfigError: no map, without apiVersion, kind or name, or with odd metadata.
    """
    if not isinstance(data, Mapping):
        message = f"a document is no Kubernetes object: expected a map, got {described(data)}"
        raise ConfigError(message, where=at(()), hint=_HINT)
    metadata: Any = data.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    values = {path: metadata.get(path[-1]) if len(path) > 1 else data.get(path[0]) for path in _TYPES}
    missing = [f"`{join_path(path)}`" for path in _NEEDED if values[path] in (None, "")]
    if missing:
        message = f"a document is no Kubernetes object: it has no {', '.join(missing)}"
        hint = _GENERATED if "generateName" in metadata else _HINT
        raise ConfigError(message, where=at(()), hint=hint)
    for path, value in values.items():
        if value is not None and not isinstance(value, _TYPES[path][1]):
            sentence = expectation("type", {"type": _TYPES[path][0]}, value)
            raise ConfigError(f"`{join_path(path)}` {sentence}", where=at(path))


_NEEDED: tuple[Path, ...] = (("apiVersion",), ("kind",), ("metadata", "name"))
_TYPES: Mapping[Path, tuple[str, type]] = {
    **{path: ("string", str) for path in _NEEDED},
    ("metadata", "namespace"): ("string", str),
    ("metadata", "labels"): ("object", Mapping),
    ("metadata", "annotations"): ("object", Mapping),
}
_HINT = "give it apiVersion, kind and metadata.name, or move it out of components/"
_GENERATED = "every apply would make another object from `generateName`: give it a name"
