"""Taking over: all of the tool that applied an object before (`--adopt`), or what people added to it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.engine.comparing import probe
from mlstack.engine.comparing.settle import Settled
from mlstack.errors import ConflictError, ForbiddenError, InvalidError
from mlstack.model import adoption, dropped, fields, payload, renewal
from mlstack.model.fieldmanagers import owner_of
from mlstack.model.fields import MISSING, FieldChange
from mlstack.model.objects import MANAGER, KubeObject

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
    fresh = probe.as_new(cluster, data, live)
    for path in paths:
        value = MISSING if path[-1].startswith("k:") else payload.value_at(fresh or {}, path)
        after = after if value is MISSING else payload.put(after, path, value)
    return tuple(
        found for found in fields.compare(live, after, tree) if not adoption.is_allocated(found.path)
    )


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What it means that fields which people's tools set go.

    Attributes:
        paths: the fields, with the maps and lists that hold nothing else.
        after: the object without them.
        changed: what changes; nothing where the server gives the same values.
        fault: why they cannot go while the object exists.
    """

    paths: tuple[payload.Path, ...] = ()
    after: Mapping[str, Any] = field(default_factory=dict)
    changed: tuple[FieldChange, ...] = ()
    fault: InvalidError | None = None


def removal(
    cluster: Cluster, wanted: KubeObject, live: Mapping[str, Any], found: Sequence[payload.Path]
) -> Removal:
    """Ask the server what an object is without some fields: defaults and webhooks have their say.

    Args:
        cluster: where to ask; nothing is written.
        wanted: the object as it is wanted.
        live: the object as it is.
        found: the fields.

    Raises:
        ConflictError: the object changed meanwhile.
    """
    found = [path for path in found if payload.value_at(live, path) is not MISSING]
    if not found:
        return Removal()
    paths, fault = dropped.widened(live, wanted.data, found), None
    try:
        test = {"op": "test", "path": "/metadata/uid", "value": live["metadata"]["uid"]}
        patch = (test, *payload.removals(live, paths))
        after = cluster.patch(ObjectRef.of(wanted.data), patch, kind="json", dry_run=True).object
    except InvalidError as error:
        if not error.causes:
            raise ConflictError(error.message) from error
        after, fault = payload.cut(live, paths), error if renewal.says_fixed(error.causes) else None
    except ForbiddenError:  # as a policy says; the write will tell
        after = payload.cut(live, paths)
    changed = tuple(fields.compare(live, after, fields.tree_along(found)))
    return Removal(paths=paths, after=after, changed=changed, fault=fault if changed else None)


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
