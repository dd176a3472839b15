"""The only door to ruamel.yaml: YAML that is taken apart or put together anew with its comments."""

from __future__ import annotations

from io import StringIO
from typing import Any

from mlstack.errors import YamlError


def load(text: str, *, source: str) -> list[Any]:
    """Read every document as values that carry their comments; change them in place, then `dump` them.

    Raises:
        YamlError: the text is no YAML.
    """
    from ruamel.yaml.error import YAMLError  # the door: nobody else imports it

    try:
        return [document for document in _yaml().load_all(text) if document is not None]
    except YAMLError as error:
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise YamlError(f"broken YAML: {problem}", where=source) from error


def dump(value: Any) -> str:
    """Write one document with the comments it carries."""
    out = StringIO()
    _yaml().dump(value, out)
    return out.getvalue()


def _yaml() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1_000_000  # no line is broken that was not
    yaml.indent(mapping=2, sequence=2, offset=0)
    return yaml
