"""`schema`: the JSON Schemas of files that people write and of results that programs read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mlstack.errors import NotFoundError
from mlstack.files import schema as schemas
from mlstack.model.names import nearest


@dataclass(frozen=True, kw_only=True)
class SchemaRow:
    """One schema.

    Attributes:
        name: the `kind` that it describes.
        describes: a file, or what a command prints with `-o json` and `-o yaml`.
        id: its `$id`, which never changes within a version.
        summary: what the thing is for.
    """

    name: str
    describes: Literal["file", "result"]
    id: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class SchemaList:
    """All schemas, files before results, by name."""

    schemas: tuple[SchemaRow, ...]


@dataclass(frozen=True, kw_only=True)
class Schema:
    """One schema, printed as it is.

    Attributes:
        name: the `kind` that it describes.
        content: the JSON Schema.
    """

    name: str
    content: Mapping[str, Any]

    def to_dict(self) -> Mapping[str, Any]:
        """Give the schema itself."""
        return self.content


def known() -> SchemaList:
    """List the schemas there are."""
    files = [_row("file", schemas.file_schema(kind)) for kind in schemas.file_kinds()]
    results = [_row("result", schemas.result_schema(kind)) for kind in schemas.result_kinds()]
    return SchemaList(schemas=(*files, *results))


def _row(describes: Literal["file", "result"], schema: dict[str, Any]) -> SchemaRow:
    summary = str(schema.get("description", "")).partition(". ")[0].rstrip(".")
    return SchemaRow(name=schema["title"], describes=describes, id=schema["$id"], summary=summary)


def find(name: str) -> Schema:
    """Give the schema of a kind; upper and lower case are the same.

    Raises:
        NotFoundError: there is none; with the nearest known one.
    """
    files, results = schemas.file_kinds(), schemas.result_kinds()
    by_name = {kind.lower(): kind for kind in (*files, *results)}
    kind = by_name.get(name.lower())
    if kind is None:
        near = nearest(name, by_name.values())
        raise NotFoundError(f"no schema `{name}`", near=near, hint=None if near else "mlstack schema")
    content = schemas.file_schema(kind) if kind in files else schemas.result_schema(kind)
    return Schema(name=kind, content=content)
