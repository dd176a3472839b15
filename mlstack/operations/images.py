"""`images`: every container image of an environment, and which line of which file says so; offline."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mlstack.app import layout
from mlstack.app.app import Component
from mlstack.app.params import KeyPath, Overrides, Resolved, inner_schema, join_path
from mlstack.app.reader import AppReader
from mlstack.objects.kube_object import KubeObject
from mlstack.render import render
from mlstack.render.template import CodeStore

_NO_OVERRIDES = Overrides()
MARK = "x-image"
"""What says in the schema of a parameter that its value is an image, or the end of one."""


@dataclass(frozen=True, kw_only=True)
class ImageOrigin:
    """What says that an image runs."""

    component: str
    parameter: str  # dots for places inside it; empty where no parameter says it
    layer: str  # the parameter's, else template, manifest or patch
    where: str  # file and line, or the prototype whose default it is


@dataclass(frozen=True, kw_only=True)
class ImageRow:
    """One image."""

    image: str  # as it is written
    pinned: bool  # whether a digest says which one it is
    used_by: tuple[str, ...]  # the objects that name it, each with the component that brings it in front
    origins: tuple[ImageOrigin, ...]  # in the order of the objects


@dataclass(frozen=True, kw_only=True)
class ImageList:
    """The container images of an environment, each once, by name."""

    environment: str
    images: tuple[ImageRow, ...]  # by name
    notes: tuple[str, ...] = ()


class ImageParam(NamedTuple):
    """A text inside a parameter: an image, or what may be one."""

    path: KeyPath  # the parameter's name first
    text: str
    is_marked: bool
    map: Mapping[str, Any] | None = None  # a chart's `registry`, `repository`, `tag` and `digest`


@dataclass
class _Uses:
    objects: dict[str, None] = field(default_factory=dict)
    origins: dict[ImageOrigin, None] = field(default_factory=dict)


def list_images(
    app: AppReader,
    environment: str,
    *,
    components: Sequence[str] = (),
    overrides: Overrides = _NO_OVERRIDES,
    store: CodeStore | None = None,
) -> ImageList:
    """List what has to be in a registry before an environment can run; arguments as of `render.load`.

    Images of objects are told from other texts by their key, in pods as in custom resources. Those of
    parameters that are images by their schema are found in every text, such as the settings of a controller,
    and listed too where somebody set them and nothing uses them yet.

    Raises:
        ConfigError: a file, parameter or template is wrong.
    """
    state = render.load(
        app, environment, components=components, overrides=overrides, store=store, locate=True, stand_ins=True
    )
    by_component: dict[str, list[KubeObject]] = defaultdict(list)
    for obj in state.objects:
        by_component[obj.component].append(obj)
    uses: dict[str, _Uses] = defaultdict(_Uses)
    for component in app.selected(app.environment(environment), components):
        resolved, params = Resolved({}, {}), tuple[ImageParam, ...]()
        if isinstance(component, Component):
            prototype = app.prototype(component.prototype, environment=environment)
            resolved = app.resolve(component, environment, overrides)
            open_values = {name: v for name, v in resolved.values.items() if not prototype.param(name).secret}
            schemas = {name: prototype.param(name).schema for name in open_values}
            params = tuple(_image_params(open_values, schemas))
        _add_component(uses, component.full_name, by_component[component.full_name], resolved, params)
    rows = (
        ImageRow(image=image, pinned="@sha" in image, used_by=tuple(use.objects), origins=tuple(use.origins))
        for image, use in sorted(uses.items())
    )
    return ImageList(environment=environment, images=tuple(rows), notes=state.notes)


def _add_component(
    uses: dict[str, _Uses],
    component: str,
    objects: Sequence[KubeObject],
    resolved: Resolved,
    params: Sequence[ImageParam],
) -> None:
    """Add the images of one component's objects, and those that its parameters set besides."""

    def origin(param: ImageParam) -> ImageOrigin:
        setting = resolved.setting(str(param.path[0]), param.path[1:])
        return ImageOrigin(
            component=component,
            parameter=join_path(param.path),
            layer=setting.layer if setting else "",
            where=str(setting.origin) if setting else "",
        )

    shown: set[ImageParam] = set()
    for obj in objects:
        user, texts = f"{component}: {obj.identity}", []
        for path, text, is_image in _texts(obj):
            if not is_image:
                texts.append(text)
                continue
            uses[text].objects[user] = None
            where = obj.source.at(path) if obj.source is not None else ""
            deciding = () if _wrote_by_hand(where) else _setters(params, text)
            uses[text].origins |= dict.fromkeys(map(origin, deciding))
            shown |= set(deciding)
            if not deciding:
                layer = _wrote_by_hand(where) or "template"
                at = ImageOrigin(component=component, parameter="", layer=layer, where=where)
                uses[text].origins[at] = None
        for param in params:
            if param.is_marked:
                for image in _inside(param.text, texts):
                    shown.add(param)
                    uses[image].objects[user] = None
                    uses[image].origins[origin(param)] = None
    for param in params:
        if param.is_marked and param not in shown and origin(param).layer != "default":
            uses[param.text].origins[origin(param)] = None


def _wrote_by_hand(where: str) -> str:
    """Tell whether a patch or a manifest wrote a field, by its place."""
    if "/patches/" in where and where.startswith(f"{layout.ENVIRONMENTS}/"):
        return "patch"
    return "manifest" if where.startswith(f"{layout.COMPONENTS}/") else ""


# --- images in objects ---

# Objects in which a text called `image` is a setting or an example.
_NO_PODS = {("", "ConfigMap"), ("", "Secret"), ("apiextensions.k8s.io", "CustomResourceDefinition")}
_OF_IMAGE = r"[\w.:/@-]"


def _texts(obj: KubeObject) -> Iterator[tuple[KeyPath, str, bool]]:
    """Give the texts of an object with their paths; a claim says which are images."""
    if obj.kind != "Secret" and obj.group != "apiextensions.k8s.io":
        yield from _texts_in(obj.data, (), has_pods=(obj.group, obj.kind) not in _NO_PODS)


def _texts_in(content: Any, path: KeyPath, *, has_pods: bool) -> Iterator[tuple[KeyPath, str, bool]]:
    if isinstance(content, Mapping):
        for key, value in content.items():
            inner = (*path, key)
            if has_pods and key == "image" and isinstance(value, str) and value:
                yield inner, value, True
            elif has_pods and key == "image" and isinstance(value, Mapping) and value.get("reference"):
                yield (*inner, "reference"), str(value["reference"]), True  # a volume that is an image
            else:
                yield from _texts_in(value, inner, has_pods=has_pods)
    elif isinstance(content, list | tuple):
        for number, value in enumerate(content):
            yield from _texts_in(value, (*path, number), has_pods=has_pods)
    elif isinstance(content, str):
        yield path, content, False


def _inside(text: str, texts: Sequence[str]) -> dict[str, None]:
    """Give the images in texts that are, or end with, what a parameter says."""
    pattern = re.compile(f"(?<!{_OF_IMAGE})(?:{_OF_IMAGE}*/)?{re.escape(text)}(?!{_OF_IMAGE})")
    return {match[0]: None for other in texts if text in other for match in pattern.finditer(other)}


# --- images in parameters ---


def _image_params(values: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[ImageParam]:
    """Give all texts of parameters that may be images, those that are by their schema with a mark."""
    for name, value in values.items():
        yield from _params_in(value, (name,), schemas.get(name, {}))


def _params_in(value: Any, path: KeyPath, schema: Mapping[str, Any]) -> Iterator[ImageParam]:
    if isinstance(value, str) and value:
        yield ImageParam(path, value, bool(schema.get(MARK)))
    elif isinstance(value, Mapping):
        if isinstance(value.get("repository"), str) and value["repository"]:
            yield ImageParam(path, _of_chart(value), False, value)
        for key, inner in value.items():
            yield from _params_in(inner, (*path, key), inner_schema(schema, (key,)) or {})
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _params_in(inner, (*path, number), inner_schema(schema, (number,)) or {})


def _of_chart(value: Mapping[str, Any]) -> str:
    """Write the image that charts spread over keys; without its tag where the chart has one of its own."""
    registry, tag, digest = (str(value.get(key) or "") for key in ("registry", "tag", "digest"))
    image = f"{registry}/{value['repository']}" if registry else str(value["repository"])
    return image + (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")


def _setters(params: Sequence[ImageParam], image: str) -> tuple[ImageParam, ...]:
    """Give the parameters that say an image; those that are images by their schema before all others."""
    fitting = [
        param
        for param in params
        if param.text == image
        or (
            param.map is not None
            and not (param.map.get("tag") or param.map.get("digest"))
            and image.startswith(f"{param.text}:")
        )
    ]
    return tuple([param for param in fitting if param.is_marked] or fitting)
