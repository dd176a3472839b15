"""Ask the server what it would make of an object that is new."""

from collections.abc import Mapping
from typing import Any

from mlstack.cluster.api import Applied, Cluster
from mlstack.errors import MlstackError


def as_new(cluster: Cluster, data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Give what a creation under another name would make of an object; None if the server refuses it.

    The name of a definition is fixed, so it is always refused.
    """
    answer = _asked(cluster, data)
    return None if isinstance(answer, MlstackError) else answer.object


def fault(cluster: Cluster, data: Mapping[str, Any]) -> MlstackError | None:
    """Give what the server says against a creation under another name; None if nothing does."""
    answer = _asked(cluster, data)
    return answer if isinstance(answer, MlstackError) else None


def _asked(cluster: Cluster, data: Mapping[str, Any]) -> Applied | MlstackError:
    name = f"{str(data['metadata']['name'])[:40]}-mlstack-probe"
    try:
        return cluster.apply({**data, "metadata": {**data["metadata"], "name": name}}, dry_run=True)
    except MlstackError as error:  # whatever speaks against the copy, the caller knows what to make of it
        return error
