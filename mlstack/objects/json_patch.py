"""JSON patches (RFC 6902), as the API server takes them and environments may hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any


class PatchFault(ValueError):
    """A JSON patch does not fit: a `test` failed, or a path is not there."""


def json_patch(value: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Give a value after the operations of a JSON patch (RFC 6902), one after the other.

    Raises:
        PatchFault: one of them does not fit.
    """
    import jsonpatch

    patched = deepcopy(value)
    for operation in operations:
        try:
            patched = jsonpatch.apply_patch(patched, [deepcopy(dict(operation))], in_place=True)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, KeyError) as error:
            raise PatchFault(f"{operation.get('op')} {operation.get('path')}") from error
    return patched
