"""Components and modules of an app: made, listed, renamed, removed; apps of a stack, and prototypes begun."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from mlstack.app import components as edits
from mlstack.app import document, files, layout
from mlstack.app.app import Component, Kustomization, Manifest, PackageRef, Stack
from mlstack.app.app_dir import AppDir
from mlstack.app.components import ComponentRequest, Draft, draft
from mlstack.app.document import API_VERSION, fields_of
from mlstack.app.edit import app_lock, write_files
from mlstack.app.environment import Environment
from mlstack.app.files import read_folder
from mlstack.app.package import PackageFolder
from mlstack.app.params import ParamScope, Resolved, as_typed
from mlstack.app.reader import read_preset
from mlstack.app.schema import check_file
from mlstack.dataclass import Record, row
from mlstack.errors import ConfigError, MlstackError, NotFoundError, TemplateRefusedError, UsageError
from mlstack.names import check_package_name, not_found
from mlstack.objects.kube_object import DesiredState
from mlstack.registries.registry import DEFAULT_REGISTRY, find_usable
from mlstack.render import render
from mlstack.render.component import Loader
from mlstack.yaml import write

if TYPE_CHECKING:
    from mlstack.importers.templates import Offer
    from mlstack.kube.client import Opener

# --- components ---


class ComponentRow(Record):
    """One component in a list."""

    name: str
    type: str  # `prototype`, `manifest` or `kustomize`
    module: str  # empty at the root
    prototype: str | None
    package: str | None  # package and version of its prototype
    file: str  # below the app directory
    depends_on: tuple[str, ...] = ()  # what has to work before its objects are written
    kinds: tuple[str, ...] = ()  # of the objects it brings, where that was asked for


class ComponentList(Record):
    """The components of an app, by name."""

    components: tuple[ComponentRow, ...]
    notes: tuple[str, ...] = ()  # components whose kinds cannot be told, and why


class Deployed(Record):
    """What an environment has of a component in its cluster."""

    environment: str
    component: str  # as the cluster knows it
    objects: int


class ComponentRemoved(Record):
    """A component, or a module with its components, that is gone from the app."""

    name: str
    files: tuple[str, ...]  # those that were deleted or changed, below the app directory
    deployed: tuple[Deployed, ...] = ()  # what the next apply of these environments deletes
    notes: tuple[str, ...] = ()  # environments whose cluster did not say what it has


class ComponentRenamed(Record):
    """A component with another name."""

    name: str  # the new one
    before: str
    file: str
    files: tuple[str, ...]  # those that were written or deleted, below the app directory
    notes: tuple[str, ...] = ()


def list_components(
    app: AppDir, *, module: str | None = None, kinds: bool = False, environment: str | None = None
) -> ComponentList:
    """List the components of an app, or of one module with those in it, by name.

    With `kinds` they are rendered, as they are in an environment, or without one by what all share.
    """
    place = app.environment(environment) if environment is not None else None
    if module is not None:
        app.check_known_module(module)
    rows, notes = [], list[str]()
    for component in app.components() if module is None else app.selected(None, [module]):
        brought: tuple[str, ...] = ()
        if kinds:
            try:
                brought = _kinds(app, component, place)
            except MlstackError as error:
                notes.append(error.message)
        prototype = app.prototype_of(component) if isinstance(component, Component) else None
        other_type = "kustomize" if isinstance(component, Kustomization) else "manifest"
        rows.append(
            row(
                ComponentRow,
                component,
                name=component.full_name,
                type="prototype" if prototype else other_type,
                prototype=prototype and prototype.name,
                package=prototype and prototype.package_version,
                kinds=brought,
            )
        )
    return ComponentList(components=tuple(rows), notes=tuple(notes))


def _kinds(app: AppDir, component: Component | Manifest, place: Environment | None) -> tuple[str, ...]:
    loader = Loader(app, place or Environment(name="preview"))
    if place is not None or isinstance(component, Manifest):
        objects = loader.render(component).objects
    else:
        prototype = app.prototype_of(component)
        objects = loader.from_values(component, prototype, app.resolve(component, None)).objects
    return tuple(sorted({obj.kind for obj in objects}))


def remove_component(app: AppDir, name: str, *, opener: Opener | None = None) -> ComponentRemoved:
    """Remove a component and all that the app says of it; clusters are asked what they have of it."""
    with app.locked():
        full_name = app.component(name).full_name
        all_names = [full_name, *app.formerly([full_name])]
        environments = app.environments()  # read before anything is written: it fails if a file is wrong
        files = edits.remove(app, [full_name])
    deployed, notes = _deployed(app, environments, all_names, opener)
    return ComponentRemoved(name=full_name, files=files, deployed=deployed, notes=notes)


# How long clusters are waited for that only have to say what they have.
_ANSWER_S = 3.0


def _deployed(
    app: AppDir, environments: Iterable[Environment], components: Collection[str], opener: Opener | None
) -> tuple[tuple[Deployed, ...], tuple[str, ...]]:
    """Ask the clusters that environments are bound to what they have of some components, all at once."""
    places = [place for place in environments if place.cluster is not None and place.context]
    if opener is None or not places:
        return (), ()
    from mlstack.deploy.inventory import Inventory, load_inventory
    from mlstack.kube.parallel import prefetch

    def load(place: Environment) -> Inventory:
        owner = Inventory(app=app.app.name, environment=place.name, namespace=place.namespace)
        return load_inventory(opener(place.context), owner)

    rows, notes = [], []
    for place, answer in [(place, prefetch(partial(load, place))) for place in places]:
        try:
            members = answer(_ANSWER_S).of_components(components)
        except (MlstackError, TimeoutError) as error:
            why = error.message.partition("\n")[0] if isinstance(error, MlstackError) else "no answer in time"
            notes.append(f"whether it is deployed in `{place.name}` is not known: {why}")
            continue
        for name in sorted({member.component for member in members}):
            count = sum(member.component == name for member in members)
            rows.append(Deployed(environment=place.name, component=name, objects=count))
    return tuple(rows), tuple(notes)


def rename_component(app: AppDir, old: str, new: str) -> ComponentRenamed:
    """Give a component another name; its objects keep theirs, so that the next apply deletes nothing."""
    with app.locked():
        component = app.component(old)
        app.check_component(new)
        named, notes = None, list[str]()
        if isinstance(component, Component):
            named = _name_to_keep(app, component, new)
            notes += _lost_values(app, component, new)
        file, files = edits.rename(app, component.full_name, new, named=named)
    if named is not None:
        notes.append(f"its objects keep the name `{named}`, by the parameter `name`")
    return ComponentRenamed(name=new, before=component.full_name, file=file, files=files, notes=tuple(notes))


def _renamed(component: Component, new: str) -> Component:
    module, _, name = new.rpartition(".")
    return replace(component, name=name, module=module)


def _name_to_keep(app: AppDir, component: Component, new: str) -> str | None:
    """Give the name that the component's file has to hold so that its objects stay what they are."""
    prototype = app.prototype_of(component)
    resolved = app.resolve(component, None)
    name = component.name if "name" in prototype.params and not resolved.values.get("name") else None
    values = {**resolved.values, **({"name": name} if name else {})}
    loader = Loader(app, Environment(name="preview"))
    with suppress(ConfigError):  # what does not render now has nothing that could change
        before = loader.from_values(component, prototype, resolved).objects
        again = Resolved(values, resolved.chains, resolved.notes)
        after = loader.from_values(_renamed(component, new), prototype, again).objects
        bare = loader.from_values(_renamed(component, new), prototype, resolved).objects
        if name is not None and [obj.data for obj in before] == [obj.data for obj in bare]:
            return None  # no object is called by it
        changed = [a for a, b in zip(before, after, strict=False) if a.data != b.data]
        if changed or len(before) != len(after):
            what = f"`{changed[0].identity}`" if changed else "its objects"
            message = (
                f"component `{component.full_name}` cannot be renamed: {what} would change with its name"
            )
            hint = f"make a second one, apply it, then: mlstack component rm {component.full_name}"
            raise UsageError(message, where=component.file, hint=hint)
    return name


def _lost_values(app: AppDir, component: Component, new: str) -> list[str]:
    """Say which values of modules count no more, or count now, in another module."""
    moved = _renamed(component, new)
    if moved.module == component.module:
        return []
    before, after = app.resolve(component, None), app.resolve(moved, None)
    names = [name for name in before.values if before.values[name] != after.values.get(name)]
    return [f"`{name}` is another value in its new module ({new})" for name in names]


# --- modules ---


class ModuleRow(Record):
    """One module in a list."""

    name: str
    components: int  # in it and in the modules in it
    params: int  # values that it sets for them
    environments: tuple[str, ...]  # those that name it among their targets
    folder: str  # below the app directory


class ModuleList(Record):
    """The modules of an app, by name."""

    modules: tuple[ModuleRow, ...]


class ModuleCreated(Record):
    """A new module."""

    name: str
    file: str  # of its parameters, below the app directory


def create_module(app: AppDir, name: str) -> ModuleCreated:
    """Make a module, whose parameter file keeps its folder in git; those around it come with it."""
    name = name.replace("/", ".")
    with app.locked():
        app.check_module(name)
        file = layout.module_params_file(name)
        if app.files.bytes(file) is not None:
            raise UsageError(f"there is a module `{name}` already", where=file, hint="mlstack module list")
        app.write({file: _file("ModuleParams", {})})
    return ModuleCreated(name=name, file=file)


def list_modules(app: AppDir) -> ModuleList:
    """List the modules of an app, by name."""
    targets = {place.name: place.targets for place in app.environments()}
    rows = []
    for name in app.modules:
        document = app.files.document(layout.module_params_file(name), "ModuleParams")
        rows.append(
            ModuleRow(
                name=name,
                components=sum(other.startswith(f"{name}.") for other in app.component_files),
                params=len((document.value.get("params") or {}) if document else {}),
                environments=tuple(place for place, names in targets.items() if name in names),
                folder=layout.module_folder(name),
            )
        )
    return ModuleList(modules=tuple(rows))


def remove_module(
    app: AppDir, name: str, *, with_components: bool = False, opener: Opener | None = None
) -> ComponentRemoved:
    """Remove a module with the modules in it; its components only if that is said."""
    name = name.replace("/", ".")
    with app.locked():
        app.check_known_module(name)
        names = [component for component in app.component_files if component.startswith(f"{name}.")]
        if names and not with_components:
            listed = ", ".join(f"`{component}`" for component in names)
            hint = "--components removes them too"
            raise UsageError(f"module `{name}` has components: {listed}", hint=hint)
        modules = [name, *(other for other in app.modules if other.startswith(f"{name}."))]
        all_names = [*names, *app.formerly(names)]
        environments = app.environments() if names else ()
        files = edits.remove(app, names, modules=modules)
    deployed, notes = _deployed(app, environments, all_names, opener)
    return ComponentRemoved(name=name, files=files, deployed=deployed, notes=notes)


# --- making components ---


class Generated(Record):
    """A component that was made."""

    name: str
    prototype: str
    file: str  # below the app directory
    replaced: bool  # there was one of that name before
    notes: tuple[str, ...] = ()  # of its alias, deprecated parameters, and the prototype's own


def generate(app: AppDir, request: ComponentRequest, *, replace: bool = False) -> Generated:
    """Make a component; only what was given is written, the rest follows the package.

    What an alias sets counts as given, below the options.
    """
    with app.locked():
        prototype, package = find_usable(app, request.prototype)
        component = draft(app, request, prototype)
        if prototype.chart is None:  # refuses a name that objects cannot have; what else is wrong can be set
            with suppress(ConfigError):
                _preview(app, component, typed="name")
        place = prototype.examples[request.example].environment if request.example else ""
        usual = f"is for an environment such as `{place}`: mlstack env add {place}"
        notes = (
            prototype.alias_note(request.prototype),
            *component.notes,
            *component.resolved.notes,
            f"example `{request.example}` {usual}" if place and place not in app.environment_names else "",
            *prototype.notes.splitlines(),
        )
        exists = component.component.full_name in app.component_files
        if package is not None and (replace or not exists):
            _install(app, [package])
        file = app.add_component(component.component, replace=replace)
    name, remarks = component.component.full_name, tuple(filter(str.strip, notes))
    return row(Generated, component.component, name=name, file=file, replaced=exists, notes=remarks)


def _install(app: AppDir, packages: Sequence[PackageRef]) -> None:
    from mlstack.registries.installation import change  # what an installed package needs none of
    from mlstack.registries.resolver import APP

    change(app, {APP: tuple(packages)})


def preview_prototype(
    app: AppDir, request: ComponentRequest, *, environment: str | None = None
) -> DesiredState:
    """Give the objects that a component would bring; nothing is written.

    Without a name it takes the prototype's; without an environment the namespace `default` and no overrides.
    """
    prototype, _ = find_usable(app, request.prototype)
    if request.name is None and "name" not in request.texts:
        request = replace(request, name=prototype.name)
    return _preview(app, draft(app, request, prototype), environment)


def _preview(
    app: AppDir, new: Draft, environment: str | None = None, *, typed: str | None = None
) -> DesiredState:
    """Render a draft; a refused parameter, or the one that is named, counts as typed wrongly."""
    place = app.environment(environment) if environment is not None else Environment(name="preview")
    try:
        return render.preview(app, new.component, new.prototype, new.resolved, environment=place)
    except TemplateRefusedError as error:
        if typed not in (None, error.param):
            raise
        hint = f"add --{error.param}=VALUE" if error.param else error.hint
        raise UsageError(error.message, where=error.where, hint=hint) from error


# --- apps that begin with a stack ---


class StackBegun(Record):
    """A new app that holds a stack."""

    app: str
    folder: str  # as given
    stack: str  # its name
    components: tuple[str, ...]  # full names
    environments: tuple[str, ...]  # none of them names a context yet


def init_stack(folder: Path, name: str, stack_name: str) -> StackBegun:
    """Create an app directory with the components and environments of a stack, which renders at once."""
    stack = _read_stack(stack_name)
    AppDir.check_new(folder, name)
    is_new = not folder.exists()
    try:
        with app_lock(folder):
            app = AppDir.create(folder, name, registries=(DEFAULT_REGISTRY,))
        _fill(app, stack)
    except (MlstackError, KeyboardInterrupt):
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    names = tuple(component.name for component in stack.components)
    return row(StackBegun, stack, app=name, folder=str(folder), stack=stack.name, components=names)


def _read_stack(name: str) -> Stack:
    if name not in files.stacks():
        hint = f"there are {', '.join(f'`{stack}`' for stack in files.stacks())}"
        raise not_found(f"no stack `{name}`", name, files.stacks(), hint=hint)
    file = files.folder("registry") / "stacks" / f"{name}.yaml"
    read = document.read(file.read_bytes(), file=file.name)
    check_file("Stack", read.value, source=file.name, document=read)
    return fields_of(read, "Stack").record(Stack)


def _fill(app: AppDir, stack: Stack) -> None:
    registry = DEFAULT_REGISTRY.name
    packages = dict.fromkeys(component.prototype.partition("/")[0] for component in stack.components)
    _install(app, [PackageRef(registry=registry, name=own) for own in packages])
    for component in stack.components:
        request = ComponentRequest(
            prototype=f"{registry}/{component.prototype}",
            name=component.name,
            example=component.example or None,
            texts={param: as_typed(value) for param, value in component.params.items()},
        )
        app.add_component(draft(app, request, app.prototype(request.prototype)).component)
    for name in stack.environments:
        preset = files.preset(name)
        if preset is None:
            raise NotFoundError(f"stack `{stack.name}` names no preset: `{name}`")
        app.add_environment(replace(read_preset(preset).environment, name=name), preset=preset)
        for component in stack.components:
            for param, value in component.environments.get(name, {}).items():
                app.set_param(ParamScope(component=component.name, environment=name), (param,), value)


# --- a prototype begun: from nothing, or from manifests that work ---


class PrototypeBegun(Record):
    """A prototype that was written."""

    name: str
    package: str  # the folder of its package
    new_package: bool  # the package was made with it
    files: tuple[str, ...]  # those that were written, by path
    parameters: tuple[str, ...]
    objects: tuple[str, ...]  # what its example renders to, equal to the manifests it was made from
    notes: tuple[str, ...] = ()  # what was left out of the manifests


_NAME = {
    "type": "string",
    "pattern": r"^[a-z]([-a-z0-9]*[a-z0-9])?$(?!\n)",
    "maxLength": 50,
    "description": "Name of the objects; the component's name unless set.",
}
_ANY_NAME = {**_NAME, "pattern": r"^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$(?!\n)", "maxLength": 253}


def new_prototype(name: str, *, source: str = "", package: Path | None = None) -> PrototypeBegun:
    """Write a prototype with parameters, templates and an example, into a package or a new one of its name.

    `source` is a manifest, a folder of them, or `-`; without one it begins with a Deployment and a Service.
    The package is the folder that is named, else the working directory if that is one.
    """
    from mlstack.importers.manifests import SourceFile, read_sources
    from mlstack.importers.templates import offered

    check_package_name(name)
    text = Path(__file__).with_name("beginning.yaml").read_text("utf-8")
    text = text.replace("NAME", name.lower().replace("_", "-").replace(".", "-"))
    beginning = SourceFile(name="the beginning", path=PurePosixPath(f"{name}.yaml"), text=text)
    sources = read_sources(source) if source else [beginning]
    offer = offered(sources, name=name)
    folder = package or (Path() if Path("package.yaml").is_file() else Path(name))
    is_new = not (folder / "package.yaml").is_file()
    if is_new and folder.is_dir() and any(folder.iterdir()):
        hint = "name another folder with --package"
        raise UsageError(f"`{folder}` is no package, and not empty", hint=hint)
    if (folder / name).exists():
        hint = "choose another name, or remove it first"
        raise UsageError(f"there is `{folder / name}` already", hint=hint)
    files = {f"{name}/{path}": text for path, text in _prototype_files(name, offer).items()}
    if is_new:
        package_name = check_package_name(folder.resolve().name)
        head = {"name": package_name, "version": "0.1.0", "summary": f"The prototype {name}"}
        files["package.yaml"] = _file("Package", head)
    objects = _proven(folder, name, files, offer)
    write_files({folder / path: text for path, text in files.items()})
    return PrototypeBegun(
        name=name,
        package=str(folder),
        new_package=is_new,
        files=tuple(str(folder / path) for path in files),
        parameters=("name", *offer.params),
        objects=objects,
        notes=tuple(note for read in sources for note in read.notes),
    )


def _prototype_files(name: str, offer: Offer) -> Mapping[str, str]:
    required = [param for param, schema in offer.params.items() if "default" in schema]
    parameters: dict[str, Any] = {"type": "object", **({"required": required} if required else {})}
    named = _NAME if re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", offer.name) else _ANY_NAME
    parameters["properties"] = {"name": named, **offer.params}
    kinds = ", ".join(dict.fromkeys(str(data["kind"]) for data in offer.objects))
    content = {"name": name, "summary": f"{kinds} of {offer.name}", "parameters": parameters}
    namespace = {"namespace": offer.namespace} if offer.namespace else {}
    example = {"summary": "As it began", "params": {"name": offer.name}, **namespace}
    usage = f"# {name}\n\n```\nmlstack generate {name} NAME\n```\n\nRenders: {kinds}.\n"
    return {
        "prototype.yaml": _file("Prototype", content),
        "examples/default.yaml": _file("Example", example),
        "README.md": usage,
        **{f"templates/{file}": text for file, text in offer.templates.items()},
    }


def _file(kind: str, content: Mapping[str, Any]) -> str:
    return write.to_yaml({"apiVersion": API_VERSION, "kind": kind, **content})


def _proven(folder: Path, name: str, files: Mapping[str, str], offer: Offer) -> tuple[str, ...]:
    """Render the example as it will be, and hold it to the manifests; gives what it renders."""
    from mlstack.render.trial import PrototypeTrial

    existing = read_folder(folder) if folder.is_dir() else {}
    content = {**existing, **{PurePosixPath(path): text.encode() for path, text in files.items()}}
    prototype = PackageFolder(content, source=str(folder)).prototype(name, {})
    example = prototype.examples["default"]
    objects = PrototypeTrial(prototype).objects(example.params, example=example)
    for data in offer.objects:
        if data not in [obj.data for obj in objects]:
            what = f"{data['kind']} `{data['metadata']['name']}`"
            hint = "take out of the manifest what is not plain YAML, such as anchors"
            raise ConfigError(f"the template would render another {what} than the manifest has", hint=hint)
    return tuple(f"{obj.kind} {obj.name}" for obj in objects)
