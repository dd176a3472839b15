"""One YAML document of a known file: its value, and the origin of every part of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlstack.errors import ConfigError, YamlError
from mlstack.files import yamlread
from mlstack.model.params import Origin
from mlstack.model.values import Path


@dataclass(frozen=True)
class Document:
    """A document and the name of its file for messages (below the app directory, with `/`)."""

    file: str
    content: yamlread.Document

    @property
    def value(self) -> Any:
        """Give the value as plain data."""
        return self.content.value

    @property
    def line(self) -> int:
        """Give the first line of the content, from 1."""
        return self.content.line

    def at(self, path: Path) -> Any:
        """Give the value at a path that is there."""
        value = self.content.value
        for part in path:
            value = value[part]
        return value

    def origin(self, path: Path = ()) -> Origin:
        """Give the place of a path, or of the nearest thing around it."""
        return Origin(self.file, self.content.position(path).line)

    def origins(self, path: Path = ()) -> dict[Path, Origin]:
        """Give the places of everything below `path`, by path from there."""
        depth = len(path)
        return {
            found[depth:]: Origin(self.file, position.line)
            for found, position in self.content.positions.items()
            if len(found) > depth and found[:depth] == path
        }

    def all_origins(self) -> dict[Path, Origin]:
        """Give the places of everything by path, and of the whole."""
        return {(): self.origin(), **self.origins()}

    def origins_by_key(self, path: Path) -> dict[str, dict[Path, Origin]]:
        """Give the places below each key of the map at `path`, by path from there; one look at all places."""
        depth = len(path) + 1
        grouped: dict[str, dict[Path, Origin]] = {}
        for found, position in self.content.positions.items():
            if len(found) > depth and found[: depth - 1] == path:
                grouped.setdefault(str(found[depth - 1]), {})[found[depth:]] = Origin(
                    self.file, position.line
                )
        return grouped


def read(data: bytes, *, file: str) -> Document:
    """Read a file that holds exactly one document.

    Raises:
        YamlError: it is no YAML, no UTF-8, or not one document.
    """
    return Document(file, yamlread.read_document(decode(data, file=file), source=file))


def read_all(data: bytes, *, file: str) -> tuple[Document, ...]:
    """Read every document of a file; empty ones are left out.

    Raises:
        YamlError: it is no YAML or no UTF-8.
    """
    text = decode(data, file=file)
    return tuple(
        Document(file, each) for each in yamlread.read_documents(text, source=file, with_positions=True)
    )


def decode(data: bytes, *, file: str) -> str:
    """Give the text of a file.

    Raises:
        YamlError: it is not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise YamlError(
            "the file is not UTF-8 text", where=f"{file}:{line}", hint="save it as UTF-8"
        ) from error


def read_text_value(text: str) -> Any:
    """Read a value as a person types it for a list or map: YAML without a file.

    Raises:
        ValueError: it is no YAML.
    """
    try:
        documents = yamlread.read_documents(text, source="the value")
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return documents[0].value if len(documents) == 1 else None if not documents else text


def kind_of(value: Any) -> str | None:
    """Give the kind of a document of ours, or nothing for anything else."""
    if isinstance(value, Mapping) and str(value.get("apiVersion", "")).startswith("mlstack.dev/"):
        return str(value.get("kind", ""))
    return None
