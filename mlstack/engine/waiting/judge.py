"""Judge live objects by the readiness rules, with everything around them that tells why one does not work."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.engine.waiting.logs import Logs
from mlstack.errors import ClusterError, ForbiddenError, ObjectNotFoundError
from mlstack.model.kinds import Kinds
from mlstack.model.objects import KubeObject
from mlstack.model.readiness.assess import ODD, assess, unjudged
from mlstack.model.readiness.base import RULES, UNSEEN, Facts, Readiness, key_of
from mlstack.model.readiness.platform import services_of
from mlstack.model.readiness.pods import crash
from mlstack.model.readiness.relatives import Data, Relatives
from mlstack.model.readyrules import ReadyRules

T = TypeVar("T")

# Nodes come and go; what they have is asked for again after this time.
FRESH_S = 10.0
# A kind that was defined a moment ago is not listed at once.
_SOON_S = 1.0

MISSING = Readiness(state="missing", reason="not applied")
SERVICE_LABEL = "kubernetes.io/service-name"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One wanted object as it is.

    Attributes:
        wanted: what the files say.
        live: what is there, None if nothing is.
        readiness: what the rule of its kind says.
        pods: its pods with what their rule says, by name.
    """

    wanted: KubeObject
    live: Data | None
    readiness: Readiness
    pods: tuple[tuple[Data, Readiness], ...] = ()


class Judge:
    """Judges objects of one cluster; asks it for nodes, classes and endpoints where that tells more.

    Args:
        cluster: where to ask.
        relatives: pods, their owners and events.
        wait_for_load_balancer: whether a Service of type LoadBalancer needs its address.
        rules: the app's own readiness rules.
        logs: reads the logs of what crashed; None reads none.
    """

    def __init__(
        self,
        cluster: Cluster,
        relatives: Relatives,
        *,
        wait_for_load_balancer: bool,
        rules: ReadyRules | None = None,
        logs: Logs | None = None,
    ) -> None:
        """Begin with nothing asked."""
        self.relatives = relatives
        self.notes: list[str] = []
        self._logs = logs
        self._cluster, self._balancer, self._rules = cluster, wait_for_load_balancer, rules or {}
        self._answers: dict[tuple[str, ...], tuple[float, Any]] = {}

    def judge(self, wanted: KubeObject, live: Data | None, *, now_s: float) -> Seen:
        """Judge one object and its pods."""
        if live is None:
            return Seen(wanted=wanted, live=None, readiness=MISSING)
        try:
            return self._judged(wanted, live, now_s)
        except ODD:
            return Seen(wanted=wanted, live=live, readiness=unjudged(live))

    def _judged(self, wanted: KubeObject, live: Data, now_s: float) -> Seen:
        pods = self.relatives.pods_of(live)
        shown = () if wanted.kind in ("Pod", "PersistentVolumeClaim") else pods
        return Seen(
            wanted=wanted,
            live=live,
            readiness=self._assess(live, pods, now_s),
            pods=tuple((pod, self._assess(pod, (), now_s, is_detail=True)) for pod in shown),
        )

    def _assess(
        self, data: Data, pods: Sequence[Data], now_s: float, *, is_detail: bool = False
    ) -> Readiness:
        facts = Facts(
            data=data,
            pods=pods,
            events=self.relatives.events_of([data, *pods]),
            now_s=now_s,
            wait_for_load_balancer=self._balancer,
        )
        if facts.data.get("webhooks"):
            facts = replace(facts, endpoints=self._endpoints(facts, now_s))
        found = assess(facts, self._rules)
        more = {} if found.is_fine and not self._is_silent(facts) else self._more(facts, found, now_s)
        if not found.is_fine:
            more |= self._said(facts, ask=not is_detail)
        return assess(replace(facts, **more), self._rules) if more else found

    def _more(self, facts: Facts, found: Readiness, now_s: float) -> dict[str, Any]:
        """Ask for what tells more about an object that does not work."""
        if found.queue == "node":
            return {"nodes": self._asked(now_s, self._nodes, "nodes")}
        if facts.data.get("kind") == "PersistentVolumeClaim" and not facts.pods:
            return {"late_classes": self._asked(now_s, self._late_classes, "classes")}
        if self._is_silent(facts) or (found.reason == UNSEEN and _is_custom(facts)):
            key = (str(facts.data.get("apiVersion")), str(facts.data.get("kind")))
            answer = self._asked(now_s, lambda: self._has_status(*key), "status", *key, fresh_s=_SOON_S)
            return {"has_status": answer}
        return {}

    def _said(self, facts: Facts, *, ask: bool) -> dict[str, Any]:
        """Read the log of what crashed; of all the pods of an object that of one tells enough."""
        found = crash(facts)
        if self._logs is None or found is None:
            return {}
        lines = self._logs.of(found, ask=ask)
        return {"logs": {(found.uid, found.container): lines}} if lines else {}

    def _asked(self, now_s: float, ask: Callable[[], T], *key: str, fresh_s: float = FRESH_S) -> T | None:
        """Give an answer of the cluster, a known one for a while; None if it gives none."""
        known = self._answers.get(key)
        if known is not None and now_s - known[0] < fresh_s:
            return known[1]  # type: ignore[no-any-return]  # answers are kept under their question
        try:
            answer: T | None = ask()
        except (ForbiddenError, ObjectNotFoundError) as error:
            self.note(error)
            answer = None
        except ClusterError:  # the server is away: what is known must do
            return known[1] if known is not None else None
        self._answers[key] = (now_s, answer)
        return answer

    def note(self, error: ClusterError) -> None:
        """Remember what may not be read, once."""
        note = f"reasons may be missing: {error.message}"
        if note not in self.notes:
            self.notes.append(note)

    def _nodes(self) -> Sequence[Data]:
        return self._cluster.list("v1", "Node").items

    def _late_classes(self) -> frozenset[str]:
        items = self._cluster.list("storage.k8s.io/v1", "StorageClass").items
        late = (one for one in items if one.get("volumeBindingMode") == "WaitForFirstConsumer")
        return frozenset(str(one["metadata"]["name"]) for one in late)

    def _has_status(self, api_version: str, kind: str) -> bool | None:
        """Tell whether a kind has a status that only its controller writes; it may have come a moment ago."""
        known = self._cluster.kinds().lookup(api_version, kind)
        known = known or self._cluster.kinds(refresh=True).lookup(api_version, kind)
        return known.has_status if known is not None else None

    def _endpoints(self, facts: Facts, now_s: float) -> Mapping[tuple[str, str], bool] | None:
        def ready(service: tuple[str, str]) -> bool | None:
            return self._asked(now_s, lambda: has_endpoint(self._cluster, *service), *service, fresh_s=1.0)

        answers = {service: ready(service) for service in services_of(facts)}
        return None if None in answers.values() else {each: bool(ready) for each, ready in answers.items()}

    def _is_silent(self, facts: Facts) -> bool:
        """Tell whether only the definition of its kind can say if an object is to get a status."""
        key = key_of(facts.data)
        if facts.status or key in RULES or key in self._rules:
            return False
        return _is_custom(facts)


def _is_custom(facts: Facts) -> bool:
    return Kinds.builtin().lookup(str(facts.data["apiVersion"]), str(facts.data["kind"])) is None


def has_endpoint(cluster: Cluster, namespace: str, name: str) -> bool:
    """Tell whether a Service leads to a pod that is ready, or out of the cluster.

    Raises:
        ClusterError: the cluster cannot be asked, or does not let us look.
    """
    found = cluster.list(
        "discovery.k8s.io/v1", "EndpointSlice", namespace=namespace, labels=f"{SERVICE_LABEL}={name}"
    ).items
    endpoints = [endpoint for one in found for endpoint in one.get("endpoints") or ()]
    if any((one.get("conditions") or {}).get("ready") is not False for one in endpoints):
        return True
    service = None if found else cluster.get(ObjectRef("v1", "Service", namespace, name))
    return service is not None and service["spec"].get("type") == "ExternalName"
