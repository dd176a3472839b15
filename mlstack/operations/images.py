"""The images of environments: which they run, what sets each, and how all come to another registry."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mlstack.app.app import Component
from mlstack.app.app_dir import AppDir
from mlstack.app.document import join_path, split_path
from mlstack.app.edit import EditedFile, changed_texts
from mlstack.app.params import IMAGE_MARK, ParamScope, Resolved, at, inner_schema, nested
from mlstack.app.reader import AppReader
from mlstack.app.schema import check_value
from mlstack.dataclass import Record, dataclass, row
from mlstack.errors import RegistryError
from mlstack.objects.kube_object import KubeObject, items_of
from mlstack.operations import written_by
from mlstack.render import render
from mlstack.render.render import placed
from mlstack.yaml.read import KeyPath

if TYPE_CHECKING:
    from mlstack.app.components import Overrides
    from mlstack.registries.images import Images


class ImageOrigin(Record):
    """What says that an image runs."""

    component: str
    parameter: str  # dots for places inside it; empty where no parameter says it
    layer: str  # the parameter's, else template, manifest or patch
    where: str  # file and line, or the prototype whose default it is


class ImageRow(Record):
    """One image."""

    image: str  # as it is written
    pinned: bool  # whether a digest says which one it is
    used_by: tuple[str, ...]  # the objects that name it, each with the component that brings it in front
    origins: tuple[ImageOrigin, ...]  # in the order of the objects


class ImageList(Record):
    """The container images of an environment, each once, by name."""

    environment: str
    images: tuple[ImageRow, ...]  # by name
    notes: tuple[str, ...] = ()


class CopiedImage(Record):
    """One image, and what became of it."""

    image: str  # as it is written
    target: str  # what runs in its place, with its digest; empty where it is none that can be copied
    state: Literal["copied", "there", "missing", "left"]  # `missing`: a dry run would copy it
    sent_bytes: int = 0  # of what was not there
    sets: tuple[str, ...] = ()  # environment, component and parameter that name the target now
    remaining: tuple[str, ...] = ()  # what no parameter sets: where the target is to be written by hand


class CopyResult(Record):
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
    app: AppReader, environment: str, *, components: Sequence[str] = (), overrides: Overrides | None = None
) -> ImageList:
    """List what has to be in a registry before an environment can run; arguments as of `render.load`.

    Images of objects are told from other texts by their key, in pods as in custom resources. Those of
    parameters that are images by their schema are found in every text, such as the settings of a controller,
    and listed too where somebody set them and nothing uses them yet.
    """
    state = render.load(
        app, environment, components=components, overrides=overrides, locate=True, stand_ins=True
    )
    objects: dict[str, list[KubeObject]] = defaultdict(list)
    for obj in state.objects:
        objects[obj.component].append(obj)
    uses: dict[str, _Uses] = defaultdict(_Uses)
    for component in app.selected(app.environment(environment), components):
        resolved, params = Resolved({}, {}), tuple[ImageParam, ...]()
        if isinstance(component, Component):
            prototype = app.prototype_of(component, environment)
            resolved = app.resolve(component, environment, overrides)
            declared = {name: prototype.param(name) for name in resolved.values}
            params = tuple(
                param
                for name, value in resolved.values.items()
                if not declared[name].secret
                for param in _image_params(value, (name,), declared[name].schema)
            )
        _add_component(uses, component.full_name, objects[component.full_name], resolved, params)
    rows = tuple(
        ImageRow(image=image, pinned="@sha" in image, used_by=tuple(use.objects), origins=tuple(use.origins))
        for image, use in sorted(uses.items())
    )
    return ImageList(environment=environment, images=rows, notes=state.notes)


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
        layer, where = (setting.layer, str(setting.origin)) if setting else ("", "")
        return ImageOrigin(component=component, parameter=join_path(param.path), layer=layer, where=where)

    shown: set[ImageParam] = set()
    for obj in objects:
        if obj.kind == "Secret" or obj.group == "apiextensions.k8s.io":
            continue
        user, texts = f"{component}: {obj.identity}", []
        has_pods = (obj.group, obj.kind) != ("", "ConfigMap")  # where `image` is a setting or an example
        for path, text, is_image in _texts(obj.data, (), has_pods=has_pods):
            if not is_image:
                texts.append(text)
                continue
            uses[text].objects[user] = None
            where = obj.source.at(path) if obj.source is not None else ""
            layer = written_by(where)
            deciding = _setters(params, text) if layer == "template" else ()
            shown |= set(deciding)
            bare = ImageOrigin(component=component, parameter="", layer=layer, where=where)
            uses[text].origins |= dict.fromkeys(map(origin, deciding) if deciding else [bare])
        for param in params:
            if param.is_marked:
                for image in _images_in(param.text, texts):
                    shown.add(param)
                    uses[image].objects[user] = None
                    uses[image].origins[origin(param)] = None
    for param in params:
        if param.is_marked and param not in shown and origin(param).layer != "default":
            uses[param.text].origins[origin(param)] = None


_OF_IMAGE = r"[\w.:/@-]"
_FREE_KEYS = frozenset({"labels", "annotations", "matchLabels", "selector", "nodeSelector"})
"""Fields whose keys are anybody's: an `image` there is none."""


def _texts(content: Any, path: KeyPath, *, has_pods: bool) -> Iterator[tuple[KeyPath, str, bool]]:
    """Give the texts of an object with their paths; a claim says which are images."""
    if isinstance(content, str):
        yield path, content, False
    for key, value in items_of(content):
        is_image, inner = has_pods and key == "image", (*path, key)
        if is_image and isinstance(value, str) and value:
            yield inner, value, True
        elif is_image and isinstance(value, Mapping) and value.get("reference"):
            yield (*inner, "reference"), str(value["reference"]), True  # a volume that is an image
        else:
            yield from _texts(value, inner, has_pods=has_pods and key not in _FREE_KEYS)


def _images_in(text: str, texts: Sequence[str]) -> dict[str, None]:
    """Give the images in texts that are, or end with, what a parameter says."""
    pattern = re.compile(f"(?<!{_OF_IMAGE})(?:{_OF_IMAGE}*/)?{re.escape(text)}(?!{_OF_IMAGE})")
    return {match[0]: None for other in texts if text in other for match in pattern.finditer(other)}


def _image_params(value: Any, path: KeyPath, schema: Mapping[str, Any]) -> Iterator[ImageParam]:
    """Give all texts of a parameter that may be images, those that are by their schema with a mark."""
    if isinstance(value, str) and value:
        yield ImageParam(path, value, bool(schema.get(IMAGE_MARK)))
    elif isinstance(value, Mapping) and isinstance(value.get("repository"), str) and value["repository"]:
        yield ImageParam(path, _of_chart(value), False, value)
    for key, inner in items_of(value):
        yield from _image_params(inner, (*path, key), inner_schema(schema, (key,)) or {})


def _of_chart(value: Mapping[str, Any]) -> str:
    """Write the image that charts spread over keys; without its tag where the chart has one of its own."""
    registry, tag, digest = (str(value.get(key) or "") for key in ("registry", "tag", "digest"))
    image = f"{registry}/{value['repository']}" if registry else str(value["repository"])
    return image + (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")


def _setters(params: Sequence[ImageParam], image: str) -> tuple[ImageParam, ...]:
    """Give the parameters that say an image; those that are images by their schema before all others."""

    def says(param: ImageParam) -> bool:
        is_open = param.map is not None and not (param.map.get("tag") or param.map.get("digest"))
        return param.text == image or (is_open and image.startswith(f"{param.text}:"))

    fitting = [param for param in params if says(param)]
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
) -> CopyResult:
    """Copy the images of environments to a registry, then set them by digest where parameters say them.

    An image lies below its own registry's name in `to`: `HOST[:PORT]/PATH/docker.io/library/nginx`. Where
    that does not answer, what was copied before is taken. What is there already is neither sent nor set
    again. `platforms` are those that are copied, as `linux/arm64`; without any all of an image. `for_all`
    sets them for all environments, where none says otherwise; a `dry_run` only asks registries.
    """
    from mlstack.registries.images import Images, copy_place

    app = app.without_personal()
    place, registries = copy_place(to), Images()
    lists = [list_images(app, name, components=components) for name in environments]
    names = sorted({listed.image for images in lists for listed in images.images})
    copies = {name: _copied(registries, name, place, platforms, dry_run=dry_run) for name in names}
    with app.locked():
        lists = [list_images(app, name, components=components) for name in environments]
        edits = _edits(app, lists, {name: copy.target for name, (copy, _) in copies.items()}, for_all=for_all)
        files = changed_texts(edits.files.values())
        if files and not dry_run:
            app.write(files)
    rows = tuple(
        row(CopiedImage, copy, sets=tuple(edits.sets[name]), remaining=tuple(edits.remaining[name]))
        for name, (copy, _) in copies.items()
    )
    notes = [*(note for images in lists for note in images.notes), *(note for _, note in copies.values())]
    is_whole = all(copy.target and not copy.remaining for copy in rows)
    report = {"files": tuple(files), "notes": tuple(dict.fromkeys(filter(None, notes)))}
    return CopyResult(ok=is_whole, to=place, dry_run=dry_run, images=rows, **report)


def _copied(
    registries: Images, image: str, place: str, platforms: Sequence[str], *, dry_run: bool
) -> tuple[CopiedImage, str]:
    """Copy one image below a place; gives what became of it, and a remark."""
    from mlstack.registries.images import image_name

    try:
        name = image_name(image)
    except RegistryError as error:
        note = f"{error.message}: what stands in its place is not known"
        return CopiedImage(image=image, target="", state="left"), note
    copy = registries.copied_below(place, name, platforms, dry_run=dry_run)
    return row(CopiedImage, copy, image=image, target=copy.target or image), copy.note


def _edits(app: AppDir, lists: Sequence[ImageList], targets: Mapping[str, str], *, for_all: bool) -> _Edits:
    """Work out the files in which parameters say the targets of images, where these have others."""
    edits = _Edits(app, for_all=for_all)
    for images in lists:
        for listed in images.images:
            if targets.get(listed.image, "") not in ("", listed.image):
                edits.set_image(images.environment, listed, targets[listed.image])
    return edits


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
            owner, where = f"{environment}: {origin.layer} of {origin.component}", origin.where
            left = f"write it in {where}, or a patch: environments/{environment}/patches/"
            if origin.parameter:
                owner = f"{environment}: {origin.component} {origin.parameter}"
                left = self._set(environment, origin, row.image, target)
            if left:
                self.remaining[row.image][f"{owner}: {left}"] = None
            else:
                self.sets[row.image][owner] = None

    def _set(self, environment: str, origin: ImageOrigin, image: str, target: str) -> str:
        """Set one parameter, or tell why it cannot be."""
        app = self._app
        component = app.component_with_params(origin.component)
        prototype = app.prototype_of(component, environment)
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
            is_plain = not any(isinstance(part, int) for part in full)
            faults = check_value(param, nested(full[1:], text)) if is_plain else []
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
        depth = next((number for number, part in enumerate(path) if isinstance(part, int)), None)
        if depth is None:
            return path, value
        key = scope, path[:depth]
        self._lists[key] = placed(self._lists.get(key, at(values, path[:depth])), path[depth:], value)
        return path[:depth], self._lists[key]


def _for_chart(current: Mapping[str, Any], target: str) -> dict[str, str]:
    """Spread an image over the keys that a chart has for it."""
    place, _, digest = target.partition("@")
    place, _, tag = place.rpartition(":")
    registry, _, name = place.partition("/")
    keys = {"registry": registry, "repository": name} if "registry" in current else {"repository": place}
    return keys | ({"tag": tag, "digest": digest} if "digest" in current else {"tag": f"{tag}@{digest}"})
