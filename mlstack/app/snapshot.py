"""What an environment's cluster can do, kept in one file, so that it is known without asking it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mlstack.app import layout
from mlstack.app.app import API_VERSION
from mlstack.app.reader import AppReader
from mlstack.dataclass import dataclass
from mlstack.errors import SchemaError

KIND = "ClusterSnapshot"


@dataclass(frozen=True, kw_only=True)
class ClusterSnapshot:
    """A cluster as it was at one time."""

    taken: str  # when, in UTC
    version: str  # of its API server, as `v1.36.2`
    # kinds that it serves, by API version, sorted
    apis: Mapping[str, tuple[str, ...]]
    definitions: tuple[Mapping[str, Any], ...]  # its CustomResourceDefinitions, with name and spec alone
    # each shape of node: `count`, `allocatable` by resource, `labels` that tell accelerators and machines
    # apart, `taints`
    nodes: tuple[Mapping[str, Any], ...]
    quotas: tuple[Mapping[str, Any], ...]  # ResourceQuotas of the environment's namespace: `name` and `hard`
    limits: tuple[Mapping[str, Any], ...] = ()  # LimitRanges of that namespace: `name` and their `limits`
    # what moves all the time, None where nobody may see it: `nodes` that take pods (`shape` in the list of
    # these, `count`, `free`), number of pods that are `waiting`, terms of those `repelling` others, what is
    # `used` of quotas, and `pools` that an autoscaler may grow
    room: Mapping[str, Any] | None = None

    @property
    def api_versions(self) -> tuple[str, ...]:
        """Give API versions and kinds as helm takes them: `apps/v1`, `apps/v1/Deployment`."""
        return tuple(
            name
            for version, kinds in self.apis.items()
            for name in (version, *(f"{version}/{kind}" for kind in kinds))
        )

    def content(self) -> dict[str, Any]:
        """Give what the file holds."""
        return {"apiVersion": API_VERSION, "kind": KIND, **{name: vars(self)[name] for name in vars(self)}}

    def text(self) -> str:
        """Write the file; the same cluster gives the same text but for the time."""
        return json.dumps(self.content(), indent=1, sort_keys=False) + "\n"


def is_kept_label(name: str) -> bool:
    """Tell whether a snapshot keeps a label of nodes: all but those that name one machine."""
    return not name.endswith(("/hostname", "/instance-id", "/node-id"))


def read_snapshot(app: AppReader, environment: str) -> ClusterSnapshot | None:
    """Read the snapshot of an environment, or of the nearest one it extends that shares its context.

    Raises:
        SchemaError: the file is not what `env snapshot` writes.
    """
    context = app.environment(environment).context
    for name in reversed(app.lineage(environment)):
        if app.environment(name).context != context:
            return None
        file = f"{layout.ENVIRONMENTS}/{name}/{layout.SNAPSHOT}"
        data = app.files.bytes(file)
        if data is not None:
            return parse_snapshot(data, file, name)
    return None


def parse_snapshot(data: bytes, file: str, environment: str) -> ClusterSnapshot:
    """Read what a snapshot's file holds.

    Raises:
        SchemaError: it is not what `env snapshot` writes.
    """
    try:
        content = json.loads(data)
        if (content.pop("apiVersion"), content.pop("kind")) != (API_VERSION, KIND):
            raise ValueError
        snapshot = ClusterSnapshot(
            **{
                **content,
                "apis": {str(version): tuple(map(str, kinds)) for version, kinds in content["apis"].items()},
                **{name: tuple(map(dict, content[name])) for name in ("definitions", "nodes", "quotas")},
                "limits": tuple(map(dict, content.get("limits", ()))),
            }
        )
        if not all(isinstance(text, str) for text in (snapshot.taken, snapshot.version)):
            raise TypeError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        hint = f"take it anew: mlstack env snapshot {environment}"
        raise SchemaError("the file is no snapshot of a cluster", where=file, hint=hint) from None
    return snapshot
