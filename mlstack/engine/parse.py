"""From the text of a template or manifest to Kubernetes objects, each with the place it stands at."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mlstack.errors import ConfigError, YamlError
from mlstack.files import yamlread
from mlstack.model.objects import KubeObject, Source
from mlstack.model.places import Place

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
        _check_object(data, source)
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


def _check_object(data: Any, source: Source) -> None:
    """Raise for what cannot be addressed in a cluster.

    Raises:
        ConfigError: no mapping, or without apiVersion, kind or name.
    """
    if not isinstance(data, Mapping):
        raise ConfigError("a document is no Kubernetes object: expected a mapping", where=str(source))
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    missing = [key for key in ("apiVersion", "kind") if not (isinstance(data.get(key), str) and data[key])]
    missing += [] if isinstance(name, str) and name else ["metadata.name"]
    if missing:
        what = ", ".join(f"`{key}`" for key in missing)
        raise ConfigError(f"a document is no Kubernetes object: it has no {what}", where=str(source))
