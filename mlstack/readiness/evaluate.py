"""Objects of a cluster judged by the readiness rules, with all around them that tells why one fails."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event, Thread
from typing import Any, TypeVar

from mlstack.app.app import ReadyRules
from mlstack.errors import ClusterError, ForbiddenError, ObjectNotFoundError
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.objects import masking
from mlstack.objects.kinds import Kinds
from mlstack.objects.kube_object import DesiredState, Identity, KubeObject
from mlstack.readiness.assess import ODD, assess, unjudged
from mlstack.readiness.platform import services_of
from mlstack.readiness.pods import Crash, crash
from mlstack.readiness.relatives import Data, Relatives, kinds_below
from mlstack.readiness.rule import RULES, UNSEEN, Facts, Readiness, key_of

# --- logs ---

LINES = 5
PATIENCE_S = 2.0
"""How long a node may keep silent, and how long anybody waits for that altogether."""

_LINE_CHARACTERS = 200
_MOST_BYTES = 16_384
_MOST = 20  # crashes whose logs are read: the reasons of more look alike
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass
class _Answer:
    came: Event = field(default_factory=Event)
    lines: tuple[str, ...] = ()


class Logs:
    """The last words of containers that crashed: asked for once, in the background, and without secrets.

    Where they cannot be read, reasons do without.
    """

    def __init__(self, cluster: Cluster, secrets: Iterable[str] = ()) -> None:
        self._cluster, self._secrets = cluster, tuple(secrets)
        self._answers: dict[Crash, _Answer] = {}
        self._is_patient, self._is_closed = True, False

    @classmethod
    def of_state(cls, cluster: Cluster, state: DesiredState) -> Logs:
        """Give one that knows the secrets of a set."""
        return cls(cluster, hidden(state.objects, state.secrets))

    def of(self, crash: Crash, *, ask: bool = True) -> Sequence[str]:
        """Give the last lines of a crashed container as far as they are known, the first time within 2 s."""
        answer = self._answers.get(crash)
        if answer is None:
            if not ask or self._is_closed or len(self._answers) >= _MOST:
                return ()
            answer = self._answers[crash] = _Answer()
            # A silent node holds nobody up who wants to leave.
            Thread(target=self._read, args=(crash, answer), name="mlstack-logs", daemon=True).start()
            if self._is_patient:
                self._is_patient = answer.came.wait(PATIENCE_S)
        return answer.lines

    def _read(self, crash: Crash, answer: _Answer) -> None:
        pod = ObjectRef("v1", "Pod", crash.namespace, crash.pod)
        try:
            text = self._cluster.logs(
                pod,
                crash.container,
                previous=crash.previous,
                lines=LINES,
                most_bytes=_MOST_BYTES,
                timeout_s=PATIENCE_S,
            )
            answer.lines = tuple(self._tidied(text))
        except ForbiddenError:
            self._is_closed = True
        except ClusterError:  # a node that is away, a pod that is gone: the reason is known without
            pass
        finally:
            answer.came.set()

    def _tidied(self, text: str) -> Iterable[str]:
        shown = masking.mask_text(_CONTROLS.sub("", text), self._secrets)
        lines = [line.strip() for line in shown.splitlines() if line.strip()]
        for line in lines[-LINES:]:
            yield line if len(line) <= _LINE_CHARACTERS else f"{line[:_LINE_CHARACTERS]}…"


def hidden(objects: Iterable[KubeObject], secrets: Iterable[str]) -> tuple[str, ...]:
    """Give the texts that must stand in no log: those of secret parameters and of Secrets."""
    held = (
        value
        for wanted in objects
        if masking.is_secret(wanted.data)
        for value in masking.values_of_secret(wanted.data)
    )
    texts = (value if isinstance(value, str) else value.decode("utf-8", "replace") for value in held)
    return tuple(dict.fromkeys((*secrets, *texts)))


# --- evaluation ---

T = TypeVar("T")

# Nodes come and go; what they have is asked for again after this time.
FRESH_S = 10.0
# A kind that was defined a moment ago is not listed at once.
_SOON_S = 1.0

MISSING = Readiness(state="missing", reason="not applied")
SERVICE_LABEL = "kubernetes.io/service-name"


@dataclass(frozen=True, kw_only=True)
class ResourceStatus:
    """One wanted object as it is."""

    wanted: KubeObject
    live: Data | None  # None if it is not there
    readiness: Readiness
    pods: tuple[tuple[Data, Readiness], ...] = ()  # by name, with what their rule says


class StatusEvaluator:
    """Judges objects of one cluster; asks it for nodes, classes and endpoints where that tells more."""

    def __init__(
        self,
        cluster: Cluster,
        relatives: Relatives,
        *,
        wait_for_load_balancer: bool,
        rules: ReadyRules | None = None,
        logs: Logs | None = None,
    ) -> None:
        self.relatives = relatives
        self.notes: list[str] = []
        self._logs = logs
        self._cluster, self._balancer, self._rules = cluster, wait_for_load_balancer, rules or {}
        self._answers: dict[tuple[str, ...], tuple[float, Any]] = {}

    def evaluate(self, wanted: KubeObject, live: Data | None, *, now_s: float) -> ResourceStatus:
        """Judge one object and its pods."""
        if live is None:
            return ResourceStatus(wanted=wanted, live=None, readiness=MISSING)
        try:
            pods = self.relatives.pods_of(live)
            shown = () if wanted.kind in ("Pod", "PersistentVolumeClaim") else pods
            return ResourceStatus(
                wanted=wanted,
                live=live,
                readiness=self._assess(live, pods, now_s),
                pods=tuple((pod, self._assess(pod, (), now_s, is_detail=True)) for pod in shown),
            )
        except ODD:
            return ResourceStatus(wanted=wanted, live=live, readiness=unjudged(live))

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
        readiness = assess(facts, self._rules)
        more = {} if readiness.is_fine and not self._is_silent(facts) else self._more(facts, readiness, now_s)
        if not readiness.is_fine:
            more |= self._said(facts, ask=not is_detail)
        return assess(replace(facts, **more), self._rules) if more else readiness

    def _more(self, facts: Facts, readiness: Readiness, now_s: float) -> dict[str, Any]:
        """Ask for what tells more about an object that does not work."""
        if readiness.queue == "node":
            return {"nodes": self._asked(now_s, self._nodes, "nodes")}
        if facts.data.get("kind") == "PersistentVolumeClaim" and not facts.pods:
            return {"late_classes": self._asked(now_s, self._late_classes, "classes")}
        if self._is_silent(facts) or (readiness.reason == UNSEEN and _is_custom(facts)):
            key = (str(facts.data.get("apiVersion")), str(facts.data.get("kind")))
            answer = self._asked(now_s, lambda: self._has_status(*key), "status", *key, fresh_s=_SOON_S)
            return {"has_status": answer}
        return {}

    def _said(self, facts: Facts, *, ask: bool) -> dict[str, Any]:
        """Read the log of what crashed; of all the pods of an object that of one tells enough."""
        crashed = crash(facts)
        if self._logs is None or crashed is None:
            return {}
        lines = self._logs.of(crashed, ask=ask)
        return {"logs": {(crashed.uid, crashed.container): lines}} if lines else {}

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
        late = (
            storage_class
            for storage_class in items
            if storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
        )
        return frozenset(str(storage_class["metadata"]["name"]) for storage_class in late)

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
    slices = cluster.list(
        "discovery.k8s.io/v1", "EndpointSlice", namespace=namespace, labels=f"{SERVICE_LABEL}={name}"
    ).items
    endpoints = [endpoint for item in slices for endpoint in item.get("endpoints") or ()]
    if any((item.get("conditions") or {}).get("ready") is not False for item in endpoints):
        return True
    service = None if slices else cluster.get(ObjectRef("v1", "Service", namespace, name))
    return service is not None and service["spec"].get("type") == "ExternalName"


# --- one look at everything ---


def inspect(
    wanted: Sequence[KubeObject],
    cluster: Cluster,
    *,
    now_s: float,
    wait_for_load_balancer: bool,
    labels: str = "",
    rules: ReadyRules | None = None,
    logs: Logs | None = None,
) -> tuple[tuple[ResourceStatus, ...], tuple[str, ...]]:
    """Look at every wanted object and judge it; give what was seen, and remarks on what could not be read.

    Events and nodes are read only if something does not work: they are many, and only tell why.

    Args:
        wanted: the objects, as the files bring them.
        cluster: where to look.
        now_s: the time in seconds since 1970.
        wait_for_load_balancer: whether a Service of type LoadBalancer needs its address.
        labels: what the objects carry if they are ours; empty where that is not known.
        rules: the app's own readiness rules.
        logs: reads the logs of what crashed; None reads none.
    """
    evaluator = StatusEvaluator(
        cluster, Relatives(), wait_for_load_balancer=wait_for_load_balancer, rules=rules, logs=logs
    )
    listed = _listed(wanted, cluster, labels) if labels else {}

    def look(wanted_object: KubeObject) -> Data | None:
        known = listed.get(wanted_object.identity)
        return cluster.get(ObjectRef.of(wanted_object.data)) if known is None else known

    live = parallel.whole(parallel.run(look, wanted))
    pairs = list(zip(wanted, live, strict=True))
    _read_pods(cluster, [data for data in live if data is not None], evaluator)
    seen = [evaluator.evaluate(wanted_object, data, now_s=now_s) for wanted_object, data in pairs]
    troubled = {status.wanted.namespace for status in seen if not status.readiness.is_fine and status.live}
    if not troubled:
        return tuple(seen), tuple(evaluator.notes)
    _read(cluster, [("v1", "Event", name) for name in sorted(troubled) if name], evaluator)
    again = tuple(evaluator.evaluate(wanted_object, data, now_s=now_s) for wanted_object, data in pairs)
    return again, tuple(evaluator.notes)


def _listed(wanted: Sequence[KubeObject], cluster: Cluster, labels: str) -> Mapping[Identity, Data]:
    """List kinds that there is much of; what is not among them is asked for by name."""
    counts = Counter((answer.api_version, answer.kind, answer.namespace) for answer in wanted)
    many = sorted(key for key, count in counts.items() if count >= parallel.LIST_FROM)

    def read(key: tuple[str, str, str]) -> Sequence[Data]:
        try:
            return cluster.list(key[0], key[1], namespace=key[2] or None, labels=labels).items
        except (ForbiddenError, ObjectNotFoundError):  # whoever may not list asks for each object
            return ()

    items = [item for answer in parallel.whole(parallel.run(read, many)) for item in answer]
    return {KubeObject(data=item).identity: item for item in items}


def _read_pods(cluster: Cluster, live: Iterable[Data], evaluator: StatusEvaluator) -> None:
    """Read pods and what owns them, a request a kind and namespace."""
    below: dict[str, list[Data]] = {}
    for data in live:
        namespace = str(data["metadata"].get("namespace") or "")
        if namespace:
            below.setdefault(namespace, []).append(data)
    wanted = [(*kind, name) for name, objects in sorted(below.items()) for kind in kinds_below(objects)]
    _read(cluster, wanted, evaluator)


def _read(cluster: Cluster, wanted: Sequence[tuple[str, str, str]], evaluator: StatusEvaluator) -> None:
    def read(kind_and_place: tuple[str, str, str]) -> Sequence[Data]:
        api_version, kind, namespace = kind_and_place
        try:
            return cluster.list(api_version, kind, namespace=namespace).items
        except ForbiddenError as error:
            evaluator.note(error)
        except ObjectNotFoundError:  # a kind that is not there has no objects
            pass
        return ()

    for items in parallel.whole(parallel.run(read, wanted)):
        for item in items:
            evaluator.relatives.put(item)
