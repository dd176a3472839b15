"""`promote`: bring what one environment sets and runs to another, as one edit that is shown first."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from mlstack.app import layout
from mlstack.app.app import Component, PackageRef
from mlstack.app.app_dir import AppDir
from mlstack.app.params import ParamScope, merge, spelling_table
from mlstack.app.prototype import Param
from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError, UsageError

Kind = Literal["image", "version", "param"]
KINDS: Mapping[str, Kind] = {"images": "image", "versions": "version", "params": "param"}
"""What `--only` takes, and what it lets through."""
_IMAGE = re.compile(r"image|(^|[_-])tag$|Tag$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """One value or package version that changes in the target."""

    kind: Kind
    component: str  # empty for what is for all, and for packages
    name: str
    before: Any  # what counts in the target now, None for nothing
    after: Any  # what counts in the source


@dataclass(frozen=True, kw_only=True)
class PromotionPlan:
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
    components, so they stay where `components` are named.

    Args:
        app: the app directory.
        source: name of the environment that is followed.
        target: name of the one whose files change.
        components: only these components and modules.
        only: some of `KINDS`; none means all.

    Raises:
        UsageError: both are one environment, or `only` holds another word.
        NotFoundError: no such environment or component.
    """
    if source == target:
        raise UsageError(f"`{source}` cannot be promoted to itself", hint="mlstack promote FROM TO")
    for word in only:
        if word not in KINDS:
            raise UsageError(f"`--only {word}` means nothing", hint=f"use {', '.join(KINDS)}")
    kinds = {KINDS[word] for word in only or KINDS}
    app.environment(target)
    params = app.edited(layout.environment_params_file(target), "EnvironmentParams")
    settings = app.edited(layout.environment_file(target), "Environment")
    values, notes = _values(app, source, target, components)
    changes = [change for change in values if change.kind in kinds]
    for change in changes:
        scope = ParamScope(component=change.component or None, environment=target)
        _, path = app.edited_param(scope, (change.name,), params)
        params.set(path, change.after)
    if "version" in kinds and not components:
        changes += _versions(app, source, target)
        refs = {ref.full_name: ref for ref in app.environment_files(target).environment.packages}
        moved = {**refs, **{ref.full_name: ref for ref in app.environment(source).packages}}
        if any(change.kind == "version" for change in changes):
            settings.set(("packages",), [str(ref) for ref in moved.values()])
    edited = {file.file: file.text for file in (params, settings) if file.changed}
    return PromotionPlan(
        source=source,
        target=target,
        changes=tuple(changes),
        files=tuple(edited),
        notes=tuple(notes),
        contents=edited,
    )


def _versions(app: AppDir, source: str, target: str) -> Iterator[Promotion]:
    before = {ref.full_name: ref for ref in app.environment(target).packages}
    for ref in app.environment(source).packages:
        known: PackageRef | None = before.get(ref.full_name)
        if known != ref:
            version = known.version if known else None
            yield Promotion(
                kind="version", component="", name=ref.full_name, before=version, after=ref.version
            )


def _values(
    app: AppDir, source: str, target: str, components: Sequence[str]
) -> tuple[list[Promotion], list[str]]:
    """Give the values that differ, for all components first, and what stays behind."""
    changes, notes = [], []
    chain = app.environment_chain(source)
    declared = app.vendor.declared_params()
    own = _merged([layer.values for files in chain for layer in files.for_all])
    there = _merged([layer.values for files in app.environment_chain(target) for layer in files.for_all])
    for name, value in own.items() if not components else ():
        is_secret = name in declared and declared[name].secret
        if _IMAGE.search(name) and not is_secret and there.get(name) != value:
            changes.append(
                Promotion(kind="image", component="", name=name, before=there.get(name), after=value)
            )
    for component in app.selected(app.environment(source), components):
        if not isinstance(component, Component):
            continue
        prototype = app.prototype(component.prototype, environment=source)
        layers = [layer for files in chain for layer in files.for_component(component.full_name)]
        spellings = spelling_table(prototype.params)
        own = _merged(
            [{spellings.get(name, name): layer.values[name] for name in layer.values} for layer in layers]
        )
        mine, its = (app.resolve(component, name).values for name in (source, target))
        for name, value in own.items():
            param = prototype.param(name)
            if param.secret:
                notes.append(f"`{component.full_name}.{name}` is secret and stays as it is in `{target}`")
            elif mine.get(name) != its.get(name):
                changes.append(
                    Promotion(
                        kind=_kind(param),
                        component=component.full_name,
                        name=name,
                        before=its.get(name),
                        after=value,
                    )
                )
    return changes, notes


def _kind(param: Param) -> Kind:
    return "image" if _IMAGE.search(param.name) else "param"


def _merged(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Lay the values of layers over each other; null stays, as it takes away what lower ones say."""
    values: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            values[name] = merge(values.get(name), value)
    return values


def promote(
    app: AppDir, plan: PromotionPlan, *, components: Sequence[str] = (), only: Collection[str] = ()
) -> PromotionPlan:
    """Carry out a promotion that was shown, if the files are still the same.

    Raises:
        ConfigError: the files say something else by now.
    """
    with app.locked():
        again = plan_promotion(app, plan.source, plan.target, components=components, only=only)
        if again != plan:
            message = "the files have changed since this was shown; nothing was written"
            raise ConfigError(message, hint=f"mlstack promote {plan.source} {plan.target}")
        app.write(plan.contents)
    return PromotionPlan(**{**vars(plan), "done": True})
