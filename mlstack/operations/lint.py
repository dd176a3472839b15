"""`param lint`: values and patches without which no object in any environment would be another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal

from mlstack.app import files
from mlstack.app.app import Component
from mlstack.app.app_dir import AppDir
from mlstack.app.params import GLOBAL_LAYERS, Layer, Setting, folded
from mlstack.app.prototype import Param
from mlstack.app.reader import read_preset
from mlstack.dataclass import dataclass
from mlstack.render.patches import patched, read_patch
from mlstack.render.reach import NO_FIELD, ComponentTrials
from mlstack.render.render import Loader
from mlstack.render.template import CodeStore

FindingKind = Literal["same", "hidden", "no effect", "unused", "patch"]


@dataclass(frozen=True, kw_only=True)
class LintFinding:
    """One value or patch that could go."""

    kind: FindingKind
    component: str  # empty for what is set for all
    name: str  # the parameter, or the object that a patch names
    where: str  # file and line
    message: str


@dataclass(frozen=True, kw_only=True)
class LintResult:
    """What could go."""

    ok: bool  # true if there is nothing
    environments: tuple[str, ...]  # in which it was tried
    findings: tuple[LintFinding, ...]


@dataclass(kw_only=True)
class _Use:
    """What is known of one setting in a file, over all components and environments that it speaks to."""

    setting: Setting
    name: str
    component: str = ""
    is_same: bool = True  # it says what the layer below says, wherever it applies
    counts_in: list[tuple[Component, str | None]] = field(default_factory=list)


def lint_params(app: AppDir, *, components: Sequence[str] = (), store: CodeStore | None = None) -> LintResult:
    """Find what could go: values and patches that change no object in any environment.

    Without environments it is tried as all of them would share it. `components` are the only components and
    modules of which values are looked at.

    Raises:
        NotFoundError: no such component or module.
        ConfigError: a file is wrong, or an environment does not render.
    """
    chosen = {component.full_name for component in app.selected(None, components)}
    names: Sequence[str | None] = app.environment_names or (None,)
    uses = _uses(app, names, chosen)
    findings = [finding for use in uses.values() for finding in _judged(app, use, store=store)]
    if not components:
        findings += _unused(app, {where for where, _ in uses})
    findings += [
        finding for name in app.environment_names for finding in _patches(app, name, chosen, store=store)
    ]
    findings.sort(key=lambda finding: (finding.where.rpartition(":")[0], _line(finding.where), finding.name))
    return LintResult(ok=not findings, environments=tuple(app.environment_names), findings=tuple(findings))


def _line(where: str) -> int:
    number = where.rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def _uses(app: AppDir, names: Sequence[str | None], chosen: set[str]) -> dict[tuple[str, str], _Use]:
    """Give every setting of every file by place and name, with what it does where it applies."""
    uses: dict[tuple[str, str], _Use] = {}
    for environment in names:
        place = app.environment(environment) if environment is not None else None
        for component in app.selected(place):
            if not isinstance(component, Component) or component.full_name not in chosen:
                continue
            prototype = app.prototype(component.prototype, environment=environment)
            for name, chain in app.resolve(component, environment).chains.items():
                param = prototype.param(name)
                for number, setting in enumerate(chain):
                    if setting.layer == "default":
                        continue
                    is_shared = setting.layer in GLOBAL_LAYERS
                    owner = "" if is_shared else component.full_name
                    fresh = _Use(setting=setting, name=name, component=owner)
                    use = uses.setdefault((str(setting.origin), name), fresh)
                    use.is_same = use.is_same and _is_same(param, chain, number)
                    if folded(param, chain) != folded(param, [*chain[:number], *chain[number + 1 :]]):
                        use.counts_in.append((component, environment))
    return uses


def _is_same(param: Param, chain: Sequence[Setting], number: int) -> bool:
    return bool(folded(param, chain[:number]) == folded(param, chain[: number + 1]))


def _judged(app: AppDir, use: _Use, *, store: CodeStore | None) -> Iterator[LintFinding]:
    facts: dict[str, Any] = {"component": use.component, "name": use.name, "where": str(use.setting.origin)}
    if not use.counts_in and use.is_same:
        yield LintFinding(kind="same", message="says what counts without it", **facts)
    elif not use.counts_in:
        yield LintFinding(kind="hidden", message="other values count wherever it applies", **facts)
    elif all(
        ComponentTrials(app, component, environment=environment, store=store).reaches(use.name)
        == ((), NO_FIELD)
        for component, environment in use.counts_in
    ):
        yield LintFinding(kind="no effect", message="no object in any environment depends on it", **facts)


def _unused(app: AppDir, seen: set[str]) -> Iterator[LintFinding]:
    """Find what is set for components that are not deployed there, or for all and taken by none."""
    folder = files.folder("environments")
    presets = [read_preset(folder / name).globals.values for name in files.presets()]
    layers: list[tuple[str, Layer]] = [("", layer) for layer in app.all_shared_layers()]
    for name in app.environment_names:
        own = app.environment_files(name)
        layers += [("", layer) for layer in own.for_all]
        for component in (*own.components, *own.encrypted_components):
            layers += [(component, layer) for layer in own.for_component(component)]
    for component, layer in layers:
        for name, value in layer.values.items():
            where = str(layer.origins.get((name,), layer.kind))
            is_preset = not component and any(preset.get(name) == value for preset in presets)
            if where not in seen and not is_preset:
                reason = "the component is not deployed there" if component else "no component takes it there"
                yield LintFinding(kind="unused", component=component, name=name, where=where, message=reason)


def _patches(
    app: AppDir, environment: str, chosen: set[str], *, store: CodeStore | None
) -> Iterator[LintFinding]:
    """Find the patches of an environment's own that change nothing in it."""
    place = app.environment(environment)
    deployed = {component.full_name: component for component in app.selected(place)}
    loader = Loader(app, replace(place, file=""), store=store, stand_ins=True)  # without a file: unpatched
    for name in sorted(chosen & app.own_patches(environment).keys()):
        documents = app.patches(environment, name)
        if name not in deployed:
            for document in documents:
                yield _finding(
                    document.value, name, str(document.origin()), "its component is not deployed there"
                )
            continue
        objects: Sequence[Mapping[str, Any]] = [obj.data for obj in loader.render(deployed[name]).objects]
        for document in documents:
            changed = patched(objects, [read_patch(document.value, where=str(document.origin()))])
            kept = [data for data in changed if data is not None]
            if kept == list(objects) and document.file == app.own_patches(environment)[name]:
                yield _finding(document.value, name, str(document.origin()), "it changes nothing")
            objects = kept


def _finding(patch: Mapping[str, Any], component: str, where: str, message: str) -> LintFinding:
    target = patch.get("target") or {"kind": patch.get("kind"), **(patch.get("metadata") or {})}
    name = f"{target.get('kind')} {target.get('name') or ''}".strip()
    return LintFinding(kind="patch", component=component, name=name, where=where, message=message)
