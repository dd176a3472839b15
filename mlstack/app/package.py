"""A prototype's parameters from its schema: blocks joined, `$ref: package#/name` inlined."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from mlstack import __version__
from mlstack.app import document
from mlstack.app.document import AppDocument, FieldReader, fields_of
from mlstack.app.files import read_folder
from mlstack.app.prototype import Example, Package, Param, Prototype
from mlstack.app.schema import PassedStore, check_file, check_schema
from mlstack.disk_cache import from_json
from mlstack.errors import NotFoundError, SchemaError
from mlstack.names import is_parameter_name, nearest

# --- A prototype's parameters from its schema: blocks joined, `$ref: package#/name` inlined ---

Definition = Callable[[str, str], Any]
Refuse = Callable[[str, str], NoReturn]

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


def joined_schema(
    own: Mapping[str, Any], blocks: Iterable[Mapping[str, Any]], definition: Definition, *, refuse: Refuse
) -> Mapping[str, Any]:
    """Join a prototype's own parameters and its blocks'; the own words of a shared one lie on top."""
    properties: dict[str, Any] = {
        name: _mapping(schema) for name, schema in own.get("properties", {}).items()
    }
    conditions = list(own.get("allOf", ()))
    for block in blocks:
        for name, schema in block.get("properties", {}).items():
            properties[name] = {**_mapping(schema), **properties.get(name, {})}
        conditions += block.get("allOf", ())
    schema = {**own, "type": "object", "properties": properties, "additionalProperties": False}
    if conditions:
        schema["allOf"] = conditions
    inlined: Mapping[str, Any] = _Inliner(definition, refuse).schema(schema)
    _check_names(inlined, refuse)
    return inlined


def params_of(schema: Mapping[str, Any]) -> dict[str, Param]:
    """Give the parameters that a joined schema declares, in order.

    One that the schema requires although it has a default cannot be removed, but need not be given.
    """
    must_be = set(schema.get("required", ()))
    return {
        name: _param(name, each, required=name in must_be and "default" not in each)
        for name, each in schema["properties"].items()
    }


def _mapping(schema: Any) -> Mapping[str, Any]:
    return schema if isinstance(schema, Mapping) else {}


class _Inliner:
    """Replaces references by what they mean; words beside a reference lie on top of it."""

    def __init__(self, definition: Definition, refuse: Refuse) -> None:
        self._definition = definition
        self._refuse = refuse
        self._left = LARGEST_SCHEMA
        self._keywords: set[str] = set()

    def schema(self, schema: Any, inside: tuple[str, ...] = ()) -> Any:
        self._left -= 1
        if self._left < 0:
            self._refuse("parameters", f"hold more than {LARGEST_SCHEMA:,} values with references followed")
        if isinstance(schema, list):
            return [self.schema(entry, inside) for entry in schema]
        if not isinstance(schema, Mapping):
            return schema
        for keyword in _FOREIGN:
            if isinstance(schema.get(keyword), str):
                self._refuse(
                    "parameters", f"use `{keyword}: {schema[keyword]}`, which mlstack does not follow"
                )
        self._keywords |= _NEVER_BOTH & schema.keys()
        if len(self._keywords) > 1:
            self._refuse(
                "parameters", f"use both {' and '.join(f'`{name}`' for name in sorted(_NEVER_BOTH))}"
            )
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return {key: self._keyword(key, value, inside) for key, value in schema.items()}
        target = self._target(reference, inside)
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return {**self.schema(target, (*inside, reference)), **self.schema(beside, inside)}

    def _keyword(self, keyword: str, value: Any, inside: tuple[str, ...]) -> Any:
        if keyword in _DATA:
            return value
        if keyword in _NAMED and isinstance(value, Mapping):
            return {name: self.schema(entry, inside) for name, entry in value.items()}
        return self.schema(value, inside)

    def _target(self, reference: str, inside: Sequence[str]) -> Mapping[str, Any]:
        if len(inside) > _DEEPEST_REFERENCES:
            self._refuse(
                "parameters", f"follow more than {_DEEPEST_REFERENCES} references, one into the next"
            )
        if reference in inside:
            self._refuse("parameters", f"refer to each other in a circle: {' → '.join([*inside, reference])}")
        package, separator, name = reference.partition("#/")
        target = self._definition(package, name) if separator else None
        if not isinstance(target, Mapping):
            self._refuse(
                "parameters", f"refer to `{reference}`, which is no definition of a required package"
            )
        return target


def _param(name: str, schema: Mapping[str, Any], *, required: bool) -> Param:
    return Param(
        name=name,
        schema=schema,
        default=schema.get("default"),
        has_default="default" in schema,
        required=required,
        unit=schema.get("unit", ""),
        description=schema.get("description", ""),
        aliases=tuple(schema.get("aliases", ())),
        secret=bool(schema.get("x-secret", False)),
        deprecated=schema.get("x-deprecated"),
        format=schema.get("x-format"),
        value_aliases=schema.get("x-value-aliases", {}),
        examples=tuple(schema.get("examples", ())),
    )


def _check_names(schema: Mapping[str, Any], refuse: Refuse) -> None:
    owners: dict[str, str] = {}
    for name, each in schema["properties"].items():
        for spelling in (name, *each.get("aliases", ())):
            if not is_parameter_name(spelling):
                refuse("parameters", f"name `{spelling}`, which must be letters, digits, `_` and `-`")
            if spelling in owners:
                refuse("parameters", f"use the name `{spelling}` for both `{owners[spelling]}` and `{name}`")
            owners[spelling] = name
    for name in schema.get("required", ()):
        if name not in schema["properties"]:
            refuse("parameters", f"require `{name}`, which is not declared")


# --- Package folders: what a package says of itself, its prototypes, and the digest of its content ---
# <package>/package.yaml                      name, version, packages it requires
# <package>/definitions.yaml                  JSON Schemas to refer to as `package#/name`
# <package>/blocks/<block>.yaml               parameters that prototypes take as a whole
# <package>/templates/_*.j2                   libraries, included as `package/_pod.j2`
# <package>/<prototype>/prototype.yaml        parameters
# <package>/<prototype>/templates/*.j2        templates in the order of their names
# <package>/<prototype>/files/**              further texts, for `file("name")` in templates
# <package>/<prototype>/examples/*.yaml       worked examples
# **/crds/*.yaml                              custom resource definitions, for offline validation

Files = Mapping[PurePosixPath, bytes]


def digest(files: Files) -> str:
    """Give `sha256:…` over a folder's sorted paths, sizes and bytes; modes and times do not count."""
    total = hashlib.sha256()
    for path, data in sorted(files.items(), key=lambda item: item[0].as_posix().encode()):
        total.update(f"{path.as_posix()}\0{len(data)}\0".encode())
        total.update(data)
    return f"sha256:{total.hexdigest()}"


@dataclass(frozen=True, kw_only=True)
class FetchedPackage:
    """A package version as it came from a registry, its digest checked; nothing is written yet."""

    registry: str
    name: str
    version: str
    digest: str
    source: str
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

    @classmethod
    def read(
        cls, folder: Path, *, source: str = "", registry: str = "", passed: PassedStore | None = None
    ) -> PackageFolder:
        """Read a folder of the disk.

        Raises:
            ConfigError: a link leaves the folder, or it is too large.
        """
        source = source or str(folder)
        return cls(read_folder(folder, source=source), source=source, registry=registry, passed=passed)

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
        return Package(
            **self._remembered("head", [self.digest], _HEAD, self._read_head), registry=self.registry
        )

    def _read_head(self) -> dict[str, Any]:
        fields = self._fields("package.yaml", "Package")
        known = ("apiVersion", "kind", "name", "version", "summary", "description", "license", "keywords")
        fields.only(*known, "requires", "authors")
        texts = {name: fields.text(name, "") for name in ("summary", "description", "license")}
        lists = {name: fields.texts(name) for name in ("keywords", "requires")}
        return {"name": fields.text("name"), "version": fields.text("version"), **texts, **lists}

    @property
    def prototype_names(self) -> tuple[str, ...]:
        """Give the names of the prototypes, sorted, without parsing any."""
        found = (p.parts[0] for p in self.files if len(p.parts) == 2 and p.name == "prototype.yaml")
        return tuple(sorted(found))

    def package(self, libraries: Mapping[str, PackageFolder]) -> Package:
        """Give the package with all its prototypes.

        Args:
            libraries: the packages it requires, by name.
        """
        prototypes = {name: self.prototype(name, libraries) for name in self.prototype_names}
        return replace(self.head, prototypes=prototypes, crds=self.crds(), digest=self.digest)

    def crds(self) -> dict[str, str]:
        """Give the texts of the custom resource definitions by file name."""
        return {
            f"{self.source}/{path}": self._text(path)
            for path in self.files
            if path.parent.name == "crds" and path.suffix in (".yaml", ".yml", ".json")
        }

    def aliases(self, name: str) -> dict[str, Mapping[str, Any]]:
        """Give the other names of a prototype, each with what it sets, without reading its parameters."""
        return _aliases(self._fields(f"{name}/prototype.yaml", "Prototype"))

    def prototype(self, name: str, libraries: Mapping[str, PackageFolder]) -> Prototype:
        """Read a prototype, blocks and references inlined.

        Args:
            name: its folder.
            libraries: the packages this one requires, by name.

        Raises:
            NotFoundError: there is no such folder.
            SchemaError: a file of it is wrong.
        """
        if name not in self.prototype_names:
            near = nearest(name, self.prototype_names)
            raise NotFoundError(f"package `{self.head.name}` has no prototype `{name}`", near=near)
        digests = [self.digest, *(f"{each}:{libraries[each].digest}" for each in sorted(libraries))]
        what, read = f"prototype {name}", lambda: self._read_prototype(name, libraries)
        facts = self._remembered(what, digests, _PROTOTYPE, read)
        templates = self._templates(name, libraries)
        schema, examples = facts.pop("schema"), facts.pop("examples")
        return Prototype(
            name=name,
            package=self.head.name,
            registry=self.registry,
            version=self.head.version,
            params=params_of(schema),
            schema=schema,
            templates={template: text for template, (_, text) in templates.items()},
            sources={template: file for template, (file, _) in templates.items()},
            files=self._texts_below(PurePosixPath(name, "files")),
            examples={each: Example(name=each, **fields) for each, fields in examples.items()},
            digest=" ".join([name, *digests]),
            **facts,
        )

    def _read_prototype(self, name: str, libraries: Mapping[str, PackageFolder]) -> dict[str, Any]:
        """Read what a prototype's YAML files say, as plain data that a cache can keep."""
        fields = self._fields(f"{name}/prototype.yaml", "Prototype")
        fields.only(*_PROTOTYPE_FIELDS)
        if fields.text("name") != name:
            fields.refuse("name", f"must be `{name}`, the name of the folder")
        schema, aliases = self._schema(fields, libraries), _aliases(fields)
        check_schema(schema, self.document(f"{name}/prototype.yaml", "Prototype"), ("parameters",))
        for alias, params in aliases.items():
            for param in params:
                if param not in schema["properties"]:
                    fields.refuse("aliases", f"set `{param}` for `{alias}`, which is not declared")
        return {
            "summary": fields.text("summary"),
            "description": fields.text("description", ""),
            "aliases": tuple(aliases),
            "alias_params": {alias: params for alias, params in aliases.items() if params},
            "notes": fields.text("notes", ""),
            "schema": schema,
            "examples": self._examples(name),
        }

    def _remembered(
        self,
        what: str,
        digests: Sequence[str],
        types: Mapping[str, type],
        read: Callable[[], dict[str, Any]],
    ) -> dict[str, Any]:
        """Give plain data that follows from files of known digests; parsed once for each content."""
        if self._passed is None:
            return _plain(read())
        key = " ".join(["package", __version__, what, *digests])
        known = from_json(self._passed.get(key), dict)
        if known is None or {key: type(value) for key, value in known.items()} != types:
            known = json.loads(json.dumps(read()))
            self._passed.put(key, json.dumps(known).encode())
        return _plain(known)

    def _schema(self, fields: FieldReader, libraries: Mapping[str, PackageFolder]) -> Mapping[str, Any]:
        known = {self.head.name: self, **libraries}
        blocks = [self._block(fields, block, known) for block in fields.texts("blocks")]

        def definition(package: str, name: str) -> Any:
            return known[package].definitions.get(name) if package in known else None

        return joined_schema(fields.map("parameters"), blocks, definition, refuse=fields.refuse)

    def _block(
        self, fields: FieldReader, block: str, known: Mapping[str, PackageFolder]
    ) -> Mapping[str, Any]:
        package, _, name = block.partition("/")
        if package not in known:
            fields.refuse("blocks", f"takes `{block}`, but the package does not require `{package}`")
        path = PurePosixPath("blocks", f"{name}.yaml")
        if path not in known[package].files:
            fields.refuse("blocks", f"takes `{block}`, but `{package}` has no such block")
        document = known[package].document(str(path), "ParameterBlock")
        value: Mapping[str, Any] = document.value
        return value

    @cached_property
    def definitions(self) -> Mapping[str, Any]:
        """Give the JSON Schemas of `definitions.yaml` by name; none when the file is not there."""
        if PurePosixPath("definitions.yaml") not in self.files:
            return {}
        return self._fields("definitions.yaml", "Definitions").map("definitions")

    def _templates(self, name: str, libraries: Mapping[str, PackageFolder]) -> dict[str, tuple[str, str]]:
        """Give template name → (file for messages, text); the prototype's own first, in their order."""
        own = PurePosixPath(name, "templates")
        found = dict(self._located(own, own))
        for package, folder in ({self.head.name: self} | dict(libraries)).items():
            shared = folder._located(PurePosixPath("templates"), PurePosixPath("templates"))
            found |= {f"{package}/{template}": located for template, located in shared}
        return found

    def _located(self, folder: PurePosixPath, base: PurePosixPath) -> Iterator[tuple[str, tuple[str, str]]]:
        for path in self.files:
            if path.suffix == ".j2" and path.is_relative_to(folder):
                yield path.relative_to(base).as_posix(), (f"{self.source}/{path}", self._text(path))

    def _texts_below(self, folder: PurePosixPath) -> dict[str, str]:
        return {
            p.relative_to(folder).as_posix(): self._text(p) for p in self.files if p.is_relative_to(folder)
        }

    def _examples(self, name: str) -> dict[str, Mapping[str, Any]]:
        folder = PurePosixPath(name, "examples")
        paths = [path for path in self.files if path.parent == folder and path.suffix == ".yaml"]
        return {path.stem: self._example(path) for path in paths}

    def _example(self, path: PurePosixPath) -> Mapping[str, Any]:
        fields = self._fields(str(path), "Example")
        texts = ("summary", "namespace", "environment")
        fields.only("apiVersion", "kind", "params", *texts)
        return {"params": fields.map("params"), **{name: fields.text(name, "") for name in texts}}

    def _fields(self, path: str, kind: str) -> FieldReader:
        return fields_of(self.document(path, kind), kind)

    def document(self, path: str, kind: str) -> AppDocument:
        """Give a checked document of the package.

        Raises:
            SchemaError: the file is missing or does not fit its schema.
        """
        if path not in self._documents:
            data = self.files.get(PurePosixPath(path))
            if data is None:
                raise SchemaError(f"a package needs the file `{path}`", where=self.source)
            found = document.read(data, file=f"{self.source}/{path}")
            fields_of(found, kind)
            check_file(kind, found.value, source=found.file, origins=found.all_origins(), passed=self._passed)
            self._documents[path] = found
        return self._documents[path]

    @cached_property
    def _documents(self) -> dict[str, AppDocument]:
        return {}

    def _text(self, path: PurePosixPath) -> str:
        return document.decode(self.files[path], file=f"{self.source}/{path}")


_PROTOTYPE_FIELDS = (
    "apiVersion",
    "kind",
    "name",
    "summary",
    "description",
    "aliases",
    "blocks",
    "parameters",
    "notes",
)


def _aliases(fields: FieldReader) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for name, entry in fields.named("aliases"):
        found[name] = entry.only("name", "params").map("params") if entry is not None else {}
    return found


# What is remembered of a package and of a prototype, as JSON has it.
_HEAD = {
    **dict.fromkeys(("name", "version", "summary", "description", "license"), str),
    **dict.fromkeys(("keywords", "requires"), list),
}
_PROTOTYPE = {
    **dict.fromkeys(("summary", "description", "notes"), str),
    **dict.fromkeys(("alias_params", "schema", "examples"), dict),
    "aliases": list,
}


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """Give data as it was before JSON made lists of its tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
