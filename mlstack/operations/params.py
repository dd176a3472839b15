"""Parameters of an app at every level: changed, unset, listed, compared, promoted to other environments."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import field
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

from mlstack.app import layout
from mlstack.app.app import Component, PackageRef
from mlstack.app.app_dir import AppDir
from mlstack.app.document import join_path, split_path
from mlstack.app.edit import changed_texts
from mlstack.app.params import (
    Layer,
    ParamScope,
    at,
    canonical_name,
    folded,
    inner_param,
    inner_schema,
    merge,
    nested,
    overlaid,
    parse_text,
    renamed,
    spelling_table,
)
from mlstack.app.prototype import Param, mask_value, reference_paths, secret_literals, with_references
from mlstack.app.reader import AppReader
from mlstack.app.schema import check_value
from mlstack.dataclass import Record
from mlstack.errors import ConfigError, NotFoundError, ParamError, TypedValueError, UsageError
from mlstack.names import not_found
from mlstack.objects import masking
from mlstack.yaml.read import KeyPath
from mlstack.yaml.write import same

if TYPE_CHECKING:
    from mlstack.app.components import Overrides


class ParamChanged(Record):
    """A value that was set."""

    name: str  # canonical, dots for places inside it
    value: Any  # as it was understood, masked if it is secret
    place: str  # the level it was set at
    file: str  # below the app directory
    changed: bool  # false if it had that value before
    notes: tuple[str, ...] = ()


class ParamUnset(Record):
    """A value that was taken back."""

    name: str
    place: str
    file: str
    notes: tuple[str, ...] = ()


class ParamRow(Record):
    """One value of one component."""

    component: str  # empty for what is set for all
    name: str
    value: Any  # masked if it is secret
    level: str  # the level that decided it
    origin: str  # file and line, or the prototype


class ParamList(Record):
    """The values that a render would use."""

    environment: str | None  # None for what all environments share
    rows: tuple[ParamRow, ...]
    notes: tuple[str, ...] = ()


class ParamDifference(Record):
    """One parameter with different values in two environments; secrets are masked."""

    component: str
    name: str
    first: Any
    second: Any


class ParamDiff(Record):
    """Where two environments differ."""

    first: str
    second: str
    rows: tuple[ParamDifference, ...]


def set_param(
    app: AppDir,
    place: ParamScope,
    key: str,
    text: str,
    *,
    as_string: bool = False,
    resolve_image: bool = False,
) -> ParamChanged:
    """Set a value, typed by what the prototype declares; nothing else in the file changes.

    In `key` dots lead to places inside the parameter, `[0]` to an item of a list: where the level has no
    list of its own, it gets the one that counts there, with that item changed. `as_string` keeps the text;
    with `resolve_image` it is an image that gets the digest its registry has for it now.
    """
    if resolve_image:
        from mlstack.registries.images import pinned

        _declared(app, place, key)  # what is misspelt is told before anybody is asked
        text = pinned(text)
    with app.locked():
        path, param, prototype = _declared(app, place, key)
        value = parse_text(inner_param(param, path[1:]), text, as_string=as_string)
        if param.secret:
            masking.note(secret_literals(value), *([] if isinstance(value, dict) else [text]))
        path, value = _with_whole_list(app, place, path, value)
        if faults := _typed_faults(param, path[1:], value):
            raise TypedValueError("\n".join(faults), hint=f"mlstack prototype describe {prototype}")
        # What reads files comes before anything is written.
        notes = [*renamed(str(split_path(key)[0]), param.name), *_notes(app, place, param)]
        file, changed = app.set_param(place, path, value)
    return ParamChanged(
        name=join_path(path),
        value=mask_value(value, param),
        place=str(place),
        file=file,
        changed=changed,
        notes=tuple(notes),
    )


def _notes(app: AppDir, place: ParamScope, param: Param) -> Iterator[str]:
    """Tell that a parameter is deprecated, and in which environments another value counts."""
    if param.deprecated:
        yield f"`{param.name}` is deprecated: {param.deprecated}"
    if place.component is None or place.personal:
        return
    component = app.component_with_params(place.component)
    for environment in (place.environment,) if place.environment else app.environment_names:
        later = (layout.encrypted_params_file(environment), layout.OVERRIDES)
        with suppress(ParamError):  # it may be what is being mended
            setting = app.resolve(component, environment).setting(param.name)
            if setting is None or not setting.layer.startswith("environment"):
                continue
            if place.environment is None or setting.origin.file in later:
                yield f"in `{environment}` another value counts ({setting.origin})"


def _typed_faults(param: Param, inside: KeyPath, value: Any) -> Sequence[str]:
    """Say what is wrong with a value at a place inside a parameter.

    The rest of a map is checked when it renders, and so are items of a list, and what stands elsewhere.
    """
    is_elsewhere = param.secret and any(True for _ in reference_paths(with_references(value)))
    if value is None or is_elsewhere or not all(isinstance(part, str) for part in inside):
        return []
    kept = merge({}, value) if isinstance(value, Mapping) else value  # null removes what lies below
    return check_value(param, nested(inside, kept))


def _with_whole_list(app: AppDir, place: ParamScope, path: KeyPath, value: Any) -> tuple[KeyPath, Any]:
    """Give the list to set where the level has none that holds an item; the path as it is everywhere else."""
    first = next((number for number, part in enumerate(path) if isinstance(part, int)), None)
    if first is None:
        return path, value
    below = app.own_param(place, path[:first])
    is_own = isinstance(below, list)
    if place.component is not None and not is_own:
        component = app.component_with_params(place.component)
        below = at(app.resolve(component, place.environment).values, path[:first])
    try:
        whole = merge(below, nested(path[first:], value))
    except IndexError as error:
        hint = f"write a whole list: mlstack param set … {join_path(path[:first])} '[a, b]'"
        raise TypedValueError(f"`{join_path(path)}`: {error}", hint=hint) from error
    return (path, value) if is_own else (path[:first], whole)


def _declared(app: AppDir, place: ParamScope, key: str) -> tuple[KeyPath, Param, str]:
    """Give the path with its parameter spelled canonically, what declares it, and a prototype that does."""
    if place.environment is not None:
        app.environment(place.environment)
    if place.module is not None:
        app.check_known_module(place.module)
    path = split_path(key)
    if "" in path:
        raise UsageError(f"`{key}` is not a parameter's name", hint="write num_gpus, or resources.limits.cpu")
    if place.component is not None:
        name = app.component_with_params(place.component).prototype
        prototype = app.prototype(name, environment=place.environment)
        spelling, old_names = str(path[0]), prototype.current_names(str(path[0]))
        if spelling not in spelling_table(prototype.params) and len(old_names) == 1:
            spelling = next(iter(old_names)) or spelling
        param = prototype.param(canonical_name(prototype, spelling))
        return (param.name, *path[1:]), param, name.rpartition("/")[2]
    params = app.vendor.declared_params()
    name = str(path[0])
    spelling = name if name in params else name.replace("-", "_")
    if spelling in params:
        param = params[spelling]
        owners = (prototype.name for prototype in app.vendor.prototypes() if param.name in prototype.params)
        return (param.name, *path[1:]), param, next(owners)
    if name in app.component_files:
        hint = f"mlstack param list {name}"
        raise UsageError(f"`{name}` is a component: which of its parameters?", hint=hint)
    hint = "mlstack prototype list, then mlstack prototype describe PROTOTYPE"
    raise not_found(f"no installed prototype has a parameter `{name}`", name, params, hint=hint)


def unset_param(app: AppDir, place: ParamScope, key: str) -> ParamUnset:
    """Take a value back, so that the next lower level counts."""
    with app.locked():
        path, param, _ = _declared(app, place, key)
        name = join_path(path)
        _counts_now(app, place, str(path[0]))  # a file that cannot be read is told before anything is written
        file = _unset_item(app, place, path, param) or app.unset_param(place, path)
        if file is None:
            hint = "mlstack param list shows where values are set"
            if place.component is not None:
                component = app.component_with_params(place.component)
                setting = app.resolve(component, place.environment).setting(str(path[0]))
                hint = f"it comes from {setting.origin}" if setting else "it has no value at any level"
            raise NotFoundError(f"`{name}` is not set for {place}", hint=hint)
        notes = (*renamed(str(split_path(key)[0]), str(path[0])), *_counts_now(app, place, str(path[0])))
        return ParamUnset(name=name, place=str(place), file=file, notes=notes)


def _unset_item(app: AppDir, place: ParamScope, path: KeyPath, param: Param) -> str | None:
    """Give a part of a list that `set` has copied from lower levels its value there again.

    With its last part of its own the copy goes as well. Gives the file, None where the list is no such copy.
    """
    depth = next((number for number, part in enumerate(path) if isinstance(part, int)), 0)
    around, inside = path[:depth], path[depth:]
    own = deepcopy(app.own_param(place, around)) if depth and place.component else None
    is_appended = (inner_schema(param.schema, around[1:]) or {}).get("x-merge") == "append"
    if not isinstance(own, list) or at(own, inside) is None or is_appended:
        return None
    lower, owner = _lower(app, place, around, param), at(own, inside[:-1])
    if not isinstance(lower, list) or len(own) < len(lower):
        return None
    before = owner[inside[-1]] = at(lower, inside)
    if before is None:
        del owner[inside[-1]]
        if not owner and inside[1:] and at(lower, inside[:-1]) is None:  # `set` has made it, too
            return _unset_item(app, place, path[:-1], param) or app.unset_param(place, path[:-1])
    if own == lower:
        return app.unset_param(place, around)
    return app.set_param(place, path, before)[0] if before is not None else None


def _lower(app: AppDir, place: ParamScope, path: KeyPath, param: Param) -> Any:
    """Give what the levels below that of a component say at a path."""
    file = app.edited_param(place, path)[0].file
    try:
        component = app.component_with_params(str(place.component))
        chain = app.resolve(component, place.environment).chains.get(str(path[0]), ())
    except ParamError:  # this value may be what is wrong
        return None
    own = [number for number, setting in enumerate(chain) if setting.origin.file == file]
    return at(folded(param, chain[: own[-1]]), path[1:]) if own else None


def _counts_now(app: AppDir, place: ParamScope, name: str) -> tuple[str, ...]:
    if place.component is None:
        return ()
    component = app.component_with_params(place.component)
    try:
        resolved = app.resolve(component, place.environment)
    except ParamError:  # another parameter may be wrong, or this one is what is being mended
        return ()
    setting = resolved.setting(name)
    if setting is None or resolved.values.get(name) is None:
        return (f"`{name}` has no value now",)
    return (f"what counts now comes from {setting.origin}",)


def list_params(
    app: AppDir,
    *,
    component: str | None = None,
    environment: str | None = None,
    module: str | None = None,
    set_only: bool = False,
    overrides: Overrides | None = None,
) -> ParamList:
    """List the values that a render would use; parameters without one are left out.

    Without an environment what environments set is left out, with `set_only` the defaults of prototypes.
    """
    place = app.environment(environment) if environment is not None else None
    names = [name for name in (component, module) if name is not None]
    if component is not None:
        app.component_with_params(component)
    components = app.selected(place, names)
    rows = [
        row
        for chosen in components
        if isinstance(chosen, Component)
        for row in _rows(app, chosen, environment, overrides)
        if not (set_only and row.level == "default")
    ]
    notes = app.undeclared_globals(environment, components)
    return ParamList(environment=environment, rows=tuple(rows), notes=notes)


def list_own_params(
    app: AppDir, *, component: str | None = None, environment: str | None = None, module: str | None = None
) -> ParamList:
    """List what one level itself sets, as its files have it: with neither name nor option, the whole app.

    Of an environment without a component, what it sets for all and for each component.
    """
    scope = ParamScope(component=component, environment=environment, module=module)
    if component is not None:
        app.component_with_params(component)
    if module is not None:
        app.check_known_module(module)
    if environment is None:
        layers = [(component or "", app.own_layer(scope))]
    else:
        own = app.environment_files(environment)
        layers = [("", layer) for layer in own.for_all]
        names = sorted({*own.components, *own.encrypted_components})
        layers += [(name, layer) for name in names for layer in own.for_component(name)]
        layers = [(name, layer) for name, layer in layers if component in (None, name)]
    rows = [row for name, layer in layers for row in _own_rows(app, name, layer, environment)]
    return ParamList(environment=environment, rows=tuple(rows))


def _own_rows(app: AppDir, component: str, layer: Layer, environment: str | None) -> Iterator[ParamRow]:
    if component:
        chosen = app.component(component)
        params = app.prototype_of(chosen, environment).params if isinstance(chosen, Component) else {}
    else:
        params = app.vendor.declared_params()
    spellings = spelling_table(params)
    for name, value in layer.values.items():
        shown, origin = mask_value(value, params.get(spellings.get(name, ""))), layer.origins.get((name,))
        yield ParamRow(
            component=component, name=name, value=shown, level=layer.kind, origin=str(origin or layer.kind)
        )


def _rows(
    app: AppDir, component: Component, environment: str | None, overrides: Overrides | None
) -> Iterator[ParamRow]:
    prototype = app.prototype_of(component, environment)
    resolved = app.resolve(component, environment, overrides)
    for name, value in resolved.values.items():
        setting = resolved.setting(name)
        if value is not None and setting is not None:
            yield ParamRow(
                component=component.full_name,
                name=name,
                value=mask_value(value, prototype.param(name)),
                level=setting.layer,
                origin=str(setting.origin),
            )


def diff_params(app: AppDir, first: str, second: str, *, components: Sequence[str] = ()) -> ParamDiff:
    """Compare the values of two environments."""
    places = (app.environment(first), app.environment(second))
    chosen = {
        component.full_name: component for place in places for component in app.selected(place, components)
    }
    rows = []
    for full_name, component in sorted(chosen.items()):
        if not isinstance(component, Component):
            continue
        left, right = (app.resolve(component, environment).values for environment in (first, second))
        of_first, of_second = (app.prototype_of(component, environment) for environment in (first, second))
        for name in {**left, **right}:
            if not same(left.get(name), right.get(name)):
                both = {"first": mask_value(left.get(name), of_first.param(name))}
                both["second"] = mask_value(right.get(name), of_second.param(name))
                rows.append(ParamDifference(component=full_name, name=name, **both))
    return ParamDiff(first=first, second=second, rows=tuple(rows))


# --- promotion: one edit that is shown first ---


PromotionKind = Literal["image", "version", "param"]
KINDS: Mapping[str, PromotionKind] = {"images": "image", "versions": "version", "params": "param"}
"""What `--only` takes, and what it lets through."""
_IMAGE = re.compile(r"image|(^|[_-])tag$|Tag$", re.IGNORECASE)


class Promotion(Record):
    """One value or package version that changes in the target."""

    kind: PromotionKind
    component: str  # empty for what is for all, and for packages
    name: str
    before: Any  # what counts in the target now, None for nothing
    after: Any  # what counts in the source


class PromotionPlan(Record):
    """What a promotion would change, and with `done` what it has changed."""

    source: str  # the environment that is followed
    target: str  # the one whose files change
    changes: tuple[Promotion, ...]  # each value and version that becomes another one
    files: tuple[str, ...]  # of the target, below the app directory
    done: bool = False  # whether the files were written
    notes: tuple[str, ...] = ()  # what was left out, and why
    # what the files would hold, by name; never printed
    contents: Mapping[str, str] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Give all but the content of the files."""
        return {key: value for key, value in vars(self).items() if key != "contents"}


def plan_promotion(
    app: AppDir, source: str, target: str, *, components: Sequence[str] = (), only: Collection[str] = ()
) -> PromotionPlan:
    """Work out what the target's files would say after a promotion; nothing is written.

    It takes over what the source sets for single components, and images that it sets for all; what the target
    sets and the source does not stays, and so do secret parameters. Versions of packages are for all
    components, so they stay where `components` are named. `only` are some of `KINDS`; none means all.
    """
    if source == target:
        raise UsageError(f"`{source}` cannot be promoted to itself", hint="mlstack promote FROM TO")
    if (word := next((word for word in only if word not in KINDS), None)) is not None:
        raise UsageError(f"`--only {word}` means nothing", hint=f"use {', '.join(KINDS)}")
    kinds = {KINDS[word] for word in only or KINDS}
    app.environment(target)
    params = app.edited(layout.environment_params_file(target), "EnvironmentParams")
    settings = app.edited(layout.environment_file(target), "Environment")
    values, notes = _values(app.without_personal(), source, target, components)
    changes = [change for change in values if change.kind in kinds]
    after = {}
    for change in changes:
        scope = ParamScope(component=change.component or None, environment=target)
        after[app.edited_param(scope, split_path(change.name), params)[1]] = change.after
    params.set_all(after)
    if "version" in kinds and not components and (versions := [*_versions(app, source, target)]):
        changes += versions
        present = app.environment_files(target).environment.packages
        moved = {ref.full_name: ref for ref in (*present, *app.environment(source).packages)}
        settings.set(("packages",), [str(ref) for ref in moved.values()])
    edited = changed_texts([params, settings])
    told: dict[str, Any] = {"changes": tuple(changes), "files": tuple(edited), "notes": tuple(notes)}
    return PromotionPlan(source=source, target=target, contents=edited, **told)


def _versions(app: AppDir, source: str, target: str) -> Iterator[Promotion]:
    before = {ref.full_name: ref for ref in app.environment(target).packages}
    for ref in app.environment(source).packages:
        previous: PackageRef | None = before.get(ref.full_name)
        if previous != ref:
            versions = {"before": previous.version if previous else None, "after": ref.version}
            yield Promotion(kind="version", component="", name=ref.full_name, **versions)


def _values(
    app: AppReader, source: str, target: str, components: Sequence[str]
) -> tuple[list[Promotion], list[str]]:
    """Give the values that differ, for all components first, and what stays behind."""
    changes, notes = [], []
    declared = app.vendor.declared_params()
    chain, other = (app.environment_chain(name) for name in (source, target))
    own = _leaves([layer.values for files in chain for layer in files.for_all])
    others = _leaves([layer.values for files in other for layer in files.for_all])
    for path, value in own.items() if not components else ():
        name, param, before = join_path(path), declared.get(str(path[0])), others.get(path)
        if _IMAGE.search(name) and not (param and param.secret) and before != value:
            changes.append(Promotion(kind="image", component="", name=name, before=before, after=value))
    for component in app.selected(app.environment(source), components):
        if not isinstance(component, Component):
            continue
        prototype, owner = app.prototype_of(component, source), component.full_name
        layers = [layer.values for files in chain for layer in files.for_component(owner)]
        spellings = spelling_table(prototype.params)
        own = _leaves([{spellings.get(name, name): layer[name] for name in layer} for layer in layers])
        values, target_values = (app.resolve(component, name).values for name in (source, target))
        for path, value in own.items():
            name, before = join_path(path), at(target_values, path)
            if prototype.param(str(path[0])).secret:
                notes.append(f"`{owner}.{name}` is secret and stays as it is in `{target}`")
            elif not same(at(values, path), before):
                kind: PromotionKind = "image" if _IMAGE.search(name) else "param"
                changes.append(Promotion(kind=kind, component=owner, name=name, before=before, after=value))
    return changes, notes


def _leaves(layers: Sequence[Mapping[str, Any]]) -> dict[KeyPath, Any]:
    """Lay layers over each other, and give what they set inside of maps; null takes away what is lower."""
    return dict(_inside(reduce(overlaid, layers, {})))


def _inside(layer: Mapping[str, Any], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in layer.items():
        here = (*path, key)
        yield from _inside(value, here) if isinstance(value, Mapping) else [(here, value)]


def promote(
    app: AppDir, plan: PromotionPlan, *, components: Sequence[str] = (), only: Collection[str] = ()
) -> PromotionPlan:
    """Carry out a promotion that was shown, if the files are still the same."""
    with app.locked():
        again = plan_promotion(app, plan.source, plan.target, components=components, only=only)
        if again != plan:
            message = "the files have changed since this was shown; nothing was written"
            raise ConfigError(message, hint=f"mlstack promote {plan.source} {plan.target}")
        app.write(plan.contents)
    return PromotionPlan(**{**vars(plan), "done": True})
