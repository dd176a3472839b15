"""Imports: manifests and apps of others become components of an app."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mlstack.app import atomic, files, layout, params
from mlstack.app.app import (
    API_VERSION,
    Component,
    Environment,
    Kustomization,
    LockedKustomization,
    PackageRef,
    RegistryRef,
)
from mlstack.app.app_dir import AppDir
from mlstack.app.chart import read_head
from mlstack.app.declare import to_map
from mlstack.app.document import decode
from mlstack.app.edit import EditedFile, app_lock
from mlstack.app.files import read_file
from mlstack.app.index import offers
from mlstack.app.package import digest
from mlstack.deploy.diff import ADOPT
from mlstack.errors import ConfigError, MlstackError, RegistryError, UsageError
from mlstack.importers import (
    convert,
    helm,
    ksonnet,
    kustomize,
    manifests,
    modernise,
    proof,
    templated,
    variants,
)
from mlstack.importers.compose import Composition, Options, compose
from mlstack.importers.helm import ChartSource
from mlstack.importers.ksonnet import KsApp
from mlstack.importers.plan import Data, ImportPlan, PlannedComponent, PlannedPackage
from mlstack.importers.proof import EnvironmentProof
from mlstack.names import (
    check_component_name,
    check_environment_name,
    check_module_name,
    check_namespace,
    check_new_name,
)
from mlstack.registries import git, installation
from mlstack.registries.directory import build_index
from mlstack.registries.registry import INDEX_FILE, indexes
from mlstack.registries.resolver import APP
from mlstack.render import kustomize as render_kustomize
from mlstack.render import render
from mlstack.yaml import write

if TYPE_CHECKING:
    from mlstack.kube.client import Opener
    from mlstack.kube.kubeconfig import Kubeconfig

DEFAULT_REGISTRY = RegistryRef(name="kubeflow", address="bundled", protocol="directory")


@dataclass(frozen=True, kw_only=True)
class ImportedRow:
    """One component that was made."""

    name: str
    file: str  # below the app directory
    objects: int
    kinds: tuple[str, ...]
    replaced: bool = False  # there was one of that name before


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import added to an app."""

    components: tuple[ImportedRow, ...]
    environments: tuple[str, ...] = ()  # those that were added
    patches: tuple[str, ...] = ()  # files with what differs between environments
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ManifestsRequest:
    """What is to be imported, and how."""

    places: tuple[str, ...]  # files, folders, URLs, or `-` for standard input
    environments: tuple[tuple[str, str], ...] = ()  # name, and where its own manifests are
    module: str = ""
    name: str | None = None  # of the only component
    split: bool = False
    as_prototype: bool = False  # with parameters for what varies, and what people set
    replace: bool = False


def import_manifests(app: AppDir, request: ManifestsRequest) -> Imported:
    """Make components of manifests; what an environment has otherwise becomes its patches.

    Raises:
        NotFoundError: there is no such file, or no such environment.
        ConfigError: a file is no manifest, or cannot be read.
        RegistryError: the server of a URL does not answer.
        UsageError: nothing to import, or a component of that name is there (unless `replace`).
    """
    planned, notes = _read_manifests(request, request.places)
    plan = ImportPlan(components=tuple(planned), notes=tuple(notes))
    if request.environments:
        plan = _with_environments(app, request, plan)
    if request.as_prototype:
        name = request.name or planned[0].name
        plan = templated.as_prototypes(plan, manifests.component_name(name.replace(".", "-")).lower())
    with app.locked():
        return write_plan(app, plan, replace=request.replace)


def _read_manifests(
    request: ManifestsRequest, places: Sequence[str]
) -> tuple[list[PlannedComponent], list[str]]:
    sources = [source for place in places for source in manifests.read_sources(place)]
    return manifests.components(sources, module=request.module, name=request.name, split=request.split)


_BASE = ""  # stands for environments that have no manifests of their own


def _with_environments(app: AppDir, request: ManifestsRequest, base: ImportPlan) -> ImportPlan:
    """Lay what environments have otherwise over the base: patches, and components of their own."""
    own = {name: app.environment(name) for name, _ in request.environments}
    objects = {component.name: {_BASE: component.objects} for component in base.components}
    notes = [*base.notes]
    for name in own:
        places = [place for environment, place in request.environments if environment == name]
        planned, more = _read_manifests(request, places)
        notes += more
        for component in planned:
            objects.setdefault(component.name, {})[name] = component.objects
    everywhere = Environment(name=_BASE, namespace=_BASE)
    plan, refused = variants.plan(objects, [everywhere, *own.values()], sources={})
    for component_name, environment, reason in refused:
        raise ConfigError(f"component `{component_name}` in `{environment or 'the base'}`: {reason}")
    texts = {component.name: component for component in base.components}
    kept = [_as_written(component, texts) for component in plan.components]
    deployed = {name for place in plan.environments if place.name == _BASE for name in place.targets}
    placed = tuple(place for place in plan.environments if place.name != _BASE)
    others = [name for name in app.environment_names if name not in own]
    if deployed and others:
        extra = ", ".join(sorted({component.name for component in kept} - deployed))
        listed = ", ".join(others)
        notes.append(
            f"{extra}: only for the environments that have it; {listed} deploys it too without `targets`"
        )
    return replace(plan, components=tuple(kept), environments=placed, notes=(*notes, *plan.notes))


def _as_written(component: PlannedComponent, texts: Mapping[str, PlannedComponent]) -> PlannedComponent:
    """Keep the text of a component, with its comments, where it says what is to be deployed."""
    known = texts.get(component.name)
    if known and variants.same([*known.objects], [*component.objects]):
        return known
    return component


@dataclass(frozen=True, kw_only=True)
class ImportFailure:
    """A component that could not be imported for an environment."""

    component: str
    environment: str
    reason: str
    where: str = ""  # file:line below the app of ksonnet


@dataclass(frozen=True, kw_only=True)
class KsonnetImported:
    """What became of an app of ksonnet, and whether its objects stayed equal."""

    folder: str  # the app they were written to
    components: tuple[ImportedRow, ...]
    environments: tuple[EnvironmentProof, ...]  # the proof of each
    failures: tuple[ImportFailure, ...] = ()
    patches: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    summary: str = ""  # `207 of 207 objects equal`

    @property
    def ok(self) -> bool:
        """Tell whether everything was imported, and is equal."""
        return not self.failures and not any(proof.differences for proof in self.environments)


@dataclass(frozen=True, kw_only=True)
class KsonnetRequest:
    """What is to be imported, and how."""

    source: Path
    environments: tuple[str, ...] = ()  # all if none is named
    options: Options = field(default_factory=Options)
    convert: bool = False  # to API versions that are served today
    as_prototype: bool = False  # with the values that vary as parameters, under ksonnet's names
    modernise: bool = False  # components of known prototypes become those of today
    keep_proof: Path | None = None  # a folder for both sides of the proof
    replace: bool = False


def import_ksonnet(
    request: KsonnetRequest, target: AppDir | Path, *, kubeconfig: Kubeconfig | None = None
) -> KsonnetImported:
    """Import an app of ksonnet into an app, or into a new one in a folder; its own folder stays as it is.

    Each component becomes a plain manifest, what differs between environments patches. The objects before and
    after are compared: those that ks composes, and those that the new app renders.

    Raises:
        NotFoundError: there is no app of ksonnet in the folder, or no such environment.
        RegistryError: there is no evaluator of Jsonnet.
        UsageError: the new folder holds something, or a component or environment is there already.
        ConfigError: a file cannot be read or written.
    """
    source = ksonnet.selected(ksonnet.read_app(request.source), request.environments)
    _check_target(target, source)
    if request.keep_proof is not None and request.keep_proof.resolve().is_relative_to(source.root.resolve()):
        message = f"`{request.keep_proof}` lies in the app of ksonnet, which stays as it is"
        raise UsageError(message, hint="name another folder: --keep-proof DIR")
    composition = compose(source, request.options)
    with TemporaryDirectory(prefix="mlstack-import-") as folder:
        told = _fetch_missing(source, composition, Path(folder))
        if any(Path(folder).iterdir()):
            composition = compose(source, replace(request.options, vendor=Path(folder)))
    if request.convert:
        composition, rewritten = _converted(composition)
        told += rewritten
    told += convert.told_unserved(_all_objects(composition), has_converted=request.convert)
    failures = [
        ImportFailure(
            component=failed.component,
            environment=failed.environment,
            reason=failed.reason,
            where=failed.where,
        )
        for failed in composition.failures
    ]
    environments, notes = _environments(source, kubeconfig)
    plan, refused = variants.plan(
        composition.objects,
        environments,
        sources=_sources(source),
        all_targets=isinstance(target, Path),
    )
    if request.as_prototype:
        package = manifests.component_name(source.name).lower()
        plan = templated.as_prototypes(plan, package, known=composition.params)
    failures += [
        ImportFailure(component=component, environment=environment, reason=reason)
        for component, environment, reason in refused
    ]
    notes = [*composition.notes, *told, *plan.notes, *notes]
    if source.unrendered:
        notes.append(f"left out, as no environment targets them: {', '.join(source.unrendered)}")
    proofs = _proofs(composition.objects, plan, environments, request.keep_proof)
    written = _write_app(target, source.name, plan, replace=request.replace)
    if request.modernise:
        app = target if isinstance(target, AppDir) else AppDir(target.absolute())
        with app.locked():
            notes += _modernised(app, source, composition)
    return KsonnetImported(
        folder=str(target.root if isinstance(target, AppDir) else target),
        components=written.components,
        environments=tuple(proofs),
        failures=tuple(failures),
        patches=written.patches,
        notes=tuple(notes),
        summary=_summary(proofs, failures),
    )


# --- charts, releases and kustomizations ---


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


def import_helm(app: AppDir, request: HelmRequest, *, opener: Opener | None = None) -> KsonnetImported:
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
    name = request.name or manifests.component_name(str(read_head(chart.files, source=chart.folder)["name"]))
    pseudo = Environment(name="default", namespace=request.namespace or "default")
    objects: dict[str, Sequence[Data]] = {}
    notes: dict[str, None] = {}
    for place in places or [pseudo]:
        listed, told = helm.rendered(
            chart, name, place, _helm_values(request, place.name), hooks=request.hooks
        )
        objects[place.name] = [_marked(data) if request.adopt else data for data in listed]
        notes |= dict.fromkeys(told)
    source = f"the chart {request.chart.place}"
    return _import_objects(app, request, name, objects, places, source=source, notes=notes, pseudo=pseudo)


def _import_release(
    app: AppDir, request: HelmRequest, places: Sequence[Environment], opener: Opener | None
) -> KsonnetImported:
    if len(places) != 1 or opener is None:
        raise UsageError("of which environment is the cluster?", hint="name one: --env ENV")
    place = places[0]
    live = helm.read_release(opener(place.context), request.live, request.namespace or place.namespace)
    notes = dict.fromkeys(f"helm ran {hook} by itself; it is left out" for hook in live.hooks)
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
) -> KsonnetImported:
    """Plan, prove and write one component; without environments its objects are `pseudo`'s."""
    full_name = f"{request.module}.{name}" if request.module else name
    named = {full_name: objects}
    compared = list(places) or ([pseudo] if pseudo else [])
    is_all = not set(app.component_files) - {full_name}
    plan, refused = variants.plan(named, compared, sources={full_name: source}, all_targets=is_all)
    proofs = _proofs(named, plan, compared, request.keep_proof)
    failures = [ImportFailure(component=c, environment=e, reason=reason) for c, e, reason in refused]
    if not places:
        plan = replace(plan, environments=(), patches={})
    with app.locked():
        written = write_plan(app, plan, replace=request.replace)
    return KsonnetImported(
        folder=str(app.root),
        components=written.components,
        environments=tuple(proofs),
        failures=tuple(failures),
        patches=written.patches,
        notes=(*notes, *plan.notes),
        summary=_summary(proofs, failures),
    )


@dataclass(frozen=True, kw_only=True)
class Referred:
    """A component that kustomize builds from now on."""

    name: str
    file: str  # below the app directory
    source: str
    folder: str = ""  # the copy in vendor/, where it is somebody else's
    digest: str = ""  # of the copy, as mlstack.lock has it


def import_kustomization(app: AppDir, folder: Path, request: HelmRequest) -> KsonnetImported:
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
    copied, root = render_kustomize.localized(source)
    folder, locked = render_kustomize.folder_of(source), digest(copied)
    with app.locked():
        known = next((entry for entry in app.lock.kustomizations if entry.source == source), None)
        if known and known.digest != locked and not update:
            message = f"`{source}` is not what mlstack.lock holds: {locked[:19]}, locked {known.digest[:19]}"
            raise RegistryError(message, hint="--update takes it as it is now")
        entry = LockedKustomization(source=source, folder=folder, root=root, digest=locked)
        app.vendor_kustomization(entry, copied)
        file = app.add_component(component, replace=replace)
    return Referred(name=component.full_name, file=file, source=source, folder=folder, digest=locked)


def _summary(proofs: Sequence[EnvironmentProof], failures: Sequence[ImportFailure]) -> str:
    left_out = len({failure.component for failure in failures})
    told = f"; {left_out} component{'s'[: left_out != 1]} could not be imported" if left_out else ""
    return f"{proof.counted(proofs)}{told}"


_KSONNET_LIB = "github.com/ksonnet/ksonnet-lib/tree/master"


def _fetch_missing(source: KsApp, composition: Composition, vendor: Path) -> list[str]:
    """Fetch the packages that evaluation lacks, at the commits in app.yaml, and ksonnet-lib; tell which."""
    notes: dict[str, None] = {}
    places = {environment.name: environment for environment in source.environments}
    for failed in composition.failures:
        place = places[failed.environment]
        libraries = [place.libraries.get("/".join(path.split("/")[:2])) for path in failed.missing]
        for library in filter(None, libraries):
            folder = vendor / library.registry / f"{library.name}@{library.version}"
            address = source.registries.get(library.registry, "")
            if library.version and address:
                notes |= dict.fromkeys(_fetch(address, library.version, library.name, folder))
        version = place.kubernetes_version
        if failed.lacks_ksonnet_lib and version:
            minor = version.split(".")[1] if version.count(".") else ""
            release = {"7": "ksonnet.beta.2", "8": "ksonnet.beta.3"}.get(minor, "ksonnet.beta.4")
            notes |= dict.fromkeys(_fetch(_KSONNET_LIB, "", release, vendor / "ksonnet-lib" / version))
    return list(notes)


def _fetch(address: str, commit: str, name: str, folder: Path) -> list[str]:
    """Fetch a folder of a git repository at a commit, once; tell of it, or why it could not be had."""
    if folder.exists():
        return []
    shown = f"{address.removesuffix('/')}/{name}" + (f" at {commit[:12]}" if commit else "")
    try:
        there = git.parse_address(address)
        checkout = git.fetch_snapshot(there.at(commit) if commit else there, shown=address)
        contents = checkout.folder(PurePosixPath(name))
    except MlstackError as error:
        return [f"{shown} cannot be fetched: {error.message}"]
    if not contents:
        return [f"{shown} is not there"]
    atomic.write_files({folder / path: data for path, data in contents.items()})
    return [f"fetched {shown}"]


def _modernised(app: AppDir, source: KsApp, composition: Composition) -> list[str]:
    """Make components of known prototypes of those that only called one; tell what that changes."""
    notes: list[str] = []
    registries = [*indexes(app.app.registries, root=app.root, notes=notes)]
    modules = {module for environment in source.environments for module in environment.modules}
    members = [component for module in sorted(modules) for component in source.components(module)]
    for member in members:
        if not member.is_jsonnet or member.full_name not in app.component_files:
            continue
        code = decode(read_file(member.file), file=str(member.file))
        offered = (
            (registry, package.name, prototype.name)
            for name in modernise.old_names(code)
            for registry, index in registries
            for package, prototype in offers(index, name)
        )
        if (known := next(offered, None)) is not None:
            notes.append(_replaced(app, member.full_name, known, composition))
    return notes


def _replaced(app: AppDir, name: str, known: tuple[str, str, str], composition: Composition) -> str:
    """Put a component of a prototype in the place of a manifest, if it renders; tell what that changes."""
    registry, package, prototype_name = known
    file = app.component_files[name][0]
    environments = [env for env, values in composition.params.items() if env in app.environment_names]
    patches = [layout.patch_file(env, name) for env in environments]
    touched = [file, *patches, *map(layout.environment_params_file, environments)]
    before = {path: data for path in touched if (data := app.files.bytes(path)) is not None}
    wanted = PackageRef(registry=registry, name=package)
    stem = name.rpartition(".")[2]
    try:
        old = _kinds_of(app, name, environments)
        installation.change(app, {APP: (wanted,)}, free=((APP, wanted.full_name),))
        prototype = app.prototype(f"{registry}/{package}/{prototype_name}")
        values = {env: composition.params[env].get(name, {}) for env in environments}
        fits = {env: modernise.fitting(prototype, stem, own) for env, own in values.items()}
        base = fits[environments[0]][0] if environments else {}
        content = {"apiVersion": API_VERSION, "kind": "Component", "prototype": prototype.full_name}
        files = {file: write.to_yaml({**content, **({"params": base} if base else {})})}
        for env in environments[1:]:
            own = {key: value for key, value in fits[env][0].items() if base.get(key) != value}
            own |= {key: None for key in base if key not in fits[env][0]}
            if own:
                edited = app.edited(layout.environment_params_file(env), "EnvironmentParams")
                edited.set(("components", name), own)
                files[edited.file] = edited.text
        app.write(files, [path for path in patches if path in before])
        new = _kinds_of(app, name, environments)
        for env in environments:  # beside the others too
            render.load(app, env)
    except MlstackError as error:
        app.write(before, [path for path in touched if path not in before and (app.root / path).is_file()])
        return f"{name}: stays a manifest, as `{prototype_name}` does not take it over: {error.message}"
    dropped = sorted({key for _, others in fits.values() for key in others})
    told = f"{name}: component of `{prototype.full_name}` now, whose objects differ"
    changes = [f"gone: {', '.join(sorted(old - new))}"] if old - new else []
    changes += [f"new: {', '.join(sorted(new - old))}"] if new - old else []
    changes += [f"parameters without effect now: {', '.join(dropped)}"] if dropped else []
    return "; ".join([told, *changes])


def _kinds_of(app: AppDir, name: str, environments: Sequence[str]) -> set[str]:
    """Give kind and name of the objects that a component brings, in any environment that deploys it."""
    found = set()
    for environment in environments:
        targets = app.environment(environment).targets
        if not targets or name in targets:
            state = render.load(app, environment, components=[name])
            found |= {f"{obj.kind} {obj.name}" for obj in state.objects}
    return found


def _all_objects(composition: Composition) -> Iterator[Data]:
    for by_environment in composition.objects.values():
        for objects in by_environment.values():
            yield from objects


def _converted(composition: Composition) -> tuple[Composition, list[str]]:
    """Give the objects in versions that are served, and which rewriting was done, each once."""
    told: dict[str, int] = {}
    objects: dict[str, dict[str, tuple[Data, ...]]] = {}
    for component, by_environment in composition.objects.items():
        for environment, listed in by_environment.items():
            pairs = [convert.converted(data) for data in listed]
            for _, done in pairs:
                told |= {done: told.get(done, 0) + 1} if done else {}
            objects.setdefault(component, {})[environment] = tuple(data for data, _ in pairs)
    notes = [f"converted: {done} ({count})" for done, count in sorted(told.items())]
    return replace(composition, objects=objects), notes


def _check_target(target: AppDir | Path, source: KsApp) -> None:
    """Refuse a place that holds something, or lies in the app of ksonnet."""
    folder = (target.root if isinstance(target, AppDir) else target).resolve()
    if folder.is_relative_to(source.root.resolve()):
        message = f"`{folder}` lies in the app of ksonnet, which stays as it is"
        raise UsageError(message, hint="name another folder: --out FOLDER")
    if isinstance(target, Path) and target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"`{target}` holds something already", hint="name another folder: --out FOLDER")


def _sources(source: KsApp) -> dict[str, str]:
    modules = {module for environment in source.environments for module in environment.modules}
    return {
        component.full_name: f"ksonnet: {component.file.relative_to(source.root).as_posix()}"
        for module in modules
        for component in source.components(module)
    }


def _environments(source: KsApp, kubeconfig: Kubeconfig | None) -> tuple[list[Environment], list[str]]:
    """Give the environments of the new app: the context that leads to the server, where one is known."""
    environments, notes = [], []
    for environment in source.environments:
        context = ""
        with suppress(MlstackError):
            context = (
                kubeconfig.of_server(environment.server).name if kubeconfig and environment.server else ""
            )
        if not context:
            leads = f"no kubectl context leads to {environment.server or 'its server'}"
            hint = f"mlstack env set {environment.name} --context NAME"
            notes.append(f"environment `{environment.name}` has no context: {leads}; {hint}")
        namespace = environment.namespace
        check_namespace(namespace)
        check_environment_name(environment.name)
        environments.append(Environment(name=environment.name, context=context, namespace=namespace))
    return environments, notes


def _proofs(
    objects: variants.Objects,
    plan: ImportPlan,
    environments: Sequence[Environment],
    keep: Path | None,
) -> list[EnvironmentProof]:
    """Render the new app in a folder of its own, and compare it with what there was."""
    proofs = []
    with TemporaryDirectory(prefix="mlstack-import-") as folder:
        app = AppDir.create(Path(folder) / "app", "proof")
        with app.locked():
            write_plan(app, plan)
        placed = {environment.name for environment in plan.environments}
        for place in environments:
            before = [data for by in objects.values() for data in by.get(place.name, ())]
            after: list[Data] = []
            if place.name in placed:
                after = [obj.data for obj in render.load(app, place.name).objects]
            proofs.append(proof.compare(place.name, place.namespace, before, after))
            if keep is not None:
                _keep(keep, place, before, after)
    return proofs


def _keep(folder: Path, place: Environment, before: Sequence[Data], after: Sequence[Data]) -> None:
    """Write both sides of a proof, each in the same order and without what does not count."""
    for side, objects in (("before", before), ("after", after)):
        plain = [proof.comparable(data, place.namespace) for data in objects]
        plain.sort(
            key=lambda data: [str(data["kind"]), *map(str, map(data["metadata"].get, ("namespace", "name")))]
        )
        file = folder / side / f"{place.name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_files({file: write.to_yaml_documents(_sorted(data) for data in plain)})


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _write_app(target: AppDir | Path, name: str, plan: ImportPlan, *, replace: bool) -> Imported:
    if isinstance(target, AppDir):
        with target.locked():
            return write_plan(target, plan, replace=replace)
    app_name = manifests.component_name(name)
    with app_lock(target):
        app = AppDir.create(target, app_name, registries=(DEFAULT_REGISTRY,))
    with app.locked():
        return write_plan(app, plan)


# --- writing ---


def write_plan(app: AppDir, plan: ImportPlan, *, replace: bool = False) -> Imported:
    """Write what an import has worked out, all of it or nothing; the app is locked.

    Raises:
        UsageError: a component is there already, and is not to be replaced.
    """
    rows = [_row(app, component, replace=replace) for component in plan.components]
    if plan.package is not None:
        _install(app, plan.package)
    files: dict[str, bytes | str] = {component.file: component.text for component in plan.components}
    stale = [app.component_files[row.name][0] for row in rows if row.replaced]
    patches = {
        layout.patch_file(environment, component): write.to_yaml_documents(objects)
        for environment, components in plan.patches.items()
        for component, objects in components.items()
    }
    added = [place for place in plan.environments if place.name not in app.environment_names]
    files |= {
        layout.environment_file(place.name): write.to_yaml(
            {"apiVersion": API_VERSION, "kind": "Environment", **to_map(place, ("namespace",))}
        )
        for place in added
    }
    for place in plan.environments:
        if place not in added:
            edited = _with_targets(app, place, {component.name for component in plan.components})
            files |= {edited.file: edited.text} if edited.changed else {}
    for environment, values in plan.params.items():
        edited = app.edited(layout.environment_params_file(environment), "EnvironmentParams")
        for component, own in values.items():
            edited.set(("components", component), dict(own))
        files[edited.file] = edited.text
    app.write({**files, **patches}, [file for file in stale if file not in files])
    return Imported(
        components=tuple(rows),
        environments=tuple(place.name for place in added),
        patches=tuple(patches),
        notes=plan.notes,
    )


_PACKAGES = "packages"


def _install(app: AppDir, package: PlannedPackage) -> None:
    """Write a package into the folder `packages/` of the app, its own registry, and install it from there."""
    ref = RegistryRef(name=package.registry, address=f"./{_PACKAGES}", protocol="directory")
    known = {known.name: known.address for known in app.app.registries}
    folder = app.root / _PACKAGES / package.name
    if known.get(ref.name, ref.address) != ref.address or folder.exists():
        message = f"there is a package `{package.name}`, or a registry `{ref.name}` elsewhere, already"
        raise UsageError(message, hint=f"remove {_PACKAGES}/{package.name}, or import without --as-prototype")
    atomic.write_files({folder / path: text for path, text in package.files.items()})
    index = build_index(folder.parent, name=ref.name)
    app.write({f"{_PACKAGES}/{INDEX_FILE}": index})
    if ref.name not in known:
        app.add_registry(ref)
    wanted = PackageRef(registry=package.registry, name=package.name)
    installation.change(app, {APP: (wanted,)}, free=((APP, wanted.full_name),))


def _with_targets(app: AppDir, place: Environment, imported: Set[str]) -> EditedFile:
    """Give the file of an environment that is there already, with the imported components as targets.

    One that deploys everything says so by name, where a component is for others alone.
    """
    edited = app.edited(layout.environment_file(place.name), "Environment")
    if not app.environment(place.name).targets and not imported <= {*place.targets} and place.targets:
        edited.set(
            ("targets",), sorted({*app.component_files, *place.targets} - (imported - {*place.targets}))
        )
    for target in place.targets:
        if (edited.at(("targets",)) or ()) and target not in edited.at(("targets",)):
            edited.append(("targets",), target)
    return edited


def _row(app: AppDir, component: PlannedComponent, *, replace: bool) -> ImportedRow:
    module, _, name = component.name.rpartition(".")
    check_component_name(name)
    if module:
        check_module_name(module)
        check_new_name(module, app.modules, "a module")
    known = app.component_files.get(component.name)
    if known and not replace:
        message = f"there is a component `{component.name}` already"
        raise UsageError(message, where=known[0], hint="--force replaces it, --module puts it elsewhere")
    check_new_name(component.name, app.component_files, "a component")
    return ImportedRow(
        name=component.name,
        file=component.file,
        objects=len(component.objects),
        kinds=component.kinds,
        replaced=known is not None,
    )
