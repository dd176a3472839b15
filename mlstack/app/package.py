"""Packages: what a folder says of itself, its prototypes and digest; and those that an app has installed.

<package>/package.yaml                      name, version, packages it requires
<package>/definitions.yaml                  JSON Schemas to refer to as `package#/name`
<package>/blocks/<block>.yaml               parameters that prototypes take as a whole
<package>/templates/_*.j2                   libraries, included as `package/_pod.j2`
<package>/<prototype>/prototype.yaml        parameters
<package>/<prototype>/templates/*.j2        templates in the order of their names
<package>/<prototype>/files/**              further texts, for `file("name")` in templates
<package>/<prototype>/examples/*.yaml       worked examples
**/crds/*.yaml                              custom resource definitions, for offline validation

A folder with `Chart.yaml` in place of `package.yaml` is a Helm chart: a package with a prototype of its name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from mlstack import __version__
from mlstack.app import document
from mlstack.app.document import AppDocument, FieldReader, fields_of, keys_of, to_map
from mlstack.app.files import Files, is_chart, read_file, read_folder
from mlstack.app.params import spelling_table
from mlstack.app.prototype import (
    Alias,
    Chart,
    Example,
    Inliner,
    Need,
    Package,
    Param,
    Prototype,
    PrototypeFile,
)
from mlstack.app.schema import check_file, check_schema
from mlstack.app.versions import (
    KSONNET_PREFIX,
    IndexPackage,
    IndexPrototype,
    IndexVersion,
    LockedPackage,
    newest,
)
from mlstack.dataclass import dataclass, row
from mlstack.disk_cache import NO_STORE, ByteStore, from_json
from mlstack.errors import ConfigError, NotFoundError, RegistryError, SchemaError
from mlstack.names import check_mlstack, is_parameter_name, listed, nearest, not_found, version_key


def digest(files: Files) -> str:
    """Give `sha256:…` over a folder's sorted paths, sizes and bytes; modes and times do not count."""
    total = hashlib.sha256()
    for path, data in sorted(files.items(), key=lambda item: item[0].as_posix().encode()):
        total.update(f"{path.as_posix()}\0{len(data)}\0".encode())
        total.update(data)
    return f"sha256:{total.hexdigest()}"


def file_digests(files: Files) -> dict[str, str]:
    """Give `sha256:…` of each file by its path."""
    ordered = sorted((path.as_posix(), data) for path, data in files.items())
    return {path: f"sha256:{hashlib.sha256(data).hexdigest()}" for path, data in ordered}


def changed_files(now: Mapping[str, str], before: Mapping[str, str]) -> tuple[str, ...]:
    """Compare the digests of files, by their paths: `path was changed`, `path is missing`, `path is new`."""
    states = {path: "is missing" for path in before if path not in now}
    states |= {path: "is new" for path in now if path not in before}
    states |= {path: "was changed" for path in now if before.get(path, now[path]) != now[path]}
    return tuple(f"`{path}` {state}" for path, state in sorted(states.items()))


@dataclass(frozen=True, kw_only=True)
class FetchedPackage:
    """A package version as it came from a registry, its digest checked; nothing is written yet."""

    locked: LockedPackage
    files: Files


class PackageFolder:
    """A package's files, read apart on demand; messages call the folder `source`.

    Files that have passed their schema before (`passed`) are not checked again.
    """

    def __init__(
        self, files: Files, *, source: str, registry: str = "", passed: ByteStore = NO_STORE
    ) -> None:
        self.files, self.source, self.registry, self._passed = files, source, registry, passed
        self._documents: dict[str, AppDocument] = {}

    @classmethod
    def read(
        cls, folder: Path, *, source: str = "", registry: str = "", passed: ByteStore = NO_STORE
    ) -> PackageFolder:
        """Read a folder of the disk; of a chart what helm would pack."""
        source, ignored = source or str(folder), folder / ".helmignore"
        files: Files = read_folder(folder, source=source)
        if is_chart(files) and ignored.is_file():
            from mlstack.app import chart

            files = chart.without_ignored(files, read_file(ignored))
        return cls(files, source=source, registry=registry, passed=passed)

    @cached_property
    def digest(self) -> str:
        """Give `sha256:…` of the content."""
        return digest(self.files)

    @cached_property
    def head(self) -> Package:
        """Give what `package.yaml` says, without prototypes; a SchemaError if it is missing or wrong."""
        keys = [key.field for key in keys_of(Package)]

        def read() -> dict[str, Any]:
            if self.is_chart:
                from mlstack.app import chart

                package = Package(**chart.read_head(self.files, source=self.source))
            else:
                package = FieldReader(self.document("package.yaml", "Package")).record(Package)
            return {key: getattr(package, key) for key in keys}

        return Package(**self._remembered("head", [self.digest], keys, read), registry=self.registry)

    @property
    def is_chart(self) -> bool:
        """Tell whether it is a Helm chart."""
        return is_chart(self.files)

    @cached_property
    def prototype_names(self) -> tuple[str, ...]:
        """Give the names of the prototypes, sorted, without parsing any."""
        if self.is_chart:
            return (self.head.name,)
        paths = (path for path in self.files if len(path.parts) == 2 and path.name == "prototype.yaml")
        return tuple(sorted(path.parts[0] for path in paths))

    def package(self, libraries: Mapping[str, PackageFolder]) -> Package:
        """Give the package with all its prototypes; `libraries` are the packages it requires, by name."""
        prototypes = {name: self.prototype(name, libraries) for name in self.prototype_names}
        return replace(self.head, prototypes=prototypes, crds=self.crds(), digest=self.digest)

    def crds(self) -> dict[str, str]:
        """Give the texts of the custom resource definitions by file name."""
        suffixes = (".yaml", ".yml", ".json")
        paths = (path for path in self.files if path.parent.name == "crds" and path.suffix in suffixes)
        return {f"{self.source}/{path}": self._text(path) for path in paths}

    def entry(self, path: str, *, strict: bool = True) -> IndexPackage:
        """Give what the index of a registry says of this version, which lies at `path`.

        Without `strict` only the name is told of a prototype whose file is wrong; else that is a SchemaError.
        """
        head, prototypes = self.head, []
        for name in self.prototype_names:
            summary, aliases = head.summary if self.is_chart else "", tuple[str, ...]()
            with suppress(ConfigError) if not strict else nullcontext():
                if not self.is_chart:
                    file = self._prototype_file(name)
                    summary, aliases = file.summary, tuple(file.aliases)
            prototypes.append(IndexPrototype(name=name, summary=summary, aliases=aliases))
        version = row(IndexVersion, head, path=path, digest=self.digest)
        return row(IndexPackage, head, prototypes=tuple(prototypes), versions=(version,))

    def aliases(self, name: str) -> Mapping[str, Alias]:
        """Give the other names of a prototype, each with what it sets, without reading its parameters."""
        return {} if self.is_chart else self._prototype_file(name).aliases

    def _prototype_file(self, name: str) -> PrototypeFile:
        return FieldReader(self.document(f"{name}/prototype.yaml", "Prototype")).record(PrototypeFile)

    def prototype(self, name: str, libraries: Mapping[str, PackageFolder]) -> Prototype:
        """Read a prototype, blocks and references inlined; `libraries` are the packages this one requires.

        Raises a NotFoundError where there is no such folder, a SchemaError where a file of it is wrong.
        """
        if name not in self.prototype_names:
            message = f"package `{self.head.name}` has no prototype `{name}`"
            raise not_found(message, name, self.prototype_names)
        digests = [self.digest, *(f"{library}:{libraries[library].digest}" for library in sorted(libraries))]
        facts = self._remembered(
            f"prototype {name}", digests, _REMEMBERED, lambda: self._read_prototype(name, libraries)
        )
        # template name → (file for messages, text); the prototype's own first, in their order
        templates = self._texts_below(f"{name}/templates", "", ".j2")
        owners = {} if self.is_chart else {self.head.name: self, **libraries}
        for package, folder in owners.items():
            templates |= folder._texts_below("templates", f"{package}/", ".j2")
        files = {} if self.is_chart else self._texts_below(f"{name}/files", "")
        schema, examples, needs = (facts.pop(word) for word in ("schema", "examples", "needs"))
        return Prototype(
            name=name,
            package=self.head.name,
            registry=self.registry,
            version=self.head.version,
            params=_params(schema),
            schema=schema,
            templates={template: text for template, (_, text) in templates.items()},
            sources={template: file for template, (file, _) in templates.items()},
            files={file: text for file, (_, text) in files.items()},
            examples={example: Example(name=example, **keys) for example, keys in examples.items()},
            needs=tuple(Need(**need) for need in needs),
            chart=Chart(files=self.files, folder=self.source) if self.is_chart else None,
            digest=" ".join([name, *digests]),
            **facts,
        )

    def _read_prototype(self, name: str, libraries: Mapping[str, PackageFolder]) -> dict[str, Any]:
        """Read what a prototype's YAML files say, as plain data that a cache can keep."""
        if self.is_chart:
            from mlstack.app import chart

            empty: dict[str, Any] = {**{word: {} for word in _REMEMBERED}, "aliases": (), "needs": ()}
            return empty | chart.read_prototype(self.files, self.head, source=self.source)
        file = self._prototype_file(name)
        read = self.document(f"{name}/prototype.yaml", "Prototype")
        fields = FieldReader(read)
        if file.name != name:
            fields.refuse("name", f"must be `{name}`, the name of the folder")
        packages = {self.head.name: self, **libraries}
        blocks = [_block(block, packages, fields) for block in file.blocks]
        try:
            schema = _joined_schema(file.parameters, blocks, packages)
        except ValueError as error:
            fields.refuse("parameters", str(error))
        check_schema(schema, read, ("parameters",))
        for alias in file.aliases.values():
            for param in (*alias.params, *filter(None, alias.renames.values())):
                if param not in schema["properties"]:
                    fields.refuse("aliases", f"set `{param}` for `{alias.name}`, which is not declared")
        examples = {}
        for path in self.files:
            if path.parent == PurePosixPath(name, "examples") and path.suffix == ".yaml":
                example = FieldReader(self.document(str(path), "Example"))
                examples[path.stem] = to_map(example.record(Example, name=path.stem))
        params = {name: alias.params for name, alias in file.aliases.items() if alias.params}
        renames = {name: alias.renames for name, alias in file.aliases.items() if alias.renames}
        texts = (file.summary, file.description, file.notes, file.checked_with)
        needs = tuple(asdict(need) for need in file.needs)
        values = (*texts, needs, tuple(file.aliases), params, renames, schema, examples)
        return dict(zip(_REMEMBERED, values, strict=True))

    def _remembered(
        self, what: str, digests: Sequence[str], names: Sequence[str], read: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Give plain data that follows from files of known digests; parsed once for each content."""
        key = " ".join(["package", __version__, what, *digests])
        data = from_json(self._passed.get(key), dict)
        if data is None or set(data) != set(names):
            text = json.dumps(read())
            self._passed.put(key, text.encode())
            data = json.loads(text)
        # As it was before JSON made lists of its tuples.
        return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}

    @cached_property
    def definitions(self) -> Mapping[str, Any]:
        """Give the JSON Schemas of `definitions.yaml` by name; none when the file is not there."""
        if PurePosixPath("definitions.yaml") not in self.files:
            return {}
        return FieldReader(self.document("definitions.yaml", "Definitions")).map("definitions")

    @cached_property
    def _paths(self) -> Mapping[str, PurePosixPath]:
        return {path.as_posix(): path for path in self.files}

    def _texts_below(self, folder: str, prefix: str, suffix: str = "") -> dict[str, tuple[str, str]]:
        """Give name → (file for messages, text) of the files below a folder."""
        return {
            f"{prefix}{name[len(folder) + 1 :]}": (f"{self.source}/{name}", self._text(path))
            for name, path in self._paths.items()
            if name.endswith(suffix) and name.startswith(f"{folder}/")
        }

    def document(self, path: str, kind: str) -> AppDocument:
        """Give a checked document of the package."""
        if path not in self._documents:
            data = self.files.get(PurePosixPath(path))
            if data is None:
                raise SchemaError(f"a package needs the file `{path}`", where=self.source)
            read = document.read(data, file=f"{self.source}/{path}")
            fields_of(read, kind)
            check_file(kind, read.value, source=read.file, document=read, passed=self._passed)
            self._documents[path] = read
        return self._documents[path]

    def _text(self, path: PurePosixPath) -> str:
        return document.decode(self.files[path], file=f"{self.source}/{path}")


# What is remembered of a prototype.
_REMEMBERED = (
    *("summary", "description", "notes", "checked_with", "needs"),
    *("aliases", "alias_params", "alias_renames", "schema", "examples"),
)


# --- a prototype's parameters from its schema: blocks joined, `$ref: package#/name` inlined ---


def _joined_schema(
    own: Mapping[str, Any], blocks: Sequence[Mapping[str, Any]], packages: Mapping[str, PackageFolder]
) -> Mapping[str, Any]:
    """Join a prototype's own parameters and its blocks'; the own words of a shared one lie on top."""
    properties = {name: _mapping(schema) for name, schema in own.get("properties", {}).items()}
    conditions, required = list(own.get("allOf", ())), list(own.get("required", ()))
    for block in blocks:
        for name, schema in block.get("properties", {}).items():
            properties[name] = {**_mapping(schema), **properties.get(name, {})}
        conditions += block.get("allOf", ())
        required += (name for name in block.get("required", ()) if name not in required)
    joined = {**own, "type": "object", "properties": properties, "additionalProperties": False}
    if required:
        joined["required"] = required
    if conditions:
        joined["allOf"] = conditions
    inlined: Mapping[str, Any] = Inliner(partial(_definition, packages), _refuse).schema(joined)
    owners: dict[str, str] = {}
    for name, schema in inlined["properties"].items():
        for spelling in (name, *schema.get("aliases", ())):
            if not is_parameter_name(spelling):
                raise ValueError(f"name `{spelling}`, which must be letters, digits, `_` and `-`")
            if spelling in owners:
                raise ValueError(f"use the name `{spelling}` for both `{owners[spelling]}` and `{name}`")
            owners[spelling] = name
    for name in inlined.get("required", ()):
        if name not in inlined["properties"]:
            raise ValueError(f"require `{name}`, which is not declared")
    return inlined


def _block(block: str, packages: Mapping[str, PackageFolder], fields: FieldReader) -> Any:
    """Give a block of parameters that a prototype takes, `package/name`."""
    package, _, name = block.partition("/")
    if package not in packages:
        fields.refuse("blocks", f"takes `{block}`, but the package does not require `{package}`")
    file = f"blocks/{name}.yaml"
    if PurePosixPath(file) not in packages[package].files:
        fields.refuse("blocks", f"takes `{block}`, but `{package}` has no such block")
    return packages[package].document(file, "ParameterBlock").value


def _mapping(schema: Any) -> Mapping[str, Any]:
    return schema if isinstance(schema, Mapping) else {}


def _definition(packages: Mapping[str, PackageFolder], reference: str) -> Any:
    package, separator, name = reference.partition("#/")
    return packages[package].definitions.get(name) if separator and package in packages else None


def _refuse(fault: str) -> NoReturn:
    raise ValueError(fault)


def _params(schema: Mapping[str, Any]) -> dict[str, Param]:
    """Give the parameters that a joined schema declares, in order.

    One that the schema requires although it has a default cannot be removed, but need not be given.
    """
    must_be = set(schema.get("required", ()))
    return {
        name: Param(
            name=name,
            schema=inner,
            default=inner.get("default"),
            has_default="default" in inner,
            required=name in must_be and "default" not in inner,
            unit=inner.get("unit", ""),
            description=inner.get("description", ""),
            aliases=tuple(inner.get("aliases", ())),
            secret=bool(inner.get("x-secret", False)),
            deprecated=inner.get("x-deprecated"),
            format=inner.get("x-format"),
            value_aliases=inner.get("x-value-aliases", {}),
            examples=tuple(inner.get("examples", ())),
        )
        for name, inner in schema["properties"].items()
    }


# --- the installed packages of an app: read from `vendor/`, held to the digests of `mlstack.lock` ---


_NAMED_FILES = 3
_Named = tuple[LockedPackage, str]  # a package, and its own name of a prototype


class Vendor:
    """Installed packages and their prototypes: those of the lock, for what the app requires."""

    def __init__(
        self,
        root: Path,
        packages: Sequence[LockedPackage],
        passed: ByteStore,
        *,
        fetched: Sequence[FetchedPackage] = (),
    ) -> None:
        self._root = root
        self._locked = sorted(packages, key=lambda p: (p.full_name, version_key(p.version)))
        self._by_version = {(locked.full_name, locked.version): locked for locked in self._locked}
        self._passed = passed
        self._folders: dict[str, PackageFolder] = {}
        for package in fetched:  # which are not written yet
            locked = package.locked
            self._folders[locked.folder] = PackageFolder(
                package.files, source=locked.full_name, registry=locked.registry, passed=passed
            )
        self._prototypes: dict[tuple[str, str], Prototype] = {}
        self._plain: dict[str | None, dict[str, LockedPackage]] = {}

    def folder(self, locked: LockedPackage) -> PackageFolder:
        """Give a package's folder, its digest checked."""
        if locked.folder not in self._folders:
            self._folders[locked.folder] = self._read(locked)
        return self._folders[locked.folder]

    def _read(self, locked: LockedPackage) -> PackageFolder:
        path, restore = self._root / locked.folder, "mlstack pkg install --force"
        if not path.is_dir():
            message = f"package `{locked.ref}` is missing from vendor/"
            raise RegistryError(message, where=locked.folder, hint="mlstack pkg install")
        facts = {"source": locked.folder, "registry": locked.registry}
        try:
            folder = PackageFolder.read(path, passed=self._passed, **facts)
        except ConfigError as error:
            message = f"package `{locked.ref}` is refused: {error}"
            raise RegistryError(message, where=error.where, hint=restore) from error
        if folder.digest != locked.digest:
            changed = changed_files(file_digests(folder.files), locked.files) if locked.files else ()
            differs = listed(changed, _NAMED_FILES) or f"{folder.digest[:19]}, locked {locked.digest[:19]}"
            message = f"the content of package `{locked.ref}` is not what mlstack.lock says: {differs}"
            hint = f"{restore} restores it; to change a prototype, put it in a registry of your own"
            raise RegistryError(message, where=locked.folder, hint=hint)
        return folder

    def packages(self) -> tuple[Package, ...]:
        """Give all installed packages with their prototypes, by name and version."""
        return tuple(map(self.package, self._locked))

    def package(self, locked: LockedPackage) -> Package:
        """Give an installed package with its prototypes."""
        folder = self.folder(locked)
        return folder.package(self._libraries(folder, locked))

    def prototypes(self) -> tuple[Prototype, ...]:
        """Give all prototypes of installed packages, by full name."""
        prototypes = (prototype for package in self.packages() for prototype in package.prototypes.values())
        return tuple(sorted(prototypes, key=lambda prototype: (prototype.full_name, prototype.version)))

    def declared_params(self) -> dict[str, Param]:
        """Give every spelling that an installed prototype declares, with the first declaration of it."""
        declared: dict[str, Param] = {}
        for prototype in self.prototypes():
            spellings = {} if prototype.chart else spelling_table(prototype.params)  # its values are its own
            for spelling, name in spellings.items():
                declared.setdefault(spelling, prototype.params[name])
        return declared

    def spellings(self) -> frozenset[str]:
        """Give every spelling of every parameter that an installed prototype declares.

        Once they are known, no package is read for them: the locked digests stand for what it says.
        """
        key = " ".join(["spellings", __version__, *(locked.digest for locked in self._locked)])
        stored = from_json(self._passed.get(key), list)
        if stored is not None:
            return frozenset(map(str, stored))
        spellings = frozenset(self.declared_params())
        self._passed.put(key, json.dumps(sorted(spellings)).encode())
        return spellings

    def crds(self) -> dict[str, str]:
        """Give the texts of all custom resource definitions of installed packages, by file."""
        return {file: text for locked in self._locked for file, text in self.folder(locked).crds().items()}

    def _libraries(
        self, folder: PackageFolder, locked: LockedPackage, environment: str | None = None
    ) -> dict[str, PackageFolder]:
        """Give the packages that one requires, directly or through others, by name."""
        libraries: dict[str, PackageFolder] = {}
        rest = [(locked, name) for name in folder.head.requires]
        while rest:
            owner, name = rest.pop(0)
            short = name.rpartition("/")[2]
            if short in libraries or short == locked.name:
                continue
            # The version that is locked with it, else the usual one.
            names = (full_name for full_name in owner.requires if full_name.endswith(f"/{short}"))
            full_name = next(names, f"{owner.registry}/{short}")
            exact = self._by_version.get((full_name, owner.requires.get(full_name) or ""))
            needed = exact or self.plain(environment).get(full_name)
            if needed is None:
                message = f"package `{owner.ref}` requires `{name}`, which is not installed"
                raise RegistryError(message, where=f"{owner.folder}/package.yaml", hint="mlstack pkg install")
            libraries[short] = self.folder(needed)
            rest += [(needed, inner) for inner in libraries[short].head.requires]
        return libraries

    def plain(self, environment: str | None = None) -> dict[str, LockedPackage]:
        """Give by full name what names without a version mean in an environment; for None in the app.

        What stands beside it because it was asked for by its version changes no component.
        """
        if environment not in self._plain:
            usual = {locked.full_name: locked for locked in self._locked if "*" in locked.environments}
            own = {locked.full_name: locked for locked in self._locked if environment in locked.environments}
            self._plain[environment] = {**newest(self._locked), **usual, **own}
        return self._plain[environment]

    def prototype(self, name: str, *, where: str | None = None, environment: str | None = None) -> Prototype:
        """Find a prototype, as an environment has it.

        Full names are `registry/package/prototype`, with `package@version` for another version than the
        usual one. A short one is an exact name, else an alias, else an end that only one name has
        (`core` for `kubeflow-core`); ksonnet's `io.ksonnet.pkg.NAME` is NAME.

        Raises:
            NotFoundError: none, or several, with their full names; at `where` the name is written.
        """
        name = name.removeprefix(KSONNET_PREFIX)
        find = self._by_full_name if "/" in name else self._by_short_name
        locked, own_name = find(name, self.plain(environment), where)
        folder = self.folder(locked)
        what, needs = f"package `{locked.ref}`", folder.head.requires_mlstack
        check_mlstack(needs, what=what, where=f"{locked.folder}/package.yaml")
        libraries = self._libraries(folder, locked, environment)
        key = (locked.folder, " ".join([own_name, *(library.source for library in libraries.values())]))
        if key not in self._prototypes:
            self._prototypes[key] = folder.prototype(own_name, libraries)
        return self._prototypes[key]

    def _by_full_name(self, name: str, plain: Mapping[str, LockedPackage], where: str | None) -> _Named:
        owner, _, prototype = name.rpartition("/")
        registry, _, versioned = owner.rpartition("/")
        package, _, version = versioned.partition("@")
        named = [locked for locked in (self._locked if version else plain.values()) if locked.name == package]
        candidates = [
            locked
            for locked in named
            if registry in ("", locked.registry) and version in ("", locked.version)
        ]
        if not candidates:
            names_of = {locked.name: locked.full_name for locked in plain.values()}
            near = None if version else names_of.get(nearest(versioned, names_of) or "")
            hint = f"did you mean a prototype of `{near}`?" if near else f"mlstack pkg install {owner}"
            message = f"no prototype `{name}`: package `{owner}` is not installed"
            raise NotFoundError(message, near=near, where=where, hint=hint)
        for locked in reversed(candidates):
            folder = self.folder(locked)
            if prototype in folder.prototype_names:
                return locked, prototype
            for own_name in folder.prototype_names:
                if prototype in folder.aliases(own_name):
                    return locked, own_name
        names = [own_name for locked in candidates for own_name in self.folder(locked).prototype_names]
        message = f"package `{owner}` has no prototype `{prototype}`"
        raise not_found(message, prototype, names, where=where, hint=f"mlstack pkg describe {owner}")

    def _by_short_name(self, name: str, plain: Mapping[str, LockedPackage], where: str | None) -> _Named:
        for matches in self._matches(name, plain):
            if len(matches) == 1:
                return matches[0]
            if matches:
                listed = ", ".join(f"`{locked.full_name}/{own_name}`" for locked, own_name in matches)
                message = f"`{name}` could be any of the prototypes {listed}"
                raise NotFoundError(message, where=where, hint="write the full name")
        names = [own for locked in plain.values() for own in self.folder(locked).prototype_names]
        usual = "mlstack prototype list shows the installed ones, mlstack pkg list the packages"
        message = f"no installed package has a prototype `{name}`"
        raise not_found(message, name, names, where=where, hint=usual)

    def _matches(self, name: str, plain: Mapping[str, LockedPackage]) -> Iterator[list[_Named]]:
        """Give the prototypes of that very name, those with such an alias, and those it is an end of."""
        every = [(locked, own) for locked in plain.values() for own in self.folder(locked).prototype_names]
        yield [(locked, own) for locked, own in every if own == name]
        aliases = {(locked, own): self.folder(locked).aliases(own) for locked, own in every}
        yield [key for key, others in aliases.items() if name in others]
        # Whole words; an alias with parameters of its own goes by its whole name: an end must not lose them.
        endings = tuple(f"{separator}{name}" for separator in "-._") if name else ()
        plain_names = {
            key: (key[1], *(name for name, alias in others.items() if not (alias.params or alias.renames)))
            for key, others in aliases.items()
        }
        yield [key for key, names in plain_names.items() if any(name.endswith(endings) for name in names)]
