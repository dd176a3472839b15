"""Look once at live objects, the pods that belong to them, and events, and judge them all."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.engine import parallel
from mlstack.engine.waiting.judge import Judge, Seen
from mlstack.engine.waiting.logs import Logs
from mlstack.errors import ForbiddenError, ObjectNotFoundError
from mlstack.model.objects import Identity, KubeObject
from mlstack.model.readiness.relatives import Data, Relatives, kinds_below
from mlstack.model.readyrules import ReadyRules


def inspect(
    wanted: Sequence[KubeObject],
    cluster: Cluster,
    *,
    now_s: float,
    wait_for_load_balancer: bool,
    labels: str = "",
    rules: ReadyRules | None = None,
    logs: Logs | None = None,
) -> tuple[tuple[Seen, ...], tuple[str, ...]]:
    """Look at every wanted object and judge it.

    Events and nodes are read only if something does not work: they are many, and only tell why.

    Args:
        wanted: the objects, as the files bring them.
        cluster: where to look.
        now_s: the time in seconds since 1970.
        wait_for_load_balancer: whether a Service of type LoadBalancer needs its address.
        labels: what the objects carry if they are ours; empty where that is not known.
        rules: the app's own readiness rules.
        logs: reads the logs of what crashed; None reads none.

    Returns:
        What was seen of each object, and remarks on what could not be read.
    """
    judge = Judge(cluster, Relatives(), wait_for_load_balancer=wait_for_load_balancer, rules=rules, logs=logs)
    listed = _listed(wanted, cluster, labels) if labels else {}

    def look(found: KubeObject) -> Data | None:
        known = listed.get(found.identity)
        return cluster.get(ObjectRef.of(found.data)) if known is None else known

    live = parallel.whole(parallel.run(look, wanted))
    pairs = list(zip(wanted, live, strict=True))
    _read_pods(cluster, [data for data in live if data is not None], judge)
    seen = [judge.judge(found, data, now_s=now_s) for found, data in pairs]
    troubled = {one.wanted.namespace for one in seen if not one.readiness.is_fine and one.live}
    if not troubled:
        return tuple(seen), tuple(judge.notes)
    _read(cluster, [("v1", "Event", name) for name in sorted(troubled) if name], judge)
    again = tuple(judge.judge(found, data, now_s=now_s) for found, data in pairs)
    return again, tuple(judge.notes)


def _listed(wanted: Sequence[KubeObject], cluster: Cluster, labels: str) -> Mapping[Identity, Data]:
    """List kinds that there is much of; what is not among them is asked for by name."""
    counts = Counter((found.api_version, found.kind, found.namespace) for found in wanted)
    many = sorted(key for key, count in counts.items() if count >= parallel.LIST_FROM)

    def read(key: tuple[str, str, str]) -> Sequence[Data]:
        try:
            return cluster.list(key[0], key[1], namespace=key[2] or None, labels=labels).items
        except (ForbiddenError, ObjectNotFoundError):  # whoever may not list asks for each object
            return ()

    items = [item for found in parallel.whole(parallel.run(read, many)) for item in found]
    return {KubeObject(data=item).identity: item for item in items}


def _read_pods(cluster: Cluster, live: Iterable[Data], judge: Judge) -> None:
    """Read pods and what owns them, a request a kind and namespace."""
    below: dict[str, list[Data]] = {}
    for data in live:
        namespace = str(data["metadata"].get("namespace") or "")
        if namespace:
            below.setdefault(namespace, []).append(data)
    wanted = [(*kind, name) for name, found in sorted(below.items()) for kind in kinds_below(found)]
    _read(cluster, wanted, judge)


def _read(cluster: Cluster, wanted: Sequence[tuple[str, str, str]], judge: Judge) -> None:
    def read(one: tuple[str, str, str]) -> Sequence[Data]:
        api_version, kind, namespace = one
        try:
            return cluster.list(api_version, kind, namespace=namespace).items
        except ForbiddenError as error:
            judge.note(error)
        except ObjectNotFoundError:  # a kind that is not there has no objects
            pass
        return ()

    for items in parallel.whole(parallel.run(read, wanted)):
        for item in items:
            judge.relatives.put(item)
