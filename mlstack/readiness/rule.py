"""The table of readiness rules, what a rule looks at and what it answers.

A rule is a function of values: the live object, its pods, its events and the time as a number. The order
of evaluation and most rules are those of kstatus (kubernetes-sigs/cli-utils), with the holes closed that its
users report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from mlstack import clock, names
from mlstack.app.prototype import Need
from mlstack.dataclass import Record, dataclass
from mlstack.errors import ConfigError
from mlstack.names import Table
from mlstack.objects.kube_object import Data, Kinds, KubeObject, group_of
from mlstack.objects.managed_fields import FieldChange

State = Literal["ready", "waiting", "failed", "done", "suspended", "terminating", "missing"]

Queue = Literal["", "node", "new-node", "quota"]

UNSEEN = "its controller has not seen the newest version yet"


@dataclass(frozen=True)
class Readiness:
    """What a rule says of an object."""

    state: State  # `done` is work that has ended well, `suspended` work that is held on purpose
    reason: str = ""  # what it waits for or why it failed; may be a remark when it is ready
    resource: str = ""  # the extended resource that pods wait for (`nvidia.com/gpu`), if one does
    # What pods only queue for, nothing being wrong with them; `new-node` is one an autoscaler is adding.
    queue: Queue = ""

    @property
    def is_fine(self) -> bool:
        """Tell whether nothing has to happen any more."""
        return self.state in ("ready", "done", "suspended")


ready = partial(Readiness, "ready")
done = partial(Readiness, "done")
failed = partial(Readiness, "failed")
waiting = partial(Readiness, "waiting")
SUSPENDED = Readiness("suspended", "suspended")


class Facts(Record):
    """Everything a rule may look at."""

    data: Mapping[str, Any]  # the live object
    pods: Sequence[Mapping[str, Any]] = ()  # that belong to it; of a claim those that mount it
    events: Sequence[Mapping[str, Any]] = ()  # of the object and of its pods, oldest first
    nodes: Sequence[Mapping[str, Any]] | None = None  # all of them, None if they may not be read
    now_s: float = 0.0  # since 1970
    wait_for_load_balancer: bool = False  # whether a Service of type LoadBalancer needs its address
    late_classes: Set[str] | None = None  # storage classes that bind a claim when its first pod starts
    endpoints: Mapping[tuple[str, str], bool] | None = None  # by a Service's namespace and name: any ready
    has_status: bool | None = None  # whether the kind has one that only its controller writes
    # Last lines of containers that crashed, by the UID of their pod and their name.
    logs: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)

    @property
    def spec(self) -> Mapping[str, Any]:
        """Give the specification."""
        return self.data.get("spec") or {}

    @property
    def status(self) -> Mapping[str, Any]:
        """Give the status, empty if no controller has written one."""
        return self.data.get("status") or {}

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Give the metadata."""
        return self.data.get("metadata") or {}

    @property
    def age_s(self) -> float:
        """Give the object's age in seconds."""
        return age_s(self.data, self.now_s)

    def text(self, *paths: str) -> str:
        """Give the first text that the status has at one of these paths, empty without."""
        for path in paths:
            value: Any = self.status
            for key in path.split("."):
                value = (value or {}).get(key)
            if value:
                return str(value)
        return ""

    def condition(self, name: str) -> Mapping[str, Any]:
        """Give the condition of that type, empty if there is none."""
        return condition(self.data, name)

    def has(self, name: str) -> bool:
        """Tell whether a condition is True."""
        return self.condition(name).get("status") == "True"

    def why(self, name: str) -> str:
        """Give the message of a condition, else its reason."""
        return condition_text(self.condition(name))

    def about(self, obj: Mapping[str, Any] | None = None) -> list[Mapping[str, Any]]:
        """Give the events about the object itself or one of its pods, newest last."""
        uid = ((self.data if obj is None else obj).get("metadata") or {}).get("uid")
        return [event for event in self.events if (event.get("involvedObject") or {}).get("uid") == uid]

    def warnings(self, obj: Mapping[str, Any] | None = None) -> list[Mapping[str, Any]]:
        """Give those of them that warn."""
        return [event for event in self.about(obj) if event.get("type") == "Warning"]


Rule = Callable[[Facts], Readiness]

RULES: Table[Rule] = Table("readiness rule")
rule = RULES.register

RUN_TO_AN_END: set[str] = set()
"""Kinds whose objects run and end, and may queue for hours before: nobody waits for them unasked."""


def job_rule(*kinds: str) -> Callable[[Rule], Rule]:
    """Register the rule of kinds that run to an end."""
    RUN_TO_AN_END.update(kinds)
    return rule(*kinds)


class Replacement(Record):
    """What becomes of objects of a kind that cannot change in place."""

    never: str = ""  # what would be lost if one were made anew: it never is
    unasked: str = ""  # why one is made anew without being asked for
    mutable: tuple[str, ...] = ()  # fields that are not meant where the server names `spec` alone
    shared: bool = False  # several apps may bring the same one, as long as they agree on it


REPLACEMENTS: Table[Replacement] = Table("replacement of objects")

# Given a live object and what is to change in it: why that needs a new run, None if it changes in place.
NewRunRule = Callable[[Mapping[str, Any], Sequence[FieldChange]], str | None]

NEW_RUN_RULES: Table[NewRunRule] = Table("rule of what needs a new run")
new_run_rule = NEW_RUN_RULES.register


def key_of(data: Mapping[str, Any]) -> str:
    """Give the name under which the rule of an object's kind is registered: `apps/Deployment`, `Pod`."""
    group, kind = group_of(str(data.get("apiVersion", ""))), str(data.get("kind", ""))
    return f"{group}/{kind}" if group else kind


def condition(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Give the condition of that type of any object, empty if there is none; TypeError if odd."""
    conditions = (data.get("status") or {}).get("conditions") or ()
    if isinstance(conditions, str | Mapping) or not all(isinstance(entry, Mapping) for entry in conditions):
        raise TypeError("conditions")
    return next((entry for entry in conditions if entry.get("type") == name), {})


def condition_text(entry: Mapping[str, Any]) -> str:
    """Give a condition's message, else its reason."""
    return str(entry.get("message") or entry.get("reason") or "")


def age_s(data: Mapping[str, Any], now_s: float) -> float:
    """Give the age of an object in seconds; 0 if it does not say when it was made."""
    created = (data.get("metadata") or {}).get("creationTimestamp")
    return now_s - time_s(created) if created else 0.0


def time_s(text: str) -> float:
    """Give a time that the API server wrote in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def number(values: Mapping[str, Any], name: str, default: int = 0) -> int:
    """Give a count of a status or specification, the default if it is not there."""
    value = values.get(name)
    return value if isinstance(value, int) else default


# --- how long an object is waited for, and what becomes of a run when it does not get ready ---

WaitPolicy = Literal["required", "optional", "none"]
WaitVerdict = Literal["fine", "wait", "left", "failed", "late"]

WAIT_ANNOTATION = "mlstack.dev/wait"
TIMEOUT_ANNOTATION = "mlstack.dev/timeout"

DEFAULT_TIMEOUT_S = 300.0
# What runs to an end may queue for hours; so long it has to say what it waits for.
BRIEF_S = 10.0
# The same for what this run has not touched: its reason is there already.
UNTOUCHED_S = 2.0
# Without a sign of a new node, nobody is going to make room for a pod in the next minutes either.
NO_NODE_S = 120.0
# A workload that was mended a moment ago still shows the faults of its old pods.
SURE_S = 3.0


class ReadinessState(Record):
    """How an object stood when its wait ended."""

    readiness: Readiness
    verdict: WaitVerdict  # what that meant for the run

    @property
    def is_good(self) -> bool:
        """Tell whether the run may end well with this."""
        return self.verdict in ("fine", "left")


class Terms(Record):
    """The terms on which one object is waited for."""

    policy: WaitPolicy = "required"  # fail the run, `optional` ones are told of, `none` are not looked at
    brief: bool = False  # it may go on by itself: it is waited for only until its reason can be told
    timeout_s: float = DEFAULT_TIMEOUT_S  # until it is late
    no_node_s: float = NO_NODE_S  # that its pods may wait for a node before it is late
    brief_s: float = BRIEF_S  # after which a brief wait ends

    @property
    def untouched(self) -> Terms:
        """Give the terms for an object that this run has not written."""
        return replace(self, brief_s=min(self.brief_s, UNTOUCHED_S))

    def verdict(self, readiness: Readiness, *, waited_s: float, held_s: float = 0.0) -> WaitVerdict:
        """Decide what a state means for the run.

        Args:
            readiness: what the rule of the object's kind says now.
            waited_s: seconds since the wait began.
            held_s: seconds for which the object has been in this state, and queueing for the same thing.
        """
        if self.policy == "none" or readiness.is_fine:
            return "fine"
        if readiness.state in ("failed", "missing"):
            settled: WaitVerdict = "left" if self.policy == "optional" else "failed"
            return settled if held_s >= SURE_S else "wait"
        if self.brief:
            return "left" if waited_s >= min(self.brief_s, self.timeout_s) else "wait"
        lost = readiness.queue == "node" and held_s >= self.no_node_s
        return "late" if waited_s >= self.timeout_s or lost else "wait"


def terms_of(
    desired: KubeObject,
    *,
    timeout_s: float | None = None,
    component_s: Mapping[str, float] | None = None,
    wait_for_jobs: bool = False,
) -> Terms:
    """Give the terms of an object: its annotation before its component's timeout, that of the run above all.

    A timeout that somebody chose holds for pods without a node as well; `timeout_s`, that of the run, bounds
    what the files say. With `wait_for_jobs` what runs to an end is waited for until it runs.

    Raises:
        ConfigError: an annotation says something else than a policy or a duration.
    """
    annotations, where = desired.annotations, str(desired.source) if desired.source else None
    text = annotations.get(WAIT_ANNOTATION, "required")
    policy: WaitPolicy | None = next((policy for policy in get_args(WaitPolicy) if policy == text), None)
    if policy is None:
        message = f"`{desired.identity}`: annotation `{WAIT_ANNOTATION}` is `{text}`"
        raise ConfigError(message, where=where, hint=f"write one of {', '.join(get_args(WaitPolicy))}")
    chosen_s = (component_s or {}).get(desired.component)
    if TIMEOUT_ANNOTATION in annotations:
        try:
            chosen_s = clock.seconds(str(annotations[TIMEOUT_ANNOTATION]))
        except ValueError as error:
            message = f"`{desired.identity}`: annotation `{TIMEOUT_ANNOTATION}`: {error}"
            raise ConfigError(message, where=where) from error
    if timeout_s is not None:
        chosen_s = timeout_s if chosen_s is None else min(chosen_s, timeout_s)
    is_job = (
        key_of(desired.data) in RUN_TO_AN_END and not wait_for_jobs and WAIT_ANNOTATION not in annotations
    )
    return Terms(
        policy=policy,
        brief=policy == "optional" or is_job,
        timeout_s=DEFAULT_TIMEOUT_S if chosen_s is None else chosen_s,
        no_node_s=NO_NODE_S if chosen_s is None else chosen_s,
    )


# --- who serves which custom kinds, and whether that operator looks at an object at all ---

# After this time without a sign of life the operator is most likely not there.
UNSEEN_S = 10.0


class Operator(Record):
    """A program that works on objects of custom kinds."""

    name: str  # as people call it
    project: str = ""  # whose manifests install it and its definitions (`kubeflow/katib` on GitHub)
    prototype: str = ""  # the bundled one that brings it, empty if none does
    job_kind: str = ""  # what that prototype's parameter `jobKinds` has to name
    instead: str = ""  # the `apiVersion`, or that and the kind, that it serves today instead


_BUNDLED = {"training operator": "kubeflow-core", "elastic controller": "elastic-controller"}
# What the prototype `kubeflow-core` can bring of the training operator's kinds: not MPIJob.
_JOB_KINDS = frozenset({"TFJob", "PyTorchJob", "XGBoostJob", "JAXJob", "PaddleJob"})


class _Operators(NamedTuple):
    """What `operators.txt` tells, by kind or group."""

    served: dict[str, tuple[str, str]]  # name and project
    today: dict[str, str]  # what is served in the place of an old version or kind
    retired: dict[str, str]  # why nobody serves it


@cache
def _operators() -> _Operators:
    table = _Operators({}, {}, {})
    for line in Path(__file__).with_name("operators.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            name, text, keys = (part.strip() for part in line.split("|"))
            for key in keys.split():
                if name in ("today", "retired"):
                    getattr(table, name)[key] = text
                else:
                    table.served[key] = (name, text)
    return table


def operator_of(api_version: str, kind: str) -> Operator | None:
    """Give the operator that serves a kind, None if it is not known."""
    table, keys = _operators(), _keys(api_version, kind)
    name, project = next((table.served[key] for key in keys if key in table.served), ("", ""))
    if not name:
        return None
    today = next((table.today[key] for key in keys if key in table.today), "")
    is_bundled = name in _BUNDLED and (kind in _JOB_KINDS or name != "training operator")
    return Operator(
        name=name,
        project=project,
        prototype=_BUNDLED[name] if is_bundled else "",
        job_kind=kind.lower() if kind in _JOB_KINDS else "",
        instead="" if today == api_version else today,
    )


def retired(api_version: str, kind: str) -> str:
    """Say why nobody serves a kind any more; empty if somebody does, or that is not known."""
    reasons = _operators().retired
    return next((reasons[key] for key in _keys(api_version, kind) if key in reasons), "")


def likely_kind(api_version: str, kind: str) -> str:
    """Give the known kind of a group that is spelt nearly so; empty if there is none."""
    group = group_of(api_version)
    known = [key.rpartition("/")[2] for key in _operators().served if key.startswith(f"{group}/")]
    return "" if kind in known else names.nearest(kind, known) or ""


def how_to_install(operator: Operator, environment: str) -> str:
    """Say how an operator and its definitions come into a cluster."""
    if not operator.prototype:
        return f"install it by the manifests of github.com/{operator.project}"
    params = {"jobKinds": operator.job_kind} if operator.job_kind else {}
    return how_to_bring(Need(kind="", brings=operator.prototype, params=params), environment)


def how_to_bring(need: Need, environment: str) -> str:
    """Say how a kind that is needed comes into a cluster: with a prototype of ours, else upstream's way."""
    if not need.brings:
        return f"as its project says: {need.install}"
    params = "".join(f", its parameter `{name}` naming {value}" for name, value in need.params.items())
    add = f"mlstack generate {need.brings} {need.brings}"
    apply = f"mlstack apply {environment} -c {need.brings}"
    return f"the prototype `{need.brings}` brings it{params}: {add}, then {apply}"


def need_text(need: Need, environment: str) -> str:
    """Say that a prototype needs a kind, and how that comes into a cluster."""
    api_version, _, kind = need.kind.rpartition("/")
    return f"needs the kind `{kind}` ({api_version}): {how_to_bring(need, environment)}"


def kind_hint(api_version: str, kind: str, served: Kinds, environment: str) -> str:
    """Say how a cluster that serves other kinds comes to know this one, or what was meant."""
    group, operator = group_of(api_version), operator_of(api_version, kind)
    versions = [
        other.api_version
        for other in served.of_group(group)
        if other.kind == kind
        if operator is None or _operator_name(other.api_version, kind) == operator.name
    ]
    if versions:
        return f"the cluster serves `{kind}` as {' and '.join(versions)}: write that `apiVersion`"
    if why := retired(api_version, kind):
        return f"nobody serves `{kind}` any more: {why}"
    if operator is not None:
        today = f"the {operator.name} serves {operator.instead} today; " if operator.instead else ""
        return f"`{kind}` is served by the {operator.name}: {today}{how_to_install(operator, environment)}"
    same_group = [other.kind for other in served.of_group(group)]
    likely = likely_kind(api_version, kind) or names.nearest(kind, same_group)
    if likely and likely != kind:
        return f"did you mean `{likely}`?"
    if "." in group and not group.endswith(".k8s.io"):
        return f"install the definitions of `{group}` first, or let `{environment}` deploy them"
    elsewhere = sorted({other.api_version for other in Kinds.builtin() if other.kind == kind})
    if elsewhere:
        return f"Kubernetes serves `{kind}` as {' and '.join(elsewhere)}: write that `apiVersion`"
    return f"Kubernetes has no such kind: kubectl api-resources{f' --api-group={group}' if group else ''}"


def unseen(facts: Facts) -> Readiness | None:
    """Say that no operator has looked at an object; None if one has, or it is too early to tell."""
    if facts.status or facts.events or facts.pods or facts.age_s <= UNSEEN_S:
        return None
    return waiting(f"{_unseen_by(facts.data)} after {int(facts.age_s)} s")


def is_unseen(data: Mapping[str, Any], readiness: Readiness) -> bool:
    """Tell whether that is what an object waits for."""
    return readiness.state == "waiting" and readiness.reason.startswith(_unseen_by(data))


def _unseen_by(data: Mapping[str, Any]) -> str:
    return f"no {serving_operator(data) or 'controller'} has picked it up"


def serving_operator(data: Mapping[str, Any]) -> str:
    """Name the operator that serves an object; empty if it is not known."""
    return _operator_name(str(data.get("apiVersion", "")), str(data.get("kind", "")))


def _operator_name(api_version: str, kind: str) -> str:
    operator = operator_of(api_version, kind)
    return operator.name if operator else ""


def _keys(api_version: str, kind: str) -> tuple[str, ...]:
    group = group_of(api_version)
    return (f"{api_version}/{kind}", f"{group}/{kind}", group)


# --- pods, what owns them and events, found by whom they belong to ---

ApiKind = tuple[str, str]  # API version and kind

_SET: ApiKind = ("apps/v1", "ReplicaSet")
_JOB: ApiKind = ("batch/v1", "Job")
_ANY: tuple[ApiKind, ...] = (_SET, _JOB, ("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"))

# What stands between objects of a kind, or of a group, and their pods; other custom resources may have
# workloads of any kind below them.
_BETWEEN: Mapping[str, tuple[ApiKind, ...]] = {
    "apps/Deployment": (_SET,),
    "apps/StatefulSet": (),
    "apps/DaemonSet": (),
    "apps/ReplicaSet": (),
    "batch/Job": (),
    "ReplicationController": (),
    "Pod": (),
    "PersistentVolumeClaim": (),
    "argoproj.io/Rollout": (_SET,),
    "argoproj.io": (),
    "kubeflow.org/Notebook": (("apps/v1", "StatefulSet"),),
    "kubeflow.org": (_JOB,),
    "batch.volcano.sh": (),
    "jobset.x-k8s.io": (_JOB,),
    "leaderworkerset.x-k8s.io": (("apps/v1", "StatefulSet"),),
    "ray.io": (("ray.io/v1", "RayCluster"), _JOB),
    "sparkoperator.k8s.io": (),
    "trainer.kubeflow.org": (("jobset.x-k8s.io/v1alpha2", "JobSet"), _JOB),
}


def kinds_below(objects: Iterable[Data]) -> tuple[ApiKind, ...]:
    """Give API version and kind of what has to be read to find the pods of objects, pods included."""
    kinds: set[ApiKind] = set()
    for obj in filter(has_pods, objects):
        key = key_of(obj)
        kinds |= {("v1", "Pod"), *_BETWEEN.get(key, _BETWEEN.get(key.partition("/")[0], _ANY))}
    return tuple(sorted(kinds))


def has_pods(data: Data) -> bool:
    """Tell whether pods may belong to an object: workloads, claims, and any custom resource."""
    group = key_of(data).rpartition("/")[0]
    return key_of(data) in _BETWEEN or group in _BETWEEN or ("." in group and not group.endswith(".k8s.io"))


class Relatives:
    """Pods, their owners and events, kept as they come and found by whom they belong to."""

    def __init__(self, objects: Iterable[Data] = ()) -> None:
        self._children: defaultdict[str, dict[str, Data]] = defaultdict(dict)  # by the UID of their owner
        self._pods: defaultdict[str, dict[str, Data]] = defaultdict(dict)  # by namespace
        self._events: defaultdict[str, dict[str, Data]] = defaultdict(dict)  # by what they are about
        self._owners: dict[str, tuple[str, ...]] = {}
        for obj in objects:
            self.put(obj)

    def put(self, data: Data) -> None:
        """Take a pod, an owner of pods or an event as it is now."""
        uid = _uid(data)
        if data.get("kind") == "Event":
            about = data.get("involvedObject")
            self._events[str(about.get("uid")) if isinstance(about, Mapping) else ""][uid] = data
            return
        self.drop(data)
        self._owners[uid] = tuple(
            str(owner["uid"]) for owner in data["metadata"].get("ownerReferences") or ()
        )
        for owner in self._owners[uid]:
            self._children[owner][uid] = data
        if data.get("kind") == "Pod":
            self._pods[str(data["metadata"].get("namespace", ""))][uid] = data

    def drop(self, data: Data) -> None:
        """Forget what is gone; events outlive their expiry, as what they said was true."""
        uid = _uid(data)
        for owner in self._owners.pop(uid, ()):
            self._children[owner].pop(uid, None)
        self._pods[str(data["metadata"].get("namespace", ""))].pop(uid, None)

    def pods_of(self, live: Data) -> list[Data]:
        """Give the pods below an object by name: its own, or those that mount it."""
        metadata = live["metadata"]
        if live.get("kind") == "Pod":
            return [live]
        if live.get("kind") == "PersistentVolumeClaim":
            near = self._pods[str(metadata.get("namespace", ""))].values()
            pods = [pod for pod in near if metadata["name"] in _claims(pod)]
        else:
            pods = list(self._below(live))
        generation = (metadata.get("annotations") or {}).get("deprecated.daemonset.template.generation")
        if live.get("kind") == "DaemonSet" and generation is not None:
            # Pods that a rolling update is about to replace.
            labels = [pod["metadata"].get("labels") or {} for pod in pods]
            own = [label.get("pod-template-generation", generation) == generation for label in labels]
            pods = [pod for pod, is_new in zip(pods, own, strict=True) if is_new]
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    def events_of(self, objects: Iterable[Data]) -> list[Data]:
        """Give the events about any of these objects, oldest first."""
        events = [event for obj in objects for event in self._events[_uid(obj)].values()]
        return sorted(events, key=event_time)

    def _below(self, owner: Data) -> Iterator[Data]:
        children = list(self._children[_uid(owner)].values())
        if sets := [child for child in children if child["kind"] == "ReplicaSet"]:
            # Pods of an older revision are on their way out and say nothing about the newest one.
            yield from self._below(max(sets, key=_revision))
        for child in children:
            if child["kind"] == "Pod":
                yield child
            elif child["kind"] != "ReplicaSet":
                yield from self._below(child)


def _revision(replica_set: Data) -> tuple[int, str]:
    metadata = replica_set["metadata"]
    number = str((metadata.get("annotations") or {}).get("deployment.kubernetes.io/revision", "0"))
    return int(number) if number.isdigit() else 0, str(metadata.get("creationTimestamp", ""))


def _claims(pod: Data) -> set[str]:
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return {str((volume.get("persistentVolumeClaim") or {}).get("claimName")) for volume in volumes}


def _uid(data: Data) -> str:
    return str(data["metadata"].get("uid"))


def event_time(event: Data) -> str:
    """Give when an event was last seen, by either of its APIs."""
    series = event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("eventTime") or event.get("lastTimestamp")
    return str(last or event["metadata"].get("creationTimestamp") or "")
