"""Package folders: what a package says of itself, its prototypes with their parameters, and its digest.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from mlstack import __version__
from mlstack.app import chart, document
from mlstack.app.declare import keys_of, to_map
from mlstack.app.document import AppDocument, fields_of
from mlstack.app.files import read_file, read_folder
from mlstack.app.index import IndexPackage, IndexPrototype, IndexVersion
from mlstack.app.lock import LockedPackage
from mlstack.app.prototype import Alias, Chart, Example, Need, Package, Param, Prototype, PrototypeFile
from mlstack.app.schema import PassedStore, check_file, check_schema
from mlstack.dataclass import dataclass
from mlstack.disk_cache import from_json
from mlstack.errors import ConfigError, NotFoundError, SchemaError
from mlstack.names import is_parameter_name, nearest

Files = Mapping[PurePosixPath, bytes]


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


def changed_files(files: Files, digests: Mapping[str, str]) -> tuple[str, ...]:
    """Tell which files are not as their digests say: `path was changed`, `path is missing`, `path is new`."""
    now = file_digests(files)
    states = {path: "is missing" for path in digests if path not in now}
    states |= {path: "is new" for path in now if path not in digests}
    states |= {path: "was changed" for path in now if digests.get(path, now[path]) != now[path]}
    return tuple(f"`{path}` {state}" for path, state in sorted(states.items()))


@dataclass(frozen=True, kw_only=True)
class FetchedPackage:
    """A package version as it came from a registry, its digest checked; nothing is written yet."""

    locked: LockedPackage
    files: Files


class PackageFolder:
    """A package's files, read apart on demand.

    Args:
        files: relative path → bytes.
        source: what messages call the folder (`vendor/kubeflow/core@0.1.0`).
        registry: the app's name of the registry it came from.
        passed: files that have passed their schema before are not checked again.
    """

    def __init__(
        self, files: Files, *, source: str, registry: str = "", passed: PassedStore | None = None
    ) -> None:
        self.files = files
        self.source = source
        self.registry = registry
        self._passed = passed
        self._documents: dict[str, AppDocument] = {}

    @classmethod
    def read(
        cls, folder: Path, *, source: str = "", registry: str = "", passed: PassedStore | None = None
    ) -> PackageFolder:
        """Read a folder of the disk; of a chart what helm would pack."""
        source, ignored = source or str(folder), folder / ".helmignore"
        files: Files = read_folder(folder, source=source)
        if chart.is_chart(files) and ignored.is_file():
            files = chart.without_ignored(files, read_file(ignored))
        return cls(files, source=source, registry=registry, passed=passed)

    @cached_property
    def digest(self) -> str:
        """Give `sha256:…` of the content."""
        return digest(self.files)

    @cached_property
    def head(self) -> Package:
        """Give what `package.yaml` says; prototypes are left out.

        Raises:
            SchemaError: it is missing or wrong.
        """
        keys = [key.field for key in keys_of(Package)]

        def read() -> dict[str, Any]:
            if self.is_chart:
                package = Package(**chart.read_head(self.files, source=self.source))
            else:
                package = fields_of(self.document("package.yaml", "Package"), "Package").record(Package)
            return {key: getattr(package, key) for key in keys}

        return Package(**self._remembered("head", [self.digest], keys, read), registry=self.registry)

    @property
    def is_chart(self) -> bool:
        """Tell whether it is a Helm chart."""
        return chart.is_chart(self.files)

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

        Without `strict` only the name is told of a prototype whose file is wrong.

        Raises:
            SchemaError: `package.yaml` or a `prototype.yaml` is wrong.
        """
        prototypes = []
        for name in self.prototype_names:
            if self.is_chart:
                prototypes.append(IndexPrototype(name=name, summary=self.head.summary))
                continue
            try:
                file = self._prototype_file(name)
            except ConfigError:
                if strict:
                    raise
                prototypes.append(IndexPrototype(name=name))
            else:
                aliases = tuple(file.aliases)
                prototypes.append(IndexPrototype(name=name, summary=file.summary, aliases=aliases))
        head = self.head
        return IndexPackage(
            name=head.name,
            summary=head.summary,
            keywords=head.keywords,
            prototypes=tuple(prototypes),
            versions=(
                IndexVersion(
                    version=head.version,
                    path=path,
                    digest=self.digest,
                    requires=head.requires,
                    requires_mlstack=head.requires_mlstack,
                ),
            ),
        )

    def aliases(self, name: str) -> Mapping[str, Alias]:
        """Give the other names of a prototype, each with what it sets, without reading its parameters."""
        return {} if self.is_chart else self._prototype_file(name).aliases

    def _prototype_file(self, name: str) -> PrototypeFile:
        read = self.document(f"{name}/prototype.yaml", "Prototype")
        return fields_of(read, "Prototype").record(PrototypeFile)

    def prototype(self, name: str, libraries: Mapping[str, PackageFolder]) -> Prototype:
        """Read a prototype, blocks and references inlined; `libraries` are the packages this one requires.

        Raises:
            NotFoundError: there is no such folder.
            SchemaError: a file of it is wrong.
        """
        if name not in self.prototype_names:
            near = nearest(name, self.prototype_names)
            raise NotFoundError(f"package `{self.head.name}` has no prototype `{name}`", near=near)
        digests = [self.digest, *(f"{library}:{libraries[library].digest}" for library in sorted(libraries))]
        facts = self._remembered(
            f"prototype {name}", digests, _REMEMBERED, lambda: self._read_prototype(name, libraries)
        )
        # template name → (file for messages, text); the prototype's own first, in their order
        templates = self._texts_below(PurePosixPath(name, "templates"), "", ".j2")
        for package, folder in (
            {self.head.name: self} | dict(libraries) if not self.is_chart else {}
        ).items():
            templates |= folder._texts_below(PurePosixPath("templates"), f"{package}/", ".j2")
        files = {} if self.is_chart else self._texts_below(PurePosixPath(name, "files"), "")
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
            empty: dict[str, Any] = {"aliases": (), "alias_params": {}, "examples": {}}
            empty |= {"needs": (), "checked_with": {}}
            return empty | chart.read_prototype(self.files, self.head, source=self.source)
        file = self._prototype_file(name)
        read = self.document(f"{name}/prototype.yaml", "Prototype")
        fields = fields_of(read, "Prototype")
        if file.name != name:
            fields.refuse("name", f"must be `{name}`, the name of the folder")
        packages, blocks = {self.head.name: self, **libraries}, []
        for block in file.blocks:
            package, _, own_name = block.partition("/")
            if package not in packages:
                fields.refuse("blocks", f"takes `{block}`, but the package does not require `{package}`")
            block_file = f"blocks/{own_name}.yaml"
            if PurePosixPath(block_file) not in packages[package].files:
                fields.refuse("blocks", f"takes `{block}`, but `{package}` has no such block")
            blocks.append(packages[package].document(block_file, "ParameterBlock").value)
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
                example = fields_of(self.document(str(path), "Example"), "Example")
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
        data = from_json(self._passed.get(key), dict) if self._passed is not None else None
        if data is None or set(data) != set(names):
            data = read()
            if self._passed is not None:
                data = json.loads(json.dumps(data))
                self._passed.put(key, json.dumps(data).encode())
        # As it was before JSON made lists of its tuples.
        return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}

    @cached_property
    def definitions(self) -> Mapping[str, Any]:
        """Give the JSON Schemas of `definitions.yaml` by name; none when the file is not there."""
        if PurePosixPath("definitions.yaml") not in self.files:
            return {}
        return fields_of(self.document("definitions.yaml", "Definitions"), "Definitions").map("definitions")

    def _texts_below(
        self, folder: PurePosixPath, prefix: str, suffix: str = ""
    ) -> dict[str, tuple[str, str]]:
        """Give name → (file for messages, text) of the files below a folder."""
        return {
            f"{prefix}{path.relative_to(folder).as_posix()}": (f"{self.source}/{path}", self._text(path))
            for path in self.files
            if path.name.endswith(suffix) and path.is_relative_to(folder)
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


# --- a prototype's parameters from its schema: blocks joined, `$ref: package#/name` inlined ------------

LARGEST_SCHEMA = 20_000
"""Values in the parameters of a prototype with everything inlined: references could ask for billions."""
_DEEPEST_REFERENCES = 50
# Keywords whose value maps names to schemas, and those whose value is data.
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
_DATA = frozenset({"default", "const", "enum", "examples", "x-value-aliases"})
# What would be looked up elsewhere, or changes what the other keywords mean.
_FOREIGN = ("$dynamicRef", "$recursiveRef", "$schema")
# jsonschema looks for the one by the patterns of the other with Python's `re`.
_NEVER_BOTH = frozenset({"unevaluatedProperties", "patternProperties"})


def _joined_schema(
    own: Mapping[str, Any], blocks: Sequence[Mapping[str, Any]], packages: Mapping[str, PackageFolder]
) -> Mapping[str, Any]:
    """Join a prototype's own parameters and its blocks'; the own words of a shared one lie on top.

    References lead to definitions of `packages`.

    Raises:
        ValueError: what is wrong about the parameters, as it follows their name.
    """
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
    inlined: Mapping[str, Any] = _Inliner(packages).schema(joined)
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


def _mapping(schema: Any) -> Mapping[str, Any]:
    return schema if isinstance(schema, Mapping) else {}


class _Inliner:
    """Replaces references by what they mean; words beside a reference lie on top of it."""

    def __init__(self, packages: Mapping[str, PackageFolder]) -> None:
        self._packages = packages
        self._left = LARGEST_SCHEMA
        self._keywords: set[str] = set()

    def schema(self, schema: Any, inside: tuple[str, ...] = ()) -> Any:
        """Inline a schema that stands inside some references."""
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"hold more than {LARGEST_SCHEMA:,} values with references followed")
        if isinstance(schema, list):
            return [self.schema(entry, inside) for entry in schema]
        if not isinstance(schema, Mapping):
            return schema
        for keyword in _FOREIGN:
            if isinstance(schema.get(keyword), str):
                raise ValueError(f"use `{keyword}: {schema[keyword]}`, which mlstack does not follow")
        self._keywords |= _NEVER_BOTH & schema.keys()
        if len(self._keywords) > 1:
            raise ValueError(f"use both {' and '.join(f'`{name}`' for name in sorted(_NEVER_BOTH))}")
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return {
                key: value
                if key in _DATA
                else {name: self.schema(entry, inside) for name, entry in value.items()}
                if key in _NAMED and isinstance(value, Mapping)
                else self.schema(value, inside)
                for key, value in schema.items()
            }
        target = self._target(reference, inside)
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return {**self.schema(target, (*inside, reference)), **self.schema(beside, inside)}

    def _target(self, reference: str, inside: Sequence[str]) -> Mapping[str, Any]:
        if len(inside) > _DEEPEST_REFERENCES:
            raise ValueError(f"follow more than {_DEEPEST_REFERENCES} references, one into the next")
        if reference in inside:
            raise ValueError(f"refer to each other in a circle: {' → '.join([*inside, reference])}")
        package, separator, name = reference.partition("#/")
        is_known = bool(separator) and package in self._packages
        target = self._packages[package].definitions.get(name) if is_known else None
        if not isinstance(target, Mapping):
            raise ValueError(f"refer to `{reference}`, which is no definition of a required package")
        return target


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
