"""Retired names as the index of a registry and `mlstack.lock` write them."""

from collections.abc import Iterable
from typing import Any

from mlstack.files.fields import Fields
from mlstack.model.app import Retired


def read_retired(fields: Fields) -> tuple[Retired, ...]:
    """Read the field `retired` of a map; empty when it is not there.

    Raises:
        SchemaError: it is wrong.
    """
    return tuple(_retired(entry) for entry in fields.each("retired"))


def _retired(fields: Fields) -> Retired:
    fields.only("names", "reason", "instead")
    return Retired(
        names=fields.texts("names"), reason=fields.text("reason"), instead=fields.text("instead", "")
    )


def retired_maps(retired: Iterable[Retired]) -> list[dict[str, Any]]:
    """Give entries of the field `retired` as plain data."""
    return [
        {
            "names": list(each.names),
            "reason": each.reason,
            **({"instead": each.instead} if each.instead else {}),
        }
        for each in retired
    ]
