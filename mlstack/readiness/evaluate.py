"""Objects of a cluster judged by the readiness rules, with all around them that tells why one fails."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, TypeVar

from mlstack.app.app import ConditionSign, FieldSign, ReadyRule, ReadyRules, Sign
from mlstack.dataclass import Record
from mlstack.errors import ODD, ClusterError, ForbiddenError, ObjectNotFoundError
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.objects import masking
from mlstack.objects.kube_object import Data, DesiredState, Kinds, KubeObject, group_of, items_of
from mlstack.objects.managed_fields import ANY, FieldChange
from mlstack.readiness import ml as ml  # enters its rules into the table, as `builtin` does
from mlstack.readiness.builtin import Crash, because, crash, services_of
from mlstack.readiness.rule import (
    NEW_RUN_RULES,
    REPLACEMENTS,
    RULES,
    UNSEEN,
    Facts,
    Readiness,
    Relatives,
    Replacement,
    condition_text,
    done,
    failed,
    key_of,
    kinds_below,
    ready,
    waiting,
)

T = TypeVar("T")

# --- logs ---

LINES = 5
PATIENCE_S = 2.0
"""How long a node may keep silent, and how long anybody waits for that altogether."""

_LONGEST = 200  # characters of a line
_MOST = 20  # crashes whose logs are read: the reasons of more look alike
_CONTROLS = r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]"


class Logs:
    """The last words of containers that crashed: asked for once, in the background, and without secrets.

    Where they cannot be read, reasons do without.
    """

    def __init__(self, cluster: Cluster, secrets: Iterable[str] = ()) -> None:
        self._cluster, self._secrets = cluster, tuple(secrets)
        self._answers: dict[Crash, parallel.PendingResult[tuple[str, ...]]] = {}
        self._is_patient, self._is_closed = True, False

    @classmethod
    def of_state(cls, cluster: Cluster, state: DesiredState) -> Logs:
        """Give one that knows the secrets of a set."""
        return cls(cluster, hidden(state.objects, state.secrets))

    def of(self, crash: Crash, *, ask: bool = True) -> Sequence[str]:
        """Give the last lines of a crashed container as far as they are known, the first time within 2 s."""
        is_new = crash not in self._answers
        if is_new:
            if not ask or self._is_closed or len(self._answers) >= _MOST:
                return ()
            # A silent node holds nobody up who wants to leave.
            self._answers[crash] = parallel.prefetch(lambda: self._read(crash))
        is_waiting = is_new and self._is_patient
        try:
            return self._answers[crash](PATIENCE_S if is_waiting else 0)
        except TimeoutError:
            self._is_patient = self._is_patient and not is_waiting
            return ()

    def _read(self, crash: Crash) -> tuple[str, ...]:
        pod = ObjectRef("v1", "Pod", crash.namespace, crash.pod)
        ask = partial(self._cluster.logs, timeout_s=PATIENCE_S, lines=LINES, most_bytes=16_384)
        try:
            text = ask(pod, crash.container, previous=crash.previous)
        except ClusterError as error:  # a node that is away, a pod that is gone: the reason is known without
            self._is_closed = self._is_closed or isinstance(error, ForbiddenError)
            return ()
        shown = masking.mask_text(re.sub(_CONTROLS, "", text), self._secrets)
        lines = [line.strip() for line in shown.splitlines() if line.strip()][-LINES:]
        return tuple(f"{line[:_LONGEST]}…" if len(line) > _LONGEST else line for line in lines)


def hidden(objects: Iterable[KubeObject], secrets: Iterable[str]) -> tuple[str, ...]:
    """Give the texts that must stand in no log: those of secret parameters and of Secrets."""
    manifests = [obj.data for obj in objects if masking.is_secret(obj.data)]
    values = (value for manifest in manifests for value in masking.values_of_secret(manifest))
    texts = (value if isinstance(value, str) else value.decode("utf-8", "replace") for value in values)
    return tuple(dict.fromkeys((*secrets, *texts)))


# --- evaluation ---

# Nodes come and go; what they have is asked for again after this time.
FRESH_S = 10.0
# A kind that was defined a moment ago is not listed at once.
_SOON_S = 1.0

MISSING = Readiness("missing", "not in the cluster")
SERVICE_LABEL = "kubernetes.io/service-name"


class ResourceStatus(Record):
    """One desired object as it is."""

    desired: KubeObject
    live: Data | None  # None if it is not there
    readiness: Readiness
    pods: tuple[tuple[Data, Readiness], ...] = ()  # by name, with what their rule says


class StatusEvaluator:
    """Judges objects of one cluster; asks it for nodes, classes and endpoints where that tells more."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        wait_for_load_balancer: bool,
        rules: ReadyRules | None = None,
        logs: Logs | None = None,
    ) -> None:
        self.relatives, self.notes, self._logs = Relatives(), list[str](), logs
        self._cluster, self._rules = cluster, rules or {}
        self._wait_for_load_balancer = wait_for_load_balancer
        self._answers: dict[tuple[str, ...], tuple[float, Any]] = {}

    def evaluate(self, desired: KubeObject, live: Data | None, *, now_s: float) -> ResourceStatus:
        """Judge one object and its pods."""
        if live is None:
            return ResourceStatus(desired=desired, live=None, readiness=MISSING)
        try:
            pods = self.relatives.pods_of(live)
            shown = () if desired.kind in ("Pod", "PersistentVolumeClaim") else pods
            readiness = self._assess(live, pods, now_s)
            judged = tuple((pod, self._assess(pod, (), now_s, is_detail=True)) for pod in shown)
            return ResourceStatus(desired=desired, live=live, readiness=readiness, pods=judged)
        except ODD:
            return ResourceStatus(desired=desired, live=live, readiness=unjudged(live))

    def note(self, error: ClusterError) -> None:
        """Remember what may not be read, once."""
        note = f"reasons may be missing: {error.message}"
        if note not in self.notes:
            self.notes.append(note)

    def _assess(
        self, data: Data, pods: Sequence[Data], now_s: float, *, is_detail: bool = False
    ) -> Readiness:
        facts = Facts(
            data=data,
            pods=pods,
            events=self.relatives.events_of([data, *pods]),
            now_s=now_s,
            wait_for_load_balancer=self._wait_for_load_balancer,
        )
        if data.get("webhooks"):
            facts = replace(facts, endpoints=self._endpoints(facts))
        readiness, key = assess(facts, self._rules), key_of(data)
        more: dict[str, Any] = {}
        is_custom = Kinds.builtin().lookup(str(data.get("apiVersion")), str(data.get("kind"))) is None
        # Only the definition of its kind can say whether it is to get a status.
        is_silent = is_custom and not facts.status and key not in RULES and key not in self._rules
        if readiness.queue == "node":
            more["nodes"] = self._ask(now_s, lambda: self._cluster.list("v1", "Node").items, "nodes")
        elif not readiness.is_fine and key == "PersistentVolumeClaim" and not pods:
            more["late_classes"] = self._ask(now_s, self._late_classes, "classes")
        elif is_silent or (readiness.reason == UNSEEN and is_custom):
            kind = (str(data.get("apiVersion")), str(data.get("kind")))
            more["has_status"] = self._ask(now_s, lambda: self._has_status(*kind), *kind, fresh_s=_SOON_S)
        crashed = crash(facts) if self._logs is not None and not readiness.is_fine else None
        # Of all the pods of an object the log of one tells enough.
        if self._logs is not None and crashed and (lines := self._logs.of(crashed, ask=not is_detail)):
            more["logs"] = {(crashed.uid, crashed.container): lines}
        return assess(replace(facts, **more), self._rules) if more else readiness

    def _ask(self, now_s: float, ask: Callable[[], T], *key: str, fresh_s: float = FRESH_S) -> T | None:
        """Give an answer of the cluster, a known one for a while; None if it gives none."""
        asked_s, answer = self._answers.get(key, (-inf, None))
        if now_s - asked_s >= fresh_s:
            try:
                self._answers[key] = (now_s, ask())
            except (ForbiddenError, ObjectNotFoundError) as error:
                self.note(error)
                self._answers[key] = (now_s, None)
            except ClusterError:  # the server is away: what is known must do
                return answer  # type: ignore[no-any-return]
        return self._answers[key][1]  # type: ignore[no-any-return]  # answers are kept under their question

    def _late_classes(self) -> frozenset[str]:
        classes = self._cluster.list("storage.k8s.io/v1", "StorageClass").items
        late = [item for item in classes if item.get("volumeBindingMode") == "WaitForFirstConsumer"]
        return frozenset(str(item["metadata"]["name"]) for item in late)

    def _has_status(self, api_version: str, kind: str) -> bool | None:
        """Tell whether a kind has a status that only its controller writes; it may have come a moment ago."""
        served = self._cluster.kinds().lookup(api_version, kind)
        served = served or self._cluster.kinds(refresh=True).lookup(api_version, kind)
        return served.has_status if served is not None else None

    def _endpoints(self, facts: Facts) -> Mapping[tuple[str, str], bool] | None:
        answers = {}
        for service in services_of(facts):
            ask = partial(has_endpoint, self._cluster, *service)
            if (answer := self._ask(facts.now_s, ask, *service, fresh_s=_SOON_S)) is None:
                return None
            answers[service] = answer
        return answers


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
    desired: Sequence[KubeObject],
    cluster: Cluster,
    *,
    now_s: float,
    wait_for_load_balancer: bool,
    labels: str = "",
    rules: ReadyRules | None = None,
    logs: Logs | None = None,
) -> tuple[tuple[ResourceStatus, ...], tuple[str, ...]]:
    """Look at every desired object and judge it; give what was seen, and remarks on what could not be read.

    Events and nodes are read only if something does not work: they are many, and only tell why. `labels` are
    what the objects carry if they are ours, empty where that is not known.
    """
    evaluator = StatusEvaluator(
        cluster, wait_for_load_balancer=wait_for_load_balancer, rules=rules, logs=logs
    )
    counts = Counter((obj.api_version, obj.kind, obj.namespace) for obj in desired)
    many = sorted(key for key, count in counts.items() if labels and count >= parallel.LIST_FROM)
    listed = {KubeObject(data=item).identity: item for item in _read(cluster, many, labels=labels)}

    def look(obj: KubeObject) -> Data | None:  # what is not among those that are many
        return listed.get(obj.identity) or cluster.get(ObjectRef.of(obj.data))

    live = parallel.whole(parallel.run(look, desired))
    near: defaultdict[str, list[Data]] = defaultdict(list)
    for data in filter(None, live):
        near[str(data["metadata"].get("namespace") or "")].append(data)
    sources = [(*kind, name) for name in sorted(near) if name for kind in kinds_below(near[name])]
    for item in _read(cluster, sources, evaluator):
        evaluator.relatives.put(item)
    pairs = list(zip(desired, live, strict=True))
    statuses = tuple(evaluator.evaluate(obj, data, now_s=now_s) for obj, data in pairs)
    unready = [status for status in statuses if status.live and not status.readiness.is_fine]
    if troubled := {status.desired.namespace for status in unready}:
        for item in _read(cluster, [("v1", "Event", name) for name in sorted(troubled) if name], evaluator):
            evaluator.relatives.put(item)
        statuses = tuple(evaluator.evaluate(obj, data, now_s=now_s) for obj, data in pairs)
    return statuses, tuple(evaluator.notes)


def _read(
    cluster: Cluster,
    sources: Sequence[tuple[str, str, str]],
    evaluator: StatusEvaluator | None = None,
    labels: str = "",
) -> list[Data]:
    """List kinds, a request a kind and namespace; the evaluator notes what may not be read."""

    def read(source: tuple[str, str, str]) -> Sequence[Data]:
        try:
            return cluster.list(source[0], source[1], namespace=source[2] or None, labels=labels).items
        except (ForbiddenError, ObjectNotFoundError) as error:  # a kind that is not there has no objects
            if evaluator is not None and isinstance(error, ForbiddenError):
                evaluator.note(error)
            return ()

    return [item for items in parallel.whole(parallel.run(read, sources)) for item in items]


# --- whether one object works: by the rule of the app, what holds for all kinds, or the rule of its kind ---

# A controller that is there writes a first status within this time.
STATUS_GRACE_S = 10.0

# Nobody is going to say of such an object that it works.
NO_STATUS = "its kind has no status to wait for"

# What every kind that has these fields gives them: an object of another form is not judged by its rule.
_FIELDS: Mapping[type, str] = {
    Mapping: "spec status spec.template spec.template.spec spec.selector involvedObject status.loadBalancer"
    " status.replicaStatuses",
    list: "status.conditions status.containerStatuses status.initContainerStatuses webhooks endpoints"
    " status.loadBalancer.ingress spec.containers spec.initContainers spec.volumes spec.ports spec.taints"
    " spec.tolerations spec.versions",
    int: "spec.replicas spec.completions spec.parallelism status.replicas status.readyReplicas"
    " status.updatedReplicas status.availableReplicas status.succeeded status.failed status.active"
    " status.desiredReplicas",
    str: "status.phase status.reason status.message spec.nodeName spec.type",
}
_TYPES = {path: kind for kind, paths in _FIELDS.items() for path in paths.split()}


def assess(facts: Facts, rules: ReadyRules | None = None) -> Readiness:
    """Say whether an object works, and if not why.

    First match wins: it is being deleted; its newest version was not looked at yet; the app's rule for its
    kind; a condition Reconciling or Stalled; the built-in rule of its kind; a condition Ready; else it is
    ready.

    An object of another form than its API promises is not known to work. `rules` are the app's, by kind.
    """
    try:
        if facts.metadata.get("deletionTimestamp"):
            left = ", ".join(facts.metadata.get("finalizers") or ())
            return Readiness("terminating", f"waits for finalizers: {left}" if left else "")
        if not _is_observed(facts):
            return waiting(UNSEEN)
        if own := (rules or {}).get(key_of(facts.data)):
            return _by_app_rule(own, facts)
        for name, state in (("Reconciling", waiting), ("Stalled", failed)):
            if facts.has(name):
                return state(facts.why(name))
        builtin = RULES.get(key_of(facts.data))
        return builtin(facts) if builtin is not None else _unknown_kind(facts)
    except ODD:
        return unjudged(facts.data, *facts.pods, *facts.events, *(facts.nodes or ()))


def unjudged(*objects: object) -> Readiness:
    """Say that an object cannot be judged, and what is odd about it or what belongs to it."""
    fields = (field for obj in objects if (field := _odd_field(obj)))
    return waiting(f"cannot be judged: {next(fields, 'it has a form that its kind never has')}")


def _odd_field(obj: object) -> str:
    """Name the first field of another type than every kind gives it, nothing if there is none."""
    if not isinstance(obj, Mapping):
        return "it is no map"
    for path, expected in _TYPES.items():
        value: object = obj
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is None:
            continue
        if not isinstance(value, expected) or isinstance(value, bool):
            return f"{path} is no {({Mapping: 'map', list: 'list', int: 'number', str: 'text'})[expected]}"
        if isinstance(value, list) and not all(isinstance(item, Mapping) for item in value):
            return f"{path} is no list of maps"
    return ""


def _is_observed(facts: Facts) -> bool:
    """Tell whether nothing says that the controller has not looked at the newest version."""
    generation = facts.metadata.get("generation")
    # Where the status is no subresource, writing it makes a new generation that nobody will have observed.
    if not isinstance(generation, int) or facts.has_status is False:
        return True
    if _generation(facts.status) not in (None, generation):
        return False
    # Conditions that tell for which generation they were found, in APIs without an `observedGeneration`.
    dated = [_generation(facts.condition(name)) for name in ("Ready", "Programmed", "Accepted", "Available")]
    return not any(observed is not None and 0 < observed < generation for observed in dated)


def _generation(part: Mapping[str, Any]) -> int | None:
    """Read a generation; some controllers write it as text, others write a hash, which says nothing."""
    observed = part.get("observedGeneration")
    if isinstance(observed, str) and observed.isdigit():
        return int(observed)
    return observed if isinstance(observed, int) and not isinstance(observed, bool) else None


def _unknown_kind(facts: Facts) -> Readiness:
    condition = facts.condition("Ready")
    if condition:
        is_ready = condition.get("status") == "True"
        return ready() if is_ready else because(facts, condition_text(condition))
    # Somebody is to write a status if the definition says so, or nothing speaks against it.
    group, has_controller = group_of(str(facts.data.get("apiVersion", ""))), facts.has_status
    if has_controller is None:
        has_controller = "." in group and not group.endswith(".k8s.io")
    if not facts.status and has_controller:
        # Just created and ready at once would be a lie: its controller has had no time to say anything.
        silent = "no controller has written a status"
        return waiting(f"{silent} yet") if facts.age_s < STATUS_GRACE_S else ready(silent)
    return ready(NO_STATUS if facts.has_status is False and not facts.status else "")


# --- by a rule of the app ---


def _by_app_rule(rule: ReadyRule, facts: Facts) -> Readiness:
    """Say whether an object works: failed before done before ready, and everything else waits."""
    generation = facts.metadata.get("generation")
    if rule.observed_generation and isinstance(generation, int) and facts.has_status is not False:
        # Some controllers say in conditions alone of which generation the status is.
        signs = (rule.ready, rule.failed, rule.done)
        named = (facts.condition(sign.condition) for sign in signs if isinstance(sign, ConditionSign))
        observed = [number for number in map(_generation, (facts.status, *named)) if number]
        if not observed or any(number != generation for number in observed):
            return waiting(UNSEEN)
    if rule.failed is not None and _holds(rule.failed, facts):
        return failed(_shown(rule.failed, facts))
    if rule.done is not None and _holds(rule.done, facts):
        return done()
    return ready() if _holds(rule.ready, facts) else waiting(_shown(rule.ready, facts))


def _holds(sign: Sign, facts: Facts) -> bool:
    if isinstance(sign, ConditionSign):
        live = facts.condition(sign.condition)
        return live.get("status") == sign.status and sign.reason in ("", live.get("reason"))
    values = [(isinstance(value, bool), value) for value in _values(facts.data, sign.path.steps)]
    return any((isinstance(expected, bool), expected) in values for expected in sign.values)


def _shown(sign: Sign, facts: Facts) -> str:
    if isinstance(sign, FieldSign):
        values = list(_values(facts.data, sign.path.steps))
        texts = [value if isinstance(value, str) and value else json.dumps(value) for value in values]
        text = f"`{sign.path.text}` is {', '.join(texts)}"
        message = condition_text(facts.status)
        return f"has no `{sign.path.text}` yet" if not texts else f"{text}: {message}" if message else text
    live = facts.condition(sign.condition)
    if not live:
        return f"has no condition `{sign.condition}` yet"
    return condition_text(live) or f"condition `{sign.condition}` is {live.get('status')}"


def _values(data: Any, steps: Sequence[str]) -> Iterator[Any]:
    """Give what stands at a path; an item of a list is named by its place or the name people know it by."""
    if not steps:
        yield data
        return
    for place, part in items_of(data):
        named = isinstance(data, list) and isinstance(part, Mapping)
        names = [part.get(key) for key in ("name", "type", "key")] if named else []
        if steps[0] in (ANY, str(place), *names):
            yield from _values(part, steps[1:])


# --- what may change in place ---


def needs_new_run(live: Mapping[str, Any], changed: Sequence[FieldChange]) -> str | None:
    """Say why an object has to be made anew to take a change; None if it can change in place."""
    rule = NEW_RUN_RULES.get(key_of(live))
    return rule(live, changed) if rule else None


def replacement_of(data: Mapping[str, Any]) -> Replacement:
    """Give what becomes of an object if it cannot change in place."""
    return REPLACEMENTS.get(key_of(data)) or Replacement()
