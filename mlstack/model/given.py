"""Parameters given on a command line for a prototype: names checked, texts typed."""

from collections.abc import Callable, Mapping
from typing import Any

from mlstack.errors import NotFoundError, UsageError
from mlstack.model.names import nearest
from mlstack.model.params import spelling_table
from mlstack.model.prototype import Param, Prototype
from mlstack.model.values import inner_param, parse_text


def canonical_name(prototype: Prototype, name: str) -> str:
    """Give the canonical spelling of a parameter; old spellings and `-` for `_` are understood.

    Raises:
        NotFoundError: the prototype declares no such parameter; carries the nearest one.
    """
    table = spelling_table(prototype.params)
    for spelling in (name, name.replace("-", "_")):
        if spelling in table:
            return table[spelling]
    near = nearest(name, table)
    raise NotFoundError(
        f"prototype `{prototype.name}` has no parameter `{name}`",
        hint=f"did you mean `{near}`?" if near else f"mlstack prototype describe {prototype.name}",
    )


def param_at(prototype: Prototype, path: tuple[str, ...]) -> tuple[tuple[str, ...], Param | None]:
    """Give a path with its first part spelled canonically, and what is declared for that place.

    Raises:
        NotFoundError: the prototype declares no such parameter.
    """
    name = canonical_name(prototype, path[0])
    return (name, *path[1:]), inner_param(prototype.params[name], path[1:])


def typed(
    prototype: Prototype, texts: Mapping[str, str | None], *, read: Callable[[str], Any]
) -> dict[str, Any]:
    """Give the values of options by canonical name, in the order they were given.

    Args:
        prototype: declares the parameters.
        texts: text by name as typed; None for an option without a value.
        read: reads structured text (YAML).

    Raises:
        UsageError: an unknown name, or an option without a value that is no switch.
    """
    found: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            canonical = canonical_name(prototype, name)
        except NotFoundError as error:
            raise UsageError(error.message, hint=error.hint) from error
        found[canonical] = _value(prototype.params[canonical], name, text, read)
    return found


def _value(param: Param, name: str, text: str | None, read: Callable[[str], Any]) -> Any:
    if text is not None:
        return parse_text(param, text, read=read)
    if "boolean" in param.types:
        return True
    raise UsageError(f"`--{name}` needs a value", hint=f"write --{name}=VALUE")


def missing(prototype: Prototype, values: Mapping[str, Any]) -> tuple[Param, ...]:
    """Give the required parameters that have no value, in the order they are declared."""
    return tuple(
        param for param in prototype.params.values() if param.required and values.get(param.name) is None
    )
