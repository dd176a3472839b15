"""One pass of the controller: look, decide, act. Done twice it changes nothing more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mlstack.elastic import status
from mlstack.elastic.controller import events
from mlstack.elastic.controller.actions import (
    Action,
    Actions,
    Executor,
    NameTakenError,
    Refused,
    Run,
    one_by_one,
)
from mlstack.elastic.controller.cache import ClusterCache
from mlstack.elastic.controller.events import JobEvent
from mlstack.elastic.controller.gang import ASKED_MS, missing_pods
from mlstack.elastic.controller.job_reconciler import MOST_CREATIONS, FreeCapacity, JobReconciler
from mlstack.elastic.controller.jobs import JobFacts
from mlstack.elastic.controller.lifecycle import JobContext, Lifecycle, claims, judge, lacks, merge_patch
from mlstack.elastic.controller.snapshot_builder import MOVES_KEPT_MS, JobLimits, build_snapshot
from mlstack.elastic.controller.state import ControllerState, JobRecord, restore_moves
from mlstack.elastic.controller.trials import Trial, Trials, set_refusal
from mlstack.elastic.policy.plan import plan as decide
from mlstack.elastic.snapshot import Decision, PolicyConfig, ScalePlan, Snapshot
from mlstack.errors import ConflictError, ObjectNotFoundError, TransientError, UnreachableError
from mlstack.kube.client import Cluster, ObjectRef

RESENT_MS = 60_000
"""The same change of a status that did not stay is not written again for so long."""

_MOST_TURNS = 4
_LOOK_MS = 250  # an answer that takes longer is looked for so often
_CLOCKS_MS = 2_000  # times of events are whole seconds, of a clock that may go after ours
# What will soon be taken, unlike what is forbidden or wrong.
_PASSING = (ConflictError, TransientError)
_MAKING = ("create", "apply")

Decide = Callable[[Snapshot, PolicyConfig], ScalePlan]


@dataclass(frozen=True, kw_only=True)
class Wait:
    """A wait that is over."""

    job: str
    until: Literal["trainer", "gang"]  # what came: its first trainer that is ready, or the whole gang
    seconds: int  # since the job was created


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What one pass saw, decided and did."""

    snapshot: Snapshot
    plan: ScalePlan
    actions: tuple[Action, ...] = ()  # all writes, in their order
    refused: tuple[Refused, ...] = ()  # those that the cluster did not take
    taken: tuple[Action, ...] = ()  # those that it took, and those of passes before that were cut short
    # What was decided in the end, by job: gangs that are given up and trainers that were lost are not in the
    # plan.
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    events: tuple[JobEvent, ...] = ()  # what happened to jobs
    waits: tuple[Wait, ...] = ()  # whose waiting is over
    phases: Mapping[str, int] = field(default_factory=dict)  # jobs in each phase, those that ended included
    lacks: Mapping[str, int] = field(
        default_factory=dict
    )  # jobs that lack a `trainer`, or more of their `gang`
    plan_s: float = 0.0  # how long the policy took
    next_ms: int | None = None  # when something falls due, None for nothing


@dataclass
class _Work:
    """A pass as it goes on."""

    now_ms: int
    events: list[JobEvent]
    done: list[Action] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    decisions: dict[str, Decision] = field(default_factory=dict)
    waits: list[Wait] = field(default_factory=list)
    due: list[int] = field(default_factory=list)
    plan_s: float = 0.0


class Reconciler:
    """Brings a cluster to what a policy decides.

    Args:
        cluster: where to write; a fenced one, where others may lead.
        cache: what is known of it.
        config: of the policy.
        transitions: gives how often the lease has changed hands; every write of a pod carries it.
        run: carries out writes that do not depend on each other.
        instance: name of this process, for events.
        is_dry: work everything out, write nothing.
        decide: the policy.
        most_creations: trainers created in one pass at the most; the next comes at once.
        ask: carries out questions side by side; it may return while some of them go on.
        monotonic_s: times the policy, in seconds; without it every plan takes 0.
    """

    def __init__(
        self,
        cluster: Cluster,
        cache: ClusterCache,
        config: PolicyConfig | None = None,
        *,
        transitions: Callable[[], int | None] = lambda: None,
        run: Run = one_by_one,
        instance: str = "mlstack",
        is_dry: bool = False,
        decide: Decide = decide,
        most_creations: int = MOST_CREATIONS,
        ask: Run = one_by_one,
        monotonic_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._cluster, self._cache, self._config = cluster, cache, config or PolicyConfig()
        self._executor, self._trials = Executor(cluster, cache, run), Trials(cluster, cache, ask)
        self._ask, self._transitions, self._instance, self._is_dry = ask, transitions, instance, is_dry
        self._decide, self._most_creations, self._monotonic_s = decide, most_creations, monotonic_s
        self._state, self._is_first = ControllerState(), True
        self._untold: list[JobEvent] = []  # of a pass that was cut short

    def reconcile(self, now_ms: int) -> Pass:
        """Do one pass.

        Raises:
            UnreachableError: the server does not answer. What was done is known; the next pass does the rest.
        """
        work = _Work(now_ms, self._untold)
        self._untold = []
        try:
            return self._reconcile(work)
        except UnreachableError:
            self._untold = work.events
            raise

    def _reconcile(self, work: _Work) -> Pass:
        now_ms, cache = work.now_ms, self._cache
        if self._is_first:
            self._is_first = False
            self._state.moves_ms = restore_moves(cache.jobs(), now_ms - MOVES_KEPT_MS)
        contexts = self._contexts(now_ms)
        self._end_jobs(contexts, work)
        self._try_growth(contexts, now_ms)
        snapshot, plan = self._plan(contexts, work)
        contexts = self._contexts(now_ms)
        self._ask_sets(contexts, now_ms)
        lacking = Counter[str](
            lacks(context.job, context.pods) for context in contexts if context.job.wants_pods
        )
        self._act(snapshot, plan, contexts, work)
        taken, self._executor.taken = self._executor.taken, []
        return Pass(
            snapshot=snapshot,
            plan=plan,
            actions=tuple(work.done),
            refused=tuple(work.refused),
            taken=tuple(taken),
            decisions=work.decisions,
            events=tuple(work.events),
            waits=tuple(work.waits),
            phases=Counter(job.phase or "Pending" for job in cache.jobs()),
            lacks=lacking,
            plan_s=work.plan_s,
            next_ms=min(work.due, default=None),
        )

    # --- look ---

    def _contexts(self, now_ms: int) -> list[JobContext]:
        """Give the jobs with their pods, and what became of those that are under way."""
        pods = self._cache.pods_by_job()
        self._state.forget_all_but(set(pods))
        contexts = []
        for job in self._cache.jobs():
            record = self._state.of(job, pods[job.key], self._cache)
            life = judge(job, pods[job.key], record, now_ms) if job.wants_pods else Lifecycle()
            contexts.append(JobContext(job=job, pods=pods[job.key], record=record, life=life))
        return contexts

    def _end_jobs(self, contexts: Sequence[JobContext], work: _Work) -> None:
        """Write down which jobs are over before anything is planned: they take part no more."""
        ended: list[Action] = []
        for context in contexts:
            life = context.life
            if life.outcome:
                ended += self._status(context, None, work)
                work.events.append(events.of_end(context.job, life.outcome, life.reason, life.message))
        self._execute(ended, work)

    def _try_growth(self, contexts: Sequence[JobContext], now_ms: int) -> None:
        """Try one trainer more of jobs that were refused more of them, once it is time."""
        capped = [
            context
            for context in contexts
            if context.record.ceiling and not context.record.growth.is_waiting(now_ms)
        ]
        trials = self._trials.of([context.job for context in capped], now_ms, more=True) if capped else []
        for context, trial in zip(capped, trials, strict=True):
            record = context.record
            if trial.is_over and trial.refusal is None:
                record.ceiling = 0
            elif trial.is_over and trial.refusal is not None:
                record.cap(record.ceiling, context.job.generation, trial.refusal.text, now_ms)

    def _ask_sets(self, contexts: Sequence[JobContext], now_ms: int) -> None:
        """Learn why StatefulSets make no pods: their controller, who is refused them, tells it in events."""
        answers: list[tuple[JobRecord, str]] = []

        def question(record: JobRecord, namespace: str, name: str, since_ms: int) -> Callable[[], None]:
            return lambda: answers.append((record, set_refusal(self._cluster, namespace, name, since_ms)))

        questions = []
        for context in contexts:
            job, record, since_ms = context.job, context.record, context.record.short_ms
            if since_ms is None or now_ms - max(since_ms, record.asked_ms) < ASKED_MS:
                continue
            record.asked_ms = now_ms
            short = {name.rpartition("-")[0] for name in missing_pods(job, context.pods)}
            questions += [
                question(record, job.namespace, role.set_name, since_ms - _CLOCKS_MS)
                for role in job.servers
                if role.set_name in short
            ]
        if questions:
            self._ask(questions)
        for record, text in list(answers):
            if text:
                record.refuse(text, now_ms)

    # --- decide ---

    def _plan(self, contexts: Sequence[JobContext], work: _Work) -> tuple[Snapshot, ScalePlan]:
        """Decide; what the API server does not take of jobs that would be admitted is known before they are.

        Each job that it refuses leaves its room to others, which are tried in turn; after some turns whoever
        is still untried waits for the next pass.
        """
        now_ms, untried = work.now_ms, set[str]()
        for turn in range(_MOST_TURNS + 1):
            limits = self._limits(contexts, untried, now_ms)
            snapshot = build_snapshot(self._cache, now_ms, limits, self._state.moves_ms)
            begun_s = self._monotonic_s()
            plan = self._decide(snapshot, self._config)
            work.plan_s += self._monotonic_s() - begun_s
            new = [context for context in contexts if _is_admitted_by(plan, context.job)]
            if turn == _MOST_TURNS:
                trials = [Trial(context.job, 0, now_ms) for context in new]
            else:
                again = {context.job.key for context in new if context.record.gang.streak}
                trials = self._trials.of([context.job for context in new], now_ms, again=again)
            refused = [pair for pair in zip(new, trials, strict=True) if not pair[1].passes(plan)]
            if not refused:
                break
            for context, trial in refused:
                self._keep_out(context, trial, untried, work)
        return snapshot, plan

    def _limits(self, contexts: Sequence[JobContext], untried: Set[str], now_ms: int) -> dict[str, JobLimits]:
        limits = {
            context.job.key: context.record.limits(context.job, context.life.held, now_ms)
            for context in contexts
        }
        for key in untried:
            limits[key] = replace(limits[key], not_before_ms=max(limits[key].not_before_ms, now_ms + 1))
        return limits

    def _keep_out(self, context: JobContext, trial: Trial, untried: set[str], work: _Work) -> None:
        """Keep a job from being admitted whose pods are not taken, or which is not tried yet."""
        job, record = context.job, context.record
        if trial.refusal is None:
            untried.add(job.key)
            work.due.append(work.now_ms + _LOOK_MS)
        elif trial.refusal.is_passing or (trial.refusal.is_quota and self._is_leaving(job.namespace)):
            record.pass_by(trial.refusal.text, work.now_ms)
            work.due.append(record.passing.until_ms)
        else:
            record.give_up(job.generation, work.now_ms, refusal=trial.refusal.text)
            work.due.append(record.gang.until_ms)

    def _is_leaving(self, namespace: str) -> bool:
        """Tell whether pods of a namespace are on their way out: its quotas have more room soon."""
        return any(pod.namespace == namespace and pod.gone_ms is not None for pod in self._cache.pods())

    # --- act ---

    def _act(self, snapshot: Snapshot, plan: ScalePlan, contexts: Sequence[JobContext], work: _Work) -> None:
        """Do what was decided: say so, make room, then fill it."""
        reconciler = JobReconciler(
            cache=self._cache,
            capacity=FreeCapacity(snapshot, plan),
            now_ms=work.now_ms,
            transitions=self._transitions(),
            due=work.due,
            creations_left=self._most_creations,
        )
        statuses: list[Action] = []
        planned: list[Actions] = []
        for context in sorted(contexts, key=self._urgency):
            job, decision = context.job, plan.decisions.get(context.job.key)
            if context.life.outcome and not self._is_dry:
                continue  # the cluster did not take its end: the next pass tries again
            if decision is not None:
                decision, actions = reconciler.reconcile(context, decision)
                work.decisions[job.key] = decision
                self._record_decision(context, decision, work)
            elif job.is_paused(context.pods, work.now_ms):
                actions = reconciler.pause(context)
            else:
                actions = reconciler.take_off(context)
                work.events += events.of_suspension(job)
            statuses += self._status(context, decision, work)
            planned.append(actions)
        recent = [moved for moved in self._state.moves_ms if work.now_ms - moved <= MOVES_KEPT_MS]
        self._state.moves_ms = [*recent, *[work.now_ms] * plan.moves]
        self._execute(statuses, work)
        unsaid = {refused.action.job for refused in work.refused}
        agreed = [actions for actions in planned if actions.job not in unsaid]
        self._execute([action for actions in agreed for action in actions.deletions], work)
        self._execute_support(agreed, work)
        self._execute([action for actions in agreed for action in actions.creations], work)
        self._execute(self._events(work), work)

    def _urgency(self, context: JobContext) -> tuple[int, bool]:
        """Rank the jobs whose trainers get room that is free: by priority, then those that lack a minimum."""
        spec = context.job.spec
        if spec is None:
            return (0, True)
        return (-self._cache.priority(context.job).value, len(context.trainers) >= spec.minimum)

    def _status(self, context: JobContext, decision: Decision | None, work: _Work) -> list[Action]:
        """Write the status, where it changes."""
        job, record, now_ms = context.job, context.record, work.now_ms
        if job.is_deleted or job.has_ended:
            return []
        now = claims(context, decision, self._cache.priority(job), now_ms)
        after = status.build_status(now, job.status, now_ms=now_ms)
        patch = merge_patch(job.status, after)
        if not patch or (record.sent == patch and now_ms - record.sent_ms < RESENT_MS):
            return []
        work.events += events.of_status(job, after)
        work.waits += _waits(job, after, now_ms)
        phase = str(after.get("phase"))
        return [Action(verb="status", ref=job.ref, job=job.key, why=phase, body=patch, version=job.version)]

    def _record_decision(self, context: JobContext, decision: Decision, work: _Work) -> None:
        """Tell what changed; what lasts since the time of a leader before was told by that one."""
        job, recorder = context.job, context.record.events
        event = events.of_decision(job, decision)
        if event is None:
            return
        if event.lasts and recorder.is_new and status.says_waiting(job.status, event.text):
            recorder.take_over(event.key, work.now_ms)
        work.events.append(event)

    def _execute_support(self, agreed: Sequence[Actions], work: _Work) -> None:
        """Write what stands around the trainers, and remember for which jobs it stands as a whole.

        A server that is to go elsewhere goes only when its set is written: the old one would make it again as
        it was.
        """
        whole = {
            actions.job: {action.ref for action in actions.supports} for actions in agreed if actions.is_whole
        }
        self._note_unwritten(whole)
        self._execute([action for actions in agreed for action in actions.supports], work)
        refused = [refused.action for refused in work.refused if refused.action.verb == "apply"]
        failed, refs = {action.job for action in refused}, {action.ref for action in refused}
        if not self._is_dry:
            self._note_unwritten({key: written & refs for key, written in whole.items()})
        renewals = [action for actions in agreed if actions.job not in failed for action in actions.renewals]
        self._execute(renewals, work)

    def _note_unwritten(self, unwritten: Mapping[str, Set[ObjectRef]]) -> None:
        """Remember what is still to be written around the trainers of jobs."""
        for key, refs in unwritten.items():
            job = self._cache.job(key)
            record = self._state.get(job)
            if job is not None and record is not None:
                record.support_generation, record.unwritten = job.generation, frozenset(refs)

    def _events(self, work: _Work) -> list[Action]:
        """Give the events for what is new, and count what was told before on its event."""
        creations, told = [], []
        for event in work.events:
            job = self._cache.job(event.job)
            record = self._state.get(job)
            if job is None or record is None:
                continue
            manifest = event.manifest(job, work.now_ms, self._instance)
            ref = ObjectRef.of(manifest)
            is_new = record.events.record(event.key, ref.name, work.now_ms, lasts=event.lasts)
            if is_new:
                creations.append(Action(verb="create", ref=ref, job=job.key, why=event.reason, body=manifest))
            if is_new or not event.is_numbered:
                told.append(event)
        work.events = told
        return [*creations, *self._series(work.now_ms)]

    def _series(self, now_ms: int) -> Iterator[Action]:
        """Give the changes of events that tell how often something was."""
        for job in self._cache.jobs():
            record = self._state.get(job)
            for (reason, _), series in record.events.due(now_ms) if record else ():
                ref = ObjectRef(events.API_VERSION, "Event", job.namespace, series.event)
                why = f"{reason}, {series.count} times"
                yield Action(verb="patch", ref=ref, job=job.key, why=why, body=series.body)

    def _execute(self, actions: Sequence[Action], work: _Work) -> None:
        work.done += actions
        if self._is_dry or not actions:
            return
        refusals = self._executor.execute(actions)
        refused = {id(refusal.action) for refusal in refusals}
        for action in actions:
            if id(action) not in refused:
                self._note_done(action, work.now_ms)
        for refusal in refusals:
            work.refused.append(refusal)
            self._note_refused(refusal, work)

    def _note_done(self, action: Action, now_ms: int) -> None:
        """Remember which status was written, since one that does not stay is not written over and over.

        Whatever else was taken shows that what the cluster refused before is no longer in the way.
        """
        record = self._state.get(self._cache.job(action.job))
        if record is not None and action.verb == "status":
            record.sent, record.sent_ms = action.body, now_ms
        elif record is not None and action.verb in _MAKING and action.ref.kind != "Event":
            record.refusal = ""
            record.taken_names.pop(action.ref, None)

    def _note_refused(self, refused: Refused, work: _Work) -> None:
        """Try again later what the cluster did not take, and say why it did not."""
        action, error, now_ms = refused.action, refused.error, work.now_ms
        job = self._cache.job(action.job)
        record = self._state.get(job)
        if record is None or job is None:
            return
        if action.ref.kind == "Event":
            if isinstance(error, ObjectNotFoundError):
                record.events.forget(action.ref.name)
            return
        is_passing = isinstance(error, TransientError) and not error.webhook
        if action.verb == "apply" and isinstance(error, NameTakenError):
            record.taken_names[action.ref] = str(error)
        if action.verb in _MAKING and not is_passing:
            record.refuse(str(error), now_ms)
            pods = self._cache.pods_by_job()[job.key]
            live = sum(pod.role == "trainer" and pod.is_live for pod in pods)
            if action.ref.kind == "Pod" and live and not missing_pods(job, pods):
                # A job that can go on with the trainers that it has keeps to them.
                record.cap(live, job.generation, str(error), now_ms)
        if not record.writes.is_waiting(now_ms):
            record.writes.fail(now_ms, is_passing=isinstance(error, _PASSING))
        work.due.append(record.writes.until_ms)
        work.events.append(
            JobEvent(
                job=job.key, reason="Refused", action=action.verb.title(), text=str(error), type="Warning"
            )
        )


def _is_admitted_by(plan: ScalePlan, job: JobFacts) -> bool:
    decision = plan.decisions.get(job.key)
    return decision is not None and decision.target > 0 and job.target == 0 and job.wants_pods


def _waits(job: JobFacts, after: Mapping[str, Any], now_ms: int) -> Iterator[Wait]:
    """Give what a job waits for no more, by its status before and after."""
    if job.spec is None or job.status.get("startTime"):
        return
    seconds = max(0, now_ms - job.spec.created_ms) // 1000
    ready = int((job.status.get("trainer") or {}).get("ready") or 0)
    if not ready and (after.get("trainer") or {}).get("ready"):
        yield Wait(job=job.key, until="trainer", seconds=seconds)
    if after.get("startTime"):
        yield Wait(job=job.key, until="gang", seconds=seconds)
