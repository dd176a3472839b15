"""Apps of ksonnet, formats 0.0.1 to 0.3.0, as values, and composed as ks does.

Written by hand and by many releases of `ks`, so everything may be missing but the name of an environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar

from mlstack.app.document import decode
from mlstack.app.files import read_file
from mlstack.dataclass import Record, dataclass
from mlstack.errors import ConfigError, MlstackError, NotFoundError, SchemaError
from mlstack.importers.jsonnet import Evaluation, Outcome, evaluate
from mlstack.importers.plan import ImportFailure, identity_of, mapping
from mlstack.names import nearest
from mlstack.objects.kube_object import Data
from mlstack.objects.managed_fields import merge_patch
from mlstack.render.component import unpacked
from mlstack.yaml import read

FORMATS = ("0.0.1", "0.1.0", "0.2.0", "0.3.0")
APP_KIND = "ksonnet.io/app"


class Library(Record):
    """A package of ksonnet that an app or environment has installed."""

    registry: str
    name: str
    version: str = ""  # a commit; empty where it came from a folder

    @property
    def path(self) -> str:
        """Give `REGISTRY/NAME`, as imports spell it."""
        return f"{self.registry}/{self.name}"


@dataclass(frozen=True, kw_only=True, eq=False)
class KsEnvironment:
    """An environment of an app of ksonnet."""

    name: str
    path: str  # below environments/; empty of one that stands in where there is none
    server: str = ""
    namespace: str = "default"
    kubernetes_version: str = ""
    targets: tuple[str, ...] = ()  # dotted modules, `/` for the root; none means the root
    libraries: Mapping[str, Library] = field(default_factory=dict)  # by REGISTRY/NAME, the app's included

    @property
    def modules(self) -> tuple[str, ...]:
        """Give the modules it deploys, empty for the root, in ks's order."""
        return tuple(sorted({target.strip("/").replace("/", ".") for target in self.targets} or {""}))


class KsComponent(Record):
    """A file below components/ that ks deploys."""

    module: str  # dotted, empty for the root
    name: str
    file: Path

    @property
    def full_name(self) -> str:
        """Give `module.name`, as ks calls it in parameters and labels."""
        return f"{self.module}.{self.name}" if self.module else self.name


class KsApp(Record):
    """An app of ksonnet."""

    root: Path
    name: str
    format: str
    environments: tuple[KsEnvironment, ...]
    registries: Mapping[str, str]  # name -> address
    notes: tuple[str, ...] = ()

    def folder(self, module: str) -> Path:
        """Give the folder of a module."""
        return self.root.joinpath("components", *filter(None, module.split(".")))

    def components(self, module: str) -> tuple[KsComponent, ...]:
        """Give the components of a module in the order of their files."""
        kinds = (".jsonnet", ".yaml", ".json")
        files = (file for file in sorted(self.folder(module).glob("*")) if file.suffix in kinds)
        return tuple(
            KsComponent(module=module, name=file.stem, file=file) for file in files if file.is_file()
        )

    @cached_property
    def unrendered(self) -> tuple[str, ...]:
        """Give the components of modules that no environment deploys."""
        deployed = {module for environment in self.environments for module in environment.modules}
        modules = [module for module in _modules(self.root) if module not in deployed]
        return tuple(member.full_name for module in modules for member in self.components(module))


def is_app(folder: Path) -> bool:
    """Tell whether a folder is an app of ksonnet."""
    try:
        return APP_KIND.encode() in read_file(folder / "app.yaml")
    except (OSError, ConfigError):
        return False


def read_app(root: Path) -> KsApp:
    """Read an app; raises a NotFoundError or ConfigError for what is none."""
    if not root.is_dir():
        raise NotFoundError(f"no folder `{root}`", hint="name the folder with ksonnet's app.yaml")
    if not is_app(root):
        hint = "name the folder whose app.yaml says `kind: ksonnet.io/app`"
        below = sorted(file.parent for file in root.glob("*/app.yaml") if is_app(file.parent))
        hint = f"mlstack import ksonnet-app {below[0]}" if below else hint
        raise NotFoundError(f"`{root}` is no app of ksonnet", hint=hint)
    spec = _map(root / "app.yaml")
    version = str(spec.get("apiVersion", ""))
    if version not in FORMATS:
        message = f"`{version}` is no format of ksonnet's apps; known: {', '.join(FORMATS)}"
        raise SchemaError(message, where=str(root / "app.yaml"))
    overlay = _map(root / "app.override.yaml") if (root / "app.override.yaml").is_file() else {}
    registries = {**_maps(spec, "registries"), **_maps(overlay, "registries")}
    environments = _maps(spec, "environments")
    for name, values in _maps(overlay, "environments").items():
        environments[name] = {**environments.get(name, {}), **values}
    libraries = _libraries(spec)
    listed = [_environment(name, values, libraries, version) for name, values in environments.items()]
    listed = listed or [*_found_environments(root, libraries)]
    notes = ["app.override.yaml is laid over app.yaml, as ks did"] if overlay else []
    if not listed:
        # ks deployed nothing: the components are taken with their own values alone.
        alone = KsEnvironment(name="default", path="", kubernetes_version="v1.8.0", targets=_modules(root))
        listed = [replace(alone, libraries=libraries)]
        notes.append(
            "app.yaml has no environment, and so there is nothing that ks deployed to be compared with: the"
            " components were taken with their own values, in the namespace `default`"
        )
    return KsApp(
        root=root,
        name=str(spec.get("name") or root.resolve().name),
        format=version,
        environments=tuple(sorted(listed, key=lambda environment: environment.name)),
        registries={name: str(values.get("uri", "")) for name, values in registries.items()},
        notes=tuple(notes),
    )


def _modules(root: Path) -> tuple[str, ...]:
    base = root / "components"
    folders = [Path(folder).relative_to(base).parts for folder, _, _ in os.walk(base)]
    return tuple(sorted(".".join(parts) for parts in folders if not any("." in part for part in parts)))


def selected(app: KsApp, names: tuple[str, ...]) -> KsApp:
    """Give the app with these environments alone; all if none is named."""
    own = [environment.name for environment in app.environments if environment.path]
    for name in names:
        if name not in own:
            message = f"the app of ksonnet has no environment `{name}`; it has {', '.join(own) or 'none'}"
            raise NotFoundError(message, near=nearest(name, own))
    return replace(app, environments=tuple(e for e in app.environments if not names or e.name in names))


def _environment(
    name: str, values: Mapping[str, Any], libraries: Mapping[str, Library], version: str
) -> KsEnvironment:
    several, listed = values.get("destinations"), values.get("targets")
    first = several[0] if isinstance(several, list) and several else None
    place = mapping(values.get("destination") or first)
    targets = tuple(map(str, listed)) if isinstance(listed, list) else ()
    if version in FORMATS[:2]:
        targets = tuple(target if target == "/" else target.replace("/", ".") for target in targets)
    path = PurePosixPath(str(values.get("path") or name))
    if path.is_absolute() or ".." in path.parts:
        message = f"the folder `{path}` of environment `{name}` leads out of the app"
        raise SchemaError(message, where="app.yaml", hint="name a folder below environments/")
    return KsEnvironment(
        name=name,
        path=str(path),
        server=str(place.get("server") or ""),
        namespace=str(place.get("namespace") or "default"),
        kubernetes_version=str(values.get("k8sVersion") or ""),
        targets=targets,
        libraries={**libraries, **_libraries(values)},
    )


def _found_environments(root: Path, libraries: Mapping[str, Library]) -> Iterator[KsEnvironment]:
    """Find the environments of the first format, which app.yaml does not list."""
    base = root / "environments"
    for file in sorted(base.rglob("spec.json")):
        name = file.parent.relative_to(base).as_posix()
        if not any(part.startswith(".") for part in name.split("/")):
            yield _environment(name, {"path": name, "destination": _map(file)}, libraries, FORMATS[0])


def _libraries(values: Mapping[str, Any]) -> dict[str, Library]:
    libraries = {}
    for key, library in _maps(values, "libraries").items():
        git = mapping(library.get("gitVersion"))
        version = str(library.get("version") or git.get("commitSha") or "")
        name = str(library.get("name") or key.rpartition("/")[2])
        entry = Library(registry=str(library.get("registry") or ""), name=name, version=version)
        libraries[entry.path] = entry
    return libraries


def _map(file: Path) -> dict[str, Any]:
    value = read.read_document(decode(read_file(file), file=str(file)), source=str(file)).value
    if not isinstance(value, dict):
        raise SchemaError("the file is no map", where=str(file))
    return value


def _maps(values: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]]:
    """Give a map of maps, empty where it is something else: these files were written by hand."""
    return {str(name): dict(mapping(value)) for name, value in mapping(values.get(key)).items()}


# --- how ks composes an environment ---
# The order and every oddity are ks's own (0.13.1): `global` of a module goes over the values of its
# components, a YAML file counts with its first document alone, its parameters are a patch. Only this is
# different: each component is evaluated by itself, so that a broken one hides no other.


class ComposeOptions(Record):
    """What a person adds to an evaluation."""

    ext_vars: Mapping[str, str] = field(default_factory=dict)
    jpath: tuple[Path, ...] = ()
    # component -> values that are laid over its parameters in every environment
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    vendor: Path | None = None  # packages that were fetched, as vendor/ has them


class MissingImports(NamedTuple):
    """What a component that could not be evaluated in an environment would need."""

    environment: str
    imports: tuple[str, ...]  # that led nowhere
    ksonnet_lib: bool  # more of it than our stub has


class Composition(Record):
    """The objects of an app of ksonnet: those that `ks show` gives, without its label."""

    # component -> environment -> objects
    objects: Mapping[str, Mapping[str, tuple[Data, ...]]]
    failures: tuple[ImportFailure, ...]
    lacking: tuple[MissingImports, ...]
    params: Mapping[str, Mapping[str, Mapping[str, Any]]]  # environment -> component -> values
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Part:
    environment: KsEnvironment
    module: str

    def full(self, name: str) -> str:
        """Give `module.name` of one of its components."""
        return f"{self.module}.{name}" if self.module else name


_Job = tuple[_Part, KsComponent | None, Evaluation]


def compose(app: KsApp, options: ComposeOptions) -> Composition:
    """Give the objects of every environment and component.

    Raises:
        RegistryError: the evaluator is missing.
        ConfigError: a file cannot be read.
    """
    composer = _Composer(app, options)
    parts = [_Part(environment, module) for environment in app.environments for module in environment.modules]
    raw = composer.module_params(parts)
    params = composer.environment_params(raw)
    objects = composer.objects(raw, params)
    values: dict[str, dict[str, Mapping[str, Any]]] = {}
    for part, components in params.items():
        own = values.setdefault(part.environment.name, {})
        own |= {part.full(name): value for name, value in components.items() if isinstance(value, Mapping)}
    return Composition(
        objects=objects,
        failures=tuple(composer.failures),
        lacking=tuple(composer.lacking),
        params=values,
        notes=tuple(composer.notes),
    )


class _Composer:
    def __init__(self, app: KsApp, options: ComposeOptions) -> None:
        self._app, self._options = app, options
        self._root = app.root.resolve()
        self.notes: dict[str, None] = dict.fromkeys(app.notes)
        self.failures: list[ImportFailure] = []
        self.lacking: list[MissingImports] = []

    # --- parameters ---

    def module_params(self, parts: Sequence[_Part]) -> dict[_Part, Mapping[str, Any]]:
        """Give what `params.libsonnet` of each module says: `components`, and `global` over them."""
        jobs: dict[_Part, Evaluation] = {}
        for part in parts:
            file = self._app.folder(part.module) / "params.libsonnet"
            text = self._text(file) if file.is_file() else "{components: {}}"
            jobs[part] = self._job(part, file, text, {})
        return dict(self._maps(jobs))

    def environment_params(self, raw: Mapping[_Part, Mapping[str, Any]]) -> dict[_Part, dict[str, Any]]:
        """Give the parameters of the components of each module in each environment, by their own names."""
        values: dict[_Part, dict[str, Any]] = {}
        jobs: dict[_Part, Evaluation] = {}
        asked = self._options.params
        for part, module in raw.items():
            common, components = mapping(module.get("global")), mapping(module.get("components"))
            own = {part.full(name): merge_patch(value, common) for name, value in components.items()}
            own = {name: merge_patch(value, asked.get(name, {})) for name, value in own.items()}
            file = self._folder(part.environment) / "params.libsonnet"
            if not file.is_file():
                values[part] = _localised(own, part.module)
                if path := part.environment.path:
                    self._note(f"environments/{path}: no params.libsonnet; the modules' values count")
                continue
            text = self._text(file)
            text = text.replace(
                'import "../../components/params.libsonnet"', 'std.extVar("__ksonnet/params")'
            )
            jobs[part] = self._job(part, file, text, {"params": json.dumps({"components": own})})
        for part, value in self._maps(jobs):
            values[part] = _localised(mapping(value.get("components")), part.module)
            for full_name, more in asked.items():
                module_name, _, stem = full_name.rpartition(".")
                if module_name == part.module:
                    values[part][stem] = merge_patch(values[part].get(stem), more)
        return values

    def _maps(self, jobs: Mapping[_Part, Evaluation]) -> Iterator[tuple[_Part, Mapping[str, Any]]]:
        """Evaluate files of parameters; where one gives no map, its components have failed."""
        for part, outcome in _evaluated(jobs):
            if outcome.error or not isinstance(outcome.value, Mapping):
                self._failed(part, self._app.components(part.module), outcome)
            else:
                yield part, outcome.value

    # --- objects ---

    def objects(
        self, raw: Mapping[_Part, Mapping[str, Any]], params: Mapping[_Part, Mapping[str, Any]]
    ) -> dict[str, dict[str, tuple[Data, ...]]]:
        """Give the objects of the components in each environment, as `main.jsonnet` there composes them."""
        jobs: list[_Job] = []
        for part, values in params.items():
            file = self._folder(part.environment) / "main.jsonnet"
            text = self._main(file)
            for component in (*self._app.components(part.module), None):
                try:
                    codes = {"components": self._code(component, raw[part])}
                except MlstackError as error:
                    failed = Outcome(error=error.message, where=error.where or "")
                    self._failed(part, (component,) if component else (), failed)
                    continue
                codes["params"] = json.dumps({"components": values})
                jobs.append((part, component, self._job(part, file, text, codes)))
        outcomes = evaluate([job for _, _, job in jobs])
        outcomes, looking = self._with_others(jobs, outcomes)
        objects: dict[str, dict[str, tuple[Data, ...]]] = {}
        for (part, component, _), outcome in zip(jobs, outcomes, strict=True):
            for name, value in self._values(part, component, outcome, params[part]):
                flattened = self._flattened(part, name, value)
                if flattened is not None:
                    objects.setdefault(name, {})[part.environment.name] = flattened
        self._leave_to_others(objects, looking)
        return dict(sorted(objects.items()))

    def _with_others(
        self, jobs: Sequence[_Job], outcomes: Sequence[Outcome]
    ) -> tuple[list[Outcome], dict[str, None]]:
        """Evaluate components that look at the others once more, beside all that can be evaluated."""
        again: dict[int, Evaluation] = {}
        names: dict[str, None] = {}
        for number, (part, component, job) in enumerate(jobs):
            if component is None or not outcomes[number].looks_at_others:
                continue
            sound = [
                other.ext_codes["__ksonnet/components"]
                for (place, _, other), outcome in zip(jobs, outcomes, strict=True)
                if place == part and (not outcome.error or outcome.looks_at_others)
            ]
            codes = {**job.ext_codes, "__ksonnet/components": " + ".join(sound)}
            again[number] = replace(job, ext_codes=codes)
            names[component.full_name] = None
        return [*{**dict(enumerate(outcomes)), **dict(_evaluated(again))}.values()], names

    def _leave_to_others(
        self, objects: dict[str, dict[str, tuple[Data, ...]]], names: Mapping[str, None]
    ) -> None:
        """Take objects out of components that bring those of the others once more."""
        repeated = [(name, environment) for name in names for environment in objects.get(name, {})]
        for name, environment in repeated:
            others = {
                identity_of(data)
                for other, by_environment in objects.items()
                if other not in names
                for data in by_environment.get(environment, ())
            }
            listed = objects[name][environment]
            kept = tuple(data for data in listed if identity_of(data) not in others)
            objects[name][environment] = kept
            if count := len(listed) - len(kept):
                what = f"{count} object{'s'[: count != 1]} of the other components"
                self._note(f"{name}: brings {what} again; theirs count")

    def _main(self, file: Path) -> str:
        if file.is_file():
            return self._text(file)
        if self._app.environments[0].path:
            self._note(f"{file.relative_to(self._app.root)}: not there; the components count as they are")
        return 'std.extVar("__ksonnet/components")'

    def _code(self, component: KsComponent | None, raw: Mapping[str, Any]) -> str:
        if component is None:
            return "{}"
        name = json.dumps(component.full_name)
        if component.file.suffix == ".jsonnet":
            return f"{{ {name}: (import {json.dumps(str(component.file.resolve()))}) }}"
        documents = read.read_documents(self._text(component.file), source=self._shown(component.file))
        if not documents:
            raise ConfigError("the file holds nothing", where=self._shown(component.file))
        if len(documents) > 1:
            self._note(
                f"{self._shown(component.file)}: ks deployed the first of {len(documents)} documents alone,"
                " and so does the import; the others: mlstack import FILE"
            )
        own = mapping(raw.get("components")).get(component.name)
        value = merge_patch(documents[0].value, own) if own is not None else documents[0].value
        return f"{{ {name}: {json.dumps(value)} }}"

    def _values(
        self, part: _Part, component: KsComponent | None, outcome: Outcome, params: Mapping[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        """Give what an evaluation made of a component; without one, what `main.jsonnet` brings by itself."""
        value = outcome.value
        names = {member.full_name for member in self._app.components(part.module)}
        if component is None:
            extra = value if isinstance(value, Mapping) else {}
            yield from ((name, inner) for name, inner in extra.items() if name not in names)
        elif outcome.error or not isinstance(value, Mapping):
            error = outcome if outcome.error else Outcome(error="main.jsonnet does not give an object")
            self._failed(part, (component,), error)
        elif component.full_name in value:
            composed = value[component.full_name]
            if component.file.suffix != ".jsonnet" and component.full_name in params:
                composed = merge_patch(composed, params[component.full_name])
            yield component.full_name, composed

    def _flattened(self, part: _Part, name: str, value: Any) -> tuple[Data, ...] | None:
        """Give the objects of a component: Lists and arrays taken apart, what is null left out."""
        objects: list[Data] = []
        is_list = isinstance(value, list)
        for item in value if is_list else [value]:
            for _, data in unpacked(item):
                if data is None and (is_list or item is not None):
                    where = f"`{part.environment.name}`"
                    self._note(f"{name}: an item of its List is null in {where}; it is left out")
                elif not isinstance(data, Mapping) or not data.get("kind") or not data.get("apiVersion"):
                    what = "something that is no object of Kubernetes (no `apiVersion` and `kind`)"
                    self._fail(part, name, f"it brings {what}")
                    return None
                elif data["kind"] != "List" or data.get("items"):
                    objects.append(_without_label(data))
        return tuple(objects)

    # --- one evaluation ---

    def _job(self, part: _Part, file: Path, text: str, codes: Mapping[str, str]) -> Evaluation:
        environment, root = part.environment, self._root
        place = json.dumps({"server": environment.server, "namespace": environment.namespace})
        vendors = [root / "vendor", *([self._options.vendor] if self._options.vendor else [])]
        packages = {
            library.path: str(folder)
            for vendor in reversed(vendors)
            for library in environment.libraries.values()
            if (folder := vendor / library.registry / f"{library.name}@{library.version}").is_dir()
        }
        version = environment.kubernetes_version
        generated = [root / "lib" / "ksonnet-lib" / version, root / "lib" / version] if version else []
        generated += [vendors[-1] / "ksonnet-lib" / version] if len(vendors) > 1 and version else []
        folder = self._folder(environment).resolve()
        folders = [
            *(self._app.folder(module).resolve() for module in reversed(environment.modules)),
            *generated,
            *sorted((root / "lib" / "ksonnet-lib").glob("*")),
            folder / ".metadata",
            root / "lib",
            *vendors,
            folder,
            root / "environments",
            root,
            *self._options.jpath,
        ]
        roots = [root, *self._options.jpath, *vendors[1:]]
        return Evaluation(
            file=str(file.resolve()),
            text=text,
            folders=tuple(map(str, folders)),
            packages=packages,
            roots=tuple(map(str, roots)),
            printed=tuple(str(member.file.resolve()) for member in self._app.components(part.module)),
            ext_vars=dict(self._options.ext_vars),
            ext_codes={f"__ksonnet/{name}": code for name, code in {**codes, "environments": place}.items()},
        )

    def _folder(self, environment: KsEnvironment) -> Path:
        return self._app.root / "environments" / environment.path

    def _text(self, file: Path) -> str:
        return decode(read_file(file), file=self._shown(file))

    def _shown(self, place: Path | str) -> str:
        return str(place).replace(f"{self._root}/", "").replace(f"{self._app.root}/", "")

    def _note(self, text: str) -> None:
        self.notes[text] = None

    def _failed(self, part: _Part, components: Sequence[KsComponent], outcome: Outcome) -> None:
        reason = self._shown("".join(filter(str.isprintable, outcome.error)))
        lacks_ksonnet_lib = outcome.used_stub and reason.lower().startswith("field does not exist")
        if lacks_ksonnet_lib:
            reason += "; the app has no ksonnet-lib: --jpath names the folder of one"
        libraries, path = part.environment.libraries, (outcome.missing or ("",))[-1]
        if library := libraries.get("/".join(path.split("/")[:2])):
            name = f"{library.path}@{library.version}".rstrip("@")
            reason += f"; package {name} is not in vendor/"
        for component in components:
            self.lacking.append(MissingImports(part.environment.name, outcome.missing, lacks_ksonnet_lib))
            self._fail(part, component.full_name, reason, self._shown(outcome.where))

    def _fail(self, part: _Part, component: str, reason: str, where: str = "") -> None:
        name = part.environment.name
        self.failures.append(ImportFailure(component=component, environment=name, reason=reason, where=where))


_K = TypeVar("_K")


def _evaluated(jobs: Mapping[_K, Evaluation]) -> Iterator[tuple[_K, Outcome]]:
    yield from zip(jobs, evaluate([*jobs.values()]), strict=True)


def _localised(components: Mapping[str, Any], module: str) -> dict[str, Any]:
    """Give the values of a module's components by their names in it, as ks picks them."""
    if not module:
        return {name: value for name, value in components.items() if "." not in name}
    return {name.rpartition(".")[2]: value for name, value in components.items() if name.startswith(module)}


def _without_label(data: Data) -> Data:
    metadata = dict(mapping(data.get("metadata")))
    labels = dict(mapping(metadata.pop("labels", None)))
    if "ksonnet.io/component" not in labels:
        return data
    del labels["ksonnet.io/component"]
    return {**data, "metadata": {**metadata, **({"labels": labels} if labels else {})}}
