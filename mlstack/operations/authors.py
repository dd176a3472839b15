"""Packages of one's own: prototypes begun, what is wrong with files, and what prototypes do when tried."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import Any

from mlstack import DEFAULT_KUBERNETES_VERSION
from mlstack.app import document, edit, files, schema
from mlstack.app.app_dir import AppDir
from mlstack.app.components import typed_values
from mlstack.app.document import join_path
from mlstack.app.package import PackageFolder
from mlstack.app.params import as_typed
from mlstack.app.prototype import Example, Package, Prototype
from mlstack.dataclass import Record
from mlstack.errors import ConfigError, MlstackError, NotFoundError, UsageError
from mlstack.names import not_found
from mlstack.objects.kube_object import KubeObject, Schemas, items_of
from mlstack.registries import publish
from mlstack.registries.installation import full_ref, read_package
from mlstack.registries.registry import INDEX_FILE, FolderTree, read_index
from mlstack.render.sandbox import template_faults
from mlstack.render.trial import (
    REFUSALS,
    Hostility,
    PrototypeTrial,
    TrialRow,
    hostile_value,
    matrix,
    tried,
    try_hostile,
    try_texts,
)
from mlstack.validate.formats import Fault
from mlstack.validate.validate import load_schemas, validate_objects
from mlstack.yaml import read, write

CRD = "CustomResourceDefinition"


class PackageFault(Record):
    """One thing that is wrong with a package or registry."""

    check: str  # which check found it
    message: str
    where: str | None = None  # file, or file:line
    severity: str = "error"  # a `warning` alone fails nothing
    prototype: str = ""  # whose; empty for the package as a whole
    example: str = ""  # of that prototype
    params: Mapping[str, Any] = field(default_factory=dict)  # what differs from the example's
    repeat: str = ""  # the command that shows this one again


class _Faults(list[PackageFault]):
    """What the checks have found so far, each thing once."""

    def add(
        self, check: str, message: str, where: str | None = None, *, severity: str = "error", **about: Any
    ) -> None:
        fault = PackageFault(check=check, message=message, where=where, severity=severity, **about)
        if all((noted.message, noted.where) != (message, where) for noted in self):
            self.append(fault)

    @contextmanager
    def collecting(self, check: str, prefix: str = "", **about: Any) -> Iterator[None]:
        """Note an error, each fault that its message lists by itself."""
        try:
            yield
        except MlstackError as error:
            head, *lines = error.message.split("\n")
            for line in lines or [head]:
                placed = re.fullmatch(r"(.*) \((.+:\d+)\)", line.strip())
                text, where = placed.groups() if placed and lines else (line.strip(), error.where)
                self.add(check, f"{prefix}{text}", where, **about)

    @property
    def ok(self) -> bool:
        return not any(fault.severity == "error" for fault in self)


# --- what is wrong with the files of a registry, or of one package ---


class Linted(Record):
    """What is wrong with a registry's folder."""

    ok: bool
    folder: str  # as given
    packages: int  # how many were looked at
    prototypes: int
    faults: tuple[PackageFault, ...]


def lint_registry(folder: Path) -> Linted:
    """Look through a registry's folder, or a package's: files, templates, examples, index and digests."""
    faults = _Faults()
    publish.refuse_chart(folder, "which helm looks through", f"helm lint {folder}")
    is_package = (folder / "package.yaml").is_file()
    places = [folder] if is_package else publish.package_folders(folder)
    packages: list[PackageFolder] = []
    for place in places:
        with faults.collecting("package"):
            packages.append(_read(place))
    names: dict[str, str] = {}
    for package in packages:
        with faults.collecting("package"):
            file, name = f"{package.source}/package.yaml", f"{package.head.name}@{package.head.version}"
            if name in names:
                faults.add("package", f"`{names[name]}` is `{name}` as well", file)
            names[name] = package.source
            if not package.head.license and not package.is_chart:
                faults.add("licence", "the package names no `license`", file)
            if not package.head.summary and not package.is_chart:
                faults.add("package", "the package has no `summary`", file)
    for package in packages:
        libraries = _libraries(package, folder if is_package else Path(package.source), faults)
        _lint_package(package, libraries, faults)
    if not is_package:
        _lint_index(folder, faults)
    prototypes = sum(len(package.prototype_names) for package in packages)
    counts = {"packages": len(places), "prototypes": prototypes}
    return Linted(ok=faults.ok, folder=str(folder), faults=tuple(faults), **counts)


def _read(place: Path) -> PackageFolder:
    source = place.as_posix()
    return PackageFolder.read(place, source=source if source != "." else place.resolve().name)


def _libraries(package: PackageFolder, place: Path, faults: _Faults) -> dict[str, PackageFolder]:
    """Give what a package requires, directly or through others: folders beside it, or shipped ones."""
    libraries: dict[str, PackageFolder] = {}
    roots = (place.resolve().parent, files.folder("prototypes"))
    with faults.collecting("requires"):
        waiting = [*package.head.requires]
        for name in (full_name.rpartition("/")[2] for full_name in waiting):  # which grows
            if name in libraries:
                continue
            folder = next((root / name for root in roots if (root / name / "package.yaml").is_file()), None)
            if folder is None:
                message = f"the package requires `{name}`, which is not beside it"
                where, hint = f"{package.source}/package.yaml", f"put the folder of `{name}` beside this one"
                raise NotFoundError(message, where=where, hint=hint)
            libraries[name] = PackageFolder.read(folder, source=name)
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
        if prototype is not None and not package.is_chart:
            _lint_prototype(package, prototype, faults, renders=len(faults) == before)


def _lint_template(
    package: PackageFolder, path: PurePosixPath, declared: set[str] | None, faults: _Faults
) -> None:
    """Note what is wrong with a template as it stands."""
    with faults.collecting("template"):
        text = document.decode(package.files[path], file=f"{package.source}/{path}")
        for line, message in template_faults(str(path), text, declared):
            faults.add("template", message, f"{package.source}/{path}:{line}")


def _lint_schema(source: str, prototype: Prototype, faults: _Faults) -> None:
    """Tell what stands in the schema of the parameters and says nothing there."""
    for path, near in schema.strange_keywords(prototype.schema):
        meant = near or ("parameters stand under `properties`" if len(path) == 1 else "it says nothing")
        message = f"`parameters.{join_path(path)}` is no keyword of JSON Schema: {meant}"
        faults.add("schema", message, f"{source}/{prototype.name}/prototype.yaml", severity="warning")


def _lint_prototype(package: PackageFolder, prototype: Prototype, faults: _Faults, *, renders: bool) -> None:
    file = f"{package.source}/{prototype.name}/prototype.yaml"
    _lint_schema(package.source, prototype, faults)
    for name, param in prototype.params.items():
        for message in schema.check_value(param, param.default) if param.has_default else ():
            faults.add("schema", f"the default of {message}", file)
        for alias in param.aliases:
            if alias in prototype.params:
                faults.add("schema", f"`{alias}` is a parameter, and another name of `{name}`", file)
    if not prototype.examples:
        message = f"prototype `{prototype.name}` has no example"
        faults.add("example", message, f"{package.source}/{prototype.name}")
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
        if publish.build_index(folder).text != file.read_text(encoding="utf-8"):
            faults.add("index", f"it is not what the packages say, digests included: {renew}", str(file))
    with faults.collecting("index"):
        source = folder.resolve()
        for package in read_index(FolderTree(source), source=source.name, name=source.name).packages.values():
            for version in package.versions:
                if not publish.is_package_folder(folder / version.path):
                    name = f"{package.name}@{version.version}"
                    faults.add("index", f"the folder of `{name}` is missing: `{version.path}`", str(file))


# --- what the prototypes of a package do when tried ---


class Selection(Record):
    """What is to be tried; all of it where nothing is named."""

    prototype: str = ""  # whose; empty for the package as a whole
    example: str = ""  # of that prototype
    texts: Mapping[str, str | None] = field(default_factory=dict)  # one set of parameters, as typed

    def __bool__(self) -> bool:
        return bool(self.prototype or self.example or self.texts)


class PrototypeTested(Record):
    """How much of a prototype was tried."""

    name: str
    examples: int
    combinations: int  # sets of parameters beside the examples
    varied: tuple[str, ...]  # the examples that were varied: those that render what none before them did
    left_out: int  # combinations past the bound
    hostile_texts: int


class PackageTested(Record):
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
MOST_COMBINATIONS = 200
"""Of a prototype; what is past them is counted, and tried for one example by its name."""


def test_package(
    folder: Path,
    *,
    kubernetes: str = DEFAULT_KUBERNETES_VERSION,
    only: Selection = Selection(),  # noqa: B008  # a frozen value
    update_golden: bool = False,
    against: str = "",
    app: Callable[[], AppDir] | None = None,
) -> PackageTested:
    """Try the prototypes of a package: examples, combinations of parameters, hostile texts, golden output.

    `kubernetes` is the version whose schemas the objects must fit, `against` the version that users have: a
    folder, or `registry/package@version` of the registries of `app`.
    """
    source, faults = _package_in(folder), _Faults()
    try:
        schemas = load_schemas(kubernetes)
    except ConfigError as error:
        raise UsageError(error.message.replace("kubernetesVersion", "--kubernetes-version")) from error
    if only and update_golden:
        hint = f"mlstack pkg test {folder} --update-golden"
        raise UsageError("golden output is approved for all examples at once", hint=hint)
    package = source.package(_needed(source, folder))
    other = ["--kubernetes-version", kubernetes] if kubernetes != DEFAULT_KUBERNETES_VERSION else []
    command = ["mlstack", "pkg", "test", str(folder), *other]
    checker = _Checker(package, schemas, faults, command, source.source)
    rows = [checker.prototype(prototype, only) for prototype in _selected(package, only)]
    state = "none" if only.texts else _golden(folder / GOLDEN, checker.golden, faults, only, update_golden)
    if against:
        checker.update(_earlier(against, package.name, app), package, only, against)
    return PackageTested(
        ok=faults.ok,
        package=f"{package.name}@{package.version}",
        kubernetes=schemas.version,
        prototypes=tuple(rows),
        golden=state,
        against=against or None,
        faults=tuple(faults),
    )


def _package_in(folder: Path) -> PackageFolder:
    tested = "mlstack validate ENV -c COMPONENT, once a component is made of it"
    publish.refuse_chart(folder, "which is tried as a component", tested)
    if not (folder / "package.yaml").is_file():
        message = f"no package in `{folder}`: it has no package.yaml"
        raise NotFoundError(message, hint="mlstack prototype new NAME")
    return _read(folder)


def _needed(package: PackageFolder, place: Path) -> dict[str, PackageFolder]:
    faults = _Faults()
    libraries = _libraries(package, place, faults)
    if faults:
        raise NotFoundError(faults[0].message, where=faults[0].where)
    return libraries


def _selected(package: Package, only: Selection) -> list[Prototype]:
    """Give the prototypes to try."""
    every = package.prototypes
    if only.prototype and only.prototype not in every:
        message = f"package `{package.name}` has no prototype `{only.prototype}`"
        raise not_found(message, only.prototype, every, hint=f"it has {', '.join(every) or 'none'}")
    chosen = [every[only.prototype]] if only.prototype else [*every.values()]
    if only.texts and not (only.example and len(chosen) == 1):
        hint = "add --prototype NAME --example NAME"
        raise UsageError("`--set` is for one example of one prototype", hint=hint)
    if only.example and not any(only.example in prototype.examples for prototype in chosen):
        names = dict.fromkeys(name for prototype in chosen for name in prototype.examples)
        hint = f"known examples: {', '.join(names) or 'none'}"
        raise not_found(f"no example `{only.example}`", only.example, names, hint=hint)
    return [prototype for prototype in chosen if not only.example or only.example in prototype.examples]


class _Checker:
    """Renders examples and combinations of one package, and checks what comes out."""

    def __init__(
        self, package: Package, schemas: Schemas, faults: _Faults, command: Sequence[str], source: str
    ) -> None:
        self._schemas, self._faults, self._command, self._source = schemas, faults, command, source
        self._crds = [
            definition.value
            for file, text in package.crds.items()
            for definition in read.read_documents(text, source=file)
        ]
        prototypes = package.prototypes.values()
        self._needed = {need.kind for prototype in prototypes for need in prototype.needs}
        self.golden: dict[str, str] = {}  # text of each example by its golden file's name

    def prototype(self, prototype: Prototype, only: Selection) -> PrototypeTested:
        """Try one prototype."""
        trial, name = PrototypeTrial(prototype), prototype.name
        examples = [example for example in prototype.examples.values() if only.example in ("", example.name)]
        if not examples:
            message, where = f"prototype `{name}` has no example", f"{self._source}/{name}"
            self._faults.add("example", message, where, prototype=name)
        _lint_schema(self._source, prototype, self._faults)
        if only.texts:
            hostility = self._one_set(trial, examples[0], typed_values(prototype, only.texts))
            varied, count, left_out = [examples[0].name], 1, 0
        else:
            sound = [example for example in examples if self._example(trial, example)]
            varied, count, left_out = self._combinations(trial, sound)
            hostility = try_hostile(trial, sound)
            self._note(name, hostility)
        return PrototypeTested(
            name=name,
            examples=len(examples),
            combinations=count,
            varied=tuple(varied),
            left_out=left_out,
            hostile_texts=hostility.texts,
        )

    def _combinations(self, trial: PrototypeTrial, sound: Sequence[Example]) -> tuple[list[str], int, int]:
        """Try examples under other parameters; give those that were varied, how many tries, how many not."""
        count, left_out, varied = 0, 0, list[str]()
        rendered, reported = set[str](), set[str]()
        for example in sound:
            objects = trial.objects(example.params, example=example)
            paths = _paths(objects)
            if varied and paths <= rendered:
                continue
            varied.append(example.name)
            reported |= self._errors(objects).keys()
            rows = matrix(trial, example)
            tries = rows[: max(0, MOST_COMBINATIONS - count)]
            left_out += len(rows) - len(tries)
            for attempt in (attempt for row in tries for attempt in tried(trial, example, row)):
                count += 1
                rendered |= _paths(attempt.objects)
                self._attempt(trial, example, attempt, reported)
            rendered |= paths
        return varied, count, left_out

    def _one_set(self, trial: PrototypeTrial, example: Example, values: Mapping[str, Any]) -> Hostility:
        """Try one set of parameters."""
        try:
            attempt = TrialRow(values, trial.objects(example.params, values, example=example))
        except ConfigError as error:
            attempt = TrialRow(values, [], error)
        hostility = try_texts(trial, example, values)
        self._note(trial.prototype.name, hostility)
        self._attempt(trial, example, attempt, set())
        return hostility

    def repeat(self, prototype: str, example: str, values: Mapping[str, Any], *, against: str = "") -> str:
        """Give the command that tries this again, and nothing else."""
        words = [*self._command, "--prototype", prototype, *(["--example", example] if example else [])]
        words += ["--against", against] if against else []
        sets = [f"--set {_quoted(f'{name}={as_typed(value)}')}" for name, value in values.items()]
        return " ".join([*map(_quoted, words), *sets])

    def update(self, before: Package, package: Package, only: Selection, against: str) -> None:
        """Note what an update from an earlier version breaks for its users."""
        for fault in publish.upgrade_faults(before, package):
            if only.prototype in ("", fault.prototype) and only.example in ("", fault.example):
                repeat = self.repeat(fault.prototype, fault.example, {}, against=against)
                title = _title(fault.prototype, fault.example, {})
                about = {"prototype": fault.prototype, "example": fault.example, "repeat": repeat}
                self._faults.add("upgrade", f"{title}: {fault.message}", severity=fault.severity, **about)

    def _about(self, prototype: str, example: str, values: Mapping[str, Any]) -> dict[str, Any]:
        repeat = self.repeat(prototype, example, values)
        return {"prototype": prototype, "example": example, "params": values, "repeat": repeat}

    def _example(self, trial: PrototypeTrial, example: Example) -> bool:
        """Render and check an example; tells whether it renders, without which nothing can be compared."""
        name = trial.prototype.name
        title, about = f"{_title(name, example.name, {})}: ", self._about(name, example.name, {})
        is_sound = False
        with self._faults.collecting("example", title, **about):
            objects = trial.objects(example.params, example=example)
            texts = write.to_yaml_documents(obj.data for obj in objects)
            self.golden[f"{name}/{example.name}.yaml"] = texts
            for fault in self._schema_faults(objects):
                message = f"{title}{_said(fault)}"
                self._faults.add("schema", message, fault.where, severity=fault.severity, **about)
            is_sound = True
        return is_sound

    def _attempt(self, trial: PrototypeTrial, example: Example, attempt: TrialRow, told: set[str]) -> None:
        """Note what is wrong with an example under other parameters, and was not `told` before."""
        name, error = trial.prototype.name, attempt.error
        errors = {error.message: error.message} if error else self._errors(attempt.objects)
        for key in [key for key in errors if key not in told]:
            told.add(key)
            values = self._blamed(trial, example, attempt.params, key)
            message = f"{_title(name, example.name, values)}: {errors[key]}"
            where = error.where if error else None
            self._faults.add("matrix", message, where, **self._about(name, example.name, values))

    def _note(self, prototype: str, hostility: Hostility) -> None:
        for fault in hostility.faults:
            name, value = hostile_value(fault)
            text = f"`{join_path(fault.path)}` given {document.shown(fault.text)}"
            message = f"{_title(prototype, fault.example, {})}: {text}: {fault.message}"
            about = self._about(prototype, fault.example, {name: value})
            self._faults.add("hostile", message, fault.where, **about)

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
        faults = [fault for fault in self._schema_faults(others, crds) if fault.severity == "error"]
        return {f"{fault.path} {fault.message}": _said(fault) for fault in faults}

    def _schema_faults(self, objects: Sequence[KubeObject], crds: Sequence[Any] = ()) -> Sequence[Fault]:
        return validate_objects(objects, self._schemas, crds=[*self._crds, *crds], needed=self._needed).faults


def _title(prototype: str, example: str, values: Mapping[str, Any]) -> str:
    shown = ", ".join(f"{name}={document.shown(value)}" for name, value in values.items())
    return prototype + (f", example {example}" if example else "") + (f", with {shown}" if shown else "")


def _quoted(text: str) -> str:
    """Write a word for bash: what no terminal shows as an escape, a very long run as what prints it."""
    if long := re.search(r"(\w)\1{999,}", text):
        run = f"$(printf '{long[1]}%.0s' {{1..{len(long[0])}}})"
        return _quoted(text[: long.start()]) + run + _quoted(text[long.end() :])
    if text.isprintable():
        return shlex.quote(text)
    escapes = {"'": "\\'", "\\": "\\\\"}
    shown = (escapes.get(c, c) if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
    return f"$'{''.join(shown)}'"


def _said(fault: Fault) -> str:
    return f"{fault.object}: " + (f"`{fault.path}` " if fault.path else "") + fault.message


def _paths(objects: Sequence[KubeObject]) -> set[str]:
    """Give the paths of all fields of objects, as what they render: an index of a list tells nothing."""
    paths: set[str] = set()
    rest: list[tuple[str, Any]] = [(obj.kind, obj.data) for obj in objects]
    while rest:
        path, value = rest.pop()
        paths.add(path)
        deeper = isinstance(value, Mapping)
        rest += [(f"{path}.{key}" if deeper else path, inner) for key, inner in items_of(value)]
    return paths


def _golden(folder: Path, texts: Mapping[str, str], faults: _Faults, only: Selection, update: bool) -> str:
    """Compare what examples render to with what was approved, or write that anew."""
    paths = folder.glob("*/*.yaml") if folder.is_dir() else ()
    approved = {path.relative_to(folder).as_posix(): path for path in paths}
    if update:
        stale = [path for name, path in approved.items() if name not in texts]
        edit.write_files({folder / name: text for name, text in texts.items()}, delete=stale)
        return "written"
    if not approved:
        return "none"
    for name, text in texts.items():
        if name not in approved:
            message = "there is no approved output of it: --update-golden writes it"
            faults.add("golden", message, str(folder / name))
        elif approved[name].read_text(encoding="utf-8") != text:
            old, new = approved[name].read_text(encoding="utf-8").splitlines(), text.splitlines()
            pairs = enumerate(zip(old, new, strict=False), 1)
            line = next((n for n, (before, now) in pairs if before != now), min(len(old), len(new)) + 1)
            shown = new[line - 1].strip() if line <= len(new) else "nothing"
            message = f"it renders otherwise than approved: `{shown}`; --update-golden approves it"
            faults.add("golden", message, f"{folder / name}:{line}")
    for name in sorted(approved.keys() - texts.keys()) if not only else ():
        message = "there is no example for it any more: --update-golden removes it"
        faults.add("golden", message, str(folder / name))
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
        directory = app()
        package = read_package(directory, full_ref(directory, text))[0]
    if package.name != name:
        raise UsageError(f"`{text}` is the package `{package.name}`, not an earlier `{name}`")
    return package
