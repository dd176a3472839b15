"""Templates made of manifests: literal images, replicas and names become parameters, all other text stays."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from itertools import count as counting
from typing import Any

from mlstack.app.document import API_VERSION
from mlstack.app.params import IMAGE_MARK, at
from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError
from mlstack.importers.manifests import SourceFile
from mlstack.importers.plan import ImportPlan, PlannedComponent, PlannedPackage, component_name
from mlstack.names import is_parameter_name
from mlstack.objects import masking
from mlstack.objects.kube_object import Data, items_of
from mlstack.render.component import check_object, unpacked
from mlstack.render.patches import object_patch, patched, read_patch
from mlstack.render.template import LARGEST_TEMPLATE
from mlstack.yaml import read, write
from mlstack.yaml.read import KeyPath, Mark
from mlstack.yaml.write import same

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
    # The name that most of the others begin with.
    common = max(names, key=lambda name: sum(_is_of(other, name) for other in names))
    offer = Offer(name=common, objects=objects)
    spaces = {str(data["metadata"]["namespace"]) for data in objects if data["metadata"].get("namespace")}
    offer.namespace = spaces.pop() if len(spaces) == 1 else ""
    for source in sources:
        edits = []
        for data, path, _, scalar in literals(source.text, source=source.name):
            is_plain = not scalar.tagged and scalar.style not in ("|", ">")
            if is_plain and (expression := _expression(path, scalar, data, offer, set(names))):
                edits.append((scalar.start, scalar.end, f"{{{{ {expression} }}}}"))
        file = "-".join(source.path.with_suffix("").parts) if len(sources) > 1 else name
        offer.templates[f"{file.lstrip('_')}.yaml.j2"] = rewritten(source.text, edits)
    return offer


def _is_of(name: str, base: str) -> bool:
    return name == base or name.startswith(f"{base}-")


_Edit = tuple[int, int, str]  # from, to, what stands there then


def literals(text: str, *, source: str) -> Iterator[tuple[Mapping[str, Any], KeyPath, int, Mark]]:
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
        numbered = {place: (first + item, data) for item, (place, data) in enumerate(unpacked(next(objects)))}
        first += len(numbered)
        for path, scalar in scalars:
            for length in range(len(path)):
                if path[:length] in numbered:
                    number, data = numbered[path[:length]]
                    yield data, path[length:], number, scalar
                    break


def _scalars(marks: Iterator[Mark], mark: Mark, path: KeyPath) -> Iterator[tuple[KeyPath, Mark]]:
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


def _expression(path: KeyPath, scalar: Mark, data: Mapping[str, Any], offer: Offer, names: set[str]) -> str:
    """Give what stands in a literal's place; empty where it stays."""
    last, parent = path[-1] if path else "", path[-2] if len(path) > 1 else ""
    if last == "image" and len(path) > 2 and path[-3] in _CONTAINERS:
        container = at(data, path[:-1]).get("name")
        return f"params.{_image(scalar.value, str(container), _title(data), offer)}"
    if path == ("spec", "replicas") and scalar.value.isdigit():
        schema = {"type": "integer", "minimum": 0, "default": int(scalar.value), "unit": "pods"}
        schema["description"] = f"Pods of the {_title(data)}."
        name = f"{_camel(_title(data).partition(' ')[2])}Replicas"
        return f"params.{_added(offer, ('replicas', name), schema)}"
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


def _title(data: Mapping[str, Any]) -> str:
    return f"{data['kind']} {(data.get('metadata') or {}).get('name', '')}".strip()


def _image(image: str, container: str, title: str, offer: Offer) -> str:
    for name, known in offer.params.items():
        if known.get("default") == image:
            return name
    schema = {"type": "string", "minLength": 1, IMAGE_MARK: True, "default": image}
    schema["description"] = f"Image of the container `{container}` of the {title}."
    return _added(offer, ("image", f"{_camel(container)}Image"), schema)


def _camel(text: str) -> str:
    first, *rest = [part for part in re.split(r"[^A-Za-z0-9]+", text) if part] or ["other"]
    word = first + "".join(part.capitalize() for part in rest)
    return word if word[0].isalpha() else f"x{word}"


def _added(offer: Offer, names: tuple[str, str], schema: dict[str, Any]) -> str:
    """Add a parameter under the first name that is free, the last with a number if need be."""
    numbered = (f"{names[-1]}{number}" for number in counting(2))
    free = next(name for name in chain(names, numbered) if name not in {*offer.params, "name", "namespace"})
    offer.params[free] = schema
    return free


def rewritten(text: str, edits: Iterable[_Edit]) -> str:
    """Put expressions in the place of literals; what Jinja would read in the rest is written for it."""
    parts, done = [], 0
    for start, end, expression in sorted(edits):
        parts += [_escaped(text[done:start]), expression]
        done = end
    return "".join([*parts, _escaped(text[done:])])


def _escaped(text: str) -> str:
    return _JINJA.sub(lambda match: f'{{{{ "{match[0]}" | raw }}}}', text)


# --- imports as prototypes: what varies between environments, images, replicas, and what ksonnet named ---
# A value becomes a parameter where it differs between environments, where it is an image or a number of
# replicas, and where ksonnet's parameters had it under a name. Values that are equal everywhere share one.

REGISTRY = "local"
VERSION = "0.1.0"
Named = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Environment -> component -> parameters that ksonnet had."""

_Place = tuple[int, KeyPath]  # of which object, and where in it


@dataclass(frozen=True)
class _Value:
    base: Any
    others: tuple[Any, ...]
    places: tuple[_Place, ...]


def as_prototypes(plan: ImportPlan, package: str, *, known: Named | None = None) -> ImportPlan:
    """Give the same plan with a prototype for each component, in a package of the app's own.

    Patches stay for what cannot be a parameter: what only some environments have.
    """
    head = {"apiVersion": API_VERSION, "kind": "Package", "name": package, "version": VERSION}
    files = {"package.yaml": write.to_yaml({**head, "summary": "Prototypes made from what was imported"})}
    components, names = list[PlannedComponent](), set[str]()
    patches = {environment: dict(inner) for environment, inner in plan.patches.items()}
    params: dict[str, dict[str, Mapping[str, Any]]] = {}
    for component in plan.components:
        environments = [name for name, inner in patches.items() if component.name in inner]
        versions = {}
        for name in environments:
            own_patches = [read_patch(patch, where="import") for patch in patches[name][component.name]]
            versions[name] = [data for data in patched(component.objects, own_patches) if data is not None]
        prototype = component_name(component.name.replace(".", "-")).lower()
        while prototype in names:
            prototype += "-2"
        names.add(prototype)
        named = _named_values(component, versions, known or {})
        files |= _prototype_files(prototype, component, named)
        reference = f"{REGISTRY}/{package}/{prototype}"
        content = {"apiVersion": API_VERSION, "kind": "Component", "prototype": reference}
        components.append(replace(component, text=write.to_yaml(content), suffix=".yaml"))
        for index, (name, objects) in enumerate(versions.items()):
            values = {key: value.others[index] for key, value in named.items()}
            own = {key: value for key, value in values.items() if not same(named[key].base, value)}
            if own:
                params.setdefault(name, {})[component.name] = own
            del patches[name][component.name]
            if left := _left(component.objects, objects, named, index):
                patches[name][component.name] = left
    return replace(
        plan,
        components=tuple(components),
        patches={name: inner for name, inner in patches.items() if inner},
        params=params,
        package=PlannedPackage(name=package, registry=REGISTRY, files=files),
    )


# --- values ---


def _leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    if not isinstance(value, Mapping | list):
        yield path, value
    for step, item in items_of(value):
        yield from _leaves(item, (*path, step))


_FIXED = ("apiVersion", "kind")


def _named_values(
    component: PlannedComponent, versions: Mapping[str, Sequence[Data]], known: Named
) -> dict[str, _Value]:
    places: dict[str, list[_Place]] = {}
    values: dict[str, tuple[Any, tuple[Any, ...]]] = {}
    for number, data in enumerate(component.objects):
        if masking.is_secret(data):
            continue  # a parameter's default would stand in a package
        for path, base in _leaves(data):
            others = tuple(at(objects[number], path) for objects in versions.values())
            scalars = (base, *others)
            if path[0] in _FIXED or path == ("metadata", "name"):
                continue
            if any(value is None or isinstance(value, Mapping | list) for value in scalars):
                continue
            varies = not all(same(base, other) for other in others)
            is_usual = path[-1] == "image" or path == ("spec", "replicas")  # what people want to set
            if not (varies or is_usual or _names_of(component.name, base, path, known)):
                continue
            key = json.dumps(scalars, sort_keys=True)
            places.setdefault(key, []).append((number, path))
            values[key] = (base, others)
    named: dict[str, _Value] = {}
    for key, listed in places.items():
        base, others = values[key]
        name = _name(component, listed[0], base, known, named)
        named[name] = _Value(base, others, tuple(listed))
    return named


def _names_of(component: str, value: Any, path: KeyPath, known: Named) -> list[str]:
    """Give the names under which ksonnet's parameters had a value: one that is long enough to be meant."""
    names = []
    for inner in known.values():
        for name, own in inner.get(component, {}).items():
            is_meant = (isinstance(value, str) and len(value) > 3) or name == path[-1]
            if is_meant and same(own, value) and is_parameter_name(name) and name != "name":
                names.append(name)
    return list(dict.fromkeys(names))


def _name(
    component: PlannedComponent, place: _Place, base: Any, known: Named, taken: Mapping[str, _Value]
) -> str:
    number, path = place
    keys = [re.sub(r"[^a-zA-Z0-9_]+", "_", key).strip("_") for key in path if isinstance(key, str)]
    data = component.objects[number]
    container = at(data, (*path[:-1], "name")) if path[-1] == "image" else None
    candidates = [*_names_of(component.name, base, path, known)]
    candidates += [keys[-1]] if keys[-1:] and keys[-1] else []
    candidates += [f"{container}_image".replace("-", "_")] if isinstance(container, str) else []
    candidates += ["_".join(keys[-2:]), f"{str(data['kind']).lower()}_{'_'.join(keys[-2:])}"]
    for name in candidates:
        if name not in taken and is_parameter_name(name) and name not in ("name", "namespace"):
            return name
    numbered = (f"{candidates[-1]}_{index}" for index in range(2, 10_000))
    return next(name for name in numbered if name not in taken)


def _left(
    base: Sequence[Data], objects: Sequence[Data], named: Mapping[str, _Value], index: int
) -> list[Data]:
    """Give the patches for what parameters do not say."""
    filled = [copy.deepcopy(dict(data)) for data in base]
    for value in named.values():
        for number, path in value.places:
            inner: Any = filled[number]
            for part in path[:-1]:
                inner = inner[part]
            inner[path[-1]] = value.others[index]
    pairs = zip(filled, objects, strict=True)
    return [patch for before, after in pairs if (patch := object_patch(before, after))]


# --- files ---


def _template(component: PlannedComponent, named: Mapping[str, _Value]) -> str:
    """Write parameters in the places of their values; comments and all other text stay.

    Where the text has a value at several places at once (anchors), it is the objects that are written.
    """
    expressions = {
        place: f"{{{{ params[{json.dumps(name)}] }}}}"
        for name, value in named.items()
        for place in value.places
    }
    text = component.text.removeprefix("\ufeff")
    for candidate in (text, write.to_yaml_documents(component.objects)):
        edits, left = [], dict(expressions)
        for _, path, number, scalar in literals(candidate, source=component.name):
            expression = left.pop((number, path), None)
            if expression is not None and not scalar.tagged:
                end = "\n" if candidate[scalar.start : scalar.end].endswith("\n") else ""  # a block
                edits.append((scalar.start, scalar.end, expression + end))
        if len(edits) == len(expressions):
            return _within_limit(rewritten(candidate, edits), component.name)
    raise ConfigError(f"no prototype can be made of component `{component.name}`")


def _within_limit(template: str, component: str) -> str:
    if (size := len(template.encode())) > LARGEST_TEMPLATE:
        message = f"`{component}` has {size / 2**20:.1f} MiB, and a template of a prototype holds"
        hint = "import it as it is, without --as-prototype; patches change it for one environment"
        raise ConfigError(f"{message} {LARGEST_TEMPLATE >> 20} MiB", hint=hint)
    return template


_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def _prototype_files(name: str, component: PlannedComponent, named: Mapping[str, _Value]) -> dict[str, str]:
    properties = {}
    for param, value in named.items():
        types = sorted({_TYPES[type(item)] for item in (value.base, *value.others)})
        number, path = value.places[0]
        data = component.objects[number]
        where = ".".join(map(str, path))
        description = f"`{where}` of {data['kind']} {data['metadata']['name']}."
        properties[param] = {"type": types[0] if len(types) == 1 else types, "default": value.base}
        if types == ["string"] and value.base and all(value.others):
            properties[param]["minLength"] = 1
        if types == ["string"] and path[-1] == "image" and data["kind"] not in ("ConfigMap", "Secret"):
            properties[param][IMAGE_MARK] = True
        if path == ("spec", "replicas"):
            properties[param]["minimum"] = 0
        properties[param]["description"] = description
    # All have defaults; as they are required, null cannot remove them.
    required = {"required": [*properties]} if properties else {}
    parameters: dict[str, Any] = {"type": "object", **required, "properties": properties}
    head = {"apiVersion": API_VERSION, "kind": "Prototype", "name": name}
    summary = f"{', '.join(component.kinds[:4])} as imported"
    prototype = {**head, "summary": summary, "parameters": parameters}
    example = {**head, "kind": "Example", "summary": "As it was imported", "params": {}}
    del example["name"]
    return {
        f"{name}/prototype.yaml": write.to_yaml(prototype),
        f"{name}/templates/objects.yaml.j2": _template(component, named),
        f"{name}/examples/default.yaml": write.to_yaml(example),
    }
