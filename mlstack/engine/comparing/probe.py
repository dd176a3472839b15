"""Ask the server what it would make of an object that is new."""

from collections.abc import Mapping
from typing import Any

from mlstack.cluster.api import Cluster
from mlstack.errors import MlstackError


def as_new(cluster: Cluster, data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Give what a creation under another name would make of an object; None if the server refuses it.

    The name of a definition is fixed, so it is always refused.
    """
    answer = attempt(cluster, data)
    return None if isinstance(answer, MlstackError) else answer


def attempt(cluster: Cluster, data: Mapping[str, Any]) -> Mapping[str, Any] | MlstackError:
    """Give what a creation under another name would make of an object, or what the server has against it."""
    name = f"{str(data['metadata']['name'])[:40]}-mlstack-probe"
    try:
        return cluster.apply({**data, "metadata": {**data["metadata"], "name": name}}, dry_run=True).object
    except MlstackError as error:  # whatever speaks against the copy, the caller knows what to make of it
        return error
