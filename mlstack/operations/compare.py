"""`diff A B`: two environments side by side, as their files say or as their clusters have them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mlstack.cluster.api import Opener
from mlstack.engine import sides
from mlstack.engine.target import Target
from mlstack.model.app import API_VERSION
from mlstack.model.diff import Changes
from mlstack.model.report import ObjectChange, report
from mlstack.model.sides import Side


@dataclass(frozen=True, kw_only=True)
class CompareResult:
    """What changes on the way from one environment to another.

    Attributes:
        api_version: version of this format.
        kind: kind of this format.
        ok: true if there is no difference.
        app: name of the app.
        left: what is compared: `local:ENV` for its files, `remote:ENV` for its cluster.
        right: what it is compared with.
        objects: one row an object, named as in the environment it was compared in; `create` is on the right
            alone, `delete` on the left alone.
        counts: number of objects of each action.
        notes: remarks on the comparison as a whole.
    """

    api_version: str = API_VERSION
    kind: Literal["CompareResult"] = "CompareResult"
    ok: bool
    app: str
    left: str
    right: str
    objects: tuple[ObjectChange, ...]
    counts: Mapping[str, int]
    notes: tuple[str, ...] = ()


def compare(target: Target, left: Side, right: Side, *, opener: Opener) -> CompareResult:
    """Compare two sides; nothing is written.

    Args:
        target: the app directory, components and parameters, for both sides.
        left: the side that is compared.
        right: the side it is compared with.
        opener: opens a cluster by its context.

    Raises:
        NotFoundError: there is no such environment.
        ConfigError: a file, parameter or template is wrong.
        ClusterError: a cluster cannot be asked, or is another than the environment's.
    """
    changes, notes = sides.compare(target, left, right, opener=opener)
    told = report(
        Changes(
            app=target.app.app().name,
            environment=right.environment,
            namespace="",
            context="",
            cluster=None,
            changes=changes,
            notes=notes,
        )
    )
    return CompareResult(
        ok=told.ok,
        app=told.app,
        left=str(left),
        right=str(right),
        objects=told.objects,
        counts=told.counts,
        notes=told.notes,
    )
