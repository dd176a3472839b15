"""`images`: every container image of an environment, what says so, and how all come to another registry."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal, NamedTuple

from mlstack.app import layout
from mlstack.app.app import Component
from mlstack.app.app_dir import AppDir
from mlstack.app.edit import EditedFile
from mlstack.app.params import (
    IMAGE_MARK,
    KeyPath,
    Overrides,
    ParamScope,
    Resolved,
    at,
    inner_schema,
    join_path,
    nested,
    placed,
    split_path,
)
from mlstack.app.reader import AppReader
from mlstack.app.schema import check_value
from mlstack.dataclass import dataclass
from mlstack.errors import RegistryError
from mlstack.objects.kube_object import KubeObject
from mlstack.render import render
from mlstack.render.template import CodeStore

_NO_OVERRIDES = Overrides()


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


@dataclass(frozen=True, kw_only=True)
class CopiedImage:
    """One image, and what became of it."""

    image: str  # as it is written
    target: str  # what runs in its place, with its digest; empty where it is none that can be copied
    state: Literal["copied", "there", "missing", "left"]  # `missing`: a dry run would copy it
    sent_bytes: int = 0  # of what was not there
    sets: tuple[str, ...] = ()  # environment, component and parameter that name the target now
    remaining: tuple[str, ...] = ()  # what no parameter sets: where the target is to be written by hand


@dataclass(frozen=True, kw_only=True)
class CopyResult:
    """What was copied to a registry, and what the files say now."""

    ok: bool  # whether all environments run the copies alone
    to: str  # host and path of the registry
    dry_run: bool  # whether nothing was sent and written
    images: tuple[CopiedImage, ...]  # by name
    files: tuple[str, ...]  # that changed, or would
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
        yield ImageParam(path, value, bool(schema.get(IMAGE_MARK)))
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


# --- copies in another registry ---


def copy_images(
    app: AppDir,
    environments: Sequence[str],
    *,
    to: str,
    platforms: Sequence[str] = (),
    components: Sequence[str] = (),
    for_all: bool = False,
    dry_run: bool = False,
    store: CodeStore | None = None,
) -> CopyResult:
    """Copy the images of environments to a registry, then set them by digest where parameters say them.

    An image lies below its own registry's name there: `HOST/PATH/docker.io/library/nginx`. Where that does
    not answer, what was copied before is taken. What is there already is neither sent nor set again.

    Args:
        app: the app directory.
        environments: their names.
        to: `HOST[:PORT][/PATH]`.
        platforms: only what is for these, as `linux/arm64`; all of an image where none is named.
        components: only those of these components and modules.
        for_all: set them for all environments, where no environment says otherwise.
        dry_run: ask registries, send and write nothing.
        store: as of `render.load`.

    Raises:
        NotFoundError: there is no such image, or not for one of the platforms. No file has changed.
        RegistryError: a registry does not answer or refuses. No file has changed; what is there by then is
            not sent again.
        ConfigError: a file, parameter or template is wrong.
    """
    from mlstack.registries.images import Images, copy_place, image_name

    place, registries = copy_place(to), Images()
    lists = [list_images(app, name, components=components, store=store) for name in environments]
    names = sorted({row.image for images in lists for row in images.images})
    notes: list[str] = []
    copies: dict[str, CopiedImage] = {}
    for image in names:
        try:
            name = image_name(image)
        except RegistryError as error:
            notes.append(f"{error.message}: what stands in its place is not known")
            copies[image] = CopiedImage(image=image, target="", state="left")
            continue
        copy = registries.copied_below(place, name, platforms, dry_run=dry_run)
        notes += [copy.note] if copy.note else []
        copies[image] = CopiedImage(
            image=image, target=copy.target or image, state=copy.state, sent_bytes=copy.sent_bytes
        )
    targets = {copy.image: copy.target for copy in copies.values() if copy.target != copy.image}
    with app.locked():
        lists = [list_images(app, name, components=components, store=store) for name in environments]
        edits = _Edits(app, for_all=for_all)
        for images in lists:
            for row in images.images:
                if target := targets.get(row.image):
                    edits.set_image(images.environment, row, target)
        files = {edited.file: edited.text for edited in edits.files.values() if edited.changed}
        if files and not dry_run:
            app.write(files)
    rows = tuple(
        replace(copy, sets=tuple(edits.sets[image]), remaining=tuple(edits.remaining[image]))
        for image, copy in copies.items()
    )
    return CopyResult(
        ok=all(row.target and not row.remaining for row in rows),
        to=place,
        dry_run=dry_run,
        images=rows,
        files=tuple(files),
        notes=tuple(dict.fromkeys([*(note for images in lists for note in images.notes), *notes])),
    )


class _Edits:
    """The files whose parameters become those that name copies."""

    def __init__(self, app: AppDir, *, for_all: bool) -> None:
        self._app, self._for_all = app, for_all
        self.files: dict[str, EditedFile] = {}  # by the environment or component that they are for
        self.sets: dict[str, dict[str, None]] = defaultdict(dict)
        self.remaining: dict[str, dict[str, None]] = defaultdict(dict)
        self._lists: dict[tuple[ParamScope, KeyPath], Any] = {}

    def set_image(self, environment: str, row: ImageRow, target: str) -> None:
        """Set an image wherever a parameter says it; note where none does."""
        for origin in row.origins:
            where = f"write it in {origin.where}, or a patch: environments/{environment}/patches/"
            if not origin.parameter:
                left = f"{environment}: {origin.layer} of {origin.component}: {where}"
            else:
                left = self._set(environment, origin, row.image, target)
                owner = f"{environment}: {origin.component} {origin.parameter}"
                if not left:
                    self.sets[row.image][owner] = None
                    continue
                left = f"{owner}: {left}"
            self.remaining[row.image][left] = None

    def _set(self, environment: str, origin: ImageOrigin, image: str, target: str) -> str:
        """Set one parameter, or tell why it cannot be."""
        app = self._app
        component = app.component_with_params(origin.component)
        prototype = app.prototype(component.prototype, environment=environment)
        values = app.resolve(component, environment).values
        path = split_path(origin.parameter)
        param, current = prototype.param(str(path[0])), at(values, path)
        settings = {path: target}
        whole = param.schema.get("x-whole-images")
        if whole and isinstance(current, str) and len(path) == 2 and image.endswith(current):
            # Once whole images are said, none of the ends counts: all of them come along.
            begin, param = image.removesuffix(current), prototype.param(str(whole))
            values = {**values, param.name: [begin + end for end in values[str(path[0])]]}
            settings = {(param.name, path[1]): target}
        elif isinstance(current, Mapping):
            settings = {(*path, key): text for key, text in _for_chart(current, target).items()}
        elif current != image:
            return f"its value is only the end of the image; another parameter has to say {target}"
        is_own = self._for_all and origin.layer not in ("environment globals", "environment")
        scope = ParamScope(component=component.full_name, environment=None if is_own else environment)
        for full, text in settings.items():
            faults = check_value(param, nested(full[1:], text)) if _is_plain(full) else []
            if faults:
                return f"it does not take {target}: {faults[0]}"
            place, value = self._with_list(scope, full, text, values)
            if (inner_schema(param.schema, place[1:]) or {}).get("x-merge") == "append":
                return f"the list adds to those below it: write {target} in {origin.where}"
            key = f"{scope.environment}" if scope.environment else f"component {scope.component}"
            self.files[key], inside = app.edited_param(scope, place, self.files.get(key))
            self.files[key].set(inside, value)
        return ""

    def _with_list(
        self, scope: ParamScope, path: KeyPath, value: Any, values: Mapping[str, Any]
    ) -> tuple[KeyPath, Any]:
        """Give the whole list where the path leads to an item of one: lists replace those below them."""
        if _is_plain(path):
            return path, value
        depth = next(number for number, part in enumerate(path) if isinstance(part, int))
        key = scope, path[:depth]
        self._lists[key] = placed(self._lists.get(key, at(values, path[:depth])), path[depth:], value)
        return path[:depth], self._lists[key]


def _is_plain(path: KeyPath) -> bool:
    return not any(isinstance(part, int) for part in path)


def _for_chart(current: Mapping[str, Any], target: str) -> dict[str, str]:
    """Spread an image over the keys that a chart has for it."""
    place, _, digest = target.partition("@")
    place, _, tag = place.rpartition(":")
    registry, _, name = place.partition("/")
    keys = {"registry": registry, "repository": name} if "registry" in current else {"repository": place}
    if "digest" in current:
        return {**keys, "tag": tag, "digest": digest}
    return {**keys, "tag": f"{tag}@{digest}"}
