"""Packages of one's own: what is wrong with their files, and what their prototypes do when tried."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from mlstack.app import atomic, document, files, schema
from mlstack.app.app import DEFAULT_KUBERNETES_VERSION
from mlstack.app.app_dir import AppDir
from mlstack.app.package import PackageFolder
from mlstack.app.params import join_path, spelling_table
from mlstack.app.prototype import Example, Package, Prototype
from mlstack.errors import ConfigError, MlstackError, NotFoundError, UsageError
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.managed_fields import FieldChange
from mlstack.readiness import assess
from mlstack.registries.directory import build_index, package_folders
from mlstack.registries.installation import full_ref, read_package
from mlstack.registries.registry import INDEX_FILE
from mlstack.render.sandbox import template_faults
from mlstack.render.trial import REFUSALS, PrototypeTrial, matrix, try_hostile
from mlstack.testing.kinds import update_faults
from mlstack.validate.formats import Fault
from mlstack.validate.validate import load_schemas, validate_objects
from mlstack.yaml import read, write

CRD = "CustomResourceDefinition"


@dataclass(frozen=True, kw_only=True)
class PackageFault:
    """One thing that is wrong with a package or registry."""

    check: str  # which check found it
    message: str
    where: str | None = None  # file, or file:line
    severity: str = "error"  # a `warning` alone fails nothing


class _Faults(list[PackageFault]):
    """What the checks have found so far, each thing once."""

    def add(self, check: str, message: str, where: str | None = None, *, severity: str = "error") -> None:
        fault = PackageFault(check=check, message=message, where=where, severity=severity)
        if all((known.message, known.where) != (message, where) for known in self):
            self.append(fault)

    @contextmanager
    def collecting(self, check: str, prefix: str = "") -> Iterator[None]:
        """Note an error, each fault that its message lists by itself."""
        try:
            yield
        except MlstackError as error:
            head, *lines = error.message.split("\n")
            for line in lines or [head]:
                placed = re.fullmatch(r"(.*) \((.+:\d+)\)", line.strip())
                text, where = placed.groups() if placed and lines else (line.strip(), error.where)
                self.add(check, f"{prefix}{text}", where)

    @property
    def ok(self) -> bool:
        return not any(fault.severity == "error" for fault in self)


# --- what is wrong with the files of a registry, or of one package ---


@dataclass(frozen=True, kw_only=True)
class Linted:
    """What is wrong with a registry's folder."""

    ok: bool
    folder: str  # as given
    packages: int  # how many were looked at
    prototypes: int
    faults: tuple[PackageFault, ...]


def lint_registry(folder: Path) -> Linted:
    """Look through a registry's folder, or a package's: files, templates, examples, index and digests.

    Raises:
        NotFoundError: there is no such folder.
        RegistryError: there is no package in it.
    """
    faults = _Faults()
    if not folder.is_dir():
        raise NotFoundError(f"no folder `{folder}`", hint="relative paths start at the working directory")
    is_package = (folder / "package.yaml").is_file()
    places = [folder] if is_package else package_folders(folder)
    packages: list[PackageFolder] = []
    for place in places:
        with faults.collecting("package"):
            packages.append(_read(place))
    names: dict[tuple[str, str], str] = {}
    for package in packages:
        with faults.collecting("package"):
            key = (package.head.name, package.head.version)
            if key in names:
                faults.add(
                    "package",
                    f"`{names[key]}` is `{'@'.join(key)}` as well",
                    f"{package.source}/package.yaml",
                )
            names[key] = package.source
            if not package.head.license:
                faults.add("licence", "the package names no `license`", f"{package.source}/package.yaml")
            if not package.head.summary:
                faults.add("package", "the package has no `summary`", f"{package.source}/package.yaml")
    prototypes = 0
    for package in packages:
        libraries = _libraries(package, folder if is_package else Path(package.source), faults)
        prototypes += len(package.prototype_names)
        _lint_package(package, libraries, faults)
    if not is_package:
        _lint_index(folder, faults)
    return Linted(
        ok=faults.ok, folder=str(folder), packages=len(places), prototypes=prototypes, faults=tuple(faults)
    )


def _read(place: Path) -> PackageFolder:
    source = place.as_posix()
    return PackageFolder.read(place, source=source if source != "." else place.resolve().name)


def _libraries(package: PackageFolder, place: Path | None, faults: _Faults) -> dict[str, PackageFolder]:
    """Give what a package requires, directly or through others: folders beside it, or shipped ones."""
    libraries: dict[str, PackageFolder] = {}
    with faults.collecting("requires"):
        waiting = [*package.head.requires]
        while waiting:
            name = str(getattr(waiting[0], "name", waiting[0])).rpartition("/")[2]
            del waiting[0]
            if name in libraries:
                continue
            beside = [place.resolve().parent] if place is not None else []
            roots = [*beside, files.folder("prototypes")]
            found = next((root / name for root in roots if (root / name / "package.yaml").is_file()), None)
            if found is None:
                where = f"{package.source}/package.yaml"
                hint = f"put the folder of `{name}` beside this one"
                raise NotFoundError(
                    f"the package requires `{name}`, which is not beside it", where=where, hint=hint
                )
            libraries[name] = PackageFolder.read(found, source=name)
            waiting += libraries[name].head.requires
    return libraries


def _lint_package(package: PackageFolder, libraries: Mapping[str, PackageFolder], faults: _Faults) -> None:
    for path in package.files:
        if path.suffix == ".j2" and path.parts[0] == "templates":
            _lint_template(package, path, None, faults)
        elif path.parts[0] == "blocks" and path.suffix == ".yaml":
            with faults.collecting("schema"):
                package.document(str(path), "ParameterBlock")
    with faults.collecting("schema"):
        _ = package.definitions
    for name in package.prototype_names:
        prototype = None
        with faults.collecting("schema"):
            prototype = package.prototype(name, libraries)
        declared, before = None if prototype is None else set(prototype.params), len(faults)
        for path in package.files:
            if path.is_relative_to(PurePosixPath(name, "templates")) and path.suffix == ".j2":
                is_library = path.name.startswith("_")
                _lint_template(package, path, None if is_library else declared, faults)
        if prototype is not None:
            _lint_prototype(package, prototype, faults, renders=len(faults) == before)


def _lint_template(
    package: PackageFolder, path: PurePosixPath, declared: set[str] | None, faults: _Faults
) -> None:
    """Note what is wrong with a template as it stands."""
    with faults.collecting("template"):
        text = document.decode(package.files[path], file=f"{package.source}/{path}")
        for line, message in template_faults(str(path), text, declared):
            faults.add("template", message, f"{package.source}/{path}:{line}")


def _lint_prototype(package: PackageFolder, prototype: Prototype, faults: _Faults, *, renders: bool) -> None:
    file = f"{package.source}/{prototype.name}/prototype.yaml"
    for name, param in prototype.params.items():
        for message in schema.check_value(param, param.default) if param.has_default else ():
            faults.add("schema", f"the default of {message}", file)
        for alias in param.aliases:
            if alias in prototype.params:
                faults.add("schema", f"`{alias}` is a parameter, and another name of `{name}`", file)
    if not prototype.examples:
        faults.add(
            "example", f"prototype `{prototype.name}` has no example", f"{package.source}/{prototype.name}"
        )
    trial = PrototypeTrial(prototype)
    for example in prototype.examples.values() if renders else ():
        where = f"{package.source}/{prototype.name}/examples/{example.name}.yaml"
        with faults.collecting("example", f"{where}: "):
            if not trial.objects(example.params, example=example):
                faults.add("example", "it renders no object", where)


def _lint_index(folder: Path, faults: _Faults) -> None:
    file = folder / INDEX_FILE
    renew = f"mlstack registry index {folder}"
    if not file.is_file():
        faults.add("index", f"there is no `{INDEX_FILE}`: {renew}", str(file))
        return
    with faults.collecting("index"):
        if build_index(folder) != file.read_text(encoding="utf-8"):
            faults.add("index", f"it is not what the packages say, digests included: {renew}", str(file))
    with faults.collecting("index"):
        fields = document.fields_of(document.read(file.read_bytes(), file=str(file)), "Registry")
        for package in fields.each("packages"):
            for version in package.each("versions"):
                path = version.text("path")
                if not (folder / path / "package.yaml").is_file():
                    name = f"{package.text('name')}@{version.text('version')}"
                    faults.add("index", f"the folder of `{name}` is missing: `{path}`", str(file))


# --- what the prototypes of a package do when tried ---


@dataclass(frozen=True, kw_only=True)
class PrototypeTested:
    """How much of a prototype was tried."""

    name: str
    examples: int
    combinations: int  # sets of parameters beside the examples
    hostile_texts: int


@dataclass(frozen=True, kw_only=True)
class PackageTested:
    """What the trial of a package has found."""

    ok: bool
    package: str  # `name@version`
    kubernetes: str  # the version that objects were checked for
    prototypes: tuple[PrototypeTested, ...]
    golden: str  # `compared`, `written`, or `none`
    against: str | None  # the version whose users it was tried for
    faults: tuple[PackageFault, ...]


GOLDEN = "golden"
"""Folder of a package with what its examples render to, as a person approved it."""


def test_package(
    folder: Path,
    *,
    kubernetes: str = DEFAULT_KUBERNETES_VERSION,
    update: bool = False,
    against: str = "",
    app: Callable[[], AppDir] | None = None,
) -> PackageTested:
    """Try every prototype of a package: examples, combinations of parameters, hostile texts, golden output.

    Args:
        folder: the package's.
        kubernetes: whose schemas the objects must fit.
        update: write the golden output instead of comparing it.
        against: the version that users have: a folder, or `registry/package@version`.
        app: gives the app whose registries are asked for that version.

    Raises:
        NotFoundError: there is no package in the folder, or no such version.
        UsageError: mlstack has no schemas of that Kubernetes, or the earlier version is another package.
        ConfigError: a file of the package is wrong, or the output cannot be written.
    """
    if not (folder / "package.yaml").is_file():
        raise NotFoundError(
            f"no package in `{folder}`: it has no package.yaml", hint="mlstack prototype new NAME"
        )
    try:
        schemas, faults = load_schemas(kubernetes), _Faults()
    except ConfigError as error:
        raise UsageError(error.message.replace("kubernetesVersion", "--kubernetes-version")) from error
    read_folder = _read(folder)
    package = read_folder.package(_needed(read_folder, folder))
    checker = _Checker(package, schemas, faults)
    rows: list[PrototypeTested] = []
    golden: dict[str, str] = {}
    for prototype in package.prototypes.values():
        trial = PrototypeTrial(prototype)
        golden |= checker.examples(trial, read_folder.source)
        combinations = checker.combinations(trial)
        hostility = try_hostile(trial) if checker.renders(prototype) else None
        for fault in hostility.faults if hostility else ():
            given = f"`{join_path(fault.path)}` given {document.shown(fault.text)}"
            message = f"{prototype.name}: {given}: {fault.message}"
            faults.add("hostile", message, fault.where)
        rows.append(
            PrototypeTested(
                name=prototype.name,
                examples=len(prototype.examples),
                combinations=combinations,
                hostile_texts=hostility.texts if hostility else 0,
            )
        )
    state = _golden(folder / GOLDEN, golden, faults, update=update)
    if against:
        before = _earlier(against, package.name, app)
        _Upgrade(before, package, faults).check()
    return PackageTested(
        ok=faults.ok,
        package=f"{package.name}@{package.version}",
        kubernetes=schemas.version,
        prototypes=tuple(rows),
        golden=state,
        against=against or None,
        faults=tuple(faults),
    )


def _needed(package: PackageFolder, place: Path | None) -> dict[str, PackageFolder]:
    faults = _Faults()
    libraries = _libraries(package, place, faults)
    if faults:
        raise NotFoundError(faults[0].message, where=faults[0].where)
    return libraries


class _Checker:
    """Renders examples and combinations of one package, and checks what comes out."""

    def __init__(self, package: Package, schemas: Any, faults: _Faults) -> None:
        self._schemas, self._faults = schemas, faults
        self._crds = [
            found.value
            for file, text in package.crds.items()
            for found in read.read_documents(text, source=file)
        ]
        prototypes = package.prototypes.values()
        self._needed = {need.kind for prototype in prototypes for need in prototype.needs}
        self._broken: set[str] = set()

    def renders(self, prototype: Prototype) -> bool:
        """Tell whether every example renders, without which nothing can be compared."""
        return prototype.name not in self._broken

    def examples(self, trial: PrototypeTrial, source: str) -> dict[str, str]:
        """Render and check the examples; gives the text of each by its golden file's name."""
        texts = {}
        name = trial.prototype.name
        if not trial.prototype.examples:
            self._faults.add("example", f"prototype `{name}` has no example", f"{source}/{name}")
            self._broken.add(name)
        for example in trial.prototype.examples.values():
            title = f"{name}, example {example.name}: "
            self._broken.add(name)
            with self._faults.collecting("example", title):
                objects = trial.objects(example.params, example=example)
                self._broken.discard(name)
                texts[f"{name}/{example.name}.yaml"] = write.to_yaml_documents(obj.data for obj in objects)
                for message, where, severity in self._problems(objects):
                    self._faults.add("schema", f"{title}{message}", where, severity=severity)
        return texts

    def combinations(self, trial: PrototypeTrial) -> int:
        """Render the first example with combinations of other parameters; gives how many there were."""
        count = 0
        example = next(iter(trial.prototype.examples.values()), None)
        if example is None or not self.renders(trial.prototype):
            return 0
        usual = set(self._errors(trial.objects(example.params, example=example)))
        for row in matrix(trial, example):
            count += 1
            errors = {row.error.message: row.error.message} if row.error else self._errors(row.objects)
            for key in errors.keys() - usual:
                usual.add(key)
                params = self._blamed(trial, example, row.params, key)
                shown = ", ".join(f"{name}={document.shown(value)}" for name, value in params.items())
                message = f"{trial.prototype.name} with {shown}: {errors[key]}"
                self._faults.add("matrix", message, row.error.where if row.error else None)
        return count

    def _blamed(
        self, trial: PrototypeTrial, example: Example, row: Mapping[str, Any], key: str
    ) -> Mapping[str, Any]:
        """Give those parameters of a row that it takes for the fault."""
        for name in list(row):
            fewer = {other: value for other, value in row.items() if other != name}
            try:
                keys = set(self._errors(trial.objects(example.params, fewer, example=example)))
            except REFUSALS:
                continue
            except ConfigError as error:
                keys = {error.message}
            if key in keys:
                row = fewer
        return row

    def _errors(self, objects: Sequence[KubeObject]) -> dict[str, str]:
        """Give the faults of objects by what stays the same whatever the objects are called."""
        others = [obj for obj in objects if obj.kind != CRD]  # the examples have shown them
        crds = [obj.data for obj in objects if obj.kind == CRD]
        faults = validate_objects(
            others, self._schemas, crds=[*self._crds, *crds], needed=self._needed
        ).faults
        return {
            f"{fault.path} {fault.message}": _said(fault) for fault in faults if fault.severity == "error"
        }

    def _problems(self, objects: Sequence[KubeObject]) -> Iterator[tuple[str, str | None, str]]:
        for fault in validate_objects(objects, self._schemas, crds=self._crds, needed=self._needed).faults:
            yield _said(fault), fault.where, fault.severity


def _said(fault: Fault) -> str:
    return f"{fault.object}: " + (f"`{fault.path}` " if fault.path else "") + fault.message


def _golden(folder: Path, texts: Mapping[str, str], faults: _Faults, *, update: bool) -> str:
    """Compare what examples render to with what was approved, or write that anew."""
    known = {path.relative_to(folder).as_posix(): path for path in folder.glob("*/*.yaml") if folder.is_dir()}
    if update:
        stale = [path for name, path in known.items() if name not in texts]
        atomic.write_files({folder / name: text for name, text in texts.items()}, delete=stale)
        return "written"
    if not known:
        return "none"
    for name, text in texts.items():
        if name not in known:
            faults.add("golden", "there is no approved output of it: --update writes it", str(folder / name))
        elif known[name].read_text(encoding="utf-8") != text:
            old, new = known[name].read_text(encoding="utf-8").splitlines(), text.splitlines()
            lines = [n for n, (one, other) in enumerate(zip(old, new, strict=False), 1) if one != other]
            line = lines[0] if lines else min(len(old), len(new)) + 1
            shown = new[line - 1].strip() if line <= len(new) else "nothing"
            message = f"it renders otherwise than approved: `{shown}`; --update approves it"
            faults.add("golden", message, f"{folder / name}:{line}")
    for name in sorted(known.keys() - texts.keys()):
        faults.add("golden", "there is no example for it any more: --update removes it", str(folder / name))
    return "compared"


def _earlier(text: str, name: str, app: Callable[[], AppDir] | None) -> Package:
    """Read the version that users have."""
    place = Path(text)
    if (place / "package.yaml").is_file():
        folder = _read(place)
        package = folder.package(_needed(folder, place))
    elif app is None or place.is_dir() or text.startswith((".", "/")):
        raise NotFoundError(f"no package in `{text}`", hint="give a folder with package.yaml, or R/P@VERSION")
    else:
        found = app()
        package = read_package(found, full_ref(found, text))[0]
    if package.name != name:
        raise UsageError(f"`{text}` is the package `{package.name}`, not an earlier `{name}`")
    return package


# --- whether those who have an earlier version come through an update ---


class _Upgrade:
    """Compares two versions of a package as their users meet them."""

    def __init__(self, before: Package, after: Package, faults: _Faults) -> None:
        self._before, self._after, self._faults = before, after, faults

    def check(self) -> None:
        """Note what breaks, and what users should know."""
        for name, old in self._before.prototypes.items():
            every = self._after.prototypes.values()
            new = self._after.prototypes.get(name) or next((p for p in every if name in p.aliases), None)
            if new is None:
                self._add(name, "the prototype is gone, and no other has its name as an alias")
                continue
            self._parameters(old, new)
            for example in old.examples.values():
                self._example(old, new, example)

    def _add(self, prototype: str, message: str, *, severity: str = "error") -> None:
        self._faults.add("upgrade", f"{prototype}: {message}", severity=severity)

    def _parameters(self, old: Prototype, new: Prototype) -> None:
        known = spelling_table(new.params)
        for spelling, name in spelling_table(old.params).items():
            if spelling not in known and spelling == name:
                self._add(
                    old.name, f"the parameter `{spelling}` is gone: keep it as an alias, or deprecate it"
                )
            elif spelling not in known:
                self._add(old.name, f"`{spelling}`, another name of `{name}`, is gone")
        for name, param in new.params.items():
            was = next((old.params[own] for own in (name, *param.aliases) if own in old.params), None)
            if param.required and (was is None or not was.required):
                self._add(old.name, f"the parameter `{name}` is required now")
            if was is not None and was.has_default and was.default != param.default:
                change = f"{document.shown(was.default)} → {document.shown(param.default)}"
                self._add(old.name, f"the default of `{name}` changes: {change}", severity="warning")

    def _example(self, old: Prototype, new: Prototype, example: Example) -> None:
        title = f"{old.name}, example {example.name}"
        try:
            before = {_key(obj): obj for obj in PrototypeTrial(old).objects(example.params, example=example)}
        except ConfigError:  # it never worked
            return
        try:
            after = {_key(obj): obj for obj in PrototypeTrial(new).objects(example.params, example=example)}
        except ConfigError as error:
            self._add(title, f"its parameters do not render any more: {error.message.replace(chr(10), ' ')}")
            return
        for key, obj in before.items():
            if key in after:
                self._object(title, obj, after[key])
            elif obj.kind == "PersistentVolumeClaim":
                self._add(title, f"the claim `{obj.name}` is dropped, and with it what was stored")
            else:
                self._add(title, f"{obj.kind} `{obj.name}` goes from the cluster", severity="warning")

    def _object(self, title: str, old: KubeObject, new: KubeObject) -> None:
        named = f"{title}: {old.kind} `{old.name}`"
        claims = [_claims(old), _claims(new)]
        for claim in sorted(claims[0] - claims[1]):
            self._faults.add("upgrade", f"{named}: the claim template `{claim}` is dropped")
        for cause in update_faults((old.group, old.kind), old.data, new.data):
            changed = [cause.field] if cause.field != "spec" else _frozen(old, new)
            what = "the selector is renamed: " if "spec.selector" in changed else ""
            fields = ", ".join(f"`{field}`" for field in changed)
            self._faults.add("upgrade", f"{named}: {what}{fields} cannot change while the object exists")
        changes = list(_changes(old.data.get("spec"), new.data.get("spec"), "spec"))
        if why := assess.needs_new_run(old.data, changes):
            self._faults.add("upgrade", f"{named} is deleted and made anew: {why}", severity="warning")


def _key(obj: KubeObject) -> tuple[str, str, str, str]:
    return obj.group, obj.kind, obj.namespace or "", obj.name


def _claims(obj: KubeObject) -> set[str]:
    spec = obj.data.get("spec")
    templates = spec.get("volumeClaimTemplates") if isinstance(spec, Mapping) else None
    return {str(template["metadata"]["name"]) for template in templates or ()}


def _frozen(old: KubeObject, new: KubeObject) -> list[str]:
    """Give the fields of the spec that the server refuses to change, each tried by itself."""
    one, other = old.data["spec"], new.data["spec"]
    changed = [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]
    alone = {name: {**old.data, "spec": {**one, name: other.get(name)}} for name in changed}
    return [
        f"spec.{name}" for name in changed if [*update_faults((old.group, old.kind), old.data, alone[name])]
    ]


def _changes(old: Any, new: Any, path: str) -> Iterator[FieldChange]:
    """Give the differences of two maps, lists as a whole."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted({*old, *new}):
            yield from _changes(old.get(name), new.get(name), f"{path}.{name}")
    elif old != new:
        yield FieldChange(path=path, action="changed", old=old, new=new)
