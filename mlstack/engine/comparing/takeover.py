"""What it means to take an object over from the tool that applied it before (`--adopt`)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlstack.cluster.api import Cluster
from mlstack.engine.comparing import probe
from mlstack.engine.comparing.settle import Settled
from mlstack.model import adoption, fields, payload
from mlstack.model.fieldmanagers import owner_of
from mlstack.model.fields import MISSING, FieldChange
from mlstack.model.objects import MANAGER

_NAMED = 4  # a note, not a list: a diff with `--adopt` has them all


def goes(
    cluster: Cluster,
    live: Mapping[str, Any],
    settled: Settled,
    data: Mapping[str, Any],
    *,
    spare: Sequence[payload.Path] = (),
) -> tuple[FieldChange, ...]:
    """Tell what changes in an object when fields that other tools applied, and we do not, belong to us.

    No dry run can show it, since their owners cannot be changed in one. The fields are those that nobody
    would own; many of them are defaults, which come back with their values: a new object shows which.

    Args:
        cluster: where to ask; nothing is written.
        live: the object as it is.
        settled: what is sent without a take-over, and whose fields that leaves.
        data: what is sent with one.
        spare: fields that nobody takes over.
    """
    wanted = [path for loss in settled.left for path in loss.paths]
    ours = fields.owned(settled.forced.object, MANAGER)
    return without(cluster, live, data, adoption.going(live, ours, spare=[*spare, *wanted]))


def without(
    cluster: Cluster, live: Mapping[str, Any], data: Mapping[str, Any], tree: fields.Tree
) -> tuple[FieldChange, ...]:
    """Tell what changes in an object when nobody owns some fields any more; defaults come back.

    Args:
        cluster: where to ask; nothing is written.
        live: the object as it is.
        data: what is sent.
        tree: the fields.
    """
    if not tree:
        return ()
    paths = list(fields.paths(tree))
    after = payload.cut(live, paths)
    fresh = probe.as_new(cluster, data)
    for path in paths:
        value = MISSING if path[-1].startswith("k:") else payload.value_at(fresh or {}, path)
        after = after if value is MISSING else payload.put(after, path, value)
    return tuple(
        found for found in fields.compare(live, after, tree) if not adoption.is_allocated(found.path)
    )


def describe(live: Mapping[str, Any], gone: tuple[FieldChange, ...], *, adopt: bool) -> Iterator[str]:
    """Say in one line from whom an object is taken over, or what that would do; nothing if from nobody."""
    owners = sorted({str(owner_of(entry)) for entry in adoption.adoptable(live)})
    if not owners:
        return
    release = (live["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name")
    who = " and ".join(owners) + (f" (Helm release `{release}`)" if release else "")
    if adopt:
        yield f"takes over what {who} applied"
        return
    paths = [f"`{found.path}`" for found in gone]
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    would = f"would remove {', '.join(paths[:_NAMED])}{more}" if paths else "would change no value"
    yield f"was applied by {who}, what only that set stays; taking it over with --adopt {would}"
