"""Imports of what other tools deploy: charts and releases of Helm, kustomizations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlstack.app import files, layout, params
from mlstack.app.app import Component, Kustomization
from mlstack.app.app_dir import AppDir
from mlstack.app.chart import read_head
from mlstack.app.environment import Environment
from mlstack.dataclass import dataclass
from mlstack.deploy.diff import ADOPT
from mlstack.errors import UsageError
from mlstack.importers import helm, kustomize, manifests, variants
from mlstack.importers.helm import ChartSource
from mlstack.importers.plan import Data
from mlstack.importers.write import Imported, ImportFailure, prove, summary, write_plan
from mlstack.names import check_environment_name
from mlstack.registries.kustomize import fetch
from mlstack.render import kustomize as render_kustomize
from mlstack.render.helm import helm_version

if TYPE_CHECKING:
    from mlstack.kube.client import Opener


@dataclass(frozen=True, kw_only=True)
class HelmRequest:
    """A chart or a release to be imported, and how."""

    chart: ChartSource | None = None
    live: str = ""  # name of a release in the cluster of the environment
    name: str = ""  # of release and component; the chart's without it
    namespace: str = ""  # where objects go without an environment, where the release is
    environments: tuple[str, ...] = ()  # all of the app if none is named
    values: tuple[tuple[str, Path], ...] = ()  # files with the environment they are for; empty for all
    sets: tuple[str, ...] = ()  # `key.inner=value`, for all
    hooks: bool = False  # keep what helm runs by itself
    adopt: bool = False  # the next apply takes the objects over from Helm
    module: str = ""
    keep_proof: Path | None = None
    replace: bool = False


def import_helm(app: AppDir, request: HelmRequest, *, opener: Opener | None = None) -> Imported:
    """Import what a chart renders, or what a release has applied, as a plain manifest with patches.

    Raises:
        NotFoundError: no such chart, release, environment or values file.
        RegistryError: there is no helm, or it cannot bring the chart.
        TemplateError: the chart does not render, or something else each time.
        ClusterError: the release cannot be read.
        UsageError: a component of that name is there.
    """
    places = [app.environment(name) for name in request.environments or app.environment_names]
    if request.live:
        return _import_release(app, request, places, opener)
    if request.chart is None:
        raise UsageError("which chart?", hint="mlstack import helm CHART, or --live RELEASE")
    chart = helm.fetch(request.chart)
    helm_version()
    name = request.name or manifests.component_name(str(read_head(chart.files, source=chart.folder)["name"]))
    pseudo = Environment(name="default", namespace=request.namespace or "default")
    objects: dict[str, Sequence[Data]] = {}
    notes: dict[str, None] = {}
    for place in places or [pseudo]:
        listed, remarks = helm.rendered(
            chart, name, place, _helm_values(request, place.name), hooks=request.hooks
        )
        objects[place.name] = [_marked(data) if request.adopt else data for data in listed]
        notes |= dict.fromkeys(remarks)
    source = f"the chart {request.chart.place}"
    return _import_objects(app, request, name, objects, places, source=source, notes=notes, pseudo=pseudo)


def _import_release(
    app: AppDir, request: HelmRequest, places: Sequence[Environment], opener: Opener | None
) -> Imported:
    if len(places) != 1 or opener is None:
        raise UsageError("of which environment is the cluster?", hint="name one: --env ENV")
    place = places[0]
    namespace = request.namespace or place.namespace
    live = helm.read_release(opener(place.context), request.live, namespace, hooks=request.hooks)
    notes = dict.fromkeys(live.notes)
    objects = [_marked(data) if request.adopt else data for data in live.objects]
    how = "" if request.adopt else " --adopt"
    notes[f"mlstack apply {place.name}{how} takes the objects over without making them anew"] = None
    notes[
        f"once that is done, Helm forgets the release by: kubectl delete secret -n {live.namespace}"
        f" -l owner=helm,name={live.name}"
    ] = None
    source = f"the release {live.name} of {live.chart}"
    name = request.name or manifests.component_name(live.name)
    return _import_objects(app, request, name, {place.name: objects}, places, source=source, notes=notes)


def _helm_values(request: HelmRequest, environment: str) -> dict[str, Any]:
    """Lay files and `--set` over each other as helm does."""
    values: Any = {}
    for owner, file in request.values:
        if owner in ("", environment):
            layer = files.read_values(file).globals
            values = params.overlaid(values, layer.values)
    for text in request.sets:
        option = params.parse_set(text)
        value: Any = params.parse_text(None, option.text)
        for part in reversed(option.path):
            value = {part: value}
        values = params.overlaid(values, value)
    return dict(values)


def _marked(data: Data) -> Data:
    """Give an object that the next apply takes over."""
    metadata = dict(data.get("metadata") or {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), ADOPT: "true"}
    return {**data, "metadata": metadata}


def _import_objects(
    app: AppDir,
    request: HelmRequest,
    name: str,
    objects: Mapping[str, Sequence[Data]],
    places: Sequence[Environment],
    *,
    source: str,
    notes: Mapping[str, None],
    pseudo: Environment | None = None,
) -> Imported:
    """Plan, prove and write one component; without environments its objects are `pseudo`'s."""
    full_name = f"{request.module}.{name}" if request.module else name
    named = {full_name: objects}
    compared = list(places) or ([pseudo] if pseudo else [])
    is_all = not set(app.component_files) - {full_name}
    plan, refused = variants.plan(named, compared, sources={full_name: source}, all_targets=is_all)
    proofs = prove(named, plan, compared, request.keep_proof)
    failures = [ImportFailure(component=c, environment=e, reason=reason) for c, e, reason in refused]
    if not places:
        plan = replace(plan, environments=(), patches={})
    with app.locked():
        written = write_plan(app, plan, replace=request.replace)
    return replace(
        written,
        environments=tuple(proofs),
        failures=tuple(failures),
        notes=(*notes, *plan.notes),
        summary=summary(proofs, failures),
    )


@dataclass(frozen=True, kw_only=True)
class Referred:
    """A component that kustomize builds from now on."""

    name: str
    file: str  # below the app directory
    source: str  # what kustomize builds: a folder, or the address of another's
    folder: str = ""  # the copy in vendor/, where it is somebody else's
    digest: str = ""  # of the copy, as mlstack.lock has it


def import_kustomization(app: AppDir, folder: Path, request: HelmRequest) -> Imported:
    """Import a folder's kustomization: a manifest of its base, and what overlays change as patches.

    Raises:
        NotFoundError: there is no kustomization.
        ConfigError: one does not build.
        RegistryError: there is neither kustomize nor kubectl.
        UsageError: a component of that name is there.
    """
    overlays = kustomize.overlays(folder)
    name = request.name or kustomize.name_of(folder)
    known = {place: app.environment(place) for place in app.environment_names}
    objects, places = {}, []
    for overlay in overlays:
        own = known.get(overlay.environment)
        namespace = overlay.namespace or (own.namespace if own else "default")
        place = own or Environment(name=overlay.environment or "default", namespace=namespace)
        if overlay.environment:
            check_environment_name(place.name)
            places.append(place)
        objects[place.name] = overlay.objects
    pseudo = None if places else Environment(name="default", namespace=overlays[0].namespace or "default")
    notes = {
        f"environment `{place.name}` has no context: mlstack env set {place.name} --context NAME": None
        for place in places
        if place.name not in known
    }
    source = f"the kustomization {folder}"
    return _import_objects(app, request, name, objects, places, source=source, notes=notes, pseudo=pseudo)


def refer_to_kustomization(
    app: AppDir, source: str, *, name: str = "", module: str = "", replace: bool = False, update: bool = False
) -> Referred:
    """Make a component of somebody else's kustomization, whose copy goes into `vendor/`, or of a folder.

    Raises:
        RegistryError: it cannot be fetched, or is not what mlstack.lock says (unless `update`).
        UsageError: there is a component of that name (unless `replace`).
    """
    own = manifests.component_name(
        name or re.split("[/@?]+", source.partition("?")[0].rpartition("@")[0] or source)[-1]
    )
    component = Component(name=own, module=module, kustomize=source, file=layout.component_file(module, own))
    kustomization = Kustomization(name=own, module=module, source=source, file=component.file)
    if not kustomization.is_remote:
        render_kustomize.build(app, kustomization)
        with app.locked():
            file = app.add_component(component, replace=replace)
        return Referred(name=component.full_name, file=file, source=source)
    known = next((entry for entry in app.lock.kustomizations if entry.source == source), None)
    entry, copied = fetch(source, None if update else known)
    with app.locked():
        file = app.add_component(component, replace=replace, copies=[(entry, copied)])
    return Referred(
        name=component.full_name, file=file, source=source, folder=entry.folder, digest=entry.digest
    )
