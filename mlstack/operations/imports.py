"""Imports: manifests, apps of ksonnet, and what other tools deploy become components of an app."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mlstack.app import components, edit, layout, params
from mlstack.app.app import Component, Kustomization, PackageRef
from mlstack.app.app_dir import AppDir, Copy
from mlstack.app.chart import read_head
from mlstack.app.document import API_VERSION, decode
from mlstack.app.environment import Environment
from mlstack.app.files import read_file
from mlstack.app.versions import offers
from mlstack.dataclass import Record, row
from mlstack.deploy.plan import ADOPT
from mlstack.errors import ConfigError, MlstackError, UsageError
from mlstack.importers import convert, ksonnet, manifests, templates
from mlstack.importers.ksonnet import ComposeOptions, Composition, KsApp, KsComponent, compose
from mlstack.importers.plan import (
    Imported,
    ImportPlan,
    component_name,
    plan_variants,
    prove,
    proved,
    write_app,
    write_plan,
)
from mlstack.names import check_environment_name, check_namespace
from mlstack.objects.kube_object import Data
from mlstack.registries import git, installation
from mlstack.registries.helm import ChartSource, read_chart
from mlstack.registries.registry import indexes
from mlstack.registries.resolver import APP
from mlstack.render import kustomize, render
from mlstack.render.helm import helm_version
from mlstack.yaml import write
from mlstack.yaml.write import same

if TYPE_CHECKING:
    from mlstack.kube.client import Opener
    from mlstack.kube.kubeconfig import Kubeconfig


class ManifestsRequest(Record):
    """What is to be imported, and how."""

    places: tuple[str, ...]  # files, folders, URLs, or `-` for standard input
    environments: tuple[tuple[str, str], ...] = ()  # name, and where its own manifests are
    module: str = ""
    name: str | None = None  # of the only component
    split: bool = False
    as_prototype: bool = False  # with parameters for what varies, and what people set
    replace: bool = False


def import_manifests(app: AppDir, request: ManifestsRequest) -> Imported:
    """Make components of manifests; what an environment has otherwise becomes its patches."""
    planned, notes = manifests.components(
        request.places, module=request.module, name=request.name, split=request.split
    )
    plan = ImportPlan(components=tuple(planned), notes=tuple(notes))
    everywhere = Environment(name="default", namespace="default")
    objects: dict[str, dict[str, Sequence[Data]]] = {c.name: {everywhere.name: c.objects} for c in planned}
    compared = [everywhere] if request.as_prototype else []
    if request.environments:
        plan, objects = _with_environments(app, request, plan)
        compared = [app.environment(name) for name, _ in request.environments]
    if request.as_prototype:
        name = request.name or planned[0].name
        plan = templates.as_prototypes(plan, component_name(name.replace(".", "-")).lower())
    placed = plan if request.environments else replace(plan, environments=(everywhere,))
    proofs = prove(objects, placed, compared, None) if compared else []
    written = write_plan(app, plan, replace=request.replace)
    return proved(written, proofs) if proofs else written


_BASE = ""  # stands for environments that have no manifests of their own


def _with_environments(
    app: AppDir, request: ManifestsRequest, base: ImportPlan
) -> tuple[ImportPlan, dict[str, dict[str, Sequence[Data]]]]:
    """Lay what environments have otherwise over the base: patches, and components of their own."""
    own = {name: app.environment(name) for name, _ in request.environments}
    objects: dict[str, dict[str, Sequence[Data]]] = {
        component.name: {_BASE: component.objects} for component in base.components
    }
    notes = [*base.notes]
    for name in own:
        places = [place for environment, place in request.environments if environment == name]
        planned, more = manifests.components(
            places, module=request.module, name=request.name, split=request.split
        )
        notes += more
        if len(planned) == len(base.components) == 1:  # whatever their files are called
            planned = [replace(planned[0], name=base.components[0].name)]
        for component in planned:
            objects.setdefault(component.name, {})[name] = component.objects
    everywhere = Environment(name=_BASE, namespace=_BASE)
    plan, refused = plan_variants(objects, [everywhere, *own.values()], sources={})
    for failure in refused:
        place = failure.environment or "the base"
        raise ConfigError(f"component `{failure.component}` in `{place}`: {failure.reason}")
    texts = {component.name: component for component in base.components}
    kept = []
    for component in plan.components:
        # Its text stays, with its comments, where it says what is to be deployed.
        text = texts.get(component.name)
        kept.append(text if text and same([*text.objects], [*component.objects]) else component)
    placed = tuple(place for place in plan.environments if place.name != _BASE)
    plan = replace(
        plan, components=tuple(kept), environments=placed, notes=tuple(dict.fromkeys([*notes, *plan.notes]))
    )
    return plan, objects


class KsonnetRequest(Record):
    """What is to be imported, and how."""

    source: Path
    environments: tuple[str, ...] = ()  # all if none is named
    options: ComposeOptions = field(default_factory=ComposeOptions)
    convert: bool = False  # to API versions that are served today
    as_prototype: bool = False  # with the values that vary as parameters, under ksonnet's names
    modernise: bool = False  # components of known prototypes become those of today
    keep_proof: Path | None = None  # a folder for both sides of the proof
    replace: bool = False


def import_ksonnet(
    request: KsonnetRequest, target: AppDir | Path, *, kubeconfig: Kubeconfig | None = None
) -> Imported:
    """Import an app of ksonnet into an app, or into a new one in a folder; its own folder stays as it is.

    Each component becomes a plain manifest, what differs between environments patches. The objects before and
    after are compared: those that ks composes, and those that the new app renders.
    """
    source = ksonnet.selected(ksonnet.read_app(request.source), request.environments)
    _check_places(source, target, request.keep_proof)
    composition, remarks = _composed(source, request)
    environments, notes = _environments(source, kubeconfig)
    files = {member.full_name: member.file.relative_to(source.root) for member in _members(source)}
    sources = {name: f"ksonnet: {file.as_posix()}" for name, file in files.items()}
    is_all = isinstance(target, Path)
    plan, refused = plan_variants(composition.objects, environments, sources=sources, all_targets=is_all)
    if request.as_prototype:
        plan = templates.as_prototypes(plan, component_name(source.name).lower(), known=composition.params)
    notes = [*composition.notes, *remarks, *notes]
    if source.unrendered:
        notes.append(f"left out, as no environment targets them: {', '.join(source.unrendered)}")
    proofs = prove(composition.objects, plan, environments, request.keep_proof)
    if not all(environment.path for environment in source.environments):
        plan = replace(plan, environments=(), params={})
    written = write_app(target, source.name, plan, replace=request.replace)
    if request.modernise and not plan.environments:
        notes.append("nothing was modernised: without an environment nothing tells what would change")
    elif request.modernise:
        app = target if isinstance(target, AppDir) else AppDir(target.absolute())
        with app.locked():
            notes += _modernised(app, source, composition)
    folder = "" if isinstance(target, AppDir) else str(target)
    written = replace(written, folder=folder, notes=(*notes, *written.notes))
    return proved(written, proofs, [*composition.failures, *refused])


def _composed(source: KsApp, request: KsonnetRequest) -> tuple[Composition, list[str]]:
    """Give the objects of the app as ks composes them, converted if that is asked for, with remarks."""
    composition = compose(source, request.options)
    with TemporaryDirectory(prefix="mlstack-import-") as folder:
        remarks = _fetch_missing(source, composition, Path(folder))
        if any(Path(folder).iterdir()):
            composition = compose(source, replace(request.options, vendor=Path(folder)))
    if request.convert:
        composition, rewritten = _converted(composition)
        remarks += rewritten
    objects = [
        data for by_place in composition.objects.values() for listed in by_place.values() for data in listed
    ]
    remarks += convert.unserved_notes(objects, has_converted=request.convert)
    return composition, remarks


_KSONNET_LIB = "github.com/ksonnet/ksonnet-lib/tree/master"


def _fetch_missing(source: KsApp, composition: Composition, vendor: Path) -> list[str]:
    """Fetch the packages that evaluation lacks, at the commits in app.yaml, and ksonnet-lib; tell which."""
    notes: dict[str, None] = {}
    places = {environment.name: environment for environment in source.environments}
    for lacking in composition.lacking:
        place = places[lacking.environment]
        libraries = [place.libraries.get("/".join(path.split("/")[:2])) for path in lacking.imports]
        for library in filter(None, libraries):
            folder = vendor / library.registry / f"{library.name}@{library.version}"
            address = source.registries.get(library.registry, "")
            if library.version and address:
                notes |= dict.fromkeys(_fetch(address, library.version, library.name, folder))
        version = place.kubernetes_version
        if lacking.ksonnet_lib and version:
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
        address_parts = git.parse_address(address)
        checkout = git.fetch_snapshot(address_parts.at(commit) if commit else address_parts, shown=address)
        contents = checkout.folder(PurePosixPath(name))
    except MlstackError as error:
        return [f"{shown} cannot be fetched: {error.message}"]
    if not contents:
        return [f"{shown} is not there"]
    edit.write_files({folder / path: data for path, data in contents.items()})
    return [f"fetched {shown}"]


def _modernised(app: AppDir, source: KsApp, composition: Composition) -> list[str]:
    """Make components of known prototypes of those that only called one; tell what that changes."""
    notes: list[str] = []
    registries = [*indexes(app.app.registries, root=app.root, notes=notes)]
    for member in _members(source):
        if member.file.suffix != ".jsonnet" or member.full_name not in app.component_files:
            continue
        code = decode(read_file(member.file), file=str(member.file))
        offered = (
            (registry, package.name, prototype.name, name)
            for name in convert.old_names(code)
            for registry, index in registries
            for package, prototype in offers(index, name)
        )
        if (offer := next(offered, None)) is not None:
            notes.append(_replaced(app, member.full_name, offer, composition))
    return notes


def _replaced(app: AppDir, name: str, known: tuple[str, str, str, str], composition: Composition) -> str:
    """Put a component of a prototype in the place of a manifest, if it renders; tell what that changes."""
    registry, package, prototype_name, _ = known
    file = app.component_files[name][0]
    environments = [env for env, values in composition.params.items() if env in app.environment_names]
    patches = [layout.patch_file(env, name) for env in environments]
    values_files = map(layout.environment_params_file, environments)
    touched = [layout.APP_FILE, layout.LOCK_FILE, file, *patches, *values_files]
    before = {path: data for path in touched if (data := app.files.bytes(path)) is not None}
    installed = {locked.full_name: locked.folder for locked in app.lock.packages}
    ref = PackageRef(registry=registry, name=package)
    values = {env: composition.params[env].get(name, {}) for env in environments}
    try:
        old = _kinds_of(app, name, environments)
        if ref.full_name not in installed:
            installation.change(app, {APP: (ref,)})
        files, full_name, dropped = _component_files(app, name, known, values)
        app.write(files, [path for path in patches if path in before])
        new = _kinds_of(app, name, environments)
        for env in environments:  # beside the others too
            render.load(app, env)
    except MlstackError as error:
        folders = [locked.folder for locked in app.lock.packages if locked.folder not in installed.values()]
        written = [path for path in touched if path not in before and (app.root / path).is_file()]
        app.write(before, [*written, *folders])
        return f"{name}: stays a manifest, as `{prototype_name}` does not take it over: {error.message}"
    verdict = f"{name}: component of `{full_name}` now, whose objects differ"
    changes = [f"gone: {', '.join(sorted(old - new))}"] if old - new else []
    changes += [f"new: {', '.join(sorted(new - old))}"] if new - old else []
    changes += [f"parameters without effect now: {', '.join(dropped)}"] if dropped else []
    return "; ".join([verdict, *changes])


def _component_files(
    app: AppDir, name: str, known: tuple[str, str, str, str], values: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, str], str, list[str]]:
    """Write a component of a prototype as the values by environment have it, those of the first for all.

    Gives the files, the prototype's full name, and the parameters that it does not have any more.
    """
    prototype, stem = app.prototype("/".join(known[:3])), name.rpartition(".")[2]
    fits = {env: convert.fitting(prototype, known[3], stem, own) for env, own in values.items()}
    base, *others = [fit for fit, _ in fits.values()] or [{}]
    content = {"apiVersion": API_VERSION, "kind": "Component", "prototype": prototype.full_name}
    files = {app.component_files[name][0]: write.to_yaml(content | ({"params": base} if base else {}))}
    for env, fit in zip([*fits][1:], others, strict=True):
        own = {key: value for key, value in fit.items() if base.get(key) != value}
        own |= {key: None for key in base if key not in fit}
        if own:
            edited = app.edited(layout.environment_params_file(env), "EnvironmentParams")
            edited.set(("components", name), own)
            files[edited.file] = edited.text
    return files, prototype.full_name, sorted({key for _, left in fits.values() for key in left})


def _kinds_of(app: AppDir, name: str, environments: Sequence[str]) -> set[str]:
    """Give kind and name of the objects that a component brings, in any environment that deploys it."""
    kinds = set()
    for environment in environments:
        targets = app.environment(environment).targets
        if not targets or name in targets:
            state = render.load(app, environment, components=[name])
            kinds |= {f"{obj.kind} {obj.name}" for obj in state.objects}
    return kinds


def _converted(composition: Composition) -> tuple[Composition, list[str]]:
    """Give the objects in versions that are served, and which rewriting was done, each once."""
    counts: Counter[str] = Counter()
    objects: dict[str, dict[str, tuple[Data, ...]]] = defaultdict(dict)
    for component, by_environment in composition.objects.items():
        for environment, listed in by_environment.items():
            pairs = [convert.converted(data) for data in listed]
            counts.update(done for _, done in pairs if done)
            objects[component][environment] = tuple(data for data, _ in pairs)
    notes = [f"converted: {done} ({count})" for done, count in sorted(counts.items())]
    return replace(composition, objects=objects), notes


def _check_places(source: KsApp, target: AppDir | Path, keep_proof: Path | None) -> None:
    """Refuse places that lie in the app of ksonnet, and a target that holds something."""
    folder = (target.root if isinstance(target, AppDir) else target).resolve()
    for place, option in ((folder, "--out FOLDER"), (keep_proof, "--keep-proof DIR")):
        if place is not None and place.resolve().is_relative_to(source.root.resolve()):
            message = f"`{place}` lies in the app of ksonnet, which stays as it is"
            raise UsageError(message, hint=f"name another folder: {option}")
    if isinstance(target, Path) and target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"`{target}` holds something already", hint="name another folder: --out FOLDER")


def _members(source: KsApp) -> list[KsComponent]:
    modules = sorted({module for environment in source.environments for module in environment.modules})
    return [component for module in modules for component in source.components(module)]


def _environments(source: KsApp, kubeconfig: Kubeconfig | None) -> tuple[list[Environment], list[str]]:
    """Give the environments of the new app: the context that leads to the server, where one is known."""
    environments, notes = [], []
    for environment in source.environments:
        if not environment.path:
            return [Environment(name=environment.name, namespace=environment.namespace)], []
        context = ""
        with suppress(MlstackError):
            if kubeconfig and environment.server:
                context = kubeconfig.of_server(environment.server).name
        if not context:
            leads = f"no kubectl context leads to {environment.server or 'its server'}"
            hint = f"mlstack env set {environment.name} --context NAME"
            notes.append(f"environment `{environment.name}` has no context: {leads}; {hint}")
        namespace = environment.namespace
        check_namespace(namespace)
        check_environment_name(environment.name)
        environments.append(Environment(name=environment.name, context=context, namespace=namespace))
    return environments, notes


# --- charts and releases of Helm, kustomizations ---


class HelmRequest(Record):
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
    """Import what a chart renders, or what a release has applied, as a plain manifest with patches."""
    places = [app.environment(name) for name in request.environments or app.environment_names]
    if request.live:
        return _import_release(app, request, places, opener)
    if request.chart is None:
        raise UsageError("which chart?", hint="mlstack import helm CHART, or --live RELEASE")
    chart = read_chart(request.chart)
    helm_version()
    name = request.name or component_name(str(read_head(chart.files, source=chart.folder)["name"]))
    pseudo = Environment(name="default", namespace=request.namespace or "default")
    objects: dict[str, Sequence[Data]] = {}
    notes: list[str] = []
    for place in places or [pseudo]:
        listed, remarks = manifests.rendered_chart(
            chart, name, place, _helm_values(request, place.name), hooks=request.hooks
        )
        objects[place.name] = [_marked(data) if request.adopt else data for data in listed]
        notes += remarks
    source = f"the chart {request.chart.place}"
    return _import_objects(app, request, name, objects, places, source=source, notes=notes, pseudo=pseudo)


def _import_release(
    app: AppDir, request: HelmRequest, places: Sequence[Environment], opener: Opener | None
) -> Imported:
    if len(places) != 1 or opener is None:
        raise UsageError("of which environment is the cluster?", hint="name one: --env ENV")
    place = places[0]
    namespace = request.namespace or place.namespace
    live = manifests.read_release(opener(place.context), request.live, namespace, hooks=request.hooks)
    objects = [_marked(data) if request.adopt else data for data in live.objects]
    flag = "" if request.adopt else " --adopt"
    forget = f"kubectl delete secret -n {live.namespace} -l owner=helm,name={live.name}"
    notes = (
        *live.notes,
        f"mlstack apply {place.name}{flag} takes the objects over without making them anew",
        f"once that is done, Helm forgets the release by: {forget}",
    )
    source = f"the release {live.name} of {live.chart}"
    name = request.name or component_name(live.name)
    return _import_objects(app, request, name, {place.name: objects}, places, source=source, notes=notes)


def _helm_values(request: HelmRequest, environment: str) -> dict[str, Any]:
    """Lay files and `--set` over each other as helm does."""
    values: Any = {}
    for owner, file in request.values:
        if owner in ("", environment):
            values = params.overlaid(values, components.read_values(file).globals.values)
    for text in request.sets:
        option = components.parse_set(text)
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
    notes: Iterable[str],
    pseudo: Environment | None = None,
) -> Imported:
    """Plan, prove and write one component; without environments its objects are `pseudo`'s."""
    full_name = f"{request.module}.{name}" if request.module else name
    named = {full_name: objects}
    compared = list(places) or ([pseudo] if pseudo else [])
    is_all = not set(app.component_files) - {full_name}
    plan, refused = plan_variants(named, compared, sources={full_name: source}, all_targets=is_all)
    proofs = prove(named, plan, compared, request.keep_proof)
    if not places:
        plan = replace(plan, environments=(), patches={})
    written = write_plan(app, plan, replace=request.replace)
    return proved(replace(written, notes=(*dict.fromkeys(notes), *written.notes)), proofs, refused)


class Referred(Record):
    """A component that kustomize builds from now on."""

    name: str
    file: str  # below the app directory
    source: str  # what kustomize builds: a folder, or the address of another's
    folder: str = ""  # the copy in vendor/, where it is somebody else's
    digest: str = ""  # of the copy, as mlstack.lock has it


def import_kustomization(app: AppDir, folder: Path, request: HelmRequest) -> Imported:
    """Import a folder's kustomization: a manifest of its base, and what overlays change as patches."""
    overlays = manifests.overlays(folder)
    whole = folder.resolve()
    name = request.name or component_name(whole.parent.name if whole.name == "base" else whole.name)
    environments = {place: app.environment(place) for place in app.environment_names}
    objects, places = {}, []
    for overlay in overlays:
        own = environments.get(overlay.environment)
        namespace = overlay.namespace or (own.namespace if own else "default")
        place = own or Environment(name=overlay.environment or "default", namespace=namespace)
        if overlay.environment:
            check_environment_name(place.name)
            places.append(place)
        objects[place.name] = overlay.objects
    pseudo = None if places else Environment(name="default", namespace=overlays[0].namespace or "default")
    notes = [
        f"environment `{place.name}` has no context: mlstack env set {place.name} --context NAME"
        for place in places
        if place.name not in environments
    ]
    source = f"the kustomization {folder}"
    return _import_objects(app, request, name, objects, places, source=source, notes=notes, pseudo=pseudo)


def refer_to_kustomization(
    app: AppDir, source: str, *, name: str = "", module: str = "", replace: bool = False, update: bool = False
) -> Referred:
    """Make a component of somebody else's kustomization, whose copy goes into `vendor/`, or of a folder."""
    own = component_name(
        name or re.split("[/@?]+", source.partition("?")[0].rpartition("@")[0] or source)[-1]
    )
    component = Component(name=own, module=module, kustomize=source, file=layout.component_file(module, own))
    kustomization = Kustomization(name=own, module=module, source=source, file=component.file)
    copies: list[Copy] = []
    if kustomization.is_remote:
        locked = next((entry for entry in app.lock.kustomizations if entry.source == source), None)
        copies = [kustomize.fetch_copy(source, None if update else locked)]
    else:
        kustomize.build(app, kustomization)
    with app.locked():
        file = app.add_component(component, replace=replace, copies=copies)
    return row(Referred, *(entry for entry, _ in copies), name=component.full_name, file=file, source=source)
