"""What an environment has in its cluster: by the files, and by the marks on the objects."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.engine import parallel
from mlstack.engine.leftovers import leftovers
from mlstack.engine.target import Reached
from mlstack.errors import ForbiddenError, MlstackError, ObjectNotFoundError
from mlstack.model import objects
from mlstack.model.diff import Change, Changes
from mlstack.model.kinds import kinds_of_crd
from mlstack.model.objects import DesiredState, KubeObject
from mlstack.model.order import reversed_waves

# Names of objects that go with a definition: more than these are counted, not listed.
_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Spare:
    """Which kinds are kept because deleting them takes other people's things along."""

    definitions: bool = True
    namespaces: bool = True
    claims: bool = True

    def reason(self, found: KubeObject) -> str:
        """Say why an object is kept, nothing if it is not."""
        kind = (found.group, found.kind)
        if self.definitions and kind == ("apiextensions.k8s.io", "CustomResourceDefinition"):
            return "definitions are kept: deleting one deletes its objects in every namespace (--crds)"
        if self.namespaces and kind == ("", "Namespace"):
            return "namespaces are kept: deleting one deletes everything in it (--namespaces)"
        if self.claims and kind == ("", "PersistentVolumeClaim"):
            return "volume claims are kept: deleting one deletes its data (--claims)"
        return ""


def find(reached: Reached, *, spare: Spare) -> Changes:
    """Give a deletion for everything of an environment that is in the cluster.

    Objects of the files that carry the marks of another app or environment, or none, are kept: other
    people may depend on them. Objects with our marks that the files no longer bring go as well.

    Args:
        reached: what the files bring, and where to look; nothing is written.
        spare: kinds to keep.
    """
    state, cluster = reached.state, reached.cluster
    named = _by_name(state, cluster)
    marked = _by_marks(state, cluster, only_components=reached.selective)
    live = {found.identity: found for found in (*marked, *named)}
    changes = [_change(found, state, spare) for found in live.values()]
    ordered = [change for wave in reversed_waves(changes, lambda one: one.identity) for change in wave.items]
    going = [live[change.identity] for change in ordered if change.action == "delete"]
    return Changes(
        app=state.app,
        environment=state.environment,
        namespace=state.namespace,
        context=reached.place.context,
        cluster=reached.identity,
        changes=tuple(ordered),
        notes=(*state.notes, *_taken_along(going, cluster), *leftovers(going, cluster)),
    )


def _by_name(state: DesiredState, cluster: Cluster) -> list[KubeObject]:
    def look(wanted: KubeObject) -> KubeObject | None:
        live = cluster.get(ObjectRef.of(wanted.data))
        return None if live is None else wanted.with_data(live)

    return [found for found in _results(parallel.run(look, state.objects)) if found is not None]


def _by_marks(state: DesiredState, cluster: Cluster, *, only_components: bool) -> list[KubeObject]:
    """List our marks on every kind the files bring, where the files bring it and where it would go."""
    query = objects.selector(app=state.app, environment=state.environment)
    query += f",{objects.COMPONENT_LABEL}"
    if only_components:
        names = ",".join(name.replace("/", ".") for name in state.components)
        query += f",{objects.COMPONENT_LABEL} in ({names})"
    places = {
        (found.api_version, found.kind, namespace)
        for found in state.objects
        for namespace in ({found.namespace, state.namespace} if found.namespace else {None})
    }

    def look(where: tuple[str, str, str | None]) -> Sequence[KubeObject]:
        api_version, kind, namespace = where
        try:
            listing = cluster.list(api_version, kind, namespace=namespace, labels=query)
        except ObjectNotFoundError:  # the kind has gone already, and its objects with it
            return ()
        except ForbiddenError:  # who may not list still may delete what the files name
            return ()
        return [KubeObject(data=item, component=_component_of(item)) for item in listing.items]

    ordered = sorted(places, key=lambda where: (where[0], where[1], where[2] or ""))
    return [found for many in _results(parallel.run(look, ordered)) for found in many]


def _component_of(item: Mapping[str, Any]) -> str:
    return str((item["metadata"].get("labels") or {}).get(objects.COMPONENT_LABEL, ""))


def _results(results: Iterable[Any]) -> list[Any]:
    found = list(results)
    failures = [result for result in found if isinstance(result, MlstackError)]
    if failures:
        raise parallel.together(failures)
    return found


def _change(found: KubeObject, state: DesiredState, spare: Spare) -> Change:
    reason = _foreign(found, state) or spare.reason(found)
    return Change(
        identity=found.identity,
        component=found.component,
        api_version=found.api_version,
        action="kept" if reason else "delete",
        reason=reason,
        live_uid=str(found.metadata.get("uid", "")),
        writes=not reason,
    )


def _foreign(found: KubeObject, state: DesiredState) -> str:
    """Say whose an object is if it is not this environment's."""
    wanted = objects.marks(app=state.app, environment=state.environment, component="")
    app, environment = (found.labels.get(key) for key in (objects.APP_LABEL, objects.ENVIRONMENT_LABEL))
    if app is None:
        return "was not made by mlstack"
    if (app, environment) == (wanted[objects.APP_LABEL], wanted[objects.ENVIRONMENT_LABEL]):
        return ""
    return f"belongs to environment `{environment}` of app `{app}`"


def _taken_along(going: Sequence[KubeObject], cluster: Cluster) -> Iterator[str]:
    """Name the objects that go with the definitions, in all namespaces."""
    for definition in going:
        kinds = kinds_of_crd(definition.data)
        if not kinds:
            continue
        served = kinds[-1]
        try:
            listing = cluster.list(served.api_version, served.kind, metadata_only=True)
        except ObjectNotFoundError:
            continue
        names = [_place_of(item) for item in listing.items]
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            yield (
                f"with definition `{definition.name}` go {len(names)} {served.kind} of all namespaces: "
                f"{', '.join(names[:_NAMED])}{more}"
            )


def _place_of(item: Mapping[str, Any]) -> str:
    metadata = item["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]
