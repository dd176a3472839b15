"""Take a file's content apart: the fields of one map, each of the type it must have.

This look at the structure always happens and imports nothing. Patterns and formats are the JSON
Schema's to check (`schema.check_file`), once for each content.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from mlstack.errors import SchemaError, UsageError
from mlstack.files.document import Document
from mlstack.files.wording import described, expectation
from mlstack.model import durations
from mlstack.model.app import API_VERSION, PackageRef
from mlstack.model.names import nearest, parse_package_ref
from mlstack.model.params import Layer, Origin
from mlstack.model.values import Path, join_path

_STRING = {"type": "string"}


class Fields:
    """One map of a document.

    Args:
        document: where the map stands.
        path: its place in the document.
    """

    def __init__(self, document: Document, path: Path = ()) -> None:
        """Take the map at `path`.

        Raises:
            SchemaError: something else stands there.
        """
        self._document = document
        self._path = path
        value = document.at(path)
        if not isinstance(value, Mapping):
            self._refuse((), f"must be a map, got {described(value)}")
        self._map: Mapping[str, Any] = value

    def only(self, *names: str) -> "Fields":
        """Refuse every field that is not one of `names`.

        Raises:
            SchemaError: with the nearest of them.
        """
        for name in self._map:
            if name not in names:
                near = nearest(str(name), names)
                hint = f"did you mean `{near}`?" if near else f"known fields: {', '.join(names)}"
                self._refuse((name,), "is no field of this file", hint=hint)
        return self

    def text(self, name: str, default: str | None = None) -> str:
        """Give a string; without a default it must be there and not empty."""
        value = self._map.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            self._refuse((name,), "is required" if value is None else expectation("type", _STRING, value))
        if default is None and not value:
            self._refuse((name,), "must not be empty")
        return value

    def optional_text(self, name: str) -> str | None:
        """Give a string, or nothing."""
        return None if self._map.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        """Give a boolean; false when it is not there."""
        value = self._map.get(name, False)
        if not isinstance(value, bool):
            self._refuse((name,), f"must be true or false, got {described(value)}")
        return value

    def has(self, name: str) -> bool:
        """Tell whether a field is there and not null."""
        return self._map.get(name) is not None

    def scalar(self, name: str) -> str | int | float | bool:
        """Give a string, number or boolean."""
        return self._scalar((name,), self._map.get(name))

    def scalars(self, name: str) -> tuple[str | int | float | bool, ...]:
        """Give a list of strings, numbers and booleans; empty when it is not there."""
        found = self._list(name)
        return tuple(self._scalar((name, index), entry) for index, entry in enumerate(found))

    def _scalar(self, path: Path, value: object) -> str | int | float | bool:
        if not isinstance(value, str | int | float | bool):
            self._refuse(path, f"must be a string, a number, true or false, got {described(value)}")
        return value

    def duration_s(self, name: str) -> float | None:
        """Give a duration in seconds, or nothing."""
        value = self._map.get(name)
        if value is None:
            return None
        try:
            return durations.seconds(str(value))
        except ValueError as error:
            self._refuse((name,), str(error))

    def texts(self, name: str) -> tuple[str, ...]:
        """Give a list of strings; empty when it is not there."""
        value = self._list(name)
        for index, entry in enumerate(value):
            if not isinstance(entry, str):
                self._refuse((name, index), f"must be a string, got {described(entry)}")
        return tuple(value)

    def _list(self, name: str) -> list[Any]:
        value = self._map.get(name)
        if value is not None and not isinstance(value, list):
            self._refuse((name,), f"must be a list, got {described(value)}")
        return value or []

    def map(self, name: str) -> Mapping[str, Any]:
        """Give a map; empty when it is not there."""
        value = self._map.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._refuse((name,), f"must be a map, got {described(value)}")
        return value

    def inner(self, name: str) -> "Fields | None":
        """Give the map of that name, or nothing."""
        return None if self._map.get(name) is None else Fields(self._document, (*self._path, name))

    def each(self, name: str) -> Iterator["Fields"]:
        """Give the maps of a list; none when it is not there."""
        for index in range(len(self._list(name))):
            yield Fields(self._document, (*self._path, name, index))

    def named(self, name: str) -> Iterator["tuple[str, Fields | None]"]:
        """Give a list of names and of maps with a `name`: each name, with its map if it is one."""
        for index, entry in enumerate(self._list(name)):
            fields = None if isinstance(entry, str) else Fields(self._document, (*self._path, name, index))
            yield (entry if fields is None else fields.text("name")), fields

    def package(self, name: str) -> PackageRef:
        """Give a package reference such as `kubeflow/core@0.1.0`."""
        return self._package_ref((name,), self.text(name))

    def packages(self, name: str) -> tuple[PackageRef, ...]:
        """Give a list of package references."""
        texts = self.texts(name)
        return tuple(self._package_ref((name, index), text) for index, text in enumerate(texts))

    def _package_ref(self, path: Path, text: str) -> PackageRef:
        try:
            return parse_package_ref(text)
        except UsageError as error:
            self._refuse(path, f"is no package: `{text}`", hint=error.hint)

    def origin(self, name: str | None = None) -> Origin:
        """Give the place of a field, or of the map."""
        return self._document.origin(self._path if name is None else (*self._path, name))

    def refuse(self, name: str, message: str, *, hint: str | None = None) -> NoReturn:
        """Raise the error that a field is wrong.

        Raises:
            SchemaError: always.
        """
        self._refuse((name,), message, hint=hint)

    def refuse_all(self, message: str, *, hint: str | None = None) -> NoReturn:
        """Raise the error that the map itself is wrong.

        Raises:
            SchemaError: always.
        """
        self._refuse((), message, hint=hint)

    def _refuse(self, path: Path, message: str, *, hint: str | None = None) -> NoReturn:
        full = (*self._path, *path)
        subject = f"`{join_path(full)}`" if full else "the file"
        raise SchemaError(f"{subject} {message}", where=str(self._document.origin(full)), hint=hint)


def fields_of(document: Document, kind: str) -> Fields:
    """Give the fields of a file of a known kind, `apiVersion` and `kind` checked.

    Raises:
        SchemaError: another kind, or an apiVersion that this version does not know.
    """
    fields = Fields(document)
    if document.value.get("kind") == "ksonnet.io/app":
        fields.refuse(
            "kind", "says that this is an app of ksonnet", hint="start a new one: mlstack init NAME"
        )
    version, found = fields.text("apiVersion"), fields.text("kind")
    if version != API_VERSION:
        fields.refuse("apiVersion", *_about_version(version))
    if found != kind:
        fields.refuse("kind", f"must be `{kind}` in this file, got `{found}`")
    return fields


def _about_version(version: str) -> tuple[str]:
    if version.startswith("mlstack.dev/"):
        return (
            f"is `{version}`, which a newer mlstack wrote; this one reads `{API_VERSION}`: upgrade mlstack",
        )
    return (f"must be `{API_VERSION}`, got `{version}`",)


def layer_of(document: Document, path: Path, kind: str, target: str) -> Layer:
    """Give the map at a path of a document as a layer; an absent one is an empty layer.

    Raises:
        SchemaError: something else than a map stands there.
    """
    value: Any = document.value
    for part in path:
        value = value.get(part)
        if value is None:
            return Layer(kind, {}, target=target)
    Fields(document, path)
    return Layer(kind, value, document.origins(path), target)
