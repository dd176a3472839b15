"""Read `--values` files: `{globals: {…}, components: {name: {…}}}`, or a flat map for every component."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlstack.errors import ConfigError, NotFoundError, UsageError
from mlstack.files import document as documents
from mlstack.files.document import Document
from mlstack.files.fields import Fields
from mlstack.files.wording import described
from mlstack.model.overrides import Overrides, ValuesFile, parse_set
from mlstack.model.params import Layer

_SECTIONS = ("globals", "components")


def read(sets: Sequence[str], files: Sequence[Path]) -> Overrides:
    """Read what `--set` and `--values` give for one run.

    Raises:
        UsageError: a `--set` is not `key=value`.
        NotFoundError: a values file does not exist.
        ConfigError: a values file is not a map of parameters.
    """
    return Overrides(
        files=tuple(read_values(file) for file in files), sets=tuple(parse_set(text) for text in sets)
    )


def read_values(file: Path) -> ValuesFile:
    """Read one values file.

    Raises:
        NotFoundError: it does not exist.
        ConfigError: it is not a map of parameters.
    """
    found = documents.read_all(_bytes(file), file=str(file))
    if not found:
        return ValuesFile(Layer("command line", {}))
    if len(found) > 1:
        raise ConfigError("a values file holds one document", where=str(found[1].origin()))
    document, value = found[0], found[0].value
    if not isinstance(value, Mapping):
        raise ConfigError(f"a values file is a map, got {described(value)}", where=str(file))
    if value and all(key in _SECTIONS for key in value):
        return _sections(document, value)
    return ValuesFile(_layer(document, value, (), everyone=True))


def _sections(document: Document, value: Mapping[str, Any]) -> ValuesFile:
    fields = Fields(document)
    globals_ = _layer(document, fields.map("globals"), ("globals",), everyone=True)
    components = {
        name: _layer(document, _values(document, name, each), ("components", name), everyone=False)
        for name, each in fields.map("components").items()
    }
    return ValuesFile(globals_, components)


def _values(document: Document, name: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        where = str(document.origin(("components", name)))
        raise ConfigError(f"`{name}` must be a map of parameters, got {described(value)}", where=where)
    return value


def _layer(document: Document, values: Mapping[str, Any], path: tuple[str, ...], *, everyone: bool) -> Layer:
    return Layer("command line", values, document.origins(path), speaks_to_many=everyone)


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(
            f"no values file `{file}`", hint="relative paths start at the working directory"
        ) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(
            f"cannot read the values file `{file}`: {reason}", hint="give a YAML file of parameters"
        ) from error
