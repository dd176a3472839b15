"""The writes of a pass: carried out, tried by dry run, and decided for one job after a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from itertools import count
from typing import Any, Literal

from mlstack.clock import time_ms
from mlstack.dataclass import dataclass
from mlstack.elastic import pods
from mlstack.elastic.cache import ClusterCache, free_room, job_ref
from mlstack.elastic.facts import JobFacts, PodFacts, SetFacts
from mlstack.elastic.pods import PLANNED
from mlstack.elastic.snapshot import Decision, Reason, ScalePlan, Snapshot, Vector, minus
from mlstack.elastic.state import JobContext, Lifecycle, missing_pods, shortened
from mlstack.elastic.training_job import ROLE_LABEL
from mlstack.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    ObjectNotFoundError,
    TransientError,
    UnreachableError,
)
from mlstack.kube.client import Cluster, ObjectRef, WatchEvent
from mlstack.objects.resources import Amounts, excess, requests
from mlstack.readiness.rule import event_time

MANAGER = "mlstack-elastic"
_FRESH_MS = 60_000  # so long what was taken in a trial is not tried again

Stage = Literal["status", "delete", "support", "renew", "create", "event"]
# In this order: pods that go make room, which takes time; servers go once their sets are written.
STAGES: tuple[Stage, ...] = ("status", "delete", "support", "renew", "create")
Runner = Callable[[Sequence[Callable[[], None]]], None]  # carries out work of which no piece needs another


def one_by_one(works: Sequence[Callable[[], None]]) -> None:
    """Carry out one piece of work after the other."""
    for work in works:
        work()


class NameTakenError(ConflictError):
    """Raised where an object of the job's would take the place of somebody else's."""


@dataclass(frozen=True)
class Action:
    """One write."""

    stage: Stage
    verb: Literal["create", "apply", "delete", "status", "patch"]  # `patch` is a merge patch
    ref: ObjectRef
    job: str  # key of the job that it is done for
    why: str  # one line for people
    body: Mapping[str, Any] = field(default_factory=dict)  # the object, or what changes of it or its status
    uid: str = ""  # `delete`: only this very object; `apply`: of the owner that an object there must have
    version: int = 0  # `status`: resource version of the object that was decided about
    grace_period_s: int | None = None  # `delete`: time to end, None for the object's own
    stops: str = ""  # `delete`: role of the pod that it stops; empty if it had ended, and for other kinds

    def __str__(self) -> str:
        return f"{self.verb} {self.ref}: {self.why}"


# --- carrying out ---


def execute(
    cluster: Cluster, cache: ClusterCache, run: Runner, actions: Sequence[Action], taken: list[Action]
) -> dict[int, ClusterError]:
    """Do all actions, in any order, and give the errors of those that were refused, by their index.

    `taken` gets those that the cluster took. The cache knows at once what came of them, before any watch
    tells it, and before the UnreachableError of a server that does not answer.
    """
    events: dict[int, tuple[WatchEvent | None, bool]] = {}
    errors: dict[int, ClusterError] = {}

    def work(index: int) -> None:
        try:
            events[index] = _write(cluster, actions[index])
        except ClusterError as error:
            errors[index] = error

    try:
        run([lambda index=index: work(index) for index in range(len(actions))])  # type: ignore[misc]
    finally:
        # The cache is for one thread: what the writes gave is told here, not where they ran.
        for index, (event, is_taken) in sorted(events.items()):
            if event is not None:
                cache.handle(event)
            if is_taken:
                taken.append(actions[index])
    if unreachable := [error for error in errors.values() if isinstance(error, UnreachableError)]:
        raise unreachable[0]
    return dict(sorted(errors.items()))


def _write(cluster: Cluster, action: Action) -> tuple[WatchEvent | None, bool]:
    """Do one write; gives what the cache has to know, and whether the cluster changed by this very write."""
    ref, body = action.ref, action.body
    match action.verb:
        case "create":
            try:
                written = cluster.create(body, manager=MANAGER)
            except ConflictError:  # there is one of that name already: look at it, plan anew
                live = cluster.get(ref)
                return (WatchEvent(type="MODIFIED", object=live) if live is not None else None), False
        case "apply":
            _check_owner(cluster.get(ref), ref, action.uid)
            written = cluster.apply(body, manager=MANAGER, force=True)
        case "status":
            patch = {"metadata": {"resourceVersion": str(action.version)}, "status": body}
            written = cluster.patch(ref, patch, subresource="status", manager=MANAGER)
        case "patch":
            written = cluster.patch(ref, body, manager=MANAGER)
        case "delete":
            return _delete(cluster, action)
    return WatchEvent(type="MODIFIED", object=written.object), True


def _delete(cluster: Cluster, action: Action) -> tuple[WatchEvent, bool]:
    ref, uid = action.ref, action.uid
    metadata = {"namespace": ref.namespace, "name": ref.name, "uid": uid}
    gone = {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": metadata}
    event = WatchEvent(type="DELETED", object=gone)
    try:
        left = cluster.delete(ref, propagation="Background", uid=uid, grace_period_s=action.grace_period_s)
    except ObjectNotFoundError:
        return event, False
    except ConflictError:  # mostly another of the same name; if it is the same one after all, try again
        live = cluster.get(ref)
        if live is not None and live["metadata"].get("uid") == uid:
            raise
        return event, False
    return (event if left is None else WatchEvent(type="MODIFIED", object=left)), True


def _check_owner(live: Mapping[str, Any] | None, ref: ObjectRef, uid: str) -> None:
    owners = ((live or {}).get("metadata") or {}).get("ownerReferences") or ()
    if live is not None and uid not in {str(owner.get("uid")) for owner in owners}:
        raise NameTakenError(f"`{ref}` is there and does not belong to the job")


# --- whether the API server would take the pods of a gang: asked by dry run before any room is taken ---

_QUOTA_NAMES = {
    "Service": ("services", "count/services"),
    "StatefulSet": ("count/statefulsets.apps",),
    "PodDisruptionBudget": ("count/poddisruptionbudgets.policy",),
}


@dataclass
class Trial:
    """One job before the API server."""

    job: JobFacts  # as it was tried
    more: int  # how many trainers beyond those it has, 0 for a whole gang
    begun_ms: int
    is_over: bool = False  # whether there is an answer
    refusal: str | None = None  # what the API server said, None if all was taken
    is_passing: bool = False  # whether the same may soon be taken
    is_quota: bool = False  # whether a quota of the namespace is too small for them now
    requests: dict[str, Amounts] = field(default_factory=dict)  # by role, where not as written

    def passes(self, plan: ScalePlan) -> bool:
        """Tell whether the job may be admitted by a plan."""
        if not self.is_over or self.refusal is None:
            return self.is_over
        # A quota has room once the plan has taken pods of its namespace, as long as that is all it takes.
        poorer = {key.partition("/")[0] for key, decision in plan.decisions.items() if decision.victims}
        return self.is_quota and poorer == {self.job.namespace}


class Trials:
    """Tries gangs side by side; one that takes long goes on while others are looked after."""

    def __init__(self, cluster: Cluster, cache: ClusterCache, run: Runner) -> None:
        self._cluster, self._cache, self._run = cluster, cache, run
        self._known: dict[tuple[str, bool], Trial] = {}

    def of(
        self, jobs: Sequence[JobFacts], now_ms: int, *, more: bool = False, again: Container[str] = ()
    ) -> list[Trial]:
        """Give a trial of each job as it is: the last one while it is fresh or goes on, else a new one.

        `more` tries one further trainer. Of jobs given up before (`again`) StatefulSets are tried as well.
        """
        live = {(job.key, job.uid, job.generation) for job in self._cache.jobs.values()}
        self._known = {
            key: trial
            for key, trial in self._known.items()
            if (trial.job.key, trial.job.uid, trial.job.generation) in live
            if not trial.is_over or now_ms - trial.begun_ms < _FRESH_MS
        }
        trials, questions = [], []
        for job in jobs:
            trial = self._known.get((job.key, more))
            if trial is None or trial.refusal is not None:
                trial = self._known[job.key, more] = Trial(job, int(more), now_ms)
                questions.append(self._question(trial, has_sets=job.key in again))
            trials.append(trial)
        if questions:
            self._run(questions)
        self._cache.tried = {key: trial.requests for (key, _), trial in self._known.items() if trial.is_over}
        return trials

    def _question(self, trial: Trial, *, has_sets: bool) -> Callable[[], None]:
        # The cache is for one thread: what is needed of it is read before.
        quotas = self._cache.quotas(trial.job.namespace)
        others = {} if trial.more else self._others(trial.job)

        def ask() -> None:
            refusal: str | None = "the trial of its pods broke off"
            is_passing, is_quota = True, False
            try:
                if has_sets:
                    self._try_sets(trial.job)
                short = excess(quotas, list(self._try_pods(trial)), others)
                refusal, is_passing = short.text if short else None, False
                is_quota = short is not None and not short.is_for_good
            except ClusterError as error:
                refusal, is_passing = str(error), isinstance(error, TransientError | UnreachableError)
                is_quota = isinstance(error, ForbiddenError) and error.why == "quota"
            finally:
                trial.refusal, trial.is_passing, trial.is_quota = refusal, is_passing, is_quota
                trial.is_over = True

        return ask

    def _try_pods(self, trial: Trial) -> Iterator[tuple[Mapping[str, Any], int]]:
        """Give one pod of each role as the API server would have it, and how many there are to be."""
        spec = trial.job.spec
        if spec is None:
            return
        servers = () if trial.more else trial.job.servers
        manifests = [(pods.server(spec, role.role), role.count) for role in servers]
        for pod, number in (*manifests, (pods.trainer(spec, 0), trial.more or spec.minimum)):
            try:
                admitted = self._cluster.create(pod, manager=MANAGER, dry_run=True).object
                if (asked := requests(admitted["spec"])) != requests(pod["spec"]):
                    trial.requests[pod["metadata"]["labels"][ROLE_LABEL]] = asked
                yield admitted, number
            except ConflictError:  # there is a pod of that name, which is seen after admission let it pass
                yield pod, number

    def _try_sets(self, job: JobFacts) -> None:
        """Try the StatefulSets of a job: somebody else may have one of its name."""
        for manifest in pods.supporting(job.spec, hints={}) if job.spec else ():
            ref = ObjectRef.of(manifest)
            if ref.kind == "StatefulSet":
                _check_owner(self._cluster.get(ref), ref, job.uid)
                self._cluster.apply(manifest, manager=MANAGER, force=True, dry_run=True)

    def _others(self, job: JobFacts) -> dict[str, int]:
        kinds = [ref.kind for ref, state in self._cache.lacking(job).items() if state == "missing"]
        sets = [f"{job.namespace}/{role.set_name}" for role in job.servers]
        kinds += ["StatefulSet" for key in sets if key not in self._cache.sets]
        return dict(Counter(name for kind in kinds for name in _QUOTA_NAMES.get(kind, ())))


def set_refusal(cluster: Cluster, namespace: str, name: str, since_ms: int) -> str:
    """Give why a StatefulSet makes no pods, by its controller's events since then; empty for nothing."""
    about = f"involvedObject.kind=StatefulSet,involvedObject.name={name},reason=FailedCreate"
    try:
        events = cluster.list("v1", "Event", namespace=namespace, fields=about).items
    except ClusterError:  # whoever may not read events waits as long as for pods that find no node
        return ""
    last = max(events, key=event_time, default=None)
    return str(last.get("message") or "") if last and time_ms(event_time(last)) >= since_ms else ""


# --- what is to be done about one job, after a decision and what became of its pods ---

# Trainers created in one pass: an API server takes some hundred in a second, and news should not wait.
MOST_CREATIONS = 400
_HELD_MS = 15_000  # so long after the grace of a trainer a pod may wait for the node that it is held to
INCOMPLETE_MS = 90_000  # so long after its admission a gang may lack a place before it gives its room back
# So long after pods of StatefulSets are missing their controller is asked why, and as often from then on.
ASKED_MS = 3_000
# So long pods of a gang may be refused before it gives all back: other jobs wait for its room.
_REFUSED_MS = 10_000
# Services and budgets of a job that somebody changes are written no more often: another may not give in.
_RESTORED_MS = 60_000


def free_capacity(snapshot: Snapshot, plan: ScalePlan) -> dict[str, Vector]:
    """Give the room on each node that is free now and that nobody is promised.

    A plan promises room that pods on their way out will leave. A trainer created before they have left would
    be given the first room that comes free, which another pod was promised, one held to that very node
    perhaps. So it is created when its own place is free; nothing is lost but the time of one pass.
    """
    promised = [(reservation.node, reservation.request) for reservation in plan.reservations]
    for job in snapshot.jobs:
        waiting = plan.decisions[job.key].waiting
        nodes = [waiting.get(trainer.name, "") for trainer in job.trainers if not trainer.node]
        promised += [(node, job.trainer) for node in nodes]
    return free_room(snapshot, promised)


def delete_pods(
    job: JobFacts, pods: Iterable[PodFacts], why: str, *, stage: Stage = "delete", grace_s: int | None = None
) -> list[Action]:
    """Delete these very pods."""
    return [
        Action(
            *(stage, "delete", ObjectRef("v1", "Pod", pod.namespace, pod.name), job.key, why),
            uid=pod.uid,
            grace_period_s=grace_s,
            stops="" if pod.ending else pod.role,
        )
        for pod in pods
    ]


@dataclass(kw_only=True)
class JobReconciler:
    """Gives the actions of one pass."""

    cache: ClusterCache
    free: dict[str, Vector]  # room on each node for trainers, less what this pass creates
    requests: Mapping[str, Vector]  # of one trainer of each job of the plan
    now_ms: int
    transitions: int | None  # of the lease of the leader
    due: list[int]  # gets the times at which something falls due
    creations_left: int  # how many more trainers may be created in this pass
    whole: set[str] = field(default_factory=set)  # jobs around whose trainers all stands with these actions

    def reconcile(self, context: JobContext, decision: Decision) -> tuple[Decision, list[Action]]:
        """Give the actions that carry out a decision; a hopeless gang overrules it."""
        job, record, life = context.job, context.record, context.life
        decision = _explain_losses(job, decision, life)
        victims = [pod for pod in context.trainers if pod.name in decision.victims]
        if any(reason.cause == "stuck" for reason in decision.reasons):
            for node in dict.fromkeys(pod.planned for pod in victims if pod.planned and not pod.node):
                record.bar(node, self.now_ms)
        if decision.target == 0:
            record.leave_gang()
            return decision, self.take_off(context, why=decision.reasons[0].text)
        if decision.reasons[0].cause != "finishing" and (refusal := self._refusal(context)):
            return self._give_up(context, refusal, is_refused=True)
        hints: Mapping[str, tuple[str, ...]] = {}
        if job.target == 0:
            record.admitted_ms, record.support_generation = self.now_ms, None
            hints = {role: tuple(map(self.cache.host_name, nodes)) for role, nodes in decision.hints.items()}
        gang, hopeless = self._gang(context, hints)
        if hopeless:
            for node in sorted({node for nodes in record.hints.values() for node in nodes}):
                record.bar(node, self.now_ms)
            return self._give_up(context, hopeless)
        if life.due_ms is not None:
            self.due.append(life.due_ms)
        why = f"{decision.reasons[0].cause}: {decision.reasons[0].text}"
        actions = delete_pods(job, victims, why) + delete_pods(job, life.removed, "needed no more")
        if record.writes.is_waiting(self.now_ms):
            self.due.append(record.writes.until_ms)
            self.whole.discard(job.key)
            return decision, actions
        needless = [
            Action("support", "delete", ref, job.key, "needed no more", uid=uid)
            for ref, uid in self.cache.needless(job).items()
        ]
        return decision, [*actions, *gang, *needless, *self._creations(context, decision, why)]

    def take_off(self, context: JobContext, *, why: str = "") -> list[Action]:
        """Give the actions for a job that is to have no pods; pods that ended stay to be read."""
        job = context.job
        why = why or ("the job has ended" if job.has_ended else "spec.suspend is true")
        if job.is_deleted or job.spec is None:
            return []
        ended_ms = time_ms(str(job.status.get("completionTime") or "")) if job.has_ended else 0
        if ended_ms and job.spec.ttl_s is not None:
            due_ms = ended_ms + job.spec.ttl_s * 1000
            if self.now_ms >= due_ms:
                why = f"{job.spec.ttl_s} s after its end"
                return [Action("delete", "delete", job_ref(job), job.key, why, uid=job.uid)]
            self.due.append(due_ms)
        actions, sets = delete_pods(job, context.trainers, why), self.cache.sets_of(job)
        at_work = {_set_ref(job, name) for name, its_set in sets.items() if its_set.replicas}
        if at_work:
            actions += self._supports(context, why, is_running=False, sets_only=True, only=at_work)
        return actions

    # --- masters and parameter servers: brought into being, held to their nodes, let go again ---

    def _refusal(self, context: JobContext) -> str:
        """Say why a gang had better give its room back: pods are refused, not merely missing; else empty."""
        record = context.record
        if not missing_pods(context.job, context.pods):
            record.short_ms = record.refused_since_ms = None
            return ""
        if record.short_ms is None:
            record.short_ms = self.now_ms
        if not record.refusal or record.refused_ms < record.short_ms:
            record.refused_since_ms, refusal = None, ""
            until_ms = record.short_ms + ASKED_MS
        else:
            if record.refused_since_ms is None:
                record.refused_since_ms = record.refused_ms
            until_ms, refusal = record.refused_since_ms + _REFUSED_MS, record.refusal
        if self.now_ms >= until_ms:
            return refusal
        self.due.append(until_ms)
        return ""

    def _gang(self, context: JobContext, hints: Mapping[str, tuple[str, ...]]) -> tuple[list[Action], str]:
        """Give what the gang of an admitted job needs, and why it had better wait again, empty for nothing.

        `hints` are the host names of the nodes of the plan that has just admitted it, else empty.
        """
        job, record = context.job, context.record
        servers = [pod for pod in context.pods if pod.role != "trainer" and pod.is_live]
        waiting = [pod for pod in servers if not pod.node]
        is_placed = len(servers) - len(waiting) >= sum(role.count for role in job.servers)
        if is_placed:
            record.admitted_ms = None
            if not missing_pods(job, context.pods):
                record.gang.streak = 0
        if hints:
            record.hints = hints
            return self._supports(context, "admitted", is_held=True), ""
        # At pods that are not tried the scheduler has not looked yet: held or not, they have to wait for it.
        limit_ms = _HELD_MS + (job.spec.trainer.grace_s * 1000 if job.spec else 0)
        held = [pod for pod in waiting if pod.is_tried and pod.is_held_to_node]
        overdue = [pod for pod in held if self.now_ms - pod.created_ms >= limit_ms]
        sets = self.cache.sets_of(job)
        if overdue or (is_placed and any(its_set.is_held for its_set in sets.values())):
            why = "all have a node"
            if overdue:
                why = f"{_unplaced(overdue)}; no longer held to the planned nodes"
            renewals = delete_pods(job, overdue, why, stage="renew", grace_s=0)
            return [*self._supports(context, why, sets_only=True), *renewals], ""
        waited_ms = 0 if is_placed or record.admitted_ms is None else self.now_ms - record.admitted_ms
        if waited_ms >= INCOMPLETE_MS:
            return [], _unplaced(waiting)
        self.due += sorted(pod.created_ms + limit_ms for pod in held)[:1]
        return self._restorations(context, sets), ""

    def _restorations(self, context: JobContext, sets: Mapping[str, SetFacts]) -> list[Action]:
        """Write what is missing around the trainers, differs, or is not known to be as the job is now."""
        job, record = context.job, context.record
        lacking = self.cache.lacking(job)
        changed = {ref for ref, state in lacking.items() if state == "changed"}
        wrong = set(lacking)
        if self.now_ms - record.restored_ms < _RESTORED_MS:
            wrong -= changed
        elif changed:
            record.restored_ms = self.now_ms
        wrong |= {
            _set_ref(job, role.set_name)
            for role in job.servers
            if role.set_name not in sets or sets[role.set_name].replicas != role.count
        }
        is_observed = job.status.get("observedGeneration") == job.generation
        is_known = record.support_generation == job.generation
        if record.support_generation is None:
            # A new leader does not know what was written; it trusts that all was, once the gang was complete.
            is_known = is_observed and job.phase in ("Running", "Scaling", "Completing")
        if is_known and not (record.unwritten or wrong):
            return []
        why = "written again, not known to be complete"
        if job.target == 0:
            why = "admitted"
        elif is_known:
            why = "restored" if wrong - record.unwritten.keys() else "tried again"
        elif record.support_generation is not None or not is_observed:
            why = "the job was changed"
        # Servers of a gang that was just admitted are held to their nodes even where no set came off yet.
        is_new = not sets and record.admitted_ms is not None and bool(record.hints)
        is_held = is_new or any(its_set.is_held for its_set in sets.values())
        only = record.unwritten.keys() | wrong if is_known else frozenset[ObjectRef]()
        return self._supports(context, why, is_held=is_held, only=only)

    def _supports(
        self,
        context: JobContext,
        why: str,
        *,
        is_running: bool = True,
        is_held: bool = False,
        sets_only: bool = False,
        only: Set[ObjectRef] = frozenset(),
    ) -> list[Action]:
        """Write what stands around the trainers, or `only` some of it; `is_held`: servers go nowhere else."""
        job, record = context.job, context.record
        if job.spec is None:
            return []
        if not sets_only:
            self.whole.add(job.key)
        manifests = pods.supporting(
            job.spec,
            hints=record.hints if is_running else {},
            required=is_held,
            is_running=is_running,
            transitions=self.transitions,
        )
        return [
            Action("support", "apply", ref, job.key, why, manifest, job.uid)
            for manifest in manifests
            if (ref := ObjectRef.of(manifest)).kind == "StatefulSet" or not sets_only
            if not only or ref in only
        ]

    # --- trainers ---

    def _creations(self, context: JobContext, decision: Decision, why: str) -> list[Action]:
        """Create trainers where there is room now, as many as are not held back by failures."""
        job, life = context.job, context.life
        assert job.spec is not None
        held = max(0, life.held - decision.withheld)
        places = decision.places[: max(0, len(decision.places) - held)]
        if job.servers and self.cache.quotas(job.namespace) and missing_pods(job, context.pods):
            # What a quota leaves is for the gang first: others make its masters and parameter servers.
            places = places[: max(0, job.spec.minimum - len(context.trainers))]
        nodes = [node for node in places if self._takes(node, self.requests[job.key])]
        if len(nodes) > self.creations_left:
            self.due.append(self.now_ms)
        # They get the lowest indexes that are free; those of pods that are about to be removed are.
        removed, prefix = {pod.key for pod in life.removed}, f"{job.namespace}/{job.name}-trainer-"
        keys = ((index, f"{prefix}{index}") for index in count())
        indexes = (index for index, key in keys if key in removed or key not in self.cache.pods)
        creations = []
        for node, index in zip(nodes[: self.creations_left], indexes, strict=False):
            host = self.cache.host_name(node) if node else ""
            pod = pods.trainer(job.spec, index, node=host, transitions=self.transitions)
            if node != host:
                pod["metadata"]["annotations"][PLANNED] = node
            ref = ObjectRef.of(pod)
            creations.append(Action("create", "create", ref, job.key, why, pod))
        self.creations_left = max(0, self.creations_left - len(nodes))
        return creations

    def _takes(self, node: str, request: Vector) -> bool:
        free = self.free.get(node)
        if not node or free is None:
            return not node
        if has_room := all(left >= amount for left, amount in zip(free, request, strict=True) if amount):
            self.free[node] = minus(free, request)
        return has_room

    def _give_up(
        self, context: JobContext, why: str, *, is_refused: bool = False
    ) -> tuple[Decision, list[Action]]:
        """Take a gang off that found no room for its servers or is refused, and let it wait again."""
        record, generation = context.record, context.job.generation
        record.leave_gang()
        record.gang.refuse(generation, self.now_ms, why if is_refused else "")
        self.due.append(record.gang.until_ms)
        seconds = (record.gang.until_ms - self.now_ms) // 1000
        text = record.refused(generation, self.now_ms) or f"{why}; tried again after {seconds} s"
        reason = Reason(cause="refused" if is_refused else "stuck", text=text)
        decision = Decision(job=context.job.key, target=0, is_admitted=False, hints={}, reasons=(reason,))
        return decision, self.take_off(context, why=text)


def _set_ref(job: JobFacts, name: str) -> ObjectRef:
    return ObjectRef("apps/v1", "StatefulSet", job.namespace, name)


def _unplaced(waiting: Sequence[PodFacts]) -> str:
    server = next((pod for pod in waiting if pod.unplaced), None)
    if server is None:
        return "its masters and parameter servers found no node"
    return f"`{server.name}` found no node: {shortened(server.unplaced)}"


def _explain_losses(job: JobFacts, decision: Decision, life: Lifecycle) -> Decision:
    """Say so where a job has fewer trainers because some were taken from it or failed, not by the plan."""
    live = decision.target + len(decision.victims) - len(decision.places)
    missing, is_less = job.target - live, 0 < decision.target < job.target
    if not is_less or missing <= 0 or decision.reasons[0].cause not in ("steady", "gang"):
        return decision
    lost = "lost a trainer" if missing == 1 else f"lost {missing} trainers"
    reason = Reason(cause="yield", text=f"{lost} to pods of others or with a node; there is no room for more")
    if life.held:
        text = f"{lost}: those that failed are replaced after a pause, and their room is lent till then"
        reason = Reason(cause="steady", text=text)
    return replace(decision, reasons=(reason, *decision.reasons))
