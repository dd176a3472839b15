"""What parameters do: who says what, who wins, which fields they reach; values and patches without effect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Literal

from mlstack.app import layout
from mlstack.app.app import Component
from mlstack.app.app_dir import AppDir
from mlstack.app.document import AppDocument, join_path, split_path
from mlstack.app.params import (
    GLOBAL_LAYERS,
    Layer,
    Setting,
    at,
    folded,
    inner_param,
    inner_schema,
    renamed,
    settings_inside,
    spelling_table,
)
from mlstack.app.prototype import Param, mask_value
from mlstack.app.reader import is_of_preset
from mlstack.dataclass import Record, dataclass, row
from mlstack.errors import NotFoundError
from mlstack.names import nearest, not_found
from mlstack.objects.kube_object import DesiredState, KubeObject, items_of, plural_of
from mlstack.objects.masking import mask_object, mask_values
from mlstack.operations import written_by
from mlstack.render import render
from mlstack.render.component import Loader
from mlstack.render.patches import patched, read_patch
from mlstack.render.render import NO_FIELD, ComponentTrials, Reach, loader_for, path_text
from mlstack.yaml.read import KeyPath

if TYPE_CHECKING:
    from mlstack.app.components import Overrides


class ExplainedSetting(Record):
    """One layer's word on a parameter; `wins` marks the one that counts."""

    layer: str
    value: Any
    where: str
    wins: bool


class ExplainedParameter(Record):
    """All about one parameter of a component."""

    name: str
    value: Any  # the one that counts, None if unset; masked if secret
    unit: str
    description: str
    layer: str  # the one that decides, empty if none says anything
    where: str  # its file and line
    chain: tuple[ExplainedSetting, ...]  # who said what, lowest layer first
    reaches: tuple[Reach, ...]  # the fields of objects that depend on it
    notes: tuple[str, ...] = ()


class FieldParameter(Record):
    """A parameter that decides a field, and where it was set."""

    name: str
    value: Any  # masked if secret
    layer: str  # the one that decides, empty if none says anything
    where: str  # its file and line


class ExplainedField(Record):
    """Where a field of a rendered object comes from."""

    object: str  # as people name it
    path: str
    value: Any  # secrets masked
    environment: str
    component: str
    prototype: str  # empty for a manifest
    origin: str  # template, manifest, patch, app, environment or mlstack
    where: str  # the file and line that wrote it, empty for what mlstack adds itself
    parameters: tuple[FieldParameter, ...]
    notes: tuple[str, ...] = ()


class ExplainResult(Record):
    """The parameters of a component, explained."""

    component: str
    environment: str  # empty if none was asked for
    prototype: str
    parameters: tuple[ExplainedParameter, ...]


def explain_param(
    app: AppDir,
    component: str,
    parameter: str | None = None,
    *,
    environment: str | None = None,
    overrides: Overrides | None = None,
) -> ExplainResult:
    """Explain one parameter of a component, or all of them.

    The reach is found by rendering again with another value and comparing.

    The parameter may have an old spelling, and lead to a place inside it (`resources.limits.cpu`, `args[0]`);
    None is all that somebody has set.
    Without an environment its layers are left out.
    """
    explained = app.component_with_params(component)
    trials = ComponentTrials(loader_for(app, environment, overrides), explained, environment)
    prototype, chains = trials.prototype, trials.resolved.chains
    set_names = [name for name, chain in chains.items() if any(part.layer != "default" for part in chain)]
    paths = [(name,) for name in set_names] if parameter is None else [_place(trials, parameter)]
    parameters = []
    for path in paths:
        reaches, note = trials.reaches(str(path[0]), path[1:])
        old = renamed(str(split_path(parameter)[0]), str(path[0])) if parameter else ()
        parameters.append(_explained(trials, path, reaches, *old, note))
    return ExplainResult(
        component=explained.full_name,
        environment=environment or "",
        prototype=prototype.full_name,
        parameters=tuple(parameters),
    )


def _place(trials: ComponentTrials, text: str) -> KeyPath:
    """Give the parameter that is meant, in its canonical spelling, and the path inside it."""
    prototype, resolved = trials.prototype, trials.resolved
    first, *inside = split_path(text)
    # An open prototype takes others than it declares.
    name = spelling_table(prototype.params).get(str(first), str(first) if first in resolved.chains else "")
    if not name:
        message = f"prototype `{prototype.full_name}` has no parameter `{first}`"
        raise NotFoundError(message, near=nearest(str(first), prototype.params))
    for depth, part in enumerate(inside):
        schema = inner_schema(prototype.param(name).schema, inside[:depth]) or {}
        if settings_inside(resolved.chains[name], tuple(inside[: depth + 1]), prototype.param(name).schema):
            continue
        around, declared = at(resolved.values.get(name), inside[:depth]), schema.get("properties", {})
        if part not in declared:
            keys = [str(key) for key in {**declared, **(around if isinstance(around, Mapping) else {})}]
            near = nearest(str(part), keys)
            hint = f"it has {', '.join(keys[:8])}" if keys and not near else None
            message = f"`{join_path((name, *inside[:depth]))}` has no `{join_path((part,))}`"
            raise NotFoundError(message, near=near, hint=hint)
    return (name, *inside)


def _explained(
    trials: ComponentTrials, path: KeyPath, reaches: tuple[Reach, ...], *notes: str
) -> ExplainedParameter:
    name, inside = str(path[0]), path[1:]
    param, resolved = trials.prototype.param(name), trials.resolved
    inner = inner_param(param, inside) or Param(name=name, schema={})
    chain = settings_inside(resolved.chains.get(name, ()), inside, param.schema)
    last = chain[-1] if chain else None
    settings = [
        row(
            ExplainedSetting,
            part,
            value=mask_value(part.value, param),
            where=str(part.origin),
            wins=part is last,
        )
        for part in chain
    ]
    return row(
        ExplainedParameter,
        inner,
        name=join_path(path),
        value=mask_value(at(resolved.values.get(name), inside), param),
        layer=last.layer if last else "",
        where=str(last.origin) if last else "",
        chain=tuple(settings),
        reaches=reaches,
        notes=tuple(filter(None, notes)),
    )


# --- the other way round: from a field to what decides it ----------------------------------------------

_STEP = re.compile(r'\["((?:[^"])*)"\]|\[([^\]]*)\]|((?:\\.|[^.\[])+)')


def explain_field(
    app: AppDir, name: str, field: str, *, environment: str, overrides: Overrides | None = None
) -> ExplainedField:
    """Explain a field of an object: the line that wrote it, the patch, the parameters and who set these.

    The object is `KIND/NAME` or `KIND/NAMESPACE/NAME`, the field a path as a diff writes it;
    `containers[main]` is the item of that name.
    """
    state = render.load(app, environment, overrides=overrides, locate=True, stand_ins=True)
    obj = _object(app, state, name)
    path = _path(obj.data, field)
    origin, where = _origin(app, environment, obj, path)
    component = app.component(obj.component)
    settings: tuple[FieldParameter, ...] = ()
    notes: tuple[str, ...] = ()
    if isinstance(component, Component) and origin in ("template", "patch"):
        trials = ComponentTrials(loader_for(app, environment, overrides), component, environment)
        names = {**trials.prototype.params, **trials.resolved.chains}
        deciding = (decided for name in names for decided in _deciding(trials, (name,), obj, path))
        settings = tuple(row(FieldParameter, decided) for decided in deciding)
        notes = ("a patch has the last word over its parameters",) if origin == "patch" and settings else ()
    return ExplainedField(
        object=str(obj.identity),
        path=path_text(path),
        value=mask_values(at(mask_object(obj.data), path), state.secrets),
        environment=environment,
        component=obj.component,
        prototype=component.prototype if isinstance(component, Component) else "",
        origin=origin,
        where=where,
        parameters=settings,
        notes=notes,
    )


def _object(app: AppDir, state: DesiredState, name: str) -> KubeObject:
    kind, _, rest = name.partition("/")
    namespace, _, own = rest.rpartition("/")
    for obj in state.objects:
        if _is_kind(kind, obj.kind) and own == obj.name and namespace in ("", obj.namespace):
            return obj
    message = f"the environment has no object `{name}`"
    for component in state.components:
        for document in app.patches(state.environment, component):
            patch = read_patch(document.value, where=str(document.origin()))
            is_meant = _is_kind(kind, patch.target["kind"]) and patch.target.get("name") in (None, own)
            if patch.deletes and is_meant:
                raise NotFoundError(f"{message}: a patch deletes it", where=patch.where)
    names = [f"{obj.kind.lower()}/{obj.name}" for obj in state.objects]
    hint = "write KIND/NAME; mlstack render ENV -o name lists them"
    raise not_found(message, name.lower(), names, hint=hint)


def _is_kind(word: str, kind: str) -> bool:
    return word.lower() in (kind.lower(), plural_of(kind))


def _path(data: Any, field: str) -> KeyPath:
    """Read the path of a field of an object, and make sure that it is there."""
    path: KeyPath = ()
    for quoted, bracket, plain in _STEP.findall(field):
        value, key = at(data, path), quoted or bracket or plain.replace("\\.", ".")
        step: str | int = key
        if isinstance(value, list):
            items = enumerate(value)
            named = (n for n, item in items if isinstance(item, Mapping) and item.get("name") == key)
            step = int(key) if key.isdigit() else next(named, key)
        is_there = step in value if isinstance(value, Mapping) else at(value, (step,)) is not None
        if not is_there:
            keys = [str(inner) for inner in value] if isinstance(value, Mapping) else []
            place = f"`{path_text(path)}`" if path else "the object"
            deeper = [path_text(inner) for inner in _ending(data, key)]
            near = deeper[0] if deeper else nearest(key, keys)
            hint = None if near else f"it has {', '.join(keys[:8])}" if keys else None
            raise NotFoundError(f"{place} has no `{key}`", near=near, hint=hint)
        path = (*path, step)
    return path


def _ending(value: Any, key: str, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Find the fields of an object that have a name, the highest first in each branch."""
    for step, inner in items_of(value):
        if step == key:
            yield (*path, step)
        yield from _ending(inner, key, (*path, step))


_ADDED = (("metadata", "labels"), ("metadata", "annotations"))


def _origin(app: AppDir, environment: str, obj: KubeObject, path: KeyPath) -> tuple[str, str]:
    """Give what wrote a field of an object, and at which place."""
    places = obj.source.places if obj.source is not None else {}
    if path[-3:-1] in _ADDED and path not in places:
        is_of_pod = len(path) > 3 or obj.kind == "Pod"
        names = [f"pod{str(path[-2]).capitalize()}"] * is_of_pod + [path[-2]] * (len(path) == 3)
        files = [layout.environment_file(name) for name in app.lineage(environment)]
        levels = [("environment", app.files.document(file, "Environment")) for file in files]
        levels = [("app", app.files.app_document), *levels]
        for name in names:
            for level, document in reversed(levels):
                if document is not None and at(document.value, (name, path[-1])) is not None:
                    return level, str(document.origin((name, path[-1])))
        if len(path) == 3 or path[-1] == render.CONFIG_HASH:
            return "mlstack", ""
    if path == ("metadata", "namespace") and path not in places:
        return "mlstack", ""
    where = obj.source.at(path) if obj.source is not None else ""
    return written_by(where), where


def _deciding(
    trials: ComponentTrials, place: KeyPath, obj: KubeObject, path: KeyPath
) -> Iterator[ExplainedParameter]:
    """Give a parameter if it decides a field; where it is a map, those keys of it that do."""
    reaches, note = trials.reaches(str(place[0]), place[1:])
    if not any(_is_at(reach, obj, path_text(path)) for reach in reaches):
        return
    value = at(trials.resolved.values, place)
    keys = value if isinstance(value, Mapping) else ()
    inner = [decided for key in keys for decided in _deciding(trials, (*place, key), obj, path)]
    yield from inner or [_explained(trials, place, reaches, note)]


def _is_at(reach: Reach, obj: KubeObject, path: str) -> bool:
    kind, _, name = reach.object.partition(" ")
    is_same = kind == obj.kind and name.rpartition("/")[2] == obj.name
    long, short = sorted((reach.path, path), key=len, reverse=True)
    return is_same and long.startswith(short) and long[len(short) : len(short) + 1] in ("", ".", "[")


# --- values and patches without which no object in any environment would be another ---


FindingKind = Literal["same", "hidden", "no effect", "unused", "patch"]


class LintFinding(Record):
    """One value or patch that could go."""

    kind: FindingKind
    component: str  # empty for what is set for all
    name: str  # the parameter, or the object that a patch names
    where: str  # file and line
    message: str


class LintResult(Record):
    """What could go."""

    ok: bool  # true if there is nothing
    environments: tuple[str, ...]  # in which it was tried
    findings: tuple[LintFinding, ...]


@dataclass(kw_only=True)
class _Use:
    """What is known of one setting in a file, over all components and environments that it speaks to."""

    setting: Setting
    name: str
    spellings: set[str]  # by which its prototype takes it
    component: str = ""
    is_same: bool = True  # it says what the layer below says, wherever it applies
    counts_in: list[tuple[Component, str | None]] = field(default_factory=list)


def lint_params(app: AppDir, *, components: Sequence[str] = ()) -> LintResult:
    """Find what could go: values and patches that change no object in any environment.

    Without environments it is tried as all of them would share it. `components` are the only components and
    modules of which values are looked at.
    """
    chosen = {component.full_name for component in app.selected(None, components)}
    names: Sequence[str | None] = app.environment_names or (None,)
    uses = _uses(app, names, chosen)
    loaders = {name: loader_for(app, name) for name in names}
    findings: list[LintFinding] = []
    for group in _by_line(uses):
        judged = [_judged(use, loaders) for use in group]
        findings += [finding for finding in judged[:1] if finding is not None and all(judged)]
    if not components:
        findings += _unused(app, {where for where, _ in uses})
    findings += [finding for name in app.environment_names for finding in _patches(app, name, chosen)]

    def place(finding: LintFinding) -> tuple[str, int, str]:
        file, _, line = finding.where.rpartition(":")
        return file, int(line) if line.isdigit() else 0, finding.name

    findings.sort(key=place)
    return LintResult(ok=not findings, environments=tuple(app.environment_names), findings=tuple(findings))


def _uses(app: AppDir, names: Sequence[str | None], chosen: set[str]) -> dict[tuple[str, str], _Use]:
    """Give every setting of every file by place and name, with what it does where it applies."""
    uses: dict[tuple[str, str], _Use] = {}
    for environment in names:
        place = app.environment(environment) if environment is not None else None
        for component in app.selected(place):
            if not isinstance(component, Component) or component.full_name not in chosen:
                continue
            prototype = app.prototype_of(component, environment)
            for name, chain in app.resolve(component, environment).chains.items():
                param = prototype.param(name)
                for number, setting in enumerate(chain):
                    if setting.layer == "default":
                        continue
                    owner = "" if setting.layer in GLOBAL_LAYERS else component.full_name
                    if not owner and is_of_preset({name, *param.aliases}, setting.value):
                        continue
                    spellings = {name, *param.aliases}
                    fresh = _Use(setting=setting, name=name, spellings=spellings, component=owner)
                    use = uses.setdefault((str(setting.origin), name), fresh)
                    below, upto = folded(param, chain[:number]), folded(param, chain[: number + 1])
                    use.is_same = use.is_same and bool(below == upto)
                    if folded(param, chain) != folded(param, [*chain[:number], *chain[number + 1 :]]):
                        use.counts_in.append((component, environment))
    return uses


def _by_line(uses: Mapping[tuple[str, str], _Use]) -> list[list[_Use]]:
    """Put together what is one line of a file, by which several prototypes set what each spells its way."""
    groups: dict[str, list[list[_Use]]] = {}
    for (where, _), use in uses.items():
        line_groups = groups.setdefault(where, [])
        group = next((alike for alike in line_groups if alike[0].spellings & use.spellings), None)
        if group is None:
            line_groups.append([use])
        else:
            group.append(use)
    return [group for line_groups in groups.values() for group in line_groups]


def _judged(use: _Use, loaders: Mapping[str | None, Loader]) -> LintFinding | None:
    facts: dict[str, Any] = {"component": use.component, "name": use.name, "where": str(use.setting.origin)}
    if not use.counts_in and use.is_same:
        return LintFinding(kind="same", message="says what counts without it", **facts)
    if not use.counts_in:
        return LintFinding(kind="hidden", message="other values count wherever it applies", **facts)
    reached = (
        ComponentTrials(loaders[environment], component, environment).reaches(use.name)
        for component, environment in use.counts_in
    )
    if all(reach == ((), NO_FIELD) for reach in reached):
        return LintFinding(kind="no effect", message="no object in any environment depends on it", **facts)
    return None


def _unused(app: AppDir, seen: set[str]) -> Iterator[LintFinding]:
    """Find what is set for components that are not deployed there, or for all and taken by none."""
    layers: list[tuple[str, Layer]] = [("", layer) for layer in app.shared_layers(app.modules)]
    for name in app.environment_names:
        own = app.environment_files(name)
        layers += [("", layer) for layer in own.for_all]
        for component in (*own.components, *own.encrypted_components):
            layers += [(component, layer) for layer in own.for_component(component)]
    for component, layer in layers:
        for name, value in layer.values.items():
            where = str(layer.origins.get((name,), layer.kind))
            if where not in seen and (component or not is_of_preset({name}, value)):
                reason = "the component is not deployed there" if component else "no component takes it there"
                yield LintFinding(kind="unused", component=component, name=name, where=where, message=reason)


def _patches(app: AppDir, environment: str, chosen: set[str]) -> Iterator[LintFinding]:
    """Find the patches of an environment's own that change nothing in it."""
    place = app.environment(environment)
    deployed = {component.full_name: component for component in app.selected(place)}
    loader = Loader(app, replace(place, file=""), stand_ins=True)  # without a file: unpatched
    for name in sorted(chosen & app.own_patches(environment).keys()):
        documents = app.patches(environment, name)
        if name not in deployed:
            for document in documents:
                yield _finding(document, name, "its component is not deployed there")
            continue
        objects: Sequence[Mapping[str, Any]] = [obj.data for obj in loader.render(deployed[name]).objects]
        for document in documents:
            changed = patched(objects, [read_patch(document.value, where=str(document.origin()))])
            kept = [data for data in changed if data is not None]
            if kept == list(objects) and document.file == app.own_patches(environment)[name]:
                yield _finding(document, name, "it changes nothing")
            objects = kept


def _finding(document: AppDocument, component: str, message: str) -> LintFinding:
    patch, where = document.value, str(document.origin())
    target = patch.get("target") or {"kind": patch.get("kind"), **(patch.get("metadata") or {})}
    name = f"{target.get('kind')} {target.get('name') or ''}".strip()
    return LintFinding(kind="patch", component=component, name=name, where=where, message=message)
