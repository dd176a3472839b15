"""Templates made of manifests: literal images, replicas and names become parameters, all other text stays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from mlstack.app.params import IMAGE_MARK
from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError
from mlstack.importers.manifests import SourceFile
from mlstack.render.render import check_object, unpacked
from mlstack.yaml import read
from mlstack.yaml.read import Mark, Path

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_NAMED = ("labels", "matchLabels", "selector")  # maps whose values name what objects belong to
_REFERENCES = ("serviceName", "serviceAccountName", "claimName", "secretName", "configMapName", "ingressName")
_JINJA = re.compile(r"\{\{|\{%|\{#")


@dataclass(kw_only=True)
class Offer:
    """The templates of a prototype, and the parameters that they take."""

    name: str  # what the objects are called after
    namespace: str = ""  # the one that they name, if they name one
    templates: dict[str, str] = field(default_factory=dict)  # by file name
    params: dict[str, dict[str, Any]] = field(default_factory=dict)  # schemas by name
    objects: list[Any] = field(default_factory=list)  # as the manifests have them


def offered(sources: Sequence[SourceFile], *, name: str) -> Offer:
    """Make a template of each file; a single one is called `name`.

    Raises:
        ConfigError: a file is no YAML, or holds something else than Kubernetes objects.
    """
    objects: list[Any] = []
    for source in sources:
        for document in read.read_documents(source.text, source=source.name):
            for _, data in unpacked(document.value):
                check_object(data, lambda _path, source=source: source.name)  # type: ignore[misc]
                objects.append(data)
    if not objects:
        raise ConfigError("the files hold no Kubernetes object", where=sources[0].name)
    names = [str(data["metadata"]["name"]) for data in objects]
    offer = Offer(name=_common(names), objects=objects)
    spaces = {str(data["metadata"]["namespace"]) for data in objects if data["metadata"].get("namespace")}
    offer.namespace = spaces.pop() if len(spaces) == 1 else ""
    for source in sources:
        edits = [*_edits(source, offer, set(names))]
        file = "-".join(source.path.with_suffix("").parts) if len(sources) > 1 else name
        offer.templates[f"{file.lstrip('_')}.yaml.j2"] = rewritten(source.text, edits)
    return offer


def _common(names: Sequence[str]) -> str:
    """Give the name that most of the others begin with; the first of them where several do."""
    counts = {name: sum(_is_of(other, name) for other in names) for name in names}
    return max(counts, key=lambda name: counts[name])


def _is_of(name: str, base: str) -> bool:
    return name == base or name.startswith(f"{base}-")


_Edit = tuple[int, int, str]  # from, to, what stands there then


def _edits(source: SourceFile, offer: Offer, names: set[str]) -> Iterator[_Edit]:
    """Give the places of a text that become expressions."""
    for data, path, _, scalar in literals(source.text, source=source.name):
        if scalar.tagged or scalar.style in ("|", ">"):
            continue
        if expression := _expression(path, scalar, data, offer, names):
            yield scalar.start, scalar.end, f"{{{{ {expression} }}}}"


def literals(text: str, *, source: str) -> Iterator[tuple[Mapping[str, Any], Path, int, Mark]]:
    """Give each literal of the objects in a text: its object, the path in it, the object's number, its place.

    Objects are counted over all documents, and Lists are taken apart.
    """
    marks = iter(read.read_marks(text, source=source))
    documents = (document.value for document in read.read_documents(text, source=source))
    objects = (document for document in documents if isinstance(document, Mapping))
    first = 0
    for mark in marks:
        scalars = [*_scalars(marks, mark, ())]
        if mark.kind != "mapping":
            continue
        numbered = {place: (first + at, data) for at, (place, data) in enumerate(unpacked(next(objects)))}
        first += len(numbered)
        for path, scalar in scalars:
            for length in range(len(path)):
                if path[:length] in numbered:
                    number, data = numbered[path[:length]]
                    yield data, path[length:], number, scalar
                    break


def _scalars(marks: Iterator[Mark], mark: Mark, path: Path) -> Iterator[tuple[Path, Mark]]:
    """Give the scalars of a value with their paths; `marks` stand behind its first."""
    if mark.kind == "scalar":
        yield path, mark
    elif mark.kind == "mapping":
        while (key := next(marks)).kind != "end":
            if key.kind != "scalar":  # a map as a key, which no object has
                list(_scalars(marks, key, path))
            yield from _scalars(marks, next(marks), (*path, key.value))
    elif mark.kind == "sequence":
        index = 0
        while (item := next(marks)).kind != "end":
            yield from _scalars(marks, item, (*path, index))
            index += 1


def _expression(path: Path, scalar: Mark, data: Mapping[str, Any], offer: Offer, names: set[str]) -> str:
    """Give what stands in a literal's place; empty where it stays."""
    last, parent = path[-1] if path else "", path[-2] if len(path) > 1 else ""
    if last == "image" and len(path) > 2 and path[-3] in _CONTAINERS:
        container = _at(data, path[:-1]).get("name")
        return f"params.{_image(scalar.value, str(container), _title(data), offer)}"
    if path == ("spec", "replicas") and scalar.value.isdigit():
        return f"params.{_replicas(int(scalar.value), _title(data), offer)}"
    has_namespace = path == ("metadata", "namespace") or (path[:1] == ("subjects",) and last == "namespace")
    if has_namespace and scalar.value == offer.namespace:
        return "namespace"
    if path[:1] in (("data",), ("stringData",), ("binaryData",)):
        return ""
    is_name = last == "name" and (not isinstance(parent, int) or path[-3] == "subjects")
    if is_name or last in _REFERENCES or parent in _NAMED or path[-3:-1] == ("metadata", "labels"):
        if scalar.value == offer.name:
            return "name"
        if scalar.value in names and _is_of(scalar.value, offer.name):
            return f'name ~ "{scalar.value[len(offer.name) :]}"'
    return ""


def _at(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data


def _title(data: Mapping[str, Any]) -> str:
    return f"{data['kind']} {(data.get('metadata') or {}).get('name', '')}".strip()


def _image(image: str, container: str, title: str, offer: Offer) -> str:
    """Give the parameter of an image; containers of the same image share one."""
    for name, known in offer.params.items():
        if known.get("default") == image:
            return name
    schema: dict[str, Any] = {"type": "string", "minLength": 1, IMAGE_MARK: True, "default": image}
    schema["description"] = f"Image of the container `{container}` of the {title}."
    name = "image" if "image" not in offer.params else f"{_camel(container)}Image"
    return _added(offer, name, schema)


def _replicas(count: int, title: str, offer: Offer) -> str:
    schema = {"type": "integer", "minimum": 0, "default": count, "unit": "pods"}
    schema["description"] = f"Pods of the {title}."
    name = "replicas" if "replicas" not in offer.params else f"{_camel(title.partition(' ')[2])}Replicas"
    return _added(offer, name, schema)


def _camel(text: str) -> str:
    first, *rest = [part for part in re.split(r"[^A-Za-z0-9]+", text) if part] or ["other"]
    word = first + "".join(part.capitalize() for part in rest)
    return word if word[0].isalpha() else f"x{word}"


def _added(offer: Offer, name: str, schema: dict[str, Any]) -> str:
    number = 2
    free = name
    while free in offer.params or free in ("name", "namespace"):
        free, number = f"{name}{number}", number + 1
    offer.params[free] = schema
    return free


def rewritten(text: str, edits: Iterable[_Edit]) -> str:
    """Put expressions in the place of literals; what Jinja would read in the rest is written for it."""
    parts, at = [], 0
    for start, end, expression in sorted(edits):
        parts += [_escaped(text[at:start]), expression]
        at = end
    return "".join([*parts, _escaped(text[at:])])


def _escaped(text: str) -> str:
    return _JINJA.sub(lambda match: f'{{{{ "{match[0]}" | raw }}}}', text)
